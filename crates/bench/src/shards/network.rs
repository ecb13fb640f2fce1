//! The sides of the comparison with the kernel: a server, and clients in a process of their own.
//!
//! Sides     a board of two shards behind a TUN device, as `kiban up` runs it; the kernel at the other end of
//!           a veth between two namespaces, with [`server`]; gVisor's netstack behind a TUN
//!           device with two queues (`crates/bench/gvisor`), which the Go toolchain builds.
//! Fair      each side has a server process and the same client process. The device, the veth and their
//!           offloads have the system's defaults, except that gVisor's netstack does not use the offloads of
//!           a TUN device. Nothing is pinned to a CPU, so all of them share the same CPUs. Every sample has
//!           new namespaces and processes.
//! Streams   clients write, each in a thread, for the length of the sample, and then wait until the server
//!           has read everything and closes. Counted are the bytes until then.
//! Connections   each client connects, sends one byte, gets it back and closes, again and again.

use super::server::{self, DISCARD, ECHO, SOURCE, wait_for_end};
use crate::link::{BEHIND, DEVICE, KERNEL, Wire, in_a_namespace, over_wire};
use crate::net;
use crate::rdma::is_installed;
use kiban_os::interface;
use kiban_service::requests::{Answer, Request};
use kiban_service::{Plan, Running};
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Environment variable of a server's process: `board CONFIGURATION` or `kernel ADDRESS`.
pub(crate) const ROLE: &str = "KIBAN_BENCH_SHARDS_SERVER";

/// Clients at a time: streams, or threads that open connections.
pub(super) const CLIENTS: usize = 64;

/// The server, and the link to it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// A board with this number of shards, over TUN.
    Board(usize),
    /// A board with this number of shards, with packet sockets on a veth.
    PacketBoard(usize),
    /// The kernel, over a veth.
    Kernel,
    /// gVisor's netstack, over TUN.
    Gvisor,
}

/// What the clients do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// They send to the server, Gbit/s.
    Send,
    /// They receive from the server, Gbit/s.
    Receive,
    /// They open connections, per second.
    Connect,
}

/// The result of a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampled {
    pub(super) figure: f64,
    /// The share of the packets that arrived at the wrong shard, of a board with several.
    pub(super) wrong: Option<f64>,
}

/// Runs a sample; returns `None` if it failed.
pub(super) fn run(side: Side, work: Work, length: Duration) -> Option<Sampled> {
    let client = |address: [u8; 4]| -> Result<f64, String> {
        // Closed connections keep their ports for a minute.
        std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "1024 65535")
            .map_err(|error| error.to_string())?;
        let to = |port| SocketAddr::from((address, port));
        let role = match work {
            Work::Send => format!("send {CLIENTS} {}", to(DISCARD)),
            Work::Receive => format!("receive {CLIENTS} {}", to(SOURCE)),
            Work::Connect => format!("connections {CLIENTS} {}", to(ECHO)),
        };
        net::ask(Command::new("timeout"), &role, length).ok_or_else(|| "the clients failed".to_owned())
    };
    let by_tun = |server: Server| -> Result<Sampled, String> {
        let figure = client(BEHIND)?;
        Ok(Sampled { figure, wrong: server.end() })
    };
    let result = match side {
        Side::Board(shards) => in_a_namespace(|| {
            let (own, kernel) = (IpAddr::from(BEHIND), IpAddr::from(KERNEL));
            let port =
                format!("link = \"tun:{DEVICE}\"\naddress = \"{own}/24\"\nhost_address = \"{kernel}/24\"");
            by_tun(Server::start(&board(shards, own, &port))?)
        }),
        Side::Gvisor => in_a_namespace(|| {
            let own = IpAddr::from(BEHIND).to_string();
            let mut command = Command::new(gvisor()?);
            command.args([DEVICE, &own, &ECHO.to_string(), "2"]);
            let server = Server::spawn(command)?;
            interface::set_queue(DEVICE, 1000).map_err(|error| error.to_string())?;
            interface::set_address(DEVICE, IpAddr::from(KERNEL), 24).map_err(|error| error.to_string())?;
            interface::set_up(DEVICE).map_err(|error| error.to_string())?;
            by_tun(server)
        }),
        Side::Kernel | Side::PacketBoard(_) => Ok(over_veth(side, &client)),
    };
    result.inspect_err(|error| println!("shards: a sample failed: {error}")).ok()
}

