//! Connections between VIs: requests and set-up, the state of a connection, and its timers.

pub(crate) mod request;
pub(crate) mod setup;
pub(crate) mod state;
pub(crate) mod timers;
