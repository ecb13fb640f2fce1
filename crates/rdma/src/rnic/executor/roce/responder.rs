//! The responder (IBTA volume 1 §9.7.4, §9.7.5, §9.8.3).
//!
//! ```text
//! PSN of a request    reliable                                      unreliable
//! expected            executed                                      executed
//! later               NAK with a sequence error, once; dropped      executed; the missing ones are lost
//! earlier             acknowledged or answered again                treated as later
//! ```
//!
//! Selective     if the peer retransmits selectively, later requests are kept until the missing ones arrive.
//!               Reports say which have arrived (`control/reorder.rs`).
//! Duplicates    Sends and Writes are only acknowledged. Reads are executed again, unless their memory has
//!               been withdrawn since. The result of an atomic operation is kept, and repeated.
//! Order         responses leave in the order of their PSNs. A NAK, or an acknowledgement of everything
//!               before the expected PSN, follows them; one acknowledgement stands for many.
//! No receive    the request is refused with an RNR NAK and stays the expected one. On an unreliable queue
//!               pair it is dropped.
//! Faults        a request that breaks a rule is refused with a NAK, after which the queue pair fails. On an
//!               unreliable queue pair it is dropped, with the rest of its message (§9.8.3.2.1).

use super::super::super::control::completion;
use super::super::super::control::psn::distance;
use super::super::super::control::qp::Qp;
use super::super::super::control::receive_queue::Incoming;
use super::super::super::control::reorder::{Keeping, Kept};
use super::super::super::control::roce::{Receiving, Refusal, Responder, Response, Roce};
use super::super::super::host::dmac::{self, Cursor};
use super::super::super::host::smt::{AccessKind, StagTable, Violation};
use super::super::super::outbox::Outputs;
use super::super::super::work::{Completion, Kind, Status};
use super::super::receive::{self, Tables};
use super::{MESSAGE_BYTES_MAX, finish, xrc};
use crate::wire::rdmap::{self, Atomic};
use crate::wire::roce::{
    Aeth, AtomicAckEth, Bth, NakCode, Opcode, Operation as Op, PSN_MASK, Packet, Reth, Syndrome, credits, pad,
};
use alloc::vec::Vec;
use kiban_base::{Instant, SharedBytes};

/// The credit code of a responder that does not count credits.
const NO_CREDITS: u8 = 31;

/// Parts of a read's response that may wait beside it: a peer that retransmits selectively asks for each part
/// that is missing.
const PARTS_PER_READ: usize = 4;

/// Why a request is not executed.
enum Fault {
    /// No receive is posted.
    NotReady,
    /// The request is refused.
    Nak(NakCode),
    /// A local error has been reported to the host: the request is refused, and the queue pair fails even if
    /// it is unreliable.
    Local(NakCode),
}

const INVALID_REQUEST: Fault = Fault::Nak(NakCode::InvalidRequest);

// ---- requests

/// Takes a request.
pub(in super::super::super) fn take(
    qp: &mut Qp,
    tables: &mut Tables<'_>,
    operation: Op,
    packet: &Packet,
    payload: &[u8],
) {
    let is_up = qp.is_up();
    let Some(roce) = &mut qp.roce else { return };
    let (traits, responder) = (roce.traits, &mut roce.responder);
    if !is_up || responder.refusal.is_some_and(|refusal| refusal.is_fatal) {
        return;
    }
    let psn = packet.bth.psn;
    let ahead = distance(responder.expected, psn);
    if traits.is_reliable() {
        responder.reorder.on_request(packet.bth.selective, ahead);
    }
    if ahead > 0 && responder.reorder.is_agreed() && !responder.has_refused {
        return keep(qp, tables, operation, packet, payload, ahead.unsigned_abs());
    }
    if traits.is_reliable() && ahead > 0 {
        tables.outputs.counters.packets_out_of_order += 1;
        if !core::mem::replace(&mut responder.has_refused, true) {
            tables.outputs.counters.sequence_naks_out += 1;
            let syndrome = Syndrome::Nak(NakCode::SequenceError);
            responder.refusal = Some(Refusal { psn: responder.expected, syndrome, is_fatal: false });
            qp.schedule(tables.outputs);
        }
        return;
    }
    if traits.is_reliable() && ahead < 0 {
        tables.outputs.counters.packets_duplicate += 1;
        return take_duplicate(qp, tables, operation, packet);
    }
    if ahead != 0 {
        tables.outputs.counters.packets_out_of_order += 1;
        responder.expected = psn;
        give_up_message(qp);
    }
    let mut done = execute_expected(qp, tables, operation, packet, payload);
    let mut filled_gap = false;
    while let Some(psns) = done
        && let Some(kept) = qp.roce.as_mut().and_then(|roce| roce.responder.reorder.advance(psns))
    {
        filled_gap = true;
        done = execute_expected(qp, tables, kept.operation, &kept.packet, &kept.payload);
    }
    if let Some(roce) = &mut qp.roce {
        let Responder { reorder, expected, .. } = &mut roce.responder;
        if filled_gap || packet.bth.ack_request && !reorder.is_empty() {
            reorder.report_first(*expected);
            qp.schedule(tables.outputs);
        }
    }
}

