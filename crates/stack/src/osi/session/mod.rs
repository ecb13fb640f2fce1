//! The session protocol (X.225): kernel, duplex, minor synchronise, resynchronise, typed data; versions 1 and 2.
//!
//! Goal      a dialogue with points to which both ends can go back, and an end that both agree on.
//! Down      SPDUs, one to a TSDU; those of category 2 behind a GIVE TOKENS without tokens. A data SSDU gets four bytes in front.
//! Up        indications and confirmations, user data cut out of the TSDUs that arrived.
//! Versions  1 and 2 are proposed, 2 alone when there is more user data than 1 carries, and 2 is preferred. Version 1 bounds user
//!           data to 512 octets, in an ABORT to 9, and does not segment.
//! Segments  data, when a largest TSDU was negotiated; other user data, in version 2, also when an SPDU would not hold it.
//!           More than 10240 octets with CONNECT overflow into CONNECT DATA OVERFLOW.
//! Choices   the transport connection is used once and ended. Half-duplex is never offered or taken. A protocol error is answered
//!           with ABORT (§A.4.1.2 a); after it, and after DISCONNECT or REFUSE, the peer has `abort_timeout` (TIM) to end
//!           the transport connection.
//! Limits    `ssdu_bytes_max` for data, `user_data_bytes_max` for the user data of other SPDUs, `connect_timeout` for a
//!           connection half made.
//! Left out  half-duplex, major synchronisation, activities, expedited data, exceptions, negotiated release, symmetric
//!           synchronisation, data separation; extended concatenation, which is never asked for.

mod act;
mod primitives;
mod receive;
mod send;
mod state;
#[cfg(test)]
mod tests;

pub use kiban_wire::session::{
    RefuseReason, Resynchronisation, TokenSetting, TokenSettings, Tokens, Units, Versions,
};
pub use primitives::{
    AbortReason, Accept, Answer, Connect, ConnectionId, Indication, Refuse, Request, SERIAL_MAX,
};

use super::{Attached, Misuse, Selector, transport};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::time::Duration;
use kiban_ground::{Instant, Rope};
use kiban_wire::session::{self as wire, Spdu, TsduSizes};
use state::{Event, Given, State, Variables, Verdict};

/// The functional units that this implementation offers.
pub const OFFERED: Units = Units::DUPLEX.or(Units::SYNCHRONISE).or(Units::TYPED_DATA);
/// The smallest TSDU size that is agreed to: what does not segment has to fit.
pub const TSDU_BYTES_MIN: u16 = 1024;

/// How a session machine is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The transport selector of this end, for connections that it asks for.
    pub transport_calling: Selector,
    /// The transport selector of the other end, likewise.
    pub transport_called: Selector,
    /// Which session selectors may be called here.
    pub attached: Attached,
    /// The versions of the protocol that are proposed and taken.
    pub versions: Versions,
    /// The largest TSDU that is sent; 0: any. Below [`TSDU_BYTES_MIN`] it is that.
    pub tsdu_out_bytes_max: u16,
    /// The largest TSDU that the peer is asked to send, likewise.
    pub tsdu_in_bytes_max: u16,
    /// The longest data or typed data SSDU that is taken.
    pub ssdu_bytes_max: usize,
    /// The most user data with anything else.
    pub user_data_bytes_max: usize,
    /// TIM: how long the peer may take to end the transport connection.
    pub abort_timeout: Duration,
    /// How long a connection may be half made: from the transport connection to CONNECT, from CONNECT to its answer.
    pub connect_timeout: Option<Duration>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            transport_calling: Selector::NONE,
            transport_called: Selector::NONE,
            attached: Attached::Any,
            versions: Versions::V1.or(Versions::V2),
            tsdu_out_bytes_max: 0,
            tsdu_in_bytes_max: 0,
            ssdu_bytes_max: 16 << 20,
            user_data_bytes_max: 1 << 20,
            abort_timeout: Duration::from_secs(10),
            connect_timeout: Some(Duration::from_secs(120)),
        }
    }
}

kiban_ground::counters! {
    /// What a session machine sent, took and refused.
    pub struct SessionCounters {
        /// TSDUs that arrived.
        tsdus_in,
        /// TSDUs sent.
        tsdus_out,
        /// TSDUs that broke a rule of their format.
        tsdus_malformed,
        /// SPDUs that the state does not take.
        spdus_unexpected,
        /// Service data units longer than is taken.
        ssdus_oversized,
        /// CONNECTs refused by this machine.
        connects_refused,
        /// Connections aborted by this machine.
        aborts_out,
        /// Connections aborted by the peer.
        aborts_in,
        /// Timers that ran out.
        timeouts,
    }
}

