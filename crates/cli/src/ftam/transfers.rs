//! Transfers of many files, over one association or several in parallel.
//!
//! Operation   each worker has an association of its own, and takes the next file from a common list until
//!             the list is empty. A failed file does not stop the others.
//! Durability  a new local file gets its name when its contents are on the disk. The entries in the
//!             directories are synced once, when all files have been transferred, or with `--then-delete` for
//!             each file. When the command ends, everything that it reports as transferred is on the disk.
//! Deletion    `get --then-delete` removes the remote file after that, and only if its size and dates are
//!             still those that it had before it was fetched, which must be `--min-age` ago.

use super::collection::Collection;
use super::kinds::Kind;
use super::link::{Peer, PersistentClient};
use super::listing::stat;
use super::local::{absolute, at, create_directories, parent, sync_directory};
use super::report::{Report, whole_seconds};
use super::task::{Done, IfExists, Policy, Task, Way, delete};
use kiban_os::lock;
use kiban_osi::ftam::filestore::Path as Name;
use kiban_osi::ftam::initiator::Job;
use kiban_osi_runtime::ftam::disk;
use kiban_osi_runtime::ftam::timing::Stopwatch;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Transfers files over at most `jobs` associations, for a collection if there is one, and adds the results
/// to the report.
pub(super) async fn run(
    peer: &Arc<Peer>,
    first: Option<PersistentClient>,
    tasks: Vec<Task>,
    policy: Policy,
    collection: Option<Arc<Collection>>,
    jobs: usize,
    mut report: Report,
) -> Report {
    let mut first = first;
    if let (None, Some(task)) = (&first, tasks.first()) {
        // A login that is refused must not be repeated for each file: the peer may lock the user out.
        let mut link = PersistentClient::new(peer, &task.root);
        if let Err(failure) = link.begin().await {
            report.failed(failure);
            return report;
        }
        first = Some(link);
    }
    let workers = jobs.min(tasks.len()).max(1);
    let tasks = Arc::new(Mutex::new(VecDeque::from(tasks)));
    let report = Arc::new(Mutex::new(report));
    let mut set = JoinSet::new();
    for _ in 0..workers {
        let (peer, tasks, report, link) = (peer.clone(), tasks.clone(), report.clone(), first.take());
        let (policy, collection) = (policy.clone(), collection.clone());
        set.spawn(async move {
            let stopwatch = work(&peer, link, &tasks, &policy, collection.as_deref(), &report).await;
            lock(&report).timed(stopwatch);
        });
    }
    set.join_all().await;
    let mut report = std::mem::take(&mut *lock(&report));
    for directory in std::mem::take(&mut *lock(&policy.unsynced)) {
        disk::remove_empty_state(&directory);
        if let Err(failure) = sync_directory(&directory).map_err(at(&directory)) {
            report.failed(failure);
        }
    }
    report
}

async fn work(
    peer: &Arc<Peer>,
    mut link: Option<PersistentClient>,
    tasks: &Mutex<VecDeque<Task>>,
    policy: &Policy,
    collection: Option<&Collection>,
    report: &Mutex<Report>,
) -> Option<Stopwatch> {
    loop {
        let Some(task) = lock(tasks).pop_front() else { break };
        if let Some(other) = link.take_if(|link| link.local() != task.root) {
            other.close().await;
        }
        let link = link.get_or_insert_with(|| PersistentClient::new(peer, &task.root));
        let done = match collection {
            Some(collection) => collection.collect(&task, link, policy).await,
            None => task.run(peer, link, policy).await.map(Some),
        };
        let mut report = lock(report);
        match done {
            Ok(Some(Done::Transferred(moved))) => report.transferred(peer, moved),
            Ok(Some(Done::Skipped(shown))) => report.skipped.push(shown),
            Ok(None) => {}
            Err(failure) => report.failed(failure),
        }
    }
    match link {
        Some(link) => link.close().await,
        None => None,
    }
}

