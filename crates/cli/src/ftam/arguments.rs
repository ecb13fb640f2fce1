//! Arguments of the FTAM client commands.

use super::address::{Remote, path_in_base};
use super::kinds::Kind;
use super::options::Association;
use crate::board::control::time_or_seconds;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Default for the number of remote directories to list.
pub(super) const DIRECTORIES_MAX: usize = 10_000;

/// Arguments common to all transfers.
#[derive(Args, Clone)]
pub(super) struct Transfer {
    #[command(flatten)]
    pub(super) association: Association,
    /// Type of the file [default: the stored type; binary for a new file].
    #[arg(long = "type", value_enum, value_name = "TYPE")]
    pub(super) kind: Option<Kind>,
    /// Resume an interrupted transfer if its state was saved; otherwise start a new one.
    #[arg(long)]
    pub(super) resume: bool,
    /// Number of times to reconnect and resume when the association is lost. A peer without recovery sends
    /// or receives the file again from its beginning.
    #[arg(long, value_name = "TIMES", default_value_t = 3)]
    pub(super) retries: u32,
}

/// How many files are transferred at a time.
#[derive(Args, Clone)]
pub(super) struct Parallel {
    /// Number of parallel associations.
    #[arg(long, short, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) jobs: u16,
}

/// What to do if the local file exists.
#[derive(Args, Clone)]
pub(super) struct Existing {
    /// Replace local files that exist.
    #[arg(long)]
    pub(super) overwrite: bool,
    /// Leave out files that exist locally.
    #[arg(long, conflicts_with = "overwrite")]
    pub(super) skip_existing: bool,
}

/// Arguments common to the commands that descend into remote directories.
#[derive(Args, Clone)]
pub(super) struct Descent {
    /// Descend into subdirectories.
    #[arg(long, short)]
    pub(super) recursive: bool,
    /// Maximum number of remote directories to list, because a peer's tree may be endless.
    #[arg(long, value_name = "NUMBER", default_value_t = DIRECTORIES_MAX)]
    pub(super) directories_max: usize,
}

impl Default for Descent {
    fn default() -> Descent {
        Descent { recursive: false, directories_max: DIRECTORIES_MAX }
    }
}

#[derive(Args)]
pub(super) struct Get {
    #[command(flatten)]
    pub(super) transfer: Transfer,
    #[command(flatten)]
    pub(super) descent: Descent,
    #[command(flatten)]
    pub(super) existing: Existing,
    #[command(flatten)]
    pub(super) parallel: Parallel,
    /// Delete each remote file once its local copy is safe on the disk.
    #[arg(long)]
    pub(super) then_delete: bool,
    /// Delete a remote file only after its size and dates have not changed for this time: 0 (do not wait),
    /// 30 (seconds), 5m, 1h [default: 60].
    #[arg(long, value_name = "TIME", value_parser = time_or_seconds, requires = "then_delete")]
    pub(super) min_age: Option<Duration>,
    /// Files to download; *, ? and [...] are expanded (in ftam:// names without ?).
    #[arg(required = true, value_name = "REMOTE")]
    pub(super) remotes: Vec<Remote>,
    /// Destination: a directory, a file name for a single file, or - for standard output.
    #[arg(value_name = "LOCAL")]
    pub(super) local: PathBuf,
}

#[derive(Args)]
pub(super) struct Put {
    #[command(flatten)]
    pub(super) transfer: Transfer,
    /// Transfer directories recursively.
    #[arg(long, short)]
    pub(super) recursive: bool,
    #[command(flatten)]
    pub(super) parallel: Parallel,
    /// Files to upload; - is standard input.
    #[arg(required = true, value_name = "LOCAL")]
    pub(super) locals: Vec<PathBuf>,
    /// Destination; a name that ends with a slash is a directory.
    #[arg(value_name = "REMOTE")]
    pub(super) remote: Remote,
}

#[derive(Args)]
pub(super) struct Append {
    #[command(flatten)]
    pub(super) transfer: Transfer,
    /// File whose contents are appended.
    #[arg(value_name = "LOCAL")]
    pub(super) local: PathBuf,
    /// Remote file to append to.
    #[arg(value_name = "REMOTE")]
    pub(super) remote: Remote,
}

#[derive(Args)]
pub(super) struct Ls {
    #[command(flatten)]
    pub(super) association: Association,
    /// Number of times to reconnect and retry when the association is lost.
    #[arg(long, value_name = "TIMES", default_value_t = 3)]
    pub(super) retries: u32,
    #[command(flatten)]
    pub(super) descent: Descent,
    /// Directory to list, or a name with wildcards.
    #[arg(value_name = "REMOTE")]
    pub(super) remote: Remote,
}

#[derive(Args)]
pub(super) struct Stat {
    #[command(flatten)]
    pub(super) association: Association,
    /// Number of times to reconnect and retry when the association is lost.
    #[arg(long, value_name = "TIMES", default_value_t = 3)]
    pub(super) retries: u32,
    /// Remote file or directory.
    #[arg(value_name = "REMOTE")]
    pub(super) remote: Remote,
}

#[derive(Args)]
pub(super) struct Mkdir {
    #[command(flatten)]
    pub(super) association: Association,
    /// Directory to create.
    #[arg(value_name = "REMOTE")]
    pub(super) remote: Remote,
}

#[derive(Args)]
pub(super) struct Rm {
    #[command(flatten)]
    pub(super) association: Association,
    #[command(flatten)]
    pub(super) descent: Descent,
    /// Files or empty directories to delete; wildcards are expanded.
    #[arg(required = true, value_name = "REMOTE")]
    pub(super) remotes: Vec<Remote>,
}

#[derive(Args)]
pub(super) struct Mv {
    #[command(flatten)]
    pub(super) association: Association,
    /// Remote file or directory.
    #[arg(value_name = "REMOTE")]
    pub(super) remote: Remote,
    /// New name, without a host.
    #[arg(value_name = "NAME", value_parser = path_in_base)]
    pub(super) to: String,
}

#[derive(Args)]
pub(super) struct Chattr {
    #[command(flatten)]
    pub(super) association: Association,
    /// Account that storage is charged to.
    #[arg(long, value_name = "ACCOUNT")]
    pub(super) storage_account: Option<String>,
    /// Expected maximum size of the file in bytes (FTAM future filesize).
    #[arg(long, value_name = "BYTES")]
    pub(super) future_size: Option<i64>,
    /// Availability of the file.
    #[arg(long, value_enum, value_name = "WHEN")]
    pub(super) availability: Option<When>,
    /// Legal qualification of the file.
    #[arg(long, value_name = "TEXT")]
    pub(super) legal: Option<String>,
    /// Remote file or directory.
    #[arg(value_name = "REMOTE")]
    pub(super) remote: Remote,
}

/// Availability of a file.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum When {
    /// Available immediately.
    Immediate,
    /// Available after a delay.
    Deferred,
}
