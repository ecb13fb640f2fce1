//! Queue pairs (ibv_create_qp(3), ibv_modify_qp(3), ibv_query_qp(3)).
//!
//! State           the program moves a queue pair through the states of verbs; the engine acts on the
//!                 changes.
//! Connection      for an out-of-band connection, the change to RTR specifies the peer and the change to RTS
//!                 starts the send queue. The destination QPN 0, which no queue pair has, means that the
//!                 connection manager establishes the connection and that state changes are only recorded. On
//!                 an iWARP device, the connection manager establishes all connections.
//! Attributes      are stored and can be queried. Attributes that have no meaning over TCP have no other
//!                 effect: PSNs after the setup, MTUs, service levels, and retry counts except in the peer
//!                 timeout.
//! Peer timeout    if the peer does not connect, sends wait four times as long as the standard's retries
//!                 would take in total, but at least two seconds.
//! Receive path    a message that finds no posted receive stalls its stream; hardware would send an RNR NAK.
//! Access          the access flags of a queue pair that is connected out of band limit what its peer may do.
//! XRC             an initiator is a queue pair without receives. A target has no protection domain and no
//!                 queues, only an XRC domain ([`super::xrc`]).
//! Not implemented Send Queue Drained (SQD), alternate paths and raw packets: they fail with EOPNOTSUPP or
//!                 EINVAL.

use crate::abi::*;
use crate::ah::destination;
use crate::context::{self, Context};
use crate::device::{Transport, board, transport};
use crate::engine::{Generation, Object, given, refused, take_back};
use crate::ffi::{errno_of, errno_of_told, errno_or_zero, pointer, value_or_minus_one};
use crate::log::unsupported;
use crate::memory::{Pd, access};
use crate::queue::cq::Cq;
use crate::queue::srq::Srq;
use crate::queue::states::is_change;
use crate::queue::wr;
use crate::queue::xrc::Xrcd;
use crate::sync::acknowledged::Acknowledged;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicU32, Ordering};
use kiban_rdma_runtime::verbs::{
    Engine, Peer, QpAttributes, QueuePair, RequestError, Sending, Service, State,
};
use std::io;
use std::net::Ipv6Addr;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The shortest time that sends wait for a peer.
const PEER_TIMEOUT_MIN: Duration = Duration::from_secs(2);
/// Queue pair numbers have 24 bits.
const NUMBER_MAX: u32 = 0xff_ffff;

/// A queue pair.
#[repr(C)]
pub(crate) struct Qp {
    abi: UnsafeCell<ibv_qp_ex>,
    born: Generation,
    pub(crate) context: &'static Context,
    /// The engine's number for the queue pair.
    pub(crate) number: u32,
    pub(crate) service: Service,
    pub(crate) inline_max: usize,
    pub(crate) send_elements_max: usize,
    pub(crate) receive_elements_max: usize,
    init_attr: ibv_qp_init_attr,
    /// The state that the program has set.
    state: AtomicU32,
    kept: Mutex<ibv_qp_attr>,
    /// Unacknowledged asynchronous events.
    pub(crate) events: Acknowledged,
    pub(crate) batch: wr::Batch,
}

// SAFETY: the type is `repr(C)`, and its first field is an `UnsafeCell` of the C struct.
unsafe impl Object for Qp {
    type Abi = ibv_qp_ex;

    fn born(&self) -> Generation {
        self.born
    }
}

/// Records the acknowledgement timeout of a queue pair that the connection manager connects, for
/// ibv_query_qp(3). Returns the engine's number for the queue pair.
///
/// # Safety
/// `qp` is null or a live queue pair created by this library.
pub(crate) unsafe fn connecting(qp: *mut ibv_qp, ack_timeout: u8) -> Option<u32> {
    // SAFETY: the caller of `connecting` guarantees that `qp` is null or a live queue pair created by this
    // library.
    let qp = unsafe { given::<Qp>(qp.cast()) }.ok()?;
    qp.kept().timeout = ack_timeout;
    Some(qp.number)
}

impl Qp {
    /// Returns whether the program's own state changes allow sends to be posted. The engine checks
    /// everything else.
    #[inline]
    pub(crate) fn takes_sends(&self) -> bool {
        self.state.load(Ordering::Relaxed) != IBV_QPS_RTR || self.state() == IBV_QPS_ERR
    }

