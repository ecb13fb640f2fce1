//! The state shared by an association's users and its pump. It contains the layers, under a lock that is
//! never held across an await.

use super::parameters::Failure;
use crate::pump;
use bytes::Bytes;
use kiban_base::{Instant, RopeQueue};
use kiban_os::Clock;
use kiban_osi::acse;
use kiban_osi::network::Origin;
use kiban_osi::presentation::{self, PAbort};
use kiban_osi::session::AbortReason;
use kiban_osi::stack::layers::{Indication, Request, Stack, StackConfig};
use kiban_osi::stack::stream::{ConnectionAction, Stream};
use kiban_osi::wire::ber::Oid;
use kiban_osi::wire::tpkt;
use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// Maximum number of bytes queued for sending before [`Association::send`](super::Association::send) waits.
pub const OUTGOING_BYTES_MAX: usize = 256 << 10;
/// Maximum number of received bytes that may wait for the user before the pump stops reading from the socket.
pub const INCOMING_BYTES_MAX: usize = 1 << 20;
/// Maximum number of indications that may wait for the user before the pump stops reading from the socket.
pub const INCOMING_COUNT_MAX: usize = 4096;

/// The layers, and the indications that wait for the user.
#[derive(Debug)]
pub(super) struct State {
    stack: Stack,
    stream: Stream,
    indications: VecDeque<Indication>,
    indicated_bytes: usize,
    /// Number of bytes that the pump has taken but not yet sent.
    sending_bytes: usize,
    /// How the association ended; set once this was reported to the user.
    end: Option<Failure>,
    /// The socket's error.
    error: Option<io::ErrorKind>,
    closed: bool,
}

impl State {
    pub(super) fn new(stack: &StackConfig) -> State {
        State {
            stack: Stack::new(stack),
            stream: Stream::new(tpkt::TPDU_BYTES_MAX),
            indications: VecDeque::new(),
            indicated_bytes: 0,
            sending_bytes: 0,
            end: None,
            error: None,
            closed: false,
        }
    }

    /// Handles expired timers, and moves output from the layers to the stream and to the user.
    fn settle(&mut self, now: Instant) {
        self.stack.settle(now, &mut ());
        while let Some(request) = self.stack.poll_network() {
            self.stream.request(request);
            if self.stream.connection_action() == ConnectionAction::Connect {
                // The stream asks to connect, but the socket is already connected.
                let connected = self.stream.connected();
                self.stack.arrive(connected, now, &mut ());
                self.stack.settle(now, &mut ());
            }
        }
        while let Some(indication) = self.stack.poll() {
            self.indicated_bytes += bytes_of(&indication);
            self.indications.push_back(indication);
        }
    }

    /// Returns the failure for an abort, with the most specific reason available from the lower layers.
    fn failure_of(&self, abort: PAbort) -> Failure {
        let is_transports = matches!(abort, PAbort::Session(AbortReason::TransportDisconnect));
        let disconnected = self.stack.disconnected().filter(|_| is_transports);
        match (self.error, self.stream.broken(), disconnected) {
            (Some(kind), ..) => Failure::from(kind),
            (None, Some(rule), _) => Failure::NotTpkt(rule),
            (None, None, Some(why)) => Failure::Disconnected(why.clone()),
            (None, None, None) => Failure::Broken(abort),
        }
    }

    fn wants_bytes(&self) -> bool {
        self.indicated_bytes < INCOMING_BYTES_MAX && self.indications.len() < INCOMING_COUNT_MAX
    }
}

/// Returns the bytes of data in an indication.
fn bytes_of(indication: &Indication) -> usize {
    match indication {
        Indication::Presentation(
            presentation::Indication::Data(values) | presentation::Indication::TypedData(values),
        ) => values.iter().map(|pdv| pdv.octets().len()).sum(),
        _ => 0,
    }
}

/// The shared state of an association.
#[derive(Debug)]
pub(super) struct Shared {
    /// After a panic within a layer, the layers may be in an inconsistent state. But only this association
    /// uses them.
    state: Mutex<State>,
    pub(super) clock: Clock,
    /// Wakes the pump, because there is work.
    pub(super) pump_wake: Notify,
    /// Wakes users: an indication has arrived, there is room to send, or the association is closed.
    user_wake: Notify,
}

