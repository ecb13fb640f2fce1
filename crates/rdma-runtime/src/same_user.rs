//! Determines whether the peer of a connection within this host belongs to the same user.
//!
//! Purpose     programs exchange their numbers in the clear, which does not keep out other users of the same
//!             host. For connections within one host, the check therefore relies on information from the
//!             operating system.
//! Mechanism   the system reports the owner of every TCP and UDP socket to any process (`sock_diag(7)`). The
//!             peer's TCP socket is the one whose local address is our remote address and whose remote
//!             address is our local one; its UDP socket is the one that is bound to our remote address.
//! Local       an address is local if the system routes it to itself, no matter which interface has it
//!             (rtnetlink(7), RTN_LOCAL). A local peer whose connection was reset before the check no longer
//!             has a socket; it is refused, and not mistaken for a peer on another host.
//! Closed      a socket that its program has closed has no owner, and the system reports owner zero for it.
//!             A peer that sends everything and closes at once would then be taken for root, so only a
//!             socket that a program still holds counts.
//! Limits      peers on other hosts are not checked. Nor are peers on systems that do not answer such
//!             queries; these include some sandboxes, which have only one user anyway.

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, netlink};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const ENOENT: i32 = 2;
/// Lengths of `struct nlmsghdr` and `struct inet_diag_req_v2` in bytes, and offsets of the fields used in
/// `struct inet_diag_msg`.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 56;
const STATE_AT: usize = HEADER_BYTES + 1;
const OWNER_AT: usize = HEADER_BYTES + 64;
const INODE_AT: usize = HEADER_BYTES + 68;
/// `TCP_LISTEN`.
const LISTENS: u8 = 10;
/// `RTM_NEWROUTE`, `RTM_GETROUTE`, the length of `struct rtmsg`, and the offset of the route's type.
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const ROUTE_BYTES: usize = 12;
const ROUTE_TYPE_AT: usize = HEADER_BYTES + 7;
/// `RTA_DST`, `RTA_SRC`, `RTA_OIF`.
const TO: u16 = 1;
const FROM: u16 = 2;
const INTERFACE: u16 = 4;

/// Queries the system for the owners of sockets. The netlink sockets are opened at the start, so that peers
/// cannot bypass the check by exhausting the program's file descriptors.
#[derive(Debug)]
pub struct SocketOwners {
    kind: SocketKind,
    /// `None`: the system does not answer such queries.
    sockets: Option<OwnedFd>,
    /// Whether the system reports such sockets. If it does not, it claims that no socket exists.
    tells: bool,
    /// The socket for route queries. If it is `None`, only loopback addresses are known to be local.
    routes: Option<OwnedFd>,
}

#[derive(PartialEq, Eq, Debug)]
enum Owner {
    User(u32),
    /// No socket is connected, but one listens.
    Listener(u32),
    /// The socket is closed or not accepted yet: the system reports owner zero, which does not mean root.
    Nobody,
    /// No socket on this host.
    Elsewhere,
    /// The system does not answer.
    Unknown,
}

/// The sockets between which peers exchange packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketKind {
    /// Connected TCP sockets.
    Tcp,
    /// UDP sockets that are bound but not connected.
    Udp,
}

impl SocketOwners {
    /// Opens the netlink sockets.
    ///
    /// # Errors
    /// File descriptors or memory are exhausted.
    pub fn open(kind: SocketKind) -> io::Result<SocketOwners> {
        let (sockets, routes) = (open(Some(netlink::SOCK_DIAG))?, open(None)?);
        let mut owners = SocketOwners { kind, sockets, tells: true, routes };
        let any = (Ipv4Addr::LOCALHOST, 0);
        let probe = match kind {
            SocketKind::Tcp => TcpListener::bind(any).map(|tcp| (tcp.local_addr(), OwnedFd::from(tcp))),
            SocketKind::Udp => UdpSocket::bind(any).map(|udp| (udp.local_addr(), OwnedFd::from(udp))),
        };
        match probe {
            Ok((at, _socket)) => owners.tells = owners.owner(at?, nobody(any.0.into())) != Owner::Elsewhere,
            Err(error) if is_short(&error) => return Err(error),
            // Without a loopback interface, this cannot be tested. Assume that sockets are reported, which
            // is the stricter choice.
            Err(_) => {}
        }
        Ok(owners)
    }

    /// Returns whether the connection is allowed: the peer belongs to this user or to root, or is on another
    /// host, or the system does not answer.
    pub fn is_allowed(&self, local: SocketAddr, peer: SocketAddr) -> bool {
        match self.owner(peer, local) {
            Owner::User(user) => is_own(user),
            Owner::Listener(_) | Owner::Nobody => false,
            Owner::Elsewhere => !(self.tells && self.is_within_host(local, peer)),
            Owner::Unknown => true,
        }
    }

