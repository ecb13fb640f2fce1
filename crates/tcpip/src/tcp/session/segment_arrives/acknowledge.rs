//! ACK processing at the sender: frees acknowledged data, updates windows and detects losses (RFC 9293
//! §3.10.7.4, fifth; RFC 5681).

use crate::tcp::interface::indication::{Indication, Reason};
use crate::tcp::loss::scoreboard::Delivery;
use crate::tcp::session::recovery::AckReport;
use crate::tcp::session::tcb::{Session, SessionContext};
use crate::tcp::state::State;
use crate::wire::tcp::{Flags, Header, Options, Sequence};
use kiban_base::Instant;

impl Session {
    /// Processes the ACK field (RFC 9293 §3.10.7.4, fifth). Returns whether to continue with the segment.
    pub(in crate::tcp::session) fn on_acknowledgment(
        &mut self,
        header: &Header,
        pure: bool,
        ctx: &mut SessionContext<'_, '_>,
    ) -> bool {
        let ack = header.acknowledgment;
        if self.state == State::SynReceived {
            if !(self.snd_una.lt(ack) && ack.le(self.snd_max)) {
                ctx.counters.unacceptable += 1;
                if let Some(pdu) = ctx.cx.memory.pdus.take() {
                    self.emit(ack, Flags::RST, Options::NONE, pdu, ctx);
                }
                return false;
            }
            self.snd_wl = (header.sequence, ack);
            self.snd_wnd = self.window_in(header);
            self.snd_wnd_max = self.snd_wnd;
            self.establish(ack, ctx);
        }
        if self.snd_max.lt(ack) || ack.lt(self.snd_una - self.snd_wnd_max.max(self.mss)) {
            // RFC 5961 §5: the ACK acknowledges data that was never sent, or is older than any window that
            // was offered.
            ctx.counters.acks_of_unsent_data += 1;
            self.challenge(ctx);
            return false;
        }
        if self.is_fast_open_pending() && self.snd_una.le(ack) {
            self.on_fast_open_acked(ctx);
        }
        let window = self.window_in(header);
        let outstanding = self.snd_una.distance(self.snd_max);
        let advances = self.snd_una.lt(ack);
        // With nothing outstanding, an ACK can only update the window or report a duplicate (D-SACK).
        if outstanding > 0 || !header.options.sack.is_empty() {
            // RFC 5681 §2 defines a duplicate ACK. The answer to a zero-window probe looks like one but
            // indicates no loss.
            let duplicate = pure
                && ack == self.snd_una
                && window == self.snd_wnd
                && outstanding > 0
                && !self.zero_window_probe;
            let mut report = AckReport { acked: 0, outstanding, duplicate, delivery: Delivery::default() };
            if advances {
                report.acked = self.snd_una.distance(ack);
                self.advance(ack, &mut report.delivery, ctx);
                if self.state == State::Closed {
                    return false;
                }
            } else {
                ctx.counters.duplicate_acks += u64::from(duplicate);
            }
            self.on_report(header, report, ctx);
        }
        let (sequence, acknowledgment) = self.snd_wl;
        // RFC 9293 §3.10.7.4: the window of an old ACK is old too. An ACK that acknowledges new data is
        // current even if its sequence number is below that of a segment received early; otherwise the right
        // edge would move to a place that the peer has not offered.
        let newer = advances
            || sequence.lt(header.sequence)
            || (sequence == header.sequence && acknowledgment.le(ack));
        if newer && self.snd_una.le(ack) {
            if self.zero_window_probe && window > self.snd_wnd {
                // The window opens: retransmit the probed data and restart the retransmission timer.
                self.zero_window_probe = false;
                self.restart_from_snd_una();
                self.rtt.on_reopened();
                self.rto_deadline = Instant::NEVER;
            }
            self.snd_wnd = window;
            self.snd_wnd_max = self.snd_wnd_max.max(window);
            self.snd_wl = (header.sequence, ack);
        }
        if advances && self.writer_waits {
            self.wake_writer(ctx);
        }
        true
    }

    /// Notifies a waiting writer that it can write again, or that memory is short.
    pub(in crate::tcp::session) fn wake_writer(&mut self, ctx: &mut SessionContext<'_, '_>) {
        if self.wakes_writer(ctx.config, ctx.send_share, ctx.cx.now) {
            self.writer_waits = false;
            ctx.up.push_back(Indication::Writable { session: self.id });
        } else if self.send_queue.bytes() == 0 {
            ctx.up.push_back(Indication::Starved { session: self.id });
        }
    }

    /// Moves sequence numbers kept for comparison along with `ack`. If they stayed behind, they would compare
    /// as ahead of `ack` after half of the sequence space.
    #[inline]
    pub(in crate::tcp::session) fn keep_marks_near(&mut self, ack: Sequence) {
        self.snd_sml = self.snd_sml.max(ack);
        self.recover = self.recover.max(ack - 1);
        self.rack.on_acknowledged(ack);
        self.ecn.on_acknowledged(ack);
    }

    /// Processes the cumulative acknowledgement of new data up to `ack`.
    pub(in crate::tcp::session) fn advance(
        &mut self,
        ack: Sequence,
        delivery: &mut Delivery,
        ctx: &mut SessionContext<'_, '_>,
    ) {
        let acknowledged = self.snd_una.distance(ack);
        let queued = self.send_queue.bytes();
        let bytes = acknowledged.min(queued);
        self.send_queue.acknowledged(bytes, &mut ctx.cx.memory.transmit);
        ctx.send_share.change(queued, self.send_queue.bytes(), self.claim);
        self.tally.bytes_acknowledged += u64::from(bytes);
        let finished = acknowledged > bytes;
        self.snd_una = ack;
        self.watch.on_progress(bytes, self.send_queue.bytes(), ctx.config.floor_bytes, ctx.cx.now);
        if let Some(period) = self.watch.counts_as_live(ctx.cx.now) {
            ctx.send_share.note_live(self.claim, period);
        }
        self.forget_urgent();
        if self.snd_nxt.lt(ack) {
            self.snd_nxt = ack;
        }
        self.keep_marks_near(ack);
        if core::mem::take(&mut self.zero_window_probe) {
            self.rtt.on_reopened();
        }
        self.scoreboard.on_acknowledged(ack, delivery);
        let left = ack.distance(self.snd_max);
        // RFC 6298 §5.2 and §5.3: stop the timer if everything is acknowledged; otherwise restart it.
        if left == 0 {
            self.stop_timers();
        } else {
            self.rto_deadline = ctx.cx.now + self.rtt.rto(ctx.config);
        }
        if bytes > 0 {
            ctx.up.push_back(Indication::Sent { session: self.id, bytes, left: self.send_queue.bytes() });
        }
        if finished && self.fin_queued {
            let before = self.state;
            self.state = self.state.on_finish_acknowledged();
            match self.state {
                State::Closed => self.end(Reason::Closed, ctx),
                State::TimeWait if before != State::TimeWait => self.enter_time_wait(ctx),
                // The host has closed: limit the wait for the peer's FIN, so that a peer that never sends it
                // does not keep the session.
                State::FinWait2 if self.host_closed => self.rto_deadline = ctx.cx.now + ctx.config.fin_wait_2,
                _ => {}
            }
        }
    }
}
