//! Lanes: threads that drive associations, each with a runtime of its own.
//!
//! Goal      what belongs to one association stays on one processor, and nobody is woken but who has something to do. In a
//!           runtime of several threads one of them waits for events whenever another works, and wakes up for each segment that
//!           comes, only to find that its association is being driven already.
//! Slow      what waits for a disk says so (`tokio::task::block_in_place`): the lane's other associations move to a fresh
//!           thread meanwhile. That is why a lane is a runtime of "many" threads that are one.

use std::io;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

/// Some lanes.
#[derive(Debug)]
pub struct Lanes {
    runtimes: Vec<Runtime>,
    /// Their anchors end when these go.
    anchors: Vec<oneshot::Sender<()>>,
}

impl Lanes {
    /// One for each processor.
    ///
    /// # Errors
    /// The system gives no threads or events.
    pub fn new() -> io::Result<Lanes> {
        let count = available_parallelism().map_or(1, NonZeroUsize::get);
        // Those that are there when one fails go as lanes do: a task must not drop a runtime.
        let mut lanes = Lanes { runtimes: Vec::new(), anchors: Vec::new() };
        (0..count).try_for_each(|_| lanes.add())?;
        Ok(lanes)
    }

    /// Adds a lane and its anchor: a thread that waits for nothing. While a runtime has one thread for what blocks,
    /// `block_in_place` does without a fresh one if the system gives none, and the lane's other associations wait; without an
    /// anchor tokio panics.
    fn add(&mut self) -> io::Result<()> {
        let mut builder = Builder::new_multi_thread();
        let runtime = crate::runtime::build(builder.worker_threads(1).thread_name("kiban-osi").enable_all())?;
        let lane = runtime.handle().clone();
        self.runtimes.push(runtime);
        let (anchor, gone) = oneshot::channel::<()>();
        let hold = || {
            // It is the sender's end that is waited for.
            let _ = gone.blocking_recv();
        };
        crate::runtime::quietly(|| lane.spawn_blocking(hold))?;
        self.anchors.push(anchor);
        Ok(())
    }

    /// The lane of the association with this number.
    pub fn of(&self, number: u64) -> &Handle {
        self.runtimes[(number % self.runtimes.len() as u64) as usize].handle()
    }
}

/// Has a lane hear the events of a socket, from now on.
///
/// # Errors
/// No room is left for another socket's events.
pub fn into_lane(socket: TcpStream, lane: &Handle) -> io::Result<TcpStream> {
    let socket = socket.into_std()?;
    let _guard = lane.enter();
    TcpStream::from_std(socket)
}

/// Whoever drops them may be a task, which must not wait; what is left in the lanes is dropped.
impl Drop for Lanes {
    fn drop(&mut self) {
        self.anchors.clear();
        self.runtimes.drain(..).for_each(Runtime::shutdown_background);
    }
}
