//! Datagrams: sends the oldest posted datagram, and handles received ones.
//!
//! Transmit path  header and payload are copied together, which completes the work request. An invalid
//!                request stops only the send queue: InfiniBand's SQE state, defined for unreliable services
//!                (ibv_modify_qp(3)).
//! Receive path   errors are not answered. A datagram is dropped and counted if no queue pair or Q_Key
//!                matches, if no receive is posted, or if the receive is too short; the receive stays
//!                posted. This is class D of InfiniBand's responder errors. Linux's rdma_rxe behaves the
//!                same way when the receive is too short (`RESPST_ERR_LENGTH` in rxe_resp.c). For a shared
//!                receive queue, rdma_rxe completes the receive with an error (class E); here it stays
//!                posted as well.
//! GRH            40 bytes before the payload are reserved for a global routing header, which the caller
//!                supplies.

use super::super::control::completion;
use super::super::control::qp::Qp;
use super::super::control::state::QpState;
use super::super::host::dmac::{self, Cursor};
use super::super::host::smt::{AccessKind, StagTable};
use super::super::outbox::Outputs;
use super::super::work::{Completion, Data, Kind, Operation, SendWork, Status};
use super::receive::Tables;
use crate::wire::datagram::{HEADER_BYTES, Header, PAYLOAD_BYTES_MAX, QP_MAX};
use alloc::vec::Vec;
use kiban_base::SharedBytes;

/// Number of bytes that precede the payload in a receive.
pub const GRH_BYTES: usize = 40;
/// A Q_Key with this bit set selects the queue pair's own Q_Key (IBTA 1.4 §10.2.5). A Q_Key with this bit is
/// privileged: programs cannot choose it.
const PRIVILEGED: u32 = 1 << 31;

/// Writes the oldest posted datagram of a queue pair into `room`, and returns its destination and its header.
pub(in super::super) fn gather(
    qp: &mut Qp,
    smt: &StagTable,
    outputs: &mut Outputs,
    room: &mut Vec<u8>,
) -> Option<([u8; 16], Header)> {
    qp.datagram.filter(|state| state.goes() && qp.state == QpState::Idle)?;
    let (number, wqe) = qp.sq.front()?;
    match fill(qp, &wqe.work, smt, room) {
        Ok(to) => {
            outputs.counters.datagrams_out += 1;
            outputs.counters.payload_out_bytes += (room.len() - HEADER_BYTES) as u64;
            qp.sq.done(number, Status::Success);
            qp.complete_finished(outputs);
            Some(to)
        }
        Err(status) => {
            outputs.counters.local_errors += 1;
            qp.sq.done(number, status);
            qp.complete_finished(outputs);
            qp.flush_sends(outputs);
            if let Some(state) = &mut qp.datagram {
                state.stopped = true;
            }
            None
        }
    }
}

fn fill(qp: &Qp, work: &SendWork, smt: &StagTable, room: &mut Vec<u8>) -> Result<([u8; 16], Header), Status> {
    let Operation::Datagram { gid, qp: destination, qkey, immediate } = work.operation else {
        return Err(Status::LocalOperation);
    };
    let length = usize::try_from(work.data.length()).unwrap_or(usize::MAX);
    if length > PAYLOAD_BYTES_MAX {
        return Err(Status::LocalLength);
    }
    let owner = qp.owner();
    dmac::check_all(smt, owner, &work.data, AccessKind::LocalRead).map_err(|_| Status::LocalProtection)?;
    let own = qp.datagram.map_or(0, |state| state.qkey);
    let qkey = if qkey & PRIVILEGED != 0 { own } else { qkey };
    let header = Header { destination, source: qp.qpn & QP_MAX, qkey, solicited: work.solicited, immediate };
    room.clear();
    room.resize(HEADER_BYTES, 0);
    header.write(room);
    match &work.data {
        Data::Inline(bytes) => room.extend_from_slice(bytes),
        Data::Elements(sges) => {
            let mut cursor = Cursor::default();
            dmac::copy(smt, owner, sges, &mut cursor, length, room).map_err(|_| Status::LocalProtection)?;
        }
    }
    Ok((gid, header))
}

/// Takes a datagram that arrived for a queue pair.
pub(in super::super) fn take(
    qp: &mut Qp,
    tables: &mut Tables<'_>,
    grh: &[u8; GRH_BYTES],
    header: &Header,
    payload: &[u8],
) {
    let counters = &mut tables.outputs.counters;
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
    let total_bytes = u32::try_from(bytes).ok().filter(|_| bytes as u64 <= room);
    let Some(total_bytes) = total_bytes else {
        counters.datagrams_too_long += 1;
        return;
    };
    let Some(work) = qp.take_receive(tables.srqs, tables.outputs) else { return };
    let (owner, mut cursor) = (qp.owner(), Cursor::default());
    let put = [&grh[..], payload].into_iter().try_for_each(|part| {
        dmac::scatter(tables.smt, owner, &work.sges, &mut cursor, SharedBytes::from(part)).map(drop)
    });
    let outputs = &mut *tables.outputs;
    if put.is_err() {
        // The receive refers to memory that it may not access. This is a local error, which fails the queue
        // pair.
        let done = completion::of_receive(qp.qpn, work.id, Status::LocalProtection, Kind::Receive, 0);
        outputs.complete(qp.attributes.receive_cq, done, true);
        outputs.counters.local_errors += 1;
        qp.fail_datagrams(outputs);
        return;
    }
    outputs.counters.datagrams_in += 1;
    outputs.counters.placed_bytes += bytes as u64;
    let done = completion::of_receive(qp.qpn, work.id, Status::Success, Kind::Receive, total_bytes);
    let (immediate, source) = (header.immediate.map(u64::from), Some(header.source));
    outputs.complete(qp.attributes.receive_cq, Completion { immediate, source, ..done }, header.solicited);
}
