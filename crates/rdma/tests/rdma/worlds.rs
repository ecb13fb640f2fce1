//! Two NICs perform random operations on each other; the results are compared with a model of memory and
//! completions.
//!
//! The model    plain byte arrays and lists. Each write goes to bytes that no other operation touches,
//!              memory that is read never changes, and each side has words of its own for atomics. The
//!              outcome therefore does not depend on the random order in which the two streams are served.
//! Random       the operations and their elements, the blocks of the targets, the segment lengths, the way
//!              in which segments reach memory, the times at which segments are built and confirmed, fences
//!              and signals.

use crate::fixture::pair::{Landing, Memory, Side, TRAITS};
use kiban_base::{Region, SimRng};
use kiban_rdma::rnic::{Access, Data, Kind, Operation, ReceiveWork, SendWork, Sge, Status, TaggedAddress};
use kiban_rdma::wire::rdmap::Atomic;

const AREA_BYTES: usize = 300_000;
const TARGET: u64 = 0x7000_0000;
const WORDS: u64 = 8;

/// The expected completion of a work request: its number, kind, length in bytes, and immediate data.
type Told = (u64, Kind, u32, Option<u64>);

/// One side, and its model.
struct Half {
    side: Side,
    /// Never changes; peers may read it.
    source: Memory,
    /// Peers write to it; it is registered as several blocks.
    blocks: Vec<Region>,
    target: u32,
    target_model: Vec<u8>,
    target_used: usize,
    /// The sink of receives and reads.
    sink: Memory,
    sink_model: Vec<u8>,
    sink_used: usize,
    /// The target of the peer's atomics.
    words: Memory,
    words_model: [u64; WORDS as usize],
    sent: Vec<Told>,
    received: Vec<Told>,
    next_id: u64,
}

impl Half {
    fn new(seed: u64, segment_bytes: usize, rng: &mut SimRng) -> Half {
        let mut side = Side::new(seed, segment_bytes);
        let source = side.pattern(AREA_BYTES, Access { remote_read: true, ..Access::NONE });
        let sink = side.memory(AREA_BYTES, Access::LOCAL);
        let words = side.memory(8 * WORDS as usize, Access::ALL);
        let (mut blocks, mut left) = (Vec::new(), AREA_BYTES);
        while left > 0 {
            let most = if blocks.len() == 99 { left } else { left.min(8000) };
            let length = if blocks.len() == 99 { left } else { 1 + rng.below(most as u64) as usize };
            blocks.push(Region::new(0, length));
            left -= length;
        }
        let access = Access { local_write: true, remote_write: true, ..Access::NONE };
        let target = side.nic.register_blocks(side.pd, TARGET, blocks.clone(), access).expect("room");
        side.nic.connect(side.qp, TRAITS).expect("idle");
        Half {
            side,
            source,
            blocks,
            target,
            target_model: vec![0; AREA_BYTES],
            target_used: 0,
            sink,
            sink_model: vec![0; AREA_BYTES],
            sink_used: 0,
            words,
            words_model: [0; WORDS as usize],
            sent: Vec::new(),
            received: Vec::new(),
            next_id: 0,
        }
    }

    /// Draws random elements in the source. Returns the elements and the bytes in them.
    fn source_elements(&self, length: usize, rng: &mut SimRng) -> (Data, Vec<u8>) {
        if length <= 256 && rng.happens(0.3) {
            let bytes: Vec<u8> = (0..length).map(|_| rng.draw() as u8).collect();
            return (Data::Inline(bytes.iter().copied().collect()), bytes);
        }
        let all = self.source.bytes();
        let mut bytes = Vec::new();
        let sges = pieces(length, rng).into_iter().map(|length| {
            let at = rng.below((AREA_BYTES - length + 1) as u64);
            bytes.extend_from_slice(&all[at as usize..at as usize + length]);
            self.source.sge(at, length as u32)
        });
        (Data::Elements(sges.collect()), bytes)
    }

    /// Returns unused elements of the sink, `bytes` of which will be filled.
    fn sink_elements(&mut self, room: usize, bytes: &[u8], rng: &mut SimRng) -> Vec<Sge> {
        let mut rest = bytes;
        let mut sges = Vec::new();
        for length in pieces(room, rng) {
            let at = self.sink_used + rng.below(4) as usize;
            let (now, later) = rest.split_at(rest.len().min(length));
            self.sink_model[at..at + now.len()].copy_from_slice(now);
            rest = later;
            self.sink_used = at + length;
            sges.push(self.sink.sge(at as u64, length as u32));
        }
        sges
    }

