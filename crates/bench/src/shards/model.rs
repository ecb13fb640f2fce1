//! A model of a board with more shards than this machine has cores: throughput and load of the shards.
//!
//! Model            each shard is a server on a core of its own, with queues of its link and ring. A packet
//!                  is read by the shard at which it arrives, handed on if its flow belongs to another shard,
//!                  and processed there. [`Steering`], the board's own hash, chooses the shard of a flow.
//! Flows            [`simulate`]: each flow always has packets under way, up to its window, so it takes what
//!                  it can get. [`equal_rates`]: all flows have the same rate, which grows until the first
//!                  shard has no time left.
//! Limits           what all cores share, memory and the kernel's device, is a server that each packet
//!                  occupies for a given time.
//! Deterministic    the same inputs and seed give the same result; time is counted in picoseconds.
//! Not modelled     losses and congestion control; waiting and wake-ups; caches that become too small; cores
//!                  that share a clock or hyperthreads; the peers, which are never the bottleneck.

use kiban_base::{RngKey, SimRng};
use kiban_board::Steering;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;

/// What a packet costs, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Costs {
    /// Reading it from the link, at the shard where it arrives.
    pub(super) receive: f64,
    /// Everything else, at the shard of its flow.
    pub(super) process: f64,
    /// Handing it on, at the shard where it arrives.
    pub(super) pass: f64,
    /// Taking it from the ring, at the shard of its flow.
    pub(super) take: f64,
    /// Time for which it occupies the kernel's device, which all shards share.
    pub(super) device: f64,
    /// Time for which it occupies the memory, which all cores share.
    pub(super) memory: f64,
}

/// The shard at which packets arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Arrival {
    /// That of their flow, except for a share of the packets, which arrive at any shard (TUN, TAP).
    Learned { unlearned: f64 },
    /// One for each flow, chosen by a hash of the kernel or of the card (`packet:`, `xdp:`).
    Hashed,
    /// Shard 0 (cells that it reassembles for all shards).
    First,
}

/// A board and its load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) shards: usize,
    pub(super) flows: usize,
    pub(super) arrival: Arrival,
    pub(super) costs: Costs,
    /// Chooses the key of the hash, the flows and the queues.
    pub(super) seed: u64,
}

/// The result of a case.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) packets_per_second: f64,
    /// The share of its time for which each shard is busy.
    pub(super) busy: Vec<f64>,
}

impl Outcome {
    pub(super) fn busiest(&self) -> f64 {
        self.busy.iter().copied().fold(0.0, f64::max)
    }

    pub(super) fn mean(&self) -> f64 {
        self.busy.iter().sum::<f64>() / self.busy.len() as f64
    }
}

/// Packets that are under way at once, over all flows.
const UNDER_WAY: usize = 8192;
/// Packets that one flow may have under way.
const WINDOW_MAX: usize = 32;

/// The shards of the flows, and those at which the packets of a hashing link arrive.
struct Flows {
    own: Vec<usize>,
    hashed: Vec<usize>,
}

impl Flows {
    #[expect(clippy::disallowed_methods, reason = "a simulation repeats exactly")]
    fn of(case: &Case) -> Flows {
        let mut rng = SimRng::from_seed(case.seed);
        let steering = Steering::new(case.shards, RngKey::for_simulation(rng.draw()));
        let server = SocketAddr::from(([10, 0, 0, 2], 80));
        let mut flow = |number: usize| {
            let host = [10, 1, (number >> 8) as u8, number as u8];
            let client = SocketAddr::from((host, 1024 + rng.below(60_000) as u16));
            (steering.of_flow(client, server), rng.below(case.shards as u64) as usize)
        };
        let (own, hashed) = (0..case.flows).map(&mut flow).unzip();
        Flows { own, hashed }
    }

    /// Returns the shard at which a packet of a flow arrives.
    fn arrives_at(&self, flow: usize, case: &Case, rng: &mut SimRng) -> usize {
        match case.arrival {
            Arrival::First => 0,
            Arrival::Hashed => self.hashed[flow],
            Arrival::Learned { unlearned } => {
                if (rng.below(1 << 32) as f64) < unlearned * (1u64 << 32) as f64 {
                    rng.below(case.shards as u64) as usize
                } else {
                    self.own[flow]
                }
            }
        }
    }
}

/// The work of a shard on a packet.
#[derive(Clone, Copy)]
struct Work {
    flow: usize,
    length: u64,
    /// Whether the packet is handed on afterwards.
    is_wrong: bool,
}

/// A shard, with the packets that it has not taken yet. It takes those of the ring first, as a driver does,
/// which empties its ring in each turn.
#[derive(Clone, Default)]
struct Shard {
    ring: VecDeque<usize>,
    link: VecDeque<usize>,
    work: Option<Work>,
    busy: u64,
}

