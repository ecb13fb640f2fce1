//! Multiprotocol encapsulation of a circuit's frames (RFC 2684, RFC 2225 §6).
//!
//! Purpose          determine the protocol of a frame and strip the encapsulation header.
//! Transmit path    LLC/SNAP pushes 8 bytes (10 for bridged frames) onto the head; VC-mux pushes none (2 pad
//!                  bytes for bridged frames).
//! Receive path     the same bytes are removed; if the head is too short they are pulled up from the body and
//!                  counted.
//! Not implemented  ISO protocols, bridged media other than Ethernet; the protocol of an unknown
//!                  encapsulation is not guessed.

use crate::counters::EncapsulationCounters;
use crate::wire::llc_snap::{BRIDGED_BYTES, Header, ROUTED_BYTES};
use core::fmt;
use kiban_base::Malformed;
use kiban_base::numbers::ether_type;
use kiban_base::{Copies, Pdu};

/// Pad before a bridged frame on a VC-mux circuit (RFC 2684 §6.2).
const BRIDGED_PAD_BYTES: usize = 2;

/// The protocol that a frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carried {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// ATMARP and InATMARP.
    AtmArp,
    /// An Ethernet frame.
    Bridged {
        /// Whether the frame still ends with its four FCS bytes.
        with_fcs: bool,
    },
}

/// The encapsulation of a circuit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encapsulation {
    /// LLC/SNAP, with a header in every frame (RFC 2684 §5): the default of RFC 2225.
    LlcSnap,
    /// VC multiplexing: the circuit carries one protocol that both ends know (RFC 2684 §6).
    VcMux(Carried),
}

/// The circuit carries a different protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProtocolMismatch;

impl fmt::Display for ProtocolMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the circuit carries another protocol: open a circuit for this one, or use LLC/SNAP")
    }
}

impl Carried {
    const fn header(self) -> Header {
        match self {
            Carried::Ipv4 => Header::Routed { ether_type: ether_type::IPV4 },
            Carried::Ipv6 => Header::Routed { ether_type: ether_type::IPV6 },
            Carried::AtmArp => Header::Routed { ether_type: ether_type::ARP },
            Carried::Bridged { with_fcs } => Header::Bridged { with_fcs },
        }
    }
}

impl Encapsulation {
    /// Returns the length of the encapsulation header in bytes.
    pub const fn header_bytes(self, carried: Carried) -> usize {
        match (self, carried) {
            (Encapsulation::LlcSnap, Carried::Bridged { .. }) => BRIDGED_BYTES,
            (Encapsulation::LlcSnap, _) => ROUTED_BYTES,
            (Encapsulation::VcMux(_), Carried::Bridged { .. }) => BRIDGED_PAD_BYTES,
            (Encapsulation::VcMux(_), _) => 0,
        }
    }

    /// Pushes the encapsulation header of a protocol onto a PDU.
    ///
    /// # Errors
    /// [`ProtocolMismatch`] if the circuit carries only another protocol; the PDU is unchanged.
    pub fn push(self, carried: Carried, pdu: &mut Pdu) -> Result<(), ProtocolMismatch> {
        match self {
            Encapsulation::LlcSnap => {
                carried.header().write(pdu.push_head(self.header_bytes(carried)));
                Ok(())
            }
            Encapsulation::VcMux(only) if only == carried => {
                pdu.push_head(self.header_bytes(carried)).fill(0);
                Ok(())
            }
            Encapsulation::VcMux(_) => Err(ProtocolMismatch),
        }
    }

    /// Removes the encapsulation header from a received PDU and returns the protocol. A PDU of an unknown
    /// protocol is unchanged.
    ///
    /// # Errors
    /// `Truncated`, `Encapsulation`; both are counted.
    pub fn pull(
        self,
        pdu: &mut Pdu,
        copies: &mut Copies,
        counters: &mut EncapsulationCounters,
    ) -> Result<Carried, Malformed> {
        let carried = self.pull_uncounted(pdu, copies);
        match carried {
            Ok(_) => counters.frames_in += 1,
            Err(Malformed::Truncated) => counters.frames_truncated += 1,
            Err(_) => counters.frames_unknown += 1,
        }
        carried
    }

