//! Paper \[2\]: TCP over a wide-area ATM network, 1996: table 1, the throughput map (figures 3 to 6 and 8),
//! figure 7, and the remote lecture (figures 10 and 11, `traffic.rs`).
//!
//! Set-up    two workstations ([`hosts`]) on a switch, one netperf stream, the same buffer size at both ends.
//! TCP       the profile `solaris23` with one set of constants for all cells; then the profile `modern`.
//! Distance  pings over circuits that are looped back at a distant site ([`delay`]).
//! Conflicts  the paper contradicts itself in places. Each of the conflicting values has a row of its own,
//!           with kiban's result.
//! Virtual time  is deterministic: each point is run once and gives the same values on every machine.

pub mod delay;
pub mod hosts;
pub mod map;
mod multiplexing;
mod point;
mod reproduction;
pub mod sequence;
mod traffic;

pub(in crate::reproduce) use reproduction::{BUFFERS, MESSAGES};
pub use reproduction::{Effort, WideArea, make};
