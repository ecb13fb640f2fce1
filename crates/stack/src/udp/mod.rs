//! UDP: datagrams between ports (RFC 768, RFC 1122 §4.1).
//!
//! Goal      a datagram whole or not at all; its payload is what the sender's memory holds, referred to.
//! Down      `send` puts the header in front; the checksum needs no second look at the payload.
//! Up        lengths and checksum are checked; the datagram goes to the socket of its port, or is reported as
//!           unreachable by whoever wires this.
//! Families  a socket on an unspecified address takes what comes to any address of its family; one on IPv6's takes
//!           IPv4's as well if it is to (`v6_only`, RFC 3493 §5.3), and sees the peer's true address.
//! Errors    what others report of a datagram finds the socket that sent it ([`Udp::on_trouble`], RFC 1122 §4.1.3.3).
//! Limits    [`Udp::sockets_max`] sockets; how many datagrams wait for a slow reader is the host edge's bound.

use crate::families::{is_any6, share};
use crate::icmp::Trouble;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use kiban_ground::{Context, Pdu};
use kiban_wire::checksum;
use kiban_wire::numbers::protocol;
use kiban_wire::udp::{self, Header};

kiban_ground::counters! {
    /// What happened in UDP.
    pub struct UdpCounters {
        /// Datagrams that arrived.
        datagrams_in,
        /// Datagrams sent.
        datagrams_out,
        /// Datagrams with a header that breaks a rule.
        malformed,
        /// Datagrams whose checksum does not match.
        checksum_wrong,
        /// Datagrams for a port where nobody is.
        no_socket,
        /// Errors that others reported of our datagrams (ICMP).
        icmp_errors,
    }
}

/// The number of a socket. It carries a generation: the number of a closed socket names nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SocketId {
    index: u32,
    generation: u32,
}

/// Why a request was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No such socket: never made, or closed.
    UnknownSocket,
    /// Another socket has that address and port.
    AddressInUse,
    /// The two addresses are not of one family, or a port is zero.
    BadAddress,
    /// More payload than a datagram holds.
    TooLong,
    /// All socket numbers are in use.
    TooMany,
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Refusal::UnknownSocket => "no such socket: it was never bound, or it has been closed",
            Refusal::AddressInUse => "that address and port are in use: choose another port",
            Refusal::BadAddress => "the address cannot be used: give addresses of one family and a port",
            Refusal::TooLong => "more payload than a datagram holds: send less at once",
            Refusal::TooMany => "no socket number is free: close sockets first",
        })
    }
}

impl core::error::Error for Refusal {}

/// A datagram on its way to IP: the header stands at the front of the head.
#[derive(Debug)]
pub struct Datagram {
    /// The address it comes from.
    pub source: IpAddr,
    /// The address it goes to.
    pub target: IpAddr,
    /// Header and payload.
    pub pdu: Pdu,
}

/// What became of a datagram that arrived.
#[derive(Debug)]
pub enum Arrival {
    /// It is for a socket; the PDU's head and body are its payload.
    Data {
        /// Which.
        socket: SocketId,
        /// Who sent it.
        remote: SocketAddr,
        /// The payload.
        pdu: Pdu,
    },
    /// Nobody is there (RFC 1122 §4.1.3.1 asks for an ICMP message).
    NoSocket {
        /// The datagram as it came, with its header.
        pdu: Pdu,
    },
    /// It was broken, and is counted.
    Dropped,
}

/// A socket that is bound.
#[derive(Clone, Copy)]
struct Bound {
    local: SocketAddr,
    /// An unspecified IPv6 address stands for the IPv4 addresses, too.
    dual: bool,
}

impl Bound {
    fn takes(&self, target: SocketAddr) -> bool {
        self.local.port() == target.port()
            && self.local.ip().is_unspecified()
            && (self.dual || self.local.is_ipv4() == target.is_ipv4())
    }
}

/// UDP for one board.
pub struct Udp {
    sockets: Vec<(u32, Option<Bound>)>,
    sockets_max: usize,
    counters: UdpCounters,
}

