//! The list of devices (ibv_get_device_list(3)).

use crate::abi::*;
use crate::atomic::AtomicPtr;
use crate::device::interfaces::{Interface, Interfaces, Mac};
use crate::device::{Transport, board, lists_all, transport};
use crate::ffi::{catch_panics, set_errno};
use crate::sync::published::Published;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::null_mut;
use kiban_rdma_runtime::verbs::gid;
use std::net::{IpAddr, Ipv4Addr};

/// A device.
#[repr(C)]
pub(crate) struct Device {
    abi: ibv_device,
    pub(crate) address: IpAddr,
    /// In network byte order.
    pub(crate) guid: [u8; 8],
    pub(crate) index: u32,
    /// The list of older devices.
    next: Option<&'static Device>,
}

// SAFETY: a device is not changed after it is published, and the pointers in its C struct are null.
unsafe impl Sync for Device {}

static DEVICES: Published<Device> = Published(AtomicPtr::new(null_mut()));

impl Device {
    fn new(address: IpAddr, mac: Mac, index: u32, next: Option<&'static Device>) -> Device {
        let mut abi = ibv_device::ZERO;
        (abi.node_type, abi.transport_type) = match transport() {
            Transport::Ib | Transport::Roce => (IBV_NODE_CA, IBV_TRANSPORT_IB),
            Transport::Iwarp => (IBV_NODE_RNIC, IBV_TRANSPORT_IWARP),
            Transport::Efe => (IBV_NODE_UNSPECIFIED, IBV_TRANSPORT_UNSPECIFIED),
        };
        write(&mut abi.name, &name(index));
        write(&mut abi.dev_name, &format!("uverbs{index}"));
        write(&mut abi.dev_path, &format!("/sys/class/infiniband_verbs/uverbs{index}"));
        write(&mut abi.ibdev_path, &format!("/sys/class/infiniband/kiban{index}"));
        Device { abi, address, guid: guid(address, mac), index, next }
    }

    /// Returns its name, `kiban0` and so on.
    pub(crate) fn name(&self) -> String {
        name(self.index)
    }

    pub(crate) fn node_type(&self) -> ibv_node_type {
        self.abi.node_type
    }

    /// Returns the C struct.
    pub(crate) fn abi(&self) -> *mut ibv_device {
        core::ptr::from_ref(&self.abi).cast_mut()
    }

