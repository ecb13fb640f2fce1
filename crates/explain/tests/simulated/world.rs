//! Two boards, a path between them, and a capture at one of three places.

use crate::programs::{Job, Reading, Receiver, Role, Sender};
use kiban_base::{Instant, SimRng};
use kiban_board::{BoardConfig, IpPortConfig, PortConfig};
use kiban_capture::{FileHeader, LINK_TYPE_RAW, RecordHeader};
use kiban_sim::{Attachment, CableConfig, CableNumber, Middlebox, Tap, World};
use kiban_tcpip::ip::Prefix;
use kiban_tcpip::tcp;
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

/// Where the capture is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum At {
    Sender,
    Middle,
    Receiver,
}

/// A connection to simulate. The sender of the data is board 0.
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) at: At,
    /// Whether the sender opens the connection.
    pub(crate) sender_opens: bool,
    pub(crate) six: bool,
    pub(crate) sender: tcp::Config,
    pub(crate) receiver: tcp::Config,
    pub(crate) there: CableConfig,
    pub(crate) back: CableConfig,
    /// What sees the packets of each direction when they are sent.
    pub(crate) middleboxes: [Option<Middlebox>; 2],
    pub(crate) job: Job,
    pub(crate) reading: Reading,
    pub(crate) limit: Duration,
}

type Packets = Rc<RefCell<Vec<(u64, Vec<u8>)>>>;

fn address(six: bool, side: u8) -> (IpAddr, Prefix) {
    let of = |host: u8| match six {
        true => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(host)]),
        false => IpAddr::from([10, 0, 0, host]),
    };
    (of(1 + side), Prefix::new(of(0), if six { 64 } else { 24 }))
}

/// Records what is sent on a cable, before and in addition to `middlebox`.
fn watch(packets: &Packets, mut middlebox: Option<Middlebox>) -> Middlebox {
    let packets = packets.clone();
    Box::new(move |now, bytes| {
        packets.borrow_mut().push((now.as_nanos(), bytes.clone()));
        middlebox.as_mut().is_none_or(|middlebox| middlebox(now, bytes))
    })
}

/// Records what arrives on a cable.
fn tap(world: &mut World, cable: CableNumber) -> Rc<RefCell<Vec<u8>>> {
    let file = Rc::new(RefCell::new(Vec::new()));
    let place = file.clone();
    world
        .cable(cable)
        .set_tap(Tap::new(0, Box::new(move |bytes| place.borrow_mut().extend_from_slice(bytes))));
    file
}

/// Returns the packets of a tap's file, `early` before they arrived.
fn arrived(file: &[u8], early: Duration) -> Vec<(u64, Vec<u8>)> {
    let Ok((header, _)) = FileHeader::read(file) else { return Vec::new() };
    let records = header.records(file).map(|record| record.expect("the tap writes whole records"));
    records.map(|(record, data)| (record.nanoseconds - early.as_nanos() as u64, data.to_vec())).collect()
}

impl Scenario {
    /// Runs the connection and returns the capture file.
    pub(crate) fn run(mut self) -> Vec<u8> {
        let mut world = World::new(self.seed);
        let boards = [(0u8, self.sender), (1, self.receiver)].map(|(side, tcp)| {
            let (address, prefix) = address(self.six, side);
            let port = IpPortConfig {
                address,
                prefix,
                mtu_bytes: 1500,
                packets_max: 256,
                cuts: false,
                merges: false,
                believe_sums: false,
            };
            world.add_board(&BoardConfig { tcp, ports: vec![PortConfig::Ip(port)], ..BoardConfig::default() })
        });
        let ends = boards.map(|board| Attachment::Board(board, 0));
        let (there, back) =
            world.connect_packets(ends[0], ends[1], &self.there).expect("both ports take packets");
        world.cable(back).set_config(self.back);
        let sent: [Packets; 2] = Default::default();
        for (side, cable) in [there, back].into_iter().enumerate() {
            world.cable(cable).set_middlebox(watch(&sent[side], self.middleboxes[side].take()));
        }
        let taps = [there, back].map(|cable| tap(&mut world, cable));
        let roles = [0u8, 1].map(|side| {
            let opens = self.sender_opens == (side == 0);
            let (remote, local) = (address(self.six, 1 - side).0, address(self.six, side).0);
            if opens {
                Role::Open(SocketAddr::new(remote, 80))
            } else {
                Role::Listen(SocketAddr::new(local, 80))
            }
        });
        let rng = SimRng::from_seed(self.seed).fork(99);
        let programs = [
            (boards[0], Box::new(Sender::new(roles[0], self.job, rng)) as Box<dyn kiban_board::Program>),
            (boards[1], Box::new(Receiver::new(roles[1], self.reading))),
        ];
        // The listener first.
        let [first, second] = programs;
        let order = if self.sender_opens { [second, first] } else { [first, second] };
        order.into_iter().for_each(|(board, program)| world.run_program(board, program));
        world.run(Instant::ZERO + self.limit);
        let last = world.now() + Duration::from_millis(500);
        world.settle(last);
        let [sent_there, sent_back] = sent.map(|packets| packets.borrow().clone());
        let arrived = |side: usize, early| arrived(&taps[side].borrow(), early);
        // What arrives comes before what is sent at the same time in response.
        let mut packets = match self.at {
            At::Sender => [arrived(1, Duration::ZERO), sent_there].concat(),
            At::Receiver => [arrived(0, Duration::ZERO), sent_back].concat(),
            At::Middle => [arrived(0, self.there.delay / 2), arrived(1, self.back.delay / 2)].concat(),
        };
        packets.sort_by_key(|(at, _)| *at);
        file(&packets)
    }
}

fn file(packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let header = FileHeader::new(LINK_TYPE_RAW);
    let mut file = Vec::new();
    header.write(&mut file);
    for (nanoseconds, data) in packets {
        // Only headers are needed, as with `tcpdump -s 120`.
        let kept = data.len().min(120);
        let (captured_bytes, original_bytes) = (kept as u32, data.len() as u32);
        RecordHeader { nanoseconds: *nanoseconds, captured_bytes, original_bytes }.write(&header, &mut file);
        file.extend_from_slice(&data[..kept]);
    }
    file
}
