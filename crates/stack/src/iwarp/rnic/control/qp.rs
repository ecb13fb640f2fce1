//! QP function: one queue pair. Its queues, its state, its numbers on the stream.
//!
//! ```text
//!           connect              disconnect, the peer's end           stream gone
//!   Idle ───────────▶ Rts ─────────────────────────────▶ Closing ───────────────┐
//!    ▲                 │ an error of ours or the peer's                          ▼
//!    │                 └───────────▶ Terminate ──── Terminate sent, gone ────▶ Error
//!    └──────────────────────── reset ───────────────────────────────────────────┘
//! ```
//!
//! Idle      receives may be posted. Rts: everything. Closing: what is posted still goes, then the stream is finished.
//! Terminate nothing more is done but to say why. Error: all work is flushed, and all that is posted.

use super::super::clocks::Step;
use super::super::executor::send::Job;
use super::super::host::smt::StagTable;
use super::super::work::{Kind, Status};
use super::super::{Desk, Event};
use super::completion;
use super::reads::{Irrq, Orrq};
use super::receive_queue::{ReceiveQueue, SharedReceiveQueue};
use super::send_queue::SendQueue;
use kiban_ground::Slab;
use kiban_wire::rdmap::{Reason, Terminate};

/// Where a queue pair stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpState {
    /// Not connected.
    Idle,
    /// Connected: ready to send.
    Rts,
    /// Work is finished, then the stream.
    Closing,
    /// An error: the peer is told.
    Terminate,
    /// Over: everything is flushed.
    Error,
}

/// What a queue pair is made with. Zero entries in a queue are allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpAttributes {
    /// The protection domain.
    pub pd: u32,
    /// Where completions of the send queue go.
    pub send_cq: u32,
    /// Where completions of receives go.
    pub receive_cq: u32,
    /// A shared receive queue in place of one of its own.
    pub srq: Option<u32>,
    /// Entries of the send queue.
    pub send_work_max: usize,
    /// Entries of the receive queue.
    pub receive_work_max: usize,
    /// Elements of a send at most.
    pub send_sges_max: usize,
    /// Elements of a receive at most.
    pub receive_sges_max: usize,
    /// Bytes of inline data at most.
    pub inline_bytes_max: usize,
    /// Whether all sends are signalled.
    pub signal_all: bool,
    /// What a message does for which no receive is posted: ends the connection, as the standard has it, or waits, and the
    /// stream with it.
    pub waits_for_receives: bool,
}

/// What the two ends of a stream agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamTraits {
    /// Reads and atomics of the peer's under way at most.
    pub ird: u16,
    /// Reads and atomics of ours under way at most.
    pub ord: u16,
    /// Whether both know RFC 7306.
    pub extensions: bool,
    /// Whether we may send before the peer has (RFC 5044 §7.1.2: a responder may not).
    pub may_send: bool,
}

/// What the stream below is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamWish {
    /// Go on.
    Open,
    /// Send what is there, then end in order.
    Finish,
    /// End at once.
    Abort,
}

/// One queue pair.
#[derive(Debug)]
pub(in super::super) struct Qp {
    pub(in super::super) number: u32,
    pub(in super::super) attributes: QpAttributes,
    pub(in super::super) state: QpState,
    pub(in super::super) traits: StreamTraits,
    pub(in super::super) sq: SendQueue,
    pub(in super::super) rq: ReceiveQueue,
    pub(in super::super) orrq: Orrq,
    pub(in super::super) irrq: Irrq,
    /// What the send module is in the middle of.
    pub(in super::super) job: Option<Job>,
    /// Requests of a read that have not been made: other messages may go between them.
    pub(in super::super) asking: Option<Job>,
    /// The answers had their turn last: the send queue is next.
    pub(in super::super) sq_turn: bool,
    /// The next message's number, for each queue of the peer's.
    pub(in super::super) sequence_out: [u32; 4],
    /// The number that the next message of each of our queues must have.
    pub(in super::super) sequence_in: [u32; 4],
    /// Segments made; the lower layer has let go of the first `confirmed`.
    pub(in super::super) segments_out: u64,
    pub(in super::super) confirmed: u64,
    /// The last word, not yet said.
    pub(in super::super) terminate: Option<Terminate>,
    pub(in super::super) wish: StreamWish,
    /// It stands in the work acceptor's line.
    pub(in super::super) in_line: bool,
}

