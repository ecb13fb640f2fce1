//! The EFE-like transport around one Ethernet switch: 10 Gbit/s, a round-trip time of 10 us, queues of 64
//! frames.
//!
//! `cargo test -p kiban-sim --test nics efe -- --nocapture` prints the figures in docs/efe.md.

use kiban_base::Instant;
use kiban_rdma::efe::{Config, EfeCounters};
use kiban_sim::{CableConfig, ImpairmentConfig, Star, StarConfig, Stream};
use std::time::Duration;

/// The bytes that a segment of 1472 bytes takes on the line, including EFE's header, Ethernet's header, FCS,
/// preamble and gap.
const LINE_BYTES: f64 = 1472.0 + 28.0 + 14.0 + 4.0 + 8.0 + 12.0;
/// The share of 10 Gbit/s that is left for payload after the format's overhead.
const LIMIT_GIGABITS: f64 = 10.0 * 1472.0 / LINE_BYTES;

fn at(micros: u64) -> Instant {
    Instant::from_nanos(micros * 1000)
}

/// Returns endless streams from hosts 1..=n to host 0. Each starts `apart_micros` after the previous one.
fn endless(n: usize, apart_micros: u64) -> Vec<Stream> {
    let stream = |host: usize| {
        let mut stream = Stream::new(host, 0, u64::MAX);
        stream.begin = at(apart_micros * (host as u64 - 1));
        stream
    };
    (1..=n).map(stream).collect()
}

/// Returns the streams' rates between two times, as fractions of the format's limit.
fn rates(star: &mut Star, from: Instant, until: Instant) -> Vec<f64> {
    star.run(from);
    star.take_queue_watch();
    let before: Vec<u64> = star.streams.iter().map(|stream| stream.read_bytes).collect();
    star.run(until);
    let nanos = until.since(from).as_nanos() as f64;
    let streams = star.streams.iter().zip(before);
    streams
        .map(|(stream, before)| (stream.read_bytes - before) as f64 * 8.0 / nanos / LIMIT_GIGABITS)
        .collect()
}

fn sum(star: &Star, hosts: usize, of: impl Fn(&EfeCounters) -> u64) -> u64 {
    (0..hosts).map(|host| of(star.endpoint(host).counters())).sum()
}

/// Checks that no receiver dropped segments for which it had given credit, and that no contents were
/// corrupted.
fn check_promises(star: &Star, hosts: usize) {
    assert_eq!(sum(star, hosts, |counters| counters.sent_beyond_credit), 0);
    assert_eq!(sum(star, hosts, |counters| counters.acks_invalid), 0);
    assert!(star.streams.iter().all(|stream| stream.wrong == 0), "every segment once, in order, and intact");
}

#[test]
fn one_flow_fills_the_line() {
    let mut star = Star::new(&StarConfig::ten_gigabit(2), endless(1, 0));
    let used = rates(&mut star, at(5000), at(25_000))[0];
    println!("one flow: {:.2} % of {LIMIT_GIGABITS:.3} Gbit/s", used * 100.0);
    assert!(used >= 0.97, "{used}");
    check_promises(&star, 2);
}

/// Returns hosts with lines of 40 Gbit/s, so that the queue builds up in the switch and not in the sender's
/// own port.
fn faster_hosts(hosts: usize, endpoint: Config) -> StarConfig {
    let mut config = StarConfig { endpoint, ..StarConfig::ten_gigabit(hosts) };
    config.up.bits_per_second = 40_000_000_000;
    config
}

/// Congestion control that ignores delay and always keeps a fixed window in flight.
fn fixed_window(frames: u32) -> Config {
    let endless = Duration::from_secs(3600);
    Config {
        window_frames: frames,
        backlog_frames: 1000,
        queue_delay_max: endless,
        breath_every: endless,
        breath_after_join: endless,
        ..Config::default()
    }
}

