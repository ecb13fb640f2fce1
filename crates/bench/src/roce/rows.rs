//! The rows of the benchmark: streams over three links, round trips, CPU time and memory.

use super::streams::{self, Setup};
use super::{idle, minimum, udp};
use crate::link::{Wire, in_a_namespace, over_wire};
use crate::rdma::{BLOCKING, Over, POLLING, Peer, Stream, is_installed, nic_stream, raw_stream, size};
use crate::rows::wanted;
use kiban_base::Wait;
use kiban_lab::{Bench, Options, Target, Trial, Unit};
use kiban_os::clock::{allowed_cpus, pin_thread};
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc;

/// An address of the loopback that other programs hardly use for RoCEv2.
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 91));
/// The length of a full EFE frame between loopback addresses.
const EFE_FRAME_BYTES: usize = 1500;
/// Bytes of a packet in the middle of a Write besides its payload: BTH and ICRC.
const HEADER_BYTES: usize = 16;
/// The length of the short message.
const SHORT_BYTES: usize = 64;

pub(crate) fn run(options: &Options) {
    let cpus = allowed_cpus().expect("a thread can query its CPUs");
    let [one, other, ..] = cpus[..] else {
        println!("roce: needs two CPUs, {} allowed: skipped", cpus.len());
        return;
    };
    // Measure in separate threads, so that their pinning and namespaces end with them. The peer and all
    // threads of the engines inherit them.
    std::thread::scope(|threads| {
        let peer = threads.spawn(move || {
            let _ = pin_thread(other);
            Peer::start_at(LOOPBACK)
        });
        let mut peer = peer.join().expect("the peer starts");
        threads.spawn(move || {
            let _ = pin_thread(one);
            loopback(options, &mut peer);
        });
    });
    if !wanted("veth") {
        return;
    }
    if !is_installed("ip") {
        return println!("roce: ip is not installed: apt install iproute2 (rows over veth skipped)");
    }
    if let Err(error) = in_a_namespace(|| Ok(())) {
        return println!("roce: {error} (rows over veth skipped)");
    }
    for (mtu_bytes, path_mtu) in [(1500, 1024), (9000, 4096)] {
        veth(options, mtu_bytes, path_mtu, [one, other]);
    }
}

fn open(options: &Options) -> Bench {
    let mut bench = Bench::new("roce", options.clone());
    // The kernel's work for the link may count as foreign load.
    bench.options_mut().foreign_cores_max = 0.5;
    bench
}

fn loopback(options: &Options, peer: &mut Peer) {
    if !["loopback", "minimum", "efe", "send", "cost", "idle"].into_iter().any(wanted) {
        return;
    }
    let mut bench = open(options);
    let setup = |wait| Setup { here: LOOPBACK, there: LOOPBACK, path_mtu: 4096, wait };
    if wanted("minimum") {
        least(&mut bench, peer, "loopback", &setup(POLLING));
    }
    if wanted("loopback") {
        writes(&mut bench, peer, "loopback", &setup(POLLING));
    }
    if wanted("efe") {
        efe(&mut bench, peer, &setup(POLLING));
    }
    if wanted("send") {
        let peer = RefCell::new(&mut *peer);
        let setup = setup(POLLING);
        bench.compare(
            &format!("Send of {}, half a round trip, polling", size(SHORT_BYTES)),
            Unit::Microseconds,
            ("RoCEv2", |trial: &mut Trial| {
                streams::ping_pong(trial, &mut peer.borrow_mut(), SHORT_BYTES, &setup)
            }),
            ("bare UDP", |trial: &mut Trial| {
                udp::ping_pong(trial, &mut peer.borrow_mut(), SHORT_BYTES + HEADER_BYTES, &setup)
            }),
            Target::ratio_at_most(1.3),
        );
    }
    if wanted("cost") {
        costs(&mut bench, peer, &setup(BLOCKING));
    }
    if wanted("idle") {
        idle::run(&mut bench, LOOPBACK);
    }
    bench.finish();
}

fn veth(options: &Options, mtu_bytes: usize, path_mtu: usize, [one, other]: [usize; 2]) {
    let (offer, offered) = mpsc::channel();
    let (done, ends) = mpsc::channel();
    let [here, there] = [Wire::NEAR, Wire::FAR].map(IpAddr::from);
    let near = move || {
        pin_thread(one).map_err(|error| error.to_string())?;
        let mut peer: Peer = offered.recv().map_err(|error| error.to_string())?;
        let mut bench = open(options);
        let setup = Setup { here, there, path_mtu, wait: POLLING };
        if wanted("minimum") {
            least(&mut bench, &mut peer, &format!("veth with MTU {mtu_bytes}"), &setup);
        }
        writes(&mut bench, &mut peer, &format!("veth with MTU {mtu_bytes}"), &setup);
        bench.finish();
        drop(peer);
        done.send(()).map_err(|error| error.to_string())
    };
    let far = move |listens: &dyn Fn()| {
        pin_thread(other).map_err(|error| error.to_string())?;
        offer.send(Peer::start_at(there)).map_err(|error| error.to_string())?;
        listens();
        ends.recv().map_err(|error| error.to_string())
    };
    over_wire(Wire { mtu_bytes, near_has_address: true }, near, far);
}