    /// Returns whether the peer is known to belong to another user, who is not root.
    pub fn is_other_user(&self, local: SocketAddr, peer: SocketAddr) -> bool {
        matches!(self.owner(peer, local), Owner::User(user) if !is_own(user))
    }

    /// Returns whether this user or root listens at an address.
    pub fn is_own_listener(&self, at: SocketAddr) -> bool {
        self.listener_user(at).is_some_and(is_own)
    }

    /// Returns whether another user, who is not root, listens at an address.
    pub fn is_other_listener(&self, at: SocketAddr) -> bool {
        self.listener_user(at).is_some_and(|user| !is_own(user))
    }

    /// Returns the user that listens at an address of this host, if the system knows one.
    fn listener_user(&self, at: SocketAddr) -> Option<u32> {
        match self.owner(at, nobody(at.ip())) {
            Owner::Listener(user) => Some(user),
            Owner::User(user) if self.kind == SocketKind::Udp => Some(user),
            _ => None,
        }
    }

    /// Returns whether both ends must be on this host. Also true if the route query fails, since a peer may
    /// have caused the failure.
    fn is_within_host(&self, local: SocketAddr, peer: SocketAddr) -> bool {
        let (here, there) = (local.ip().to_canonical(), peer.ip().to_canonical());
        here == there
            || there.is_loopback()
            || self.routes.as_ref().is_some_and(|routes| is_routed_here(routes, local, peer).unwrap_or(true))
    }

    /// Returns the owner of the socket bound to `local` and connected to `peer`.
    fn owner(&self, local: SocketAddr, peer: SocketAddr) -> Owner {
        let Some(socket) = &self.sockets else { return Owner::Unknown };
        let ask = |from, to| self.ask(socket, from, to).unwrap_or(Owner::Unknown);
        match self.kind {
            SocketKind::Tcp => ask(local, peer),
            // Before Linux 5.10, the two addresses of a request for a UDP socket were exchanged.
            SocketKind::Udp => match ask(local, nobody(local.ip())) {
                Owner::Elsewhere => ask(nobody(local.ip()), local),
                owner => owner,
            },
        }
    }

    fn ask(&self, socket: &OwnedFd, local: SocketAddr, peer: SocketAddr) -> Option<Owner> {
        let mut room = [0; 1024];
        let length = answered(socket, &request(self.kind, local, peer), &mut room)?;
        let answer = room.get(..length)?;
        let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
        match kind {
            // A listening socket is returned when no connected socket matches.
            BY_FAMILY if *answer.get(STATE_AT)? == LISTENS => Some(Owner::Listener(word(OWNER_AT)?)),
            BY_FAMILY if word(INODE_AT)? == 0 => Some(Owner::Nobody),
            BY_FAMILY => Some(Owner::User(word(OWNER_AT)?)),
            NLMSG_ERROR if word(HEADER_BYTES)? as i32 == -ENOENT => Some(Owner::Elsewhere),
            _ => None,
        }
    }
}

/// Returns the unspecified address of the same family.
fn nobody(of: IpAddr) -> SocketAddr {
    let any: IpAddr = match of.to_canonical() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(any, 0)
}

/// Returns whether a user is that of this process, or root.
fn is_own(user: u32) -> bool {
    user == rustix::process::geteuid().as_raw() || user == 0
}

/// Opens a netlink socket, for routes if no protocol is given. Returns `None` if the system does not support
/// it, which is the case in some sandboxes.
fn open(protocol: Option<net::Protocol>) -> io::Result<Option<OwnedFd>> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
    match net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if is_short(&error.into()) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

/// Returns whether the error means that file descriptors or memory are exhausted, which peers can cause.
fn is_short(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS))
}

/// Sends a query and receives the answer. Returns its length.
fn answered(socket: &OwnedFd, question: &[u8], room: &mut [u8]) -> Option<usize> {
    net::send(socket, question, net::SendFlags::empty()).ok()?;
    // The kernel answers during the send.
    Some(net::recv(socket, room, net::RecvFlags::DONTWAIT).ok()?.0)
}

/// Returns whether packets from `local` to `peer` stay on this host, or `None` if the system does not
/// answer.
fn is_routed_here(routes: &OwnedFd, local: SocketAddr, peer: SocketAddr) -> Option<bool> {
    let mut room = [0; 1024];
    let length = answered(routes, &route_request(local, peer), &mut room)?;
    let answer = room.get(..length)?;
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    (kind == NEW_ROUTE).then_some(*answer.get(ROUTE_TYPE_AT)? == libc::RTN_LOCAL)
}

