//! What an endpoint and its host say to each other: peers, events, refusals.

use alloc::vec::Vec;
use core::fmt;

/// A place on the network that a link can send to: an Ethernet address, a number of a UDP address. Links choose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Peer(pub u64);

/// A flow of an endpoint. The number of one that has gone names nothing.
pub type FlowNumber = u32;

/// Why a flow is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// Both sides have finished, and everything has arrived.
    Finished,
    /// The peer's host aborted it, or the peer has forgotten it.
    PeerAborted,
    /// The peer does not answer any more.
    Vanished,
    /// The peer never answered our request, or never confirmed what we accepted.
    NoAnswer,
    /// Not told: the host knows, or does not care.
    #[doc(hidden)]
    Rejected,
    #[doc(hidden)]
    Forgotten,
}

/// What a host is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A peer asks for a service: to be accepted or rejected.
    Asked {
        /// The flow that it would be.
        flow: FlowNumber,
        /// Who asks.
        peer: Peer,
        /// What for.
        service: u16,
        /// What it says.
        greeting: Vec<u8>,
    },
    /// Segments may be sent. On the side that accepted the greeting is empty.
    Connected {
        /// Which flow.
        flow: FlowNumber,
        /// What the peer answered.
        greeting: Vec<u8>,
    },
    /// The peer refused, and the flow is over.
    Rejected {
        /// Which flow.
        flow: FlowNumber,
        /// One of `kiban_wire::efe::reason`.
        reason: u32,
        /// What the peer answered.
        greeting: Vec<u8>,
    },
    /// Segments wait; told again when more come after all were taken.
    Readable {
        /// Which flow.
        flow: FlowNumber,
    },
    /// There is room again, after it was full.
    Writable {
        /// Which flow.
        flow: FlowNumber,
    },
    /// The peer sends nothing any more, and all that it sent has been taken.
    Finished {
        /// Which flow.
        flow: FlowNumber,
    },
    /// The flow is over; segments that wait are gone.
    Ended {
        /// Which flow.
        flow: FlowNumber,
        /// Why.
        why: Why,
    },
}

/// Why an endpoint did not do what the host asked. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No such flow.
    UnknownFlow,
    /// The flow is not connected yet, or not any more.
    NotConnected,
    /// The flow does not wait for an answer of ours.
    NotAsked,
    /// Nothing more is sent after the end.
    Finished,
    /// The segment is longer than the flow takes.
    TooLong,
    /// The flow's ring is full.
    Full,
    /// The greeting is longer than the format allows.
    Greeting,
    /// A bound of [`super::Config`] is reached.
    TooMany,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::UnknownFlow => "no such flow: it was never made, or is over",
            Refusal::NotConnected => "the flow is not connected: wait for the event that says so",
            Refusal::NotAsked => "the flow does not wait for an answer: it was answered, or given up",
            Refusal::Finished => "the flow was finished: connect another to send more",
            Refusal::TooLong => "the segment is too long: cut it to what the flow takes",
            Refusal::Full => "the flow's ring is full: wait until it is writable",
            Refusal::Greeting => "the greeting is too long: 1024 bytes are allowed",
            Refusal::TooMany => "there are too many flows: end some, or raise the bound in the settings",
        })
    }
}

impl core::error::Error for Refusal {}
