//! Relays: each connects a stream on the board to a socket on this host.
//!
//! Fast Open        a stream whose SYN waits for data (RFC 7413) begins with the first write of the program.
//! Half-close       the directions end independently: a FIN on one side is passed on as a FIN on the other,
//!                  after all data before it. A reset is passed on as a reset.
//! Back-pressure    what the socket does not accept stays in the board's receive window, which closes. Bytes
//!                  from a kernel's socket are received into the board's pages, if there is room; from
//!                  others, a relay holds at most one piece, and none with TCP_NOTSENT_LOWAT. Then the
//!                  socket's buffer fills. A socket is not watched for events that the relay cannot use.
//! Cork             while the program's socket is corked (TCP_CORK, MSG_MORE), the bytes that do not fill a
//!                  segment are held here, for at most `CORK_TIME_MAX`. The end of the program's data and
//!                  TCP_NODELAY release them.
//! Urgent data      the byte that a program sends with MSG_OOB is written with everything before it; then TCP
//!                  marks it as urgent (RFC 6093 §2). The last byte before the peer's mark is sent to the
//!                  program with MSG_OOB. A system whose Unix sockets have no urgent data (before Linux 5.15)
//!                  gets it like any other byte.
//! Non-blocking     every call passes MSG_DONTWAIT, because a program that holds the same socket may clear
//!                  O_NONBLOCK.
//! Descriptors      a program's socket is a [`Peer`]; a program that sends descriptors is disconnected.

use super::counters::ServiceCounters;
use super::options::StreamOptions;
use super::service::PIECE_BYTES;
use super::slots::{SessionSlot, SessionSlots};
use super::tokens::{Access, Token};
use arrayvec::ArrayVec;
use kiban_attach::{EndReason, Indication, StreamOption};
use kiban_base::Instant;
use kiban_board::streams::why;
use kiban_board::{Completion, Host, Reason, StreamId};
use kiban_link::{EpollSet, Interest};
use kiban_os::unix::{Peer, is_at_mark};
use rustix::event::{PollFd, PollFlags};
use socket2::{SockAddr, SockRef, Socket};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ffi::OsStr;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// The maximum number of pieces that one relay moves in one call, so that other relays get their turn.
const PIECES_MAX: usize = 8;
/// The maximum number of pages that are sent to a socket in one call.
const SLICES_MAX: usize = 32;
/// How long a cork holds bytes (tcp(7), TCP_CORK).
const CORK_TIME_MAX: Duration = Duration::from_millis(200);
/// Flags that make a call non-blocking and report a broken pipe as an error instead of a signal.
const FLAGS: i32 = (rustix::net::SendFlags::DONTWAIT.bits() | rustix::net::SendFlags::NOSIGNAL.bits()) as i32;

/// A socket on the host's side.
pub(super) enum Line {
    /// A TCP socket of the kernel.
    Tcp(Socket),
    /// One end of a socket pair; a program holds the other end.
    Program(Peer),
}

impl From<Socket> for Line {
    fn from(socket: Socket) -> Line {
        Line::Tcp(socket)
    }
}

impl From<Peer> for Line {
    fn from(peer: Peer) -> Line {
        Line::Program(peer)
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Line::Tcp(socket) => socket.as_fd(),
            Line::Program(peer) => peer.as_fd(),
        }
    }
}

impl Line {
    fn calls(&self) -> SockRef<'_> {
        SockRef::from(self)
    }

    fn receive(&self, piece: &mut [u8]) -> io::Result<usize> {
        match self {
            Line::Tcp(socket) => Ok(rustix::net::recv(socket, piece, rustix::net::RecvFlags::DONTWAIT)?.0),
            Line::Program(peer) => peer.receive(piece),
        }
    }
}

/// The error of a socket that has no urgent data.
const NO_URGENT: Option<i32> = Some(rustix::io::Errno::OPNOTSUPP.raw_os_error());

