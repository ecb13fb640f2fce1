//! Shared receive queues (ibv_create_srq(3)).
//!
//! Limit event     raised once when the number of posted receives falls below `srq_limit`. For another
//!                 event, the program must set the limit again.
//! XRC             a queue for extended reliable connections has an XRC domain and a completion queue.
//! Not implemented tag matching and resizing.

use crate::abi::*;
use crate::context::{self, Context};
use crate::engine::{Generation, Object, given, refused, take_back};
use crate::ffi::{errno_or_zero, pointer};
use crate::log::unsupported;
use crate::memory::Pd;
use crate::queue::cq::Cq;
use crate::queue::post;
use crate::queue::xrc::Xrcd;
use crate::sync::acknowledged::Acknowledged;
use core::cell::UnsafeCell;
use core::ffi::c_int;
use kiban_rdma_runtime::verbs::Engine;

/// A shared receive queue.
#[repr(C)]
pub(crate) struct Srq {
    abi: UnsafeCell<ibv_srq>,
    born: Generation,
    context: &'static Context,
    /// The engine's number for the queue.
    pub(crate) number: u32,
    /// The engine's number for the protection domain.
    pub(crate) domain: u32,
    elements_max: usize,
    /// Unacknowledged asynchronous events.
    pub(crate) events: Acknowledged,
}

// SAFETY: the type is `repr(C)`, and its first field is an `UnsafeCell` of the C struct.
unsafe impl Object for Srq {
    type Abi = ibv_srq;

    fn born(&self) -> Generation {
        self.born
    }
}

/// # Safety
/// `pd` is null or a live protection domain created by this library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    // SAFETY: the caller of `ibv_create_srq` guarantees that `pd` is null or a live protection domain created
    // by this library and `attr` is null or valid for reads and writes.
    pointer(|| unsafe { create(pd, attr, None) })
}

/// Creates a queue; one for extended reliable connections has the engine's numbers for its XRC domain and its
/// completion queue.
///
/// # Safety
/// `pd` is null or a live protection domain created by this library, and `attr` is null or valid for
/// reads and writes.
unsafe fn create(
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
    xrc: Option<(u32, u32)>,
) -> Result<*mut ibv_srq, c_int> {
    // SAFETY: the caller of `create` guarantees it.
    let (domain, attr) = unsafe { (given::<Pd>(pd)?, attr.as_mut().ok_or(libc::EINVAL)?) };
    let context = domain.context;
    let bounds = context.engine.bounds();
    let (entries, elements) = (attr.attr.max_wr as usize, attr.attr.max_sge as usize);
    if entries == 0 || entries > bounds.work_max || elements > bounds.sges_max {
        return Err(libc::EINVAL);
    }
    let mut abi = ibv_srq::ZERO;
    (abi.context, abi.srq_context, abi.pd) = (context.abi(), attr.srq_context, pd);
    let srq = Box::into_raw(Box::new(Srq {
        abi: UnsafeCell::new(abi),
        born: Generation::now(),
        context,
        number: 0,
        domain: domain.number,
        elements_max: elements,
        events: Acknowledged::default(),
    }));
    let cookie = context::tag(srq.cast(), context::SRQ);
    // Only ibv_modify_srq(3) sets a limit.
    match context.engine.create_srq(domain.number, xrc, entries, context.async_events.clone(), cookie) {
        Ok(number) => {
            // SAFETY: the object is new, and no other thread has a pointer to it yet.
            unsafe {
                (*srq).number = number;
                (*srq).abi.get_mut().handle = number;
            }
            context.retain();
            Ok(srq.cast())
        }
        Err(refusal) => {
            // SAFETY: the queue was not created, so nothing else refers to the box made above.
            unsafe { take_back::<Srq>(srq.cast()) };
            Err(refused(refusal))
        }
    }
}

