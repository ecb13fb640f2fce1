//! The forwarded ports of both sides: those of this host, and those of the guest's loopback.
//!
//! Addresses  without a given one, a port of this host is open on all its addresses, of the families that the
//!            guest has; a port of the guest on 127.0.0.1 and ::1.
//! Automatic  with `auto`, a port is open on one side while a program on the other side has it open. Ports
//!            that are forwarded the other way do not count.
//! Cycles     a port of the loopback that led to a forwarded port of the other side's loopback would pass a
//!            datagram on for ever, and a connection until all sessions are in use. Such ports are refused;
//!            `all` and `auto` leave them out.
//! Limits     each port has one socket, or two in the guest; the system limits open files. With `auto`, at
//!            most [`AUTO_PORTS_MAX`] ports of each kind are open.

use super::bound::{bound, ephemeral};
use super::namespace::{Namespace, Protocol, Side};
use crate::config::{Forwarded, NetConfig};
use crate::services::clients::Entrance;
use crate::services::counters::GuestView;
use kiban_link::{EpollSet, Interest};
use kiban_os::interface::bind_remedy;
use rustix::net::{RecvFlags, recvfrom};
use socket2::Socket;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

/// More ports than a well-behaved program opens, and few enough to be compared once a second.
const AUTO_PORTS_MAX: usize = 1024;
/// The maximum number of connections that wait until they are accepted.
const BACKLOG: i32 = 1024;

enum Listener {
    Tcp(Entrance<Socket>),
    Udp(Socket),
}

/// A forwarded port.
struct Port {
    kind: Kind,
    /// The address at which it was asked to be open; `None` for the usual ones.
    address: Option<IpAddr>,
    port: u16,
    to: u16,
    is_auto: bool,
    listener: Listener,
}

/// A direction of forwarding: the side at which ports are open.
type Kind = (Side, Protocol);

/// The forwarded ports.
pub(super) struct Ports {
    next: u64,
    open: BTreeMap<u64, Port>,
    /// The directions with automatic ports, each with the tables of the other side's sockets.
    followed: Vec<(Kind, Vec<File>)>,
    /// The ports that this host gives to clients; for the guest, they are taken to be the same.
    clients: RangeInclusive<u16>,
}

impl Ports {
    /// Returns an empty set; `first` is the number of the first port among the watched files.
    pub(super) fn new(first: u64) -> Ports {
        Ports { next: first, open: BTreeMap::new(), followed: Vec::new(), clients: ephemeral() }
    }

    /// Opens all ports of a configuration.
    ///
    /// # Errors
    /// A port is in use, or this user must not use it.
    pub(super) fn start(
        &mut self,
        config: &NetConfig,
        namespace: &mut Namespace,
        files: &EpollSet,
    ) -> Result<(), String> {
        let lists = [
            ((Side::Host, Protocol::Tcp), &config.tcp),
            ((Side::Host, Protocol::Udp), &config.udp),
            ((Side::Guest, Protocol::Tcp), &config.guest_tcp),
            ((Side::Guest, Protocol::Udp), &config.guest_udp),
        ];
        for (at, (kind, list)) in lists.iter().enumerate() {
            // The other side's list for the same protocol.
            let back = lists[at ^ 2].1;
            if let Some((port, to)) = list.iter().find_map(|ports| returning(ports, back)) {
                let protocol = kind.1.name();
                let (here, there) = match kind.0 {
                    Side::Host => ("this host", "the guest"),
                    Side::Guest => ("the guest", "this host"),
                };
                return Err(format!(
                    "{protocol} port {port} of {here} leads to port {to} of {there}, which is forwarded back: remove one \
                     of them, or give them other numbers"
                ));
            }
        }
        for (kind, list) in lists {
            for forwarded in list {
                match forwarded {
                    Forwarded::Range { address, ports, to } => {
                        for port in ports.clone() {
                            let to = to + (port - ports.start());
                            self.open(kind, *address, (port, to), false, (config, namespace, files))?;
                        }
                    }
                    // Below, so that it can leave out the ports that are given.
                    Forwarded::All => {}
                    Forwarded::Auto => {
                        let tables = namespace.tables(kind.0.other(), kind.1);
                        if tables.is_empty() {
                            return Err("auto: cannot list the open ports: the namespace is not open".into());
                        }
                        self.followed.push((kind, tables));
                    }
                }
            }
        }
        for (kind, list) in lists {
            if list.contains(&Forwarded::All) {
                self.open_all(kind, (config, namespace, files))?;
            }
        }
        self.follow(config, namespace, files);
        Ok(())
    }

