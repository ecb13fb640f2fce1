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

/// Some lanes.
#[derive(Debug)]
pub struct Lanes(Vec<Runtime>);

impl Lanes {
    /// One for each processor.
    ///
    /// # Errors
    /// The system gives no threads or events.
    pub fn new() -> io::Result<Lanes> {
        let count = available_parallelism().map_or(1, NonZeroUsize::get);
        (0..count).map(|_| lane()).collect::<io::Result<_>>().map(Lanes)
    }

    /// The lane of the association with this number.
    pub fn of(&self, number: u64) -> &Handle {
        self.0[(number % self.0.len() as u64) as usize].handle()
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
        self.0.drain(..).for_each(Runtime::shutdown_background);
    }
}

fn lane() -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(1).thread_name("kiban-osi").enable_all().build()
}
