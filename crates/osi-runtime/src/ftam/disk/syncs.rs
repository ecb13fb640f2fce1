//! Syncs that begin together, so that they share commits of the file system's journal.
//!
//! Purpose  a put syncs its contents, and then its directory; or only the directory, where the journal keeps
//!          the order of both ([`kiban_os::journal`]). Each sync waits for a commit of the file system's
//!          journal, which covers all changes that were made before the commit began, to any file.
//!          Associations that sync at the same time wait for one commit; one that comes a moment later waits
//!          for the next.
//! Method   the syncs of a file system run in batches. Those that come while a batch runs form the next one.
//!          It begins once it is as large as the last batch, or after part of the time that the last batch
//!          took.
//! Order    each association makes its own syncs after its own changes, so what has been confirmed does not
//!          depend on the others.
//! Limits   long contents are synced at once and without a batch, which would take as long as they do.

use super::paths::{errno, real, settle_names};
use kiban_base::Instant;
use kiban_os::{Clock, ignore_poison, lock};
use kiban_osi::ftam::filestore::DiskError;
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Contents of at most this many bytes are synced in batches.
const BATCHED_BYTES_MAX: u64 = 1 << 20;
/// The longest time for which a batch waits for more syncs.
const GATHER_TIMEOUT: Duration = Duration::from_millis(10);

type SyncDirectory = dyn Fn(BorrowedFd<'_>) -> Result<(), DiskError> + Send + Sync;

/// The syncs of files and directories, which the disks of several associations make together.
#[derive(Clone)]
pub struct Syncs {
    sync_directory: Arc<SyncDirectory>,
    /// By device number.
    file_systems: Arc<Mutex<BTreeMap<u64, Arc<Batches>>>>,
}

/// The batches of one file system.
struct Batches {
    keeps_order: bool,
    state: Mutex<State>,
    changed: Condvar,
    clock: Clock,
}

#[derive(Default)]
struct State {
    /// The number of the last batch that has begun.
    number: u64,
    /// How many syncs it had, and how many of them have not ended.
    size: usize,
    running: usize,
    began: Instant,
    /// When the next batch begins at the latest.
    deadline: Instant,
    /// How many syncs wait for the next batch.
    waiting: usize,
}

/// A sync that runs as part of a batch.
struct Running(Arc<Batches>);

impl Default for Syncs {
    fn default() -> Syncs {
        Syncs::with(settle_names)
    }
}

impl fmt::Debug for Syncs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Syncs").finish_non_exhaustive()
    }
}

