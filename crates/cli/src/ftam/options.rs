//! Association options, common to all client commands.

use super::address::Remote;
use super::hosts::{HostEntry, Hosts, password_of};
use super::kinds::{Kind, Progress};
use super::link::{Peer, omit_recovery};
use crate::osi::peer::{PASSWORD_VARIABLE, PeerArgs, VersionArgs, password};
use clap::Args;
use kiban_osi::ftam::initiator;
use kiban_osi::stack::layers::StackConfig;
use kiban_osi_runtime::ftam::client::{BoardUse, ClientConfig};
use kiban_osi_runtime::ftam::disk::Settings;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[derive(Args, Clone)]
#[command(next_help_heading = "Association")]
pub(crate) struct Association {
    /// Hosts file, whose names can be used as NAME:PATH [default: ~/.config/kiban/ftam.toml].
    #[arg(long = "hosts", value_name = "FILE")]
    hosts_file: Option<PathBuf>,
    /// Read the password from the first line of this file.
    #[arg(long, value_name = "FILE")]
    pub(super) password_file: Option<PathBuf>,
    /// A command of the hosts file that prints the password.
    #[arg(skip)]
    pub(super) password_command: Option<String>,
    /// Account to charge.
    #[arg(long)]
    pub(super) account: Option<String>,
    #[command(flatten)]
    pub(super) peer: PeerArgs,
    #[command(flatten)]
    pub(super) version: VersionArgs,
    /// Maximum TPDU size to propose, in bytes [default: 65531].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(128..=65531))]
    pub(super) tpdu_bytes: Option<u32>,
    /// Size of a data element (F-DATA) in bytes [default: 16384].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(super) fdata_bytes: Option<u32>,
    /// Interval between checkpoints, in bytes [default: 4194304].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) checkpoint_bytes: Option<u64>,
    /// Do not propose restart or recovery, for peers that reject associations that do.
    #[arg(long)]
    pub(super) no_recovery: bool,
    /// The document type of the hosts file's entry.
    #[arg(skip)]
    pub(super) kind: Option<Kind>,
    /// The time of the hosts file's entry after which remote files may be deleted.
    #[arg(skip)]
    min_age: Option<Duration>,
    /// The peer of a shell, with its association.
    #[arg(skip)]
    pub(super) shared: Option<Arc<Peer>>,
    /// Run all OSI layers on this running board, over its own TCP; it needs a service of kind "osi".
    #[arg(long, value_name = "NAME", conflicts_with_all = ["tls", "timing"])]
    board: Option<String>,
    /// Run the OSI layers in this process, over the TCP of this running board; it needs a service of kind
    /// "attach".
    #[arg(long, value_name = "NAME", conflicts_with = "board")]
    board_tcp: Option<String>,
    /// Timeout for establishing the association, in seconds [default: 30].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(super) timeout: Option<u64>,
    /// Give an association up when no data has moved for this many seconds; it is then repeated as
    /// `--retries` says [default: 900].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    silence_max: Option<u64>,
    /// Print the time spent in each layer.
    #[arg(long)]
    pub(crate) timing: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// Do not show a progress bar.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// How to show the progress of transfers, on standard error.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Progress::Bar, conflicts_with = "quiet")]
    pub(crate) progress: Progress,
}

