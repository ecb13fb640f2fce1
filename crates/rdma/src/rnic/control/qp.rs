//! QP function: one queue pair with its queues, its state and its sequence numbers.
//!
//! ```text
//!           connect              disconnect, the peer's end           stream gone
//!   Idle ───────────▶ Rts ─────────────────────────────▶ Closing ───────────────┐
//!    ▲                 │ an error of ours or the peer's                          ▼
//!    │                 └───────────▶ Terminate ──── Terminate sent, gone ────▶ Error
//!    └──────────────────────── reset ───────────────────────────────────────────┘
//! ```
//!
//! Idle       receives may be posted. Sends may be posted too if a stream is being set up (`Rnic::expect`),
//!            and wait for it.
//! Rts        all operations are allowed.
//! Closing    posted work is still sent, then the stream is finished.
//! Terminate  only the Terminate message is still sent.
//! Error      all work is flushed, and so is any work posted later.

use super::super::clocks::Step;
use super::super::error::RequestError;
use super::super::event::Event;
use super::super::host::smt::StagTable;
use super::super::outbox::Outputs;
use super::super::work::{Access, Kind, Operation, Status};
use super::completion;
use super::datagram::DatagramState;
use super::job::Job;
use super::reads::{Irrq, Orrq};
use super::receive_queue::{ReceiveQueue, SharedReceiveQueue};
use super::roce::Roce;
use super::send_queue::SendQueue;
use super::state::{Post, QpAttributes, QpState, StreamAction, StreamTraits};
use crate::wire::rdmap::{Reason, Terminate};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use kiban_base::Slab;

/// One queue pair.
#[derive(Debug)]
pub(in super::super) struct Qp {
    pub(in super::super) number: u32,
    /// The queue pair number in its completions: its own number, unless the host has set another.
    pub(in super::super) qpn: u32,
    pub(in super::super) attributes: QpAttributes,
    pub(in super::super) state: QpState,
    /// Set for a datagram queue pair, which has no stream.
    pub(in super::super) datagram: Option<DatagramState>,
    /// Set while the queue pair speaks RoCEv2 with its peer, instead of having a stream.
    pub(in super::super) roce: Option<Box<Roce>>,
    /// Set for the target of an extended reliable connection: its XRC domain. Its protection domain, shared
    /// receive queue and completion queue are those of the last request.
    pub(in super::super) xrc_domain: Option<u32>,
    /// The traits agreed on with the peer or, while a stream is being set up, the expected traits.
    pub(in super::super) traits: StreamTraits,
    /// Whether the peer is known to be a kiban NIC, regardless of how the stream was set up.
    pub(in super::super) peer_is_kiban: bool,
    /// A stream is being set up: sends are accepted and wait for it.
    pub(in super::super) is_expecting: bool,
    /// The queue pair outlives an orderly close by the peer.
    pub(in super::super) outlives_peer_close: bool,
    /// The peer has closed its stream gracefully, and the queue pair was kept.
    pub(in super::super) has_outlived_peer: bool,
    pub(in super::super) sq: SendQueue,
    pub(in super::super) rq: ReceiveQueue,
    pub(in super::super) orrq: Orrq,
    pub(in super::super) irrq: Irrq,
    /// The message that the send module has partly sent.
    pub(in super::super) job: Option<Job>,
    /// Read requests that are still to be sent; other messages may be sent between them.
    pub(in super::super) asking: Option<Job>,
    /// The last message was a response, so the send queue is next.
    pub(in super::super) sq_turn: bool,
    /// The next message sequence number (MSN) for each of the peer's queues.
    pub(in super::super) sequence_out: [u32; 4],
    /// The expected MSN of each local queue.
    pub(in super::super) sequence_in: [u32; 4],
    /// The number of segments built, and how many of them, counted from the first, the lower layer no longer
    /// holds.
    pub(in super::super) segments_out: u64,
    pub(in super::super) confirmed: u64,
    /// The access that peers have through this queue pair.
    pub(in super::super) allows: Access,
    /// Both ends acknowledge messages: Writes, Sends and immediate data complete when the peer acknowledges
    /// their arrival.
    pub(in super::super) acknowledges: bool,
    /// WQEs that await an acknowledgement, and the number of messages that the peer has acknowledged.
    pub(in super::super) unacknowledged: VecDeque<u64>,
    pub(in super::super) acknowledged: u64,
    /// The number of messages that have arrived here, and how many of them have been acknowledged.
    pub(in super::super) arrived: u64,
    pub(in super::super) acked: u64,
    /// Whether this end still has to announce that it is leaving, and whether the peer has announced it.
    pub(in super::super) leave_pending: bool,
    pub(in super::super) peer_is_leaving: bool,
    /// A Terminate message to be sent.
    pub(in super::super) terminate: Option<Terminate>,
    pub(in super::super) stream_action: StreamAction,
    /// Whether the queue pair is in a TX queue.
    pub(in super::super) in_tx_queue: bool,
}

