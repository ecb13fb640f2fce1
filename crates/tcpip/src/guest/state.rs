//! The state of a guest's configuration: when the next router advertisement is due.

use super::config::GuestConfig;
use super::counters::GuestCounters;
use kiban_base::Instant;

/// Number of advertisements at the beginning (RFC 4861 §10).
const INITIAL_ADVERTISEMENTS: u8 = 3;

/// The state of a guest's configuration.
pub(crate) struct Guest {
    pub(crate) config: GuestConfig,
    pub(crate) counters: GuestCounters,
    /// When the next advertisement is due.
    pub(crate) advertise_at: Instant,
    /// No advertisement is sent before this time.
    pub(crate) advertise_from: Instant,
    pub(crate) initial_left: u8,
}

impl Guest {
    pub(crate) fn new(config: GuestConfig) -> Guest {
        let advertise_at = if config.ipv6.is_some() { Instant::ZERO } else { Instant::NEVER };
        Guest {
            config,
            counters: GuestCounters::default(),
            advertise_at,
            advertise_from: Instant::ZERO,
            initial_left: INITIAL_ADVERTISEMENTS,
        }
    }
}
