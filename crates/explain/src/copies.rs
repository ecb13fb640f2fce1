//! Leaves out packets that are in a file more than once.
//!
//! Purpose          a capture on all interfaces (`tcpdump -i any`) of a bridge or a router has each packet
//!                  once per interface. Every copy would look like a retransmission.
//! Method           a copy has the same headers as an earlier packet of the last second, the identification
//!                  of IPv4 included, which a retransmission does not share. Where there is no identification
//!                  (IPv6, or 0 as RFC 6864 allows), a packet counts as a copy only if the file has most data
//!                  segments twice, because duplicate acknowledgements can be equal as well.
//! Which            the first one stays.

use crate::read::Captured;
use kiban_tcpip::wire::tcp::SackBlock;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;

/// The longest time between copies, ns.
const APART_MAX: u64 = 1_000_000_000;

/// What copies have in common.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    ends: [SocketAddr; 2],
    identification: u16,
    numbers: [u32; 3],
    flags_and_window: [u16; 2],
    timestamps: Option<[u32; 2]>,
    sack: Vec<[u32; 2]>,
}

fn key(segment: &Captured) -> Key {
    let header = &segment.header;
    let edges = |block: &SackBlock| [block.left.0, block.right.0];
    Key {
        ends: [segment.source, segment.target],
        identification: segment.identification,
        numbers: [header.sequence.0, header.acknowledgment.0, segment.payload_bytes],
        flags_and_window: [header.flags.0.into(), header.window],
        timestamps: header.options.timestamps.map(|stamps| [stamps.value, stamps.echo]),
        sack: header.options.sack.as_slice().iter().map(edges).collect(),
    }
}

/// Removes copies from segments, which are in the order of their times, and returns how many.
pub(crate) fn remove(segments: &mut Vec<Captured>) -> u32 {
    let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
    let is_again: Vec<bool> = (0..segments.len())
        .map(|index| {
            let own = key(&segments[index]);
            let mut hasher = DefaultHasher::new();
            own.hash(&mut hasher);
            let before = seen.insert(hasher.finish(), index).map(|before| &segments[before]);
            before.is_some_and(|before| segments[index].at - before.at < APART_MAX && key(before) == own)
        })
        .collect();
    let data = || segments.iter().zip(&is_again).filter(|(segment, _)| segment.payload_bytes > 0);
    let (copies, all) = (data().filter(|(_, again)| **again).count(), data().count());
    let is_doubled = all > 0 && copies * 5 >= all * 2;
    let before = segments.len();
    let mut again = is_again.iter();
    segments.retain(|segment| {
        let is_again = again.next().is_some_and(|again| *again);
        !(is_again && (is_doubled || segment.identification != 0))
    });
    (before - segments.len()) as u32
}