impl Qp {
    pub(in super::super) fn new(number: u32, attributes: QpAttributes) -> Qp {
        Qp {
            number,
            qpn: number,
            attributes,
            state: QpState::Idle,
            datagram: None,
            roce: None,
            xrc_domain: None,
            traits: StreamTraits { ird: 0, ord: 0, extensions: false, kiban: false, may_send: false },
            peer_is_kiban: false,
            is_expecting: false,
            outlives_peer_close: false,
            has_outlived_peer: false,
            sq: SendQueue::new(attributes.send_work_max),
            rq: ReceiveQueue::new(attributes.receive_work_max),
            orrq: Orrq::default(),
            irrq: Irrq::default(),
            job: None,
            asking: None,
            sq_turn: false,
            sequence_out: [1; 4],
            sequence_in: [1; 4],
            segments_out: 0,
            confirmed: 0,
            allows: Access {
                remote_write: true,
                remote_read: true,
                remote_atomic: true,
                ..Access::default()
            },
            acknowledges: false,
            leave_pending: false,
            peer_is_leaving: false,
            unacknowledged: VecDeque::new(),
            acknowledged: 0,
            arrived: 0,
            acked: 0,
            terminate: None,
            stream_action: StreamAction::Open,
            in_tx_queue: false,
        }
    }

    /// Returns the protection domain and the queue pair number, which are needed to check steering tags.
    #[inline]
    pub(in super::super) fn owner(&self) -> (u32, u32) {
        (self.attributes.pd, self.number)
    }

    /// Returns whether messages are still sent and received.
    #[inline]
    pub(in super::super) fn is_up(&self) -> bool {
        matches!(self.state, QpState::Rts | QpState::Closing)
    }

    /// Returns whether the agreed traits allow this operation.
    #[inline]
    pub(in super::super) fn agrees(&self, operation: &Operation) -> bool {
        !(operation.has_response() && self.traits.ord == 0
            || operation.needs_extensions() && !self.traits.extensions
            || operation.needs_kiban_peer() && !self.traits.kiban
            || self.roce.as_ref().is_some_and(|roce| !roce.has(operation)))
    }

    /// Decides what happens to work that is posted now.
    #[inline]
    pub(in super::super) fn validate_post(&self, operation: &Operation) -> Result<Post, RequestError> {
        if self.datagram.is_some() != matches!(operation, Operation::Datagram { .. }) {
            return Err(RequestError::OtherKind);
        }
        match (self.state, &self.datagram) {
            (QpState::Idle, Some(state)) => state.validate_post(operation),
            (QpState::Idle, None) if !self.is_expecting => Err(RequestError::BadState(QpState::Idle)),
            (QpState::Idle | QpState::Rts, _) if !self.agrees(operation) => Err(RequestError::NotAgreed),
            (QpState::Idle, None) => Ok(Post::AwaitsStream),
            (QpState::Rts, _) => Ok(Post::Queued),
            // Completions keep the posting order.
            (QpState::Closing, _) => Ok(Post::FlushedInOrder),
            (QpState::Terminate | QpState::Error, _) => Ok(Post::Flushed),
        }
    }

