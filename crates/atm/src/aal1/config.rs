//! The configuration of a circuit.

use crate::wire::aal1::fec::Code;

/// The mapping of user octets to cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Unstructured: consecutive octets.
    Stream,
    /// Consecutive octets in interleaved matrices with forward error correction.
    Corrected(Code),
    /// Blocks of a constant length, delimited by pointers.
    Structured {
        /// Length of a block in octets, at least 1.
        block_octets: usize,
    },
}

/// Configuration of a circuit; both ends must use the same.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The mapping of user octets to cells.
    pub form: Form,
    /// Whether cells with odd counts carry residual time stamps.
    pub stamps: bool,
    /// Maximum number of octets queued at the sender.
    pub octets_max: usize,
    /// The value of octets inserted for lost ones.
    pub dummy: u8,
}

impl Config {
    /// Creates a configuration without stamps, and with room for two matrices.
    pub const fn of(form: Form) -> Config {
        Config { form, stamps: false, octets_max: 2 * Code::Long.user_octets(), dummy: 0xff }
    }
}

kiban_base::counters! {
    /// Counters of an AAL1 sender.
    pub struct SenderCounters {
        /// Cells sent.
        cells_out,
        /// User octets accepted.
        octets_in,
        /// User octets rejected for lack of room.
        octets_refused,
        /// Pointers sent.
        pointers_out,
        /// Matrices sent.
        matrices_out,
    }
}

kiban_base::counters! {
    /// Counters of an AAL1 receiver.
    pub struct ReceiverCounters {
        /// Cells received.
        cells_in,
        /// Headers with a corrected single-bit error.
        headers_corrected,
        /// Headers with uncorrectable errors.
        headers_invalid,
        /// Lost cells, as detected by sequence counts.
        cells_lost,
        /// Misinserted cells, as detected by sequence counts.
        cells_misinserted,
        /// Cells dropped because their position is unknown.
        cells_dropped,
        /// Number of times that sequence synchronisation was lost.
        sequence_losses,
        /// Octets delivered, including dummies.
        octets_out,
        /// Dummy octets inserted for lost ones.
        octets_dummy,
        /// Malformed pointers.
        pointers_malformed,
        /// Times that a pointer moved the block boundary.
        blocks_realigned,
        /// Matrices decoded.
        matrices,
        /// Matrices (counted above) with lost cells or errors, all of which were corrected.
        matrices_corrected,
        /// Matrices (counted above) with uncorrectable rows.
        matrices_uncorrectable,
        /// Matrices that ended early, because the mark of the next one arrived.
        matrices_cut,
        /// Octets corrected outside lost cells.
        octets_corrected,
    }
}
