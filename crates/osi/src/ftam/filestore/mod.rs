//! The values and rules of ISO 8571-2's virtual filestore. The files themselves are stored by a [`Disk`].
//!
//! ```text
//! path            filenames, validated before they reach a disk
//! marks           attributes that a host's file system cannot store
//! locks           concurrency control: which actions may run at the same time
//! text            FTAM-1 and FTAM-2: character strings <-> text files of a host
//! authentication  checks the names and passwords of initiators
//! date            dates of records, and their text form in attributes
//! ```
//!
//! Purpose          a put becomes visible completely or not at all. A get returns one version of the file, or
//!                  fails. No user can reach another user's files.
//! Limits           every name, value, list and table has a limit, documented where it is defined.
//! Not implemented  hierarchical files (FTAM-4 and later): a file is a sequence of bytes or of lines.

mod actions;
mod authentication;
mod date;
mod disk;
mod locks;
mod marks;
pub mod memory;
mod path;
pub mod text;

pub use actions::{Action, Actions};
pub use authentication::{Admission, AuthRefusal, AuthResult, Authenticator, Credentials};
pub use date::Date;
pub use disk::{
    Disk, DiskError, Entry, Handle, KEY_BYTES_MAX, Kind, OpenedContents, RECORD_BYTES_MAX, Stamp, WriteMode,
    is_key,
};
pub use locks::{Concurrency, Control, Hold, Lock, LockError, Locks};
pub use marks::{MARK_BYTES_MAX, Mark, Marks};
pub use path::{COMPONENT_BYTES_MAX, COMPONENTS_MAX, PATH_BYTES_MAX, Path, PathError, RESERVED};
