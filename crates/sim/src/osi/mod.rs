//! OSI boards in virtual time: file services over all seven layers, on a serial line or in internal loopback
//! (paper \[5\]).
//!
//! Goal      the real OSI stack transfers files between two memory disks, at any line rate; with [`Costs`],
//!           at the speed of another machine.
//! Line      two boards, each with a lower module (LAPB and X.25), joined by a full duplex line ([`Serial`]).
//! TCP       each system is a program on a board of a [`World`](crate::World), over that board's own TCP
//!           ([`Peer`]).
//! Loopback  one board with both sides of the association, joined below transport, on one processor.
//! Work      a processor does one step at a time: it takes one unit from below, requests one F-DATA, or
//!           passes on a waiting unit; then it is busy for the time that the step costs.
//! Limits    output leaves when the processor starts the step, not when its time has passed: at most one step
//!           early.
//! Left out  the host's own time, and that of its disks.

mod boards;
mod costs;
mod peer;
mod serial;
mod user;

pub use boards::{Boards, Medium, Setup};
pub use costs::{CONSTANTS, Constant, Costs, OSI_BOARD_1992};
pub use peer::Peer;
pub use serial::{Serial, SerialCounters};
