//! Send module: work acceptor, work resolver, segment generator.
//!
//! Acceptor   queue pairs with work are in a TX queue, each at most once. The driver takes the first queue
//!            pair (`Rnic::pop_tx_queue`) and builds its segments while its stream has room.
//! Resolver   selects a queue pair's next message. A Terminate comes first; otherwise, responses and posted
//!            work alternate, message by message. Messages on one stream never interleave. It checks fences,
//!            limits and memory, and executes work that sends nothing (invalidate, register, bind).
//! Generator  builds one segment at a time, with a header and as much payload as fits. The lower layer copies
//!            the payload or keeps references to it.

use super::super::clocks::Step;
use super::super::config::Config;
use super::super::control::job::Job;
use super::super::control::qp::Qp;
use super::super::control::reads::{IrrqEntry, OrrqEntry, OutstandingRequest};
use super::super::control::state::{QpState, StreamAction};
use super::super::host::dmac::{self, Cursor, PIECES_MAX, Payload, Piece};
use super::super::host::pblmt::BufferList;
use super::super::host::smt::{AccessKind, StagTable, Violation};
use super::super::outbox::Outputs;
use super::super::work::{Data, Operation, SendWork, Sge, Status, TaggedAddress};
use super::receive;
use crate::wire::ddp::{Header, Placing, UNTAGGED_BYTES, queue};
use crate::wire::rdmap::{
    ATOMIC_REQUEST_BYTES, AtomicRequest, AtomicResponse, Opcode, ReadRequest, Reason, Terminate, acknowledge,
};
use arrayvec::ArrayVec;
use core::mem;

