//! Runs a trial of any pattern.

use super::evidence::Pattern;
use super::task::{Done, Task};
use super::{stream, transactions};

/// Runs one trial. If it is captured, the packets are returned, too.
///
/// # Errors
/// Returns [`Failure`](crate::engine::Failure) with the cause.
pub(in crate::net) fn run(task: Task<'_>) -> Done {
    match task.setup.pattern {
        Pattern::Stream => stream::run(task),
        Pattern::StreamBack => stream::run_back(task),
        Pattern::WriteWriteRead | Pattern::WriteRead => transactions::run(task),
        Pattern::WriteWriteReadBack | Pattern::WriteReadBack => transactions::run_back(task),
    }
}
