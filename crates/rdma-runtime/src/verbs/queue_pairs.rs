//! Queue pairs: their verbs states, and their out-of-band connections.
//!
//! ```text
//!   Reset ── ready ──▶ Init ── ready_to_receive ──▶ Rtr ── ready_to_send ──▶ Rts
//!     ▲  any ── set_error, or an error ──▶ Error                             │
//!     └────────────────────────── reset, from any ───────────────────────────┘
//! ```
//!
//! Direction         the end with the greater (address, number) connects to the port contained in the other
//!                   end's number. It connects as soon as it is ready to send, or after it has been ready to
//!                   receive for a while. The other end listens.
//! Identification    an incoming connection is accepted if it comes from the address and queue pair that the
//!                   program specified, and if each side's initial PSN is the one that the other side
//!                   expects. On one host, it must also belong to the same user.
//! Queued sends      sends are queued once a queue pair is ready to send, and sent when the two queue pairs
//!                   are connected. If the peer does not connect in time ([`Engine::ready_to_send`]), the
//!                   oldest send fails as if its retries were exhausted.
//! Waiting           an incoming connection waits until its queue pair is ready. The number of connections
//!                   per queue pair and the waiting time are bounded.
//! Completion        a reliable queue pair's send completes when the peer has acknowledged its arrival, as
//!                   in InfiniBand: by then, a Write's bytes are in the peer's memory. A request that the
//!                   peer refuses completes with an error.
//! Self-connection   a queue pair connected to itself (programs do so to move data within one process) gets
//!                   a second, hidden half. It has the same completion queue and number, sends what is
//!                   posted, and is the peer of the first half. A type 2 window bound through the second
//!                   half does not belong to the first half, so it cannot be used.
//! Once connected    access rights, ordering and error recovery are those of iWARP.
//! Limits            an unreliable queue pair (UC) loses no messages: it also uses a stream, but without
//!                   acknowledgements. If a reliable queue pair is connected to an unreliable one, its
//!                   messages are not acknowledged.

use super::ends::EndUse;
use super::engine::Engine;
use super::engine_state::EngineState;
use super::oob::{PAUSE, oob_config};
use super::pairs::{Entry, OobConnection, Peer, QueuePair, Sending, Service, State, Timer};
use super::ports::port_of;
use kiban_base::Instant;
use kiban_os::turn::Machine;
use kiban_rdma::hif::Request;
use kiban_rdma::rnic::{Access, QpAttributes, QpState, ReceiveWork, RequestError, SendWork, StreamTraits};
use std::cmp::Reverse;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How long the connecting side waits after it is ready to receive before it connects without being ready to
/// send.
pub(super) const ONLY_RECEIVES: Duration = Duration::from_millis(100);

fn traits(reads: u16, ours: u16) -> StreamTraits {
    StreamTraits { ird: reads, ord: ours, extensions: true, kiban: true, may_send: false }
}

impl Engine {
    /// Creates a queue pair. Returns its number for use in calls, and the 24-bit number that programs and
    /// peers use.
    ///
    /// # Errors
    /// The NIC refuses, or the address is not local.
    pub fn create_qp(&self, made: QueuePair) -> io::Result<Result<(u32, u32), RequestError>> {
        if self.board.is_some() {
            return self.create_qp_on_board(made);
        }
        self.turn.work(|board, _| board.create_qp(made))
    }

    /// Destroys a queue pair in any state, or one of the handles of a target ([`Engine::open_target`]).
    /// Completed sends still arrive; completions that were not polled are dropped.
    ///
    /// # Errors
    /// The queue pair is unknown, or attached to a multicast group.
    pub fn destroy_qp(&self, qp: u32) -> Result<(), RequestError> {
        if self.board.is_some() {
            return self.destroy_qp_on_board(qp);
        }
        self.turn.work(|board, now| {
            if board.is_attached(qp) {
                return Err(RequestError::InUse);
            }
            if board.xrc.release_target(qp) { board.destroy_qp(qp, now) } else { Ok(()) }
        })
    }

    /// Returns the state of a queue pair.
    ///
    /// # Errors
    /// The queue pair is unknown.
    pub fn state(&self, qp: u32) -> Result<State, RequestError> {
        self.turn.read(|board| board.state(qp))
    }

