//! The RDMA NIC over TCP sockets, compared with the sockets alone.
//!
//! Claim     a write into another process's memory costs hardly more than sending its bytes over a socket; a
//!           short message takes at most a quarter longer than a raw round trip, and many short messages
//!           share a system call.
//! Sides     RDMA Writes are compared with a raw stream of the same block size, and Sends with a raw
//!           ping-pong; both are also compared with libfabric's and UCX's TCP transports where these are
//!           installed. A further row is the memory of idle queue pairs.
//! Fair      the other end is another process on another CPU, which the benchmark starts from its own
//!           executable. A sample connects, exchanges messages for a while, and then measures; it ends when
//!           the other end has *received* the last byte: the raw reader confirms each batch with a byte, the
//!           NIC's peer answers a Read. Rings, their alignment, TCP_NODELAY and the system's buffers are the
//!           same on both sides.
//! Wait      how both sides wait: `blocking` sleeps (a blocking socket; [`kiban_base::Wait::Interrupt`]),
//!           `polling` spins (a non-blocking socket; [`kiban_base::Wait::Poll`]).
//! Guard     the kernel's work for the loopback may count as foreign load, so the limit is half a core.
//! Left out  EFE: its results are in virtual time, and are checked by tests.

mod idle;
mod measured;
mod others;
mod peer;
mod programs;
mod raw;
mod serve;
mod setting;
mod verbs;

pub(crate) use self::peer::ROLE;
pub(crate) use self::serve::serve;

use self::peer::Peer;
use self::setting::{BLOCKING, POLLING, size};
use self::verbs::Stream;
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
            "Writes of 64 B gathered, polling",
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
        let stream = Stream { block_bytes, crc, wait };
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
        let stream = Stream { block_bytes, crc, wait: BLOCKING };
        let peer = std::cell::RefCell::new(&mut *peer);
        bench.compare(
            &format!("the same of {}{checked}, processor time of both ends", size(block_bytes)),
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
            &format!("Send of 64 B there, half a round trip, {}", wait.0),
            Unit::Microseconds,
            ("RDMA", |trial: &mut Trial| verbs::ping_pong(trial, &mut peer.borrow_mut(), 64, wait)),
            ("raw TCP", |trial: &mut Trial| raw::ping_pong(trial, &mut peer.borrow_mut(), 64, wait)),
            Target::ratio_at_most(1.25),
        );
    }
}
