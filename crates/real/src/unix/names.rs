//! Names by which processes of one user find each other: sockets in a directory that is this user's alone.
//!
//! Where     `$XDG_RUNTIME_DIR/kiban`; where that is not set `/run/kiban` for root, and `/tmp/kiban-UID` for others. Who looks for a
//!           name looks in all of these that are its user's, and in `/run/user/UID/kiban`.
//! Trust     a directory is taken only if it is one, is this user's, and has mode 0700, under one that only this user, root, or in a
//!           directory with the sticky bit its owner, may rename things in. So nobody else reaches a name, or takes one.
//! Scope     one network namespace, whose number is part of the file: processes in different ones do not meet by name, as the addresses
//!           after which some names are made mean different things there.

use rustix::fs::{FileType, Mode, OFlags};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Bytes of the longest name in the form in which it stands in a directory.
const FORM_BYTES_MAX: usize = 80;

/// The directory for new names of this user's, made where it is not there.
///
/// # Errors
/// It is somebody else's, or others may enter it: with what to do.
pub fn own_folder() -> io::Result<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let (parent, folder) = match runtime_folder() {
        Some(parent) => (parent.clone(), parent.join("kiban")),
        None if uid == 0 => ("/run".into(), "/run/kiban".into()),
        None => ("/tmp".into(), format!("/tmp/kiban-{uid}").into()),
    };
    // What is there already is judged like what has been made.
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.and_then(|()| judge(&parent, &folder, uid)).map_err(|error| {
        let remedy = "set XDG_RUNTIME_DIR to a directory of your own with mode 0700";
        io::Error::new(error.kind(), format!("{}: {error}: {remedy}", folder.display()))
    })?;
    Ok(folder)
}

/// The directories in which names of this user's may be.
pub fn folders() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let mut folders: Vec<PathBuf> = Vec::new();
    let fallback = if uid == 0 { "/run/kiban".into() } else { format!("/tmp/kiban-{uid}").into() };
    let places = [runtime_folder().map(|folder| folder.join("kiban"))];
    let places = places.into_iter().flatten().chain([fallback, format!("/run/user/{uid}/kiban").into()]);
    for folder in places {
        let is_good = folder.parent().is_some_and(|parent| judge(parent, &folder, uid).is_ok());
        if is_good && !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// `$XDG_RUNTIME_DIR`, which has to be absolute (XDG Base Directory Specification).
fn runtime_folder() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute())
}

/// Judges a directory, and the one in which it stands.
pub(super) fn judge(parent: &Path, folder: &Path, uid: u32) -> io::Result<()> {
    let denied = |what: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    let own = std::fs::symlink_metadata(folder)?;
    if FileType::from_raw_mode(own.mode()) != FileType::Directory {
        return denied("it is not a directory".into());
    }
    if own.uid() != uid {
        return denied(format!("it belongs to user {}", own.uid()));
    }
    if own.mode() & 0o777 != 0o700 {
        return denied(format!("it has mode {:04o}, not 0700", own.mode() & 0o7777));
    }
    let above = std::fs::metadata(parent)?;
    let (is_sticky, others_write) = (above.mode() & 0o1000 != 0, above.mode() & 0o022 != 0);
    if !matches!(above.uid(), owner if owner == uid || owner == 0) || (others_write && !is_sticky) {
        return denied(format!("{} is another user's, or others may write to it", parent.display()));
    }
    Ok(())
}

/// The file of a name in this network namespace.
///
/// # Errors
/// The name is empty or too long, or the system does not say which namespace this is.
pub fn file(name: &[u8]) -> io::Result<String> {
    let mut form = String::new();
    for &byte in name {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b':' | b'@' | b'+' => {
                form.push(byte.into());
            }
            _ => form.push_str(&format!("%{byte:02x}")),
        }
    }
    if name.is_empty() || form.len() > FORM_BYTES_MAX {
        let message = format!(
            "name must be 1 to {FORM_BYTES_MAX} bytes; all but letters, digits and -_.:@+ count as three"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(format!("{form}.{}.shm", namespace()?))
}

/// The number of this thread's network namespace.
fn namespace() -> io::Result<u64> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let mut cookie = 0u64;
    let mut length = size_of_val(&cookie) as libc::socklen_t;
    // SAFETY: the option is a number of 64 bits, for which there is room (SO_NETNS_COOKIE, Linux 5.14).
    let told = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if told == 0 {
        return Ok(cookie);
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let file = rustix::fs::open("/proc/thread-self/ns/net", flags, Mode::empty())?;
    Ok(rustix::fs::fstat(&file)?.st_ino)
}
