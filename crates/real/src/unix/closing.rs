//! Closes files whose closing may take as long as a peer chose.
//!
//! Problem   who drops the last reference to a file closes it. A TCP socket with SO_LINGER and unsent data keeps the caller of
//!           close(2) for the time that its owner set; a file of a FUSE mount, until the program behind the mount answers.
//! Linger    "When the socket is closed as part of exit(2), it always lingers in the background" (socket(7)). So a thread with
//!           a descriptor table of its own, a copy of the process's, holds the files until all others have let go of them,
//!           and ends. The closing is then part of its end, and takes no time.
//! Flush     close(2) of a descriptor that was *received* flushes the file, and a FUSE mount may not answer. That keeps two threads,
//!           of twice `THREADS_MAX`; what comes beyond waits with its descriptors open.
//! Bound     [`is_full`]: while more than `WAITING_MAX` files wait, listeners accept nobody.
//! Older     without close_range(2) (Linux 5.9), or where a sandbox refuses it, lingering sockets keep these threads, and no others.

use crate::turn::quietly;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError, mpsc};

/// Threads that close, each with one that ends.
const THREADS_MAX: usize = 64;
/// Files that wait for one of them before no more peers are accepted.
const WAITING_MAX: usize = 128;
/// Bytes of the stack of such a thread, which calls nothing deep.
const STACK_BYTES: usize = 128 << 10;

struct Closing {
    threads: usize,
    waiting: VecDeque<OwnedFd>,
}

static CLOSING: Mutex<Closing> = Mutex::new(Closing { threads: 0, waiting: VecDeque::new() });

/// Closes a file on a thread that may wait for it.
pub fn close(file: OwnedFd) {
    let mut closing = CLOSING.lock().unwrap_or_else(PoisonError::into_inner);
    closing.waiting.push_back(file);
    if closing.threads < THREADS_MAX && spawn(work) {
        closing.threads += 1;
    }
}

/// Whether so many files wait to be closed that nobody may bring more.
pub fn is_full() -> bool {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner).waiting.len() > WAITING_MAX
}

/// Begins a thread that takes none of the program's signals. Whether there is one: without, files wait for the next call.
fn spawn(work: impl FnOnce() + Send + 'static) -> bool {
    let builder = std::thread::Builder::new().name("kiban-closing".into()).stack_size(STACK_BYTES);
    quietly(|| builder.spawn(work)).is_ok()
}

fn work() {
    loop {
        let mut closing = CLOSING.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = closing.waiting.pop_front() else {
            closing.threads -= 1;
            return;
        };
        drop(closing);
        release(file);
    }
}

/// Closes a file here, and has a thread that ends drop its last reference.
fn release(file: OwnedFd) {
    let (tell, held) = mpsc::channel();
    let (done, end) = mpsc::channel::<()>();
    let number = file.as_raw_fd() as libc::c_uint;
    let holds = spawn(move || {
        // close_range(2) may be called where unshare(2) may not, as in a container. What lies above the file is not even copied.
        let has_table = close_range(number + 1, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE);
        let _ = tell.send(());
        if has_table && number > 0 {
            // A copy keeps a socket that the process closes meanwhile: its port, for example, would stay taken.
            close_range(0, number - 1, 0);
        }
        // Until the other end is dropped.
        let _ = end.recv();
    });
    if holds {
        let _ = held.recv();
    }
    drop(file);
    drop(done);
}

/// Closes a range of this thread's descriptors; with CLOSE_RANGE_UNSHARE in a table of its own. False: the system refuses, and nothing
/// has changed.
fn close_range(first: libc::c_uint, last: libc::c_uint, flags: libc::c_uint) -> bool {
    // SAFETY: the thread either has a table of its own by now, or gets one by this call: no descriptor of the process is closed.
    // It opens nothing, uses no descriptor any more, and ends.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) == 0 }
}
