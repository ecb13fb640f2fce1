//! Name service: host names, and autodiscovery.
//!
//! Order           a name is first looked up in a hosts file (the program's, or else the one named by
//!                 `KIBAN_VI_HOSTS`). Next it is tried as a literal address (in shared memory, the name of a
//!                 NIC *is* its address). Finally, over UDP and on a board, it is passed to the system's
//!                 resolver.
//! Hosts file      consists of lines `ADDRESS NAME ...`; `#` starts a comment. Addresses for other kinds of
//!                 device are ignored.
//! Not implemented reverse lookup by the system: the name of a host that is not in the hosts file is its
//! address.

use crate::abi::{VIP_AUTODISCOVERY_LIST, VIP_CHAR, VIP_NET_ADDRESS, VIP_RETURN, VIP_ULONG};
use crate::border::{Answer, Out, read};
use crate::naming::device::host_named;
use crate::objects::hosts::Hosts;
use crate::objects::nic::Nic;
use core::ptr::NonNull;
use kiban_os::lock;
use kiban_vi_runtime::{BOARD_PORT, HostAddress, UDP_PORT};
use std::ffi::{CStr, OsStr, OsString};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;

/// # Safety
/// `path` is null or ends with a NUL.
pub(crate) unsafe fn start(nic: &Nic, path: *const VIP_CHAR) -> Answer {
    let path: Option<OsString> = if path.is_null() {
        std::env::var_os("KIBAN_VI_HOSTS").filter(|path| !path.is_empty())
    } else {
        // SAFETY: the caller guarantees that `path`, which is not null here, ends with NUL.
        Some(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()).into())
    };
    let hosts = match path {
        None => Hosts::default(),
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|_| VIP_RETURN::ERROR_NAMESERVICE)?;
            Hosts::of(&text, &nic.host)
        }
    };
    *lock(&nic.hosts) = Some(hosts);
    Ok(())
}

pub(crate) fn stop(nic: &Nic) -> Answer {
    lock(&nic.hosts).take().map(|_| ()).ok_or(VIP_RETURN::ERROR_NAMESERVICE)
}

/// Resolves a name with the system's resolver, for the NIC's address family.
fn of_the_system(name: &str, port: u16, own: &SocketAddr) -> impl Iterator<Item = SocketAddr> {
    (name, port).to_socket_addrs().into_iter().flatten().filter(|place| place.is_ipv4() == own.is_ipv4())
}

/// Returns the addresses for a name, without duplicates.
fn addresses(nic: &Nic, name: &str) -> Answer<Vec<HostAddress>> {
    let mut found: Vec<HostAddress> = match &*lock(&nic.hosts) {
        None => return Err(VIP_RETURN::ERROR_NAMESERVICE),
        Some(hosts) => hosts.of_name(name).collect(),
    };
    let literal = host_named(name, &nic.host);
    let is_literal = literal.is_some();
    found.extend(literal);
    match &nic.host {
        HostAddress::Loopback if name == "localhost" => found.push(HostAddress::Loopback),
        HostAddress::Udp(own) if found.is_empty() && !is_literal && !name.is_empty() => {
            found.extend(of_the_system(name, UDP_PORT, own).map(HostAddress::Udp));
        }
        HostAddress::Board(own) if found.is_empty() && !is_literal && !name.is_empty() => {
            found.extend(of_the_system(name, BOARD_PORT, own).map(HostAddress::Board));
        }
        _ => {}
    }
    let mut each: Vec<HostAddress> = Vec::new();
    for host in found {
        if !each.contains(&host) {
            each.push(host);
        }
    }
    Ok(each)
}

