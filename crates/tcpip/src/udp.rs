//! UDP: datagrams between ports (RFC 768, RFC 1122 §4.1).
//!
//! Purpose          deliver each datagram whole or not at all. Its payload is referenced in the sender's
//!                  memory, not copied.
//! Transmit path    `send` adds the header; the checksum does not need a second pass over the payload.
//! Receive path     lengths and checksum are checked. The datagram goes to the socket of its port, or the
//!                  caller reports the port as unreachable.
//! Families         a socket on an unspecified address accepts datagrams to any address of its family. One on
//!                  IPv6's also accepts IPv4 unless `v6_only` is set (RFC 3493 §5.3), and reports the peer's
//!                  IPv4 address.
//! Errors           an ICMP error about a datagram is matched to the socket that sent it
//!                  ([`Udp::on_icmp_error`], RFC 1122 §4.1.3.3).
//! Limits           [`Udp::sockets_max`] sockets; the host limits how many datagrams wait for a slow reader.

use crate::families::{is_any6, overlap};
use crate::icmp::IcmpError;
use crate::wire::udp::{self, Header};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use kiban_base::checksum;
use kiban_base::numbers::protocol;
use kiban_base::{Context, Pdu};

kiban_base::counters! {
    /// UDP counters of one board.
    pub struct UdpCounters {
        /// Datagrams that arrived.
        datagrams_in,
        /// Datagrams sent.
        datagrams_out,
        /// Datagrams with a malformed header.
        malformed,
        /// Datagrams with a wrong checksum.
        checksum_errors,
        /// Datagrams to a port without a socket.
        no_socket,
        /// ICMP errors about our datagrams.
        icmp_errors,
    }
}

/// Identifies a socket. It carries a generation: the identifier of a closed socket never matches a later
/// socket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SocketId {
    index: u32,
    generation: u32,
}

/// Why a request was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The socket was never opened, or it has been closed.
    UnknownSocket,
    /// Another socket has that address and port.
    AddressInUse,
    /// The addresses differ in family, or a port is zero.
    BadAddress,
    /// The payload is longer than a datagram can hold.
    TooLong,
    /// All sockets are in use.
    TooMany,
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Refusal::UnknownSocket => "no such socket: it was never bound, or it has been closed",
            Refusal::AddressInUse => "that address and port are in use: choose another port",
            Refusal::BadAddress => {
                "invalid address: use addresses of the same family, and ports other than 0"
            }
            Refusal::TooLong => "the payload is too long for a datagram: send less at a time",
            Refusal::TooMany => "no socket number is free: close sockets first",
        })
    }
}

impl core::error::Error for Refusal {}

/// A datagram to send. The header is at the front of the head.
#[derive(Debug)]
pub struct Datagram {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub target: IpAddr,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Hop limit; 0 means that of the configuration.
    pub hop_limit: u8,
    /// Header and payload.
    pub pdu: Pdu,
}

/// The result of a datagram's arrival.
#[derive(Debug)]
pub enum Arrival {
    /// The datagram is for a socket.
    Data {
        /// The socket.
        socket: SocketId,
        /// The sender's address and port.
        remote: SocketAddr,
        /// The payload, in head and body.
        pdu: Pdu,
    },
    /// No socket has that port (RFC 1122 §4.1.3.1 asks for an ICMP error).
    NoSocket {
        /// The datagram with its UDP header.
        pdu: Pdu,
    },
    /// The datagram was malformed; it has been counted.
    Dropped,
}

/// A bound socket.
#[derive(Clone, Copy)]
struct Socket {
    local: SocketAddr,
    /// Whether an unspecified IPv6 address accepts IPv4 datagrams too.
    dual: bool,
}

impl Socket {
    fn takes(&self, target: SocketAddr) -> bool {
        self.local.port() == target.port()
            && self.local.ip().is_unspecified()
            && (self.dual || self.local.is_ipv4() == target.is_ipv4())
    }
}