impl Udp {
    /// UDP for up to `sockets_max` sockets.
    pub fn new(sockets_max: usize) -> Udp {
        Udp { sockets: Vec::new(), sockets_max, counters: UdpCounters::default() }
    }

    /// The bound on sockets.
    pub fn sockets_max(&self) -> usize {
        self.sockets_max
    }

    /// What has been counted.
    pub fn counters(&self) -> &UdpCounters {
        &self.counters
    }

    /// A socket on `local`; an unspecified address stands for every address of its family.
    pub fn bind(&mut self, local: SocketAddr) -> Result<SocketId, Refusal> {
        self.bind_with(local, true)
    }

    /// The same; without `v6_only` the unspecified IPv6 address stands for IPv4 addresses, too.
    pub fn bind_with(&mut self, local: SocketAddr, v6_only: bool) -> Result<SocketId, Refusal> {
        if local.port() == 0 {
            return Err(Refusal::BadAddress);
        }
        let dual = !v6_only && is_any6(local);
        let taken = |bound: &Bound| bound.local == local || share((bound.local, bound.dual), (local, dual));
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
        self.sockets[index].1 = Some(Bound { local, dual });
        Ok(SocketId { index: index as u32, generation: self.sockets[index].0 })
    }

    /// Closes a socket.
    pub fn close(&mut self, socket: SocketId) -> Result<(), Refusal> {
        self.local(socket)?;
        let slot = &mut self.sockets[socket.index as usize];
        *slot = (slot.0.wrapping_add(1), None);
        Ok(())
    }

    /// The address of a socket.
    pub fn local(&self, socket: SocketId) -> Result<SocketAddr, Refusal> {
        match self.sockets.get(socket.index as usize) {
            Some((generation, Some(bound))) if *generation == socket.generation => Ok(bound.local),
            _ => Err(Refusal::UnknownSocket),
        }
    }

    /// Puts the header in front of the payload in `pdu`. `source` is the address that the route prefers, for sockets
    /// that stand for every address.
    pub fn send(
        &mut self,
        socket: SocketId,
        source: IpAddr,
        remote: SocketAddr,
        mut pdu: Pdu,
    ) -> Result<Datagram, (Pdu, Refusal)> {
        let local = match self.local(socket) {
            Ok(local) => local,
            Err(refusal) => return Err((pdu, refusal)),
        };
        let source = if local.ip().is_unspecified() { source } else { local.ip() };
        if remote.port() == 0 || source.is_ipv4() != remote.is_ipv4() {
            return Err((pdu, Refusal::BadAddress));
        }
        let total = pdu.len() + udp::HEADER_BYTES;
        let Ok(total_bytes) = u16::try_from(total) else { return Err((pdu, Refusal::TooLong)) };
        let rest = checksum::pseudo(source, remote.ip(), protocol::UDP, total).plus(pdu.body_sum());
        let header = pdu.push_head(udp::HEADER_BYTES);
        Header { source_port: local.port(), target_port: remote.port(), total_bytes }.write(header);
        udp::fill(header, rest);
        self.counters.datagrams_out += 1;
        Ok(Datagram { source, target: remote.ip(), pdu })
    }

    /// A datagram has arrived.
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
            self.counters.checksum_wrong += 1;
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

    /// The socket for what comes to `target`: who named the address goes before who takes any, whoever was bound first.
    fn find(&self, target: SocketAddr) -> Option<SocketId> {
        let of = |takes: &dyn Fn(Bound) -> bool| {
            self.sockets.iter().position(|(_, bound)| bound.is_some_and(takes))
        };
        let index = of(&|bound| bound.local == target).or_else(|| of(&|bound| bound.takes(target)))?;
        Some(SocketId { index: index as u32, generation: self.sockets[index].0 })
    }

    /// Somebody reports an error about a datagram: the socket that may have sent it.
    pub fn on_trouble(&mut self, trouble: &Trouble) -> Option<SocketId> {
        let socket = self.find(trouble.local())?;
        self.counters.icmp_errors += 1;
        Some(socket)
    }
}
