//! `kiban ftam serve` and `passwd`: an FTAM responder and its users.

use crate::osi::peer::{PASSWORD_VARIABLE, cannot_listen};
use crate::output::note;
use clap::{Args, ValueEnum};
use kiban_os::exposure;
use kiban_os::exposure::Private;
use kiban_os::unix::names;
use kiban_osi::ftam::filestore::{self, Action, Actions};
use kiban_osi_runtime::ftam::authentication::AuthService;
use kiban_osi_runtime::ftam::disk::{Durability, Protected};
use kiban_osi_runtime::ftam::serve::{Service, ServiceConfig, Source};
use kiban_osi_runtime::ftam::users::{Attempts, BackoffConfig, Grants, Users, write_user};
use kiban_osi_runtime::secure;
use kiban_osi_runtime::secure::Identity;
use kiban_sandbox as sandbox;
use kiban_sandbox::{Need, OnRefusal, Sandbox};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

fn cannot_serve(root: &Path, error: &std::io::Error) -> String {
    let remedy = match error.kind() {
        std::io::ErrorKind::NotFound => "; create the directory, or name another with --root",
        _ => "",
    };
    format!("{}: {error}{remedy}", root.display())
}

#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban ftam passwd users.toml collector\
        \n  kiban ftam serve --listen 127.0.0.1:4102 --root /srv/cdr --users users.toml\
        \n  kiban ftam serve --listen '[::]:102' --root /srv/cdr --users users.toml --tls-cert cert.pem --tls-key key.pem\
        \n  kiban ftam serve --board lab --listen 0.0.0.0:102 --root /srv/cdr --users users.toml\
        \n\nThe directory must not contain any file that the server itself reads.\
        \nSIGHUP reloads the users file. After ctrl-c or SIGTERM, transfers have ten seconds to finish; then they are interrupted and can be resumed.")]
pub(super) struct Serve {
    /// Address to listen on. Peers expect port 102, which needs CAP_NET_BIND_SERVICE.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "[::]:102")]
    listen: String,
    /// Run all OSI layers on this running board. Then --listen is an address of the board, such as
    /// 0.0.0.0:102. The board needs a service of kind "osi". At most 256 associations.
    #[arg(long, value_name = "NAME", conflicts_with = "tls_cert")]
    board: Option<String>,
    /// Directory to serve. Peers cannot reach anything outside it. It must not contain the users file or TLS
    /// files.
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Users file, created by `kiban ftam passwd`.
    #[arg(long, value_name = "FILE")]
    users: PathBuf,
    /// Use TLS (IEC 62351) with this certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Accept only peers with a certificate issued by these authorities (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_ca: Option<PathBuf>,
    /// When to sync data to disk.
    #[arg(long, value_enum, default_value = "end")]
    fsync: Fsync,
    /// Maximum number of concurrent associations.
    #[arg(long, value_name = "NUMBER", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    associations_max: u32,
    /// Maximum number of these that are not yet authenticated.
    #[arg(long, value_name = "NUMBER", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    strangers_max: u32,
    /// Idle timeout while a file is selected, in seconds. The association is then aborted; its
    /// transfer can be resumed.
    #[arg(long, value_name = "SECONDS", default_value_t = 900, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    silence_max: u32,
    /// Maximum TPDU size in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 65531, value_parser = clap::value_parser!(u32).range(128..=65531))]
    tpdu_bytes: u32,
    /// Size of a sent data element (F-DATA) in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 16384, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    fdata_bytes: u32,
    /// Do not drop privileges after start, for debugging.
    #[arg(long)]
    no_sandbox: bool,
    /// Print log lines as JSON.
    #[arg(long)]
    json: bool,
}

/// When to sync data to disk.
#[derive(Clone, Copy, ValueEnum)]
enum Fsync {
    /// Leave syncing to the operating system: a host crash may lose files that were confirmed.
    Never,
    /// Before confirming a transfer.
    End,
    /// Before confirming a transfer or a checkpoint.
    Checkpoints,
}

