//! The directories for this user's sockets, both those by whose names processes find each other and those of
//! boards.
//!
//! Where            `$XDG_RUNTIME_DIR/kiban`; if that is not set, `/run/kiban` for root and for a user who
//!                  owns it (a unit's `RuntimeDirectory=`), and `/tmp/kiban-UID` for others. A client
//!                  searches all of these that its user owns, and `/run/user/UID/kiban`. Root's clients also
//!                  connect to boards in a searched directory that another user owns.
//! Trust            the path must be a directory with mode 0700 that this user owns. Its parent must belong
//!                  to this user or root, and be writable by others only if it has the sticky bit. So no
//!                  other user can reach a socket there, or replace one.
//! Links            symbolic links are not followed, except `/run/kiban` if only root can change it, because
//!                  systemd makes it a link with `DynamicUser=`.
//! Boards           [`call`] connects to a board. The directory and the socket are opened first, so that they
//!                  cannot be replaced between the checks and the connection. The socket must not be a link.
//!                  It and the process that listens there must belong to the directory's owner: otherwise a
//!                  user could redirect root's clients to another of root's sockets. This rule does not
//!                  exclude any board, because a board uses only a directory that its own user owns.
//! Scope            a name is valid in one network namespace, whose number is part of the file name: some
//!                  names are made from addresses, which mean different things in different namespaces.
//!                  Boards are found from every network namespace.

use super::peer::Peer;
use crate::text::printable;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::net::SocketType;
use std::fs::Metadata;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Maximum length of the escaped form of a name, as used in a file name, in bytes.
const FORM_BYTES_MAX: usize = 80;
/// The location where a service manager creates the directory for its boards.
const RUN: &str = "/run/kiban";
const REMEDY: &str = "set XDG_RUNTIME_DIR to a directory of your own with mode 0700";

/// Which user's directories are accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// Directories that this user owns.
    Own(u32),
    /// Directories in which this user may query boards: its own, and for root any user's.
    Asked(u32),
}

/// Returns the path of the directory for this user's new sockets, without checking it.
pub fn own_path() -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    match runtime_folder() {
        Some(parent) => parent.join("kiban"),
        None if uid == 0 || validate(Path::new(RUN), Whose::Own(uid)).is_ok() => RUN.into(),
        None => format!("/tmp/kiban-{uid}").into(),
    }
}

/// Returns the directory for this user's new sockets; creates it if it does not exist.
///
/// # Errors
/// It belongs to another user, or others can enter or replace it. The message contains a remedy.
pub fn own_folder() -> io::Result<PathBuf> {
    let folder = own_path();
    let uid = rustix::process::geteuid().as_raw();
    match validate(&folder, Whose::Own(uid)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        validated => return validated.map(|()| folder),
    }
    // Do not create anything in another user's directory.
    let above = folder.ancestors().skip(1).find_map(|above| Some((above, std::fs::metadata(above).ok()?)));
    if let Some((place, about)) = above {
        validate_parent(&folder, place, &about, uid)?;
    }
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}: {REMEDY}", shown(&folder))))?;
    // Another process may have created it in the meantime.
    validate(&folder, Whose::Own(uid)).map(|()| folder)
}

/// Returns every directory in which this user's sockets may be, without checking them. The directory for new
/// sockets comes first.
pub fn paths() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let fallback = (uid != 0).then(|| format!("/tmp/kiban-{uid}"));
    let mut paths = vec![own_path()];
    for path in [Some(RUN.into()), fallback, Some(format!("/run/user/{uid}/kiban"))].into_iter().flatten() {
        let path = PathBuf::from(path);
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

/// Returns the directories in which this user's sockets may be. Directories that other users could have
/// prepared are left out.
pub fn folders() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    paths().into_iter().filter(|path| validate(path, Whose::Own(uid)).is_ok()).collect()
}

/// Returns the directories with the sockets of boards that this user may query. Directories that other users
/// could have prepared are left out.
pub fn folders_of_boards() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    paths().into_iter().filter(|path| validate(path, Whose::Asked(uid)).is_ok()).collect()
}

/// Returns the reasons why existing directories were not searched for boards, in parentheses, as a suffix for
/// a "no board" error; empty if all were searched.
pub fn left_out() -> String {
    let uid = rustix::process::geteuid().as_raw();
    let errors = paths().into_iter().filter_map(|path| validate(&path, Whose::Asked(uid)).err());
    let errors = errors.filter(|error| error.kind() != io::ErrorKind::NotFound);
    let reasons: Vec<String> = errors.map(|error| error.to_string()).collect();
    if reasons.is_empty() { String::new() } else { format!(" (not searched: {})", reasons.join("; ")) }
}

/// Returns `$XDG_RUNTIME_DIR` if it is absolute, as the XDG Base Directory Specification requires.
fn runtime_folder() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute())
}

/// Checks that a directory and its parent are safe.
///
/// # Errors
/// It does not exist, or it is not safe. The message contains a remedy.
pub fn validate(folder: &Path, whose: Whose) -> io::Result<()> {
    validated(folder, whose).map(drop)
}

