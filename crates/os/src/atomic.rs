//! The atomics that `flag.rs` and `turn/followers.rs` use: the processor's in this crate, and a model
//! checker's in `crates/model`, which compiles the same files.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