impl Serve {
    pub(super) async fn run(self) -> Result<ExitCode, String> {
        crate::log::begin(self.json);
        let protected = Protected::default();
        let users = self.read_users(&protected)?;
        if users.count() == 0 {
            let file = self.users.display();
            return Err(format!("{file} has no users: add one with kiban ftam passwd {file} NAME"));
        }
        let auth = Arc::new(AuthService::new(users.clone(), Attempts::new(BackoffConfig::default())));
        let mut config = ServiceConfig::new(self.root.clone());
        config.protected = protected.clone();
        config.disk.durability = match self.fsync {
            Fsync::Never => Durability::Never,
            Fsync::End => Durability::AtEnd,
            Fsync::Checkpoints => Durability::AtCheckpoints,
        };
        config.associations_max = self.associations_max as usize;
        config.unauthenticated_max = self.strangers_max as usize;
        config.idle_timeout = Duration::from_secs(self.silence_max.into());
        config.responder.fdata_bytes = self.fdata_bytes as usize;
        config.stack.transport.tpdu_bytes_max = self.tpdu_bytes as usize;
        if let Some((certificate, key)) = self.tls_cert.clone().zip(self.tls_key.clone()) {
            let open = |path: &Path| {
                let file = File::open(path)?;
                protected.add_opened(path, &file)?;
                Ok(file)
            };
            let identity = Identity { certificate, key };
            let acceptor = secure::acceptor_with(&identity, self.tls_ca.as_deref(), open);
            config.tls = Some(acceptor.map_err(|error| error.to_string())?);
        }
        let service = Service::new(config, auth.clone()).map_err(|error| cannot_serve(&self.root, &error))?;
        service.check_homes(&users);
        let source = self.source().await?;
        let address = source.local_addr().map_err(|error| error.to_string())?;
        let failed = |error: std::io::Error| format!("cannot handle signals: {error}");
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;
        if !self.no_sandbox {
            let needs = [vec![Need::change(&self.root)], Need::read_again(&self.users)].concat();
            Sandbox::enter(&needs, OnRefusal::Error)
                .map_err(|error| format!("cannot drop privileges: {error}; --no-sandbox keeps them"))?;
        }
        // Print this only after signal handlers are installed, because the program that reads it may send a
        // signal.
        let (board, tls) = (self.board.as_deref(), self.tls_cert.is_some());
        tracing::info!(%address, board, root = %self.root.display(), tls, "serving FTAM");
        let stop = async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => return,
                    _ = terminate.recv() => return,
                    _ = hangup.recv() => match self.read_users(&protected) {
                        Ok(users) => {
                            tracing::info!(users = users.count(), "users file reloaded");
                            service.check_homes(&users);
                            auth.set_users(users);
                        }
                        Err(error) => {
                            let opened = kiban_os::regular::open(&self.users);
                            let hint = opened.err().filter(|_| !self.no_sandbox).map_or("", |error| sandbox::hint(&error));
                            tracing::error!(error = format!("{error}{hint}"), "users file not reloaded");
                        }
                    },
                }
            }
        };
        let outcome = service.serve(source, stop).await;
        tracing::info!("stopped");
        outcome.map_err(|_| "the board has exited: start it, and serve again".to_owned())?;
        Ok(ExitCode::SUCCESS)
    }

    /// Starts to listen, on this host or on a board.
    async fn source(&self) -> Result<Source, String> {
        let Some(board) = &self.board else {
            let listener = TcpListener::bind(&self.listen).await;
            return Ok(listener.map_err(|error| cannot_listen(&self.listen, &error))?.into());
        };
        let local = self.listen.parse().map_err(|_| {
            format!("{} is not an address with a port: write it as 0.0.0.0:102 or [::]:102", self.listen)
        })?;
        let source = Source::on_board(board, local, self.associations_max as usize).await;
        source.map_err(|error| format!("cannot listen on {} of board {board}: {error}", self.listen))
    }

    /// Reads the users file. Fails if the users file, or any other file used by this server itself, can be
    /// reached through the root. Adds these files to `protected`, so that peers cannot fetch them even if
    /// they are later replaced or moved into the root.
    fn read_users(&self, protected: &Protected) -> Result<Users, String> {
        let files = [
            ("the users file", Some(&self.users)),
            ("the TLS certificate", self.tls_cert.as_ref()),
            ("the TLS key", self.tls_key.as_ref()),
            ("the TLS authorities' file", self.tls_ca.as_ref()),
        ];
        for path in files.iter().filter_map(|(_, path)| *path) {
            protected.add(path);
        }
        let folders = names::paths();
        let sockets = folders.iter().map(|path| Private { what: "the directory of kiban's sockets", path });
        let private = files.iter().filter_map(|(what, path)| Some(Private { what, path: path.as_ref()? }));
        let private: Vec<Private<'_>> = private.chain(sockets).collect();
        // If the root does not exist, opening it fails later with an error that says what to do.
        if self.root.exists() {
            exposure::check(&self.root, &private).map_err(|error| error.to_string())?;
        }
        let open = |path: &Path| {
            let file = kiban_os::regular::open(path)?;
            protected.add_opened(path, &file)?;
            Ok(file)
        };
        Users::read_with(&self.users, open).map_err(|error| error.to_string())
    }
}

