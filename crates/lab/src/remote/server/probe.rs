//! The server's part of probes under load: it replies to datagrams, and reads and writes as much as the
//! connections of the load carry.
//!
//! Ports     one for datagrams and, if there is a load, one for connections. Both accept only packets from
//!           the session's address with its nonce. A reply is never longer than its probe.
//! Limits    duration, number of probes and connections, and bytes per second in each direction, for probes
//!           and load together. The load leaves some of the burst to probes. A probe beyond the rate has no
//!           reply, and is counted.
//! End       when the client announces it, when the announced time is over, or when the client is gone. The
//!           connections are then reset.

use super::budget::{Bucket, Payment};
use super::data_ports::DataPort;
use super::limits::{GRACE, LOOK, Limits, check_limits};
use super::session::{Session, State, late, overlapping};
use crate::remote::probes::{
    INTERVAL, LOAD_BYTES, LOAD_CONNECTIONS_MAX, LOAD_LOOK, LoadSent, PROBE_OCTETS, PROBE_OCTETS_MAX,
    PROBES_MAX, ProbeOutcome, ProbeRequest, RAMP, Reply, SendMeter, Volume, date_of, greeting, load_settings,
    read_probe, write_reply,
};
use crate::remote::protocol::{self, Nonce, Request};
use crate::remote::tcp::Stream;
use kiban_base::Instant;
use kiban_measure::Datagrams;
use kiban_measure::pause::readable;
use kiban_os::lock;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The receive buffer of the socket for probes, bytes.
const BUFFER_BYTES: u32 = 4 << 20;
/// The part of the burst that the load leaves to probes.
const PROBE_RESERVE: Duration = Duration::from_millis(125);
/// How long to wait for a connection of the load before other events are checked.
const TURN: Duration = Duration::from_millis(5);

/// Replies to probes and carries load; returns whether it took place.
///
/// # Errors
/// The client is gone, or the server is shutting down.
pub(super) fn serve(session: &mut Session<'_>, nonce: Nonce, request: &ProbeRequest) -> io::Result<bool> {
    if let Err(why) = validate(request, &session.state.limits) {
        return session.send(&protocol::Reply::Impossible(why)).map(|()| false);
    }
    let connections = request.up + request.down;
    let sockets = session.open(open_datagrams).and_then(|datagrams| {
        let listen = |at| session.state.tcp.listen(&load_settings(), at);
        let listener = (connections > 0).then(|| session.open(listen)).transpose()?;
        Ok((datagrams, listener))
    });
    let (datagrams, listener) = match sockets {
        Ok(sockets) => sockets,
        Err(reply) => return session.send(&reply).map(|()| false),
    };
    let streams = listener.as_ref().map_or(Ok(0), |listener| listener.local_addr().map(|at| at.port()))?;
    session.send(&protocol::Reply::Ready { streams, datagrams: datagrams.port()? })?;
    let greetings = (0..connections).map(|number| greeting(&nonce, number)).collect();
    let port = listener.map(|listener| DataPort::new(listener, session.address, greetings));
    let clock = session.state.clock;
    let length = Duration::from_millis(request.millis.into()) + GRACE;
    let load = Load {
        state: session.state,
        received: &session.rate.received,
        sent: &session.rate.sent,
        address: session.address,
        nonce,
        request,
        deadline: clock.now() + length,
        intervals_max: (length.as_millis() / INTERVAL.as_millis()) as usize + 1,
        up: Mutex::new(Volume::new(clock.now())),
        down: Mutex::new(LoadSent::default()),
        congestion: Mutex::new(None),
        rate_limited: AtomicBool::new(false),
        stop: AtomicBool::new(false),
    };
    let outcome = std::thread::scope(|scope| {
        let replies =
            std::thread::Builder::new().name("probes".into()).spawn_scoped(scope, || load.reply(&datagrams));
        let done = replies.and_then(|replies| {
            let waited = load.wait(scope, session, port);
            load.stop.store(true, Ordering::Release);
            let outcome = replies.join().expect("replying does not panic");
            waited.map(|()| outcome)
        });
        load.stop.store(true, Ordering::Release);
        done
    })?;
    let down = load.down.into_inner().unwrap_or_default();
    let outcome = ProbeOutcome {
        dropped_here: datagrams.drops(),
        date: date_of(clock),
        known_mtu: known_mtu(session.address).ok(),
        up: load.up.into_inner().unwrap_or_default(),
        down_segments: Some(down.segments),
        down_limits: down.limits,
        down_congestion: load.congestion.into_inner().unwrap_or_default(),
        rate_limited: load.rate_limited.into_inner(),
        ..outcome
    };
    session.report(&protocol::Reply::Probed(Box::new(outcome)))?;
    Ok(true)
}

