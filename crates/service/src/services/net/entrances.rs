//! UDP ports of this host that are forwarded to the guest.
//!
//! Sources   the guest sees the address and port of the sender, and answers there: an answer is recognised by
//!           its pair of addresses, and leaves through the forwarded port. A sender that the guest cannot
//!           answer, such as this host's loopback, appears at the board's address, with its own port if no
//!           other sender appears there.
//! Limits    those of an [`IdleMap`].

use super::idle::IdleMap;
use kiban_base::Instant;
use kiban_board::Host;
use kiban_link::{EpollSet, Interest};
use kiban_os::interface::bind_remedy;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// The maximum number of datagrams that one port passes on in one call, so that others get their turn.
const DATAGRAMS_MAX: usize = 64;

/// Ports for senders that would otherwise be shown at the address and port of another (RFC 6335 §6).
const DYNAMIC_PORTS: std::ops::RangeInclusive<u16> = 49_152..=u16::MAX;

/// A sender as the guest knows it, and the guest's address.
type Pair = (SocketAddr, SocketAddr);

struct Sender {
    entrance: usize,
    address: SocketAddr,
}

/// The forwarded ports.
pub(super) struct Entrances {
    first: u64,
    /// Each with the guest's address and port.
    entrances: Vec<(UdpSocket, SocketAddr)>,
    senders: IdleMap<Pair, Sender>,
    room: Vec<u8>,
}

impl Entrances {
    /// Returns an empty set; `first` is the number of the first port among the watched files.
    pub(super) fn new(first: u64) -> Entrances {
        Entrances { first, entrances: Vec::new(), senders: IdleMap::new(), room: vec![0; 1 << 16] }
    }

    /// Opens a port of this host.
    ///
    /// # Errors
    /// The port is in use, or this user must not use it.
    pub(super) fn open(&mut self, from: SocketAddr, to: SocketAddr, files: &EpollSet) -> Result<(), String> {
        let open = || {
            let socket = UdpSocket::bind(from)?;
            socket.set_nonblocking(true)?;
            files.watch(&socket, self.first + self.entrances.len() as u64, Interest::READ)?;
            Ok(socket)
        };
        let socket = open().map_err(|error| format!("UDP {from}: {error}{}", bind_remedy(from, &error)))?;
        self.entrances.push((socket, to));
        Ok(())
    }

    /// Passes what arrived at a port to the guest. Returns the number of datagrams.
    pub(super) fn on_ready(&mut self, number: u64, host: &mut Host<'_>, now: Instant) -> u64 {
        let index = (number - self.first) as usize;
        let mut passed = 0;
        for _ in 0..DATAGRAMS_MAX {
            let Some((socket, to)) = self.entrances.get(index) else { break };
            // An error is an ICMP error about an earlier answer.
            let (length, sender) = match socket.recv_from(&mut self.room) {
                Ok(received) => received,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => continue,
                Err(_) => break,
            };
            let to = *to;
            let shown = shown(sender, to, host).and_then(|shown| self.distinct(shown, to, (index, sender)));
            let Some(shown) = shown else { continue };
            self.senders.insert((shown, to), Sender { entrance: index, address: sender }, now);
            // Without packet memory, the datagram is lost.
            passed += u64::from(host.send_from(shown, to, &self.room[..length]).is_ok());
        }
        passed
    }

    /// Returns the address with its port, or with another port if a different sender is shown there.
    fn distinct(&self, shown: SocketAddr, to: SocketAddr, from: (usize, SocketAddr)) -> Option<SocketAddr> {
        let at = |port| SocketAddr::new(shown.ip(), port);
        std::iter::once(shown.port()).chain(DYNAMIC_PORTS).map(at).find(|&at| {
            let other = self.senders.get(&(at, to));
            other.is_none_or(|other| (other.entrance, other.address) == from)
        })
    }

    /// Sends a datagram of the guest through a forwarded port if it is an answer. Returns whether it is.
    pub(super) fn answer(&mut self, pair: Pair, payload: &[u8], now: Instant) -> bool {
        let Some(sender) = self.senders.get(&pair) else { return false };
        // If the socket's buffer is full, the datagram is lost, as on a link.
        let _ = self.entrances[sender.entrance].0.send_to(payload, sender.address);
        // At this host's loopback, only a sender itself keeps its pair alive: later, another program may have
        // its port.
        if !sender.address.ip().to_canonical().is_loopback() {
            self.senders.touch(pair, now);
        }
        true
    }

    /// Forgets senders that have been idle for too long.
    pub(super) fn look(&mut self, now: Instant) {
        while self.senders.expire(now).is_some() {}
    }
}

/// Returns the address at which the guest sees a sender; `None` if it is of another family.
fn shown(sender: SocketAddr, to: SocketAddr, host: &Host<'_>) -> Option<SocketAddr> {
    let address = sender.ip().to_canonical();
    let is_near = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let is_reached = !is_near && !address.is_loopback() && address != to.ip() && !host.is_own(address);
    let address =
        if is_reached && address.is_ipv4() == to.is_ipv4() { address } else { host.source_for(to.ip())? };
    Some(SocketAddr::new(address, sender.port()))
}
