//! One trial: what it is made with, how it runs, and what both ends know of it.

pub mod digest;
pub mod evidence;
pub(in crate::net) mod path;
pub mod setup;
pub mod stream;
pub mod transactions;
