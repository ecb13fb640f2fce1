//! OSI boards in virtual time: file services over all seven layers, on a serial line or in internal loopback
//! (paper \[5\]).
//!
//! Goal      the real OSI stack transfers files between two memory disks, at any line rate; with [`Costs`],
//!           it runs at the speed of another machine.
//! Line      two boards, each with a lower module (LAPB and X.25), joined by a full duplex line ([`Serial`]).
//! TCP       each system is a program on a board of a [`World`](crate::World), over that board's own TCP
//!           ([`Peer`]).
//! Loopback  one board with both sides of the association, joined below transport, on one processor.
//! Work      a processor does one step at a time: it takes one unit from below, requests one F-DATA, or
//!           passes on a waiting unit. It is then busy for the time that the step costs.
//! Limits    output is sent when the processor starts a step, not when the step's time has passed, so it is
//!           at most one step early.
//! Left out  the time that the host and its disks take.

mod boards;
mod costs;
mod peer;
mod serial;
mod user;

pub use boards::{Boards, Medium, Setup};
pub use costs::{CONSTANTS, Constant, Costs, Mechanism, Mechanisms, OSI_BOARD_1992};
pub use peer::Peer;
pub use serial::{Serial, SerialCounters};
