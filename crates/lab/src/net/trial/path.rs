//! The measured properties of the path to a host.

use serde::{Deserialize, Serialize};

/// The properties of a path.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Path {
    /// The median round-trip time of one byte, us.
    pub round_trip_us: f64,
    /// The largest segment with ample buffers, bytes.
    pub mss_bytes: u32,
    /// A lower bound of its rate, Mbit/s: slow start is part of the measurement.
    pub rate_mbps: f64,
}
