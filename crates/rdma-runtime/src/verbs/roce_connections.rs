//! Connections through InfiniBand's connection manager over RoCEv2, for the programs of `rdma_cm`.
//!
//! ```text
//! program       here                                                    on the wire
//! rdma_listen   TCP and UDP port of the service reserved
//! rdma_connect  the peer's initial PSN drawn                            REQ
//! rdma_accept   queue pair to RTR and RTS with the peer's parameters    REP
//!               the same at the other end, when the REP arrives         RTU
//! rdma_disconnect  queue pair to Error                                  DREQ, DREP
//! ```
//!
//! Path MTU   the largest that fits the interface of the active side. A passive side whose interface carries
//!            less rejects the REQ, and a smaller path MTU is requested.
//! XRC        an initiator connects to a target, which the passive side creates.
//! Addresses  private data begins with RDMA-CM's addresses, which programs do not see (IBTA Annex A11). A
//!            queue pair accepts packets only from the source address of its peer's message; these addresses
//!            are not trusted.

use super::ends::{CmEvent, CmEventHandler, ConnectRequest};
use super::engine_state::EngineState;
use super::pairs::{Entry, Peer, Sending, Service};
use super::roce_cm::{End, Listener, RoceCm, open_error};
use crate::tcp::TcpListenSocket;
use kiban_base::Instant;
use kiban_os::udp::UdpLink;
use kiban_rdma::nic::{ConnectError, OpenError};
use kiban_rdma::roce::cm::{self, Accept, Connect, ConnectionId};
use kiban_rdma::wire::roce::PORT;
use kiban_rdma::wire::roce::cm::{
    IpCm, PortSpace, RejectReason, Rep, Req, ServiceType, SidrStatus, mtu_bytes, timeout,
};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The code of the time for which a peer may ask in an RNR NAK: 0.64 ms, as Linux's RDMA-CM sets it.
const RNR_TIMER: u8 = 12;

/// Returns a depth of reads as the connection manager's messages carry it.
fn depth(depth: u16) -> u8 {
    u8::try_from(depth).unwrap_or(u8::MAX)
}

/// Returns whether a queue pair of this service can be the peer of the one that sent a request.
fn serves(service: Service, request: &Req) -> bool {
    match request.service {
        ServiceType::Rc => service == Service::Connected,
        ServiceType::Uc => service == Service::Unreliable,
        ServiceType::Rd => false,
        ServiceType::Extended => matches!(service, Service::XrcTarget(_)),
    }
}

/// Queue pair parameters from the messages of a connection.
struct Agreed {
    /// The peer's queue pair.
    qpn: u32,
    /// The PSN of our first packet.
    first_psn_out: u32,
    /// The maximum numbers of outstanding reads from the peer and to the peer.
    depths: (u16, u16),
    /// The codes of the path MTU and of the acknowledgement timeout.
    mtu: u8,
    ack_timeout: u8,
    retries: u8,
    rnr_retries: u8,
}

/// The parts of a peer's request that the owner of the service gets.
struct Asked<'a> {
    service_id: u64,
    private_data: &'a [u8],
    /// The maximum numbers of outstanding reads from the peer and to the peer.
    depths: (u16, u16),
}

impl EngineState {
    /// Listens for the service of a port. The addresses are those of the devices for which it is.
    pub(super) fn roce_listen(
        &mut self,
        space: PortSpace,
        tcp: TcpListenSocket,
        addresses: Vec<IpAddr>,
        owner: Arc<dyn CmEventHandler>,
    ) -> io::Result<u32> {
        let port = tcp.address()?.port();
        let Some(roce) = &mut self.roce else { return Err(io::ErrorKind::Unsupported.into()) };
        let mut udp = Vec::new();
        for &address in &addresses {
            let socket = UdpLink::bind(SocketAddr::new(address, port))?;
            roce.prepare(&socket)?;
            udp.push(Arc::new(socket));
        }
        let service_id = space.service_id(port);
        roce.cm.cm.listen(service_id).map_err(io::Error::other)?;
        let mut opened = Vec::new();
        for address in addresses {
            match roce.open_address(address) {
                Ok(()) => opened.push(address),
                Err(error) => {
                    opened.into_iter().for_each(|address| roce.close_address(address));
                    roce.cm.cm.unlisten(service_id);
                    return Err(error);
                }
            }
        }
        let number = roce.cm.next_listener;
        roce.cm.next_listener += 1;
        let listener = Listener { _tcp: tcp, udp, service_id, addresses: opened, owner };
        roce.cm.listeners.insert(number, listener);
        Ok(number)
    }

