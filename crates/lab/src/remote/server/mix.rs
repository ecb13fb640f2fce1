//! The server's part of a mix: a measurement within a session of `kiban lab serve` whose client has presented
//! the token.
//!
//! Ports     one port for datagrams and, if there are TCP flows, one for connections, both chosen by the
//!           system. Both accept only packets from the session's address with its nonce. The server sends
//!           nothing from them: all its messages go over the control connection.
//! Bounds    the server's limits: duration of a trial, octets per second (excess datagrams are dropped and
//!           counted, connections are read more slowly), size of a window. The protocol's limits: flows,
//!           circuits, connections.
//! Control   the client may send one start and one end. Both are read only once earlier lines conform to the
//!           rate. The replies to cookies are no longer than the datagrams that caused them, which conform.
//! End       when the client announces the end, the server waits until nothing has arrived for [`QUIET`],
//!           because traffic may still be in transit. A mix also ends when the client is gone.

use super::budget::Rate;
use super::data_ports::DataPort;
use super::limits::{GRACE, Limits, check_limits};
use super::session::{Session, State, late, overlapping};
use crate::mix::Kind;
use crate::mix::real::bulk::{self, ReceiveStats, Tally};
use crate::mix::real::messages::{BULK_MAX, CIRCUITS_MAX, FLOWS_MAX, Incoming, Policed, SAMPLE_MILLIS};
use crate::mix::real::receive::Receiver;
use crate::mix::real::wire::{self, COOKIE_OCTETS, DATAGRAM_OCTETS_MAX};
use crate::mix::{MixRequest, MixTotal};
use crate::remote::admission::hex;
use crate::remote::protocol::{Nonce, Reply, Request};
use crate::remote::tcp::Stream;
use kiban_base::Instant;
use kiban_measure::pause::readable;
use kiban_measure::{Datagrams, Settings};
use kiban_os::lock;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the server waits for traffic in transit after the client has announced the end.
const QUIET: Duration = Duration::from_secs(2);
/// The socket's receive buffer, bytes: 0.1 s at 300 Mbit/s.
const BUFFER_BYTES: u32 = 4 << 20;
/// How long to wait for the sockets when nothing arrives.
const TURN: Duration = Duration::from_millis(5);
/// The maximum number of datagrams read before other events are checked.
const BATCH: usize = 256;

/// Receives a mix; returns whether it took place.
///
/// # Errors
/// The client is gone, or the server is shutting down.
pub(super) fn serve(session: &mut Session<'_>, nonce: Nonce, request: &MixRequest) -> io::Result<bool> {
    if let Err(why) = validate(request, &session.state.limits) {
        return session.send(&Reply::Impossible(why)).map(|()| false);
    }
    let bulk: Vec<u16> = circuits_of_tcp(request);
    let window =
        request.flows.iter().filter(|flow| flow.kind == Kind::Bulk).map(|flow| flow.window_kib << 10);
    let settings = Settings { receive_bytes: window.max(), ..Settings::default() };
    let sockets = session.open(|at| Datagrams::bind(at, BUFFER_BYTES)).and_then(|datagrams| {
        let listener = (!bulk.is_empty())
            .then(|| session.open(|at| session.state.tcp.listen(&settings, at)))
            .transpose()?;
        Ok((datagrams, listener))
    });
    let (datagrams, listener) = match sockets {
        Ok(sockets) => sockets,
        Err(reply) => return session.send(&reply).map(|()| false),
    };
    let streams = listener.as_ref().map_or(Ok(0), |listener| listener.local_addr().map(|at| at.port()))?;
    session.send(&Reply::Ready { streams, datagrams: datagrams.port()? })?;
    let greetings = bulk.iter().map(|circuit| bulk::greeting(&nonce, *circuit)).collect();
    let port = listener.map(|listener| DataPort::new(listener, session.address, greetings));
    let tallies: Vec<Tally> = bulk.iter().map(|_| Tally::default()).collect();
    let state = session.state;
    let mix = Mix {
        state,
        address: session.address,
        request,
        nonce,
        bulk: &bulk,
        tallies: &tallies,
        stop: AtomicBool::new(false),
        rate: session.rate,
    };
    std::thread::scope(|scope| {
        let done = mix.run(scope, session, &datagrams, port);
        mix.stop.store(true, Ordering::Release);
        done.map(|()| true)
    })
}

