//! The atomics of the lock-free structures: the processor's here; a model checker's in `crates/model`, which
//! compiles the same files.

pub(crate) use core::cell::UnsafeCell;
pub(crate) use core::sync::atomic::{AtomicI64, AtomicU32, Ordering};
