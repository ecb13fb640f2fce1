//! Connections over RoCEv2: datagrams of queue pairs, and InfiniBand's connection manager.
//!
//! Port             [`RocePort`] has the endpoint and the connection manager of a NIC. It has no socket: a
//!                  driver calls [`Nic::take_roce`] with each received datagram, [`Nic::pump_roce`] after a
//!                  burst and when time has passed, and sends the datagrams of [`Nic::next_roce`].
//! Setup            REQ, REP, RTU. A responder sends nothing before the RTU or the first packet of its peer,
//!                  which would not be ready for it. The request and its reply carry depths, PSNs and private
//!                  data. Private data is filled with zeros, because the messages do not carry its length.
//! End              a queue pair that is closing sends DREQ once all of its work is acknowledged, and one
//!                  that has failed at once. Sends of the peer whose acknowledgements were lost are flushed:
//!                  as with hardware, programs that need a result wait for it before they disconnect.
//! Numbers          a queue pair's number on the wire has 24 bits and is derived from the NIC's number.
//! Limits           the path MTU of a connection is the initiator's; a request for a longer one than
//!                  [`RoceConfig::path_mtu`] is rejected. The connection manager has its own limits
//!                  ([`CmConfig`]).
//! Not implemented  datagram queue pairs and multicast; drivers of the endpoint can offer them.

use super::connection::{CmEvent, ConnectError, OpenError, Request};
use super::device::Nic;
use super::end::{End, RoceEnd, Transport};
use crate::rnic::{RoceSending, RoceTraits, StreamAction};
use crate::roce::cm::{self, Accept, Cm, CmConfig, CmCounters, CmError, Connect, ConnectionId};
use crate::roce::{Departure, Endpoint, EndpointCounters, Path};
use crate::wire::roce::cm::{IpCm, PortSpace, RejectReason, Rep, Req, ServiceType, mtu_bytes, timeout};
use crate::wire::roce::{PORT, PSN_MASK, QPN_MASK, Service};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use kiban_base::{Instant, RngKey, SecureRng};

/// The default partition, with full membership.
const PKEY: u16 = 0xffff;
/// Numbers on the wire begin behind those of the management queue pairs (0 and 1) and a few spare ones.
const QPN_OFFSET: u32 = 16;

/// How a NIC's connections over RoCEv2 are set up.
#[derive(Clone, Debug)]
pub struct RoceConfig {
    /// The longest payload of a packet in bytes: 256, 512, 1024, 2048 or 4096. With its headers, which have
    /// at most 68 bytes over IPv4 and 88 over IPv6, it must fit the links of the path.
    pub path_mtu: usize,
    /// The code of the acknowledgement timeout, 5 bits ([`timeout`]).
    pub ack_timeout: u8,
    /// How often packets are retransmitted without an acknowledgement, 3 bits.
    pub retries: u8,
    /// How often packets are retransmitted after an RNR NAK, 3 bits; 7: without limit.
    pub rnr_retries: u8,
    /// The code of the time after which a peer may repeat a request for which no receive was posted, 5 bits.
    pub rnr_timer: u8,
    /// Maximum number of bytes that a queue pair has in flight.
    pub window_bytes: usize,
    /// Settings of the connection manager. Its GUID is drawn at random.
    pub cm: CmConfig,
}

impl Default for RoceConfig {
    fn default() -> RoceConfig {
        RoceConfig {
            path_mtu: 1024,
            // 67 ms, as perftest sets it.
            ack_timeout: 14,
            retries: 7,
            rnr_retries: 7,
            // 0.64 ms, as Linux's RDMA-CM sets it.
            rnr_timer: 12,
            window_bytes: 256 << 10,
            cm: CmConfig::default(),
        }
    }
}

impl RoceConfig {
    /// Returns the code of the path MTU.
    ///
    /// # Panics
    /// If the path MTU is not one of IBTA's.
    fn mtu(&self) -> u8 {
        (1..=5).find(|&code| mtu_bytes(code) == Some(self.path_mtu)).expect("a path MTU of IBTA volume 1")
    }
}

/// The RoCEv2 side of a NIC.
#[derive(Debug)]
pub struct RocePort {
    config: RoceConfig,
    endpoint: Endpoint,
    cm: Cm,
    rng: SecureRng,
    /// The ports at which it listens.
    listening: BTreeSet<u16>,
    /// The NIC's numbers of connected queue pairs, by their numbers on the wire.
    names: BTreeMap<u32, u32>,
    /// The end of each connection that has one.
    ends: BTreeMap<ConnectionId, u32>,
}

