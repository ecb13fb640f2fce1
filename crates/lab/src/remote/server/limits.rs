//! The limits of a server, for clients and for unauthenticated connections.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The maximum number of unauthenticated connections at a time, and how many of them may come from one IPv4
/// address or IPv6 /64.
pub(crate) const UNAUTHENTICATED_MAX: usize = 64;
pub(super) const UNAUTHENTICATED_PER_NETWORK_MAX: usize = 8;
/// How long a client may take to present the token.
pub(super) const UNAUTHENTICATED_TIMEOUT: Duration = Duration::from_secs(5);

/// How much longer than announced a measurement may take before the server aborts it.
pub(super) const GRACE: Duration = Duration::from_secs(10);
/// The interval at which a waiting thread checks whether the server is shutting down.
pub(super) const LOOK: Duration = Duration::from_millis(200);

/// Returns an error that names the first quantity that exceeds its limit. Each row contains the name of a
/// quantity, the requested value, and the limit.
pub(super) fn check_limits(rows: &[(&str, u64, u64)]) -> Result<(), String> {
    rows.iter().find(|(_, requested, most)| requested > most).map_or(Ok(()), |(what, requested, most)| {
        Err(format!("too many {what}: {requested}, the server allows {most}"))
    })
}

/// The limits of a server.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The number of simultaneous sessions.
    pub sessions: usize,
    /// The longest trial, s.
    pub trial_seconds: u32,
    /// The longest session, s. A measurement that is still running then is aborted.
    pub session_seconds: u32,
    /// The idle time after which a session ends, s.
    pub idle_seconds: u32,
    /// The largest socket buffer, bytes.
    pub buffer_bytes: u32,
    /// The longest message or reply, bytes.
    pub message_bytes: u32,
    /// The maximum number of bytes read per second, and of bytes written, in each session.
    pub bytes_per_second: u64,
    /// The ports of data connections; 0 means that the system chooses.
    pub data_ports: RangeInclusive<u16>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            sessions: 32,
            trial_seconds: 60,
            session_seconds: 6 * 3600,
            idle_seconds: 120,
            buffer_bytes: 64 << 20,
            message_bytes: 16 << 20,
            bytes_per_second: 12_500_000_000,
            data_ports: 0..=0,
        }
    }
}
