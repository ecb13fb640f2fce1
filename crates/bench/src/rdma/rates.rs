//! The rows of the benchmark: streams and ping-pongs.

use super::idle;
use super::others;
use super::peer::Peer;
use super::programs;
use super::raw;
use super::setting::{BLOCKING, POLLING, size};
use super::verbs;
use super::verbs::{Over, Stream};
use crate::rows::wanted;
use kiban_lab::{Bench, Options, Target, Trial, Unit};
use kiban_os::clock::{allowed_cpus, pin_thread};

pub(crate) fn run(options: &Options) {
    let cpus = allowed_cpus().expect("a thread can query its CPUs");
    let [one, other, ..] = cpus[..] else {
        println!("rdma: needs two CPUs, {} allowed: skipped", cpus.len());
        return;
    };
    // Measure in a separate thread, so that its pinning ends with it. The peer and all threads of the NICs
    // inherit its CPU.
    std::thread::scope(|threads| {
        let peer = threads.spawn(move || {
            let _ = pin_thread(other);
            Peer::start()
        });
        let mut peer = peer.join().expect("the peer starts");
        threads.spawn(move || {
            let _ = pin_thread(one);
            pinned(options, &mut peer, other);
        });
    });
}

fn pinned(options: &Options, peer: &mut Peer, other: usize) {
    let mut bench = Bench::new("rdma", options.clone());
    bench.options_mut().foreign_cores_max = 0.5;
    if wanted("write") {
        streams(&mut bench, peer);
    }
    if wanted("cost") {
        stream_costs(&mut bench, peer);
    }
    if wanted("send") {
        ping_pongs(&mut bench, peer);
    }
    if wanted("gather") {
        bench.single(
            "Writes of 64 B with a gather list, polling",
            Unit::MillionPerSecond,
            ("RDMA", |trial: &mut Trial| verbs::gathered(trial, peer, POLLING) / 1e6),
            Target::at_least(1.0),
        );
    }
    if wanted("programs") {
        programs::run(&mut bench, peer, other);
    }
    if wanted("others") {
        others::run(&mut bench, peer, other);
    }
    if wanted("idle") {
        idle::run(&mut bench);
    }
    bench.finish();
}

fn streams(bench: &mut Bench, peer: &mut Peer) {
    let rows = [
        (64 << 10, false, BLOCKING, Target::ratio_at_least(0.9)),
        (1 << 20, false, BLOCKING, Target::ratio_at_least(0.9)),
        (64 << 10, true, BLOCKING, Target::ratio_at_least(0.7)),
        (1 << 20, true, BLOCKING, Target::ratio_at_least(0.7)),
        (64 << 10, false, POLLING, Target::None),
        (1 << 20, false, POLLING, Target::None),
    ];
    for (block_bytes, crc, wait, target) in rows {
        let checked = if crc { ", CRC" } else { "" };
        let stream = Stream { over: Over::Tcp, block_bytes, crc, wait };
        // Two samples can share one peer, because they never run at the same time.
        let peer = std::cell::RefCell::new(&mut *peer);
        bench.compare(
            &format!("Writes of {}{checked}, {}", size(block_bytes), wait.0),
            Unit::GbytePerSecond,
            ("RDMA", |trial: &mut Trial| {
                verbs::stream(trial, &mut peer.borrow_mut(), stream).per_second / 1e9
            }),
            ("raw TCP", |trial: &mut Trial| {
                raw::stream(trial, &mut peer.borrow_mut(), block_bytes, wait).per_second / 1e9
            }),
            target,
        );
    }
}

/// Measures the CPU cost of a stream, which can be compared even on a busy machine.
fn stream_costs(bench: &mut Bench, peer: &mut Peer) {
    let kept = std::mem::replace(&mut bench.options_mut().foreign_cores_max, f64::INFINITY);
    for (block_bytes, crc) in [(64 << 10, false), (1 << 20, false), (64 << 10, true), (1 << 20, true)] {
        let checked = if crc { ", CRC" } else { "" };
        let stream = Stream { over: Over::Tcp, block_bytes, crc, wait: BLOCKING };
        let peer = std::cell::RefCell::new(&mut *peer);
        bench.compare(
            &format!("Writes of {}{checked}, processor time of both ends", size(block_bytes)),
            Unit::Named("ns/KiB"),
            ("RDMA", |trial: &mut Trial| {
                verbs::stream(trial, &mut peer.borrow_mut(), stream).cpu_nanos_each * 1024.0
            }),
            ("raw TCP", |trial: &mut Trial| {
                raw::stream(trial, &mut peer.borrow_mut(), block_bytes, BLOCKING).cpu_nanos_each * 1024.0
            }),
            Target::None,
        );
    }
    bench.options_mut().foreign_cores_max = kept;
}

fn ping_pongs(bench: &mut Bench, peer: &mut Peer) {
    for wait in [BLOCKING, POLLING] {
        let peer = std::cell::RefCell::new(&mut *peer);
        bench.compare(
            &format!("Send of 64 B, half a round trip, {}", wait.0),
            Unit::Microseconds,
            ("RDMA", |trial: &mut Trial| verbs::ping_pong(trial, &mut peer.borrow_mut(), 64, wait)),
            ("raw TCP", |trial: &mut Trial| raw::ping_pong(trial, &mut peer.borrow_mut(), 64, wait)),
            Target::ratio_at_most(1.25),
        );
    }
}
