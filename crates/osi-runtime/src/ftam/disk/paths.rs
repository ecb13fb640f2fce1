//! Path resolution that symbolic links cannot divert, and the mapping of system errors.

use kiban_os::random;
use kiban_osi::ftam::filestore::{DiskError, Path, RESERVED};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How many times a path is resolved again if directories are moved during resolution (openat2(2), EAGAIN).
const WALKS_MAX: usize = 32;
/// How often work is repeated in a subdirectory that other processes remove. They do that once per transfer,
/// so a few attempts suffice; if the directory above it is gone, too, no number of attempts helps.
const REPEATS_MAX: usize = 1000;

/// A directory and a name in it.
#[derive(Debug)]
pub(super) struct DirectoryEntry {
    pub(super) directory: OwnedFd,
    pub(super) name: String,
}

/// Opens the file or directory at a path, provided that the path stays below `root` and contains no symbolic
/// link.
pub(super) fn enter(root: BorrowedFd<'_>, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    walk(root, path, flags, Mode::empty())
}

/// Creates a file in a directory.
pub(super) fn create(directory: BorrowedFd<'_>, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    walk(directory, name, flags | OFlags::CREATE, Mode::from_raw_mode(0o666))
}

fn walk(root: BorrowedFd<'_>, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mut last = Errno::AGAIN;
    for _ in 0..WALKS_MAX {
        match rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, mode, resolve) {
            Err(errno @ (Errno::AGAIN | Errno::INTR)) => last = errno,
            result => return result,
        }
    }
    Err(last)
}

/// Opens the directory at a path for listing.
pub(super) fn directory(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, DiskError> {
    let path = if path.is_root() { "." } else { path.as_str() };
    real(enter(root, path, OFlags::RDONLY | OFlags::DIRECTORY))
}

/// Opens the parent directory of a path; returns it with the path's last component.
pub(super) fn above(root: BorrowedFd<'_>, path: &Path) -> Result<DirectoryEntry, DiskError> {
    let (Some(parent), Some(name)) = (path.parent(), path.name()) else { return Err(DiskError::NotAFile) };
    Ok(DirectoryEntry {
        directory: directory_at(root, if parent.is_root() { "." } else { parent.as_str() })?,
        name: name.into(),
    })
}

/// Opens a subdirectory.
pub(super) fn directory_at(directory: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, DiskError> {
    real(enter(directory, name, OFlags::RDONLY | OFlags::DIRECTORY))
}

/// Opens one of the disk's own files in a directory.
pub(super) fn open_at(directory: BorrowedFd<'_>, name: &str, flags: OFlags) -> Result<OwnedFd, DiskError> {
    real(enter(directory, name, flags | OFlags::NONBLOCK))
}

/// Does work in one of the disk's own subdirectories, which is created if missing. Another process may remove
/// the directory while it is empty, so the work is then repeated in a new one.
pub(super) fn in_state<T>(
    directory: BorrowedFd<'_>,
    name: &str,
    mut work: impl FnMut(&OwnedFd) -> Result<T, DiskError>,
) -> Result<T, DiskError> {
    for _ in 0..REPEATS_MAX {
        let state = match state(directory, name) {
            Err(DiskError::NotThere) => continue,
            state => state?,
        };
        match work(&state) {
            Err(DiskError::NotThere) if real(rustix::fs::fstat(&state))?.st_nlink == 0 => {}
            result => return result,
        }
    }
    Err(DiskError::NotThere)
}

/// Opens one of the disk's own subdirectories, creating it if missing.
fn state(directory: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, DiskError> {
    let path = format!("{RESERVED}/{name}");
    match enter(directory, &path, OFlags::RDONLY | OFlags::DIRECTORY) {
        Err(Errno::NOENT) => {}
        result => return real(result),
    }
    for (of, name) in [(None, RESERVED), (Some(RESERVED), name)] {
        let within = of.map(|of| directory_at(directory, of)).transpose()?;
        let within = within.as_ref().map_or(directory, AsFd::as_fd);
        match rustix::fs::mkdirat(within, name, Mode::from_raw_mode(0o700)) {
            Err(Errno::EXIST) => {}
            result => real(result)?,
        }
    }
    directory_at(directory, &path)
}

/// Opens one of the disk's own subdirectories, if it exists.
pub(super) fn state_if_there(directory: BorrowedFd<'_>, name: &str) -> Option<OwnedFd> {
    enter(directory, &format!("{RESERVED}/{name}"), OFlags::RDONLY | OFlags::DIRECTORY).ok()
}

/// Removes the disk's own directories in `directory` if they are empty. Those with the state of unfinished
/// transfers remain.
pub fn remove_empty_state(directory: &std::path::Path) {
    let reserved = directory.join(RESERVED);
    for name in ["new", "dockets", "attributes"] {
        let _ = std::fs::remove_dir(reserved.join(name));
    }
    let _ = std::fs::remove_dir(reserved);
}

/// Lists the files and directories in a directory, unsorted; symbolic links and special files are left out.
pub(super) fn names(directory: BorrowedFd<'_>, names_max: usize) -> Result<Vec<String>, DiskError> {
    let mut names = Vec::new();
    for entry in real(Dir::read_from(directory))? {
        let entry = real(entry)?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        let file_type = match entry.file_type() {
            FileType::Unknown => match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(_) => continue,
            },
            file_type => file_type,
        };
        let counts = matches!(file_type, FileType::RegularFile | FileType::Directory);
        if !counts || matches!(name, "." | "..") || name.eq_ignore_ascii_case(RESERVED) {
            continue;
        }
        if names.len() >= names_max {
            return Err(DiskError::TooMany);
        }
        names.push(name.into());
    }
    Ok(names)
}

/// Removes a directory that contains no files except the disk's own.
pub(super) fn remove_directory(entry: &DirectoryEntry) -> Result<(), DiskError> {
    let remove = || rustix::fs::unlinkat(&entry.directory, entry.name.as_str(), AtFlags::REMOVEDIR);
    match remove() {
        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
        result => return real(result),
    }
    let inner = directory_at(entry.directory.as_fd(), &entry.name)?;
    let foreign = real(Dir::read_from(&inner))?.filter_map(Result::ok).any(|entry| {
        let name = entry.file_name().to_bytes();
        name != b"." && name != b".." && name != RESERVED.as_bytes()
    });
    if foreign {
        return Err(DiskError::NotEmpty);
    }
    let own = directory_at(inner.as_fd(), RESERVED)?;
    // Unfinished contents and records keep a directory from being removed.
    for name in ["new", "dockets"] {
        match rustix::fs::unlinkat(&own, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(disk_error(errno)),
        }
    }
    if let Ok(attributes) = directory_at(own.as_fd(), "attributes") {
        for name in names(attributes.as_fd(), usize::MAX)? {
            real(rustix::fs::unlinkat(&attributes, name, AtFlags::empty()))?;
        }
        real(rustix::fs::unlinkat(&own, "attributes", AtFlags::REMOVEDIR))?;
    }
    real(rustix::fs::unlinkat(&inner, RESERVED, AtFlags::REMOVEDIR))?;
    real(remove())
}

/// Replaces one of the disk's own small files atomically.
pub(super) fn replace(
    directory: BorrowedFd<'_>,
    name: &str,
    bytes: &[u8],
    last: bool,
) -> Result<(), DiskError> {
    let new = format!("{}~", token()?);
    let file = real(create(directory, &new, OFlags::WRONLY | OFlags::EXCL))?;
    let written = (|| {
        let mut rest = bytes;
        while !rest.is_empty() {
            let count = rustix::io::retry_on_intr(|| rustix::io::write(&file, rest))?;
            rest = &rest[count..];
        }
        if last {
            rustix::fs::fsync(&file)?;
        }
        rustix::fs::renameat(directory, new.as_str(), directory, name)?;
        if last { rustix::fs::fsync(directory) } else { Ok(()) }
    })();
    if written.is_err() {
        let _ = rustix::fs::unlinkat(directory, new.as_str(), AtFlags::empty());
    }
    real(written)
}

/// Reads one of the disk's own small files.
pub(super) fn whole(directory: BorrowedFd<'_>, name: &str, bytes_max: usize) -> Result<Vec<u8>, DiskError> {
    let file = open_at(directory, name, OFlags::RDONLY)?;
    let mut bytes: Vec<u8> = Vec::with_capacity(bytes_max + 1);
    while bytes.len() <= bytes_max {
        match rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes)) {
            Ok(0) => return Ok(bytes),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(disk_error(errno)),
        }
    }
    Err(DiskError::Long)
}

