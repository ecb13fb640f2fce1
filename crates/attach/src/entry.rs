//! Ring entries: requests from the client, and indications from the board.
//!
//! ```text
//! 0  type            4  slot, value      12  port of the local address    16  IP address, local
//! 1  cause, option   8  families (4, 6,  14  port of the remote address   32  IP address, remote
//! 2  listener, shard    0: none)             in machine byte order            in network byte order
//! ```
//!
//! An entry with statistics has 40 of their bytes from offset 8 on, instead of addresses.

use crate::StreamOption;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Size of an entry in bytes.
pub const ENTRY_BYTES: usize = 48;

/// Bytes of statistics in one entry.
pub const STATISTICS_PIECE_BYTES: usize = 40;
/// Bytes of a stream's statistics: Linux's `struct tcp_info` up to `tcpi_rcv_wnd`, in whole pieces.
pub const STATISTICS_BYTES: usize = 6 * STATISTICS_PIECE_BYTES;

/// Which datagram sockets may share a local address (socket(7)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sharing {
    /// `SO_REUSEADDR`: sockets that have set their remote addresses.
    pub reuse_address: bool,
    /// `SO_REUSEPORT`: sockets of the same user that have set this, too. A hash of the addresses of a
    /// datagram selects its socket.
    pub reuse_port: bool,
    /// `IPV6_V6ONLY`: a socket at `::` receives no IPv4, so another one may have the IPv4 addresses.
    pub v6_only: bool,
}

/// Maximum number of bytes of data in a [`Request::ConnectFast`].
pub const FAST_OPEN_BYTES_MAX: usize = 16 << 10;
/// The slot in the answer to a [`Request::ConnectFast`] if the SYN waits for data.
pub const SYN_WAITS: u32 = u32::MAX;

