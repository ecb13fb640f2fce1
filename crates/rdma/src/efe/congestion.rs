//! Congestion control: how many frames a flow may have in flight. It reacts to delay, not to loss.
//!
//! Base       the minimum round-trip time (RTT) of full-size frames in the last 10 to 20 s. It represents
//!            the path with empty queues. Shorter frames do not count, because switches store and forward
//!            them faster.
//! Backlog    with a window W and a measured RTT r, W·(r − base)/r of its frames are in queues and the rest
//!            are on the wire.
//! Target     the target backlog is b = B·(1 − q/Q), but at least 0. Here q = r − base is the queueing
//!            delay, which is the same for all flows that share a queue; B is `backlog_frames` and Q is
//!            `queue_delay_max`. A single flow keeps about B frames in a queue; many flows together keep
//!            the queueing delay below Q.
//! Update     with W frames in flight and the target backlog, the RTT would be p = base·W/(W − b). A
//!            shorter measured RTT means that the path has spare capacity; a longer one means that it has
//!            none. Once per RTT, W therefore moves half the distance to the target: W ← W + (b −
//!            backlog)/2. At equilibrium all flows that share a queue have the same rate W/r, because b
//!            depends only on q, which they share. This is FAST TCP (Jin, Wei, Low 2004) with a target
//!            backlog that shrinks as the delay grows.
//! Startup    the connection request was a probe: its RTT, plus the times of two full frames, predicts the
//!            base RTT, so that queues are recognised before an empty path has been measured. A flow begins
//!            with two frames, which double every RTT while the backlog is below one frame and the queueing
//!            delay below Q/4. If the path is still empty with four frames, the window becomes as large as
//!            the path. The prediction holds until the first pause, but at most for `predicted_for`;
//!            afterwards only measurements count. If the host has several flows to the peer, each begins with
//!            its share of two frames, which doubles only while the path is empty.
//! Loss       while queues are short, a loss is attributed to the wire and the window is not reduced. With
//!            queueing delay q, the window is reduced by the fraction q/2Q, at most once per RTT. After a
//!            timeout, the window restarts at two frames.
//! Local      between processes of a host there is no queue but the peer's socket, and a round trip lasts
//!            as long as the peer waits for a processor. The delay is therefore ignored: a window doubles
//!            every RTT until a frame is lost, is halved by a loss, at most once per RTT, and then grows by
//!            one frame.
//! Fractions  a window of 2.3 frames allows two frames in flight, plus a third once r/2.3 has passed since
//!            the last frame was sent. A window of 0.2 allows one frame every five RTTs. Windows above
//!            `WHOLE` are rounded up to whole frames. Flows to one peer with windows below one frame take
//!            turns (`path.rs`).
//! Drain      flows that began while the queue was full have never measured their base RTT, and would take
//!            more than their share. A receiver therefore asks all its senders at once to pause for Q, and
//!            the first frames after the pause find the queues empty (`drain_epochs.rs`).

use super::Config;
use super::path::PathLoad;
use core::time::Duration;
use kiban_base::Instant;

/// Initial window, in frames.
const WINDOW_INITIAL: f64 = 2.0;
/// Minimum window: one frame every 64 round trips.
const WINDOW_MIN: f64 = 1.0 / 64.0;
/// Window, in frames, above which a fraction is rounded up, because pacing it is not worth a timer.
const WHOLE: f64 = 8.0;

/// Number of full frames whose transmission takes `queue_delay_max`.
const QUEUE_FRAMES: u64 = 40;
/// Fractions of `queue_delay_max`: below the first, a path is empty; above the second, start-up ends.
const EMPTY: f64 = 1.0 / 16.0;
const BUSY: f64 = 1.0 / 4.0;

/// Divisor of the window while all flows measure the minimum RTT.
const SHALLOW: f64 = 8.0;

/// Whether a frame may be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Gate {
    Open,
    /// Sending is not allowed before this time, unless another event allows it earlier.
    At(Instant),
    Shut,
    /// Other flows to the peer use the path.
    Blocked,
}

#[derive(Debug)]
pub(super) struct Congestion {
    window: f64,
    window_max: f64,
    /// Whether the flow began as one of several on its path.
    is_one_of_several: bool,
    /// Whether the peer is on this host.
    is_local: bool,
    /// The window at which slow start ends; `None` once it has ended.
    starting: Option<f64>,
    /// Minimum RTT in nanoseconds in this period and in the previous one.
    base: [u64; 2],
    base_since: Instant,
    /// The predicted minimum RTT in nanoseconds, which is ignored from this time on.
    predicted: u64,
    predicted_until: Instant,
    /// Length in bytes of the longest frame whose RTT was measured.
    base_bytes: usize,
    /// The sum, in nanoseconds, and the number of RTTs measured in this round.
    sum: u64,
    samples: u64,
    /// Mean RTT of the previous round, nanoseconds.
    round_trip: u64,
    /// Whether a frame had to wait for the window in this round.
    was_full: bool,
    was_cut: bool,
    /// Nothing is sent before `silent_until`, and only a fraction of the window before `shallow_until`: see
    /// "Drain" in the module documentation.
    silent_until: Instant,
    shallow_until: Instant,
}

