//! Calls of the local consumer.

use super::connection::{Connection, Patience, State};
use super::interface::{Accept, CmError, CmEvent, Connect, ConnectionId};
use super::machine::{Cm, normal, padded, rej};
use crate::wire::roce::QPN_MASK;
use crate::wire::roce::cm::{
    Dreq, Message, PrimaryPath, RejectReason, RejectedMessage, Rep, Req, Rtu, ServiceType, SidrRep, SidrReq,
    SidrStatus, gid, mtu_bytes,
};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use kiban_base::Instant;

/// Local identifiers do not exist in RoCE. The value is Linux's.
const NO_LID: u16 = 0xffff;

impl Cm {
    /// Starts listening: requests for `service_id` are reported.
    ///
    /// # Errors
    /// `InUse`, `TooMany`.
    pub fn listen(&mut self, service_id: u64) -> Result<(), CmError> {
        if self.services.contains(&service_id) {
            return Err(CmError::InUse);
        }
        if self.services.len() >= self.config.services_max {
            return Err(CmError::TooMany);
        }
        self.services.insert(service_id);
        Ok(())
    }

    /// Stops listening: new requests are rejected. Those that are reported can still be accepted.
    pub fn unlisten(&mut self, service_id: u64) {
        self.services.remove(&service_id);
    }

    /// Requests a connection from `peer`, whose port is ignored. `Connected`, `Rejected` or `TimedOut`
    /// follows.
    ///
    /// # Errors
    /// `Parameter`, `PrivateData`, `TooMany`.
    pub fn connect(
        &mut self,
        local: IpAddr,
        peer: SocketAddr,
        connect: &Connect,
        now: Instant,
    ) -> Result<ConnectionId, CmError> {
        let private_data = padded(&connect.private_data)?;
        if connect.service == ServiceType::Rd || mtu_bytes(connect.mtu).is_none() || connect.qpn > QPN_MASK {
            return Err(CmError::Parameter);
        }
        let id = self.start(State::ReqSent, local, peer, connect.qpn, connect.ack_timeout, now)?;
        let is_xrc = connect.service == ServiceType::Extended;
        self.update(id, |connection| connection.is_xrc = is_xrc);
        // The target of an XRC initiator sends no requests: what concerns them is zero (Annex A14).
        let of_target = |value: u8| if is_xrc { 0 } else { value };
        let request = Req {
            local_comm_id: id,
            service_id: connect.service_id,
            ca_guid: self.config.ca_guid,
            qkey: 0,
            qpn: connect.qpn,
            responder_resources: of_target(connect.responder_resources),
            initiator_depth: connect.initiator_depth,
            remote_response_timeout: self.config.response_timeout,
            service: connect.service,
            flow_control: connect.flow_control,
            psn: connect.psn,
            local_response_timeout: self.config.response_timeout,
            retry_count: of_target(connect.retry_count),
            pkey: connect.pkey,
            mtu: connect.mtu,
            rdc_exists: false,
            rnr_retry_count: of_target(connect.rnr_retry_count),
            max_cm_retries: self.config.max_cm_retries,
            srq: connect.srq && !is_xrc,
            extended_type: if is_xrc { Req::XRC } else { 0 },
            path: PrimaryPath {
                local_lid: NO_LID,
                remote_lid: NO_LID,
                local_gid: gid(local),
                remote_gid: gid(peer.ip()),
                flow_label: connect.flow_label,
                packet_rate: 0,
                traffic_class: connect.traffic_class,
                hop_limit: connect.hop_limit,
                sl: 0,
                is_subnet_local: false,
                ack_timeout: connect.ack_timeout,
            },
            private_data,
        };
        self.send_first(id, Message::Req(request));
        Ok(ConnectionId(id))
    }

    /// Asks `peer` for the queue pair of a service. `ServiceReply` or `TimedOut` follows.
    ///
    /// # Errors
    /// `PrivateData`, `TooMany`.
    pub fn resolve(
        &mut self,
        local: IpAddr,
        peer: SocketAddr,
        service_id: u64,
        pkey: u16,
        private_data: &[u8],
        now: Instant,
    ) -> Result<ConnectionId, CmError> {
        let private_data = padded(private_data)?;
        let id = self.start(State::SidrReqSent, local, peer, 0, 0, now)?;
        self.update(id, |connection| connection.service_id = service_id);
        self.send_first(id, Message::SidrReq(SidrReq { request_id: id, pkey, service_id, private_data }));
        Ok(ConnectionId(id))
    }

