//! The state machine of an rsocket.
//!
//! ```text
//!   New ── bind ──▶ Bound ── listen ──▶ Listening ── accept ─┐
//!    └───────────────┴─ connect ──▶ Connecting ──▶ Connected ◀┘
//!                                       └────────▶ Failed
//! ```
//!
//! Waiting   a blocking call retries after each event ([`Socket::until`]). If several threads wait for one
//!           socket, only one of them sleeps in the NIC. A thread that takes an event wakes the others.
//! Close     first sends the data that was written. It waits at most [`LINGER`] until the disconnect message
//!           can be sent, and again at most [`LINGER`] until everything has been sent.

use super::address::unspecified;
use super::inbox::{AcceptHandler, AcceptQueue, Events, Inbox, WAKE};
use super::options::Options;
use super::sleepers::Waiters;
use super::stream::{EndReason, Sizes, Stream};
use super::wire::{Connect, Control};
use super::world::{Registry, world};
use crate::device::Device;
use crate::ffi::errno_of;
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering};
use kiban_os::Clock;
use kiban_os::lock;
use kiban_rdma_runtime::tcp::ReservedPort;
use kiban_rdma_runtime::verbs::{Channel, PortSpace};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The time limit for each of the two waits during a close.
const LINGER: Duration = Duration::from_secs(5);

/// The longest sleep. It is bounded because all wake-ups go through one descriptor, so that a thread may take
/// a wake-up meant for another.
const SLEEP_MAX: Duration = Duration::from_millis(200);

/// The phase of a socket.
pub(super) enum Phase {
    New,
    Bound(ReservedPort),
    Listening { accept_queue: Arc<AcceptQueue>, number: u32 },
    Connecting(Box<Stream>),
    Connected(Box<Stream>),
    Failed,
}

/// The state under a socket's lock.
pub(super) struct Inner {
    pub(super) phase: Phase,
    /// Reported once, by the next call or as SO_ERROR.
    pub(super) error: Option<c_int>,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) options: Options,
    /// The program has shut down the sending direction.
    has_shut: bool,
    /// The end of the connection has been handled.
    disconnect_handled: bool,
}

/// An rsocket.
pub(super) struct Socket {
    world: &'static Registry,
    pub(super) family: c_int,
    pub(super) channel: Arc<Channel<u64>>,
    inbox: Arc<Inbox>,
    /// The flags of fcntl(2).
    pub(super) status_flags: AtomicI32,
    pub(super) file_flags: AtomicI32,
    inner: Mutex<Inner>,
    /// Held by the thread that sleeps in the NIC.
    sleeping: Mutex<()>,
    /// Threads that sleep until there is an event.
    pub(super) sleepers: Waiters,
}

impl Inner {
    fn new(phase: Phase, options: Options) -> Inner {
        Inner {
            phase,
            error: None,
            local: None,
            peer: None,
            options,
            has_shut: false,
            disconnect_handled: false,
        }
    }

    /// Returns the stream, if there is or was a connection.
    pub(super) fn stream(&mut self) -> Option<&mut Stream> {
        match &mut self.phase {
            Phase::Connected(stream) => Some(stream),
            _ => None,
        }
    }

    /// Takes the error to be reported.
    pub(super) fn take_error(&mut self) -> Option<c_int> {
        self.error.take()
    }

    /// Returns whether a connection has been started, after which the sizes of its buffers are fixed.
    pub(super) fn has_begun(&self) -> bool {
        !matches!(self.phase, Phase::New | Phase::Bound(_) | Phase::Listening { .. })
    }

    pub(super) fn is_listening(&self) -> bool {
        matches!(self.phase, Phase::Listening { .. })
    }

    fn not_connected(&mut self) -> c_int {
        self.take_error().unwrap_or(libc::ENOTCONN)
    }
}

/// Returns the local address from which the host reaches a destination.
fn source_for(to: SocketAddr) -> Result<IpAddr, c_int> {
    let lookup = || {
        let socket = UdpSocket::bind(unspecified(if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }))?;
        // connect(2) needs a nonzero port; nothing is sent.
        socket.connect(SocketAddr::new(to.ip(), to.port().max(1)))?;
        socket.local_addr()
    };
    lookup().map(|address| address.ip()).map_err(|error| errno_of(&error))
}

