//! TUN and TAP: IP packets or Ethernet frames to and from this host's own kernel.
//!
//! Purpose          connect the kernel to the board, as a peer or as a user. Segments of up to 64 KB pass in
//!                  both directions with one system call each.
//! Offloads         with virtio-net headers, the kernel cuts the segments that it receives and sends its own
//!                  segments uncut, so TCP runs once for tens of kilobytes on both sides. Without system
//!                  support, each segment is a packet, and checksums are computed here.
//! Memory           packets are read directly into pages (`landing`), and written without a copy.
//! Passed files     a device of another network namespace can be used through a descriptor that a program
//!                  there has passed on ([`TunLink::of_file`]).
//! Down             while the interface is down, packets are refused and counted. When it has been removed,
//!                  the link is gone.
//! Queues           several files can serve one device (`IFF_MULTI_QUEUE`), one for each shard of a board.
//!                  The kernel sends the packets of a flow to the queue from which it last received one.
//! Limits           the kernel's queue towards the board is limited to a number of packets (`txqueuelen`);
//!                  windows should fit into it.

use super::landing::{ReadError, ReceiveBuffers};
use super::virtio::{self, HEADER_BYTES};
use crate::{BURST, BURST_BYTES, Link, LinkContext, LinkCounters, LinkTraits};
use kiban_base::Pdu;
use kiban_base::ethernet;
use kiban_os::interface;
use kiban_os::interface::{explain_error, request};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The kind of units that the device carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TunMode {
    /// IP packets: TUN.
    Packets,
    /// Ethernet frames: TAP.
    Frames,
}

/// The offloads that a device may accept (`linux/if_tun.h`).
const TUN_F_CSUM: libc::c_ulong = 1;
const TUN_F_TSO4: libc::c_ulong = 2;
const TUN_F_TSO6: libc::c_ulong = 4;
const TUN_F_TSO_ECN: libc::c_ulong = 8;

/// A link on a TUN or TAP device.
pub struct TunLink {
    file: OwnedFd,
    name: String,
    carries: TunMode,
    /// Bytes in front of the IP header.
    frame_bytes: usize,
    /// Whether packets have virtio-net headers.
    has_header: bool,
    traits: LinkTraits,
    landing: ReceiveBuffers,
    counters: LinkCounters,
}

/// Calls ioctl(2) on a device with a number, or the address of an `ifreq`.
fn ask(file: &OwnedFd, what: libc::Ioctl, argument: libc::c_ulong) -> io::Result<()> {
    // SAFETY: these requests take a number, or read or write a whole `ifreq` that outlives the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), what, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl TunLink {
    /// Opens a device, or creates it if there is none by that name; a device created here is removed with the
    /// link. With `offload`, segments pass through uncut, if the system supports it.
    ///
    /// # Errors
    /// The process lacks the privilege, or another program uses the device.
    pub fn open(name: &str, carries: TunMode, offload: bool) -> io::Result<TunLink> {
        TunLink::open_with(name, carries, offload, 0)
    }

    /// Opens one more queue of a device that has several, or creates the device with its first queue.
    ///
    /// # Errors
    /// Same as for [`TunLink::open`]; also if the device exists and was made for one queue.
    pub fn open_queue(name: &str, carries: TunMode, offload: bool) -> io::Result<TunLink> {
        TunLink::open_with(name, carries, offload, libc::IFF_MULTI_QUEUE)
    }

    fn open_with(name: &str, carries: TunMode, offload: bool, queues: libc::c_int) -> io::Result<TunLink> {
        let mut wanted = request(name)?;
        let say = |error: Errno| {
            let more = match error {
                Errno::ACCESS => "this user may not open it; as root: chmod 666 /dev/net/tun",
                Errno::NOENT | Errno::NODEV => {
                    "load the kernel's module (modprobe tun), or start the container with --device /dev/net/tun"
                }
                _ => return explain_error(name, "open /dev/net/tun for", error.into()),
            };
            let kind = io::Error::from(error).kind();
            io::Error::new(kind, format!("cannot open /dev/net/tun for interface {name}: {error}: {more}"))
        };
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
        let file = rustix::fs::open("/dev/net/tun", flags, rustix::fs::Mode::empty()).map_err(say)?;
        let kind = match carries {
            TunMode::Packets => libc::IFF_TUN,
            TunMode::Frames => libc::IFF_TAP,
        };
        let header = if offload { libc::IFF_VNET_HDR } else { 0 };
        wanted.ifr_ifru.ifru_flags = (kind | libc::IFF_NO_PI | header | queues) as libc::c_short;
        ask(&file, libc::TUNSETIFF, &raw mut wanted as libc::c_ulong)
            .map_err(|error| match error.kind() {
                io::ErrorKind::InvalidInput if queues != 0 => io::Error::new(
                    error.kind(),
                    format!(
                        "cannot open a queue of {name}: the device was made for one queue: remove it, so that \
                         it is made again, or make it with `ip tuntap add {name} … multi_queue`"
                    ),
                ),
                _ => explain_error(name, "make", error),
            })?;
        TunLink::with(file, name, carries, offload, interface::mtu(name)?)
    }

    /// Returns a link on a device that the file has opened, with `IFF_NO_PI`. Its interface may be in another
    /// network namespace, so the caller says its MTU.
    ///
    /// # Errors
    /// The file is no TUN or TAP device.
    pub fn of_file(file: OwnedFd, mtu_bytes: usize) -> io::Result<TunLink> {
        // The system writes the name.
        let mut its = request("tap")?;
        ask(&file, libc::TUNGETIFF, &raw mut its as libc::c_ulong).map_err(|error| {
            io::Error::new(error.kind(), format!("the file is no TUN or TAP device: {error}"))
        })?;
        // SAFETY: the system has written the flags.
        let flags = libc::c_int::from(unsafe { its.ifr_ifru.ifru_flags });
        let name: Vec<u8> =
            its.ifr_name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
        let carries = if flags & libc::IFF_TAP != 0 { TunMode::Frames } else { TunMode::Packets };
        let name = String::from_utf8_lossy(&name).into_owned();
        rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::NONBLOCK)?;
        TunLink::with(file, &name, carries, flags & libc::IFF_VNET_HDR != 0, mtu_bytes)
    }

    /// Returns a link on an open device; `offload` says whether its packets have virtio-net headers.
    fn with(
        file: OwnedFd,
        name: &str,
        carries: TunMode,
        offload: bool,
        mtu_bytes: usize,
    ) -> io::Result<TunLink> {
        let whole = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
        let whole_segments = offload && ask(&file, libc::TUNSETOFFLOAD, whole).is_ok();
        let traits = LinkTraits { mtu_bytes, whole_segments };
        let frame_bytes = match carries {
            TunMode::Packets => 0,
            TunMode::Frames => ethernet::HEADER_BYTES,
        };
        Ok(TunLink {
            file,
            name: name.to_owned(),
            carries,
            frame_bytes,
            has_header: offload,
            traits,
            landing: ReceiveBuffers::new(frame_bytes, (!offload).then_some(traits.mtu_bytes)),
            counters: LinkCounters::default(),
        })
    }

    /// Returns the interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the kind of units that the device carries.
    pub fn carries(&self) -> TunMode {
        self.carries
    }

    /// Returns the open device, for another process.
    pub fn into_file(self) -> OwnedFd {
        self.file
    }

    /// Reads the device's MTU again after it has been changed.
    ///
    /// # Errors
    /// The device is gone.
    pub fn refresh_mtu(&mut self) -> io::Result<()> {
        self.traits.mtu_bytes = interface::mtu(&self.name)?;
        Ok(())
    }
}

