//! The extended posting interface (ibv_wr_post(3)): `ibv_wr_start`, calls for each request and its data,
//! `ibv_wr_complete`.
//!
//! Transmit path   all requests between start and complete are posted together, or none is. They are
//!                 collected in the queue pair, whose lock is held from start to complete.
//! Errors          `ibv_wr_complete` returns the first error of the calls before it.

use crate::abi::*;
use crate::engine::{given, refused};
use crate::ffi::{catch_panics, errno_or_zero};
use crate::memory::{set_window_key, window_key};
use crate::queue::post::{bind, compare_swap, datagram, fetch_add, finished, immediate_value, inlined};
use crate::queue::qp::Qp;
use crate::sync::spin::SpinLock;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use kiban_rdma_runtime::verbs::{Data, Operation, SendWork, Service, Sge, TaggedAddress};

const OF_UD: u64 = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
const OF_RC: u64 = OF_UD
    | IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_LOCAL_INV
    | IBV_QP_EX_WITH_BIND_MW
    | IBV_QP_EX_WITH_SEND_WITH_INV;

/// Operations that need a response (reads, atomics) are not available on unreliable queue pairs.
const OF_UC: u64 = OF_RC
    & !(IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD);

/// Returns the IBV_QP_EX_WITH_* flags for the operations that a transport service supports.
pub(crate) fn supported(service: Service) -> u64 {
    match service {
        Service::Connected | Service::XrcInitiator => OF_RC,
        Service::Unreliable => OF_UC,
        Service::Datagrams => OF_UD,
        Service::XrcTarget(_) => 0,
    }
}

/// The requests since `ibv_wr_start`.
#[derive(Default)]
struct Collected {
    works: Vec<SendWork>,
    error: c_int,
    /// The immediate data in the last request, until the request's destination is set.
    immediate: Option<u32>,
}

/// The batch of a queue pair.
pub(crate) struct Batch {
    offered: bool,
    /// Held from start to complete or abort; protects `collected`.
    open: SpinLock,
    collected: UnsafeCell<Collected>,
}

impl Batch {
    pub(crate) fn new(offered: bool) -> Batch {
        Batch { offered, open: SpinLock::new(), collected: UnsafeCell::default() }
    }

    /// Returns whether the program requested this interface when it created the queue pair.
    pub(crate) fn is_offered(&self) -> bool {
        self.offered
    }
}

/// Runs `work` on the collected requests.
///
/// # Safety
/// `qp` is a live queue pair on which the caller has called `ibv_wr_start`, but not yet `ibv_wr_complete` or
/// `ibv_wr_abort`.
unsafe fn with_requests(qp: *mut ibv_qp_ex, work: impl FnOnce(&Qp, &mut Collected) -> Result<(), c_int>) {
    catch_panics((), || {
        // SAFETY: the caller guarantees that `qp` is a live queue pair created by this library.
        let Ok(pair) = (unsafe { given::<Qp>(qp) }) else { return };
        // SAFETY: the caller called `ibv_wr_start`, which took the lock, so that nothing else uses the
        // requests.
        let collected = unsafe { &mut *pair.batch.collected.get() };
        if let Err(error) = work(pair, collected)
            && collected.error == 0
        {
            collected.error = error;
        }
    });
}

/// # Safety
/// As for [`with_requests`].
unsafe fn add(qp: *mut ibv_qp_ex, operation: Operation) {
    // SAFETY: the caller satisfies the requirements of `with_requests`; programs set `wr_id` and `wr_flags`
    // before each call (ibv_wr_post(3)).
    unsafe {
        let (id, flags) = ((*qp).wr_id, (*qp).wr_flags);
        with_requests(qp, |_, collected| {
            collected.works.push(finished(id, operation, Data::none(), flags));
            Ok(())
        });
    }
}

