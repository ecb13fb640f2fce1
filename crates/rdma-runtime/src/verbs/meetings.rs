//! Out-of-band connection of two queue pairs that are both ready: who connects, who is accepted, and who
//! waits ([`super::queue_pairs`]).

use super::board::Board;
use super::ends::EndUse;
use super::pairs::{Alarm, Held, Peer, State};
use crate::core::Way;
use kiban_base::Instant;
use kiban_rdma::iwarp::mpa;
use kiban_rdma::wire::meeting::{self, Meeting};
use std::cmp::Reverse;
use std::net::SocketAddr;
use std::time::Duration;

/// The first and the longest pause before a connection attempt is retried.
pub(super) const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));
/// Maximum time that work waits for a peer that has gone.
const ABANDONED: Duration = Duration::from_secs(1);
/// Maximum number of incoming connections that wait for one queue pair to become ready.
const HELD_MAX: usize = 4;

/// Returns the MPA settings of out-of-band connections: either side may send first, and both are kiban's.
pub(super) fn meeting_config() -> mpa::Config {
    mpa::Config { extensions: true, peer_to_peer: true, ..mpa::Config::default() }
}

impl Board {
    /// Connects to the peer, if this is the side that connects.
    pub(super) fn call(&mut self, qp: u32, now: Instant) {
        let Some(entry) = self.qps.entries.get_mut(&qp) else { return };
        let (qpn, address) = (entry.qpn, entry.address);
        let Some(seat) = entry.seat.as_mut().filter(|seat| seat.calls && seat.theirs.is_none()) else {
            return;
        };
        if entry.end.is_some() {
            return;
        }
        let Peer { address: theirs, qpn: destination, begins: expects, reads } = seat.peer;
        let begins = seat.ours.map(|(begins, _)| begins);
        let meeting = Meeting { destination, source: qpn, expects, begins, refusal: None };
        let to = SocketAddr::new(theirs, super::ports::port_of(destination));
        let depths = (reads, seat.ours.map_or(0, |(_, ours)| ours));
        let called = self.core.connect(
            Way { to: to.into(), from: Some(address) },
            &meeting_config(),
            qp,
            depths,
            &meeting.bytes(),
            now,
        );
        match called {
            Ok(Ok(end)) => {
                self.ends.of.insert(end, EndUse::Meeting(qp));
                entry.end = Some(end);
            }
            _ => self.call_again(qp, now),
        }
    }

    fn call_again(&mut self, qp: u32, now: Instant) {
        let Some(seat) = self.qps.entries.get_mut(&qp).and_then(|entry| entry.seat.as_mut()) else { return };
        self.qps.alarms.push(Reverse((now + seat.pause, Alarm::Call(qp))));
        seat.pause = (seat.pause * 2).min(PAUSE.1);
    }

    /// Handles the peer's answer to a connection attempt.
    pub(super) fn on_met(&mut self, qp: u32, end: u32, answer: &[u8], now: Instant) {
        let Some(entry) = self.qps.entries.get_mut(&qp).filter(|entry| entry.end == Some(end)) else {
            return;
        };
        let Some(seat) = &mut entry.seat else { return };
        let fits = Meeting::read(answer).ok().filter(|answer| {
            answer.refusal.is_none()
                && answer.source == seat.peer.qpn
                && answer.destination == entry.qpn
                && answer.begins.is_none_or(|begins| begins == seat.peer.begins)
                && seat.ours.is_none_or(|(begins, _)| begins == answer.expects)
        });
        seat.theirs = fits;
        if fits.is_none() || !self.is_same_user(end) {
            let _ = self.set_error(qp, now);
        }
    }

    /// Handles the failure or end of an out-of-band connection.
    pub(super) fn on_parted(&mut self, qp: u32, end: u32, now: Instant) {
        self.core.forget(end, now);
        let Some(entry) = self.qps.entries.get_mut(&qp).filter(|entry| entry.end == Some(end)) else {
            return;
        };
        entry.end = None;
        if entry.seat.as_ref().is_some_and(|seat| seat.calls && seat.theirs.is_none()) {
            self.call_again(qp, now);
        }
    }

    /// Handles an incoming connection at a queue pair port.
    pub(super) fn on_caller(&mut self, end: u32, listener: u32, private_data: &[u8], now: Instant) {
        let place = self.ports.of_listener(listener);
        let (Some((address, port)), Some((local, from)), Ok(meeting)) =
            (place, self.core.addresses(end), Meeting::read(private_data))
        else {
            return self.core.forget(end, now);
        };
        let held = Held { end, address, from, local, meeting };
        if super::ports::port_of(meeting.destination) != port {
            return self.refuse(&held, meeting::Refusal::Unknown, now);
        }
        self.ends.of.insert(end, EndUse::Held);
        if let Some(held) = self.judge(held, now) {
            let same = |other: &&Held| other.meeting.destination == held.meeting.destination;
            if self.qps.held.iter().filter(same).count() >= HELD_MAX {
                return self.refuse(&held, meeting::Refusal::Other, now);
            }
            self.qps.held.push(held);
        }
    }

    fn refuse(&mut self, held: &Held, refusal: meeting::Refusal, now: Instant) {
        let Meeting { destination, source, .. } = held.meeting;
        let answer = Meeting {
            destination: source,
            source: destination,
            expects: 0,
            begins: None,
            refusal: Some(refusal),
        };
        let _ = self.core.reject(held.end, &answer.bytes(), now);
        self.ends.of.insert(held.end, EndUse::Refused);
    }

