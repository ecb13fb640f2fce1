//! The session slots of a service, shared among peer addresses.
//!
//! Purpose   A service stays reachable from other addresses even if all its slots are taken by slow sessions,
//!           whether these belong to one peer address or to many. A caller is a peer that opens a session.
//! Rule      While a slot is free, any session gets it. When no slot is free, the address with the most
//!           sessions loses the session that has been idle longest, provided that the caller's address has at
//!           least two sessions fewer.
//! Tie       If no address has more than one session, a caller from an address without a session replaces the
//!           address that has taken longest to transfer its next `EARNING_BYTES`, if it has already taken at
//!           least `TENURE`. An address that steadily transfers twice that amount per tenure keeps its slot.
//!           Any other caller is refused.
//! Account   Each address has an account, which records when the current period began and how many bytes the
//!           address has transferred since. Every `EARNING_BYTES` transferred start a new period. The age of
//!           an account does not grow while the address has no session. If the next session begins within
//!           `MEMORY`, the account continues, so that reconnecting does not start a new tenure. A caller with
//!           such an account can displace only an address whose account is older by at least a tenure, so
//!           that a displaced address cannot immediately displace the one that displaced it.
//! Flow      With `tcp.fairness = "flow"`, addresses make no difference: callers are refused when no slot is
//!           free.
//! Host      Sessions opened by programs on this host belong to no address, and are never closed to make
//!           room. In a tie, such a program is treated like a caller from a new address.
//! Reserve   the caller may leave slots free for others: to it, the service is full when no more than those
//!           are free (`take`).
//! Limits    Addresses that all transfer `EARNING_BYTES` per tenure keep their slots.
//! Cost      Two ordered sets of addresses. Byte counts are read from TCP only in a tie, at most once a
//!           second. Sessions are searched only when one has to be closed. To cause either, a caller must
//!           complete a handshake.

use super::service::MINIMUM_RATE;
use kiban_base::Instant;
use kiban_board::{Host, StreamId};
use kiban_tcpip::tcp::PeerNet;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// How long an address keeps its slot even if it transfers nothing.
const TENURE: Duration = Duration::from_secs(20);
/// Number of bytes, in both directions together, that an address must transfer to earn another tenure.
const EARNING_BYTES: u64 = MINIMUM_RATE * TENURE.as_secs();
/// Maximum age of a returning address's account. It limits the wait for a slot to this age plus a tenure,
/// even if earlier sessions were idle for longer. (The bytes of a session that ended with a reset may not
/// have been counted.) With this value, six slow clients take turns; with 40 s they do not.
const AGE_MAX: Duration = Duration::from_secs(120);
/// How long the account of an address without sessions is kept, and the maximum number of such accounts.
const MEMORY: Duration = Duration::from_secs(600);
const REMEMBERED_MAX: usize = 65_536;
/// Minimum interval between readings of the sessions' byte counts.
const READING: Duration = Duration::from_secs(1);

/// Account of an address.
#[derive(Clone, Copy)]
struct Account {
    sessions: usize,
    /// When the current period began, adjusted for the time during which the address had no session.
    since: Instant,
    /// Bytes moved since then.
    bytes: u64,
    /// When its last session ended.
    left_at: Instant,
}

/// The accounts of all addresses, and the number of slots in use.
#[derive(Default)]
struct Accounts {
    now: Instant,
    taken: usize,
    by_net: BTreeMap<PeerNet, Account>,
    /// Addresses with sessions, ordered by number of sessions (fewest first) and by age of account (oldest
    /// first).
    by_sessions: BTreeSet<(usize, PeerNet)>,
    by_age: BTreeSet<(Instant, PeerNet)>,
    /// Addresses without sessions, ordered by when the last session ended.
    by_absence: BTreeSet<(Instant, PeerNet)>,
}

impl Accounts {
    fn sessions(&self, net: Option<PeerNet>) -> usize {
        net.and_then(|net| self.by_net.get(&net)).map_or(0, |account| account.sessions)
    }

    /// Returns the account of an address. If the address has no account, or has had no session for longer
    /// than `MEMORY`, returns a new account.
    fn account(&self, net: PeerNet) -> Account {
        let new = Account { sessions: 0, since: self.now, bytes: 0, left_at: self.now };
        let Some(mut account) = self.by_net.get(&net).copied() else { return new };
        if account.sessions > 0 {
            return account;
        }
        if account.left_at + MEMORY <= self.now {
            return new;
        }
        let age = account.left_at.since(account.since).min(AGE_MAX);
        account.since = self.now - age;
        account.left_at = self.now;
        account
    }

