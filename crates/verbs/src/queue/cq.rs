//! Completion queues and their channels (ibv_create_cq(3), ibv_get_cq_event(3), ibv_create_cq_ex(3)).
//!
//! Purpose         returns completions in the verbs format, without allocation or look-ups by pointer.
//! State           every CQ is created as an extended one, whose struct starts with that of a plain one.
//! Immediate data  an RDMA Write with immediate data carries eight octets on the wire: the program's 32 bits
//!                 in the upper half and the length of the Write in the lower half. A Send with immediate
//!                 data carries only the 32 bits. Both keep the program's byte order.
//! Timestamps      give the time at which a completion was polled, on the clock of
//!                 ibv_query_rt_values_ex(3).
//! Not implemented moderation, tag matching, VLANs and flow tags: creating such a CQ fails with EOPNOTSUPP.

use crate::abi::*;
use crate::context::{self, Context};
use crate::engine::{Generation, Object, given, refused, take_back};
use crate::ffi::{catch_panics, errno_or_zero, pointer, value_or_minus_one};
use crate::log::unsupported;
use crate::memory::Pd;
use crate::sync::acknowledged::Acknowledged;
use crate::sync::spin::SpinLock;
use core::cell::{Cell, UnsafeCell};
use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use kiban_rdma_runtime::verbs::{Channel, Completion, CqChannels, Kind, Notify, Status};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The fields that an extended completion can have here.
const WC_FLAGS_SUPPORTED: u64 = IBV_WC_STANDARD_FLAGS
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

/// A completion channel.
#[repr(C)]
struct CompChannel {
    abi: UnsafeCell<ibv_comp_channel>,
    born: Generation,
    context: &'static Context,
    /// Cookies are addresses of [`Cq`]s.
    channel: Arc<Channel<u64>>,
    queues: AtomicUsize,
}

// SAFETY: the type is `repr(C)`, and its first field is an `UnsafeCell` of the C struct.
unsafe impl Object for CompChannel {
    type Abi = ibv_comp_channel;

    fn born(&self) -> Generation {
        self.born
    }
}

/// A completion queue.
#[repr(C)]
pub(crate) struct Cq {
    abi: UnsafeCell<ibv_cq_ex>,
    born: Generation,
    pub(crate) context: &'static Context,
    pub(crate) number: u32,
    channel: Option<&'static CompChannel>,
    /// Unacknowledged completion events.
    completion_events: Acknowledged,
    /// Unacknowledged asynchronous events.
    pub(crate) events: Acknowledged,
    /// Held from `start_poll` to `end_poll`; protects `taken`.
    polling: SpinLock,
    taken: Cell<(ibv_wc, u64)>,
}

// SAFETY: the type is `repr(C)`, and its first field is an `UnsafeCell` of the C struct.
unsafe impl Object for Cq {
    type Abi = ibv_cq_ex;

    fn born(&self) -> Generation {
        self.born
    }
}

impl Cq {
    fn cookie(&self) -> u64 {
        context::tag(self.abi().cast(), context::CQ)
    }
}

/// Maps an error from waiting for a channel to an errno value.
pub(crate) fn errno_of_wait(error: &io::Error) -> c_int {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => libc::EAGAIN,
        io::ErrorKind::Interrupted => libc::EINTR,
        _ => error.raw_os_error().unwrap_or(libc::EIO),
    }
}

// ---- completions

fn status(status: Status) -> ibv_wc_status {
    match status {
        Status::Success => IBV_WC_SUCCESS,
        Status::LocalLength => IBV_WC_LOC_LEN_ERR,
        Status::LocalOperation => IBV_WC_LOC_QP_OP_ERR,
        Status::LocalProtection => IBV_WC_LOC_PROT_ERR,
        Status::Flushed => IBV_WC_WR_FLUSH_ERR,
        Status::Bind => IBV_WC_MW_BIND_ERR,
        Status::RemoteRequest => IBV_WC_REM_INV_REQ_ERR,
        Status::RemoteAccess => IBV_WC_REM_ACCESS_ERR,
        Status::RemoteOperation => IBV_WC_REM_OP_ERR,
        Status::Lost => IBV_WC_RETRY_EXC_ERR,
        Status::ReceiverNotReady => IBV_WC_RNR_RETRY_EXC_ERR,
    }
}