impl Qp {
    pub(in super::super) fn new(number: u32, attributes: QpAttributes) -> Qp {
        Qp {
            number,
            attributes,
            state: QpState::Idle,
            traits: StreamTraits { ird: 0, ord: 0, extensions: false, may_send: false },
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
            terminate: None,
            wish: StreamWish::Open,
            in_line: false,
        }
    }

    /// Whom the table of tags should take it for.
    #[inline]
    pub(in super::super) fn owner(&self) -> (u32, u32) {
        (self.attributes.pd, self.number)
    }

    /// Whether messages still come and go.
    #[inline]
    pub(in super::super) fn is_up(&self) -> bool {
        matches!(self.state, QpState::Rts | QpState::Closing)
    }

    /// It stands in line for the send module from now on.
    #[inline]
    pub(in super::super) fn want_service(&mut self, desk: &mut Desk) {
        if !self.in_line {
            self.in_line = true;
            desk.line.push_back(self.number);
        }
    }

    /// Completes what is complete, in order.
    #[inline]
    pub(in super::super) fn sweep(&mut self, desk: &mut Desk) {
        while let Some((work, status)) = self.sq.pop(self.confirmed) {
            let told = work.signalled || self.attributes.signal_all || status != Status::Success;
            if told {
                desk.clocks.step(Step::Complete);
                let bytes = match work.operation.kind() {
                    Kind::Read => work.data.length() as u32,
                    Kind::Atomic => 8,
                    _ => 0,
                };
                let completion = completion::of_send(self.number, &work, status, bytes);
                desk.complete(self.attributes.send_cq, completion, false);
            }
            // What stands behind a local fence may be free to go now.
            if self.sq.next().is_some_and(|(_, wqe)| wqe.work.local_fence) {
                self.want_service(desk);
            }
        }
        if self.state == QpState::Closing && self.sq.is_empty() && self.wish == StreamWish::Open {
            self.wish = StreamWish::Finish;
            self.want_service(desk);
        }
    }

    /// Everything that is posted ends as flushed, in order; what is done ends as it did.
    pub(in super::super) fn flush(&mut self, desk: &mut Desk) {
        self.sweep(desk);
        self.job = None;
        self.asking = None;
        self.orrq.entries.clear();
        self.irrq.entries.clear();
        while let Some(work) = self.sq.pop_front() {
            let completion = completion::of_send(self.number, &work, Status::Flushed, 0);
            desk.complete(self.attributes.send_cq, completion, false);
        }
        let incoming = self.rq.incoming.take().map(|incoming| incoming.work);
        for work in incoming.into_iter().chain(core::mem::take(&mut self.rq.wqes)) {
            let completion = completion::of_receive(self.number, work.id, Status::Flushed, Kind::Receive, 0);
            desk.complete(self.attributes.receive_cq, completion, true);
        }
    }

    /// An error: the peer is told why, if it is there to be told, and everything is flushed. `oldest`: how the work ends
    /// that is to blame.
    pub(in super::super) fn fail(
        &mut self,
        terminate: Option<Terminate>,
        oldest: Option<(u64, Status)>,
        desk: &mut Desk,
    ) {
        if !self.is_up() {
            return;
        }
        if let Some((number, status)) = oldest {
            self.sq.done(number, status);
            // What stands before it was sent and is flushed; it keeps its own status.
            self.flush_before(number, desk);
        }
        desk.event(Event::QpFailed { qp: self.number, reason: terminate.as_ref().map(|last| last.reason) });
        match terminate {
            Some(last) if self.wish == StreamWish::Open || self.state == QpState::Closing => {
                self.terminate = Some(last);
                self.state = QpState::Terminate;
            }
            _ => {
                self.state = QpState::Error;
                self.wish = StreamWish::Abort;
            }
        }
        self.flush(desk);
        self.want_service(desk);
    }

