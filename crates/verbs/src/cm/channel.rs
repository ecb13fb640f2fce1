//! Events and their channels (rdma_create_event_channel(3), rdma_get_cm_event(3), rdma_ack_cm_event(3)).
//!
//! Purpose     delivers each event once and in order, through a file descriptor that programs can poll. The
//!             data to which an event points stays valid until the event is acknowledged.
//! Waiting     a thread waits in poll(2) on the file descriptor, so that signal handlers and
//!             `pthread_cancel` work as in rdma-core. Meanwhile, the engine's helper thread drives the NIC.
//!             A thread holds none of our locks at a cancellation point.
//! Destruction if a thread destroys a channel on which another thread waits, or is about to wait, the other
//!             thread waits forever, as in rdma-core. Programs such as `rping` do this when they exit. A
//!             program that joins the waiting thread without cancelling it hangs, as with rdma-core.
//! Limits      a signal whose handler was installed with SA_RESTART does not end the wait. In rdma-core,
//!             read(2) is restarted in that case.

use super::id::{Id, Phase};
use super::world::world;
use super::{address, below, device, queues};
use crate::abi::*;
use crate::ffi::{catch_panics, errno, fail_with_errno, set_errno};
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use kiban_os::lock;
use kiban_rdma_runtime::verbs::Channel;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// A channel.
pub(super) type Chan = Channel<QueuedEvent>;

/// The number of destroyed channels that are remembered.
const CLOSED_MAX: usize = 64;

/// The channels of a process.
#[derive(Default)]
pub(super) struct Channels {
    /// Open channels, indexed by file descriptor instead of address because a program may copy the struct.
    open: HashMap<c_int, Arc<Chan>>,
    /// Recently destroyed channels, oldest first. Their structs are kept so that no new channel gets an
    /// address that another thread may still use.
    closed: VecDeque<Closed>,
}

struct Closed {
    /// The address of the struct, which is freed when the entry is removed.
    place: usize,
    /// Whether its descriptor was blocking.
    waits: bool,
}

impl Channels {
    fn closed(&self, channel: *const rdma_event_channel) -> Option<&Closed> {
        self.closed.iter().find(|closed| closed.place == channel as usize)
    }
}

/// An event to be delivered.
pub(super) struct QueuedEvent {
    pub(super) id: Arc<Id>,
    /// The listener at which a request arrived.
    pub(super) listener: Option<Arc<Id>>,
    pub(super) event: rdma_cm_event_type,
    pub(super) status: c_int,
    /// The connection parameters in an event.
    pub(super) says: Option<ConnParam>,
}

/// The parameters of a connection: the peer's private data, and the maximum numbers of outstanding reads in
/// both directions.
#[derive(Default)]
pub(super) struct ConnParam {
    pub(super) private_data: Vec<u8>,
    pub(super) depths: (u16, u16),
    pub(super) datagrams: Option<DatagramParam>,
}

/// Where an identifier for datagrams sends to.
pub(super) struct DatagramParam {
    pub(super) gid: ibv_gid,
    pub(super) qpn: u32,
    pub(super) qkey: u32,
    /// What the program passed when it joined a multicast group: it stands in the place of private data.
    pub(super) context: *mut c_void,
}

// SAFETY: the pointer belongs to the program and is only passed back to it.
unsafe impl Send for DatagramParam {}

impl QueuedEvent {
    /// Returns an event without connection parameters.
    pub(super) fn plain(id: &Arc<Id>, event: rdma_cm_event_type, status: c_int) -> QueuedEvent {
        QueuedEvent { id: id.clone(), listener: None, event, status, says: None }
    }

    /// Returns the identifier to which the event belongs, which is not destroyed before the event is
    /// acknowledged.
    fn owner(&self) -> &Arc<Id> {
        self.listener.as_ref().unwrap_or(&self.id)
    }
}

/// An event that has been delivered but not acknowledged.
pub(super) struct DeliveredEvent {
    event: rdma_cm_event,
    owner: Arc<Id>,
    /// The event points into it.
    _private_data: Vec<u8>,
}

// SAFETY: the pointers in the event are only passed back to the program, never dereferenced here.
unsafe impl Send for DeliveredEvent {}

/// Creates a channel, adds it to the list, and returns it with its C struct.
pub(super) fn open() -> Result<(*mut rdma_event_channel, Arc<Chan>), c_int> {
    let channel = Chan::new().map_err(|error| error.raw_os_error().unwrap_or(libc::ENOMEM))?;
    let channel = Arc::new(channel);
    let place = Box::into_raw(Box::new(rdma_event_channel { fd: channel.number() }));
    lock(&world().channels).open.insert(channel.number(), channel.clone());
    Ok((place, channel))
}