    /// Validates the incoming connections again that wait for a queue pair.
    pub(super) fn judge_held(&mut self, qp: u32, now: Instant) {
        let Some(entry) = self.qps.entries.get(&qp) else { return };
        let place = (entry.address, entry.qpn);
        let (theirs, others) = std::mem::take(&mut self.qps.held)
            .into_iter()
            .partition(|held| (held.address, held.meeting.destination) == place);
        self.qps.held = others;
        let theirs: Vec<Held> = theirs;
        for held in theirs {
            if let Some(held) = self.judge(held, now) {
                self.qps.held.push(held);
            }
        }
    }

    /// Forgets an incoming connection that waited and is gone.
    pub(super) fn forget_held(&mut self, end: u32) {
        self.qps.held.retain(|held| held.end != end);
    }

    /// Accepts or refuses an incoming connection, or returns it if it must wait.
    fn judge(&mut self, held: Held, now: Instant) -> Option<Held> {
        let Meeting { destination, source, expects, begins, .. } = held.meeting;
        let Some(qp) = self.qps.named(held.address, destination) else {
            self.refuse(&held, meeting::Refusal::Unknown, now);
            return None;
        };
        let state = self.state(qp).unwrap_or(State::Error);
        let entry = self.qps.entries.get(&qp)?;
        let seat = match &entry.seat {
            _ if state < State::Rtr => return Some(held),
            Some(seat) if state != State::Error => seat,
            _ => {
                self.refuse(&held, meeting::Refusal::Unknown, now);
                return None;
            }
        };
        // Neither side has sent a PSN for the other to check.
        if begins.is_none() && seat.ours.is_none() {
            return Some(held);
        }
        let fits = !seat.calls
            && entry.end.is_none()
            && (seat.peer.address, seat.peer.qpn) == (held.from.ip().to_canonical(), source)
            && begins.is_none_or(|begins| begins == seat.peer.begins)
            && seat.ours.is_none_or(|(ours, _)| ours == expects)
            && self.asker.is_allowed(held.local, held.from);
        if !fits {
            self.refuse(&held, meeting::Refusal::Other, now);
            return None;
        }
        let answer = Meeting {
            destination: source,
            source: destination,
            expects: seat.peer.begins,
            begins: seat.ours.map(|(begins, _)| begins),
            refusal: None,
        };
        let depths = (seat.peer.reads, seat.ours.map_or(u16::MAX, |(_, reads)| reads));
        if self.core.accept(held.end, qp, depths, &answer.bytes(), now).is_ok() {
            self.ends.of.insert(held.end, EndUse::Meeting(qp));
            if let Some(entry) = self.qps.entries.get_mut(&qp) {
                entry.end = Some(held.end);
                if let Some(seat) = &mut entry.seat {
                    seat.theirs = Some(held.meeting);
                }
            }
        }
        None
    }

    fn is_same_user(&self, end: u32) -> bool {
        self.core.addresses(end).is_some_and(|(local, peer)| self.asker.is_allowed(local, peer))
    }

    // ---- time

    pub(super) fn meetings_deadline(&self) -> Instant {
        self.qps.alarms.peek().map_or(Instant::NEVER, |Reverse((at, _))| *at)
    }

    /// Schedules a retry of a connection of the connection manager.
    pub(super) fn ask_at(&mut self, at: Instant, end: u32) {
        self.qps.alarms.push(Reverse((at, Alarm::Ask(end))));
    }

    pub(super) fn advance_meetings(&mut self, now: Instant) {
        while let Some(&Reverse((at, alarm))) = self.qps.alarms.peek()
            && at <= now
        {
            self.qps.alarms.pop();
            match alarm {
                Alarm::Call(qp) => self.call(qp, now),
                Alarm::Patience(qp) => self.lose_patience(qp, now),
                Alarm::Abandoned(qp) => self.lose(qp),
                Alarm::Ask(end) => self.after_pause(end, now),
            }
        }
    }

    /// Handles a peer that has left while work is pending. The work is lost only after the time that the
    /// program's retries would take, so that messages from other peers that were sent earlier complete first,
    /// as programs written for InfiniBand expect.
    pub(super) fn on_abandoned(&mut self, qp: u32, now: Instant) {
        let seat = self.qps.entries.get(&qp).and_then(|entry| entry.seat.as_ref());
        let patience =
            seat.and_then(|seat| seat.patience).map_or(ABANDONED, |patience| patience.min(ABANDONED));
        self.qps.alarms.push(Reverse((now + patience, Alarm::Abandoned(qp))));
    }

    fn lose(&mut self, qp: u32) {
        // The queue pair may have been destroyed or reset meanwhile.
        if self.core.nic.core.has_sends(qp) && self.core.nic.core.is_alone(qp) {
            let _ = self.core.nic.core.give_up(qp);
            self.news = true;
        }
    }

    fn lose_patience(&mut self, qp: u32, now: Instant) {
        let Some(entry) = self.qps.entries.get_mut(&qp) else { return };
        let Some(seat) = entry.seat.as_ref().filter(|seat| seat.theirs.is_none()) else { return };
        let Some(patience) = seat.patience else { return };
        if !self.core.nic.core.has_sends(qp) {
            return self.qps.alarms.push(Reverse((now + patience, Alarm::Patience(qp))));
        }
        entry.state = State::Error;
        entry.seat = None;
        let end = entry.end.take();
        // Cannot fail: the queue pair still expects its stream.
        let _ = self.core.nic.core.give_up(qp);
        if let Some(end) = end {
            self.ends.of.remove(&end);
            self.core.part(end, now);
        }
        self.news = true;
    }
}
