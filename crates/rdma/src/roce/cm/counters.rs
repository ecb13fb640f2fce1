//! Counters of communication management.

kiban_base::counters! {
    /// Events counted by communication management.
    pub struct CmCounters {
        /// MADs received.
        mads_in,
        /// MADs sent.
        mads_out,
        /// MADs that violate the format.
        malformed,
        /// MADs for no connection, from another address than the peer's, or with a wrong id or queue pair.
        unmatched,
        /// MADs not allowed in the state of their connection.
        unexpected,
        /// Duplicates of messages that were received before.
        duplicates,
        /// MADs retransmitted for lack of an answer.
        retransmits,
        /// Connections and resolutions given up for lack of an answer.
        timeouts,
        /// Requests dropped because of a limit.
        requests_dropped,
        /// Requests for services without a listener.
        no_service,
        /// Requests sent again after a short pause, because the peer had no listener.
        refused_retries,
        /// ICMP errors that quote no outstanding request.
        stray_errors,
        /// Requests and replies from queue pairs that are connected already.
        stale,
        /// MADs dropped because too many wait to be sent.
        transmits_dropped,
        /// Connections that left TimeWait early, because the table was full.
        time_waits_evicted,
    }
}
