//! Connection events from the NIC to a socket.
//!
//! Receive path  the callback only records the event, because the NIC is locked; [`Socket::advance`] handles
//!               it.
//! Accept queue  when a connection accepted for a listener is established, it is queued at that listener
//!               ([`AcceptQueue`]).

use super::service::Job;
use super::socket::Socket;
use core::ffi::c_int;
use kiban_os::lock;
use kiban_rdma_runtime::verbs::{Channel, CmEvent, CmEventHandler, ConnectError, ConnectRequest};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};

/// A channel message that only wakes a sleeping thread.
pub(super) const WAKE: u64 = 1;
/// A channel message that announces an event.
pub(super) const EVENTS: u64 = 2;

/// The events of a connection.
pub(super) struct Events {
    /// The connection is established. Contains the peer's private data.
    pub(super) connected: Option<Vec<u8>>,
    /// The connection failed: the errno.
    pub(super) failed: Option<c_int>,
    /// The connection has ended.
    pub(super) gone: bool,
    /// The engine has retried the connection. Contains the new connection number.
    pub(super) moved: Option<u32>,
}

/// Events that have not been handled yet.
#[derive(Default)]
struct PendingEvents {
    connected: Option<Vec<u8>>,
    failed: Option<c_int>,
    gone: bool,
    moved: Option<u32>,
    /// The accept queue and socket of a connection being accepted.
    arrival: Option<(Arc<AcceptQueue>, Arc<Socket>)>,
    /// The socket to notify when a non-blocking connect succeeds.
    connected_waiter: Option<Weak<Socket>>,
    /// Further events are dropped.
    is_closed: bool,
}

/// The events of one connection.
pub(super) struct Inbox {
    pub(super) channel: Arc<Channel<u64>>,
    jobs: Arc<Channel<Job>>,
    notes: Mutex<PendingEvents>,
}

/// Maps an error to an errno.
fn number(error: &ConnectError) -> c_int {
    match error {
        ConnectError::Rejected(_) | ConnectError::Unreachable | ConnectError::PortUnreachable => {
            libc::ECONNREFUSED
        }
        ConnectError::Timeout => libc::ETIMEDOUT,
        ConnectError::Fault(_) => libc::EPROTO,
        ConnectError::Lost => libc::ECONNRESET,
        _ => libc::EIO,
    }
}

impl Inbox {
    pub(super) fn new(channel: Arc<Channel<u64>>, jobs: Arc<Channel<Job>>) -> Inbox {
        Inbox { channel, jobs, notes: Mutex::default() }
    }

    /// Passes the connection to a listener when it is established.
    pub(super) fn expect_at(&self, accept_queue: Arc<AcceptQueue>, socket: Arc<Socket>) {
        lock(&self.notes).arrival = Some((accept_queue, socket));
    }

    /// Cancels [`Inbox::expect_at`].
    pub(super) fn give_up(&self) {
        let arrival = lock(&self.notes).arrival.take();
        drop(arrival);
    }

    /// Requests that a socket be notified when its connection is established, so that it can send its first
    /// message.
    pub(super) fn notify_when_connected(&self, socket: Weak<Socket>) {
        lock(&self.notes).connected_waiter = Some(socket);
    }

    /// Takes the events.
    pub(super) fn take(&self) -> Events {
        let mut notes = lock(&self.notes);
        Events {
            connected: notes.connected.take(),
            failed: notes.failed.take(),
            gone: notes.gone,
            moved: notes.moved.take(),
        }
    }

    /// Drops all further events.
    pub(super) fn close(&self) {
        let mut notes = lock(&self.notes);
        notes.is_closed = true;
        notes.connected_waiter = None;
    }
}

impl CmEventHandler for Inbox {
    fn on_event(&self, event: CmEvent) -> Option<Arc<dyn CmEventHandler>> {
        let mut notes = lock(&self.notes);
        match event {
            // Only listeners get connect requests, and only identifiers for datagrams resolve services.
            CmEvent::ConnectRequest(_) | CmEvent::Resolved { .. } => return None,
            CmEvent::Connected { private_data, .. } => {
                if let Some((accept_queue, socket)) = notes.arrival.take() {
                    drop(notes);
                    accept_queue.arrive(socket, &self.jobs);
                    return None;
                }
                notes.connected = Some(private_data);
                if let Some(socket) = notes.connected_waiter.take() {
                    self.jobs.tell(Job::Connected(socket));
                }
            }
            CmEvent::Failed { error, .. } => notes.failed = Some(number(&error)),
            CmEvent::Retried { to, .. } => {
                notes.moved = Some(to);
                return None;
            }
            CmEvent::Disconnected { .. } => notes.gone = true,
        }
        if let Some((_, socket)) = notes.arrival.take() {
            // The connection failed. The service thread drops the socket, since dropping it calls the NIC,
            // which is locked here.
            self.jobs.tell(Job::Drop(socket));
        } else if !notes.is_closed {
            self.channel.tell(EVENTS);
        }
        None
    }
}

