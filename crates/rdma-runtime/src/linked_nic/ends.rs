//! The ends of an RDMA NIC's connections: how they are created and closed.

use super::carrier::Transport;
use super::file::File;
use super::line::{Connection, EndState, ListenSocket, MpaListener, Route, SharedMemoryOffer};
use super::state::{CLOSE_TIMEOUT, LinkedNic, Timer};
use crate::link::{Address, Lower};
use crate::shared;
use crate::tcp::{TcpLink, TcpListenSocket};
use kiban_base::Instant;
use kiban_rdma::iwarp::mpa;
use kiban_rdma::nic::{ConnectError, OpenError, Request};
use kiban_rdma::wire::roce::PORT;
use rustix::event::epoll::{self, EventFlags};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

impl LinkedNic {
    /// Begins to connect. Returns the end.
    pub(crate) fn connect(
        &mut self,
        Route { to, from }: Route,
        config: &mpa::Config,
        qp: u32,
        depths: (u16, u16),
        private_data: &[u8],
        now: Instant,
    ) -> io::Result<Result<u32, OpenError>> {
        if let Some(efe) = &mut self.efe {
            let place = efe.place(to, from)?;
            let opened =
                self.nic.connect_flow(&mut efe.endpoint, place, config, qp, depths, private_data, now);
            if let Ok(end) = opened {
                self.end_states.insert(end, EndState::default());
            }
            return Ok(opened);
        }
        if let Some(roce) = &mut self.roce {
            let route = (roce.address(), ip_address(to)?);
            if route.0.is_ipv4() != route.1.is_ipv4() {
                return Err(io::ErrorKind::AddrNotAvailable.into());
            }
            let opened = self.nic.connect_roce(&mut roce.port, route, qp, depths, private_data, now);
            if let Ok(end) = opened {
                self.end_states.insert(end, EndState::default());
            }
            return Ok(opened);
        }
        let mut offer = SharedMemoryOffer::None;
        let shares = self.shares;
        let to = ip_address(to)?;
        let carrier = match &self.board {
            Some(board) => Transport::Board(board.connect(from.map(|from| SocketAddr::new(from, 0)), to)?),
            None => TcpLink::connect_after(to, from.or(self.lower.from()), |own| {
                // Without the rendezvous socket, the connection stays on TCP.
                if shares && let Ok(listener) = shared::listen(own, to) {
                    offer = SharedMemoryOffer::Open(listener);
                }
            })?
            .into(),
        };
        let end = match self.nic.open(config, qp, depths, private_data, now) {
            Ok(end) => end,
            Err(error) => return Ok(Err(error)),
        };
        if let Err(error) = self.add_line(end, carrier, false, offer) {
            self.nic.forget(None, end, now);
            return Err(error);
        }
        self.end_states.insert(end, EndState::default());
        Ok(Ok(end))
    }

    pub(super) fn add_line(
        &mut self,
        end: u32,
        carrier: Transport,
        connected: bool,
        offer: SharedMemoryOffer,
    ) -> io::Result<()> {
        let line = Connection::new(carrier, connected, offer);
        if let Some(link) = line.transport.socket() {
            self.watch(link.as_fd(), File::Link(end), line.interest)?;
        }
        if let SharedMemoryOffer::Open(listener) = &line.offer {
            self.watch(listener.as_fd(), File::Offer(end), EventFlags::IN)?;
        }
        self.connections.insert(end, line);
        self.arm_new(end);
        self.choose_direct();
        Ok(())
    }

    /// Starts listening. Returns the listener's number and its address. On a board, the address is known
    /// only later ([`LinkedNic::listening`]).
    pub(crate) fn listen(
        &mut self,
        at: Address,
        config: mpa::Config,
        backlog: u32,
    ) -> io::Result<(u32, Option<Address>)> {
        if let Some(efe) = &mut self.efe {
            let (number, address) = efe.listen(at)?;
            return Ok((number, Some(address)));
        }
        let at = ip_address(at)?;
        if let Some(roce) = &mut self.roce {
            let port = roce.listen(at)?;
            let address = SocketAddr::new(roce.address(), port);
            return Ok((port.into(), Some(address.into())));
        }
        if self.board.is_some() {
            return Ok((self.listen_on_board(at, config)?, None));
        }
        let listener = TcpListenSocket::open(at, backlog)?;
        let address = listener.address()?;
        Ok((self.listen_at(listener, config)?, Some(address.into())))
    }

