//! RTT estimate and retransmission timeout (RFC 6298).
//!
//! Samples          are taken from segments sent only once (Karn's rule, §3), one sample per round trip. Many
//!                  samples from one window would make RTTVAR decay too fast (RFC 7323 appendix G).
//! Minimum RTT      the minimum over the last minutes, for RACK's reordering window (RFC 8985 §6.2); every
//!                  sample counts.

use crate::tcp::config::Config;
use core::time::Duration;
use kiban_base::Instant;

/// RTO for data after a SYN was lost (RFC 6298 §5.7).
const AFTER_LOST_SYN: Duration = Duration::from_secs(3);
/// The minimum RTT is kept for one to two of these periods, because paths change.
const LEAST_PERIOD: Duration = Duration::from_secs(150);

/// The RTT estimate of one session.
#[derive(Debug)]
pub(crate) struct Rtt {
    srtt: Option<Duration>,
    rttvar: Duration,
    rto: Duration,
    backoff: u32,
    /// Time of the last sample. Segments sent before that time belong to the same window.
    sampled_at: Instant,
    /// The minimum RTT of this period and of the one before.
    min_rtt: [Duration; 2],
    least_since: Instant,
    /// After a spurious timeout, the first sample of a segment sent from this time on can only raise the
    /// estimate.
    raised_from: Option<Instant>,
}

impl Rtt {
    pub(crate) fn new(config: &Config) -> Rtt {
        Rtt {
            srtt: None,
            rttvar: Duration::ZERO,
            rto: config.rto_initial,
            backoff: 0,
            sampled_at: Instant::ZERO,
            min_rtt: [Duration::MAX; 2],
            least_since: Instant::ZERO,
            raised_from: None,
        }
    }

    /// Takes a sample from a segment that was sent only once, at `left`.
    #[inline]
    pub(crate) fn on_delivered(&mut self, left: Instant, now: Instant, config: &Config) {
        let trip = now.since(left);
        if now.since(self.least_since) > LEAST_PERIOD {
            self.min_rtt = [Duration::MAX, self.min_rtt[0]];
            self.least_since = now;
        }
        self.min_rtt[0] = self.min_rtt[0].min(trip);
        if self.srtt.is_none() || left >= self.sampled_at {
            self.sampled_at = now;
            self.sample(trip, left, config);
        }
    }

    /// Returns the minimum RTT of the last minutes; zero before the first sample.
    #[inline]
    pub(crate) fn min_rtt(&self) -> Duration {
        match self.min_rtt[0].min(self.min_rtt[1]) {
            Duration::MAX => Duration::ZERO,
            least => least,
        }
    }

    /// Takes a sample from a timestamp echo (RFC 7323 §4). Such a sample is unambiguous, but in whole
    /// milliseconds, so it does not count for the minimum RTT.
    pub(crate) fn on_echo(&mut self, trip: Duration, now: Instant, config: &Config) {
        if self.srtt.is_none() || now.since(self.sampled_at) >= trip {
            self.sampled_at = now;
            self.sample(trip, now - trip, config);
        }
    }

    /// Returns the RTT variation.
    pub(crate) fn rttvar(&self) -> Duration {
        self.rttvar
    }

    fn sample(&mut self, trip: Duration, left: Instant, config: &Config) {
        let raises = self.raised_from.is_some_and(|from| from <= left);
        let smoothed = match self.srtt {
            None => {
                self.rttvar = trip / 2;
                trip
            }
            Some(smoothed) if raises => {
                // RFC 4015 §3.3, step 8.
                self.raised_from = None;
                self.rttvar = self.rttvar.max(trip / 2);
                smoothed.max(trip)
            }
            Some(smoothed) => {
                self.rttvar = (self.rttvar * 3 + smoothed.abs_diff(trip)) / 4;
                (smoothed * 7 + trip) / 8
            }
        };
        self.srtt = Some(smoothed);
        // RFC 6298 §5: the back-off stays until there is a new sample. Otherwise, on a path whose RTT exceeds
        // the RTO, everything would be sent twice and no sample would ever be taken.
        self.backoff = 0;
        self.rto = (smoothed + self.rttvar * 4).clamp(config.rto_min, config.rto_max);
    }

