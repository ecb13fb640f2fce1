//! A host that uses another process's NIC: VI work and completions pass through rings in shared memory.
//!
//! Purpose   let a process without a NIC of its own use another process's NIC. The board runs the links and
//!           the protocols; the host keeps its memory and waits for its completions, with any wait policy.
//! Memory    one memfd holds bells, work ring, completion ring, and the arena, which contains all memory that
//!           the board may access. Addresses in descriptors are relative to the start of the arena.
//! Calls     [`BoardHost::control`] waits for the reply and keeps indications that arrive in the meantime.
//!           Descriptors are posted without waiting.
//! End       when the host is dropped or dies, everything that it owned is released. If the board ends, every
//!           call returns an error.
//! Limits    only one thread at a time may use a host; an arena has at most [`ARENA_BYTES_MAX`] bytes.

mod host;

pub use self::host::{ARENA_BYTES_MAX, BoardHost, HostError};
pub(crate) use self::host::{layout, listener_name};

#[cfg(test)]
mod tests;