/// Finds the channel to which a program's pointer refers.
///
/// # Safety
/// `channel` is null, live, or recently destroyed.
pub(super) unsafe fn find(channel: *const rdma_event_channel) -> Option<Arc<Chan>> {
    let channels = lock(&world().channels);
    if channel.is_null() || channels.closed(channel).is_some() {
        return None;
    }
    // SAFETY: the caller of `find` guarantees that `channel` points to a channel; recently destroyed
    // channels are excluded above, and their structs still exist.
    channels.open.get(&unsafe { (*channel).fd }).cloned()
}

/// Destroys a channel. Its file is closed when the last identifier that uses it is destroyed.
///
/// # Safety
/// `channel` came from [`open`], and the caller does not use it again.
pub(super) unsafe fn close(channel: *mut rdma_event_channel) {
    // The descriptor number may be reused as soon as it is closed, so remove the channel from the list first.
    let (closed, forgotten) = {
        let mut channels = lock(&world().channels);
        // SAFETY: the caller of `close` guarantees that `channel` came from `open` and has not been closed.
        let closed = channels.open.remove(unsafe { &(*channel).fd });
        let waits = closed.as_ref().is_some_and(|closed| !closed.is_nonblocking());
        channels.closed.push_back(Closed { place: channel as usize, waits });
        let forgotten = if channels.closed.len() > CLOSED_MAX { channels.closed.pop_front() } else { None };
        (closed, forgotten)
    };
    if let Some(Closed { place, .. }) = forgotten {
        // SAFETY: `open` boxed it, and it has just been removed from the list of closed channels, so `find`
        // can no longer return it.
        drop(unsafe { Box::from_raw(place as *mut rdma_event_channel) });
    }
    if let (Some(closed), Ok(engine)) = (&closed, below::engine()) {
        engine.forget_channel(closed);
    }
    drop(closed);
}

#[unsafe(export_name = "kiban_rdma_create_event_channel")]
pub(super) extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    catch_panics(null_mut(), || match open() {
        Ok((place, _)) => place,
        Err(error) => {
            set_errno(error);
            null_mut()
        }
    })
}

/// # Safety
/// `channel` is null, or a channel that the caller does not use again.
#[unsafe(export_name = "kiban_rdma_destroy_event_channel")]
pub(super) unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    catch_panics((), || {
        // SAFETY: the caller of `rdma_destroy_event_channel` guarantees that `channel` is null, live, or
        // recently destroyed; `close` is called only if it is still in the list.
        unsafe {
            if find(channel).is_some() {
                close(channel);
            }
        }
    });
}

/// The result of checking a channel for events.
enum Found {
    Event(*mut rdma_cm_event),
    Error(c_int),
    /// No event yet; the descriptor becomes readable when there is one.
    Nothing(c_int),
    /// The channel has been destroyed, so no event will arrive.
    Gone,
}

/// Returns the next event of a channel, if there is one.
fn look(channel: &Arc<Chan>) -> Found {
    loop {
        let Some(note) = channel.take() else { break };
        if let Some(event) = deliver(note) {
            return Found::Event(event);
        }
    }
    if !channel.is_nonblocking() {
        return Found::Nothing(channel.number());
    }
    // If a program only polls, this call drives the NIC.
    let found = below::engine().map(|engine| engine.next_event(channel, Duration::ZERO));
    let event = found.ok().and_then(Result::ok).and_then(deliver);
    event.map_or(Found::Error(libc::EAGAIN), Found::Event)
}

