//! What a filestore asks of whatever holds its files.
//!
//! Goal      one set of calls for a directory of a host and for memory, so that what is tested is what runs.
//! Reading   of one state of the file: a change under the reader is told, never mixed in.
//! Writing   new contents stand beside the old ones, unseen, until [`Disk::finish`] puts them in their place at once.
//!           What extends a file stands there as well, and is put behind it when it is whole; when that fails, the file
//!           is cut back. So a peer that goes away has changed nothing, whatever it was about.
//! Cut       unfinished contents that are left ([`Disk::leave`]) wait under their token for [`Disk::resume`].
//! Dockets   small records, kept by key, that outlive the process: what recovery needs.
//! Limits    a disk bounds what is open, what is left and what is kept; beyond it says [`Trouble::TooMany`].

use super::{Date, Mark, Marks, Path};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use kiban_ground::{Bytes, Rope};

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
}

/// By what a disk tells one state of a file from another; equal stamps mean one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stamp(pub [u64; 4]);

/// What is known of a file or a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Its length.
    pub bytes: u64,
    /// When it was created, if the host says.
    pub created: Option<Date>,
    /// When its contents were last changed.
    pub modified: Option<Date>,
    /// When it was last read.
    pub read: Option<Date>,
    /// Attributes that the host has no place for.
    pub marks: Marks,
    /// Its state.
    pub stamp: Stamp,
}

/// Something that a disk has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

/// How contents are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A new file, where none is.
    New,
    /// New contents, in the place of what is there, if anything is.
    Replace,
    /// Behind what is there.
    Extend,
}

/// Contents that were begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// To write with.
    pub handle: Handle,
    /// By what they are found again when they are left.
    pub token: String,
}

/// What may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// There is no such file.
    NotThere,
    /// There is one already.
    Exists,
    /// The host does not allow it.
    Denied,
    /// No room is left.
    Full,
    /// Somebody uses it.
    Busy,
    /// The file is not what it was when it was opened, or left.
    Changed,
    /// The way leads through a link, or out of the filestore.
    Outside,
    /// It is a directory, and a file is needed.
    NotAFile,
    /// It is a file, and a directory is needed.
    NotADirectory,
    /// The directory has something in it.
    NotEmpty,
    /// The host cannot hold such a name or value.
    Long,
    /// A bound of the disk is reached.
    TooMany,
    /// The disk has no such thing open, or cannot do this.
    Unable,
    /// The device failed.
    Failed,
}

/// A filestore's files. All calls are done when they return; none of them waits for anybody.
#[expect(clippy::missing_errors_doc, reason = "every call fails with the trouble that there is")]
pub trait Disk {
    /// What is known of what is at `path`.
    fn look(&mut self, path: &Path) -> Result<Entry, Trouble>;

    /// The names in a directory, in order; [`Trouble::TooMany`] when there are more than `names_max`.
    fn list(&mut self, path: &Path, names_max: usize) -> Result<Vec<String>, Trouble>;

    /// Opens a file to be read.
    fn open(&mut self, path: &Path) -> Result<(Handle, Entry), Trouble>;

    /// Reads at most `bytes_max` from `at` on; fewer only at the end, none behind it. [`Trouble::Changed`] when the
    /// file is not what it was when it was opened.
    fn read(&mut self, handle: Handle, at: u64, bytes_max: usize) -> Result<Bytes, Trouble>;

    /// Begins new contents.
    fn begin(&mut self, path: &Path, way: Way) -> Result<Begun, Trouble>;

    /// Opens contents that were left, cut to `bytes`: what [`Disk::settle`] was last told of is there.
    fn resume(&mut self, path: &Path, way: Way, token: &str, bytes: u64) -> Result<Begun, Trouble>;

    /// Writes at `at`, counted from the first byte of what was begun, and at most where it ends. Trouble may be told late,
    /// but by [`Disk::settle`] or [`Disk::finish`] at the latest.
    fn write(&mut self, handle: Handle, at: u64, bytes: Rope) -> Result<(), Trouble>;

    /// Makes what is written last, as far as the disk's policy has it: a checkpoint.
    fn settle(&mut self, handle: Handle) -> Result<(), Trouble>;

    /// Puts written contents into their place, with these marks; marks of a file that is there stay otherwise as they are.
    /// Whatever the result, the handle is closed, and on trouble the old
    /// contents are as they were.
    fn finish(&mut self, handle: Handle, marks: &[(Mark, Vec<u8>)]) -> Result<(), Trouble>;

    /// Closes; written contents wait for a [`Disk::resume`].
    fn leave(&mut self, handle: Handle);

    /// Closes; written contents are gone, and the old ones are as they were.
    fn abandon(&mut self, handle: Handle);

    /// Takes away contents that were left and that nobody will resume.
    fn discard(&mut self, path: &Path, token: &str);

    /// Gives a file another name; [`Trouble::Exists`] when that is taken.
    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), Trouble>;

    /// Removes a file, or a directory with nothing in it.
    fn remove(&mut self, path: &Path) -> Result<(), Trouble>;

    /// Makes a directory.
    fn make_directory(&mut self, path: &Path) -> Result<(), Trouble>;

    /// Changes marks; an empty value takes a mark away.
    fn mark(&mut self, path: &Path, changes: &[(Mark, Vec<u8>)]) -> Result<(), Trouble>;

    /// Keeps a record; one under the same key is gone at the same moment.
    fn keep(&mut self, key: &str, record: &[u8]) -> Result<(), Trouble>;

    /// A record that was kept.
    fn fetch(&mut self, key: &str) -> Result<Vec<u8>, Trouble>;

    /// Drops a record; nothing happens when there is none.
    fn forget(&mut self, key: &str);

    /// The keys of all records, in order.
    fn kept(&mut self) -> Vec<String>;

    /// The date, for records.
    fn date(&mut self) -> Date;
}

/// Bytes of the longest key of a record.
pub const KEY_BYTES_MAX: usize = 64;
/// Bytes of the longest record.
pub const RECORD_BYTES_MAX: usize = 16 * 1024;

/// Whether a key is one: it may become the name of a file.
pub fn is_key(key: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(plain)
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Trouble::NotThere => "there is no such file",
            Trouble::Exists => "there is a file of that name",
            Trouble::Denied => "the host does not allow it",
            Trouble::Full => "no room is left on the disk",
            Trouble::Busy => "somebody uses it",
            Trouble::Changed => "the file has been changed meanwhile",
            Trouble::Outside => "the way leads through a link, or out of the filestore",
            Trouble::NotAFile => "it is not a file",
            Trouble::NotADirectory => "it is not a directory",
            Trouble::NotEmpty => "the directory has something in it",
            Trouble::Long => "the host cannot hold a name or a value of this length",
            Trouble::TooMany => "too much is open, left or kept already",
            Trouble::Unable => "the filestore cannot do this",
            Trouble::Failed => "the device failed",
        })
    }
}
