//! UDP as a link: one packet per datagram, many peers on one socket.
//!
//! Purpose          exchange packets between hosts without privileges. Loss, duplication and delay are left
//!                  to the protocol above.
//! Size             a datagram fits an Ethernet frame ([`PACKET_BYTES`]); between loopback addresses it may
//!                  be longer.
//! Trains           datagrams of equal length to one peer are sent with one system call (UDP_SEGMENT,
//!                  udp(7)) and received with one (UDP_GRO). Without system support, they are sent and
//!                  received one by one.
//! Congestion       a train can be sent as ECN-capable (ECT(0)), and the marks of received trains can be
//!                  requested (RFC 3168). The system merges only datagrams with the same mark.
//! Limits           calls never block: a packet that the socket cannot take now is dropped, as on a wire. A
//!                  train has at most [`TRAIN_MAX`] datagrams and 64 KB.

use super::interface::{self, bind_remedy};
use crate::socket_option;
use rustix::io::Errno;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Payload bytes of a datagram that fits an Ethernet frame, over IPv6 or IPv4.
pub const PACKET_BYTES: usize = 1452;
/// Payload bytes of a datagram between loopback addresses.
pub const LOOPBACK_PACKET_BYTES: usize = 16 << 10;
/// Bytes of the longest datagram.
pub const PACKET_BYTES_MAX: usize = 65_535;

/// Maximum number of datagrams in a train (UDP_MAX_SEGMENTS of the first kernels that have it).
pub const TRAIN_MAX: usize = 64;
/// The longest payload of one datagram, and of a train (IPv4).
pub const TRAIN_BYTES_MAX: usize = 65_507;
/// Maximum number of ICMP errors about earlier datagrams that keep one from being sent.
const REFUSALS_MAX: usize = 3;
/// Room, in words, for three control messages of one int each.
const CONTROL_WORDS: usize = 9;
/// The codepoints of the two ECN bits: ECN-capable transport, and congestion experienced (RFC 3168 §5).
const ECT_0: libc::c_int = 2;
const CE: u8 = 3;

/// Datagrams that were received with one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Train {
    /// Total length in bytes.
    pub bytes: usize,
    /// Length of each datagram in bytes, at least 1; the last datagram may be shorter.
    pub each: usize,
    /// The sender.
    pub from: SocketAddr,
    /// The number of datagrams lost so far because the socket's queue was full, if the system reports it
    /// (SO_RXQ_OVFL, socket(7)).
    pub overrun: Option<u32>,
    /// Whether the datagrams have met congestion (CE). Only set after [`UdpLink::request_marks`].
    pub is_marked: bool,
}

/// An instruction of a classic BPF program (Documentation/networking/filter.rst of Linux).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BpfInstruction {
    /// The operation.
    pub code: u16,
    /// Instructions to skip if the condition of a jump is true.
    pub jt: u8,
    /// Instructions to skip if the condition of a jump is false.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

/// The result of sending a train.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendResult {
    /// All datagrams were sent.
    All,
    /// This number of datagrams was sent; the socket has no room for the rest now.
    Some(usize),
    /// The system rejected the train.
    None,
}

/// A non-blocking UDP socket, used as a link.
#[derive(Debug)]
pub struct UdpLink {
    socket: UdpSocket,
    local: SocketAddr,
    /// Whether UDP_SEGMENT works.
    segments: AtomicBool,
}

impl UdpLink {
    /// Binds a socket to `local`. If the port is 0, the system chooses a port.
    ///
    /// # Errors
    /// `local` is not an address of this host, or the port is in use.
    pub fn bind(local: SocketAddr) -> io::Result<UdpLink> {
        let socket = UdpSocket::bind(local).map_err(|error| {
            let remedy = bind_remedy(local, &error);
            io::Error::new(error.kind(), format!("cannot use UDP address {local}: {error}{remedy}"))
        })?;
        socket.set_nonblocking(true)?;
        let local = socket.local_addr()?;
        Ok(UdpLink { socket, local, segments: AtomicBool::new(true) })
    }

