//! Simulations of boards with packet ports joined by cables: connecting, transfer, impairments, taps.

use kiban_atm::wire::atm::{Interface, Vc};
use kiban_atm::{FABRIC_DELAY, Interval, OC3C_BITS_PER_SECOND, Switch, SwitchPort};
use kiban_base::ethernet::Mac;
use kiban_base::{Instant, SimRng};
use kiban_board::{
    AtmPortConfig, BoardConfig, BridgePortConfig, BridgedCircuit, CircuitConfig, EthernetPortConfig,
    HostError, IpPortConfig, MemoryConfig, PortConfig,
};
use kiban_capture as capture;
use kiban_sim::cost::BOARD_1995;
use kiban_sim::program::{Receiver, Sender, Sink, Source};
use kiban_sim::{
    AttachError, Attachment, BoardNumber, CableConfig, CableNumber, EcnConfig, ImpairmentConfig,
    ImpairmentCounters, PortKind, Tap, World, check,
};
use kiban_tcpip::ethernet::LinkConfig;
use kiban_tcpip::ip::Prefix;
use kiban_tcpip::tcp::{self, Ecn};
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

const MILLISECOND: Duration = Duration::from_millis(1);

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

/// Returns a side's address in the IPv4 network with the number `net`.
fn v4(net: u8, side: usize) -> IpAddr {
    IpAddr::from([10, 0, net, 1 + side as u8])
}

fn v6(net: u16, side: usize) -> IpAddr {
    IpAddr::from([0x2001, 0xdb8, net, 0, 0, 0, 0, 1 + side as u16])
}

fn net_of(address: IpAddr) -> (IpAddr, Prefix) {
    (address, Prefix::new(address, if address.is_ipv4() { 24 } else { 64 }))
}

fn ip(address: IpAddr) -> PortConfig {
    PortConfig::Ip(IpPortConfig {
        address,
        prefix: net_of(address).1,
        mtu_bytes: 1500,
        packets_max: 256,
        cuts: false,
        merges: true,
        believe_sums: false,
    })
}

fn ethernet(side: usize, addresses: &[IpAddr]) -> PortConfig {
    let mut link = LinkConfig::new(Mac([2, 0, 0, 0, 0, side as u8]));
    link.addresses.extend(addresses.iter().map(|address| net_of(*address)));
    PortConfig::Ethernet(EthernetPortConfig::on(link))
}

fn add(world: &mut World, ports: Vec<PortConfig>) -> BoardNumber {
    world.add_board(&BoardConfig { ports, ..BoardConfig::default() })
}

/// Like `add`, but with little memory, for tests that make hundreds of worlds.
fn add_small(world: &mut World, ports: Vec<PortConfig>) -> BoardNumber {
    let memory =
        MemoryConfig { page_bytes: 4096, transmit_bytes: 1 << 20, receive_bytes: 1 << 20, pdus: 512 };
    world.add_board(&BoardConfig { memory, ports, ..BoardConfig::default() })
}

fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut rng = SimRng::from_seed(seed);
    (0..bytes).map(|_| rng.draw() as u8).collect()
}

type Arrived = Rc<RefCell<Vec<u8>>>;

/// Sends `bytes` from one board to `remote` at another.
fn send(world: &mut World, from: BoardNumber, to: BoardNumber, remote: SocketAddr, bytes: &[u8]) -> Arrived {
    let arrived = Arrived::default();
    let place = arrived.clone();
    let make = move |_| -> Sink {
        let place = place.clone();
        Box::new(move |_, bytes| place.borrow_mut().extend_from_slice(bytes))
    };
    let (length, bytes) = (bytes.len() as u64, bytes.to_vec());
    let source: Source =
        Box::new(move |at, buffer| buffer.copy_from_slice(&bytes[at as usize..at as usize + buffer.len()]));
    world.run_program(to, Box::new(Receiver::new(remote.port(), 1, Box::new(make))));
    world.run_program(from, Box::new(Sender::new(remote, vec![(length, source)])));
    arrived
}

