//! OAM loopback, F5 and F4: checks that a circuit or path is alive and measures its round-trip time (I.610
//! §10.2.3).
//!
//! Purpose          answer loopback requests, send them, and report the round-trip time.
//! Receive path     a management cell on a circuit yields a [`LoopbackVerdict`]. A request that is for the
//!                  end of the circuit or for this location is queued to be answered.
//! Transmit path    [`Loopback::settle`] answers the latest requests on a circuit, at most [`REPLIES_MAX`]
//!                  per burst, and sends pings.
//! Ping             at most one is outstanding per circuit. It is identified by its correlation tag, which is
//!                  random and cannot be predicted from earlier tags.
//! Limits           there is one state per open circuit; cells are not stored.
//! Paths            a path's F4 flow is treated like a circuit. The caller knows the VCI of the flow, and
//!                  supplies the payload type.
//! Not implemented  answering an alarm (AIS) with RDI, continuity checks, loopback at intermediate points.

use crate::Circuit;
use crate::counters::LoopbackCounters;
use crate::wire::atm::{CELL_PAYLOAD_BYTES, PTI_OAM_END_TO_END, PTI_OAM_SEGMENT};
use crate::wire::oam::{self, LOCATION_END, Payload};
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::time::Duration;
use kiban_base::{Instant, SecureRng, Timer, TimerWheel};

/// Timeout of a ping (I.610 §10.2.3: the round trip is expected within five seconds).
pub const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of requests answered per circuit and burst. It is more than one, so that a board that runs
/// late still answers all pings that have arrived in the meantime.
const REPLIES_MAX: usize = 4;

/// The verdict on a received management cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoopbackVerdict {
    /// Nothing to report.
    Nothing,
    /// A ping was answered.
    Returned {
        /// Its correlation tag.
        tag: u32,
        /// Its round-trip time.
        round_trip: Duration,
    },
    /// AIS: a failure upstream.
    Alarm,
    /// RDI: the far end does not receive our cells.
    RemoteDefect,
}

/// An action that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoopbackDue {
    /// Send this management cell.
    Cell {
        /// The circuit on which to send the cell.
        circuit: Circuit,
        /// Its payload type.
        pti: u8,
        /// Its payload.
        payload: [u8; CELL_PAYLOAD_BYTES],
    },
    /// A ping timed out.
    Lost {
        /// The circuit.
        circuit: Circuit,
        /// Its correlation tag.
        tag: u32,
    },
}

#[derive(Clone, Copy)]
enum Ping {
    None,
    /// The ping that the next `settle` must send: tag and payload type.
    Requested(u32, u8),
    Sent {
        tag: u32,
        at: Instant,
    },
}

struct End {
    pending_replies: ArrayVec<(u8, oam::Loopback), REPLIES_MAX>,
    ping: Ping,
    alarm: Timer,
}

/// The loopback state of one port's circuits.
pub struct Loopback {
    location: [u8; 16],
    ends: Vec<Option<End>>,
    alarms: TimerWheel,
    /// Circuits with a pending answer or ping, each listed at most twice.
    pending_circuits: Vec<u32>,
    counters: LoopbackCounters,
}

impl Loopback {
    /// Creates the state of a port without open circuits. A location of all ones means that the port has no
    /// location.
    pub fn new(location: [u8; 16]) -> Loopback {
        Loopback {
            location,
            ends: Vec::new(),
            alarms: TimerWheel::new(),
            pending_circuits: Vec::new(),
            counters: LoopbackCounters::default(),
        }
    }

    /// Opens a circuit.
    pub fn open(&mut self, circuit: Circuit) {
        self.close(circuit);
        let index = circuit.0 as usize;
        if self.ends.len() <= index {
            self.ends.resize_with(index + 1, || None);
        }
        self.ends[index] =
            Some(End { pending_replies: ArrayVec::new(), ping: Ping::None, alarm: Timer::default() });
    }

    /// Closes a circuit.
    pub fn close(&mut self, circuit: Circuit) {
        if let Some(end) = self.ends.get_mut(circuit.0 as usize) {
            *end = None;
            self.pending_circuits.retain(|owing| *owing != circuit.0);
        }
    }

