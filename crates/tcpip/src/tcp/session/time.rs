//! Timers of a session: delayed ACK, retransmission, zero-window probes, pacing, TIME-WAIT.

use super::tcb::{Desk, Owed, Session};
use crate::tcp::indication::{Indication, Reason};
use crate::tcp::state::State;
use kiban_base::Instant;

impl Session {
    /// Returns when [`Session::on_time`] is next due.
    #[inline]
    pub(in crate::tcp) fn deadline(&self) -> Instant {
        self.resend_at
            .min(self.ack_at)
            .min(self.tail_at)
            .min(self.reorder_at)
            .min(self.pace_at)
            .min(self.watch.at)
    }

    /// Handles the timers that are due.
    pub(in crate::tcp) fn on_time(&mut self, desk: &mut Desk<'_, '_>) {
        let now = desk.cx.now;
        if self.ack_at <= now {
            self.ack_at = Instant::NEVER;
            if self.owed == Owed::Later {
                desk.counters.delayed_acks += 1;
                self.owed = Owed::Now;
            }
        }
        if self.reorder_at <= now {
            self.reorder_at = Instant::NEVER;
            self.on_reorder_timer(desk);
        }
        if self.tail_at <= now {
            self.tail_at = Instant::NEVER;
            self.tail_due = true;
            // RFC 8985 §7.3: send the probe first, and restart the retransmission timer.
            self.resend_at = self.resend_at.max(now + self.rtt.timeout(desk.config));
        }
        if self.pace_at <= now {
            self.pace_at = Instant::NEVER;
        }
        if self.watch.at <= now {
            self.on_watch(desk);
        }
        if self.resend_at <= now {
            self.resend_at = Instant::NEVER;
            self.on_timeout(desk);
        }
    }

    fn on_timeout(&mut self, desk: &mut Desk<'_, '_>) {
        if self.state == State::TimeWait || (self.state == State::FinWait2 && self.left) {
            return self.end(Reason::Closed, desk);
        }
        let retries =
            if self.state.is_synchronised() { desk.config.retries } else { desk.config.syn_retries };
        self.silence += 1;
        if self.silence > retries {
            desk.counters.timed_out += 1;
            return self.end(Reason::TimedOut, desk);
        }
        let outstanding = self.una.distance(self.max);
        if outstanding == 0 || self.probe {
            // RFC 9293 §3.8.6.1: the window is closed; send a zero-window probe of one byte.
            self.rtt.on_timeout();
            self.start_over();
            self.probe = true;
            desk.counters.probes += 1;
            return;
        }
        desk.counters.timeouts += 1;
        self.rtt.on_timeout();
        // The SYN that a SYN-ACK answers may have had a forged source, so its loss is no evidence against the
        // route.
        let may_doubt = self.state.is_synchronised() || self.state == State::SynSent;
        if self.silence == desk.config.doubt_retries && may_doubt {
            // RFC 9293 §3.8.3, R1, also for our SYN: IP may know another route, or that there is none.
            desk.up.push_back(Indication::Doubtful { source: self.local.ip(), target: self.remote.ip() });
        }
        if !self.state.is_synchronised() {
            self.next = self.una;
            return;
        }
        self.on_retransmission_timeout(outstanding);
    }
}
