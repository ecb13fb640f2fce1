//! The selective acknowledgement of kiban's ends, which no standard defines: which packets have arrived.
//!
//! ```text
//! BTH    opcode 0xd1; the PSN is that of the first packet that is missing
//! AETH   a positive acknowledgement: everything before that PSN is executed
//!  0     reserved 8 | PSN of the first bit 24
//!  4     how many packets after the missing one the responder keeps 32
//!  8     256 bits, the first in the highest bit of the first octet: the packet has arrived
//! ```
//!
//! Purpose    after a loss, the requester sends only what is missing.
//! Peers      it is sent only to a peer whose packets have the mark of selective retransmission
//!            ([`super::Bth::selective`]); other implementations never get it.
//! Loss       acknowledgements overlap, so that some of them may be lost.

use super::bth::PSN_MASK;
use kiban_base::Malformed;

/// The number of packets that one acknowledgement tells about.
pub const BLOCK_PACKETS: u32 = 256;
const MAP_BYTES: usize = BLOCK_PACKETS as usize / 8;

/// Which packets of a block have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SelectiveAck {
    /// The PSN of the block's first packet, 24 bits.
    pub first: u32,
    /// How many packets after the first missing one the responder keeps; it drops those beyond.
    pub span: u32,
    map: [u8; MAP_BYTES],
}

impl SelectiveAck {
    /// Length of the header in bytes.
    pub const BYTES: usize = 8 + MAP_BYTES;

    /// Returns an acknowledgement for the block that ends with a PSN. `has_arrived` is asked for each PSN of
    /// the block.
    pub fn new(last: u32, span: u32, has_arrived: impl Fn(u32) -> bool) -> SelectiveAck {
        let first = last.wrapping_sub(BLOCK_PACKETS - 1) & PSN_MASK;
        let mut ack = SelectiveAck { first, span, map: [0; MAP_BYTES] };
        for at in 0..BLOCK_PACKETS {
            if has_arrived(first.wrapping_add(at) & PSN_MASK) {
                ack.map[at as usize / 8] |= 0x80 >> (at % 8);
            }
        }
        ack
    }

    /// Returns the distances of the packets that have arrived from the block's first, in order.
    pub fn arrived(&self) -> impl Iterator<Item = u32> + '_ {
        (0..BLOCK_PACKETS).filter(|at| self.map[*at as usize / 8] & 0x80 >> (at % 8) != 0)
    }

    /// Decodes the header.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn read(bytes: &[u8]) -> Result<(SelectiveAck, usize), Malformed> {
        let bytes = bytes.first_chunk::<{ SelectiveAck::BYTES }>().ok_or(Malformed::Truncated)?;
        let (mut map, word) = ([0; MAP_BYTES], |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        });
        map.copy_from_slice(&bytes[8..]);
        Ok((SelectiveAck { first: word(0) & PSN_MASK, span: word(4), map }, SelectiveAck::BYTES))
    }

    /// Writes the header.
    ///
    /// # Panics
    /// If `target` is shorter than the header.
    pub fn write(&self, target: &mut [u8]) -> usize {
        let bytes = target.first_chunk_mut::<{ SelectiveAck::BYTES }>().expect("room for the header");
        bytes[..4].copy_from_slice(&(self.first & PSN_MASK).to_be_bytes());
        bytes[4..8].copy_from_slice(&self.span.to_be_bytes());
        bytes[8..].copy_from_slice(&self.map);
        SelectiveAck::BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_block_keeps_its_bits_on_the_wire() {
        for (last, first) in [(255, 0), (256, 1), (0xff_ffff, 0xff_ff00), (9, 0xff_ff0a)] {
            let at = |distance: u32| (first + distance) & PSN_MASK;
            let has_arrived = |psn: u32| [at(0), at(9), at(255)].contains(&psn);
            let ack = SelectiveAck::new(last, 77, has_arrived);
            let mut bytes = [0xa5; SelectiveAck::BYTES];
            assert_eq!(ack.write(&mut bytes), SelectiveAck::BYTES);
            assert_eq!(SelectiveAck::read(&bytes), Ok((ack, SelectiveAck::BYTES)));
            assert_eq!((ack.first, ack.span), (first, 77));
            assert_eq!((bytes[8], bytes[9], bytes[39]), (0x80, 0x40, 0x01));
            assert_eq!(ack.arrived().collect::<Vec<_>>(), [0, 9, 255]);
        }
        assert_eq!(SelectiveAck::read(&[0; SelectiveAck::BYTES - 1]), Err(Malformed::Truncated));
    }
}
