//! Protection domains, memory regions and memory windows (ibv_alloc_pd(3), ibv_reg_mr(3), ibv_alloc_mw(3)).
//!
//! Purpose         registers memory. With unmapped or read-only memory, registration fails with EFAULT, so
//!                 that the error does not appear only when a message arrives. Up to
//!                 [`POPULATED_BYTES_MAX`] it populates the pages, as if they were pinned. A larger region is
//!                 only looked up in the mappings of the process: populating gigabytes takes seconds.
//! Domains         a parent domain is an alias of its domain; a thread domain is a hint without effect.
//! Windows         a type 1 window gets a new key when it is bound; for a type 2 window the program chooses
//!                 the low bits of the key.
//! Unmapping       pages are not pinned. If a program unmaps registered memory, or truncates the file behind
//!                 it, the NIC's next access fails like an access without rights, and the queue pair goes to
//!                 the error state (`kiban_os::faults`). Hardware would keep the pages.
//! On demand       all memory is pageable, so a region with IBV_ACCESS_ON_DEMAND only skips populating. An
//!                 implicit region has the whole address space.
//! Import          objects can be imported from another context of the same process (ibv_import_pd(3)). The
//!                 handle of a domain is its number, that of a region its key without the lowest octet.
//! Not implemented null memory regions (ibv_alloc_null_mr(3)) fail with EOPNOTSUPP.

use crate::abi::*;
use crate::context::Context;
use crate::engine::{Generation, Object, given, refused, take_back};
use crate::ffi::{catch_panics, errno_or_zero, pointer, set_errno};
use crate::log::unsupported;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_uint, c_void};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicUsize, Ordering};
use kiban_base::Region;
use kiban_os::faults::{Sigaction, recover_from_faults};
use kiban_os::lock;
use kiban_rdma_runtime::verbs::Access;
use std::sync::Mutex;

const KNOWN: c_uint = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND
    | IBV_ACCESS_ZERO_BASED
    | IBV_ACCESS_HUGETLB
    | IBV_ACCESS_ON_DEMAND
    | IBV_ACCESS_OPTIONAL_RANGE;
/// The largest registration whose pages are populated.
const POPULATED_BYTES_MAX: usize = 16 << 20;
/// The addresses of an implicit region (ibv_reg_mr(3)): all that a process can have, without the first page.
const ALL_MEMORY: core::ops::Range<usize> = 0x1000..0x7fff_ffff_f000;

/// A protection domain, or an alias for one.
#[repr(C)]
pub(crate) struct Pd {
    abi: UnsafeCell<ibv_pd>,
    born: Generation,
    pub(crate) context: &'static Context,
    pub(crate) number: u32,
    /// For a parent domain: the protection domain for which it is an alias, and its thread domain.
    parent_of: Option<(&'static Pd, Option<&'static Td>)>,
    /// Number of address handles and aliases.
    pub(crate) users: AtomicUsize,
}

// SAFETY: the type is `repr(C)`, and its first field is an `UnsafeCell` of the C struct.
unsafe impl Object for Pd {
    type Abi = ibv_pd;

    fn born(&self) -> Generation {
        self.born
    }
}

/// A thread domain.
#[repr(C)]
struct Td {
    abi: UnsafeCell<ibv_td>,
    born: Generation,
    context: &'static Context,
    users: AtomicUsize,
}

// SAFETY: the type is `repr(C)`, and its first field is an `UnsafeCell` of the C struct.
unsafe impl Object for Td {
    type Abi = ibv_td;

    fn born(&self) -> Generation {
        self.born
    }
}

/// A memory region.
#[repr(C)]
struct Mr {
    abi: UnsafeCell<ibv_mr>,
    born: Generation,
    context: &'static Context,
    /// The parameters of the last registration.
    made: Mutex<Made>,
}

#[derive(Clone, Copy)]
struct Made {
    pd: *mut ibv_pd,
    base: *mut c_void,
    bytes: usize,
    address: u64,
    access: c_uint,
    key: u32,
}

// SAFETY: the type is `repr(C)`, and its first field is an `UnsafeCell` of the C struct.
unsafe impl Object for Mr {
    type Abi = ibv_mr;

