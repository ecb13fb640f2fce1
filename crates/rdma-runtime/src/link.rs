//! Lower layers of an RDMA NIC in real time: their names, and addresses.
//!
//! ```text
//! tcp[:ADDRESS]         MPA on the operating system's TCP; connections use that local address
//! board[:NAME]          MPA on the TCP of a running board: the only one, or the one with this name or path
//! nic[:NAME]            the NIC of a running board, and MPA on the board's TCP
//! nic-roce[:NAME]       the NIC of a running board, and RoCEv2 on the board's UDP
//! nic-efe[:NAME]        the NIC of a running board, and EFE on the board's UDP
//! roce[:ADDRESS]        RoCEv2, at that local address
//! efe:ADDRESS           EFE over UDP, at that local address
//! efe-raw:INTERFACE     EFE in Ethernet frames of an interface
//! ```

use kiban_base::ethernet::Mac;
use kiban_rdma::hif::Transport;
use kiban_rdma::wire::roce::PORT;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::str::FromStr;

pub use kiban_rdma::wire::efe::UDP_PORT as EFE_UDP_PORT;

/// The transport of a NIC's connections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lower {
    /// iWARP: MPA on the operating system's TCP.
    Tcp {
        /// Local address of outgoing connections; by default the system chooses.
        from: Option<IpAddr>,
    },
    /// iWARP: MPA on the TCP of a running board, `kiban up` with a service of kind `attach`.
    Board {
        /// The board's name, or the path of its socket, which contains a `/`. `None` selects the only
        /// running board.
        name: Option<String>,
    },
    /// The NIC of a running board, `kiban up` with a service of kind `rdma`, instead of a NIC of this
    /// process's own.
    Nic {
        /// The board's name, or the path of its socket, which contains a `/`. `None` selects the only
        /// running board with such a service.
        name: Option<String>,
        /// The transport of connections.
        transport: Transport,
    },
    /// RoCEv2 at UDP port 4791.
    Roce {
        /// A local address. Without one, [`Lower::towards`] chooses it.
        at: Option<IpAddr>,
    },
    /// EFE over UDP.
    EfeUdp {
        /// A local address; port 0 means [`EFE_UDP_PORT`].
        at: SocketAddr,
    },
    /// EFE in Ethernet frames.
    EfeRaw {
        /// The interface's name.
        interface: String,
    },
}

impl fmt::Display for Lower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lower::Tcp { from: None } => f.write_str("tcp"),
            Lower::Tcp { from: Some(from) } => write!(f, "tcp:{from}"),
            Lower::Board { name: None } => f.write_str("board"),
            Lower::Board { name: Some(name) } => write!(f, "board:{name}"),
            Lower::Nic { name, transport } => {
                f.write_str(match transport {
                    Transport::Tcp => "nic",
                    Transport::Roce => "nic-roce",
                    Transport::Efe => "nic-efe",
                })?;
                name.as_ref().map_or(Ok(()), |name| write!(f, ":{name}"))
            }
            Lower::Roce { at: None } => f.write_str("roce"),
            Lower::Roce { at: Some(at) } => write!(f, "roce:{at}"),
            Lower::EfeUdp { at } => write!(f, "efe:{at}"),
            Lower::EfeRaw { interface } => write!(f, "efe-raw:{interface}"),
        }
    }
}

impl FromStr for Lower {
    type Err = String;

