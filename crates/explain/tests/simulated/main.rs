//! Connections with known causes, made by boards in virtual time, and explained from their captures.

#[path = "../made/mod.rs"]
mod made;
mod programs;
mod scenarios;
#[path = "../score/mod.rs"]
mod score;
mod world;

use kiban_base::SimRng;
use kiban_explain::{Cause, Waited};
use kiban_tcpip::wire::ip;
use made::{Draw, Set, arrived, file};
use programs::{Job, Reading};
use std::time::Duration;

/// Returns the causes that the simulator can produce.
fn simulated() -> Vec<Cause> {
    use Cause::{NoHandshake, NoResponse, PathFull, PathMtu, Refused};
    let is_simulated =
        |cause: &Cause| !matches!(cause, PathMtu | PathFull | Refused | NoHandshake | NoResponse);
    Cause::ALL.into_iter().filter(is_simulated).collect()
}

#[test]
fn a_bulk_transfer_that_fills_a_link_is_not_slow() {
    let mut losses = 0;
    for seed in 0..12 {
        let report = kiban_explain::explain(&scenarios::full(seed).run()).expect("a capture");
        let one = &report.connections[0];
        losses += one.directions.iter().map(|direction| direction.retransmits).sum::<u32>();
        assert!(!one.is_slow(), "{seed}: {one}");
    }
    assert!(losses > 100, "{losses}");
}

#[test]
fn the_rate_of_a_policer_is_found_without_its_burst() {
    let mut off = Vec::new();
    for seed in 0..60 {
        let (scenario, rate) = scenarios::policed(&mut Draw(SimRng::from_seed(seed)), seed);
        let report = kiban_explain::explain(&scenario.run()).expect("a capture");
        let policing = report.connections[0].verdict.as_ref().filter(|one| one.cause == Cause::Policing);
        let Some(because) = policing.map(|one| &one.because) else { continue };
        let found = because.split(" ahead of ").nth(1).and_then(|rest| rest.split(" Mbit/s").next());
        let found: f64 = found.and_then(|found| found.parse().ok()).expect("a rate in Mbit/s");
        off.push(found * 1e6 / rate as f64);
    }
    off.sort_by(f64::total_cmp);
    let close = off.iter().filter(|off| (0.95..1.05).contains(*off)).count();
    assert!(off.len() >= 50 && close * 10 >= off.len() * 9 && off[off.len() - 1] < 1.05, "{off:.3?}");
}

#[test]
fn a_short_queue_is_no_policer() {
    let mut losses = 0;
    // Of the first 6000, these look most like a policer.
    for seed in [126, 258, 414, 594, 721, 841, 901, 1081, 1188, 1375, 1775, 5653] {
        let report = kiban_explain::explain(&scenarios::short_queue(seed).run()).expect("a capture");
        let one = &report.connections[0];
        losses += one.directions.iter().map(|direction| direction.retransmits).sum::<u32>();
        let mut findings = one.verdict.iter().chain(&one.also);
        assert!(findings.all(|finding| finding.cause != Cause::Policing), "{seed}: {one}");
    }
    assert!(losses > 200, "{losses}");
}

#[test]
fn think_time_does_not_contain_the_delay_of_the_path() {
    let mut measured = 0;
    for seed in 0..30 {
        let scenario = scenarios::scenario(Some(Cause::ThinkTime), seed);
        let (&Job::Exchange { count, .. }, Reading::Thinking { message, answer, pause }) =
            (&scenario.job, scenario.reading)
        else {
            panic!("an exchange with a server that thinks")
        };
        // A capture does not show how long the link takes for a request, or its answer.
        let wire = (message + answer) as f64 * 8e3 / scenario.there.bits_per_second as f64;
        let report = kiban_explain::explain(&scenario.run()).expect("a capture");
        let one = &report.connections[0];
        // A retransmission that was not needed counts as the arrival of the request.
        if one.directions[0].retransmits > 0 {
            continue;
        }
        measured += 1;
        let found = one.directions[1].waited_ms[&Waited::ThinkTime] / count as f64;
        let off = found - pause.as_secs_f64() * 1e3;
        assert!((-1.0..1.0 + wire).contains(&off), "{seed}: {off} ms per answer, {wire}: {one}");
    }
    assert!(measured >= 20, "{measured}");
}

#[test]
fn connections_that_fill_one_path_are_linked() {
    let report = kiban_explain::explain(&scenarios::full(0).run()).expect("a capture");
    assert_eq!(report.connections[0].shares_path_with, []);
    let mut packets = arrived(&scenarios::full(0).run(), Duration::ZERO);
    // The same once more, from another port.
    let others = packets.clone().into_iter().map(|(at, mut packet)| {
        let ports = ip::Front::read(&packet).expect("a packet").header_bytes;
        let low = if packet[ports..][..2] == [0, 80] { ports + 3 } else { ports + 1 };
        packet[low] ^= 1;
        (at + 1000, packet)
    });
    packets.extend(others.collect::<Vec<_>>());
    packets.sort_by_key(|(at, _)| *at);
    let report = kiban_explain::explain(&file(&packets, 120)).expect("a capture");
    let links: Vec<&[usize]> = report.connections.iter().map(|one| &one.shares_path_with[..]).collect();
    assert_eq!(links, [[2], [1]], "{report}");
    let text = report.connections[0].to_string();
    assert!(text.contains("shares its full path with connection 2, which sends"), "{text}");
}

#[test]
fn losses_that_cost_little_are_mentioned_beside_the_cause() {
    for seed in 0..6 {
        let report = kiban_explain::explain(&scenarios::pauses_and_losses(seed).run()).expect("a capture");
        let one = &report.connections[0];
        let causes: Vec<Cause> = one.verdict.iter().chain(&one.also).map(|finding| finding.cause).collect();
        assert_eq!(causes.first(), Some(&Cause::SenderLimited), "{one}");
        assert!(causes.contains(&Cause::Congestion), "{one}");
    }
}

#[test]
fn the_causes_of_simulated_connections_are_found() {
    let run = |cause, seed| scenarios::scenario(cause, seed).run();
    Set { causes: simulated(), run, first: [0, 23001], each: 24, floor: 0.9 }.check();
}
