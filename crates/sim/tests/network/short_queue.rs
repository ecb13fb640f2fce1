//! A switch whose queue holds hardly more than one long segment, like that of an emulator which reads one
//! cell per datagram from a UDP socket of default size.

use kiban_atm::wire::atm::{Interface, Vc};
use kiban_atm::{ConnectionId, Contract, FABRIC_DELAY, Interval, Route, Switch, SwitchPort};
use kiban_base::Instant;
use kiban_board::{AtmPortConfig, BoardConfig, CircuitConfig, PortConfig};
use kiban_sim::program::{Receiver, Sender, Source};
use kiban_sim::{Attachment, ImpairmentConfig, World};
use kiban_tcpip::tcp;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The rate of the switch, cells per second.
const RATE: u64 = 100_000;
/// A socket of 212,992 bytes holds 277 datagrams, to which the system adds 768 bytes each. A segment of 9140
/// bytes has 192 cells.
const QUEUE_CELLS: usize = 277;
const SECONDS: u64 = 5;

/// Sends over OC-3c lines and this switch, shaped to a contract if there is one. Returns the throughput,
/// bit/s.
fn throughput(contract: Option<Contract>) -> u64 {
    let vc = Vc::new(0, 100);
    let address = |host: u8| IpAddr::from([10, 0, 0, host]);
    let mut world = World::new(1);
    let boards = [(1, 2), (2, 1)].map(|(own, peer)| {
        let mut port = AtmPortConfig::oc3c(address(own), "10.0.0.0/24".parse().expect("a prefix"));
        port.circuits = vec![CircuitConfig { contract, ..CircuitConfig::to(vc, address(peer)) }];
        // As `kiban up` configures it.
        let tcp =
            tcp::Config { mss: 9140, segment_bytes_max: 9140, autotune: true, ..tcp::Config::default() };
        world.add_board(&BoardConfig { ports: vec![PortConfig::Atm(port)], tcp, ..BoardConfig::default() })
    });
    let port = SwitchPort::plain(Interval::per_second(RATE), Interface::Uni, QUEUE_CELLS);
    let mut switch = Switch::new(&[port; 2], FABRIC_DELAY);
    let name = ConnectionId::Circuit(vc);
    for (from, to) in [(0, 1), (1, 0)] {
        switch.add(Route::plain(from, name, to, name, QUEUE_CELLS)).expect("the table has room");
    }
    let switch = world.add_switch(switch);
    for (side, board) in boards.into_iter().enumerate() {
        let ends = (Attachment::Board(board, 0), Attachment::Switch(switch, side));
        world.connect(ends.0, ends.1, 10.0, ImpairmentConfig::NONE).expect("both carry cells");
    }
    world.run_program(boards[1], Box::new(Receiver::new(80, 1, Box::new(|_| Box::new(|_, _| {})))));
    let source: Source = Box::new(|_, buffer| buffer.fill(1));
    let remote = SocketAddr::new(address(2), 80);
    world.run_program(boards[0], Box::new(Sender::new(remote, vec![(1_000_000_000, source)])));
    assert!(!world.run(Instant::ZERO + Duration::from_secs(SECONDS)), "this takes minutes");
    let receiver = world.program::<Receiver>(boards[1]).expect("it was given");
    receiver.received().first().map_or(0, |stream| stream.bytes * 8 / SECONDS)
}

#[test]
fn a_stream_through_a_queue_of_277_cells_reaches_half_of_the_rate_of_a_shaped_circuit() {
    let shaped = throughput(Some(Contract::peak(Interval::per_second(RATE), Duration::from_millis(1))));
    assert!(shaped > RATE * 384 / 10 * 9, "the circuit's capacity: {shaped}");
    let unshaped = throughput(None);
    assert!(unshaped * 2 >= shaped, "{unshaped} bit/s, shaped {shaped}");
}
