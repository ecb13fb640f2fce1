//! ACK processing at the sender: frees acknowledged data, updates windows and detects losses (RFC 9293
//! §3.10.7.4, fifth; RFC 5681).

use super::recovery::Report;
use super::tcb::{Desk, Session};
use crate::tcp::indication::{Indication, Reason};
use crate::tcp::loss::scoreboard::Delivery;
use crate::tcp::state::State;
use crate::wire::tcp::{Flags, Header, Options, Sequence};
use kiban_base::Instant;

impl Session {
    /// Processes the ACK field (RFC 9293 §3.10.7.4, fifth). Returns whether to continue with the segment.
    pub(super) fn on_acknowledgment(&mut self, header: &Header, pure: bool, desk: &mut Desk<'_, '_>) -> bool {
        let ack = header.acknowledgment;
        if self.state == State::SynReceived {
            if !(self.una.lt(ack) && ack.le(self.max)) {
                desk.counters.unacceptable += 1;
                if let Some(pdu) = desk.cx.memory.pdus.take() {
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
            // RFC 5961 §5: the ACK acknowledges data that was never sent, or is older than any window.
            desk.counters.unsent_acknowledged += 1;
            self.challenge(desk);
            return false;
        }
        let window = self.window_in(header);
        let outstanding = self.una.distance(self.max);
        let advances = self.una.lt(ack);
        // With nothing outstanding, an ACK can only update the window or report a duplicate (D-SACK).
        if outstanding > 0 || !header.options.sack.is_empty() {
            // RFC 5681 §2: a duplicate ACK. The answer to a zero-window probe looks like one but indicates no
            // loss.
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
        // RFC 9293 §3.10.7.4: the window of an old ACK is old too. An ACK that acknowledges new data is
        // current even if its sequence number is below that of a segment received early; otherwise the right
        // edge would move to where the peer has not offered it.
        let newer = advances
            || sequence.lt(header.sequence)
            || (sequence == header.sequence && acknowledgment.le(ack));
        if newer && self.una.le(ack) {
            if self.probe && window > self.window {
                // The window opens: resend the probed data and restart the retransmission timer.
                self.probe = false;
                self.start_over();
                self.rtt.on_reopened();
                self.resend_at = Instant::NEVER;
            }
            self.window = window;
            self.window_max = self.window_max.max(window);
            self.window_update = (header.sequence, ack);
        }
        if advances && self.writer_waits {
            self.wake_writer(desk);
        }
        true
    }

    /// Notifies a waiting writer that it can write again, or that memory is short.
    fn wake_writer(&mut self, desk: &mut Desk<'_, '_>) {
        if self.wakes_writer(desk.config, desk.send_share, desk.cx.now) {
            self.writer_waits = false;
            desk.up.push_back(Indication::Writable { session: self.id });
        } else if self.queue.bytes() == 0 {
            desk.up.push_back(Indication::Starved { session: self.id });
        }
    }

    /// Moves sequence numbers kept for comparison along with `ack`. Left behind, they would compare as ahead
    /// after half of the sequence space.
    #[inline]
    pub(super) fn keep_marks_near(&mut self, ack: Sequence) {
        self.short_end = self.short_end.max(ack);
        self.recover = self.recover.max(ack - 1);
        self.rack.on_acknowledged(ack);
    }

    /// Processes the cumulative acknowledgement of new data up to `ack`.
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
        if let Some(period) = self.watch.counts_as_live(desk.cx.now) {
            desk.send_share.note_live(self.claim, period);
        }
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
        // RFC 6298 §5.2 and §5.3: stop the timer if everything is acknowledged, else restart it.
        if left == 0 {
            self.stop_timers();
        } else {
            self.resend_at = desk.cx.now + self.rtt.timeout(desk.config);
        }
        if bytes > 0 {
            desk.up.push_back(Indication::Sent { session: self.id, bytes, left: self.queue.bytes() });
        }
        if finished && self.finishing {
            let before = self.state;
            self.state = self.state.on_finish_acknowledged();
            match self.state {
                State::Closed => self.end(Reason::Closed, desk),
                State::TimeWait if before != State::TimeWait => self.rest(desk),
                // The host has closed: limit the wait for the peer's FIN, so that a peer that never sends it
                // does not keep the session.
                State::FinWait2 if self.left => self.resend_at = desk.cx.now + desk.config.fin_wait_2,
                _ => {}
            }
        }
    }
}
