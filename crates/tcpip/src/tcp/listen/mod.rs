//! Before and after a session: SYNs, SYN cookies, initial numbers and timestamps (RFC 6528, 7323), TIME-WAIT.

pub(crate) mod cookie;
pub(crate) mod fast_open;
mod intercept;
pub(crate) mod listener;
pub(crate) mod secret;
pub(crate) mod time_wait;
mod time_wait_reuse;
pub(crate) mod timestamps;
mod unmatched;
