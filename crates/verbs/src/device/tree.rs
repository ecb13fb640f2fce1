//! Files that describe the devices, like those of the kernel in /sys and /dev (sysfs(5), the kernel's
//! Documentation/ABI/stable/sysfs-class-infiniband).
//!
//! Purpose         programs that look for devices at these paths find kiban's. `libkiban_paths.so` redirects
//!                 their calls to these files (`preload/paths.c`).
//! Method          a process's first call with such a path writes the files to a new directory, on tmpfs if
//!                 possible, with the values that the library's own queries return. A forked child writes a
//!                 directory of its own.
//! Layout          as for a card: `/sys/class/infiniband/kiban0` is a symbolic link to a directory below that
//!                 of the device, which has `numa_node`, `net` and so on. The device's directory is not that
//!                 of a PCI device but `/sys/devices/virtual/kiban/kiban0`.
//! End             the directory is removed when the process exits. A process that is killed, or that
//!                 executes another program, leaves its directory behind; the next process that creates one
//!                 removes all directories without an owner. An owner holds a lock on its directory
//!                 (flock(2)), which the kernel releases when the owner ends.
//! Not implemented changes after the first call; counters (`ports/1/counters`), because they would never
//!                 change; files that only a kernel driver has.

use crate::abi::*;
use crate::atomic::AtomicPtr;
use crate::device::interfaces::{Interface, Interfaces};
use crate::device::{Device, query};
use crate::engine::Generation;
use crate::ffi::catch_panics;
use crate::sync::published::Published;
use core::ffi::c_char;
use core::ptr::null_mut;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, Permissions, create_dir_all, read_dir, remove_dir_all, set_permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The prefix of the directories' names.
const PREFIX: &str = "kiban-devices-";
/// The directory of all devices, below the root.
const DEVICES: &str = "sys/devices/virtual/kiban";
/// What `libkiban_paths.so` shows as device files is /dev/null, whose number this is.
const NODE: &str = "1:3";
/// The version of the kernel's interface to rdma-core, for all devices and for one (ib_user_verbs.h).
const ABI_VERSION: &str = "6";
const DEVICE_ABI_VERSION: &str = "1";

/// A directory with the files.
struct Tree {
    born: Generation,
    root: CString,
    /// Keeps the directory locked. It is closed when the process ends.
    _lock: File,
}

static CURRENT: Published<Tree> = Published(AtomicPtr::new(null_mut()));

/// Returns the root of the process's tree, or null if it cannot be written.
#[unsafe(no_mangle)]
extern "C" fn kiban_device_tree() -> *const c_char {
    catch_panics(core::ptr::null(), || {
        CURRENT
            .get_or_make(|tree| tree.born.is_now(), make)
            .inspect_err(|error| {
                crate::log::info(format_args!("cannot write /sys/class/infiniband: {error}"))
            })
            .map_or(core::ptr::null(), |tree| tree.root.as_ptr())
    })
}

fn make() -> io::Result<Tree> {
    let (root, lock) = new_folder()?;
    let tree = Tree {
        born: Generation::now(),
        root: CString::new(root.as_os_str().as_bytes()).map_err(io::Error::other)?,
        _lock: lock,
    };
    write(&root).inspect_err(|_| drop(remove_dir_all(&root)))?;
    // SAFETY: `at_exit` may run at any time. If memory is short, the directory stays until another process
    // creates one.
    unsafe { libc::atexit(at_exit) };
    Ok(tree)
}

/// Removes the directory. A forked child leaves its parent's alone.
extern "C" fn at_exit() {
    if let Some(tree) = CURRENT.get().filter(|tree| tree.born.is_now()) {
        // If this fails, the directory is removed by the next process that creates one.
        let _ = remove_dir_all(Path::new(OsStr::from_bytes(tree.root.to_bytes())));
    }
}