/// Initial state of a relay.
pub(super) struct Begin {
    /// The relay's socket on this host.
    pub(super) socket: Line,
    /// Whether the socket is connected.
    pub(super) is_connected: bool,
    /// Whether the stream is open.
    pub(super) is_open: bool,
    /// Whether the stream's SYN waits for the program's first data (TCP Fast Open).
    pub(super) syn_waits: bool,
    /// Whether the program's first data has been written to the stream, although that is not open.
    pub(super) has_first: bool,
    /// The number of bytes to skip at the start of the data from the socket.
    pub(super) skips: usize,
    /// Whether the program learns the reason if the stream cannot be opened.
    pub(super) tells_why: bool,
    /// Whether a program has yet to accept the connection. Its library then gives the socket a name.
    pub(super) waits_for_accept: bool,
    /// The stream's addresses, if a program may later query how it ended.
    pub(super) ends: Option<Ends>,
    /// The options of the program's socket.
    pub(super) options: StreamOptions,
    /// The token of the program's socket.
    pub(super) token: Token,
    pub(super) slot: SessionSlot,
}

impl Begin {
    /// Returns the state of a relay that only passes data on, as with a TCP socket of the kernel.
    pub(super) fn plain(
        socket: impl Into<Line>,
        is_connected: bool,
        is_open: bool,
        slot: SessionSlot,
    ) -> Begin {
        Begin {
            socket: socket.into(),
            is_connected,
            is_open,
            syn_waits: false,
            has_first: false,
            skips: 0,
            tells_why: false,
            waits_for_accept: false,
            ends: None,
            options: StreamOptions::default(),
            token: 0,
            slot,
        }
    }
}

/// The addresses of a stream: the board's, and the peer's.
pub(super) type Ends = (SocketAddr, SocketAddr);

/// A stream that was reset, with the token of its socket.
type Fate = (Ends, EndReason, Token);

/// The maximum number of reset streams whose reasons are remembered.
const FATES_MAX: usize = 1024;

/// One relay.
struct Relay {
    number: u64,
    socket: Line,
    is_connected: bool,
    is_open: bool,
    /// Whether the stream's SYN waits for the program's first data.
    syn_waits: bool,
    /// Whether the stream had first data before it was open. It is then opened even if the program has closed
    /// its socket.
    has_first: bool,
    skips: usize,
    tells_why: bool,
    waits_for_accept: bool,
    ends: Option<Ends>,
    options: StreamOptions,
    token: Token,
    /// Whether the socket has no room for what the board has received.
    is_full: bool,
    /// Data that the stream has not accepted, or that a cork holds; the first `inward_sent` bytes have been
    /// sent.
    inward: Vec<u8>,
    inward_sent: usize,
    /// Whether `inward` ends with an urgent byte.
    has_urgent: bool,
    /// Whether the stream has no room for `inward`, or for bytes that the socket may have.
    is_blocked: bool,
    /// When the cork releases the bytes that it holds; `NEVER` if it holds none.
    held_until: Instant,
    /// Whether the peer on the board's side has sent a FIN. `told_socket` is set once the socket has been
    /// shut down as a result.
    board_finished: bool,
    told_socket: bool,
    /// Whether the socket's side has sent a FIN. `told_board` is set once the stream has been shut down as a
    /// result.
    socket_finished: bool,
    told_board: bool,
    /// Whether the stream has ended without a reset. Data received before the end is still relayed.
    ended: bool,
    /// MSG_OOB, unless the socket has no urgent data.
    urgent_flag: i32,
    watched: Option<Interest>,
    moved_at: Instant,
    slot: SessionSlot,
}

/// What to do with a relay.
#[derive(PartialEq, Eq)]
enum Next {
    Stay,
    Close,
    Cut,
}

/// The relays of a service, whose sockets are among the service's watched files.
pub(super) struct Relays {
    relays: BTreeMap<StreamId, Relay>,
    by_number: BTreeMap<u64, StreamId>,
    /// The streams that programs may name by their addresses.
    by_ends: HashMap<Ends, StreamId>,
    slots: SessionSlots,
    /// When corks release what they hold.
    held: BTreeSet<(Instant, StreamId)>,
    next: u64,
    piece: Vec<u8>,
    /// The reasons for recent resets; the most recent is last.
    fates: VecDeque<Fate>,
}

