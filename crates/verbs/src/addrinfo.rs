//! Resolves host and service names to RDMA addresses (rdma_getaddrinfo(3)).
//!
//! Purpose         returns the first result of getaddrinfo(3), in the form that `rdma_create_ep` takes. Each
//!                 part is allocated separately with malloc(3), because programs replace parts before they
//!                 free the result.
//! Hints           the queue pair type and the port space select streams or datagrams. The result contains
//!                 values for the fields that the hints leave open.
//! Errors          -1 and errno, or the error code of getaddrinfo(3).
//! Not implemented AF_IB fails with EAFNOSUPPORT, because there is no subnet whose GIDs could be queried.
//!                 `RAI_NOROUTE` is always in effect.

use crate::abi::*;
use crate::ffi::{catch_panics, fail_with_errno};
use core::ffi::{c_char, c_int, c_void};
use core::ptr::{null, null_mut};
use libc::{addrinfo, sockaddr, socklen_t};

/// `AF_IB` of the kernel.
const AF_IB: c_int = 27;

/// Converts hints to hints for getaddrinfo(3).
fn getaddrinfo_hints(hints: &rdma_addrinfo) -> addrinfo {
    let socktype = match u32::try_from(hints.ai_qp_type) {
        Ok(IBV_QPT_RC | IBV_QPT_UC | IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV) => libc::SOCK_STREAM,
        Ok(IBV_QPT_UD) => libc::SOCK_DGRAM,
        _ => 0,
    };
    let protocol = match u32::try_from(hints.ai_port_space) {
        Ok(RDMA_PS_TCP) => libc::IPPROTO_TCP,
        Ok(RDMA_PS_UDP | RDMA_PS_IPOIB) => libc::IPPROTO_UDP,
        Ok(RDMA_PS_IB) if socktype == libc::SOCK_STREAM => libc::IPPROTO_TCP,
        Ok(RDMA_PS_IB) if socktype == libc::SOCK_DGRAM => libc::IPPROTO_UDP,
        _ => 0,
    };
    let flag = |flag, theirs| if hints.ai_flags & flag == 0 { 0 } else { theirs };
    addrinfo {
        ai_flags: flag(RAI_PASSIVE, libc::AI_PASSIVE) | flag(RAI_NUMERICHOST, libc::AI_NUMERICHOST),
        ai_family: if hints.ai_family == AF_IB { libc::AF_UNSPEC } else { hints.ai_family },
        ai_socktype: socktype,
        ai_protocol: protocol,
        ai_addrlen: 0,
        ai_addr: null_mut(),
        ai_canonname: null_mut(),
        ai_next: null_mut(),
    }
}

/// Returns a copy that free(3) can free.
///
/// # Safety
/// `from` points to `bytes` bytes.
unsafe fn copied(from: *const c_void, bytes: usize) -> Result<*mut c_void, c_int> {
    // SAFETY: malloc(3) accepts any size.
    let place = unsafe { libc::malloc(bytes) };
    if place.is_null() {
        return Err(fail_with_errno(libc::ENOMEM));
    }
    // SAFETY: the allocation is new and has `bytes` bytes; the caller guarantees that `from` has as many.
    unsafe { core::ptr::copy_nonoverlapping(from.cast::<u8>(), place.cast(), bytes) };
    Ok(place)
}

/// # Safety
/// `from` points to `bytes` bytes, or is null.
unsafe fn copy_address(
    from: *const sockaddr,
    bytes: socklen_t,
    to: (&mut *mut sockaddr, &mut socklen_t),
) -> Result<(), c_int> {
    if from.is_null() {
        return Err(fail_with_errno(libc::EINVAL));
    }
    // SAFETY: the caller of `copy_address` guarantees that `from`, which is not null here, points to `bytes`
    // bytes.
    *to.0 = unsafe { copied(from.cast(), bytes as usize)? }.cast();
    *to.1 = bytes;
    Ok(())
}

/// Resolves a name and stores the first result.
///
/// # Safety
/// `node` and `service` are C strings or null.
unsafe fn resolve(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
    answer: &mut rdma_addrinfo,
) -> Result<(), c_int> {
    let wanted = hints.map(getaddrinfo_hints);
    let mut found: *mut addrinfo = null_mut();
    // SAFETY: `node` and `service` are C strings or null, as the caller guarantees; `wanted` and `found` are
    // local variables that outlive the call.
    let code = unsafe {
        libc::getaddrinfo(node, service, wanted.as_ref().map_or(null(), |hints| hints), &mut found)
    };
    if code != 0 {
        return Err(code);
    }
    // SAFETY: getaddrinfo(3) succeeded, so `found` is a list of at least one entry, which is valid until it
    // is freed below.
    let result = unsafe { copy_entry(&*found, hints, answer) };
    // SAFETY: the list came from getaddrinfo(3), and `copy_entry` has copied everything that its result
    // contains.
    unsafe { libc::freeaddrinfo(found) };
    result
}

