//! Random operations of two NICs on each other, and a model of memory and completions. Shared by the tests of
//! several crates.
//!
//! The model    plain byte arrays and lists. Each write goes to bytes that no other operation touches,
//!              memory that is read never changes, and each side has words of its own for atomics. The
//!              outcome therefore does not depend on the order in which the two sides are served. Bytes
//!              between those that operations use are guards: they must not change.
//! Random       the operations and their elements, the blocks of the targets, fences and signals.

use kiban_base::{Region, SharedBytes, SimRng};
use kiban_rdma::rnic::{
    Access, Completion, Data, Kind, Operation, QpAttributes, ReceiveWork, Rnic, SendWork, Sge, Status,
    TaggedAddress,
};
use kiban_rdma::wire::rdmap::Atomic;

const AREA_BYTES: usize = 300_000;
const TARGET: u64 = 0x7000_0000;
const WORDS: u64 = 8;

/// The expected completion of a work request: its number, kind, length in bytes, and immediate data.
type Told = (u64, Kind, u32, Option<u64>);

/// Memory with its steering tag.
pub(crate) struct Memory {
    pub(crate) region: Region,
    pub(crate) stag: u32,
}

impl Memory {
    /// Registers memory.
    pub(crate) fn register(nic: &mut Rnic, pd: u32, bytes: usize, access: Access) -> Memory {
        let region = Region::new(0x10_0000, bytes);
        let stag = nic.register(pd, region.clone(), access).expect("room");
        Memory { region, stag }
    }

    pub(crate) fn sge(&self, at: u64, length: u32) -> Sge {
        Sge { stag: self.stag, address: self.region.address() + at, length }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.region.read(self.region.address(), self.region.len()).expect("within")
    }

    /// Fills the memory with a pattern.
    pub(crate) fn patterned(self) -> Memory {
        let pattern: Vec<u8> = (0..self.region.len()).map(|at| (at * 7 + at / 251) as u8).collect();
        self.region.write(self.region.address(), SharedBytes::from(&pattern[..])).expect("within");
        self
    }
}

/// Returns the attributes of a queue pair for these tests.
pub(crate) fn attributes(pd: u32, cq: u32) -> QpAttributes {
    QpAttributes {
        pd,
        send_cq: cq,
        receive_cq: cq,
        srq: None,
        send_work_max: 64,
        receive_work_max: 64,
        send_sges_max: 8,
        receive_sges_max: 8,
        inline_bytes_max: 256,
        signal_all: false,
        waits_for_receives: false,
    }
}

/// The memory of one side, and its model.
pub(crate) struct Half {
    /// Whether the transport is RoCEv2, with 32 bits of immediate data in a Send or Write, instead of iWARP
    /// with RFC 7306.
    speaks_roce: bool,
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
    /// Receives for the peer's messages, to be posted before these are sent.
    receives: Vec<ReceiveWork>,
}

impl Half {
    /// Registers the memory of one side in a protection domain of its NIC.
    pub(crate) fn new(nic: &mut Rnic, pd: u32, speaks_roce: bool, rng: &mut SimRng) -> Half {
        let readable = Access { remote_read: true, ..Access::NONE };
        let source = Memory::register(nic, pd, AREA_BYTES, readable).patterned();
        let sink = Memory::register(nic, pd, AREA_BYTES, Access::LOCAL);
        let words = Memory::register(nic, pd, 8 * WORDS as usize, Access::ALL);
        let (mut blocks, mut left) = (Vec::new(), AREA_BYTES);
        while left > 0 {
            let most = if blocks.len() == 99 { left } else { left.min(8000) };
            let length = if blocks.len() == 99 { left } else { 1 + rng.below(most as u64) as usize };
            blocks.push(Region::new(0, length));
            left -= length;
        }
        let access = Access { local_write: true, remote_write: true, ..Access::NONE };
        let target = nic.register_blocks(pd, TARGET, blocks.clone(), access).expect("room");
        Half {
            speaks_roce,
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
            receives: Vec::new(),
        }
    }

    /// Posts the receives that the peer's new operations need.
    pub(crate) fn post_receives(&mut self, nic: &mut Rnic, qp: u32) {
        for work in self.receives.drain(..) {
            nic.post_receive(qp, work).expect("the peer has no more under way");
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

    /// Expects a message: prepares a receive and records its completion.
    fn expect_message(&mut self, bytes: &[u8], kind: Kind, immediate: Option<u64>, rng: &mut SimRng) {
        let room = bytes.len() + rng.below(3) as usize * 10;
        let sges = self.sink_elements(room, bytes, rng).into_iter().collect();
        self.next_id += 1;
        self.received.push((self.next_id, kind, bytes.len() as u32, immediate));
        self.receives.push(ReceiveWork { id: self.next_id, sges });
    }

    /// Expects the completion of a Write of `length` bytes with immediate data.
    fn expect_notice(&mut self, length: usize, immediate: u64, rng: &mut SimRng) {
        self.expect_message(&[], Kind::ReceiveImmediate, Some(immediate), rng);
        if let (true, Some(told)) = (self.speaks_roce, self.received.last_mut()) {
            told.2 = length as u32;
        }
    }

    /// Draws a work request, and applies it to the model.
    pub(crate) fn draw(&mut self, peer: &mut Half, rng: &mut SimRng) -> SendWork {
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
                peer.expect_message(&bytes, Kind::Receive, None, rng);
                (Operation::SEND, data)
            }
            2 if self.speaks_roce => {
                let (data, bytes) = self.source_elements(length, rng);
                let immediate = rng.draw() as u32;
                peer.expect_message(&bytes, Kind::Receive, Some(immediate.into()), rng);
                (Operation::SendImmediate { data: immediate }, data)
            }
            2 => {
                let immediate = rng.draw();
                peer.expect_message(&[], Kind::ReceiveImmediate, Some(immediate), rng);
                (Operation::Immediate { data: immediate }, Data::none())
            }
            3 | 4 => {
                let (data, bytes) = self.source_elements(length, rng);
                let at = peer.target_used + rng.below(4) as usize;
                peer.target_model[at..at + length].copy_from_slice(&bytes);
                peer.target_used = at + length;
                let remote = TaggedAddress { stag: peer.target, offset: TARGET + at as u64 };
                let immediate = rng.happens(0.3).then(|| match self.speaks_roce {
                    // The low half arrives as the length.
                    true => rng.draw() << 32 | length as u64,
                    false => rng.draw(),
                });
                if let Some(immediate) = immediate {
                    peer.expect_notice(length, immediate, rng);
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
            Operation::Send { .. } | Operation::SendImmediate { .. } => Kind::Send,
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
        SendWork { id: self.next_id, operation, data, signalled, solicited, fence, local_fence, xrc_srq: 0 }
    }

    /// Compares memory and completions with the model.
    pub(crate) fn check(&self, completions: &[Completion], name: &str) {
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
