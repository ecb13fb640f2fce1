//! Address handles: the destinations of datagrams (ibv_create_ah(3)).
//!
//! State     a handle holds a GID. LIDs (except for IPv4, see [`Device::lid`]) and service levels have no
//!           effect.
//! Replies   the receiver of a datagram can create a handle from the GRH in front of it, which has the format
//!           of an IPv6 header (IBTA 8.3).

use crate::abi::*;
use crate::context::Context;
use crate::device::query::gid_indices;
use crate::device::{Device, transport};
use crate::engine::{Generation, Object, given, take_back};
use crate::ffi::{errno_or_zero, pointer, value_or_minus_one};
use crate::log::unsupported;
use crate::memory::Pd;
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::Ordering;

/// An address handle.
#[repr(C)]
pub(crate) struct Ah {
    abi: UnsafeCell<ibv_ah>,
    born: Generation,
    domain: &'static Pd,
    pub(crate) gid: [u8; 16],
}

// SAFETY: the type is `repr(C)`, and its first field is an `UnsafeCell` of the C struct.
unsafe impl Object for Ah {
    type Abi = ibv_ah;

    fn born(&self) -> Generation {
        self.born
    }
}

/// Returns the destination GID in the attributes, or the GID that belongs to their LID. Returns `None` if
/// the attributes are invalid for a device with one port.
pub(crate) fn destination(device: &Device, attributes: &ibv_ah_attr) -> Option<[u8; 16]> {
    if attributes.port_num > 1 {
        return None;
    }
    if attributes.is_global == 0 {
        return device.gid_of(attributes.dlid);
    }
    let gid = attributes.grh.dgid.bytes();
    (u32::from(attributes.grh.sgid_index) < gid_indices() && gid != [0; 16]).then_some(gid)
}

/// # Safety
/// `pd` is null or a live protection domain created by this library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    pointer(|| {
        // SAFETY: the caller of `ibv_create_ah` guarantees that `pd` is null or a live protection domain
        // created by this library and `attr` is null or valid for reads.
        let (domain, attr) = unsafe { (given::<Pd>(pd)?, attr.as_ref().ok_or(libc::EINVAL)?) };
        if !transport().has_datagrams() {
            return Err(unsupported("ibv_create_ah: datagrams with this transport"));
        }
        let gid = destination(domain.context.device, attr).filter(|_| attr.port_num == 1);
        let gid = gid.ok_or(libc::EINVAL)?;
        domain.users.fetch_add(1, Ordering::Relaxed);
        let abi = UnsafeCell::new(ibv_ah { context: domain.context.abi(), pd, handle: 0 });
        Ok(Ah { abi, born: Generation::now(), domain, gid }.give())
    })
}

/// # Safety
/// `ah` is null or a live address handle created by this library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_destroy_ah` guarantees that `ah` is null or a live address handle
        // created by this library.
        let handle = unsafe { given::<Ah>(ah)? };
        handle.domain.users.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the handle came from the call that created it, and posted work has its own copy of the
        // GID.
        unsafe { take_back::<Ah>(ah) };
        Ok(())
    })
}

/// Returns the route to the sender of a datagram, from the completion and the GRH in front of the payload.
fn return_route(
    context: &Context,
    port: u8,
    wc: &ibv_wc,
    grh: Option<&ibv_grh>,
) -> Result<ibv_ah_attr, c_int> {
    let mut route = ibv_ah_attr::ZERO;
    (route.dlid, route.sl, route.src_path_bits, route.port_num) = (wc.slid, wc.sl, wc.dlid_path_bits, port);
    if wc.wc_flags & IBV_WC_GRH != 0 {
        let grh = grh.ok_or(libc::EINVAL)?;
        if grh.dgid.bytes() != context.device.gid().bytes() {
            return Err(libc::EINVAL);
        }
        let first = u32::from_be(grh.version_tclass_flow);
        route.is_global = 1;
        route.grh.dgid = grh.sgid;
        route.grh.hop_limit = 255;
        route.grh.flow_label = first & 0xf_ffff;
        route.grh.traffic_class = (first >> 20) as u8;
    }
    Ok(route)
}

/// # Safety
/// The arguments must satisfy ibv_init_ah_from_wc(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    answer: *mut ibv_ah_attr,
) -> c_int {
    value_or_minus_one(|| {
        // SAFETY: the caller of `ibv_init_ah_from_wc` guarantees that each pointer is null or valid. The GRH
        // is in a receive buffer and may be unaligned.
        let (context, wc, answer, grh) = unsafe {
            let grh = if grh.is_null() { None } else { Some(grh.read_unaligned()) };
            (
                Context::given(context)?,
                wc.as_ref().ok_or(libc::EINVAL)?,
                answer.as_mut().ok_or(libc::EINVAL)?,
                grh,
            )
        };
        *answer = return_route(context, port, wc, grh.as_ref())?;
        Ok(0)
    })
}

/// # Safety
/// The arguments must satisfy ibv_create_ah_from_wc(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    let mut route = ibv_ah_attr::ZERO;
    // SAFETY: the caller of `ibv_create_ah_from_wc` guarantees that `pd` is null or a live protection domain
    // created by this library.
    let context = unsafe { given::<Pd>(pd) }.map_or(core::ptr::null_mut(), |domain| domain.context.abi());
    // SAFETY: the caller of `ibv_create_ah_from_wc` guarantees of `pd`, `wc` and `grh` what these two
    // functions require; `context` is the domain's, or null.
    unsafe {
        if ibv_init_ah_from_wc(context, port, wc, grh, &mut route) != 0 {
            return core::ptr::null_mut();
        }
        ibv_create_ah(pd, &mut route)
    }
}
