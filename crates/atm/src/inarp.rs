//! InATMARP on permanent circuits: discovers the peer's IPv4 address (RFC 2225 §8.2, RFC 2390).
//!
//! Purpose          learn the IPv4 address of the peer on a permanent circuit, and drop it when the peer
//!                  stops answering.
//! States           *Requesting*: sends a request at once and then every `request_interval`, up to
//!                  `requests_max` in all. *Known*: the address is known for `age`; then requests are sent
//!                  again, and the address is kept meanwhile. *Backoff*: there was no answer; requests
//!                  restart after `retry_pause`, or on [`InArp::restart_requests`]. *Fixed*: the address was
//!                  configured, and no requests are sent.
//! Receive path     a packet without its LLC/SNAP header yields an [`InArpVerdict`]. A request also reveals
//!                  the sender's address.
//! Transmit path    [`InArp::settle`] sends at most one reply per circuit and burst, however many requests
//!                  arrived.
//! Limits           there is one state per open circuit; packets are not stored.
//! Not implemented  ATMARP proper (servers, switched circuits): such packets are counted and ignored.

use crate::Circuit;
use crate::counters::InArpCounters;
use crate::wire::atmarp::{Operation, PACKET_BYTES_MAX, Packet, Party};
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::time::Duration;
use kiban_base::{Instant, Timer, TimerWheel};

/// Settings of InATMARP.
#[derive(Clone, Copy, Debug)]
pub struct InArpConfig {
    /// The local address.
    pub own: Ipv4Addr,
    /// Interval between two requests of a series; at least a microsecond.
    pub request_interval: Duration,
    /// Number of requests in a series.
    pub requests_max: u32,
    /// How long an answer stays valid (RFC 2225 §8.5.1: 15 minutes at a client); at least a microsecond.
    pub age: Duration,
    /// Pause between an unanswered series and the next; at least a microsecond.
    pub retry_pause: Duration,
}

impl InArpConfig {
    /// Returns the default settings: 5 requests at intervals of 1 s, an age of 15 minutes, and a retry pause
    /// of one minute.
    pub const fn new(own: Ipv4Addr) -> InArpConfig {
        InArpConfig {
            own,
            request_interval: Duration::from_secs(1),
            requests_max: 5,
            age: Duration::from_secs(15 * 60),
            retry_pause: Duration::from_secs(60),
        }
    }
}

/// The result of a received packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InArpVerdict {
    /// No change.
    Nothing,
    /// The peer's address was learned or has changed.
    Learned(Ipv4Addr),
}

/// An action that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InArpDue<'a> {
    /// Send this packet with an LLC/SNAP header in front.
    Packet {
        /// The circuit on which to send the packet.
        circuit: Circuit,
        /// The packet.
        bytes: &'a [u8],
    },
    /// The peer has stopped answering, and its address was dropped.
    Lost {
        /// The circuit.
        circuit: Circuit,
        /// The address that the peer had.
        ip: Ipv4Addr,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Requesting { requests_left: u32 },
    Known,
    Backoff,
    Fixed,
}

struct End {
    state: State,
    peer: Option<Ipv4Addr>,
    deadline: Instant,
    alarm: Timer,
    /// Source address of a request that has not been answered yet.
    pending_reply: Option<Ipv4Addr>,
}

/// The InATMARP state of one port.
pub struct InArp {
    config: InArpConfig,
    ends: Vec<Option<End>>,
    alarms: TimerWheel,
    /// Circuits with a pending reply, each listed once.
    pending_replies: Vec<u32>,
    counters: InArpCounters,
}

impl InArp {
    /// Creates the state of a port without open circuits.
    ///
    /// # Panics
    /// If an interval is shorter than a microsecond.
    pub fn new(config: InArpConfig) -> InArp {
        let shortest = config.request_interval.min(config.retry_pause).min(config.age);
        assert!(shortest >= Duration::from_micros(1), "an interval lasts at least a microsecond");
        InArp {
            config,
            ends: Vec::new(),
            alarms: TimerWheel::new(),
            pending_replies: Vec::new(),
            counters: InArpCounters::default(),
        }
    }

    /// Opens a circuit; the first request is due now.
    pub fn open(&mut self, circuit: Circuit, now: Instant) {
        let state = State::Requesting { requests_left: self.config.requests_max };
        self.set(
            circuit,
            End { state, peer: None, deadline: now, alarm: Timer::default(), pending_reply: None },
        );
    }

