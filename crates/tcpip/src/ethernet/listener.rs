//! State of multicast listener discovery: the groups of a link, and what is to be sent when (RFC 3810).

use alloc::vec::Vec;
use core::net::Ipv6Addr;
use core::time::Duration;
use kiban_base::Instant;

/// Defaults until a querier announces other values (RFC 3810 §9.1, §9.2).
pub(super) const ROBUSTNESS: u8 = 2;
const QUERY_INTERVAL: Duration = Duration::from_secs(125);

/// A group that the link listens to, or has left without having reported that often enough.
pub(super) struct Group {
    pub(super) group: Ipv6Addr,
    /// Number of joins; zero if the group was left.
    pub(super) joins: usize,
    /// Number of reports of the last change that remain to be sent.
    pub(super) changes_left: u8,
    /// When a query for this group is answered.
    pub(super) response_at: Instant,
}

/// The listener of one link.
pub(super) struct Mld {
    pub(super) groups: Vec<Group>,
    /// When the next report of changes is due.
    pub(super) change_at: Instant,
    /// When a general query is answered (version 2).
    pub(super) general_at: Instant,
    /// No response is sent before this time.
    pub(super) respond_from: Instant,
    /// Until when the link speaks version 1, if it does.
    pub(super) v1_until: Option<Instant>,
    pub(super) robustness: u8,
    pub(super) query_interval: Duration,
}

impl Mld {
    pub(super) fn new() -> Mld {
        Mld {
            groups: Vec::new(),
            change_at: Instant::NEVER,
            general_at: Instant::NEVER,
            respond_from: Instant::ZERO,
            v1_until: None,
            robustness: ROBUSTNESS,
            query_interval: QUERY_INTERVAL,
        }
    }

    /// Joins a group; the change is reported at `at`. Returns whether the group was not joined before.
    pub(super) fn join(&mut self, group: Ipv6Addr, at: Instant) -> bool {
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
    pub(super) fn leave(&mut self, group: Ipv6Addr, now: Instant) -> bool {
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

    /// Returns how long a querier of version 1 is remembered (RFC 3810 §9.12).
    pub(super) fn older_querier_timeout(&self, response_interval: Duration) -> Duration {
        self.query_interval * self.robustness.into() + response_interval
    }

    pub(super) fn response_at(&self) -> Instant {
        let groups = self.groups.iter().map(|known| known.response_at);
        groups.min().unwrap_or(Instant::NEVER).min(self.general_at)
    }

    pub(super) fn deadline(&self) -> Instant {
        let response = self.response_at().max(self.respond_from);
        response.min(self.change_at).min(self.v1_until.unwrap_or(Instant::NEVER))
    }
}
