//! Cells in datagrams.
//!
//! ```text
//!  0 nonce (8)  8 circuit (2)  10 cells (2)  12 datagram number (4)  16 number of the first cell (8)
//! 24 sending time (8)  32 due time of the first cell (8)
//! 40 each cell: due time relative to the first cell (4), header (4), payload (48); at most 25 cells
//! ```
//!
//! Format    all numbers in network byte order; times are nanoseconds since the sender's start.
//! Cells     several cells are packed into a datagram as in RFC 4717 §5.1: header without HEC, then payload.
//!           Each cell also carries its own time, because a contract is policed by the times of single cells,
//!           while the cells of a datagram arrive together.
//! Length    25 cells are 1440 octets; with UDP and IPv6 1488, within Ethernet's 1500, so that datagrams are
//!           not fragmented. A cell takes 59 octets on Ethernet, compared to 53 on an ATM line.
//! Numbers   datagram numbers show which datagrams are missing, late or duplicated; cell numbers show how
//!           many cells a missing datagram contained.

use kiban_atm::TimedCell;
use kiban_atm::wire::atm::CELL_PAYLOAD_BYTES;
use kiban_base::Instant;
use std::time::Duration;

/// Octets before the cells.
pub(crate) const HEAD_OCTETS: usize = 40;
/// Octets per cell.
const CELL_OCTETS: usize = 8 + CELL_PAYLOAD_BYTES;
/// The maximum number of cells in a datagram.
pub(crate) const CELLS_MAX: usize = 25;
/// The longest datagram.
pub(crate) const DATAGRAM_OCTETS_MAX: usize = HEAD_OCTETS + CELLS_MAX * CELL_OCTETS;
/// The offset of the sending time, which is written last.
const SENT_AT: usize = 24;
/// The number of octets of the measurement's nonce with which each datagram of cells begins.
pub(crate) const NONCE_OCTETS: usize = 8;

/// The length of a cookie. A datagram with a cookie contains only a greeting and the cookie.
pub(crate) const COOKIE_OCTETS: usize = 16;

/// Writes a datagram with a cookie.
pub(crate) fn write_cookie(greeting: &[u8], cookie: &[u8; COOKIE_OCTETS]) -> Vec<u8> {
    [greeting, cookie].concat()
}

/// Reads the cookie of a datagram; returns `None` if it has none. A datagram with a cookie is shorter than
/// any datagram with cells.
pub(crate) fn read_cookie(octets: &[u8], greeting: &[u8]) -> Option<[u8; COOKIE_OCTETS]> {
    octets.strip_prefix(greeting)?.try_into().ok()
}

/// The header in front of the cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) nonce: [u8; NONCE_OCTETS],
    pub(crate) circuit: u16,
    /// The number of the datagram within its circuit.
    pub(crate) number: u32,
    /// The number of its first cell.
    pub(crate) cell: u64,
    /// When the datagram was sent, nanoseconds.
    pub(crate) sent: u64,
}

/// Writes a datagram of cells with their due times (`at`); [`stamp`] sets the sending time later.
///
/// # Panics
/// Panics if there are no cells, or more than [`CELLS_MAX`].
pub(crate) fn write(head: &Head, cells: &[TimedCell]) -> Vec<u8> {
    assert!((1..=CELLS_MAX).contains(&cells.len()), "a datagram holds 1 to CELLS_MAX cells");
    let first = cells[0].at;
    let mut octets = Vec::with_capacity(HEAD_OCTETS + cells.len() * CELL_OCTETS);
    octets.extend_from_slice(&head.nonce);
    octets.extend_from_slice(&head.circuit.to_be_bytes());
    octets.extend_from_slice(&(cells.len() as u16).to_be_bytes());
    octets.extend_from_slice(&head.number.to_be_bytes());
    octets.extend_from_slice(&head.cell.to_be_bytes());
    octets.extend_from_slice(&head.sent.to_be_bytes());
    octets.extend_from_slice(&first.as_nanos().to_be_bytes());
    for cell in cells {
        let after = u32::try_from(cell.at.since(first).as_nanos()).unwrap_or(u32::MAX);
        octets.extend_from_slice(&after.to_be_bytes());
        octets.extend_from_slice(&cell.header.to_be_bytes());
        octets.extend_from_slice(&cell.payload);
    }
    octets
}

