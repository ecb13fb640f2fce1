//! Shared by the tests of this folder.

use crate::common::lines::{BAD, attacker, config};
use crate::common::packets::*;
use crate::common::socket;
use kiban_atm::TimedCell;
use kiban_atm::wire::atmarp::{Operation, Packet, Party};
use kiban_atm::wire::oam;
use kiban_base::numbers::ether_type;
use kiban_board::BoardConfig;
use kiban_tcpip::wire::tcp::Flags;
use std::net::{IpAddr, SocketAddr};

/// Length of the stream that runs during an attack, in bytes.
pub(crate) const GOOD_BYTES: usize = 200_000;

pub(crate) fn configs() -> [BoardConfig; 2] {
    [config(0), config(1)]
}

pub(crate) fn hostile(port: u16) -> SocketAddr {
    SocketAddr::new(attacker(), port)
}

/// Modifies a whole frame's bytes before they become cells.
pub(crate) fn spoilt(payload: &[u8], spoil: impl FnOnce(&mut Vec<u8>)) -> Vec<TimedCell> {
    let mut bytes = cpcs(payload);
    spoil(&mut bytes);
    cells_of(BAD, &bytes)
}

/// Sends a damaged packet to board 1 on the attacker's circuit.
pub(crate) fn packet(mut bytes: Vec<u8>, spoil: impl FnOnce(&mut Vec<u8>)) -> Vec<TimedCell> {
    spoil(&mut bytes);
    frame(BAD, &llc_ip(&bytes))
}

pub(crate) fn sum_ip(packet: &mut [u8]) {
    kiban_tcpip::wire::ipv4::fill(&mut packet[..20]);
}

pub(crate) fn datagram(to: u16, payload: &[u8]) -> Vec<u8> {
    udp_packet(hostile(9), socket(1, to), payload)
}

pub(crate) fn segment(flags: Flags, payload: &[u8]) -> Vec<u8> {
    let segment = Segment { sequence: 1, acknowledgment: 2, flags, window: 1000 };
    tcp_packet(hostile(9), socket(1, 4444), segment, payload)
}

pub(crate) fn inarp(operation: Operation, source: IpAddr) -> Vec<u8> {
    let IpAddr::V4(source) = source else { panic!("IPv4 only") };
    let packet = Packet { operation, source: Party::permanent(Some(source)), target: Party::permanent(None) };
    let mut bytes = vec![0; packet.length()];
    packet.write(&mut bytes);
    llc(ether_type::ARP, &bytes)
}

pub(crate) fn loopback(tag: u32) -> [u8; 48] {
    let mut payload = [0; 48];
    oam::Payload::Loopback(oam::Loopback::request(tag)).write(&mut payload);
    payload
}
