//! Boards of several shards, whose cable passes arrivals to the shards in turn: most packets arrive at a
//! shard that does not serve them.

use kiban_atm::wire::atm::Vc;
use kiban_atm::{Contract, Interval};
use kiban_base::ethernet::Mac;
use kiban_base::{Instant, SimRng};
use kiban_board::{
    AtmPortConfig, BoardConfig, CircuitConfig, EthernetPortConfig, IpPortConfig, PortAddress, PortConfig,
};
use kiban_sim::program::{Receiver, Sender, Sink, Source};
use kiban_sim::{Attachment, BoardNumber, CableConfig, ImpairmentConfig, World};
use kiban_tcpip::ethernet::LinkConfig;
use kiban_tcpip::ip::Prefix;
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

const SHARDS: usize = 4;
const PORT: u16 = 80;
const STREAMS: usize = 32;
const BYTES: usize = 50_000;

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn v4(side: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + side as u8])
}

fn v6(side: usize) -> IpAddr {
    IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1 + side as u16])
}

fn ethernet(side: usize) -> BoardConfig {
    let mut link = LinkConfig::new(Mac([2, 0, 0, 0, 0, side as u8]));
    link.addresses = vec![(v4(side), Prefix::new(v4(side), 24)), (v6(side), Prefix::new(v6(side), 64))];
    let ports = vec![PortConfig::Ethernet(EthernetPortConfig::on(link))];
    BoardConfig { ports, ..BoardConfig::default() }
}

fn ip(side: usize) -> BoardConfig {
    let port = IpPortConfig {
        address: v4(side),
        prefix: Prefix::new(v4(side), 24),
        mtu_bytes: 1500,
        packets_max: 256,
        cuts: false,
        merges: true,
        believe_sums: false,
    };
    BoardConfig { ports: vec![PortConfig::Ip(port)], ..BoardConfig::default() }
}

/// One circuit, whose peer InATMARP finds.
fn atm(side: usize) -> BoardConfig {
    let mut port = AtmPortConfig::oc3c(v4(side), Prefix::new(v4(side), 24));
    port.circuits = vec![CircuitConfig { peer: None, ..CircuitConfig::to(Vc::new(0, 100), v4(1 - side)) }];
    BoardConfig { ports: vec![PortConfig::Atm(port)], ..BoardConfig::default() }
}

/// One circuit for each shard, of which the peer has four addresses (side 1), and the board one (side 0).
fn circuits(side: usize, by_circuit: bool, peak: Option<u64>) -> BoardConfig {
    let mut config = atm(side);
    let PortConfig::Atm(port) = &mut config.ports[0] else { panic!("an ATM port") };
    let contract = peak.map(|rate| Contract::peak(Interval::per_second(rate), Duration::from_micros(100)));
    let circuit = |number: usize| {
        let peer = if side == 0 { far(number) } else { near(number) };
        let vc = Vc::new(0, 100 + number as u16);
        CircuitConfig { peer: Some(peer), contract, ..CircuitConfig::to(vc, peer) }
    };
    port.by_circuit = by_circuit;
    port.circuits = (0..SHARDS).map(circuit).collect();
    let own = |number: usize| if side == 0 { near(number) } else { far(number) };
    let added = (1..SHARDS).map(|number| {
        let address = own(number);
        PortAddress { port: 0, address, prefix: Prefix::new(address, 32) }
    });
    config.addresses = added.collect();
    config
}

/// The addresses of the two sides; the packets between those with the same number use one circuit.
fn near(number: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + 10 * number as u8])
}

fn far(number: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 2 + 10 * number as u8])
}

/// A divided board (side 0) and an undivided one (side 1) on one cable or line.
struct Pair {
    world: World,
    shards: Vec<BoardNumber>,
    peer: BoardNumber,
}

impl Pair {
    fn new(config: fn(usize) -> BoardConfig) -> Pair {
        let mut world = World::new(1);
        let shards = world.add_shards(&config(0), SHARDS);
        let peer = world.add_board(&config(1));
        let cable = CableConfig::ip(1_000_000_000, Duration::from_micros(50));
        let (one, other) = (Attachment::Board(shards[0], 0), Attachment::Board(peer, 0));
        match config(0).ports[0] {
            PortConfig::Atm(_) => world.connect(one, other, 10.0, ImpairmentConfig::NONE).map(|_| ()),
            _ => world.connect_packets(one, other, &cable).map(|_| ()),
        }
        .expect("the ports match");
        Pair { world, shards, peer }
    }

