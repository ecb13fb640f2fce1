//! A board's plan: the typed values of its configuration.

use super::forwarded::Forwarded;
use super::tables::{self, Tables};
use kiban_base::Wait;
use kiban_base::ethernet::Mac;
use kiban_board::{BoardConfig, BridgedCircuit, CircuitConfig};
use kiban_link::Address;
use kiban_tcpip::guest::GuestConfig;
use kiban_tcpip::ip::Prefix;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// A validated configuration.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The board's name.
    pub name: String,
    /// Memory and settings of the board. The board's ports are derived from [`Plan::ports`] once their links
    /// are open.
    pub board: BoardConfig,
    /// Whether the configuration sets the TCP MSS.
    pub mss_is_configured: bool,
    /// The ports, followed by the bridges' links.
    pub ports: Vec<PortPlan>,
    /// Routes other than those for the ports' own prefixes.
    pub routes: Vec<RoutePlan>,
    /// The services.
    pub services: Vec<ServicePlan>,
    /// Where Prometheus metrics are served.
    pub metrics: Option<SocketAddr>,
    /// Whether log lines are JSON.
    pub log_json: bool,
    /// How long sessions may take to end when the board stops.
    pub drain: Duration,
    /// The waiting policy of the board's threads.
    pub wait: Wait,
    /// The number of shards, each driven by a thread of its own.
    pub shards: usize,
    /// The privileges that are kept after start.
    pub sandbox: SandboxPlan,
    pub(super) tables: Tables,
}

/// The privileges that the board keeps after start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SandboxPlan {
    /// Whether the board drops privileges that it does not need.
    pub enabled: bool,
    /// Directories that may be read, in addition to the directories served when the board starts.
    pub read: Vec<PathBuf>,
    /// Directories in which captures may be created, in addition to the directories for temporary files.
    pub write: Vec<PathBuf>,
    /// Whether a denied system call kills the board instead of failing.
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
    /// Whether the board leases an IPv4 address by DHCP.
    pub dhcp: bool,
    /// What the one guest of the link gets from the board.
    pub guest: Option<GuestConfig>,
    /// This host's own address on a TUN or TAP device that the board creates.
    pub host_address: Option<(IpAddr, Prefix)>,
    /// The board's MAC.
    pub mac: Mac,
    /// The longest IP packet, bytes.
    pub mtu_bytes: usize,
    /// The line's cell rate, bit/s.
    pub bits_per_second: u64,
    /// The maximum number of packets queued for the link.
    pub packets_max: usize,
    /// The device through which this host's kernel owns the port's address.
    pub host: Option<String>,
    /// Whether the board may start even if the link cannot be opened, and then open it later.
    pub retry: bool,
    /// Permanent circuits.
    pub circuits: Vec<CircuitConfig>,
    /// The circuits that the bridge connects, if this is a bridge's link.
    pub bridge: Option<Vec<BridgedCircuit>>,
}

impl PortPlan {
    /// Returns whether the link can have a queue for each shard of a board.
    pub(crate) fn has_queues(&self) -> bool {
        self.link.parse::<Address>().is_ok_and(|address| address.has_queues())
    }

    /// Returns the addresses that belong to the board itself. On a port that is shared with this host's
    /// kernel, the first address belongs to the kernel; on Ethernet, all addresses do.
    pub fn own_addresses(&self) -> &[(IpAddr, Prefix)] {
        let hosts = match (&self.host, self.carries) {
            (None, _) => 0,
            (Some(_), Carries::Frames) => self.addresses.len(),
            (Some(_), _) => 1,
        };
        self.addresses.get(hosts..).unwrap_or_default()
    }
}

/// A route.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RoutePlan {
    /// The destination prefix.
    pub prefix: Prefix,
    /// The next hop.
    pub gateway: IpAddr,
    /// The outgoing port.
    pub port: usize,
    /// The board's address on that port.
    pub source: IpAddr,
}

/// The address on which a service listens, or to which it connects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Endpoint {
    /// On the board.
    Board(SocketAddr),
    /// On this host's kernel.
    Kernel(SocketAddr),
    /// On the board, at all addresses and ports that have no other listener.
    Everywhere,
    /// A Unix socket for programs on this host that attach to the board or use its sockets.
    UnixSocket(&'static str),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Board(address) => address.fmt(f),
            Endpoint::Kernel(address) => write!(f, "kernel:{address}"),
            Endpoint::Everywhere => f.write_str("all addresses"),
            Endpoint::UnixSocket(_) => f.write_str("this host"),
        }
    }
}

/// A service.
#[derive(Clone, PartialEq, Debug)]
pub struct ServicePlan {
    /// The service's name, unique among the services.
    pub name: String,
    /// Where it listens.
    pub listen: Endpoint,
    /// Limit of concurrent sessions.
    pub sessions_max: usize,
    /// How long a session may be idle; `None` means no limit.
    pub idle: Option<Duration>,
    /// What it does.
    pub kind: Kind,
}

