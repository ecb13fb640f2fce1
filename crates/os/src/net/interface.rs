//! Network interfaces of this host: names, state, MTU and addresses.
//!
//! Purpose          do what `ip link set up` and `ip address add` do, for interfaces that a board creates, in
//!                  the caller's network namespace.
//! Method           the classic interface ioctls (netdevice(7)), which need CAP_NET_ADMIN; names have 1 to 15
//!                  bytes.
//! Not implemented  netlink. Routes beyond an address's own prefix are left to the operator; a guest's
//!                  default route is set by [`super::namespace`].

use kiban_base::ethernet::Mac;
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Returns an empty ioctl request for the named interface.
///
/// # Errors
/// The name is empty, longer than 15 bytes, or contains `/` or a zero byte.
pub fn request(name: &str) -> io::Result<libc::ifreq> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() >= libc::IFNAMSIZ || bytes.iter().any(|byte| matches!(byte, 0 | b'/'))
    {
        let message =
            format!("invalid interface name '{name}': use 1 to {} bytes without '/'", libc::IFNAMSIZ - 1);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    // SAFETY: all-zero bytes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(bytes) {
        *place = *byte as libc::c_char;
    }
    Ok(request)
}

/// Returns an error that names the failed operation on an interface and, if known, what is missing: a
/// privilege (CAP_NET_ADMIN for EPERM and EACCES) or another condition.
pub fn explain_error(name: &str, what: &str, error: io::Error) -> io::Error {
    explain_error_with(name, what, "CAP_NET_ADMIN", error)
}

/// Like [`explain_error`], for operations that need another privilege.
pub fn explain_error_with(name: &str, what: &str, privilege: &str, error: io::Error) -> io::Error {
    let more = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => format!(
            ": this needs {privilege}; run as root, or give the program that capability (setcap {}+ep), \
             or use a link that needs none (udp-packets:, udp-cells:, pcap: and others)",
            privilege.to_lowercase().replace(" and ", ",").replace(", ", ",")
        ),
        Some(libc::ENODEV) => ": no such interface".to_owned(),
        Some(libc::EBUSY) => ": another program uses it".to_owned(),
        Some(libc::EINVAL) if what == "make" => {
            format!(
                ": the name is in use by an interface of another kind; choose another name, or use packet:{name}"
            )
        }
        _ => String::new(),
    };
    io::Error::new(error.kind(), format!("cannot {what} interface {name}: {error}{more}"))
}

/// Returns advice for a failed bind to a local address, as a suffix for the system's error message.
pub fn bind_remedy(address: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            // In a user namespace, as with rootless containers, the capability is not valid for this host.
            let as_root = if is_in_user_namespace() {
                ""
            } else {
                "run as root, or give the program that capability (setcap cap_net_bind_service+ep), or "
            };
            format!(
                ": ports below 1024 of this host need CAP_NET_BIND_SERVICE; {as_root}use a port from 1024 up, or \
                 let all users have this one (sysctl net.ipv4.ip_unprivileged_port_start={})",
                address.port()
            )
        }
        io::ErrorKind::AddrNotAvailable => {
            let mut own: Vec<IpAddr> =
                addresses().into_iter().filter(|own| own.is_ipv4() == address.is_ipv4()).collect();
            own.sort_unstable();
            own.dedup();
            let all = if address.is_ipv4() { "0.0.0.0" } else { "[::]" };
            let own: Vec<String> = own.iter().map(IpAddr::to_string).collect();
            match &own[..] {
                [] => ": this host has no address of this family".to_owned(),
                own => {
                    format!(": this host's addresses are {}; use {all} for all of them", own.join(", "))
                }
            }
        }
        io::ErrorKind::AddrInUse => ": another program uses this port; choose another".to_owned(),
        _ => String::new(),
    }
}

/// Returns whether this process is in a user namespace, in which not all users exist.
fn is_in_user_namespace() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    !map.is_empty() && map.split_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"]
}

/// Returns this host's addresses, in the caller's network namespace. The list is empty if the system does not
/// provide the addresses.
pub fn addresses() -> Vec<IpAddr> {
    named_addresses().into_iter().map(|(_, address)| address).collect()
}

