//! What of TCP can be set, with the source of each default.

use super::CongestionControl;
use super::cookie::SynCookies;
use core::time::Duration;
use kiban_ground::Instant;

kiban_ground::choices! {
    /// Which short segments wait for an acknowledgement.
    pub enum Nagle {
        /// None.
        Off = "off",
        /// While anything is outstanding, all that are shorter than a full segment (RFC 896, RFC 1122 §4.2.3.4).
        Classic = "on",
        /// While a *short* segment is outstanding, all that are shorter than a full one (draft-minshall-nagle; Linux).
        Minshall = "minshall",
        /// While anything is outstanding, those shorter than `nagle_limit_bytes` (Solaris: `tcp_naglim`).
        Limit = "limit",
    }
}

kiban_ground::choices! {
    /// What `ack_segments` counts.
    pub enum AckUnit {
        /// Bytes, in units of the longest segment that the peer has sent (Linux estimates the peer's segments so).
        Largest = "largest",
        /// Bytes, in units of the MSS that both ends agreed on (RFC 9293 §3.8.6.3: "full-sized segments").
        Mss = "mss",
        /// Segments of any length.
        Segment = "segment",
    }
}

kiban_ground::choices! {
    /// How the window that we offer moves.
    pub enum Offer {
        /// The edge moves by a full segment or half of the buffer, or not at all (RFC 9293 §3.8.6.2.2).
        Steps = "steps",
        /// Every acknowledgement offers all the room, unless that is less than a segment and a quarter of the buffer
        /// (4.3BSD, `tcp_output`).
        Room = "room",
        /// Every acknowledgement offers the whole window, until so much waits for the reader (System V: TCP puts what
        /// arrives into the stream as long as its queue is below its mark).
        Whole = "whole",
    }
}

kiban_ground::choices! {
    /// How it is found out that a segment is lost.
    pub enum LossDetection {
        /// By time: a segment that left before one that has arrived (RFC 8985); with a peer without SACK as `newreno`.
        Rack = "rack",
        /// By three segments SACKed above it (RFC 6675 §4); with a peer without SACK as `newreno`.
        Sack = "sack",
        /// By three duplicate acknowledgements, then one a partial acknowledgement (RFC 6582).
        NewReno = "newreno",
    }
}

kiban_ground::choices! {
    /// Among whom memory, session numbers and the backlog are shared out before sessions are.
    pub enum Fairness {
        /// Peer addresses: IPv4 addresses, and IPv6 /64 prefixes.
        Address = "address",
        /// Sessions alone: for a board most of whose users share one address (a proxy, a container network).
        Flow = "flow",
    }
}

