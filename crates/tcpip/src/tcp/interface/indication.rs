//! Session identifiers, and the indications that TCP gives the host.

use core::net::{IpAddr, SocketAddr};
use kiban_base::{Pdu, Slice};

/// Identifies a session. It carries a generation, so the identifier of a session that has ended matches no
/// later session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct SessionId {
    pub(in crate::tcp) index: u32,
    pub(in crate::tcp) generation: u32,
}

impl SessionId {
    /// Returns a small number that is unique among live sessions, for indexing the caller's tables.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// Why a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Both sides have finished.
    Closed,
    /// The peer refused the connection.
    Refused,
    /// The peer reset the connection.
    Reset,
    /// The peer did not answer in time.
    TimedOut,
    /// The next hop did not answer, or ICMP reported the peer as unreachable, before the connection was
    /// established.
    Unreachable,
    /// The host aborted the session.
    Aborted,
}

/// An event for the host (or, for [`Indication::NegativeAdvice`], for IP).
#[derive(Debug)]
pub enum Indication {
    /// A session that the host opened is established.
    Opened {
        /// The session that was opened.
        session: SessionId,
        /// The peer's address and port.
        remote: SocketAddr,
    },
    /// A listener's session is established.
    Accepted {
        /// The new session.
        session: SessionId,
        /// The number of the listener that accepted the session.
        listener: u32,
        /// The peer's address and port.
        remote: SocketAddr,
    },
    /// A peer asks for a connection that is intercepted. [`Tcp::admit`](crate::tcp::Tcp::admit) or
    /// [`Tcp::refuse`](crate::tcp::Tcp::refuse) answers it.
    Requested {
        /// The number of the listener.
        listener: u32,
        /// The destination.
        local: SocketAddr,
        /// The peer's address and port.
        remote: SocketAddr,
    },
    /// The next bytes of the stream, in the body of a PDU.
    Data {
        /// The session that received them.
        session: SessionId,
        /// The payload is in the body; head and tail carry no data.
        pdu: Pdu,
    },
    /// The next bytes of the stream, from a slice that had arrived out of order.
    Piece {
        /// The session that received them.
        session: SessionId,
        /// The payload.
        slice: Slice,
    },
    /// The peer has acknowledged bytes of the stream.
    Sent {
        /// The session that sent them.
        session: SessionId,
        /// Bytes newly acknowledged.
        bytes: u32,
        /// Bytes of the stream that are still unacknowledged or unsent.
        left: u32,
    },
    /// A writer that was waiting for room can continue
    /// ([`Writer::wait_for_room`](crate::tcp::Writer::wait_for_room)).
    Writable {
        /// The session that has room.
        session: SessionId,
    },
    /// A writer waits for room, all its data is acknowledged, and memory is short. No acknowledgement will
    /// make room for it, only memory that other sessions release.
    Starved {
        /// The session that is short of memory.
        session: SessionId,
    },
    /// The peer has sent an urgent pointer (RFC 9293 §3.8.5). The urgent bytes are delivered in order with
    /// all others.
    Urgent {
        /// The session that received it.
        session: SessionId,
        /// Number of bytes from the next one to be delivered up to and including the last urgent one.
        bytes: u32,
    },
    /// Data was retransmitted so often without an acknowledgement that the route is doubtful (RFC 9293
    /// §3.8.3, R1). This indication is for IP (negative advice), not for the host.
    NegativeAdvice {
        /// Our address.
        source: IpAddr,
        /// The peer's address.
        target: IpAddr,
    },
    /// The peer has sent a FIN: no more data follows.
    Finished {
        /// The session whose peer has finished.
        session: SessionId,
    },
    /// The session has ended. Its identifier is invalid from now on.
    Gone {
        /// The session that ended.
        session: SessionId,
        /// Why it ended.
        reason: Reason,
    },
}
