//! Playout of a stream at the far end: a buffer whose read rate is controlled by its fill level (I.363.1
//! §2.5.2.2).
//!
//! Look      the level is measured just before octets are added, at most once per [`LOOK`]. If octets arrive
//!           in matrices, the level is a sawtooth whose lower edge moves only if the clocks differ.
//! Begin     reading begins once octets for [`ALLOWANCE`] are buffered; that level is the target.
//! Rate      the reported rate is the average over the last quarter of the run; before that, the loop is
//!           settling.
//! Bounds    the rate stays within [`TOLERANCE_PPM`]. An underrun is counted, and the buffer is then filled
//!           again. Octets beyond [`ROOM`] are dropped and counted.

use kiban_atm::aal1::Adaptive;
use kiban_base::Instant;
use std::time::Duration;

/// Delay variation that the buffer absorbs before it runs empty.
const ALLOWANCE: Duration = Duration::from_millis(20);
/// Capacity of the buffer, as playing time.
const ROOM: Duration = Duration::from_millis(500);
/// Minimum time between two measurements of the level.
const LOOK: Duration = Duration::from_millis(2);
/// Maximum deviation of the rate from the nominal rate.
const TOLERANCE_PPM: u32 = 1000;
/// Maximum number of recorded read positions. If there are more, every second one is dropped.
const MARKS_MAX: usize = 512;

/// The result of a clock recovery.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Recovered {
    /// By how much the read rate exceeded the nominal rate over the last quarter of the run, in parts per
    /// million.
    pub ppm: f64,
    /// By how much the buffer fell below its intended level, milliseconds.
    pub below_ms: f64,
    /// By how much the buffer rose above its intended level, milliseconds.
    pub above_ms: f64,
    /// Number of underruns and overruns.
    pub slips: u64,
}

/// The buffer and its reader.
#[derive(Clone, Debug)]
pub struct Playout {
    bits_per_second: u64,
    settle: Duration,
    rule: Option<Adaptive>,
    target: f64,
    level: f64,
    ratio: f64,
    read: f64,
    at: Instant,
    looked: Instant,
    least: f64,
    most: f64,
    slips: u64,
    marks: Vec<(Instant, f64)>,
    apart: Duration,
}

impl Playout {
    /// Creates the loop for a stream of a nominal rate; it settles in slightly more than `settle`.
    pub fn new(bits_per_second: u64, settle: Duration) -> Playout {
        Playout {
            bits_per_second: bits_per_second.max(1),
            settle,
            rule: None,
            target: 0.0,
            level: 0.0,
            ratio: 1.0,
            read: 0.0,
            at: Instant::ZERO,
            looked: Instant::ZERO,
            least: f64::INFINITY,
            most: f64::NEG_INFINITY,
            slips: 0,
            marks: Vec::new(),
            apart: LOOK,
        }
    }

    fn octets_of(&self, length: Duration) -> f64 {
        self.bits_per_second as f64 / 8.0 * length.as_secs_f64()
    }

    /// Records the arrival of octets.
    pub fn on_octets(&mut self, count: usize, at: Instant) {
        let at = at.max(self.at);
        if let Some(mut rule) = self.rule {
            self.read_until(at);
            (self.least, self.most) = (self.least.min(self.level), self.most.max(self.level));
            let elapsed = at.since(self.looked);
            if elapsed >= LOOK {
                self.looked = at;
                self.ratio = rule.on_level(self.level as usize, elapsed);
                self.rule = Some(rule);
                self.mark(at);
            }
        } else if self.level >= self.octets_of(ALLOWANCE) {
            self.target = self.level;
            self.rule =
                Some(Adaptive::new(self.bits_per_second, self.level as usize, self.settle, TOLERANCE_PPM));
            self.looked = at;
            self.marks.push((at, 0.0));
        }
        self.at = at;
        self.level += count as f64;
        let room = self.target + self.octets_of(ROOM);
        if self.rule.is_some() && self.level > room {
            (self.level, self.slips) = (room, self.slips + 1);
        }
    }