/// Converts a completion.
#[inline]
fn completion(from: &Completion) -> ibv_wc {
    let mut wc = ibv_wc::ZERO;
    wc.wr_id = from.id;
    wc.status = status(from.status);
    wc.qp_num = from.qp;
    wc.byte_len = from.bytes;
    wc.opcode = match from.kind {
        Kind::Send | Kind::Immediate => IBV_WC_SEND,
        Kind::Write => IBV_WC_RDMA_WRITE,
        Kind::Read => IBV_WC_RDMA_READ,
        Kind::CompareSwap => IBV_WC_COMP_SWAP,
        Kind::FetchAdd => IBV_WC_FETCH_ADD,
        Kind::LocalInvalidate => IBV_WC_LOCAL_INV,
        // The verbs API has neither an opcode for registration by work request nor a way to post one.
        Kind::Register => IBV_WC_DRIVER1,
        Kind::Bind => IBV_WC_BIND_MW,
        Kind::Receive => IBV_WC_RECV,
        Kind::ReceiveImmediate => IBV_WC_RECV_RDMA_WITH_IMM,
    };
    match (from.immediate, from.invalidated) {
        (Some(data), _) => {
            let (value, bytes) = match from.kind {
                Kind::ReceiveImmediate => ((data >> 32) as u32, data as u32),
                _ => (data as u32, from.bytes),
            };
            (wc.imm_data, wc.byte_len) = (value.to_be(), bytes);
            wc.wc_flags = IBV_WC_WITH_IMM;
        }
        (None, Some(key)) => {
            wc.imm_data = key;
            wc.wc_flags = IBV_WC_WITH_INV;
        }
        (None, None) => {}
    }
    if let Some(source) = from.source {
        // A datagram has a GRH in front of its payload.
        wc.src_qp = source;
        wc.wc_flags |= IBV_WC_GRH;
    }
    wc
}

/// Returns the number of completions, or a negative errno.
///
/// # Safety
/// `cq` is null or a live CQ created by this library, and `places` has room for `most` completions.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, most: c_int, places: *mut ibv_wc) -> c_int {
    catch_panics(-libc::EIO, || {
        // SAFETY: the caller of `ibv_poll_cq` guarantees that `cq` is null or a live CQ created by this
        // library.
        let queue = match unsafe { given::<Cq>(cq.cast()) } {
            Ok(queue) => queue,
            Err(error) => return -error,
        };
        let Ok(room) = usize::try_from(most) else { return -libc::EINVAL };
        if room == 0 {
            return 0;
        }
        let mut place = places;
        let taken = queue.context.engine.poll_cq(queue.number, room, false, |event| {
            // SAFETY: the caller guarantees room for `most` completions, and no more are taken.
            unsafe {
                place.write(completion(&event));
                place = place.add(1);
            }
        });
        taken.map_or_else(|refusal| -refused(refusal), |taken| taken as c_int)
    })
}

/// # Safety
/// `cq` is null or a live CQ created by this library.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_req_notify_cq` guarantees that `cq` is null or a live CQ created by
        // this library.
        let queue = unsafe { given::<Cq>(cq.cast())? };
        let notify = if solicited_only == 0 { Notify::Any } else { Notify::Solicited };
        queue.context.engine.arm_cq(queue.number, notify).map_err(refused)
    })
}

// ---- extended polling

