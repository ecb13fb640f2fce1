//! Services of datagrams over RoCEv2: the queue pair behind a port of `RDMA_PS_UDP` (SIDR, IBTA volume 1
//!            §12.11).
//!
//! ```text
//! program        here                                            on the wire
//! rdma_listen    as for connections ([`super::roce_connections`])
//! rdma_connect                                                   SIDR_REQ
//! rdma_accept    the queue pair's number and Q_Key               SIDR_REP
//! rdma_reject                                                    SIDR_REP with a status
//! ```
//!
//! State      neither side keeps a connection: a resolution is over when it is answered, and its end remains
//!            only until the program releases it.
//! Addresses  as for connections, private data begins with RDMA-CM's addresses. Datagrams go to the address
//!            that the request went to; these addresses are not trusted.

use super::ends::{CmEvent, CmEventHandler, DatagramPeer};
use super::engine_state::EngineState;
use super::pairs::{Entry, Service};
use super::roce_cm::{End, open_error};
use kiban_base::Instant;
use kiban_rdma::nic::{ConnectError, OpenError};
use kiban_rdma::roce::cm::ConnectionId;
use kiban_rdma::wire::roce::PORT;
use kiban_rdma::wire::roce::cm::{IpCm, PortSpace, SidrRep, SidrStatus};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The default partition, with full membership.
const PKEY: u16 = 0xffff;

impl EngineState {
    /// Begins to resolve a service. Returns the end. `address` is that of the device.
    pub(super) fn roce_resolve(
        &mut self,
        address: IpAddr,
        (from, to): (SocketAddr, SocketAddr),
        private_data: &[u8],
        owner: Arc<dyn CmEventHandler>,
        now: Instant,
    ) -> io::Result<Result<u32, OpenError>> {
        let Some(roce) = &mut self.roce else { return Err(io::ErrorKind::Unsupported.into()) };
        // A peer at a loopback address is on this host, and its queue pair is at the address of a device.
        let remote = if to.ip().is_loopback() { address } else { to.ip() };
        if remote.is_ipv4() != address.is_ipv4() {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        // Announce a port that no other process has: this process receives at it.
        let port = if from.port() == 0 { roce.cm.port().local().port() } else { from.port() };
        let source = if to.is_ipv4() == from.is_ipv4() { from.ip() } else { to.ip() };
        let mut data = vec![0; IpCm::BYTES];
        IpCm { source_port: port, source, destination: to.ip() }.write(&mut data);
        data.extend_from_slice(private_data);
        let service_id = PortSpace::Udp.service_id(to.port());
        roce.open_address(address)?;
        let peer = SocketAddr::new(remote, PORT);
        match roce.cm.cm.resolve(address, peer, service_id, PKEY, &data, now) {
            Ok(ConnectionId(number)) => {
                let end = End {
                    owner: Some(owner),
                    qp: None,
                    local: SocketAddr::new(source, port),
                    peer: to,
                    address,
                    remote,
                    depths: (0, 0),
                    psn: 0,
                    mtu: roce.mtu(address),
                    connect: None,
                    request: None,
                    is_datagrams: true,
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

    /// Answers a peer's request with a queue pair and its Q_Key.
    pub(super) fn roce_answer(
        &mut self,
        number: u32,
        qp: u32,
        private_data: &[u8],
        now: Instant,
    ) -> Result<(), OpenError> {
        let Some(roce) = &mut self.roce else { return Err(OpenError::Gone) };
        let address = roce.cm.ends.get(&number).ok_or(OpenError::Gone)?.address;
        let is_reached = |entry: &&Entry| entry.address == address && entry.service == Service::Datagrams;
        let Entry { qpn, qkey, .. } = *self.qps.get(qp).filter(is_reached).ok_or(OpenError::InUse)?;
        roce.cm.cm.resolved(ConnectionId(number), qpn, qkey, private_data, now).map_err(open_error)
    }

    /// Tells the owner of a resolution its outcome.
    pub(super) fn on_roce_resolved(&mut self, number: u32, reply: &SidrRep) {
        let Some(end) = self.roce.as_ref().and_then(|roce| roce.cm.ends.get(&number)) else { return };
        let peer = DatagramPeer { address: end.remote, qpn: reply.qpn, qkey: reply.qkey };
        let private_data = reply.private_data.to_vec();
        self.tell_roce(number, |end, _| match reply.status {
            SidrStatus::VALID => CmEvent::Resolved { end, peer, private_data },
            SidrStatus(status) => {
                CmEvent::Failed { end, error: ConnectError::NotServed { status, private_data } }
            }
        });
    }
}
