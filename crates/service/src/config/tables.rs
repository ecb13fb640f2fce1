//! The tables of a configuration, as they are written.

use super::units::{Word, Words};
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
    /// What the board is called; its control socket is named after it.
    pub(super) name: Option<Word>,
    /// How long sessions may take to end when the board stops.
    pub(super) drain: Option<Word>,
    /// How the board's thread waits.
    pub(super) wait: Option<Word>,
    /// Packet memory.
    #[serde(default, deserialize_with = "once")]
    pub(super) memory: Memory,
    /// Settings of TCP by name.
    #[serde(default)]
    pub(super) tcp: BTreeMap<String, Spanned<toml::Value>>,
    /// Where the board meets links.
    #[serde(default, rename = "port")]
    pub(super) ports: Vec<Port>,
    /// Links of Ethernet frames that are bridged with circuits.
    #[serde(default, rename = "bridge")]
    pub(super) bridges: Vec<Bridge>,
    /// Ways beside those of the ports' own prefixes.
    #[serde(default, rename = "route")]
    pub(super) routes: Vec<Route>,
    /// What the board does.
    #[serde(default, rename = "service")]
    pub(super) services: Vec<Service>,
    /// Figures for Prometheus.
    #[serde(default, deserialize_with = "at_most_once")]
    pub(super) metrics: Option<Metrics>,
    /// Log lines.
    #[serde(default, deserialize_with = "once")]
    pub(super) log: Log,
    /// What is kept of privileges after start.
    #[serde(default, deserialize_with = "once")]
    pub(super) sandbox: Sandbox,
}

/// A table that is written once: for serde a list of its values would do, and `[[metrics]]` is a list.
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
    /// Bytes of a page.
    pub(super) page: Option<Word>,
    /// For what the host sends.
    pub(super) transmit: Option<Word>,
    /// For what arrives.
    pub(super) receive: Option<Word>,
    /// PDUs under way.
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
    /// This host's own address on a device that the board makes.
    pub(super) host_address: Option<Word>,
    /// The board's MAC.
    pub(super) mac: Option<Word>,
    /// The longest IP packet.
    pub(super) mtu: Option<usize>,
    /// What the line has for cells.
    pub(super) rate: Option<Word>,
    /// A TUN device by which this host's kernel owns the port's address.
    pub(super) host: Option<Word>,
    /// Packets that may wait for the link.
    pub(super) queue: Option<usize>,
    /// Whether the board starts without the link, and looks for it later.
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
    /// Its name on the line.
    pub(super) vc: Word,
    /// Who is at the other end; not said: InATMARP asks.
    pub(super) peer: Option<Word>,
    /// `llc` or `vc-mux`.
    pub(super) encapsulation: Option<Word>,
    /// Peak cell rate, cells in a second.
    pub(super) pcr: Option<f64>,
    /// Sustainable cell rate.
    pub(super) scr: Option<f64>,
    /// Maximum burst size, cells.
    pub(super) mbs: Option<u32>,
    /// Cell delay variation tolerance.
    pub(super) cdvt: Option<Word>,
    /// Frames that may wait for the line.
    pub(super) queue: Option<usize>,
}

/// A bridge.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Bridge {
    /// Its name.
    pub(super) name: Word,
    /// The address of its link of Ethernet frames.
    pub(super) link: Word,
    /// Circuits, as `port:0.100`.
    #[serde(default)]
    pub(super) circuits: Words,
    /// Whether frames are sent with their FCS.
    #[serde(default)]
    pub(super) fcs: bool,
    /// This host's own address on a device that the board makes.
    pub(super) host_address: Option<Word>,
    /// The MTU of such a device.
    pub(super) mtu: Option<usize>,
    /// Frames that may wait for the link.
    pub(super) queue: Option<usize>,
    /// Whether the board starts without the link, and looks for it later.
    #[serde(default)]
    pub(super) retry: bool,
}

/// A way.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Route {
    /// For which targets.
    pub(super) to: Word,
    /// By way of whom.
    pub(super) via: Word,
}

/// A service.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Service {
    /// What it is.
    pub(super) kind: Word,
    /// Its name; not said: its kind, with a number where there are several.
    pub(super) name: Option<Word>,
    /// Where it listens.
    pub(super) listen: Option<Word>,
    /// Sessions at once.
    pub(super) sessions: Option<usize>,
    /// How long a session may say nothing.
    pub(super) idle: Option<Word>,
    /// `http`: the directory that is served.
    pub(super) root: Option<Word>,
    /// `http`: whether directories without `index.html` are listed.
    pub(super) list: Option<bool>,
    /// `http`: how long a request may take to arrive.
    pub(super) head_time: Option<Word>,
    /// `source`: how much each session gets; not said: until it has enough.
    pub(super) bytes: Option<Word>,
    /// `forward`: to whom.
    pub(super) to: Option<Word>,
}

/// Figures for Prometheus.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Metrics {
    /// Where the kernel listens.
    pub(super) listen: Word,
}

/// Log lines.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Log {
    /// As JSON.
    #[serde(default)]
    pub(super) json: bool,
}

/// The sandbox.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Sandbox {
    /// `false`: nothing is dropped.
    pub(super) enabled: Option<bool>,
    /// Directories that a reload may serve.
    #[serde(default)]
    pub(super) read: Words,
    /// Directories for records.
    #[serde(default)]
    pub(super) write: Words,
    /// Whether a system call that is refused ends the board.
    #[serde(default)]
    pub(super) kill: bool,
}
