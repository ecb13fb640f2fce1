//! VI NICs of boards in the world, on a cLAN-like cable, with and without impairments.

use kiban_base::{Instant, Region};
use kiban_board::{BoardConfig, Completion, Host, PortConfig};
use kiban_sim::{Attachment, CableConfig, ImpairmentConfig, Program, World};
use kiban_vi::{
    CompletionKind, DataSegment, Event, MemoryAttributes, Nic, PathTraits, Reliability, Status, ViAttributes,
    ViState, Work,
};
use std::any::Any;
use std::time::Duration;

const PACKET_BYTES: usize = 4096;
const MESSAGE_BYTES: u32 = 20_000;
const BASE: u64 = 0x1_0000;
const SECOND: Instant = Instant::from_nanos(1_000_000_000);

/// Creates a VI and memory for `messages` messages.
fn prepare(nic: &mut Nic, reliability: Reliability, messages: u64) -> (u32, u32, Region) {
    let tag = nic.create_tag().expect("room");
    let memory = Region::new(BASE, (messages * u64::from(MESSAGE_BYTES)) as usize);
    let closed = MemoryAttributes { tag, rdma_write: false, rdma_read: false };
    let handle = nic.register(memory.clone(), closed).expect("room");
    let attributes = ViAttributes {
        reliability,
        transfer_bytes_max: MESSAGE_BYTES,
        qos: 0,
        tag,
        rdma_write: false,
        rdma_read: false,
    };
    (nic.create_vi(attributes, None, None).expect("room"), handle, memory)
}

fn block(handle: u32, number: u64) -> [DataSegment; 1] {
    [DataSegment { address: BASE + number * u64::from(MESSAGE_BYTES), handle, length: MESSAGE_BYTES }]
}

fn pattern(number: u64) -> Vec<u8> {
    (0..MESSAGE_BYTES).map(|at| (u64::from(at) * 31 + number * 7) as u8).collect()
}

/// A program that connects and sends.
struct Sender {
    reliability: Reliability,
    messages: u64,
    path: u32,
    vi: u32,
    handle: u32,
    posted: bool,
    done: Vec<Status>,
    lost: bool,
    /// The time at which the last transfer finished.
    at: Instant,
}

impl Program for Sender {
    fn start(&mut self, host: &mut Host<'_>, now: Instant) {
        let nic = host.vi().expect("the board has a VI port");
        let (vi, handle, memory) = prepare(nic, self.reliability, self.messages);
        (0..self.messages).for_each(|n| {
            let at = BASE + n * u64::from(MESSAGE_BYTES);
            memory.write(at, pattern(n)[..].into()).expect("within");
        });
        (self.vi, self.handle) = (vi, handle);
        nic.request(vi, self.path, (b"a", b"b"), false, now, SECOND).expect("idle");
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        let (Completion::Vi, Some(nic)) = (completion, host.vi()) else { return };
        if !self.posted && matches!(nic.outcome(self.vi), Ok(Some(Ok(_)))) {
            self.posted = true;
            for n in 0..self.messages {
                nic.post_send(self.vi, Work::send(n, &block(self.handle, n))).expect("connected");
            }
        }
        while let Ok(Some(done)) = nic.send_done(self.vi) {
            assert_eq!((done.kind, done.cookie), (CompletionKind::Send, self.done.len() as u64));
            self.done.push(done.status);
            self.at = now;
        }
        while let Some(event) = nic.event() {
            self.lost |= matches!(event, Event::ConnectionLost { .. });
        }
    }