    fn read_until(&mut self, at: Instant) {
        let wanted = self.octets_of(at.since(self.at)) * self.ratio;
        self.read += wanted;
        self.level -= wanted;
        if self.level < 0.0 {
            (self.level, self.slips) = (0.0, self.slips + 1);
        }
    }

    fn mark(&mut self, at: Instant) {
        if self.marks.last().is_some_and(|(last, _)| at.since(*last) < self.apart) {
            return;
        }
        self.marks.push((at, self.read));
        if self.marks.len() > MARKS_MAX {
            let mut number = 0;
            self.marks.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.apart *= 2;
        }
    }

    /// Returns the result, or `None` if the loop has not had time to settle.
    pub fn recovered(&self) -> Option<Recovered> {
        let ((begin, _), (end, read)) = (self.marks.first()?, self.marks.last()?);
        let from = *begin + end.since(*begin).mul_f64(0.75);
        let (quarter, before) = self.marks.iter().find(|(at, _)| *at >= from)?;
        let length = end.since(*quarter);
        if end.since(*begin) < 8 * self.settle || length.is_zero() {
            return None;
        }
        let ratio = (read - before) / self.octets_of(length);
        let millis = |octets: f64| octets * 8e3 / self.bits_per_second as f64;
        Some(Recovered {
            ppm: (ratio - 1.0) * 1e6,
            below_ms: millis(self.target - self.least).max(0.0),
            above_ms: millis(self.most - self.target).max(0.0),
            slips: self.slips,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `lot` octets arrive at a time, at a rate that deviates by `ppm`; the n-th arrival is delayed by
    /// `late(n)` nanoseconds.
    fn recovered(ppm: f64, lot: usize, late: impl Fn(u64) -> u64) -> Recovered {
        let mut playout = Playout::new(2_048_000, Duration::from_secs(1));
        let apart = lot as f64 * 8.0 / (2_048_000.0 * (1.0 + ppm * 1e-6));
        for number in 1..(20.0 / apart) as u64 {
            let nanos = (number as f64 * apart * 1e9) as u64 + late(number);
            playout.on_octets(lot, Instant::from_nanos(nanos));
        }
        playout.recovered().expect("it had twenty seconds")
    }

    #[test]
    fn playout_follows_the_sources_rate() {
        for ppm in [-100.0, 0.0, 50.0, 200.0] {
            // Octets arrive in cells, or in matrices of RS(128, 124).
            for lot in [47, 5828] {
                let found = recovered(ppm, lot, |_| 0);
                assert!((found.ppm - ppm).abs() < 1.0, "{ppm} {lot}: {found:?}");
                assert_eq!(found.slips, 0);
                let (above, below) = if ppm > 0.0 { (1.0, 0.0) } else { (0.0, 1.0) };
                // A purely proportional rule that settles in a second would deviate by less than ppm · 1 s
                // until the integral has converged.
                let most = ppm.abs() * 1e-3 + 0.01;
                assert!(
                    found.above_ms <= most * above + 0.01 && found.below_ms <= most * below + 0.01,
                    "{ppm} {lot}: {found:?}"
                );
            }
        }
    }

    #[test]
    fn jitter_moves_the_buffer_but_hardly_the_rate_and_a_gap_empties_it() {
        let jitter = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
        let most_ms = f64::from(1 << 20) * 1e-6;
        let found = recovered(50.0, 470, jitter);
        assert!((found.ppm - 50.0).abs() < 10.0 && found.slips == 0, "{found:?}");
        // The level moves by the whole jitter, plus up to half of it until the mean level equals the target,
        // which was set from a single measurement. It also moves by the amount that the source gains before
        // the integral has converged. With a double pole at 2 s, a deviation of 50 ppm gains at most 50 ppm ·
        // 2 s / e.
        let most = 1.5 * most_ms + 50e-3 * 2.0 / std::f64::consts::E;
        let moved = found.above_ms + found.below_ms;
        assert!((0.9 * most_ms..most).contains(&moved), "{moved} {most}: {found:?}");
        let gap = recovered(0.0, 470, |number| if number > 4000 { 40_000_000 } else { 0 });
        assert_eq!(gap.slips, 1, "{gap:?}");
        assert!(gap.below_ms > 18.0, "{gap:?}");
    }
}
