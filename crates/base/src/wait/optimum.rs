//! The least cost of waiting with all arrivals known in advance.
//!
//! Moves         once all arrivals have been handled, there are two moves: spin until the next arrival (which
//!               costs CPU time but no latency), or sleep until the bell rings ([`Costs::block`]; arrivals
//!               during the wake-up wait until it ends).
//! States        after each arrival there are two states: either it was met by spinning, or it rang the bell
//!               and the sleeper woke [`Costs::wake`] later. So one pass finds the best path.
//! Not modelled  processing time, which counts as zero. Timed sleeps are not modelled either: with a perfect
//!               timer they would cost next to nothing at any gap, but no timer is perfect. A policy that
//!               uses timed sleeps well can cost less than this optimum.

use super::Costs;
use super::costs::nanos;
use crate::Instant;

/// Returns the least total cost, in nanoseconds, of handling `arrivals` (in ascending order) for a receiver
/// that is free from `start` on.
pub fn optimum(start: Instant, arrivals: &[Instant], costs: &Costs) -> u64 {
    const FAR: u64 = u64::MAX;
    // The least cost at which all arrivals before i have been handled and the receiver is free since the last
    // of them (after spinning).
    let mut spun = alloc::vec![FAR; arrivals.len() + 1];
    // The least cost at which the receiver is free after arrival k woke it: (free since, cost).
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
    fn the_optimum_spins_for_near_arrivals_and_sleeps_for_far_ones() {
        check(&[], 0);
        check(&[10], 10);
        check(&[35], 35);
        check(&[1000], 36);
        check(&[10, 1010, 1020], 10 + 46); // the sleeper wakes at 1030 and finds two: 16 + 20 + 10
        check(&[50, 100], 36 + 30); // awake at 70 after a sleep (36), it spins for 30
    }
}
