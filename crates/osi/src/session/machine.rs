//! The session machine: handles requests, transport indications and timers.

use super::cause::Cause;
use super::config::Config;
use super::counters::SessionCounters;
use super::primitives::{AbortReason, Indication, Request};
use super::state::{self, Event, Given, State, Variables, Verdict};
use crate::wire::session as wire;
use crate::wire::session::{Spdu, TokenSettings, TsduSizes, Units, Versions};
use crate::{RequestError, transport};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use kiban_base::{Instant, Rope};

/// A session connection, with its single transport connection.
#[derive(Debug)]
pub struct Session {
    pub(super) config: Config,
    pub(super) state: State,
    pub(super) variables: Variables,
    /// Whether version 2 is selected; before the selection, whether version 2 was proposed.
    pub(super) version_2: bool,
    /// Maximum size of a sent TSDU in bytes; 0 means unlimited.
    pub(super) tsdu_bytes_max: usize,
    /// The CONNECT that was sent or received and is not yet answered, with the part of its user data that is
    /// not yet sent.
    pub(super) connect: Option<Box<wire::Connect>>,
    pub(super) overflow: Rope,
    /// The answer to the TSDU sizes that the CONNECT proposed.
    pub(super) tsdu_sizes: TsduSizes,
    /// Serial number of the resynchronisation in progress.
    pub(super) resync_serial: u32,
    pub(super) resync_tokens: TokenSettings,
    /// Whether this end requested the resynchronisation in progress.
    pub(super) resync_own: bool,
    /// A partly received data or typed data SSDU; the flag is true for typed data.
    pub(super) ssdu: Option<(bool, Rope)>,
    /// An SPDU of another type whose user data has been partly received.
    pub(super) partial: Option<(Spdu, Rope)>,
    deadline: Instant,
    pub(super) up: VecDeque<Indication>,
    pub(super) down: VecDeque<transport::Request>,
    pub(super) counters: SessionCounters,
}

impl Session {
    /// Creates a machine without a connection, for either the calling or the called side.
    pub fn new(config: Config) -> Session {
        Session {
            version_2: config.versions.has(Versions::V2),
            config,
            state: State::Sta01,
            variables: Variables::default(),
            tsdu_bytes_max: 0,
            connect: None,
            overflow: Rope::new(),
            tsdu_sizes: TsduSizes::default(),
            resync_serial: 0,
            resync_tokens: TokenSettings::default(),
            resync_own: false,
            ssdu: None,
            partial: None,
            deadline: Instant::NEVER,
            up: VecDeque::new(),
            down: VecDeque::new(),
            counters: SessionCounters::default(),
        }
    }

    /// Accepts a request or a response.
    ///
    /// # Errors
    /// [`RequestError`]: the request is not allowed in this state, or a parameter is invalid. A rejected
    /// request changes nothing.
    #[inline]
    pub fn request(&mut self, request: Request, now: Instant) -> Result<(), RequestError> {
        if let Request::Data(ssdu) = request {
            return self.request_data(ssdu, false);
        }
        self.request_any(request, now)
    }

    /// Handles an indication from the transport service.
    #[inline]
    pub fn arrive(&mut self, below: transport::Indication, now: Instant) {
        match below {
            transport::Indication::Data(tsdu) => self.on_tsdu(tsdu, now),
            transport::Indication::Connect { .. } => self.on_transport(Event::TConInd, now),
            transport::Indication::Confirm { .. } => self.on_transport(Event::TConCnf, now),
            transport::Indication::Disconnect { .. } => self.on_transport(Event::TDisInd, now),
        }
    }

    /// Returns the next indication or confirmation.
    pub fn poll_up(&mut self) -> Option<Indication> {
        self.up.pop_front()
    }

    /// Returns the next request to the transport service.
    pub fn poll_down(&mut self) -> Option<transport::Request> {
        self.down.pop_front()
    }