    /// Stops listening. Unanswered requests are refused by their owners.
    pub(super) fn roce_unlisten(&mut self, listener: u32) {
        let Some(roce) = &mut self.roce else { return };
        if let Some(listener) = roce.cm.listeners.remove(&listener) {
            roce.cm.cm.unlisten(listener.service_id);
            listener.addresses.into_iter().for_each(|address| roce.close_address(address));
        }
    }

    /// Begins to connect a queue pair. Returns the end.
    pub(super) fn roce_connect(
        &mut self,
        qp: u32,
        (from, space, to): (Option<IpAddr>, PortSpace, SocketAddr),
        (ird, ord): (u16, u16),
        private_data: &[u8],
        owner: Arc<dyn CmEventHandler>,
        now: Instant,
    ) -> io::Result<Result<u32, OpenError>> {
        let (Some(roce), Some(entry)) = (&mut self.roce, self.qps.get(qp)) else {
            return Ok(Err(OpenError::InUse));
        };
        let address = entry.address;
        // A peer at a loopback address is on this host, and its queue pair is at the address of a device.
        let peer = if to.ip().is_loopback() { SocketAddr::new(address, to.port()) } else { to };
        if peer.is_ipv4() != address.is_ipv4() {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let service = match entry.service {
            Service::Connected => ServiceType::Rc,
            Service::Unreliable => ServiceType::Uc,
            Service::XrcInitiator => ServiceType::Extended,
            // The standard has no such request: a target does not connect, and datagrams have SIDR.
            Service::XrcTarget(_) | Service::Datagrams => return Ok(Err(OpenError::InUse)),
        };
        let psn = roce.cm.draw_psn();
        let source = from.filter(|from| from.is_ipv4() == to.is_ipv4()).unwrap_or(address);
        let source_port = entry.qpn as u16;
        let mut data = vec![0; IpCm::BYTES];
        IpCm { source_port, source, destination: to.ip() }.write(&mut data);
        data.extend_from_slice(private_data);
        roce.open_address(address)?;
        let connect = Connect {
            service_id: space.service_id(to.port()),
            qpn: entry.qpn,
            psn,
            service,
            responder_resources: depth(ird),
            initiator_depth: depth(ord),
            srq: entry.attributes.srq.is_some(),
            mtu: roce.mtu(address),
            private_data: data,
            ..Connect::default()
        };
        match roce.cm.cm.connect(address, SocketAddr::new(peer.ip(), PORT), &connect, now) {
            Ok(ConnectionId(number)) => {
                let local = SocketAddr::new(source, source_port);
                let end = End {
                    owner: Some(owner),
                    qp: Some(qp),
                    local,
                    peer: to,
                    address,
                    remote: peer.ip(),
                    depths: (ird, ord),
                    psn,
                    mtu: connect.mtu,
                    connect: Some(Box::new(connect)),
                    request: None,
                    is_datagrams: false,
                };
                roce.cm.ends.insert(number, end);
                Ok(Ok(number))
            }
            Err(error) => {
                roce.close_address(address);
                Ok(Err(open_error(error)))
            }
        }
    }

    /// Accepts a request on a queue pair that is not connected.
    pub(super) fn roce_accept(
        &mut self,
        number: u32,
        qp: u32,
        (ird, ord): (u16, u16),
        private_data: &[u8],
        now: Instant,
    ) -> Result<(), OpenError> {
        let Some(roce) = &mut self.roce else { return Err(OpenError::Gone) };
        let psn = roce.cm.draw_psn();
        let end = roce.cm.ends.get_mut(&number).ok_or(OpenError::Gone)?;
        if end.is_datagrams {
            return self.roce_answer(number, qp, private_data, now);
        }
        let request = end.request.as_ref().ok_or(OpenError::Gone)?;
        let is_reached = |entry: &&Entry| entry.address == end.address && serves(entry.service, request);
        let entry = self.qps.get(qp).filter(is_reached).ok_or(OpenError::InUse)?;
        let (qpn, srq) = (entry.qpn, entry.attributes.srq.is_some());
        let request = end.request.take().ok_or(OpenError::Gone)?;
        (end.qp, end.psn) = (Some(qp), psn);
        let agreed = Agreed {
            qpn: request.qpn,
            first_psn_out: request.psn,
            depths: (ird, ord),
            mtu: request.mtu,
            ack_timeout: request.path.ack_timeout,
            retries: request.retry_count,
            rnr_retries: request.rnr_retry_count,
        };
        self.roce_establish(number, agreed, now)?;
        let accept = Accept {
            qpn,
            psn,
            responder_resources: depth(ird),
            initiator_depth: depth(ord),
            rnr_retry_count: 7,
            srq,
            private_data: private_data.to_vec(),
            ..Accept::default()
        };
        let Some(roce) = &mut self.roce else { return Err(OpenError::Gone) };
        roce.cm.cm.accept(ConnectionId(number), &accept, now).map_err(open_error)
    }

    /// Requests a connection again with a smaller path MTU, because the peer's link does not carry the one
    /// that was requested. Returns false if there is none.
    fn roce_connect_smaller(&mut self, number: u32, now: Instant) -> bool {
        let Some(RoceCm { cm, ends, .. }) = self.roce.as_mut().map(|roce| &mut roce.cm) else { return false };
        let Some(End { connect: Some(connect), mtu, address, remote, .. }) = ends.get_mut(&number) else {
            return false;
        };
        connect.mtu -= 1;
        *mtu = connect.mtu;
        // This fails if no path MTU is smaller.
        let again = cm.connect(*address, SocketAddr::new(*remote, PORT), connect, now);
        let Ok(ConnectionId(to)) = again else { return false };
        let Some(end) = ends.remove(&number) else { return false };
        if let Some(owner) = &end.owner {
            owner.on_event(CmEvent::Retried { end: number, to, local: Some(end.local) });
        }
        ends.insert(to, end);
        true
    }

    /// Moves an end's queue pair to RTS.
    fn roce_establish(&mut self, number: u32, agreed: Agreed, now: Instant) -> Result<(), OpenError> {
        let end = self.roce.as_mut().and_then(|roce| roce.cm.ends.get_mut(&number)).ok_or(OpenError::Gone)?;
        end.depths = agreed.depths;
        let qp = end.qp.ok_or(OpenError::Gone)?;
        let peer = Peer {
            address: end.remote,
            qpn: agreed.qpn,
            initial_psn: end.psn,
            reads: agreed.depths.0,
            path_mtu: mtu_bytes(agreed.mtu).unwrap_or(1024),
            rnr_timer: RNR_TIMER,
        };
        let sending = Sending {
            initial_psn: agreed.first_psn_out,
            reads: agreed.depths.1,
            connect_timeout: None,
            ack_timeout: Some(timeout(agreed.ack_timeout)),
            retries: agreed.retries,
            rnr_retries: agreed.rnr_retries,
        };
        // A queue pair that the program has created itself may still be in the state RESET, because some
        // programs change its state only after the reply has arrived. For other queue pairs, this fails.
        let _ = self.ready(qp, 0);
        let ready = self.ready_to_receive(qp, Some(peer), now);
        ready.map_err(|_| OpenError::InUse)?.map_err(|_| OpenError::InUse)?;
        self.ready_to_send(qp, sending, now).map_err(|_| OpenError::InUse)
    }

    /// Rejects a request.
    pub(super) fn roce_reject(&mut self, number: u32, data: &[u8], now: Instant) -> Result<(), OpenError> {
        let Some(roce) = &mut self.roce else { return Err(OpenError::Gone) };
        let (connection, end) = (ConnectionId(number), roce.cm.ends.get(&number));
        let rejected = match end.is_some_and(|end| end.is_datagrams) {
            true => roce.cm.cm.refuse(connection, SidrStatus::REJECTED, data, now),
            false => roce.cm.cm.reject(connection, RejectReason::CONSUMER, data, now),
        };
        self.roce_forget(number);
        rejected.map_err(open_error)
    }

    /// Ends a connection: its queue pair fails.
    pub(super) fn roce_disconnect(&mut self, number: u32, now: Instant) {
        let Some(roce) = &mut self.roce else { return };
        let qp = roce.cm.ends.get(&number).and_then(|end| end.qp);
        // This fails if the connection has ended, or never began.
        let _ = roce.cm.cm.disconnect(ConnectionId(number), &[], now);
        if let Some(qp) = qp {
            let _ = self.set_error(qp, now);
        }
    }

    /// Releases an end from its owner.
    pub(super) fn roce_release(&mut self, number: u32, now: Instant) {
        let Some(roce) = &mut self.roce else { return };
        // This fails if the connection has ended.
        let _ = roce.cm.cm.abort(ConnectionId(number), now);
        self.roce_forget(number);
    }

    /// Releases all ends from their owners.
    pub(super) fn roce_release_all(&mut self, now: Instant) {
        let Some(roce) = &self.roce else { return };
        let numbers: Vec<u32> = roce.cm.ends.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.roce_release(number, now));
    }

