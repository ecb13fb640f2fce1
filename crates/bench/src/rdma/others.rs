//! Other RDMA libraries over TCP: libfabric's `fi_pingpong` and UCX's `ucx_perftest`, if they are installed.
//!
//! Both libraries poll at both ends, and so does the NIC that they are compared with. For each sample, a new
//! server process runs on the peer's CPU and a new client process on our CPU. `fi_pingpong` exchanges
//! messages at every size, so it is compared with Sends in both directions; `ucx_perftest -t tag_bw` streams
//! in one direction, so it is compared with Writes.

use super::peer::Peer;
use super::setting::{POLLING, size};
use super::verbs::{self, Over, Stream};
use kiban_lab::{Bench, Target, Trial, Unit};
use kiban_os::clock::{Clock, pin_thread};
use std::cell::RefCell;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A program that runs longer than this, in seconds, is considered hung.
const HANGS: &str = "60";

pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

pub(crate) fn free_port() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("an address").port().to_string()
}

/// Waits until a program listens on a port, with a timeout.
pub(crate) fn wait_for_listener(port: &str) {
    let wanted = format!(":{:04X}", port.parse::<u16>().unwrap_or(0));
    let clock = Clock::new();
    let end = clock.now() + Duration::from_secs(5);
    while clock.now() < end {
        let listens = ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
            // Columns: sl, local_address, rem_address, st; state 0A is LISTEN.
            std::fs::read_to_string(table).is_ok_and(|table| {
                table.lines().any(|line| {
                    let words: Vec<&str> = line.split_whitespace().take(4).collect();
                    words.get(1).is_some_and(|local| local.ends_with(&wanted)) && words.get(3) == Some(&"0A")
                })
            })
        });
        if listens {
            return;
        }
        std::thread::yield_now();
    }
}

/// The data needed to start a pair of programs: the port on which the server listens, and the environment of
/// both.
#[derive(Clone, Copy)]
pub(super) struct Launch<'a> {
    pub(super) port: &'a str,
    pub(super) environment: &'a [(&'a str, &'a str)],
}

/// Environment variables that make libfabric and UCX use TCP over the loopback.
const OVER_TCP: [(&str, &str); 4] = [
    ("UCX_TLS", "tcp"),
    ("UCX_NET_DEVICES", "lo"),
    ("UCX_WARN_UNUSED_ENV_VARS", "n"),
    ("FI_TCP_IFACE", "lo"),
];

/// Completes a command that starts a program.
fn start<'a>(command: &'a mut Command, arguments: &[&str], launch: Launch<'_>) -> &'a mut Command {
    let command = command.args(arguments).envs(launch.environment.iter().copied());
    command.stdin(Stdio::null()).stderr(Stdio::null())
}

/// Runs a server on its CPU and a client on ours; returns the number that `figure` finds in the client's last
/// matching line. Retries a failed run.
pub(super) fn beside(
    program: &str,
    launch: Launch<'_>,
    (server, client): (&[&str], &[&str]),
    cpu: usize,
    figure: impl Fn(&[&str]) -> Option<f64>,
) -> Option<f64> {
    for _ in 0..3 {
        let mut serving = std::thread::scope(|threads| {
            let serve = || {
                let _ = pin_thread(cpu);
                // It is started directly, because `timeout` would not pass on the signal that ends it below.
                start(&mut Command::new(program), server, launch).stdout(Stdio::null()).spawn()
            };
            threads.spawn(serve).join().expect("a thread").ok()
        })?;
        wait_for_listener(launch.port);
        let said = start(Command::new("timeout").args([HANGS, program]), client, launch).output().ok()?;
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let _ = serving.kill();
        let _ = serving.wait();
        let lines = text.lines().rev().map(|line| line.split_whitespace().collect::<Vec<_>>());
        if let Some(figure) = lines.into_iter().find_map(|words| figure(&words)) {
            return Some(figure);
        }
    }
    None
}

