//! Received MADs.

use super::connection::{Connection, Patience, State};
use super::interface::{CmEvent, ConnectionId};
use super::machine::{Cm, normal, rej};
use crate::wire::roce::MadHeader;
use crate::wire::roce::cm::{
    Drep, Dreq, Message, Mra, Rej, RejectReason, RejectedMessage, Rep, Req, Rtu, ServiceType, SidrRep,
    SidrReq, SidrStatus, mtu_bytes,
};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use kiban_base::{Instant, Malformed};

/// Pauses before a request without a listener is repeated. Programs (qperf, perftest) send their peers the
/// port just before they listen at it.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
    Duration::from_millis(40),
];

/// The addresses of a received MAD, and its transaction id.
#[derive(Clone, Copy)]
struct Envelope {
    peer: SocketAddr,
    local: IpAddr,
    transaction: u64,
}

impl Cm {
    /// Handles a MAD that `from` has sent to queue pair 1 of `local`.
    ///
    /// # Errors
    /// Those of [`Message::read`]; they are counted, and the MAD has no effect.
    pub fn take(
        &mut self,
        from: SocketAddr,
        local: IpAddr,
        mad: &[u8],
        now: Instant,
    ) -> Result<(), Malformed> {
        self.counters.mads_in += 1;
        let (header, message) = Message::read(mad).inspect_err(|_| self.counters.malformed += 1)?;
        let envelope = Envelope { peer: normal(from), local, transaction: header.transaction };
        match message {
            Message::Req(req) => self.on_req(envelope, req, now),
            Message::Mra(mra) => self.on_mra(envelope, &mra, now),
            Message::Rej(rej) => self.on_rej(envelope, &rej, now),
            Message::Rep(rep) => self.on_rep(envelope, rep, now),
            Message::Rtu(rtu) => self.on_rtu(envelope, &rtu),
            Message::Dreq(dreq) => self.on_dreq(envelope, &dreq, now),
            Message::Drep(drep) => self.on_drep(envelope, &drep, now),
            Message::SidrReq(request) => self.on_sidr_req(envelope, request),
            Message::SidrRep(reply) => self.on_sidr_rep(envelope, reply, now),
        }
        Ok(())
    }

    /// Returns the state of the connection to which a message with these ids belongs. If the peer's id is not
    /// known yet, the message must have the transaction id of the request (IBTA volume 1 §12.6.4: answers
    /// repeat it): our own id alone may be guessed, because half of it is a port.
    fn matching(&mut self, envelope: Envelope, id: u32, remote_id: u32) -> Option<State> {
        let state = self.find(id).and_then(|connection| {
            let is_peer = connection.peer == envelope.peer;
            let is_answer = connection.transaction == envelope.transaction;
            (is_peer && connection.remote_id.map_or(is_answer, |known| known == remote_id))
                .then_some(connection.state)
        });
        self.counters.unmatched += u64::from(state.is_none());
        state
    }

    /// Answers a message without keeping a state.
    fn answer(&mut self, envelope: Envelope, message: &Message) {
        self.transmit(envelope.peer, envelope.local, message, envelope.transaction);
    }

    fn is_ended_by_rej(&self, id: u32) -> bool {
        matches!(self.get(id), Connection { state: State::TimeWait, sent: Some(Message::Rej(_)), .. })
    }

    fn on_req(&mut self, envelope: Envelope, req: Req, now: Instant) {
        let key = (envelope.peer, req.local_comm_id, false);
        if let Some(id) = self.by_request(key) {
            return self.on_duplicate_req(envelope, id, &req);
        }
        if let Err(reason) = self.validate(envelope, &req, now) {
            let rej = rej(0, req.local_comm_id, RejectedMessage::Req, reason);
            return self.answer(envelope, &Message::Rej(rej));
        }
        if !self.make_room_for_request(envelope.peer.ip()) {
            self.counters.requests_dropped += 1;
            return;
        }
        let id = self.draw_id();
        let patience = Patience {
            interval: self.interval(req.local_response_timeout, req.max_cm_retries + 1),
            retries: req.max_cm_retries,
            time_wait: self.time_wait(req.path.ack_timeout),
        };
        let mut connection = self.passive(envelope, State::ReqReceived, req.local_comm_id, patience);
        connection.request = Some(key);
        connection.remote_qp = Some((envelope.peer, req.ca_guid, req.qpn)).filter(|_| req.qpn != 0);
        connection.is_xrc = req.is_xrc();
        self.insert(id, connection);
        let Envelope { peer, local, .. } = envelope;
        let (connection, request) = (ConnectionId(id), Box::new(req));
        self.event(id, CmEvent::ConnectRequest { connection, peer, local, request });
    }

