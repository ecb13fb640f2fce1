//! Converts C work requests to those of the engine (ibv_post_send(3), ibv_post_recv(3)).
//!
//! Transmit path   a list is posted up to the first invalid request, to which `bad_wr` then points.
//! Errors          ENOMEM if a queue is full, EINVAL for invalid requests.
//! Immediate data  see [`crate::queue::cq`].

use crate::abi::*;
use crate::ah::Ah;
use crate::engine::{given, refused};
use crate::ffi::errno_or_zero;
use crate::log::unsupported;
use crate::memory::{access, window_key};
use crate::queue::qp::Qp;
use core::ffi::{c_int, c_uint};
use kiban_rdma_runtime::verbs::{
    Atomic, Binding, Data, Operation, ReceiveWork, RequestError, SendWork, Service, Sge, Sges, TaggedAddress,
};
use smallvec::SmallVec;

const FLAGS: c_uint =
    IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE | IBV_SEND_IP_CSUM;

/// # Safety
/// `list` has `count` elements.
unsafe fn elements(list: *const ibv_sge, count: c_int, most: usize) -> Result<Sges, c_int> {
    let count = usize::try_from(count).ok().filter(|count| *count <= most).ok_or(libc::EINVAL)?;
    if count > 0 && list.is_null() {
        return Err(libc::EINVAL);
    }
    Ok((0..count)
        .map(|at| {
            // SAFETY: the caller of `elements` guarantees that `list` has `count` elements.
            let element = unsafe { &*list.add(at) };
            Sge { stag: element.lkey, address: element.addr, length: element.length }
        })
        .collect())
}

/// Copies the data of an inline send into the work request.
///
/// # Safety
/// Each address points to memory of the given length.
pub(crate) unsafe fn inlined(
    parts: impl Iterator<Item = (u64, usize)>,
    most: usize,
) -> Result<SmallVec<[u8; 64]>, c_int> {
    let mut bytes = SmallVec::new();
    for (address, length) in parts {
        if length > most - bytes.len() {
            return Err(libc::EINVAL);
        }
        let from = core::ptr::with_exposed_provenance::<u8>(address as usize);
        if length > 0 {
            if from.is_null() {
                return Err(libc::EFAULT);
            }
            // SAFETY: the caller of `inlined` guarantees that `from` points to `length` bytes; they are
            // copied here.
            bytes.extend_from_slice(unsafe { core::slice::from_raw_parts(from, length) });
        }
    }
    Ok(bytes)
}

/// Returns the immediate value that a Write with immediate data delivers.
pub(crate) fn immediate_value(immediate: u32, bytes: u64) -> u64 {
    u64::from(u32::from_be(immediate)) << 32 | (bytes & u64::from(u32::MAX))
}

/// Converts a fetch-and-add.
pub(crate) fn fetch_add(add: u64) -> Atomic {
    Atomic::FetchAdd { add, mask: 0 }
}

/// Converts a compare-and-swap.
pub(crate) fn compare_swap(compare: u64, swap: u64) -> Atomic {
    Atomic::CompareSwap { swap, swap_mask: u64::MAX, compare, compare_mask: u64::MAX }
}

/// Returns the operation that binds a window, or unbinds it if the length is 0.
///
/// # Safety
/// The memory region is null or a live region created by this library.
pub(crate) unsafe fn bind(key: u32, info: &ibv_mw_bind_info) -> Result<Operation, c_int> {
    if info.length == 0 {
        return Ok(Operation::Bind { window: key, binding: None });
    }
    // SAFETY: the caller of `bind` guarantees that `info.mr` is null or valid for reads.
    let region = unsafe { info.mr.as_ref() }.ok_or(libc::EINVAL)?.lkey;
    if info.mw_access_flags & IBV_ACCESS_ZERO_BASED != 0 {
        return Err(unsupported("zero-based memory windows"));
    }
    let access = access(info.mw_access_flags);
    let binding = Binding { region, address: info.addr, length: info.length, access };
    Ok(Operation::Bind { window: key, binding: Some(binding) })
}

