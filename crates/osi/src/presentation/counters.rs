//! Counters of a presentation machine.

kiban_base::counters! {
    /// Counters of a presentation machine.
    pub struct Counters {
        /// Malformed data units received.
        malformed_in,
        /// Values received in contexts that do not exist.
        contexts_in,
        /// Data units and session primitives received that the state table does not allow.
        unexpected_in,
        /// Connections refused by this machine.
        refusals_out,
        /// Aborts by this machine.
        aborts_out,
        /// Aborts with user data that the session service could not carry.
        abort_data_dropped,
    }
}