/// Converts an event to its C struct and records it as delivered. Returns `None` if the event is no longer
/// valid.
fn deliver(note: QueuedEvent) -> Option<*mut rdma_cm_event> {
    let owner = note.owner().clone();
    // SAFETY: the struct lives as long as the identifier, and nothing changes its port space after it was
    // delivered.
    let is_datagrams = unsafe { (*owner.abi()).ps } == RDMA_PS_UDP;
    let mut event =
        rdma_cm_event { id: note.id.abi(), event: note.event, status: note.status, ..rdma_cm_event::ZERO };
    match note.event {
        RDMA_CM_EVENT_CONNECT_REQUEST => {
            let listener = note.listener.as_ref()?;
            event.listen_id = listener.abi();
            deliver_request(listener, &note.id)?;
        }
        // An identifier for datagrams has no connection, and its queue pair goes on.
        RDMA_CM_EVENT_REJECTED | RDMA_CM_EVENT_UNREACHABLE | RDMA_CM_EVENT_CONNECT_ERROR if !is_datagrams => {
            queues::on_failed(&note.id);
        }
        RDMA_CM_EVENT_ESTABLISHED => queues::on_established(&note.id),
        _ => {}
    }
    let ConnParam { mut private_data, depths, datagrams } = note.says.unwrap_or_default();
    // The length field of the C struct has one byte.
    private_data.truncate(usize::from(u8::MAX));
    let private_data_len = private_data.len() as u8;
    let data = if private_data.is_empty() { core::ptr::null() } else { private_data.as_ptr().cast() };
    let retries = if below::is_ib() { 7 } else { 0 };
    if is_datagrams {
        event.param.ud = rdma_ud_param { private_data: data, private_data_len, ..rdma_ud_param::ZERO };
        if let Some(DatagramParam { gid, qpn, qkey, context }) = datagrams {
            // SAFETY: the union holds parameters for datagrams, which were just written.
            let ud = unsafe { &mut event.param.ud };
            (ud.ah_attr, ud.qp_num, ud.qkey) = (address::route(gid), qpn, qkey);
            if !context.is_null() {
                ud.private_data = context;
            }
        }
    } else if !private_data.is_empty() || depths != (0, 0) {
        event.param.conn = rdma_conn_param {
            private_data: data,
            private_data_len,
            responder_resources: u8::try_from(depths.0).unwrap_or(u8::MAX),
            initiator_depth: u8::try_from(depths.1).unwrap_or(u8::MAX),
            // The maximum, which InfiniBand peers request.
            retry_count: retries,
            rnr_retry_count: retries,
            ..rdma_conn_param::ZERO
        };
    }
    owner.state().unacknowledged += 1;
    let mut unacknowledged = Box::new(DeliveredEvent { event, owner, _private_data: private_data });
    let place = &raw mut unacknowledged.event;
    lock(&world().events).insert(place as usize, unacknowledged);
    Some(place)
}

/// Passes the identifier of a connect request to the program. Returns `None` after rejecting the request if
/// no device has its local address or no event channel can be created.
fn deliver_request(listener: &Arc<Id>, id: &Arc<Id>) -> Option<()> {
    let (own, channel) = {
        let mut state = listener.state();
        state.waiting = state.waiting.saturating_sub(1);
        (state.own, state.channel.clone())
    };
    let theirs = if own { open().ok() } else { None };
    if own && theirs.is_none() {
        id.refuse();
        return None;
    }
    let place = id.abi();
    // SAFETY: both structs are valid: the listener's until this event is acknowledged; the new one is not
    // shared yet.
    unsafe {
        let listens = &*listener.abi();
        (*place).channel = listens.channel;
        (*place).context = listens.context;
        (*place).ps = listens.ps;
        (*place).qp_type = listens.qp_type;
    }
    {
        let mut state = id.state();
        state.channel = channel;
        if let Some((place_of_channel, channel)) = theirs {
            state.own = true;
            state.channel = channel;
            // SAFETY: the new struct is not shared yet, so nothing else accesses it.
            unsafe { (*place).channel = place_of_channel };
        }
    }
    let (local, peer) = {
        let state = id.state();
        (state.local, state.peer)
    };
    if !local.is_some_and(|local| device::bind_device(id, local.ip())) {
        if own {
            // SAFETY: `own` is set, so the channel was created for this identifier above, and nothing else
            // uses it.
            unsafe { close((*place).channel) };
        }
        id.refuse();
        return None;
    }
    // SAFETY: the new struct is not shared before it is inserted into the list of identifiers below.
    unsafe {
        if let (Some(local), Some(peer)) = (local, peer) {
            (*place).route.addr.src = address::written(local);
            (*place).route.addr.dst = address::written(peer);
        }
    }
    super::resolve::fill_route(id);
    lock(&world().ids).insert(place as usize, id.clone());
    Some(())
}

