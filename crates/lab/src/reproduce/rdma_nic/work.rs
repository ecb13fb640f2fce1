//! Runs RDMA operations between two cores and returns the steps that their blocks logged.
//!
//! Set-up    one queue pair per core, connected by a stream of whole segments of at most the paper's length.
//!           The sender's memory is one physical buffer, or many ([`Buffers`]), which a work request
//!           registers.
//! Check     the receiving core validates and places the segments that the sending core made, and the
//!           received bytes are compared with the sent ones.

use kiban_base::{Region, RngKey, SharedBytes};
use kiban_rdma::rnic::clocks::Step;
use kiban_rdma::rnic::{
    Access, Config, Data, Operation, Payload, QpAttributes, Rnic, SendWork, Sge, StreamTraits, TaggedAddress,
    ToLlp, Validation,
};
use kiban_rdma::wire::ddp::TAGGED_BYTES;
use kiban_sim::rnic_clocks::{WORD_BYTES, words};

/// Bytes of the longest segment: a frame of the EFE (section 6.2.3), which is a whole number of words.
pub const SEGMENT_BYTES: usize = 1472;
/// Payload bytes of the longest segment of a Write. The header of 14 bytes takes two words of the FIFO,
/// because only the last word of a DMA transfer may be partly filled (section 6.2.3).
pub const PAYLOAD_BYTES: usize = SEGMENT_BYTES - words(TAGGED_BYTES as u32) as usize * WORD_BYTES as usize;

/// The steps of the blocks of both cores.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Steps {
    /// The steps of the sending core.
    pub sending: Vec<Step>,
    /// The steps of the receiving core.
    pub receiving: Vec<Step>,
}

/// The TO-LLP FIFO.
#[derive(Default)]
struct Fifo(Vec<Vec<u8>>);

impl ToLlp for Fifo {
    fn segment_bytes(&self) -> usize {
        // The limit is in bytes, not in words.
        TAGGED_BYTES + PAYLOAD_BYTES
    }
    fn segment(&mut self, header: &[u8], payload: Payload<'_>) {
        let mut segment = header.to_vec();
        payload.append_to(&mut segment);
        self.0.push(segment);
    }
}

/// The physical buffers that hold the data to be sent. A DMA transfer, and so a segment, ends with its buffer
/// (section 6.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buffers {
    /// One for the whole message.
    One,
    /// Several of this size, in bytes.
    Of(usize),
}

/// A core with a queue pair and memory.
struct Side {
    nic: Rnic,
    qp: u32,
    memory: Region,
    stag: u32,
}

impl Side {
    #[expect(
        clippy::disallowed_methods,
        reason = "it measures only the NIC, which does the same work in each run"
    )]
    fn new(seed: u64, bytes: usize, messages: usize, buffers: Buffers) -> Side {
        let key = RngKey::for_simulation(seed);
        let mut nic = Rnic::new(Config { cut_at_transfers: true, ..Config::default() }, key);
        let pd = nic.create_pd().expect("the first of many");
        // One more, for the registration.
        let messages = messages + 1;
        let cq = nic.create_cq(messages).expect("fewer than the maximum");
        let qp = nic.create_qp(QpAttributes {
            pd,
            send_cq: cq,
            receive_cq: cq,
            srq: None,
            send_work_max: messages,
            receive_work_max: 1,
            send_sges_max: 1,
            receive_sges_max: 1,
            inline_bytes_max: 0,
            signal_all: true,
            waits_for_receives: false,
        });
        let qp = qp.expect("its parts are there");
        let traits = StreamTraits { ird: 1, ord: 1, extensions: false, kiban: false, may_send: true };
        nic.connect(qp, traits).expect("it is new");
        let memory = Region::new(0x10_0000, bytes);
        let size = match buffers {
            Buffers::One => bytes.max(1),
            Buffers::Of(size) => size,
        };
        let parts = (0..bytes).step_by(size).map(|at| {
            let address = memory.address() + at as u64;
            memory.part(address, size.min(bytes - at)).expect("it lies within the memory")
        });
        let blocks: Vec<Region> = parts.collect();
        let stag = nic.allocate(pd, blocks.len()).expect("the first of many");
        let mut side = Side { nic, qp, memory, stag };
        side.register(blocks);
        side.nic.clocks().listen();
        side
    }

    /// Has the send module register the memory (section 5.2.3).
    fn register(&mut self, blocks: Vec<Region>) {
        let address = self.memory.address();
        let operation = Operation::Register { stag: self.stag, address, blocks, access: Access::ALL };
        self.nic
            .post_send(self.qp, SendWork::new(0, operation, Data::none()))
            .expect("the queue has room for it");
        assert!(self.make().is_empty(), "a registration sends nothing");
    }

    fn place(&self) -> TaggedAddress {
        TaggedAddress { stag: self.stag, offset: self.memory.address() }
    }

    fn post(&mut self, operation: Operation, length: usize) {
        let sge = Sge { stag: self.stag, address: self.memory.address(), length: length as u32 };
        self.nic
            .post_send(self.qp, SendWork::new(0, operation, Data::one(sge)))
            .expect("the queue has room for it");
    }

    fn make(&mut self) -> Vec<Vec<u8>> {
        let mut fifo = Fifo::default();
        while self.nic.next_segment(self.qp, &mut fifo) {}
        self.nic.confirm(self.qp, self.nic.segments_made(self.qp));
        fifo.0
    }

    fn take(&mut self, segment: &[u8]) {
        let judged = self.nic.validate(self.qp, segment, segment.len());
        let Ok(Validation::Place(mut placement)) = judged else {
            unreachable!("a Write to memory that is open is placed: {judged:?}")
        };
        let payload = SharedBytes::from(&segment[placement.header_bytes()..]);
        self.nic.place(self.qp, &mut placement, payload).expect("the memory is still open");
        self.nic.deliver(self.qp, &placement).expect("all of it is there");
    }

    fn bytes(&self) -> Vec<u8> {
        self.memory.read(self.memory.address(), self.memory.len()).expect("all of it is within")
    }
}

/// Runs `messages` RDMA Writes of `bytes` each, one after another. The sender's data is in `buffers`.
pub fn writes(bytes: usize, messages: usize, buffers: Buffers) -> Steps {
    let mut one = Side::new(1, bytes, messages, buffers);
    let mut two = Side::new(2, bytes, messages, Buffers::One);
    let pattern: Vec<u8> = (0..bytes).map(|at| (at * 7 + at / 251 + 1) as u8).collect();
    one.memory.write(one.memory.address(), SharedBytes::from(&pattern[..])).expect("it is as long");
    for _ in 0..messages {
        one.post(Operation::write(two.place()), bytes);
    }
    one.make().iter().for_each(|segment| two.take(segment));
    assert!(two.bytes() == pattern, "what was written is in place");
    Steps { sending: one.nic.clocks().take(), receiving: two.nic.clocks().take() }
}

/// Returns the steps of the requester for the request of an RDMA Read.
pub fn read_request(bytes: usize) -> Vec<Step> {
    let [mut one, two] = [1, 2].map(|seed| Side::new(seed, bytes, 1, Buffers::One));
    one.post(Operation::read(two.place()), bytes);
    let requests = one.make();
    assert_eq!(requests.len(), 1, "one request asks for one element");
    one.nic.clocks().take()
}