    /// Appends the queue pair to its TX queue, unless it is in it.
    #[inline]
    pub(in super::super) fn schedule(&mut self, outputs: &mut Outputs) {
        if !self.in_tx_queue {
            self.in_tx_queue = true;
            let queue = match (&self.datagram, &self.roce) {
                (Some(_), _) => &mut outputs.datagram_tx_queue,
                (None, Some(_)) => &mut outputs.packet_tx_queue,
                (None, None) => &mut outputs.tx_queue,
            };
            queue.push_back(self.number);
        }
    }

    /// Returns how many of our reads and atomics have no complete response yet.
    #[inline]
    pub(in super::super) fn unanswered(&self) -> usize {
        self.roce.as_ref().map_or(self.orrq.entries.len(), |roce| roce.requester.unanswered.len())
    }

    /// Records that a WQE's message was sent and that the peer will acknowledge it.
    #[inline]
    pub(in super::super) fn await_arrival(&mut self, wqe: u64) {
        if self.acknowledges {
            self.sq.on_request_sent(wqe);
            self.unacknowledged.push_back(wqe);
        }
    }

    /// Counts a message from the peer that has been placed completely and must be acknowledged.
    #[inline]
    pub(in super::super) fn has_arrived(&mut self, outputs: &mut Outputs) {
        if self.acknowledges {
            self.arrived += 1;
            self.schedule(outputs);
        }
    }

    /// Returns whether an acknowledgement or an announcement that this end is leaving is to be sent.
    #[inline]
    pub(in super::super) fn acknowledgement_pending(&self) -> bool {
        (self.arrived != self.acked || self.leave_pending) && (self.is_up() || self.terminate.is_some())
    }

    /// Records that `arrived` of our messages have arrived at the peer. Returns false if fewer were
    /// outstanding.
    pub(in super::super) fn on_acknowledgement(&mut self, arrived: u64, outputs: &mut Outputs) -> bool {
        while self.acknowledged < arrived {
            let Some(wqe) = self.unacknowledged.pop_front() else { return false };
            self.acknowledged += 1;
            self.sq.on_response(wqe);
        }
        self.complete_finished(outputs);
        true
    }

    /// Completes finished work requests, in order.
    #[inline]
    pub(in super::super) fn complete_finished(&mut self, outputs: &mut Outputs) {
        while let Some((work, status)) = self.sq.pop(self.confirmed) {
            let completes = work.signalled || self.attributes.signal_all || status != Status::Success;
            if completes {
                outputs.clocks.step(Step::Complete);
                let bytes = match work.operation.kind() {
                    Kind::Read => work.data.length() as u32,
                    Kind::CompareSwap | Kind::FetchAdd => 8,
                    _ => 0,
                };
                let completion = completion::of_send(self.qpn, &work, status, bytes);
                outputs.complete(self.attributes.send_cq, completion, false);
            }
            // A WQE with a local fence may be able to start now.
            if self.sq.next().is_some_and(|(_, wqe)| wqe.work.local_fence) {
                self.schedule(outputs);
            }
        }
        if self.state == QpState::Closing && self.sq.is_empty() && self.stream_action == StreamAction::Open {
            self.stream_action = StreamAction::Finish;
            self.schedule(outputs);
        }
    }

    /// Flushes all posted work, in order. Work that is already done keeps its status.
    pub(in super::super) fn flush(&mut self, outputs: &mut Outputs) {
        self.complete_finished(outputs);
        self.job = None;
        self.asking = None;
        self.orrq.entries.clear();
        self.irrq.entries.clear();
        self.unacknowledged.clear();
        if let Some(roce) = &mut self.roce {
            roce.clear();
        }
        self.flush_sends(outputs);
        let incoming = self.rq.incoming.take().map(|incoming| incoming.work);
        for work in incoming.into_iter().chain(core::mem::take(&mut self.rq.wqes)) {
            let completion = completion::of_receive(self.qpn, work.id, Status::Flushed, Kind::Receive, 0);
            outputs.complete(self.attributes.receive_cq, completion, true);
        }
    }

