//! Tokio runtimes for systems that may run out of threads or descriptors.
//!
//! Purpose          tokio panics if it cannot start a thread (`spawn_blocking`, the first worker of a
//!                  runtime) or create a socket pair (signals). Here these are ordinary errors.
//! Method           [`build`] catches the panic; [`blocking`] starts a new thread for each piece of blocking
//!                  work.
//! Limits           if there is no memory for the signal stack of a tokio thread, the thread panics where the
//!                  panic cannot be caught. This aborts the process; std prints the reason.

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
/// If the system is out of threads or descriptors.
pub fn build(builder: &mut Builder) -> io::Result<Runtime> {
    catch_panic(|| builder.build())?
}

/// Calls tokio, and converts a panic to an error. Panics in other threads are still printed.
///
/// # Errors
/// `call` panicked; the error has the panic's message.
pub fn catch_panic<T>(call: impl FnOnce() -> T) -> io::Result<T> {
    thread_local! {
        static IS_QUIET: Cell<bool> = const { Cell::new(false) };
    }
    static HOOK: Once = Once::new();
    // The panic hook applies to the whole process and is never removed.
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

/// Starts blocking work on a new thread. Returns the receiver for its result.
///
/// # Errors
/// If no thread could be started.
pub fn blocking<T: Send + 'static>(
    name: &'static CStr,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (sender, receiver) = oneshot::channel();
    let work = move || {
        // The receiver may have been dropped.
        let _ = sender.send(work());
    };
    thread::spawn(name, thread::STACK_BYTES, work)?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn panics_of_other_threads_are_reported_while_tokio_is_called() {
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