kiban_ground::settings! {
    /// The settings of every session of one board.
    pub struct Config {
        /// Largest payload of one segment on the wire, bytes; offered to the peer (RFC 9293 §3.7.1).
        mss: u16 = 1460,
        /// Largest payload handed down whole, bytes: `mss`, or up to 64 KB where something below cuts.
        segment_bytes_max: u32 = 1460,
        /// Whether what is below cuts segments: the host's slices then end at every `mss`, so that pieces know their sums.
        cut_below: bool = false,
        /// After so many retransmissions in a row IP is told that the way is in doubt (RFC 9293 §3.8.3: R1, at least 3).
        doubt_retries: u32 = 3,
        /// The codepoint of a session's packets, until its host says another (RFC 9293 §3.9.2, RFC 2474 §3).
        dscp: u8 = 0,
        /// Bytes that a session may hold for sending, acknowledged or not.
        send_buffer_bytes: u32 = 256 << 10,
        /// The receive window, bytes (RFC 7323 §2 scales it).
        receive_buffer_bytes: u32 = 256 << 10,
        /// Buffers grow with what the connection can use, the send buffer up to `send_buffer_max_bytes` and the receive
        /// window up to `receive_buffer_max_bytes` (Linux, gVisor: on). Off: they are as large as is said above.
        autotune: bool = false,
        /// The largest send buffer (Linux: `tcp_wmem`, 4 MB).
        send_buffer_max_bytes: u32 = 4 << 20,
        /// The largest receive window, for which the scale is chosen (Linux: `tcp_rmem`, 6 MB).
        receive_buffer_max_bytes: u32 = 6 << 20,
        /// Whether the window is offered with a scale (RFC 7323 §2).
        window_scaling: bool = true,
        /// The peer's MSS is rounded down to a multiple of this where it is larger (4.3BSD: a cluster, `MCLBYTES`).
        mss_round_bytes: Option<u32> = None,
        /// The receive window is rounded up to full segments (Solaris).
        window_round_to_mss: bool = false,
        /// The receive window is at least so many full segments (Solaris: `tcp_recv_hiwat_minmss`).
        window_segments_min: u32 = 0,
        /// The send buffer is rounded up to full segments.
        send_round_to_mss: bool = false,
        /// How far a write that begins within the send buffer may go beyond its end (System V streams take a write whole
        /// while the queue is below its mark).
        write_beyond_bytes: u32 = 0,
        /// A writer that was refused is woken when so much of the send buffer (not rounded) is free, or all of it; below it
        /// nothing is taken of a write that does not fit (4.3BSD: `sb_lowat`). None: half of the buffer, at most 16 KB.
        send_low_water_bytes: Option<u32> = None,
        /// A write is copied in pieces of so many bytes, and TCP looks at each before the next is there (4.3BSD,
        /// `sosend`: a cluster at a time). None: whole.
        copy_chunk_bytes: Option<u32> = None,
        /// Whether buffers and windows are shares of the memory there is. Without it every session is promised all it
        /// may have, whatever is left (paper \[1\]'s board): memory can then run out, and writers wait for pages.
        shares: bool = true,
        /// Whether memory, session numbers and the backlog are shared out among peer addresses first, or among sessions alone
        /// because many users share one address. Without `shares` nobody looks.
        fairness: Fairness = Fairness::Address,
        /// What a session may hold or offer beyond its share while memory is left, bytes.
        floor_bytes: u32 = 16 << 10,
        /// What a session that has anything to send holds beside its bytes: pages that are not full. Two pages: the one
        /// being written and the one being acknowledged.
        holder_bytes: u32 = 8 << 10,
        /// An acknowledgement waits at most so long for company (RFC 1122 §4.2.3.2 allows 500 ms; Linux 40 ms).
        delayed_ack: Duration = Duration::from_millis(40),
        /// That time ends at a multiple of this, before or at the full length: a timer that looks now and then. As long as
        /// `delayed_ack`, it is a heartbeat (4.3BSD: 200 ms). Zero: exactly.
        ack_tick: Duration = Duration::ZERO,
        /// Full segments after which an acknowledgement is due (RFC 9293 §3.8.6.3: at least every second). Zero: arrival
        /// alone makes none due, only the reader does (4.3BSD).
        ack_segments: u32 = 2,
        /// What a full segment is in that rule.
        ack_unit: AckUnit = AckUnit::Largest,
        /// Bytes after which an acknowledgement is due, whatever their segments are. None: bytes do not count.
        ack_bytes: Option<u32> = None,
        /// The window is told when the reader has moved its edge by so many full segments … (RFC 9293 §3.8.6.2.2).
        update_segments: u32 = 2,
        /// … or by so much of the receive buffer, percent (RFC 1122 §4.2.3.3: 50; 4.3BSD: 35).
        update_percent: u32 = 50,
        /// How the edge moves in what is sent anyway.
        offer: Offer = Offer::Steps,
        /// Which short segments wait.
        nagle: Nagle = Nagle::Classic,
        /// From how many bytes on a segment does not wait under [`Nagle::Limit`].
        nagle_limit_bytes: u32 = 4095,
        /// A segment that fills so much of the largest window ever offered does not wait, percent (RFC 9293
        /// §3.8.6.2.1: recommended 50).
        silly_window_percent: u32 = 50,
        /// The first retransmission timeout (RFC 6298 §2.1).
        rto_initial: Duration = Duration::from_secs(1),
        /// The least one (RFC 6298 §2.4 asks for 1 s; Linux has 200 ms).
        rto_min: Duration = Duration::from_millis(200),
        /// The greatest one (RFC 6298 §2.5).
        rto_max: Duration = Duration::from_secs(60),
        /// Timeouts in a row before a session is given up (RFC 9293 §3.8.3, R2).
        retries: u32 = 15,
        /// The same for a connection request: three minutes at least (RFC 9293 §3.8.3, MUST-23; Linux: 6, two of them).
        syn_retries: u32 = 7,
        /// A connection request is given up when so many of its SYNs, each sent after the last, found no net or no host (RFC 5461
        /// §4.1: at the first in Linux, later in 4.4BSD). More than `syn_retries`: never, as RFC 9293 has it (MUST-56).
        syn_troubles: u32 = 3,
        /// Segments sent before the first acknowledgement (RFC 6928).
        initial_window_segments: u32 = 10,
        /// How the congestion window grows and falls.
        congestion: CongestionControl = CongestionControl::Cubic,
        /// How losses are found.
        loss_detection: LossDetection = LossDetection::Rack,
        /// In a recovery send in proportion to what arrives (RFC 6937); else RFC 6675 §5 and RFC 6582.
        rate_reduction: bool = true,
        /// The first two duplicate acknowledgements let a new segment go each (RFC 3042).
        limited_transmit: bool = true,
        /// Ask about the tail of a flight before the timer runs out (RFC 8985 §7); with SACK alone.
        tail_probe: bool = true,
        /// Beside two round trips the tail is waited for so long at least: what timers and bursts take (Linux: 2 ms).
        tail_probe_least: Duration = Duration::from_millis(2),
        /// How much longer the tail is waited for when one segment is out, whose acknowledgement the peer may delay (RFC
        /// 8985 §7.2; Linux takes the least timeout).
        peer_ack_delay: Duration = Duration::from_millis(200),
        /// Nothing sent for longer than a timeout: the congestion window begins anew (RFC 5681 §4.1).
        idle_restart: bool = true,
        /// Spread segments over the round trip: at twice the window in slow start, 1.2 times it then (Linux). Off: a
        /// window's worth may leave in a burst.
        pacing: bool = false,
        /// How long a closed session keeps its name (RFC 9293 §3.4.2: twice the segment lifetime).
        time_wait: Duration = Duration::from_secs(60),
        /// Sessions that may keep their name so, at most, and no more than a quarter of `sessions_max`: beyond
        /// it the oldest goes (Linux: `tcp_max_tw_buckets`).
        time_wait_max: usize = 4096,
        /// How long a session whose host has closed waits for the peer's FIN (Linux: `tcp_fin_timeout`, 60 s).
        fin_wait_2: Duration = Duration::from_secs(60),
        /// How long bytes of a session whose host has closed may wait for their acknowledgement, if nothing else was said
        /// of its patience: a peer that keeps its window closed does not keep them for ever (RFC 1122 §4.2.3.5: R2 is at
        /// least 100 s; Linux: `tcp_orphan_retries`).
        abandoned_timeout: Duration = Duration::from_secs(180),
        /// After so much silence the peer is asked whether it lives (RFC 9293 §3.8.4: off, and not below two hours by
        /// default). Of every session; one can be set apart.
        keep_alive: Option<Duration> = None,
        /// Between questions without an answer (Linux: 75 s).
        keep_alive_interval: Duration = Duration::from_secs(75),
        /// Questions without an answer before the session is given up (Linux: 9).
        keep_alive_probes: u32 = 9,
        /// How long bytes may wait for their acknowledgement before the session is given up (RFC 9293 §3.8.3; RFC 5482).
        /// None: `retries` alone says.
        user_timeout: Option<Duration> = None,
        /// How long a peer may acknowledge less than `floor_bytes` of what waits for it when a quarter of the transmit memory is
        /// left and others want more (RFC 6429 §3); in proportion less when less is left, down to a fifth. None: for ever, and so
        /// without `shares`.
        stuck_patience: Option<Duration> = Some(Duration::from_secs(10)),
        /// Timestamps (RFC 7323): offered, and answered when offered (Linux: on).
        timestamps: bool = true,
        /// Selective acknowledgements (RFC 2018, RFC 2883): offered, and answered when offered (Linux: on).
        sack: bool = true,
        /// Answers of the whole board, in a second, to segments that should not have come (RFC 5961 §7; Linux 4.7:
        /// 1000, made vague by half so that nobody can count what others were answered). Zero: none.
        challenges_per_second: u32 = 1000,
        /// Whether a RST ends TIME-WAIT early (RFC 9293 §3.10.7.4 lets it; RFC 1337 §3 says why it should not).
        resets_end_time_wait: bool = false,
        /// The smallest payload of a segment to which an ICMP error may bring a session (RFC 879's 536 bytes; Linux
        /// `min_pmtu` of 552 bytes less headers is 512).
        mss_min: u16 = 512,
        /// Sessions at most.
        sessions_max: usize = 16_384,
        /// Connections of one listener that are not yet made, at most.
        backlog: usize = 128,
        /// When requests are answered without remembering them (RFC 4987 §3.6).
        syn_cookies: SynCookies = SynCookies::Full,
    }
}

