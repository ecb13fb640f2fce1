//! Two NICs and the path between them.

use kiban_base::{Instant, Region, RngKey, SharedBytes, SharedRoom, SimRng};
use kiban_vi::{
    Completion, Config, DataSegment, Event, MemoryAttributes, Nic, PathTraits, Reliability, RequestError,
    ViAttributes, ViState, Work,
};
use std::collections::VecDeque;
use std::time::Duration;

pub(crate) const PACKET_BYTES: usize = 1024;
/// The address of the memory on each side.
pub(crate) const BASE: u64 = 0x10_0000;
pub(crate) const MEMORY_BYTES: usize = 1 << 18;
/// One-way delay of a packet.
pub(crate) const DELAY: Duration = Duration::from_micros(10);

pub(crate) struct Side {
    pub(crate) nic: Nic,
    pub(crate) path: u32,
    pub(crate) tag: u32,
    pub(crate) memory: Region,
    pub(crate) handle: u32,
    pub(crate) vi: u32,
    pub(crate) arriving: VecDeque<(Instant, Vec<u8>)>,
}

/// Impairments of the path.
#[derive(Clone, Copy, Default)]
pub(crate) struct Impairment {
    pub(crate) loss: f64,
    pub(crate) doubling: f64,
    pub(crate) reordering: f64,
    pub(crate) corruption: f64,
}

pub(crate) struct Pair {
    pub(crate) sides: [Side; 2],
    pub(crate) now: Instant,
    pub(crate) impairment: Impairment,
    pub(crate) rng: SimRng,
    pub(crate) packets: u64,
}

pub(crate) fn attributes(reliability: Reliability, tag: u32) -> ViAttributes {
    let rdma_read = reliability != Reliability::Unreliable;
    ViAttributes { reliability, transfer_bytes_max: 1 << 17, qos: 0, tag, rdma_write: true, rdma_read }
}

fn side(config: &Config, reliability: Reliability, traits: PathTraits, seed: u64) -> Side {
    let mut nic = Nic::new(config.clone(), RngKey::for_simulation(seed));
    let path = nic.open_path(traits).expect("room for a path");
    let tag = nic.create_tag().expect("room for a tag");
    let memory = Region::new(BASE, MEMORY_BYTES);
    let all = MemoryAttributes { tag, rdma_write: true, rdma_read: true };
    let handle = nic.register(memory.clone(), all).expect("room for memory");
    let vi = nic.create_vi(attributes(reliability, tag), None, None).expect("room for a VI");
    Side { nic, path, tag, memory, handle, vi, arriving: VecDeque::new() }
}

impl Pair {
    /// Creates two NICs that are not connected, on a lossless or a lossy path.
    pub(crate) fn strangers(reliability: Reliability, loses_nothing: bool, config: &Config) -> Pair {
        let traits =
            PathTraits { packet_bytes: PACKET_BYTES, lossless: loses_nothing, checked: !loses_nothing };
        let sides = [1, 2].map(|seed| side(config, reliability, traits, seed));
        Pair {
            sides,
            now: Instant::ZERO,
            impairment: Impairment::default(),
            rng: SimRng::from_seed(7),
            packets: 0,
        }
    }

    /// Creates two connected VIs.
    pub(crate) fn connected(reliability: Reliability, loses_nothing: bool, config: &Config) -> Pair {
        let mut pair = Pair::strangers(reliability, loses_nothing, config);
        pair.connect();
        pair
    }

    /// Connects from side 0; side 1 accepts.
    pub(crate) fn connect(&mut self) {
        self.sides[1].nic.listen(b"port").expect("room for a listener");
        self.ask(Duration::from_secs(1)).expect("the VI is idle");
        self.run(Duration::from_millis(1));
        let request = self.sides[1].nic.request_at(b"port").expect("the request arrived");
        let (vi, now) = (self.sides[1].vi, self.now);
        self.sides[1].nic.accept(request.number, vi, now).expect("the ends are alike");
        self.run(Duration::from_millis(1));
        let vi = self.sides[0].vi;
        assert!(matches!(self.sides[0].nic.outcome(vi), Ok(Some(Ok(_)))));
        assert_eq!([self.state(0), self.state(1)], [ViState::Connected; 2]);
    }

    pub(crate) fn ask(&mut self, patience: Duration) -> Result<(), RequestError> {
        let now = self.now;
        let Side { nic, vi, path, .. } = &mut self.sides[0];
        nic.request(*vi, *path, (b"mine", b"port"), false, now, now + patience)
    }