    fn is_done(&self) -> bool {
        self.done.len() as u64 == self.messages
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A program that waits for a connection and receives.
struct Receiver {
    reliability: Reliability,
    messages: u64,
    vi: u32,
    memory: Option<Region>,
    received: Vec<u64>,
    wanted: u64,
    at: Instant,
}

impl Program for Receiver {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        let nic = host.vi().expect("the board has a VI port");
        let (vi, handle, memory) = prepare(nic, self.reliability, self.messages);
        (0..self.messages).for_each(|n| nic.post_receive(vi, n, &block(handle, n)).expect("room"));
        nic.listen(b"b").expect("room");
        (self.vi, self.memory) = (vi, Some(memory));
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        let (Completion::Vi, Some(nic)) = (completion, host.vi()) else { return };
        if let Some(request) = nic.request_at(b"b") {
            nic.accept(request.number, self.vi, now).expect("alike");
        }
        while let Ok(Some(done)) = nic.receive_done(self.vi) {
            if done.status.is_ok() {
                assert_eq!(done.length, MESSAGE_BYTES);
                self.received.push(done.cookie);
                self.at = now;
            }
        }
    }

    fn is_done(&self) -> bool {
        self.received.len() as u64 >= self.wanted
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn world(
    reliability: Reliability,
    messages: u64,
    wanted: u64,
    impairment: ImpairmentConfig,
) -> (World, [kiban_sim::BoardNumber; 2]) {
    let is_unimpaired = impairment == ImpairmentConfig::NONE;
    let traits = PathTraits { packet_bytes: PACKET_BYTES, lossless: is_unimpaired, checked: !is_unimpaired };
    let mut world = World::new(11);
    let boards = [(); 2].map(|()| {
        world.add_board(&BoardConfig { ports: vec![PortConfig::Vi(traits)], ..BoardConfig::default() })
    });
    let cable = CableConfig { impairment, ..CableConfig::clan() };
    world
        .connect_packets(Attachment::Board(boards[0], 0), Attachment::Board(boards[1], 0), &cable)
        .expect("both are for VI");
    let path = world.board(boards[0]).vi_path(0).expect("a VI port");
    world.run_program(
        boards[1],
        Box::new(Receiver {
            reliability,
            messages,
            vi: 0,
            memory: None,
            received: Vec::new(),
            wanted,
            at: Instant::ZERO,
        }),
    );
    world.run_program(
        boards[0],
        Box::new(Sender {
            reliability,
            messages,
            path,
            vi: 0,
            handle: 0,
            posted: false,
            done: Vec::new(),
            lost: false,
            at: Instant::ZERO,
        }),
    );
    (world, boards)
}

#[test]
fn a_clan_like_cable_is_filled_and_loses_nothing() {
    for reliability in [Reliability::Unreliable, Reliability::Delivery, Reliability::Reception] {
        let (mut world, boards) = world(reliability, 100, 100, ImpairmentConfig::NONE);
        assert!(world.run(SECOND), "{reliability:?}");
        let receiver = world.program::<Receiver>(boards[1]).expect("it runs");
        assert_eq!(receiver.received, (0..100).collect::<Vec<_>>());
        let memory = receiver.memory.as_ref().expect("it has started");
        for n in 0..100 {
            let at = BASE + n * u64::from(MESSAGE_BYTES);
            assert!(memory.read(at, MESSAGE_BYTES as usize).expect("within") == pattern(n), "message {n}");
        }
        // At 100 MB/s, 2 MB and the headers of 500 packets take this long, plus the set-up and the delay.
        let bytes = 100 * u64::from(MESSAGE_BYTES) + 500 * 32;
        let line = Duration::from_nanos(bytes * 10);
        let taken = receiver.at.since(Instant::ZERO);
        assert!(
            taken >= line && taken < line + Duration::from_micros(50),
            "{reliability:?}: {taken:?} for {line:?}"
        );
        let sender = world.program::<Sender>(boards[0]).expect("it runs");
        assert!(sender.done.iter().all(|status| status.is_ok()) && !sender.lost);
    }
}

#[test]
fn an_impaired_cable_costs_only_time_on_the_reliable_levels() {
    let impairment =
        ImpairmentConfig { loss: 0.02, bit_error: 0.01, duplicate: 0.02, ..ImpairmentConfig::NONE };
    for reliability in [Reliability::Delivery, Reliability::Reception] {
        let (mut world, boards) = world(reliability, 100, 100, impairment);
        assert!(world.run(Instant::from_nanos(20_000_000_000)), "{reliability:?}");
        let receiver = world.program::<Receiver>(boards[1]).expect("it runs");
        assert_eq!(receiver.received, (0..100).collect::<Vec<_>>());
        let memory = receiver.memory.as_ref().expect("it has started");
        assert!((0..100).all(|n| {
            let at = BASE + n * u64::from(MESSAGE_BYTES);
            memory.read(at, MESSAGE_BYTES as usize).expect("within") == pattern(n)
        }));
        assert!(world.board(boards[0]).counter("vi", "retransmits") > 0);
        assert!(
            world.board(boards[1]).counter("vi", "malformed") > 0,
            "corrupted packets were seen for what they are"
        );
    }
}

#[test]
fn an_impaired_cable_costs_messages_on_the_unreliable_level() {
    let impairment = ImpairmentConfig { loss: 0.02, ..ImpairmentConfig::NONE };
    let (mut world, boards) = world(Reliability::Unreliable, 100, 100, impairment);
    world.run(SECOND);
    let received = &world.program::<Receiver>(boards[1]).expect("it runs").received;
    // A message has five packets, so 1 - 0.98^5 = 9.6 % of the messages are lost. Descriptors are consumed
    // in order.
    assert!((80..99).contains(&received.len()), "{} of 100", received.len());
    assert_eq!(*received, (0..received.len() as u64).collect::<Vec<_>>());
    let sender = world.program::<Sender>(boards[0]).expect("it runs");
    assert!(sender.done.iter().all(|status| status.is_ok()), "the sender does not learn of it");
}

#[test]
fn a_cable_that_goes_dark_ends_the_connection() {
    let impairment = ImpairmentConfig { loss: 1e-9, ..ImpairmentConfig::NONE };
    let (mut world, boards) = world(Reliability::Reception, 1000, 1000, impairment);
    world.run(Instant::from_nanos(20_000_000));
    let dark = CableConfig {
        impairment: ImpairmentConfig { loss: 1.0, ..ImpairmentConfig::NONE },
        ..CableConfig::clan()
    };
    for cable in world.cables() {
        world.cable(cable).set_config(dark);
    }
    world.settle(Instant::from_nanos(3_000_000_000));
    let sender = world.program::<Sender>(boards[0]).expect("it runs");
    assert!(sender.lost && sender.done.len() == 1000, "{} done", sender.done.len());
    // Transfers in progress report their result; those that had not started complete with the status flushed.
    assert!(sender.done.iter().any(|status| status.has(Status::FLUSHED)));
    let vi = sender.vi;
    let state = world.board_mut(boards[0]).host().vi().expect("a VI port").vi(vi).expect("there").0;
    assert_eq!(state, ViState::Error);
}
