//! An end of an association as the pump drives it: the board's [`End`](board::End), a user of it, and a stopwatch.

use super::timing::Stopwatch;
use crate::osi::pump;
use kiban_board::osi::end as board;
use kiban_board::osi::meter::Meter;
use kiban_board::osi::stream::Wish;
use kiban_ground::{Bytes, Instant, RopeQueue};
use kiban_stack::osi::ftam::{Machine, State};
use kiban_stack::osi::network::Origin;
use kiban_stack::osi::transport::Disconnected;
use std::io;
use std::time::Duration;

/// So long a peer may take to fetch the last words of an association.
const FAREWELL: Duration = Duration::from_secs(30);

/// Whoever uses the file service here.
pub(super) trait User {
    /// Does what there is to do; at most about `room_bytes` of contents are handed down.
    fn work(&mut self, machine: &mut Machine, room_bytes: usize);
    /// Transport has refused its connection, or ended it; the association is about to be gone.
    fn disconnected(&mut self, _why: &Disconnected) {}
    /// The association is gone.
    fn ended(&mut self);
    /// The longest TSDU from now on, if it is to be another.
    fn tsdu_bytes_max(&self) -> Option<usize> {
        None
    }
    /// Nothing has moved for too long: the association is cut.
    fn silent(&mut self) {}
}

/// An end, its user, and who measures.
pub(super) struct FileEnd<U: User> {
    pub(super) end: board::End,
    pub(super) user: U,
    pub(super) stopwatch: Stopwatch,
    told: bool,
    /// So long nothing may move while a file is selected.
    silence_max: Option<Duration>,
    moved: Instant,
    /// Bytes that waited to be sent when it was looked at last.
    waited_bytes: usize,
    /// When it has to be over: what waits then is not sent any more.
    cut: Option<Instant>,
    over: Option<Instant>,
}

impl<U: User> FileEnd<U> {
    pub(super) fn new(end: board::End, user: U, stopwatch: Stopwatch) -> FileEnd<U> {
        FileEnd {
            end,
            user,
            stopwatch,
            told: false,
            silence_max: None,
            moved: Instant::ZERO,
            waited_bytes: 0,
            cut: None,
            over: None,
        }
    }

    /// The same, which is cut when nothing moves for so long while a file is selected.
    pub(super) fn cut_after(mut self, silence: Duration) -> FileEnd<U> {
        self.silence_max = Some(silence);
        self
    }

    /// Looks whether anything has moved, and ends what has not for too long.
    fn watch(&mut self, now: Instant) {
        let waits_bytes = self.end.outgoing().len();
        if std::mem::replace(&mut self.waited_bytes, waits_bytes) != waits_bytes {
            self.moved = now;
        }
        let is_over = self.end.wish() == Wish::Close;
        let in_hand = !matches!(self.end.machine().state(), State::Closed | State::Initialized);
        self.cut = match self.silence_max {
            _ if is_over => Some(*self.over.get_or_insert(now) + FAREWELL),
            Some(silence) if in_hand => Some(self.moved + silence),
            _ => None,
        };
        if self.cut.is_none_or(|cut| now < cut) {
            return;
        }
        if !is_over {
            self.user.silent();
            self.end.ended(Origin::Provider, now, &mut self.stopwatch);
        }
        self.end.outgoing().clear();
    }

    /// What each layer took.
    pub(super) fn finish(mut self) -> Stopwatch {
        self.tell_end();
        self.stopwatch.clone()
    }

    fn tell_end(&mut self) {
        if !std::mem::replace(&mut self.told, true) {
            self.user.ended();
        }
    }
}

/// However an association ends, a task that is cut included, its user hears of it.
impl<U: User> Drop for FileEnd<U> {
    fn drop(&mut self) {
        self.tell_end();
    }
}

impl<U: User> pump::End for FileEnd<U> {
    fn receive(&mut self, bytes: Bytes, now: Instant) {
        self.moved = now;
        self.stopwatch.begin();
        self.end.receive(bytes, now, &mut self.stopwatch);
        self.stopwatch.rest();
    }

    fn ended(&mut self, how: io::Result<()>, now: Instant) {
        let origin = if how.is_ok() { Origin::User } else { Origin::Provider };
        self.end.ended(origin, now, &mut self.stopwatch);
    }

    fn work(&mut self, now: Instant) {
        self.stopwatch.begin();
        if self.end.deadline().is_some_and(|deadline| deadline <= now) {
            self.end.timeout(now, &mut self.stopwatch);
        }
        if let Some(why) = self.end.files().tower().disconnected() {
            self.user.disconnected(why);
        }
        loop {
            let room = self.end.room();
            self.user.work(self.end.machine(), room);
            let mut moved = self.end.settle(now, &mut self.stopwatch);
            // The socket is there already: see `client` and `serve`.
            if self.end.wish() == Wish::Connect {
                self.end.connected(now, &mut self.stopwatch);
                moved = true;
            }
            if !moved {
                break;
            }
        }
        if let Some(bytes) = self.user.tsdu_bytes_max() {
            self.end.set_tsdu_bytes_max(bytes);
        }
        self.watch(now);
        if self.end.wish() == Wish::Close {
            self.tell_end();
        }
        self.stopwatch.rest();
    }

    fn outgoing(&mut self) -> &mut RopeQueue {
        self.end.outgoing()
    }

    fn wants_bytes(&self) -> bool {
        // A peer that asks and does not listen to the answers is not heard further.
        self.end.room() > 0
    }

    fn deadline(&self) -> Option<Instant> {
        [self.end.deadline(), self.cut].into_iter().flatten().min()
    }

    fn is_over(&self) -> bool {
        self.end.wish() == Wish::Close
    }
}
