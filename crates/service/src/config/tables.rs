//! The tables of a configuration, as written in the file.

use super::units::{Located, Word, Words};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use toml::Spanned;

/// A configuration as it is written.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Tables {
    /// The board's name; its control socket is named after it.
    pub(super) name: Option<Word>,
    /// How long sessions may take to end when the board stops.
    pub(super) drain: Option<Word>,
    /// Wait policy of the board's threads.
    pub(super) wait: Option<Word>,
    /// Number of shards, each driven by a thread of its own.
    pub(super) shards: Option<Located<usize>>,
    /// Packet memory.
    #[serde(default, deserialize_with = "once")]
    pub(super) memory: Memory,
    /// TCP settings by name.
    #[serde(default)]
    pub(super) tcp: BTreeMap<String, Spanned<toml::Value>>,
    /// Ports.
    #[serde(default, rename = "port")]
    pub(super) ports: Vec<Port>,
    /// Bridges between Ethernet links and circuits.
    #[serde(default, rename = "bridge")]
    pub(super) bridges: Vec<Bridge>,
    /// Routes other than those for the ports' own prefixes.
    #[serde(default, rename = "route")]
    pub(super) routes: Vec<Route>,
    /// Services.
    #[serde(default, rename = "service")]
    pub(super) services: Vec<Service>,
    /// Prometheus metrics.
    #[serde(default, deserialize_with = "at_most_once")]
    pub(super) metrics: Option<Metrics>,
    /// Log lines.
    #[serde(default, deserialize_with = "once")]
    pub(super) log: Log,
    /// Privileges that are kept after start.
    #[serde(default, deserialize_with = "once")]
    pub(super) sandbox: Sandbox,
}

/// Deserializes a table that must occur once. Without this, serde would also accept a sequence of the table's
/// values, such as `[[metrics]]`.
fn once<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    struct Table<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Table<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }
    from.deserialize_map(Table(PhantomData))
}

fn at_most_once<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    once(from).map(Some)
}

/// Packet memory.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Memory {
    /// Page size.
    pub(super) page: Option<Word>,
    /// Memory for data to be sent.
    pub(super) transmit: Option<Word>,
    /// Memory for received data.
    pub(super) receive: Option<Word>,
    /// Number of PDUs.
    pub(super) pdus: Option<usize>,
}

/// A port.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Port {
    /// Its name.
    pub(super) name: Word,
    /// The link's address.
    pub(super) link: Word,
    /// The board's addresses on it.
    #[serde(default)]
    pub(super) address: Words,
    /// This host's own address on a device that the board creates.
    pub(super) host_address: Option<Word>,
    /// The addresses that the board gives to the one guest of the link.
    #[serde(default)]
    pub(super) guest: Words,
    /// The name servers that the guest is told.
    #[serde(default)]
    pub(super) guest_dns: Words,
    /// The board's MAC address.
    pub(super) mac: Option<Word>,
    /// The longest IP packet.
    pub(super) mtu: Option<usize>,
    /// The line's rate for cells.
    pub(super) rate: Option<Word>,
    /// A TUN device through which this host's kernel owns the port's address.
    pub(super) host: Option<Word>,
    /// The maximum number of packets queued for the link.
    pub(super) queue: Option<usize>,
    /// Whether the board starts even if the link cannot be opened, and opens it later.
    #[serde(default)]
    pub(super) retry: bool,
    /// Permanent circuits.
    #[serde(default, rename = "pvc")]
    pub(super) pvcs: Vec<Pvc>,
}

/// A permanent circuit.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Pvc {
    /// VPI and VCI, such as `0.100`.
    pub(super) vc: Word,
    /// The peer's address; if absent, InATMARP discovers it.
    pub(super) peer: Option<Word>,
    /// `llc` or `vc-mux`.
    pub(super) encapsulation: Option<Word>,
    /// Peak cell rate, cells/s.
    pub(super) pcr: Option<f64>,
    /// Sustainable cell rate, cells/s.
    pub(super) scr: Option<f64>,
    /// Maximum burst size, cells.
    pub(super) mbs: Option<u32>,
    /// Cell delay variation tolerance.
    pub(super) cdvt: Option<Word>,
    /// The service category: `cbr`, `vbr` or `ubr`.
    pub(super) category: Option<Word>,
    /// The weight within the category.
    pub(super) weight: Option<u16>,
    /// The maximum number of frames queued for the line.
    pub(super) queue: Option<usize>,
}

