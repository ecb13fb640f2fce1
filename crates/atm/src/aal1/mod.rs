//! AAL1: a constant bit rate stream over cells that may be lost (I.363.1).
//!
//! Purpose          deliver as many octets as were sent, at the rate at which they were sent, even if the
//!                  network drops cells. Losses are corrected, filled with dummy octets, or at least counted.
//!
//! ```text
//!   push ► Sender: matrix (FEC) or blocks (pointers) ► cell: 48 octets             ... network ...
//!   out  ◄ Receiver: header ► Sequence (lost, misinserted, dummies) ► matrix or blocks ► octets
//!                                    └► stamps ► Srts      buffer level ► Adaptive ► read rate
//! ```
//!
//! Design           there are two values, [`Sender`] and [`Receiver`], for one direction of one circuit.
//!                  Neither has a clock: the driver requests cells when they are due and reads octets at the
//!                  rate given by [`Srts`] or [`Adaptive`].
//! Limits           `octets_max` at the sender; one cell and one matrix or block at the receiver.
//! Source           this code was written from public descriptions, without access to the text of I.363.1:
//!                  see [`crate::wire::aal1`].
//! Not implemented  partially filled cells, CAS and the other circuit emulation SSCS. Lost cells are counted
//!                  by sequence numbers alone, so the loss of eight in a row goes undetected there (a matrix
//!                  detects it by its first cell, a block by its pointer).

mod clock;
mod config;
mod receiver;
mod sender;
mod sequence;
#[cfg(test)]
mod tests;

pub use clock::{Adaptive, NETWORK_HERTZ, Srts, SrtsRecovery};
pub use config::{Config, Form, ReceiverCounters, SenderCounters};
pub use receiver::Receiver;
pub use sender::Sender;
pub use sequence::{Held, Sequence, Step};
