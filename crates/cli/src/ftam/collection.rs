//! A collection: moves files from a peer to a local directory.
//!
//! Purpose       each file appears in the directory exactly once and complete, and is then deleted at the
//!               peer, even if this program is killed at any moment, or the host crashes.
//! Operation     a file is fetched into `.kiban-collect` below the directory under a name derived from its
//!               remote name, size and dates, and is on the disk before it gets that name. Then the journal
//!               records that it was fetched, it is renamed into the directory, and deleted at the peer; the
//!               journal records the deletion last.
//! Recovery      a fetched file that is still in `.kiban-collect` is renamed; if it is not there, it was
//!               renamed before. So a program that takes files out of the directory never sees one twice. A
//!               fetched file that the peer still lists in the same version is deleted, and not fetched
//!               again. Interrupted transfers resume, if the peer supports recovery.
//! Open files    a peer may still write to a file. It is fetched only when two listings have shown the same
//!               size and dates, and the second one began `--min-age` after the first ended. A peer that
//!               pauses for longer while it writes loses what it writes after the deletion.
//! Versions      a file whose size or dates change while it is fetched is dropped, and fetched in a later
//!               round. Peers must tell a date, because files with equal names could not be told apart, and
//!               something that changes when a file grows.
//! Not recursive subdirectories are left out.
//! Limits        on a file system without RENAME_NOREPLACE, such as NFS, the file is linked and its old name
//!               removed. After a kill between these steps, it appears a second time if another program has
//!               taken the first one out of the directory.

use super::address::Remote;
use super::attributes::FileAttributes;
use super::journal::{Fetched, Journal};
use super::kinds::Kind;
use super::link::PersistentClient;
use super::listing::stat;
use super::local::{STATE, at, file_name, sync_directory};
use super::report::Report;
use super::task::{Done, Policy, Task, delete};
use kiban_os::lock;
use kiban_osi::ftam::filestore::Path as Name;
use kiban_osi::ftam::initiator::Job;
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The state of a collection, which its workers share.
pub(super) struct Collection {
    journal: Mutex<Journal>,
    /// The local directory.
    pub(super) directory: PathBuf,
    /// Whether to stop after the current files.
    stops: AtomicBool,
    sightings: Mutex<Sightings>,
}

