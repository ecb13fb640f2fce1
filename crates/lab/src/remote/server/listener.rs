//! The measurement server: `kiban lab serve`.
//!
//! Purpose   run measurements and nothing else, only for clients that know the token, and within limits.
//! Threads   one thread per session; the number of sessions is limited.
//! Unproven  unauthenticated connections have no thread of their own. They have slots in a separate table
//!           (`unproven.rs`), a short timeout and a short maximum line, and never take the slot of a session.
//! Ports     data ports are chosen by the system or taken from a range. They accept only connections and
//!           datagrams from the session's address with the nonce of the measurement.
//! Target    the server sends payload only on a connection from the session's address that has presented the
//!           nonce, so a client cannot direct traffic at another host.
//! Log       lines about refusals are rate-limited (`refusal_log.rs`).
//! Limits    see [`Limits`]; `trial.rs`, `mix.rs` and `probe.rs` say how each kind of measurement keeps them.
//! Left out  TLS; a list of tokens.

use super::budget::Rate;
use super::data_ports::DataPorts;
use super::event::{Event, Refusal};
use super::limits::{
    LOOK, Limits, UNAUTHENTICATED_MAX, UNAUTHENTICATED_PER_NETWORK_MAX, UNAUTHENTICATED_TIMEOUT,
};
use super::refusal_log::RefusalLog;
use super::session::{Session, State};
use super::unproven::{Bounds, HandshakeError, Handshakes, Length, Step};
use super::{mix, probe, trial};
use crate::remote::admission::{Token, may_connect};
use crate::remote::protocol::*;
use crate::remote::tcp::{Listener, Stream, TcpStack};
use ipnet::IpNet;
use kiban_measure::Settings;
use kiban_measure::socket::defer_accept;
use kiban_os::{Clock, lock};
use std::io::{self, Read};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A listening server.
pub struct Server {
    listener: Listener,
    shared: Arc<Shared>,
}

struct Shared {
    token: Token,
    allowed: Vec<IpNet>,
    state: State,
    /// The rate limit of each session slot.
    rates: Vec<Rate>,
    /// The slots that are not in use.
    free: Mutex<Vec<usize>>,
    on_event: Box<dyn Fn(Event) + Send + Sync>,
}

/// A session's slot, freed when it is dropped. Its rate limit passes to the next session, without debt.
struct SessionSlot {
    shared: Arc<Shared>,
    number: usize,
}

impl SessionSlot {
    fn take(shared: &Arc<Shared>) -> Option<SessionSlot> {
        let number = lock(&shared.free).pop()?;
        Some(SessionSlot { shared: Arc::clone(shared), number })
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        lock(&self.shared.free).push(self.number);
    }
}

impl Server {
    /// Starts listening on a TCP. `on_event` is called for each event.
    ///
    /// # Errors
    /// Returns errors from the operating system.
    pub fn bind(
        tcp: TcpStack,
        address: SocketAddr,
        token: Token,
        allowed: Vec<IpNet>,
        limits: Limits,
        on_event: impl Fn(Event) + Send + Sync + 'static,
    ) -> io::Result<Server> {
        let listener = listen(&tcp, address)?;
        let ports = DataPorts::new(limits.data_ports.clone());
        let rates = (0..limits.sessions).map(|_| Rate::new(limits.bytes_per_second)).collect();
        let free = Mutex::new((0..limits.sessions).collect());
        let state = State { tcp, limits, clock: Clock::new(), ports, ends: AtomicBool::new(false) };
        let shared = Shared { token, allowed, state, rates, free, on_event: Box::new(on_event) };
        Ok(Server { listener, shared: Arc::new(shared) })
    }