    /// Adds a connection that awaits the answer to its first message.
    fn start(
        &mut self,
        state: State,
        local: IpAddr,
        peer: SocketAddr,
        qpn: u32,
        ack_timeout: u8,
        now: Instant,
    ) -> Result<u32, CmError> {
        if !self.make_room() {
            return Err(CmError::TooMany);
        }
        let (id, transaction) = (self.draw_id(), self.rng.draw());
        let patience = Patience {
            interval: self.interval(self.config.response_timeout, 1),
            retries: self.config.max_cm_retries & 0xf,
            time_wait: self.time_wait(ack_timeout),
        };
        let connection = Connection::new(state, normal(peer), local, transaction, patience);
        let mut connection = Connection { qpn, ..connection };
        connection.await_answer(state, now);
        self.insert(id, connection);
        Ok(id)
    }

    /// Sends a message, and keeps it for retransmission.
    fn send_first(&mut self, id: u32, message: Message) {
        self.update(id, |connection| connection.sent = Some(message));
        self.send(id, message);
    }

    /// Returns a connection if it is in one of these states.
    fn expect_state(&self, connection: ConnectionId, states: &[State]) -> Result<&Connection, CmError> {
        let found = self.find(connection.0).filter(|found| !found.is_aborted);
        let found = found.ok_or(CmError::UnknownConnection)?;
        if states.contains(&found.state) { Ok(found) } else { Err(CmError::WrongState) }
    }

    /// Accepts a peer's request. The queue pair must be ready to receive. `Established`, `Rejected`,
    /// `Disconnected` or `TimedOut` follows.
    ///
    /// # Errors
    /// `UnknownConnection`, `WrongState`, `PrivateData`, `Parameter`.
    pub fn accept(&mut self, connection: ConnectionId, accept: &Accept, now: Instant) -> Result<(), CmError> {
        let private_data = padded(&accept.private_data)?;
        if accept.qpn > QPN_MASK {
            return Err(CmError::Parameter);
        }
        let found = self.expect_state(connection, &[State::ReqReceived])?;
        let is_target = found.is_xrc;
        let (qpn, ee_context) = if is_target { (0, accept.qpn) } else { (accept.qpn, 0) };
        let reply = Rep {
            local_comm_id: connection.0,
            remote_comm_id: found.remote_id.unwrap_or(0),
            qkey: 0,
            qpn,
            ee_context,
            psn: accept.psn,
            responder_resources: accept.responder_resources,
            initiator_depth: if is_target { 0 } else { accept.initiator_depth },
            target_ack_delay: accept.target_ack_delay,
            failover: 0,
            flow_control: accept.flow_control && !is_target,
            rnr_retry_count: accept.rnr_retry_count,
            srq: accept.srq || is_target,
            ca_guid: self.config.ca_guid,
            private_data,
        };
        self.update(connection.0, |found| {
            found.qpn = accept.qpn;
            found.await_answer(State::RepSent, now);
        });
        self.send_first(connection.0, Message::Rep(reply));
        Ok(())
    }

    /// Confirms a reply: the queue pair is ready, and the connection is established.
    ///
    /// # Errors
    /// `UnknownConnection`, `WrongState`, `PrivateData`.
    pub fn confirm(&mut self, connection: ConnectionId, private_data: &[u8]) -> Result<(), CmError> {
        let private_data = padded(private_data)?;
        let found = self.expect_state(connection, &[State::RepReceived])?;
        let remote_comm_id = found.remote_id.unwrap_or(0);
        let rtu = Rtu { local_comm_id: connection.0, remote_comm_id, private_data };
        self.update(connection.0, |found| {
            found.was_connected = true;
            found.rest(State::Established);
        });
        self.send_first(connection.0, Message::Rtu(rtu));
        Ok(())
    }

    /// Establishes an accepted connection because a packet has arrived on its queue pair: the peer is ready,
    /// although its RTU is late or lost (IBTA volume 1 §12.9.7.2). In other states the call has no effect.
    pub fn on_data(&mut self, connection: ConnectionId) {
        if self.expect_state(connection, &[State::RepSent]).is_ok() {
            self.establish(connection.0, Vec::new());
        }
    }

    /// Makes an accepted connection established.
    pub(super) fn establish(&mut self, id: u32, private_data: Vec<u8>) {
        self.update(id, |connection| {
            connection.was_connected = true;
            connection.rest(State::Established);
        });
        self.event(id, CmEvent::Established { connection: ConnectionId(id), private_data });
    }

