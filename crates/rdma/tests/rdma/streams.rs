//! Queue pairs over MPA: two streams connected by a pipe that splits bytes at arbitrary positions.

use crate::fixture::pair::{Side, TRAITS};
use kiban_base::{SharedBytes, SimRng};
use kiban_rdma::iwarp::mpa::{Config, CrcUse};
use kiban_rdma::iwarp::stream::{Chunk, Stream, StreamEvent};
use kiban_rdma::rnic::{
    Access, Data, Kind, Operation, PlacementBuffers, QpState, Status, StreamAction, TaggedAddress,
};

struct End {
    side: Side,
    stream: Stream,
    /// Whether payload is stored directly, as a socket would store it. This includes the remainder of a long
    /// frame that must be complete before it is processed.
    lands: bool,
    /// Number of payload bytes stored directly.
    came_direct: usize,
}

impl End {
    /// Returns the bytes that the stream can send now, at most `most`.
    fn pull(&mut self, most: usize) -> Vec<u8> {
        while let Some(qp) = self.side.nic.pop_tx_queue() {
            assert_eq!(qp, self.side.qp);
        }
        if !self.stream.fill(&mut self.side.nic) {
            return Vec::new();
        }
        let mut bytes = Vec::new();
        for chunk in self.stream.chunks() {
            match chunk {
                Chunk::Own(own) => bytes.extend_from_slice(own),
                Chunk::Memory(region) => {
                    bytes.extend(region.read(region.address(), region.len()).expect("within"));
                }
            }
        }
        assert_eq!(bytes.len(), self.stream.unsent_bytes());
        bytes.truncate(most);
        self.stream.advance(&mut self.side.nic, bytes.len());
        bytes
    }

    fn push(&mut self, mut bytes: &[u8]) {
        let mut places = PlacementBuffers::new();
        if self.lands && self.stream.placement_buffers(&mut self.side.nic, &mut places) > 0 {
            let before = bytes.len();
            for place in &places {
                let (front, rest) = bytes.split_at(bytes.len().min(place.len()));
                place.write(place.address(), SharedBytes::from(front)).expect("within");
                bytes = rest;
            }
            self.stream.on_placed(&mut self.side.nic, before - bytes.len());
        } else if self.lands {
            let room = self.stream.frame_remainder();
            let count = room.len().min(bytes.len());
            let (front, rest) = bytes.split_at(count);
            room[..count].copy_from_slice(front);
            if count > 0 {
                self.stream.on_remainder_received(&mut self.side.nic, count);
                self.came_direct += count;
            }
            bytes = rest;
        }
        self.stream.arrive(&mut self.side.nic, bytes);
    }
}

struct Joined {
    one: End,
    two: End,
    rng: SimRng,
    most: u64,
    /// Bytes in transit.
    bytes: u64,
}

impl Joined {
    /// Connects side `one` to side `two`, which accepts.
    fn new(one: &Config, two: &Config, lands: bool, most: u64, seed: u64) -> Joined {
        let (left, right) = (Side::new(seed, 0), Side::new(seed + 1, 0));
        let stream = Stream::initiate(one, left.qp, (TRAITS.ird, TRAITS.ord), b"hello").expect("short");
        let one = End { side: left, stream, lands, came_direct: 0 };
        let two = End { side: right, stream: Stream::respond(two), lands, came_direct: 0 };
        let mut joined = Joined { one, two, rng: SimRng::from_seed(seed), most, bytes: 0 };
        joined.run();
        let asked = joined.two.stream.poll();
        assert!(
            matches!(&asked, Some(StreamEvent::Asked { private_data, .. }) if private_data == b"hello"),
            "{asked:?}"
        );
        let two = &mut joined.two;
        two.stream.accept(&mut two.side.nic, two.side.qp, (4, 4), b"welcome").expect("short");
        joined.run();
        let news = joined.one.stream.poll();
        assert!(
            matches!(&news, Some(StreamEvent::Connected { private_data, .. }) if private_data == b"welcome"),
            "{news:?}"
        );
        joined
    }

