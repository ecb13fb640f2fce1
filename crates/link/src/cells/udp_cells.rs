//! Cells in UDP datagrams: 53 bytes each, with their HEC, as Dynamips and GNS3 carry ATM (their UDP network
//! I/O).
//!
//! ```text
//! one      | cell 53 |                       one datagram per cell
//! packed   | cell 53 | cell 53 | … |         a datagram up to the path's packet size
//! ```
//!
//! Purpose          carry the 353,208 cells per second of an OC-3c in each direction at low cost: a train of
//!                  datagrams is sent or received with one call.
//! Forms            the link accepts both forms, whichever it sends.
//! Order            as with UDP: between two hosts on one path, datagrams arrive in the order of sending.
//!                  AAL5's CRC detects lost cells.
//! HEC              the HEC passes through unchanged; the end of the circuit checks it.
//! Not implemented  idle cells, sequence numbers.

use super::datagram::{Datagrams, SendResult, TRAIN_BYTES_MAX, TRAIN_MAX};
use crate::{Link, LinkContext, LinkCounters, LinkTraits};
use kiban_atm::TimedCell;
use kiban_atm::wire::atm::CELL_BYTES;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

/// Number of cells in a packed datagram that fits into a packet of 1500 bytes, over IPv4 or IPv6.
pub const PACKED_CELLS: usize = 27;
/// Cells of the longest datagram.
pub const PACKED_CELLS_MAX: usize = TRAIN_BYTES_MAX / CELL_BYTES;

/// A link of cells to a peer.
pub struct UdpCells {
    datagrams: Datagrams,
    name: String,
    /// Maximum number of cells per sent datagram.
    packed: usize,
    train: Vec<u8>,
    counters: LinkCounters,
}

impl UdpCells {
    /// Opens a link between `local` and `peer` with up to `packed` cells per datagram: 1 for peers that
    /// support no more.
    ///
    /// # Errors
    /// The address is in use or does not belong to this host.
    pub fn open(local: SocketAddr, peer: SocketAddr, packed: usize) -> io::Result<UdpCells> {
        Ok(UdpCells {
            datagrams: Datagrams::open(local, peer, false)?,
            name: format!("udp-cells:{local}-{peer}"),
            packed: packed.clamp(1, PACKED_CELLS_MAX),
            train: Vec::new(),
            counters: LinkCounters::default(),
        })
    }

    /// Returns the local address; if port 0 was requested, this includes the port that the system chose.
    pub fn local(&self) -> SocketAddr {
        self.datagrams.local()
    }
}

impl Link<TimedCell> for UdpCells {
    fn traits(&self) -> LinkTraits {
        LinkTraits { mtu_bytes: 0, whole_segments: false }
    }

    fn receive(&mut self, lent: &mut LinkContext<'_>, into: &mut VecDeque<TimedCell>) -> io::Result<()> {
        let UdpCells { datagrams, name, counters, .. } = self;
        let take = |datagram: &[u8], counters: &mut LinkCounters, into: &mut VecDeque<TimedCell>| {
            let (cells, []) = datagram.as_chunks::<CELL_BYTES>() else {
                counters.malformed += 1;
                return;
            };
            counters.units_in += cells.len() as u64;
            counters.bytes_in += datagram.len() as u64;
            into.extend(cells.iter().map(|cell| TimedCell::from_bytes(lent.now, cell)));
        };
        datagrams.each(into, counters, take).map_err(|error| with_name(name, error))
    }

    fn send(&mut self, units: &mut VecDeque<TimedCell>, _: &mut LinkContext<'_>) -> io::Result<()> {
        let most = self.packed * (PACKED_CELLS_MAX / self.packed).min(TRAIN_MAX);
        while !units.is_empty() {
            let count = units.len().min(most);
            self.train.clear();
            units.range(..count).for_each(|cell| self.train.extend_from_slice(&cell.to_bytes()));
            let left = self.datagrams.send(&self.train, self.packed * CELL_BYTES);
            let (sent, is_full) = match left {
                SendResult::All => (count, false),
                SendResult::Some(datagrams) => ((datagrams * self.packed).min(count), true),
                SendResult::None => {
                    self.counters.send_errors += count as u64;
                    units.drain(..count);
                    continue;
                }
            };
            self.counters.units_out += sent as u64;
            self.counters.bytes_out += (sent * CELL_BYTES) as u64;
            units.drain(..sent);
            if is_full {
                break;
            }
        }
        Ok(())
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.datagrams.as_fd())
    }

    fn counters(&self) -> LinkCounters {
        self.counters
    }
}

/// Prefixes an error with the link's name.
pub(super) fn with_name(name: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{name}: {error}"))
}

impl std::fmt::Debug for UdpCells {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UdpCells({}, {} in a datagram)", self.name, self.packed)
    }
}