/// # Safety
/// The arguments must satisfy ibv_create_srq_ex(3).
pub(crate) unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    pointer(|| {
        // SAFETY: the caller of `ibv_create_srq_ex` guarantees that `context` is null or an open context
        // created by this library and `attr` is null or valid for reads and writes.
        let (_, attr) = unsafe { (Context::given(context)?, attr.as_mut().ok_or(libc::EINVAL)?) };
        let has = |mask| attr.comp_mask & mask != 0;
        if attr.comp_mask >= IBV_SRQ_INIT_ATTR_RESERVED || !has(IBV_SRQ_INIT_ATTR_PD) {
            return Err(libc::EINVAL);
        }
        let srq_type = if has(IBV_SRQ_INIT_ATTR_TYPE) { attr.srq_type } else { IBV_SRQT_BASIC };
        let xrc = match srq_type {
            IBV_SRQT_BASIC => None,
            IBV_SRQT_XRC if has(IBV_SRQ_INIT_ATTR_XRCD) && has(IBV_SRQ_INIT_ATTR_CQ) => {
                // SAFETY: the caller of `ibv_create_srq_ex` guarantees that `attr.xrcd` and `attr.cq` are
                // null or live objects created by this library.
                let (domain, cq) = unsafe { (given::<Xrcd>(attr.xrcd)?, given::<Cq>(attr.cq.cast())?) };
                Some((domain.number, cq.number))
            }
            IBV_SRQT_XRC => return Err(libc::EINVAL),
            _ => return Err(unsupported("ibv_create_srq_ex: this type of shared receive queue")),
        };
        // SAFETY: the struct starts with the fields of the shorter one, and `attr.pd` is null or a live
        // protection domain.
        unsafe { create(attr.pd, core::ptr::from_mut(attr).cast(), xrc) }
    })
}

/// # Safety
/// `srq` is null or a live SRQ created by this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_modify_srq` guarantees that `srq` is null or a live SRQ created by this
        // library and `attr` is null or valid for reads.
        let (queue, attr) = unsafe { (given::<Srq>(srq)?, attr.as_ref().ok_or(libc::EINVAL)?) };
        let mask = mask.cast_unsigned();
        if mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 {
            return Err(libc::EINVAL);
        }
        // `device_cap_flags` indicates that resizing is not supported.
        if mask & IBV_SRQ_MAX_WR != 0 {
            return Err(unsupported("ibv_modify_srq: another size"));
        }
        if mask & IBV_SRQ_LIMIT != 0 {
            let engine = queue.context.engine;
            let (room, _) = engine.query_srq(queue.number).map_err(refused)?;
            if attr.srq_limit as usize > room {
                return Err(libc::EINVAL);
            }
            engine.set_srq_limit(queue.number, attr.srq_limit as usize).map_err(refused)?;
        }
        Ok(())
    })
}

/// # Safety
/// `srq` is null or a live SRQ created by this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, answer: *mut ibv_srq_attr) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_query_srq` guarantees that `srq` is null or a live SRQ created by this
        // library and `answer` is null or valid for reads and writes.
        let (queue, answer) = unsafe { (given::<Srq>(srq)?, answer.as_mut().ok_or(libc::EINVAL)?) };
        let (room, limit) = queue.context.engine.query_srq(queue.number).map_err(refused)?;
        *answer =
            ibv_srq_attr { max_wr: room as u32, max_sge: queue.elements_max as u32, srq_limit: limit as u32 };
        Ok(())
    })
}

/// # Safety
/// `srq` is null or a live SRQ created by this library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_destroy_srq` guarantees that `srq` is null or a live SRQ created by
        // this library.
        let queue = unsafe { given::<Srq>(srq)? };
        queue.context.engine.destroy_srq(queue.number).map_err(refused)?;
        let cookie = context::tag(srq.cast(), context::SRQ);
        queue.context.async_events.forget(|event| event.cookie == cookie);
        queue.events.wait();
        queue.context.release();
        // SAFETY: the pointer came from the call that created the object, and no event refers to it any more.
        unsafe { take_back::<Srq>(srq) };
        Ok(())
    })
}

/// # Safety
/// The arguments must satisfy ibv_get_srq_num(3).
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, answer: *mut u32) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_get_srq_num` guarantees that `srq` is null or a live SRQ created by
        // this library and `answer` is null or valid for reads and writes.
        let (queue, answer) = unsafe { (given::<Srq>(srq)?, answer.as_mut().ok_or(libc::EINVAL)?) };
        *answer = Engine::srq_number(queue.number);
        Ok(())
    })
}

/// # Safety
/// The arguments must satisfy ibv_post_srq_recv(3).
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    work: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller of `ibv_post_srq_recv` guarantees that `srq` is null or a live SRQ created by this
    // library.
    let queue = match unsafe { given::<Srq>(srq) } {
        Ok(queue) => queue,
        Err(error) => return error,
    };
    // SAFETY: the caller of `ibv_post_srq_recv` guarantees that `work` is a list of requests and `bad` is
    // null or valid for a write.
    unsafe {
        post::receives(work, bad, queue.elements_max, |works| {
            queue.context.engine.post_srq_receives(queue.number, works)
        })
    }
}
