//! Models of processing time, and the set-ups of the papers that they are compared with.

pub mod cost;
pub(crate) mod pair;
pub(crate) mod plan;
pub(crate) mod processor;
pub mod rnic_both_ways;
pub mod rnic_clocks;
