//! The least that somebody who knew all arrivals would pay.
//!
//! Moves     after everything that came was seen: spin until the next arrival (its length in CPU time, no latency), or
//!           sleep until the bell rings ([`Costs::block`], and whatever arrives while waking lies until then).
//! States    the last arrival was met spinning, or it rang and the sleeper woke [`Costs::wake`] later: two an arrival,
//!           so the best way through is found in one pass.
//! Left out  handling takes no time. Timed sleeps: with a perfect timer they would cost next to nothing at any gap, and
//!           no timer is perfect; a policy that uses one well can come out below this optimum.

use super::Costs;
use super::costs::nanos;
use crate::Instant;

/// The least total cost of meeting `arrivals` (moments that rise), in nanoseconds, for a receiver free from `start` on.
pub fn optimum(start: Instant, arrivals: &[Instant], costs: &Costs) -> u64 {
    const FAR: u64 = u64::MAX;
    // The least cost of having seen all before arrival i, being free from the moment that it came (spun), ...
    let mut spun = alloc::vec![FAR; arrivals.len() + 1];
    // ... and of being free from the moment that the sleeper woken by arrival k was awake: (free since, cost).
    let mut woken = alloc::vec![(Instant::ZERO, FAR); arrivals.len() + 1];
    spun[0] = 0;
    for next in 0..arrivals.len() {
        let free = if next == 0 { start } else { arrivals[next - 1] };
        for (free, cost) in [(free, spun[next]), woken[next]] {
            if cost == FAR {
                continue;
            }
            let spin = cost + nanos(arrivals[next].since(free));
            spun[next + 1] = spun[next + 1].min(spin);
            let awake = arrivals[next].max(free) + costs.wake;
            let (mut seen, mut block) = (next, cost + costs.both_ends());
            while seen < arrivals.len() && arrivals[seen] <= awake {
                block += costs.latency(awake.since(arrivals[seen]));
                seen += 1;
            }
            if block < woken[seen].1 {
                woken[seen] = (awake, block);
            }
        }
    }
    spun[arrivals.len()].min(woken[arrivals.len()].1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// A sleep costs 16 us of CPU time and 20 us of latency.
    fn check(micros: &[u64], expected_micros: u64) {
        let arrivals: Vec<Instant> = micros.iter().map(|&at| Instant::from_nanos(at * 1000)).collect();
        let cost = optimum(Instant::ZERO, &arrivals, &Costs { price: 1.0, ..Costs::default() });
        assert_eq!(cost, expected_micros * 1000, "{micros:?}");
    }

    #[test]
    fn who_knows_the_arrivals_spins_for_the_near_and_sleeps_for_the_far() {
        check(&[], 0);
        check(&[10], 10);
        check(&[35], 35);
        check(&[1000], 36);
        check(&[10, 1010, 1020], 10 + 46); // wakes at 1030 and finds two: 16 + 20 + 10
        check(&[50, 100], 36 + 30); // woken at 70, it is nearer to the next than to have spun
    }
}
