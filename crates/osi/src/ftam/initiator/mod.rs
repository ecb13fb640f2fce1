//! The initiator: fetches, stores and manages remote files, one job at a time (ISO 8571-3, the initiator's
//! side).
//!
//! Purpose    a job and its outcome are plain values; a job that is cut short by the loss of its association
//!            can be resumed.
//! Operation  `work` handles the machine's indications and advances the job. Local files are on a `Disk`,
//!            like the responder's; a fetched file becomes visible when it is complete.
//! Jobs       each consists of one or two groups of primitives, as in the transfer and management class. If
//!            there are two, a transfer may take place between them.
//! Recovery   if recovery was negotiated, a docket with the last checkpoints is stored for every transfer.
//!            The failure of a job that was cut short contains the docket's key; [`Initiator::recover`]
//!            resumes the job over another association.
//! Limits     one job at a time; see [`Config`].
//! Not implemented  file access (LOCATE, ERASE). The initiator never requests locks, so the responder's
//!                  defaults apply.

mod bulk;
mod config;
mod job;
mod machine;
mod primitives;

pub use config::Config;
pub use machine::{Initiator, docket_of};
pub use primitives::{Event, Failure, Job, Outcome};
