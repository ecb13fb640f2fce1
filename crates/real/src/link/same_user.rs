//! Whose the other end of a connection within one host is.
//!
//! Goal      numbers that programs tell each other in the clear keep nobody of the same host out: between users of a host
//!           the system's word counts.
//! How       the system knows every TCP socket's owner and tells anybody (`sock_diag(7)`): the peer's socket is the one with
//!           our addresses the other way round.
//! Limits    a peer on another host is not asked about; nor is one where the system does not answer such questions, as in
//!           some sandboxes, where there is one user anyway.

use rustix::net::{self, AddressFamily, SocketFlags, SocketType, netlink};
use std::net::{IpAddr, SocketAddr};

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const ENOENT: i32 = 2;
/// Bytes of `struct nlmsghdr`, of `struct inet_diag_req_v2` and of what comes before the owner in `struct inet_diag_msg`.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 56;
const OWNER_AT: usize = HEADER_BYTES + 64;

/// Whether the other end of a connection may be taken for this user's: it is another host's, or it is.
pub fn is_allowed(local: SocketAddr, peer: SocketAddr) -> bool {
    // A host's own addresses are the only ones that its own sockets can have.
    match owner(peer, local) {
        Owner::User(user) => user == rustix::process::geteuid().as_raw() || user == 0,
        Owner::Elsewhere => true,
    }
}

#[derive(PartialEq, Eq, Debug)]
enum Owner {
    User(u32),
    /// No socket of this host's, or the system does not say.
    Elsewhere,
}

/// The user who owns the socket that is bound to `local` and connected to `peer`.
fn owner(local: SocketAddr, peer: SocketAddr) -> Owner {
    ask(local, peer).unwrap_or(Owner::Elsewhere)
}

fn ask(local: SocketAddr, peer: SocketAddr) -> Option<Owner> {
    let socket = net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )
    .ok()?;
    net::send(&socket, &request(local, peer), net::SendFlags::empty()).ok()?;
    let mut room = [0; 1024];
    let (length, _) = net::recv(&socket, &mut room, net::RecvFlags::DONTWAIT).ok()?;
    let answer = room.get(..length)?;
    let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    match kind {
        BY_FAMILY => Some(Owner::User(word(OWNER_AT)?)),
        NLMSG_ERROR if word(HEADER_BYTES)? as i32 == -ENOENT => Some(Owner::Elsewhere),
        _ => None,
    }
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`: one TCP socket, by its four numbers.
fn request(local: SocketAddr, peer: SocketAddr) -> [u8; HEADER_BYTES + REQUEST_BYTES] {
    let mut bytes = [0; HEADER_BYTES + REQUEST_BYTES];
    bytes[..4].copy_from_slice(&((HEADER_BYTES + REQUEST_BYTES) as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    let body = &mut bytes[HEADER_BYTES..];
    let canonical = |address: SocketAddr| address.ip().to_canonical();
    body[0] = if canonical(local).is_ipv4() { libc::AF_INET as u8 } else { libc::AF_INET6 as u8 };
    body[1] = libc::IPPROTO_TCP as u8;
    // All states, and after them the socket's numbers, in network order.
    body[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
    body[8..10].copy_from_slice(&local.port().to_be_bytes());
    body[10..12].copy_from_slice(&peer.port().to_be_bytes());
    put(&mut body[12..28], canonical(local));
    put(&mut body[28..44], canonical(peer));
    // Any cookie will do.
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
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_socket_of_this_process_is_this_users() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(at).expect("the loopback is there");
            let to = listener.local_addr().expect("it is bound");
            let socket = TcpStream::connect(to).expect("somebody listens");
            let from = socket.local_addr().expect("it is connected");
            assert_eq!(owner(from, to), Owner::User(rustix::process::geteuid().as_raw()), "{at}");
            assert!(is_allowed(to, from));
        }
    }

    #[test]
    fn a_socket_that_is_not_here_is_elsewhere() {
        let local = SocketAddr::from(([192, 0, 2, 1], 1));
        assert_eq!(owner(local, SocketAddr::from(([192, 0, 2, 2], 2))), Owner::Elsewhere);
    }
}
