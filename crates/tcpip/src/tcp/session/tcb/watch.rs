//! Watches one session: how long its peer has been silent, and how much it acknowledges.

use crate::tcp::config::{Config, KeepAlive};
use core::time::Duration;
use kiban_base::Instant;

/// Length of the period for counting acknowledged bytes; two periods are kept.
const RECENT: Duration = Duration::from_secs(1);

/// A session is live if its peer acknowledges at least this much in each of two periods.
const LIVE_BYTES: u32 = 4096;

/// A session is also live if its peer has acknowledged this much in the last two periods, which is more than
/// a usual window.
const LIVE_AT_ONCE_BYTES: u32 = 128 << 10;

/// Returns the number of the period in which live sessions are counted. Periods are numbered from 1; 0 means
/// none.
pub(in crate::tcp) fn period_of(now: Instant) -> u64 {
    1 + now.as_nanos() / RECENT.as_nanos() as u64
}

/// The watch of one session.
#[derive(Debug)]
pub(in crate::tcp::session) struct PeerWatch {
    pub(in crate::tcp::session) keep_alive: Option<KeepAlive>,
    pub(in crate::tcp::session) user_timeout: Option<Duration>,
    /// When an acceptable segment last arrived.
    pub(in crate::tcp::session) heard_at: Instant,
    /// The time since which bytes have been waiting to be acknowledged; `NEVER` if none are.
    pub(in crate::tcp::session) unacked_since: Instant,
    /// The time since which the peer has acknowledged less than a floor (`floor_bytes`, or all queued bytes
    /// if fewer), and how many of those bytes are still to be acknowledged; `NEVER` if nothing is queued.
    pub(in crate::tcp::session) stalled_since: Instant,
    pub(in crate::tcp::session) stalled_bytes_left: u32,
    /// Bytes acknowledged since `earning_since`, and in the period before.
    pub(in crate::tcp::session) earned: [u32; 2],
    pub(in crate::tcp::session) earning_since: Instant,
    /// The last period in which the session was counted as live.
    pub(in crate::tcp::session) live_in: u64,
    /// Keep-alive probes without an answer, and when the next one is due.
    pub(in crate::tcp::session) keep_alives_unanswered: u32,
    pub(in crate::tcp::session) keep_alive_deadline: Instant,
    /// When the user timeout ends a session that does not answer these probes; `NEVER` if their number does.
    pub(in crate::tcp::session) keep_alive_end: Instant,
    pub(in crate::tcp::session) deadline: Instant,
}

impl PeerWatch {
    pub(in crate::tcp::session) fn new(config: &Config) -> PeerWatch {
        PeerWatch {
            keep_alive: config.keep_alive.map(KeepAlive::after),
            user_timeout: config.user_timeout,
            heard_at: Instant::ZERO,
            unacked_since: Instant::NEVER,
            stalled_since: Instant::NEVER,
            stalled_bytes_left: 0,
            earned: [0; 2],
            earning_since: Instant::ZERO,
            live_in: 0,
            keep_alives_unanswered: 0,
            keep_alive_deadline: Instant::NEVER,
            keep_alive_end: Instant::NEVER,
            deadline: Instant::NEVER,
        }
    }

    /// Records an acceptable segment from the peer.
    #[inline]
    pub(in crate::tcp::session) fn on_heard(&mut self, now: Instant) {
        self.heard_at = now;
        self.keep_alives_unanswered = 0;
    }

    /// Sets a user timeout for a session that the host has closed, unless it already has one.
    pub(in crate::tcp::session) fn on_left(&mut self, config: &Config) {
        self.user_timeout.get_or_insert(config.orphan_timeout);
    }

    /// Returns when an acceptable segment last arrived.
    pub(in crate::tcp::session) fn heard_at(&self) -> Instant {
        self.heard_at
    }

    /// Resets the state after the handshake: no data has waited yet.
    pub(in crate::tcp::session) fn on_opened(&mut self) {
        self.unacked_since = Instant::NEVER;
    }

    /// Records that `bytes` were acknowledged and that `left` are still queued. The queued bytes start
    /// waiting now.
    #[inline]
    pub(in crate::tcp::session) fn on_progress(&mut self, bytes: u32, left: u32, floor: u32, now: Instant) {
        self.unacked_since = Instant::NEVER;
        if bytes == 0 {
            return;
        }
        if self.earning_since + RECENT <= now {
            let recent = self.earning_since + 2 * RECENT > now;
            self.earned = [0, if recent { self.earned[0] } else { 0 }];
            self.earning_since = now;
        }
        self.earned[0] = self.earned[0].saturating_add(bytes);
        self.stalled_bytes_left = self.stalled_bytes_left.saturating_sub(bytes);
        if left == 0 || self.stalled_bytes_left == 0 {
            self.stalled_since = Instant::NEVER;
            self.on_waiting(left, floor, now);
        }
    }

    /// Starts the wait for a floor's worth of acknowledgements, if `bytes` are queued and no wait runs.
    #[inline]
    pub(in crate::tcp::session) fn on_waiting(&mut self, bytes: u32, floor: u32, now: Instant) {
        if bytes > 0 && self.stalled_since == Instant::NEVER {
            (self.stalled_since, self.stalled_bytes_left) = (now, bytes.min(floor));
        }
    }

    /// Returns the time since which the peer has acknowledged less than a floor.
    pub(in crate::tcp::session) fn stalled_since(&self) -> Instant {
        self.stalled_since
    }

    /// Returns the number of bytes that the peer has acknowledged in this period and the one before.
    #[inline]
    pub(in crate::tcp::session) fn earned(&self, now: Instant) -> u32 {
        if self.earning_since + 2 * RECENT > now { self.earned[0].saturating_add(self.earned[1]) } else { 0 }
    }

    /// Returns the current period if the session is live, but only once per period. A session is live if its
    /// peer acknowledged enough both in this period and in the one before. A peer that fills its window and
    /// stops does not count.
    #[inline]
    pub(in crate::tcp::session) fn counts_as_live(&mut self, now: Instant) -> Option<u64> {
        let period = period_of(now);
        if self.live_in == period {
            return None;
        }
        let is_steady = self.earned.iter().all(|bytes| *bytes >= LIVE_BYTES);
        (is_steady || self.earned(now) >= LIVE_AT_ONCE_BYTES).then(|| {
            self.live_in = period;
            period
        })
    }

    pub(in crate::tcp::session) fn user_timeout_deadline(&self) -> Instant {
        match self.user_timeout {
            Some(most) if self.unacked_since != Instant::NEVER => self.unacked_since + most,
            _ => Instant::NEVER,
        }
    }
}