    /// Returns the queue pair with this number at an address.
    pub fn qp_named(&self, address: IpAddr, qpn: u32) -> Option<u32> {
        self.turn.read(|board| board.qps.named(address, qpn))
    }

    /// Moves a new queue pair to Init, so that receives may be posted. For a datagram queue pair, `qkey` is
    /// the Q_Key that incoming datagrams must have.
    ///
    /// # Errors
    /// The queue pair is unknown, or in another state.
    pub fn modify_to_init(&self, qp: u32, qkey: u32) -> Result<(), RequestError> {
        self.turn.work(|board, _| board.ready(qp, qkey))
    }

    /// Changes the Q_Key that incoming datagrams must have.
    ///
    /// # Errors
    /// The queue pair is unknown.
    pub fn set_qkey(&self, qp: u32, qkey: u32) -> Result<(), RequestError> {
        self.turn.work(|board, _| board.set_qkey(qp, qkey))
    }

    /// Restricts peers' access to memory through this queue pair, in addition to the restrictions of the
    /// steering tags.
    ///
    /// # Errors
    /// The queue pair is unknown.
    pub fn set_remote_access(&self, qp: u32, access: Access) -> Result<(), RequestError> {
        if self.board.is_some() {
            self.tell_board(&Request::SetRemoteAccess { qp, access });
            return Ok(());
        }
        self.turn.work(|board, _| board.core.nic.core.set_remote_access(qp, access))
    }

    /// Moves a queue pair to Rtr, in which it accepts messages from `peer`. A datagram queue pair accepts
    /// them from any sender that knows the Q_Key.
    ///
    /// # Errors
    /// The queue pair is unknown or in another state, or its port cannot listen.
    pub fn modify_to_rtr(&self, qp: u32, peer: Option<Peer>) -> io::Result<Result<(), RequestError>> {
        if self.board.is_some() {
            return Ok(self.modify_to_rtr_on_board(qp, peer));
        }
        self.turn.work(|board, now| board.ready_to_receive(qp, peer, now))
    }

    /// Moves a queue pair to Rts.
    ///
    /// # Errors
    /// The queue pair is unknown, or in another state.
    pub fn modify_to_rts(&self, qp: u32, sending: Sending) -> Result<(), RequestError> {
        if self.board.is_some() {
            return self.modify_to_rts_on_board(qp, sending);
        }
        self.turn.work(|board, now| board.ready_to_send(qp, sending, now))
    }

    /// Moves a queue pair to Error: work is flushed and its connection is cut.
    ///
    /// # Errors
    /// The queue pair is unknown.
    pub fn modify_to_error(&self, qp: u32) -> Result<(), RequestError> {
        self.turn.work(|board, now| board.set_error(qp, now))
    }

    /// Resets a queue pair. Its work and completions are dropped, and its connection ends.
    ///
    /// # Errors
    /// The queue pair is unknown.
    pub fn reset(&self, qp: u32) -> Result<(), RequestError> {
        if self.board.is_some() {
            return self.reset_qp_on_board(qp);
        }
        self.turn.work(|board, now| board.reset(qp, now))
    }

    /// Posts several work requests, which are sent together.
    ///
    /// # Errors
    /// A request was refused: returns the reason, and the number accepted before it.
    #[inline]
    pub fn post_sends(
        &self,
        qp: u32,
        works: impl IntoIterator<Item = SendWork>,
    ) -> Result<(), (usize, RequestError)> {
        if self.board.is_some() {
            return self.post_sends_on_board(qp, works);
        }
        self.turn.work(|board, _| {
            let qp = board.qps.sender(qp);
            for (taken, work) in works.into_iter().enumerate() {
                board.core.nic.core.post_send(qp, work).map_err(|refusal| (taken, refusal))?;
            }
            Ok(())
        })
    }

    /// Posts several sends: either all or none.
    ///
    /// # Errors
    /// There is no room for all of them, or the first is refused. A later one can be refused only for a
    /// reason that the caller could have known.
    pub fn post_sends_together(
        &self,
        qp: u32,
        works: impl ExactSizeIterator<Item = SendWork>,
    ) -> Result<(), RequestError> {
        if self.board.is_some() {
            return self.post_sends_together_on_board(qp, works);
        }
        self.turn.work(|board, _| {
            let qp = board.qps.sender(qp);
            let core = &mut board.core.nic.core;
            if core.room_for_sends(qp) < works.len() {
                return Err(RequestError::Full);
            }
            works.into_iter().try_for_each(|work| core.post_send(qp, work))
        })
    }