    /// # Safety
    /// `pointer` is null or a device returned by this library.
    pub(crate) unsafe fn given(pointer: *mut ibv_device) -> Result<&'static Device, c_int> {
        // SAFETY: the caller of `given` guarantees that `pointer` is null or a device returned by this
        // library; devices are never freed.
        unsafe { pointer.cast::<Device>().as_ref() }.ok_or(libc::EINVAL)
    }

    fn known(address: IpAddr) -> Option<&'static Device> {
        core::iter::successors(DEVICES.get(), |device| device.next).find(|device| device.address == address)
    }

    /// Returns the device with this index, if this process has seen it.
    pub(crate) fn numbered(index: u32) -> Option<&'static Device> {
        core::iter::successors(DEVICES.get(), |device| device.next).find(|device| device.index == index)
    }

    fn of(interface: &Interface) -> &'static Device {
        Device::at(interface.address, || interface.mac())
    }

    fn at(address: IpAddr, mac: impl Fn() -> Mac) -> &'static Device {
        loop {
            let newest = DEVICES.get();
            if let Some(known) = Device::known(address) {
                return known;
            }
            let index = newest.map_or(0, |newest| newest.index + 1);
            DEVICES.publish(newest, Device::new(address, mac(), index, newest));
        }
    }

    /// Returns the devices of the board, one for each of its addresses.
    fn of_board() -> Result<Vec<&'static Device>, c_int> {
        let addresses = crate::engine::engine()?.board_addresses();
        let addresses = addresses.map_err(|error| error.raw_os_error().unwrap_or(libc::ENODEV))?;
        Ok(addresses.into_iter().map(|address| Device::at(address, Mac::default)).collect())
    }

    /// Returns the devices whose addresses can be used now. The connection manager and rsockets use all of
    /// them.
    pub(crate) fn all() -> Result<Vec<&'static Device>, c_int> {
        if board().is_some() {
            return Device::of_board();
        }
        Ok(Interfaces::read()?.usable().into_iter().map(Device::of).collect())
    }

    /// Returns the devices that programs see.
    pub(crate) fn listed() -> Result<Vec<&'static Device>, c_int> {
        if board().is_some() {
            return Device::of_board();
        }
        Ok(Interfaces::read()?.listed(lists_all()).into_iter().map(Device::of).collect())
    }

    /// Returns the device that has this address. For loopback addresses, the connection manager uses
    /// [`Device::for_loopback`] instead.
    pub(crate) fn with(address: IpAddr) -> Result<&'static Device, c_int> {
        let found = Device::all()?.into_iter().find(|device| device.address == address);
        found.ok_or(libc::ENODEV)
    }

    /// Returns the device for connections to any loopback address: the first one, if possible of the same
    /// family. The kernel does the same, because its loopback interface usually has no device. libfabric
    /// relies on this and skips devices on that interface.
    pub(crate) fn for_loopback(address: IpAddr) -> Result<&'static Device, c_int> {
        let all = Device::all()?;
        let is_same = |device: &&&Device| device.address.is_ipv4() == address.is_ipv4();
        all.iter().find(is_same).or(all.first()).copied().ok_or(libc::ENODEV)
    }

    /// Returns the addresses of the devices that receive what is sent to a local address.
    pub(crate) fn that_listen_at(address: IpAddr) -> Result<Vec<IpAddr>, c_int> {
        match address.to_canonical() {
            any if any.is_unspecified() => {
                let all = Device::all()?.into_iter().map(|device| device.address);
                Ok(all.filter(|device| device.is_ipv4() || any.is_ipv6()).collect())
            }
            // The connection manager uses another device for loopback addresses than rsockets do.
            loopback if loopback.is_loopback() => {
                let manager = Device::for_loopback(loopback)?.address;
                Ok([manager].into_iter().chain((manager != loopback).then_some(loopback)).collect())
            }
            address => Ok(vec![address]),
        }
    }

    /// Returns the GID, which is the address.
    pub(crate) fn gid(&self) -> ibv_gid {
        ibv_gid { raw: gid(self.address) }
    }

    /// Returns a LID for programs that support no GIDs (qperf): the low half of an IPv4 address, or 0 for
    /// IPv6.
    pub(crate) fn lid(&self) -> u16 {
        match self.address {
            IpAddr::V4(address) => address.to_bits() as u16,
            IpAddr::V6(_) => 0,
        }
    }

    /// Returns the GID for a LID. The LID is the low half of an IPv4 address; the high half is taken from
    /// this device's address.
    pub(crate) fn gid_of(&self, lid: u16) -> Option<[u8; 16]> {
        match self.address {
            IpAddr::V4(address) if lid != 0 => {
                let address = Ipv4Addr::from_bits(address.to_bits() & 0xffff_0000 | u32::from(lid));
                Some(gid(address.into()))
            }
            _ => None,
        }
    }
}

fn name(index: u32) -> String {
    format!("kiban{index}")
}

fn write(text: &mut [c_char], what: &str) {
    let last = text.len() - 1;
    for (to, from) in text[..last].iter_mut().zip(what.bytes()) {
        *to = from.cast_signed();
    }
}

/// Returns a stable EUI-64: the FNV-1a hash of MAC and IP address, with the local bit set.
fn guid(address: IpAddr, mac: Mac) -> [u8; 8] {
    let address = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let hash = mac.iter().chain(&address).fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut guid = hash.to_be_bytes();
    guid[0] = guid[0] & !1 | 2;
    guid
}

