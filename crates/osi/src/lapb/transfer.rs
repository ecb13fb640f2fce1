//! The rules of information transfer (X.25 §2.4.5).

use super::link::Link;
use super::primitives::Indication;
use super::state::State;
use crate::wire::lapb::{Control, Header, Reasons, Supervisory};
use kiban_base::{Instant, Rope};

impl Link {
    pub(super) fn on_transfer(
        &mut self,
        header: &Header,
        is_command: bool,
        control: [u8; 2],
        packet: Rope,
        now: Instant,
    ) {
        let mask = self.config.modulo.mask();
        let n_r = match header.control {
            Control::Information { n_r, .. } | Control::Supervisory(_, n_r) => n_r,
            Control::Unnumbered(_) | Control::Undefined(_) => return,
        };
        let count = usize::from(n_r.wrapping_sub(self.v_a) & mask);
        if count > self.sent {
            let rejected = self.rejected(header, control);
            self.reject_frame(rejected, !is_command, Reasons::Z, is_command && header.poll_final);
            return;
        }
        self.on_acknowledged(count, n_r, now);
        match header.control {
            Control::Supervisory(kind, _) => {
                self.peer_is_busy = kind == Supervisory::ReceiveNotReady;
                if kind == Supervisory::Reject && !self.is_polling {
                    self.retransmit(now);
                }
            }
            Control::Information { n_s, .. } => self.on_information(n_s, packet, now),
            Control::Unnumbered(_) | Control::Undefined(_) => {}
        }
        if is_command {
            self.owed_final |= header.poll_final;
        } else if header.poll_final {
            if core::mem::take(&mut self.is_polling) {
                self.owed_poll = false;
                self.attempts = 0;
                self.retransmit(now);
            } else {
                self.counters.unsolicited_finals += 1;
            }
        }
        if self.peer_is_busy && self.reply_due == Instant::NEVER && !self.is_polling {
            // §2.4.5.7: T1 starts, and when it expires, a busy peer is polled again.
            self.reply_due = now + self.config.reply_timeout;
        }
    }

    pub(super) fn on_acknowledged(&mut self, count: usize, n_r: u8, now: Instant) {
        if count > 0 {
            self.frames.drain(..count);
            self.next = self.next.saturating_sub(count);
            self.sent -= count;
            self.v_a = n_r;
            if !self.is_polling {
                self.attempts = 0;
                self.restart_reply(now);
            }
        }
    }

    /// Retransmits from N(R) on.
    pub(super) fn retransmit(&mut self, now: Instant) {
        self.next = 0;
        self.restart_reply(now);
    }

    pub(super) fn restart_reply(&mut self, now: Instant) {
        self.reply_due = if self.sent > 0 { now + self.config.reply_timeout } else { Instant::NEVER };
    }

    pub(super) fn on_information(&mut self, n_s: u8, packet: Rope, now: Instant) {
        if self.is_busy() {
            self.counters.dropped_while_busy += 1;
            self.dropped_while_busy = true;
            self.owed_state = true;
        } else if n_s == self.v_r {
            self.v_r = self.v_r.wrapping_add(1) & self.config.modulo.mask();
            self.reject_sent = false;
            self.up.push_back(Indication::Data(packet));
            self.up_frames += 1;
            self.unacknowledged += 1;
            if self.acknowledge_due == Instant::NEVER {
                self.acknowledge_due = now + self.config.acknowledge_delay;
            }
            self.acknowledge_now |= self.unacknowledged * 2 >= usize::from(self.config.window);
            if self.up_frames >= self.config.up_frames_max {
                self.up_is_full = true;
                self.tell_busy(false);
            }
        } else {
            self.counters.out_of_sequence += 1;
            if !core::mem::replace(&mut self.reject_sent, true) {
                self.owed_reject = true;
            } else if self.acknowledge_due == Instant::NEVER {
                // REJ is sent only once. If it was lost and the peer retransmits a frame without P = 1, an
                // acknowledgement informs the peer of V(R).
                self.acknowledge_due = now + self.config.acknowledge_delay;
            }
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy_asked || self.up_is_full
    }

    /// Reports the beginning or the end of the busy condition to the peer (§2.4.5.8). At its end, dropped
    /// frames are requested again by REJ.
    pub(super) fn tell_busy(&mut self, before: bool) {
        if self.is_busy() == before || self.state != State::Connected {
            return;
        }
        self.owed_state = true;
        if !self.is_busy() && core::mem::take(&mut self.dropped_while_busy) {
            self.reject_sent = true;
            self.owed_reject = true;
        }
    }

    pub(super) fn poll_peer(&mut self) {
        self.is_polling = true;
        self.owed_poll = true;
    }
}