    /// Listens on an existing socket. Returns the listener's number.
    pub(crate) fn listen_at(&mut self, listener: TcpListenSocket, config: mpa::Config) -> io::Result<u32> {
        self.listeners_opened += 1;
        let number = self.listeners_opened;
        self.watch(listener.as_fd(), File::Listener(number), EventFlags::IN)?;
        self.listeners.insert(number, MpaListener { entrance: ListenSocket::Socket(listener), config });
        Ok(number)
    }

    /// Makes [`LinkedNic::changed`] report every end whose state changes.
    pub(crate) fn follow_all(&mut self) {
        self.changed = Some(Vec::new());
    }

    /// Returns the next end whose state changed.
    pub(crate) fn changed(&mut self) -> Option<u32> {
        self.changed.as_mut()?.pop()
    }

    /// Returns whether there is an event of the NIC, a request, or an end whose state has changed.
    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
            || !self.cq_events.is_empty()
            || self.nic.core.has_events()
            || !self.requests.is_empty()
            || self.changed.as_ref().is_some_and(|changed| !changed.is_empty())
    }

    /// Returns the next request at any listener. The caller becomes the owner of its end.
    pub(crate) fn next_request(&mut self) -> Option<Request> {
        let request = self.requests.pop_front()?;
        self.end_states.entry(request.end).or_default();
        Some(request)
    }

    pub(crate) fn unlisten(&mut self, listener: u32, now: Instant) {
        match (&mut self.efe, &mut self.roce) {
            (Some(efe), _) => efe.unlisten(listener),
            (None, Some(roce)) => roce.port.unlisten(listener as u16),
            (None, None) => drop(self.listeners.remove(&listener)),
        }
        let (theirs, others) = self.requests.drain(..).partition(|request| request.listener == listener);
        self.requests = others;
        let theirs: VecDeque<Request> = theirs;
        for request in theirs {
            self.forget(request.end, now);
        }
    }

    /// Returns the next request at a listener, and the peer's address if the request arrived on a stream.
    pub(crate) fn request(&mut self, listener: u32) -> Option<(Request, Option<SocketAddr>)> {
        let at = self.requests.iter().position(|request| request.listener == listener)?;
        let request = self.requests.remove(at)?;
        self.end_states.entry(request.end).or_default();
        let from = self.addresses(request.end);
        Some((request, from.map(|(_, peer)| peer)))
    }

    pub(crate) fn accept(
        &mut self,
        end: u32,
        qp: u32,
        depths: (u16, u16),
        private_data: &[u8],
        now: Instant,
    ) -> Result<(), OpenError> {
        if let Some(roce) = &mut self.roce {
            return self.nic.accept_roce(&mut roce.port, end, qp, depths, private_data, now);
        }
        let endpoint = self.efe.as_mut().map(|efe| &mut efe.endpoint);
        self.nic.accept(endpoint, end, qp, depths, private_data, now)?;
        if let Some(hold) = self.nic.hold(end) {
            self.timers.push(Reverse((now + hold, Timer::Hold(end, 0))));
        }
        Ok(())
    }

    pub(crate) fn reject(&mut self, end: u32, private_data: &[u8], now: Instant) -> Result<(), OpenError> {
        if let Some(roce) = &mut self.roce {
            return self.nic.reject_roce(&mut roce.port, end, private_data, now);
        }
        let endpoint = self.efe.as_mut().map(|efe| &mut efe.endpoint);
        self.nic.reject(endpoint, end, private_data, now)
    }

    /// Releases an end from its owner. An end that is closing gracefully continues as long as its queue pair
    /// exists, and closes when everything has been sent ([`Core::write`]).
    pub(crate) fn release(&mut self, end: u32, now: Instant) {
        if !self.nic.is_ending(end) {
            return self.forget(end, now);
        }
        self.end_states.remove(&end);
        self.orphans.push(end);
        self.nic.schedule(end);
    }

    /// Removes an end at once.
    pub(crate) fn forget(&mut self, end: u32, now: Instant) {
        self.end_states.remove(&end);
        self.orphans.retain(|&orphan| orphan != end);
        match self.remove_line(end) {
            // Our direction is already closed; the system completes the close.
            Some(line) if line.finished => {}
            Some(line) => line.transport.abort(),
            None => {}
        }
        self.choose_direct();
        if let Some(roce) = &mut self.roce {
            return self.nic.forget_roce(&mut roce.port, end, now);
        }
        let endpoint = self.efe.as_mut().map(|efe| &mut efe.endpoint);
        self.nic.forget(endpoint, end, now);
    }

    /// Removes an end at once, but still delivers the data that its socket has accepted. This is for a queue
    /// pair that is destroyed after its work is complete. A partly sent frame cannot be completed, so in
    /// that case the stream is aborted.
    pub(crate) fn remove_after_flush(&mut self, end: u32, now: Instant) {
        if self.part_flow(end, now) {
            return self.forget(end, now);
        }
        let is_whole = self.nic.is_established(end)
            && self.nic.stream(end).is_some_and(|(stream, _)| stream.unsent_bytes() == 0);
        if is_whole && let Some(mut line) = self.remove_line(end) {
            if !line.finished {
                line.transport.finish();
            }
            if line.transport.shared().is_some() {
                // Data in the shared memory stays available to the peer.
                return self.forget(end, now);
            }
            self.farewells_made = self.farewells_made.wrapping_add(1);
            let number = self.farewells_made;
            let data = File::Farewell(number).data();
            let socket = line.transport.socket();
            let is_watched =
                |link: &TcpLink| epoll::modify(&self.epoll, link.as_fd(), data, EventFlags::IN).is_ok();
            if socket.is_none_or(is_watched) {
                self.closing_streams.insert(number, line.transport);
                self.timers.push(Reverse((now + CLOSE_TIMEOUT, Timer::Parted(number))));
            }
        }
        self.forget(end, now);
    }

    pub(super) fn remove_line(&mut self, end: u32) -> Option<Connection> {
        let line = self.connections.remove(&end)?;
        if line.transport.shared().is_some() {
            self.shared.retain(|&shared| shared != end);
        }
        Some(line)
    }

    /// Returns the addresses of an end's stream or datagrams, ours first.
    pub(crate) fn addresses(&self, end: u32) -> Option<(SocketAddr, SocketAddr)> {
        if let Some((own, peer)) = self.nic.roce_addresses(end) {
            return Some((SocketAddr::new(own, PORT), SocketAddr::new(peer, PORT)));
        }
        if let Some(efe) = self.efe.as_ref().filter(|efe| efe.has_port_per_service()) {
            return efe.addresses(self.nic.flow_of(end)?);
        }
        self.connections.get(&end)?.transport.addresses()
    }

    /// Returns the local address of an end's stream, which may still be connecting.
    pub(crate) fn local_address(&self, end: u32) -> Option<SocketAddr> {
        if self.has_efe_ports() {
            return self.addresses(end).map(|(own, _)| own);
        }
        self.connections.get(&end)?.transport.local_address()
    }

    /// Aborts every connection and stops listening.
    pub(crate) fn abort_all(&mut self, now: Instant) {
        let ends: Vec<u32> = self.end_states.keys().chain(self.connections.keys()).copied().collect();
        for end in ends {
            match self.nic.qp_of(end) {
                Some(qp) => drop(self.nic.core.abort(qp)),
                None => self.nic.fail(end, ConnectError::Lost),
            }
        }
        self.listeners.clear();
        if let Some(efe) = &mut self.efe {
            efe.stop_listening();
        }
        if let Some(roce) = &mut self.roce {
            roce.port.unlisten_all();
        }
        self.serve(now);
    }

    /// Returns the number of streams that use shared memory.
    pub(crate) fn shared(&self) -> usize {
        self.shared.len()
    }

    /// Returns the number of lines.
    pub(crate) fn lines(&self) -> usize {
        self.connections.len()
    }
}

/// Returns the IP address of an end; TCP and RoCEv2 support no other kind of address.
fn ip_address(address: Address) -> io::Result<SocketAddr> {
    match address {
        Address::Ip(address) => Ok(address),
        Address::Ethernet { .. } => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "TCP and RoCEv2 need an address in the form IP:PORT, not an Ethernet address",
        )),
    }
}

impl Lower {
    /// Returns the configured local address for outgoing connections.
    fn from(&self) -> Option<IpAddr> {
        match self {
            Lower::Tcp { from } => *from,
            _ => None,
        }
    }
}
