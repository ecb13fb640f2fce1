//! Ethernet frames on an interface of this host (AF_PACKET): a card, one end of a veth pair, a bridge's port.
//!
//! Purpose          put a board on a real network, or among other stations on a virtual one. As with TUN,
//!                  segments of up to 64 KB pass in both directions, if the interface cuts them or the other
//!                  end accepts them whole.
//! MAC              a board uses the interface's MAC address ([`EthernetLink::mac`]). Frames for that address
//!                  arrive here, and the kernel ignores them, because it has other IP addresses. Do not give
//!                  the interface the board's IP address. With another MAC the interface must be promiscuous.
//! Checksums        frames that this host's kernel sends on a veth have no checksums yet; the virtio header
//!                  in front indicates this. Without `offload`, the checksums are written here, and the
//!                  kernel's segments of up to 64 KB are cut.
//! Own frames       frames that this link or the kernel sends are not received.
//! Queues           several sockets can share an interface ([`EthernetLink::open_queues`]), one for each
//!                  shard of a board. A hash of the flow chooses the socket (PACKET_FANOUT, packet(7)), so
//!                  each frame arrives at one of them.
//! Loss             frames lost because the socket's queue was full are reported with the next one
//!                  (SO_RXQ_OVFL, socket(7)), and counted.
//! Down             while the interface is down, frames are refused and counted. When it has been removed,
//!                  the link is gone.
//! Limits           the link needs CAP_NET_RAW.
//! Not implemented  VLANs: tagged frames belong to another network and count as malformed. Rings shared with
//!                  the kernel.

use super::landing::{ReadError, ReceiveBuffers};
use super::virtio::{self, HEADER_BYTES};
use crate::{BURST, BURST_BYTES, Link, LinkContext, LinkCounters, LinkTraits};
use kiban_base::Pdu;
use kiban_base::ethernet::{self, Mac};
use kiban_os::interface;
use kiban_os::interface::{Property, explain_error_with, query};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The privilege mentioned in error messages.
const PRIVILEGE: &str = "CAP_NET_RAW";
/// Receive buffer, in bytes.
const QUEUE_BYTES: libc::c_int = 8 << 20;
/// Send buffer, in bytes: a few segments. On a line that is slower than the board, the buffer fills before
/// the line's own queue overflows. This holds back the board's sessions, so that they share the line evenly.
const LEAVING_BYTES: libc::c_int = 256 << 10;
/// Size of `tpacket_auxdata`: seven fields, of which the status is the first.
const AUXDATA_BYTES: usize = 20;
const STATUS_TAGGED: u32 = 1 << 4;

/// A link on an interface.
pub struct EthernetLink {
    socket: OwnedFd,
    name: String,
    index: libc::c_int,
    mac: Mac,
    traits: LinkTraits,
    landing: ReceiveBuffers,
    counters: LinkCounters,
}

impl EthernetLink {
    /// Opens a link on the named interface. With `offload`, segments leave whole, and the interface or its
    /// other end cuts them. Segments that the other end sends whole arrive whole in any case. With
    /// `promiscuous`, frames for every MAC address arrive.
    ///
    /// # Errors
    /// There is no such interface, or the process lacks CAP_NET_RAW.
    pub fn open(name: &str, offload: bool, promiscuous: bool) -> io::Result<EthernetLink> {
        EthernetLink::open_with(name, offload, promiscuous, false)
    }

    /// Opens several links on the named interface, among which the kernel distributes the flows.
    ///
    /// # Errors
    /// Same as for [`EthernetLink::open`].
    pub fn open_queues(
        name: &str,
        offload: bool,
        promiscuous: bool,
        queues: usize,
    ) -> io::Result<Vec<EthernetLink>> {
        let mut group = None;
        let open = |_| {
            let link = EthernetLink::open_with(name, offload, promiscuous, true)?;
            let joined = join(&link.socket, group).map_err(|error| match interface::is_up(name) {
                // Before Linux 6.13, with EINVAL.
                Ok(false) => io::Error::new(
                    io::ErrorKind::NetworkDown,
                    format!("several sockets cannot share {name} while it is down: ip link set {name} up"),
                ),
                _ => link.explain("share", error),
            });
            group = Some(joined?);
            Ok(link)
        };
        (0..queues).map(open).collect()
    }

