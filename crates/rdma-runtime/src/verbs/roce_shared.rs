//! RoCEv2's packets through shared memory, between the processes of one user on one host.
//!
//! Purpose     moves packets without the system's network, once two ports of an address have connected
//!             queue pairs. Requesters and responders do not notice it: timeouts, retries and NAKs are the
//!             same.
//! Setup       every port has a rendezvous socket ([`shared::listen_at`]). When a queue pair is connected,
//!             the port with the greater number calls the other one. Packets go over UDP until both ends have
//!             mapped the memory, and for good if one end does not offer it.
//! Frame       a train of datagrams as UDP would carry it: its length, the length of each datagram but the
//!             last, and the datagrams, with their ICRCs. Both lengths have 32 bits, lowest octet first.
//! Order       before the first frame is taken, the sockets are read once more, because packets that were
//!             sent over UDP before it may still be there. Unreliable queue pairs would lose messages
//!             otherwise.
//! End         when a process ends, its peers read the frames that it has written; frames that they write
//!             meanwhile are lost. Then they send over UDP again, to a port that is closed: work fails when
//!             its retries are exhausted.
//! Limits      datagrams (UD) use the memory only if a connection has set it up. Processes at different
//!             addresses of one host use UDP. Frames that do not fit into the memory wait, up to
//!             [`BACKLOG_BYTES_MAX`]; further ones are lost, as in a full socket.

use crate::shared::{self, SharedLink};
use kiban_os::channel::{ChannelListener, PendingChannel};
use kiban_os::udp::TRAIN_BYTES_MAX;
use kiban_rdma::iwarp::stream::Chunk;
use kiban_rdma::roce::Path;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Length of a frame's header in bytes.
const HEADER_BYTES: usize = 8;
/// Maximum number of frames taken from one link before it is the next one's turn.
const TURN_FRAMES: usize = 16;
/// Maximum number of bytes that wait for room in one link.
const BACKLOG_BYTES_MAX: usize = 4 << 20;

/// A link between two ports.
struct Link {
    memory: SharedLink,
    /// A frame was taken.
    has_begun: bool,
    /// The lengths of a frame whose header was read.
    frame: Option<(usize, usize)>,
    /// Frames that wait for room.
    backlog: VecDeque<Vec<u8>>,
    backlog_bytes: usize,
}

/// A link that is being set up. `peer` is known if this side called.
struct Pending {
    local: SocketAddr,
    peer: Option<SocketAddr>,
    half: PendingChannel,
}

/// The links of a process.
pub(super) struct SharedLinks {
    /// `None`: the program does not want shared memory.
    epoll: Option<OwnedFd>,
    listeners: BTreeMap<SocketAddr, ChannelListener>,
    pending: Vec<Pending>,
    /// By our port and the peer's.
    links: BTreeMap<(SocketAddr, SocketAddr), Link>,
    room: Vec<u8>,
    armed: bool,
}

impl SharedLinks {
    pub(super) fn open(outer: Option<&OwnedFd>) -> io::Result<SharedLinks> {
        Ok(SharedLinks {
            epoll: outer.map(OwnedFd::try_clone).transpose()?,
            listeners: BTreeMap::new(),
            pending: Vec::new(),
            links: BTreeMap::new(),
            room: Vec::new(),
            armed: false,
        })
    }

    /// Returns the number of links.
    pub(super) fn count(&self) -> usize {
        self.links.len()
    }

    // ---- ports

    /// Opens the rendezvous socket of a port. If that fails, other processes use UDP.
    pub(super) fn open_port(&mut self, port: SocketAddr) {
        if self.epoll.is_some()
            && let Ok(listener) = shared::listen_at(port)
            && self.watch(listener.as_fd())
        {
            self.listeners.insert(port, listener);
        }
    }

    /// Closes a port and its links.
    pub(super) fn close_port(&mut self, port: SocketAddr) {
        self.listeners.remove(&port);
        self.pending.retain(|pending| pending.local != port);
        self.links.retain(|(local, _), _| *local != port);
    }

    /// Calls a port of another process, if there is no link to it and it is our part to call.
    pub(super) fn call(&mut self, local: SocketAddr, peer: SocketAddr) {
        let is_known = self.links.contains_key(&(local, peer))
            || self.pending.iter().any(|pending| (pending.local, pending.peer) == (local, Some(peer)));
        if self.epoll.is_some()
            && local > peer
            && !is_known
            && let Ok(half) = shared::connect_port(local, peer)
            && self.watch(half.as_fd())
        {
            self.pending.push(Pending { local, peer: Some(peer), half });
        }
    }

    /// Watches a file until it is closed. Returns whether that works.
    fn watch(&self, file: BorrowedFd<'_>) -> bool {
        let Some(epoll) = &self.epoll else { return false };
        let events = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        let added = epoll::add(epoll, file, EventData::new_u64(0), events);
        matches!(added, Ok(()) | Err(Errno::EXIST))
    }

