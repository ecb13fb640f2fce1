//! TCP: segments become connections, and a verdict on each direction.
//!
//! Path             segments are sorted into connections (`connection`), and each direction is reconstructed
//!                  as its sender saw it, wherever the capture was made (`timeline`, `lag`). The time before
//!                  each segment is attributed to what held it back (`waits`). Rules find the causes in these
//!                  sums (`verdict`, with `capacity`, `policing` and `queue`) and in the handshake
//!                  (`handshake`).

mod capacity;
mod connection;
mod excerpt;
mod handshake;
mod lag;
mod policing;
mod queue;
mod report;
mod timeline;
mod verdict;
mod waits;

pub(crate) use connection::connections;
pub(crate) use report::explain;