impl Shared {
    pub(super) fn new(state: State, clock: Clock) -> Shared {
        Shared { state: Mutex::new(state), clock, pump_wake: Notify::new(), user_wake: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        kiban_os::lock(&self.state)
    }

    /// Reports an incoming connection to the layers; the peer will send its A-ASSOCIATE.
    pub(super) fn connected(&self) {
        let (mut state, now) = (self.lock(), self.clock.now());
        let connected = state.stream.connected();
        state.stack.arrive(connected, now, &mut ());
        state.settle(now);
    }

    /// Passes a user's request to the layers.
    pub(super) fn request(&self, request: Request) -> Result<(), Failure> {
        let now = self.clock.now();
        {
            let mut state = self.lock();
            if let Err(misuse) = state.stack.request(request, &mut ()) {
                return Err(state.end.clone().unwrap_or(Failure::InvalidRequest(misuse)));
            }
            state.settle(now);
        }
        self.pump_wake.notify_one();
        Ok(())
    }

    /// Waits for the next indication for the user.
    pub(super) async fn next_indication(&self) -> Result<Indication, Failure> {
        loop {
            let notified = self.user_wake.notified();
            {
                let mut state = self.lock();
                let read_before = state.wants_bytes();
                if let Some(indication) = state.indications.pop_front() {
                    state.indicated_bytes -= bytes_of(&indication);
                    if !read_before && state.wants_bytes() {
                        self.pump_wake.notify_one();
                    }
                    return Ok(indication);
                }
                if let Some(end) = &state.end {
                    return Err(end.clone());
                }
                if state.closed {
                    return Err(Failure::Over);
                }
            }
            notified.await;
        }
    }

    /// Waits until more data may be sent. Does not report the end of the association before the user has
    /// received it.
    pub(super) async fn room(&self) -> Result<(), Failure> {
        loop {
            let notified = self.user_wake.notified();
            {
                let state = self.lock();
                if let Some(end) = &state.end {
                    return Err(end.clone());
                }
                if state.closed || state.stream.outgoing_bytes() + state.sending_bytes < OUTGOING_BYTES_MAX {
                    return Ok(());
                }
            }
            notified.await;
        }
    }

    pub(super) async fn closed(&self) {
        loop {
            let notified = self.user_wake.notified();
            if self.lock().closed {
                return;
            }
            notified.await;
        }
    }

    /// Marks the pump as ended.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.user_wake.notify_waiters();
    }

    /// Converts an ACSE indication that ends the association to a failure.
    pub(super) fn failure_of(&self, indication: Option<acse::Indication>) -> Failure {
        let mut state = self.lock();
        let failure = match indication {
            Some(acse::Indication::Abort(abort)) => Failure::Aborted(Box::new(abort)),
            Some(acse::Indication::PAbort(abort)) => state.failure_of(abort),
            _ => Failure::Over,
        };
        state.end.get_or_insert_with(|| failure.clone());
        failure
    }

    /// Returns whether sending or reading has reached its limit.
    #[cfg(test)]
    pub(super) fn is_full(&self) -> bool {
        let state = self.lock();
        state.stream.outgoing_bytes() + state.sending_bytes >= OUTGOING_BYTES_MAX || !state.wants_bytes()
    }

    pub(super) fn contexts(&self) -> Vec<(i64, Oid, Oid)> {
        self.lock().stack.layers().2.contexts().to_vec()
    }
}

/// The pump's side of the shared state.
pub(super) struct Driven {
    shared: std::sync::Arc<Shared>,
    outgoing: RopeQueue,
    wants_bytes: bool,
    deadline: Instant,
    over: bool,
}

impl Driven {
    pub(super) fn new(shared: std::sync::Arc<Shared>) -> Driven {
        Driven {
            shared,
            outgoing: RopeQueue::new(),
            wants_bytes: true,
            deadline: Instant::NEVER,
            over: false,
        }
    }
}

impl pump::End for Driven {
    fn arrive(&mut self, bytes: Bytes, now: Instant) {
        let mut guard = self.shared.lock();
        let state = &mut *guard;
        state.stream.arrive(bytes);
        while let Some(indication) = state.stream.poll() {
            state.stack.arrive(indication, now, &mut ());
            state.stack.settle(now, &mut ());
        }
        state.settle(now);
    }

    fn ended(&mut self, how: io::Result<()>, now: Instant) {
        let mut state = self.shared.lock();
        let origin = if how.is_ok() { Origin::User } else { Origin::Provider };
        state.error = how.err().map(|error| error.kind());
        if let Some(indication) = state.stream.ended(origin) {
            state.stack.arrive(indication, now, &mut ());
            state.settle(now);
        }
    }

    fn work(&mut self, now: Instant) {
        let mut guard = self.shared.lock();
        let state = &mut *guard;
        if state.stack.deadline() <= now {
            state.settle(now);
        }
        while let Some(rope) = state.stream.outgoing().pop() {
            self.outgoing.push(rope);
        }
        state.sending_bytes = self.outgoing.len();
        self.wants_bytes = state.wants_bytes();
        self.deadline = state.stack.deadline();
        self.over = state.stream.connection_action() == ConnectionAction::Close;
        let may_wake = !state.indications.is_empty() || state.sending_bytes < OUTGOING_BYTES_MAX;
        drop(guard);
        if may_wake {
            self.shared.user_wake.notify_waiters();
        }
    }

    fn outgoing(&mut self) -> &mut RopeQueue {
        &mut self.outgoing
    }

    fn wants_bytes(&self) -> bool {
        self.wants_bytes
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn is_over(&self) -> bool {
        self.over
    }
}