    /// Opens a link; one of several receives nothing yet.
    fn open_with(name: &str, offload: bool, promiscuous: bool, is_queue: bool) -> io::Result<EthernetLink> {
        let say = |what: &str, error: io::Error| explain_error_with(name, what, PRIVILEGE, error);
        let mtu_bytes = interface::mtu(name)?;
        let index = query(name, Property::Index)?.index();
        let mac = query(name, Property::Mac)?.mac();
        // The protocol is 0 for now: with a protocol, an unbound socket would receive frames from every
        // interface.
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: socket(2) takes no pointers.
        let file = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if file < 0 {
            return Err(say("open a packet socket on", io::Error::last_os_error()));
        }
        // SAFETY: the descriptor was just created, and nothing else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(file) };
        let set = |level, option, value: libc::c_int| set(&socket, level, option, &value);
        // Without this header, whole segments and missing checksums could not be recognised.
        set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)
            .map_err(|error| say("request offload headers on", error))?;
        set(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1).map_err(|error| say("request VLAN tags on", error))?;
        set(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)
            .map_err(|error| say("request the drop count of", error))?;
        set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)
            .map_err(|error| say("ignore outgoing frames on", error))?;
        // If a call fails, the buffer keeps its size.
        for option in [libc::SO_RCVBUF, libc::SO_RCVBUFFORCE] {
            let _ = set(libc::SOL_SOCKET, option, QUEUE_BYTES);
        }
        for option in [libc::SO_SNDBUF, libc::SO_SNDBUFFORCE] {
            let _ = set(libc::SOL_SOCKET, option, LEAVING_BYTES);
        }
        if is_queue {
            // Until it has joined the others, the socket would receive copies of their frames.
            attach_filter(&socket, &[NOTHING]).map_err(|error| say("filter the frames of", error))?;
        }
        // SAFETY: all-zero bytes are a valid `sockaddr_ll`.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address is a complete `sockaddr_ll` and outlives the call.
        let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
        if bound < 0 {
            return Err(say("bind to", io::Error::last_os_error()));
        }
        if promiscuous {
            set_promiscuous(&socket, index).map_err(|error| say("make promiscuous", error))?;
        }
        Ok(EthernetLink {
            socket,
            name: name.to_owned(),
            index,
            mac,
            traits: LinkTraits { mtu_bytes, whole_segments: offload },
            // The kernel's own segments arrive whole, regardless of the MTU.
            landing: ReceiveBuffers::new(ethernet::HEADER_BYTES, None),
            counters: LinkCounters::default(),
        })
    }

    /// Returns the interface's MAC address, which a board on this link uses.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Returns an error if the interface no longer exists.
    fn check_interface(&self, error: Errno, what: &str) -> io::Result<()> {
        if interface::exists(self.index) {
            Ok(())
        } else {
            let gone =
                io::Error::new(io::ErrorKind::NotFound, format!("the interface has been removed ({error})"));
            Err(self.explain(what, gone))
        }
    }

    fn explain(&self, what: &str, error: io::Error) -> io::Error {
        explain_error_with(&self.name, what, PRIVILEGE, error)
    }
}

/// Sets an option of a socket.
fn set<T>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the option reads a value of this type, which outlives the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes a bound socket one of several that share the frames of its interface: of a new group, or of the
/// group with this number. Returns the group's number.
fn join(socket: &OwnedFd, group: Option<u16>) -> io::Result<u16> {
    let is_first = if group.is_none() { libc::PACKET_FANOUT_FLAG_UNIQUEID } else { 0 };
    let mode = libc::PACKET_FANOUT_HASH | is_first;
    let word = u32::from(group.unwrap_or(0)) | mode << 16;
    set(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &word)?;
    let (mut word, mut length) = (0u32, size_of::<u32>() as libc::socklen_t);
    // SAFETY: the option is an int, and `word` has room for it.
    let result = unsafe {
        let word = (&raw mut word).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT, word, &raw mut length)
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    attach_filter(socket, &INCOMING)?;
    Ok(word as u16)
}

