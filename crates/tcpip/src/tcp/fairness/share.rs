//! Fair sharing of one memory pool among sessions, peer addresses and owners (attached programs).
//!
//! Purpose          no session starves because another hoards memory: the memory held is bounded per session,
//!                  per peer address and per owner.
//! Session          a session may hold half of the memory that all others leave free, and half of what the
//!                  other sessions of its address leave of that address's share (dynamic thresholds with a
//!                  factor of 1: Choudhury and Hahne 1998). Up to `floor_bytes`, it may exceed these limits.
//!                  So n greedy sessions settle at 1/(n+1) of the memory each, and 1/(n+1) stays free.
//! Address          the sessions of one peer address (IPv4 /32, IPv6 /64) together may hold half of what
//!                  other addresses leave. With `fairness = "flow"` addresses are ignored.
//! Sole address     while no other address holds or wants memory, "Recent progress" and "Live sessions" below
//!                  do not apply: the sessions' thresholds only keep an eighth free for the next address. A
//!                  session may always hold one floor; one of the board's own services may hold up to
//!                  [`FLOORS`] floors (at most half of the free memory), even out of that eighth. Floors may
//!                  add up to more than the memory: then the pool runs out of pages, and sessions get them in
//!                  turn.
//! Owner            the same limit for all sessions of one attached program. The board's own services are one
//!                  owner, which has no limit while it is alone. The addresses of an owner share what the
//!                  owner may hold.
//! Recent progress  of the last half of the memory, a session may hold [`START_BYTES`], or twice the bytes
//!                  that its peer has recently acknowledged, if that is more. Of the last eighth, it may hold
//!                  only twice those bytes; of the last sixteenth, only an eighth of them. So the last memory
//!                  goes to sessions whose peers accept data.
//! Live sessions    a session is live if its peer acknowledges data; live sessions are counted every second.
//!                  The previous rule alone would favour sessions that already hold much memory. So while
//!                  less than a quarter is free, no session may hold more than an equal part of 7/8 of the
//!                  memory, divided first among owners, then among addresses, then among live sessions.
//! Receive windows  a window is a promise that cannot be withdrawn, but few windows are used at the same
//!                  time. A session of the board's own services, which read promptly, is always promised its
//!                  floor. A session of a program is always promised its part of an eighth of the free pages
//!                  (divided among the program's sessions), at most a floor and at least an eighth of one.
//!                  While other owners hold memory, the sessions of an owner that holds hardly any are
//!                  promised up to a quarter of the free pages.
//! Overhead         bytes are held in pages that are partly empty, so `overhead` is added to the charge of
//!                  every session that holds any.
//! Off              with `Config::memory_shares` off, every session is promised all the memory it wants.
//! Cost             the charges of addresses and owners are indexed by numbers stored in the session: no
//!                  lookups.

use super::claims::Claim;
use alloc::vec::Vec;

/// Bytes that a session may hold of the last half of the memory before its peer has acknowledged anything:
/// one page.
const START_BYTES: u32 = 4096;
/// Number of floors that an address or owner may hold in all while any memory is left. This is also the limit
/// for one session of a sole address.
const FLOORS: u64 = 4;

/// Counts live sessions, addresses or owners in the current period, and keeps the previous count.
#[derive(Clone, Copy, Default, Debug)]
struct Live {
    period: u64,
    now: u32,
    before: u32,
}

impl Live {
    /// Adds one to the count. Returns whether it is the first of its period.
    fn count(&mut self, period: u64) -> bool {
        let is_first = self.period != period;
        if is_first {
            *self = Live { period, now: 0, before: self.in_period(period - 1) };
        }
        self.now += 1;
        is_first
    }

    fn in_period(&self, period: u64) -> u32 {
        if self.period == period { self.now } else { 0 }
    }

    /// Returns the count of this period or of the one before.
    fn recent(&self, period: u64) -> u64 {
        let before = if self.period == period { self.before } else { self.in_period(period.wrapping_sub(1)) };
        self.in_period(period).max(before).into()
    }
}

/// The account of an address or owner.
#[derive(Clone, Copy, Default, Debug)]
struct Account {
    /// Bytes that its sessions hold.
    held: u64,
    /// For an address, the number of its live sessions. For an owner, the number of its addresses with live
    /// sessions (by flow: of its live sessions).
    live: Live,
}