impl Association {
    /// Looks up the hosts of remote names, and returns the peer, which is the same for all of them.
    ///
    /// # Errors
    /// The hosts file is invalid or lacks a name, the names have different hosts or users, or there is no
    /// password.
    pub(super) fn peer(&self, remotes: &mut [&mut Remote]) -> Result<Arc<Peer>, String> {
        let hosts = Hosts::read(self.hosts_file.as_deref())?;
        let mut entry: Option<&HostEntry> = None;
        for remote in remotes.iter_mut() {
            entry = remote.resolve(&hosts).map_err(|failure| match &self.shared {
                // In a shell, a name without a host may be meant.
                Some(_) => format!("{failure}; for a file with this name, write ./{remote}"),
                None => failure,
            })?;
        }
        let first = remotes.first().ok_or("no remote name")?;
        let same = |remote: &&mut Remote| {
            (&remote.user, &remote.host, remote.port) == (&first.user, &first.host, first.port)
        };
        if !remotes.iter().all(same) {
            return Err("all remote names must have the same user and host".into());
        }
        if let Some(shared) = &self.shared {
            return match shared.is_of(first) {
                true => Ok(shared.clone()),
                false => Err(format!("{first}: a shell uses one host and user: start another one for this")),
            };
        }
        let completed = entry.map(|entry| self.completed(entry));
        let association = completed.as_ref().unwrap_or(self);
        Ok(Arc::new(Peer::new(
            first,
            association.config(first)?,
            association.quiet,
            association.progress,
            association.kind,
            association.min_age,
        )))
    }

    /// Fills in the settings of the hosts file that the command line does not give.
    fn completed(&self, entry: &HostEntry) -> Association {
        let mut all = self.clone();
        all.peer.complete(&entry.peer);
        all.account = all.account.or_else(|| entry.account.clone());
        // The environment takes precedence over the file's entry, and --password-file over both.
        let has_variable = std::env::var_os(PASSWORD_VARIABLE).is_some();
        let file = entry.password_file.clone().filter(|_| !has_variable);
        all.password_file = all.password_file.or(file);
        all.password_command = entry.password_command.clone();
        all.no_recovery |= entry.no_recovery;
        all.version.session_version = all.version.session_version.or(entry.session_version);
        all.tpdu_bytes = all.tpdu_bytes.or(entry.tpdu_bytes);
        all.fdata_bytes = all.fdata_bytes.or(entry.fdata_bytes);
        all.checkpoint_bytes = all.checkpoint_bytes.or(entry.checkpoint_bytes);
        all.timeout = all.timeout.or(entry.timeout);
        all.kind = entry.kind;
        all.min_age = entry.min_age;
        all
    }

    fn password(&self, remote: &Remote) -> Result<Option<String>, String> {
        match &self.password_command {
            Some(command)
                if self.password_file.is_none() && std::env::var_os(PASSWORD_VARIABLE).is_none() =>
            {
                password_of(command).map(Some)
            }
            _ => password(self.password_file.as_deref(), remote.user.as_deref(), &remote.host),
        }
    }

    /// Returns the client settings for `remote`, without a directory of local files.
    fn config(&self, remote: &Remote) -> Result<ClientConfig, String> {
        let mut offer = initiator::Config::default();
        if self.no_recovery {
            omit_recovery(&mut offer);
        }
        let mut stack = StackConfig::default();
        stack.transport.tpdu_bytes_max = self.tpdu_bytes.unwrap_or(65531) as usize;
        if let Some(versions) = self.version.session_version {
            stack.session.versions = versions;
        }
        Ok(ClientConfig {
            host: remote.host.clone(),
            port: remote.port,
            local: PathBuf::new(),
            // `transfers` syncs each directory once for all of its files.
            disk: Settings { syncs_names: false, ..Settings::default() },
            initiator: initiator::Config {
                called: self.peer.called(),
                user: remote.user.clone(),
                account: self.account.clone(),
                password: self.password(remote)?,
                fdata_bytes: self.fdata_bytes.map_or(offer.fdata_bytes, |bytes| bytes as usize),
                checkpoint_bytes: self.checkpoint_bytes.unwrap_or(offer.checkpoint_bytes),
                ..offer
            },
            stack,
            board: match (&self.board, &self.board_tcp) {
                (Some(board), _) => Some(BoardUse::Layers(board.clone())),
                (None, Some(board)) => Some(BoardUse::Tcp(board.clone())),
                (None, None) => None,
            },
            tls: self.peer.connector()?,
            timeout: Duration::from_secs(self.timeout.unwrap_or(30)),
            idle_timeout: Duration::from_secs(self.silence_max.unwrap_or(900)),
            timing: self.timing,
        })
    }
}
