//! The measurement server: `kiban lab serve`.
//!
//! Purpose   run measurements and nothing else, only for clients that know the token, and within limits.
//! Threads   one per session, and the number of sessions is limited.
//! Unproven  unauthenticated connections have no thread of their own. They have slots in a separate table
//!           (`unproven.rs`), a short timeout and a short maximum line, and never take the slot of a session.
//! Trial     the data port is chosen by the system or taken from a range. It accepts one connection, which
//!           must come from the session's address and send the nonce; its data is read and discarded.
//! Target    the server sends payload only on a connection from the session's address that has presented the
//!           nonce, so a client cannot direct traffic at another host.
//! Log       lines about refusals are rate-limited (`refusal_log.rs`).
//! Limits    duration of a trial and of a session, size of buffers and messages, bytes per second (above that
//!           rate, the server pauses reading or writing, and reports this with the outcome).
//! Left out  TLS; a list of tokens.

use super::data_ports::{CALLERS, DataPorts};
use super::event::{Event, Refusal};
use super::limits::{Limits, UNAUTHENTICATED_MAX, UNAUTHENTICATED_PER_NETWORK_MAX, UNAUTHENTICATED_TIMEOUT};
use super::mix::Room;
use super::refusal_log::RefusalLog;
use super::unproven::{Bounds, HandshakeError, Handshakes, Length, Step};
use crate::remote::admission::{Token, hex, is_same, may_connect};
use crate::remote::protocol::*;
use ipnet::IpNet;
use kiban_base::Instant;
use kiban_measure::pause::{pace, readable};
use kiban_measure::socket::given;
use kiban_measure::{Counters, Settings, TcpInfo};
use kiban_os::Clock;
use kiban_os::random;
use std::io::{self, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// How long the data connection may take to arrive and send its nonce.
const DATA_TIMEOUT: Duration = Duration::from_secs(10);
/// How much longer than announced a trial may take before the server ends it.
const GRACE: Duration = Duration::from_secs(10);
/// Bytes read from a stream at a time.
const READ_BYTES: usize = 256 << 10;
/// How far a session may run ahead of its rate in a burst.
const BURST: Duration = Duration::from_millis(250);
/// How often a waiting thread checks whether the server is ending.
const LOOK: Duration = Duration::from_millis(200);

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

struct Shared {
    token: Token,
    allowed: Vec<IpNet>,
    limits: Limits,
    clock: Clock,
    ends: AtomicBool,
    ports: DataPorts,
    sessions: AtomicUsize,
    on_event: Box<dyn Fn(Event) + Send + Sync>,
}

/// A session's slot, freed when it is dropped.
struct SessionSlot(Arc<Shared>);

impl SessionSlot {
    fn take(shared: &Arc<Shared>) -> Option<SessionSlot> {
        let more = |now: usize| (now < shared.limits.sessions).then_some(now + 1);
        let taken = shared.sessions.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.is_ok().then(|| SessionSlot(Arc::clone(shared)))
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Server {
    /// Starts listening. `on_event` is called for each event.
    ///
    /// # Errors
    /// Returns errors of the operating system.
    pub fn bind(
        address: SocketAddr,
        token: Token,
        allowed: Vec<IpNet>,
        limits: Limits,
        on_event: impl Fn(Event) + Send + Sync + 'static,
    ) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let ports = DataPorts::new(limits.data_ports.clone());
        let shared = Shared {
            token,
            allowed,
            limits,
            clock: Clock::new(),
            ends: AtomicBool::new(false),
            ports,
            sessions: AtomicUsize::new(0),
            on_event: Box::new(on_event),
        };
        Ok(Server { listener, shared: Arc::new(shared) })
    }

    /// Returns the address on which it listens.
    ///
    /// # Errors
    /// Returns errors of the operating system.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns a function that makes [`Server::run`] and all sessions end soon. It may be called from another
    /// thread.
    pub fn stopper(&self) -> impl Fn() + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.ends.store(true, Ordering::Release)
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    /// Returns errors of the operating system for the listener.
    pub fn run(&self) -> io::Result<()> {
        let shared = &self.shared;
        let bounds = Bounds {
            connections_max: UNAUTHENTICATED_MAX,
            per_network_max: UNAUTHENTICATED_PER_NETWORK_MAX,
            time: UNAUTHENTICATED_TIMEOUT,
        };
        let mut handshakes = Handshakes::new(bounds, Length::Line(HELLO_BYTES_MAX as usize));
        let mut ration = RefusalLog::default();
        while !shared.ends.load(Ordering::Acquire) {
            let mut refused = Vec::new();
            let admits = |address| {
                let admits = may_connect(&shared.allowed, address);
                // Send no reply: an address that is not allowed need not learn that there is a server.
                refused.extend((!admits).then_some((address, Refusal::NotAllowed)));
                admits
            };
            for step in handshakes.turn(&self.listener, || shared.clock.now(), LOOK, admits)? {
                let (stream, address, why) = match step {
                    Step::Said(stream, address, said) => match self.admit(stream, address, &said) {
                        Ok(()) => continue,
                        Err((stream, why)) => (stream, address, why),
                    },
                    Step::Cut(stream, address, HandshakeError::Late) => {
                        (Some(stream), address, Refusal::Silent)
                    }
                    Step::Cut(stream, address, HandshakeError::Displaced) => {
                        (Some(stream), address, Refusal::Displaced)
                    }
                    Step::Cut(stream, address, HandshakeError::Nonsense) => {
                        (Some(stream), address, Refusal::Nonsense)
                    }
                };
                refused.push((address, why));
                if let Some(stream) = stream {
                    refuse(stream, why);
                }
            }
            let now = shared.clock.now();
            let lines = refused.into_iter().filter_map(|(address, why)| ration.refused(address, why, now));
            lines.for_each(&shared.on_event);
            ration.on_time(now).into_iter().for_each(&shared.on_event);
        }
        Ok(())
    }

    /// Starts a session with a client that has sent its first line.
    fn admit(
        &self,
        stream: TcpStream,
        address: IpAddr,
        said: &[u8],
    ) -> Result<(), (Option<TcpStream>, Refusal)> {
        let shared = &self.shared;
        let refused = |stream, why| Err((Some(stream), why));
        let hello = match read_message::<Hello>(&mut { said }, HELLO_BYTES_MAX) {
            Err(_) => return refused(stream, Refusal::Nonsense),
            Ok(hello) if !shared.token.is(&hello.token) => return refused(stream, Refusal::Token),
            Ok(hello) => hello,
        };
        if hello.version != VERSION {
            return refused(stream, Refusal::Version);
        }
        let Some(slot) = SessionSlot::take(shared) else {
            return refused(stream, Refusal::Full(shared.limits.sessions));
        };
        // If the thread cannot be created, the connection, which it owns, is closed, and the client reports
        // that.
        let thread = std::thread::Builder::new().name("session".into());
        let begun = thread.spawn(move || slot.0.meet(stream, address));
        begun.map(drop).map_err(|_| (None, Refusal::NoThread))
    }
}

/// Sends the reason and closes, without waiting.
fn refuse(mut stream: TcpStream, why: Refusal) {
    // The client may have disconnected already.
    let _ = write_message(&mut stream, &Greeting::Refused(why.to_string()));
    let _ = stream.shutdown(Shutdown::Write);
    // Closing a socket with unread data resets the connection, which may overtake the reason (RFC 1122
    // §4.2.2.13).
    let _ = stream.read(&mut [0; HELLO_BYTES_MAX as usize]);
}

impl Shared {
    fn meet(&self, stream: TcpStream, address: IpAddr) {
        let Ok((mut reader, mut writer)) = self.lines(stream) else { return };
        (self.on_event)(Event::Began(address));
        let mut trials = 0;
        let how = match self.session(&mut reader, &mut writer, address, &mut trials) {
            Ok(()) => "the client closed the session".to_owned(),
            Err(error) => error.to_string(),
        };
        (self.on_event)(Event::Ended(address, trials, how));
    }

    fn lines(&self, stream: TcpStream) -> io::Result<(Lines, TcpStream)> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(LINE_TIME))?;
        Ok((BufReader::new(DeadlineReader::new(stream.try_clone()?, LINE_TIME)), stream))
    }

    fn session(
        &self,
        reader: &mut Lines,
        writer: &mut TcpStream,
        address: IpAddr,
        trials: &mut u64,
    ) -> io::Result<()> {
        let limits = &self.limits;
        let local = writer.local_addr()?.ip();
        let end = self.clock.now() + Duration::from_secs(limits.session_seconds.into());
        write_message(writer, &Greeting::Welcome(self.welcome()))?;
        loop {
            let Some(ask) = self.next(reader, end)? else { return Ok(()) };
            if let Request::Mix(request) = &ask {
                let ports = &self.ports;
                let room = Room { clock: self.clock, limits, ports, ends: &self.ends, address, local };
                super::mix::serve(&room, request, reader, writer)?;
                *trials += 1;
                continue;
            }
            let Request::Trial { settings, work, millis } = ask else {
                let why = "no trial is in progress".to_owned();
                write_message(writer, &Reply::Impossible(why))?;
                continue;
            };
            if let Some(why) = self.beyond(&settings, work, millis) {
                write_message(writer, &Reply::Impossible(why))?;
                continue;
            }
            let listener = match self.ports.take(|port| settings.listen(SocketAddr::new(local, port))) {
                Ok(listener) => listener,
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    // Ports become free when other trials end.
                    let why = "all data ports of the server are in use: start it with a larger range \
                        (--data-ports), or try again later";
                    write_message(writer, &Reply::Lost(why.into()))?;
                    continue;
                }
                Err(error) => {
                    write_message(
                        writer,
                        &Reply::Impossible(format!("the server's socket failed: {error}")),
                    )?;
                    continue;
                }
            };
            let nonce = random::bytes::<NONCE_BYTES>()?;
            let port = listener.local_addr()?.port();
            let before = Counters::read().unwrap_or_default();
            write_message(writer, &Reply::Ready { port, nonce: hex(&nonce) })?;
            let deadline = self.clock.now() + Duration::from_millis(millis.into()) + GRACE;
            let made = self.accept(&listener, address, &nonce).and_then(|stream| match work {
                Work::Write { message_bytes } => {
                    let length = Duration::from_millis(millis.into());
                    self.write(stream, &settings, message_bytes, length, &before)
                }
                Work::Read | Work::Reply { .. } => self.read(stream, &settings, work, deadline, &before),
            });
            drop(listener);
            match self.next(reader, end)? {
                Some(Request::Ended) => {}
                Some(Request::Trial { .. } | Request::Mix(_)) => {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "a trial was requested during a trial",
                    ));
                }
                None => return Ok(()),
            }
            *trials += 1;
            let answer = match made {
                Ok(outcome) => Reply::Outcome(Box::new(outcome)),
                Err(error) => Reply::Lost(format!("at the server: {error}")),
            };
            write_message(writer, &answer)?;
        }
    }

    /// Returns the next line; `None` at the end.
    fn next(&self, reader: &mut Lines, end: Instant) -> io::Result<Option<Request>> {
        let idle = self.clock.now() + Duration::from_secs(self.limits.idle_seconds.into());
        while reader.buffer().is_empty() && !readable(reader.get_ref(), LOOK)? {
            let now = self.clock.now();
            if self.ends.load(Ordering::Acquire) {
                return Err(late("the server is shutting down"));
            }
            if now >= end {
                return Err(late("the session reached its maximum duration"));
            }
            if now >= idle {
                return Err(late("the client was silent for too long"));
            }
        }
        match read_message_until(reader, LINE_BYTES_MAX, LINE_TIME) {
            Ok(ask) => Ok(Some(ask)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn welcome(&self) -> Welcome {
        let read = |name: &str| {
            std::fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default().trim().to_owned()
        };
        let congestion = read("net/ipv4/tcp_available_congestion_control");
        Welcome {
            kiban: env!("CARGO_PKG_VERSION").into(),
            kernel: format!("{} {}", std::env::consts::OS, read("kernel/osrelease")),
            congestion: congestion.split_whitespace().map(str::to_owned).collect(),
            trial_seconds_max: self.limits.trial_seconds,
            buffer_bytes_max: self.limits.buffer_bytes,
            message_bytes_max: self.limits.message_bytes,
            bytes_per_second_max: self.limits.bytes_per_second,
        }
    }

    /// Returns the limit that a trial exceeds.
    fn beyond(&self, settings: &Settings, work: Work, millis: u32) -> Option<String> {
        let limits = &self.limits;
        let (message, reply) = match work {
            Work::Read => (1, 1),
            Work::Reply { message_bytes, reply_bytes } => (message_bytes, reply_bytes),
            Work::Write { message_bytes } => (message_bytes, 1),
        };
        let buffer = settings.send_bytes.max(settings.receive_bytes).unwrap_or(0);
        if message == 0 || reply == 0 {
            return Some("a message and a reply need at least 1 byte".into());
        }
        [
            ("milliseconds in a trial", millis, limits.trial_seconds.saturating_mul(1000)),
            ("bytes in a socket buffer", buffer, limits.buffer_bytes),
            ("bytes in a message", message.max(reply), limits.message_bytes),
        ]
        .into_iter()
        .find(|(_, requested, most)| requested > most)
        .map(|(what, requested, most)| format!("too many {what}: {requested}, the server allows {most}"))
    }

    fn accept(&self, listener: &TcpListener, address: IpAddr, nonce: &[u8]) -> io::Result<TcpStream> {
        let deadline = self.clock.now() + DATA_TIMEOUT;
        let mut callers = Handshakes::new(CALLERS, Length::Octets(NONCE_BYTES));
        while self.clock.now() < deadline && !self.ends.load(Ordering::Acquire) {
            let now = || self.clock.now();
            // Other connections from that address, with a wrong nonce or none, delay the right one no longer
            // than their timeout.
            for step in callers.turn(listener, now, LOOK, |from| from == address)? {
                if let Step::Said(stream, _, said) = step
                    && is_same(&said, nonce)
                {
                    stream.set_nonblocking(false)?;
                    return Ok(stream);
                }
            }
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "no data connection arrived; is there a firewall in between?",
        ))
    }

    /// Writes all of `bytes` before a deadline, which a peer cannot extend by reading slowly.
    fn put(&self, stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.ends.load(Ordering::Acquire) {
                return Err(late("the server is shutting down"));
            }
            if self.clock.now() >= deadline {
                return Err(late("the client did not read what was sent"));
            }
            match stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(taken) => bytes = &bytes[taken..],
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes messages for the announced time, then waits until the client has closed.
    fn write(
        &self,
        mut stream: TcpStream,
        settings: &Settings,
        message_bytes: u32,
        length: Duration,
        before: &Counters,
    ) -> io::Result<Outcome> {
        stream.set_nodelay(settings.no_delay)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(LOOK))?;
        let begin = self.clock.now();
        let mut budget = Budget { per_second: self.limits.bytes_per_second, begin, bytes: 0, limited: false };
        let message = filled(message_bytes)?;
        let mut now = begin;
        while now.since(begin) < length {
            self.put(&mut stream, &message, begin + length + GRACE)?;
            now = self.clock.now();
            budget.spend(message.len() as u64, now);
        }
        let outcome = budget.outcome(&stream, now, before)?;
        stream.shutdown(Shutdown::Write)?;
        // Wait until the client closes, so that data in flight arrives.
        let deadline = self.clock.now() + GRACE;
        loop {
            match stream.read(&mut [0; 1]) {
                Ok(0) => return Ok(outcome),
                Ok(_) => {}
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
            if self.ends.load(Ordering::Acquire) || self.clock.now() >= deadline {
                return Err(late("the client did not read what was sent"));
            }
        }
    }

    fn read(
        &self,
        mut stream: TcpStream,
        settings: &Settings,
        work: Work,
        deadline: Instant,
        before: &Counters,
    ) -> io::Result<Outcome> {
        stream.set_nodelay(settings.no_delay)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(LOOK))?;
        let begin = self.clock.now();
        let mut budget = Budget { per_second: self.limits.bytes_per_second, begin, bytes: 0, limited: false };
        let mut last = begin;
        let (message, reply) = match work {
            Work::Read | Work::Write { .. } => (usize::MAX, Vec::new()),
            Work::Reply { message_bytes, reply_bytes } => (message_bytes as usize, filled(reply_bytes)?),
        };
        let mut room = vec![0; READ_BYTES.min(message)];
        let mut missing = message;
        loop {
            let part = missing.min(room.len());
            match stream.read(&mut room[..part]) {
                Ok(0) => break,
                Ok(length) => {
                    last = self.clock.now();
                    budget.spend(length as u64, last);
                    missing -= if message == usize::MAX { 0 } else { length };
                    if missing == 0 {
                        self.put(&mut stream, &reply, deadline)?;
                        missing = message;
                    }
                }
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
            if self.ends.load(Ordering::Acquire) {
                return Err(late("the server is shutting down"));
            }
            if self.clock.now() >= deadline {
                match work {
                    // Do not wait for data in flight: the rate is known.
                    Work::Read | Work::Write { .. } => break,
                    Work::Reply { .. } => return Err(late("the trial took longer than announced")),
                }
            }
        }
        budget.outcome(&stream, last, before)
    }
}

/// Returns the error for an expired time limit.
fn late(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// The rate limit of a session, in bytes per second.
struct Budget {
    per_second: u64,
    begin: Instant,
    bytes: u64,
    limited: bool,
}

impl Budget {
    /// Returns the outcome of a trial whose last byte was at `last`; `before` are the host's counters at the
    /// start.
    fn outcome(&self, stream: &TcpStream, last: Instant, before: &Counters) -> io::Result<Outcome> {
        Ok(Outcome {
            bytes: self.bytes,
            seconds: last.since(self.begin).as_secs_f64(),
            rate_limited: self.limited,
            info: TcpInfo::of(stream)?,
            given: given(stream)?,
            counters: Counters::read().unwrap_or_default().since(before),
        })
    }

    /// Counts the bytes read, and waits if the rate is exceeded. A burst as long as [`BURST`] is not delayed.
    fn spend(&mut self, bytes: u64, now: Instant) {
        self.bytes += bytes;
        let due = Duration::from_secs_f64(self.bytes as f64 / self.per_second.max(1) as f64);
        let ahead = due.saturating_sub(now.since(self.begin));
        if ahead > BURST {
            self.limited = true;
            pace((ahead - BURST).min(GRACE));
        }
    }
}
/// Allocates a message of the length that a client has requested. If there is not enough memory, only that
/// client's trial fails.
fn filled(bytes: u32) -> io::Result<Vec<u8>> {
    let (mut message, bytes) = (Vec::new(), bytes as usize);
    message.try_reserve_exact(bytes)?;
    message.resize(bytes, 0x5a);
    Ok(message)
}