/// Returns the destination of a datagram.
///
/// # Safety
/// `ah` is null or a live address handle created by this library.
pub(crate) unsafe fn datagram(
    ah: *mut ibv_ah,
    qp: u32,
    qkey: u32,
    immediate: Option<u32>,
) -> Result<Operation, c_int> {
    // SAFETY: the caller of `datagram` guarantees that `ah` is null or a live address handle created by this
    // library.
    let gid = unsafe { given::<Ah>(ah)? }.gid;
    Ok(Operation::Datagram { gid, qp, qkey, immediate })
}

/// # Safety
/// The request must satisfy ibv_post_send(3).
unsafe fn send(qp: &Qp, wr: &ibv_send_wr) -> Result<SendWork, c_int> {
    let has = |flag| wr.send_flags & flag != 0;
    if wr.send_flags & !FLAGS != 0 {
        return Err(libc::EINVAL);
    }
    let data = if has(IBV_SEND_INLINE) {
        let count = usize::try_from(wr.num_sge).ok().filter(|count| *count == 0 || !wr.sg_list.is_null());
        let parts = (0..count.ok_or(libc::EINVAL)?).map(|at| {
            // SAFETY: the caller of `send` guarantees that `sg_list` has `num_sge` elements.
            let element = unsafe { &*wr.sg_list.add(at) };
            (element.addr, element.length as usize)
        });
        // SAFETY: the caller of `send` guarantees that the elements of an inline send refer to memory of the
        // process.
        Data::Inline(unsafe { inlined(parts, qp.inline_max)? })
    } else {
        // SAFETY: the caller of `send` guarantees that `sg_list` has `num_sge` elements.
        Data::Elements(unsafe { elements(wr.sg_list, wr.num_sge, qp.send_elements_max)? })
    };
    if qp.service == Service::Datagrams {
        let immediate = match wr.opcode {
            IBV_WR_SEND => None,
            IBV_WR_SEND_WITH_IMM => Some(u32::from_be(wr.imm_data)),
            _ => return Err(libc::EINVAL),
        };
        // SAFETY: the queue pair carries datagrams, so the program has filled in `wr.ud` (ibv_post_send(3)).
        let (ah, number, qkey) = unsafe { (wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey) };
        // SAFETY: the caller of `send` guarantees that the address handle is null or a live handle created
        // by this library.
        let operation = unsafe { datagram(ah, number, qkey, immediate)? };
        return Ok(finished(wr.wr_id, operation, data, wr.send_flags));
    }
    let needs_response =
        matches!(wr.opcode, IBV_WR_RDMA_READ | IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD);
    if qp.service == Service::Unreliable && needs_response {
        return Err(libc::EINVAL);
    }
    let remote = || {
        // SAFETY: with this opcode, the program has filled in `rdma`.
        unsafe { TaggedAddress { stag: wr.wr.rdma.rkey, offset: wr.wr.rdma.remote_addr } }
    };
    // SAFETY: the members of the union consist of numbers, so that reading the one for atomics is valid for
    // every opcode.
    let (atomic_remote, compare_add, swap) = unsafe {
        let atomic = &wr.wr.atomic;
        (TaggedAddress { stag: atomic.rkey, offset: atomic.remote_addr }, atomic.compare_add, atomic.swap)
    };
    let operation = match wr.opcode {
        IBV_WR_SEND => Operation::SEND,
        IBV_WR_SEND_WITH_IMM => Operation::SendImmediate { data: u32::from_be(wr.imm_data) },
        IBV_WR_SEND_WITH_INV => Operation::Send { invalidate: Some(wr.imm_data) },
        IBV_WR_RDMA_WRITE => Operation::write(remote()),
        IBV_WR_RDMA_WRITE_WITH_IMM => Operation::Write {
            remote: remote(),
            immediate: Some(immediate_value(wr.imm_data, data.length())),
        },
        IBV_WR_RDMA_READ => Operation::read(remote()),
        IBV_WR_ATOMIC_CMP_AND_SWP => {
            Operation::Atomic { remote: atomic_remote, atomic: compare_swap(compare_add, swap) }
        }
        IBV_WR_ATOMIC_FETCH_AND_ADD => {
            Operation::Atomic { remote: atomic_remote, atomic: fetch_add(compare_add) }
        }
        IBV_WR_LOCAL_INV => Operation::LocalInvalidate { stag: wr.imm_data },
        IBV_WR_BIND_MW => {
            // SAFETY: with this opcode, the program has filled in `bind_mw`.
            let mw_bind = unsafe { &wr.more.bind_mw };
            // SAFETY: the caller of `send` guarantees that `mw_bind.mw` is null or a live memory window
            // created by this library.
            let (_, kind) = unsafe { window_key(mw_bind.mw)? };
            if kind != IBV_MW_TYPE_2 {
                return Err(libc::EINVAL);
            }
            // SAFETY: the caller of `send` guarantees that the memory region in the binding is null or a
            // live region created by this library.
            unsafe { bind(mw_bind.rkey, &mw_bind.bind_info)? }
        }
        _ => return Err(libc::EINVAL),
    };
    // Only extended reliable connections use the number, which other programs do not set.
    let xrc_srq = if qp.service == Service::XrcInitiator { wr.qp_type.remote_srqn } else { 0 };
    Ok(SendWork { xrc_srq, ..finished(wr.wr_id, operation, data, wr.send_flags) })
}

