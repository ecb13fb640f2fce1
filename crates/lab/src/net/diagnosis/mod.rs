//! The diagnosis of trials: where a network is slow, why, and what helps.

pub mod advice;
pub mod boundary;
pub mod cause;
pub mod findings;
pub mod map;
