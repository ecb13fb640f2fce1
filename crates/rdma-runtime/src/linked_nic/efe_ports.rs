//! The UDP ports of an EFE endpoint below a NIC: how they are opened, and what arrives at them.

use super::file::File;
use super::state::{CLOSE_TIMEOUT, LinkedNic, Timer, UDP_EVENTS};
use kiban_base::Instant;
use kiban_os::udp::UdpLink;
use kiban_rdma::nic::Request;
use std::cmp::Reverse;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

impl LinkedNic {
    /// Returns whether connections use EFE, in which each service has a UDP port.
    pub(crate) fn has_efe_ports(&self) -> bool {
        self.efe.as_ref().is_some_and(|efe| efe.has_port_per_service())
    }

    /// Opens a port with an existing socket.
    ///
    /// # Errors
    /// There are too many ports; the system has no memory to watch the socket.
    pub(crate) fn add_efe_port(&mut self, udp: &Arc<UdpLink>) -> io::Result<()> {
        let Some(efe) = &mut self.efe else { return Err(io::ErrorKind::Unsupported.into()) };
        let number = efe.add_port(udp.clone())?;
        let watched = self.watch(udp.as_fd(), File::Efe(number), UDP_EVENTS);
        if watched.is_err() {
            self.close_efe_port(udp.local());
        }
        watched
    }

    /// Closes a port as soon as no flow uses it.
    pub(crate) fn close_efe_port(&mut self, at: SocketAddr) {
        if let Some(efe) = &mut self.efe {
            efe.close_port(at);
        }
    }

    /// Listens at a port that is open.
    pub(crate) fn listen_at_efe_port(&mut self, at: SocketAddr) -> io::Result<u32> {
        self.listeners_opened += 1;
        let efe = self.efe.as_mut().ok_or(io::ErrorKind::Unsupported)?;
        efe.listen_at(at, self.listeners_opened)?;
        Ok(self.listeners_opened)
    }

    /// Opens ports and listens at all of them. Returns the listener's number.
    ///
    /// # Errors
    /// An address is not local, or its port is in use; there are no more resources.
    pub(crate) fn listen_on_efe(&mut self, ports: &[SocketAddr]) -> io::Result<u32> {
        self.listeners_opened += 1;
        let listener = self.listeners_opened;
        for &at in ports {
            let opened = self.open_efe_port(at, listener);
            if opened.is_err() {
                self.unlisten(listener, Instant::ZERO);
                return opened.map(|()| listener);
            }
        }
        Ok(listener)
    }

    fn open_efe_port(&mut self, at: SocketAddr, listener: u32) -> io::Result<()> {
        let efe = self.efe.as_mut().ok_or(io::ErrorKind::Unsupported)?;
        let (number, new) = efe.bind_port(at)?;
        efe.listen_at(at, listener)?;
        new.map_or(Ok(()), |udp| self.watch(udp.as_fd(), File::Efe(number), UDP_EVENTS))
    }

    /// Returns the number of open ports.
    #[cfg(test)]
    pub(crate) fn efe_ports(&self) -> usize {
        self.efe.as_ref().map_or(0, |efe| efe.files().len())
    }

    /// Handles a connection request. Over EFE, it names a service; its listener is that of the port.
    pub(super) fn on_request(&mut self, mut request: Request, now: Instant) {
        if let Some(efe) = self.efe.as_ref().filter(|efe| efe.has_port_per_service()) {
            match self.nic.flow_of(request.end).and_then(|flow| efe.listener_of(flow)) {
                Some(listener) => request.listener = listener,
                None => return self.forget(request.end, now),
            }
        }
        self.requests.push_back(request);
    }

    /// Parts an end from its EFE flow, which delivers the queued segments and then ends. Returns whether the
    /// end has such a flow.
    pub(super) fn part_flow(&mut self, end: u32, now: Instant) -> bool {
        let Some(efe) = &mut self.efe else { return false };
        let Some(flow) = self.nic.part_flow(&mut efe.endpoint, end, now) else { return false };
        self.timers.push(Reverse((now + CLOSE_TIMEOUT, Timer::PartedFlow(flow))));
        true
    }
}