    /// Binds a socket to an address that other sockets of the same user share, all bound by this function
    /// (SO_REUSEPORT, socket(7)): the system gives each datagram to one of them.
    ///
    /// # Errors
    /// `local` is not an address of this host, or another user or the system itself uses the port.
    pub fn bind_shared(local: SocketAddr) -> io::Result<UdpLink> {
        let open = || {
            let domain = socket2::Domain::for_address(local);
            let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, Some(socket2::Protocol::UDP))?;
            socket.set_nonblocking(true)?;
            socket.set_reuse_port(true)?;
            socket.bind(&local.into())?;
            Ok::<_, io::Error>(UdpSocket::from(socket))
        };
        // The caller's protocol fixes the port, so `bind_remedy`, which suggests another one, does not apply.
        let socket = open().map_err(|error| {
            io::Error::new(error.kind(), format!("cannot share UDP address {local}: {error}"))
        })?;
        let local = socket.local_addr()?;
        Ok(UdpLink { socket, local, segments: AtomicBool::new(true) })
    }

    /// Binds `count` sockets to one address (SO_REUSEPORT, socket(7)), which is not in use yet. The system
    /// gives each datagram to one of them, by a hash of the sender's address, or as
    /// [`UdpLink::choose_socket`] says. If the port is 0, the system chooses a port.
    ///
    /// # Errors
    /// `local` is not an address of this host, or the port is in use.
    pub fn bind_group(local: SocketAddr, count: usize) -> io::Result<Vec<UdpLink>> {
        let first = UdpLink::bind(local)?;
        // From now on, others may share the port; the bind above fails if another group has it.
        socket2::SockRef::from(&first.socket).set_reuse_port(true)?;
        let local = first.local;
        std::iter::once(Ok(first)).chain((1..count).map(|_| UdpLink::bind_shared(local))).collect()
    }

    /// Installs a program that chooses the socket of a group for each datagram, for the whole group
    /// (SO_ATTACH_REUSEPORT_CBPF, socket(7)). It sees the datagram's payload and returns the number of the
    /// socket. Datagrams of a train are given to one socket.
    ///
    /// # Errors
    /// The program is invalid, or the socket belongs to no group.
    pub fn choose_socket(&self, program: &[BpfInstruction]) -> io::Result<()> {
        let filter: Vec<libc::sock_filter> = program
            .iter()
            .map(|&BpfInstruction { code, jt, jf, k }| libc::sock_filter { code, jt, jf, k })
            .collect();
        let length = u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let program = libc::sock_fprog { len: length, filter: filter.as_ptr().cast_mut() };
        socket_option::set(&self.socket, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
    }

    /// Binds a socket to a multicast group and a port, and joins the group on the interface that has a local
    /// address (IP_ADD_MEMBERSHIP, ip(7); IPV6_ADD_MEMBERSHIP, ipv6(7)). It receives what arrives there.
    /// Every other socket that is bound by this function, of any user, receives a copy.
    ///
    /// # Errors
    /// The group is no multicast group, or of another family than the local address; no interface has that
    /// address; or another program uses the port for all addresses.
    pub fn join(group: SocketAddr, address: IpAddr) -> io::Result<UdpLink> {
        let open = || {
            let domain = socket2::Domain::for_address(group);
            let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, Some(socket2::Protocol::UDP))?;
            socket.set_nonblocking(true)?;
            // For multicast, all users can share a port in this way; SO_REUSEPORT would exclude other users.
            socket.set_reuse_address(true)?;
            match (group, address) {
                (SocketAddr::V4(at), IpAddr::V4(interface)) => {
                    // Without this option, it would also receive what other sockets have joined elsewhere.
                    socket.set_multicast_all_v4(false)?;
                    socket.bind(&at.into())?;
                    socket.join_multicast_v4(at.ip(), &interface)?;
                }
                (SocketAddr::V6(at), IpAddr::V6(_)) => {
                    let (name, index) = interface_of(address)?;
                    socket.bind(&SocketAddrV6::new(*at.ip(), at.port(), 0, index).into())?;
                    socket.join_multicast_v6(at.ip(), index)?;
                    // As for IPv4: IPV6_MULTICAST_ALL does not distinguish interfaces. Without privileges,
                    // Linux has this option from 5.7 on.
                    let _ = socket.bind_device(Some(name.as_bytes()));
                }
                _ => return Err(io::ErrorKind::InvalidInput.into()),
            }
            let link = UdpSocket::from(socket);
            let local = link.local_addr()?;
            Ok(UdpLink { socket: link, local, segments: AtomicBool::new(true) })
        };
        open().map_err(|error: io::Error| {
            io::Error::new(error.kind(), format!("cannot join {group} at {address}: {error}"))
        })
    }

    /// Lets datagrams to multicast groups leave through the interface of the socket's own address, and pass
    /// `hops` routers. The system does not do this by itself over IPv6.
    pub fn direct_multicast(&self, hops: u8) {
        let socket = socket2::SockRef::from(&self.socket);
        // If the system refuses, datagrams to groups take the system's default route.
        let _ = match self.local {
            // The source address decides (ip_route_output_key_hash in Linux).
            SocketAddr::V4(_) => socket.set_multicast_ttl_v4(hops.into()),
            SocketAddr::V6(_) => socket.set_multicast_hops_v6(hops.into()).and_then(|()| {
                let (_, index) = interface_of(self.local.ip())?;
                socket.set_multicast_if_v6(index)
            }),
        };
    }

    /// Requests that packets are never fragmented, even if they exceed the path MTU in the system's cache
    /// (IP_PMTUDISC_PROBE, ip(7)). IPv4 packets then have the DF bit and, unless the system cuts a train,
    /// identification 0.
    pub fn forbid_fragments(&self) {
        match self.local {
            SocketAddr::V4(_) => {
                self.request(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE);
            }
            SocketAddr::V6(_) => {
                self.request(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE);
            }
        }
    }

    /// Returns the local address.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the maximum packet size to a peer, in bytes.
    pub fn packet_bytes(peer: IpAddr) -> usize {
        if peer.is_loopback() { LOOPBACK_PACKET_BYTES } else { PACKET_BYTES }
    }

    /// Requests a receive buffer of `bytes`. Only a privileged process can exceed the system's limit
    /// (net.core.rmem_max).
    pub fn request_receive_buffer(&self, bytes: usize) {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        for option in [libc::SO_RCVBUF, libc::SO_RCVBUFFORCE] {
            self.request(libc::SOL_SOCKET, option, bytes);
        }
    }

    /// Returns the size of the receive buffer in bytes, without the half that Linux reserves for its own
    /// bookkeeping (SO_RCVBUF, socket(7)); zero if the system does not tell.
    pub fn receive_buffer_bytes(&self) -> usize {
        socket2::SockRef::from(&self.socket).recv_buffer_size().unwrap_or(0) / 2
    }

    /// Requests that trains are received with one call, and that losses are reported.
    pub fn request_trains(&self) {
        self.request(libc::SOL_UDP, libc::UDP_GRO, 1);
        self.request(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
    }

    /// Requests that the congestion marks of received datagrams are reported (IP_RECVTOS, ip(7)).
    pub fn request_marks(&self) {
        match self.local {
            SocketAddr::V4(_) => self.request(libc::IPPROTO_IP, libc::IP_RECVTOS, 1),
            SocketAddr::V6(_) => self.request(libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1),
        }
    }

    /// Requests that packets over IPv6 are received even if their sender left out UDP's checksum (RFC 6936).
    pub fn allow_missing_checksums(&self) {
        self.request(libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1);
    }

    /// Requests that ICMP errors about datagrams of this socket are reported
    /// ([`next_refusal`](super::icmp::next_refusal)).
    pub fn request_errors(&self) {
        match self.local {
            SocketAddr::V4(_) => self.request(libc::IPPROTO_IP, libc::IP_RECVERR, 1),
            SocketAddr::V6(_) => self.request(libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
        }
    }

    /// Sets an option that holds an int. If the system refuses, the socket works without it.
    fn request(&self, level: libc::c_int, option: libc::c_int, value: libc::c_int) {
        let _ = socket_option::set(&self.socket, level, option, &value);
    }

    /// Sends a packet. Returns false if the packet is lost here because the socket cannot take it.
    pub fn send(&self, packet: &[u8], to: SocketAddr) -> bool {
        match self.socket.send_to(packet, to) {
            // An ICMP error about an earlier packet is reported once, instead of sending.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.socket.send_to(packet, to).is_ok()
            }
            sent => sent.is_ok(),
        }
    }

    /// Receives the next packet, if one has arrived, and returns its length and its sender.
    pub fn receive(&self, room: &mut [u8]) -> Option<(usize, SocketAddr)> {
        loop {
            match self.socket.recv_from(room) {
                Ok(packet) => return Some(packet),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                // An ICMP error caused by an earlier packet (port unreachable) is reported once: the next
                // call may succeed.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }

    /// Makes one receive call. Returns `None` if nothing has arrived.
    ///
    /// # Errors
    /// An error of the socket.
    pub fn receive_train(&self, room: &mut [u8]) -> io::Result<Option<Train>> {
        let mut from = socket2::SockAddrStorage::zeroed();
        let mut control = [0u64; CONTROL_WORDS];
        let mut buffer = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        // SAFETY: all-zero bytes are a valid `msghdr`.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = from.size_of();
        message.msg_iov = &raw mut buffer;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let bytes = loop {
            // SAFETY: the message points to buffers that outlive the call, with their lengths.
            let bytes =
                unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
            if let Ok(bytes) = usize::try_from(bytes) {
                break bytes;
            }
            match io::Error::last_os_error().raw_os_error() {
                // Datagrams stay in the queue until the system has memory.
                Some(libc::EAGAIN | libc::ENOMEM | libc::ENOBUFS) => return Ok(None),
                Some(libc::EINTR) => {}
                // An ICMP error caused by an earlier datagram is reported once.
                Some(libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EMSGSIZE) => {}
                _ => return Err(io::Error::last_os_error()),
            }
        };
        let (mut each, mut overrun, mut traffic_class) = (bytes, None, 0);
        // SAFETY: the system has filled in the control messages; these macros stay within their length.
        unsafe {
            let mut one = libc::CMSG_FIRSTHDR(&raw const message);
            while !one.is_null() {
                if ((*one).cmsg_level, (*one).cmsg_type) == (libc::SOL_UDP, libc::UDP_GRO) {
                    let size = libc::CMSG_DATA(one).cast::<libc::c_int>().read_unaligned();
                    each = usize::try_from(size).unwrap_or(bytes);
                }
                if ((*one).cmsg_level, (*one).cmsg_type) == (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) {
                    overrun = Some(libc::CMSG_DATA(one).cast::<u32>().read_unaligned());
                }
                // The system reports IPv4's field as one octet, and IPv6's as an int.
                if ((*one).cmsg_level, (*one).cmsg_type) == (libc::IPPROTO_IP, libc::IP_TOS) {
                    traffic_class = libc::CMSG_DATA(one).read();
                }
                if ((*one).cmsg_level, (*one).cmsg_type) == (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) {
                    traffic_class = libc::CMSG_DATA(one).cast::<libc::c_int>().read_unaligned() as u8;
                }
                one = libc::CMSG_NXTHDR(&raw const message, one);
            }
        }
        // SAFETY: the system has written an address of this length.
        let from = unsafe { socket2::SockAddr::new(from, message.msg_namelen) };
        let from = from.as_socket().ok_or(io::ErrorKind::InvalidData)?;
        let is_marked = traffic_class & CE == CE;
        Ok(Some(Train { bytes, each: each.max(1), from, overrun, is_marked }))
    }

    /// Sends a train of datagrams of `each` bytes (the last may be shorter): at most [`TRAIN_MAX`] datagrams
    /// and [`TRAIN_BYTES_MAX`].
    pub fn send_train(&self, bytes: &[u8], each: usize, to: SocketAddr) -> SendResult {
        self.send_datagrams(bytes, each, false, to)
    }

    /// Sends a train like [`UdpLink::send_train`], as ECN-capable: routers may mark its datagrams instead of
    /// dropping them (ECT(0)).
    pub fn send_ecn_capable_train(&self, bytes: &[u8], each: usize, to: SocketAddr) -> SendResult {
        self.send_datagrams(bytes, each, true, to)
    }

    fn send_datagrams(&self, bytes: &[u8], each: usize, is_ecn_capable: bool, to: SocketAddr) -> SendResult {
        let send = |bytes, segment| self.send_once(bytes, segment, is_ecn_capable, to);
        if bytes.len() <= each {
            return match send(bytes, None) {
                Ok(()) => SendResult::All,
                Err(Errno::AGAIN) => SendResult::Some(0),
                Err(_) => SendResult::None,
            };
        }
        if self.segments.load(Ordering::Relaxed) {
            match send(bytes, Some(each as u16)) {
                Ok(()) => return SendResult::All,
                Err(Errno::AGAIN) => return SendResult::Some(0),
                // UDP_SEGMENT is not supported, or not on this route.
                Err(Errno::IO | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOPROTOOPT) => {
                    self.segments.store(false, Ordering::Relaxed);
                }
                Err(_) => return SendResult::None,
            }
        }
        for (number, datagram) in bytes.chunks(each).enumerate() {
            match send(datagram, None) {
                Ok(()) => {}
                Err(Errno::AGAIN) => return SendResult::Some(number),
                Err(_) if number == 0 => return SendResult::None,
                Err(_) => return SendResult::Some(number),
            }
        }
        SendResult::All
    }

    fn send_once(
        &self,
        bytes: &[u8],
        segment: Option<u16>,
        is_ecn_capable: bool,
        to: SocketAddr,
    ) -> Result<(), Errno> {
        let traffic_class = match to {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        };
        let to = socket2::SockAddr::from(to);
        let mut buffer = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut control = [0u64; CONTROL_WORDS];
        // SAFETY: all-zero bytes are a valid `msghdr`.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = to.as_ptr().cast_mut().cast();
        message.msg_namelen = to.len();
        message.msg_iov = &raw mut buffer;
        message.msg_iovlen = 1;
        let mut control_bytes = 0;
        let mut put = |(level, kind), value: &[u8]| {
            // SAFETY: the buffer has room for two control messages of at most an int; each is written behind
            // the previous one, aligned to a word, within its length.
            unsafe {
                let one = control.as_mut_ptr().byte_add(control_bytes).cast::<libc::cmsghdr>();
                ((*one).cmsg_level, (*one).cmsg_type) = (level, kind);
                (*one).cmsg_len = libc::CMSG_LEN(value.len() as _) as _;
                libc::CMSG_DATA(one).copy_from_nonoverlapping(value.as_ptr(), value.len());
                control_bytes += libc::CMSG_SPACE(value.len() as _) as usize;
            }
        };
        if let Some(segment) = segment {
            put((libc::SOL_UDP, libc::UDP_SEGMENT), &segment.to_ne_bytes());
        }
        if is_ecn_capable {
            put(traffic_class, &ECT_0.to_ne_bytes());
        }
        if control_bytes > 0 {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = control_bytes as _;
        }
        let mut refusals = 0;
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
                // An ICMP error about an earlier datagram is reported instead of sending.
                Some(Errno::CONNREFUSED) if refusals < REFUSALS_MAX => refusals += 1,
                error => return Err(error.unwrap_or(Errno::IO)),
            }
        }
    }
}

/// Returns the name and the index of the interface that has an address.
fn interface_of(address: IpAddr) -> io::Result<(String, u32)> {
    let name = interface::name_of(address).ok_or(io::ErrorKind::AddrNotAvailable)?;
    let index = interface::query(&name, interface::Property::Index)?.index().cast_unsigned();
    Ok((name, index))
}

impl AsFd for UdpLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_arrives_with_its_sender() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (one, two) =
            (UdpLink::bind(any).expect("a port is free"), UdpLink::bind(any).expect("a port is free"));
        let mut room = [0; 64];
        assert_eq!(two.receive(&mut room), None);
        assert!(one.send(b"packet", two.local()));
        // On loopback, a datagram has arrived when send(2) returns.
        assert_eq!(two.receive(&mut room), Some((6, one.local())));
        assert_eq!(&room[..6], b"packet");
        let shared = UdpLink::bind_shared(two.local()).expect_err("its owner does not share it");
        assert_eq!(shared.kind(), io::ErrorKind::AddrInUse);
        assert!(!shared.to_string().contains("choose another"), "{shared}");
        let taken = UdpLink::bind(two.local()).expect_err("it is in use");
        assert!(taken.to_string().contains("cannot use UDP address"), "{taken}");
    }

    #[test]
    fn a_train_arrives_whole_and_in_order() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (one, two) =
            (UdpLink::bind(any).expect("a port is free"), UdpLink::bind(any).expect("a port is free"));
        two.request_trains();
        let bytes: Vec<u8> = (0..10_500_u32).map(|at| (at / 1000) as u8).collect();
        assert_eq!(one.send_train(&bytes, 1000, two.local()), SendResult::All);
        let (mut received, mut room) = (Vec::new(), vec![0; 1 << 16]);
        while let Some(train) = two.receive_train(&mut room).expect("a socket") {
            assert_eq!((train.from, train.each.min(1000)), (one.local(), train.each));
            received.extend(room[..train.bytes].chunks(train.each).map(<[u8]>::to_vec));
        }
        assert_eq!(received, bytes.chunks(1000).map(<[u8]>::to_vec).collect::<Vec<_>>());
        assert_eq!(one.send_train(&[0; 70_000], 70_000, two.local()), SendResult::None, "longer than UDP");
    }

    #[test]
    fn congestion_marks_are_reported_over_both_families() {
        for any in [SocketAddr::from(([127, 0, 0, 1], 0)), SocketAddr::from(([0u16, 0, 0, 0, 0, 0, 0, 1], 0))]
        {
            let (one, two) =
                (UdpLink::bind(any).expect("a port is free"), UdpLink::bind(any).expect("a port is free"));
            two.request_trains();
            two.request_marks();
            let mut room = vec![0; 1 << 16];
            assert_eq!(one.send_ecn_capable_train(&[1; 3000], 1000, two.local()), SendResult::All);
            let train = two.receive_train(&mut room).expect("a socket").expect("a train");
            assert!(!train.is_marked, "nothing on the loopback marks it");
            // The sender marks its own datagrams.
            match any {
                SocketAddr::V4(_) => one.request(libc::IPPROTO_IP, libc::IP_TOS, CE.into()),
                SocketAddr::V6(_) => one.request(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, CE.into()),
            }
            // Without UDP_GRO on the loopback, a train may arrive in parts.
            while two.receive_train(&mut room).expect("a socket").is_some() {}
            assert_eq!(one.send_train(&[1; 10], 10, two.local()), SendResult::All);
            assert!(two.receive_train(&mut room).expect("a socket").expect("a train").is_marked, "{any}");
        }
    }

    #[test]
    fn ipv6_packets_without_a_checksum_arrive_if_allowed() {
        let any = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 0));
        let (one, two) =
            (UdpLink::bind(any).expect("a port is free"), UdpLink::bind(any).expect("a port is free"));
        one.request(libc::SOL_UDP, libc::UDP_NO_CHECK6_TX, 1);
        let mut room = [0; 64];
        assert!(one.send(b"early", two.local()));
        assert_eq!(two.receive(&mut room), None);
        two.allow_missing_checksums();
        assert!(one.send(b"packet", two.local()));
        assert_eq!(two.receive(&mut room), Some((6, one.local())));
    }

    #[test]
    fn a_program_chooses_the_socket_of_a_group() {
        let load = |code: u32, k| BpfInstruction { code: code as u16, jt: 0, jf: 0, k };
        let first_byte =
            [load(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0), load(libc::BPF_RET | libc::BPF_A, 0)];
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let any: SocketAddr = any.parse().expect("an address");
            let group = UdpLink::bind_group(any, 3).expect("a port is free");
            let local = group[0].local();
            let taken = UdpLink::bind_group(local, 3).expect_err("another group has the port");
            assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
            let sender = UdpLink::bind(any).expect("a port is free");
            let mut room = [0; 64];
            group[1].choose_socket(&first_byte).expect("a valid program");
            for number in [2, 0, 1, 1] {
                assert!(sender.send(&[number], local));
                let arrived: Vec<bool> =
                    group.iter().map(|socket| socket.receive(&mut room).is_some()).collect();
                assert_eq!(arrived, [0, 1, 2].map(|socket| socket == number), "{any}");
            }
            // Another program replaces it.
            group[2].choose_socket(&[load(libc::BPF_RET | libc::BPF_K, 0)]).expect("a valid program");
            assert!(sender.send(&[2], local));
            assert_eq!(group[0].receive(&mut room), Some((1, sender.local())));
            assert!(group[0].choose_socket(&[]).is_err());
            assert!(sender.choose_socket(&first_byte).is_err(), "it belongs to no group");
        }
    }

    #[test]
    fn a_missing_receiver_is_not_an_error() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let one = UdpLink::bind(any).expect("a port is free");
        let gone = UdpLink::bind(any).expect("a port is free").local();
        let mut room = [0; 64];
        for _ in 0..3 {
            one.send(b"packet", gone);
            assert_eq!(one.receive(&mut room), None);
        }
    }

    #[test]
    fn every_socket_that_joined_a_group_receives_a_copy() {
        let home = IpAddr::from([127, 0, 0, 1]);
        let port = UdpLink::bind((home, 0).into()).expect("a port is free").local().port();
        let group = SocketAddr::from(([239, 77, 1, 1], port));
        let joined = [(); 2].map(|()| UdpLink::join(group, home).expect("the loopback can join"));
        let sender = UdpLink::bind((home, 0).into()).expect("a port is free");
        sender.direct_multicast(64);
        assert!(sender.send(b"all", group));
        assert!(sender.send(b"no one", SocketAddr::from(([239, 77, 1, 2], port))));
        let mut room = [0; 64];
        for socket in &joined {
            assert_eq!(socket.receive(&mut room), Some((3, sender.local())));
            assert_eq!(socket.receive(&mut room), None);
        }
        let wrong = UdpLink::join((home, port).into(), home).expect_err("no group");
        assert!(wrong.to_string().contains("cannot join 127.0.0.1"), "{wrong}");
        let other =
            UdpLink::join("[ff15::1]:9".parse().expect("an address"), home).expect_err("two families");
        assert_eq!(other.kind(), io::ErrorKind::InvalidInput);
    }
}
