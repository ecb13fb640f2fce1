//! Association options, common to all client commands.

use super::address::Remote;
use crate::osi::peer::{PeerArgs, password};
use clap::{Args, ValueEnum};
use kiban_osi::ftam::initiator;
use kiban_osi::stack::layers::StackConfig;
use kiban_osi::wire::ftam::{
    BinaryParameters, Document, FunctionalUnits, QualityOfService, StringSignificance, TextParameters,
};
use kiban_osi_runtime::ftam::client::{BoardUse, ClientConfig};
use kiban_osi_runtime::ftam::disk::Settings;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Args, Clone)]
#[command(next_help_heading = "Association")]
pub(crate) struct Association {
    /// Read the password from the first line of this file.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Account to charge.
    #[arg(long)]
    account: Option<String>,
    #[command(flatten)]
    peer: PeerArgs,
    /// Maximum TPDU size to propose, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 65531, value_parser = clap::value_parser!(u32).range(128..=65531))]
    tpdu_bytes: u32,
    /// Size of a data element (F-DATA) in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 16384, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    fdata_bytes: u32,
    /// Interval between checkpoints, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20, value_parser = clap::value_parser!(u64).range(1..))]
    checkpoint_bytes: u64,
    /// Do not propose restart or recovery, for peers that reject associations that do.
    #[arg(long)]
    no_recovery: bool,
    /// Run all OSI layers on this running board, over its own TCP; it needs a service of kind "osi".
    #[arg(long, value_name = "NAME", conflicts_with_all = ["tls", "timing"])]
    board: Option<String>,
    /// Run the OSI layers in this process, over the TCP of this running board; it needs a service of kind
    /// "attach".
    #[arg(long, value_name = "NAME", conflicts_with = "board")]
    board_tcp: Option<String>,
    /// Timeout for establishing the association, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
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

/// How the progress of a transfer is shown.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum Progress {
    /// A progress bar, if standard error is a terminal.
    Bar,
    /// A line of JSON, at most ten times a second: the file, its transferred bytes, its size or null.
    Json,
}

/// Type of a file.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum Kind {
    /// FTAM-3: unstructured bytes.
    Binary,
    /// FTAM-1: text; line endings are converted to each host's.
    Text,
    /// FTAM-2: text; each line is a record.
    Sequential,
}

impl Kind {
    pub(crate) fn document(self) -> Document {
        match self {
            Kind::Binary => Document::UnstructuredBinary(BinaryParameters::NONE),
            // As in ISODE and most profiles: GeneralString (universal class number 27), in which string
            // boundaries are not significant.
            Kind::Text => Document::UnstructuredText(TextParameters {
                universal_class_number: Some(27),
                string_significance: Some(StringSignificance::NOT_SIGNIFICANT),
                ..TextParameters::NONE
            }),
            Kind::Sequential => Document::SequentialText(TextParameters::NONE),
        }
    }
}

impl Association {
    /// Returns the client settings for `remote`, with local files below `local`.
    pub(crate) fn config(&self, remote: &Remote, local: &Path) -> Result<ClientConfig, String> {
        let mut offer = initiator::Config::default();
        if self.no_recovery {
            offer.units =
                offer.units.without(FunctionalUnits::RECOVERY | FunctionalUnits::RESTART_DATA_TRANSFER);
            offer.quality = QualityOfService::NO_RECOVERY;
        }
        let mut stack = StackConfig::default();
        stack.transport.tpdu_bytes_max = self.tpdu_bytes as usize;
        Ok(ClientConfig {
            host: remote.host.clone(),
            port: remote.port,
            local: local.into(),
            disk: Settings::default(),
            initiator: initiator::Config {
                called: self.peer.called(),
                user: remote.user.clone(),
                account: self.account.clone(),
                password: password(self.password_file.as_deref(), remote.user.as_deref(), &remote.host)?,
                fdata_bytes: self.fdata_bytes as usize,
                checkpoint_bytes: self.checkpoint_bytes,
                ..offer
            },
            stack,
            board: match (&self.board, &self.board_tcp) {
                (Some(board), _) => Some(BoardUse::Layers(board.clone())),
                (None, Some(board)) => Some(BoardUse::Tcp(board.clone())),
                (None, None) => None,
            },
            tls: self.peer.connector()?,
            timeout: Duration::from_secs(self.timeout),
            timing: self.timing,
        })
    }
}

/// Returns the activity number that identifies a transfer on both sides. It is computed from the names, so
/// that a repeated command finds the interrupted transfer.
pub(crate) fn activity(remote: &Remote, local: &Path) -> i64 {
    let digest = Sha256::digest(format!("{remote}\n{}", local.display()));
    let bytes: [u8; 8] = digest[..8].try_into().expect("eight of thirty-two");
    // A positive number that is small enough to be incremented without overflow.
    (i64::from_be_bytes(bytes) & (i64::MAX >> 1)) | 2
}
