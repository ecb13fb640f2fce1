//! A guest with one of the networks that are compared.

use super::server::{Server, wait_until};
use crate::rdma::is_installed;
use kiban_lab::load::tree_cpu_nanos;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The guest's address of its gateway, at which it reaches the host's loopback; at the same address, it
/// reaches the host through the veth.
const GATEWAY: &str = "10.0.2.2";

/// How long a network may take to start.
const START: Duration = Duration::from_secs(10);

/// What connects the guest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Kiban,
    Pasta,
    Slirp4netns,
    Veth,
    /// There is no guest: the client runs on the host.
    Loopback,
}

impl Kind {
    pub(super) const OTHERS: [Kind; 4] = [Kind::Pasta, Kind::Slirp4netns, Kind::Veth, Kind::Loopback];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Kiban => "kiban",
            Kind::Pasta => "pasta",
            Kind::Slirp4netns => "slirp4netns",
            Kind::Veth => "veth",
            Kind::Loopback => "loopback",
        }
    }

    /// Returns the reason why this kind cannot be measured.
    pub(super) fn missing(self) -> Option<&'static str> {
        match self {
            Kind::Kiban => (!kiban().is_file()).then_some("run make verbs"),
            Kind::Pasta => (!is_installed("pasta")).then_some("apt install passt"),
            Kind::Slirp4netns => (!is_installed("slirp4netns")).then_some("apt install slirp4netns"),
            Kind::Veth | Kind::Loopback => None,
        }
    }

    /// Returns whether the network has processes of its own.
    pub(super) fn has_processes(self) -> bool {
        !matches!(self, Kind::Veth | Kind::Loopback)
    }
}

fn kiban() -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name("kiban")
}

/// A network with its guest.
pub(super) struct Network {
    kind: Kind,
    guest: Option<Child>,
    process: Option<Child>,
    /// Answers the clients.
    pub(super) server: Server,
}

impl Network {
    /// Starts a guest and its network; returns `None` if this fails.
    pub(super) fn start(kind: Kind, mtu_bytes: usize) -> Option<Network> {
        let server = Server::start(if kind == Kind::Veth { "0.0.0.0" } else { "127.0.0.1" })?;
        let mut network = Network { kind, guest: None, process: None, server };
        if kind == Kind::Loopback {
            return Some(network);
        }
        let own = std::fs::read_link("/proc/self/ns/net").ok()?;
        let guest = Command::new("unshare")
            .args(["--user", "--map-root-user", "--net", "sleep", "1000"])
            .spawn()
            .ok()?;
        let number = guest.id();
        network.guest = Some(guest);
        // Between unshare and the program, the guest has no user map yet.
        wait_until(START, || {
            let net = std::fs::read_link(format!("/proc/{number}/ns/net"));
            let name = std::fs::read_to_string(format!("/proc/{number}/comm"));
            net.is_ok_and(|net| net != own) && name.is_ok_and(|name| name.trim() == "sleep")
        })
        .then_some(())?;
        let words = match kind {
            Kind::Kiban => format!("net --host-loopback --no-ipv6 --mtu {mtu_bytes} {number}"),
            Kind::Pasta => format!(
                "--foreground --config-net -4 -a 10.0.2.15 -n 24 -g {GATEWAY} -m {mtu_bytes} -t none -u none -T none \
                 -U none {number}"
            ),
            Kind::Slirp4netns => format!("--configure --mtu={mtu_bytes} {number} tap0"),
            Kind::Veth | Kind::Loopback => {
                return network.connect_by_veth(mtu_bytes, number).then_some(network);
            }
        };
        let program = if kind == Kind::Kiban { kiban() } else { PathBuf::from(kind.name()) };
        let mut command = Command::new(program);
        // pasta and slirp4netns report what they do; what fails is seen by the clients.
        command.args(words.split(' ')).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        network.process = Some(command.spawn().ok()?);
        network.has_route(START).then_some(network)
    }

    fn connect_by_veth(&self, mtu_bytes: usize, number: u32) -> bool {
        let host = format!(
            "ip link add veth0 mtu {mtu_bytes} type veth peer name eth0 mtu {mtu_bytes} netns {number} \
             && ip address add {GATEWAY}/24 dev veth0 && ip link set veth0 up"
        );
        let guest = "ip address add 10.0.2.15/24 dev eth0 && ip link set eth0 up && ip link set lo up \
            && ip route add default via 10.0.2.2";
        let run = |command: &mut Command| command.status().is_ok_and(|status| status.success());
        run(Command::new("sh").args(["-c", &host])) && run(self.inside("sh").args(["-c", guest]))
    }

    /// Waits until the guest has a route to the gateway.
    fn has_route(&self, timeout: Duration) -> bool {
        wait_until(timeout, || {
            let output = self.inside("ip").args(["route", "show", "default"]).output();
            output.is_ok_and(|output| output.stdout.starts_with(b"default"))
        })
    }

    /// Returns a command that will run as a client.
    pub(super) fn inside(&self, program: &str) -> Command {
        let Some(guest) = &self.guest else { return Command::new(program) };
        let mut command = Command::new("nsenter");
        command.args([
            "--preserve-credentials",
            "--user",
            "--net",
            "--target",
            &guest.id().to_string(),
            program,
        ]);
        command
    }

    /// Returns the address at which clients reach the server.
    pub(super) fn address(&self) -> &'static str {
        if self.kind == Kind::Loopback { "127.0.0.1" } else { GATEWAY }
    }

    pub(super) fn cpu_nanos(&self) -> Option<u64> {
        tree_cpu_nanos(self.process.as_ref()?.id())
    }

    /// Returns the sum of the peak resident memory of the network's processes, bytes.
    pub(super) fn peak_memory(&self) -> Option<u64> {
        let first = self.process.as_ref()?.id();
        let (mut open, mut total) = (vec![first], 0);
        while let Some(number) = open.pop() {
            let status = std::fs::read_to_string(format!("/proc/{number}/status")).ok()?;
            let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let kibibytes = peak.and_then(|peak| peak.split_whitespace().next()?.parse::<u64>().ok());
            total += kibibytes.unwrap_or(0) << 10;
            let children = std::fs::read_to_string(format!("/proc/{number}/task/{number}/children"));
            open.extend(children.ok()?.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
        }
        Some(total)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // They may have ended already. kiban ends with the guest.
        if let Some(mut guest) = self.guest.take() {
            let _ = guest.kill();
            let _ = guest.wait();
        }
        if let Some(mut process) = self.process.take() {
            let ends = self.kind == Kind::Kiban
                && wait_until(START, || process.try_wait().is_ok_and(|status| status.is_some()));
            if !ends {
                let _ = process.kill();
                let _ = process.wait();
            }
        }
    }
}
