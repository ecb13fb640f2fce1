//! How long silence lasts: keep-alive, the user's patience, and the states in which nobody has anything to say.
//!
//! Keep-alive  off unless asked for (RFC 9293 §3.8.4, MUST-25). After `keep_alive` of silence an empty segment with the byte
//!             before the next one asks; as many questions without an answer as are set end the session.
//! Patience    `user_timeout` bounds how long bytes may wait for their acknowledgement, sent or not (RFC 9293 §3.8.3,
//!             RFC 5482 §3.1; as in Linux a closed window counts).
//! Memory      a peer that takes nothing, or a byte now and then, keeps our pages, for ever if it wants to (MUST-37). How long it has
//!             taken for as much as a floor is noted; where others want memory, `pressure` gives such sessions up (RFC 6429 §3).
//! Deadline    one for all, early at the most: what was heard since is looked at when it comes up.

use super::{Desk, Session};
use crate::tcp::Reason;
use crate::tcp::config::Config;
use crate::tcp::state::State;
use core::time::Duration;
use kiban_ground::Instant;
use kiban_wire::tcp::{Flags, Options};

/// What a peer has acknowledged is remembered for once to twice as long.
const RECENT: Duration = Duration::from_secs(1);

/// What is watched of one session.
#[derive(Debug)]
pub(super) struct Watch {
    keep_alive: Option<Duration>,
    user_timeout: Option<Duration>,
    /// When the peer was last heard.
    heard_at: Instant,
    /// Since when bytes wait for their acknowledgement; never: none do.
    owing_since: Instant,
    /// Since when the peer has taken less than a floor, or all that waited, and how much of that is left to take; never: nothing waits.
    turn_at: Instant,
    turn_left: u32,
    /// What the peer has acknowledged since `earning_since`, and in the period before that.
    earned: [u32; 2],
    earning_since: Instant,
    /// Questions without an answer, and when the next one goes.
    asked: u32,
    ask_at: Instant,
    pub(super) at: Instant,
}

impl Watch {
    pub(super) fn new(config: &Config) -> Watch {
        Watch {
            keep_alive: config.keep_alive,
            user_timeout: config.user_timeout,
            heard_at: Instant::ZERO,
            owing_since: Instant::NEVER,
            turn_at: Instant::NEVER,
            turn_left: 0,
            earned: [0; 2],
            earning_since: Instant::ZERO,
            asked: 0,
            ask_at: Instant::NEVER,
            at: Instant::NEVER,
        }
    }

    /// A segment of the peer was acceptable.
    #[inline]
    pub(super) fn on_heard(&mut self, now: Instant) {
        self.heard_at = now;
        self.asked = 0;
    }

    /// The host has gone: nobody is left who could lose patience.
    pub(super) fn on_left(&mut self, config: &Config) {
        self.user_timeout.get_or_insert(config.abandoned_timeout);
    }

    /// When the peer was last heard.
    pub(super) fn heard_at(&self) -> Instant {
        self.heard_at
    }

    /// The handshake is complete: nothing has waited yet.
    pub(super) fn on_opened(&mut self) {
        self.owing_since = Instant::NEVER;
    }

    /// So many bytes were acknowledged and so many are left: these have waited for nothing yet.
    #[inline]
    pub(super) fn on_progress(&mut self, bytes: u32, left: u32, floor: u32, now: Instant) {
        self.owing_since = Instant::NEVER;
        if bytes == 0 {
            return;
        }
        if self.earning_since + RECENT <= now {
            let recent = self.earning_since + 2 * RECENT > now;
            self.earned = [0, if recent { self.earned[0] } else { 0 }];
            self.earning_since = now;
        }
        self.earned[0] = self.earned[0].saturating_add(bytes);
        self.turn_left = self.turn_left.saturating_sub(bytes);
        if left == 0 || self.turn_left == 0 {
            self.turn_at = Instant::NEVER;
            self.on_waiting(left, floor, now);
        }
    }

    /// So many bytes wait for their acknowledgement.
    #[inline]
    pub(super) fn on_waiting(&mut self, bytes: u32, floor: u32, now: Instant) {
        if bytes > 0 && self.turn_at == Instant::NEVER {
            (self.turn_at, self.turn_left) = (now, bytes.min(floor));
        }
    }

    /// Since when the peer has taken less than a floor.
    pub(super) fn turn_at(&self) -> Instant {
        self.turn_at
    }

    /// Bytes that the peer has acknowledged of late.
    #[inline]
    pub(super) fn earned(&self, now: Instant) -> u32 {
        if self.earning_since + 2 * RECENT > now { self.earned[0].saturating_add(self.earned[1]) } else { 0 }
    }

    fn patience_ends(&self) -> Instant {
        match self.user_timeout {
            Some(most) if self.owing_since != Instant::NEVER => self.owing_since + most,
            _ => Instant::NEVER,
        }
    }
}

impl Session {
    /// Sets when silence is asked about, and how long bytes may wait; none: not at all.
    pub(in crate::tcp) fn set_patience(
        &mut self,
        keep_alive: Option<Duration>,
        user_timeout: Option<Duration>,
    ) {
        (self.watch.keep_alive, self.watch.user_timeout) = (keep_alive, user_timeout);
        self.watch.asked = 0;
    }

    /// The session has said what it could: when is it looked at again?
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
            // A name at rest is asked nothing.
            watch.at = Instant::NEVER;
            return;
        }
        watch.ask_at = match watch.keep_alive {
            // Bytes that wait ask by themselves.
            Some(idle) if watch.asked == 0 && !waits && self.state.is_synchronised() => watch.heard_at + idle,
            Some(_) if watch.asked > 0 && !waits => watch.ask_at,
            _ => Instant::NEVER,
        };
        watch.at = watch.ask_at.min(watch.patience_ends());
    }

    /// The deadline of the watch may have been reached.
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
            // The peer was heard since.
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
        if let Some(pdu) = desk.cx.memory.blocks.take() {
            // RFC 9293 §3.8.4: SEG.SEQ = SND.NXT-1, which no peer can take for new.
            desk.counters.keep_alives += 1;
            self.emit(self.max - 1, Flags::ACK, Options::NONE, pdu, desk);
        }
        self.watch.asked += 1;
        self.watch.ask_at = now + desk.config.keep_alive_interval;
        self.watch.at = self.watch.ask_at.min(self.watch.patience_ends());
    }

    /// The peer was silent for too long, or took nothing. If it lives, it is to know.
    pub(in crate::tcp) fn give_up(&mut self, desk: &mut Desk<'_, '_>) {
        if self.state.is_synchronised()
            && let Some(pdu) = desk.cx.memory.blocks.take()
        {
            self.emit(self.place(), Flags::RST | Flags::ACK, Options::NONE, pdu, desk);
        }
        self.end(Reason::TimedOut, desk);
    }
}