#[test]
fn the_queue_of_delay_based_flows_is_short() {
    let row = |flows: usize, config: Config| {
        let mut star = Star::new(&faster_hosts(flows + 1, config), endless(flows, 0));
        let used: f64 = rates(&mut star, at(10_000), at(40_000)).iter().sum();
        let queue = star.take_queue_watch();
        check_promises(&star, flows + 1);
        let drops = star.switch.port_counters().queue_full;
        (used, queue.mean(), queue.most, drops)
    };
    println!("| flows | window | used | frames in the queue | most | dropped |");
    let mut table = Vec::new();
    for flows in [1, 2, 4, 8, 16] {
        for (name, config) in [
            ("delay-based", Config::default()),
            ("16 fixed", fixed_window(16)),
            ("64 fixed", fixed_window(64)),
        ] {
            let (used, mean, most, drops) = row(flows, config);
            println!("| {flows} | {name} | {:.1} % | {mean:.1} | {most} | {drops} |", used * 100.0);
            table.push((flows, name, used, mean, drops));
        }
    }
    for (flows, name, used, mean, drops) in table {
        assert!(used > 0.97, "{flows} {name}: {used}");
        match name {
            "delay-based" => {
                assert!(mean < 3.5 * flows as f64 && mean < 32.0, "{flows}: {mean}");
                assert_eq!(drops, 0, "{flows}");
            }
            "64 fixed" => assert!(mean > 40.0, "the comparison has a point: {mean}"),
            _ => {}
        }
    }
}

#[test]
fn flows_of_one_port_get_equal_shares() {
    println!("| flows | apart | used | least | most | frames in the queue |");
    for flows in [2, 3, 4, 5, 7, 8, 11, 13, 16] {
        for apart in [0, 300] {
            let mut star = Star::new(&StarConfig::ten_gigabit(flows + 1), endless(flows, apart));
            let rates = rates(&mut star, at(20_000), at(50_000));
            let used: f64 = rates.iter().sum();
            let mean = used / flows as f64;
            let least = rates.iter().fold(f64::MAX, |least, rate| least.min(*rate)) / mean;
            let most = rates.iter().fold(0.0f64, |most, rate| most.max(*rate)) / mean;
            let queue = star.take_queue_watch().mean();
            println!(
                "| {flows} | {apart} us | {:.1} % | {least:.3} | {most:.3} | {queue:.1} |",
                used * 100.0
            );
            assert!(used > 0.98, "{flows} flows use {used}");
            assert!(least > 0.9 && most < 1.1, "{flows} flows, {apart} us apart: {least} {most}");
            check_promises(&star, flows + 1);
        }
    }
}

#[test]
fn without_drain_epochs_shares_are_not_equal() {
    let mut config = StarConfig::ten_gigabit(9);
    let never = Duration::from_secs(3600);
    (config.endpoint.breath_every, config.endpoint.breath_after_join) = (never, never);
    let mut star = Star::new(&config, endless(8, 300));
    let rates = rates(&mut star, at(20_000), at(30_000));
    let mean = rates.iter().sum::<f64>() / 8.0;
    let least = rates.iter().fold(f64::MAX, |least, rate| least.min(*rate)) / mean;
    assert!(
        least < 0.5,
        "flows that began in a full queue share fairly without them, so drain epochs would be useless: {least}"
    );
}

#[test]
fn random_losses_do_not_upset_the_shares() {
    for loss in [0.001, 0.01] {
        let mut config = StarConfig::ten_gigabit(17);
        config.down.impairment.loss = loss;
        let mut star = Star::new(&config, endless(16, 100));
        let rates = rates(&mut star, at(20_000), at(45_000));
        let used: f64 = rates.iter().sum();
        let mean = used / 16.0;
        let least = rates.iter().fold(f64::MAX, |least, rate| least.min(*rate)) / mean;
        let most = rates.iter().fold(0.0f64, |most, rate| most.max(*rate)) / mean;
        println!("16 flows, {} % lost: {:.1} %, {least:.3}, {most:.3}", loss * 100.0, used * 100.0);
        assert!(used > 0.95 && least > 0.9 && most < 1.1, "{loss}: {used} {least} {most}");
        check_promises(&star, 17);
    }
}

#[test]
fn short_segments_are_delivered_as_reliably() {
    for bytes in [1, 14, 64, 700] {
        let stream = |host| {
            let mut stream = Stream::new(host, 0, 3000);
            stream.segment_bytes = bytes;
            stream
        };
        let mut config = StarConfig::ten_gigabit(5);
        config.down.impairment.loss = 0.001;
        let mut star = Star::new(&config, (1..=4).map(stream).collect());
        assert!(star.run(at(100_000)), "{bytes}");
        check_promises(&star, 5);
    }
}

