//! Identifiers: the sockets of the connection manager (rdma_create_id(3), rdma_destroy_id(3),
//! rdma_migrate_id(3)).
//!
//! ```text
//!   Idle ── bind ──▶ Bound ── listen ──▶ Listening
//!     └─ resolve_addr ─┴──▶ Address ── resolve_route ──▶ Route ── connect ──▶ Connecting ──┬──▶ Connected ──▶ Over
//!                          a request ──▶ Requested ──────── accept ─────────▶ Accepting ───┘
//! ```
//!
//! State       the program's struct ([`rdma_cm_id`]) and our state ([`Id`]) have the same lifetime.
//! Synchronous an identifier for which the program passed no channel has a channel of its own, and calls on
//!             it wait for their events.
//! Destruction waits until the last event is acknowledged (rdma_destroy_id(3)). Requests that the program has
//!             not received yet are rejected.
//! Limits      a call on a freed struct fails with EINVAL, because the struct is no longer in the list.

use super::channel::{self, Chan, QueuedEvent, acknowledge};
use super::world::world;
use super::{address, below};
use crate::abi::*;
use crate::ffi::{catch_panics, fail_with_errno};
use crate::log::unsupported;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use kiban_os::{ignore_poison, lock};
use kiban_rdma_runtime::tcp::ReservedPort;
use kiban_rdma_runtime::verbs::CmEventHandler;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};

/// The phase of an identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Idle,
    Bound,
    Address,
    Route,
    Listening,
    Connecting,
    Requested,
    Accepting,
    Connected,
    Over,
    Dead,
}

/// A multicast group that an identifier has joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Joined {
    pub(super) group: IpAddr,
    /// Whether the identifier's queue pair is attached to it.
    pub(super) is_attached: bool,
}

/// The acknowledgement timeout if the program sets none: 67 ms.
const ACK_TIMEOUT: u8 = 14;

/// Our state of an identifier.
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) channel: Arc<Chan>,
    /// The channel is the identifier's own, so calls are synchronous.
    pub(super) own: bool,
    /// The engine's number for the connection.
    pub(super) end: Option<u32>,
    /// The engine's number for the listener.
    pub(super) listener: Option<u32>,
    /// Reserves the port until the identifier listens.
    pub(super) reserved: Option<ReservedPort>,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    /// The device to which the identifier is bound.
    pub(super) device: Option<IpAddr>,
    /// The number of requests queued in the channel, and the maximum number.
    pub(super) waiting: u32,
    pub(super) backlog: u32,
    /// The maximum numbers of outstanding reads by the peer and by this side: first as offered by a request,
    /// then as negotiated.
    pub(super) depths: (u16, u16),
    /// The program created the queue pair itself, using verbs.
    pub(super) has_program_qp: bool,
    /// The number of events that the program has not acknowledged.
    pub(super) unacknowledged: u32,
    pub(super) shares: bool,
    pub(super) family_only: bool,
    /// The acknowledgement timeout of the queue pair, as a code (rdma_set_option(3)).
    pub(super) ack_timeout: u8,
    /// The queue pair attributes for all connections to this listener (rdma_create_ep(3)).
    pub(super) queue_wanted: Option<ibv_qp_init_attr>,
    /// The private data to send if the program passes none (`ai_connect`).
    pub(super) says: Vec<u8>,
    pub(super) ece: ibv_ece,
    /// The multicast groups that the identifier has joined.
    pub(super) joined: Vec<Joined>,
}

// SAFETY: the raw pointers (in `queue_wanted`) belong to the program and are only passed back to it.
unsafe impl Send for State {}

/// An identifier.
pub(super) struct Id {
    place: usize,
    me: Weak<Id>,
    state: Mutex<State>,
    /// Signalled when an event is acknowledged.
    pub(super) acknowledged: Condvar,
}

impl Id {
    /// Creates an identifier, which is not in the list yet.
    pub(super) fn new(channel: Arc<Chan>, own: bool) -> Arc<Id> {
        let place = Box::into_raw(Box::new(rdma_cm_id::ZERO)) as usize;
        let state = State {
            phase: Phase::Idle,
            channel,
            own,
            end: None,
            listener: None,
            reserved: None,
            local: None,
            peer: None,
            device: None,
            waiting: 0,
            backlog: 0,
            depths: (0, 0),
            has_program_qp: false,
            unacknowledged: 0,
            shares: false,
            family_only: false,
            ack_timeout: ACK_TIMEOUT,
            queue_wanted: None,
            says: Vec::new(),
            ece: ibv_ece::ZERO,
            joined: Vec::new(),
        };
        Arc::new_cyclic(|me| Id {
            place,
            me: me.clone(),
            state: Mutex::new(state),
            acknowledged: Condvar::new(),
        })
    }

