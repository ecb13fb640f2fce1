//! Completions: completion queues, callbacks, and how a call waits.

pub(crate) mod notify;
pub(crate) mod queue;
pub(crate) mod waiting;