/// # Safety
/// `found` is an entry from getaddrinfo.
unsafe fn copy_entry(
    found: &addrinfo,
    hints: Option<&rdma_addrinfo>,
    answer: &mut rdma_addrinfo,
) -> Result<(), c_int> {
    let hinted = |of: fn(&rdma_addrinfo) -> c_int| hints.map(of).filter(|hint| *hint != 0);
    answer.ai_qp_type = hinted(|hints| hints.ai_qp_type).unwrap_or(match found.ai_socktype {
        libc::SOCK_STREAM => IBV_QPT_RC as c_int,
        libc::SOCK_DGRAM => IBV_QPT_UD as c_int,
        _ => 0,
    });
    answer.ai_port_space = hinted(|hints| hints.ai_port_space).unwrap_or(match found.ai_protocol {
        libc::IPPROTO_TCP => RDMA_PS_TCP as c_int,
        libc::IPPROTO_UDP => RDMA_PS_UDP as c_int,
        _ => 0,
    });
    answer.ai_family = found.ai_family;
    let passive = found.ai_flags & libc::AI_PASSIVE != 0;
    let (name, place) = if passive {
        answer.ai_flags = RAI_PASSIVE;
        (&mut answer.ai_src_canonname, (&mut answer.ai_src_addr, &mut answer.ai_src_len))
    } else {
        (&mut answer.ai_dst_canonname, (&mut answer.ai_dst_addr, &mut answer.ai_dst_len))
    };
    if !found.ai_canonname.is_null() {
        // SAFETY: `ai_canonname` is not null, so it is a C string in the list.
        *name = unsafe { libc::strdup(found.ai_canonname) };
    }
    // SAFETY: `ai_addrlen` is the length of the address, as getaddrinfo guarantees.
    unsafe { copy_address(found.ai_addr, found.ai_addrlen, place) }
}

/// # Safety
/// `node` and `service` are C strings or null; the addresses in the hints have the given lengths.
unsafe fn answer(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
    answer: &mut rdma_addrinfo,
) -> Result<(), c_int> {
    if !node.is_null() || !service.is_null() {
        // SAFETY: the caller of `answer` guarantees that `node` and `service` are C strings or null.
        unsafe { resolve(node, service, hints, answer)? };
    } else if let Some(hints) = hints {
        answer.ai_flags = hints.ai_flags;
        answer.ai_family = hints.ai_family;
        answer.ai_qp_type = hints.ai_qp_type;
        answer.ai_port_space = hints.ai_port_space;
        if hints.ai_dst_len > 0 {
            let place = (&mut answer.ai_dst_addr, &mut answer.ai_dst_len);
            // SAFETY: the caller guarantees that `ai_dst_len` is the length of the address.
            unsafe { copy_address(hints.ai_dst_addr, hints.ai_dst_len, place)? };
        }
    }
    match hints {
        Some(hints) if answer.ai_src_len == 0 && hints.ai_src_len > 0 => {
            let place = (&mut answer.ai_src_addr, &mut answer.ai_src_len);
            // SAFETY: the caller guarantees that `ai_src_len` is the length of the address.
            unsafe { copy_address(hints.ai_src_addr, hints.ai_src_len, place) }
        }
        _ => Ok(()),
    }
}

/// # Safety
/// `node` and `service` are C strings or null; the addresses in the hints have the given lengths; `result`
/// is null or valid for a write.
#[unsafe(export_name = "kiban_rdma_getaddrinfo")]
unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    result: *mut *mut rdma_addrinfo,
) -> c_int {
    catch_panics(-1, || {
        if (node.is_null() && service.is_null() && hints.is_null()) || result.is_null() {
            return fail_with_errno(libc::EINVAL);
        }
        // SAFETY: the caller of `rdma_getaddrinfo` guarantees that `hints` is null or valid for reads.
        let hints = unsafe { hints.as_ref() };
        if hints.is_some_and(|hints| hints.ai_family == AF_IB && hints.ai_flags & RAI_FAMILY != 0) {
            return fail_with_errno(libc::EAFNOSUPPORT);
        }
        let mut made = rdma_addrinfo::ZERO;
        // SAFETY: the caller of `rdma_getaddrinfo` guarantees that `node` and `service` are C strings or
        // null, and that the addresses in the hints have the given lengths.
        let outcome = unsafe { answer(node, service, hints, &mut made) }.and_then(|()| {
            // SAFETY: `made` is a local variable of exactly this size.
            unsafe { copied((&raw const made).cast(), size_of::<rdma_addrinfo>()) }
        });
        match outcome {
            Ok(place) => {
                // SAFETY: the caller guarantees that `result` is valid for a write.
                unsafe { *result = place.cast() };
                0
            }
            Err(code) => {
                // SAFETY: the parts of `made` were allocated by malloc(3), and no other pointer to them
                // exists.
                unsafe { free_parts(&made) };
                code
            }
        }
    })
}

