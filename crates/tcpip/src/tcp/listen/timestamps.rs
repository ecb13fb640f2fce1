//! TCP timestamps (RFC 7323 §3 to §5): TSval, the sender's clock, and TSecr, the echo of the peer's TSval.
//!
//! TSval            counts milliseconds (§5.4 allows 1 ms to 1 s), plus a secret offset that depends on the
//!                  4-tuple (§7.1). The offset hides the board's uptime; and because it stays the same, a
//!                  later connection with the same 4-tuple begins with a larger TSval.
//! TSecr            is TS.Recent: the TSval of the last acceptable segment that began at or before
//!                  Last.ACK.sent, the acknowledgment number of the last ACK (§4.3). If one ACK covers
//!                  several segments, it therefore echoes the TSval of the first, and the RTT that the peer
//!                  measures includes the time for which the ACK was delayed.
//! PAWS             a segment whose TSval is older than TS.Recent is an old duplicate (§5) and is dropped,
//!                  unless TS.Recent is so old that the peer's clock may have wrapped since (§5.5).

use crate::wire::tcp::{Sequence, Timestamps};
use core::time::Duration;
use kiban_base::Instant;

/// RFC 7323 §5.5: a millisecond clock advances by half its range in 24.8 days. After this idle time, no value
/// counts as old.
const IDLE_MAX: Duration = Duration::from_secs(24 * 24 * 3600);

/// The timestamp state of one session.
#[derive(Debug)]
pub(crate) struct TimestampState {
    offset: u32,
    ts_recent: u32,
    /// When `ts_recent` was set.
    ts_recent_at: Instant,
    last_ack_sent: Sequence,
}

impl TimestampState {
    pub(crate) fn new(offset: u32) -> TimestampState {
        TimestampState { offset, ts_recent: 0, ts_recent_at: Instant::ZERO, last_ack_sent: Sequence(0) }
    }

    /// Starts with `value` from the peer's SYN; `expected` is RCV.NXT after it.
    pub(crate) fn begin(&mut self, value: u32, expected: Sequence, now: Instant) {
        (self.ts_recent, self.ts_recent_at, self.last_ack_sent) = (value, now, expected);
    }

    /// Returns the option for a segment. It carries an echo only if the segment has ACK set.
    #[inline]
    pub(crate) fn option(&self, acknowledges: bool, now: Instant) -> Timestamps {
        Timestamps { value: self.value(now), echo: if acknowledges { self.ts_recent } else { 0 } }
    }

    #[inline]
    fn value(&self, now: Instant) -> u32 {
        value(self.offset, now)
    }

    /// Records that an ACK was sent.
    #[inline]
    pub(crate) fn on_acknowledgment_sent(&mut self, expected: Sequence) {
        self.last_ack_sent = expected;
    }

    /// Returns whether PAWS rejects `value` (RFC 7323 §5.3, R1).
    #[inline]
    pub(crate) fn fails_paws(&self, value: u32, now: Instant) -> bool {
        (value.wrapping_sub(self.ts_recent) as i32) < 0 && now.since(self.ts_recent_at) <= IDLE_MAX
    }

    /// Returns whether `value` equals TS.Recent.
    pub(crate) fn is_last(&self, value: u32) -> bool {
        value == self.ts_recent
    }

    /// Returns whether `value` is newer than TS.Recent.
    pub(crate) fn is_behind_last(&self, value: u32) -> bool {
        (value.wrapping_sub(self.ts_recent) as i32) > 0
    }

    /// Records the value of an acceptable segment (RFC 7323 §4.3 (2) and §5.3 R3).
    #[inline]
    pub(crate) fn take(&mut self, value: u32, sequence: Sequence, now: Instant) {
        if sequence.le(self.last_ack_sent) {
            (self.ts_recent, self.ts_recent_at) = (value, now);
        }
    }

    /// Returns whether `echo` is a timestamp from before the time `moment`.
    pub(crate) fn is_echo_before(&self, echo: u32, moment: Instant) -> bool {
        echo != 0 && (echo.wrapping_sub(self.value(moment)) as i32) < 0
    }

    /// Returns how long ago we sent `echo`, within a millisecond, if we may have sent it.
    pub(crate) fn rtt_of_echo(&self, echo: u32, now: Instant) -> Option<Duration> {
        let trip = self.value(now).wrapping_sub(echo);
        // Zero means no echo (§3.2); a value ahead of our clock was never sent.
        (echo != 0 && (trip as i32) >= 0).then(|| Duration::from_millis(u64::from(trip)))
    }
}

/// Returns the timestamp clock of a connection whose offset is `offset`.
#[inline]
pub(crate) fn value(offset: u32, now: Instant) -> u32 {
    offset.wrapping_add((now.as_nanos() / 1_000_000) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn timestamps_compare_modulo_2_32_and_expire_after_24_days() {
        let mut stamps = TimestampState::new(7);
        stamps.begin(5, Sequence(100), at(0));
        let rows =
            [(5, 1, false), (4, 1, true), (6, 1, false), (0x8000_0006, 1, true), (0x8000_0004, 1, false)];
        for (value, ms, old) in rows {
            assert_eq!(stamps.fails_paws(value, at(ms)), old, "{value}");
        }
        let days = |days: u64| at(days * 24 * 3600 * 1000);
        assert!(stamps.fails_paws(4, days(24)) && !stamps.fails_paws(4, days(25)));
    }

    #[test]
    fn an_ack_for_several_segments_echoes_the_first_timestamp() {
        let mut stamps = TimestampState::new(0);
        stamps.begin(10, Sequence(100), at(0));
        stamps.take(20, Sequence(100), at(1));
        stamps.take(30, Sequence(200), at(2));
        assert_eq!(stamps.option(true, at(2)), Timestamps { value: 2, echo: 20 });
        stamps.on_acknowledgment_sent(Sequence(300));
        stamps.take(40, Sequence(300), at(3));
        assert_eq!((stamps.ts_recent, stamps.option(false, at(3)).echo), (40, 0));
    }

    #[test]
    fn an_echo_of_an_unsent_timestamp_gives_no_rtt_sample() {
        let stamps = TimestampState::new(u32::MAX - 10);
        let said = stamps.value(at(100));
        assert_eq!(stamps.rtt_of_echo(said, at(130)), Some(Duration::from_millis(30)));
        assert_eq!(
            (stamps.rtt_of_echo(0, at(130)), stamps.rtt_of_echo(said.wrapping_add(31), at(130))),
            (None, None)
        );
    }
}
