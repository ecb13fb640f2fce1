//! Counters of a session machine.

kiban_base::counters! {
    /// Counters of a session machine.
    pub struct SessionCounters {
        /// TSDUs received.
        tsdus_in,
        /// TSDUs sent.
        tsdus_out,
        /// Malformed TSDUs received.
        tsdus_malformed,
        /// SPDUs received that are not allowed in the state.
        spdus_unexpected,
        /// Service data units received that are too long.
        ssdus_oversized,
        /// CONNECTs refused by this machine.
        connects_refused,
        /// Connections aborted by this machine.
        aborts_out,
        /// Connections aborted by the peer.
        aborts_in,
        /// Timers that expired.
        timeouts,
    }
}