/// The charges of one pool, by owner and address.
#[derive(Debug)]
pub(crate) struct Share {
    capacity: u64,
    held: u64,
    overhead: u64,
    limits: bool,
    by_address: bool,
    /// Bytes in free pages, promised or not.
    unused: u64,
    claims: Vec<Account>,
    /// Owners of live sessions.
    live_owners: Live,
    period: u64,
    /// Number of sessions per owner; used for receive windows only.
    members: Vec<u32>,
    /// Counts releases of memory.
    releases: u64,
    /// Whether a session of an address that holds no memory has recently got less than it wanted.
    is_contested: bool,
}

impl Share {
    pub(crate) fn new(capacity_bytes: u64, overhead_bytes: u32) -> Share {
        Share {
            capacity: capacity_bytes,
            held: 0,
            overhead: u64::from(overhead_bytes),
            limits: true,
            by_address: true,
            unused: capacity_bytes,
            claims: Vec::new(),
            live_owners: Live::default(),
            period: 0,
            members: Vec::new(),
            releases: 0,
            is_contested: false,
        }
    }

    /// Returns this share without limits.
    pub(crate) fn without_limits(self) -> Share {
        Share { limits: false, ..self }
    }

    /// Returns this share with limits per owner and session only, ignoring addresses.
    pub(crate) fn by_flow(self) -> Share {
        Share { by_address: false, ..self }
    }

    /// Returns the number of bytes charged for holding `bytes`.
    #[inline]
    fn charge(&self, bytes: u32) -> u64 {
        if bytes == 0 { 0 } else { u64::from(bytes) + self.overhead }
    }

    #[inline]
    fn of(&self, number: u32) -> u64 {
        self.claims.get(number as usize).map_or(0, |account| account.held)
    }

    fn live(&self, number: u32) -> u64 {
        self.claims.get(number as usize).map_or(0, |account| account.live.recent(self.period))
    }

    /// Sets the current period for [`Share::note_live`].
    pub(crate) fn set_period(&mut self, period: u64) {
        self.period = period;
    }

    /// Counts a live session, once per period.
    pub(crate) fn note_live(&mut self, claim: Claim, period: u64) {
        self.reach(claim);
        let mut count = |number: u32| self.claims[number as usize].live.count(period);
        if (!self.by_address || count(claim.address)) && count(claim.owner) {
            self.live_owners.count(period);
        }
    }

    /// Returns how many bytes each live session may hold if an eighth of the memory is left for new ones.
    fn live_part(&self, claim: Claim) -> u64 {
        let whole = self.capacity - self.capacity / 8;
        let of_owner = whole / self.live_owners.recent(self.period).max(1);
        let sessions = self.live(self.counted(claim));
        if !self.by_address || self.is_sole(claim) {
            return of_owner / (sessions + 1);
        }
        of_owner / (self.live(claim.owner) + 1) / sessions.max(1)
    }

    /// Returns how much a session, address or owner that holds `own` may hold of `limit` while others hold
    /// `others`.
    #[inline]
    fn part(limit: u64, others: u64) -> u64 {
        if others == 0 { limit - limit / 8 } else { limit.saturating_sub(others) / 2 }
    }

    /// Returns whether no other address (by flow: owner) holds memory, or has recently wanted any.
    #[inline]
    pub(crate) fn is_sole(&self, claim: Claim) -> bool {
        !self.is_contested && self.held == self.of(self.counted(claim))
    }

    /// Returns whether others hold memory while the session's own address (by flow: owner) holds none.
    pub(crate) fn is_newcomer(&self, claim: Claim) -> bool {
        self.held > 0 && self.of(self.counted(claim)) == 0
    }

    #[inline]
    fn counted(&self, claim: Claim) -> u32 {
        if self.by_address { claim.address } else { claim.owner }
    }

    /// Sets whether other addresses want memory while one address holds it all.
    pub(crate) fn set_contested(&mut self, is_contested: bool) {
        self.is_contested = is_contested;
    }

    /// Returns how much a session that holds `own` may hold according to its owner and address.
    #[inline]
    fn claim_allows(&self, own: u64, floor: u32, claim: Claim) -> u64 {
        let (owner, address) = (self.of(claim.owner), self.of(claim.address));
        let others = self.held - owner;
        let least = FLOORS * (u64::from(floor) + self.overhead);
        // While no program is attached, the board's own services are limited only by the memory itself.
        let is_alone = others == 0 && claim.is_boards;
        let of_owner = if is_alone { self.capacity } else { Share::part(self.capacity, others) };
        let by_owner = if is_alone { u64::MAX } else { of_owner.max(least).saturating_sub(owner - own) };
        if !self.by_address {
            return by_owner;
        }
        let of_address = Share::part(of_owner, owner - address).max(least);
        by_owner.min(of_address.saturating_sub(address - own))
    }

