//! The kinds of ICMP errors.

/// The ICMP error that a packet caused. The codes are from RFC 792 and RFC 1122 §3.2.2 for IPv4, and from RFC
/// 4443 §3 for IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpErrorKind {
    /// The packet could not be delivered.
    Unreachable {
        /// The ICMP code.
        code: u8,
    },
    /// The packet was too long for the path and must not be fragmented.
    FragmentationNeeded {
        /// The MTU of the path, bytes.
        mtu: u32,
    },
    /// The hop limit was exceeded (code 0), or reassembly timed out (code 1).
    TimeExceeded {
        /// The ICMP code.
        code: u8,
    },
    /// A header field is wrong.
    ParameterProblem {
        /// The ICMP code.
        code: u8,
        /// Offset of the wrong byte in the packet.
        pointer: u32,
    },
}