    fn run(&mut self) {
        loop {
            let mut moved = false;
            for direction in 0..2 {
                let most = 1 + self.rng.below(self.most) as usize;
                let (from, to) = match direction {
                    0 => (&mut self.one, &mut self.two),
                    _ => (&mut self.two, &mut self.one),
                };
                if !to.stream.wants_bytes() {
                    continue;
                }
                let bytes = from.pull(most);
                moved |= !bytes.is_empty();
                self.bytes += bytes.len() as u64;
                // A pipe delivers an arbitrary number of bytes at a time.
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let cut = 1 + self.rng.below(rest.len() as u64) as usize;
                    to.push(&rest[..cut]);
                    rest = &rest[cut..];
                }
                if bytes.is_empty() && from.stream.action(&from.side.nic) != StreamAction::Open {
                    let in_order = from.stream.action(&from.side.nic) == StreamAction::Finish;
                    from.stream.on_closed(&mut from.side.nic, in_order);
                    to.stream.on_closed(&mut to.side.nic, in_order);
                }
            }
            if !moved {
                return;
            }
        }
    }
}

fn configs() -> Vec<(&'static str, Config, Config)> {
    let plain = Config { extensions: true, ..Config::default() };
    let crc = Config { crc: CrcUse::Wanted, ..plain.clone() };
    let markers = Config { markers: true, ..plain.clone() };
    let both = Config { markers: true, crc: CrcUse::Required, ..plain.clone() };
    let rtr = |empty, write, read| Config {
        peer_to_peer: true,
        rtr_empty: empty,
        rtr_write: write,
        rtr_read: read,
        ..plain.clone()
    };
    let first = Config { revision: 1, ..plain.clone() };
    vec![
        ("plain", plain.clone(), plain.clone()),
        ("crc asked", crc.clone(), plain.clone()),
        ("crc answered", plain.clone(), crc),
        ("markers to one", markers.clone(), plain.clone()),
        ("markers to two", plain.clone(), markers),
        ("markers and crc", both.clone(), both),
        ("ready by nothing", rtr(true, false, false), rtr(true, true, true)),
        ("ready by a write", rtr(true, true, true), rtr(true, true, true)),
        ("ready by a read", rtr(false, false, true), rtr(true, true, true)),
        ("revision 1", first, plain),
    ]
}

#[test]
fn every_operation_goes_both_ways_however_the_stream_is_cut_and_checked() {
    for (name, one, two) in configs() {
        for (lands, most) in [(true, 300_000), (false, 300_000), (true, 40_000), (false, 100)] {
            let mut joined = Joined::new(&one, &two, lands, most, 11);
            let length = if most < 1000 { 20_000 } else { 200_000 };
            for turn in 0..2 {
                let Joined { one, two, .. } = &mut joined;
                let (from, to) = if turn == 0 { (one, two) } else { (two, one) };
                let source = from.side.pattern(length, Access::ALL);
                let target = to.side.memory(length, Access::ALL);
                let place = TaggedAddress { stag: target.stag, offset: target.region.address() };
                let whole = length as u32;
                to.side.receive(8, &[]);
                to.side.receive(9, &[target.sge(0, whole)]);
                from.side.send(1, Operation::write(place), Data::one(source.sge(0, whole)));
                from.side.send(2, Operation::SEND, Data::none());
                joined.run();
                assert_eq!(target.bytes(), source.bytes(), "{name}: a write");
                target.fill(&vec![0; length]);
                let Joined { one, two, .. } = &mut joined;
                let from = if turn == 0 { one } else { two };
                from.side.send(3, Operation::SEND, Data::one(source.sge(0, whole)));
                joined.run();
                assert_eq!(target.bytes(), source.bytes(), "{name}: a send");
                let Joined { one, two, .. } = &mut joined;
                let (from, to) = if turn == 0 { (one, two) } else { (two, one) };
                let back = from.side.memory(length, Access::LOCAL);
                from.side.send(4, Operation::read(place), Data::one(back.sge(0, whole)));
                from.side.send(5, Operation::Immediate { data: 5 }, Data::none());
                to.side.receive(10, &[]);
                joined.run();
                assert_eq!(back.bytes(), source.bytes(), "{name}: a read");
                let Joined { one, two, .. } = &mut joined;
                let (from, to) = if turn == 0 { (one, two) } else { (two, one) };
                let done = from.side.completions();
                assert!(done.iter().all(|done| done.status == Status::Success), "{name}: {done:?}");
                assert_eq!(done.len(), 5);
                let events: Vec<(u64, Kind)> =
                    to.side.completions().iter().map(|done| (done.id, done.kind)).collect();
                assert_eq!(
                    events,
                    [(8, Kind::Receive), (9, Kind::Receive), (10, Kind::ReceiveImmediate)],
                    "{name}"
                );
            }
            if lands && most > 100_000 && name == "plain" {
                assert!(joined.two.side.nic.counters().direct_bytes > 0, "long payloads land");
            }
        }
    }
}

