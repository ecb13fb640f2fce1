//! The members of a bridge, and the stations behind them.

use crate::config::BridgePortConfig;
use alloc::vec::Vec;
use kiban_atm::Circuit;
use kiban_base::ethernet::{HEADER_BYTES, Header};
use kiban_base::{Context, Pdu};
use kiban_tcpip::ethernet::{Bridge, Forward};

/// Minimum length of an Ethernet frame without its FCS (IEEE 802.3 §3.2.8).
pub(crate) const FRAME_BYTES_MIN: usize = 60;

kiban_base::counters! {
    /// Counters of a bridge.
    pub struct BridgeCounters {
        /// Frames received from members.
        frames_in,
        /// Frames forwarded only to the member through which their target is reached.
        forwarded,
        /// Frames flooded to all other members.
        flooded,
        /// Frames not forwarded, because their target is the bridge itself or is behind the member they came
        /// from.
        filtered,
        /// Frames shorter than an Ethernet header.
        malformed,
        /// Frames too long for a circuit.
        too_long,
        /// Frames dropped for lack of memory.
        no_memory,
    }
}

/// The bridge of a port.
pub(crate) struct Bridging {
    pub(super) table: Bridge,
    pub(super) circuits: Vec<(usize, Circuit)>,
    pub(crate) counters: BridgeCounters,
}

impl Bridging {
    pub(crate) fn new(config: &BridgePortConfig) -> Bridging {
        let circuits = config.circuits.iter().map(|member| (member.port, Circuit(member.circuit)));
        Bridging { table: Bridge::new(), circuits: circuits.collect(), counters: BridgeCounters::default() }
    }

    /// Returns the member number of a circuit.
    pub(crate) fn member(&self, port: usize, circuit: u32) -> Option<usize> {
        let place = self.circuits.iter().position(|its| *its == (port, Circuit(circuit)))?;
        Some(place + 1)
    }

    /// Decides where a frame goes; returns the number of member ports it goes to.
    pub(super) fn validate(&mut self, from: usize, pdu: &mut Pdu, cx: &mut Context<'_>) -> Forward {
        self.counters.frames_in += 1;
        let header = match pdu.pull_up(HEADER_BYTES) {
            Some(moved) => {
                cx.copies.header_bytes += moved as u64;
                Header::read(pdu.head()).ok()
            }
            None => None,
        };
        let Some((Header { source, target, .. }, _)) = header else {
            self.counters.malformed += 1;
            return Forward::Nowhere;
        };
        let forward = self.table.on_frame(from, source, target, cx.now);
        *match forward {
            Forward::To(_) => &mut self.counters.forwarded,
            Forward::All => &mut self.counters.flooded,
            Forward::Nowhere => &mut self.counters.filtered,
        } += 1;
        forward
    }
}
