//! The header octet, the pointer, and residual time stamps.

use crate::wire::atm::CELL_PAYLOAD_BYTES;
use kiban_base::Malformed;

/// Size of the header in bytes.
pub const HEADER_BYTES: usize = 1;
/// User octets in a cell in the non-P format.
pub const PAYLOAD_OCTETS: usize = CELL_PAYLOAD_BYTES - HEADER_BYTES;
/// User octets in a cell in the P format.
pub const PAYLOAD_OCTETS_WITH_POINTER: usize = PAYLOAD_OCTETS - POINTER_BYTES;
/// Size of a pointer in bytes.
pub const POINTER_BYTES: usize = 1;
/// Number of sequence counts, and of cells in a cycle.
pub const COUNTS: u8 = 8;
/// Maximum offset of a pointer: the octet after the payload of its own cell and the next.
pub const OFFSET_MAX: u8 = 93;
/// The value of the offset field if no block begins within reach.
const OFFSET_NONE: u8 = 127;
/// Number of service bits in the period of a residual time stamp: the payload of eight cells (I.363.1
/// §2.5.2.2.2).
pub const STAMP_PERIOD_BITS: u64 = 8 * PAYLOAD_OCTETS as u64 * 8;
/// Number of possible values of a residual time stamp.
pub const STAMPS: u64 = 16;

/// The header of a SAR-PDU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Header {
    /// The convergence sublayer indication; its meaning depends on the count and on the service.
    pub csi: bool,
    /// The sequence count, 0 to 7.
    pub count: u8,
}

/// The result of checking a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderCheck {
    /// The header is correct, or has an undetectable error of four bits.
    Intact(Header),
    /// One bit is wrong; this is the corrected header.
    Corrected(Header),
    /// Two bits are wrong.
    Bad,
}

impl Header {
    /// Creates a header with CSI 0.
    pub const fn of_count(count: u8) -> Header {
        Header { csi: false, count: count % COUNTS }
    }

    /// Decodes the header in the first byte of `bytes`, which must be free of errors. Returns the header with
    /// its length. [`check`] corrects a single-bit error.
    ///
    /// # Errors
    /// `Truncated`; `Crc`.
    #[inline]
    pub const fn read(bytes: &[u8]) -> Result<(Header, usize), Malformed> {
        let Some(byte) = bytes.first() else { return Err(Malformed::Truncated) };
        match check(*byte) {
            HeaderCheck::Intact(header) => Ok((header, HEADER_BYTES)),
            _ => Err(Malformed::Crc),
        }
    }

    /// Returns the length of the header, always [`HEADER_BYTES`].
    #[inline]
    pub const fn length(&self) -> usize {
        HEADER_BYTES
    }

    /// Writes the header at the front of `target` and returns its length.
    ///
    /// # Panics
    /// If `target` is empty.
    #[inline]
    pub const fn write(&self, target: &mut [u8]) -> usize {
        target[0] = self.to_byte();
        HEADER_BYTES
    }

    /// Encodes the header.
    #[inline]
    pub const fn to_byte(self) -> u8 {
        WORDS[((self.csi as u8) * COUNTS + self.count % COUNTS) as usize]
    }
}

/// Checks a header byte.
#[inline]
pub const fn check(byte: u8) -> HeaderCheck {
    match HEADER_CHECKS[byte as usize] {
        word @ 0..16 => HeaderCheck::Intact(Header { csi: word >= 8, count: word % COUNTS }),
        word @ 16..32 => HeaderCheck::Corrected(Header { csi: word - 16 >= 8, count: word % COUNTS }),
        _ => HeaderCheck::Bad,
    }
}

/// The encodings of the sixteen headers.
const WORDS: [u8; 16] = {
    let mut words = [0; 16];
    let mut word = 0;
    while word < 16 {
        let number = word as u8;
        let byte = number << 4 | crc3(number) << 1;
        words[word] = byte | (byte.count_ones() % 2) as u8;
        word += 1;
    }
    words
};

/// Indexed by header byte: the header if the byte is correct, plus 16 if one bit is wrong; 0xff otherwise.
static HEADER_CHECKS: [u8; 256] = {
    let mut table = [0xff; 256];
    let mut word = 0;
    while word < 16 {
        let mut bit = 0;
        while bit < 8 {
            table[(WORDS[word] ^ 1 << bit) as usize] = 16 + word as u8;
            bit += 1;
        }
        word += 1;
    }
    let mut word = 0;
    while word < 16 {
        table[WORDS[word] as usize] = word as u8;
        word += 1;
    }
    table
};

/// Computes the remainder of four bits, followed by three zeros, by x^3 + x + 1.
const fn crc3(word: u8) -> u8 {
    let mut rest = word << 3;
    let mut bit = 6;
    while bit >= 3 {
        if rest >> bit & 1 == 1 {
            rest ^= 0b1011 << (bit - 3);
        }
        bit -= 1;
    }
    rest
}

/// The pointer in the P format, which gives the start of the next block of the structure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pointer(Option<u8>);

impl Pointer {
    /// No block begins within reach of the pointer.
    pub const NONE: Pointer = Pointer(None);

    /// Creates a pointer to a block that begins `octets` after the pointer, or `None` if that is out of
    /// reach.
    pub const fn to(octets: usize) -> Option<Pointer> {
        if octets <= OFFSET_MAX as usize { Some(Pointer(Some(octets as u8))) } else { None }
    }

