//! Host ports: two hosts with their own IP stacks communicate over ATM circuits of their boards.
//!
//! Here the hosts are boards with an IP port each, where an operating system would have a TUN device.

use kiban_atm::wire::atm::Vc;
use kiban_base::{Instant, SimRng};
use kiban_board::{
    AtmPortConfig, BoardConfig, CircuitConfig, Completion, Host, HostPortConfig, IpPortConfig, MemoryConfig,
    PortAddress, PortConfig, Program,
};
use kiban_sim::program::{Receiver, Sender, Sink, Source};
use kiban_sim::{Attachment, BoardNumber, CableConfig, ImpairmentConfig, World, check};
use kiban_tcpip::ip::Prefix;
use std::any::Any;
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

const MEMORY: MemoryConfig =
    MemoryConfig { page_bytes: 4096, transmit_bytes: 1 << 20, receive_bytes: 8 << 20, pdus: 2048 };

fn address(host: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, host])
}

fn net() -> Prefix {
    Prefix::new(address(0), 24)
}

/// Returns a board that stands for a host's operating system: an IP stack behind an interface.
fn host(world: &mut World, number: u8) -> BoardNumber {
    let port = IpPortConfig {
        address: address(number),
        prefix: net(),
        mtu_bytes: 9180,
        packets_max: 256,
        cuts: false,
        merges: false,
        believe_sums: false,
    };
    world.add_board(&BoardConfig {
        memory: MEMORY,
        ports: vec![PortConfig::Ip(port)],
        ..BoardConfig::default()
    })
}

/// Returns a board that acts as a host's network card. It has a host port, a circuit whose peer InATMARP
/// resolves, and an address of its own.
fn card(world: &mut World, number: u8) -> BoardNumber {
    let mut port = AtmPortConfig::oc3c(address(number), net());
    let circuit = CircuitConfig::to(Vc::new(0, 100), address(0));
    port.circuits.push(CircuitConfig { peer: None, frames_max: 256, ..circuit });
    let own = PortAddress {
        port: 0,
        address: address(100 + number),
        prefix: Prefix::new(address(100 + number), 32),
    };
    world.add_board(&BoardConfig {
        memory: MEMORY,
        ports: vec![PortConfig::Atm(port), PortConfig::Host(HostPortConfig { of: 0, packets_max: 256 })],
        addresses: vec![own],
        ..BoardConfig::default()
    })
}

/// Returns two hosts, their two cards, and a line between the cards.
fn world() -> (World, [BoardNumber; 2], [BoardNumber; 2]) {
    let mut world = World::new(3);
    let hosts = [1, 2].map(|number| host(&mut world, number));
    let cards = [1, 2].map(|number| card(&mut world, number));
    for (host, card) in hosts.into_iter().zip(cards) {
        let cable = CableConfig::ip(10_000_000_000, Duration::from_micros(1));
        world
            .connect_packets(Attachment::Board(host, 0), Attachment::Board(card, 1), &cable)
            .expect("both take packets");
    }
    let [one, other] = cards.map(|card| Attachment::Board(card, 0));
    world.connect(one, other, 10.0, ImpairmentConfig::NONE).expect("both take cells");
    (world, hosts, cards)
}

/// Sends bytes from the first host to the second; returns the bytes that have arrived after `time`.
fn transfer(world: &mut World, hosts: [BoardNumber; 2], bytes: &[u8], time: Duration) -> Vec<u8> {
    let arrived = Rc::new(RefCell::new(Vec::new()));
    let place = arrived.clone();
    let make = move |_| -> Sink {
        let place = place.clone();
        Box::new(move |_, bytes| place.borrow_mut().extend_from_slice(bytes))
    };
    world.run_program(hosts[1], Box::new(Receiver::new(80, 1, Box::new(make))));
    // InATMARP resolves the circuit's peer first (RFC 2225 §8.1); packets sent before that are lost and
    // retransmitted.
    let sent = bytes.to_vec();
    let source: Source =
        Box::new(move |at, buffer| buffer.copy_from_slice(&sent[at as usize..][..buffer.len()]));
    let remote = SocketAddr::new(address(2), 80);
    world.run_program(hosts[0], Box::new(Sender::new(remote, vec![(bytes.len() as u64, source)])));
    assert!(world.run(Instant::ZERO + time), "{world:?}");
    world.settle(Instant::ZERO + time + Duration::from_secs(300));
    arrived.take()
}

