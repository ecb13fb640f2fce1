//! Assigned numbers that more than one header uses (IANA).

/// EtherTypes (IEEE 802; RFC 9542): the protocol after an Ethernet or LLC/SNAP header.
pub mod ether_type {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP on Ethernet; ATMARP and InATMARP on ATM (RFC 2225 §8.1).
    pub const ARP: u16 = 0x0806;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// MAC control: pauses (IEEE 802.3 annex 31A).
    pub const MAC_CONTROL: u16 = 0x8808;
    /// Local experimental EtherType 1 (IEEE 802 §9.2.3), for experiments within one network; used by the
    /// EFE-like transport.
    pub const EXPERIMENTAL: u16 = 0x88b5;
}

/// IP protocol numbers: the protocol of the header that follows an IPv4 header, or that an IPv6 next-header
/// field names.
pub mod protocol {
    /// IPv6 hop-by-hop options (RFC 8200 §4.3).
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP (RFC 792).
    pub const ICMP: u8 = 1;
    /// TCP (RFC 9293).
    pub const TCP: u8 = 6;
    /// UDP (RFC 768).
    pub const UDP: u8 = 17;
    /// IPv6 routing header (RFC 8200 §4.4).
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header (RFC 8200 §4.5).
    pub const FRAGMENT: u8 = 44;
    /// ICMPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
    /// IGMP (RFC 3376).
    pub const IGMP: u8 = 2;
    /// No next header (RFC 8200 §4.7).
    pub const NOTHING: u8 = 59;
    /// IPv6 destination options (RFC 8200 §4.6).
    pub const DESTINATION_OPTIONS: u8 = 60;
}
