//! The queue pair of an identifier (rdma_create_qp(3), rdma_create_srq(3), rdma_init_qp_attr(3)).
//!
//! Purpose         if the program supplies no protection domain or CQs, the queue pair uses those of the
//!                 identifier, as `rdma_verbs.h` requires.
//! State           receives can be posted as soon as the queue pair is created; the engine changes its state
//!                 when the connection is established.
//! Own queue pairs a program that modifies its queue pair itself calls `rdma_init_qp_attr` for the
//!                 attributes. These contain [`MANAGED`] as the destination QPN, from which `ibv_modify_qp`
//!                 recognises that the connection manager establishes the connection.
//! XRC             a target has the XRC domain of its device if the program supplies none, and so has its
//!                 shared receive queue, which the program creates with `rdma_create_srq`.

use super::below::*;
use super::id::{Id, Phase, with};
use super::{address, below, device};
use crate::abi::*;
use crate::device::query::active_mtu_of;
use crate::ffi::{catch_panics, errno};
use core::ffi::c_int;
use core::ptr::null_mut;
use std::sync::Arc;

/// A destination QPN that no queue pair has. It means that the connection manager establishes the connection.
pub(crate) const MANAGED: u32 = 0;

/// A completion queue and its channel.
type Made = (*mut ibv_comp_channel, *mut ibv_cq);

fn make_cq(id: *mut rdma_cm_id, entries: u32) -> Result<Made, c_int> {
    let entries = c_int::try_from(entries).map_err(|_| libc::EINVAL)?;
    // SAFETY: the identifier has a device, whose context is never closed, and the channel is new.
    unsafe {
        let channel = ibv_create_comp_channel((*id).verbs);
        if channel.is_null() {
            return Err(errno());
        }
        let cq = ibv_create_cq((*id).verbs, entries, id.cast(), channel, 0);
        if cq.is_null() {
            let error = errno();
            ibv_destroy_comp_channel(channel);
            return Err(error);
        }
        Ok((channel, cq))
    }
}