/// UDP for one board.
pub struct Udp {
    sockets: Vec<(u32, Option<Socket>)>,
    sockets_max: usize,
    counters: UdpCounters,
}

impl Udp {
    /// Creates a UDP machine with up to `sockets_max` sockets.
    pub fn new(sockets_max: usize) -> Udp {
        Udp { sockets: Vec::new(), sockets_max, counters: UdpCounters::default() }
    }

    /// Returns the largest number of sockets.
    pub fn sockets_max(&self) -> usize {
        self.sockets_max
    }

    /// Returns the counters.
    pub fn counters(&self) -> &UdpCounters {
        &self.counters
    }

    /// Binds a socket to `local`; an unspecified address matches every local address of its family.
    ///
    /// # Errors
    /// `BadAddress` if the port is zero; `AddressInUse`; `TooMany`.
    pub fn bind(&mut self, local: SocketAddr) -> Result<SocketId, Refusal> {
        self.bind_with(local, true)
    }

    /// Binds a socket like [`Udp::bind`]; without `v6_only` the unspecified IPv6 address also accepts IPv4.
    ///
    /// # Errors
    /// Same as for [`Udp::bind`].
    pub fn bind_with(&mut self, local: SocketAddr, v6_only: bool) -> Result<SocketId, Refusal> {
        if local.port() == 0 {
            return Err(Refusal::BadAddress);
        }
        let dual = !v6_only && is_any6(local);
        let taken =
            |bound: &Socket| bound.local == local || overlap((bound.local, bound.dual), (local, dual));
        if self.sockets.iter().filter_map(|(_, bound)| bound.as_ref()).any(taken) {
            return Err(Refusal::AddressInUse);
        }
        let index = match self.sockets.iter().position(|(_, bound)| bound.is_none()) {
            Some(index) => index,
            None if self.sockets.len() < self.sockets_max => {
                self.sockets.push((0, None));
                self.sockets.len() - 1
            }
            None => return Err(Refusal::TooMany),
        };
        self.sockets[index].1 = Some(Socket { local, dual });
        Ok(SocketId { index: index as u32, generation: self.sockets[index].0 })
    }

    /// Closes a socket.
    ///
    /// # Errors
    /// `UnknownSocket` if it does not exist.
    pub fn close(&mut self, socket: SocketId) -> Result<(), Refusal> {
        self.local(socket)?;
        let slot = &mut self.sockets[socket.index as usize];
        *slot = (slot.0.wrapping_add(1), None);
        Ok(())
    }

    /// Returns the local address of a socket.
    ///
    /// # Errors
    /// `UnknownSocket` if it does not exist.
    pub fn local(&self, socket: SocketId) -> Result<SocketAddr, Refusal> {
        match self.sockets.get(socket.index as usize) {
            Some((generation, Some(bound))) if *generation == socket.generation => Ok(bound.local),
            _ => Err(Refusal::UnknownSocket),
        }
    }

    /// Adds the header to the payload in `pdu`. `source` is the source address of the route, for sockets on
    /// an unspecified address.
    ///
    /// # Errors
    /// Returns `pdu` with `UnknownSocket`, `TooLong` if the datagram would exceed 65,535 bytes, or
    /// `BadAddress` if the port of `remote` is zero or its address is of another family.
    pub fn send(
        &mut self,
        socket: SocketId,
        source: IpAddr,
        remote: SocketAddr,
        pdu: Pdu,
    ) -> Result<Datagram, (Pdu, Refusal)> {
        let local = match self.local(socket) {
            Ok(local) => local,
            Err(refusal) => return Err((pdu, refusal)),
        };
        let source = if local.ip().is_unspecified() { source } else { local.ip() };
        self.send_from(SocketAddr::new(source, local.port()), remote, pdu)
    }

