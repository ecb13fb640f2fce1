//! One requester of a connection: its requests and what answers them, in the order of the capture.
//!
//! Positions        PSNs without wrapping, from the first request. A Read takes as many as its response has
//!                  packets.
//! Lag              as for TCP, a response that is captured reaches the requester, and a request that it
//!                  releases comes back, `far` later; `near` is the time to the responder and back.

use super::connection::{Connection, Packet};
use super::packet::Kind;
use crate::figures::percentile;
use kiban_rdma::wire::roce::{NakCode, Operation, Syndrome, credits, rnr_timer};
use std::collections::VecDeque;

/// The path MTU if nothing tells it: that of a link with 1500 bytes.
const PATH_MTU: u32 = 1024;
/// Beyond this time, and without a message of communication management that says so, the shortest time from a
/// response to the next request is the application's, not the path's.
const FAR_MAX: u64 = 200_000;
/// The time that a responder in hardware takes: captured there, answers follow their requests so fast.
const NEAR_RESPONDER: u64 = 3_000;
/// How much a path varies, ns.
const JITTER: u64 = 2_000;
/// A single Read of 2 GB (IBTA volume 1 §9.7.6) has so many responses with the smallest path MTU.
const SPAN_MAX: u32 = 1 << 23;

/// A request packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Its first position, and the one after its last.
    pub(crate) first: i64,
    pub(crate) end: i64,
    pub(crate) bytes: u32,
    /// Whether it begins and ends a message.
    pub(crate) begins: bool,
    pub(crate) ends: bool,
    pub(crate) is_read: bool,
}

/// What a response says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    /// Everything up to its position was received. The responder may say that no receive is posted now.
    Ack { has_credit: bool },
    /// The same, with data of a Read or the result of an atomic operation.
    Data { bytes: u32 },
    /// Everything before its position was received, and something behind it.
    SequenceNak,
    /// No receive was posted; the responder asks for a pause, ns.
    RnrNak(u64),
    /// The request was refused.
    Error(NakCode),
    /// Which packets were received: between kiban's ends.
    Selective,
}

/// What happened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Request(Request),
    Response {
        position: i64,
        said: Said,
    },
    /// The other end sent a request.
    Peer,
    /// A congestion notification to the requester, or to the responder.
    Notification {
        to_requester: bool,
    },
    /// A packet with a wrong ICRC, of either end.
    Damaged,
}

/// An event, in the order of the capture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) number: u32,
    pub(crate) at: u64,
    pub(crate) what: What,
    /// Whether a switch has marked the packet.
    pub(crate) is_marked: bool,
}

/// One requester, and what answers it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    pub(crate) events: Vec<Event>,
    pub(crate) path_mtu: u32,
    /// The shortest time from the place of the capture to the responder and back, ns; 0: not known.
    pub(crate) near: u64,
    /// The shortest time from the place of the capture to the requester and back, ns; 0: not known.
    pub(crate) far: u64,
    /// Round trips: when the answer was captured, and how long it took.
    pub(crate) round_trips: Vec<(u64, u64)>,
}

/// Extends PSNs to positions that do not wrap.
struct Positions {
    psn: u32,
    position: i64,
}

impl Positions {
    /// Returns the position of a PSN, which is within half of the PSN space.
    fn of(&self, psn: u32) -> i64 {
        // The shift puts the sign of 24 bits where that of 32 bits is.
        self.position + i64::from(((psn.wrapping_sub(self.psn) << 8) as i32) >> 8)
    }

    fn advance(&mut self, psn: u32) -> i64 {
        (self.psn, self.position) = (psn, self.of(psn));
        self.position
    }
}

/// Returns the path MTU: the payload of packets that are not the last of a message.
pub(crate) fn path_mtu(connection: &Connection) -> u32 {
    let full = connection.packets.iter().filter(|packet| match packet.kind {
        Kind::Transport(operation) => {
            operation.carries_payload() && !operation.is_last() && !packet.is_damaged
        }
        _ => false,
    });
    let seen = full.map(|packet| packet.bytes).max().filter(|bytes| *bytes > 0);
    let longest = connection.packets.iter().map(|packet| packet.bytes).max().unwrap_or(0);
    seen.or(connection.path_mtu).unwrap_or(longest.max(PATH_MTU))
}

