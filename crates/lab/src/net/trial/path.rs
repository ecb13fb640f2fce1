//! The measured properties of the path to a host.

use serde::{Deserialize, Serialize};

/// The properties of a path.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Path {
    /// The median round-trip time of one byte, us.
    pub round_trip_us: f64,
    /// The largest segment with ample buffers, bytes.
    pub mss_bytes: u32,
    /// A lower bound of the path's rate, Mbit/s: the measurement includes slow start, so the path may be
    /// faster.
    pub rate_mbps: f64,
}
