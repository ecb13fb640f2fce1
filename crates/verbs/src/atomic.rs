//! What `published.rs` and `spin.rs` are made of: the processor's atomics here, a model checker's in
//! `crates/model`, which compiles the same files.

pub(crate) use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
pub(crate) use std::thread::yield_now;
