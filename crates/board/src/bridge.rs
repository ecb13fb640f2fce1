//! A bridge between a link of Ethernet frames and circuits that carry such frames (RFC 2684 §5.2, §6.2).
//!
//! Members   the port's own link is member 0, its circuits follow in their order. Who is where is learned ([`Bridge`]).
//! Copies    a frame for several members is copied by its head alone; its payload is shared.
//! Limits    frames longer than a circuit's are dropped and counted.

use crate::config::BridgePortConfig;
use crate::port::{Claim, Port};
use alloc::vec::Vec;
use kiban_ground::{Blocks, Context, Pdu};
use kiban_stack::atm::Circuit;
use kiban_stack::ethernet::{Bridge, Forward};
use kiban_wire::ethernet::{HEADER_BYTES, Header};

/// The shortest frame on an Ethernet without its FCS (IEEE 802.3 §3.2.8).
pub(crate) const FRAME_BYTES_MIN: usize = 60;

kiban_ground::counters! {
    /// What happened at a bridge.
    pub struct BridgeCounters {
        /// Frames that came from its members.
        frames_in,
        /// Frames that went to the one member behind which their target is.
        forwarded,
        /// Frames that went to all other members.
        flooded,
        /// Frames whose target is on their own side, or the bridge.
        filtered,
        /// Frames too short to be any.
        malformed,
        /// Frames too long for a circuit.
        too_long,
        /// Frames that found no memory.
        starved,
    }
}

/// The bridge of a port.
pub(crate) struct Bridging {
    table: Bridge,
    circuits: Vec<(usize, Circuit)>,
    pub(crate) counters: BridgeCounters,
}

impl Bridging {
    pub(crate) fn new(config: &BridgePortConfig) -> Bridging {
        let circuits = config.circuits.iter().map(|member| (member.port, Circuit(member.circuit)));
        Bridging { table: Bridge::new(), circuits: circuits.collect(), counters: BridgeCounters::default() }
    }

    /// The member that a circuit is.
    pub(crate) fn member(&self, port: usize, circuit: u32) -> Option<usize> {
        let place = self.circuits.iter().position(|its| *its == (port, Circuit(circuit)))?;
        Some(place + 1)
    }

    /// Where a frame goes, and how many members there are.
    fn judge(&mut self, from: usize, pdu: &mut Pdu, cx: &mut Context<'_>) -> Forward {
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

/// A frame has come from a member of the bridge at port `at`.
pub(crate) fn forward(ports: &mut [Port], at: usize, from: usize, mut pdu: Pdu, cx: &mut Context<'_>) {
    let Some(bridge) = ports[at].bridge() else { return };
    let members = bridge.circuits.len() + 1;
    match bridge.judge(from, &mut pdu, cx) {
        Forward::Nowhere => {}
        Forward::To(member) => hand(ports, at, member, pdu, cx),
        Forward::All => {
            let mut others = (0..members).filter(|member| *member != from).peekable();
            while let Some(member) = others.next() {
                if others.peek().is_none() {
                    return hand(ports, at, member, pdu, cx);
                }
                match copy(&pdu, &mut cx.memory.blocks) {
                    Some(copy) => hand(ports, at, member, copy, cx),
                    None => count(ports, at, |counters| counters.starved += 1),
                }
            }
        }
    }
}

/// A frame leaves through a member.
fn hand(ports: &mut [Port], at: usize, member: usize, mut pdu: Pdu, cx: &mut Context<'_>) {
    let Some(bridge) = ports[at].bridge() else { return };
    let Some(place) = member.checked_sub(1) else {
        // RFC 2684 §5.2: what came over a circuit may lack its padding, which an Ethernet wants.
        let missing = FRAME_BYTES_MIN.saturating_sub(pdu.len());
        if missing > 0 {
            pdu.push_tail(missing);
        }
        if let Port::Packets(port) = &mut ports[at] {
            port.queue(None, pdu, Claim::Granted, &mut cx.memory.blocks);
        }
        return;
    };
    let (port, circuit) = bridge.circuits[place];
    if let Port::Atm(atm) = &mut ports[port]
        && !atm.send_frame(circuit, pdu, cx)
    {
        count(ports, at, |counters| counters.too_long += 1);
    }
}

fn count(ports: &mut [Port], at: usize, add: impl FnOnce(&mut BridgeCounters)) {
    if let Some(bridge) = ports[at].bridge() {
        add(&mut bridge.counters);
    }
}

/// A frame once more; its payload is shared.
fn copy(pdu: &Pdu, blocks: &mut Blocks) -> Option<Pdu> {
    let mut copy = blocks.take()?;
    copy.push_head(pdu.head().len()).copy_from_slice(pdu.head());
    for slice in pdu.body() {
        copy.push_body_apart(slice.clone()).expect("it has as many places");
    }
    Some(copy)
}