/// Puts a tap on a cable; returns the file that it writes.
fn tap(world: &mut World, cable: CableNumber) -> Arrived {
    let file = Arrived::default();
    let place = file.clone();
    world
        .cable(cable)
        .set_tap(Tap::new(0, Box::new(move |bytes| place.borrow_mut().extend_from_slice(bytes))));
    file
}

/// Returns two boards with an IP port each, and a cable between them.
fn pair(seed: u64, config: &CableConfig) -> (World, [BoardNumber; 2], [CableNumber; 2]) {
    let mut world = World::new(seed);
    let boards = [0, 1].map(|side| add(&mut world, vec![ip(v4(0, side))]));
    let (there, back) = world
        .connect_packets(Attachment::Board(boards[0], 0), Attachment::Board(boards[1], 0), config)
        .unwrap();
    (world, boards, [there, back])
}

#[test]
fn packets_and_frames_of_both_families_cross_one_world() {
    let mut world = World::new(1);
    let boards = [0, 1].map(|side| {
        let both = [v4(2, side), v6(2, side)];
        add(&mut world, vec![ip(v4(0, side)), ip(v6(1, side)), ethernet(side, &both)])
    });
    let gigabit = CableConfig::ip(1_000_000_000, MILLISECOND);
    let configs = [gigabit, gigabit, CableConfig::ethernet(100_000_000, MILLISECOND)];
    let mut cables = Vec::new();
    for (port, config) in configs.iter().enumerate() {
        let plugs = boards.map(|board| Attachment::Board(board, port));
        cables.push(world.connect_packets(plugs[0], plugs[1], config).unwrap().0);
    }
    let files: Vec<_> = cables.iter().map(|cable| tap(&mut world, *cable)).collect();
    world.settle(at(5));
    for board in boards {
        assert_eq!(world.board(board).addresses().count(), 5, "four that were given, and the link's own");
    }

    // Streams run in both directions over each cable, all at the same time.
    let mut streams = Vec::new();
    for (number, address) in [v4, v6_of].iter().flat_map(|of| [0, 1, 2].map(|net| (net, *of))).enumerate() {
        let (net, of) = address;
        // The first port has IPv4 only, the second IPv6 only.
        if (net, number < 3) == (0, false) || (net, number < 3) == (1, true) {
            continue;
        }
        for to in [0, 1] {
            let bytes = noise(300_000, number as u64);
            let remote = SocketAddr::new(of(net, to), 5000 + number as u16);
            streams.push((send(&mut world, boards[1 - to], boards[to], remote, &bytes), bytes));
        }
    }
    assert_eq!(streams.len(), 8);
    assert!(world.run(at(600)), "{world:?}");
    for (number, (arrived, sent)) in streams.iter().enumerate() {
        assert_eq!(check::stream(number, sent, &arrived.borrow()), []);
    }
    assert_eq!(check::check_idle(&mut world, &boards), []);
    assert_eq!(boards.map(|board| world.unattached_packets(board)), [0; 2]);

    // Read the packets that the taps recorded, in order of time.
    let raw = capture::LINK_TYPE_RAW;
    let kinds = [(raw, 4), (raw, 6), (capture::LINK_TYPE_ETHERNET, 0)];
    for ((cable, file), (link_type, version)) in cables.iter().zip(&files).zip(kinds) {
        let file = file.borrow();
        let (header, _) = capture::FileHeader::read(&file).unwrap();
        assert_eq!(header.link_type, link_type);
        let records: Vec<_> = header.records(&file).map(|record| record.unwrap()).collect();
        assert!(records.is_sorted_by_key(|(record, _)| record.nanoseconds));
        assert_eq!(records.len() as u64, world.cable(*cable).counters().packets);
        assert!(records.len() > 200);
        if version != 0 {
            assert!(records.iter().all(|(_, packet)| packet[0] >> 4 == version));
            continue;
        }
        // ARP and neighbour discovery were used: check the EtherTypes, and ICMPv6 types 135 and 136 (RFC 4861
        // §4.3).
        let of_type = |bytes: [u8; 2]| records.iter().filter(|(_, frame)| frame[12..14] == bytes).count();
        assert!(of_type([0x08, 0x06]) > 0 && of_type([0x08, 0x00]) > 100 && of_type([0x86, 0xdd]) > 100);
        let icmp6 = |frame: &[u8]| frame[12..14] == [0x86, 0xdd] && frame[20] == 58;
        for kind in [135, 136] {
            assert!(records.iter().any(|(_, frame)| icmp6(frame) && frame[54] == kind), "type {kind}");
        }
    }
}

