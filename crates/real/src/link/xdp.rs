//! Ethernet frames past the kernel's stack (AF_XDP): a card's queue, or one end of a veth pair.
//!
//! Goal      frames of an interface without the kernel's own work on them; where the driver can, without a copy of the kernel's.
//! Takes     all frames of one queue (`queue=N`, 0): the kernel hears nothing of them, unlike with `packet:`. Frames of other queues
//!           stay the kernel's: give the card one queue, or steer (`ethtool -L`, `ethtool -N`).
//! MAC       as with `packet:`, a board takes the interface's own; with another one the interface has to be promiscuous.
//! Sums      what this host's kernel sends on a veth has no checksums yet, and here is no header that says so. On a veth a checksum
//!           field that holds the sum of the pseudo-header, and not a right checksum, is taken for that, and written
//!           (`finish`). Else a frame whose sum is wrong is somebody's fault, and stays wrong.
//! Memory    frames are copied once between the shared memory (`xsk`) and the board's.
//! Down      while the interface is down, what is sent is refused and counted. When it has been removed, the link is gone.
//! Busy      the kernel clears a queue up for some milliseconds after its socket was closed: until then it cannot be opened again.
//! Limits    a frame of 3840 bytes at most, so an MTU up to 3822; one queue. Needs CAP_NET_ADMIN, CAP_BPF and CAP_NET_RAW.
//! Left out  large segments, frames in several parts, tags that the card takes off, several queues: one thread drives a board.

use super::ethernet;
use super::interface::{self, Asked, asked, told_of};
use super::unit::{Desk, NoUnit, Unit};
use super::virtio;
use super::xsk::{HEADROOM, Xsk};
use super::{BURST, Lent, Link, LinkCounters, Traits};
use kiban_ground::{Instant, Pdu, Sum};
use kiban_wire::ethernet::HEADER_BYTES;
use kiban_wire::numbers::{ether_type, protocol};
use kiban_wire::{checksum, ipv4, ipv6};
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// What a system without the privileges says, and what helps.
const PRIVILEGE: &str = "CAP_NET_ADMIN, CAP_BPF and CAP_NET_RAW";
/// Frames of the shared memory, bytes.
const FRAMES: [usize; 2] = [2048, 4096];
/// Until the kernel, which had no memory for what is to be sent, is asked once more.
const AGAIN: Duration = Duration::from_millis(1);
/// In front of the longest packet: a header, and a VLAN's tag.
const TAGGED_HEADER_BYTES: usize = HEADER_BYTES + 4;

/// A link on a queue of an interface.
pub struct XdpLink {
    xsk: Xsk,
    /// What keeps the interface promiscuous.
    _ear: Option<OwnedFd>,
    name: String,
    index: libc::c_int,
    /// Checksums may not have been written.
    is_veth: bool,
    traits: Traits,
    desk: Desk,
    /// When the kernel is called again for frames that it has not taken.
    again: Instant,
    counters: LinkCounters,
}

impl XdpLink {
    /// A link on a queue of an interface, by its name. `promiscuous`: frames for every MAC arrive.
    ///
    /// # Errors
    /// There is no such interface or queue, its packets are too long, or the program may not.
    pub fn open(name: &str, queue: u32, promiscuous: bool) -> io::Result<XdpLink> {
        let mtu_bytes = interface::mtu(name)?;
        let index = asked(name, Asked::Index)?.index();
        asked(name, Asked::Mac)?;
        let frame_bytes =
            FRAMES.into_iter().find(|bytes| mtu_bytes + TAGGED_HEADER_BYTES + HEADROOM <= *bytes);
        let Some(frame_bytes) = frame_bytes else {
            let most = FRAMES[1] - HEADROOM - TAGGED_HEADER_BYTES;
            let message = format!(
                "interface {name} has an MTU of {mtu_bytes}, and AF_XDP carries {most} at most: set a smaller one (ip link set {name} mtu \
                 {most}), or use packet:{name}"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        };
        let xsk = Xsk::open(index as u32, queue, frame_bytes).map_err(|(what, error)| {
            let more = match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => format!("; packet:{name} needs CAP_NET_RAW alone"),
                Some(libc::EBUSY | libc::EEXIST) => {
                    format!(
                        "; one AF_XDP socket has a queue, and one program an interface (ip link show {name}); one that was closed just now is \
                         busy for a moment"
                    )
                }
                Some(libc::EINVAL) if queue > 0 => {
                    format!("; does it have a queue {queue}? (ethtool -l {name})")
                }
                Some(libc::EAFNOSUPPORT | libc::ENOSYS | libc::EOPNOTSUPP) => {
                    format!("; this system has no AF_XDP: packet:{name} carries the same frames")
                }
                _ => String::new(),
            };
            let told = told_of(name, what, PRIVILEGE, error);
            io::Error::new(told.kind(), format!("{told}{more}"))
        })?;
        let ear = match promiscuous {
            true => {
                Some(hear_all(index).map_err(|error| told_of(name, "make promiscuous", PRIVILEGE, error))?)
            }
            false => None,
        };
        Ok(XdpLink {
            xsk,
            _ear: ear,
            name: name.to_owned(),
            index,
            is_veth: interface::driver(name).is_ok_and(|driver| driver == "veth"),
            traits: Traits { mtu_bytes, whole_segments: false },
            desk: Desk::default(),
            again: Instant::NEVER,
            counters: LinkCounters::default(),
        })
    }

    /// Has the kernel send, and remembers when it has to be asked once more.
    fn kick(&mut self, now: Instant) -> io::Result<()> {
        let result = self.xsk.kick();
        self.again = if self.xsk.waits() { now + AGAIN } else { Instant::NEVER };
        match result {
            Ok(()) => Ok(()),
            Err(error) => self.judge(&error, "write to"),
        }
    }

