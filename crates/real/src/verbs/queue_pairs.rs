//! Queue pairs by their verbs states, and how two of them meet out of band.
//!
//! ```text
//!   Reset ── ready ──▶ Init ── ready_to_receive ──▶ Rtr ── ready_to_send ──▶ Rts
//!     ▲  any ── set_error, or something goes wrong ──▶ Error                  │
//!     └────────────────────────── reset, from any ───────────────────────────┘
//! ```
//!
//! Who calls The end with the greater (address, number) connects to the port that the other's number names, as soon as it is
//!           ready to send, or has been ready to receive for a while. The other listens.
//! Who is it A caller is let in when it comes from the address, and is the queue pair, that the program named, and when each
//!           begins with the PSN that the other was told to expect. On one host it must be the same user's.
//! Early     sends are queued from when a queue pair is ready to send; they leave when the two have met. A peer that does not
//!           come in time ([`Engine::ready_to_send`]) ends the oldest as unanswered, as retries that are exhausted do.
//! Held      a caller that comes before its queue pair is ready waits; few for each, and not for ever.
//! Done      what a reliable queue pair sends is done when the peer says that it has arrived, as in InfiniBand: a Write's bytes
//!           are in the peer's memory, and what the peer refuses ends as refused.
//! Itself    a queue pair that is connected with itself (programs do so to move data within one process) gets another half,
//!           which nobody sees: it has the same completion queue and name, sends what is posted, and is the first's peer. A
//!           type 2 window that it binds is not the first's, so peers' use of it is refused.
//! After     rights, order and recovery are iWARP's.
//! Limits    an unreliable queue pair (UC) loses nothing: it is a stream too, without the answers. One that is met by a reliable
//!           one does not answer it.

use super::board::Board;
use super::connections::EndUse;
use super::{Channel, Engine, Happening, What};
use crate::rdma::core::Way;
use crate::turn::Machine;
use kiban_ground::Instant;
use kiban_stack::iwarp::mpa;
use kiban_stack::iwarp::rnic::{Access, QpAttributes, QpState, ReceiveWork, Refusal, SendWork, StreamTraits};
use kiban_wire::meeting::{self, Meeting};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// How long a caller that is ready to receive waits for its program to make it ready to send.
const ONLY_RECEIVES: Duration = Duration::from_millis(100);
/// The first and the longest pause before a caller tries again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));
/// How long at most work waits for a peer that has gone.
const ABANDONED: Duration = Duration::from_secs(1);
/// Callers that wait for one queue pair to become ready.
const HELD_MAX: usize = 4;

/// How queue pairs serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// A reliable connection with one other (RC).
    Connected,
    /// A connection with one other that answers nothing (UC).
    Unreliable,
    /// Single datagrams from and to anybody (UD).
    Datagrams,
}

/// Where a queue pair stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    /// As new.
    Reset,
    /// Receives may be posted.
    Init,
    /// Messages are taken.
    Rtr,
    /// Everything.
    Rts,
    /// Over: everything is flushed.
    Error,
}

/// What a queue pair is made with.
pub struct QueuePair {
    /// The device: the address that it has on the network.
    pub address: IpAddr,
    /// How it serves.
    pub service: Service,
    /// Queues, their sizes, their domain.
    pub attributes: QpAttributes,
    /// Where it tells what happens to it.
    pub happenings: Arc<Channel<Happening>>,
    /// What the program calls it.
    pub cookie: u64,
}

/// Whom a queue pair meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The peer's address: what its GID names.
    pub address: IpAddr,
    /// The peer's number.
    pub qpn: u32,
    /// The PSN that the peer begins with.
    pub begins: u32,
    /// Reads and atomics of the peer's under way, at most.
    pub reads: u16,
}

/// How a meeting goes.
struct Seat {
    peer: Peer,
    /// The PSN that we begin with, and our reads under way; from when we are ready to send.
    ours: Option<(u32, u16)>,
    /// How long sends wait for the peer; none: for ever.
    patience: Option<Duration>,
    /// We are the one that connects.
    calls: bool,
    pause: Duration,
    /// What the peer said.
    theirs: Option<Meeting>,
}

