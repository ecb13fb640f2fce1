//! One phase of a measurement: probes, alone or beside a load.
//!
//! ```text
//! prove ── settle ── connect the load ── probes at their interval ── reset the load ── last replies
//! ```
//!
//! Prove     probes go to the server's port only after it has replied to one.
//! Settle    after an earlier load, wait until round trips are as short as on the idle path.
//! Window    percentiles are taken from probes that were sent after the first [`RAMP`] of the load.
//! Hosts     datagrams that a host did not take or dropped are not losses of the network.

use crate::engine::Failure;
use crate::net::trial::task::broken;
use crate::remote::client::Client;
use crate::remote::probes::{
    LOAD_BYTES, LOAD_LOOK, LoadSent, PROBE_OCTETS, PROBES_MAX, Probe, ProbeOutcome, ProbeRequest, RAMP,
    SendMeter, Volume, greeting, load_settings, read_reply, write_probe,
};
use crate::remote::protocol::{COOKIE_TRIES_MAX, Nonce, Request};
use crate::remote::tcp::Stream;
use kiban_base::Instant;
use kiban_measure::Datagrams;
use kiban_measure::pause::{pace, readable};
use kiban_os::{Clock, lock};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// How long to wait for the reply to a first probe before sending another.
const PROOF_TIME: Duration = Duration::from_millis(200);
/// The interval of probes while the path settles, how many in succession must be short, and how long that may
/// take.
const SETTLE: (Duration, usize, Duration) = (Duration::from_millis(20), 5, Duration::from_secs(10));
/// The interval of probes that belong together.
const ASK_INTERVAL: Duration = Duration::from_millis(5);
/// How long after the end the client waits for replies: until none has arrived for the first time, and no
/// longer than the second.
const TAIL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// The receive buffer of the socket, bytes.
const BUFFER_BYTES: u32 = 4 << 20;

/// A phase to be run.
#[derive(Clone, Debug)]
pub(in crate::net) struct Phase {
    /// Connections to the server, and from it.
    pub(in crate::net) connections: [u16; 2],
    pub(in crate::net) length: Duration,
    /// The interval of probes, and their length.
    pub(in crate::net) interval: Duration,
    pub(in crate::net) octets: usize,
    /// The round-trip time, ns, below which the path counts as settled.
    pub(in crate::net) settled: Option<i64>,
}

/// A probe and its reply. Times are nanoseconds: those of the probe's departure and the reply's arrival on
/// this host's clock, those between on the server's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::net) struct Exchange {
    pub(in crate::net) number: u32,
    pub(in crate::net) departure: i64,
    pub(in crate::net) server_arrival: i64,
    pub(in crate::net) server_departure: i64,
    pub(in crate::net) arrival: i64,
    /// The number of arrivals at the server, which numbers its replies.
    pub(in crate::net) reply: u64,
    /// The type of service with which the probe arrived at the server, and the reply here.
    pub(in crate::net) tos: [u8; 2],
}

impl Exchange {
    /// Returns the time on the network, ns: without the time that the server took.
    pub(in crate::net) fn round_trip(&self) -> i64 {
        (self.arrival - self.departure) - (self.server_departure - self.server_arrival)
    }
}

/// Lets phases of several hosts begin at the same time: each waits until the others are ready or have failed.
pub(in crate::net) struct StartLine {
    /// How many are not ready.
    missing: Mutex<usize>,
    all_ready: Condvar,
}

impl StartLine {
    /// Returns a line for this number of phases.
    pub(in crate::net) fn new(phases: usize) -> StartLine {
        StartLine { missing: Mutex::new(phases), all_ready: Condvar::new() }
    }

    /// Returns the place of one phase.
    pub(in crate::net) fn place(&self) -> StartPlace<'_> {
        StartPlace(self)
    }
}

/// The place of a phase at a [`StartLine`]. If it is dropped, because the phase has failed, the others no
/// longer wait for it.
pub(in crate::net) struct StartPlace<'a>(&'a StartLine);

impl StartPlace<'_> {
    /// Waits until all others are ready.
    fn start(self) {
        let line = self.0;
        drop(self);
        let missing = lock(&line.missing);
        drop(line.all_ready.wait_while(missing, |missing| *missing > 0));
    }
}

