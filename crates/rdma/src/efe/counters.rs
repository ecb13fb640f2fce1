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
        /// Flows whose peer was given up.
        vanished,
        /// Frames that violate the format, or whose CRC is wrong or missing.
        malformed,
        /// Frames for an unknown flow.
        no_flow,
        /// Frames with a wrong key, or not from the flow's peer.
        strangers,
        /// Frames that acknowledge data never sent, or grant more credit than possible.
        impossible,
        /// Frames not allowed in the state of their flow.
        unexpected,
        /// Connection requests dropped for lack of a slot.
        asks_dropped,
        /// Duplicate segments.
        doubled,
        /// Segments received out of order.
        out_of_order,
        /// Segments sent without credit.
        beyond_credit,
        /// Frames retransmitted.
        resends,
        /// Frames considered lost because later ones arrived.
        lost,
        /// Retransmission timeouts.
        timeouts,
        /// Probes sent, for keep-alive or for credit.
        questions,
        /// Requests from receivers to pause.
        breaths,
    }
}