impl Cq {
    /// Takes the next completion: the first of a batch, or one that `follows` others. Returns whether there
    /// was one.
    fn take(&self, follows: bool) -> Result<bool, c_int> {
        // Flushed work may follow flushed work.
        let follows = follows && self.taken.get().0.status != IBV_WC_WR_FLUSH_ERR;
        let taken = self.context.engine.poll_cq(self.number, 1, follows, |event| {
            self.taken.set((completion(&event), kiban_os::clock::machine_nanos()));
        });
        let found = taken.map_err(refused)? > 0;
        if found {
            let (wc, _) = self.taken.get();
            let abi = self.abi();
            // SAFETY: `abi` points to the C struct inside this live object; programs read these two fields
            // only between `ibv_start_poll` and `ibv_end_poll`.
            unsafe { ((*abi).wr_id, (*abi).status) = (wc.wr_id, wc.status) };
        }
        Ok(found)
    }
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_start_poll` guarantees that `cq` is a live CQ created by this library
        // and `attr` is null or valid for reads.
        let (queue, attr) = unsafe { (given::<Cq>(cq)?, attr.as_ref()) };
        if attr.is_some_and(|attr| attr.comp_mask != 0) {
            return Err(libc::EINVAL);
        }
        queue.polling.lock();
        let taken = queue.take(false);
        if taken != Ok(true) {
            queue.polling.unlock();
        }
        if taken? { Ok(()) } else { Err(libc::ENOENT) }
    })
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_next_poll` guarantees that `cq` is a live CQ created by this library.
        if unsafe { given::<Cq>(cq)? }.take(true)? { Ok(()) } else { Err(libc::ENOENT) }
    })
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: the caller of `ibv_end_poll` guarantees that `cq` is null or a live CQ created by this
    // library.
    if let Ok(queue) = unsafe { given::<Cq>(cq) } {
        queue.polling.unlock();
    }
}

macro_rules! readers {
    ($($name:ident -> $kind:ty: $read:expr;)*) => {$(
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $kind {
            let read: fn(&(ibv_wc, u64)) -> $kind = $read;
            // SAFETY: the caller guarantees that `cq` is a live CQ created by this library.
            unsafe { given::<Cq>(cq) }.map_or(0, |queue| read(&queue.taken.get()))
        }
    )*};
}

readers! {
    read_opcode -> ibv_wc_opcode: |(wc, _)| wc.opcode;
    read_vendor_err -> u32: |(wc, _)| wc.vendor_err;
    read_byte_len -> u32: |(wc, _)| wc.byte_len;
    read_imm_data -> u32: |(wc, _)| wc.imm_data;
    read_qp_num -> u32: |(wc, _)| wc.qp_num;
    read_src_qp -> u32: |(wc, _)| wc.src_qp;
    read_wc_flags -> c_uint: |(wc, _)| wc.wc_flags;
    read_slid -> u32: |(wc, _)| wc.slid.into();
    read_sl -> u8: |(wc, _)| wc.sl;
    read_dlid_path_bits -> u8: |(wc, _)| wc.dlid_path_bits;
    read_completion_ts -> u64: |(_, nanos)| *nanos;
    read_completion_wallclock_ns -> u64: |(_, nanos)| wallclock(*nanos);
}

/// Converts a time of the monotonic clock to wall-clock time.
fn wallclock(nanos: u64) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a local variable.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut now) };
    let today = now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned();
    today - kiban_os::clock::machine_nanos().saturating_sub(nanos)
}

// ---- queues

struct CqAttributes {
    entries: u32,
    cookie: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: u32,
}

