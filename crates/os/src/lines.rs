//! Rate limits for log lines that peers or clients can cause.
//!
//! Purpose          log every offence, without letting a flood of offences fill the disk.
//! Rule             a token bucket of [`LINES_MAX`] lines, refilled at one line per second. If the bucket is
//!                  empty, lines are suppressed and counted; the next line that is logged reports the count.
//! Time             the caller passes the time in.
//! Clients          [`ClientLog`] identifies the process of a Unix-socket client that breaks a rule or cannot
//!                  be admitted.

use crate::Clock;
use kiban_base::Instant;
use std::fmt::Display;
use std::os::fd::AsFd;
use std::time::Duration;

/// Size of a full bucket: the largest burst of lines.
pub const LINES_MAX: u32 = 32;
/// Time to refill one line.
const LINE_EACH: Duration = Duration::from_secs(1);

/// A token bucket of log lines.
#[derive(Clone, Debug)]
pub struct LogLimiter {
    left: u32,
    filled: Instant,
    suppressed: u64,
}

impl LogLimiter {
    /// Returns a full bucket.
    pub fn new(now: Instant) -> LogLimiter {
        LogLimiter { left: LINES_MAX, filled: now, suppressed: 0 }
    }

    /// Takes a line from the bucket. Returns the number of lines suppressed since the last one that was
    /// logged, or `None` if the bucket is empty and this line must be suppressed.
    pub fn try_take(&mut self, now: Instant) -> Option<u64> {
        let fallen = now.since(self.filled).as_secs() / LINE_EACH.as_secs();
        let fallen = u32::try_from(fallen).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(fallen).min(LINES_MAX);
        // A full bucket starts refilling when a line is taken.
        self.filled = if self.left == LINES_MAX { now } else { self.filled + LINE_EACH * fallen };
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Some(std::mem::take(&mut self.suppressed))
            }
            None => {
                self.suppressed += 1;
                None
            }
        }
    }
}

/// Rate-limited log lines about the clients of a Unix socket, whose process IDs are known.
#[derive(Debug)]
pub struct ClientLog {
    door: &'static str,
    lines: LogLimiter,
    clock: Clock,
}

impl ClientLog {
    /// Returns a log with a full bucket for the clients of one socket. `door` names the socket in the log.
    pub fn new(door: &'static str) -> ClientLog {
        let clock = Clock::new();
        ClientLog { door, lines: LogLimiter::new(clock.now()), clock }
    }

    /// Logs that a client is disconnected or not admitted, and which rule the client broke.
    pub fn log_disconnect(&mut self, client: impl AsFd, rule: impl Display) {
        let Some(untold) = self.lines.try_take(self.clock.now()) else { return };
        let peer = rustix::net::sockopt::socket_peercred(client).ok();
        let (pid, uid) =
            (peer.map(|peer| peer.pid.as_raw_nonzero().get()), peer.map(|peer| peer.uid.as_raw()));
        let untold = (untold > 0).then_some(untold);
        tracing::warn!(socket = self.door, pid, uid, %rule, untold, "disconnected a client that broke a rule");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_a_trickle_is_logged() {
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let mut lines = LogLimiter::new(at(0));
        let logged = (0..1000).filter(|_| lines.try_take(at(5)).is_some()).count();
        assert_eq!(logged, LINES_MAX as usize);
        assert_eq!(lines.try_take(at(900)), None);
        assert_eq!(lines.try_take(at(1100)), Some(1000 - u64::from(LINES_MAX) + 1));
        assert_eq!(lines.try_take(at(1200)), None);
        assert_eq!(lines.try_take(at(2100)), Some(1));
        let trickle = (4..1000).filter(|second| lines.try_take(at(second * 1000)) == Some(0)).count();
        assert_eq!(trickle, 996);
        let after = (0..1000).filter(|_| lines.try_take(at(1_000_000_000)).is_some()).count();
        assert_eq!(after, LINES_MAX as usize);
    }
}
