//! Out-of-band connection of two queue pairs that are both ready: decides which side connects, accepts or
//! waits ([`super::queue_pairs`]).

use super::ends::EndUse;
use super::engine_state::EngineState;
use super::pairs::{Peer, PendingIncoming, State, Timer};
use crate::linked_nic::Route;
use kiban_base::Instant;
use kiban_rdma::iwarp::mpa;
use kiban_rdma::wire::oob_setup::{OobSetup, SetupRefusal};
use std::cmp::Reverse;
use std::fmt;
use std::io::{Write, stderr};
use std::net::{IpAddr, SocketAddr};
use std::sync::Once;
use std::time::Duration;

/// The first and the longest pause before a connection attempt is retried.
pub(super) const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));
/// Maximum time that work waits for a peer that has left.
const ABANDONED: Duration = Duration::from_secs(1);
/// Maximum number of incoming connections that wait for one queue pair to become ready.
const HELD_MAX: usize = 4;

/// Returns the MPA settings for out-of-band connections: either side may send first, and both are kiban
/// NICs.
pub(super) fn oob_config() -> mpa::Config {
    mpa::Config { extensions: true, peer_to_peer: true, ..mpa::Config::default() }
}

/// Names on standard error the reason why a queue pair fails. Its work only completes with "transport retry
/// counter exceeded", as if the peer did not answer. One line for each reason is enough for a process.
fn warn(written: &Once, peer: impl fmt::Display, why: &str) {
    written.call_once(|| {
        // If the line cannot be written, the program still gets the error.
        let _ = writeln!(stderr(), "kiban: the queue pair's peer at {peer} {why}");
    });
}

fn warn_of_other_user(peer: SocketAddr) {
    static WRITTEN: Once = Once::new();
    let why = "belongs to another user of this host: run both programs as the same user, or connect them \
               through rdma_cm";
    warn(&WRITTEN, peer, why);
}

/// The peer does not speak this protocol, or is not there.
fn warn_of_silence(peer: IpAddr) {
    static WRITTEN: Once = Once::new();
    let why = "does not answer: if it is rdma_rxe or a RoCE card, use kiban verbs --transport roce; otherwise, \
               use the same transport at both ends";
    warn(&WRITTEN, peer, why);
}

fn is_same_family(address: IpAddr, other: IpAddr) -> bool {
    address.is_ipv4() == other.is_ipv4()
}

/// Returns whether a connection comes from a peer's address. If the device's own address is of the other
/// family, the peer has connected from another of its addresses, which is not known.
fn is_from(held: &PendingIncoming, peer: IpAddr) -> bool {
    held.from.ip().to_canonical() == peer || !is_same_family(held.address, peer)
}

