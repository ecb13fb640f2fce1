//! The atomics that `turn/followers.rs` uses: the processor's here, a model checker's in `crates/model`,
//! which compiles the same file.

pub(crate) use std::sync::atomic::{AtomicUsize, Ordering, fence};
