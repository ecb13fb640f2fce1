//! What of TCP can be set, with the source of each default.

use core::time::Duration;

/// The settings of every session of one board.
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest payload of one segment on the wire, bytes; offered to the peer (RFC 9293 §3.7.1).
    pub mss: u16,
    /// Largest payload handed down whole, bytes: `mss`, or up to 64 KB where something below cuts.
    pub segment_bytes_max: u32,
    /// Whether what is below cuts segments: the host's slices then end at every `mss`, so that pieces know their sums.
    pub cut_below: bool,
    /// Bytes that a session may hold for sending, acknowledged or not.
    pub send_buffer_bytes: u32,
    /// The receive window, bytes (RFC 7323 §2 scales it).
    pub receive_buffer_bytes: u32,
    /// What a session may always hold or offer however scarce memory is, bytes.
    pub floor_bytes: u32,
    /// What a session that has anything to send holds beside its bytes: pages that are not full. Two pages: the one
    /// being written and the one being acknowledged.
    pub holder_bytes: u32,
    /// An acknowledgement waits at most so long for company (RFC 1122 §4.2.3.2 allows 500 ms; Linux 40 ms).
    pub delayed_ack: Duration,
    /// Full segments after which an acknowledgement is due (RFC 9293 §3.8.6.3: at least every second).
    pub ack_segments: u32,
    /// Hold back short segments while data is outstanding (RFC 1122 §4.2.3.4).
    pub nagle: bool,
    /// The first retransmission timeout (RFC 6298 §2.1).
    pub rto_initial: Duration,
    /// The least one (RFC 6298 §2.4 asks for 1 s; Linux has 200 ms).
    pub rto_min: Duration,
    /// The greatest one (RFC 6298 §2.5).
    pub rto_max: Duration,
    /// Timeouts in a row before a session is given up (RFC 9293 §3.8.3, R2).
    pub retries: u32,
    /// The same for a connection request.
    pub syn_retries: u32,
    /// Segments sent before the first acknowledgement (RFC 6928).
    pub initial_window_segments: u32,
    /// How long a closed session keeps its name (RFC 9293 §3.4.2: twice the segment lifetime).
    pub time_wait: Duration,
    /// Sessions at most.
    pub sessions_max: usize,
    /// Connections of one listener that are not yet accepted, at most.
    pub backlog: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mss: 1460,
            segment_bytes_max: 1460,
            cut_below: false,
            send_buffer_bytes: 256 << 10,
            receive_buffer_bytes: 256 << 10,
            floor_bytes: 16 << 10,
            holder_bytes: 8 << 10,
            delayed_ack: Duration::from_millis(40),
            ack_segments: 2,
            nagle: true,
            rto_initial: Duration::from_secs(1),
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(60),
            retries: 15,
            syn_retries: 6,
            initial_window_segments: 10,
            time_wait: Duration::from_secs(60),
            sessions_max: 16_384,
            backlog: 128,
        }
    }
}

impl Config {
    /// The shift with which the largest window fits 16 bits (RFC 7323 §2.3; at most 14).
    pub(super) fn window_shift(&self) -> u8 {
        (0..14).find(|shift| self.receive_buffer_bytes >> shift <= 0xffff).unwrap_or(14)
    }
}
