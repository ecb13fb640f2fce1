//! CMT: completion queues and their notifications.
//!
//! Notification  a host that finds its queue empty arms it ([`Notify`]) and then polls once more, because
//!               completions added before the queue was armed raise no notification. Each arming produces
//!               one notification.
//! Overrun       when a completion arrives at a full queue, it is lost, the queue enters a permanent error
//!               state, and its queue pairs fail.

use super::super::work::{Completion, Status};
use alloc::collections::VecDeque;

/// Which completions raise a notification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notify {
    /// Notify for completions of solicited messages, and for errors.
    Solicited,
    /// The next one.
    Any,
}

/// A completion queue.
#[derive(Debug)]
pub(in super::super) struct CompletionQueue {
    pub(in super::super) entries: VecDeque<Completion>,
    pub(in super::super) most: usize,
    /// Number of queue pairs that use it; a queue pair counts once for its send queue and once for its
    /// receive queue.
    pub(in super::super) users: usize,
    armed: Option<Notify>,
    pub(in super::super) overrun: bool,
}

impl CompletionQueue {
    pub(in super::super) fn new(most: usize) -> CompletionQueue {
        CompletionQueue { entries: VecDeque::new(), most, users: 0, armed: None, overrun: false }
    }

    /// Arms the notification. Arming for solicited completions does not weaken an earlier arming for any
    /// completion.
    pub(in super::super) fn arm(&mut self, notify: Notify) {
        if self.armed != Some(Notify::Any) {
            self.armed = Some(notify);
        }
    }

    /// Adds a completion. Returns whether to notify the host, or `Err` if the completion was lost.
    #[inline]
    pub(in super::super) fn push(&mut self, completion: Completion, solicited: bool) -> Result<bool, ()> {
        if self.overrun || self.entries.len() >= self.most {
            self.overrun = true;
            return Err(());
        }
        let counts = solicited || completion.status != Status::Success;
        self.entries.push_back(completion);
        let tells = match self.armed {
            None => false,
            Some(Notify::Any) => true,
            Some(Notify::Solicited) => counts,
        };
        if tells {
            self.armed = None;
        }
        Ok(tells)
    }
}
