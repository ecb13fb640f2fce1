//! Circuits with their OAM cells, InATMARP and contracts.

use crate::common::address;
use crate::common::lines::{BAD, GOOD, Lines, port_of};
use crate::common::packets::*;
use crate::helpers::*;
use kiban_atm::wire::atm::{PTI_OAM_END_TO_END, PTI_OAM_SEGMENT};
use kiban_atm::wire::atmarp::{Operation, Packet, Party};
use kiban_atm::{Contract, Interval, Meter, TimedCell};
use kiban_base::Instant;
use kiban_base::numbers::ether_type;
use kiban_board::{Completion, HostError};
use std::net::Ipv4Addr;
use std::time::Duration;

#[test]
fn only_the_latest_oam_cells_of_a_burst_are_answered() {
    /// The maximum number of answers per circuit and burst.
    const ANSWERS: u64 = 4;
    for pti in [PTI_OAM_SEGMENT, PTI_OAM_END_TO_END] {
        let mut rounds = 0;
        let lines = Lines::under_attack(configs(), GOOD_BYTES, |lines, round| {
            rounds += 1;
            let flood: Vec<_> =
                (0..500).map(|tag| management(BAD, pti, loopback(tag + round as u32))).collect();
            lines.inject(1, &flood);
        });
        let (cells_in, answers) =
            (lines.count("loopback", "cells_in"), lines.count("loopback", "answers_out"));
        assert!(cells_in >= 100_000 / 2, "{cells_in}");
        assert!(answers <= ANSWERS * rounds, "{answers} answers to {rounds} bursts");
        let seen = lines.answers[1].iter().filter(|cell| cell.header & 0b1000 != 0).count() as u64;
        assert!(seen <= ANSWERS * rounds, "{seen} answers to {rounds} bursts");
        assert_eq!(lines.boards[0].counter("tcp", "retransmits"), 0);
    }
    // All cells arrive in one burst. Only a few answers are queued.
    let mut lines = Lines::new();
    let flood: Vec<_> = (0..100_000).map(|tag| management(BAD, PTI_OAM_SEGMENT, loopback(tag))).collect();
    lines.inject(1, &flood);
    lines.step(Duration::from_micros(100));
    lines.pass(Duration::from_secs(1));
    assert_eq!((lines.count("loopback", "cells_in"), lines.answers[1].len() as u64), (100_000, ANSWERS));
    lines.check_home();
}

/// An attacker on one circuit claims the address of another circuit's peer. The address is configured, so it
/// does not change.
#[test]
fn a_configured_address_is_not_replaced_by_inatmarp() {
    let mut configs = configs();
    port_of(&mut configs[1]).circuits[1].peer = None;
    let lines = Lines::under_attack(configs, GOOD_BYTES, |lines, _| {
        lines.inject(1, &frame(BAD, &inarp(Operation::InverseRequest, address(0))));
    });
    assert_eq!(lines.boards[0].counter("tcp", "retransmits"), 0);
    assert!(lines.count("inarp", "packets_in") > 100);
}

#[test]
fn two_boards_discover_each_other_and_ping() {
    let mut configs = configs();
    for config in &mut configs {
        port_of(config).circuits.iter_mut().for_each(|circuit| circuit.peer = None);
    }
    let mut lines = Lines::of(configs);
    lines.pass(Duration::from_millis(100));
    for side in 0..2 {
        assert_eq!(lines.boards[side].counter("inarp", "peers_learned"), 1);
    }
    for side in 0..2 {
        lines.boards[side].host().ping(address(1 - side), 5, 6, &noise(1, 9000)).unwrap();
        lines.drain(side);
    }
    lines.pass(Duration::from_millis(10));
    for side in 0..2 {
        let source = address(1 - side);
        assert_eq!(
            lines.completions(side),
            [Completion::EchoReply { source, identifier: 5, sequence: 6, bytes: 9000 }]
        );
    }
    let (near, far) = lines.open(0, 80);
    lines.carry((0, near), far, &noise(9, 100_000), |_, _| ());
    lines.close_and_check([near, far]);
}

