//! Counters of a responder.

kiban_base::counters! {
    /// Counters of a responder.
    pub struct Counters {
        /// Files selected or created.
        selected,
        /// Transfers completed successfully.
        transfers,
        /// Transfers that failed.
        transfers_failed,
        /// Octets of contents sent.
        bytes_out,
        /// Octets of contents received.
        bytes_in,
        /// Transfers recovered.
        recovered,
        /// Failure reports that were dropped because the caller did not fetch them.
        failure_reports_dropped,
        /// Responses that the machine rejected; each one is a bug in this responder.
        internal_errors,
    }
}
