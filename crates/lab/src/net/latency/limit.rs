//! What keeps a load from filling the path, or its queue: the hosts themselves.
//!
//! Buffers   a connection is limited by its send buffer or by the receiver's window if the kernel says so for
//!           most of the time (`tcpi_sndbuf_limited`, `tcpi_rwnd_limited`). They limit a load only if they
//!           limit all of its connections: one that is not limited fills the path. Over a short round trip, a
//!           full window means that the processors are busy.
//! Queue     if the bottleneck is the sender's own queueing discipline, Linux keeps about two bursts of each
//!           connection there (TCP small queues, `tcp_small_queue_check`). Less than the congestion window is
//!           then in flight, although more could be sent. A queue that dropped packets was full. BBR has such
//!           a window on every path.

use crate::remote::probes::{LOAD_CONGESTION, LoadLimits, Segments};
use serde::Serialize;

/// The share of the time for which a buffer has to limit each connection, and the median round trip of the
/// idle path, ms.
const LIMITED_MIN: (f64, f64) = (0.5, 1.0);
/// The share of the time up to which buffers do not explain that little data is in flight.
const UNLIMITED_MAX: f64 = 0.1;
/// The largest share of the congestion window that is in flight if the sender's own queue holds packets back.
const IN_FLIGHT_MAX: f64 = 0.9;

/// What limits a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The sender's send buffer.
    SendBuffer,
    /// The receiver's window.
    Window,
    /// The sender's own queue, in which TCP keeps few packets of each connection.
    OwnQueue,
}

impl Limit {
    /// Returns what limits connections with this congestion control, if anything does; `idle_ms` is the
    /// median round trip of the idle path.
    pub(super) fn of(
        limits: LoadLimits,
        segments: Option<Segments>,
        congestion: Option<&str>,
        idle_ms: f64,
    ) -> Option<Limit> {
        let LoadLimits { send_buffer, window, in_flight, congestion_window } = limits;
        let limits = |share: f64| share >= LIMITED_MIN.0 && idle_ms >= LIMITED_MIN.1;
        let is_full = segments.is_none_or(|segments| segments.retransmits > 0);
        let is_free = send_buffer.max(window) <= UNLIMITED_MAX && congestion == Some(LOAD_CONGESTION);
        if limits(send_buffer) {
            Some(Limit::SendBuffer)
        } else if limits(window) {
            Some(Limit::Window)
        } else if is_free && !is_full && (in_flight as f64) < IN_FLIGHT_MAX * congestion_window as f64 {
            Some(Limit::OwnQueue)
        } else {
            None
        }
    }

    /// Returns whether the load may leave a part of the path unused.
    pub(super) fn is_buffer(self) -> bool {
        self != Limit::OwnQueue
    }

    /// Returns the setting that limits a load to the host (0) or from it (1), with its host.
    pub(super) fn setting(self, way: usize) -> String {
        // The host that sends is the first one for a load to the host.
        let (what, setting, is_here) = match self {
            Limit::SendBuffer => ("send buffer", "net.ipv4.tcp_wmem", way == 0),
            Limit::Window => ("receive window", "net.ipv4.tcp_rmem", way == 1),
            Limit::OwnQueue => ("queue", "tc -s qdisc", way == 0),
        };
        let whose = if is_here { "this host's" } else { "the other host's" };
        format!("{whose} {what} ({setting})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_limited_if_all_its_connections_are() {
        let of = |shares: (f64, f64), in_flight, retransmits, congestion: &str, idle_ms| {
            let (send_buffer, window) = shares;
            let limits = LoadLimits { send_buffer, window, in_flight, congestion_window: 100 };
            Limit::of(limits, Some(Segments { sent: 1000, retransmits }), Some(congestion), idle_ms)
        };
        for (found, expected) in [
            (of((0.72, 0.0), 50, 0, "cubic", 40.0), Some(Limit::SendBuffer)),
            (of((0.0, 0.9), 50, 9, "bbr", 40.0), Some(Limit::Window)),
            (of((0.4, 0.4), 50, 0, "cubic", 40.0), None),
            // A fast path on which the reader is the slowest.
            (of((0.0, 0.95), 50, 0, "cubic", 0.01), None),
            (of((0.0, 0.01), 67, 0, "cubic", 0.01), Some(Limit::OwnQueue)),
            (of((0.0, 0.01), 98, 0, "cubic", 0.01), None),
            (of((0.0, 0.01), 50, 0, "bbr", 0.01), None),
            // The queue was full.
            (of((0.0, 0.01), 67, 1, "cubic", 0.01), None),
        ] {
            assert_eq!(found, expected);
        }
        let none = Limit::of(LoadLimits::default(), Some(Segments::default()), Some("cubic"), 40.0);
        assert_eq!(none, None);
        assert_eq!(Limit::SendBuffer.setting(0), "this host's send buffer (net.ipv4.tcp_wmem)");
        assert_eq!(Limit::Window.setting(0), "the other host's receive window (net.ipv4.tcp_rmem)");
        assert_eq!(Limit::Window.setting(1), "this host's receive window (net.ipv4.tcp_rmem)");
    }
}
