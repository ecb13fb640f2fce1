//! The connection manager's part of the engine: listen, connect, answer, disconnect.
//!
//! Purpose  gives each connection, from its request on, an owner that receives its events
//!          ([`CmEventHandler`]).
//! Locking  owners are called while the NIC is locked, so they must record the event and call the engine
//!          later.

use super::ends::{CmEvent, CmEventHandler, ConnectRequest, EndUse, Retry};
use super::engine::Engine;
use super::engine_state::EngineState;
use crate::link::Address;
use crate::linked_nic::Route;
use crate::port_space::tcp_address;
use crate::tcp::TcpListenSocket;
use kiban_base::Instant;
use kiban_rdma::hif::Request;
use kiban_rdma::iwarp::mpa;
use kiban_rdma::nic::{ConnectError, OpenError};
use kiban_rdma::wire::roce::cm::PortSpace;
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Pauses, in milliseconds, before a refused connection is retried. Programs (qperf, perftest) send their
/// peers a port number just before they listen on that port. With the kernel's sockets the port is open
/// before the peer connects; with this engine it may not be. Behind a forwarder (QEMU's network,
/// docker-proxy, ssh -L) the connection is not refused: the stream ends without an answer instead.
const PAUSES_MS: [u64; 4] = [5, 10, 20, 40];

/// Returns the MPA settings of the connection manager: siw's defaults, and kiban's own extensions if they are
/// to be offered.
fn manager_config(extensions: bool) -> mpa::Config {
    mpa::Config { extensions, ..mpa::Config::default() }
}