/// The traffic of a guest that does not simply go to its destination.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NetConfig {
    /// The board's addresses that stand for others. The first match counts.
    pub map: Vec<Mapped>,
    /// The guest's addresses, at most one of each family, and their subnets.
    pub guest: Vec<(IpAddr, Prefix)>,
    /// TCP ports of this host that are forwarded to the guest.
    pub tcp: Vec<Forwarded>,
    /// UDP ports of this host that are forwarded to the guest.
    pub udp: Vec<Forwarded>,
    /// TCP ports of the guest's loopback that are forwarded to this host's.
    pub guest_tcp: Vec<Forwarded>,
    /// UDP ports of the guest's loopback that are forwarded to this host's.
    pub guest_udp: Vec<Forwarded>,
    /// The board's addresses at whose port 53 this host's name servers are asked.
    pub dns: Vec<IpAddr>,
    /// These servers. If one does not answer, the next one is asked.
    pub dns_servers: Vec<SocketAddr>,
    /// The number of an open datagram socket, on which lists of servers arrive that replace the previous
    /// ones: addresses with ports, separated by spaces.
    pub dns_changes: Option<i32>,
    /// The number of an open socket that leads to a process in the guest's network namespace
    /// ([`serve_namespace`](crate::services::serve_namespace)).
    pub namespace: Option<i32>,
}

/// An address of the board that stands for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// The board's address.
    pub address: IpAddr,
    /// The only port that is mapped; `None` for all.
    pub port: Option<u16>,
    /// The address to which this host connects.
    pub to: IpAddr,
    /// The port to which it connects; `None` for the same one.
    pub to_port: Option<u16>,
}

/// The kind of a service.
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// Sends back what it receives.
    Echo,
    /// Discards what it receives.
    Discard,
    /// Sends characters.
    Source {
        /// Number of bytes per session; `None` means to send until the peer closes.
        bytes: Option<u64>,
    },
    /// Serves files.
    Http {
        /// The root directory.
        root: PathBuf,
        /// Device and inode of the directory that `root` resolves to. A reload compares them to detect that a
        /// symlink or the directory has been replaced.
        folder: (u64, u64),
        /// Whether directories are listed.
        list: bool,
        /// How long a request may take to arrive.
        head_time: Duration,
    },
    /// Relays bytes to another endpoint and back.
    Forward {
        /// The endpoint.
        to: Endpoint,
    },
    /// Connects a guest with other hosts through this host's sockets.
    Net(NetConfig),
    /// Provides the board's sockets to unmodified programs.
    Sockets {
        /// The Unix socket on which programs connect.
        path: PathBuf,
    },
    /// Provides the board's TCP to programs on this host through shared memory.
    Attach {
        /// The Unix socket on which programs connect.
        path: PathBuf,
    },
    /// Provides the board's OSI stack to programs on this host through shared memory.
    Osi {
        /// The Unix socket on which programs connect.
        path: PathBuf,
    },
    /// Provides the board's RDMA NIC to programs on this host through shared memory.
    Rdma {
        /// The Unix socket on which programs connect.
        path: PathBuf,
    },
}

impl Kind {
    /// Returns the service's name in the configuration.
    pub fn word(&self) -> &'static str {
        match self {
            Kind::Echo => "echo",
            Kind::Discard => "discard",
            Kind::Source { .. } => "source",
            Kind::Http { .. } => "http",
            Kind::Forward { .. } => "forward",
            Kind::Net(_) => "net",
            Kind::Attach { .. } => "attach",
            Kind::Osi { .. } => "osi",
            Kind::Rdma { .. } => "rdma",
            Kind::Sockets { .. } => "sockets",
        }
    }
}

impl Plan {
    /// Returns the name of a service for programs on this host that could not work because every address of
    /// the board belongs to this host's kernel.
    pub fn unreachable_service(&self) -> Option<&str> {
        let is_hosts = |port: &PortPlan| port.host.is_some() && port.own_addresses().is_empty();
        let lends = |service: &&ServicePlan| {
            matches!(
                service.kind,
                Kind::Attach { .. } | Kind::Osi { .. } | Kind::Rdma { .. } | Kind::Sockets { .. }
            )
        };
        let in_vain = !self.ports.is_empty() && self.ports.iter().all(is_hosts);
        let service = self.services.iter().filter(|_| in_vain).find(lends)?;
        Some(&service.name)
    }

    /// Returns the service for programs that use the board's RDMA NIC, if there is one.
    pub fn rdma_service(&self) -> Option<&ServicePlan> {
        self.services.iter().find(|service| matches!(service.kind, Kind::Rdma { .. }))
    }

    /// Returns the first key whose change requires a new board. `None` if this board can apply the other
    /// configuration.
    pub fn needs_new_board(&self, other: &Plan) -> Option<String> {
        let (old, new) = (&self.tables, &other.tables);
        if self.name != other.name {
            return Some("name".into());
        }
        if self.wait != other.wait {
            return Some("wait".into());
        }
        if self.shards != other.shards {
            return Some("shards".into());
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
        // The NIC exists as long as its board.
        if self.rdma_service() != other.rdma_service() {
            return Some("the service of kind \"rdma\"".into());
        }
        if let Some(key) = old.tcp.keys().chain(new.tcp.keys()).find(|key| {
            let value = |tables: &Tables| tables.tcp.get(*key).map(|value| value.get_ref().clone());
            value(old) != value(new)
        }) {
            return Some(format!("tcp.{key}"));
        }
        if old.ports.len() != new.ports.len() {
            return Some(format!(
                "the number of ports ({} before, {} now)",
                old.ports.len(),
                new.ports.len()
            ));
        }
        // A reload may change a bridge's link and the address of the link's device.
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
                    ("guest", old.guest != new.guest || old.guest_dns != new.guest_dns),
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
                // A link that carries a different kind of unit requires a different port; so does one that
                // distributes the circuits over the shards.
                let mut pairs = self.ports.iter().zip(&other.ports);
                let is_distributed = |port: &PortPlan| self.shards > 1 && port.has_queues();
                let (old, _) = pairs.find(|(old, new)| {
                    old.carries != new.carries || is_distributed(old) != is_distributed(new)
                })?;
                Some(format!("link of port {}", old.name))
            })
    }
}
