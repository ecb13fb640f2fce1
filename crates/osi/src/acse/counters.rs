//! Counters of an association machine.

kiban_base::counters! {
    /// Counters of an association machine.
    pub struct Counters {
        /// Malformed or missing APDUs.
        malformed_in,
        /// APDUs received that the state table does not allow.
        unexpected_in,
        /// Aborts by this machine.
        aborts_out,
        /// Associations refused for lack of a common version.
        refusals_out,
    }
}
