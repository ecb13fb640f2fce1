//! Receive module: segment receiver, work resolver.
//!
//! Resolver  validates a segment's header before any byte is placed: the queue, sequence number, offset,
//!           tag, access rights, bounds and room. Requests (reads, atomics) and Terminates fit in one
//!           segment and are executed at once.
//! Receiver  places the payload in the memory that the resolver selected. The payload is copied from the
//!           lower layer's buffer, or stored there by the lower layer itself (a socket). Tags are checked
//!           for every run of bytes, so memory that is invalidated during a segment receives nothing more.
//! Errors    an error by the peer ends the stream with the Terminate message that the standards require.
//!           Each kind has its own counter.

use super::super::clocks::Step;
use super::super::control::completion;
use super::super::control::qp::Qp;
use super::super::control::reads::{IrrqEntry, OutstandingRequest};
use super::super::control::receive_queue::{Incoming, SharedReceiveQueue};
use super::super::host::dmac::{self, Cursor, PIECES_MAX};
use super::super::host::smt::{AccessKind, StagTable, Violation};
use super::super::outbox::Outputs;
use super::super::work::{Data, Kind, Operation, Status};
use crate::wire::ddp::{self, Header, Placing, UNTAGGED_BYTES, queue};
use crate::wire::rdmap::{
    AtomicRequest, AtomicResponse, IMMEDIATE_BYTES, Opcode, ReadRequest, Reason, Terminate, acknowledge,
};
use arrayvec::ArrayVec;
use kiban_base::Malformed;
use kiban_base::{Region, SharedBytes, Slab};

/// The result of validating a segment.
#[derive(Debug)]
pub enum Validation {
    /// More bytes are needed to decide: this many from the start of the segment.
    NeedMore(usize),
    /// The payload goes to the host's memory.
    Place(Placement),
    /// The segment carried no payload for the host and is complete.
    Done,
    /// No receive is posted, and the queue pair waits for one: validate the segment again when one is posted.
    Dry,
}

/// The result of taking a complete segment ([`super::super::Rnic::take`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentResult {
    /// The segment was executed.
    Whole,
    /// No receive is posted, and the queue pair waits for one: take the segment again when one is posted.
    Dry,
    /// The segment failed the queue pair, or the queue pair had already ended.
    Fault,
}

/// A segment whose payload is being placed.
#[derive(Debug)]
pub struct Placement {
    header: Header,
    opcode: Opcode,
    /// Length of the segment and of its header in bytes.
    segment_bytes: usize,
    header_bytes: usize,
    /// Payload bytes placed so far.
    placed: usize,
}

impl Placement {
    /// Returns the length of the header in bytes.
    pub const fn header_bytes(&self) -> usize {
        self.header_bytes
    }

    /// Returns the number of payload bytes not placed yet.
    #[inline]
    pub const fn missing(&self) -> usize {
        self.segment_bytes - self.header_bytes - self.placed
    }
}

/// The tables that the receive module uses, besides the queue pair.
pub(in super::super) struct Tables<'a> {
    pub(in super::super) smt: &'a mut StagTable,
    pub(in super::super) srqs: &'a mut Slab<SharedReceiveQueue>,
    pub(in super::super) outputs: &'a mut Outputs,
}

/// Steps of a memory lookup. For a Write they come first; for a response or a message, they come after it
/// has been matched.
const LOOK_UP: &[Step] = &[Step::ReadStag, Step::CheckStag, Step::ReadPbl];

/// Details of a refused segment: the reason to send in the Terminate and, if the segment was a read request,
/// that request.
type Fault = (Reason, Option<ReadRequest>);

const fn fault(reason: Reason) -> Fault {
    (reason, None)
}

/// Maps a violation by a tagged segment to a DDP error (RFC 5041 §7.1), or to an RDMAP error if it concerns
/// access rights (RFC 5040 §7.1).
const fn tagged(violation: Violation) -> Fault {
    fault(match violation {
        Violation::Stag => Reason::TAGGED_STAG,
        Violation::Stream => Reason::TAGGED_STREAM,
        Violation::Access | Violation::Unmapped => Reason::REMOTE_ACCESS,
        Violation::Bounds => Reason::TAGGED_BOUNDS,
        Violation::Wrap => Reason::TAGGED_WRAP,
    })
}