/// # Safety
/// `context` and `channel` are null or live objects created by this library.
unsafe fn create(context: *mut ibv_context, attr: &CqAttributes) -> Result<*mut ibv_cq_ex, c_int> {
    // SAFETY: the caller of `create` guarantees that `context` is null or an open context created by this
    // library.
    let context: &'static Context = unsafe { Context::given(context)? };
    let channel = if attr.channel.is_null() {
        None
    } else {
        // SAFETY: the caller of `create` guarantees that `attr.channel` is null or a live completion channel
        // created by this library.
        Some(unsafe { given::<CompChannel>(attr.channel)? })
    };
    let most = context.engine.bounds().cq_entries_max;
    if attr.entries == 0 || attr.entries as usize > most || attr.vector != 0 {
        return Err(libc::EINVAL);
    }
    let mut abi = ibv_cq_ex::ZERO;
    abi.context = context.abi();
    abi.channel = attr.channel;
    abi.cq_context = attr.cookie;
    abi.cqe = c_int::try_from(attr.entries).map_err(|_| libc::EINVAL)?;
    abi.start_poll = Some(start_poll);
    abi.next_poll = Some(next_poll);
    abi.end_poll = Some(end_poll);
    abi.read_opcode = Some(read_opcode);
    abi.read_vendor_err = Some(read_vendor_err);
    abi.read_byte_len = Some(read_byte_len);
    abi.read_imm_data = Some(read_imm_data);
    abi.read_qp_num = Some(read_qp_num);
    abi.read_src_qp = Some(read_src_qp);
    abi.read_wc_flags = Some(read_wc_flags);
    abi.read_slid = Some(read_slid);
    abi.read_sl = Some(read_sl);
    abi.read_dlid_path_bits = Some(read_dlid_path_bits);
    abi.read_completion_ts = Some(read_completion_ts);
    abi.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
    let queue = Box::into_raw(Box::new(Cq {
        abi: UnsafeCell::new(abi),
        born: Generation::now(),
        context,
        number: 0,
        channel,
        completion_events: Acknowledged::default(),
        events: Acknowledged::default(),
        polling: SpinLock::new(),
        taken: Cell::new((ibv_wc::ZERO, 0)),
    }));
    let channels = CqChannels {
        completions: channel.map(|channel| channel.channel.clone()),
        async_events: context.async_events.clone(),
        cookie: context::tag(queue.cast(), context::CQ),
    };
    match context.engine.create_cq(attr.entries as usize, channels) {
        Ok(number) => {
            // SAFETY: the object is new, and no other thread has a pointer to it yet; a queue that is not in
            // use has no events.
            unsafe {
                (*queue).number = number;
                (*queue).abi.get_mut().handle = number;
            }
            context.retain();
            if let Some(channel) = channel {
                channel.count(1);
            }
            Ok(queue.cast())
        }
        Err(refusal) => {
            // SAFETY: the queue was not created, so nothing else refers to the box made above.
            unsafe { take_back::<Cq>(queue.cast()) };
            Err(refused(refusal))
        }
    }
}

/// # Safety
/// `context` and `channel` are null or live objects created by this library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    entries: c_int,
    cookie: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    pointer(|| {
        let entries = u32::try_from(entries).map_err(|_| libc::EINVAL)?;
        let vector = u32::try_from(vector).map_err(|_| libc::EINVAL)?;
        // SAFETY: the caller of `ibv_create_cq` guarantees that `context` and `channel` are null or live
        // objects created by this library.
        Ok(unsafe { create(context, &CqAttributes { entries, cookie, channel, vector })? }.cast())
    })
}

/// # Safety
/// The arguments must satisfy ibv_create_cq_ex(3).
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    pointer(|| {
        // SAFETY: the caller of `ibv_create_cq_ex` guarantees that `attr` is null or valid for reads.
        let attr = unsafe { attr.as_ref() }.ok_or(libc::EINVAL)?;
        let has = |mask| attr.comp_mask & mask != 0;
        if attr.comp_mask & !(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) != 0 {
            return Err(libc::EINVAL);
        }
        let flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
        if attr.wc_flags & !WC_FLAGS_SUPPORTED != 0
            || (has(IBV_CQ_INIT_ATTR_MASK_FLAGS) && attr.flags & !flags != 0)
        {
            return Err(unsupported("ibv_create_cq_ex: some of these flags"));
        }
        if has(IBV_CQ_INIT_ATTR_MASK_PD) {
            // SAFETY: the caller of `ibv_create_cq_ex` guarantees that `attr.parent_domain` is null or a
            // live protection domain created by this library.
            unsafe { given::<Pd>(attr.parent_domain)? };
        }
        let &ibv_cq_init_attr_ex { cqe: entries, cq_context: cookie, channel, comp_vector: vector, .. } =
            attr;
        // SAFETY: the caller of `ibv_create_cq_ex` guarantees that `context` and `channel` are null or live
        // objects created by this library.
        unsafe { create(context, &CqAttributes { entries, cookie, channel, vector }) }
    })
}

