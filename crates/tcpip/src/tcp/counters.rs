//! Counters of TCP.

kiban_base::counters! {
    /// TCP counters of one board.
    pub struct TcpCounters {
        /// Segments that arrived.
        segments_in,
        /// Segments handed to IP.
        segments_out,
        /// Payload bytes accepted in order.
        bytes_in,
        /// Payload and FIN bytes sent for the first time.
        bytes_out,
        /// Sessions that were established.
        connections_established,
        /// SYNs accepted by a listener.
        syns_in,
        /// SYNs dropped because the backlog or the session table was full.
        syns_dropped,
        /// SYNs answered with a cookie (RFC 4987 §3.6).
        syn_cookies_sent,
        /// Sessions established from a cookie.
        syn_cookies_accepted,
        /// ACKs without a valid cookie, at a listener that had sent cookies.
        syn_cookies_invalid,
        /// Fast Open cookies granted to clients (RFC 7413).
        fast_open_cookies_sent,
        /// SYNs with a Fast Open cookie that was not valid, or that came when too many such connections were
        /// pending; the data in them was dropped.
        fast_opens_rejected,
        /// Sessions accepted by Fast Open before their handshake was complete.
        fast_opens_in,
        /// Sessions that sent their first data in the SYN, and whose peer accepted it.
        fast_opens_out,
        /// SYNs with data that were not answered; no data is sent in SYNs to that address for an hour.
        fast_open_syns_lost,
        /// Segments with a malformed header.
        malformed,
        /// Segments with a wrong checksum.
        checksum_errors,
        /// Segments that match no session and are answered with a RST.
        unmatched,
        /// Segments outside the window, or with an unacceptable ACK.
        unacceptable,
        /// ACKs of data that was never sent.
        acks_of_unsent_data,
        /// Segments without ACK on a session that requires it.
        without_ack,
        /// Segments with payload after the peer's FIN.
        data_after_fin,
        /// Challenge ACKs sent (RFC 5961).
        challenge_acks_out,
        /// Challenge ACKs suppressed by the limit (RFC 5961 §7).
        challenge_acks_suppressed,
        /// RSTs that ended a session.
        resets_in,
        /// RSTs sent in answer to segments that match no session.
        resets_out,
        /// Payload bytes that had arrived before.
        duplicate_bytes,
        /// Payload bytes beyond the offered window.
        beyond_window_bytes,
        /// Segments without timestamps on a session that uses them (RFC 7323 §3.2).
        without_timestamps,
        /// Segments rejected by PAWS because of an old timestamp (RFC 7323 §5).
        paws_rejected,
        /// RSTs ignored in TIME-WAIT (RFC 1337).
        time_wait_resets_ignored,
        /// ICMP errors that matched a session and an outstanding sequence number.
        icmp_errors,
        /// ICMP errors that matched no session or no outstanding sequence number (RFC 5927 §4.1).
        icmp_errors_rejected,
        /// Sessions whose MSS was lowered because of the path MTU.
        mss_lowered,
        /// Segments that arrived out of order.
        out_of_order,
        /// Slices of out-of-order data dropped for lack of memory or of buffer space.
        out_of_order_dropped,
        /// Duplicate ACKs received.
        duplicate_acks,
        /// SACK blocks ignored because they cover data that is not outstanding.
        sack_blocks_invalid,
        /// ACKs with a D-SACK (RFC 2883).
        dsacks_in,
        /// Tail loss probes sent (RFC 8985 §7).
        tail_loss_probes,
        /// Segments retransmitted, for any reason.
        retransmits,
        /// Loss recoveries started by ACKs rather than by the retransmission timer.
        fast_retransmits,
        /// Retransmission timeouts.
        timeouts,
        /// Timeouts that proved to be spurious and were undone (RFC 4015).
        spurious_timeouts,
        /// Loss recoveries started by ACKs that proved to be spurious and were undone.
        spurious_fast_retransmits,
        /// Data segments that arrived with the mark "congestion experienced" (RFC 3168).
        ce_marked,
        /// Reductions of the congestion window because the peer reported marks (ECE).
        ecn_reductions,
        /// Zero-window probes sent.
        zero_window_probes,
        /// Keep-alive probes sent (RFC 9293 §3.8.4).
        keep_alives,
        /// Sessions in TIME-WAIT whose 4-tuple was reused by a new SYN (RFC 6191).
        time_wait_reused,
        /// Sessions that left TIME-WAIT early because there were too many of them.
        time_wait_overflow,
        /// Acknowledgements that waited for the delayed-ACK timer.
        delayed_acks,
        /// Sessions aborted because the peer did not answer.
        timed_out,
        /// Sessions aborted because their peers accepted little or no data while others needed memory (RFC
        /// 6429).
        persist_sessions_aborted,
        /// Writes limited because the peer's address, or the attached program, already holds its full share
        /// of memory.
        writes_limited_by_share,
        /// SYNs dropped, or connections not opened, because the address or the program already has its full
        /// share of sessions.
        sessions_limited_by_share,
        /// Half-open connections dropped from a full backlog in favour of an address that has fewer of them.
        half_open_evicted,
        /// Connection attempts that failed because the peer was unreachable.
        connects_unreachable,
        /// Number of times that PDU memory or receive pages ran out.
        no_memory,
    }
}
