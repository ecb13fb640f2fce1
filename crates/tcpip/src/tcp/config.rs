//! Settings of TCP, with the source of each default.

use core::time::Duration;
use kiban_base::Instant;

/// When a session that hears nothing sends keep-alive probes (RFC 9293 §3.8.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// The idle time before the first probe.
    pub idle: Duration,
    /// The interval between probes; `None` means that of the configuration.
    pub interval: Option<Duration>,
    /// Unanswered probes before the session is aborted; `None` means the number of the configuration.
    pub probes: Option<u32>,
}

impl KeepAlive {
    /// Returns keep-alive after this idle time, with probes as configured.
    pub fn after(idle: Duration) -> KeepAlive {
        KeepAlive { idle, interval: None, probes: None }
    }
}

kiban_base::choices! {
    /// Selects which short segments wait for an acknowledgement.
    pub enum Nagle {
        /// None.
        Off = "off",
        /// While data is outstanding, every segment shorter than the MSS waits (RFC 896, RFC 1122 §4.2.3.4).
        Classic = "on",
        /// While a *short* segment is outstanding, every segment shorter than the MSS waits
        /// (draft-minshall-nagle; Linux).
        Minshall = "minshall",
        /// While data is outstanding, segments shorter than `nagle_limit_bytes` wait (Solaris: `tcp_naglim`).
        Limit = "limit",
    }
}

kiban_base::choices! {
    /// The unit of `ack_segments`.
    pub enum AckUnit {
        /// The longest segment that the peer has sent (similar to Linux's estimate of the peer's MSS).
        Largest = "largest",
        /// The MSS that both ends agreed on (RFC 9293 §3.8.6.3: "full-sized segments").
        Mss = "mss",
        /// Segments of any length.
        Segment = "segment",
    }
}

kiban_base::choices! {
    /// How the right edge of our offered window moves.
    pub enum Offer {
        /// By at least a full segment or half of the buffer, or not at all (RFC 9293 §3.8.6.2.2).
        Steps = "steps",
        /// Every acknowledgement offers all free space, unless that is less than a segment and less than a
        /// quarter of the buffer (4.3BSD, `tcp_output`).
        Room = "room",
        /// Every acknowledgement offers the whole window, until a full window of bytes waits for the reader
        /// (System V: TCP passes data into the stream as long as its queue is below its high-water mark).
        Whole = "whole",
    }
}

kiban_base::choices! {
    /// How lost segments are detected.
    pub enum LossDetection {
        /// By time: a segment is lost if it was sent sufficiently long before one that has arrived (RFC
        /// 8985). Without SACK, losses are detected as with `newreno`.
        Rack = "rack",
        /// By SACK: a segment is lost if three segments above it are SACKed (RFC 6675 §4). Without SACK,
        /// losses are detected as with `newreno`.
        Sack = "sack",
        /// By count: one segment is lost at three duplicate acknowledgements, then one per partial
        /// acknowledgement (RFC 6582).
        NewReno = "newreno",
    }
}

kiban_base::choices! {
    /// The groups among which memory, sessions and the backlog are divided first. The sessions of a group
    /// then share its part.
    pub enum Fairness {
        /// Peer addresses: IPv4 addresses, and IPv6 /64 prefixes.
        Address = "address",
        /// No groups: all sessions share directly. For a board whose users are mostly behind one address (a
        /// proxy, a container network).
        Flow = "flow",
    }
}

kiban_base::choices! {
    /// How the congestion window grows without loss, and how far it falls after a loss.
    pub enum CongestionControl {
        /// A cubic function of the time since the last loss (RFC 9438).
        Cubic = "cubic",
        /// Reno: the window grows by one segment per round trip, and is halved after a loss (RFC 5681).
        Reno = "reno",
    }
}

kiban_base::choices! {
    /// When explicit congestion notification is used (RFC 3168).
    pub enum Ecn {
        /// Never.
        Off = "off",
        /// If the peer asks for it (Linux: 2, the default).
        Accept = "accept",
        /// Our SYNs ask for it, too (Linux: 1).
        On = "on",
    }
}