/// Keeps a request, which is `ahead` of the expected one.
fn keep(qp: &mut Qp, tables: &mut Tables<'_>, operation: Op, packet: &Packet, payload: &[u8], ahead: u32) {
    let Some(roce) = &mut qp.roce else { return };
    if payload.len() > roce.traits.path_mtu {
        tables.outputs.counters.packets_malformed += 1;
        return;
    }
    let reorder = &mut roce.responder.reorder;
    let keeping = reorder.keep(ahead, || Kept { operation, packet: *packet, payload: payload.to_vec() });
    let counters = &mut tables.outputs.counters;
    match keeping {
        Keeping::AfterGap | Keeping::Kept => counters.packets_kept += 1,
        Keeping::Duplicate => counters.packets_duplicate += 1,
        Keeping::TooFar => counters.packets_out_of_order += 1,
    }
    if keeping == Keeping::AfterGap || packet.bth.ack_request {
        reorder.report(roce.responder.expected, packet.bth.psn);
        qp.schedule(tables.outputs);
    }
}

/// Takes the expected request. Returns how many PSNs it takes, if it was executed.
fn execute_expected(
    qp: &mut Qp,
    tables: &mut Tables<'_>,
    operation: Op,
    packet: &Packet,
    payload: &[u8],
) -> Option<u32> {
    let psn = packet.bth.psn;
    let done = execute(qp, tables, operation, packet, payload);
    let roce = qp.roce.as_mut()?;
    let (traits, responder) = (roce.traits, &mut roce.responder);
    match done {
        Ok(psns) => {
            tables.outputs.counters.packets_in += 1;
            responder.expected = psn.wrapping_add(psns) & PSN_MASK;
            responder.has_refused = false;
            if matches!(operation, Op::ReadRequest | Op::CompareSwap | Op::FetchAdd) {
                // The response acknowledges the request and everything before it. Without it, an
                // acknowledgement of the same PSN would contradict what the peer has received.
                responder.ack = None;
            } else if packet.bth.ack_request && traits.is_reliable() {
                responder.ack = Some(psn);
                qp.schedule(tables.outputs);
            }
            return Some(psns);
        }
        Err(fault) if !traits.is_reliable() => {
            responder.expected = psn.wrapping_add(1) & PSN_MASK;
            give_up_message(qp);
            match fault {
                Fault::NotReady => tables.outputs.counters.no_buffer += 1,
                Fault::Nak(_) => tables.outputs.counters.packets_malformed += 1,
                Fault::Local(_) => qp.fail_after_refusal(rdmap::Reason::LOCAL_ERROR, tables.outputs),
            }
        }
        Err(fault) => {
            let (syndrome, is_fatal) = match fault {
                Fault::NotReady => (Syndrome::RnrNak(traits.rnr_timer), false),
                Fault::Nak(code) | Fault::Local(code) => (Syndrome::Nak(code), true),
            };
            tables.outputs.counters.rnr_naks_out += u64::from(!is_fatal);
            // The peer goes back. Otherwise, kept messages would be refused one after the other.
            responder.reorder.clear();
            responder.has_refused = true;
            responder.refusal = Some(Refusal { psn, syndrome, is_fatal });
            qp.schedule(tables.outputs);
        }
    }
    None
}