    /// Returns whether receives may be posted.
    #[inline]
    pub(crate) fn takes_receives(&self) -> bool {
        self.state.load(Ordering::Relaxed) != IBV_QPS_RESET || self.state() != IBV_QPS_RESET
    }

    fn kept(&self) -> MutexGuard<'_, ibv_qp_attr> {
        kiban_os::lock(&self.kept)
    }

    /// Returns the state that the program has set, unless the engine reports an error, or a connection made
    /// by the connection manager.
    fn state(&self) -> ibv_qp_state {
        let recorded = self.state.load(Ordering::Relaxed);
        match self.context.engine.state(self.number) {
            Ok(State::Error) | Err(_) => IBV_QPS_ERR,
            Ok(State::Rts) => IBV_QPS_RTS,
            Ok(_) => recorded,
        }
    }

    fn set_state(&self, state: ibv_qp_state) {
        self.state.store(state, Ordering::Relaxed);
        let abi = self.abi();
        // SAFETY: `abi` points to the C struct inside this live object; programs only read it.
        unsafe { (*abi).qp_base.state = state };
    }
}

fn of_io(error: &io::Error) -> c_int {
    match error.kind() {
        io::ErrorKind::AddrInUse => errno_of_told(error),
        _ => error.raw_os_error().unwrap_or(libc::EIO),
    }
}

// ---- creating

/// Returns the service of a queue pair that is not a target of extended reliable connections.
fn service_of(qp_type: ibv_qp_type) -> Result<Service, c_int> {
    match (qp_type, transport()) {
        (IBV_QPT_UD | IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV, _) if board().is_some() => {
            Err(unsupported("ibv_create_qp: this type of queue pair on the NIC of a board"))
        }
        (IBV_QPT_RC, _) => Ok(Service::Connected),
        (IBV_QPT_UC, Transport::Ib | Transport::Roce | Transport::Efe) => Ok(Service::Unreliable),
        (IBV_QPT_UD, transport) if transport.has_datagrams() => Ok(Service::Datagrams),
        (IBV_QPT_XRC_SEND, Transport::Roce) => Ok(Service::XrcInitiator),
        (IBV_QPT_RAW_PACKET, _) => {
            Err(unsupported("ibv_create_qp: raw packet queue pairs (use a packet socket)"))
        }
        (IBV_QPT_DRIVER, _) => {
            Err(unsupported("ibv_create_qp: queue pairs of a vendor's driver, such as DC (use RC or XRC)"))
        }
        (IBV_QPT_UC | IBV_QPT_UD | IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV, _) => {
            Err(unsupported("ibv_create_qp: this type of queue pair with this transport"))
        }
        _ => Err(libc::EINVAL),
    }
}

/// Returns a new object, which has no queue pair of the engine yet.
fn allocate(
    context: &'static Context,
    service: Service,
    attr: &ibv_qp_init_attr,
    ops: Option<u64>,
) -> *mut Qp {
    let mut abi = ibv_qp_ex::ZERO;
    let base = &mut abi.qp_base;
    (base.context, base.qp_context) = (context.abi(), attr.qp_context);
    (base.send_cq, base.recv_cq, base.srq) = (attr.send_cq, attr.recv_cq, attr.srq);
    (base.state, base.qp_type) = (IBV_QPS_RESET, attr.qp_type);
    if let Some(ops) = ops {
        wr::fill(&mut abi, ops);
    }
    let mut kept = ibv_qp_attr::ZERO;
    kept.cap = attr.cap;
    kept.path_mig_state = IBV_MIG_MIGRATED;
    Box::into_raw(Box::new(Qp {
        abi: UnsafeCell::new(abi),
        born: Generation::now(),
        context,
        number: 0,
        service,
        inline_max: context.engine.bounds().inline_bytes_max,
        send_elements_max: attr.cap.max_send_sge as usize,
        receive_elements_max: attr.cap.max_recv_sge as usize,
        init_attr: *attr,
        state: AtomicU32::new(IBV_QPS_RESET),
        kept: Mutex::new(kept),
        events: Acknowledged::default(),
        batch: wr::Batch::new(ops.is_some()),
    }))
}

