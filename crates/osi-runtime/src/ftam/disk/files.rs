//! Operations on files: locking, status, renaming, writing and copying.

use super::paths::{disk_error, real};
use kiban_base::Rope;
use kiban_osi::ftam::filestore::{DiskError, Kind, Stamp};
use rustix::fs::{AtFlags, FileType, FlockOperation, RenameFlags, Stat};
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::OwnedFd;

/// Maximum number of pieces that are written with one system call.
pub(super) const PIECES_MAX: usize = 512;

/// Runs work that may wait for a device, without blocking other associations.
pub(super) fn aside<T>(work: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => {
            tokio::task::block_in_place(work)
        }
        // The runtime has a single thread, or there is no runtime: run the work on this thread.
        _ => work(),
    }
}

/// A longer file is closed on another thread when it has been replaced.
const CLOSED_AT_ONCE_BYTES_MAX: i64 = 16 << 20;

/// Closes a replaced file; a large one on another thread, because freeing its blocks takes a long time.
pub(super) fn let_go(old: OwnedFd) {
    if rustix::fs::fstat(&old).is_ok_and(|stat| stat.st_size <= CLOSED_AT_ONCE_BYTES_MAX) {
        return drop(old);
    }
    // If no thread can be created, the file is closed on this thread.
    let _ = kiban_tokio::runtime::blocking(c"kiban-close", move || drop(old));
}

/// Locks contents on behalf of their writer, or of the code that removes them.
pub(super) fn lock(contents: &OwnedFd) -> Result<(), DiskError> {
    let lock = || rustix::fs::flock(contents, FlockOperation::NonBlockingLockExclusive);
    real(rustix::io::retry_on_intr(lock))
}

/// Returns whether a file was last changed before this host was booted.
pub(super) fn is_of_another_life(stat: &Stat) -> bool {
    let up = rustix::time::clock_gettime(rustix::time::ClockId::Boottime).tv_sec;
    stat.st_mtime < kiban_os::clock::unix_seconds() as i64 - up
}

/// Returns the kind of a file, if a filestore can hold such files.
pub(super) fn kind(stat: &Stat) -> Result<Kind, DiskError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(Kind::File),
        FileType::Directory => Ok(Kind::Directory),
        FileType::Symlink => Err(DiskError::Outside),
        _ => Err(DiskError::NotAFile),
    }
}

pub(super) fn stamp(stat: &Stat) -> Stamp {
    Stamp([stat.st_ino, stat.st_size as u64, stat.st_mtime as u64, stat.st_mtime_nsec])
}

/// Writes at an offset and returns the offset after the last byte.
pub(super) fn write_at(file: &OwnedFd, mut at: u64, bytes: &Rope) -> Result<u64, DiskError> {
    let mut slices: Vec<IoSlice<'_>> = bytes.runs().map(IoSlice::new).collect();
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        let most = rest.len().min(PIECES_MAX);
        match rustix::io::pwritev(file, &rest[..most], at) {
            Ok(0) => return Err(DiskError::Full),
            Ok(written) => {
                at += written as u64;
                IoSlice::advance_slices(&mut rest, written);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(disk_error(errno)),
        }
    }
    Ok(at)
}

/// Renames a file without replacing an existing one.
pub(super) fn rename_new(from: &OwnedFd, old: &str, to: &OwnedFd, new: &str) -> Result<(), DiskError> {
    match rustix::fs::renameat_with(from, old, to, new, RenameFlags::NOREPLACE) {
        // On a file system without RENAME_NOREPLACE (NFS), use link, which never replaces a file either. But
        // directories cannot be linked.
        Err(Errno::INVAL | Errno::NOSYS) => {
            match rustix::fs::linkat(from, old, to, new, AtFlags::empty()) {
                Err(Errno::PERM) => return Err(DiskError::Unable),
                linked => real(linked)?,
            }
            real(rustix::fs::unlinkat(from, old, AtFlags::empty()))
        }
        result => real(result),
    }
}

/// Copies `bytes` from one file to offset `at` in another, inside the kernel if possible.
pub(super) fn append(source: &OwnedFd, target: &OwnedFd, bytes: u64, at: u64) -> Result<(), DiskError> {
    let (mut from, mut to) = (0, at);
    while from < bytes {
        let rest = usize::try_from(bytes - from).unwrap_or(usize::MAX).min(1 << 30);
        match rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), rest) {
            Ok(0) => return Err(DiskError::Changed),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::INVAL | Errno::XDEV | Errno::NOSYS | Errno::OPNOTSUPP) => {
                let mut piece: Vec<u8> = Vec::with_capacity(rest.min(1 << 18));
                real(rustix::io::pread(source, rustix::buffer::spare_capacity(&mut piece), from))?;
                if piece.is_empty() {
                    return Err(DiskError::Changed);
                }
                let written = real(rustix::io::pwrite(target, &piece, to))? as u64;
                (from, to) = (from + written, to + written);
            }
            Err(errno) => return Err(disk_error(errno)),
        }
    }
    Ok(())
}
