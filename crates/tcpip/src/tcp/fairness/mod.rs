//! Shares transmit memory and sessions among owners, peer addresses and sessions.

pub(crate) mod claims;
pub(crate) mod pressure;
pub(crate) mod share;
