//! Connections: connecting, accepting, rejecting, disconnecting (rdma_connect(3), rdma_accept(3),
//! rdma_reject(3), rdma_disconnect(3)).
//!
//! Purpose     gives each side exactly one event about the outcome of a connection attempt and one about the
//!             end of the connection.
//! Events      the engine calls back under its lock; the callback only queues an event.
//! Rejection   a connection request is rejected if there is no listener, if the backlog is full, or if the
//!             program rejects it. The peer gets the event REJECTED, with status -ECONNREFUSED on iWARP and
//!             otherwise with a reason from IBTA table 12.6.7.2.
//! XRC         an initiator connects, a target accepts; both in the port space RDMA_PS_IB.
//! Read depths `responder_resources` and `initiator_depth` have the values on the wire (RFC 6581, section
//!             9). An event contains the values that its receiver may use; 255 requests the device's
//!             maximum.
//! Withdrawal  a request stays queued when its peer disconnects, but accepting it then fails with
//!             ECONNRESET.
//! Limits      a queue pair that the program created itself is found by its number on the identifier's
//!             device.

use super::channel::{self, ConnParam, DatagramParam, QueuedEvent, complete};
use super::id::{Id, Phase, State, end_request, with};
use super::{address, below, queues, resolve};
use crate::abi::*;
use crate::device::{Transport, board, transport};
use crate::ffi::errno_of;
use crate::log::unsupported;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use kiban_rdma_runtime::verbs::{
    CmEvent, CmEventHandler, ConnectError, ConnectRequest, DatagramPeer, Engine, OpenError, PortSpace,
};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// InfiniBand reject reasons: invalid service ID, and consumer reject.
const NO_SERVICE: c_int = 8;
const CONSUMER: c_int = 28;

impl CmEventHandler for Id {
    fn on_event(&self, event: CmEvent) -> Option<Arc<dyn CmEventHandler>> {
        let me = self.me()?;
        match event {
            CmEvent::ConnectRequest(request) => return me.on_connect_request(request),
            CmEvent::Connected { private_data, depths, .. } => {
                me.on_connected(ConnParam { private_data, depths, datagrams: None })
            }
            CmEvent::Resolved { peer, private_data, .. } => {
                let DatagramPeer { address, qpn, qkey } = peer;
                let (gid, context) = (address::gid(address), null_mut());
                let datagrams = Some(DatagramParam { gid, qpn, qkey, context });
                me.on_connected(ConnParam { private_data, depths: (0, 0), datagrams });
            }
            CmEvent::Failed { error, .. } => me.on_failed(error),
            CmEvent::Retried { to, local, .. } => {
                let mut state = me.state();
                state.end = Some(to);
                me.comes_from(&mut state, local);
            }
            CmEvent::Disconnected { .. } => me.on_gone(),
        }
        None
    }
}

impl Id {
    /// Records the local address, both here and in the program's struct.
    fn comes_from(&self, state: &mut State, local: Option<SocketAddr>) {
        let Some(local) = local.map(address::plain) else { return };
        state.local = Some(local);
        // SAFETY: the struct lives as long as the identifier.
        unsafe { (*self.abi()).route.addr.src = address::written(local) };
    }

    fn on_connect_request(self: &Arc<Id>, request: ConnectRequest) -> Option<Arc<dyn CmEventHandler>> {
        let mut state = self.state();
        let (local, peer) = (address::plain(request.local), address::plain(request.peer));
        let other_family = state.local.is_some_and(|at| at.is_ipv4() != local.is_ipv4());
        if state.phase != Phase::Listening
            || state.waiting >= state.backlog
            || state.family_only && other_family
        {
            return None;
        }
        let id = Id::new(state.channel.clone(), false);
        {
            let mut new = id.state();
            new.phase = Phase::Requested;
            new.end = Some(request.end);
            new.local = Some(local);
            new.peer = Some(peer);
            new.depths = request.depths;
        }
        state.waiting += 1;
        let ConnectRequest { private_data, depths, .. } = request;
        state.channel.tell(QueuedEvent {
            id: id.clone(),
            listener: Some(self.clone()),
            event: RDMA_CM_EVENT_CONNECT_REQUEST,
            status: 0,
            says: Some(ConnParam { private_data, depths, datagrams: None }),
        });
        Some(id)
    }

