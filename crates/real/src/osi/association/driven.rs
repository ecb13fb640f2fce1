//! What an association's users and its pump share: the layers, under a lock that nobody holds while waiting.

use super::super::pump;
use super::{Failure, INCOMING_BYTES_MAX, INCOMING_COUNT_MAX, OUTGOING_BYTES_MAX};
use crate::Clock;
use bytes::Bytes;
use kiban_board::osi::stream::{Stream, Wish};
use kiban_board::osi::tower::{Request, Told, Tower, TowerConfig};
use kiban_ground::{Instant, RopeQueue};
use kiban_stack::osi::acse;
use kiban_stack::osi::network::Origin;
use kiban_stack::osi::presentation::{self, PAbort};
use kiban_stack::osi::session::AbortReason;
use kiban_wire::ber::Oid;
use kiban_wire::tpkt;
use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The layers, and what waits for the user.
#[derive(Debug)]
pub(super) struct State {
    tower: Tower,
    stream: Stream,
    told: VecDeque<Told>,
    told_bytes: usize,
    /// What the pump has taken and not sent.
    sending_bytes: usize,
    /// How the association ended, once its user has been told.
    end: Option<Failure>,
    /// What the socket said.
    error: Option<io::ErrorKind>,
    closed: bool,
}

impl State {
    pub(super) fn new(tower: &TowerConfig) -> State {
        State {
            tower: Tower::new(tower),
            stream: Stream::new(tpkt::TPDU_BYTES_MAX),
            told: VecDeque::new(),
            told_bytes: 0,
            sending_bytes: 0,
            end: None,
            error: None,
            closed: false,
        }
    }

    /// Carries what the layers have for the stream and for the user.
    fn settle(&mut self, now: Instant) {
        while let Some(request) = self.tower.poll_network() {
            self.stream.request(request);
            if self.stream.wish() == Wish::Connect {
                // The socket was there before.
                let connected = self.stream.connected();
                self.tower.network(connected, now, &mut ());
            }
        }
        while let Some(told) = self.tower.poll() {
            self.told_bytes += bytes_of(&told);
            self.told.push_back(told);
        }
    }

    /// Of the layers below: whoever knows best why.
    fn failure_of(&self, abort: PAbort) -> Failure {
        let is_transports = matches!(abort, PAbort::Session(AbortReason::TransportDisconnect));
        let disconnected = self.tower.disconnected().filter(|_| is_transports);
        match (self.error, self.stream.broken(), disconnected) {
            (Some(kind), ..) => Failure::from(kind),
            (None, Some(rule), _) => Failure::NotTpkt(rule),
            (None, None, Some(why)) => Failure::Disconnected(why.clone()),
            (None, None, None) => Failure::Broken(abort),
        }
    }

    fn wants_bytes(&self) -> bool {
        self.told_bytes < INCOMING_BYTES_MAX && self.told.len() < INCOMING_COUNT_MAX
    }
}

/// Bytes of data that an indication holds.
fn bytes_of(told: &Told) -> usize {
    match told {
        Told::Presentation(
            presentation::Indication::Data(values) | presentation::Indication::TypedData(values),
        ) => values.iter().map(|pdv| pdv.octets().len()).sum(),
        _ => 0,
    }
}

/// What is shared.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) clock: Clock,
    /// For the pump: there is something to do.
    pub(super) bell: Notify,
    /// For users: something has come, there is room, it is closed.
    news: Notify,
}

