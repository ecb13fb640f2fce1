//! RoCEv2 boards around an Ethernet switch: congestion marks, losses, priority-based flow control.

use kiban_base::ethernet::Mac;
use kiban_base::{Instant, Region, SharedBytes};
use kiban_board::{BoardConfig, Completion, EthernetPortConfig, Host, PortConfig, RdmaConfig, RoceConfig};
use kiban_rdma::nic::CmEvent;
use kiban_rdma::rnic::{Access, Data, Operation, QpAttributes, Rnic, SendWork, Sge, Status, TaggedAddress};
use kiban_sim::{
    BoardNumber, CableConfig, EcnConfig, EthernetSwitchNumber, PfcConfig, Program, Switch, World,
    check as checks,
};
use kiban_tcpip::ethernet::LinkConfig;
use kiban_tcpip::ip::Prefix;
use std::any::Any;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

const SERVICE: u16 = 7471;
const SENDERS: usize = 4;
/// Each sender writes this much, in Writes of a quarter of it.
const BYTES: usize = 1 << 20;
const WRITES: u64 = 4;
const BITS_PER_SECOND: u64 = 10_000_000_000;
const LIMIT: Instant = Instant::from_nanos(60_000_000_000);

fn address(board: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 1 + board as u8)
}

fn pattern(sender: usize) -> Vec<u8> {
    (0..BYTES).map(|at| (at * 7 + at / 251 + sender * 31) as u8).collect()
}

fn queue_pair(core: &mut Rnic, memory: &Region) -> (u32, u32, u32) {
    let (pd, cq) = (core.create_pd().expect("room"), core.create_cq(64).expect("room"));
    let attributes = QpAttributes {
        pd,
        send_cq: cq,
        receive_cq: cq,
        srq: None,
        send_work_max: 16,
        receive_work_max: 0,
        send_sges_max: 1,
        receive_sges_max: 0,
        inline_bytes_max: 0,
        signal_all: true,
        waits_for_receives: false,
    };
    let qp = core.create_qp(attributes).expect("room");
    (qp, cq, core.register(pd, memory.clone(), Access::ALL).expect("room"))
}

/// Accepts all connections, and gives each memory of its own.
#[derive(Default)]
struct Target {
    memories: Vec<(u8, Region)>,
    gone: usize,
}

