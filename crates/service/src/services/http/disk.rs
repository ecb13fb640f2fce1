//! Serves files from one directory on this host, and nothing outside it.
//!
//! Containment      the kernel resolves every path relative to the directory, which is opened at start. A
//!                  path must neither leave it nor contain a symlink (openat2(2), RESOLVE_BENEATH |
//!                  RESOLVE_NO_SYMLINKS).
//! File types       only regular files are served, because reading a device or a pipe might block.

use super::store::{Content, Entry, Found, Store};
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The maximum number of retries if a directory is moved while a path is being resolved (openat2(2), EAGAIN).
const WALKS_MAX: usize = 8;
/// Limit of listed directory entries.
const ENTRIES_MAX: usize = 10_000;

/// An open directory.
pub struct Folder(OwnedFd);

impl Folder {
    /// Opens a directory.
    ///
    /// # Errors
    /// If it does not exist, or is not a directory.
    pub fn open(root: &Path) -> io::Result<Folder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Folder(rustix::fs::open(root, flags, Mode::empty())?))
    }

    fn walk(&self, parts: &[String], flags: OFlags) -> io::Result<OwnedFd> {
        let path = if parts.is_empty() { ".".to_owned() } else { parts.join("/") };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let mut last = rustix::io::Errno::AGAIN;
        for _ in 0..WALKS_MAX {
            // O_NONBLOCK: opening a pipe would block.
            let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
            match rustix::fs::openat2(&self.0, path.as_str(), flags, Mode::empty(), resolve) {
                Err(errno @ (rustix::io::Errno::AGAIN | rustix::io::Errno::INTR)) => last = errno,
                result => return Ok(result?),
            }
        }
        Err(last.into())
    }
}

impl Store for Folder {
    fn find(&mut self, parts: &[String]) -> Option<Found> {
        let file = self.walk(parts, OFlags::RDONLY).ok()?;
        let about = rustix::fs::fstat(&file).ok()?;
        match FileType::from_raw_mode(about.st_mode) {
            FileType::RegularFile => {
                let length = u64::try_from(about.st_size).ok()?;
                Some(Found::File(Box::new(OnDisk { file: file.into(), length })))
            }
            FileType::Directory => Some(Found::Folder),
            _ => None,
        }
    }

    fn list(&mut self, parts: &[String]) -> Vec<Entry> {
        let Ok(folder) = self.walk(parts, OFlags::RDONLY | OFlags::DIRECTORY) else { return Vec::new() };
        let Ok(entries) = Dir::read_from(&folder) else { return Vec::new() };
        let mut list: Vec<Entry> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let name = entry.file_name().to_str().ok()?.to_owned();
                let is_folder = match entry.file_type() {
                    FileType::Directory => true,
                    FileType::RegularFile => false,
                    _ => return None,
                };
                (!name.starts_with('.')).then_some(Entry { name, is_folder })
            })
            .take(ENTRIES_MAX)
            .collect();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list
    }
}

struct OnDisk {
    file: File,
    length: u64,
}

impl Content for OnDisk {
    fn length(&self) -> u64 {
        self.length
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> usize {
        loop {
            match self.file.read_at(into, at) {
                Ok(count) => return count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Treat an error as if the file had become shorter. In that case, the session is reset.
                Err(_) => return 0,
            }
        }
    }
}
