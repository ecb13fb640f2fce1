//! SQ: outgoing work requests, in order.
//!
//! WQEs start and complete in the order in which they were posted, whatever the order of the responses. In
//! between, a WQE may have been sent, with the lower layer still holding its bytes, or may wait for the
//! peer's responses.

use super::super::work::{SendWork, Status};
use alloc::collections::VecDeque;

/// Progress of a WQE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Progress {
    /// Not started.
    Posted,
    /// The send module is working on it; `unanswered` requests await their responses.
    Started { unanswered: u32 },
    /// All its segments have been built.
    Sent { unanswered: u32, last_segment: u64 },
    /// Done, with this status.
    Done(Status),
}

/// A work queue element of a send queue.
#[derive(Debug)]
pub(in super::super) struct Wqe {
    pub(in super::super) work: SendWork,
    pub(in super::super) progress: Progress,
}

impl Wqe {
    /// Returns whether the send module has started it.
    pub(in super::super) fn is_started(&self) -> bool {
        self.progress != Progress::Posted
    }

    /// Returns whether all its requests were sent and answered.
    pub(in super::super) fn is_answered(&self) -> bool {
        matches!(self.progress, Progress::Sent { unanswered: 0, .. })
    }
}

/// The send queue.
#[derive(Debug)]
pub(in super::super) struct SendQueue {
    /// The front is the oldest incomplete WQE.
    wqes: VecDeque<Wqe>,
    /// How many of the WQEs have started.
    started: usize,
    /// The number of the front WQE.
    first: u64,
    pub(in super::super) most: usize,
    /// Whether the front WQE is the NIC's own work, whose result is never reported, even if it is an error.
    quiet: bool,
    /// WQEs with this number or a higher one were posted after the close. They never start, and are flushed
    /// when their turn comes.
    closed_from: Option<u64>,
}

impl SendQueue {
    pub(in super::super) fn new(most: usize) -> SendQueue {
        SendQueue { wqes: VecDeque::new(), started: 0, first: 0, most, quiet: false, closed_from: None }
    }

    pub(in super::super) fn is_full(&self) -> bool {
        self.wqes.len() >= self.most
    }

    /// Returns how many more WQEs fit.
    pub(in super::super) fn room(&self) -> usize {
        self.most.saturating_sub(self.wqes.len())
    }

    pub(in super::super) fn is_empty(&self) -> bool {
        self.wqes.is_empty()
    }

    pub(in super::super) fn push(&mut self, work: SendWork) {
        self.wqes.push_back(Wqe { work, progress: Progress::Posted });
    }

    /// Adds the NIC's own work before any of the host's. It takes none of the host's capacity.
    pub(in super::super) fn push_quietly(&mut self, work: SendWork) {
        self.quiet = true;
        self.most += 1;
        self.wqes.push_front(Wqe { work, progress: Progress::Posted });
    }

    /// Closes the queue: work posted from now on is not sent, and is flushed when its turn comes.
    pub(in super::super) fn close(&mut self) {
        self.closed_from = Some(self.first + self.wqes.len() as u64);
    }

    #[inline]
    fn is_late(&self, number: u64) -> bool {
        self.closed_from.is_some_and(|from| number >= from)
    }

    /// Returns the next WQE to be started, and its number.
    #[inline]
    pub(in super::super) fn next(&self) -> Option<(u64, &Wqe)> {
        let number = self.first + self.started as u64;
        self.wqes.get(self.started).map(|wqe| (number, wqe)).filter(|_| !self.is_late(number))
    }

    /// Returns whether every WQE that has started is complete.
    pub(in super::super) fn is_alone(&self) -> bool {
        self.started == 0
    }

    /// Marks the next WQE as started.
    pub(in super::super) fn start(&mut self) {
        if let Some(wqe) = self.wqes.get_mut(self.started) {
            wqe.progress = Progress::Started { unanswered: 0 };
            self.started += 1;
        }
    }

    /// Returns the oldest WQE and its number.
    pub(in super::super) fn front(&self) -> Option<(u64, &Wqe)> {
        self.wqes.front().map(|wqe| (self.first, wqe))
    }

    /// Returns a WQE by its number.
    #[inline]
    pub(in super::super) fn get(&self, number: u64) -> Option<&Wqe> {
        self.wqes.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Returns a mutable reference to the WQE with this number.
    #[inline]
    pub(in super::super) fn get_mut(&mut self, number: u64) -> Option<&mut Wqe> {
        self.wqes.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Counts another outstanding request of a WQE.
    pub(in super::super) fn on_request_sent(&mut self, number: u64) {
        if let Some(Wqe {
            progress: Progress::Started { unanswered } | Progress::Sent { unanswered, .. },
            ..
        }) = self.get_mut(number)
        {
            *unanswered += 1;
        }
    }

    /// Counts a response to a request of a WQE.
    pub(in super::super) fn on_response(&mut self, number: u64) {
        if let Some(Wqe {
            progress: Progress::Started { unanswered } | Progress::Sent { unanswered, .. },
            ..
        }) = self.get_mut(number)
        {
            *unanswered = unanswered.saturating_sub(1);
        }
    }

    /// Records that all segments of a WQE have been built.
    pub(in super::super) fn sent(&mut self, number: u64, last_segment: u64) {
        if let Some(wqe) = self.get_mut(number)
            && let Progress::Started { unanswered } = wqe.progress
        {
            wqe.progress = Progress::Sent { unanswered, last_segment };
        }
    }

    /// Marks a WQE as done.
    pub(in super::super) fn done(&mut self, number: u64, status: Status) {
        if let Some(wqe) = self.get_mut(number) {
            wqe.progress = Progress::Done(status);
        }
    }

    /// Removes and returns the oldest WQE if it is complete. The lower layer no longer holds the first
    /// `confirmed` segments.
    #[inline]
    pub(in super::super) fn pop(&mut self, confirmed: u64) -> Option<(SendWork, Status)> {
        loop {
            let status = match self.wqes.front()?.progress {
                Progress::Done(status) => status,
                Progress::Sent { unanswered: 0, last_segment } if last_segment <= confirmed => {
                    Status::Success
                }
                Progress::Posted if self.is_late(self.first) => Status::Flushed,
                _ => return None,
            };
            if let Some(work) = self.take_front() {
                return Some((work, status));
            }
        }
    }

    /// Removes and returns the oldest WQE, regardless of its progress.
    pub(in super::super) fn pop_front(&mut self) -> Option<SendWork> {
        self.take_front().or_else(|| self.take_front())
    }

    /// Removes the front WQE. Returns `None` if there is none, or if it was the NIC's own work.
    fn take_front(&mut self) -> Option<SendWork> {
        let wqe = self.wqes.pop_front()?;
        self.started = self.started.saturating_sub(1);
        self.first += 1;
        if core::mem::take(&mut self.quiet) {
            self.most -= 1;
            return None;
        }
        Some(wqe.work)
    }
}