/// Creates a locked directory: on tmpfs, or else where temporary files are.
fn new_folder() -> io::Result<(PathBuf, File)> {
    let places = [PathBuf::from("/dev/shm"), std::env::temp_dir()];
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for place in places {
        // realpath(3) returns paths without links, and the preloaded library compares them with the root.
        let made = place.canonicalize().and_then(|place| {
            remove_ownerless(&place);
            new_folder_in(&place)
        });
        match made {
            Ok(made) => return Ok(made),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn new_folder_in(place: &Path) -> io::Result<(PathBuf, File)> {
    loop {
        let template = place.join(format!("{PREFIX}XXXXXX"));
        let template =
            CString::new(template.into_os_string().into_encoded_bytes()).map_err(io::Error::other)?;
        let name = template.into_raw();
        // SAFETY: `name` is a C string of ours that ends with six X, which mkdtemp(3) replaces; it is taken
        // back once.
        let (is_made, root) = unsafe { (!libc::mkdtemp(name).is_null(), CString::from_raw(name)) };
        if !is_made {
            return Err(io::Error::last_os_error());
        }
        let root = PathBuf::from(OsString::from_vec(root.into_bytes()));
        let lock = File::open(&root)?;
        // Between the two calls, another process may have locked the directory to remove it.
        if try_lock(&lock) && lock.metadata()?.nlink() > 0 && root.exists() {
            // As sysfs: a process that changes its user can still read it.
            set_permissions(&root, Permissions::from_mode(0o755))?;
            return Ok((root, lock));
        }
    }
}

/// Locks a directory. Returns whether no other process has locked it.
fn try_lock(folder: &File) -> bool {
    // SAFETY: the descriptor is open.
    unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// Removes this user's directories that no process has locked.
fn remove_ownerless(place: &Path) {
    // SAFETY: the call takes no arguments and only returns a number.
    let user = unsafe { libc::geteuid() };
    for entry in read_dir(place).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().as_bytes().starts_with(PREFIX.as_bytes())
            && entry.metadata().is_ok_and(|data| data.is_dir() && data.uid() == user);
        if is_ours
            && let Ok(folder) = File::open(entry.path())
            && try_lock(&folder)
        {
            // If this fails, the next process tries again.
            let _ = remove_dir_all(entry.path());
        }
    }
}

/// Writes the files of all devices.
fn write(root: &Path) -> io::Result<()> {
    let devices = Device::listed().map_err(io::Error::from_raw_os_error)?;
    let interfaces = Interfaces::read().ok();
    let make = |folder: &str| {
        let folder = root.join(folder);
        create_dir_all(&folder).map(|()| folder)
    };
    let (class, verbs, nodes) =
        (make("sys/class/infiniband")?, make("sys/class/infiniband_verbs")?, make("dev/infiniband")?);
    put(&verbs, "abi_version", ABI_VERSION)?;
    std::fs::write(nodes.join("rdma_cm"), "")?;
    for device in devices {
        let (name, node) = (device.name(), format!("uverbs{}", device.index));
        let interface = interfaces.as_ref().and_then(|all| all.with(device.address));
        let parent = root.join(DEVICES).join(&name);
        write_parent(&parent, interface)?;
        write_device(&parent.join("infiniband").join(&name), device, interface)?;
        let entry = parent.join("infiniband_verbs").join(&node);
        put(&entry, "ibdev", &name)?;
        put(&entry, "abi_version", DEVICE_ABI_VERSION)?;
        put(&entry, "dev", NODE)?;
        symlink("../../../".to_owned() + &name, entry.join("device"))?;
        let above = format!("../../devices/virtual/kiban/{name}");
        symlink(format!("{above}/infiniband/{name}"), class.join(&name))?;
        symlink(format!("{above}/infiniband_verbs/{node}"), verbs.join(&node))?;
        std::fs::write(nodes.join(&node), "")?;
    }
    Ok(())
}

/// Writes what a card has in the directory of its PCI device.
fn write_parent(folder: &Path, interface: Option<&Interface>) -> io::Result<()> {
    put(folder, "vendor", &format!("{:#06x}", query::VENDOR))?;
    put(folder, "device", &format!("{:#06x}", query::PART))?;
    put(folder, "numa_node", interface.and_then(Interface::numa_node).as_deref().unwrap_or("-1"))?;
    let net = folder.join("net");
    create_dir_all(&net)?;
    interface.map_or(Ok(()), |one| symlink(Path::new("/sys/class/net").join(&one.name), net.join(&one.name)))
}

/// Writes the directory of a device, with its port.
fn write_device(folder: &Path, device: &Device, interface: Option<&Interface>) -> io::Result<()> {
    let guid = groups(&device.guid);
    put(folder, "node_type", &node_type(device))?;
    put(folder, "fw_ver", query::FIRMWARE)?;
    put(folder, "hca_type", "kiban")?;
    put(folder, "hw_rev", "0")?;
    put(folder, "node_desc", &device.name())?;
    put(folder, "node_guid", &guid)?;
    put(folder, "sys_image_guid", &guid)?;
    symlink("../../../".to_owned() + &device.name(), folder.join("device"))?;
    let attr = query::port(device);
    let port = folder.join("ports/1");
    put(&port, "state", if attr.state == IBV_PORT_ACTIVE { "4: ACTIVE" } else { "1: DOWN" })?;
    put(&port, "phys_state", if attr.state == IBV_PORT_ACTIVE { "5: LinkUp" } else { "3: Disabled" })?;
    put(&port, "rate", query::RATE)?;
    put(&port, "lid", &format!("{:#x}", attr.lid))?;
    put(&port, "lid_mask_count", "0")?;
    put(&port, "sm_lid", &format!("{:#x}", attr.sm_lid))?;
    put(&port, "sm_sl", "0")?;
    put(&port, "cap_mask", &format!("{:#010x}", attr.port_cap_flags))?;
    put(&port, "link_layer", "Ethernet")?;
    for index in 0..attr.pkey_tbl_len {
        put(&port.join("pkeys"), &index.to_string(), &format!("{:#06x}", query::PKEY))?;
    }
    for index in 0..query::gid_indices() {
        let entry = query::gid_entry(device, index);
        let (attrs, name) = (port.join("gid_attrs"), index.to_string());
        put(&port.join("gids"), &name, &groups(&entry.gid.bytes()))?;
        let kind = if entry.gid_type == IBV_GID_TYPE_ROCE_V2 { "RoCE v2" } else { "IB/RoCE v1" };
        put(&attrs.join("types"), &name, kind)?;
        if let Some(interface) = interface {
            put(&attrs.join("ndevs"), &name, &interface.name)?;
        }
    }
    Ok(())
}

/// Returns the number and the name of a device's type, as the kernel writes them.
fn node_type(device: &Device) -> String {
    let number = device.node_type();
    let name = match number {
        IBV_NODE_CA => "CA",
        IBV_NODE_RNIC => "RNIC",
        _ => "unspecified",
    };
    format!("{number}: {name}")
}

/// Writes a file and, if necessary, the directory that contains it.
fn put(folder: &Path, name: &str, text: &str) -> io::Result<()> {
    create_dir_all(folder)?;
    std::fs::write(folder.join(name), format!("{text}\n"))
}

/// Returns the hexadecimal form of a GUID or GID: groups of two bytes.
fn groups(bytes: &[u8]) -> String {
    let groups: Vec<String> =
        bytes.chunks(2).map(|pair| pair.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    groups.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::CStr;

    fn root() -> PathBuf {
        let root = kiban_device_tree();
        assert!(!root.is_null(), "there is room for temporary files");
        // SAFETY: the function returned a C string, which is never freed.
        PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(root) }.to_bytes()))
    }

    #[test]
    fn every_device_has_its_files() {
        let root = root();
        assert_eq!(root, self::root(), "a process has one tree");
        for device in Device::listed().expect("addresses can be read") {
            let folder = root.join("sys/class/infiniband").join(device.name());
            let text = |name: &str| std::fs::read_to_string(folder.join(name)).expect(name);
            assert_eq!(text("ports/1/gids/0"), format!("{}\n", groups(&device.gid().bytes())));
            assert_eq!(text("node_guid"), format!("{}\n", groups(&device.guid)));
            assert_eq!(text("fw_ver"), format!("{}\n", env!("CARGO_PKG_VERSION")));
            assert_eq!(
                folder.join("device").canonicalize().expect("a link"),
                root.join(DEVICES).join(device.name())
            );
            let verbs = root.join(format!("sys/class/infiniband_verbs/uverbs{}/ibdev", device.index));
            assert_eq!(std::fs::read_to_string(verbs).expect("a file"), format!("{}\n", device.name()));
        }
    }

    #[test]
    fn only_directories_without_an_owner_are_removed() {
        let root = root();
        let place = root.parent().expect("a folder");
        let (left, lock) = new_folder_in(place).expect("there is room");
        std::fs::write(left.join("file"), "").expect("it is ours");
        remove_ownerless(place);
        assert!(left.exists() && root.exists());
        drop(lock);
        remove_ownerless(place);
        assert!(!left.exists() && root.exists());
    }

    #[test]
    fn numbers_are_written_in_groups() {
        assert_eq!(groups(&[2, 0, 0xab, 0xcd]), "0200:abcd");
    }
}
