//! The configuration of a board: TOML, read and judged before anything is touched.
//!
//! Read      tables as they are written (`tables`), then a [`Plan`] in which every word has its meaning.
//! Errors    name the line, the key, what is wrong and what to do; a key that is not known brings the nearest that is.
//! Again     [`Plan::needs_new_board`] says which key of another configuration cannot be taken over by a board that runs.

mod judge;
mod mistake;
pub mod switch;
mod tables;
mod units;

pub(crate) use judge::PORTS_MAX;
pub use mistake::Mistake;
use tables::Tables;
pub use units::Length;

use kiban_board::{BoardConfig, BridgedCircuit, CircuitConfig};
use kiban_ground::Wait;
use kiban_stack::ip::Prefix;
use kiban_wire::ethernet::Mac;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// What is to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The board's name.
    pub name: String,
    /// Memory and settings of the board; its ports are made of [`Plan::ports`] when their links are there.
    pub board: BoardConfig,
    /// Whether TCP's segment size was said.
    pub mss_is_said: bool,
    /// The ports, and behind them the links of bridges.
    pub ports: Vec<PortPlan>,
    /// Ways beside those of the ports' own prefixes.
    pub routes: Vec<RoutePlan>,
    /// What it does.
    pub services: Vec<ServicePlan>,
    /// Where figures are told.
    pub metrics: Option<SocketAddr>,
    /// Whether log lines are JSON.
    pub log_json: bool,
    /// How long sessions may take to end when the board stops.
    pub drain: Duration,
    /// How the board's thread waits.
    pub wait: Wait,
    /// What is kept of privileges after start.
    pub sandbox: SandboxPlan,
    tables: Tables,
}

/// What the board keeps of its privileges after start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SandboxPlan {
    /// Whether it drops what it does not need.
    pub enabled: bool,
    /// Directories that may be read, beside those that are served from the start.
    pub read: Vec<PathBuf>,
    /// Directories in which records may be made, beside those for temporary files.
    pub write: Vec<PathBuf>,
    /// Whether a system call that is refused ends the board, in place of failing.
    pub kill: bool,
}

/// What a link carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carries {
    /// IP packets.
    Packets,
    /// Ethernet frames.
    Frames,
    /// ATM cells.
    Cells,
}

impl fmt::Display for Carries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Carries::Packets => "packets",
            Carries::Frames => "frames",
            Carries::Cells => "cells",
        })
    }
}

/// A port.
#[derive(Clone, Debug)]
pub struct PortPlan {
    /// Its name.
    pub name: String,
    /// The link's address.
    pub link: String,
    /// What the link carries.
    pub carries: Carries,
    /// The board's addresses.
    pub addresses: Vec<(IpAddr, Prefix)>,
    /// This host's own address on a device that the board makes.
    pub host_address: Option<(IpAddr, Prefix)>,
    /// The board's MAC.
    pub mac: Mac,
    /// The longest IP packet, bytes.
    pub mtu_bytes: usize,
    /// What the line has for cells, bit/s.
    pub bits_per_second: u64,
    /// Packets that may wait for the link.
    pub packets_max: usize,
    /// The device by which this host's kernel has the port's address.
    pub host: Option<String>,
    /// Whether the board starts without the link.
    pub retry: bool,
    /// Permanent circuits.
    pub circuits: Vec<CircuitConfig>,
    /// It is the link of a bridge: the circuits to which frames pass.
    pub bridge: Option<Vec<BridgedCircuit>>,
}

impl PortPlan {
    /// The addresses that are not this host's: where it has a side, the first one is, and on Ethernet all of them.
    pub fn own_addresses(&self) -> &[(IpAddr, Prefix)] {
        let hosts = match (&self.host, self.carries) {
            (None, _) => 0,
            (Some(_), Carries::Frames) => self.addresses.len(),
            (Some(_), _) => 1,
        };
        self.addresses.get(hosts..).unwrap_or_default()
    }
}

/// A way.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RoutePlan {
    /// For which targets.
    pub prefix: Prefix,
    /// By way of whom.
    pub gateway: IpAddr,
    /// Through which port.
    pub port: usize,
    /// The board's address there.
    pub source: IpAddr,
}

/// Where somebody listens, or is listened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// On the board.
    Board(SocketAddr),
    /// On this host's kernel.
    Kernel(SocketAddr),
    /// At a door for programs of this host that attach, or for those that use sockets.
    Door(&'static str),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Board(address) => address.fmt(f),
            End::Kernel(address) => write!(f, "kernel:{address}"),
            End::Door(_) => f.write_str("this host"),
        }
    }
}

