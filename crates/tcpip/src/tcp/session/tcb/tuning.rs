//! State of one session's buffer tuning.

use crate::tcp::config::Config;
use crate::wire::tcp::Sequence;
use core::time::Duration;
use kiban_base::Instant;

/// The receiver's measurements.
#[derive(Debug)]
pub(in crate::tcp::session) struct Tuning {
    /// Maximum number of bytes that the session may hold and offer.
    pub(in crate::tcp::session) buffer: u32,
    /// Bytes that the host consumed in this round trip, and when it began.
    pub(in crate::tcp::session) taken: u32,
    pub(in crate::tcp::session) since: Instant,
    /// The receiver's estimate of the round trip.
    pub(in crate::tcp::session) trip: Duration,
    /// Used without timestamps: once RCV.NXT reaches this number, a whole window has arrived since the stored
    /// time.
    pub(in crate::tcp::session) window: Option<(Instant, Sequence)>,
}

impl Tuning {
    pub(in crate::tcp::session) fn new(config: &Config) -> Tuning {
        Tuning {
            buffer: config.receive_buffer_bytes,
            taken: 0,
            since: Instant::ZERO,
            trip: Duration::ZERO,
            window: None,
        }
    }

    /// Records a round trip. A shorter one replaces the estimate; a longer one is weighted by an eighth,
    /// because it may include processing time in a host.
    pub(in crate::tcp::session) fn measured(&mut self, trip: Duration) {
        self.trip = if self.trip.is_zero() || trip < self.trip { trip } else { (self.trip * 7 + trip) / 8 };
    }
}
