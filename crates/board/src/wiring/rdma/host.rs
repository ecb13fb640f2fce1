//! The RDMA NIC at the host edge.

use super::efe::{Efe, EfeLink};
use super::nic::RdmaWiring;
use crate::board::Board;
use crate::edge::Upper;
use crate::error::HostError;
use crate::host::Host;
use crate::stack::Stack;
use crate::streams::choose;
use core::net::SocketAddr;
use kiban_attach::EndReason;
use kiban_base::ethernet::Mac;
use kiban_rdma::hif::Transport;
use kiban_rdma::nic::{Nic, OpenError};
use kiban_rdma::wire::efe::UDP_PORT;
use kiban_rdma::wire::roce::PORT;
use kiban_tcpip::tcp::Owner;

/// The RDMA NIC as the board's host sees it, for one call.
pub struct RdmaHost<'a> {
    rdma: &'a mut RdmaWiring,
    stack: &'a mut Stack,
}

impl Host<'_> {
    /// Returns the board's RDMA NIC, or `None` if its configuration has none.
    pub fn rdma(&mut self) -> Option<RdmaHost<'_>> {
        let Board { stack, rdma, .. } = &mut *self.board;
        let rdma = rdma.as_deref_mut()?;
        stack.unsettled = true;
        stack.edge.rdma_used_by(self.consumer);
        Some(RdmaHost { rdma, stack })
    }

    /// Listens for connections to the board's RDMA NIC; port 0 means a dynamic port. Returns the listener's
    /// number and its address.
    ///
    /// # Errors
    /// The address is not one of the board's, or is in use; there is no NIC, or it does not speak the
    /// transport.
    pub fn listen_rdma(
        &mut self,
        transport: Transport,
        local: SocketAddr,
    ) -> Result<(u32, SocketAddr), EndReason> {
        choose(self, local, |host, local| {
            let mut rdma = host.rdma().ok_or(EndReason::TooMany)?;
            match transport {
                Transport::Tcp => Ok(rdma.listen(local)?),
                Transport::Roce | Transport::Efe => {
                    let listens = match transport {
                        Transport::Roce => rdma.listen_roce(local.port()),
                        _ => rdma.listen_efe(local.port()),
                    };
                    match listens {
                        Ok(()) => Ok(local.port().into()),
                        Err(HostError::Busy) => Err(EndReason::InUse),
                        Err(error) => Err(error.into()),
                    }
                }
            }
        })
    }
}