    fn pull_uncounted(self, pdu: &mut Pdu, copies: &mut Copies) -> Result<Carried, Malformed> {
        let carried = match self {
            Encapsulation::LlcSnap => {
                // The bridged header is the longer one. A routed PDU can be shorter than that.
                reach(pdu, BRIDGED_BYTES.min(pdu.len()), copies)?;
                match Header::read(pdu.head())?.0 {
                    Header::Routed { ether_type: ether_type::IPV4 } => Carried::Ipv4,
                    Header::Routed { ether_type: ether_type::IPV6 } => Carried::Ipv6,
                    Header::Routed { ether_type: ether_type::ARP } => Carried::AtmArp,
                    Header::Routed { .. } => return Err(Malformed::Encapsulation),
                    Header::Bridged { with_fcs } => Carried::Bridged { with_fcs },
                }
            }
            Encapsulation::VcMux(only) => only,
        };
        let header_bytes = self.header_bytes(carried);
        reach(pdu, header_bytes, copies)?;
        pdu.pull_head(header_bytes);
        Ok(carried)
    }
}

/// Makes the first `count` bytes contiguous in the head.
fn reach(pdu: &mut Pdu, count: usize, copies: &mut Copies) -> Result<(), Malformed> {
    let moved = pdu.pull_up(count).ok_or(Malformed::Truncated)?;
    copies.header_bytes += moved as u64;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use kiban_base::{PagePool, PduPool};

    const ALL: [Carried; 5] = [
        Carried::Ipv4,
        Carried::Ipv6,
        Carried::AtmArp,
        Carried::Bridged { with_fcs: true },
        Carried::Bridged { with_fcs: false },
    ];

    fn bytes_of(pdu: &Pdu) -> Vec<u8> {
        pdu.runs().flatten().copied().collect()
    }

    #[test]
    fn a_pushed_header_is_removed_again() {
        let (mut blocks, mut copies) = (PduPool::new(1), Copies::default());
        let mut counters = EncapsulationCounters::default();
        for carried in ALL {
            for encapsulation in [Encapsulation::LlcSnap, Encapsulation::VcMux(carried)] {
                let mut pdu = blocks.take().unwrap();
                pdu.push_head(4).copy_from_slice(b"body");
                encapsulation.push(carried, &mut pdu).unwrap();
                assert_eq!(pdu.len(), 4 + encapsulation.header_bytes(carried));
                assert_eq!(encapsulation.pull(&mut pdu, &mut copies, &mut counters), Ok(carried));
                assert_eq!(bytes_of(&pdu), b"body");
            }
        }
        assert_eq!((counters.frames_in, copies.header_bytes), (10, 0));
    }

    #[test]
    fn a_header_in_the_body_is_pulled_up_and_counted() {
        let (mut blocks, mut pool, mut copies) = (PduPool::new(1), PagePool::new(1, 64), Copies::default());
        let mut counters = EncapsulationCounters::default();
        let mut pdu = blocks.take().unwrap();
        let bytes = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0, b'i', b'p', b'v', b'4'];
        pdu.push_body(pool.take().unwrap().append(&bytes).unwrap()).unwrap();
        assert_eq!(Encapsulation::LlcSnap.pull(&mut pdu, &mut copies, &mut counters), Ok(Carried::Ipv4));
        assert_eq!((bytes_of(&pdu), copies.header_bytes), (b"ipv4".to_vec(), 10));
    }

    #[test]
    fn an_unknown_encapsulation_is_reported_and_left_unchanged() {
        let (mut blocks, mut copies) = (PduPool::new(1), Copies::default());
        let mut counters = EncapsulationCounters::default();
        let rows: [(&[u8], Malformed); 4] = [
            (&[0xaa, 0xaa, 3, 0, 0, 0, 0x12], Malformed::Truncated),
            (&[0xaa, 0xaa, 3, 0, 0, 0, 0x12, 0x34, 1], Malformed::Encapsulation),
            (&[0xfe, 0xfe, 3, 0, 0, 0, 8, 0], Malformed::Encapsulation),
            (&[0xaa, 0xaa, 3, 0, 0x80, 0xc2, 0, 7, 0], Malformed::Truncated),
        ];
        for (bytes, expected) in rows {
            let mut pdu = blocks.take().unwrap();
            pdu.extend_head(bytes);
            assert_eq!(Encapsulation::LlcSnap.pull(&mut pdu, &mut copies, &mut counters), Err(expected));
            assert_eq!(bytes_of(&pdu), bytes);
        }
        assert_eq!((counters.frames_truncated, counters.frames_unknown), (2, 2));
        let mut pdu = blocks.take().unwrap();
        assert_eq!(Encapsulation::VcMux(Carried::Ipv4).push(Carried::Ipv6, &mut pdu), Err(ProtocolMismatch));
    }
}
