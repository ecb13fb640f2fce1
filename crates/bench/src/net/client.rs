//! Clients, which run in the guest.
//!
//! iperf3 measures throughput. For connections and round trips, this program runs again in the guest.

use super::network::Network;
use crate::rdma::is_installed;
use kiban_os::Clock;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Environment variable of a client: `connections THREADS ADDRESS MILLISECONDS`, `roundtrip ADDRESS
/// MILLISECONDS`, or `send` or `receive` with `STREAMS ADDRESS MILLISECONDS`.
pub(crate) const ROLE: &str = "KIBAN_BENCH_NET_CLIENT";

/// The length of a test of throughput, seconds.
pub(super) const SECONDS: u64 = 1;

/// How long a call of a client may block.
const PATIENCE: Duration = Duration::from_secs(5);

/// The number of bytes that a client of a stream writes or reads at a time.
const PIECE_BYTES: usize = 256 << 10;

/// A program that takes longer, in seconds, is considered to hang.
const HANGS: &str = "15";

/// Which way the payload goes, as seen by the guest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Up,
    Down,
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Up => "to the host",
            Way::Down => "to the guest",
        }
    }
}

pub(super) fn has_iperf3() -> bool {
    is_installed("iperf3")
}

/// Returns the throughput at the receiver, Gbit/s.
pub(super) fn throughput(network: &Network, way: Way, streams: usize) -> Option<f64> {
    let words = format!(
        "{HANGS} iperf3 -c {} -p {} -t {SECONDS} -P {streams} -J{}",
        network.address(),
        network.server.iperf3_port,
        if way == Way::Down { " -R" } else { "" }
    );
    let output = network.inside("timeout").args(words.split(' ')).stdin(Stdio::null()).output().ok()?;
    crate::link::received(&String::from_utf8_lossy(&output.stdout))
}

/// Returns the connections per second, each of which carries one byte there and one back.
pub(super) fn connections(network: &Network, threads: usize, length: Duration) -> Option<f64> {
    ask_inside(network, &format!("connections {threads}"), length)
}

/// Returns the median round-trip time of one byte, microseconds.
pub(super) fn round_trip(network: &Network, length: Duration) -> Option<f64> {
    ask_inside(network, "roundtrip", length)
}

/// Runs a client in the guest; returns the figure that it prints.
fn ask_inside(network: &Network, role: &str, length: Duration) -> Option<f64> {
    let to: Ipv4Addr = network.address().parse().ok()?;
    let to = SocketAddr::from((to, network.server.echo.port()));
    ask(network.inside("timeout"), &format!("{role} {to}"), length)
}

/// Runs a client by `timeout`, the command; returns the figure that it prints.
pub(crate) fn ask(mut timeout: Command, role: &str, length: Duration) -> Option<f64> {
    let own = std::env::current_exe().ok()?;
    let role = format!("{role} {}", length.as_millis());
    let command = timeout.arg(HANGS).arg(own).env(ROLE, role).stdin(Stdio::null());
    let output = command.output().ok()?;
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}

/// Runs as a client, as [`ROLE`] says, and prints the figure.
pub(crate) fn run() {
    let role = std::env::var(ROLE).expect("it is set");
    let words: Vec<&str> = role.split(' ').collect();
    let number = |word: &str| word.parse::<u64>().expect("a number");
    let address = |word: &str| word.parse::<SocketAddr>().expect("an address");
    let figure = match words[..] {
        ["connections", threads, to, length] => {
            connect_for(number(threads), address(to), Duration::from_millis(number(length)))
        }
        ["send", streams, to, length] => {
            send_for(number(streams), address(to), Duration::from_millis(number(length)))
        }
        ["receive", streams, to, length] => {
            receive_for(number(streams), address(to), Duration::from_millis(number(length)))
        }
        ["roundtrip", to, length] => exchange_for(address(to), Duration::from_millis(number(length))),
        _ => panic!("{ROLE} is for the benchmark's own processes"),
    };
    // An error appears as the absence of a figure.
    if let Ok(figure) = figure {
        println!("{figure}");
    }
}

fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn exchange(mut stream: &TcpStream) -> io::Result<()> {
    stream.write_all(&[1])?;
    stream.read_exact(&mut [0])
}

fn connect_for(threads: u64, to: SocketAddr, length: Duration) -> io::Result<f64> {
    let clock = Clock::new();
    let (start, until) = (clock.now(), clock.now() + length);
    let work = || -> io::Result<u64> {
        let mut count = 0;
        while clock.now() < until {
            exchange(&connect(to)?)?;
            count += 1;
        }
        Ok(count)
    };
    let counts = on_threads((0..threads).map(|_| work))?;
    Ok(counts.iter().sum::<u64>() as f64 / clock.now().since(start).as_secs_f64())
}

/// Runs work, each piece in a thread of its own.
fn on_threads<T: Send>(
    works: impl Iterator<Item = impl FnOnce() -> io::Result<T> + Send>,
) -> io::Result<Vec<T>> {
    std::thread::scope(|scope| {
        let running: Vec<_> = works.map(|work| scope.spawn(work)).collect();
        running.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    })
}

/// Opens the streams of a test of throughput.
fn open(streams: u64, to: SocketAddr) -> io::Result<Vec<TcpStream>> {
    (0..streams).map(|_| connect(to)).collect()
}

/// Sends on all streams, and then waits until the server has received everything and closes. Returns Gbit/s.
fn send_for(streams: u64, to: SocketAddr, length: Duration) -> io::Result<f64> {
    let streams = open(streams, to)?;
    let clock = Clock::new();
    let (start, until) = (clock.now(), clock.now() + length);
    let counts = on_threads(streams.iter().map(|mut stream| {
        move || {
            let buffer = vec![5; PIECE_BYTES];
            let mut bytes = 0;
            while clock.now() < until {
                bytes += stream.write(&buffer)? as u64;
            }
            stream.shutdown(Shutdown::Write)?;
            while stream.read(&mut [0; 64])? > 0 {}
            Ok(bytes)
        }
    }))?;
    Ok(counts.iter().sum::<u64>() as f64 * 8e-9 / clock.now().since(start).as_secs_f64())
}

/// Receives on all streams; counts once a quarter of the time has passed. Returns Gbit/s.
fn receive_for(streams: u64, to: SocketAddr, length: Duration) -> io::Result<f64> {
    let streams = open(streams, to)?;
    let clock = Clock::new();
    let from = clock.now() + length / 4;
    let until = from + length;
    let counts = on_threads(streams.iter().map(|mut stream| {
        move || {
            let mut buffer = vec![0; PIECE_BYTES];
            let mut bytes = 0;
            loop {
                let count = stream.read(&mut buffer)? as u64;
                let now = clock.now();
                if count == 0 || now >= until {
                    return Ok(bytes);
                }
                bytes += if now >= from { count } else { 0 };
            }
        }
    }))?;
    Ok(counts.iter().sum::<u64>() as f64 * 8e-9 / length.as_secs_f64())
}

fn exchange_for(to: SocketAddr, length: Duration) -> io::Result<f64> {
    let stream = connect(to)?;
    exchange(&stream)?;
    let clock = Clock::new();
    let until = clock.now() + length;
    let mut times = Vec::new();
    let mut before = clock.now();
    while before < until {
        exchange(&stream)?;
        let now = clock.now();
        times.push(now.since(before).as_nanos() as u64);
        before = now;
    }
    times.sort_unstable();
    Ok(times[times.len() / 2] as f64 / 1e3)
}
