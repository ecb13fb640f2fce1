//! The requester (IBTA volume 1 §9.7.2 to §9.7.8).
//!
//! Packets         are built from their WQE for every transmission; only the WQE is kept. The host's memory
//!                 stays in use until the WQE completes.
//! Acknowledged    by a later acknowledgement too, and by the response to a later read. Reads and atomics
//!                 complete only with their own response: an acknowledgement of a later request means that
//!                 this response was lost (§9.7.5.1.3).
//! Going back      after a NAK with a sequence error, a gap in a response, or the acknowledgement timer, the
//!                 requester sends everything again from the first packet that is missing. A read is
//!                 requested again from its first missing byte.
//! Selective       kiban's responder keeps packets that arrive after a missing one, and reports which have
//!                 arrived (`SelectiveAck`). The requester marks its packets until the first answer shows
//!                 whether the peer does so; if it does, only missing packets are sent again. A missing part
//!                 of a response is requested as a duplicate of its read; its data is placed as it arrives.
//! Credits         the requester starts only as many Sends, and Writes with immediate data, as the peer has
//!                 receives. Without credits, it sends one such request and waits for its acknowledgement
//!                 (§9.7.7.2.5).
//! Long reads      are requested in pieces of half a window, each a message of its own, so that their
//!                 responses fit into the window.
//! RNR             the peer had no receive: the requester waits as long as the peer says, then goes back.
//! Rate            while the network reports congestion, packets also wait for the pacer
//!                 (`control/dcqcn.rs`).
//! UC              sends without acknowledgements: a message is done when it is sent.

use super::super::super::control::psn::{distance, psn_of};
use super::super::super::control::qp::Qp;
use super::super::super::control::roce::{Message, RNR_RETRIES_INFINITE, Recovery, Requester};
use super::super::super::control::send_queue::Progress;
use super::super::super::host::dmac::{self, Cursor};
use super::super::super::host::smt::StagTable;
use super::super::super::outbox::Outputs;
use super::super::super::work::{Data, Operation, SendWork, Sge, Status};
use super::super::receive::Tables;
use super::super::send;
use super::{MESSAGE_BYTES_MAX, finish};
use crate::wire::rdmap::Atomic;
use crate::wire::roce::{
    Aeth, AtomicEth, Bth, NakCode, Opcode, Operation as Op, Packet, Reth, Syndrome, credits, pad, rnr_timer,
};
use alloc::vec::Vec;
use core::ops::Range;
use kiban_base::{Instant, SharedBytes};

/// A requester asks for an acknowledgement at the end of every message, and after this many packets.
const PACKETS_PER_ACK: u32 = 32;

/// The result of looking for a WQE to start.
enum Start {
    Nothing,
    /// A message was started, work that sends nothing was executed, or the queue pair failed.
    Again,
}

/// Appends the next packet to `room`. Returns whether there was one.
pub(in super::super::super) fn next_packet(
    qp: &mut Qp,
    smt: &mut StagTable,
    outputs: &mut Outputs,
    now: Instant,
    room: &mut Vec<u8>,
) -> bool {
    loop {
        if !can_send(qp, now) {
            return false;
        }
        let Some(roce) = &mut qp.roce else { return false };
        let lost = roce.requester.next_lost();
        if lost.is_none() && roce.requester.next == roce.requester.end {
            match start(qp, smt, outputs) {
                Start::Again => continue,
                Start::Nothing => return false,
            }
        }
        if lost.is_none() && !may_request(qp) {
            return false;
        }
        let start = room.len();
        match build(qp, smt, outputs, now, lost, room) {
            Ok(()) => return true,
            Err((wqe, status)) => {
                room.truncate(start);
                fail(qp, wqe, status, outputs);
            }
        }
    }
}

/// Returns whether the requester may send another packet now, if it has one.
fn can_send(qp: &Qp, now: Instant) -> bool {
    let Some(roce) = &qp.roce else { return false };
    qp.is_up()
        && qp.traits.may_send
        && roce.requester.held_until.is_none_or(|until| until <= now)
        && roce.rate_allows(now)
        && (roce.requester.scoreboard.has_lost() || roce.requester.has_room())
}

