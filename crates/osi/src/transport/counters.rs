//! Counters of a transport machine.

kiban_base::counters! {
    /// Counters of a transport machine.
    pub struct TransportCounters {
        /// TPDUs received.
        tpdus_in,
        /// TPDUs sent.
        tpdus_out,
        /// Malformed TPDUs received.
        tpdus_malformed,
        /// TPDUs received that are not allowed in the state.
        tpdus_unexpected,
        /// TSDUs received that are too long.
        tsdus_oversized,
        /// Connection requests refused by this machine.
        connects_refused,
        /// Connections that were not established in time.
        connects_timed_out,
    }
}