impl RdmaHost<'_> {
    /// Returns the NIC: memory, queues, work requests, connection events.
    pub fn nic(&mut self) -> &mut Nic {
        &mut self.rdma.nic
    }

    /// Listens for connections over TCP. Returns the listener's number.
    ///
    /// # Errors
    /// Same as for [`Host::listen`].
    pub fn listen(&mut self, local: SocketAddr) -> Result<u32, HostError> {
        self.stack.listen(Upper::Rdma, Owner::BOARD, local, self.stack.v6_only)
    }

    /// Listens for connections over EFE; the listener's number is the service.
    ///
    /// # Errors
    /// `NotOpen` if the board's NIC does not speak EFE; `Busy` if the service has a listener.
    pub fn listen_efe(&mut self, service: u16) -> Result<(), HostError> {
        let endpoint = &mut self.rdma.efe.as_mut().ok_or(HostError::NotOpen)?.endpoint;
        if endpoint.listens(service) {
            return Err(HostError::Busy);
        }
        endpoint.listen(service);
        Ok(())
    }

    /// Stops listening. Connections and requests stay.
    pub fn unlisten(&mut self, transport: Transport, listener: u32) {
        let RdmaWiring { efe, roce, .. } = &mut *self.rdma;
        match transport {
            Transport::Roce => roce.iter_mut().for_each(|roce| roce.port.unlisten(listener as u16)),
            Transport::Efe => efe.iter_mut().for_each(|efe| efe.endpoint.unlisten(listener as u16)),
            // This fails if the listener does not exist.
            Transport::Tcp => drop(self.stack.unlisten(listener)),
        }
    }

    /// Returns the addresses of an endpoint, the board's first; `None` if its connection has ended, and at an
    /// EFE port.
    pub fn addresses(&mut self, end: u32) -> Option<(SocketAddr, SocketAddr)> {
        if let Some((own, peer)) = self.rdma.nic.roce_addresses(end) {
            return Some((SocketAddr::new(own, PORT), SocketAddr::new(peer, PORT)));
        }
        if let Some(flow) = self.rdma.nic.flow_of(end) {
            return self.rdma.efe.as_ref()?.addresses(flow);
        }
        let session = self.stack.session(*self.rdma.streams.get(&end)?).ok()?;
        self.stack.ip.tcp.info(session).map(|info| (info.local, info.remote))
    }

    /// Starts a connection over TCP and returns the number of its local endpoint.
    ///
    /// # Errors
    /// Same as for [`Host::open`]; `Busy` if the NIC has no room or the private data is too long.
    pub fn connect(
        &mut self,
        remote: SocketAddr,
        qp: u32,
        depths: (u16, u16),
        private_data: &[u8],
    ) -> Result<u32, HostError> {
        let now = self.stack.now;
        let RdmaHost { rdma, stack } = self;
        let stream = stack.open(Upper::Rdma, Owner::BOARD, None, remote)?;
        match rdma.nic.open(&rdma.config, qp, depths, private_data, now) {
            Ok(end) => {
                rdma.add(end, stream);
                Ok(end)
            }
            Err(_) => {
                let _ = stack.abort_stream(stream);
                Err(HostError::Busy)
            }
        }
    }

    /// Returns the transport of a connection.
    pub fn transport(&self, end: u32) -> Transport {
        match (self.rdma.nic.is_roce(end), self.rdma.nic.flow_of(end)) {
            (true, _) => Transport::Roce,
            (_, Some(_)) => Transport::Efe,
            _ => Transport::Tcp,
        }
    }

    /// Starts a connection over EFE to the service of a port, and returns the number of its local endpoint.
    ///
    /// # Errors
    /// [`HostError::NoRoute`]; `NotOpen` if the board's NIC does not speak EFE over UDP; `Busy` if the NIC
    /// has no room, the private data is too long, or the queue pair cannot be connected.
    pub fn connect_efe_over_udp(
        &mut self,
        remote: SocketAddr,
        qp: u32,
        depths: (u16, u16),
        private_data: &[u8],
    ) -> Result<u32, HostError> {
        let now = self.stack.now;
        let local = self.stack.ip.ip.source_for(remote.ip()).ok_or(HostError::NoRoute)?;
        let RdmaWiring { nic, config, efe, .. } = &mut *self.rdma;
        let Some(Efe { endpoint, below: EfeLink::Udp(udp), .. }) = efe else {
            return Err(HostError::NotOpen);
        };
        let peer = udp.peers.peer_of((local, SocketAddr::new(remote.ip(), UDP_PORT)), endpoint);
        nic.connect_flow(endpoint, (peer, remote.port()), config, qp, depths, private_data, now)
            .map_err(|_| HostError::Busy)
    }

    /// Starts a connection over EFE at the board's EFE port, and returns the number of its local endpoint.
    ///
    /// # Errors
    /// Fails if the private data is too long, there are too many connections, or the board has no EFE port
    /// (`Gone`).
    pub fn connect_efe(
        &mut self,
        mac: Mac,
        service: u16,
        qp: u32,
        depths: (u16, u16),
        private_data: &[u8],
    ) -> Result<u32, OpenError> {
        let now = self.stack.now;
        let RdmaWiring { nic, config, efe, .. } = &mut *self.rdma;
        let Some(Efe { endpoint, .. }) = efe else { return Err(OpenError::Gone) };
        nic.connect_flow(endpoint, (mac.into(), service), config, qp, depths, private_data, now)
    }

    /// Listens for connections over RoCEv2; the listener's number is the port.
    ///
    /// # Errors
    /// `NotOpen` if the board's NIC does not speak RoCEv2; `Busy` if the port has a listener, or there are
    /// too many.
    pub fn listen_roce(&mut self, port: u16) -> Result<(), HostError> {
        let roce = self.rdma.roce.as_mut().ok_or(HostError::NotOpen)?;
        roce.port.listen(port).map_err(|_| HostError::Busy)
    }

    /// Starts a connection over RoCEv2 to the service of a port, and returns the number of its local
    /// endpoint.
    ///
    /// # Errors
    /// [`HostError::NoRoute`]; `NotOpen` if the board's NIC does not speak RoCEv2; `Busy` if the NIC has no
    /// room, the private data is too long, or the queue pair cannot be connected.
    pub fn connect_roce(
        &mut self,
        remote: SocketAddr,
        qp: u32,
        depths: (u16, u16),
        private_data: &[u8],
    ) -> Result<u32, HostError> {
        let now = self.stack.now;
        let local = self.stack.ip.ip.source_for(remote.ip()).ok_or(HostError::NoRoute)?;
        let RdmaWiring { nic, roce, .. } = &mut *self.rdma;
        let roce = roce.as_mut().ok_or(HostError::NotOpen)?;
        nic.connect_roce(&mut roce.port, (local, remote), qp, depths, private_data, now)
            .map_err(|_| HostError::Busy)
    }

    /// Accepts a request ([`Nic::poll`]) for a queue pair.
    ///
    /// # Errors
    /// Same as for [`Nic::accept`].
    pub fn accept(
        &mut self,
        end: u32,
        qp: u32,
        depths: (u16, u16),
        private_data: &[u8],
    ) -> Result<(), OpenError> {
        let now = self.stack.now;
        let RdmaWiring { nic, efe, roce, .. } = &mut *self.rdma;
        if let (true, Some(roce)) = (nic.is_roce(end), roce) {
            return nic.accept_roce(&mut roce.port, end, qp, depths, private_data, now);
        }
        nic.accept(efe.as_mut().map(|efe| &mut efe.endpoint), end, qp, depths, private_data, now)?;
        // Boards accept the reply and the first FPDU in one segment. So the responder need not wait for the
        // initiator to send first, unless both agreed on a ready-to-receive message (RFC 6581 §9).
        if nic.hold(end).is_some() {
            nic.core.may_send(qp);
        }
        Ok(())
    }

    /// Refuses a request.
    ///
    /// # Errors
    /// Same as for [`Nic::reject`].
    pub fn reject(&mut self, end: u32, private_data: &[u8]) -> Result<(), OpenError> {
        let now = self.stack.now;
        let RdmaWiring { nic, efe, roce, .. } = &mut *self.rdma;
        if let (true, Some(roce)) = (nic.is_roce(end), roce) {
            return nic.reject_roce(&mut roce.port, end, private_data, now);
        }
        nic.reject(efe.as_mut().map(|efe| &mut efe.endpoint), end, private_data, now)
    }

    /// Destroys a queue pair. What its completed sends have transferred still arrives: the stream or flow of
    /// its connection is closed in order, after an announcement to a peer that waits for acknowledgements.
    pub fn destroy_qp(&mut self, qp: u32) {
        if let Some(end) = self.rdma.nic.end_of(qp) {
            let is_established = self.rdma.nic.is_established(end);
            if is_established && self.transport(end) != Transport::Roce {
                // This fails if the queue pair has ended.
                let _ = self.rdma.nic.core.announce_leave(qp);
            }
            if let Some(&stream) = self.rdma.streams.get(&end)
                && is_established
            {
                self.rdma.close(end, stream, self.stack);
            }
            let (now, RdmaWiring { nic, config, efe, .. }) = (self.stack.now, &mut *self.rdma);
            if let (Some(efe), Some(_)) = (efe, nic.flow_of(end)) {
                // What was posted before is queued first, as far as the flow has room.
                nic.schedule(end);
                nic.pump(&mut efe.endpoint, config, now);
                efe.part(nic, end, now);
            }
            self.forget(end);
        }
        // This fails if there is no such queue pair.
        let _ = self.rdma.nic.core.destroy_qp(qp);
    }

    /// Removes an endpoint; aborts its connection if it still has one.
    pub fn forget(&mut self, end: u32) {
        let now = self.stack.now;
        let RdmaWiring { nic, efe, roce, .. } = &mut *self.rdma;
        if let (true, Some(roce)) = (nic.is_roce(end), roce) {
            return nic.forget_roce(&mut roce.port, end, now);
        }
        nic.forget(efe.as_mut().map(|efe| &mut efe.endpoint), end, now);
        if let Some(stream) = self.rdma.streams.get(&end).copied() {
            self.rdma.forget_stream(end, stream);
            // This also frees a stream that has ended already.
            let _ = self.stack.abort_stream(stream);
        }
    }
}