/// Returns whether the agreed depth of reads and the peer's credits allow the packet at the requester's next
/// position.
fn may_request(qp: &Qp) -> bool {
    let Some(requester) = qp.roce.as_ref().map(|roce| &roce.requester) else { return false };
    requester.message_at(requester.next).is_none_or(|message| match message.has_response {
        true => requester.outstanding_before(message.first) < usize::from(qp.traits.ord),
        false => requester.has_credit(message, requester.next),
    })
}

/// Returns whether the requester has a packet to send now.
pub(in super::super::super) fn has_packet(qp: &Qp, now: Instant) -> bool {
    let Some(requester) = qp.roce.as_ref().map(|roce| &roce.requester) else { return false };
    let has_more = requester.next < requester.end;
    can_send(qp, now)
        && (requester.scoreboard.has_lost()
            || if has_more { may_request(qp) } else { send::may_start(qp).is_some() })
}

/// Fails the queue pair because of a WQE.
fn fail(qp: &mut Qp, wqe: u64, status: Status, outputs: &mut Outputs) {
    outputs.counters.local_errors += 1;
    qp.fail(None, Some((wqe, status)), outputs);
}

/// Starts the next WQE, if it may start.
fn start(qp: &mut Qp, smt: &mut StagTable, outputs: &mut Outputs) -> Start {
    let Some(number) = send::may_start(qp) else { return Start::Nothing };
    qp.sq.start();
    let owner = qp.owner();
    let agrees = qp.sq.get(number).is_some_and(|wqe| qp.agrees(&wqe.work.operation));
    let (Some(wqe), Some(roce)) = (qp.sq.get_mut(number), &mut qp.roce) else { return Start::Nothing };
    let has_response = wqe.work.operation.has_response();
    let checked = match send::check(&wqe.work, smt, owner, outputs) {
        _ if !agrees || has_response && !roce.traits.is_reliable() => Err(Status::LocalOperation),
        Ok(Some(_)) if wqe.work.data.length() > u64::from(MESSAGE_BYTES_MAX) => Err(Status::LocalLength),
        Ok(Some(_)) => Ok(true),
        Ok(None) => send::execute_locally(&mut wqe.work.operation, smt, owner).map(|()| false),
        Err(status) => Err(status),
    };
    match checked {
        Ok(true) => {
            let total = match wqe.work.operation {
                Operation::Atomic { .. } => 8,
                _ => wqe.work.data.length() as u32,
            };
            let (requester, mtu) = (&mut roce.requester, roce.traits.path_mtu as u32);
            let piece = match wqe.work.operation {
                Operation::Read { .. } => (requester.window / 2).max(1).saturating_mul(mtu),
                _ => u32::MAX,
            };
            let mut offset = 0;
            loop {
                let length = piece.min(total - offset);
                let first = requester.end;
                // An atomic operation is a single packet, too.
                requester.end += u64::from(length.div_ceil(mtu).max(1));
                let end = requester.end;
                requester.started += 1;
                requester.messages.push_back(Message {
                    wqe: number,
                    has_response,
                    first,
                    end,
                    takes_receive_at: match wqe.work.operation {
                        _ if !roce.traits.is_reliable() => None,
                        Operation::Send { .. } | Operation::SendImmediate { .. } => Some(first),
                        Operation::Write { immediate: Some(_), .. } => Some(end - 1),
                        _ => None,
                    },
                    number: requester.started,
                    offset,
                    length,
                });
                if has_response {
                    requester.unanswered.push_back(first);
                }
                offset += length;
                if offset == total {
                    break;
                }
            }
            let end = requester.end;
            wqe.progress = Progress::Sent { unanswered: 0, last_segment: end };
            Start::Again
        }
        Ok(false) => {
            qp.sq.done(number, Status::Success);
            qp.complete_finished(outputs);
            Start::Again
        }
        Err(status) => {
            fail(qp, number, status, outputs);
            Start::Again
        }
    }
}

