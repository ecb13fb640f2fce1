//! Times at which an IPv4 address is announced (RFC 5227 §2.3).

use core::net::Ipv4Addr;
use kiban_base::Instant;

/// One of our addresses, and when it is announced next.
pub(super) struct Announcement {
    pub(super) address: Ipv4Addr,
    pub(super) left: u8,
    pub(super) at: Instant,
    pub(super) defended: Option<Instant>,
}

impl Announcement {
    pub(super) fn new(address: Ipv4Addr, count: u8) -> Announcement {
        let at = if count > 0 { Instant::ZERO } else { Instant::NEVER };
        Announcement { address, left: count, at, defended: None }
    }
}
