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
//! Idle      receives may be posted; sends too, if a stream is on the way (`Rnic::expect`): they wait for it. Rts: everything. Closing: what is posted still goes, then the stream is finished.
//! Terminate nothing more is done but to say why. Error: all work is flushed, and all that is posted.

use super::super::clocks::Step;
use super::super::executor::send::Job;
use super::super::host::smt::StagTable;
use super::super::work::{Access, Kind, Operation, Status};
use super::super::{Desk, Event, Refusal};
use super::completion;
use super::datagram::DatagramState;
use super::reads::{Irrq, Orrq};
use super::receive_queue::{ReceiveQueue, SharedReceiveQueue};
use super::send_queue::SendQueue;
use alloc::collections::VecDeque;
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
    /// Whether both are kiban's: beside what standards say they know its own messages. [`super::super::Rnic::agree_on_own`]
    /// says so too, where whoever makes the traits cannot know.
    pub kiban: bool,
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

/// What is done with work that is posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Post {
    /// It goes when its turn comes.
    Goes,
    /// It waits for the stream.
    Waits,
    /// It ends as flushed, behind what still goes.
    Late,
    /// It ends as flushed at once.
    Flushed,
}

/// One queue pair.
#[derive(Debug)]
pub(in super::super) struct Qp {
    pub(in super::super) number: u32,
    /// What its completions call it: its number, unless the host has another.
    pub(in super::super) name: u32,
    pub(in super::super) attributes: QpAttributes,
    pub(in super::super) state: QpState,
    /// It is for datagrams, and has no stream.
    pub(in super::super) datagram: Option<DatagramState>,
    /// What was agreed on; of a stream that is on the way, what is expected.
    pub(in super::super) traits: StreamTraits,
    /// The peer is known to be kiban's, whatever the stream's set-up says.
    pub(in super::super) is_among_own: bool,
    /// A stream is on the way: sends are taken, and wait for it.
    pub(in super::super) is_expecting: bool,
    /// A peer that ends its stream in order is not the end of the queue pair.
    pub(in super::super) stays: bool,
    /// Such a peer has gone.
    pub(in super::super) is_alone: bool,
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
    /// What peers may do with memory through this queue pair.
    pub(in super::super) allows: Access,
    /// Writes, Sends and immediate data are done when the peer says that they have arrived; both ends say so.
    pub(in super::super) acknowledges: bool,
    /// Of these WQEs it has not said so; it has of `acknowledged` messages.
    pub(in super::super) unacknowledged: VecDeque<u64>,
    pub(in super::super) acknowledged: u64,
    /// How many have arrived here, and of how many the peer knows.
    pub(in super::super) arrived: u64,
    pub(in super::super) told: u64,
    /// That this end leaves is still to be said; the peer has said so.
    pub(in super::super) parts: bool,
    pub(in super::super) peer_parts: bool,
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
            name: number,
            attributes,
            state: QpState::Idle,
            datagram: None,
            traits: StreamTraits { ird: 0, ord: 0, extensions: false, kiban: false, may_send: false },
            is_among_own: false,
            is_expecting: false,
            stays: false,
            is_alone: false,
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
            parts: false,
            peer_parts: false,
            unacknowledged: VecDeque::new(),
            acknowledged: 0,
            arrived: 0,
            told: 0,
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

    /// Whether the stream carries this work.
    #[inline]
    pub(in super::super) fn agrees(&self, operation: &Operation) -> bool {
        !(operation.is_answered() && self.traits.ord == 0
            || operation.needs_extensions() && !self.traits.extensions
            || operation.needs_own() && !self.traits.kiban)
    }

    /// What is done with work that is posted now.
    #[inline]
    pub(in super::super) fn judge_post(&self, operation: &Operation) -> Result<Post, Refusal> {
        if self.datagram.is_some() != matches!(operation, Operation::Datagram { .. }) {
            return Err(Refusal::OtherKind);
        }
        match (self.state, &self.datagram) {
            (QpState::Idle, Some(state)) => state.judge(operation),
            (QpState::Idle, None) if !self.is_expecting => Err(Refusal::BadState(QpState::Idle)),
            (QpState::Idle | QpState::Rts, _) if !self.agrees(operation) => Err(Refusal::NotAgreed),
            (QpState::Idle, None) => Ok(Post::Waits),
            (QpState::Rts, _) => Ok(Post::Goes),
            // Completions keep the order of posting.
            (QpState::Closing, _) => Ok(Post::Late),
            (QpState::Terminate | QpState::Error, _) => Ok(Post::Flushed),
        }
    }

