//! Limits on silence: keep-alive and the user timeout.
//!
//! Keep-alive       keep-alive is off unless enabled (RFC 9293 §3.8.4, MUST-25). After `keep_alive` of
//!                  silence an empty segment with `SND.NXT - 1` is sent; after the configured number of
//!                  unanswered probes the session ends. With a user timeout, that decides instead of the
//!                  number of probes, as in Linux.
//! User timeout     `user_timeout` bounds how long bytes, sent or not, may wait for their acknowledgement
//!                  (RFC 9293 §3.8.3, RFC 5482 §3.1; as in Linux, a closed window counts).
//! Memory           a peer that accepts no data, or a byte now and then, could make us hold pages forever
//!                  (MUST-37). The session records how long the peer has taken to accept `floor_bytes`; when
//!                  others need memory, `pressure` aborts such sessions (RFC 6429 §3).
//! Timer            one timer serves all of these. It may fire early: its handler checks what has arrived
//!                  since.

use super::tcb::{Session, SessionContext};
use crate::tcp::config::KeepAlive;
use crate::tcp::interface::indication::Reason;
use crate::tcp::state::State;
use crate::wire::tcp::{Flags, Options};
use core::time::Duration;
use kiban_base::Instant;

impl Session {
    /// Sets keep-alive and the user timeout; `None` disables each.
    pub(in crate::tcp) fn set_timeouts(
        &mut self,
        keep_alive: Option<KeepAlive>,
        user_timeout: Option<Duration>,
    ) {
        (self.watch.keep_alive, self.watch.user_timeout) = (keep_alive, user_timeout);
        self.watch.keep_alives_unanswered = 0;
    }

    /// Sets the timer after output. `waits` says whether data is waiting for its acknowledgement.
    #[inline]
    pub(super) fn arm_watch(&mut self, waits: bool, now: Instant) {
        let watch = &mut self.watch;
        if !waits {
            watch.unacked_since = Instant::NEVER;
        } else if watch.unacked_since == Instant::NEVER {
            watch.unacked_since = now;
        }
        if watch.keep_alive.is_none() && watch.user_timeout.is_none() {
            return;
        }
        if self.state == State::TimeWait {
            // TIME-WAIT needs no keep-alive.
            watch.deadline = Instant::NEVER;
            return;
        }
        watch.keep_alive_deadline = match watch.keep_alive {
            // Outstanding data needs no keep-alive: its retransmissions probe the peer.
            Some(keep) if watch.keep_alives_unanswered == 0 && !waits && self.state.is_synchronised() => {
                watch.heard_at + keep.idle
            }
            Some(_) if watch.keep_alives_unanswered > 0 && !waits => watch.keep_alive_deadline,
            _ => Instant::NEVER,
        };
        watch.deadline = watch.keep_alive_deadline.min(watch.user_timeout_deadline());
        if watch.keep_alives_unanswered > 0 && !waits {
            watch.deadline = watch.deadline.min(watch.keep_alive_end);
        }
    }

    /// Handles the timer: aborts the session, sends a keep-alive probe, or rearms.
    pub(super) fn on_watch(&mut self, ctx: &mut SessionContext<'_, '_>) {
        let now = ctx.cx.now;
        self.watch.deadline = Instant::NEVER;
        if self.state == State::TimeWait {
            return;
        }
        if self.watch.user_timeout_deadline() <= now {
            ctx.counters.timed_out += 1;
            return self.give_up(ctx);
        }
        let Some(KeepAlive { idle, interval, probes }) = self.watch.keep_alive else { return };
        if self.watch.keep_alives_unanswered == 0 && self.watch.heard_at + idle > now {
            // A segment has arrived since.
            self.watch.deadline = (self.watch.heard_at + idle).min(self.watch.user_timeout_deadline());
            return;
        }
        let is_probing = self.watch.keep_alives_unanswered > 0;
        let is_due = self.watch.keep_alive_deadline <= now;
        let is_over = match self.watch.user_timeout {
            Some(_) => is_probing && self.watch.keep_alive_end <= now,
            None => {
                is_due && self.watch.keep_alives_unanswered >= probes.unwrap_or(ctx.config.keep_alive_probes)
            }
        };
        if is_over {
            ctx.counters.timed_out += 1;
            return self.give_up(ctx);
        }
        if !is_due {
            return;
        }
        if let Some(pdu) = ctx.cx.memory.pdus.take() {
            // RFC 9293 §3.8.4: SEG.SEQ = SND.NXT-1, which no peer mistakes for new data.
            ctx.counters.keep_alives += 1;
            self.emit(self.snd_max - 1, Flags::ACK, Options::NONE, pdu, ctx);
        }
        if !is_probing {
            self.watch.keep_alive_end = match self.watch.user_timeout {
                // The peer has time to answer the first probe.
                Some(timeout) => (self.watch.heard_at + timeout).max(now + self.rtt.rto(ctx.config)),
                None => Instant::NEVER,
            };
        }
        self.watch.keep_alives_unanswered += 1;
        self.watch.keep_alive_deadline = now + interval.unwrap_or(ctx.config.keep_alive_interval);
        self.watch.deadline = self.watch.keep_alive_deadline.min(self.watch.user_timeout_deadline());
    }

    /// Aborts a session whose peer was silent or accepted nothing for too long, with a RST in case the peer
    /// is alive.
    pub(in crate::tcp) fn give_up(&mut self, ctx: &mut SessionContext<'_, '_>) {
        if self.state.is_synchronised()
            && let Some(pdu) = ctx.cx.memory.pdus.take()
        {
            self.emit(self.acceptable_seq(), Flags::RST | Flags::ACK, Options::NONE, pdu, ctx);
        }
        self.end(Reason::TimedOut, ctx);
    }
}