    /// Returns the address on which the server listens.
    ///
    /// # Errors
    /// Returns errors from the operating system.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns a function that makes [`Server::run`] and all sessions end soon. The function may be called
    /// from another thread.
    pub fn stopper(&self) -> impl Fn() + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.state.ends.store(true, Ordering::Release)
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    /// Returns the operating system's errors on the listening socket.
    pub fn run(&self) -> io::Result<()> {
        let shared = &self.shared;
        let bounds = Bounds {
            connections_max: UNAUTHENTICATED_MAX,
            per_network_max: UNAUTHENTICATED_PER_NETWORK_MAX,
            time: UNAUTHENTICATED_TIMEOUT,
        };
        let mut handshakes = Handshakes::new(bounds, Length::Line(HELLO_BYTES_MAX as usize));
        let mut ration = RefusalLog::default();
        while !shared.state.ends.load(Ordering::Acquire) {
            let mut refused = Vec::new();
            let admits = |address| {
                let admits = may_connect(&shared.allowed, address);
                // Send no reply, so that a client at an address that is not allowed does not learn that there
                // is a server.
                refused.extend((!admits).then_some((address, Refusal::NotAllowed)));
                admits
            };
            for step in handshakes.turn(&self.listener, || shared.state.clock.now(), LOOK, admits)? {
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
            let now = shared.state.clock.now();
            let lines = refused.into_iter().filter_map(|(address, why)| ration.refused(address, why, now));
            lines.for_each(&shared.on_event);
            ration.on_time(now).into_iter().for_each(&shared.on_event);
        }
        Ok(())
    }

    /// Starts a session with a client that has sent its first line.
    fn admit(&self, stream: Stream, address: IpAddr, said: &[u8]) -> Result<(), (Option<Stream>, Refusal)> {
        let shared = &self.shared;
        let refused = |stream, why| Err((Some(stream), why));
        let hello = match read_message::<Hello>(&mut { said }, HELLO_BYTES_MAX) {
            Err(_) => return refused(stream, Refusal::Nonsense),
            Ok(hello) if !shared.token.is(&hello.token) => return refused(stream, Refusal::Token),
            Ok(hello) => hello,
        };
        if hello.version != VERSION {
            return refused(stream, Refusal::Version(hello.version));
        }
        let Some(slot) = SessionSlot::take(shared) else {
            return refused(stream, Refusal::Full(shared.state.limits.sessions));
        };
        // If the thread cannot be created, its closure is dropped, which closes the connection; the client
        // reports that.
        let thread = std::thread::Builder::new().name("session".into());
        let begun = thread.spawn(move || slot.meet(stream, address));
        begun.map(drop).map_err(|_| (None, Refusal::NoThread))
    }
}

/// Opens the listener for control connections.
fn listen(tcp: &TcpStack, address: SocketAddr) -> io::Result<Listener> {
    let TcpStack::Host = tcp else { return tcp.listen(&Settings::default(), address) };
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    // A client's first line then arrives with its connection, which then needs no unproven slot.
    // It is not an error if the system refuses: the table also works without.
    let _ = defer_accept(&listener, UNAUTHENTICATED_TIMEOUT.as_secs() as u32);
    Ok(Listener::Host(listener))
}

/// Sends the reason and closes, without waiting.
fn refuse(mut stream: Stream, why: Refusal) {
    // The client may have disconnected already.
    let _ = write_message(&mut stream, &Greeting::Refused(why.to_string()));
    let _ = stream.shutdown(Shutdown::Write);
    // Closing a socket with unread data resets the connection, and the reset may overtake the reason (RFC
    // 1122 §4.2.2.13).
    let _ = stream.read(&mut [0; HELLO_BYTES_MAX as usize]);
}

impl SessionSlot {
    fn meet(&self, stream: Stream, address: IpAddr) {
        let rate = &self.shared.rates[self.number];
        let Ok(mut session) = Session::new(&self.shared.state, rate, stream, address) else { return };
        (self.shared.on_event)(Event::Began(address));
        let mut trials = 0;
        let how = match measure(&mut session, &mut trials) {
            Ok(()) => "the client closed the session".to_owned(),
            Err(error) => error.to_string(),
        };
        drop(session);
        (self.shared.on_event)(Event::Ended(address, trials, how));
        // The next session in this slot must not have to wait for what this one was charged.
        let state = &self.shared.state;
        for bucket in [&rate.received, &rate.sent] {
            bucket.pay(0, state.clock, |_| state.check().is_err());
        }
    }
}

/// Runs the measurements that a client requests until the client closes the session, and counts them.
fn measure(session: &mut Session<'_>, trials: &mut u64) -> io::Result<()> {
    session.welcome()?;
    while let Some(request) = session.next()? {
        *trials += u64::from(match request {
            Request::Trial { nonce, settings, work, millis } => {
                trial::serve(session, nonce, &settings, work, Duration::from_millis(millis.into()))?
            }
            Request::Mix { .. } | Request::Probe { .. } if session.state.tcp.board().is_some() => {
                let why = "this needs the host's UDP: start `kiban lab serve` without --board";
                session.send(&Reply::Impossible(why.to_owned()))?;
                false
            }
            Request::Mix { nonce, request } => mix::serve(session, nonce, &request)?,
            Request::Probe { nonce, request } => probe::serve(session, nonce, &request)?,
            Request::Go | Request::Ended(_) => {
                session.send(&Reply::Impossible("no trial is in progress".into()))?;
                false
            }
        });
    }
    Ok(())
}
