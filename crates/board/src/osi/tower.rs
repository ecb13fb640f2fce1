//! The wiring of four layers: transport, session, presentation and association control of one association (paper \[5\]).
//!
//! Goal      all control flow between the layers on one page: what comes out of one is carried into its neighbour, until
//!           nothing moves.
//! Above     [`Request`] and [`Told`]: ACSE's primitives, and presentation's for what passes beside ACSE.
//! Below     [`network`]'s primitives: a [`Stream`](super::stream::Stream) of TPKTs, a channel of X.25, or another tower.
//! Crossing  a request that meets the end of its connection on the way goes nowhere: the indication of the end is on its way
//!           up. It is counted, nothing else.
//! Beside    the paper's board had a task for each of these and an operating system that passed buffers between them. Here a
//!           task is a value, passing is a move of some words, and who is to run next is decided by this loop: down first,
//!           so that what is asked leaves before more comes up.

use super::meter::{Meter, Task};
use kiban_ground::Instant;
use kiban_stack::osi::Misuse;
use kiban_stack::osi::acse::{self, Acse};
use kiban_stack::osi::network;
use kiban_stack::osi::presentation::{self, Presentation};
use kiban_stack::osi::session::{self, Session};
use kiban_stack::osi::transport::{self, Disconnected, Transport};

use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// How the layers of a tower are set.
#[derive(Clone, Default, Debug)]
pub struct TowerConfig {
    /// Transport.
    pub transport: transport::Config,
    /// Session.
    pub session: session::Config,
    /// Presentation.
    pub presentation: presentation::Config,
}

/// What the user of an association asks. What is not data is in a box, so that data moves fast.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// To make it or end it.
    Acse(Box<acse::Request>),
    /// To use it: data, synchronisation, tokens.
    Presentation(presentation::Request),
}

impl From<acse::Request> for Request {
    fn from(request: acse::Request) -> Request {
        Request::Acse(Box::new(request))
    }
}

/// What the user of an association is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// Of its beginning and its end.
    Acse(Box<acse::Indication>),
    /// Of what happens on it.
    Presentation(presentation::Indication),
}

impl Told {
    /// What ACSE tells, or what presentation tells beside it.
    ///
    /// # Errors
    /// It is presentation's.
    pub fn into_acse(self) -> Result<acse::Indication, presentation::Indication> {
        match self {
            Told::Acse(indication) => Ok(*indication),
            Told::Presentation(indication) => Err(indication),
        }
    }
}

/// One association's layers.
#[derive(Debug)]
pub struct Tower {
    acse: Acse,
    presentation: Presentation,
    session: Session,
    transport: Transport,
    up: VecDeque<Told>,
    down: VecDeque<network::Request>,
    disconnected: Option<Disconnected>,
    crossed: u64,
}

impl Tower {
    /// Layers without a connection.
    pub fn new(config: &TowerConfig) -> Tower {
        Tower {
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

    /// The user asks.
    ///
    /// # Errors
    /// [`Misuse`]: nothing has changed.
    pub fn request(&mut self, request: Request, now: Instant, meter: &mut impl Meter) -> Result<(), Misuse> {
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
        self.settle(now, meter);
        Ok(())
    }

    /// The network says.
    pub fn network(&mut self, indication: network::Indication, now: Instant, meter: &mut impl Meter) {
        let bytes = if let network::Indication::Data(unit) = &indication { unit.len() } else { 0 };
        meter.turn_to(Task::Transport, bytes);
        self.transport.indicate(indication, now);
        self.settle(now, meter);
    }

    /// The longest TSDU that is taken from now on: whoever knows the peer may lend it more memory.
    pub fn set_tsdu_bytes_max(&mut self, bytes: usize) {
        self.transport.set_tsdu_bytes_max(bytes);
    }

    /// Time has passed.
    pub fn timeout(&mut self, now: Instant, meter: &mut impl Meter) {
        self.transport.timeout(now);
        self.session.timeout(now);
        self.settle(now, meter);
    }

    /// When there is something to do though nobody asks.
    pub fn deadline(&self) -> Option<Instant> {
        [self.transport.deadline(), self.session.deadline()].into_iter().flatten().min()
    }

    /// What the user is to be told next.
    pub fn poll(&mut self) -> Option<Told> {
        self.up.pop_front()
    }

    /// What the network is asked next.
    pub fn poll_network(&mut self) -> Option<network::Request> {
        self.down.pop_front()
    }

    /// The layers, to look at.
    pub fn layers(&self) -> (&Transport, &Session, &Presentation, &Acse) {
        (&self.transport, &self.session, &self.presentation, &self.acse)
    }

    /// Why transport refused its connection, or ended it, if a TPDU said so or was the reason.
    pub fn disconnected(&self) -> Option<&Disconnected> {
        self.disconnected.as_ref()
    }

    /// Requests of a layer that met the end of the connection.
    pub fn crossed(&self) -> u64 {
        self.crossed
    }

    /// Carries what the layers have for each other, until nothing moves.
    fn settle(&mut self, now: Instant, meter: &mut impl Meter) {
        loop {
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
                // Once more for each TPDU: cutting is its work.
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
                self.session.indicate(indication, now);
                moved = true;
            }
            while let Some(indication) = self.session.poll_up() {
                let bytes = if let session::Indication::Data(unit) = &indication { unit.len() } else { 0 };
                meter.turn_to(Task::Presentation, bytes);
                if let session::Indication::Connect(_) | session::Indication::ConnectConfirm(_) = &indication
                {
                    self.presentation.on_session_version(self.session.version_selected());
                }
                self.presentation.indicate(indication);
                moved = true;
            }
            while let Some(indication) = self.presentation.poll_up() {
                match indication {
                    presentation::Indication::Connect(_)
                    | presentation::Indication::ConnectConfirm(_)
                    | presentation::Indication::Release { .. }
                    | presentation::Indication::ReleaseConfirm { .. }
                    | presentation::Indication::UAbort { .. }
                    | presentation::Indication::PAbort(_) => self.acse.indicate(indication),
                    beside => {
                        if matches!(beside, presentation::Indication::Resynchronise { .. }) {
                            self.acse.on_resynchronise(false);
                        }
                        self.up.push_back(Told::Presentation(beside));
                    }
                }
                moved = true;
            }
            while let Some(indication) = self.acse.poll_up() {
                self.up.push_back(Told::Acse(Box::new(indication)));
                moved = true;
            }
            if !moved {
                return;
            }
        }
    }
}

/// Bytes of user data in what the user asks.
fn bytes_of(request: &Request) -> usize {
    match request {
        Request::Presentation(presentation::Request::Data(values)) => {
            values.iter().map(|pdv| pdv.octets().len()).sum()
        }
        _ => 0,
    }
}

/// Bytes of user data in what presentation asks of session.
fn data_bytes(request: &session::Request) -> usize {
    if let session::Request::Data(unit) = request { unit.len() } else { 0 }
}
