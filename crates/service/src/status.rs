//! A snapshot of a board's status, for `kiban status` and Prometheus.

use kiban_sandbox::Report;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counters by name.
pub type Counters = BTreeMap<String, u64>;

/// Status of a board.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// The version of kiban.
    pub version: String,
    /// The process ID.
    pub pid: u32,
    /// `running` or `stopping`.
    pub state: String,
    /// The configuration file, or `(command line)`.
    pub config: String,
    /// Seconds since it started.
    pub uptime_seconds: f64,
    /// Successful reloads of the configuration.
    pub reloads: u64,
    /// The privileges that are kept; `None` if the sandbox is off and the board keeps all of them.
    #[serde(default)]
    pub sandbox: Option<Sandbox>,
    /// Packet memory.
    pub memory: Memory,
    /// TCP sessions, by state.
    pub sessions: Counters,
    /// The TCP sessions that carried data last, at most [`CONNECTIONS_MAX`].
    #[serde(default)]
    pub connections: Vec<Connection>,
    /// The shards, if the board is divided. Everything else sums them up.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub shards: Vec<Shard>,
    /// Ports.
    pub ports: Vec<Port>,
    /// Circuits of all ATM ports.
    pub circuits: Vec<Circuit>,
    /// Services.
    pub services: Vec<Service>,
    /// Board-wide counters, by family and name; counters of a port are listed with the port.
    pub counters: BTreeMap<String, Counters>,
}

/// The maximum number of TCP sessions of a shard that a status lists.
pub const CONNECTIONS_MAX: usize = 200;

/// A TCP session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Connection {
    /// The board's address and port.
    pub local: String,
    /// The peer's address and port.
    pub remote: String,
    /// Its state, such as `established`.
    pub state: String,
    /// Payload received in order, bytes.
    pub bytes_in: u64,
    /// Payload that the peer has acknowledged, bytes.
    pub bytes_out: u64,
    /// Smoothed round-trip time, us; zero before the first sample.
    pub rtt_us: u64,
    /// Congestion window, bytes.
    pub cwnd_bytes: u64,
    /// Payload retransmitted, bytes.
    pub retransmitted_bytes: u64,
}

/// The active parts of a board's sandbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Capabilities that are kept, such as `CAP_NET_ADMIN`.
    pub capabilities: Vec<String>,
    /// `on`, or the reason why Landlock is off.
    pub landlock: String,
    /// `on`, or the reason why seccomp is off.
    pub seccomp: String,
}

impl From<Report> for Sandbox {
    fn from(report: Report) -> Sandbox {
        let Report { capabilities, landlock, seccomp } = report;
        Sandbox { capabilities, landlock, seccomp }
    }
}

/// Packet memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Memory for data to be sent, in bytes.
    pub transmit_bytes: Use,
    /// Memory for received data, bytes.
    pub receive_bytes: Use,
    /// PDUs.
    pub pdus: Use,
}

/// Use of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Use {
    /// The total amount.
    pub capacity: u64,
    /// The amount in use.
    pub used: u64,
}

/// One shard of a divided board.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shard {
    /// TCP sessions in any state.
    pub sessions: u64,
    /// Packets and frames that arrived at its queues.
    pub units_in: u64,
    /// Packets and frames sent through its queues.
    pub units_out: u64,
    /// Counters of packets handed on and in, and of messages.
    pub counters: Counters,
}

/// A port and its link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// The link's address.
    pub link: String,
    /// What the link carries: `packets`, `frames` or `cells`.
    pub carries: String,
    /// `up` or `down`.
    pub state: String,
    /// Why it is down.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// The board's addresses on it.
    pub addresses: Vec<String>,
    /// The state of the DHCP client, if the port leases its address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub dhcp: Option<Dhcp>,
    /// The device through which this host's kernel owns the port's address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<String>,
    /// The longest IP packet, bytes.
    pub mtu_bytes: u64,
    /// Packets or frames queued for the link.
    pub waiting: u64,
    /// The number of times that the link was lost.
    pub losses: u64,
    /// Losses by cause. A cause is named `FAMILY_NAME`, after one of the counters below.
    #[serde(default)]
    pub lost: Counters,
    /// Rates over approximately the last second.
    pub rates: Rates,
    /// The link's counters since it was opened.
    pub link_counters: Counters,
    /// The port's counters, by family and name.
    pub counters: BTreeMap<String, Counters>,
}

