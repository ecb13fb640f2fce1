//! The host's network interfaces and their addresses (getifaddrs(3)).
//!
//! Purpose         determines the addresses that become devices, and which of them programs see.
//! Order           network addresses, then those of bridges, then loopback addresses; in each of these
//!                 classes IPv4 comes before IPv6, and IPv6 addresses beside an IPv4 address of the same
//!                 interface come last. A bridge that appears therefore moves no other device.
//! Listed          only the first class that has an address. Programs such as UCX try all devices that are
//!                 listed, and cards have none for the loopback interface or for a bridge (docker0), whose
//!                 addresses other hosts do not reach. A bridge with a default route is a network interface.
//!                 IPv6 addresses beside an IPv4 address are not listed either: Mooncake would take them for
//!                 another link, and a card has one device for a port. `KIBAN_DEVICES=all` lists every class.
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
    class: Class,
}

/// How far an address reaches. Programs see the devices of the first class that has any.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Class {
    Network,
    Bridge,
    Loopback,
}

impl Class {
    fn of(name: &str, address: IpAddr) -> Class {
        if address.is_loopback() {
            Class::Loopback
        } else if kiban_os::interface::driver(name).is_ok_and(|driver| driver == "bridge")
            && !has_default_route(name)
        {
            Class::Bridge
        } else {
            Class::Network
        }
    }
}

/// Returns whether an interface has an IPv4 default route.
fn has_default_route(name: &str) -> bool {
    // The first two columns are the interface and the destination.
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    routes.lines().any(|line| {
        let mut columns = line.split_whitespace();
        columns.next() == Some(name) && columns.next() == Some("00000000")
    })
}

impl Interface {
    fn file(&self, file: &str) -> Option<String> {
        std::fs::read_to_string(format!("/sys/class/net/{}/{file}", self.name)).ok()
    }

    /// Returns the MAC address; zeroes if the interface has none, like `lo`.
    pub(crate) fn mac(&self) -> Mac {
        self.file("address").and_then(|text| parsed(&text)).unwrap_or_default()
    }

    /// Returns the NUMA node of the interface's own device, if it has one.
    pub(crate) fn numa_node(&self) -> Option<String> {
        self.file("device/numa_node").map(|text| text.trim().to_owned())
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
            return Err(crate::ffi::errno());
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
                    class: Class::of(&name, address),
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
        found.sort_by_key(|interface| {
            (interface.class, self.is_beside_ipv4(interface), interface.address.is_ipv6())
        });
        found
    }

    /// Returns whether this is an IPv6 address of an interface that also has an IPv4 address.
    fn is_beside_ipv4(&self, interface: &Interface) -> bool {
        let is_ipv4 = |other: &Interface| other.address.is_ipv4() && is_usable(other.address);
        interface.address.is_ipv6()
            && self.0.iter().any(|other| other.name == interface.name && other.is_up && is_ipv4(other))
    }

    /// Returns the addresses whose devices programs see: the first of the usable ones, or `all` of them.
    pub(crate) fn listed(&self, all: bool) -> Vec<&Interface> {
        let mut found = self.usable();
        let first = found.first().map(|interface| interface.class);
        found.retain(|interface| all || Some(interface.class) == first && !self.is_beside_ipv4(interface));
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

    fn interfaces(of: &[(&str, &str, bool)]) -> Interfaces {
        Interfaces(
            of.iter()
                .map(|&(name, address, is_up)| {
                    let address: IpAddr = address.parse().expect("an address");
                    let class = match name {
                        "lo" => Class::Loopback,
                        "docker0" => Class::Bridge,
                        _ => Class::Network,
                    };
                    Interface { name: name.into(), address, is_up, class }
                })
                .collect(),
        )
    }

    fn check(all: &[(&str, &str, bool)], usable: &[&str], listed: &[&str]) {
        let all = interfaces(all);
        let text = |found: Vec<&Interface>| -> Vec<String> {
            found.iter().map(|interface| interface.address.to_string()).collect()
        };
        assert_eq!(text(all.usable()), usable);
        assert_eq!(text(all.listed(true)), usable);
        assert_eq!(text(all.listed(false)), listed);
    }

    #[test]
    fn devices_of_the_network_hide_those_of_bridges_and_loopback() {
        let network = [
            ("lo", "127.0.0.1", true),
            ("lo", "::1", true),
            ("eth0", "fe80::1", true),
            ("eth0", "2001:db8::1", true),
            ("eth1", "192.0.2.2", false),
            ("eth0", "192.0.2.1", true),
            ("eth2", "192.0.2.1", true),
        ];
        let listed = ["192.0.2.1"];
        check(&network, &["192.0.2.1", "2001:db8::1", "127.0.0.1", "::1"], &listed);
        // A bridge that appears does not change the order, wherever the system lists it.
        let docker = ("docker0", "172.17.0.1", true);
        let bridged = [&[docker], &network[..]].concat();
        check(&bridged, &["192.0.2.1", "2001:db8::1", "172.17.0.1", "127.0.0.1", "::1"], &listed);
        check(&[network[0], docker], &["172.17.0.1", "127.0.0.1"], &["172.17.0.1"]);
        check(&network[..2], &["127.0.0.1", "::1"], &["127.0.0.1"]);
        // An interface that has only an IPv6 address is a device, before those that are not listed.
        let only_ipv6 = [&network[..], &[("eth3", "2001:db8:3::1", true)]].concat();
        let usable = ["192.0.2.1", "2001:db8:3::1", "2001:db8::1", "127.0.0.1", "::1"];
        check(&only_ipv6, &usable, &usable[..2]);
    }
}
