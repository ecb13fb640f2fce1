//! One trial: its set-up, its run, and the evidence of both ends.

pub mod digest;
pub mod evidence;
pub(in crate::net) mod path;
pub(in crate::net) mod run;
pub mod setup;
pub mod stream;
pub(in crate::net) mod task;
pub(in crate::net) mod together;
pub mod transactions;
