//! Whose the other end of a connection within one host is.
//!
//! Goal      numbers that programs tell each other in the clear keep nobody of the same host out: between users of a host
//!           the system's word counts.
//! How       the system knows every TCP socket's owner and tells anybody (`sock_diag(7)`): the peer's socket is the one with
//!           our addresses the other way round.
//! Closed    a socket that its program has closed has no owner any more, and the system says zero for it: whoever sent all that it
//!           had to say and closed at once would be root. So only a socket that somebody holds counts.
//! Limits    a peer on another host is not asked about; nor is one where the system does not answer such questions, as in
//!           some sandboxes, where there is one user anyway.

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, netlink};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const ENOENT: i32 = 2;
/// Bytes of `struct nlmsghdr`, of `struct inet_diag_req_v2` and of what comes before the owner in `struct inet_diag_msg`.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 56;
const STATE_AT: usize = HEADER_BYTES + 1;
const OWNER_AT: usize = HEADER_BYTES + 64;
const INODE_AT: usize = HEADER_BYTES + 68;
/// `TCP_LISTEN`.
const LISTENS: u8 = 10;

/// Who asks the system. It has its file from the start: strangers who leave the program none must not make it let them in.
#[derive(Debug)]
pub struct Asker {
    /// None: the system does not answer such questions.
    socket: Option<OwnedFd>,
}

#[derive(PartialEq, Eq, Debug)]
enum Owner {
    User(u32),
    /// A socket that is closed, or is not taken yet: the system says zero, which is not root.
    Nobody,
    /// No socket of this host's.
    Elsewhere,
    /// The system does not say.
    Unknown,
}

impl Asker {
    /// One who asks.
    ///
    /// # Errors
    /// There is no file to be had.
    pub fn open() -> io::Result<Asker> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
        match net::socket_with(family, kind, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG)) {
            Ok(socket) => Ok(Asker { socket: Some(socket) }),
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)) => Err(error.into()),
            Err(_) => Ok(Asker { socket: None }),
        }
    }

    /// Whether the other end of a connection may be taken for this user's: it is another host's, or it is.
    pub fn is_allowed(&self, local: SocketAddr, peer: SocketAddr) -> bool {
        match self.owner(peer, local) {
            Owner::User(user) => user == rustix::process::geteuid().as_raw() || user == 0,
            Owner::Nobody => false,
            Owner::Elsewhere => !is_within_host(local, peer) || !self.knows(local, peer),
            Owner::Unknown => true,
        }
    }

    /// Whether the system tells of our end; one that does not know of TCP says that no socket is here.
    fn knows(&self, local: SocketAddr, peer: SocketAddr) -> bool {
        matches!(self.owner(local, peer), Owner::User(_) | Owner::Nobody)
    }

    /// The user who owns the socket that is bound to `local` and connected to `peer`.
    fn owner(&self, local: SocketAddr, peer: SocketAddr) -> Owner {
        let Some(socket) = &self.socket else { return Owner::Unknown };
        self.ask(socket, local, peer).unwrap_or(Owner::Unknown)
    }

    fn ask(&self, socket: &OwnedFd, local: SocketAddr, peer: SocketAddr) -> Option<Owner> {
        net::send(socket, &request(local, peer), net::SendFlags::empty()).ok()?;
        let mut room = [0; 1024];
        // The answer is there when the question has been put.
        let (length, _) = net::recv(socket, &mut room, net::RecvFlags::DONTWAIT).ok()?;
        let answer = room.get(..length)?;
        let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
        match kind {
            // One that listens stands for those that are not there.
            BY_FAMILY if word(INODE_AT)? == 0 || *answer.get(STATE_AT)? == LISTENS => Some(Owner::Nobody),
            BY_FAMILY => Some(Owner::User(word(OWNER_AT)?)),
            NLMSG_ERROR if word(HEADER_BYTES)? as i32 == -ENOENT => Some(Owner::Elsewhere),
            _ => None,
        }
    }
}

/// Whether both ends can only be this host's.
fn is_within_host(local: SocketAddr, peer: SocketAddr) -> bool {
    let (local, peer) = (local.ip().to_canonical(), peer.ip().to_canonical());
    local == peer || peer.is_loopback()
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
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};

    /// Both ends of a connection, and who listened.
    fn pair(at: &str) -> (TcpListener, TcpStream, TcpStream) {
        let listener = TcpListener::bind(at).expect("the loopback is there");
        let caller =
            TcpStream::connect(listener.local_addr().expect("it is bound")).expect("somebody listens");
        let (callee, _) = listener.accept().expect("somebody called");
        (listener, caller, callee)
    }

    #[test]
    fn a_socket_of_this_process_is_this_users() {
        let asker = Asker::open().expect("a file may be had");
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let (_listener, caller, callee) = pair(at);
            let from = caller.local_addr().expect("it is connected");
            let to = callee.local_addr().expect("it is connected");
            assert_eq!(asker.owner(from, to), Owner::User(rustix::process::geteuid().as_raw()), "{at}");
            assert!(asker.is_allowed(to, from));
        }
    }

    #[test]
    fn a_socket_that_is_closed_is_nobodys_and_not_roots() {
        let asker = Asker::open().expect("a file may be had");
        for (at, hears) in [("127.0.0.1:0", false), ("127.0.0.1:0", true), ("[::1]:0", true)] {
            let (_listener, caller, mut callee) = pair(at);
            let from = caller.local_addr().expect("it is connected");
            let to = callee.local_addr().expect("it is connected");
            drop(caller);
            if hears {
                assert_eq!(callee.read(&mut [0; 9]).expect("it ended in order"), 0);
            }
            assert_eq!(asker.owner(from, to), Owner::Nobody, "{at} {hears}");
            assert!(!asker.is_allowed(to, from), "{at} {hears}");
        }
    }

    #[test]
    fn a_socket_of_this_host_that_is_not_there_is_nobodys() {
        let asker = Asker::open().expect("a file may be had");
        let (_listener, caller, callee) = pair("127.0.0.1:0");
        let from = caller.local_addr().expect("it is connected");
        let to = callee.local_addr().expect("it is connected");
        // It is reset, and nothing is left of it.
        rustix::net::sockopt::set_socket_linger(&caller, Some(std::time::Duration::ZERO)).expect("an option");
        drop(caller);
        assert_eq!(asker.owner(from, to), Owner::Elsewhere);
        let (_listener, one, _two) = pair("127.0.0.1:0");
        let here = one.local_addr().expect("it is connected");
        assert!(!is_within_host(here, SocketAddr::from(([192, 0, 2, 2], 2))));
        assert!(is_within_host(here, from) && is_within_host(to, here));
    }

    #[test]
    fn a_socket_that_is_not_here_is_elsewhere() {
        let asker = Asker::open().expect("a file may be had");
        let local = SocketAddr::from(([192, 0, 2, 1], 1));
        assert_eq!(asker.owner(local, SocketAddr::from(([192, 0, 2, 2], 2))), Owner::Elsewhere);
    }
}