/// Creates the completion queues that the program did not supply.
fn make_cqs(id: *mut rdma_cm_id, send: Option<u32>, receive: Option<u32>) -> Result<(), c_int> {
    // SAFETY: the struct lives as long as the identifier.
    unsafe {
        if let Some(entries) = send.filter(|entries| *entries > 0) {
            ((*id).send_cq_channel, (*id).send_cq) = make_cq(id, entries)?;
        }
        if let Some(entries) = receive.filter(|entries| *entries > 0) {
            match make_cq(id, entries) {
                Ok(made) => ((*id).recv_cq_channel, (*id).recv_cq) = made,
                Err(error) => {
                    destroy_cqs(id);
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// Destroys the CQs that [`make_cqs`] created.
fn destroy_cqs(id: *mut rdma_cm_id) {
    // SAFETY: the struct lives as long as the identifier, and its CQs were set by [`make_cqs`].
    unsafe {
        let id = &mut *id;
        for (channel, cq) in
            [(&mut id.send_cq_channel, &mut id.send_cq), (&mut id.recv_cq_channel, &mut id.recv_cq)]
        {
            if !cq.is_null() {
                ibv_destroy_cq(*cq);
                *cq = null_mut();
            }
            if !channel.is_null() {
                ibv_destroy_comp_channel(*channel);
                *channel = null_mut();
            }
        }
    }
}

/// Destroys the CQs that [`make_cqs`] created, if neither a queue pair nor an XRC shared receive queue uses
/// them.
fn destroy_unused_cqs(id: *mut rdma_cm_id) {
    // SAFETY: the struct lives as long as the identifier.
    let is_used = unsafe { !(*id).qp.is_null() || is_target(id) && !(*id).srq.is_null() };
    if !is_used {
        destroy_cqs(id);
    }
}

/// Returns whether the queue pair of an identifier is the target of extended reliable connections.
///
/// # Safety
/// `id` is the struct of a live identifier.
unsafe fn is_target(id: *const rdma_cm_id) -> bool {
    // SAFETY: the caller of `is_target` guarantees it.
    unsafe { (*id).qp_type == IBV_QPT_XRC_RECV }
}

/// Creates a queue pair and writes its protection domain into the attributes.
fn create(id: &Arc<Id>, attributes: &mut ibv_qp_init_attr_ex) -> Result<(), c_int> {
    let place = id.abi();
    // SAFETY: the struct lives as long as the identifier; the program passes pointers to live objects
    // created by this library.
    unsafe {
        if !(*place).qp.is_null() || (*place).verbs.is_null() {
            return Err(libc::EINVAL);
        }
        if attributes.comp_mask & IBV_QP_INIT_ATTR_PD == 0 || attributes.pd.is_null() {
            attributes.comp_mask |= IBV_QP_INIT_ATTR_PD;
            attributes.pd = (*place).pd;
        }
        if attributes.pd.is_null() || (*attributes.pd).context != (*place).verbs {
            return Err(libc::EINVAL);
        }
        let is_target = is_target(place);
        if is_target != (attributes.qp_type == IBV_QPT_XRC_RECV) {
            return Err(libc::EINVAL);
        }
        if is_target && (attributes.comp_mask & IBV_QP_INIT_ATTR_XRCD == 0 || attributes.xrcd.is_null()) {
            attributes.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
            attributes.xrcd = device::xrc_domain((*place).verbs)?;
        }
        if attributes.srq.is_null() {
            attributes.srq = (*place).srq;
        }
        let cap = attributes.cap;
        make_cqs(
            place,
            (attributes.send_cq.is_null() && !is_target).then_some(cap.max_send_wr),
            (attributes.recv_cq.is_null() && (*place).recv_cq.is_null()).then_some(cap.max_recv_wr),
        )?;
        if attributes.send_cq.is_null() {
            attributes.send_cq = (*place).send_cq;
        }
        if attributes.recv_cq.is_null() {
            attributes.recv_cq = (*place).recv_cq;
        }
        // A queue without work requests has no completions, so any CQ will do.
        if attributes.send_cq.is_null() {
            attributes.send_cq = attributes.recv_cq;
        }
        if attributes.recv_cq.is_null() {
            attributes.recv_cq = attributes.send_cq;
        }
        let qp = make(place, attributes);
        if qp.is_null() {
            let error = errno();
            destroy_cqs(place);
            return Err(error);
        }
        if let Err(error) = make_ready(qp) {
            ibv_destroy_qp(qp);
            destroy_cqs(place);
            return Err(error);
        }
        (*place).pd = attributes.pd;
        (*place).qp = qp;
    }
    Ok(())
}

/// # Safety
/// `id` has a device, and the attributes refer to objects created by this library.
unsafe fn make(id: *mut rdma_cm_id, attributes: &mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
    // SAFETY: the caller of `make` guarantees a device and objects created by this library;
    // `ibv_qp_init_attr_ex` starts with the fields of `ibv_qp_init_attr`.
    unsafe {
        match table((*id).verbs).create_qp_ex {
            Some(create) if attributes.comp_mask != IBV_QP_INIT_ATTR_PD => create((*id).verbs, attributes),
            _ => ibv_create_qp(attributes.pd, core::ptr::from_mut(attributes).cast()),
        }
    }
}

/// Moves a new queue pair to INIT, so that receives may be posted, or to RTS if it is for datagrams.
///
/// # Safety
/// `qp` is a new queue pair created by this library.
unsafe fn make_ready(qp: *mut ibv_qp) -> Result<(), c_int> {
    let mut attributes = ibv_qp_attr {
        qp_state: IBV_QPS_INIT,
        port_num: 1,
        qkey: RDMA_UDP_QKEY,
        qp_access_flags: ALL_ACCESS,
        ..ibv_qp_attr::ZERO
    };
    // SAFETY: the caller of `make_ready` guarantees that `qp` is a live queue pair created by this library.
    let is_datagrams = unsafe { (*qp).qp_type } == IBV_QPT_UD;
    let mask = IBV_QP_STATE
        | IBV_QP_PKEY_INDEX
        | IBV_QP_PORT
        | if is_datagrams { IBV_QP_QKEY } else { IBV_QP_ACCESS_FLAGS };
    modify(qp, &mut attributes, mask)?;
    if is_datagrams {
        attributes.qp_state = IBV_QPS_RTR;
        modify(qp, &mut attributes, IBV_QP_STATE)?;
        attributes.qp_state = IBV_QPS_RTS;
        modify(qp, &mut attributes, IBV_QP_STATE | IBV_QP_SQ_PSN)?;
    }
    Ok(())
}

/// The access rights that peers get through a queue pair. Each memory region's own rights limit their access
/// further.
const ALL_ACCESS: u32 =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

fn modify(qp: *mut ibv_qp, attributes: &mut ibv_qp_attr, mask: u32) -> Result<(), c_int> {
    // SAFETY: `qp` is a live queue pair created by this library: a new one, or the identifier's.
    match unsafe { ibv_modify_qp(qp, attributes, mask.cast_signed()) } {
        0 => Ok(()),
        -1 => Err(errno()),
        error => Err(error),
    }
}

/// Implements `rdma_create_qp`.
pub(super) fn create_qp(
    id: &Arc<Id>,
    pd: *mut ibv_pd,
    attributes: &mut ibv_qp_init_attr,
) -> Result<(), c_int> {
    let mut all = ibv_qp_init_attr_ex {
        qp_context: attributes.qp_context,
        send_cq: attributes.send_cq,
        recv_cq: attributes.recv_cq,
        srq: attributes.srq,
        cap: attributes.cap,
        qp_type: attributes.qp_type,
        sq_sig_all: attributes.sq_sig_all,
        comp_mask: if pd.is_null() { 0 } else { IBV_QP_INIT_ATTR_PD },
        pd,
        ..ibv_qp_init_attr_ex::ZERO
    };
    let outcome = create(id, &mut all);
    *attributes = ibv_qp_init_attr {
        qp_context: all.qp_context,
        send_cq: all.send_cq,
        recv_cq: all.recv_cq,
        srq: all.srq,
        cap: all.cap,
        qp_type: all.qp_type,
        sq_sig_all: all.sq_sig_all,
    };
    outcome
}

/// # Safety
/// `id` is a live identifier, `pd` is null or a protection domain, and `attributes` is null or refers to
/// objects created by this library.
#[unsafe(export_name = "kiban_rdma_create_qp")]
pub(super) unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attributes: *mut ibv_qp_init_attr,
) -> c_int {
    with(id, |id| {
        // SAFETY: the caller of `rdma_create_qp` guarantees that `attributes` is null or valid for reads and
        // writes.
        let attributes = unsafe { attributes.as_mut() }.ok_or(libc::EINVAL)?;
        create_qp(id, pd, attributes).map(|()| 0)
    })
}

/// # Safety
/// `id` is a live identifier, and `attributes` is null or refers to objects created by this library.
#[unsafe(export_name = "kiban_rdma_create_qp_ex")]
pub(super) unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    attributes: *mut ibv_qp_init_attr_ex,
) -> c_int {
    with(id, |id| {
        // SAFETY: the caller of `rdma_create_qp_ex` guarantees that `attributes` is null or valid for reads
        // and writes.
        create(id, unsafe { attributes.as_mut() }.ok_or(libc::EINVAL)?).map(|()| 0)
    })
}

/// # Safety
/// `id` is an identifier created by this library.
#[unsafe(export_name = "kiban_rdma_destroy_qp")]
pub(super) unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    catch_panics((), || {
        let Ok(id) = super::id::find(id) else { return };
        let place = id.abi();
        id.detach_all();
        // SAFETY: the struct lives as long as the identifier; its queue pair was made here.
        unsafe {
            if !(*place).qp.is_null() {
                ibv_destroy_qp((*place).qp);
                (*place).qp = null_mut();
            }
        }
        destroy_unused_cqs(place);
    });
}

/// # Safety
/// `id` is a live identifier, `pd` is null or a protection domain created by this library, and `attributes`
/// is null or valid.
#[unsafe(export_name = "kiban_rdma_create_srq")]
pub(super) unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attributes: *mut ibv_srq_init_attr,
) -> c_int {
    with(id, |id| {
        // SAFETY: the caller of `rdma_create_srq` guarantees that `attributes` is null or valid for reads and
        // writes.
        let attributes = unsafe { attributes.as_mut() }.ok_or(libc::EINVAL)?;
        let mut all = ibv_srq_init_attr_ex {
            srq_context: attributes.srq_context,
            attr: attributes.attr,
            comp_mask: IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
            // SAFETY: the struct lives as long as the identifier.
            srq_type: if unsafe { is_target(id.abi()) } { IBV_SRQT_XRC } else { IBV_SRQT_BASIC },
            pd,
            ..ibv_srq_init_attr_ex::ZERO
        };
        let outcome = create_srq(id, &mut all);
        attributes.attr = all.attr;
        outcome
    })
}

/// Creates a shared receive queue, with the identifier's objects for those that the attributes do not name.
fn create_srq(id: &Arc<Id>, attributes: &mut ibv_srq_init_attr_ex) -> Result<c_int, c_int> {
    let place = id.abi();
    // SAFETY: the struct lives as long as the identifier; the program passes live objects created by this
    // library.
    unsafe {
        let given = |field| attributes.comp_mask & field != 0;
        if !given(IBV_SRQ_INIT_ATTR_TYPE) || (*place).verbs.is_null() {
            return Err(libc::EINVAL);
        }
        if !given(IBV_SRQ_INIT_ATTR_PD) || attributes.pd.is_null() {
            attributes.pd = (*place).pd;
        }
        if attributes.pd.is_null() || (*attributes.pd).context != (*place).verbs {
            return Err(libc::EINVAL);
        }
        if attributes.srq_type == IBV_SRQT_XRC {
            if !given(IBV_SRQ_INIT_ATTR_XRCD) || attributes.xrcd.is_null() {
                attributes.xrcd = device::xrc_domain((*place).verbs)?;
            }
            if !given(IBV_SRQ_INIT_ATTR_CQ) || attributes.cq.is_null() {
                attributes.cq = receive_cq(place, attributes.attr.max_wr)?;
            }
            attributes.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
        }
        attributes.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        let create = table((*place).verbs).create_srq_ex.ok_or(libc::EOPNOTSUPP)?;
        let srq = create((*place).verbs, attributes);
        if srq.is_null() {
            let error = errno();
            destroy_unused_cqs(place);
            return Err(error);
        }
        (*place).pd = attributes.pd;
        (*place).srq = srq;
    }
    Ok(0)
}

/// Returns the completion queue for receives, with room for so many.
///
/// # Safety
/// `id` is the struct of a live identifier with a device.
unsafe fn receive_cq(id: *mut rdma_cm_id, entries: u32) -> Result<*mut ibv_cq, c_int> {
    // SAFETY: the caller of `receive_cq` guarantees it; the completion queue was made by `make_cqs`.
    unsafe {
        let entries_max = c_int::try_from(entries).map_err(|_| libc::EINVAL)?;
        if (*id).recv_cq.is_null() {
            make_cqs(id, None, Some(entries))?;
        } else if (*(*id).recv_cq).cqe < entries_max {
            match ibv_resize_cq((*id).recv_cq, entries_max) {
                0 => {}
                error => return Err(error),
            }
        }
        Ok((*id).recv_cq)
    }
}

/// # Safety
/// `id` is a live identifier, and `attributes` is null or refers to objects created by this library.
#[unsafe(export_name = "kiban_rdma_create_srq_ex")]
pub(super) unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attributes: *mut ibv_srq_init_attr_ex,
) -> c_int {
    with(id, |id| {
        // SAFETY: the caller of `rdma_create_srq_ex` guarantees that `attributes` is null or valid for reads
        // and writes.
        create_srq(id, unsafe { attributes.as_mut() }.ok_or(libc::EINVAL)?)
    })
}

