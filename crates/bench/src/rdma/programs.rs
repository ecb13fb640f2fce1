//! Unmodified programs on the drop-in libraries: perftest, compared with iperf3, a raw socket and `memcpy`.
//!
//! Claim     a program written for RDMA hardware transfers data through kiban's libraries nearly as fast as
//!           through the sockets below them; on one host, through shared memory, it reaches a large part of
//!           the speed of `memcpy`.
//! Fair      server and client are separate processes, each on a CPU of its own, and are started anew for
//!           each sample. For latency, perftest and the raw socket both poll, and both report the median of
//!           the same number of round trips. For iperf3, the rate at the receiver counts.
//! Needs     `make verbs` (which puts the libraries next to this program), perftest, and iperf3.

use super::others::{Launch, beside, free_port, is_installed};
use super::peer::Peer;
use super::raw;
use super::setting::{POLLING, size};
use kiban_base::Region;
use kiban_lab::{Bench, Target, Trial, Unit};
use std::cell::RefCell;
use std::path::PathBuf;

/// Returns the directory in which `make verbs` puts the libraries.
fn libraries() -> Option<PathBuf> {
    let folder = std::env::current_exe().ok()?.parent()?.join("verbs");
    folder.join("libibverbs.so.1").is_file().then_some(folder)
}

/// The parameters of a perftest run.
struct Perftest<'a> {
    libraries: &'a str,
    cpu: usize,
    shares: bool,
}

impl Perftest<'_> {
    fn run(
        &self,
        program: &str,
        bytes: usize,
        turns: usize,
        (numbers, wanted): (usize, usize),
    ) -> Option<f64> {
        let (port, turns, bytes) = (free_port(), turns.to_string(), bytes.to_string());
        let common = ["-R", "-F", "-p", &port, "-n", &turns, "-s", &bytes];
        let client = [&common[..], &["127.0.0.1"]].concat();
        let environment = [
            ("LD_LIBRARY_PATH", self.libraries),
            ("KIBAN_SHARED_MEMORY", if self.shares { "1" } else { "0" }),
        ];
        let launch = Launch { port: &port, environment: &environment };
        beside(program, launch, (&common, &client), self.cpu, |words| {
            (words.len() == numbers && words[0] == bytes).then(|| words[wanted].parse().ok()).flatten()
        })
    }

    /// Returns the throughput in units of 10^9 bytes per second; perftest's MB are 2^20 bytes.
    fn bandwidth(&self, program: &str, bytes: usize, turns: usize) -> Option<f64> {
        // Columns of the output: bytes, iterations, peak, average, message rate.
        self.run(program, bytes, turns, (5, 3)).map(|rate| rate * f64::from(1 << 20) / 1e9)
    }

    /// Returns half of the typical round-trip time, microseconds.
    fn latency(&self, program: &str, bytes: usize, turns: usize) -> Option<f64> {
        // Columns of the output: bytes, iterations, minimum, maximum, typical, average, deviation, 99 %, 99.9
        // %.
        self.run(program, bytes, turns, (9, 4))
    }
}

/// Returns the rate of iperf3's receiver over the loopback, in units of 10^9 bytes per second.
fn iperf3(cpu: usize, seconds: &str) -> Option<f64> {
    let port = free_port();
    let server = ["-s", "-1", "-p", &port];
    let client = ["-c", "127.0.0.1", "-p", &port, "-t", seconds, "-f", "m"];
    let launch = Launch { port: &port, environment: &[] };
    beside("iperf3", launch, (&server, &client), cpu, |words| {
        let at = words.iter().position(|&word| word == "Mbits/sec")?;
        let rate: f64 = words.get(at.checked_sub(1)?)?.parse().ok()?;
        (words.last() == Some(&"receiver")).then_some(rate / 8e3)
    })
}

/// Copies 1 MiB repeatedly on one core; returns gigabytes per second (10^9).
fn copies(trial: &mut Trial) -> f64 {
    const BYTES: usize = 1 << 20;
    let (from, to) = (Region::new(0, BYTES), Region::new(0, BYTES));
    let span = trial.measure(|| {
        let bytes = from.bytes(0, BYTES).expect("it is whole");
        to.write(0, bytes).expect("it fits");
        std::hint::black_box(&to);
        BYTES as f64
    });
    span.per_second() / 1e9
}

pub(super) fn run(bench: &mut Bench, peer: &mut Peer, cpu: usize) {
    let Some(folder) = libraries() else {
        println!("rdma: the drop-in libraries are not beside this program: run make verbs (rows skipped)");
        return;
    };
    for (program, package) in [("ib_write_bw", "perftest"), ("iperf3", "iperf3")] {
        if !is_installed(program) {
            println!("rdma: {program} is not installed: apt install {package} (rows skipped)");
            return;
        }
    }
    let quick = bench.options_mut().quick;
    let short = if quick { 20 } else { 1 };
    let folder = folder.to_string_lossy();
    let sockets = Perftest { libraries: &folder, cpu, shares: false };
    let shared = Perftest { libraries: &folder, cpu, shares: true };
    if sockets.bandwidth("ib_write_bw", 65536, 100).is_none() {
        println!("rdma: ib_write_bw -R does not work here (rows skipped)");
        return;
    }
    let works = "it worked before";
    for (bytes, turns) in [(64 << 10, 60_000), (1 << 20, 4_000)] {
        for (way, perftest, target) in
            [("sockets", &sockets, Target::ratio_at_least(0.85)), ("shared memory", &shared, Target::None)]
        {
            bench.compare(
                &format!("ib_write_bw -R of {}, {way}", size(bytes)),
                Unit::GbytePerSecond,
                ("kiban", |_: &mut Trial| {
                    perftest.bandwidth("ib_write_bw", bytes, turns / short).expect(works)
                }),
                ("iperf3", |_: &mut Trial| iperf3(cpu, if quick { "1" } else { "2" }).expect(works)),
                target,
            );
        }
    }
    let peer = RefCell::new(peer);
    let turns = 50_000 / short;
    bench.compare(
        "ib_send_lat -R of 64 B, half a round trip, sockets",
        Unit::Microseconds,
        ("kiban", |_: &mut Trial| sockets.latency("ib_send_lat", 64, turns).expect(works)),
        ("raw TCP", |_: &mut Trial| raw::typical_trip(&mut peer.borrow_mut(), 64, POLLING, turns)),
        Target::ratio_at_most(1.3),
    );
    bench.compare(
        "ib_write_bw -R of 1 MiB, shared memory",
        Unit::GbytePerSecond,
        ("kiban", |_: &mut Trial| shared.bandwidth("ib_write_bw", 1 << 20, 20_000 / short).expect(works)),
        ("memcpy", copies),
        Target::ratio_at_least(0.35),
    );
    bench.single(
        "ib_send_lat -R of 64 B, half a round trip, shared memory",
        Unit::Microseconds,
        ("kiban", |_: &mut Trial| shared.latency("ib_send_lat", 64, 200_000 / short).expect(works)),
        Target::at_most(2.0),
    );
}