const fn filter(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// A filter instruction that rejects a frame.
const NOTHING: libc::sock_filter = filter(libc::BPF_RET | libc::BPF_K, 0, 0, 0);
/// Rejects outgoing frames: the sockets of a group do not have PACKET_IGNORE_OUTGOING.
const INCOMING: [libc::sock_filter; 4] = [
    filter(
        libc::BPF_LD | libc::BPF_B | libc::BPF_ABS,
        0,
        0,
        (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32,
    ),
    filter(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::PACKET_OUTGOING as u32),
    NOTHING,
    filter(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
];

/// Attaches a filter to a socket, instead of the one that it has.
fn attach_filter(socket: &OwnedFd, instructions: &[libc::sock_filter]) -> io::Result<()> {
    // The kernel copies the instructions.
    let program =
        libc::sock_fprog { len: instructions.len() as u16, filter: instructions.as_ptr().cast_mut() };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Makes an interface promiscuous for as long as the packet socket is open.
pub(super) fn set_promiscuous(socket: &OwnedFd, index: libc::c_int) -> io::Result<()> {
    let wish = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &wish)
}

/// Reads a frame into `buffers`. Returns the frame's length, and whether it had a VLAN tag. Adds the number
/// of frames lost before it to `overrun`.
fn read(socket: &OwnedFd, buffers: &mut [IoSliceMut<'_>], overrun: &mut u64) -> Result<(usize, bool), Errno> {
    let mut control = [0u64; 8];
    // SAFETY: all-zero bytes are a valid `msghdr`.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    // An `IoSliceMut` is ABI-compatible with an `iovec`.
    message.msg_iov = buffers.as_mut_ptr().cast();
    message.msg_iovlen = buffers.len() as _;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the message points to buffers that outlive the call, with their lengths.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    let Ok(length) = usize::try_from(length) else {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
    };
    let mut is_tagged = false;
    // SAFETY: the system has filled in the control messages; these macros stay within their length, and the
    // status is the first word of a message that is long enough.
    unsafe {
        let mut one = libc::CMSG_FIRSTHDR(&raw const message);
        while !one.is_null() {
            if ((*one).cmsg_level, (*one).cmsg_type) == (libc::SOL_PACKET, libc::PACKET_AUXDATA)
                && (*one).cmsg_len as usize >= libc::CMSG_LEN(AUXDATA_BYTES as _) as usize
            {
                is_tagged |= libc::CMSG_DATA(one).cast::<u32>().read_unaligned() & STATUS_TAGGED != 0;
            }
            if ((*one).cmsg_level, (*one).cmsg_type) == (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) {
                *overrun = libc::CMSG_DATA(one).cast::<u32>().read_unaligned().into();
            }
            one = libc::CMSG_NXTHDR(&raw const message, one);
        }
    }
    // A frame that is longer than the longest packet was truncated, so it is not valid.
    Ok((if message.msg_flags & libc::MSG_TRUNC != 0 { 0 } else { length }, is_tagged))
}

impl Link<Pdu> for EthernetLink {
    fn traits(&self) -> LinkTraits {
        self.traits
    }

    fn receive(&mut self, lent: &mut LinkContext<'_>, into: &mut VecDeque<Pdu>) -> io::Result<()> {
        let enough = self.counters.bytes_in + BURST_BYTES;
        for _ in 0..BURST {
            if self.counters.bytes_in >= enough {
                break;
            }
            let EthernetLink { socket, landing, counters, .. } = self;
            let mut header = [0; HEADER_BYTES];
            let mut is_tagged = false;
            let landed = landing.read_packet(lent.memory, &mut header, |buffers| {
                let (length, tagged) = read(socket, buffers, &mut counters.overrun)?;
                is_tagged = tagged;
                Ok(length)
            });
            let pdu = match landed {
                Ok(_) if is_tagged => {
                    counters.malformed += 1;
                    continue;
                }
                Ok(pdu) => pdu,
                Err(ReadError::Starved) => {
                    // The frame stays in the socket's queue until there is memory.
                    counters.no_memory += 1;
                    break;
                }
                Err(ReadError::Short) => {
                    counters.malformed += 1;
                    continue;
                }
                // Frames stay in the queue until the system has memory.
                Err(ReadError::System(Errno::AGAIN | Errno::NOMEM | Errno::NOBUFS)) => break,
                Err(ReadError::System(Errno::INTR)) => continue,
                // The error is reported once when the interface goes down, or on every call if the interface
                // has been removed.
                Err(ReadError::System(error @ (Errno::NETDOWN | Errno::NXIO | Errno::NODEV))) => {
                    self.check_interface(error, "read from")?;
                    continue;
                }
                Err(ReadError::System(error)) => {
                    return Err(self.explain("read from", error.into()));
                }
            };
            if self.traits.whole_segments {
                virtio::take(&header, pdu, counters, into);
            } else {
                let blocks = &mut lent.memory.pdus;
                virtio::finish(&header, pdu, ethernet::HEADER_BYTES, blocks, counters, into);
            }
        }
        Ok(())
    }

    fn send(&mut self, units: &mut VecDeque<Pdu>, lent: &mut LinkContext<'_>) -> io::Result<()> {
        while let Some(pdu) = units.front_mut() {
            let header = if self.traits.whole_segments {
                virtio::describe(pdu, ethernet::HEADER_BYTES)
            } else {
                [0; HEADER_BYTES]
            };
            match virtio::write(&self.socket, &header, pdu) {
                Ok(_) => {
                    self.counters.units_out += 1;
                    self.counters.bytes_out += pdu.len() as u64;
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                // There is no memory, the queue is full, the frame is too long, or the system considers it
                // invalid.
                Err(Errno::NOBUFS | Errno::NOMEM | Errno::MSGSIZE | Errno::INVAL) => {
                    self.counters.send_errors += 1
                }
                Err(error @ (Errno::NETDOWN | Errno::NXIO | Errno::NODEV)) => {
                    self.counters.send_errors += 1;
                    self.check_interface(error, "write to")?;
                }
                Err(error) => {
                    return Err(self.explain("write to", error.into()));
                }
            }
            units.pop_front().into_iter().for_each(|pdu| lent.memory.pdus.give(pdu));
        }
        Ok(())
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn counters(&self) -> LinkCounters {
        self.counters
    }
}

impl std::fmt::Debug for EthernetLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EthernetLink({}, {}, {:?})", self.name, self.mac, self.traits)
    }
}
