//! Statistics of one session, like Linux's `tcp_info`.
//!
//! Busy             the time during which bytes waited to be acknowledged, split by what limited the session:
//!                  the peer's window (more data is ready than it admits), the send buffer (everything is
//!                  sent and the host has no room for more), or the path.

use crate::tcp::icmp_error::IcmpErrorClass;
use crate::tcp::state::State;
use core::net::SocketAddr;
use core::time::Duration;
use kiban_base::Instant;

/// The statistics of one session.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The state of the connection.
    pub state: State,
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// Largest payload of a segment that we send, bytes.
    pub mss: u32,
    /// Smoothed round-trip time; zero before the first sample.
    pub round_trip: Duration,
    /// Round-trip time variation (RFC 6298 §2).
    pub round_trip_variation: Duration,
    /// Minimum round-trip time over the last few minutes; zero before the first sample.
    pub least_round_trip: Duration,
    /// The congestion window, bytes.
    pub congestion_window_bytes: u32,
    /// Retransmission timeout, with back-off (RFC 6298 §5).
    pub retransmission_timeout: Duration,
    /// Slow start threshold, bytes; none before the first loss.
    pub slow_start_threshold_bytes: Option<u32>,
    /// Payload bytes retransmitted.
    pub retransmitted_bytes: u64,
    /// The window that the peer offers, bytes.
    pub send_window_bytes: u32,
    /// Bytes sent and not acknowledged.
    pub outstanding_bytes: u32,
    /// Bytes that the host has written and the peer has not acknowledged.
    pub queued_bytes: u32,
    /// Bytes that the host may have queued in all.
    pub send_buffer_bytes: u32,
    /// Whether segments carry timestamps (RFC 7323).
    pub timestamps: bool,
    /// Whether acknowledgements carry SACK blocks (RFC 2018).
    pub sack: bool,
    /// Whether both ends use ECN (RFC 3168).
    pub ecn: bool,
    /// DSCP of the packets that we send (RFC 2474 §3).
    pub dscp: u8,
    /// DSCP and ECN of the packet received last.
    pub received_traffic_class: u8,
    /// The window shifts of the peer and of this side (RFC 7323 §2).
    pub window_shifts: (u8, u8),
    /// The last ICMP error that was accepted and did not end the session (RFC 5927).
    pub icmp_error: Option<IcmpErrorClass>,
    /// Segments that arrived for this session.
    pub segments_in: u64,
    /// Segments that this session sent.
    pub segments_out: u64,
    /// Payload bytes accepted in order.
    pub bytes_in: u64,
    /// Payload bytes that the peer has acknowledged.
    pub bytes_acknowledged: u64,
    /// Segments that arrived out of order, ahead of a gap.
    pub out_of_order_segments: u32,
    /// Segments whose bytes had all arrived before.
    pub duplicate_segments: u32,
    /// Duplicate SACKs that the peer reported (RFC 2883).
    pub duplicate_sacks: u32,
    /// Longest payload that the peer has sent in a segment, bytes.
    pub peer_segment_bytes: u32,
    /// The receive window last offered, less what has arrived since, bytes.
    pub receive_window_bytes: u32,
    /// Largest receive window, bytes, as far as memory allows.
    pub receive_buffer_bytes: u32,
    pub(in crate::tcp) spent: Spent,
    /// Time during which bytes waited to be acknowledged, up to the last change; [`Info::until`] adds the
    /// current period.
    pub busy: Duration,
    /// Part of `busy` during which the peer's window admitted no more.
    pub window_limited: Duration,
    /// Part of `busy` during which the send buffer was full.
    pub buffer_limited: Duration,
    /// When data was last sent, or when the connection was established.
    pub data_sent_at: Instant,
    /// When payload last arrived, or when the connection was established.
    pub data_received_at: Instant,
    /// When an acceptable segment last arrived.
    pub last_received_at: Instant,
}

impl Info {
    /// Returns the statistics, with the current period (up to `now`) added to [`Info::busy`] and its two
    /// parts.
    #[must_use]
    pub fn until(mut self, now: Instant) -> Info {
        let mut spent = self.spent;
        spent.change(Limit::Idle, now);
        let [path, window, buffer] = spent.times;
        (self.busy, self.window_limited, self.buffer_limited) = (path + window + buffer, window, buffer);
        self
    }
}

/// What keeps the queued bytes of a session from being sent or acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::tcp) enum Limit {
    /// Nothing is queued.
    Idle,
    Path,
    Window,
    Buffer,
}

/// The time during which bytes waited, by the cause that limited the session.
#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct Spent {
    pub(in crate::tcp) limit: Limit,
    pub(in crate::tcp) since: Instant,
    /// The times limited by the path, by the peer's window and by the send buffer.
    pub(in crate::tcp) times: [Duration; 3],
}

impl Spent {
    #[inline]
    pub(in crate::tcp) fn change(&mut self, limit: Limit, now: Instant) {
        if limit != self.limit {
            if self.limit != Limit::Idle {
                self.times[self.limit as usize - 1] += now.since(self.since);
            }
            (self.limit, self.since) = (limit, now);
        }
    }
}
