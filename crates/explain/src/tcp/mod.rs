//! TCP: segments become connections, and a verdict on each direction.
//!
//! Path             segments are sorted into connections (`connection`), and each direction is reconstructed
//!                  as its sender saw it, wherever the capture was made (`timeline`). The time before each
//!                  segment is attributed to what held it back (`waits`). Rules find the causes in these sums
//!                  (`verdict`, with `capacity`, `policing` and `queue`) and in the handshake (`handshake`).

mod capacity;
pub(crate) mod connection;
pub(crate) mod handshake;
mod policing;
mod queue;
pub(crate) mod timeline;
pub(crate) mod verdict;
pub(crate) mod waits;
