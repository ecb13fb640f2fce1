//! SQ: work requests that go out, in order.
//!
//! A WQE starts when all before it have started, and completes when all before it have completed: completions come in the
//! order of posting, whatever is answered first. In between it is sent (its bytes may still stand in the lower layer),
//! or waits for the peer's answers.

use super::super::work::{SendWork, Status};
use alloc::collections::VecDeque;

/// How far a WQE has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Progress {
    /// Not started.
    Posted,
    /// The send module works on it; so many requests have not been answered.
    Started { unanswered: u32 },
    /// All of it has been made into segments.
    Sent { unanswered: u32, last_segment: u64 },
    /// Done, and how; bytes read.
    Done(Status),
}

/// A work queue element of a send queue.
#[derive(Debug)]
pub(in super::super) struct Wqe {
    pub(in super::super) work: SendWork,
    pub(in super::super) progress: Progress,
}

impl Wqe {
    /// Whether the send module has seen it.
    pub(in super::super) fn is_started(&self) -> bool {
        self.progress != Progress::Posted
    }

    /// Whether all that it asks for was asked, and answered.
    pub(in super::super) fn is_answered(&self) -> bool {
        matches!(self.progress, Progress::Sent { unanswered: 0, .. })
    }
}

/// The send queue.
#[derive(Debug)]
pub(in super::super) struct SendQueue {
    /// The oldest that is not complete is in front.
    wqes: VecDeque<Wqe>,
    /// How many of them have started.
    started: usize,
    /// The number of the front.
    first: u64,
    pub(in super::super) most: usize,
    /// The front is the NIC's own: nobody hears how it ends, not even of an error.
    quiet: bool,
    /// WQEs from this number on were posted too late: they never start, and end as flushed in their turn.
    closed_from: Option<u64>,
}

impl SendQueue {
    pub(in super::super) fn new(most: usize) -> SendQueue {
        SendQueue { wqes: VecDeque::new(), started: 0, first: 0, most, quiet: false, closed_from: None }
    }

    pub(in super::super) fn is_full(&self) -> bool {
        self.wqes.len() >= self.most
    }

    /// How many more it takes.
    pub(in super::super) fn room(&self) -> usize {
        self.most.saturating_sub(self.wqes.len())
    }

    pub(in super::super) fn is_empty(&self) -> bool {
        self.wqes.is_empty()
    }

    pub(in super::super) fn push(&mut self, work: SendWork) {
        self.wqes.push_back(Wqe { work, progress: Progress::Posted });
    }

    /// Work of the NIC's own, before any of the host's; it takes no room of theirs.
    pub(in super::super) fn push_quietly(&mut self, work: SendWork) {
        self.quiet = true;
        self.most += 1;
        self.wqes.push_front(Wqe { work, progress: Progress::Posted });
    }

    /// What is posted from now on is too late.
    pub(in super::super) fn close(&mut self) {
        self.closed_from = Some(self.first + self.wqes.len() as u64);
    }

    #[inline]
    fn is_late(&self, number: u64) -> bool {
        self.closed_from.is_some_and(|from| number >= from)
    }

    /// The next to be started: its number and it.
    #[inline]
    pub(in super::super) fn next(&self) -> Option<(u64, &Wqe)> {
        let number = self.first + self.started as u64;
        self.wqes.get(self.started).map(|wqe| (number, wqe)).filter(|_| !self.is_late(number))
    }

    /// Whether all before the next are complete.
    pub(in super::super) fn is_alone(&self) -> bool {
        self.started == 0
    }

    /// The next has started.
    pub(in super::super) fn start(&mut self) {
        if let Some(wqe) = self.wqes.get_mut(self.started) {
            wqe.progress = Progress::Started { unanswered: 0 };
            self.started += 1;
        }
    }

    /// The oldest: its number and it.
    pub(in super::super) fn front(&self) -> Option<(u64, &Wqe)> {
        self.wqes.front().map(|wqe| (self.first, wqe))
    }

    /// A WQE by its number.
    #[inline]
    pub(in super::super) fn get(&self, number: u64) -> Option<&Wqe> {
        self.wqes.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// The same, to change it.
    #[inline]
    pub(in super::super) fn get_mut(&mut self, number: u64) -> Option<&mut Wqe> {
        self.wqes.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Another request of a WQE awaits its answer.
    pub(in super::super) fn asked(&mut self, number: u64) {
        if let Some(Wqe {
            progress: Progress::Started { unanswered } | Progress::Sent { unanswered, .. },
            ..
        }) = self.get_mut(number)
        {
            *unanswered += 1;
        }
    }

    /// A request of a WQE was answered.
    pub(in super::super) fn answered(&mut self, number: u64) {
        if let Some(Wqe {
            progress: Progress::Started { unanswered } | Progress::Sent { unanswered, .. },
            ..
        }) = self.get_mut(number)
        {
            *unanswered = unanswered.saturating_sub(1);
        }
    }

    /// All of a WQE has been made into segments.
    pub(in super::super) fn sent(&mut self, number: u64, last_segment: u64) {
        if let Some(wqe) = self.get_mut(number)
            && let Progress::Started { unanswered } = wqe.progress
        {
            wqe.progress = Progress::Sent { unanswered, last_segment };
        }
    }

    /// A WQE is done.
    pub(in super::super) fn done(&mut self, number: u64, status: Status) {
        if let Some(wqe) = self.get_mut(number) {
            wqe.progress = Progress::Done(status);
        }
    }

    /// The oldest WQE, if it is complete now that the lower layer has let go of the first `confirmed` segments.
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

    /// The oldest WQE, whatever it has come to.
    pub(in super::super) fn pop_front(&mut self) -> Option<SendWork> {
        self.take_front().or_else(|| self.take_front())
    }

    /// Takes the front off; nothing when there is none, or it is nobody's.
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
