//! Counters of a service.

kiban_base::counters! {
    /// Counters of a service.
    pub struct ServiceCounters {
        /// Sessions started.
        accepted,
        /// Connections refused because no session was free.
        refused,
        /// Sessions that ended with an orderly close.
        ended,
        /// Sessions that were reset, timed out, or were closed by the service.
        aborted,
        /// Sessions closed because they were idle.
        idle_timeouts,
        /// Sessions reset to make room for another address.
        displaced,
        /// Payload bytes received.
        bytes_in,
        /// Payload bytes sent.
        bytes_out,
        /// Requests answered successfully.
        requests,
        /// Requests answered with an error.
        errors,
    }
}
