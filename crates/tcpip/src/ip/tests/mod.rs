use super::reassembly::Reassembly;
use super::*;
use crate::wire::ipv4::Header;
use crate::wire::{ipv4, ipv6};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;
use kiban_base::{Context, Pdu};
use kiban_base::{Copies, Instant, Memory, PagePool, PduPool, RngKey, SecureRng, SimRng};

struct Bench {
    memory: Memory,
    rng: SecureRng,
    copies: Copies,
    ip: Ip,
    now: Instant,
}

fn ours() -> IpAddr {
    "10.0.0.1".parse().unwrap()
}

fn peer() -> IpAddr {
    "10.0.0.2".parse().unwrap()
}

impl Bench {
    fn new() -> Bench {
        let mut rng = SecureRng::new(RngKey::for_simulation(1));
        let mut ip = Ip::new(Config::default(), &mut rng);
        ip.add_address(3, ours());
        ip.add_route(Route {
            prefix: "10.0.0.0/24".parse().unwrap(),
            port: 3,
            gateway: None,
            source: ours(),
            mtu_bytes: 1500,
        });
        let memory = Memory {
            transmit: PagePool::new(8, 4096),
            receive: PagePool::new(8, 4096),
            pdus: PduPool::new(8),
        };
        Bench { memory, rng, copies: Copies::default(), ip, now: Instant::ZERO }
    }

    fn pdu(&mut self, bytes: &[u8]) -> Pdu {
        let mut pdu = self.memory.pdus.take().unwrap();
        if let Some(slice) = self.memory.receive.take().unwrap().append(bytes) {
            pdu.push_body(slice).unwrap();
        }
        pdu
    }

