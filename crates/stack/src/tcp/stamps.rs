//! Timestamps (RFC 7323 §3 to §5): a clock in every segment, and the peer's clock given back.
//!
//! Clock     milliseconds (§5.4 allows 1 ms to 1 s) from an offset that is a secret of the connection's name (§7.1): a
//!           stranger cannot read how long the board has run, and a name that is used again goes on where it was.
//! Echo      the newest value of a segment that held the next byte expected (§4.3): of several segments that one
//!           acknowledgement answers the first one's, so that the peer measures the delay as well.
//! Old       a segment whose value lies behind the newest one is a wanderer from a sequence space ago (§5, PAWS), unless
//!           nothing was heard for so long that the clock itself may have gone round.

use core::time::Duration;
use kiban_ground::Instant;
use kiban_wire::tcp::{Sequence, Timestamps};

/// RFC 7323 §5.5: a millisecond clock goes half round in 24.8 days; after this much silence nothing is called old.
const IDLE_MAX: Duration = Duration::from_secs(24 * 24 * 3600);

/// One session's timestamps.
#[derive(Debug)]
pub(super) struct Stamps {
    offset: u32,
    /// TS.Recent.
    recent: u32,
    /// When it was taken.
    recent_at: Instant,
    /// Last.ACK.sent.
    acknowledged: Sequence,
}

impl Stamps {
    pub(super) fn new(offset: u32) -> Stamps {
        Stamps { offset, recent: 0, recent_at: Instant::ZERO, acknowledged: Sequence(0) }
    }

    /// The peer's SYN carried `value`; `expected` follows it.
    pub(super) fn begin(&mut self, value: u32, expected: Sequence, now: Instant) {
        (self.recent, self.recent_at, self.acknowledged) = (value, now, expected);
    }

    /// What a segment carries; only one with ACK gives anything back.
    #[inline]
    pub(super) fn option(&self, acknowledges: bool, now: Instant) -> Timestamps {
        Timestamps { value: self.value(now), echo: if acknowledges { self.recent } else { 0 } }
    }

    #[inline]
    fn value(&self, now: Instant) -> u32 {
        value(self.offset, now)
    }

    /// Our acknowledgement has left.
    #[inline]
    pub(super) fn on_acknowledgment_sent(&mut self, expected: Sequence) {
        self.acknowledged = expected;
    }

    /// RFC 7323 §5.3, R1: whether `value` comes from long ago.
    #[inline]
    pub(super) fn is_old(&self, value: u32, now: Instant) -> bool {
        (value.wrapping_sub(self.recent) as i32) < 0 && now.since(self.recent_at) <= IDLE_MAX
    }

    /// Whether `value` is the newest one that we know.
    pub(super) fn is_last(&self, value: u32) -> bool {
        value == self.recent
    }

    /// Whether `value` comes after the newest one that we know.
    pub(super) fn is_behind_last(&self, value: u32) -> bool {
        (value.wrapping_sub(self.recent) as i32) > 0
    }

    /// RFC 7323 §4.3, 2, and §5.3, R3: the value of a segment that was taken.
    #[inline]
    pub(super) fn take(&mut self, value: u32, sequence: Sequence, now: Instant) {
        if sequence.le(self.acknowledged) {
            (self.recent, self.recent_at) = (value, now);
        }
    }

    /// How long ago we sent `echo`, if we may have sent it. A millisecond more or less.
    pub(super) fn trip(&self, echo: u32, now: Instant) -> Option<Duration> {
        let trip = self.value(now).wrapping_sub(echo);
        // Zero stands for nothing (§3.2); what lies ahead of our clock we have not said.
        (echo != 0 && (trip as i32) >= 0).then(|| Duration::from_millis(u64::from(trip)))
    }
}

/// The clock of a connection with that `offset`.
#[inline]
pub(super) fn value(offset: u32, now: Instant) -> u32 {
    offset.wrapping_add((now.as_nanos() / 1_000_000) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn what_is_old_is_told_by_the_shorter_way_round_and_not_after_24_days() {
        let mut stamps = Stamps::new(7);
        stamps.begin(5, Sequence(100), at(0));
        let rows =
            [(5, 1, false), (4, 1, true), (6, 1, false), (0x8000_0006, 1, true), (0x8000_0004, 1, false)];
        for (value, ms, old) in rows {
            assert_eq!(stamps.is_old(value, at(ms)), old, "{value}");
        }
        let days = |days: u64| at(days * 24 * 3600 * 1000);
        assert!(stamps.is_old(4, days(24)) && !stamps.is_old(4, days(25)));
    }

    #[test]
    fn of_segments_that_one_acknowledgement_answers_the_first_is_echoed() {
        let mut stamps = Stamps::new(0);
        stamps.begin(10, Sequence(100), at(0));
        stamps.take(20, Sequence(100), at(1));
        stamps.take(30, Sequence(200), at(2));
        assert_eq!(stamps.option(true, at(2)), Timestamps { value: 2, echo: 20 });
        stamps.on_acknowledgment_sent(Sequence(300));
        stamps.take(40, Sequence(300), at(3));
        assert_eq!((stamps.recent, stamps.option(false, at(3)).echo), (40, 0));
    }

    #[test]
    fn an_echo_of_what_was_never_said_measures_nothing() {
        let stamps = Stamps::new(u32::MAX - 10);
        let said = stamps.value(at(100));
        assert_eq!(stamps.trip(said, at(130)), Some(Duration::from_millis(30)));
        assert_eq!((stamps.trip(0, at(130)), stamps.trip(said.wrapping_add(31), at(130))), (None, None));
    }
}