impl Task {
    /// Returns whether the file is certainly too short for a checkpoint, and can be transferred again from
    /// its beginning.
    pub(super) fn is_small(&self, link: &PersistentClient, policy: &Policy) -> bool {
        let bytes = match self.way {
            Way::Get => self.known.as_ref().and_then(|known| u64::try_from(known.bytes?).ok()),
            Way::Put if policy.kind != Some(Kind::Sequential) => {
                self.root.join(&self.name).metadata().ok().map(|file| file.len())
            }
            _ => None,
        };
        bytes.is_some_and(|bytes| !link.has_checkpoints(bytes))
    }

    /// Transfers the file.
    async fn run(&self, peer: &Peer, link: &mut PersistentClient, policy: &Policy) -> Result<Done, String> {
        let local = Name::read(&self.name).map_err(|wrong| format!("{}: {wrong}", self.shown))?;
        let path = self.root.join(&self.name);
        match self.way {
            Way::Get => self.get(peer, link, policy, local, &path).await,
            Way::Put | Way::Append => {
                std::fs::metadata(&path).map_err(|error| format!("{}: {error}", self.shown))?;
                let document = policy.kind.unwrap_or(Kind::Binary).document();
                let remote = self.remote.path.clone();
                let job = match self.way {
                    Way::Append => Job::Append { local, remote, document },
                    _ => Job::Put { local, remote, document },
                };
                let is_small = self.is_small(link, policy);
                let moved = link.transfer(job, &self.remote, &path, policy.retry, is_small).await?;
                Ok(Done::Transferred(self.result(moved)))
            }
        }
    }

    async fn get(
        &self,
        peer: &Peer,
        link: &mut PersistentClient,
        policy: &Policy,
        local: Name,
        path: &Path,
    ) -> Result<Done, String> {
        if path.symlink_metadata().is_ok() {
            match policy.if_exists {
                IfExists::Fail => {
                    return Err(format!("{}: exists; use --overwrite or --skip-existing", self.shown));
                }
                IfExists::Skip => return Ok(Done::Skipped(self.shown.clone())),
                IfExists::Overwrite => {}
            }
        }
        let directory = parent(path);
        create_directories(&directory)?;
        let (before, read_at) = match &self.known {
            Some(known) => (Ok(known.clone()), policy.listed_at),
            None => {
                let told = stat(link, &self.remote, &mut policy.retry.retries.clone()).await;
                (told, Instant::now())
            }
        };
        let document = policy.kind.map(Kind::document);
        let job = Job::Get { remote: self.remote.path.clone(), local, document };
        let is_small = self.is_small(link, policy);
        let moved = link.transfer(job, &self.remote, path, policy.retry, is_small).await?;
        // Some peers tell no attributes; the file then has the time of its arrival.
        let modified = before.as_ref().ok().and_then(|before| before.modified_at);
        self.set_date(path, modified);
        lock(&policy.unsynced).insert(directory.clone());
        let mut result = self.result(moved);
        if let Some(min_age) = policy.then_delete {
            if result.resumed {
                return Err(format!(
                    "{}: it was fetched, but not deleted: the transfer was resumed, and the file may have \
                    changed since the earlier attempt",
                    self.remote
                ));
            }
            let before = before.map_err(|failure| format!("{failure}; it was fetched, but not deleted"))?;
            sync_directory(&directory).map_err(at(&directory))?;
            let earliest = read_at + min_age;
            let rest = earliest.saturating_duration_since(Instant::now());
            if !rest.is_zero() {
                let seconds = whole_seconds(rest);
                peer.note(&format!(
                    "kiban: {}: fetched; it is deleted in {seconds} s, unless it changes (--min-age)",
                    self.remote
                ));
                tokio::time::sleep_until(earliest).await;
            }
            delete(link, &self.remote, &before, Some(moved.0), policy.retry.retries).await?;
            result.deleted = true;
        }
        Ok(Done::Transferred(result))
    }
}

/// Returns the absolute path of a directory for an association's local files, creating it if necessary.
pub(super) fn root_of(path: &Path) -> Result<PathBuf, String> {
    create_directories(path)?;
    absolute(path)
}
