//! The atomics that the lock-free structures use: the processor's in this crate, and a model checker's in
//! `crates/model`, which compiles the same files.

pub(crate) use core::cell::UnsafeCell;
pub(crate) use core::sync::atomic::{AtomicI64, AtomicU32, Ordering};
