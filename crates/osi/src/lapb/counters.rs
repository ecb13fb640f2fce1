//! Counters of a link.

use kiban_base::counters;

counters! {
    /// Counters of a link.
    pub struct Counters {
        /// Frames sent.
        frames_out,
        /// Frames received.
        frames_in,
        /// I frames retransmitted.
        retransmits,
        /// I frames received out of sequence.
        out_of_sequence,
        /// I frames received while this end was busy.
        dropped_while_busy,
        /// Frames that were too short or not addressed to this link (§2.3.5.3).
        invalid,
        /// Frames rejected (FRMR).
        rejected,
        /// FRMR received.
        rejected_by_peer,
        /// Unsolicited responses with F = 1.
        unsolicited_finals,
        /// Expirations of T1.
        timeouts,
        /// Link resets.
        resets,
        /// Responses dropped because the line did not take them in time.
        answers_lost,
    }
}
