//! The storage interface of a filestore.
//!
//! Purpose       provides one interface to both a directory on the host and a disk in memory, so that tests
//!               exercise the code that is used in production.
//! Reading       a reader sees one version of the file: if the file changes while it is read, the reader gets
//!               an error, never mixed data.
//! Writing       new contents are stored beside the old ones, where they are invisible until [`Disk::finish`]
//!               atomically puts them in place. Data that extends a file is stored there, too, and appended
//!               when it is complete; if that fails, the file is truncated to its old length. So a peer that
//!               disappears in the middle of a job leaves the file unchanged.
//! Interruption  unfinished contents ([`Disk::leave`]) are kept under their token for [`Disk::resume`].
//! Dockets       small records, stored by key, that outlive the process and contain the information needed
//!               for recovery.
//! Limits        a disk limits open files, unfinished contents and records; beyond that it returns
//!               [`DiskError::TooMany`].

use super::{Date, Mark, Marks, Path};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use kiban_base::{Bytes, Rope};

/// The kind of object at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
}

/// Identifies a version of a file: files with equal stamps are the same version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stamp(pub [u64; 4]);

/// Information on a file or a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// File or directory.
    pub kind: Kind,
    /// The length in bytes.
    pub bytes: u64,
    /// The time at which the object was created, if the host records it.
    pub created: Option<Date>,
    /// The time at which the contents were last changed.
    pub modified: Option<Date>,
    /// The time at which the contents were last read.
    pub read: Option<Date>,
    /// Attributes that the host's file system cannot store.
    pub marks: Marks,
    /// The version of the file.
    pub stamp: Stamp,
}

/// A file, or new contents, that a disk has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

/// How contents are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Create a new file; it must not exist.
    New,
    /// Replace the contents of an existing file, or create a new file.
    Replace,
    /// Append to the existing contents.
    Extend,
}

/// Contents being written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedContents {
    /// The handle for writing.
    pub handle: Handle,
    /// The token with which the contents can be resumed after [`Disk::leave`].
    pub token: String,
}

/// Errors of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DiskError {
    /// The file does not exist.
    NotThere,
    /// The file exists already.
    Exists,
    /// The host denies access.
    Denied,
    /// No space is left.
    Full,
    /// The file is in use.
    Busy,
    /// The file has changed since it was opened, or since new contents for it were left unfinished.
    Changed,
    /// The path leads through a symbolic link, or out of the filestore.
    Outside,
    /// The object is a directory, but a file is needed.
    NotAFile,
    /// The object is a file, but a directory is needed.
    NotADirectory,
    /// The directory is not empty.
    NotEmpty,
    /// The name or value is too long for the host to store.
    Long,
    /// A limit of the disk is reached.
    TooMany,
    /// The handle is not open, or the disk does not support the operation.
    Unable,
    /// The device failed.
    Failed,
}

/// The files of a filestore. Every call is complete when it returns; no call waits for other users.
#[expect(clippy::missing_errors_doc, reason = "every call can fail with a disk error")]
pub trait Disk {
    /// Returns information about the object at `path`.
    fn stat(&mut self, path: &Path) -> Result<Entry, DiskError>;

    /// Returns the names in a directory, in sorted order, or [`DiskError::TooMany`] if there are more than
    /// `names_max`.
    fn list(&mut self, path: &Path, names_max: usize) -> Result<Vec<String>, DiskError>;

    /// Opens a file for reading.
    fn open(&mut self, path: &Path) -> Result<(Handle, Entry), DiskError>;

    /// Reads at most `bytes_max` from offset `at`. Returns fewer bytes only at the end of the file, and none
    /// beyond it. Fails with [`DiskError::Changed`] if the file has changed since it was opened.
    fn read(&mut self, handle: Handle, at: u64, bytes_max: usize) -> Result<Bytes, DiskError>;

    /// Begins new contents.
    fn begin(&mut self, path: &Path, write_mode: WriteMode) -> Result<OpenedContents, DiskError>;

    /// Reopens contents that were left unfinished, and truncates them to `bytes`. Data written before the
    /// last [`Disk::sync`] is still there.
    fn resume(
        &mut self,
        path: &Path,
        write_mode: WriteMode,
        token: &str,
        bytes: u64,
    ) -> Result<OpenedContents, DiskError>;

    /// Writes to the new contents at offset `at`, which must not be beyond their end. An error may be
    /// reported late, but no later than by [`Disk::sync`] or [`Disk::finish`].
    fn write(&mut self, handle: Handle, at: u64, bytes: Rope) -> Result<(), DiskError>;

    /// Makes written data durable, if the disk's settings require it at checkpoints.
    fn sync(&mut self, handle: Handle) -> Result<(), DiskError>;

    /// Replaces the old contents with those written, and sets these marks; other marks of an existing file
    /// are kept. The handle is always closed. After an error, the old contents are unchanged.
    fn finish(&mut self, handle: Handle, marks: &[(Mark, Vec<u8>)]) -> Result<(), DiskError>;

    /// Closes the contents, but keeps them for [`Disk::resume`].
    fn leave(&mut self, handle: Handle);

    /// Closes and removes the new contents; the old ones are unchanged.
    fn abandon(&mut self, handle: Handle);

    /// Removes contents that were left unfinished and will not be resumed.
    fn discard(&mut self, path: &Path, token: &str);

    /// Renames a file. Fails with [`DiskError::Exists`] if the new name is taken.
    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), DiskError>;

    /// Removes a file, or an empty directory.
    fn remove(&mut self, path: &Path) -> Result<(), DiskError>;

    /// Creates a directory.
    fn make_directory(&mut self, path: &Path) -> Result<(), DiskError>;

    /// Changes marks; an empty value removes a mark.
    fn mark(&mut self, path: &Path, changes: &[(Mark, Vec<u8>)]) -> Result<(), DiskError>;

    /// Stores a record, atomically replacing any record with the same key.
    fn keep(&mut self, key: &str, record: &[u8]) -> Result<(), DiskError>;

    /// Returns a stored record.
    fn fetch(&mut self, key: &str) -> Result<Vec<u8>, DiskError>;

    /// Removes a record, if it exists.
    fn forget(&mut self, key: &str);

    /// Returns the keys of all records, in sorted order.
    fn kept(&mut self) -> Vec<String>;

    /// Returns the current date, for use in records.
    fn date(&mut self) -> Date;
}

/// Maximum length of a record's key in bytes.
pub const KEY_BYTES_MAX: usize = 64;
/// Maximum length of a record in bytes.
pub const RECORD_BYTES_MAX: usize = 16 * 1024;

/// Returns whether a key is valid, that is, usable as a file name.
pub fn is_key(key: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(plain)
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DiskError::NotThere => "no such file",
            DiskError::Exists => "a file with that name exists",
            DiskError::Denied => "permission denied on the host",
            DiskError::Full => "no space left on the disk",
            DiskError::Busy => "the file is in use",
            DiskError::Changed => "the file has changed in the meantime",
            DiskError::Outside => "the path leads through a symbolic link or out of the filestore",
            DiskError::NotAFile => "not a file",
            DiskError::NotADirectory => "not a directory",
            DiskError::NotEmpty => "the directory is not empty",
            DiskError::Long => "a name or value is too long for the host",
            DiskError::TooMany => "too many open files, unfinished files or recovery records",
            DiskError::Unable => "the filestore does not support this",
            DiskError::Failed => "the device failed",
        })
    }
}