/// Returns the path MTU to the client that the kernel knows.
fn known_mtu(address: IpAddr) -> io::Result<u32> {
    let local = if address.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    let datagrams = Datagrams::bind(SocketAddr::new(local, 0), 0)?;
    // Nothing is sent, so any port will do.
    datagrams.connect(SocketAddr::new(address, 9))?;
    datagrams.known_mtu()
}

fn open_datagrams(at: SocketAddr) -> io::Result<Datagrams> {
    let datagrams = Datagrams::bind(at, BUFFER_BYTES)?;
    datagrams.receive_tos()?;
    datagrams.probe_mtu()?;
    Ok(datagrams)
}

/// Checks a request against the limits.
fn validate(request: &ProbeRequest, limits: &Limits) -> Result<(), String> {
    check_limits(&[
        ("milliseconds in a trial", request.millis.into(), u64::from(limits.trial_seconds) * 1000),
        ("connections in each direction", request.up.max(request.down).into(), LOAD_CONNECTIONS_MAX.into()),
    ])
}

/// The probes that have arrived.
struct Arrivals {
    /// One bit per probe.
    seen: Vec<u64>,
    highest: Option<u32>,
    outcome: ProbeOutcome,
}

impl Arrivals {
    fn new() -> Arrivals {
        Arrivals { seen: vec![0; PROBES_MAX as usize / 64], highest: None, outcome: ProbeOutcome::default() }
    }

    /// Counts a probe; returns how many have arrived.
    fn on_probe(&mut self, number: u32) -> u64 {
        let (word, bit) = (&mut self.seen[number as usize / 64], 1 << (number % 64));
        let outcome = &mut self.outcome;
        if *word & bit == 0 {
            *word |= bit;
            outcome.distinct += 1;
            outcome.reordered += u64::from(self.highest.is_some_and(|highest| number < highest));
        } else {
            outcome.duplicates += 1;
        }
        self.highest = self.highest.max(Some(number));
        outcome.distinct + outcome.duplicates
    }
}

struct Load<'a> {
    state: &'a State,
    received: &'a Bucket,
    sent: &'a Bucket,
    /// The client's address.
    address: IpAddr,
    nonce: Nonce,
    request: &'a ProbeRequest,
    deadline: Instant,
    intervals_max: usize,
    /// What the client's connections carried.
    up: Mutex<Volume>,
    /// What the server's connections sent.
    down: Mutex<LoadSent>,
    /// The congestion control of the server's connections.
    congestion: Mutex<Option<String>>,
    rate_limited: AtomicBool,
    stop: AtomicBool,
}