    /// Opens a circuit with a configured peer address: no requests are sent, but requests are answered.
    pub fn open_fixed(&mut self, circuit: Circuit, peer: Ipv4Addr) {
        let (deadline, alarm) = (Instant::NEVER, Timer::default());
        self.set(
            circuit,
            End { state: State::Fixed, peer: Some(peer), deadline, alarm, pending_reply: None },
        );
    }

    fn set(&mut self, circuit: Circuit, mut end: End) {
        self.close(circuit);
        let index = circuit.0 as usize;
        if self.ends.len() <= index {
            self.ends.resize_with(index + 1, || None);
        }
        if end.deadline < Instant::NEVER {
            self.alarms.set(&mut end.alarm, circuit.0, end.deadline);
        }
        self.ends[index] = Some(end);
    }

    /// Closes a circuit.
    pub fn close(&mut self, circuit: Circuit) {
        if let Some(end) = self.ends.get_mut(circuit.0 as usize) {
            *end = None;
            self.pending_replies.retain(|owing| *owing != circuit.0);
        }
    }

    /// Returns the peer's address, if it is known.
    pub fn peer(&self, circuit: Circuit) -> Option<Ipv4Addr> {
        self.ends.get(circuit.0 as usize)?.as_ref()?.peer
    }

    /// Returns the circuit whose peer has this address.
    pub fn circuit_of(&self, peer: Ipv4Addr) -> Option<Circuit> {
        let has = |end: &Option<End>| end.as_ref().is_some_and(|end| end.peer == Some(peer));
        self.ends.iter().position(has).map(|index| Circuit(index as u32))
    }

    /// Returns whether requests are being sent, or soon will be, to a peer whose address is unknown.
    pub fn is_requesting(&self) -> bool {
        let asks = |end: &End| end.peer.is_none() && matches!(end.state, State::Requesting { .. });
        self.ends.iter().flatten().any(asks)
    }

    /// Starts a new series of requests on circuits that have been in backoff for at least the duration of a
    /// series. Call it when a packet found no circuit, since the peer may have come up.
    pub fn restart_requests(&mut self, now: Instant) {
        let InArpConfig { request_interval, requests_max, retry_pause: rest, .. } = self.config;
        let ends =
            self.ends.iter_mut().enumerate().filter_map(|(index, end)| Some((index as u32, end.as_mut()?)));
        for (index, end) in ends.filter(|(_, end)| end.state == State::Backoff) {
            if end.deadline + request_interval * requests_max <= now + rest {
                end.state = State::Requesting { requests_left: requests_max };
                end.deadline = now;
                self.alarms.set(&mut end.alarm, index, now);
            }
        }
    }

    /// Processes a received packet without its LLC/SNAP header.
    pub fn arrive(&mut self, circuit: Circuit, bytes: &[u8], now: Instant) -> InArpVerdict {
        self.counters.packets_in += 1;
        let Ok((packet, _)) = Packet::read(bytes) else {
            self.counters.packets_malformed += 1;
            return InArpVerdict::Nothing;
        };
        let inverse = matches!(packet.operation, Operation::InverseRequest | Operation::InverseReply);
        let end = self.ends.get_mut(circuit.0 as usize).and_then(Option::as_mut);
        // A looped circuit returns our own address, so there is no peer.
        let source = packet.source.ip.filter(|ip| *ip != self.config.own);
        let (Some(end), true, Some(source)) = (end, inverse, source) else {
            self.counters.packets_ignored += 1;
            return InArpVerdict::Nothing;
        };
        if packet.operation == Operation::InverseRequest && end.pending_reply.replace(source).is_none() {
            self.pending_replies.push(circuit.0);
        }
        if end.state == State::Fixed {
            return InArpVerdict::Nothing;
        }
        end.state = State::Known;
        end.deadline = now + self.config.age;
        self.alarms.set(&mut end.alarm, circuit.0, end.deadline);
        if end.peer.replace(source) == Some(source) {
            return InArpVerdict::Nothing;
        }
        self.counters.peers_learned += 1;
        InArpVerdict::Learned(source)
    }

