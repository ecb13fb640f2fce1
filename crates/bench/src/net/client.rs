//! Clients, which run in the guest.
//!
//! iperf3 measures throughput. For connections and round trips, this program runs again in the guest.

use super::network::Network;
use crate::rdma::is_installed;
use kiban_os::Clock;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Stdio;
use std::time::Duration;

/// Environment variable of a client: `connections THREADS ADDRESS MILLISECONDS` or `roundtrip ADDRESS
/// MILLISECONDS`.
pub(crate) const ROLE: &str = "KIBAN_BENCH_NET_CLIENT";

/// The length of a test of throughput, seconds.
pub(super) const SECONDS: u64 = 1;

/// How long a call of a client may block.
const PATIENCE: Duration = Duration::from_secs(5);

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
    ask(network, &format!("connections {threads}"), length)
}

/// Returns the median round-trip time of one byte, microseconds.
pub(super) fn round_trip(network: &Network, length: Duration) -> Option<f64> {
    ask(network, "roundtrip", length)
}

/// Runs a client; returns the figure that it prints.
fn ask(network: &Network, role: &str, length: Duration) -> Option<f64> {
    let to: Ipv4Addr = network.address().parse().ok()?;
    let to = SocketAddr::from((to, network.server.echo.port()));
    let own = std::env::current_exe().ok()?;
    let role = format!("{role} {to} {}", length.as_millis());
    let mut command = network.inside("timeout");
    command.arg(HANGS).arg(own).env(ROLE, role).stdin(Stdio::null());
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
    let counts: io::Result<Vec<u64>> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    Ok(counts?.iter().sum::<u64>() as f64 / clock.now().since(start).as_secs_f64())
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
