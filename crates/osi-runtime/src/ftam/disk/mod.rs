//! A directory on this host that serves as a filestore's disk.
//!
//! Purpose          a peer can reach only files below the directory, whatever path it gives, and even if
//!                  symbolic links are moved in the meantime.
//! Path resolution  the kernel resolves every path from the root's descriptor in one call (openat2 with
//!                  RESOLVE_BENEATH and without symbolic or magic links). System calls that need a name
//!                  receive its directory's descriptor and the last component.
//! Writing          new contents are a separate file in `.kiban-ftam/new` in the same directory, so that a
//!                  rename puts them in place. A finished file gets the mode of the file that it replaces,
//!                  without the set-user-ID, set-group-ID and sticky bits.
//! Interruption     contents of an interrupted transfer stay there, with their token as the name. The writer
//!                  locks them (flock), so that only one association can resume them. Contents that are not
//!                  resumed within [`Settings::left_seconds_max`] are removed when the next new file is
//!                  created there.
//! Side data        marks are extended attributes (`user.ftam.*`) or, if the file system has none, files in
//!                  `.kiban-ftam/attributes`; records are files in `.kiban-ftam/dockets` in the root. Peers
//!                  cannot name a `.kiban-ftam` directory.
//! Durability       [`Durability`] says when data must be durable. Contents are synced before they get the
//!                  file's name, and the directory before the file is confirmed. Associations sync
//!                  together, so that they share commits of the file system's journal ([`Syncs`]).
//!                  Contents that are synced at every checkpoint have names that begin with `settled-`. Only
//!                  these can be resumed after the host reboots; for others, the recorded checkpoint may lie
//!                  beyond the data that reached the disk.
//! Protection       access to the server's own files is refused; they are recognised by device and inode
//!                  ([`Protected`]), whatever their names.
//! Blocking         operations that may wait for the device (a sync, a rename, a long directory, the copy of
//!                  an append) are announced to the runtime (`aside`), so that they do not block other
//!                  associations. Reads and writes of contents are not announced: they are frequent, and
//!                  mostly served from the page cache.
//! Limits           [`OPEN_MAX`], [`Settings::left_max`] per directory, [`RECORDS_MAX`]. The system must have
//!                  openat2 (Linux 5.6).
//! Not implemented  owner and access lists of a replaced file are not copied. A change that leaves a file's
//!                  length and modification time unchanged is not detected. Peers do not see special files
//!                  and symbolic links.

mod behind;
mod contents;
mod directory;
mod files;
mod marks;
mod paths;
mod protected;
mod settings;
mod syncs;
#[cfg(test)]
mod tests;

pub use directory::DirectoryDisk;
pub use paths::remove_empty_state;
pub use protected::Protected;
pub use settings::{Durability, LEFT_MAX, OPEN_MAX, RECORDS_MAX, Settings};
pub use syncs::Syncs;
