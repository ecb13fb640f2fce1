//! Counters of one session.

use crate::tcp::interface::info::{Limit, Spent};
use core::time::Duration;
use kiban_base::Instant;

/// Counters of one session.
#[derive(Debug)]
pub(in crate::tcp::session) struct Tally {
    pub(in crate::tcp::session) segments_in: u64,
    pub(in crate::tcp::session) segments_out: u64,
    pub(in crate::tcp::session) bytes_in: u64,
    pub(in crate::tcp::session) bytes_acknowledged: u64,
    /// When payload last arrived, or when the connection was established.
    pub(in crate::tcp::session) received_at: Instant,
    /// Numbers of segments that arrived out of order, and of segments whose bytes had all arrived before.
    pub(in crate::tcp::session) early: u32,
    pub(in crate::tcp::session) duplicates: u32,
    /// D-SACKs received (RFC 2883).
    pub(in crate::tcp::session) duplicate_sacks: u32,
    pub(in crate::tcp::session) spent: Spent,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            segments_in: 0,
            segments_out: 0,
            bytes_in: 0,
            bytes_acknowledged: 0,
            received_at: Instant::ZERO,
            early: 0,
            duplicates: 0,
            duplicate_sacks: 0,
            spent: Spent { limit: Limit::Idle, since: Instant::ZERO, times: [Duration::ZERO; 3] },
        }
    }
}