/// Maps a violation by a request to RDMAP's error.
pub(super) const fn remote(violation: Violation) -> Reason {
    match violation {
        Violation::Stag => Reason::REMOTE_STAG,
        Violation::Stream => Reason::REMOTE_STREAM,
        Violation::Access | Violation::Unmapped => Reason::REMOTE_ACCESS,
        Violation::Bounds => Reason::REMOTE_BOUNDS,
        Violation::Wrap => Reason::REMOTE_WRAP,
    }
}

/// Validates a segment of `length` bytes whose first bytes are in `front`.
pub(in super::super) fn validate(
    qp: &mut Qp,
    mut tables: Tables<'_>,
    front: &[u8],
    length: usize,
) -> Result<Validation, Reason> {
    let Some(&first) = front.first() else {
        // RFC 5044 §8: the length is too short for any DDP header.
        return if length == 0 {
            Err(fail(qp, tables.outputs, fault(Reason::MPA_LENGTH), front, 0))
        } else {
            Ok(Validation::NeedMore(1))
        };
    };
    let header_bytes = ddp::header_bytes(first);
    if length < header_bytes {
        return Err(fail(qp, tables.outputs, fault(Reason::MPA_LENGTH), front, length));
    }
    if front.len() < header_bytes {
        return Ok(Validation::NeedMore(header_bytes));
    }
    if !qp.traits.may_send {
        // RFC 5044 §7.1.2: the initiator has sent, so the responder may send.
        qp.traits.may_send = true;
        qp.schedule(tables.outputs);
    }
    match resolve(qp, &mut tables, front, length) {
        Ok(judged) => Ok(judged),
        Err(wrong) => Err(fail(qp, tables.outputs, wrong, front, length)),
    }
}

/// Ends the stream because of a segment.
pub(in super::super) fn fail(
    qp: &mut Qp,
    outputs: &mut Outputs,
    (reason, read_request): Fault,
    front: &[u8],
    length: usize,
) -> Reason {
    outputs.count_fault(reason);
    let header = front.first().and_then(|&first| front.get(..ddp::header_bytes(first)));
    // RFC 5040 §4.8: no header is attached for errors below DDP, or for an unknown DDP version.
    let attach = reason.layer != 2 && !matches!(reason, Reason::TAGGED_VERSION | Reason::UNTAGGED_VERSION);
    let segment = header.filter(|_| attach).map(|header| (length as u16, header.iter().copied().collect()));
    qp.fail(Some(Terminate { reason, segment, read_request }), None, outputs);
    reason
}