    /// An error that may be the interface's end.
    fn judge(&self, error: &io::Error, what: &str) -> io::Result<()> {
        if interface::is_there(self.index) {
            Ok(())
        } else {
            let gone = io::Error::new(io::ErrorKind::NotFound, format!("it has been removed ({error})"));
            Err(told_of(&self.name, what, PRIVILEGE, gone))
        }
    }
}

impl Link<Pdu> for XdpLink {
    fn traits(&self) -> Traits {
        self.traits
    }

    fn receive(&mut self, lent: &mut Lent<'_>, into: &mut VecDeque<Pdu>) -> io::Result<()> {
        let mut taken = 0;
        while taken < BURST
            && let Some(received) = self.xsk.peek()
        {
            match Pdu::of_bytes(self.xsk.bytes(&received), &mut self.desk, lent) {
                Ok(mut pdu) => {
                    if self.is_veth {
                        finish(&mut pdu);
                    }
                    self.counters.units_in += 1;
                    self.counters.bytes_in += pdu.len() as u64;
                    into.push_back(pdu);
                }
                Err(NoUnit::Starved) => {
                    // It stays in the ring until there is memory.
                    self.counters.starved += 1;
                    break;
                }
                Err(NoUnit::Malformed) => self.counters.malformed += 1,
            }
            self.xsk.done(received);
            taken += 1;
        }
        if taken > 0 {
            self.xsk.give_back();
        } else if let Some(error) = self.xsk.error() {
            self.judge(&error, "read from")?;
        }
        if self.again <= lent.now { self.kick(lent.now) } else { Ok(()) }
    }

    fn send(&mut self, units: &mut VecDeque<Pdu>, lent: &mut Lent<'_>) -> io::Result<()> {
        self.xsk.reclaim();
        if units.is_empty() {
            return Ok(());
        }
        // The kernel would keep frames until it is up again.
        match interface::is_up(&self.name) {
            Ok(true) => {}
            Ok(false) => {
                self.counters.refused += units.len() as u64;
                units.clear();
                return Ok(());
            }
            Err(error) => {
                self.counters.refused += units.len() as u64;
                units.clear();
                return self.judge(&error, "write to");
            }
        }
        while let Some(pdu) = units.front() {
            let length = pdu.len();
            if !(HEADER_BYTES..=self.xsk.frame_bytes()).contains(&length)
                || length > self.traits.mtu_bytes + TAGGED_HEADER_BYTES
            {
                self.counters.refused += 1;
            } else if self.xsk.put(pdu.runs()) {
                self.counters.units_out += 1;
                self.counters.bytes_out += length as u64;
            } else {
                break;
            }
            units.pop_front();
        }
        self.kick(lent.now)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.xsk.as_fd())
    }

    fn deadline(&self) -> Instant {
        self.again
    }

    fn counters(&self) -> LinkCounters {
        self.counters
    }
}

/// A packet socket that hears nothing, and has an interface hear frames for every MAC.
fn hear_all(index: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: it makes a file or fails.
    let file = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the file was just made, and is nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(file) };
    ethernet::hear_all(&socket, index)?;
    Ok(socket)
}

/// Writes the checksum of TCP or UDP if it was left to somebody else: its field holds the sum of the pseudo-header then (virtio 1.2
/// §5.1.6.2), and the packet's sum is not right.
fn finish(pdu: &mut Pdu) {
    let head = pdu.head();
    let Some(ip) = head.get(HEADER_BYTES..) else { return };
    let total = pdu.len() - HEADER_BYTES;
    let kind = u16::from_be_bytes([head[12], head[13]]);
    let (ip_bytes, length, next, pseudo) = match kind {
        ether_type::IPV4 if ip.len() >= ipv4::HEADER_BYTES => {
            let header_bytes = usize::from(ip[0] & 15) * 4;
            let is_fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff != 0;
            let length = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
            let Some(length) = length.checked_sub(header_bytes).filter(|_| length <= total && !is_fragment)
            else {
                return;
            };
            let address = |from: usize| Ipv4Addr::from(*ip[from..].first_chunk::<4>().expect("20 bytes"));
            let pseudo = checksum::pseudo_ipv4(address(12), address(16), ip[9], length);
            (header_bytes, length, ip[9], pseudo)
        }
        ether_type::IPV6 if ip.len() >= ipv6::HEADER_BYTES => {
            let length = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
            if ipv6::HEADER_BYTES + length > total {
                return;
            }
            let address = |from: usize| Ipv6Addr::from(*ip[from..].first_chunk::<16>().expect("40 bytes"));
            let pseudo = checksum::pseudo_ipv6(address(8), address(24), ip[6], length);
            (ipv6::HEADER_BYTES, length, ip[6], pseudo)
        }
        _ => return,
    };
    let field = match next {
        protocol::TCP => 16,
        protocol::UDP => 6,
        _ => return,
    };
    let start = HEADER_BYTES + ip_bytes;
    // An Ethernet's padding is not summed.
    if length < field + 2 || length != total - ip_bytes || pdu.pull_up(start + field + 2).is_none() {
        return;
    }
    let head = &pdu.head()[start..];
    let partial = !pseudo.checksum();
    let sum = Sum::of(head).then(head.len(), pdu.body_sum());
    if head[field..field + 2] == partial.to_be_bytes() && !sum.plus(pseudo).is_intact() {
        virtio::write_checksum(pdu, start, start + field);
    }
}

impl std::fmt::Debug for XdpLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "XdpLink({}, {:?})", self.name, self.traits)
    }
}
