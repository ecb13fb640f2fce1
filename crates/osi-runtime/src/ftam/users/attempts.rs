//! Delays after failed passwords. [`Attempts`] does no I/O; the caller supplies the time.
//!
//! Purpose    guessing a password takes years, one mistyped password causes no delay, and a user whose
//!            password is being guessed can still log in.
//! Rule       failures are counted per user name and per address. After the first few, every attempt with
//!            that name, or from that address, is delayed; each failure doubles the delay, up to a bound. A
//!            success clears the failures of the user's name, but not those of the address.
//! Bounds     the maximum delay for a name is short, since anyone can cause it; for an address, it is long.
//! Limits     at most [`BackoffConfig::names_max`] names and as many addresses are remembered. When the table
//!            is full, the entry whose delay ends first is forgotten. A forgotten name or address is treated
//!            as having no failures.

use kiban_base::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Parameters of the delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffConfig {
    /// Number of failures without a delay.
    pub failures_free: u32,
    /// The first delay.
    pub wait: Duration,
    /// The longest delay for a user's name.
    pub user_wait_max: Duration,
    /// The longest delay for an address.
    pub address_wait_max: Duration,
    /// Failures are forgotten after this time without a further failure.
    pub memory: Duration,
    /// Maximum number of names, and of addresses, that are remembered.
    pub names_max: usize,
}

impl Default for BackoffConfig {
    fn default() -> BackoffConfig {
        BackoffConfig {
            failures_free: 3,
            wait: Duration::from_secs(1),
            user_wait_max: Duration::from_secs(30),
            address_wait_max: Duration::from_secs(15 * 60),
            memory: Duration::from_secs(60 * 60),
            names_max: 10_000,
        }
    }
}

/// The recent failures of user names and addresses.
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    backoff: BackoffConfig,
    users: BTreeMap<String, Failures>,
    addresses: BTreeMap<String, Failures>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Instant,
    not_before: Instant,
}

impl Attempts {
    /// Creates a record without failures.
    pub fn new(backoff: BackoffConfig) -> Attempts {
        Attempts { backoff, ..Attempts::default() }
    }

    /// Returns the earliest time at which this user may make an attempt from this address; `now` if there is
    /// no delay.
    pub fn not_before(&self, user: &str, address: &str, now: Instant) -> Instant {
        let of = |table: &BTreeMap<String, Failures>, name| {
            table.get(name).map_or(now, |failures| failures.not_before)
        };
        of(&self.users, user).max(of(&self.addresses, address)).max(now)
    }

    /// Records a wrong password.
    pub fn failed(&mut self, user: &str, address: &str, now: Instant) {
        let patience = self.backoff;
        fail(&mut self.users, user, patience.user_wait_max, &patience, now);
        fail(&mut self.addresses, address, patience.address_wait_max, &patience, now);
    }

    /// Records a correct password. The address keeps its failures, so that a client that knows one password
    /// cannot guess others without delay.
    pub fn succeeded(&mut self, user: &str) {
        self.users.remove(user);
    }
}

fn fail(
    table: &mut BTreeMap<String, Failures>,
    name: &str,
    wait_max: Duration,
    patience: &BackoffConfig,
    now: Instant,
) {
    if !table.contains_key(name) && table.len() >= patience.names_max {
        let Some(first) = table.iter().min_by_key(|(_, failures)| failures.not_before) else { return };
        let first = first.0.clone();
        table.remove(&first);
    }
    let failures = table.entry(name.into()).or_insert(Failures { count: 0, last: now, not_before: now });
    if now.since(failures.last) > patience.memory {
        failures.count = 0;
    }
    failures.count = failures.count.saturating_add(1);
    failures.last = now;
    failures.not_before = match failures.count.checked_sub(patience.failures_free + 1) {
        Some(doublings) => now + patience.wait.saturating_mul(1 << doublings.min(30)).min(wait_max),
        None => now,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn delays_grow_with_failures_up_to_their_limits() {
        let mut attempts = Attempts::new(BackoffConfig::default());
        let mut now = at(100);
        let mut waits = Vec::new();
        for _ in 0..12 {
            attempts.failed("ann", "10.0.0.1", now);
            let of = |user, address| attempts.not_before(user, address, now).since(now).as_secs();
            waits.push((of("ann", "10.0.0.2"), of("bob", "10.0.0.1"), of("bob", "10.0.0.2")));
            now = attempts.not_before("ann", "10.0.0.1", now);
        }
        let users: Vec<u64> = waits.iter().map(|wait| wait.0).collect();
        let addresses: Vec<u64> = waits.iter().map(|wait| wait.1).collect();
        assert_eq!(users, [0, 0, 0, 1, 2, 4, 8, 16, 30, 30, 30, 30]);
        assert_eq!(addresses, [0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256]);
        assert!(waits.iter().all(|wait| wait.2 == 0));
    }

    #[test]
    fn a_success_clears_the_users_failures_but_not_the_addresss() {
        let mut attempts = Attempts::new(BackoffConfig::default());
        (0..5).for_each(|_| attempts.failed("ann", "10.0.0.1", at(0)));
        attempts.succeeded("ann");
        assert_eq!(attempts.not_before("ann", "10.0.0.2", at(0)), at(0));
        assert_eq!(attempts.not_before("ann", "10.0.0.1", at(0)), at(2));
    }

    #[test]
    fn failures_are_forgotten_with_time() {
        let mut attempts = Attempts::new(BackoffConfig::default());
        (0..9).for_each(|_| attempts.failed("ann", "10.0.0.1", at(0)));
        attempts.failed("ann", "10.0.0.1", at(3 * 3600));
        assert_eq!(attempts.not_before("ann", "10.0.0.1", at(3 * 3600)), at(3 * 3600));
    }

    #[test]
    fn the_number_of_remembered_names_is_limited_and_the_worst_stay_longest() {
        let mut attempts = Attempts::new(BackoffConfig { names_max: 10, ..BackoffConfig::default() });
        (0..9).for_each(|_| attempts.failed("ann", "10.0.0.1", at(0)));
        (0..1000).for_each(|n| attempts.failed(&format!("user{n}"), &format!("10.0.1.{n}"), at(1)));
        assert_eq!((attempts.users.len(), attempts.addresses.len()), (10, 10));
        assert_eq!(attempts.not_before("ann", "elsewhere", at(1)), at(30));
    }
}