/// A session connection, and the one transport connection that it has.
#[derive(Debug)]
pub struct Session {
    config: Config,
    state: State,
    variables: Variables,
    /// The selected version; until then the highest that was proposed.
    version_2: bool,
    /// The largest TSDU to send; 0: any.
    tsdu_bytes_max: usize,
    /// The CONNECT of either end, while it is being answered, and what of its user data is not sent yet.
    connect: Option<Box<wire::Connect>>,
    overflow: Rope,
    /// The answer to the CONNECT's proposal of TSDU sizes.
    tsdu_sizes: TsduSizes,
    /// Of the resynchronisation under way: its number and its tokens.
    resync_serial: u32,
    resync_tokens: TokenSettings,
    /// Whether this end asked for it.
    resync_own: bool,
    /// A service data unit of data or typed data of which a part has come.
    ssdu: Option<(bool, Rope)>,
    /// Another SPDU of whose user data a part has come.
    partial: Option<(Spdu, Rope)>,
    deadline: Option<Instant>,
    up: VecDeque<Indication>,
    down: VecDeque<transport::Request>,
    counters: SessionCounters,
}

impl Session {
    /// One that has no connection yet: it asks for one, or is told of one.
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
            deadline: None,
            up: VecDeque::new(),
            down: VecDeque::new(),
            counters: SessionCounters::default(),
        }
    }

    /// Takes a request or a response.
    ///
    /// # Errors
    /// [`Misuse`]: the state has no place for it, or a parameter cannot be; nothing has changed.
    #[inline]
    pub fn request(&mut self, request: Request, now: Instant) -> Result<(), Misuse> {
        if let Request::Data(ssdu) = request {
            return self.request_data(ssdu, false);
        }
        self.request_any(request, now)
    }

    /// Takes what transport says.
    #[inline]
    pub fn indicate(&mut self, below: transport::Indication, now: Instant) {
        match below {
            transport::Indication::Data(tsdu) => self.on_tsdu(tsdu, now),
            transport::Indication::Connect { .. } => self.on_transport(Event::TConInd, now),
            transport::Indication::Confirm { .. } => self.on_transport(Event::TConCnf, now),
            transport::Indication::Disconnect { .. } => self.on_transport(Event::TDisInd, now),
        }
    }

    /// The next indication or confirmation.
    pub fn poll_up(&mut self) -> Option<Indication> {
        self.up.pop_front()
    }

    /// The next request to transport.
    pub fn poll_down(&mut self) -> Option<transport::Request> {
        self.down.pop_front()
    }

    /// When [`Session::timeout`] is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Ends what waited for too long.
    pub fn timeout(&mut self, now: Instant) {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        self.deadline = None;
        self.counters.timeouts += 1;
        match self.state {
            State::Sta16 => self.on_transport(Event::Tim, now),
            // Nobody knows of it yet.
            State::Sta01C | State::Sta01D => {
                self.disconnect();
                self.become_state(State::Sta01, now);
            }
            _ => self.abort(AbortReason::Undefined, now),
        }
    }

    /// The number that the next minor synchronisation point gets: V(M).
    pub fn serial_next(&self) -> u32 {
        self.variables.vm
    }

    /// Whether this end holds the synchronise-minor token.
    pub fn holds_minor(&self) -> bool {
        self.variables.units.has(Units::MINOR_SYNCHRONISE) && self.variables.owns_minor
    }

    /// The functional units that were selected.
    pub fn units(&self) -> Units {
        self.variables.units
    }

    /// The version that was selected; until then the highest that is offered.
    pub fn version_selected(&self) -> u8 {
        if self.version_2 { 2 } else { 1 }
    }

    /// Whether data can be sent.
    pub fn is_open(&self) -> bool {
        self.state == State::Sta713
    }

    /// Whether there is neither a connection nor one to come, above or below.
    pub fn is_idle(&self) -> bool {
        self.state == State::Sta01
    }

    /// What it counted.
    pub fn counters(&self) -> &SessionCounters {
        &self.counters
    }

    fn on_transport(&mut self, event: Event, now: Instant) {
        let overflow = self.connect.as_ref().is_some_and(|connect| connect.overflow);
        let given = Given { overflow, ..Given::default() };
        if let Verdict::Go(actions, next) = state::verdict(self.state, event, &self.variables, &given) {
            self.act(actions, next, act::Cause::default(), now);
        }
    }

    /// §A.4.1.2 a: the user is told, the peer gets an ABORT and the time of TIM.
    fn abort(&mut self, reason: AbortReason, now: Instant) {
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

    fn disconnect(&mut self) {
        self.down.push_back(transport::Request::Disconnect {
            reason: transport::DisconnectReason::Normal,
            additional: alloc::vec::Vec::new(),
        });
    }

    /// Enters a state: what belongs to the former goes, timers of the new one begin.
    fn become_state(&mut self, next: State, now: Instant) {
        let changed = self.state != next;
        self.state = next;
        if !changed {
            return;
        }
        self.deadline = match next {
            State::Sta16 => Some(now + self.config.abort_timeout),
            State::Sta01C | State::Sta01D | State::Sta02A | State::Sta02B => {
                self.config.connect_timeout.map(|timeout| now + timeout)
            }
            _ => None,
        };
        match next {
            // A resynchronisation destroys what was half received (§7.11.3).
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