/// Completes an object with the engine's number and the peers' number, and returns it to the program.
///
/// # Safety
/// The object is new, and no other thread has a pointer to it yet.
unsafe fn complete(qp: *mut Qp, (number, name): (u32, u32)) -> *mut ibv_qp {
    // SAFETY: the caller of `complete` guarantees that nothing else uses the object.
    unsafe {
        (*qp).number = number;
        let base = &mut (*qp).abi.get_mut().qp_base;
        (base.handle, base.qp_num) = (number, name);
        (*qp).context.retain();
    }
    qp.cast()
}

/// Creates the engine's queue pair for a new object, and returns the object to the program.
///
/// # Safety
/// As for [`complete`].
unsafe fn create_in_engine(qp: *mut Qp, attributes: QpAttributes) -> Result<*mut ibv_qp, c_int> {
    // SAFETY: the caller of `create_in_engine` guarantees that nothing else uses the object.
    let (context, service) = unsafe { ((*qp).context, (*qp).service) };
    let made = context.engine.create_qp(QueuePair {
        address: context.device.address,
        service,
        attributes,
        async_events: context.async_events.clone(),
        cookie: context::tag(qp.cast(), context::QP),
    });
    match made.map_err(|error| of_io(&error)).and_then(|made| made.map_err(refused)) {
        // SAFETY: the caller of `create_in_engine` guarantees that nothing else uses the object.
        Ok(numbers) => Ok(unsafe { complete(qp, numbers) }),
        Err(error) => {
            // SAFETY: the queue pair was not created, so nothing else refers to the object.
            unsafe { take_back::<Qp>(qp.cast()) };
            Err(error)
        }
    }
}

/// Returns an object for a queue pair that the engine already has: another handle of a target.
pub(crate) fn adopt(
    context: &'static Context,
    service: Service,
    attr: &ibv_qp_init_attr,
    numbers: (u32, u32),
) -> *mut ibv_qp {
    let qp = allocate(context, service, attr, None);
    // SAFETY: the object was made above.
    unsafe { complete(qp, numbers) }
}

/// # Safety
/// Each object to which the attributes refer is null or a live object created by this library.
unsafe fn create(
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
    ops: Option<u64>,
) -> Result<*mut ibv_qp, c_int> {
    // SAFETY: the caller of `create` guarantees that `pd` is null or a live protection domain created by
    // this library.
    let domain = unsafe { given::<Pd>(pd)? };
    let context = domain.context;
    let service = service_of(attr.qp_type)?;
    let ops = match ops {
        Some(ops) if ops & !wr::supported(service) != 0 => {
            return Err(unsupported("ibv_create_qp_ex: some of these send operations"));
        }
        ops => ops,
    };
    if service == Service::XrcInitiator {
        // It receives nothing: its fields for receives are ignored.
        (attr.recv_cq, attr.srq) = (attr.send_cq, core::ptr::null_mut());
        (attr.cap.max_recv_wr, attr.cap.max_recv_sge) = (0, 0);
    }
    // SAFETY: the caller of `create` guarantees that `attr.send_cq` is null or a live CQ created by this
    // library and `attr.recv_cq` is null or a live CQ created by this library.
    let (send_cq, receive_cq) =
        unsafe { (given::<Cq>(attr.send_cq.cast())?, given::<Cq>(attr.recv_cq.cast())?) };
    let srq = if attr.srq.is_null() {
        None
    } else {
        // SAFETY: the caller of `create` guarantees that `attr.srq` is null or a live SRQ created by this
        // library.
        Some(unsafe { given::<Srq>(attr.srq)? })
    };
    if srq.is_some_and(|srq| srq.domain != domain.number) {
        return Err(libc::EINVAL);
    }
    let bounds = context.engine.bounds();
    let cap = &mut attr.cap;
    if srq.is_some() {
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    }
    let work = cap.max_send_wr.max(cap.max_recv_wr) as usize;
    let elements = cap.max_send_sge.max(cap.max_recv_sge) as usize;
    if work > bounds.work_max
        || elements > bounds.sges_max
        || cap.max_inline_data as usize > bounds.inline_bytes_max
    {
        return Err(libc::EINVAL);
    }
    // A larger inline size costs nothing, and some programs use the returned value.
    cap.max_inline_data = bounds.inline_bytes_max as u32;
    let attributes = QpAttributes {
        pd: domain.number,
        send_cq: send_cq.number,
        receive_cq: receive_cq.number,
        srq: srq.map(|srq| srq.number),
        send_work_max: cap.max_send_wr as usize,
        receive_work_max: cap.max_recv_wr as usize,
        send_sges_max: cap.max_send_sge as usize,
        receive_sges_max: cap.max_recv_sge as usize,
        inline_bytes_max: bounds.inline_bytes_max,
        signal_all: attr.sq_sig_all != 0,
        waits_for_receives: true,
    };
    let qp = allocate(context, service, attr, ops);
    // SAFETY: the object was made above.
    unsafe {
        (*qp).abi.get_mut().qp_base.pd = pd;
        create_in_engine(qp, attributes)
    }
}

