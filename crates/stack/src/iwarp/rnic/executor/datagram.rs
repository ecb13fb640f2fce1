//! Datagrams: the oldest that is posted becomes bytes, and one that comes finds its receive.
//!
//! Out       header and payload are copied together; the work is done with that. What is wrong with it stops the send queue
//!           alone: InfiniBand's state SQE, which is for services that are not reliable (ibv_modify_qp(3)).
//! In        no answer, whatever is wrong: a datagram that finds no queue pair, key, receive or room is dropped and counted,
//!           and the receive stays. That is InfiniBand's class D of a responder's errors, and what rdma_rxe of Linux does
//!           (`RESPST_ERR_LENGTH` in rxe_resp.c) when the receive is too short; one of a shared receive queue it would end
//!           with an error (class E), where here that stays as well.
//! Front     40 bytes before the payload are for a global routing header, which the caller makes.

use super::super::Desk;
use super::super::control::completion;
use super::super::control::qp::{Qp, QpState};
use super::super::host::dmac::{self, Cursor, PIECES_MAX, Payload, Piece};
use super::super::host::smt::{StagTable, Use};
use super::super::work::{Completion, Data, Kind, Operation, SendWork, Status};
use super::receive::Tables;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use kiban_ground::SharedBytes;
use kiban_wire::datagram::{HEADER_BYTES, Header, PAYLOAD_BYTES_MAX, QP_MAX};

/// Bytes before the payload in a receive.
pub const GRH_BYTES: usize = 40;
/// A key with this bit means the queue pair's own (IBTA 1.4 §10.2.5): it is privileged, and not any program's to choose.
const PRIVILEGED: u32 = 1 << 31;

/// The oldest datagram that a queue pair has posted, now in `room`: to whom.
pub(in super::super) fn gather(
    qp: &mut Qp,
    smt: &StagTable,
    desk: &mut Desk,
    room: &mut Vec<u8>,
) -> Option<[u8; 16]> {
    qp.datagram.filter(|state| state.goes() && qp.state == QpState::Idle)?;
    let (number, wqe) = qp.sq.front()?;
    match fill(qp, &wqe.work, smt, room) {
        Ok(gid) => {
            desk.counters.datagrams_out += 1;
            desk.counters.payload_out_bytes += (room.len() - HEADER_BYTES) as u64;
            qp.sq.done(number, Status::Success);
            qp.sweep(desk);
            Some(gid)
        }
        Err(status) => {
            desk.counters.local_errors += 1;
            qp.sq.done(number, status);
            qp.sweep(desk);
            qp.flush_sends(desk);
            if let Some(state) = &mut qp.datagram {
                state.stopped = true;
            }
            None
        }
    }
}

fn fill(qp: &Qp, work: &SendWork, smt: &StagTable, room: &mut Vec<u8>) -> Result<[u8; 16], Status> {
    let Operation::Datagram { gid, qp: destination, qkey, immediate } = work.operation else {
        return Err(Status::LocalOperation);
    };
    let length = usize::try_from(work.data.length()).unwrap_or(usize::MAX);
    if length > PAYLOAD_BYTES_MAX {
        return Err(Status::LocalLength);
    }
    let owner = qp.owner();
    dmac::check_all(smt, owner, &work.data, Use::LocalRead).map_err(|_| Status::LocalProtection)?;
    let own = qp.datagram.map_or(0, |state| state.qkey);
    let qkey = if qkey & PRIVILEGED != 0 { own } else { qkey };
    let header = Header { destination, source: qp.name & QP_MAX, qkey, solicited: work.solicited, immediate };
    room.clear();
    room.resize(HEADER_BYTES, 0);
    header.write(room);
    match &work.data {
        Data::Inline(bytes) => room.extend_from_slice(bytes),
        Data::Elements(sges) => {
            let mut cursor = Cursor::default();
            while room.len() < HEADER_BYTES + length {
                let mut pieces: ArrayVec<Piece<'_>, PIECES_MAX> = ArrayVec::new();
                let missing = HEADER_BYTES + length - room.len();
                match dmac::gather(smt, owner, sges, &mut cursor, missing, false, &mut pieces) {
                    Ok(1..) => Payload::Pieces(&pieces).append_to(room),
                    _ => return Err(Status::LocalProtection),
                }
            }
        }
    }
    Ok(gid)
}

/// A datagram comes for a queue pair.
pub(in super::super) fn take(
    qp: &mut Qp,
    tables: &mut Tables<'_>,
    grh: &[u8; GRH_BYTES],
    header: &Header,
    payload: &[u8],
) {
    let counters = &mut tables.desk.counters;
    let Some(state) = qp.datagram.filter(|state| state.receives && qp.state == QpState::Idle) else {
        counters.datagrams_unready += 1;
        return;
    };
    if header.qkey != state.qkey {
        counters.bad_qkey += 1;
        return;
    }
    let bytes = GRH_BYTES + payload.len();
    let Some(room) = qp.next_room(tables.srqs) else {
        counters.datagrams_without_receive += 1;
        return;
    };
    let told_bytes = u32::try_from(bytes).ok().filter(|_| bytes as u64 <= room);
    let Some(told_bytes) = told_bytes else {
        counters.datagrams_too_long += 1;
        return;
    };
    let Some(work) = qp.take_receive(tables.srqs, tables.desk) else { return };
    let (owner, mut cursor) = (qp.owner(), Cursor::default());
    let put = [&grh[..], payload].into_iter().try_for_each(|part| {
        dmac::scatter(tables.smt, owner, &work.sges, &mut cursor, SharedBytes::from(part)).map(drop)
    });
    let desk = &mut *tables.desk;
    if put.is_err() {
        // The receive names memory that it may not: an error of ours, and the queue pair's end.
        let told = completion::of_receive(qp.name, work.id, Status::LocalProtection, Kind::Receive, 0);
        desk.complete(qp.attributes.receive_cq, told, true);
        desk.counters.local_errors += 1;
        qp.fail_datagrams(desk);
        return;
    }
    desk.counters.datagrams_in += 1;
    desk.counters.placed_bytes += bytes as u64;
    let told = completion::of_receive(qp.name, work.id, Status::Success, Kind::Receive, told_bytes);
    let (immediate, source) = (header.immediate.map(u64::from), Some(header.source));
    desk.complete(qp.attributes.receive_cq, Completion { immediate, source, ..told }, header.solicited);
}