/// Syncs a directory, so that changes to its entries are durable.
pub(super) fn settle_names(directory: BorrowedFd<'_>) -> Result<(), DiskError> {
    match rustix::fs::fsync(directory) {
        // Some file systems do not support syncing a directory, and return these errors.
        Err(Errno::INVAL | Errno::ROFS) => Ok(()),
        result => real(result),
    }
}

/// Returns an unused, unguessable name.
pub(super) fn token() -> Result<String, DiskError> {
    let bytes: [u8; 16] = real(random::bytes().map_err(errno))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the number of a system error.
pub(super) fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Converts a system call's result to a filestore result.
pub(super) fn real<T>(result: Result<T, Errno>) -> Result<T, DiskError> {
    result.map_err(disk_error)
}

/// Maps a system error to a filestore error.
pub(super) fn disk_error(errno: Errno) -> DiskError {
    match errno {
        Errno::NOENT => DiskError::NotThere,
        Errno::EXIST => DiskError::Exists,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => DiskError::Denied,
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => DiskError::Full,
        Errno::BUSY | Errno::AGAIN | Errno::TXTBSY => DiskError::Busy,
        Errno::LOOP | Errno::XDEV => DiskError::Outside,
        Errno::ISDIR | Errno::NXIO | Errno::NODEV => DiskError::NotAFile,
        Errno::NOTDIR => DiskError::NotADirectory,
        Errno::NOTEMPTY => DiskError::NotEmpty,
        Errno::NAMETOOLONG | Errno::TOOBIG | Errno::RANGE => DiskError::Long,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::MLINK => DiskError::TooMany,
        Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS => DiskError::Unable,
        _ => DiskError::Failed,
    }
}
