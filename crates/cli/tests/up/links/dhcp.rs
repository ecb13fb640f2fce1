//! An address leased from dnsmasq, over TAP.
//!
//! Requires  dnsmasq (Debian: dnsmasq-base), curl, python3, a C compiler for the preloaded library.

use crate::common::{Board, TestDir, connect, echo, enter, ip, run, text};
use crate::programs::run::{SOCKETS, on_board, told};
use serde_json::Value;
use std::process::{Child, Command, Stdio};

/// A board that leases its address, and the kernel at the other end of its TAP device.
const LEASED: &str = "name = \"lab\"\n[[port]]\nname = \"lan\"\nlink = \"tap:kiban0\"\naddress = \"dhcp\"\n\
    host_address = \"10.9.0.1/24\"\n[[service]]\nkind = \"echo\"\nlisten = \"0.0.0.0:7\"\n";

/// A process that is killed at the end of the test.
struct Process(Child);

impl Process {
    fn spawn(mut command: Command) -> Process {
        Process(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a DHCP and name server on the kernel's side of the TAP device. It logs to the file `dnsmasq`.
fn dnsmasq(dir: &TestDir) -> Process {
    let log = std::fs::File::create(dir.0.join("dnsmasq")).expect("a file");
    let mut command = Command::new("dnsmasq");
    command
        .args([
            "--no-daemon",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
            "--no-ping",
            "--log-dhcp",
        ])
        .args(["--interface=kiban0", "--bind-interfaces", "--user=root", "--dhcp-authoritative"])
        .args(["--dhcp-range=10.9.0.50,10.9.0.60,255.255.255.0,2m", "--dhcp-option=option:mtu,1400"])
        .args(["--address=/www.lab.test/10.9.0.1"])
        .arg(format!("--dhcp-leasefile={}", dir.0.join("leases").display()))
        .stdout(Stdio::null())
        .stderr(log);
    Process::spawn(command)
}

fn lease(status: &Value) -> &Value {
    &status["ports"][0]["dhcp"]["lease"]
}

fn bound(board: &Board<'_>) -> Value {
    board.until("a lease", |status| status["ports"][0]["dhcp"]["state"] == "bound")
}

#[test]
fn an_address_is_leased_used_by_name_and_released() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("dhcp");
    // The device outlives the board: without it, dnsmasq ends before it reads the RELEASE.
    ip("tuntap add kiban0 mode tap");
    // The board is ready, and its services listen, before there is a lease.
    let mut board = dir.up(&format!("{LEASED}{SOCKETS}"));
    let status = board.status();
    assert!(lease(&status).is_null() && status["services"][0]["state"] == "listening", "{status}");
    let addresses = status["ports"][0]["addresses"].as_array().expect("a list");
    assert!(addresses.is_empty(), "no address is invented: {status}");
    let server = dnsmasq(&dir);
    let status = bound(&board);
    let leased = lease(&status)["address"].as_str().expect("an address").to_owned();
    let address = leased.strip_suffix("/24").expect("the mask of the server");
    assert!(address.starts_with("10.9.0.5") || address == "10.9.0.60", "{status}");
    for (key, wanted) in [("server", "10.9.0.1"), ("router", "10.9.0.1")] {
        assert_eq!(lease(&status)[key], wanted, "{status}");
    }
    assert_eq!(lease(&status)["name_servers"], serde_json::json!(["10.9.0.1"]), "{status}");
    assert_eq!(lease(&status)["mtu_bytes"], 1400, "{status}");
    assert!(lease(&status)["seconds_left"].as_u64().is_some_and(|left| left <= 120), "{status}");
    assert_eq!(status["ports"][0]["addresses"][0], leased.as_str());
    let shown = text(&dir.kiban(&["status", "lab"]));
    assert!(shown.contains(&format!("DHCP bound: {leased} from server 10.9.0.1, ")), "{shown}");
    // The service that has listened since the start is reached at the leased address.
    echo(&mut connect(&format!("{address}:7")), b"leased");
    // A program resolves a name that only the leased name server knows.
    dir.write("page", "hello");
    run("ip", &["link", "set", "lo", "up"]);
    let mut web = Command::new("python3");
    web.args(["-m", "http.server", "--bind", "10.9.0.1", "8000"]).current_dir(&dir.0);
    let _web = Process::spawn({
        web.stdout(Stdio::null()).stderr(Stdio::null());
        web
    });
    while !run("curl", &["-s", "-o", "/dev/null", "http://10.9.0.1:8000/page"]).status.success() {
        std::thread::yield_now();
    }
    let fetched = told(on_board(&dir, &["curl", "-sSf", "http://www.lab.test:8000/page"]));
    assert_eq!(text(&fetched), "hello", "{}", dir.log());
    // At an orderly stop, the address is given back.
    let leases = || std::fs::read_to_string(dir.0.join("leases")).expect("a file");
    assert!(leases().contains(address));
    assert!(dir.kiban(&["down", "lab"]).status.success());
    assert_eq!(board.wait(), Some(0), "{}", dir.log());
    while leases().contains(address) {
        std::thread::yield_now();
    }
    drop(server);
    let said = std::fs::read_to_string(dir.0.join("dnsmasq")).expect("a file");
    assert!(said.contains(&format!("DHCPRELEASE(kiban0) {address}")), "{said}");
    assert!(dir.log().contains("address leased"), "{}", dir.log());
}