impl Relays {
    /// Returns an empty set for up to `most` relays; the first relay's socket has the number `first` among
    /// the watched files.
    pub(super) fn new(first: u64, most: usize) -> Relays {
        Relays {
            slots: SessionSlots::new(most),
            relays: BTreeMap::new(),
            by_number: BTreeMap::new(),
            by_ends: HashMap::new(),
            held: BTreeSet::new(),
            next: first,
            piece: vec![0; PIECE_BYTES],
            fates: VecDeque::new(),
        }
    }

    /// Returns the reason why a stream ended; `Closed` if it was not reset, or if the reset is no longer
    /// remembered.
    pub(super) fn fate(&self, ends: Ends, access: Access) -> EndReason {
        let found = self.fates.iter().rev().find(|(its, ..)| *its == ends);
        found.filter(|(_, _, token)| access.includes(*token)).map_or(EndReason::Closed, |(_, why, _)| *why)
    }

    pub(super) fn len(&self) -> usize {
        self.relays.len()
    }

    /// Returns the options of the stream with these addresses; `None` if it no longer exists, or if `access`
    /// does not include it.
    pub(super) fn options(&self, ends: Ends, access: Access) -> Option<(StreamId, StreamOptions)> {
        let stream = *self.by_ends.get(&ends)?;
        let relay = self.relays.get(&stream).filter(|relay| access.includes(relay.token))?;
        Some((stream, relay.options))
    }

    /// Takes a slot for a relay that serves a peer, or a program on this host. Returns `None` if no slot is
    /// available.
    pub(super) fn take_slot(
        &mut self,
        peer: Option<IpAddr>,
        host: &mut Host<'_>,
        counters: &mut ServiceCounters,
        now: Instant,
    ) -> Option<SessionSlot> {
        self.take_slot_beside(0, peer, host, counters, now)
    }

    /// Returns how many slots a new connection to a port must leave free, so that connections to one port do
    /// not take the slots of all others.
    pub(super) fn reserve_beside(&self, port: u16) -> usize {
        let is_to_it = |relay: &&Relay| relay.ends.is_some_and(|(local, _)| local.port() == port);
        self.slots.reserve(|| self.relays.values().filter(is_to_it).count())
    }

    /// Takes a slot as [`Relays::take_slot`] does, and leaves `keeps` slots free.
    pub(super) fn take_slot_beside(
        &mut self,
        keeps: usize,
        peer: Option<IpAddr>,
        host: &mut Host<'_>,
        counters: &mut ServiceCounters,
        now: Instant,
    ) -> Option<SessionSlot> {
        self.slots.set_now(now);
        let relays = self.relays.iter().map(|(id, relay)| (*id, &relay.slot, relay.moved_at));
        let found = self.slots.take(peer.map(Into::into), keeps, relays, host);
        let Some((slot, displaced)) = found else {
            counters.refused += 1;
            return None;
        };
        if let Some((displaced, relay)) = displaced.and_then(|stream| Some((stream, self.remove(stream)?))) {
            counters.displaced += 1;
            cut_off(&relay, EndReason::Aborted, &mut self.fates, counters);
            let _ = host.abort(displaced);
        }
        Some(slot)
    }

    /// Returns whether no slot is free.
    pub(super) fn are_full(&self) -> bool {
        self.slots.are_taken()
    }

    /// Starts a relay. It moves no data until both sides are connected.
    pub(super) fn begin(
        &mut self,
        stream: StreamId,
        begin: Begin,
        counters: &mut ServiceCounters,
        now: Instant,
    ) {
        let number = self.next;
        self.next += 1;
        counters.accepted += 1;
        let Begin { socket, is_connected, is_open, syn_waits, has_first, skips, .. } = begin;
        let Begin { tells_why, waits_for_accept, ends, options, token, slot, .. } = begin;
        // Forget how an earlier stream with the same addresses ended.
        self.fates.retain(|(its, ..)| Some(*its) != ends);
        let relay = Relay {
            number,
            socket,
            is_connected,
            is_open,
            syn_waits,
            has_first,
            skips,
            tells_why,
            waits_for_accept,
            ends,
            options,
            token,
            is_full: false,
            inward: Vec::new(),
            inward_sent: 0,
            has_urgent: false,
            is_blocked: false,
            held_until: Instant::NEVER,
            board_finished: false,
            told_socket: false,
            socket_finished: false,
            told_board: false,
            ended: false,
            urgent_flag: rustix::net::SendFlags::OOB.bits() as i32,
            watched: None,
            moved_at: now,
            slot,
        };
        self.by_number.insert(number, stream);
        self.by_ends.extend(ends.map(|ends| (ends, stream)));
        self.relays.insert(stream, relay);
    }