    /// Continues the setup of links, and detects peers that have ended. Call it after each sleep, and
    /// regularly while the process polls.
    pub(super) fn set_up(&mut self) {
        for (&local, listener) in &self.listeners {
            while let Some(half) = listener.try_accept() {
                self.pending.push(Pending { local, peer: None, half });
            }
        }
        for mut pending in std::mem::take(&mut self.pending) {
            match SharedLink::complete(&mut pending.half) {
                Ok(Some(memory)) => self.add(&pending, memory),
                Ok(None) if self.watch(pending.half.as_fd()) => self.pending.push(pending),
                // The peer has ended, or nothing would report its answer.
                Ok(None) | Err(_) => {}
            }
        }
        for link in self.links.values_mut() {
            link.memory.is_hung_up();
        }
    }

    fn add(&mut self, pending: &Pending, memory: SharedLink) {
        let local = pending.local;
        let Some(peer) = pending.peer.or_else(|| memory.caller()) else { return };
        let is_watched = self.watch(memory.file());
        if !is_watched || peer.ip() != local.ip() || self.links.contains_key(&(local, peer)) {
            return;
        }
        if self.armed {
            memory.arm();
        }
        self.room.resize(TRAIN_BYTES_MAX, 0);
        let (backlog, backlog_bytes) = (VecDeque::new(), 0);
        let link = Link { memory, has_begun: false, frame: None, backlog, backlog_bytes };
        self.links.insert((local, peer), link);
    }

    // ---- packets

    /// Takes datagrams that have arrived. Returns whether there may be more.
    pub(super) fn take(&mut self, mut take: impl FnMut(Path, &[u8])) -> bool {
        let SharedLinks { links, room, .. } = self;
        let mut more = false;
        links.retain(|&(local, remote), link| {
            let path = Path { local, remote };
            match link.flush().and_then(|()| link.receive(room, |datagram| take(path, datagram))) {
                Ok(has_more) => {
                    more |= has_more;
                    true
                }
                Err(_) => false,
            }
        });
        more
    }

    /// Sends a train through shared memory. Returns false if there is no link.
    pub(super) fn send(&mut self, path: Path, train: &[u8], each: usize) -> bool {
        let key = (path.local, path.remote);
        let Some(link) = self.links.get_mut(&key) else { return false };
        let is_sent = link.send(train, each).is_ok();
        if !is_sent {
            self.links.remove(&key);
        }
        is_sent
    }

    // ---- sleeping

    /// Arms the bells of all links before a sleep.
    pub(super) fn arm(&mut self) {
        self.armed = true;
        self.links.values().for_each(|link| link.memory.arm());
    }

    /// Disarms the bells after a sleep. Returns when the first was rung.
    pub(super) fn disarm(&mut self) -> Option<u64> {
        self.armed = false;
        self.links.values().filter_map(|link| link.memory.disarm()).min()
    }

    /// Returns whether a bell was rung since they were armed.
    pub(super) fn is_rung(&self) -> bool {
        self.armed && self.links.values().any(|link| !link.memory.is_armed())
    }
}

impl Link {
    /// Writes a frame, or keeps it until there is room.
    fn send(&mut self, train: &[u8], each: usize) -> io::Result<()> {
        if self.memory.has_hung_up() {
            // Keep the link until the frames that the peer has written are read.
            return Ok(());
        }
        let length = HEADER_BYTES + train.len();
        let words = [train.len() as u32, each as u32].map(u32::to_le_bytes);
        if self.backlog.is_empty() && self.memory.has_room_for(length) {
            let chunks = [Chunk::Own(words.as_flattened()), Chunk::Own(train)];
            return self.memory.send(chunks.into_iter()).map(drop);
        }
        if self.backlog_bytes + length <= BACKLOG_BYTES_MAX {
            self.backlog_bytes += length;
            self.backlog.push_back([words.as_flattened(), train].concat());
        }
        Ok(())
    }

    /// Writes frames that have waited.
    fn flush(&mut self) -> io::Result<()> {
        if self.memory.has_hung_up() {
            self.backlog.clear();
        }
        while let Some(frame) = self.backlog.front()
            && self.memory.has_room_for(frame.len())
        {
            self.backlog_bytes -= frame.len();
            self.memory.send([Chunk::Own(frame)].into_iter())?;
            self.backlog.pop_front();
        }
        Ok(())
    }

    /// Calls `take` for each datagram that is here. Returns whether there may be more.
    fn receive(&mut self, room: &mut [u8], mut take: impl FnMut(&[u8])) -> io::Result<bool> {
        for _ in 0..TURN_FRAMES {
            let wanted = self.frame.map_or(HEADER_BYTES, |(bytes, _)| bytes);
            match self.memory.here()? {
                Some(here) if here >= wanted => {}
                // The peer has closed, or has ended within a frame.
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(_) if self.memory.has_hung_up() => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => return Ok(false),
            }
            if !std::mem::replace(&mut self.has_begun, true) {
                return Ok(true);
            }
            match self.frame.take() {
                None => {
                    let mut header = [0; HEADER_BYTES];
                    self.memory.receive_into(&mut header, &mut [])?;
                    let [bytes, each] = [0, 4].map(|at| {
                        let word = header[at..at + 4].try_into().expect("four octets");
                        u32::from_le_bytes(word) as usize
                    });
                    if bytes == 0 || bytes > TRAIN_BYTES_MAX || each == 0 {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                    self.frame = Some((bytes, each));
                }
                Some((bytes, each)) => {
                    self.memory.receive_into(&mut room[..bytes], &mut [])?;
                    room[..bytes].chunks(each).for_each(&mut take);
                }
            }
        }
        Ok(true)
    }
}