/// A queue pair.
pub(super) struct Entry {
    pub(super) qpn: u32,
    pub(super) address: IpAddr,
    pub(super) service: Service,
    happenings: Arc<Channel<Happening>>,
    cookie: u64,
    state: State,
    seat: Option<Seat>,
    /// Its connection, if a meeting made it.
    end: Option<u32>,
    /// What datagrams must have.
    qkey: u32,
    /// For another half like it.
    attributes: QpAttributes,
}

/// A caller that waits for its queue pair.
pub(super) struct Held {
    end: u32,
    address: IpAddr,
    from: SocketAddr,
    local: SocketAddr,
    meeting: Meeting,
}

/// What a queue pair waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Alarm {
    /// To try again.
    Call(u32),
    /// For its peer, for too long.
    Patience(u32),
    /// For a peer that has gone.
    Abandoned(u32),
    /// The connection manager's end: to ask again.
    Ask(u32),
}

/// The queue pairs of the process, by the numbers of the NIC's core.
#[derive(Default)]
pub(super) struct QueuePairs {
    entries: HashMap<u32, Entry>,
    names: HashMap<(IpAddr, u32), u32>,
    /// Who sends for those that are connected with themselves.
    halves: HashMap<u32, u32>,
    pub(super) held: Vec<Held>,
    alarms: BinaryHeap<Reverse<(Instant, Alarm)>>,
}

impl QueuePairs {
    /// Tells whoever made a queue pair what has happened to it.
    pub(super) fn tell(&self, qp: u32, what: What) {
        if let Some(entry) = self.entries.get(&qp) {
            entry.happenings.tell(Happening { cookie: entry.cookie, what });
        }
    }

    pub(super) fn get(&self, qp: u32) -> Option<&Entry> {
        self.entries.get(&qp)
    }

    /// Who sends for a queue pair: mostly itself.
    #[inline]
    fn sender(&self, qp: u32) -> u32 {
        if self.halves.is_empty() { qp } else { self.halves.get(&qp).copied().unwrap_or(qp) }
    }

    /// The queue pair of a number at an address.
    pub(super) fn named(&self, address: IpAddr, qpn: u32) -> Option<u32> {
        self.names.get(&(address, qpn)).copied()
    }
}

/// What out-of-band connections begin with: either side may speak first, and both are kiban's.
fn meeting_config() -> mpa::Config {
    mpa::Config { extensions: true, peer_to_peer: true, ..mpa::Config::default() }
}

fn traits(reads: u16, ours: u16) -> StreamTraits {
    StreamTraits { ird: reads, ord: ours, extensions: true, kiban: true, may_send: false }
}

impl Engine {
    /// A queue pair: its number for calls, and the 24 bits by which programs and peers know it.
    ///
    /// # Errors
    /// The NIC refuses, or the address is not this host's.
    pub fn create_qp(&self, made: QueuePair) -> io::Result<Result<(u32, u32), Refusal>> {
        self.turn.work(|board, _| board.create_qp(made))
    }

    /// Gives a queue pair back, in whatever state. What it sent and completed still arrives; its completions that nobody
    /// polled are forgotten.
    ///
    /// # Errors
    /// There is no such queue pair.
    pub fn destroy_qp(&self, qp: u32) -> Result<(), Refusal> {
        self.turn.work(|board, now| board.destroy_qp(qp, now))
    }

    /// Where a queue pair stands now.
    ///
    /// # Errors
    /// There is no such queue pair.
    pub fn state(&self, qp: u32) -> Result<State, Refusal> {
        self.turn.read(|board| board.state(qp))
    }

    /// The queue pair of a number at an address.
    pub fn qp_named(&self, address: IpAddr, qpn: u32) -> Option<u32> {
        self.turn.read(|board| board.qps.named(address, qpn))
    }

    /// Makes a new queue pair ready for receives to be posted. Of a datagram queue pair, `qkey` is the Q_Key that its
    /// datagrams must have.
    ///
    /// # Errors
    /// It is in another state.
    pub fn ready(&self, qp: u32, qkey: u32) -> Result<(), Refusal> {
        self.turn.work(|board, _| board.ready(qp, qkey))
    }

