//! A directory of this host as a filestore's disk.
//!
//! Purpose          a peer reaches only what is below the directory, whatever path it gives and however
//!                  symbolic links are moved meanwhile.
//! Path resolution  the kernel resolves every path from the root's descriptor in one call (openat2 with
//!                  RESOLVE_BENEATH and without symbolic or magic links). Calls that need a name get the
//!                  descriptor of its directory and the last component.
//! Writing          new contents are a separate file in `.kiban-ftam/new` of the same directory, so that a
//!                  rename puts them in place. A finished file has the mode of the one it replaces, without
//!                  set-user-ID, set-group-ID and the sticky bit.
//! Interruption     contents of an interrupted transfer stay there, with their token as the name. The writer
//!                  locks them (flock), so that only one association can resume them. Contents that are not
//!                  resumed within [`Settings::left_seconds_max`] are removed when the next file is begun
//!                  there.
//! Side data        marks are extended attributes (`user.ftam.*`) or, if the file system has none, files in
//!                  `.kiban-ftam/attributes`; records are files in `.kiban-ftam/dockets` of the root. Peers
//!                  cannot name this directory.
//! Durability       [`Durability`] says when data must have reached the disk. Contents that are synced at
//!                  every checkpoint have names that begin with `settled-`. Only these can be resumed after a
//!                  reboot of the host: for others, the noted checkpoint may be beyond the data on the disk.
//! Protection       the server's own files are refused by device and inode ([`Protected`]), whatever their
//!                  name.
//! Blocking         operations that may wait for the device (a sync, a rename, a long directory, the copy of
//!                  an append) are announced to the runtime (`aside`), so that they block no other
//!                  association. Reads and writes of contents are not: they are frequent, and mostly served
//!                  from the page cache.
//! Limits           [`OPEN_MAX`], [`Settings::left_max`] per directory, [`RECORDS_MAX`]. The system must have
//!                  openat2 (Linux 5.6).
//! Not implemented  owner and access lists of a replaced file are not copied. A change that leaves a file's
//!                  length and modification time as they were is not detected. Peers do not see special files
//!                  and symbolic links.

mod contents;
mod directory;
mod files;
mod marks;
mod paths;
mod protected;
mod settings;
#[cfg(test)]
mod tests;

pub use directory::DirectoryDisk;
pub use protected::Protected;
pub use settings::{Durability, LEFT_MAX, OPEN_MAX, RECORDS_MAX, Settings};
