//! Completion manager: builds completions and adds them to their queues.

use super::super::event::Event;
use super::super::host::cmt::CompletionQueue;
use super::super::outbox::Outputs;
use super::super::work::{Completion, Kind, SendWork, Status};

pub(in super::super) fn of_send(qp: u32, work: &SendWork, status: Status, bytes: u32) -> Completion {
    let kind = work.operation.kind();
    Completion { id: work.id, status, kind, bytes, qp, immediate: None, invalidated: None, source: None }
}

pub(in super::super) fn of_receive(qp: u32, id: u64, status: Status, kind: Kind, bytes: u32) -> Completion {
    Completion { id, status, kind, bytes, qp, immediate: None, invalidated: None, source: None }
}

impl Outputs {
    /// Adds a completion to its queue and records a notification if the queue is armed.
    #[inline]
    pub(in super::super) fn complete(&mut self, cq: u32, completion: Completion, solicited: bool) {
        self.counters.completions += 1;
        let Some(queue) = self.cqs.get_mut(cq) else { return };
        let was_in_error = queue.overrun;
        match CompletionQueue::push(queue, completion, solicited) {
            Ok(false) => {}
            Ok(true) => self.cq_events.push_back(cq),
            Err(()) => {
                self.counters.completions_lost += 1;
                if !was_in_error {
                    self.overrun.push(cq);
                    self.event(Event::CqOverrun { cq });
                }
            }
        }
    }
}