    /// Returns the octets from the end of the pointer to the start of a block, at most [`OFFSET_MAX`], or
    /// `None` if no block begins within reach.
    pub const fn offset(self) -> Option<usize> {
        match self.0 {
            Some(octets) => Some(octets as usize),
            None => None,
        }
    }

    /// Reads the first byte of `bytes` and returns the pointer with its length.
    ///
    /// # Errors
    /// `Truncated`; `PointerParity`; `PointerRange` for 94 to 126.
    pub const fn read(bytes: &[u8]) -> Result<(Pointer, usize), Malformed> {
        let Some(byte) = bytes.first() else { return Err(Malformed::Truncated) };
        if !byte.count_ones().is_multiple_of(2) {
            return Err(Malformed::PointerParity);
        }
        match *byte & 0x7f {
            OFFSET_NONE => Ok((Pointer::NONE, POINTER_BYTES)),
            octets @ 0..=OFFSET_MAX => Ok((Pointer(Some(octets)), POINTER_BYTES)),
            _ => Err(Malformed::PointerRange),
        }
    }

    /// Returns the length of the pointer, always [`POINTER_BYTES`].
    pub const fn length(&self) -> usize {
        POINTER_BYTES
    }

    /// Writes the pointer at the front of `target` and returns its length.
    ///
    /// # Panics
    /// If `target` is empty.
    pub const fn write(&self, target: &mut [u8]) -> usize {
        let offset = match self.0 {
            Some(octets) => octets,
            None => OFFSET_NONE,
        };
        target[0] = offset | ((offset.count_ones() % 2) as u8) << 7;
        POINTER_BYTES
    }
}

/// Returns the bit of a residual time stamp that a cell with sequence count `count` carries in CSI, or `None`
/// if the count is even.
pub const fn stamp_bit(stamp: u8, count: u8) -> Option<bool> {
    if count % 2 == 1 { Some(stamp >> (3 - count / 2) & 1 == 1) } else { None }
}

/// Returns `stamp` with the bit set that comes from a cell with the given sequence count. Cells with even
/// counts carry no bit.
pub const fn with_stamp_bit(stamp: u8, count: u8, csi: bool) -> u8 {
    if count.is_multiple_of(2) {
        return stamp;
    }
    let place = 3 - count % COUNTS / 2;
    stamp & !(1 << place) | (csi as u8) << place
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_sixteen_headers_match_captures() {
        let bytes: [u8; 16] =
            core::array::from_fn(|word| Header { csi: word >= 8, count: word as u8 % 8 }.to_byte());
        let expected =
            [0x00, 0x17, 0x2d, 0x3a, 0x4e, 0x59, 0x63, 0x74, 0x8b, 0x9c, 0xa6, 0xb1, 0xc5, 0xd2, 0xe8, 0xff];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn one_wrong_bit_is_corrected_and_two_are_detected() {
        for word in 0..16u8 {
            let header = Header { csi: word >= 8, count: word % 8 };
            let byte = header.to_byte();
            assert_eq!(check(byte), HeaderCheck::Intact(header));
            for first in 0..8 {
                let wrong = byte ^ 1 << first;
                assert_eq!(check(wrong), HeaderCheck::Corrected(header));
                assert_eq!(Header::read(&[wrong]), Err(Malformed::Crc));
                for second in (0..8).filter(|second| *second != first) {
                    assert_eq!(check(wrong ^ 1 << second), HeaderCheck::Bad);
                }
            }
        }
        assert_eq!(Header::read(&[]), Err(Malformed::Truncated));
    }

    #[test]
    fn a_pointer_has_a_parity_and_a_range() {
        for (byte, expected) in [
            (0x00, Ok(Some(0))),
            (0x80, Err(Malformed::PointerParity)),
            (0x81, Ok(Some(1))),
            (0x03, Ok(Some(3))),
            (0xdd, Ok(Some(93))),
            (0xff, Ok(None)),
            (0x7f, Err(Malformed::PointerParity)),
            (0xde, Err(Malformed::PointerRange)),
            (0x7e, Err(Malformed::PointerRange)),
        ] {
            let read = Pointer::read(&[byte]).map(|(pointer, _)| pointer.offset());
            assert_eq!(read, expected, "{byte:02x}");
            if let Ok(offset) = expected {
                let mut again = [0xa5];
                offset.map_or(Some(Pointer::NONE), Pointer::to).expect("within reach").write(&mut again);
                assert_eq!(again, [byte]);
            }
        }
        assert_eq!(Pointer::to(94), None);
        assert_eq!(Pointer::read(&[]), Err(Malformed::Truncated));
    }

    #[test]
    fn a_stamp_is_four_bits_in_four_cells_the_highest_first() {
        assert_eq!([1, 3, 5, 7].map(|count| stamp_bit(0b1010, count)), [true, false, true, false].map(Some));
        assert_eq!([0, 2, 4, 6].map(|count| stamp_bit(0b1010, count)), [None; 4]);
    }

    proptest! {
        #[test]
        fn a_timestamp_round_trips_through_its_cells(stamp in 0u8..16, other in 0u8..16) {
            let read = (0..8).fold(other, |read, count| {
                with_stamp_bit(read, count, stamp_bit(stamp, count).unwrap_or(true))
            });
            prop_assert_eq!(read, stamp);
        }
    }
}