    /// Opens all ports that are free, except those that are forwarded the other way.
    fn open_all(&mut self, kind: Kind, cx: (&NetConfig, &mut Namespace, &EpollSet)) -> Result<(), String> {
        let (config, namespace, files) = cx;
        let clients = self.clients.clone();
        let back = self.used_by((kind.0.other(), kind.1));
        let mut failure = None;
        let mut is_any_open = !back.is_empty();
        for port in (1..=u16::MAX).filter(|port| !clients.contains(port) && !back.contains(port)) {
            match self.open(kind, None, (port, port), false, (config, namespace, files)) {
                Ok(()) => is_any_open = true,
                Err(error) => failure = Some(error),
            }
        }
        if is_any_open { Ok(()) } else { Err(failure.unwrap_or_else(|| "all: no port is left".into())) }
    }

    /// Returns the numbers of the ports of a direction, and of those to which they lead.
    fn used_by(&self, kind: Kind) -> BTreeSet<u16> {
        self.of_kind(kind).flat_map(|port| [port.port, port.to]).collect()
    }

    fn open(
        &mut self,
        kind: Kind,
        address: Option<IpAddr>,
        (port, to): (u16, u16),
        is_auto: bool,
        (config, namespace, files): (&NetConfig, &mut Namespace, &EpollSet),
    ) -> Result<(), String> {
        let has = |is_ipv4| config.guest.iter().any(|(guest, _)| guest.is_ipv4() == is_ipv4);
        let (four, six): (IpAddr, IpAddr) = match kind.0 {
            Side::Host => (Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()),
            Side::Guest => (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()),
        };
        let addresses = match (address, kind.0) {
            (Some(address), _) => vec![address],
            (None, Side::Host) if !has(false) => vec![four],
            (None, Side::Host) => vec![six],
            (None, Side::Guest) => vec![four, six],
        };
        // The unspecified IPv6 address stands for those of IPv4, too.
        let is_both = address.is_none() && has(true);
        for (index, ip) in addresses.into_iter().enumerate() {
            let mut at = SocketAddr::new(ip, port);
            let mut opened = self.bind(kind, at, is_both, namespace, files);
            if let Err(error) = &opened
                && has_no_ipv6(error)
                && address.is_none()
            {
                if index > 0 {
                    break;
                }
                at.set_ip(four);
                opened = self.bind(kind, at, false, namespace, files);
            }
            let listener = opened.map_err(|error| {
                let (of, remedy) = match kind.0 {
                    Side::Host => ("", bind_remedy(at, &error)),
                    Side::Guest => (" of the guest", String::new()),
                };
                let protocol = kind.1.name();
                format!("{protocol} {at}{of}: {error}{remedy}")
            })?;
            self.open.insert(self.next, Port { kind, address, port, to, is_auto, listener });
            self.next += 1;
        }
        Ok(())
    }

    fn bind(
        &self,
        kind: Kind,
        at: SocketAddr,
        is_both: bool,
        namespace: &mut Namespace,
        files: &EpollSet,
    ) -> io::Result<Listener> {
        let socket = namespace.socket(kind.0, at, kind.1)?;
        socket.set_nonblocking(true)?;
        if at.is_ipv6() {
            socket.set_only_v6(!is_both)?;
        }
        match kind.1 {
            Protocol::Tcp => {
                socket.set_reuse_address(true)?;
                socket.bind(&at.into())?;
                socket.listen(BACKLOG)?;
                Ok(Listener::Tcp(Entrance::new(socket, self.next, files)?))
            }
            Protocol::Udp => {
                socket.bind(&at.into())?;
                files.watch(&socket, self.next, Interest::READ)?;
                Ok(Listener::Udp(socket))
            }
        }
    }