impl Timeline {
    /// Returns the timeline of the end `requester`; without events if it sent no requests.
    pub(crate) fn of(connection: &Connection, requester: usize, path_mtu: u32) -> Timeline {
        let packets = &connection.packets;
        let is_own = |packet: &&Packet| packet.end == requester && packet.request().is_some();
        let mut timeline = Timeline { path_mtu, ..Timeline::default() };
        let first = packets.iter().find(is_own).or_else(|| {
            // A capture of the responses alone still has the errors.
            packets.iter().find(|packet| packet.end != requester && packet.is_response())
        });
        let Some(first) = first else { return timeline };
        let mut positions = Positions { psn: first.psn, position: 0 };
        for packet in packets {
            let is_ours = packet.end == requester;
            let what = match (packet.request(), packet.kind) {
                _ if packet.is_damaged => What::Damaged,
                (Some(operation), _) if is_ours => {
                    let first = positions.advance(packet.psn);
                    What::Request(request(packet, operation, first, path_mtu))
                }
                (Some(_), _) => What::Peer,
                (None, Kind::Cnp) => What::Notification { to_requester: !is_ours },
                _ if !is_ours && packet.is_response() => {
                    let Some(said) = said(packet) else { continue };
                    What::Response { position: positions.of(packet.psn), said }
                }
                _ => continue,
            };
            let Packet { number, at, is_marked, .. } = *packet;
            timeline.events.push(Event { number, at, what, is_marked });
        }
        timeline.measure(connection.reaches[1 - requester], connection.reaches[requester]);
        timeline
    }

    /// Measures the times to both ends. The arguments are upper bounds of them.
    fn measure(&mut self, to_responder: Option<u64>, to_requester: Option<u64>) {
        let (mut nears, mut pauses, mut resends) = (Vec::new(), Vec::new(), Vec::new());
        // Requests without answer: their positions, and when they were sent.
        let mut open: VecDeque<(i64, i64, u64)> = VecDeque::new();
        let (mut sent, mut acked) = (0, 0);
        // Karn's rule: what may have been sent twice is not measured (RFC 6298 §3).
        let mut repeated = 0;
        let mut answered: Option<u64> = None;
        let mut refused: Option<(u64, i64)> = None;
        // What is missing in the capture may come late, so that it is not known to be sent again.
        let mut hole = None;
        for event in &self.events {
            match event.what {
                What::Request(request) if request.first < sent => {
                    repeated = sent;
                    // After a NAK, the NIC itself sends again.
                    if let Some((at, position)) = refused
                        && position == request.first
                    {
                        refused = None;
                        if hole != Some(position) {
                            resends.push(event.at - at);
                        }
                    }
                    answered = None;
                }
                What::Request(request) => {
                    if let Some(at) = answered.take().filter(|_| acked >= sent) {
                        pauses.push(event.at - at);
                    }
                    if request.first > sent {
                        hole = Some(sent);
                    }
                    sent = sent.max(request.end);
                    open.push_back((request.first, request.end, event.at));
                }
                What::Response { position, said } => {
                    let mut last = None;
                    while open.front().is_some_and(|one| one.0 <= position) {
                        last = open.pop_front();
                    }
                    let is_positive = matches!(said, Said::Ack { .. } | Said::Data { .. });
                    if let Some((first, end, at)) = last
                        && is_positive
                        && end > position
                        && first >= repeated
                    {
                        nears.push((event.at, event.at - at));
                    }
                    if said == Said::SequenceNak {
                        refused = Some((event.at, position));
                    }
                    acked = acked.max(position + i64::from(is_positive));
                    answered = (acked >= sent && is_positive).then_some(event.at);
                }
                What::Peer => answered = (acked >= sent).then_some(event.at),
                What::Notification { .. } | What::Damaged => {}
            }
        }
        let shortest = nears.iter().map(|(_, near)| *near).min();
        self.near = [shortest, to_responder].into_iter().flatten().min().unwrap_or(0);
        if self.near <= NEAR_RESPONDER {
            leave_waits(&mut pauses);
        }
        let least = pauses.iter().copied().min();
        let usual = percentile(pauses, 50).unwrap_or(0);
        let of_requests = least.filter(|least| to_requester.is_some() || self.is_of_path(*least, usual));
        let of_resends = resends.into_iter().min();
        self.far = [of_requests, of_resends, to_requester].into_iter().flatten().min().unwrap_or(0);
        self.round_trips = nears.into_iter().map(|(at, near)| (at, near + self.far)).collect();
    }