/// Returns how many responses may wait before another duplicate is answered.
fn responses_max(roce: &Roce) -> usize {
    let parts = if roce.responder.reorder.is_agreed() { PARTS_PER_READ } else { 0 };
    usize::from(roce.traits.ird) * (1 + parts)
}

/// Returns whether as many reads and atomics as the peer may have outstanding await their responses. Repeated
/// responses do not count: the peer may ask for many parts of one, and anyone may forge duplicates.
fn is_full(roce: &Roce) -> bool {
    let (ird, responses) = (usize::from(roce.traits.ird), &roce.responder.responses);
    responses.len() >= ird && responses.iter().filter(|response| !response.is_repeat()).count() >= ird
}

/// Executes the expected request. Returns how many PSNs it takes.
fn execute(
    qp: &mut Qp,
    tables: &mut Tables<'_>,
    operation: Op,
    packet: &Packet,
    payload: &[u8],
) -> Result<u32, Fault> {
    if !xrc::select(qp, tables.srqs, packet) {
        return Err(INVALID_REQUEST);
    }
    let Some(roce) = &mut qp.roce else { return Err(INVALID_REQUEST) };
    let (traits, receiving) = (roce.traits, roce.responder.receiving);
    let is_send = is_send(operation);
    if operation.carries_payload() {
        // All packets of a message are of one kind, and only the last one is shorter than the path MTU.
        let continues = match receiving {
            Receiving::Nothing => false,
            Receiving::Send => is_send,
            Receiving::Write { .. } => !is_send,
        };
        let begins = operation.is_first();
        let length_fits = match (begins, operation.is_last()) {
            (true, true) => payload.len() <= traits.path_mtu,
            (false, true) => (1..=traits.path_mtu).contains(&payload.len()),
            (_, false) => payload.len() == traits.path_mtu,
        };
        if !length_fits || (if begins { receiving != Receiving::Nothing } else { !continues }) {
            return Err(INVALID_REQUEST);
        }
        if is_send {
            send(qp, tables, operation, packet, payload)?
        } else {
            write(qp, tables, operation, packet, payload)?
        }
        return Ok(1);
    }
    if receiving != Receiving::Nothing || is_full(roce) {
        return Err(INVALID_REQUEST);
    }
    match (packet.reth, packet.atomic) {
        (Some(reth), _) if reth.length > MESSAGE_BYTES_MAX => Err(INVALID_REQUEST),
        (Some(reth), _) => {
            check_read(qp, qp.attributes.pd, tables.smt, &reth)
                .map_err(|violation| refused(tables.outputs, violation))?;
            tables.outputs.counters.reads_in += 1;
            Ok(answer_read(qp, tables.outputs, packet.bth.psn, &reth))
        }
        (None, Some(_)) => atomic(qp, tables, operation, packet).map(|()| 1),
        (None, None) => Err(INVALID_REQUEST),
    }
}

const fn is_send(operation: Op) -> bool {
    matches!(
        operation,
        Op::SendFirst
            | Op::SendMiddle
            | Op::SendLast
            | Op::SendLastImmediate
            | Op::SendLastInvalidate
            | Op::SendOnly
            | Op::SendOnlyImmediate
            | Op::SendOnlyInvalidate
    )
}

/// Returns the reason that is reported to the host: the one that a Terminate would carry.
const fn reason(syndrome: Syndrome) -> rdmap::Reason {
    match syndrome {
        Syndrome::Nak(NakCode::RemoteAccess) => rdmap::Reason::REMOTE_ACCESS,
        Syndrome::Nak(NakCode::RemoteOperational) => rdmap::Reason::LOCAL_ERROR,
        _ => rdmap::Reason::OPERATION_STREAM,
    }
}

/// Counts a violation, and returns the NAK for it.
fn refused(outputs: &mut Outputs, violation: Violation) -> Fault {
    outputs.count_fault(receive::remote(violation));
    Fault::Nak(NakCode::RemoteAccess)
}

