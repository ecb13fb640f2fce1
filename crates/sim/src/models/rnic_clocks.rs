//! Clock cycles of the RDMA NIC of paper \[3\]: the times at which the payload of each step would have been
//! sent or placed.
//!
//! Goal      the real RNIC core logs its steps ([`StepLog`](kiban_rdma::rnic::clocks::StepLog)); here each
//!           step is assigned its number of clock cycles.
//! Clock     125 MHz; one word of 64 bits per cycle crosses each interface. The data of a DMA transfer is
//!           available when it is needed, as the paper measured.
//! Sequence  the paper's core performs one step after another.
//! Overlap   the same blocks with the same clocks, each working on the next segment or message while the
//!           blocks behind it are still busy with the one before. Between two blocks there is room for one
//!           segment. Otherwise the model is the same; the pauses remain, and are charged to one of the
//!           blocks.
//! Sources   the cost of each step of a Write is the paper's table 2. Two pauses between segments are fitted
//!           ([`CONSTANTS`]).
//! Left out  PCI Express, the line, the layer below, and completions, which occur after the times that the
//!           paper measures.
//!
//! \[3\]: Uchiyama and others, *Implementation of the RDMA communication mechanism on ExpEther*, 2008.

use crate::models::cost::Origin;
use kiban_rdma::rnic::clocks::Step;

/// Clock cycles per second.
pub const CLOCK_HZ: u64 = 125_000_000;
/// Bytes moved per cycle.
pub const WORD_BYTES: u32 = 8;

/// Returns the number of words that `bytes` bytes take.
pub const fn words(bytes: u32) -> u64 {
    bytes.div_ceil(WORD_BYTES) as u64
}

/// Returns the throughput in MiB/s, given a number of bytes and the number of clocks that they took.
pub fn mib_per_second(bytes: u64, clocks: u64) -> f64 {
    bytes as f64 * CLOCK_HZ as f64 / clocks as f64 / f64::from(1 << 20)
}

/// Clock cycles of the steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clocks {
    /// Table 2: a WQE is fetched.
    pub fetch_wqe: u64,
    /// Table 2: an entry of the steering tag table is read.
    pub read_stag: u64,
    /// Table 2: a physical buffer list is read.
    pub read_pbl: u64,
    /// Table 2: the DMA controller accepts a transfer's length.
    pub dma_length: u64,
    /// Table 2: data are read.
    pub read_dma: u64,
    /// Table 2 gives 4 cycles for a Write's header. Writing the 14 bytes of the header takes two of them,
    /// which leaves this many for building it.
    pub make_header: u64,
    /// Cycles of any step of a block that is not in table 2.
    pub other: u64,
    /// Cycles from the last word of a sent segment to the start of work on the next segment.
    pub pause_sending: u64,
    /// Cycles from the last word of a received segment to the header of the next one.
    pub pause_receiving: u64,
}

/// The core of paper \[3\].
pub const RDMA_NIC_2008: Clocks = Clocks {
    fetch_wqe: 3,
    read_stag: 10,
    read_pbl: 10,
    dma_length: 3,
    read_dma: 4,
    make_header: 2,
    other: 1,
    pause_sending: 6,
    pause_receiving: 11,
};

/// One constant, for tables.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// Its name.
    pub name: &'static str,
    /// Its value, with its unit.
    pub value: fn(&Clocks) -> String,
    /// Its source.
    pub origin: Origin,
}

