//! Buffer autotuning: buffers grow to what a connection can use.
//!
//! Receive          dynamic right-sizing (Fisk and Feng 2001; Linux, gVisor). Once per round trip, the buffer
//!                  grows to twice the bytes that the host consumed in that round trip, because the sender's
//!                  window allowed that many and may double in slow start. The buffer never shrinks here; if
//!                  it exceeds its share of memory, `share` reduces the window.
//! Round trip       the receiver's estimate comes from timestamp echoes or, without timestamps, from the time
//!                  that a window of data takes to arrive (an upper bound). Our own RTT is used if it is
//!                  known and smaller.
//! Send             twice the congestion window (one in flight and one to follow it), within the configured
//!                  limits.

use super::tcb::{Session, SessionContext};
use crate::tcp::config::Config;
use crate::wire::tcp::Header;
use core::time::Duration;

impl Config {
    /// Returns the largest receive buffer that one session may reach, bytes.
    pub(in crate::tcp) fn receive_buffer_most(&self) -> u32 {
        if self.autotune {
            self.receive_buffer_max_bytes.max(self.receive_buffer_bytes)
        } else {
            self.receive_buffer_bytes
        }
    }
}

impl Session {
    /// Returns the current size of the receive buffer, bytes, before memory shares apply.
    #[inline]
    pub(super) fn receive_most(&self, config: &Config) -> u32 {
        config.window_bytes(self.tuning.buffer, self.mss)
    }

    /// Returns the current size of the send buffer, bytes, before memory shares apply.
    #[inline]
    pub(super) fn send_most(&self, config: &Config) -> u32 {
        let least = config.send_mark_bytes(config.send_buffer_bytes, self.mss);
        if !config.autotune || config.send_buffer_max_bytes <= config.send_buffer_bytes {
            return least;
        }
        let twice = self.congestion.cwnd().saturating_mul(2);
        config.send_mark_bytes(twice.clamp(config.send_buffer_bytes, config.send_buffer_max_bytes), self.mss)
    }

    /// Measures the receiver's round trip when payload arrives.
    #[inline]
    pub(super) fn measure_arrival(&mut self, header: &Header, ctx: &SessionContext<'_, '_>) {
        if !ctx.config.autotune {
            return;
        }
        let now = ctx.cx.now;
        if let (Some(stamps), Some(theirs)) = (&self.timestamps, header.options.timestamps) {
            if let Some(trip) = stamps.rtt_of_echo(theirs.echo, now) {
                // The timestamp clock ticks in milliseconds, so the sample is at least 1 ms.
                self.tuning.measured(trip.max(Duration::from_millis(1)));
            }
        } else {
            match self.tuning.window {
                Some((_, until)) if self.rcv_nxt.lt(until) => return,
                Some((from, _)) => self.tuning.measured(now.since(from)),
                None => {}
            }
            self.tuning.window = Some((now, self.rcv_adv));
        }
    }

    /// Grows the receive buffer after the host has consumed `count` bytes.
    #[inline]
    pub(super) fn tune(&mut self, count: u32, ctx: &SessionContext<'_, '_>) {
        if !ctx.config.autotune {
            return;
        }
        let now = ctx.cx.now;
        let trip = match self.rtt.srtt() {
            Some(ours) if !ours.is_zero() && (self.tuning.trip.is_zero() || ours < self.tuning.trip) => ours,
            _ => self.tuning.trip,
        };
        let tuning = &mut self.tuning;
        tuning.taken = tuning.taken.saturating_add(count);
        if trip.is_zero() || now.since(tuning.since) < trip {
            return;
        }
        let wanted = tuning.taken.saturating_mul(2);
        tuning.buffer = tuning.buffer.max(wanted.min(ctx.config.receive_buffer_most()));
        (tuning.taken, tuning.since) = (0, now);
    }
}