fn resolve(qp: &mut Qp, tables: &mut Tables<'_>, front: &[u8], length: usize) -> Result<Validation, Fault> {
    let outputs = &mut *tables.outputs;
    let is_tagged = ddp::is_tagged(front[0]);
    let (header, header_bytes) = Header::read(front)
        .map_err(|_| fault(if is_tagged { Reason::TAGGED_VERSION } else { Reason::UNTAGGED_VERSION }))?;
    let opcode = Opcode::read(header.ulp).map_err(|malformed| {
        fault(match malformed {
            Malformed::Version => Reason::OPERATION_VERSION,
            _ => Reason::OPERATION_OPCODE,
        })
    })?;
    if opcode.is_tagged() != is_tagged
        || opcode.is_extension() && !qp.traits.extensions
        || opcode.is_kiban_extension() && !qp.traits.kiban
    {
        return Err(fault(Reason::OPERATION_OPCODE));
    }
    let payload = length - header_bytes;
    let is_whole = front.len() >= length;
    // A segment that must be complete is validated a second time once it is. Record its steps only then.
    if is_tagged || opcode.is_send() || is_whole {
        outputs.clocks.step(Step::ReceiveHeader(header_bytes as u32));
        outputs.clocks.step(Step::CheckHeader);
    }
    let mut placement = Placement { header, opcode, segment_bytes: length, header_bytes, placed: 0 };
    match header.placing {
        Placing::Tagged { stag, offset } if opcode == Opcode::Write => {
            // RFC 5040 §5.1: the tag of a Write without payload is not checked.
            if payload > 0 {
                outputs.clocks.steps(LOOK_UP);
                if !qp.allows.remote_write {
                    return Err(fault(Reason::REMOTE_ACCESS));
                }
                tables
                    .smt
                    .check(stag, qp.owner(), AccessKind::RemoteWrite, offset, payload as u64)
                    .map_err(tagged)?;
            }
        }
        Placing::Tagged { stag, offset } if opcode == Opcode::Acknowledge => {
            if payload > 0 {
                return Err(fault(Reason::TAGGED_BOUNDS));
            }
            let is_known = matches!(stag, acknowledge::STAYS | acknowledge::LEAVING);
            if !is_known || !qp.acknowledges || !qp.on_acknowledgement(offset, outputs) {
                return Err(fault(Reason::OPERATION_OPCODE));
            }
            qp.peer_is_leaving |= stag == acknowledge::LEAVING;
            outputs.counters.segments_in += 1;
            qp.schedule(outputs);
            return Ok(Validation::Done);
        }
        Placing::Tagged { stag, offset } => check_response(qp, stag, offset, payload as u64, header.last)?,
        Placing::Untagged { queue: number, sequence, offset, .. } => {
            let its = match opcode {
                Opcode::ReadRequest | Opcode::AtomicRequest => queue::READ_REQUEST,
                Opcode::Terminate => queue::TERMINATE,
                Opcode::AtomicResponse => queue::ATOMIC_RESPONSE,
                _ => queue::SEND,
            };
            if number != its {
                return Err(fault(Reason::UNTAGGED_QUEUE));
            }
            if sequence != qp.sequence_in[number as usize] {
                return Err(fault(Reason::UNTAGGED_SEQUENCE));
            }
            let is_send = opcode.is_send();
            if !is_send {
                // Requests and responses fit in one segment.
                if offset != 0 || !header.last {
                    return Err(fault(Reason::UNTAGGED_OFFSET));
                }
                let most = opcode.payload_bytes_max();
                if payload > most {
                    return Err(fault(Reason::UNTAGGED_TOO_LONG));
                }
                if !is_whole {
                    return Ok(Validation::NeedMore(length));
                }
            }
            let bytes = &front[header_bytes..length.min(front.len())];
            match opcode {
                Opcode::ReadRequest => on_read_request(qp, tables, bytes)?,
                Opcode::AtomicRequest => on_atomic_request(qp, tables, bytes)?,
                Opcode::AtomicResponse => on_atomic_response(qp, tables, bytes)?,
                Opcode::Terminate => {
                    let last = Terminate::read(bytes).map_err(|_| fault(Reason::OPERATION_STREAM))?;
                    tables.outputs.counters.terminates_in += 1;
                    qp.on_terminate(&last, tables.outputs);
                }
                Opcode::Immediate | Opcode::ImmediateSolicited => {
                    let Ok(data) = <[u8; IMMEDIATE_BYTES]>::try_from(bytes) else {
                        return Err(fault(Reason::OPERATION_STREAM));
                    };
                    if !open_message(qp, tables, &placement, offset, 0)? {
                        return Ok(Validation::Dry);
                    }
                    finish_message(qp, tables, &placement, Some(u64::from_be_bytes(data)))?;
                    qp.has_arrived(tables.outputs);
                }
                _ => {
                    if !open_message(qp, tables, &placement, offset, payload)? {
                        return Ok(Validation::Dry);
                    }
                    return Ok(begin(tables.outputs, placement));
                }
            }
            qp.sequence_in[number as usize] = sequence.wrapping_add(1);
            tables.outputs.counters.segments_in += 1;
            return Ok(Validation::Done);
        }
    }
    placement.placed = 0;
    Ok(begin(tables.outputs, placement))
}

fn begin(outputs: &mut Outputs, placement: Placement) -> Validation {
    outputs.counters.segments_in += 1;
    if placement.missing() > 0 {
        if placement.opcode != Opcode::Write {
            outputs.clocks.steps(LOOK_UP);
        }
        outputs.clocks.step(Step::DmaRequest);
        outputs.clocks.step(Step::ReceivePayload(placement.missing() as u32));
    }
    Validation::Place(placement)
}