#[test]
fn other_rates_and_a_longer_path_are_shared_as_well() {
    println!("| line | flows | used | least | most |");
    let rows = [
        ("1 Gbit/s", 1_000_000_000, 0, [200_000, 500_000]),
        ("100 Gbit/s", 100_000_000_000, 0, [20_000, 24_000]),
        ("10 Gbit/s, one twice as far", 10_000_000_000, 10_000, [20_000, 50_000]),
    ];
    for (name, rate, further, [from, until]) in rows {
        for flows in [2, 4, 16] {
            let mut config = StarConfig::ten_gigabit(flows + 1);
            (config.up.bits_per_second, config.down.bits_per_second) = (rate, rate);
            config.endpoint = Config::ethernet(rate);
            let mut star = Star::new(&config, endless(flows, 0));
            let way = CableConfig { delay: config.up.delay + Duration::from_nanos(further), ..config.up };
            star.up_mut(1).set_config(way);
            let rates = rates(&mut star, at(from), at(until));
            let used = rates.iter().sum::<f64>() * 10_000_000_000.0 / rate as f64;
            let mean = rates.iter().sum::<f64>() / flows as f64;
            let least = rates.iter().fold(f64::MAX, |least, rate| least.min(*rate)) / mean;
            let most = rates.iter().fold(0.0f64, |most, rate| most.max(*rate)) / mean;
            println!("| {name} | {flows} | {:.1} % | {least:.3} | {most:.3} |", used * 100.0);
            let bound = if further == 0 { 0.15 } else { 0.4 };
            assert!(
                used > 0.97 && least > 1.0 - bound && most < 1.0 + bound,
                "{name} {flows}: {used} {least} {most}"
            );
            check_promises(&star, flows + 1);
        }
    }
}

#[test]
fn sixteen_send_a_megabyte_to_one() {
    for (name, endpoint) in [("delay-based", Config::default()), ("64 fixed", fixed_window(64))] {
        let config = StarConfig { endpoint, ..StarConfig::ten_gigabit(17) };
        let streams = (1..=16).map(|host| Stream::new(host, 0, 713)).collect();
        let mut star = Star::new(&config, streams);
        assert!(star.run(at(200_000)), "{name}: {:?}", star.streams);
        check_promises(&star, 17);
        let last = star.streams.iter().map(|stream| stream.read_at).max().expect("16 streams");
        let first = star.streams.iter().map(|stream| stream.read_at).min().expect("16 streams");
        let ideal = 16.0 * 713.0 * LINE_BYTES * 0.8e-6;
        println!(
            "16 x 1 MB, {name}: {:.2} to {:.2} ms, at the line's rate {ideal:.2}; switch dropped {}, sent again {}, timeouts {}",
            first.as_secs_f64() * 1e3,
            last.as_secs_f64() * 1e3,
            star.switch.port_counters().queue_full,
            sum(&star, 17, |counters| counters.retransmits),
            sum(&star, 17, |counters| counters.timeouts),
        );
        if name == "delay-based" {
            assert!(last.as_secs_f64() * 1e3 < 1.1 * ideal, "{last:?}");
        }
    }
}

#[test]
fn a_hundred_short_messages_at_once_all_arrive() {
    // There are more flows than slots in the queue, and each flow ends before it has measured an empty path.
    let streams = (0..128).map(|n| Stream::new(1 + n % 16, 0, 8)).collect();
    let mut star = Star::new(&StarConfig::ten_gigabit(17), streams);
    assert!(star.run(at(100_000)));
    check_promises(&star, 17);
    let (took, ideal) = (star.now().as_secs_f64() * 1e3, 128.0 * 8.0 * LINE_BYTES * 0.8e-6);
    let dropped = star.switch.port_counters().queue_full;
    println!("128 x 8 segments: {took:.2} ms, at the line's rate {ideal:.2}, dropped {dropped}");
    assert!(took < 1.5 * ideal, "{took}");
}

