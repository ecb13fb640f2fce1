//! What the ATM rooms count, by name.

kiban_ground::counters! {
    /// What segmentation sent and refused.
    pub struct SegmentationCounters {
        /// Cells that got a slot, of frames and others.
        cells_out,
        /// Frames whose last cell has left.
        frames_out,
        /// Cells of management (OAM, RM) taken for sending.
        management_cells_out,
        /// Frames given back to their sender, for any reason.
        frames_refused,
    }
}

kiban_ground::counters! {
    /// What reassembly received, and every reason why a frame did not come out of it.
    pub struct ReassemblyCounters {
        /// Cells that arrived, idle ones included.
        cells_in,
        /// Idle, unassigned and physical layer cells.
        cells_idle,
        /// Headers with one wrong bit that was put right.
        cells_hec_corrected,
        /// Cells dropped because their header is not to be believed.
        cells_hec_bad,
        /// Cells of a circuit that is not open here.
        cells_unknown_circuit,
        /// Management cells of open circuits (F5 OAM, RM), handed up.
        cells_management,
        /// Cells of frames that were given up for want of room: oversized, no page, no block, no slice.
        cells_given_up,
        /// Frames delivered.
        frames_in,
        /// Frames whose CRC-32 was wrong: cells were lost or damaged, or two frames were joined.
        frames_crc_wrong,
        /// Frames whose length does not fit their cells.
        frames_length_wrong,
        /// Frames that their sender gave up (a length of zero).
        frames_aborted,
        /// Frames whose common part indicator is not zero.
        frames_indicator_wrong,
        /// Frames longer than their circuit allows.
        frames_oversized,
        /// Frames given up because no content page was at home.
        frames_out_of_pages,
        /// Frames given up because no PDU block was at home.
        frames_out_of_blocks,
        /// Frames given up because their pages are more than one PDU can list.
        frames_out_of_slices,
    }
}

kiban_ground::counters! {
    /// What happened to the cells of one entry of a [`Switch`](crate::atm::Switch)'s table.
    pub struct RouteCounters {
        /// Cells that came in.
        cells_in,
        /// Cells dropped because they broke the contract.
        cells_policed,
        /// Cells tagged (CLP set) because they broke the contract.
        cells_tagged,
        /// Cells dropped at the queue, for whatever cause.
        cells_dropped,
        /// Cells that went on.
        cells_queued,
        /// Last cells of frames among them.
        frames,
    }
}

kiban_ground::counters! {
    /// What the HECs of cells have told at one port of a [`Switch`](crate::atm::Switch).
    pub struct HecCounters {
        /// Headers with one wrong bit that was put right.
        corrected,
        /// Cells dropped because their header is not to be believed.
        bad,
    }
}

kiban_ground::counters! {
    /// What a switch forwarded, changed and dropped.
    pub struct SwitchCounters {
        /// Cells that arrived, idle ones included.
        cells_in,
        /// Idle, unassigned and physical layer cells.
        cells_idle,
        /// Headers with one wrong bit that was put right.
        cells_hec_corrected,
        /// Cells dropped because their header is not to be believed.
        cells_hec_bad,
        /// Cells that no entry of the table leads anywhere.
        cells_unrouted,
        /// Cells dropped because they broke their contract.
        cells_policed,
        /// Cells tagged (CLP set) because they broke their contract.
        cells_tagged,
        /// Cells of low priority dropped above the priority threshold.
        cells_dropped_priority,
        /// Cells dropped because their circuit's queue was full.
        cells_dropped_queue_full,
        /// Cells dropped because their port was full.
        cells_dropped_port_full,
        /// Cells dropped because their frame was refused whole (early packet discard).
        cells_dropped_early,
        /// Cells dropped because their frame had lost a cell before (partial packet discard).
        cells_dropped_partial,
        /// Frames refused whole (early packet discard).
        frames_dropped_early,
        /// Frames that lost their rest (partial packet discard).
        frames_dropped_partial,
        /// Cells marked as having met congestion (EFCI).
        cells_marked,
        /// Cells that left.
        cells_out,
    }
}

kiban_ground::counters! {
    /// What InATMARP asked, answered and learned.
    pub struct InArpCounters {
        /// Packets that arrived.
        packets_in,
        /// Packets that broke a rule of their format.
        packets_malformed,
        /// Packets that are none of our business: ATMARP proper, our own, or of a circuit that is not open.
        packets_ignored,
        /// Requests sent.
        requests_out,
        /// Replies sent.
        replies_out,
        /// Times that a far end became known or changed.
        peers_learned,
        /// Times that a far end was forgotten because it did not answer.
        peers_lost,
    }
}

kiban_ground::counters! {
    /// What the F5 loopback saw and sent.
    pub struct LoopbackCounters {
        /// OAM cells that arrived.
        cells_in,
        /// OAM cells with a wrong CRC-10 or none of ours to read.
        cells_malformed,
        /// OAM cells of other functions, seen and left.
        cells_ignored,
        /// Requests sent back.
        answers_out,
        /// Pings sent.
        pings_out,
        /// Pings that came back.
        pings_returned,
        /// Pings that did not come back in time.
        pings_lost,
    }
}

kiban_ground::counters! {
    /// What the encapsulations met.
    pub struct EncapsulationCounters {
        /// Frames of a protocol that was named and known.
        frames_in,
        /// Frames shorter than the header their circuit has.
        frames_truncated,
        /// Frames of an encapsulation or protocol that is not known.
        frames_unknown,
    }
}