/// Builds the packet at the requester's next position, or the one for the positions that are `lost`.
fn build(
    qp: &mut Qp,
    smt: &StagTable,
    outputs: &mut Outputs,
    now: Instant,
    lost: Option<Range<u64>>,
    room: &mut Vec<u8>,
) -> Result<(), (u64, Status)> {
    let owner = qp.owner();
    let Some(roce) = &mut qp.roce else { return Ok(()) };
    let (traits, requester) = (&roce.traits, &mut roce.requester);
    let at = lost.as_ref().map_or(requester.next, |lost| lost.start);
    let message = *requester.message_at(at).expect("it lies in a started message");
    let work = &qp.sq.get(message.wqe).expect("its WQE is not complete").work;
    let (before, rest) = message.bytes_at(at, traits.path_mtu);
    let carries_payload = !message.has_response;
    let payload_bytes = if carries_payload { (rest as usize).min(traits.path_mtu) } else { 0 };
    let next = match &lost {
        Some(lost) => lost.end,
        None if carries_payload => at + 1,
        None => message.end,
    };
    let is_last = next == message.end;
    // A part of a response ends at the limit of a packet.
    let rest = if carries_payload || is_last { rest } else { (next - at) as u32 * traits.path_mtu as u32 };

    requester.unrequested += 1;
    let fills_window = next - requester.acked >= u64::from(requester.window);
    let needs_answer = lost.is_some() || is_last || fills_window || !requester.has_credit(&message, next);
    let ack_request = needs_answer || requester.unrequested >= PACKETS_PER_ACK;
    if ack_request {
        requester.unrequested = 0;
    }
    let operation = operation(&work.operation, at == message.first, is_last);
    let opcode = Opcode::Transport(traits.service, operation);
    let psn = psn_of(roce.sending.first_psn, at);
    let start = room.len();
    let mut packet = Packet::new(Bth {
        solicited: work.solicited && is_last,
        pad: pad(payload_bytes),
        ack_request: ack_request && traits.is_reliable() && carries_payload,
        selective: requester.recovery != Recovery::GoBackN,
        ..Bth::new(opcode, traits.pkey, traits.peer, psn)
    });
    extend(&mut packet, work, before, rest);
    packet.append_to(room);
    match &work.data {
        Data::Elements(sges) if payload_bytes > 0 => {
            let mut cursor = cursor_at(requester.cursor, at, sges, before);
            dmac::copy(smt, owner, sges, &mut cursor, payload_bytes, room)
                .map_err(|_| (message.wqe, Status::LocalProtection))?;
            requester.cursor = (next, cursor);
        }
        Data::Inline(bytes) => room.extend_from_slice(&bytes[before as usize..][..payload_bytes]),
        Data::Elements(_) => {}
    }
    finish(&packet, room);

    roce.pace(room.len() - start, now);
    let (traits, requester) = (&roce.traits, &mut roce.requester);
    outputs.counters.packets_out += 1;
    outputs.counters.packets_retransmitted += u64::from(at < requester.sent);
    outputs.counters.payload_out_bytes += payload_bytes as u64;
    if requester.recovery != Recovery::GoBackN {
        requester.scoreboard.on_sent(at..next, message.has_response, now);
    }
    if lost.is_none() {
        requester.next = next;
        requester.sent = requester.sent.max(next);
    }
    if traits.is_reliable() {
        if requester.ack_timer.is_none() {
            requester.ack_timer = roce.sending.ack_timeout.map(|timeout| now + timeout);
        }
        if requester.recovery == Recovery::Selective && next <= requester.scoreboard.executed() {
            // The peer had executed it before a stale RNR NAK came.
            settle(qp, now, outputs);
        }
    } else {
        advance(qp, next, now, outputs);
    }
    Ok(())
}