/// The connections of a listener.
#[derive(Default)]
struct Ready {
    sockets: VecDeque<Arc<Socket>>,
    /// The number of connections being established.
    pending: usize,
    is_closed: bool,
}

/// The accept queue of a listener.
pub(super) struct AcceptQueue {
    pub(super) family: c_int,
    pub(super) channel: Arc<Channel<u64>>,
    pub(super) listening: Weak<Socket>,
    jobs: Arc<Channel<Job>>,
    backlog: usize,
    ready: Mutex<Ready>,
}

impl AcceptQueue {
    pub(super) fn new(
        family: c_int,
        backlog: usize,
        channel: Arc<Channel<u64>>,
        listening: Weak<Socket>,
        jobs: Arc<Channel<Job>>,
    ) -> AcceptQueue {
        AcceptQueue { family, channel, listening, jobs, backlog, ready: Mutex::default() }
    }

    /// Queues an established connection.
    fn arrive(&self, socket: Arc<Socket>, jobs: &Channel<Job>) {
        let mut ready = lock(&self.ready);
        ready.pending = ready.pending.saturating_sub(1);
        if ready.is_closed {
            jobs.tell(Job::Drop(socket));
        } else {
            ready.sockets.push_back(socket);
            self.channel.tell(EVENTS);
        }
    }

    /// Handles a connection that failed while it was being established.
    pub(super) fn on_lost(&self) {
        let mut ready = lock(&self.ready);
        ready.pending = ready.pending.saturating_sub(1);
    }

    /// Returns the next connection.
    pub(super) fn take(&self) -> Option<Arc<Socket>> {
        let mut ready = lock(&self.ready);
        let socket = ready.sockets.pop_front()?;
        // Empty the channel, then make the descriptor readable again only if there are more connections.
        while self.channel.take().is_some() {}
        if !ready.sockets.is_empty() {
            self.channel.tell(EVENTS);
        }
        Some(socket)
    }

    /// Returns whether there is a connection.
    pub(super) fn is_ready(&self) -> bool {
        !lock(&self.ready).sockets.is_empty()
    }

    /// Closes the queue and returns the connections that were not accepted.
    pub(super) fn close(&self) -> VecDeque<Arc<Socket>> {
        let mut ready = lock(&self.ready);
        ready.is_closed = true;
        std::mem::take(&mut ready.sockets)
    }
}

/// A connect request at a listener, with the inbox for the events of its connection.
pub(super) struct IncomingRequest {
    pub(super) accept_queue: Weak<AcceptQueue>,
    pub(super) request: ConnectRequest,
    pub(super) peer: SocketAddr,
    pub(super) inbox: Arc<Inbox>,
}

/// A listener's queue as the NIC's event handler.
pub(super) struct AcceptHandler(pub(super) Arc<AcceptQueue>);

impl CmEventHandler for AcceptHandler {
    fn on_event(&self, event: CmEvent) -> Option<Arc<dyn CmEventHandler>> {
        let CmEvent::ConnectRequest(request) = event else { return None };
        let accept_queue = &self.0;
        let mut ready = lock(&accept_queue.ready);
        if ready.is_closed || ready.pending + ready.sockets.len() >= accept_queue.backlog {
            return None;
        }
        let channel = Arc::new(Channel::new().ok()?);
        let inbox = Arc::new(Inbox::new(channel, accept_queue.jobs.clone()));
        ready.pending += 1;
        let peer = request.peer;
        let arrival = IncomingRequest {
            accept_queue: Arc::downgrade(accept_queue),
            request,
            peer,
            inbox: inbox.clone(),
        };
        accept_queue.jobs.tell(Job::Arrive(Box::new(arrival)));
        Some(inbox)
    }
}