/// Runs a server at the near end of a veth, and the clients at the far end.
fn over_veth(side: Side, client: &(impl Fn([u8; 4]) -> Result<f64, String> + Sync)) -> Sampled {
    let (done, is_done) = mpsc::channel();
    let (ready, is_ready) = mpsc::channel();
    let near = move || {
        let server = Server::start(&match side {
            Side::PacketBoard(shards) => {
                let own = IpAddr::from(Wire::NEAR);
                board(shards, own, &format!("link = \"packet:lab0\"\naddress = \"{own}/24\""))
            }
            _ => format!("kernel {}", IpAddr::from(Wire::NEAR)),
        })?;
        ready.send(()).map_err(|error| error.to_string())?;
        let () = is_done.recv().map_err(|error| error.to_string())?;
        Ok(server.end())
    };
    let far = move |listens: &dyn Fn()| {
        listens();
        let () = is_ready.recv().map_err(|error| error.to_string())?;
        let figure = client(Wire::NEAR);
        done.send(()).map_err(|error| error.to_string())?;
        figure
    };
    let wire = Wire { mtu_bytes: 1500, near_has_address: side == Side::Kernel };
    let (wrong, figure) = over_wire(wire, near, far);
    Sampled { figure, wrong }
}

/// Returns the role of a board's process.
fn board(shards: usize, own: IpAddr, port: &str) -> String {
    let service = |kind: &str, port| {
        format!("[[service]]\nkind = \"{kind}\"\nlisten = \"{own}:{port}\"\nsessions = 4096\n")
    };
    let services = [service("echo", ECHO), service("discard", DISCARD), service("source", SOURCE)].concat();
    format!(
        "board name = \"bench\"\nshards = {shards}\ndrain = \"0s\"\n[memory]\ntransmit = \"128MiB\"\n\
         receive = \"256MiB\"\n[[port]]\nname = \"lan\"\n{port}\n{services}"
    )
}

/// The process of a server.
struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    /// Whether it reports its status at its end.
    has_status: bool,
}

impl Server {
    /// Starts this program as a server.
    fn start(role: &str) -> Result<Server, String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(own);
        command.env(ROLE, role);
        let mut server = Server::spawn(command)?;
        server.has_status = role.starts_with("board");
        Ok(server)
    }

    /// Starts a server, and waits until it is ready.
    fn spawn(mut command: Command) -> Result<Server, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut server = Server { child, output, has_status: false };
        let mut line = String::new();
        server.output.read_line(&mut line).map_err(|error| error.to_string())?;
        if line.trim() != "ready" {
            return Err(format!("the server did not start: {command:?}"));
        }
        Ok(server)
    }

    /// Ends the server; returns the share of packets that arrived at the wrong shard.
    fn end(mut self) -> Option<f64> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.output.read_to_string(&mut text).ok()?;
        let share = text.trim().parse().ok();
        if self.has_status && share.is_none() {
            println!("shards: a board ended without its status: {text:?}");
        }
        share
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends with its standard input; if it failed, it has ended.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Runs as a server, as [`ROLE`] says.
pub(crate) fn serve() {
    let role = std::env::var(ROLE).expect("it is set");
    match role.split_once(' ') {
        Some(("board", configuration)) => serve_board(configuration),
        Some(("kernel", address)) => server::run(address.parse().expect("an address")),
        _ => panic!("{ROLE} is for the benchmark's own processes"),
    }
}

/// Runs a board until the standard input ends, and then prints the share of packets that arrived at the wrong
/// shard.
fn serve_board(configuration: &str) {
    let plan = Plan::read(configuration, "bench").unwrap_or_else(|error| panic!("{error}"));
    let mut running = Running::start(plan, None).unwrap_or_else(|error| panic!("{error}"));
    let requests = running.requests();
    std::thread::spawn(move || {
        wait_for_end();
        let status = requests.ask(Request::Status).blocking_recv();
        if let Ok(Answer::Status(status)) = status {
            let sum = |count: &dyn Fn(&kiban_service::status::Shard) -> u64| -> f64 {
                status.shards.iter().map(count).sum::<u64>() as f64
            };
            let handed = |name: &str| sum(&|shard| shard.counters.get(name).copied().unwrap_or(0));
            let arrived = sum(&|shard| shard.units_in);
            println!("{}", if arrived > 0.0 { handed("handed_on") / arrived } else { 0.0 });
        }
        // The second request stops the board at once.
        let _ = (requests.ask(Request::Down), requests.ask(Request::Down));
    });
    running.confine().unwrap_or_else(|error| panic!("{error}"));
    println!("ready");
    running.run();
}

/// Returns the path of gVisor's program.
fn gvisor() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(own.with_file_name("kiban-bench-gvisor"))
}

/// Builds gVisor's program. Returns why it cannot be measured.
///
/// # Errors
/// If Go is not installed, or cannot build it.
pub(super) fn build_gvisor() -> Result<(), String> {
    if !is_installed("go") {
        return Err("Go is not installed (Debian: golang-go)".into());
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("gvisor");
    println!("shards: building gVisor's netstack with Go; the first time takes minutes");
    let output = Command::new("go")
        .args(["build", "-o"])
        .arg(gvisor()?)
        .arg(".")
        .current_dir(folder)
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("go build failed: {}", said.trim().lines().last().unwrap_or_default()))
}
