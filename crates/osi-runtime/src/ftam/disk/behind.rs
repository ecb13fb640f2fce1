//! Writing behind: a second thread writes part of a long file's data.
//!
//! Purpose   writing costs as much time as receiving and decoding. With a second thread, both happen at the
//!           same time, where a processor is free.
//! Method    the association's thread hands its data over, with an offset. While the second thread is still
//!           busy with earlier data, the association's thread writes its data itself; it never waits, except
//!           in [`Behind::settle`].
//! Memory    at most two ropes are in the second thread's hands. It returns them, because buffers are reused
//!           by the thread that drops them (`crate::buffers`).
//! Limits    [`THREADS_MAX`] threads in a process; further files are written without.

use super::files::write_at;
use kiban_base::Rope;
use kiban_os::{ignore_poison, lock};
use kiban_osi::ftam::filestore::DiskError;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex};

/// Maximum number of threads that write behind.
const THREADS_MAX: usize = 8;
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// A thread that writes to one file.
#[derive(Debug)]
pub(super) struct Behind(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: Arc<OwnedFd>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    next: Option<(u64, Rope)>,
    is_writing: bool,
    is_over: bool,
    /// Data that has been written, whose memory the association's thread frees.
    written: Vec<Rope>,
    error: Option<DiskError>,
}

impl Behind {
    /// Starts a thread for this file, unless there are too many, or the system refuses it.
    pub(super) fn start(file: &Arc<OwnedFd>) -> Option<Behind> {
        let more = |count| (count < THREADS_MAX).then_some(count + 1);
        THREADS.fetch_update(Relaxed, Relaxed, more).ok()?;
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { file: file.clone(), state, changed });
        let thread = shared.clone();
        let started = kiban_tokio::runtime::blocking(c"kiban-write", move || {
            thread.run();
            THREADS.fetch_sub(1, Relaxed);
        });
        if started.is_err() {
            THREADS.fetch_sub(1, Relaxed);
            return None;
        }
        Some(Behind(shared))
    }

    /// Hands data over to be written at this offset; returns it if the thread has enough to do.
    ///
    /// # Errors
    /// Earlier data could not be written.
    pub(super) fn hand(&self, at: u64, bytes: Rope) -> Result<Option<Rope>, DiskError> {
        let mut state = lock(&self.0.state);
        if let Some(error) = state.error {
            return Err(error);
        }
        let written = std::mem::take(&mut state.written);
        let rest = match state.next {
            Some(_) => Some(bytes),
            None => {
                state.next = Some((at, bytes));
                if !state.is_writing {
                    self.0.changed.notify_all();
                }
                None
            }
        };
        drop(state);
        drop(written);
        Ok(rest)
    }

    /// Waits until everything is written; returns the first error.
    pub(super) fn settle(&self) -> Result<(), DiskError> {
        let mut state = lock(&self.0.state);
        while state.next.is_some() || state.is_writing {
            state = ignore_poison(self.0.changed.wait(state));
        }
        state.error.map_or(Ok(()), Err)
    }
}

impl Drop for Behind {
    /// Lets the thread end when everything is written.
    fn drop(&mut self) {
        lock(&self.0.state).is_over = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn run(&self) {
        let mut state = lock(&self.state);
        loop {
            let Some((at, bytes)) = state.next.take() else {
                if state.is_over {
                    return;
                }
                state = ignore_poison(self.changed.wait(state));
                continue;
            };
            state.is_writing = true;
            drop(state);
            let result = write_at(&self.file, at, &bytes);
            state = lock(&self.state);
            state.is_writing = false;
            state.written.push(bytes);
            if let (Err(error), None) = (result, state.error) {
                state.error = Some(error);
            }
            if state.next.is_none() {
                self.changed.notify_all();
            }
        }
    }
}