kiban_base::choices! {
    /// When a listener answers SYNs with cookies.
    pub enum SynCookies {
        /// Never: SYNs beyond the backlog are dropped.
        Off = "off",
        /// When the backlog is full (Linux: 1).
        Full = "full",
        /// For every SYN (Linux: 2).
        Always = "always",
    }
}

kiban_base::settings! {
    /// The settings of every session of one board.
    pub struct Config {
        /// Largest payload of one segment on the wire, bytes; advertised to the peer as our MSS (RFC 9293
        /// §3.7.1).
        mss: u16 = 1460,
        /// Largest payload handed down in one piece, bytes: `mss`, or up to 64 KB if a lower layer segments
        /// it.
        segment_bytes_max: u32 = 1460,
        /// Whether a lower layer splits large segments. Slices of written data then end at every multiple of
        /// `mss`, so that the checksums of the parts are known.
        segmentation_offload: bool = false,
        /// Retransmissions in a row after which IP gets negative advice about the route (RFC 9293 §3.8.3: R1,
        /// at least 3).
        negative_advice_retries: u32 = 3,
        /// DSCP of a session's packets, unless its host sets another (RFC 9293 §3.9.2, RFC 2474 §3).
        dscp: u8 = 0,
        /// Size of the send buffer, bytes: unsent and unacknowledged data.
        send_buffer_bytes: u32 = 256 << 10,
        /// The receive window, bytes (RFC 7323 §2 scales it).
        receive_buffer_bytes: u32 = 256 << 10,
        /// Whether to grow the buffers to what the connection can use: the send buffer up to
        /// `send_buffer_max_bytes`, the receive window up to `receive_buffer_max_bytes` (Linux, gVisor: on).
        /// If off, buffers keep the sizes above.
        autotune: bool = false,
        /// Largest send buffer with `autotune`, bytes (Linux: `tcp_wmem`, 4 MB).
        send_buffer_max_bytes: u32 = 4 << 20,
        /// Largest receive window with `autotune`, bytes; determines the window scale (Linux: `tcp_rmem`, 6
        /// MB).
        receive_buffer_max_bytes: u32 = 6 << 20,
        /// Whether to offer window scaling (RFC 7323 §2).
        window_scaling: bool = true,
        /// Round the peer's MSS down to a multiple of this number of bytes, if the MSS is larger (4.3BSD: a
        /// cluster, `MCLBYTES`).
        mss_round_bytes: Option<u32> = None,
        /// Whether to round the receive window up to full segments (Solaris).
        window_round_to_mss: bool = false,
        /// Minimum receive window, full segments (Solaris: `tcp_recv_hiwat_minmss`).
        window_segments_min: u32 = 0,
        /// Whether to round the send buffer up to full segments.
        send_round_to_mss: bool = false,
        /// How far a write that begins within the send buffer may extend beyond it, bytes (System V streams
        /// accept a whole write while the queue is below its high-water mark).
        write_overshoot_bytes: u32 = 0,
        /// Free space in the send buffer (before rounding) at which a blocked writer is woken, bytes; at most
        /// the whole buffer. With less space, no part of a write that does not fit is accepted (4.3BSD:
        /// `sb_lowat`). With `None`, it is half of the buffer, at most 16 KB.
        send_low_water_bytes: Option<u32> = None,
        /// Copy a write in pieces of this size, bytes, so that TCP may send each piece before the next is
        /// copied (4.3BSD, `sosend`: a cluster at a time). With `None`, the whole write is copied at once.
        copy_chunk_bytes: Option<u32> = None,
        /// Whether buffers and windows are limited to shares of the available memory. If off, every session
        /// is promised its full buffers, however little memory is left (as on the board of paper \[1\]).
        /// Memory can then run out, and writers wait for pages.
        memory_shares: bool = true,
        /// Whether memory, sessions and the backlog are shared among peer addresses first, or among sessions
        /// only (for boards whose users share one address). No effect without `memory_shares`.
        fairness: Fairness = Fairness::Address,
        /// Bytes that a session may hold or offer beyond its share while memory is left.
        floor_bytes: u32 = 16 << 10,
        /// Bytes charged to a session that has data to send, for partly filled pages. The default
        /// is two pages: the one being written and the one being acknowledged.
        session_overhead_bytes: u32 = 8 << 10,
        /// Maximum delay of an acknowledgement (RFC 1122 §4.2.3.2 allows 500 ms; Linux: 40 ms).
        delayed_ack: Duration = Duration::from_millis(40),
        /// Tick of the delayed-ACK timer: the delay ends at a multiple of the tick, but no later than the
        /// full delay. If equal to `delayed_ack`, the timer is periodic (4.3BSD: 200 ms). With zero, the
        /// delay is exact.
        ack_tick: Duration = Duration::ZERO,
        /// Full segments after which an acknowledgement is due (RFC 9293 §3.8.6.3: at least every second).
        /// With zero, an arriving segment never triggers an immediate acknowledgement; only reads do
        /// (4.3BSD).
        ack_segments: u32 = 2,
        /// Which segments count towards `ack_segments`.
        ack_unit: AckUnit = AckUnit::Largest,
        /// Bytes after which an acknowledgement is due, whatever the segment sizes. With `None`, there is no
        /// such limit.
        ack_bytes: Option<u32> = None,
        /// A window update is sent when the host's reads have moved the right edge by this number of full
        /// segments (RFC 9293 §3.8.6.2.2), or when `update_percent` is reached.
        update_segments: u32 = 2,
        /// A window update is also sent when reads have moved the right edge by this percentage of the
        /// receive buffer (RFC 1122 §4.2.3.3: 50; 4.3BSD: 35).
        update_percent: u32 = 50,
        /// How the right edge of the offered window moves in segments that are sent for other reasons.
        window_advertisement: Offer = Offer::Steps,
        /// Nagle's algorithm: which short segments wait until outstanding data is acknowledged (Linux: the
        /// variant of Minshall).
        nagle: Nagle = Nagle::Minshall,
        /// Under [`Nagle::Limit`], a segment of at least this length in bytes does not wait.
        nagle_limit_bytes: u32 = 4095,
        /// Percentage of the largest window ever offered that a segment must fill in order not to wait
        /// (RFC 9293 §3.8.6.2.1 recommends 50).
        silly_window_percent: u32 = 50,
        /// Initial retransmission timeout (RFC 6298 §2.1).
        rto_initial: Duration = Duration::from_secs(1),
        /// Minimum retransmission timeout (RFC 6298 §2.4: 1 s; Linux: 200 ms).
        rto_min: Duration = Duration::from_millis(200),
        /// Maximum retransmission timeout (RFC 6298 §2.5).
        rto_max: Duration = Duration::from_secs(60),
        /// Timeouts in a row before a session is aborted (RFC 9293 §3.8.3, R2).
        rto_retries: u32 = 15,
        /// Timeouts in a row before a connection attempt fails. They must add up to at least three minutes
        /// (RFC 9293 §3.8.3, MUST-23; Linux: 6 retries, about two minutes).
        syn_retries: u32 = 7,
        /// Number of different SYNs for which ICMP must report the net or host unreachable before the
        /// connection attempt fails (RFC 5461 §4.1: Linux fails at the first, 4.4BSD later). If this exceeds
        /// `syn_retries`, such reports never fail the attempt, as RFC 9293 requires (MUST-56).
        syn_unreachable_max: u32 = 3,
        /// Initial congestion window, segments (RFC 6928).
        initial_window_segments: u32 = 10,
        /// The congestion control algorithm.
        congestion: CongestionControl = CongestionControl::Cubic,
        /// The loss detection algorithm.
        loss_detection: LossDetection = LossDetection::Rack,
        /// Whether recovery uses proportional rate reduction (RFC 6937); if not, it follows RFC 6675 §5 and
        /// RFC 6582.
        proportional_rate_reduction: bool = true,
        /// When explicit congestion notification is used (RFC 3168; Linux: if the peer asks for it).
        ecn: Ecn = Ecn::Accept,
        /// Whether an ECN mark reduces the window less than a loss does: to 0.8 of it with Reno, and 0.85
        /// with CUBIC (RFC 8511; Linux: off).
        ecn_alternative_backoff: bool = false,
        /// Whether a reduction of the congestion window is undone when it proves spurious: by timestamps
        /// (RFC 3522), D-SACK (RFC 3708) or F-RTO (RFC 5682). Linux: on.
        undo_spurious: bool = true,
        /// Limited transmit: each of the first two duplicate acknowledgements admits one new segment (RFC
        /// 3042).
        limited_transmit: bool = true,
        /// Send a tail loss probe before the retransmission timer fires (RFC 8985 §7); requires SACK.
        tail_loss_probe: bool = true,
        /// Minimum time added to two round trips before a tail loss probe, to allow for timer granularity and
        /// bursts (Linux: 2 ms).
        tail_loss_probe_min: Duration = Duration::from_millis(2),
        /// Time added before a tail loss probe when one segment is outstanding, whose acknowledgement the
        /// peer may delay (RFC 8985 §7.2; Linux uses the minimum RTO).
        peer_ack_delay: Duration = Duration::from_millis(200),
        /// Restart the congestion window after an idle time longer than the RTO (RFC 5681 §4.1).
        idle_restart: bool = true,
        /// Pacing: spreads segments over the round trip, at a rate of two windows per round trip in slow
        /// start and 1.2 afterwards (as Linux does). If off, a whole window may be sent in one burst.
        pacing: bool = false,
        /// Duration of TIME-WAIT (RFC 9293 §3.4.2: twice the maximum segment lifetime).
        time_wait: Duration = Duration::from_secs(60),
        /// Maximum number of sessions in TIME-WAIT (Linux: `tcp_max_tw_buckets`), also limited to a quarter
        /// of `sessions_max`. Beyond the limit, the oldest such session ends.
        time_wait_max: usize = 4096,
        /// How long a closed session in FIN-WAIT-2 waits for the peer's FIN (Linux: `tcp_fin_timeout`, 60 s).
        fin_wait_2: Duration = Duration::from_secs(60),
        /// User timeout of a session that the host has closed, if no other was set, so that a peer with a
        /// closed window cannot make us keep its data forever (RFC 1122 §4.2.3.5: R2 is at least 100 s;
        /// Linux: `tcp_orphan_retries`).
        orphan_timeout: Duration = Duration::from_secs(180),
        /// Idle time before keep-alive probes are sent. RFC 9293 §3.8.4 requires them to be off by default,
        /// and a default interval of at least two hours. Applies to every session, but can also be set per
        /// session.
        keep_alive: Option<Duration> = None,
        /// Interval between keep-alive probes (Linux: 75 s).
        keep_alive_interval: Duration = Duration::from_secs(75),
        /// Unanswered keep-alive probes before the session is aborted (Linux: 9).
        keep_alive_probes: u32 = 9,
        /// How long data may wait for its acknowledgement before the session is aborted (RFC 9293 §3.8.3; RFC
        /// 5482). With `None`, only `rto_retries` limits the wait.
        user_timeout: Option<Duration> = None,
        /// Stuck timeout: how long a peer may keep acknowledging less than `floor_bytes` of the data queued
        /// for it when a quarter of the transmit memory is free and other sessions want more (RFC 6429 §3).
        /// With less free memory the time shrinks in proportion, down to a fifth. There is no limit if this
        /// is `None` or `memory_shares` is off.
        stuck_timeout: Option<Duration> = Some(Duration::from_secs(10)),
        /// Whether to use timestamps if the peer supports them (RFC 7323; Linux: on).
        timestamps: bool = true,
        /// Whether to use selective acknowledgements if the peer supports them (RFC 2018, RFC 2883; Linux:
        /// on).
        sack: bool = true,
        /// Challenge ACKs and similar answers per second, for the whole board (RFC 5961 §7; Linux 4.7: 1000,
        /// varied at random by half, so that a peer cannot infer how many answers were sent to others). With
        /// zero, none are sent.
        challenges_per_second: u32 = 1000,
        /// Whether a RST ends TIME-WAIT (RFC 9293 §3.10.7.4 allows it; RFC 1337 §3 explains why it should
        /// not).
        time_wait_accepts_rst: bool = false,
        /// Smallest segment size to which an ICMP error may reduce a session, bytes (RFC 879: 536 bytes;
        /// Linux: 512, which is `min_pmtu`, 552 bytes, minus headers).
        mss_min: u16 = 512,
        /// Path MTU that a session assumes after two timeouts within ten seconds, bytes, if fewer than ten
        /// segments were outstanding each time: the path may lose long packets (RFC 4821 §7.7), or its queues
        /// may hold too few of them. With `None`, segments keep their size.
        timeout_mtu: Option<u32> = Some(1500),
        /// Maximum number of sessions, in any state.
        sessions_max: usize = 16_384,
        /// Maximum number of half-open connections of one listener.
        backlog: usize = 128,
        /// Maximum number of connections of one listener that Fast Open has accepted and whose handshake is
        /// not complete, unless the host sets another limit for the listener (RFC 7413 §5.1). With zero,
        /// listeners grant no Fast Open cookies and accept no data in SYNs. A SYN may arrive twice, and its
        /// data may then be delivered twice (§6.1).
        fast_open_pending_max: u32 = 0,
        /// When to answer SYNs with cookies, which need no state (RFC 4987 §3.6).
        syn_cookies: SynCookies = SynCookies::Full,
    }
    renamed {
        "doubt_retries" => negative_advice_retries,
        "syn_troubles" => syn_unreachable_max,
        "cut_below" => segmentation_offload,
        "shares" => memory_shares,
        "holder_bytes" => session_overhead_bytes,
        "offer" => window_advertisement,
        "write_beyond_bytes" => write_overshoot_bytes,
        "stuck_patience" => stuck_timeout,
        "abandoned_timeout" => orphan_timeout,
        "retries" => rto_retries,
        "tail_probe" => tail_loss_probe,
        "tail_probe_least" => tail_loss_probe_min,
        "rate_reduction" => proportional_rate_reduction,
        "resets_end_time_wait" => time_wait_accepts_rst,
    }
}