    /// Moves as much data as possible, and ends the relay when both directions are finished.
    pub(super) fn pump(
        &mut self,
        stream: StreamId,
        host: &mut Host<'_>,
        files: &EpollSet,
        counters: &mut ServiceCounters,
        now: Instant,
    ) {
        let Some(relay) = self.relays.get_mut(&stream) else { return };
        self.slots.set_now(now);
        let before = (counters.bytes_in, counters.bytes_out);
        let held_until = relay.held_until;
        let next = relay.work(stream, host, &mut self.piece, counters, now);
        if relay.held_until != held_until {
            self.held.remove(&(held_until, stream));
            if relay.held_until != Instant::NEVER {
                self.held.insert((relay.held_until, stream));
            }
        }
        if before != (counters.bytes_in, counters.bytes_out) {
            relay.moved_at = now;
        }
        let next = match next {
            Next::Stay if relay.watch(files).is_err() => Next::Cut,
            next => next,
        };
        if next == Next::Stay {
            return;
        }
        if let Some(relay) = self.remove(stream) {
            if next == Next::Cut {
                cut_off(&relay, EndReason::Aborted, &mut self.fates, counters);
                let _ = host.abort(stream);
            } else {
                relay.slot.read(stream, host);
                counters.ended += 1;
                // The stream may have ended just now.
                let _ = host.close(stream);
            }
        }
    }

    fn remove(&mut self, stream: StreamId) -> Option<Relay> {
        let relay = self.relays.remove(&stream)?;
        self.by_number.remove(&relay.number);
        // A new stream may already have the addresses of one that has ended.
        if let Some(ends) = relay.ends
            && self.by_ends.get(&ends) == Some(&stream)
        {
            self.by_ends.remove(&ends);
        }
        self.held.remove(&(relay.held_until, stream));
        Some(relay)
    }

    /// Sets an option of the stream with these addresses; ignored if it has ended, or if `access` does not
    /// include it.
    pub(super) fn set_option(
        &mut self,
        (ends, access): (Ends, Access),
        (option, value): (StreamOption, u32),
        host: &mut Host<'_>,
        files: &EpollSet,
        counters: &mut ServiceCounters,
        now: Instant,
    ) {
        let Some((stream, _)) = self.options(ends, access) else { return };
        // The program wrote what waits in its socket under the old value.
        self.pump(stream, host, files, counters, now);
        let Some(relay) = self.relays.get_mut(&stream) else { return };
        relay.options.set(option, value);
        relay.options.apply(option, stream, host);
        if option == StreamOption::NoDelay && value != 0 && relay.held_until != Instant::NEVER {
            // tcp(7): TCP_NODELAY sends pending data, even under TCP_CORK.
            self.held.remove(&(relay.held_until, stream));
            relay.held_until = now;
        }
        self.pump(stream, host, files, counters, now);
    }

    /// Returns when a cork will release what it holds.
    pub(super) fn deadline(&self) -> Instant {
        self.held.first().map_or(Instant::NEVER, |(until, _)| *until)
    }

    /// Releases what corks have held for too long.
    pub(super) fn on_timeout(
        &mut self,
        host: &mut Host<'_>,
        files: &EpollSet,
        counters: &mut ServiceCounters,
        now: Instant,
    ) {
        let due: Vec<_> = self.held.iter().take_while(|(until, _)| *until <= now).copied().collect();
        for (until, stream) in due {
            self.held.remove(&(until, stream));
            self.pump(stream, host, files, counters, now);
        }
    }