/// # Safety
/// `count` is null or valid for a write.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    catch_panics(null_mut(), || {
        let all = match Device::listed() {
            Ok(all) => all,
            Err(error) => {
                set_errno(error);
                return null_mut();
            }
        };
        // SAFETY: calloc(3) accepts any sizes.
        let list =
            unsafe { libc::calloc(all.len() + 1, size_of::<*mut ibv_device>()) }.cast::<*mut ibv_device>();
        if list.is_null() {
            set_errno(libc::ENOMEM);
            return null_mut();
        }
        for (at, device) in all.iter().enumerate() {
            // SAFETY: the list has room for all devices and a null pointer after them.
            unsafe { list.add(at).write(device.abi()) };
        }
        // SAFETY: the caller of `ibv_get_device_list` guarantees that `count` is null or valid for writes.
        if let Some(count) = unsafe { count.as_mut() } {
            *count = c_int::try_from(all.len()).unwrap_or(c_int::MAX);
        }
        list
    })
}

/// # Safety
/// `list` is null or came from [`ibv_get_device_list`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: the caller of `ibv_free_device_list` guarantees that `list` is null or came from
    // `ibv_get_device_list`, which uses calloc(3).
    unsafe { libc::free(list.cast::<c_void>()) };
}

/// # Safety
/// `device` is null or a device returned by this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the caller of `ibv_get_device_name` guarantees that `device` is null or a device returned by
    // this library.
    match unsafe { Device::given(device) } {
        Ok(device) => device.abi.name.as_ptr(),
        Err(error) => {
            set_errno(error);
            core::ptr::null()
        }
    }
}

/// Returns the GUID in network byte order.
///
/// # Safety
/// `device` is null or a device returned by this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    // SAFETY: the caller of `ibv_get_device_guid` guarantees that `device` is null or a device returned by
    // this library.
    unsafe { Device::given(device) }.map_or(0, |device| u64::from_ne_bytes(device.guid))
}

/// # Safety
/// `device` is null or a device returned by this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    // SAFETY: the caller of `ibv_get_device_index` guarantees that `device` is null or a device returned by
    // this library.
    unsafe { Device::given(device) }.map_or(-1, |device| c_int::try_from(device.index).unwrap_or(-1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> Vec<*mut ibv_device> {
        let mut count = -1;
        // SAFETY: `count` is a local variable; the list ends with null and is freed once.
        unsafe {
            let list = ibv_get_device_list(&mut count);
            let all =
                (0..).map(|at| *list.add(at)).take_while(|device| !device.is_null()).collect::<Vec<_>>();
            assert_eq!(usize::try_from(count), Ok(all.len()));
            ibv_free_device_list(list);
            all
        }
    }

    #[test]
    fn the_device_list_is_stable() {
        let first = list();
        assert!(!first.is_empty(), "even a host without a network has loopback");
        assert_eq!(first, list());
        let threads: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(|| list().into_iter().map(|one| one as usize).collect::<Vec<_>>()))
            .collect();
        for thread in threads {
            let theirs = thread.join().expect("no panic");
            assert_eq!(theirs, first.iter().map(|one| *one as usize).collect::<Vec<_>>());
        }
    }

    #[test]
    fn names_guids_and_gids_of_devices_are_unique() {
        let all = Device::all().expect("addresses can be read");
        for (at, device) in all.iter().enumerate() {
            assert_eq!(device.guid[0] & 3, 2);
            assert!(all[..at].iter().all(|other| other.guid != device.guid && other.index != device.index));
            assert_eq!(std::net::Ipv6Addr::from(device.gid().bytes()).to_canonical(), device.address);
        }
        for loopback in
            ["127.0.0.1", "127.9.8.7", "::1"].map(|text| text.parse::<IpAddr>().expect("an address"))
        {
            let found = Device::for_loopback(loopback).expect("there is a device").address;
            let first = all.iter().map(|one| one.address).find(|one| one.is_ipv4() == loopback.is_ipv4());
            assert_eq!(found, first.unwrap_or(all[0].address));
        }
        assert_eq!(Device::with("192.0.2.77".parse().expect("an address")).map(|_| ()), Err(libc::ENODEV));
    }
}