    /// A divided board and one of as many shards, or an undivided one, on lines between equal shards.
    fn by_circuit(peak: Option<u64>, peer_is_divided: bool) -> (Pair, Vec<BoardNumber>) {
        let mut world = World::new(1);
        let shards = world.add_shards(&circuits(0, true, peak), SHARDS);
        let peers = match peer_is_divided {
            true => world.add_shards(&circuits(1, true, peak), SHARDS),
            false => vec![world.add_board(&circuits(1, false, peak))],
        };
        for (one, other) in shards.iter().zip(&peers) {
            let (one, other) = (Attachment::Board(*one, 0), Attachment::Board(*other, 0));
            world.connect(one, other, 10.0, ImpairmentConfig::NONE).expect("the ports match");
        }
        (Pair { world, shards, peer: peers[0] }, peers)
    }

    /// Transfers streams between the addresses of each number, from each shard of the peer and back.
    fn transfer_on_all_circuits(&mut self, peers: &[BoardNumber]) {
        let arrived = Arrived::default();
        for board in self.shards.iter().chain(peers) {
            self.world.run_program(*board, Box::new(Receiver::new(PORT, usize::MAX, sinks(&arrived))));
        }
        self.world.settle(at(5));
        let mut seeds = 0..;
        for (boards, own, other) in
            [(peers, far as fn(usize) -> IpAddr, near as fn(usize) -> IpAddr), (&self.shards, near, far)]
        {
            for board in boards {
                for number in 0..SHARDS {
                    let ends = (Some(SocketAddr::new(own(number), 0)), SocketAddr::new(other(number), PORT));
                    let streams = sources(seeds.by_ref().take(4));
                    let streams =
                        streams.into_iter().map(|(length, source)| (ends, length, source)).collect();
                    self.world.run_program(*board, Box::new(Sender::between(streams)));
                }
            }
        }
        self.world.run(at(120));
        check_all(&arrived, 0..seeds.start);
        assert_eq!(self.sum("tcp", "resets_out"), 0);
        assert_eq!(self.sum("port", "queue_full"), 0);
        for name in ["retransmits", "out_of_order"] {
            assert_eq!(self.sum("tcp", name), 0, "{name}");
        }
        for name in ["frames_crc_wrong", "frames_length_wrong", "cells_unknown_circuit"] {
            assert_eq!(self.sum("reassembly", name), 0, "{name}");
        }
    }

    fn counter(&self, shard: usize, family: &str, name: &str) -> u64 {
        self.world.board(self.shards[shard]).counter(family, name)
    }

    /// Returns one counter, summed over the shards.
    fn sum(&self, family: &str, name: &str) -> u64 {
        (0..SHARDS).map(|shard| self.counter(shard, family, name)).sum()
    }
}

fn noise(seed: u64) -> Vec<u8> {
    let mut rng = SimRng::from_seed(seed);
    (0..BYTES).map(|_| rng.draw() as u8).collect()
}

fn sources(seeds: impl Iterator<Item = u64>) -> Vec<(u64, Source)> {
    let source = |seed| {
        let bytes = noise(seed);
        let give = move |offset: u64, into: &mut [u8]| {
            into.copy_from_slice(&bytes[offset as usize..offset as usize + into.len()]);
        };
        (BYTES as u64, Box::new(give) as Source)
    };
    seeds.map(source).collect()
}

/// All streams received.
type Arrived = Rc<RefCell<Vec<Vec<u8>>>>;

fn sinks(arrived: &Arrived) -> Box<dyn FnMut(usize) -> Sink> {
    let arrived = arrived.clone();
    Box::new(move |_| {
        let at = arrived.borrow().len();
        arrived.borrow_mut().push(Vec::new());
        let arrived = arrived.clone();
        Box::new(move |_, bytes| arrived.borrow_mut()[at].extend_from_slice(bytes))
    })
}

/// Checks that each of these streams has arrived once and intact.
fn check_all(arrived: &Arrived, seeds: impl Iterator<Item = u64>) {
    let mut expected: Vec<Vec<u8>> = seeds.map(noise).collect();
    expected.sort();
    let mut arrived = arrived.borrow().clone();
    arrived.sort();
    assert_eq!(arrived.len(), expected.len());
    assert!(arrived == expected, "the streams are intact");
}

/// Streams from the peer to listeners on all shards.
fn listeners_on_all_shards(config: fn(usize) -> BoardConfig, server: IpAddr) -> Pair {
    let mut pair = Pair::new(config);
    let arrived = Arrived::default();
    for shard in pair.shards.clone() {
        // How many streams a shard gets depends on the hash, so none of these programs is ever done.
        pair.world.run_program(shard, Box::new(Receiver::new(PORT, usize::MAX, sinks(&arrived))));
    }
    // IPv6 addresses are usable after duplicate address detection.
    pair.world.settle(at(5));
    let remote = SocketAddr::new(server, PORT);
    pair.world.run_program(pair.peer, Box::new(Sender::new(remote, sources(0..STREAMS as u64))));
    pair.world.run(at(60));
    check_all(&arrived, 0..STREAMS as u64);
    pair
}

