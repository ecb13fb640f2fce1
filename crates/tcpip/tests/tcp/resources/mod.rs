//! Memory and sessions shared by many connections, and scarce memory.

pub(crate) mod fairness;
pub(crate) mod sharing;
pub(crate) mod starvation;
pub(crate) mod tuning;
