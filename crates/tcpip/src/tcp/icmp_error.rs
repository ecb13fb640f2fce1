//! ICMP errors, as TCP sees them (RFC 1122 §4.2.3.9, RFC 5927).

/// An ICMP error about one of our segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpErrorClass {
    /// Net or host unreachable or prohibited (type 3, codes 0, 1, 5 to 13).
    Unreachable,
    /// Protocol unreachable (type 3, code 2).
    ProtocolUnreachable,
    /// Port unreachable (type 3, code 3).
    PortUnreachable,
    /// Packet too big for the path (type 3, code 4; ICMPv6 type 2).
    PacketTooBig {
        /// Largest IP packet that the path takes, bytes.
        mtu: u32,
    },
    /// Time exceeded (type 11).
    TimeExceeded,
    /// Parameter problem (type 12).
    ParameterProblem,
}
