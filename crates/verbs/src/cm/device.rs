//! Devices of the connection manager, opened once per process (rdma_get_devices(3)).

use super::below;
use super::id::Id;
use super::world::world;
use crate::abi::*;
use crate::ffi::{catch_panics, set_errno};
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use kiban_os::lock;
use std::net::IpAddr;
use std::sync::Arc;

/// Binds an identifier to the device that has this address. Returns false if there is none.
pub(super) fn bind_device(id: &Arc<Id>, address: IpAddr) -> bool {
    let context = below::context(address.to_canonical());
    if context.is_null() {
        return false;
    }
    // SAFETY: `context` is not null, so it is a context created by this library; these are never closed.
    id.state().device = unsafe { crate::context::address(context) }.ok();
    let domain = domain(context);
    let place = id.abi();
    // SAFETY: the struct lives as long as the identifier.
    unsafe {
        (*place).verbs = context;
        (*place).port_num = 1;
        if (*place).pd.is_null() {
            (*place).pd = domain;
        }
    }
    true
}

/// Returns the default protection domain of a device. It exists as long as the device is open.
fn domain(context: *mut ibv_context) -> *mut ibv_pd {
    let mut domains = lock(&world().domains);
    let known = domains.entry(context as usize).or_insert(0);
    if *known == 0 {
        *known = below::alloc_pd(context) as usize;
    }
    *known as *mut ibv_pd
}

/// Returns the default XRC domain of a device, which exists as long as the device is open.
///
/// # Errors
/// The error of ibv_open_xrcd(3).
pub(super) fn xrc_domain(context: *mut ibv_context) -> Result<*mut ibv_xrcd, c_int> {
    let mut domains = lock(&world().xrc_domains);
    let known = domains.entry(context as usize).or_insert(0);
    if *known == 0 {
        *known = below::open_xrcd(context)? as usize;
    }
    Ok(*known as *mut ibv_xrcd)
}

/// # Safety
/// `count` is valid for a write, or null.
#[unsafe(export_name = "kiban_rdma_get_devices")]
pub(super) unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    catch_panics(null_mut(), || {
        let contexts = match below::contexts() {
            Ok(contexts) => contexts,
            Err(error) => {
                set_errno(error);
                return null_mut();
            }
        };
        // SAFETY: calloc may be called with any numbers; the list ends with a null pointer.
        let list = unsafe { libc::calloc(contexts.len() + 1, size_of::<*mut ibv_context>()) };
        let list = list.cast::<*mut ibv_context>();
        if list.is_null() {
            set_errno(libc::ENOMEM);
            return list;
        }
        for (place, context) in contexts.iter().enumerate() {
            // SAFETY: the list has room for all contexts and a null pointer.
            unsafe { *list.add(place) = *context };
        }
        // SAFETY: the caller of `rdma_get_devices` guarantees that `count` is null or valid for writes.
        if let Some(count) = unsafe { count.as_mut() } {
            *count = contexts.len() as c_int;
        }
        list
    })
}

/// # Safety
/// `list` is null or came from `rdma_get_devices`.
#[unsafe(export_name = "kiban_rdma_free_devices")]
pub(super) unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: the caller of `rdma_free_devices` guarantees that `list` is null or came from
    // `rdma_get_devices`, which uses calloc(3).
    unsafe { libc::free(list.cast::<c_void>()) };
}
