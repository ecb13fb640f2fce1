//! Real links, through which packets, frames and cells enter and leave the process, with one file per link
//! type.
//!
//! ```
//! use kiban_link::Address;
//! use std::time::Duration;
//!
//! // A TUN device that loses one packet of a hundred and delays the others.
//! let address: Address = "tun:kiban0,loss=1%,delay=5ms".parse()?;
//! assert_eq!(address.options.loss, 0.01);
//! assert_eq!(address.options.delay, Duration::from_millis(5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A board's ports reach the outside through [`Link`]: one trait, for links of packets, of frames and of
//! cells.
//!
//! Calls            [`Link::receive`] and [`Link::send`] move as many units as possible and never block; the
//!                  driver sleeps on [`Link::file`].
//! Bound            a call stops receiving once there are [`BURST`] units, so that no link starves the
//!                  others.
//! Back-pressure    units that the link cannot take now stay with the caller, who retries when the file is
//!                  writable. Losses in the system are counted.
//! Errors           an error of [`Link::receive`] or [`Link::send`] means that the link is gone; everything
//!                  else is a counter.
//! Timers           [`Link::receive`] is called in every turn, and at [`Link::deadline`]; a link does its
//!                  timed work in that call.
//!
//! ```text
//! packets, frames   tun (TUN and TAP), ethernet (an interface), xdp (its queue),
//!                   stream (TCP, UDP, Unix sockets), unix_datagrams, pcap (a capture)
//! cells             udp_cells, pseudowire (RFC 4717), atmtcp, stream, pcap
//! around any link   impair (loss, delay, a rate ...), record (a capture)
//! names             address: links as operators write them
//! shared            connection, datagram: sockets; landing, unit: packet memory; sar: frames and cells; virtio: whole segments; xsk: AF_XDP
//! ```

pub mod address;
pub mod atm;
pub mod board_driver;
pub mod cells;
pub mod fd_program;
pub mod frames;
pub mod impair;
pub mod pcap;
pub mod record;
mod shards;
pub mod unit;

pub use address::{Address, AnyLink};
pub use board_driver::Driver;
pub use cells::connection::Role;
pub use fd_program::{EpollSet, FdProgram, Interest};
pub use shards::ShardRings;

use kiban_base::{Instant, Memory};
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

/// A call stops receiving at this number of units; its last read may exceed it by at most one datagram or
/// frame.
pub const BURST: usize = 64;
/// With whole segments, a call also stops at this number of bytes, so that the data is still in the CPU cache
/// when the host reads it.
pub const BURST_BYTES: u64 = 256 << 10;
/// Once this number of bytes waits for a link, a driver sends them to it. Units that the link does not accept
/// wait at the port, which holds back the senders.
pub const TX_QUEUE_BYTES: usize = 256 << 10;
/// The largest segment that TCP passes to a port that cuts it, or whose link does.
pub const SEGMENT_BYTES: u32 = 65_000;

kiban_base::counters! {
    /// Counters of a link.
    pub struct LinkCounters {
        /// Packets, frames or cells that arrived. A segment that will be cut later counts as one unit.
        units_in,
        /// Bytes of the units that arrived.
        bytes_in,
        /// Units that were sent.
        units_out,
        /// Bytes of the units that were sent.
        bytes_out,
        /// Units that arrived but were dropped because there was no memory.
        no_memory,
        /// Received data that is not a valid unit of the link: too short, too long, or malformed.
        malformed,
        /// Units received from a sender that is not the link's peer.
        wrong_sender,
        /// Datagrams or frames that the system dropped before the link read them, because its queue was full.
        /// For devices of this host (TUN, TAP), the system keeps this count (`ip -s link`).
        overrun,
        /// Units that could not be sent: the link is down, its queue is full, or it cannot carry them.
        send_errors,
        /// Units that were not sent because no peer has connected to the link yet.
        no_peer,
        /// Units dropped on purpose (`loss=`). Like all impairment counters, this counts both directions.
        impair_lost,
        /// Units dropped because too many were waiting or in transit on a link with a rate or a delay
        /// (`queue=`).
        impair_queue_full,
        /// Units with a flipped bit (`corrupt=`).
        impair_corrupted,
        /// Units that were duplicated (`duplicate=`).
        impair_duplicated,
        /// Number of times that a unit was held back (`reorder=`).
        impair_reordered,
    }
}

/// The time and the packet memory that a driver passes to a link for one call.
pub struct LinkContext<'a> {
    /// The time of this call.
    pub now: Instant,
    /// The packet memory of the board behind the link.
    pub memory: &'a mut Memory,
}

/// Properties of a link that its port depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkTraits {
    /// The longest IP packet, in bytes; meaningless for cells.
    pub mtu_bytes: usize,
    /// Whether the link accepts whole TCP segments, which are cut at a lower layer (see `cut` in a PDU's
    /// notes).
    pub whole_segments: bool,
}

/// A link for units of one kind: packets or frames ([`kiban_base::Pdu`]), or cells
/// ([`kiban_atm::TimedCell`]).
///
/// PDUs from a link carry the sums of their bytes, or are marked as verified.
pub trait Link<U>: Send {
    /// Returns the link's properties.
    fn traits(&self) -> LinkTraits;

    /// Appends arrived units to `into`, until there are [`BURST`] units, and does the work for which its
    /// deadline was set.
    ///
    /// # Errors
    /// The link is gone.
    fn receive(&mut self, lent: &mut LinkContext<'_>, into: &mut VecDeque<U>) -> io::Result<()>;

    /// Sends as many units from the front of `units` as the link can take now; the rest stays.
    ///
    /// # Errors
    /// The link is gone.
    fn send(&mut self, units: &mut VecDeque<U>, lent: &mut LinkContext<'_>) -> io::Result<()>;

    /// Returns the file that is readable when units have arrived, and writable when there is room again;
    /// `None` if the link acts only on its deadline.
    fn file(&self) -> Option<BorrowedFd<'_>>;

    /// Returns when the link must be called even if nothing arrives. The time may be early, but is never
    /// late.
    fn deadline(&self) -> Instant {
        Instant::NEVER
    }

    /// Returns the link's counters.
    fn counters(&self) -> LinkCounters;
}