    fn on_connected(self: &Arc<Id>, says: ConnParam) {
        let mut state = self.state();
        let event = match state.phase {
            Phase::Connecting if state.has_program_qp && below::is_ib() && says.datagrams.is_none() => {
                RDMA_CM_EVENT_CONNECT_RESPONSE
            }
            Phase::Connecting | Phase::Accepting => RDMA_CM_EVENT_ESTABLISHED,
            _ => return,
        };
        state.phase = Phase::Connected;
        state.depths = says.depths;
        state.channel.tell(QueuedEvent {
            id: self.clone(),
            listener: None,
            event,
            status: 0,
            says: Some(says),
        });
    }

    fn on_failed(self: &Arc<Id>, error: ConnectError) {
        let mut state = self.state();
        if !matches!(state.phase, Phase::Connecting | Phase::Accepting) {
            return;
        }
        state.phase = Phase::Over;
        let refused = |reason| if below::is_ib() { reason } else { -libc::ECONNREFUSED };
        let (event, status, private_data) = match error {
            ConnectError::Rejected(says) => (RDMA_CM_EVENT_REJECTED, refused(CONSUMER), says),
            ConnectError::Unreachable => (RDMA_CM_EVENT_REJECTED, refused(NO_SERVICE), Vec::new()),
            ConnectError::Timeout => (RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT, Vec::new()),
            ConnectError::PortUnreachable => (RDMA_CM_EVENT_UNREACHABLE, -libc::ECONNREFUSED, Vec::new()),
            ConnectError::Fault(_) => (RDMA_CM_EVENT_CONNECT_ERROR, -libc::EPROTO, Vec::new()),
            ConnectError::Lost => (RDMA_CM_EVENT_REJECTED, -libc::ECONNRESET, Vec::new()),
            ConnectError::NotServed { status, private_data } => {
                (RDMA_CM_EVENT_UNREACHABLE, c_int::from(status), private_data)
            }
            _ => (RDMA_CM_EVENT_CONNECT_ERROR, -libc::EIO, Vec::new()),
        };
        let says = (!private_data.is_empty()).then(|| ConnParam { private_data, ..ConnParam::default() });
        state.channel.tell(QueuedEvent { id: self.clone(), listener: None, event, status, says });
    }

    fn on_gone(self: &Arc<Id>) {
        let mut state = self.state();
        match state.phase {
            Phase::Connected => {
                state.phase = Phase::Over;
                state.channel.tell(QueuedEvent::plain(self, RDMA_CM_EVENT_DISCONNECTED, 0));
                if below::is_ib() {
                    state.channel.tell(QueuedEvent::plain(self, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0));
                }
            }
            Phase::Connecting | Phase::Accepting => {
                drop(state);
                self.on_failed(ConnectError::Lost);
            }
            _ => {}
        }
    }
}

/// The parameters with which a program connects.
struct Wanted {
    /// The engine's number for the queue pair.
    qp: u32,
    private_data: Vec<u8>,
    /// The maximum numbers of outstanding reads by the peer and by this side.
    depths: (u16, u16),
}

/// Returns the port space of an identifier.
fn space(id: &Arc<Id>) -> PortSpace {
    // SAFETY: the struct lives as long as the identifier.
    match unsafe { (*id.abi()).ps } {
        RDMA_PS_UDP => PortSpace::Udp,
        RDMA_PS_IB => PortSpace::Ib,
        _ => PortSpace::Tcp,
    }
}

/// Returns whether an identifier is for datagrams. Fails with EOPNOTSUPP if it is, and the transport has no
/// exchange of queue pair numbers (SIDR).
fn is_for_datagrams(id: &Arc<Id>) -> Result<bool, c_int> {
    match space(id) {
        PortSpace::Udp if transport() != Transport::Roce || board().is_some() => {
            Err(unsupported("rdma_cm: datagrams (RDMA_PS_UDP) with this transport"))
        }
        space => Ok(space == PortSpace::Udp),
    }
}

/// Returns the private data that a program passes: its parameters', or else the identifier's.
///
/// # Safety
/// `private_data` is null or points to `private_data_len` bytes.
unsafe fn private_data(param: Option<&rdma_conn_param>, says: &[u8]) -> Vec<u8> {
    // SAFETY: the caller of `private_data` guarantees that the pointer is null or points to so many bytes.
    let passed = param.map_or_else(Vec::new, |param| unsafe {
        channel::private_data(param.private_data, param.private_data_len)
    });
    if passed.is_empty() { says.to_vec() } else { passed }
}

