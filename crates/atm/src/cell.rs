//! Bulk processing of cells, and checks of their headers (I.432.1 §4.3.2).
//!
//! Purpose          pass a thousand cells in one call, each with its time, and read each only once.
//! Layout           a [`TimedCell`] is one cache line; a *train* is a slice or `Vec` of them in order of
//!                  time.
//! Time             `at` is when the cell's last bit leaves (at a sender) or arrives (at a receiver, after
//!                  the propagation delay of the line). Nothing else changes in between.
//! Header           the header word has the layout of I.361; the HEC is stored separately. [`HeaderReceiver`]
//!                  validates headers: a single-bit error is corrected unless the previous header was wrong
//!                  too, since burst errors are not single-bit errors.
//! Not implemented  cell delineation: a train consists of whole cells.

use crate::wire::atm::{self, CELL_PAYLOAD_BYTES, HecCheck, PTI_LAST, PTI_MANAGEMENT};
use kiban_base::Instant;

/// A cell and its time: one cache line, with the payload first so that it is aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(64))]
pub struct TimedCell {
    /// The payload.
    pub payload: [u8; CELL_PAYLOAD_BYTES],
    /// The time of the cell's last bit.
    pub at: Instant,
    /// The header without its HEC.
    pub header: u32,
    /// The header error control byte as on the line.
    pub hec: u8,
}

impl TimedCell {
    /// Creates a cell with the correct HEC for its header.
    #[inline]
    pub const fn new(at: Instant, header: u32, payload: [u8; CELL_PAYLOAD_BYTES]) -> TimedCell {
        TimedCell { payload, at, header, hec: hec_of(header) }
    }

    /// Returns whether this cell completes something for a receiver: it is the last user cell of a frame, or
    /// a management cell.
    #[inline]
    pub const fn is_end(&self) -> bool {
        is_end(self.header)
    }

    /// Returns the 53 bytes of the cell, for links that carry cells one by one.
    #[inline]
    pub fn to_bytes(&self) -> [u8; atm::CELL_BYTES] {
        let mut bytes = [0; atm::CELL_BYTES];
        bytes[..4].copy_from_slice(&self.header.to_be_bytes());
        bytes[4] = self.hec;
        bytes[5..].copy_from_slice(&self.payload);
        bytes
    }

    /// Creates a cell from 53 bytes received at `at`, without checking its HEC.
    #[inline]
    pub fn from_bytes(at: Instant, bytes: &[u8; atm::CELL_BYTES]) -> TimedCell {
        let (header, rest) = bytes.split_first_chunk::<4>().expect("53 is more than 4");
        let payload = *bytes.last_chunk().expect("53 is more than 48");
        TimedCell { payload, at, header: u32::from_be_bytes(*header), hec: rest[0] }
    }
}

/// Computes the HEC of a header word.
#[inline]
pub(crate) const fn hec_of(word: u32) -> u8 {
    kiban_base::crc::hec(word.to_be_bytes())
}

/// Returns whether a cell completes something for a receiver: it is the last user cell of a frame, or a
/// message of its own (OAM, RM).
#[inline]
pub(crate) const fn is_end(word: u32) -> bool {
    (word >> 1) as u8 & (PTI_LAST | PTI_MANAGEMENT) != 0
}

/// Returns whether a cell is a management cell (PTI 4 to 7).
#[inline]
pub(crate) const fn is_management(word: u32) -> bool {
    (word >> 1) as u8 & PTI_MANAGEMENT != 0
}

/// The result of checking a received header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// No error.
    Intact,
    /// One wrong bit was corrected; this is the word as sent.
    Corrected(u32),
    /// Uncorrectable.
    Bad,
}

/// A header receiver with its two modes (I.432.1 §4.3.2.2): it corrects one bit only if the previous header
/// was free of errors.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeaderReceiver {
    detecting: bool,
}

impl HeaderReceiver {
    /// Checks the next header on the line.
    #[inline]
    pub fn arrive(&mut self, cell: &TimedCell) -> Received {
        if cell.hec == hec_of(cell.header) {
            self.detecting = false;
            return Received::Intact;
        }
        self.receive_wrong(cell)
    }

    #[cold]
    fn receive_wrong(&mut self, cell: &TimedCell) -> Received {
        let [a, b, c, d] = cell.header.to_be_bytes();
        let was_detecting = core::mem::replace(&mut self.detecting, true);
        match atm::check(&[a, b, c, d, cell.hec]) {
            HecCheck::Corrected(word) if !was_detecting => Received::Corrected(word),
            _ => Received::Bad,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_one_cache_line() {
        assert_eq!((size_of::<TimedCell>(), align_of::<TimedCell>()), (64, 64));
        assert_eq!(core::mem::offset_of!(TimedCell, payload), 0);
    }

    #[test]
    fn a_cell_survives_its_53_bytes() {
        let cell = TimedCell::new(Instant::from_nanos(9), 0x0000_0640, core::array::from_fn(|i| i as u8));
        let bytes = cell.to_bytes();
        assert_eq!(atm::unpack(&bytes).0, HecCheck::Intact(0x640));
        assert_eq!(TimedCell::from_bytes(cell.at, &bytes), cell);
    }

    #[test]
    fn one_wrong_bit_is_corrected_and_a_second_wrong_cell_is_not() {
        let good = TimedCell::new(Instant::ZERO, 0x0000_0640, [0; 48]);
        let bad = TimedCell { header: good.header ^ 1 << 9, ..good };
        let worse = TimedCell { header: good.header ^ 5 << 9, ..good };
        let mut receiver = HeaderReceiver::default();
        let talk = [
            (good, Received::Intact),
            (bad, Received::Corrected(0x640)),
            (bad, Received::Bad),
            (bad, Received::Bad),
            (good, Received::Intact),
            (bad, Received::Corrected(0x640)),
            (good, Received::Intact),
            (worse, Received::Bad),
            (bad, Received::Bad),
        ];
        for (step, (cell, expected)) in talk.into_iter().enumerate() {
            assert_eq!(receiver.arrive(&cell), expected, "step {step}");
        }
    }
}
