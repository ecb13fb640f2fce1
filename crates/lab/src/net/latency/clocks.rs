//! The offset between the clocks of two hosts, and one-way delays.
//!
//! Bounds    no delay is negative. So the offset, the server's clock minus this host's, is at most the
//!           shortest difference of timestamps of a probe, and at least the negated shortest difference of
//!           those of a reply.
//! Estimate  the middle between the bounds, as if the shortest delays in both directions were equal. NTP
//!           (RFC 5905 §8) takes the middle of the exchange with the shortest round trip instead, whose
//!           bounds are never closer.
//! Error     the uncertainty is half of the distance between the bounds. By this much, the shortest delay of
//!           one direction may be longer in truth, and that of the other shorter.
//! Drift     if one clock is faster, probes take longer from minute to minute and replies take less by as
//!           much, or the reverse; a growing queue does not make the other direction faster. Only if both
//!           change in this way, drift is removed.

use super::phase::Exchange;

/// The fewest exchanges, and the shortest time (ns), from which drift is estimated.
const DRIFT_MIN: (usize, i64) = (30, 2_000_000_000);
/// The fastest drift that Linux's clock may have while it is adjusted (adjtimex(2)).
const DRIFT_MAX: f64 = 500e-6;

/// The relation of two clocks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::net) struct Clocks {
    /// When the offset is exact, ns of this host's clock.
    pub(in crate::net) origin: i64,
    /// The server's clock minus this host's, ns.
    pub(in crate::net) offset: f64,
    /// ns.
    pub(in crate::net) uncertainty: f64,
    /// How much faster the server's clock is; zero if drift was not detected.
    pub(in crate::net) drift: f64,
}

impl Clocks {
    /// Returns the estimate; `None` if there are no exchanges.
    pub(in crate::net) fn of(exchanges: &[Exchange]) -> Option<Clocks> {
        let origin = exchanges.iter().map(|one| one.departure).min()?;
        let drift = drift(exchanges).unwrap_or(0.0);
        let least = |delay: fn(&Exchange) -> i64, sign: f64| {
            let delays = exchanges
                .iter()
                .map(|one| delay(one) as f64 - sign * drift * (one.departure - origin) as f64);
            delays.fold(f64::INFINITY, f64::min)
        };
        let (up, down) = (least(up, 1.0), least(down, -1.0));
        Some(Clocks { origin, offset: (up - down) / 2.0, uncertainty: ((up + down) / 2.0).max(0.0), drift })
    }

    /// Returns the one-way delays of an exchange, to the server and back, ns.
    pub(in crate::net) fn one_way(&self, one: &Exchange) -> [f64; 2] {
        let offset = self.offset + self.drift * (one.departure - self.origin) as f64;
        [up(one) as f64 - offset, down(one) as f64 + offset]
    }
}

fn up(one: &Exchange) -> i64 {
    one.server_arrival - one.departure
}

fn down(one: &Exchange) -> i64 {
    one.arrival - one.server_departure
}

/// Returns the drift, if the shortest delays of the first and the last third show one.
fn drift(exchanges: &[Exchange]) -> Option<f64> {
    let begin = exchanges.iter().map(|one| one.departure).min()?;
    let length = exchanges.iter().map(|one| one.departure).max()? - begin;
    if exchanges.len() < DRIFT_MIN.0 || length < DRIFT_MIN.1 {
        return None;
    }
    let first = || exchanges.iter().filter(|one| one.departure - begin < length / 3);
    let last = || exchanges.iter().filter(|one| one.departure - begin > length / 3 * 2);
    let change = |delay: fn(&Exchange) -> i64| {
        let (first, last) = (first().min_by_key(|one| delay(one))?, last().min_by_key(|one| delay(one))?);
        Some(((delay(last) - delay(first)) as f64, (last.departure - first.departure) as f64))
    };
    let ((up, up_time), (down, down_time)) = (change(up)?, change(down)?);
    let drift = (up / up_time - down / down_time) / 2.0;
    let is_opposite = (up + down).abs() <= 0.25 * (up - down).abs();
    (is_opposite && drift.abs() <= DRIFT_MAX).then_some(drift)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: f64 = 1e6;

    /// Returns exchanges at an interval of 20 ms, whose one-way delays in ms are given by time in s.
    fn exchanges(seconds: f64, offset: f64, drift: f64, delays: impl Fn(f64) -> [f64; 2]) -> Vec<Exchange> {
        (0..(seconds * 50.0) as u32)
            .map(|number| {
                let departure = f64::from(number) * 20.0 * MS;
                let [up, down] = delays(departure * 1e-9);
                let here_to_there = |time: f64| time * (1.0 + drift) + offset;
                let server_arrival = here_to_there(departure + up * MS);
                let server_departure = server_arrival + 0.03 * MS;
                Exchange {
                    number,
                    departure: departure as i64,
                    server_arrival: server_arrival as i64,
                    server_departure: server_departure as i64,
                    arrival: (departure + (up + down + 0.03) * MS) as i64,
                    reply: u64::from(number) + 1,
                    tos: [0; 2],
                }
            })
            .collect()
    }

    /// Pseudo-random queueing, 0 to 1.
    fn noise(seconds: f64, salt: u64) -> f64 {
        let bits = ((seconds * 1e6) as u64 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        bits as f64 / (1 << 24) as f64
    }

    #[test]
    fn the_offset_is_found_within_its_uncertainty_although_one_direction_is_loaded() {
        for (what, base) in [("symmetric", [5.0, 5.0]), ("asymmetric", [8.0, 2.0])] {
            let delays = |t: f64| [base[0] + 40.0 * noise(t, 1), base[1] + noise(t, 7)];
            let clocks = Clocks::of(&exchanges(10.0, 3e12, 0.0, delays)).expect("there are some");
            let error = (clocks.offset - 3e12).abs();
            assert!(error <= clocks.uncertainty + 1e3, "{what}: {clocks:?}");
            assert!((5.0..5.5).contains(&(clocks.uncertainty / MS)), "{what}: {clocks:?}");
            assert!(clocks.drift.abs() < 20e-6, "{what}: {clocks:?}");
        }
        assert_eq!(Clocks::of(&[]), None);
    }

    #[test]
    fn drift_is_removed_and_a_growing_queue_is_not_mistaken_for_it() {
        let still = |t: f64| [0.1 + 0.05 * noise(t, 1), 0.1 + 0.05 * noise(t, 3)];
        let drifting = exchanges(60.0, -5e9, 30e-6, still);
        let clocks = Clocks::of(&drifting).expect("there are some");
        assert!((clocks.drift - 30e-6).abs() < 2e-6, "{clocks:?}");
        let mut delays = drifting.iter().flat_map(|one| clocks.one_way(one));
        assert!(delays.all(|delay| (0.05 * MS..0.25 * MS).contains(&delay)), "{clocks:?}");
        // A queue that grows by 3 ms looks like drift in one direction, but not in the other.
        let growing = |t: f64| [0.1 + 0.05 * t + 0.05 * noise(t, 1), 0.1 + 0.05 * noise(t, 3)];
        let clocks = Clocks::of(&exchanges(60.0, 7e9, 0.0, growing)).expect("there are some");
        assert_eq!(clocks.drift, 0.0, "{clocks:?}");
    }
}
