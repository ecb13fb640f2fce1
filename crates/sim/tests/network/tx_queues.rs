//! TX queues: a slow circuit does not delay the others.

use kiban_atm::wire::atm::{Interface, Vc};
use kiban_atm::{
    ConnectionId, Contract, FABRIC_DELAY, Interval, OC3C_BITS_PER_SECOND, Route, Switch, SwitchPort,
};
use kiban_base::Instant;
use kiban_board::{AtmPortConfig, BoardConfig, CircuitConfig, PortConfig};
use kiban_sim::program::{Receiver, Sender, Source};
use kiban_sim::{Attachment, ImpairmentConfig, World};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

fn address(host: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, host])
}

fn board(host: u8, circuits: &[CircuitConfig]) -> BoardConfig {
    let mut port = AtmPortConfig::oc3c(address(host), "10.0.0.0/24".parse().unwrap());
    port.circuits = circuits.to_vec();
    BoardConfig { ports: vec![PortConfig::Atm(port)], ..BoardConfig::default() }
}

#[test]
fn a_circuit_of_a_hundred_cells_a_second_does_not_slow_its_neighbour() {
    let (quick, slow) = (Vc::new(0, 100), Vc::new(0, 101));
    let mut world = World::new(1);
    let contract = Contract::peak(Interval::per_second(100), Duration::from_millis(1));
    let slow_end = CircuitConfig { contract: Some(contract), ..CircuitConfig::to(slow, address(3)) };
    let sender = world.add_board(&board(1, &[CircuitConfig::to(quick, address(2)), slow_end]));
    let receivers = [(2, quick), (3, slow)]
        .map(|(host, vc)| world.add_board(&board(host, &[CircuitConfig::to(vc, address(1))])));
    let port = SwitchPort::plain(Interval::of_line(OC3C_BITS_PER_SECOND), Interface::Uni, 10_000);
    let mut switch = Switch::new(&[port; 3], FABRIC_DELAY);
    for (out, vc) in [(1, quick), (2, slow)] {
        let name = ConnectionId::Circuit(vc);
        switch.add(Route::plain(0, name, out, name, 10_000)).unwrap();
        switch.add(Route::plain(out, name, 0, name, 10_000)).unwrap();
    }
    let switch = world.add_switch(switch);
    for (number, board) in [sender, receivers[0], receivers[1]].into_iter().enumerate() {
        world
            .connect(
                Attachment::Board(board, 0),
                Attachment::Switch(switch, number),
                10.0,
                ImpairmentConfig::NONE,
            )
            .unwrap();
    }

    let bytes = 4_000_000;
    for (receiver, host) in receivers.into_iter().zip([2, 3]) {
        world.run_program(receiver, Box::new(Receiver::new(80, 1, Box::new(|_| Box::new(|_, _| {})))));
        let source: Source = Box::new(|_, buffer| buffer.fill(1));
        let remote = SocketAddr::new(address(host), 80);
        world.run_program(sender, Box::new(Sender::new(remote, vec![(bytes, source)])));
    }
    assert!(!world.run(Instant::from_nanos(1_000_000_000)), "the slow one takes hours");
    let arrived = |world: &mut World, board| {
        let programs = world.take_programs(board);
        let receiver = programs[0].as_any().downcast_ref::<Receiver>().unwrap();
        receiver.received().first().map_or(0, |stream| stream.bytes)
    };
    assert_eq!(arrived(&mut world, receivers[0]), bytes, "a quarter of a second's work was done within one");
    assert!(arrived(&mut world, receivers[1]) < 10_000);
}