    /// Returns why a request cannot be reported.
    fn validate(&mut self, envelope: Envelope, req: &Req, now: Instant) -> Result<(), RejectReason> {
        if !self.services.contains(&req.service_id) {
            self.counters.no_service += 1;
            return Err(RejectReason::INVALID_SERVICE_ID);
        }
        if !matches!(req.service, ServiceType::Rc | ServiceType::Uc) && !req.is_xrc() {
            return Err(RejectReason::INVALID_SERVICE_TYPE);
        }
        if mtu_bytes(req.mtu).is_none() {
            return Err(RejectReason::INVALID_MTU);
        }
        if self.is_stale((envelope.peer, req.ca_guid, req.qpn), now) {
            return Err(RejectReason::STALE_CONNECTION);
        }
        Ok(())
    }

    /// Returns whether a peer's queue pair belongs to another connection; an established one is ended.
    fn is_stale(&mut self, key: (SocketAddr, u64, u32), now: Instant) -> bool {
        let Some(other) = self.by_qp(key) else { return false };
        self.counters.stale += 1;
        if self.get(other).state == State::Established {
            self.send_dreq(other, [0; Dreq::PRIVATE_BYTES], now);
        }
        true
    }

    /// Returns a connection that a peer's request begins.
    fn passive(&self, envelope: Envelope, state: State, remote_id: u32, patience: Patience) -> Connection {
        let Envelope { peer, local, transaction, .. } = envelope;
        let connection = Connection::new(state, peer, local, transaction, patience);
        Connection { is_passive: true, remote_id: Some(remote_id), ..connection }
    }

    fn on_duplicate_req(&mut self, envelope: Envelope, id: u32, req: &Req) {
        self.counters.duplicates += 1;
        match self.get(id).state {
            State::ReqReceived => self.send_mra(id, RejectedMessage::Req),
            State::RepSent => self.send_again(id),
            State::TimeWait if self.is_ended_by_rej(id) => self.send_again(id),
            State::TimeWait => {
                let reason = RejectReason::STALE_CONNECTION;
                let rej = rej(0, req.local_comm_id, RejectedMessage::Req, reason);
                self.answer(envelope, &Message::Rej(rej));
            }
            _ => {}
        }
    }

    fn send_mra(&mut self, id: u32, message: RejectedMessage) {
        let mra = Mra {
            local_comm_id: id,
            remote_comm_id: self.get(id).remote_id.unwrap_or(0),
            message,
            service_timeout: self.config.service_timeout,
            private_data: [0; Mra::PRIVATE_BYTES],
        };
        self.send(id, Message::Mra(mra));
    }

    fn on_mra(&mut self, envelope: Envelope, mra: &Mra, now: Instant) {
        let id = mra.remote_comm_id;
        let Some(state) = self.matching(envelope, id, mra.local_comm_id) else { return };
        match (state, mra.message) {
            (State::ReqSent, RejectedMessage::Req) | (State::RepSent, RejectedMessage::Rep) => {
                let until = now + self.interval(mra.service_timeout, 1);
                self.update(id, |connection| {
                    // Once: otherwise a peer could hold the connection forever.
                    if !connection.is_extended {
                        connection.is_extended = true;
                        connection.deadline = connection.deadline.max(Some(until));
                    }
                });
            }
            _ => self.counters.unexpected += 1,
        }
    }

    fn on_rej(&mut self, envelope: Envelope, rej: &Rej, now: Instant) {
        // A peer that has given up a REQ may not know our id.
        let request = (envelope.peer, rej.local_comm_id, false);
        let id = match self.by_request(request) {
            Some(id) if rej.remote_comm_id == 0 => id,
            _ => rej.remote_comm_id,
        };
        let Some(state) = self.matching(envelope, id, rej.local_comm_id) else { return };
        let (connection, reason, private_data) = (ConnectionId(id), rej.reason, rej.private_data.to_vec());
        match state {
            State::ReqSent if reason == RejectReason::INVALID_SERVICE_ID && self.retry_soon(id, now) => {}
            State::ReqSent => {
                self.event(id, CmEvent::Rejected { connection, reason, private_data });
                self.remove(id);
            }
            State::RepReceived | State::ReqReceived | State::RepSent => {
                self.event(id, CmEvent::Rejected { connection, reason, private_data });
                self.update(id, |connection| connection.end(None, now));
            }
            State::Established | State::DreqSent => self.on_end(id, private_data, None, now),
            _ => self.counters.unexpected += 1,
        }
    }