/// All constants, for tables.
pub const CONSTANTS: [Constant; 11] = {
    use Origin::{Assumed, Fitted, Sourced};
    const TABLE_2: Origin = Sourced("table 2");
    [
        Constant {
            name: "clock, word",
            value: |_| format!("{} MHz, {} bit", CLOCK_HZ / 1_000_000, WORD_BYTES * 8),
            origin: Sourced("section 7.2"),
        },
        Constant { name: "fetch_wqe", value: |clocks| many(clocks.fetch_wqe), origin: TABLE_2 },
        Constant { name: "read_stag", value: |clocks| many(clocks.read_stag), origin: TABLE_2 },
        Constant { name: "read_pbl", value: |clocks| many(clocks.read_pbl), origin: TABLE_2 },
        Constant { name: "dma_length", value: |clocks| many(clocks.dma_length), origin: TABLE_2 },
        Constant { name: "read_dma", value: |clocks| many(clocks.read_dma), origin: TABLE_2 },
        Constant {
            name: "make_header",
            value: |clocks| many(clocks.make_header),
            origin: Sourced("table 2 gives a Write's header 4 clocks, and it is two words long"),
        },
        Constant { name: "other", value: |clocks| many(clocks.other), origin: TABLE_2 },
        Constant {
            name: "receiving: the same",
            value: |clocks| {
                format!("{}, {}, {}", clocks.read_stag, clocks.read_pbl, clocks.other) + " clocks"
            },
            origin: Assumed(
                "the paper gives no table for the receive path; look-ups, validation and DMA requests are assumed \
                 to cost as much as at the sender, and each header word is assumed to cost one clock",
            ),
        },
        Constant {
            name: "pause_sending",
            value: |clocks| many(clocks.pause_sending),
            origin: Fitted(
                "sending reaches 881 MiB/s: 15 clocks per segment in addition to the payload, 9 of which are table \
                 2's rows for a further segment",
            ),
        },
        Constant {
            name: "pause_receiving",
            value: |clocks| many(clocks.pause_receiving),
            origin: Fitted(
                "receiving reaches 795 MiB/s: 36 clocks per segment in addition to the payload, 25 of which are the \
                 modelled steps",
            ),
        },
    ]
};

fn many(clocks: u64) -> String {
    if clocks == 1 { "1 clock".to_owned() } else { format!("{clocks} clocks") }
}

/// Times of events, in cycles since the first step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StepTimes {
    /// The time at which the first word of payload has been written.
    pub first_payload: Option<u64>,
    /// The time at which the last word of payload has been written; if there is no payload, the last word of
    /// a header.
    pub end: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Number of cycles in which a word of header or payload crossed the interface to the layer below.
    pub moving: u64,
    /// Segments.
    pub segments: u64,
    /// Maximum number of payload words that waited at one time until their destination was known.
    pub stood: u64,
}

/// The blocks. The first and the last two are the interfaces across which words enter and leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Block {
    /// Headers and payload out of the FROM-LLP FIFO.
    FromLlp,
    WorkManager,
    Acceptor,
    /// The send module, or the receive module.
    Resolver,
    Generator,
    /// Headers and payload into the TO-LLP FIFO.
    ToLlp,
    /// Payload into the DMA write FIFO.
    ToDma,
}

const BLOCKS: usize = Block::ToDma as usize + 1;

/// A segment or message that passes through the blocks.
#[derive(Clone, Copy, Default, Debug)]
struct Item {
    comes_in: bool,
    clocks: [u64; BLOCKS],
    header_words: u64,
    payload_words: u64,
}

impl Clocks {
    /// The cycles of one step, as in table 2; for payload, the cycles of all its words.
    pub fn of(&self, step: Step) -> u64 {
        match step {
            Step::FetchWqe => self.fetch_wqe,
            Step::ReadStag => self.read_stag,
            Step::ReadPbl => self.read_pbl,
            Step::DmaLength => self.dma_length,
            Step::ReadDma => self.read_dma,
            Step::Header(bytes) => self.make_header + words(bytes),
            Step::ReceiveHeader(bytes) | Step::WritePayload(bytes) | Step::ReceivePayload(bytes) => {
                words(bytes)
            }
            // Completion occurs after the times that the paper measured.
            Step::Complete => 0,
            _ => self.other,
        }
    }

    /// The cycles between two steps in which the paper's core did nothing that the paper explains.
    pub(super) fn pause_between(&self, before: Option<Step>, step: Step) -> u64 {
        match (before, step) {
            (Some(Step::WritePayload(_)), Step::SegmentLength) => self.pause_sending,
            (Some(Step::ReceivePayload(_)), Step::ReceiveHeader(_)) => self.pause_receiving,
            _ => 0,
        }
    }

    /// Returns the times if one step follows another, as in the paper's core.
    pub fn in_sequence(&self, steps: &[Step]) -> StepTimes {
        let mut moments = StepTimes::default();
        let (mut now, mut before) = (0, None);
        for &step in steps {
            now += self.pause_between(before, step);
            moments.count(step);
            match step {
                Step::WritePayload(1..) | Step::ReceivePayload(1..) => {
                    moments.first_payload.get_or_insert(now + 1);
                    moments.end = now + self.of(step);
                }
                Step::Header(_) => moments.end = now + self.of(step),
                _ => {}
            }
            now += self.of(step);
            before = Some(step);
        }
        moments
    }

