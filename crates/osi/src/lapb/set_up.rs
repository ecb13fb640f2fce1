//! Link set-up, reset, disconnection, and rejection of frames (X.25 §2.4.4, §2.4.7).

use super::link::{Link, PendingFrame};
use super::primitives::{Indication, Reason};
use super::state::State;
use crate::wire::lapb::{FrameReject, Header, Modulo, Reasons, Unnumbered};
use kiban_base::Instant;

impl Link {
    pub(super) fn queue_sabm(&mut self) {
        let kind = match self.config.modulo {
            Modulo::Eight => Unnumbered::Sabm,
            Modulo::OneTwentyEight => Unnumbered::Sabme,
        };
        self.queue_unnumbered(PendingFrame { kind, poll_final: true, is_timed: true });
    }

    /// Sends SABM, to set up or to reset the link (§2.4.4.1, §2.4.7.2).
    pub(super) fn set_up(&mut self) {
        if matches!(self.state, State::Connected | State::Rejecting) {
            self.counters.resets += 1;
            self.is_resetting = true;
            self.up.push_back(Indication::Reset);
        }
        self.reset_state();
        self.attempts = 1;
        self.state = State::SettingUp;
        self.queue_sabm();
    }

    pub(super) fn on_set_or_disc(&mut self, next: State, poll_final: bool, now: Instant) {
        match next {
            State::Connected => {
                // If nothing was transferred since the last set-up, this is a retransmitted SABM and there is
                // nothing to reset.
                let is_repeated =
                    self.state == State::Connected && self.v_r == 0 && self.sent == 0 && self.v_a == 0;
                if !is_repeated {
                    if matches!(self.state, State::Connected | State::Rejecting) {
                        self.counters.resets += 1;
                        self.up.push_back(Indication::Reset);
                    }
                    self.come_up(now);
                }
            }
            _ => {
                let is_ours = self.state == State::Disconnecting;
                self.go_down(if is_ours { Reason::Requested } else { Reason::ByPeer });
            }
        }
        self.queue_unnumbered(PendingFrame { kind: Unnumbered::Ua, poll_final, is_timed: false });
    }

    pub(super) fn come_up(&mut self, now: Instant) {
        // The reset was already indicated when it began.
        let was_down = match self.state {
            State::SettingUp => !core::mem::take(&mut self.is_resetting),
            state => state == State::Disconnected,
        };
        self.reset_state();
        self.state = State::Connected;
        self.is_wanted = true;
        self.idle_due = now + self.config.idle_timeout;
        if was_down {
            self.up.push_back(Indication::Connected);
        }
    }

    pub(super) fn go_down(&mut self, reason: Reason) {
        if self.state == State::Disconnected {
            return;
        }
        self.reset_state();
        self.state = State::Disconnected;
        (self.is_wanted, self.is_resetting) = (false, false);
        self.idle_due = Instant::NEVER;
        self.up.push_back(Indication::Disconnected(reason));
    }

    /// Resets sequence numbers, timers and exception conditions; drops unacknowledged frames.
    pub(super) fn reset_state(&mut self) {
        self.frames.clear();
        (self.v_a, self.v_r, self.next, self.sent) = (0, 0, 0, 0);
        self.acknowledged();
        (self.peer_is_busy, self.dropped_while_busy, self.reject_sent, self.is_polling) =
            (false, false, false, false);
        (self.owed_reject, self.owed_final, self.owed_poll) = (false, false, false);
        self.owed_state = self.is_busy();
        self.pending_frames.retain(|pending| !pending.is_timed);
        self.attempts = 0;
        self.reject = None;
        self.reply_due = Instant::NEVER;
    }

    pub(super) fn rejected(&self, header: &Header, control: [u8; 2]) -> [u8; 2] {
        let is_long = header.length(self.config.modulo) == 3;
        [control[0], if is_long { control[1] } else { 0 }]
    }

    /// Sends FRMR, which says what was wrong with a frame (§2.4.7.3); the peer then resets the link.
    pub(super) fn reject_frame(&mut self, rejected: [u8; 2], response: bool, reasons: Reasons, poll: bool) {
        self.counters.rejected += 1;
        let v_s = self.v_a.wrapping_add(self.next as u8) & self.config.modulo.mask();
        let reject = FrameReject { rejected, response, v_s, v_r: self.v_r, reasons };
        self.attempts = 1;
        self.state = State::Rejecting;
        self.reject = Some(reject);
        self.reply_due = Instant::NEVER;
        self.acknowledged();
        self.queue_frmr(poll);
    }

    pub(super) fn queue_frmr(&mut self, poll_final: bool) {
        self.pending_frames.retain(|pending| pending.kind != Unnumbered::Frmr);
        self.queue_unnumbered(PendingFrame { kind: Unnumbered::Frmr, poll_final, is_timed: true });
    }
}