/// Checks that a read response matches the oldest request and continues where the last segment ended.
fn check_response(qp: &Qp, stag: u32, offset: u64, payload: u64, last: bool) -> Result<(), Fault> {
    let Some(OutstandingRequest::Read { sink, here, .. }) =
        qp.orrq.entries.front().map(|entry| entry.request)
    else {
        // No read is outstanding.
        return Err(fault(Reason::OPERATION_OPCODE));
    };
    if stag != sink.stag {
        return Err(fault(Reason::TAGGED_STAG));
    }
    let end = u64::from(here) + payload;
    if offset != sink.address.wrapping_add(u64::from(here))
        || end > u64::from(sink.length)
        || last != (end == u64::from(sink.length))
    {
        return Err(fault(Reason::TAGGED_BOUNDS));
    }
    Ok(())
}

/// Takes a receive for an untagged message, unless it has one, and checks that the segment fits. Returns
/// false if the message must wait for a receive.
fn open_message(
    qp: &mut Qp,
    tables: &mut Tables<'_>,
    placement: &Placement,
    offset: u32,
    payload: usize,
) -> Result<bool, Fault> {
    let is_first = qp.rq.incoming.is_none();
    if is_first {
        if offset != 0 {
            return Err(fault(Reason::UNTAGGED_OFFSET));
        }
        let Some(work) = qp.take_receive(tables.srqs, tables.outputs) else {
            if !qp.attributes.waits_for_receives {
                return Err(fault(Reason::UNTAGGED_NO_BUFFER));
            }
            qp.wait_for_receive(tables.srqs);
            return Ok(false);
        };
        // RFC 5041 §4.3: message offsets have 32 bits. This limits the message length even if the elements
        // could hold more.
        let room = work.sges.iter().map(|sge| u64::from(sge.length)).sum::<u64>().min(u64::from(u32::MAX));
        let opcode = placement.opcode;
        qp.rq.incoming = Some(Incoming { work, cursor: Cursor::default(), bytes: 0, room, opcode });
    }
    let Some(incoming) = &qp.rq.incoming else { return Ok(false) };
    if incoming.opcode != placement.opcode {
        return Err(fault(Reason::OPERATION_OPCODE));
    }
    if offset != incoming.bytes {
        return Err(fault(Reason::UNTAGGED_OFFSET));
    }
    if u64::from(incoming.bytes) + payload as u64 > incoming.room {
        let id = incoming.work.id;
        qp.rq.incoming = None;
        let done = completion::of_receive(qp.qpn, id, Status::LocalLength, Kind::Receive, 0);
        tables.outputs.complete(qp.attributes.receive_cq, done, true);
        return Err(fault(Reason::UNTAGGED_TOO_LONG));
    }
    Ok(true)
}

/// Completes an untagged message.
fn finish_message(
    qp: &mut Qp,
    tables: &mut Tables<'_>,
    placement: &Placement,
    immediate: Option<u64>,
) -> Result<(), Fault> {
    let opcode = placement.opcode;
    let mut invalidated = None;
    if let Placing::Untagged { ulp: stag, .. } = placement.header.placing
        && opcode.invalidates()
    {
        tables
            .smt
            .invalidate_for_peer(stag, qp.attributes.pd, qp.number)
            .map_err(|_| fault(Reason::REMOTE_NOT_INVALIDATED))?;
        invalidated = Some(stag);
    }
    let Some(incoming) = qp.rq.incoming.take() else { return Ok(()) };
    let kind = if immediate.is_some() { Kind::ReceiveImmediate } else { Kind::Receive };
    let immediate = match placement.header.placing {
        Placing::Untagged { ulp: data, .. } if opcode.carries_immediate() => Some(u64::from(data)),
        _ => immediate,
    };
    let done = completion::of_receive(qp.qpn, incoming.work.id, Status::Success, kind, incoming.bytes);
    tables.outputs.counters.messages_in += 1;
    tables.outputs.clocks.step(Step::Complete);
    let done = super::super::work::Completion { immediate, invalidated, ..done };
    tables.outputs.complete(qp.attributes.receive_cq, done, opcode.is_solicited());
    Ok(())
}

