//! Errors of run folders and caches.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a store cannot be used.
#[derive(Debug)]
pub enum StoreError {
    /// The contents do not match the request; the text says what to do.
    Mismatch(String),
    /// Another process is writing to the folder.
    Busy(PathBuf),
    /// A file cannot be read.
    Read(PathBuf, io::Error),
    /// A file cannot be written.
    Write(PathBuf, io::Error),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Mismatch(what) => f.write_str(what),
            StoreError::Busy(path) => {
                write!(
                    f,
                    "{}: another process is writing to it; wait until it ends, or use another folder",
                    path.display()
                )
            }
            StoreError::Read(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            StoreError::Write(path, error) if error.kind() == io::ErrorKind::StorageFull => write!(
                f,
                "cannot write {}: the disk is full; the records so far are kept: free some space, then run \
                 the command again",
                path.display()
            ),
            StoreError::Write(path, error) => write!(f, "cannot write {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for StoreError {}