impl Congestion {
    /// Creates the state of a flow with at most `window_frames` frames in flight, one of `flows` on its path.
    pub(super) fn new(window_frames: u32, flows: u32) -> Congestion {
        Congestion {
            window: (WINDOW_INITIAL / f64::from(flows.max(1))).max(WINDOW_MIN),
            window_max: f64::from(window_frames),
            is_one_of_several: flows > 1,
            is_local: false,
            starting: Some(f64::INFINITY),
            base: [u64::MAX; 2],
            base_since: Instant::ZERO,
            predicted: u64::MAX,
            predicted_until: Instant::ZERO,
            base_bytes: 0,
            sum: 0,
            samples: 0,
            round_trip: 0,
            was_full: false,
            was_cut: false,
            silent_until: Instant::ZERO,
            shallow_until: Instant::ZERO,
        }
    }

    /// Creates the state of a flow to a peer on this host.
    pub(super) fn local(window_frames: u32) -> Congestion {
        Congestion { is_local: true, ..Congestion::new(window_frames, 1) }
    }

    /// Returns the congestion window in frames.
    pub(super) fn window(&self) -> f64 {
        self.window
    }

    /// Returns the minimum RTT in nanoseconds, if one was measured or predicted.
    pub(super) fn base(&self) -> Option<u64> {
        let least = self.base[0].min(self.base[1]).min(self.predicted);
        (least != u64::MAX).then_some(least)
    }

    /// Predicts the minimum RTT of a full frame from that of short frames, in nanoseconds.
    pub(super) fn predict(&mut self, short_trip: u64, config: &Config, now: Instant) {
        // A full frame takes longer by its transmission to the switch and from there.
        self.predicted = short_trip + 2 * frame_nanos(config);
        self.predicted_until = now + config.predicted_for;
    }

    /// Records that a frame of `bytes` bytes had an RTT of `trip` nanoseconds.
    #[inline]
    pub(super) fn on_sample(&mut self, trip: u64, bytes: usize, config: &Config, now: Instant) {
        let trip = trip.max(1);
        if bytes * 8 > self.base_bytes * 9 {
            (self.base_bytes, self.base) = (bytes, [u64::MAX; 2]);
            self.base_since = now;
        }
        if now.since(self.base_since) > config.base_period {
            self.base = [u64::MAX, self.base[0]];
            self.base_since = now;
        }
        if bytes * 9 >= self.base_bytes * 8 || self.base[0] == u64::MAX {
            self.base[0] = self.base[0].min(trip);
        }
        self.sum += trip;
        self.samples += 1;
    }

    /// Returns the mean RTT of this round so far, nanoseconds.
    fn mean(&self) -> Option<u64> {
        self.sum.checked_div(self.samples)
    }

    /// Ends a round: every frame that was in flight when it began has arrived or is considered lost.
    pub(super) fn on_round(&mut self, config: &Config, now: Instant) {
        let (was_full, was_cut) = (self.was_full, self.was_cut);
        (self.was_full, self.was_cut) = (false, false);
        if self.is_local {
            (self.sum, self.samples) = (0, 0);
            let step = if self.starting.is_some_and(|most| self.window < most) { self.window } else { 1.0 };
            if was_full && !was_cut {
                self.set(self.window + step);
            }
            return;
        }
        if now >= self.predicted_until {
            self.predicted = u64::MAX;
        }
        if now < self.shallow_until {
            // Ignore this round: queues are short only because all flows send less after a drain epoch.
            (self.sum, self.samples) = (0, 0);
            return;
        }
        let (Some(base), Some(trip)) = (self.base(), self.mean()) else { return };
        let trip = trip.max(base);
        (self.sum, self.samples, self.round_trip) = (0, 0, trip);
        if was_cut {
            return;
        }
        let level = (trip - base) as f64 / config.queue_delay_max.as_nanos() as f64;
        let backlog = self.window * (trip - base) as f64 / trip as f64;
        if let Some(most) = self.starting {
            let level_max = if self.is_one_of_several { EMPTY } else { BUSY };
            if backlog < 1.0 && level <= level_max && self.window < most {
                if was_full {
                    // With two frames of each flow in flight, no flow of many would see the others.
                    let is_empty = level <= EMPTY && self.window >= 2.0 * WINDOW_INITIAL;
                    let path = if is_empty { (base / frame_nanos(config) + 1) as f64 } else { 0.0 };
                    self.set(path.max(self.window * 2.0));
                }
                return;
            }
            self.starting = None;
        }
        let wanted = f64::from(config.backlog_frames) * (1.0 - level).max(0.0);
        // Flows with small windows are many: a step of a whole frame each would fill the queue at once.
        // Rounds of flows that take turns are long, so that many grow before the first of them sees it.
        let takes_turns = self.window < 1.0 && self.is_one_of_several;
        let step_max = if takes_turns { self.window / 8.0 } else { self.window / 2.0 };
        let step = ((wanted - backlog) / 2.0).min(step_max);
        // An unused window is no evidence that a larger one would help.
        if was_full || step < 0.0 {
            self.set(self.window + step);
        }
    }

