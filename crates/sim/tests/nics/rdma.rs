//! RDMA between boards in virtual time: over the boards' own TCP and UDP on cables and on ATM, and over EFE,
//! with and without impairments.

use crate::refusal::Refusal;
use kiban_atm::wire::atm::Vc;
use kiban_base::Instant;
use kiban_base::ethernet::Mac;
use kiban_board::{
    AtmPortConfig, BoardConfig, CircuitConfig, EfePortConfig, IpPortConfig, PortConfig, RdmaConfig,
    RoceConfig,
};
use kiban_rdma::efe;
use kiban_rdma::iwarp::mpa::{self, CrcUse};
use kiban_rdma::rnic::Status;
use kiban_sim::rdma::{RdmaAddress, Transfer, TransferKind};
use kiban_sim::{Attachment, BoardNumber, CableConfig, ImpairmentConfig, World, check as checks};
use kiban_tcpip::ip::Prefix;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The last message tells the peer that all other transfers are done; the connecting side then closes the
/// connection.
const PLAN: [TransferKind; 6] = [
    TransferKind::WriteAndTell,
    TransferKind::Send,
    TransferKind::Read,
    TransferKind::Write,
    TransferKind::Add,
    TransferKind::Send,
];
const LIMIT: Instant = Instant::from_nanos(120_000_000_000);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    TcpOnIp,
    TcpOnAtm,
    Efe,
    Roce,
    RoceOnAtm,
    EfeUdp,
    EfeUdpOnAtm,
}

const ALL: [Over; 7] =
    [Over::TcpOnIp, Over::TcpOnAtm, Over::Efe, Over::Roce, Over::RoceOnAtm, Over::EfeUdp, Over::EfeUdpOnAtm];

impl Over {
    fn is_roce(self) -> bool {
        matches!(self, Over::Roce | Over::RoceOnAtm)
    }

    fn is_efe_over_udp(self) -> bool {
        matches!(self, Over::EfeUdp | Over::EfeUdpOnAtm)
    }

    fn is_on_atm(self) -> bool {
        matches!(self, Over::TcpOnAtm | Over::RoceOnAtm | Over::EfeUdpOnAtm)
    }
}

fn address(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, n)
}

fn mac(n: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, n])
}

/// Returns two boards with RDMA NICs, and the address at which the second one listens.
pub(crate) fn boards(
    over: Over,
    mpa: &mpa::Config,
    impairment: ImpairmentConfig,
    seed: u64,
) -> (World, BoardNumber, BoardNumber, RdmaAddress) {
    let mut world = World::new(seed);
    let prefix = Prefix::new(address(0).into(), 24);
    let board = |n: u8| {
        let port = match over {
            Over::TcpOnIp | Over::Roce | Over::EfeUdp => PortConfig::Ip(IpPortConfig {
                address: address(n).into(),
                prefix,
                mtu_bytes: 1500,
                packets_max: 256,
                cuts: false,
                merges: false,
                believe_sums: false,
            }),
            Over::TcpOnAtm | Over::RoceOnAtm | Over::EfeUdpOnAtm => {
                let circuit = CircuitConfig::to(Vc { vpi: 0, vci: 100 }, address(3 - n).into());
                let port = AtmPortConfig::oc3c(address(n).into(), prefix);
                PortConfig::Atm(AtmPortConfig { circuits: vec![circuit], ..port })
            }
            Over::Efe => PortConfig::Efe(EfePortConfig { mac: mac(n), endpoint: efe::Config::default() }),
        };
        BoardConfig {
            ports: vec![port],
            rdma: Some(RdmaConfig {
                mpa: mpa.clone(),
                roce: over.is_roce().then(RoceConfig::default),
                efe: over.is_efe_over_udp().then(efe::Config::udp),
                ..RdmaConfig::default()
            }),
            ..BoardConfig::default()
        }
    };
    let (one, two) = (world.add_board(&board(1)), world.add_board(&board(2)));
    let (near, far) = (Attachment::Board(one, 0), Attachment::Board(two, 0));
    match over.is_on_atm() {
        true => {
            world.connect(near, far, 1000.0, impairment).expect("they fit");
        }
        false => {
            let line = CableConfig::ethernet(10_000_000_000, Duration::from_micros(5));
            world.connect_packets(near, far, &CableConfig { impairment, ..line }).expect("they fit");
        }
    }
    let meeting = match over {
        Over::Efe => RdmaAddress::Efe(mac(2), 7),
        Over::Roce | Over::RoceOnAtm => RdmaAddress::Roce(SocketAddr::new(address(2).into(), 7471)),
        Over::EfeUdp | Over::EfeUdpOnAtm => RdmaAddress::EfeUdp(SocketAddr::new(address(2).into(), 7471)),
        Over::TcpOnIp | Over::TcpOnAtm => RdmaAddress::Tcp(SocketAddr::new(address(2).into(), 7471)),
    };
    (world, one, two, meeting)
}

pub(crate) fn config() -> mpa::Config {
    mpa::Config { extensions: true, ..mpa::Config::default() }
}

