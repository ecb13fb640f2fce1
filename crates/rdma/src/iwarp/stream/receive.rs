//! A stream's receive path: start frames, then frames, which are validated and placed.

use super::connection::{FRAME, Phase, Stream, StreamEvent, put_by};
use crate::iwarp::mpa::{self, Answer, Front, Rtr, SetupFault};
use crate::rnic::{PlacementBuffers, Rnic, SegmentResult, Validation};
use crate::wire::rdmap::Reason;
use core::mem;
use kiban_base::{Region, SharedBytes};

/// Minimum payload of a frame, in bytes, that is stored in the host's memory directly instead of through a
/// buffer.
pub const DIRECT_PLACEMENT_BYTES_MIN: usize = 16 * 1024;
/// Read-ahead, in bytes, while long payloads are expected: enough for trailers, headers and short frames,
/// but not for the next payload.
const AHEAD_BYTES: usize = 256;
/// Number of consecutive short frames after which long ones are no longer expected.
const SHORT_FRAMES: u8 = 4;

impl Stream {
    /// Takes received bytes, each once.
    pub fn arrive(&mut self, rnic: &mut Rnic, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = match &mut self.phase {
                Phase::Up { .. } => self.take_bytes(rnic, bytes),
                Phase::Initiating(initiator) => match initiator.take(bytes) {
                    Ok(Answer::NeedMore) => return,
                    Ok(Answer::Agreed(agreed)) => {
                        if !self.bind(rnic, &agreed, true) {
                            self.event = Some(StreamEvent::Lost);
                            return;
                        }
                        self.event = Some(StreamEvent::Connected { private_data: agreed.private_data });
                        agreed.consumed
                    }
                    Ok(Answer::Rejected(rejected)) => {
                        self.fail();
                        self.event = Some(StreamEvent::Rejected { private_data: rejected.private_data });
                        return;
                    }
                    Err(fault) => return self.fail_start(fault, &[]),
                },
                Phase::Responding(responder) => match responder.take(bytes) {
                    Ok(None) => return,
                    Ok(Some(request)) => {
                        self.event = Some(StreamEvent::Asked {
                            private_data: request.private_data,
                            depths: (request.ird, request.ord),
                            extensions: request.extensions,
                        });
                        return;
                    }
                    Err(refused) => return self.fail_start(refused.fault, &refused.reply),
                },
                Phase::Over => return,
            };
            bytes = &bytes[taken..];
        }
    }

    fn fail_start(&mut self, fault: SetupFault, reply: &[u8]) {
        self.send_final_reply(reply);
        self.event = Some(StreamEvent::Failed(fault));
    }

    /// Processes bytes from an established stream. Returns how many were consumed.
    fn take_bytes(&mut self, rnic: &mut Rnic, bytes: &[u8]) -> usize {
        self.has_received = true;
        let Some(qp) = self.qp.filter(|_| !self.ignores_input) else { return bytes.len() };
        if self.stalled.is_some() {
            self.behind.0.extend_from_slice(bytes);
            return bytes.len();
        }
        if let Some((placement, _)) = &mut self.landing {
            let count = placement.missing().min(bytes.len());
            if rnic.place(qp, placement, SharedBytes::from(&bytes[..count])).is_err() {
                self.ignores_input = true;
            } else {
                self.finish_landing(rnic, qp);
            }
            return count;
        }
        if self.trailer > 0 {
            let count = self.trailer.min(bytes.len());
            self.trailer -= count;
            return count;
        }
        if self.partial_bytes == 0 {
            let used = self.take_run(rnic, qp, bytes);
            self.keep(rnic, &bytes[used..]);
            return bytes.len();
        }
        let count = self.wanted.saturating_sub(self.partial_bytes).min(bytes.len());
        self.hold(rnic, &bytes[..count]);
        self.take_held(rnic, qp);
        count
    }

    /// Keeps bytes that were not consumed: the beginning of a frame, or bytes after a message that waits for
    /// a receive.
    fn keep(&mut self, rnic: &mut Rnic, rest: &[u8]) {
        match self.stalled {
            None => self.hold(rnic, rest),
            Some(_) => self.behind = (rest.to_vec(), 0),
        }
    }

    /// Holds bytes of an incomplete frame. The buffer grows with the bytes received, not with the length that
    /// the peer announces.
    fn hold(&mut self, rnic: &mut Rnic, bytes: &[u8]) {
        let end = self.partial_bytes + bytes.len();
        if end > 0 && self.partial_frame.is_empty() {
            self.partial_frame = mem::take(&mut rnic.spare[FRAME]);
        }
        if end > self.partial_frame.len() {
            self.partial_frame.resize(end, 0);
        }
        self.partial_frame[self.partial_bytes..end].copy_from_slice(bytes);
        self.partial_bytes = end;
    }

    /// Processes the held bytes if there are enough.
    fn take_held(&mut self, rnic: &mut Rnic, qp: u32) {
        if self.partial_bytes < self.wanted {
            return;
        }
        let (mut held, whole) = (mem::take(&mut self.partial_frame), mem::take(&mut self.partial_bytes));
        let used = self.take_run(rnic, qp, &held[..whole]);
        if used < whole && self.stalled.is_some() {
            self.behind = (held[used..whole].to_vec(), 0);
            put_by(&mut rnic.spare[FRAME], &mut held);
        } else if used < whole {
            held.copy_within(used..whole, 0);
            (self.partial_frame, self.partial_bytes) = (held, whole - used);
        } else {
            put_by(&mut rnic.spare[FRAME], &mut held);
        }
    }

    /// Processes the frames in `run`. Returns how many bytes were consumed. The rest is either the beginning
    /// of a frame, which must be held until there are `wanted` bytes, or the bytes after a message that waits
    /// for a receive.
    fn take_run(&mut self, rnic: &mut Rnic, qp: u32, run: &[u8]) -> usize {
        let mut used = 0;
        let Phase::Up { deframer, rtr } = &mut self.phase else { return run.len() };
        while !self.ignores_input && used < run.len() {
            let rest = &run[used..];
            match deframer.front(rest) {
                Err(fault) => {
                    let reason = match fault {
                        mpa::Fault::Crc => Reason::MPA_CRC,
                        mpa::Fault::Marker => Reason::MPA_LENGTH,
                    };
                    rnic.stream_fault(qp, reason);
                    self.ignores_input = true;
                }
                Ok(Front::NeedMore(wanted)) => {
                    if wanted >= DIRECT_PLACEMENT_BYTES_MIN {
                        self.long_frames = SHORT_FRAMES;
                    }
                    self.wanted = wanted;
                    return used;
                }
                // The empty ready-to-receive message: the responder may send.
                Ok(Front::Whole { ulpdu: [], taken }) if *rtr == Some(Rtr::Empty) => {
                    rnic.may_send(qp);
                    (*rtr, used) = (None, used + taken);
                }
                Ok(Front::Whole { ulpdu, taken }) => {
                    used += taken;
                    self.long_frames = match ulpdu.len() < DIRECT_PLACEMENT_BYTES_MIN {
                        true => self.long_frames.saturating_sub(1),
                        false => SHORT_FRAMES,
                    };
                    match rnic.take(qp, ulpdu) {
                        SegmentResult::Whole => {}
                        SegmentResult::Dry => {
                            self.stalled = Some(ulpdu.to_vec());
                            return used;
                        }
                        SegmentResult::Fault => self.ignores_input = true,
                    }
                }
                Ok(Front::Part { length, .. }) if length < DIRECT_PLACEMENT_BYTES_MIN => {
                    self.wanted = mpa::fpdu_bytes(length);
                    return used;
                }
                Ok(Front::Part { ulpdu, length }) => match rnic.validate(qp, ulpdu, length) {
                    Ok(Validation::NeedMore(more)) => {
                        self.wanted = mpa::length_field(length).len() + more;
                        return used;
                    }
                    Ok(Validation::Dry) => {
                        self.wanted = mpa::fpdu_bytes(length);
                        return used;
                    }
                    Ok(Validation::Done) => {
                        let trailer = mpa::trailer_bytes(length);
                        used += mpa::fpdu_bytes(length) - trailer;
                        // Skip the part of the trailer that has arrived; the rest is skipped later.
                        let here = trailer.min(run.len() - used);
                        (self.trailer, used) = (trailer - here, used + here);
                    }
                    Ok(Validation::Place(mut placement)) => {
                        self.long_frames = SHORT_FRAMES;
                        let here = &ulpdu[placement.header_bytes()..];
                        used += mpa::length_field(length).len() + ulpdu.len();
                        if rnic.place(qp, &mut placement, SharedBytes::from(here)).is_err() {
                            self.ignores_input = true;
                        } else {
                            self.landing = Some((placement, mpa::trailer_bytes(length)));
                            self.finish_landing(rnic, qp);
                        }
                        // The next bytes are the rest of the payload or its trailer, not a frame; skip the
                        // part of the trailer that has arrived.
                        let here = self.trailer.min(run.len() - used);
                        self.trailer -= here;
                        return if self.ignores_input { run.len() } else { used + here };
                    }
                    Err(_) => self.ignores_input = true,
                },
            }
        }
        if self.ignores_input { run.len() } else { used }
    }

    fn finish_landing(&mut self, rnic: &mut Rnic, qp: u32) {
        if let Some((placement, trailer)) = self.landing.take_if(|(placement, _)| placement.missing() == 0) {
            self.trailer = trailer;
            self.ignores_input |= rnic.deliver(qp, &placement).is_err();
        }
    }

    /// Returns how many bytes to read at once, given room for `most`. The number is small while long
    /// payloads are expected, because a payload that is read together with other data must be copied.
    pub fn read_ahead(&self, most: usize) -> usize {
        if self.long_frames > 0 { most.min(AHEAD_BYTES) } else { most }
    }

    /// Returns whether more bytes should be read. While a message waits for a receive, they should not.
    pub fn wants_bytes(&self) -> bool {
        self.stalled.is_none()
    }

    /// Continues with the message that waited for a receive, after one was posted (`Rnic::resumed`).
    pub fn resume(&mut self, rnic: &mut Rnic) {
        let (Some(qp), Some(segment)) = (self.qp, self.stalled.take()) else { return };
        match rnic.take(qp, &segment) {
            SegmentResult::Dry => {
                self.stalled = Some(segment);
                return;
            }
            SegmentResult::Fault => self.ignores_input = true,
            SegmentResult::Whole => {}
        }
        // The bytes are processed in place, so that many short messages do not copy the buffer once each.
        let (behind, at) = mem::take(&mut self.behind);
        let used = at + self.take_run(rnic, qp, &behind[at..]);
        match self.stalled {
            Some(_) => self.behind = (behind, used),
            None => self.hold(rnic, behind.get(used..).unwrap_or(&[])),
        }
    }

    /// If the next bytes of the byte stream belong to a long payload, finds the memory for them and returns
    /// their number. Report the number of bytes that arrived with [`Stream::on_placed`] before any other
    /// call.
    pub fn placement_buffers(&mut self, rnic: &mut Rnic, places: &mut PlacementBuffers) -> usize {
        places.clear();
        let (Some(qp), Some((placement, _)), false) = (self.qp, &self.landing, self.ignores_input) else {
            return 0;
        };
        if rnic.placement_buffers(qp, placement, places).is_err() {
            self.ignores_input = true;
            places.clear();
        }
        places.iter().map(Region::len).sum()
    }

    /// Records that `bytes` bytes were stored in the memory from [`Stream::placement_buffers`].
    pub fn on_placed(&mut self, rnic: &mut Rnic, bytes: usize) {
        if let (Some(qp), Some((placement, _))) = (self.qp, &mut self.landing) {
            rnic.on_placed(qp, placement, bytes);
            self.finish_landing(rnic, qp);
        }
    }

    /// Fails the queue pair because a part of the memory from [`Stream::placement_buffers`] is not mapped.
    pub fn on_unmapped(&mut self, rnic: &mut Rnic) {
        if let (Some(qp), Some((placement, _))) = (self.qp, &self.landing) {
            rnic.on_unmapped(qp, placement);
        }
        self.ignores_input = true;
    }

    /// Returns the buffer for the remainder of a long frame that must be complete before it is processed;
    /// empty if there is none. Report the number of bytes that arrived with
    /// [`Stream::on_remainder_received`] before any other call.
    pub fn frame_remainder(&mut self) -> &mut [u8] {
        let up = matches!(self.phase, Phase::Up { .. }) && !self.ignores_input && self.stalled.is_none();
        let between = self.landing.is_none() && self.trailer == 0;
        if !(up && between)
            || self.partial_bytes == 0
            || self.wanted < self.partial_bytes + DIRECT_PLACEMENT_BYTES_MIN
        {
            return &mut [];
        }
        // The buffer is zeroed once, and then reused for later frames.
        if self.partial_frame.len() < self.wanted {
            self.partial_frame.resize(self.wanted, 0);
        }
        &mut self.partial_frame[self.partial_bytes..self.wanted]
    }

    /// Records that `bytes` bytes were stored in the buffer from [`Stream::frame_remainder`].
    pub fn on_remainder_received(&mut self, rnic: &mut Rnic, bytes: usize) {
        if let Some(qp) = self.qp {
            self.partial_bytes = self.wanted.min(self.partial_bytes + bytes);
            self.take_held(rnic, qp);
        }
    }
}