impl RocePort {
    /// Creates a port. `key` seeds the generator of PSNs, GUID and communication ids.
    ///
    /// # Panics
    /// If the path MTU of the configuration is not one of IBTA's.
    pub fn new(config: RoceConfig, key: RngKey) -> RocePort {
        config.mtu();
        let mut rng = SecureRng::new(key);
        let manager = CmConfig { ca_guid: rng.draw(), ..config.cm.clone() };
        let cm = Cm::new(manager, rng.draw_key());
        let (names, ends) = (BTreeMap::new(), BTreeMap::new());
        let listening = BTreeSet::new();
        RocePort { config, endpoint: Endpoint::default(), cm, rng, listening, names, ends }
    }

    /// Listens for connections to a port of RDMA-CM's TCP port space. The port is the listener's number.
    ///
    /// # Errors
    /// `InUse`, `TooMany`.
    pub fn listen(&mut self, port: u16) -> Result<(), CmError> {
        self.cm.listen(PortSpace::Tcp.service_id(port))?;
        self.listening.insert(port);
        Ok(())
    }

    /// Stops listening. Requests that are reported can still be answered.
    pub fn unlisten(&mut self, port: u16) {
        self.listening.remove(&port);
        self.cm.unlisten(PortSpace::Tcp.service_id(port));
    }

    /// Stops listening at all ports.
    pub fn unlisten_all(&mut self) {
        while let Some(port) = self.listening.pop_first() {
            self.cm.unlisten(PortSpace::Tcp.service_id(port));
        }
    }

    /// Returns the counters of datagrams, and of the connection manager.
    pub fn counters(&self) -> (&EndpointCounters, &CmCounters) {
        (self.endpoint.counters(), self.cm.counters())
    }

    /// Returns when [`Nic::pump_roce`] is due.
    pub fn deadline(&self) -> Instant {
        self.endpoint.deadline().min(self.cm.deadline().unwrap_or(Instant::NEVER))
    }
}

/// The number of a queue pair on the wire. The low bits of the NIC's number differ between all queue pairs
/// that exist at a time.
const fn qpn_of(qp: u32) -> u32 {
    qp.wrapping_add(QPN_OFFSET) & QPN_MASK
}

/// Returns a depth of reads as the connection manager's messages carry it.
fn depth(depth: u16) -> u8 {
    u8::try_from(depth).unwrap_or(u8::MAX)
}

/// Returns the error of a call on the connection manager.
fn open_error(error: CmError) -> OpenError {
    match error {
        CmError::TooMany => OpenError::TooMany,
        CmError::PrivateData => OpenError::RocePrivateData,
        CmError::UnknownConnection | CmError::WrongState => OpenError::Gone,
        _ => OpenError::InUse,
    }
}

/// What the messages of a connection say of its queue pair.
struct Agreed {
    /// The peer's queue pair.
    peer: u32,
    path_mtu: usize,
    /// The PSN of our first packet.
    first_psn_out: u32,
    /// The maximum numbers of outstanding reads from the peer and to the peer.
    depths: (u16, u16),
    ack_timeout: u8,
    retries: u8,
    rnr_retries: u8,
}

impl Nic {
    /// Begins to connect a queue pair from `local` to the service of a port, and returns its end. The private
    /// data may have 56 bytes.
    ///
    /// # Errors
    /// The queue pair cannot be connected; the private data is too long; there are too many ends or
    /// connections.
    pub fn connect_roce(
        &mut self,
        port: &mut RocePort,
        (local, to): (IpAddr, SocketAddr),
        qp: u32,
        (ird, ord): (u16, u16),
        private_data: &[u8],
        now: Instant,
    ) -> Result<u32, OpenError> {
        self.check_free(qp)?;
        let (qpn, first_psn_in) = (qpn_of(qp), port.rng.draw_u32() & PSN_MASK);
        let mut data = alloc::vec![0; IpCm::BYTES];
        IpCm { source_port: qpn as u16, source: local, destination: to.ip() }.write(&mut data);
        data.extend_from_slice(private_data);
        let connect = Connect {
            service_id: PortSpace::Tcp.service_id(to.port()),
            qpn,
            psn: first_psn_in,
            responder_resources: depth(ird),
            initiator_depth: depth(ord),
            retry_count: port.config.retries,
            rnr_retry_count: port.config.rnr_retries,
            pkey: PKEY,
            mtu: port.config.mtu(),
            ack_timeout: port.config.ack_timeout,
            private_data: data,
            ..Connect::default()
        };
        let connection = port.cm.connect(local, to, &connect, now).map_err(open_error)?;
        let below = RoceEnd {
            connection,
            addresses: (local, to.ip()),
            first_psn_in,
            depths: (ird, ord),
            request: None,
            sending: None,
        };
        let Some(end) = self.add(Transport::Roce(below), Some(qp), None, now) else {
            // Nothing has been sent yet but the request, which is withdrawn.
            let _ = port.cm.abort(connection, now);
            return Err(OpenError::TooMany);
        };
        port.ends.insert(connection, end);
        Ok(end)
    }