fn v6_of(net: u8, side: usize) -> IpAddr {
    v6(net.into(), side)
}

/// These impairments are a hundred times as frequent as those for cells, because a packet has as many bits as
/// thirty cells, and there are fewer packets.
fn impairment_of(seed: u64) -> ImpairmentConfig {
    let cells = ImpairmentConfig::from_seed(seed);
    ImpairmentConfig {
        loss: cells.loss * 100.0,
        bit_error: cells.bit_error * 50.0,
        duplicate: cells.duplicate * 100.0,
        reorder: cells.reorder * 30.0,
        hold_back: Duration::from_millis(3),
        stalls: cells.stalls * 200.0,
        ..cells
    }
}

#[test]
fn sixty_impaired_worlds_end_with_every_stream_intact() {
    let mut total = ImpairmentCounters::default();
    for seed in 0..60 {
        let config =
            CableConfig { impairment: impairment_of(seed), ..CableConfig::ip(50_000_000, 2 * MILLISECOND) };
        let (mut world, boards, cables) = pair(seed, &config);
        let bytes = noise(300_000, seed);
        let arrived = send(&mut world, boards[0], boards[1], SocketAddr::new(v4(0, 1), 5000), &bytes);
        assert!(world.run(at(3000)), "seed {seed}: {world:?}");
        assert_eq!(check::stream(0, &bytes, &arrived.borrow()), [], "seed {seed}");
        assert_eq!(check::check_idle(&mut world, &boards), [], "seed {seed}");
        let counters = *world.cable(cables[0]).impairment_counters();
        total.lost += counters.lost;
        total.corrupted += counters.corrupted;
        total.duplicated += counters.duplicated;
        total.reordered += counters.reordered;
        total.stalls += counters.stalls;
    }
    total.each(&mut |name, value| assert!(value > 5, "{name}: {value}"));
}

#[test]
fn the_same_seed_gives_the_same_capture_to_the_byte() {
    let run = |seed| {
        let mut world = World::new(seed);
        let boards = [0, 1].map(|side| add(&mut world, vec![ethernet(side, &[v6(0, side)])]));
        let config =
            CableConfig { impairment: impairment_of(3), ..CableConfig::ethernet(10_000_000, MILLISECOND) };
        let plugs = boards.map(|board| Attachment::Board(board, 0));
        let (there, _) = world.connect_packets(plugs[0], plugs[1], &config).unwrap();
        let file = tap(&mut world, there);
        world.settle(at(5));
        let arrived =
            send(&mut world, boards[0], boards[1], SocketAddr::new(v6(0, 1), 80), &noise(200_000, 7));
        assert!(world.run(at(3000)));
        assert_eq!(arrived.borrow().len(), 200_000);
        let file = file.borrow().clone();
        (world.now(), world.events(), file)
    };
    assert!(run(1) == run(1));
    assert!(run(1).2 != run(2).2);
}