/// Takes a receive for a message.
fn open(qp: &mut Qp, tables: &mut Tables<'_>) -> Result<(), Fault> {
    if qp.rq.incoming.is_none() {
        let work = qp.take_receive(tables.srqs, tables.outputs).ok_or(Fault::NotReady)?;
        let room: u64 = work.sges.iter().map(|sge| u64::from(sge.length)).sum();
        let room = room.min(MESSAGE_BYTES_MAX.into());
        let opcode = rdmap::Opcode::Send;
        qp.rq.incoming = Some(Incoming { work, cursor: Cursor::default(), bytes: 0, room, opcode });
    }
    Ok(())
}

/// Gives up the message that is partly received on an unreliable queue pair. Its receive takes the next one.
fn give_up_message(qp: &mut Qp) {
    if let Some(incoming) = &mut qp.rq.incoming {
        (incoming.cursor, incoming.bytes) = (Cursor::default(), 0);
    }
    if let Some(roce) = &mut qp.roce {
        roce.responder.receiving = Receiving::Nothing;
    }
}

/// Ends the receive at hand with an error of this host.
fn fail_receive(qp: &mut Qp, outputs: &mut Outputs, status: Status, code: NakCode) -> Fault {
    if let Some(incoming) = qp.rq.incoming.take() {
        let done = completion::of_receive(qp.qpn, incoming.work.id, status, Kind::Receive, 0);
        outputs.complete(qp.attributes.receive_cq, done, true);
    }
    outputs.counters.local_errors += 1;
    Fault::Local(code)
}

/// Takes a packet of a Send.
fn send(
    qp: &mut Qp,
    tables: &mut Tables<'_>,
    operation: Op,
    packet: &Packet,
    payload: &[u8],
) -> Result<(), Fault> {
    open(qp, tables)?;
    let owner = qp.owner();
    let Some(incoming) = &mut qp.rq.incoming else { return Err(Fault::NotReady) };
    if u64::from(incoming.bytes) + payload.len() as u64 > incoming.room {
        return Err(fail_receive(qp, tables.outputs, Status::LocalLength, NakCode::InvalidRequest));
    }
    let bytes = SharedBytes::from(payload);
    if dmac::scatter(tables.smt, owner, &incoming.work.sges, &mut incoming.cursor, bytes).is_err() {
        return Err(fail_receive(qp, tables.outputs, Status::LocalProtection, NakCode::RemoteOperational));
    }
    incoming.bytes += payload.len() as u32;
    tables.outputs.counters.placed_bytes += payload.len() as u64;
    if let Some(stag) = packet.invalidate {
        tables.smt.invalidate_for_peer(stag, qp.attributes.pd, qp.number).map_err(|_| {
            tables.outputs.counters.bad_invalidate += 1;
            Fault::Nak(NakCode::RemoteAccess)
        })?;
    }
    let bytes = incoming.bytes;
    set_receiving(qp, operation, Receiving::Send);
    if operation.is_last() {
        finish_message(qp, tables, packet, Kind::Receive, bytes);
    }
    Ok(())
}

/// Takes a packet of a Write.
fn write(
    qp: &mut Qp,
    tables: &mut Tables<'_>,
    operation: Op,
    packet: &Packet,
    payload: &[u8],
) -> Result<(), Fault> {
    let owner = qp.owner();
    let Some(roce) = &qp.roce else { return Err(INVALID_REQUEST) };
    let (rkey, address, length, placed) = match (packet.reth, roce.responder.receiving) {
        (Some(Reth { address, rkey, length }), _) => {
            // §9.7.4.1.2: the key of a Write without payload is not checked.
            if length > 0 {
                if !qp.allows.remote_write {
                    return Err(refused(tables.outputs, Violation::Access));
                }
                tables
                    .smt
                    .check(rkey, owner, AccessKind::RemoteWrite, address, length.into())
                    .map_err(|violation| refused(tables.outputs, violation))?;
            }
            (rkey, address, length, 0)
        }
        (None, Receiving::Write { rkey, address, length, placed }) => (rkey, address, length, placed),
        (None, _) => return Err(INVALID_REQUEST),
    };
    let end = u64::from(placed) + payload.len() as u64;
    if end > u64::from(length) || operation.is_last() != (end == u64::from(length)) {
        return Err(INVALID_REQUEST);
    }
    if packet.immediate.is_some() {
        open(qp, tables)?;
    }
    if !payload.is_empty() {
        let at = address.wrapping_add(placed.into());
        let list = tables.smt.check(rkey, owner, AccessKind::RemoteWrite, at, payload.len() as u64);
        let put = list.and_then(|list| list.write(at, SharedBytes::from(payload)).ok_or(Violation::Unmapped));
        put.map_err(|violation| refused(tables.outputs, violation))?;
        tables.outputs.counters.placed_bytes += payload.len() as u64;
    }
    set_receiving(qp, operation, Receiving::Write { rkey, address, length, placed: end as u32 });
    if operation.is_last() {
        tables.outputs.counters.writes_in += 1;
        if packet.immediate.is_some() {
            finish_message(qp, tables, packet, Kind::ReceiveImmediate, length);
        }
    }
    Ok(())
}

