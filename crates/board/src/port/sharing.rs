//! An ATM port of a divided board.
//!
//! Receive path     one shard reassembles a circuit. Cells of the circuit that arrive at another shard are
//!                  handed on in bursts, before reassembly. As on all links, a packet goes to the shard of
//!                  its flow.
//! Transmit path    one shard sends a circuit's packets. Another shard passes packets to it, and it queues
//!                  them when their circuit has room.
//! Line             the circuits of a port share the slots of one line, so one shard, shard 0, schedules
//!                  their cells; unless the line has slots for the peak rates of all circuits: then each
//!                  shard can schedule the circuits that it reassembles as if it had a line of its own.
//! Shard 0          asks for peers and answers management cells, so these are passed to it.
//! Credits          a shard may have a part of a circuit's queue under way to the shard that sends it. It
//!                  gets a credit back for each packet that this shard has queued.
//! Fairness         packets of other shards get half of a circuit's room, and what its own shard leaves.
//! Limits           neither packets nor credits are dropped when a ring is full; the credits limit how many
//!                  wait. At most [`CELL_BURSTS_MAX`] bursts of a port's cells are under way from one shard.

use crate::config::{AtmPortConfig, CircuitConfig};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use kiban_atm::{Carried, Interval, TimedCell};
use kiban_base::Pdu;

/// The least number of credits of a shard for a circuit.
const CREDITS_MIN: usize = 4;
/// The maximum number of bursts of cells that other shards have not taken yet.
const CELL_BURSTS_MAX: usize = 64;

/// Returns the number of credits of each shard for a circuit.
fn credits_of(frames_max: usize, shards: usize) -> usize {
    (frames_max / shards).max(CREDITS_MIN)
}

/// Cells that one shard hands on to another.
#[derive(Debug)]
pub(crate) struct CellBurst {
    pub(crate) cells: Vec<TimedCell>,
    /// Held while the burst is under way.
    _token: Arc<()>,
}

/// A packet for a circuit that another shard sends.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) from: usize,
    pub(crate) circuit: u32,
    pub(crate) carried: Carried,
    pub(crate) pdu: Pdu,
}

/// One shard's view of the division of a port.
pub(super) struct Division {
    pub(super) number: usize,
    circuits: Vec<Shares>,
    /// Packets for other shards, and these shards.
    outgoing: Vec<(usize, Outgoing)>,
    /// Cells for other shards, by shard.
    foreign: Vec<Vec<TimedCell>>,
    token: Arc<()>,
    /// The packets of other shards that wait for room, by circuit.
    waiting: Vec<VecDeque<Outgoing>>,
    /// Number of packets in all lists.
    pub(super) waiting_count: usize,
    /// Whether other shards get the larger half of an odd room.
    pub(super) is_larger: bool,
}

/// The shards of a circuit.
struct Shares {
    receiver: usize,
    sender: usize,
    credits: usize,
    credits_max: usize,
    /// The peer that the other shards know.
    told: Option<Ipv4Addr>,
}

impl Division {
    pub(super) fn new(config: &AtmPortConfig, (number, shards): (usize, usize)) -> Division {
        let sends_apart = config.by_circuit && has_slots_for_all(config);
        let shares = |end: &CircuitConfig| {
            let receiver = if config.by_circuit { end.vc.shard(shards) } else { 0 };
            let sender = if sends_apart { receiver } else { 0 };
            let credits_max = credits_of(end.frames_max, shards);
            Shares { receiver, sender, credits: credits_max, credits_max, told: None }
        };
        let circuits: Vec<Shares> = config.circuits.iter().map(shares).collect();
        Division {
            number,
            waiting: circuits.iter().map(|_| VecDeque::new()).collect(),
            circuits,
            outgoing: Vec::new(),
            foreign: (0..shards).map(|_| Vec::new()).collect(),
            token: Arc::default(),
            waiting_count: 0,
            is_larger: false,
        }
    }

    /// Returns whether another shard reassembles a circuit.
    pub(super) fn is_foreign(&self, circuit: usize) -> bool {
        self.circuits[circuit].receiver != self.number
    }

    /// Returns the credits left for a circuit, and their maximum; `None` if this shard sends its packets.
    pub(super) fn credits(&self, circuit: usize) -> Option<(usize, usize)> {
        let Shares { sender, credits, credits_max, .. } = self.circuits[circuit];
        (sender != self.number).then_some((credits, credits_max))
    }

    /// Passes a packet to the shard that sends the circuit's packets. Returns false if at most `least`
    /// credits are left.
    pub(super) fn pass(&mut self, circuit: u32, carried: Carried, pdu: Pdu, least: usize) -> bool {
        let shares = &mut self.circuits[circuit as usize];
        if shares.credits <= least {
            return false;
        }
        shares.credits -= 1;
        self.outgoing.push((shares.sender, Outgoing { from: self.number, circuit, carried, pdu }));
        true
    }

