//! Network namespaces of guests, entered without privileges.
//!
//! Purpose   a process enters a new user and network namespace, or those of another process, and sets up the
//!           interface that leads to its network.
//! Users     in a new user namespace, the caller's user is root; no other user exists (user_namespaces(7)).
//! Threads   only a process with one thread can change its user namespace.
//! Limits    some systems forbid user namespaces; the error names the setting.

use super::interface::{self, IoctlSocket, Property};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::path::Path;

/// Settings that can forbid user namespaces, the value that does, and the one that allows them.
const SETTINGS: [(&str, &str, &str, &str); 5] = [
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone", "1"),
    ("/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces", "15000"),
    ("/proc/sys/user/max_net_namespaces", "0", "user.max_net_namespaces", "15000"),
    ("/proc/sys/user/max_mnt_namespaces", "0", "user.max_mnt_namespaces", "15000"),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "kernel.apparmor_restrict_unprivileged_userns",
        "0",
    ),
];

/// The limits of a user, of which creating a namespace reports ENOSPC (namespaces(7)).
const LIMITS: &str = "user.max_user_namespaces, user.max_net_namespaces and user.max_mnt_namespaces";

/// Returns an error that names the setting which forbids user namespaces.
fn explain(error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    let forbids = |(path, value, ..): &&(&str, &str, &str, &str)| {
        fs::read_to_string(path).is_ok_and(|text| text.trim() == *value)
    };
    let what = match SETTINGS.iter().find(forbids) {
        Some((_, value, name, allowed)) => {
            format!("{name} is {value}; root can allow them: sysctl {name}={allowed}")
        }
        None if error.raw_os_error() == Some(libc::ENOSPC) => {
            format!("this user has as many namespaces as {LIMITS} allow; root can raise them with sysctl")
        }
        None => "the system, or the container around it, forbids them".to_owned(),
    };
    io::Error::new(error.kind(), format!("cannot create a user namespace: {error}: {what}"))
}

/// Moves this process, which must have one thread, into new user, network and mount namespaces, in which its
/// user is root.
///
/// # Errors
/// The system forbids user namespaces (the error names the setting), or the process has several threads.
pub fn enter_new() -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let namespaces = UnshareFlags::NEWUSER | UnshareFlags::NEWNET | UnshareFlags::NEWNS;
    // SAFETY: entering new namespaces changes neither memory nor the table of open files.
    unsafe { rustix::thread::unshare_unsafe(namespaces) }.map_err(explain)?;
    // AppArmor may allow the namespace, but none of the privileges in it. user_namespaces(7): without
    // privileges, setgroups must be denied before groups are mapped.
    fs::write("/proc/self/setgroups", "deny").map_err(explain)?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1")).map_err(explain)?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1")).map_err(explain)?;
    // Mounts made here must not appear outside.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).map_err(explain)?;
    interface::set_up("lo")
}

/// Moves this process, which must have one thread, into a network namespace, after the user namespace that
/// owns it. Namespaces are given by files, such as `/proc/NUMBER/ns/net` and `/run/netns/NAME`.
///
/// # Errors
/// There is no such file, or it belongs to another user.
pub fn join(user: Option<&Path>, net: &Path) -> io::Result<()> {
    let say = |path: &Path| {
        let path = path.display().to_string();
        move |error: Errno| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("{path}: {error}"))
        }
    };
    let open = |path: &Path| {
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(say(path))
    };
    let (user, net) =
        (user.map(|path| Ok::<_, io::Error>((path, open(path)?))).transpose()?, (net, open(net)?));
    if let Some((path, file)) = user {
        // A process cannot enter the user namespace in which it is.
        let (own, other) = (rustix::fs::stat("/proc/self/ns/user")?, rustix::fs::fstat(&file)?);
        if (own.st_dev, own.st_ino) != (other.st_dev, other.st_ino) {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::User)).map_err(say(path))?;
        }
    }
    move_into_link_name_space(net.1.as_fd(), Some(LinkNameSpaceType::Network)).map_err(say(net.0))
}

/// Shows this process, and those that it starts, another file at a path.
///
/// # Errors
/// The process has no mount namespace of its own, or a file is missing.
pub fn replace_file(shown: &Path, at: &Path) -> io::Result<()> {
    Ok(mount_bind(shown, &fs::canonicalize(at)?)?)
}

/// Lets the IPv6 addresses of an interface be used at once: without duplicate address detection (RFC 4862
/// §5.4), for which they would be unusable for two seconds.
///
/// # Errors
/// The process lacks the privilege, or IPv6 is off.
pub fn skip_duplicate_detection(name: &str) -> io::Result<()> {
    fs::write(format!("/proc/sys/net/ipv6/conf/{name}/accept_dad"), "0")
}

/// A route for an ioctl on an IPv6 socket (`linux/ipv6_route.h`: `in6_rtmsg`).
#[repr(C)]
struct Route6 {
    target: [u8; 16],
    source: [u8; 16],
    gateway: [u8; 16],
    kind: u32,
    target_bits: u16,
    source_bits: u16,
    metric: u32,
    info: libc::c_ulong,
    flags: u32,
    index: libc::c_int,
}

const RTF_UP: u32 = 1;
const RTF_GATEWAY: u32 = 2;

/// Adds a default route.
///
/// # Errors
/// The process lacks the privilege, the interface does not lead to the gateway, or there is such a route.
pub fn add_default_route(name: &str, gateway: IpAddr) -> io::Result<()> {
    let say = |error| interface::explain_error(name, "add a default route through", error);
    match gateway {
        IpAddr::V4(gateway) => {
            // SAFETY: all bytes zero are a valid `rtentry`.
            let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
            route.rt_dst = interface::ipv4(Ipv4Addr::UNSPECIFIED);
            route.rt_genmask = interface::ipv4(Ipv4Addr::UNSPECIFIED);
            route.rt_gateway = interface::ipv4(gateway);
            route.rt_flags = (RTF_UP | RTF_GATEWAY) as libc::c_ushort;
            let socket = IoctlSocket::of(libc::AF_INET)?;
            // SAFETY: on an IPv4 socket SIOCADDRT reads one `rtentry`.
            unsafe { socket.ask_with(libc::SIOCADDRT as _, &mut route) }.map_err(say)
        }
        IpAddr::V6(gateway) => {
            let mut route = Route6 {
                target: Ipv6Addr::UNSPECIFIED.octets(),
                source: Ipv6Addr::UNSPECIFIED.octets(),
                gateway: gateway.octets(),
                kind: 0,
                target_bits: 0,
                source_bits: 0,
                metric: 1024,
                info: 0,
                flags: RTF_UP | RTF_GATEWAY,
                index: interface::query(name, Property::Index)?.index(),
            };
            let socket = IoctlSocket::of(libc::AF_INET6)?;
            // SAFETY: on an IPv6 socket SIOCADDRT reads one `in6_rtmsg`, whose layout `Route6` has.
            unsafe { socket.ask_with(libc::SIOCADDRT as _, &mut route) }.map_err(say)
        }
    }
}