/// A request from a client. The client chooses the numbers of slots and listeners.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Opens a stream in a free slot; answered by [`Indication::Opened`], [`Indication::Ended`] or
    /// [`Indication::OtherShard`].
    Connect {
        /// The slot.
        slot: u32,
        /// The local address and port on the board. With `None`, the board chooses both; with port 0, it
        /// chooses only the port.
        local: Option<SocketAddr>,
        /// The remote address and port.
        remote: SocketAddr,
        /// The traffic class of its packets; 0 for the usual one. Used by clients that have no slots.
        traffic_class: u8,
    },
    /// Starts listening; answered by [`Indication::Listening`].
    Listen {
        /// A listener number that is not in use.
        listener: u16,
        /// The local address. An unspecified address means all of the board's addresses; `::` includes both
        /// families, unless `v6_only` is set. Port 0 lets the board choose a port.
        local: SocketAddr,
        /// Whether other listeners of the same user that have set this, too, may have the same address. Used
        /// by clients that have no slots.
        shares: bool,
        /// Whether `::` includes only IPv6. Used by clients that have no slots.
        v6_only: bool,
    },
    /// Checks whether the client may listen at an address, and chooses the port if it is 0, but does not
    /// listen. Answered by [`Indication::Listening`].
    CheckListen {
        /// A listener number that is not in use.
        listener: u16,
        /// Same as in [`Request::Listen`].
        local: SocketAddr,
    },
    /// Stops listening. Connections that wait for a slot are reset, and offered slots become free.
    Unlisten {
        /// The listener.
        listener: u16,
    },
    /// Offers a free slot for the next incoming connection.
    Offer {
        /// The listener.
        listener: u16,
        /// The slot.
        slot: u32,
    },
    /// Reports that the client has written or read bytes.
    Notify {
        /// The slot.
        slot: u32,
    },
    /// Closes a stream: the client reads no more data; data already written is still sent.
    /// [`Indication::Free`] follows.
    Close {
        /// The slot.
        slot: u32,
    },
    /// Resets the connection. [`Indication::Free`] follows.
    Abort {
        /// The slot.
        slot: u32,
    },
    /// Enables or disables the Nagle algorithm (RFC 9293 §3.7.4), which may delay short segments until ACKs
    /// arrive.
    Nagle {
        /// The slot.
        slot: u32,
        /// Whether it is on.
        is_on: bool,
    },
    /// Requests the reason why a stream ended; answered by [`Indication::Ended`]. Used by clients that have
    /// no slots (`kiban run`).
    QueryEnd {
        /// The stream's local address, on the board.
        local: SocketAddr,
        /// The stream's remote address.
        remote: SocketAddr,
    },
    /// Sets an option of a stream, or of a listener, whose connections inherit it; answered by
    /// [`Indication::Option`]. Used by clients that have no slots.
    SetOption {
        /// The local address, on the board.
        local: SocketAddr,
        /// The remote address; `None` for a listener.
        remote: Option<SocketAddr>,
        /// The option.
        option: StreamOption,
        /// Its value.
        value: u32,
    },
    /// Requests the value of an option; answered by [`Indication::Option`]. Used by clients that have no
    /// slots.
    QueryOption {
        /// The local address, on the board.
        local: SocketAddr,
        /// The remote address; `None` for a listener.
        remote: Option<SocketAddr>,
        /// The option.
        option: StreamOption,
    },
    /// Requests the statistics of a stream (`TCP_INFO`). The answer is [`Indication::Option`], followed by
    /// Linux's `struct tcp_info` if the stream still exists. Used by clients that have no slots.
    QueryInfo {
        /// The stream's local address, on the board.
        local: SocketAddr,
        /// The stream's remote address.
        remote: SocketAddr,
    },
    /// Turns the connection that carries the request into a datagram socket: packets with a
    /// [`DatagramHeader`](crate::DatagramHeader) follow in both directions. Answered by
    /// [`Indication::Listening`].
    Bind {
        /// The local address. An unspecified address means all of the board's addresses. Port 0 lets the
        /// board choose a port.
        local: SocketAddr,
        /// A remote address to which the board must have a route.
        remote: Option<SocketAddr>,
        /// Which other sockets may have the same local address.
        shares: Sharing,
    },
    /// Sets the only remote address from which a datagram socket receives. Answered by
    /// [`Indication::Opened`] with the local address, or by [`Indication::Ended`] if the board has no route.
    SetRemote {
        /// The socket's local address.
        local: SocketAddr,
        /// The start of the random part of the socket's abstract name; zero if it has none. Distinguishes
        /// sockets that share a local address.
        tag: u32,
        /// The remote address; `None` to receive from all again.
        remote: Option<SocketAddr>,
    },
    /// Requests that remote address. Answered by [`Indication::Accepted`], or [`Indication::Ended`] if there
    /// is none.
    QueryRemote {
        /// The socket's local address.
        local: SocketAddr,
        /// Same as in [`Request::SetRemote`].
        tag: u32,
    },
    /// Makes a datagram socket join a group, or leave it. Answered by [`Indication::Opened`], or by
    /// [`Indication::Ended`] with the reason.
    Member {
        /// The socket's local address. If that is unspecified, the address of an interface may be given
        /// instead.
        local: SocketAddr,
        /// Same as in [`Request::SetRemote`].
        tag: u32,
        /// The group; the port is not used.
        group: SocketAddr,
        /// Whether it joins.
        joins: bool,
    },
    /// Opens a stream with TCP Fast Open (RFC 7413), for a client that has no slots. The first data may
    /// follow the entry in the packet, at most [`FAST_OPEN_BYTES_MAX`]. Answered by [`Indication::Opened`],
    /// whose slot is the number of these bytes that the board has taken, or [`SYN_WAITS`] if there are none
    /// and the SYN waits for what the client writes; or by [`Indication::Ended`].
    ConnectFast {
        /// Same as in [`Request::Connect`].
        local: Option<SocketAddr>,
        /// The remote address and port.
        remote: SocketAddr,
        /// Same as in [`Request::Connect`].
        traffic_class: u8,
    },
    /// Turns the connection that carries the request into a channel. Each further such request on it is
    /// answered by [`Indication::Option`] with a descriptor: a connection for another request, as if the
    /// process that has opened the channel had connected. For processes that may no longer connect.
    Channel,
    /// Requests the statistics of a slot's stream; answered by [`Indication::Statistics`], once for each
    /// piece.
    QueryStatistics {
        /// The slot.
        slot: u32,
    },
}

/// The type of an entry with statistics.
const STATISTICS: u8 = 8;

