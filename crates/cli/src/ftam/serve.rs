//! A filestore for others, and its users.

use crate::way::{PASSWORD_VARIABLE, cannot_listen};
use clap::{Args, ValueEnum};
use kiban_real::exposure::{self, Private};
use kiban_real::ftam::disk::Durability;
use kiban_real::ftam::door::Gate;
use kiban_real::ftam::serve::{Service, ServiceConfig};
use kiban_real::ftam::users::{Attempts, Patience, Users, write_password};
use kiban_real::osi::secure::{self, Identity};
use kiban_real::sandbox::{Need, OnRefusal, Sandbox};
use kiban_real::streams::folders;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

fn cannot_serve(root: &Path, error: &std::io::Error) -> String {
    let remedy = match error.kind() {
        std::io::ErrorKind::NotFound => "; make the directory, or name another with --root",
        _ => "",
    };
    format!("{}: {error}{remedy}", root.display())
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kiban ftam passwd users.toml collector\n  kiban ftam serve --listen 127.0.0.1:4102 --root /srv/cdr --users users.toml\n  kiban ftam serve --listen '[::]:102' --root /srv/cdr --users users.toml --tls-cert cert.pem --tls-key key.pem\n\nThe directory must hold none of the files that the server reads for itself.\nSIGHUP reads the users again. ctrl-c and SIGTERM let transfers end for ten seconds, then cut them; they can be resumed."
)]
pub(super) struct Serve {
    /// Where to listen; port 102 is the one that peers expect, and needs CAP_NET_BIND_SERVICE.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "[::]:102")]
    listen: String,
    /// The directory to serve: nothing outside of it can be reached, and it must not hold the users file or TLS files.
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// The users file, made by `kiban ftam passwd`.
    #[arg(long, value_name = "FILE")]
    users: PathBuf,
    /// Speak TLS with this certificate (PEM), as IEC 62351 has it.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Let in only peers with a certificate of these authorities (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_ca: Option<PathBuf>,
    /// When data must have reached the disk.
    #[arg(long, value_enum, default_value = "end")]
    fsync: Fsync,
    /// Most associations at a time.
    #[arg(long, value_name = "NUMBER", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    associations_max: u32,
    /// Most connections among them that have not yet said who they are.
    #[arg(long, value_name = "NUMBER", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    strangers_max: u32,
    /// So many seconds nothing may move while a file is selected; then the association is cut, and can be gone on with.
    #[arg(long, value_name = "SECONDS", default_value_t = 900, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    silence_max: u32,
    /// The largest TPDU, bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 65531, value_parser = clap::value_parser!(u32).range(128..=65531))]
    tpdu_bytes: u32,
    /// Bytes of a data element (F-DATA) that is sent.
    #[arg(long, value_name = "BYTES", default_value_t = 16384, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    fdata_bytes: u32,
    /// Keep all privileges after start, for debugging.
    #[arg(long)]
    no_sandbox: bool,
    /// Print log lines as JSON.
    #[arg(long)]
    json: bool,
}

/// When data must have reached the disk.
#[derive(Clone, Copy, ValueEnum)]
enum Fsync {
    /// When the system likes: a crash of the host may cost files that were acknowledged.
    Never,
    /// Before a transfer is confirmed.
    End,
    /// Before a checkpoint is confirmed, too.
    Checkpoints,
}