/// Creates a target of extended reliable connections.
///
/// # Safety
/// `xrcd` is null or a live XRC domain created by this library.
unsafe fn create_target(
    context: &'static Context,
    xrcd: *mut ibv_xrcd,
    attr: &ibv_qp_init_attr,
) -> Result<*mut ibv_qp, c_int> {
    // SAFETY: the caller of `create_target` guarantees that `xrcd` is null or a live XRC domain created by
    // this library.
    let service = Service::XrcTarget(unsafe { given::<Xrcd>(xrcd)? }.number);
    let mut own = ibv_qp_init_attr::ZERO;
    (own.qp_context, own.qp_type) = (attr.qp_context, attr.qp_type);
    let qp = allocate(context, service, &own, None);
    // SAFETY: the object was made above.
    unsafe { create_in_engine(qp, QpAttributes::TARGET) }
}

/// # Safety
/// The arguments must satisfy ibv_create_qp(3).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    pointer(|| {
        // SAFETY: the caller of `ibv_create_qp` guarantees that `attr` is null or valid for reads and
        // writes.
        unsafe { create(pd, attr.as_mut().ok_or(libc::EINVAL)?, None) }
    })
}

/// # Safety
/// The arguments must satisfy ibv_create_qp_ex(3).
pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    pointer(|| {
        // SAFETY: the caller of `ibv_create_qp_ex` guarantees that `context` is null or an open context
        // created by this library and `attr` is null or valid for reads and writes.
        let (context, attr) = unsafe { (Context::given(context)?, attr.as_mut().ok_or(libc::EINVAL)?) };
        let has = |mask| attr.comp_mask & mask != 0;
        let known = IBV_QP_INIT_ATTR_PD
            | IBV_QP_INIT_ATTR_XRCD
            | IBV_QP_INIT_ATTR_CREATE_FLAGS
            | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        if attr.comp_mask & !known != 0 || (has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr.create_flags != 0) {
            return Err(unsupported("ibv_create_qp_ex: some of these attributes"));
        }
        let is_target =
            attr.qp_type == IBV_QPT_XRC_RECV && transport() == Transport::Roce && board().is_none();
        if !has(if is_target { IBV_QP_INIT_ATTR_XRCD } else { IBV_QP_INIT_ATTR_PD }) {
            return Err(libc::EINVAL);
        }
        if is_target {
            // SAFETY: the struct starts with the fields of the shorter one, and the caller of
            // `ibv_create_qp_ex` guarantees that `attr.xrcd` is null or a live XRC domain.
            return unsafe { create_target(context, attr.xrcd, &*core::ptr::from_ref(attr).cast()) };
        }
        let ops = has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS).then_some(attr.send_ops_flags);
        let pd = attr.pd;
        // SAFETY: the struct starts with the fields of the shorter one.
        unsafe { create(pd, &mut *core::ptr::from_mut(attr).cast(), ops) }
    })
}

/// # Safety
/// `qp` is null or a live queue pair created by this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: the caller of `ibv_qp_to_qp_ex` guarantees that `qp` is null or a live queue pair created by
    // this library.
    match unsafe { given::<Qp>(qp.cast()) } {
        Ok(pair) if pair.batch.is_offered() => pair.abi(),
        _ => core::ptr::null_mut(),
    }
}

