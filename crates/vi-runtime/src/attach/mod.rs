//! A host that uses the NIC of another process: VI work and completions through rings in shared memory.
//!
//! Purpose   a process without a NIC of its own uses that of another: the board keeps the links and the
//!           protocols; the host keeps its memory and polls its completions, with any wait policy.
//! Memory    one memfd: bells, work ring, completion ring, and the arena, which contains all memory that the
//!           board may access. Addresses in descriptors are relative to the start of the arena.
//! Calls     [`BoardHost::control`] waits for the reply; descriptors are posted without waiting. Indications
//!           that arrive meanwhile are kept.
//! End       when the host is dropped or dies, everything it had is released. If the board ends, every call
//!           reports it.
//! Limits    one thread at a time; an arena of at most [`ARENA_BYTES_MAX`].

mod host;

pub use self::host::{ARENA_BYTES_MAX, BoardHost, HostError};
pub(crate) use self::host::{layout, listener_name};
