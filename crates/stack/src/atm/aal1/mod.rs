//! AAL1: a stream of a constant rate over cells that may be lost (I.363.1).
//!
//! Goal      as many octets come out as went in, at the rate at which they went in, whatever the network dropped; what is lost
//!           is filled in, put right, or at least counted.
//!
//! ```text
//!   push ► Sender: matrix (FEC) or blocks (pointers) ► cell: 48 octets             ... network ...
//!   out  ◄ Receiver: header ► Sequence (lost, misinserted, dummies) ► matrix or blocks ► octets
//!                                    └► stamps ► Srts      level of the buffer ► Adaptive ► the rate at which to read
//! ```
//!
//! Shape     two values, [`Sender`] and [`Receiver`], for one direction of one circuit. Neither has a clock: whoever drives them
//!           asks for cells when they are due and reads octets at the rate that [`Srts`] or [`Adaptive`] tells.
//! Limits    `octets_max` at the sender; one cell and one matrix or block at the receiver.
//! Source    made without the text of I.363.1, from public descriptions: see [`kiban_wire::aal1`].
//! Left out  partially filled cells, CAS and the other SSCS of circuit emulation; lost cells are counted by sequence numbers
//!           alone, so that a run of eight is not seen (a matrix sees it by its first cell, a block by its pointer).

mod clock;
mod receiver;
mod sender;
mod sequence;
#[cfg(test)]
mod tests;

pub use clock::{Adaptive, NETWORK_HERTZ, Srts, SrtsRecovery};
pub use receiver::Receiver;
pub use sender::Sender;
pub use sequence::{Held, Sequence, Step};

use kiban_wire::aal1::fec::Code;

/// How octets of the user lie in cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// One after the other.
    Stream,
    /// One after the other, in interleaved matrices with check octets.
    Corrected(Code),
    /// In blocks of a constant length, which pointers find again.
    Structured {
        /// Octets of a block, at least 1.
        block_octets: usize,
    },
}

/// Both ends of a circuit are set alike.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How octets lie in cells.
    pub form: Form,
    /// Whether cells with odd counts carry residual time stamps.
    pub stamps: bool,
    /// Octets that may wait at the sender.
    pub octets_max: usize,
    /// What stands in the place of octets that are lost.
    pub dummy: u8,
}

impl Config {
    /// A form without stamps, and room for two matrices.
    pub const fn of(form: Form) -> Config {
        Config { form, stamps: false, octets_max: 2 * Code::Long.user_octets(), dummy: 0xff }
    }
}

kiban_ground::counters! {
    /// What an AAL1 sender sent.
    pub struct SenderCounters {
        /// Cells.
        cells_out,
        /// Octets of the user that were taken.
        octets_in,
        /// Octets of the user that found no room.
        octets_refused,
        /// Pointers to a block.
        pointers_out,
        /// Matrices.
        matrices_out,
    }
}

kiban_ground::counters! {
    /// What an AAL1 receiver met, and what it made of it.
    pub struct ReceiverCounters {
        /// Cells that arrived.
        cells_in,
        /// Headers with one wrong bit that was put right.
        headers_corrected,
        /// Headers that are not to be believed.
        headers_invalid,
        /// Cells that were lost, by their sequence counts.
        cells_lost,
        /// Cells that do not belong here, by their sequence counts.
        cells_misinserted,
        /// Cells dropped because nobody knows where they belong.
        cells_dropped,
        /// Times that the sequence was lost.
        sequence_losses,
        /// Octets delivered, dummies among them.
        octets_out,
        /// Octets that stand in the place of lost ones.
        octets_dummy,
        /// Pointers that broke a rule.
        pointers_malformed,
        /// Times that a pointer said that a block begins elsewhere.
        blocks_realigned,
        /// Matrices taken apart.
        matrices,
        /// Of these: with lost cells or wrong octets, all put right.
        matrices_corrected,
        /// Of these: with rows that could not be put right.
        matrices_uncorrectable,
        /// Matrices that were not whole when the next began, by its mark.
        matrices_cut,
        /// Octets put right that were not in lost cells.
        octets_corrected,
    }
}