    /// Reports that the peer has ended a connection.
    fn on_end(&mut self, id: u32, private_data: Vec<u8>, answer: Option<Message>, now: Instant) {
        let connection = ConnectionId(id);
        self.event(id, CmEvent::Disconnected { connection, private_data });
        self.update(id, |connection| {
            connection.was_connected = true;
            connection.end(answer, now);
        });
    }

    fn on_rep(&mut self, envelope: Envelope, mut rep: Rep, now: Instant) {
        let id = rep.remote_comm_id;
        let Some(state) = self.matching(envelope, id, rep.local_comm_id) else {
            let reason = RejectReason::INVALID_COMM_ID;
            let rej = rej(id, rep.local_comm_id, RejectedMessage::Rep, reason);
            return self.answer(envelope, &Message::Rej(rej));
        };
        let Connection { is_passive, is_xrc, .. } = *self.get(id);
        let is_active = !is_passive;
        match state {
            State::ReqSent => {
                if is_xrc {
                    rep.qpn = rep.ee_context;
                }
                let remote_qp = (envelope.peer, rep.ca_guid, rep.qpn);
                if self.is_stale(remote_qp, now) {
                    let reason = RejectReason::STALE_CONNECTION;
                    let rej = rej(id, rep.local_comm_id, RejectedMessage::Rep, reason);
                    let (connection, private_data) = (ConnectionId(id), Vec::new());
                    self.event(id, CmEvent::Rejected { connection, reason, private_data });
                    self.update(id, |connection| connection.remote_id = Some(rep.local_comm_id));
                    return self.end_with(id, Message::Rej(rej), now);
                }
                self.update(id, |connection| {
                    connection.remote_id = Some(rep.local_comm_id);
                    connection.remote_qp = Some(remote_qp).filter(|_| rep.qpn != 0);
                    connection.rest(State::RepReceived);
                });
                let (connection, reply) = (ConnectionId(id), Box::new(rep));
                self.event(id, CmEvent::Connected { connection, reply });
            }
            State::RepReceived => {
                self.counters.duplicates += 1;
                self.send_mra(id, RejectedMessage::Rep);
            }
            State::Established if is_active => {
                self.counters.duplicates += 1;
                self.send_again(id);
            }
            State::TimeWait if is_active && self.is_ended_by_rej(id) => {
                self.counters.duplicates += 1;
                self.send_again(id);
            }
            _ => self.counters.unexpected += 1,
        }
    }

    fn on_rtu(&mut self, envelope: Envelope, rtu: &Rtu) {
        let id = rtu.remote_comm_id;
        match self.matching(envelope, id, rtu.local_comm_id) {
            Some(State::RepSent) => self.establish(id, rtu.private_data.to_vec()),
            Some(State::Established) => self.counters.duplicates += 1,
            // The wait for RTU has timed out, and the peer has not received the REJ.
            Some(State::TimeWait) if self.is_ended_by_rej(id) => self.send_again(id),
            Some(_) => self.counters.unexpected += 1,
            None => {}
        }
    }

    fn on_dreq(&mut self, envelope: Envelope, dreq: &Dreq, now: Instant) {
        let id = dreq.remote_comm_id;
        let (local_comm_id, remote_comm_id) = (id, dreq.local_comm_id);
        let drep =
            Message::Drep(Drep { local_comm_id, remote_comm_id, private_data: [0; Drep::PRIVATE_BYTES] });
        let Some(state) = self.matching(envelope, id, dreq.local_comm_id) else {
            return self.answer(envelope, &drep);
        };
        match state {
            State::RepSent | State::RepReceived | State::Established | State::DreqSent
                if dreq.remote_qpn == self.get(id).qpn =>
            {
                self.on_end(id, dreq.private_data.to_vec(), Some(drep), now);
                self.answer(envelope, &drep);
            }
            State::TimeWait => {
                self.counters.duplicates += 1;
                self.answer(envelope, &drep);
            }
            _ => self.counters.unexpected += 1,
        }
    }

    fn on_drep(&mut self, envelope: Envelope, drep: &Drep, now: Instant) {
        let id = drep.remote_comm_id;
        match self.matching(envelope, id, drep.local_comm_id) {
            Some(State::DreqSent) => self.on_end(id, drep.private_data.to_vec(), None, now),
            Some(State::TimeWait) => self.counters.duplicates += 1,
            Some(_) => self.counters.unexpected += 1,
            None => {}
        }
    }