/// Returns the name of the interface that has an address of this host. All loopback addresses are those of
/// `lo`.
pub fn name_of(address: IpAddr) -> Option<String> {
    let found = named_addresses().into_iter().find(|(_, own)| *own == address).map(|(name, _)| name);
    found.or_else(|| address.is_loopback().then(|| "lo".to_owned()))
}

/// Returns this host's addresses with the names of their interfaces.
fn named_addresses() -> Vec<(String, IpAddr)> {
    let mut list = std::ptr::null_mut();
    // SAFETY: getifaddrs(3) writes the head of the list to `list`, which outlives the call.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut entry = list;
    // SAFETY: getifaddrs(3) returns a valid list; each address is null, or as long as its family's structure.
    while let Some(interface) = unsafe { entry.as_ref() } {
        entry = interface.ifa_next;
        let at = interface.ifa_addr;
        // SAFETY: getifaddrs(3) gives each entry a name.
        let name = unsafe { CStr::from_ptr(interface.ifa_name) }.to_string_lossy().into_owned();
        // SAFETY: getifaddrs(3) returns a valid list; each address is null, or as long as its family's
        // structure.
        let address = match unsafe { at.as_ref() }.map(|at| libc::c_int::from(at.sa_family)) {
            Some(libc::AF_INET) => {
                // SAFETY: the address has the family AF_INET, so it is a whole `sockaddr_in` of the list.
                let at = unsafe { at.cast::<libc::sockaddr_in>().read_unaligned() };
                Some(IpAddr::from(at.sin_addr.s_addr.to_ne_bytes()))
            }
            Some(libc::AF_INET6) => {
                // SAFETY: the address has the family AF_INET6, so it is a whole `sockaddr_in6` of the list.
                let at = unsafe { at.cast::<libc::sockaddr_in6>().read_unaligned() };
                Some(IpAddr::from(at.sin6_addr.s6_addr))
            }
            _ => None,
        };
        found.extend(address.map(|address| (name, address)));
    }
    // SAFETY: the list is from getifaddrs(3), and nothing points into it any more.
    unsafe { libc::freeifaddrs(list) };
    found
}

/// A property of an interface to query.
#[derive(Clone, Copy)]
pub enum Property {
    /// The interface index.
    Index,
    /// The MAC address.
    Mac,
}

/// The answer to a [`Property`] query.
pub struct PropertyValue(libc::ifreq);

impl PropertyValue {
    /// Returns the interface index, the answer to [`Property::Index`].
    pub fn index(&self) -> libc::c_int {
        // SAFETY: a request is plain bytes, and every view of its union read here is integers.
        unsafe { self.0.ifr_ifru.ifru_ifindex }
    }

    /// Returns the MAC address, the answer to [`Property::Mac`].
    pub fn mac(&self) -> Mac {
        // SAFETY: a request is plain bytes, and every view of its union read here is integers.
        let bytes = unsafe { self.0.ifr_ifru.ifru_hwaddr.sa_data };
        Mac(std::array::from_fn(|place| bytes[place] as u8))
    }
}

