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
    /// The receiving application reads more slowly than data can arrive, so its window is full or closed.
    SlowReader,
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
    /// The server takes long to answer a request.
    ThinkTime,
    /// Full-size packets do not pass, smaller ones do.
    PathMtu,
    /// The path carries all it can, so losses cost nothing.
    PathFull,
    /// The server refuses the connection.
    Refused,
    /// The handshake is not answered.
    NoHandshake,
    /// The server acknowledges the request and never answers it.
    NoResponse,
    /// A cause of a RoCEv2 connection.
    #[serde(untagged)]
    Roce(roce::Cause),
}

impl Cause {
    /// All causes of TCP connections; [`roce::Cause::ALL`] are those of RoCEv2 connections.
    pub const ALL: [Cause; 17] = [
        Cause::NagleDelayedAck,
        Cause::ReceiverLimited,
        Cause::SenderLimited,
        Cause::Congestion,
        Cause::RetransmissionTimeout,
        Cause::SlowReader,
        Cause::SmallMss,
        Cause::SillyWindow,
        Cause::LostWindowScaling,
        Cause::Policing,
        Cause::Bufferbloat,
        Cause::ThinkTime,
        Cause::PathMtu,
        Cause::PathFull,
        Cause::Refused,
        Cause::NoHandshake,
        Cause::NoResponse,
    ];

    /// Returns the name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Cause::NagleDelayedAck => "nagle_delayed_ack",
            Cause::ReceiverLimited => "receiver_limited",
            Cause::SenderLimited => "sender_limited",
            Cause::Congestion => "congestion",
            Cause::RetransmissionTimeout => "retransmission_timeout",
            Cause::SlowReader => "slow_reader",
            Cause::SmallMss => "small_mss",
            Cause::SillyWindow => "silly_window",
            Cause::LostWindowScaling => "lost_window_scaling",
            Cause::Policing => "policing",
            Cause::Bufferbloat => "bufferbloat",
            Cause::ThinkTime => "think_time",
            Cause::PathMtu => "path_mtu",
            Cause::PathFull => "path_full",
            Cause::Refused => "refused",
            Cause::NoHandshake => "no_handshake",
            Cause::NoResponse => "no_response",
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
            Cause::SlowReader => "slow reader",
            Cause::SmallMss => "small MSS",
            Cause::SillyWindow => "silly windows",
            Cause::LostWindowScaling => "no window scaling",
            Cause::Policing => "policing",
            Cause::Bufferbloat => "bufferbloat",
            Cause::ThinkTime => "server think time",
            Cause::PathMtu => "path MTU black hole",
            Cause::PathFull => "path full",
            Cause::Refused => "connection refused",
            Cause::NoHandshake => "handshake not answered",
            Cause::NoResponse => "request not answered",
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
                "Profile the sending program, and check that it does not set a small SO_SNDBUF: the network and \
                 the receiver were ready."
            }
            Cause::Congestion => {
                "Find where packets are dropped (ip -s link, ethtool -S, tc -s qdisc along the path): if only under \
                 load, a queue there is too short for the round trip; if not, something damages packets."
            }
            Cause::RetransmissionTimeout => {
                "Find what loses whole flights or the last segments of a burst; check that both hosts use SACK, \
                 which repairs losses without the timer."
            }
            Cause::SlowReader => {
                "Profile the receiving program: it reads more slowly than data can arrive. A larger receive \
                 buffer does not help."
            }
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
            Cause::ThinkTime => {
                "Profile the server, or what it waits for (a database, another server): the network was ready \
                 and had delivered the request."
            }
            Cause::PathMtu => {
                "Compare the MTUs along the path (ping -M do -s 1472), let ICMP \"fragmentation needed\" and \
                 \"packet too big\" through, or clamp the MSS at the tunnel (iptables TCPMSS --clamp-mss-to-pmtu); \
                 net.ipv4.tcp_mtu_probing=1 works around it."
            }
            Cause::PathFull => {
                "Nothing is wrong: TCP uses all of the path, or of the share that it gets. If that is too little, find \
                 what else uses the path, or shape it fairly (fq_codel, cake)."
            }
            Cause::Refused => {
                "Check that the server program runs and listens on this address and port (ss -ltn), and that no \
                 firewall rejects the connection."
            }
            Cause::NoHandshake => {
                "Capture at the other end as well: if the packets do not arrive, a firewall, a route or a host \
                 that is down loses them; if they do, look at the listen queue (nstat TcpExtListenOverflows)."
            }
            Cause::NoResponse => {
                "Look at the server: its program hangs, or, if a capture there shows that it answered, packets \
                 of full size are lost on the way (path MTU)."
            }
            Cause::Roce(cause) => cause.advice(),
        }
    }
}