    /// Returns the program's struct.
    pub(super) fn abi(&self) -> *mut rdma_cm_id {
        self.place as *mut rdma_cm_id
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn me(&self) -> Option<Arc<Id>> {
        self.me.upgrade()
    }

    /// Returns the identifier as the engine's event handler.
    pub(super) fn listens(self: &Arc<Id>) -> Arc<dyn CmEventHandler> {
        self.clone()
    }

    /// Detaches the queue pair from a multicast group.
    pub(super) fn detach(&self, joined: Joined) {
        // SAFETY: the struct lives as long as the identifier.
        let qp = unsafe { (*self.abi()).qp };
        if joined.is_attached && !qp.is_null() {
            let gid = address::gid(joined.group);
            // SAFETY: the queue pair was created by `rdma_create_qp`, and `gid` is a local variable. This
            // fails if the program has detached the queue pair itself.
            let _ = unsafe { below::ibv_detach_mcast(qp, &gid, 0) };
        }
    }

    /// Detaches the queue pair, which is about to be destroyed, from all multicast groups.
    pub(super) fn detach_all(&self) {
        let mut joined = self.state().joined.clone();
        joined.iter_mut().for_each(|joined| {
            self.detach(*joined);
            joined.is_attached = false;
        });
        self.state().joined = joined;
    }

    /// Rejects a request that was not delivered to the program.
    pub(super) fn refuse(&self) {
        let end = {
            let mut state = self.state();
            state.phase = Phase::Dead;
            state.end.take()
        };
        if let Some(end) = end {
            end_request(end);
        }
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: the struct was boxed together with the identifier, whose last reference is being dropped.
        unsafe {
            let place = Box::from_raw(self.abi());
            if !place.route.path_rec.is_null() {
                drop(Box::from_raw(place.route.path_rec));
            }
        }
    }
}

/// Rejects a request, or releases it if the peer has disconnected.
pub(super) fn end_request(end: u32) {
    // Without an engine there are no requests.
    if let Ok(engine) = below::engine()
        && engine.reject(end, &[]).is_err()
    {
        engine.release(end);
    }
}

/// Finds the identifier to which a program's pointer refers.
pub(super) fn find(id: *const rdma_cm_id) -> Result<Arc<Id>, c_int> {
    lock(&world().ids).get(&(id as usize)).cloned().ok_or(libc::EINVAL)
}

/// Finds the identifier to which a program's pointer refers, and runs `work` on it. Returns the result of
/// `work`, or -1 with errno set.
pub(super) fn with(id: *const rdma_cm_id, work: impl FnOnce(&Arc<Id>) -> Result<c_int, c_int>) -> c_int {
    catch_panics(fail_with_errno(libc::EIO), || {
        find(id).and_then(|id| work(&id)).unwrap_or_else(fail_with_errno)
    })
}

/// Creates an identifier. If `channel` is null, the identifier gets a channel of its own and is synchronous.
///
/// # Safety
/// `channel` is null, live, or recently destroyed.
pub(super) unsafe fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    ps: rdma_port_space,
    qp_type: ibv_qp_type,
) -> Result<Arc<Id>, c_int> {
    let own = channel.is_null();
    let (place, chan) = if own {
        channel::open()?
    } else {
        // SAFETY: the caller of `create` guarantees that `channel` is null, live, or recently destroyed.
        (channel, unsafe { channel::find(channel) }.ok_or(libc::EINVAL)?)
    };
    let id = Id::new(chan, own);
    // SAFETY: the struct is new, and no other thread has a pointer to it yet.
    unsafe {
        (*id.abi()).channel = place;
        (*id.abi()).context = context;
        (*id.abi()).ps = ps;
        (*id.abi()).qp_type = qp_type;
    }
    lock(&world().ids).insert(id.abi() as usize, id.clone());
    Ok(id)
}

/// Returns the kind of queue pair that belongs to a port space.
fn qp_type(ps: rdma_port_space) -> ibv_qp_type {
    match ps {
        RDMA_PS_IPOIB | RDMA_PS_UDP => IBV_QPT_UD,
        _ => IBV_QPT_RC,
    }
}

/// # Safety
/// `channel` is null or a channel created by this library; `id` is null or valid for a write.
#[unsafe(export_name = "kiban_rdma_create_id")]
pub(super) unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: rdma_port_space,
) -> c_int {
    catch_panics(-1, || {
        if id.is_null() {
            return fail_with_errno(libc::EINVAL);
        }
        match ps {
            RDMA_PS_TCP | RDMA_PS_UDP => {}
            // The kernel has this port space only for InfiniBand devices.
            RDMA_PS_IB => {}
            RDMA_PS_IPOIB => return fail_with_errno(unsupported("rdma_create_id: RDMA_PS_IPOIB")),
            _ => return fail_with_errno(libc::EINVAL),
        }
        // SAFETY: the caller of `rdma_create_id` guarantees that `channel` is null, live, or recently
        // destroyed.
        match unsafe { create(channel, context, ps, qp_type(ps)) } {
            Ok(made) => {
                // SAFETY: the caller guarantees that `id` is valid for a write.
                unsafe { *id = made.abi() };
                0
            }
            Err(error) => fail_with_errno(error),
        }
    })
}

