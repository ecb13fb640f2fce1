//! Timers of a session: delayed ACK, retransmission, zero-window probes, pacing, TIME-WAIT.

use super::tcb::{PendingAck, Session, SessionContext};
use crate::tcp::interface::indication::{Indication, Reason};
use crate::tcp::state::State;
use kiban_base::Instant;

impl Session {
    /// Returns when [`Session::on_time`] is next due.
    #[inline]
    pub(in crate::tcp) fn deadline(&self) -> Instant {
        self.rto_deadline
            .min(self.delayed_ack_deadline)
            .min(self.tlp_deadline)
            .min(self.rack_reorder_deadline)
            .min(self.pacing_deadline)
            .min(self.watch.deadline)
    }

    /// Handles the timers that are due.
    pub(in crate::tcp) fn on_time(&mut self, ctx: &mut SessionContext<'_, '_>) {
        let now = ctx.cx.now;
        if self.delayed_ack_deadline <= now {
            self.delayed_ack_deadline = Instant::NEVER;
            if self.pending_ack == PendingAck::Delayed {
                ctx.counters.delayed_acks += 1;
                self.pending_ack = PendingAck::Immediate;
            }
        }
        if self.rack_reorder_deadline <= now {
            self.rack_reorder_deadline = Instant::NEVER;
            self.on_reorder_timer(ctx);
        }
        if self.tlp_deadline <= now {
            self.tlp_deadline = Instant::NEVER;
            self.tlp_due = true;
            // RFC 8985 §7.3: send the probe first, and restart the retransmission timer.
            self.rto_deadline = self.rto_deadline.max(now + self.rtt.rto(ctx.config));
        }
        if self.pacing_deadline <= now {
            self.pacing_deadline = Instant::NEVER;
        }
        if self.watch.deadline <= now {
            self.on_watch(ctx);
        }
        if self.rto_deadline <= now {
            self.rto_deadline = Instant::NEVER;
            self.on_timeout(ctx);
        }
    }

    fn on_timeout(&mut self, ctx: &mut SessionContext<'_, '_>) {
        if self.state == State::TimeWait || (self.state == State::FinWait2 && self.host_closed) {
            return self.end(Reason::Closed, ctx);
        }
        let opens = !self.state.is_synchronised() || self.is_fast_open_pending();
        let retries = if opens { ctx.config.syn_retries } else { ctx.config.rto_retries };
        self.consecutive_timeouts += 1;
        if self.consecutive_timeouts > retries {
            ctx.counters.timed_out += 1;
            return self.end(Reason::TimedOut, ctx);
        }
        if self.is_fast_open_pending() {
            ctx.counters.timeouts += 1;
            self.rtt.on_timeout();
            return self.on_fast_open_timeout();
        }
        let outstanding = self.snd_una.distance(self.snd_max);
        if outstanding == 0 || self.zero_window_probe {
            // RFC 9293 §3.8.6.1: the window is closed; send a zero-window probe of one byte.
            self.rtt.on_timeout();
            self.restart_from_snd_una();
            self.zero_window_probe = true;
            ctx.counters.zero_window_probes += 1;
            return;
        }
        ctx.counters.timeouts += 1;
        self.rtt.on_timeout();
        // The SYN that a SYN-ACK answers may have had a forged source, so its loss does not make the route
        // doubtful.
        let may_doubt = self.state.is_synchronised() || self.state == State::SynSent;
        if self.consecutive_timeouts == ctx.config.negative_advice_retries && may_doubt {
            // RFC 9293 §3.8.3, R1, also for our SYN: IP may find another route, or find that there is none.
            ctx.up
                .push_back(Indication::NegativeAdvice { source: self.local.ip(), target: self.remote.ip() });
        }
        if !self.state.is_synchronised() {
            self.on_syn_lost(ctx);
            self.snd_nxt = self.snd_una;
            return;
        }
        self.on_retransmission_timeout(outstanding, ctx);
    }
}