    fn roce_forget(&mut self, number: u32) {
        let Some(roce) = &mut self.roce else { return };
        if let Some(end) = roce.cm.ends.remove(&number) {
            roce.close_address(end.address);
        }
    }

    /// Returns the addresses of an end, ours first.
    pub(super) fn roce_addresses(&self, number: u32) -> Option<(SocketAddr, SocketAddr)> {
        let end = self.roce.as_ref()?.cm.ends.get(&number)?;
        Some((end.local, end.peer))
    }

    /// Delivers the connection manager's events. Returns whether there were any.
    pub(super) fn hear_roce_connections(&mut self, now: Instant) -> bool {
        let mut progressed = false;
        while let Some(event) = self.roce.as_mut().and_then(|roce| roce.cm.cm.poll_event()) {
            progressed = true;
            self.has_events = true;
            self.on_roce_event(event, now);
        }
        progressed
    }

    fn on_roce_event(&mut self, event: cm::CmEvent, now: Instant) {
        match event {
            cm::CmEvent::ConnectRequest { connection, peer, local, request } => {
                let (service_id, private_data) = (request.service_id, request.private_data);
                let depths = (request.initiator_depth.into(), request.responder_resources.into());
                let asked = Asked { service_id, private_data: &private_data, depths };
                self.on_roce_request(connection.0, peer, local, &asked, Some(request), now);
            }
            cm::CmEvent::ServiceRequest { connection, peer, local, request } => {
                let (service_id, private_data) = (request.service_id, &request.private_data);
                let asked = Asked { service_id, private_data, depths: (0, 0) };
                self.on_roce_request(connection.0, peer, local, &asked, None, now);
            }
            cm::CmEvent::ServiceReply { connection, reply } => self.on_roce_resolved(connection.0, &reply),
            cm::CmEvent::Connected { connection, reply } => self.on_roce_reply(connection.0, &reply, now),
            cm::CmEvent::Established { connection, .. } => {
                self.tell_roce(connection.0, |end, depths| CmEvent::Connected {
                    end,
                    private_data: Vec::new(),
                    depths,
                });
            }
            cm::CmEvent::Rejected { connection, reason: RejectReason::INVALID_MTU, .. }
                if self.roce_connect_smaller(connection.0, now) => {}
            cm::CmEvent::Rejected { connection, reason, private_data } => {
                let error = match reason {
                    RejectReason::CONSUMER => ConnectError::Rejected(private_data),
                    RejectReason::INVALID_SERVICE_ID => ConnectError::Unreachable,
                    RejectReason::TIMEOUT => ConnectError::Timeout,
                    _ => ConnectError::Lost,
                };
                self.tell_roce(connection.0, |end, _| CmEvent::Failed { end, error });
            }
            cm::CmEvent::TimedOut { connection } => {
                let error = ConnectError::Timeout;
                self.tell_roce(connection.0, |end, _| CmEvent::Failed { end, error });
            }
            cm::CmEvent::Unreachable { connection } => {
                let error = ConnectError::PortUnreachable;
                self.tell_roce(connection.0, |end, _| CmEvent::Failed { end, error });
            }
            cm::CmEvent::Disconnected { connection, .. } => {
                // Programs wait for their flushed work, as over a stream that the peer has closed.
                let ends = self.roce.as_ref().map(|roce| &roce.cm.ends);
                if let Some(qp) = ends.and_then(|ends| ends.get(&connection.0)).and_then(|end| end.qp) {
                    // This fails if the queue pair is gone.
                    let _ = self.set_error(qp, now);
                }
                self.tell_roce(connection.0, |end, _| CmEvent::Disconnected { end });
            }
            // The queue pair's number is not reused soon.
            cm::CmEvent::TimeWaitExit { .. } => {}
        }
    }