impl Drop for StartPlace<'_> {
    fn drop(&mut self) {
        *lock(&self.0.missing) -= 1;
        self.0.all_ready.notify_all();
    }
}

/// The observations of a phase.
#[derive(Clone, Debug, Default)]
pub(in crate::net) struct Observed {
    /// All exchanges, in the order in which the replies arrived; those within the window have departed in it.
    pub(in crate::net) exchanges: Vec<Exchange>,
    pub(in crate::net) window: (i64, i64),
    /// Probes sent.
    pub(in crate::net) sent: u64,
    /// Datagrams dropped because this host's socket buffer was full.
    pub(in crate::net) dropped_here: u64,
    /// What the server's connections carried.
    pub(in crate::net) down: Volume,
    /// What this host's connections sent, and their congestion control.
    pub(in crate::net) up_sent: LoadSent,
    pub(in crate::net) up_congestion: Option<String>,
    pub(in crate::net) server: ProbeOutcome,
}

impl Observed {
    /// Returns the exchanges whose probes were sent in the window.
    pub(in crate::net) fn in_window(&self) -> impl Iterator<Item = &Exchange> + Clone {
        let (begin, end) = self.window;
        self.exchanges.iter().filter(move |exchange| (begin..end).contains(&exchange.departure))
    }
}

/// Opens a socket for probes to `peer`.
pub(in crate::net) fn open(peer: IpAddr) -> io::Result<Datagrams> {
    let local: IpAddr =
        if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let datagrams = Datagrams::bind(SocketAddr::new(local, 0), BUFFER_BYTES)?;
    datagrams.receive_tos()?;
    datagrams.probe_mtu()?;
    Ok(datagrams)
}

/// Returns the failure of a socket of this host.
pub(in crate::net) fn here(error: &io::Error) -> Failure {
    Failure::Lost(format!("a socket of this host failed: {error}"))
}

/// Runs a phase, with those of other hosts if it has a place beside them.
///
/// # Errors
/// Returns [`Failure`] with the cause.
pub(in crate::net) fn run(
    client: &mut Client,
    clock: Clock,
    phase: &Phase,
    place: Option<StartPlace<'_>>,
) -> Result<Observed, Failure> {
    let [up, down] = phase.connections;
    let settle = if phase.settled.is_some() { SETTLE.2 } else { Duration::ZERO };
    let length = phase.length + settle + TAIL.1 + PROOF_TIME * COOKIE_TRIES_MAX as u32;
    let millis = u32::try_from(length.as_millis()).unwrap_or(u32::MAX);
    // Announce the time for waiting, too, as far as the server's limit allows.
    let most = client.welcome().trial_seconds_max.saturating_mul(1000);
    let millis = millis.min(most.max(phase.length.as_millis() as u32));
    let request = ProbeRequest { millis, up, down, tos: None };
    let ready = client.request(|nonce| Request::Probe { nonce, request })?;
    let to = SocketAddr::new(client.peer().ip(), ready.datagrams);
    let socket = open(to.ip()).map_err(|error| here(&error))?;
    let mut prober = Prober::new(&socket, to, ready.nonce, clock, phase.octets);
    prober.prove()?;
    if let Some(settled) = phase.settled {
        prober.settle(settled);
    }
    let mut streams = Vec::new();
    for number in 0..up + down {
        let stream = client.connect_data(&load_settings(), ready.streams, &greeting(&ready.nonce, number))?;
        let prepared = stream
            .set_read_timeout(Some(LOAD_LOOK))
            .and_then(|()| stream.set_write_timeout(Some(LOAD_LOOK)))
            .and_then(|()| stream.reset_on_close());
        prepared.map_err(|error| here(&error))?;
        streams.push(stream);
    }
    let up_congestion = streams.first().filter(|_| up > 0).and_then(|stream| stream.given().ok());
    if let Some(place) = place {
        place.start();
    }
    let begin = clock.now();
    let end = begin + phase.length;
    let ramp = if up + down > 0 { RAMP.min(phase.length / 2) } else { Duration::ZERO };
    let load = Load {
        clock,
        ramped: begin + ramp,
        up: Mutex::new(LoadSent::default()),
        intervals_max: phase.length.as_millis() as usize / 10 + 100,
        down: Mutex::new(Volume::new(begin)),
        stop: AtomicBool::new(false),
    };
    let carried: io::Result<()> = std::thread::scope(|scope| {
        let (load, numbered) = (&load, (0..).zip(streams));
        let threads: Vec<_> =
            numbered.map(|(number, stream)| scope.spawn(move || load.carry(stream, number < up))).collect();
        prober.send(begin, end, phase.interval, &|| load.stop.load(Ordering::Acquire));
        load.stop.store(true, Ordering::Release);
        let mut ends = threads.into_iter().map(|thread| thread.join().expect("carrying load does not panic"));
        ends.try_for_each(|end| end)
    });
    carried.map_err(|error| broken(&error))?;
    prober.wait();
    let server = client.end_probes()?;
    Ok(Observed {
        exchanges: prober.exchanges,
        window: ((begin + ramp).as_nanos() as i64, end.as_nanos() as i64),
        sent: prober.sent,
        dropped_here: socket.drops().unwrap_or(0),
        down: load.down.into_inner().unwrap_or_default(),
        up_sent: load.up.into_inner().unwrap_or_default(),
        up_congestion: up_congestion.map(|given| given.congestion),
        server,
    })
}