    /// Handles a completion; ignores it if its stream does not belong to a relay.
    pub(super) fn on_completion(
        &mut self,
        completion: Completion,
        host: &mut Host<'_>,
        files: &EpollSet,
        counters: &mut ServiceCounters,
        now: Instant,
    ) {
        let (Completion::Opened { stream }
        | Completion::Readable { stream }
        | Completion::Writable { stream }
        | Completion::Urgent { stream, .. }
        | Completion::PeerFinished { stream }
        | Completion::Ended { stream, .. }) = completion
        else {
            return;
        };
        let Some(relay) = self.relays.get_mut(&stream) else { return };
        match completion {
            Completion::Opened { .. } => {
                relay.is_open = true;
                if let Some((local, remote)) = relay.ends {
                    name_socket(&relay.socket, Indication::Accepted { listener: 0, slot: 0, local, remote });
                }
            }
            Completion::PeerFinished { .. } => relay.board_finished = true,
            Completion::Ended { reason, .. } => {
                return self.on_ended(stream, reason, host, files, counters, now);
            }
            _ => {}
        }
        self.pump(stream, host, files, counters, now);
    }

    /// Handles the end of a relay's stream. If the stream was not reset, data received before the end is
    /// still relayed.
    fn on_ended(
        &mut self,
        stream: StreamId,
        reason: Reason,
        host: &mut Host<'_>,
        files: &EpollSet,
        counters: &mut ServiceCounters,
        now: Instant,
    ) {
        if let (Reason::Closed, Some(relay)) = (reason, self.relays.get_mut(&stream)) {
            relay.ended = true;
            relay.board_finished = true;
            relay.told_board = true;
            return self.pump(stream, host, files, counters, now);
        }
        self.slots.set_now(now);
        let Some(relay) = self.remove(stream) else { return };
        cut_off(&relay, why(reason), &mut self.fates, counters);
        let _ = host.close(stream);
    }

    /// Handles a socket that is ready. Returns whether its number belongs to a relay.
    pub(super) fn on_ready(
        &mut self,
        number: u64,
        host: &mut Host<'_>,
        files: &EpollSet,
        counters: &mut ServiceCounters,
        now: Instant,
    ) -> bool {
        let Some(stream) = self.by_number.get(&number).copied() else { return false };
        self.pump(stream, host, files, counters, now);
        true
    }

    /// Ends relays that have been idle for too long.
    pub(super) fn look(
        &mut self,
        idle: Option<Duration>,
        host: &mut Host<'_>,
        counters: &mut ServiceCounters,
        now: Instant,
    ) {
        let Some(idle) = idle else { return };
        self.slots.set_now(now);
        let is_due = |relay: &Relay| relay.moved_at + idle <= now;
        let due: Vec<StreamId> =
            self.relays.iter().filter(|(_, relay)| is_due(relay)).map(|(stream, _)| *stream).collect();
        for stream in due {
            let relay = self.remove(stream).expect("it was found");
            counters.idle_timeouts += 1;
            cut_off(&relay, EndReason::TimedOut, &mut self.fates, counters);
            let _ = host.abort(stream);
        }
    }

    /// Resets all relays.
    pub(super) fn cut(&mut self, host: &mut Host<'_>, counters: &mut ServiceCounters) {
        self.by_number.clear();
        self.by_ends.clear();
        self.held.clear();
        for (stream, relay) in std::mem::take(&mut self.relays) {
            cut_off(&relay, EndReason::Aborted, &mut self.fates, counters);
            let _ = host.abort(stream);
        }
    }
}

/// Resets the socket of a relay, and remembers the reason.
fn cut_off(relay: &Relay, why: EndReason, fates: &mut VecDeque<Fate>, counters: &mut ServiceCounters) {
    counters.aborted += 1;
    if let Some(ends) = relay.ends {
        if fates.len() >= FATES_MAX {
            fates.pop_front();
        }
        fates.push_back((ends, why, relay.token));
    }
    if relay.tells_why && !relay.is_open {
        name_reason(&relay.socket, why);
    }
    if let Line::Tcp(socket) = &relay.socket {
        reset(socket);
    }
}

