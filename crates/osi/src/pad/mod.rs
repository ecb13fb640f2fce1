//! A PAD: a terminal's access to hosts over X.25 (X.3, X.28, X.29).
//!
//! Purpose          assembles a terminal's characters into packets and disassembles packets into characters,
//!                  as the parameters of X.3 say. The user sets them with commands (X.28), the host with
//!                  messages (X.29).
//! States           command state: lines are commands. Data transfer: characters go to the host. The recall
//!                  character leads from data transfer to the command state and, at once after it, back.
//! Interface        characters and indications go in; [`Output`]s come out: characters for the terminal, and
//!                  requests for the circuit.
//! Limits           a command line of [`LINE_BYTES_MAX`] characters; a buffer of one packet; messages
//!                  as long as X.29's decoder accepts.
//! Not implemented  calls from hosts, the service signals in other languages, charging, parity (parameter 21,
//!                  which keeps its initial value; setting it fails), and reselection.

mod command;
mod machine;
mod parameters;
#[cfg(test)]
mod tests;

pub use command::{Command, CommandError};
pub use machine::{Output, Pad};
pub use parameters::{Parameters, Profile};

/// Maximum length of a command line.
pub const LINE_BYTES_MAX: usize = 256;

/// The first octets of the user data in a PAD's call (X.29 §1.2, X.244).
pub const PROTOCOL: [u8; 4] = [1, 0, 0, 0];