/// Compares the least work that Writes need with bare UDP.
fn least(bench: &mut Bench, peer: &mut Peer, link: &str, setup: &Setup) {
    let peer = RefCell::new(peer);
    bench.compare(
        &format!("the least work for Writes of 64 KiB, {link}, {}", setup.wait.0),
        Unit::GbytePerSecond,
        ("minimum", |trial: &mut Trial| minimum::stream(trial, &mut peer.borrow_mut(), setup) / 1e9),
        ("bare UDP", |trial: &mut Trial| {
            udp::stream(trial, &mut peer.borrow_mut(), setup.path_mtu + HEADER_BYTES, setup) / 1e9
        }),
        Target::None,
    );
}

/// Compares Writes with bare UDP, and below them iWARP with raw TCP.
fn writes(bench: &mut Bench, peer: &mut Peer, link: &str, setup: &Setup) {
    let peer = RefCell::new(peer);
    for block_bytes in [64 << 10, 1 << 20] {
        let title = format!("Writes of {}, {link}, {}", size(block_bytes), setup.wait.0);
        bench.compare(
            &title,
            Unit::GbytePerSecond,
            ("RoCEv2", |trial: &mut Trial| {
                streams::writes(trial, &mut peer.borrow_mut(), block_bytes, setup).per_second / 1e9
            }),
            ("bare UDP", |trial: &mut Trial| {
                udp::stream(trial, &mut peer.borrow_mut(), setup.path_mtu + HEADER_BYTES, setup) / 1e9
            }),
            Target::ratio_at_least(0.7),
        );
        if !wanted("beside") {
            continue;
        }
        let stream = Stream { over: Over::Tcp, block_bytes, crc: false, wait: setup.wait };
        bench.compare(
            &title,
            Unit::GbytePerSecond,
            ("iWARP", |trial: &mut Trial| nic_stream(trial, &mut peer.borrow_mut(), stream).per_second / 1e9),
            ("raw TCP", |trial: &mut Trial| {
                raw_stream(trial, &mut peer.borrow_mut(), block_bytes, setup.wait).per_second / 1e9
            }),
            Target::None,
        );
    }
}

/// Compares Writes over EFE with bare UDP in datagrams of the same length.
fn efe(bench: &mut Bench, peer: &mut Peer, setup: &Setup) {
    let peer = RefCell::new(peer);
    for block_bytes in [64 << 10, 1 << 20] {
        let stream = Stream { over: Over::Efe, block_bytes, crc: false, wait: setup.wait };
        bench.compare(
            &format!("Writes of {}, loopback, {}", size(block_bytes), setup.wait.0),
            Unit::GbytePerSecond,
            ("EFE", |trial: &mut Trial| nic_stream(trial, &mut peer.borrow_mut(), stream).per_second / 1e9),
            ("bare UDP", |trial: &mut Trial| {
                udp::stream(trial, &mut peer.borrow_mut(), EFE_FRAME_BYTES, setup) / 1e9
            }),
            Target::ratio_at_least(0.7),
        );
    }
}

/// Compares the CPU time of both ends, which can be compared even on a busy machine.
fn costs(bench: &mut Bench, peer: &mut Peer, setup: &Setup) {
    let kept = std::mem::replace(&mut bench.options_mut().foreign_cores_max, f64::INFINITY);
    let (name, wait): (&str, Wait) = setup.wait;
    let peer = RefCell::new(peer);
    for block_bytes in [64 << 10, 1 << 20] {
        bench.compare(
            &format!("Writes of {}, loopback, {name}, CPU time of both ends", size(block_bytes)),
            Unit::Named("s/GB"),
            ("RoCEv2", |trial: &mut Trial| {
                streams::writes(trial, &mut peer.borrow_mut(), block_bytes, setup).cpu_nanos_each
            }),
            ("raw TCP", |trial: &mut Trial| {
                raw_stream(trial, &mut peer.borrow_mut(), block_bytes, (name, wait)).cpu_nanos_each
            }),
            Target::None,
        );
    }
    bench.options_mut().foreign_cores_max = kept;
}
