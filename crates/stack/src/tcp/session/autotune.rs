//! Buffers that grow with what a connection can use.
//!
//! Receive   dynamic right-sizing (Fisk and Feng 2001; Linux, gVisor): once a round trip, look at what the host has taken
//!           in it. What is taken in a round trip is what the sender's window let come, so the next may be twice that; in
//!           slow start the sender doubles, too. It never falls: a share of memory that is too large is taken back by the
//!           ledger (`share`), not here.
//! Trip      of the receiver: what timestamps give back, and without them the time in which a window's worth comes (an
//!           upper bound); our own measurement where we send as well.
//! Send      twice the congestion window: one in the air and one to follow it, between the two marks of the settings.

use super::{Desk, Session};
use crate::tcp::Config;
use core::time::Duration;
use kiban_ground::Instant;
use kiban_wire::tcp::{Header, Sequence};

/// What is known of one receiver.
#[derive(Debug)]
pub(super) struct Tuning {
    /// What may be held and offered.
    buffer: u32,
    /// Bytes that the host took in this round trip, and when it began.
    taken: u32,
    since: Instant,
    /// The round trip as the receiver sees it.
    trip: Duration,
    /// Without timestamps: when so far has come, a window has passed since then.
    window: Option<(Instant, Sequence)>,
}

impl Tuning {
    pub(super) fn new(config: &Config) -> Tuning {
        Tuning {
            buffer: config.receive_buffer_bytes,
            taken: 0,
            since: Instant::ZERO,
            trip: Duration::ZERO,
            window: None,
        }
    }

    /// A round trip was measured. The least counts at once, more counts an eighth: what waits in a host is no path.
    fn measured(&mut self, trip: Duration) {
        self.trip = if self.trip.is_zero() || trip < self.trip { trip } else { (self.trip * 7 + trip) / 8 };
    }
}

impl Config {
    /// The most that one session may ever hold and offer.
    pub(in crate::tcp) fn receive_buffer_most(&self) -> u32 {
        if self.autotune {
            self.receive_buffer_max_bytes.max(self.receive_buffer_bytes)
        } else {
            self.receive_buffer_bytes
        }
    }
}

impl Session {
    /// What may be held and offered, as far as tuning goes.
    #[inline]
    pub(super) fn receive_most(&self, config: &Config) -> u32 {
        config.window_bytes(self.tuning.buffer, self.mss)
    }

    /// What the host may hand over, as far as tuning goes.
    #[inline]
    pub(super) fn send_most(&self, config: &Config) -> u32 {
        let least = config.send_mark_bytes(config.send_buffer_bytes, self.mss);
        if !config.autotune || config.send_buffer_max_bytes <= config.send_buffer_bytes {
            return least;
        }
        let twice = self.congestion.window().saturating_mul(2);
        config.send_mark_bytes(twice.clamp(config.send_buffer_bytes, config.send_buffer_max_bytes), self.mss)
    }

    /// Payload has come in order.
    #[inline]
    pub(super) fn measure_arrival(&mut self, header: &Header, desk: &Desk<'_, '_>) {
        if !desk.config.autotune {
            return;
        }
        let now = desk.cx.now;
        if let (Some(stamps), Some(theirs)) = (&self.stamps, header.options.timestamps) {
            if let Some(trip) = stamps.trip(theirs.echo, now) {
                // A millisecond is the least that the clock tells.
                self.tuning.measured(trip.max(Duration::from_millis(1)));
            }
        } else {
            match self.tuning.window {
                Some((_, until)) if self.expected.lt(until) => return,
                Some((from, _)) => self.tuning.measured(now.since(from)),
                None => {}
            }
            self.tuning.window = Some((now, self.edge));
        }
    }

    /// The host has taken `count` bytes.
    #[inline]
    pub(super) fn tune(&mut self, count: u32, desk: &Desk<'_, '_>) {
        if !desk.config.autotune {
            return;
        }
        let now = desk.cx.now;
        let trip = match self.rtt.smoothed() {
            Some(ours) if !ours.is_zero() && (self.tuning.trip.is_zero() || ours < self.tuning.trip) => ours,
            _ => self.tuning.trip,
        };
        let tuning = &mut self.tuning;
        tuning.taken = tuning.taken.saturating_add(count);
        if trip.is_zero() || now.since(tuning.since) < trip {
            return;
        }
        let wanted = tuning.taken.saturating_mul(2);
        tuning.buffer = tuning.buffer.max(wanted.min(desk.config.receive_buffer_most()));
        (tuning.taken, tuning.since) = (0, now);
    }
}