    fn flush_before(&mut self, number: u64, desk: &mut Desk) {
        self.sweep(desk);
        while let Some((first, _)) = self.sq.front()
            && first < number
        {
            let Some(work) = self.sq.pop_front() else { break };
            let completion = completion::of_send(self.number, &work, Status::Flushed, 0);
            desk.complete(self.attributes.send_cq, completion, false);
        }
        self.sweep(desk);
    }

    /// The stream has gone: in order, or not.
    pub(in super::super) fn stream_gone(&mut self, in_order: bool, desk: &mut Desk) {
        if self.state == QpState::Idle {
            return;
        }
        if self.is_up() && !(in_order && self.sq.is_empty()) {
            let oldest = self.sq.front().map(|(number, _)| (number, Status::Lost));
            if let Some((number, _)) = oldest
                && !in_order
            {
                self.sq.done(number, Status::Lost);
            }
        }
        if self.is_up() && !in_order {
            desk.event(Event::QpFailed { qp: self.number, reason: None });
        }
        self.state = QpState::Error;
        self.terminate = None;
        self.wish = StreamWish::Abort;
        self.flush(desk);
    }

    /// The peer has said its last word: why it ends.
    pub(in super::super) fn on_terminate(&mut self, terminate: &Terminate, desk: &mut Desk) {
        desk.event(Event::PeerTerminated { qp: self.number, reason: terminate.reason });
        let status = match terminate.reason {
            Reason { layer: 0 | 1, kind: 1, .. } => Status::RemoteAccess,
            Reason { layer: 0, kind: 2, .. } => Status::RemoteOperation,
            _ => Status::RemoteRequest,
        };
        // A read that was refused is the one that the peer shows: those before it may be good, and were not yet answered. A
        // Write or a Send has left, and only what has not yet completed can still say so.
        let refused = terminate.read_request.and_then(|request| self.orrq.asked_for(&request));
        let oldest = match (refused, self.orrq.entries.front()) {
            (Some(number), _) => Some(number),
            (None, Some(entry)) if terminate.read_request.is_some() => Some(entry.wqe),
            _ => self.sq.front().filter(|(_, wqe)| wqe.is_started()).map(|(number, _)| number),
        };
        self.state = QpState::Error;
        if let Some(number) = oldest {
            self.sq.done(number, status);
            self.flush_before(number, desk);
        }
        self.wish = StreamWish::Finish;
        self.flush(desk);
        self.want_service(desk);
    }

    /// A receive for the next message, from the queue of its own or the shared one.
    pub(in super::super) fn take_receive(
        &mut self,
        srqs: &mut Slab<SharedReceiveQueue>,
        desk: &mut Desk,
    ) -> Option<super::super::work::ReceiveWork> {
        let Some(number) = self.attributes.srq else { return self.rq.wqes.pop_front() };
        let srq = srqs.get_mut(number)?;
        let work = srq.wqes.pop_front();
        if srq.wqes.len() < srq.limit {
            srq.limit = 0;
            desk.event(Event::SrqLimit { srq: number });
        }
        work
    }

    /// Gives everything back that others count: for destruction.
    pub(in super::super) fn release(
        &self,
        smt: &mut StagTable,
        srqs: &mut Slab<SharedReceiveQueue>,
        desk: &mut Desk,
    ) {
        smt.release_windows(self.number);
        smt.release_pd(self.attributes.pd);
        for cq in [self.attributes.send_cq, self.attributes.receive_cq] {
            if let Some(cq) = desk.cqs.get_mut(cq) {
                cq.users = cq.users.saturating_sub(1);
            }
        }
        if let Some(srq) = self.attributes.srq.and_then(|srq| srqs.get_mut(srq)) {
            srq.users = srq.users.saturating_sub(1);
        }
    }
}