/// A bridge.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Bridge {
    /// Its name.
    pub(super) name: Word,
    /// The address of the bridge's Ethernet link.
    pub(super) link: Word,
    /// Circuits, such as `port:0.100`.
    #[serde(default)]
    pub(super) circuits: Words,
    /// Whether frames are sent with an FCS.
    #[serde(default)]
    pub(super) fcs: bool,
    /// This host's own address on a device that the board creates.
    pub(super) host_address: Option<Word>,
    /// The MTU of such a device.
    pub(super) mtu: Option<usize>,
    /// The maximum number of frames queued for the link.
    pub(super) queue: Option<usize>,
    /// Whether the board starts even if the link cannot be opened, and opens it later.
    #[serde(default)]
    pub(super) retry: bool,
}

/// A route.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Route {
    /// Destination prefix.
    pub(super) to: Word,
    /// Next hop.
    pub(super) via: Word,
}

/// A service.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Service {
    /// Its kind.
    pub(super) kind: Word,
    /// The service's name; defaults to its kind, plus a number if there are several of that kind.
    pub(super) name: Option<Word>,
    /// Where it listens.
    pub(super) listen: Option<Word>,
    /// Limit of concurrent sessions.
    pub(super) sessions: Option<usize>,
    /// How long a session may be idle.
    pub(super) idle: Option<Word>,
    /// `http`: the directory to serve.
    pub(super) root: Option<Word>,
    /// `http`: whether directories without `index.html` are listed.
    pub(super) list: Option<bool>,
    /// `http`: how long a request may take to arrive.
    pub(super) head_time: Option<Word>,
    /// `source`: number of bytes per session; if absent, the service sends until the peer closes.
    pub(super) bytes: Option<Word>,
    /// `forward`: the endpoint to connect to.
    pub(super) to: Option<Word>,
    /// `net`: which addresses of the board stand for others.
    pub(super) map: Option<Words>,
    /// `net`: the guest's addresses.
    pub(super) guest: Option<Words>,
    /// `net`: TCP ports of this host that are forwarded to the guest.
    pub(super) tcp: Option<Words>,
    /// `net`: UDP ports of this host that are forwarded to the guest.
    pub(super) udp: Option<Words>,
    /// `net`: TCP ports of the guest's loopback that are forwarded to this host's.
    pub(super) guest_tcp: Option<Words>,
    /// `net`: UDP ports of the guest's loopback that are forwarded to this host's.
    pub(super) guest_udp: Option<Words>,
    /// `net`: the board's addresses at which name servers are asked.
    pub(super) dns: Option<Words>,
    /// `net`: these name servers.
    pub(super) dns_servers: Option<Words>,
    /// `net`: the number of an open socket on which lists of name servers arrive.
    pub(super) dns_changes: Option<i32>,
    /// `net`: the number of an open socket that leads to a process in the guest's network namespace.
    pub(super) namespace: Option<i32>,
}

/// Prometheus metrics.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Metrics {
    /// The address on the host's kernel at which metrics are served.
    pub(super) listen: Word,
}

/// Log lines.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Log {
    /// Whether log lines are JSON.
    #[serde(default)]
    pub(super) json: bool,
}

/// The sandbox.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Sandbox {
    /// Whether privileges are dropped; true if absent.
    pub(super) enabled: Option<bool>,
    /// Directories that may be served after a reload.
    #[serde(default)]
    pub(super) read: Words,
    /// Directories in which captures may be created.
    #[serde(default)]
    pub(super) write: Words,
    /// Whether a denied system call kills the board.
    #[serde(default)]
    pub(super) kill: bool,
}