impl Engine {
    /// Accepts connections from a listening socket. Returns the listener's number. For RoCEv2, whose
    /// connections do not come through the socket, `space` is the port space, and `addresses` are those of
    /// the devices at which it listens. With [`PortSpace::Udp`], which only RoCEv2 has, it listens for
    /// requests for the queue pair of a service of datagrams.
    ///
    /// # Errors
    /// There is no memory to watch the socket. RoCEv2: the UDP port is in use, or another user or the kernel
    /// uses RoCEv2 at an address. Other protocols: [`io::ErrorKind::Unsupported`] for datagrams.
    pub fn listen(
        &self,
        space: PortSpace,
        socket: TcpListenSocket,
        addresses: Vec<IpAddr>,
        listens: Arc<dyn CmEventHandler>,
    ) -> io::Result<u32> {
        if self.board.is_some() {
            // `listen_on_board` listens without a socket of this host.
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.turn.work(|board, _| {
            if board.roce.is_some() || space == PortSpace::Udp {
                return board.roce_listen(space, socket, addresses, listens);
            }
            let port = socket.address()?.port();
            if board.core.has_efe_ports() {
                return board.efe_listen(socket, port, &addresses, listens);
            }
            let listener = board.core.listen_at(socket, manager_config(board.offers))?;
            board.listeners.of.insert(listener, (listens, port));
            Ok(listener)
        })
    }

    /// Begins to resolve a service of datagrams to a queue pair. Returns the end. `device` is the address of
    /// the device, and `from` the address that the peer is told; a port of 0 means any.
    ///
    /// # Errors
    /// The private data is too long. Other protocols than RoCEv2: [`io::ErrorKind::Unsupported`].
    pub fn resolve(
        &self,
        device: IpAddr,
        from: SocketAddr,
        to: SocketAddr,
        private_data: &[u8],
        listens: Arc<dyn CmEventHandler>,
    ) -> io::Result<Result<u32, OpenError>> {
        self.turn.work(|board, now| board.roce_resolve(device, (from, to), private_data, listens, now))
    }

    /// Stops listening. Unanswered requests are refused.
    pub fn unlisten(&self, listener: u32) {
        if self.board.is_some() {
            return self.unlisten_on_board(listener);
        }
        self.turn.work(|board, now| {
            if board.roce.is_some() {
                return board.roce_unlisten(listener);
            }
            board.core.unlisten(listener, now);
            board.listeners.of.remove(&listener);
            board.listeners.tcp.remove(&listener);
        });
    }

    /// Begins to connect a queue pair to a port, whose port space matters to RoCEv2. Returns the end. `from`
    /// is the address of the device.
    ///
    /// # Errors
    /// The address is unreachable; the queue pair is already connected; the private data is too long.
    pub fn connect(
        &self,
        qp: u32,
        from: Option<IpAddr>,
        (space, to): (PortSpace, SocketAddr),
        depths: (u16, u16),
        private_data: &[u8],
        listens: Arc<dyn CmEventHandler>,
    ) -> io::Result<Result<u32, OpenError>> {
        if self.board.is_some() {
            return self.connect_on_board(qp, to, depths, private_data, listens);
        }
        self.turn.work(|board, now| {
            if board.roce.is_some() {
                return board.roce_connect(qp, (from, space, to), depths, private_data, listens, now);
            }
            let config = manager_config(board.offers);
            let route = match board.core.has_efe_ports() {
                true => board.efe_route(qp, to)?,
                false => Route { to: to.into(), from },
            };
            let opened = board.core.connect(board.found(route), &config, qp, depths, private_data, now)?;
            if let Ok(end) = opened {
                let private_data = private_data.to_vec();
                let again = Retry {
                    offers: board.offers,
                    refused: 0,
                    pauses: false,
                    qp,
                    route,
                    depths,
                    private_data,
                    before: None,
                };
                board.ends.of.insert(end, EndUse::Manager(listens, Some(Box::new(again))));
            }
            Ok(opened)
        })
    }

    /// Accepts a request on a queue pair that is not connected, or answers a request for the queue pair of a
    /// service of datagrams with this one.
    ///
    /// # Errors
    /// The request is no longer valid; the queue pair is already connected, or has another service than the
    /// peer's; the private data is too long.
    pub fn accept(
        &self,
        end: u32,
        qp: u32,
        depths: (u16, u16),
        private_data: &[u8],
    ) -> Result<(), OpenError> {
        if self.board.is_some() {
            return self.accept_on_board(end, qp, depths, private_data);
        }
        self.turn.work(|board, now| match board.roce {
            Some(_) => board.roce_accept(end, qp, depths, private_data, now),
            None => board.core.accept(end, qp, depths, private_data, now),
        })
    }

    /// Rejects a request with private data. Its end is then no longer valid.
    ///
    /// # Errors
    /// The request is no longer valid; the private data is too long.
    pub fn reject(&self, end: u32, private_data: &[u8]) -> Result<(), OpenError> {
        self.turn.work(|board, now| match board.roce {
            Some(_) => board.roce_reject(end, private_data, now),
            None => board.refuse_request(end, private_data, now),
        })
    }

    /// Begins an orderly close: posted work is still sent, then the connection ends.
    pub fn disconnect(&self, end: u32) {
        if self.board.is_some() {
            return self.tell_board(&Request::Disconnect { end });
        }
        self.turn.work(|board, now| {
            if board.roce.is_some() {
                return board.roce_disconnect(end, now);
            }
            let Some(qp) = board.core.nic.qp_of(end) else { return };
            // This fails if the connection has ended. If the peer has already closed, do not wait for its
            // remaining messages.
            let _ = match board.core.has_left(end) {
                true => board.core.nic.core.abort(qp),
                false => board.core.nic.core.disconnect(qp),
            };
        });
    }

    /// Tells the peers of all connections over RoCEv2 that they end, before the process exits. (The others
    /// end with their sockets.)
    pub fn end_connections(&self) {
        self.turn.work(|board, now| board.roce_release_all(now));
    }

    /// Releases an end from its owner. If the end is still open, it closes after posted work has been sent.
    pub fn release(&self, end: u32) {
        self.turn.work(|board, now| {
            if board.roce.is_some() {
                return board.roce_release(end, now);
            }
            if matches!(board.ends.of.get(&end), Some(EndUse::Manager(..))) {
                board.ends.of.remove(&end);
                match &mut board.board {
                    Some(board) => board.nic.release(end),
                    None => board.core.release(end, now),
                }
            }
        });
    }

    /// Returns the local address of an end, which is known before the peer has answered.
    pub fn local_address(&self, end: u32) -> Option<SocketAddr> {
        self.turn.read(|board| match board.roce {
            Some(_) => board.roce_addresses(end).map(|(local, _)| local),
            None if board.board.is_some() => board.end_addresses(end).map(|(local, _)| local),
            None => board.core.local_address(end),
        })
    }

    /// Returns the addresses of a connected end, ours first.
    pub fn addresses(&self, end: u32) -> Option<(SocketAddr, SocketAddr)> {
        self.turn.read(|board| match board.roce {
            Some(_) => board.roce_addresses(end),
            None => board.end_addresses(end),
        })
    }
}

impl EngineState {
    /// Returns the route to an RDMA listener: that of its socket. Over TCP, it may change until the listener
    /// exists.
    fn found(&self, route: Route) -> Route {
        match route.to {
            Address::Ip(to) if !self.core.has_efe_ports() => Route { to: tcp_address(to).into(), ..route },
            _ => route,
        }
    }

    pub(super) fn refuse_request(
        &mut self,
        end: u32,
        private_data: &[u8],
        now: Instant,
    ) -> Result<(), OpenError> {
        self.reject_end(end, private_data, now)?;
        if self.core.has_efe_ports() {
            // The endpoint keeps the answer.
            self.core.forget(end, now);
        } else {
            self.ends.of.insert(end, EndUse::Refused);
        }
        Ok(())
    }