/// # Safety
/// Each part is null or was allocated by malloc(3), and is not used again.
unsafe fn free_parts(info: &rdma_addrinfo) {
    let parts: [*mut c_void; 6] = [
        info.ai_connect,
        info.ai_route,
        info.ai_src_canonname.cast(),
        info.ai_dst_canonname.cast(),
        info.ai_src_addr.cast(),
        info.ai_dst_addr.cast(),
    ];
    for part in parts {
        // SAFETY: the caller of `free_parts` guarantees that each part is null or was allocated by malloc(3),
        // and is not used again.
        unsafe { libc::free(part) };
    }
}

/// # Safety
/// `list` is null or came from `rdma_getaddrinfo`.
#[unsafe(export_name = "kiban_rdma_freeaddrinfo")]
unsafe extern "C" fn rdma_freeaddrinfo(mut list: *mut rdma_addrinfo) {
    while !list.is_null() {
        // SAFETY: `list` is an entry of a list from `rdma_getaddrinfo`; its parts and the entry itself are
        // freed exactly once.
        unsafe {
            let next = (*list).ai_next;
            free_parts(&*list);
            libc::free(list.cast());
            list = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::CStr;
    use std::io::Error;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

    fn pointer(text: Option<&CStr>) -> *const c_char {
        text.map_or(null(), CStr::as_ptr)
    }

    /// Reads an address, or returns `None` for a null pointer.
    ///
    /// # Safety
    /// `at` is null or a socket address of the length that its family requires.
    unsafe fn address(at: *const sockaddr, bytes: socklen_t) -> Option<SocketAddr> {
        // SAFETY: the address is as long as the struct of its family; the assertions check this.
        unsafe {
            match c_int::from(at.as_ref()?.sa_family) {
                libc::AF_INET => {
                    assert_eq!(bytes as usize, size_of::<libc::sockaddr_in>());
                    let at = &*at.cast::<libc::sockaddr_in>();
                    let ip = Ipv4Addr::from(u32::from_be(at.sin_addr.s_addr));
                    Some((IpAddr::from(ip), u16::from_be(at.sin_port)).into())
                }
                libc::AF_INET6 => {
                    assert_eq!(bytes as usize, size_of::<libc::sockaddr_in6>());
                    let at = &*at.cast::<libc::sockaddr_in6>();
                    Some(
                        (IpAddr::from(Ipv6Addr::from(at.sin6_addr.s6_addr)), u16::from_be(at.sin6_port))
                            .into(),
                    )
                }
                other => panic!("family {other}"),
            }
        }
    }

    #[derive(Debug, PartialEq)]
    struct Resolved {
        flags: c_int,
        qp_type: u32,
        port_space: u32,
        source: Option<SocketAddr>,
        target: Option<SocketAddr>,
    }

    fn get(
        node: Option<&CStr>,
        service: Option<&CStr>,
        hints: Option<&rdma_addrinfo>,
    ) -> Result<Resolved, c_int> {
        let mut list = null_mut();
        let hints = hints.map_or(null(), |hints| hints as *const _);
        // SAFETY: the strings and hints are null or outlive the call, and `list` is a local variable.
        let code = unsafe { rdma_getaddrinfo(pointer(node), pointer(service), hints, &mut list) };
        if code != 0 {
            return Err(code);
        }
        // SAFETY: the call succeeded: the list is valid, its addresses have the given lengths, and it is
        // freed once.
        unsafe {
            let resolved = Resolved {
                flags: (*list).ai_flags,
                qp_type: (*list).ai_qp_type.cast_unsigned(),
                port_space: (*list).ai_port_space.cast_unsigned(),
                source: address((*list).ai_src_addr, (*list).ai_src_len),
                target: address((*list).ai_dst_addr, (*list).ai_dst_len),
            };
            assert!((*list).ai_next.is_null());
            rdma_freeaddrinfo(list);
            Ok(resolved)
        }
    }

    fn hints(
        flags: c_int,
        family: c_int,
        qp_type: ibv_qp_type,
        port_space: rdma_port_space,
    ) -> rdma_addrinfo {
        rdma_addrinfo {
            ai_flags: flags,
            ai_family: family,
            ai_qp_type: qp_type.cast_signed(),
            ai_port_space: port_space.cast_signed(),
            ..rdma_addrinfo::ZERO
        }
    }

    fn at(text: &str) -> Option<SocketAddr> {
        Some(text.parse().expect("an address"))
    }

    #[test]
    fn names_and_hints_become_addresses() {
        let here = Some(c"127.0.0.1");
        let port = Some(c"7174");
        let target = Resolved {
            flags: 0,
            qp_type: IBV_QPT_RC,
            port_space: RDMA_PS_TCP,
            source: None,
            target: at("127.0.0.1:7174"),
        };
        // Without hints, getaddrinfo(3) returns a stream socket first.
        assert_eq!(get(here, port, None), Ok(target));
        let rows = [
            (hints(0, 0, IBV_QPT_UD, 0), IBV_QPT_UD, RDMA_PS_UDP),
            (hints(0, 0, 0, RDMA_PS_UDP), IBV_QPT_UD, RDMA_PS_UDP),
            (hints(0, 0, IBV_QPT_UC, RDMA_PS_IB), IBV_QPT_UC, RDMA_PS_IB),
            (hints(RAI_NUMERICHOST, libc::AF_INET, 0, RDMA_PS_TCP), IBV_QPT_RC, RDMA_PS_TCP),
        ];
        for (hints, qp_type, port_space) in rows {
            let resolved = get(here, port, Some(&hints)).expect("a numeric address needs no resolver");
            let expected =
                Resolved { flags: 0, qp_type, port_space, source: None, target: at("127.0.0.1:7174") };
            assert_eq!(resolved, expected);
        }
        let passive = |family| hints(RAI_PASSIVE, family, 0, RDMA_PS_TCP);
        for (node, family, source) in [
            (None, libc::AF_INET, "0.0.0.0:7174"),
            (None, libc::AF_INET6, "[::]:7174"),
            (here, 0, "127.0.0.1:7174"),
            (Some(c"::1"), 0, "[::1]:7174"),
        ] {
            let resolved =
                get(node, port, Some(&passive(family))).expect("a numeric service needs no resolver");
            let expected = Resolved {
                flags: RAI_PASSIVE,
                qp_type: IBV_QPT_RC,
                port_space: RDMA_PS_TCP,
                source: at(source),
                target: None,
            };
            assert_eq!(resolved, expected);
        }
    }

    #[test]
    fn addresses_in_the_hints_are_copied() {
        let mut own = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: 9u16.to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from(Ipv4Addr::new(127, 0, 0, 2)).to_be() },
            sin_zero: [0; 8],
        };
        let bytes = size_of::<libc::sockaddr_in>() as socklen_t;
        let place: *mut sockaddr = (&raw mut own).cast();
        let both = rdma_addrinfo {
            ai_src_addr: place,
            ai_src_len: bytes,
            ai_dst_addr: place,
            ai_dst_len: bytes,
            ..hints(RAI_NOROUTE, libc::AF_INET, IBV_QPT_RC, RDMA_PS_TCP)
        };
        let resolved = get(None, None, Some(&both)).expect("hints with addresses are enough");
        assert_eq!(
            (resolved.flags, resolved.source, resolved.target),
            (RAI_NOROUTE, at("127.0.0.2:9"), at("127.0.0.2:9"))
        );
        let resolved = get(Some(c"127.0.0.3"), Some(c"1"), Some(&both)).expect("a number");
        assert_eq!((resolved.source, resolved.target), (at("127.0.0.2:9"), at("127.0.0.3:1")));
        let lying = rdma_addrinfo { ai_src_len: bytes, ..hints(0, 0, 0, 0) };
        assert_eq!(get(None, None, Some(&lying)), Err(-1));
    }

    #[test]
    fn invalid_queries_and_hints_are_refused() {
        let errno = || Error::last_os_error().raw_os_error();
        assert_eq!((get(None, None, None), errno()), (Err(-1), Some(libc::EINVAL)));
        let ib = hints(RAI_FAMILY | RAI_NUMERICHOST, AF_IB, 0, RDMA_PS_IB);
        assert_eq!((get(Some(c"::1"), None, Some(&ib)), errno()), (Err(-1), Some(libc::EAFNOSUPPORT)));
        let numeric = hints(RAI_NUMERICHOST, 0, 0, RDMA_PS_TCP);
        assert_eq!(get(Some(c"no number"), Some(c"1"), Some(&numeric)), Err(libc::EAI_NONAME));
        let crooked = hints(0, 99, 0, RDMA_PS_TCP);
        assert_eq!(get(Some(c"127.0.0.1"), None, Some(&crooked)), Err(libc::EAI_FAMILY));
        // SAFETY: null is an empty list.
        unsafe { rdma_freeaddrinfo(null_mut()) };
    }
}