impl Program for Target {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        host.rdma().expect("a NIC").listen_roce(SERVICE).expect("free");
    }

    fn on_completion(&mut self, _: Completion, host: &mut Host<'_>, _: Instant) {
        let mut rdma = host.rdma().expect("a NIC");
        while let Some(event) = rdma.nic().poll() {
            match event {
                CmEvent::ConnectRequest(request) => {
                    let memory = Region::new(0x1000, BYTES);
                    let (qp, _, stag) = queue_pair(&mut rdma.nic().core, &memory);
                    self.memories.push((request.private_data[0], memory));
                    rdma.accept(request.end, qp, (1, 1), &stag.to_be_bytes()).expect("it waits");
                }
                CmEvent::Connected { .. } => {}
                CmEvent::Gone { .. } => self.gone += 1,
                event => panic!("{event:?}"),
            }
        }
    }

    fn is_done(&self) -> bool {
        self.gone == SENDERS
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Writes its pattern into the target's memory, and disconnects.
struct Sender {
    number: usize,
    memory: Region,
    qp: u32,
    cq: u32,
    stag: u32,
    done: u64,
    gone: bool,
}

impl Program for Sender {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        self.memory.write(0x1000, SharedBytes::from(&pattern(self.number)[..])).expect("within");
        let mut rdma = host.rdma().expect("a NIC");
        (self.qp, self.cq, self.stag) = queue_pair(&mut rdma.nic().core, &self.memory);
        let target = SocketAddr::new(address(0).into(), SERVICE);
        rdma.connect_roce(target, self.qp, (1, 1), &[self.number as u8]).expect("a route");
    }

    fn on_completion(&mut self, _: Completion, host: &mut Host<'_>, _: Instant) {
        let mut rdma = host.rdma().expect("a NIC");
        while let Some(event) = rdma.nic().poll() {
            match event {
                CmEvent::Connected { private_data, .. } => {
                    let stag = u32::from_be_bytes(*private_data.first_chunk().expect("four octets"));
                    let length = BYTES as u64 / WRITES;
                    for n in 0..WRITES {
                        let address = 0x1000 + n * length;
                        let operation = Operation::write(TaggedAddress { stag, offset: address });
                        let sge = Sge { stag: self.stag, address, length: length as u32 };
                        let work = SendWork::new(n, operation, Data::one(sge));
                        rdma.nic().core.post_send(self.qp, work).expect("room");
                    }
                }
                CmEvent::Gone { .. } => self.gone = true,
                event => panic!("{event:?}"),
            }
        }
        while let Ok(Some(done)) = rdma.nic().core.poll(self.cq) {
            assert_eq!(done.status, Status::Success, "sender {}", self.number);
            self.done += 1;
            if self.done == WRITES {
                rdma.nic().core.disconnect(self.qp).expect("connected");
            }
        }
    }

    fn is_done(&self) -> bool {
        self.gone
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The counters of a world with an incast.
#[derive(Debug)]
struct Incast {
    queue_full: u64,
    ce_marked: u64,
    ce_seen: u64,
    pauses: u64,
    pauses_seen: u64,
    retransmitted: u64,
}

/// Four boards write to the first board at once, through a switch whose queues hold 64 frames.
fn incast(ecn: Option<EcnConfig>, pfc: Option<PfcConfig>) -> Incast {
    let mut world = World::new(1);
    let line = CableConfig::ethernet(BITS_PER_SECOND, Duration::from_micros(1));
    let down = CableConfig { packets_max: 64, ..line };
    let mut switch = Switch::new(&[down; SENDERS + 1], 1);
    if let Some(ecn) = ecn {
        switch = switch.with_ecn(ecn);
    }
    if let Some(pfc) = pfc {
        switch = switch.with_pfc(pfc);
    }
    let switch: EthernetSwitchNumber = world.add_ethernet_switch(switch);
    let boards: Vec<BoardNumber> = (0..=SENDERS)
        .map(|number| {
            let addresses = vec![(address(number).into(), Prefix::new(address(0).into(), 24))];
            let mac = Mac([2, 0, 0, 0, 0, number as u8]);
            let port = EthernetPortConfig {
                pfc_bits_per_second: Some(BITS_PER_SECOND),
                ..EthernetPortConfig::on(LinkConfig { addresses, ..LinkConfig::new(mac) })
            };
            let rdma = Some(RdmaConfig { roce: Some(RoceConfig::default()), ..RdmaConfig::default() });
            let ports = vec![PortConfig::Ethernet(port)];
            let board = world.add_board(&BoardConfig { ports, rdma, ..BoardConfig::default() });
            let up = CableConfig { packets_max: 2, holds: true, ..line };
            world.connect_to_switch(board, 0, (switch, number), &up).expect("an Ethernet port");
            board
        })
        .collect();
    world.run_program(boards[0], Box::new(Target::default()));
    for (number, board) in boards.iter().enumerate().skip(1) {
        let memory = Region::new(0x1000, BYTES);
        let sender = Sender { number, memory, qp: 0, cq: 0, stag: 0, done: 0, gone: false };
        world.run_program(*board, Box::new(sender));
    }
    assert!(world.run(LIMIT), "it does not come to an end");
    let target = world.program::<Target>(boards[0]).expect("it ran");
    assert_eq!(target.memories.len(), SENDERS);
    for (sender, memory) in &target.memories {
        let written = memory.read(0x1000, BYTES).expect("within");
        assert!(written == pattern((*sender).into()), "sender {sender}");
    }
    let sum = |world: &World, family, name| {
        boards.iter().map(|board| world.board(*board).counter(family, name)).sum::<u64>()
    };
    let (ce_seen, pauses_seen) = (sum(&world, "roce_port", "ce_marked"), sum(&world, "port", "pauses"));
    let retransmitted = sum(&world, "rdma", "packets_retransmitted");
    let switch = world.ethernet_switch(switch);
    let (counters, queue_full) = (*switch.counters(), switch.port_counters().queue_full);
    assert_eq!(checks::check_idle(&mut world, &boards), []);
    Incast {
        queue_full,
        ce_marked: counters.ce_marked,
        ce_seen,
        pauses: counters.pauses,
        pauses_seen,
        retransmitted,
    }
}

const PFC: PfcConfig = PfcConfig { priorities: 1 << 3, xoff_bytes: 8000, xon_bytes: 4000 };

#[test]
fn an_incast_loses_packets_unless_the_switch_pauses_the_senders() {
    let lossy = incast(None, None);
    assert!(lossy.queue_full > 0 && lossy.retransmitted > 0, "{lossy:?}");
    assert_eq!((lossy.pauses, lossy.pauses_seen, lossy.ce_marked), (0, 0, 0), "{lossy:?}");
    let lossless = incast(None, Some(PFC));
    assert_eq!((lossless.queue_full, lossless.retransmitted), (0, 0), "{lossless:?}");
    assert!(lossless.pauses > 0 && lossless.pauses_seen >= lossless.pauses, "{lossless:?}");
    // Pauses of another priority do not help.
    let other = incast(None, Some(PfcConfig { priorities: !(1 << 3), ..PFC }));
    assert!(other.queue_full > 0 && other.pauses == 0, "{other:?}");
}

#[test]
fn a_long_queue_marks_packets_and_the_receiver_counts_the_marks() {
    for ecn in [EcnConfig::step(20), EcnConfig { kmin_frames: 5, kmax_frames: 40, pmax: 0.2 }] {
        let incast = incast(Some(ecn), Some(PFC));
        assert_eq!((incast.queue_full, incast.ce_seen), (0, incast.ce_marked), "{incast:?}");
        assert!(incast.ce_marked > 100, "{incast:?}");
    }
    // A threshold that the queue does not reach marks nothing.
    let incast = incast(Some(EcnConfig::step(64)), Some(PFC));
    assert_eq!((incast.ce_marked, incast.ce_seen), (0, 0), "{incast:?}");
}
