//! The engine of drop-in verbs: one RDMA NIC for all devices that a process opens.
//!
//! Goal      what `libibverbs` and `librdmacm` promise, below their C border (crates/verbs): numbers in place of pointers, no
//!           errno, no structure that a program sees.
//! One       one NIC for the process, whatever it opens: a wildcard listener serves all addresses, one helper thread drives.
//!           A device is an address ([`QueuePair::address`]).
//! Connect   by the connection manager ([`Engine::listen`], [`Engine::connect`]), or out of band: programs exchange GID, queue
//!           pair number and PSN themselves and say so ([`Engine::ready_to_receive`]); docs/out-of-band.md.
//! Told      through [`Channel`]s, whose files programs poll, and through a [`Listens`] for connections. They are told
//!           while the NIC is locked: they note and return.
//! Progress  made by whoever posts, polls or waits, and by the helper within microseconds when nobody does: programs wait on
//!           files, and on memory that peers write to.
//! Limits    one lock.
//! Left out  fork: a child's first call makes an engine of its own.

mod board;
mod channel;
mod connections;
mod datagrams;
mod ports;
mod queue_pairs;

pub use self::channel::Channel;
pub use self::connections::{Asked, Listens, Told};
pub use self::datagrams::gid;
pub use self::queue_pairs::{Peer, QueuePair, Service, State};
pub use crate::turn::ends_this_call;
pub use kiban_stack::iwarp::nic::{ConnectError, OpenError};
pub use kiban_stack::iwarp::rnic::{
    Access, Binding, Completion, Data, Kind, Notify, Operation, Place, QpAttributes, ReceiveWork, Refusal,
    SendWork, Sge, Sges, Status,
};
pub use kiban_wire::rdmap::Atomic;

use self::board::Board;
use crate::turn::{Ended, Helping, Turn};
use kiban_ground::Region;
use kiban_stack::iwarp::rnic::Config;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// Where somebody waits: at a channel, by its file.
type Queue = RawFd;

/// How many files the program may have open.
fn files_max() -> usize {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    most.map_or(usize::MAX, |most| most as usize)
}

/// The bounds of a NIC whose program may have so many files: strangers at its ports hold a quarter of them at most.
fn config(files_max: usize) -> Config {
    let config = Config::default();
    Config { waiting_max: config.waiting_max.min(files_max / 4), ..config }
}

/// How a NIC deals with peers that are kiban's too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ways {
    /// Its connection manager offers peers kiban's own operations, and takes them (immediate data, atomics); else it speaks
    /// as the standard has it, and no more.
    pub extensions: bool,
    /// Streams to processes of the same user on the same host go through memory that both share.
    pub shared_memory: bool,
}

/// Something that happened to an object of the program's; `cookie` is what the program calls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Happening {
    /// What the program calls the object.
    pub cookie: u64,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// A queue pair failed for a reason of its own.
    QpFatal,
    /// A queue pair failed because of what the peer asked for.
    QpRequestError,
    /// The peer was refused access to memory.
    QpAccessError,
    /// A queue pair takes no more from its shared receive queue.
    QpLastReceive,
    /// The first message arrived before the program made the queue pair ready to send.
    QpEstablished,
    /// A completion queue lost completions.
    CqError,
    /// A shared receive queue holds fewer than its limit.
    SrqLimit,
}

/// What there is in an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InUse {
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Steering tags: regions and windows.
    pub keys: usize,
    /// Connections.
    pub streams: usize,
    /// Those of them that go through memory shared with the peer.
    pub shared: usize,
}

/// Where a completion queue tells.
#[derive(Clone)]
pub struct CqTells {
    /// Where it says that it has something, if it was armed.
    pub completions: Option<Arc<Channel<u64>>>,
    /// Where it says that it has lost something.
    pub happenings: Arc<Channel<Happening>>,
    /// What the program calls it.
    pub cookie: u64,
}

/// The NIC of a process. Clones are the same; it ends with the last.
#[derive(Clone)]
pub struct Engine {
    turn: Turn<Board, Queue>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Engine")
    }
}

impl Engine {
    /// A NIC.
    ///
    /// # Errors
    /// The system has no file or thread to spare.
    pub fn open(ways: Ways) -> io::Result<Engine> {
        let turn =
            Turn::new("kiban-verbs", Helping::ALERT, |epoll| Board::open(config(files_max()), ways, epoll))?;
        Ok(Engine { turn })
    }

    /// The bounds of the NIC.
    pub fn bounds(&self) -> Config {
        self.turn.read(|board| board.core.nic.core.config().clone())
    }

