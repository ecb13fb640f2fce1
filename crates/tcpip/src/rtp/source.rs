//! The stream of one source, as its receiver sees it.
//!
//! Probation    a source is valid after two packets with consecutive sequence numbers (A.1). The first of
//!              them is not part of the statistics.
//! Sequence     a sequence number far from the last one is ignored, unless the next packet continues it:
//!              then the sender has restarted, and the statistics begin again.
//! Lost         expected minus received packets (A.3), negative if packets are duplicated. A packet that
//!              arrives late is not lost.
//! Jitter       a smoothed mean of the differences between the transit times of packets that arrive one
//!              after the other (A.8). Sender and receiver need no common clock, only clocks of equal speed.
//! Reordered    packets that arrive after one with a higher sequence number. RFC 3550 does not separate them
//!              from duplicates; a bit for each of the last 128 sequence numbers does.

use crate::wire::rtcp::ReportBlock;
use kiban_base::Instant;

/// Consecutive packets that make a source valid.
const MIN_SEQUENTIAL: u16 = 2;
/// The largest gap between sequence numbers that counts as loss.
const MAX_DROPOUT: u16 = 3000;
/// How far behind a packet may be to count as reordered.
const MAX_MISORDER: u16 = 100;

/// The result of a packet's sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The packet is part of the stream.
    Valid,
    /// Too few consecutive packets have arrived so far.
    Probation,
    /// The sequence number is far from those of the stream.
    Jump,
}

/// The statistics of one source.
#[derive(Clone, PartialEq, Debug)]
pub struct Source {
    ssrc: u32,
    clock_hz: u32,
    probation: u16,
    /// The highest sequence number, and how often it has wrapped, times 2^16.
    highest: u16,
    cycles: u32,
    base: u32,
    /// The sequence number that would confirm a restart.
    restart: Option<u16>,
    received: u64,
    duplicates: u64,
    reordered: u64,
    /// Packets that were not counted: during probation, and with a jump.
    ignored: u64,
    restarts: u64,
    /// Bit n is set if the packet n before the highest one has arrived.
    seen: u128,
    expected_before: u64,
    received_before: u64,
    /// The last transit time, in units of the clock, with an unknown offset.
    transit: Option<u32>,
    /// Sixteen times the jitter, in units of the clock.
    jitter_sixteenths: u32,
    /// The middle 32 bits of the last sender report's NTP timestamp, and when it arrived.
    last_report: Option<(u32, Instant)>,
}

impl Source {
    /// Creates the state of a source whose payload's clock has this frequency.
    pub fn new(ssrc: u32, clock_hz: u32) -> Source {
        Source {
            ssrc,
            clock_hz: clock_hz.max(1),
            probation: MIN_SEQUENTIAL,
            highest: 0,
            cycles: 0,
            base: 0,
            restart: None,
            received: 0,
            duplicates: 0,
            reordered: 0,
            ignored: 0,
            restarts: 0,
            seen: 0,
            expected_before: 0,
            received_before: 0,
            transit: None,
            jitter_sixteenths: 0,
            last_report: None,
        }
    }

    /// Begins the statistics with this packet.
    fn begin(&mut self, sequence: u16) {
        self.base = sequence.into();
        (self.highest, self.cycles, self.restart) = (sequence, 0, None);
        (self.received, self.duplicates, self.reordered, self.seen) = (0, 0, 0, 1);
        (self.expected_before, self.received_before) = (0, 0);
        (self.transit, self.jitter_sixteenths) = (None, 0);
    }

    /// Handles the header of a packet that arrived now.
    pub fn on_packet(&mut self, sequence: u16, timestamp: u32, now: Instant) -> Verdict {
        let verdict = self.on_sequence(sequence);
        if verdict == Verdict::Valid {
            self.received += 1;
            self.on_transit(units(now, self.clock_hz).wrapping_sub(timestamp));
        } else {
            self.ignored += 1;
        }
        verdict
    }