unsafe extern "C-unwind" {
    /// poll(2), declared so that a cancelled thread may unwind through it.
    fn poll(files: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int;
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of glibc and musl.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Waits until the descriptor is readable. Returns true if the wait was ended by a signal that would also
/// end read(2). Owns nothing that a cancelled thread would have to release.
extern "C-unwind" fn wait(fd: c_int) -> bool {
    let mut file = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: `file` is one local `pollfd`. However the wait ends, the caller checks the channel again.
    let code = unsafe { poll(&raw mut file, 1, -1) };
    // poll(2) is never restarted after a signal, but read(2), which rdma-core calls here, may be.
    code < 0
        && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
        && kiban_rdma_runtime::verbs::ends_this_call()
}

/// # Safety
/// `channel` is null, live, or recently destroyed; `event` is null or valid for a write.
#[unsafe(export_name = "kiban_rdma_get_cm_event")]
pub(super) unsafe extern "C-unwind" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    loop {
        let found = catch_panics(Found::Error(libc::EIO), || {
            if event.is_null() {
                return Found::Error(libc::EINVAL);
            }
            // SAFETY: the caller of `rdma_get_cm_event` guarantees that `channel` is null, live, or recently
            // destroyed.
            if let Some(channel) = unsafe { find(channel) } {
                return look(&channel);
            }
            match lock(&world().channels).closed(channel) {
                Some(Closed { waits: true, .. }) => Found::Gone,
                Some(_) => Found::Error(libc::EBADF),
                None => Found::Error(libc::EINVAL),
            }
        });
        match found {
            Found::Event(found) => {
                // SAFETY: the caller guarantees that `event` is valid for a write.
                unsafe { *event = found };
                return 0;
            }
            Found::Error(error) => return fail_with_errno(error),
            Found::Nothing(fd) => {
                if wait(fd) {
                    return fail_with_errno(libc::EINTR);
                }
            }
            Found::Gone => {
                // Wait until a signal arrives, or forever.
                if wait(-1) {
                    return fail_with_errno(libc::EINTR);
                }
            }
        }
    }
}

/// Acknowledges an event.
pub(super) fn acknowledge(event: *mut rdma_cm_event) -> Result<(), c_int> {
    let unacknowledged = lock(&world().events).remove(&(event as usize)).ok_or(libc::EINVAL)?;
    let mut state = unacknowledged.owner.state();
    state.unacknowledged = state.unacknowledged.saturating_sub(1);
    unacknowledged.owner.acknowledged.notify_all();
    drop(state);
    Ok(())
}

/// # Safety
/// `event` came from `rdma_get_cm_event`.
#[unsafe(export_name = "kiban_rdma_ack_cm_event")]
pub(super) unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    catch_panics(-1, || acknowledge(event).map_or_else(fail_with_errno, |()| 0))
}

/// Completes a call: for a synchronous identifier, waits for the next event and stores it in `id->event`.
/// Returns 0, or -1 with the event's error in errno.
pub(super) fn complete(id: &Arc<Id>) -> c_int {
    let (own, phase) = {
        let state = id.state();
        (state.own, state.phase)
    };
    if !own || phase == Phase::Dead {
        return 0;
    }
    match await_event(id) {
        Ok(event) => {
            // SAFETY: the event was just delivered and has not been acknowledged.
            let event = unsafe { &*event };
            match event.status {
                0 => 0,
                _ if event.event == RDMA_CM_EVENT_REJECTED => fail_with_errno(libc::ECONNREFUSED),
                status => fail_with_errno(status.abs()),
            }
        }
        Err(error) => fail_with_errno(error),
    }
}

/// Waits for the next event of a synchronous identifier and stores it in `id->event`.
pub(super) fn await_event(id: &Arc<Id>) -> Result<*mut rdma_cm_event, c_int> {
    let place = id.abi();
    // SAFETY: the program does not destroy an identifier while a call uses it (rdma_destroy_id(3)).
    let (before, channel) = unsafe { ((*place).event, (*place).channel) };
    if !before.is_null() {
        // This fails if the program has already acknowledged the event.
        let _ = acknowledge(before);
        // SAFETY: the struct lives as long as the identifier; its calls are not made concurrently
        // (rdma_cm(7)).
        unsafe { (*place).event = null_mut() };
    }
    let mut event = null_mut();
    let (mut cancelled, mut ignored) = (0, 0);
    // SAFETY: `channel` is the identifier's own channel, and the other pointers are local variables.
    // Cancellation is disabled in between.
    let code = unsafe {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut cancelled);
        let code = rdma_get_cm_event(channel, &raw mut event);
        pthread_setcancelstate(cancelled, &raw mut ignored);
        code
    };
    if code != 0 {
        return Err(errno());
    }
    // SAFETY: the struct lives as long as the identifier; its calls are not made concurrently (rdma_cm(7)).
    unsafe { (*place).event = event };
    Ok(event)
}

/// Returns whether an event of a synchronous identifier is pending.
pub(super) fn has_event(id: &Arc<Id>) -> bool {
    let channel = id.state().channel.clone();
    let mut file = libc::pollfd { fd: channel.number(), events: libc::POLLIN, revents: 0 };
    // SAFETY: `file` is one local `pollfd`, whose descriptor the channel keeps open.
    unsafe { libc::poll(&raw mut file, 1, 0) == 1 }
}

/// Copies the private data that a program passes.
///
/// # Safety
/// `from` points to `bytes` bytes, or is null.
pub(super) unsafe fn private_data(from: *const c_void, bytes: u8) -> Vec<u8> {
    if from.is_null() || bytes == 0 {
        return Vec::new();
    }
    // SAFETY: the caller of `private_data` guarantees that `from`, which is not null here, points to `bytes`
    // bytes.
    unsafe { core::slice::from_raw_parts(from.cast::<u8>(), usize::from(bytes)) }.to_vec()
}
