//! Ethernet frames that bypass the kernel's stack (AF_XDP): a card's queue, or one end of a veth pair.
//!
//! Purpose          carry the frames of an interface past the kernel's stack, and without a copy by the
//!                  kernel if the driver supports that.
//! Receive path     all frames of one queue (`queue=N`, default 0) arrive here; unlike with `packet:`, the
//!                  kernel's stack does not get them. Frames of other queues still go to the kernel, so
//!                  configure the card with one queue, or steer flows (`ethtool -L`, `ethtool -N`). The
//!                  shards of a board have one link and one queue each ([`XdpLink::open_queues`]).
//! MAC              as with `packet:`, a board uses the interface's MAC address; with another address, the
//!                  interface must be promiscuous.
//! Checksums        frames that this host's kernel sends on a veth have no checksums yet, and no header
//!                  indicates this. So on a veth, a checksum that is not correct but equals the sum of the
//!                  pseudo-header is taken to be incomplete, and is completed (`finish`). Any other wrong
//!                  checksum is left as it is.
//! Memory           frames are copied once, between the shared memory (`xsk`) and the board's memory.
//! Down             while the interface is down, frames are refused and counted. When it has been removed,
//!                  the link is gone.
//! Reopening        the kernel takes a few milliseconds to clean up a queue after its socket is closed; until
//!                  then, the queue cannot be reopened.
//! Limits           frames of at most 3840 bytes, hence an MTU of at most 3822; one queue for each link. The
//!                  process needs CAP_NET_ADMIN, CAP_BPF and CAP_NET_RAW.
//! Not implemented  large segments, frames in several parts, and VLAN tags that the card strips.

use super::ethernet;
use super::virtio;
use super::xsk::{HEADROOM, Xsk};
use crate::unit::{ReceivePage, Unit, UnitError};
use crate::{BURST, Link, LinkContext, LinkCounters, LinkTraits};
use kiban_base::ethernet::HEADER_BYTES;
use kiban_base::numbers::{ether_type, protocol};
use kiban_base::{Instant, Pdu, Sum};
use kiban_os::interface;
use kiban_os::interface::{Property, explain_error_with, query};
use kiban_tcpip::wire::ip::Front;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// The privileges mentioned in error messages.
const PRIVILEGE: &str = "CAP_NET_ADMIN, CAP_BPF and CAP_NET_RAW";
/// Sizes that frames in the shared memory may have, in bytes.
const FRAMES: [usize; 2] = [2048, 4096];
/// Delay before the kernel is called again after it had no memory for frames to be sent.
const AGAIN: Duration = Duration::from_millis(1);
/// Bytes in front of the longest packet: a header and a VLAN tag.
const TAGGED_HEADER_BYTES: usize = HEADER_BYTES + 4;

/// A link on a queue of an interface.
pub struct XdpLink {
    xsk: Xsk,
    /// Keeps the interface promiscuous.
    _promiscuous: Option<OwnedFd>,
    name: String,
    index: libc::c_int,
    /// Whether checksums may be missing, as on a veth.
    is_veth: bool,
    traits: LinkTraits,
    page: ReceivePage,
    /// The time at which to call the kernel again for frames that it has not yet taken.
    again: Instant,
    counters: LinkCounters,
}

impl XdpLink {
    /// Opens a link on a queue of the named interface. With `promiscuous`, frames for every MAC address
    /// arrive.
    ///
    /// # Errors
    /// There is no such interface or queue, its packets are too long, or the process lacks the privileges.
    pub fn open(name: &str, queue: u32, promiscuous: bool) -> io::Result<XdpLink> {
        let mut links = XdpLink::open_queues(name, queue..queue + 1, promiscuous)?;
        Ok(links.remove(0))
    }

    /// Opens a link on each of these queues of the named interface.
    ///
    /// # Errors
    /// Same as for [`XdpLink::open`].
    pub fn open_queues(name: &str, queues: Range<u32>, promiscuous: bool) -> io::Result<Vec<XdpLink>> {
        let mtu_bytes = interface::mtu(name)?;
        let index = query(name, Property::Index)?.index();
        query(name, Property::Mac)?;
        let frame_bytes =
            FRAMES.into_iter().find(|bytes| mtu_bytes + TAGGED_HEADER_BYTES + HEADROOM <= *bytes);
        let Some(frame_bytes) = frame_bytes else {
            let most = FRAMES[1] - HEADROOM - TAGGED_HEADER_BYTES;
            let message = format!(
                "the MTU of interface {name} is {mtu_bytes}, and AF_XDP supports at most {most}: \
                 set a smaller one (ip link set {name} mtu {most}), or use packet:{name}"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        };
        let last = queues.end - 1;
        let sockets = Xsk::open(index as u32, queues, frame_bytes).map_err(|(what, error)| {
            let more = match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => format!("; packet:{name} needs only CAP_NET_RAW"),
                Some(libc::EBUSY | libc::EEXIST) => {
                    format!(
                        "; a queue can have one AF_XDP socket, and an interface one XDP program (ip link \
                         show {name}); both stay busy for a moment after they are closed"
                    )
                }
                Some(libc::EINVAL) if last > 0 => {
                    format!("; does it have a queue {last}? (ethtool -l {name})")
                }
                Some(libc::EAFNOSUPPORT | libc::ENOSYS | libc::EOPNOTSUPP) => {
                    format!("; this system does not support AF_XDP: use packet:{name}, which carries the same frames")
                }
                _ => String::new(),
            };
            let explained = explain_error_with(name, what, PRIVILEGE, error);
            io::Error::new(explained.kind(), format!("{explained}{more}"))
        })?;
        let is_veth = interface::driver(name).is_ok_and(|driver| driver == "veth");
        let link = |xsk| {
            let promiscuous = promiscuous.then(|| open_promiscuous(index)).transpose();
            let say = |error| explain_error_with(name, "make promiscuous", PRIVILEGE, error);
            Ok(XdpLink {
                xsk,
                _promiscuous: promiscuous.map_err(say)?,
                name: name.to_owned(),
                index,
                is_veth,
                traits: LinkTraits { mtu_bytes, whole_segments: false },
                page: ReceivePage::default(),
                again: Instant::NEVER,
                counters: LinkCounters::default(),
            })
        };
        sockets.into_iter().map(link).collect()
    }