    fn from_str(word: &str) -> Result<Lower, String> {
        let (kind, rest) = word.split_once(':').map_or((word, None), |(kind, rest)| (kind, Some(rest)));
        let ip = |rest: &str| {
            rest.trim_matches(['[', ']']).parse().map_err(|_| format!("`{rest}` is not an IP address"))
        };
        match (kind, rest) {
            ("tcp", None) => Ok(Lower::Tcp { from: None }),
            ("tcp", Some(rest)) => Ok(Lower::Tcp { from: Some(ip(rest)?) }),
            ("board", None) => Ok(Lower::Board { name: None }),
            ("board", Some(name)) if !name.is_empty() => Ok(Lower::Board { name: Some(name.into()) }),
            ("nic" | "nic-roce" | "nic-efe", name) if name != Some("") => {
                let transport = match kind {
                    "nic" => Transport::Tcp,
                    "nic-roce" => Transport::Roce,
                    _ => Transport::Efe,
                };
                Ok(Lower::Nic { name: name.map(str::to_owned), transport })
            }
            ("roce", None) => Ok(Lower::Roce { at: None }),
            ("roce", Some(rest)) => Ok(Lower::Roce { at: Some(ip(rest)?) }),
            ("efe", Some(rest)) => {
                let at = rest.parse().or_else(|_| ip(rest).map(|ip| SocketAddr::new(ip, 0)))?;
                Ok(Lower::EfeUdp { at })
            }
            ("efe-raw", Some(interface)) => Ok(Lower::EfeRaw { interface: interface.into() }),
            _ => Err(format!(
                "unknown lower layer `{word}`: use tcp, tcp:ADDRESS, board, board:NAME, nic, nic:NAME, nic-roce, \
                 nic-roce:NAME, nic-efe, nic-efe:NAME, roce, roce:ADDRESS, efe:ADDRESS or efe-raw:INTERFACE"
            )),
        }
    }
}

impl Lower {
    /// Returns the lower layer with which a server listens at an address: RoCEv2 without an address uses this
    /// one.
    pub fn serving(self, at: Address) -> Lower {
        match (self, at) {
            (Lower::Roce { at: None }, Address::Ip(at)) if !at.ip().is_unspecified() => {
                Lower::Roce { at: Some(at.ip()) }
            }
            (lower, _) => lower,
        }
    }

    /// Returns the lower layer with which a client reaches a server. RoCEv2 without an address uses that of
    /// the route; to a loopback address, it uses one of this process, because each NIC needs its own.
    ///
    /// # Errors
    /// There is no route.
    pub fn towards(self, server: Address) -> io::Result<Lower> {
        let (Lower::Roce { at: None }, Address::Ip(mut server)) = (&self, server) else { return Ok(self) };
        let any: IpAddr = match server.ip() {
            IpAddr::V4(server) if server.is_loopback() => {
                return Ok(Lower::Roce { at: Some(loopback_beside(server).into()) });
            }
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        server.set_port(PORT);
        // Connecting a UDP socket sends nothing: the system looks up the route and chooses the address.
        let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        socket.connect(server)?;
        Ok(Lower::Roce { at: Some(socket.local_addr()?.ip()) })
    }
}

/// Returns the loopback address of this process, which is not that of the server. 127.128.0.0/9 has more
/// addresses than the system has process numbers (2^22, proc(5)).
fn loopback_beside(server: Ipv4Addr) -> Ipv4Addr {
    let own = 0x7f80_0000 | std::process::id() & 0x3f_ffff;
    Ipv4Addr::from_bits(if server.to_bits() == own { own + 1 } else { own })
}

/// The address of a NIC: a host, and a service (a port) on that host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// An IP address and a port. Over RoCEv2, the port is RDMA-CM's. Over EFE, the port is the service, and
    /// the UDP port is the same as the sender's.
    Ip(SocketAddr),
    /// An Ethernet address.
    Ethernet {
        /// The interface's MAC address.
        mac: Mac,
        /// The service.
        service: u16,
    },
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address::Ip(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ip(address) => address.fmt(f),
            Address::Ethernet { mac, service } => write!(f, "{mac}/{service}"),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(word: &str) -> Result<Address, String> {
        if let Ok(address) = word.parse() {
            return Ok(Address::Ip(address));
        }
        let parts = word.split_once('/').and_then(|(mac, service)| {
            Some(Address::Ethernet { mac: mac.parse().ok()?, service: service.parse().ok()? })
        });
        parts.ok_or_else(|| format!("invalid address `{word}`: use IP:PORT or MAC/SERVICE"))
    }
}