impl Config {
    /// The largest payload towards a peer: IPv6's header is 20 bytes longer than IPv4's (RFC 9293 §3.7.1).
    pub(super) fn mss_to(&self, remote: core::net::SocketAddr) -> u16 {
        if remote.is_ipv6() { self.mss.saturating_sub(20).max(64) } else { self.mss }
    }

    /// The largest payload towards a peer that says nothing of it (RFC 9293 §3.7.1, MUST-15).
    pub(super) fn mss_unsaid(remote: core::net::SocketAddr) -> u16 {
        if remote.is_ipv6() { 1220 } else { 536 }
    }

    /// The shift with which the largest window fits 16 bits (RFC 7323 §2.3; at most 14).
    pub(super) fn window_shift(&self) -> u8 {
        (0..14).find(|shift| self.receive_buffer_most() >> shift <= 0xffff).unwrap_or(14)
    }

    /// The MSS that we use towards a peer that offers `offered`.
    pub(super) fn mss_towards(&self, offered: u16) -> u32 {
        let mss = u32::from(offered.min(self.mss));
        match self.mss_round_bytes {
            Some(unit) if unit > 0 && mss > unit => mss - mss % unit,
            _ => mss,
        }
    }

    /// The mark at which a session with this buffer and MSS takes no more writes.
    pub(super) fn send_mark_bytes(&self, buffer: u32, mss: u32) -> u32 {
        round(buffer, mss, self.send_round_to_mss)
    }

    /// What a session with this buffer and MSS may offer and hold.
    pub(super) fn window_bytes(&self, buffer: u32, mss: u32) -> u32 {
        round(buffer, mss, self.window_round_to_mss).max(self.window_segments_min.saturating_mul(mss))
    }

    /// When an acknowledgement that becomes owed now is due.
    pub(super) fn ack_due(&self, now: Instant) -> Instant {
        let due = now + self.delayed_ack;
        match self.ack_tick.as_nanos() as u64 {
            0 => due,
            tick => Instant::from_nanos(due.as_nanos() / tick * tick).max(now),
        }
    }
}

/// `bytes`, rounded up to whole segments if `rounds`.
fn round(bytes: u32, mss: u32, rounds: bool) -> u32 {
    if rounds { bytes.checked_next_multiple_of(mss).unwrap_or(bytes) } else { bytes }
}
