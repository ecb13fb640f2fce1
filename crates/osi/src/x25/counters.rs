//! Counters of a packet layer.

use kiban_base::counters;

counters! {
    /// Counters of a packet layer.
    pub struct Counters {
        /// Packets sent.
        packets_out,
        /// Packets received.
        packets_in,
        /// Restarts by this end for a protocol error.
        restarts_for_errors,
        /// Clears by this end for a protocol error.
        clears_for_errors,
        /// Resets by this end for a protocol error.
        resets_for_errors,
        /// Packets discarded because of the state.
        discarded,
        /// Packets discarded for which a DCE sends a diagnostic packet.
        diagnostics,
        /// Registration packets received, which have no effect.
        registrations,
        /// Calls refused because too many are waiting.
        calls_refused,
        /// Timers that expired.
        timeouts,
        /// Control packets dropped because too many were waiting for the link.
        control_lost,
    }
}
