//! RoCEv2 between boards over impaired lines. Both sides perform random operations; memory and completions
//! are compared with a model ([`crate::model`]). Then one side breaks a rule of memory protection, which must
//! change no byte of the other's guarded memory ([`crate::guarded`]).

use crate::guarded::{Guarded, SLOT, Slot, at};
use crate::model::{Half, Memory, attributes};
use kiban_base::ethernet::Mac;
use kiban_base::{Instant, SimRng};
use kiban_board::{BoardConfig, EthernetPortConfig, Host, IpPortConfig, PortConfig, RdmaConfig, RoceConfig};
use kiban_rdma::nic::{self, CmEvent};
use kiban_rdma::rnic::{
    Access, Binding, Completion, Data, Operation, QpState, Rnic, SendWork, Status, TaggedAddress,
};
use kiban_rdma::wire::rdmap::Atomic;
use kiban_sim::{
    Attachment, BoardNumber, CableConfig, CableNumber, ImpairmentConfig, Program, World, check as checks,
};
use kiban_tcpip::ethernet::LinkConfig;
use kiban_tcpip::ip::Prefix;
use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Worlds that `make test` simulates; `make soak` sets another number.
const SEEDS: u64 = 200;
const OPERATIONS: u64 = 60;
const SERVICE: u16 = 7471;
/// Within this time after the last impairment, everything has been retransmitted that was lost.
const PATIENCE: Duration = Duration::from_secs(60);
/// Work requests that are not part of the model have numbers from here on.
const OWN: u64 = 1 << 32;
/// The lines' MTU: the longest path MTU and its headers fit.
const MTU_BYTES: usize = 5000;

/// A program that connects or accepts, posts its work, and collects what happens.
struct Session {
    /// The listener's address, on the connecting side.
    remote: Option<SocketAddr>,
    cq: u32,
    qp: u32,
    works: Vec<SendWork>,
    completions: Vec<Completion>,
    connected: bool,
    gone: bool,
}

