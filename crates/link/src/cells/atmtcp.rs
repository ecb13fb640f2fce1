//! Linux's atmtcp: AAL5 frames on a TCP connection, as its ATM-over-TCP driver and the program of that name
//! use it.
//!
//! ```text
//! | VPI 2 | VCI 2 | length 4 | data |   highest byte first
//! 0.0   text: `O vpi.vci address qos`, `C vpi.vci`
//! AAL5  the frame without pad and trailer
//! AAL0  52 bytes: a cell without HEC, its header word in the sender's byte order
//! ```
//!
//! Cells            the board's port carries cells: frames from the peer are segmented into cells here, and
//!                  the board's cells are reassembled into frames, with all checks.
//! Text             text messages say which circuits the peer opens, and how. They are advisory and come in
//!                  many forms; they are only used to find out whether a circuit is AAL0.
//! Loss             if too much output is waiting, a frame is dropped whole and counted, as in Linux. What is
//!                  sent before a peer has connected is counted apart (`no_peer`).
//! Errors           if a length is above 65,535 or a VPI above 255, the peer does not speak atmtcp and the
//!                  link ends.
//! Peers            works with Linux up to 7.0, except kernels that lack a fix of August 2025, in which
//!                  connections hang (5.10 works up to 5.10.241).
//! Not implemented  management cells of AAL5 circuits: this protocol cannot carry them, so they are refused.

use super::connection::{Connection, Role};
use super::sar::{self, Reassembled, Reassembler};
use crate::{BURST, Link, LinkContext, LinkCounters, LinkTraits};
use kiban_atm::TimedCell;
use kiban_atm::wire::atm::{CELL_BYTES_WITHOUT_HEC, Header, Interface, Vc, unpack_without_hec};
use std::collections::{HashSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// The port that Linux's program uses.
pub const PORT: u16 = 2812;

const HEADER_BYTES: usize = 8;
/// Maximum length of a frame or a text message, in bytes.
const DATA_BYTES_MAX: u32 = 65_535;
/// Maximum number of AAL0 circuits that the peer may announce.
const CELL_CIRCUITS_MAX: usize = 256;

/// A link to a peer that speaks atmtcp.
pub struct AtmTcp {
    connection: Connection,
    gather: Reassembler,
    /// Circuits that carry cells, not frames.
    cell_circuits: HashSet<Vc>,
    counters: LinkCounters,
}

impl AtmTcp {
    /// Waits for a peer, or connects to one; `cell_circuits` are the AAL0 circuits.
    ///
    /// # Errors
    /// The connection is refused, or the address is in use or does not belong to this host.
    pub fn open(
        role: Role,
        addresses: &[SocketAddr],
        name: &str,
        cell_circuits: &[Vc],
    ) -> io::Result<AtmTcp> {
        Ok(AtmTcp {
            connection: Connection::open(role, addresses, name.to_owned())?,
            gather: Reassembler::default(),
            cell_circuits: cell_circuits.iter().copied().collect(),
            counters: LinkCounters::default(),
        })
    }

    /// Returns the local address; if port 0 was requested, this includes the port that the system chose.
    pub fn local(&self) -> SocketAddr {
        self.connection.local().expect("a TCP connection has an address")
    }
}

/// Parses the peer's text about opening a circuit. Returns the circuit, and whether it uses AAL0.
fn advice(text: &[u8]) -> Option<(Vc, bool)> {
    let text = std::str::from_utf8(text).ok()?;
    let mut words = text.split_ascii_whitespace();
    let (verb, circuit) = (words.next()?, words.next()?.parse().ok()?);
    (verb == "O").then(|| (circuit, words.any(|word| word.to_ascii_lowercase().contains("aal0"))))
}

/// Returns the header word of an AAL0 cell. Tries both byte orders and chooses the one in which the word has
/// the circuit's VPI and VCI.
fn word_of(cell: &[u8; CELL_BYTES_WITHOUT_HEC], vc: Vc) -> Option<u32> {
    let (word, _) = unpack_without_hec(cell);
    [word.swap_bytes(), word].into_iter().find(|word| Header::from_word(Interface::Uni, *word).vc == vc)
}

impl Link<TimedCell> for AtmTcp {
    fn traits(&self) -> LinkTraits {
        LinkTraits { mtu_bytes: 0, whole_segments: false }
    }

    fn receive(&mut self, lent: &mut LinkContext<'_>, into: &mut VecDeque<TimedCell>) -> io::Result<()> {
        let AtmTcp { connection, cell_circuits, counters, .. } = self;
        let (before, enough) = (into.len(), into.len() + BURST);
        while into.len() < enough {
            let Some((header, rest)) = connection.arrived().split_first_chunk::<HEADER_BYTES>() else {
                if connection.fill()? { continue } else { break }
            };
            let &[p0, p1, c0, c1, l0, l1, l2, l3] = header;
            let vc = Vc::new(u16::from_be_bytes([p0, p1]), u16::from_be_bytes([c0, c1]));
            let length = u32::from_be_bytes([l0, l1, l2, l3]);
            if length > DATA_BYTES_MAX || vc.vpi > 0xff {
                let what = format!("the peer does not speak atmtcp: {length} bytes for circuit {vc}");
                return Err(connection.gone(io::ErrorKind::InvalidData, what));
            }
            let Some(data) = rest.get(..length as usize) else {
                if connection.fill()? { continue } else { break }
            };
            let word = Header::user(vc, false).to_word(Interface::Uni);
            match <&[u8; CELL_BYTES_WITHOUT_HEC]>::try_from(data) {
                _ if vc == Vc::new(0, 0) => match advice(data) {
                    Some((vc, true)) if cell_circuits.len() < CELL_CIRCUITS_MAX => {
                        cell_circuits.insert(vc);
                    }
                    Some((vc, false)) => {
                        cell_circuits.remove(&vc);
                    }
                    _ => {}
                },
                Ok(cell) if cell_circuits.contains(&vc) => match word_of(cell, vc) {
                    Some(word) => into.push_back(TimedCell::new(lent.now, word, *unpack_without_hec(cell).1)),
                    None => counters.malformed += 1,
                },
                _ if cell_circuits.contains(&vc) || data.is_empty() => counters.malformed += 1,
                _ => sar::segment(data, word, lent.now, into),
            }
            counters.bytes_in += u64::from(length) + HEADER_BYTES as u64;
            connection.consume(HEADER_BYTES + length as usize);
        }
        counters.units_in += (into.len() - before) as u64;
        Ok(())
    }

    fn send(&mut self, units: &mut VecDeque<TimedCell>, _: &mut LinkContext<'_>) -> io::Result<()> {
        let AtmTcp { connection, gather, cell_circuits, counters } = self;
        if !connection.is_open() {
            counters.no_peer += units.len() as u64;
            units.clear();
        }
        for cell in units.drain(..) {
            let header = Header::from_word(Interface::Uni, cell.header);
            let is_cell = cell_circuits.contains(&header.vc);
            let native = cell.header.to_ne_bytes();
            let (vc, parts): (Vc, [&[u8]; 2]) = if is_cell {
                (header.vc, [&native, &cell.payload])
            } else {
                match gather.cell(&cell) {
                    Reassembled::Frame(word, frame) => {
                        (Header::from_word(Interface::Uni, word).vc, [frame, &[]])
                    }
                    Reassembled::Nothing => {
                        counters.units_out += 1;
                        continue;
                    }
                    Reassembled::Management | Reassembled::Wrong => {
                        counters.send_errors += 1;
                        continue;
                    }
                }
            };
            if !connection.has_room() {
                connection.flush()?;
            }
            if !connection.has_room() {
                counters.send_errors += 1;
                continue;
            }
            let length = parts[0].len() + parts[1].len();
            let leaving = connection.leaving();
            leaving.extend_from_slice(&vc.vpi.to_be_bytes());
            leaving.extend_from_slice(&vc.vci.to_be_bytes());
            leaving.extend_from_slice(&(length as u32).to_be_bytes());
            parts.iter().for_each(|part| leaving.extend_from_slice(part));
            counters.units_out += 1;
            counters.bytes_out += (HEADER_BYTES + length) as u64;
        }
        connection.flush()
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.connection.file())
    }

    fn counters(&self) -> LinkCounters {
        self.counters
    }
}