#[test]
fn a_packet_takes_its_transmission_time_and_the_delay() {
    // Use a rate that does not divide a second evenly, without framing and with 24 bytes of Ethernet framing.
    let rate = 7_000_003;
    for (framing_bytes, delay) in [(0, Duration::ZERO), (24, 3 * MILLISECOND)] {
        let config = CableConfig { framing_bytes, ..CableConfig::ip(rate, delay) };
        let (mut world, boards, cables) = pair(1, &config);
        let file = tap(&mut world, cables[0]);
        let bytes = noise(100_000, 1);
        send(&mut world, boards[0], boards[1], SocketAddr::new(v4(0, 1), 80), &bytes);
        assert!(world.run(at(60)));
        let file = file.borrow();
        let (header, _) = capture::FileHeader::read(&file).unwrap();
        let records: Vec<_> = header.records(&file).map(|record| record.unwrap()).collect();
        // The first packet is sent at time 0.
        let bits = |bytes: usize| (bytes + framing_bytes) as u128 * 8;
        let first = bits(records[0].1.len()) * 1_000_000_000 / u128::from(rate) + delay.as_nanos();
        assert_eq!(u128::from(records[0].0.nanoseconds), first);
        // A run of full packets keeps the line busy, so rounding errors must not accumulate.
        let full = records.iter().map(|(_, packet)| packet.len()).max().unwrap();
        let runs = records.chunk_by(|one, next| {
            let apart = u128::from(next.0.nanoseconds - one.0.nanoseconds);
            next.1.len() == full && apart <= bits(full) * 1_000_000_000 / u128::from(rate) + 1
        });
        let run = runs.max_by_key(|run| run.len()).unwrap();
        assert!(run.len() > 20, "{}", run.len());
        let took = u128::from(run[run.len() - 1].0.nanoseconds - run[0].0.nanoseconds);
        let exact = bits(full) * (run.len() as u128 - 1) * 1_000_000_000 / u128::from(rate);
        assert!(took.abs_diff(exact) <= 1, "{took} ns, not {exact}");
    }
}

#[test]
fn a_queue_is_bounded_and_counts_its_drops() {
    for packets_max in [0, 3, 50] {
        let config = CableConfig { packets_max, ..CableConfig::ip(10_000_000, MILLISECOND) };
        let (mut world, boards, cables) = pair(1, &config);
        let file = tap(&mut world, cables[0]);
        // Two hundred datagrams are sent at the same time. One goes onto the line, `packets_max` wait, and
        // the others are dropped.
        let mut host = world.board_mut(boards[0]).host();
        let socket = host.bind(SocketAddr::new(v4(0, 0), 9)).unwrap();
        for _ in 0..200 {
            host.send_to(socket, SocketAddr::new(v4(0, 1), 9), &[0; 1000]).unwrap();
        }
        world.settle(at(60));
        let counters = *world.cable(cables[0]).counters();
        assert!(counters.packets > 100, "{counters:?}");
        let passed = counters.packets - counters.queue_full;
        assert_eq!(passed, 1 + packets_max as u64);
        let file = file.borrow();
        let (header, _) = capture::FileHeader::read(&file).unwrap();
        assert_eq!(header.records(&file).count() as u64, passed);
    }
}

#[test]
fn each_n_th_packet_is_lost() {
    let config = CableConfig {
        impairment: ImpairmentConfig { lose_every: 10, ..ImpairmentConfig::NONE },
        ..CableConfig::ip(100_000_000, MILLISECOND)
    };
    let (mut world, boards, cables) = pair(1, &config);
    let bytes = noise(500_000, 1);
    let arrived = send(&mut world, boards[0], boards[1], SocketAddr::new(v4(0, 1), 80), &bytes);
    assert!(world.run(at(600)));
    assert_eq!(*arrived.borrow(), bytes);
    for cable in cables {
        let packets = world.cable(cable).counters().packets;
        assert_eq!(world.cable(cable).impairment_counters().lost, packets / 10);
    }
    assert!(world.board(boards[0]).counter("tcp", "retransmits") > 30);
}

