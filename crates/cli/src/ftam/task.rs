//! A file to transfer, and its deletion at the peer afterwards.

use super::address::Remote;
use super::attributes::FileAttributes;
use super::kinds::Kind;
use super::link::{PersistentClient, RetryPolicy};
use super::local::set_modified;
use super::report::TransferResult;
use crate::output::note;
use kiban_osi::ftam::filestore::Date;
use kiban_osi::ftam::initiator::{Job, Outcome};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// A file to transfer.
pub(super) struct Task {
    pub(super) way: Way,
    pub(super) remote: Remote,
    /// The directory in which the association keeps its records.
    pub(super) root: PathBuf,
    /// The path of the local file below it.
    pub(super) name: String,
    /// The local name in reports.
    pub(super) shown: String,
    /// The remote file's attributes, if they are known from a listing.
    pub(super) known: Option<FileAttributes>,
    /// The argument of `collect` that found the file; otherwise empty.
    pub(super) argument: String,
}

/// The direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Get,
    Put,
    Append,
}

/// What `get` does if the local file exists.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum IfExists {
    #[default]
    Fail,
    Skip,
    Overwrite,
}

/// Settings that hold for all files of a command.
#[derive(Clone)]
pub(super) struct Policy {
    pub(super) kind: Option<Kind>,
    pub(super) retry: RetryPolicy,
    pub(super) if_exists: IfExists,
    /// With `get --then-delete`, how long a remote file must not have changed before it is deleted.
    pub(super) then_delete: Option<Duration>,
    /// When the attributes of all listed files had been read.
    pub(super) listed_at: Instant,
    /// Local directories with new files, which are synced at the end.
    pub(super) unsynced: Arc<Mutex<BTreeSet<PathBuf>>>,
}

/// The end of a transfer that did not fail.
pub(super) enum Done {
    Transferred(TransferResult),
    /// The local file exists.
    Skipped(String),
}

impl Task {
    /// Returns what is reported: `moved` is the number of bytes, the seconds, and whether it was resumed.
    pub(super) fn result(&self, moved: (u64, f64, bool)) -> TransferResult {
        let (here, there) = (self.shown.clone(), self.remote.to_string());
        let (from, to) = if self.way == Way::Get { (there, here) } else { (here, there) };
        let (bytes, seconds, resumed) = moved;
        TransferResult { from, to, bytes, seconds, resumed, deleted: false }
    }

    /// Gives the local file the date of its source. The file is complete without it.
    pub(super) fn set_date(&self, path: &Path, date: Option<Date>) {
        if let Some(date) = date
            && let Err(error) = set_modified(path, date.0)
        {
            note!("kiban: {}: cannot set the time of its modification: {error}", self.shown);
        }
    }
}

/// Deletes a remote file that was fetched, unless it has changed since `before`. `bytes` is the number of
/// bytes that were fetched, if it is known. A file that no longer exists needs no deletion.
pub(super) async fn delete(
    link: &mut PersistentClient,
    remote: &Remote,
    before: &FileAttributes,
    bytes: Option<u64>,
    retries: u32,
) -> Result<(), String> {
    let why_not = |why: &str| format!("{remote}: {why}; it was fetched, but not deleted");
    let about = remote.to_string();
    let job = Job::Stat { remote: remote.path.clone() };
    let told = link.run_if_exists(job, &about, &mut retries.clone()).await;
    let now = match told.map_err(|failure| why_not(&failure))? {
        None => return Ok(()),
        Some(Outcome::Attributes(attributes)) => FileAttributes::of(&attributes),
        Some(_) => return Err(why_not("the responder returned no attributes")),
    };
    let sizes = now.bytes.zip(bytes).filter(|_| now.is_binary());
    let is_whole = sizes.is_none_or(|(size, bytes)| size == bytes as i64);
    match now.is_same_version(before) {
        Some(true) if is_whole => {}
        Some(_) => return Err(why_not("it has changed since it was listed")),
        None => {
            return Err(why_not(
                "the responder reports neither its size nor when it was modified, so a change would go unnoticed",
            ));
        }
    }
    let remove = Job::Remove { remote: remote.path.clone() };
    // It is not repeated if the association is lost.
    link.run_if_exists(remove, &about, &mut 0)
        .await
        .map(drop)
        .map_err(|failure| format!("{failure}; it was fetched, but not deleted"))
}