    /// Flushes the whole send queue, in order.
    pub(in super::super) fn flush_sends(&mut self, outputs: &mut Outputs) {
        while let Some(work) = self.sq.pop_front() {
            let completion = completion::of_send(self.qpn, &work, Status::Flushed, 0);
            outputs.complete(self.attributes.send_cq, completion, false);
        }
    }

    /// Fails the queue pair: sends `terminate`, if the stream can still send, and flushes all work. `oldest`
    /// contains the work request at fault and its status.
    pub(in super::super) fn fail(
        &mut self,
        terminate: Option<Terminate>,
        oldest: Option<(u64, Status)>,
        outputs: &mut Outputs,
    ) {
        self.fail_for(terminate.as_ref().map(|last| last.reason), terminate, oldest, outputs);
    }

    /// Fails the queue pair because it has refused a request of the peer, by other means than a Terminate.
    pub(in super::super) fn fail_after_refusal(&mut self, reason: Reason, outputs: &mut Outputs) {
        self.fail_for(Some(reason), None, None, outputs);
    }

    fn fail_for(
        &mut self,
        reason: Option<Reason>,
        terminate: Option<Terminate>,
        oldest: Option<(u64, Status)>,
        outputs: &mut Outputs,
    ) {
        if self.datagram.is_some() {
            return self.fail_datagrams(outputs);
        }
        if !self.is_up() {
            return;
        }
        if let Some((number, status)) = oldest {
            self.sq.done(number, status);
            // Earlier work requests have been sent, so they are flushed; the one at fault keeps its own
            // status.
            self.flush_before(number, outputs);
        }
        outputs.event(Event::QpFailed { qp: self.number, reason });
        match terminate {
            Some(last) if self.stream_action == StreamAction::Open || self.state == QpState::Closing => {
                self.terminate = Some(last);
                self.state = QpState::Terminate;
            }
            _ => {
                self.state = QpState::Error;
                self.stream_action = StreamAction::Abort;
            }
        }
        self.flush(outputs);
        self.schedule(outputs);
    }

    fn flush_before(&mut self, number: u64, outputs: &mut Outputs) {
        self.complete_finished(outputs);
        while let Some((first, _)) = self.sq.front()
            && first < number
        {
            let Some(work) = self.sq.pop_front() else { break };
            let completion = completion::of_send(self.qpn, &work, Status::Flushed, 0);
            outputs.complete(self.attributes.send_cq, completion, false);
        }
        self.complete_finished(outputs);
    }

    /// Gives up the queue pair: the expected stream will never arrive, or the peer that left does not
    /// return.
    pub(in super::super) fn give_up(&mut self, outputs: &mut Outputs) {
        if let Some((number, _)) = self.sq.front() {
            self.sq.done(number, Status::Lost);
        }
        self.is_expecting = false;
        self.state = QpState::Error;
        self.stream_action = StreamAction::Abort;
        outputs.event(Event::QpFailed { qp: self.number, reason: None });
        self.flush(outputs);
    }

    /// Handles the end of the stream. `in_order` says whether the close was orderly.
    pub(in super::super) fn on_stream_closed(&mut self, in_order: bool, outputs: &mut Outputs) {
        if self.state == QpState::Idle {
            return;
        }
        // An orderly close alone does not show that the peer left: the operating system also closes the
        // streams of a killed process in order.
        let in_order = in_order && (self.peer_is_leaving || !self.acknowledges);
        if in_order && self.outlives_peer_close && self.state == QpState::Rts && self.rq.incoming.is_none() {
            self.has_outlived_peer = true;
            if !self.sq.is_empty() {
                outputs.event(Event::Abandoned { qp: self.number });
            }
            return;
        }
        if self.is_up() && !(in_order && self.sq.is_empty()) {
            let oldest = self.sq.front().map(|(number, _)| (number, Status::Lost));
            if let Some((number, _)) = oldest
                && (!in_order || self.outlives_peer_close)
            {
                self.sq.done(number, Status::Lost);
            }
        }
        if self.is_up() && !in_order {
            outputs.event(Event::QpFailed { qp: self.number, reason: None });
        }
        self.state = QpState::Error;
        self.terminate = None;
        self.stream_action = StreamAction::Abort;
        self.flush(outputs);
    }