#[test]
fn a_middlebox_sees_every_packet_and_drops_some() {
    let (mut world, boards, cables) = pair(1, &CableConfig::ip(100_000_000, MILLISECOND));
    let seen = Rc::new(RefCell::new(Vec::new()));
    let sizes = seen.clone();
    world.cable(cables[0]).set_middlebox(Box::new(move |now, packet| {
        sizes.borrow_mut().push((now, packet.len()));
        sizes.borrow().len() % 50 != 0
    }));
    let bytes = noise(500_000, 1);
    let arrived = send(&mut world, boards[0], boards[1], SocketAddr::new(v4(0, 1), 80), &bytes);
    assert!(world.run(at(600)));
    assert_eq!(*arrived.borrow(), bytes);
    let counters = *world.cable(cables[0]).counters();
    let seen = seen.borrow();
    assert_eq!(counters.middlebox_dropped, seen.len() as u64 / 50);
    assert_eq!(counters.packets + counters.middlebox_dropped, seen.len() as u64);
    assert!(seen.is_sorted_by_key(|(now, _)| *now));
}

#[test]
fn a_queue_that_marks_packets_loses_none() {
    // The path holds 17 packets and the queue 60. Without ECN the queue overflows; if it marks packets, the
    // sender slows down before (RFC 3168), over bare IP and in frames.
    type Port = fn(usize) -> PortConfig;
    let ports: [(Port, IpAddr); 2] =
        [(|side| ip(v4(0, side)), v4(0, 1)), (|side| ethernet(side, &[v6(0, side)]), v6(0, 1))];
    for (port, target) in ports {
        for ecn in [Ecn::On, Ecn::Off] {
            let mut world = World::new(1);
            let boards = [0, 1].map(|side| {
                let tcp =
                    tcp::Config { ecn: if side == 0 { ecn } else { Ecn::Accept }, ..tcp::Config::default() };
                world.add_board(&BoardConfig { ports: vec![port(side)], tcp, ..BoardConfig::default() })
            });
            let config = CableConfig {
                packets_max: 60,
                ecn: Some(EcnConfig::step(15)),
                ..CableConfig::ip(20_000_000, 5 * MILLISECOND)
            };
            let ends = boards.map(|board| Attachment::Board(board, 0));
            let (there, _) = world.connect_packets(ends[0], ends[1], &config).unwrap();
            // The IPv6 addresses are checked for duplicates first.
            world.settle(at(5));
            let bytes = noise(3_000_000, 1);
            let arrived = send(&mut world, boards[0], boards[1], SocketAddr::new(target, 80), &bytes);
            assert!(world.run(at(600)), "{world:?}");
            assert_eq!(*arrived.borrow(), bytes);
            let counters = *world.cable(there).counters();
            let sender = world.board(boards[0]);
            let (reductions, retransmits) =
                (sender.counter("tcp", "ecn_reductions"), sender.counter("tcp", "retransmits"));
            let marked = world.board(boards[1]).counter("tcp", "ce_marked");
            if ecn == Ecn::On {
                assert_eq!((counters.queue_full, retransmits), (0, 0), "{counters:?}");
                assert!(counters.ce_marked > 0 && marked > 0 && reductions > 2, "{counters:?}, {reductions}");
            } else {
                assert!(counters.queue_full > 0 && retransmits > 0, "{counters:?}");
                assert_eq!((counters.ce_marked, marked, reductions), (0, 0, 0));
            }
        }
    }
}

