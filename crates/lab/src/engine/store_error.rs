//! Why the folder of a run, or a cache, cannot be used.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a store cannot be used.
#[derive(Debug)]
pub enum StoreError {
    /// It does not belong to what is asked; the text says what to do.
    Mismatch(String),
    /// Somebody else writes to it.
    Busy(PathBuf),
    /// It cannot be read.
    Read(PathBuf, io::Error),
    /// It cannot be written.
    Write(PathBuf, io::Error),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Mismatch(what) => f.write_str(what),
            StoreError::Busy(path) => {
                write!(
                    f,
                    "{}: another process is writing to it; wait for it, or use another folder",
                    path.display()
                )
            }
            StoreError::Read(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            StoreError::Write(path, error) if error.kind() == io::ErrorKind::StorageFull => write!(
                f,
                "cannot write {}: the disk is full; the records so far are kept: free some space, then repeat",
                path.display()
            ),
            StoreError::Write(path, error) => write!(f, "cannot write {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for StoreError {}
