//! Real time and real links: the driver that runs a board on an operating system.
//!
//! This crate and the measuring harness on top of it are the only ones that see a clock of the machine;
//! everything else is lent an `Instant`.

pub mod atm;
pub mod attach;
mod calibrate;
pub mod clock;
mod doors;
pub mod driver;
pub mod exposure;
pub mod ftam;
pub mod link;
pub mod measure;
pub mod osi;
pub mod outward;
pub mod random;
pub mod rdma;
pub mod regular;
pub mod runtime;
pub mod sandbox;
pub mod streams;
mod turn;
pub mod unix;
pub mod verbs;
pub mod vi;
pub mod wait;

pub use calibrate::costs;
pub use clock::Clock;
pub use driver::Driver;
pub use outward::{Files, Interest, Outward};
pub use wait::{EventSleeper, FutexSleeper, Sleeper, Waiting};
