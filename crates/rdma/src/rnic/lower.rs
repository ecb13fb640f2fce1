//! The NIC's lower interface: segments of streams, and datagrams.

use super::control::qp::Qp;
use super::control::state::StreamAction;
use super::device::Rnic;
use super::executor::datagram::{self, GRH_BYTES};
use super::executor::receive::{self, Placement, SegmentResult, Tables, Validation};
use super::executor::send::{self, ToLlp};
use super::host::dmac::PIECES_MAX;
use crate::wire::datagram::Header as DatagramHeader;
use crate::wire::rdmap::{Reason, Terminate};
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use kiban_base::{Region, SharedBytes};

/// Memory regions that receive one payload, at most `PIECES_MAX` of them.
pub type PlacementBuffers = ArrayVec<Region, { PIECES_MAX }>;

/// An outgoing datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// The NIC's number for the sending queue pair, not the number set by [`Rnic::set_qpn`].
    pub from: u32,
    /// The destination address.
    pub gid: [u8; 16],
    /// The header that precedes the payload.
    pub header: DatagramHeader,
}

impl Rnic {
    // ---- datagrams

    /// Returns whether [`Rnic::next_datagram`] has something to do.
    #[inline]
    pub fn has_datagrams(&self) -> bool {
        !self.outputs.datagram_tx_queue.is_empty() || !self.outputs.overrun.is_empty()
    }

    /// Writes the next datagram, header and payload, into `room` (its old contents are lost) and completes
    /// its work request. Queue pairs take turns, one datagram each.
    pub fn next_datagram(&mut self, room: &mut Vec<u8>) -> Option<Outgoing> {
        let mut outgoing = None;
        while outgoing.is_none()
            && let Some(from) = self.outputs.datagram_tx_queue.pop_front()
        {
            let Some(qp) = self.qps.get_mut(from) else { continue };
            qp.in_tx_queue = false;
            outgoing = datagram::gather(qp, &self.smt, &mut self.outputs, room)
                .map(|(gid, header)| Outgoing { from, gid, header });
            if outgoing.is_some() && !qp.sq.is_empty() {
                qp.schedule(&mut self.outputs);
            }
        }
        self.fail_overrun();
        outgoing
    }

    /// Takes a datagram that arrived for queue pair `qp`. An unacceptable datagram is dropped and counted.
    /// `grh` is placed in front of the payload in the receive.
    pub fn datagram(&mut self, qp: u32, grh: &[u8; GRH_BYTES], header: &DatagramHeader, payload: &[u8]) {
        let Rnic { qps, smt, srqs, outputs, .. } = self;
        match qps.get_mut(qp) {
            Some(qp) => datagram::take(qp, &mut Tables { smt, srqs, outputs }, grh, header, payload),
            None => outputs.counters.datagrams_unready += 1,
        }
        self.fail_overrun();
    }

    // ---- streams

    /// Removes and returns the first queue pair in the TX queue. Call [`Rnic::next_segment`] until it returns
    /// false, or requeue the pair ([`Rnic::requeue`]) once its stream has room again.
    #[inline]
    pub fn pop_tx_queue(&mut self) -> Option<u32> {
        let number = self.outputs.tx_queue.pop_front()?;
        if let Some(qp) = self.qps.get_mut(number) {
            qp.in_tx_queue = false;
        }
        Some(number)
    }

    /// Appends a queue pair to the TX queue again.
    pub fn requeue(&mut self, qp: u32) {
        if let Some(qp) = self.qps.get_mut(qp) {
            qp.schedule(&mut self.outputs);
        }
    }

    /// Builds a queue pair's next segment. Returns whether there was one.
    #[inline]
    pub fn next_segment(&mut self, qp: u32, llp: &mut impl ToLlp) -> bool {
        let Some(qp) = self.qps.get_mut(qp) else { return false };
        let made = send::next_segment(qp, &mut self.smt, &mut self.outputs, &self.config, llp);
        self.fail_overrun();
        made
    }

    /// Returns the number of segments built for a queue pair so far.
    pub fn segments_made(&self, qp: u32) -> u64 {
        self.qps.get(qp).map_or(0, |qp| qp.segments_out)
    }

    /// Records that the lower layer no longer holds the first `segments` segments of a queue pair, and
    /// completes the work requests whose segments are all among them.
    #[inline]
    pub fn confirm(&mut self, qp: u32, segments: u64) {
        if let Some(qp) = self.qps.get_mut(qp) {
            qp.confirmed = qp.confirmed.max(segments.min(qp.segments_out));
            qp.complete_finished(&mut self.outputs);
        }
        self.fail_overrun();
    }

    /// Returns what the stream must do after the queue pair's segments have been sent.
    #[inline]
    pub fn stream_action(&self, qp: u32) -> StreamAction {
        self.qps.get(qp).map_or(StreamAction::Abort, |qp| qp.stream_action)
    }

    /// Ends a queue pair's stream. `in_order` says whether the close was orderly.
    pub fn on_stream_closed(&mut self, qp: u32, in_order: bool) {
        if let Ok((qp, outputs)) = self.qp(qp) {
            qp.on_stream_closed(in_order, outputs);
            qp.report_last_receive(outputs);
        }
        self.fail_overrun();
    }

