//! The presentation protocol (X.226): kernel, normal mode.
//!
//! Purpose          users agree on contexts (an abstract syntax and its encoding), and each value is sent in
//!                  one of them.
//! Transmit path    context identifiers are prepended to the values' ropes. If there is at most one context,
//!                  user data is simply encoded (§8.4.1.3).
//! Receive path     values are extracted without copying, and checked against the agreed contexts.
//! Errors           a protocol error is answered with ARP and indicated as P-P-ABORT (§6.4.4); a CP that
//!                  cannot be accepted is answered with a CPR.
//! State            `state.rs` is the table of Annex A; `machine.rs` executes it.
//! Tolerance        a peer may use full encoding where simple encoding is required, omit the context list of
//!                  an ARU, and abort without a PPDU, which may be necessary over session version 1.
//! Limits           [`Config::contexts_max`] contexts; [`PDVS_MAX`](crate::wire::presentation::PDVS_MAX)
//!                  values in one primitive; otherwise the limits of the session layer.
//! Not implemented  context management and restoration (not selected if a peer proposes them), a named
//!                  default context, X.410-1984 mode.

mod coding;
mod config;
mod counters;
mod down;
mod machine;
mod primitives;
pub mod state;
#[cfg(test)]
mod tests;
mod up;

pub use crate::wire::presentation::{BER, PdvValue};
pub use config::Config;
pub use counters::Counters;
pub use machine::Presentation;
pub use primitives::{Accept, Answer, Connect, Indication, PAbort, Refuse, Refuser, Request};
