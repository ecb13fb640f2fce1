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
