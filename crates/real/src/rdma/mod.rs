//! An RDMA NIC in real time: the value that the simulator drives, with sockets, sleep and many threads.
//!
//! ```no_run
//! use kiban_real::rdma::{Access, Connect, Context, Lower, QpOptions, Remote, Status, Wr};
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
//! Goal      verbs for Rust programs, safe ones: what the NIC may touch cannot be freed or aliased meanwhile.
//! Memory    a region ([`Mr`]) owns its memory. Programs read and write it by copies, since peers may change it at any
//!           moment; dropping it kills its keys at once, and what was on its way out of it has been copied.
//! Progress  made by whoever posts, polls or waits; by a helper thread when nobody does, so that peers' reads and writes are
//!           answered while the program computes.
//! Wait      by a policy of each queue ([`kiban_ground::Wait`]): poll, interrupt, hybrid, adaptive.
//! Limits    one lock a context: programs that drive many queue pairs from many threads open several.
//! Left out  fork: a child must not use its parent's context.

mod connect;
pub(crate) mod core;
mod link;
mod memory;
mod queues;

pub use self::connect::{Connect, Connection, ConnectionRequest, Listener};
pub use self::link::{Address, EFE_UDP_PORT, Lower};
pub use self::memory::{Mr, Mw, Pd, Slice};
pub use self::queues::{Cq, Qp, QpOptions, Remote, Srq, Wr};
pub use kiban_stack::iwarp::mpa::{Config as MpaConfig, CrcUse};
pub use kiban_stack::iwarp::nic::ConnectError;
pub use kiban_stack::iwarp::rnic::{
    Access, Completion, Config, Event, Kind, Notify, Operation, QpState, Refusal, RnicCounters, Status,
};

use self::core::Core;
use crate::turn::{Ended, Helping, Turn};
use kiban_ground::{Report, Wait};
use kiban_stack::iwarp::nic::OpenError;
use std::fmt;
use std::io;
use std::time::Duration;

/// Why a call came to nothing.
#[derive(Debug)]
pub enum Error {
    /// The NIC refused.
    Refused(Refusal),
    /// The connection did not come to be.
    Connect(ConnectError),
    /// The request to connect could not be made or answered.
    Open(OpenError),
    /// The operating system refused.
    Os(io::Error),
    /// The time is over.
    Timeout,
    /// The context has been closed.
    Closed,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused(refusal) => refusal.fmt(f),
            Error::Connect(error) => error.fmt(f),
            Error::Open(error) => error.fmt(f),
            Error::Os(error) => error.fmt(f),
            Error::Timeout => f.write_str("nothing came in time"),
            Error::Closed => f.write_str("the context has been closed: open another"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        Error::Refused(refusal)
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Error {
        Error::Open(error)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Os(error)
    }
}

impl From<Ended> for Error {
    fn from(ended: Ended) -> Error {
        match ended {
            Ended::Timeout => Error::Timeout,
            Ended::Closed => Error::Closed,
        }
    }
}

/// What one waits for: each has a policy and learns for itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Queue {
    /// A completion queue, by its number.
    Completions(u32),
    /// Connections and events.
    Control,
}

/// An open device: a NIC of this program's own. Clones are the same; it closes with the last of them and of what was made
/// from it.
#[derive(Clone)]
pub struct Context {
    turn: Turn<Core, Queue>,
}

impl Context {
    /// Opens a NIC over a lower layer.
    ///
    /// # Errors
    /// The system refuses the socket, the address or the interface.
    pub fn open(lower: &Lower) -> Result<Context, Error> {
        Context::open_with(lower, Config::default())
    }

    /// The same with settings.
    ///
    /// # Errors
    /// As [`Context::open`].
    pub fn open_with(lower: &Lower, config: Config) -> Result<Context, Error> {
        let lower = lower.clone();
        let turn = Turn::new("kiban-rdma", Helping::SELDOM, |epoll| Core::open(lower, config, epoll))?;
        Ok(Context { turn })
    }

    /// A protection domain.
    ///
    /// # Errors
    /// There are too many.
    pub fn alloc_pd(&self) -> Result<Pd, Error> {
        Pd::new(self)
    }

    /// A completion queue for so many completions.
    ///
    /// # Errors
    /// There are too many, or too many entries.
    pub fn create_cq(&self, entries: usize) -> Result<Cq, Error> {
        Cq::new(self, entries)
    }

    /// Listens for connections; port or service 0: one is chosen.
    ///
    /// # Errors
    /// Somebody else listens there, or the address is of another kind.
    pub fn listen(&self, at: Address, options: &Connect) -> Result<Listener, Error> {
        Listener::new(self, at, options)
    }

    /// The next completion queue that was armed ([`Cq::notify`]) and has something, by its number; waits for it.
    ///
    /// # Errors
    /// The time is over.
    pub fn cq_event(&self, timeout: Duration) -> Result<u32, Error> {
        Ok(self.turn.wait(Queue::Control, None, timeout, |core| core.told.pop_front())?)
    }

    /// The next asynchronous event; waits for it.
    ///
    /// # Errors
    /// The time is over.
    pub fn event(&self, timeout: Duration) -> Result<Event, Error> {
        Ok(self.turn.wait(Queue::Control, None, timeout, |core| core.events.pop_front())?)
    }

    /// Looks once, and moves what there is to move: for programs that do nothing else for a while.
    pub fn progress(&self) {
        self.turn.look(|_| None::<()>);
    }

    /// What the NIC has counted.
    pub fn counters(&self) -> RnicCounters {
        self.turn.read(|core| *core.nic.core.counters())
    }

    /// Queue pairs, steering tags, connections and sockets that there are now.
    pub fn in_use(&self) -> (usize, usize, usize, usize) {
        self.turn.read(|core| {
            let (qps, stags) = core.nic.core.in_use();
            (qps, stags, core.nic.ends(), core.lines())
        })
    }

    /// How queues wait that have no policy of their own.
    pub fn set_wait(&self, wait: Wait) {
        self.turn.set_wait(wait);
    }

    /// How one queue waits.
    pub fn set_queue_wait(&self, queue: Queue, wait: Wait) {
        self.turn.set_queue_wait(queue, wait);
    }

    /// What happened while a queue was waited for; nothing before the first wait.
    pub fn wait_report(&self, queue: Queue) -> Option<Report> {
        self.turn.wait_report(queue)
    }

    /// Closes the NIC for everybody: those who wait hear [`Error::Closed`].
    pub fn close(&self) {
        self.turn.close(|core, now| core.abort_all(now));
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Context")
    }
}

#[cfg(test)]
mod tests;
