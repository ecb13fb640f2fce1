//! Violations of the protocol by a peer.

pub(crate) mod messages;
pub(crate) mod midway;
pub(crate) mod protection;
