//! The modelled waiting process, compared with calculations by hand.

use kiban_base::{Costs, Wait};
use kiban_sim::waiting::{
    ArrivalPattern, Arrivals, Level, Outcome, Posted, Posting, Process, Stall, StallLength, StallTiming,
};
use std::time::Duration;

const fn micros(length: u64) -> Duration {
    Duration::from_micros(length)
}

const fn hybrid(spin: u64) -> Wait {
    Wait::Hybrid { spin: micros(spin) }
}

/// Handling a packet takes 10 µs and a wake-up 20 µs. A sleep costs 9 µs of CPU time, and its interrupt 7 µs.
fn process(wait: Wait, stalls: &[Stall]) -> Process {
    Process { wait, costs: Costs::default(), work: micros(10), stalls: stalls.to_vec(), seed: 1 }
}

fn posted(descriptors: usize, level: Level, rhythm: ArrivalPattern, packets: u64) -> Posted {
    Posted::new(Posting { descriptors, level, pace: micros(1) }, Arrivals::new(rhythm, packets, 2))
}

fn run(process: &Process, rhythm: ArrivalPattern, packets: u64) -> Outcome {
    let mut queue = posted(1000, Level::Unreliable, rhythm, packets);
    let outcome = process.run(&mut queue);
    assert_eq!((outcome.taken, queue.lost()), (packets, &[][..]));
    outcome
}

#[test]
fn a_fixed_policy_pays_for_its_spin_at_long_gaps_and_for_the_gap_at_short_ones() {
    const PACKETS: u32 = 1000;
    // Each row: the policy, the gap between packets, and per packet the time spent spinning, the number of
    // sleeps, and the latency. Times are in microseconds.
    for (wait, gap, spun, sleeps, latency) in [
        (Wait::Poll, 400, 390, 0, 0),
        (Wait::Interrupt, 400, 0, 1, 20),
        (hybrid(100), 400, 100, 1, 20),
        (hybrid(300), 400, 300, 1, 20),
        // This is the limiting case for spinning: work and spin together last exactly as long as the gap.
        (hybrid(100), 110, 100, 0, 0),
        (hybrid(100), 150, 100, 1, 20),
        (hybrid(100), 50, 40, 0, 0),
    ] {
        let outcome = run(&process(wait, &[]), ArrivalPattern::Constant { gap: micros(gap) }, PACKETS.into());
        let name = format!("{wait} at {gap} us");
        // The first wait is longer, because there is no work before it, so it may end with one more sleep.
        let once = if sleeps == 0 { 1 } else { 0 };
        assert_eq!(outcome.worked, PACKETS * micros(10), "{name}");
        assert!(outcome.sleeps.abs_diff(u64::from(PACKETS * sleeps)) <= once, "{name}: {}", outcome.sleeps);
        assert_eq!(outcome.slept, outcome.sleeps as u32 * micros(16), "{name}");
        assert!(outcome.spun.abs_diff(PACKETS * micros(spun)) <= micros(30), "{name}: {:?}", outcome.spun);
        let p50 = outcome.latencies.quantile(0.5).expect("packets came");
        assert!(p50 >= micros(latency) && p50 <= micros(latency) * 17 / 16, "{name}: {p50:?}");
        let expected = (10 + spun + u64::from(sleeps) * 16) as f64 / gap as f64;
        assert!((outcome.cpu() - expected).abs() < 1e-3, "{name}: {}", outcome.cpu());
        assert_eq!(outcome.waits.waits + outcome.waits.at_once, u64::from(PACKETS), "{name}");
    }
}

#[test]
fn a_late_wake_up_makes_the_waiter_sleep_every_other_time() {
    // A packet arrives every 120 us. After a sleep, a packet is taken 20 us late and processed for 10 us, so
    // the process spins for 90 us until the next packet. It takes that packet in time, so the wait for the
    // following one exceeds 100 us of spinning, and the process sleeps.
    let outcome = run(&process(hybrid(100), &[]), ArrivalPattern::Constant { gap: micros(120) }, 1000);
    assert_eq!(outcome.sleeps, 500);
    assert_eq!((outcome.waits.spin_hits, outcome.waits.blocks), (500, 500));
}

/// Returns stalls of `length` microseconds, one at each wake-up of the process.
fn stalled(length: u64) -> Stall {
    Stall { when: StallTiming::Waking(1.0), length: StallLength::Fixed(micros(length)) }
}

#[test]
fn packets_without_a_descriptor_after_a_stall_are_handled_by_the_level() {
    // The first packet arrives at 100 µs, is taken at 100 + 20 + 1000 µs, and is done at 1130 µs. The first
    // packet and those that arrive at 200, 300 and 400 µs use the four descriptors. The packets that arrive
    // from 500 to 1100 µs find none.
    let rhythm = ArrivalPattern::Constant { gap: micros(100) };
    let interrupt = process(Wait::Interrupt, &[stalled(1000)]);

    let mut queue = posted(4, Level::Unreliable, rhythm, 12);
    let outcome = interrupt.run(&mut queue);
    assert_eq!(queue.lost(), [4, 5, 6, 7, 8, 9, 10]);
    assert_eq!((outcome.taken, queue.connection_lost_at(), queue.held()), (5, None, Duration::ZERO));

    let mut queue = posted(4, Level::Reception, rhythm, 12);
    let outcome = interrupt.run(&mut queue);
    assert_eq!((outcome.taken, queue.lost()), (12, &[][..]));
    // The packet that arrives at 500 µs is held until 1130 µs, when the first packet is done. Each of the
    // next six packets is held for 9 µs: it is sent 1 µs after the previous one was accepted, and is accepted
    // when the next packet is done, 10 µs later.
    assert_eq!(queue.held(), micros(630) + 6 * micros(9));

    let patient = |micros_: u64| {
        let mut queue = posted(4, Level::Delivery { patience: micros(micros_) }, rhythm, 12);
        let outcome = interrupt.run(&mut queue);
        (outcome.taken, queue.connection_lost_at().map(|at| at.as_nanos() / 1000))
    };
    assert_eq!(patient(0), (4, Some(500)));
    assert_eq!(patient(629), (4, Some(1129)));
    assert_eq!(patient(631), (12, None));
}