    /// Changes the account of an address.
    fn change(&mut self, net: PeerNet, change: impl FnOnce(&mut Account)) {
        let mut account = self.account(net);
        if let Some(old) = self.by_net.get(&net) {
            self.by_sessions.remove(&(old.sessions, net));
            self.by_age.remove(&(old.since, net));
            self.by_absence.remove(&(old.left_at, net));
        }
        change(&mut account);
        if account.bytes >= EARNING_BYTES {
            (account.since, account.bytes) = (self.now, 0);
        }
        if account.sessions == 0 {
            account.left_at = self.now;
            self.by_absence.insert((self.now, net));
        } else {
            self.by_sessions.insert((account.sessions, net));
            self.by_age.insert((account.since, net));
        }
        self.by_net.insert(net, account);
    }

    /// Removes the accounts of addresses that have had no session for `MEMORY`, and the oldest of these
    /// accounts if there are too many.
    fn forget(&mut self) {
        while let Some((left_at, net)) = self.by_absence.first().copied()
            && (left_at + MEMORY <= self.now || self.by_absence.len() > REMEMBERED_MAX)
        {
            self.by_absence.pop_first();
            self.by_net.remove(&net);
        }
    }
}

/// The slots of one service.
pub(super) struct SessionSlots {
    most: usize,
    read_at: Cell<Option<Instant>>,
    accounts: Rc<RefCell<Accounts>>,
}

/// A slot in use; dropping it frees the slot.
pub(super) struct SessionSlot {
    /// The peer's address; `None` for a program on this host.
    net: Option<PeerNet>,
    /// The session's byte count at the last reading.
    moved: Cell<u64>,
    accounts: Rc<RefCell<Accounts>>,
}

impl SessionSlot {
    /// Adds the bytes received and acknowledged by the session since the last reading to the account.
    pub(super) fn read(&self, stream: StreamId, host: &mut Host<'_>) {
        let (Some(net), Ok(info)) = (self.net, host.info(stream)) else { return };
        let moved = info.bytes_in + info.bytes_acknowledged;
        let more = moved.saturating_sub(self.moved.replace(moved));
        if more > 0 {
            self.accounts.borrow_mut().change(net, |account| account.bytes += more);
        }
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        let mut accounts = self.accounts.borrow_mut();
        accounts.taken -= 1;
        if let Some(net) = self.net {
            accounts.change(net, |account| account.sessions -= 1);
            accounts.forget();
        }
    }
}

impl SessionSlots {
    pub(super) fn new(most: usize) -> SessionSlots {
        SessionSlots { most, read_at: Cell::default(), accounts: Rc::default() }
    }

    /// Sets the current time, which accounts record when sessions begin and end.
    pub(super) fn set_now(&self, now: Instant) {
        self.accounts.borrow_mut().now = now;
    }

    /// Takes a slot for a new session with a peer at `net`, or with a program on this host (`None`). Returns
    /// the slot; and if a session must be closed to free it, also that session's stream. Returns `None` if
    /// the new session is refused. `keeps` slots stay free for others. `sessions` lists the existing
    /// sessions: stream, slot, and time of the last data transfer.
    pub(super) fn take<'a>(
        &self,
        net: Option<PeerNet>,
        keeps: usize,
        sessions: impl Iterator<Item = (StreamId, &'a SessionSlot, Instant)> + Clone,
        host: &mut Host<'_>,
    ) -> Option<(SessionSlot, Option<StreamId>)> {
        let displaced = if self.free() > keeps {
            None
        } else {
            let loses = self.loser(net, sessions.clone(), host)?;
            let of_net = sessions.filter(|(_, slot, _)| slot.net == Some(loses));
            Some(of_net.min_by_key(|(_, _, moved_at)| *moved_at)?.0)
        };
        Some((self.give(net), displaced))
    }

    /// Returns whether no slot is free.
    pub(super) fn are_taken(&self) -> bool {
        self.free() == 0
    }

    fn free(&self) -> usize {
        self.most.saturating_sub(self.accounts.borrow().taken)
    }

    /// Returns how many slots must stay free for others when `taken` slots are of one kind: an eighth of all
    /// if the kind has more than half.
    pub(super) fn reserve(&self, taken: impl FnOnce() -> usize) -> usize {
        let reserve = self.most / 8;
        if self.free() <= reserve && taken() > self.most / 2 { reserve } else { 0 }
    }

    fn give(&self, net: Option<PeerNet>) -> SessionSlot {
        let mut accounts = self.accounts.borrow_mut();
        accounts.taken += 1;
        if let Some(net) = net {
            accounts.change(net, |account| account.sessions += 1);
        }
        SessionSlot { net, moved: Cell::new(0), accounts: self.accounts.clone() }
    }

