//! Counters of a machine.

kiban_base::counters! {
    /// Counters of a machine.
    pub struct Counters {
        /// FPDUs received.
        fpdus_in,
        /// FPDUs sent.
        fpdus_out,
        /// Data elements received.
        elements_in,
        /// Data elements sent.
        elements_out,
        /// FPDUs and data elements received that crossed with a cancel.
        void_in,
        /// FPDUs and data elements received that the state or the group does not allow.
        misplaced_in,
        /// Malformed FPDUs and data elements received.
        malformed_in,
    }
}
