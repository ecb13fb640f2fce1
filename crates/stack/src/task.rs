//! The task that drives a stack.

use crate::core::{Shared, Turn};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::time::Sleep;

/// Takes turns until the stack ends. One turn is taken per poll, so that the programs' tasks, which it has
/// woken, run in between.
pub(crate) struct Task {
    shared: Shared,
    sleep: Pin<Box<Sleep>>,
}

impl Task {
    pub(crate) fn new(shared: Shared) -> Task {
        Task { shared, sleep: Box::pin(tokio::time::sleep(std::time::Duration::ZERO)) }
    }
}

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.shared.turn(cx.waker()) {
            Turn::End => return Poll::Ready(()),
            Turn::Again => cx.waker().wake_by_ref(),
            Turn::Sleep(until) => {
                self.sleep.as_mut().reset(until);
                if self.sleep.as_mut().poll(cx).is_ready() {
                    cx.waker().wake_by_ref();
                }
            }
        }
        Poll::Pending
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.shared.fail("the runtime of the stack has shut down");
    }
}
