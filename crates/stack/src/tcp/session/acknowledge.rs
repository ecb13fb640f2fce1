//! What an acknowledgement does to the sender: bytes leave the queue, windows move, losses are met (RFC 9293 §3.10.7.4,
//! fifth; RFC 5681).

use super::recovery::Report;
use super::{Desk, Session};
use crate::tcp::scoreboard::Delivery;
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
        let outstanding = self.una.distance(self.max);
        let advances = self.una.lt(ack);
        // Where nothing is out, an acknowledgement tells of the window alone, or of what came twice.
        if outstanding > 0 || !header.options.sack.is_empty() {
            // RFC 5681 §2: a duplicate. The answer to a probe looks like one and tells nothing of loss.
            let duplicate =
                pure && ack == self.una && window == self.window && outstanding > 0 && !self.probe;
            let mut report = Report { acked: 0, outstanding, duplicate, delivery: Delivery::default() };
            if advances {
                report.acked = self.una.distance(ack);
                self.advance(ack, &mut report.delivery, desk);
                if self.state == State::Closed {
                    return false;
                }
            } else {
                desk.counters.duplicate_acks += u64::from(duplicate);
            }
            self.on_report(header, report, desk);
        }
        let (sequence, acknowledgment) = self.window_update;
        // RFC 9293 §3.10.7.4: an old acknowledgement's window is old too. One that acknowledges more is new, though it
        // may stand before an early segment: else the edge would move to where nobody has offered it.
        let newer = advances
            || sequence.lt(header.sequence)
            || (sequence == header.sequence && acknowledgment.le(ack));
        if newer && self.una.le(ack) {
            if self.probe && window > self.window {
                // The window opens: what was probed with goes again, and the clock with it.
                self.probe = false;
                self.start_over();
                self.rtt.on_reopened();
                self.resend_at = Instant::NEVER;
            }
            self.window = window;
            self.window_max = self.window_max.max(window);
            self.window_update = (header.sequence, ack);
        }
        true
    }

    /// Marks that lie behind move along: half the numbers later they would seem to lie ahead.
    #[inline]
    pub(super) fn keep_marks_near(&mut self, ack: Sequence) {
        self.short_end = self.short_end.max(ack);
        self.recover = self.recover.max(ack - 1);
        self.rack.on_acknowledged(ack);
    }

    /// Bytes up to `ack` have arrived for the first time.
    pub(super) fn advance(&mut self, ack: Sequence, delivery: &mut Delivery, desk: &mut Desk<'_, '_>) {
        let acknowledged = self.una.distance(ack);
        let queued = self.queue.bytes();
        let bytes = acknowledged.min(queued);
        self.queue.acknowledged(bytes, &mut desk.cx.memory.transmit);
        desk.send_share.change(queued, self.queue.bytes(), self.claim);
        self.tally.bytes_acknowledged += u64::from(bytes);
        let finished = acknowledged > bytes;
        self.una = ack;
        self.watch.on_progress(bytes, self.queue.bytes(), desk.config.floor_bytes, desk.cx.now);
        self.forget_urgent();
        if self.next.lt(ack) {
            self.next = ack;
        }
        self.keep_marks_near(ack);
        if core::mem::take(&mut self.probe) {
            self.rtt.on_reopened();
        }
        self.board.on_acknowledged(ack, delivery);
        let left = ack.distance(self.max);
        // RFC 6298 §5.2 and §5.3: off when all is acknowledged, else anew.
        if left == 0 {
            self.stop_timers();
        } else {
            self.resend_at = desk.cx.now + self.rtt.timeout(desk.config);
        }
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
                State::FinWait2 if self.left => self.resend_at = desk.cx.now + desk.config.fin_wait_2,
                _ => {}
            }
        }
    }
}
