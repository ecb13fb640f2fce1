//! The wiring of one association's transport, session, presentation and ACSE layers (paper \[5\], see
//! docs/reproduce-osi-board.md).
//!
//! Purpose    keeps all control flow between the layers in one file, which passes the output of each to its
//!            neighbour.
//! Above      [`Request`] and [`Indication`]: ACSE's primitives, and the presentation primitives that bypass
//!            ACSE.
//! Below      the primitives of [`network`]: a [`Stream`](super::stream::Stream) of TPKTs, an X.25 channel,
//!            or another stack.
//! Crossing   a request that crosses with the end of its connection is counted and dropped, because the user
//!            is about to be notified of the end.
//! Tasks      the paper's board had a task for each layer, and an operating system that passed buffers
//!            between them. Here a task is a Rust value, and passing data on moves a few machine words. The
//!            order within one step is fixed: down first, so that requests leave before more input comes up.

use super::meter::{Meter, Task};
use crate::RequestError;
use crate::acse;
use crate::acse::Acse;
use crate::network;
use crate::presentation;
use crate::presentation::Presentation;
use crate::session;
use crate::session::Session;
use crate::transport;
use crate::transport::{Disconnected, Transport};
use kiban_base::Instant;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// Configuration of the layers of a stack.
#[derive(Clone, Default, Debug)]
pub struct StackConfig {
    /// Configuration of transport.
    pub transport: transport::Config,
    /// Configuration of session.
    pub session: session::Config,
    /// Configuration of presentation.
    pub presentation: presentation::Config,
}

/// Requests of an association's user. Those without data are boxed, so that the type stays small and requests
/// with data are cheap to move.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// A request to establish or end the association.
    Acse(Box<acse::Request>),
    /// A request that is made on the association: data, synchronisation, tokens.
    Presentation(presentation::Request),
}

impl From<acse::Request> for Request {
    fn from(request: acse::Request) -> Request {
        Request::Acse(Box::new(request))
    }
}

/// Indications to an association's user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Indication {
    /// An indication that the association begins or ends.
    Acse(Box<acse::Indication>),
    /// An indication that occurs on the association: data, synchronisation, tokens.
    Presentation(presentation::Indication),
}

impl Indication {
    /// Returns the ACSE indication, if this is one.
    ///
    /// # Errors
    /// Returns the presentation indication otherwise.
    pub fn into_acse(self) -> Result<acse::Indication, presentation::Indication> {
        match self {
            Indication::Acse(indication) => Ok(*indication),
            Indication::Presentation(indication) => Err(indication),
        }
    }
}

/// The layers of one association.
#[derive(Debug)]
pub struct Stack {
    acse: Acse,
    presentation: Presentation,
    session: Session,
    transport: Transport,
    up: VecDeque<Indication>,
    down: VecDeque<network::Request>,
    disconnected: Option<Disconnected>,
    crossed: u64,
}

impl Stack {
    /// Creates the layers without a connection.
    pub fn new(config: &StackConfig) -> Stack {
        Stack {
            acse: Acse::new(),
            presentation: Presentation::new(config.presentation.clone()),
            session: Session::new(config.session.clone()),
            transport: Transport::new(config.transport.clone()),
            up: VecDeque::new(),
            down: VecDeque::new(),
            disconnected: None,
            crossed: 0,
        }
    }

    /// Accepts a request from the user; [`Stack::settle`] carries it down.
    ///
    /// # Errors
    /// [`RequestError`]; a rejected request changes nothing.
    pub fn request(&mut self, request: Request, meter: &mut impl Meter) -> Result<(), RequestError> {
        meter.turn_to(Task::Presentation, bytes_of(&request));
        match request {
            Request::Acse(request) => self.acse.request(*request)?,
            Request::Presentation(request) => {
                let resynchronises = matches!(request, presentation::Request::Resynchronise { .. });
                self.presentation.request(request)?;
                if resynchronises {
                    self.acse.on_resynchronise(true);
                }
            }
        }
        Ok(())
    }

    /// Accepts an indication from the network; [`Stack::settle`] carries it up.
    pub fn arrive(&mut self, indication: network::Indication, now: Instant, meter: &mut impl Meter) {
        let bytes = if let network::Indication::Data(unit) = &indication { unit.len() } else { 0 };
        meter.turn_to(Task::Transport, bytes);
        self.transport.arrive(indication, now);
    }

    /// Sets the maximum length of a received TSDU in bytes, for example to allow more once the peer is
    /// authenticated.
    pub fn set_tsdu_bytes_max(&mut self, bytes: usize) {
        self.transport.set_tsdu_bytes_max(bytes);
    }