impl Config {
    /// Returns the largest payload towards a peer: the IPv6 header is 20 bytes longer than the IPv4 header
    /// (RFC 9293 §3.7.1).
    pub(super) fn mss_to(&self, remote: core::net::SocketAddr) -> u16 {
        if remote.is_ipv6() { self.mss.saturating_sub(20).max(64) } else { self.mss }
    }

    /// Returns the largest payload towards a peer that sends no MSS option (RFC 9293 §3.7.1, MUST-15).
    pub(super) fn mss_unsaid(remote: core::net::SocketAddr) -> u16 {
        if remote.is_ipv6() { 1220 } else { 536 }
    }

    /// Returns the window shift with which the largest window fits 16 bits (RFC 7323 §2.3; at most 14).
    pub(super) fn window_shift(&self) -> u8 {
        (0..14).find(|shift| self.receive_buffer_most() >> shift <= 0xffff).unwrap_or(14)
    }

    /// Returns the MSS used towards a peer that offers `offered`.
    pub(super) fn mss_towards(&self, offered: u16) -> u32 {
        let mss = u32::from(offered.min(self.mss));
        match self.mss_round_bytes {
            Some(unit) if unit > 0 && mss > unit => mss - mss % unit,
            _ => mss,
        }
    }

    /// Returns the fill level of the send buffer at which a session with MSS `mss` accepts no more writes.
    pub(super) fn send_mark_bytes(&self, buffer: u32, mss: u32) -> u32 {
        round(buffer, mss, self.send_round_to_mss)
    }

    /// Returns the receive window that a session with this buffer size and MSS may advertise and buffer.
    pub(super) fn window_bytes(&self, buffer: u32, mss: u32) -> u32 {
        round(buffer, mss, self.window_round_to_mss).max(self.window_segments_min.saturating_mul(mss))
    }

    /// Returns when an acknowledgement whose delay starts at `now` is due.
    pub(super) fn ack_due(&self, now: Instant) -> Instant {
        let due = now + self.delayed_ack;
        match self.ack_tick.as_nanos() as u64 {
            0 => due,
            tick => Instant::from_nanos(due.as_nanos() / tick * tick).max(now),
        }
    }
}

/// Returns `bytes`, rounded up to full segments if `rounds`.
fn round(bytes: u32, mss: u32, rounds: bool) -> u32 {
    if rounds { bytes.checked_next_multiple_of(mss).unwrap_or(bytes) } else { bytes }
}