impl Link<Pdu> for TunLink {
    fn traits(&self) -> LinkTraits {
        self.traits
    }

    fn receive(&mut self, lent: &mut LinkContext<'_>, into: &mut VecDeque<Pdu>) -> io::Result<()> {
        let TunLink { file, has_header, landing, counters, .. } = self;
        let enough = counters.bytes_in + BURST_BYTES;
        for _ in 0..BURST {
            if counters.bytes_in >= enough {
                break;
            }
            let mut header = [0; HEADER_BYTES];
            let front = if *has_header { &mut header[..] } else { &mut [] };
            let landed =
                landing.read_packet(lent.memory, front, |buffers| rustix::io::readv(&*file, buffers));
            let pdu = match landed {
                Ok(pdu) => pdu,
                Err(ReadError::Starved) => {
                    // The packet stays in the device's queue until there is memory.
                    counters.no_memory += 1;
                    break;
                }
                Err(ReadError::Short) => {
                    counters.malformed += 1;
                    continue;
                }
                // Packets stay in the queue until the system has memory.
                Err(ReadError::System(Errno::AGAIN | Errno::NOMEM | Errno::NOBUFS)) => break,
                Err(ReadError::System(Errno::INTR)) => continue,
                // The interface is down, which does not count as an error.
                Err(ReadError::System(Errno::IO)) => break,
                Err(ReadError::System(error)) => {
                    return Err(explain_error(&self.name, "read from", error.into()));
                }
            };
            virtio::take(&header, pdu, counters, into);
        }
        Ok(())
    }

    fn send(&mut self, units: &mut VecDeque<Pdu>, lent: &mut LinkContext<'_>) -> io::Result<()> {
        let TunLink { file, frame_bytes, has_header, counters, .. } = self;
        while let Some(pdu) = units.front_mut() {
            let header = if *has_header { virtio::describe(pdu, *frame_bytes) } else { [0; HEADER_BYTES] };
            let header = if *has_header { &header[..] } else { &[] };
            match virtio::write(&*file, header, pdu) {
                Ok(_) => {
                    counters.units_out += 1;
                    counters.bytes_out += pdu.len() as u64;
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                // The interface is down, there is no memory, or the system considers the packet invalid.
                Err(Errno::IO | Errno::NOBUFS | Errno::NOMEM | Errno::INVAL) => counters.send_errors += 1,
                Err(error) => return Err(explain_error(&self.name, "write to", error.into())),
            }
            units.pop_front().into_iter().for_each(|pdu| lent.memory.pdus.give(pdu));
        }
        Ok(())
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn counters(&self) -> LinkCounters {
        self.counters
    }
}

impl std::fmt::Debug for TunLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TunLink({}, {:?}, {:?})", self.name, self.carries, self.traits)
    }
}