/// Like [`validate`], but also returns the directory behind the link that systemd makes, with its metadata.
fn validated(folder: &Path, whose: Whose) -> io::Result<(PathBuf, Metadata)> {
    let say =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}: {REMEDY}", shown(folder)));
    let parent = folder.parent().unwrap_or(folder);
    let above = std::fs::metadata(parent).map_err(say)?;
    let own = std::fs::symlink_metadata(folder).map_err(say)?;
    // With DynamicUser=, systemd makes this directory a link to `private/kiban` (systemd.exec(5)).
    if own.is_symlink()
        && folder == Path::new(RUN)
        && own.uid() == 0
        && above.uid() == 0
        && !others_write(&above)
    {
        let target = parent.join(std::fs::read_link(folder).map_err(say)?);
        // A link to itself is rejected below, as a link.
        if target != folder {
            return validated(&target, whose);
        }
    }
    if FileType::from_raw_mode(own.mode()) != FileType::Directory {
        let what = if own.is_symlink() { "is a symbolic link" } else { "is not a directory" };
        return Err(denied(folder, what, &format!("remove it, or {REMEDY}")));
    }
    let uid = match whose {
        Whose::Own(uid) if own.uid() != uid => {
            return Err(denied(folder, &format!("belongs to user {}", own.uid()), REMEDY));
        }
        Whose::Asked(uid) if own.uid() != uid && uid != 0 => {
            let what = format!("belongs to user {}", own.uid());
            return Err(denied(folder, &what, "query its boards as root with sudo"));
        }
        _ => own.uid(),
    };
    if own.mode() & 0o777 != 0o700 {
        let remedy = format!("chmod 700 {}", shown(folder));
        return Err(denied(folder, &format!("has mode {:04o}, not 0700", own.mode() & 0o7777), &remedy));
    }
    validate_parent(folder, parent, &above, uid)?;
    Ok((folder.to_owned(), own))
}

/// Checks a directory above `folder`, which belongs or will belong to the user `uid`.
fn validate_parent(folder: &Path, place: &Path, about: &Metadata, uid: u32) -> io::Result<()> {
    let is_sticky = about.mode() & 0o1000 != 0;
    if !matches!(about.uid(), owner if owner == uid || owner == 0) || (others_write(about) && !is_sticky) {
        let what =
            format!("is not safe, because {} belongs to another user or is writable by others", shown(place));
        return Err(denied(folder, &what, REMEDY));
    }
    Ok(())
}

fn denied(path: &Path, what: &str, remedy: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{} {what}: {remedy}", shown(path)))
}

/// Escapes a path for one line of a message.
fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// Connects to a socket in one of the [directories of boards](folders_of_boards), without waiting. Set
/// `takes_memory` if the board sends memory.
///
/// # Errors
/// `NotFound` and `ConnectionRefused`: there is no listener. `WouldBlock`: too many callers wait to be
/// accepted. `PermissionDenied`: the directory, the socket or the listening process cannot be trusted, for
/// the reason in the message.
pub fn call(path: &Path, kind: SocketType, takes_memory: bool) -> io::Result<Peer> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let (folder, about) = validated(folder, Whose::Asked(rustix::process::geteuid().as_raw()))?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&folder, flags | OFlags::DIRECTORY, Mode::empty())?;
    let its = rustix::fs::fstat(&opened)?;
    if (its.st_dev, its.st_ino, its.st_uid) != (about.dev(), about.ino(), about.uid()) {
        return Err(denied(&folder, "was replaced during the check", "try again"));
    }
    let remedy = "remove it and restart the board";
    let socket = rustix::fs::openat(&opened, name, flags, Mode::empty())?;
    let socket_about = rustix::fs::fstat(&socket)?;
    let owner = about.uid();
    match FileType::from_raw_mode(socket_about.st_mode) {
        FileType::Socket => {}
        FileType::Symlink => return Err(denied(path, "is a symbolic link", remedy)),
        _ => return Err(denied(path, "is not a socket", remedy)),
    }
    if socket_about.st_uid != owner {
        let what =
            format!("belongs to user {}, but its directory belongs to user {owner}", socket_about.st_uid);
        return Err(denied(path, &what, remedy));
    }
    // This path refers to the socket that was checked, even if the name refers to another file by now.
    let way = Path::new("/proc/self/fd").join(socket.as_raw_fd().to_string());
    let peer = Peer::connect(&way, kind, takes_memory)?;
    match rustix::net::sockopt::socket_peercred(&peer)?.uid.as_raw() {
        uid if uid == owner => Ok(peer),
        uid => {
            let what = format!("has a listener of user {uid}, but the directory belongs to user {owner}");
            Err(denied(path, &what, remedy))
        }
    }
}

fn others_write(about: &Metadata) -> bool {
    about.mode() & 0o022 != 0
}

/// Returns the file name for a name in this network namespace.
///
/// # Errors
/// The name is empty or too long, or the system does not report the namespace.
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
            "name must be 1 to {FORM_BYTES_MAX} bytes long (bytes other than letters, digits and -_.:@+ count as three)"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(format!("{form}.{}.shm", namespace()?))
}

/// Returns the number of this thread's network namespace.
fn namespace() -> io::Result<u64> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let mut cookie = 0u64;
    let mut length = size_of_val(&cookie) as libc::socklen_t;
    // SAFETY: the option is a 64-bit number, and `cookie` has room for it (SO_NETNS_COOKIE, Linux 5.14).
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if status == 0 {
        return Ok(cookie);
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let file = rustix::fs::open("/proc/thread-self/ns/net", flags, Mode::empty())?;
    Ok(rustix::fs::fstat(&file)?.st_ino)
}
