//! Counters of IP.

kiban_base::counters! {
    /// IP counters of one board.
    pub struct IpCounters {
        /// Packets that arrived.
        packets_in,
        /// Packets sent.
        packets_out,
        /// Packets to one of our own addresses, delivered without leaving the host (RFC 1122 §3.3.1.5 treats
        /// them like any other packet).
        loopback,
        /// Packets with a malformed header.
        malformed,
        /// Packets with a wrong header checksum.
        checksum_errors,
        /// Packets shorter than their length field.
        truncated,
        /// Packets dropped because they are addressed to another host.
        not_ours,
        /// Packets with an invalid source address.
        bad_source,
        /// Packets for an unknown protocol.
        unknown_protocol,
        /// Packets without a route.
        no_route,
        /// Packets longer than the MTU.
        too_long,
        /// IPv4 packets with malformed options.
        options_malformed,
        /// Packets dropped because of an IPv4 source route, or an IPv6 routing header with segments left.
        source_routed,
        /// IPv6 packets with an unknown option that requires discarding.
        options_unknown,
        /// IPv6 packets whose extension headers are out of order, too long, or too many.
        extension_headers_invalid,
        /// IPv6 packets without an upper-layer header (RFC 8200 §4.7).
        no_upper_layer_header,
        /// Fragments that arrived.
        fragments_in,
        /// Fragments with an invalid length.
        fragments_malformed,
        /// Fragments that would end beyond the maximum packet length.
        fragments_beyond_max,
        /// Fragments too short for the headers that a filter would check (RFC 1858, RFC 3128, RFC 7112).
        fragments_tiny,
        /// Duplicate fragments.
        fragments_duplicate,
        /// Fragments that overlap others or contradict the end of the datagram; the datagram is dropped (RFC
        /// 5722).
        fragments_overlapping,
        /// Datagrams dropped because one fragment carried the ECN mark "congestion experienced" and another
        /// was not capable of ECN (RFC 3168 §5.3).
        fragments_ecn_mixed,
        /// Fragments of datagrams that were already dropped.
        fragments_late,
        /// Fragments beyond the number that a datagram may have; their datagram is dropped.
        fragments_too_many,
        /// Atomic fragments: IPv6 packets that have a fragment header but are not fragmented (RFC 6946).
        fragments_atomic,
        /// Datagrams reassembled.
        reassembled,
        /// Datagrams dropped because they were not complete in time.
        reassembly_timeouts,
        /// Datagrams evicted in favour of newer ones, at the limit.
        reassembly_evicted,
        /// Datagrams dropped for lack of memory, in either direction.
        no_memory,
        /// Datagrams that were fragmented.
        fragmented,
        /// Fragments sent.
        fragments_out,
        /// Number of times that a path MTU was lowered.
        path_mtu_lowered,
        /// Implausible reports of a lower path MTU.
        path_mtu_implausible,
        /// Packets reported to their sender through ICMP.
        icmp_errors_requested,
    }
}