    /// Posts receives.
    ///
    /// # Errors
    /// A receive was refused: returns the reason, and the number accepted before it.
    #[inline]
    pub fn post_receives(
        &self,
        qp: u32,
        works: impl IntoIterator<Item = ReceiveWork>,
    ) -> Result<(), (usize, RequestError)> {
        if self.board.is_some() {
            return self.post_receives_on_board((qp, None), works);
        }
        self.turn.work(|board, _| {
            board.posted_receives = true;
            for (taken, work) in works.into_iter().enumerate() {
                board.core.nic.core.post_receive(qp, work).map_err(|refusal| (taken, refusal))?;
            }
            Ok(())
        })
    }
}

impl EngineState {
    fn create_qp(&mut self, made: QueuePair) -> io::Result<Result<(u32, u32), RequestError>> {
        let QueuePair { address, service, attributes, async_events: events, cookie } = made;
        let core = &mut self.core.nic.core;
        let created = match service {
            Service::Connected | Service::Unreliable | Service::XrcInitiator => core.create_qp(attributes),
            Service::Datagrams => core.create_datagram_qp(attributes),
            Service::XrcTarget(domain) => core.create_xrc_target(domain),
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
        let _ = self.core.nic.core.set_qpn(qp, qpn);
        self.qps.names.insert((address, qpn), qp);
        let state = State::Reset;
        let entry =
            Entry { qpn, address, service, events, cookie, state, oob: None, end: None, qkey: 0, attributes };
        self.qps.entries.insert(qp, entry);
        Ok(Ok((qp, qpn)))
    }

    fn take_number(&mut self, address: IpAddr, service: Service) -> io::Result<u32> {
        let qpn = self.ports.take_number(address)?;
        let Some(port) = self.ports.port(address, qpn) else { return Ok(qpn) };
        let opened = match &mut self.roce {
            Some(roce) => roce.open_port(port),
            None if self.core.has_efe_ports() => port.open_for_efe(&mut self.core),
            None if service == Service::Datagrams => self.datagrams.open_port(port),
            None => Ok(()),
        };
        if let Err(error) = opened {
            self.give_number_back(address, qpn);
            return Err(error);
        }
        Ok(qpn)
    }

    fn give_number_back(&mut self, address: IpAddr, qpn: u32) {
        if let Some(listener) = self.ports.give_back(address, qpn) {
            self.core.unlisten(listener, Instant::ZERO);
        }
        if self.core.has_efe_ports() && self.ports.port(address, qpn).is_none() {
            self.core.close_efe_port(SocketAddr::new(address, port_of(qpn)));
        }
    }

    /// Adds a second half to a queue pair that is to be connected to itself. Returns the number by which
    /// peers know that half.
    fn add_half(&mut self, qp: u32) -> io::Result<Result<u32, RequestError>> {
        let Some(entry) = self.qps.entries.get(&qp) else { return Ok(Err(RequestError::UnknownQp)) };
        let (qpn, events) = (entry.qpn, entry.events.clone());
        // The second half receives nothing, since the first half never sends.
        let attributes = QpAttributes { srq: None, receive_work_max: 1, ..entry.attributes };
        let Entry { address, service, cookie, .. } = *entry;
        let (half, number) =
            match self.create_qp(QueuePair { address, service, attributes, async_events: events, cookie })? {
                Ok(made) => made,
                Err(refusal) => return Ok(Err(refusal)),
            };
        let named = self.core.nic.core.set_qpn(half, qpn).and_then(|()| self.ready(half, 0));
        self.qps.halves.insert(qp, half);
        Ok(named.map(|()| number))
    }

    /// Destroys the second half, if there is one.
    fn drop_half(&mut self, qp: u32, now: Instant) {
        if let Some(half) = self.qps.halves.remove(&qp) {
            let _ = self.destroy_qp(half, now);
        }
    }

    fn destroy_qp(&mut self, qp: u32, now: Instant) -> Result<(), RequestError> {
        self.drop_half(qp, now);
        self.announce_leave(qp, now);
        let entry = self.qps.entries.remove(&qp).ok_or(RequestError::UnknownQp)?;
        self.qps.names.remove(&(entry.address, entry.qpn));
        self.leave(qp, entry.end, now);
        match &mut self.roce {
            Some(roce) => roce.close(&mut self.ports, qp, entry.address, entry.qpn),
            None if entry.service == Service::Datagrams => {
                self.datagrams.close(&mut self.ports, entry.address, entry.qpn);
            }
            None => {}
        }
        self.give_number_back(entry.address, entry.qpn);
        Ok(())
    }

    /// Sends the last acknowledgements, and announces to a peer that waits for acknowledgements that this end
    /// is leaving.
    fn announce_leave(&mut self, qp: u32, now: Instant) {
        // A program that has received a message may end before the message was acknowledged.
        if let Some(roce) = &mut self.roce {
            roce.send(&mut self.core, &self.qps, &mut self.ports, now);
        }
        if self.core.nic.core.acknowledges(qp) {
            // This fails if the queue pair has ended.
            let _ = self.core.nic.core.announce_leave(qp);
            self.core.flush(now);
        }
    }

    /// Destroys the core's queue pair and closes its connection, whether it was made out of band or by the
    /// connection manager.
    fn leave(&mut self, qp: u32, met: Option<u32>, now: Instant) {
        let end = self.core.nic.end_of(qp).or(met);
        self.core.nic.core.forget_completions(qp);
        // Destroy the queue pair first: a program that has destroyed it must not receive flushed
        // completions.
        let _ = self.core.nic.core.destroy_qp(qp);
        let Some(end) = end else { return };
        match self.ends.of.get(&end) {
            // The connection manager's identifier may still refer to it.
            Some(EndUse::Manager(..)) => self.end_without_qp(end, now),
            _ => {
                self.ends.of.remove(&end);
                self.core.remove_after_flush(end, now);
            }
        }
    }

    pub(super) fn state(&self, qp: u32) -> Result<State, RequestError> {
        if self.board.is_some() {
            return self.board_state(qp);
        }
        let entry = self.qps.entries.get(&qp).ok_or(RequestError::UnknownQp)?;
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
            QpState::Rts if entry.oob.is_some() || self.roce.is_some() => entry.state,
            QpState::Rts => State::Rts,
            QpState::Closing | QpState::Terminate | QpState::Error => State::Error,
        })
    }

    pub(super) fn entry(&mut self, qp: u32, state: State) -> Result<&mut Entry, RequestError> {
        let found = self.state(qp)?;
        let entry = self.qps.entries.get_mut(&qp).ok_or(RequestError::UnknownQp)?;
        if found == state { Ok(entry) } else { Err(RequestError::BadState(QpState::Idle)) }
    }

    pub(super) fn ready(&mut self, qp: u32, qkey: u32) -> Result<(), RequestError> {
        let entry = self.entry(qp, State::Reset)?;
        entry.state = State::Init;
        entry.qkey = qkey;
        Ok(())
    }

    fn set_qkey(&mut self, qp: u32, qkey: u32) -> Result<(), RequestError> {
        let entry = self.qps.entries.get_mut(&qp).ok_or(RequestError::UnknownQp)?;
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
    ) -> io::Result<Result<(), RequestError>> {
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
        let Some(mut peer) = peer else { return Ok(Err(RequestError::BadAddress)) };
        if let Some(roce) = &mut self.roce {
            let Some(port) = self.ports.port(address, qpn) else {
                return Ok(Err(RequestError::BadNumber));
            };
            let connected = roce.connect(&mut self.core, qp, service, port, &peer);
            if connected.is_ok()
                && let Some(entry) = self.qps.entries.get_mut(&qp)
            {
                entry.state = State::Rtr;
            }
            return Ok(connected);
        }
        if (address, qpn) == (peer.address, peer.qpn) {
            peer.qpn = match self.add_half(qp)? {
                Ok(number) => number,
                Err(refusal) => return Ok(Err(refusal)),
            };
        }
        let calls = (address, qpn) > (peer.address, peer.qpn);
        let core = &mut self.core.nic.core;
        let set = match service {
            Service::Connected => core.outlive_peer_close(qp).and_then(|()| core.acknowledge(qp)),
            _ => core.outlive_peer_close(qp),
        };
        if let Err(refusal) = set {
            return Ok(Err(refusal));
        }
        if !calls && let Some(port) = self.ports.port(address, qpn) {
            if self.core.has_efe_ports() {
                if port.listener.is_none() {
                    port.listener = Some(self.core.listen_at_efe_port(port.udp.local())?);
                }
            } else if let Some(listener) = port.listen()? {
                port.listener = Some(self.core.listen_at(listener, oob_config())?);
            }
        }
        if let Some(entry) = self.qps.entries.get_mut(&qp) {
            entry.state = State::Rtr;
            entry.oob = Some(OobConnection {
                peer,
                ours: None,
                connect_timeout: None,
                calls,
                pause: PAUSE.0,
                theirs: None,
            });
        }
        if calls {
            self.qps.timers.push(Reverse((now + ONLY_RECEIVES, Timer::ConnectRetry(qp))));
        } else {
            self.retry_pending(qp, now);
        }
        Ok(Ok(()))
    }

    pub(super) fn ready_to_send(
        &mut self,
        qp: u32,
        sending: Sending,
        now: Instant,
    ) -> Result<(), RequestError> {
        let Sending { initial_psn: begins, reads, connect_timeout: patience, .. } = sending;
        let speaks_roce = self.roce.is_some();
        let entry = self.entry(qp, State::Rtr)?;
        entry.state = State::Rts;
        if entry.service == Service::Datagrams {
            let qkey = entry.qkey;
            return self.core.nic.core.set_datagram_state(qp, true, true, qkey);
        }
        if speaks_roce {
            return super::roce::start(&mut self.core, qp, &sending);
        }
        let Some(seat) = &mut entry.oob else { return Err(RequestError::BadState(QpState::Idle)) };
        seat.ours = Some((begins, reads));
        seat.connect_timeout = patience;
        let (peer, calls, theirs) = (seat.peer, seat.calls, seat.theirs);
        let myself = Peer { address: entry.address, qpn: entry.qpn, initial_psn: begins, reads, ..peer };
        if let Some(&half) = self.qps.halves.get(&qp) {
            let ready = self.ready_to_receive(half, Some(myself), now);
            ready.unwrap_or(Err(RequestError::BadAddress))?;
            self.ready_to_send(half, Sending { initial_psn: peer.initial_psn, ..sending }, now)?;
        }
        match theirs {
            // The two queue pairs are already connected; only now check that the peer expects our initial
            // PSN.
            Some(theirs) if theirs.expects == begins => {}
            Some(_) => self.core.nic.core.abort(qp)?,
            None => {
                self.core.nic.core.expect_stream(qp, traits(peer.reads, reads))?;
                if let Some(patience) = patience {
                    self.qps.timers.push(Reverse((now + patience, Timer::ConnectTimeout(qp))));
                }
                if calls {
                    self.call(qp, now);
                } else {
                    self.retry_pending(qp, now);
                }
            }
        }
        Ok(())
    }

    pub(super) fn set_error(&mut self, qp: u32, now: Instant) -> Result<(), RequestError> {
        if self.board.is_some() {
            return self.set_error_on_board(qp);
        }
        if let Some(&half) = self.qps.halves.get(&qp) {
            self.set_error(half, now)?;
        }
        self.announce_leave(qp, now);
        let entry = self.qps.entries.get_mut(&qp).ok_or(RequestError::UnknownQp)?;
        entry.state = State::Error;
        entry.oob = None;
        let end = entry.end.take();
        self.core.nic.core.abort(qp)?;
        if let Some(end) = end {
            self.ends.of.remove(&end);
            self.core.remove_after_flush(end, now);
        }
        Ok(())
    }

    fn reset(&mut self, qp: u32, now: Instant) -> Result<(), RequestError> {
        self.drop_half(qp, now);
        self.announce_leave(qp, now);
        let entry = self.qps.entries.get_mut(&qp).ok_or(RequestError::UnknownQp)?;
        entry.state = State::Reset;
        entry.oob = None;
        if let Some(end) = entry.end.take() {
            self.ends.of.remove(&end);
            self.core.remove_after_flush(end, now);
        }
        if let Some(roce) = &mut self.roce {
            roce.disconnect(qp);
        }
        self.core.nic.core.abort(qp)?;
        self.core.nic.core.forget_completions(qp);
        self.core.nic.reset(qp)
    }
}