    /// Handles the loss of a frame, detected by later arrivals.
    pub(super) fn on_loss(&mut self, config: &Config) {
        self.starting = None;
        if self.is_local {
            if !core::mem::replace(&mut self.was_cut, true) {
                self.set((self.window / 2.0).max(WINDOW_INITIAL));
            }
            return;
        }
        let Some(base) = self.base() else { return };
        let trip = self.mean().unwrap_or(self.round_trip);
        let level = trip.saturating_sub(base) as f64 / config.queue_delay_max.as_nanos() as f64;
        if !self.was_cut && level > 0.25 {
            self.was_cut = true;
            self.set(self.window * (1.0 - level.min(1.0) / 2.0));
        }
    }

    /// Handles a retransmission timeout.
    pub(super) fn on_timeout(&mut self) {
        self.starting = Some((self.window / 2.0).max(WINDOW_INITIAL));
        self.set(self.window.min(WINDOW_INITIAL));
        (self.sum, self.samples) = (0, 0);
    }

    /// Handles the receiver's request to pause. `spread`, a number below one, determines where within one
    /// round trip the first frame after the pause is sent.
    pub(super) fn on_drain_epoch(&mut self, spread: f64, config: &Config, now: Instant) {
        if self.is_local {
            return;
        }
        let spread = (self.round_trip as f64 * spread) as u64;
        self.predicted = u64::MAX;
        self.silent_until = now + config.queue_delay_max + Duration::from_nanos(spread);
        self.shallow_until = now + config.queue_delay_max * 4;
    }

    fn set(&mut self, window: f64) {
        self.window = window.clamp(WINDOW_MIN, self.window_max);
    }

    /// Returns whether a frame may be sent now, given that `in_flight` frames are in flight, that the last
    /// one was sent at `last`, and what the path carries.
    #[inline]
    pub(super) fn gate(&mut self, in_flight: u32, last: Instant, path: &PathLoad, now: Instant) -> Gate {
        if now < self.silent_until {
            return Gate::At(self.silent_until);
        }
        let in_flight = f64::from(in_flight);
        let (window, trip) = if now < self.shallow_until {
            (self.window / SHALLOW, self.base().unwrap_or(0))
        } else {
            (self.window, self.round_trip)
        };
        if in_flight + 1.0 <= window {
            return Gate::Open;
        }
        self.was_full = true;
        if in_flight >= window {
            return Gate::Shut;
        }
        if window >= WHOLE {
            return Gate::Open;
        }
        if window < 1.0 && path.is_shared() {
            return if path.has_room() { Gate::Open } else { Gate::Blocked };
        }
        let at = last + Duration::from_nanos((trip as f64 / window) as u64);
        if at <= now { Gate::Open } else { Gate::At(at) }
    }
}