/// An indication of a board.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Indication {
    /// The result of a request to listen.
    Listening {
        /// The listener.
        listener: u16,
        /// The local address, or the reason why the request failed.
        result: Result<SocketAddr, EndReason>,
    },
    /// A stream is open.
    Opened {
        /// The slot.
        slot: u32,
        /// The local address, on the board.
        local: SocketAddr,
    },
    /// An incoming connection was accepted.
    Accepted {
        /// The listener.
        listener: u16,
        /// The slot, which the client had offered.
        slot: u32,
        /// The local address, on the board.
        local: SocketAddr,
        /// The remote address.
        remote: SocketAddr,
    },
    /// Data has arrived, or there is room again.
    Notify {
        /// The slot.
        slot: u32,
    },
    /// The stream has ended; data already received can still be read. The client must close the slot.
    Ended {
        /// The slot.
        slot: u32,
        /// The reason.
        why: EndReason,
    },
    /// The stream cannot be opened on this shard of the board, because its flow belongs to another one. The
    /// client must close the slot.
    OtherShard {
        /// The slot.
        slot: u32,
        /// The shard of the flow.
        shard: u16,
    },
    /// The slot is free, and the client may use it again.
    Free {
        /// The slot.
        slot: u32,
    },
    /// The value of an option, after it has been set or queried.
    Option {
        /// The value.
        value: u32,
    },
    /// The next piece of a stream's statistics (`TCP_INFO`).
    Statistics {
        /// The slot.
        slot: u32,
        /// The piece; `None` if the stream has ended.
        piece: Option<[u8; STATISTICS_PIECE_BYTES]>,
    },
}

/// The reason why a request failed or a stream ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum EndReason {
    /// Both sides have sent a FIN.
    Closed = 1,
    /// There is no listener.
    Refused = 2,
    /// The peer reset the connection.
    Reset = 3,
    /// The connection timed out.
    TimedOut = 4,
    /// The board aborted the connection.
    Aborted = 5,
    /// There is no route to that address.
    NoRoute = 6,
    /// The local address is not one of the board's, or the remote address is not valid for a connection.
    BadAddress = 7,
    /// The local address and port are in use.
    InUse = 8,
    /// A limit of the board is reached.
    TooMany = 9,
    /// The host, or the next router towards it, does not answer.
    Unreachable = 10,
}

impl EndReason {
    const ALL: [EndReason; 10] = [
        EndReason::Closed,
        EndReason::Refused,
        EndReason::Reset,
        EndReason::TimedOut,
        EndReason::Aborted,
        EndReason::NoRoute,
        EndReason::BadAddress,
        EndReason::InUse,
        EndReason::TooMany,
        EndReason::Unreachable,
    ];

    pub(crate) fn of(code: u8) -> Option<EndReason> {
        EndReason::ALL.into_iter().find(|why| *why as u8 == code)
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EndReason::Closed => "both sides have closed the stream",
            EndReason::Refused => "connection refused",
            EndReason::Reset => "connection reset by peer",
            EndReason::TimedOut => "the connection timed out: the peer does not answer",
            EndReason::Aborted => "the board aborted the stream",
            EndReason::NoRoute => "the board has no route to that address: add one to its configuration",
            EndReason::BadAddress => {
                "invalid address: the board does not have the local address, or cannot connect to the remote one"
            }
            EndReason::InUse => "the address and port are in use on the board",
            EndReason::TooMany => "a limit of the board is reached: close some streams, or raise its limits",
            EndReason::Unreachable => "no route to host: neither the host nor the next router answers",
        })
    }
}

impl core::error::Error for EndReason {}

/// The decoded fields of an entry.
#[derive(Clone, Copy, Default)]
struct Fields {
    what: u8,
    code: u8,
    listener: u16,
    slot: u32,
    local: Option<SocketAddr>,
    remote: Option<SocketAddr>,
}

