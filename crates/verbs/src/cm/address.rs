//! Conversion between C and Rust addresses.

use crate::abi::{ibv_ah_attr, ibv_gid, ibv_global_route, rdma_addr_socket};
use core::ffi::c_int;
use libc::{in_addr, in6_addr, sockaddr, sockaddr_in, sockaddr_in6};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Reads an IPv4 or IPv6 address.
///
/// # Errors
/// EINVAL for a null pointer or an unknown family, EAFNOSUPPORT for `AF_IB`, as in rdma-core and the kernel.
///
/// # Safety
/// `at` is null or a socket address of the length that its family requires.
pub(super) unsafe fn read(at: *const sockaddr) -> Result<SocketAddr, c_int> {
    /// `AF_IB` of the kernel.
    const AF_IB: c_int = 27;
    // SAFETY: the caller of `read` guarantees that `at` is null or points to an address.
    let family = unsafe { at.as_ref() }.ok_or(libc::EINVAL)?.sa_family;
    match c_int::from(family) {
        libc::AF_INET => {
            // SAFETY: the caller guarantees that the address has the length that its family requires; a
            // program may have stored it unaligned.
            let at = unsafe { at.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(at.sin_addr.s_addr));
            Ok((ip, u16::from_be(at.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the caller guarantees that the address has the length that its family requires; it may
            // be unaligned.
            let at = unsafe { at.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(at.sin6_addr.s6_addr);
            Ok(SocketAddrV6::new(ip, u16::from_be(at.sin6_port), 0, at.sin6_scope_id).into())
        }
        AF_IB => Err(libc::EAFNOSUPPORT),
        _ => Err(libc::EINVAL),
    }
}

/// Converts an address to a C struct.
pub(super) fn written(address: SocketAddr) -> rdma_addr_socket {
    let mut place = rdma_addr_socket::ZERO;
    match address {
        SocketAddr::V4(address) => {
            place.sin = sockaddr_in {
                sin_family: libc::AF_INET as _,
                sin_port: address.port().to_be(),
                sin_addr: in_addr { s_addr: u32::from(*address.ip()).to_be() },
                sin_zero: [0; 8],
            }
        }
        SocketAddr::V6(address) => {
            place.sin6 = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as _,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            }
        }
    }
    place
}

/// Converts an IPv4-mapped IPv6 address to IPv4; returns any other address unchanged.
pub(super) fn plain(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => (ip, address.port()).into(),
        IpAddr::V6(_) => address,
    }
}

/// Returns the GID of a device, which is its address.
pub(super) fn gid(address: IpAddr) -> ibv_gid {
    ibv_gid { raw: kiban_rdma_runtime::verbs::gid(address) }
}

/// Returns the route to a GID.
pub(super) fn route(dgid: ibv_gid) -> ibv_ah_attr {
    /// `IPV6_DEFAULT_HOPLIMIT` of the kernel.
    const HOP_LIMIT: u8 = 64;
    ibv_ah_attr {
        grh: ibv_global_route { dgid, hop_limit: HOP_LIMIT, ..ibv_global_route::ZERO },
        is_global: 1,
        port_num: 1,
        ..ibv_ah_attr::ZERO
    }
}
