//! Starts threads without panicking: if the system is short of memory, an error is returned.
//!
//! Problem          before it runs the caller's code, a std thread allocates an alternative signal stack, and
//!                  panics if it cannot. Nothing can catch that panic: the process ends.
//! Method           pthread_create(3), which either maps everything that the thread needs or returns an
//!                  error.
//! Limits           a stack overflow ends the process as in any thread, but without std's message. A panic
//!                  ends only the thread.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{from_mut, null_mut};

/// Stack size, in bytes, for a thread without restrictions on what it calls: std's default.
pub const STACK_BYTES: usize = 2 << 20;

type Work = Box<dyn FnOnce() + Send>;

/// Starts a detached thread. System tools show the first 15 bytes of its name.
///
/// # Errors
/// The system has no memory for it, or allows no more threads; the work is dropped.
pub fn spawn(
    name: &'static CStr,
    stack_bytes: usize,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let work: Work = Box::new(move || {
        // If naming fails, the thread works without a name.
        let _ = rustix::thread::set_name(name);
        work();
    });
    let work = Box::into_raw(Box::new(work));
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let attributes = attributes.as_mut_ptr();
    let mut thread: libc::pthread_t = 0;
    // SAFETY: the first call initialises the attributes, and the last destroys them; they and `thread`
    // outlive all calls. `run` has the type that pthread_create expects. It takes ownership of `work` if the
    // call succeeds, and then nothing here uses `work`.
    let refused = unsafe {
        libc::pthread_attr_init(attributes);
        libc::pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(attributes, stack_bytes);
        let refused = libc::pthread_create(from_mut(&mut thread), attributes, run, work.cast());
        libc::pthread_attr_destroy(attributes);
        refused
    };
    if refused == 0 {
        return Ok(());
    }
    // SAFETY: `work` came from `Box::into_raw` above, and no thread was started that could take it.
    drop(unsafe { Box::from_raw(work) });
    Err(io::Error::from_raw_os_error(refused))
}

extern "C" fn run(work: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: `work` is from `Box::into_raw` in `spawn`, which gives each box to one thread only.
    let work = unsafe { Box::from_raw(work.cast::<Work>()) };
    // The panic hook has already printed the message; nothing may unwind out of an extern "C" function.
    let _ = catch_unwind(AssertUnwindSafe(*work));
    null_mut()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, mpsc};

    #[test]
    fn a_thread_has_its_name_and_its_panic_ends_only_it() {
        let (tell, told) = mpsc::channel();
        let work = move || {
            let name = std::fs::read_to_string("/proc/thread-self/comm").expect("a file");
            tell.send(name).expect("there is a listener");
            panic!("expected: a thread that panics");
        };
        spawn(c"kiban-test", STACK_BYTES, work).expect("a thread");
        assert_eq!(told.recv().expect("it works"), "kiban-test\n");
        // The panic drops the sender and ends only this thread.
        assert!(told.recv().is_err());
    }

    #[test]
    fn a_thread_that_the_system_refuses_is_an_error_and_leaves_nothing_behind() {
        let held = Arc::new(());
        let its = held.clone();
        // This stack size exceeds a process's address space.
        let refused = spawn(c"kiban-test", 1 << 56, move || drop(its));
        assert!(refused.is_err());
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
