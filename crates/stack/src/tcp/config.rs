//! What of TCP can be set, with the source of each default.

use core::time::Duration;

kiban_ground::settings! {
    /// The settings of every session of one board.
    pub struct Config {
        /// Largest payload of one segment on the wire, bytes; offered to the peer (RFC 9293 §3.7.1).
        mss: u16 = 1460,
        /// Largest payload handed down whole, bytes: `mss`, or up to 64 KB where something below cuts.
        segment_bytes_max: u32 = 1460,
        /// Whether what is below cuts segments: the host's slices then end at every `mss`, so that pieces know their sums.
        cut_below: bool = false,
        /// Bytes that a session may hold for sending, acknowledged or not.
        send_buffer_bytes: u32 = 256 << 10,
        /// The receive window, bytes (RFC 7323 §2 scales it).
        receive_buffer_bytes: u32 = 256 << 10,
        /// What a session may always hold or offer however scarce memory is, bytes.
        floor_bytes: u32 = 16 << 10,
        /// What a session that has anything to send holds beside its bytes: pages that are not full. Two pages: the one
        /// being written and the one being acknowledged.
        holder_bytes: u32 = 8 << 10,
        /// An acknowledgement waits at most so long for company (RFC 1122 §4.2.3.2 allows 500 ms; Linux 40 ms).
        delayed_ack: Duration = Duration::from_millis(40),
        /// Full segments after which an acknowledgement is due (RFC 9293 §3.8.6.3: at least every second).
        ack_segments: u32 = 2,
        /// Hold back short segments while data is outstanding (RFC 1122 §4.2.3.4).
        nagle: bool = true,
        /// The first retransmission timeout (RFC 6298 §2.1).
        rto_initial: Duration = Duration::from_secs(1),
        /// The least one (RFC 6298 §2.4 asks for 1 s; Linux has 200 ms).
        rto_min: Duration = Duration::from_millis(200),
        /// The greatest one (RFC 6298 §2.5).
        rto_max: Duration = Duration::from_secs(60),
        /// Timeouts in a row before a session is given up (RFC 9293 §3.8.3, R2).
        retries: u32 = 15,
        /// The same for a connection request.
        syn_retries: u32 = 6,
        /// Segments sent before the first acknowledgement (RFC 6928).
        initial_window_segments: u32 = 10,
        /// How long a closed session keeps its name (RFC 9293 §3.4.2: twice the segment lifetime).
        time_wait: Duration = Duration::from_secs(60),
        /// Sessions at most.
        sessions_max: usize = 16_384,
        /// Connections of one listener that are not yet accepted, at most.
        backlog: usize = 128,
    }
}

impl Config {
    /// The shift with which the largest window fits 16 bits (RFC 7323 §2.3; at most 14).
    pub(super) fn window_shift(&self) -> u8 {
        (0..14).find(|shift| self.receive_buffer_bytes >> shift <= 0xffff).unwrap_or(14)
    }
}