    fn born(&self) -> Generation {
        self.born
    }
}

/// A memory window.
#[repr(C)]
struct Mw {
    abi: UnsafeCell<ibv_mw>,
    born: Generation,
    context: &'static Context,
    /// The key that the window had when it was allocated; binding changes the low bits.
    key: u32,
}

// SAFETY: the type is `repr(C)`, and its first field is an `UnsafeCell` of the C struct.
unsafe impl Object for Mw {
    type Abi = ibv_mw;

    fn born(&self) -> Generation {
        self.born
    }
}

/// Converts access flags.
pub(crate) fn access(flags: c_uint) -> Access {
    let has = |flag| flags & flag != 0;
    Access {
        local_write: has(IBV_ACCESS_LOCAL_WRITE),
        remote_write: has(IBV_ACCESS_REMOTE_WRITE),
        remote_read: has(IBV_ACCESS_REMOTE_READ),
        remote_atomic: has(IBV_ACCESS_REMOTE_ATOMIC),
        bind: has(IBV_ACCESS_MW_BIND),
    }
}

fn checked(flags: c_uint) -> Result<Access, c_int> {
    let writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    if flags & !KNOWN != 0 || (flags & writes != 0 && flags & IBV_ACCESS_LOCAL_WRITE == 0) {
        return Err(libc::EINVAL);
    }
    Ok(access(flags))
}

/// Returns the addresses of the first page of a range and of the end of its last page.
fn pages(base: *mut c_void, bytes: usize) -> Result<(usize, usize), c_int> {
    // SAFETY: sysconf(3) takes a number.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).map_err(|_| libc::EINVAL)?;
    let end = base.addr().checked_add(bytes).and_then(|end| end.checked_next_multiple_of(page));
    Ok((base.addr() & !(page - 1), end.ok_or(libc::EINVAL)?))
}

/// Returns EFAULT if memory to be registered cannot be accessed. Populates the pages of a small region.
fn check_memory(base: *mut c_void, bytes: usize, writes: bool) -> Result<(), c_int> {
    if bytes <= POPULATED_BYTES_MAX {
        return populate(base, bytes, writes);
    }
    let (first, end) = pages(base, bytes)?;
    if is_mapped(first, end, writes) { Ok(()) } else { Err(libc::EFAULT) }
}

/// Populates the pages, for writing if `writes` is true.
fn populate(base: *mut c_void, bytes: usize, writes: bool) -> Result<(), c_int> {
    let (first, end) = pages(base, bytes)?;
    let advice = if writes { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    let start = base.with_addr(first);
    loop {
        // SAFETY: madvise(2) with this advice changes no byte; it only populates pages, as an access would.
        if unsafe { libc::madvise(start, end - first, advice) } == 0 {
            return Ok(());
        }
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => {}
            // The kernel is older than 5.14, or this is device memory.
            Some(libc::EINVAL) => {
                return if is_mapped(first, end, writes) { Ok(()) } else { Err(libc::EFAULT) };
            }
            Some(libc::ENOMEM | libc::EFAULT | libc::EPERM | libc::EACCES) => return Err(libc::EFAULT),
            _ => return Err(libc::EFAULT),
        }
    }
}

/// Returns whether the process has mapped the whole range with the required right.
fn is_mapped(first: usize, end: usize, writes: bool) -> bool {
    let Ok(map) = std::fs::read_to_string("/proc/self/maps") else { return true };
    covers(&map, first, end, writes)
}

fn covers(map: &str, first: usize, end: usize, writes: bool) -> bool {
    let mut at = first;
    for line in map.lines() {
        let mut words = line.split_whitespace();
        let range = words.next().and_then(|range| range.split_once('-'));
        let number = |text| usize::from_str_radix(text, 16).ok();
        let Some((from, to)) = range.and_then(|(from, to)| Some((number(from)?, number(to)?))) else {
            continue;
        };
        let rights = words.next().unwrap_or("").as_bytes();
        let is_right = rights.first() == Some(&b'r') && (!writes || rights.get(1) == Some(&b'w'));
        if from <= at && at < to && is_right {
            at = to;
        }
    }
    at >= end
}

