//! Forwarding: from a listener on the board to a connection of this host's kernel, and the other way round.
//!
//! Halves    each direction ends for itself: a FIN on one side becomes one on the other when all before it has gone through. A
//!           reset becomes a reset.
//! Back      one page of the board's and one piece of the kernel's wait for a session at most; then the window closes on the one
//!           side, and the kernel's buffer fills on the other. A socket from which nothing can be used is not watched.
//! Bound     so many sessions; who comes beyond is reset, and counted. A connection that the kernel cannot make resets the peer.

use super::{Bounds, PIECE_BYTES, Service, ServiceCounters};
use crate::config::End;
use kiban_board::{Completion, Host, Reason, StreamId};
use kiban_ground::{Instant, Slice};
use kiban_real::{Files, Interest};
use socket2::{Domain, SockRef, Socket, Type};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The number of the kernel's listener among files.
const LISTENER: u64 = u64::MAX;
/// Callers that are taken at once.
const CALLERS_MAX: usize = 16;
/// Pieces that one session moves at once, so that it starves nobody.
const PIECES_MAX: usize = 8;

/// A session: a stream of the board's, a socket of the kernel's.
struct Session {
    number: u64,
    socket: TcpStream,
    /// Whether the socket is connected.
    is_connected: bool,
    /// Whether the stream is open.
    is_open: bool,
    /// What the socket did not take, and how much of it has gone.
    outward: Option<(Slice, usize)>,
    /// What the stream did not take, and how much of it has gone.
    inward: Vec<u8>,
    inward_sent: usize,
    /// The peer on the board's side sends no more; and that has been told.
    board_finished: bool,
    told_kernel: bool,
    /// The same of the kernel's side.
    kernel_finished: bool,
    told_board: bool,
    watched: Option<Interest>,
    moved_at: Instant,
}

/// What becomes of a session.
#[derive(PartialEq, Eq)]
enum Next {
    Stay,
    Close,
    Cut,
}

/// The service.
pub struct Forward {
    listen: End,
    to: End,
    bounds: Bounds,
    files: Files,
    on_board: Option<u32>,
    on_kernel: Option<TcpListener>,
    sessions: BTreeMap<StreamId, Session>,
    by_number: BTreeMap<u64, StreamId>,
    next: u64,
    /// Whether nobody looks at the kernel's listener for a while.
    rests: bool,
    counters: ServiceCounters,
    piece: Vec<u8>,
    ready: Vec<u64>,
}