/// Updates the message that is being received after one of its packets, and counts complete messages.
fn set_receiving(qp: &mut Qp, operation: Op, goes_on: Receiving) {
    if let Some(roce) = &mut qp.roce {
        let is_last = operation.is_last();
        roce.responder.receiving = if is_last { Receiving::Nothing } else { goes_on };
        roce.responder.msn = roce.responder.msn.wrapping_add(u32::from(is_last));
    }
}

/// Completes the receive at hand.
fn finish_message(qp: &mut Qp, tables: &mut Tables<'_>, packet: &Packet, kind: Kind, bytes: u32) {
    let Some(incoming) = qp.rq.incoming.take() else { return };
    tables.outputs.counters.messages_in += 1;
    let done = completion::of_receive(qp.qpn, incoming.work.id, Status::Success, kind, bytes);
    let immediate = packet.immediate.map(u64::from).map(|data| match kind {
        Kind::ReceiveImmediate => data << 32 | u64::from(bytes),
        _ => data,
    });
    let invalidated = packet.invalidate;
    let done = Completion { immediate, invalidated, ..done };
    tables.outputs.complete(qp.attributes.receive_cq, done, packet.bth.solicited);
}

/// Checks that the peer may read this memory.
fn check_read(qp: &Qp, pd: u32, smt: &StagTable, reth: &Reth) -> Result<(), Violation> {
    if reth.length == 0 {
        return Ok(());
    }
    if !qp.allows.remote_read {
        return Err(Violation::Access);
    }
    smt.check(reth.rkey, (pd, qp.number), AccessKind::RemoteRead, reth.address, reth.length.into()).map(drop)
}

/// Queues the response to a read. Returns how many PSNs it takes.
fn answer_read(qp: &mut Qp, outputs: &mut Outputs, psn: u32, reth: &Reth) -> u32 {
    let pd = qp.attributes.pd;
    let Some(roce) = &mut qp.roce else { return 1 };
    let responder = &mut roce.responder;
    responder.msn = responder.msn.wrapping_add(1);
    let &Reth { address, rkey, length } = reth;
    let msn = responder.msn;
    responder.responses.push_back(Response::Read {
        psn,
        pd,
        rkey,
        address,
        length,
        sent: 0,
        msn,
        is_repeat: false,
    });
    let psns = psns(length, roce.traits.path_mtu);
    qp.schedule(outputs);
    psns
}

/// Returns how many packets a response of `length` bytes has.
fn psns(length: u32, path_mtu: usize) -> u32 {
    length.div_ceil(path_mtu as u32).max(1)
}

/// Executes an atomic operation, and queues its response.
fn atomic(qp: &mut Qp, tables: &mut Tables<'_>, operation: Op, packet: &Packet) -> Result<(), Fault> {
    let Some(request) = packet.atomic else { return Err(INVALID_REQUEST) };
    if !request.address.is_multiple_of(8) {
        return Err(INVALID_REQUEST);
    }
    if !qp.allows.remote_atomic {
        return Err(refused(tables.outputs, Violation::Access));
    }
    let found = tables.smt.check(request.rkey, qp.owner(), AccessKind::RemoteAtomic, request.address, 8);
    let list = found.map_err(|violation| refused(tables.outputs, violation))?;
    let atomic = match operation {
        Op::FetchAdd => Atomic::FetchAdd { add: request.swap_or_add, mask: 0 },
        _ => Atomic::CompareSwap {
            swap: request.swap_or_add,
            swap_mask: u64::MAX,
            compare: request.compare,
            compare_mask: u64::MAX,
        },
    };
    let original = dmac::modify(list, request.address, atomic).ok_or(Fault::Nak(NakCode::RemoteAccess))?;
    tables.outputs.counters.atomics_in += 1;
    let Some(roce) = &mut qp.roce else { return Ok(()) };
    let (psn, responder) = (packet.bth.psn, &mut roce.responder);
    responder.msn = responder.msn.wrapping_add(1);
    responder.responses.push_back(Response::Atomic { psn, original, msn: responder.msn, is_repeat: false });
    // The peer has at most `ird` atomic operations without a response.
    if responder.atomics.len() >= usize::from(roce.traits.ird) {
        responder.atomics.pop_front();
    }
    responder.atomics.push_back((psn, original));
    qp.schedule(tables.outputs);
    Ok(())
}

