//! The engine's queue pairs: their attributes, states and peers.

use super::channel::Channel;
use super::events::{AsyncEvent, AsyncEventKind};
use kiban_base::Instant;
use kiban_rdma::rnic::QpAttributes;
use kiban_rdma::wire::oob_setup::OobSetup;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// The transport service of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// Reliable connection with one peer (RC).
    Connected,
    /// Unreliable connection with one peer, without acknowledgements (UC).
    Unreliable,
    /// Datagrams from and to any peer (UD).
    Datagrams,
    /// The sending end of an extended reliable connection (XRC). Only RoCEv2 has them.
    XrcInitiator,
    /// The receiving end, in an XRC domain ([`super::Engine::open_xrc_domain`]).
    XrcTarget(u32),
}

/// The state of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    /// Initial state.
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive: messages are accepted.
    Rtr,
    /// Ready to send: all operations are allowed.
    Rts,
    /// Error: everything is flushed.
    Error,
}

/// Creation parameters of a queue pair.
pub struct QueuePair {
    /// The IP address of the device.
    pub address: IpAddr,
    /// The transport service.
    pub service: Service,
    /// The queue pair's queues, their sizes, and its protection domain.
    pub attributes: QpAttributes,
    /// The channel for its asynchronous events.
    pub async_events: Arc<Channel<AsyncEvent>>,
    /// The program's identifier for the queue pair.
    pub cookie: u64,
}

/// The peer of an out-of-band connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The peer's address, taken from its GID.
    pub address: IpAddr,
    /// The peer's queue pair number.
    pub qpn: u32,
    /// The peer's initial PSN.
    pub initial_psn: u32,
    /// Maximum number of outstanding reads and atomics from the peer.
    pub reads: u16,
    /// The path MTU in bytes. It matters only to RoCEv2, as does the next field.
    pub path_mtu: usize,
    /// The code of the time after which the peer may repeat a message for which no receive was posted.
    pub rnr_timer: u8,
}

/// How a queue pair sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sending {
    /// The initial PSN.
    pub initial_psn: u32,
    /// Maximum number of outstanding reads and atomics to the peer.
    pub reads: u16,
    /// How long sends wait for a peer that does not connect; `None`: without limit.
    pub connect_timeout: Option<Duration>,
    /// RoCEv2: how long to wait for an acknowledgement; `None`: without limit.
    pub ack_timeout: Option<Duration>,
    /// RoCEv2: maximum number of consecutive retransmissions without an acknowledgement.
    pub retries: u8,
    /// RoCEv2: maximum number of consecutive retransmissions after an RNR NAK; 7: without limit.
    pub rnr_retries: u8,
}

/// The state of an out-of-band connection.
pub(super) struct OobConnection {
    pub(super) peer: Peer,
    /// Our initial PSN and our maximum number of outstanding reads, once we are ready to send.
    pub(super) ours: Option<(u32, u16)>,
    /// How long sends wait for the peer; `None` means without limit.
    pub(super) connect_timeout: Option<Duration>,
    /// Whether this side connects.
    pub(super) calls: bool,
    pub(super) pause: Duration,
    /// The peer's out-of-band setup message.
    pub(super) theirs: Option<OobSetup>,
}

/// A queue pair and its state.
pub(super) struct Entry {
    pub(super) qpn: u32,
    pub(super) address: IpAddr,
    pub(super) service: Service,
    pub(super) events: Arc<Channel<AsyncEvent>>,
    pub(super) cookie: u64,
    pub(super) state: State,
    pub(super) oob: Option<OobConnection>,
    /// Its out-of-band connection.
    pub(super) end: Option<u32>,
    /// The Q_Key that incoming datagrams must have.
    pub(super) qkey: u32,
    /// The creation attributes. If the queue pair is connected to itself, its second half is created from
    /// them.
    pub(super) attributes: QpAttributes,
}

/// An incoming connection that waits for its queue pair.
pub(super) struct PendingIncoming {
    pub(super) end: u32,
    pub(super) address: IpAddr,
    pub(super) from: SocketAddr,
    pub(super) local: SocketAddr,
    pub(super) setup: OobSetup,
}

/// A timer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Timer {
    /// Retries a queue pair's connection attempt.
    ConnectRetry(u32),
    /// Fails a queue pair whose peer did not connect in time.
    ConnectTimeout(u32),
    /// Fails the work that a queue pair has pending for a peer that has left.
    Abandoned(u32),
    /// Retries a connection of the connection manager.
    CmRetry(u32),
}

/// The queue pairs of the process, indexed by the core's numbers.
#[derive(Default)]
pub(super) struct QueuePairs {
    pub(super) entries: HashMap<u32, Entry>,
    pub(super) names: HashMap<(IpAddr, u32), u32>,
    /// For queue pairs connected to themselves: the second half, which sends for the first.
    pub(super) halves: HashMap<u32, u32>,
    pub(super) held: Vec<PendingIncoming>,
    pub(super) timers: BinaryHeap<Reverse<(Instant, Timer)>>,
}

impl QueuePairs {
    /// Reports an asynchronous event to the owner of a queue pair.
    pub(super) fn tell(&self, qp: u32, what: AsyncEventKind) {
        if let Some(entry) = self.entries.get(&qp) {
            entry.events.tell(AsyncEvent { cookie: entry.cookie, kind: what });
        }
    }

    pub(super) fn get(&self, qp: u32) -> Option<&Entry> {
        self.entries.get(&qp)
    }

    /// Returns the queue pair that sends for `qp`: itself, or its second half.
    #[inline]
    pub(super) fn sender(&self, qp: u32) -> u32 {
        if self.halves.is_empty() { qp } else { self.halves.get(&qp).copied().unwrap_or(qp) }
    }

    /// Returns the queue pair with this number at an address.
    pub(super) fn named(&self, address: IpAddr, qpn: u32) -> Option<u32> {
        self.names.get(&(address, qpn)).copied()
    }
}
