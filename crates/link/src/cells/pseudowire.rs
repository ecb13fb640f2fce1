//! A pseudowire for cells: the N-to-one cell mode of RFC 4717 in MPLS-in-UDP (RFC 7510), with a label agreed
//! on by the operators.
//!
//! ```text
//! UDP 6635 | label 20, class 3, bottom 1, TTL 8 | control word 4, if agreed on | k x ( header word 4 | payload 48 )
//! control word   0000 | flags 4 | 0 2 | length 6 | sequence number 16
//! ```
//!
//! Cells            a packet carries as many cells as are waiting, up to a configured number; on receipt, any
//!                  number is accepted. The header word has no HEC: it is removed when sending and recomputed
//!                  on receipt. The VPI has 12 bits. The control word's length is 0.
//! Order            with a control word, packets have sequence numbers (RFC 4385 §4). Late packets are
//!                  dropped and counted; gaps are counted. Sequence number 0 means that the peer does not
//!                  number its packets.
//! Peer             the peer may send from any port, because RFC 7510 §3 spreads flows by the source port.
//! Limits           there is one label in each direction, at the bottom of the stack. There is no signalling
//!                  (LDP), so both ends are configured.
//! Not implemented  1:1 modes, AAL5 modes, VPI translation in path mode, MPLS over GRE.

use super::datagram::{Datagrams, SendResult};
use super::udp_cells::with_name;
use crate::{Link, LinkContext, LinkCounters, LinkTraits};
use kiban_atm::TimedCell;
use kiban_atm::wire::atm::{CELL_BYTES_WITHOUT_HEC, pack_without_hec, unpack_without_hec};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

/// The port of MPLS in UDP (RFC 7510 §3).
pub const PORT: u16 = 6635;
/// The largest label (RFC 3032 §2.1).
pub const LABEL_MAX: u32 = 0xf_ffff;
/// The first label that no standard reserves (RFC 3032 §2.1).
pub const LABEL_FIRST: u32 = 16;
/// Number of cells that fit into a packet of 1500 bytes with IPv6, UDP, label and control word.
pub const CELLS: usize = 27;
/// Cells in the longest datagram.
pub const CELLS_MAX: usize = 1259;

const LABEL_BYTES: usize = 4;
const WORD_BYTES: usize = 4;
/// The bottom-of-stack bit, and a TTL of 255.
const BOTTOM: u32 = 0x100;
const TTL: u32 = 0xff;

/// Parameters that both ends agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PseudowireConfig {
    /// The label of sent packets.
    pub label: u32,
    /// The label of received packets.
    pub label_in: u32,
    /// Whether packets have a control word.
    pub control_word: bool,
    /// Whether packets with a control word have sequence numbers; if not, the field is 0.
    pub sequence: bool,
    /// Maximum number of cells per packet.
    pub cells_max: usize,
}

kiban_base::counters! {
    /// Counters of a pseudowire, in addition to those that every link has.
    pub struct PseudowireCounters {
        /// Packets lost, according to gaps in the sequence numbers.
        packets_lost,
        /// Packets that arrived after later ones, and were dropped.
        packets_late,
    }
}

/// A pseudowire to a peer.
pub struct Pseudowire {
    datagrams: Datagrams,
    name: String,
    config: PseudowireConfig,
    /// The sequence number of the next packet to send. `expected` is the sequence number of the next packet
    /// to arrive.
    next_out: u16,
    expected: Option<u16>,
    packet: Vec<u8>,
    counters: LinkCounters,
    order: PseudowireCounters,
}

/// Returns the next sequence number; 0 is skipped (RFC 4385 §4.1).
fn after(number: u16) -> u16 {
    number.checked_add(1).unwrap_or(1)
}