#[test]
fn every_shard_serves_the_flows_of_a_common_listener() {
    for (config, server) in [(ip as fn(usize) -> BoardConfig, v4(0)), (ethernet, v4(0)), (ethernet, v6(0))] {
        let pair = listeners_on_all_shards(config, server);
        for shard in 0..SHARDS {
            assert!(pair.counter(shard, "tcp", "syns_in") > 0, "shard {shard} has streams");
            assert!(pair.counter(shard, "shard", "handed_on") > 0, "shard {shard} hands on");
            assert!(pair.counter(shard, "shard", "handed_in") > 0, "shard {shard} is handed packets");
        }
        assert_eq!(pair.sum("tcp", "syns_in"), STREAMS as u64);
        assert_eq!(pair.sum("tcp", "resets_out"), 0);
        let handed_on = pair.sum("shard", "handed_on") + pair.sum("shard", "handed_to_first");
        assert_eq!(pair.sum("shard", "handed_in"), handed_on + pair.sum("shard", "unexpected"));
    }
}

#[test]
fn a_neighbour_that_shard_0_has_resolved_serves_all_shards() {
    let mut pair = Pair::new(ethernet);
    let arrived = Arrived::default();
    for shard in pair.shards.clone() {
        pair.world.run_program(shard, Box::new(Receiver::new(PORT, usize::MAX, sinks(&arrived))));
    }
    let receiver = Receiver::new(PORT, usize::MAX, sinks(&arrived));
    pair.world.run_program(pair.peer, Box::new(receiver));
    // The last shard opens streams before any other shard has talked to the peer.
    let opened = Sender::new(SocketAddr::new(v4(1), PORT), sources(0..3));
    pair.world.run_program(pair.shards[SHARDS - 1], Box::new(opened));
    pair.world.run(at(60));
    check_all(&arrived, 0..3);
    assert_eq!(pair.counter(0, "ethernet", "arp_requests_out"), 1);
    assert!(pair.counter(SHARDS - 1, "shard", "messages_out") > 0, "it has asked shard 0");
    for shard in 1..SHARDS {
        for name in ["arp_requests_out", "arp_replies_out", "arp_announced", "solicitations_out"] {
            assert_eq!(pair.counter(shard, "ethernet", name), 0, "{name} of shard {shard}");
        }
    }
    // A neighbour that no shard has resolved for 60 s is still the same one.
    let again = Sender::new(SocketAddr::new(v4(1), PORT), sources(10..12));
    pair.world.run_program(pair.shards[1], Box::new(again));
    pair.world.settle(at(180));
    check_all(&arrived, (0..3).chain(10..12));
}

#[test]
fn a_connection_that_a_shard_opens_comes_back_to_it() {
    let mut pair = Pair::new(ip);
    let arrived = Arrived::default();
    pair.world.run_program(pair.peer, Box::new(Receiver::new(PORT, usize::MAX, sinks(&arrived))));
    for (number, shard) in pair.shards.clone().into_iter().enumerate() {
        let seeds = 8 * number as u64..8 * (number as u64 + 1);
        pair.world.run_program(shard, Box::new(Sender::new(SocketAddr::new(v4(1), PORT), sources(seeds))));
    }
    pair.world.run(at(60));
    check_all(&arrived, 0..8 * SHARDS as u64);
    assert_eq!(pair.sum("shard", "unexpected"), 0);
    let steering = pair.world.board(pair.shards[0]).steering().expect("it is divided");
    for (number, shard) in pair.shards.iter().enumerate() {
        let locals = pair.world.program::<Sender>(*shard).expect("it runs").locals();
        for local in locals.into_iter().map(|local| local.expect("it was opened")) {
            assert_eq!(steering.of_flow(local, SocketAddr::new(v4(1), PORT)), number);
        }
    }
}

#[test]
fn shard_0_serves_what_the_other_shards_do_not_expect() {
    let mut pair = Pair::new(ip);
    let arrived = Arrived::default();
    // The only listener is on shard 0, and connections from a given port begin there, whatever their hash.
    pair.world.run_program(pair.shards[0], Box::new(Receiver::new(PORT, usize::MAX, sinks(&arrived))));
    pair.world.run_program(pair.peer, Box::new(Receiver::new(PORT, usize::MAX, sinks(&arrived))));
    let seeds = 100..100 + STREAMS as u64;
    pair.world
        .run_program(pair.peer, Box::new(Sender::new(SocketAddr::new(v4(0), PORT), sources(seeds.clone()))));
    let ends = (0..8).map(|n| (Some(SocketAddr::new(v4(0), 2000 + n)), SocketAddr::new(v4(1), PORT)));
    let opened = ends.zip(sources(200..208)).map(|(ends, (length, source))| (ends, length, source)).collect();
    pair.world.run_program(pair.shards[0], Box::new(Sender::between(opened)));
    pair.world.run(at(60));
    check_all(&arrived, seeds.chain(200..208));
    assert!(pair.sum("shard", "unexpected") > 0);
    for shard in 1..SHARDS {
        assert_eq!(pair.counter(shard, "tcp", "segments_in"), 0, "shard {shard} has no session");
    }
    assert_eq!(pair.sum("tcp", "resets_out"), 0);
}