impl Syncs {
    /// Syncs directories with this function instead of fsync, for example to observe the syncs.
    pub fn with(
        sync_directory: impl Fn(BorrowedFd<'_>) -> Result<(), DiskError> + Send + Sync + 'static,
    ) -> Syncs {
        Syncs { sync_directory: Arc::new(sync_directory), file_systems: Arc::default() }
    }

    /// Makes a file of this many bytes durable. With `names_follow`, this may be left to the sync of the
    /// directory into which the file is moved. Blocks the thread.
    pub(super) fn contents(&self, file: impl AsFd, bytes: u64, names_follow: bool) -> Result<(), DiskError> {
        if bytes > BATCHED_BYTES_MAX {
            return real(rustix::fs::fsync(file));
        }
        let batches = self.of(file.as_fd())?;
        if names_follow && batches.keeps_order {
            return real(kiban_os::journal::write_back(file).map_err(errno));
        }
        let _running = batches.begin();
        real(rustix::fs::fsync(file))
    }

    /// Makes all earlier changes to a directory's entries durable. Blocks the thread.
    pub(super) fn names(&self, directory: BorrowedFd<'_>) -> Result<(), DiskError> {
        let _running = self.of(directory)?.begin();
        (self.sync_directory)(directory)
    }

    /// Returns the batches of a file's file system.
    fn of(&self, file: BorrowedFd<'_>) -> Result<Arc<Batches>, DiskError> {
        let device = real(rustix::fs::fstat(file))?.st_dev;
        let new = || {
            let (state, changed) = (Mutex::default(), Condvar::new());
            let keeps_order = kiban_os::journal::keeps_order(file);
            Arc::new(Batches { keeps_order, state, changed, clock: Clock::new() })
        };
        Ok(lock(&self.file_systems).entry(device).or_insert_with(new).clone())
    }
}

impl Batches {
    /// Waits until the next batch begins.
    fn begin(self: Arc<Batches>) -> Running {
        let mut state = lock(&self.state);
        state.waiting += 1;
        let wanted = state.number + 1;
        while state.number < wanted {
            if state.running > 0 {
                state = ignore_poison(self.changed.wait(state));
                continue;
            }
            let now = self.clock.now();
            let rest = state.deadline.since(now);
            if state.waiting >= state.size || rest.is_zero() {
                state.number = wanted;
                state.size = std::mem::take(&mut state.waiting);
                state.running = state.size;
                state.began = now;
                self.changed.notify_all();
            } else {
                state = ignore_poison(self.changed.wait_timeout(state, rest)).0;
            }
        }
        drop(state);
        Running(self)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.running -= 1;
        if state.running == 0 {
            let now = self.0.clock.now();
            state.deadline = now + (now.since(state.began) / 2).min(GATHER_TIMEOUT);
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn syncs_that_come_during_a_batch_form_the_next_and_have_their_own_results() {
        let (began, begun) = mpsc::channel();
        let (go, gate) = mpsc::channel();
        let gate = Mutex::new(gate);
        let syncs = Syncs::with(move |_| {
            began.send(()).unwrap();
            lock(&gate).recv().unwrap()
        });
        let directory = std::fs::File::open(".").unwrap();
        let sync = || syncs.names(directory.as_fd());
        let state = || {
            let batches = lock(&syncs.file_systems).values().next().unwrap().clone();
            let state = lock(&batches.state);
            (state.number, state.size, state.running, state.waiting)
        };
        thread::scope(|scope| {
            let first = scope.spawn(sync);
            begun.recv().unwrap();
            let others = [(); 3].map(|()| scope.spawn(sync));
            while state().3 < 3 {
                thread::yield_now();
            }
            assert_eq!(state(), (1, 1, 1, 3));
            assert!(begun.try_recv().is_err(), "a sync began during the first batch");
            go.send(Err(DiskError::Failed)).unwrap();
            assert_eq!(first.join().unwrap(), Err(DiskError::Failed));
            // The syncs of the second batch have all begun before one of them ends.
            begun.recv().unwrap();
            assert_eq!(state(), (2, 3, 3, 0));
            for result in [Ok(()), Err(DiskError::Full), Ok(())] {
                go.send(result).unwrap();
            }
            let results = others.map(|other| other.join().unwrap());
            assert_eq!(results.iter().filter(|result| **result == Err(DiskError::Full)).count(), 1);
            assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 2);
        });
        // Two of these do not come, and the next batch does not wait for them for ever.
        go.send(Ok(())).unwrap();
        assert_eq!(sync(), Ok(()));
        assert_eq!(state(), (3, 1, 0, 0));
    }

    #[test]
    fn contents_wait_for_a_commit_of_their_own_only_if_the_journal_does_not_keep_the_order() {
        let memory = rustix::fs::memfd_create("contents", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let path = std::env::temp_dir().join(format!("kiban-syncs-{}", std::process::id()));
        let file = std::os::fd::OwnedFd::from(std::fs::File::create(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        let on_disk = kiban_os::journal::keeps_order(&file);
        for (file, keeps_order) in [(memory, false), (file, on_disk)] {
            let syncs = Syncs::default();
            let commits = || lock(&lock(&syncs.file_systems).values().next().unwrap().state).number;
            syncs.contents(&file, 5, true).unwrap();
            assert_eq!(commits(), u64::from(!keeps_order));
            syncs.contents(&file, 5, false).unwrap();
            assert_eq!(commits(), 1 + u64::from(!keeps_order));
            // A long file is synced on its own.
            syncs.contents(&file, BATCHED_BYTES_MAX + 1, true).unwrap();
            assert_eq!(commits(), 1 + u64::from(!keeps_order));
        }
    }
}