#[test]
fn a_long_frame_is_buffered_only_if_its_crc_must_be_checked() {
    for (crc, direct) in [(CrcUse::Off, false), (CrcUse::Wanted, true)] {
        let config = Config { crc, ..Config::default() };
        let mut joined = Joined::new(&config, &config, true, 100_000, 5);
        let length = 300_000;
        let Joined { one, two, .. } = &mut joined;
        let source = one.side.pattern(length, Access::NONE);
        let target = two.side.memory(length, Access::ALL);
        let place = TaggedAddress { stag: target.stag, offset: target.region.address() };
        one.side.send(1, Operation::write(place), Data::one(source.sge(0, length as u32)));
        joined.run();
        assert!(target.bytes() == source.bytes(), "{crc:?}");
        assert_eq!(joined.two.came_direct > length / 10, direct, "{crc:?}: {}", joined.two.came_direct);
        assert!(joined.two.stream.frame_remainder().is_empty(), "nothing is awaited between frames");
    }
}

#[test]
fn a_bad_crc_writes_nothing_and_ends_the_stream() {
    let crc = Config { crc: CrcUse::Wanted, ..Config::default() };
    let mut joined = Joined::new(&crc, &Config::default(), true, 1 << 20, 5);
    let Joined { one, two, .. } = &mut joined;
    let source = one.side.pattern(50_000, Access::NONE);
    let target = two.side.memory(50_000, Access::ALL);
    let place = TaggedAddress { stag: target.stag, offset: target.region.address() };
    one.side.send(1, Operation::write(place), Data::one(source.sge(0, 50_000)));
    let mut bytes = one.pull(usize::MAX);
    bytes[30_000] ^= 0x10;
    two.push(&bytes);
    assert!(target.bytes().iter().all(|&byte| byte == 0));
    assert_eq!(two.side.nic.counters().bad_crc, 1);
    joined.run();
    assert_eq!(joined.one.side.nic.counters().terminates_in, 1);
    for end in [&joined.one, &joined.two] {
        assert_eq!(end.side.nic.query_qp(end.side.qp).expect("there").1, QpState::Error);
    }
}

#[test]
fn invalidated_memory_is_first_copied_into_the_burst() {
    let mut joined = Joined::new(&Config::default(), &Config::default(), true, 1 << 20, 5);
    let Joined { one, two, .. } = &mut joined;
    let source = one.side.pattern(50_000, Access::NONE);
    let target = two.side.memory(50_000, Access::ALL);
    let place = TaggedAddress { stag: target.stag, offset: target.region.address() };
    let expected = source.bytes();
    one.side.send(1, Operation::write(place), Data::one(source.sge(0, 50_000)));
    let front = one.pull(1000);
    one.side.nic.deregister(source.stag).expect("there");
    one.stream.release_memory(&source.region);
    source.fill(&vec![0xee; 50_000]);
    two.push(&front);
    joined.run();
    assert_eq!(target.bytes(), expected);
}