/// # Safety
/// `private_data` is null or points to `private_data_len` bytes.
unsafe fn wanted(id: &Arc<Id>, param: Option<&rdma_conn_param>) -> Result<Wanted, c_int> {
    let bounds = below::engine()?.bounds();
    let place = id.abi();
    // SAFETY: the struct lives as long as the identifier, and its queue pair was made by `rdma_create_qp`.
    let own = unsafe { (*place).qp };
    let (offered, device, says, ack_timeout) = {
        let state = id.state();
        let offered = if state.phase == Phase::Requested { state.depths } else { (u16::MAX, u16::MAX) };
        (offered, state.device, state.says.clone(), state.ack_timeout)
    };
    let qp = if own.is_null() {
        let number = param.ok_or(libc::EINVAL)?.qp_num;
        let device = device.ok_or(libc::EINVAL)?;
        below::engine()?.qp_named(device, number).ok_or(libc::EINVAL)?
    } else {
        // SAFETY: the queue pair was created by `rdma_create_qp`, and the program may not destroy it during
        // this call (rdma_destroy_qp(3)).
        unsafe { crate::queue::qp::connecting(own, ack_timeout) }.ok_or(libc::EINVAL)?
    };
    // A depth of 255 requests the device's maximum, capped at the peer's offer.
    let depth = |requested: Option<u8>, most: u16, offered: u16| match requested {
        None | Some(u8::MAX) => Ok(most.min(offered)),
        Some(requested) if u16::from(requested) > most => Err(libc::EINVAL),
        Some(requested) => Ok(u16::from(requested)),
    };
    let most = |most: u16| most.min(u16::from(u8::MAX));
    let depths = (
        depth(param.map(|param| param.responder_resources), most(bounds.ird_max), offered.0)?,
        depth(param.map(|param| param.initiator_depth), most(bounds.ord_max), offered.1)?,
    );
    // SAFETY: the caller of `wanted` guarantees that `private_data` is null or points to `private_data_len`
    // bytes.
    let private_data = unsafe { private_data(param, &says) };
    id.state().has_program_qp = own.is_null();
    Ok(Wanted { qp, private_data, depths })
}

fn of_open_error(error: OpenError) -> c_int {
    match error {
        OpenError::TooMany => libc::ENOMEM,
        OpenError::Gone => libc::ECONNRESET,
        // `PrivateData` and `InUse` are the caller's errors.
        _ => libc::EINVAL,
    }
}

/// Moves an identifier from one phase to another, or fails if it is in the wrong one.
fn step(state: &mut State, from: Phase, to: Phase) -> Result<(), c_int> {
    if state.phase != from {
        return Err(libc::EINVAL);
    }
    state.phase = to;
    Ok(())
}

/// # Safety
/// `id` is an identifier created by this library; `param` is null or valid, and its private data has the
/// length in `private_data_len`.
#[unsafe(export_name = "kiban_rdma_connect")]
pub(super) unsafe extern "C" fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    with(id, |id| {
        // SAFETY: the caller of `rdma_connect` guarantees that `param` is null or valid for reads.
        let param = unsafe { param.as_ref() };
        let is_datagrams = is_for_datagrams(id)?;
        if id.state().phase != Phase::Route {
            return Err(libc::EINVAL);
        }
        if is_datagrams {
            // SAFETY: the caller of `rdma_connect` guarantees that the private data has the length in
            // `private_data_len`.
            return unsafe { resolve_service(id, param) };
        }
        // SAFETY: the caller of `rdma_connect` guarantees that the private data has the length in
        // `private_data_len`.
        let Wanted { qp, private_data, depths } = unsafe { wanted(id, param)? };
        let (from, to) = {
            let mut state = id.state();
            step(&mut state, Phase::Route, Phase::Connecting)?;
            (state.local.map(|local| local.ip()), state.peer.ok_or(libc::EINVAL)?)
        };
        let engine = below::engine()?;
        began(id, engine, engine.connect(qp, from, (space(id), to), depths, &private_data, id.listens()))
    })
}

