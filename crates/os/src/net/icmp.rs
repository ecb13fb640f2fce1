//! ICMP errors about datagrams that a UDP socket has sent (IP_RECVERR, ip(7); IPV6_RECVERR, ipv6(7)).
//!
//! Purpose  reports which datagram a host refused because no program receives at the port, with as much of
//!          its payload as the ICMP message quotes (RFC 1812 §4.3.2.3: at least 8 bytes; Linux: 548).
//! Trust    anyone can forge an ICMP message. The system drops those that quote no existing socket's port and
//!          address; the caller compares the payload with what it sent.
//! Limits   other errors are dropped: a route that is missing now may come back.

use rustix::io::Errno;
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

/// Room, in words, for the control message with the error and the address of the host that reports it.
const CONTROL_WORDS: usize = 16;
/// Port unreachable (RFC 792): type and code.
const PORT_UNREACHABLE: (u8, u8) = (3, 3);
/// Port unreachable (RFC 4443 §3.1): type and code.
const PORT_UNREACHABLE_6: (u8, u8) = (1, 4);

/// A datagram that was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Where the datagram was sent.
    pub to: SocketAddr,
    /// The host that reports the error.
    pub reporter: IpAddr,
    /// Length of the payload that is quoted, in bytes.
    pub bytes: usize,
}

/// Takes the next report that no program receives at a port, and writes the quoted payload into `room`. The
/// socket must have asked for reports ([`UdpLink::request_errors`](super::udp::UdpLink::request_errors)).
pub fn next_refusal(socket: impl AsFd, room: &mut [u8]) -> Option<Refusal> {
    loop {
        let mut to = socket2::SockAddrStorage::zeroed();
        let mut control = [0u64; CONTROL_WORDS];
        let mut buffer = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        // SAFETY: all-zero bytes are a valid `msghdr`.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_name = (&raw mut to).cast();
        message.msg_namelen = to.size_of();
        message.msg_iov = &raw mut buffer;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the message points to buffers that outlive the call, with their lengths.
        let bytes = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags) };
        let Ok(bytes) = usize::try_from(bytes) else {
            match Errno::from_io_error(&io::Error::last_os_error()) {
                Some(Errno::INTR) => continue,
                _ => return None,
            }
        };
        // SAFETY: the system has written an address of this length.
        let to = unsafe { socket2::SockAddr::new(to, message.msg_namelen) };
        if let (Some(to), Some(reporter)) = (to.as_socket(), refuses(&message)) {
            return Some(Refusal { to, reporter, bytes });
        }
    }
}

/// Returns the host that reports "port unreachable" in the control messages.
fn refuses(message: &libc::msghdr) -> Option<IpAddr> {
    // SAFETY: the system has filled in the control messages, and these macros stay within their length. The
    // error is followed by the address of the host that reports it (ip(7), SO_EE_OFFENDER), or by an address
    // of family 0.
    unsafe {
        let mut one = libc::CMSG_FIRSTHDR(message);
        while !one.is_null() {
            let kind = ((*one).cmsg_level, (*one).cmsg_type);
            let error = libc::CMSG_DATA(one).cast::<libc::sock_extended_err>();
            let after = error.add(1);
            let is = |code: (u8, u8), origin: u8| {
                let error = error.read_unaligned();
                ((error.ee_type, error.ee_code), error.ee_origin) == (code, origin)
            };
            match kind {
                (libc::IPPROTO_IP, libc::IP_RECVERR) if is(PORT_UNREACHABLE, libc::SO_EE_ORIGIN_ICMP) => {
                    let at = after.cast::<libc::sockaddr_in>().read_unaligned();
                    return Some(IpAddr::from(at.sin_addr.s_addr.to_ne_bytes()));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
                    if is(PORT_UNREACHABLE_6, libc::SO_EE_ORIGIN_ICMP6) =>
                {
                    let at = after.cast::<libc::sockaddr_in6>().read_unaligned();
                    return Some(IpAddr::from(at.sin6_addr.s6_addr));
                }
                _ => one = libc::CMSG_NXTHDR(message, one),
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::udp::UdpLink;
    use super::*;

    #[test]
    fn a_refused_datagram_is_reported_once_with_its_payload() {
        for address in ["127.0.0.1", "::1"] {
            let any = SocketAddr::new(address.parse().expect("an address"), 0);
            let one = UdpLink::bind(any).expect("a port is free");
            let gone = UdpLink::bind(any).expect("a port is free").local();
            let mut room = [0; 512];
            one.send(b"unasked", gone);
            one.request_errors();
            assert_eq!(next_refusal(&one, &mut room), None);
            // The error of an earlier datagram does not keep a later one from being sent.
            assert!(one.send(b"first", gone) && one.send(b"second", gone));
            for payload in [&b"first"[..], b"second"] {
                let refusal = next_refusal(&one, &mut room).expect("a report");
                assert_eq!((refusal.to, refusal.reporter), (gone, any.ip()));
                assert_eq!(&room[..refusal.bytes], payload);
            }
            assert_eq!((next_refusal(&one, &mut room), one.receive(&mut room)), (None, None));
        }
    }
}