/// # Safety
/// `cq` is null or a live CQ created by this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, entries: c_int) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_resize_cq` guarantees that `cq` is null or a live CQ created by this
        // library.
        let queue = unsafe { given::<Cq>(cq.cast())? };
        let most = queue.context.engine.bounds().cq_entries_max;
        let room =
            usize::try_from(entries).ok().filter(|room| (1..=most).contains(room)).ok_or(libc::EINVAL)?;
        // This fails if more completions are queued than the new size holds.
        queue.context.engine.resize_cq(queue.number, room).map_err(|_| libc::EINVAL)?;
        let abi = queue.abi();
        // SAFETY: `abi` points to the C struct inside this live object; programs only read it.
        unsafe { (*abi).cqe = entries };
        Ok(())
    })
}

/// # Safety
/// `cq` is null or a live CQ created by this library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_destroy_cq` guarantees that `cq` is null or a live CQ created by this
        // library.
        let queue = unsafe { given::<Cq>(cq.cast())? };
        queue.context.engine.destroy_cq(queue.number).map_err(refused)?;
        let cookie = queue.cookie();
        if let Some(channel) = queue.channel {
            channel.channel.forget(|event| *event == cookie);
            queue.completion_events.wait();
            channel.count(-1);
        }
        queue.context.async_events.forget(|event| event.cookie == cookie);
        queue.events.wait();
        queue.context.release();
        // SAFETY: the pointer came from the call that created the object, and no event refers to it any more.
        unsafe { take_back::<Cq>(cq.cast()) };
        Ok(())
    })
}

// ---- channels

impl CompChannel {
    fn count(&self, change: isize) {
        let queues =
            self.queues.fetch_add(change.cast_unsigned(), Ordering::Relaxed).wrapping_add_signed(change);
        let abi = self.abi();
        // SAFETY: `abi` points to the C struct inside this live object; programs only read it.
        unsafe { (*abi).refcnt = queues as c_int };
    }
}

/// # Safety
/// `context` is null or an open context created by this library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    pointer(|| {
        // SAFETY: the caller of `ibv_create_comp_channel` guarantees that `context` is null or an open
        // context created by this library.
        let context = unsafe { Context::given(context)? };
        let channel = Channel::new().map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))?;
        context.retain();
        let abi = ibv_comp_channel { context: context.abi(), fd: channel.number(), refcnt: 0 };
        let abi = UnsafeCell::new(abi);
        let (channel, queues) = (Arc::new(channel), AtomicUsize::new(0));
        Ok(CompChannel { abi, born: Generation::now(), context, channel, queues }.give())
    })
}

/// # Safety
/// `channel` is null or a live completion channel created by this library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_destroy_comp_channel` guarantees that `channel` is null or a live
        // completion channel created by this library.
        let object = unsafe { given::<CompChannel>(channel)? };
        if object.queues.load(Ordering::Relaxed) > 0 {
            return Err(libc::EBUSY);
        }
        object.context.engine.forget_channel(&object.channel);
        object.context.release();
        // SAFETY: the pointer came from the call that created the object, and no queue uses the channel.
        unsafe { take_back::<CompChannel>(channel) };
        Ok(())
    })
}