    /// Tells the owner of an end, if it has one.
    pub(super) fn tell_roce(&self, number: u32, event: impl FnOnce(u32, (u16, u16)) -> CmEvent) {
        let end = self.roce.as_ref().and_then(|roce| roce.cm.ends.get(&number));
        if let Some(End { owner: Some(owner), depths, .. }) = end {
            owner.on_event(event(number, *depths));
        }
    }

    /// Passes a peer's request to the owner of the service. It is one for a connection if there is a
    /// `request`.
    fn on_roce_request(
        &mut self,
        number: u32,
        peer: SocketAddr,
        local: IpAddr,
        asked: &Asked<'_>,
        request: Option<Box<Req>>,
        now: Instant,
    ) {
        let Some(roce) = &mut self.roce else { return };
        let is_datagrams = request.is_none();
        let Asked { service_id, private_data, depths } = *asked;
        let listener = roce.cm.listeners.iter().find(|(_, listener)| listener.serves(service_id, local));
        let (Some((&listener, Listener { owner, .. })), Some((_, port))) =
            (listener, PortSpace::of_service(service_id))
        else {
            // The listener has just ended, or is for other addresses. This fails if the peer has given up.
            let _ = match is_datagrams {
                true => roce.cm.cm.refuse(ConnectionId(number), SidrStatus::NOT_SUPPORTED, &[], now),
                false => roce.cm.cm.reject(ConnectionId(number), RejectReason::INVALID_SERVICE_ID, &[], now),
            };
            return;
        };
        let mtu = request.as_ref().map_or(0, |request| request.mtu);
        if mtu > roce.mtu(local) {
            // Both sides must use the same path MTU, and a REP cannot change it (IBTA volume 1 §12.7.24).
            // rdma_rxe would accept, and the link would then drop long packets.
            let _ = roce.cm.cm.reject(ConnectionId(number), RejectReason::INVALID_MTU, &[], now);
            return;
        }
        let (addresses, at) = match IpCm::read(private_data) {
            Ok((addresses, at)) => (Some(addresses), at),
            Err(_) => (None, 0),
        };
        let owner = owner.clone();
        let asked = ConnectRequest {
            listener,
            end: number,
            local: SocketAddr::new(addresses.map_or(local, |addresses| addresses.destination), port),
            peer: SocketAddr::new(peer.ip(), addresses.map_or(0, |addresses| addresses.source_port)),
            private_data: private_data[at..].to_vec(),
            depths,
        };
        let end = End {
            owner: None,
            qp: None,
            local: asked.local,
            peer: asked.peer,
            address: local,
            remote: peer.ip(),
            depths: (0, 0),
            psn: 0,
            mtu,
            connect: None,
            request,
            is_datagrams,
        };
        if roce.open_address(local).is_err() {
            return;
        }
        roce.cm.ends.insert(number, end);
        let accepts = owner.on_event(CmEvent::ConnectRequest(asked));
        let Some(roce) = &mut self.roce else { return };
        match accepts {
            Some(owner) => {
                if let Some(end) = roce.cm.ends.get_mut(&number) {
                    end.owner = Some(owner);
                }
            }
            None => drop(self.roce_reject(number, &[], now)),
        }
    }

