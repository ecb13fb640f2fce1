//! UDP at its public interface: which socket gets a datagram, and which datagrams are dropped.

use kiban_base::checksum;
use kiban_base::numbers::protocol;
use kiban_base::{Context, Copies, Instant, Memory, PagePool, Pdu, PduPool, RngKey, SecureRng, Sum};
use kiban_tcpip::udp::{Arrival, Refusal, SocketId, Udp};
use kiban_tcpip::wire::udp::{self, Header};
use std::net::{IpAddr, SocketAddr};

struct Bench {
    memory: Memory,
    udp: Udp,
}

fn ours() -> IpAddr {
    "10.0.0.1".parse().unwrap()
}

fn peer() -> SocketAddr {
    "10.0.0.2:9".parse().unwrap()
}

fn at(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

/// Returns a datagram from the peer to one of our ports.
fn datagram(port: u16, payload: &[u8]) -> Vec<u8> {
    let total = udp::HEADER_BYTES + payload.len();
    let mut bytes = vec![0; udp::HEADER_BYTES];
    Header { source_port: peer().port(), target_port: port, total_bytes: total as u16 }.write(&mut bytes);
    let rest = checksum::pseudo(peer().ip(), ours(), protocol::UDP, total).plus(Sum::of(payload));
    udp::fill(&mut bytes, rest);
    bytes.extend_from_slice(payload);
    bytes
}

impl Bench {
    fn new() -> Bench {
        let memory = Memory {
            transmit: PagePool::new(4, 4096),
            receive: PagePool::new(4, 4096),
            pdus: PduPool::new(4),
        };
        Bench { memory, udp: Udp::new(4) }
    }

    fn pdu(&mut self, bytes: &[u8], head: usize) -> Pdu {
        let mut pdu = self.memory.pdus.take().unwrap();
        let (front, back) = bytes.split_at(head.min(bytes.len()));
        pdu.extend_head(front);
        if let Some(slice) = self.memory.receive.take().unwrap().append(back) {
            pdu.push_body(slice).unwrap();
        }
        pdu
    }

    fn arrive(&mut self, bytes: &[u8], head: usize) -> Arrival {
        let pdu = self.pdu(bytes, head);
        let cx = &mut Context {
            now: Instant::ZERO,
            memory: &mut self.memory,
            rng: &mut SecureRng::new(RngKey::for_simulation(1)),
            copies: &mut Copies::default(),
        };
        self.udp.arrive(peer().ip(), ours(), pdu, cx)
    }

    /// Delivers a datagram; returns its socket and payload.
    fn taken(&mut self, bytes: &[u8], head: usize) -> Option<(SocketId, Vec<u8>)> {
        match self.arrive(bytes, head) {
            Arrival::Data { socket, remote, pdu } => {
                assert_eq!(remote, peer());
                Some((socket, pdu.runs().flatten().copied().collect()))
            }
            _ => None,
        }
    }
}

#[test]
fn a_socket_bound_to_the_address_precedes_a_wildcard_socket() {
    for order in [["0.0.0.0:53", "10.0.0.1:53"], ["10.0.0.1:53", "0.0.0.0:53"]] {
        let mut bench = Bench::new();
        let bound = order.map(|local| bench.udp.bind(at(local)).unwrap());
        let named = bound[usize::from(order[1].starts_with("10"))];
        assert_eq!(bench.taken(&datagram(53, b"x"), 0), Some((named, b"x".to_vec())));
        bench.udp.close(named).unwrap();
        assert!(bench.taken(&datagram(53, b"x"), 0).is_some());
        assert!(matches!(bench.arrive(&datagram(54, b"x"), 0), Arrival::NoSocket { .. }));
    }
}

#[test]
fn a_datagram_is_delivered_whole_wherever_its_head_ends() {
    let mut bench = Bench::new();
    let socket = bench.udp.bind(at("0.0.0.0:53")).unwrap();
    for length in [0, 1, 2, 7, 39, 40, 41, 1001] {
        let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
        for head in [0, 3, 8, 9, 20, 47] {
            // The datagram arrives with and without link padding after it.
            for padding in [0, 1, 30] {
                let bytes = [datagram(53, &payload), vec![0xee; padding]].concat();
                assert_eq!(
                    bench.taken(&bytes, head),
                    Some((socket, payload.clone())),
                    "{length} {head} {padding}"
                );
            }
        }
    }
    assert!(bench.memory.is_all_free());
}

#[test]
fn a_datagram_without_a_checksum_is_accepted_and_one_with_a_wrong_checksum_is_dropped() {
    let mut bench = Bench::new();
    bench.udp.bind(at("0.0.0.0:53")).unwrap();
    let mut bytes = datagram(53, b"payload");
    // RFC 768: zero means that the sender computed no checksum.
    bytes[6..8].fill(0);
    assert!(bench.taken(&bytes, 0).is_some());
    bytes[7] = 1;
    assert!(bench.taken(&bytes, 0).is_none());
    assert_eq!(bench.udp.counters().checksum_errors, 1);
    for length in 0..8 {
        assert!(matches!(bench.arrive(&datagram(53, b"")[..length], 0), Arrival::Dropped));
    }
    assert_eq!(bench.udp.counters().malformed, 8);
}

#[test]
fn the_identifier_of_a_closed_socket_is_invalid() {
    let mut bench = Bench::new();
    let old = bench.udp.bind(at("10.0.0.1:53")).unwrap();
    assert_eq!(bench.udp.bind(at("10.0.0.1:53")), Err(Refusal::AddressInUse));
    bench.udp.close(old).unwrap();
    assert_eq!(bench.udp.close(old), Err(Refusal::UnknownSocket), "a double close");
    let new = bench.udp.bind(at("10.0.0.1:53")).unwrap();
    assert!(new != old && bench.udp.local(old).is_err());
    for port in 54..57 {
        bench.udp.bind(SocketAddr::new(ours(), port)).unwrap();
    }
    assert_eq!(bench.udp.bind(at("10.0.0.1:99")), Err(Refusal::TooMany));
    assert_eq!(bench.udp.bind(at("10.0.0.1:0")), Err(Refusal::BadAddress));
    for (remote, expected) in [("10.0.0.2:0", Refusal::BadAddress), ("[::1]:5", Refusal::BadAddress)] {
        let pdu = bench.pdu(b"x", 0);
        let (back, refusal) = bench.udp.send(new, ours(), at(remote), pdu).unwrap_err();
        assert_eq!((back.len(), refusal), (1, expected), "the payload comes back as it was");
    }
}
