//! What one shard of a board passes to the others.

use crate::common::hub::*;
use crate::common::packets::{echo_packet, udp_packet};
use crate::helpers::*;
use kiban_attach::{Client, Indication, Layout, Request};
use kiban_base::ethernet::{HEADER_BYTES, Header, Mac};
use kiban_base::numbers::ether_type;
use kiban_base::{Memory, Region, RngKey};
use kiban_board::streams::ClientStreams;
use kiban_board::{BoardConfig, Input, ShardConfig, Steering};
use kiban_tcpip::wire::arp::{self, Operation};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 77));

/// Returns one shard of two, as the only board of a hub, once it has verified its addresses.
fn shard(number: usize) -> Hub {
    let shard = ShardConfig { number, steering: Steering::new(2, RngKey::for_simulation(5)) };
    let mut hub = Hub::of(&[BoardConfig { shard: Some(shard), ..config(link(0)) }]);
    hub.pass(second(15));
    parcels(&mut hub);
    hub
}

/// Returns the number of parcels for the other shard, and drops them.
fn parcels(hub: &mut Hub) -> usize {
    std::iter::from_fn(|| hub.boards[0].parcel()).count()
}

/// Returns a frame from the peer to the board.
fn frame(packet: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    Header { target: mac(0), source: STRANGER, ether_type: ether_type::IPV4 }.write(&mut bytes);
    bytes.extend_from_slice(packet);
    bytes
}

#[test]
fn other_shards_are_informed_of_a_neighbour_that_has_changed() {
    let mut hub = shard(0);
    let moved = Mac([2, 0, 0, 0, 0, 0x55]);
    for (mac, informed) in [(STRANGER, 1), (STRANGER, 0), (STRANGER, 0), (moved, 1), (moved, 0)] {
        let (IpAddr::V4(sender), IpAddr::V4(target)) = (PEER, ip4(0)) else { panic!("IPv4") };
        let request = arp::Packet {
            operation: Operation::Request,
            sender_mac: mac,
            sender,
            target_mac: Mac::default(),
            target,
        };
        hub.inject(0, &arp_frame(Mac::BROADCAST, request));
        hub.run();
        assert_eq!(parcels(&mut hub), informed, "{mac:?}");
    }
}

#[test]
fn a_shard_short_of_receive_memory_hands_on_no_packets() {
    let mut hub = shard(1);
    let echo = frame(&echo_packet(PEER, ip4(0), 1, b"for shard 0"));
    let pool = &mut hub.boards[0].memory_mut().receive;
    let least = pool.capacity() / 16;
    let mut held: Vec<_> = (0..=pool.capacity() - least).map(|_| pool.take().expect("a page")).collect();
    for (short, handed) in [(1, 0), (1, 1)] {
        hub.inject(0, &echo);
        hub.run();
        assert_eq!(parcels(&mut hub), handed);
        assert_eq!(hub.count(0, "shard", "memory_short"), short);
        assert_eq!(hub.count(0, "shard", "handed_to_first"), handed as u64);
        held.pop();
    }
}

#[test]
fn unread_datagrams_do_not_fill_the_memory_of_the_shard_at_which_they_arrived() {
    let (mut arrives, mut reads) = (shard(1), shard(0));
    let socket = |port| SocketAddr::new(ip4(0), port);
    for port in 1..=64 {
        reads.boards[0].host().bind(socket(port)).expect("the port is free");
    }
    // Each of the 64 sockets of shard 0 would keep 64 datagrams, four times the PDUs of shard 1.
    for from in 5000..5256 {
        for port in 1..=64 {
            let Memory { receive, pdus, .. } = arrives.boards[0].memory_mut();
            let mut pdu = pdus.take().expect("unread datagrams do not occupy all PDUs");
            let bytes = frame(&udp_packet(SocketAddr::new(PEER, from), socket(port), b"x"));
            let mut page = receive.take().expect("a page");
            pdu.push_body(page.append(&bytes).expect("it fits")).expect("there is room");
            arrives.wires[0].push_back(pdu);
        }
        arrives.run();
        let parcels = std::iter::from_fn(|| arrives.boards[0].parcel());
        let mut parcels: VecDeque<_> =
            parcels.map(|(to, parcel)| (to == 0).then_some(parcel).unwrap()).collect();
        reads.boards[0].handle(Input::Parcels { parcels: &mut parcels }, reads.now);
        reads.run();
    }
    let pdus = &mut arrives.boards[0].memory_mut().pdus;
    assert!(pdus.available() >= pdus.capacity() / 2 - 64, "{} of {}", pdus.available(), pdus.capacity());
    assert_eq!(arrives.count(0, "shard", "memory_short"), 0);
    assert!(reads.count(0, "shard", "handed_in_copied") > 0);
    assert!(reads.count(0, "host", "datagrams_dropped") > 0);
}

#[test]
fn udp_counts_a_datagram_only_at_the_shard_that_may_have_its_socket() {
    let mut hub = shard(1);
    let target = SocketAddr::new(ip4(0), 53);
    for port in 1..=64 {
        hub.inject(0, &frame(&udp_packet(SocketAddr::new(PEER, port), target, b"question")));
    }
    hub.run();
    // Of these flows, some are of this shard, which has no socket, and the others are of shard 0.
    assert_eq!(parcels(&mut hub), 64);
    assert!(hub.count(0, "shard", "unexpected") > 0);
    for name in ["datagrams_in", "no_socket"] {
        assert_eq!(hub.count(0, "udp", name), 0, "{name}");
    }
}

#[test]
fn a_stream_from_a_given_port_is_opened_on_the_shard_of_its_flow_only() {
    let mut hubs = [0, 1].map(shard);
    let mut opened = [0, 0];
    for port in 20_000..20_064 {
        for ip in [ip4(0), IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED)] {
            let answers = hubs.each_mut().map(|hub| {
                let layout = Layout::new(0, 1, 4096).expect("within bounds");
                let memory = Region::new(0, layout.bytes());
                let (mut client, mut streams) =
                    (Client::new(&memory, layout), ClientStreams::new(&memory, layout));
                let slot = client.claim().expect("it is free");
                let (local, remote) = (Some(SocketAddr::new(ip, port)), SocketAddr::new(PEER, 80));
                client
                    .request(Request::Connect { slot, local, remote, traffic_class: 0 })
                    .expect("a correct board");
                streams.process_requests(&mut hub.boards[0].host()).expect("a correct client");
                let answer = client.next_indication().expect("a correct board");
                streams.disconnect(&mut hub.boards[0].host());
                answer
            });
            let other = |shard| Some(Indication::OtherShard { slot: 0, shard });
            assert!(answers == [None, other(0)] || answers == [other(1), None], "{port}: {answers:?}");
            opened[usize::from(answers[0].is_some())] += 1;
        }
    }
    assert!(opened[0] > 0 && opened[1] > 0, "{opened:?}");
}
