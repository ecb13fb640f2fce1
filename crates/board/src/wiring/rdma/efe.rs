//! EFE below the NIC: frames at a port of the board, or in UDP datagrams of the board from and to port 34997.
//!
//! Peers            the endpoint identifies a peer by a number. Over UDP, there is one for each combination
//!                  of a local address with the peer's address and port.
//! Receive path     the board's UDP verifies a datagram's checksum, and the endpoint the frame's CRC.
//! Transmit path    a port's line fetches frames. Over UDP, frames are sent one at a time, while their port
//!                  has room.
//! Closing          after its queue pair is destroyed, a flow still delivers what is queued, for at most
//!                  `CLOSE_TIMEOUT`.
//! Limits           a datagram that waits for room at its port delays those for other ports. Without packet
//!                  memory, a datagram is lost; the endpoint retransmits its frame. ICMP errors are ignored,
//!                  so connecting to a host without EFE fails only when the requests have timed out.

use crate::edge::NicDatagram;
use crate::stack::Stack;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use kiban_base::ethernet::Mac;
use kiban_base::{Instant, RngKey};
use kiban_rdma::efe::{self, Endpoint, FlowNumber, Peer};
use kiban_rdma::nic::Nic;
use kiban_rdma::wire::efe::UDP_PORT;
use kiban_tcpip::udp::SocketId;

/// Maximum time that a flow lives on without a queue pair.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of known peers above which those without a flow are forgotten.
const PEERS_KEPT: usize = 4096;

kiban_base::counters! {
    /// Counters of EFE over the board's UDP.
    pub struct EfeUdpCounters {
        /// Frames lost here because there was no packet memory.
        no_memory,
    }
}

/// The NIC's EFE endpoint.
pub(super) struct Efe {
    pub(super) endpoint: Endpoint,
    pub(super) below: EfeLink,
    /// Flows whose queue pair was destroyed, and when they are aborted if they have not ended.
    parted: VecDeque<(Instant, FlowNumber)>,
}

/// What carries the frames.
pub(super) enum EfeLink {
    /// A port with this Ethernet address.
    Port(Mac),
    /// A socket of the board's UDP.
    Udp(EfeSocket),
}

impl Efe {
    pub(super) fn at_port(mac: Mac, config: &efe::Config, key: RngKey) -> Efe {
        Efe {
            endpoint: Endpoint::new(config.clone(), key),
            below: EfeLink::Port(mac),
            parted: VecDeque::new(),
        }
    }

    pub(super) fn over_udp(socket: SocketId, config: &efe::Config, key: RngKey) -> Efe {
        let endpoint = Endpoint::new(config.clone(), key);
        let frame = alloc::vec![0; endpoint.frame_bytes_max()];
        let below = EfeLink::Udp(EfeSocket {
            socket,
            peers: Peers::default(),
            frame,
            waiting: None,
            joined: Vec::new(),
            counters: EfeUdpCounters::default(),
        });
        Efe { endpoint, below, parted: VecDeque::new() }
    }

    /// Returns the addresses of both ends of a flow, ours first; `None` at a port.
    pub(super) fn addresses(&self, flow: FlowNumber) -> Option<(SocketAddr, SocketAddr)> {
        let EfeLink::Udp(udp) = &self.below else { return None };
        let (local, remote) = udp.peers.path_of(self.endpoint.peer(flow)?)?;
        Some((SocketAddr::new(local, UDP_PORT), remote))
    }

    /// Parts a destroyed queue pair's end from its flow, which delivers what is queued and then ends.
    pub(super) fn part(&mut self, nic: &mut Nic, end: u32, now: Instant) {
        if let Some(flow) = nic.part_flow(&mut self.endpoint, end, now) {
            self.parted.push_back((now + CLOSE_TIMEOUT, flow));
        }
    }

    /// Fires due timers and releases pending acknowledgements.
    pub(super) fn settle(&mut self, now: Instant) {
        while let Some(&(until, flow)) = self.parted.front()
            && until <= now
        {
            self.parted.pop_front();
            // This fails if the flow has ended.
            let _ = self.endpoint.abort(flow, now);
        }
        self.endpoint.settle(now);
    }

    pub(super) fn deadline(&self) -> Instant {
        let parted = self.parted.front().map_or(Instant::NEVER, |&(until, _)| until);
        self.endpoint.deadline().min(parted)
    }