    /// It stands in line for the send module from now on.
    #[inline]
    pub(in super::super) fn want_service(&mut self, desk: &mut Desk) {
        if !self.in_line {
            self.in_line = true;
            match self.datagram {
                None => desk.line.push_back(self.number),
                Some(_) => desk.datagram_line.push_back(self.number),
            }
        }
    }

    /// Another message of a WQE has been sent that the peer acknowledges.
    #[inline]
    pub(in super::super) fn await_arrival(&mut self, wqe: u64) {
        if self.acknowledges {
            self.sq.asked(wqe);
            self.unacknowledged.push_back(wqe);
        }
    }

    /// A message of the peer's is whole, and where it belongs.
    #[inline]
    pub(in super::super) fn has_arrived(&mut self, desk: &mut Desk) {
        if self.acknowledges {
            self.arrived += 1;
            self.want_service(desk);
        }
    }

    /// Whether the peer is to be told of what has arrived.
    #[inline]
    pub(in super::super) fn owes_acknowledgement(&self) -> bool {
        (self.arrived != self.told || self.parts) && (self.is_up() || self.terminate.is_some())
    }

    /// The peer says that so many of our messages have arrived: whether there were so many.
    pub(in super::super) fn on_acknowledgement(&mut self, arrived: u64, desk: &mut Desk) -> bool {
        while self.acknowledged < arrived {
            let Some(wqe) = self.unacknowledged.pop_front() else { return false };
            self.acknowledged += 1;
            self.sq.answered(wqe);
        }
        self.sweep(desk);
        true
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
                    Kind::CompareSwap | Kind::FetchAdd => 8,
                    _ => 0,
                };
                let completion = completion::of_send(self.name, &work, status, bytes);
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
        self.unacknowledged.clear();
        self.flush_sends(desk);
        let incoming = self.rq.incoming.take().map(|incoming| incoming.work);
        for work in incoming.into_iter().chain(core::mem::take(&mut self.rq.wqes)) {
            let completion = completion::of_receive(self.name, work.id, Status::Flushed, Kind::Receive, 0);
            desk.complete(self.attributes.receive_cq, completion, true);
        }
    }

    /// All of the send queue ends as flushed, in order.
    pub(in super::super) fn flush_sends(&mut self, desk: &mut Desk) {
        while let Some(work) = self.sq.pop_front() {
            let completion = completion::of_send(self.name, &work, Status::Flushed, 0);
            desk.complete(self.attributes.send_cq, completion, false);
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
        if self.datagram.is_some() {
            return self.fail_datagrams(desk);
        }
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
            let completion = completion::of_send(self.name, &work, Status::Flushed, 0);
            desk.complete(self.attributes.send_cq, completion, false);
        }
        self.sweep(desk);
    }

    /// The stream that was on the way never comes, or the peer that went does not come back.
    pub(in super::super) fn give_up(&mut self, desk: &mut Desk) {
        if let Some((number, _)) = self.sq.front() {
            self.sq.done(number, Status::Lost);
        }
        self.is_expecting = false;
        self.state = QpState::Error;
        self.wish = StreamWish::Abort;
        desk.event(Event::QpFailed { qp: self.number, reason: None });
        self.flush(desk);
    }

    /// The stream has gone: in order, or not.
    pub(in super::super) fn stream_gone(&mut self, in_order: bool, desk: &mut Desk) {
        if self.state == QpState::Idle {
            return;
        }
        // The system of a peer that was killed ends its stream as if it had wanted to.
        let in_order = in_order && (self.peer_parts || !self.acknowledges);
        if in_order && self.stays && self.state == QpState::Rts && self.rq.incoming.is_none() {
            self.is_alone = true;
            if !self.sq.is_empty() {
                desk.event(Event::Abandoned { qp: self.number });
            }
            return;
        }
        if self.is_up() && !(in_order && self.sq.is_empty()) {
            let oldest = self.sq.front().map(|(number, _)| (number, Status::Lost));
            if let Some((number, _)) = oldest
                && (!in_order || self.stays)
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
            Reason { layer: 0, kind: 2, .. } | Reason::LOCAL_ERROR => Status::RemoteOperation,
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

    /// Bytes that the next receive takes, if there is one.
    pub(in super::super) fn next_room(&self, srqs: &Slab<SharedReceiveQueue>) -> Option<u64> {
        let wqes = match self.attributes.srq {
            None => &self.rq.wqes,
            Some(srq) => &srqs.get(srq)?.wqes,
        };
        wqes.front().map(|work| work.sges.iter().map(|sge| u64::from(sge.length)).sum())
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