#[test]
fn an_oam_loopback_returns_and_a_second_one_is_refused_meanwhile() {
    let mut lines = Lines::new();
    let tag = lines.boards[0].host().cell_loopback(0, 0).unwrap();
    let refused = lines.boards[0].host().cell_loopback(0, 0).unwrap_err();
    assert_eq!(refused, HostError::Busy, "one is under way");
    for (port, circuit) in [(0, 2), (1, 0), (9, 9)] {
        assert_eq!(lines.boards[0].host().cell_loopback(port, circuit), Err(HostError::NoCircuit));
    }
    lines.drain(0);
    lines.pass(Duration::from_millis(10));
    let completions = lines.completions(0);
    let [Completion::CellLoopback { port: 0, circuit: 0, tag: returned, round_trip }] = completions[..]
    else {
        panic!("{completions:?}")
    };
    assert_eq!(returned, tag);
    assert!(round_trip > Duration::ZERO && round_trip < Duration::from_millis(1), "{round_trip:?}");
    // No answer arrives on the other circuit; after five seconds another loopback cell may be sent.
    lines.boards[0].host().cell_loopback(0, 1).unwrap();
    lines.drain(0);
    lines.pass(Duration::from_secs(6));
    assert_eq!(lines.boards[0].counter("loopback", "pings_lost"), 1);
    assert!(lines.boards[0].host().cell_loopback(0, 1).is_ok());
}

#[test]
fn a_circuit_without_llc_carries_a_stream_from_end_to_end() {
    let mut configs = configs();
    for config in &mut configs {
        port_of(config).circuits[0].llc_snap = false;
    }
    let mut lines = Lines::of(configs);
    let (near, far) = lines.open(0, 80);
    lines.carry((0, near), far, &noise(9, 1_000_000), |_, _| ());
    lines.carry((1, far), near, &noise(8, 300_000), |_, _| ());
    for board in &lines.boards {
        assert_eq!((board.counter("tcp", "retransmits"), board.counter("port", "not_ip")), (0, 0));
    }
    lines.close_and_check([near, far]);
}

#[test]
fn a_shaped_circuit_keeps_its_contract_to_the_cell() {
    let slot = Interval::of_line(kiban_atm::OC3C_BITS_PER_SECOND);
    let contracts = [
        Contract::peak(Interval::every(Duration::from_micros(10)), Duration::from_micros(3)),
        Contract::peak(Interval::every(Duration::from_nanos(5777)), Duration::ZERO),
        Contract {
            peak: slot,
            tolerance: Duration::from_micros(3),
            sustained: Some(kiban_atm::Sustained {
                interval: Interval::every(Duration::from_micros(8)),
                burst_cells: 100,
            }),
        },
    ];
    for contract in contracts {
        let mut configs = configs();
        port_of(&mut configs[0]).circuits[0].contract = Some(contract);
        let mut lines = Lines::of(configs);
        lines.tap = Some(Default::default());
        let (near, far) = lines.open(0, 80);
        lines.carry((0, near), far, &noise(9, 400_000), |lines, round| {
            if round % 50 == 0 {
                lines.boards[0].host().ping(address(1), 1, 1, &[0; 500]).unwrap();
                lines.boards[0].host().cell_loopback(0, 0).ok();
            }
        });
        lines.close_and_check([near, far]);
        let mut meter = Meter::new(contract);
        let sent = &lines.tap.as_ref().unwrap()[0];
        let circuit = |cell: &&TimedCell| cell.header >> 4 == u32::from(GOOD.vci);
        let (mut cells, mut last) = (0, Instant::ZERO);
        for cell in sent.iter().filter(circuit) {
            cells += 1;
            // The time of a cell is the end of its slot, which is T = 331250/117 ns after the slot's start.
            let number = (cell.at.as_nanos() * 117).div_ceil(331_250) - 1;
            let start = Instant::from_nanos(number * 331_250 / 117);
            assert!(meter.police(start), "cell {cells} at {:?} breaks {contract:?}", cell.at);
            last = cell.at;
        }
        assert!(cells > 8000, "{cells} cells until {last:?}");
    }
}

/// RFC 2225 §8: InATMARP packets with ATM addresses are longer than a cell, but are processed nevertheless.
#[test]
fn an_inatmarp_packet_with_long_atm_numbers_is_parsed() {
    let number = kiban_atm::wire::atmarp::Number { is_e164: false, bytes: &[0x47; 20] };
    let party = Party { number, subaddress: number, ip: Some(Ipv4Addr::new(10, 0, 0, 66)) };
    let packet = Packet { operation: Operation::InverseRequest, source: party, target: party };
    let mut bytes = vec![0; packet.length()];
    packet.write(&mut bytes);
    let mut lines = Lines::new();
    lines.inject(1, &frame(BAD, &llc(ether_type::ARP, &bytes)));
    lines.step(Duration::from_micros(100));
    assert_eq!((lines.count("inarp", "packets_in"), lines.count("inarp", "replies_out")), (1, 1));
}