    /// What there is now.
    pub fn in_use(&self) -> InUse {
        self.turn.read(|board| {
            let (queue_pairs, keys) = board.core.nic.core.in_use();
            InUse { queue_pairs, keys, streams: board.core.lines(), shared: board.core.shared() }
        })
    }

    // ---- memory

    /// A protection domain.
    ///
    /// # Errors
    /// There are too many.
    pub fn alloc_pd(&self) -> Result<u32, Refusal> {
        self.turn.work(|board, _| board.core.nic.core.create_pd())
    }

    /// Gives a domain back.
    ///
    /// # Errors
    /// Something belongs to it.
    pub fn dealloc_pd(&self, pd: u32) -> Result<(), Refusal> {
        self.turn.work(|board, _| board.core.nic.core.destroy_pd(pd))
    }

    /// Registers memory, whose first byte peers call `address`: its key, for this side and for peers.
    ///
    /// # Errors
    /// There are too many; the rights do not go together; the addresses wrap.
    pub fn reg_mr(&self, pd: u32, memory: Region, address: u64, access: Access) -> Result<u32, Refusal> {
        self.turn.work(|board, _| board.core.nic.core.register_blocks(pd, address, vec![memory], access))
    }

    /// A key names other memory from now on, or the same with other rights or in another domain. Nothing touches what it named
    /// before.
    ///
    /// # Errors
    /// As of [`Engine::reg_mr`] and of [`Engine::dereg_mr`]; then all is as before.
    pub fn rereg_mr(
        &self,
        key: u32,
        pd: u32,
        memory: Region,
        address: u64,
        access: Access,
    ) -> Result<(), Refusal> {
        self.turn.work(|board, _| {
            let nic = &mut board.core.nic;
            let other = nic.core.register_blocks(pd, address, vec![memory], access)?;
            let exchanged = nic.core.exchange(key, other);
            // What it named before, or what it was to name.
            nic.deregister(other)?;
            exchanged
        })
    }

    /// Takes memory back. Nothing touches it from now on.
    ///
    /// # Errors
    /// There is no such key; windows are bound to it.
    pub fn dereg_mr(&self, key: u32) -> Result<(), Refusal> {
        self.turn.work(|board, _| board.core.nic.deregister(key).map(drop))
    }

    /// A memory window, bound to nothing; type 2 belongs to the queue pair that binds it.
    ///
    /// # Errors
    /// There are too many.
    pub fn alloc_mw(&self, pd: u32, type_2: bool) -> Result<u32, Refusal> {
        self.turn.work(|board, _| board.core.nic.core.allocate_window(pd, type_2))
    }

    /// Gives a window back, bound or not.
    ///
    /// # Errors
    /// There is no such key.
    pub fn dealloc_mw(&self, key: u32) -> Result<(), Refusal> {
        self.turn.work(|board, _| {
            // Binding has changed its key.
            let key = board.core.nic.core.whole_tag(key).unwrap_or(key);
            board.core.nic.deregister(key).map(drop)
        })
    }

    // ---- completion queues

    /// A completion queue.
    ///
    /// # Errors
    /// There are too many, or too many entries.
    pub fn create_cq(&self, entries: usize, tells: CqTells) -> Result<u32, Refusal> {
        self.turn.work(|board, _| {
            let cq = board.core.nic.core.create_cq(entries)?;
            board.cqs.insert(cq, tells);
            Ok(cq)
        })
    }

    /// Changes the room of a completion queue.
    ///
    /// # Errors
    /// More wait in it already.
    pub fn resize_cq(&self, cq: u32, entries: usize) -> Result<(), Refusal> {
        self.turn.work(|board, _| board.core.nic.core.resize_cq(cq, entries))
    }

    /// Gives a completion queue back.
    ///
    /// # Errors
    /// A queue pair uses it.
    pub fn destroy_cq(&self, cq: u32) -> Result<(), Refusal> {
        self.turn.work(|board, _| {
            board.core.nic.core.destroy_cq(cq)?;
            board.cqs.remove(&cq);
            Ok(())
        })
    }

    /// Takes up to `most` completions: how many. Looks once more where there are none.
    ///
    /// # Errors
    /// There is no such queue.
    #[inline]
    pub fn poll_cq(&self, cq: u32, most: usize, mut take: impl FnMut(Completion)) -> Result<usize, Refusal> {
        let found = self.turn.look(|board| {
            for taken in 0..most {
                match board.core.nic.core.poll(cq) {
                    Ok(Some(completion)) => take(completion),
                    Ok(None) if taken == 0 => return None,
                    Ok(None) => return Some(Ok(taken)),
                    Err(refusal) => return Some(Err(refusal)),
                }
            }
            Some(Ok(most))
        });
        found.unwrap_or(Ok(0))
    }

