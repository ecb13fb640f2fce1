//! The responder: makes a filestore available over one association (the responder's side of ISO 8571-3, with
//! the virtual filestore of ISO 8571-2).
//!
//! Purpose          every confirmed request is answered, with the standard's diagnostic if it fails. Contents
//!                  are read and written in pieces, never faster than the association accepts them.
//! Operation        `work` handles the machine's indications, uses the disk, the locks and the authenticator
//!                  that the caller passes in, and responds through the machine. It never blocks:
//!                  [`Progress`] says what it is waiting for.
//! Modules          `regimes`: state of each regime; `select`: selection and attributes; `open`: the open
//!                  regime and recovery; `transfer`: bulk data; `answer`: diagnostics.
//! Creation         a created file becomes visible when its first transfer ends, or when it is deselected;
//!                  until then, an existing file of that name stays visible.
//! Groups           a group is handled as a whole. If fewer requests succeed than the threshold requires, the
//!                  group's selections and opens are undone and answered as failed. An action that cannot be
//!                  undone is not performed once the threshold is out of reach.
//! Recovery         if a transfer has an activity identifier and a recovery mode, received data is synced and
//!                  a docket is written before a checkpoint is acknowledged. A docket is a record on the
//!                  disk, with user and activity as its key.
//! Logging          refusals and failures are reported so that the caller can log them
//!                  ([`Responder::next_failure`]).
//! Limits           see [`Config`].
//! Not implemented  access control lists are stored and returned, but not enforced, because rights come from
//!                  the authenticator; passwords for individual files; FADU locking; LOCATE and ERASE (the
//!                  file access functional unit is not offered).

mod answer;
mod config;
mod counters;
mod machine;
mod open;
mod regimes;
mod report;
mod select;
mod store;
mod transfer;

pub(super) use answer::kind_of_failure;
pub use config::Config;
pub use counters::Counters;
pub use machine::{FAILURE_REPORTS_MAX, Responder};
pub(super) use open::{points_of, stamp_of};
pub(super) use regimes::{Point, Points};
pub use report::{FailureReport, Progress};
pub use store::Store;