#[test]
fn a_message_without_a_receive_waits_if_configured() {
    let mut joined = Joined::new(&Config::default(), &Config::default(), true, 1 << 20, 5);
    let Joined { one, two, .. } = &mut joined;
    // Replace the queue pair of `two` with one that waits for receives.
    let attributes = kiban_rdma::rnic::QpAttributes {
        waits_for_receives: true,
        ..crate::fixture::pair::attributes(two.side.pd, two.side.cq)
    };
    let qp = two.side.nic.create_qp(attributes).expect("room");
    let (mut left, mut right) = (
        Stream::initiate(&Config::default(), one.side.qp, (1, 1), b"").expect("short"),
        Stream::respond(&Config::default()),
    );
    one.side.nic.abort(one.side.qp).expect("there");
    one.side.nic.reset(one.side.qp).expect("over");
    std::mem::swap(&mut one.stream, &mut left);
    std::mem::swap(&mut two.stream, &mut right);
    two.side.qp = qp;
    joined.run();
    let two = &mut joined.two;
    two.stream.poll();
    two.stream.accept(&mut two.side.nic, qp, (1, 1), b"").expect("short");
    joined.run();
    let one = &mut joined.one;
    for id in 0..3 {
        one.side.send(id, Operation::SEND, Data::Inline((0..100).map(|at| at + id as u8).collect()));
    }
    joined.run();
    let two = &mut joined.two;
    assert!(!two.stream.wants_bytes(), "it stands");
    let target = two.side.memory(300, Access::LOCAL);
    for id in 0..3u64 {
        two.side.receive(id, &[target.sge(id * 100, 100)]);
        while let Some(qp) = two.side.nic.next_resumable() {
            assert_eq!(qp, two.side.qp);
            two.stream.resume(&mut two.side.nic);
        }
    }
    assert_eq!(two.side.completions().len(), 3);
    let expected: Vec<u8> = (0..3u8).flat_map(|id| (0..100).map(move |at| at + id)).collect();
    assert_eq!(target.bytes(), expected);
}

#[test]
fn a_long_frame_may_be_cut_anywhere_its_trailer_included() {
    let length = 17_000u32;
    let run = |cut: Option<usize>| {
        let mut joined = Joined::new(&Config::default(), &Config::default(), true, 1 << 20, 5);
        let Joined { one, two, .. } = &mut joined;
        let source = one.side.pattern(length as usize, Access::NONE);
        let target = two.side.memory(length as usize, Access::ALL);
        let place = TaggedAddress { stag: target.stag, offset: target.region.address() };
        for id in 0..2 {
            one.side.send(id, Operation::write(place), Data::one(source.sge(0, length)));
        }
        let bytes = one.pull(usize::MAX);
        let (front, rest) = bytes.split_at(cut.unwrap_or(0));
        two.push(front);
        two.push(rest);
        assert_eq!(two.side.nic.counters().writes_in, 2, "cut at {cut:?}");
        assert_eq!(target.bytes(), source.bytes(), "cut at {cut:?}");
        bytes.len()
    };
    let all = run(None);
    // All positions near the borders of frames, and some within.
    let near = |cut: usize| [0, all / 2, all].iter().any(|border| cut.abs_diff(*border) < 40);
    for cut in (0..=all).filter(|&cut| near(cut) || cut % 997 == 0) {
        run(Some(cut));
    }
}

#[test]
fn a_read_response_has_the_contents_before_a_later_invalidation() {
    let mut joined = Joined::new(&Config::default(), &Config::default(), true, 1 << 20, 5);
    let Joined { one, two, .. } = &mut joined;
    let source = two.side.pattern(100_000, Access::ALL);
    let expected = source.bytes();
    let back = one.side.memory(100_000, Access::LOCAL);
    let place = TaggedAddress { stag: source.stag, offset: source.region.address() };
    two.side.receive(7, &[]);
    one.side.send(1, Operation::read(place), Data::one(back.sge(0, 100_000)));
    let request = one.pull(usize::MAX);
    two.push(&request);
    let front = two.pull(1000);
    one.side.send(2, Operation::Send { invalidate: Some(source.stag) }, Data::none());
    let invalidate = one.pull(usize::MAX);
    two.push(&invalidate);
    // Release invalidated memory, as a driver does after each round of work.
    let withdrawn = two.side.nic.next_invalidated().expect("the tag is gone");
    two.stream.release_memory(&withdrawn);
    source.fill(&vec![0xee; 100_000]);
    one.push(&front);
    joined.run();
    assert!(joined.one.side.nic.counters().direct_bytes > 0);
    assert_eq!(back.bytes()[..60_000], expected[..60_000], "the burst that was under way");
    let came = back.bytes();
    assert!((0..came.len()).all(|at| [0, expected[at]].contains(&came[at])), "nothing of what came later");
}
