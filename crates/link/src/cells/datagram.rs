//! UDP datagrams between this host and one peer, many per system call.
//!
//! Purpose          a train of datagrams of equal length is sent with one system call (UDP_SEGMENT, udp(7))
//!                  and received with one (UDP_GRO). Without system support, they are sent and received one
//!                  by one.
//! Peer             the socket is not connected: datagrams from other senders can be counted, and an ICMP
//!                  error does not end the link.
//! Loss             datagrams lost because the socket's queue was full are reported with the next one
//!                  (SO_RXQ_OVFL, socket(7)), and counted.
//! Limits           calls never block and move at most 64 KB. The system refuses a datagram that is longer
//!                  than the path's packets.

use crate::{BURST, LinkCounters};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Maximum number of datagrams per send call (UDP_MAX_SEGMENTS of the first kernels that have it).
pub(crate) const TRAIN_MAX: usize = 64;
/// The longest payload of one datagram, and of a train (IPv4).
pub(crate) const PAYLOAD_BYTES_MAX: usize = 65_507;
/// Receive buffer, in bytes, for a tenth of a second of an OC-3c with each cell in its own datagram,
/// including the system's overhead.
const QUEUE_BYTES: usize = 32 << 20;
/// Room for two control messages that hold an int each, in words.
const CONTROL_WORDS: usize = 6;

/// The result of one receive call.
enum ReceiveResult<'a> {
    /// Nothing has arrived.
    Nothing,
    /// A datagram from another sender.
    UnknownSender,
    /// Datagrams of the given length; the last may be shorter.
    Datagrams(&'a [u8], usize),
}

/// The result of sending a train.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SendResult {
    /// All datagrams were sent.
    All,
    /// So many datagrams were sent; there is no room for the rest now.
    Some(usize),
    /// The system rejects them.
    None,
}

/// A UDP socket with one peer.
pub(crate) struct Datagrams {
    socket: UdpSocket,
    local: SocketAddr,
    peer: SocketAddr,
    /// Whether the peer may send from any of its ports.
    any_port: bool,
    segments: bool,
    /// Number of datagrams reported as lost because the socket's queue was full.
    overrun: u64,
    buffer: Box<[u8]>,
}

impl Datagrams {
    /// Binds a socket to `local`, for datagrams to and from `peer`.
    pub(crate) fn open(local: SocketAddr, peer: SocketAddr, any_port: bool) -> io::Result<Datagrams> {
        if local.is_ipv4() != peer.is_ipv4() {
            let message = format!(
                "{local} and {peer} have different address families: write two IPv4 or two IPv6 addresses"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let link = kiban_os::udp::UdpLink::bind(local)?;
        link.request_receive_buffer(QUEUE_BYTES);
        let (socket, local) = link.into_parts();
        let on: libc::c_int = 1;
        for (level, option) in [(libc::SOL_UDP, libc::UDP_GRO), (libc::SOL_SOCKET, libc::SO_RXQ_OVFL)] {
            // SAFETY: both options take an int, which outlives the calls. If the system lacks one of the
            // options, datagrams come one by one, or losses are not reported.
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

    /// Returns the local address.
    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// Receives datagrams until `into` has [`BURST`] more units; `take` turns one datagram into units.
    /// Datagrams from other senders and empty ones are counted.
    pub(crate) fn each<U>(
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
                ReceiveResult::Nothing => break,
                ReceiveResult::UnknownSender => counters.wrong_sender += 1,
                ReceiveResult::Datagrams([], _) => counters.malformed += 1,
                ReceiveResult::Datagrams(bytes, each) => {
                    bytes.chunks(each).for_each(|datagram| take(datagram, counters, into));
                }
            }
        }
        counters.overrun = self.overrun;
        Ok(())
    }

    /// Makes one receive call.
    fn receive(&mut self) -> io::Result<ReceiveResult<'_>> {
        let mut from = socket2::SockAddrStorage::zeroed();
        let mut control = [0u64; CONTROL_WORDS];
        let mut buffer =
            libc::iovec { iov_base: self.buffer.as_mut_ptr().cast(), iov_len: self.buffer.len() };
        // SAFETY: all-zero bytes are a valid `msghdr`.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = from.size_of();
        message.msg_iov = &raw mut buffer;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let length = loop {
            // SAFETY: the message points to buffers that outlive the call, with their lengths.
            let length =
                unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
            if let Ok(length) = usize::try_from(length) {
                break length;
            }
            match io::Error::last_os_error().raw_os_error() {
                // Datagrams stay in the queue until the system has memory.
                Some(libc::EAGAIN | libc::ENOMEM | libc::ENOBUFS) => return Ok(ReceiveResult::Nothing),
                Some(libc::EINTR) => {}
                // An ICMP error caused by an earlier datagram is reported once.
                Some(libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EMSGSIZE) => {}
                _ => return Err(io::Error::last_os_error()),
            }
        };
        let mut each = length;
        // SAFETY: the system has filled in the control messages; these macros stay within their length.
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
        Ok(if is_peer {
            ReceiveResult::Datagrams(&self.buffer[..length], each.max(1))
        } else {
            ReceiveResult::UnknownSender
        })
    }

    /// Sends a train of datagrams of `each` bytes (the last may be shorter): at most [`TRAIN_MAX`] datagrams
    /// and [`PAYLOAD_BYTES_MAX`].
    pub(crate) fn send(&mut self, bytes: &[u8], each: usize) -> SendResult {
        if bytes.len() <= each {
            return match self.send_once(bytes, None) {
                Ok(()) => SendResult::All,
                Err(Errno::AGAIN) => SendResult::Some(0),
                Err(_) => SendResult::None,
            };
        }
        if self.segments {
            match self.send_once(bytes, Some(each as u16)) {
                Ok(()) => return SendResult::All,
                Err(Errno::AGAIN) => return SendResult::Some(0),
                // UDP_SEGMENT is not supported, or not on this route.
                Err(Errno::IO | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOPROTOOPT) => self.segments = false,
                Err(_) => return SendResult::None,
            }
        }
        for (number, datagram) in bytes.chunks(each).enumerate() {
            match self.send_once(datagram, None) {
                Ok(()) => {}
                Err(Errno::AGAIN) => return SendResult::Some(number),
                Err(_) if number == 0 => return SendResult::None,
                Err(_) => return SendResult::Some(number),
            }
        }
        SendResult::All
    }

    fn send_once(&self, bytes: &[u8], segment: Option<u16>) -> Result<(), Errno> {
        let to = socket2::SockAddr::from(self.peer);
        let mut buffer = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut control = [0u64; CONTROL_WORDS];
        // SAFETY: all-zero bytes are a valid `msghdr`.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = to.as_ptr().cast_mut().cast();
        message.msg_namelen = to.len();
        message.msg_iov = &raw mut buffer;
        message.msg_iovlen = 1;
        if let Some(segment) = segment {
            message.msg_control = control.as_mut_ptr().cast();
            // SAFETY: the buffer has room for a control message with two bytes; it is written within its
            // length.
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
            // SAFETY: the message points to buffers that outlive the call, with their lengths; the system
            // only reads them.
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