    /// Requests a ping, of the segment or end to end depending on the payload type, and returns its tag.
    /// Returns `None` if the circuit is not open or a ping is outstanding.
    pub fn ping(&mut self, circuit: Circuit, pti: u8, rng: &mut SecureRng) -> Option<u32> {
        let end = self.ends.get_mut(circuit.0 as usize)?.as_mut()?;
        let Ping::None = end.ping else { return None };
        let tag = rng.draw_u32();
        end.ping = Ping::Requested(tag, pti);
        self.pending_circuits.push(circuit.0);
        Some(tag)
    }

    /// Processes a received management cell.
    pub fn arrive(
        &mut self,
        circuit: Circuit,
        pti: u8,
        payload: &[u8; CELL_PAYLOAD_BYTES],
        now: Instant,
    ) -> LoopbackVerdict {
        self.counters.cells_in += 1;
        let end = self.ends.get_mut(circuit.0 as usize).and_then(Option::as_mut);
        let (Some(end), PTI_OAM_SEGMENT | PTI_OAM_END_TO_END) = (end, pti) else {
            self.counters.cells_ignored += 1;
            return LoopbackVerdict::Nothing;
        };
        match Payload::read(payload) {
            Err(_) => self.counters.cells_malformed += 1,
            Ok((Payload::Alarm(_), _)) => return LoopbackVerdict::Alarm,
            Ok((Payload::RemoteDefect(_), _)) => return LoopbackVerdict::RemoteDefect,
            Ok((Payload::Loopback(loopback), _)) if loopback.to_be_looped => {
                if loopback.location != LOCATION_END && loopback.location != self.location {
                    self.counters.cells_ignored += 1;
                } else {
                    if end.pending_replies.is_empty() {
                        self.pending_circuits.push(circuit.0);
                    } else if end.pending_replies.is_full() {
                        end.pending_replies.remove(0);
                    }
                    end.pending_replies.push((pti, loopback));
                }
            }
            Ok((Payload::Loopback(loopback), _)) => match end.ping {
                Ping::Sent { tag, at } if tag == loopback.correlation_tag => {
                    end.ping = Ping::None;
                    self.counters.pings_returned += 1;
                    return LoopbackVerdict::Returned { tag, round_trip: now.since(at) };
                }
                _ => self.counters.cells_ignored += 1,
            },
            Ok(_) => self.counters.cells_ignored += 1,
        }
        LoopbackVerdict::Nothing
    }

    /// Sends pending answers and pings, and gives up pings that timed out.
    pub fn settle(&mut self, now: Instant, out: &mut dyn FnMut(LoopbackDue)) {
        for index in core::mem::take(&mut self.pending_circuits) {
            let circuit = Circuit(index);
            let end = self.ends[index as usize].as_mut().expect("a closed circuit has no pending cells");
            let mut send = |pti, loopback| {
                let mut payload = [0; CELL_PAYLOAD_BYTES];
                Payload::Loopback(loopback).write(&mut payload);
                out(LoopbackDue::Cell { circuit, pti, payload });
            };
            for (pti, loopback) in end.pending_replies.drain(..) {
                self.counters.answers_out += 1;
                send(pti, loopback.answer());
            }
            if let Ping::Requested(tag, pti) = end.ping {
                self.counters.pings_out += 1;
                send(pti, oam::Loopback { source: self.location, ..oam::Loopback::request(tag) });
                end.ping = Ping::Sent { tag, at: now };
                self.alarms.set(&mut end.alarm, index, now + PING_TIMEOUT);
            }
        }
        while let Some((moment, index)) = self.alarms.pop_expired(now) {
            let Some(end) = self.ends.get_mut(index as usize).and_then(Option::as_mut) else { continue };
            if !end.alarm.take_if_current(moment) {
                continue;
            }
            let Ping::Sent { tag, at } = end.ping else { continue };
            if at + PING_TIMEOUT <= now {
                end.ping = Ping::None;
                self.counters.pings_lost += 1;
                out(LoopbackDue::Lost { circuit: Circuit(index), tag });
            } else {
                self.alarms.set(&mut end.alarm, index, at + PING_TIMEOUT);
            }
        }
    }

    /// Returns when [`Loopback::settle`] is next due. The time may be early, but is never late.
    pub fn deadline(&self) -> Instant {
        if self.pending_circuits.is_empty() { self.alarms.next_deadline() } else { Instant::ZERO }
    }

