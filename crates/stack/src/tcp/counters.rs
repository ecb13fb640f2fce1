//! What TCP counts, by name.

kiban_ground::counters! {
    /// What happened in TCP.
    pub struct TcpCounters {
        /// Segments that arrived.
        segments_in,
        /// Segments handed down.
        segments_out,
        /// Payload bytes accepted in order.
        bytes_in,
        /// Payload and FIN bytes sent for the first time.
        bytes_out,
        /// Sessions that opened.
        opened,
        /// Connection requests that a listener took.
        requests_in,
        /// Connection requests dropped because the backlog or the table was full.
        requests_dropped,
        /// Requests answered with a cookie (RFC 4987 §3.6).
        cookies_out,
        /// Sessions that began with a cookie.
        cookies_in,
        /// Acknowledgements, to a listener that gave cookies, that bring none back.
        cookies_wrong,
        /// Segments with a header that breaks a rule.
        malformed,
        /// Segments whose checksum does not match.
        checksum_wrong,
        /// Segments for no session, answered with RST.
        unknown,
        /// Segments outside the window, or acknowledging what cannot be.
        unacceptable,
        /// Acknowledgements of bytes that were never sent.
        unsent_acknowledged,
        /// Segments without ACK on a session that needs it.
        without_ack,
        /// Payload after the peer's FIN.
        after_finish,
        /// Segments without bytes that should not have come, answered with where we stand (RFC 5961).
        challenged,
        /// The same beyond the limit, not answered (RFC 5961 §7).
        unchallenged,
        /// RST that ended a session.
        resets_in,
        /// RST sent to segments for no session.
        resets_out,
        /// Payload bytes that had arrived before.
        duplicate_bytes,
        /// Payload bytes beyond the window offered.
        beyond_window_bytes,
        /// Segments without timestamps on a session that has them (RFC 7323 §3.2).
        without_timestamps,
        /// Segments whose timestamp lies behind the newest one (RFC 7323 §5, PAWS).
        old_timestamps,
        /// Resets in TIME-WAIT that ended nothing (RFC 1337).
        assassinations,
        /// ICMP errors that named a session and a byte outstanding.
        troubles,
        /// ICMP errors that named no session, or no byte outstanding (RFC 5927 §4.1).
        troubles_disbelieved,
        /// Sessions whose segments became smaller because the path takes less.
        mss_lowered,
        /// Segments that arrived ahead of a hole.
        out_of_order,
        /// Early pieces given up for want of memory.
        early_dropped,
        /// Duplicate acknowledgements.
        duplicate_acks,
        /// SACK blocks of bytes that are not out: not believed.
        sack_unbelieved,
        /// Acknowledgements that told of bytes that came twice (RFC 2883).
        duplicate_sacks,
        /// Probes of the tail of a flight (RFC 8985 §7).
        tail_probes,
        /// Segments sent again, for any reason.
        retransmissions,
        /// Recoveries that acknowledgements began, not the timer.
        fast_retransmits,
        /// Retransmission timeouts.
        timeouts,
        /// Window probes.
        probes,
        /// Questions to a silent peer (RFC 9293 §3.8.4).
        keep_alives,
        /// Names taken by a new SYN before their time was over (RFC 6191).
        time_wait_reused,
        /// Sessions that left TIME-WAIT early because too many rested.
        time_wait_cut,
        /// Acknowledgements that waited for the timer.
        delayed_acks,
        /// Sessions given up because the peer was silent.
        timed_out,
        /// Sessions given up because their peers took nothing, or hardly anything, while others wanted memory (RFC 6429).
        stuck_sessions_aborted,
        /// Writes that took less because the peer's address, or the attached program, holds its share of memory.
        memory_limited_by_address,
        /// Connection requests dropped, or connections not opened, because the address or the program has its share of sessions.
        sessions_limited_by_address,
        /// Half-open connections that made way for one of an address that has fewer, in a full backlog.
        half_open_displaced,
        /// Sessions that could not be opened because nobody answers on the way.
        unreachable,
        /// Turns that found no PDU block.
        starved,
    }
}
