//! Endpoints: an identifier, its addresses and its queue pair in one (rdma_create_ep(3)).

use super::id::{self, Id};
use super::{address, id::destroy, queues, resolve};
use crate::abi::*;
use crate::ffi::{catch_panics, fail_with_errno};
use core::ffi::c_int;
use core::ptr::null_mut;
use std::sync::Arc;

/// # Safety
/// An answer of `rdma_getaddrinfo`, and attributes with objects of ours.
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
            _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
        }
    }
    let kind = u32::try_from(found.ai_qp_type).unwrap_or(IBV_QPT_RC);
    // SAFETY: addresses of the answer are as long as their families say, or null.
    unsafe {
        if found.ai_flags & RAI_PASSIVE != 0 {
            resolve::bind(id, address::read(found.ai_src_addr)?)?;
            if !pd.is_null() {
                (*id.place()).pd = pd;
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
/// `id` is valid for a write; an answer of `rdma_getaddrinfo`; a domain of ours or null; attributes with
/// objects of ours or null.
#[unsafe(export_name = "kiban_rdma_create_ep")]
pub(super) unsafe extern "C" fn rdma_create_ep(
    place: *mut *mut rdma_cm_id,
    found: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attributes: *mut ibv_qp_init_attr,
) -> c_int {
    catch_panics(-1, || {
        // SAFETY: null or an answer.
        let Some(found) = (unsafe { found.as_ref() }).filter(|_| !place.is_null()) else {
            return fail_with_errno(libc::EINVAL);
        };
        let number = |number: c_int| u32::try_from(number).unwrap_or(0);
        // SAFETY: no channel.
        let made = unsafe {
            id::create(null_mut(), null_mut(), number(found.ai_port_space), number(found.ai_qp_type))
        };
        let made = match made {
            Ok(made) => made,
            Err(error) => return fail_with_errno(error),
        };
        // SAFETY: promised by the caller.
        match unsafe { prepare(&made, found, pd, attributes.as_mut()) } {
            Ok(()) => {
                // SAFETY: the caller guarantees that `id` is valid for a write.
                unsafe { *place = made.place() };
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
/// An identifier that is not used again.
#[unsafe(export_name = "kiban_rdma_destroy_ep")]
pub(super) unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    catch_panics((), || {
        let Ok(found) = id::find(id) else { return };
        // SAFETY: promised by the caller.
        unsafe {
            queues::rdma_destroy_qp(id);
            queues::rdma_destroy_srq(id);
        }
        destroy(&found);
    });
}