/// Returns the cursor for the bytes after the first `before` bytes of the elements: the one that was kept, if
/// it is for this position.
fn cursor_at(kept: (u64, Cursor), position: u64, sges: &[Sge], before: u32) -> Cursor {
    if kept.0 == position && before > 0 {
        return kept.1;
    }
    let mut cursor = Cursor::default();
    dmac::skip(sges, &mut cursor, before as usize);
    cursor
}

/// Returns the operation of a packet.
fn operation(of: &Operation, is_first: bool, is_last: bool) -> Op {
    match (of, is_first, is_last) {
        (Operation::Read { .. }, ..) => Op::ReadRequest,
        (Operation::Atomic { atomic: Atomic::CompareSwap { .. }, .. }, ..) => Op::CompareSwap,
        (Operation::Atomic { .. }, ..) => Op::FetchAdd,
        (Operation::Write { .. }, true, false) => Op::WriteFirst,
        (Operation::Write { .. }, false, false) => Op::WriteMiddle,
        (Operation::Write { immediate: Some(_), .. }, true, true) => Op::WriteOnlyImmediate,
        (Operation::Write { immediate: Some(_), .. }, false, true) => Op::WriteLastImmediate,
        (Operation::Write { .. }, true, true) => Op::WriteOnly,
        (Operation::Write { .. }, false, true) => Op::WriteLast,
        (_, true, false) => Op::SendFirst,
        (_, false, false) => Op::SendMiddle,
        (Operation::SendImmediate { .. }, true, true) => Op::SendOnlyImmediate,
        (Operation::SendImmediate { .. }, false, true) => Op::SendLastImmediate,
        (Operation::Send { invalidate: Some(_) }, true, true) => Op::SendOnlyInvalidate,
        (Operation::Send { invalidate: Some(_) }, false, true) => Op::SendLastInvalidate,
        (_, true, true) => Op::SendOnly,
        (_, false, true) => Op::SendLast,
    }
}

/// Fills in the extended headers that the opcode asks for. `before` bytes of the WQE precede the packet, and
/// `rest` bytes of the message remain.
fn extend(packet: &mut Packet, work: &SendWork, before: u32, rest: u32) {
    let headers = packet.bth.opcode.headers();
    packet.xrc_srq = headers.xrc.then_some(work.xrc_srq);
    match work.operation {
        Operation::Read { remote, .. } | Operation::Write { remote, .. } if headers.rdma => {
            let address = remote.offset.wrapping_add(u64::from(before));
            packet.reth = Some(Reth { address, rkey: remote.stag, length: rest });
        }
        Operation::Atomic { remote, atomic } => {
            let (swap_or_add, compare) = match atomic {
                Atomic::FetchAdd { add, .. } => (add, 0),
                Atomic::CompareSwap { swap, compare, .. } => (swap, compare),
            };
            packet.atomic =
                Some(AtomicEth { address: remote.offset, rkey: remote.stag, swap_or_add, compare });
        }
        _ => {}
    }
    match work.operation {
        Operation::SendImmediate { data } if headers.immediate => packet.immediate = Some(data),
        Operation::Write { immediate: Some(data), .. } if headers.immediate => {
            packet.immediate = Some((data >> 32) as u32);
        }
        Operation::Send { invalidate } if headers.invalidate => packet.invalidate = invalidate,
        _ => {}
    }
}

