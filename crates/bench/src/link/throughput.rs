//! The rows of the benchmark: throughput of boards, stub and kernels.

use super::attach;
use super::board;
use super::cells;
use super::device::{BEHIND, Device, Direction, SINK, SOURCE, in_a_namespace, open};
use super::idle;
use super::peer;
use super::sixty;
use super::sixty::Sender;
use super::stub;
use crate::rows::wanted;
use kiban_lab::{Bench, Options, Target, Unit};
use kiban_os::clock::{Clock, allowed_cpus, pin_thread};
use std::net::SocketAddr;
use std::time::Duration;

/// The endpoint behind the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    Stub,
    Board,
}

pub(crate) fn run(options: &Options) {
    let mut bench = Bench::new("link", options.clone());
    bench.options_mut().foreign_cores_max = 0.5;
    let cpus = allowed_cpus().expect("a thread can query its CPUs");
    if let Err(error) = in_a_namespace(|| Ok(())) {
        println!("link: skipped: {error}");
        return;
    }
    let [first, .., last] = cpus[..] else {
        println!("link: needs two CPUs: skipped");
        return;
    };
    let cpus = [first, last];
    let length = Duration::from_millis(if options.quick { 100 } else { 600 });
    for (group, whole, mtus) in
        [("whole", true, [(1500, 0.6), (9180, 0.6)]), ("packets", false, [(1500, 0.75), (9180, 0.75)])]
    {
        if wanted(group) {
            mtus.into_iter().for_each(|(mtu_bytes, ratio)| {
                beside_the_stub(&mut bench, Device { mtu_bytes, whole }, ratio, cpus, length);
            });
        }
    }
    let device = Device { mtu_bytes: 1500, whole: true };
    let board = |direction| transfer(Who::Board, direction, device, cpus, length);
    if wanted("kernels") {
        bench.compare(
            "MTU 1500, board receives over TUN, compared with two kernels over veth",
            Unit::GbitPerSecond,
            ("board", |_: &mut _| board(Direction::Receives)),
            ("kernels", |_: &mut _| peer::over_veth(1500, cpus, length)),
            Target::ratio_at_least(0.7),
        );
        if peer::has_iperf3() {
            bench.compare(
                "MTU 1500, two kernels over veth, with plain loops and with iperf3",
                Unit::GbitPerSecond,
                ("plain", |_: &mut _| peer::over_veth(1500, cpus, length)),
                ("iperf3", |_: &mut _| peer::iperf3_over_veth(1500, cpus)),
                Target::None,
            );
        }
    }
    // Compare with published results: gVisor receives 41.7 Gbit/s and sends 27.7 on such a machine, with the
    // same offloads.
    if wanted("known") {
        for (direction, verb, figure) in
            [(Direction::Receives, "receives", 41.7), (Direction::Sends, "sends", 27.7)]
        {
            let title = format!("TUN, MTU 1500, whole segments, {verb}, compared with gVisor's {figure}");
            bench.single(
                &title,
                Unit::GbitPerSecond,
                ("board", |_: &mut _| board(direction)),
                Target::at_least(figure),
            );
        }
    }
    if wanted("attached") {
        attached(&mut bench, cpus, length, options.quick);
    }
    if wanted("cells") {
        for packed in [false, true] {
            let form = if packed { "27 per datagram" } else { "one per datagram" };
            bench.single(
                &format!("two boards over UDP cells ({form}), each way, one core for both"),
                Unit::Named("cells/s"),
                ("boards", |_: &mut _| cells::run(packed, 128, first, length)),
                Target::at_least(cells::OC3C),
            );
        }
    }
    // These rows are limited by the line, or do not measure rates, so other processes matter little.
    bench.options_mut().foreign_cores_max = cpus.len() as f64;
    if wanted("sixty") {
        sixty_together(&mut bench, cpus, length);
    }
    if wanted("idle") {
        if idle::files_max() < idle::SESSIONS + 100 {
            println!("link: {} idle sessions: skipped: 'ulimit -n' allows too few files", idle::SESSIONS);
        } else {
            bench.single(
                "10,000 idle TCP sessions with the kernel, growth of the process's memory",
                Unit::Named("MB"),
                ("board", |_: &mut _| idle::run()),
                Target::at_most(100.0),
            );
        }
    }
    bench.finish();
}