impl Forward {
    /// A service that will listen on one side and connect on the other.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn new(listen: End, to: End, bounds: Bounds) -> io::Result<Forward> {
        Ok(Forward {
            listen,
            to,
            bounds,
            files: Files::new()?,
            on_board: None,
            on_kernel: None,
            sessions: BTreeMap::new(),
            by_number: BTreeMap::new(),
            next: 0,
            rests: false,
            counters: ServiceCounters::default(),
            piece: vec![0; PIECE_BYTES],
            ready: Vec::new(),
        })
    }

    fn has_place(&mut self) -> bool {
        let has = self.sessions.len() < self.bounds.sessions_max;
        self.counters.refused += u64::from(!has);
        has
    }

    /// A session begins; whichever side is not there yet is waited for.
    fn begin(&mut self, stream: StreamId, socket: TcpStream, is_open: bool, now: Instant) {
        let number = self.next;
        self.next += 1;
        self.counters.accepted += 1;
        let session = Session {
            number,
            socket,
            is_connected: !is_open,
            is_open,
            outward: None,
            inward: Vec::new(),
            inward_sent: 0,
            board_finished: false,
            told_kernel: false,
            kernel_finished: false,
            told_board: false,
            watched: None,
            moved_at: now,
        };
        self.by_number.insert(number, stream);
        self.sessions.insert(stream, session);
    }

    /// Somebody called on the board: the kernel connects.
    fn on_accepted(&mut self, stream: StreamId, host: &mut Host<'_>, now: Instant) {
        let End::Kernel(to) = self.to else { return };
        if !self.has_place() {
            let _ = host.abort(stream);
            return;
        }
        match connect(to) {
            Ok(socket) => {
                self.begin(stream, socket, true, now);
                self.pump(stream, host, now);
            }
            Err(_) => {
                self.counters.errors += 1;
                let _ = host.abort(stream);
            }
        }
    }

    /// Somebody calls the kernel: the board connects.
    fn on_callers(&mut self, host: &mut Host<'_>, now: Instant) {
        let End::Board(to) = self.to else { return };
        for _ in 0..CALLERS_MAX {
            let Some(listener) = &self.on_kernel else { return };
            let socket = match listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The system has no file for them: it is asked again in a while, and not all the time.
                Err(_) => {
                    self.rests = self.files.forget(listener).is_ok();
                    return;
                }
            };
            let good = self.has_place() && socket.set_nonblocking(true).is_ok();
            let opened = if good { host.open(to).map_err(|_| ()) } else { Err(()) };
            match opened {
                Ok(stream) => {
                    let _ = socket.set_nodelay(true);
                    self.begin(stream, socket, false, now);
                }
                Err(()) => {
                    self.counters.errors += u64::from(good);
                    reset(&socket);
                }
            }
        }
    }

    fn pump(&mut self, stream: StreamId, host: &mut Host<'_>, now: Instant) {
        let Forward { sessions, by_number, files, counters, piece, .. } = self;
        let Some(session) = sessions.get_mut(&stream) else { return };
        let before = (counters.bytes_in, counters.bytes_out);
        let next = session.work(stream, host, piece, counters);
        if before != (counters.bytes_in, counters.bytes_out) {
            session.moved_at = now;
        }
        let next = match next {
            Next::Stay if session.watch(files).is_err() => Next::Cut,
            next => next,
        };
        if next == Next::Stay {
            return;
        }
        if let Some(session) = sessions.remove(&stream) {
            by_number.remove(&session.number);
            if next == Next::Cut {
                counters.cut += 1;
                reset(&session.socket);
                let _ = host.abort(stream);
            } else {
                counters.ended += 1;
                // It may have ended in this moment.
                let _ = host.close(stream);
            }
        }
    }

    /// A session's stream is over; what came before is not forgotten if the end was in order.
    fn on_ended(&mut self, stream: StreamId, reason: Reason, host: &mut Host<'_>, now: Instant) {
        if let (Reason::Closed, Some(session)) = (reason, self.sessions.get_mut(&stream)) {
            session.board_finished = true;
            session.told_board = true;
            self.pump(stream, host, now);
        }
        if let Some(session) = self.sessions.remove(&stream) {
            self.by_number.remove(&session.number);
            let is_whole = reason == Reason::Closed && session.outward.is_none() && session.told_kernel;
            if is_whole {
                self.counters.ended += 1;
            } else {
                self.counters.cut += 1;
                reset(&session.socket);
            }
            let _ = host.close(stream);
        }
    }
}

impl Session {
    fn work(
        &mut self,
        stream: StreamId,
        host: &mut Host<'_>,
        piece: &mut [u8],
        counters: &mut ServiceCounters,
    ) -> Next {
        if !self.is_connected {
            match self.socket.take_error() {
                Ok(None) => {}
                _ => {
                    counters.errors += 1;
                    return Next::Cut;
                }
            }
            self.is_connected = self.socket.peer_addr().is_ok();
        }
        if !self.is_connected || !self.is_open {
            return Next::Stay;
        }
        let moved =
            self.go_out(stream, host, counters).and_then(|()| self.go_in(stream, host, piece, counters));
        match moved {
            Err(_) => Next::Cut,
            Ok(()) if self.told_kernel && self.told_board => Next::Close,
            Ok(()) => Next::Stay,
        }
    }

