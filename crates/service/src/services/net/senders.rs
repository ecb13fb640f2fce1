//! The senders whose datagrams reach the guest through forwarded ports, and through the board.
//!
//! Sources   the guest sees the address and port of the sender, and answers there: an answer is recognised by
//!           its pair of addresses, and leaves through the forwarded port. A sender that the guest cannot
//!           answer, such as this host's loopback, appears at the board's address, with its own port if no
//!           other sender appears there.
//! Limits    those of an [`IdleMap`].

use super::idle::IdleMap;
use super::ports::Ports;
use kiban_base::Instant;
use kiban_board::Host;
use kiban_tcpip::ip::Prefix;
use kiban_tcpip::wire::DYNAMIC_PORTS;
use std::net::{IpAddr, SocketAddr};

/// A sender as the guest knows it, and the guest's address.
type Pair = (SocketAddr, SocketAddr);

/// The number of the forwarded port, and the sender's address.
type Sender = (u64, SocketAddr);

/// The senders.
pub(super) struct Senders(IdleMap<Pair, Sender>);

impl Senders {
    /// Returns an empty set.
    pub(super) fn new() -> Senders {
        Senders(IdleMap::new())
    }

    /// Passes a datagram to an address of the guest, in a subnet. Returns whether it was sent.
    pub(super) fn pass(
        &mut self,
        from: Sender,
        (to, subnet): (SocketAddr, Prefix),
        (payload, ports): (&[u8], &Ports),
        host: &mut Host<'_>,
        now: Instant,
    ) -> bool {
        let address = shown(from.1.ip(), subnet, host).or_else(|| host.source_for(to.ip()));
        let Some(shown) = address.and_then(|address| self.distinct(address, to, from, ports)) else {
            return false;
        };
        self.0.insert((shown, to), from, now);
        // Without packet memory, the datagram is lost.
        host.send_from(shown, to, payload).is_ok()
    }

    /// Returns an address with the sender's port, or with another port if a different sender is shown there.
    fn distinct(&self, shown: IpAddr, to: SocketAddr, from: Sender, ports: &Ports) -> Option<SocketAddr> {
        let at = |port| SocketAddr::new(shown, port);
        let mut shown = std::iter::once(from.1.port()).chain(DYNAMIC_PORTS).map(at);
        shown.find(|&at| self.open(&(at, to), ports).is_none_or(|other| other == from))
    }

    /// Returns the sender that a pair stands for; `None` if its port has been closed, perhaps to be opened
    /// again.
    fn open(&self, pair: &Pair, ports: &Ports) -> Option<Sender> {
        self.0.get(pair).copied().filter(|(port, _)| ports.get(*port).is_some())
    }

    /// Sends a datagram of the guest through a forwarded port if it is an answer. Returns whether it is.
    pub(super) fn answer(&mut self, pair: Pair, payload: &[u8], ports: &Ports, now: Instant) -> bool {
        let Some((port, sender)) = self.open(&pair, ports) else { return false };
        ports.send(port, payload, sender);
        // At this host's loopback, only a sender itself keeps its pair alive: later, another program may have
        // its port.
        if !sender.ip().to_canonical().is_loopback() {
            self.0.touch(pair, now);
        }
        true
    }

    /// Forgets senders that have been idle for too long.
    pub(super) fn look(&mut self, now: Instant) {
        while self.0.expire(now).is_some() {}
    }
}

/// Returns the address at which the guest sees a peer: the peer's own, or `None` if the guest would not send
/// its answers for that address to the board. `subnet` is the guest's.
pub(super) fn shown(peer: IpAddr, subnet: Prefix, host: &Host<'_>) -> Option<IpAddr> {
    let address = peer.to_canonical();
    let is_near = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    // The guest looks for addresses of its subnet on its own link, where only the board is.
    let is_reached = !is_near && !address.is_loopback() && !subnet.contains(address) && !host.is_own(address);
    (is_reached && address.is_ipv4() == subnet.address().is_ipv4()).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_closed_keeps_no_address_from_its_successor() {
        let now = Instant::ZERO;
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (sender, guest) = (address("203.0.113.5:6000"), address("10.0.2.15:53"));
        let mut senders = Senders::new();
        senders.0.insert((sender, guest), (0, sender), now);
        let none_open = Ports::new(0);
        assert_eq!(senders.distinct(sender.ip(), guest, (1, sender), &none_open), Some(sender));
        // The guest's datagrams to that peer are no answers, and belong to a flow of its own.
        assert!(!senders.answer((sender, guest), b"x", &none_open, now));
    }
}