/// Returns the work request with its flags. Work that transfers no bytes ignores the list of elements.
pub(crate) fn finished(id: u64, operation: Operation, data: Data, flags: c_uint) -> SendWork {
    let has = |flag| flags & flag != 0;
    let data = match operation {
        Operation::LocalInvalidate { .. } | Operation::Bind { .. } => Data::none(),
        _ => data,
    };
    SendWork {
        signalled: has(IBV_SEND_SIGNALED),
        solicited: has(IBV_SEND_SOLICITED),
        fence: has(IBV_SEND_FENCE),
        ..SendWork::new(id, operation, data)
    }
}

/// Walks a C list until it reaches an element that cannot be posted.
struct List<W, F> {
    next: *mut W,
    /// The element that was converted last.
    at: *mut W,
    error: c_int,
    take: F,
}

impl<W, T, F: FnMut(*mut W) -> Result<(*mut W, T), c_int>> Iterator for &mut List<W, F> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        if self.next.is_null() {
            return None;
        }
        self.at = self.next;
        match (self.take)(self.at) {
            Ok((next, work)) => {
                self.next = next;
                Some(work)
            }
            Err(error) => {
                self.error = error;
                self.next = core::ptr::null_mut();
                None
            }
        }
    }
}

impl<W, F> List<W, F> {
    fn new(first: *mut W, take: F) -> List<W, F> {
        List { next: first, at: first, error: 0, take }
    }

    /// Returns the result of the C function after posting a list.
    ///
    /// # Safety
    /// `bad` is null or valid for a write.
    unsafe fn answer(
        &self,
        posted: Result<(), (usize, RequestError)>,
        bad: *mut *mut W,
    ) -> Result<(), c_int> {
        let answer = match posted {
            Err((_, refusal)) => Err(refused(refusal)),
            Ok(()) if self.error != 0 => Err(self.error),
            Ok(()) => Ok(()),
        };
        if answer.is_err() && !bad.is_null() {
            // SAFETY: the caller of `answer` guarantees that `bad`, which is not null here, is valid for a
            // write.
            unsafe { bad.write(self.at) };
        }
        answer
    }
}