    /// Handles the peer's Terminate.
    pub(in super::super) fn on_terminate(&mut self, terminate: &Terminate, outputs: &mut Outputs) {
        outputs.event(Event::PeerTerminated { qp: self.number, reason: terminate.reason });
        let status = match terminate.reason {
            Reason { layer: 0 | 1, kind: 1, .. } => Status::RemoteAccess,
            Reason { layer: 0, kind: 2, .. } | Reason::LOCAL_ERROR => Status::RemoteOperation,
            _ => Status::RemoteRequest,
        };
        // A refused read is identified by the request in the Terminate, since earlier reads may still
        // succeed. A refused Write or Send may already have completed, so the oldest incomplete work reports
        // the error.
        let refused = terminate.read_request.and_then(|request| self.orrq.find_read(&request));
        let oldest = match (refused, self.orrq.entries.front()) {
            (Some(number), _) => Some(number),
            (None, Some(entry)) if terminate.read_request.is_some() => Some(entry.wqe),
            _ => self.sq.front().filter(|(_, wqe)| wqe.is_started()).map(|(number, _)| number),
        };
        self.state = QpState::Error;
        if let Some(number) = oldest {
            self.sq.done(number, status);
            self.flush_before(number, outputs);
        }
        self.stream_action = StreamAction::Finish;
        self.flush(outputs);
        self.schedule(outputs);
    }

    /// Returns the number of bytes that the next receive takes, if one is posted.
    pub(in super::super) fn next_room(&self, srqs: &Slab<SharedReceiveQueue>) -> Option<u64> {
        let wqes = match self.attributes.srq {
            None => &self.rq.wqes,
            Some(srq) => &srqs.get(srq)?.wqes,
        };
        wqes.front().map(|work| work.sges.iter().map(|sge| u64::from(sge.length)).sum())
    }

    /// Takes a receive for the next message from the queue pair's own receive queue or its shared one.
    pub(in super::super) fn take_receive(
        &mut self,
        srqs: &mut Slab<SharedReceiveQueue>,
        outputs: &mut Outputs,
    ) -> Option<super::super::work::ReceiveWork> {
        let Some(number) = self.attributes.srq else { return self.rq.wqes.pop_front() };
        let srq = srqs.get_mut(number)?;
        let work = srq.wqes.pop_front();
        if srq.wqes.len() < srq.limit {
            srq.limit = 0;
            outputs.event(Event::SrqLimit { srq: number });
        }
        work
    }

    /// Before destruction, releases this queue pair's references to other objects, which count their users.
    pub(in super::super) fn release(
        &self,
        smt: &mut StagTable,
        srqs: &mut Slab<SharedReceiveQueue>,
        outputs: &mut Outputs,
    ) {
        smt.release_windows(self.number);
        if self.xrc_domain.is_some() {
            return;
        }
        smt.release_pd(self.attributes.pd);
        for cq in [self.attributes.send_cq, self.attributes.receive_cq] {
            if let Some(cq) = outputs.cqs.get_mut(cq) {
                cq.users = cq.users.saturating_sub(1);
            }
        }
        if let Some(srq) = self.attributes.srq.and_then(|srq| srqs.get_mut(srq)) {
            srq.users = srq.users.saturating_sub(1);
        }
    }

    /// Fails a datagram queue pair: posted work is flushed.
    pub(in super::super) fn fail_datagrams(&mut self, outputs: &mut Outputs) {
        if self.state == QpState::Error {
            return;
        }
        self.state = QpState::Error;
        outputs.event(Event::QpFailed { qp: self.number, reason: None });
        self.report_last_receive(outputs);
        self.flush(outputs);
    }

    /// Reports that the queue pair takes no more receives from its shared receive queue.
    pub(in super::super) fn report_last_receive(&self, outputs: &mut Outputs) {
        if self.attributes.srq.is_some() && self.xrc_domain.is_none() {
            outputs.event(Event::LastReceive { qp: self.number });
        }
    }
}
