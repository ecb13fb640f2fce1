//! Captures the packets of one TCP connection (AF_PACKET).
//!
//! Purpose          find out which side waited for the other, and write a capture file for other tools.
//! Method           a packet socket receives from all interfaces; a classic BPF program drops everything
//!                  except packets between the two ports. Packets start with their IP header, whatever the
//!                  interface. They stay in the socket's buffer until [`Capture::drain`] is called, without a
//!                  thread, because captures have only a few hundred packets.
//! Duplicates       if a packet crosses several interfaces of the host (a bridge, loopback), only the copy
//!                  from the first interface is kept, and on loopback only the copy that arrives.
//! Timestamps       the kernel takes them, on the wall clock. [`Capture::clock_stepped`] reports whether that
//!                  clock was set in the meantime, which makes gaps meaningless.
//! Limits           a capture needs CAP_NET_RAW, and keeps the first [`KEPT_BYTES`] of each packet. With
//!                  offloads, a "packet" may consist of many segments.
//! Not implemented  rings shared with the kernel, promiscuous mode, IPv6 extension headers.

use kiban_capture as pcap;
use kiban_os::clock::machine_nanos;
use kiban_tcpip::wire::{ip, tcp};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Snap length in bytes: enough for all headers, including options.
pub const KEPT_BYTES: usize = 160;
/// Maximum number of packets in a capture; later packets are lost.
pub const FRAMES_MAX: usize = 20_000;
/// Requested size of the socket's buffer, for a few thousand packets.
const BUFFER_BYTES: i32 = 16 << 20;
/// How far the two clocks may diverge before the wall clock is assumed to have been set.
const STEP_NANOS: u64 = 2_000_000;
/// How far the timestamps of two CPUs may disagree.
const DISORDER_NANOS: u64 = 1_000_000;
/// `PACKET_OUTGOING` of packet(7).
const OUTGOING: u8 = 4;

/// The direction of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the local port.
    Sent,
    /// To the local port.
    Received,
}

/// A captured packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The timestamp, in nanoseconds since 1970.
    pub nanoseconds: u64,
    /// The direction.
    pub direction: Direction,
    /// The first bytes, from the IP header on.
    pub kept: Vec<u8>,
    /// The length of the packet from the IP header on, in bytes.
    pub wire_bytes: u32,
}

/// A running capture.
#[derive(Debug)]
pub struct Capture {
    socket: OwnedFd,
    local_port: u16,
    interface: Option<i32>,
    frames: Vec<Frame>,
    clock_offset_nanos: u64,
}

impl Capture {
    /// Starts to capture packets between these two ports.
    ///
    /// # Errors
    /// A system call failed; `PermissionDenied` without CAP_NET_RAW.
    pub fn open(local: SocketAddr, remote: SocketAddr) -> io::Result<Capture> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // The protocol is 0 until the socket is bound, so that no packet arrives before the filter is
        // attached.
        // SAFETY: socket(2) takes no pointers.
        let file = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just opened and is not shared.
        let socket = unsafe { OwnedFd::from_raw_fd(file) };
        let program = between(local.port(), remote.port());
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
        set(&socket, libc::SO_ATTACH_FILTER, &filter)?;
        set(&socket, libc::SO_TIMESTAMPNS, &1i32)?;
        // A size above the system's limit needs CAP_NET_ADMIN. Without it, a smaller buffer will do.
        if set(&socket, libc::SO_RCVBUFFORCE, &BUFFER_BYTES).is_err() {
            set(&socket, libc::SO_RCVBUF, &BUFFER_BYTES)?;
        }
        // SAFETY: all-zero bytes are a valid `sockaddr_ll`.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: `address` is a local `sockaddr_ll` of this length.
        let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
        if bound < 0 {
            return Err(io::Error::last_os_error());
        }
        let local_port = local.port();
        Ok(Capture {
            socket,
            local_port,
            interface: None,
            frames: Vec::new(),
            clock_offset_nanos: clock_offset(),
        })
    }

    /// Reads the packets that have been captured. During a long capture, call it repeatedly, before the
    /// socket's buffer is full.
    pub fn drain(&mut self) {
        while let Some((frame, interface, is_copy)) = self.next() {
            let interface_kept = *self.interface.get_or_insert(interface);
            self.drop_unstamped(frame.nanoseconds);
            if interface == interface_kept && !is_copy && self.frames.len() < FRAMES_MAX {
                self.frames.push(frame);
            }
        }
    }

    /// Drops packets whose timestamp is later than the timestamp of a packet received after them. The kernel
    /// switches timestamps on in a work queue, slightly after the request. Packets that passed before then
    /// get the time at which they are read.
    fn drop_unstamped(&mut self, nanoseconds: u64) {
        while self.frames.last().is_some_and(|last| last.nanoseconds > nanoseconds + DISORDER_NANOS) {
            self.frames.pop();
        }
    }

    /// Returns the packets captured so far.
    pub fn frames(&mut self) -> &[Frame] {
        self.drain();
        &self.frames
    }

    /// Returns whether the wall clock was set since the start. If so, gaps between packets are meaningless.
    pub fn clock_stepped(&self) -> bool {
        clock_offset().abs_diff(self.clock_offset_nanos) > STEP_NANOS
    }

    /// Returns the next packet, its interface, and whether it is the copy of another packet.
    fn next(&self) -> Option<(Frame, i32, bool)> {
        let mut kept = vec![0u8; KEPT_BYTES];
        // Space for one timestamp, aligned as control messages require.
        let mut control = [0u64; 8];
        // SAFETY: all-zero bytes are a valid `sockaddr_ll`.
        let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        let mut piece = libc::iovec { iov_base: kept.as_mut_ptr().cast(), iov_len: kept.len() };
        // SAFETY: all-zero bytes are a valid `msghdr`.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let length = loop {
            // SAFETY: the message points to the name, the buffer and the control buffer, which outlive the
            // call, with their true lengths.
            let length = unsafe {
                libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_TRUNC | libc::MSG_DONTWAIT)
            };
            if length >= 0 {
                break length as usize;
            }
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return None;
            }
        };
        kept.truncate(length);
        let nanoseconds = stamp(&message)?;
        let (source_port, is_loopback) = source(&kept)?;
        let direction = if source_port == self.local_port { Direction::Sent } else { Direction::Received };
        let frame = Frame { nanoseconds, direction, kept, wire_bytes: length as u32 };
        // On loopback, a packet is captured twice: when it leaves the sender's port, and when it arrives.
        let is_copy = is_loopback && from.sll_pkttype == OUTGOING;
        Some((frame, from.sll_ifindex, is_copy))
    }
}

