//! Forwards connections from a listener on the board to this host's kernel, or from the kernel to the board.
//!
//! Sessions         each session is a relay ([`super::relay`]).
//! Limits           the number of sessions is limited; further connections are reset and counted.
//! Errors           if the kernel cannot connect, the peer's connection is reset.

use super::clients::{Entrance, LISTENER, set_up_relayed};
use super::counters::ServiceCounters;
use super::relay::{Begin, Relays, reset};
use super::service::{Service, SessionLimits};
use super::slots::SessionSlot;
use crate::config::Endpoint;
use kiban_base::Instant;
use kiban_board::{Completion, Host, StreamId};
use kiban_link::EpollSet;
use kiban_os::interface::bind_remedy;
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
/// The maximum number of connections accepted in one call.
const CALLERS_MAX: usize = 16;

/// The service.
pub struct Forward {
    listen: Endpoint,
    to: Endpoint,
    bounds: SessionLimits,
    files: EpollSet,
    on_board: Option<u32>,
    on_kernel: Entrance<Socket>,
    relays: Relays,
    counters: ServiceCounters,
    ready: Vec<u64>,
}

impl Forward {
    /// Returns a service that will listen on one side and connect on the other.
    ///
    /// # Errors
    /// If the process has too many open files.
    pub fn new(listen: Endpoint, to: Endpoint, bounds: SessionLimits) -> io::Result<Forward> {
        Ok(Forward {
            listen,
            to,
            bounds,
            files: EpollSet::new()?,
            on_board: None,
            on_kernel: Entrance::default(),
            relays: Relays::new(0, bounds.sessions_max),
            counters: ServiceCounters::default(),
            ready: Vec::new(),
        })
    }

    /// Starts a session; data is relayed once both sides are connected.
    fn begin(&mut self, stream: StreamId, socket: Socket, is_open: bool, slot: SessionSlot, now: Instant) {
        let begin = Begin::plain(socket, !is_open, is_open, slot);
        self.relays.begin(stream, begin, &mut self.counters, now);
    }

    /// Handles a new connection on the board by connecting through the kernel.
    fn on_accepted(&mut self, stream: StreamId, remote: SocketAddr, host: &mut Host<'_>, now: Instant) {
        let Endpoint::Kernel(to) = self.to else { return };
        let Some(slot) = self.relays.take_slot(Some(remote.ip()), host, &mut self.counters, now) else {
            let _ = host.abort(stream);
            return;
        };
        match connect(to) {
            Ok(socket) => {
                self.begin(stream, socket, true, slot, now);
                self.relays.pump(stream, host, &self.files, &mut self.counters, now);
            }
            Err(_) => {
                self.counters.errors += 1;
                let _ = host.abort(stream);
            }
        }
    }

    /// Handles new connections on the kernel's side by connecting through the board.
    fn on_callers(&mut self, host: &mut Host<'_>, now: Instant) {
        let Endpoint::Board(to) = self.to else { return };
        for _ in 0..CALLERS_MAX {
            let Some((socket, peer)) = self.on_kernel.accept(&self.files) else { return };
            let slot = self.relays.take_slot(Some(peer.ip()), host, &mut self.counters, now);
            let Some(slot) = slot else {
                reset(&socket);
                continue;
            };
            match host.open(to) {
                Ok(stream) => self.begin(stream, socket, false, slot, now),
                Err(_) => {
                    self.counters.errors += 1;
                    reset(&socket);
                }
            }
        }
    }
}

/// Starts a connection.
pub(super) fn connect(to: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    connect_with(&socket, to)?;
    Ok(socket)
}

/// Starts a connection with a new socket.
pub(super) fn connect_with(socket: &Socket, to: SocketAddr) -> io::Result<()> {
    set_up_relayed(socket)?;
    match socket.connect(&to.into()) {
        // EINPROGRESS: the handshake is in progress.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => Ok(()),
        connected => connected,
    }
}

impl Service for Forward {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) -> Result<(), String> {
        match self.listen {
            Endpoint::Board(local) => {
                let listener = host.listen(local).map_err(|refused| format!("{local}: {refused}"))?;
                self.on_board = Some(listener);
            }
            Endpoint::Kernel(local) => {
                let opened = TcpListener::bind(local).and_then(|listener| {
                    listener.set_nonblocking(true)?;
                    self.on_kernel.open(listener.into(), &self.files)
                });
                opened.map_err(|error| format!("kernel:{local}: {error}{}", bind_remedy(local, &error)))?;
            }
            Endpoint::UnixSocket(_) | Endpoint::Everywhere => {
                return Err("a forward service listens on an address".into());
            }
        }
        Ok(())
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        match completion {
            Completion::Accepted { stream, listener, remote } if Some(listener) == self.on_board => {
                self.on_accepted(stream, remote, host, now);
            }
            completion => {
                let Forward { relays, files, counters, .. } = self;
                relays.on_completion(completion, host, files, counters, now);
            }
        }
    }

    fn look(&mut self, host: &mut Host<'_>, now: Instant) {
        self.on_kernel.look(&self.files);
        self.relays.look(self.bounds.idle, host, &mut self.counters, now);
    }

    fn close(&mut self, host: &mut Host<'_>) {
        if let Some(listener) = self.on_board.take() {
            let _ = host.unlisten(listener);
        }
        self.on_kernel.close();
    }

    fn cut(&mut self, host: &mut Host<'_>) {
        self.relays.cut(host, &mut self.counters);
    }

    fn sessions(&self) -> usize {
        self.relays.len()
    }

    fn counters(&self) -> ServiceCounters {
        self.counters
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.files.as_fd())
    }

    fn on_file(&mut self, host: &mut Host<'_>, now: Instant) {
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        self.files.ready(&mut ready);
        for number in &ready {
            let Forward { relays, files, counters, .. } = self;
            if !relays.on_ready(*number, host, files, counters, now) && *number == LISTENER {
                self.on_callers(host, now);
            }
        }
        self.ready = ready;
    }
}