    /// Takes over what the requests of the other end show: the way to their responder is that to this
    /// requester.
    pub(crate) fn learn(&mut self, other: &Timeline) {
        if other.round_trips.is_empty() || self.far != 0 && self.far <= other.near {
            return;
        }
        for (_, trip) in &mut self.round_trips {
            *trip = *trip - self.far + other.near;
        }
        self.far = other.near;
    }

    /// Returns whether the shortest time from an answer to the next request may be the path's, and not the
    /// application's, if nothing else tells it.
    fn is_of_path(&self, least: u64, usual: u64) -> bool {
        let is_plausible = least <= 4 * self.near || self.near <= NEAR_RESPONDER && least <= FAR_MAX;
        // Applications vary more than paths.
        is_plausible && usual <= least + least * 3 / 20 + JITTER
    }

    /// Returns the shortest round trip, ns.
    pub(crate) fn shortest_round_trip(&self) -> u64 {
        self.near + self.far
    }

    /// Returns the given percentile of the round trips, ns.
    pub(crate) fn round_trip(&self, percent: usize) -> u64 {
        percentile(self.round_trips.iter().map(|(_, trip)| *trip).collect(), percent)
            .unwrap_or_else(|| self.shortest_round_trip())
    }
}

/// Removes the times between requests that follow each other: at the responder, every request seems to come
/// after the answer to the one before.
fn leave_waits(pauses: &mut Vec<u64>) {
    let least = pauses.iter().copied().min().unwrap_or(0).max(1);
    let most = pauses.iter().copied().max().unwrap_or(0);
    if most > 8 * least.max(100) {
        let middle = (least as f64 * most as f64).sqrt() as u64;
        pauses.retain(|pause| *pause > middle);
    }
}

fn request(packet: &Packet, operation: Operation, first: i64, path_mtu: u32) -> Request {
    let is_read = operation == Operation::ReadRequest;
    let span = match packet.dma_bytes {
        Some(bytes) if is_read => bytes.div_ceil(path_mtu.max(1)).clamp(1, SPAN_MAX),
        _ => 1,
    };
    Request {
        first,
        end: first + i64::from(span),
        bytes: packet.bytes,
        begins: operation.is_first(),
        ends: operation.is_last(),
        is_read,
    }
}

fn said(packet: &Packet) -> Option<Said> {
    let syndrome = packet.aeth.map(|aeth| aeth.syndrome);
    let operation = match packet.kind {
        Kind::SelectiveAck => return Some(Said::Selective),
        Kind::Transport(operation) => operation,
        _ => return None,
    };
    Some(match syndrome {
        Some(Syndrome::RnrNak(code)) => Said::RnrNak(rnr_timer(code).as_nanos() as u64),
        Some(Syndrome::Nak(NakCode::SequenceError)) => Said::SequenceNak,
        Some(Syndrome::Nak(code)) => Said::Error(code),
        Some(Syndrome::Ack(code)) if operation == Operation::Acknowledge => {
            Said::Ack { has_credit: credits(code) != Some(0) }
        }
        _ => Said::Data { bytes: packet.bytes },
    })
}
