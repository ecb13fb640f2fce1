//! DCQCN: the rate of a queue pair while the network reports congestion (Zhu and others, *Congestion Control
//! for Large-Scale RDMA Deployments*, SIGCOMM 2015, §5: the reaction point).
//!
//! ```text
//! state     R  current rate    T  target rate    a  estimate of congestion, 0 to 1
//! cut       T = R,  R = R * (1 - a/2),  a = (1-g)*a + g          on a congestion notification (CNP)
//! decay     a = (1-g)*a                                          every ALPHA_PERIOD without one
//! increase  fast recovery      R = (R+T) / 2                     the first STAGES events after a cut
//!           additive           T = T + STEP, then as above       later events
//!           hyper              T = T + n * HYPER_STEP            once both counts exceed STAGES
//! events    a timer (INCREASE_PERIOD) and a byte counter (INCREASE_BYTES), each with its own count
//! ```
//!
//! Start      the first notification finds the queue pair at the line rate. Without notifications there is no
//!            pacer, and nothing is slower. The pacer ends when it reaches the line rate again.
//! Pacing     packets leave in bursts of `BURST`; a burst is followed by a pause, so that the mean is the
//!            rate. The window of the requester limits what is in flight, independently of the rate.
//! Timers     only the pauses need one. Increases and decays that are due are made up for when the rate is
//!            used.
//! Limits     the peer's notifications are trusted, as all of RoCEv2: one who can forge them slows a queue
//!            pair down to `RATE_MIN`, no further.

use core::time::Duration;
use kiban_base::Instant;

/// Bytes per second in a Mbit/s.
const MBIT: f64 = 1e6 / 8.0;
/// The line rate: that of a port of 100 Gbit/s. A slower port takes one more cut for each halving.
const LINE_RATE: f64 = 100_000.0 * MBIT;
/// The lowest rate: a packet of 4096 bytes every 3.3 ms, which is shorter than usual acknowledgement
/// timeouts.
const RATE_MIN: f64 = 10.0 * MBIT;
/// From this part of the line rate on, the pacer ends: fast recovery only approaches its target.
const LINE_RATE_PART: f64 = 0.95;
/// g, the gain of the congestion estimate. This and the following are the paper's (its figure 14).
const GAIN: f64 = 1.0 / 256.0;
/// K, the time after which the estimate decays.
const ALPHA_PERIOD: Duration = Duration::from_micros(55);
/// N, the shortest time between two cuts, and between two notifications of one flow.
pub const CNP_INTERVAL: Duration = Duration::from_micros(50);
/// T, the time after which the rate increases.
const INCREASE_PERIOD: Duration = Duration::from_micros(55);
/// B, the bytes after which the rate increases.
const INCREASE_BYTES: u64 = 10_000_000;
/// F, the number of events in fast recovery.
const STAGES: u32 = 5;
/// R_AI, the additive increase.
const STEP: f64 = 40.0 * MBIT;
/// R_HAI, the hyper increase. The paper leaves it open; Linux's mlx5 has ten times the additive increase.
const HYPER_STEP: f64 = 10.0 * STEP;
/// After this time without a notification the pacer ends, whatever its rate: the additive increase alone has
/// then reached the line rate.
const QUIET_MAX: Duration = Duration::from_millis(200);
/// How much may leave at once, in time at the current rate: several packets share a system call.
const BURST: Duration = Duration::from_micros(100);

/// The rate limit of one queue pair.
#[derive(Debug)]
pub(in super::super) struct Pacer {
    /// The current and the target rate in bytes per second.
    rate: f64,
    target_rate: f64,
    alpha: f64,
    last_cut: Instant,
    alpha_expires: Instant,
    increase_expires: Instant,
    /// Bytes sent since the byte counter last expired.
    bytes: u64,
    /// How often the timer and the byte counter have expired since the last cut.
    timer_stage: u32,
    byte_stage: u32,
    /// When everything that was sent has left at the current rate.
    busy_until: Instant,
    /// The pause after a burst.
    held_until: Option<Instant>,
}

