//! The measured properties of the path to a host.

use serde::{Deserialize, Serialize};

/// The properties of a path.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Path {
    /// A round trip of one byte, in the middle of some, us.
    pub round_trip_us: f64,
    /// The largest segment with ample buffers, bytes.
    pub mss_bytes: u32,
    /// At least so fast is it, Mbit/s: slow start is part of the figure.
    pub rate_mbps: f64,
}
