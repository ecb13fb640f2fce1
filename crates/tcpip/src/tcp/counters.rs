//! Counters of TCP.

kiban_base::counters! {
    /// Counters of TCP for one board.
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
        opened,
        /// SYNs accepted by a listener.
        requests_in,
        /// SYNs dropped because the backlog or the session table was full.
        requests_dropped,
        /// SYNs answered with a cookie (RFC 4987 §3.6).
        cookies_out,
        /// Sessions established from a cookie.
        cookies_in,
        /// ACKs without a valid cookie, at a listener that had sent cookies.
        cookies_wrong,
        /// Segments with a malformed header.
        malformed,
        /// Segments with a wrong checksum.
        checksum_wrong,
        /// Segments that match no session, answered with RST.
        unknown,
        /// Segments outside the window, or with an unacceptable ACK.
        unacceptable,
        /// ACKs of data that was never sent.
        unsent_acknowledged,
        /// Segments without ACK on a session that requires it.
        without_ack,
        /// Segments with payload after the peer's FIN.
        after_finish,
        /// Challenge ACKs sent (RFC 5961).
        challenged,
        /// Challenge ACKs suppressed by the limit (RFC 5961 §7).
        unchallenged,
        /// RSTs that ended a session.
        resets_in,
        /// RSTs sent to segments that match no session.
        resets_out,
        /// Payload bytes that had arrived before.
        duplicate_bytes,
        /// Payload bytes beyond the offered window.
        beyond_window_bytes,
        /// Segments without timestamps on a session that uses them (RFC 7323 §3.2).
        without_timestamps,
        /// Segments rejected by PAWS because of an old timestamp (RFC 7323 §5).
        old_timestamps,
        /// RSTs ignored in TIME-WAIT (RFC 1337).
        assassinations,
        /// ICMP errors that matched a session and an outstanding sequence number.
        troubles,
        /// ICMP errors that matched no session or no outstanding sequence number (RFC 5927 §4.1).
        troubles_disbelieved,
        /// Sessions whose MSS was lowered because of the path MTU.
        mss_lowered,
        /// Segments that arrived out of order.
        out_of_order,
        /// Out-of-order slices dropped for lack of memory or room.
        early_dropped,
        /// Duplicate ACKs received.
        duplicate_acks,
        /// SACK blocks ignored because they cover data that is not outstanding.
        sack_unbelieved,
        /// ACKs with a D-SACK (RFC 2883).
        duplicate_sacks,
        /// Tail loss probes sent (RFC 8985 §7).
        tail_probes,
        /// Segments retransmitted, for any reason.
        retransmissions,
        /// Recoveries started by ACKs rather than by the timer.
        fast_retransmits,
        /// Retransmission timeouts.
        timeouts,
        /// Zero-window probes sent.
        probes,
        /// Keep-alive probes sent (RFC 9293 §3.8.4).
        keep_alives,
        /// Sessions in TIME-WAIT whose 4-tuple was reused by a new SYN (RFC 6191).
        time_wait_reused,
        /// Sessions that left TIME-WAIT early because there were too many.
        time_wait_cut,
        /// Acknowledgements that waited for the delayed-ACK timer.
        delayed_acks,
        /// Sessions aborted because the peer did not answer.
        timed_out,
        /// Sessions aborted because their peers accepted little or no data while others needed memory (RFC
        /// 6429).
        stuck_sessions_aborted,
        /// Writes limited because the peer's address, or the attached program, holds its share of memory.
        memory_limited_by_address,
        /// SYNs dropped, or connections not opened, because the address or the program has its share of
        /// sessions.
        sessions_limited_by_address,
        /// Half-open connections dropped from a full backlog in favour of an address that has fewer.
        half_open_displaced,
        /// Connection attempts that failed because the peer was unreachable.
        unreachable,
        /// Times that PDU memory or a receive page ran out.
        starved,
    }
}
