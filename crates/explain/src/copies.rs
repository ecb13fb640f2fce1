//! Leaves out packets that are in a file more than once.
//!
//! Purpose          a capture on all interfaces (`tcpdump -i any`) of a bridge or a router has each packet
//!                  once per interface. Every copy would look like a retransmission.
//! Method           a copy has the same headers as an earlier packet of the last second, the identification
//!                  of IPv4 included, which a retransmission does not share. Where there is no identification
//!                  (IPv6, or 0 as RFC 6864 allows), a packet counts as a copy only if the file has most data
//!                  segments twice, because duplicate acknowledgements can be equal as well.
//! Cut copies       network cards and the system join and cut segments, so the copy of one interface may be a
//!                  part of that of another, or several. A segment whose bytes were all seen with the same
//!                  timestamps counts as a copy as well, if most data segments are copies.
//! Which            the first one stays.

use crate::read::Captured;
use kiban_tcpip::wire::tcp::{SackBlock, Sequence};
use std::collections::{BTreeMap, HashMap};
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

/// The bytes that were seen with the same timestamps.
struct Run {
    at: u64,
    origin: Sequence,
    /// Ranges that do not touch each other.
    ranges: Vec<(i32, i32)>,
}

impl Run {
    /// Returns whether the bytes of a segment were seen before, and adds them.
    fn has(&mut self, segment: &Captured) -> bool {
        if segment.at - self.at >= APART_MAX {
            (self.origin, self.ranges) = (segment.header.sequence, Vec::new());
        }
        self.at = segment.at;
        let mut start = segment.header.sequence.0.wrapping_sub(self.origin.0) as i32;
        let mut end = start.saturating_add_unsigned(segment.payload_bytes);
        if self.ranges.iter().any(|(left, right)| *left <= start && end <= *right) {
            return true;
        }
        self.ranges.retain(|(left, right)| {
            let touches = *left <= end && start <= *right;
            if touches {
                (start, end) = (start.min(*left), end.max(*right));
            }
            !touches
        });
        self.ranges.push((start, end));
        false
    }
}

/// Returns whether the bytes of each segment were seen before with the same timestamps.
fn covered(segments: &[Captured]) -> Vec<bool> {
    let mut runs: HashMap<_, Run> = HashMap::new();
    let mut is_covered = |segment: &Captured| {
        let stamps = segment.header.options.timestamps.filter(|_| segment.payload_bytes > 0)?;
        let key = (segment.source, segment.target, stamps.value, stamps.echo);
        let run = Run { at: segment.at, origin: segment.header.sequence, ranges: Vec::new() };
        Some(runs.entry(key).or_insert(run).has(segment))
    };
    segments.iter().map(|segment| is_covered(segment).unwrap_or(false)).collect()
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
    let is_covered = covered(segments);
    let mut seen = is_again.into_iter().zip(is_covered);
    let data = || segments.iter().zip(seen.clone()).filter(|(segment, _)| segment.payload_bytes > 0);
    let (copies, all) = (data().filter(|(_, (again, covered))| *again || *covered).count(), data().count());
    let is_doubled = all > 0 && copies * 5 >= all * 2;
    let before = segments.len();
    segments.retain(|segment| {
        let (is_again, is_covered) = seen.next().expect("one for each segment");
        !(is_again && (is_doubled || segment.identification != 0) || is_covered && is_doubled)
    });
    (before - segments.len()) as u32
}
