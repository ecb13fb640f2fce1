//! CMT: completion queues. Where completions go, and whether somebody wants to be told.
//!
//! Armed     a host that found its queue empty asks once to be told ([`Notify`]) and looks again: what came in between is
//!           not told, so it is found by looking. Each telling answers one asking.
//! Full      a completion that finds its queue full is lost, the queue is in error for good, and its users fail.

use super::super::work::{Completion, Status};
use alloc::collections::VecDeque;

/// Which completions are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notify {
    /// Those of messages that were sent as solicited, and errors.
    Solicited,
    /// The next one.
    Any,
}

/// A completion queue.
#[derive(Debug)]
pub(in super::super) struct CompletionQueue {
    pub(in super::super) entries: VecDeque<Completion>,
    pub(in super::super) most: usize,
    /// Queue pairs and shared queues that end here.
    pub(in super::super) users: usize,
    armed: Option<Notify>,
    pub(in super::super) overrun: bool,
}

impl CompletionQueue {
    pub(in super::super) fn new(most: usize) -> CompletionQueue {
        CompletionQueue { entries: VecDeque::new(), most, users: 0, armed: None, overrun: false }
    }

    /// The host wants to be told. Asking for any completion is not taken back by asking for solicited ones.
    pub(in super::super) fn arm(&mut self, notify: Notify) {
        if self.armed != Some(Notify::Any) {
            self.armed = Some(notify);
        }
    }

    /// Takes a completion: whether somebody is to be told. `Err`: it is lost.
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
