//! The kinds of ICMP errors.

use crate::wire::{icmp, icmpv6};

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

impl IcmpErrorKind {
    /// Returns the error for a port without a listener or socket (RFC 1122 §4.1.3.1, RFC 4443 §3.1).
    pub const fn port_unreachable(is_ipv4: bool) -> IcmpErrorKind {
        let code = if is_ipv4 { icmp::UNREACHABLE_PORT } else { icmpv6::UNREACHABLE_PORT };
        IcmpErrorKind::Unreachable { code }
    }
}