fn on_read_request(qp: &mut Qp, tables: &mut Tables<'_>, bytes: &[u8]) -> Result<(), Fault> {
    let request = ReadRequest::read(bytes).map_err(|_| fault(Reason::OPERATION_STREAM))?;
    if qp.irrq.entries.len() >= usize::from(qp.traits.ird) {
        return Err((Reason::UNTAGGED_NO_BUFFER, Some(request)));
    }
    let ReadRequest { sink, length, source } = request;
    if length > 0 {
        if !qp.allows.remote_read {
            return Err((Reason::REMOTE_ACCESS, Some(request)));
        }
        tables
            .smt
            .check(source.stag, qp.owner(), AccessKind::RemoteRead, source.offset, u64::from(length))
            .map_err(|violation| (remote(violation), Some(request)))?;
    }
    if sink.offset.checked_add(u64::from(length)).is_none() {
        return Err((Reason::REMOTE_WRAP, Some(request)));
    }
    qp.irrq.entries.push_back(IrrqEntry::Read { source, sink, length, sent: 0 });
    tables.outputs.counters.reads_in += 1;
    qp.schedule(tables.outputs);
    Ok(())
}

fn on_atomic_request(qp: &mut Qp, tables: &mut Tables<'_>, bytes: &[u8]) -> Result<(), Fault> {
    let request = AtomicRequest::read(bytes).map_err(|_| fault(Reason::OPERATION_STREAM))?;
    if qp.irrq.entries.len() >= usize::from(qp.traits.ird) {
        return Err(fault(Reason::UNTAGGED_NO_BUFFER));
    }
    let AtomicRequest { identifier, target, atomic } = request;
    if !qp.allows.remote_atomic {
        return Err(fault(Reason::REMOTE_ACCESS));
    }
    // RFC 7306 §5.1: 64 bits, aligned to 64 bits.
    if !target.offset.is_multiple_of(8) {
        return Err(fault(Reason::OPERATION_STREAM));
    }
    let list = tables
        .smt
        .check(target.stag, qp.owner(), AccessKind::RemoteAtomic, target.offset, 8)
        .map_err(|violation| fault(remote(violation)))?;
    let original = dmac::modify(list, target.offset, atomic).ok_or(fault(Reason::REMOTE_ACCESS))?;
    qp.irrq.entries.push_back(IrrqEntry::Atomic { identifier, original });
    tables.outputs.counters.atomics_in += 1;
    qp.schedule(tables.outputs);
    Ok(())
}

fn on_atomic_response(qp: &mut Qp, tables: &mut Tables<'_>, bytes: &[u8]) -> Result<(), Fault> {
    let response = AtomicResponse::read(bytes).map_err(|_| fault(Reason::OPERATION_STREAM))?;
    let oldest = qp.orrq.entries.front().copied();
    let Some((wqe, OutstandingRequest::Atomic { identifier })) =
        oldest.map(|entry| (entry.wqe, entry.request))
    else {
        return Err(fault(Reason::OPERATION_OPCODE));
    };
    if identifier != response.identifier {
        return Err(fault(Reason::OPERATION_OPCODE));
    }
    let value = response.original.to_ne_bytes();
    let owner = qp.owner();
    let Some(Data::Elements(sges)) = qp.sq.get(wqe).map(|wqe| &wqe.work.data) else { return Ok(()) };
    let mut cursor = Cursor::default();
    if dmac::scatter(tables.smt, owner, sges, &mut cursor, SharedBytes::from(&value[..])).is_err() {
        qp.sink_is_gone(wqe, tables.outputs);
        return Ok(());
    }
    qp.orrq.entries.pop_front();
    qp.sq.on_response(wqe);
    qp.complete_finished(tables.outputs);
    qp.schedule(tables.outputs);
    Ok(())
}