    /// Fails a queue pair because of a stream error (a bad CRC): sends a Terminate and ends the stream.
    pub fn stream_fault(&mut self, qp: u32, reason: Reason) {
        if let Ok((qp, outputs)) = self.qp(qp) {
            outputs.count_fault(reason);
            qp.fail(Some(Terminate { reason, segment: None, read_request: None }), None, outputs);
        }
        self.fail_overrun();
    }

    /// Returns a queue pair whose stream had stopped for lack of a posted receive and can now continue.
    #[inline]
    pub fn next_resumable(&mut self) -> Option<u32> {
        self.outputs.resumed.pop()
    }

    /// Validates a segment of `length` bytes whose first bytes are in `front`.
    ///
    /// # Errors
    ///
    /// The reason for the failure. The queue pair has then failed, and the stream accepts no more segments.
    #[inline]
    pub fn validate(&mut self, qp: u32, front: &[u8], length: usize) -> Result<Validation, Reason> {
        let judged = self.with(qp, |qp, tables| {
            if !qp.is_up() {
                return Err(Reason::LOCAL_ERROR);
            }
            receive::validate(qp, tables, front, length)
        });
        self.fail_overrun();
        judged
    }

    /// Copies the next bytes of a payload into the host's memory.
    ///
    /// # Errors
    /// The reason: the queue pair is not connected, or the memory is not valid for this access (any more). In
    /// the latter case, the queue pair has then failed.
    #[inline]
    pub fn place(
        &mut self,
        qp: u32,
        placement: &mut Placement,
        bytes: SharedBytes<'_>,
    ) -> Result<(), Reason> {
        let placed = self.with(qp, |qp, mut tables| receive::place(qp, &mut tables, placement, bytes));
        if placed.is_err() {
            self.fail_overrun();
        }
        placed
    }

    /// Returns the memory for the next bytes of a payload. The lower layer stores them there directly and
    /// then calls [`Rnic::on_placed`]. The result is invalid after any other call.
    ///
    /// # Errors
    /// Same as for [`Rnic::place`].
    #[inline]
    pub fn placement_buffers(
        &mut self,
        qp: u32,
        placement: &Placement,
        places: &mut PlacementBuffers,
    ) -> Result<(), Reason> {
        places.clear();
        let found = self.with(qp, |qp, mut tables| receive::landing(qp, &mut tables, placement, places));
        if found.is_err() {
            self.fail_overrun();
        }
        found
    }

    /// Fails the queue pair because a part of the memory from [`Rnic::placement_buffers`] is not mapped.
    pub fn on_unmapped(&mut self, qp: u32, placement: &Placement) {
        if let Ok((qp, outputs)) = self.qp(qp) {
            receive::on_unmapped(qp, outputs, placement);
        }
        self.fail_overrun();
    }

    /// Records that `bytes` bytes were stored in the memory from [`Rnic::placement_buffers`].
    #[inline]
    pub fn on_placed(&mut self, qp: u32, placement: &mut Placement, bytes: usize) {
        if let Ok((qp, outputs)) = self.qp(qp) {
            receive::landed(qp, outputs, placement, bytes);
        }
    }

    /// Completes a segment whose payload is all in place.
    ///
    /// # Errors
    /// The reason: the queue pair is not connected, or the message invalidates a steering tag that the peer
    /// must not invalidate. In the latter case, the queue pair has then failed.
    #[inline]
    pub fn deliver(&mut self, qp: u32, placement: &Placement) -> Result<(), Reason> {
        let finished = self.with(qp, |qp, mut tables| receive::deliver(qp, &mut tables, placement));
        self.fail_overrun();
        finished
    }

    /// Takes a complete segment: validates, places and finishes it.
    pub fn take(&mut self, qp: u32, segment: &[u8]) -> SegmentResult {
        match self.validate(qp, segment, segment.len()) {
            Ok(Validation::Place(mut placement)) => {
                let payload = SharedBytes::from(&segment[placement.header_bytes()..]);
                let placed = self.place(qp, &mut placement, payload);
                match placed.and_then(|()| self.deliver(qp, &placement)) {
                    Ok(()) => SegmentResult::Whole,
                    Err(_) => SegmentResult::Fault,
                }
            }
            // A complete segment never needs more bytes.
            Ok(Validation::Done | Validation::NeedMore(_)) => SegmentResult::Whole,
            Ok(Validation::Dry) => SegmentResult::Dry,
            Err(_) => SegmentResult::Fault,
        }
    }

    #[inline]
    fn with<T>(
        &mut self,
        qp: u32,
        work: impl FnOnce(&mut Qp, Tables<'_>) -> Result<T, Reason>,
    ) -> Result<T, Reason> {
        let qp = self.qps.get_mut(qp).ok_or(Reason::LOCAL_ERROR)?;
        work(qp, Tables { smt: &mut self.smt, srqs: &mut self.srqs, outputs: &mut self.outputs })
    }
}
