//! An ATM port of a divided board: shard 0 has its line, and the other shards send through shard 0.
//!
//! Line             the circuits of a port share the slots of one line, so one shard schedules their cells.
//!                  Shard 0 segments and reassembles, asks for peers, and answers management cells.
//! Receive path     as for all packets that arrive at shard 0, a packet goes to the shard of its flow.
//! Transmit path    another shard passes packets to shard 0, which queues them when their circuit has room.
//! Credits          a shard may have a part of a circuit's queue under way to shard 0. It gets a credit back
//!                  for each packet that shard 0 has queued.
//! Fairness         packets of other shards get half of a circuit's room, and what shard 0 leaves.
//! Limits           neither packets nor credits are dropped when a ring is full; the credits limit how many
//!                  wait.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use kiban_base::Pdu;

/// The least number of credits of a shard for a circuit.
const CREDITS_MIN: usize = 4;

/// Returns the number of credits of each shard for a circuit.
pub(super) fn credits_of(frames_max: usize, shards: usize) -> usize {
    (frames_max / shards).max(CREDITS_MIN)
}

/// What another shard than shard 0 knows of the line.
pub(super) struct Remote {
    pub(super) shards: usize,
    /// The credits that are left, by circuit.
    pub(super) credits: Vec<usize>,
    /// Packets for shard 0, and their circuits.
    pub(super) outgoing: Vec<(u32, Pdu)>,
}

/// What shard 0 knows of the other shards.
#[derive(Default)]
pub(super) struct Handed {
    /// The packets of other shards that wait for room, and their shards, by circuit.
    pub(super) waiting: Vec<VecDeque<(usize, Pdu)>>,
    /// Number of packets in all lists.
    pub(super) count: usize,
    /// The peers that the other shards know, by circuit.
    pub(super) told: Vec<Option<Ipv4Addr>>,
    /// Whether other shards get the larger half of an odd room.
    pub(super) is_larger: bool,
}