/// # Safety
/// `qp` is null or a live queue pair created by this library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_destroy_qp` guarantees that `qp` is null or a live queue pair created
        // by this library.
        let pair = unsafe { given::<Qp>(qp.cast())? };
        pair.context.engine.destroy_qp(pair.number).map_err(refused)?;
        let cookie = context::tag(qp.cast(), context::QP);
        pair.context.async_events.forget(|event| event.cookie == cookie);
        pair.events.wait();
        pair.context.release();
        // SAFETY: the pointer came from the call that created the object, and no event refers to it any more.
        unsafe { take_back::<Qp>(qp.cast()) };
        Ok(())
    })
}

// ---- modifying

/// Returns whether the values of the attributes are valid.
fn are_valid(qp: &Qp, attr: &ibv_qp_attr, mask: c_uint) -> bool {
    let has = |attribute| mask & attribute != 0;
    let bounds = qp.context.engine.bounds();
    let wrong = has(IBV_QP_PORT) && attr.port_num != 1
        || has(IBV_QP_PKEY_INDEX) && attr.pkey_index != 0
        || has(IBV_QP_AV) && destination(qp.context.device, &attr.ah_attr).is_none()
        || has(IBV_QP_ALT_PATH)
        || has(IBV_QP_PATH_MTU) && !(IBV_MTU_256..=IBV_MTU_4096).contains(&attr.path_mtu)
        || has(IBV_QP_DEST_QPN) && attr.dest_qp_num > NUMBER_MAX
        || has(IBV_QP_MAX_QP_RD_ATOMIC) && u16::from(attr.max_rd_atomic) > bounds.ord_max
        || has(IBV_QP_MAX_DEST_RD_ATOMIC) && u16::from(attr.max_dest_rd_atomic) > bounds.ird_max
        || has(IBV_QP_TIMEOUT) && attr.timeout > 31
        || has(IBV_QP_RETRY_CNT) && attr.retry_cnt > 7
        || has(IBV_QP_RNR_RETRY) && attr.rnr_retry > 7;
    !wrong
}

/// Stores the attributes that the mask selects.
fn keep(kept: &mut ibv_qp_attr, attr: &ibv_qp_attr, mask: c_uint) {
    macro_rules! fields {
        ($($flag:ident: $($field:ident)*;)*) => {
            $(if mask & $flag != 0 { $(kept.$field = attr.$field;)* })*
        };
    }
    fields! {
        IBV_QP_EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify;
        IBV_QP_ACCESS_FLAGS: qp_access_flags;
        IBV_QP_PKEY_INDEX: pkey_index;
        IBV_QP_PORT: port_num;
        IBV_QP_QKEY: qkey;
        IBV_QP_AV: ah_attr;
        IBV_QP_PATH_MTU: path_mtu;
        IBV_QP_TIMEOUT: timeout;
        IBV_QP_RETRY_CNT: retry_cnt;
        IBV_QP_RNR_RETRY: rnr_retry;
        IBV_QP_RQ_PSN: rq_psn;
        IBV_QP_MAX_QP_RD_ATOMIC: max_rd_atomic;
        IBV_QP_MIN_RNR_TIMER: min_rnr_timer;
        IBV_QP_SQ_PSN: sq_psn;
        IBV_QP_MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        IBV_QP_PATH_MIG_STATE: path_mig_state;
        IBV_QP_DEST_QPN: dest_qp_num;
    }
    // PSNs have 24 bits; higher bits of a program's value are ignored.
    (kept.rq_psn, kept.sq_psn) = (kept.rq_psn & NUMBER_MAX, kept.sq_psn & NUMBER_MAX);
    // So are those above the 5 bits of this code: DLSlime passes 32, and cards accept it.
    kept.min_rnr_timer &= 31;
}

/// Returns the time that a timeout code stands for (IBTA 11.2.5.2): 4.096 us times 2^timeout; 0 means no
/// timeout.
fn ack_timeout(timeout: u8) -> Option<Duration> {
    (timeout > 0).then(|| Duration::from_nanos(4096u64 << timeout))
}

fn peer_timeout(timeout: u8, retries: u8) -> Option<Duration> {
    ack_timeout(timeout).map(|once| (once * (u32::from(retries) + 1) * 4).max(PEER_TIMEOUT_MIN))
}