/// Sets the data of the last request.
///
/// # Safety
/// As for [`with_requests`].
unsafe fn set(qp: *mut ibv_qp_ex, data: impl FnOnce(&Qp) -> Result<Data, c_int>) {
    // SAFETY: the caller satisfies the requirements of `with_requests`.
    unsafe {
        with_requests(qp, |pair, collected| {
            let data = data(pair)?;
            let work = collected.works.last_mut().ok_or(libc::EINVAL)?;
            if let Operation::Write { immediate: Some(immediate), .. } = &mut work.operation {
                *immediate = *immediate & !u64::from(u32::MAX) | (data.length() & u64::from(u32::MAX));
            }
            work.data = data;
            Ok(())
        });
    }
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller of `ibv_wr_start` guarantees that `qp` is a live queue pair created by this
    // library.
    let Ok(pair) = (unsafe { given::<Qp>(qp) }) else { return };
    pair.batch.open.lock();
    // SAFETY: this thread holds the lock from here on, so that nothing else uses the requests.
    let collected = unsafe { &mut *pair.batch.collected.get() };
    collected.works.clear();
    (collected.error, collected.immediate) = (0, None);
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_wr_complete` guarantees that `qp` is a live queue pair created by this
        // library.
        let pair = unsafe { given::<Qp>(qp)? };
        // SAFETY: this thread has held the lock since `ibv_wr_start`, so that nothing else uses the requests.
        let collected = unsafe { &mut *pair.batch.collected.get() };
        let done = if collected.error != 0 {
            Err(collected.error)
        } else if !pair.takes_sends() {
            Err(libc::EINVAL)
        } else {
            pair.context.engine.post_sends_together(pair.number, collected.works.drain(..)).map_err(refused)
        };
        collected.works.clear();
        pair.batch.open.unlock();
        done
    })
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller of `ibv_wr_abort` guarantees that `qp` is a live queue pair created by this library
    // on which it has called `ibv_wr_start`.
    if let Ok(pair) = unsafe { given::<Qp>(qp) } {
        // SAFETY: this thread has held the lock since `ibv_wr_start`, so that nothing else uses the requests.
        unsafe { (*pair.batch.collected.get()).works.clear() };
        pair.batch.open.unlock();
    }
}

unsafe extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
    // SAFETY: `add` needs a live queue pair between `ibv_wr_start` and `ibv_wr_complete`; the program keeps
    // that order (ibv_wr_post(3)).
    unsafe { add(qp, Operation::SEND) };
}

unsafe extern "C" fn wr_send_imm(qp: *mut ibv_qp_ex, immediate: u32) {
    let data = u32::from_be(immediate);
    // SAFETY: `add` needs a live queue pair between `ibv_wr_start` and `ibv_wr_complete`; the program keeps
    // that order (ibv_wr_post(3)).
    unsafe {
        add(qp, Operation::SendImmediate { data });
        with_requests(qp, |_, collected| {
            collected.immediate = Some(data);
            Ok(())
        });
    }
}

unsafe extern "C" fn wr_send_inv(qp: *mut ibv_qp_ex, key: u32) {
    // SAFETY: `add` needs a live queue pair between `ibv_wr_start` and `ibv_wr_complete`; the program keeps
    // that order (ibv_wr_post(3)).
    unsafe { add(qp, Operation::Send { invalidate: Some(key) }) };
}

unsafe extern "C" fn wr_rdma_write(qp: *mut ibv_qp_ex, key: u32, address: u64) {
    // SAFETY: `add` needs a live queue pair between `ibv_wr_start` and `ibv_wr_complete`; the program keeps
    // that order (ibv_wr_post(3)).
    unsafe { add(qp, Operation::write(TaggedAddress { stag: key, offset: address })) };
}

unsafe extern "C" fn wr_rdma_write_imm(qp: *mut ibv_qp_ex, key: u32, address: u64, immediate: u32) {
    let remote = TaggedAddress { stag: key, offset: address };
    // SAFETY: `add` needs a live queue pair between `ibv_wr_start` and `ibv_wr_complete`; the program keeps
    // that order (ibv_wr_post(3)).
    unsafe { add(qp, Operation::Write { remote, immediate: Some(immediate_value(immediate, 0)) }) };
}

unsafe extern "C" fn wr_rdma_read(qp: *mut ibv_qp_ex, key: u32, address: u64) {
    // SAFETY: `add` needs a live queue pair between `ibv_wr_start` and `ibv_wr_complete`; the program keeps
    // that order (ibv_wr_post(3)).
    unsafe { add(qp, Operation::read(TaggedAddress { stag: key, offset: address })) };
}

unsafe extern "C" fn wr_atomic_cmp_swp(qp: *mut ibv_qp_ex, key: u32, address: u64, compare: u64, swap: u64) {
    let remote = TaggedAddress { stag: key, offset: address };
    // SAFETY: `add` needs a live queue pair between `ibv_wr_start` and `ibv_wr_complete`; the program keeps
    // that order (ibv_wr_post(3)).
    unsafe { add(qp, Operation::Atomic { remote, atomic: compare_swap(compare, swap) }) };
}

unsafe extern "C" fn wr_atomic_fetch_add(qp: *mut ibv_qp_ex, key: u32, address: u64, more: u64) {
    let remote = TaggedAddress { stag: key, offset: address };
    // SAFETY: `add` needs a live queue pair between `ibv_wr_start` and `ibv_wr_complete`; the program keeps
    // that order (ibv_wr_post(3)).
    unsafe { add(qp, Operation::Atomic { remote, atomic: fetch_add(more) }) };
}

unsafe extern "C" fn wr_local_inv(qp: *mut ibv_qp_ex, key: u32) {
    // SAFETY: `add` needs a live queue pair between `ibv_wr_start` and `ibv_wr_complete`; the program keeps
    // that order (ibv_wr_post(3)).
    unsafe { add(qp, Operation::LocalInvalidate { stag: key }) };
}

unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    key: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: `with_requests` needs a live queue pair between `ibv_wr_start` and `ibv_wr_complete`; the
    // program keeps that order (ibv_wr_post(3)). `mw` is null or a live memory window, `info` null or valid
    // for reads.
    unsafe {
        let (id, flags) = ((*qp).wr_id, (*qp).wr_flags);
        with_requests(qp, |_, collected| {
            let (_, kind) = window_key(mw)?;
            if kind != IBV_MW_TYPE_2 {
                return Err(libc::EINVAL);
            }
            let operation = bind(key, info.as_ref().ok_or(libc::EINVAL)?)?;
            collected.works.push(finished(id, operation, Data::none(), flags));
            set_window_key(mw, key);
            Ok(())
        });
    }
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, number: u32, qkey: u32) {
    // SAFETY: `with_requests` needs a live queue pair between `ibv_wr_start` and `ibv_wr_complete`; the
    // program keeps that order (ibv_wr_post(3)). `ah` is null or a live address handle.
    unsafe {
        with_requests(qp, |_, collected| {
            let immediate = collected.immediate.take();
            let work = collected.works.last_mut().ok_or(libc::EINVAL)?;
            work.operation = datagram(ah, number, qkey, immediate)?;
            Ok(())
        });
    }
}

unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, number: u32) {
    // SAFETY: `with_requests` needs a live queue pair between `ibv_wr_start` and `ibv_wr_complete`; the
    // program keeps that order (ibv_wr_post(3)).
    unsafe {
        with_requests(qp, |_, collected| {
            collected.works.last_mut().ok_or(libc::EINVAL)?.xrc_srq = number;
            Ok(())
        });
    }
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, key: u32, address: u64, length: u32) {
    // SAFETY: `set` needs a live queue pair between `ibv_wr_start` and `ibv_wr_complete`; the program keeps
    // that order (ibv_wr_post(3)).
    unsafe { set(qp, |_| Ok(Data::one(Sge { stag: key, address, length }))) };
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: `set` needs a live queue pair between `ibv_wr_start` and `ibv_wr_complete`; the program keeps
    // that order (ibv_wr_post(3)), and gives `count` elements.
    unsafe {
        set(qp, |pair| {
            if count > pair.send_elements_max || (list.is_null() && count > 0) {
                return Err(libc::EINVAL);
            }
            let elements = (0..count).map(|at| {
                let element = &*list.add(at);
                Sge { stag: element.lkey, address: element.addr, length: element.length }
            });
            Ok(Data::Elements(elements.collect()))
        });
    }
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, from: *mut c_void, bytes: usize) {
    // SAFETY: `set` needs a live queue pair between `ibv_wr_start` and `ibv_wr_complete`; the program keeps
    // that order (ibv_wr_post(3)), and gives `bytes` bytes.
    unsafe {
        set(qp, |pair| {
            let part = (from.expose_provenance() as u64, bytes);
            inlined(core::iter::once(part), pair.inline_max).map(Data::Inline)
        });
    }
}

unsafe extern "C" fn wr_set_inline_data_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_data_buf) {
    // SAFETY: `set` needs a live queue pair between `ibv_wr_start` and `ibv_wr_complete`; the program keeps
    // that order (ibv_wr_post(3)), and gives `count` buffers.
    unsafe {
        set(qp, |pair| {
            if list.is_null() && count > 0 {
                return Err(libc::EINVAL);
            }
            let parts = (0..count).map(|at| {
                let part = &*list.add(at);
                (part.addr.expose_provenance() as u64, part.length)
            });
            inlined(parts, pair.inline_max).map(Data::Inline)
        });
    }
}

/// Fills in the functions for the operations that the program requested.
pub(crate) fn fill(abi: &mut ibv_qp_ex, ops: u64) {
    macro_rules! calls {
        ($($flag:ident: $name:ident;)*) => {
            $(if ops & $flag != 0 { abi.$name = Some($name); })*
        };
    }
    calls! {
        IBV_QP_EX_WITH_RDMA_WRITE: wr_rdma_write;
        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM: wr_rdma_write_imm;
        IBV_QP_EX_WITH_SEND: wr_send;
        IBV_QP_EX_WITH_SEND_WITH_IMM: wr_send_imm;
        IBV_QP_EX_WITH_RDMA_READ: wr_rdma_read;
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP: wr_atomic_cmp_swp;
        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD: wr_atomic_fetch_add;
        IBV_QP_EX_WITH_LOCAL_INV: wr_local_inv;
        IBV_QP_EX_WITH_BIND_MW: wr_bind_mw;
        IBV_QP_EX_WITH_SEND_WITH_INV: wr_send_inv;
    }
    abi.wr_set_ud_addr = Some(wr_set_ud_addr);
    abi.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
    abi.wr_set_sge = Some(wr_set_sge);
    abi.wr_set_sge_list = Some(wr_set_sge_list);
    abi.wr_set_inline_data = Some(wr_set_inline_data);
    abi.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    abi.wr_start = Some(wr_start);
    abi.wr_complete = Some(wr_complete);
    abi.wr_abort = Some(wr_abort);
}
