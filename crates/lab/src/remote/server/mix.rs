//! The server's part of a mix: it runs within a session of `kiban lab serve` whose client has presented the
//! token.
//!
//! Ports     one port for datagrams and, if there are TCP flows, one for connections, both chosen by the
//!           system. Both accept only packets from the session's address with its nonce. The server sends
//!           nothing from them: all its messages go over the control connection.
//! Bounds    the server's limits: duration of a trial, octets per second (excess datagrams are dropped and
//!           counted, connections are read more slowly), size of a window. The protocol's limits: flows,
//!           circuits, connections.
//! End       when the client announces it, the server waits until nothing has arrived for [`QUIET`], because
//!           traffic may still be in transit. It also ends when the client is gone.

use super::Limits;
use crate::mix::Kind;
use crate::mix::real::bulk::{self, LOOK, ReceiveStats, Tally};
use crate::mix::real::messages::*;
use crate::mix::real::receive::Receiver;
use crate::mix::real::wire::{self, COOKIE_OCTETS, DATAGRAM_OCTETS_MAX, NONCE_OCTETS};
use crate::remote::admission::{hex, is_same};
use crate::remote::protocol::{
    LINE_BYTES_MAX, LINE_TIME, Lines, NONCE_BYTES, read_message_until, write_message,
};
use crate::remote::server::data_ports::{CALLERS, DataPorts};
use crate::remote::server::unproven::{Handshakes, Length, Step};
use kiban_base::Instant;
use kiban_measure::pause::{pace, readable};
use kiban_measure::{Datagrams, Settings};
use kiban_os::Clock;
use kiban_os::lock;
use kiban_os::random;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long a client may take to start, and how much longer than announced a run may take.
const GRACE: Duration = Duration::from_secs(10);
/// How long the server waits, after the client has announced the end, for traffic in transit.
const QUIET: Duration = Duration::from_secs(2);
/// The socket's receive buffer, bytes: 0.1 s at 300 Mbit/s.
const BUFFER_BYTES: u32 = 4 << 20;
/// How far a session may run ahead of its rate in a burst.
const BURST: Duration = Duration::from_millis(250);
/// How long to wait for the sockets when nothing arrives.
const TURN: Duration = Duration::from_millis(5);
/// The most datagrams read before other events are checked.
const BATCH: usize = 256;

/// The part of the server that a session uses.
pub(crate) struct Room<'a> {
    pub(crate) clock: Clock,
    pub(crate) limits: &'a Limits,
    pub(crate) ports: &'a DataPorts,
    /// Set when the server is ending.
    pub(crate) ends: &'a AtomicBool,
    /// The client's address.
    pub(crate) address: IpAddr,
    /// The server's address, as the client sees it.
    pub(crate) local: IpAddr,
}

/// Receives a mix.
///
/// # Errors
/// The client is gone, or the server is ending.
pub(crate) fn serve(
    room: &Room<'_>,
    request: &MixRequest,
    reader: &mut Lines,
    writer: &mut TcpStream,
) -> io::Result<()> {
    if let Err(why) = validate(request, room.limits) {
        return write_message(writer, &ServerMessage::Impossible(why));
    }
    let nonce = random::bytes::<NONCE_BYTES>()?;
    let bulk: Vec<u16> = circuits_of_tcp(request);
    let at = |port| SocketAddr::new(room.local, port);
    let sockets = room.ports.take(|port| Datagrams::bind(at(port), BUFFER_BYTES)).and_then(|datagrams| {
        let window =
            request.flows.iter().filter(|flow| flow.kind == Kind::Bulk).map(|flow| flow.window_kib << 10);
        let settings = Settings { receive_bytes: window.max(), ..Settings::default() };
        let listener = match bulk.is_empty() {
            true => None,
            false => Some(room.ports.take(|port| settings.listen(at(port)))?),
        };
        let streams =
            listener.as_ref().map_or(Ok(0), |listener| listener.local_addr().map(|at| at.port()))?;
        Ok((datagrams.port()?, streams, datagrams, listener))
    });
    let (port, streams, datagrams, listener) = match sockets {
        Ok(sockets) => sockets,
        Err(error) => {
            return write_message(
                writer,
                &ServerMessage::Impossible(format!("a socket of the server failed: {error}")),
            );
        }
    };
    write_message(writer, &ServerMessage::Ready { datagrams: port, streams, nonce: hex(&nonce) })?;
    let tallies: Vec<Tally> = bulk.iter().map(|_| Tally::default()).collect();
    let session = Session {
        room,
        request,
        nonce,
        bulk: &bulk,
        tallies: &tallies,
        stop: AtomicBool::new(false),
        spent: AtomicU64::new(0),
        begin: room.clock.now(),
    };
    std::thread::scope(|scope| {
        let done = session.run(scope, &datagrams, listener.as_ref(), reader, writer);
        session.stop.store(true, Ordering::Release);
        done
    })
}

