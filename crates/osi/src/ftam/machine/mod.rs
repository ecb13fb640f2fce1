//! The file protocol machine (ISO 8571-4): one association, either role.
//!
//! Transmit path    an FPDU becomes one presentation data value; the FPDUs of a group share one P-DATA. A
//!                  data element gets a header in front, and is sent in its own P-DATA.
//! Receive path     a P-DATA may contain any number of FPDUs and data elements, in any encoding. Elements are
//!                  split off a rope when they are polled, so that a long rope of many elements needs no
//!                  extra memory.
//! Checkpoints      if the functional units include recovery or restart, a checkpoint is a minor
//!                  synchronisation point, numbered from the beginning of the transfer, and F-CANCEL and
//!                  F-RESTART use resynchronisation. Otherwise F-CANCEL is sent in a P-DATA.
//! Protocol errors  protocol errors by the peer are counted, and answered with F-P-ABORT and the standard's
//!                  diagnostic.
//! Limits           [`GROUP_MAX`] primitives in a group; [`FPDUS_MAX`] FPDUs in a value; [`WINDOW_MAX`]
//!                  unanswered checkpoints.
//! Not implemented  presentation context management (the association's contexts never change), overlapped
//!                  access, the semantics of FADU locking (the parameters are passed on), and filestore
//!                  management (amendment 1).

mod below_up;
mod change;
mod config;
mod counters;
mod effects;
mod group;
mod opening;
mod protocol;
mod state;
mod user_side;
mod validate;

pub use config::Config;
pub use counters::Counters;
pub use group::GROUP_MAX;
pub use protocol::{FPDUS_MAX, Machine, WINDOW_MAX};
pub use state::{Item, State, Verdict, verdict};