fn take_end(id: &Id) -> Option<u32> {
    id.state().end.take()
}

/// Ends an identifier, after waiting until all its events are acknowledged.
pub(super) fn destroy(id: &Arc<Id>) {
    lock(&world().ids).remove(&(id.abi() as usize));
    lock(&world().taken).retain(|taken| taken.id != id.abi() as usize);
    let (end, was_requested, listener, channel, own) = {
        let mut state = id.state();
        let was_requested = state.phase == Phase::Requested;
        state.phase = Phase::Dead;
        state.reserved = None;
        (state.end.take(), was_requested, state.listener.take(), state.channel.clone(), state.own)
    };
    id.detach_all();
    // From here on, no event is delivered for the identifier.
    if let (Some(listener), Ok(engine)) = (listener, below::engine()) {
        engine.unlisten(listener);
    }
    match (end, below::engine()) {
        (Some(end), Ok(_)) if was_requested => end_request(end),
        (Some(end), Ok(engine)) => {
            engine.release(end);
            // The engine may have retried between the two calls and recorded a new connection number.
            while let Some(end) = take_end(id) {
                engine.release(end);
            }
        }
        _ => {}
    }
    let mut refused = Vec::new();
    channel.forget(|note| {
        let is_request = note.listener.as_ref().is_some_and(|listener| Arc::ptr_eq(listener, id));
        if is_request {
            refused.push(note.id.clone());
        }
        is_request || Arc::ptr_eq(&note.id, id)
    });
    refused.iter().for_each(|request| request.refuse());
    // SAFETY: the struct lives as long as the identifier.
    let event = unsafe { (*id.abi()).event };
    if own && !event.is_null() {
        // This fails if the program has already acknowledged the event.
        let _ = acknowledge(event);
    }
    let mut state = id.state();
    while state.unacknowledged > 0 {
        state = ignore_poison(id.acknowledged.wait(state));
    }
    drop(state);
    if own {
        // SAFETY: the channel was created for this identifier.
        unsafe { channel::close((*id.abi()).channel) };
    }
}

/// # Safety
/// `id` is an identifier created by this library that the caller does not use again.
#[unsafe(export_name = "kiban_rdma_destroy_id")]
pub(super) unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    with(id, |id| {
        destroy(id);
        Ok(0)
    })
}

/// # Safety
/// `id` is a live identifier, and `channel` is null or a channel created by this library.
#[unsafe(export_name = "kiban_rdma_migrate_id")]
pub(super) unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    with(id, |id| {
        let own = channel.is_null();
        let (place, chan) = if own {
            channel::open()?
        } else {
            // SAFETY: the caller of `rdma_migrate_id` guarantees that `channel` is null, live, or recently
            // destroyed.
            (channel, unsafe { channel::find(channel) }.ok_or(libc::EINVAL)?)
        };
        let id_place = id.abi();
        // SAFETY: the struct lives as long as the identifier.
        let (before_place, event) = unsafe { ((*id_place).channel, (*id_place).event) };
        let was_own = {
            let mut state = id.state();
            let before = std::mem::replace(&mut state.channel, chan.clone());
            // Move pending events, in order, before any new event is delivered.
            let mut moved = Vec::new();
            if !Arc::ptr_eq(&before, &chan) {
                let mut kept = Vec::new();
                while let Some(note) = before.take() {
                    let is_ours = Arc::ptr_eq(note.listener.as_ref().unwrap_or(&note.id), id);
                    if is_ours { &mut moved } else { &mut kept }.push(note);
                }
                kept.into_iter().for_each(|note| before.tell(note));
            }
            moved.into_iter().for_each(|note: QueuedEvent| chan.tell(note));
            std::mem::replace(&mut state.own, own)
        };
        // SAFETY: the struct lives as long as the identifier, which `with` found in the list.
        unsafe { (*id_place).channel = place };
        if was_own {
            if !event.is_null() {
                // This fails if the program has already acknowledged the event.
                let _ = acknowledge(event);
                // SAFETY: the struct lives as long as the identifier, which `with` found in the list.
                unsafe { (*id_place).event = null_mut() };
            }
            // SAFETY: the channel was created for this identifier.
            unsafe { channel::close(before_place) };
        }
        // On return, no event for this identifier is left in the old channel (rdma_migrate_id(3)).
        let mut state = id.state();
        while state.unacknowledged > 0 {
            state = ignore_poison(id.acknowledged.wait(state));
        }
        Ok(0)
    })
}