    pub(super) fn take_outgoing(&mut self) -> impl Iterator<Item = (usize, Outgoing)> + '_ {
        self.outgoing.drain(..)
    }

    pub(super) fn on_credit(&mut self, circuit: u32) {
        self.circuits.get_mut(circuit as usize).into_iter().for_each(|shares| shares.credits += 1);
    }

    pub(super) fn on_outgoing(&mut self, outgoing: Outgoing) {
        if let Some(waiting) = self.waiting.get_mut(outgoing.circuit as usize) {
            waiting.push_back(outgoing);
            self.waiting_count += 1;
        }
    }

    /// Returns the next packet of another shard for a circuit.
    pub(super) fn pop_waiting(&mut self, circuit: usize) -> Option<Outgoing> {
        let outgoing = self.waiting[circuit].pop_front()?;
        self.waiting_count -= 1;
        Some(outgoing)
    }

    /// Returns whether the other shards must be told of a circuit's peer.
    pub(super) fn is_news(&mut self, circuit: usize, peer: Option<Ipv4Addr>) -> bool {
        core::mem::replace(&mut self.circuits[circuit].told, peer) != peer
    }

    /// Keeps foreign cells of a circuit for another shard; shard 0 takes management cells.
    pub(super) fn hand_on(&mut self, circuit: usize, is_management: bool, cells: &[TimedCell]) {
        let to = if is_management { 0 } else { self.circuits[circuit].receiver };
        self.foreign[to].extend_from_slice(cells);
    }

    /// Passes the cells for other shards to `hand_on`, each burst with its shard. Returns the number of cells
    /// for which there is no room.
    pub(super) fn take_foreign(&mut self, hand_on: &mut dyn FnMut(usize, CellBurst)) -> u64 {
        let Division { foreign, token, .. } = self;
        let mut dropped = 0;
        for (to, cells) in foreign.iter_mut().enumerate().filter(|(_, cells)| !cells.is_empty()) {
            // Each burst under way has a copy.
            if Arc::strong_count(token) > CELL_BURSTS_MAX {
                dropped += cells.len() as u64;
                cells.clear();
            } else {
                hand_on(to, CellBurst { cells: core::mem::take(cells), _token: token.clone() });
            }
        }
        dropped
    }
}

/// Returns whether each circuit has a peak rate, and the line has slots for all of them at once.
fn has_slots_for_all(config: &AtmPortConfig) -> bool {
    let rate = |end: &CircuitConfig| end.contract.map(|contract| contract.peak.rate());
    let sum: Option<f64> = config.circuits.iter().map(rate).sum();
    // The peak rate of a circuit that has the whole line is rounded to whole cells per second.
    sum.is_some_and(|sum| sum <= Interval::of_line(config.line_bits_per_second).rate() + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;
    use core::time::Duration;
    use kiban_atm::Contract;
    use kiban_atm::wire::atm::Vc;

    /// Returns which shard of three reassembles, and which sends, the cells of circuits with these peak
    /// rates.
    fn shards(by_circuit: bool, rates: [Option<u64>; 3]) -> Vec<(usize, usize)> {
        let peer = IpAddr::from([10, 0, 0, 2]);
        let circuit = |(vci, rate): (u16, Option<u64>)| {
            let contract = rate.map(|rate| Contract::peak(Interval::per_second(rate), Duration::ZERO));
            CircuitConfig { contract, ..CircuitConfig::to(Vc::new(0, vci), peer) }
        };
        let config = AtmPortConfig {
            by_circuit,
            circuits: (99..).zip(rates).map(circuit).collect(),
            ..AtmPortConfig::oc3c(peer, "10.0.0.0/24".parse().expect("a prefix"))
        };
        let division = Division::new(&config, (1, 3));
        division.circuits.iter().map(|shares| (shares.receiver, shares.sender)).collect()
    }

    #[test]
    fn circuits_are_sent_apart_if_the_line_has_slots_for_all() {
        // An OC-3c has 353,207.5 slots per second.
        assert_eq!(shards(true, [Some(200_000), Some(100_000), Some(53_207)]), [(0, 0), (1, 1), (2, 2)]);
        for rates in [[Some(200_000), Some(100_000), Some(53_300)], [Some(1), Some(1), None], [None; 3]] {
            assert_eq!(shards(true, rates), [(0, 0), (1, 0), (2, 0)], "{rates:?}");
        }
        assert_eq!(shards(false, [Some(1); 3]), [(0, 0); 3]);
    }

    #[test]
    fn a_shard_that_does_not_take_cells_gets_no_more_than_its_bursts() {
        let peer = IpAddr::from([10, 0, 0, 2]);
        let mut config = AtmPortConfig::oc3c(peer, "10.0.0.0/24".parse().expect("a prefix"));
        (config.by_circuit, config.circuits) = (true, alloc::vec![CircuitConfig::to(Vc::new(0, 100), peer)]);
        let mut division = Division::new(&config, (0, 3));
        let cell = TimedCell::new(kiban_base::Instant::ZERO, 0x640, [0; 48]);
        let mut bursts = Vec::new();
        let hand_on = |division: &mut Division, bursts: &mut Vec<_>| {
            division.hand_on(0, false, &[cell; 2]);
            division.take_foreign(&mut |to, burst| bursts.push((to, burst)))
        };
        for count in 1..=CELL_BURSTS_MAX {
            assert_eq!(hand_on(&mut division, &mut bursts), 0);
            assert_eq!(bursts.len(), count);
        }
        assert_eq!(hand_on(&mut division, &mut bursts), 2);
        bursts.pop();
        assert_eq!(hand_on(&mut division, &mut bursts), 0);
        assert!(bursts.iter().all(|(to, burst)| *to == 1 && burst.cells.len() == 2));
    }
}
