//! The packets and the curves of a TCP connection that a person looks at to believe a verdict.

use super::connection::{Connection, Packet};
use super::timeline::Timeline;
use crate::excerpt::{Curves, Step, excerpt, thin};
use crate::figures::MILLISECOND;
use crate::finding::Finding;
use kiban_tcpip::wire::tcp::Flags;

/// A wait of this length is marked.
const WAIT_MIN: u64 = 20 * MILLISECOND;

/// Returns the packets around the first evidence of a finding, or the first packets.
pub(crate) fn steps(connection: &Connection, finding: Option<&Finding>) -> Vec<Step> {
    let packets = &connection.packets;
    let place = |at: usize| (packets[at].number, packets[at].at, packets[at].end);
    excerpt(packets.len(), place, finding, WAIT_MIN, |at| words(connection, &packets[at]))
}

/// Returns the contents of a packet, with sequence numbers relative to the SYN.
fn words(connection: &Connection, packet: &Packet) -> String {
    let start = |end: usize| {
        let syn = connection.syn[end].map(|syn| syn.sequence);
        syn.or_else(|| connection.packets.iter().find(|packet| packet.end == end).map(|one| one.sequence))
    };
    let flags = packet.flags.without(Flags::ACK.with(Flags::PSH));
    let name = if flags == Flags::NONE { String::new() } else { format!("{flags} ") };
    let sequence = start(packet.end).map_or(0, |start| packet.sequence.0.wrapping_sub(start.0));
    let acknowledged = start(1 - packet.end).map_or(0, |start| packet.acknowledgment.0.wrapping_sub(start.0));
    // RFC 7323 §2.2: the window of a SYN is not scaled.
    let is_scaled = !packet.flags.has(Flags::SYN);
    let shift = connection.shift(packet.end).filter(|_| is_scaled).unwrap_or(0);
    let window = u64::from(packet.window) << shift;
    if packet.bytes > 0 {
        format!("{name}{} bytes from {sequence}", packet.bytes)
    } else if packet.flags.has(Flags::ACK) {
        format!("{name}ACK {acknowledged}, window {window}")
    } else {
        name.trim_end().to_owned()
    }
}

/// Returns the curves of a direction, thinned out.
pub(crate) fn curves(timeline: &Timeline, begin: u64) -> Curves {
    let seconds = |at: u64| at.saturating_sub(begin) as f64 * 1e-9;
    let mut highest = 0;
    let sent: Vec<(f64, f64)> = timeline
        .sends
        .iter()
        .map(|send| {
            highest = highest.max(send.end);
            (seconds(send.at), highest as f64)
        })
        .collect();
    let acks = || timeline.acks.iter();
    let windows = || acks().filter(|_| timeline.knows_windows);
    let mut arrived = acks().peekable();
    let (mut acknowledged, mut highest) = (0, 0);
    let mut in_flight = Vec::new();
    for send in &timeline.sends {
        while let Some(ack) = arrived.next_if(|ack| ack.at <= send.at) {
            acknowledged = acknowledged.max(ack.acknowledged);
        }
        highest = highest.max(send.end);
        in_flight.push((seconds(send.at), (highest - acknowledged).max(0) as f64));
    }
    Curves {
        in_flight: thin(in_flight),
        window_size: thin(windows().map(|ack| (seconds(ack.at), ack.window as f64)).collect()),
        sent: thin(sent),
        acknowledged: thin(acks().map(|ack| (seconds(ack.captured), ack.acknowledged as f64)).collect()),
        window: thin(
            windows().map(|ack| (seconds(ack.captured), (ack.acknowledged + ack.window) as f64)).collect(),
        ),
    }
}
