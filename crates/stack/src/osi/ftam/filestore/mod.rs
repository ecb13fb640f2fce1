//! The virtual filestore of ISO 8571-2, as far as it is values and rules; files themselves are a [`Disk`]'s.
//!
//! ```text
//! path      names, checked before any disk sees them
//! disk      what a filestore asks of whatever holds its files, and what may go wrong
//! marks     attributes that a host's file system has no place for
//! actions   the eight actions on a file; rights are sets of them
//! locks     concurrency control: who may do what beside whom
//! text      FTAM-1 and FTAM-2: strings of characters <-> text as a host keeps it
//! door      who is let in, as whom
//! date      moments for records, and how attributes write them
//! memory    a disk in memory, with trouble at will: for tests and the simulator
//! ```
//!
//! Goal      a put is visible whole or not at all; a get is of one state of the file, or says that it is not; nobody
//!           reaches a file that is not his.
//! Limits    every name, value, list and table has a bound, named beside it.
//! Left out  hierarchical files (FTAM-4 and on): a file is bytes, or lines of them.

mod actions;
mod date;
mod disk;
mod door;
mod locks;
mod marks;
pub mod memory;
mod path;
pub mod text;

pub use actions::{Action, Actions};
pub use date::Date;
pub use disk::{
    Begun, Disk, Entry, Handle, KEY_BYTES_MAX, Kind, RECORD_BYTES_MAX, Stamp, Trouble, Way, is_key,
};
pub use door::{Admission, Doorkeeper, Judgement, Refusal, Visitor};
pub use locks::{Concurrency, Control, Hold, Lock, Locks, Refused};
pub use marks::{MARK_BYTES_MAX, Mark, Marks};
pub use path::{BadName, COMPONENT_BYTES_MAX, COMPONENTS_MAX, PATH_BYTES_MAX, Path, RESERVED};