    pub(crate) fn state(&self, side: usize) -> ViState {
        let Side { nic, vi, .. } = &self.sides[side];
        nic.vi(*vi).expect("the VI is there").0
    }

    /// Advances the time.
    pub(crate) fn run(&mut self, length: Duration) {
        let until = self.now + length;
        loop {
            self.flush();
            let arrival = self.sides.iter().filter_map(|side| Some(side.arriving.front()?.0)).min();
            let deadline = self.sides.iter().map(|side| side.nic.deadline()).min().expect("two sides");
            let next = arrival.unwrap_or(Instant::NEVER).min(deadline).max(self.now);
            if next > until {
                self.now = until;
                return;
            }
            // At a deadline, advance the time by one more nanosecond, so that it always advances.
            self.now =
                if arrival == Some(next) { next } else { next.max(self.now) + Duration::from_nanos(1) };
            for side in 0..2 {
                while self.sides[side].arriving.front().is_some_and(|packet| packet.0 <= self.now) {
                    let (_, bytes) = self.sides[side].arriving.pop_front().expect("it is there");
                    let Side { nic, path, .. } = &mut self.sides[side];
                    nic.arrive(*path, SharedBytes::from(&bytes[..]), self.now);
                }
            }
        }
    }

    /// Moves packets from both sides to the path.
    fn flush(&mut self) {
        for from in 0..2 {
            let Side { nic, path, .. } = &mut self.sides[from];
            let path = *path;
            nic.settle(self.now);
            let mut room = [0; PACKET_BYTES];
            let mut sent = Vec::new();
            while let Some(length) = nic.fetch(path, &mut SharedRoom::from(&mut room[..]), self.now) {
                sent.push(room[..length].to_vec());
                assert!(sent.len() < 100_000, "a NIC sends without end");
            }
            for mut bytes in sent {
                self.packets += 1;
                let Impairment { loss, doubling, reordering, corruption } = self.impairment;
                if self.rng.happens(loss) {
                    continue;
                }
                if self.rng.happens(corruption) {
                    let bit = self.rng.below(bytes.len() as u64 * 8) as usize;
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
                let late = if self.rng.happens(reordering) { DELAY * 3 } else { Duration::ZERO };
                let copies = if self.rng.happens(doubling) { 2 } else { 1 };
                for _ in 0..copies {
                    let at = self.now + DELAY + late;
                    let queue = &mut self.sides[1 - from].arriving;
                    let place = queue.partition_point(|packet| packet.0 <= at);
                    queue.insert(place, (at, bytes.clone()));
                }
            }
        }
    }

    /// Returns a range in a side's memory as a segment.
    pub(crate) fn at(&self, side: usize, offset: u64, length: u32) -> DataSegment {
        DataSegment { address: BASE + offset, handle: self.sides[side].handle, length }
    }

    pub(crate) fn send(&mut self, side: usize, work: Work<'_>) -> Result<(), RequestError> {
        let Side { nic, vi, .. } = &mut self.sides[side];
        nic.post_send(*vi, work)
    }

    pub(crate) fn receive(&mut self, side: usize, cookie: u64, segments: &[DataSegment]) {
        let Side { nic, vi, .. } = &mut self.sides[side];
        nic.post_receive(*vi, cookie, segments).expect("room for a descriptor");
    }

    pub(crate) fn sent(&mut self, side: usize) -> Option<Completion> {
        let Side { nic, vi, .. } = &mut self.sides[side];
        nic.send_done(*vi).expect("the VI is there")
    }

    pub(crate) fn received(&mut self, side: usize) -> Option<Completion> {
        let Side { nic, vi, .. } = &mut self.sides[side];
        nic.receive_done(*vi).expect("the VI is there")
    }

    pub(crate) fn events(&mut self, side: usize) -> Vec<Event> {
        std::iter::from_fn(|| self.sides[side].nic.event()).collect()
    }

    pub(crate) fn fill(&mut self, side: usize, offset: u64, bytes: &[u8]) {
        self.sides[side].memory.write(BASE + offset, bytes.into()).expect("within the memory");
    }

    pub(crate) fn look(&self, side: usize, offset: u64, length: usize) -> Vec<u8> {
        self.sides[side].memory.read(BASE + offset, length).expect("within the memory")
    }
}

/// Returns pseudo-random bytes.
pub(crate) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut rng = SimRng::from_seed(seed);
    (0..length).map(|_| rng.draw() as u8).collect()
}