    /// Asks to be told once, through the queue's channel, of the next completion.
    ///
    /// # Errors
    /// There is no such queue.
    #[inline]
    pub fn arm_cq(&self, cq: u32, notify: Notify) -> Result<(), Refusal> {
        self.turn.work(|board, _| board.core.nic.core.arm(cq, notify))
    }

    /// Takes the next event of a channel, waiting for it.
    ///
    /// # Errors
    /// The time is over ([`io::ErrorKind::TimedOut`]), or the program has made the channel's file non-blocking and there is
    /// none ([`io::ErrorKind::WouldBlock`]), or a signal's handler has run that does not restart calls
    /// ([`io::ErrorKind::Interrupted`]).
    pub fn next_event<T>(&self, channel: &Channel<T>, timeout: Duration) -> io::Result<T> {
        self.next_event_noting(channel, timeout, |_| ())
    }

    /// The same; `note` sees the event before [`Channel::forget`] can miss it.
    ///
    /// # Errors
    /// As [`Engine::next_event`].
    pub fn next_event_noting<T>(
        &self,
        channel: &Channel<T>,
        timeout: Duration,
        mut note: impl FnMut(&T),
    ) -> io::Result<T> {
        if let Some(event) = channel.take_noting(&mut note) {
            return Ok(event);
        }
        if channel.is_nonblocking() {
            // The helper moves things for who waits on files; who only asks moves them here.
            let found = self.turn.look(|_| channel.take_noting(&mut note));
            return found.ok_or_else(|| io::ErrorKind::WouldBlock.into());
        }
        let queue = channel.number();
        match self.turn.wait_interruptibly(queue, timeout, |_| channel.take_noting(&mut note)) {
            Ok(Some(event)) => Ok(event),
            Ok(None) => Err(io::ErrorKind::Interrupted.into()),
            Err(Ended::Timeout) => Err(io::ErrorKind::TimedOut.into()),
            Err(Ended::Closed) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// A channel is no more: what was learnt about waiting for it is forgotten.
    pub fn forget_channel<T>(&self, channel: &Channel<T>) {
        self.turn.forget_queue(channel.number());
    }

    /// Tells a channel of something beside the NIC, and wakes who waits for it.
    pub fn tell<T>(&self, channel: &Channel<T>, event: T) {
        self.turn.work(|board, _| {
            channel.tell(event);
            board.news = true;
        });
    }

    // ---- shared receive queues

    /// A shared receive queue; it tells through `happenings` when fewer than its limit are left.
    ///
    /// # Errors
    /// There are too many, or too many entries.
    pub fn create_srq(
        &self,
        pd: u32,
        entries: usize,
        limit: usize,
        happenings: Arc<Channel<Happening>>,
        cookie: u64,
    ) -> Result<u32, Refusal> {
        self.turn.work(|board, _| {
            let srq = board.core.nic.core.create_srq(pd, entries, limit)?;
            board.srqs.insert(srq, (happenings, cookie));
            Ok(srq)
        })
    }

    /// Sets the limit of a shared receive queue.
    ///
    /// # Errors
    /// There is no such queue.
    pub fn set_srq_limit(&self, srq: u32, limit: usize) -> Result<(), Refusal> {
        self.turn.work(|board, _| board.core.nic.core.set_srq_limit(srq, limit))
    }

    /// The room of a shared receive queue, and its limit.
    ///
    /// # Errors
    /// There is no such queue.
    pub fn query_srq(&self, srq: u32) -> Result<(usize, usize), Refusal> {
        self.turn.read(|board| board.core.nic.core.query_srq(srq))
    }

    /// Gives a shared receive queue back.
    ///
    /// # Errors
    /// A queue pair uses it.
    pub fn destroy_srq(&self, srq: u32) -> Result<(), Refusal> {
        self.turn.work(|board, _| {
            board.core.nic.core.destroy_srq(srq)?;
            board.srqs.remove(&srq);
            Ok(())
        })
    }

    /// Posts receives to a shared receive queue: how many were taken before the first refusal.
    ///
    /// # Errors
    /// The refusal, with how many had been taken.
    pub fn post_srq_receives(
        &self,
        srq: u32,
        works: impl IntoIterator<Item = ReceiveWork>,
    ) -> Result<(), (usize, Refusal)> {
        self.turn.work(|board, _| {
            for (taken, work) in works.into_iter().enumerate() {
                board.core.nic.core.post_srq_receive(srq, work).map_err(|refusal| (taken, refusal))?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