impl Fields {
    fn bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        (bytes[0], bytes[1]) = (self.what, self.code);
        bytes[2..4].copy_from_slice(&self.listener.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.slot.to_ne_bytes());
        for (end, address) in [self.local, self.remote].into_iter().enumerate() {
            let Some(address) = address else { continue };
            bytes[12 + 2 * end..14 + 2 * end].copy_from_slice(&address.port().to_ne_bytes());
            let at = 16 + 16 * end;
            match address.ip() {
                IpAddr::V4(ip) => {
                    bytes[8 + end] = 4;
                    bytes[at..at + 4].copy_from_slice(&ip.octets());
                }
                IpAddr::V6(ip) => {
                    bytes[8 + end] = 6;
                    bytes[at..at + 16].copy_from_slice(&ip.octets());
                }
            }
        }
        bytes
    }

    fn read(bytes: &[u8; ENTRY_BYTES]) -> Option<Fields> {
        let address = |end: usize| {
            let port = u16::from_ne_bytes([bytes[12 + 2 * end], bytes[13 + 2 * end]]);
            let mut octets = [0; 16];
            octets.copy_from_slice(&bytes[16 + 16 * end..32 + 16 * end]);
            let [a, b, c, d, ..] = octets;
            match bytes[8 + end] {
                0 => Some(None),
                4 => Some(Some(SocketAddr::from((Ipv4Addr::new(a, b, c, d), port)))),
                6 => Some(Some(SocketAddr::from((Ipv6Addr::from(octets), port)))),
                _ => None,
            }
        };
        Some(Fields {
            what: bytes[0],
            code: bytes[1],
            listener: u16::from_ne_bytes([bytes[2], bytes[3]]),
            slot: u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            local: address(0)?,
            remote: address(1)?,
        })
    }
}

impl Request {
    /// Encodes the request as a ring entry or a packet.
    pub fn bytes(self) -> [u8; ENTRY_BYTES] {
        let none = Fields::default();
        match self {
            Request::Connect { slot, local, remote, traffic_class } => {
                Fields { what: 1, code: traffic_class, slot, local, remote: Some(remote), ..none }
            }
            Request::Listen { listener, local, shares, v6_only } => {
                let code = u8::from(shares) | u8::from(v6_only) << 1;
                Fields { what: 2, code, listener, local: Some(local), ..none }
            }
            Request::Unlisten { listener } => Fields { what: 3, listener, ..none },
            Request::Offer { listener, slot } => Fields { what: 4, listener, slot, ..none },
            Request::Notify { slot } => Fields { what: 5, slot, ..none },
            Request::Close { slot } => Fields { what: 6, slot, ..none },
            Request::Abort { slot } => Fields { what: 7, slot, ..none },
            Request::Nagle { slot, is_on } => Fields { what: 8, slot, code: is_on.into(), ..none },
            Request::QueryEnd { local, remote } => {
                Fields { what: 9, local: Some(local), remote: Some(remote), ..none }
            }
            Request::SetOption { local, remote, option, value } => {
                Fields { what: 10, code: option as u8, slot: value, local: Some(local), remote, ..none }
            }
            Request::QueryOption { local, remote, option } => {
                Fields { what: 11, code: option as u8, local: Some(local), remote, ..none }
            }
            Request::QueryInfo { local, remote } => {
                Fields { what: 12, local: Some(local), remote: Some(remote), ..none }
            }
            Request::QueryStatistics { slot } => Fields { what: 13, slot, ..none },
            Request::Channel => Fields { what: 20, ..none },
            Request::CheckListen { listener, local } => {
                Fields { what: 19, listener, local: Some(local), ..none }
            }
            Request::Bind { local, remote, shares } => {
                let code = u8::from(shares.reuse_address)
                    | u8::from(shares.reuse_port) << 1
                    | u8::from(shares.v6_only) << 2;
                Fields { what: 14, code, local: Some(local), remote, ..none }
            }
            Request::SetRemote { local, tag, remote } => {
                Fields { what: 15, slot: tag, local: Some(local), remote, ..none }
            }
            Request::QueryRemote { local, tag } => Fields { what: 16, slot: tag, local: Some(local), ..none },
            Request::Member { local, tag, group, joins } => Fields {
                what: 18,
                code: joins.into(),
                slot: tag,
                local: Some(local),
                remote: Some(group),
                ..none
            },
            Request::ConnectFast { local, remote, traffic_class } => {
                Fields { what: 17, code: traffic_class, local, remote: Some(remote), ..none }
            }
        }
        .bytes()
    }

