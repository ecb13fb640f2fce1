//! UDP datagrams with the kernel's arrival time, so that the reader's own delay does not affect the figures.
//!
//! Timestamps       SO_TIMESTAMPNS uses the real-time clock. Its offset from the monotonic clock is read for
//!                  each datagram, so that setting the clock affects one datagram at most. A datagram without
//!                  a timestamp gets the time of reading.
//! Drops            datagrams dropped because the socket's buffer is full are lost in this host, not in the
//!                  network. [`Datagrams::drops`] counts them.
//! Path MTU         with [`Datagrams::probe_mtu`], a datagram is sent at any length, unfragmented, whatever
//!                  the kernel knows about the path; [`Datagrams::known_mtu`] is what it has learned.

use super::capture::{clock_offset, set, set_at, stamp, type_of_service};
use kiban_os::clock::machine_nanos;
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// A UDP socket.
#[derive(Debug)]
pub struct Datagrams {
    socket: Socket,
}

/// A received datagram; its payload is in the caller's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Came {
    /// Length in octets; at most the size of the buffer.
    pub octets: usize,
    /// The sender's address.
    pub from: SocketAddr,
    /// The time at which the kernel received it, on the machine's monotonic clock
    /// ([`Clock::at`](kiban_os::Clock::at)).
    pub nanos: u64,
    /// Its type of service or traffic class: DSCP in the upper six bits, ECN in the lower two (RFC 3168 §5).
    /// Zero if [`Datagrams::receive_tos`] was not called.
    pub tos: u8,
}

/// The options of one IP version: level, path MTU discovery, receiving the type of service, setting it, and
/// the known path MTU.
type Options = (i32, i32, i32, i32, i32);

const OF_IPV4: Options =
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_RECVTOS, libc::IP_TOS, libc::IP_MTU);
const OF_IPV6: Options =
    (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_RECVTCLASS, libc::IPV6_TCLASS, libc::IPV6_MTU);