/// Registers memory, or re-registers the key `before`. Returns the parameters of the registration.
fn register(
    pd: &Pd,
    base: *mut c_void,
    bytes: usize,
    address: u64,
    flags: c_uint,
    before: Option<u32>,
) -> Result<Made, c_int> {
    let access = checked(flags)?;
    let is_on_demand = flags & IBV_ACCESS_ON_DEMAND != 0;
    if is_on_demand && pd.context.engine.is_on_board() {
        return Err(unsupported("ibv_reg_mr: on-demand paging on the NIC of a board"));
    }
    let is_implicit = is_on_demand && base.is_null() && bytes == usize::MAX;
    let (start, length, address) = if is_implicit {
        (base.with_addr(ALL_MEMORY.start), ALL_MEMORY.len(), ALL_MEMORY.start as u64)
    } else {
        (base, bytes, if flags & IBV_ACCESS_ZERO_BASED != 0 { 0 } else { address })
    };
    if length == 0 {
        return Err(libc::EINVAL);
    }
    start.addr().checked_add(length).ok_or(libc::EINVAL)?;
    let writes = access.local_write || access.remote_write || access.remote_atomic || access.bind;
    if !is_on_demand {
        check_memory(start, length, writes)?;
    }
    let start = NonNull::new(start.cast::<u8>()).ok_or(libc::EFAULT)?;
    // SAFETY: the program keeps the pages mapped until it deregisters them (ibv_reg_mr(3)). If it does not,
    // or registers pages on demand that are not mapped, accesses fail.
    let region = unsafe { program_memory(start, length) };
    let (engine, region) = (pd.context.engine, region.with_address(address));
    let key = match before {
        None => engine.reg_mr(pd.number, region, address, access),
        Some(_) if engine.is_on_board() => {
            return Err(unsupported("ibv_rereg_mr on the NIC of a board"));
        }
        Some(key) => engine.rereg_mr(key, pd.number, region, address, access).map(|()| key),
    };
    let key = key.map_err(refused)?;
    Ok(Made { pd: pd.abi(), base, bytes, address, access: flags, key })
}

/// Returns memory of the program as a region. Accesses after the program has unmapped it fail.
///
/// # Safety
/// As for [`Region::foreign`].
pub(crate) unsafe fn program_memory(base: NonNull<u8>, bytes: usize) -> Region {
    recover_from_faults(redirect_sigaction);
    // SAFETY: the caller guarantees what `foreign` requires.
    unsafe { Region::foreign(base, bytes, None) }
}

/// Redirects the program's calls of sigaction(2) to a function, if `libkiban_paths.so` is loaded.
fn redirect_sigaction(to: Sigaction) {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"kiban_redirect_sigaction".as_ptr()) };
    if let Some(found) = NonNull::new(found) {
        // SAFETY: this is the type of the function in preload/signals.c.
        let redirect = unsafe { core::mem::transmute::<NonNull<c_void>, extern "C" fn(Sigaction)>(found) };
        redirect(to);
    }
}

fn write(mr: &Mr, made: Made) {
    let abi = mr.abi();
    // SAFETY: `abi` points to the C struct inside this live object; programs only read it.
    unsafe {
        (*abi).pd = made.pd;
        (*abi).addr = made.base;
        (*abi).length = made.bytes;
        ((*abi).lkey, (*abi).rkey, (*abi).handle) = (made.key, made.key, made.key >> 8);
    }
}

/// # Safety
/// `pd` is null or a live protection domain created by this library.
unsafe fn make(pd: *mut ibv_pd, base: *mut c_void, bytes: usize, address: u64, flags: c_uint) -> *mut ibv_mr {
    pointer(|| {
        // SAFETY: the caller of `make` guarantees that `pd` is null or a live protection domain created by
        // this library.
        let pd = unsafe { given::<Pd>(pd)? };
        Ok(give_mr(pd, register(pd, base, bytes, address, flags, None)?))
    })
}