    /// A.1.
    fn on_sequence(&mut self, sequence: u16) -> Verdict {
        let ahead = sequence.wrapping_sub(self.highest);
        if self.probation > 0 {
            self.probation = match (self.probation, ahead) {
                // The first packet has no predecessor.
                (MIN_SEQUENTIAL, _) if self.ignored == 0 => MIN_SEQUENTIAL - 1,
                (left, 1) => left - 1,
                _ => MIN_SEQUENTIAL - 1,
            };
            self.highest = sequence;
            if self.probation > 0 {
                return Verdict::Probation;
            }
            self.begin(sequence);
        } else if ahead == 0 {
            self.duplicates += 1;
        } else if ahead < MAX_DROPOUT {
            self.cycles = self.cycles.wrapping_add(u32::from(sequence < self.highest) << 16);
            self.highest = sequence;
            self.seen = self.seen.checked_shl(ahead.into()).unwrap_or(0) | 1;
        } else if ahead <= u16::MAX - MAX_MISORDER + 1 {
            if self.restart != Some(sequence) {
                self.restart = Some(sequence.wrapping_add(1));
                return Verdict::Jump;
            }
            self.begin(sequence);
            self.restarts += 1;
        } else {
            let bit = 1 << ahead.wrapping_neg();
            let is_new = self.seen & bit == 0;
            *(if is_new { &mut self.reordered } else { &mut self.duplicates }) += 1;
            self.seen |= bit;
        }
        Verdict::Valid
    }

    /// A.8, in integers: J += (|D| - J) / 16.
    fn on_transit(&mut self, transit: u32) {
        if let Some(last) = self.transit {
            let difference = (transit.wrapping_sub(last) as i32).unsigned_abs();
            let decay = (self.jitter_sixteenths + 8) >> 4;
            self.jitter_sixteenths = self.jitter_sixteenths.saturating_add(difference) - decay;
        }
        self.transit = Some(transit);
    }

    /// Handles a sender report with this NTP timestamp.
    pub fn on_sender_report(&mut self, ntp: u64, now: Instant) {
        self.last_report = Some(((ntp >> 16) as u32, now));
    }

    /// Returns whether enough consecutive packets have arrived.
    pub fn is_valid(&self) -> bool {
        self.probation == 0
    }

    /// Returns the extended highest sequence number.
    pub fn highest_sequence(&self) -> u32 {
        self.cycles.wrapping_add(self.highest.into())
    }

    /// Returns the number of packets that were expected, from the first valid one to the highest.
    pub fn expected(&self) -> u64 {
        if self.is_valid() { u64::from(self.highest_sequence().wrapping_sub(self.base)) + 1 } else { 0 }
    }

    /// Returns the number of valid packets, with duplicates.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Returns the number of lost packets; negative if there were more duplicates.
    pub fn lost(&self) -> i64 {
        self.expected() as i64 - self.received as i64
    }

    /// Returns the number of packets that arrived after one with a higher sequence number.
    pub fn reordered(&self) -> u64 {
        self.reordered
    }

    /// Returns the number of duplicates.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Returns the number of packets that are not part of the statistics: during probation, and jumps.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Returns how often the sender has restarted.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Returns the jitter, in units of the payload's clock.
    pub fn jitter(&self) -> u32 {
        self.jitter_sixteenths >> 4
    }

    /// Returns the jitter in microseconds.
    pub fn jitter_us(&self) -> f64 {
        f64::from(self.jitter_sixteenths) / 16.0 * 1e6 / f64::from(self.clock_hz)
    }

    /// Returns the last packet's transit time in units of the payload's clock. Its offset is unknown, because
    /// it depends on both clocks and on the first timestamp, but differences are valid.
    pub fn transit(&self) -> Option<u32> {
        self.transit
    }

    /// Returns the report block about this source, and begins the next interval (A.3).
    pub fn report(&mut self, now: Instant) -> ReportBlock {
        let (expected, received) = (self.expected(), self.received);
        let expected_now = expected - self.expected_before.min(expected);
        let lost_now = expected_now as i64 - (received - self.received_before) as i64;
        (self.expected_before, self.received_before) = (expected, received);
        let fraction_lost = match lost_now {
            1.. if expected_now > 0 => ((lost_now as u64) << 8) / expected_now,
            _ => 0,
        };
        let (last_report, delay) = self.last_report.map_or((0, 0), |(middle, at)| {
            let nanos = u128::from(now.as_nanos().saturating_sub(at.as_nanos()));
            (middle, u32::try_from((nanos << 16) / 1_000_000_000).unwrap_or(u32::MAX))
        });
        ReportBlock {
            ssrc: self.ssrc,
            fraction_lost: fraction_lost.min(255) as u8,
            lost: self.lost().clamp(i32::MIN.into(), i32::MAX.into()) as i32,
            highest_sequence: self.highest_sequence(),
            jitter: self.jitter(),
            last_report,
            delay_since_last_report: delay,
        }
    }
}