    fn with<T>(&mut self, work: impl FnOnce(&mut Ip, &mut Context<'_>) -> T) -> T {
        let Bench { memory, rng, copies, ip, now } = self;
        work(ip, &mut Context { now: *now, memory, rng, copies })
    }

    fn arrive(&mut self, bytes: &[u8]) -> Option<Delivery> {
        let pdu = self.pdu(bytes);
        self.with(|ip, cx| ip.arrive(pdu, 0, cx))
    }

    fn send(&mut self, packet: Packet) -> Vec<Hop> {
        let mut hops = Vec::new();
        self.with(|ip, cx| ip.send(packet, cx, &mut |hop, _| hops.push(hop)));
        hops
    }
}

/// Returns a packet from the peer to us; `change` modifies it before its checksum is computed.
fn packet(payload: &[u8], change: impl FnOnce(&mut Header<'_>)) -> Vec<u8> {
    let (IpAddr::V4(source), IpAddr::V4(target)) = (peer(), ours()) else { unreachable!() };
    let mut header = Header {
        traffic_class: 0,
        total_bytes: (20 + payload.len()) as u16,
        identification: 7,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset_bytes: 0,
        time_to_live: 64,
        protocol: 17,
        source,
        target,
        options: &[],
    };
    change(&mut header);
    let mut bytes = alloc::vec![0; header.length()];
    header.write(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

#[test]
fn an_address_behind_this_host_is_an_invalid_source() {
    let mut bench = Bench::new();
    let route = |prefix: &str, gateway: Option<&str>, source: &str| Route {
        prefix: prefix.parse().unwrap(),
        port: 4,
        gateway: gateway.map(|gateway| gateway.parse().unwrap()),
        source: source.parse().unwrap(),
        mtu_bytes: 1500,
    };
    // The port has two addresses; the first does not belong to this host.
    bench.ip.add_route(route("10.1.0.0/24", None, "10.1.0.1"));
    bench.ip.add_route(route("10.9.0.0/24", Some("10.1.0.9"), "10.1.0.1"));
    let source = |bench: &Bench, target: &str| bench.ip.source_for(target.parse().unwrap());
    assert_eq!(source(&bench, "10.1.0.7"), Some(ours()), "of another port, where this one has none");
    bench.ip.add_address(4, "10.2.0.11".parse().unwrap());
    bench.ip.add_route(route("10.2.0.0/24", None, "10.2.0.11"));
    for target in ["10.1.0.7", "10.9.0.5", "10.2.0.5"] {
        assert_eq!(source(&bench, target), "10.2.0.11".parse().ok(), "{target}");
    }
    assert_eq!(source(&bench, "10.0.0.7"), Some(ours()));
    bench.ip.remove_address(ours());
    bench.ip.remove_address("10.2.0.11".parse().unwrap());
    assert_eq!(source(&bench, "10.1.0.7"), None, "it has no address");
}

#[test]
fn a_packet_arrives_at_the_peer_unchanged() {
    let mut bench = Bench::new();
    let mut pdu = bench.pdu(b"payload");
    pdu.push_head(4).copy_from_slice(b"head");
    let hops = bench.send(Packet {
        source: ours(),
        target: peer(),
        protocol: 6,
        traffic_class: 0,
        dont_fragment: false,
        hop_limit: 0,
        pdu,
    });
    let [hop] = &hops[..] else { panic!("one packet") };
    assert_eq!((hop.port, hop.next), (3, peer()));
    let bytes: Vec<u8> = hop.pdu.runs().flatten().copied().collect();
    assert_eq!(bytes.len(), 31);
    assert!(ipv4::verify(&bytes[..20]).is_ok());
    assert_eq!(&bytes[20..], b"headpayload");
}

#[test]
fn link_padding_is_removed() {
    let mut bench = Bench::new();
    let mut bytes = packet(b"abc", |_| {});
    bytes.extend([0; 17]);
    let got = bench.arrive(&bytes).unwrap();
    assert_eq!(got.pdu.len(), 3);
    assert_eq!((got.source, got.target, got.protocol), (peer(), ours(), 17));
}

#[test]
fn a_malformed_packet_is_counted_by_reason_and_dropped() {
    let elsewhere = |header: &mut Header<'_>| header.target = "10.0.0.9".parse().unwrap();
    let from_us = |header: &mut Header<'_>| header.source = "10.0.0.1".parse().unwrap();
    let group = |header: &mut Header<'_>| header.source = "224.0.0.1".parse().unwrap();
    type Change = Box<dyn Fn(Vec<u8>) -> Vec<u8>>;
    use alloc::boxed::Box;
    let same: fn() -> Change = || Box::new(|bytes| bytes);
    let rows: Vec<(Vec<u8>, Change, &str)> = alloc::vec![
        (packet(b"x", |_| {}), Box::new(|bytes| bytes[..19].to_vec()), "malformed"),
        (
            packet(b"x", |_| {}),
            Box::new(|mut bytes| {
                bytes[0] = 0x65;
                bytes
            }),
            "malformed"
        ),
        (
            packet(b"x", |_| {}),
            Box::new(|mut bytes| {
                bytes[0] = 0x4f;
                bytes
            }),
            "malformed"
        ),
        (
            packet(b"x", |_| {}),
            Box::new(|mut bytes| {
                bytes[8] ^= 1;
                bytes
            }),
            "checksum_errors"
        ),
        (packet(b"x", |header| header.total_bytes = 400), same(), "truncated"),
        (packet(b"x", |header| header.total_bytes = 21 + 8), same(), "truncated"),
        (packet(b"x", |header| header.fragment_offset_bytes = 65528), same(), "fragments_beyond_max"),
        (packet(b"x", elsewhere), same(), "not_ours"),
        (packet(b"x", from_us), same(), "bad_source"),
        (packet(b"x", group), same(), "bad_source"),
        // RFC 1122 §3.2.1.3, RFC 9293 §3.9.2.3 (MUST-63): the last address of our net is its broadcast
        // address.
        (packet(b"x", |header| header.source = "10.0.0.255".parse().unwrap()), same(), "bad_source"),
    ];
    for (bytes, change, name) in rows {
        let mut bench = Bench::new();
        assert!(bench.arrive(&change(bytes)).is_none(), "{name}");
        let mut counted = Vec::new();
        bench.ip.counters().each(&mut |counter, value| {
            if value > 0 && counter != "packets_in" {
                counted.push((counter, value));
            }
        });
        assert_eq!(counted, [(name, 1)]);
        assert!(bench.memory.is_all_free());
    }
}

#[test]
fn sending_fails_without_a_route_or_if_the_packet_is_too_long() {
    let mut bench = Bench::new();
    let pdu = bench.pdu(b"x");
    let target = "192.0.2.1".parse().unwrap();
    assert!(
        bench
            .send(Packet {
                source: ours(),
                target,
                protocol: 6,
                traffic_class: 0,
                dont_fragment: false,
                hop_limit: 0,
                pdu
            })
            .is_empty()
    );
    let pdu = bench.pdu(&[0; 1481]);
    assert!(
        bench
            .send(Packet {
                source: ours(),
                target: peer(),
                protocol: 6,
                traffic_class: 0,
                dont_fragment: false,
                hop_limit: 0,
                pdu
            })
            .is_empty()
    );
    assert_eq!((bench.ip.counters().no_route, bench.ip.counters().too_long), (1, 1));
    assert!(bench.memory.is_all_free());
}

mod fragments;
mod six;

#[test]
fn the_target_is_read_only_from_a_complete_header() {
    let mut bench = Bench::new();
    let four = packet(b"payload", |header| header.options = &[1, 1, 1, 0]);
    let (source, target) = (Ipv6Addr::LOCALHOST, "2001:db8::7".parse().unwrap());
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_bytes: 0,
        next_header: 17,
        hop_limit: 1,
        source,
        target,
    };
    let mut six = [0; ipv6::HEADER_BYTES];
    header.write(&mut six);
    for (bytes, expected) in [
        (&four[..], Some(ours())),
        (&four[..ipv4::HEADER_BYTES], Some(ours())),
        (&four[..ipv4::HEADER_BYTES - 1], None),
        (&six[..], Some(target.into())),
        (&six[..ipv6::HEADER_BYTES - 1], None),
        (&[], None),
    ] {
        let mut pdu = bench.pdu(bytes);
        assert_eq!(target_of(&mut pdu), expected, "{bytes:x?}");
    }
}