/// Returns the program's struct for a registration.
fn give_mr(pd: &Pd, made: Made) -> *mut ibv_mr {
    let mut abi = ibv_mr::ZERO;
    abi.context = pd.context.abi();
    let mr = Mr {
        abi: UnsafeCell::new(abi),
        born: Generation::now(),
        context: pd.context,
        made: Mutex::new(made),
    };
    write(&mr, made);
    pd.context.retain();
    mr.give()
}

/// Registers memory of this library, which has no address in the program: peers and the program use offsets.
pub(crate) fn register_own(pd: &Pd, memory: Region, flags: c_uint) -> Result<*mut ibv_mr, c_int> {
    let (access, bytes) = (checked(flags)?, memory.len());
    let key = pd.context.engine.reg_mr(pd.number, memory.with_address(0), 0, access).map_err(refused)?;
    Ok(give_mr(pd, Made { pd: pd.abi(), base: null_mut(), bytes, address: 0, access: flags, key }))
}

/// # Safety
/// `context` is null or an open context created by this library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    pointer(|| {
        // SAFETY: the caller of `ibv_alloc_pd` guarantees that `context` is null or an open context created
        // by this library.
        let context = unsafe { Context::given(context)? };
        let number = context.engine.alloc_pd().map_err(refused)?;
        Ok(named(context, number, None))
    })
}

fn named(
    context: &'static Context,
    number: u32,
    parent_of: Option<(&'static Pd, Option<&'static Td>)>,
) -> *mut ibv_pd {
    let mut abi = ibv_pd::ZERO;
    (abi.context, abi.handle) = (context.abi(), number);
    context.retain();
    Pd {
        abi: UnsafeCell::new(abi),
        born: Generation::now(),
        context,
        number,
        parent_of,
        users: AtomicUsize::new(0),
    }
    .give()
}

/// # Safety
/// `pd` is null or a live protection domain created by this library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_dealloc_pd` guarantees that `pd` is null or a live protection domain
        // created by this library.
        let domain = unsafe { given::<Pd>(pd)? };
        if domain.users.load(Ordering::Relaxed) > 0 {
            return Err(libc::EBUSY);
        }
        match domain.parent_of {
            Some((of, thread)) => {
                of.users.fetch_sub(1, Ordering::Relaxed);
                if let Some(thread) = thread {
                    thread.users.fetch_sub(1, Ordering::Relaxed);
                }
            }
            None => domain.context.engine.dealloc_pd(domain.number).map_err(refused)?,
        }
        domain.context.release();
        // SAFETY: the pointer came from the call that created the object, and is not used again.
        unsafe { take_back::<Pd>(pd) };
        Ok(())
    })
}

/// # Safety
/// The arguments must satisfy ibv_alloc_td(3).
pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    made: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    pointer(|| {
        // SAFETY: the caller of `ibv_alloc_td` guarantees that `context` is null or an open context created
        // by this library and `made` is null or valid for reads.
        let (context, made) = unsafe { (Context::given(context)?, made.as_ref().ok_or(libc::EINVAL)?) };
        if made.comp_mask != 0 {
            return Err(libc::EINVAL);
        }
        context.retain();
        let abi = UnsafeCell::new(ibv_td { context: context.abi() });
        Ok(Td { abi, born: Generation::now(), context, users: AtomicUsize::new(0) }.give())
    })
}

