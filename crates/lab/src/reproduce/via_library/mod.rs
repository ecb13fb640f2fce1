//! Paper \[4\]: waiting for packets over VI, 2000: tables 1 and 2, figure 2 (CPU use by packet size), table 3
//! (loss by polling time and buffer size), and the laws in section 4.4.
//!
//! Set-up    a process waits for packets with kiban's wait policy ([`kiban_base::Waiter`]), in virtual time,
//!           with the constants of [`host`], which are fitted to figure 2 and then used for all other
//!           results.
//! Table 3   every cell receives packets of all sizes ([`cells`]). Only sleeping processes are stalled. A
//!           longer polling time means that the process sleeps only if packets are farther apart, so that
//!           fewer packets arrive during a stall; this alone explains why polling loses less.
//! Adaptive  loss and CPU use of adaptive waiting, with the same packets and more stalls.
//! Measured  tables 1 and 2 on this machine in real time ([`measured`]); not part of the report.
//! Virtual time  is deterministic: each point is run once and gives the same values on every machine.

pub mod cells;
pub mod host;
pub mod measured;
mod reproduction;

pub use reproduction::{Effort, ViaLibrary, make};
