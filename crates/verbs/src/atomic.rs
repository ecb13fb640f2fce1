//! The atomics used in `published.rs`, `spin.rs` and `rsocket/sleepers.rs`. `crates/model` compiles these
//! files with a model checker's atomics instead.

pub(crate) use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::thread::yield_now;