/// Sets the sending time.
pub(crate) fn stamp(datagram: &mut [u8], sent: u64) {
    datagram[SENT_AT..SENT_AT + 8].copy_from_slice(&sent.to_be_bytes());
}

/// Returns the number of cells in a datagram that `write` has made.
pub(crate) fn cells(octets: &[u8]) -> u64 {
    ((octets.len() - HEAD_OCTETS) / CELL_OCTETS) as u64
}

/// Reads a datagram of cells; returns `None` if it is invalid. The times of the cells are their due times.
pub(crate) fn read(octets: &[u8]) -> Option<(Head, Vec<TimedCell>)> {
    let (nonce, rest) = octets.split_first_chunk()?;
    let (circuit, rest) = rest.split_first_chunk()?;
    let (count, rest) = rest.split_first_chunk()?;
    let (number, rest) = rest.split_first_chunk()?;
    let (cell, rest) = rest.split_first_chunk()?;
    let (sent, rest) = rest.split_first_chunk()?;
    let (first, rest) = rest.split_first_chunk()?;
    let count = usize::from(u16::from_be_bytes(*count));
    let (cells, left) = rest.as_chunks::<CELL_OCTETS>();
    if !left.is_empty() || cells.len() != count || !(1..=CELLS_MAX).contains(&count) {
        return None;
    }
    let first = Instant::from_nanos(u64::from_be_bytes(*first));
    let head = Head {
        nonce: *nonce,
        circuit: u16::from_be_bytes(*circuit),
        number: u32::from_be_bytes(*number),
        cell: u64::from_be_bytes(*cell),
        sent: u64::from_be_bytes(*sent),
    };
    // Reject times and numbers above [`MOMENT_MAX`], because arithmetic with arbitrary values could overflow.
    if head.sent > MOMENT_MAX || first.as_nanos() > MOMENT_MAX || head.cell > MOMENT_MAX {
        return None;
    }
    let cell = |octets: &[u8; CELL_OCTETS]| {
        let (after, rest) = octets.split_first_chunk().expect("an encoded cell has 56 octets");
        let (header, payload) = rest.split_first_chunk().expect("an encoded cell has 56 octets");
        let at = first + Duration::from_nanos(u32::from_be_bytes(*after).into());
        TimedCell::new(at, u32::from_be_bytes(*header), *payload.first_chunk().expect("48 are left"))
    };
    Some((head, cells.iter().map(cell).collect()))
}

/// A hundred days, the latest time that is accepted.
const MOMENT_MAX: u64 = 100 * 86_400 * 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_round_trip_and_invalid_ones_are_rejected() {
        let head = Head { nonce: *b"nonce---", circuit: 7, number: 3, cell: 44, sent: 0 };
        let cells: Vec<TimedCell> = (0..25)
            .map(|n| TimedCell::new(Instant::from_nanos(1000 + 37 * n), 0x0011_0002, [n as u8; 48]))
            .collect();
        for count in [1, 14, 25] {
            let mut octets = write(&head, &cells[..count]);
            assert!(octets.len() <= DATAGRAM_OCTETS_MAX && octets.len() + 48 <= 1500);
            stamp(&mut octets, 99);
            assert_eq!(read(&octets), Some((Head { sent: 99, ..head }, cells[..count].to_vec())));
            for length in 0..octets.len() {
                assert_eq!(read(&octets[..length]), None, "{length}");
            }
            octets.push(0);
            assert_eq!(read(&octets), None);
        }
        let mut octets = write(&head, &cells[..1]);
        stamp(&mut octets, u64::MAX);
        assert_eq!(read(&octets), None, "a moment that cannot be");
        octets[10..12].copy_from_slice(&[0, 0]);
        assert_eq!(read(&octets[..HEAD_OCTETS]), None, "no cells");
    }
}
