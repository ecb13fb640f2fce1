//! Ethernet frames on an interface of this host (AF_PACKET): a card, one end of a veth pair, a bridge's port.
//!
//! Goal      a board on a real network, or beside others on a virtual one; segments of up to 64 KB both ways as with TUN, where the
//!           interface cuts them or its other end takes them whole.
//! MAC       a board takes the interface's own ([`EthernetLink::mac`]): frames for it arrive, and the kernel, which has other IP addresses,
//!           leaves them alone. Give the interface no IP address that the board has. With another MAC the interface has to be
//!           promiscuous.
//! Sums      what this host's kernel sends on a veth has no checksums yet; the header in front says so (`virtio`). Without `offload`
//!           they are written here.
//! Own       frames that leave, ours and the kernel's, are not seen.
//! Lost      what found the socket's queue full is told with what came next (SO_RXQ_OVFL, socket(7)), and counted.
//! Down      while the interface is down, what is sent is refused and counted. When it has been removed, the link is gone.
//! Limits    needs CAP_NET_RAW.
//! Left out  VLANs: frames with a tag are counted as malformed, since they are another network's. Rings shared with the kernel.

use super::interface::{self, Asked, asked, told_of};
use super::landing::{Landing, Nothing};
use super::virtio::{self, HEADER_BYTES};
use super::{BURST, BURST_BYTES, Lent, Link, LinkCounters, Traits};
use kiban_ground::Pdu;
use kiban_wire::ethernet::{self, Mac};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// What a system without the privilege says, and what helps.
const PRIVILEGE: &str = "CAP_NET_RAW";
/// Bytes that may wait for whoever reads.
const QUEUE_BYTES: libc::c_int = 8 << 20;
/// Bytes that may wait to leave: some segments, so that a line that is slower than we are holds us back, and with us our sessions,
/// which share it evenly, before its own queue is full and drops.
const LEAVING_BYTES: libc::c_int = 256 << 10;
/// `tpacket_auxdata`: seven fields, of which the status is the first.
const AUXDATA_BYTES: usize = 20;
const STATUS_TAGGED: u32 = 1 << 4;

/// A link on an interface.
pub struct EthernetLink {
    socket: OwnedFd,
    name: String,
    index: libc::c_int,
    mac: Mac,
    traits: Traits,
    landing: Landing,
    counters: LinkCounters,
}

impl EthernetLink {
    /// A link on an interface, by its name. With `offload`, segments leave whole, and the interface or its other end cuts them; those
    /// of the other end arrive whole in any case, if it sends them so. `promiscuous`: frames for every MAC arrive.
    ///
    /// # Errors
    /// There is no such interface, or the program may not.
    pub fn open(name: &str, offload: bool, promiscuous: bool) -> io::Result<EthernetLink> {
        let say = |what: &str, error: io::Error| told_of(name, what, PRIVILEGE, error);
        let mtu_bytes = interface::mtu(name)?;
        let index = asked(name, Asked::Index)?.index();
        let mac = asked(name, Asked::Mac)?.mac();
        // No protocol yet: until it is bound it would hear of every interface.
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: it makes a file or fails.
        let file = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if file < 0 {
            return Err(say("open raw frames on", io::Error::last_os_error()));
        }
        // SAFETY: the file was just made, and is nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(file) };
        let set = |level: libc::c_int, option: libc::c_int, value: libc::c_int| {
            let length = size_of::<libc::c_int>() as libc::socklen_t;
            // SAFETY: options that are an int.
            let result = unsafe {
                libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), length)
            };
            if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        };
        // Without this header whole segments and unfinished sums could not be told from others.
        set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1).map_err(|error| say("read offloads of", error))?;
        set(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1).map_err(|error| say("read tags of", error))?;
        set(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1).map_err(|error| say("hear of losses on", error))?;
        set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)
            .map_err(|error| say("tell own frames apart on", error))?;
        // Whoever is refused keeps what it has.
        for option in [libc::SO_RCVBUF, libc::SO_RCVBUFFORCE] {
            let _ = set(libc::SOL_SOCKET, option, QUEUE_BYTES);
        }
        for option in [libc::SO_SNDBUF, libc::SO_SNDBUFFORCE] {
            let _ = set(libc::SOL_SOCKET, option, LEAVING_BYTES);
        }
        // SAFETY: all of its fields may be zero.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address is a whole `sockaddr_ll`.
        let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
        if bound < 0 {
            return Err(say("bind to", io::Error::last_os_error()));
        }
        if promiscuous {
            hear_all(&socket, index).map_err(|error| say("make promiscuous", error))?;
        }
        Ok(EthernetLink {
            socket,
            name: name.to_owned(),
            index,
            mac,
            traits: Traits { mtu_bytes, whole_segments: offload },
            // The kernel's own segments come whole, whatever we take.
            landing: Landing::new(ethernet::HEADER_BYTES, None),
            counters: LinkCounters::default(),
        })
    }

    /// The interface's MAC: the one that a board takes.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// An error that may be the interface's end.
    fn judge(&self, error: Errno, what: &str) -> io::Result<()> {
        if interface::is_there(self.index) {
            Ok(())
        } else {
            let gone = io::Error::new(io::ErrorKind::NotFound, format!("it has been removed ({error})"));
            Err(told_of(&self.name, what, PRIVILEGE, gone))
        }
    }
}

