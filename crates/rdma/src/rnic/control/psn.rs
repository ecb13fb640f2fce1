//! Packet sequence numbers (PSNs) and positions.
//!
//! PSN        a packet's sequence number, 24 bits, which wraps. Every packet of a request has one, and so has
//!            every packet of a read response: a read request takes as many PSNs as its response has packets
//!            (IBTA volume 1 §9.7.3.1).
//! Position   the requester counts its PSNs from zero, in 64 bits and without wrapping. The PSN of a position
//!            is the initial PSN plus the position.
//! Comparing  two PSNs are compared by their [`distance`], which is less than half of the PSN space.

use crate::wire::roce::PSN_MASK;

/// Returns the distance from one PSN to another: negative if `to` comes before `from`.
#[inline]
pub(in super::super) const fn distance(from: u32, to: u32) -> i32 {
    // The shift puts the sign of 24 bits where that of 32 bits is.
    ((to.wrapping_sub(from) << 8) as i32) >> 8
}

/// Returns the PSN of a position.
#[inline]
pub(in super::super) const fn psn_of(first_psn: u32, position: u64) -> u32 {
    first_psn.wrapping_add(position as u32) & PSN_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_between_psns_wrap() {
        for (from, to, expected) in [
            (5, 5, 0),
            (5, 6, 1),
            (6, 5, -1),
            (0xff_ffff, 0, 1),
            (0, 0xff_ffff, -1),
            (0, 0x7f_ffff, 0x7f_ffff),
            (0, 0x80_0000, -0x80_0000),
        ] {
            assert_eq!(distance(from, to), expected, "from {from:#x} to {to:#x}");
        }
    }
}
