//! The server's own files, which no peer may access.
//!
//! Purpose     password hashes and keys stay secret, even if their files are moved into, linked from or
//!             replaced in a directory that peers can reach.
//! Operation   files are recognised by device and inode. Each file is held open, so that its inode is not
//!             reused.
//! Renewal     the configured paths are checked whenever the filestore opens a file, so that a new file at
//!             such a path is protected before any peer can read it.
//! Old files   a file that was replaced stays protected as long as it has a name.
//! Limits      [`EARLIER_MAX`] replaced files; beyond that, the oldest is dropped, with a line in the log. A
//!             file is not protected if it was put at a path and moved away again before any file was opened;
//!             nor is a copy. If this process may no longer inspect a path, the last file known at that path
//!             stays protected.

use kiban_os::ignore_poison;
use rustix::fs::{CWD, Mode, OFlags, Stat};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

/// Maximum number of replaced files that stay protected.
pub(super) const EARLIER_MAX: usize = 64;

/// Device number and inode number.
pub(super) type Inode = (u64, u64);

/// Files that the server reads for its own use. No peer can access them, whatever name or link leads to them
/// in the directory.
#[derive(Clone, Debug, Default)]
pub struct Protected(Arc<RwLock<Files>>);

#[derive(Debug, Default)]
struct Files {
    current: Vec<Current>,
    /// Files that were replaced, oldest first.
    earlier: VecDeque<Pinned>,
}

/// A configured path, and the file that was last found there.
#[derive(Debug)]
struct Current {
    path: PathBuf,
    pinned: Option<Pinned>,
}

/// An open file. While it is open, its inode number is not reused.
#[derive(Debug)]
struct Pinned {
    file: OwnedFd,
    inode: Inode,
}

impl Protected {
    /// Protects the file at a path, and any file that replaces it later. The file need not exist yet.
    pub fn add(&self, path: &Path) {
        let mut files = ignore_poison(self.0.write());
        files.index(path);
        files.look_again();
    }

    /// Protects a file that was opened at a path and is about to be read.
    ///
    /// # Errors
    /// The system has run out of file descriptors.
    pub fn add_opened(&self, path: &Path, file: &File) -> io::Result<()> {
        let pinned = Pinned::new(file.try_clone()?.into())?;
        let mut files = ignore_poison(self.0.write());
        let index = files.index(path);
        files.replace(index, pinned);
        Ok(())
    }

    /// Returns whether a file is protected.
    pub(super) fn has(&self, stat: &Stat) -> bool {
        let wanted = inode(stat);
        let (mut is_current, mut is_replaced) = (false, false);
        let files = ignore_poison(self.0.read());
        for Current { path, pinned } in &files.current {
            let Ok(stat) = rustix::fs::stat(path) else { continue };
            is_current |= inode(&stat) == wanted;
            is_replaced |= pinned.as_ref().is_none_or(|pinned| pinned.inode != inode(&stat));
        }
        if !is_replaced {
            return files.has(wanted);
        }
        drop(files);
        let mut files = ignore_poison(self.0.write());
        files.look_again();
        // If the system has run out of descriptors, the current file is not pinned, but access to it is still
        // refused.
        is_current || files.has(wanted)
    }
}

impl Files {
    fn has(&self, wanted: Inode) -> bool {
        let current = self.current.iter().filter_map(|current| current.pinned.as_ref());
        current.chain(&self.earlier).any(|pinned| pinned.inode == wanted)
    }

    /// Returns a path's index, adding the path if it is new.
    fn index(&mut self, path: &Path) -> usize {
        self.current.iter().position(|current| current.path == path).unwrap_or_else(|| {
            self.current.push(Current { path: path.to_owned(), pinned: None });
            self.current.len() - 1
        })
    }

    /// Pins the files at the configured paths. If a file cannot be opened, this is retried later.
    fn look_again(&mut self) {
        for index in 0..self.current.len() {
            let path = &self.current[index].path;
            let opened = rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
            if let Some(pinned) = opened.ok().and_then(|file| Pinned::new(file).ok()) {
                self.replace(index, pinned);
            }
        }
    }

    fn replace(&mut self, index: usize, pinned: Pinned) {
        let current = &mut self.current[index].pinned;
        if current.as_ref().is_some_and(|current| current.inode == pinned.inode) {
            return;
        }
        self.earlier.extend(current.replace(pinned));
        self.earlier.retain(Pinned::has_name);
        if self.earlier.len() > EARLIER_MAX {
            self.earlier.pop_front();
            let path = self.current[index].path.display();
            tracing::warn!(%path, "over {EARLIER_MAX} replaced files still exist: the oldest is no longer protected");
        }
    }
}

impl Pinned {
    fn new(file: OwnedFd) -> io::Result<Pinned> {
        let inode = inode(&rustix::fs::fstat(&file)?);
        Ok(Pinned { file, inode })
    }

    fn has_name(&self) -> bool {
        // If fstat fails, the file stays pinned.
        rustix::fs::fstat(&self.file).map_or(true, |stat| stat.st_nlink > 0)
    }
}

pub(super) fn inode(stat: &Stat) -> Inode {
    (stat.st_dev, stat.st_ino)
}
