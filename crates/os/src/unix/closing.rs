//! Closes files for which close(2) may block as long as a peer chooses.
//!
//! Problem          the thread that drops the last reference to a file closes it. A TCP socket with SO_LINGER
//!                  and unsent data blocks the caller of close(2) for the time that its owner set; a file on
//!                  a FUSE mount blocks it until the program behind the mount answers.
//! Linger           "When the socket is closed as part of exit(2), it always lingers in the background"
//!                  (socket(7)). So a helper thread copies the descriptor table, waits until the socket is
//!                  closed elsewhere, and exits: the kernel drops the last reference as part of that exit,
//!                  which does not block. The helper does not close any file itself, because any file in its
//!                  copy may linger too.
//! Copy             for a few microseconds, the copy also holds every descriptor that the process closes in
//!                  the meantime. So a port that another thread frees may stay in use for that time. Without
//!                  the copy, close(2) would block the thread for as long as the sender chose, and 64 sockets
//!                  with SO_LINGER of an hour would use up all threads.
//! Flush            close(2) of a descriptor that was *received* flushes the file, and a FUSE mount may not
//!                  answer. That blocks one of the `THREADS_MAX` threads, even when the process ends. So only
//!                  callers receive descriptors, and only from the process that they call. A descriptor that
//!                  waits in a socket and was never received is released without a flush.
//! Bound            [`Closer::is_full`]: while more than `WAITING_MAX` files of a listener's peers wait to be
//!                  closed, the listener accepts no connections. Each listener has its own [`Closer`], so
//!                  that the peers of one cannot block another.
//! Shortage         if no thread can be started, files wait until any listener of this process accepts a
//!                  connection, or until another file must be closed; both retry for all closers.
//! Old kernels      without close_range(2) (Linux 5.9), or if a sandbox refuses it, lingering sockets block
//!                  these threads, but no others.

use crate::lock;
use crate::{thread, turn::with_signals_blocked};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock, Mutex, mpsc};

/// Maximum number of closing threads; each uses a second thread, whose exit closes the file.
const THREADS_MAX: usize = 64;
/// Above this number of files that wait to be closed, no more peers are accepted.
const WAITING_MAX: usize = 128;
/// Stack size of a closing thread, in bytes. It suffices because the calls are shallow.
const STACK_BYTES: usize = 128 << 10;

/// Closes the files of one group of peers on threads that may block.
#[derive(Clone, Debug, Default)]
pub struct Closer(Arc<Mutex<Closing>>);

#[derive(Debug, Default)]
struct Closing {
    threads: usize,
    waiting: VecDeque<OwnedFd>,
    /// Whether this closer is in [`SHORT`].
    is_short: bool,
    #[cfg(test)]
    refuses_threads: bool,
}

/// The closer for sockets to processes that this process has called.
static CALLED: LazyLock<Closer> = LazyLock::new(Closer::default);

/// Closers that have files to close but could not start a thread.
static SHORT: Mutex<Vec<Closer>> = Mutex::new(Vec::new());

/// Tries again to start threads for the closers in [`SHORT`].
pub(super) fn try_again() {
    let short = std::mem::take(&mut *lock(&SHORT));
    for closer in short {
        let mut closing = lock(&closer.0);
        closing.is_short = false;
        closer.begin(&mut closing);
    }
}

/// Closes a socket that this process has connected to a peer.
pub fn close(file: OwnedFd) {
    CALLED.close(file);
}

impl Closer {
    /// Returns the closer that is shared by all peers that this process calls.
    pub(super) fn of_called() -> Closer {
        CALLED.clone()
    }

    /// Closes a file on a thread that may block.
    pub fn close(&self, file: OwnedFd) {
        try_again();
        let mut closing = lock(&self.0);
        closing.waiting.push_back(file);
        self.begin(&mut closing);
    }

    /// Returns whether so many files wait to be closed that no other peer may be accepted.
    pub fn is_full(&self) -> bool {
        lock(&self.0).waiting.len() > WAITING_MAX
    }

    /// Starts one more thread if files wait and the limit allows it.
    fn begin(&self, closing: &mut Closing) {
        if closing.waiting.is_empty() || closing.threads >= THREADS_MAX {
            return;
        }
        let its = self.clone();
        if !closing.is_refused() && spawn(move || its.work()) {
            closing.threads += 1;
        } else if !closing.is_short {
            closing.is_short = true;
            lock(&SHORT).push(self.clone());
        }
    }

    fn work(&self) {
        loop {
            let mut closing = lock(&self.0);
            let Some(file) = closing.waiting.pop_front() else {
                closing.threads -= 1;
                return;
            };
            drop(closing);
            release(file);
        }
    }

    /// Prevents threads from being started, as if the system were out of threads, or allows this again.
    #[cfg(test)]
    pub(super) fn refuse_threads(&self, refused: bool) {
        lock(&self.0).refuses_threads = refused;
    }
}

impl Closing {
    #[cfg(test)]
    fn is_refused(&self) -> bool {
        self.refuses_threads
    }

    #[cfg(not(test))]
    fn is_refused(&self) -> bool {
        false
    }
}

/// Starts a thread that does not receive the program's signals. Returns whether the thread was started; if
/// not, files wait for the next call.
fn spawn(work: impl FnOnce() + Send + 'static) -> bool {
    with_signals_blocked(|| thread::spawn(c"kiban-closing", STACK_BYTES, work)).is_ok()
}

/// Closes a file on this thread. If the file is a socket, a second thread drops the last reference when it
/// exits.
fn release(file: OwnedFd) {
    // Only sockets can linger, either by themselves or through unread descriptors. Any other file could block
    // the second thread, and that thread holds a copy of every descriptor.
    if rustix::net::sockopt::socket_type(&file).is_err() {
        return;
    }
    let (tell, held) = mpsc::channel();
    let (done, end) = mpsc::channel::<()>();
    let holds = spawn(move || {
        copy_table();
        let _ = tell.send(());
        // Wait until `done` is dropped.
        let _ = end.recv();
    });
    if holds {
        let _ = held.recv();
    }
    drop(file);
    drop(done);
}

/// Gives this thread a copy of the process's descriptor table, unless the system refuses. Uses close_range(2)
/// with an empty range, because it may be allowed where unshare(2) is not, as in a container.
fn copy_table() {
    let none = libc::c_uint::MAX;
    // SAFETY: the call closes no descriptor; afterwards the thread opens and uses no descriptor, and exits.
    unsafe { libc::syscall(libc::SYS_close_range, none, none, libc::CLOSE_RANGE_UNSHARE) };
}
