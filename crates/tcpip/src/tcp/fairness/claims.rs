//! Accounts: small numbers that stand for the peer address and the owner of each session.
//!
//! Purpose          the memory that an address or owner holds is summed in an account. Each session stores
//!                  the numbers of its accounts, so that no segment needs a lookup.
//! Address          an IPv4 address, or the first 64 bits of an IPv6 address, because a peer can choose the
//!                  other bits freely (RFC 4291 §2.5.4).
//! Limits           an account exists while one of its sessions does, so there are at most two per session.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

/// The owner of sessions: the board's own services, or an attached program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Owner(u64);

impl Owner {
    /// The board's own services.
    pub const BOARD: Owner = Owner(0);

    /// Returns the owner for a client number.
    pub const fn client(number: u32) -> Owner {
        Owner(1 << 32 | number as u64)
    }

    /// Returns the owner for a process id of this host.
    pub const fn process(number: u32) -> Owner {
        Owner(2 << 32 | number as u64)
    }
}

/// The account numbers of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Claim {
    pub(crate) owner: u32,
    pub(crate) address: u32,
    /// Whether the owner is the board itself.
    pub(crate) is_boards: bool,
}

/// The part of a peer's address that fairness distinguishes: an IPv4 address, or the first 64 bits of IPv6.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerNet {
    is_v6: bool,
    bits: u64,
}

impl From<IpAddr> for PeerNet {
    fn from(address: IpAddr) -> PeerNet {
        match address {
            IpAddr::V4(v4) => PeerNet { is_v6: false, bits: v4.to_bits().into() },
            IpAddr::V6(v6) => PeerNet { is_v6: true, bits: (v6.to_bits() >> 64) as u64 },
        }
    }
}

type Key = (Owner, Option<PeerNet>);

#[derive(Debug, Default)]
struct Entry {
    key: Key,
    sessions: usize,
    half_open: usize,
}

/// All accounts.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    numbers: BTreeMap<Key, u32>,
    entries: Vec<Entry>,
    free: Vec<u32>,
}

impl Claims {
    fn enter(&mut self, key: Key) -> u32 {
        let number = *self.numbers.entry(key).or_insert_with(|| {
            let number = self.free.pop().unwrap_or_else(|| {
                self.entries.push(Entry::default());
                self.entries.len() as u32 - 1
            });
            self.entries[number as usize] = Entry { key, ..Entry::default() };
            number
        });
        self.entries[number as usize].sessions += 1;
        number
    }

    /// Counts a new session.
    pub(crate) fn begin(&mut self, owner: Owner, remote: IpAddr) -> Claim {
        Claim {
            owner: self.enter((owner, None)),
            address: self.enter((owner, Some(remote.into()))),
            is_boards: owner == Owner::BOARD,
        }
    }

    /// Removes a session that has ended.
    pub(crate) fn end(&mut self, claim: Claim) {
        for number in [claim.owner, claim.address] {
            let entry = &mut self.entries[number as usize];
            entry.sessions -= 1;
            if entry.sessions == 0 {
                self.numbers.remove(&entry.key);
                self.free.push(number);
            }
        }
    }

    /// Records that a session of a listener has begun or is no longer half open.
    pub(crate) fn set_half_open(&mut self, claim: Claim, is_half_open: bool) {
        let count = &mut self.entries[claim.address as usize].half_open;
        *count = if is_half_open { *count + 1 } else { count.saturating_sub(1) };
    }

    /// Returns the number of half-open sessions of an address.
    pub(crate) fn half_open(&self, claim: Claim) -> usize {
        self.entries[claim.address as usize].half_open
    }

    /// Returns the number of sessions of an account.
    pub(crate) fn sessions(&self, number: u32) -> usize {
        self.entries[number as usize].sessions
    }

    fn find(&self, key: Key) -> Option<&Entry> {
        self.numbers.get(&key).map(|number| &self.entries[*number as usize])
    }

    /// Returns the number of half-open sessions of an address, which may have no account.
    pub(crate) fn half_open_of(&self, owner: Owner, remote: IpAddr) -> usize {
        self.find((owner, Some(remote.into()))).map_or(0, |entry| entry.half_open)
    }

    /// Returns the number of sessions of an owner, and the number of those with one peer address.
    pub(crate) fn sessions_of(&self, owner: Owner, remote: IpAddr) -> (usize, usize) {
        let count = |net| self.find((owner, net)).map_or(0, |entry| entry.sessions);
        (count(None), count(Some(remote.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_live_as_long_as_their_sessions() {
        let mut claims = Claims::default();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let one = claims.begin(Owner::BOARD, address("10.0.0.1"));
        let other = claims.begin(Owner::BOARD, address("10.0.0.2"));
        assert!(one.owner == other.owner && one.address != other.address);
        // Only the first 64 bits of an IPv6 address count, and an IPv4 address never equals an IPv6 prefix
        // with the same bits.
        let six = claims.begin(Owner::BOARD, address("2001:db8::1"));
        assert_eq!(claims.begin(Owner::BOARD, address("2001:db8::2:3:4:5")), six);
        assert_ne!(claims.begin(Owner::BOARD, address("2001:db8:0:1::1")).address, six.address);
        assert_ne!(claims.begin(Owner::BOARD, address("::a00:1:0:0:0:0")).address, one.address);
        // The peers of a program are counted separately.
        let program = claims.begin(Owner::client(0), address("10.0.0.1"));
        assert!(program.owner != one.owner && program.address != one.address && !program.is_boards);
        assert_eq!(claims.sessions_of(Owner::BOARD, address("10.0.0.1")), (6, 1));
        for claim in [one, other, six, six, program] {
            claims.end(claim);
        }
        assert_eq!(claims.sessions_of(Owner::BOARD, address("2001:db8::9")), (2, 0));
        assert_eq!(claims.sessions_of(Owner::client(0), address("10.0.0.1")), (0, 0));
        let entries = claims.entries.len();
        claims.begin(Owner::client(7), address("10.0.0.7"));
        assert_eq!(claims.entries.len(), entries, "numbers are used again");
    }
}