/// Copies the next bytes of a payload into the host's memory.
pub(in super::super) fn place(
    qp: &mut Qp,
    tables: &mut Tables<'_>,
    placement: &mut Placement,
    bytes: SharedBytes<'_>,
) -> Result<(), Reason> {
    let bytes = bytes.part(0, placement.missing());
    if bytes.is_empty() {
        return if qp.is_up() { Ok(()) } else { Err(Reason::LOCAL_ERROR) };
    }
    if !qp.is_up() {
        return Err(Reason::LOCAL_ERROR);
    }
    let owner = qp.owner();
    let here = placement.placed as u64;
    let put = match (placement.header.placing, &mut qp.rq.incoming) {
        (Placing::Tagged { stag, offset }, _) => {
            let at = offset.wrapping_add(here);
            let list = tables.smt.check(stag, owner, placement.purpose(), at, bytes.len() as u64);
            list.and_then(|list| list.write(at, bytes).ok_or(Violation::Unmapped))
        }
        (Placing::Untagged { .. }, Some(incoming)) => {
            dmac::scatter(tables.smt, owner, &incoming.work.sges, &mut incoming.cursor, bytes).map(drop)
        }
        (Placing::Untagged { .. }, None) => Err(Violation::Stag),
    };
    placement.placed += bytes.len();
    tables.outputs.counters.placed_bytes += bytes.len() as u64;
    put.map_err(|violation| on_invalidated(qp, tables.outputs, placement, violation))
}

/// Returns memory for the next bytes of a payload, so that the lower layer can store them there directly.
pub(in super::super) fn landing(
    qp: &mut Qp,
    tables: &mut Tables<'_>,
    placement: &Placement,
    places: &mut ArrayVec<Region, PIECES_MAX>,
) -> Result<(), Reason> {
    if !qp.is_up() {
        return Err(Reason::LOCAL_ERROR);
    }
    let (owner, missing) = (qp.owner(), placement.missing());
    if missing == 0 {
        return Ok(());
    }
    let found = match (placement.header.placing, &qp.rq.incoming) {
        (Placing::Tagged { stag, offset }, _) => {
            let mut at = offset.wrapping_add(placement.placed as u64);
            let list = tables.smt.check(stag, owner, placement.purpose(), at, missing as u64);
            list.and_then(|list| {
                let mut left = missing;
                while left > 0 && !places.is_full() {
                    let (region, count) = list.find(at, left).ok_or(Violation::Bounds)?;
                    places.extend(region.part(at, count));
                    (at, left) = (at + count as u64, left - count);
                }
                Ok(())
            })
        }
        (Placing::Untagged { .. }, Some(incoming)) => {
            dmac::landing(tables.smt, owner, &incoming.work.sges, incoming.cursor, missing, places)
        }
        (Placing::Untagged { .. }, None) => Err(Violation::Stag),
    };
    found.map_err(|violation| on_invalidated(qp, tables.outputs, placement, violation))
}

/// Records that `bytes` bytes were stored in the memory from [`placement_buffers`].
pub(in super::super) fn landed(qp: &mut Qp, outputs: &mut Outputs, placement: &mut Placement, bytes: usize) {
    placement.placed += bytes;
    outputs.counters.direct_bytes += bytes as u64;
    if let (Placing::Untagged { .. }, Some(incoming)) = (placement.header.placing, &mut qp.rq.incoming) {
        dmac::skip(&incoming.work.sges, &mut incoming.cursor, bytes);
    }
}

/// Handles a segment whose payload the lower layer could not store in the memory from [`landing`].
pub(in super::super) fn on_unmapped(qp: &mut Qp, outputs: &mut Outputs, placement: &Placement) -> Reason {
    on_invalidated(qp, outputs, placement, Violation::Unmapped)
}