impl Socket {
    /// Creates a socket.
    pub(super) fn new(family: c_int) -> Result<Arc<Socket>, c_int> {
        let world = world()?;
        let channel = Arc::new(Channel::new().map_err(|error| errno_of(&error))?);
        let inbox = Arc::new(Inbox::new(channel.clone(), world.jobs.clone()));
        let inner = Inner::new(Phase::New, Options::default());
        Ok(Arc::new(Socket::made(world, family, channel, inbox, inner)))
    }

    fn made(
        world: &'static Registry,
        family: c_int,
        channel: Arc<Channel<u64>>,
        inbox: Arc<Inbox>,
        inner: Inner,
    ) -> Socket {
        Socket {
            world,
            family,
            channel,
            inbox,
            status_flags: AtomicI32::new(libc::O_RDWR),
            file_flags: AtomicI32::new(0),
            inner: Mutex::new(inner),
            sleeping: Mutex::new(()),
            sleepers: Waiters::new(),
        }
    }

    /// Creates the socket of an accepted connection, with the listener's options.
    pub(super) fn accepted(
        world: &'static Registry,
        family: c_int,
        inbox: &Arc<Inbox>,
        stream: Stream,
        (local, peer): (SocketAddr, SocketAddr),
        listening: &Socket,
    ) -> Socket {
        let options = lock(&listening.inner).options.clone();
        let mut inner = Inner::new(Phase::Connected(Box::new(stream)), options);
        (inner.local, inner.peer) = (Some(local), Some(peer));
        let socket = Socket::made(world, family, inbox.channel.clone(), inbox.clone(), inner);
        // As in rdma-core, unlike accept(2), O_NONBLOCK is inherited.
        let flags = listening.status_flags.load(Ordering::Relaxed);
        socket.status_flags.store(flags, Ordering::Relaxed);
        socket
    }

