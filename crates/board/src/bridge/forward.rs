//! Forwards frames from one member of a bridge to others.

use super::members::{BridgeCounters, FRAME_BYTES_MIN};
use crate::port::{Port, QueueLimit};
use kiban_base::{Context, Pdu, PduPool};
use kiban_tcpip::ethernet::Forward;

/// Forwards a frame from a member of the bridge at port `at`.
pub(crate) fn forward(ports: &mut [Port], at: usize, from: usize, mut pdu: Pdu, cx: &mut Context<'_>) {
    let Some(bridge) = ports[at].bridge() else { return };
    let members = bridge.circuits.len() + 1;
    match bridge.validate(from, &mut pdu, cx) {
        Forward::Nowhere => {}
        Forward::To(member) => hand(ports, at, member, pdu, cx),
        Forward::All => {
            let mut others = (0..members).filter(|member| *member != from).peekable();
            while let Some(member) = others.next() {
                if others.peek().is_none() {
                    return hand(ports, at, member, pdu, cx);
                }
                match copy(&pdu, &mut cx.memory.pdus) {
                    Some(copy) => hand(ports, at, member, copy, cx),
                    None => count(ports, at, |counters| counters.no_memory += 1),
                }
            }
        }
    }
}

/// Sends a frame through a member.
fn hand(ports: &mut [Port], at: usize, member: usize, mut pdu: Pdu, cx: &mut Context<'_>) {
    let Some(bridge) = ports[at].bridge() else { return };
    let Some(place) = member.checked_sub(1) else {
        // RFC 2684 §5.2: a frame received on a circuit may lack the padding that Ethernet requires.
        let missing = FRAME_BYTES_MIN.saturating_sub(pdu.len());
        if missing > 0 {
            pdu.push_tail(missing);
        }
        if let Port::Packets(port) = &mut ports[at] {
            port.queue(None, pdu, QueueLimit::Granted, &mut cx.memory.pdus);
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

/// Copies a frame; the payload is shared.
fn copy(pdu: &Pdu, blocks: &mut PduPool) -> Option<Pdu> {
    let mut copy = blocks.take()?;
    copy.push_head(pdu.head().len()).copy_from_slice(pdu.head());
    for slice in pdu.body() {
        copy.push_body_unmerged(slice.clone()).expect("it has as many places");
    }
    Some(copy)
}
