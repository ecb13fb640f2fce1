//! Before and after a session: SYNs, SYN cookies, initial numbers and timestamps (RFC 6528, 7323), TIME-WAIT.

pub(crate) mod cookie;
pub(crate) mod listener;
mod resting;
pub(crate) mod secret;
pub(crate) mod stamps;
mod stranger;
pub(crate) mod time_wait;