    /// Returns the times if each block works on the next segment or message while the blocks after it are
    /// busy.
    pub fn overlapped(&self, steps: &[Step]) -> StepTimes {
        let mut moments = StepTimes::default();
        steps.iter().for_each(|&step| moments.count(step));
        let mut free = [0; BLOCKS];
        for item in self.items(steps) {
            item.pass(&mut free, &mut moments);
        }
        moments
    }

    /// Returns the steps as items that pass through the blocks. An item is a segment; if it is the first of
    /// its message, the item includes the steps that begin the message.
    fn items(&self, steps: &[Step]) -> Vec<Item> {
        let mut items = Vec::new();
        let mut item = Item::default();
        for &step in steps {
            let is_next = match step {
                Step::FetchWqe | Step::ReceiveHeader(_) => true,
                Step::Request | Step::SegmentLength => item.header_words > 0,
                _ => false,
            };
            if is_next {
                let before = std::mem::take(&mut item);
                self.pause(step, &before, &mut item);
                items.push(before);
            }
            self.add(step, &mut item);
        }
        items.push(item);
        items
    }

    /// The paper does not say what its core did during its pauses. They are charged to the segment generator
    /// when sending, and to the work resolver, which validates segments, when receiving.
    fn pause(&self, step: Step, before: &Item, item: &mut Item) {
        match step {
            _ if before.payload_words == 0 => {}
            Step::SegmentLength => item.clocks[Block::Generator as usize] += self.pause_sending,
            Step::ReceiveHeader(_) => item.clocks[Block::Resolver as usize] += self.pause_receiving,
            _ => {}
        }
    }

    fn add(&self, step: Step, item: &mut Item) {
        let block = match step {
            Step::FetchWqe | Step::Fence | Step::Request => Block::WorkManager,
            Step::Requester | Step::Acceptor => Block::Acceptor,
            Step::Accept
            | Step::CheckOperation
            | Step::ReadStag
            | Step::CheckStag
            | Step::ReadPbl
            | Step::DmaRequest
            | Step::CheckHeader => Block::Resolver,
            Step::DmaLength | Step::SegmentLength | Step::ReadDma => Block::Generator,
            Step::Header(bytes) => {
                // Building the header is charged to the segment generator, writing it to the interface.
                item.header_words = words(bytes);
                item.clocks[Block::Generator as usize] += self.make_header;
                return;
            }
            Step::ReceiveHeader(bytes) => {
                (item.header_words, item.comes_in) = (words(bytes), true);
                return;
            }
            Step::WritePayload(bytes) | Step::ReceivePayload(bytes) => {
                item.payload_words = words(bytes);
                return;
            }
            Step::Complete => return,
        };
        item.clocks[block as usize] += self.of(step);
    }
}

impl Item {
    /// Passes an item through the blocks in order. A block keeps its item until the next block takes it.
    fn pass(&self, free: &mut [u64; BLOCKS], moments: &mut StepTimes) {
        let edge_words = self.header_words + self.payload_words;
        let (mut ready, mut from, mut arrived) = (0, None, 0);
        if self.comes_in {
            // The bytes after a header can be read before the header has been validated.
            let start = free[Block::FromLlp as usize];
            free[Block::FromLlp as usize] = start + edge_words;
            arrived = start + self.header_words;
            (ready, from) = (arrived, Some(Block::FromLlp));
        }
        let last =
            if self.comes_in { (Block::ToDma, self.payload_words) } else { (Block::ToLlp, edge_words) };
        let inner = [Block::WorkManager, Block::Acceptor, Block::Resolver, Block::Generator]
            .map(|block| (block, self.clocks[block as usize]));
        for (block, clocks) in inner.into_iter().chain([last]).filter(|(_, clocks)| *clocks > 0) {
            let start = ready.max(free[block as usize]);
            if let Some(from) = from {
                free[from as usize] = free[from as usize].max(start);
            }
            ready = start + clocks;
            free[block as usize] = ready;
            from = Some(block);
        }
        if self.payload_words > 0 {
            let first = ready - self.payload_words;
            moments.first_payload.get_or_insert(first + 1);
            if self.comes_in {
                moments.stood = moments.stood.max((first - arrived).min(self.payload_words));
            }
        }
        if edge_words > 0 {
            moments.end = ready;
        }
    }
}