    /// Posts a receive for an expected message and records its expected completion.
    fn expect_message(&mut self, bytes: &[u8], immediate: Option<u64>, rng: &mut SimRng) {
        let room = bytes.len() + rng.below(3) as usize * 10;
        let sges = self.sink_elements(room, bytes, rng).into_iter().collect();
        self.next_id += 1;
        let kind = if immediate.is_some() { Kind::ReceiveImmediate } else { Kind::Receive };
        self.received.push((self.next_id, kind, bytes.len() as u32, immediate));
        let work = ReceiveWork { id: self.next_id, sges };
        self.side.nic.post_receive(self.side.qp, work).expect("the peer has no more under way");
    }

    /// Posts a work request and applies it to the model.
    fn post(&mut self, peer: &mut Half, rng: &mut SimRng) {
        let scale = [100, 3000, 20_000][rng.below(3) as usize];
        let mut length = rng.below(scale) as usize;
        let used = peer.sink_used.max(peer.target_used).max(self.sink_used);
        if used + length + 200 > AREA_BYTES {
            length = 0;
        }
        let mut bytes_told = 0;
        let (operation, data) = match rng.below(7) {
            0 | 1 => {
                let (data, bytes) = self.source_elements(length, rng);
                peer.expect_message(&bytes, None, rng);
                (Operation::SEND, data)
            }
            2 => {
                let immediate = rng.draw();
                peer.expect_message(&[], Some(immediate), rng);
                (Operation::Immediate { data: immediate }, Data::none())
            }
            3 | 4 => {
                let (data, bytes) = self.source_elements(length, rng);
                let at = peer.target_used + rng.below(4) as usize;
                peer.target_model[at..at + length].copy_from_slice(&bytes);
                peer.target_used = at + length;
                let remote = TaggedAddress { stag: peer.target, offset: TARGET + at as u64 };
                let immediate = rng.happens(0.3).then(|| rng.draw());
                if let Some(immediate) = immediate {
                    peer.expect_message(&[], Some(immediate), rng);
                }
                (Operation::Write { remote, immediate }, data)
            }
            5 => {
                let at = rng.below((AREA_BYTES - length + 1) as u64);
                let bytes = peer.source.bytes()[at as usize..at as usize + length].to_vec();
                let sges = self.sink_elements(length, &bytes, rng);
                let offset = peer.source.region.address() + at;
                bytes_told = length as u32;
                let remote = TaggedAddress { stag: peer.source.stag, offset };
                (Operation::read(remote), Data::Elements(sges.into_iter().collect()))
            }
            _ => {
                let word = rng.below(WORDS) as usize;
                let value = &mut peer.words_model[word];
                let before = value.to_ne_bytes();
                let atomic = if rng.happens(0.5) {
                    let add = rng.draw();
                    *value = value.wrapping_add(add);
                    Atomic::FetchAdd { add, mask: 0 }
                } else {
                    let (swap, is_equal) = (rng.draw(), rng.happens(0.5));
                    let compare = if is_equal { *value } else { !*value };
                    *value = if is_equal { swap } else { *value };
                    Atomic::CompareSwap { swap, swap_mask: u64::MAX, compare, compare_mask: u64::MAX }
                };
                let sges = self.sink_elements(8, &before, rng);
                bytes_told = 8;
                let offset = peer.words.region.address() + 8 * word as u64;
                let remote = TaggedAddress { stag: peer.words.stag, offset };
                (Operation::Atomic { remote, atomic }, Data::Elements(sges.into_iter().collect()))
            }
        };
        let kind = match operation {
            Operation::Send { .. } => Kind::Send,
            Operation::Immediate { .. } => Kind::Immediate,
            Operation::Write { .. } => Kind::Write,
            Operation::Read { .. } => Kind::Read,
            Operation::Atomic { atomic: Atomic::CompareSwap { .. }, .. } => Kind::CompareSwap,
            _ => Kind::FetchAdd,
        };
        self.next_id += 1;
        let (signalled, fence) = (rng.happens(0.7), rng.happens(0.1));
        let (solicited, local_fence) = (rng.happens(0.3), rng.happens(0.1));
        if signalled {
            self.sent.push((self.next_id, kind, bytes_told, None));
        }
        let work = SendWork { id: self.next_id, operation, data, signalled, solicited, fence, local_fence };
        self.side.nic.post_send(self.side.qp, work).expect("there was room");
    }

