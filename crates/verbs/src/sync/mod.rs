//! What threads of a program share: locks, published pointers, unacknowledged events, forks.

pub(crate) mod acknowledged;
pub(crate) mod fork;
pub(crate) mod published;
pub(crate) mod spin;
