//! `TCP_INFO` for programs on the board: those of `kiban run`, and attached clients.
//!
//! Layout           `struct tcp_info` of Linux's `include/uapi/linux/tcp.h`, up to `tcpi_rcv_wnd` (6.2), in
//!                  the machine's byte order.
//! Estimates        TCP counts retransmitted bytes, not segments, so `tcpi_total_retrans` is that number
//!                  divided by the MSS. In `tcpi_segs_out`, a large segment that the link cuts (TSO) counts
//!                  once. Windows in segments are rounded up, so that an open window is not zero.
//!                  Before data has arrived, `tcpi_rcv_mss` is Linux's guess: 536, or a smaller MSS.
//! Not implemented  these fields are zero: outstanding retransmissions and unanswered probes, the delayed-ACK
//!                  timeout, reordering, pacing and delivery rates, and the times of acknowledgements sent.

use core::time::Duration;
use kiban_base::Instant;
use kiban_tcpip::tcp::{Info, State};

/// Bytes of `struct tcp_info` up to `tcpi_rcv_wnd`.
pub const TCP_INFO_BYTES: usize = 236;

/// `TCPI_OPT_TIMESTAMPS`, `TCPI_OPT_SACK`, `TCPI_OPT_WSCALE`, `TCPI_OPT_ECN`.
const TIMESTAMPS: u8 = 1;
const SACK: u8 = 2;
const WINDOW_SCALE: u8 = 4;
const ECN: u8 = 8;
/// `TCP_INFINITE_SSTHRESH`, the value of `tcpi_snd_ssthresh` before the first loss.
const NO_THRESHOLD: u32 = 0x7fff_ffff;

/// `TCP_MSS_DEFAULT` and `TCP_MIN_MSS`.
const DEFAULT_MSS: u32 = 536;
const LEAST_MSS: u32 = 88;

/// Returns a stream's statistics in Linux's layout.
pub fn tcp_info(info: &Info, now: Instant) -> [u8; TCP_INFO_BYTES] {
    let mut bytes = [0; TCP_INFO_BYTES];
    let mss = info.mss.max(1);
    let us = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    let since = |then: Instant| u32::try_from(now.since(then).as_millis()).unwrap_or(u32::MAX);
    let (send_shift, receive_shift) = info.window_shifts;
    bytes[0] = state(info.state);
    bytes[5] = if info.timestamps { TIMESTAMPS } else { 0 }
        | if info.sack { SACK } else { 0 }
        | if send_shift > 0 || receive_shift > 0 { WINDOW_SCALE } else { 0 }
        | if info.ecn { ECN } else { 0 };
    bytes[6] = send_shift & 15 | receive_shift << 4;
    let retransmitted = info.retransmitted_bytes.div_ceil(mss.into()) as u32;
    let unsent = info.queued_bytes.saturating_sub(info.outstanding_bytes);
    let words = [
        (8, us(info.retransmission_timeout)),
        (16, info.mss),
        (20, info.peer_segment_bytes.max(mss.min(DEFAULT_MSS)).max(LEAST_MSS)),
        (24, info.outstanding_bytes.div_ceil(mss)),
        (44, since(info.data_sent_at)),
        (52, since(info.data_received_at)),
        (56, since(info.last_received_at)),
        // The path MTU: the MSS, and the headers of TCP, with time stamps, and of IPv4 or IPv6.
        (60, info.mss + if info.local.is_ipv4() { 40 } else { 60 } + if info.timestamps { 12 } else { 0 }),
        (64, info.receive_window_bytes),
        (68, us(info.round_trip)),
        (72, us(info.round_trip_variation)),
        (76, info.slow_start_threshold_bytes.map_or(NO_THRESHOLD, |bytes| bytes.div_ceil(mss))),
        (80, info.congestion_window_bytes.div_ceil(mss)),
        (84, info.mss),
        (96, info.receive_buffer_bytes),
        (100, retransmitted),
        (136, info.segments_out as u32),
        (140, info.segments_in as u32),
        (144, unsent),
        (148, us(info.least_round_trip)),
        (216, info.duplicate_sacks),
        (224, info.out_of_order_segments),
        (228, info.send_window_bytes),
        (232, info.receive_window_bytes),
    ];
    for (at, word) in words {
        bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    let sent = info.bytes_acknowledged + u64::from(info.outstanding_bytes) + info.retransmitted_bytes;
    let us = |time: Duration| time.as_micros() as u64;
    let words = [
        (120, info.bytes_acknowledged),
        (128, info.bytes_in),
        (168, us(info.busy)),
        (176, us(info.window_limited)),
        (184, us(info.buffer_limited)),
        (200, sent),
        (208, info.retransmitted_bytes),
    ];
    for (at, word) in words {
        bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// Returns Linux's number of a state (`TCP_ESTABLISHED` …).
fn state(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}