/// Returns the timestamp in a message's control data.
pub(super) fn stamp(message: &libc::msghdr) -> Option<u64> {
    find_control(message, |level, kind, data| {
        // SAFETY: the data of SCM_TIMESTAMPNS is a `timespec`, which may be unaligned.
        let time = || unsafe { data.cast::<libc::timespec>().read_unaligned() };
        ((level, kind) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS)).then(time)
    })
    .map(|time| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Returns the type of service, or the traffic class, in a message's control data.
pub(super) fn type_of_service(message: &libc::msghdr) -> Option<u8> {
    find_control(message, |level, kind, data| match (level, kind) {
        // SAFETY: the data of IP_TOS is one octet.
        (libc::IPPROTO_IP, libc::IP_TOS) => Some(unsafe { data.read() }),
        // SAFETY: the data of IPV6_TCLASS is an `int`, which may be unaligned.
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => Some(unsafe { data.cast::<i32>().read_unaligned() } as u8),
        _ => None,
    })
}

/// Calls `find` with level, type and data of each control message until it returns a value.
fn find_control<T>(message: &libc::msghdr, find: impl Fn(i32, i32, *const u8) -> Option<T>) -> Option<T> {
    // SAFETY: the kernel has written the control messages and their length into `message`.
    let mut control = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !control.is_null() {
        // SAFETY: the pointer is not null, so it points to a header in the control buffer.
        let header = unsafe { &*control };
        // SAFETY: the data follow their header.
        let data = unsafe { libc::CMSG_DATA(control) };
        if let Some(found) = find(header.cmsg_level, header.cmsg_type, data) {
            return Some(found);
        }
        // SAFETY: `control` is a header of this message, whose length the kernel has filled in.
        control = unsafe { libc::CMSG_NXTHDR(message, control) };
    }
    None
}

/// Returns the wall clock minus the monotonic clock, ns.
pub fn clock_offset() -> u64 {
    let day = clock_gettime(ClockId::Realtime);
    (day.tv_sec as u64 * 1_000_000_000 + day.tv_nsec as u64).wrapping_sub(machine_nanos())
}

pub(super) fn set<T>(socket: &impl AsRawFd, name: libc::c_int, value: &T) -> io::Result<()> {
    set_at(socket, libc::SOL_SOCKET, name, value)
}

pub(super) fn set_at<T>(
    socket: &impl AsRawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` has the type and size that the option takes; the kernel copies it, and the program to
    // which a filter points, before it returns.
    let answer = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), length)
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns a classic BPF program (bpf(4)) that passes TCP between two ports, over IPv4 or IPv6 without
/// extension headers.
fn between(one: u16, other: u16) -> [libc::sock_filter; 21] {
    const LOAD_BYTE: u16 = 0x30;
    const LOAD_HALF: u16 = 0x28;
    const LOAD_HALF_AT_X: u16 = 0x48;
    const X_IP_HEADER: u16 = 0xb1;
    const X_NUMBER: u16 = 0x01;
    const AND: u16 = 0x54;
    const EQUAL: u16 = 0x15;
    const ANY_BIT: u16 = 0x45;
    const JUMP: u16 = 0x05;
    const RETURN: u16 = 0x06;
    const WHOLE: u32 = 0x4_0000;
    let step = |code, k: u32, jt, jf| libc::sock_filter { code, jt, jf, k };
    let (one, other) = (u32::from(one), u32::from(other));
    // Jump offsets count from the next instruction. Instruction 19 drops the packet; instruction 20 passes
    // it.
    [
        step(LOAD_BYTE, 0, 0, 0),
        step(AND, 0xf0, 0, 0),
        step(EQUAL, 0x60, 0, 4),
        // IPv6: check that the next header is TCP. The ports follow the header of 40 bytes.
        step(LOAD_BYTE, 6, 0, 0),
        step(EQUAL, 6, 0, 14),
        step(X_NUMBER, 40, 0, 0),
        step(JUMP, 6, 0, 0),
        step(EQUAL, 0x40, 0, 11),
        // IPv4: check that the protocol is TCP, and that the packet is not a later fragment.
        step(LOAD_BYTE, 9, 0, 0),
        step(EQUAL, 6, 0, 9),
        step(LOAD_HALF, 6, 0, 0),
        step(ANY_BIT, 0x1fff, 7, 0),
        step(X_IP_HEADER, 0, 0, 0),
        // Compare both ports, in either order.
        step(LOAD_HALF_AT_X, 0, 0, 0),
        step(EQUAL, one, 1, 0),
        step(EQUAL, other, 0, 3),
        step(LOAD_HALF_AT_X, 2, 0, 0),
        step(EQUAL, one, 2, 0),
        step(EQUAL, other, 1, 0),
        step(RETURN, 0, 0, 0),
        step(RETURN, WHOLE, 0, 0),
    ]
}

/// Returns the source port of a packet, and whether the host sent the packet to itself.
fn source(packet: &[u8]) -> Option<(u16, bool)> {
    let front = ip::Front::read(packet).ok()?;
    let quoted = tcp::Quoted::read(packet.get(front.header_bytes..)?).ok()?;
    Some((quoted.source_port, front.source == front.target || front.source.is_loopback()))
}

/// Returns a capture file of packets (libpcap, nanoseconds).
pub fn file(frames: &[Frame]) -> Vec<u8> {
    let header = pcap::FileHeader::new(pcap::LINK_TYPE_RAW);
    let mut file = Vec::new();
    header.write(&mut file);
    for frame in frames {
        let record = pcap::RecordHeader {
            nanoseconds: frame.nanoseconds,
            captured_bytes: frame.kept.len() as u32,
            original_bytes: frame.wire_bytes,
        };
        record.write(&header, &mut file);
        file.extend(&frame.kept);
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn loopback_packets_of_the_connection_are_captured_once() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                println!("skipped: there is no {address}");
                continue;
            };
            let at = listener.local_addr().expect("bound");
            let mut caller = TcpStream::connect(at).expect("it listens");
            let (mut called, _) = listener.accept().expect("a peer has connected");
            let mut other = TcpStream::connect(at).expect("it listens");
            let local = caller.local_addr().expect("connected");
            let mut capture = match Capture::open(local, at) {
                Ok(capture) => capture,
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    println!("skipped: a capture needs CAP_NET_RAW");
                    return;
                }
                Err(error) => panic!("{error}"),
            };
            other.write_all(&[1; 333]).expect("connected");
            caller.write_all(&[2; 777]).expect("connected");
            called.read_exact(&mut [0; 777]).expect("connected");
            called.write_all(&[3; 55]).expect("connected");
            caller.read_exact(&mut [0; 55]).expect("connected");
            let frames = capture.frames().to_vec();
            let long = |direction, bytes| {
                let these = frames.iter().filter(|frame| {
                    frame.direction == direction && (bytes..bytes + 100).contains(&frame.wire_bytes)
                });
                these.count()
            };
            assert_eq!((long(Direction::Sent, 777), long(Direction::Received, 75)), (1, 1), "{frames:?}");
            assert!(
                frames.iter().all(|frame| frame.wire_bytes < 333 || frame.wire_bytes > 500),
                "{frames:?}"
            );
            let in_order = |pair: &[Frame]| pair[0].nanoseconds <= pair[1].nanoseconds + DISORDER_NANOS;
            assert!(frames.windows(2).all(in_order));
            assert!(frames.iter().all(|frame| frame.kept.len() <= KEPT_BYTES));

            // A packet that passed before timestamps were switched on gets the time at which it is read.
            let late = frames.iter().map(|frame| frame.nanoseconds).max().expect("packets") + 5_000_000;
            capture.frames.insert(0, Frame { nanoseconds: late, ..frames[0].clone() });
            capture.frames.truncate(1);
            capture.drop_unstamped(frames[0].nanoseconds);
            assert!(capture.frames.is_empty());

            assert!(!capture.clock_stepped());
            capture.clock_offset_nanos = capture.clock_offset_nanos.wrapping_sub(10_000_000);
            assert!(capture.clock_stepped());

            let file = file(&frames);
            let (header, _) = pcap::FileHeader::read(&file).expect("a file of ours");
            let records: Result<Vec<_>, _> = header.records(&file).collect();
            assert_eq!(records.expect("whole records").len(), frames.len());
        }
    }
}