    /// Returns whether a connection is one over RoCEv2 that has not ended.
    pub fn is_roce(&self, end: u32) -> bool {
        self.ends.get(end).is_some_and(|end| matches!(end.below, Transport::Roce(_)))
    }

    /// Returns the addresses of a connection over RoCEv2, ours first.
    pub fn roce_addresses(&self, end: u32) -> Option<(IpAddr, IpAddr)> {
        match &self.ends.get(end)?.below {
            Transport::Roce(below) => Some(below.addresses),
            _ => None,
        }
    }

    /// Accepts a request on a queue pair that is not connected. The private data may have 196 bytes.
    ///
    /// # Errors
    /// The queue pair cannot be connected; the private data is too long; the request is no longer valid.
    pub fn accept_roce(
        &mut self,
        port: &mut RocePort,
        number: u32,
        qp: u32,
        depths: (u16, u16),
        private_data: &[u8],
        now: Instant,
    ) -> Result<(), OpenError> {
        self.check_free(qp)?;
        if private_data.len() > Rep::PRIVATE_BYTES {
            return Err(OpenError::RocePrivateData);
        }
        let end = self.ends.get_mut(number).filter(|end| end.qp.is_none()).ok_or(OpenError::Gone)?;
        let Transport::Roce(below) = &mut end.below else { return Err(OpenError::Gone) };
        let request = below.request.take().ok_or(OpenError::Gone)?;
        let connection = below.connection;
        let ird = depths.0.min(request.initiator_depth.into());
        let ord = depths.1.min(request.responder_resources.into());
        below.first_psn_in = port.rng.draw_u32() & PSN_MASK;
        let accept = Accept {
            qpn: qpn_of(qp),
            psn: below.first_psn_in,
            responder_resources: depth(ird),
            initiator_depth: depth(ord),
            rnr_retry_count: port.config.rnr_retries,
            private_data: private_data.to_vec(),
            ..Accept::default()
        };
        let agreed = Agreed {
            peer: request.qpn,
            path_mtu: mtu_bytes(request.mtu).ok_or(OpenError::Gone)?,
            first_psn_out: request.psn,
            depths: (ird, ord),
            ack_timeout: request.path.ack_timeout,
            retries: request.retry_count,
            rnr_retries: request.rnr_retry_count,
        };
        let sending = self.establish_roce(port, number, qp, &agreed)?;
        if let Some(End { below: Transport::Roce(below), .. }) = self.ends.get_mut(number) {
            below.sending = Some(sending);
        }
        if let Err(error) = port.cm.accept(connection, &accept, now) {
            // The peer has given up in the meantime, and an event says so.
            return Err(open_error(error));
        }
        self.waiting.leave(number);
        Ok(())
    }

    /// Connects the queue pair of an end with the peer's: it receives from now on. Returns how it will send.
    fn establish_roce(
        &mut self,
        port: &mut RocePort,
        number: u32,
        qp: u32,
        agreed: &Agreed,
    ) -> Result<RoceSending, OpenError> {
        let Some(end) = self.ends.get_mut(number) else { return Err(OpenError::Gone) };
        let Transport::Roce(below) = &mut end.below else { return Err(OpenError::Gone) };
        below.depths = agreed.depths;
        let (local, remote) = below.addresses;
        let traits = RoceTraits {
            service: Service::Rc,
            peer: agreed.peer,
            pkey: PKEY,
            path_mtu: agreed.path_mtu,
            first_psn: below.first_psn_in,
            ird: agreed.depths.0,
            rnr_timer: port.config.rnr_timer,
            reorder_max: (port.config.window_bytes / agreed.path_mtu) as u32,
        };
        let sending = RoceSending {
            first_psn: agreed.first_psn_out,
            ord: agreed.depths.1,
            ack_timeout: Some(timeout(agreed.ack_timeout)),
            retries: agreed.retries,
            rnr_retries: agreed.rnr_retries,
            window: (port.config.window_bytes / agreed.path_mtu) as u32,
        };
        // The core checks the number that it would write into datagrams. Completions carry the NIC's own
        // number again, as over other transports.
        let _ = self.core.set_qpn(qp, qpn_of(qp));
        let connected = self.core.connect_roce(qp, traits);
        let _ = self.core.set_qpn(qp, qp);
        connected.map_err(|_| OpenError::InUse)?;
        (end.qp, end.is_established) = (Some(qp), true);
        self.of_qp.insert(qp, number);
        port.names.insert(qpn_of(qp), qp);
        port.endpoint
            .attach(qp, Path { local: SocketAddr::new(local, PORT), remote: SocketAddr::new(remote, PORT) });
        Ok(sending)
    }