/// Queries a property of an interface.
///
/// # Errors
/// There is no such interface, or, for [`Property::Mac`], it carries no Ethernet frames.
pub fn query(name: &str, what: Property) -> io::Result<PropertyValue> {
    let mut request = request(name)?;
    let (number, word) = match what {
        Property::Index => (libc::SIOCGIFINDEX, "find"),
        Property::Mac => (libc::SIOCGIFHWADDR, "read the MAC of"),
    };
    IoctlSocket::new()?.ask(number, &mut request).map_err(|error| explain_error(name, word, error))?;
    let answer = PropertyValue(request);
    // SAFETY: a request is plain bytes, and every view of its union read here is integers.
    let kind = unsafe { answer.0.ifr_ifru.ifru_hwaddr.sa_family };
    if matches!(what, Property::Mac) && !matches!(kind, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK) {
        let message =
            format!("interface {name} carries no Ethernet frames: use a packets link (tun:) instead");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(answer)
}

/// Returns the MAC address of an Ethernet interface.
///
/// # Errors
/// There is no such interface, or it is not an Ethernet interface.
pub fn mac(name: &str) -> io::Result<Mac> {
    Ok(query(name, Property::Mac)?.mac())
}

/// Returns whether an interface with this index still exists.
pub fn exists(index: libc::c_int) -> bool {
    // SAFETY: all-zero bytes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_ifru.ifru_ifindex = index;
    IoctlSocket::new().is_ok_and(|socket| socket.ask(libc::SIOCGIFNAME, &mut request).is_ok())
}

/// A socket for interface ioctls in the caller's network namespace.
/// A socket for the ioctls of interfaces and routes (netdevice(7)).
pub(super) struct IoctlSocket(OwnedFd);

impl IoctlSocket {
    fn new() -> io::Result<IoctlSocket> {
        IoctlSocket::of(libc::AF_INET)
    }

    /// Returns a socket of an address family, which determines the kind of request that some ioctls read.
    pub(super) fn of(family: libc::c_int) -> io::Result<IoctlSocket> {
        // SAFETY: socket(2) takes no pointers.
        let file = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just created, and nothing else owns it.
        Ok(IoctlSocket(unsafe { OwnedFd::from_raw_fd(file) }))
    }

    fn ask(&self, what: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: the interface ioctls read and write one whole `ifreq`.
        unsafe { self.ask_with(what, request) }
    }

    /// Makes a request of another kind.
    ///
    /// # Safety
    /// The request must have the layout that the ioctl reads and writes on a socket of this family.
    pub(super) unsafe fn ask_with<T>(&self, what: libc::c_ulong, request: &mut T) -> io::Result<()> {
        // SAFETY: the caller guarantees the layout, and the request outlives the call.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), what as _, request as *mut T) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Returns whether an interface is up.
///
/// # Errors
/// There is no such interface.
pub fn is_up(name: &str) -> io::Result<bool> {
    let mut request = request(name)?;
    IoctlSocket::new()?
        .ask(libc::SIOCGIFFLAGS, &mut request)
        .map_err(|error| explain_error(name, "look at", error))?;
    // SAFETY: the system has written the flags.
    Ok(unsafe { request.ifr_ifru.ifru_flags } & libc::IFF_UP as libc::c_short != 0)
}

/// `struct ethtool_drvinfo`: the command, the driver's name, and fields that are not used here.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u32; 40],
}

/// Returns the driver name of an interface: `veth`, `ixgbe`.
///
/// # Errors
/// There is no such interface, or its driver does not report a name.
pub fn driver(name: &str) -> io::Result<String> {
    const ETHTOOL_GDRVINFO: u32 = 3;
    let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 40] };
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = (&raw mut info).cast();
    IoctlSocket::new()?
        .ask(libc::SIOCETHTOOL, &mut request)
        .map_err(|error| explain_error(name, "query the driver of", error))?;
    let length = info.driver.iter().position(|byte| *byte == 0).unwrap_or(info.driver.len());
    Ok(String::from_utf8_lossy(&info.driver[..length]).into_owned())
}

/// Returns the MTU of an interface, in bytes.
///
/// # Errors
/// There is no such interface.
pub fn mtu(name: &str) -> io::Result<usize> {
    let mut request = request(name)?;
    IoctlSocket::new()?
        .ask(libc::SIOCGIFMTU, &mut request)
        .map_err(|error| explain_error(name, "read the MTU of", error))?;
    // SAFETY: the system has written the MTU.
    Ok(usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0))
}

/// Sets the MTU of an interface, in bytes.
///
/// # Errors
/// The value is out of the interface's range, or the process lacks the privilege.
pub fn set_mtu(name: &str, bytes: usize) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_mtu = bytes as libc::c_int;
    let what = format!("set the MTU ({bytes}) of");
    IoctlSocket::new()?.ask(libc::SIOCSIFMTU, &mut request).map_err(|error| explain_error(name, &what, error))
}