/// Takes an acknowledgement, or a packet of a response.
pub(in super::super::super) fn take(
    qp: &mut Qp,
    tables: &mut Tables<'_>,
    operation: Op,
    packet: &Packet,
    payload: &[u8],
    now: Instant,
) {
    let outputs = &mut *tables.outputs;
    let Some(roce) = &qp.roce else { return };
    let Some(at) = roce.requester.position(roce.sending.first_psn, packet.bth.psn) else {
        outputs.counters.packets_duplicate += 1;
        return;
    };
    if at >= roce.requester.sent || !qp.is_up() {
        outputs.counters.packets_malformed += 1;
        return;
    }
    outputs.counters.packets_in += 1;
    on_answer(qp, packet);
    match (operation, packet.aeth.map(|aeth| aeth.syndrome)) {
        (Op::Acknowledge, Some(Syndrome::Ack(_))) => acknowledge(qp, at + 1, now, outputs),
        (Op::Acknowledge, Some(Syndrome::RnrNak(code))) => {
            acknowledge(qp, at, now, outputs);
            on_receiver_not_ready(qp, at, now + rnr_timer(code), outputs);
        }
        (Op::Acknowledge, Some(Syndrome::Nak(code))) => {
            acknowledge(qp, at, now, outputs);
            on_nak(qp, at, code, outputs);
        }
        (Op::AtomicAcknowledge, _) => {
            let original = packet.atomic_ack.map_or(0, |ack| ack.original);
            take_data(qp, tables, operation, at, &original.to_ne_bytes(), now);
        }
        _ => take_data(qp, tables, operation, at, payload, now),
    }
}

/// Learns from any packet of the peer how it repairs losses, and its credits.
fn on_answer(qp: &mut Qp, packet: &Packet) {
    let Some(roce) = &mut qp.roce else { return };
    roce.requester.on_answer(packet.bth.selective);
    match packet.aeth {
        Some(Aeth { syndrome: Syndrome::Ack(code), msn }) => roce.requester.on_credits(msn, credits(code)),
        // There is no receive now. How many there will be is known when one more request has been sent.
        Some(Aeth { syndrome: Syndrome::RnrNak(_), msn }) => roce.requester.on_credits(msn, Some(0)),
        _ => {}
    }
}

/// Takes a selective acknowledgement.
pub(in super::super::super) fn take_selective_ack(
    qp: &mut Qp,
    outputs: &mut Outputs,
    packet: &Packet,
    now: Instant,
) {
    let (is_up, Some(ack), Some(roce)) = (qp.is_up(), packet.selective_ack, &qp.roce) else { return };
    let (first_psn, requester) = (roce.sending.first_psn, &roce.requester);
    let Some(missing) = requester.position(first_psn, packet.bth.psn) else {
        outputs.counters.packets_duplicate += 1;
        return;
    };
    if missing > requester.sent || !is_up || requester.recovery == Recovery::GoBackN || !packet.bth.selective
    {
        outputs.counters.packets_malformed += 1;
        return;
    }
    outputs.counters.packets_in += 1;
    outputs.counters.selective_acks_in += 1;
    on_answer(qp, packet);
    let Some(roce) = &mut qp.roce else { return };
    let requester = &mut roce.requester;
    requester.peer_span = Some(ack.span);
    requester.scoreboard.on_executed(missing, now);
    if requester.scoreboard.is_kept(missing) {
        // It was reported as kept. The peer has dropped it since, but the RNR NAK was lost.
        requester.restart_at(missing);
    }
    let ahead = distance(psn_of(first_psn, requester.acked), ack.first);
    let block = requester.acked.wrapping_add_signed(ahead.into());
    for at in ack.arrived() {
        let position = block.wrapping_add(at.into());
        let is_in_flight = missing < position && position < requester.sent;
        if !is_in_flight || !requester.scoreboard.is_missing(position) {
            continue;
        }
        match requester.message_at(position).copied() {
            Some(message) if message.has_response && message.first == position => {
                requester.scoreboard.on_kept(message.first..message.end, now);
            }
            Some(message) if !message.has_response => requester.scoreboard.on_arrived(position, now),
            _ => {}
        }
    }
    settle(qp, now, outputs);
}

/// Evaluates the scoreboard after a change.
fn settle(qp: &mut Qp, now: Instant, outputs: &mut Outputs) {
    let Some(roce) = &mut qp.roce else { return };
    let requester = &mut roce.requester;
    requester.lost_in_window = requester.lost_in_window.saturating_add(requester.scoreboard.find_lost());
    if requester.scoreboard.take_news() {
        requester.retries = 0;
        if requester.ack_timer.is_some() {
            requester.ack_timer = roce.sending.ack_timeout.map(|timeout| now + timeout);
        }
    }
    let done = requester.scoreboard.settle();
    advance(qp, done, now, outputs);
    qp.schedule(outputs);
}