/// Begins to resolve a service of datagrams to its queue pair. Linux needs no queue pair of this side for
/// that.
///
/// # Safety
/// The private data of `param` is null or has the length in `private_data_len`.
unsafe fn resolve_service(id: &Arc<Id>, param: Option<&rdma_conn_param>) -> Result<c_int, c_int> {
    let (device, from, to, data) = {
        let mut state = id.state();
        step(&mut state, Phase::Route, Phase::Connecting)?;
        // SAFETY: the caller of `resolve_service` guarantees it.
        let data = unsafe { private_data(param, &state.says) };
        let bound = (state.device, state.local, state.peer);
        let (Some(device), Some(local), Some(peer)) = bound else { return Err(libc::EINVAL) };
        (device, local, peer, data)
    };
    let engine = below::engine()?;
    began(id, engine, engine.resolve(device, from, to, &data, id.listens()))
}

/// Records that a connection or resolution has begun, or that it could not.
fn began(id: &Arc<Id>, engine: &Engine, outcome: io::Result<Result<u32, OpenError>>) -> Result<c_int, c_int> {
    match outcome {
        Ok(Ok(end)) => {
            // The engine may already have retried the connection, with a new connection number that an
            // event has recorded.
            let end = *id.state().end.get_or_insert(end);
            let local = engine.local_address(end);
            let mut state = id.state();
            state.reserved = None;
            // If the engine retries between the two calls, the event has recorded the new address.
            if state.end == Some(end) {
                id.comes_from(&mut state, local);
            }
        }
        Ok(Err(error)) => {
            id.state().phase = Phase::Route;
            return Err(of_open_error(error));
        }
        Err(error) => {
            // There is no route. This is known at once, but reported in an event like any other outcome.
            let error = errno_of(&error);
            let mut state = id.state();
            state.phase = Phase::Over;
            state.channel.tell(QueuedEvent::plain(id, RDMA_CM_EVENT_UNREACHABLE, -error));
        }
    }
    Ok(complete(id))
}

/// # Safety
/// `id` is an identifier created by this library.
#[unsafe(export_name = "kiban_rdma_establish")]
pub(super) unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    with(id, |id| {
        let state = id.state();
        // The engine has already sent the reply.
        if state.has_program_qp && state.phase == Phase::Connected { Ok(0) } else { Err(libc::EINVAL) }
    })
}

/// # Safety
/// `id` is an identifier created by this library.
#[unsafe(export_name = "kiban_rdma_listen")]
pub(super) unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    with(id, |id| {
        is_for_datagrams(id)?;
        resolve::listen(id, backlog, space(id)).map(|()| 0)
    })
}

/// # Safety
/// `listener` is an identifier created by this library, and `id` is null or valid for a write.
#[unsafe(export_name = "kiban_rdma_get_request")]
pub(super) unsafe extern "C" fn rdma_get_request(
    listener: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    with(listener, |listener| {
        if id.is_null() || !listener.state().own {
            return Err(libc::EINVAL);
        }
        let event = channel::await_event(listener)?;
        // SAFETY: the event was just delivered and has not been acknowledged.
        let request = unsafe { &*event };
        if request.status != 0 {
            return Err(request.status.abs());
        }
        if request.event != RDMA_CM_EVENT_CONNECT_REQUEST {
            return Err(libc::EINVAL);
        }
        let wanted = listener.state().queue_wanted;
        if let Some(mut attributes) = wanted {
            let new = super::id::find(request.id)?;
            // SAFETY: the struct lives as long as the listener.
            let pd = unsafe { (*listener.abi()).pd };
            queues::create_qp(&new, pd, &mut attributes)?;
        }
        // SAFETY: `id` is not null, and both structs live as long as their identifiers. The event now belongs
        // to the new identifier.
        unsafe {
            (*listener.abi()).event = core::ptr::null_mut();
            (*request.id).event = event;
            *id = request.id;
        }
        Ok(0)
    })
}

/// # Safety
/// `id` is an identifier created by this library; `param` is null or valid, and its private data has the
/// length in `private_data_len`.
#[unsafe(export_name = "kiban_rdma_accept")]
pub(super) unsafe extern "C" fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    with(id, |id| {
        // SAFETY: the caller of `rdma_accept` guarantees that `param` is null or valid for reads.
        let param = unsafe { param.as_ref() };
        let is_datagrams = is_for_datagrams(id)?;
        if id.state().phase != Phase::Requested {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller of `rdma_accept` guarantees that the private data has the length in
        // `private_data_len`.
        let Wanted { qp, private_data, depths } = unsafe { wanted(id, param)? };
        let end = {
            let mut state = id.state();
            step(&mut state, Phase::Requested, Phase::Accepting)?;
            state.end.ok_or(libc::EINVAL)?
        };
        if let Err(error) = below::engine()?.accept(end, qp, depths, &private_data) {
            let mut state = id.state();
            if state.phase == Phase::Accepting {
                state.phase = Phase::Requested;
            }
            return Err(of_open_error(error));
        }
        if is_datagrams {
            // The peer may send now; no event follows.
            id.state().phase = Phase::Connected;
            return Ok(0);
        }
        Ok(complete(id))
    })
}