    /// Establishes a connection that the peer has accepted.
    fn on_roce_reply(&mut self, number: u32, reply: &Rep, now: Instant) {
        let Some(roce) = &mut self.roce else { return };
        let Some(End { depths: (ird, ord), mtu, connect, .. }) = roce.cm.ends.get_mut(&number) else {
            return;
        };
        *connect = None;
        let defaults = Connect::default();
        let agreed = Agreed {
            qpn: reply.qpn,
            first_psn_out: reply.psn,
            depths: ((*ird).min(reply.initiator_depth.into()), (*ord).min(reply.responder_resources.into())),
            mtu: *mtu,
            ack_timeout: defaults.ack_timeout,
            retries: defaults.retry_count,
            rnr_retries: reply.rnr_retry_count,
        };
        let established = self.roce_establish(number, agreed, now);
        let Some(roce) = &mut self.roce else { return };
        match established {
            Ok(()) => {
                // This fails if the peer has given up in the meantime; an event says so.
                let _ = roce.cm.cm.confirm(ConnectionId(number), &[]);
                let private_data = reply.private_data.to_vec();
                self.tell_roce(number, |end, depths| CmEvent::Connected { end, private_data, depths });
            }
            Err(_) => {
                let _ = roce.cm.cm.reject(ConnectionId(number), RejectReason::CONSUMER, &[], now);
                self.tell_roce(number, |end, _| CmEvent::Failed { end, error: ConnectError::Lost });
            }
        }
    }
}
