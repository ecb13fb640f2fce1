//! Conversion between C and Rust addresses.

use core::ffi::c_int;
use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Reads an IPv4 or IPv6 address.
///
/// # Errors
/// EFAULT for a null pointer, EINVAL if the address is too short, EAFNOSUPPORT for any other family.
///
/// # Safety
/// `at` points to `bytes` bytes, or is null.
pub(super) unsafe fn read(at: *const sockaddr, bytes: socklen_t) -> Result<SocketAddr, c_int> {
    if at.is_null() {
        return Err(libc::EFAULT);
    }
    if (bytes as usize) < size_of::<libc::sa_family_t>() {
        return Err(libc::EINVAL);
    }
    // SAFETY: `at` points to at least as many bytes as the family field, which comes first. It may be
    // unaligned.
    let family = unsafe { at.cast::<libc::sa_family_t>().read_unaligned() };
    match c_int::from(family) {
        libc::AF_INET if bytes as usize >= size_of::<sockaddr_in>() => {
            // SAFETY: the guard of this arm checked that there are enough bytes.
            let from = unsafe { at.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(from.sin_addr.s_addr));
            Ok(SocketAddr::new(ip.into(), u16::from_be(from.sin_port)))
        }
        libc::AF_INET6 if bytes as usize >= size_of::<sockaddr_in6>() => {
            // SAFETY: the guard of this arm checked that there are enough bytes.
            let from = unsafe { at.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(from.sin6_addr.s6_addr);
            let port = u16::from_be(from.sin6_port);
            Ok(SocketAddrV6::new(ip, port, from.sin6_flowinfo, from.sin6_scope_id).into())
        }
        libc::AF_INET | libc::AF_INET6 => Err(libc::EINVAL),
        _ => Err(libc::EAFNOSUPPORT),
    }
}

/// Converts an address to the form that a socket of a family uses.
fn shown(address: SocketAddr, family: c_int) -> SocketAddr {
    match (address, family) {
        (SocketAddr::V4(v4), libc::AF_INET6) => SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()),
        (SocketAddr::V6(v6), libc::AF_INET) => SocketAddr::new(v6.ip().to_canonical(), v6.port()),
        _ => address,
    }
}

/// Returns an address as a C struct, and its length.
pub(super) fn bytes(address: SocketAddr, family: c_int) -> (sockaddr_storage, usize) {
    // SAFETY: all-zero bytes are a valid `sockaddr_storage`, of the family AF_UNSPEC.
    let mut place: sockaddr_storage = unsafe { core::mem::zeroed() };
    let length = match shown(address, family) {
        SocketAddr::V4(v4) => {
            let made = sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: `sockaddr_storage` is large enough and aligned for every address family.
            unsafe { (&raw mut place).cast::<sockaddr_in>().write(made) };
            size_of::<sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let made = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: `sockaddr_storage` is large enough and aligned for every address family.
            unsafe { (&raw mut place).cast::<sockaddr_in6>().write(made) };
            size_of::<sockaddr_in6>()
        }
    };
    (place, length)
}

/// Writes as much of an address as there is room for, and the address's full length (accept(2)).
///
/// # Safety
/// `at` points to `*length` bytes, or one of the pointers is null.
pub(super) unsafe fn write(address: SocketAddr, family: c_int, at: *mut sockaddr, length: *mut socklen_t) {
    if at.is_null() || length.is_null() {
        return;
    }
    let (place, bytes) = bytes(address, family);
    // SAFETY: the caller guarantees that `at` has room for `*length` bytes; at most the length of `place` is
    // copied.
    unsafe {
        let room = (*length as usize).min(bytes);
        core::ptr::copy_nonoverlapping((&raw const place).cast::<u8>(), at.cast(), room);
        *length = bytes as socklen_t;
    }
}

/// Returns the unspecified address of a family.
pub(super) fn unspecified(family: c_int) -> SocketAddr {
    match family {
        libc::AF_INET6 => SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
        _ => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back(text: &str, family: c_int) -> Result<SocketAddr, c_int> {
        let (place, length) = bytes(text.parse().expect("an address"), family);
        // SAFETY: `place` is at least `length` bytes long.
        unsafe { read((&raw const place).cast(), length as socklen_t) }
    }

    #[test]
    fn addresses_are_returned_in_the_family_of_the_socket() {
        for (given, family, expected) in [
            ("1.2.3.4:5", libc::AF_INET, "1.2.3.4:5"),
            ("[::1]:7174", libc::AF_INET6, "[::1]:7174"),
            ("1.2.3.4:5", libc::AF_INET6, "[::ffff:1.2.3.4]:5"),
            ("[::ffff:1.2.3.4]:5", libc::AF_INET, "1.2.3.4:5"),
        ] {
            assert_eq!(back(given, family), Ok(expected.parse().expect("an address")), "{given}");
        }
    }

    #[test]
    fn short_and_unknown_addresses_are_refused() {
        let (place, length) = bytes(unspecified(libc::AF_INET), libc::AF_INET);
        let at = (&raw const place).cast::<sockaddr>();
        // SAFETY: every address read here lies within its `sockaddr_storage`, or is null.
        unsafe {
            assert_eq!(read(core::ptr::null(), 16), Err(libc::EFAULT));
            assert_eq!(read(at, 1), Err(libc::EINVAL));
            assert_eq!(read(at, length as socklen_t - 1), Err(libc::EINVAL));
            let unix: sockaddr_storage = core::mem::zeroed();
            assert_eq!(read((&raw const unix).cast(), 16), Err(libc::EAFNOSUPPORT));
        }
    }
}