/// # Safety
/// The arguments must satisfy ibv_post_send(3).
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    work: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_post_send` guarantees that `qp` is null or a live queue pair created by
        // this library.
        let qp = unsafe { given::<Qp>(qp.cast()) };
        let mut list = List::new(work, |at: *mut ibv_send_wr| {
            // SAFETY: the caller of `ibv_post_send` guarantees that `work` is a list of requests.
            unsafe { send(qp?, &*at).map(|work| ((*at).next, work)) }
        });
        let posted = match qp {
            Ok(qp) if qp.takes_sends() => qp.context.engine.post_sends(qp.number, &mut list),
            Ok(_) => Err((0, RequestError::BadAddress)),
            Err(error) => {
                list.error = error;
                Ok(())
            }
        };
        // SAFETY: the caller of `ibv_post_send` guarantees that `bad` is null or valid for a write.
        unsafe { list.answer(posted, bad) }
    })
}

/// Posts receives to a queue pair or a shared receive queue.
///
/// # Safety
/// The arguments must satisfy ibv_post_recv(3).
pub(crate) unsafe fn receives(
    work: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    elements_max: usize,
    post: impl FnOnce(&mut dyn Iterator<Item = ReceiveWork>) -> Result<(), (usize, RequestError)>,
) -> c_int {
    errno_or_zero(|| {
        let mut list = List::new(work, |at: *mut ibv_recv_wr| {
            // SAFETY: the caller of `receives` guarantees that `work` is a list of requests.
            let wr = unsafe { &*at };
            // SAFETY: the caller of `receives` guarantees that `sg_list` has `num_sge` elements.
            let sges = unsafe { elements(wr.sg_list, wr.num_sge, elements_max)? };
            Ok((wr.next, ReceiveWork { id: wr.wr_id, sges }))
        });
        let posted = post(&mut &mut list);
        // SAFETY: the caller of `receives` guarantees that `bad` is null or valid for a write.
        unsafe { list.answer(posted, bad) }
    })
}

/// # Safety
/// The arguments must satisfy ibv_post_recv(3).
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    work: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller of `ibv_post_recv` guarantees that `qp` is null or a live queue pair created by
    // this library.
    let qp = match unsafe { given::<Qp>(qp.cast()) } {
        Ok(qp) => qp,
        Err(error) => return error,
    };
    // SAFETY: the caller of `ibv_post_recv` guarantees that `work` is a list of requests and `bad` is null or
    // valid for a write.
    unsafe {
        receives(work, bad, qp.receive_elements_max, |works| {
            if !qp.takes_receives() {
                return if works.next().is_none() { Ok(()) } else { Err((0, RequestError::BadAddress)) };
            }
            qp.context.engine.post_receives(qp.number, works)
        })
    }
}

/// Binds a type 1 window, which gets a new key.
///
/// # Safety
/// The arguments must satisfy ibv_bind_mw(3).
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    mw_bind: *mut ibv_mw_bind,
) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_bind_mw` guarantees that `qp` is null or a live queue pair created by
        // this library and `mw_bind` is null or valid for reads.
        let (qp, mw_bind) = unsafe { (given::<Qp>(qp.cast())?, mw_bind.as_ref().ok_or(libc::EINVAL)?) };
        // SAFETY: the caller of `ibv_bind_mw` guarantees that `mw` is null or a live memory window created
        // by this library.
        let (key, kind) = unsafe { window_key(mw)? };
        if kind != IBV_MW_TYPE_1 || !qp.takes_sends() || mw_bind.send_flags & !FLAGS != 0 {
            return Err(libc::EINVAL);
        }
        let key = key & !0xff | (key.wrapping_add(1) & 0xff);
        // SAFETY: the caller of `ibv_bind_mw` guarantees that the memory region in the binding is null or a
        // live region created by this library.
        let operation = unsafe { bind(key, &mw_bind.bind_info)? };
        let work = finished(mw_bind.wr_id, operation, Data::none(), mw_bind.send_flags);
        qp.context.engine.post_sends(qp.number, [work]).map_err(|(_, refusal)| refused(refusal))?;
        // SAFETY: the caller of `ibv_bind_mw` guarantees that `mw` is null or a live memory window created
        // by this library.
        unsafe { crate::memory::set_window_key(mw, key) };
        Ok(())
    })
}
