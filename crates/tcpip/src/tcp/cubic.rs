//! CUBIC: the window as a cubic function of the time since the last loss (RFC 9438).
//!
//! Theory           after a loss at `w_max` segments the window falls to 0.7 of it and grows again along W(t)
//!                  = C (t - K)^3 + w_max: fast at first, flat near `w_max`, fast again beyond it. Growth
//!                  depends on time, not on the round trip, so long paths are not at a disadvantage. Where
//!                  Reno would grow faster, the window follows Reno.
//! Units            segments and seconds, as in the RFC, in binary floating point: additions, multiplications
//!                  and a cube root by Newton's method, with the same result on every machine.

use core::time::Duration;
use kiban_base::Instant;

/// Multiplicative decrease factor (RFC 9438 §4.6).
const BETA: f64 = 0.7;
/// The same for ECN marks (RFC 8511 §3.1).
const BETA_ECN: f64 = 0.85;
/// Aggressiveness of growth, segments per second cubed (RFC 9438 §5.1).
const C: f64 = 0.4;
/// Additive increase factor that matches Reno's rate with this `BETA` (RFC 9438 §4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// The CUBIC state of one session.
#[derive(Clone, Debug, Default)]
pub(super) struct Cubic {
    /// The window at the last loss, segments.
    w_max: f64,
    /// The Reno-friendly estimate of the window, segments.
    w_est: f64,
    /// Time from the start of the epoch to the plateau, seconds.
    k: f64,
    epoch: Option<Instant>,
    /// Fractional growth carried over, bytes.
    credit: f64,
}

impl Cubic {
    /// Reacts to a loss at `window` bytes. Returns the new threshold, bytes.
    pub(super) fn reduce(&mut self, window: u32, mss: u32) -> u32 {
        self.reduce_by(BETA, window, mss)
    }

    /// Reacts to an ECN mark at `window` bytes. Returns the new threshold, bytes.
    pub(super) fn reduce_for_ecn(&mut self, window: u32, mss: u32) -> u32 {
        self.reduce_by(BETA_ECN, window, mss)
    }

    fn reduce_by(&mut self, beta: f64, window: u32, mss: u32) -> u32 {
        let window = f64::from(window) / f64::from(mss);
        // §4.7, fast convergence: after a loss below the last maximum, leave room for other flows.
        self.w_max = if window < self.w_max { window * (1.0 + BETA) / 2.0 } else { window };
        self.epoch = None;
        ((window * beta) as u32).max(2) * mss
    }

    /// Shifts the epoch by a period in which the window did not limit the session (§5.8).
    pub(super) fn pause(&mut self, pause: Duration) {
        if let Some(epoch) = &mut self.epoch {
            *epoch += pause;
        }
    }

    /// Returns by how many bytes `window` grows after `acked` bytes were acknowledged (§4.2 to §4.5).
    pub(super) fn grow(
        &mut self,
        acked: u32,
        window: u32,
        mss: u32,
        now: Instant,
        round_trip: Duration,
    ) -> u32 {
        let mss = f64::from(mss);
        let (segments, acked) = (f64::from(window) / mss, f64::from(acked) / mss);
        let epoch = *self.epoch.get_or_insert_with(|| {
            if segments < self.w_max {
                self.k = cube_root((self.w_max - segments) / C);
            } else {
                self.k = 0.0;
                self.w_max = segments;
            }
            (self.w_est, self.credit) = (segments, 0.0);
            now
        });
        let cubic = |t: f64| C * (t - self.k) * (t - self.k) * (t - self.k) + self.w_max;
        let t = now.since(epoch).as_secs_f64();
        let alpha = if self.w_est < self.w_max { ALPHA } else { 1.0 };
        self.w_est += alpha * acked / segments;
        let grown = if cubic(t) < self.w_est {
            (self.w_est - segments).max(0.0)
        } else {
            let target = cubic(t + round_trip.as_secs_f64()).clamp(segments, 1.5 * segments);
            (target - segments) / segments * acked
        };
        self.credit += grown * mss;
        let bytes = self.credit as u32;
        self.credit -= f64::from(bytes);
        bytes
    }
}

/// Returns the cube root of a number that is not negative.
fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    // Dividing the exponent by three gives a guess within 6 %; each Newton step doubles the correct digits.
    let mut root = f64::from_bits(x.to_bits() / 3 + (1023 - 1023 / 3) * (1 << 52));
    for _ in 0..5 {
        root -= (root * root * root - x) / (3.0 * root * root);
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    #[test]
    fn cube_roots_are_right_to_the_last_digits() {
        for root in [1e-3, 0.1, 0.5, 1.0, 1.7, 3.0, 42.0, 1e4, 3e6] {
            let found = cube_root(root * root * root);
            assert!((found / root - 1.0).abs() < 1e-12, "{root} {found}");
        }
        assert_eq!(cube_root(0.0), 0.0);
    }

    /// RFC 9438 §4.2: the window is back at the old maximum after K seconds, where growth is flat.
    #[test]
    fn the_window_returns_to_its_maximum_after_k_seconds_and_is_flat_there() {
        let mut cubic = Cubic::default();
        let trip = Duration::from_millis(100);
        let mut window = cubic.reduce(1_000_000, MSS);
        assert_eq!(window, 700_000);
        let k = cube_root(300.0 / C);
        assert!((k - 9.086).abs() < 0.001);
        let (mut now, mut at_k, mut early) = (Instant::ZERO, 0, 0);
        while now.since(Instant::ZERO).as_secs_f64() < k + 4.0 {
            window += cubic.grow(window, window, MSS, now, trip);
            now += trip;
            let t = now.since(Instant::ZERO).as_secs_f64();
            if t <= 1.0 {
                early = window;
            }
            if t <= k {
                at_k = window;
            }
        }
        assert!((early - 700_000) > 80_000, "steep at first: {early}");
        assert!((990_000..=1_001_000).contains(&at_k), "flat at the old maximum: {at_k}");
        assert!(window > 1_020_000, "and beyond it: {window}");
    }

    /// RFC 9438 §4.3: on a short path the window grows as Reno's would.
    #[test]
    fn on_a_short_path_it_grows_as_reno_would() {
        let mut cubic = Cubic::default();
        let trip = Duration::from_millis(1);
        let mut window = cubic.reduce(20_000, MSS);
        let begin = window;
        for trips in 0..10u64 {
            window += cubic.grow(window, window, MSS, Instant::from_nanos(trips * 1_000_000), trip);
        }
        let segments = f64::from(window - begin) / f64::from(MSS);
        assert!((segments - 10.0 * ALPHA).abs() < 0.4, "{segments}");
    }

    #[test]
    fn a_loss_below_the_last_maximum_reduces_it_further() {
        let mut cubic = Cubic::default();
        cubic.reduce(1_000_000, MSS);
        cubic.reduce(900_000, MSS);
        assert!((cubic.w_max - 765.0).abs() < 1e-9);
    }
}
