//! Device memory (ibv_alloc_dm(3)).
//!
//! Purpose   lets programs that keep counters or small messages in the memory of a card run here. It is
//!           ordinary memory of this process, which only the NIC and two functions access.
//! Access    regions are addressed by offsets, as IBV_ACCESS_ZERO_BASED requires. Offsets and lengths are
//!           multiples of four octets, as on cards.
//! Lifetime  the memory lives as long as its struct, an imported one, or a region needs it.
//! Fork      a child may allocate memory from a context of its parent, as on cards.
//! Limits    [`BYTES_MAX`] for one allocation.

use crate::abi::*;
use crate::atomic::AtomicPtr;
use crate::context::Context;
use crate::engine::{Generation, Object, given, take_back};
use crate::ffi::{catch_panics, errno_or_zero, pointer};
use crate::memory::{Pd, register_own};
use crate::sync::published::Published;
use core::cell::UnsafeCell;
use core::convert::Infallible;
use core::ffi::{c_int, c_uint, c_void};
use core::ptr::null_mut;
use kiban_base::Region;
use kiban_os::lock;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The size of the largest allocation.
pub(crate) const BYTES_MAX: usize = 1 << 20;
/// The granularity of accesses.
const UNIT: u64 = 4;

/// A piece of device memory.
#[repr(C)]
struct Dm {
    abi: UnsafeCell<ibv_dm>,
    born: Generation,
    context: &'static Context,
    memory: Region,
}

// SAFETY: the type is `repr(C)`, and its first field is an `UnsafeCell` of the C struct.
unsafe impl Object for Dm {
    type Abi = ibv_dm;

    fn born(&self) -> Generation {
        self.born
    }
}

/// The memory of live allocations by their handles, for [`ibv_import_dm`], and the last handle.
type Allocated = Mutex<(BTreeMap<u32, Region>, u32)>;
/// A forked child has its own, because a thread of its parent may have held the lock.
static ALLOCATED: Published<(Generation, Allocated)> = Published(AtomicPtr::new(null_mut()));

fn allocated() -> &'static Allocated {
    let made: Result<_, Infallible> =
        ALLOCATED.get_or_make(|(born, _)| born.is_now(), || Ok((Generation::now(), Allocated::default())));
    let Ok((_, allocated)) = made;
    allocated
}

fn give(context: &'static Context, handle: u32, memory: Region) -> *mut ibv_dm {
    let mut abi = ibv_dm::ZERO;
    (abi.context, abi.handle) = (context.abi(), handle);
    abi.memcpy_to_dm = Some(copy_to);
    abi.memcpy_from_dm = Some(copy_from);
    context.retain();
    Dm { abi: UnsafeCell::new(abi), born: Generation::now(), context, memory }.give()
}

/// # Safety
/// The arguments must satisfy ibv_alloc_dm(3).
pub(crate) unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    pointer(|| {
        // SAFETY: the caller of `ibv_alloc_dm` guarantees that `context` is null or an open context created
        // by this library and `attr` is null or valid for reads.
        let (context, attr) =
            unsafe { (Context::of_any_process(context)?, attr.as_ref().ok_or(libc::EINVAL)?) };
        if context.engine.is_on_board() {
            return Err(crate::log::unsupported("ibv_alloc_dm on the NIC of a board"));
        }
        // The memory starts at a cache line, 2^6.
        if attr.comp_mask != 0 || attr.length == 0 || attr.log_align_req > 6 {
            return Err(libc::EINVAL);
        }
        if attr.length > BYTES_MAX {
            return Err(libc::ENOMEM);
        }
        let memory = Region::new(0, attr.length);
        let mut allocated = lock(allocated());
        allocated.1 += 1;
        let handle = allocated.1;
        allocated.0.insert(handle, memory.clone());
        Ok(give(context, handle, memory))
    })
}

/// # Safety
/// `dm` is null or live device memory of this library, and is not used again.
pub(crate) unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_free_dm` guarantees that `dm` is null or live device memory.
        let memory = unsafe { given::<Dm>(dm)? };
        // SAFETY: it points to the C struct inside this live object.
        let handle = unsafe { (*memory.abi()).handle };
        lock(allocated()).0.remove(&handle);
        memory.context.release();
        // SAFETY: the pointer came from the call that created the object, and is not used again.
        unsafe { take_back::<Dm>(dm) };
        Ok(())
    })
}

/// # Safety
/// The arguments must satisfy ibv_reg_dm_mr(3).
pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    bytes: usize,
    access: c_uint,
) -> *mut ibv_mr {
    pointer(|| {
        // SAFETY: the caller of `ibv_reg_dm_mr` guarantees that `pd` is null or a live protection domain, and
        // `dm` null or live device memory, of this library.
        let (pd, memory) = unsafe { (given::<Pd>(pd)?, given::<Dm>(dm)?) };
        if access & IBV_ACCESS_ZERO_BASED == 0 || !offset.is_multiple_of(UNIT) {
            return Err(libc::EINVAL);
        }
        let part = memory.memory.part(offset, bytes).ok_or(libc::EINVAL)?;
        register_own(pd, part, access)
    })
}

fn are_units(offset: u64, bytes: usize) -> bool {
    offset.is_multiple_of(UNIT) && (bytes as u64).is_multiple_of(UNIT)
}

/// # Safety
/// `dm` is null or live device memory of this library, and `from` has `bytes` bytes.
unsafe extern "C" fn copy_to(dm: *mut ibv_dm, offset: u64, from: *const c_void, bytes: usize) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_memcpy_to_dm` guarantees that `dm` is null or live device memory.
        let memory = unsafe { given::<Dm>(dm)? };
        if from.is_null() || !are_units(offset, bytes) {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller guarantees that `from` has `bytes` bytes.
        let from = unsafe { core::slice::from_raw_parts(from.cast::<u8>(), bytes) };
        memory.memory.write(offset, from.into()).ok_or(libc::EINVAL)
    })
}

/// # Safety
/// `dm` is null or live device memory of this library, and `to` has room for `bytes` bytes.
unsafe extern "C" fn copy_from(to: *mut c_void, dm: *mut ibv_dm, offset: u64, bytes: usize) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_memcpy_from_dm` guarantees that `dm` is null or live device memory.
        let memory = unsafe { given::<Dm>(dm)? };
        if to.is_null() || !are_units(offset, bytes) {
            return Err(libc::EINVAL);
        }
        let from = memory.memory.read(offset, bytes).ok_or(libc::EINVAL)?;
        // SAFETY: the caller guarantees room for `bytes` bytes.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), to.cast::<u8>(), bytes) };
        Ok(())
    })
}

/// # Safety
/// `context` is null or an open context created by this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_import_dm(context: *mut ibv_context, handle: u32) -> *mut ibv_dm {
    pointer(|| {
        // SAFETY: the caller of `ibv_import_dm` guarantees that `context` is null or an open context created
        // by this library.
        let context = unsafe { Context::given(context)? };
        let memory = lock(allocated()).0.get(&handle).cloned().ok_or(libc::ENOENT)?;
        Ok(give(context, handle, memory))
    })
}

/// # Safety
/// `dm` came from [`ibv_import_dm`] and is not used again.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_unimport_dm(dm: *mut ibv_dm) {
    catch_panics((), || {
        // SAFETY: the caller of `ibv_unimport_dm` guarantees that `dm` is imported device memory.
        if let Ok(memory) = unsafe { given::<Dm>(dm) } {
            memory.context.release();
            // SAFETY: the pointer came from the call that created the object, and is not used again.
            unsafe { take_back::<Dm>(dm) };
        }
    });
}