    /// Delivers connection events. Returns whether there were any.
    pub(super) fn hear_connections(&mut self, now: Instant) -> bool {
        let mut progressed = self.hear_roce_connections(now) | self.hear_board(now);
        while let Some(request) = self.next_request() {
            self.has_events = true;
            progressed = true;
            let end = request.end;
            let Some((listens, port)) = self.listeners.of.get(&request.listener).cloned() else {
                self.on_oob_request(end, request.listener, &request.private_data, now);
                continue;
            };
            let Some((mut local, peer)) = self.end_addresses(end) else {
                self.forget_end(end, now);
                continue;
            };
            local.set_port(port);
            let request = ConnectRequest {
                listener: request.listener,
                end,
                local,
                peer,
                private_data: request.private_data,
                depths: request.depths,
            };
            match listens.on_event(CmEvent::ConnectRequest(request)) {
                Some(listens) => drop(self.ends.of.insert(end, EndUse::Manager(listens, None))),
                // This fails if the peer has left.
                None => drop(self.refuse_request(end, &[], now)),
            }
        }
        while let Some(end) = self.next_changed() {
            self.has_events = true;
            progressed = true;
            let is_owned = self.board.is_none() || self.ends.of.contains_key(&end);
            let Some(state) = self.end_state(end).filter(|_| is_owned) else { continue };
            let (gone, left) = (state.gone, mem::take(&mut state.left));
            let (connected, failed) = (state.connected.take(), state.failed.take());
            self.note_board_end(end, connected.is_some(), gone);
            match self.ends.of.get_mut(&end) {
                Some(EndUse::Manager(listens, again)) => {
                    let listens = listens.clone();
                    match (&failed, again) {
                        (Some(ConnectError::Unreachable | ConnectError::Lost), Some(again))
                            if again.refused < PAUSES_MS.len() =>
                        {
                            again.pauses = true;
                            let at = now + Duration::from_millis(PAUSES_MS[again.refused]);
                            self.ask_at(at, end);
                            continue;
                        }
                        (Some(ConnectError::Lost), Some(again)) if again.offers => {
                            let again = Retry { offers: false, ..(**again).clone() };
                            self.ask_again(end, listens, again, now);
                            continue;
                        }
                        (_, Some(again)) if again.pauses => continue,
                        _ => {}
                    }
                    self.tell_manager(&*listens, end, connected, failed, gone || left);
                }
                Some(&mut EndUse::Meeting(qp)) => {
                    if let Some(answer) = connected.filter(|answer| !answer.is_empty()) {
                        self.on_oob_answer(qp, end, &answer, now);
                    }
                    if let Some(ConnectError::Rejected(answer)) = &failed {
                        self.on_oob_rejected(qp, answer);
                    }
                    if failed.is_some() || gone {
                        self.ends.of.remove(&end);
                        self.on_oob_closed(qp, end, now);
                    }
                }
                Some(EndUse::Held) if gone => {
                    self.ends.of.remove(&end);
                    self.forget_held(end);
                    self.forget_end(end, now);
                }
                Some(EndUse::Refused) | None if gone => {
                    self.ends.of.remove(&end);
                    self.forget_end(end, now);
                }
                _ => {}
            }
        }
        progressed
    }

    /// Retries a connection after a pause.
    pub(super) fn after_pause(&mut self, end: u32, now: Instant) {
        if let Some(EndUse::Manager(listens, Some(again))) = self.ends.of.get(&end)
            && again.pauses
        {
            let again = Retry { refused: again.refused + 1, pauses: false, ..(**again).clone() };
            self.ask_again(end, listens.clone(), again, now);
            self.has_events = true;
        }
    }

    fn ask_again(&mut self, end: u32, listens: Arc<dyn CmEventHandler>, again: Retry, now: Instant) {
        self.ends.of.remove(&end);
        self.forget_end(end, now);
        if self.board.is_some() {
            return self.connect_again_on_board(end, EndUse::Manager(listens, Some(Box::new(again))));
        }
        let config = manager_config(again.offers);
        match self.core.connect(
            self.found(again.route),
            &config,
            again.qp,
            again.depths,
            &again.private_data,
            now,
        ) {
            Ok(Ok(to)) => {
                let local = self.core.local_address(to);
                listens.on_event(CmEvent::Retried { end, to, local });
                self.ends.of.insert(to, EndUse::Manager(listens, Some(Box::new(again))));
            }
            _ => drop(listens.on_event(CmEvent::Failed { end, error: ConnectError::Lost })),
        }
    }

    fn tell_manager(
        &mut self,
        listens: &dyn CmEventHandler,
        end: u32,
        connected: Option<Vec<u8>>,
        failed: Option<ConnectError>,
        gone: bool,
    ) {
        if let Some(private_data) = connected {
            let depths = self.end_depths(end);
            listens.on_event(CmEvent::Connected { end, private_data, depths });
        }
        if let Some(error) = failed {
            listens.on_event(CmEvent::Failed { end, error });
        } else if gone {
            listens.on_event(CmEvent::Disconnected { end });
        }
    }

    /// Handles the destruction of a connection's queue pair: the owner receives the event that the
    /// connection has ended.
    pub(super) fn end_without_qp(&mut self, end: u32, now: Instant) {
        self.core.remove_after_flush(end, now);
        if let Some(EndUse::Manager(listens, _)) = self.ends.of.remove(&end) {
            listens.on_event(CmEvent::Disconnected { end });
            self.has_events = true;
        }
    }
}