/// Returns half of the round-trip time of libfabric, microseconds.
fn libfabric(bytes: usize, turns: usize, cpu: usize) -> Option<f64> {
    let (port, turns, bytes) = (free_port(), turns.to_string(), bytes.to_string());
    let common = ["-p", "tcp", "-e", "msg", "-I", &turns, "-S", &bytes];
    let server = [&common[..], &["-B", &port]].concat();
    let client = [&common[..], &["-P", &port, "127.0.0.1"]].concat();
    // Columns of the output: bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec
    beside("fi_pingpong", Launch { port: &port, environment: &OVER_TCP }, (&server, &client), cpu, |words| {
        (words.len() == 8).then(|| words[6].parse().ok()).flatten()
    })
}

/// Returns one of the eight numbers in the last line of `ucx_perftest`.
fn ucx(test: &str, bytes: usize, turns: usize, cpu: usize, wanted: usize) -> Option<f64> {
    let (port, turns, bytes) = (free_port(), turns.to_string(), bytes.to_string());
    let warm = "200";
    let client = ["127.0.0.1", "-p", &port, "-t", test, "-s", &bytes, "-n", &turns, "-w", warm, "-f"];
    // Columns of the output: iterations; 50 %, average and overall latency; average and overall MiB/s;
    // average and overall rate.
    beside(
        "ucx_perftest",
        Launch { port: &port, environment: &OVER_TCP },
        (&["-p", &port], &client),
        cpu,
        |words| {
            let numbers: Vec<f64> = words.iter().map_while(|word| word.parse().ok()).collect();
            (numbers.len() == 8 && words.len() == 8).then(|| numbers[wanted])
        },
    )
}

pub(super) fn run(bench: &mut Bench, peer: &mut Peer, cpu: usize) {
    let short = if bench.options_mut().quick { 20 } else { 1 };
    if !is_installed("fi_pingpong") {
        println!("rdma: fi_pingpong is not installed: apt install libfabric-bin (rows skipped)");
    } else if libfabric(64, 10, cpu).is_none() {
        println!("rdma: fi_pingpong -p tcp -e msg does not work here (rows skipped)");
    } else {
        for (bytes, turns) in [(64, 20_000), (4 << 10, 20_000), (64 << 10, 8_000), (1 << 20, 600)] {
            let peer = RefCell::new(&mut *peer);
            bench.compare(
                &format!("Send of {}, half a round trip, polling", size(bytes)),
                Unit::Microseconds,
                ("RDMA", |trial: &mut Trial| verbs::ping_pong(trial, &mut peer.borrow_mut(), bytes, POLLING)),
                ("libfabric tcp", |_: &mut Trial| {
                    libfabric(bytes, turns / short, cpu).expect("it worked before")
                }),
                Target::ratio_at_most(1.0),
            );
        }
    }
    if !is_installed("ucx_perftest") {
        println!("rdma: ucx_perftest is not installed: apt install ucx-utils (rows skipped)");
        return;
    }
    if ucx("tag_lat", 64, 1000, cpu, 3).is_none() {
        println!("rdma: ucx_perftest with UCX_TLS=tcp does not work here (rows skipped)");
        return;
    }
    let shared = RefCell::new(&mut *peer);
    bench.compare(
        "Send of 64 B, half a round trip, polling",
        Unit::Microseconds,
        ("RDMA", |trial: &mut Trial| verbs::ping_pong(trial, &mut shared.borrow_mut(), 64, POLLING)),
        ("UCX tcp tag_lat", |_: &mut Trial| {
            ucx("tag_lat", 64, 20_000 / short, cpu, 3).expect("it worked before")
        }),
        Target::ratio_at_most(1.0),
    );
    for (block_bytes, turns) in [(4 << 10, 60_000), (64 << 10, 8_000), (1 << 20, 600)] {
        let stream = Stream { over: Over::Tcp, block_bytes, crc: false, wait: POLLING };
        bench.compare(
            &format!("{} one way, polling", size(block_bytes)),
            Unit::GbytePerSecond,
            ("RDMA Write", |trial: &mut Trial| {
                verbs::stream(trial, &mut shared.borrow_mut(), stream).per_second / 1e9
            }),
            ("UCX tcp tag_bw", |_: &mut Trial| {
                let rate = ucx("tag_bw", block_bytes, turns / short, cpu, 5);
                rate.expect("it worked before") * f64::from(1 << 20) / 1e9
            }),
            Target::ratio_at_least(1.0),
        );
    }
}