impl StepTimes {
    fn count(&mut self, step: Step) {
        match step {
            Step::Header(bytes) | Step::ReceiveHeader(bytes) => {
                self.segments += 1;
                self.moving += words(bytes);
            }
            Step::WritePayload(bytes) | Step::ReceivePayload(bytes) => {
                self.bytes += u64::from(bytes);
                self.moving += words(bytes);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRONT: [Step; 12] = [
        Step::FetchWqe,
        Step::Fence,
        Step::Request,
        Step::Requester,
        Step::Acceptor,
        Step::Accept,
        Step::CheckOperation,
        Step::ReadStag,
        Step::CheckStag,
        Step::ReadPbl,
        Step::DmaRequest,
        Step::DmaLength,
    ];

    fn write(payloads: &[u32]) -> Vec<Step> {
        let segment =
            |&bytes: &u32| [Step::SegmentLength, Step::Header(14), Step::ReadDma, Step::WritePayload(bytes)];
        FRONT.into_iter().chain(payloads.iter().flat_map(segment)).collect()
    }

    fn arrival(payloads: &[u32]) -> Vec<Step> {
        let segment = |&bytes: &u32| {
            [
                Step::ReceiveHeader(14),
                Step::CheckHeader,
                Step::ReadStag,
                Step::CheckStag,
                Step::ReadPbl,
                Step::DmaRequest,
                Step::ReceivePayload(bytes),
            ]
        };
        payloads.iter().flat_map(segment).collect()
    }

    #[test]
    fn steps_in_sequence_add_up() {
        let clocks = RDMA_NIC_2008;
        for (steps, first, end) in [
            (write(&[8]), 44, 44),
            (write(&[1]), 44, 44),
            (write(&[1456]), 44, 43 + 182),
            (write(&[1456, 9]), 44, 43 + 182 + 15 + 2),
            (arrival(&[8]), 26, 26),
            (arrival(&[1456, 1456]), 26, 25 + 182 + 36 + 182),
        ] {
            let moments = clocks.in_sequence(&steps);
            assert_eq!((moments.first_payload, moments.end), (Some(first), end), "{steps:?}");
        }
        assert_eq!(clocks.in_sequence(&[]), StepTimes::default());
    }

    #[test]
    fn overlap_does_not_speed_up_the_first_payload_and_later_segments_cost_their_words() {
        let clocks = RDMA_NIC_2008;
        for (steps, first, end) in [
            (write(&[8]), 44, 44),
            (write(&[1456, 9]), 44, 43 + 182 + 2 + 2),
            (write(&[1456; 10]), 44, 43 + 10 * 182 + 9 * 2),
            (arrival(&[8]), 26, 26),
            (arrival(&[1456; 10]), 26, 25 + 10 * 182 + 9 * 2 + 11),
        ] {
            let moments = clocks.overlapped(&steps);
            assert_eq!((moments.first_payload, moments.end), (Some(first), end), "{steps:?}");
            assert!(moments.end <= clocks.in_sequence(&steps).end);
        }
    }

    #[test]
    fn small_messages_wait_for_the_block_that_is_slowest() {
        let clocks = RDMA_NIC_2008;
        let end = |count| clocks.overlapped(&write(&[64]).repeat(count)).end;
        // The work resolver is the slowest block. Its steps are accept, check, read, check, read, request.
        assert_eq!(end(9) - end(8), 24);
        // For large messages, the payload takes longer than the work resolver.
        let end = |count| clocks.overlapped(&write(&[1456]).repeat(count)).end;
        assert_eq!(end(9) - end(8), 184);
        // When receiving, the work resolver is also the slowest block. Its pause between segments is added.
        let end = |count| clocks.overlapped(&arrival(&vec![64; count])).end;
        assert_eq!(end(9) - end(8), 23 + 11);
    }

    #[test]
    fn payload_waits_until_its_address_is_known() {
        let clocks = RDMA_NIC_2008;
        assert_eq!(clocks.overlapped(&arrival(&[1456; 10])).stood, 23 + 11);
        assert_eq!(clocks.overlapped(&write(&[1456; 10])).stood, 0);
    }

    #[test]
    fn a_request_ends_with_its_header() {
        let steps = [&FRONT[..7], &[Step::SegmentLength, Step::Header(46)]].concat();
        for moments in [RDMA_NIC_2008.in_sequence(&steps), RDMA_NIC_2008.overlapped(&steps)] {
            assert_eq!((moments.first_payload, moments.end), (None, 9 + 1 + 2 + 6));
        }
    }
}