impl Program for Session {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        let mut rdma = host.rdma().expect("a NIC");
        match self.remote {
            Some(remote) => drop(rdma.connect_roce(remote, self.qp, (4, 4), b"private").expect("a route")),
            None => rdma.listen_roce(SERVICE).expect("free"),
        }
    }

    fn on_completion(&mut self, _: kiban_board::Completion, host: &mut Host<'_>, _: Instant) {
        let mut rdma = host.rdma().expect("a NIC");
        while let Some(event) = rdma.nic().poll() {
            match event {
                CmEvent::ConnectRequest(request) => {
                    assert!(request.private_data.starts_with(b"private\0"));
                    rdma.accept(request.end, self.qp, request.depths, b"too").expect("it waits");
                }
                CmEvent::Connected { .. } => {
                    self.connected = true;
                    for work in self.works.drain(..) {
                        rdma.nic().core.post_send(self.qp, work).expect("room");
                    }
                }
                CmEvent::Gone { end } => {
                    self.gone = true;
                    rdma.forget(end);
                }
                CmEvent::Failed { .. } | CmEvent::Withdrawn { .. } => panic!("{event:?}"),
            }
        }
        while let Ok(Some(done)) = rdma.nic().core.poll(self.cq) {
            self.completions.push(done);
        }
    }

    fn is_done(&self) -> bool {
        self.gone
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A program that posts one work request, whose completion [`Session`] collects.
struct Attack {
    qp: u32,
    work: Option<SendWork>,
}

impl Program for Attack {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        let mut rdma = host.rdma().expect("a NIC");
        let work = self.work.take().expect("it starts once");
        rdma.nic().core.post_send(self.qp, work).expect("room");
    }

    fn on_completion(&mut self, _: kiban_board::Completion, _: &mut Host<'_>, _: Instant) {}

    fn is_done(&self) -> bool {
        true
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// An operation that breaks a rule: what it is, the steering tag, and the bytes at the tag.
struct Row {
    name: &'static str,
    what: What,
    stag: fn(&Guarded, u32) -> u32,
    from: u64,
    length: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Write,
    Read,
    Add,
}

/// Returns every rule broken by every operation that can break it.
fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for what in [What::Write, What::Read, What::Add] {
        let mut add = |name, stag: fn(&Guarded, u32) -> u32, from, length| {
            let length = if what == What::Add { 8 } else { length };
            rows.push(Row { name, what, stag, from, length });
        };
        let open = |offset: u64| at(Slot::Open, offset);
        add("a tag that names nothing", |guard, _| guard.stag(Slot::Open) ^ 0x100, open(0), 8);
        add("another key", |guard, _| guard.stag(Slot::Open) ^ 1, open(0), 8);
        add("tag zero", |_, _| 0, open(0), 8);
        add("tag of all ones", |_, _| u32::MAX, open(0), 8);
        add("deregistered", |guard, _| guard.stag(Slot::Deregistered), at(Slot::Deregistered, 0), 8);
        add(
            "invalidated by its owner",
            |guard, _| guard.stag(Slot::Invalidated),
            at(Slot::Invalidated, 0),
            8,
        );
        add("another domain's", |guard, _| guard.stag(Slot::Foreign), at(Slot::Foreign, 0), 8);
        add("before a window", |_, window| window, at(Slot::Windowed, 0x38), 8);
        add("behind a window", |_, window| window, at(Slot::Windowed, 0xc0), 8);
        add("the region behind a window", |guard, _| guard.stag(Slot::Windowed), at(Slot::Windowed, 0x40), 8);
        add("for its owner only", |guard, _| guard.stag(Slot::Local), at(Slot::Local, 0), 8);
        add("for nobody", |guard, _| guard.stag(Slot::Constant), at(Slot::Constant, 0), 8);
        add("before it", |guard, _| guard.stag(Slot::Open), open(0) - 8, 16);
        add("behind it", |guard, _| guard.stag(Slot::Open), open(SLOT), 1);
        add("to a byte behind", |guard, _| guard.stag(Slot::Open), open(SLOT), 16);
        add("all of it and a byte", |guard, _| guard.stag(Slot::Open), open(SLOT), SLOT as u32 + 1);
        add("at zero", |guard, _| guard.stag(Slot::Open), 0, 8);
        add("around the end of all", |guard, _| guard.stag(Slot::Open), u64::MAX - 7, 16);
        if what != What::Write {
            add("for writing only", |guard, _| guard.stag(Slot::WriteOnly), at(Slot::WriteOnly, 0), 8);
        }
        if what != What::Read {
            add("for reading only", |guard, _| guard.stag(Slot::ReadOnly), at(Slot::ReadOnly, 0), 8);
        }
    }
    rows
}

impl Row {
    /// Returns the operation, with bytes of the attacker's memory.
    fn work(&self, guard: &Guarded, window: u32, memory: &Memory) -> SendWork {
        let remote = TaggedAddress { stag: (self.stag)(guard, window), offset: self.from };
        let operation = match self.what {
            What::Write => Operation::write(remote),
            What::Read => Operation::read(remote),
            What::Add => Operation::Atomic { remote, atomic: Atomic::FetchAdd { add: 1, mask: 0 } },
        };
        SendWork::new(OWN, operation, Data::one(memory.sge(0, self.length)))
    }
}

/// The impairments of the lines.
fn impairment(rng: &mut SimRng) -> ImpairmentConfig {
    let mut some = |most: f64| if rng.happens(0.7) { rng.unit() * most } else { 0.0 };
    ImpairmentConfig {
        loss: some(0.04),
        bit_error: some(0.02),
        duplicate: some(0.05),
        reorder: some(0.1),
        hold_back: Duration::from_micros(300),
        stalls: some(0.001),
        stall: Duration::from_millis(20),
        ..ImpairmentConfig::NONE
    }
}

fn addresses(is_v6: bool) -> [IpAddr; 2] {
    [1, 2].map(|n: u8| match is_v6 {
        true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into()).into(),
        false => Ipv4Addr::new(10, 0, 0, n).into(),
    })
}

/// Returns a board at `own`.
fn board(own: IpAddr, is_ethernet: bool, rng: &mut SimRng) -> BoardConfig {
    let prefix = Prefix::new(own, 24);
    let port = if is_ethernet {
        let mac = Mac([2, 0, 0, 0, 0, if own == addresses(false)[0] { 1 } else { 2 }]);
        let addresses = vec![(own, prefix)];
        let link = LinkConfig { mtu_bytes: MTU_BYTES, addresses, ..LinkConfig::new(mac) };
        PortConfig::Ethernet(EthernetPortConfig::on(link))
    } else {
        PortConfig::Ip(IpPortConfig {
            address: own,
            prefix,
            mtu_bytes: MTU_BYTES,
            packets_max: 1 + rng.below(256) as usize,
            cuts: false,
            merges: false,
            believe_sums: false,
        })
    };
    BoardConfig { ports: vec![port], ..BoardConfig::default() }
}

/// Calls `work` with the core of a board's NIC.
fn with<T>(world: &mut World, board: BoardNumber, work: impl FnOnce(&mut Rnic) -> T) -> T {
    let mut host = world.board_mut(board).host();
    let mut rdma = host.rdma().expect("a NIC");
    work(&mut rdma.nic().core)
}

/// Runs until `is_over`, or for a limited time.
fn run_until(world: &mut World, name: &str, mut is_over: impl FnMut(&mut World) -> bool) {
    let limit = world.now() + PATIENCE;
    while !is_over(world) {
        assert!(world.now() < limit, "{name}: it does not come to an end");
        world.collect(world.now() + Duration::from_millis(100));
    }
}

/// Sums of counters over all worlds.
#[derive(Default, Debug)]
struct Seen {
    impairments: [u64; 4],
    retransmitted: u64,
    refused: u64,
}

/// Simulates one world.
fn world(seed: u64, seen: &mut Seen) {
    let mut rng = SimRng::from_seed(seed);
    let rows = rows();
    let row = &rows[seed as usize % rows.len()];
    let name = format!("seed {seed} ({:?}: {})", row.what, row.name);
    let (is_v6, is_ethernet) = (rng.below(3) == 0, rng.happens(0.5));
    let addresses = addresses(is_v6);
    let mut world = World::new(seed);
    let roce = nic::RoceConfig {
        path_mtu: 256 << rng.below(5),
        window_bytes: 1 << (10 + rng.below(9)),
        ..nic::RoceConfig::default()
    };
    let boards = addresses.map(|own| {
        let roce = RoceConfig { nic: roce.clone(), ..RoceConfig::default() };
        let rdma = Some(RdmaConfig { roce: Some(roce), ..RdmaConfig::default() });
        world.add_board(&BoardConfig { rdma, ..board(own, is_ethernet && !is_v6, &mut rng) })
    });
    let line = CableConfig::ethernet(10_000_000_000, Duration::from_micros(1 + rng.below(100)));
    let impaired = CableConfig { impairment: impairment(&mut rng), ..line };
    let ends = boards.map(|board| Attachment::Board(board, 0));
    let (there, back) = world.connect_packets(ends[0], ends[1], &impaired).expect("they fit");

    // The memory of both sides, and what they will do.
    let mut window = 0;
    let mut guards = Vec::new();
    let mut sides = Vec::new();
    for board in boards {
        sides.push(with(&mut world, board, |core| {
            let (pd, cq) = (core.create_pd().expect("room"), core.create_cq(256).expect("room"));
            let qp = core.create_qp(attributes(pd, cq)).expect("room");
            guards.push(Guarded::new(core, pd));
            window = core.allocate_window(pd, false).expect("room");
            let memory = Memory::register(core, pd, 2 * SLOT as usize, Access::LOCAL).patterned();
            (Half::new(core, pd, true, &mut rng), cq, qp, memory)
        }));
    }
    let [(mut one, cq_one, qp_one, memory), (mut two, cq_two, qp_two, _)] =
        <[_; 2]>::try_from(sides).unwrap_or_else(|_| unreachable!("two sides"));
    let guard = guards.pop().expect("two sides");
    let binding = Binding {
        region: guard.stag(Slot::Windowed),
        address: at(Slot::Windowed, 0x40),
        length: 0x80,
        access: Access { remote_read: true, remote_write: true, remote_atomic: true, ..Access::NONE },
    };
    let local = [
        Operation::Bind { window, binding: Some(binding) },
        Operation::LocalInvalidate { stag: guard.stag(Slot::Invalidated) },
    ];
    let mut works = [
        Vec::new(),
        local.map(|operation| SendWork::new(OWN, operation, Data::none())).into_iter().collect(),
    ];
    for _ in 0..OPERATIONS {
        if rng.happens(0.5) {
            works[0].push(one.draw(&mut two, &mut rng));
            with(&mut world, boards[1], |core| two.post_receives(core, qp_two));
        } else {
            works[1].push(two.draw(&mut one, &mut rng));
            with(&mut world, boards[0], |core| one.post_receives(core, qp_one));
        }
    }
    let [works_one, works_two] = works;
    for (board, remote, cq, qp, works) in [
        (boards[0], Some(SocketAddr::new(addresses[1], SERVICE)), cq_one, qp_one, works_one),
        (boards[1], None, cq_two, qp_two, works_two),
    ] {
        let completions = Vec::new();
        let session = Session { remote, cq, qp, works, completions, connected: false, gone: false };
        world.run_program(board, Box::new(session));
    }
    let session = |world: &World, side: usize| -> (bool, bool, Vec<Completion>) {
        let session = world.program::<Session>(boards[side]).expect("it ran");
        let own = session.completions.iter().filter(|done| done.id < OWN).cloned().collect();
        (session.connected, session.gone, own)
    };
    run_until(&mut world, &name, |world| {
        let is_idle = |world: &mut World, board, qp| with(world, board, |core| !core.has_sends(qp));
        (0..2).all(|side| session(world, side).0)
            && is_idle(world, boards[0], qp_one)
            && is_idle(world, boards[1], qp_two)
    });
    let told = [0, 1].map(|side| session(&world, side).2);
    one.check(&told[0], &format!("{name}, side 0"));
    two.check(&told[1], &format!("{name}, side 1"));
    guard.assert_unchanged(&[], &name);
    for cable in [there, back] {
        count(&mut world, cable, seen);
        world.cable(cable).set_config(line);
    }
    seen.retransmitted +=
        boards.iter().map(|b| world.board(*b).counter("rdma", "packets_retransmitted")).sum::<u64>();

    // The attack. The lines no longer lose anything, so the NAK arrives.
    let work = row.work(&guard, window, &memory);
    world.run_program(boards[0], Box::new(Attack { qp: qp_one, work: Some(work) }));
    run_until(&mut world, &name, |world| (0..2).all(|side| session(world, side).1));
    let results: Vec<Status> = world
        .program::<Session>(boards[0])
        .expect("it ran")
        .completions
        .iter()
        .filter(|done| done.id == OWN)
        .map(|done| done.status)
        .collect();
    assert_eq!(results, [Status::RemoteAccess], "{name}");
    seen.refused += 1;
    for (board, qp) in boards.into_iter().zip([qp_one, qp_two]) {
        let state = with(&mut world, board, |core| core.query_qp(qp).expect("there").1);
        assert_eq!(state, QpState::Error, "{name}");
    }
    guard.assert_unchanged(&[], &name);
    one.check(&told[0], &format!("{name}, side 0 after the attack"));
    two.check(&told[1], &format!("{name}, side 1 after the attack"));
    assert_eq!(checks::check_idle(&mut world, &boards), [], "{name}");
}

/// Adds a cable's impairments.
fn count(world: &mut World, cable: CableNumber, seen: &mut Seen) {
    let counters = *world.cable(cable).impairment_counters();
    let each = [counters.lost, counters.corrupted, counters.duplicated, counters.reordered];
    seen.impairments.iter_mut().zip(each).for_each(|(sum, one)| *sum += one);
}

/// Returns the seeds: those of `make test`, or of `make soak`.
#[expect(clippy::disallowed_methods, reason = "`make soak` chooses the number of seeds")]
fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("KIBAN_SOAK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("KIBAN_SOAK_SEEDS").unwrap_or(SEEDS),
    }
}

#[test]
fn impaired_roce_worlds_end_as_the_model_predicts_and_break_no_protection() {
    let mut seen = Seen::default();
    let seeds = seeds();
    let count = seeds.end - seeds.start;
    seeds.for_each(|seed| world(seed, &mut seen));
    println!("{count} worlds: {seen:?}");
    assert_eq!(seen.refused, count);
    if count >= SEEDS {
        assert!(seen.impairments.iter().all(|&sum| sum > count), "the lines impair too little: {seen:?}");
        assert!(seen.retransmitted > count, "{seen:?}");
    }
}