#[test]
fn streams_continue_after_a_path_is_cut_and_restored() {
    let config = CableConfig::ip(8_000_000, MILLISECOND);
    let (mut world, boards, cables) = pair(1, &config);
    let bytes = noise(2_000_000, 1);
    let arrived = send(&mut world, boards[0], boards[1], SocketAddr::new(v4(0, 1), 80), &bytes);
    let dark = CableConfig { impairment: ImpairmentConfig { loss: 1.0, ..ImpairmentConfig::NONE }, ..config };
    assert!(!world.run(at(1)));
    cables.iter().for_each(|cable| world.cable(*cable).set_config(dark));
    // Packets in transit still arrive.
    assert!(!world.run(at(2)));
    let before = arrived.borrow().len();
    assert!(!world.run(at(10)));
    assert_eq!(arrived.borrow().len(), before);
    cables.iter().for_each(|cable| world.cable(*cable).set_config(config));
    assert!(world.run(at(600)));
    assert_eq!(*arrived.borrow(), bytes);
}

#[test]
fn a_receiver_without_memory_loses_packets_and_nothing_else() {
    let mut world = World::new(1);
    let config = CableConfig::ip(1_000_000_000, MILLISECOND);
    let boards = [0, 1].map(|side| {
        let pages = [2048, 12][side];
        let memory = MemoryConfig { receive_bytes: pages * 4096, ..MemoryConfig::default() };
        let ports = vec![ip(v4(0, side))];
        world.add_board(&BoardConfig { memory, ports, ..BoardConfig::default() })
    });
    let plugs = boards.map(|board| Attachment::Board(board, 0));
    let (there, _) = world.connect_packets(plugs[0], plugs[1], &config).unwrap();
    world.board_mut(boards[1]).memory_mut().receive.fail_nth_take(2);
    let bytes = noise(200_000, 1);
    let arrived = send(&mut world, boards[0], boards[1], SocketAddr::new(v4(0, 1), 80), &bytes);
    assert!(world.run(at(600)));
    assert_eq!(*arrived.borrow(), bytes);
    assert!(world.cable(there).counters().no_memory > 0);
    assert_eq!(check::check_idle(&mut world, &boards), []);
}

/// One board sends to the other through ports of one kind, while one memory allocation fails. Returns whether
/// the run reached that allocation.
fn check_refusal(port: impl Fn(usize) -> PortConfig, to: IpAddr, refusal: crate::refusal::Refusal) -> bool {
    let mut world = World::new(1);
    let boards = [0, 1].map(|side| add_small(&mut world, vec![port(side)]));
    let config = CableConfig::ethernet(1_000_000_000, MILLISECOND);
    world.connect_packets(Attachment::Board(boards[0], 0), Attachment::Board(boards[1], 0), &config).unwrap();
    refusal.arm(world.board_mut(boards[refusal.side]).memory_mut());
    // IPv6 addresses are usable only after duplicate address detection (RFC 4862 §5.4).
    world.settle(at(10));
    let bytes = noise(30_000, 1);
    let arrived = send(&mut world, boards[0], boards[1], SocketAddr::new(to, 80), &bytes);
    assert!(world.run(at(600)), "{refusal:?}: {world:?}");
    assert!(*arrived.borrow() == bytes, "{refusal:?}");
    assert_eq!(check::check_idle(&mut world, &boards), [], "{refusal:?}");
    refusal.has_happened(world.board_mut(boards[refusal.side]).memory_mut())
}

#[test]
fn an_allocation_failure_delays_packets_and_loses_no_byte() {
    for address in [|side| v4(0, side), |side| v6(0, side)] {
        crate::refusal::each(|refusal| check_refusal(|side| ip(address(side)), address(1), refusal));
    }
}

#[test]
fn an_allocation_failure_delays_frames_and_loses_no_byte() {
    for address in [|side| v4(0, side), |side| v6(0, side)] {
        crate::refusal::each(|refusal| {
            check_refusal(|side| ethernet(side, &[address(side)]), address(1), refusal)
        });
    }
}

