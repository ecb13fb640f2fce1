//! Limits the connections that have not authenticated yet.
//!
//! Purpose    if a host opens thousands of silent connections, only its own connections are closed.
//! Operation  when there are too many connections, the oldest one of the origin with the most connections is
//!            closed. If several origins have equally many, the oldest connection of these origins is
//!            closed. An origin is an IPv4 address, or the first 64 bits of an IPv6 address, which is the
//!            prefix of one subscriber.
//! Cost       each step takes logarithmic time in the number of connections.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

/// Returns the origin of an address, which is the part that a subscriber cannot easily change.
pub(super) fn origin_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
    }
}

/// The unauthenticated connections, each with the means to close it.
#[derive(Debug)]
pub(super) struct Unauthenticated<T> {
    /// All unauthenticated connections by number; the oldest has the lowest number.
    all: BTreeMap<u64, (IpAddr, T)>,
    by_origin: BTreeMap<IpAddr, BTreeSet<u64>>,
    /// The origins, sorted by the number of their connections, then by the age of the oldest. The last origin
    /// loses a connection next.
    crowds: BTreeMap<(usize, Reverse<u64>), IpAddr>,
}

impl<T> Default for Unauthenticated<T> {
    fn default() -> Unauthenticated<T> {
        Unauthenticated { all: BTreeMap::new(), by_origin: BTreeMap::new(), crowds: BTreeMap::new() }
    }
}

impl<T> Unauthenticated<T> {
    /// Adds a connection; numbers must increase.
    pub(super) fn add(&mut self, number: u64, address: IpAddr, away: T) {
        let origin = origin_of(address);
        self.all.insert(number, (origin, away));
        self.change(origin, |numbers| numbers.insert(number));
    }

    /// Removes a connection that has authenticated or ended.
    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let (origin, away) = self.all.remove(&number)?;
        self.change(origin, |numbers| numbers.remove(&number));
        Some(away)
    }

    /// Changes the connections of an origin, and its position among the origins.
    fn change(&mut self, origin: IpAddr, change: impl FnOnce(&mut BTreeSet<u64>) -> bool) {
        let numbers = self.by_origin.entry(origin).or_default();
        if let Some(&oldest) = numbers.first() {
            self.crowds.remove(&(numbers.len(), Reverse(oldest)));
        }
        change(numbers);
        match numbers.first() {
            Some(&oldest) => drop(self.crowds.insert((numbers.len(), Reverse(oldest)), origin)),
            None => drop(self.by_origin.remove(&origin)),
        }
    }

    /// Removes and returns the connection to be closed first; `None` if there are no connections.
    pub(super) fn evict(&mut self) -> Option<(IpAddr, T)> {
        let (&(_, Reverse(oldest)), &origin) = self.crowds.last_key_value()?;
        Some((origin, self.remove(oldest)?))
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_origin_with_too_many_connections_loses_only_its_own() {
        let mut unauthenticated = Unauthenticated::default();
        unauthenticated.add(1, from("192.0.2.1"), 'a');
        (2..100).for_each(|number| unauthenticated.add(number, from("192.0.2.2"), 'b'));
        unauthenticated.add(100, from("192.0.2.3"), 'c');
        for _ in 0..97 {
            assert_eq!(unauthenticated.evict(), Some((from("192.0.2.2"), 'b')));
        }
        assert_eq!(
            (unauthenticated.len(), unauthenticated.remove(99), unauthenticated.remove(99)),
            (3, Some('b'), None)
        );
        assert_eq!(unauthenticated.evict().map(|gone| gone.1), Some('a'));
        assert_eq!(unauthenticated.evict().map(|gone| gone.1), Some('c'));
        assert_eq!(unauthenticated.evict(), None);
        assert!(unauthenticated.by_origin.is_empty() && unauthenticated.crowds.is_empty());
    }

    #[test]
    fn silent_connections_of_many_origins_do_not_displace_a_newcomer() {
        let newcomers = ["9.0.0.1", "203.0.113.9", "2001:db8::1"];
        for newcomer in newcomers.map(from) {
            let mut unauthenticated = Unauthenticated::default();
            for number in 0..1024 {
                unauthenticated.add(number, IpAddr::from([11, 0, (number >> 8) as u8, number as u8]), number);
            }
            unauthenticated.add(1024, newcomer, 1024);
            let closed: Vec<u64> =
                (0..1024).filter_map(|_| unauthenticated.evict().map(|gone| gone.1)).collect();
            assert_eq!(closed, (0..1024).collect::<Vec<u64>>(), "beside {newcomer}: the oldest first");
            assert_eq!(unauthenticated.evict(), Some((origin_of(newcomer), 1024)));
        }
    }

    #[test]
    fn an_origin_is_one_subscribers_prefix() {
        let rows = [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2::", "2001:db8:1:2::"),
        ];
        for (address, origin) in rows {
            assert_eq!(origin_of(from(address)), from(origin));
        }
    }
}