/// When something happens, its number, and where: a packet of a flow arrives at a shard, or the shard has
/// done its work.
type Event = (u64, u64, usize, Option<usize>);

/// Simulates flows that always have packets under way.
pub(super) fn simulate(case: &Case) -> Outcome {
    let flows = Flows::of(case);
    let mut rng = SimRng::from_seed(case.seed ^ 0x5eed);
    let Costs { receive, process, pass, take, device, memory } = case.costs;
    let [receive, process, pass, take, device, memory] =
        [receive, process, pass, take, device, memory].map(|nanos| (nanos * 1e3).round() as u64);
    let mut shards = vec![Shard::default(); case.shards];
    let (mut device_free_at, mut memory_free_at) = (0u64, 0u64);
    let window = (UNDER_WAY / case.flows).clamp(2, WINDOW_MAX);
    // The packets of all flows are mixed at the start.
    let mut fresh: VecDeque<usize> = (0..window).flat_map(|_| 0..case.flows).collect();
    let warm_up = 2 * fresh.len().max(64 * case.shards);
    let wanted = 5 * warm_up;
    let mut events: BinaryHeap<Reverse<Event>> = BinaryHeap::new();
    let (mut now, mut number, mut done) = (0u64, 0u64, 0);
    let (mut began, mut before) = (0, Vec::new());
    while done < warm_up + wanted {
        for flow in fresh.drain(..) {
            let at = flows.arrives_at(flow, case, &mut rng);
            device_free_at = now.max(device_free_at) + device;
            memory_free_at = memory_free_at.max(device_free_at) + memory;
            number += 1;
            events.push(Reverse((memory_free_at, number, at, Some(flow))));
        }
        let Reverse((time, _, at, arrived)) = events.pop().expect("packets are under way");
        now = time;
        let mut ready = at;
        match (arrived, shards[at].work.take_if(|_| arrived.is_none())) {
            (Some(flow), _) => shards[at].link.push_back(flow),
            (None, Some(Work { flow, is_wrong: true, .. })) => {
                ready = flows.own[flow];
                shards[ready].ring.push_back(flow);
            }
            (None, work) => {
                fresh.extend(work.map(|work| work.flow));
                done += 1;
                if done == warm_up {
                    began = now;
                    before = shards.iter().map(|shard| shard.busy).collect();
                }
            }
        }
        for number_of in [at, ready] {
            let shard = &mut shards[number_of];
            if shard.work.is_some() {
                continue;
            }
            let work = if let Some(flow) = shard.ring.pop_front() {
                Work { flow, length: take + process, is_wrong: false }
            } else if let Some(flow) = shard.link.pop_front() {
                let is_wrong = flows.own[flow] != number_of;
                Work { flow, length: receive + if is_wrong { pass } else { process }, is_wrong }
            } else {
                continue;
            };
            shard.work = Some(work);
            shard.busy += work.length;
            number += 1;
            events.push(Reverse((now + work.length, number, number_of, None)));
        }
    }
    let length = (now - began).max(1) as f64;
    // A shard's work counts when it begins.
    let busy =
        shards.iter().zip(&before).map(|(shard, before)| ((shard.busy - before) as f64 / length).min(1.0));
    Outcome { packets_per_second: wanted as f64 / length * 1e12, busy: busy.collect() }
}

