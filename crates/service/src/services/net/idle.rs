//! Entries that end when they have been idle for too long, or when others need their room.

use kiban_base::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long an entry may be idle (RFC 4787 REQ-5: at least two minutes).
const IDLE: Duration = Duration::from_secs(120);
/// Maximum number of entries: with the sessions' sockets, below the usual limit of open files.
pub(super) const ENTRIES_MAX: usize = 512;

/// Entries, ordered also by their last use.
pub(super) struct IdleMap<K, V> {
    entries: BTreeMap<K, (Instant, V)>,
    by_use: BTreeSet<(Instant, K)>,
}

impl<K: Copy + Ord, V> IdleMap<K, V> {
    pub(super) fn new() -> IdleMap<K, V> {
        IdleMap { entries: BTreeMap::new(), by_use: BTreeSet::new() }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// Records that an entry is used.
    pub(super) fn touch(&mut self, key: K, now: Instant) {
        if let Some((used_at, _)) = self.entries.get_mut(&key) {
            self.by_use.remove(&(*used_at, key));
            *used_at = now;
            self.by_use.insert((now, key));
        }
    }

    /// Adds or replaces an entry. Beyond [`ENTRIES_MAX`], removes and returns the one that has been idle for
    /// longest.
    pub(super) fn insert(&mut self, key: K, value: V, now: Instant) -> Option<V> {
        self.remove(&key);
        let is_full = self.entries.len() >= ENTRIES_MAX;
        let longest = self.by_use.first().filter(|_| is_full).map(|(_, key)| *key);
        let idle = longest.and_then(|key| self.remove(&key));
        self.by_use.insert((now, key));
        self.entries.insert(key, (now, value));
        idle
    }

    fn remove(&mut self, key: &K) -> Option<V> {
        let (used_at, value) = self.entries.remove(key)?;
        self.by_use.remove(&(used_at, *key));
        Some(value)
    }

    /// Removes an entry that has been idle for too long, if there is one.
    pub(super) fn expire(&mut self, now: Instant) -> Option<V> {
        let &(_, idle) = self.by_use.first().filter(|(used_at, _)| *used_at + IDLE <= now)?;
        self.remove(&idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_are_not_used_make_room_and_expire() {
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut map = IdleMap::new();
        for key in 0..ENTRIES_MAX {
            assert_eq!(map.insert(key, key, at(0)), None);
        }
        map.touch(0, at(1));
        // A replaced entry takes no other's room.
        assert_eq!(map.insert(1, 1, at(1)), None);
        assert_eq!(map.insert(ENTRIES_MAX, ENTRIES_MAX, at(1)), Some(2));
        assert_eq!((map.get(&0), map.get(&2)), (Some(&0), None));
        assert_eq!(map.expire(at(119)), None);
        let expired: Vec<usize> = std::iter::from_fn(|| map.expire(at(120))).collect();
        assert_eq!(expired, (3..ENTRIES_MAX).collect::<Vec<_>>());
        let expired: Vec<usize> = std::iter::from_fn(|| map.expire(at(121))).collect();
        assert_eq!(expired, [0, 1, ENTRIES_MAX]);
    }
}
