//! What an acknowledgement does to the sender: bytes leave the queue, windows move, losses are met (RFC 9293 §3.10.7.4,
//! fifth; RFC 5681).

use super::{Desk, Session};
use crate::tcp::congestion::Advice;
use crate::tcp::state::State;
use crate::tcp::{Indication, Reason};
use kiban_ground::Instant;
use kiban_wire::tcp::{Flags, Header, Options, Sequence};

impl Session {
    /// RFC 9293 §3.10.7.4, fifth. Whether the segment is to be read on.
    pub(super) fn on_acknowledgment(&mut self, header: &Header, pure: bool, desk: &mut Desk<'_, '_>) -> bool {
        let ack = header.acknowledgment;
        if self.state == State::SynReceived {
            if !(self.una.lt(ack) && ack.le(self.max)) {
                desk.counters.unacceptable += 1;
                if let Some(pdu) = desk.cx.memory.blocks.take() {
                    self.emit(ack, Flags::RST, Options::NONE, pdu, desk);
                }
                return false;
            }
            self.window_update = (header.sequence, ack);
            self.window = self.window_in(header);
            self.window_max = self.window;
            self.open(ack, desk);
        }
        if self.max.lt(ack) || ack.lt(self.una - self.window_max.max(self.mss)) {
            // RFC 5961 §5: an acknowledgement of what was never sent, or older than any window.
            desk.counters.unsent_acknowledged += 1;
            self.challenge(desk);
            return false;
        }
        let window = self.window_in(header);
        if self.una.lt(ack) {
            self.advance(ack, desk);
        } else if pure && ack == self.una && window == self.window && self.una != self.max && !self.probe {
            // RFC 5681 §2: a duplicate. The answer to a probe looks like one and tells nothing of loss.
            desk.counters.duplicate_acks += 1;
            let flight = self.una.distance(self.max);
            if self.reno.on_duplicate(self.una, self.max, flight, self.mss) == Advice::Retransmit {
                desk.counters.fast_retransmits += 1;
                self.resend_first = true;
            }
        }
        let (sequence, acknowledgment) = self.window_update;
        // RFC 9293 §3.10.7.4: an old acknowledgement's window is old too.
        let newer = sequence.lt(header.sequence) || (sequence == header.sequence && acknowledgment.le(ack));
        if newer && self.una.le(ack) {
            if self.probe && window > self.window {
                // The window opens: what was probed with goes again, and the clock with it.
                self.probe = false;
                self.next = self.una;
                self.rtt.on_reopened();
                self.resend_at = Instant::NEVER;
            }
            self.window = window;
            self.window_max = self.window_max.max(window);
            self.window_update = (header.sequence, ack);
        }
        true
    }

    /// Bytes up to `ack` have arrived for the first time.
    pub(super) fn advance(&mut self, ack: Sequence, desk: &mut Desk<'_, '_>) {
        let acknowledged = self.una.distance(ack);
        let flight = self.una.distance(self.max);
        let queued = self.queue.bytes();
        let bytes = acknowledged.min(queued);
        self.queue.acknowledged(bytes);
        desk.send_share.change(queued, self.queue.bytes());
        let finished = acknowledged > bytes;
        self.una = ack;
        if self.next.lt(ack) {
            self.next = ack;
        }
        if core::mem::take(&mut self.probe) {
            self.rtt.on_reopened();
        }
        self.resend_first = false;
        self.rtt.on_acknowledged(ack, desk.cx.now, desk.config);
        let left = ack.distance(self.max);
        if self.reno.on_advance(acknowledged, ack, flight, left, self.mss) == Advice::Retransmit {
            self.resend_first = true;
        }
        // RFC 6298 §5.2 and §5.3: off when all is acknowledged, else anew.
        self.resend_at = if left == 0 { Instant::NEVER } else { desk.cx.now + self.rtt.timeout(desk.config) };
        if bytes > 0 {
            desk.up.push_back(Indication::Sent { session: self.id, bytes });
        }
        if finished && self.finishing {
            let before = self.state;
            self.state = self.state.on_finish_acknowledged();
            match self.state {
                State::Closed => self.end(Reason::Closed, desk),
                State::TimeWait if before != State::TimeWait => self.rest(desk),
                // Nobody waits for the peer's FIN: a peer that never sends it does not keep the session.
                State::FinWait2 if self.left => self.resend_at = desk.cx.now + desk.config.time_wait,
                _ => {}
            }
        }
    }
}