    /// Sends pending replies and handles expired timers.
    pub fn settle(&mut self, now: Instant, out: &mut dyn FnMut(InArpDue<'_>)) {
        for index in core::mem::take(&mut self.pending_replies) {
            let end = self.ends[index as usize].as_mut().expect("a closed circuit has no pending reply");
            let target = end.pending_reply.take().expect("the list holds circuits with a pending reply");
            self.counters.replies_out += 1;
            send(Circuit(index), Operation::InverseReply, self.config.own, Some(target), out);
        }
        while let Some((moment, index)) = self.alarms.pop_expired(now) {
            let Some(end) = self.ends.get_mut(index as usize).and_then(Option::as_mut) else { continue };
            if !end.alarm.take_if_current(moment) {
                continue;
            }
            if end.deadline <= now {
                end.deadline =
                    now + Self::on_deadline(&self.config, &mut self.counters, end, Circuit(index), out);
            }
            self.alarms.set(&mut end.alarm, index, end.deadline);
        }
    }

    /// Handles an expired deadline and returns the time until the next one.
    fn on_deadline(
        config: &InArpConfig,
        counters: &mut InArpCounters,
        end: &mut End,
        circuit: Circuit,
        out: &mut dyn FnMut(InArpDue<'_>),
    ) -> Duration {
        let requests_left = match end.state {
            State::Requesting { requests_left } => requests_left,
            State::Known | State::Backoff | State::Fixed => config.requests_max,
        };
        if let Some(requests_left) = requests_left.checked_sub(1) {
            end.state = State::Requesting { requests_left };
            counters.requests_out += 1;
            send(circuit, Operation::InverseRequest, config.own, None, out);
            return config.request_interval;
        }
        end.state = State::Backoff;
        if let Some(ip) = end.peer.take() {
            counters.peers_lost += 1;
            out(InArpDue::Lost { circuit, ip });
        }
        config.retry_pause
    }

    /// Returns when [`InArp::settle`] is next due. The time may be early, but is never late.
    pub fn deadline(&self) -> Instant {
        if self.pending_replies.is_empty() { self.alarms.next_deadline() } else { Instant::ZERO }
    }

    /// Returns the counters.
    pub fn counters(&self) -> &InArpCounters {
        &self.counters
    }
}

/// Sends a packet in the form for permanent circuits: without ATM addresses and, in a request, without the
/// target's IPv4 address.
fn send(
    circuit: Circuit,
    operation: Operation,
    own: Ipv4Addr,
    target: Option<Ipv4Addr>,
    out: &mut dyn FnMut(InArpDue<'_>),
) {
    let packet = Packet { operation, source: Party::permanent(Some(own)), target: Party::permanent(target) };
    let mut bytes = [0; PACKET_BYTES_MAX];
    let length = packet.write(&mut bytes);
    out(InArpDue::Packet { circuit, bytes: &bytes[..length] });
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const OWN: Ipv4Addr = Ipv4Addr::new(192, 168, 99, 1);
    const PEER: Ipv4Addr = Ipv4Addr::new(192, 168, 99, 2);
    const CIRCUIT: Circuit = Circuit(3);

    fn seconds(count: u64) -> Instant {
        Instant::from_nanos(count * 1_000_000_000)
    }

    /// Advances to `until` from deadline to deadline. Returns the time in seconds and the first bytes of each
    /// action that was due.
    fn run(arp: &mut InArp, until: Instant) -> Vec<(u64, Option<Vec<u8>>)> {
        let mut seen = vec![];
        while arp.deadline() <= until {
            let now = arp.deadline();
            arp.settle(now, &mut |due| {
                let bytes = match due {
                    InArpDue::Packet { bytes, .. } => Some(bytes.to_vec()),
                    InArpDue::Lost { .. } => None,
                };
                seen.push((now.as_nanos() / 1_000_000_000, bytes));
            });
        }
        seen
    }

    fn packet(operation: Operation, source: Ipv4Addr, target: Option<Ipv4Addr>) -> Vec<u8> {
        let packet =
            Packet { operation, source: Party::permanent(Some(source)), target: Party::permanent(target) };
        let mut bytes = vec![0; packet.length()];
        packet.write(&mut bytes);
        bytes
    }

    #[test]
    fn the_request_is_the_one_that_linux_sends() {
        let mut arp = InArp::new(InArpConfig::new(OWN));
        arp.open(CIRCUIT, Instant::ZERO);
        let linux = [0, 0x13, 8, 0, 0, 0, 0, 8, 4, 0, 0, 0, 192, 168, 99, 1];
        assert_eq!(run(&mut arp, Instant::ZERO), [(0, Some(linux.to_vec()))]);
    }

    #[test]
    fn inarp_pauses_after_five_requests() {
        let mut arp = InArp::new(InArpConfig::new(OWN));
        arp.open(CIRCUIT, Instant::ZERO);
        let moments: Vec<u64> = run(&mut arp, seconds(70)).into_iter().map(|(at, _)| at).collect();
        assert_eq!(moments, [0, 1, 2, 3, 4, 65, 66, 67, 68, 69]);
    }

    #[test]
    fn inarp_resumes_on_demand_but_not_endlessly() {
        let mut arp = InArp::new(InArpConfig::new(OWN));
        arp.open(CIRCUIT, Instant::ZERO);
        run(&mut arp, seconds(8));
        // No requests are sent after the fifth second.
        arp.restart_requests(seconds(9));
        assert!(!arp.is_requesting());
        arp.restart_requests(seconds(10));
        assert!(arp.is_requesting());
        let moments: Vec<u64> = run(&mut arp, seconds(20)).into_iter().map(|(at, _)| at).collect();
        assert_eq!(moments, [10, 11, 12, 13, 14]);
        assert!(!arp.is_requesting());
    }

    #[test]
    fn an_answer_is_valid_until_it_expires_without_a_renewal() {
        let mut arp = InArp::new(InArpConfig::new(OWN));
        arp.open(CIRCUIT, Instant::ZERO);
        run(&mut arp, Instant::ZERO);
        let reply = packet(Operation::InverseReply, PEER, Some(OWN));
        assert_eq!(arp.arrive(CIRCUIT, &reply, seconds(1)), InArpVerdict::Learned(PEER));
        assert_eq!(arp.arrive(CIRCUIT, &reply, seconds(1)), InArpVerdict::Nothing);
        assert_eq!((arp.peer(CIRCUIT), arp.circuit_of(PEER)), (Some(PEER), Some(CIRCUIT)));
        assert_eq!(run(&mut arp, seconds(900)), []);
        let seen = run(&mut arp, seconds(910));
        assert_eq!(
            seen.iter().map(|(at, bytes)| (*at, bytes.is_some())).collect::<Vec<_>>(),
            [(901, true), (902, true), (903, true), (904, true), (905, true), (906, false)]
        );
        assert_eq!(arp.peer(CIRCUIT), None);
    }

    #[test]
    fn a_flood_of_requests_is_answered_once_a_burst() {
        let mut arp = InArp::new(InArpConfig::new(OWN));
        arp.open_fixed(CIRCUIT, PEER);
        let request = packet(Operation::InverseRequest, PEER, None);
        for _ in 0..100_000 {
            arp.arrive(CIRCUIT, &request, seconds(1));
        }
        assert_eq!(arp.arrive(Circuit(99), &request, seconds(1)), InArpVerdict::Nothing);
        let seen = run(&mut arp, seconds(1));
        assert_eq!(seen, [(0, Some(packet(Operation::InverseReply, OWN, Some(PEER))))]);
        assert_eq!((arp.counters().packets_in, arp.counters().packets_ignored), (100_001, 1));
        assert_eq!(arp.deadline(), Instant::NEVER);
    }

    #[test]
    fn garbage_and_atmarp_requests_are_only_counted() {
        let mut arp = InArp::new(InArpConfig::new(OWN));
        arp.open(CIRCUIT, Instant::ZERO);
        let reply = packet(Operation::Reply, PEER, Some(OWN));
        for length in 0..reply.len() {
            arp.arrive(CIRCUIT, &reply[..length], Instant::ZERO);
        }
        arp.arrive(CIRCUIT, &reply, Instant::ZERO);
        arp.arrive(CIRCUIT, &packet(Operation::InverseRequest, OWN, None), Instant::ZERO);
        let counters = arp.counters();
        assert_eq!((counters.packets_malformed, counters.packets_ignored), (reply.len() as u64, 2));
        assert_eq!(arp.peer(CIRCUIT), None);
    }

    #[test]
    fn a_closed_circuit_has_no_pending_reply() {
        let mut arp = InArp::new(InArpConfig::new(OWN));
        arp.open(CIRCUIT, Instant::ZERO);
        arp.arrive(CIRCUIT, &packet(Operation::InverseRequest, PEER, None), Instant::ZERO);
        arp.close(CIRCUIT);
        arp.settle(seconds(100), &mut |due| panic!("{due:?}"));
    }
}