    /// Opens and closes automatic ports as programs on the other side do.
    fn follow(&mut self, config: &NetConfig, namespace: &mut Namespace, files: &EpollSet) {
        let followed = std::mem::take(&mut self.followed);
        for (kind, tables) in &followed {
            let back = self.used_by((kind.0.other(), kind.1));
            let mut wanted = bound(tables, kind.1, &self.clients);
            wanted.retain(|port| !back.contains(port));
            self.open.retain(|_, port| port.kind != *kind || !port.is_auto || wanted.contains(&port.port));
            let here: BTreeSet<u16> = self.of_kind(*kind).map(|port| port.port).collect();
            let more = AUTO_PORTS_MAX.saturating_sub(self.of_kind(*kind).filter(|port| port.is_auto).count());
            for &port in wanted.difference(&here).take(more) {
                // The port may be in use, or be privileged; a program cannot be told.
                let opened = self.open(*kind, None, (port, port), true, (config, namespace, files));
                if let Err(error) = opened {
                    tracing::debug!(error, "cannot forward a port");
                }
            }
        }
        self.followed = followed;
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Port> {
        self.open.values().filter(move |port| port.kind == kind)
    }

    /// Handles the passing of a second.
    pub(super) fn look(&mut self, config: &NetConfig, namespace: &mut Namespace, files: &EpollSet) {
        for port in self.open.values_mut() {
            if let Listener::Tcp(listener) = &mut port.listener {
                listener.look(files);
            }
        }
        if !self.followed.is_empty() {
            self.follow(config, namespace, files);
        }
    }

    /// Returns all open ports.
    pub(super) fn forwarded(&self) -> GuestView {
        let of = |kind| {
            // A port without an address may have two sockets.
            let open: BTreeSet<_> =
                self.of_kind(kind).map(|port| (port.address, port.port, port.to)).collect();
            ranges(open)
        };
        GuestView {
            tcp: of((Side::Host, Protocol::Tcp)),
            udp: of((Side::Host, Protocol::Udp)),
            guest_tcp: of((Side::Guest, Protocol::Tcp)),
            guest_udp: of((Side::Guest, Protocol::Udp)),
            warning: None,
        }
    }

    /// Returns the side of a port, its protocol, and the port of the other side; `None` if it is closed.
    pub(super) fn get(&self, number: u64) -> Option<(Side, Protocol, u16)> {
        self.open.get(&number).map(|port| (port.kind.0, port.kind.1, port.to))
    }

    /// Returns the next connection at a port, and the caller's address.
    pub(super) fn accept(&mut self, number: u64, files: &EpollSet) -> Option<(Socket, SocketAddr)> {
        match &mut self.open.get_mut(&number)?.listener {
            Listener::Tcp(listener) => listener.accept(files),
            Listener::Udp(_) => None,
        }
    }

    /// Receives the next datagram at a port. Returns its length, and the sender.
    pub(super) fn receive(&self, number: u64, room: &mut [u8]) -> Option<(usize, SocketAddr)> {
        let Listener::Udp(socket) = &self.open.get(&number)?.listener else { return None };
        loop {
            match recvfrom(socket, &mut *room, RecvFlags::DONTWAIT) {
                Ok((_, length, sender)) => return Some((length, sender?.try_into().ok()?)),
                // An error is an ICMP error about an earlier answer; it is reported once.
                Err(rustix::io::Errno::CONNREFUSED) => {}
                Err(_) => return None,
            }
        }
    }

    /// Sends a datagram through a port. Returns whether it was sent.
    pub(super) fn send(&self, number: u64, payload: &[u8], to: SocketAddr) -> bool {
        let Some(Port { listener: Listener::Udp(socket), .. }) = self.open.get(&number) else { return false };
        // If the socket's buffer is full, the datagram is lost, as on a link.
        socket.send_to(payload, &to.into()).is_ok()
    }

    /// Closes all ports.
    pub(super) fn close(&mut self) {
        self.open.clear();
        self.followed.clear();
    }
}

/// Merges successive ports into ranges. Each is given with its address, and the port to which it leads.
fn ranges(open: BTreeSet<(Option<IpAddr>, u16, u16)>) -> Vec<Forwarded> {
    let mut all: Vec<Forwarded> = Vec::new();
    for (at, port, to) in open {
        match all.last_mut() {
            Some(Forwarded::Range { address, ports, to: first })
                if *address == at
                    && ports.end().checked_add(1) == Some(port)
                    && to.checked_sub(*first) == Some(port - ports.start()) =>
            {
                *ports = *ports.start()..=port;
            }
            _ => all.push(Forwarded::Range { address: at, ports: port..=port, to }),
        }
    }
    all
}

/// Returns a port of the loopback, and the port to which it leads, if that is forwarded in the list `back` of
/// the other side.
fn returning(ports: &Forwarded, back: &[Forwarded]) -> Option<(u16, u16)> {
    let of_loopback = |ports: &Forwarded| match ports {
        Forwarded::Range { address, ports, to }
            if address.is_none_or(|address| address.is_unspecified() || address.is_loopback()) =>
        {
            Some((ports.clone(), *to))
        }
        _ => None,
    };
    let (ports, to) = of_loopback(ports)?;
    let mut led = ports.enumerate().map(|(index, port)| (port, to + index as u16));
    let back: Vec<_> = back.iter().filter_map(of_loopback).collect();
    led.find(|(_, to)| back.iter().any(|(ports, _)| ports.contains(to)))
}

/// Returns whether an error says that the system, or the namespace, has no IPv6.
fn has_no_ipv6(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let absent = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL].map(|errno| Some(errno.raw_os_error()));
    absent.contains(&error.raw_os_error()) || error.kind() == io::ErrorKind::InvalidData
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successive_ports_are_listed_as_ranges() {
        let rows: [(&[&str], &str); 6] = [
            (&[], ""),
            (&["8080:80"], "8080:80"),
            (&["8002", "8000-8001"], "8000-8002"),
            (&["8000:80", "8001:81", "8002:90", "8003:90"], "8000-8001:80-81 8002:90 8003:90"),
            (&["8000", "127.0.0.1:8001", "[::1]:8002"], "8000 127.0.0.1:8001 [::1]:8002"),
            (&["65534-65535:1-2"], "65534-65535:1-2"),
        ];
        for (given, expected) in rows {
            let mut open = BTreeSet::new();
            for text in given {
                let Some(Forwarded::Range { address, ports, to }) = Forwarded::parse(text) else {
                    panic!("{text} is a range");
                };
                open.extend(ports.enumerate().map(|(index, port)| (address, port, to + index as u16)));
            }
            let listed: Vec<String> = ranges(open).iter().map(Forwarded::to_string).collect();
            assert_eq!(listed.join(" "), expected, "{given:?}");
        }
    }

    #[test]
    fn ports_that_lead_back_to_their_own_side_are_found() {
        let rows = [
            ("8080", "8080", Some((8080, 8080))),
            ("9000:8080", "8080:9000", Some((9000, 8080))),
            ("8000-8009:9000-9009", "[::1]:9005:80", Some((8005, 9005))),
            ("127.0.0.1:65535", "65000-65535", Some((65_535, 65_535))),
            ("8080:80", "8080", None),
            ("8080", "all", None),
            // Only callers of that address reach the port.
            ("192.0.2.1:8080", "8080", None),
        ];
        for (given, back, expected) in rows {
            let read = |text| Forwarded::parse(text).unwrap();
            assert_eq!(returning(&read(given), &[read("1"), read(back)]), expected, "{given} {back}");
        }
    }
}
