//! Counters of the ATM layers.

kiban_base::counters! {
    /// Counters of segmentation.
    pub struct SegmentationCounters {
        /// Cells sent, including management cells.
        cells_out,
        /// Frames sent completely.
        frames_out,
        /// Management cells (OAM, RM) accepted for sending.
        management_cells_out,
        /// Frames rejected, for any reason.
        frames_refused,
    }
}

kiban_base::counters! {
    /// Counters of reassembly, with every reason why a frame was not delivered.
    pub struct ReassemblyCounters {
        /// Cells received, including idle ones.
        cells_in,
        /// Idle, unassigned and physical layer cells.
        cells_idle,
        /// Headers with a corrected single-bit error.
        cells_hec_corrected,
        /// Cells dropped because of an uncorrectable header.
        cells_hec_bad,
        /// Cells of a circuit that is not open.
        cells_unknown_circuit,
        /// Management cells of open circuits (F5 OAM, RM), delivered.
        cells_management,
        /// Cells of frames that were dropped because they were oversized, or because no page, block or slice
        /// was free.
        cells_abandoned,
        /// Frames delivered.
        frames_in,
        /// Frames with a wrong CRC-32: cells were lost or damaged, or two frames were merged.
        frames_crc_wrong,
        /// Frames whose length field does not match their number of cells.
        frames_length_wrong,
        /// Frames aborted by their sender (a length of zero).
        frames_aborted,
        /// Frames whose common part indicator is not zero.
        frames_indicator_wrong,
        /// Frames longer than their circuit allows.
        frames_oversized,
        /// Frames dropped because no content page was free.
        frames_out_of_pages,
        /// Frames dropped because no PDU block was free.
        frames_out_of_blocks,
        /// Frames dropped because they span more pages than one PDU can list.
        frames_out_of_slices,
    }
}

kiban_base::counters! {
    /// Counters of one entry of a [`Switch`](crate::Switch)'s table.
    pub struct RouteCounters {
        /// Cells received.
        cells_in,
        /// Cells dropped because they violated the contract.
        cells_policed,
        /// Cells tagged (CLP set) because they violated the contract.
        cells_tagged,
        /// Cells dropped at the queue, for any reason.
        cells_dropped,
        /// Cells queued.
        cells_queued,
        /// Queued cells that end a frame.
        frames,
    }
}

kiban_base::counters! {
    /// HEC counters at one port of a [`Switch`](crate::Switch).
    pub struct HecCounters {
        /// Headers with a corrected single-bit error.
        corrected,
        /// Cells dropped because of an uncorrectable header.
        bad,
    }
}

kiban_base::counters! {
    /// Counters of a switch.
    pub struct SwitchCounters {
        /// Cells received, including idle ones.
        cells_in,
        /// Idle, unassigned and physical layer cells.
        cells_idle,
        /// Headers with a corrected single-bit error.
        cells_hec_corrected,
        /// Cells dropped because of an uncorrectable header.
        cells_hec_bad,
        /// Cells for which there is no route.
        cells_unrouted,
        /// Cells dropped because they violated their contract.
        cells_policed,
        /// Cells tagged (CLP set) because they violated their contract.
        cells_tagged,
        /// Low-priority cells dropped above the priority threshold.
        cells_dropped_priority,
        /// Cells dropped because their circuit's queue was full.
        cells_dropped_queue_full,
        /// Cells dropped because their port was full.
        cells_dropped_port_full,
        /// Cells dropped because their frame was dropped whole (early packet discard).
        cells_dropped_early,
        /// Cells dropped because an earlier cell of their frame was dropped (partial packet discard).
        cells_dropped_partial,
        /// Frames dropped whole (early packet discard).
        frames_dropped_early,
        /// Frames of which some cells were dropped (partial packet discard).
        frames_dropped_partial,
        /// Cells marked with the congestion indication (EFCI).
        cells_marked,
        /// Cells sent.
        cells_out,
    }
}

kiban_base::counters! {
    /// Counters of InATMARP.
    pub struct InArpCounters {
        /// Packets received.
        packets_in,
        /// Malformed packets.
        packets_malformed,
        /// Packets ignored because they were ATMARP instead of InATMARP, were sent by us, or arrived on a
        /// circuit that is not open.
        packets_ignored,
        /// Requests sent.
        requests_out,
        /// Replies sent.
        replies_out,
        /// Times that a peer address was learned or changed.
        peers_learned,
        /// Times that a peer address was dropped because the peer did not answer.
        peers_lost,
    }
}

kiban_base::counters! {
    /// Counters of the OAM loopback.
    pub struct LoopbackCounters {
        /// Management cells received.
        cells_in,
        /// OAM cells with a wrong CRC-10.
        cells_malformed,
        /// Management cells ignored because they have another function or location, or answer none of our
        /// pings.
        cells_ignored,
        /// Loopback requests answered.
        answers_out,
        /// Pings sent.
        pings_out,
        /// Pings that were answered.
        pings_returned,
        /// Pings that timed out.
        pings_lost,
    }
}

kiban_base::counters! {
    /// Counters of the encapsulations.
    pub struct EncapsulationCounters {
        /// Frames of a known protocol.
        frames_in,
        /// Frames shorter than the header of their circuit's encapsulation.
        frames_truncated,
        /// Frames with an unknown encapsulation or protocol.
        frames_unknown,
    }
}