/// Returns the transmission time of a full frame, nanoseconds.
fn frame_nanos(config: &Config) -> u64 {
    config.queue_delay_max.as_nanos() as u64 / QUEUE_FRAMES
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 10_000;

    /// Returns the state after rounds with these RTTs, during which the window was always full.
    fn after(trips: &[u64]) -> Congestion {
        let config = Config::default();
        let mut flow = Congestion::new(64, 1);
        for &trip in trips {
            flow.was_full = true;
            flow.on_sample(trip, 1500, &config, Instant::ZERO);
            flow.on_round(&config, Instant::ZERO);
        }
        flow
    }

    #[test]
    fn the_window_doubles_until_a_frame_waits() {
        assert_eq!(after(&[BASE]).window(), 4.0);
        // The path is empty with four frames, and holds 8 frames of 1.25 us.
        assert_eq!(after(&[BASE, BASE]).window(), 9.0);
        assert_eq!(after(&[BASE, BASE, BASE]).window(), 18.0);
        // 18 frames at 20 us: 9 are queued, and the target backlog is 3·(1 − 10/50) = 2.4. The window
        // shrinks by half the difference.
        assert_eq!(after(&[BASE, BASE, BASE, 2 * BASE]).window(), 18.0 - 3.3);
    }

    #[test]
    fn a_window_to_a_peer_on_this_host_depends_on_losses_only() {
        let (config, mut flow) = (Config::default(), Congestion::local(64));
        let round = |flow: &mut Congestion, trip: u64| {
            flow.was_full = true;
            flow.on_sample(trip, 1500, &config, Instant::ZERO);
            flow.on_round(&config, Instant::ZERO);
            flow.window()
        };
        // The peer has a processor only now and then.
        let slow = 1000 * config.queue_delay_max.as_nanos() as u64;
        let windows = [BASE, slow, slow, BASE, slow, slow].map(|trip| round(&mut flow, trip));
        assert_eq!(windows, [4.0, 8.0, 16.0, 32.0, 64.0, 64.0]);
        flow.on_drain_epoch(0.5, &config, Instant::ZERO);
        assert_eq!(flow.gate(63, Instant::ZERO, &PathLoad::default(), Instant::ZERO), Gate::Open);
        flow.on_loss(&config);
        flow.on_loss(&config);
        assert_eq!(flow.window(), 32.0, "once per round trip");
        assert_eq!([slow, slow].map(|trip| round(&mut flow, trip)), [32.0, 33.0]);
        flow.on_timeout();
        assert_eq!(
            (0..5).map(|_| round(&mut flow, slow)).collect::<alloc::vec::Vec<_>>(),
            [4.0, 8.0, 16.0, 32.0, 33.0]
        );
        (0..20).for_each(|_| {
            flow.on_loss(&config);
            round(&mut flow, slow);
        });
        assert_eq!(flow.window(), WINDOW_INITIAL, "it does not stop");
    }

    #[test]
    fn the_window_is_stable_at_the_predicted_round_trip() {
        let (config, mut flow) = (Config::default(), after(&[BASE, BASE, 2 * BASE]));
        let mut trip = BASE;
        for _ in 0..100 {
            // A path that holds 8 frames per base RTT.
            trip = (flow.window() * BASE as f64 / 8.0).max(BASE as f64) as u64;
            flow.was_full = true;
            flow.on_sample(trip, 1500, &config, Instant::ZERO);
            flow.on_round(&config, Instant::ZERO);
        }
        let wanted = 3.0 * (1.0 - (trip - BASE) as f64 / 50_000.0);
        let predicted = BASE as f64 * flow.window() / (flow.window() - wanted);
        assert!((trip as f64 / predicted - 1.0).abs() < 0.01, "{trip} {predicted}");
        assert!((10.0..11.0).contains(&flow.window()), "{}", flow.window());
    }

    #[test]
    fn a_loss_with_empty_queues_is_not_congestion() {
        let config = Config::default();
        for (trip, cut) in [(BASE, 1.0), (BASE + 12_000, 1.0), (BASE + 25_000, 0.75), (BASE + 90_000, 0.5)] {
            let mut flow = after(&[BASE, BASE]);
            let before = flow.window();
            flow.on_sample(trip, 1500, &config, Instant::ZERO);
            flow.on_loss(&config);
            flow.on_loss(&config);
            assert_eq!(flow.window() / before, cut, "at {trip}");
        }
    }

    #[test]
    fn a_window_below_one_frame_becomes_a_pause() {
        let mut flow = after(&[BASE]);
        let at = Instant::from_nanos;
        let rows = [
            (4.0, 3, 0, Gate::Open),
            (4.0, 4, 0, Gate::Shut),
            (2.5, 1, 0, Gate::Open),
            (2.5, 2, 3999, Gate::At(at(4000))),
            (2.5, 2, 4000, Gate::Open),
            (2.5, 3, 9000, Gate::Shut),
            (0.5, 0, 19_999, Gate::At(at(20_000))),
            (0.5, 0, 20_000, Gate::Open),
            (0.5, 1, 20_000, Gate::Shut),
            (9.5, 9, 0, Gate::Open),
        ];
        for (window, in_flight, now, expected) in rows {
            flow.window = window;
            assert_eq!(
                flow.gate(in_flight, Instant::ZERO, &PathLoad::default(), at(now)),
                expected,
                "{window} {in_flight} {now}"
            );
        }
    }

    #[test]
    fn short_frames_do_not_set_the_base_round_trip_of_long_ones() {
        let (config, now) = (Config::default(), Instant::ZERO);
        let mut flow = Congestion::new(64, 1);
        flow.on_sample(6_000, 60, &config, now);
        assert_eq!(flow.base(), Some(6_000));
        flow.on_sample(9_000, 1500, &config, now);
        assert_eq!(flow.base(), Some(9_000));
        flow.on_sample(6_000, 60, &config, now);
        assert_eq!(flow.base(), Some(9_000));
        flow.on_sample(8_000, 1500, &config, now);
        assert_eq!(flow.base(), Some(8_000));
    }
}
