//! The causes that a verdict on a RoCEv2 connection can name, in words, with advice.

/// Why a connection was slow, or ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The responder refused a request: the connection ends.
    RemoteError,
    /// Packets were lost, and sent again after a NAK.
    PacketLoss,
    /// The acknowledgement timer expired.
    AckTimeout,
    /// The receiver had posted too few receives.
    Rnr,
    /// Switches marked packets, and the sender reduced its rate.
    CongestionMarks,
    /// Responses or acknowledgements come late.
    SlowResponder,
    /// The requester has nothing to send.
    RequesterLimited,
    /// The requester sends a message only when the previous one is acknowledged.
    OneAtATime,
    /// Packets are much smaller than the path allows.
    SmallPathMtu,
    /// The network changes the order of packets, which the responder takes for losses.
    Reordering,
    /// Packets arrive with a wrong ICRC.
    IcrcError,
}

impl Cause {
    /// All causes.
    pub const ALL: [Cause; 11] = [
        Cause::RemoteError,
        Cause::PacketLoss,
        Cause::AckTimeout,
        Cause::Rnr,
        Cause::CongestionMarks,
        Cause::SlowResponder,
        Cause::RequesterLimited,
        Cause::OneAtATime,
        Cause::SmallPathMtu,
        Cause::Reordering,
        Cause::IcrcError,
    ];

    /// Returns the name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Cause::RemoteError => "remote_error",
            Cause::PacketLoss => "packet_loss",
            Cause::AckTimeout => "ack_timeout",
            Cause::Rnr => "rnr",
            Cause::CongestionMarks => "congestion_marks",
            Cause::SlowResponder => "slow_responder",
            Cause::RequesterLimited => "requester_limited",
            Cause::OneAtATime => "one_at_a_time",
            Cause::SmallPathMtu => "small_path_mtu",
            Cause::Reordering => "reordering",
            Cause::IcrcError => "icrc_error",
        }
    }

    /// Returns the cause in a few words.
    pub fn words(self) -> &'static str {
        match self {
            Cause::RemoteError => "remote error (NAK)",
            Cause::PacketLoss => "packet loss (go-back-N)",
            Cause::AckTimeout => "ACK timeouts",
            Cause::Rnr => "RNR NAKs",
            Cause::CongestionMarks => "congestion marks (CNP)",
            Cause::SlowResponder => "slow responder",
            Cause::RequesterLimited => "requester-limited",
            Cause::OneAtATime => "one message at a time",
            Cause::SmallPathMtu => "small path MTU",
            Cause::Reordering => "reordering",
            Cause::IcrcError => "wrong ICRC",
        }
    }

    /// Returns what to do, in one sentence or two.
    pub fn advice(self) -> &'static str {
        match self {
            Cause::RemoteError => {
                "Check the address, length, rkey and access flags of the request against the peer's memory \
                 region, and that the region still exists; then set up the connection again."
            }
            Cause::PacketLoss => {
                "Find the port that drops packets (ethtool -S: discards, out_of_buffer; the switch's counters), \
                 and make the traffic class lossless (PFC) or mark earlier (ECN)."
            }
            Cause::AckTimeout => {
                "Find what loses the last packets of messages or their acknowledgements, or all packets of an \
                 outage; if losses must be expected, a shorter timeout of the queue pair (ibv_modify_qp) \
                 repairs them earlier."
            }
            Cause::Rnr => {
                "Post more receives at the receiver, and post them again earlier (a shared receive queue helps \
                 many connections); a shorter min_rnr_timer costs less time per RNR NAK."
            }
            Cause::CongestionMarks => {
                "Find the congested port (switch counters of ECN marks) and spread or remove load; if marks \
                 come with short queues, raise the switch's marking thresholds."
            }
            Cause::SlowResponder => {
                "Look at the responder: PCIe and memory bandwidth, page faults (ODP), a busy CPU if RDMA is \
                 done in software, and pause frames (PFC) on its port."
            }
            Cause::RequesterLimited => {
                "Profile the requesting program: everything was acknowledged and it posted nothing."
            }
            Cause::OneAtATime => {
                "Post several work requests before waiting for completions (perftest's --tx-depth); for Reads \
                 and atomics, also raise max_rd_atomic."
            }
            Cause::SmallPathMtu => {
                "Raise the MTU of the interfaces and switches on the path (jumbo frames), and the path MTU of \
                 the queue pair: 1024 fits 1500-byte links, 4096 fits 9000-byte links."
            }
            Cause::Reordering => {
                "Keep the packets of a queue pair on one path (no per-packet load balancing or adaptive \
                 routing), or use NICs that accept packets out of order at both ends."
            }
            Cause::IcrcError => {
                "Find what damages packets (cables, optics, memory of a switch) or changes covered fields (NAT, \
                 a middlebox)."
            }
        }
    }
}