    /// Returns how much a session that holds `own`, and whose peer has recently acknowledged `earned`, may
    /// hold in all.
    #[inline]
    pub(crate) fn allowance(&self, own: u32, floor: u32, claim: Claim, earned: u32) -> u32 {
        if !self.limits {
            return u32::MAX;
        }
        let charged = self.charge(own);
        let free = self.capacity.saturating_sub(self.held - charged);
        let room = self.claim_allows(charged, floor, claim);
        let half = (free / 2).min(self.part_of_claim(room, charged, claim));
        if self.held == charged {
            // If no other session holds memory, the session can proceed even in a very small memory.
            let most = u32::try_from(half.saturating_sub(self.overhead)).unwrap_or(u32::MAX);
            return most.max(floor);
        }
        let most = half.saturating_sub(self.overhead).max(u64::from(floor));
        if self.is_sole(claim) {
            // No other address wants memory, so this address's sessions share all of it. If the memory is
            // smaller than the sum of their floors, the sessions get pages in turn.
            let small = (free / 2).saturating_sub(self.overhead).min(FLOORS * u64::from(floor));
            let small = if claim.is_boards { small } else { 0 };
            return u32::try_from(most.max(small)).unwrap_or(u32::MAX);
        }
        let most = most.min(Share::earned(free, self.capacity, floor, earned));
        let most = if free > self.capacity / 4 {
            most
        } else {
            most.min(self.live_part(claim).saturating_sub(self.overhead))
        };
        let bound = free.min(room).saturating_sub(self.overhead);
        u32::try_from(most.min(bound)).unwrap_or(u32::MAX)
    }

    /// Returns how much of an address's room one of its sessions may hold: half, or all if the session is
    /// alone there.
    #[inline]
    fn part_of_claim(&self, room: u64, own: u64, claim: Claim) -> u64 {
        if self.of(claim.address) == own { room } else { room / 2 }
    }

    /// Returns how many bytes of the last half of `whole` a session may hold while `free` bytes are left.
    fn earned(free: u64, whole: u64, floor: u32, earned: u32) -> u64 {
        let (earned, start) = (u64::from(earned), u64::from(START_BYTES.min(floor)));
        if free > whole / 2 {
            u64::MAX
        } else if free > whole / 8 {
            start.max(2 * earned)
        } else if free > whole / 16 {
            2 * earned
        } else {
            Some(earned / 8).filter(|part| *part >= start).unwrap_or(0)
        }
    }

    /// Returns how much a session that was promised `own` may be promised in all.
    #[inline]
    pub(crate) fn promise(&self, own: u32, floor: u32, claim: Claim) -> u32 {
        if !self.limits {
            return u32::MAX;
        }
        let charged = self.charge(own);
        let free = self.capacity.saturating_sub(self.held - charged);
        if claim.is_boards && self.is_sole(claim) {
            let half = (free / 2).saturating_sub(self.overhead);
            return u32::try_from(half).unwrap_or(u32::MAX).max(floor);
        }
        let room = self.claim_allows(charged, floor, claim);
        let half = (free / 2).min(self.part_of_claim(room, charged, claim));
        let most = half.max(u64::from(floor)).min(room);
        // Promises that other owners do not use must not close this window: each owner may be promised a
        // quarter of the free pages.
        let owner = self.of(claim.owner);
        let quarter = if self.held == owner { 0 } else { self.unused / 4 };
        let of_unused = quarter.saturating_sub(owner - charged) / 2;
        let least = match self.members.get(claim.owner as usize) {
            Some(sessions) if !claim.is_boards => {
                let part = self.unused / 8 / u64::from(*sessions).max(1);
                u32::try_from(part).unwrap_or(u32::MAX).clamp(floor / 8, floor)
            }
            _ => floor,
        };
        u32::try_from(most.max(of_unused)).unwrap_or(u32::MAX).max(least)
    }

    /// Sets the number of sessions of an owner.
    pub(crate) fn set_sessions(&mut self, owner: u32, sessions: usize) {
        if self.members.len() <= owner as usize {
            self.members.resize(owner as usize + 1, 0);
        }
        self.members[owner as usize] = sessions as u32;
    }

    /// Sets the number of bytes in free pages.
    pub(crate) fn set_unused(&mut self, bytes: u64) {
        self.unused = bytes;
    }

    /// Returns whether a session that holds `own` is limited by the share of its address or owner, not by the
    /// memory.
    pub(crate) fn is_bound_by_claim(&self, own: u32, floor: u32, claim: Claim) -> bool {
        let charged = self.charge(own);
        let free = self.capacity.saturating_sub(self.held - charged);
        self.limits && !self.is_sole(claim) && self.claim_allows(charged, floor, claim) < free / 2
    }

