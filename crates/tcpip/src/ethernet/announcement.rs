//! Schedules the announcements of an IPv4 address (RFC 5227 §2.3).

use core::net::Ipv4Addr;
use kiban_base::Instant;

/// One of our addresses and the time of its next announcement.
pub(super) struct Announcement {
    pub(super) address: Ipv4Addr,
    pub(super) left: u8,
    pub(super) at: Instant,
    pub(super) defended: Option<Instant>,
}

impl Announcement {
    pub(super) fn new(address: Ipv4Addr, count: u8) -> Announcement {
        Announcement::from(address, count, Instant::ZERO)
    }

    /// Creates the schedule of an address that is used from `now` on.
    pub(super) fn from(address: Ipv4Addr, count: u8, now: Instant) -> Announcement {
        let at = if count > 0 { now } else { Instant::NEVER };
        Announcement { address, left: count, at, defended: None }
    }
}
