//! Ends of connections: what they are used for, and the owners of their events.

use crate::linked_nic::Route;
use crate::tcp::TcpListenSocket;
use kiban_rdma::nic::ConnectError;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A connection request.
#[derive(Clone, Debug)]
pub struct ConnectRequest {
    /// The listener's number.
    pub listener: u32,
    /// The end, for the answer.
    pub end: u32,
    /// The local address.
    pub local: SocketAddr,
    /// The peer's address.
    pub peer: SocketAddr,
    /// The peer's private data.
    pub private_data: Vec<u8>,
    /// The maximum number of reads that the peer wants to have outstanding, and the maximum that it accepts.
    /// They limit our (`ird`, `ord`).
    pub depths: (u16, u16),
}

/// A queue pair that receives datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramPeer {
    /// The address, which is its GID.
    pub address: IpAddr,
    /// The number of the queue pair.
    pub qpn: u32,
    /// The Q_Key that datagrams must have.
    pub qkey: u32,
}

/// A connection event.
#[derive(Clone, Debug)]
pub enum CmEvent {
    /// A peer requests a connection.
    ConnectRequest(ConnectRequest),
    /// The connection is established.
    Connected {
        /// The end.
        end: u32,
        /// The peer's private data, on the initiating side.
        private_data: Vec<u8>,
        /// The agreed maximum numbers of outstanding reads from the peer and to the peer.
        depths: (u16, u16),
    },
    /// A service of datagrams is resolved to a queue pair (RoCEv2).
    Resolved {
        /// The end.
        end: u32,
        /// The peer's queue pair.
        peer: DatagramPeer,
        /// The peer's private data.
        private_data: Vec<u8>,
    },
    /// The connection could not be established.
    Failed {
        /// The end.
        end: u32,
        /// The reason.
        error: ConnectError,
    },
    /// The connection is retried with a new end, because the peer refused the stream or closed it without an
    /// answer. If kiban's own extensions were offered, the last retry does not offer them: the peer may not
    /// tolerate the offer, although it should ignore the bit (RFC 5044 §7.1.1).
    Retried {
        /// The old end.
        end: u32,
        /// The new end.
        to: u32,
        /// The new local address.
        local: Option<SocketAddr>,
    },
    /// The connection has ended, or a request was withdrawn.
    Disconnected {
        /// The end.
        end: u32,
    },
}

/// A receiver of connection events. It is called while the NIC is locked, and must not call the engine.
pub trait CmEventHandler: Send + Sync {
    /// Handles an event. For [`CmEvent::ConnectRequest`], returns the owner of the connection's further
    /// events, or `None` to refuse the request.
    fn on_event(&self, event: CmEvent) -> Option<Arc<dyn CmEventHandler>>;
}

/// The use of an end.
pub(super) enum EndUse {
    /// A connection of the connection manager. On the initiating side, contains the data for retrying it.
    Manager(Arc<dyn CmEventHandler>, Option<Box<Retry>>),
    /// An out-of-band connection of a queue pair.
    Meeting(u32),
    /// An incoming out-of-band connection that waits for its queue pair.
    Held,
    /// A refused request whose reply is still being sent.
    Refused,
}

/// The parameters for retrying a connection.
#[derive(Clone)]
pub(super) struct Retry {
    /// kiban's own extensions were offered: if the peer closes without an answer, retry once without them.
    pub(super) offers: bool,
    /// Number of retries after pauses.
    pub(super) refused: usize,
    /// The connection waits for its retry, and no events are reported.
    pub(super) pauses: bool,
    pub(super) qp: u32,
    pub(super) route: Route,
    pub(super) depths: (u16, u16),
    pub(super) private_data: Vec<u8>,
    /// The end before this retry, while the board has not reported the new one.
    pub(super) before: Option<u32>,
}

/// The ends in use.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) of: HashMap<u32, EndUse>,
}

/// The owners of listeners, and the ports that they chose.
#[derive(Default)]
pub(super) struct Listeners {
    pub(super) of: HashMap<u32, (Arc<dyn CmEventHandler>, u16)>,
    /// Hold the ports of listeners over EFE for TCP, in which programs look for them.
    pub(super) tcp: HashMap<u32, TcpListenSocket>,
}
