//! Clocks: what each block of the core did, so that somebody can say how long it took.
//!
//! Goal      the core that is shipped also runs under the clocked cost model of paper \[3\]: each block says what it does
//!           where it does it, and a model gives the steps their clocks.
//! Cost      nobody listens by default: a branch a step.
//!
//! \[3\]: Uchiyama and others, *Implementation of the RDMA communication mechanism on ExpEther*, 2008; the steps of a Write
//! are the rows of its table 2.

use alloc::vec::Vec;

/// A step of a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// SQ work manager: a WQE is fetched.
    FetchWqe,
    /// SQ work manager: fences are judged.
    Fence,
    /// SQ work manager: the send module is asked.
    Request,
    /// SM requester: a request is taken and passed on.
    Requester,
    /// Work acceptor: one queue pair's request is chosen.
    Acceptor,
    /// SM work resolver: takes the request.
    Accept,
    /// SM work resolver: judges the operation.
    CheckOperation,
    /// A steering tag's entry is read from its table: for each element that is sent or that a read's answer goes to, for each
    /// segment received.
    ReadStag,
    /// The entry is judged.
    CheckStag,
    /// A physical buffer list is read.
    ReadPbl,
    /// The DMA controller is asked for a transfer.
    DmaRequest,
    /// Segment generator: takes a transfer's length.
    DmaLength,
    /// Segment generator: decides a segment's length.
    SegmentLength,
    /// Segment generator: writes so many bytes of header (and of a request's body, which no DMA transfer brings).
    Header(u32),
    /// Segment generator: waits for the data that the DMA controller reads; not where there are none.
    ReadDma,
    /// Segment generator: so many bytes of payload go out.
    WritePayload(u32),
    /// Segment receiver: so many bytes of header are read.
    ReceiveHeader(u32),
    /// RM work resolver: judges a header.
    CheckHeader,
    /// Segment receiver: so many bytes of payload come in.
    ReceivePayload(u32),
    /// A completion is placed.
    Complete,
}

/// Steps in the order in which they were done, if somebody listens.
#[derive(Debug, Default)]
pub struct Ledger {
    steps: Option<Vec<Step>>,
}

impl Ledger {
    /// From now on steps are written down.
    pub fn listen(&mut self) {
        self.steps = Some(Vec::new());
    }

    /// The steps since the last call.
    pub fn take(&mut self) -> Vec<Step> {
        self.steps.as_mut().map(core::mem::take).unwrap_or_default()
    }

    #[inline]
    pub(super) fn step(&mut self, step: Step) {
        self.steps(&[step]);
    }

    #[inline]
    pub(super) fn steps(&mut self, more: &[Step]) {
        if let Some(steps) = &mut self.steps {
            steps.extend_from_slice(more);
        }
    }
}
