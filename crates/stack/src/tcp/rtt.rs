//! Round trips and the retransmission timeout (RFC 6298).
//!
//! Samples   of segments that were sent once (Karn's rule, §3), one a round trip: many samples of one window would make the
//!           variation forget (RFC 7323 appendix G).
//! Least     the least round trip of the last minutes, for RACK's reordering window (RFC 8985 §6.2): every sample counts.

use super::config::Config;
use core::time::Duration;
use kiban_ground::Instant;

/// The timeout with which data begins when a SYN was lost (RFC 6298 §5.7).
const AFTER_LOST_SYN: Duration = Duration::from_secs(3);
/// The least round trip is forgotten after once to twice so long, as paths change.
const LEAST_PERIOD: Duration = Duration::from_secs(150);

/// The estimate of one session.
#[derive(Debug)]
pub(super) struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
    timeout: Duration,
    backoff: u32,
    /// The moment of the last sample: what left before it belongs to the same window.
    sampled_at: Instant,
    /// The least round trip of this period and of the one before.
    least: [Duration; 2],
    least_since: Instant,
}

impl Rtt {
    pub(super) fn new(config: &Config) -> Rtt {
        Rtt {
            smoothed: None,
            variation: Duration::ZERO,
            timeout: config.rto_initial,
            backoff: 0,
            sampled_at: Instant::ZERO,
            least: [Duration::MAX; 2],
            least_since: Instant::ZERO,
        }
    }

    /// A segment that left at `left`, and only then, is known to have arrived.
    #[inline]
    pub(super) fn on_delivered(&mut self, left: Instant, now: Instant, config: &Config) {
        let trip = now.since(left);
        if now.since(self.least_since) > LEAST_PERIOD {
            self.least = [Duration::MAX, self.least[0]];
            self.least_since = now;
        }
        self.least[0] = self.least[0].min(trip);
        if self.smoothed.is_none() || left >= self.sampled_at {
            self.sampled_at = now;
            self.sample(trip, config);
        }
    }

    /// The least round trip of the last minutes; nothing before the first sample.
    #[inline]
    pub(super) fn least(&self) -> Duration {
        match self.least[0].min(self.least[1]) {
            Duration::MAX => Duration::ZERO,
            least => least,
        }
    }

    /// The peer gave back a timestamp that left so long ago (RFC 7323 §4): no doubt which transmission it was, but whole
    /// milliseconds, so that it tells nothing of the least.
    pub(super) fn on_echo(&mut self, trip: Duration, now: Instant, config: &Config) {
        if self.smoothed.is_none() || now.since(self.sampled_at) >= trip {
            self.sampled_at = now;
            self.sample(trip, config);
        }
    }

    /// How much round trips vary.
    pub(super) fn variation(&self) -> Duration {
        self.variation
    }

    fn sample(&mut self, trip: Duration, config: &Config) {
        let smoothed = match self.smoothed {
            None => {
                self.variation = trip / 2;
                trip
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(trip)) / 4;
                (smoothed * 7 + trip) / 8
            }
        };
        self.smoothed = Some(smoothed);
        // RFC 6298 §5: what was backed off stays so until there is a new measurement; without one, a path slower
        // than the timeout would be sent everything twice and never be measured.
        self.backoff = 0;
        self.timeout = (smoothed + self.variation * 4).clamp(config.rto_min, config.rto_max);
    }

    /// The timeout to arm now, backed off (RFC 6298 §5.5).
    #[inline]
    pub(super) fn timeout(&self, config: &Config) -> Duration {
        self.timeout.saturating_mul(1 << self.backoff.min(16)).min(config.rto_max)
    }

    /// A timeout passed: the next one is twice as long.
    pub(super) fn on_timeout(&mut self) {
        self.backoff += 1;
    }

    /// The peer's window has opened: what was backed off was the asking, not the path.
    pub(super) fn on_reopened(&mut self) {
        self.backoff = 0;
    }

    /// The handshake is complete; how many SYNs were lost before.
    pub(super) fn on_opened(&mut self) -> u32 {
        let lost = core::mem::take(&mut self.backoff);
        if lost > 0 && self.smoothed.is_none() {
            // RFC 6298 §5.7.
            self.timeout = self.timeout.max(AFTER_LOST_SYN);
        }
        lost
    }

    /// The smoothed round trip, once there has been one.
    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_sets_and_later_ones_smooth() {
        let config = Config { rto_min: Duration::from_millis(1), ..Config::default() };
        let mut rtt = Rtt::new(&config);
        assert_eq!(rtt.timeout(&config), Duration::from_secs(1));
        rtt.on_delivered(Instant::ZERO, Instant::from_nanos(100_000_000), &config);
        // RFC 6298 §2.2: SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 RTTVAR.
        assert_eq!(rtt.timeout(&config), Duration::from_millis(300));
        rtt.on_delivered(Instant::from_nanos(50_000_000), Instant::from_nanos(110_000_000), &config);
        assert_eq!(rtt.timeout(&config), Duration::from_millis(300), "it left before the last sample");
        rtt.on_delivered(Instant::from_nanos(110_000_000), Instant::from_nanos(290_000_000), &config);
        // §2.3: RTTVAR = 3/4·50 + 1/4·80 = 57.5, SRTT = 7/8·100 + 1/8·180 = 110.
        assert_eq!(rtt.timeout(&config), Duration::from_millis(340));
        rtt.on_timeout();
        assert_eq!(rtt.timeout(&config), Duration::from_millis(680));
        assert_eq!(rtt.least(), Duration::from_millis(60));
    }

    #[test]
    fn the_least_round_trip_is_forgotten_in_time() {
        let config = Config::default();
        let mut rtt = Rtt::new(&config);
        for second in 1..700u64 {
            let trip = Duration::from_millis(if second < 100 { 10 } else { 30 });
            let now = Instant::from_nanos(second * 1_000_000_000);
            rtt.on_delivered(now - trip, now, &config);
            let known = rtt.least().as_millis();
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
