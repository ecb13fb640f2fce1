//! AAL1 formats: the one-byte header, pointers, residual time stamps (I.363.1 §2.4, §2.5).
//!
//! Purpose          carry a constant bit rate stream over cells: each cell has a sequence count and a CSI
//!                  bit.
//!
//! ```text
//! | CSI 1 | sequence count 3 | CRC-3 3 | parity 1 | payload 47                        non-P format
//! | as above                                      | parity 1 | offset 7 | payload 46  P: even counts, CSI 1
//!
//! CRC-3     x^3 + x + 1 over CSI and count; even parity over all eight bits:
//!           one wrong bit is corrected, two are detected
//! offset    octets from the end of the pointer to the start of a block of the structure, 0 to 93;
//!           127: no block begins within reach
//! CSI       in cells with odd counts: four bits of a residual time stamp (SRTS), the highest in count 1
//!           in the first cell of an interleaving matrix: 1 ([`fec`])
//! ```
//!
//! Source           this code was written without access to the text of I.363.1, from public descriptions of
//!                  it and a table of the sixteen header bytes seen in public captures. [`fec`] lists the
//!                  constants that could not be checked against a second source.
//! Not implemented  sequencing and loss detection: see [`crate::aal1`].

pub mod fec;
mod header;

pub use header::{
    COUNTS, HEADER_BYTES, Header, HeaderCheck, OFFSET_MAX, PAYLOAD_OCTETS, PAYLOAD_OCTETS_WITH_POINTER,
    POINTER_BYTES, Pointer, STAMP_PERIOD_BITS, STAMPS, check, stamp_bit, with_stamp_bit,
};
