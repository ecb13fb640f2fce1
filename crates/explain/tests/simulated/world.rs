//! Two boards, a path between them, and a capture at one of three places.

use crate::made::{Packets, address, arrived, file, tap, watch};
use crate::programs::{Job, Reading, Receiver, Role, Sender};
use kiban_base::{Instant, SimRng};
use kiban_board::{BoardConfig, IpPortConfig, PortConfig};
use kiban_sim::{Attachment, CableConfig, Middlebox, World};
use kiban_tcpip::tcp;
use std::net::SocketAddr;
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
            world.cable(cable).set_middlebox(watch(&sent[side], |_| {}, self.middleboxes[side].take()));
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
        // Only headers are needed, as with `tcpdump -s 120`.
        file(&packets, 120)
    }
}
