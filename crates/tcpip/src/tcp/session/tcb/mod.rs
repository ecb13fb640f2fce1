//! State of one session, used by all files of `session`.

mod context;
mod ecn;
mod fast_open;
mod session;
mod tally;
mod tuning;
mod urgent;
mod watch;

pub(in crate::tcp) use context::{Progress, SessionContext};
pub(in crate::tcp::session) use fast_open::FastOpen;
pub(in crate::tcp::session) use session::PendingAck;
pub(in crate::tcp) use session::Session;
#[cfg(test)]
pub(in crate::tcp::session) use urgent::Urgent;
pub(in crate::tcp) use watch::period_of;