    fn on_sidr_req(&mut self, envelope: Envelope, request: SidrReq) {
        let key = (envelope.peer, request.request_id, true);
        if let Some(id) = self.by_request(key) {
            self.counters.duplicates += 1;
            return self.send_again(id);
        }
        if !self.services.contains(&request.service_id) {
            self.counters.no_service += 1;
            let reply = SidrRep {
                request_id: request.request_id,
                status: SidrStatus::NOT_SUPPORTED,
                information_bytes: 0,
                qpn: 0,
                service_id: request.service_id,
                qkey: 0,
                information: [0; 72],
                private_data: [0; SidrRep::PRIVATE_BYTES],
            };
            return self.answer(envelope, &Message::SidrRep(reply));
        }
        if !self.make_room_for_request(envelope.peer.ip()) {
            self.counters.requests_dropped += 1;
            return;
        }
        let id = self.draw_id();
        // Answer duplicates for as long as this side would retransmit: SIDR_REQ does not contain the peer's
        // timeout. Linux retransmits every 4 s. A shorter time would take a retransmission for a new request.
        let transmissions = u32::from(self.config.max_cm_retries & 0xf) + 1;
        let time_wait = self.interval(self.config.response_timeout, 1) * transmissions;
        let patience = Patience { interval: time_wait, retries: 0, time_wait };
        let mut resolution = self.passive(envelope, State::SidrReqReceived, request.request_id, patience);
        resolution.request = Some(key);
        resolution.service_id = request.service_id;
        self.insert(id, resolution);
        let Envelope { peer, local, .. } = envelope;
        let (connection, request) = (ConnectionId(id), Box::new(request));
        self.event(id, CmEvent::ServiceRequest { connection, peer, local, request });
    }

    fn on_sidr_rep(&mut self, envelope: Envelope, reply: SidrRep, now: Instant) {
        let id = reply.request_id;
        let is_answer = self.find(id).is_some_and(|found| {
            (found.state, found.peer, found.service_id, found.transaction)
                == (State::SidrReqSent, envelope.peer, reply.service_id, envelope.transaction)
        });
        if !is_answer {
            self.counters.unmatched += 1;
            return;
        }
        if reply.status == SidrStatus::NOT_SUPPORTED && self.retry_soon(id, now) {
            return;
        }
        let (connection, reply) = (ConnectionId(id), Box::new(reply));
        self.event(id, CmEvent::ServiceReply { connection, reply });
        self.remove(id);
    }

    /// Handles an ICMP error: no program receives at port 4791 of `to`. `quoted` is the beginning of the MAD
    /// that the ICMP message quotes. The request is repeated after short pauses; in the end, `Unreachable`
    /// follows. Anyone can send an ICMP message, so it has no effect unless it quotes a request that awaits
    /// its answer, transaction id and communication id included.
    pub fn on_port_unreachable(&mut self, to: SocketAddr, quoted: &[u8], now: Instant) {
        let id = quoted
            .get(MadHeader::BYTES..)
            .and_then(|data| data.first_chunk())
            .map(|id| u32::from_be_bytes(*id));
        let is_awaited = |connection: &&Connection| {
            let mad = connection.sent.map(|sent| sent.mad(connection.transaction));
            matches!(connection.state, State::ReqSent | State::SidrReqSent)
                && !connection.is_extended
                && connection.peer == normal(to)
                && mad.is_some_and(|mad| mad.starts_with(quoted))
        };
        let Some(id) = id.filter(|id| self.find(*id).filter(is_awaited).is_some()) else {
            self.counters.stray_errors += 1;
            return;
        };
        if !self.retry_soon(id, now) {
            self.event(id, CmEvent::Unreachable { connection: ConnectionId(id) });
            self.remove(id);
        }
    }

    /// Schedules the repetition of a request without a listener. Returns false after the last of [`PAUSES`].
    fn retry_soon(&mut self, id: u32, now: Instant) -> bool {
        let is_retry = self.update(id, |connection| {
            let pause = PAUSES.get(usize::from(connection.refusals));
            if let Some(pause) = pause {
                connection.refusals += 1;
                connection.retries_left = connection.retries_left.max(1);
                connection.deadline = Some(now + *pause);
            }
            pause.is_some()
        });
        self.counters.refused_retries += u64::from(is_retry);
        is_retry
    }
}
