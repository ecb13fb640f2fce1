//! The session protocol (X.225): kernel, duplex, minor synchronise, resynchronise, typed data; versions 1 and
//! 2.
//!
//! Purpose          a dialogue with synchronisation points to which both users can return, and an orderly
//!                  release.
//! Transmit path    each TSDU has one SPDU; an SPDU of category 2 follows a GIVE TOKENS without tokens. A
//!                  data SSDU gets a header of four bytes.
//! Receive path     indications and confirmations; their user data shares the memory of the received TSDUs.
//! Versions         1 and 2 are proposed, or only 2 if there is more user data than version 1 can carry; 2 is
//!                  preferred. Version 1 limits user data to 512 octets, or 9 in an ABORT, and does not
//!                  segment it.
//! Segmenting       data, if a maximum TSDU size was negotiated; in version 2 also other user data, for
//!                  example if it exceeds what one SPDU can hold. More than 10240 octets in a CONNECT
//!                  continue in CONNECT DATA OVERFLOW SPDUs.
//! Options chosen   a transport connection carries one session connection and is then closed. Half-duplex is
//!                  never proposed or accepted. A protocol error is answered by ABORT (§A.4.1.2 a); after
//!                  ABORT, DISCONNECT or REFUSE, the peer has `abort_timeout` (TIM) to close the transport
//!                  connection.
//! Limits           `ssdu_bytes_max` for data, `user_data_bytes_max` for the user data of other SPDUs,
//!                  `connect_timeout` for a connection being established.
//! Not implemented  half-duplex, major synchronisation, activities, expedited data, exceptions, negotiated
//!                  release, symmetric synchronisation, data separation; extended concatenation, which is
//!                  never proposed.

mod act;
mod cause;
mod primitives;
mod receive;
mod send;
mod state;
#[cfg(test)]
mod tests;

pub use crate::wire::session::{
    RefuseReason, Resynchronisation, TokenSetting, TokenSettings, Tokens, Units, Versions,
};
pub use primitives::{
    AbortReason, Accept, Answer, Connect, ConnectionId, Indication, Refuse, Request, SERIAL_MAX,
};

use super::{AcceptedSelectors, RequestError, Selector, transport};
use crate::wire::session::{self as wire, Spdu, TsduSizes};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use cause::Cause;
use core::time::Duration;
use kiban_base::{Instant, Rope};
use state::{Event, Given, State, Variables, Verdict};

/// The functional units that this implementation supports.
pub const OFFERED: Units = Units::DUPLEX.or(Units::SYNCHRONISE).or(Units::TYPED_DATA);
/// The smallest TSDU size that is accepted, in bytes, since SPDUs that cannot be segmented have to fit.
pub const TSDU_BYTES_MIN: u16 = 1024;

/// Configuration of a session machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The calling transport selector, for connections made by this end.
    pub transport_calling: Selector,
    /// The called transport selector, for connections made by this end.
    pub transport_called: Selector,
    /// The called session selectors that are accepted.
    pub attached: AcceptedSelectors,
    /// The protocol versions to propose and accept.
    pub versions: Versions,
    /// Maximum size of a sent TSDU in bytes; 0 means unlimited. Values below [`TSDU_BYTES_MIN`] are raised to
    /// it.
    pub tsdu_out_bytes_max: u16,
    /// Maximum size of a received TSDU in bytes, to be proposed to the peer; values as in
    /// `tsdu_out_bytes_max`.
    pub tsdu_in_bytes_max: u16,
    /// Maximum length of a received data or typed data SSDU in bytes.
    pub ssdu_bytes_max: usize,
    /// Maximum length of the user data of any other SPDU in bytes.
    pub user_data_bytes_max: usize,
    /// TIM: the time that the peer has to close the transport connection.
    pub abort_timeout: Duration,
    /// Time limit for establishing a connection: from the transport connection to the CONNECT, and from the
    /// CONNECT to its answer.
    pub connect_timeout: Option<Duration>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            transport_calling: Selector::NONE,
            transport_called: Selector::NONE,
            attached: AcceptedSelectors::Any,
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

kiban_base::counters! {
    /// Counters of a session machine.
    pub struct SessionCounters {
        /// TSDUs received.
        tsdus_in,
        /// TSDUs sent.
        tsdus_out,
        /// Malformed TSDUs received.
        tsdus_malformed,
        /// SPDUs received that are not allowed in the state.
        spdus_unexpected,
        /// Service data units received that are too long.
        ssdus_oversized,
        /// CONNECTs refused by this machine.
        connects_refused,
        /// Connections aborted by this machine.
        aborts_out,
        /// Connections aborted by the peer.
        aborts_in,
        /// Timers that expired.
        timeouts,
    }
}

/// A session connection, with its single transport connection.
#[derive(Debug)]
pub struct Session {
    config: Config,
    state: State,
    variables: Variables,
    /// Whether version 2 is selected; before the selection, whether version 2 was proposed.
    version_2: bool,
    /// Maximum size of a sent TSDU in bytes; 0 means unlimited.
    tsdu_bytes_max: usize,
    /// The CONNECT sent or received, while it awaits its answer, with the part of its user data not yet sent.
    connect: Option<Box<wire::Connect>>,
    overflow: Rope,
    /// The answer to the CONNECT's proposal of TSDU sizes.
    tsdu_sizes: TsduSizes,
    /// Serial number of the resynchronisation in progress.
    resync_serial: u32,
    resync_tokens: TokenSettings,
    /// Whether this end requested the resynchronisation in progress.
    resync_own: bool,
    /// A partly received SSDU of data or typed data; the flag means typed data.
    ssdu: Option<(bool, Rope)>,
    /// Another SPDU whose user data is partly received.
    partial: Option<(Spdu, Rope)>,
    deadline: Instant,
    up: VecDeque<Indication>,
    down: VecDeque<transport::Request>,
    counters: SessionCounters,
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
    /// [`RequestError`]: the request is not allowed in this state, or a parameter is invalid. It then changes
    /// nothing.
    #[inline]
    pub fn request(&mut self, request: Request, now: Instant) -> Result<(), RequestError> {
        if let Request::Data(ssdu) = request {
            return self.request_data(ssdu, false);
        }
        self.request_any(request, now)
    }

    /// Handles an indication of the transport service.
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

    /// Returns the serial number that the next minor synchronisation point gets: V(M).
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

    /// Returns whether there is no session or transport connection, established or pending.
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

    /// Enters a state: discards what belongs to the old state, and starts the new state's timers.
    fn become_state(&mut self, next: State, now: Instant) {
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
