//! Two boards with RDMA NICs, a path between them, and a capture at one of three places.

use crate::made::{Packets, address, arrived, file, tap, watch};
use crate::programs::{Job, SERVICE, Side};
use kiban_base::{Instant, SimRng};
use kiban_board::{BoardConfig, IpPortConfig, PortConfig, RdmaConfig, RoceConfig};
use kiban_rdma::nic;
use kiban_rdma::wire::roce::icrc::Icrc;
use kiban_rdma::wire::roce::{Opcode, Operation, PORT};
use kiban_sim::{Attachment, CableConfig, Middlebox, World};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

const IPV4_BYTES: usize = 20;
const BTH: usize = IPV4_BYTES + 8;

/// Where the capture is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum At {
    Requester,
    Middle,
    Responder,
}

/// A connection to simulate. The requester is board 0.
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) at: At,
    /// Whether the requester connects.
    pub(crate) opens: bool,
    pub(crate) six: bool,
    /// Whether both NICs behave as most hardware: go-back-N, and no credits.
    pub(crate) is_hardware: bool,
    pub(crate) nic: nic::RoceConfig,
    pub(crate) there: CableConfig,
    pub(crate) back: CableConfig,
    /// What sees the packets of each direction when they are sent.
    pub(crate) middleboxes: [Option<Middlebox>; 2],
    /// The stalls of the way back are those of the responder.
    pub(crate) stalls_at_responder: bool,
    pub(crate) job: Job,
    /// Whether the messages of communication management are part of the capture.
    pub(crate) has_management: bool,
    /// Bytes that are captured of a packet.
    pub(crate) snap_bytes: usize,
}

/// Returns the opcode of a RoCEv2 packet over IP without options.
pub(crate) fn opcode(packet: &[u8]) -> Option<Opcode> {
    let bth = if packet[0] >> 4 == 6 { 40 + 8 } else { BTH };
    Opcode::read(*packet.get(bth)?).ok()
}

/// Removes what only kiban's ends do: selective retransmission, and the counts of receives.
fn as_hardware(packet: &mut [u8]) {
    if packet[0] != 0x45 || packet[9] != 17 || packet[22..24] != PORT.to_be_bytes() {
        return;
    }
    let Ok(Opcode::Transport(_, operation)) = Opcode::read(packet[BTH]) else { return };
    packet[BTH + 8] &= 0x80;
    if operation == Operation::Acknowledge && packet[BTH + 12] < 0x20 {
        packet[BTH + 12] = 0x1f;
    }
    let end = packet.len() - 4;
    let ip = |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]);
    let port = u16::from_be_bytes([packet[20], packet[21]]);
    let mut icrc = Icrc::new(
        SocketAddr::new(ip(12).into(), port),
        SocketAddr::new(ip(16).into(), PORT),
        packet.len() - BTH,
        u16::from_be_bytes([packet[4], packet[5]]),
    );
    icrc.headers(&packet[BTH..end]);
    packet[end..].copy_from_slice(&icrc.octets());
    // No checksum (RFC 768).
    packet[26..28].fill(0);
}

impl Scenario {
    /// Runs the connection and returns the capture file.
    pub(crate) fn run(mut self) -> Vec<u8> {
        let mut world = World::new(self.seed);
        let boards = [0u8, 1].map(|side| {
            let (address, prefix) = address(self.six, side);
            let port = IpPortConfig {
                address,
                prefix,
                mtu_bytes: 5000,
                packets_max: 1024,
                cuts: false,
                merges: false,
                believe_sums: false,
            };
            let roce = RoceConfig { nic: self.nic.clone(), ..RoceConfig::default() };
            let rdma = Some(RdmaConfig { roce: Some(roce), ..RdmaConfig::default() });
            world.add_board(&BoardConfig {
                rdma,
                ports: vec![PortConfig::Ip(port)],
                ..BoardConfig::default()
            })
        });
        let ends = boards.map(|board| Attachment::Board(board, 0));
        let (there, back) =
            world.connect_packets(ends[0], ends[1], &self.there).expect("both ports take packets");
        world.cable(back).set_config(self.back);
        let sent: [Packets; 2] = Default::default();
        for (side, cable) in [there, back].into_iter().enumerate() {
            let middlebox = self.middleboxes[side].take();
            let change = if self.is_hardware { as_hardware } else { |_: &mut [u8]| {} };
            world.cable(cable).set_middlebox(watch(&sent[side], change, middlebox));
        }
        let taps = [there, back].map(|cable| tap(&mut world, cable));
        let rng = SimRng::from_seed(self.seed);
        let sides = [0u8, 1].map(|side| {
            let opens = self.opens == (side == 0);
            let remote = opens.then(|| SocketAddr::new(address(self.six, 1 - side).0, SERVICE));
            Box::new(Side::new(side == 0, remote, self.job.clone(), rng.fork(side.into())))
        });
        let [requester, responder] = sides;
        let mut programs = [(boards[1], responder), (boards[0], requester)];
        // The listener first.
        if !self.opens {
            programs.reverse();
        }
        for (board, program) in programs {
            world.run_program(board, program);
        }
        world.run(Instant::ZERO + Duration::from_secs(30));
        let [sent_there, sent_back] = sent.map(|packets| packets.borrow().clone());
        let arrived = |side: usize, early| arrived(&taps[side].borrow(), early);
        // What arrives comes before what is sent at the same time in response.
        let mut packets = match self.at {
            At::Requester => [arrived(1, Duration::ZERO), sent_there].concat(),
            At::Responder if self.stalls_at_responder => {
                [arrived(0, Duration::ZERO), arrived(1, self.back.delay)].concat()
            }
            At::Responder => [arrived(0, Duration::ZERO), sent_back].concat(),
            At::Middle => [arrived(0, self.there.delay / 2), arrived(1, self.back.delay / 2)].concat(),
        };
        packets.sort_by_key(|(at, _)| *at);
        let is_kept = |packet: &[u8]| {
            let bth = if packet[0] >> 4 == 6 { 48 } else { BTH };
            self.has_management || packet.get(bth).is_none_or(|opcode| opcode >> 5 != 3)
        };
        packets.retain(|(_, packet)| is_kept(packet));
        file(&packets, self.snap_bytes)
    }
}
