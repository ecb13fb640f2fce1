//! The interface between an endpoint and its host: peers, events, errors.

use alloc::vec::Vec;
use core::fmt;

/// A network address that a link can send to: a MAC address, or an index into a table of UDP addresses. Each
/// link chooses the meaning, except for the bit [`Peer::LOCAL`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Peer(pub u64);

impl Peer {
    /// The bit of a peer on this host. Frames to and from it do not leave the host's memory: they carry
    /// segments of the greatest length that the format allows, and no CRC, whatever the settings are.
    pub const LOCAL: u64 = 1 << 62;

    /// Returns whether the peer is on this host.
    #[inline]
    pub const fn is_local(self) -> bool {
        self.0 & Peer::LOCAL != 0
    }
}

/// The number of a flow at an endpoint. It becomes invalid when the flow ends.
pub type FlowNumber = u32;

/// The reason why a flow has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndReason {
    /// Both sides have finished sending, and everything has arrived.
    Finished,
    /// The peer's host aborted the flow, or the peer no longer knows it.
    PeerAborted,
    /// The peer no longer answers.
    PeerTimeout,
    /// The peer never answered our request, or never confirmed our accept.
    NoAnswer,
    /// No endpoint receives at the peer's address ([`super::Endpoint::on_unreachable`]).
    Unreachable,
    /// Not reported: the host already knows that the flow has ended, or need not know.
    #[doc(hidden)]
    Rejected,
    #[doc(hidden)]
    Forgotten,
}

/// An event for the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A peer requests a service: accept or reject it.
    ConnectRequest {
        /// The new flow.
        flow: FlowNumber,
        /// The requesting peer.
        peer: Peer,
        /// The requested service.
        service: u16,
        /// The peer's greeting.
        greeting: Vec<u8>,
    },
    /// The flow is connected: segments may be sent. On the accepting side, the greeting is empty.
    Connected {
        /// The flow.
        flow: FlowNumber,
        /// The peer's greeting.
        greeting: Vec<u8>,
    },
    /// The peer rejected the request, and the flow has ended.
    Rejected {
        /// The flow.
        flow: FlowNumber,
        /// One of `crate::wire::efe::reason`.
        reason: u32,
        /// The peer's greeting.
        greeting: Vec<u8>,
    },
    /// Segments were received. Once all have been taken, the next arrival raises this event again.
    Readable {
        /// The flow.
        flow: FlowNumber,
    },
    /// There is room again for segments to send.
    Writable {
        /// The flow.
        flow: FlowNumber,
    },
    /// The peer has finished sending, and the host has taken everything that it sent.
    Finished {
        /// The flow.
        flow: FlowNumber,
    },
    /// The flow has ended; segments not taken are lost.
    Ended {
        /// The flow.
        flow: FlowNumber,
        /// The reason.
        why: EndReason,
    },
}

/// Frames that a link sends together, as one train (UDP_SEGMENT, udp(7)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Train<'a> {
    /// The peer.
    pub peer: Peer,
    /// The frames, one after another.
    pub bytes: &'a [u8],
    /// Length of each frame but the last, which may be shorter.
    pub each: usize,
}

/// The trains that a link can send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrainLimits {
    /// Maximum number of frames.
    pub frames: usize,
    /// Maximum length in bytes.
    pub bytes: usize,
    /// Number of frames, but at most a quarter of the window, for which a train waits while as many are in
    /// flight and the host fills the whole send ring: otherwise each acknowledgement would release a short
    /// train. Zero disables this.
    pub waits_for: usize,
    /// To which peers a short frame may be padded, so that a train goes on after it.
    pub padding: Padding,
}

/// When short frames are padded. Worth it where bytes cost less than system calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Padding {
    /// Never.
    Never,
    /// To peers on this host.
    Local,
    /// To all peers.
    Always,
}

impl Padding {
    #[inline]
    pub(super) fn applies_to(self, peer: Peer) -> bool {
        self == Padding::Always || self == Padding::Local && peer.is_local()
    }
}

/// The reason why an endpoint refused a request from the host. A refused request changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RequestError {
    /// No such flow.
    UnknownFlow,
    /// The flow is not connected yet, or no longer connected.
    NotConnected,
    /// The flow is not waiting for an answer from the host.
    NotRequested,
    /// Sending was finished.
    Finished,
    /// The segment exceeds the flow's maximum length.
    TooLong,
    /// The flow's send ring is full.
    Full,
    /// The greeting exceeds the format's maximum length.
    Greeting,
    /// A limit of [`super::Config`] is reached.
    TooMany,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RequestError::UnknownFlow => "no such flow: it was not created, or has ended",
            RequestError::NotConnected => "the flow is not connected: wait for its connected event",
            RequestError::NotRequested => {
                "no answer is pending on this flow: the request was already answered, or timed out"
            }
            RequestError::Finished => "sending on this flow is finished: connect another flow to send more",
            RequestError::TooLong => {
                "the segment is too long: split it into segments of at most the flow's maximum length"
            }
            RequestError::Full => "the flow's send ring is full: wait until it is writable",
            RequestError::Greeting => "the greeting is too long: the maximum is 1024 bytes",
            RequestError::TooMany => "too many flows: close some, or raise the limit in the settings",
        })
    }
}

impl core::error::Error for RequestError {}