/// Returns whether the connection manager establishes the connection.
fn is_managed_connection(with: &ibv_qp_attr) -> bool {
    with.dest_qp_num == 0 || transport() == Transport::Iwarp
}

/// Sets the peer's access rights. On connections made by the connection manager, peers have all the access
/// that the STags allow.
fn allow(qp: &Qp, with: &ibv_qp_attr) -> Result<(), c_int> {
    qp.context.engine.set_remote_access(qp.number, access(with.qp_access_flags)).map_err(refused)
}

/// Applies a state change to the engine.
fn change(qp: &Qp, from: ibv_qp_state, to: ibv_qp_state, with: &ibv_qp_attr) -> Result<(), c_int> {
    let engine = qp.context.engine;
    let is_ud = qp.service == Service::Datagrams;
    let is_managed = !is_ud && is_managed_connection(with) || from == IBV_QPS_RTS;
    match to {
        IBV_QPS_RESET => engine.reset(qp.number).map_err(refused),
        IBV_QPS_ERR => engine.modify_to_error(qp.number).map_err(refused),
        IBV_QPS_INIT if from == IBV_QPS_RESET => match engine.modify_to_init(qp.number, with.qkey) {
            // The connection manager has already initialised or connected the queue pair.
            Err(RequestError::BadState(_))
                if transport() == Transport::Iwarp || qp.state() == IBV_QPS_RTS =>
            {
                Ok(())
            }
            done => done.map_err(refused),
        },
        // iWARP has no out-of-band connections.
        IBV_QPS_RTR if transport() == Transport::Iwarp && with.dest_qp_num != 0 => {
            Err(unsupported("ibv_modify_qp: connections without rdma_cm over iWARP"))
        }
        IBV_QPS_RTR if !is_managed && transport() == Transport::Roce && board().is_some() => {
            Err(unsupported("ibv_modify_qp: RoCEv2 connections without rdma_cm on the NIC of a board"))
        }
        IBV_QPS_RTR if !is_managed => {
            if !is_ud {
                allow(qp, with)?;
            }
            let gid = destination(qp.context.device, &with.ah_attr);
            let peer = gid.filter(|_| !is_ud).map(|gid| Peer {
                address: Ipv6Addr::from(gid).to_canonical(),
                qpn: with.dest_qp_num,
                initial_psn: with.rq_psn,
                reads: with.max_dest_rd_atomic.into(),
                path_mtu: 128 << with.path_mtu,
                rnr_timer: with.min_rnr_timer,
            });
            let done = engine.modify_to_rtr(qp.number, peer).map_err(|error| of_io(&error))?;
            done.map_err(refused)
        }
        IBV_QPS_RTS if !is_managed => {
            let sending = Sending {
                initial_psn: with.sq_psn,
                reads: with.max_rd_atomic.into(),
                connect_timeout: peer_timeout(with.timeout, with.retry_cnt),
                ack_timeout: ack_timeout(with.timeout),
                retries: with.retry_cnt,
                rnr_retries: with.rnr_retry,
            };
            engine.modify_to_rts(qp.number, sending).map_err(refused)
        }
        _ => Ok(()),
    }
}

/// # Safety
/// `qp` is null or a live queue pair created by this library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_modify_qp` guarantees that `qp` is null or a live queue pair created by
        // this library and `attr` is null or valid for reads.
        let (qp, attr) = unsafe { (given::<Qp>(qp.cast())?, attr.as_ref().ok_or(libc::EINVAL)?) };
        let mask = mask.cast_unsigned();
        let mut kept = qp.kept();
        let recorded = qp.state.load(Ordering::Relaxed);
        let actual = qp.state();
        // A program may still make state changes after the connection manager has already made the
        // connection.
        let from = if actual == IBV_QPS_ERR { actual } else { recorded };
        let to = if mask & IBV_QP_STATE != 0 { attr.qp_state } else { from };
        let is_current = mask & IBV_QP_CUR_STATE == 0 || [from, actual].contains(&attr.cur_qp_state);
        let is_known = match transport() {
            Transport::Ib | Transport::Roce | Transport::Efe => is_change(from, to, qp.service, mask),
            Transport::Iwarp => to <= IBV_QPS_ERR && (to != IBV_QPS_INIT || from <= IBV_QPS_INIT),
        };
        if !is_current || !is_known || !are_valid(qp, attr, mask) {
            return Err(libc::EINVAL);
        }
        if matches!(to, IBV_QPS_SQD | IBV_QPS_SQE) {
            return Err(unsupported("ibv_modify_qp: the states SQD and SQE"));
        }
        let mut with = *kept;
        keep(&mut with, attr, mask);
        let is_ud = qp.service == Service::Datagrams;
        if is_ud && mask & IBV_QP_QKEY != 0 {
            qp.context.engine.set_qkey(qp.number, with.qkey).map_err(refused)?;
        }
        if mask & IBV_QP_ACCESS_FLAGS != 0 && from >= IBV_QPS_RTR && !is_ud && !is_managed_connection(&with) {
            allow(qp, &with)?;
        }
        change(qp, from, to, &with)?;
        *kept = with;
        qp.set_state(to);
        Ok(())
    })
}

