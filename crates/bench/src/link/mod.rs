//! TCP of a board against this host's kernel, through TUN, beside what the device allows and what two kernels do.
//!
//! Claim     with whole segments a board receives and sends at 0.6 or more of what a stub does that is no TCP, receiving also at
//!           0.7 of what two kernel endpoints do over a veth; packet by packet at MTU 1500 at 0.75 of the stub.
//! Stub      ([`stub`]) answers a handshake, then acknowledges whatever comes, or sends whatever the window takes: no timers,
//!           no congestion control, nothing sent twice. It copies payload as an application would, and forms or verifies sums
//!           where the device does not. So it is what the kernel boundary costs.
//! Fair      the same kernel peer for both, a plain loop of reads or writes of 256 KiB with cubic ([`peer`]), pinned to one
//!           processor, the stub or the board to the other. A fresh namespace and device for every sample; sides take turns.
//! Counted   payload bytes at whoever receives, from the first to the last.
//! iperf3    is beside it, if it is installed, since readers know it; above 30 Gbit/s it is its own limit.

mod board;
mod peer;
mod stub;

use kiban_ground::Instant;
use kiban_lab::{Bench, Options, Target, Unit};
use kiban_real::clock::{Clock, allowed_cpus, pin_thread};
use kiban_real::link::interface;
use kiban_real::link::tun::{Carries, TunLink};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The kernel's address, and that of who is behind the device.
const KERNEL: [u8; 4] = [10, 9, 0, 1];
const BEHIND: [u8; 4] = [10, 9, 0, 2];
/// Where whoever is behind the device takes bytes, and where it sends them.
const SINK: u16 = 9;
const SOURCE: u16 = 19;
const DEVICE: &str = "kiban0";
/// Bytes that an application reads or writes at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Which way payload goes, seen from behind the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Receives,
    Sends,
}

/// What the device does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Device {
    mtu_bytes: usize,
    /// Whether segments cross it whole.
    whole: bool,
}

impl Device {
    fn mss(self) -> usize {
        self.mtu_bytes - 40
    }
}

/// Who is behind the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    Stub,
    Board,
}

/// Bytes and the moments of the first and the last.
#[derive(Clone, Copy, Default)]
struct Taken {
    bytes: u64,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Taken {
    fn take(&mut self, bytes: usize, now: Instant) {
        self.first.get_or_insert(now);
        self.last = Some(now);
        self.bytes += bytes as u64;
    }

    fn gbit_per_second(&self) -> f64 {
        let (Some(first), Some(last)) = (self.first, self.last) else { return 0.0 };
        self.bytes as f64 * 8e-9 / last.since(first).as_secs_f64()
    }
}

pub(crate) fn run(options: &Options) {
    let mut bench = Bench::new("link", options.clone());
    bench.options_mut().foreign_cores_max = 0.5;
    let cpus = allowed_cpus().expect("a thread may ask for its own CPUs");
    if let Err(error) = in_a_namespace(|| Ok(())) {
        println!("link: skipped: {error}");
        return;
    }
    let [first, .., last] = cpus[..] else {
        println!("link: skipped: two processors are needed");
        return;
    };
    let length = Duration::from_millis(if options.quick { 100 } else { 600 });
    let go = |who, way, device| transfer(who, way, device, [first, last], length);
    for (mtu_bytes, whole, ratio) in
        [(1500, true, 0.6), (9180, true, 0.6), (1500, false, 0.75), (9180, false, 0.75)]
    {
        let device = Device { mtu_bytes, whole };
        let what = if whole { "whole segments" } else { "packets" };
        for way in [Way::Receives, Way::Sends] {
            let verb = if way == Way::Receives { "receives" } else { "sends" };
            bench.compare(
                &format!("TUN, MTU {mtu_bytes}, {what}, {verb}"),
                Unit::GbitPerSecond,
                ("board", |_: &mut _| go(Who::Board, way, device)),
                ("stub", |_: &mut _| go(Who::Stub, way, device)),
                Target::ratio_at_least(ratio),
            );
        }
    }
    let device = Device { mtu_bytes: 1500, whole: true };
    bench.compare(
        "MTU 1500, board over TUN receives, two kernels over veth",
        Unit::GbitPerSecond,
        ("board", |_: &mut _| go(Who::Board, Way::Receives, device)),
        ("kernels", |_: &mut _| peer::over_veth(1500, [first, last], length)),
        Target::ratio_at_least(0.7),
    );
    // What readers know: gVisor 41.7 in and 27.7 out on such a machine, with the same offloads.
    for (way, verb, figure) in [(Way::Receives, "receives", 41.7), (Way::Sends, "sends", 27.7)] {
        let title = format!("TUN, MTU 1500, whole segments, {verb}, ahead of gVisor's {figure}");
        bench.single(
            &title,
            Unit::GbitPerSecond,
            ("board", |_: &mut _| go(Who::Board, way, device)),
            Target::at_least(figure),
        );
    }
    bench.finish();
}

/// Runs something in a thread with a network namespace of its own.
fn in_a_namespace<T: Send>(work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            interface::enter_new_namespace().map_err(|error| error.to_string())?;
            work()
        });
        inside.join().expect("the thread ends by itself")
    })
}

/// One connection between the kernel and who is behind the device: Gbit/s at whoever receives.
fn transfer(who: Who, way: Way, device: Device, cpus: [usize; 2], length: Duration) -> f64 {
    let done = in_a_namespace(|| {
        let link = open(device).map_err(|error| error.to_string())?;
        pin_thread(cpus[0]).map_err(|error| error.to_string())?;
        let clock = Clock::new();
        std::thread::scope(|scope| {
            let kernel = scope.spawn(|| {
                pin_thread(cpus[1]).expect("this CPU was allowed");
                let to = |port| SocketAddr::from((BEHIND, port));
                match way {
                    Way::Receives => peer::send(&peer::connect(to(SINK)), clock, length),
                    Way::Sends => peer::receive(&peer::connect(to(SOURCE)), clock),
                }
            });
            let over = || kernel.is_finished();
            let behind = match who {
                Who::Stub => stub::run(&link, way, device, clock, length, over),
                Who::Board => board::run(link, way, device, clock, length, over),
            };
            let kernel = kernel.join().expect("the kernel's side is content");
            Ok(if way == Way::Receives { behind } else { kernel }.gbit_per_second())
        })
    });
    done.expect("it worked a moment ago")
}

fn open(device: Device) -> std::io::Result<TunLink> {
    let mut link = TunLink::open(DEVICE, Carries::Packets, device.whole)?;
    interface::set_mtu(DEVICE, device.mtu_bytes)?;
    interface::set_queue(DEVICE, 1000)?;
    interface::set_address(DEVICE, IpAddr::from(KERNEL), "10.9.0.0/24".parse().expect("a prefix"))?;
    interface::set_up(DEVICE)?;
    link.look_again()?;
    Ok(link)
}