/// Binds the board's end of a program's socket to an abstract address that contains an entry with the
/// addresses of the stream or listener. A program that has no record of the socket (after exec, or because
/// the descriptor was passed to it) reads them there with `getpeername`. If binding fails, such a program
/// sees a Unix socket.
pub(super) fn name_socket(socket: &impl AsFd, indication: Indication) {
    bind_abstract(&SockRef::from(socket), b"kiban", &indication.bytes());
}

/// Reports why a stream could not be opened: the program reads the last byte of the address of the board's
/// end (`getpeername`). If it cannot be bound, the program learns only that the stream has been reset.
fn name_reason(socket: &Line, why: EndReason) {
    bind_abstract(&socket.calls(), &[], &[why as u8]);
}

/// Tries to bind a socket to an abstract address, which needs no file (unix(7)). A random number between
/// `front` and `content` makes the address unique.
fn bind_abstract(socket: &SockRef<'_>, front: &[u8], content: &[u8]) {
    let Ok(random) = kiban_os::random::bytes::<16>() else { return };
    let name = [&[0][..], front, &random, content].concat();
    let _ = SockAddr::unix(OsStr::from_bytes(&name)).and_then(|name| socket.bind(&name));
}

impl Relay {
    fn work(
        &mut self,
        stream: StreamId,
        host: &mut Host<'_>,
        piece: &mut [u8],
        counters: &mut ServiceCounters,
        now: Instant,
    ) -> Next {
        if !self.is_connected {
            match self.socket.calls().take_error() {
                Ok(None) => {}
                _ => {
                    counters.errors += 1;
                    return Next::Cut;
                }
            }
            self.is_connected = self.socket.calls().peer_addr().is_ok();
        }
        if self.syn_waits && !self.is_open {
            // The end of the socket, behind all data, is found by reading.
            if self.write_first(stream, host, piece, counters).is_err() {
                return Next::Cut;
            }
        } else if self.waits_to_open() && self.has_hung_up() {
            // The other end of the socket pair or connection is gone.
            return Next::Cut;
        }
        if !self.is_connected || !self.is_open {
            return Next::Stay;
        }
        let moved = self.go_out(stream, host, counters).and_then(|()| match self.ended {
            true => Ok(()),
            false => self.go_in(stream, host, piece, counters, now),
        });
        match moved {
            Err(_) => Next::Cut,
            Ok(()) if self.told_socket && self.told_board => Next::Close,
            Ok(()) => Next::Stay,
        }
    }

