//! The causes that a verdict can name, in words, with advice.

use crate::roce;

/// Why a connection was slow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Nagle's algorithm waits for a delayed acknowledgement.
    NagleDelayedAck,
    /// The receive window is too small for the path.
    ReceiverLimited,
    /// The sending application has nothing to send.
    SenderLimited,
    /// Losses shrink the congestion window.
    Congestion,
    /// Retransmission timers expire.
    RetransmissionTimeout,
    /// The receiving application does not read.
    ZeroWindow,
    /// Segments are much smaller than the path allows.
    SmallMss,
    /// The receiver advertises tiny windows, and the sender fills them.
    SillyWindow,
    /// Window scaling is not in use although it is needed.
    LostWindowScaling,
    /// A policer drops what is above a rate.
    Policing,
    /// A long queue multiplies the round trip.
    Bufferbloat,
    /// A cause of a RoCEv2 connection.
    #[serde(untagged)]
    Roce(roce::Cause),
}

impl Cause {
    /// All causes of TCP connections; [`roce::Cause::ALL`] are those of RoCEv2 connections.
    pub const ALL: [Cause; 11] = [
        Cause::NagleDelayedAck,
        Cause::ReceiverLimited,
        Cause::SenderLimited,
        Cause::Congestion,
        Cause::RetransmissionTimeout,
        Cause::ZeroWindow,
        Cause::SmallMss,
        Cause::SillyWindow,
        Cause::LostWindowScaling,
        Cause::Policing,
        Cause::Bufferbloat,
    ];

    /// Returns the name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Cause::NagleDelayedAck => "nagle_delayed_ack",
            Cause::ReceiverLimited => "receiver_limited",
            Cause::SenderLimited => "sender_limited",
            Cause::Congestion => "congestion",
            Cause::RetransmissionTimeout => "retransmission_timeout",
            Cause::ZeroWindow => "zero_window",
            Cause::SmallMss => "small_mss",
            Cause::SillyWindow => "silly_window",
            Cause::LostWindowScaling => "lost_window_scaling",
            Cause::Policing => "policing",
            Cause::Bufferbloat => "bufferbloat",
            Cause::Roce(cause) => cause.name(),
        }
    }

    /// Returns the cause in a few words.
    pub fn words(self) -> &'static str {
        match self {
            Cause::NagleDelayedAck => "Nagle and delayed ACKs",
            Cause::ReceiverLimited => "receiver-limited",
            Cause::SenderLimited => "sender-limited",
            Cause::Congestion => "congestion (loss)",
            Cause::RetransmissionTimeout => "retransmission timeouts",
            Cause::ZeroWindow => "zero windows",
            Cause::SmallMss => "small MSS",
            Cause::SillyWindow => "silly windows",
            Cause::LostWindowScaling => "no window scaling",
            Cause::Policing => "policing",
            Cause::Bufferbloat => "bufferbloat",
            Cause::Roce(cause) => cause.words(),
        }
    }

    /// Returns what to do, in one sentence.
    pub fn advice(self) -> &'static str {
        match self {
            Cause::NagleDelayedAck => {
                "Send each message with one write (writev, or a buffer that is flushed), or set TCP_NODELAY on \
                 the sender."
            }
            Cause::ReceiverLimited => {
                "Enlarge the receiver's socket buffer to bandwidth times RTT: remove SO_RCVBUF from the program \
                 so that the system can tune it, or raise the third value of net.ipv4.tcp_rmem."
            }
            Cause::SenderLimited => {
                "Profile the sending program: the network was ready and it had nothing to send."
            }
            Cause::Congestion => {
                "Find the link that drops packets (ip -s link, ethtool -S, tc -s qdisc along the path); if the \
                 losses are not due to load, replace what damages packets."
            }
            Cause::RetransmissionTimeout => {
                "Find what loses whole flights or the last segments of a burst; check that both hosts use SACK, \
                 which repairs losses without the timer."
            }
            Cause::ZeroWindow => "Profile the receiving program: it does not read as fast as data arrive.",
            Cause::SmallMss => {
                "Find what shrinks the MSS: the MTU of an interface or a tunnel, an MSS clamp (iptables TCPMSS), \
                 TCP_MAXSEG, or advmss of a route."
            }
            Cause::SillyWindow => {
                "Update or replace the receiver's TCP, which advertises windows of a few bytes, or let its \
                 program read larger pieces; a larger receive buffer helps as well."
            }
            Cause::LostWindowScaling => {
                "Look for a firewall that removes or rewrites the window scale option; otherwise turn window \
                 scaling on at the host that does not offer it (net.ipv4.tcp_window_scaling)."
            }
            Cause::Policing => {
                "Shape the traffic below the policer's rate at the sender (tc qdisc add ... tbf or fq maxrate), \
                 or ask the provider for a shaper instead of a policer."
            }
            Cause::Bufferbloat => {
                "Put fair queueing with active queue management (fq_codel, cake) on the bottleneck, shaped \
                 slightly below its rate."
            }
            Cause::Roce(cause) => cause.advice(),
        }
    }
}