#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban ftam passwd users.toml collector                 prompts for the password\
        \n  kiban ftam passwd --rights all --home calls users.toml collector < password\
        \n  KIBAN_FTAM_PASSWORD=secret kiban ftam passwd users.toml collector\
        \n\nA new user may read files and their attributes. The rights are read, insert, replace, extend, erase,\
        read-attribute, change-attribute and delete (docs/ftam.md).")]
pub(super) struct Passwd {
    /// Rights of the user: all, or a comma-separated list [default: those of the user; read,read-attribute
    /// for a new user].
    #[arg(long, value_name = "RIGHTS", value_parser = rights)]
    rights: Option<Actions>,
    /// The user's home directory, relative to the filestore's root [default: that of the user; the root for a
    /// new user].
    #[arg(long, value_name = "DIRECTORY", value_parser = home)]
    home: Option<filestore::Path>,
    /// Users file.
    file: PathBuf,
    /// Name of the user.
    user: String,
}

fn rights(text: &str) -> Result<Actions, String> {
    if text == "all" {
        return Ok(Actions::ALL);
    }
    let read = |word: &str| {
        Action::of_word(word).ok_or_else(|| {
            let words: Vec<&str> = Action::ALL.into_iter().map(Action::word).collect();
            format!("unknown right '{word}': use all, or some of {}", words.join(","))
        })
    };
    text.split(',').map(read).collect()
}

fn home(text: &str) -> Result<filestore::Path, String> {
    filestore::Path::read(text).map_err(|error| error.to_string())
}

/// Returns a new password for `user`: from a variable, from the first line of standard input if it is no
/// terminal, or prompted for.
fn new_password(user: &str) -> Result<String, String> {
    if let Ok(password) = std::env::var(PASSWORD_VARIABLE) {
        note!("kiban: taking the password from {PASSWORD_VARIABLE}");
        return Ok(password);
    }
    if !io::stdin().is_terminal() {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map_err(|error| format!("cannot read the password: {error}"))?;
        return match line.trim_end_matches(['\n', '\r']) {
            "" => Err(format!(
                "standard input has no password: write it there, set {PASSWORD_VARIABLE}, or use a terminal"
            )),
            password => Ok(password.into()),
        };
    }
    let ask = |prompt: String| {
        rpassword::prompt_password(prompt)
            .map_err(|error| format!("cannot prompt for the password ({error}): set {PASSWORD_VARIABLE}"))
    };
    let password = ask(format!("Password of {user}: "))?;
    if ask("Repeat the password: ".into())? != password {
        return Err("the passwords differ: nothing was changed".into());
    }
    Ok(password)
}

impl Passwd {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let password = new_password(&self.user)?;
        let is_new = !self.file.exists();
        let grants = Grants { rights: self.rights, home: self.home };
        write_user(&self.file, &self.user, password.as_bytes(), &grants)
            .map_err(|error| format!("{}: {error}", self.file.display()))?;
        let (file, user) = (self.file.display(), &self.user);
        match (is_new, grants.rights) {
            (true, None) => note!("kiban: created {file}: {user} may read; --rights grants more"),
            (true, Some(_)) => note!("kiban: created {file}"),
            (false, _) => {
                note!("kiban: {file}: {user} set; send SIGHUP to a running server to reload the file")
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