    /// Rejects a request. The private data may have 148 bytes.
    ///
    /// # Errors
    /// The private data is too long; the request is no longer valid.
    pub fn reject_roce(
        &mut self,
        port: &mut RocePort,
        number: u32,
        private_data: &[u8],
        now: Instant,
    ) -> Result<(), OpenError> {
        let end = self.ends.get_mut(number).filter(|end| end.qp.is_none()).ok_or(OpenError::Gone)?;
        let Transport::Roce(below) = &end.below else { return Err(OpenError::Gone) };
        let connection = below.connection;
        let rejected = port.cm.reject(connection, RejectReason::CONSUMER, private_data, now);
        rejected.map_err(open_error)?;
        end.below = Transport::Nothing;
        port.ends.remove(&connection);
        self.waiting.leave(number);
        Ok(())
    }

    /// Removes an end. A connection that has not ended is ended.
    pub fn forget_roce(&mut self, port: &mut RocePort, number: u32, now: Instant) {
        if let Some(Transport::Roce(below)) = self.ends.get(number).map(|end| &end.below) {
            let connection = below.connection;
            // This fails if the connection has ended.
            let _ = port.cm.abort(connection, now);
            self.detach_roce(port, number, connection);
        }
        self.forget(None, number, now);
    }

    /// Takes a datagram that arrived on a path; `is_marked` says whether it has met congestion (CE).
    pub fn take_roce(
        &mut self,
        port: &mut RocePort,
        path: Path,
        datagram: &[u8],
        is_marked: bool,
        now: Instant,
    ) {
        let RocePort { endpoint, names, cm, .. } = port;
        let mut found = None;
        let find = |qpn| {
            found = names.get(&qpn).copied();
            found
        };
        if let Some(mad) = endpoint.take(&mut self.core, find, path, datagram, is_marked, now) {
            // The manager counts malformed MADs.
            let _ = cm.take(path.remote, path.local.ip(), mad, now);
        }
        // A packet of the peer's queue pair shows that it is ready, even if its RTU is late or lost.
        if let Some(End { below: Transport::Roce(below), .. }) =
            found.and_then(|qp| self.end_of(qp)).and_then(|number| self.ends.get(number))
            && below.sending.is_some()
            && below.addresses.1 == path.remote.ip()
        {
            cm.on_data(below.connection);
        }
    }

    /// Runs timers, handles the connection manager's events, and ends connections that were given up.
    pub fn pump_roce(&mut self, port: &mut RocePort, now: Instant) {
        port.endpoint.advance(&mut self.core, now);
        port.cm.advance(now);
        while let Some(event) = port.cm.poll_event() {
            self.on_roce_event(port, event, now);
        }
        for number in core::mem::take(&mut self.tx_queue) {
            self.serve_roce_end(port, number, now);
        }
    }

    /// Ends the connections whose queue pairs have ended. Returns whether there were any.
    fn end_finished(&mut self, port: &mut RocePort, now: Instant) -> bool {
        let mut were_any = false;
        while let Some(qp) = port.endpoint.next_ended() {
            if let Some(number) = self.end_of(qp) {
                self.end_roce(port, number, self.core.stream_action(qp) == StreamAction::Finish, now);
                were_any = true;
            }
        }
        were_any
    }