/// Checks a request against the limits and for consistency.
fn validate(request: &MixRequest, limits: &Limits) -> Result<(), String> {
    let copies =
        |flows: &mut dyn Iterator<Item = &Incoming>| flows.map(|flow| u64::from(flow.copies)).sum::<u64>();
    let circuits = copies(&mut request.flows.iter());
    let streams = copies(&mut request.flows.iter().filter(|flow| flow.kind == Kind::Bulk));
    let window = request.flows.iter().map(|flow| flow.window_kib.saturating_mul(1024)).max().unwrap_or(0);
    check_limits(&[
        ("milliseconds in a trial", u64::from(request.millis), u64::from(limits.trial_seconds) * 1000),
        ("flows of a mix", request.flows.len() as u64, FLOWS_MAX as u64),
        ("paths of a mix", request.paths.len() as u64, FLOWS_MAX as u64),
        ("circuits of a mix", circuits, CIRCUITS_MAX as u64),
        ("connections of a mix", streams, BULK_MAX as u64),
        ("bytes in a socket buffer", window.into(), limits.buffer_bytes.into()),
    ])?;
    if request.millis == 0 || circuits == 0 || !SAMPLE_MILLIS.contains(&u64::from(request.sample_ms)) {
        return Err(format!("a mix needs a duration, flows, and a sample interval of {SAMPLE_MILLIS:?} ms"));
    }
    request.paths.iter().try_for_each(Policed::validate)?;
    request.flows.iter().try_for_each(|flow| flow.validate(request.paths.len()))
}

/// Returns the circuits that are TCP connections.
fn circuits_of_tcp(request: &MixRequest) -> Vec<u16> {
    let kinds = request.flows.iter().flat_map(|flow| std::iter::repeat_n(flow.kind, flow.copies as usize));
    kinds.enumerate().filter(|(_, kind)| *kind == Kind::Bulk).map(|(number, _)| number as u16).collect()
}

struct Mix<'a> {
    state: &'a State,
    /// The client's address.
    address: IpAddr,
    request: &'a MixRequest,
    nonce: Nonce,
    bulk: &'a [u16],
    tallies: &'a [Tally],
    stop: AtomicBool,
    rate: &'a Rate,
}

