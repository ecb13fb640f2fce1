//! The NIC of a process: memory, completion queues, event channels, and shared receive queues.

use super::board::BoardAccess;
use super::channel::Channel;
use super::engine_state::EngineState;
use super::events::{AsyncEvent, CqChannels, Features};
use super::pairs::Service;
use super::xrc::{Creation, FileId};
use kiban_base::Region;
use kiban_os::turn::{HelperPolicy, Turn, WaitError};
use kiban_rdma::hif::{Request, SGES_MAX};
use kiban_rdma::rnic::{Access, Completion, Config, Notify, ReceiveWork, RequestError, Rnic, Status};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// The queue that a thread waits for: a channel, identified by its file.
type Queue = RawFd;

/// Returns the maximum number of open files of this process.
fn files_max() -> usize {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    most.map_or(usize::MAX, |most| most as usize)
}

/// Returns the NIC's settings for a process with at most `files_max` open files: connections not yet
/// accepted use at most a quarter of them.
pub(super) fn config(files_max: usize) -> Config {
    let config = Config::default();
    Config { waiting_max: config.waiting_max.min(files_max / 4), ..config }
}

/// The objects in use in an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InUse {
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Steering tags: regions and windows.
    pub keys: usize,
    /// Connections.
    pub streams: usize,
    /// Connections that use memory shared with the peer, and links of RoCEv2 through such memory.
    pub shared: usize,
}

/// The NIC of a process. Clones share it; it closes when the last clone is dropped.
#[derive(Clone)]
pub struct Engine {
    pub(super) turn: Turn<EngineState, Queue>,
    /// The way to the board, if the NIC is that of a board.
    pub(super) board: Option<Arc<BoardAccess>>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Engine")
    }
}

impl Engine {
    /// Opens a NIC.
    ///
    /// # Errors
    /// The system is out of file descriptors or threads.
    pub fn open(ways: Features) -> io::Result<Engine> {
        let turn = Turn::new("kiban-verbs", HelperPolicy::ALERT, |epoll| {
            EngineState::open(config(files_max()), ways, None, epoll)
        })?;
        Ok(Engine { turn, board: None })
    }

    /// Returns the NIC's settings.
    pub fn bounds(&self) -> Config {
        let bounds = self.turn.read(|board| board.core.nic.core.config().clone());
        match self.board {
            // An entry of the work ring has room for so many elements.
            Some(_) => Config { sges_max: bounds.sges_max.min(SGES_MAX), ..bounds },
            None => bounds,
        }
    }

    /// Returns the numbers of objects in use.
    pub fn in_use(&self) -> InUse {
        self.turn.read(|board| {
            if let Some(board) = &board.board {
                let (queue_pairs, keys, streams) = board.nic.in_use();
                return InUse { queue_pairs, keys, streams, shared: 0 };
            }
            let (queue_pairs, keys) = board.core.nic.core.in_use();
            let packets = board.roce.as_ref().map_or(0, |roce| roce.memory.count());
            let flows = if board.core.has_efe_ports() { board.core.nic.ends() } else { 0 };
            let streams = board.core.lines() + flows;
            InUse { queue_pairs, keys, streams, shared: board.core.shared() + packets }
        })
    }

    // ---- memory

    /// Allocates a protection domain.
    ///
    /// # Errors
    /// There are too many.
    pub fn alloc_pd(&self) -> Result<u32, RequestError> {
        if self.board.is_some() {
            return self.ask(&Request::CreatePd);
        }
        self.turn.work(|board, _| board.core.nic.core.create_pd())
    }

    /// Returns whether a protection domain exists. Those of a board are not known.
    pub fn has_pd(&self, pd: u32) -> bool {
        self.turn.read(|board| board.board.is_none() && board.core.nic.core.has_pd(pd))
    }

    /// Returns the current key of a region or window, given any of its keys. Those of a board are not known.
    pub fn key(&self, key: u32) -> Option<u32> {
        self.turn.read(|board| board.core.nic.core.current_stag(key).filter(|_| board.board.is_none()))
    }

    /// Deallocates a protection domain.
    ///
    /// # Errors
    /// The domain is unknown, or objects still belong to it.
    pub fn dealloc_pd(&self, pd: u32) -> Result<(), RequestError> {
        if self.board.is_some() {
            return self.ask(&Request::DestroyPd { pd }).map(drop);
        }
        self.turn.work(|board, _| board.core.nic.core.destroy_pd(pd))
    }