    /// Returns when [`Session::settle`] must be called.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Ends the connection if a timer has expired.
    pub fn settle(&mut self, now: Instant) {
        if now < self.deadline {
            return;
        }
        self.deadline = Instant::NEVER;
        self.counters.timeouts += 1;
        match self.state {
            State::Sta16 => self.on_transport(Event::Tim, now),
            // The user has not been notified of this connection yet.
            State::Sta01C | State::Sta01D => {
                self.disconnect();
                self.become_state(State::Sta01, now);
            }
            _ => self.abort(AbortReason::Undefined, now),
        }
    }

    /// Returns V(M), the serial number that the next minor synchronisation point will get.
    pub fn serial_next(&self) -> u32 {
        self.variables.vm
    }

    /// Returns whether this end holds the synchronise-minor token.
    pub fn holds_minor(&self) -> bool {
        self.variables.units.has(Units::MINOR_SYNCHRONISE) && self.variables.owns_minor
    }

    /// Returns the selected functional units.
    pub fn units(&self) -> Units {
        self.variables.units
    }

    /// Returns the selected version; before the selection, the highest one proposed.
    pub fn version_selected(&self) -> u8 {
        if self.version_2 { 2 } else { 1 }
    }

    /// Returns whether data can be sent.
    pub fn is_open(&self) -> bool {
        self.state == State::Sta713
    }

    /// Returns whether there is no session or transport connection, neither established nor pending.
    pub fn is_idle(&self) -> bool {
        self.state == State::Sta01
    }

    /// Returns the counters.
    pub fn counters(&self) -> &SessionCounters {
        &self.counters
    }

    fn on_transport(&mut self, event: Event, now: Instant) {
        let overflow = self.connect.as_ref().is_some_and(|connect| connect.overflow);
        let given = Given { overflow, ..Given::default() };
        if let Verdict::Go(actions, next) = state::verdict(self.state, event, &self.variables, &given) {
            self.act(actions, next, Cause::default(), now);
        }
    }

    /// Aborts the connection (§A.4.1.2 a): indicates it to the user, sends ABORT to the peer, and starts TIM.
    pub(super) fn abort(&mut self, reason: AbortReason, now: Instant) {
        self.up.push_back(Indication::PAbort { reason });
        self.counters.aborts_out += 1;
        self.send(Spdu::Abort(wire::Abort {
            protocol_error: reason == AbortReason::ProtocolError,
            restriction: reason == AbortReason::Restriction,
            no_reason: reason == AbortReason::Undefined,
            ..wire::Abort::default()
        }));
        self.become_state(State::Sta16, now);
    }

    pub(super) fn disconnect(&mut self) {
        self.down.push_back(transport::Request::Disconnect {
            reason: transport::DisconnectReason::Normal,
            additional: alloc::vec::Vec::new(),
        });
    }

    /// Enters a state: discards what belongs to the old state, and starts the new state's timers.
    pub(super) fn become_state(&mut self, next: State, now: Instant) {
        let changed = self.state != next;
        self.state = next;
        if !changed {
            return;
        }
        self.deadline = match next {
            State::Sta16 => now + self.config.abort_timeout,
            State::Sta01C | State::Sta01D | State::Sta02A | State::Sta02B => {
                self.config.connect_timeout.map_or(Instant::NEVER, |timeout| now + timeout)
            }
            _ => Instant::NEVER,
        };
        match next {
            // A resynchronisation discards a partly received SSDU (§7.11.3).
            State::Sta05A | State::Sta11A => self.ssdu = None,
            State::Sta01 | State::Sta16 => {
                self.ssdu = None;
                self.partial = None;
                self.connect = None;
                self.overflow = Rope::new();
                self.tsdu_bytes_max = 0;
                self.version_2 = self.config.versions.has(Versions::V2);
                self.variables = Variables { initiator: self.variables.initiator, ..Variables::default() };
            }
            _ => {}
        }
    }
}