/// # Safety
/// `td` is null or a live thread domain created by this library.
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_dealloc_td` guarantees that `td` is null or a live thread domain
        // created by this library.
        let thread = unsafe { given::<Td>(td)? };
        if thread.users.load(Ordering::Relaxed) > 0 {
            return Err(libc::EBUSY);
        }
        thread.context.release();
        // SAFETY: the pointer came from the call that created the object, and is not used again.
        unsafe { take_back::<Td>(td) };
        Ok(())
    })
}

/// # Safety
/// The arguments must satisfy ibv_alloc_parent_domain(3).
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    made: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    pointer(|| {
        // SAFETY: the caller of `ibv_alloc_parent_domain` guarantees that `context` is null or an open
        // context created by this library and `made` is null or valid for reads.
        let (context, made) = unsafe { (Context::given(context)?, made.as_ref().ok_or(libc::EINVAL)?) };
        // The program's allocators are never called, because there are no buffers that hardware reads.
        let known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
        if made.comp_mask & !known != 0 {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller of `ibv_alloc_parent_domain` guarantees that `made.pd` is null or a live
        // protection domain created by this library.
        let of = unsafe { given::<Pd>(made.pd)? };
        let thread = if made.td.is_null() {
            None
        } else {
            // SAFETY: the caller of `ibv_alloc_parent_domain` guarantees that `made.td` is null or a live
            // thread domain created by this library.
            Some(unsafe { given::<Td>(made.td)? })
        };
        of.users.fetch_add(1, Ordering::Relaxed);
        if let Some(thread) = thread {
            thread.users.fetch_add(1, Ordering::Relaxed);
        }
        Ok(named(context, of.number, Some((of, thread))))
    })
}

/// # Safety
/// `pd` is null or a live protection domain created by this library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    base: *mut c_void,
    bytes: usize,
    flags: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller of `ibv_reg_mr` guarantees that `pd` is null or a live protection domain, and that
    // the memory stays mapped until it is deregistered.
    unsafe { make(pd, base, bytes, base.addr() as u64, flags.cast_unsigned()) }
}

/// # Safety
/// `pd` is null or a live protection domain created by this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    base: *mut c_void,
    bytes: usize,
    address: u64,
    flags: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller of `ibv_reg_mr_iova` guarantees that `pd` is null or a live protection domain, and
    // that the memory stays mapped until it is deregistered.
    unsafe { make(pd, base, bytes, address, flags.cast_unsigned()) }
}

/// # Safety
/// `pd` is null or a live protection domain created by this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    base: *mut c_void,
    bytes: usize,
    address: u64,
    flags: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the caller of `ibv_reg_mr_iova2` guarantees that `pd` is null or a live protection domain, and
    // that the memory stays mapped until it is deregistered.
    unsafe { make(pd, base, bytes, address, flags) }
}

/// # Safety
/// `mr` is null or a live memory region created by this library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_dereg_mr` guarantees that `mr` is null or a live memory region created
        // by this library.
        let region = unsafe { given::<Mr>(mr)? };
        let key = lock(&region.made).key;
        region.context.engine.dereg_mr(key).map_err(refused)?;
        region.context.release();
        // SAFETY: the pointer came from the call that created the object, and is not used again.
        unsafe { take_back::<Mr>(mr) };
        Ok(())
    })
}

/// Returns 0, or a negative [`ibv_rereg_mr_err_code`] if the region is unchanged. The keys stay the same, as
/// with the kernel's drivers, because programs do not send them to their peers a second time.
///
/// # Safety
/// The arguments must satisfy ibv_rereg_mr(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    base: *mut c_void,
    bytes: usize,
    rights: c_int,
) -> c_int {
    let fail = |code, error| {
        set_errno(error);
        code
    };
    catch_panics(IBV_REREG_MR_ERR_CMD, || {
        let flags = flags.cast_unsigned();
        let changes = |flag| flags & flag != 0;
        // SAFETY: the caller of `ibv_rereg_mr` guarantees that `mr` is null or a live memory region created
        // by this library.
        let region = match unsafe { given::<Mr>(mr) } {
            Ok(region) => region,
            Err(error) => return fail(IBV_REREG_MR_ERR_INPUT, error),
        };
        let is_new_place = changes(IBV_REREG_MR_CHANGE_TRANSLATION);
        if flags & !IBV_REREG_MR_FLAGS_SUPPORTED != 0
            || flags == 0
            || (is_new_place && (bytes == 0 || base.is_null()))
        {
            return fail(IBV_REREG_MR_ERR_INPUT, libc::EINVAL);
        }
        let mut made = lock(&region.made);
        let before = *made;
        let domain = if changes(IBV_REREG_MR_CHANGE_PD) { pd } else { before.pd };
        // SAFETY: the caller of `ibv_rereg_mr` guarantees that `pd` is null or a live protection domain; the
        // region's own domain outlives the region.
        let domain = match unsafe { given::<Pd>(domain) } {
            Ok(domain) => domain,
            Err(error) => return fail(IBV_REREG_MR_ERR_INPUT, error),
        };
        let (base, bytes, address) = if is_new_place {
            (base, bytes, base.addr() as u64)
        } else {
            (before.base, before.bytes, before.address)
        };
        let rights = if changes(IBV_REREG_MR_CHANGE_ACCESS) { rights.cast_unsigned() } else { before.access };
        match register(domain, base, bytes, address, rights, Some(before.key)) {
            Ok(now) => {
                *made = now;
                write(region, now);
                0
            }
            Err(error) => fail(IBV_REREG_MR_ERR_CMD, error),
        }
    })
}