impl Pseudowire {
    /// Opens a pseudowire between two addresses. Packets are sent to the peer's port; received packets may
    /// come from any of its ports.
    ///
    /// # Errors
    /// A label is out of range, or the address is in use or does not belong to this host.
    pub fn open(local: SocketAddr, peer: SocketAddr, config: PseudowireConfig) -> io::Result<Pseudowire> {
        for label in [config.label, config.label_in] {
            if !(LABEL_FIRST..=LABEL_MAX).contains(&label) {
                let message = format!("invalid label {label}: use {LABEL_FIRST} to {LABEL_MAX}");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
        }
        Ok(Pseudowire {
            datagrams: Datagrams::open(local, peer, true)?,
            name: format!("pseudowire:{local}-{peer}"),
            config: PseudowireConfig { cells_max: config.cells_max.clamp(1, CELLS_MAX), ..config },
            next_out: 1,
            expected: None,
            packet: Vec::new(),
            counters: LinkCounters::default(),
            order: PseudowireCounters::default(),
        })
    }

    /// Returns the local address; if port 0 was requested, this includes the port that the system chose.
    pub fn local(&self) -> SocketAddr {
        self.datagrams.local()
    }

    /// Returns the counters of lost and late packets.
    pub fn order(&self) -> PseudowireCounters {
        self.order
    }
}

/// Returns the cells of a packet, if it has our label and is in order.
fn open<'a>(
    packet: &'a [u8],
    config: &PseudowireConfig,
    expected: &mut Option<u16>,
    order: &mut PseudowireCounters,
) -> Result<&'a [[u8; CELL_BYTES_WITHOUT_HEC]], Fault> {
    let (label, mut rest) = packet.split_first_chunk::<LABEL_BYTES>().ok_or(Fault::Malformed)?;
    let label = u32::from_be_bytes(*label);
    if label >> 12 != config.label_in || label & BOTTOM == 0 {
        return Err(Fault::UnknownLabel);
    }
    let mut number = 0;
    if config.control_word {
        let (word, behind) = rest.split_first_chunk::<WORD_BYTES>().ok_or(Fault::Malformed)?;
        let [first, second, high, low] = *word;
        // RFC 4385 §3: a first nibble of 1 is the associated channel; other values are IP.
        if first >> 4 != 0 {
            return Err(Fault::Malformed);
        }
        // This mode does not use the length field. If a peer sets it nevertheless, it is the length of
        // control word and cells, and the rest is padding (RFC 4385 §3).
        let length = usize::from(second & 0x3f);
        rest = match length {
            0 => behind,
            _ => length
                .checked_sub(WORD_BYTES)
                .and_then(|length| behind.get(..length))
                .ok_or(Fault::Malformed)?,
        };
        number = u16::from_be_bytes([high, low]);
    }
    let (cells @ [_, ..], []) = rest.as_chunks() else { return Err(Fault::Malformed) };
    if number != 0 && config.sequence {
        // RFC 4385 §4.2: a sequence number is late unless it is ahead by less than half the range. The first
        // number that arrives is always accepted.
        let ahead = number.wrapping_sub(expected.unwrap_or(number));
        if ahead >= 0x8000 {
            order.packets_late += 1;
            return Err(Fault::Late);
        }
        // The sender skips zero.
        let crossed = u16::from(number < expected.unwrap_or(number));
        order.packets_lost += u64::from(ahead - crossed.min(ahead));
        *expected = Some(after(number));
    }
    Ok(cells)
}

/// Why a packet is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    UnknownLabel,
    Malformed,
    Late,
}

impl Link<TimedCell> for Pseudowire {
    fn traits(&self) -> LinkTraits {
        LinkTraits { mtu_bytes: 0, whole_segments: false }
    }

    fn receive(&mut self, lent: &mut LinkContext<'_>, into: &mut VecDeque<TimedCell>) -> io::Result<()> {
        let Pseudowire { datagrams, name, config, expected, counters, order, .. } = self;
        let take = |packet: &[u8], counters: &mut LinkCounters, into: &mut VecDeque<TimedCell>| match open(
            packet, config, expected, order,
        ) {
            Ok(cells) => {
                counters.units_in += cells.len() as u64;
                counters.bytes_in += packet.len() as u64;
                into.extend(cells.iter().map(|cell| {
                    let (word, payload) = unpack_without_hec(cell);
                    TimedCell::new(lent.now, word, *payload)
                }));
            }
            Err(Fault::UnknownLabel) => counters.wrong_sender += 1,
            Err(Fault::Malformed) => counters.malformed += 1,
            Err(Fault::Late) => {}
        };
        datagrams.each(into, counters, take).map_err(|error| with_name(name, error))
    }