#[test]
fn only_a_sleeper_meets_wake_up_stalls() {
    let rhythm = ArrivalPattern::Constant { gap: micros(150) };
    for (wait, expected) in [(Wait::Poll, 0), (hybrid(140), 0), (hybrid(139), 1), (Wait::Interrupt, 1)] {
        let rare = Stall { when: StallTiming::Waking(0.001), length: StallLength::Fixed(micros(50_000)) };
        let mut queue = posted(100, Level::Unreliable, rhythm, 100_000);
        let outcome = process(wait, &[rare]).run(&mut queue);
        assert_eq!(u64::from(outcome.stalls > 0), expected, "{wait}");
        assert_eq!(u64::from(!queue.lost().is_empty()), expected, "{wait}");
        assert_eq!(outcome.taken + queue.lost().len() as u64, 100_000);
    }
}

#[test]
fn a_counted_stall_comes_at_every_nth_opportunity() {
    let third = Stall { when: StallTiming::EveryWaking(3), length: StallLength::Fixed(micros(50)) };
    let outcome =
        run(&process(Wait::Interrupt, &[third]), ArrivalPattern::Constant { gap: micros(200) }, 100);
    assert_eq!((outcome.sleeps, outcome.stalls), (100, 33));
}

#[test]
fn stalls_while_running_hit_a_spinner_more_often_than_a_sleeper() {
    let often = Stall {
        when: StallTiming::Running { mean: micros(100_000) },
        length: StallLength::Fixed(micros(2000)),
    };
    let rhythm = ArrivalPattern::Constant { gap: micros(200) };
    let stalls = |wait| run(&process(wait, &[often]), rhythm, 500_000).stalls;
    // The run takes 100 s, with one stall per 100 ms of running time. The spinning process runs whenever it
    // is not stalled, the sleeping process a twentieth of the time.
    let (spinner, sleeper) = (stalls(Wait::Poll), stalls(Wait::Interrupt));
    assert!((930..1030).contains(&spinner), "{spinner}");
    assert!((35..70).contains(&sleeper), "{sleeper}");
}

/// Arrivals that close together would use up a short queue during a stall, so adaptive waiting keeps the
/// processor where the paper's receive call with its longest polling time does.
#[test]
fn adaptive_loses_nothing_where_polling_before_each_sleep_does_not() {
    let rare = Stall { when: StallTiming::EveryWaking(100), length: StallLength::Fixed(micros(40_000)) };
    let constant = |gap| ArrivalPattern::Constant { gap: micros(gap) };
    let bursts = |packets| ArrivalPattern::Bursts { packets, gap: micros(150), pause: micros(5000) };
    for rhythm in [100, 150, 250, 300, 310, 400, 800].map(constant).into_iter().chain([10, 200].map(bursts)) {
        let lost = |wait, descriptors| {
            let mut queue = posted(descriptors, Level::Unreliable, rhythm, 50_000);
            process(wait, &[rare]).run(&mut queue);
            queue.lost().len()
        };
        for descriptors in [4, 106, 152, 228, 1000] {
            let (ours, papers) = (lost(Wait::Adaptive, descriptors), lost(hybrid(300), descriptors));
            assert!(ours <= papers, "{rhythm:?}, {descriptors} descriptors: {ours}, with hybrid {papers}");
        }
    }
}

/// On a reliable level nothing is lost, so the same arrivals cost a sleep each.
#[test]
fn adaptive_polls_longer_only_where_a_stall_would_lose_packets() {
    let rhythm = ArrivalPattern::Constant { gap: micros(250) };
    let cpu = |level| process(Wait::Adaptive, &[]).run(&mut posted(106, level, rhythm, 10_000)).cpu();
    let (reliable, unreliable) = (cpu(Level::Reception), cpu(Level::Unreliable));
    assert!(reliable < 0.15 && unreliable > 0.99, "{reliable}, {unreliable}");
}

#[test]
fn adaptive_sleeps_at_once_at_long_gaps_and_spins_through_short_ones() {
    let cpu = |gap| {
        run(&process(Wait::Adaptive, &[]), ArrivalPattern::Exponential { mean: micros(gap) }, 100_000).cpu()
    };
    // At a gap of 1000 us, the cost (10 us of work and 16 us of sleep) is little more than the cost of a
    // process that never spins. At a gap of 15 us, spinning costs less than sleeping.
    assert!(cpu(1000) < 0.03, "{}", cpu(1000));
    let outcome = run(&process(Wait::Adaptive, &[]), ArrivalPattern::Constant { gap: micros(15) }, 100_000);
    assert!(outcome.sleeps < 100, "{}", outcome.sleeps);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let stall = Stall {
        when: StallTiming::Waking(0.01),
        length: StallLength::Exponential { mean: micros(5000), most: micros(50_000) },
    };
    let of = |seed| {
        let mut queue =
            posted(50, Level::Unreliable, ArrivalPattern::Exponential { mean: micros(100) }, 20_000);
        let outcome = Process { seed, ..process(Wait::Adaptive, &[stall]) }.run(&mut queue);
        (outcome, queue.lost().to_vec())
    };
    assert_eq!(of(1), of(1));
    assert_ne!(of(1).1, of(2).1);
    assert!(of(1).0.stall_longest <= micros(50_000));
}
