//! The channels of an attachment, one to each shard of the board.
//!
//! Data             the streams of a channel are served by its shard's thread alone. On the client's side,
//!                  they share one lock.
//! Connecting       takes the shards in turn. A connection from a given port belongs to the shard of its
//!                  flow, which the board names ([`Slot::other_shard`](super::known::Slot::other_shard)).
//! Listening        on all shards, or on none. Shard 0 checks the request and chooses the port, but is the
//!                  last to listen: a handshake must not begin on shard 0, for a shard that does not listen
//!                  yet, and end on that shard.
//! Waiting          on one file for all channels.

use super::board_gone_error;
use super::known::{Accepted, Core, Shared};
use rustix::event::epoll;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

/// The channels of an attachment.
pub struct Shards {
    channels: Vec<Arc<Shared>>,
    /// The shard that opens the next stream.
    next: AtomicUsize,
    /// Readable if the socket of any of several channels is.
    epoll: Option<OwnedFd>,
}

impl Shards {
    /// Returns the attachment with these channels. The first stream is opened on the channel `first`, modulo
    /// their number.
    ///
    /// # Errors
    /// The process has too many open files.
    pub(super) fn new(channels: Vec<Arc<Shared>>, first: usize) -> io::Result<Shards> {
        let epoll = match &channels[..] {
            [_] => None,
            channels => {
                let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
                for shared in channels {
                    let data = epoll::EventData::new_u64(0);
                    epoll::add(&epoll, shared.channel.socket(), data, epoll::EventFlags::IN)?;
                }
                Some(epoll)
            }
        };
        Ok(Shards { channels, next: AtomicUsize::new(first), epoll })
    }

    /// Returns the channels, by shard.
    pub fn channels(&self) -> &[Arc<Shared>] {
        &self.channels
    }

    /// Returns the file, which becomes readable when the board rings a bell or exits.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.epoll.as_ref().map_or_else(|| self.channels[0].channel.socket(), AsFd::as_fd)
    }

    /// Arms the bells before the client sleeps.
    pub fn arm(&self) {
        self.channels.iter().for_each(|shared| shared.channel.own_bell().arm());
    }

    /// Returns whether the bells have stayed silent since they were armed.
    pub fn is_armed(&self) -> bool {
        self.channels.iter().all(|shared| shared.channel.own_bell().is_armed())
    }

    /// Disarms the bells after a sleep. If one was rung, returns the time at which the first was rung.
    pub fn disarm(&self) -> Option<u64> {
        self.channels.iter().filter_map(|shared| shared.channel.own_bell().disarm()).min()
    }

    /// Processes the board's indications.
    pub fn process_indications(&self) {
        self.channels.iter().for_each(|shared| shared.with(|_| ()));
    }

    /// Drains the file, and processes the board's indications. Returns whether the board has exited or has
    /// ended one of the channels, which ends the others.
    pub fn is_gone(&self) -> bool {
        let is_gone = |shared: &Arc<Shared>| {
            let hung_up = shared.channel.is_gone();
            shared.with(|core| {
                // Send queued requests even if there was no indication, because the ring may now have room
                // for them.
                core.process_indications();
                hung_up || core.is_gone
            })
        };
        let gone = self.channels.iter().filter(|shared| is_gone(shared)).count();
        if gone > 0 {
            self.end();
        }
        gone > 0
    }

    /// Records that the board has exited.
    pub fn end(&self) {
        let end = |core: &mut Core| {
            if !core.is_gone {
                core.end();
            }
        };
        self.channels.iter().for_each(|shared| shared.with(end));
    }

    /// Starts to connect, on a given shard or on the next one that has a free slot. Returns the channel and
    /// the slot, or `None` if all slots are in use.
    ///
    /// # Errors
    /// If the board has exited.
    pub fn connect(
        &self,
        shard: Option<u16>,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Option<io::Result<(Arc<Shared>, u32)>> {
        let count = self.channels.len();
        let (first, tries) = match shard {
            Some(shard) => (shard.into(), 1),
            None => (self.next.fetch_add(1, Ordering::Relaxed) % count, count),
        };
        (first..first + tries).find_map(|at| {
            let shared = &self.channels[at % count];
            let slot = shared.with(|core| core.connect(local, remote))?;
            Some(slot.map(|slot| (shared.clone(), slot)))
        })
    }
}