/// # Safety
/// `id` is an identifier created by this library.
#[unsafe(export_name = "kiban_rdma_destroy_srq")]
pub(super) unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    catch_panics((), || {
        let Ok(id) = super::id::find(id) else { return };
        let place = id.abi();
        // SAFETY: the struct lives as long as the identifier; its queue was made here.
        unsafe {
            if !(*place).srq.is_null() {
                ibv_destroy_srq((*place).srq);
                (*place).srq = null_mut();
            }
        }
        destroy_unused_cqs(place);
    });
}

/// Handles a connection that failed: posted work is flushed.
pub(super) fn on_failed(id: &Arc<Id>) {
    // SAFETY: the struct lives as long as the identifier.
    let qp = unsafe { (*id.abi()).qp };
    if !qp.is_null() {
        let mut attributes = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::ZERO };
        // This fails if the queue pair is being destroyed, which also flushes it.
        let _ = modify(qp, &mut attributes, IBV_QP_STATE);
    }
}

/// Handles an established connection: updates the queue pair's state.
pub(super) fn on_established(id: &Arc<Id>) {
    // SAFETY: the struct lives as long as the identifier, and its queue pair with it.
    unsafe {
        let qp = (*id.abi()).qp;
        if !qp.is_null() && (*qp).state < IBV_QPS_RTS {
            (*qp).state = IBV_QPS_RTS;
        }
    }
}

