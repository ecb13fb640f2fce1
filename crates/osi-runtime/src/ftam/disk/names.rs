//! Group commit: associations that wait for the same directory share one sync of it.
//!
//! Purpose  a file is confirmed when its name is on the disk. Each sync of a directory waits for a commit of
//!          the file system's journal, so many small files would take twice as long as without.
//! Method   the first association to wait syncs the directory. That covers the changes that were made before
//!          the sync began. Associations that come later wait for the next sync, which one of them does for
//!          all of them.
//! Errors   a failed sync is reported to each association that it should have covered.

use super::paths;
use super::protected::{Inode, inode};
use kiban_os::{ignore_poison, lock};
use kiban_osi::ftam::filestore::DiskError;
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex};

type SyncDirectory = dyn Fn(BorrowedFd<'_>) -> Result<(), DiskError> + Send + Sync;

/// The syncs of directories, which the disks of several associations share.
#[derive(Clone)]
pub struct NameSyncs {
    sync: Arc<SyncDirectory>,
    directories: Arc<Mutex<BTreeMap<Inode, Arc<Group>>>>,
}

/// The associations that wait for one directory.
#[derive(Default)]
struct Group {
    state: Mutex<State>,
    ended: Condvar,
}

/// Syncs are numbered from 1.
#[derive(Default)]
struct State {
    begun: u64,
    ended: u64,
    /// The last sync that failed.
    failed: Option<(u64, DiskError)>,
    /// How many associations use this group; without any, it is forgotten.
    users: usize,
}

impl Default for NameSyncs {
    fn default() -> NameSyncs {
        NameSyncs::with(paths::settle_names)
    }
}

impl fmt::Debug for NameSyncs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameSyncs").finish_non_exhaustive()
    }
}

impl NameSyncs {
    /// Syncs directories with this function instead of fsync, for example to count the syncs.
    pub fn with(sync: impl Fn(BorrowedFd<'_>) -> Result<(), DiskError> + Send + Sync + 'static) -> NameSyncs {
        NameSyncs { sync: Arc::new(sync), directories: Arc::default() }
    }

    /// Returns when all earlier changes to the directory's entries are durable. Blocks the thread.
    pub(super) fn settle(&self, directory: BorrowedFd<'_>) -> Result<(), DiskError> {
        let key = inode(&paths::real(rustix::fs::fstat(directory))?);
        let (group, needed) = self.wait_in_group(key);
        let result = group.settle(needed, || (self.sync)(directory));
        let mut directories = lock(&self.directories);
        let mut state = lock(&group.state);
        state.users -= 1;
        if state.users == 0 {
            directories.remove(&key);
        }
        result
    }

    /// Returns the directory's group and the number of the sync that is needed. A sync that has begun may
    /// have missed the caller's changes.
    fn wait_in_group(&self, key: Inode) -> (Arc<Group>, u64) {
        let mut directories = lock(&self.directories);
        let group = directories.entry(key).or_default().clone();
        let mut state = lock(&group.state);
        state.users += 1;
        let needed = state.begun + 1;
        drop(state);
        (group, needed)
    }
}

impl Group {
    /// Returns when the sync with this number has ended, or a later one.
    fn settle(&self, needed: u64, sync: impl FnOnce() -> Result<(), DiskError>) -> Result<(), DiskError> {
        let mut state = lock(&self.state);
        while state.ended < needed && state.begun > state.ended {
            state = ignore_poison(self.ended.wait(state));
        }
        if state.ended < needed {
            state.begun = needed;
            drop(state);
            let result = sync();
            state = lock(&self.state);
            state.ended = needed;
            if let Err(error) = result {
                state.failed = Some((needed, error));
            }
            self.ended.notify_all();
        }
        match state.failed {
            Some((number, error)) if number >= needed => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::sync::mpsc;
    use std::thread;

    /// Lets one association begin a sync and three others wait; returns the results, the first one's first,
    /// and the number of syncs.
    fn settle_four_times(results: [Result<(), DiskError>; 2]) -> (Vec<Result<(), DiskError>>, usize) {
        let (began, begun) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let count = Arc::new(Mutex::new(0));
        let counted = count.clone();
        let names = NameSyncs::with(move |_| {
            let number = *lock(&counted);
            began.send(()).unwrap();
            lock(&gate).recv().unwrap();
            *lock(&counted) += 1;
            results.get(number).copied().unwrap_or(Ok(()))
        });
        let directory = std::fs::File::open(".").unwrap();
        let settle = || {
            let result = names.settle(directory.as_fd());
            (result, *lock(&count))
        };
        let ended = thread::scope(|scope| {
            let first = scope.spawn(settle);
            begun.recv().unwrap();
            let others = [(); 3].map(|()| scope.spawn(settle));
            let group = lock(&names.directories).values().next().unwrap().clone();
            while lock(&group.state).users < 4 {
                thread::yield_now();
            }
            go.send(()).unwrap();
            // The first association may begin and end before the second sync, but not the others.
            begun.recv().unwrap();
            assert!(others.iter().all(|other| !other.is_finished()));
            (0..4).for_each(|_| go.send(()).unwrap());
            let first = first.join().unwrap();
            std::iter::once(first).chain(others.map(|other| other.join().unwrap())).collect::<Vec<_>>()
        });
        for (_, syncs_ended) in &ended[1..] {
            assert_eq!(*syncs_ended, 2, "it returned before its sync, or needed another one");
        }
        assert!(lock(&names.directories).is_empty());
        (ended.into_iter().map(|(result, _)| result).collect(), *lock(&count))
    }

    #[test]
    fn associations_that_wait_share_the_next_sync() {
        assert_eq!(settle_four_times([Ok(()); 2]), (vec![Ok(()); 4], 2));
    }

    #[test]
    fn a_failed_sync_fails_for_all_that_it_should_have_covered() {
        let failed = Err(DiskError::Failed);
        let (results, _) = settle_four_times([failed, Ok(())]);
        assert_eq!(results, [failed, Ok(()), Ok(()), Ok(())]);
        let (results, _) = settle_four_times([Ok(()), failed]);
        assert_eq!(results[1..], [failed; 3]);
    }
}
