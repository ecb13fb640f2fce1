//! Tasks that wait.

use std::task::{Context, Waker};

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