#[test]
fn everything_arrives_over_any_impairment() {
    let base = ImpairmentConfig { hold_back: Duration::from_micros(30), ..ImpairmentConfig::NONE };
    let rows = [
        ("0.1 % loss", ImpairmentConfig { loss: 0.001, ..base }, 0.95),
        ("1 % loss", ImpairmentConfig { loss: 0.01, ..base }, 0.80),
        ("5 % loss", ImpairmentConfig { loss: 0.05, ..base }, 0.3),
        ("1 % doubled", ImpairmentConfig { duplicate: 0.01, ..base }, 0.97),
        ("0.1 % held back by up to 30 us", ImpairmentConfig { reorder: 0.001, ..base }, 0.9),
        ("1 % held back by up to 30 us", ImpairmentConfig { reorder: 0.01, ..base }, 0.7),
        ("1 % with a flipped bit", ImpairmentConfig { bit_error: 0.01, ..base }, 0.7),
        (
            "0.1 % of all of these",
            ImpairmentConfig { loss: 0.001, duplicate: 0.001, reorder: 0.001, bit_error: 0.001, ..base },
            0.8,
        ),
    ];
    println!("| impairment, each way | used | retransmitted | timeouts |");
    for (name, impairment, floor) in rows {
        let mut config = StarConfig::ten_gigabit(2);
        (config.up.impairment, config.down.impairment) = (impairment, impairment);
        // On a real Ethernet, the FCS would detect these errors; here EFE's own checksum must.
        config.endpoint.checked = impairment.bit_error > 0.0;
        config.endpoint.segment_bytes = if config.endpoint.checked { 1468 } else { 1472 };
        let segments = 20_000;
        let mut star = Star::new(&config, vec![Stream::new(1, 0, segments)]);
        assert!(star.run(at(2_000_000)), "{name}: {:?}", star.streams);
        check_promises(&star, 2);
        let used = star.streams[0].gigabits(star.streams[0].read_at) / LIMIT_GIGABITS;
        println!(
            "| {name} | {:.1} % | {:.2} % | {} |",
            used * 100.0,
            sum(&star, 2, |counters| counters.retransmits) as f64 * 100.0 / segments as f64,
            sum(&star, 2, |counters| counters.timeouts)
        );
        assert!(used > floor, "{name}: {used}");
    }
}

#[test]
fn traffic_both_ways_and_a_bad_return_path_cost_little() {
    let both = || vec![Stream::new(1, 0, u64::MAX), Stream::new(0, 1, u64::MAX)];
    let mut star = Star::new(&StarConfig::ten_gigabit(2), both());
    let used = rates(&mut star, at(10_000), at(40_000));
    println!("two ways: {:.1} and {:.1} %", used[0] * 100.0, used[1] * 100.0);
    assert!(used.iter().all(|used| *used > 0.9), "{used:?}");
    check_promises(&star, 2);

    for loss in [0.01, 0.1, 0.3] {
        let mut config = StarConfig::ten_gigabit(2);
        let mut star = {
            config.down.impairment = ImpairmentConfig::NONE;
            Star::new(&config, endless(1, 0))
        };
        // Only acknowledgements travel in this direction.
        let down =
            CableConfig { impairment: ImpairmentConfig { loss, ..ImpairmentConfig::NONE }, ..config.down };
        star.switch.port_mut(1).set_config(down);
        let used = rates(&mut star, at(10_000), at(40_000))[0];
        println!("{} % of acknowledgements lost: {:.1} %", loss * 100.0, used * 100.0);
        assert!(used > 0.9, "{loss}: {used}");
        check_promises(&star, 2);
    }
}

#[test]
fn a_slow_reader_slows_its_sender_and_loses_nothing() {
    let mut slow = Stream::new(1, 0, 2000);
    slow.read_every = Duration::from_micros(20);
    let quick = Stream::new(2, 0, 20_000);
    let mut star = Star::new(&StarConfig::ten_gigabit(3), vec![slow, quick]);
    assert!(star.run(at(100_000)), "{:?}", star.streams);
    check_promises(&star, 3);
    let took = star.streams[0].read_at;
    assert!((39_900..42_000).contains(&(took.as_nanos() / 1000)), "a segment each 20 us: {took:?}");
    let used = star.streams[1].gigabits(star.streams[1].read_at) / LIMIT_GIGABITS;
    assert!(used > 0.9, "the other does not wait for it: {used}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = |seed| {
        let mut config = StarConfig { seed, ..StarConfig::ten_gigabit(4) };
        config.down.impairment = ImpairmentConfig::from_seed(3);
        let mut star = Star::new(&config, endless(3, 50));
        star.run(at(5000));
        let streams: Vec<u64> = star.streams.iter().map(|stream| stream.read_bytes).collect();
        (streams, (0..4).map(|host| *star.endpoint(host).counters()).collect::<Vec<_>>())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