/// Two stations are each cabled to a bridge, and the two bridges are joined by a circuit. Each bridge has a
/// second circuit without a peer, so that it copies the frames that it floods. In one bridge, the allocation
/// of a page or a block fails. Returns whether the run reached that allocation; `copies` counts frames that
/// could not be copied.
fn check_bridge_refusal(refusal: crate::refusal::Refusal, copies: &mut u64) -> bool {
    let mut world = World::new(1);
    let stations = [0, 1].map(|side| add_small(&mut world, vec![ethernet(side, &[v4(0, side)])]));
    let bridges = [0, 1].map(|side| {
        let nowhere = IpAddr::from([0; 4]);
        let mut atm = AtmPortConfig::oc3c(nowhere, Prefix::new(nowhere, 32));
        let circuit =
            |vci| CircuitConfig { peer: None, frames_max: 64, ..CircuitConfig::to(Vc::new(0, vci), nowhere) };
        atm.circuits = vec![circuit(100), circuit(101 + side)];
        let circuits = [0, 1].map(|circuit| BridgedCircuit { port: 0, circuit, with_fcs: false }).into();
        let bridge = BridgePortConfig { circuits, packets_max: 64 };
        add_small(&mut world, vec![PortConfig::Atm(atm), PortConfig::Bridge(bridge)])
    });
    let config = CableConfig::ethernet(100_000_000, MILLISECOND);
    for (station, bridge) in stations.into_iter().zip(bridges) {
        world.connect_packets(Attachment::Board(station, 0), Attachment::Board(bridge, 1), &config).unwrap();
    }
    let [one, other] = bridges.map(|bridge| Attachment::Board(bridge, 0));
    world.connect(one, other, 10.0, ImpairmentConfig::NONE).unwrap();
    refusal.arm(world.board_mut(bridges[refusal.side]).memory_mut());
    let bytes = noise(30_000, 1);
    let arrived = send(&mut world, stations[0], stations[1], SocketAddr::new(v4(0, 1), 80), &bytes);
    assert!(world.run(at(600)), "{refusal:?}: {world:?}");
    assert!(*arrived.borrow() == bytes, "{refusal:?}");
    let boards = [stations[0], stations[1], bridges[0], bridges[1]];
    assert_eq!(check::check_idle(&mut world, &boards), [], "{refusal:?}");
    *copies += world.board(bridges[refusal.side]).counter("bridge", "no_memory");
    refusal.has_happened(world.board_mut(bridges[refusal.side]).memory_mut())
}

#[test]
fn any_page_or_block_that_a_bridge_is_refused_delays_frames_and_loses_no_byte() {
    let mut copies = 0;
    crate::refusal::each(|refusal| check_bridge_refusal(refusal, &mut copies));
    assert!(copies > 0, "a copy of a flooded frame was never refused");
}

#[test]
fn a_modelled_processor_sets_the_pace_of_packets_too() {
    let seconds = |modelled: bool| {
        let config = CableConfig::ip(1_000_000_000, MILLISECOND);
        let (mut world, boards, _) = pair(1, &config);
        if modelled {
            boards.iter().for_each(|board| world.set_processor(*board, BOARD_1995, 1460));
        }
        let bytes = noise(1_460_000, 1);
        let arrived = send(&mut world, boards[0], boards[1], SocketAddr::new(v4(0, 1), 80), &bytes);
        assert!(world.run(at(600)));
        assert_eq!(*arrived.borrow(), bytes);
        let busy = world.processor_busy(boards[1]);
        let end = world.now();
        assert_eq!(check::check_idle(&mut world, &boards), []);
        (end.as_secs_f64(), busy.as_secs_f64())
    };
    // The receiver is the bottleneck: it handles a thousand segments at 459.5 us each.
    let (with, busy) = seconds(true);
    assert!((0.4595..0.7).contains(&busy), "{busy} s busy");
    assert!((busy..busy * 1.5).contains(&with), "{with} s, {busy} s of them busy");
    let (without, none) = seconds(false);
    assert!(without < 0.1 && none == 0.0, "{without} s");
}

