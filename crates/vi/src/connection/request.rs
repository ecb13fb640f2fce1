//! Connection requests: the state kept during set-up, and how they end.

use crate::traits::{PathTraits, Reliability, ViAttributes};
use crate::wire::{self as wire, refusal};
use alloc::vec::Vec;
use core::fmt;
use kiban_base::Instant;

/// The reason why an outgoing connection request failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// There is no listener at that address.
    NoMatch,
    /// The other host rejected the request.
    Rejected,
    /// The reliability levels differ.
    Reliability,
    /// The maximum transfer sizes differ.
    TransferBytes,
    /// The qualities of service differ.
    Qos,
    /// No answer arrived in time.
    Timeout,
    /// The path to the other NIC was closed.
    Unreachable,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConnectError::NoMatch => "no listener at that address: start the other side first",
            ConnectError::Rejected => "the peer refused the connection",
            ConnectError::Reliability => {
                "the reliability level differs from the peer's: create both VIs with the same one"
            }
            ConnectError::TransferBytes => {
                "the maximum message length differs from the peer's: create both VIs with the same one"
            }
            ConnectError::Qos => {
                "the quality of service differs from the peer's: create both VIs with the same one"
            }
            ConnectError::Timeout => {
                "connection timed out: check that the other side is running and reachable"
            }
            ConnectError::Unreachable => {
                "no listener on the other side, or the path to it was lost: start the other side first"
            }
        })
    }
}

impl core::error::Error for ConnectError {}

/// The result of an outgoing request.
pub(crate) type Outcome = Result<PeerAttributes, ConnectError>;

/// The peer's attributes, as exchanged at set-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerAttributes {
    /// The peer's reliability level, which is the same as the local one.
    pub reliability: Reliability,
    /// Maximum transfer size in bytes.
    pub transfer_bytes_max: u32,
    /// Quality of service, opaque.
    pub qos: u64,
    /// Whether the peer accepts RDMA Writes.
    pub rdma_write: bool,
    /// Whether the peer accepts RDMA Reads.
    pub rdma_read: bool,
}

impl PeerAttributes {
    pub(crate) fn of(setup: &wire::Setup<'_>) -> PeerAttributes {
        PeerAttributes {
            reliability: Reliability::ALL[usize::from(setup.reliability.min(2))],
            transfer_bytes_max: setup.transfer_bytes_max,
            qos: setup.qos,
            rdma_write: setup.rdma & 1 != 0,
            rdma_read: setup.rdma & 2 != 0,
        }
    }

    /// Returns the refusal code for the first attribute in which the ends differ.
    pub(crate) fn differs(&self, own: &ViAttributes) -> Option<u32> {
        if self.reliability != own.reliability {
            Some(refusal::RELIABILITY)
        } else if self.transfer_bytes_max != own.transfer_bytes_max {
            Some(refusal::TRANSFER_BYTES)
        } else if self.qos != own.qos {
            Some(refusal::QOS)
        } else {
            None
        }
    }
}

/// An outgoing request in progress.
#[derive(Debug)]
pub(crate) struct Setup {
    pub path: u32,
    pub(crate) traits: PathTraits,
    pub(crate) key: u32,
    pub(crate) is_peer: bool,
    pub(crate) local: Vec<u8>,
    pub(crate) remote: Vec<u8>,
    pub(crate) until: Instant,
    pub(crate) retransmit_at: Instant,
}

/// An incoming request that awaits the host's decision.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub path: u32,
    pub until: Instant,
    pub(crate) peer_vi: u32,
    pub(crate) peer_key: u32,
    pub(crate) remoteness: PeerAttributes,
    /// The peer's discriminator and the local one.
    pub(crate) source: Vec<u8>,
    pub(crate) target: Vec<u8>,
    pub(crate) reported: bool,
}

/// An incoming connection request, as reported to the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The request's number, for [`Nic::accept`](crate::Nic::accept) and
    /// [`Nic::reject`](crate::Nic::reject).
    pub number: u32,
    /// The path to the requesting NIC.
    pub path: u32,
    /// The discriminator of the requesting side.
    pub source: Vec<u8>,
    /// The attributes of the requesting VI.
    pub remoteness: PeerAttributes,
}
