//! Outputs of the NIC's blocks.

use super::clocks::StepLog;
use super::counters::RnicCounters;
use super::event::Event;
use super::host::cmt::CompletionQueue;
use crate::wire::rdmap::Reason;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use kiban_base::Slab;

/// NIC-wide outputs: completions, events, and queue pairs that have something to send.
#[derive(Debug)]
pub(super) struct Outputs {
    pub(super) cqs: Slab<CompletionQueue>,
    /// Completion queues with a pending notification.
    pub(super) cq_events: VecDeque<u32>,
    /// Completion queues that have just overrun.
    pub(super) overrun: Vec<u32>,
    pub(super) events: VecDeque<Event>,
    pub(super) events_max: usize,
    /// The work acceptor's TX queue: stream queue pairs with something to send.
    pub(super) tx_queue: VecDeque<u32>,
    /// The TX queue of datagram queue pairs.
    pub(super) datagram_tx_queue: VecDeque<u32>,
    /// The TX queue of queue pairs that speak RoCEv2.
    pub(super) packet_tx_queue: VecDeque<u32>,
    /// Queue pairs whose streams waited for a receive and can now continue.
    pub(super) resumed: Vec<u32>,
    pub(super) counters: RnicCounters,
    pub(super) clocks: StepLog,
}

impl Outputs {
    pub(super) fn event(&mut self, event: Event) {
        if self.events.len() < self.events_max {
            self.events.push_back(event);
        } else {
            self.counters.events_lost += 1;
        }
    }

    /// Removes a queue pair that was reset or destroyed from the TX queues.
    pub(super) fn remove_from_tx_queue(&mut self, qp: u32) {
        for queue in [&mut self.tx_queue, &mut self.datagram_tx_queue, &mut self.packet_tx_queue] {
            queue.retain(|&waits| waits != qp);
        }
    }

    pub(super) fn count_fault(&mut self, reason: Reason) {
        let counters = &mut self.counters;
        let counter = match reason {
            Reason::TAGGED_STAG | Reason::REMOTE_STAG => &mut counters.bad_stag,
            Reason::TAGGED_STREAM | Reason::REMOTE_STREAM => &mut counters.bad_stream,
            Reason::REMOTE_ACCESS => &mut counters.bad_access,
            Reason::TAGGED_BOUNDS | Reason::REMOTE_BOUNDS => &mut counters.bad_bounds,
            Reason::TAGGED_WRAP | Reason::REMOTE_WRAP => &mut counters.bad_wrap,
            Reason::REMOTE_NOT_INVALIDATED => &mut counters.bad_invalidate,
            Reason::TAGGED_VERSION | Reason::UNTAGGED_VERSION | Reason::OPERATION_VERSION => {
                &mut counters.bad_version
            }
            Reason::OPERATION_OPCODE => &mut counters.bad_opcode,
            Reason::UNTAGGED_QUEUE => &mut counters.bad_queue,
            Reason::UNTAGGED_SEQUENCE => &mut counters.bad_sequence,
            Reason::UNTAGGED_OFFSET => &mut counters.bad_offset,
            Reason::UNTAGGED_NO_BUFFER => &mut counters.no_buffer,
            Reason::UNTAGGED_TOO_LONG => &mut counters.too_long,
            Reason::MPA_CRC => &mut counters.bad_crc,
            _ => &mut counters.bad_length,
        };
        *counter += 1;
    }
}
