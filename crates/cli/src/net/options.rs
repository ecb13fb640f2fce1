//! The checked options of a guest's network, however they were given.

use ipnet::{IpNet, Ipv4Net};
use kiban_link::address::Transport;
use kiban_os::resolver;
use kiban_service::config::Forwarded;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;

/// The file that lists this host's name servers.
pub(super) const RESOLVER: &str = "/etc/resolv.conf";
/// The longest packet that fits behind the virtio-net header of a segment.
pub(super) const MTU_BYTES_MAX: usize = 65_520;

/// What gets the network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// A command with its arguments, in namespaces of its own.
    Command(OsString, Vec<OsString>),
    /// A process that runs.
    Process(u32),
    /// A network namespace, given by a file, and the user namespace that owns it unless that is our own. The
    /// network ends when the file is removed, if `ends`.
    Namespace { user: Option<PathBuf>, net: PathBuf, ends: bool },
    /// A virtual machine at a link over Unix sockets, and the command that starts it. Without a command, the
    /// network ends when a signal ends this program.
    Machine { link: Transport, command: Option<(OsString, Vec<OsString>)> },
}

/// An address of the board that stands for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mapped {
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
}

/// The options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Options {
    pub(super) target: Target,
    /// The guest's addresses, each with its gateway.
    pub(super) addresses: Vec<(IpNet, IpAddr)>,
    /// Whether to configure the interface; otherwise another process does.
    pub(super) configures: bool,
    pub(super) mtu_bytes: usize,
    pub(super) interface: String,
    /// The first match counts.
    pub(super) map: Vec<Mapped>,
    /// The addresses of the board to which the guest sends requests for names.
    pub(super) dns: Vec<IpAddr>,
    /// The name servers that get the requests. If empty, those that [`RESOLVER`] lists at any time.
    pub(super) dns_servers: Vec<IpAddr>,
    /// Ports of this host that are forwarded to the guest.
    pub(super) tcp: Vec<Forwarded>,
    pub(super) udp: Vec<Forwarded>,
    /// Ports of the guest's loopback that are forwarded to this host's.
    pub(super) guest_tcp: Vec<Forwarded>,
    pub(super) guest_udp: Vec<Forwarded>,
    pub(super) pcap: Option<PathBuf>,
    /// Whether to continue in the background once the network works.
    pub(super) background: bool,
    /// A file for the number of the first process.
    pub(super) pid_file: Option<PathBuf>,
    /// The number of an inherited file to which a byte is written once the network works.
    pub(super) ready_fd: Option<i32>,
    /// The number of an inherited file: the network ends when its other end is closed.
    pub(super) exit_fd: Option<i32>,
}

impl Options {
    /// Returns options with which a target only gets an interface with addresses.
    pub(super) fn new(target: Target, addresses: Vec<(IpNet, IpAddr)>) -> Options {
        Options {
            target,
            addresses,
            configures: true,
            mtu_bytes: MTU_BYTES_MAX,
            interface: "eth0".into(),
            map: Vec::new(),
            dns: Vec::new(),
            dns_servers: Vec::new(),
            tcp: Vec::new(),
            udp: Vec::new(),
            guest_tcp: Vec::new(),
            guest_udp: Vec::new(),
            pcap: None,
            background: false,
            pid_file: None,
            ready_fd: None,
            exit_fd: None,
        }
    }

    /// Sets the MTU.
    ///
    /// # Errors
    /// It is less than the protocols allow (RFC 8200 §5, RFC 791), or too large.
    pub(super) fn set_mtu(&mut self, mtu_bytes: usize) -> Result<(), String> {
        let has_ipv6 = self.addresses.iter().any(|(guest, _)| guest.addr().is_ipv6());
        let (least, with) = if has_ipv6 { (1280, "with IPv6") } else { (576, "with IPv4") };
        if !(least..=MTU_BYTES_MAX).contains(&mtu_bytes) {
            return Err(format!("--mtu {mtu_bytes}: {with}, the MTU is between {least} and {MTU_BYTES_MAX}"));
        }
        self.mtu_bytes = mtu_bytes;
        Ok(())
    }

    /// Returns the forwarded ports, in all directions.
    pub(super) fn forwarded(&self) -> impl Iterator<Item = &Forwarded> {
        [&self.tcp, &self.udp, &self.guest_tcp, &self.guest_udp].into_iter().flatten()
    }

    /// Checks that no port is forwarded twice, and that ports of the guest are open only to its own programs:
    /// they lead to this host's loopback.
    pub(super) fn check_ports(&self) -> Result<(), String> {
        let all = [("-t", &self.tcp), ("-u", &self.udp), ("-T", &self.guest_tcp), ("-U", &self.guest_udp)];
        for (name, ports) in all {
            for (at, one) in ports.iter().enumerate() {
                if let Some(port) = ports[..at].iter().find_map(|other| other.common_port(one)) {
                    return Err(format!("{name}: port {port} is given twice; it can lead to one port only"));
                }
            }
        }
        match self.guest_tcp.iter().chain(&self.guest_udp).find(|ports| !ports.is_of_loopback()) {
            None => Ok(()),
            Some(ports) => Err(format!(
                "-T and -U {ports}: callers of other hosts would reach this host's loopback; give no address, or \
                 one of the loopback"
            )),
        }
    }

    /// Returns whether the board needs sockets in the guest's namespace.
    pub(super) fn uses_namespace(&self) -> bool {
        !matches!(self.target, Target::Machine { .. }) && self.forwarded().next().is_some()
    }

    /// Returns whether the name servers are those that [`RESOLVER`] lists at any time.
    pub(super) fn follows_resolver(&self) -> bool {
        !self.dns.is_empty() && self.dns_servers.is_empty()
    }

    /// Lets an address stand for this host's loopback.
    pub(super) fn map_loopback(&mut self, at: IpAddr) {
        let to = if at.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        self.map.push(Mapped { from: at, to });
    }
}

/// Checks that a gateway is in the network of an address.
pub(super) fn check_gateway(address: IpNet, gateway: IpAddr, names: (&str, &str)) -> Result<(), String> {
    if address.contains(&gateway) && address.addr() != gateway {
        return Ok(());
    }
    let (own, other) = names;
    Err(format!(
        "{other} {gateway} must be another address in the network of {own} {address}; give {other}, too"
    ))
}

/// Returns the name servers of this host.
pub(super) fn host_name_servers() -> Vec<SocketAddr> {
    resolver::name_servers(&std::fs::read_to_string(RESOLVER).unwrap_or_default())
}

/// Returns the address of this host from which it reaches other hosts; nothing is sent.
pub(super) fn host_address(is_ipv4: bool) -> Option<IpAddr> {
    // Any address that is routed by the default route (RFC 5737, RFC 3849).
    let (from, to): (&str, &str) =
        if is_ipv4 { ("0.0.0.0:0", "192.0.2.1:9") } else { ("[::]:0", "[2001:db8::1]:9") };
    let socket = UdpSocket::bind(from).ok()?;
    socket.connect(to).ok()?;
    socket.local_addr().ok().map(|address: SocketAddr| address.ip())
}

/// Returns the address with a number in an IPv4 network.
pub(super) fn numbered(network: Ipv4Net, number: u32) -> Ipv4Addr {
    (network.network().to_bits() + number).into()
}
