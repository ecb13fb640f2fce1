//! Counters of an RDMA NIC.

kiban_base::counters! {
    /// Events counted by an RDMA NIC.
    pub struct RnicCounters {
        /// Segments sent.
        segments_out,
        /// Segments accepted.
        segments_in,
        /// Payload bytes sent.
        payload_out_bytes,
        /// Payload bytes copied into the host's memory.
        placed_bytes,
        /// Payload bytes that the lower layer stored in the host's memory directly.
        direct_bytes,
        /// Complete untagged messages received.
        messages_in,
        /// RDMA Writes from peers that were placed completely.
        writes_in,
        /// RDMA Reads requested by peers.
        reads_in,
        /// Atomic operations requested by peers.
        atomics_in,
        /// Completions generated.
        completions,
        /// Completions lost because their queue was full.
        completions_lost,
        /// Events lost because their queue was full.
        events_lost,
        /// Invalid local work requests.
        local_errors,
        /// Reads by peers that failed because the memory was invalidated or deregistered.
        reads_withdrawn,
        /// Terminates sent.
        terminates_out,
        /// Terminates received.
        terminates_in,
        /// Segments with an unknown steering tag.
        bad_stag,
        /// Segments for memory of another protection domain, or for another queue pair's window.
        bad_stream,
        /// Segments for memory whose access rights do not allow the operation.
        bad_access,
        /// Segments that extend beyond the bounds of the memory.
        bad_bounds,
        /// Segments whose address range wraps.
        bad_wrap,
        /// Sends with Invalidate whose steering tag cannot be invalidated.
        bad_invalidate,
        /// Segments with an unknown version.
        bad_version,
        /// Segments with an unknown or unexpected opcode.
        bad_opcode,
        /// Segments for a nonexistent queue.
        bad_queue,
        /// Segments with an unexpected message sequence number.
        bad_sequence,
        /// Segments with an unexpected message offset.
        bad_offset,
        /// Messages for which no receive was posted, and read requests beyond the agreed IRD.
        no_buffer,
        /// Messages longer than the posted receive.
        too_long,
        /// Segments with an impossible length or a malformed payload.
        bad_length,
        /// Frames with a bad CRC.
        bad_crc,
        /// RoCEv2 packets sent, retransmissions included.
        packets_out,
        /// RoCEv2 packets accepted.
        packets_in,
        /// RoCEv2 request packets retransmitted.
        packets_retransmitted,
        /// Times that a RoCEv2 requester's acknowledgement timer expired.
        ack_timeouts,
        /// RoCEv2 packets that repeat an earlier one.
        packets_duplicate,
        /// RoCEv2 requests dropped because an earlier one is missing.
        packets_out_of_order,
        /// RoCEv2 requests kept because an earlier one is missing.
        packets_kept,
        /// Selective acknowledgements sent: a RoCEv2 peer is told what has arrived.
        selective_acks_out,
        /// Selective acknowledgements received.
        selective_acks_in,
        /// RoCEv2 packets dropped because they break a rule, or answer nothing that was sent.
        packets_malformed,
        /// NAKs sent with a PSN sequence error: a RoCEv2 packet was missing.
        sequence_naks_out,
        /// NAKs received with a PSN sequence error.
        sequence_naks_in,
        /// RNR NAKs sent: no receive was posted for a RoCEv2 message.
        rnr_naks_out,
        /// RNR NAKs received: the peer had no receive posted.
        rnr_naks_in,
        /// Datagrams sent.
        datagrams_out,
        /// Datagrams placed in a posted receive.
        datagrams_in,
        /// Datagrams for a queue pair that does not exist, is not a datagram queue pair, or is not receiving.
        datagrams_unready,
        /// Datagrams whose Q_Key is not that of the queue pair.
        bad_qkey,
        /// Datagrams dropped because no receive was posted.
        datagrams_without_receive,
        /// Datagrams dropped because they were longer than the next receive.
        datagrams_too_long,
    }
}