#[test]
fn ports_that_do_not_match_are_rejected_with_the_reason() {
    let mut world = World::new(1);
    let atm = || {
        let (address, prefix) = net_of(v4(9, 0));
        PortConfig::Atm(AtmPortConfig::oc3c(address, prefix))
    };
    let ports = |side| vec![atm(), ip(v4(0, side)), ethernet(side, &[])];
    let [one, other] = [0, 1].map(|side| add(&mut world, ports(side)));
    let port = SwitchPort::plain(Interval::of_line(OC3C_BITS_PER_SECOND), Interface::Uni, 100);
    let switch = Attachment::Switch(world.add_switch(Switch::new(&[port; 2], FABRIC_DELAY)), 0);
    let plug = |board, port| Attachment::Board(board, port);
    let config = CableConfig::ip(1_000_000, MILLISECOND);
    use PortKind::{Cells, Frames, Packets};

    type Row = (Attachment, Attachment, AttachError, &'static str);
    let differ = |one, kind, other, its| (one, other, AttachError::Differ(one, kind, other, its));
    let both = [
        (
            differ(plug(one, 0), Cells, plug(other, 1), Packets),
            "carries cells, but port 1 of board 1 carries IP packets",
        ),
        (differ(plug(one, 2), Frames, plug(other, 1), Packets), "port 2 of board 0 carries Ethernet frames"),
        (differ(plug(one, 2), Frames, switch, Cells), "port 0 of switch 0 carries cells"),
        ((plug(one, 3), plug(other, 1), AttachError::NoSuchPort(plug(one, 3))), "no port 3 of board 0"),
        (
            (plug(one, 1), plug(one, 1), AttachError::Taken(plug(one, 1))),
            "port 1 of board 0 is already connected",
        ),
    ];
    let both: Vec<Row> = both.map(|((one, other, why), text)| (one, other, why, text)).into();
    for (one, other, why, text) in both {
        let found = world.connect(one, other, 1.0, ImpairmentConfig::NONE).unwrap_err();
        assert_eq!(found, why);
        assert_eq!(world.connect_packets(one, other, &config).unwrap_err(), why);
        assert!(found.to_string().contains(text), "{found}");
    }
    let found = world.connect(plug(one, 1), plug(other, 1), 1.0, ImpairmentConfig::NONE).unwrap_err();
    assert_eq!(found, AttachError::NotCells(plug(one, 1), Packets));
    assert!(found.to_string().contains("World::connect_packets"), "{found}");
    let found = world.connect_packets(plug(one, 0), switch, &config).unwrap_err();
    assert_eq!(found, AttachError::NotPackets(plug(one, 0)));

    // A failed call changes nothing: ports that match can still be connected afterwards, but only once.
    world.connect(plug(one, 0), switch, 1.0, ImpairmentConfig::NONE).unwrap();
    world.connect_packets(plug(one, 1), plug(other, 1), &config).unwrap();
    let again = world.connect_packets(plug(other, 1), plug(one, 1), &config).unwrap_err();
    assert_eq!(again, AttachError::Taken(plug(other, 1)));
    let again = world.connect(plug(other, 0), switch, 1.0, ImpairmentConfig::NONE).unwrap_err();
    assert_eq!(again, AttachError::Taken(switch));
}

#[test]
fn packets_through_a_port_without_a_cable_are_counted() {
    let mut world = World::new(1);
    let board = add(&mut world, vec![ip(v4(0, 0))]);
    let bytes = noise(1000, 1);
    send(&mut world, board, board, SocketAddr::new(v4(0, 1), 80), &bytes);
    assert!(!world.run(at(5)));
    assert!(world.unattached_packets(board) > 1, "the SYN, and again");
    let elsewhere = SocketAddr::new(v4(7, 1), 80);
    assert_eq!(world.board_mut(board).host().open(elsewhere), Err(HostError::NoRoute));
}
