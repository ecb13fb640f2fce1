//! What `kiban lab latency` asks for.

use std::time::Duration;

/// The minimum length of the idle phase: a thousand probes, because fewer do not show a loss of a percent.
const IDLE_LENGTH_MIN: Duration = Duration::from_secs(5);

/// Returns the command line that measures the host with a subcommand of `kiban lab` and its options.
pub type Next<'a> = &'a dyn Fn(&str) -> String;

/// Returns the command that captures a bulk transfer to the host (0) or from it (1).
pub(in crate::net) fn trace_command(way: usize, command: Next<'_>) -> String {
    let pattern = ["stream", "stream-back"][way];
    command(&format!("trace --pattern {pattern} --seconds 2 --pcap captures"))
}

/// A request for a measurement of latency under load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LatencyRequest {
    /// Connections in each loaded direction.
    pub connections: u16,
    /// The length of each loaded phase.
    pub length: Duration,
}

impl LatencyRequest {
    /// Returns the length of the idle phase: half of a loaded one, but at least five seconds.
    pub(super) fn idle_length(&self) -> Duration {
        IDLE_LENGTH_MIN.max(self.length / 2)
    }

    /// Returns about how long a measurement takes.
    pub fn time(&self) -> Duration {
        self.idle_length() + 3 * self.length
    }
}