/// Checks a request against the limits and for consistency.
fn validate(request: &MixRequest, limits: &Limits) -> Result<(), String> {
    let copies =
        |flows: &mut dyn Iterator<Item = &Incoming>| flows.map(|flow| u64::from(flow.copies)).sum::<u64>();
    let circuits = copies(&mut request.flows.iter());
    let streams = copies(&mut request.flows.iter().filter(|flow| flow.kind == Kind::Bulk));
    let window = request.flows.iter().map(|flow| flow.window_kib.saturating_mul(1024)).max().unwrap_or(0);
    for (what, requested, most) in [
        ("milliseconds in a trial", u64::from(request.millis), u64::from(limits.trial_seconds) * 1000),
        ("flows of a mix", request.flows.len() as u64, FLOWS_MAX as u64),
        ("paths of a mix", request.paths.len() as u64, FLOWS_MAX as u64),
        ("circuits of a mix", circuits, CIRCUITS_MAX as u64),
        ("connections of a mix", streams, BULK_MAX as u64),
        ("bytes in a socket buffer", window.into(), limits.buffer_bytes.into()),
    ] {
        if requested > most {
            return Err(format!("too many {what}: {requested}, the server allows {most}"));
        }
    }
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

struct Session<'a> {
    room: &'a Room<'a>,
    request: &'a MixRequest,
    nonce: [u8; NONCE_BYTES],
    bulk: &'a [u16],
    tallies: &'a [Tally],
    stop: AtomicBool,
    /// Octets received so far.
    spent: AtomicU64,
    begin: Instant,
}