/// # Safety
/// `id` is an identifier created by this library; the private data is null or has `bytes` bytes.
unsafe fn reject(id: *mut rdma_cm_id, private_data: *const c_void, bytes: u8) -> c_int {
    with(id, |id| {
        // SAFETY: the caller of `reject` guarantees that `private_data` is null or points to `bytes` bytes.
        let private_data = unsafe { channel::private_data(private_data, bytes) };
        let end = {
            let mut state = id.state();
            step(&mut state, Phase::Requested, Phase::Over)?;
            state.end.take().ok_or(libc::EINVAL)?
        };
        // A peer that has left needs no reply.
        if below::engine()?.reject(end, &private_data).is_err() {
            end_request(end);
        }
        Ok(0)
    })
}

/// # Safety
/// `id` is an identifier created by this library; the private data is null or has `bytes` bytes.
#[unsafe(export_name = "kiban_rdma_reject")]
pub(super) unsafe extern "C" fn rdma_reject(id: *mut rdma_cm_id, data: *const c_void, bytes: u8) -> c_int {
    // SAFETY: the caller of `rdma_reject` guarantees that `data` is null or points to `bytes` bytes.
    unsafe { reject(id, data, bytes) }
}

/// # Safety
/// `id` is an identifier created by this library; the private data is null or has `bytes` bytes.
#[unsafe(export_name = "kiban_rdma_reject_ece")]
pub(super) unsafe extern "C" fn rdma_reject_ece(
    id: *mut rdma_cm_id,
    data: *const c_void,
    bytes: u8,
) -> c_int {
    // SAFETY: the caller of `rdma_reject_ece` guarantees that `data` is null or points to `bytes` bytes.
    unsafe { reject(id, data, bytes) }
}

/// # Safety
/// `id` is an identifier created by this library.
#[unsafe(export_name = "kiban_rdma_disconnect")]
pub(super) unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    with(id, |id| {
        let (phase, end, waits) = {
            let state = id.state();
            (state.phase, state.end, state.own)
        };
        match (phase, end) {
            // There is no connection that could end.
            _ if is_for_datagrams(id)? => return Err(libc::EINVAL),
            (Phase::Connected, Some(end)) => below::engine()?.disconnect(end),
            // The peer disconnected first. On a synchronous identifier, that event may still be pending.
            (Phase::Over, Some(_)) if !waits || !channel::has_event(id) => return Ok(0),
            (Phase::Over, Some(_)) => {}
            _ => return Err(libc::EINVAL),
        }
        Ok(complete(id))
    })
}

/// # Safety
/// `id` is an identifier created by this library.
#[unsafe(export_name = "kiban_rdma_notify")]
pub(super) unsafe extern "C" fn rdma_notify(id: *mut rdma_cm_id, _event: ibv_event_type) -> c_int {
    // There is nothing to do: over TCP, the peer's ready-to-use message (RTU) cannot be lost if its data
    // arrives.
    with(id, |_| Ok(0))
}

/// # Safety
/// `id` is a live identifier, and `ece` is null or valid for reads.
#[unsafe(export_name = "kiban_rdma_set_local_ece")]
pub(super) unsafe extern "C" fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    with(id, |id| {
        // SAFETY: the caller of `rdma_set_local_ece` guarantees that `ece` is null or valid for reads.
        let ece = unsafe { ece.as_ref() }.ok_or(libc::EINVAL)?;
        if ece.comp_mask != 0 {
            return Err(libc::EINVAL);
        }
        id.state().ece = *ece;
        Ok(0)
    })
}

/// # Safety
/// `id` is a live identifier, and `ece` is null or valid for a write.
#[unsafe(export_name = "kiban_rdma_get_remote_ece")]
pub(super) unsafe extern "C" fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    with(id, |_| {
        // SAFETY: the caller of `rdma_get_remote_ece` guarantees that `ece` is null or valid for writes.
        let ece = unsafe { ece.as_mut() }.ok_or(libc::EINVAL)?;
        // Peers send no ECE options.
        *ece = ibv_ece::ZERO;
        Ok(0)
    })
}