/// # Safety
/// `channel` is null or a live completion channel created by this library; `cq` and `cookie` are null or
/// valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cookie: *mut *mut c_void,
) -> c_int {
    value_or_minus_one(|| {
        // SAFETY: the caller of `ibv_get_cq_event` guarantees that `channel` is null or a live completion
        // channel created by this library.
        let channel = unsafe { given::<CompChannel>(channel)? };
        if cq.is_null() || cookie.is_null() {
            return Err(libc::EINVAL);
        }
        let of = |event: u64| core::ptr::with_exposed_provenance_mut::<ibv_cq_ex>(event as usize);
        let note = |event: &u64| {
            // SAFETY: a CQ is freed only after its events have been removed from the channel.
            if let Ok(queue) = unsafe { given::<Cq>(of(*event)) } {
                queue.completion_events.deliver();
            }
        };
        let event = channel
            .context
            .engine
            .next_event_noting(&channel.channel, Duration::MAX, note)
            .map_err(|error| errno_of_wait(&error))?;
        // SAFETY: the CQ cannot be destroyed before this event is acknowledged; the caller guarantees that
        // `cq` and `cookie` are valid for writes.
        unsafe {
            cq.write(of(event).cast());
            cookie.write((*of(event)).cq_context);
        }
        Ok(0)
    })
}

/// # Safety
/// `cq` is null or a live CQ created by this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint) {
    catch_panics((), || {
        // SAFETY: the caller of `ibv_ack_cq_events` guarantees that `cq` is null or a live CQ created by
        // this library.
        if let Ok(queue) = unsafe { given::<Cq>(cq.cast()) } {
            let abi = queue.abi();
            // SAFETY: `abi` points to the C struct inside this live object; programs only read it.
            unsafe { (*abi).comp_events_completed = (*abi).comp_events_completed.wrapping_add(count) };
            queue.completion_events.acknowledge(count);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(kind: Kind, immediate: Option<u64>, invalidated: Option<u32>) -> Completion {
        Completion {
            id: 7,
            status: Status::Success,
            kind,
            bytes: 100,
            qp: 0x12_3456,
            immediate,
            invalidated,
            source: None,
        }
    }

    #[test]
    fn completions_are_converted_to_work_completions() {
        let check = |kind, immediate, invalidated, opcode, bytes, data: u32, flags| {
            let wc = completion(&completed(kind, immediate, invalidated));
            assert_eq!(
                (wc.opcode, wc.byte_len, wc.imm_data, wc.wc_flags),
                (opcode, bytes, data, flags),
                "{kind:?}"
            );
            assert_eq!((wc.wr_id, wc.qp_num, wc.status), (7, 0x12_3456, IBV_WC_SUCCESS));
        };
        let data = 0x0102_0304u32;
        check(Kind::Send, None, None, IBV_WC_SEND, 100, 0, 0);
        check(Kind::FetchAdd, None, None, IBV_WC_FETCH_ADD, 100, 0, 0);
        check(Kind::CompareSwap, None, None, IBV_WC_COMP_SWAP, 100, 0, 0);
        check(Kind::Receive, None, None, IBV_WC_RECV, 100, 0, 0);
        check(Kind::Receive, Some(data.into()), None, IBV_WC_RECV, 100, data.to_be(), IBV_WC_WITH_IMM);
        let eight = u64::from(data) << 32 | 70_000;
        check(
            Kind::ReceiveImmediate,
            Some(eight),
            None,
            IBV_WC_RECV_RDMA_WITH_IMM,
            70_000,
            data.to_be(),
            IBV_WC_WITH_IMM,
        );
        check(Kind::Receive, None, Some(9), IBV_WC_RECV, 100, 9, IBV_WC_WITH_INV);
        let datagram = Completion { source: Some(5), ..completed(Kind::Receive, None, None) };
        let wc = completion(&datagram);
        assert_eq!((wc.src_qp, wc.wc_flags), (5, IBV_WC_GRH));
    }
}