    /// Makes the kernel send, and sets the time to call it again.
    fn kick(&mut self, now: Instant) -> io::Result<()> {
        let result = self.xsk.kick();
        self.again = if self.xsk.waits() { now + AGAIN } else { Instant::NEVER };
        match result {
            Ok(()) => Ok(()),
            Err(error) => self.check_interface(&error, "write to"),
        }
    }

    /// Returns an error if the interface no longer exists.
    fn check_interface(&self, error: &io::Error, what: &str) -> io::Result<()> {
        if interface::exists(self.index) {
            Ok(())
        } else {
            let gone =
                io::Error::new(io::ErrorKind::NotFound, format!("the interface has been removed ({error})"));
            Err(explain_error_with(&self.name, what, PRIVILEGE, gone))
        }
    }
}

impl Link<Pdu> for XdpLink {
    fn traits(&self) -> LinkTraits {
        self.traits
    }

    fn receive(&mut self, lent: &mut LinkContext<'_>, into: &mut VecDeque<Pdu>) -> io::Result<()> {
        let mut taken = 0;
        while taken < BURST
            && let Some(received) = self.xsk.peek()
        {
            match Pdu::from_received(self.xsk.bytes(&received), &mut self.page, lent) {
                Ok(mut pdu) => {
                    if self.is_veth {
                        finish(&mut pdu);
                    }
                    self.counters.units_in += 1;
                    self.counters.bytes_in += pdu.len() as u64;
                    into.push_back(pdu);
                }
                Err(UnitError::Starved) => {
                    // The frame stays in the ring until there is memory.
                    self.counters.no_memory += 1;
                    break;
                }
                Err(UnitError::Malformed) => self.counters.malformed += 1,
            }
            self.xsk.done(received);
            taken += 1;
        }
        if taken > 0 {
            self.xsk.give_back();
        } else if let Some(error) = self.xsk.error() {
            self.check_interface(&error, "read from")?;
        }
        if self.again <= lent.now { self.kick(lent.now) } else { Ok(()) }
    }

    fn send(&mut self, units: &mut VecDeque<Pdu>, lent: &mut LinkContext<'_>) -> io::Result<()> {
        self.xsk.reclaim();
        if units.is_empty() {
            return Ok(());
        }
        // While the interface is down, the kernel would hold frames until the interface is up again.
        match interface::is_up(&self.name) {
            Ok(true) => {}
            Ok(false) => {
                self.counters.send_errors += units.len() as u64;
                units.clear();
                return Ok(());
            }
            Err(error) => {
                self.counters.send_errors += units.len() as u64;
                units.clear();
                return self.check_interface(&error, "write to");
            }
        }
        while let Some(pdu) = units.front() {
            let length = pdu.len();
            if !(HEADER_BYTES..=self.xsk.frame_bytes()).contains(&length)
                || length > self.traits.mtu_bytes + TAGGED_HEADER_BYTES
            {
                self.counters.send_errors += 1;
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

/// Opens a packet socket that receives nothing and makes an interface promiscuous.
fn open_promiscuous(index: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: socket(2) takes no pointers.
    let file = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just created, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(file) };
    ethernet::set_promiscuous(&socket, index)?;
    Ok(socket)
}

/// Writes the checksum of TCP or UDP if it was left incomplete. In that case, the checksum field holds the
/// sum of the pseudo-header (virtio 1.2 §5.1.6.2), and the checksum does not verify.
fn finish(pdu: &mut Pdu) {
    let head = pdu.head();
    let Some(ip) = head.get(HEADER_BYTES..) else { return };
    let total = pdu.len() - HEADER_BYTES;
    let kind = u16::from_be_bytes([head[12], head[13]]);
    let Ok(front) = Front::read(ip) else { return };
    let (ip_bytes, length) = (front.header_bytes, front.payload_bytes);
    let expected = if front.source.is_ipv4() { ether_type::IPV4 } else { ether_type::IPV6 };
    if kind != expected || front.is_fragment {
        return;
    }
    let field = match front.protocol {
        protocol::TCP => 16,
        protocol::UDP => 6,
        _ => return,
    };
    let start = HEADER_BYTES + ip_bytes;
    // Ethernet padding is not part of the sum.
    if length < field + 2 || length != total - ip_bytes || pdu.pull_up(start + field + 2).is_none() {
        return;
    }
    let (head, pseudo) = (&pdu.head()[start..], front.pseudo(length));
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
