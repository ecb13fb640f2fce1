//! Multicast groups (rdma_join_multicast(3), rdma_leave_multicast(3)).
//!
//! Purpose         maps an IP multicast address to a GID, and attaches the identifier's queue pair to it. As
//!                 for RoCE in the kernel (`cma_iboe_join_multicast` in cma.c), no manager is asked: the GID
//!                 is the address, the Q_Key is RDMA-CM's, and the queue pair number is that of all groups.
//! Events          the outcome is known when the call returns; an event also reports it, as with the kernel.
//! Leaving         an identifier that is destroyed, or whose queue pair is destroyed by `rdma_destroy_qp`,
//!                 leaves its groups.
//! Not implemented addresses of family `AF_IB`.

use super::address;
use super::below::ibv_attach_mcast;
use super::channel::{ConnParam, DatagramParam, QueuedEvent, complete};
use super::id::{Id, Joined, Phase, with};
use crate::abi::*;
use crate::device::{Transport, transport};
use crate::log::unsupported;
use core::ffi::{c_int, c_void};
use libc::sockaddr;
use std::net::SocketAddr;
use std::sync::Arc;

/// The queue pair number of all groups (IBTA volume 1 §10.5).
const MULTICAST_QPN: u32 = 0xff_ffff;

/// Joins a group. With `sends_only`, the queue pair is not attached.
fn join(id: &Arc<Id>, at: SocketAddr, sends_only: bool, context: *mut c_void) -> Result<c_int, c_int> {
    let place = id.abi();
    // SAFETY: the struct lives as long as the identifier.
    let (qp, kind, ps) = unsafe { ((*place).qp, (*place).qp_type, (*place).ps) };
    if transport() != Transport::Roce {
        return Err(unsupported("rdma_join_multicast: groups with this transport"));
    }
    let group = at.ip().to_canonical();
    {
        let state = id.state();
        let is_bound = matches!(state.phase, Phase::Bound | Phase::Address | Phase::Route | Phase::Connected);
        let is_same_family = state.device.is_some_and(|device| device.is_ipv4() == group.is_ipv4());
        let is_allowed = ps == RDMA_PS_UDP && kind == IBV_QPT_UD && is_bound && is_same_family;
        if !is_allowed || !group.is_multicast() {
            return Err(libc::EINVAL);
        }
        if state.joined.iter().any(|joined| joined.group == group) {
            return Err(libc::EADDRINUSE);
        }
    }
    let gid = address::gid(group);
    let is_attached = !qp.is_null() && !sends_only;
    let error = if is_attached {
        // SAFETY: the identifier's queue pair was made by `rdma_create_qp`, and `gid` is a local variable.
        unsafe { ibv_attach_mcast(qp, &gid, 0) }
    } else {
        0
    };
    let mut state = id.state();
    if error == 0 {
        state.joined.push(Joined { group, is_attached });
    }
    let datagrams = Some(DatagramParam { gid, qpn: MULTICAST_QPN, qkey: RDMA_UDP_QKEY, context });
    state.channel.tell(QueuedEvent {
        id: id.clone(),
        listener: None,
        event: if error == 0 { RDMA_CM_EVENT_MULTICAST_JOIN } else { RDMA_CM_EVENT_MULTICAST_ERROR },
        status: -error,
        says: Some(ConnParam { datagrams, ..ConnParam::default() }),
    });
    drop(state);
    Ok(complete(id))
}

/// # Safety
/// `id` is a live identifier, and `at` is null or a socket address of the length that its family requires.
#[unsafe(export_name = "kiban_rdma_join_multicast")]
pub(super) unsafe extern "C" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    at: *mut sockaddr,
    context: *mut c_void,
) -> c_int {
    with(id, |id| {
        // SAFETY: the caller of `rdma_join_multicast` guarantees that `at` is null or an address of the
        // length that its family requires.
        let at = unsafe { address::read(at)? };
        join(id, at, false, context)
    })
}

/// # Safety
/// `id` is a live identifier; `attributes` is null or valid for reads, and so is the address in it.
#[unsafe(export_name = "kiban_rdma_join_multicast_ex")]
pub(super) unsafe extern "C" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    attributes: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    with(id, |id| {
        // SAFETY: the caller of `rdma_join_multicast_ex` guarantees that `attributes` is null or valid for
        // reads.
        let attributes = unsafe { attributes.as_ref() }.ok_or(libc::EINVAL)?;
        let needed = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
        if attributes.comp_mask != needed || attributes.join_flags >= RDMA_MC_JOIN_FLAG_RESERVED {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller of `rdma_join_multicast_ex` guarantees that the address is null or of the length
        // that its family requires.
        let at = unsafe { address::read(attributes.addr)? };
        join(id, at, attributes.join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, context)
    })
}

/// # Safety
/// `id` is a live identifier, and `at` is null or a socket address of the length that its family requires.
#[unsafe(export_name = "kiban_rdma_leave_multicast")]
pub(super) unsafe extern "C" fn rdma_leave_multicast(id: *mut rdma_cm_id, at: *mut sockaddr) -> c_int {
    with(id, |id| {
        // SAFETY: the caller of `rdma_leave_multicast` guarantees that `at` is null or an address of the
        // length that its family requires.
        let group = unsafe { address::read(at)? }.ip().to_canonical();
        let left = {
            let mut state = id.state();
            let at = state.joined.iter().position(|joined| joined.group == group);
            state.joined.remove(at.ok_or(libc::EADDRNOTAVAIL)?)
        };
        id.detach(left);
        Ok(0)
    })
}