    /// Serves an end of the TX queue: ends a connection over RoCEv2 that was given up, or whose queue pair
    /// was reset. An end with another transport stays queued.
    fn serve_roce_end(&mut self, port: &mut RocePort, number: u32, now: Instant) {
        let Some(end) = self.ends.get_mut(number) else { return };
        match end.below {
            Transport::Roce(_) => {
                end.is_scheduled = false;
                if end.failed || end.qp.is_none() && (end.is_established || end.listener.is_none()) {
                    self.end_roce(port, number, false, now);
                }
            }
            Transport::Nothing => end.is_scheduled = false,
            Transport::Stream(_) | Transport::Flow { .. } => self.tx_queue.push_back(number),
        }
    }

    /// Writes the next datagrams to be sent into `room` (its old contents are lost): one, or a train to one
    /// peer of at most `datagrams_max` datagrams and `bytes_max`. Ends connections whose queue pairs have
    /// ended.
    pub fn next_roce(
        &mut self,
        port: &mut RocePort,
        now: Instant,
        limits: (usize, usize),
        room: &mut Vec<u8>,
    ) -> Option<Departure> {
        loop {
            if let Some(cm::Transmit { to, from, mad }) = port.cm.poll_transmit() {
                let local = SocketAddr::new(from, PORT);
                let path = Path { local, remote: SocketAddr::new(to.ip(), PORT) };
                port.endpoint.management(&path, &mad, room);
                return Some(Departure { path, each: room.len(), is_ecn_capable: false });
            }
            let departure = port.endpoint.next_train(&mut self.core, now, limits, room);
            // A queue pair whose end was found may have to tell its peer.
            if departure.is_some() || !self.end_finished(port, now) {
                return departure;
            }
        }
    }

    /// Begins the end of a connection: in order if it can, otherwise at once.
    fn end_roce(&mut self, port: &mut RocePort, number: u32, in_order: bool, now: Instant) {
        let Some(Transport::Roce(below)) = self.ends.get(number).map(|end| &end.below) else { return };
        let connection = below.connection;
        if in_order {
            // The peer has acknowledged our work, so it is ready even if its RTU was lost.
            port.cm.on_data(connection);
            if port.cm.disconnect(connection, &[], now).is_ok() {
                return;
            }
        }
        // This fails if the connection has ended.
        let _ = port.cm.abort(connection, now);
        self.on_roce_closed(port, number, connection, false);
    }

    /// Handles the end of a connection. `in_order` says whether either side disconnected.
    fn on_roce_closed(&mut self, port: &mut RocePort, number: u32, connection: ConnectionId, in_order: bool) {
        self.detach_roce(port, number, connection);
        let Some(end) = self.ends.get_mut(number) else { return };
        end.below = Transport::Nothing;
        let (qp, was_established) = (end.qp, end.is_established);
        if let Some(qp) = qp.filter(|_| was_established) {
            self.core.on_stream_closed(qp, in_order);
        }
        match was_established {
            true => self.events.push_back(CmEvent::Gone { end: number }),
            false => self.fail(number, ConnectError::Lost),
        }
    }

    /// Lets the port forget an end's connection and queue pair.
    fn detach_roce(&mut self, port: &mut RocePort, number: u32, connection: ConnectionId) {
        port.ends.remove(&connection);
        if let Some(qp) = self.ends.get(number).and_then(|end| end.qp) {
            port.endpoint.detach(qp);
            port.names.remove(&qpn_of(qp));
        }
    }

    fn on_roce_event(&mut self, port: &mut RocePort, event: cm::CmEvent, now: Instant) {
        match event {
            cm::CmEvent::ConnectRequest { connection, peer, local, request } => {
                self.on_roce_request(port, connection, (local, peer.ip()), request, now);
            }
            cm::CmEvent::Connected { connection, reply } => self.on_roce_reply(port, connection, &reply, now),
            cm::CmEvent::Rejected { connection, reason, private_data } => {
                let error = match reason {
                    RejectReason::CONSUMER => ConnectError::Rejected(private_data),
                    RejectReason::INVALID_SERVICE_ID => ConnectError::Unreachable,
                    RejectReason::TIMEOUT => ConnectError::Timeout,
                    _ => ConnectError::Lost,
                };
                self.on_roce_failed(port, connection, error);
            }
            cm::CmEvent::TimedOut { connection } => {
                self.on_roce_failed(port, connection, ConnectError::Timeout);
            }
            cm::CmEvent::Unreachable { connection } => {
                self.on_roce_failed(port, connection, ConnectError::Unreachable);
            }
            cm::CmEvent::Disconnected { connection, .. } => {
                if let Some(&number) = port.ends.get(&connection) {
                    self.on_roce_closed(port, number, connection, true);
                }
            }
            cm::CmEvent::Established { connection, .. } => self.on_roce_established(port, connection),
            // Datagram services are not offered.
            cm::CmEvent::TimeWaitExit { .. }
            | cm::CmEvent::ServiceRequest { .. }
            | cm::CmEvent::ServiceReply { .. } => {}
        }
    }