    /// Returns the address, if any, that must give up a session to a caller at `net`.
    fn loser<'a>(
        &self,
        net: Option<PeerNet>,
        sessions: impl Iterator<Item = (StreamId, &'a SessionSlot, Instant)>,
        host: &mut Host<'_>,
    ) -> Option<PeerNet> {
        let (own, most) = {
            let accounts = self.accounts.borrow();
            (accounts.sessions(net), accounts.by_sessions.last().copied())
        };
        let (most, greediest) = most.filter(|_| host.shares_by_address())?;
        if most >= own + 2 {
            return Some(greediest);
        }
        if own > 0 {
            return None;
        }
        let (since, now) = {
            let accounts = self.accounts.borrow();
            (net.map_or(accounts.now, |net| accounts.account(net).since), accounts.now)
        };
        let oldest = || self.accounts.borrow().by_age.first().copied();
        let is_over = |&(from, _): &(Instant, PeerNet)| from + TENURE <= since;
        oldest().filter(is_over)?;
        if self.read_at.get().is_none_or(|read_at| read_at + READING <= now) {
            self.read_at.set(Some(now));
            sessions.for_each(|(stream, slot, _)| slot.read(stream, host));
        }
        oldest().filter(is_over).map(|(_, net)| net)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(number: u32) -> PeerNet {
        PeerNet::from(std::net::IpAddr::from(number.to_be_bytes()))
    }

    #[test]
    fn dropping_slots_updates_the_counts_and_accounts_expire() {
        let slots = SessionSlots::new(2);
        let later = |seconds| slots.set_now(Instant::ZERO + Duration::from_secs(seconds));
        let held = [Some(1), Some(1), Some(2), None].map(|number| slots.give(number.map(net)));
        assert_eq!(slots.accounts.borrow().taken, 4);
        later(30);
        drop(held);
        {
            let accounts = slots.accounts.borrow();
            let sizes = (accounts.taken, accounts.by_sessions.len(), accounts.by_age.len());
            assert_eq!((sizes, accounts.by_absence.len()), ((0, 0, 0), 2));
            assert_eq!(accounts.now.since(accounts.account(net(1)).since), Duration::from_secs(30));
        }
        // Time without sessions does not add to the age of the account. The account is removed after `MEMORY`
        // has passed since the last session ended.
        later(500);
        assert_eq!(slots.accounts.borrow().account(net(1)).since, Instant::ZERO + Duration::from_secs(470));
        // The account is removed even if no other session ends in the meantime.
        later(630);
        assert_eq!(slots.accounts.borrow().account(net(1)).since, Instant::ZERO + Duration::from_secs(630));
        drop(slots.give(Some(net(3))));
        assert_eq!(slots.accounts.borrow().by_net.len(), 1);
    }

    #[test]
    fn a_long_idle_session_does_not_age_its_address_beyond_a_limit() {
        let slots = SessionSlots::new(1);
        let later = |seconds| slots.set_now(Instant::ZERO + Duration::from_secs(seconds));
        let held = slots.give(Some(net(1)));
        later(36_000);
        let age = || slots.accounts.borrow().now.since(slots.accounts.borrow().account(net(1)).since);
        assert_eq!(age(), Duration::from_secs(36_000));
        drop(held);
        assert_eq!(age(), AGE_MAX);
        later(36_100);
        assert_eq!(age(), AGE_MAX);
    }

    #[test]
    fn only_a_majority_leaves_slots_for_others() {
        let slots = SessionSlots::new(16);
        let held: Vec<_> = (0..13).map(|number| slots.give(Some(net(number)))).collect();
        assert_eq!(slots.reserve(|| panic!("enough are free")), 0);
        let more = slots.give(Some(net(13)));
        assert_eq!((slots.reserve(|| 8), slots.reserve(|| 9)), (0, 2));
        drop((held, more));
        let few = SessionSlots::new(7);
        let _held: Vec<_> = (0..7).map(|number| few.give(Some(net(number)))).collect();
        assert_eq!(few.reserve(|| 7), 0);
    }

    #[test]
    fn the_number_of_remembered_addresses_is_limited() {
        let slots = SessionSlots::new(2);
        for number in 0..REMEMBERED_MAX as u32 + 100 {
            slots.set_now(Instant::from_nanos(number.into()));
            drop(slots.give(Some(net(number))));
        }
        let accounts = slots.accounts.borrow();
        assert_eq!((accounts.by_net.len(), accounts.by_absence.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
        assert!(!accounts.by_net.contains_key(&net(99)) && accounts.by_net.contains_key(&net(100)));
    }
}