/// Returns a point in time in units of a clock, modulo 2^32.
pub(super) fn units(now: Instant, clock_hz: u32) -> u32 {
    (u128::from(now.as_nanos()) * u128::from(clock_hz) / 1_000_000_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use core::time::Duration;

    const HZ: u32 = 8000;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// Passes packets, one every 20 ms, with timestamps to match.
    fn source(sequences: &[u16]) -> (Source, Vec<Verdict>) {
        let mut source = Source::new(7, HZ);
        let verdicts = sequences
            .iter()
            .enumerate()
            .map(|(count, sequence)| source.on_packet(*sequence, 160 * count as u32, at(20 * count as u64)));
        let verdicts = verdicts.collect();
        (source, verdicts)
    }

    #[test]
    fn sequence_numbers_are_validated_as_in_appendix_a_1() {
        use Verdict::{Jump, Probation, Valid};
        for (what, sequences, verdicts, (expected, received, lost, reordered, duplicates)) in [
            ("in order", &[5, 6, 7][..], &[Probation, Valid, Valid][..], (2, 2, 0, 0, 0)),
            ("a gap in probation", &[5, 7, 8, 9], &[Probation, Probation, Valid, Valid], (2, 2, 0, 0, 0)),
            ("a loss", &[5, 6, 9], &[Probation, Valid, Valid], (4, 2, 2, 0, 0)),
            ("a late packet", &[5, 6, 8, 7], &[Probation, Valid, Valid, Valid], (3, 3, 0, 1, 0)),
            ("a duplicate", &[5, 6, 6, 7, 6], &[Probation, Valid, Valid, Valid, Valid], (2, 4, -2, 0, 2)),
            ("a wrap", &[65534, 65535, 0, 1], &[Probation, Valid, Valid, Valid], (3, 3, 0, 0, 0)),
            (
                "late across a wrap",
                &[65533, 65534, 0, 65535],
                &[Probation, Valid, Valid, Valid],
                (3, 3, 0, 1, 0),
            ),
            ("a stray packet", &[5, 6, 9000, 7], &[Probation, Valid, Jump, Valid], (2, 2, 0, 0, 0)),
            (
                "a restart",
                &[5, 6, 9000, 9001, 9002],
                &[Probation, Valid, Jump, Valid, Valid],
                (2, 2, 0, 0, 0),
            ),
        ] {
            let (source, seen) = source(sequences);
            assert_eq!(seen, verdicts, "{what}");
            let counts = (source.expected(), source.received(), source.lost());
            assert_eq!(counts, (expected, received, lost), "{what}");
            assert_eq!((source.reordered(), source.duplicates()), (reordered, duplicates), "{what}");
        }
        assert_eq!(source(&[5, 6, 9000, 9001]).0.restarts(), 1);
        let (wrapped, _) = source(&[65534, 65535, 0]);
        assert_eq!(wrapped.highest_sequence(), 1 << 16);
    }

    #[test]
    fn a_report_has_the_losses_of_its_interval_and_of_all_time() {
        let (mut source, _) = source(&[1, 2, 3, 6, 7, 8, 9]);
        let report = source.report(at(1000));
        // Of 2 to 9, two of eight are missing.
        assert_eq!((report.fraction_lost, report.lost, report.highest_sequence), (64, 2, 9));
        assert_eq!((report.last_report, report.delay_since_last_report), (0, 0));
        source.on_packet(10, 0, at(1020));
        source.on_sender_report(0x1122_3344_5566_7788, at(1500));
        let report = source.report(at(2000));
        assert_eq!((report.fraction_lost, report.lost), (0, 2));
        assert_eq!((report.last_report, report.delay_since_last_report), (0x3344_5566, 0x8000));
    }

    #[test]
    fn jitter_converges_to_the_mean_difference_of_transit_times() {
        let mut source = Source::new(7, 90_000);
        // Every second packet is 10 ms late, so transit times differ by 10 ms, which is 900 units.
        for count in 0..400u32 {
            let late = if count % 2 == 0 { 0 } else { 10 };
            source.on_packet(count as u16, 1800 * count, at(u64::from(20 * count + late)));
        }
        assert!((880..=900).contains(&source.jitter()), "{}", source.jitter());
        assert!((source.jitter_us() - 10_000.0).abs() < 200.0, "{}", source.jitter_us());
        // Packets at an even pace let it decay by a sixteenth each.
        for count in 400..800u32 {
            source.on_packet(count as u16, 1800 * count, at(u64::from(20 * count)));
        }
        assert_eq!(source.jitter(), 0);
    }
}