/// A listener on all shards.
pub struct ShardListener {
    shards: Arc<Shards>,
    /// The number of its listener on each shard.
    numbers: Vec<Option<u16>>,
    local: SocketAddr,
    /// The number of requests that the board has granted: to check on shard 0, to listen on each of the
    /// others, and on shard 0. If there is only one shard, only the last.
    granted: usize,
    /// The shard whose streams are accepted next.
    next: AtomicUsize,
}

impl ShardListener {
    /// Starts to listen. [`ShardListener::listening`] returns the result.
    ///
    /// # Errors
    /// If this attachment has too many listeners.
    pub fn start(shards: Arc<Shards>, local: SocketAddr) -> io::Result<ShardListener> {
        let count = shards.channels.len();
        let (numbers, granted) = (vec![None; count], usize::from(count == 1));
        let mut listener = ShardListener { shards, numbers, local, granted, next: AtomicUsize::new(0) };
        listener.request()?;
        Ok(listener)
    }

    /// Returns the shard of the latest request.
    fn shard(&self) -> usize {
        self.granted % self.numbers.len()
    }

    fn request(&mut self) -> io::Result<()> {
        let (shard, local) = (self.shard(), self.local);
        let request = if self.granted == 0 { Core::check_listen } else { Core::listen };
        self.numbers[shard] = Some(self.shards.channels[shard].with(|core| request(core, local))?);
        Ok(())
    }

    /// Returns the address on which all shards listen, including the port that the board has chosen; `None`
    /// until they do.
    ///
    /// # Errors
    /// If a shard rejected the request to listen, or the board has exited. No shard listens then.
    pub fn listening(&mut self) -> Option<io::Result<SocketAddr>> {
        loop {
            let shard = self.shard();
            let Some(number) = self.numbers[shard] else { return Some(Err(board_gone_error())) };
            match self.shards.channels[shard].with(|core| core.listening(number))? {
                Ok(local) => self.local = local,
                Err(error) => {
                    self.close_except(Some(shard));
                    return Some(Err(error));
                }
            }
            if self.granted == self.numbers.len() {
                return Some(Ok(self.local));
            }
            if self.granted == 0 {
                self.close_except(None);
            }
            self.granted += 1;
            if let Err(error) = self.request() {
                self.close_except(None);
                return Some(Err(error));
            }
        }
    }

    /// Stops listening, except on one shard.
    fn close_except(&mut self, stays: Option<usize>) {
        for (shard, number) in self.numbers.iter_mut().enumerate().filter(|(shard, _)| Some(*shard) != stays)
        {
            if let Some(number) = number.take() {
                self.shards.channels[shard].with(|core| core.unlisten(number));
            }
        }
    }

    /// Returns the local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns the next stream, and its channel. Takes the shards in turn.
    ///
    /// # Errors
    /// If the board has exited and no accepted stream is left.
    pub fn accept(&self) -> Option<io::Result<(Arc<Shared>, Accepted)>> {
        let (count, first) = (self.numbers.len(), self.next.load(Ordering::Relaxed));
        let mut lost = None;
        for shard in (first..first + count).map(|at| at % count) {
            let (shared, number) = (&self.shards.channels[shard], self.numbers[shard]);
            match number.and_then(|number| shared.with(|core| core.accept(number))) {
                Some(Ok(accepted)) => {
                    self.next.store((shard + 1) % count, Ordering::Relaxed);
                    return Some(Ok((shared.clone(), accepted)));
                }
                Some(Err(error)) => lost = Some(Err(error)),
                None => {}
            }
        }
        lost
    }

    /// Returns whether [`ShardListener::accept`] would return something.
    pub fn is_readable(&self) -> bool {
        self.shards.channels.iter().zip(&self.numbers).any(|(shared, number)| {
            shared.with(|core| {
                let waiting = number.and_then(|number| core.listeners.get(&number));
                waiting.is_some_and(|waiting| !waiting.arrived.is_empty()) || core.is_gone
            })
        })
    }

    /// Has a waker called when a stream arrives, or the latest request to listen is answered. The caller must
    /// then look once more, because only later events are reported.
    pub fn register(&self, waker: &Waker) {
        for (shared, number) in self.shards.channels.iter().zip(&self.numbers) {
            shared.with(|core| {
                if let Some(waiting) = number.and_then(|number| core.listeners.get_mut(&number)) {
                    waiting.waker = Some(waker.clone());
                }
            });
        }
    }
}

impl Drop for ShardListener {
    fn drop(&mut self) {
        self.close_except(None);
    }
}
