//! A pool of runtimes: threads that drive associations, each with a separate tokio runtime.
//!
//! Purpose    an association stays on one processor, and no thread is woken without work. In a single runtime
//!            with several threads, an idle thread waits for events while another works. Each arriving
//!            segment would wake the idle thread, although a thread is already driving that segment's
//!            association.
//! Blocking   work that waits for a disk is announced (`tokio::task::block_in_place`), so that the runtime's
//!            other associations move to a new thread in the meantime. This works only in a multi-threaded
//!            runtime, so each runtime is of that kind, with a single worker thread.

use std::io;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

/// A pool of runtimes.
#[derive(Debug)]
pub struct RuntimePool {
    runtimes: Vec<Runtime>,
    /// The anchor threads end when these senders are dropped.
    anchors: Vec<oneshot::Sender<()>>,
}

impl RuntimePool {
    /// Creates one runtime for each processor.
    ///
    /// # Errors
    /// The system cannot create threads or event descriptors.
    pub fn new() -> io::Result<RuntimePool> {
        let count = available_parallelism().map_or(1, NonZeroUsize::get);
        // If one runtime cannot be created, the others are dropped in the background, since a task must not
        // drop a runtime.
        let mut pool = RuntimePool { runtimes: Vec::new(), anchors: Vec::new() };
        (0..count).try_for_each(|_| pool.add())?;
        Ok(pool)
    }

    /// Adds a runtime and its anchor, an idle blocking thread. If the system refuses to create another
    /// thread, `block_in_place` makes the other associations wait, provided that the runtime has a blocking
    /// thread. Without one, tokio would panic, hence the anchor.
    fn add(&mut self) -> io::Result<()> {
        let mut builder = Builder::new_multi_thread();
        let runtime =
            kiban_tokio::runtime::build(builder.worker_threads(1).thread_name("kiban-osi").enable_all())?;
        let handle = runtime.handle().clone();
        self.runtimes.push(runtime);
        let (anchor, gone) = oneshot::channel::<()>();
        let hold = || {
            // The anchor ends when the sender is dropped.
            let _ = gone.blocking_recv();
        };
        kiban_tokio::runtime::catch_panic(|| handle.spawn_blocking(hold))?;
        self.anchors.push(anchor);
        Ok(())
    }

    /// Returns the runtime of the association with this number.
    pub fn of(&self, number: u64) -> &Handle {
        self.runtimes[(number % self.runtimes.len() as u64) as usize].handle()
    }
}

/// Registers a socket with a runtime's event loop.
///
/// # Errors
/// The system cannot register another socket.
pub fn into_runtime(socket: TcpStream, runtime: &Handle) -> io::Result<TcpStream> {
    let socket = socket.into_std()?;
    let _guard = runtime.enter();
    TcpStream::from_std(socket)
}

/// Drops the runtimes in the background, because the task that drops the pool must not block. Any remaining
/// tasks are dropped.
impl Drop for RuntimePool {
    fn drop(&mut self) {
        self.anchors.clear();
        self.runtimes.drain(..).for_each(Runtime::shutdown_background);
    }
}
