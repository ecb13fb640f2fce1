//! Counters of an EFE-like endpoint.

kiban_base::counters! {
    /// Events counted by an EFE-like endpoint.
    pub struct EfeCounters {
        /// Frames received.
        frames_in,
        /// Frames sent.
        frames_out,
        /// Segments received for the first time.
        segments_in,
        /// Segments queued by the host.
        segments_out,
        /// Acknowledgements sent without a segment.
        acks_out,
        /// Flows connected.
        connected,
        /// Flows that ended because the peer did not answer.
        peers_lost,
        /// Frames that violate the format, or whose CRC is wrong or missing.
        malformed,
        /// Frames for an unknown flow.
        no_flow,
        /// Frames with a wrong key, or not from the flow's peer.
        wrong_sender,
        /// Frames that acknowledge data never sent, or grant more credit than possible.
        acks_invalid,
        /// Frames not allowed in the state of their flow.
        unexpected,
        /// Connection requests dropped for lack of a slot.
        requests_dropped,
        /// Duplicate segments.
        duplicates,
        /// Segments received out of order.
        out_of_order,
        /// Segments sent without credit.
        sent_beyond_credit,
        /// Frames retransmitted.
        retransmits,
        /// Frames considered lost because later frames arrived.
        lost,
        /// Retransmission timeouts.
        timeouts,
        /// Probes sent, for keep-alive or for credit.
        probes,
        /// Requests from receivers to pause.
        pause_requests,
    }
}