fn noise(length: usize) -> Vec<u8> {
    let mut chance = SimRng::from_seed(5);
    (0..length).map(|_| chance.draw() as u8).collect()
}

#[test]
fn hosts_reach_each_other_over_the_circuits_of_their_boards() {
    let (mut world, hosts, cards) = world();
    let bytes = noise(3_000_000);
    assert!(transfer(&mut world, hosts, &bytes, Duration::from_secs(30)) == bytes);
    for card in cards {
        let passed = world.board(card).counter("port", "host_packets");
        assert!(passed > 500, "{passed}");
        assert_eq!(world.board(card).counter("ip", "packets_in"), 0, "nothing was for the board itself");
    }
    assert_eq!(check::check_idle(&mut world, &[hosts[0], hosts[1], cards[0], cards[1]]), []);
}

#[test]
fn any_page_or_block_that_a_card_is_refused_delays_its_host_and_loses_nothing() {
    let bytes = noise(100_000);
    crate::refusal::each(|refusal| {
        let (mut world, hosts, cards) = world();
        refusal.arm(world.board_mut(cards[refusal.side]).memory_mut());
        let arrived = transfer(&mut world, hosts, &bytes, Duration::from_secs(600));
        assert!(arrived == bytes, "{refusal:?}: {}", arrived.len());
        assert_eq!(
            check::check_idle(&mut world, &[hosts[0], hosts[1], cards[0], cards[1]]),
            [],
            "{refusal:?}"
        );
        refusal.has_happened(world.board_mut(cards[refusal.side]).memory_mut())
    });
}

/// Sends a ping at the start, and then periodically.
struct Pinger {
    targets: Vec<IpAddr>,
    answered: Vec<IpAddr>,
}

impl Program for Pinger {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        for target in &self.targets {
            host.ping(*target, 1, 1, &[7; 5000]).expect("there is a way");
        }
    }

    fn on_completion(&mut self, completion: Completion, _: &mut Host<'_>, _: Instant) {
        if let Completion::EchoReply { source, bytes, .. } = completion {
            assert_eq!(bytes, 5000);
            self.answered.push(source);
        }
    }

    fn is_done(&self) -> bool {
        self.answered.len() == self.targets.len()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[test]
fn a_board_has_addresses_beside_the_hosts() {
    let (mut world, hosts, cards) = world();
    // Within a second, InATMARP has resolved the peer.
    assert!(world.run(Instant::ZERO + Duration::from_secs(1)), "nobody has anything to do");
    let pinger = Pinger { targets: vec![address(101), address(2)], answered: Vec::new() };
    world.run_program(hosts[0], Box::new(pinger));
    assert!(world.run(Instant::ZERO + Duration::from_secs(5)), "its own board, and the other host");
    let answered = &world.program::<Pinger>(hosts[0]).expect("it runs").answered;
    assert!(answered.contains(&address(101)) && answered.contains(&address(2)), "{answered:?}");
    // A packet to the broadcast address is dropped and counted, like one without a route.
    let pinger = Pinger { targets: vec![IpAddr::from([10, 0, 0, 255])], answered: Vec::new() };
    world.run_program(hosts[0], Box::new(pinger));
    assert!(!world.run(Instant::ZERO + Duration::from_secs(10)));
    assert_eq!(world.board(cards[0]).counter("port", "no_route"), 1);
}
