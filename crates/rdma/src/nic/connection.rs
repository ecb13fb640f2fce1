//! Connections as the host sees them: requests, events, and why a connection fails.

use crate::iwarp::mpa::{self};
use alloc::vec::Vec;
use core::fmt;

/// The reason why a connection could not be established.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The peer refused. Contains its private data.
    Rejected(Vec<u8>),
    /// There is no listener at the address, or no route to it.
    Unreachable,
    /// The peer did not answer in time.
    Timeout,
    /// The peer's start frame breaks a rule.
    Fault(mpa::SetupFault),
    /// The connection was lost before it was established.
    Lost,
    /// RoCEv2: no program receives at its port of the peer's address (ICMP port unreachable).
    PortUnreachable,
    /// RoCEv2: the peer has no queue pair for the datagrams of a service (SIDR).
    NotServed {
        /// Why (IBTA volume 1 §12.11.2, [`SidrStatus`](crate::wire::roce::cm::SidrStatus)).
        status: u8,
        /// The peer's private data.
        private_data: Vec<u8>,
    },
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Rejected(_) => f.write_str("the peer refused the connection"),
            ConnectError::Unreachable => f.write_str("connection refused, or no route to that address"),
            ConnectError::Timeout => f.write_str("the peer did not answer in time"),
            ConnectError::Fault(fault) => write!(f, "MPA connection setup failed: {fault}"),
            ConnectError::Lost => f.write_str("the connection was lost before it was established"),
            ConnectError::PortUnreachable => f.write_str("nothing at that address uses RoCEv2"),
            ConnectError::NotServed { status, .. } => {
                write!(f, "the peer has no queue pair for the service (SIDR status {status})")
            }
        }
    }
}

impl core::error::Error for ConnectError {}

/// A connection request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The end that received it.
    pub end: u32,
    /// The listener's number, or the EFE service.
    pub listener: u32,
    /// The peer's private data.
    pub private_data: Vec<u8>,
    /// The maximum number of reads that the peer wants to have outstanding, and the maximum that it accepts.
    /// [`Nic::accept`](super::Nic::accept) can agree on at most these values for (`ird`, `ord`).
    pub depths: (u16, u16),
    /// Whether the peer supports RFC 7306.
    pub extensions: bool,
}

/// Connection events for the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CmEvent {
    /// A peer requests a connection.
    ConnectRequest(Request),
    /// A connection is established. On the initiating side, the event contains the peer's private data.
    Connected {
        /// The end.
        end: u32,
        /// The peer's private data.
        private_data: Vec<u8>,
    },
    /// A connection could not be established.
    Failed {
        /// The end.
        end: u32,
        /// The reason.
        error: ConnectError,
    },
    /// A connection request is no longer valid, although the host may not have answered it yet. The host can
    /// discard its end.
    Withdrawn {
        /// The end.
        end: u32,
    },
    /// An established connection has ended.
    Gone {
        /// The end.
        end: u32,
    },
}

/// The reason why a connection could not be begun or answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The private data is too long.
    PrivateData(mpa::PrivateDataTooLong),
    /// The private data does not fit the message of RoCEv2's connection manager.
    RocePrivateData,
    /// There are too many connections.
    TooMany,
    /// The request has already been answered, withdrawn or given up.
    Gone,
    /// The queue pair is connected or connecting, was connected and has not been reset, or is for datagrams.
    InUse,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::PrivateData(error) => error.fmt(f),
            OpenError::RocePrivateData => f.write_str(
                "the private data is too long: over RoCEv2, a request takes 56 bytes, a reply 196, a rejection \
                 148",
            ),
            OpenError::TooMany => f.write_str("too many connections: close some first"),
            OpenError::Gone => {
                f.write_str("the connection request was already answered, was withdrawn, or timed out")
            }
            OpenError::InUse => f.write_str(
                "the queue pair is or was connected: disconnect and reset it, or use another queue pair",
            ),
        }
    }
}

impl core::error::Error for OpenError {}
