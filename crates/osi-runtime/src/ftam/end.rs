//! One endpoint of an association, as driven by the pump: the protocol stack's [`End`](board::End), its user,
//! and a stopwatch.

use super::layers::Layers;
use super::timing::Stopwatch;
use crate::pump;
use kiban_base::{Bytes, Instant, RopeQueue};
use kiban_osi::ftam::{Machine, State};
use kiban_osi::network::Origin;
use kiban_osi::presentation::Refuser;
use kiban_osi::stack::meter::Meter;
use kiban_osi::transport::Disconnected;
use std::io;
use std::time::Duration;

/// Time limit within which the peer must accept an association's last data.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an association that seems to be idle is kept after this was noticed. A file operation of this
/// host may have taken longer than the limit, so that data of the peer waits in the socket.
const IDLE_GRACE: Duration = Duration::from_millis(100);

/// The user of the file service at this endpoint: an initiator or a responder.
pub(super) trait User {
    /// Does pending work, and passes down about `room_bytes` of contents at most.
    fn work(&mut self, machine: &mut Machine, room_bytes: usize);
    /// Reports that the transport connection was refused or ended; [`User::ended`] follows.
    fn disconnected(&mut self, _why: &Disconnected) {}
    /// Reports which layer of the peer refused the association; [`User::ended`] follows.
    fn refused(&mut self, _by: Refuser) {}
    /// Reports the socket's error; [`User::ended`] follows.
    fn broken(&mut self, _error: io::Error) {}
    /// Reports that the association has ended.
    fn ended(&mut self);
    /// Returns the new maximum TSDU length in bytes, if it has changed.
    fn tsdu_bytes_max(&self) -> Option<usize> {
        None
    }
    /// Reports that no data has moved for this time; after this, the association is aborted.
    fn on_idle_timeout(&mut self, _silence: Duration) {}
}

/// An endpoint with its user and stopwatch.
pub(super) struct FileEnd<U: User, L: Layers> {
    pub(super) end: L,
    pub(super) user: U,
    pub(super) stopwatch: Stopwatch,
    end_reported: bool,
    /// How long an association may be without progress while a file is selected.
    idle_timeout: Duration,
    moved: Instant,
    /// When the inactivity limit was found to be exceeded.
    idle_since: Option<Instant>,
    /// Bytes that were waiting to be sent at the last check.
    waited_bytes: usize,
    /// The time at which the connection is closed even if bytes are still waiting; those are then dropped.
    close_deadline: Instant,
    over: Option<Instant>,
}

impl<U: User, L: Layers> FileEnd<U, L> {
    /// Returns an endpoint that aborts the association after `idle_timeout` without progress while a file is
    /// selected.
    pub(super) fn new(end: L, user: U, stopwatch: Stopwatch, idle_timeout: Duration) -> FileEnd<U, L> {
        FileEnd {
            end,
            user,
            stopwatch,
            end_reported: false,
            idle_timeout,
            moved: Instant::ZERO,
            idle_since: None,
            waited_bytes: 0,
            close_deadline: Instant::NEVER,
            over: None,
        }
    }

    /// Checks for progress, and aborts an association that has been inactive for too long.
    fn watch(&mut self, now: Instant) {
        let waits_bytes = self.end.outgoing().len();
        if std::mem::replace(&mut self.waited_bytes, waits_bytes) != waits_bytes {
            self.moved = now;
        }
        let is_over = self.end.is_over();
        let in_hand = !matches!(self.end.machine().state(), State::Closed | State::Initialized);
        self.close_deadline = if is_over {
            *self.over.get_or_insert(now) + CLOSE_TIMEOUT
        } else if in_hand {
            self.moved + self.idle_timeout
        } else {
            Instant::NEVER
        };
        if now < self.close_deadline {
            self.idle_since = None;
            return;
        }
        if !is_over {
            let end = *self.idle_since.get_or_insert(now) + IDLE_GRACE;
            if now < end {
                self.close_deadline = end;
                return;
            }
            self.user.on_idle_timeout(self.idle_timeout);
            self.end.ended(Origin::Provider, now, &mut self.stopwatch);
        }
        self.end.outgoing().clear();
    }

    /// Returns the time spent in each layer.
    pub(super) fn finish(mut self) -> Stopwatch {
        self.tell_end();
        self.stopwatch.clone()
    }

    fn tell_end(&mut self) {
        if !std::mem::replace(&mut self.end_reported, true) {
            self.user.ended();
        }
    }
}

/// Notifies the user when an association ends for any reason, even if its task is cancelled.
impl<U: User, L: Layers> Drop for FileEnd<U, L> {
    fn drop(&mut self) {
        self.tell_end();
    }
}

impl<U: User, L: Layers> pump::End for FileEnd<U, L> {
    fn arrive(&mut self, bytes: Bytes, now: Instant) {
        self.moved = now;
        self.stopwatch.begin();
        self.end.arrive(bytes, now, &mut self.stopwatch);
        self.stopwatch.rest();
    }

    fn ended(&mut self, how: io::Result<()>, now: Instant) {
        let origin = if how.is_ok() { Origin::User } else { Origin::Provider };
        if let Err(error) = how {
            self.user.broken(error);
        }
        self.end.ended(origin, now, &mut self.stopwatch);
    }

    fn work(&mut self, now: Instant) {
        self.stopwatch.begin();
        if self.end.deadline() <= now {
            self.end.settle(now, &mut self.stopwatch);
        }
        if let Some(why) = self.end.disconnected() {
            self.user.disconnected(why);
        }
        if let Some(by) = self.end.refused() {
            self.user.refused(by);
        }
        loop {
            let room = self.end.room();
            self.user.work(self.end.machine(), room);
            if !self.end.settle(now, &mut self.stopwatch) {
                break;
            }
        }
        if let Some(bytes) = self.user.tsdu_bytes_max() {
            self.end.set_tsdu_bytes_max(bytes);
        }
        self.watch(now);
        if self.end.is_over() {
            self.tell_end();
        }
        self.stopwatch.rest();
    }

    fn outgoing(&mut self) -> &mut RopeQueue {
        self.end.outgoing()
    }

    fn wants_bytes(&self) -> bool {
        // Stops reading from a peer that does not read its responses.
        self.end.room() > 0
    }

    fn deadline(&self) -> Instant {
        self.end.deadline().min(self.close_deadline)
    }

    fn is_over(&self) -> bool {
        self.end.is_over()
    }
}