/// Returns the name of a version of a file in `.kiban-collect`.
pub(super) fn token(remote: &Remote, file: &FileAttributes) -> String {
    let (bytes, dates) = (file.bytes, (&file.modified, &file.created));
    let remote = remote.without_alias();
    let digest = Sha256::digest(format!("{remote}\n{bytes:?}\n{dates:?}"));
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// When versions of files were seen first, by the clock of this host: that of the peer may be wrong, and its
/// time zone unknown.
#[derive(Default)]
struct Sightings(HashMap<String, Instant>);

impl Sightings {
    /// Returns when a version that is seen now was seen first.
    fn first(&mut self, version: &str, now: Instant) -> Instant {
        *self.0.entry(version.to_owned()).or_insert(now)
    }
}

impl Collection {
    /// Opens the collection of a local directory.
    ///
    /// # Errors
    /// Another collection uses the directory, or its journal is damaged.
    pub(super) fn open(directory: PathBuf) -> Result<Collection, String> {
        let journal = Mutex::new(Journal::open(&directory)?);
        let (stops, sightings) = (AtomicBool::new(false), Mutex::default());
        Ok(Collection { journal, directory, stops, sightings })
    }

    /// Lets the current files finish, and begins no others.
    pub(super) fn stop(&self) {
        self.stops.store(true, Ordering::Relaxed);
    }

    /// Records which versions a listing has found, which lasted until now; `is_complete` says that no part of
    /// it failed. Returns the versions that must not be collected yet, and when they may be.
    pub(super) fn young(
        &self,
        listed: &HashSet<String>,
        begun: Instant,
        min_age: Duration,
        is_complete: bool,
    ) -> HashMap<String, Instant> {
        let journal = lock(&self.journal);
        let mut sightings = lock(&self.sightings);
        if is_complete {
            sightings.0.retain(|version, _| listed.contains(version));
        }
        // What an earlier run has fetched was old enough then.
        let new = listed.iter().filter(|version| !min_age.is_zero() && !journal.has(version));
        let due = new.map(|version| (version.clone(), sightings.first(version, Instant::now()) + min_age));
        due.filter(|(_, due)| *due > begun).collect()
    }

    /// Moves fetched files to the directory that an earlier run has left in `.kiban-collect`.
    pub(super) fn place_all(&self, report: &mut Report) {
        let waiting: Vec<(String, Fetched)> = {
            let mut journal = lock(&self.journal);
            if let Err(failure) = journal.compact() {
                report.failed(failure);
            }
            journal.fetched()
        };
        for (token, fetched) in waiting {
            if let Err(failure) = self.place(&token, &fetched.to) {
                report.failed(failure);
            }
        }
    }

    /// Removes files from the journal that the peer does not list any more: they were deleted, and this was
    /// not recorded. Another peer or directory may share the local directory, so only files that were found
    /// by one of these arguments are removed. `listed` has the tokens of all versions that were found.
    pub(super) fn forget_deleted(&self, arguments: &[String], listed: &HashSet<String>, report: &mut Report) {
        let mut journal = lock(&self.journal);
        for (entry, fetched) in journal.fetched() {
            if !arguments.contains(&fetched.argument) {
                continue;
            }
            let is_listed = listed.contains(&entry);
            let is_placed = self.directory.join(STATE).join(&entry).symlink_metadata().is_err();
            if !is_listed
                && is_placed
                && let Err(failure) = journal.deleted(&entry)
            {
                report.failed(failure);
            }
        }
    }

    /// Renames a fetched file into the directory, unless this was done before.
    fn place(&self, token: &str, to: &str) -> Result<(), String> {
        let (from, to) = (self.directory.join(STATE).join(token), self.directory.join(to));
        let placed = match rustix::fs::renameat_with(CWD, &from, CWD, &to, RenameFlags::NOREPLACE) {
            // An earlier run renamed it, but may not have synced the directory.
            Err(Errno::NOENT) => Ok(()),
            // A file system without RENAME_NOREPLACE, such as NFS.
            Err(Errno::INVAL | Errno::NOSYS) => link(&from, &to),
            Err(errno) => Err(errno.into()),
            Ok(()) => Ok(()),
        };
        placed.and_then(|()| sync_directory(&self.directory)).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                format!("{}: exists; the new file stays in {STATE} until this one is moved", to.display())
            }
            _ => format!("{}: {error}", to.display()),
        })
    }

    /// Collects one file.
    pub(super) async fn collect(
        &self,
        task: &Task,
        link: &mut PersistentClient,
        policy: &Policy,
    ) -> Result<Option<Done>, String> {
        if self.stops.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let listed = task.known.clone().unwrap_or_default();
        let (is_dated, grows) = (listed.created.is_some(), listed.bytes.is_some());
        if listed.modified.is_none() && !(is_dated && grows) {
            let why = match is_dated || !grows {
                true => "neither its size nor when it was modified, so a change would go unnoticed",
                false => "no date, and collect needs one; use get --then-delete",
            };
            return Err(format!("{}: the responder reports {why}", task.remote));
        }
        let to = file_name(Path::new(&task.shown))?;
        Name::root().join(&to).map_err(|wrong| format!("{}: {wrong}", task.remote))?;
        let staged = task.root.join(&task.name);
        let mut moved = (0, 0.0, false);
        if !lock(&self.journal).has(&task.name) {
            if staged.symlink_metadata().is_err() {
                moved = self.fetch(task, link, policy).await?;
                let now = stat(link, &task.remote, &mut policy.retry.retries.clone()).await?;
                let why = match now.is_same_version(&listed) {
                    Some(true) => wrong_length(&now, staged.metadata().map_err(at(&staged))?.len()),
                    _ => Some(
                        "it changed while it was fetched: is --min-age shorter than the pauses of its writer?"
                            .to_owned(),
                    ),
                };
                if let Some(why) = why {
                    std::fs::remove_file(&staged).map_err(at(&staged))?;
                    return Err(format!("{}: {why}", task.remote));
                }
            }
            sync_directory(&task.root).map_err(at(&task.root))?;
            task.set_date(&staged, listed.modified_at);
            let (remote, argument) = (task.remote.without_alias().to_string(), task.argument.clone());
            lock(&self.journal).fetched_now(&task.name, Fetched { remote, to, argument })?;
        }
        let Some(fetched) = lock(&self.journal).get(&task.name) else { return Ok(None) };
        self.place(&task.name, &fetched.to)?;
        delete(link, &task.remote, &listed, None, policy.retry.retries).await?;
        lock(&self.journal).deleted(&task.name)?;
        let mut result = task.result(moved);
        if moved.0 == 0 {
            result.bytes = listed.bytes.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0);
        }
        result.deleted = true;
        Ok(Some(Done::Transferred(result)))
    }

    async fn fetch(
        &self,
        task: &Task,
        link: &mut PersistentClient,
        policy: &Policy,
    ) -> Result<(u64, f64, bool), String> {
        let local = Name::read(&task.name).expect("hexadecimal digits");
        let document = policy.kind.map(Kind::document);
        let path = task.root.join(&task.name);
        let job = Job::Get { remote: task.remote.path.clone(), local, document };
        let is_resumed = link.can_resume(&task.remote, &path)?;
        let is_small = task.is_small(link, policy);
        match link.transfer(job.clone(), &task.remote, &path, policy.retry, is_small).await {
            // The peer has forgotten the interrupted transfer, and its record is removed.
            Err(_) if is_resumed && !link.can_resume(&task.remote, &path)? => {
                link.transfer(job, &task.remote, &path, policy.retry, is_small).await
            }
            moved => moved,
        }
    }
}

