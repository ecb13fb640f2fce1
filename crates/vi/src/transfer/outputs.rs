//! Outputs of the protocol code: control packets, events, completions.

use crate::counters::ViCounters;
use crate::traits::{Event, PathTraits};
use crate::transfer::work::Status;
use crate::wire::{HEADER_BYTES, Header, Kind, SETUP_PACKET_BYTES_MAX, fault};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use kiban_base::{Instant, Slab};

#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) traits: PathTraits,
    /// Control packets, sent before all others: set-up, disconnects, refusals.
    pub(crate) control_packets: VecDeque<ControlPacket>,
    /// VIs that may have something to send, each at most once.
    pub(crate) ready: VecDeque<u32>,
}

/// Maximum number of control packets queued on a path. Only a peer that sends requests faster than it
/// receives the answers can cause more; further packets are dropped.
pub(crate) const CONTROL_PACKETS_MAX: usize = 256;

/// A control packet: header and set-up.
pub(crate) type ControlPacket = ArrayVec<u8, SETUP_PACKET_BYTES_MAX>;

/// Builds a control packet without payload.
pub(crate) fn control_packet(
    kind: Kind,
    vi: u32,
    key: u32,
    sequence: u32,
    acknowledged: u32,
    code: u32,
) -> ControlPacket {
    let header = Header {
        kind,
        flags: 0,
        payload_bytes: 0,
        vi,
        key,
        sequence,
        acknowledged,
        offset: 0,
        immediate: code,
    };
    let mut bytes = [0; HEADER_BYTES];
    header.write(&mut bytes);
    ControlPacket::try_from(&bytes[..]).expect("a letter holds a header")
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    pub(crate) entries: VecDeque<(u32, bool)>,
    pub(crate) most: usize,
    pub(crate) users: usize,
}

/// Outputs of the protocol code: control packets, events, completions.
#[derive(Debug)]
pub(crate) struct Outputs {
    pub(crate) control_packets: Vec<(u32, ControlPacket)>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) events_max: usize,
    pub(crate) queues: Slab<CompletionQueue>,
    /// VIs with a delayed acknowledgement.
    pub(crate) pending_acks: Vec<u32>,
    /// VIs that may have something to send now.
    pub(crate) ready: Vec<u32>,
    pub(crate) counters: ViCounters,
    /// Set when something has happened that the host should look at.
    pub(crate) progress: bool,
    /// The time of the earliest timer of any VI; may be early.
    pub(crate) due: Instant,
}

impl Outputs {
    pub(crate) fn event(&mut self, event: Event) {
        self.progress = true;
        if self.events.len() < self.events_max {
            self.events.push_back(event);
        } else {
            self.counters.events_dropped += 1;
        }
    }

    /// Reports a completed descriptor of a queue.
    #[inline]
    pub(crate) fn completion(&mut self, queue: Option<u32>, vi: u32, receive: bool) {
        self.progress = true;
        let Some(number) = queue else { return };
        let Some(queue) = self.queues.get_mut(number) else { return };
        if queue.entries.len() < queue.most {
            queue.entries.push_back((vi, receive));
        } else {
            self.counters.completions_dropped += 1;
            self.event(Event::CompletionQueueFull { queue: number });
        }
    }

    pub(crate) fn due_at(&mut self, at: Instant) {
        self.due = self.due.min(at);
    }
}

/// Returns the fault code with which a status is reported to the peer.
pub(crate) const fn fault_of(status: Status) -> u32 {
    if status.has(Status::LENGTH) {
        fault::LENGTH
    } else if status.has(Status::RDMA_PROTECTION) {
        fault::RDMA_PROTECTION
    } else if status.has(Status::PROTECTION) {
        fault::PROTECTION
    } else {
        fault::DESCRIPTOR
    }
}