struct Load {
    clock: Clock,
    /// When the connections have reached their rate.
    ramped: Instant,
    up: Mutex<LoadSent>,
    intervals_max: usize,
    down: Mutex<Volume>,
    stop: AtomicBool,
}

impl Load {
    /// Carries load in one direction until the end.
    fn carry(&self, mut stream: Stream, is_up: bool) -> io::Result<()> {
        let mut room = vec![0x5a; LOAD_BYTES];
        let mut meter = SendMeter::new(self.ramped);
        while !self.stop.load(Ordering::Acquire) {
            let moved = if is_up { stream.write(&room) } else { stream.read(&mut room) };
            meter.look(&stream, self.clock.now());
            match moved {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) if !is_up => {
                    lock(&self.down).add(bytes as u64, self.clock.now(), self.intervals_max);
                }
                Ok(_) => {}
                Err(error) if is_pause(&error) => {}
                Err(error) => {
                    // End the phase early.
                    self.stop.store(true, Ordering::Release);
                    return Err(error);
                }
            }
        }
        if is_up {
            meter.finish(&stream, &mut lock(&self.up));
        }
        Ok(())
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Sends probes and receives replies.
pub(in crate::net) struct Prober<'a> {
    socket: &'a Datagrams,
    to: SocketAddr,
    nonce: Nonce,
    clock: Clock,
    octets: Vec<u8>,
    room: Vec<u8>,
    /// The departure of each probe, by number.
    departures: Vec<i64>,
    pub(in crate::net) sent: u64,
    pub(in crate::net) exchanges: Vec<Exchange>,
}

