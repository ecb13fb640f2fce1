//! Round trips and the retransmission timeout (RFC 6298), one sample a window (Karn's rule, §3).

use super::config::Config;
use core::time::Duration;
use kiban_ground::Instant;
use kiban_wire::tcp::Sequence;

/// The timeout with which data begins when a SYN was lost (RFC 6298 §5.7).
const AFTER_LOST_SYN: Duration = Duration::from_secs(3);

/// The estimate of one session.
#[derive(Debug)]
pub(super) struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
    timeout: Duration,
    backoff: u32,
    /// A byte whose acknowledgement is being timed, and when it left.
    timed: Option<(Sequence, Instant)>,
}

impl Rtt {
    pub(super) fn new(config: &Config) -> Rtt {
        Rtt {
            smoothed: None,
            variation: Duration::ZERO,
            timeout: config.rto_initial,
            backoff: 0,
            timed: None,
        }
    }

    /// A segment that ends before `end` leaves for the first time.
    #[inline]
    pub(super) fn on_sent(&mut self, end: Sequence, now: Instant) {
        if self.timed.is_none() {
            self.timed = Some((end, now));
        }
    }

    /// Something was sent again: what is being timed is ambiguous from now on (Karn).
    pub(super) fn on_retransmit(&mut self) {
        self.timed = None;
    }

    /// Everything before `acknowledged` has arrived.
    #[inline]
    pub(super) fn on_acknowledged(&mut self, acknowledged: Sequence, now: Instant, config: &Config) {
        if let Some((end, left)) = self.timed
            && end.le(acknowledged)
        {
            self.timed = None;
            self.sample(now.since(left), config);
        }
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
        self.timed = None;
        self.backoff += 1;
    }

    /// The peer's window has opened: what was backed off was the asking, not the path.
    pub(super) fn on_reopened(&mut self) {
        self.timed = None;
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
        let zero = Sequence(0);
        rtt.on_sent(zero, Instant::ZERO);
        rtt.on_acknowledged(zero, Instant::from_nanos(100_000_000), &config);
        // RFC 6298 §2.2: SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 RTTVAR.
        assert_eq!(rtt.timeout(&config), Duration::from_millis(300));
        rtt.on_sent(zero, Instant::ZERO);
        rtt.on_acknowledged(zero, Instant::from_nanos(180_000_000), &config);
        // §2.3: RTTVAR = 3/4·50 + 1/4·80 = 57.5, SRTT = 7/8·100 + 1/8·180 = 110.
        assert_eq!(rtt.timeout(&config), Duration::from_millis(340));
        rtt.on_timeout();
        assert_eq!(rtt.timeout(&config), Duration::from_millis(680));
    }

    #[test]
    fn a_round_trip_that_was_sent_again_is_not_sampled() {
        let config = Config::default();
        let mut rtt = Rtt::new(&config);
        rtt.on_sent(Sequence(5), Instant::ZERO);
        rtt.on_retransmit();
        rtt.on_acknowledged(Sequence(9), Instant::from_nanos(1), &config);
        assert_eq!(rtt.smoothed(), None);
    }
}