/// # Safety
/// The arguments must satisfy ibv_query_qp(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    answer: *mut ibv_qp_attr,
    _mask: c_int,
    init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_query_qp` guarantees that `qp` is null or a live queue pair created by
        // this library and `answer` is null or valid for reads and writes.
        let (pair, answer) = unsafe { (given::<Qp>(qp.cast())?, answer.as_mut().ok_or(libc::EINVAL)?) };
        // iWARP has no state before INIT: its idle state stands for both (cxgb4 reports the same).
        let actual = match pair.state() {
            IBV_QPS_RESET if transport() == Transport::Iwarp => IBV_QPS_INIT,
            state => state,
        };
        *answer = *pair.kept();
        (answer.qp_state, answer.cur_qp_state) = (actual, actual);
        let abi = pair.abi();
        // SAFETY: `abi` points to the C struct inside this live object; programs only read it.
        unsafe { (*abi).qp_base.state = actual };
        // SAFETY: the caller of `ibv_query_qp` guarantees that `init_attr` is null or valid for reads and
        // writes.
        if let Some(init_attr) = unsafe { init_attr.as_mut() } {
            *init_attr = pair.init_attr;
        }
        Ok(())
    })
}

/// Returns 0, because bytes may become visible in any order although TCP delivers them in order.
///
/// # Safety
/// `qp` is null or a live queue pair created by this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_qp_data_in_order(qp: *mut ibv_qp, _operation: c_uint, _flags: u32) -> c_int {
    value_or_minus_one(|| {
        // SAFETY: the caller of `ibv_query_qp_data_in_order` guarantees that `qp` is null or a live queue
        // pair created by this library.
        unsafe { given::<Qp>(qp.cast())? };
        Ok(0)
    })
}

// ---- multicast

/// # Safety
/// `qp` is null or a live queue pair created by this library, and `gid` is null or valid for reads.
unsafe fn for_group(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    work: impl FnOnce(&Engine, u32, [u8; 16]) -> io::Result<()>,
) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `for_group` guarantees it.
        let (qp, gid) = unsafe { (given::<Qp>(qp.cast())?, gid.as_ref().ok_or(libc::EINVAL)?) };
        if transport() != Transport::Roce {
            return Err(unsupported("ibv_attach_mcast: groups with this transport"));
        }
        work(qp.context.engine, qp.number, gid.bytes()).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => of_io(&error),
            _ => errno_of(&error),
        })
    })
}

/// # Safety
/// The arguments must satisfy ibv_attach_mcast(3).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
    // SAFETY: the caller of `ibv_attach_mcast` guarantees that `qp` and `gid` are null or valid.
    unsafe { for_group(qp, gid, Engine::attach) }
}

/// # Safety
/// The arguments must satisfy ibv_attach_mcast(3).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
    // SAFETY: the caller of `ibv_detach_mcast` guarantees that `qp` and `gid` are null or valid.
    unsafe { for_group(qp, gid, Engine::detach) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_timeout_covers_all_retries() {
        assert_eq!(peer_timeout(0, 7), None);
        assert_eq!(peer_timeout(14, 7), Some(Duration::from_nanos(4096 << 14) * 32));
        assert_eq!(peer_timeout(1, 0), Some(PEER_TIMEOUT_MIN));
        assert_eq!(peer_timeout(31, 7), Some(Duration::from_nanos(4096 << 31) * 32));
    }
}
