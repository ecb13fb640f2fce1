//! The ports of RDMA listeners, which are not those of TCP.
//!
//! Purpose   lets a program listen for RDMA and for TCP at one port number, as with RDMA hardware.
//! Port      an RDMA listener uses the TCP port of the same number if no other socket has it: peers that do
//!           not know kiban (siw, iWARP NICs) connect to that port. If it is in use, the listener uses a TCP
//!           port that the system assigns.
//! Registry  each listener binds an abstract Unix socket, whose name contains the port that the program chose
//!           and the TCP port. Clients read the names from /proc/net/unix. Like TCP ports, such names belong
//!           to a network namespace, and the kernel removes them when their process ends. There is no daemon,
//!           unlike for the port mapper of iWARP devices (iwpmd).
//! Trust     a client uses another TCP port than the given one only if the listener there belongs to its own
//!           user or to root. Any other user could otherwise redirect its connections.
//! Limits    clients on other hosts and in other network namespaces do not find a listener at another port.
//!           If an RDMA listener has a TCP port already, a TCP socket cannot bind it later. Without /proc,
//!           there are no entries.

use crate::same_user::{SocketKind, SocketOwners};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixDatagram;

/// The first part of the names.
const PREFIX: &str = "kiban-rdma-port/";
/// The last part of the name of a listener for one address family.
const FAMILY_ONLY: &str = "only";

/// An address at which a program listens for RDMA connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    pub(crate) at: SocketAddr,
    /// An unspecified IPv6 address does not stand for IPv4 addresses.
    pub(crate) family_only: bool,
}

impl Claim {
    /// Returns whether this address stands for the other one.
    fn covers(&self, other: SocketAddr) -> bool {
        let any = self.at.ip().is_unspecified();
        let is_same_family = self.at.is_ipv4() == other.is_ipv4();
        self.at.port() == other.port()
            && (self.at.ip() == other.ip()
                || any && (is_same_family || self.at.is_ipv6() && !self.family_only))
    }

    /// Returns whether a listener already has this address.
    pub(crate) fn is_taken(&self) -> bool {
        entries().iter().any(|(other, _)| self.covers(other.at) || other.covers(self.at))
    }

    /// Enters a listener in the registry, as long as the returned socket is open.
    ///
    /// # Errors
    /// There are no more file descriptors; the system does not allow Unix sockets.
    pub(crate) fn publish(&self, tcp_port: u16) -> io::Result<UnixDatagram> {
        let mut name = format!("{PREFIX}{tcp_port}/{}", self.at);
        if self.family_only {
            name = format!("{name}/{FAMILY_ONLY}");
        }
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
        UnixDatagram::bind_addr(&address)
    }
}

/// Reads the listeners of this network namespace, each with its TCP port.
fn entries() -> Vec<(Claim, u16)> {
    // Names of other programs need not be UTF-8.
    let table = std::fs::read("/proc/net/unix").unwrap_or_default();
    String::from_utf8_lossy(&table).lines().filter_map(parsed).collect()
}

/// Parses a line of /proc/net/unix, which shows the first byte of an abstract name as `@`.
fn parsed(line: &str) -> Option<(Claim, u16)> {
    let name = line.rsplit(' ').next()?.strip_prefix('@')?.strip_prefix(PREFIX)?;
    let mut parts = name.split('/');
    let (tcp_port, at) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some((Claim { at, family_only: parts.next() == Some(FAMILY_ONLY) }, tcp_port))
}

/// Returns the address to which TCP must connect to reach an RDMA listener.
pub(crate) fn tcp_address(to: SocketAddr) -> SocketAddr {
    let canonical = SocketAddr::new(to.ip().to_canonical(), to.port());
    let is_local = UdpSocket::bind((canonical.ip(), 0)).is_ok();
    if !is_local {
        return to;
    }
    let found: Vec<u16> =
        entries().into_iter().filter(|(claim, _)| claim.covers(canonical)).map(|(_, port)| port).collect();
    if found.is_empty() || found.contains(&to.port()) {
        return to;
    }
    let Ok(owners) = SocketOwners::open(SocketKind::Tcp) else { return to };
    let mut trusted = found.into_iter().map(|port| SocketAddr::new(to.ip(), port));
    trusted.find(|&at| owners.is_own_listener(at)).unwrap_or(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(at: &str, family_only: bool) -> Claim {
        Claim { at: at.parse().expect("an address"), family_only }
    }

    #[test]
    fn an_unspecified_address_stands_for_those_of_its_families() {
        for (at, family_only, other, expected) in [
            ("127.0.0.1:7", false, "127.0.0.1:7", true),
            ("127.0.0.1:7", false, "127.0.0.1:8", false),
            ("127.0.0.1:7", false, "127.0.0.2:7", false),
            ("0.0.0.0:7", false, "127.0.0.1:7", true),
            ("0.0.0.0:7", false, "[::1]:7", false),
            ("[::]:7", false, "127.0.0.1:7", true),
            ("[::]:7", true, "127.0.0.1:7", false),
            ("[::]:7", true, "[::1]:7", true),
        ] {
            let covers = claim(at, family_only).covers(other.parse().expect("an address"));
            assert_eq!(covers, expected, "{at} {family_only} {other}");
        }
    }

    #[test]
    fn published_listeners_are_found_until_their_socket_closes() {
        // Ports that nothing else in the tests publishes: TCP port 1, and addresses of documentation.
        for listener in [claim("192.0.2.1:7", false), claim("[2001:db8::1]:7", true)] {
            assert!(!listener.is_taken());
            let socket = listener.publish(1).expect("a socket");
            assert!(entries().contains(&(listener, 1)));
            assert!(listener.is_taken());
            // The address belongs to another host, so the entry is not for it.
            assert_eq!(tcp_address(listener.at), listener.at);
            drop(socket);
            assert!(!listener.is_taken());
        }
    }

    #[test]
    fn an_entry_without_a_listener_of_this_user_is_ignored() {
        let listener = claim("127.0.0.77:7", false);
        let _socket = listener.publish(1).expect("a socket");
        assert_eq!(tcp_address(listener.at), listener.at);
    }

    #[test]
    fn other_names_are_not_entries() {
        for line in [
            "",
            "Num       RefCount Protocol Flags    Type St Inode Path",
            "0000000000000000: 00000002 00000000 00000000 0002 01 4242 @kiban-rdma-port/x/127.0.0.1:7",
            "0000000000000000: 00000002 00000000 00000000 0002 01 4242 @kiban-rdma-port/7/nowhere",
            "0000000000000000: 00000002 00000000 00000000 0002 01 4242 kiban-rdma-port/7/127.0.0.1:7",
        ] {
            assert_eq!(parsed(line), None, "{line}");
        }
    }
}