/// The destination of segments: the lower layer's end of the TO-LLP FIFO.
pub trait ToLlp {
    /// Returns the maximum segment length in bytes, header included (RFC 5041's MULPDU); at least 128.
    fn segment_bytes(&self) -> usize;
    /// Takes a segment: header and payload, together at most [`ToLlp::segment_bytes`] long.
    fn segment(&mut self, header: &[u8], payload: Payload<'_>);
}

/// The data sink tag in a zero-length read request. Some peers reject a tag of zero.
const ZERO_LENGTH_STAG: u32 = 1;

/// Steps from a queue pair's request to the work resolver.
const ACCEPT: &[Step] = &[Step::Request, Step::Requester, Step::Acceptor, Step::Accept];
/// Steps for an element whose memory is only checked.
const JUDGE: &[Step] = &[Step::ReadStag, Step::CheckStag];
/// Steps for an element that a DMA transfer fetches.
const FETCH: &[Step] = &[Step::ReadStag, Step::CheckStag, Step::ReadPbl, Step::DmaRequest, Step::DmaLength];
/// Steps for each further DMA transfer of the same element.
const FETCH_MORE: &[Step] = &[Step::DmaRequest, Step::DmaLength];

/// The result of looking for something to send.
enum Next {
    Job(Job),
    Nothing,
    /// Work that sends nothing was executed, or the queue pair failed: look for the next message.
    Again,
}

/// Builds a queue pair's next segment. Returns whether there was one.
pub(in super::super) fn next_segment(
    qp: &mut Qp,
    smt: &mut StagTable,
    outputs: &mut Outputs,
    config: &Config,
    llp: &mut impl ToLlp,
) -> bool {
    loop {
        // Messages never interleave; a Terminate follows the acknowledgement of the messages that arrived
        // before it.
        if qp.acknowledgement_pending() && qp.job.is_none() {
            send_acknowledgement(qp, outputs, llp);
            return true;
        }
        if let Some(last) = qp.terminate.take() {
            send_terminate(qp, &last, outputs, llp);
            return true;
        }
        if !qp.is_up() || !qp.traits.may_send {
            return false;
        }
        let job = match qp.job {
            Some(job) => job,
            None => match resolve(qp, smt, outputs) {
                Next::Job(job) => job,
                Next::Nothing => return false,
                Next::Again => continue,
            },
        };
        match generate(qp, job, smt, outputs, config, llp) {
            Ok(true) => {
                outputs.counters.segments_out += 1;
                return true;
            }
            // The request must wait for the response to an earlier request.
            Ok(false) => return false,
            Err(()) => {}
        }
    }
}

/// Sends the number of messages received so far, and whether this end is leaving.
fn send_acknowledgement(qp: &mut Qp, outputs: &mut Outputs, llp: &mut impl ToLlp) {
    qp.acked = qp.arrived;
    let stag = if core::mem::take(&mut qp.leave_pending) { acknowledge::LEAVING } else { acknowledge::STAYS };
    let placing = Placing::Tagged { stag, offset: qp.arrived };
    let mut bytes = [0; UNTAGGED_BYTES];
    let filled = Header { last: true, ulp: Opcode::Acknowledge.octet(), placing }.write(&mut bytes);
    llp.segment(&bytes[..filled], Payload::Bytes(&[]));
    qp.segments_out += 1;
    outputs.counters.segments_out += 1;
}

/// Sends the Terminate.
fn send_terminate(qp: &mut Qp, last: &Terminate, outputs: &mut Outputs, llp: &mut impl ToLlp) {
    send_untagged(qp, llp, Opcode::Terminate, queue::TERMINATE, Payload::Bytes(&last.bytes()));
    outputs.counters.terminates_out += 1;
    outputs.counters.segments_out += 1;
    qp.state = QpState::Error;
    qp.stream_action = StreamAction::Finish;
}

/// Selects the next message.
fn resolve(qp: &mut Qp, smt: &mut StagTable, outputs: &mut Outputs) -> Next {
    // A multi-element read that waits for responses delays the work requests after it, but not our own
    // responses: otherwise both ends could wait for each other.
    let must_wait = qp.asking.is_some() && qp.orrq.entries.len() >= usize::from(qp.traits.ord);
    if !qp.irrq.entries.is_empty() {
        let goes_on = if qp.asking.is_some() { !must_wait } else { may_start(qp).is_some() };
        if !(qp.sq_turn && goes_on) {
            qp.sq_turn = true;
            return Next::Job(*qp.job.insert(Job::Response));
        }
    }
    qp.sq_turn = false;
    if must_wait {
        return Next::Nothing;
    }
    if let Some(asking) = qp.asking.take() {
        return Next::Job(*qp.job.insert(asking));
    }
    let Some(number) = may_start(qp) else { return Next::Nothing };
    outputs.clocks.steps(&[Step::FetchWqe, Step::Fence]);
    outputs.clocks.steps(ACCEPT);
    qp.sq.start();
    // Work posted before the stream was connected has only been checked against the expected traits.
    let agrees = qp.sq.get(number).is_some_and(|wqe| qp.agrees(&wqe.work.operation));
    let Some(wqe) = qp.sq.get_mut(number) else { return Next::Nothing };
    outputs.clocks.step(Step::CheckOperation);
    if !agrees {
        fail_locally(qp, number, Status::LocalOperation, outputs);
        return Next::Again;
    }
    match check(&wqe.work, smt, (qp.attributes.pd, qp.number), outputs) {
        Ok(Some(job)) => {
            let job = match job {
                Job::Message { cursor, sent, length, .. } => {
                    Job::Message { wqe: number, cursor, sent, length }
                }
                Job::Immediate { data, solicited, .. } => Job::Immediate { wqe: number, data, solicited },
                Job::Requests { element, .. } => Job::Requests { wqe: number, element, behind: 0 },
                Job::Response => Job::Response,
            };
            qp.job = Some(job);
            Next::Job(job)
        }
        Ok(None) => {
            let done = execute_locally(&mut wqe.work.operation, smt, (qp.attributes.pd, qp.number));
            match done {
                Ok(()) => {
                    qp.sq.done(number, Status::Success);
                    qp.complete_finished(outputs);
                }
                Err(status) => fail_locally(qp, number, status, outputs),
            }
            Next::Again
        }
        Err(status) => {
            fail_locally(qp, number, status, outputs);
            Next::Again
        }
    }
}

/// Returns the WQE that may start now.
pub(super) fn may_start(qp: &Qp) -> Option<u64> {
    let (number, wqe) = qp.sq.next()?;
    let work = &wqe.work;
    let unanswered = qp.unanswered();
    let waits = work.fence && unanswered > 0
        || work.local_fence && !qp.sq.is_alone()
        // With an ORD of zero, the request could never be sent, so it fails when its turn comes.
        || work.operation.has_response() && unanswered >= usize::from(qp.traits.ord.max(1));
    (!waits).then_some(number)
}

/// Fails the queue pair because of an invalid local WQE. The peer learns only that a local error occurred.
fn fail_locally(qp: &mut Qp, number: u64, status: Status, outputs: &mut Outputs) {
    outputs.counters.local_errors += 1;
    let last = Terminate { reason: Reason::LOCAL_ERROR, segment: None, read_request: None };
    qp.fail(Some(last), Some((number, status)), outputs);
}

/// Checks a WQE and returns its job (with WQE number 0), or `None` if it sends nothing.
pub(super) fn check(
    work: &SendWork,
    smt: &StagTable,
    owner: (u32, u32),
    outputs: &mut Outputs,
) -> Result<Option<Job>, Status> {
    let length = u32::try_from(work.data.length()).map_err(|_| Status::LocalLength)?;
    if let (Data::Elements(sges), true) = (&work.data, outputs.clocks.is_listening()) {
        for sge in sges.iter().filter(|sge| sge.length > 0) {
            // A request transfers none of our memory now. Check the memory for the response here; it is
            // looked up when the response arrives.
            if work.operation.has_response() {
                outputs.clocks.steps(JUDGE);
            } else if let Ok(list) = smt.check(sge.stag, owner, AccessKind::LocalRead, sge.address, 1) {
                log_fetch(list, (sge.address, u64::from(sge.length)), outputs);
            }
        }
    }
    let may = |purpose| dmac::check_all(smt, owner, &work.data, purpose).map_err(|_| Status::LocalProtection);
    match work.operation {
        Operation::Send { .. } | Operation::SendImmediate { .. } | Operation::Write { .. } => {
            may(AccessKind::LocalRead)?;
            Ok(Some(Job::Message { wqe: 0, cursor: Cursor::default(), sent: 0, length }))
        }
        Operation::Immediate { data } => Ok(Some(Job::Immediate { wqe: 0, data, solicited: work.solicited })),
        Operation::Read { .. } => {
            may(AccessKind::LocalWrite)?;
            Ok(Some(Job::Requests { wqe: 0, element: 0, behind: 0 }))
        }
        Operation::Atomic { .. } => {
            may(AccessKind::LocalWrite)?;
            if length < 8 {
                return Err(Status::LocalLength);
            }
            Ok(Some(Job::Requests { wqe: 0, element: 0, behind: 0 }))
        }
        Operation::LocalInvalidate { .. } | Operation::Register { .. } | Operation::Bind { .. } => Ok(None),
        // Streams carry no datagrams: such a request was refused when it was posted.
        Operation::Datagram { .. } => Err(Status::LocalOperation),
    }
}

/// Logs the steps by which the work resolver looks up a range and requests its DMA transfers.
fn log_fetch(list: &BufferList, (address, length): (u64, u64), outputs: &mut Outputs) {
    outputs.clocks.steps(FETCH);
    for _ in 1..dmac::transfers(list, (address, length as usize)) {
        outputs.clocks.steps(FETCH_MORE);
    }
}

/// Executes an operation that sends nothing.
pub(super) fn execute_locally(
    operation: &mut Operation,
    smt: &mut StagTable,
    (pd, qp): (u32, u32),
) -> Result<(), Status> {
    match operation {
        Operation::LocalInvalidate { stag } => {
            smt.invalidate(*stag, pd, qp).map_err(|_| Status::LocalProtection)
        }
        Operation::Register { stag, address, blocks, access } => {
            smt.fill(*stag, pd, *address, mem::take(blocks), *access).map_err(|_| Status::LocalProtection)
        }
        Operation::Bind { window, binding } => smt.bind(*window, pd, qp, *binding).map_err(|_| Status::Bind),
        _ => Ok(()),
    }
}

/// Builds one segment for a job. Returns `Ok(false)` if the job must wait, and `Err` if the queue pair has
/// failed.
fn generate(
    qp: &mut Qp,
    job: Job,
    smt: &StagTable,
    outputs: &mut Outputs,
    config: &Config,
    llp: &mut impl ToLlp,
) -> Result<bool, ()> {
    match job {
        Job::Message { wqe, .. } => match message(qp, job, smt, outputs, config, llp) {
            Ok(()) => Ok(true),
            Err(_) => {
                fail_locally(qp, wqe, Status::LocalProtection, outputs);
                Err(())
            }
        },
        Job::Immediate { wqe, data, solicited } => {
            let opcode = if solicited { Opcode::ImmediateSolicited } else { Opcode::Immediate };
            send_untagged(qp, llp, opcode, queue::SEND, Payload::Bytes(&data.to_be_bytes()));
            qp.await_arrival(wqe);
            qp.sq.sent(wqe, qp.segments_out);
            qp.job = None;
            Ok(true)
        }
        Job::Requests { wqe, element, behind } => send_request(qp, wqe, element, behind, outputs, llp),
        Job::Response => send_response(qp, smt, outputs, config, llp),
    }
}

/// Builds one segment for a Send or a Write.
fn message(
    qp: &mut Qp,
    job: Job,
    smt: &StagTable,
    outputs: &mut Outputs,
    config: &Config,
    llp: &mut impl ToLlp,
) -> Result<(), Violation> {
    let Job::Message { wqe: number, mut cursor, sent, length } = job else { return Ok(()) };
    let owner = qp.owner();
    let Some(wqe) = qp.sq.get(number) else {
        qp.job = None;
        return Ok(());
    };
    let (opcode, placing) = match wqe.work.operation {
        Operation::Write { remote, .. } => {
            let offset = remote.offset.wrapping_add(u64::from(sent));
            (Opcode::Write, Placing::Tagged { stag: remote.stag, offset })
        }
        Operation::Send { .. } | Operation::SendImmediate { .. } => {
            let solicited = wqe.work.solicited;
            let (opcode, ulp) = match wqe.work.operation {
                Operation::SendImmediate { data } if solicited => (Opcode::SendSolicitedImmediate, data),
                Operation::SendImmediate { data } => (Opcode::SendImmediate, data),
                Operation::Send { invalidate: Some(stag) } if solicited => {
                    (Opcode::SendSolicitedInvalidate, stag)
                }
                Operation::Send { invalidate: Some(stag) } => (Opcode::SendInvalidate, stag),
                _ if solicited => (Opcode::SendSolicited, 0),
                _ => (Opcode::Send, 0),
            };
            let sequence = qp.sequence_out[queue::SEND as usize];
            (opcode, Placing::Untagged { ulp, queue: queue::SEND, sequence, offset: sent })
        }
        _ => return Err(Violation::Stag),
    };
    let mut header = Header { last: false, ulp: opcode.octet(), placing };
    let room = (llp.segment_bytes() - header.length()).min((length - sent) as usize);
    outputs.clocks.step(Step::SegmentLength);
    let mut pieces: ArrayVec<Piece<'_>, PIECES_MAX> = ArrayVec::new();
    let payload = match &wqe.work.data {
        Data::Inline(bytes) => Payload::Bytes(&bytes[sent as usize..sent as usize + room]),
        Data::Elements(sges) => {
            dmac::gather(smt, owner, sges, &mut cursor, room, config.cut_at_transfers, &mut pieces)?;
            Payload::Pieces(&pieces)
        }
    };
    let taken = payload.len() as u32;
    header.last = sent + taken == length;
    outputs.clocks.step(Step::Header(header.length() as u32));
    if matches!(payload, Payload::Pieces(pieces) if !pieces.is_empty()) {
        outputs.clocks.step(Step::ReadDma);
    }
    outputs.clocks.step(Step::WritePayload(taken));
    outputs.counters.payload_out_bytes += u64::from(taken);
    let mut bytes = [0; UNTAGGED_BYTES];
    let filled = header.write(&mut bytes);
    llp.segment(&bytes[..filled], payload);
    qp.segments_out += 1;
    if !header.last {
        qp.job = Some(Job::Message { wqe: number, cursor, sent: sent + taken, length });
        return Ok(());
    }
    qp.job = match wqe.work.operation {
        Operation::Write { immediate: Some(data), .. } => {
            Some(Job::Immediate { wqe: number, data, solicited: wqe.work.solicited })
        }
        _ => None,
    };
    if opcode != Opcode::Write {
        let sequence = &mut qp.sequence_out[queue::SEND as usize];
        *sequence = sequence.wrapping_add(1);
    }
    qp.await_arrival(number);
    if qp.job.is_none() {
        qp.sq.sent(number, qp.segments_out);
    }
    Ok(())
}

/// Sends one request: the next element of a read, or an atomic operation. Returns `Ok(false)` if the ORD is
/// reached.
fn send_request(
    qp: &mut Qp,
    number: u64,
    element: usize,
    behind: u64,
    outputs: &mut Outputs,
    llp: &mut impl ToLlp,
) -> Result<bool, ()> {
    if qp.orrq.entries.len() >= usize::from(qp.traits.ord) {
        return Ok(false);
    }
    let Some(wqe) = qp.sq.get(number) else {
        qp.job = None;
        return Ok(false);
    };
    let sges: &[Sge] = match &wqe.work.data {
        Data::Elements(sges) => sges,
        Data::Inline(_) => &[],
    };
    let payload: ArrayVec<u8, ATOMIC_REQUEST_BYTES>;
    let (opcode, more);
    match wqe.work.operation {
        Operation::Atomic { remote, atomic } => {
            let identifier = qp.orrq.identifier;
            qp.orrq.identifier = identifier.wrapping_add(1);
            let request = AtomicRequest { identifier, target: remote, atomic };
            payload = request.bytes().into_iter().collect();
            qp.orrq
                .entries
                .push_back(OrrqEntry { wqe: number, request: OutstandingRequest::Atomic { identifier } });
            (opcode, more) = (Opcode::AtomicRequest, None);
        }
        Operation::Read { remote, .. } => {
            let full = |from: usize| (from..sges.len()).find(|&at| sges[at].length > 0);
            let (sink, index) = match full(element) {
                Some(index) => (sges[index], index),
                None => (Sge { stag: ZERO_LENGTH_STAG, address: 0, length: 0 }, sges.len()),
            };
            let source = TaggedAddress { stag: remote.stag, offset: remote.offset.wrapping_add(behind) };
            let place = TaggedAddress { stag: sink.stag, offset: sink.address };
            let request = ReadRequest { sink: place, length: sink.length, source };
            payload = request.bytes().into_iter().collect();
            qp.orrq.entries.push_back(OrrqEntry {
                wqe: number,
                request: OutstandingRequest::Read { source, sink, here: 0 },
            });
            (opcode, more) = (Opcode::ReadRequest, full(index + 1).map(|next| (next, sink.length)));
        }
        _ => return Ok(false),
    }
    qp.sq.on_request_sent(number);
    outputs.clocks.step(Step::SegmentLength);
    outputs.clocks.step(Step::Header((UNTAGGED_BYTES + payload.len()) as u32));
    send_untagged(qp, llp, opcode, queue::READ_REQUEST, Payload::Bytes(&payload));
    // Each request is a separate message, so the queue pair is rescheduled for the next one.
    qp.job = None;
    match more {
        Some((element, length)) => {
            qp.asking = Some(Job::Requests { wqe: number, element, behind: behind + u64::from(length) });
        }
        None => qp.sq.sent(number, qp.segments_out),
    }
    Ok(true)
}

/// Sends one segment of a response to the peer.
fn send_response(
    qp: &mut Qp,
    smt: &StagTable,
    outputs: &mut Outputs,
    config: &Config,
    llp: &mut impl ToLlp,
) -> Result<bool, ()> {
    let owner = qp.owner();
    let Some(owed) = qp.irrq.entries.front().copied() else {
        qp.job = None;
        return Ok(false);
    };
    match owed {
        IrrqEntry::Atomic { identifier, original } => {
            let bytes = AtomicResponse { identifier, original }.bytes();
            qp.irrq.entries.pop_front();
            qp.job = None;
            send_untagged(qp, llp, Opcode::AtomicResponse, queue::ATOMIC_RESPONSE, Payload::Bytes(&bytes));
        }
        IrrqEntry::Read { source, sink, length, sent } => {
            let placing =
                Placing::Tagged { stag: sink.stag, offset: sink.offset.wrapping_add(u64::from(sent)) };
            let mut header = Header { last: false, ulp: Opcode::ReadResponse.octet(), placing };
            if sent == 0 {
                outputs.clocks.steps(ACCEPT);
                outputs.clocks.step(Step::CheckOperation);
                if length > 0 && outputs.clocks.is_listening() {
                    let list = smt.check(source.stag, owner, AccessKind::RemoteRead, source.offset, 1);
                    list.into_iter()
                        .for_each(|list| log_fetch(list, (source.offset, u64::from(length)), outputs));
                }
            }
            outputs.clocks.step(Step::SegmentLength);
            let room = (llp.segment_bytes() - header.length()).min((length - sent) as usize);
            let mut pieces: ArrayVec<Piece<'_>, PIECES_MAX> = ArrayVec::new();
            if room > 0 {
                let rest = (source.offset.wrapping_add(u64::from(sent)), u64::from(length - sent));
                // The memory was valid when the peer requested it but no longer is, so the read cannot be
                // answered.
                let cut = config.cut_at_transfers;
                let gathered = dmac::gather_place(smt, owner, source.stag, rest, room, cut, &mut pieces);
                if let Err(violation) = gathered {
                    outputs.counters.reads_withdrawn += 1;
                    let request = ReadRequest { sink, length, source };
                    let last = Terminate {
                        reason: receive::remote(violation),
                        segment: Some((0, ArrayVec::new())),
                        read_request: Some(request),
                    };
                    qp.fail(Some(last), None, outputs);
                    return Err(());
                }
            }
            let payload = Payload::Pieces(&pieces);
            let taken = payload.len() as u32;
            header.last = sent + taken == length;
            outputs.clocks.step(Step::Header(header.length() as u32));
            if taken > 0 {
                outputs.clocks.step(Step::ReadDma);
            }
            outputs.clocks.step(Step::WritePayload(taken));
            outputs.counters.payload_out_bytes += u64::from(taken);
            let mut bytes = [0; UNTAGGED_BYTES];
            let filled = header.write(&mut bytes);
            llp.segment(&bytes[..filled], payload);
            qp.segments_out += 1;
            if header.last {
                qp.irrq.entries.pop_front();
                qp.job = None;
            } else if let Some(front) = qp.irrq.entries.front_mut() {
                *front = IrrqEntry::Read { source, sink, length, sent: sent + taken };
            }
        }
    }
    Ok(true)
}

/// Sends a single-segment untagged message with the next MSN of its queue. MSNs wrap (RFC 5041 §4.3).
fn send_untagged(qp: &mut Qp, llp: &mut impl ToLlp, opcode: Opcode, queue: u32, payload: Payload<'_>) {
    let sequence = qp.sequence_out[queue as usize];
    let placing = Placing::Untagged { ulp: 0, queue, sequence, offset: 0 };
    let mut bytes = [0; UNTAGGED_BYTES];
    let filled = Header { last: true, ulp: opcode.octet(), placing }.write(&mut bytes);
    llp.segment(&bytes[..filled], payload);
    qp.sequence_out[queue as usize] = sequence.wrapping_add(1);
    qp.segments_out += 1;
}
