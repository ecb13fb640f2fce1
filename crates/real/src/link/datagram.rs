//! Datagrams between two ends of UDP, many in a call.
//!
//! Goal      a train of equal datagrams leaves with one system call (UDP_SEGMENT, udp(7)) and arrives with one (UDP_GRO). Where the
//!           system has neither, they go one by one.
//! Peer      the socket is not connected: what others send is seen and told, and nobody's ICMP ends the link.
//! Lost      what found the socket's queue full is told with what came next (SO_RXQ_OVFL, socket(7)), and counted.
//! Limits    never blocks. 64 KB a call; a datagram that is longer than the path's packets is refused by the system.

use super::{BURST, LinkCounters};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Datagrams that one call sends at most (UDP_MAX_SEGMENTS of the oldest systems that know it).
pub(super) const TRAIN_MAX: usize = 64;
/// The longest payload of a datagram, and of a train (IPv4).
pub(super) const PAYLOAD_BYTES_MAX: usize = 65_507;
/// Bytes that may wait for whoever reads: a tenth of a second of OC-3c, each cell a datagram with the system's book-keeping.
const QUEUE_BYTES: usize = 32 << 20;
/// Room for two control messages with an int each.
const CONTROL_WORDS: usize = 6;

/// What one call brought.
enum Came<'a> {
    /// Nothing is there.
    Nothing,
    /// Somebody else's.
    Stranger,
    /// Datagrams, each of so many bytes; the last may be shorter.
    Datagrams(&'a [u8], usize),
}

/// What became of a train.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Left {
    /// All of it has left.
    All,
    /// So many datagrams have; the rest finds no room now.
    Some(usize),
    /// The system does not want them.
    None,
}

/// A socket with one peer.
pub(super) struct Datagrams {
    socket: UdpSocket,
    local: SocketAddr,
    peer: SocketAddr,
    /// Whether the peer may send from any of its ports.
    any_port: bool,
    segments: bool,
    /// Datagrams that found no room in the socket's queue, as far as is known.
    overrun: u64,
    buffer: Box<[u8]>,
}