impl Serve {
    pub(super) async fn run(self) -> Result<ExitCode, String> {
        crate::log::begin(self.json);
        let users = self.read_users()?;
        if users.count() == 0 {
            let file = self.users.display();
            return Err(format!("{file} has no users: kiban ftam passwd {file} NAME makes one"));
        }
        let gate = Arc::new(Gate::new(users, Attempts::new(Patience::default())));
        let mut config = ServiceConfig::new(self.root.clone());
        config.disk.durability = match self.fsync {
            Fsync::Never => Durability::Never,
            Fsync::End => Durability::AtEnd,
            Fsync::Checkpoints => Durability::AtCheckpoints,
        };
        config.associations_max = self.associations_max as usize;
        config.strangers_max = self.strangers_max as usize;
        config.silence_max = Duration::from_secs(self.silence_max.into());
        config.responder.fdata_bytes = self.fdata_bytes as usize;
        config.tower.transport.tpdu_bytes_max = self.tpdu_bytes as usize;
        if let Some((certificate, key)) = self.tls_cert.clone().zip(self.tls_key.clone()) {
            let acceptor = secure::acceptor(&Identity { certificate, key }, self.tls_ca.as_deref());
            config.tls = Some(acceptor.map_err(|error| error.to_string())?);
        }
        let service = Service::new(config, gate.clone()).map_err(|error| cannot_serve(&self.root, &error))?;
        let listener = TcpListener::bind(&self.listen).await;
        let listener = listener.map_err(|error| cannot_listen(&self.listen, &error))?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let failed = |error: std::io::Error| format!("signals cannot be heard: {error}");
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;
        if !self.no_sandbox {
            let needs = [vec![Need::change(&self.root)], Need::read_again(&self.users)].concat();
            Sandbox::enter(&needs, OnRefusal::Error)
                .map_err(|error| format!("privileges cannot be dropped: {error}; --no-sandbox keeps them"))?;
        }
        // Whoever reads this line may send a signal: it is heard by now.
        tracing::info!(%address, root = %self.root.display(), tls = self.tls_cert.is_some(), "serving FTAM");
        let stop = async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => return,
                    _ = terminate.recv() => return,
                    _ = hangup.recv() => match self.read_users() {
                        Ok(users) => {
                            tracing::info!(users = users.count(), "users read again");
                            gate.set_users(users);
                        }
                        Err(error) => tracing::error!(%error, "the users stay as they were"),
                    },
                }
            }
        };
        service.serve(listener, stop).await;
        tracing::info!("stopped");
        Ok(ExitCode::SUCCESS)
    }

    /// Reads the users, unless they or anything else that this server reads for itself could be reached through the root.
    fn read_users(&self) -> Result<Users, String> {
        let files = [
            ("the users file", Some(&self.users)),
            ("the TLS certificate", self.tls_cert.as_ref()),
            ("the TLS key", self.tls_key.as_ref()),
            ("the TLS authorities' file", self.tls_ca.as_ref()),
        ];
        let folders = folders();
        let sockets = folders.iter().map(|path| Private { what: "the directory of kiban's sockets", path });
        let private = files.iter().filter_map(|(what, path)| Some(Private { what, path: path.as_ref()? }));
        let private: Vec<Private<'_>> = private.chain(sockets).collect();
        // A root that is missing is told of with a remedy when it is opened.
        if self.root.exists() {
            exposure::check(&self.root, &private).map_err(|error| error.to_string())?;
        }
        Users::read(&self.users).map_err(|error| error.to_string())
    }
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kiban ftam passwd users.toml collector                      asks for the password\n  KIBAN_FTAM_PASSWORD=secret kiban ftam passwd users.toml collector\n\nA new user may read. Edit the file to grant more: rights = \"all\", or those that it shall be (docs/ftam.md)."
)]
pub(super) struct Passwd {
    /// The users file.
    file: PathBuf,
    /// The user's name.
    user: String,
}

impl Passwd {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let password = match std::env::var(PASSWORD_VARIABLE) {
            Ok(password) => password,
            Err(_) => {
                let ask = |prompt: String| rpassword::prompt_password(prompt);
                let failed =
                    |error| format!("no password can be asked for ({error}): set {PASSWORD_VARIABLE}");
                let password = ask(format!("Password of {}: ", self.user)).map_err(failed)?;
                if ask("The same again: ".into()).map_err(failed)? != password {
                    return Err("the two passwords differ: nothing has changed".into());
                }
                password
            }
        };
        let is_new = !self.file.exists();
        write_password(&self.file, &self.user, password.as_bytes())
            .map_err(|error| format!("{}: {error}", self.file.display()))?;
        let (file, user) = (self.file.display(), &self.user);
        if is_new {
            eprintln!("kiban: {file} is new: {user} may read; more rights are a matter of editing it");
        } else {
            eprintln!("kiban: {file}: the password of {user} is set; kill -HUP lets a server read it");
        }
        Ok(ExitCode::SUCCESS)
    }
}
