//! `kiban net` as the network of a guest, compared with pasta, slirp4netns, and the kernel alone.
//!
//! Targets   at MTU 1500, ten times pasta's throughput from the guest to the host, five times in the other
//!           direction, and 0.3 of what iperf3 reaches over loopback; at MTU 65,520 at least pasta's. A round
//!           trip of one byte takes at most 1.3 times as long as with pasta.
//! Host      the benchmark runs in namespaces of its own ([`host`]): their loopback interface is the host's,
//!           to which every network gives the guest access at its gateway's address.
//! Guest     a process in namespaces of its own, to which each network attaches with its own options for
//!           this (`kiban net PROCESS`, `pasta PROCESS`, `slirp4netns PROCESS`). For every sample there are a
//!           new guest and a new network.
//! Sides     kiban is compared with pasta, with slirp4netns, with a veth between guest and host, and with
//!           loopback, where there is no guest. One round measures all of them.
//! Fair      the same client and server programs at both ends, with their default settings; nothing is
//!           pinned to a CPU. iperf3 measures throughput, for a second, at the receiver.
//! Counted   memory is the sum of the peak resident memory of the network's processes, after 16 streams in
//!           each direction. CPU time is that of the network's processes, in user and kernel mode, without
//!           client and server.
//! Needs     `make verbs` (which puts kiban next to this program), iperf3, iproute2, util-linux, and pasta
//!           and slirp4netns; rows are skipped for missing networks.
//! Groups    `KIBAN_BENCH_ROWS=throughput,connections,roundtrip,cpu,memory` selects groups of rows.

mod client;
mod host;
mod network;
mod server;

pub(crate) use client::{ROLE, ask, run as run_client};

use crate::rows::wanted;
use client::Way;
use kiban_lab::{Bench, Options, Sample, Target, Trial, Unit};
use network::{Kind, Network};
use std::time::Duration;

/// The figures of a sample that failed, where more is better and where less is. A network that stalls is a
/// result, and must not end the run.
const FAILED: f64 = 1e-3;
const FAILED_COST: f64 = 1e6;

/// The length of a test of connections or round trips.
const LENGTH: Duration = Duration::from_millis(800);

/// The length of the whole run after which disturbed rounds are no longer repeated.
const REPEATS_FOR: Duration = Duration::from_secs(360);

pub(crate) fn run(options: &Options) {
    match host::enter(options.quick) {
        host::Entered::Inside => {}
        host::Entered::Ended => return,
        host::Entered::Failed(error) => {
            println!("net: skipped: {error}");
            return;
        }
    }
    let missing = |kind: &Kind| {
        let missing = kind.missing();
        if let Some(what) = missing {
            println!("net: {} is not compared: {what}", kind.name());
        }
        missing.is_some()
    };
    if !client::has_iperf3() || missing(&Kind::Kiban) {
        println!("net: needs iperf3, and kiban next to this program (make verbs): skipped");
        return;
    }
    let others: Vec<Kind> = Kind::OTHERS.into_iter().filter(|kind| !missing(kind)).collect();
    let mut options = options.clone();
    // Five rounds of all sides fit into twelve minutes.
    options.repeats = if options.quick { 1 } else { 5 };
    options.redos_max = if options.quick { 0 } else { 3 };
    // The kernel's part of the networks' work counts as the load of nobody.
    options.foreign_cores_max = 0.5;
    let mut all = All { bench: Bench::new("net", options), others, clock: kiban_os::Clock::new() };
    for way in [Way::Up, Way::Down] {
        for &mtu_bytes in all.mtus() {
            for streams in [1, 16].into_iter().filter(|_| wanted("throughput")) {
                all.throughput(way, mtu_bytes, streams);
            }
        }
    }
    if wanted("connections") {
        let connect = |network: &Network| client::connections(network, 16, LENGTH);
        all.each(
            "connections, 16 at a time",
            Unit::PerSecond,
            |_| Target::None,
            |kind| on(kind, 65_520, connect).unwrap_or(FAILED),
        );
    }
    if wanted("roundtrip") {
        let target = |kind| if kind == Kind::Pasta { Target::ratio_at_most(1.3) } else { Target::None };
        let exchange = |network: &Network| client::round_trip(network, LENGTH);
        all.each("round trip of one byte, median", Unit::Microseconds, target, |kind| {
            on(kind, 65_520, exchange).unwrap_or(FAILED_COST)
        });
    }
    // The others have no processes of their own.
    all.others.retain(|kind| kind.has_processes());
    for way in [Way::Up, Way::Down] {
        for &mtu_bytes in all.mtus().iter().filter(|_| wanted("cpu")) {
            all.cpu(way, mtu_bytes);
        }
    }
    if wanted("memory") {
        let peak = |network: &Network| {
            client::throughput(network, Way::Up, 16)?;
            client::throughput(network, Way::Down, 16)?;
            network.peak_memory().map(|bytes| bytes as f64 / 1e6)
        };
        all.each(
            "peak resident memory",
            Unit::Named("MB"),
            |_| Target::None,
            |kind| on(kind, 65_520, peak).unwrap_or(FAILED_COST),
        );
    }
    all.bench.finish();
}

