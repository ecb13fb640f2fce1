//! Compares a proxy from TUN to SOCKS5 on three TCP/IP stacks: kiban, smoltcp (netstack-smoltcp) and ipstack.
//!
//! Arrangement      one network namespace. Clients use the kernel's TCP through a TUN device with an MTU of
//!                  1500; the proxy under test connects to a SOCKS5 server on loopback. The server is the
//!                  destination itself, so that it costs as little as possible.
//! Programs         the same relay, buffers and runtime; each stack has the device and the settings that its
//!                  documentation recommends, and buffers of 1 MiB (ipstack: its send buffer only).
//! Measurements     throughput in both directions with 1 and 16 streams; connections per second, each of
//!                  which carries one byte there and one back. All CPUs are shared by clients, proxy and
//!                  server.
//! Rounds           the stacks take turns in every round; the medians of the rounds are printed, and kiban's
//!                  ratio to each of the others. A proxy that fails or stalls in a round has 0 there.
//!
//! Usage: compare [ROUNDS [SECONDS]], as root.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const STACKS: [&str; 3] = ["kiban", "smoltcp", "ipstack"];
const DEVICE: &str = "tun0";
const SERVER: &str = "127.0.0.1:1080";
/// Number of addresses behind the device, so that ports in TIME-WAIT do not run out.
const ADDRESSES: u64 = 250;
const SINK: u16 = 1;
const SOURCE: u16 = 2;
const ECHO: u16 = 3;
const PIECE_BYTES: usize = 256 << 10;
/// How long a call may block.
const PATIENCE: Duration = Duration::from_secs(5);

/// A measurement.
#[derive(Clone, Copy)]
enum Kind {
    Upload(usize),
    Download(usize),
    Connections(usize),
}

const MEASUREMENTS: [(&str, &str, Kind); 5] = [
    ("upload, 1 stream", "Gbit/s", Kind::Upload(1)),
    ("upload, 16 streams", "Gbit/s", Kind::Upload(16)),
    ("download, 1 stream", "Gbit/s", Kind::Download(1)),
    ("download, 16 streams", "Gbit/s", Kind::Download(16)),
    ("connections, 16 at a time", "1/s", Kind::Connections(16)),
];

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().map_err(io::Error::other));
    let rounds = arguments.next().transpose()?.unwrap_or(7);
    let length = Duration::from_secs(arguments.next().transpose()?.unwrap_or(2));
    kiban_os::interface::enter_new_namespace()?;
    let received = Arc::new(AtomicU64::new(0));
    serve(received.clone())?;
    let mut results = vec![vec![Vec::new(); STACKS.len()]; MEASUREMENTS.len()];
    for round in 0..rounds {
        for turn in 0..STACKS.len() {
            let stack = (turn + round as usize) % STACKS.len();
            for (at, (_, _, kind)) in MEASUREMENTS.iter().enumerate() {
                let proxy = Proxy::start(STACKS[stack])?;
                let value = measure(*kind, length, &received);
                drop(proxy);
                results[at][stack].push(value);
            }
        }
        eprintln!("round {} of {rounds}", round + 1);
    }
    println!("{:<28}{:>8}{:>12}{:>12}{:>12}   kiban to them", "median", "", STACKS[0], STACKS[1], STACKS[2]);
    for ((name, unit, _), values) in MEASUREMENTS.iter().zip(&mut results) {
        let medians: Vec<f64> = values.iter_mut().map(|values| median(values)).collect();
        let ratio = |other: f64| if other > 0.0 { format!("{:.1}", medians[0] / other) } else { "-".into() };
        let verdict = if medians[1..].iter().all(|other| medians[0] > *other) { "" } else { "  MISSED" };
        println!(
            "{name:<28}{unit:>8}{:>12.2}{:>12.2}{:>12.2}   {}, {}{verdict}",
            medians[0],
            medians[1],
            medians[2],
            ratio(medians[1]),
            ratio(medians[2])
        );
        for (stack, values) in STACKS.iter().zip(values) {
            println!("    {stack:<12} {:.2} to {:.2}", values[0], values[values.len() - 1]);
        }
    }
    Ok(())
}

/// Sorts the values, and returns the median.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A proxy that runs on a new device.
struct Proxy(Child);