impl Mix<'_> {
    fn run<'scope>(
        &'scope self,
        scope: &'scope std::thread::Scope<'scope, '_>,
        session: &mut Session<'_>,
        datagrams: &Datagrams,
        mut port: Option<DataPort>,
    ) -> io::Result<()> {
        let clock = self.state.clock;
        let mut receiver = Receiver::new(self.request, self.nonce.prefix());
        let length = Duration::from_millis(self.request.millis.into());
        let (mut start, mut sent, mut last) = (None, None, clock.now());
        let (mut refused, mut cookies) = (0, Vec::new());
        let (mut has_started, mut deadline) = (false, clock.now() + GRACE);
        loop {
            let arrived = port.as_mut().map(|port| port.turn(|| clock.now(), Duration::ZERO)).transpose()?;
            for (place, stream) in arrived.unwrap_or_default() {
                std::thread::Builder::new()
                    .name("mix".into())
                    .spawn_scoped(scope, move || self.connection(stream, place))?;
            }
            let request = if sent.is_none() { session.poll(Duration::ZERO)? } else { None };
            match request {
                None => {}
                Some(Request::Go) if !has_started => {
                    has_started = true;
                    start.get_or_insert(clock.now());
                    deadline = clock.now() + length + GRACE;
                }
                Some(Request::Ended(datagrams)) => {
                    sent = Some(datagrams);
                    last = clock.now();
                    deadline = deadline.min(last + GRACE);
                }
                Some(_) => return Err(overlapping()),
            }
            let waited = readable(datagrams, TURN)?;
            if waited {
                last = clock.now();
                refused += self.take(datagrams, &mut receiver, &mut start, &mut cookies);
            }
            for cookie in cookies.drain(..) {
                session.send(&Reply::Heard(hex(&cookie)))?;
            }
            let now = clock.now();
            self.streams(&mut receiver);
            if let Some(start) = start {
                receiver.on_time(now.since(start));
            }
            for sample in receiver.samples() {
                session.report(&Reply::Sample(sample))?;
            }
            session.check()?;
            if let Some(sent) = &sent {
                let streams = self.tallies.iter().all(|tally| lock(tally).ended);
                if (streams && (receiver.has_all(sent) || now >= last + QUIET)) || now >= deadline {
                    break;
                }
            } else if now >= deadline {
                return Err(late("the mix exceeded its announced duration"));
            }
        }
        self.stop.store(true, Ordering::Release);
        self.streams(&mut receiver);
        let (samples, total) = receiver.finish();
        for sample in samples {
            session.report(&Reply::Sample(sample))?;
        }
        let total = MixTotal { refused, dropped_here: datagrams.drops(), ..total };
        session.report(&Reply::Total(Box::new(total)))
    }

    /// Receives datagrams and returns how many were rejected.
    fn take(
        &self,
        datagrams: &Datagrams,
        receiver: &mut Receiver,
        start: &mut Option<Instant>,
        cookies: &mut Vec<[u8; COOKIE_OCTETS]>,
    ) -> u64 {
        let mut refused = 0;
        let (greeting, prefix) = (self.nonce.greeting(), self.nonce.prefix());
        let mut octets = [0; DATAGRAM_OCTETS_MAX + 1];
        for _ in 0..BATCH {
            let Some(came) = datagrams.take(&mut octets) else { break };
            if came.from.ip().to_canonical() != self.address {
                continue;
            }
            if !self.rate.received.take(came.octets as u64, self.state.clock.now()) {
                refused += 1;
                continue;
            }
            let octets = &octets[..came.octets];
            if let Some(cookie) = wire::read_cookie(octets, &greeting) {
                // Return cookies only before the start; later, every datagram could trigger a line on the
                // control connection.
                cookies.extend(start.is_none().then_some(cookie));
                continue;
            }
            let came = self.state.clock.at(came.nanos);
            // A datagram may overtake the start message. It then starts the measurement.
            if start.is_none() && octets.starts_with(&prefix) {
                *start = Some(came);
            }
            let Some(start) = *start else { continue };
            receiver.on_datagram(octets, came.as_nanos() as i64 - start.as_nanos() as i64);
        }
        refused
    }

    /// Passes the statistics of the TCP connections to the receiver.
    fn streams(&self, receiver: &mut Receiver) {
        for (circuit, tally) in self.bulk.iter().zip(self.tallies) {
            let mut tally = lock(tally);
            let ReceiveStats { octets, gaps, .. } = &mut *tally;
            receiver.on_stream(usize::from(*circuit), std::mem::take(octets), &std::mem::take(gaps));
        }
    }

    fn connection(&self, stream: Stream, place: usize) {
        let clock = self.state.clock;
        let bucket = &self.rate.received;
        let stops = |_| self.stop.load(Ordering::Acquire) || self.state.check().is_err();
        let pay = |octets| {
            bucket.pay(octets, clock, stops);
        };
        // The client notices errors at its own end of the connection.
        let _ = bulk::receive(stream, clock, &self.tallies[place], &self.stop, bucket.slice_bytes(), &pay);
    }
}