/// Takes a request that was executed before.
fn take_duplicate(qp: &mut Qp, tables: &mut Tables<'_>, operation: Op, packet: &Packet) {
    let psn = packet.bth.psn;
    let Some(roce) = &qp.roce else { return };
    let (responses_max, responder) = (responses_max(roce), &roce.responder);
    let is_selective = responder.reorder.is_agreed();
    let is_queued = responder.responses.iter().any(|response| response.psn() == psn);
    let response = match operation {
        Op::ReadRequest => {
            let Some(Reth { address, rkey, length }) = packet.reth else { return };
            let Some(pd) = xrc::pd(qp, tables.srqs, packet) else { return };
            // The PSNs must lie in those of the original request, whose access may have been revoked since.
            let known = distance(psn, responder.expected).unsigned_abs();
            if psns(length, roce.traits.path_mtu) > known
                || check_read(qp, pd, tables.smt, &Reth { address, rkey, length }).is_err()
            {
                return;
            }
            Response::Read { psn, pd, rkey, address, length, sent: 0, msn: responder.msn, is_repeat: true }
        }
        Op::CompareSwap | Op::FetchAdd => {
            let Some(&(_, original)) = responder.atomics.iter().rev().find(|(done, _)| *done == psn) else {
                return;
            };
            Response::Atomic { psn, original, msn: responder.msn, is_repeat: true }
        }
        _ => {
            if let Some(roce) = &mut qp.roce {
                if is_selective {
                    let Responder { reorder, expected, .. } = &mut roce.responder;
                    reorder.report_first(*expected);
                    return qp.schedule(tables.outputs);
                }
                // A later request may be a read, whose response has been sent.
                let ack = &mut roce.responder.ack;
                *ack = ack.filter(|pending| distance(*pending, psn) < 0).or(Some(psn));
            }
            return qp.schedule(tables.outputs);
        }
    };
    let Some(roce) = &mut qp.roce else { return };
    let responses = &mut roce.responder.responses;
    if !is_queued {
        if !is_selective {
            // The peer went back: it will send everything after this request again.
            responses.retain(|queued| distance(queued.psn(), psn) > 0);
        }
        if responses.len() < responses_max {
            responses.push_back(response);
        }
        qp.schedule(tables.outputs);
    }
}

// ---- responses

/// Returns whether the responder has a packet to send.
pub(in super::super::super) fn has_packet(qp: &Qp, now: Instant) -> bool {
    qp.roce.as_ref().is_some_and(|roce| {
        let Responder { responses, refusal, ack, reorder, .. } = &roce.responder;
        match responses.front() {
            Some(Response::Read { .. }) => roce.rate_allows(now),
            Some(Response::Atomic { .. }) => true,
            None => refusal.is_some() || ack.is_some() || reorder.has_report(),
        }
    })
}

