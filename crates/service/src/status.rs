//! How a board is, at one moment: what `kiban status` shows and what Prometheus reads.

use kiban_real::sandbox::Report;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counters by name.
pub type Counters = BTreeMap<String, u64>;

/// How a board is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// The version of kiban.
    pub version: String,
    /// The process.
    pub pid: u32,
    /// `running` or `stopping`.
    pub state: String,
    /// The configuration's file; `(command line)` where it has none.
    pub config: String,
    /// Seconds since it began.
    pub uptime_seconds: f64,
    /// Times that the configuration was read again and taken over.
    pub reloads: u64,
    /// What is kept of its privileges; none: all of them, since the sandbox is off.
    #[serde(default)]
    pub sandbox: Option<Sandbox>,
    /// Packet memory.
    pub memory: Memory,
    /// Sessions of TCP, by state.
    pub sessions: Counters,
    /// Ports.
    pub ports: Vec<Port>,
    /// Circuits of all ATM ports.
    pub circuits: Vec<Circuit>,
    /// Services.
    pub services: Vec<Service>,
    /// What happened on the board as a whole, by family and name; what happened at a port stands with the port.
    pub counters: BTreeMap<String, Counters>,
}

/// What is in force of a board's sandbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Capabilities that are kept, as `CAP_NET_ADMIN`.
    pub capabilities: Vec<String>,
    /// `on`, or why Landlock is not.
    pub landlock: String,
    /// `on`, or why seccomp is not.
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
    /// Pages for what the host sends, bytes.
    pub transmit_bytes: Use,
    /// Pages for what arrives, bytes.
    pub receive_bytes: Use,
    /// PDUs.
    pub pdus: Use,
}

/// How much of something is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Use {
    /// How much there is.
    pub capacity: u64,
    /// How much of it is in use.
    pub used: u64,
}

/// A port and its link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// The link's address.
    pub link: String,
    /// What the link carries.
    pub carries: String,
    /// `up` or `down`.
    pub state: String,
    /// Why it is down.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// The board's addresses on it.
    pub addresses: Vec<String>,
    /// The device by which this host's kernel has the port's address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<String>,
    /// The longest IP packet, bytes.
    pub mtu_bytes: u64,
    /// Packets or frames that wait.
    pub waiting: u64,
    /// Times that the link was lost.
    pub losses: u64,
    /// What was lost, by cause: each is a counter below, `FAMILY_NAME`.
    #[serde(default)]
    pub lost: Counters,
    /// In the last second or so.
    pub rates: Rates,
    /// What happened on the link since it was opened.
    pub link_counters: Counters,
    /// What happened at the port, by family and name.
    pub counters: BTreeMap<String, Counters>,
}

/// What moves in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Units that came.
    pub units_in: f64,
    /// Units that left.
    pub units_out: f64,
    /// Bits that came.
    pub bits_in: f64,
    /// Bits that left.
    pub bits_out: f64,
}

/// A circuit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Circuit {
    /// Its port.
    pub port: String,
    /// Its name on the line.
    pub vc: String,
    /// Who is at the other end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer: Option<String>,
    /// `fixed`: the peer was given; `known`: InATMARP has an answer; `asking`: it has none; `bridged`: it is a
    /// bridge's.
    pub state: String,
}

/// A service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: String,
    /// Where it listens.
    pub listen: String,
    /// `listening`, or `ending`: it listens no more, and goes with its last session.
    pub state: String,
    /// Sessions that are there.
    pub sessions: u64,
    /// How many there may be.
    pub sessions_max: u64,
    /// What has happened.
    pub counters: Counters,
}

/// A figure to thousandths: more of its digits mean nothing, and `0.30000000000000004` is none to read.
pub fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Counters as they are told.
pub(crate) fn named(each: impl FnOnce(&mut dyn FnMut(&'static str, u64))) -> Counters {
    let mut counters = Counters::new();
    each(&mut |name, value| {
        counters.insert(name.into(), value);
    });
    counters
}