/// Builds a query for the route between two addresses: `struct nlmsghdr`, `struct rtmsg` and its attributes.
fn route_request(local: SocketAddr, peer: SocketAddr) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES + ROUTE_BYTES];
    bytes[4..6].copy_from_slice(&GET_ROUTE.to_ne_bytes());
    bytes[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    let mut attribute = |kind: u16, value: &[u8]| {
        bytes.extend((4 + value.len() as u16).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
    };
    let mut address = |kind: u16, address: SocketAddr| match address.ip().to_canonical() {
        IpAddr::V4(address) => attribute(kind, &address.octets()),
        IpAddr::V6(address) => attribute(kind, &address.octets()),
    };
    address(TO, peer);
    address(FROM, local);
    // A link-local address is ambiguous without its interface.
    if let SocketAddr::V6(peer) = peer
        && peer.scope_id() != 0
    {
        attribute(INTERFACE, &peer.scope_id().to_ne_bytes());
    }
    let (family, bits) = match peer.ip().to_canonical() {
        IpAddr::V4(_) => (libc::AF_INET, 32),
        IpAddr::V6(_) => (libc::AF_INET6, 128),
    };
    bytes[HEADER_BYTES..HEADER_BYTES + 3].copy_from_slice(&[family as u8, bits, bits]);
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes
}

/// Builds a query for one socket, by addresses and ports: `struct nlmsghdr` and `struct
/// inet_diag_req_v2`.
fn request(kind: SocketKind, local: SocketAddr, peer: SocketAddr) -> [u8; HEADER_BYTES + REQUEST_BYTES] {
    let mut bytes = [0; HEADER_BYTES + REQUEST_BYTES];
    bytes[..4].copy_from_slice(&((HEADER_BYTES + REQUEST_BYTES) as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    let body = &mut bytes[HEADER_BYTES..];
    let canonical = |address: SocketAddr| address.ip().to_canonical();
    body[0] = if canonical(local).is_ipv4() { libc::AF_INET as u8 } else { libc::AF_INET6 as u8 };
    body[1] = match kind {
        SocketKind::Tcp => libc::IPPROTO_TCP as u8,
        SocketKind::Udp => libc::IPPROTO_UDP as u8,
    };
    // All states, then the socket's ports and addresses in network byte order.
    body[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
    body[8..10].copy_from_slice(&local.port().to_be_bytes());
    body[10..12].copy_from_slice(&peer.port().to_be_bytes());
    put(&mut body[12..28], canonical(local));
    put(&mut body[28..44], canonical(peer));
    // Any cookie.
    body[48..56].fill(0xff);
    bytes
}

fn put(room: &mut [u8], address: IpAddr) {
    match address {
        IpAddr::V4(address) => room[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => room.copy_from_slice(&address.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_os::interface;
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    /// Returns the listener and both ends of a connection.
    fn pair(at: &str) -> (TcpListener, TcpStream, TcpStream) {
        let listener = TcpListener::bind(at).expect("the loopback is there");
        let caller =
            TcpStream::connect(listener.local_addr().expect("it is bound")).expect("there is a listener");
        let (callee, _) = listener.accept().expect("somebody called");
        (listener, caller, callee)
    }

    #[test]
    fn a_socket_of_this_process_belongs_to_this_user() {
        let owners = SocketOwners::open(SocketKind::Tcp).expect("file descriptors are available");
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let (_listener, caller, callee) = pair(at);
            let from = caller.local_addr().expect("it is connected");
            let to = callee.local_addr().expect("it is connected");
            assert_eq!(owners.owner(from, to), Owner::User(rustix::process::geteuid().as_raw()), "{at}");
            assert!(owners.is_allowed(to, from));
        }
    }

    #[test]
    fn a_udp_socket_of_this_process_belongs_to_this_user() {
        let owners = SocketOwners::open(SocketKind::Udp).expect("file descriptors are available");
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let [own, peer] = [(); 2].map(|()| UdpSocket::bind(at).expect("the loopback is there"));
            let [here, there] = [&own, &peer].map(|socket| socket.local_addr().expect("it is bound"));
            assert_eq!(owners.owner(there, here), Owner::User(rustix::process::geteuid().as_raw()), "{at}");
            assert!(owners.is_allowed(here, there) && owners.is_own_listener(there));
            drop(peer);
            assert_eq!(owners.owner(there, here), Owner::Elsewhere, "{at}");
            assert!(!owners.is_allowed(here, there), "it is on this host, and has no socket");
        }
    }

    #[test]
    fn a_closed_socket_has_no_owner_and_is_not_roots() {
        let owners = SocketOwners::open(SocketKind::Tcp).expect("file descriptors are available");
        for (at, hears) in [("127.0.0.1:0", false), ("127.0.0.1:0", true), ("[::1]:0", true)] {
            let (_listener, caller, mut callee) = pair(at);
            let from = caller.local_addr().expect("it is connected");
            let to = callee.local_addr().expect("it is connected");
            drop(caller);
            if hears {
                assert_eq!(callee.read(&mut [0; 9]).expect("it ended in order"), 0);
            }
            assert_eq!(owners.owner(from, to), Owner::Nobody, "{at} {hears}");
            assert!(!owners.is_allowed(to, from), "{at} {hears}");
        }
    }

    /// Returns our end and both addresses of a connection that the peer has reset.
    fn reset(from: &str, to: &str) -> (TcpStream, SocketAddr, SocketAddr) {
        let at = |address: &str| SocketAddr::new(address.parse().expect("an address"), 0);
        // A new IPv6 address is not usable immediately (RFC 4862 §5.4).
        let patience = kiban_os::Clock::new();
        let until = patience.now() + std::time::Duration::from_secs(10);
        let listener = loop {
            match TcpListener::bind(at(to)) {
                Err(_) if patience.now() < until => std::thread::yield_now(),
                bound => break bound.expect("the address is this host's"),
            }
        };
        let to = listener.local_addr().expect("it is bound");
        let caller = socket2::Socket::new(socket2::Domain::for_address(to), socket2::Type::STREAM, None);
        let caller = caller.expect("file descriptors are available");
        caller.bind(&at(from).into()).expect("the address is this host's");
        caller.connect(&to.into()).expect("it listens");
        let (callee, from) = listener.accept().expect("it called");
        caller.set_linger(Some(std::time::Duration::ZERO)).expect("an option");
        (callee, from, to)
    }

    #[test]
    fn a_reset_caller_is_rejected_from_any_local_address() {
        let refused = |owners: &SocketOwners, from: &str, to: &str| {
            let (_callee, from, to) = reset(from, to);
            assert_eq!(owners.owner(from, to), Owner::Elsewhere);
            assert!(!owners.is_allowed(to, from), "{from} {to}");
        };
        let owners = SocketOwners::open(SocketKind::Tcp).expect("file descriptors are available");
        assert!(owners.tells, "this system tells of sockets");
        let rows = [
            ("127.0.0.1", "127.0.0.1"),
            ("127.0.0.2", "127.0.0.1"),
            ("127.0.0.1", "127.0.0.3"),
            ("::1", "::1"),
        ];
        rows.into_iter().for_each(|(from, to)| refused(&owners, from, to));
        // Test with interface addresses in a new network namespace.
        let in_namespace = std::thread::spawn(move || {
            if let Err(error) = interface::enter_new_namespace() {
                return println!("skipped in part: {error}");
            }
            let addresses = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"];
            // Additional IPv4 addresses need interface labels.
            for (text, name) in addresses.into_iter().zip(["lo:1", "lo:2", "lo", "lo"]) {
                let address: IpAddr = text.parse().expect("an address");
                let bits = if address.is_ipv4() { 32 } else { 128 };
                interface::set_address(name, address, bits).expect("it is ours");
            }
            let owners = SocketOwners::open(SocketKind::Tcp).expect("file descriptors are available");
            let rows = [
                ("192.0.2.1", "192.0.2.2"),
                ("127.0.0.1", "192.0.2.1"),
                ("2001:db8::1", "2001:db8::2"),
                ("::1", "2001:db8::2"),
            ];
            rows.into_iter().for_each(|(from, to)| refused(&owners, from, to));
        });
        in_namespace.join().expect("it went well");
        // A peer on another host is allowed even if it has left, because the rules of its network apply. The
        // check sends no packets.
        let peer = SocketAddr::from(([198, 51, 100, 7], 2));
        let socket = UdpSocket::bind("0.0.0.0:0").expect("file descriptors are available");
        match socket.connect(peer).and_then(|()| socket.local_addr()) {
            Ok(local) => assert!(!owners.is_within_host(local, peer), "{local}"),
            Err(error) => println!("skipped in part: no way leads to another host: {error}"),
        }
    }

    #[test]
    fn a_socket_of_another_host_is_elsewhere() {
        let owners = SocketOwners::open(SocketKind::Tcp).expect("file descriptors are available");
        let local = SocketAddr::from(([192, 0, 2, 1], 1));
        assert_eq!(owners.owner(local, SocketAddr::from(([192, 0, 2, 2], 2))), Owner::Elsewhere);
    }
}