    /// Registers memory whose first byte has the address `address`. Returns its key, for this side and for
    /// peers.
    ///
    /// # Errors
    /// There are too many regions; the access rights are inconsistent; the addresses wrap around.
    pub fn reg_mr(&self, pd: u32, memory: Region, address: u64, access: Access) -> Result<u32, RequestError> {
        if let Some(board) = &self.board {
            return self.reg_mr_on_board(board, pd, &memory, address, access);
        }
        self.turn.work(|board, _| board.core.nic.core.register_blocks(pd, address, vec![memory], access))
    }

    /// Changes the memory, the access rights or the domain of a key. The old memory is no longer accessed.
    ///
    /// # Errors
    /// As for [`Engine::reg_mr`] and [`Engine::dereg_mr`]; in that case, nothing has changed.
    pub fn rereg_mr(
        &self,
        key: u32,
        pd: u32,
        memory: Region,
        address: u64,
        access: Access,
    ) -> Result<(), RequestError> {
        if self.board.is_some() {
            return Err(RequestError::OtherKind);
        }
        self.turn.work(|board, _| {
            let nic = &mut board.core.nic;
            let other = nic.core.register_blocks(pd, address, vec![memory], access)?;
            let exchanged = nic.core.swap_memory(key, other);
            // `other` is now the key of the old memory, or of the new memory if the exchange failed.
            nic.deregister(other)?;
            exchanged
        })
    }

    /// Deregisters memory, which is then no longer accessed.
    ///
    /// # Errors
    /// The key is unknown, or windows are bound to the memory.
    pub fn dereg_mr(&self, key: u32) -> Result<(), RequestError> {
        if let Some(board) = &self.board {
            return self.dereg_mr_on_board(board, key);
        }
        self.turn.work(|board, _| board.core.nic.deregister(key).map(drop))
    }

    /// Allocates an unbound memory window. A type 2 window belongs to the queue pair that binds it.
    ///
    /// # Errors
    /// There are too many.
    pub fn alloc_mw(&self, pd: u32, type_2: bool) -> Result<u32, RequestError> {
        if self.board.is_some() {
            return self.ask(&Request::AllocateWindow { pd, type_2 });
        }
        self.turn.work(|board, _| board.core.nic.core.allocate_window(pd, type_2))
    }

    /// Deallocates a window, bound or not.
    ///
    /// # Errors
    /// The key is unknown.
    pub fn dealloc_mw(&self, key: u32) -> Result<(), RequestError> {
        if self.board.is_some() {
            return self.ask(&Request::Deregister { stag: key, unbinds: false }).map(drop);
        }
        self.turn.work(|board, _| {
            // Binding has changed the key.
            let key = board.core.nic.core.current_stag(key).unwrap_or(key);
            board.core.nic.deregister(key).map(drop)
        })
    }

    // ---- completion queues

    /// Creates a completion queue.
    ///
    /// # Errors
    /// There are too many queues, or `entries` is too large.
    pub fn create_cq(&self, entries: usize, tells: CqChannels) -> Result<u32, RequestError> {
        if let Some(board) = &self.board {
            return self.create_cq_on_board(board, entries, tells);
        }
        self.turn.work(|board, _| {
            let cq = board.core.nic.core.create_cq(entries)?;
            board.cqs.insert(cq, tells);
            Ok(cq)
        })
    }

    /// Changes the capacity of a completion queue.
    ///
    /// # Errors
    /// The queue is unknown, it already holds more completions, or `entries` is too large.
    pub fn resize_cq(&self, cq: u32, entries: usize) -> Result<(), RequestError> {
        if self.board.is_some() {
            let entries = entries.try_into().unwrap_or(u32::MAX);
            return self.ask(&Request::ResizeCq { cq, entries }).map(drop);
        }
        self.turn.work(|board, _| board.core.nic.core.resize_cq(cq, entries))
    }

    /// Destroys a completion queue.
    ///
    /// # Errors
    /// The queue is unknown, or a queue pair uses it.
    pub fn destroy_cq(&self, cq: u32) -> Result<(), RequestError> {
        if self.board.is_some() {
            return self.destroy_cq_on_board(cq);
        }
        self.turn.work(|board, _| {
            board.core.nic.core.destroy_cq(cq)?;
            board.cqs.remove(&cq);
            Ok(())
        })
    }