/// Has an interface hear frames for every MAC, for as long as the packet socket is open.
pub(super) fn hear_all(socket: &OwnedFd, index: libc::c_int) -> io::Result<()> {
    let wish = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    let length = size_of::<libc::packet_mreq>() as libc::socklen_t;
    let option = libc::PACKET_ADD_MEMBERSHIP;
    // SAFETY: the option reads a whole `packet_mreq`.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, (&raw const wish).cast(), length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads a frame into `places`: its length, and whether it had a VLAN's tag. What was lost before it is noted.
fn read(socket: &OwnedFd, places: &mut [IoSliceMut<'_>], overrun: &mut u64) -> Result<(usize, bool), Errno> {
    let mut control = [0u64; 8];
    // SAFETY: all fields of a message header may be zero.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    // An `IoSliceMut` has the form of an `iovec`.
    message.msg_iov = places.as_mut_ptr().cast();
    message.msg_iovlen = places.len() as _;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the message points at places that live for the call, with their lengths.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    let Ok(length) = usize::try_from(length) else {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
    };
    let mut is_tagged = false;
    // SAFETY: the system has filled the control messages; these macros stay within their length, and the status is the first word of
    // a message that is long enough.
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
    // What is longer than the longest frame was cut: no packet is.
    Ok((if message.msg_flags & libc::MSG_TRUNC != 0 { 0 } else { length }, is_tagged))
}

impl Link<Pdu> for EthernetLink {
    fn traits(&self) -> Traits {
        self.traits
    }

    fn receive(&mut self, lent: &mut Lent<'_>, into: &mut VecDeque<Pdu>) -> io::Result<()> {
        let enough = self.counters.bytes_in + BURST_BYTES;
        for _ in 0..BURST {
            if self.counters.bytes_in >= enough {
                break;
            }
            let EthernetLink { socket, landing, counters, .. } = self;
            let mut header = [0; HEADER_BYTES];
            let mut is_tagged = false;
            let landed = landing.land(lent.memory, &mut header, |places| {
                let (length, tagged) = read(socket, places, &mut counters.overrun)?;
                is_tagged = tagged;
                Ok(length)
            });
            let mut pdu = match landed {
                Ok(_) if is_tagged => {
                    counters.malformed += 1;
                    continue;
                }
                Ok(pdu) => pdu,
                Err(Nothing::Starved) => {
                    // It stays in the socket's queue until there is memory.
                    counters.starved += 1;
                    break;
                }
                Err(Nothing::Short) => {
                    counters.malformed += 1;
                    continue;
                }
                // What has arrived stays in the queue until the system has memory.
                Err(Nothing::System(Errno::AGAIN | Errno::NOMEM | Errno::NOBUFS)) => break,
                Err(Nothing::System(Errno::INTR)) => continue,
                // Said once when the interface goes down, or for ever.
                Err(Nothing::System(error @ (Errno::NETDOWN | Errno::NXIO | Errno::NODEV))) => {
                    self.judge(error, "read from")?;
                    continue;
                }
                Err(Nothing::System(error)) => {
                    return Err(told_of(&self.name, "read from", PRIVILEGE, error.into()));
                }
            };
            if !self.traits.whole_segments {
                // Whoever wants packets one by one may pass them on.
                virtio::finish(&mut header, &mut pdu);
            }
            virtio::take(&header, pdu, counters, into);
        }
        Ok(())
    }

    fn send(&mut self, units: &mut VecDeque<Pdu>, lent: &mut Lent<'_>) -> io::Result<()> {
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
                // No memory; its queue is full; too long; not a frame in the system's eyes.
                Err(Errno::NOBUFS | Errno::NOMEM | Errno::MSGSIZE | Errno::INVAL) => {
                    self.counters.refused += 1
                }
                Err(error @ (Errno::NETDOWN | Errno::NXIO | Errno::NODEV)) => {
                    self.counters.refused += 1;
                    self.judge(error, "write to")?;
                }
                Err(error) => return Err(told_of(&self.name, "write to", PRIVILEGE, error.into())),
            }
            units.pop_front().into_iter().for_each(|pdu| lent.memory.blocks.give(pdu));
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