impl Load<'_> {
    fn stops(&self) -> bool {
        self.stop.load(Ordering::Acquire)
            || self.state.check().is_err()
            || self.state.clock.now() >= self.deadline
    }

    /// Starts the connections of the load as they arrive, until the client announces the end.
    fn wait<'scope>(
        &'scope self,
        scope: &'scope std::thread::Scope<'scope, '_>,
        session: &mut Session<'_>,
        mut port: Option<DataPort>,
    ) -> io::Result<()> {
        let clock = self.state.clock;
        let mut missing = self.request.up + self.request.down;
        loop {
            let arrived = port.as_mut().map(|port| port.turn(|| clock.now(), TURN)).transpose()?;
            for (number, stream) in arrived.unwrap_or_default() {
                missing -= 1;
                let is_up = number < usize::from(self.request.up);
                std::thread::Builder::new()
                    .name("load".into())
                    .spawn_scoped(scope, move || self.carry(stream, is_up))?;
            }
            if missing == 0 {
                // Free the port.
                port = None;
            }
            match session.poll(if port.is_some() { Duration::ZERO } else { LOOK })? {
                None => {}
                Some(Request::Ended(_)) => return Ok(()),
                Some(_) => return Err(overlapping()),
            }
            if clock.now() >= self.deadline {
                return Err(late("the measurement took longer than announced"));
            }
        }
    }

    /// Carries load in one direction. The client notices errors at its own end.
    fn carry(&self, mut stream: Stream, is_up: bool) {
        let prepared = stream
            .set_read_timeout(Some(LOAD_LOOK))
            .and_then(|()| stream.set_write_timeout(Some(LOAD_LOOK)))
            .and_then(|()| stream.reset_on_close());
        let bucket = if is_up { self.received } else { self.sent };
        let connections = usize::from(self.request.up.max(self.request.down).max(1));
        let mut room = vec![0x5a; (bucket.slice_bytes() / connections).clamp(1 << 10, LOAD_BYTES)];
        if prepared.is_err() {
            return;
        }
        let mut meter = SendMeter::new(self.state.clock.now() + RAMP);
        while !self.stops() {
            let moved = if is_up { stream.read(&mut room) } else { stream.write(&room) };
            meter.look(&stream, self.state.clock.now());
            match moved {
                Ok(0) => break,
                Ok(bytes) => {
                    let clock = self.state.clock;
                    if is_up {
                        lock(&self.up).add(bytes as u64, clock.now(), self.intervals_max);
                    }
                    let payment = bucket.pay_leaving(PROBE_RESERVE, bytes as u64, clock, |_| self.stops());
                    if payment != Payment::Immediate {
                        self.rate_limited.store(true, Ordering::Release);
                    }
                }
                Err(error) if super::trial::is_timeout(&error) => {}
                Err(_) => break,
            }
        }
        if !is_up {
            *lock(&self.congestion) = stream.given().ok().map(|given| given.congestion);
            meter.finish(&stream, &mut lock(&self.down));
        }
    }

    /// Replies to probes until the end.
    fn reply(&self, datagrams: &Datagrams) -> ProbeOutcome {
        let mut arrivals = Arrivals::new();
        let mut octets = vec![0; PROBE_OCTETS_MAX + 1];
        let mut tos = None;
        while !self.stops() {
            // An error is that of an earlier reply, for example ECONNREFUSED.
            if !readable(datagrams, LOAD_LOOK).unwrap_or(false) {
                continue;
            }
            let clock = self.state.clock;
            while let Some(came) = datagrams.take(&mut octets) {
                let is_client = came.from.ip().to_canonical() == self.address;
                let probe = is_client.then(|| read_probe(&octets[..came.octets], &self.nonce)).flatten();
                let Some(probe) = probe else { continue };
                let count = arrivals.on_probe(probe.number);
                let length = if probe.is_short_reply { PROBE_OCTETS } else { came.octets };
                let now = clock.now();
                if !self.received.take(came.octets as u64, now) || !self.sent.take(length as u64, now) {
                    arrivals.outcome.refused += 1;
                    continue;
                }
                let wanted = self.request.tos.unwrap_or(came.tos);
                if tos != Some(wanted) {
                    tos = datagrams.set_tos(wanted).is_ok().then_some(wanted);
                }
                let reply = Reply {
                    number: probe.number,
                    tos: came.tos,
                    arrivals: count,
                    arrival: clock.at(came.nanos).as_nanos(),
                    departure: clock.now().as_nanos(),
                };
                write_reply(&mut octets, &reply);
                arrivals.outcome.unsent +=
                    u64::from(datagrams.send_to(&octets[..length], came.from).is_err());
            }
        }
        arrivals.outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_tell_reordering_from_duplicates() {
        let mut arrivals = Arrivals::new();
        for number in [0, 1, 4, 3, 4, 4, 5, PROBES_MAX - 1, 2] {
            arrivals.on_probe(number);
        }
        let ProbeOutcome { distinct, duplicates, reordered, .. } = arrivals.outcome;
        // The probes 3 and 2 came late.
        assert_eq!((distinct, duplicates, reordered), (7, 2, 2));
    }
}