impl Session<'_> {
    fn run<'scope>(
        &'scope self,
        scope: &'scope std::thread::Scope<'scope, '_>,
        datagrams: &Datagrams,
        listener: Option<&TcpListener>,
        reader: &mut Lines,
        writer: &mut TcpStream,
    ) -> io::Result<()> {
        let clock = self.room.clock;
        let timed_out = |what| Err(io::Error::new(io::ErrorKind::TimedOut, what));
        let mut receiver =
            Receiver::new(self.request, *self.nonce.first_chunk::<NONCE_OCTETS>().expect("16 octets"));
        let length = Duration::from_millis(self.request.millis.into());
        let (mut start, mut sent, mut last, mut missing) = (None, None, clock.now(), self.bulk.len());
        let (mut refused, mut cookies) = (0, Vec::new());
        let mut deadline = clock.now() + GRACE;
        let mut callers = Handshakes::new(CALLERS, Length::Octets(NONCE_BYTES + 2));
        let mut has_come = vec![false; self.bulk.len()];
        loop {
            let steps = match listener.filter(|_| missing > 0) {
                Some(listener) => callers.turn(
                    listener,
                    || clock.now(),
                    Duration::ZERO,
                    |from| from == self.room.address,
                )?,
                None => Vec::new(),
            };
            for step in steps {
                let Step::Said(stream, _, said) = step else { continue };
                let greets = |circuit: &u16| is_same(&said, &bulk::greeting(&self.nonce, *circuit));
                // A connection without the nonce takes no slot.
                let Some(place) = self.bulk.iter().position(greets).filter(|place| !has_come[*place]) else {
                    continue;
                };
                (has_come[place], missing) = (true, missing - 1);
                std::thread::Builder::new()
                    .name("mix".into())
                    .spawn_scoped(scope, move || self.connection(stream, place))?;
            }
            if sent.is_none() && (!reader.buffer().is_empty() || readable(reader.get_ref(), Duration::ZERO)?)
            {
                match read_message_until::<ClientMessage>(reader, LINE_BYTES_MAX, LINE_TIME)? {
                    ClientMessage::Go => {
                        start.get_or_insert(clock.now());
                        deadline = clock.now() + length + GRACE;
                    }
                    ClientMessage::Ended(datagrams) => {
                        sent = Some(datagrams);
                        last = clock.now();
                        deadline = deadline.min(last + GRACE);
                    }
                }
            }
            let waited = readable(datagrams, TURN)?;
            if waited {
                last = clock.now();
                refused += self.take(datagrams, &mut receiver, &mut start, &mut cookies);
            }
            for cookie in cookies.drain(..) {
                write_message(writer, &ServerMessage::Heard(hex(&cookie)))?;
            }
            let now = clock.now();
            self.streams(&mut receiver);
            if let Some(start) = start {
                receiver.on_time(now.since(start));
            }
            for sample in receiver.samples() {
                write_message(writer, &ServerMessage::Sample(sample))?;
            }
            if self.room.ends.load(Ordering::Acquire) {
                return timed_out("the server is shutting down");
            }
            if let Some(sent) = &sent {
                let streams = self.tallies.iter().all(|tally| lock(tally).ended);
                if (streams && (receiver.has_all(sent) || now >= last + QUIET)) || now >= deadline {
                    break;
                }
            } else if now >= deadline {
                return timed_out("the mix exceeded its announced duration");
            }
        }
        self.stop.store(true, Ordering::Release);
        self.streams(&mut receiver);
        let (samples, total) = receiver.finish();
        for sample in samples {
            write_message(writer, &ServerMessage::Sample(sample))?;
        }
        let total = Total { refused, dropped_here: datagrams.drops(), ..total };
        write_message(writer, &ServerMessage::Total(Box::new(total)))
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
        let mut octets = [0; DATAGRAM_OCTETS_MAX + 1];
        for _ in 0..BATCH {
            let Some(came) = datagrams.take(&mut octets) else { break };
            if came.from.ip().to_canonical() != self.room.address {
                continue;
            }
            if self.spend(came.octets as u64) > BURST {
                refused += 1;
                continue;
            }
            let octets = &octets[..came.octets];
            if let Some(cookie) = wire::read_cookie(octets, self.nonce.first_chunk().expect("16 octets")) {
                // Return cookies only before the start; later, every datagram could cause a line on the
                // control connection.
                cookies.extend(start.is_none().then_some(cookie));
                continue;
            }
            let came = self.room.clock.at(came.nanos);
            // A datagram may overtake the start message. It then starts the measurement.
            if start.is_none() && octets.starts_with(&self.nonce[..NONCE_OCTETS]) {
                *start = Some(came);
            }
            let Some(start) = *start else { continue };
            receiver.on_datagram(octets, came.as_nanos() as i64 - start.as_nanos() as i64);
        }
        refused
    }

    /// Counts octets; returns by how much they are ahead of the server's rate.
    fn spend(&self, octets: u64) -> Duration {
        let spent = self.spent.fetch_add(octets, Ordering::AcqRel) + octets;
        let due = Duration::from_secs_f64(spent as f64 / self.room.limits.bytes_per_second.max(1) as f64);
        due.saturating_sub(self.room.clock.now().since(self.begin))
    }

    /// Passes what connections have received to the receiver.
    fn streams(&self, receiver: &mut Receiver) {
        for (circuit, tally) in self.bulk.iter().zip(self.tallies) {
            let mut tally = lock(tally);
            let ReceiveStats { octets, gaps, .. } = &mut *tally;
            receiver.on_stream(usize::from(*circuit), std::mem::take(octets), &std::mem::take(gaps));
        }
    }

    fn connection(&self, stream: TcpStream, place: usize) {
        // If the option cannot be set, the next read only ends early.
        let _ = stream.set_nonblocking(false);
        let budget = |octets| {
            let ahead = self.spend(octets);
            if ahead > BURST {
                pace((ahead - BURST).min(LOOK));
            }
        };
        // The client notices errors at its own end of the connection.
        let _ = bulk::receive(stream, self.room.clock, &self.tallies[place], &self.stop, &budget);
    }
}