    pub(super) fn counters(&self, see: &mut dyn FnMut(&'static str, &'static str, u64)) {
        self.endpoint.counters().each(&mut |name, value| see("efe", name, value));
        if let EfeLink::Udp(udp) = &self.below {
            udp.counters.each(&mut |name, value| see("efe_udp", name, value));
        }
    }

    /// Passes a datagram to the NIC, if it belongs to EFE.
    pub(super) fn take(&mut self, datagram: &NicDatagram, nic: &mut Nic, stack: &mut Stack) {
        let EfeLink::Udp(udp) = &mut self.below else { return };
        if udp.socket == datagram.socket {
            let peer = udp.peers.peer_of((datagram.local, datagram.remote), &self.endpoint);
            let frame = datagram.bytes(&mut udp.joined, &mut stack.copies);
            nic.take_frame(&mut self.endpoint, peer, frame, stack.now);
        }
    }

    /// Sends frames over UDP, as far as there is room. Returns whether one waits for room.
    pub(super) fn send(&mut self, stack: &mut Stack) -> bool {
        let EfeLink::Udp(udp) = &mut self.below else { return false };
        loop {
            let next = udp.waiting.take().or_else(|| self.endpoint.fetch(&mut udp.frame, stack.now));
            let Some((peer, length)) = next else { return false };
            let Some((local, remote)) = udp.peers.path_of(peer) else { continue };
            if !stack.has_room_towards(local, remote.ip()) {
                udp.waiting = Some((peer, length));
                return true;
            }
            if stack.send_nic_datagram(udp.socket, (local, remote), &udp.frame[..length], 0, false).is_err() {
                udp.counters.no_memory += 1;
            }
        }
    }
}

/// A socket of the board's UDP.
pub(super) struct EfeSocket {
    socket: SocketId,
    pub(super) peers: Peers,
    /// The frame that was fetched last, and its peer and length if it waits for room.
    frame: Vec<u8>,
    waiting: Option<(Peer, usize)>,
    joined: Vec<u8>,
    counters: EfeUdpCounters,
}

/// Our address, and the peer's with its port.
type EfePath = (IpAddr, SocketAddr);

/// The numbers of peers.
#[derive(Default)]
pub(super) struct Peers {
    numbers: BTreeMap<EfePath, u64>,
    paths: BTreeMap<u64, EfePath>,
    made: u64,
    /// Number of peers that were in use when unused ones were last forgotten.
    used: usize,
}

impl Peers {
    /// Returns the number of a peer.
    pub(super) fn peer_of(&mut self, path: EfePath, endpoint: &Endpoint) -> Peer {
        if let Some(&number) = self.numbers.get(&path) {
            return Peer(number);
        }
        // Any host can send from any address, so forget peers without a flow. The cost is small for each new
        // peer, because at least as many are forgotten as have been in use.
        if self.numbers.len() >= PEERS_KEPT + 2 * self.used {
            let used: BTreeSet<u64> = endpoint.peers().map(|Peer(number)| number).collect();
            self.paths.retain(|number, _| used.contains(number));
            self.numbers.retain(|_, number| used.contains(number));
            self.used = self.numbers.len();
        }
        // The bit of local peers stays clear: even frames from the board to itself carry a CRC.
        self.made = (self.made + 1) & (Peer::LOCAL - 1);
        self.numbers.insert(path, self.made);
        self.paths.insert(self.made, path);
        Peer(self.made)
    }

    fn path_of(&self, Peer(number): Peer) -> Option<EfePath> {
        self.paths.get(&number).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn peers_without_a_flow_are_forgotten_and_those_with_one_stay() {
        let mut endpoint = Endpoint::new(efe::Config::udp(), RngKey::for_simulation(1));
        let mut peers = Peers::default();
        let path = |n: u32| {
            let remote = SocketAddr::new(core::net::Ipv4Addr::from_bits(n).into(), UDP_PORT);
            (IpAddr::from([10, 0, 0, 1]), remote)
        };
        let kept = peers.peer_of(path(0), &endpoint);
        endpoint.connect(kept, 7, &[], Instant::ZERO).expect("room");
        for n in 1..20_000 {
            let peer = peers.peer_of(path(n), &endpoint);
            assert_eq!(peers.path_of(peer), Some(path(n)));
            assert!(peers.paths.len() <= PEERS_KEPT + 2 && peers.numbers.len() == peers.paths.len());
        }
        assert_eq!(vec![peers.peer_of(path(0), &endpoint); 2], [kept; 2]);
        assert_eq!(peers.path_of(kept), Some(path(0)));
    }
}
