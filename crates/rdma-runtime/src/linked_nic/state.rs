//! The NIC and its links, how they are opened, and their timers.

use super::board::BoardLink;
use super::carrier::Transport;
use super::file::File;
use super::line::{Connection, EndState, MpaListener};
use crate::efe::EfeLink;
use crate::link::Lower;
use crate::roce::RoceLink;
use kiban_base::Instant;
use kiban_os::random;
use kiban_os::turn::watch;
use kiban_rdma::nic::{Nic, Request};
use kiban_rdma::rnic::{Config, Event, PlacementBuffers};
use rustix::event::epoll::{self, EventFlags};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Size of the receive buffer in bytes.
pub(super) const ROOM_BYTES: usize = 256 << 10;
/// Number of `drive` calls after which a driver that tries connections directly also calls epoll.
pub(super) const ASK_EVERY: u32 = 32;
/// How long to wait for the peer to close its direction after this side closed a stream gracefully.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The events of a UDP socket. Edge-triggered, because it almost always has room.
pub(super) const UDP_EVENTS: EventFlags = EventFlags::IN.union(EventFlags::OUT).union(EventFlags::ET);

/// Timers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Timer {
    /// Checks whether a responder's reply has arrived, so that the responder may send. Holds the number of
    /// earlier checks.
    Hold(u32, u32),
    /// Nudges an initiator's peer, which may have missed the first message. Holds the number of earlier
    /// nudges.
    Nudge(u32, u32),
    /// The time for the orderly close of a connection has expired.
    Farewell(u32),
    /// The time for a detached stream to close gracefully has expired.
    Parted(u32),
    /// The time for an EFE flow without an end to deliver its last segments has expired.
    PartedFlow(u32),
    /// An offer of shared memory was not answered.
    Offer(u32),
    /// Resumes a listener that was paused for lack of file descriptors.
    Listener(u32),
}

/// The NIC and its links.
pub(crate) struct LinkedNic {
    pub(crate) nic: Nic,
    pub(super) lower: Lower,
    pub(super) efe: Option<EfeLink>,
    pub(super) roce: Option<RoceLink>,
    pub(super) board: Option<BoardLink>,
    pub(super) epoll: OwnedFd,
    /// The connections, which are looked up several times per `drive` call. With few entries, a tree is
    /// faster than a hash table.
    pub(super) connections: BTreeMap<u32, Connection>,
    /// The ends that are tried directly.
    pub(super) direct: Vec<u32>,
    pub(super) drives: u32,
    pub(super) listeners: BTreeMap<u32, MpaListener>,
    pub(super) listeners_opened: u32,
    pub(super) room: Box<[u8]>,
    pub(super) places: PlacementBuffers,
    /// The state of each end that has an owner.
    pub(crate) end_states: HashMap<u32, EndState>,
    /// Connection requests that have not been taken.
    pub(super) requests: VecDeque<Request>,
    /// The end that received something last.
    pub(super) busy: u32,
    /// The ends whose streams use shared memory, and whether this NIC offers shared memory.
    pub(super) shared: Vec<u32>,
    pub(super) shares: bool,
    /// Index in `shared` at which the last `drive` call stopped.
    pub(super) shared_at: usize,
    /// Ends whose state has changed, for a host that follows all ends collectively instead of polling each
    /// one.
    pub(super) changed: Option<Vec<u32>>,
    /// Streams detached from their ends, which wait for the peer to close.
    pub(super) closing_streams: BTreeMap<u32, Transport>,
    pub(super) farewells_made: u32,
    pub(crate) events: VecDeque<Event>,
    /// Completion queues with a notification that has not been taken.
    pub(crate) cq_events: VecDeque<u32>,
    pub(super) timers: BinaryHeap<Reverse<(Instant, Timer)>>,
    pub(super) completions_seen: u64,
    pub(super) progress: bool,
    pub(super) more: bool,
    /// A driver sleeps or is about to sleep, so epoll interests must be up to date.
    pub(super) armed: bool,
    /// Ends without an owner that are still closing.
    pub(super) orphans: Vec<u32>,
}

impl LinkedNic {
    pub(crate) fn open(lower: Lower, config: Config, outer: &OwnedFd) -> io::Result<LinkedNic> {
        let efe = EfeLink::open(&lower, random::key()?)?;
        LinkedNic::open_on(lower, efe, config, outer)
    }

    /// Opens a NIC whose connections use EFE over UDP ports, which are opened later.
    pub(crate) fn open_on_efe_ports(config: Config, outer: &OwnedFd) -> io::Result<LinkedNic> {
        let efe = EfeLink::open_ports(random::key()?);
        LinkedNic::open_on(Lower::Tcp { from: None }, Some(efe), config, outer)
    }

    fn open_on(lower: Lower, efe: Option<EfeLink>, config: Config, outer: &OwnedFd) -> io::Result<LinkedNic> {
        let inner = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(outer, inner.as_fd(), false)?;
        let roce = RoceLink::open(&lower, random::key()?)?;
        let board = BoardLink::attach(&lower)?;
        let core = LinkedNic {
            nic: Nic::new(config, random::key()?),
            lower,
            efe,
            roce,
            board,
            epoll: inner,
            connections: BTreeMap::new(),
            direct: Vec::new(),
            drives: 0,
            listeners: BTreeMap::new(),
            listeners_opened: 0,
            room: vec![0; ROOM_BYTES].into(),
            places: PlacementBuffers::new(),
            end_states: HashMap::new(),
            requests: VecDeque::new(),
            busy: 0,
            shared: Vec::new(),
            shares: false,
            shared_at: 0,
            changed: None,
            closing_streams: BTreeMap::new(),
            farewells_made: 0,
            events: VecDeque::new(),
            cq_events: VecDeque::new(),
            timers: BinaryHeap::new(),
            completions_seen: 0,
            progress: false,
            more: false,
            armed: false,
            orphans: Vec::new(),
        };
        for (number, file) in core.efe.iter().flat_map(EfeLink::files) {
            core.watch(file, File::Efe(number), UDP_EVENTS)?;
        }
        if let Some(roce) = &core.roce {
            core.watch(roce.as_fd(), File::Roce, UDP_EVENTS)?;
        }
        core.watch_board()?;
        Ok(core)
    }

    pub(super) fn watch(&self, file: BorrowedFd<'_>, what: File, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, file, what.data(), flags)?)
    }
}