impl Datagrams {
    /// Binds an address (if the port is 0, the system chooses one), with a receive buffer of `buffer_bytes`
    /// if the system grants it.
    ///
    /// # Errors
    /// A system call failed.
    pub fn bind(address: SocketAddr, buffer_bytes: u32) -> io::Result<Datagrams> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        set(&socket, libc::SO_TIMESTAMPNS, &1i32)?;
        // A size above the system's limit needs CAP_NET_ADMIN. Without it, a smaller buffer will do.
        if set(&socket, libc::SO_RCVBUFFORCE, &buffer_bytes).is_err() {
            socket.set_recv_buffer_size(buffer_bytes as usize)?;
        }
        socket.bind(&address.into())?;
        Ok(Datagrams { socket })
    }

    /// Sets an option of the IP versions that this socket may use. An IPv6 socket may also carry IPv4.
    fn set_ip(&self, option: impl Fn(&Options) -> i32, value: i32) -> io::Result<()> {
        let set = |options: &Options| set_at(&self.socket, options.0, option(options), &value);
        let is_ipv4 = self.socket.local_addr()?.is_ipv4();
        set(&OF_IPV4).and_then(|()| if is_ipv4 { Ok(()) } else { set(&OF_IPV6) })
    }

    /// Sends datagrams unfragmented, even if they are longer than the known path MTU (IP_PMTUDISC_PROBE).
    ///
    /// # Errors
    /// A system call failed.
    pub fn probe_mtu(&self) -> io::Result<()> {
        self.set_ip(|options| options.1, libc::IP_PMTUDISC_PROBE)
    }

    /// Reads the type of service of each datagram ([`Came::tos`]).
    ///
    /// # Errors
    /// A system call failed.
    pub fn receive_tos(&self) -> io::Result<()> {
        self.set_ip(|options| options.2, 1)
    }

    /// Sets the type of service of the datagrams that are sent.
    ///
    /// # Errors
    /// A system call failed.
    pub fn set_tos(&self, tos: u8) -> io::Result<()> {
        self.set_ip(|options| options.3, tos.into())
    }

    /// Connects the socket to its peer, which [`Datagrams::known_mtu`] needs.
    ///
    /// # Errors
    /// A system call failed.
    pub fn connect(&self, to: SocketAddr) -> io::Result<()> {
        self.socket.connect(&to.into())
    }

    /// Returns the path MTU that the kernel knows: the interface's, or a smaller one of which an ICMP message
    /// has informed it.
    ///
    /// # Errors
    /// A system call failed, or the socket is not connected.
    pub fn known_mtu(&self) -> io::Result<u32> {
        let is_ipv4 = self.socket.local_addr()?.is_ipv4();
        let options = if is_ipv4 { OF_IPV4 } else { OF_IPV6 };
        let (mut mtu, mut length) = (0i32, size_of::<i32>() as libc::socklen_t);
        // SAFETY: the kernel writes at most `length` bytes, which is the size of `mtu`.
        let answer = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                options.0,
                options.4,
                (&raw mut mtu).cast(),
                &raw mut length,
            )
        };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(mtu.max(0) as u32) }
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// A system call failed: `WouldBlock` if the socket's buffer is full, EMSGSIZE if the datagram is longer
    /// than the interface's MTU.
    pub fn send_to(&self, octets: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.socket.send_to(octets, &to.into())
    }

    /// Returns the local port.
    ///
    /// # Errors
    /// A system call failed.
    pub fn port(&self) -> io::Result<u16> {
        let address = self.socket.local_addr()?.as_socket();
        address.map(|address| address.port()).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// Receives the next waiting datagram, if there is one.
    pub fn take(&self, room: &mut [u8]) -> Option<Came> {
        // Space for a timestamp and two types of service, aligned as control messages require.
        let mut control = [0u64; 16];
        let mut from = SockAddrStorage::zeroed();
        let mut piece = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        // SAFETY: all-zero bytes are a valid `msghdr`.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = from.size_of();
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: the message points to the name, the buffer and the control buffer, which outlive the call,
        // with their true lengths.
        let octets = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        let octets = usize::try_from(octets).ok()?;
        // SAFETY: the kernel wrote an address of this length there.
        let from = unsafe { SockAddr::new(from, message.msg_namelen) }.as_socket()?;
        let now = machine_nanos();
        let nanos = stamp(&message).map_or(now, |day| day.wrapping_sub(clock_offset()));
        Some(Came { octets, from, nanos: nanos.min(now), tos: type_of_service(&message).unwrap_or(0) })
    }

    /// Returns the number of datagrams dropped because the socket's buffer was full; `None` before Linux
    /// 4.12.
    pub fn drops(&self) -> Option<u64> {
        // The constant is SK_MEMINFO_DROPS of `include/uapi/linux/sock_diag.h`.
        const DROPS: usize = 8;
        let mut words = [0u32; 16];
        let mut length = size_of_val(&words) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes, which is the size of `words`, and stores the
        // number of bytes written.
        let answer = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                words.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        (answer == 0 && length as usize > 4 * DROPS).then_some(u64::from(words[DROPS]))
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::pause::readable;
    use super::*;
    use std::net::UdpSocket;
    use std::time::Duration;

    #[test]
    fn a_datagram_has_its_sender_and_a_timestamp_between_send_and_receive() {
        let datagrams = Datagrams::bind(([127, 0, 0, 1], 0).into(), 1 << 20).expect("loopback");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let mut room = [0; 100];
        assert_eq!(datagrams.take(&mut room), None);
        let to = ("127.0.0.1", datagrams.port().expect("bound"));
        let mut last = 0;
        for number in 0..5u8 {
            let before = machine_nanos();
            sender.send_to(&[number; 10], to).expect("loopback takes it");
            assert!(readable(&datagrams, Duration::from_secs(5)).expect("a socket"));
            let came = datagrams.take(&mut room).expect("it came");
            assert_eq!((came.octets, came.from), (10, sender.local_addr().expect("bound")));
            assert_eq!(room[..10], [number; 10]);
            // The two clocks are read one after the other, so a timestamp may be slightly early.
            assert!(came.nanos + 50_000_000 > before && came.nanos <= machine_nanos() && came.nanos >= last);
            last = came.nanos.saturating_sub(50_000_000);
        }
        assert!(datagrams.drops().is_none_or(|drops| drops == 0));
    }

    #[test]
    fn the_type_of_service_arrives_over_both_versions_of_ip() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let local = local.parse().expect("an address");
            let Ok(one) = Datagrams::bind(local, 1 << 16) else {
                println!("skipped: {local} is not available");
                continue;
            };
            let other = Datagrams::bind(local, 1 << 16).expect("another port");
            other.receive_tos().expect("Linux has it");
            one.probe_mtu().expect("Linux has it");
            let to = SocketAddr::new(local.ip(), other.port().expect("bound"));
            let mut room = [0; 100];
            for tos in [0u8, 0xb8, 2, 3] {
                one.set_tos(tos).expect("Linux has it");
                assert_eq!(one.send_to(&[7; 20], to).expect("loopback takes it"), 20);
                assert!(readable(&other, Duration::from_secs(5)).expect("a socket"));
                let came = other.take(&mut room).expect("it came");
                assert_eq!((came.tos, came.octets), (tos, 20), "{local}");
            }
            one.connect(to).expect("loopback");
            assert!(one.known_mtu().expect("connected") > 1000);
        }
    }
}