/// Records that the peer has everything before `upto`. If a response before it is missing, goes back.
fn acknowledge(qp: &mut Qp, upto: u64, now: Instant, outputs: &mut Outputs) {
    let Some(roce) = &mut qp.roce else { return };
    if roce.requester.recovery == Recovery::Selective {
        roce.requester.scoreboard.on_executed(upto, now);
        return settle(qp, now, outputs);
    }
    let requester = &roce.requester;
    let missing = requester.messages.iter().take_while(|message| message.first < upto);
    let missing = missing.filter(|message| message.has_response).map(|message| message.first).next();
    match missing {
        None => advance(qp, upto, now, outputs),
        Some(first) => {
            let first = first.max(requester.acked);
            advance(qp, first, now, outputs);
            go_back(qp, first, outputs);
        }
    }
}

/// Records that everything before `upto` is done, and completes the work requests that end there.
fn advance(qp: &mut Qp, upto: u64, now: Instant, outputs: &mut Outputs) {
    let Some(roce) = &mut qp.roce else { return };
    let requester = &mut roce.requester;
    if upto <= requester.acked {
        return;
    }
    requester.grow_window(upto - requester.acked, roce.sending.window);
    requester.acked = upto;
    requester.next = requester.next.max(upto);
    requester.went_back_to = requester.went_back_to.filter(|&at| at >= upto);
    (requester.retries, requester.rnr_retries) = (0, 0);
    let is_waiting = upto < requester.sent && roce.traits.is_reliable();
    requester.ack_timer = roce.sending.ack_timeout.filter(|_| is_waiting).map(|timeout| now + timeout);
    while let Some(message) = requester.messages.front()
        && message.end <= upto
    {
        if message.has_response {
            requester.unanswered.pop_front();
        }
        requester.messages.pop_front();
    }
    qp.confirmed = upto;
    qp.complete_finished(outputs);
    qp.schedule(outputs);
}

/// Sends everything from `at` on again, unless that is under way. A peer that retransmits selectively gets
/// only the first packet that is missing; its answer tells about the others.
fn go_back(qp: &mut Qp, at: u64, outputs: &mut Outputs) {
    let Some(roce) = &mut qp.roce else { return };
    let requester = &mut roce.requester;
    if requester.recovery == Recovery::Selective {
        requester.lose_first();
        requester.shrink_window(roce.sending.window);
        qp.schedule(outputs);
    } else if requester.went_back_to != Some(at) {
        requester.went_back_to = Some(at);
        requester.next = at;
        requester.shrink_window(roce.sending.window);
        qp.schedule(outputs);
    }
}

fn on_nak(qp: &mut Qp, at: u64, code: NakCode, outputs: &mut Outputs) {
    let status = match code {
        NakCode::SequenceError => {
            outputs.counters.sequence_naks_in += 1;
            return go_back(qp, at, outputs);
        }
        NakCode::InvalidRequest => Status::RemoteRequest,
        NakCode::RemoteAccess => Status::RemoteAccess,
        NakCode::RemoteOperational => Status::RemoteOperation,
    };
    fail_at(qp, at, status, outputs);
}

fn on_receiver_not_ready(qp: &mut Qp, at: u64, until: Instant, outputs: &mut Outputs) {
    outputs.counters.rnr_naks_in += 1;
    let Some(roce) = &mut qp.roce else { return };
    let (limit, requester) = (roce.sending.rnr_retries, &mut roce.requester);
    let is_selective = requester.recovery == Recovery::Selective;
    let first = if is_selective { requester.scoreboard.executed() } else { requester.acked };
    if first != at || requester.held_until.is_some() {
        return;
    }
    if limit != RNR_RETRIES_INFINITE && requester.rnr_retries >= limit {
        return fail_at(qp, at, Status::ReceiverNotReady, outputs);
    }
    requester.rnr_retries = requester.rnr_retries.saturating_add(1);
    requester.held_until = Some(until);
    // Responses to earlier reads may still be missing.
    requester.ack_timer = requester.ack_timer.filter(|_| requester.acked < at);
    requester.restart_at(at);
}