    /// Rejects a peer's request or reply, for the consumer's or another reason. No event follows.
    ///
    /// # Errors
    /// `UnknownConnection`, `WrongState`, `PrivateData`.
    pub fn reject(
        &mut self,
        connection: ConnectionId,
        reason: RejectReason,
        private_data: &[u8],
        now: Instant,
    ) -> Result<(), CmError> {
        let private_data = padded(private_data)?;
        let states = [State::ReqReceived, State::RepSent, State::RepReceived];
        let found = self.expect_state(connection, &states)?;
        let message = if found.is_passive { RejectedMessage::Req } else { RejectedMessage::Rep };
        let mut rej = rej(connection.0, found.remote_id.unwrap_or(0), message, reason);
        rej.private_data = private_data;
        self.end_with(connection.0, Message::Rej(rej), now);
        Ok(())
    }

    /// Ends a connection. `Disconnected` follows.
    ///
    /// # Errors
    /// `UnknownConnection`, `WrongState`, `PrivateData`.
    pub fn disconnect(
        &mut self,
        connection: ConnectionId,
        private_data: &[u8],
        now: Instant,
    ) -> Result<(), CmError> {
        let private_data = padded(private_data)?;
        self.expect_state(connection, &[State::Established])?;
        self.send_dreq(connection.0, private_data, now);
        Ok(())
    }

    /// Begins the end of an established connection.
    pub(super) fn send_dreq(&mut self, id: u32, private_data: [u8; Dreq::PRIVATE_BYTES], now: Instant) {
        let transaction = self.rng.draw();
        let dreq = self.update(id, |connection| {
            connection.transaction = transaction;
            connection.await_answer(State::DreqSent, now);
            Dreq {
                local_comm_id: id,
                remote_comm_id: connection.remote_id.unwrap_or(0),
                remote_qpn: connection.remote_qp.map_or(0, |(.., qpn)| qpn),
                private_data,
            }
        });
        self.send_first(id, Message::Dreq(dreq));
    }

    /// Answers a service id resolution with a queue pair and its Q_Key.
    ///
    /// # Errors
    /// `UnknownConnection`, `WrongState`, `PrivateData`, `Parameter`.
    pub fn resolved(
        &mut self,
        connection: ConnectionId,
        qpn: u32,
        qkey: u32,
        private_data: &[u8],
        now: Instant,
    ) -> Result<(), CmError> {
        if qpn > QPN_MASK {
            return Err(CmError::Parameter);
        }
        self.answer_service(connection, (SidrStatus::VALID, qpn, qkey), private_data, now)
    }

    /// Refuses a service id resolution.
    ///
    /// # Errors
    /// `UnknownConnection`, `WrongState`, `PrivateData`.
    pub fn refuse(
        &mut self,
        connection: ConnectionId,
        status: SidrStatus,
        private_data: &[u8],
        now: Instant,
    ) -> Result<(), CmError> {
        self.answer_service(connection, (status, 0, 0), private_data, now)
    }

    fn answer_service(
        &mut self,
        connection: ConnectionId,
        (status, qpn, qkey): (SidrStatus, u32, u32),
        private_data: &[u8],
        now: Instant,
    ) -> Result<(), CmError> {
        let private_data = padded(private_data)?;
        let found = self.expect_state(connection, &[State::SidrReqReceived])?;
        let reply = SidrRep {
            request_id: found.remote_id.unwrap_or(0),
            status,
            information_bytes: 0,
            qpn,
            service_id: found.service_id,
            qkey,
            information: [0; 72],
            private_data,
        };
        self.end_with(connection.0, Message::SidrRep(reply), now);
        Ok(())
    }

    /// Ends a connection or resolution in any state, with the message that the peer expects in that state. No
    /// event follows.
    ///
    /// # Errors
    /// `UnknownConnection`.
    pub fn abort(&mut self, connection: ConnectionId, now: Instant) -> Result<(), CmError> {
        let found = self.find(connection.0).filter(|found| !found.is_aborted);
        match found.ok_or(CmError::UnknownConnection)?.state {
            State::ReqSent => {
                self.withdraw(connection.0);
                return Ok(());
            }
            State::SidrReqSent => {
                self.remove(connection.0);
                return Ok(());
            }
            State::ReqReceived | State::RepSent | State::RepReceived => {
                self.reject(connection, RejectReason::CONSUMER, &[], now)?;
            }
            State::SidrReqReceived => self.refuse(connection, SidrStatus::REJECTED, &[], now)?,
            State::Established => self.disconnect(connection, &[], now)?,
            State::DreqSent | State::TimeWait => {}
        }
        self.update(connection.0, |found| found.is_aborted = true);
        Ok(())
    }
}
