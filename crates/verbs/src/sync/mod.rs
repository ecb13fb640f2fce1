//! Synchronisation: locks, published pointers, unacknowledged events, fork support.

pub(crate) mod acknowledged;
pub(crate) mod fork;
pub(crate) mod published;
pub(crate) mod spin;
