//! Real links: where packets, frames and cells leave the process. One file each.
//!
//! A board's ports meet the world through [`Link`]: one trait, for links of packets, of frames and of cells.
//!
//! Moves     [`Link::receive`] and [`Link::send`] move what there is and never block; whoever drives sleeps on [`Link::file`].
//! Bound     a call receives no more once there are [`BURST`] units, so that no link starves the others.
//! Back      what the link cannot take now stays with the caller, who asks again when the file can be written to. What the
//!           system throws away is counted.
//! Fault     an error of [`Link::receive`] or [`Link::send`] means that the link is gone; all else is a counter.
//! Itself    [`Link::receive`] is called in every turn, and at [`Link::deadline`]: what a link does by itself, it does there.
//!
//! ```text
//! packets, frames   tun (TUN and TAP), ethernet (an interface), xdp (its queue),
//!                   stream (TCP, UDP), pcap (a capture)
//! cells             udp_cells, pseudowire (RFC 4717), atmtcp, stream, pcap
//! around any        impair (loss, delay, a rate ...), record (a capture)
//! which             address: links by name, as operators write them
//! shared            connection, datagram: sockets; landing, unit: packet memory; sar: frames and cells; virtio: whole segments; xsk: AF_XDP
//! ```
//!
//! The other files are the links of the VI NIC and the RDMA NIC: [`channel`], [`packet`], [`shared`], [`shm`], [`tcp`], [`udp`].

pub mod address;
pub mod atmtcp;
pub mod channel;
mod connection;
mod datagram;
pub mod ethernet;
pub mod impair;
pub mod interface;
mod landing;
pub mod packet;
pub mod pcap;
pub mod pseudowire;
pub mod record;
pub mod same_user;
mod sar;
pub mod shared;
pub mod shm;
pub mod stream;
pub mod tcp;
pub mod tun;
pub mod udp;
pub mod udp_cells;
pub mod unit;
mod virtio;
pub mod xdp;
mod xsk;

pub use address::{Address, AnyLink};
pub use connection::Role;

use kiban_ground::{Instant, Memory};
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

/// With so many units a call has received enough: what its last read brought beyond is at most one datagram or frame.
pub const BURST: usize = 64;
/// With so many bytes as well, where segments are whole: what the system has just written is still in the cache when the host
/// takes it.
const BURST_BYTES: u64 = 256 << 10;

kiban_ground::counters! {
    /// What happened on a link.
    pub struct LinkCounters {
        /// Packets, frames or cells that arrived. A segment that is cut later counts as one.
        units_in,
        /// Their bytes.
        bytes_in,
        /// Units that left.
        units_out,
        /// Their bytes.
        bytes_out,
        /// Units that arrived where there was no memory for them.
        starved,
        /// What arrived and is none of the link's units: too short, too long, of another form.
        malformed,
        /// What arrived from somebody who is not the link's peer.
        strangers,
        /// Datagrams or frames that the system threw away before the link could take them: nobody looked in time. Devices of
        /// this host (TUN, TAP) count theirs themselves (`ip -s link`).
        overrun,
        /// Units that were to leave and did not: the link is down, its queue is full, or it cannot carry them.
        refused,
        /// Units that were lost on purpose (`loss=`), in both directions, as the others of harm.
        harm_lost,
        /// Units that found too many waiting or under way on a link that is slowed down or delayed (`queue=`).
        harm_queue_full,
        /// Units with a bit flipped (`corrupt=`).
        harm_flipped,
        /// Units that came twice (`duplicate=`).
        harm_doubled,
        /// Times that units were held back (`reorder=`).
        harm_held_back,
    }
}

/// What a driver lends to a link.
pub struct Lent<'a> {
    /// The moment of this call.
    pub now: Instant,
    /// The packet memory of the board behind the link.
    pub memory: &'a mut Memory,
}

/// What a link is like, for the port in front of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traits {
    /// The longest IP packet, bytes; of cells, none.
    pub mtu_bytes: usize,
    /// Whether segments of TCP go through it whole, to be cut by somebody behind it (the note `cut` of a PDU).
    pub whole_segments: bool,
}

/// A link for units of one kind: packets or frames ([`kiban_ground::Pdu`]), or cells ([`kiban_stack::atm::TimedCell`]).
///
/// PDUs that come from a link know their sums, or are noted as verified.
pub trait Link<U>: Send {
    /// What it is like.
    fn traits(&self) -> Traits;

    /// Moves what has arrived behind `into`, until there are [`BURST`] units, and does what its deadline was for.
    ///
    /// # Errors
    /// The link is gone.
    fn receive(&mut self, lent: &mut Lent<'_>, into: &mut VecDeque<U>) -> io::Result<()>;

    /// Sends from the front of `units` what it can take now; the rest stays.
    ///
    /// # Errors
    /// The link is gone.
    fn send(&mut self, units: &mut VecDeque<U>, lent: &mut Lent<'_>) -> io::Result<()>;

    /// What can be read when something has arrived, and written to when there is room again. None: only time makes it act.
    fn file(&self) -> Option<BorrowedFd<'_>>;

    /// When it acts by itself; may be early, never late.
    fn deadline(&self) -> Instant {
        Instant::NEVER
    }

    /// What has happened.
    fn counters(&self) -> LinkCounters;
}