    /// Takes up to `most` completions and returns how many. If there are none, makes progress and polls once
    /// more. Completions of flushed work are not taken together with others before them. If `follows`, the
    /// program has already taken such another one in this batch.
    ///
    /// # Errors
    /// The queue is unknown.
    #[inline]
    pub fn poll_cq(
        &self,
        cq: u32,
        most: usize,
        follows: bool,
        mut take: impl FnMut(Completion),
    ) -> Result<usize, RequestError> {
        let found = self.turn.poll(|board| {
            let mut has_others = follows;
            for taken in 0..most {
                // A program that now has all it waited for does not poll again, and so never sees that its
                // peer has left.
                if has_others && board.core.nic.core.is_next_flushed(cq) {
                    return Some(Ok(taken));
                }
                match board.poll(cq) {
                    Ok(Some(completion)) => {
                        has_others |= completion.status != Status::Flushed;
                        take(completion);
                    }
                    Ok(None) if taken == 0 => return None,
                    Ok(None) => return Some(Ok(taken)),
                    Err(refusal) => return Some(Err(refusal)),
                }
            }
            Some(Ok(most))
        });
        found.unwrap_or(Ok(0))
    }

    /// Requests one notification, through the queue's channel, for the next completion.
    ///
    /// # Errors
    /// The queue is unknown.
    #[inline]
    pub fn arm_cq(&self, cq: u32, notify: Notify) -> Result<(), RequestError> {
        self.turn.work(|board, _| match &mut board.board {
            Some(board) => {
                board.nic.arm_cq(cq);
                Ok(())
            }
            None => board.core.nic.core.arm(cq, notify),
        })
    }

    /// Waits for the next event of a channel and takes it.
    ///
    /// # Errors
    /// The timeout expired ([`io::ErrorKind::TimedOut`]); the program has made the channel's file
    /// non-blocking and there is no event ([`io::ErrorKind::WouldBlock`]); or a signal handler ran that was
    /// installed without SA_RESTART ([`io::ErrorKind::Interrupted`]).
    pub fn next_event<T>(&self, channel: &Channel<T>, timeout: Duration) -> io::Result<T> {
        self.next_event_noting(channel, timeout, |_| ())
    }

