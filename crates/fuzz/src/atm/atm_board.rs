//! A board behind an ATM port, fed with arbitrary cells.
//!
//! Input     a sequence of decisions. Each one sends a cell whose header comes from the input, or a frame on
//!           one of the circuits: with correct padding, trailer and CRC, a payload from the input, and with
//!           or without LLC/SNAP.
//! Checks    nothing panics, sent cells have a correct HEC and belong to a circuit, and all memory is freed.

use crate::features::Features;
use crate::input::Input;
use crate::tcpip::craft;
use crate::tcpip::stand::{BOARD, PEER, Stand, memory};
use crate::wire::aal5_frame;
use kiban_atm::TimedCell;
use kiban_atm::wire::atm::{Header, Interface, Vc};
use kiban_atm::wire::oam;
use kiban_board::{AtmPortConfig, BoardConfig, CircuitConfig, PortConfig};
use kiban_tcpip::wire::icmp;
use std::net::SocketAddr;
use std::time::Duration;

/// The circuits: LLC/SNAP to a known peer, IP without LLC/SNAP, and LLC/SNAP to a peer found by InATMARP.
const CIRCUITS: [Vc; 3] = [Vc::new(0, 100), Vc::new(0, 101), Vc::new(0, 102)];

fn config() -> BoardConfig {
    let mut port = AtmPortConfig::oc3c(BOARD.into(), "10.0.0.0/24".parse().expect("a prefix"));
    port.circuits.push(CircuitConfig::to(CIRCUITS[0], PEER.into()));
    let bare = CircuitConfig { llc_snap: false, ..CircuitConfig::to(CIRCUITS[1], [10, 0, 0, 3].into()) };
    port.circuits.push(bare);
    port.circuits.push(CircuitConfig { peer: None, ..CircuitConfig::to(CIRCUITS[2], PEER.into()) });
    BoardConfig { memory: memory(), ports: vec![PortConfig::Atm(port)], ..BoardConfig::default() }
}

pub(crate) fn run(bytes: &[u8], features: &mut Features<'_>) {
    let mut stand = Stand::new(&config());
    let mut host = stand.board.host();
    let listener = host.listen(SocketAddr::new(BOARD.into(), 80)).expect("there is no listener yet");
    let mut input = Input::new(bytes);
    let mut cells = Vec::new();
    while !input.is_empty() {
        let what = input.byte();
        let vc = CIRCUITS[usize::from(what >> 6) % CIRCUITS.len()];
        match what % 8 {
            0 => cells.push(cell(input.long(), input.take(48))),
            // Send a cell of any type on one of our circuits.
            1 => {
                let header = Header { pti: input.byte() & 7, ..Header::user(vc, false) };
                cells.push(cell(header.to_word(Interface::Uni), input.take(48)));
            }
            2 => {
                let header = Header { pti: 4 + (what >> 3 & 1), ..Header::user(vc, false) };
                let mut payload = padded(input.take(46));
                oam::fill(&mut payload);
                cells.push(TimedCell::new(stand.now, header.to_word(Interface::Uni), payload));
            }
            3 => {
                stand.pass(Duration::from_millis(u64::from(input.short())));
                check_cells(&mut stand, features);
            }
            mode => {
                let length = usize::from(input.short() % 4096);
                let mut payload = input.take(length).to_vec();
                if mode & 1 == 1 {
                    craft::mend(&mut payload);
                }
                let llc: &[u8] = if mode & 2 == 2 { &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0] } else { &[] };
                payload.splice(0..0, llc.iter().copied());
                if payload.is_empty() {
                    continue;
                }
                let mut frame = aal5_frame(&payload);
                if what & 0x20 != 0 {
                    // Send a frame from whose middle some cells are missing.
                    let from = 48 * (frame.len() / 96);
                    frame.drain(from..from + 48);
                }
                let count = frame.len() / 48;
                for (at, part) in frame.chunks(48).enumerate() {
                    let word = Header::user(vc, at + 1 == count).to_word(Interface::Uni);
                    cells.push(cell(word, part));
                }
            }
        }
        if what & 0x10 == 0 {
            cells.iter_mut().for_each(|cell| cell.at = stand.now);
            stand.cells(&cells);
            cells.clear();
            check_cells(&mut stand, features);
        }
    }
    stand.cells(&cells);
    check_cells(&mut stand, features);
    stand.show(features);
    stand.give_up(listener);
    // An incomplete frame is dropped when memory runs out or when the next frame ends, so complete a frame on
    // every circuit.
    let ends = CIRCUITS.map(|vc| cell(Header::user(vc, true).to_word(Interface::Uni), &[]));
    stand.cells(&ends);
    stand.rest();
}

fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut payload = [0; N];
    payload[..bytes.len()].copy_from_slice(bytes);
    payload
}

fn cell(word: u32, bytes: &[u8]) -> TimedCell {
    TimedCell::new(kiban_base::Instant::ZERO, word, padded(bytes))
}

fn check_cells(stand: &mut Stand, features: &mut Features<'_>) {
    stand.now += Duration::from_micros(300);
    let mut sent = Vec::new();
    stand.board.cells(0, stand.now, &mut sent);
    for cell in &sent {
        let header = Header::from_word(Interface::Uni, cell.header);
        assert!(CIRCUITS.contains(&header.vc), "a cell on {}", header.vc);
        features.show((header.vc.vci, header.pti));
    }
    stand.board.handle(kiban_board::Input::Room, stand.now);
    stand.drain();
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let ping = icmp::Header::EchoRequest { identifier: 1, sequence: 2 };
    let ping = craft::icmp(PEER.into(), BOARD.into(), ping, b"a ping");
    let framed = |what: u8| [&[what][..], &(ping.len() as u16).to_be_bytes(), &ping].concat();
    let mut loopback = vec![0; 48];
    oam::Payload::Loopback(oam::Loopback::request(7)).write(&mut loopback);
    let loopback = [&[10][..], &loopback[..46]].concat();
    let mut arp = vec![0x84, 0, 32, 0xaa, 0xaa, 3, 0, 0, 0, 8, 6];
    arp.extend_from_slice(&[0, 19, 8, 0, 0, 0, 0, 8, 4, 0, 0, 0, 10, 0, 0, 9]);
    arp.resize(35, 0);
    vec![framed(7), framed(0x45), framed(0x27), framed(0x87), loopback, arp, vec![3, 255, 255], vec![0; 53]]
}
