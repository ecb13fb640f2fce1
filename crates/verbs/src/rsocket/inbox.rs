//! Events from the NIC to a socket about its connection.
//!
//! Goal      the callback only records the event, because the NIC is locked; the next look at the socket
//!           handles it.
//! Arrival   a connection that was accepted for a listener is passed to it when it is established
//!           ([`AcceptQueue`]).

use super::service::Job;
use super::socket::Socket;
use core::ffi::c_int;
use kiban_os::lock;
use kiban_rdma_runtime::verbs::{Channel, CmEvent, CmEventHandler, ConnectError, ConnectRequest};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};

/// Wakes a thread that sleeps on a channel; there is no event.
pub(super) const WAKE: u64 = 1;
/// There is an event.
pub(super) const EVENTS: u64 = 2;

/// The events of a connection.
pub(super) struct Events {
    /// It is established; the peer's private data.
    pub(super) connected: Option<Vec<u8>>,
    /// It could not be established.
    pub(super) failed: Option<c_int>,
    /// It has ended.
    pub(super) gone: bool,
    /// It continues as another end.
    pub(super) moved: Option<u32>,
}

/// Events that have not been looked at yet.
#[derive(Default)]
struct PendingEvents {
    connected: Option<Vec<u8>>,
    failed: Option<c_int>,
    gone: bool,
    moved: Option<u32>,
    /// The listener that waits for it.
    arrival: Option<(Arc<AcceptQueue>, Arc<Socket>)>,
    /// The socket to be notified when the connection is established, if no call waits for it.
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
        ConnectError::Rejected(_) | ConnectError::Unreachable => libc::ECONNREFUSED,
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

    /// Withdraws that.
    pub(super) fn give_up(&self) {
        let arrival = lock(&self.notes).arrival.take();
        drop(arrival);
    }

    /// Notifies a socket of ours when the connection is established, so that it can send its first message.
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
            // Ends get no connect requests.
            CmEvent::ConnectRequest(_) => return None,
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
            // The connection failed. Its objects belong to the NIC, which is locked here.
            self.jobs.tell(Job::Drop(socket));
        } else if !notes.is_closed {
            self.channel.tell(EVENTS);
        }
        None
    }
}

/// A listener's connections.
#[derive(Default)]
struct Ready {
    sockets: VecDeque<Arc<Socket>>,
    /// The number of connections being established.
    pending: usize,
    is_closed: bool,
}

/// The queue of a listener's connections.
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

    /// Handles a connection that was being established and failed.
    pub(super) fn on_lost(&self) {
        let mut ready = lock(&self.ready);
        ready.pending = ready.pending.saturating_sub(1);
    }

    /// Returns the next connection.
    pub(super) fn take(&self) -> Option<Arc<Socket>> {
        let mut ready = lock(&self.ready);
        let socket = ready.sockets.pop_front()?;
        // A thread that slept has taken a wake-up, one that only looked has not: make the file readable only
        // if there are more.
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

/// A request at a listener, and where its connection will be event of.
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
