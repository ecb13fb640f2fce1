//! Ends of connections: the transport below each, and the incoming ends that wait for an answer.

use crate::efe::FlowNumber;
use crate::iwarp::mpa::{Initiator, Responder};
use crate::iwarp::stream::Stream;
use crate::rnic::RoceSending;
use crate::roce::cm::ConnectionId;
use crate::wire::roce::cm::Req;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::net::IpAddr;
use kiban_base::Instant;

/// The transport of an end's segments.
#[derive(Debug)]
pub(super) enum Transport {
    Stream(Box<Stream>),
    Flow {
        flow: FlowNumber,
        phase: FlowPhase,
    },
    Roce(RoceEnd),
    /// The transport has ended.
    Nothing,
}

#[derive(Debug)]
pub(super) enum FlowPhase {
    Initiating(Initiator),
    Responding(Responder),
    /// Accepted, but not confirmed.
    Accepted,
    Up {
        finished: bool,
    },
}

/// A connection over RoCEv2.
#[derive(Debug)]
pub(super) struct RoceEnd {
    pub(super) connection: ConnectionId,
    /// Our address, and the peer's.
    pub(super) addresses: (IpAddr, IpAddr),
    /// The PSN of the first packet that we expect.
    pub(super) first_psn_in: u32,
    /// Our maximum numbers of outstanding reads from the peer and to the peer.
    pub(super) depths: (u16, u16),
    /// The peer's request, until it is answered.
    pub(super) request: Option<Box<Req>>,
    /// How the queue pair of an accepted request will send, until the peer is ready.
    pub(super) sending: Option<RoceSending>,
}

#[derive(Debug)]
pub(super) struct End {
    pub(super) below: Transport,
    pub(super) qp: Option<u32>,
    /// The listener at which the connection arrived.
    pub(super) listener: Option<u32>,
    /// Deadline for establishing the connection.
    pub(super) until: Instant,
    pub(super) is_established: bool,
    /// The failure has been reported to the host.
    pub(super) failed: bool,
    /// The end is queued for service: it may have something to send that the core does not know about.
    pub(super) is_scheduled: bool,
}

/// Incoming ends that were not established when queued, oldest first; some may have failed since.
#[derive(Default, Debug)]
pub(super) struct Waiting {
    /// Ends without a request.
    pub(super) silent: VecDeque<u32>,
    /// Ends whose request waits for the host's answer.
    pub(super) requested: VecDeque<u32>,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.silent.len() + self.requested.len()
    }

    /// Records that an end has received a request.
    pub(super) fn ask(&mut self, end: u32) {
        self.leave(end);
        self.requested.push_back(end);
    }

    pub(super) fn leave(&mut self, end: u32) {
        for line in [&mut self.silent, &mut self.requested] {
            if let Some(at) = line.iter().position(|&waits| waits == end) {
                line.remove(at);
            }
        }
    }

    /// Removes and returns the end to be dropped. Ends that have received nothing are dropped first, so that
    /// they cannot displace real requests.
    pub(super) fn oldest(&mut self) -> Option<u32> {
        self.silent.pop_front().or_else(|| self.requested.pop_front())
    }
}