/// Sets the transmit queue length of an interface (`txqueuelen`), in packets.
///
/// # Errors
/// The process lacks the privilege.
pub fn set_queue(name: &str, packets: usize) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_metric = packets as libc::c_int;
    let socket = IoctlSocket::new()?;
    socket
        .ask(libc::SIOCSIFTXQLEN, &mut request)
        .map_err(|error| explain_error(name, "set the queue length of", error))
}

/// Brings an interface up.
///
/// # Errors
/// There is no such interface, or the process lacks the privilege.
pub fn set_up(name: &str) -> io::Result<()> {
    set_flag(name, true, "bring up")
}

/// Takes an interface down.
///
/// # Errors
/// There is no such interface, or the process lacks the privilege.
pub fn set_down(name: &str) -> io::Result<()> {
    set_flag(name, false, "take down")
}

fn set_flag(name: &str, up: bool, what: &str) -> io::Result<()> {
    let mut request = request(name)?;
    let socket = IoctlSocket::new()?;
    socket.ask(libc::SIOCGIFFLAGS, &mut request).map_err(|error| explain_error(name, "look at", error))?;
    // SAFETY: the system has written the flags.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    let flag = libc::IFF_UP as libc::c_short;
    request.ifr_ifru.ifru_flags = if up { flags | flag } else { flags & !flag };
    socket.ask(libc::SIOCSIFFLAGS, &mut request).map_err(|error| explain_error(name, what, error))
}

pub(super) fn ipv4(address: Ipv4Addr) -> libc::sockaddr {
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from(address).to_be() },
        sin_zero: [0; 8],
    };
    // SAFETY: both structures have 16 bytes, and a generic address is plain bytes after the family.
    unsafe { std::mem::transmute(address) }
}

#[repr(C)]
struct Request6 {
    address: libc::in6_addr,
    prefix_bits: u32,
    index: libc::c_int,
}

/// Sets the address of an interface, with a prefix of `bits` bits.
///
/// # Errors
/// The process lacks the privilege, or the interface does not support the address family.
pub fn set_address(name: &str, address: IpAddr, bits: u8) -> io::Result<()> {
    let mut request = request(name)?;
    match address {
        IpAddr::V4(address) => {
            let socket = IoctlSocket::new()?;
            let say = |error| explain_error(name, "assign an address to", error);
            request.ifr_ifru.ifru_addr = ipv4(address);
            socket.ask(libc::SIOCSIFADDR, &mut request).map_err(say)?;
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            request.ifr_ifru.ifru_netmask = ipv4(mask.into());
            socket.ask(libc::SIOCSIFNETMASK, &mut request).map_err(say)
        }
        IpAddr::V6(address) => {
            let say = |error| explain_error(name, "assign an IPv6 address to", error);
            let mut wanted = Request6 {
                address: libc::in6_addr { s6_addr: address.octets() },
                prefix_bits: u32::from(bits),
                index: query(name, Property::Index)?.index(),
            };
            let socket = IoctlSocket::of(libc::AF_INET6).map_err(say)?;
            // SAFETY: on an IPv6 socket SIOCSIFADDR reads one `in6_ifreq`, whose layout `Request6` has.
            match unsafe { socket.ask_with(libc::SIOCSIFADDR as _, &mut wanted) } {
                Err(error) if error.raw_os_error() != Some(libc::EEXIST) => Err(say(error)),
                _ => Ok(()),
            }
        }
    }
}

/// Moves the calling thread into a new network namespace and brings up its loopback interface. Threads and
/// programs that it starts from now on are in the namespace too; existing ones stay where they are. The
/// namespace is removed when the last of them, and the last of their sockets, is gone.
///
/// # Errors
/// The process needs CAP_SYS_ADMIN, or its own user namespace (`unshare -r`).
pub fn enter_new_namespace() -> io::Result<()> {
    // SAFETY: entering a new network namespace does not change memory or the table of open files.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.map_err(|error| {
        let error = io::Error::from(error);
        io::Error::new(
            error.kind(),
            format!("a network namespace needs CAP_SYS_ADMIN: {error}; run as root, or under 'unshare -r'"),
        )
    })?;
    set_up("lo")
}