/// Returns an error if a binary file of `length` bytes was received that has another size at the peer: it may
/// be incomplete, or the peer does not update the size while it writes.
fn wrong_length(attributes: &FileAttributes, length: u64) -> Option<String> {
    let bytes = attributes.bytes.filter(|_| attributes.is_binary())?;
    let differs = u64::try_from(bytes) != Ok(length);
    differs.then(|| format!("the responder lists {bytes} bytes, but sent {length}: it was not collected"))
}

/// Gives a file a new name that must not exist, and removes the old one. After a kill between the two steps,
/// the file is linked again, so that it appears twice if the first one was taken away.
fn link(from: &Path, to: &Path) -> std::io::Result<()> {
    match std::fs::hard_link(from, to) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            // An earlier run was killed between the two steps.
            let (here, there) = (from.symlink_metadata()?, to.symlink_metadata()?);
            if (here.dev(), here.ino()) != (there.dev(), there.ino()) {
                return Err(error);
            }
        }
        linked => linked?,
    }
    std::fs::remove_file(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_file_must_have_the_size_that_the_peer_lists() {
        let listed = |kind: &str, bytes| FileAttributes {
            kind: Some(kind.to_owned()),
            bytes,
            ..FileAttributes::default()
        };
        let (binary, text) = ("FTAM-3 binary", "FTAM-1 text");
        assert!(listed(binary, Some(7)).is_binary(), "otherwise the test tests nothing");
        for (kind, bytes, is_wrong) in [
            (binary, Some(7), false),
            (binary, Some(8), true),
            (binary, Some(6), true),
            (binary, Some(-1), true),
            (binary, None, false),
            // Line ends may count differently at the peer.
            (text, Some(8), false),
        ] {
            assert_eq!(wrong_length(&listed(kind, bytes), 7).is_some(), is_wrong, "{kind} {bytes:?}");
        }
    }
}
