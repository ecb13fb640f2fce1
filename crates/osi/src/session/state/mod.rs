//! The session layer's state tables (X.225 Annex A, Tables A.8 to A.16): a pure function of state, event and
//! predicates.
//!
//! Cells     the tables have only the cells needed for kernel, duplex, minor synchronise, resynchronise and
//!           typed data, without transport expedited data. No other state can be reached, all other SPDUs are
//!           treated as one event ([`Event::Other`]), and PREPARE SPDUs are never sent.
//! Options   the standard leaves two choices. No transport connection is reused (p02, p64 and Vtrr are false,
//!           so actions \[7\] to \[9\] do nothing), and this end answers an ABORT by closing the transport
//!           connection.

mod event;
#[cfg(test)]
mod tests;
mod variables;
mod verdict;

pub(super) use event::{Event, State};
pub(super) use variables::{Given, Variables};
pub(super) use verdict::{Action, Verdict, in_connection, verdict};