impl std::fmt::Debug for AtmTcp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AtmTcp({}, {:?})", self.local(), self.counters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circuit_messages_of_linux_are_decoded() {
        for (text, given) in [
            ("O 0.100 0.0.100 ubr,aal5:max_sdu=9188", Some((Vc::new(0, 100), false))),
            ("O 0.42 0.0.42 ubr,aal0:max_sdu=52", Some((Vc::new(0, 42), true))),
            // The message that the kernel sends for circuits opened by br2684ctl.
            ("O 1.33 0.1.33 ubr,aal5:tx:max_,max_sdu=1524", Some((Vc::new(1, 33), false))),
            ("C 0.100", None),
            ("O", None),
            ("O here", None),
            ("", None),
        ] {
            assert_eq!(advice(text.as_bytes()), given, "{text}");
        }
        assert_eq!(advice(&[0xff, 0xfe]), None);
    }

    #[test]
    fn a_cell_header_is_read_in_either_byte_order() {
        let mut cell = [0; 52];
        cell[..4].copy_from_slice(&[0xa6, 0x02, 0, 0]);
        // The cell has VCI 42 and PTI 3, as sent by an x86.
        assert_eq!(word_of(&cell, Vc::new(0, 42)), Some(0x2a6));
        cell[..4].copy_from_slice(&[0, 0, 0x02, 0xa6]);
        assert_eq!(word_of(&cell, Vc::new(0, 42)), Some(0x2a6));
        assert_eq!(word_of(&cell, Vc::new(0, 43)), None);
    }
}
