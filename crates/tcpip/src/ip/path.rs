//! Path MTU cache (RFC 1191, RFC 8201).
//!
//! Entries          the path MTU of each destination, as reported by routers. A report can only lower it.
//! Age              entries older than `path_mtu_age` expire, so that a larger MTU is tried again.
//! Limits           the number of destinations is fixed; a new entry evicts the oldest.

use alloc::collections::BTreeMap;
use core::net::IpAddr;
use core::time::Duration;
use kiban_base::Instant;

/// The state of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Path {
    /// The path MTU, bytes.
    pub(super) mtu: u16,
    /// The path MTU is below the smallest that we accept, so routers may fragment.
    pub(super) locked: bool,
    /// When it was reported.
    pub(super) since: Instant,
}

/// Path MTUs by destination.
#[derive(Default)]
pub(super) struct Paths {
    known: BTreeMap<IpAddr, Path>,
}

impl Paths {
    pub(super) fn get(&self, target: IpAddr, now: Instant, age: Duration) -> Option<Path> {
        self.known.get(&target).copied().filter(|path| now.since(path.since) < age)
    }

    pub(super) fn learn(&mut self, target: IpAddr, path: Path, paths_max: usize) {
        if self.known.len() >= paths_max
            && !self.known.contains_key(&target)
            && let Some(oldest) =
                self.known.iter().min_by_key(|(_, path)| path.since).map(|(target, _)| *target)
        {
            self.known.remove(&oldest);
        }
        if paths_max > 0 {
            self.known.insert(target, path);
        }
    }
}

/// Returns the next common MTU below the size of a packet that was too long, for routers that do not report
/// theirs (RFC 1191 §7.1, table 7-1).
pub(super) fn plateau_below(packet_bytes: usize) -> u32 {
    const PLATEAUS: [u16; 11] = [65535, 32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68];
    PLATEAUS.into_iter().find(|plateau| usize::from(*plateau) < packet_bytes).unwrap_or(68).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_path_is_evicted_and_an_expired_one_is_ignored() {
        let mut paths = Paths::default();
        let target = |n: u8| IpAddr::from([10, 0, 0, n]);
        let second = |n: u64| Instant::from_nanos(n * 1_000_000_000);
        let age = Duration::from_secs(600);
        for n in 0..4 {
            let path = Path { mtu: 1000 + u16::from(n), locked: false, since: second(n.into()) };
            paths.learn(target(n), path, 3);
        }
        let mtu = |n, now| paths.get(target(n), second(now), age).map(|path| path.mtu);
        assert_eq!([0, 1, 2, 3].map(|n| mtu(n, 10)), [None, Some(1001), Some(1002), Some(1003)]);
        assert_eq!((mtu(1, 600), mtu(1, 601)), (Some(1001), None));
    }

    #[test]
    fn the_plateau_is_below_the_packet_length() {
        for (packet, plateau) in [(65535, 32000), (1500, 1492), (1492, 1006), (69, 68), (68, 68)] {
            assert_eq!(plateau_below(packet), plateau, "{packet}");
        }
    }
}
