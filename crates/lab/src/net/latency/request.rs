//! What `kiban lab latency` asks for.

use std::time::Duration;

/// A request for a measurement of latency under load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LatencyRequest {
    /// Connections in each loaded direction.
    pub connections: u16,
    /// The length of each loaded phase. The idle phase is half as long.
    pub length: Duration,
}
