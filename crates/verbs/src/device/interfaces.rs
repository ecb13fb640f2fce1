//! The host's network interfaces and their addresses (getifaddrs(3)).
//!
//! Purpose         determines the addresses that become devices. Those that other hosts can reach come
//!                 first.
//! Not implemented link-local IPv6 addresses, which are ambiguous without an interface; interfaces that are
//! down.

use crate::abi::ETHERNET_LL_SIZE;
use core::ffi::{CStr, c_int};
use std::net::IpAddr;

pub(crate) type Mac = [u8; ETHERNET_LL_SIZE];

/// An address and its interface.
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    is_up: bool,
}

impl Interface {
    fn file(&self, file: &str) -> Option<String> {
        std::fs::read_to_string(format!("/sys/class/net/{}/{file}", self.name)).ok()
    }

    /// Returns the MAC address; zeroes if the interface has none, like `lo`.
    pub(crate) fn mac(&self) -> Mac {
        self.file("address").and_then(|text| parsed(&text)).unwrap_or_default()
    }

    /// Returns the MTU in bytes.
    pub(crate) fn mtu_bytes(&self) -> Option<u32> {
        // Not from /sys, for the same reason as the index.
        u32::try_from(kiban_os::interface::mtu(&self.name).ok()?).ok()
    }

    /// Returns the interface index, or 0.
    pub(crate) fn index(&self) -> u32 {
        // Not from /sys, which may be mounted from another network namespace.
        std::ffi::CString::new(self.name.as_bytes()).map_or(0, |name| {
            // SAFETY: `name` is a C string.
            unsafe { libc::if_nametoindex(name.as_ptr()) }
        })
    }
}

/// The interfaces at the time of the call.
pub(crate) struct Interfaces(Vec<Interface>);

impl Interfaces {
    pub(crate) fn read() -> Result<Interfaces, c_int> {
        let mut list = core::ptr::null_mut();
        // SAFETY: `list` is a local variable.
        if unsafe { libc::getifaddrs(&mut list) } != 0 {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
        }
        let mut all = Vec::new();
        let mut entry = list;
        // SAFETY: the entries live until freeifaddrs(3) below.
        while let Some(interface) = unsafe { entry.as_ref() } {
            entry = interface.ifa_next;
            let is_up = interface.ifa_flags & libc::IFF_UP as u32 != 0;
            // SAFETY: getifaddrs(3) gives each entry a name, and either null or an address of the length
            // that its family requires.
            let found = unsafe {
                let name = CStr::from_ptr(interface.ifa_name).to_string_lossy().into_owned();
                interface.ifa_addr.as_ref().and_then(|at| ip(at)).map(|address| Interface {
                    name,
                    address,
                    is_up,
                })
            };
            all.extend(found);
        }
        // SAFETY: the list came from getifaddrs(3), and everything that is kept was copied.
        unsafe { libc::freeifaddrs(list) };
        Ok(Interfaces(all))
    }

    pub(crate) fn with(&self, address: IpAddr) -> Option<&Interface> {
        self.0.iter().find(|interface| interface.address == address)
    }

    /// Returns the addresses that become devices, without duplicates.
    pub(crate) fn usable(&self) -> Vec<&Interface> {
        let mut found: Vec<&Interface> = Vec::new();
        for interface in self.0.iter().filter(|interface| interface.is_up && is_usable(interface.address)) {
            if !found.iter().any(|other| other.address == interface.address) {
                found.push(interface);
            }
        }
        found.sort_by_key(|interface| (interface.address.is_loopback(), interface.address.is_ipv6()));
        found
    }
}

fn is_usable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !address.is_unspecified() && !address.is_multicast(),
        IpAddr::V6(address) => {
            !address.is_unspecified() && !address.is_multicast() && !address.is_unicast_link_local()
        }
    }
}

pub(crate) fn parsed(mac: &str) -> Option<Mac> {
    let bytes: Option<Vec<u8>> =
        mac.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    bytes?.try_into().ok()
}

/// # Safety
/// The address has the length of its family's struct.
unsafe fn ip(at: &libc::sockaddr) -> Option<IpAddr> {
    let place = core::ptr::from_ref(at);
    match c_int::from(at.sa_family) {
        // SAFETY: the caller guarantees an address of the length that its family requires.
        libc::AF_INET => unsafe {
            let address = (*place.cast::<libc::sockaddr_in>()).sin_addr.s_addr;
            Some(IpAddr::V4(u32::from_be(address).into()))
        },
        // SAFETY: the caller guarantees an address of the length that its family requires.
        libc::AF_INET6 => unsafe {
            Some(IpAddr::V6((*place.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr.into()))
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, address: &str, is_up: bool) -> Interface {
        Interface { name: name.into(), address: address.parse().expect("an address"), is_up }
    }

    #[test]
    fn addresses_reachable_from_other_hosts_come_first() {
        let all = Interfaces(vec![
            interface("lo", "127.0.0.1", true),
            interface("lo", "::1", true),
            interface("eth0", "fe80::1", true),
            interface("eth0", "2001:db8::1", true),
            interface("eth1", "192.0.2.2", false),
            interface("eth0", "192.0.2.1", true),
            interface("eth2", "192.0.2.1", true),
        ]);
        let names: Vec<String> = all.usable().iter().map(|one| one.address.to_string()).collect();
        assert_eq!(names, ["192.0.2.1", "2001:db8::1", "127.0.0.1", "::1"]);
    }
}