    /// Changes the Q_Key that datagrams must have.
    ///
    /// # Errors
    /// There is no such queue pair.
    pub fn set_qkey(&self, qp: u32, qkey: u32) -> Result<(), Refusal> {
        self.turn.work(|board, _| board.set_qkey(qp, qkey))
    }

    /// What peers may do with memory through a queue pair, beside what its tags allow.
    ///
    /// # Errors
    /// There is no such queue pair.
    pub fn set_remote_access(&self, qp: u32, access: Access) -> Result<(), Refusal> {
        self.turn.work(|board, _| board.core.nic.core.set_remote_access(qp, access))
    }

    /// Takes messages from now on: of whoever knows the Q_Key, or, with a peer, of that one.
    ///
    /// # Errors
    /// It is in another state, or its port cannot listen.
    pub fn ready_to_receive(&self, qp: u32, peer: Option<Peer>) -> io::Result<Result<(), Refusal>> {
        self.turn.work(|board, now| board.ready_to_receive(qp, peer, now))
    }

    /// Sends from now on, beginning with the PSN `begins`; `reads` of its own are under way at most. A send that finds no
    /// peer for as long as `patience` ends with an error; none: it waits for ever.
    ///
    /// # Errors
    /// It is in another state.
    pub fn ready_to_send(
        &self,
        qp: u32,
        begins: u32,
        reads: u16,
        patience: Option<Duration>,
    ) -> Result<(), Refusal> {
        self.turn.work(|board, now| board.ready_to_send(qp, begins, reads, patience, now))
    }

    /// Everything ends now: work is flushed, a connection is cut.
    ///
    /// # Errors
    /// There is no such queue pair.
    pub fn set_error(&self, qp: u32) -> Result<(), Refusal> {
        self.turn.work(|board, now| board.set_error(qp, now))
    }

    /// A queue pair is as new again. Its work and its completions are forgotten, its connection ends.
    ///
    /// # Errors
    /// There is no such queue pair.
    pub fn reset(&self, qp: u32) -> Result<(), Refusal> {
        self.turn.work(|board, now| board.reset(qp, now))
    }

    /// Posts sends, which leave together.
    ///
    /// # Errors
    /// The first refusal, with how many had been taken.
    #[inline]
    pub fn post_sends(
        &self,
        qp: u32,
        works: impl IntoIterator<Item = SendWork>,
    ) -> Result<(), (usize, Refusal)> {
        self.turn.work(|board, _| {
            let qp = board.qps.sender(qp);
            for (taken, work) in works.into_iter().enumerate() {
                board.core.nic.core.post_send(qp, work).map_err(|refusal| (taken, refusal))?;
            }
            Ok(())
        })
    }

    /// Posts sends, all or none.
    ///
    /// # Errors
    /// There is no room for all, or the first is refused; another is refused for what the caller could know.
    pub fn post_sends_together(
        &self,
        qp: u32,
        works: impl ExactSizeIterator<Item = SendWork>,
    ) -> Result<(), Refusal> {
        self.turn.work(|board, _| {
            let qp = board.qps.sender(qp);
            let core = &mut board.core.nic.core;
            if core.room_for_sends(qp) < works.len() {
                return Err(Refusal::Full);
            }
            works.into_iter().try_for_each(|work| core.post_send(qp, work))
        })
    }

    /// Posts receives.
    ///
    /// # Errors
    /// The first refusal, with how many had been taken.
    #[inline]
    pub fn post_receives(
        &self,
        qp: u32,
        works: impl IntoIterator<Item = ReceiveWork>,
    ) -> Result<(), (usize, Refusal)> {
        self.turn.work(|board, _| {
            for (taken, work) in works.into_iter().enumerate() {
                board.core.nic.core.post_receive(qp, work).map_err(|refusal| (taken, refusal))?;
            }
            Ok(())
        })
    }
}

