//! Boards divided into shards: two shards compared with one and with the kernel, and a model of more of them.
//!
//! Claim     two shards, each on a core of its own, have together at least 1.8 times the goodput of one, in
//!           memory ([`memory`]). A board of two shards receives 64 TCP streams over TUN at no less than the
//!           rate of the kernel's own TCP over a veth. It accepts at least 0.8 times as many new connections
//!           per second as the kernel, and more than gVisor's netstack over TUN ([`network`]).
//! Model     [`model`] simulates up to 32 shards with costs that [`costs`] measures in the same run
//!           ([`scaling`]). What it predicts for two shards in memory is printed beside what was measured.
//! Needs     root (or user namespaces), iproute2, two CPUs; Go for gVisor, which is skipped without it.
//! Groups    `KIBAN_BENCH_ROWS=memory,streams,connections,model` selects groups of rows; `model` measures
//!           what it needs of the others.

mod costs;
mod measured;
mod memory;
mod model;
mod network;
mod scaling;
mod server;

pub(crate) use network::{ROLE, serve};

use crate::link::in_a_namespace;
use crate::rows::wanted;
use kiban_lab::{Bench, Options, Sample, Target, Trial, Unit};
use kiban_os::clock::allowed_cpus;
use measured::{FAILED, Measured};
use memory::{Keys, goodput};
use network::{Side, Work};
use std::time::Duration;

pub(crate) fn run(options: &Options) {
    let mut bench = Bench::new("shards", options.clone());
    bench.options_mut().foreign_cores_max = 0.5;
    let cpus = allowed_cpus().expect("a thread can query its CPUs");
    let [first, .., last] = cpus[..] else {
        println!("shards: needs two CPUs: skipped");
        return;
    };
    let cpus = [first, last];
    let length = Duration::from_millis(if options.quick { 100 } else { 600 });
    let mut measured = Measured::default();
    if wanted("memory") || wanted("model") {
        let sample =
            |shards| move |_: &mut Trial| goodput(shards, Keys::One, cpus, length, true).gbit_per_second;
        let record = bench.compare(
            "in memory, MTU 1500, two shards compared with one",
            Unit::GbitPerSecond,
            ("two shards", sample(2)),
            ("one shard", sample(1)),
            Target::ratio_at_least(1.8),
        );
        let ratio = record.ratio.expect("two sides were compared").median;
        measured.memory = Some((record.sides[1].figures.median, ratio));
    }
    match in_a_namespace(|| Ok(())) {
        Ok(()) => network_rows(&mut bench, length, &mut measured),
        Err(error) => println!("shards: rows with the kernel and the model are skipped: {error}"),
    }
    if wanted("model") && in_a_namespace(|| Ok(())).is_ok() {
        let inputs = scaling::measure(&mut bench, cpus, length, &measured);
        scaling::print(&inputs, options);
    }
    bench.finish();
}

fn network_rows(bench: &mut Bench, length: Duration, measured: &mut Measured) {
    let board = Side::Board(2);
    let figure = |side, work| {
        move |_: &mut Trial| network::run(side, work, length).map_or(FAILED, |result| result.figure)
    };
    if wanted("streams") || wanted("model") {
        let shares = &mut measured.wrong_tun;
        let receive = |_: &mut Trial| {
            let result = network::run(board, Work::Send, length);
            shares.extend(result.and_then(|result| result.wrong));
            result.map_or(FAILED, |result| result.figure)
        };
        bench.compare(
            "64 streams, MTU 1500, received by a board of two shards over TUN, compared with the kernel over veth",
            Unit::GbitPerSecond,
            ("board", receive),
            ("kernel", figure(Side::Kernel, Work::Send)),
            Target::ratio_at_least(1.0),
        );
    }
    if wanted("streams") {
        bench.compare(
            "64 streams, MTU 1500, sent by a board of two shards over TUN, compared with the kernel over veth",
            Unit::GbitPerSecond,
            ("board", figure(board, Work::Receive)),
            ("kernel", figure(Side::Kernel, Work::Receive)),
            Target::None,
        );
    }
    if wanted("connections") {
        let mut own = figure(board, Work::Connect);
        let mut kernel = figure(Side::Kernel, Work::Connect);
        let mut gvisor = figure(Side::Gvisor, Work::Connect);
        let mut others: Vec<(Sample<'_>, Target)> =
            vec![(("kernel", &mut kernel), Target::ratio_at_least(0.8))];
        match network::build_gvisor() {
            Ok(()) => others.push((("gVisor", &mut gvisor), Target::ratio_at_least(1.0))),
            Err(error) => println!("shards: gVisor is not compared: {error}"),
        }
        bench.compare_each(
            "new connections, 64 at a time, board of two shards over TUN",
            Unit::PerSecond,
            ("board", &mut own),
            others,
        );
    }
}