impl Shared {
    pub(super) fn new(state: State, clock: Clock) -> Shared {
        Shared { state: Mutex::new(state), clock, bell: Notify::new(), news: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection below is there, and the peer asks.
    pub(super) fn connected(&self) {
        let (mut state, now) = (self.lock(), self.clock.now());
        let connected = state.stream.connected();
        state.tower.network(connected, now, &mut ());
        state.settle(now);
    }

    /// The user asks.
    pub(super) fn request(&self, request: Request) -> Result<(), Failure> {
        let now = self.clock.now();
        {
            let mut state = self.lock();
            if let Err(misuse) = state.tower.request(request, now, &mut ()) {
                return Err(state.end.clone().unwrap_or(Failure::Misuse(misuse)));
            }
            state.settle(now);
        }
        self.bell.notify_one();
        Ok(())
    }

    /// What the user is told next.
    pub(super) async fn told(&self) -> Result<Told, Failure> {
        loop {
            let news = self.news.notified();
            {
                let mut state = self.lock();
                let read_before = state.wants_bytes();
                if let Some(told) = state.told.pop_front() {
                    state.told_bytes -= bytes_of(&told);
                    if !read_before && state.wants_bytes() {
                        self.bell.notify_one();
                    }
                    return Ok(told);
                }
                if let Some(end) = &state.end {
                    return Err(end.clone());
                }
                if state.closed {
                    return Err(Failure::Over);
                }
            }
            news.await;
        }
    }

    /// Waits until more may be sent. Of an end that the user has not been told of yet it knows nothing.
    pub(super) async fn room(&self) -> Result<(), Failure> {
        loop {
            let news = self.news.notified();
            {
                let state = self.lock();
                if let Some(end) = &state.end {
                    return Err(end.clone());
                }
                if state.closed || state.stream.outgoing_bytes() + state.sending_bytes < OUTGOING_BYTES_MAX {
                    return Ok(());
                }
            }
            news.await;
        }
    }

    pub(super) async fn closed(&self) {
        loop {
            let news = self.news.notified();
            if self.lock().closed {
                return;
            }
            news.await;
        }
    }

    /// The pump has ended.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.news.notify_waiters();
    }

    /// What an indication of ACSE's means for whoever waits for another.
    pub(super) fn failure_of(&self, told: Option<acse::Indication>) -> Failure {
        let mut state = self.lock();
        let failure = match told {
            Some(acse::Indication::Abort(abort)) => Failure::Aborted(Box::new(abort)),
            Some(acse::Indication::PAbort(abort)) => state.failure_of(abort),
            _ => Failure::Over,
        };
        state.end.get_or_insert_with(|| failure.clone());
        failure
    }

    /// Whether nothing more may be sent, or nothing more is read.
    #[cfg(test)]
    pub(super) fn is_full(&self) -> bool {
        let state = self.lock();
        state.stream.outgoing_bytes() + state.sending_bytes >= OUTGOING_BYTES_MAX || !state.wants_bytes()
    }

    pub(super) fn contexts(&self) -> Vec<(i64, Oid, Oid)> {
        self.lock().tower.layers().2.contexts().to_vec()
    }
}

/// The pump's side.
pub(super) struct Driven {
    shared: std::sync::Arc<Shared>,
    outgoing: RopeQueue,
    wants_bytes: bool,
    deadline: Option<Instant>,
    over: bool,
}

impl Driven {
    pub(super) fn new(shared: std::sync::Arc<Shared>) -> Driven {
        Driven { shared, outgoing: RopeQueue::new(), wants_bytes: true, deadline: None, over: false }
    }
}

impl pump::End for Driven {
    fn receive(&mut self, bytes: Bytes, now: Instant) {
        let mut guard = self.shared.lock();
        let state = &mut *guard;
        state.stream.receive(bytes);
        while let Some(indication) = state.stream.poll() {
            state.tower.network(indication, now, &mut ());
        }
        state.settle(now);
    }

    fn ended(&mut self, how: io::Result<()>, now: Instant) {
        let mut state = self.shared.lock();
        let origin = if how.is_ok() { Origin::User } else { Origin::Provider };
        state.error = how.err().map(|error| error.kind());
        if let Some(indication) = state.stream.ended(origin) {
            state.tower.network(indication, now, &mut ());
            state.settle(now);
        }
    }

    fn work(&mut self, now: Instant) {
        let mut guard = self.shared.lock();
        let state = &mut *guard;
        if state.tower.deadline().is_some_and(|deadline| deadline <= now) {
            state.tower.timeout(now, &mut ());
            state.settle(now);
        }
        while let Some(rope) = state.stream.outgoing().pop() {
            self.outgoing.push(rope);
        }
        state.sending_bytes = self.outgoing.len();
        self.wants_bytes = state.wants_bytes();
        self.deadline = state.tower.deadline();
        self.over = state.stream.wish() == Wish::Close;
        let news = !state.told.is_empty() || state.sending_bytes < OUTGOING_BYTES_MAX;
        drop(guard);
        if news {
            self.shared.news.notify_waiters();
        }
    }

    fn outgoing(&mut self) -> &mut RopeQueue {
        &mut self.outgoing
    }

    fn wants_bytes(&self) -> bool {
        self.wants_bytes
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn is_over(&self) -> bool {
        self.over
    }
}