/// Populates memory that was registered on demand, or whose region is large.
///
/// # Safety
/// The arguments must satisfy ibv_advise_mr(3).
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: ibv_advise_mr_advice,
    flags: u32,
    elements: *mut ibv_sge,
    count: u32,
) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_advise_mr` guarantees that `pd` is null or a live protection domain
        // created by this library.
        let engine = unsafe { given::<Pd>(pd)? }.context.engine;
        if flags & !IBV_ADVISE_MR_FLAG_FLUSH != 0 || count == 0 || elements.is_null() {
            return Err(libc::EINVAL);
        }
        let writes = match advice {
            // What is not there stays so.
            IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => None,
            IBV_ADVISE_MR_ADVICE_PREFETCH => Some(false),
            IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE => Some(true),
            _ => return Err(libc::EINVAL),
        };
        // SAFETY: the caller of `ibv_advise_mr` guarantees that `elements` has `count` elements.
        let elements = unsafe { core::slice::from_raw_parts(elements, count as usize) };
        if !elements.iter().all(|element| engine.key(element.lkey) == Some(element.lkey)) {
            return Err(libc::ENOENT);
        }
        let Some(writes) = writes else { return Ok(()) };
        elements.iter().try_for_each(|element| {
            let base = core::ptr::with_exposed_provenance_mut(element.addr as usize);
            populate(base, element.length as usize, writes)
        })
    })
}

// ---- import

/// # Safety
/// `context` is null or an open context created by this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd {
    pointer(|| {
        // SAFETY: the caller of `ibv_import_pd` guarantees that `context` is null or an open context created
        // by this library.
        let context = unsafe { Context::given(context)? };
        if !context.engine.has_pd(handle) {
            return Err(libc::ENOENT);
        }
        Ok(named(context, handle, None))
    })
}

/// # Safety
/// `pd` came from [`ibv_import_pd`] and is not used again.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    catch_panics((), || {
        // SAFETY: the caller of `ibv_unimport_pd` guarantees that `pd` is an imported protection domain.
        if let Ok(domain) = unsafe { given::<Pd>(pd) } {
            domain.context.release();
            // SAFETY: the pointer came from the call that created the object, and is not used again.
            unsafe { take_back::<Pd>(pd) };
        }
    });
}

/// Returns a region without an address and a length, as rdma-core does.
///
/// # Safety
/// `pd` is null or a live protection domain created by this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    pointer(|| {
        // SAFETY: the caller of `ibv_import_mr` guarantees that `pd` is null or a live protection domain
        // created by this library.
        let domain = unsafe { given::<Pd>(pd)? };
        let key = domain.context.engine.key(handle << 8).ok_or(libc::ENOENT)?;
        Ok(give_mr(domain, Made { pd, base: null_mut(), bytes: 0, address: 0, access: 0, key }))
    })
}

/// # Safety
/// `mr` came from [`ibv_import_mr`] and is not used again.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    catch_panics((), || {
        // SAFETY: the caller of `ibv_unimport_mr` guarantees that `mr` is an imported memory region.
        if let Ok(region) = unsafe { given::<Mr>(mr) } {
            region.context.release();
            // SAFETY: the pointer came from the call that created the object, and is not used again.
            unsafe { take_back::<Mr>(mr) };
        }
    });
}

/// # Safety
/// `pd` is null or a live protection domain created by this library.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    pointer(|| {
        // SAFETY: the caller of `ibv_alloc_mw` guarantees that `pd` is null or a live protection domain
        // created by this library.
        let domain = unsafe { given::<Pd>(pd)? };
        if !matches!(kind, IBV_MW_TYPE_1 | IBV_MW_TYPE_2) {
            return Err(libc::EINVAL);
        }
        let key = domain.context.engine.alloc_mw(domain.number, kind == IBV_MW_TYPE_2).map_err(refused)?;
        let mut abi = ibv_mw::ZERO;
        (abi.context, abi.pd, abi.r#type) = (domain.context.abi(), pd, kind);
        (abi.rkey, abi.handle) = (key, key >> 8);
        domain.context.retain();
        Ok(Mw { abi: UnsafeCell::new(abi), born: Generation::now(), context: domain.context, key }.give())
    })
}

/// # Safety
/// `mw` is null or a live memory window created by this library.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_dealloc_mw` guarantees that `mw` is null or a live memory window
        // created by this library.
        let window = unsafe { given::<Mw>(mw)? };
        window.context.engine.dealloc_mw(window.key).map_err(refused)?;
        window.context.release();
        // SAFETY: the pointer came from the call that created the object, and is not used again.
        unsafe { take_back::<Mw>(mw) };
        Ok(())
    })
}