    /// Writes the program's first data, if there is any, which leaves in the SYN. A program that sends none
    /// opens no stream.
    fn write_first(
        &mut self,
        stream: StreamId,
        host: &mut Host<'_>,
        piece: &mut [u8],
        counters: &mut ServiceCounters,
    ) -> io::Result<()> {
        let count = match self.socket.receive(piece) {
            Ok(0) => return Err(ErrorKind::ConnectionAborted.into()),
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        (self.syn_waits, self.has_first) = (false, true);
        let written = host.write(stream, &piece[..count]).map_err(io::Error::other)?;
        counters.bytes_out += written as u64;
        self.inward.extend_from_slice(&piece[written..count]);
        Ok(())
    }

    /// Moves data from the board to the socket.
    fn go_out(
        &mut self,
        stream: StreamId,
        host: &mut Host<'_>,
        counters: &mut ServiceCounters,
    ) -> io::Result<()> {
        while !self.told_socket {
            match self.send_received(stream, host) {
                Ok(0) => {
                    if self.board_finished {
                        self.socket.calls().shutdown(Shutdown::Write)?;
                        self.told_socket = true;
                    }
                    break;
                }
                Ok(count) => {
                    counters.bytes_in += count as u64;
                    host.consume(stream, count).map_err(io::Error::other)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_full = true;
                    return Ok(());
                }
                Err(error) if error.raw_os_error() == NO_URGENT && self.urgent_flag != 0 => {
                    self.urgent_flag = 0;
                }
                Err(error) => return Err(error),
            }
        }
        self.is_full = false;
        Ok(())
    }

    /// Sends bytes that the board has received, in one call. Returns how many, 0 if there are none.
    fn send_received(&self, stream: StreamId, host: &mut Host<'_>) -> io::Result<usize> {
        let (Ok(ahead), Ok(received)) = (host.urgent_ahead(stream), host.received(stream)) else {
            return Ok(0);
        };
        // The bytes before the urgent one, then that one, then the others.
        let (mut room, flags) = match ahead {
            0 => (usize::MAX, FLAGS),
            1 => (1, FLAGS | self.urgent_flag),
            ahead => (ahead - 1, FLAGS),
        };
        let mut slices = ArrayVec::<_, SLICES_MAX>::new();
        for slice in received.take(SLICES_MAX) {
            let part = slice.len().min(room);
            room -= part;
            slices.push(IoSlice::new(&slice.bytes()[..part]));
        }
        match slices.is_empty() {
            true => Ok(0),
            false => self.socket.calls().send_vectored_with_flags(&slices, flags),
        }
    }

    /// Moves data from the socket to the board.
    fn go_in(
        &mut self,
        stream: StreamId,
        host: &mut Host<'_>,
        piece: &mut [u8],
        counters: &mut ServiceCounters,
        now: Instant,
    ) -> io::Result<()> {
        self.is_blocked = false;
        for _ in 0..PIECES_MAX {
            let may_read = self.write(stream, host, counters, now)? && !self.socket_finished;
            if !may_read || !self.read(stream, host, piece, counters)? {
                break;
            }
        }
        // The last of these reads may have found the end.
        if self.write(stream, host, counters, now)? && self.socket_finished && !self.told_board {
            self.told_board = true;
            host.finish(stream).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Reads from the socket once. Returns false if there is nothing to read.
    fn read(
        &mut self,
        stream: StreamId,
        host: &mut Host<'_>,
        piece: &mut [u8],
        counters: &mut ServiceCounters,
    ) -> io::Result<bool> {
        let is_urgent = is_at_mark(self.socket.as_fd());
        let most = if is_urgent { 1 } else { piece.len() };
        // A copy less, if the bytes can go to the stream at once. If its unsent bytes have a limit, the relay
        // must not hold any, either.
        let goes_on = self.inward.is_empty() && !self.options.is_corked() && !is_urgent && self.skips == 0;
        let socket = &self.socket;
        let is_direct =
            goes_on && (matches!(socket, Line::Tcp(_)) || self.options.unsent_bytes_max().is_some());
        let received = if is_direct {
            let read = |parts: &mut [&mut [u8]]| match socket {
                Line::Tcp(socket) => receive_into(socket, parts),
                Line::Program(peer) => peer.receive(parts.first_mut().expect("there is room")),
            };
            match host.write_from(stream, most, read).map_err(io::Error::other)? {
                Some(received) => received,
                None => {
                    self.is_blocked = true;
                    return Ok(false);
                }
            }
        } else {
            socket.receive(&mut piece[..most])
        };
        let count = match received {
            // The program has closed its socket, and SO_LINGER requests a reset.
            Ok(0) if self.options.closes_with_reset() && self.has_hung_up() => {
                return Err(ErrorKind::ConnectionReset.into());
            }
            Ok(0) if self.waits_for_accept && self.has_hung_up() && !self.has_name() => {
                // The listener has been closed before it accepted the connection.
                return Err(ErrorKind::ConnectionReset.into());
            }
            Ok(0) => {
                self.socket_finished = true;
                return Ok(true);
            }
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        if is_direct {
            counters.bytes_out += count as u64;
            return Ok(true);
        }
        self.has_urgent = is_urgent;
        let skipped = self.skips.min(count);
        self.skips -= skipped;
        let mut rest = &piece[skipped..count];
        if self.inward.is_empty() && !self.options.is_corked() && !is_urgent {
            let written = host.write(stream, rest).map_err(io::Error::other)?;
            counters.bytes_out += written as u64;
            rest = &rest[written..];
        }
        self.inward.extend_from_slice(rest);
        Ok(true)
    }

    /// Writes the bytes that have been read, except those that a cork holds. Returns false if the stream has
    /// no room for them; a completion will report when it has.
    fn write(
        &mut self,
        stream: StreamId,
        host: &mut Host<'_>,
        counters: &mut ServiceCounters,
        now: Instant,
    ) -> io::Result<bool> {
        let waiting = self.inward.len() - self.inward_sent;
        let released = self.released(waiting, stream, host, now);
        let bytes = &self.inward[self.inward_sent..][..released];
        let count = if released > 0 { host.write(stream, bytes).map_err(io::Error::other)? } else { 0 };
        self.inward_sent += count;
        counters.bytes_out += count as u64;
        // Without bytes to write, only a read finds out whether there is room.
        if waiting > 0 {
            self.is_blocked = count < released;
        }
        if self.inward_sent == self.inward.len() {
            (self.inward, self.inward_sent) = (Vec::new(), 0);
            self.held_until = Instant::NEVER;
            if std::mem::take(&mut self.has_urgent) {
                host.send_urgent(stream).map_err(io::Error::other)?;
            }
        } else if !self.is_blocked && (count > 0 || self.held_until == Instant::NEVER) {
            self.inward.drain(..std::mem::take(&mut self.inward_sent));
            self.held_until = now + CORK_TIME_MAX;
        }
        Ok(!self.is_blocked)
    }

    /// Returns how many of the bytes that wait for the stream may be written now. Under a cork, these are the
    /// ones that fill segments, together with those that TCP has not sent yet.
    fn released(&self, waiting: usize, stream: StreamId, host: &mut Host<'_>, now: Instant) -> usize {
        let is_due = self.socket_finished || self.has_urgent || now >= self.held_until;
        if !self.options.is_corked() || is_due {
            return waiting;
        }
        let Ok(info) = host.info(stream) else { return waiting };
        let unsent = info.queued_bytes.saturating_sub(info.outstanding_bytes) as usize;
        let segment = (info.mss as usize).max(1);
        ((unsent + waiting) / segment * segment).saturating_sub(unsent).min(waiting)
    }

    /// Returns whether the other end of the socket pair has a name.
    fn has_name(&self) -> bool {
        self.socket.calls().peer_addr().is_ok_and(|name| !name.is_unnamed())
    }

    /// Returns whether the program waits for the stream to open. If it has hung up, nobody needs the stream.
    fn waits_to_open(&self) -> bool {
        self.tells_why && !self.is_open && !self.has_first
    }

    fn has_hung_up(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::empty())];
        let told = rustix::event::poll(&mut polled, Some(&rustix::event::Timespec::default()));
        told.is_ok() && polled[0].revents().contains(PollFlags::HUP)
    }

    /// Watches the socket only for events that the relay can use now.
    fn watch(&mut self, files: &EpollSet) -> io::Result<()> {
        let wanted = if self.is_connected {
            Interest {
                read: self.syn_waits || (self.is_open && !self.is_blocked && !self.socket_finished),
                write: self.is_full,
            }
        } else {
            Interest { read: false, write: true }
        };
        // While the stream is being opened, watch for a hang-up by the program, unless it changes nothing.
        let wanted = (self.waits_to_open() || wanted != Interest::default()).then_some(wanted);
        files.update(&self.socket, self.number, &mut self.watched, wanted)
    }
}

/// Receives into several parts with one call.
fn receive_into(socket: &Socket, parts: &mut [&mut [u8]]) -> io::Result<usize> {
    let mut slices: Vec<IoSliceMut<'_>> = parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
    let mut none = rustix::net::RecvAncillaryBuffer::default();
    Ok(rustix::net::recvmsg(socket, &mut slices, &mut none, rustix::net::RecvFlags::DONTWAIT)?.bytes)
}

/// Makes closing the socket send a reset instead of a FIN (SO_LINGER with zero).
pub(super) fn reset(socket: &Socket) {
    let _ = socket.set_linger(Some(Duration::ZERO));
}

#[cfg(test)]
mod tests;