    /// Takes an event like [`Engine::next_event`]. Calls `note` with the event while the channel is locked,
    /// so that each event is seen either by `note` or by [`Channel::forget`].
    ///
    /// # Errors
    /// As for [`Engine::next_event`].
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
            // For programs that wait on files, the helper thread makes progress; a non-blocking call makes
            // progress itself.
            let found = self.turn.look(|_| channel.take_noting(&mut note));
            return found.ok_or_else(|| io::ErrorKind::WouldBlock.into());
        }
        let queue = channel.number();
        match self.turn.wait_interruptibly(queue, timeout, |_| channel.take_noting(&mut note)) {
            Ok(Some(event)) => Ok(event),
            Ok(None) => Err(io::ErrorKind::Interrupted.into()),
            Err(WaitError::Timeout) => Err(io::ErrorKind::TimedOut.into()),
            Err(WaitError::Closed) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Forgets the wait statistics of a channel that is destroyed.
    pub fn forget_channel<T>(&self, channel: &Channel<T>) {
        self.turn.forget_queue(channel.number());
    }

    /// Adds an event from outside the NIC to a channel, and wakes its waiters.
    pub fn tell<T>(&self, channel: &Channel<T>, event: T) {
        self.turn.work(|board, _| {
            channel.tell(event);
            board.has_events = true;
        });
    }

    // ---- shared receive queues

    /// Creates a shared receive queue: one for extended reliable connections, if `xrc` contains its XRC
    /// domain and its completion queue. `events` receives an event when fewer receives than the limit are
    /// left, which is set later ([`Engine::set_srq_limit`]).
    ///
    /// # Errors
    /// There are too many queues, `entries` is too large, or an object is unknown.
    pub fn create_srq(
        &self,
        pd: u32,
        xrc: Option<(u32, u32)>,
        entries: usize,
        events: Arc<Channel<AsyncEvent>>,
        cookie: u64,
    ) -> Result<u32, RequestError> {
        if self.board.is_some() {
            return match xrc {
                Some(_) => Err(RequestError::OtherKind),
                None => self.create_srq_on_board(pd, entries, events, cookie),
            };
        }
        self.turn.work(|board, _| {
            let core = &mut board.core.nic.core;
            let srq = match xrc {
                Some(xrc) => core.create_xrc_srq(pd, xrc, entries, 0)?,
                None => core.create_srq(pd, entries, 0)?,
            };
            board.srqs.insert(srq, (events, cookie));
            Ok(srq)
        })
    }

    /// Sets the limit of a shared receive queue.
    ///
    /// # Errors
    /// The queue is unknown.
    pub fn set_srq_limit(&self, srq: u32, limit: usize) -> Result<(), RequestError> {
        if self.board.is_some() {
            return self.set_srq_limit_on_board(srq, limit);
        }
        self.turn.work(|board, _| board.core.nic.core.set_srq_limit(srq, limit))
    }

    /// Returns the capacity and the limit of a shared receive queue.
    ///
    /// # Errors
    /// The queue is unknown.
    pub fn query_srq(&self, srq: u32) -> Result<(usize, usize), RequestError> {
        self.turn.read(|board| match &board.board {
            Some(board) => board.query_srq(srq),
            None => board.core.nic.core.query_srq(srq),
        })
    }

    /// Destroys a shared receive queue.
    ///
    /// # Errors
    /// The queue is unknown, or a queue pair uses it.
    pub fn destroy_srq(&self, srq: u32) -> Result<(), RequestError> {
        if self.board.is_some() {
            return self.destroy_srq_on_board(srq);
        }
        self.turn.work(|board, _| {
            board.core.nic.core.destroy_srq(srq)?;
            board.srqs.remove(&srq);
            Ok(())
        })
    }

    /// Posts receives to a shared receive queue until one is refused.
    ///
    /// # Errors
    /// A receive was refused: returns the reason, and the number accepted before it.
    pub fn post_srq_receives(
        &self,
        srq: u32,
        works: impl IntoIterator<Item = ReceiveWork>,
    ) -> Result<(), (usize, RequestError)> {
        if self.board.is_some() {
            return self.post_receives_on_board((0, Some(srq)), works);
        }
        self.turn.work(|board, _| {
            board.posted_receives = true;
            for (taken, work) in works.into_iter().enumerate() {
                board.core.nic.core.post_srq_receive(srq, work).map_err(|refusal| (taken, refusal))?;
            }
            Ok(())
        })
    }

    // ---- extended reliable connections

    /// Opens an XRC domain: the one that is open with this file, or a new one.
    ///
    /// # Errors
    /// [`RequestError::UnknownXrcDomain`] if there is none and none may be created;
    /// [`RequestError::InUse`] if there must not be one; [`RequestError::TooMany`].
    pub fn open_xrc_domain(&self, file: Option<FileId>, creation: Creation) -> Result<u32, RequestError> {
        if self.board.is_some() {
            return Err(RequestError::OtherKind);
        }
        self.turn.work(|board, _| board.xrc.open(&mut board.core.nic.core, file, creation))
    }

    /// Closes an XRC domain once.
    ///
    /// # Errors
    /// The domain is unknown, or targets or queues use it and it is open only once.
    pub fn close_xrc_domain(&self, domain: u32) -> Result<(), RequestError> {
        self.turn.work(|board, _| board.xrc.close(&mut board.core.nic.core, domain))
    }

    /// Opens another handle of a target in an XRC domain: [`Engine::destroy_qp`] releases one. Returns the
    /// queue pair's number for use in calls.
    ///
    /// # Errors
    /// There is no such target in the domain.
    pub fn open_target(&self, address: IpAddr, qpn: u32, domain: u32) -> Result<u32, RequestError> {
        self.turn.work(|board, _| {
            let qp = board.qps.named(address, qpn).ok_or(RequestError::UnknownQp)?;
            match board.qps.get(qp) {
                Some(entry) if entry.service == Service::XrcTarget(domain) => board.xrc.hold_target(qp),
                _ => return Err(RequestError::UnknownQp),
            }
            Ok(qp)
        })
    }

    /// Returns the number by which peers name a shared receive queue.
    pub const fn srq_number(srq: u32) -> u32 {
        Rnic::xrc_srq_number(srq)
    }
}