    /// Handles expired timers, and moves data between the layers until no layer has output.
    pub fn settle(&mut self, now: Instant, meter: &mut impl Meter) {
        self.expire(now);
        while self.step(now, meter) {}
    }

    /// Returns when [`Stack::settle`] must be called even without input.
    pub fn deadline(&self) -> Instant {
        self.transport.deadline().min(self.session.deadline())
    }

    /// Returns the next indication for the user.
    pub fn poll(&mut self) -> Option<Indication> {
        self.up.pop_front()
    }

    /// Returns the next request to the network.
    pub fn poll_network(&mut self) -> Option<network::Request> {
        self.down.pop_front()
    }

    /// Returns the layers, for inspection.
    pub fn layers(&self) -> (&Transport, &Session, &Presentation, &Acse) {
        (&self.transport, &self.session, &self.presentation, &self.acse)
    }

    /// Returns why the transport layer refused or ended its connection, if a TPDU gave the reason or was the
    /// cause.
    pub fn disconnected(&self) -> Option<&Disconnected> {
        self.disconnected.as_ref()
    }

    /// Returns the number of requests between layers that were dropped because they crossed with the
    /// connection's end.
    pub fn crossed(&self) -> u64 {
        self.crossed
    }

    /// Handles timers that have expired.
    pub(super) fn expire(&mut self, now: Instant) {
        self.transport.settle(now);
        self.session.settle(now);
    }

    /// Moves data between the layers in one pass down and one pass up. Returns true if any was moved.
    pub(super) fn step(&mut self, now: Instant, meter: &mut impl Meter) -> bool {
        let mut moved = false;
        while let Some(request) = self.acse.poll_down() {
            self.crossed += u64::from(self.presentation.request(request).is_err());
            moved = true;
        }
        while let Some(request) = self.presentation.poll_down() {
            meter.turn_to(Task::Session, data_bytes(&request));
            self.crossed += u64::from(self.session.request(request, now).is_err());
            moved = true;
        }
        while let Some(request) = self.session.poll_down() {
            let bytes = if let transport::Request::Data(unit) = &request { unit.len() } else { 0 };
            meter.turn_to(Task::Transport, bytes);
            self.crossed += u64::from(self.transport.request(request, now).is_err());
            moved = true;
        }
        while let Some(request) = self.transport.poll_down() {
            // The meter is called once per TPDU, because segmenting is the transport layer's work.
            let bytes = if let network::Request::Data(unit) = &request { unit.len() } else { 0 };
            meter.turn_to(Task::Transport, bytes);
            self.down.push_back(request);
            moved = true;
        }
        while let Some(indication) = self.transport.poll_up() {
            let bytes = if let transport::Indication::Data(unit) = &indication { unit.len() } else { 0 };
            meter.turn_to(Task::Session, bytes);
            if let transport::Indication::Disconnect { reason, additional, .. } = &indication
                && reason.is_of_tpdu()
            {
                let (reason, additional) = (*reason, additional.clone());
                self.disconnected = Some(Disconnected { reason, additional });
            }
            self.session.arrive(indication, now);
            moved = true;
        }
        while let Some(indication) = self.session.poll_up() {
            let bytes = if let session::Indication::Data(unit) = &indication { unit.len() } else { 0 };
            meter.turn_to(Task::Presentation, bytes);
            if let session::Indication::Connect(_) | session::Indication::ConnectConfirm(_) = &indication {
                self.presentation.on_session_version(self.session.version_selected());
            }
            self.presentation.arrive(indication);
            moved = true;
        }
        while let Some(indication) = self.presentation.poll_up() {
            match indication {
                presentation::Indication::Connect(_)
                | presentation::Indication::ConnectConfirm(_)
                | presentation::Indication::Release { .. }
                | presentation::Indication::ReleaseConfirm { .. }
                | presentation::Indication::UAbort { .. }
                | presentation::Indication::PAbort(_) => self.acse.arrive(indication),
                beside => {
                    if matches!(beside, presentation::Indication::Resynchronise { .. }) {
                        self.acse.on_resynchronise(false);
                    }
                    self.up.push_back(Indication::Presentation(beside));
                }
            }
            moved = true;
        }
        while let Some(indication) = self.acse.poll_up() {
            self.up.push_back(Indication::Acse(Box::new(indication)));
            moved = true;
        }
        moved
    }
}

/// Returns the bytes of user data in a user's request.
fn bytes_of(request: &Request) -> usize {
    match request {
        Request::Presentation(presentation::Request::Data(values)) => {
            values.iter().map(|pdv| pdv.octets().len()).sum()
        }
        _ => 0,
    }
}

/// Returns the bytes of user data in a request from presentation to session.
fn data_bytes(request: &session::Request) -> usize {
    if let session::Request::Data(unit) = request { unit.len() } else { 0 }
}
