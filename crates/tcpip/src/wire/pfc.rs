//! Priority-based flow control (IEEE 802.1Q §36, IEEE 802.3 annex 31D): asks the other end of a link to pause
//! some of its eight priorities.
//!
//! ```text
//! MAC control frame (EtherType 8808) to 01:80:c2:00:00:01
//! | opcode 0x0101 | class enable vector 16 | eight times 16 | padding
//! ```
//!
//! Time      in quanta of 512 bit times of the link. A time of zero ends a pause.
//! Vector    bit n, counted from the lowest, says whether the time of priority n is valid.

use kiban_base::Malformed;
use kiban_base::ethernet::Mac;

/// The destination of MAC control frames, which bridges do not forward (IEEE 802.3 annex 31B).
pub const GROUP: Mac = Mac([0x01, 0x80, 0xc2, 0x00, 0x00, 0x01]);
/// Number of priorities.
pub const PRIORITIES: usize = 8;
/// Bit times of a quantum (IEEE 802.3 §31B.2).
pub const QUANTUM_BITS: u64 = 512;

/// The opcode (IEEE 802.3 annex 31A).
const OPCODE: u16 = 0x0101;
/// Bytes of the fields that are read and written.
const BYTES: usize = 4 + 2 * PRIORITIES;

/// A request to pause, behind the Ethernet header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pause {
    /// For each priority, the time in quanta, if the frame has one for it.
    pub quanta: [Option<u16>; PRIORITIES],
}

impl Pause {
    /// Decodes the payload of a MAC control frame.
    ///
    /// # Errors
    /// `Truncated`; `Operation` for another opcode, such as that of a pause of the whole link.
    pub fn read(bytes: &[u8]) -> Result<(Pause, usize), Malformed> {
        let Some(bytes) = bytes.first_chunk::<BYTES>() else { return Err(Malformed::Truncated) };
        let field = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        if field(0) != OPCODE {
            return Err(Malformed::Operation);
        }
        let enabled = field(2);
        let quanta = core::array::from_fn(|n| (enabled >> n & 1 == 1).then(|| field(4 + 2 * n)));
        Ok((Pause { quanta }, BYTES))
    }

    /// Returns the length of the fields in bytes.
    pub const fn length(&self) -> usize {
        BYTES
    }

    /// Writes the payload of a MAC control frame, without padding.
    ///
    /// # Panics
    /// If `target` is shorter than the fields.
    pub fn write(&self, target: &mut [u8]) -> usize {
        let bytes = target.first_chunk_mut::<BYTES>().expect("room for a pause");
        bytes.fill(0);
        let enabled =
            (0..PRIORITIES).filter(|&n| self.quanta[n].is_some()).fold(0u16, |bits, n| bits | 1 << n);
        bytes[..2].copy_from_slice(&OPCODE.to_be_bytes());
        bytes[2..4].copy_from_slice(&enabled.to_be_bytes());
        for (n, quanta) in self.quanta.iter().enumerate() {
            bytes[4 + 2 * n..][..2].copy_from_slice(&quanta.unwrap_or(0).to_be_bytes());
        }
        BYTES
    }
}

/// Returns the priority of a packet from its traffic class: the upper three bits of the DSCP, as switches for
/// RoCEv2 commonly map them.
pub const fn priority(traffic_class: u8) -> usize {
    (traffic_class >> 5) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_some_priorities_is_read_as_it_was_written() {
        let mut quanta = [None; PRIORITIES];
        (quanta[0], quanta[3]) = (Some(0), Some(0xffff));
        let mut bytes = [0xaa; BYTES + 2];
        assert_eq!(Pause { quanta }.write(&mut bytes), BYTES);
        assert_eq!(bytes[..12], [1, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
        assert_eq!(Pause::read(&bytes), Ok((Pause { quanta }, BYTES)));
        assert_eq!(Pause::read(&bytes[..BYTES - 1]), Err(Malformed::Truncated));
        bytes[1] = 2;
        assert_eq!(Pause::read(&bytes), Err(Malformed::Operation));
        // DSCP 26, the usual one of RoCE, is priority 3.
        assert_eq!((priority(26 << 2 | 2), priority(0), priority(0xff)), (3, 0, 7));
    }
}
