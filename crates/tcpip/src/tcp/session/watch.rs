//! Limits on silence: keep-alive and the user timeout.
//!
//! Keep-alive       off unless enabled (RFC 9293 §3.8.4, MUST-25). After `keep_alive` of silence an empty
//!                  segment with `SND.NXT - 1` is sent; after the configured number of unanswered probes the
//!                  session ends.
//! User timeout     `user_timeout` bounds how long bytes, sent or not, may wait for their acknowledgement
//!                  (RFC 9293 §3.8.3, RFC 5482 §3.1; as in Linux, a closed window counts).
//! Memory           a peer that accepts nothing, or a byte now and then, could keep our pages for ever
//!                  (MUST-37). The session records how long the peer has taken to accept `floor_bytes`; when
//!                  others need memory, `pressure` aborts such sessions (RFC 6429 §3).
//! Timer            one for all of them, which may fire early: what has arrived since is checked then.

use super::tcb::{Desk, Session};
use crate::tcp::indication::Reason;
use crate::tcp::state::State;
use crate::wire::tcp::{Flags, Options};
use core::time::Duration;
use kiban_base::Instant;

impl Session {
    /// Sets the idle time before keep-alive probes and the user timeout; `None` disables each.
    pub(in crate::tcp) fn set_patience(
        &mut self,
        keep_alive: Option<Duration>,
        user_timeout: Option<Duration>,
    ) {
        (self.watch.keep_alive, self.watch.user_timeout) = (keep_alive, user_timeout);
        self.watch.asked = 0;
    }

    /// Sets the timer after output. `waits`: data waits for its acknowledgement.
    #[inline]
    pub(super) fn arm_watch(&mut self, waits: bool, now: Instant) {
        let watch = &mut self.watch;
        if !waits {
            watch.owing_since = Instant::NEVER;
        } else if watch.owing_since == Instant::NEVER {
            watch.owing_since = now;
        }
        if watch.keep_alive.is_none() && watch.user_timeout.is_none() {
            return;
        }
        if self.state == State::TimeWait {
            // TIME-WAIT needs no keep-alive.
            watch.at = Instant::NEVER;
            return;
        }
        watch.ask_at = match watch.keep_alive {
            // Outstanding data needs no keep-alive: its retransmissions probe the peer.
            Some(idle) if watch.asked == 0 && !waits && self.state.is_synchronised() => watch.heard_at + idle,
            Some(_) if watch.asked > 0 && !waits => watch.ask_at,
            _ => Instant::NEVER,
        };
        watch.at = watch.ask_at.min(watch.patience_ends());
    }

    /// Handles the timer: aborts the session, sends a keep-alive probe, or rearms.
    pub(super) fn on_watch(&mut self, desk: &mut Desk<'_, '_>) {
        let now = desk.cx.now;
        self.watch.at = Instant::NEVER;
        if self.state == State::TimeWait {
            return;
        }
        if self.watch.patience_ends() <= now {
            desk.counters.timed_out += 1;
            return self.give_up(desk);
        }
        let Some(idle) = self.watch.keep_alive else { return };
        if self.watch.asked == 0 && self.watch.heard_at + idle > now {
            // A segment has arrived since.
            self.watch.at = (self.watch.heard_at + idle).min(self.watch.patience_ends());
            return;
        }
        if self.watch.ask_at > now {
            return;
        }
        if self.watch.asked >= desk.config.keep_alive_probes {
            desk.counters.timed_out += 1;
            return self.give_up(desk);
        }
        if let Some(pdu) = desk.cx.memory.pdus.take() {
            // RFC 9293 §3.8.4: SEG.SEQ = SND.NXT-1, which no peer takes for new data.
            desk.counters.keep_alives += 1;
            self.emit(self.max - 1, Flags::ACK, Options::NONE, pdu, desk);
        }
        self.watch.asked += 1;
        self.watch.ask_at = now + desk.config.keep_alive_interval;
        self.watch.at = self.watch.ask_at.min(self.watch.patience_ends());
    }

    /// Aborts a session whose peer was silent or accepted nothing for too long, with a RST in case the peer
    /// is alive.
    pub(in crate::tcp) fn give_up(&mut self, desk: &mut Desk<'_, '_>) {
        if self.state.is_synchronised()
            && let Some(pdu) = desk.cx.memory.pdus.take()
        {
            self.emit(self.place(), Flags::RST | Flags::ACK, Options::NONE, pdu, desk);
        }
        self.end(Reason::TimedOut, desk);
    }
}
