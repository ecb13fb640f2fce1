//! Tokio runtimes on a system that may refuse threads and files.
//!
//! Purpose          tokio panics if the system gives no thread (`spawn_blocking`, the first worker of a
//!                  runtime) or no socket pair (signals). Here that is an error, like any other from the
//!                  system.
//! Method           [`build`] catches the panic; [`blocking`] uses a thread of its own for work that may
//!                  block.
//! Limits           a thread of tokio that gets no memory for its signal stack panics before anything can
//!                  catch it, and ends the process; std prints the reason.

use kiban_os::thread;
use std::cell::Cell;
use std::ffi::CStr;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// Builds a runtime.
///
/// # Errors
/// The system gives no threads or no files for it.
pub fn build(builder: &mut Builder) -> io::Result<Runtime> {
    catch_panic(|| builder.build())?
}

/// Calls tokio where it may panic for want of a thread or a file, and converts that to an error. Panics of
/// other threads are still printed.
pub fn catch_panic<T>(call: impl FnOnce() -> T) -> io::Result<T> {
    thread_local! {
        static IS_QUIET: Cell<bool> = const { Cell::new(false) };
    }
    static HOOK: Once = Once::new();
    // The hook belongs to the process, and is never removed.
    HOOK.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                hook(panic);
            }
        }));
    });
    let before = IS_QUIET.replace(true);
    let built = catch_unwind(AssertUnwindSafe(call));
    IS_QUIET.set(before);
    built.map_err(|why| {
        let why = why.downcast_ref::<String>().map_or("no thread can be started", String::as_str);
        io::Error::other(why.to_owned())
    })
}

/// Starts work that may block, on a thread of its own. Returns the receiver of its result.
///
/// # Errors
/// The system gives no thread.
pub fn blocking<T: Send + 'static>(
    name: &'static CStr,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (tell, told) = oneshot::channel();
    let work = move || {
        // The receiver may have been dropped.
        let _ = tell.send(work());
    };
    thread::spawn(name, thread::STACK_BYTES, work)?;
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_panic_of_another_thread_is_heard_while_tokio_is_called() {
        let heard = Arc::new(AtomicUsize::new(0));
        let (counts, hook) = (heard.clone(), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            if panic.payload().downcast_ref::<&str>() == Some(&"expected: heard") {
                counts.fetch_add(1, Ordering::Relaxed);
            } else {
                hook(panic);
            }
        }));
        let called = catch_panic(|| std::thread::spawn(|| panic!("expected: heard")).join().is_err());
        assert!(called.expect("this thread has not panicked"));
        assert_eq!(heard.load(Ordering::Relaxed), 1);
        let refused = catch_panic(|| panic!("{}", String::from("no thread for it")));
        assert_eq!(refused.expect_err("it panicked").to_string(), "no thread for it");
    }
}
