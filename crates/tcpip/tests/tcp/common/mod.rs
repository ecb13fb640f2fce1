//! Shared by the TCP tests: virtual time, and stations with their own memory. Tests in which one peer is
//! driven segment by segment are in `crates/talk`.
//!
//! station   one TCP machine and its memory
//! cable     carries bytes, not PDUs, with a delay, a rate and impairments
//! world     two stations, two cables, applications, and checkers that do not inspect TCP's state

pub(crate) mod cable;
pub(crate) mod station;
pub(crate) mod world;

use core::time::Duration;
use kiban_base::Instant;

/// Returns a time, in milliseconds from the origin.
pub(crate) fn at_ms(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// Returns a duration in milliseconds.
pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Returns a duration in microseconds.
pub(crate) const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// Returns how many seeds a test runs: `KIBAN_TCP_SEEDS`, or as many as CI has time for.
pub(crate) fn seeds(usual: u64) -> u64 {
    #[expect(clippy::disallowed_methods, reason = "only the length of a campaign comes from outside")]
    let asked = std::env::var("KIBAN_TCP_SEEDS").ok();
    asked.and_then(|count| count.parse().ok()).unwrap_or(usual)
}
