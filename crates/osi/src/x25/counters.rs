//! Counters of a packet layer.

use kiban_base::counters;

counters! {
    /// Counters of a packet layer.
    pub struct Counters {
        /// Packets sent.
        packets_out,
        /// Packets received.
        packets_in,
        /// Restarts that this end sent because of a protocol error.
        restarts_for_errors,
        /// Clears that this end sent because of a protocol error.
        clears_for_errors,
        /// Resets that this end sent because of a protocol error.
        resets_for_errors,
        /// Packets discarded because the state does not allow them.
        discarded,
        /// Packets discarded for which a DCE sends a diagnostic packet.
        diagnostics,
        /// Registration packets received, which have no effect.
        registrations,
        /// Calls refused because too many were waiting.
        calls_refused,
        /// Timers that expired.
        timeouts,
        /// Control packets dropped because too many were waiting for the link.
        control_lost,
    }
}