    /// Returns the current RTO, with back-off (RFC 6298 §5.5).
    #[inline]
    pub(crate) fn rto(&self, config: &Config) -> Duration {
        self.rto.saturating_mul(1 << self.backoff.min(16)).min(config.rto_max)
    }

    /// Doubles the RTO after a timeout.
    pub(crate) fn on_timeout(&mut self) {
        self.backoff += 1;
    }

    /// Makes the timeout more conservative after a spurious timeout (RFC 4015 §3.3).
    pub(crate) fn on_spurious_timeout(&mut self, now: Instant) {
        self.raised_from = Some(now);
    }

    /// Clears the back-off when the peer's window opens, because the back-off was due to window probes, not
    /// to the path.
    pub(crate) fn on_reopened(&mut self) {
        self.backoff = 0;
    }

    /// Ends the handshake. Returns how many SYNs were lost.
    pub(crate) fn on_opened(&mut self) -> u32 {
        let lost = core::mem::take(&mut self.backoff);
        if lost > 0 && self.srtt.is_none() {
            // RFC 6298 §5.7.
            self.rto = self.rto.max(AFTER_LOST_SYN);
        }
        lost
    }

    /// Returns the smoothed RTT, if there has been a sample.
    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.srtt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_sets_and_later_ones_smooth() {
        let config = Config { rto_min: Duration::from_millis(1), ..Config::default() };
        let mut rtt = Rtt::new(&config);
        assert_eq!(rtt.rto(&config), Duration::from_secs(1));
        rtt.on_delivered(Instant::ZERO, Instant::from_nanos(100_000_000), &config);
        // RFC 6298 §2.2: SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 RTTVAR.
        assert_eq!(rtt.rto(&config), Duration::from_millis(300));
        rtt.on_delivered(Instant::from_nanos(50_000_000), Instant::from_nanos(110_000_000), &config);
        assert_eq!(rtt.rto(&config), Duration::from_millis(300), "it left before the last sample");
        rtt.on_delivered(Instant::from_nanos(110_000_000), Instant::from_nanos(290_000_000), &config);
        // §2.3: RTTVAR = 3/4·50 + 1/4·80 = 57.5, SRTT = 7/8·100 + 1/8·180 = 110.
        assert_eq!(rtt.rto(&config), Duration::from_millis(340));
        rtt.on_timeout();
        assert_eq!(rtt.rto(&config), Duration::from_millis(680));
        assert_eq!(rtt.min_rtt(), Duration::from_millis(60));
    }

    #[test]
    fn after_a_spurious_timeout_the_next_sample_only_raises_the_estimate() {
        let config = Config { rto_min: Duration::from_millis(1), ..Config::default() };
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let mut rtt = Rtt::new(&config);
        rtt.on_delivered(at(0), at(100), &config);
        rtt.on_spurious_timeout(at(500));
        // RFC 4015 §3.3, step 8: only a segment sent after the detection counts.
        rtt.on_delivered(at(200), at(600), &config);
        assert_eq!(rtt.srtt(), Some(Duration::from_micros(137_500)));
        rtt.on_delivered(at(600), at(1000), &config);
        assert_eq!(rtt.srtt(), Some(Duration::from_millis(400)));
        assert_eq!(rtt.rto(&config), Duration::from_millis(1200));
        rtt.on_delivered(at(1000), at(1400), &config);
        assert_eq!(rtt.rto(&config), Duration::from_millis(1000));
    }

    #[test]
    fn the_minimum_rtt_expires() {
        let config = Config::default();
        let mut rtt = Rtt::new(&config);
        for second in 1..700u64 {
            let trip = Duration::from_millis(if second < 100 { 10 } else { 30 });
            let now = Instant::from_nanos(second * 1_000_000_000);
            rtt.on_delivered(now - trip, now, &config);
            let known = rtt.min_rtt().as_millis();
            assert_eq!(
                known,
                if second < 300 {
                    10
                } else if second > 410 {
                    30
                } else {
                    known
                }
            );
        }
    }
}
