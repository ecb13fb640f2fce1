//! Endpoints: creates an identifier with its addresses and queue pair in one call (rdma_create_ep(3)).

use super::id::{self, Id};
use super::{address, id::destroy, queues, resolve};
use crate::abi::*;
use crate::ffi::{catch_panics, errno, fail_with_errno};
use core::ffi::c_int;
use core::ptr::null_mut;
use std::sync::Arc;

/// # Safety
/// `found` is a result of `rdma_getaddrinfo`, and the attributes refer to objects created by this library.
unsafe fn prepare(
    id: &Arc<Id>,
    found: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attributes: Option<&mut ibv_qp_init_attr>,
) -> Result<(), c_int> {
    /// Converts the result of a call that has set errno.
    fn done(code: c_int) -> Result<(), c_int> {
        match code {
            0 => Ok(()),
            _ => Err(errno()),
        }
    }
    let kind = u32::try_from(found.ai_qp_type).unwrap_or(IBV_QPT_RC);
    // SAFETY: the caller guarantees that each address is null or has the length that its family requires.
    unsafe {
        if found.ai_flags & RAI_PASSIVE != 0 {
            resolve::bind(id, address::read(found.ai_src_addr)?)?;
            if !pd.is_null() {
                (*id.abi()).pd = pd;
            }
            id.state().queue_wanted = attributes.map(|attributes| {
                attributes.qp_type = kind;
                *attributes
            });
            return Ok(());
        }
        let from = match found.ai_src_addr.as_ref() {
            Some(from) => Some(address::read(from)?),
            None => None,
        };
        done(resolve::resolve_addr(id, from, address::read(found.ai_dst_addr)?)?)?;
        done(resolve::resolve_route(id)?)?;
        if let Some(attributes) = attributes {
            attributes.qp_type = kind;
            queues::create_qp(id, pd, attributes)?;
        }
        if found.ai_connect_len > 0 && !found.ai_connect.is_null() {
            let bytes = u8::try_from(found.ai_connect_len).unwrap_or(u8::MAX);
            id.state().says = super::channel::private_data(found.ai_connect, bytes);
        }
    }
    Ok(())
}

/// # Safety
/// `place` is null or valid for a write; `found` is null or a result of `rdma_getaddrinfo`; `pd` is null or
/// a protection domain; `attributes` is null or refers to objects created by this library.
#[unsafe(export_name = "kiban_rdma_create_ep")]
pub(super) unsafe extern "C" fn rdma_create_ep(
    place: *mut *mut rdma_cm_id,
    found: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attributes: *mut ibv_qp_init_attr,
) -> c_int {
    catch_panics(-1, || {
        // SAFETY: the caller of `rdma_create_ep` guarantees that `found` is null or a result of
        // `rdma_getaddrinfo`.
        let Some(found) = (unsafe { found.as_ref() }).filter(|_| !place.is_null()) else {
            return fail_with_errno(libc::EINVAL);
        };
        let number = |number: c_int| u32::try_from(number).unwrap_or(0);
        // SAFETY: `create` accepts a null channel.
        let made = unsafe {
            id::create(null_mut(), null_mut(), number(found.ai_port_space), number(found.ai_qp_type))
        };
        let made = match made {
            Ok(made) => made,
            Err(error) => return fail_with_errno(error),
        };
        // SAFETY: the caller of `rdma_create_ep` guarantees that `found` and `pd` are valid, and that
        // `attributes` is null or refers to objects created by this library.
        match unsafe { prepare(&made, found, pd, attributes.as_mut()) } {
            Ok(()) => {
                // SAFETY: the caller guarantees that `id` is valid for a write.
                unsafe { *place = made.abi() };
                0
            }
            Err(error) => {
                destroy(&made);
                fail_with_errno(error)
            }
        }
    })
}

/// # Safety
/// `id` is an identifier created by this library that the caller does not use again.
#[unsafe(export_name = "kiban_rdma_destroy_ep")]
pub(super) unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    catch_panics((), || {
        let Ok(found) = id::find(id) else { return };
        // SAFETY: `find` found the identifier, and the program no longer uses it. Both functions do nothing
        // for objects that the identifier does not have.
        unsafe {
            queues::rdma_destroy_qp(id);
            queues::rdma_destroy_srq(id);
        }
        destroy(&found);
    });
}