impl Pacer {
    /// Creates the pacer of a queue pair that gets its first notification.
    pub(in super::super) fn new(now: Instant) -> Pacer {
        let mut pacer = Pacer {
            rate: LINE_RATE,
            target_rate: LINE_RATE,
            alpha: 1.0,
            last_cut: now,
            alpha_expires: now,
            increase_expires: now,
            bytes: 0,
            timer_stage: 0,
            byte_stage: 0,
            busy_until: now,
            held_until: None,
        };
        pacer.cut(now);
        pacer
    }

    /// Takes a congestion notification.
    pub(in super::super) fn on_notification(&mut self, now: Instant) {
        if now.since(self.last_cut) >= CNP_INTERVAL {
            self.catch_up(now);
            self.cut(now);
        }
    }

    fn cut(&mut self, now: Instant) {
        self.target_rate = self.rate;
        self.rate = (self.rate * (1.0 - self.alpha / 2.0)).max(RATE_MIN);
        self.alpha += GAIN * (1.0 - self.alpha);
        self.last_cut = now;
        self.alpha_expires = now + ALPHA_PERIOD;
        self.increase_expires = now + INCREASE_PERIOD;
        (self.bytes, self.timer_stage, self.byte_stage) = (0, 0, 0);
    }

    /// Makes up for the decays and increases that are due.
    fn catch_up(&mut self, now: Instant) {
        if now.since(self.last_cut) >= QUIET_MAX {
            self.rate = LINE_RATE;
            return;
        }
        while self.alpha_expires <= now {
            self.alpha -= GAIN * self.alpha;
            self.alpha_expires += ALPHA_PERIOD;
        }
        while self.increase_expires <= now {
            self.increase_expires += INCREASE_PERIOD;
            self.timer_stage += 1;
            self.increase();
        }
    }

    fn increase(&mut self) {
        let (fewer, more) = (self.timer_stage.min(self.byte_stage), self.timer_stage.max(self.byte_stage));
        self.target_rate += match (fewer.checked_sub(STAGES), more > STAGES) {
            (_, false) => 0.0,
            (Some(beyond @ 1..), _) => f64::from(beyond) * HYPER_STEP,
            _ => STEP,
        };
        self.target_rate = self.target_rate.min(LINE_RATE);
        self.rate = (self.rate + self.target_rate) / 2.0;
    }

    /// Counts a packet of `bytes` that leaves now. Returns whether the pacer is still needed.
    pub(in super::super) fn on_sent(&mut self, bytes: usize, now: Instant) -> bool {
        self.catch_up(now);
        self.bytes += bytes as u64;
        if self.bytes >= INCREASE_BYTES {
            self.bytes = 0;
            self.byte_stage += 1;
            self.increase();
        }
        if self.rate >= LINE_RATE_PART * LINE_RATE {
            return false;
        }
        let duration = Duration::from_nanos((bytes as f64 / self.rate * 1e9) as u64);
        // A timer that was late is made up for, by at most one burst.
        self.busy_until = self.busy_until.max(now - BURST) + duration;
        self.held_until = (self.busy_until > now + BURST).then_some(self.busy_until);
        true
    }

    /// Returns whether a packet may leave now.
    pub(in super::super) fn may_send(&self, now: Instant) -> bool {
        self.held_until.is_none_or(|until| until <= now)
    }

    /// Returns the end of the pause.
    pub(in super::super) fn deadline(&self) -> Option<Instant> {
        self.held_until
    }