    /// Returns whether more than three quarters of the memory is held.
    #[inline]
    pub(crate) fn is_scarce(&self) -> bool {
        self.limits && self.held > self.capacity / 4 * 3
    }

    /// Returns the number of bytes that are held by no session.
    pub(crate) fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.held)
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the number of bytes that the sessions of one account hold.
    pub(crate) fn held_by(&self, number: u32) -> u64 {
        self.of(number)
    }

    /// Returns a number that changes with every release of memory.
    pub(crate) fn releases(&self) -> u64 {
        self.releases
    }

    /// Records that a session that held `before` now holds `after`.
    #[inline]
    pub(crate) fn change(&mut self, before: u32, after: u32, claim: Claim) {
        let (less, more) = (self.charge(before), self.charge(after));
        self.releases += u64::from(more < less);
        self.held = self.held + more - less;
        self.reach(claim);
        for number in [claim.owner, claim.address] {
            let account = &mut self.claims[number as usize];
            account.held = account.held + more - less;
        }
    }

    #[inline]
    fn reach(&mut self, claim: Claim) {
        let most = claim.owner.max(claim.address) as usize;
        if self.claims.len() <= most {
            self.claims.resize(most + 1, Account::default());
        }
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> u64 {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the claim of a session between one of the board's own services and a peer address.
    fn claim(address: u32) -> Claim {
        Claim { owner: 0, address, is_boards: true }
    }

    /// Lets the sessions in turn take as much as they may, until nothing changes. Returns the number of bytes
    /// that each holds.
    fn settle(share: &mut Share, claims: &[Claim]) -> Vec<u64> {
        let mut held = alloc::vec![0u32; claims.len()];
        for _ in 0..2000 {
            for (own, claim) in held.iter_mut().zip(claims) {
                let next = share.allowance(*own, 0, *claim, u32::MAX);
                share.change(*own, next, *claim);
                *own = next;
            }
        }
        held.into_iter().map(u64::from).collect()
    }

    fn near(one: u64, other: u64) -> bool {
        one.abs_diff(other) * 50 <= other
    }

    #[test]
    fn greedy_sessions_of_one_address_share_all_but_an_eighth() {
        for sessions in [1u64, 2, 15, 60] {
            let mut share = Share::new(8 << 20, 0);
            let held = settle(&mut share, &alloc::vec![claim(1); sessions as usize]);
            let all = held.iter().sum::<u64>();
            // A single session gets half of the memory. Several sessions share all but an eighth of it.
            let expected = if sessions == 1 { 4 << 20 } else { (7 << 20) * sessions / (sessions + 1) };
            assert!(near(all, expected), "{sessions}: {held:?}");
            assert!(held.iter().all(|own| near(*own, held[0])), "{sessions}: {held:?}");
        }
    }

    #[test]
    fn greedy_addresses_converge_to_equal_shares_and_leave_one_free() {
        for addresses in [2u64, 3, 15] {
            let mut share = Share::new(8 << 20, 0);
            // The first address has one session, the others have forty each.
            let mut claims = alloc::vec![claim(1)];
            (1..addresses).for_each(|n| claims.extend([claim(1 + n as u32); 40]));
            let held = settle(&mut share, &claims);
            let fair = (8 << 20) / (addresses + 1);
            assert!(held[0].abs_diff(fair) * 15 <= fair, "{} of {fair}", held[0]);
            for number in 2..=addresses {
                // Forty sessions use 40/41 of their address's share.
                let held = share.held_by(number as u32);
                assert!(held.abs_diff(fair) * 15 <= fair, "{addresses}: {number} {held} of {fair}");
            }
        }
    }

    #[test]
    fn a_new_address_gets_memory_beside_a_greedy_one() {
        let mut share = Share::new(64 << 20, 8 << 10);
        settle(&mut share, &alloc::vec![claim(1); 600]);
        assert!(share.free() >= 8 << 20, "{}", share.free());
        assert!(share.allowance(0, 16 << 10, claim(2), u32::MAX) > 3 << 20);
        // By flow, only the memory that the sessions leave each other stays free.
        let mut share = Share::new(64 << 20, 8 << 10).by_flow();
        settle(&mut share, &alloc::vec![claim(1); 600]);
        assert!(share.free() < 1 << 20, "{}", share.free());
    }

    #[test]
    fn a_sole_address_has_its_floors_until_another_wants_memory() {
        const FLOOR: u32 = 16 << 10;
        let mut share = Share::new(1 << 20, 0);
        share.change(0, 1 << 20, claim(1));
        assert_eq!(share.allowance(0, FLOOR, claim(1), 0), FLOOR, "floors may overcommit the ledger");
        assert_eq!(share.allowance(0, FLOOR, claim(2), 0), 0, "another waits for those who give memory back");
        share.set_contested(true);
        assert_eq!(share.allowance(0, FLOOR, claim(1), u32::MAX), 0, "and meanwhile the first takes no more");
        share.set_contested(false);
        assert_eq!(share.allowance(0, FLOOR, claim(1), 0), FLOOR);
        // Once another address holds memory, the rules for several addresses apply, contested or not.
        share.change(0, 1, claim(2));
        assert_eq!(share.allowance(0, FLOOR, claim(1), u32::MAX), 0);
        // The four floors of a session may come out of the eighth that is kept free for the next address.
        let mut share = Share::new(1 << 20, 0);
        share.change(0, 896 << 10, claim(1));
        assert_eq!(share.allowance(0, FLOOR, claim(1), 0), 64 << 10);
        assert!(!share.is_bound_by_claim(0, FLOOR, claim(1)));
    }

    #[test]
    fn memory_is_shared_among_owners_before_addresses() {
        let mut share = Share::new(64 << 20, 0);
        let program = |owner: u32| Claim { owner, address: 50, is_boards: false };
        let greedy: Vec<Claim> = (0..300).map(|n| Claim { address: 100 + n, ..program(1) }).collect();
        settle(&mut share, &greedy);
        assert!(share.held_by(1) <= 56 << 20, "{}", share.held_by(1));
        assert!(share.allowance(0, 16 << 10, program(2), u32::MAX) > 3 << 20);
    }

    #[test]
    fn free_memory_goes_to_sessions_whose_peers_accept_data() {
        let mut share = Share::new(1 << 20, 0);
        let claims = [claim(1), claim(2)];
        // Columns: memory held by others (KiB), bytes recently acknowledged, expected allowance.
        for (held, earned, expected) in [
            (0, 0, 1 << 19),
            (600, 0, 4 << 10),
            (600, 10 << 10, 20 << 10),
            (600, 1 << 20, 212 << 10),
            (900, 0, 0),
            (900, 10 << 10, 20 << 10),
            (1000, 10 << 10, 0),
            (1000, 128 << 10, 16 << 10),
            (1024, 128 << 10, 0),
        ] {
            share.change(0, held << 10, claims[0]);
            assert_eq!(share.allowance(0, 16 << 10, claims[1], earned), expected, "{held} {earned}");
            share.change(held << 10, 0, claims[0]);
        }
    }

    #[test]
    fn partly_filled_pages_are_charged_once_per_holder() {
        let mut share = Share::new(1000, 100);
        share.change(0, 1, claim(1));
        share.change(1, 50, claim(1));
        assert_eq!(share.allowance(0, 0, claim(2), u32::MAX), (1000 - 150) / 2 - 100);
        share.change(50, 0, claim(1));
        assert_eq!((share.held(), share.held_by(0), share.held_by(1)), (0, 0, 0));
    }

    #[test]
    fn without_limits_every_session_is_promised_its_full_buffers() {
        let mut share = Share::new(1000, 0).without_limits();
        share.change(0, 5000, claim(1));
        assert_eq!((share.allowance(0, 64, claim(1), 0), share.held()), (u32::MAX, 5000));
    }

    #[test]
    fn every_new_session_is_promised_a_window() {
        let mut share = Share::new(1000, 0);
        share.change(0, 1000, claim(1));
        assert_eq!(share.promise(0, 64, claim(2)), 64);
        assert_eq!(share.promise(0, 64, claim(1)), 64);
        // One program has been promised all the memory; while it uses little, another program still gets
        // some.
        let program = |owner| Claim { owner, address: 90 + owner, is_boards: false };
        let mut share = Share::new(16_000, 0);
        share.change(0, 16_000, program(7));
        let promised = |share: &Share, owner| share.promise(0, 64, program(owner));
        for (sessions, expected) in [(1, 64), (50, 40), (1000, 8)] {
            share.set_sessions(7, sessions);
            assert_eq!(promised(&share, 7), expected, "{sessions} sessions of the greedy one");
        }
        assert_eq!(promised(&share, 8), 2000);
        share.set_unused(3200);
        assert_eq!((promised(&share, 7), promised(&share, 8)), (8, 400));
    }
}