impl EngineState {
    /// Connects to the peer, if this is the side that connects.
    pub(super) fn call(&mut self, qp: u32, now: Instant) {
        let Some(entry) = self.qps.entries.get_mut(&qp) else { return };
        let (qpn, address) = (entry.qpn, entry.address);
        let Some(seat) = entry.oob.as_mut().filter(|seat| seat.calls && seat.theirs.is_none()) else {
            return;
        };
        if entry.end.is_some() {
            return;
        }
        let Peer { address: theirs, qpn: destination, initial_psn: expects, reads, .. } = seat.peer;
        let begins = seat.ours.map(|(begins, _)| begins);
        let depths = (reads, seat.ours.map_or(0, |(_, ours)| ours));
        let to = SocketAddr::new(theirs, super::ports::port_of(destination));
        if self.board.is_some() {
            let setup = OobSetup { destination, source: qpn, expects, begins, refusal: None };
            return self.call_from_board(qp, to, &setup);
        }
        // The peer may accept what this process refuses, as everybody accepts root. Only a request that says
        // so lets it name the reason, too.
        let refusal = self.socket_owners.is_other_listener(to).then_some(SetupRefusal::User);
        if refusal.is_some() {
            warn_of_other_user(to);
        }
        let setup = OobSetup { destination, source: qpn, expects, begins, refusal };
        let called = self.core.connect(
            Route { to: to.into(), from: is_same_family(address, theirs).then_some(address) },
            &oob_config(),
            qp,
            depths,
            &setup.bytes(),
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

    pub(super) fn call_again(&mut self, qp: u32, now: Instant) {
        let Some(seat) = self.qps.entries.get_mut(&qp).and_then(|entry| entry.oob.as_mut()) else { return };
        self.qps.timers.push(Reverse((now + seat.pause, Timer::ConnectRetry(qp))));
        seat.pause = (seat.pause * 2).min(PAUSE.1);
    }

    /// Handles the peer's answer to a connection attempt.
    pub(super) fn on_oob_answer(&mut self, qp: u32, end: u32, answer: &[u8], now: Instant) {
        let Some(entry) = self.qps.entries.get_mut(&qp).filter(|entry| entry.end == Some(end)) else {
            return;
        };
        let Some(seat) = &mut entry.oob else { return };
        let fits = OobSetup::read(answer).ok().filter(|answer| {
            answer.refusal.is_none()
                && answer.source == seat.peer.qpn
                && answer.destination == entry.qpn
                && answer.begins.is_none_or(|begins| begins == seat.peer.initial_psn)
                && seat.ours.is_none_or(|(begins, _)| begins == answer.expects)
        });
        seat.theirs = fits;
        if fits.is_none() || !self.is_same_user(end) {
            let _ = self.set_error(qp, now);
        }
    }

    /// Handles a refusal of a connection attempt, which is retried until the queue pair's timeout.
    pub(super) fn on_oob_rejected(&self, qp: u32, answer: &[u8]) {
        if OobSetup::read(answer).is_ok_and(|answer| answer.refusal == Some(SetupRefusal::User))
            && let Some(seat) = self.qps.entries.get(&qp).and_then(|entry| entry.oob.as_ref())
        {
            warn_of_other_user(SocketAddr::new(seat.peer.address, super::ports::port_of(seat.peer.qpn)));
        }
    }

    /// Handles the failure or end of an out-of-band connection.
    pub(super) fn on_oob_closed(&mut self, qp: u32, end: u32, now: Instant) {
        self.forget_end(end, now);
        let Some(entry) = self.qps.entries.get_mut(&qp).filter(|entry| entry.end == Some(end)) else {
            return;
        };
        entry.end = None;
        let was_connected = entry.oob.as_ref().is_some_and(|seat| seat.theirs.is_some());
        if was_connected && let Some(board) = &mut self.board {
            board.on_oob_end(qp);
        }
        let Some(entry) = self.qps.entries.get(&qp) else { return };
        if entry.oob.as_ref().is_some_and(|seat| seat.calls && seat.theirs.is_none()) {
            self.call_again(qp, now);
        }
    }

    /// Handles an incoming connection at a queue pair port.
    pub(super) fn on_oob_request(&mut self, end: u32, listener: u32, private_data: &[u8], now: Instant) {
        let place = self.oob_port_of(listener);
        let (Some((address, port)), Some((local, from)), Ok(setup)) =
            (place, self.end_addresses(end), OobSetup::read(private_data))
        else {
            return self.forget_end(end, now);
        };
        let held = PendingIncoming { end, address, from, local, setup };
        if super::ports::port_of(setup.destination) != port {
            return self.refuse(&held, SetupRefusal::Unknown, now);
        }
        self.ends.of.insert(end, EndUse::Held);
        if let Some(held) = self.match_incoming(held, now) {
            let same = |other: &&PendingIncoming| other.setup.destination == held.setup.destination;
            if self.qps.held.iter().filter(same).count() >= HELD_MAX {
                return self.refuse(&held, SetupRefusal::Other, now);
            }
            self.qps.held.push(held);
        }
    }

    fn refuse(&mut self, held: &PendingIncoming, refusal: SetupRefusal, now: Instant) {
        let OobSetup { destination, source, .. } = held.setup;
        let answer = OobSetup {
            destination: source,
            source: destination,
            expects: 0,
            begins: None,
            refusal: Some(refusal),
        };
        self.ends.of.remove(&held.end);
        // This fails if the peer has left.
        let _ = self.refuse_request(held.end, &answer.bytes(), now);
    }

    /// Revalidates the incoming connections that wait for a queue pair.
    pub(super) fn retry_pending(&mut self, qp: u32, now: Instant) {
        let Some(entry) = self.qps.entries.get(&qp) else { return };
        let place = (entry.address, entry.qpn);
        let (theirs, others) = std::mem::take(&mut self.qps.held)
            .into_iter()
            .partition(|held| (held.address, held.setup.destination) == place);
        self.qps.held = others;
        let theirs: Vec<PendingIncoming> = theirs;
        for held in theirs {
            if let Some(held) = self.match_incoming(held, now) {
                self.qps.held.push(held);
            }
        }
    }

    /// Forgets an incoming connection that waited and has ended.
    pub(super) fn forget_held(&mut self, end: u32) {
        self.qps.held.retain(|held| held.end != end);
    }

    /// Accepts or refuses an incoming connection, or returns it if it must wait.
    fn match_incoming(&mut self, held: PendingIncoming, now: Instant) -> Option<PendingIncoming> {
        let OobSetup { destination, source, expects, begins, .. } = held.setup;
        let Some(qp) = self.qps.named(held.address, destination) else {
            self.refuse(&held, SetupRefusal::Unknown, now);
            return None;
        };
        let state = self.state(qp).unwrap_or(State::Error);
        let entry = self.qps.entries.get(&qp)?;
        let seat = match &entry.oob {
            _ if state < State::Rtr => return Some(held),
            Some(seat) if state != State::Error => seat,
            _ => {
                self.refuse(&held, SetupRefusal::Unknown, now);
                return None;
            }
        };
        // Neither side has sent a PSN that the other could check.
        if begins.is_none() && seat.ours.is_none() {
            return Some(held);
        }
        let fits = !seat.calls
            && entry.end.is_none()
            && seat.peer.qpn == source
            && is_from(&held, seat.peer.address)
            && begins.is_none_or(|begins| begins == seat.peer.initial_psn)
            && seat.ours.is_none_or(|(ours, _)| ours == expects);
        let is_other = held.setup.refusal.is_some();
        // The kernel does not know the owners of a board's connections.
        let is_allowed = self.board.is_some() || self.socket_owners.is_allowed(held.local, held.from);
        if !fits || is_other || !is_allowed {
            let is_other = is_other || self.socket_owners.is_other_user(held.local, held.from);
            let refusal = if fits && is_other { SetupRefusal::User } else { SetupRefusal::Other };
            if refusal == SetupRefusal::User {
                warn_of_other_user(held.from);
            }
            self.refuse(&held, refusal, now);
            return None;
        }
        let answer = OobSetup {
            destination: source,
            source: destination,
            expects: seat.peer.initial_psn,
            begins: seat.ours.map(|(begins, _)| begins),
            refusal: None,
        };
        let depths = (seat.peer.reads, seat.ours.map_or(u16::MAX, |(_, reads)| reads));
        if self.accept_end(held.end, qp, depths, &answer.bytes(), now).is_ok() {
            self.ends.of.insert(held.end, EndUse::Meeting(qp));
            if let Some(entry) = self.qps.entries.get_mut(&qp) {
                entry.end = Some(held.end);
                if let Some(seat) = &mut entry.oob {
                    seat.theirs = Some(held.setup);
                }
            }
        }
        None
    }

    fn is_same_user(&self, end: u32) -> bool {
        self.board.is_some()
            || self
                .core
                .addresses(end)
                .is_some_and(|(local, peer)| self.socket_owners.is_allowed(local, peer))
    }

    // ---- time

    pub(super) fn oob_deadline(&self) -> Instant {
        self.qps.timers.peek().map_or(Instant::NEVER, |Reverse((at, _))| *at)
    }

    /// Schedules a retry for a connection of the connection manager.
    pub(super) fn ask_at(&mut self, at: Instant, end: u32) {
        self.qps.timers.push(Reverse((at, Timer::CmRetry(end))));
    }

    pub(super) fn fire_timers(&mut self, now: Instant) {
        while let Some(&Reverse((at, timer))) = self.qps.timers.peek()
            && at <= now
        {
            self.qps.timers.pop();
            match timer {
                Timer::ConnectRetry(qp) => self.call(qp, now),
                Timer::ConnectTimeout(qp) => self.lose_patience(qp, now),
                Timer::Abandoned(qp) => self.lose(qp),
                Timer::CmRetry(end) => self.after_pause(end, now),
            }
        }
    }

    /// Handles a peer that has left while work is pending. The work fails only after the time that the
    /// configured retries would take. Messages that other peers sent earlier therefore complete first, as
    /// programs written for InfiniBand expect.
    pub(super) fn on_abandoned(&mut self, qp: u32, now: Instant) {
        let seat = self.qps.entries.get(&qp).and_then(|entry| entry.oob.as_ref());
        let patience =
            seat.and_then(|seat| seat.connect_timeout).map_or(ABANDONED, |patience| patience.min(ABANDONED));
        self.qps.timers.push(Reverse((now + patience, Timer::Abandoned(qp))));
    }

    fn lose(&mut self, qp: u32) {
        // The queue pair may have been destroyed or reset in the meantime.
        let has_left = self.board.is_some() || self.core.nic.core.has_outlived_peer(qp);
        if self.has_sends(qp) && has_left {
            self.give_up(qp);
            self.has_events = true;
        }
    }

    fn lose_patience(&mut self, qp: u32, now: Instant) {
        let has_sends = self.has_sends(qp);
        let Some(entry) = self.qps.entries.get_mut(&qp) else { return };
        let Some(seat) = entry.oob.as_ref().filter(|seat| seat.theirs.is_none()) else { return };
        let Some(patience) = seat.connect_timeout else { return };
        if !has_sends {
            return self.qps.timers.push(Reverse((now + patience, Timer::ConnectTimeout(qp))));
        }
        warn_of_silence(seat.peer.address);
        entry.state = State::Error;
        entry.oob = None;
        let end = entry.end.take();
        self.give_up(qp);
        if let Some(end) = end {
            self.ends.of.remove(&end);
            match self.board {
                Some(_) => self.forget_end(end, now),
                None => self.core.remove_after_flush(end, now),
            }
        }
        self.has_events = true;
    }
}