/// Returns a window's key as the program sees it.
///
/// # Safety
/// `mw` is null or a live memory window created by this library.
pub(crate) unsafe fn window_key(mw: *mut ibv_mw) -> Result<(u32, ibv_mw_type), c_int> {
    // SAFETY: the caller of `window_key` guarantees that `mw` is null or a live memory window created by
    // this library.
    let abi = unsafe { given::<Mw>(mw)? }.abi();
    // SAFETY: it points to the C struct inside this live object.
    Ok(unsafe { ((*abi).rkey, (*abi).r#type) })
}

/// Sets a window's new key.
///
/// # Safety
/// As for [`window_key`].
pub(crate) unsafe fn set_window_key(mw: *mut ibv_mw, key: u32) {
    // SAFETY: the caller of `set_window_key` guarantees that `mw` is null or a live memory window created by
    // this library.
    if let Ok(window) = unsafe { given::<Mw>(mw) } {
        // SAFETY: it points to the C struct inside this live object.
        unsafe { (*window.abi()).rkey = key };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_write_rights_require_local_write() {
        let given = [
            (0, Ok(Access::NONE)),
            (IBV_ACCESS_LOCAL_WRITE, Ok(Access::LOCAL)),
            (0x1f, Ok(Access::ALL)),
            (IBV_ACCESS_REMOTE_WRITE, Err(libc::EINVAL)),
            (IBV_ACCESS_REMOTE_ATOMIC, Err(libc::EINVAL)),
            (IBV_ACCESS_RELAXED_ORDERING | 1 << 29, Ok(Access::NONE)),
            (1 << 12, Err(libc::EINVAL)),
            (IBV_ACCESS_ON_DEMAND, Ok(Access::NONE)),
        ];
        for (flags, expected) in given {
            assert_eq!(checked(flags), expected, "{flags:#x}");
        }
    }

    #[test]
    fn a_range_is_covered_only_if_it_is_mapped_without_gaps() {
        let map =
            "1000-3000 rw-p 00000000 00:00 0\n3000-4000 r--p 00000000 00:00 0 [x]\n6000-7000 rw-p 0 0 0\n";
        assert!(covers(map, 0x1000, 0x3000, true) && covers(map, 0x2000, 0x4000, false));
        assert!(!covers(map, 0x2000, 0x4000, true) && !covers(map, 0x3000, 0x7000, false));
    }

    #[test]
    fn registering_unmapped_or_read_only_memory_fails() {
        let mut own = vec![0u8; 10_000];
        assert_eq!(populate(own.as_mut_ptr().cast(), own.len(), true), Ok(()));
        assert_eq!(populate(core::ptr::without_provenance_mut(0x1000), 100, false), Err(libc::EFAULT));
        static CONSTANT: [u8; 8192] = [1; 8192];
        let constant = CONSTANT.as_ptr().cast_mut().cast();
        assert_eq!(populate(constant, CONSTANT.len(), false), Ok(()));
        assert_eq!(populate(constant, CONSTANT.len(), true), Err(libc::EFAULT));
    }
}
