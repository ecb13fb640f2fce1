//! The measured properties of the path to a host.

use serde::{Deserialize, Serialize};

/// The properties of a path.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Path {
    /// The median round-trip time of one byte, us.
    pub round_trip_us: f64,
    /// The largest segment with ample buffers, bytes.
    pub mss_bytes: u32,
    /// The approximate rate of the path, Mbit/s. The measurement may include slow start, so a long path may
    /// be faster.
    pub rate_mbps: f64,
}

impl Path {
    /// Returns how long an exchange of a message and a short reply takes if nothing waits for a timer, us.
    pub(in crate::net) fn exchange_us(&self, message_bytes: u32) -> f64 {
        self.round_trip_us + f64::from(message_bytes) * 8.0 / self.rate_mbps.max(1e-6)
    }
}