    /// Adds a header to the payload in `pdu`, from any address and port, as a transparent proxy does.
    ///
    /// # Errors
    /// Same as for [`Udp::send`].
    pub fn send_from(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        mut pdu: Pdu,
    ) -> Result<Datagram, (Pdu, Refusal)> {
        if remote.port() == 0 || local.is_ipv4() != remote.is_ipv4() {
            return Err((pdu, Refusal::BadAddress));
        }
        let (source, target) = (local.ip(), remote.ip());
        let total = pdu.len() + udp::HEADER_BYTES;
        let Ok(total_bytes) = u16::try_from(total) else { return Err((pdu, Refusal::TooLong)) };
        let rest = checksum::pseudo(source, target, protocol::UDP, total).plus(pdu.body_sum());
        let header = pdu.push_head(udp::HEADER_BYTES);
        Header { source_port: local.port(), target_port: remote.port(), total_bytes }.write(header);
        udp::fill(header, rest);
        self.counters.datagrams_out += 1;
        Ok(Datagram { source, target, traffic_class: 0, hop_limit: 0, pdu })
    }

    /// Processes a datagram that arrived.
    pub fn arrive(&mut self, source: IpAddr, target: IpAddr, mut pdu: Pdu, cx: &mut Context<'_>) -> Arrival {
        self.counters.datagrams_in += 1;
        let Some(moved) = pdu.pull_up(udp::HEADER_BYTES) else {
            self.counters.malformed += 1;
            return Arrival::Dropped;
        };
        cx.copies.header_bytes += moved as u64;
        let head = pdu.head();
        let total = usize::from(u16::from_be_bytes([head[4], head[5]]));
        if total < udp::HEADER_BYTES || total > pdu.len() {
            self.counters.malformed += 1;
            return Arrival::Dropped;
        }
        pdu.truncate(total);
        let head = pdu.head();
        let after = &head[udp::HEADER_BYTES..];
        let payload = checksum::of_header(after).then(after.len(), pdu.body_sum());
        let rest = checksum::pseudo(source, target, protocol::UDP, total).plus(payload);
        let intact = match target {
            IpAddr::V4(_) => udp::verify_over_ipv4(head, rest),
            IpAddr::V6(_) => udp::verify_over_ipv6(head, rest),
        };
        if !pdu.is_verified() && intact.is_err() {
            self.counters.checksum_errors += 1;
            return Arrival::Dropped;
        }
        let (from, to) = (u16::from_be_bytes([head[0], head[1]]), u16::from_be_bytes([head[2], head[3]]));
        let exact = SocketAddr::new(target, to);
        match self.find(exact) {
            Some(socket) => {
                pdu.pull_head(udp::HEADER_BYTES);
                Arrival::Data { socket, remote: SocketAddr::new(source, from), pdu }
            }
            None => {
                self.counters.no_socket += 1;
                Arrival::NoSocket { pdu }
            }
        }
    }

    /// Returns the socket for datagrams to `target`. A socket bound to that exact address is preferred to one
    /// on all addresses, whichever was bound first.
    fn find(&self, target: SocketAddr) -> Option<SocketId> {
        let of = |takes: &dyn Fn(Socket) -> bool| {
            self.sockets.iter().position(|(_, bound)| bound.is_some_and(takes))
        };
        let index = of(&|bound| bound.local == target).or_else(|| of(&|bound| bound.takes(target)))?;
        Some(SocketId { index: index as u32, generation: self.sockets[index].0 })
    }

    /// Returns whether a datagram to `target` would find a socket.
    pub fn has_socket(&self, target: SocketAddr) -> bool {
        self.find(target).is_some()
    }

    /// Counts an ICMP error about a datagram, and returns the socket that may have sent it.
    pub fn on_icmp_error(&mut self, trouble: &IcmpError) -> Option<SocketId> {
        let socket = self.find(trouble.local())?;
        self.counters.icmp_errors += 1;
        Some(socket)
    }
}