fn beside_the_stub(bench: &mut Bench, device: Device, ratio: f64, cpus: [usize; 2], length: Duration) {
    let Device { mtu_bytes, whole } = device;
    let what = if whole { "whole segments" } else { "packets" };
    for direction in [Direction::Receives, Direction::Sends] {
        let verb = if direction == Direction::Receives { "receives" } else { "sends" };
        bench.compare(
            &format!("TUN, MTU {mtu_bytes}, {what}, {verb}"),
            Unit::GbitPerSecond,
            ("board", |_: &mut _| transfer(Who::Board, direction, device, cpus, length)),
            ("stub", |_: &mut _| transfer(Who::Stub, direction, device, cpus, length)),
            Target::ratio_at_least(ratio),
        );
    }
}

fn attached(bench: &mut Bench, cpus: [usize; 2], length: Duration, quick: bool) {
    bench.single(
        "attached program, 64 bytes to the board's echo service and back",
        Unit::Microseconds,
        ("attached", |_: &mut _| attach::echo(cpus, if quick { 2_000 } else { 20_000 })),
        Target::at_most(15.0),
    );
    for (whole, what) in [(true, "whole segments"), (false, "packets")] {
        let device = Device { mtu_bytes: 1500, whole };
        for (direction, verb) in [(Direction::Receives, "receives"), (Direction::Sends, "sends")] {
            bench.compare(
                &format!("TUN, MTU 1500, {what}, {verb}, attached program compared with the board's own"),
                Unit::GbitPerSecond,
                ("attached", |_: &mut _| {
                    attach::transfer(attach::Who::Attached, direction, device, cpus, length)
                }),
                ("own", |_: &mut _| attach::transfer(attach::Who::Own, direction, device, cpus, length)),
                Target::ratio_at_least(0.9),
            );
        }
    }
}

fn sixty_together(bench: &mut Bench, cpus: [usize; 2], length: Duration) {
    // The interval is much longer than the time in which a session sends one window, so that shares are
    // accurate.
    let length = (length * 5).max(Duration::from_millis(1500));
    bench.compare(
        "sixty sessions send over 1 Gbit/s, session farthest from the mean",
        Unit::Percent,
        ("board", |_: &mut _| sixty::run(Sender::Board, cpus, length).worst_percent),
        ("kernel", |_: &mut _| sixty::run(Sender::Kernel, cpus, length).worst_percent),
        Target::at_most(4.0),
    );
    bench.compare(
        "sixty sessions send over 1 Gbit/s, total",
        Unit::MbitPerSecond,
        ("board", |_: &mut _| sixty::run(Sender::Board, cpus, length).mbit_per_second),
        ("kernel", |_: &mut _| sixty::run(Sender::Kernel, cpus, length).mbit_per_second),
        Target::None,
    );
}

/// Runs one connection between the kernel and the board or stub behind the device; returns Gbit/s at the
/// receiver.
fn transfer(who: Who, direction: Direction, device: Device, cpus: [usize; 2], length: Duration) -> f64 {
    // If other processes keep the receiver off its CPU for the whole time, all bytes are read at once, and
    // the computed rate is infinite.
    let mut figures = std::iter::repeat_with(|| transfer_once(who, direction, device, cpus, length)).take(3);
    figures.find(|figure| figure.is_finite()).expect("one of three transfers takes time")
}

fn transfer_once(who: Who, direction: Direction, device: Device, cpus: [usize; 2], length: Duration) -> f64 {
    let done = in_a_namespace(|| {
        let link = open(device).map_err(|error| error.to_string())?;
        pin_thread(cpus[0]).map_err(|error| error.to_string())?;
        let clock = Clock::new();
        std::thread::scope(|scope| {
            let kernel = scope.spawn(|| {
                pin_thread(cpus[1]).expect("this CPU was allowed");
                let to = |port| SocketAddr::from((BEHIND, port));
                match direction {
                    Direction::Receives => peer::send(&peer::connect(to(SINK)), clock, length),
                    Direction::Sends => peer::receive(&peer::connect(to(SOURCE)), clock),
                }
            });
            let over = || kernel.is_finished();
            let behind = match who {
                Who::Stub => stub::run(&link, direction, device, clock, length, over),
                Who::Board => board::run(link, direction, device, clock, length, over),
            };
            let kernel = kernel.join().expect("the kernel's side succeeds");
            Ok(if direction == Direction::Receives { behind } else { kernel }.gbit_per_second())
        })
    });
    done.expect("it worked before")
}
