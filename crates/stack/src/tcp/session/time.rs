//! What happens to a session by itself: delayed acknowledgements, retransmission, probes of a closed window, TIME-WAIT.

use super::{Desk, Owed, Session};
use crate::tcp::Reason;
use crate::tcp::state::State;
use kiban_ground::Instant;

impl Session {
    /// The next moment at which something happens by itself.
    #[inline]
    pub(in crate::tcp) fn deadline(&self) -> Instant {
        self.resend_at.min(self.ack_at)
    }

    /// A deadline may have been reached.
    pub(in crate::tcp) fn on_time(&mut self, desk: &mut Desk<'_, '_>) {
        let now = desk.cx.now;
        if self.ack_at <= now {
            self.ack_at = Instant::NEVER;
            if self.owed == Owed::Later {
                desk.counters.delayed_acks += 1;
                self.owed = Owed::Now;
            }
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
            // RFC 9293 §3.8.6.1: the window is closed: one byte asks whether it still is.
            self.rtt.on_timeout();
            self.next = self.una;
            self.probe = true;
            desk.counters.probes += 1;
            return;
        }
        desk.counters.timeouts += 1;
        self.rtt.on_timeout();
        self.next = self.una;
        if !self.state.is_synchronised() {
            return;
        }
        self.reno.on_timeout(self.max, outstanding, self.mss, self.silence == 1);
        // Go back: the first segment now, whatever the window; the others as it opens.
        self.resend_first = true;
    }
}