    /// Lets the queue pair of an accepted request send: the peer's is ready (IBTA volume 1 §12.9.7.2).
    fn on_roce_established(&mut self, port: &mut RocePort, connection: ConnectionId) {
        let Some(&number) = port.ends.get(&connection) else { return };
        let Some(End { qp: Some(qp), below: Transport::Roce(below), .. }) = self.ends.get_mut(number) else {
            return;
        };
        if let Some(sending) = below.sending.take() {
            // This fails if the queue pair has ended in the meantime.
            let _ = self.core.start_roce(*qp, sending);
            self.events.push_back(CmEvent::Connected { end: number, private_data: Vec::new() });
        }
    }

    /// Handles a connection that the peer has refused or not answered.
    fn on_roce_failed(&mut self, port: &mut RocePort, connection: ConnectionId, error: ConnectError) {
        let Some(&number) = port.ends.get(&connection) else { return };
        if self.is_established(number) {
            return self.on_roce_closed(port, number, connection, false);
        }
        self.fail(number, error);
        self.detach_roce(port, number, connection);
        if let Some(end) = self.ends.get_mut(number) {
            end.below = Transport::Nothing;
        }
    }

    fn on_roce_request(
        &mut self,
        port: &mut RocePort,
        connection: ConnectionId,
        addresses: (IpAddr, IpAddr),
        request: Box<Req>,
        now: Instant,
    ) {
        if request.service != ServiceType::Rc {
            let _ = port.cm.reject(connection, RejectReason::INVALID_SERVICE_TYPE, &[], now);
            return;
        }
        let fits = mtu_bytes(request.mtu).is_some_and(|mtu| mtu <= port.config.path_mtu);
        let Some((_, service)) = PortSpace::of_service(request.service_id).filter(|_| fits) else {
            // This fails only if the peer has withdrawn the request.
            let _ = port.cm.reject(connection, RejectReason::INVALID_MTU, &[], now);
            return;
        };
        self.make_room();
        let at = IpCm::read(&request.private_data).map_or(0, |(_, at)| at);
        let private_data = request.private_data[at..].to_vec();
        let depths = (request.initiator_depth.into(), request.responder_resources.into());
        let below =
            RoceEnd { connection, addresses, first_psn_in: 0, depths, request: Some(request), sending: None };
        let Some(end) = self.add(Transport::Roce(below), None, Some(service.into()), now) else {
            let _ = port.cm.reject(connection, RejectReason::NO_RESOURCES, &[], now);
            return;
        };
        self.waiting.ask(end);
        port.ends.insert(connection, end);
        let listener = service.into();
        let request = Request { end, listener, private_data, depths, extensions: true };
        self.events.push_back(CmEvent::ConnectRequest(request));
    }

    /// Establishes a connection that the peer has accepted.
    fn on_roce_reply(&mut self, port: &mut RocePort, connection: ConnectionId, reply: &Rep, now: Instant) {
        let Some(&number) = port.ends.get(&connection) else { return };
        let Some(End { qp, below: Transport::Roce(below), .. }) = self.ends.get(number) else { return };
        let (ird, ord) = below.depths;
        let agreed = Agreed {
            peer: reply.qpn,
            path_mtu: port.config.path_mtu,
            first_psn_out: reply.psn,
            depths: (ird.min(reply.initiator_depth.into()), ord.min(reply.responder_resources.into())),
            ack_timeout: port.config.ack_timeout,
            retries: port.config.retries,
            rnr_retries: reply.rnr_retry_count,
        };
        let established = qp.ok_or(OpenError::Gone).and_then(|qp| {
            let sending = self.establish_roce(port, number, qp, &agreed)?;
            self.core.start_roce(qp, sending).map_err(|_| OpenError::InUse)
        });
        match established {
            Ok(()) => {
                // This fails if the peer has given up in the meantime, and an event says so.
                let _ = port.cm.confirm(connection, &[]);
                let private_data = reply.private_data.to_vec();
                self.events.push_back(CmEvent::Connected { end: number, private_data });
            }
            Err(_) => {
                let _ = port.cm.reject(connection, RejectReason::CONSUMER, &[], now);
                self.on_roce_failed(port, connection, ConnectError::Lost);
            }
        }
    }
}