/// Appends the next response or acknowledgement to `room`. Returns whether there was one.
pub(in super::super::super) fn next_packet(
    qp: &mut Qp,
    smt: &StagTable,
    outputs: &mut Outputs,
    now: Instant,
    room: &mut Vec<u8>,
) -> bool {
    if !has_packet(qp, now) {
        return false;
    }
    let (number, start) = (qp.number, room.len());
    let free = qp.attributes.srq.is_none().then_some(qp.rq.wqes.len() as u32);
    let Some(roce) = &mut qp.roce else { return false };
    let (traits, responder) = (&roce.traits, &mut roce.responder);
    let selective = responder.reorder.is_agreed();
    let bth = |operation, psn| Bth {
        selective,
        ..Bth::new(Opcode::Transport(traits.service, operation), traits.pkey, traits.peer, psn)
    };
    let positive = |msn| Some(Aeth { syndrome: Syndrome::Ack(credit_code(free)), msn });
    match responder.responses.front().copied() {
        Some(Response::Read { psn, pd, rkey, address, length, sent, msn, is_repeat }) => {
            let bytes = ((length - sent) as usize).min(traits.path_mtu);
            let is_last = sent + bytes as u32 == length;
            let operation = match (sent == 0, is_last) {
                (true, true) => Op::ReadResponseOnly,
                (true, false) => Op::ReadResponseFirst,
                (false, false) => Op::ReadResponseMiddle,
                (false, true) => Op::ReadResponseLast,
            };
            let mut packet = Packet::new(Bth { pad: pad(bytes), ..bth(operation, psn) });
            packet.aeth = positive(msn);
            packet.append_to(room);
            let from = address.wrapping_add(sent.into());
            if dmac::copy_place(smt, (pd, number), rkey, from, bytes, room).is_err() {
                // The memory was valid when the peer asked for it, but no longer is.
                room.truncate(start);
                if is_repeat {
                    // The peer may have had the data from an earlier response when its program withdrew the
                    // memory. If not, it repeats the request.
                    responder.responses.pop_front();
                    return next_packet(qp, smt, outputs, now, room);
                }
                outputs.counters.reads_withdrawn += 1;
                responder.responses.clear();
                let syndrome = Syndrome::Nak(NakCode::RemoteAccess);
                responder.refusal = Some(Refusal { psn, syndrome, is_fatal: true });
                return next_packet(qp, smt, outputs, now, room);
            }
            finish(&packet, room);
            outputs.counters.payload_out_bytes += bytes as u64;
            if is_last {
                responder.responses.pop_front();
            } else if let Some(Response::Read { psn, sent, .. }) = responder.responses.front_mut() {
                (*psn, *sent) = (psn.wrapping_add(1) & PSN_MASK, *sent + bytes as u32);
            }
            roce.pace(room.len() - start, now);
        }
        Some(Response::Atomic { psn, original, msn, .. }) => {
            let mut packet = Packet::new(bth(Op::AtomicAcknowledge, psn));
            packet.aeth = positive(msn);
            packet.atomic_ack = Some(AtomicAckEth { original });
            packet.append_to(room);
            responder.responses.pop_front();
        }
        None if responder.refusal.is_none() && responder.reorder.has_report() => {
            // It acknowledges everything before the expected PSN, too.
            responder.ack = None;
            let expected = responder.expected;
            let opcode = Opcode::SelectiveAck;
            let bth = Bth::new(opcode, traits.pkey, traits.peer, expected);
            let mut packet = Packet::new(Bth { selective, ..bth });
            packet.aeth = positive(responder.msn);
            packet.selective_ack = responder.reorder.next_report(expected);
            packet.append_to(room);
            outputs.counters.selective_acks_out += 1;
        }
        None => {
            let (psn, syndrome, is_fatal) = match (responder.refusal.take(), responder.ack.take()) {
                (Some(Refusal { psn, syndrome, is_fatal }), _) => (psn, syndrome, is_fatal),
                (None, Some(psn)) => (psn, Syndrome::Ack(credit_code(free)), false),
                (None, None) => return false,
            };
            let mut packet = Packet::new(bth(Op::Acknowledge, psn));
            packet.aeth = Some(Aeth { syndrome, msn: responder.msn });
            packet.append_to(room);
            if is_fatal {
                qp.fail_after_refusal(reason(syndrome), outputs);
            }
        }
    }
    outputs.counters.packets_out += 1;
    true
}

/// Returns the largest credit code for a number of posted receives; `None`: they are not counted, because
/// they are shared.
fn credit_code(receives: Option<u32>) -> u8 {
    let Some(receives) = receives else { return NO_CREDITS };
    (0..NO_CREDITS).rev().find(|&code| credits(code).is_some_and(|most| most <= receives)).unwrap_or(0)
}