    /// Ends the pause if it is over. Returns whether it is.
    pub(in super::super) fn on_timer(&mut self, now: Instant) -> bool {
        self.held_until.take_if(|until| *until <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: usize = 1000;

    fn at(micros: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(micros)
    }

    /// Sends as fast as the pacer allows, from one time to another. Returns the bytes sent.
    fn send(pacer: &mut Pacer, mut now: Instant, end: Instant) -> usize {
        let mut sent = 0;
        while now < end {
            while pacer.may_send(now) {
                sent += PACKET;
                if !pacer.on_sent(PACKET, now) {
                    return usize::MAX;
                }
            }
            now = pacer.deadline().expect("it is in a pause");
        }
        sent
    }

    #[test]
    fn the_first_notifications_halve_the_rate_and_the_target_is_what_it_was() {
        let mut pacer = Pacer::new(at(0));
        assert_eq!((pacer.rate, pacer.target_rate), (LINE_RATE / 2.0, LINE_RATE));
        pacer.on_notification(at(49));
        assert_eq!(pacer.rate, LINE_RATE / 2.0, "too early");
        pacer.on_notification(at(50));
        assert_eq!((pacer.rate, pacer.target_rate), (LINE_RATE / 4.0, LINE_RATE / 2.0));
        for n in 2..100 {
            pacer.on_notification(at(50 * n));
        }
        assert_eq!(pacer.rate, RATE_MIN);
    }

    #[test]
    fn the_rate_recovers_fast_then_by_steps() {
        let mut pacer = Pacer::new(at(0));
        pacer.on_notification(at(50));
        let target = pacer.target_rate;
        for stage in 1..=u64::from(STAGES) {
            let before = pacer.rate;
            pacer.catch_up(at(50 + 55 * stage));
            assert_eq!((pacer.rate, pacer.target_rate), ((before + target) / 2.0, target), "stage {stage}");
        }
        pacer.catch_up(at(50 + 55 * 6));
        assert_eq!(pacer.target_rate, target + STEP);
        // The byte counter follows the timer: from its sixth event on, the steps grow.
        pacer.byte_stage = STAGES + 1;
        pacer.catch_up(at(50 + 55 * 7));
        assert_eq!(pacer.target_rate, target + STEP + HYPER_STEP);
        pacer.byte_stage = STAGES + 2;
        pacer.catch_up(at(50 + 55 * 8));
        assert_eq!(pacer.target_rate, target + STEP + 3.0 * HYPER_STEP);
    }

    #[test]
    fn rare_notifications_cut_less_than_frequent_ones() {
        let mut pacer = Pacer::new(at(0));
        pacer.catch_up(at(20_000));
        let alpha = pacer.alpha;
        assert!((0.2..0.3).contains(&alpha), "{alpha} after 363 decays");
        let before = pacer.rate;
        pacer.on_notification(at(20_000));
        assert_eq!(pacer.rate, before * (1.0 - alpha / 2.0));
    }

    #[test]
    fn packets_leave_at_the_rate_and_in_short_bursts() {
        let mut pacer = Pacer::new(at(0));
        for n in 1..8 {
            pacer.on_notification(at(50 * n));
        }
        // 100 Gbit/s halved eight times; 50 microseconds later no increase is due yet.
        let rate = pacer.rate;
        assert!((rate / (LINE_RATE / 256.0) - 1.0).abs() < 0.05, "{rate}");
        let sent = send(&mut pacer, at(350), at(400)) as f64;
        let burst = rate * BURST.as_secs_f64();
        assert!(sent <= 2.0 * burst + PACKET as f64, "{sent} bytes at once, a burst has {burst}");
        // During a second, notifications come as often as rates increase.
        let (mut sent, mut expected) = (0.0, 0.0);
        for n in 8..20_000 {
            let now = at(50 * n);
            pacer.on_notification(now);
            expected += pacer.rate * 50e-6;
            sent += send(&mut pacer, now, at(50 * (n + 1))) as f64;
        }
        assert!((sent / expected - 1.0).abs() < 0.1, "{sent} bytes instead of {expected}");
    }

    #[test]
    fn the_pacer_ends_at_the_line_rate_and_after_a_long_time_without_notifications() {
        let mut pacer = Pacer::new(at(0));
        assert!(pacer.on_sent(PACKET, at(60)));
        assert!(!pacer.on_sent(PACKET, at(600)), "five recoveries reach 98 %");
        let mut pacer = Pacer::new(at(0));
        (1..100).for_each(|n| pacer.on_notification(at(50 * n)));
        assert!(pacer.on_sent(PACKET, at(100_000)));
        assert!(!pacer.on_sent(PACKET, at(300_000)));
    }
}
