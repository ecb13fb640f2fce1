//! Counters of an Ethernet link.

kiban_base::counters! {
    /// Counters of one Ethernet link.
    pub struct EthernetCounters {
        /// Frames that arrived.
        frames_in,
        /// Frames that are too short or have a group address as their source.
        malformed,
        /// Frames for another station.
        not_ours,
        /// Frames of an unknown type.
        unknown_type,
        /// Frames to a group address that contain a packet for a single host (RFC 1122 §3.3.6).
        unicast_in_multicast,
        /// Malformed ARP packets.
        arp_malformed,
        /// ARP packets that concern neither one of our addresses nor a known neighbour.
        arp_ignored,
        /// ARP requests sent.
        arp_requests_out,
        /// ARP replies sent.
        arp_replies_out,
        /// ARP packets in which another station claims one of our IPv4 addresses (RFC 5227 §2.4).
        arp_conflicts,
        /// Times that an IPv4 address was announced or defended.
        arp_announced,
        /// Invalid neighbour discovery messages: not from this link, fragmented, or malformed.
        discovery_malformed,
        /// Neighbour discovery messages that do not concern any of our addresses.
        discovery_ignored,
        /// Solicitations sent, for neighbours or for addresses of our own.
        solicitations_out,
        /// Advertisements sent.
        advertisements_out,
        /// Router solicitations sent.
        router_solicitations_out,
        /// Router advertisements accepted.
        router_advertisements_in,
        /// Prefixes, routers or addresses rejected because a table was full.
        autoconf_table_full,
        /// Unusable prefixes, and implausibly short lifetimes (RFC 4862 §5.5.3).
        autoconf_invalid,
        /// Our addresses that another station already uses (RFC 4862 §5.4).
        duplicate_addresses,
        /// Queries for multicast listeners (MLD) that were accepted.
        mld_queries_in,
        /// Invalid MLD messages: not from this link, without a router alert, fragmented, or malformed.
        mld_malformed,
        /// MLD messages that require no response: for groups without a listener here, or of other listeners.
        mld_ignored,
        /// MLD reports and done messages sent.
        mld_reports_out,
        /// Responses to MLD queries that were delayed by the rate limit.
        mld_rate_limited,
        /// Queries for group members (IGMP) that were accepted.
        igmp_queries_in,
        /// Invalid IGMP messages: with another TTL than 1, fragmented, or malformed.
        igmp_malformed,
        /// IGMP messages that require no response: for groups without a member here, or of other members.
        igmp_ignored,
        /// IGMP reports and leave messages sent.
        igmp_reports_out,
        /// Responses to IGMP queries that were delayed by the rate limit.
        igmp_rate_limited,
        /// Redirects accepted.
        redirects_in,
        /// Redirects rejected.
        redirects_rejected,
        /// Neighbours evicted from a full cache.
        neighbours_evicted,
        /// Neighbours whose MAC address changed.
        neighbours_moved,
        /// Neighbours that did not answer.
        neighbours_failed,
        /// Packets dropped while they waited for a neighbour.
        unresolved_discards,
        /// Solicitations, requests or answers not sent for lack of memory.
        no_memory,
    }
}
