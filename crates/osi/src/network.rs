//! The network service that the transport layer uses: the part of X.213 that class 0 needs.
//!
//! Purpose          provides one set of primitives for two kinds of network connection: TCP with TPKTs (RFC
//!                  1006), and an X.25 virtual call.
//! Data             a data primitive carries one network service data unit: over RFC 1006, the payload of one
//!                  TPKT; over X.25, a sequence of packets joined by their M bits. Class 0 puts exactly one
//!                  TPDU into it.
//! Not implemented  expedited data, receipt confirmation, reset. Class 0 uses none of them. A reset ends its
//!                  connection (X.224 §6.15), so it is indicated as [`Indication::Disconnected`].

use kiban_base::Rope;

/// Requests from the transport layer to the network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// N-CONNECT request; the network service already knows the address.
    Connect,
    /// N-CONNECT response: accepts the incoming call.
    Accept,
    /// N-DATA request: one NSDU.
    Data(Rope),
    /// N-DISCONNECT request: closes the TCP connection after all pending data is sent, or clears the call.
    Disconnect {
        /// The reason.
        reason: Reason,
    },
}

/// Indications and confirmations from the network service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Indication {
    /// N-CONNECT confirm at the calling end, N-CONNECT indication at the called end.
    Connected,
    /// N-DATA indication: one NSDU.
    Data(Rope),
    /// N-DISCONNECT indication, or an N-RESET indication, which ends a class 0 connection.
    Disconnected {
        /// The side that disconnected.
        origin: Origin,
        /// The reason.
        reason: Reason,
    },
}

/// Originator of a network disconnect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The remote user closed its TCP connection, or cleared the call.
    User,
    /// The provider ended the connection: TCP failed, or the network cleared or reset the call.
    Provider,
    /// Unknown.
    Unknown,
}

/// Reason of a network disconnect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// A normal disconnect.
    Normal,
    /// An abnormal disconnect, in the middle of a transfer.
    Abnormal,
    /// The remote end refused the connection.
    Refused,
    /// There is no route to the remote end.
    Unreachable,
    /// Received data broke a protocol rule.
    Protocol,
}