    /// Returns the counters.
    pub fn counters(&self) -> &LoopbackCounters {
        &self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use kiban_base::RngKey;

    const CIRCUIT: Circuit = Circuit(0);

    fn millis(count: u64) -> Instant {
        Instant::from_nanos(count * 1_000_000)
    }

    fn settle(loopback: &mut Loopback, now: Instant) -> Vec<LoopbackDue> {
        let mut due = vec![];
        loopback.settle(now, &mut |what| due.push(what));
        due
    }

    fn port() -> Loopback {
        let mut loopback = Loopback::new(LOCATION_END);
        loopback.open(CIRCUIT);
        loopback
    }

    #[test]
    fn a_ping_comes_back_from_the_far_end_with_its_round_trip() {
        let (mut near, mut far, mut rng) = (port(), port(), SecureRng::new(RngKey::for_simulation(1)));
        let tag = near.ping(CIRCUIT, PTI_OAM_END_TO_END, &mut rng).unwrap();
        assert_eq!(near.ping(CIRCUIT, PTI_OAM_END_TO_END, &mut rng), None);
        let out = settle(&mut near, millis(10));
        let [LoopbackDue::Cell { pti, payload, .. }] = out[..] else { panic!("{out:?}") };
        assert_eq!(far.arrive(CIRCUIT, pti, &payload, millis(11)), LoopbackVerdict::Nothing);
        let back = settle(&mut far, millis(11));
        let [LoopbackDue::Cell { pti, payload, .. }] = back[..] else { panic!("{back:?}") };
        let returned = LoopbackVerdict::Returned { tag, round_trip: Duration::from_millis(2) };
        assert_eq!(near.arrive(CIRCUIT, pti, &payload, millis(12)), returned);
        // A second copy is ignored.
        assert_eq!(near.arrive(CIRCUIT, pti, &payload, millis(13)), LoopbackVerdict::Nothing);
        assert_eq!(settle(&mut near, millis(20_000)), []);
    }

    #[test]
    fn a_ping_without_a_reply_times_out_after_five_seconds() {
        let (mut near, mut rng) = (port(), SecureRng::new(RngKey::for_simulation(1)));
        let first = near.ping(CIRCUIT, PTI_OAM_END_TO_END, &mut rng).unwrap();
        settle(&mut near, millis(0));
        assert_eq!(settle(&mut near, millis(4999)), []);
        assert!(near.deadline() <= millis(5000));
        assert_eq!(settle(&mut near, millis(5000)), [LoopbackDue::Lost { circuit: CIRCUIT, tag: first }]);
        assert_eq!(near.deadline(), Instant::NEVER);
        assert!(near.ping(CIRCUIT, PTI_OAM_END_TO_END, &mut rng).is_some());
    }

    #[test]
    fn only_the_latest_requests_of_a_burst_are_answered() {
        let mut far = port();
        let mut payload = [0; CELL_PAYLOAD_BYTES];
        for tag in 0..10_000 {
            Payload::Loopback(oam::Loopback::request(tag)).write(&mut payload);
            far.arrive(CIRCUIT, PTI_OAM_SEGMENT, &payload, millis(0));
        }
        let out = settle(&mut far, millis(0));
        assert_eq!(out.len(), REPLIES_MAX);
        for (due, tag) in out.into_iter().zip(9996..) {
            let LoopbackDue::Cell { pti: PTI_OAM_SEGMENT, payload, .. } = due else { panic!("{due:?}") };
            let answer = oam::Loopback::request(tag).answer();
            assert_eq!(Payload::read(&payload), Ok((Payload::Loopback(answer), 48)));
        }
    }

    #[test]
    fn loopback_cells_for_others_are_only_counted() {
        let mut far = port();
        let mut payload = [0; CELL_PAYLOAD_BYTES];
        let elsewhere = oam::Loopback { location: [7; 16], ..oam::Loopback::request(1) };
        Payload::Loopback(elsewhere).write(&mut payload);
        far.arrive(CIRCUIT, PTI_OAM_SEGMENT, &payload, millis(0));
        payload[20] ^= 1;
        far.arrive(CIRCUIT, PTI_OAM_SEGMENT, &payload, millis(0));
        Payload::Continuity.write(&mut payload);
        far.arrive(CIRCUIT, PTI_OAM_SEGMENT, &payload, millis(0));
        assert_eq!((far.counters().cells_ignored, far.counters().cells_malformed), (2, 1));
        assert_eq!(settle(&mut far, millis(0)), []);
    }
}