impl Datagrams {
    /// A socket on `local` for datagrams to and from `peer`.
    pub(super) fn open(local: SocketAddr, peer: SocketAddr, any_port: bool) -> io::Result<Datagrams> {
        if local.is_ipv4() != peer.is_ipv4() {
            let message =
                format!("{local} and {peer} are not of one family: write two IPv4 or two IPv6 addresses");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let link = super::udp::UdpLink::bind(local)?;
        link.ask_for_room(QUEUE_BYTES);
        let (socket, local) = link.into_parts();
        let on: libc::c_int = 1;
        for (level, option) in [(libc::SOL_UDP, libc::UDP_GRO), (libc::SOL_SOCKET, libc::SO_RXQ_OVFL)] {
            // SAFETY: options that are an int. Where the system has none, datagrams come one by one, and what is lost is not told.
            unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    level,
                    option,
                    (&raw const on).cast(),
                    size_of::<libc::c_int>() as _,
                );
            }
        }
        let buffer = vec![0; 1 << 16].into_boxed_slice();
        Ok(Datagrams { socket, local, peer, any_port, segments: true, overrun: 0, buffer })
    }

    /// Its own address.
    pub(super) fn local(&self) -> SocketAddr {
        self.local
    }

    /// Takes what has arrived, a datagram at a time, until `into` has [`BURST`] units more: `take` makes units of one. What somebody
    /// else sent, or what is empty, is counted.
    pub(super) fn each<U>(
        &mut self,
        into: &mut VecDeque<U>,
        counters: &mut LinkCounters,
        mut take: impl FnMut(&[u8], &mut LinkCounters, &mut VecDeque<U>),
    ) -> io::Result<()> {
        let enough = into.len() + BURST;
        for _ in 0..BURST {
            if into.len() >= enough {
                break;
            }
            match self.receive()? {
                Came::Nothing => break,
                Came::Stranger => counters.strangers += 1,
                Came::Datagrams([], _) => counters.malformed += 1,
                Came::Datagrams(bytes, each) => {
                    bytes.chunks(each).for_each(|datagram| take(datagram, counters, into));
                }
            }
        }
        counters.overrun = self.overrun;
        Ok(())
    }

    /// What one call brings.
    fn receive(&mut self) -> io::Result<Came<'_>> {
        let mut from = socket2::SockAddrStorage::zeroed();
        let mut control = [0u64; CONTROL_WORDS];
        let mut place = libc::iovec { iov_base: self.buffer.as_mut_ptr().cast(), iov_len: self.buffer.len() };
        // SAFETY: all fields of a message header may be zero.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = from.size_of();
        message.msg_iov = &raw mut place;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let length = loop {
            // SAFETY: the message points at places that live for the call, with their lengths.
            let length =
                unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
            if let Ok(length) = usize::try_from(length) {
                break length;
            }
            match io::Error::last_os_error().raw_os_error() {
                // What has arrived stays in the queue until the system has memory.
                Some(libc::EAGAIN | libc::ENOMEM | libc::ENOBUFS) => return Ok(Came::Nothing),
                Some(libc::EINTR) => {}
                // What an earlier datagram met with is reported once.
                Some(libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EMSGSIZE) => {}
                _ => return Err(io::Error::last_os_error()),
            }
        };
        let mut each = length;
        // SAFETY: the system has filled the control messages; these macros stay within their length.
        unsafe {
            let mut one = libc::CMSG_FIRSTHDR(&raw const message);
            while !one.is_null() {
                if ((*one).cmsg_level, (*one).cmsg_type) == (libc::SOL_UDP, libc::UDP_GRO) {
                    let size = libc::CMSG_DATA(one).cast::<libc::c_int>().read_unaligned();
                    each = usize::try_from(size).unwrap_or(length);
                }
                if ((*one).cmsg_level, (*one).cmsg_type) == (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) {
                    self.overrun = libc::CMSG_DATA(one).cast::<u32>().read_unaligned().into();
                }
                one = libc::CMSG_NXTHDR(&raw const message, one);
            }
        }
        // SAFETY: the system has written an address of this length.
        let from = unsafe { socket2::SockAddr::new(from, message.msg_namelen) }.as_socket();
        let is_peer = from.is_some_and(|from| {
            from.ip() == self.peer.ip() && (self.any_port || from.port() == self.peer.port())
        });
        Ok(if is_peer { Came::Datagrams(&self.buffer[..length], each.max(1)) } else { Came::Stranger })
    }

    /// Sends datagrams of `each` bytes, the last of what is left: at most [`TRAIN_MAX`] and [`PAYLOAD_BYTES_MAX`].
    pub(super) fn send(&mut self, bytes: &[u8], each: usize) -> Left {
        if bytes.len() <= each {
            return match self.send_once(bytes, None) {
                Ok(()) => Left::All,
                Err(Errno::AGAIN) => Left::Some(0),
                Err(_) => Left::None,
            };
        }
        if self.segments {
            match self.send_once(bytes, Some(each as u16)) {
                Ok(()) => return Left::All,
                Err(Errno::AGAIN) => return Left::Some(0),
                // No segments here, or on this way out.
                Err(Errno::IO | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOPROTOOPT) => self.segments = false,
                Err(_) => return Left::None,
            }
        }
        for (number, datagram) in bytes.chunks(each).enumerate() {
            match self.send_once(datagram, None) {
                Ok(()) => {}
                Err(Errno::AGAIN) => return Left::Some(number),
                Err(_) if number == 0 => return Left::None,
                Err(_) => return Left::Some(number),
            }
        }
        Left::All
    }

    fn send_once(&self, bytes: &[u8], segment: Option<u16>) -> Result<(), Errno> {
        let to = socket2::SockAddr::from(self.peer);
        let mut place = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut control = [0u64; CONTROL_WORDS];
        // SAFETY: all fields of a message header may be zero.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = to.as_ptr().cast_mut().cast();
        message.msg_namelen = to.len();
        message.msg_iov = &raw mut place;
        message.msg_iovlen = 1;
        if let Some(segment) = segment {
            message.msg_control = control.as_mut_ptr().cast();
            // SAFETY: the room holds a control message with two bytes; it is written within its length.
            unsafe {
                message.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as _) as _;
                let one = libc::CMSG_FIRSTHDR(&raw const message);
                (*one).cmsg_level = libc::SOL_UDP;
                (*one).cmsg_type = libc::UDP_SEGMENT;
                (*one).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as _) as _;
                libc::CMSG_DATA(one).cast::<u16>().write_unaligned(segment);
            }
        }
        loop {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // SAFETY: the message points at places that live for the call, with their lengths; the system only reads them.
            let sent = unsafe { libc::sendmsg(self.socket.as_raw_fd(), &raw const message, flags) };
            if sent >= 0 {
                return Ok(());
            }
            match Errno::from_io_error(&io::Error::last_os_error()) {
                Some(Errno::INTR) => {}
                error => return Err(error.unwrap_or(Errno::IO)),
            }
        }
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