impl Board {
    fn create_qp(&mut self, made: QueuePair) -> io::Result<Result<(u32, u32), Refusal>> {
        let QueuePair { address, service, attributes, happenings, cookie } = made;
        let core = &mut self.core.nic.core;
        let created = match service {
            Service::Connected | Service::Unreliable => core.create_qp(attributes),
            Service::Datagrams => core.create_datagram_qp(attributes),
        };
        let qp = match created {
            Ok(qp) => qp,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let qpn = match self.take_number(address, service) {
            Ok(qpn) => qpn,
            Err(error) => {
                let _ = self.core.nic.core.destroy_qp(qp);
                return Err(error);
            }
        };
        let _ = self.core.nic.core.set_name(qp, qpn);
        self.qps.names.insert((address, qpn), qp);
        let state = State::Reset;
        let entry = Entry {
            qpn,
            address,
            service,
            happenings,
            cookie,
            state,
            seat: None,
            end: None,
            qkey: 0,
            attributes,
        };
        self.qps.entries.insert(qp, entry);
        Ok(Ok((qp, qpn)))
    }

    fn take_number(&mut self, address: IpAddr, service: Service) -> io::Result<u32> {
        let qpn = self.ports.take_number(address)?;
        if service == Service::Datagrams
            && let Some(port) = self.ports.port(address, qpn)
            && let Err(error) = self.datagrams.open_port(port)
        {
            self.give_number_back(address, qpn);
            return Err(error);
        }
        Ok(qpn)
    }

    fn give_number_back(&mut self, address: IpAddr, qpn: u32) {
        if let Some(listener) = self.ports.give_back(address, qpn) {
            self.core.unlisten(listener, Instant::ZERO);
        }
    }

    /// Another half for a queue pair that is to be connected with itself: its number for peers.
    fn add_half(&mut self, qp: u32) -> io::Result<Result<u32, Refusal>> {
        let Some(entry) = self.qps.entries.get(&qp) else { return Ok(Err(Refusal::UnknownQp)) };
        let (qpn, happenings) = (entry.qpn, entry.happenings.clone());
        // It receives nothing: the first never sends.
        let attributes = QpAttributes { srq: None, receive_work_max: 1, ..entry.attributes };
        let Entry { address, service, cookie, .. } = *entry;
        let (half, number) =
            match self.create_qp(QueuePair { address, service, attributes, happenings, cookie })? {
                Ok(made) => made,
                Err(refusal) => return Ok(Err(refusal)),
            };
        let named = self.core.nic.core.set_name(half, qpn).and_then(|()| self.ready(half, 0));
        self.qps.halves.insert(qp, half);
        Ok(named.map(|()| number))
    }

    /// The other half goes.
    fn drop_half(&mut self, qp: u32, now: Instant) {
        if let Some(half) = self.qps.halves.remove(&qp) {
            let _ = self.destroy_qp(half, now);
        }
    }

    fn destroy_qp(&mut self, qp: u32, now: Instant) -> Result<(), Refusal> {
        self.drop_half(qp, now);
        let entry = self.qps.entries.remove(&qp).ok_or(Refusal::UnknownQp)?;
        self.qps.names.remove(&(entry.address, entry.qpn));
        self.leave(qp, entry.end, now);
        if entry.service == Service::Datagrams {
            self.close_datagrams(entry.address, entry.qpn);
        }
        self.give_number_back(entry.address, entry.qpn);
        Ok(())
    }

    /// A peer that waits to hear that its last messages have arrived hears it while there is somebody to say so, and that
    /// nobody will be.
    fn say_goodbye(&mut self, qp: u32, now: Instant) {
        if self.core.nic.core.acknowledges(qp) {
            // One that is over has nothing to say.
            let _ = self.core.nic.core.part(qp);
            self.core.flush(now);
        }
    }

    /// The core's queue pair goes, and with it its connection, whoever made it.
    fn leave(&mut self, qp: u32, met: Option<u32>, now: Instant) {
        self.say_goodbye(qp, now);
        let end = self.core.nic.end_of(qp).or(met);
        self.core.nic.core.forget_completions(qp);
        // First the queue pair: nothing of it is flushed to a program that has destroyed it.
        let _ = self.core.nic.core.destroy_qp(qp);
        let Some(end) = end else { return };
        match self.ends.of.get(&end) {
            // The connection manager's identifier may hold it still.
            Some(EndUse::Manager(..)) => self.end_without_qp(end, now),
            _ => {
                self.ends.of.remove(&end);
                self.core.part(end, now);
            }
        }
    }

    fn state(&self, qp: u32) -> Result<State, Refusal> {
        let entry = self.qps.entries.get(&qp).ok_or(Refusal::UnknownQp)?;
        if entry.service == Service::Datagrams {
            return Ok(entry.state);
        }
        let (_, state, _) = self.core.nic.core.query_qp(qp)?;
        if let Some(&half) = self.qps.halves.get(&qp)
            && self.state(half)? == State::Error
        {
            return Ok(State::Error);
        }
        Ok(match state {
            QpState::Idle => entry.state,
            QpState::Rts if entry.seat.is_some() => entry.state,
            QpState::Rts => State::Rts,
            QpState::Closing | QpState::Terminate | QpState::Error => State::Error,
        })
    }

    fn entry(&mut self, qp: u32, state: State) -> Result<&mut Entry, Refusal> {
        let found = self.state(qp)?;
        let entry = self.qps.entries.get_mut(&qp).ok_or(Refusal::UnknownQp)?;
        if found == state { Ok(entry) } else { Err(Refusal::BadState(QpState::Idle)) }
    }

    fn ready(&mut self, qp: u32, qkey: u32) -> Result<(), Refusal> {
        let entry = self.entry(qp, State::Reset)?;
        entry.state = State::Init;
        entry.qkey = qkey;
        Ok(())
    }

    fn set_qkey(&mut self, qp: u32, qkey: u32) -> Result<(), Refusal> {
        let entry = self.qps.entries.get_mut(&qp).ok_or(Refusal::UnknownQp)?;
        entry.qkey = qkey;
        match (entry.service, entry.state) {
            (Service::Datagrams, State::Rtr | State::Rts) => {
                let sends = entry.state == State::Rts;
                self.core.nic.core.set_datagram_state(qp, true, sends, qkey)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn ready_to_receive(
        &mut self,
        qp: u32,
        peer: Option<Peer>,
        now: Instant,
    ) -> io::Result<Result<(), Refusal>> {
        let entry = match self.entry(qp, State::Init) {
            Ok(entry) => entry,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let (address, qpn, service) = (entry.address, entry.qpn, entry.service);
        if service == Service::Datagrams {
            entry.state = State::Rtr;
            let qkey = entry.qkey;
            return Ok(self.core.nic.core.set_datagram_state(qp, true, false, qkey));
        }
        let Some(mut peer) = peer else { return Ok(Err(Refusal::BadAddress)) };
        if (address, qpn) == (peer.address, peer.qpn) {
            peer.qpn = match self.add_half(qp)? {
                Ok(number) => number,
                Err(refusal) => return Ok(Err(refusal)),
            };
        }
        let calls = (address, qpn) > (peer.address, peer.qpn);
        let core = &mut self.core.nic.core;
        let set = match service {
            Service::Connected => core.stay(qp).and_then(|()| core.acknowledge(qp)),
            _ => core.stay(qp),
        };
        if let Err(refusal) = set {
            return Ok(Err(refusal));
        }
        if !calls
            && let Some(port) = self.ports.port(address, qpn)
            && let Some(door) = port.listen()?
        {
            let listener = self.core.listen_at(door, meeting_config())?;
            port.listener = Some(listener);
        }
        if let Some(entry) = self.qps.entries.get_mut(&qp) {
            entry.state = State::Rtr;
            entry.seat = Some(Seat { peer, ours: None, patience: None, calls, pause: PAUSE.0, theirs: None });
        }
        if calls {
            self.qps.alarms.push(Reverse((now + ONLY_RECEIVES, Alarm::Call(qp))));
        } else {
            self.judge_held(qp, now);
        }
        Ok(Ok(()))
    }

    pub(super) fn ready_to_send(
        &mut self,
        qp: u32,
        begins: u32,
        reads: u16,
        patience: Option<Duration>,
        now: Instant,
    ) -> Result<(), Refusal> {
        let entry = self.entry(qp, State::Rtr)?;
        entry.state = State::Rts;
        if entry.service == Service::Datagrams {
            let qkey = entry.qkey;
            return self.core.nic.core.set_datagram_state(qp, true, true, qkey);
        }
        let Some(seat) = &mut entry.seat else { return Err(Refusal::BadState(QpState::Idle)) };
        seat.ours = Some((begins, reads));
        seat.patience = patience;
        let (peer, calls, theirs) = (seat.peer, seat.calls, seat.theirs);
        let myself = Peer { address: entry.address, qpn: entry.qpn, begins, reads };
        if let Some(&half) = self.qps.halves.get(&qp) {
            let ready = self.ready_to_receive(half, Some(myself), now);
            ready.unwrap_or(Err(Refusal::BadAddress))?;
            self.ready_to_send(half, peer.begins, reads, patience, now)?;
        }
        match theirs {
            // They have met; now it shows whether the peer was told the same.
            Some(theirs) if theirs.expects == begins => {}
            Some(_) => self.core.nic.core.abort(qp)?,
            None => {
                self.core.nic.core.expect(qp, traits(peer.reads, reads))?;
                if let Some(patience) = patience {
                    self.qps.alarms.push(Reverse((now + patience, Alarm::Patience(qp))));
                }
                if calls {
                    self.call(qp, now);
                } else {
                    self.judge_held(qp, now);
                }
            }
        }
        Ok(())
    }

    fn set_error(&mut self, qp: u32, now: Instant) -> Result<(), Refusal> {
        if let Some(&half) = self.qps.halves.get(&qp) {
            self.set_error(half, now)?;
        }
        self.say_goodbye(qp, now);
        let entry = self.qps.entries.get_mut(&qp).ok_or(Refusal::UnknownQp)?;
        entry.state = State::Error;
        entry.seat = None;
        let end = entry.end.take();
        self.core.nic.core.abort(qp)?;
        if let Some(end) = end {
            self.ends.of.remove(&end);
            self.core.part(end, now);
        }
        Ok(())
    }

    fn reset(&mut self, qp: u32, now: Instant) -> Result<(), Refusal> {
        self.drop_half(qp, now);
        self.say_goodbye(qp, now);
        let entry = self.qps.entries.get_mut(&qp).ok_or(Refusal::UnknownQp)?;
        entry.state = State::Reset;
        entry.seat = None;
        if let Some(end) = entry.end.take() {
            self.ends.of.remove(&end);
            self.core.part(end, now);
        }
        self.core.nic.core.abort(qp)?;
        self.core.nic.core.forget_completions(qp);
        self.core.nic.reset(qp)
    }

    // ---- meeting

    /// A caller connects.
    fn call(&mut self, qp: u32, now: Instant) {
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

    /// A caller was answered.
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

    /// A connection of a meeting did not come to be, or is over.
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

    /// Somebody came to a port.
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

    /// Those who wait for a queue pair are looked at again.
    fn judge_held(&mut self, qp: u32, now: Instant) {
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

    /// A caller that waited has gone.
    pub(super) fn forget_held(&mut self, end: u32) {
        self.qps.held.retain(|held| held.end != end);
    }

    /// Lets a caller in, or refuses it, or says that it has to wait.
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
        // Neither has shown that it knows what the other was told.
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

    /// An end of the connection manager's asks again then.
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

    /// A peer has gone, and work is left. It is lost when the peer has been asked as often as the program wants: what others
    /// sent before that counts first, as it does for programs that were made for InfiniBand.
    pub(super) fn on_abandoned(&mut self, qp: u32, now: Instant) {
        let seat = self.qps.entries.get(&qp).and_then(|entry| entry.seat.as_ref());
        let patience =
            seat.and_then(|seat| seat.patience).map_or(ABANDONED, |patience| patience.min(ABANDONED));
        self.qps.alarms.push(Reverse((now + patience, Alarm::Abandoned(qp))));
    }

    fn lose(&mut self, qp: u32) {
        // It may have been destroyed meanwhile, or be another.
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
        // It expects its stream until now.
        let _ = self.core.nic.core.give_up(qp);
        if let Some(end) = end {
            self.ends.of.remove(&end);
            self.core.part(end, now);
        }
        self.news = true;
    }
}
