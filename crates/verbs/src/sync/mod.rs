//! What threads of a program share: locks, published pointers, events that are not acknowledged, forks.

pub(crate) mod acknowledged;
pub(crate) mod fork;
pub(crate) mod published;
pub(crate) mod spin;