/// Handles memory that was invalidated or unmapped during a segment, or was never valid for it. The side that
/// named the memory is at fault.
fn on_invalidated(qp: &mut Qp, outputs: &mut Outputs, placement: &Placement, violation: Violation) -> Reason {
    match placement.opcode {
        Opcode::Write => {
            let mut header = [0; UNTAGGED_BYTES];
            let filled = placement.header.write(&mut header);
            fail(qp, outputs, tagged(violation), &header[..filled], placement.segment_bytes)
        }
        Opcode::ReadResponse => {
            if let Some(entry) = qp.orrq.entries.front().copied() {
                qp.sink_is_gone(entry.wqe, outputs);
            }
            Reason::LOCAL_ERROR
        }
        _ => {
            // A local receive refers to memory that it may not access.
            if let Some(incoming) = qp.rq.incoming.take() {
                let id = incoming.work.id;
                let done = completion::of_receive(qp.qpn, id, Status::LocalProtection, Kind::Receive, 0);
                outputs.complete(qp.attributes.receive_cq, done, true);
            }
            outputs.counters.local_errors += 1;
            let last = Terminate { reason: Reason::LOCAL_ERROR, segment: None, read_request: None };
            qp.fail(Some(last), None, outputs);
            Reason::LOCAL_ERROR
        }
    }
}

/// Completes a segment whose payload is all in place.
pub(in super::super) fn deliver(
    qp: &mut Qp,
    tables: &mut Tables<'_>,
    placement: &Placement,
) -> Result<(), Reason> {
    if !qp.is_up() {
        return Err(Reason::LOCAL_ERROR);
    }
    debug_assert_eq!(placement.missing(), 0, "a segment is finished when all of it is here");
    match placement.opcode {
        Opcode::Write => {
            if placement.header.last {
                tables.outputs.counters.writes_in += 1;
                qp.has_arrived(tables.outputs);
            }
        }
        Opcode::ReadResponse => finish_response(qp, tables, placement),
        _ => {
            if let Some(incoming) = &mut qp.rq.incoming {
                incoming.bytes += placement.placed as u32;
            }
            if placement.header.last {
                if let Err(wrong) = finish_message(qp, tables, placement, None) {
                    let mut header = [0; UNTAGGED_BYTES];
                    let filled = placement.header.write(&mut header);
                    return Err(fail(qp, tables.outputs, wrong, &header[..filled], placement.segment_bytes));
                }
                let sequence = &mut qp.sequence_in[queue::SEND as usize];
                *sequence = sequence.wrapping_add(1);
                qp.has_arrived(tables.outputs);
            }
        }
    }
    Ok(())
}

/// Completes one segment of a read response.
fn finish_response(qp: &mut Qp, tables: &mut Tables<'_>, placement: &Placement) {
    let Some(entry) = qp.orrq.entries.front_mut() else { return };
    let number = entry.wqe;
    if let OutstandingRequest::Read { here, .. } = &mut entry.request {
        *here += placement.placed as u32;
    }
    if !placement.header.last {
        return;
    }
    qp.orrq.entries.pop_front();
    qp.sq.on_response(number);
    if let Some(wqe) = qp.sq.get(number)
        && wqe.is_answered()
        && let Operation::Read { invalidate: true, .. } = wqe.work.operation
        && let Data::Elements(sges) = &wqe.work.data
    {
        for sge in sges {
            // If the tag is already invalid, there is nothing to do.
            let _ = tables.smt.invalidate(sge.stag, qp.attributes.pd, qp.number);
        }
    }
    qp.complete_finished(tables.outputs);
    qp.schedule(tables.outputs);
}

impl Placement {
    const fn purpose(&self) -> AccessKind {
        match self.opcode {
            Opcode::Write => AccessKind::RemoteWrite,
            _ => AccessKind::LocalWrite,
        }
    }
}

impl Qp {
    /// Fails the queue pair because the memory for a response was invalidated.
    fn sink_is_gone(&mut self, wqe: u64, outputs: &mut Outputs) {
        outputs.counters.local_errors += 1;
        let last = Terminate { reason: Reason::LOCAL_ERROR, segment: None, read_request: None };
        self.fail(Some(last), Some((wqe, Status::LocalProtection)), outputs);
    }

    /// Stops the stream until a receive is posted.
    fn wait_for_receive(&mut self, srqs: &mut Slab<SharedReceiveQueue>) {
        match self.attributes.srq.and_then(|srq| srqs.get_mut(srq)) {
            Some(srq) if !srq.waiters.contains(&self.number) => srq.waiters.push(self.number),
            Some(_) => {}
            None => self.rq.awaits_receive = true,
        }
    }
}