    /// Decodes an entry; returns `None` if it is invalid.
    pub fn read(bytes: &[u8; ENTRY_BYTES]) -> Option<Request> {
        let Fields { what, code, listener, slot, local, remote } = Fields::read(bytes)?;
        Some(match what {
            1 => Request::Connect { slot, local, remote: remote?, traffic_class: code },
            2 => Request::Listen { listener, local: local?, shares: code & 1 != 0, v6_only: code & 2 != 0 },
            3 => Request::Unlisten { listener },
            4 => Request::Offer { listener, slot },
            5 => Request::Notify { slot },
            6 => Request::Close { slot },
            7 => Request::Abort { slot },
            8 => Request::Nagle { slot, is_on: code != 0 },
            9 => Request::QueryEnd { local: local?, remote: remote? },
            10 => Request::SetOption { local: local?, remote, option: StreamOption::of(code)?, value: slot },
            11 => Request::QueryOption { local: local?, remote, option: StreamOption::of(code)? },
            12 => Request::QueryInfo { local: local?, remote: remote? },
            13 => Request::QueryStatistics { slot },
            14 => {
                let shares = Sharing {
                    reuse_address: code & 1 != 0,
                    reuse_port: code & 2 != 0,
                    v6_only: code & 4 != 0,
                };
                Request::Bind { local: local?, remote, shares }
            }
            15 => Request::SetRemote { local: local?, tag: slot, remote },
            16 => Request::QueryRemote { local: local?, tag: slot },
            18 => Request::Member { local: local?, tag: slot, group: remote?, joins: code != 0 },
            17 => Request::ConnectFast { local, remote: remote?, traffic_class: code },
            19 => Request::CheckListen { listener, local: local? },
            20 => Request::Channel,
            _ => return None,
        })
    }
}

impl Indication {
    /// Encodes the indication as a ring entry or a packet.
    pub fn bytes(self) -> [u8; ENTRY_BYTES] {
        let none = Fields::default();
        match self {
            Indication::Statistics { slot, piece: Some(piece) } => {
                let mut bytes = Fields { what: STATISTICS, slot, ..none }.bytes();
                bytes[ENTRY_BYTES - STATISTICS_PIECE_BYTES..].copy_from_slice(&piece);
                return bytes;
            }
            Indication::Statistics { slot, piece: None } => {
                Fields { what: STATISTICS, code: 1, slot, ..none }
            }
            Indication::Listening { listener, result } => {
                let code = result.err().map_or(0, |why| why as u8);
                Fields { what: 1, listener, code, local: result.ok(), ..none }
            }
            Indication::Opened { slot, local } => Fields { what: 2, slot, local: Some(local), ..none },
            Indication::Accepted { listener, slot, local, remote } => {
                Fields { what: 3, listener, slot, local: Some(local), remote: Some(remote), ..none }
            }
            Indication::Notify { slot } => Fields { what: 4, slot, ..none },
            Indication::Ended { slot, why } => Fields { what: 5, slot, code: why as u8, ..none },
            Indication::Free { slot } => Fields { what: 6, slot, ..none },
            Indication::Option { value } => Fields { what: 7, slot: value, ..none },
            Indication::OtherShard { slot, shard } => Fields { what: 9, slot, listener: shard, ..none },
        }
        .bytes()
    }

    /// Decodes an entry; returns `None` if it is invalid.
    pub fn read(bytes: &[u8; ENTRY_BYTES]) -> Option<Indication> {
        if bytes[0] == STATISTICS {
            let slot = u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
            return Some(Indication::Statistics {
                slot,
                piece: bytes.last_chunk().copied().filter(|_| bytes[1] == 0),
            });
        }
        let Fields { what, code, listener, slot, local, remote } = Fields::read(bytes)?;
        Some(match what {
            1 if code == 0 => Indication::Listening { listener, result: Ok(local?) },
            1 => Indication::Listening { listener, result: Err(EndReason::of(code)?) },
            2 => Indication::Opened { slot, local: local? },
            3 => Indication::Accepted { listener, slot, local: local?, remote: remote? },
            4 => Indication::Notify { slot },
            5 => Indication::Ended { slot, why: EndReason::of(code)? },
            6 => Indication::Free { slot },
            7 => Indication::Option { value: slot },
            9 => Indication::OtherShard { slot, shard: listener },
            _ => return None,
        })
    }
}
