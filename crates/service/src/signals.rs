//! Signals for programs that run in the foreground: stop, and report the status.

use std::io;
use tokio::signal::unix::{SignalKind, signal};

/// What a signal requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignalRequest {
    /// SIGINT, SIGTERM: stop.
    Stop,
    /// SIGUSR1: report the status.
    Report,
}

/// Starts handling signals on a dedicated thread; calls `on_signal` for each.
///
/// # Errors
/// If the system has run out of threads or descriptors.
pub fn handle(on_signal: impl Fn(SignalRequest) + Send + 'static) -> io::Result<()> {
    let runtime = kiban_tokio::runtime::build(tokio::runtime::Builder::new_current_thread().enable_all())?;
    let entered = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut report = signal(SignalKind::user_defined1())?;
    drop(entered);
    let work = move || {
        runtime.block_on(async move {
            loop {
                on_signal(tokio::select! {
                    _ = interrupt.recv() => SignalRequest::Stop,
                    _ = terminate.recv() => SignalRequest::Stop,
                    _ = report.recv() => SignalRequest::Report,
                });
            }
        });
    };
    std::thread::Builder::new().name("signals".into()).spawn(work)?;
    Ok(())
}