    fn send(&mut self, units: &mut VecDeque<TimedCell>, _: &mut LinkContext<'_>) -> io::Result<()> {
        while !units.is_empty() {
            let count = units.len().min(self.config.cells_max);
            self.packet.clear();
            self.packet.extend_from_slice(&(self.config.label << 12 | BOTTOM | TTL).to_be_bytes());
            if self.config.control_word {
                let number = if self.config.sequence { self.next_out } else { 0 };
                let [high, low] = number.to_be_bytes();
                // RFC 4717, the preferred control word: N-to-one mode does not use the length, which is 0.
                self.packet.extend_from_slice(&[0, 0, high, low]);
            }
            for cell in units.range(..count) {
                let mut bytes = [0; CELL_BYTES_WITHOUT_HEC];
                pack_without_hec(cell.header, &cell.payload, &mut bytes);
                self.packet.extend_from_slice(&bytes);
            }
            match self.datagrams.send(&self.packet, self.packet.len()) {
                SendResult::All => {
                    self.next_out = after(self.next_out);
                    self.counters.units_out += count as u64;
                    self.counters.bytes_out += self.packet.len() as u64;
                }
                SendResult::Some(_) => break,
                SendResult::None => self.counters.send_errors += count as u64,
            }
            units.drain(..count);
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

impl std::fmt::Debug for Pseudowire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pseudowire({}, {:?})", self.name, self.config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: PseudowireConfig =
        PseudowireConfig { label: 16, label_in: 1000, control_word: true, sequence: true, cells_max: 9 };

    fn packet(word: [u8; 4], bytes: usize) -> Vec<u8> {
        let mut packet = (1000u32 << 12 | BOTTOM | 2).to_be_bytes().to_vec();
        packet.extend(word);
        packet.resize(8 + bytes, 7);
        packet
    }

    #[test]
    fn cell_formats_are_decoded_as_in_the_standard() {
        for (packet, given) in [
            (packet([0, 56, 0, 0], 52), Ok(1)),
            // The packet is padded to the minimum length of an Ethernet frame.
            (packet([0, 56, 0, 0], 60), Ok(1)),
            (packet([0, 0, 0, 0], 3 * 52), Ok(3)),
            // The flags are ignored in N-to-one mode.
            (packet([0x0f, 0, 0, 0], 2 * 52), Ok(2)),
            (packet([0, 57, 0, 0], 60), Err(Fault::Malformed)),
            (packet([0, 3, 0, 0], 52), Err(Fault::Malformed)),
            (packet([0, 63, 0, 0], 52), Err(Fault::Malformed)),
            (packet([0, 0, 0, 0], 0), Err(Fault::Malformed)),
            (packet([0, 0, 0, 0], 51), Err(Fault::Malformed)),
            (packet([0x10, 0, 0, 0], 52), Err(Fault::Malformed)),
            (vec![0, 0x3e, 0x81], Err(Fault::Malformed)),
            // A packet with an unknown label, and one with our label but without the bottom-of-stack bit.
            (vec![0, 0x3e, 0x91, 2, 0, 0, 0, 0], Err(Fault::UnknownLabel)),
            (vec![0, 0x3e, 0x80, 2, 0, 0, 0, 0], Err(Fault::UnknownLabel)),
        ] {
            let mut order = PseudowireCounters::default();
            let cells = open(&packet, &CONFIG, &mut None, &mut order).map(<[_]>::len);
            assert_eq!(cells, given, "{packet:02x?}");
        }
    }

    #[test]
    fn sequence_numbers_reveal_losses_and_drop_late_packets() {
        let mut expected = None;
        let mut order = PseudowireCounters::default();
        for (number, is_taken, lost) in [
            (65_533, true, 0),
            (65_534, true, 0),
            (65_534, false, 0),
            // Sequence number 0: the peer does not number its packets.
            (0, true, 0),
            // Packet 65535 is lost. Number 0 is never used, so it does not count as lost.
            (1, true, 1),
            (65_535, false, 1),
            (2, true, 1),
            (5, true, 3),
            (3, false, 3),
            (6, true, 3),
        ] {
            let [high, low] = u16::to_be_bytes(number);
            let packet = packet([0, 56, high, low], 52);
            let taken = open(&packet, &CONFIG, &mut expected, &mut order).is_ok();
            assert_eq!((taken, order.packets_lost), (is_taken, lost), "{number}");
        }
        assert_eq!(order.packets_late, 3);
    }
}
