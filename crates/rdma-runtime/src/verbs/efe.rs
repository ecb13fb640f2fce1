//! Connections over EFE, out of band and through the connection manager.
//!
//! Ports      a listener of the connection manager has the UDP port whose number the program chose, at each
//!            of its devices. A queue pair's number contains its UDP port ([`super::ports`]), as over TCP.
//!            The service of a flow is the number of the port.
//! Loopback   a peer at a loopback address is on this host, and its queue pair is at the address of a device,
//!            as over RoCEv2.
//! Memory     is never shared: frames between processes of a host go over UDP.
//! Limits     no datagrams. While connections to a closed listener last, only their process can listen at its
//!            port.

use super::ends::CmEventHandler;
use super::engine_state::EngineState;
use crate::linked_nic::Route;
use crate::tcp::TcpListenSocket;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

impl EngineState {
    /// Listens at a port of devices. `tcp` holds the port for TCP.
    pub(super) fn efe_listen(
        &mut self,
        tcp: TcpListenSocket,
        port: u16,
        addresses: &[IpAddr],
        owner: Arc<dyn CmEventHandler>,
    ) -> io::Result<u32> {
        let ports: Vec<SocketAddr> = addresses.iter().map(|&at| SocketAddr::new(at, port)).collect();
        let listener = self.core.listen_on_efe(&ports)?;
        self.listeners.of.insert(listener, (owner, port));
        self.listeners.tcp.insert(listener, tcp);
        Ok(listener)
    }

    /// Returns the route from the device of a queue pair to a listener.
    pub(super) fn efe_route(&self, qp: u32, to: SocketAddr) -> io::Result<Route> {
        let device = self.qps.get(qp).map(|entry| entry.address).ok_or(io::ErrorKind::InvalidInput)?;
        let to = if to.ip().is_loopback() { SocketAddr::new(device, to.port()) } else { to };
        if to.is_ipv4() != device.is_ipv4() {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        Ok(Route { to: to.into(), from: Some(device) })
    }
}