impl<'a> Prober<'a> {
    pub(in crate::net) fn new(
        socket: &'a Datagrams,
        to: SocketAddr,
        nonce: Nonce,
        clock: Clock,
        octets: usize,
    ) -> Prober<'a> {
        let octets = vec![0x5a; octets.max(PROBE_OCTETS)];
        let room = vec![0; octets.len() + 1];
        Prober {
            socket,
            to,
            nonce,
            clock,
            octets,
            room,
            departures: Vec::new(),
            sent: 0,
            exchanges: Vec::new(),
        }
    }

    /// Returns the port of the server.
    pub(in crate::net) fn to(&self) -> SocketAddr {
        self.to
    }

    /// Sends one probe of this length.
    fn probe(&mut self, octets: usize, is_short_reply: bool) {
        let number = self.departures.len() as u32;
        if number >= PROBES_MAX {
            return;
        }
        write_probe(&mut self.octets, &self.nonce, Probe { number, is_short_reply });
        self.departures.push(self.clock.now().as_nanos() as i64);
        // A probe that this host does not take is not lost in the network.
        self.sent += u64::from(self.socket.send_to(&self.octets[..octets], self.to).is_ok());
    }

    /// Sends some probes of this length; returns those to which replies arrived within `timeout`.
    pub(in crate::net) fn ask(
        &mut self,
        count: usize,
        octets: usize,
        is_short_reply: bool,
        timeout: Duration,
    ) -> Vec<Exchange> {
        let first = self.departures.len() as u32;
        for _ in 0..count {
            self.probe(octets, is_short_reply);
            self.receive(self.clock.now() + ASK_INTERVAL, &|_| false);
        }
        let replies = |exchanges: &[Exchange]| exchanges.iter().filter(|one| one.number >= first).count();
        self.receive(self.clock.now() + timeout, &|exchanges| replies(exchanges) >= count);
        self.exchanges.iter().filter(|one| one.number >= first).copied().collect()
    }

    /// Receives replies until `until`; returns early once `is_enough`.
    fn receive(&mut self, until: Instant, is_enough: &dyn Fn(&[Exchange]) -> bool) {
        loop {
            while let Some(came) = self.socket.take(&mut self.room) {
                if came.from.ip().to_canonical() != self.to.ip().to_canonical()
                    || came.from.port() != self.to.port()
                {
                    continue;
                }
                let Some(reply) = read_reply(&self.room[..came.octets], &self.nonce) else { continue };
                let Some(departure) = self.departures.get(reply.number as usize) else { continue };
                self.exchanges.push(Exchange {
                    number: reply.number,
                    departure: *departure,
                    server_arrival: reply.arrival as i64,
                    server_departure: reply.departure as i64,
                    arrival: self.clock.at(came.nanos).as_nanos() as i64,
                    reply: reply.arrivals,
                    tos: [reply.tos, came.tos],
                });
            }
            let wait = until.since(self.clock.now());
            if wait.is_zero() || is_enough(&self.exchanges) {
                return;
            }
            // An error is that of an earlier probe, for example ECONNREFUSED.
            if readable(self.socket, wait).is_err() {
                pace(wait.min(Duration::from_millis(1)));
            }
        }
    }

    /// Sends a probe at a time until the port has replied, which proves that it is the server's.
    pub(in crate::net) fn prove(&mut self) -> Result<(), Failure> {
        for _ in 0..COOKIE_TRIES_MAX {
            self.probe(PROBE_OCTETS, false);
            self.receive(self.clock.now() + PROOF_TIME, &|exchanges| !exchanges.is_empty());
            if !self.exchanges.is_empty() {
                return Ok(());
            }
        }
        Err(Failure::Lost(format!(
            "the server does not reply to datagrams to {}: does a firewall drop UDP? (`kiban lab serve \
             --data-ports` chooses the ports)",
            self.to
        )))
    }

    /// Probes until round trips are short again.
    fn settle(&mut self, settled: i64) {
        let (interval, count, most) = SETTLE;
        let until = self.clock.now() + most;
        let is_settled = |exchanges: &[Exchange]| {
            exchanges.len() >= count
                && exchanges[exchanges.len() - count..].iter().all(|one| one.round_trip() <= settled)
        };
        while self.clock.now() < until && !is_settled(&self.exchanges) {
            self.probe(PROBE_OCTETS, false);
            self.receive(self.clock.now() + interval, &|_| false);
        }
    }

    /// Sends probes at an interval, and receives replies meanwhile.
    fn send(&mut self, begin: Instant, end: Instant, interval: Duration, is_over: &dyn Fn() -> bool) {
        let mut due = begin;
        let length = self.octets.len();
        while due < end && !is_over() {
            self.probe(length, false);
            due += interval;
            // Probes that are late are left out, so that they do not leave in a burst.
            while due < self.clock.now() {
                due += interval;
            }
            self.receive(due.min(end), &|_| false);
        }
    }

    /// Waits for the last replies.
    fn wait(&mut self) {
        let sent = self.sent as usize;
        let (quiet, most) = TAIL;
        let until = self.clock.now() + most;
        loop {
            let before = self.exchanges.len();
            let next = (self.clock.now() + quiet).min(until);
            self.receive(next, &|exchanges| exchanges.len() >= sent || exchanges.len() > before);
            if self.exchanges.len() >= sent || self.exchanges.len() == before || self.clock.now() >= until {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_start_when_all_others_are_ready_or_have_failed() {
        let line = StartLine::new(3);
        let [first, second, failed] = [(); 3].map(|()| line.place());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| first.start());
            drop(failed);
            assert!(!waiting.is_finished(), "the second is not ready");
            second.start();
        });
    }
}
