//! The connections that have not authenticated yet; the order of eviction is that of
//! [`origin`](kiban_os::origin).

use kiban_os::origin::{most_crowded, origin_of};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The unauthenticated connections, each with the means to close it, by number; the oldest has the lowest
/// number.
#[derive(Debug)]
pub(super) struct Unauthenticated<T>(BTreeMap<u64, (IpAddr, T)>);

impl<T> Default for Unauthenticated<T> {
    fn default() -> Unauthenticated<T> {
        Unauthenticated(BTreeMap::new())
    }
}

impl<T> Unauthenticated<T> {
    /// Adds a connection; numbers must increase.
    pub(super) fn add(&mut self, number: u64, address: IpAddr, away: T) {
        self.0.insert(number, (origin_of(address), away));
    }

    /// Removes a connection that has authenticated or ended.
    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        self.0.remove(&number).map(|(_, away)| away)
    }

    /// Removes and returns the connection to be closed first, with its origin; `None` if there are no
    /// connections.
    pub(super) fn evict(&mut self) -> Option<(IpAddr, T)> {
        let place = most_crowded(self.0.values().map(|(origin, _)| *origin))?;
        let number = *self.0.keys().nth(place)?;
        self.0.remove(&number)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_site_with_silent_connections_displaces_only_itself() {
        for (honest, flood) in [
            ("192.0.2.1", "192.0.2.2"),
            ("192.0.2.1", "11.0.0.N"),
            ("192.0.2.1", "11.0.N.1"),
            ("2001:db8:ffff:1::1", "2001:db8:7:N::1"),
            ("2001:db8:ffff:1::1", "2001:db9:N:1::1"),
        ] {
            let mut unauthenticated = Unauthenticated::default();
            let mut add = |number, text: &str| {
                unauthenticated.add(number, text.parse().expect("an address"), number);
            };
            (0..2).for_each(|number| add(number, honest));
            (2..102).for_each(|number| add(number, &flood.replace('N', &number.to_string())));
            add(102, honest);
            assert_eq!((unauthenticated.remove(99), unauthenticated.remove(99)), (Some(99), None));
            for _ in 0..96 {
                let (_, number) = unauthenticated.evict().expect("there are more");
                assert!((2..102).contains(&number), "{number} of {honest} beside {flood}");
            }
            assert_eq!(unauthenticated.len(), 6);
        }
    }
}