    /// Builds some segments, and confirms some.
    fn make_some(&mut self, most: u64, rng: &mut SimRng) {
        let (side, mut left) = (&mut self.side, rng.below(most + 1));
        while left > 0
            && let Some(qp) = side.nic.pop_tx_queue()
        {
            while left > 0 && side.nic.next_segment(qp, &mut side.out) {
                left -= 1;
            }
            if left == 0 {
                side.nic.requeue(qp);
            }
        }
        let made = side.nic.segments_made(side.qp);
        side.nic.confirm(side.qp, made - rng.below(made.min(3) + 1));
    }

    /// Lets the peer receive some of the segments.
    fn deliver_some(&mut self, peer: &mut Half, most: u64, rng: &mut SimRng) {
        for _ in 0..rng.below(most + 1) {
            let Some(segment) = self.side.out.segments.pop_front() else { break };
            let count = 1 + rng.below(2000) as usize;
            let landing =
                [Landing::Whole, Landing::Crumbs(count), Landing::Direct(count)][rng.below(3) as usize];
            assert!(peer.side.take(&segment, landing), "a receive was posted");
        }
    }

    /// Compares memory and completions with the model.
    fn check(&mut self, name: &str) {
        assert_eq!(self.side.nic.event(), None, "{name}");
        let completions = self.side.completions();
        assert!(completions.iter().all(|done| done.status == Status::Success), "{name}");
        let (received, sent): (Vec<_>, Vec<_>) = completions
            .iter()
            .map(|done| (done.id, done.kind, done.bytes, done.immediate))
            .partition(|events: &Told| matches!(events.1, Kind::Receive | Kind::ReceiveImmediate));
        assert_eq!(sent, self.sent, "{name}: what is told of sends");
        assert_eq!(received, self.received, "{name}: what is told of receives");
        let target: Vec<u8> =
            self.blocks.iter().flat_map(|block| block.read(0, block.len()).expect("within")).collect();
        assert!(target == self.target_model, "{name}: what was written");
        assert!(self.sink.bytes() == self.sink_model, "{name}: what was received and read");
        let words: Vec<u8> = self.words_model.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(self.words.bytes(), words, "{name}: words");
    }
}

/// Splits a length into up to eight parts, some of them empty.
fn pieces(length: usize, rng: &mut SimRng) -> Vec<usize> {
    let (mut left, mut parts) = (length, Vec::new());
    for _ in 0..rng.below(8) {
        let part = if rng.happens(0.2) { 0 } else { rng.below(left as u64 + 1) as usize };
        parts.push(part);
        left -= part;
    }
    parts.push(left);
    parts
}

fn world(seed: u64) {
    let mut rng = SimRng::from_seed(seed);
    let segment_bytes = match rng.below(3) {
        0 => 128 + rng.below(64) as usize,
        1 => 1458,
        _ => 128 + rng.below(65535 - 128) as usize,
    };
    let mut one = Half::new(seed + 1, segment_bytes, &mut rng);
    let mut two = Half::new(seed + 1000, segment_bytes, &mut rng);
    let name = format!("seed {seed}");
    for _ in 0..60 {
        let (from, to) = if rng.happens(0.5) { (&mut one, &mut two) } else { (&mut two, &mut one) };
        from.post(to, &mut rng);
        for _ in 0..rng.below(4) {
            one.make_some(6, &mut rng);
            two.make_some(6, &mut rng);
            one.deliver_some(&mut two, 5, &mut rng);
            two.deliver_some(&mut one, 5, &mut rng);
        }
    }
    // Run everything until nothing moves.
    loop {
        for Half { side, .. } in [&mut one, &mut two] {
            side.nic.confirm(side.qp, side.nic.segments_made(side.qp));
            side.make();
        }
        if one.side.out.segments.len() + two.side.out.segments.len() == 0 {
            break;
        }
        one.deliver_some(&mut two, 50, &mut rng);
        two.deliver_some(&mut one, 50, &mut rng);
    }
    one.check(&name);
    two.check(&name);
}

#[test]
fn two_hundred_worlds_end_as_the_model_predicts() {
    (0..200).for_each(world);
}