/// # Safety
/// `name` is null or ends with a NUL; `at` has room for an address of this NIC.
pub(crate) unsafe fn by_name(
    nic: &Nic,
    name: *const VIP_CHAR,
    at: NonNull<VIP_NET_ADDRESS>,
    index: VIP_ULONG,
) -> Answer {
    if name.is_null() {
        return Err(VIP_RETURN::INVALID_PARAMETER);
    }
    // SAFETY: the caller guarantees that `name`, which is not null here, ends with NUL.
    let name = unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| VIP_RETURN::ERROR_NAMESERVICE)?;
    let found = addresses(nic, name)?;
    let host = usize::try_from(index).ok().and_then(|index| found.get(index));
    let host = host.ok_or(VIP_RETURN::ERROR_NAMESERVICE)?;
    // SAFETY: the caller guarantees room for an address. The discriminator is left unchanged, because
    // programs set it before or after this call.
    unsafe { crate::connect::write(nic, at, host, None) };
    Ok(())
}

/// # Safety
/// `at` is null or an address whose length fields are correct; `name` has room for `*room` bytes, and `room`
/// is null or valid.
pub(crate) unsafe fn by_address(
    nic: &Nic,
    at: *const VIP_NET_ADDRESS,
    name: *mut VIP_CHAR,
    room: *mut VIP_ULONG,
) -> Answer {
    // SAFETY: the caller guarantees that `at` is null or an address whose length fields are correct, and that
    // `room` is null or valid.
    let (host, bytes_max, used) =
        unsafe { (crate::connect::read_host(nic, at)?, read(room)?, Out::at(room)?) };
    let text = match &*lock(&nic.hosts) {
        None => return Err(VIP_RETURN::ERROR_NAMESERVICE),
        Some(hosts) => hosts.of_host(&host).map(String::from),
    };
    let text = text.unwrap_or_else(|| match &host {
        HostAddress::Loopback => "localhost".into(),
        HostAddress::Name(name) => String::from_utf8_lossy(name).into_owned(),
        HostAddress::Udp(place) | HostAddress::Board(place) => place.to_string(),
    });
    let whole = text.len() + 1;
    used.put(whole as VIP_ULONG);
    if bytes_max < whole as VIP_ULONG {
        return Err(VIP_RETURN::ERROR_RESOURCE);
    }
    let place = NonNull::new(name).ok_or(VIP_RETURN::INVALID_PARAMETER)?.cast::<u8>();
    // SAFETY: the caller guarantees room for `*room` bytes; the text and its NUL fit, as checked above.
    unsafe {
        place.copy_from_nonoverlapping(NonNull::from(text.as_bytes()).cast(), text.len());
        place.add(text.len()).write(0);
    }
    Ok(())
}

/// Lists the NICs that can be reached: this NIC, and those in the hosts file.
///
/// # Safety
/// `list` is null or valid, and its array has `NumAdAddrs` elements; each element is null or has room for an
/// address.
pub(crate) unsafe fn discover(nic: &Nic, list: *mut VIP_AUTODISCOVERY_LIST) -> Answer {
    // SAFETY: the caller guarantees that `list` is null or valid.
    let (mut header, out) = unsafe { (read(list)?, Out::at(list)?) };
    let mut there = vec![nic.host.clone()];
    if let Some(hosts) = &*lock(&nic.hosts) {
        there.extend(hosts.lines.iter().map(|(host, _)| host.clone()).filter(|host| *host != nic.host));
    }
    let room = if header.ADAddrArray.is_null() { 0 } else { header.NumAdAddrs as usize };
    header.NumAdAddrs = 0;
    for (index, host) in there.iter().take(room).enumerate() {
        // SAFETY: the caller guarantees that the array has `room` entries.
        let place = unsafe { header.ADAddrArray.add(index).read() };
        let place = NonNull::new(place).ok_or(VIP_RETURN::INVALID_PARAMETER)?;
        // SAFETY: the caller guarantees that each entry is null or has room for an address.
        unsafe { crate::connect::write(nic, place, host, Some(&[])) };
        header.NumAdAddrs += 1;
    }
    out.put(header);
    Ok(())
}
