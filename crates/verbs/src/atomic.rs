//! The atomics of `published.rs`, `spin.rs` and `rsocket/sleepers.rs`: the processor's here, and a model
//! checker's in `crates/model`, which compiles the same files.

pub(crate) use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::thread::yield_now;
