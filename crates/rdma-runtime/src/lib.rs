//! An RDMA NIC in real time. The NIC is the same Rust value that the simulator drives, here with sockets,
//! threads and sleeping.
//!
//! ```no_run
//! use kiban_rdma_runtime::{Access, Connect, Context, Lower, QpOptions, Remote, Status, Wr};
//! use std::time::Duration;
//!
//! let context = Context::open(&Lower::Tcp { from: None })?;
//! let pd = context.alloc_pd()?;
//! let cq = context.create_cq(64)?;
//! let qp = pd.create_qp(&cq, &cq, QpOptions::default())?;
//! let mr = pd.reg_mr(4096, Access::LOCAL)?;
//! mr.write(0, b"hello");
//! let peer = qp.connect("192.0.2.1:7471".parse()?, &Connect::default(), Duration::from_secs(5))?;
//! # let (rkey, address) = (0, 0);
//! qp.post_send(Wr::write(1, mr.slice(0, 5), Remote { rkey, address }))?;
//! let done = cq.wait(Duration::from_secs(1))?;
//! assert_eq!(done.status, Status::Success);
//! # drop(peer);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Purpose          provides safe verbs for Rust programs: memory that the NIC may access can be neither
//!                  freed nor aliased.
//! Memory           a region ([`Mr`]) owns its memory. Programs access it by copying, since peers may change
//!                  it at any moment. Dropping it invalidates its keys at once; unsent data is copied first.
//! Progress         any thread that posts, polls or waits makes progress. If no thread does so, a helper
//!                  thread makes progress, so that peers' reads and writes are answered while the program
//!                  computes.
//! Waiting          each queue has a policy ([`kiban_base::Wait`]): poll, interrupt, hybrid, adaptive.
//! Limits           one lock per context. Programs that drive many queue pairs from many threads should open
//!                  several contexts.
//! Not implemented  fork: a child must not use its parent's context.

mod board_nic;
mod connect;
mod control;
mod device;
mod efe;
mod error;
mod fast_mr;
mod link;
pub(crate) mod linked_nic;
mod memory;
mod port_space;
mod queues;
mod roce;
pub mod same_user;
pub mod shared;
pub mod tcp;
pub mod verbs;

pub use self::connect::{Connect, Connection, ConnectionRequest, Listener};
pub use self::error::Error;
pub use self::fast_mr::FastMr;
pub use self::link::{Address, EFE_UDP_PORT, Lower};
pub use self::memory::{Mr, Mw, Pd, Remote, Slice};
pub use self::queues::{Cq, Qp, QpOptions, Srq, Wr};
pub use kiban_rdma::hif::Transport;
pub use kiban_rdma::iwarp::mpa::{Config as MpaConfig, CrcUse};
pub use kiban_rdma::nic::ConnectError;
pub use kiban_rdma::rnic::{
    Access, Completion, Config, Event, Kind, Notify, Operation, QpState, RequestError, RnicCounters, Status,
};

use self::board_nic::{BoardNic, Door};
use self::device::Device;
use self::linked_nic::LinkedNic;
use kiban_base::{Report, Wait};
use kiban_os::turn::{HelperPolicy, Turn};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The queues for which a thread can wait. Each queue has its own wait policy, which adapts separately.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Queue {
    /// A completion queue, by its number.
    Completions(u32),
    /// Connections and events.
    Control,
}

/// An open device: a NIC owned by this program. Clones share it. It closes when the last clone and all
/// objects created from it have been dropped.
#[derive(Clone)]
pub struct Context {
    turn: Turn<Device, Queue>,
    /// The way to the board, if the NIC is that of a running board.
    door: Option<Arc<Door>>,
}

impl Context {
    /// Opens a NIC over a lower layer.
    ///
    /// # Errors
    /// The system refuses the socket, the address or the interface.
    pub fn open(lower: &Lower) -> Result<Context, Error> {
        Context::open_with(lower, Config::default())
    }