/// Runs a sample on a new network of a kind.
fn on(kind: Kind, mtu_bytes: usize, sample: impl Fn(&Network) -> Option<f64>) -> Option<f64> {
    sample(&Network::start(kind, mtu_bytes)?).filter(|figure| *figure > 0.0)
}

struct All {
    bench: Bench,
    others: Vec<Kind>,
    clock: kiban_os::Clock,
}

impl All {
    fn mtus(&mut self) -> &'static [usize] {
        if self.bench.options_mut().quick { &[1500] } else { &[1500, 65_520] }
    }

    fn throughput(&mut self, way: Way, mtu_bytes: usize, streams: usize) {
        let factor = if way == Way::Up { 10.0 } else { 5.0 };
        let plural = if streams == 1 { "" } else { "s" };
        let title = format!("MTU {mtu_bytes}, {}, {streams} stream{plural}", way.name());
        let target = |kind| match (kind, mtu_bytes) {
            (Kind::Pasta, 1500) => Target::ratio_at_least(factor),
            (Kind::Pasta, _) => Target::ratio_at_least(1.0),
            (Kind::Loopback, 1500) => Target::ratio_at_least(0.3),
            _ => Target::None,
        };
        self.each(&title, Unit::GbitPerSecond, target, |kind| {
            on(kind, mtu_bytes, |network| client::throughput(network, way, streams)).unwrap_or(FAILED)
        });
    }

    /// Compares the CPU time that the networks use for the same payload.
    fn cpu(&mut self, way: Way, mtu_bytes: usize) {
        let title = format!("MTU {mtu_bytes}, {}, 1 stream, CPU time", way.name());
        let cost = |network: &Network| {
            let before = network.cpu_nanos()?;
            let gbytes = client::throughput(network, way, 1)? * client::SECONDS as f64 / 8.0;
            Some((network.cpu_nanos()? - before) as f64 / 1e9 / gbytes)
        };
        self.each(
            &title,
            Unit::Named("s/GB"),
            |_| Target::None,
            |kind| on(kind, mtu_bytes, cost).unwrap_or(FAILED_COST),
        );
    }

    /// Compares kiban with each of the others.
    fn each(
        &mut self,
        title: &str,
        unit: Unit,
        target: impl Fn(Kind) -> Target,
        sample: impl Fn(Kind) -> f64,
    ) {
        if self.clock.now() > kiban_base::Instant::ZERO + REPEATS_FOR {
            self.bench.options_mut().redos_max = 0;
        }
        let sample = &sample;
        let mut samples: Vec<_> =
            self.others.iter().map(|&kind| (kind, move |_: &mut Trial| sample(kind))).collect();
        let mut first = |_: &mut Trial| sample(Kind::Kiban);
        let others = samples
            .iter_mut()
            .map(|(kind, measure)| -> (Sample<'_>, Target) { ((kind.name(), measure), target(*kind)) });
        self.bench.compare_each(title, unit, ("kiban", &mut first), others.collect());
    }
}
