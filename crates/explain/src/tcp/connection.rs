//! Sorts segments into connections.
//!
//! Ends             end 0 is the client: the sender of the SYN or, if the capture begins later, the end with
//!                  the higher port.
//! Reuse            a SYN with another sequence number begins a new connection between the same ports.

use crate::read::Captured;
use kiban_tcpip::wire::tcp::{Flags, SackBlocks, Sequence, Timestamps};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A segment of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) number: u32,
    /// Nanoseconds since the first segment of the file.
    pub(crate) at: u64,
    /// The end that sent it.
    pub(crate) end: usize,
    pub(crate) sequence: Sequence,
    pub(crate) acknowledgment: Sequence,
    pub(crate) flags: Flags,
    /// The window field, unscaled.
    pub(crate) window: u16,
    pub(crate) bytes: u32,
    pub(crate) timestamps: Option<Timestamps>,
    pub(crate) sack: SackBlocks,
    /// The identification of an IPv4 packet; 0 for IPv6.
    pub(crate) identification: u16,
}

/// The options of a SYN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Syn {
    pub(crate) number: u32,
    pub(crate) sequence: Sequence,
    /// The window, which is never scaled in a SYN (RFC 7323 §2.2).
    pub(crate) window: u16,
    pub(crate) mss: Option<u16>,
    pub(crate) window_shift: Option<u8>,
}

/// A connection, as far as it was captured.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) ends: [SocketAddr; 2],
    pub(crate) packets: Vec<Packet>,
    /// The SYN of each end, if it was captured.
    pub(crate) syn: [Option<Syn>; 2],
}

impl Connection {
    /// Returns the shift of the windows that `end` advertises (RFC 7323 §2.2: scaling needs both options).
    /// `None` if a SYN is missing, so that it is not known.
    pub(crate) fn shift(&self, end: usize) -> Option<u8> {
        let [client, server] = [self.syn[0]?, self.syn[1]?];
        Some(match (client.window_shift, server.window_shift) {
            (Some(client), Some(server)) => [client, server][end].min(14),
            _ => 0,
        })
    }

    /// Returns how many bytes the headers of IP and TCP take in a segment without rare options.
    pub(crate) fn header_bytes(&self) -> i64 {
        let ip = if self.ends[0].is_ipv6() { 40 } else { 20 };
        let stamps = if self.packets.iter().any(|packet| packet.timestamps.is_some()) { 12 } else { 0 };
        ip + 20 + stamps
    }

    fn push(&mut self, segment: &Captured) {
        let header = &segment.header;
        let end = usize::from(segment.source != self.ends[0]);
        if header.flags.has(Flags::SYN) {
            self.syn[end].get_or_insert(Syn {
                number: segment.number,
                sequence: header.sequence,
                window: header.window,
                mss: header.options.mss,
                window_shift: header.options.window_shift,
            });
        }
        self.packets.push(Packet {
            number: segment.number,
            at: segment.at,
            end,
            sequence: header.sequence,
            acknowledgment: header.acknowledgment,
            flags: header.flags,
            window: header.window,
            bytes: segment.payload_bytes,
            timestamps: header.options.timestamps,
            sack: header.options.sack,
            identification: segment.identification,
        });
    }
}

/// Returns the connections in the order of their first packets.
pub(crate) fn connections(segments: &[Captured]) -> Vec<Connection> {
    let mut connections: Vec<Connection> = Vec::new();
    let mut current = BTreeMap::new();
    for segment in segments {
        let (source, target) = (segment.source, segment.target);
        let flags = segment.header.flags;
        let is_syn = flags.has(Flags::SYN) && !flags.has(Flags::ACK);
        let key = if source < target { (source, target) } else { (target, source) };
        let known = current.get(&key).copied().filter(|known| {
            let connection: &Connection = &connections[*known];
            let end = usize::from(source != connection.ends[0]);
            // A SYN may have been recorded after its answer, on another interface.
            let is_late = connection.syn[1 - end].is_some();
            let is_same = |syn: Syn| syn.sequence == segment.header.sequence;
            !is_syn || connection.syn[end].map_or(is_late, is_same)
        });
        let index = known.unwrap_or_else(|| {
            let is_late = !flags.has(Flags::SYN) && source.port() < target.port();
            let is_answer = flags.has(Flags::SYN) && !is_syn || is_late;
            let ends = if is_answer { [target, source] } else { [source, target] };
            connections.push(Connection { ends, packets: Vec::new(), syn: [None; 2] });
            current.insert(key, connections.len() - 1);
            connections.len() - 1
        });
        connections[index].push(segment);
    }
    connections
}
