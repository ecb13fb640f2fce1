//! Tasks that wait.

use std::io;
use std::task::{Context, Poll, Waker};

/// Converts a result that is `None` if the task waits.
pub(crate) fn poll_of<T>(result: io::Result<Option<T>>) -> Poll<io::Result<T>> {
    result.transpose().map_or(Poll::Pending, Poll::Ready)
}

/// Sets the task that waits for an event. A task that it replaces is woken: to drop its waker here, under the
/// stack's lock, could drop the task and with it a stream, which takes the lock.
pub(crate) fn set(place: &mut Option<Waker>, cx: &Context<'_>, woken: &mut Vec<Waker>) {
    if !place.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        woken.extend(place.replace(cx.waker().clone()));
    }
}

/// Tasks that wait for the same event.
#[derive(Default)]
pub(crate) struct Waiters(Vec<Waker>);

impl Waiters {
    pub(crate) fn add(&mut self, cx: &Context<'_>) {
        if !self.0.iter().any(|other| other.will_wake(cx.waker())) {
            self.0.push(cx.waker().clone());
        }
    }

    pub(crate) fn wake(&mut self, woken: &mut Vec<Waker>) {
        woken.append(&mut self.0);
    }
}