#[test]
fn a_closed_port_is_answered_with_one_reset() {
    let mut pair = Pair::new(ip);
    pair.world
        .run_program(pair.peer, Box::new(Sender::new(SocketAddr::new(v4(0), 9), sources(0..STREAMS as u64))));
    assert!(pair.world.run(at(60)), "all streams are refused");
    assert_eq!(pair.sum("tcp", "resets_out"), STREAMS as u64);
    assert_eq!(pair.counter(0, "tcp", "resets_out"), STREAMS as u64);
}

#[test]
fn all_shards_send_through_the_atm_line_of_shard_0() {
    let mut pair = Pair::new(atm);
    let arrived = Arrived::default();
    for board in pair.shards.clone().into_iter().chain([pair.peer]) {
        pair.world.run_program(board, Box::new(Receiver::new(PORT, usize::MAX, sinks(&arrived))));
    }
    pair.world.settle(at(5));
    let remote = SocketAddr::new(v4(0), PORT);
    pair.world.run_program(pair.peer, Box::new(Sender::new(remote, sources(0..STREAMS as u64))));
    for (number, shard) in pair.shards.clone().into_iter().enumerate() {
        let seeds = 100 + 8 * number as u64..100 + 8 * (number as u64 + 1);
        pair.world.run_program(shard, Box::new(Sender::new(SocketAddr::new(v4(1), PORT), sources(seeds))));
    }
    pair.world.run(at(60));
    check_all(&arrived, (0..STREAMS as u64).chain(100..100 + 8 * SHARDS as u64));
    for shard in 1..SHARDS {
        assert!(pair.counter(shard, "tcp", "syns_in") > 0, "shard {shard} has streams from the peer");
        assert!(pair.counter(shard, "shard", "to_line") > 0, "shard {shard} sends through shard 0");
        assert_eq!(pair.counter(shard, "inarp", "requests_out"), 0, "shard {shard} does not ask");
    }
    // The credits hold the sessions back before a queue is full.
    assert_eq!(pair.sum("port", "queue_full"), 0);
    assert_eq!(pair.sum("tcp", "resets_out"), 0);
    assert_eq!(pair.sum("shard", "handed_in"), pair.sum("shard", "handed_on"));
}

/// The peak rate at which the line of an OC-3c has slots for all circuits.
const PEAK: u64 = 353_207 / SHARDS as u64;

#[test]
fn each_shard_reassembles_and_sends_the_cells_of_its_circuits() {
    let (mut pair, peers) = Pair::by_circuit(Some(PEAK), true);
    pair.transfer_on_all_circuits(&peers);
    for shard in 0..SHARDS {
        assert!(pair.counter(shard, "reassembly", "frames_in") > 0, "shard {shard} reassembles");
        assert!(pair.counter(shard, "segmentation", "frames_out") > 0, "shard {shard} sends");
        assert!(pair.counter(shard, "shard", "to_line") > 0, "shard {shard} has flows on other circuits");
    }
    // Each board sends a circuit's cells through the socket of its shard.
    assert_eq!(pair.sum("shard", "cells_handed_on"), 0);
}

#[test]
fn cells_that_arrive_at_another_shard_are_handed_on_in_order() {
    // The undivided peer mixes all circuits on its line, which shard 0 receives.
    let (mut pair, peers) = Pair::by_circuit(None, false);
    pair.transfer_on_all_circuits(&peers);
    for shard in 0..SHARDS {
        assert!(pair.counter(shard, "reassembly", "frames_in") > 0, "shard {shard} reassembles");
        // Without peak rates, shard 0 schedules all circuits.
        assert_eq!(pair.counter(shard, "segmentation", "frames_out") > 0, shard == 0);
        assert_eq!(pair.counter(shard, "shard", "cells_handed_in") > 0, shard != 0);
    }
    assert_eq!(pair.sum("shard", "cells_handed_in"), pair.counter(0, "shard", "cells_handed_on"));
    assert_eq!(pair.sum("shard", "cells_dropped"), 0);
    let line = pair.world.board(peers[0]).counter("segmentation", "cells_out");
    assert_eq!(pair.sum("reassembly", "cells_in"), line, "each cell is counted once");
}
