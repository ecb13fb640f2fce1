//! The session layer's state tables (X.225 Annex A, Tables A.8 to A.16): a pure function of state, event and
//! predicates.
//!
//! Cells     those that kernel, duplex, minor synchronise, resynchronise and typed data need, without
//!           transport expedited data. The other states cannot be reached; all other SPDUs are one event
//!           ([`Event::Other`]); PREPARE SPDUs are never sent.
//! Options   where the standard leaves a choice: no transport connection is reused (p02, p64 and Vtrr are
//!           false, so actions \[7\] to \[9\] do nothing), and an ABORT is answered by closing the transport
//!           connection.

mod event;
#[cfg(test)]
mod tests;
mod variables;
mod verdict;

pub(super) use event::{Event, State};
pub(super) use variables::{Given, Variables};
pub(super) use verdict::{Action, Verdict, in_connection, verdict};