/// Performs all transfers of the plan in both directions, and checks the results.
fn check(over: Over, mpa: &mpa::Config, impairment: ImpairmentConfig, bytes: usize, seed: u64) -> Instant {
    let (mut world, one, two, meeting) = boards(over, mpa, impairment, seed);
    meet(&mut world, [one, two], meeting, bytes, &format!("{over:?}, seed {seed}"));
    world.now()
}

pub(crate) fn meet(
    world: &mut World,
    [one, two]: [BoardNumber; 2],
    meeting: RdmaAddress,
    bytes: usize,
    name: &str,
) {
    world.run_program(one, Box::new(Transfer::new(meeting, true, bytes, &PLAN, 3)));
    world.run_program(two, Box::new(Transfer::new(meeting, false, bytes, &PLAN, 3)));
    assert!(
        world.run(LIMIT),
        "{name}: it does not come to an end; {:?}",
        world.program::<Transfer>(one).map(Transfer::moved)
    );
    for board in [one, two] {
        let mover = world.program::<Transfer>(board).expect("it ran");
        let done: Vec<(TransferKind, Status)> =
            mover.moved().done.iter().map(|&(what, how, _)| (what, how)).collect();
        assert_eq!(done, PLAN.map(|what| (what, Status::Success)), "{name}");
        // RoCEv2 reports the length of a Write with its immediate data.
        let notice_bytes = if matches!(meeting, RdmaAddress::Roce(_)) { bytes as u32 } else { 0 };
        assert_eq!(
            mover.moved().received,
            [(true, notice_bytes), (false, bytes as u32), (false, bytes as u32)],
            "{name}"
        );
        assert!(mover.inbox_is_right() && mover.back_is_right() && mover.target_is_right(1), "{name}");
    }
    for board in [one, two] {
        let board = world.board(board);
        assert_eq!(board.counter("rdma", "terminates_out"), 0, "{name}");
    }
    world.settle(world.now() + Duration::from_secs(5));
    // At most one session is left, and it is in TIME-WAIT.
    assert!(world.board(one).sessions() + world.board(two).sessions() <= 1, "{name}");
}

/// Runs the plan with one allocation refused. Returns whether the run reached that allocation.
fn check_refusal(over: Over, bytes: usize, refusal: Refusal) -> bool {
    let (mut world, one, two, meeting) = boards(over, &config(), ImpairmentConfig::NONE, 1);
    let boards = [one, two];
    refusal.arm(world.board_mut(boards[refusal.side]).memory_mut());
    let name = format!("{over:?}, {refusal:?}");
    meet(&mut world, boards, meeting, bytes, &name);
    assert_eq!(checks::check_idle(&mut world, &boards), [], "{name}");
    refusal.has_happened(world.board_mut(boards[refusal.side]).memory_mut())
}

#[test]
fn an_allocation_failure_delays_and_loses_nothing() {
    // EFE at a port is omitted because it does not use the board's packet memory.
    for over in [Over::TcpOnIp, Over::TcpOnAtm, Over::Roce, Over::EfeUdp] {
        crate::refusal::each(|refusal| check_refusal(over, 20_000, refusal));
    }
}

#[test]
fn every_operation_goes_both_ways_over_every_lower_layer() {
    for over in ALL {
        for bytes in [8, 1000, 200_000] {
            check(over, &config(), ImpairmentConfig::NONE, bytes, 1);
        }
    }
}

#[test]
fn losses_are_recovered_below_rdma_and_are_not_visible() {
    for over in ALL {
        for seed in 1..=6 {
            // On ATM, the loss of one cell in a thousand would lose one packet in five.
            let loss = if over.is_on_atm() { 0.0005 } else { 0.02 };
            check(over, &config(), ImpairmentConfig { loss, ..ImpairmentConfig::NONE }, 100_000, seed);
        }
    }
}

#[test]
fn crcs_and_markers_work_on_the_boards_own_tcp() {
    let crc = mpa::Config { crc: CrcUse::Required, ..config() };
    let markers = mpa::Config { markers: true, crc: CrcUse::Wanted, ..config() };
    for over in [Over::TcpOnIp, Over::TcpOnAtm] {
        for mpa in [&crc, &markers] {
            check(over, mpa, ImpairmentConfig { loss: 0.0002, ..ImpairmentConfig::NONE }, 50_000, 3);
        }
    }
}

#[test]
fn payload_over_roce_is_copied_into_pages_once() {
    let (mut world, one, two, meeting) = boards(Over::Roce, &config(), ImpairmentConfig::NONE, 1);
    let bytes = 200_000;
    meet(&mut world, [one, two], meeting, bytes, "copies");
    for board in [one, two] {
        let board = world.board(board);
        // Two Writes, two Sends, and the response to the peer's Read.
        let payload = 5 * bytes as u64;
        let copied = board.copies().host_in_bytes;
        assert!((payload..payload + payload / 16).contains(&copied), "{copied} bytes");
        // Each datagram lies in one page, so none is joined; the NIC places the payload.
        assert_eq!(board.copies().host_out_bytes, 0);
        let placed = board.counter("rdma", "placed_bytes");
        assert_eq!(placed, payload + 8, "the result of the atomic operation, too");
    }
}