/// The DHCP client of a port, and its lease.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Dhcp {
    /// `init`, `selecting`, `requesting`, `probing`, `bound`, `renewing`, `rebinding` or `released`.
    pub state: String,
    /// The lease, if there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lease: Option<Lease>,
}

/// A lease.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    /// The address and the length of its prefix.
    pub address: String,
    /// The server.
    pub server: String,
    /// The default router, if the server named a plausible one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub router: Option<String>,
    /// The name servers, in order of preference.
    pub name_servers: Vec<String>,
    /// The MTU, bytes.
    pub mtu_bytes: u64,
    /// Seconds until the lease expires; absent if it does not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seconds_left: Option<u64>,
}

/// Rates per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Received units.
    pub units_in: f64,
    /// Sent units.
    pub units_out: f64,
    /// Received bits.
    pub bits_in: f64,
    /// Sent bits.
    pub bits_out: f64,
}

/// Status of a circuit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Circuit {
    /// Its port.
    pub port: String,
    /// Its VPI and VCI.
    pub vc: String,
    /// The peer's address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer: Option<String>,
    /// `fixed`: the peer is configured. `known`: InATMARP has discovered the peer. `asking`: InATMARP is
    /// waiting for a reply. `bridged`: the circuit belongs to a bridge.
    pub state: String,
}

/// Status of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// The service's kind, as in the configuration.
    pub kind: String,
    /// Where it listens.
    pub listen: String,
    /// `listening`, or `ending` if it no longer listens and will be removed after its last session.
    pub state: String,
    /// Open sessions.
    pub sessions: u64,
    /// Limit of its sessions.
    pub sessions_max: u64,
    /// Its counters.
    pub counters: Counters,
    /// The programs that use the board's RDMA NIC through it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub programs: Vec<Program>,
    /// The guest whose network it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub guest: Option<Guest>,
}

/// The guest of a service of kind `net`, and its forwarded ports.
///
/// The ports are those that are open now, with `auto` and `all` as well. They are written as in the
/// configuration: `8080:80` leads to port 80 of the other side, `8000-8009` to the same ports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Guest {
    /// The guest's addresses.
    pub addresses: Vec<String>,
    /// TCP ports of this host that are forwarded to the guest.
    pub tcp: Vec<String>,
    /// UDP ports of this host that are forwarded to the guest.
    pub udp: Vec<String>,
    /// TCP ports of the guest's loopback that are forwarded to this host's.
    pub guest_tcp: Vec<String>,
    /// UDP ports of the guest's loopback that are forwarded to this host's.
    pub guest_udp: Vec<String>,
    /// Why something that the guest tried does not work, and the remedy.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub warning: Option<String>,
}

/// A program that uses the board's RDMA NIC.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// The number of its attachment: a process can be attached more than once.
    pub client: u64,
    /// Its process ID; 0 if it is in another PID namespace.
    pub pid: u32,
    /// Its queue pairs.
    pub queue_pairs: u64,
    /// Its completion queues.
    pub completion_queues: u64,
    /// Its regions and windows.
    pub keys: u64,
    /// Bytes of memory shared with it.
    pub shared_bytes: u64,
    /// Notices that wait until it reads others.
    pub notices: u64,
    /// Its counters.
    pub counters: Counters,
}

/// Rounds a value to three decimals, because further digits would be meaningless.
pub fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Collects counters by name.
pub(crate) fn named(each: impl FnOnce(&mut dyn FnMut(&'static str, u64))) -> Counters {
    let mut counters = Counters::new();
    each(&mut |name, value| {
        counters.insert(name.into(), value);
    });
    counters
}
