//! Sixty sessions send simultaneously over a rate-limited link. Measures how evenly they share the link, and
//! how much of its rate they use.
//!
//! Link      a veth between two namespaces with a token bucket of [`RATE`] at the sender, which accepts no
//!           packets while its queue is full.
//! Senders   a board on a packet socket; or this host's own TCP with CUBIC, one thread per session.
//! Counted   payload bytes of each session over one interval, after all have started. The receiver has one
//!           thread per session.

use super::device::SINK;
use super::flood::Flood;
use super::peer::{self, Wire};
use kiban_base::{Bell, Instant, Wait};
use kiban_board::{Board, BoardConfig, EthernetPortConfig, MemoryConfig, PortConfig};
use kiban_link::{Address, AnyLink, Driver};
use kiban_os::Clock;
use kiban_os::clock::pin_thread;
use kiban_os::random;
use kiban_os::wait::{FutexSleeper, Waiting};
use kiban_tcpip::ethernet::LinkConfig;
use kiban_tcpip::tcp;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The rate of the link, in the notation of `tc`.
const RATE: &str = "1gbit";
const MTU_BYTES: usize = 1500;
/// The number of sessions in paper \[1\].
const SESSIONS: usize = 60;

/// The sender.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    Board,
    Kernel,
}

/// The result of one run.
#[derive(Clone, Copy)]
pub(super) struct Shared {
    /// The greatest deviation of a session from the mean, percent.
    pub(super) worst_percent: f64,
    /// The total rate of all sessions.
    pub(super) mbit_per_second: f64,
}

pub(super) fn run(sender: Sender, cpus: [usize; 2], length: Duration) -> Shared {
    let over = AtomicBool::new(false);
    let clock = Clock::new();
    let near = || {
        peer::shape(RATE);
        pin_thread(cpus[0]).map_err(|error| error.to_string())?;
        match sender {
            Sender::Board => board(clock, &over),
            Sender::Kernel => kernel(&over),
        }
        Ok(())
    };
    let far = |listens: &dyn Fn()| {
        pin_thread(cpus[1]).map_err(|error| error.to_string())?;
        let listener =
            TcpListener::bind(SocketAddr::from((Wire::FAR, SINK))).map_err(|error| error.to_string())?;
        listens();
        let shared = receive(&listener, length, clock);
        over.store(true, Ordering::Release);
        shared.map_err(|error| error.to_string())
    };
    let own = sender == Sender::Kernel;
    peer::over_wire(Wire { mtu_bytes: MTU_BYTES, near_has_address: own }, near, far).1
}

/// Receives from all sessions; the measurement starts when the last of them has connected and their rates
/// have settled.
fn receive(listener: &TcpListener, length: Duration, clock: Clock) -> std::io::Result<Shared> {
    let counts: Vec<AtomicU64> = (0..SESSIONS).map(|_| AtomicU64::new(0)).collect();
    let sockets = (0..SESSIONS).map(|_| Ok(listener.accept()?.0)).collect::<std::io::Result<Vec<_>>>()?;
    let look = || counts.iter().map(|count| count.load(Ordering::Relaxed)).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        for (mut socket, count) in sockets.iter().zip(&counts) {
            scope.spawn(move || {
                let mut buffer = vec![0; 64 << 10];
                while let Ok(bytes @ 1..) = socket.read(&mut buffer) {
                    count.fetch_add(bytes as u64, Ordering::Relaxed);
                }
            });
        }
        let pass = |length| {
            let until = clock.now() + length;
            Waiting::new(Wait::Interrupt, clock).wait(&Bell::new(), &FutexSleeper, until, || None::<()>);
        };
        pass(length / 4);
        let (before, from) = (look(), clock.now());
        pass(length);
        let (after, to) = (look(), clock.now());
        sockets.iter().try_for_each(|socket| socket.shutdown(Shutdown::Both))?;
        let bytes: Vec<f64> =
            after.iter().zip(&before).map(|(after, before)| (after - before) as f64).collect();
        let total: f64 = bytes.iter().sum();
        let mean = total / SESSIONS as f64;
        let worst = bytes.iter().map(|bytes| (bytes - mean).abs()).fold(0.0, f64::max);
        let seconds = to.since(from).as_secs_f64();
        Ok(Shared { worst_percent: worst / mean * 100.0, mbit_per_second: total * 8e-6 / seconds })
    })
}

/// Returns a board for the near end of the wire, and its link, a packet socket.
pub(super) fn near_board() -> (Board, AnyLink) {
    let address: Address = "packet:lab0".parse().expect("an address");
    let mac = address.mac().expect("it is there").expect("it has one");
    let link = address.open().expect("raw sockets are permitted");
    let mut on = LinkConfig::new(mac);
    on.addresses.push((IpAddr::from(Wire::NEAR), Wire::net()));
    on.mtu_bytes = MTU_BYTES;
    let port = EthernetPortConfig { merges: false, believe_sums: true, ..EthernetPortConfig::on(on) };
    let config = BoardConfig {
        memory: MemoryConfig { transmit_bytes: 32 << 20, receive_bytes: 8 << 20, ..MemoryConfig::default() },
        tcp: tcp::Config {
            mss: (MTU_BYTES - 40) as u16,
            segment_bytes_max: if link.traits().whole_segments { 65_000 } else { MTU_BYTES as u32 - 40 },
            ..tcp::Config::default()
        },
        ports: vec![PortConfig::Ethernet(port)],
        ..BoardConfig::default()
    };
    (Board::new(&config, random::key().expect("the system has random numbers")), link)
}

fn board(clock: Clock, over: &AtomicBool) {
    let (board, link) = near_board();
    let mut driver = Driver::new(board, clock).expect("files can be opened");
    driver.attach(0, link);
    driver.add(Box::new(Flood::to(SocketAddr::from((Wire::FAR, SINK)), SESSIONS)));
    let mut waiting = driver.waiting(Wait::Adaptive);
    while !over.load(Ordering::Acquire) {
        let soon: Instant = clock.now() + Duration::from_millis(5);
        driver.run(&mut waiting, soon, |_| over.load(Ordering::Acquire));
    }
}

fn kernel(over: &AtomicBool) {
    std::thread::scope(|scope| {
        for _ in 0..SESSIONS {
            scope.spawn(|| {
                let mut socket: TcpStream = peer::connect(SocketAddr::from((Wire::FAR, SINK)));
                let buffer = vec![5; 64 << 10];
                // A write fails when the receiver has closed.
                while !over.load(Ordering::Acquire) && socket.write_all(&buffer).is_ok() {}
            });
        }
    });
}
