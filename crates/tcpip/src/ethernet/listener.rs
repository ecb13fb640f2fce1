//! State of multicast listener discovery: the groups of a link, and what is to be sent when. IGMP has the
//! same rules for IPv4 (RFC 3376) as MLD for IPv6 (RFC 3810, which is cited here).

use crate::wire::mld::record;
use alloc::vec::Vec;
use core::time::Duration;
use kiban_base::{Context, Instant};

/// Minimum time between two responses to queries; less than a router waits for the response to its last
/// query for a group (RFC 3810 §9.10: 2 s).
const RESPONSE_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time between the reports of one change (RFC 3810 §9.11), also for an old querier (RFC 2710 §7.10,
/// RFC 2236 §8.10).
const UNSOLICITED_INTERVAL: Duration = Duration::from_secs(1);
const UNSOLICITED_INTERVAL_OLD: Duration = Duration::from_secs(10);
/// Defaults until a querier announces other values (RFC 3810 §9.1, §9.2).
pub(super) const ROBUSTNESS: u8 = 2;
const QUERY_INTERVAL: Duration = Duration::from_secs(125);

/// A group that the link listens to, or has left without having reported that often enough.
pub(super) struct Group<A> {
    pub(super) group: A,
    /// Number of joins; zero if the group was left.
    pub(super) joins: usize,
    /// Number of reports of the last change that remain to be sent.
    pub(super) changes_left: u8,
    /// When a query for this group is answered.
    pub(super) response_at: Instant,
}

/// The listener of one link.
pub(super) struct Listener<A> {
    pub(super) groups: Vec<Group<A>>,
    /// When the next report of changes is due.
    pub(super) change_at: Instant,
    /// When a general query of the current version is answered.
    pub(super) general_at: Instant,
    /// No response is sent before this time.
    pub(super) respond_from: Instant,
    /// Until when the link speaks the older version, if it does.
    pub(super) older_until: Option<Instant>,
    pub(super) robustness: u8,
    pub(super) query_interval: Duration,
}

/// Returns a random time of at most `longest`.
fn random(longest: Duration, cx: &mut Context<'_>) -> Duration {
    Duration::from_nanos(cx.rng.below(longest.as_nanos() as u64 + 1))
}

/// What a query has caused.
pub(super) struct Queried {
    /// Whether the link listens to the group.
    pub(super) is_known: bool,
    /// Whether the response is delayed by the rate limit.
    pub(super) is_limited: bool,
}

impl<A: Copy + Eq> Listener<A> {
    pub(super) fn new() -> Listener<A> {
        Listener {
            groups: Vec::new(),
            change_at: Instant::NEVER,
            general_at: Instant::NEVER,
            respond_from: Instant::ZERO,
            older_until: None,
            robustness: ROBUSTNESS,
            query_interval: QUERY_INTERVAL,
        }
    }

    /// Joins a group; the change is reported at `at`. Returns whether the group was not joined before.
    pub(super) fn join(&mut self, group: A, at: Instant) -> bool {
        let robustness = self.robustness;
        let index = self.groups.iter().position(|known| known.group == group).unwrap_or_else(|| {
            self.groups.push(Group { group, joins: 0, changes_left: 0, response_at: Instant::NEVER });
            self.groups.len() - 1
        });
        let known = &mut self.groups[index];
        known.joins += 1;
        if known.joins > 1 {
            return false;
        }
        known.changes_left = robustness;
        self.change_at = self.change_at.min(at);
        true
    }

    /// Leaves a group. Returns whether this was the last listener.
    pub(super) fn leave(&mut self, group: A, now: Instant) -> bool {
        let Some(known) = self.groups.iter_mut().find(|known| known.group == group && known.joins > 0) else {
            return false;
        };
        known.joins -= 1;
        if known.joins > 0 {
            return false;
        }
        (known.changes_left, known.response_at) = (self.robustness, Instant::NEVER);
        self.change_at = self.change_at.min(now);
        true
    }

    /// Reports all groups again, now that the link-local address is usable.
    pub(super) fn report_again(&mut self, now: Instant) {
        let robustness = self.robustness;
        let joined = self.groups.iter_mut().filter(|known| known.joins > 0);
        joined.for_each(|known| known.changes_left = robustness);
        self.change_at = now;
    }

    /// Cancels what is pending, because the version has changed.
    pub(super) fn cancel(&mut self) {
        for known in &mut self.groups {
            (known.changes_left, known.response_at) = (0, Instant::NEVER);
        }
        self.groups.retain(|known| known.joins > 0);
        (self.change_at, self.general_at) = (Instant::NEVER, Instant::NEVER);
    }

    /// Records a querier of the older version. It is remembered for a while (RFC 3810 §9.12).
    pub(super) fn on_older_querier(&mut self, response_interval: Duration, now: Instant) {
        if self.older_until.is_none() {
            self.cancel();
        }
        let timeout = self.query_interval * self.robustness.into() + response_interval;
        self.older_until = Some(now + timeout);
    }

    /// Records what a querier of the current version announces.
    pub(super) fn on_querier(&mut self, robustness: u8, query_interval: Duration) {
        self.robustness = if robustness == 0 { ROBUSTNESS } else { robustness };
        self.query_interval = query_interval.max(Duration::from_secs(1));
    }

    /// Schedules the response to a query, for a group or for all.
    pub(super) fn on_query(&mut self, group: Option<A>, delay: Duration, cx: &mut Context<'_>) -> Queried {
        let at = cx.now + random(delay, cx);
        let is_limited = at < self.respond_from;
        if group.is_none() && self.older_until.is_none() {
            // RFC 3810 §6.2, rules 1 and 2.
            self.general_at = self.general_at.min(at);
            return Queried { is_known: true, is_limited };
        }
        let mut is_known = false;
        for known in self.groups.iter_mut().filter(|known| known.joins > 0) {
            if group.is_none() {
                // RFC 2710 §4, RFC 2236 §3: each group has a timer of its own.
                known.response_at = known.response_at.min(cx.now + random(delay, cx));
            } else if group == Some(known.group) && self.general_at > at {
                known.response_at = known.response_at.min(at);
            }
            is_known |= group.is_none_or(|group| known.group == group);
        }
        Queried { is_known, is_limited }
    }

    /// Handles another listener's report of the older version, which is enough (RFC 2710 §4, RFC 2236 §3).
    pub(super) fn on_report(&mut self, group: A) {
        if let Some(known) = self.groups.iter_mut().find(|known| known.group == group) {
            (known.changes_left, known.response_at) = (0, Instant::NEVER);
        }
    }

    /// Ends the older version if its querier has been silent for long enough.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.older_until.is_some_and(|until| until <= now) {
            self.older_until = None;
            self.cancel();
        }
    }

    /// Returns the changes whose reports are due, with the types of their records.
    pub(super) fn take_changes(&mut self, cx: &mut Context<'_>) -> Vec<(u8, A)> {
        let mut changes = Vec::new();
        if self.change_at > cx.now {
            return changes;
        }
        let is_old = self.older_until.is_some();
        for known in self.groups.iter_mut().filter(|known| known.changes_left > 0) {
            known.changes_left -= 1;
            let kind = if known.joins > 0 { record::TO_EXCLUDE } else { record::TO_INCLUDE };
            if is_old && known.joins == 0 {
                // RFC 2710 §4, RFC 2236 §3: in the older version, a leave is reported once.
                known.changes_left = 0;
            }
            changes.push((kind, known.group));
        }
        self.groups.retain(|known| known.joins > 0 || known.changes_left > 0);
        self.change_at = match self.groups.iter().any(|known| known.changes_left > 0) {
            true => cx.now + random(if is_old { UNSOLICITED_INTERVAL_OLD } else { UNSOLICITED_INTERVAL }, cx),
            false => Instant::NEVER,
        };
        changes
    }

    /// Returns the groups whose responses are due, with the type of their records.
    pub(super) fn take_responses(&mut self, cx: &mut Context<'_>) -> Vec<(u8, A)> {
        let mut current = Vec::new();
        if self.response_at().max(self.respond_from) > cx.now {
            return current;
        }
        let all = self.general_at <= cx.now;
        for known in self.groups.iter_mut().filter(|known| known.joins > 0) {
            if all || known.response_at <= cx.now {
                known.response_at = Instant::NEVER;
                current.push((record::IS_EXCLUDE, known.group));
            }
        }
        if all {
            self.general_at = Instant::NEVER;
        }
        self.respond_from = cx.now + RESPONSE_INTERVAL;
        current
    }

    fn response_at(&self) -> Instant {
        let groups = self.groups.iter().map(|known| known.response_at);
        groups.min().unwrap_or(Instant::NEVER).min(self.general_at)
    }

    pub(super) fn deadline(&self) -> Instant {
        let response = self.response_at().max(self.respond_from);
        response.min(self.change_at).min(self.older_until.unwrap_or(Instant::NEVER))
    }
}