/// A service.
#[derive(Clone, PartialEq, Debug)]
pub struct ServicePlan {
    /// Its name, given once.
    pub name: String,
    /// Where it listens.
    pub listen: End,
    /// Sessions at once.
    pub sessions_max: usize,
    /// How long a session may say nothing; none: for ever.
    pub idle: Option<Duration>,
    /// What it does.
    pub kind: Kind,
}

/// What a service does.
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// Sends back what comes.
    Echo,
    /// Takes what comes.
    Discard,
    /// Sends characters.
    Source {
        /// So many to each; none: until the peer has enough.
        bytes: Option<u64>,
    },
    /// Serves files.
    Http {
        /// Of this directory.
        root: PathBuf,
        /// Whether directories are listed.
        list: bool,
        /// How long a request may take to arrive.
        head_time: Duration,
    },
    /// Carries bytes to somebody else and back.
    Forward {
        /// To whom.
        to: End,
    },
    /// Lends sockets of the board's to programs that know nothing of it.
    Sockets {
        /// Where they call.
        door: PathBuf,
    },
    /// Lends the board's TCP to programs of this host, through shared memory.
    Attach {
        /// Where they call.
        door: PathBuf,
    },
}

impl Kind {
    /// Its word.
    pub fn word(&self) -> &'static str {
        match self {
            Kind::Echo => "echo",
            Kind::Discard => "discard",
            Kind::Source { .. } => "source",
            Kind::Http { .. } => "http",
            Kind::Forward { .. } => "forward",
            Kind::Attach { .. } => "attach",
            Kind::Sockets { .. } => "sockets",
        }
    }
}

impl Plan {
    /// Reads a configuration and judges it; `name` is the board's where the text gives none.
    ///
    /// # Errors
    /// [`Mistake`]: the first that was found.
    pub fn read(text: &str, name: &str) -> Result<Plan, Mistake> {
        let tables: Tables = toml::from_str(text).map_err(|error| Mistake::of_toml(text, &error))?;
        judge::Judge { text }.plan(tables, name)
    }

    /// A service for programs of this host on a board whose every address is the host's.
    pub fn lends_in_vain(&self) -> Option<&str> {
        let is_hosts = |port: &PortPlan| port.host.is_some() && port.own_addresses().is_empty();
        let lends =
            |service: &&ServicePlan| matches!(service.kind, Kind::Attach { .. } | Kind::Sockets { .. });
        let in_vain = !self.ports.is_empty() && self.ports.iter().all(is_hosts);
        let service = self.services.iter().filter(|_| in_vain).find(lends)?;
        Some(&service.name)
    }

    /// The key in which another configuration needs another board than this one's; none: it can be taken over.
    pub fn needs_new_board(&self, other: &Plan) -> Option<String> {
        let (old, new) = (&self.tables, &other.tables);
        if self.name != other.name {
            return Some("name".into());
        }
        if self.wait != other.wait {
            return Some("wait".into());
        }
        if old.log != new.log {
            return Some("log".into());
        }
        if old.sandbox != new.sandbox {
            return Some("sandbox".into());
        }
        if old.memory != new.memory {
            return Some("memory".into());
        }
        if let Some(key) = old.tcp.keys().chain(new.tcp.keys()).find(|key| {
            let value = |tables: &Tables| tables.tcp.get(*key).map(|said| said.get_ref().clone());
            value(old) != value(new)
        }) {
            return Some(format!("tcp.{key}"));
        }
        if old.ports.len() != new.ports.len() {
            return Some("port (there are more, or fewer)".into());
        }
        // A bridge may have another link, and its device another address.
        let kept = |tables: &Tables| -> Vec<tables::Bridge> {
            let plain = |bridge: &tables::Bridge| tables::Bridge {
                link: old.bridges[0].link.clone(),
                host_address: None,
                ..bridge.clone()
            };
            tables.bridges.iter().map(plain).collect()
        };
        if old.bridges.len() != new.bridges.len() || kept(old) != kept(new) {
            return Some("bridge".into());
        }
        old.ports
            .iter()
            .zip(&new.ports)
            .find_map(|(old, new)| {
                let keys = [
                    ("name", old.name != new.name),
                    ("address", old.address != new.address),
                    ("mac", old.mac != new.mac),
                    ("mtu", old.mtu != new.mtu),
                    ("rate", old.rate != new.rate),
                    ("queue", old.queue != new.queue),
                    ("host", old.host != new.host),
                    ("pvc", old.pvcs != new.pvcs),
                ];
                let (key, _) = keys.into_iter().find(|(_, differs)| *differs)?;
                Some(format!("{key} of port {}", old.name.value))
            })
            .or_else(|| {
                // A link of another kind is another port.
                let mut pairs = self.ports.iter().zip(&other.ports);
                let (old, _) = pairs.find(|(old, new)| old.carries != new.carries)?;
                Some(format!("link of port {}", old.name))
            })
    }
}