    /// Opens a NIC like [`Context::open`], with settings. The NIC of a running board has its own.
    ///
    /// # Errors
    /// As for [`Context::open`].
    pub fn open_with(lower: &Lower, config: Config) -> Result<Context, Error> {
        let mut door = None;
        let turn = Turn::new("kiban-rdma", HelperPolicy::SELDOM, |epoll| match lower {
            Lower::Nic { name, transport } => {
                let (nic, way) = BoardNic::attach(name.as_deref(), *transport, epoll)?;
                door = Some(Arc::new(way));
                Ok::<_, io::Error>(Device::Board(nic))
            }
            lower => LinkedNic::open(lower.clone(), config, epoll).map(Device::Own),
        })?;
        Ok(Context { turn, door })
    }

    /// Allocates a protection domain.
    ///
    /// # Errors
    /// There are too many.
    pub fn alloc_pd(&self) -> Result<Pd, Error> {
        Pd::new(self)
    }

    /// Creates a completion queue for up to `entries` completions.
    ///
    /// # Errors
    /// There are too many queues, or `entries` is too large.
    pub fn create_cq(&self, entries: usize) -> Result<Cq, Error> {
        Cq::new(self, entries)
    }

    /// Listens for connections. Port or service 0 selects a free one.
    ///
    /// # Errors
    /// The address is in use, or does not match the lower layer.
    pub fn listen(&self, at: Address, options: &Connect) -> Result<Listener, Error> {
        Listener::new(self, at, options)
    }

    /// Waits until a completion queue that was armed ([`Cq::notify`]) has a completion, and returns its
    /// number.
    ///
    /// # Errors
    /// The timeout expired.
    pub fn cq_event(&self, timeout: Duration) -> Result<u32, Error> {
        Ok(self.turn.wait(Queue::Control, None, timeout, |device| device.cq_events().pop_front())?)
    }

    /// Waits for the next asynchronous event.
    ///
    /// # Errors
    /// The timeout expired.
    pub fn event(&self, timeout: Duration) -> Result<Event, Error> {
        Ok(self.turn.wait(Queue::Control, None, timeout, |device| device.events().pop_front())?)
    }

    /// Makes progress once, without waiting. Useful for programs that make no other calls for a while.
    pub fn progress(&self) {
        self.turn.look(|_| None::<()>);
    }

    /// Returns the NIC's counters. Those of a board's NIC are all zero here: it counts for all of its
    /// programs (`kiban status`).
    pub fn counters(&self) -> RnicCounters {
        self.turn.read(|device| match device {
            Device::Own(core) => *core.nic.core.counters(),
            Device::Board(_) => RnicCounters::default(),
        })
    }

    /// Returns the number of queue pairs, steering tags, connections and sockets in use.
    pub fn in_use(&self) -> (usize, usize, usize, usize) {
        self.turn.read(|device| match device {
            Device::Own(core) => {
                let (qps, stags) = core.nic.core.in_use();
                (qps, stags, core.nic.ends(), core.lines())
            }
            Device::Board(nic) => {
                let (qps, keys, ends) = nic.in_use();
                (qps, keys, ends, 0)
            }
        })
    }

    /// Sets the wait policy for queues that have no policy of their own.
    pub fn set_wait(&self, wait: Wait) {
        self.turn.set_wait(wait);
    }

    /// Sets the wait policy of one queue.
    pub fn set_queue_wait(&self, queue: Queue, wait: Wait) {
        self.turn.set_queue_wait(queue, wait);
    }

    /// Returns statistics about waiting for a queue, or `None` before the first wait.
    pub fn wait_report(&self, queue: Queue) -> Option<Report> {
        self.turn.wait_report(queue)
    }

    /// Closes the NIC for all users: waiting threads get [`Error::Closed`].
    pub fn close(&self) {
        self.turn.close(|device, now| match device {
            Device::Own(core) => core.abort_all(now),
            Device::Board(nic) => nic.abort_all(),
        });
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Context")
    }
}

#[cfg(test)]
mod tests;
