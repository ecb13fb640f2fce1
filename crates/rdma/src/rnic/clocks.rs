//! Optional log of the steps that each block of the core executes, for timing models.
//!
//! Purpose  measures the production core with the clock-cycle model of paper \[3\]: each block records the
//!          steps that it executes, and a model assigns clock cycles to them.
//! Cost     recording is off by default and then costs one branch per step.
//!
//! \[3\]: Uchiyama and others, *Implementation of the RDMA communication mechanism on ExpEther*, 2008; the
//! steps of a Write are the rows of its table 2.

use alloc::vec::Vec;

/// A step of a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// SQ work manager: fetches a WQE.
    FetchWqe,
    /// SQ work manager: checks fences.
    Fence,
    /// SQ work manager: sends a request to the send module.
    Request,
    /// SM requester: takes a request and passes it on.
    Requester,
    /// Work acceptor: selects one queue pair's request.
    Acceptor,
    /// SM work resolver: takes the request.
    Accept,
    /// SM work resolver: checks the operation.
    CheckOperation,
    /// Reads a steering tag's table entry: once per element to be sent or to receive a read response, and
    /// once per received segment.
    ReadStag,
    /// Checks the steering tag's entry.
    CheckStag,
    /// Reads a physical buffer list.
    ReadPbl,
    /// Requests a transfer from the DMA controller.
    DmaRequest,
    /// Segment generator: takes a transfer's length.
    DmaLength,
    /// Segment generator: decides a segment's length.
    SegmentLength,
    /// Segment generator: writes this many bytes of header. They include a request's body, which is not
    /// supplied by DMA.
    Header(u32),
    /// Segment generator: waits for the data that the DMA controller reads; omitted if there is no data.
    ReadDma,
    /// Segment generator: sends this many bytes of payload.
    WritePayload(u32),
    /// Segment receiver: reads this many bytes of header.
    ReceiveHeader(u32),
    /// RM work resolver: checks a header.
    CheckHeader,
    /// Segment receiver: receives this many bytes of payload.
    ReceivePayload(u32),
    /// Adds a completion to its queue.
    Complete,
}

/// The steps in execution order, if recording is on.
#[derive(Debug, Default)]
pub struct StepLog {
    steps: Option<Vec<Step>>,
}

impl StepLog {
    /// Starts recording.
    pub fn listen(&mut self) {
        self.steps = Some(Vec::new());
    }

    pub(super) fn is_listening(&self) -> bool {
        self.steps.is_some()
    }

    /// Returns the steps recorded since the last call, and clears them.
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
