//! The diagnosis of trials: where a network is slow, why, and what helps.

pub mod advice;
mod at_once;
pub mod boundary;
pub mod cause;
pub mod directions;
pub mod findings;
mod judge;
pub mod map;
pub(in crate::net) mod repeat;
mod text;
pub(in crate::net) mod threshold;
mod verdict;
