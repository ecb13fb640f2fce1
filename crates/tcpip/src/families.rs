//! Sockets and listeners for one address family or both (RFC 3493 §5.3), shared by all transports.

use core::net::SocketAddr;

/// Returns whether this is the IPv6 unspecified address.
pub(crate) fn is_any6(local: SocketAddr) -> bool {
    local.is_ipv6() && local.ip().is_unspecified()
}

/// Returns whether two sockets or listeners, one of them dual-stack, would claim the same IPv4 addresses.
pub(crate) fn overlap(one: (SocketAddr, bool), other: (SocketAddr, bool)) -> bool {
    let any4 = |local: SocketAddr| local.is_ipv4() && local.ip().is_unspecified();
    one.0.port() == other.0.port() && ((one.1 && any4(other.0)) || (other.1 && any4(one.0)))
}
