//! What the NIC tells a socket of its connection.
//!
//! Goal      whoever is told notes and returns, since the NIC is locked; whoever looks at the socket next
//!           finds it.
//! Arrival   a connection that was accepted for a listener goes to it when it stands ([`Door`]).

use super::service::Job;
use super::socket::Socket;
use core::ffi::c_int;
use kiban_os::lock;
use kiban_rdma_runtime::verbs::{Channel, CmEvent, CmEventHandler, ConnectError, ConnectRequest};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};

/// Somebody who sleeps on a channel is to look: nothing has come with it.
pub(super) const WAKE: u64 = 1;
/// Something has happened.
pub(super) const EVENTS: u64 = 2;

/// What was told.
pub(super) struct Events {
    /// It stands; what the peer answered.
    pub(super) connected: Option<Vec<u8>>,
    /// It never will.
    pub(super) failed: Option<c_int>,
    /// It is over.
    pub(super) gone: bool,
    /// It goes on as another end.
    pub(super) moved: Option<u32>,
}

/// What was told, and nobody has looked at yet.
#[derive(Default)]
struct PendingEvents {
    connected: Option<Vec<u8>>,
    failed: Option<c_int>,
    gone: bool,
    moved: Option<u32>,
    /// The listener that waits for it.
    arrival: Option<(Arc<AcceptQueue>, Arc<Socket>)>,
    /// Who is to be greeted when it stands, where nobody waits for it.
    greeted: Option<Weak<Socket>>,
    /// Nobody wants to hear more.
    is_deaf: bool,
}

/// Where a connection is told of.
pub(super) struct Inbox {
    pub(super) channel: Arc<Channel<u64>>,
    jobs: Arc<Channel<Job>>,
    notes: Mutex<PendingEvents>,
}

/// The number of an error.
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

    /// The connection is to arrive at a listener.
    pub(super) fn expect_at(&self, door: Arc<AcceptQueue>, socket: Arc<Socket>) {
        lock(&self.notes).arrival = Some((door, socket));
    }

    /// It will not arrive.
    pub(super) fn give_up(&self) {
        let arrival = lock(&self.notes).arrival.take();
        drop(arrival);
    }

    /// Somebody of ours greets the peer when the connection stands.
    pub(super) fn notify_when_connected(&self, socket: Weak<Socket>) {
        lock(&self.notes).greeted = Some(socket);
    }

    /// What there is to look at.
    pub(super) fn take(&self) -> Events {
        let mut notes = lock(&self.notes);
        Events {
            connected: notes.connected.take(),
            failed: notes.failed.take(),
            gone: notes.gone,
            moved: notes.moved.take(),
        }
    }

    /// Nobody looks any more.
    pub(super) fn close(&self) {
        let mut notes = lock(&self.notes);
        notes.is_deaf = true;
        notes.greeted = None;
    }
}

impl CmEventHandler for Inbox {
    fn on_event(&self, told: CmEvent) -> Option<Arc<dyn CmEventHandler>> {
        let mut notes = lock(&self.notes);
        match told {
            // Nobody asks an end.
            CmEvent::ConnectRequest(_) => return None,
            CmEvent::Connected { private_data, .. } => {
                if let Some((door, socket)) = notes.arrival.take() {
                    drop(notes);
                    door.arrive(socket, &self.jobs);
                    return None;
                }
                notes.connected = Some(private_data);
                if let Some(socket) = notes.greeted.take() {
                    self.jobs.tell(Job::Greet(socket));
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
            // It came to nothing. What it has belongs to the NIC, which is locked.
            self.jobs.tell(Job::Drop(socket));
        } else if !notes.is_deaf {
            self.channel.tell(EVENTS);
        }
        None
    }
}

/// A listener's connections.
#[derive(Default)]
struct Ready {
    sockets: VecDeque<Arc<Socket>>,
    /// On their way.
    coming: usize,
    is_closed: bool,
}

/// Where a listener is told of requests.
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

    /// A connection stands.
    fn arrive(&self, socket: Arc<Socket>, jobs: &Channel<Job>) {
        let mut ready = lock(&self.ready);
        ready.coming = ready.coming.saturating_sub(1);
        if ready.is_closed {
            jobs.tell(Job::Drop(socket));
        } else {
            ready.sockets.push_back(socket);
            self.channel.tell(EVENTS);
        }
    }

    /// One that was coming is not.
    pub(super) fn on_lost(&self) {
        let mut ready = lock(&self.ready);
        ready.coming = ready.coming.saturating_sub(1);
    }

    /// The next connection.
    pub(super) fn take(&self) -> Option<Arc<Socket>> {
        let mut ready = lock(&self.ready);
        let socket = ready.sockets.pop_front()?;
        // Who slept has taken an event, who only looked has not: the file says whether there are more.
        while self.channel.take().is_some() {}
        if !ready.sockets.is_empty() {
            self.channel.tell(EVENTS);
        }
        Some(socket)
    }

    /// Whether there is one.
    pub(super) fn is_ready(&self) -> bool {
        !lock(&self.ready).sockets.is_empty()
    }

    /// No more: those whom nobody accepted.
    pub(super) fn close(&self) -> VecDeque<Arc<Socket>> {
        let mut ready = lock(&self.ready);
        ready.is_closed = true;
        std::mem::take(&mut ready.sockets)
    }
}

/// A request at a listener, and where its connection will be told of.
pub(super) struct IncomingRequest {
    pub(super) door: Weak<AcceptQueue>,
    pub(super) asked: ConnectRequest,
    pub(super) peer: SocketAddr,
    pub(super) inbox: Arc<Inbox>,
}

/// A door as the NIC knows it.
pub(super) struct AcceptHandler(pub(super) Arc<AcceptQueue>);

impl CmEventHandler for AcceptHandler {
    fn on_event(&self, told: CmEvent) -> Option<Arc<dyn CmEventHandler>> {
        let CmEvent::ConnectRequest(asked) = told else { return None };
        let door = &self.0;
        let mut ready = lock(&door.ready);
        if ready.is_closed || ready.coming + ready.sockets.len() >= door.backlog {
            return None;
        }
        let channel = Arc::new(Channel::new().ok()?);
        let inbox = Arc::new(Inbox::new(channel, door.jobs.clone()));
        ready.coming += 1;
        let peer = asked.peer;
        let arrival = IncomingRequest { door: Arc::downgrade(door), asked, peer, inbox: inbox.clone() };
        door.jobs.tell(Job::Arrive(Box::new(arrival)));
        Some(inbox)
    }
}