    /// From the board to the kernel.
    fn go_out(
        &mut self,
        stream: StreamId,
        host: &mut Host<'_>,
        counters: &mut ServiceCounters,
    ) -> io::Result<()> {
        while !self.told_kernel {
            let (slice, mut sent) = match self.outward.take() {
                Some(held) => held,
                None => match host.take(stream) {
                    Ok(Some(slice)) => {
                        counters.bytes_in += slice.len() as u64;
                        (slice, 0)
                    }
                    _ => {
                        if self.board_finished {
                            self.socket.shutdown(Shutdown::Write)?;
                            self.told_kernel = true;
                        }
                        return Ok(());
                    }
                },
            };
            while sent < slice.len() {
                match (&self.socket).write(&slice.bytes()[sent..]) {
                    Ok(count) => sent += count,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        self.outward = Some((slice, sent));
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// From the kernel to the board.
    fn go_in(
        &mut self,
        stream: StreamId,
        host: &mut Host<'_>,
        piece: &mut [u8],
        counters: &mut ServiceCounters,
    ) -> io::Result<()> {
        for _ in 0..PIECES_MAX {
            if self.inward_sent < self.inward.len() {
                let count = host.write(stream, &self.inward[self.inward_sent..]).map_err(io::Error::other)?;
                self.inward_sent += count;
                counters.bytes_out += count as u64;
                if self.inward_sent < self.inward.len() {
                    // The board tells when there is room.
                    return Ok(());
                }
                self.inward = Vec::new();
                self.inward_sent = 0;
            }
            if self.kernel_finished {
                return Ok(());
            }
            match (&self.socket).read(piece) {
                Ok(0) => {
                    self.kernel_finished = true;
                    self.told_board = true;
                    host.finish(stream).map_err(io::Error::other)?;
                }
                Ok(count) => {
                    let written = host.write(stream, &piece[..count]).map_err(io::Error::other)?;
                    counters.bytes_out += written as u64;
                    if written < count {
                        self.inward = piece[written..count].to_vec();
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Watches the socket for what can be used now.
    fn watch(&mut self, files: &Files) -> io::Result<()> {
        let wanted = if self.is_connected {
            Interest {
                read: self.is_open && self.inward.is_empty() && !self.kernel_finished,
                write: self.outward.is_some(),
            }
        } else {
            Interest { read: false, write: true }
        };
        let wanted = (wanted != Interest::default()).then_some(wanted);
        if wanted == self.watched {
            return Ok(());
        }
        match (self.watched, wanted) {
            (None, Some(wanted)) => files.watch(&self.socket, self.number, wanted)?,
            (Some(_), Some(wanted)) => files.change(&self.socket, self.number, wanted)?,
            (_, None) => files.forget(&self.socket)?,
        }
        self.watched = wanted;
        Ok(())
    }
}

/// A connection that is being made.
fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&to.into()) {
        Ok(()) => {}
        // EINPROGRESS: it is on its way.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}

/// The kernel's peer is to see a reset, not an end, when the socket goes.
fn reset(socket: &TcpStream) {
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
}

impl Service for Forward {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) -> Result<(), String> {
        match self.listen {
            End::Board(local) => {
                let listener = host.listen(local).map_err(|refused| format!("{local}: {refused}"))?;
                self.on_board = Some(listener);
            }
            End::Kernel(local) => {
                let listener = TcpListener::bind(local).and_then(|listener| {
                    listener.set_nonblocking(true)?;
                    self.files.watch(&listener, LISTENER, Interest::READ)?;
                    Ok(listener)
                });
                self.on_kernel = Some(listener.map_err(|error| format!("kernel:{local}: {error}"))?);
            }
            End::Door => return Err("there is nothing to listen on".into()),
        }
        Ok(())
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        match completion {
            Completion::Accepted { stream, listener, .. } if Some(listener) == self.on_board => {
                self.on_accepted(stream, host, now);
            }
            Completion::Opened { stream } => {
                if let Some(session) = self.sessions.get_mut(&stream) {
                    session.is_open = true;
                    self.pump(stream, host, now);
                }
            }
            Completion::Readable { stream } | Completion::Writable { stream } => self.pump(stream, host, now),
            Completion::PeerFinished { stream } => {
                if let Some(session) = self.sessions.get_mut(&stream) {
                    session.board_finished = true;
                    self.pump(stream, host, now);
                }
            }
            Completion::Ended { stream, reason } => self.on_ended(stream, reason, host, now),
            _ => {}
        }
    }

    fn look(&mut self, host: &mut Host<'_>, now: Instant) {
        if let (true, Some(listener)) = (self.rests, &self.on_kernel) {
            self.rests = self.files.watch(listener, LISTENER, Interest::READ).is_err();
        }
        let Some(idle) = self.bounds.idle else { return };
        let Forward { sessions, by_number, counters, .. } = self;
        sessions.retain(|stream, session| {
            let stays = session.moved_at + idle > now;
            if !stays {
                counters.idle += 1;
                counters.cut += 1;
                by_number.remove(&session.number);
                reset(&session.socket);
                let _ = host.abort(*stream);
            }
            stays
        });
    }

    fn close(&mut self, host: &mut Host<'_>) {
        if let Some(listener) = self.on_board.take() {
            let _ = host.unlisten(listener);
        }
        self.on_kernel = None;
    }

    fn cut(&mut self, host: &mut Host<'_>) {
        self.by_number.clear();
        for (stream, session) in std::mem::take(&mut self.sessions) {
            self.counters.cut += 1;
            reset(&session.socket);
            let _ = host.abort(stream);
        }
    }

    fn sessions(&self) -> usize {
        self.sessions.len()
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
            match self.by_number.get(number).copied() {
                Some(stream) => self.pump(stream, host, now),
                None if *number == LISTENER => self.on_callers(host, now),
                None => {}
            }
        }
        self.ready = ready;
    }
}
