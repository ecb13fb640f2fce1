//! Shares of a common memory: many sessions, one pool, nobody starved.
//!
//! Rule      a session may hold up to what *nobody* holds: its allowance is half of all that the others leave
//!           (dynamic thresholds with a factor of 1: Choudhury and Hahne 1998). One greedy session gets half of the
//!           memory, n get 1/(n+1) each, and 1/(n+1) stays free for whoever comes next.
//! Floor     below `floor_bytes` a session is never refused by the ledger: an idle one costs nothing, and a new one
//!           always starts.
//! Scarce    once a quarter is left, whose peer keeps its window closed is promised no more than the floor: it would hold what it has
//!           for as long as its peer likes.
//! Pages     a holder's bytes lie in pages that are not all full: whoever holds anything is charged `overhead` on top.
//! Off       a ledger may be told to promise anything to everybody, as boards did before (`Config::shares`).
//! Limits    a ledger promises, it does not allocate: floors may add up to more than there is, and then the pool
//!           itself refuses and the asker waits its turn.

/// The ledger of one pool.
#[derive(Debug)]
pub(super) struct Share {
    capacity: u64,
    held: u64,
    overhead: u64,
    limits: bool,
}

impl Share {
    pub(super) fn new(capacity_bytes: u64, overhead_bytes: u32) -> Share {
        Share { capacity: capacity_bytes, held: 0, overhead: u64::from(overhead_bytes), limits: true }
    }

    /// A ledger that refuses nothing.
    pub(super) fn without_limits(self) -> Share {
        Share { limits: false, ..self }
    }

    /// What holding so many bytes costs.
    #[inline]
    fn charge(&self, bytes: u32) -> u64 {
        if bytes == 0 { 0 } else { u64::from(bytes) + self.overhead }
    }

    /// How much a session that holds `own` may hold in all.
    #[inline]
    pub(super) fn allowance(&self, own: u32, floor: u32) -> u32 {
        if !self.limits {
            return u32::MAX;
        }
        let others = self.held - self.charge(own);
        let half = (self.capacity.saturating_sub(others) / 2).saturating_sub(self.overhead);
        u32::try_from(half).unwrap_or(u32::MAX).max(floor)
    }

    /// Whether more than three quarters are held.
    #[inline]
    pub(super) fn is_scarce(&self) -> bool {
        self.limits && self.held > self.capacity / 4 * 3
    }

    /// A session that held `before` now holds `after`.
    #[inline]
    pub(super) fn change(&mut self, before: u32, after: u32) {
        self.held = self.held + self.charge(after) - self.charge(before);
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> u64 {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greedy_sessions_settle_at_equal_shares_and_leave_one_free() {
        for sessions in [1u64, 2, 15, 60] {
            let mut share = Share::new(8 << 20, 0);
            let mut held = alloc::vec![0u32; sessions as usize];
            for _ in 0..2000 {
                for own in &mut held {
                    let next = share.allowance(*own, 0);
                    share.change(*own, next);
                    *own = next;
                }
            }
            let fair = (8 << 20) / (sessions + 1);
            for own in held {
                assert!(u64::from(own).abs_diff(fair) * 100 <= fair, "{own} of {fair}");
            }
        }
    }

    #[test]
    fn pages_that_are_not_full_are_charged_once_a_holder() {
        let mut share = Share::new(1000, 100);
        share.change(0, 1);
        share.change(1, 50);
        assert_eq!(share.allowance(0, 0), (1000 - 150) / 2 - 100);
        share.change(50, 0);
        assert_eq!(share.held(), 0);
    }

    #[test]
    fn without_limits_everybody_is_promised_everything() {
        let mut share = Share::new(1000, 0).without_limits();
        share.change(0, 5000);
        assert_eq!((share.allowance(0, 64), share.held()), (u32::MAX, 5000));
    }

    #[test]
    fn a_newcomer_always_has_its_floor() {
        let mut share = Share::new(1000, 0);
        share.change(0, 1000);
        assert_eq!(share.allowance(0, 64), 64);
    }
}