/// # Safety
/// `id` is a live identifier; `attributes` and `mask` are null or valid for reads and writes.
#[unsafe(export_name = "kiban_rdma_init_qp_attr")]
pub(super) unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    attributes: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    with(id, |id| {
        // SAFETY: the caller of `rdma_init_qp_attr` guarantees that `attributes` and `mask` are null or valid
        // for reads and writes.
        let (attributes, mask) = match unsafe { (attributes.as_mut(), mask.as_mut()) } {
            (Some(attributes), Some(mask)) => (attributes, mask),
            _ => return Err(libc::EINVAL),
        };
        let (phase, peer, depths, device, ack_timeout) = {
            let state = id.state();
            (state.phase, state.peer, state.depths, state.device, state.ack_timeout)
        };
        // SAFETY: the struct lives as long as the identifier.
        let (verbs, ps, qp_type) = unsafe { ((*id.abi()).verbs, (*id.abi()).ps, (*id.abi()).qp_type) };
        if verbs.is_null() || phase == Phase::Idle {
            return Err(libc::EINVAL);
        }
        let state = attributes.qp_state;
        *attributes = ibv_qp_attr { qp_state: state, ..ibv_qp_attr::ZERO };
        let depth = |depth: u16| u8::try_from(depth).unwrap_or(u8::MAX);
        let filled = match state {
            IBV_QPS_INIT if ps == RDMA_PS_UDP => {
                attributes.port_num = 1;
                attributes.qkey = RDMA_UDP_QKEY;
                IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY
            }
            IBV_QPS_RTR if ps == RDMA_PS_UDP => IBV_QP_STATE,
            IBV_QPS_RTS if ps == RDMA_PS_UDP => IBV_QP_STATE | IBV_QP_SQ_PSN,
            IBV_QPS_INIT => {
                attributes.port_num = 1;
                attributes.qp_access_flags = ALL_ACCESS;
                IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS
            }
            // On iWARP, the kernel sets only these two attributes.
            IBV_QPS_RTR if !below::is_ib() => {
                attributes.qp_access_flags = ALL_ACCESS;
                IBV_QP_STATE | IBV_QP_ACCESS_FLAGS
            }
            IBV_QPS_RTS if !below::is_ib() => 0,
            IBV_QPS_RTR => {
                attributes.ah_attr = address::route(address::gid(peer.ok_or(libc::EINVAL)?.ip()));
                attributes.path_mtu = active_mtu_of(device.ok_or(libc::EINVAL)?);
                attributes.dest_qp_num = MANAGED;
                attributes.max_dest_rd_atomic = depth(depths.0);
                let responder = match qp_type {
                    IBV_QPT_RC | IBV_QPT_XRC_RECV => IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                    _ => 0,
                };
                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | responder
            }
            IBV_QPS_RTS => {
                attributes.timeout = ack_timeout;
                attributes.retry_cnt = 7;
                attributes.rnr_retry = 7;
                attributes.max_rd_atomic = depth(depths.1);
                let retries = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
                let requester = match qp_type {
                    IBV_QPT_RC | IBV_QPT_XRC_SEND => IBV_QP_TIMEOUT | retries,
                    IBV_QPT_XRC_RECV => IBV_QP_TIMEOUT,
                    _ => 0,
                };
                IBV_QP_STATE | IBV_QP_SQ_PSN | requester
            }
            _ => return Err(libc::EINVAL),
        };
        *mask = filled.cast_signed();
        Ok(0)
    })
}

/// The offset of `comp_mask`, at which a program's shorter struct ends.
const _: () = assert!(
    core::mem::offset_of!(ibv_qp_init_attr_ex, comp_mask)
        == core::mem::offset_of!(ibv_qp_init_attr, sq_sig_all) + 4
);
