//! The program's ends of queues: completion rings, and the work that is not known to be complete.

use kiban_base::Region;
use kiban_base::ring::{Consumer, Poisoned};
use kiban_rdma::hif::{COMPLETION_BYTES, CompletionRing, completion_from_bytes};
use kiban_rdma::rnic::{Completion, Kind, QpAttributes, Status};
use std::collections::VecDeque;

/// A completion queue.
pub(super) struct CqRing {
    ring: Consumer,
    memory: Region,
    /// Entries taken since the board last learned of room.
    taken: usize,
    /// Completions made here, because the board has ended.
    flushed: VecDeque<Completion>,
    /// Whether the program wants a notification.
    pub(super) is_armed: bool,
    /// Whether waiting threads have been told of the next completion.
    is_announced: bool,
}

impl CqRing {
    pub(super) fn new(memory: Region, entries: usize) -> CqRing {
        let ring = Consumer::new(&memory, CompletionRing::AT, CompletionRing::new(entries).shape());
        CqRing { ring, memory, taken: 0, flushed: VecDeque::new(), is_armed: false, is_announced: false }
    }

    /// Returns the next completion, and whether the board must be told that there is room again.
    pub(super) fn poll(&mut self) -> Result<(Option<Completion>, bool), Poisoned> {
        let mut entry = [0; COMPLETION_BYTES];
        let Some(bytes) = self.ring.peek()? else {
            let is_room = std::mem::take(&mut self.taken) > 0 && self.is_bell_armed();
            return Ok((self.flushed.pop_front(), is_room));
        };
        bytes.copy_to(0, &mut entry);
        self.ring.release();
        self.is_announced = false;
        let completion = completion_from_bytes(&entry).ok_or(Poisoned)?;
        // The ring reports freed slots to the board after each quarter.
        self.taken += 1;
        let is_due = self.taken >= self.ring.shape().slots() / 4;
        if is_due {
            self.taken = 0;
        }
        Ok((Some(completion), is_due && self.is_bell_armed()))
    }

    fn is_bell_armed(&self) -> bool {
        // This bell does not record when it was rung.
        self.memory.bell(0).expect("the memory begins with a bell").ring(|| 0)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ring.is_ready() || !self.flushed.is_empty()
    }

    /// Returns whether there is a completion that waiting threads have not been told of.
    pub(super) fn announce(&mut self) -> bool {
        self.is_ready() && !std::mem::replace(&mut self.is_announced, true)
    }

    pub(super) fn flush(&mut self, completion: Completion) {
        self.flushed.push_back(completion);
        self.is_announced = false;
    }
}

/// A queue pair, and its posted work.
pub(super) struct PostedWork {
    pub(super) attributes: QpAttributes,
    /// Identifiers of sends, and whether success generates a completion.
    pub(super) sends: VecDeque<(u64, bool)>,
    pub(super) receives: VecDeque<u64>,
}

impl PostedWork {
    pub(super) fn new(attributes: QpAttributes) -> PostedWork {
        PostedWork { attributes, sends: VecDeque::new(), receives: VecDeque::new() }
    }

    /// Returns whether a completion is that of a receive.
    pub(super) fn is_receive(completion: &Completion) -> bool {
        matches!(completion.kind, Kind::Receive | Kind::ReceiveImmediate)
    }

    /// Removes the work that a completion reports as done.
    pub(super) fn on_completion(&mut self, completion: &Completion) {
        if PostedWork::is_receive(completion) {
            self.receives.pop_front();
            return;
        }
        // Sends complete in order. A failed send has a completion even if it was unsignalled.
        let is_it = |&(id, signalled): &(u64, bool)| {
            id == completion.id && (signalled || completion.status != Status::Success)
        };
        if let Some(at) = self.sends.iter().position(is_it) {
            self.sends.drain(..=at);
        }
    }
}