    /// Returns the descriptor number.
    pub(super) fn number(&self) -> c_int {
        self.channel.number()
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    pub(super) fn sizes(&self) -> Sizes {
        lock(&self.inner).options.sizes()
    }

    /// Returns whether a call with these recv(2) or send(2) flags is non-blocking.
    pub(super) fn is_nonblocking(&self, flags: c_int) -> bool {
        flags & libc::MSG_DONTWAIT != 0 || self.status_flags.load(Ordering::Relaxed) & libc::O_NONBLOCK != 0
    }

    // ---- events

    /// Handles all events. Returns whether there were any. If so, the caller must wake other sleeping
    /// threads ([`Socket::wake`]), but only after its own last check, which would otherwise consume the
    /// wake-up.
    #[must_use]
    pub(super) fn advance(&self, inner: &mut Inner) -> bool {
        if matches!(inner.phase, Phase::New | Phase::Bound(_) | Phase::Listening { .. }) {
            return false;
        }
        let mut has_events = false;
        while let Some(event) = self.channel.take() {
            // The wake-up may be meant for another thread, so pass it on.
            has_events |= event == WAKE;
        }
        let Events { connected, failed, gone, moved } = self.inbox.take();
        if let (Some(end), Phase::Connecting(stream)) = (moved, &mut inner.phase) {
            stream.end = Some(end);
        }
        let mut happened = connected.is_some() || failed.is_some();
        if let Some(answer) = connected {
            self.on_connected(inner, &answer);
        }
        if let Some(error) = failed {
            inner.error = Some(error);
            inner.phase = Phase::Failed;
        }
        match &mut inner.phase {
            Phase::Connected(stream) => {
                let was_over = stream.over.is_some();
                // Data that arrived before the end is handled first.
                happened |= stream.advance();
                if gone && !inner.disconnect_handled {
                    inner.disconnect_handled = true;
                    stream.on_gone();
                    happened = true;
                }
                if let (false, Some(EndReason::Error(error))) = (was_over, stream.over) {
                    inner.error = Some(error);
                }
            }
            Phase::Connecting(_) if gone => {
                inner.error = Some(libc::ECONNRESET);
                inner.phase = Phase::Failed;
                happened = true;
            }
            _ => {}
        }
        if happened {
            self.sleepers.note_taken();
        }
        has_events | happened
    }

    /// Wakes other sleeping threads; the caller is counted `own` times among the sleepers.
    pub(super) fn wake(&self, own: usize) {
        if self.sleepers.are_more_than(own) {
            self.world.engine.tell(&self.channel, WAKE);
        }
    }

    fn on_connected(&self, inner: &mut Inner, answer: &[u8]) {
        let Phase::Connecting(mut stream) = std::mem::replace(&mut inner.phase, Phase::Failed) else {
            return;
        };
        match Connect::read(answer) {
            Some(peer) => {
                stream.on_connect_data(&peer);
                if let Some((local, mut peer)) = stream.end.and_then(|end| self.world.engine.addresses(end)) {
                    // The TCP port may be another one than that of the listener.
                    peer.set_port(inner.peer.map_or(peer.port(), |to| to.port()));
                    (inner.local, inner.peer) = (Some(local), Some(peer));
                }
                inner.phase = Phase::Connected(stream);
            }
            // The listener is not an rsocket, or uses a newer version of the protocol.
            None => inner.error = Some(libc::EPROTONOSUPPORT),
        }
    }

    /// Handles all events on behalf of other threads.
    pub(super) fn look(&self) {
        let has_events = self.advance(&mut self.inner());
        if has_events {
            self.wake(0);
        }
    }

    /// Requests that the next event makes the descriptor readable.
    pub(super) fn arm(inner: &Inner) {
        if let Phase::Connected(stream) = &inner.phase {
            stream.arm();
        }
    }

    /// Repeats `attempt` after each event until it returns a result.
    ///
    /// # Errors
    /// EAGAIN if a non-blocking call would have to wait, ETIMEDOUT after `timeout`.
    pub(super) fn until<T>(
        &self,
        nonblocking: bool,
        timeout: Duration,
        mut attempt: impl FnMut(&mut Inner) -> Option<Result<T, c_int>>,
    ) -> Result<T, c_int> {
        let clock = Clock::new();
        let started = clock.now();
        loop {
            let mut has_events = false;
            let mut inner = self.inner();
            let mut done = None;
            for arms in [true, false] {
                has_events |= self.advance(&mut inner);
                done = attempt(&mut inner);
                if done.is_some() {
                    break;
                }
                if arms {
                    // An event may have arrived before arming, so check again.
                    Socket::arm(&inner);
                }
            }
            let seen = (done.is_none() && !nonblocking).then(|| self.sleepers.enter());
            drop(inner);
            if has_events {
                self.wake(usize::from(seen.is_some()));
            }
            let Some(seen) = seen else { return done.unwrap_or(Err(libc::EAGAIN)) };
            let slept = self.sleep(seen);
            self.sleepers.leave();
            slept?;
            if clock.now().since(started) >= timeout {
                return Err(libc::ETIMEDOUT);
            }
        }
    }

    fn sleep(&self, seen: u64) -> Result<(), c_int> {
        let guard = lock(&self.sleeping);
        // The thread that slept before may have taken an event for this one.
        if self.sleepers.taken() != seen {
            return Ok(());
        }
        let slept = self.world.engine.next_event(&self.channel, SLEEP_MAX);
        let slept = match slept {
            Ok(_) => {
                // Make threads that wait for the guard check again.
                self.sleepers.note_taken();
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                let mut file = libc::pollfd { fd: self.number(), events: libc::POLLIN, revents: 0 };
                // SAFETY: `file` is one local `pollfd`, whose descriptor is open as long as this socket. The
                // wait happens only if the program has made the descriptor non-blocking.
                unsafe { libc::poll(&mut file, 1, 100) };
                Ok(())
            }
            Err(error) => Err(errno_of(&error)),
        };
        drop(guard);
        slept
    }

    // ---- calls

    /// Reserves a port. Returns it with its address.
    fn reserve(&self, at: SocketAddr, inner: &Inner) -> Result<(ReservedPort, SocketAddr), c_int> {
        let with_address = |reserved: ReservedPort| reserved.address().map(|address| (reserved, address));
        let reserved = ReservedPort::for_rdma(at, inner.options.only_v6);
        reserved.and_then(with_address).map_err(|error| errno_of(&error))
    }

    pub(super) fn bind(&self, to: SocketAddr) -> Result<(), c_int> {
        let mut inner = self.inner();
        if !matches!(inner.phase, Phase::New) {
            return Err(libc::EINVAL);
        }
        let (reserved, address) = self.reserve(to, &inner)?;
        inner.phase = Phase::Bound(reserved);
        inner.local = Some(address);
        Ok(())
    }

    pub(super) fn listen(self: &Arc<Socket>, backlog: c_int) -> Result<(), c_int> {
        let mut inner = self.inner();
        match &inner.phase {
            Phase::Listening { .. } => return Ok(()),
            Phase::New => {
                let (reserved, address) = self.reserve(unspecified(self.family), &inner)?;
                inner.phase = Phase::Bound(reserved);
                inner.local = Some(address);
            }
            Phase::Bound(_) => {}
            _ => return Err(libc::EINVAL),
        }
        self.world.serve()?;
        let backlog = usize::try_from(backlog).map_or(4096, |backlog| backlog.clamp(1, 4096));
        let jobs = self.world.jobs.clone();
        let accept_queue = Arc::new(AcceptQueue::new(
            self.family,
            backlog,
            self.channel.clone(),
            Arc::downgrade(self),
            jobs,
        ));
        let Phase::Bound(reserved) = &inner.phase else { return Err(libc::EINVAL) };
        let local = reserved.address().map_err(|error| errno_of(&error))?;
        let addresses = Device::that_listen_at(local.ip())?;
        let listener = reserved.listen(backlog as u32).and_then(|socket| {
            let handler = Arc::new(AcceptHandler(accept_queue.clone()));
            self.world.engine.listen(PortSpace::Tcp, socket, addresses, handler)
        });
        let number = listener.map_err(|error| errno_of(&error))?;
        inner.phase = Phase::Listening { accept_queue, number };
        Ok(())
    }

    pub(super) fn accept(&self) -> Result<Arc<Socket>, c_int> {
        let found = self.until(self.is_nonblocking(0), Duration::MAX, |inner| match &inner.phase {
            Phase::Listening { accept_queue, .. } => accept_queue.take().map(Ok),
            _ => Some(Err(libc::EINVAL)),
        })?;
        self.world.add(found.number(), super::world::Descriptor::Socket(found.clone()));
        Ok(found)
    }

    pub(super) fn connect(self: &Arc<Socket>, to: SocketAddr) -> Result<(), c_int> {
        self.look();
        let nonblocking = self.is_nonblocking(0);
        {
            let mut inner = self.inner();
            match &inner.phase {
                Phase::New | Phase::Bound(_) => {
                    self.begin_to_connect(&mut inner, to)?;
                    if nonblocking {
                        // Even if the result is already known, the program gets it later.
                        return Err(libc::EINPROGRESS);
                    }
                }
                Phase::Connecting(_) => {}
                Phase::Connected(_) => return Ok(()),
                Phase::Failed => return Err(inner.not_connected()),
                Phase::Listening { .. } => return Err(libc::EINVAL),
            }
        }
        let connected = self.until(nonblocking, Duration::MAX, |inner| match inner.phase {
            Phase::Connecting(_) => None,
            Phase::Connected(_) => Some(Ok(())),
            _ => Some(Err(inner.not_connected())),
        });
        connected.map_err(|error| if error == libc::EAGAIN { libc::EINPROGRESS } else { error })
    }

    fn begin_to_connect(self: &Arc<Socket>, inner: &mut Inner, to: SocketAddr) -> Result<(), c_int> {
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        let bound = inner.local.map(|local| local.ip().to_canonical()).filter(|ip| !ip.is_unspecified());
        let from = match bound {
            Some(ip) if ip.is_ipv4() == to.is_ipv4() => ip,
            Some(_) => return Err(libc::EAFNOSUPPORT),
            None => source_for(to)?,
        };
        self.world.serve()?;
        let engine = self.world.engine;
        let (channel, async_events) = (self.channel.clone(), self.world.async_events.clone());
        let mut stream = Stream::new(engine, from, inner.options.sizes(), channel, async_events)?;
        self.inbox.notify_when_connected(Arc::downgrade(self));
        // Offer one outstanding read, because some peers use an RDMA Read as their ready-to-receive message
        // (RFC 6581).
        let opened = engine
            .connect(
                stream.qp,
                Some(from),
                (PortSpace::Tcp, to),
                (1, 1),
                &stream.connect_data(),
                self.inbox.clone(),
            )
            .map_err(|error| errno_of(&error))?;
        stream.end = Some(opened.map_err(|_| libc::ENOMEM)?);
        inner.peer = Some(to);
        inner.phase = Phase::Connecting(Box::new(stream));
        Ok(())
    }

    /// Returns the stream, an error, or `None` while the connection is being established.
    fn connected(inner: &mut Inner) -> Option<Result<&mut Stream, c_int>> {
        match inner.phase {
            Phase::Connecting(_) => None,
            Phase::Connected(_) => inner.stream().map(Ok),
            _ => Some(Err(inner.not_connected())),
        }
    }

    pub(super) fn receive(&self, into: &mut [&mut [u8]], flags: c_int) -> Result<usize, c_int> {
        let wanted: usize = into.iter().map(|part| part.len()).sum();
        let peeks = flags & libc::MSG_PEEK != 0;
        let all = flags & libc::MSG_WAITALL != 0;
        let mut got = 0;
        let done = self.until(self.is_nonblocking(flags), Duration::MAX, |inner| {
            let stream = match Socket::connected(inner)? {
                Ok(stream) => stream,
                Err(error) => return Some(Err(error)),
            };
            if wanted == 0 {
                return Some(Ok(()));
            }
            if peeks {
                got = 0;
            }
            let mut start = 0;
            for part in into.iter_mut() {
                let end = start + part.len();
                if got >= start && got < end {
                    let skip = if peeks { got } else { 0 };
                    got += stream.receive(&mut part[got - start..], skip, peeks);
                }
                start = end;
            }
            if got == wanted || (got > 0 && !all) {
                return Some(Ok(()));
            }
            if !stream.may_read && !stream.has_data() {
                let error = if got == 0 { inner.take_error() } else { None };
                return Some(error.map_or(Ok(()), Err));
            }
            None
        });
        match done {
            Err(_) if got > 0 => Ok(got),
            Err(error) => Err(error),
            Ok(()) => Ok(got),
        }
    }

    /// Returns the error of a write if the sending direction is closed.
    pub(super) fn closed_for_writing(inner: &mut Inner) -> Option<c_int> {
        let has_shut = inner.has_shut;
        let stream = inner.stream()?;
        if stream.may_write {
            return None;
        }
        Some(if has_shut { libc::EPIPE } else { inner.take_error().unwrap_or(libc::ECONNRESET) })
    }

    pub(super) fn send(&self, parts: &[&[u8]], flags: c_int) -> Result<usize, c_int> {
        let wanted: usize = parts.iter().map(|part| part.len()).sum();
        self.send_with(wanted, flags, |stream, sent| {
            let (mut start, mut now) = (0, sent);
            for part in parts {
                let end = start + part.len();
                if now >= start && now < end {
                    now += stream.send(&part[now - start..]);
                }
                start = end;
            }
            now - sent
        })
    }

    /// Repeats sending until everything has been sent. `more` sends as much as it can, starting at an
    /// offset.
    pub(super) fn send_with(
        &self,
        wanted: usize,
        flags: c_int,
        mut more: impl FnMut(&mut Stream, usize) -> usize,
    ) -> Result<usize, c_int> {
        let mut sent = 0;
        let done = self.until(self.is_nonblocking(flags), Duration::MAX, |inner| {
            if let Err(error) = Socket::connected(inner)? {
                return Some(Err(error));
            }
            if let Some(error) = Socket::closed_for_writing(inner) {
                return Some(Err(error));
            }
            let stream = inner.stream()?;
            super::iomap::send_mappings(stream);
            sent += more(stream, sent);
            (sent == wanted).then_some(Ok(()))
        });
        match done {
            Err(_) if sent > 0 => Ok(sent),
            Err(error) => Err(error),
            Ok(()) => Ok(sent),
        }
    }

    pub(super) fn shutdown(&self, how: c_int) -> Result<(), c_int> {
        if !matches!(how, libc::SHUT_RD | libc::SHUT_WR | libc::SHUT_RDWR) {
            return Err(libc::EINVAL);
        }
        self.look();
        let control = {
            let mut inner = self.inner();
            let writes = how != libc::SHUT_RD;
            let Some(stream) = inner.stream() else { return Err(libc::ENOTCONN) };
            if stream.over.is_some() {
                inner.has_shut |= writes;
                return Ok(());
            }
            let was_writing = stream.may_write;
            stream.may_write &= !writes;
            stream.may_read &= how == libc::SHUT_WR;
            let control = match (stream.may_read, stream.may_write) {
                (false, false) => Some(Control::Disconnect),
                (true, false) if was_writing => Some(Control::Shutdown),
                _ => None,
            };
            inner.has_shut |= writes;
            control
        };
        if let Some(control) = control {
            let said = self.until(false, LINGER, |inner| {
                inner.stream().is_none_or(|stream| stream.send_control(control)).then_some(Ok(()))
            });
            let left = self.until(false, LINGER, |inner| {
                inner.stream().is_none_or(|stream| stream.is_idle()).then_some(Ok(()))
            });
            if control == Control::Disconnect
                && let Some(stream) = self.inner().stream()
            {
                stream.end_here();
            }
            self.sleepers.note_taken();
            self.wake(0);
            // Give up on a peer that accepts nothing for this long.
            return said
                .and(left)
                .or_else(|error| if error == libc::ETIMEDOUT { Ok(()) } else { Err(error) });
        }
        Ok(())
    }

    /// Closes the socket. Written data is sent first.
    pub(super) fn close(&self) {
        let _ = self.shutdown(libc::SHUT_RDWR);
        self.inbox.close();
        let mut inner = self.inner();
        match std::mem::replace(&mut inner.phase, Phase::Failed) {
            Phase::Listening { accept_queue, number } => {
                self.world.engine.unlisten(number);
                let left = accept_queue.close();
                drop(inner);
                drop(left);
            }
            phase => {
                drop(inner);
                drop(phase);
            }
        }
        // Wake other threads that still wait for this socket.
        self.sleepers.note_taken();
        self.wake(0);
    }

    /// Returns the events for poll(2). The caller is counted `own` times among the sleepers.
    pub(super) fn ready(&self, events: i16, own: usize) -> i16 {
        let mut inner = self.inner();
        let seen = self.sleepers.taken();
        // Pass the wake-up on only if an event was taken: otherwise, two polling threads would wake each
        // other forever.
        if self.advance(&mut inner) && self.sleepers.taken() != seen {
            self.wake(own);
        }
        let error = inner.error.is_some();
        let mut found = 0;
        match &inner.phase {
            Phase::Listening { accept_queue, .. } if accept_queue.is_ready() => {
                found |= libc::POLLIN | libc::POLLRDNORM
            }
            Phase::Connected(stream) => {
                if stream.has_data() || !stream.may_read {
                    found |= libc::POLLIN | libc::POLLRDNORM;
                }
                if !stream.may_read {
                    found |= libc::POLLRDHUP;
                }
                if stream.can_send() || stream.over.is_some() {
                    found |= libc::POLLOUT | libc::POLLWRNORM;
                }
                // Report the end only after all data has been read: programs such as rstream stop reading at
                // POLLHUP.
                match stream.over.filter(|_| !stream.has_data()) {
                    Some(EndReason::Disconnected) => found |= libc::POLLHUP,
                    Some(EndReason::Error(_)) => {
                        found |= libc::POLLHUP | if error { libc::POLLERR } else { 0 }
                    }
                    None => {}
                }
            }
            Phase::Failed => {
                found |= libc::POLLIN | libc::POLLRDNORM | libc::POLLOUT | libc::POLLWRNORM | libc::POLLHUP;
                found |= if error { libc::POLLERR } else { 0 };
            }
            _ => {}
        }
        found & (events | libc::POLLHUP | libc::POLLERR)
    }

    /// Returns the local address and the peer's address.
    pub(super) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        self.look();
        let mut inner = self.inner();
        let peer = if inner.stream().is_some() { inner.peer } else { None };
        (inner.local, peer)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The descriptor number may be reused once it is closed.
        if self.world.is_ours() {
            self.world.engine.forget_channel(&self.channel);
        }
    }
}