/// Fails the queue pair because of the message at a position.
fn fail_at(qp: &mut Qp, at: u64, status: Status, outputs: &mut Outputs) {
    let message = qp.roce.as_ref().and_then(|roce| roce.requester.message_at(at));
    if let Some(wqe) = message.map(|message| message.wqe) {
        qp.fail(None, Some((wqe, status)), outputs);
    }
}

/// Takes the data of a response: `bytes` belong to position `at`.
fn take_data(qp: &mut Qp, tables: &mut Tables<'_>, operation: Op, at: u64, bytes: &[u8], now: Instant) {
    let message = qp.roce.as_ref().and_then(|roce| roce.requester.message_at(at)).copied();
    let Some(message) = message else { return };
    let is_selective = qp.roce.as_ref().is_some_and(|roce| roce.requester.recovery == Recovery::Selective);
    if !(is_selective && message.has_response) {
        // Everything before the message has arrived, too.
        acknowledge(qp, message.first, now, tables.outputs);
    }
    let owner = qp.owner();
    let Some(roce) = &mut qp.roce else { return };
    let (traits, requester) = (&roce.traits, &mut roce.requester);
    if is_selective && message.has_response {
        // The message itself has been executed.
        requester.scoreboard.on_executed(message.end, now);
        if !requester.scoreboard.is_missing(at) {
            tables.outputs.counters.packets_duplicate += 1;
            return settle(qp, now, tables.outputs);
        }
    } else if requester.acked != at {
        let missing = requester.acked;
        return go_back(qp, missing, tables.outputs);
    }
    let Some(work) = qp.sq.get(message.wqe).map(|wqe| &wqe.work) else { return };
    let is_atomic = matches!(work.operation, Operation::Atomic { .. });
    let (before, rest) = message.bytes_at(at, traits.path_mtu);
    let expected = rest.min(traits.path_mtu as u32) as usize;
    let fits = message.has_response
        && is_atomic == (operation == Op::AtomicAcknowledge)
        && bytes.len() == expected
        // The response to a part of a read ends where the part ends.
        && (is_selective || operation.is_last() == (at + 1 == message.end));
    let Data::Elements(sges) = &work.data else { return };
    if !fits {
        tables.outputs.counters.packets_malformed += 1;
        return;
    }
    let mut cursor = cursor_at(requester.response_cursor, at, sges, before);
    if dmac::scatter(tables.smt, owner, sges, &mut cursor, SharedBytes::from(bytes)).is_err() {
        return fail(qp, message.wqe, Status::LocalProtection, tables.outputs);
    }
    requester.response_cursor = (at + 1, cursor);
    tables.outputs.counters.placed_bytes += bytes.len() as u64;
    if is_selective {
        requester.scoreboard.on_arrived(at, now);
        settle(qp, now, tables.outputs);
    } else {
        advance(qp, at + 1, now, tables.outputs);
    }
}

/// Handles the expiry of a timer.
pub(in super::super::super) fn on_timer(qp: &mut Qp, now: Instant, outputs: &mut Outputs) {
    let Some(roce) = &mut qp.roce else { return };
    let Requester { held_until, ack_timer, .. } = &mut roce.requester;
    if held_until.is_some_and(|until| until <= now) {
        *held_until = None;
        qp.schedule(outputs);
        return;
    }
    if !ack_timer.is_some_and(|expires| expires <= now) {
        return;
    }
    *ack_timer = None;
    outputs.counters.ack_timeouts += 1;
    let (limit, requester) = (roce.sending.retries, &mut roce.requester);
    if requester.retries >= limit {
        let at = requester.acked;
        return fail_at(qp, at, Status::Lost, outputs);
    }
    requester.retries += 1;
    requester.went_back_to = None;
    let at = requester.acked;
    go_back(qp, at, outputs);
}