/// Returns the throughput at which the busiest shard, or what all share, has no time left, if all flows have
/// the same rate.
pub(super) fn equal_rates(case: &Case) -> Outcome {
    let flows = Flows::of(case);
    let Costs { receive, process, pass, take, device, memory } = case.costs;
    let mut loads = vec![0.0; case.shards];
    let mut add = |own: usize, at: usize, share: f64| {
        let wrong = if at == own { 0.0 } else { share };
        loads[at] += share * receive + wrong * pass;
        loads[own] += share * process + wrong * take;
    };
    for (&own, &hashed) in flows.own.iter().zip(&flows.hashed) {
        match case.arrival {
            Arrival::First => add(own, 0, 1.0),
            Arrival::Hashed => add(own, hashed, 1.0),
            Arrival::Learned { unlearned } => {
                add(own, own, 1.0 - unlearned);
                (0..case.shards).for_each(|at| add(own, at, unlearned / case.shards as f64));
            }
        }
    }
    let shared = case.flows as f64 * device.max(memory);
    let round = loads.iter().copied().fold(shared, f64::max);
    let busy = loads.iter().map(|load| load / round).collect();
    Outcome { packets_per_second: case.flows as f64 / round * 1e9, busy }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Costs =
        Costs { receive: 200.0, process: 800.0, pass: 0.0, take: 0.0, device: 0.0, memory: 0.0 };
    const LEARNED: Arrival = Arrival::Learned { unlearned: 0.0 };

    fn case(shards: usize, flows: usize, arrival: Arrival, costs: Costs) -> Case {
        Case { shards, flows, arrival, costs, seed: 1 }
    }

    /// Asserts that both kinds of load lead to a number of packets per microsecond, within a tolerance.
    fn check(case: &Case, expected: f64, tolerance: f64) {
        for (what, outcome) in [("greedy", simulate(case)), ("equal", equal_rates(case))] {
            let rate = outcome.packets_per_second * 1e-6;
            let range = expected * (1.0 - tolerance)..=expected * (1.0 + tolerance);
            assert!(range.contains(&rate), "{what}: {rate} instead of {expected}: {case:?}");
            assert!(outcome.busiest() <= 1.0 + 1e-9, "{what}: {outcome:?}");
        }
    }

    #[test]
    fn one_flow_never_becomes_faster() {
        for shards in [1, 2, 8, 32] {
            check(&case(shards, 1, LEARNED, PLAIN), 1.0, 0.01);
        }
    }

    #[test]
    fn many_flows_scale_with_the_shards_if_nothing_is_shared() {
        for shards in [1, 2, 4, 8] {
            let greedy = simulate(&case(shards, 4096, LEARNED, PLAIN));
            let expected = shards as f64;
            assert!((greedy.packets_per_second * 1e-6 - expected).abs() < 0.02 * expected, "{greedy:?}");
            assert!(greedy.busy.iter().all(|busy| *busy > 0.95), "{greedy:?}");
        }
    }

    #[test]
    fn what_all_cores_share_ends_the_scaling() {
        for costs in [Costs { device: 250.0, ..PLAIN }, Costs { memory: 250.0, ..PLAIN }] {
            check(&case(2, 4096, LEARNED, costs), 2.0, 0.06);
            check(&case(8, 4096, LEARNED, costs), 4.0, 0.02);
            check(&case(32, 4096, LEARNED, costs), 4.0, 0.02);
        }
    }

    #[test]
    fn shard_0_caps_a_board_whose_packets_all_arrive_there() {
        let costs = Costs { pass: 50.0, ..PLAIN };
        // Shard 0 spends 250 ns on a packet of another shard, so it passes on four packets per microsecond.
        for shards in [16, 32] {
            let outcome = simulate(&case(shards, 4096, Arrival::First, costs));
            let rate = outcome.packets_per_second * 1e-6;
            assert!((3.2..4.1).contains(&rate), "{rate}");
            assert!(outcome.busy[0] > 0.99 && outcome.busy[1] < 0.4, "{outcome:?}");
        }
    }

    #[test]
    fn handing_on_costs_its_share_of_the_work() {
        let costs = Costs { pass: 150.0, take: 250.0, ..PLAIN };
        // With two shards, half of the packets cost 1400 ns instead of 1000.
        let greedy = simulate(&case(2, 4096, Arrival::Hashed, costs)).packets_per_second * 1e-6;
        assert!((greedy - 2.0 / 1.2).abs() < 0.05, "{greedy}");
        // With very many shards, nearly all of them do.
        let greedy = simulate(&case(32, 4096, Arrival::Hashed, costs)).packets_per_second * 1e-6;
        assert!((greedy - 32.0 / 1.39).abs() < 2.5, "{greedy}");
    }

    #[test]
    fn few_flows_leave_shards_idle_and_load_others_twice() {
        let few = case(16, 16, LEARNED, PLAIN);
        let greedy = simulate(&few);
        let used = greedy.busy.iter().filter(|busy| **busy > 0.5).count();
        assert!((6..16).contains(&used), "{greedy:?}");
        assert!((greedy.packets_per_second * 1e-6 - used as f64).abs() < 0.5, "{greedy:?}");
        let equal = equal_rates(&few);
        assert!(equal.packets_per_second * 1e-6 <= 8.0, "a shard has two flows or more: {equal:?}");
        assert!(equal.busiest() > 1.9 * equal.mean());
    }

    #[test]
    fn packets_that_the_device_has_not_learned_are_handed_on() {
        let costs = Costs { pass: 500.0, take: 500.0, ..PLAIN };
        check(&case(2, 512, Arrival::Learned { unlearned: 0.2 }, costs), 2.0 / 1.1, 0.1);
    }

    #[test]
    fn the_same_seed_gives_the_same_result() {
        let costs = Costs { pass: 50.0, take: 70.0, memory: 10.0, device: 10.0, ..PLAIN };
        let one = case(8, 64, Arrival::Learned { unlearned: 0.1 }, costs);
        assert_eq!(simulate(&one), simulate(&one));
        assert_ne!(simulate(&one), simulate(&Case { seed: 2, ..one }));
    }
}