impl Proxy {
    fn start(stack: &str) -> io::Result<Proxy> {
        ip(&format!("tuntap add dev {DEVICE} mode tun"))?;
        ip(&format!("link set {DEVICE} mtu 1500 up"))?;
        ip(&format!("address add 10.9.0.1/24 dev {DEVICE}"))?;
        ip(&format!("route add 203.0.113.0/24 dev {DEVICE}"))?;
        let program = std::env::current_exe()?.with_file_name(format!("socks5-{stack}"));
        let child = Command::new(program).args([DEVICE, SERVER]).stdout(Stdio::null()).spawn()?;
        let proxy = Proxy(child);
        let started = Instant::now();
        while echo().is_err() {
            if started.elapsed() > PATIENCE {
                return Err(io::Error::other(format!("the proxy on {stack} does not answer")));
            }
        }
        Ok(proxy)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = ip(&format!("link delete {DEVICE}"));
    }
}

fn ip(arguments: &str) -> io::Result<()> {
    let status = Command::new("ip").args(arguments.split(' ')).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("ip {arguments}: {status}"))) }
}

/// Connects through the proxy, to the next address behind the device.
fn connect(port: u16) -> io::Result<TcpStream> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let host = (NEXT.fetch_add(1, Ordering::Relaxed) % ADDRESSES) as u8 + 1;
    let address = SocketAddr::from(([203, 0, 113, host], port));
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Opens a connection, exchanges one byte in each direction, and closes it.
fn echo() -> io::Result<()> {
    let mut stream = connect(ECHO)?;
    stream.write_all(&[1])?;
    stream.read_exact(&mut [0])
}

fn measure(kind: Kind, length: Duration, received: &AtomicU64) -> f64 {
    let (count, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let before = received.load(Ordering::Relaxed);
    let (elapsed, total) = std::thread::scope(|scope| {
        let clients = match kind {
            Kind::Upload(clients) | Kind::Download(clients) | Kind::Connections(clients) => clients,
        };
        let (count, is_over) = (&count, &is_over);
        for _ in 0..clients {
            scope.spawn(move || run(kind, count, is_over));
        }
        let began = Instant::now();
        std::thread::sleep(length);
        let uploaded = received.load(Ordering::Relaxed) - before;
        let counted = count.load(Ordering::Relaxed);
        let elapsed = began.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        (elapsed, if matches!(kind, Kind::Upload(_)) { uploaded } else { counted })
    });
    match kind {
        Kind::Connections(_) => total as f64 / elapsed,
        _ => total as f64 * 8e-9 / elapsed,
    }
}

/// One client. An error ends it, and what it has counted stays.
fn run(kind: Kind, count: &AtomicU64, is_over: &AtomicBool) {
    let mut piece = vec![7; PIECE_BYTES];
    let mut work = || -> io::Result<()> {
        match kind {
            Kind::Upload(_) => {
                let mut stream = connect(SINK)?;
                while !is_over.load(Ordering::Relaxed) {
                    stream.write_all(&piece)?;
                }
            }
            Kind::Download(_) => {
                let mut stream = connect(SOURCE)?;
                while !is_over.load(Ordering::Relaxed) {
                    match stream.read(&mut piece)? {
                        0 => break,
                        length => count.fetch_add(length as u64, Ordering::Relaxed),
                    };
                }
                stream.shutdown(Shutdown::Both)?;
            }
            Kind::Connections(_) => {
                while !is_over.load(Ordering::Relaxed) {
                    if echo().is_ok() {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }
        Ok(())
    };
    // A client that fails has transferred less.
    let _ = work();
}

/// Serves SOCKS5 (RFC 1928) for addresses behind the device; counts the bytes received at [`SINK`].
fn serve(received: Arc<AtomicU64>) -> io::Result<()> {
    let listener = TcpListener::bind(SERVER)?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let received = received.clone();
            std::thread::spawn(move || session(stream, &received));
        }
    });
    Ok(())
}

fn session(mut stream: TcpStream, received: &AtomicU64) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // The greeting with one method, and a request with an IPv4 address.
    let mut request = [0; 13];
    stream.read_exact(&mut request)?;
    stream.write_all(&[5, 0, 5, 0, 0, 1, 127, 0, 0, 1, 0, 0])?;
    let mut piece = vec![7; PIECE_BYTES];
    match u16::from_be_bytes([request[11], request[12]]) {
        SINK => loop {
            match stream.read(&mut piece)? {
                0 => return Ok(()),
                length => received.fetch_add(length as u64, Ordering::Relaxed),
            };
        },
        SOURCE => loop {
            stream.write_all(&piece)?;
        },
        _ => {
            stream.read_exact(&mut piece[..1])?;
            stream.write_all(&piece[..1])?;
            // The proxy closes first.
            stream.read(&mut piece[..1]).map(drop)
        }
    }
}
