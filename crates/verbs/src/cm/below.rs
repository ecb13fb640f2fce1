//! The interfaces below the connection manager: the engine, the devices, and the functions of `libibverbs`,
//! which are called by their C names as in any program.

use crate::abi::*;
use crate::device::{Device, Transport, transport};
use crate::ffi::errno;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use kiban_rdma_runtime::verbs::Engine;
use std::net::IpAddr;

unsafe extern "C" {
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    pub(super) fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    pub(super) fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    pub(super) fn ibv_create_cq(
        context: *mut ibv_context,
        entries: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        vector: c_int,
    ) -> *mut ibv_cq;
    pub(super) fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    pub(super) fn ibv_create_qp(pd: *mut ibv_pd, attributes: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    pub(super) fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
    pub(super) fn ibv_modify_qp(qp: *mut ibv_qp, attributes: *mut ibv_qp_attr, mask: c_int) -> c_int;
    pub(super) fn ibv_resize_cq(cq: *mut ibv_cq, entries: c_int) -> c_int;
    pub(super) fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
    pub(super) fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
    pub(super) fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
}

/// Returns the engine, after starting it if necessary.
pub(super) fn engine() -> Result<&'static Engine, c_int> {
    crate::engine::engine()
}

/// Returns whether connections behave as those of InfiniBand and RoCE devices, rather than those of iWARP.
pub(super) fn is_ib() -> bool {
    transport() != Transport::Iwarp
}

/// Returns the context, shared by all identifiers, of the device that has this address, or null if there is
/// none.
pub(super) fn context(address: IpAddr) -> *mut ibv_context {
    crate::context::shared(address).unwrap_or(null_mut())
}

/// Returns the shared contexts of all devices that programs see.
pub(super) fn contexts() -> Result<Vec<*mut ibv_context>, c_int> {
    Ok(Device::listed()?.into_iter().filter_map(|device| crate::context::shared_of(device).ok()).collect())
}

/// Allocates a protection domain. Returns null on failure.
pub(super) fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: every caller passes a context created by this library, and contexts of the connection manager
    // are never closed.
    unsafe { ibv_alloc_pd(context) }
}

/// Opens an XRC domain of a context.
///
/// # Errors
/// The error of ibv_open_xrcd(3).
pub(super) fn open_xrcd(context: *mut ibv_context) -> Result<*mut ibv_xrcd, c_int> {
    let mut attributes = ibv_xrcd_init_attr {
        comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
        fd: -1,
        oflags: libc::O_CREAT,
    };
    // SAFETY: every caller passes a context created by this library, and contexts of the connection manager
    // are never closed.
    let domain = unsafe {
        let open = table(context).open_xrcd.ok_or(libc::EOPNOTSUPP)?;
        open(context, &mut attributes)
    };
    if domain.is_null() { Err(errno()) } else { Ok(domain) }
}

/// Returns the function table of a context.
///
/// # Safety
/// `context` is an open context created by this library.
pub(super) unsafe fn table<'a>(context: *mut ibv_context) -> &'a verbs_context {
    // SAFETY: the caller guarantees a context created by this library, which is the last field of a
    // `verbs_context`.
    unsafe {
        &*context.wrapping_byte_sub(core::mem::offset_of!(verbs_context, context)).cast::<verbs_context>()
    }
}
