//! The Ethernet address behind a GID (`ibv_resolve_eth_l2_from_gid`), which hardware needs in an address
//! handle.
//!
//! Purpose         returns the MAC address from the host's tables.
//! How             a local address has the MAC address of its interface, a multicast group has the one
//!                 defined by RFC 1112 or RFC 2464, and a neighbour has the one in the ARP table. No VLAN is
//!                 reported, because the NIC sends through sockets and the host adds tags.
//! Errors          negative errno values, as in rdma-core: -EINVAL if the source is not a local address,
//!                 -EHOSTUNREACH for an unknown neighbour.
//! Not implemented ARP for unknown neighbours, and IPv6 neighbours, because nothing here sends Ethernet
//! frames.

use crate::abi::*;
use crate::device::interfaces::{Interfaces, Mac, parsed};
use crate::ffi::catch_panics;
use core::ffi::c_int;
use std::net::{IpAddr, Ipv6Addr};

/// No VLAN.
const VLAN_NONE: u16 = 0xffff;

/// # Safety
/// `context` is null or open, `attributes` is null or valid, `mac` has room for six bytes, and `vlan` is null
/// or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    context: *mut ibv_context,
    attributes: *const ibv_ah_attr,
    mac: *mut u8,
    vlan: *mut u16,
) -> c_int {
    catch_panics(-libc::EINVAL, || {
        // SAFETY: the caller of `ibv_resolve_eth_l2_from_gid` guarantees that `attributes` is null or valid
        // for reads.
        let attributes = unsafe { attributes.as_ref() };
        let (Some(attributes), false, false) = (attributes, context.is_null(), mac.is_null()) else {
            return -libc::EINVAL;
        };
        let mut source = ibv_gid { raw: [0; 16] };
        let index = c_int::from(attributes.grh.sgid_index);
        // SAFETY: the caller of `ibv_resolve_eth_l2_from_gid` guarantees that `context` is an open context
        // created by this library; `source` is a local variable.
        let code =
            unsafe { crate::device::query::ibv_query_gid(context, attributes.port_num, index, &mut source) };
        if code != 0 {
            return code;
        }
        match resolve(address(&source), address(&attributes.grh.dgid)) {
            Ok(found) => {
                // SAFETY: the caller of `ibv_resolve_eth_l2_from_gid` guarantees that `mac` has room for six
                // bytes, and that `vlan` is null or valid for a write.
                unsafe {
                    mac.cast::<Mac>().write_unaligned(found);
                    if !vlan.is_null() {
                        vlan.write_unaligned(VLAN_NONE);
                    }
                }
                0
            }
            Err(error) => -error,
        }
    })
}

fn address(gid: &ibv_gid) -> IpAddr {
    Ipv6Addr::from(gid.bytes()).to_canonical()
}

fn resolve(source: IpAddr, target: IpAddr) -> Result<Mac, c_int> {
    let interfaces = Interfaces::read()?;
    let from = interfaces.with(source).ok_or(libc::EINVAL)?.name.clone();
    if let Some(group) = group(target) {
        return Ok(group);
    }
    if let Some(own) = interfaces.with(target) {
        return Ok(own.mac());
    }
    neighbour(target, &from).ok_or(libc::EHOSTUNREACH)
}

/// Returns the MAC address of a multicast group (RFC 1112, section 6.4; RFC 2464, section 7).
fn group(target: IpAddr) -> Option<Mac> {
    match target {
        IpAddr::V4(group) if group.is_multicast() => {
            let [_, b, c, d] = group.octets();
            Some([0x01, 0x00, 0x5e, b & 0x7f, c, d])
        }
        IpAddr::V6(group) if group.is_multicast() => {
            let [.., a, b, c, d] = group.octets();
            Some([0x33, 0x33, a, b, c, d])
        }
        _ => None,
    }
}

/// Looks up a neighbour in /proc/net/arp, whose columns are address, type, flags, hardware address, mask,
/// device.
fn neighbour(target: IpAddr, interface: &str) -> Option<Mac> {
    let table = std::fs::read_to_string("/proc/net/arp").ok()?;
    entry(&table, target, interface)
}

fn entry(table: &str, target: IpAddr, interface: &str) -> Option<Mac> {
    const COMPLETE: u32 = 2;
    table.lines().skip(1).find_map(|line| {
        let [address, _, flags, mac, _, device] =
            line.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
        let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).ok()?;
        let here = address.parse() == Ok(target) && device == interface && flags & COMPLETE != 0;
        here.then(|| parsed(mac)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn multicast_and_local_addresses_resolve_without_a_neighbour() {
        let here = ip("127.0.0.1");
        assert_eq!(resolve(here, here), Ok([0; 6]));
        assert_eq!(resolve(here, ip("239.129.2.3")), Ok([0x01, 0x00, 0x5e, 1, 2, 3]));
        assert_eq!(resolve(here, ip("ff02::1:ff00:1")), Ok([0x33, 0x33, 0xff, 0, 0, 1]));
        assert_eq!(resolve(ip("192.0.2.1"), here), Err(libc::EINVAL));
        assert_eq!(resolve(here, ip("192.0.2.1")), Err(libc::EHOSTUNREACH));
    }

    #[test]
    fn gids_hold_ipv4_and_ipv6_addresses() {
        let gid = |text: &str| ibv_gid { raw: text.parse::<Ipv6Addr>().expect("an address").octets() };
        assert_eq!(address(&gid("::ffff:192.0.2.7")), ip("192.0.2.7"));
        assert_eq!(address(&gid("fe80::1")), ip("fe80::1"));
    }

    #[test]
    fn neighbours_are_found_in_the_arp_table() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
                     192.0.2.1        0x1         0x2         02:00:00:00:00:01     *        eth0\n\
                     192.0.2.2        0x1         0x0         00:00:00:00:00:00     *        eth0\n";
        assert_eq!(entry(table, ip("192.0.2.1"), "eth0"), Some([2, 0, 0, 0, 0, 1]));
        assert_eq!(entry(table, ip("192.0.2.1"), "eth1"), None);
        assert_eq!(entry(table, ip("192.0.2.2"), "eth0"), None);
    }

    #[test]
    fn null_pointers_fail_with_einval() {
        let null = core::ptr::null_mut();
        // SAFETY: the function rejects null pointers before it uses them.
        let refused =
            unsafe { ibv_resolve_eth_l2_from_gid(null, core::ptr::null(), null.cast(), null.cast()) };
        assert_eq!(refused, -libc::EINVAL);
    }
}
