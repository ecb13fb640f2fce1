//! Runtimes of tokio on a system that may refuse threads and files.
//!
//! Purpose          tokio panics where the system gives no thread (`spawn_blocking`, the first worker of a runtime) or no pair
//!                  of sockets (signals). Here that is an error, like any other that the system returns.
//! How              [`build`] catches the panic; [`blocking`] uses a thread of std for work that may block.
//! Limits           while a runtime is being built, other threads that panic are not heard.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// Builds a runtime.
///
/// # Errors
/// The system gives no threads or no files for it.
pub fn build(builder: &mut Builder) -> io::Result<Runtime> {
    quietly(|| builder.build())?
}

/// Calls tokio where it may panic for want of a thread or a file, and makes an error of that.
pub(crate) fn quietly<T>(call: impl FnOnce() -> T) -> io::Result<T> {
    // The hook belongs to the process.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let built = catch_unwind(AssertUnwindSafe(call));
    std::panic::set_hook(hook);
    built.map_err(|why| {
        let why = why.downcast_ref::<String>().map_or("no thread can be started", String::as_str);
        io::Error::other(why.to_owned())
    })
}

/// Starts work that may block, on a thread of its own, and returns where its result arrives.
///
/// # Errors
/// The system gives no thread.
pub fn blocking<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (tell, told) = oneshot::channel();
    let work = move || {
        // Nobody may wait any more.
        let _ = tell.send(work());
    };
    std::thread::Builder::new().name(name.into()).spawn(work)?;
    Ok(told)
}
