//! The transport machine.

use super::assembly::Assembly;
use super::config::Config;
use super::counters::TransportCounters;
use super::primitives::{DisconnectReason, Indication, Origin, Request};
use super::size::Sizes;
use super::state::{self, Action, Event, Predicates, State, Verdict};
use crate::wire::cotp::{self, Connect, DATA_HEADER_BYTES, HEADER_BYTES_MAX, RejectCause, Tpdu};
use crate::{RequestError, Selector, network};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use kiban_base::{Instant, Malformed, Rope};

/// Maximum length of a transport selector in bytes.
pub const SELECTOR_BYTES_MAX: usize = 32;
/// Maximum length in bytes of the additional information in a refusal, chosen so that the refusing TPDU has
/// at most 128 bytes (X.224 §13.5.4).
pub const ADDITIONAL_BYTES_MAX: usize = 119;
/// Maximum number of bytes that an ER TPDU returns of an invalid TPDU.
const INVALID_BYTES_MAX: usize = 64;

/// Maximum number of consecutive DTs that carry nothing.
const EMPTY_MAX: u32 = 1024;

/// A transport connection of class 0, with its network connection.
#[derive(Debug)]
pub struct Transport {
    config: Config,
    state: State,
    network: NetworkState,
    /// Selectors from the user's connect request, kept until the network connection is open.
    wanted: Option<(Selector, Selector)>,
    /// The received CR, kept until the user answers it.
    called: Option<Connect>,
    /// The reference that the peer assigned.
    remote: u16,
    payload_bytes_max: usize,
    assembly: Assembly,
    /// The number of DTs received that carry nothing.
    empty_in: u32,
    deadline: Instant,
    up: VecDeque<Indication>,
    down: VecDeque<network::Request>,
    counters: TransportCounters,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NetworkState {
    None,
    Opening,
    Open,
    /// This end has closed the connection; anything still received is ignored.
    Ended,
}

/// The reason why a TPDU is rejected, and the answer to it.
enum Refusal {
    Disconnect(DisconnectReason, Vec<u8>),
    Error(RejectCause),
}

/// Parameters of an event that its actions need.
#[derive(Default)]
struct Cause {
    connect: Option<Connect>,
    disconnect: Option<(Origin, DisconnectReason, Vec<u8>)>,
    refusal: Option<Refusal>,
    sizes: Option<usize>,
    selectors: Option<(Selector, Selector)>,
    data: Rope,
}

impl Transport {
    /// Creates a machine without a connection, for either the calling or the called side.
    pub fn new(config: Config) -> Transport {
        Transport {
            payload_bytes_max: config.bytes_max() - DATA_HEADER_BYTES,
            config,
            state: State::Closed,
            network: NetworkState::None,
            wanted: None,
            called: None,
            remote: 0,
            assembly: Assembly::default(),
            empty_in: 0,
            deadline: Instant::NEVER,
            up: VecDeque::new(),
            down: VecDeque::new(),
            counters: TransportCounters::default(),
        }
    }

    /// Accepts a request or a response.
    ///
    /// # Errors
    /// [`RequestError`]: the request is not allowed in this state, or a parameter is too long. It then
    /// changes nothing.
    pub fn request(&mut self, request: Request, now: Instant) -> Result<(), RequestError> {
        let mut cause = Cause::default();
        let event = match request {
            Request::Connect { calling, called } => {
                if calling.len() > SELECTOR_BYTES_MAX || called.len() > SELECTOR_BYTES_MAX {
                    return Err(RequestError::Length);
                }
                cause.selectors = Some((calling, called));
                Event::TConReq
            }
            Request::Respond { responding } => {
                if responding.len() > SELECTOR_BYTES_MAX {
                    return Err(RequestError::Length);
                }
                cause.selectors = Some((Selector::NONE, responding));
                Event::TConResp
            }
            Request::Data(tsdu) => {
                if tsdu.is_empty() {
                    return Err(RequestError::Length);
                }
                cause.data = tsdu;
                Event::TDtReq
            }
            Request::Disconnect { reason, additional } => {
                if additional.len() > ADDITIONAL_BYTES_MAX {
                    return Err(RequestError::Length);
                }
                cause.refusal = Some(Refusal::Disconnect(reason, additional));
                Event::TDisReq
            }
        };
        let predicates = Predicates {
            network_open: self.network == NetworkState::Open,
            network_opening: self.network == NetworkState::Opening,
            ..Predicates::default()
        };
        match state::verdict(self.state, event, predicates) {
            Verdict::Invalid => Err(RequestError::State),
            Verdict::Go(actions, next) => {
                if event == Event::TConReq {
                    self.wanted = cause.selectors.take();
                    self.wait(now);
                }
                self.act(actions, next, cause);
                if event == Event::TDisReq && self.network == NetworkState::Open {
                    // The connection was refused, so the peer must close the network connection before the
                    // timeout.
                    self.wait(now);
                }
                Ok(())
            }
        }
    }

    /// Handles an indication from the network service.
    pub fn arrive(&mut self, below: network::Indication, now: Instant) {
        match below {
            network::Indication::Connected => self.on_connected(now),
            network::Indication::Data(nsdu) if self.network == NetworkState::Open => self.on_tpdu(nsdu, now),
            network::Indication::Data(_) => {}
            network::Indication::Disconnected { origin, .. } => {
                self.network = NetworkState::None;
                let origin = match origin {
                    network::Origin::User => Origin::User,
                    network::Origin::Provider | network::Origin::Unknown => Origin::Provider,
                };
                let disconnect = Some((origin, DisconnectReason::Network, Vec::new()));
                let cause = Cause { disconnect, ..Cause::default() };
                match state::verdict(self.state, Event::NDisInd, Predicates::default()) {
                    Verdict::Go(actions, next) => self.act(actions, next, cause),
                    Verdict::Invalid => self.deadline = Instant::NEVER,
                }
            }
        }
    }

    /// Returns the next indication or confirmation.
    pub fn poll_up(&mut self) -> Option<Indication> {
        self.up.pop_front()
    }

    /// Returns the next request to the network service.
    pub fn poll_down(&mut self) -> Option<network::Request> {
        self.down.pop_front()
    }

    /// Returns when [`Transport::settle`] must be called.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Closes a connection that was not established in time.
    pub fn settle(&mut self, now: Instant) {
        if now < self.deadline {
            return;
        }
        self.counters.connects_timed_out += 1;
        self.fail(Origin::Provider, DisconnectReason::Timeout, network::Reason::Abnormal);
    }

    /// Sets the maximum length of a received TSDU in bytes.
    pub fn set_tsdu_bytes_max(&mut self, bytes: usize) {
        self.config.tsdu_bytes_max = bytes;
    }

    /// Returns the negotiated maximum TPDU size for sending, in bytes, header included.
    pub fn tpdu_bytes_max(&self) -> usize {
        self.payload_bytes_max + DATA_HEADER_BYTES
    }

    /// Returns whether the connection is open.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Returns whether there is no transport or network connection, established or pending.
    pub fn is_idle(&self) -> bool {
        self.state == State::Closed && matches!(self.network, NetworkState::None | NetworkState::Ended)
    }

    /// Returns the counters.
    pub fn counters(&self) -> &TransportCounters {
        &self.counters
    }

    fn on_connected(&mut self, now: Instant) {
        match self.network {
            NetworkState::Open | NetworkState::Ended => {}
            NetworkState::Opening => {
                self.network = NetworkState::Open;
                if let Verdict::Go(actions, next) =
                    state::verdict(self.state, Event::NConConf, Predicates::default())
                {
                    self.act(actions, next, Cause::default());
                }
            }
            NetworkState::None => {
                self.network = NetworkState::Open;
                self.down.push_back(network::Request::Accept);
                self.wait(now);
            }
        }
    }

    #[inline]
    fn on_tpdu(&mut self, mut nsdu: Rope, now: Instant) {
        self.counters.tpdus_in += 1;
        if self.state == State::Open
            && let Some(end) = cotp::data_end(nsdu.first_run())
        {
            nsdu.skip(DATA_HEADER_BYTES);
            return self.on_data(nsdu, end);
        }
        self.on_control(nsdu, now);
    }

    fn on_control(&mut self, mut nsdu: Rope, now: Instant) {
        let mut header = [0; HEADER_BYTES_MAX];
        let there = nsdu.copy_to(0, &mut header);
        let (tpdu, used) = match Tpdu::read(&header[..there]) {
            Ok(read) => read,
            Err(rule) => {
                self.counters.tpdus_malformed += 1;
                let cause = match rule {
                    Malformed::Operation => RejectCause::Type,
                    Malformed::OptionLength => RejectCause::ParameterValue,
                    _ => RejectCause::NotSpecified,
                };
                return self.reject(cause, &header[..there]);
            }
        };
        nsdu.skip(used);
        let mut cause = Cause::default();
        let mut predicates = Predicates { network_open: true, ..Predicates::default() };
        let event = match tpdu {
            Tpdu::ConnectRequest(connect) => {
                predicates.cr_class_4 = connect.class == 4;
                match self.validate_request(&connect) {
                    Ok(bytes) => cause.sizes = Some(bytes),
                    Err(refusal) => {
                        predicates.cr_unacceptable = true;
                        cause.refusal = Some(refusal);
                    }
                }
                cause.connect = Some(connect);
                Event::Cr
            }
            Tpdu::ConnectConfirm(connect) => {
                let sizes = Sizes { code: connect.tpdu_size, preferred: connect.preferred };
                cause.sizes = sizes.selected(&self.config);
                predicates.cc_acceptable = connect.class == 0
                    && connect.destination == self.config.reference
                    && cause.sizes.is_some();
                cause.disconnect = Some((Origin::Provider, DisconnectReason::ProtocolError, Vec::new()));
                cause.refusal = Some(Refusal::Disconnect(DisconnectReason::MismatchedReferences, Vec::new()));
                cause.connect = Some(connect);
                Event::Cc
            }
            Tpdu::DisconnectRequest { reason, additional, .. } => {
                let reason = DisconnectReason::of_code(reason);
                let origin = match reason {
                    DisconnectReason::Normal | DisconnectReason::NotSpecified => Origin::User,
                    _ => Origin::Provider,
                };
                cause.disconnect = Some((origin, reason, additional));
                Event::Dr
            }
            Tpdu::Data { end } => {
                if self.state == State::Open {
                    return self.on_data(nsdu, end);
                }
                Event::Dt
            }
            Tpdu::Error { .. } => {
                // In answer to a CR, an ER is a refusal (X.224 §6.6); later, it means that this end violated
                // the protocol.
                let reason = match self.state {
                    State::Wfcc => DisconnectReason::NegotiationFailed,
                    _ => DisconnectReason::ProtocolError,
                };
                cause.disconnect = Some((Origin::Provider, reason, Vec::new()));
                Event::Er
            }
            Tpdu::Other(_) => Event::Other,
        };
        match state::verdict(self.state, event, predicates) {
            Verdict::Go(actions, next) => {
                self.act(actions, next, cause);
                if event == Event::Cr && self.state == State::Closed {
                    self.wait(now);
                }
            }
            Verdict::Invalid => {
                self.counters.tpdus_unexpected += 1;
                match event {
                    // An ER or a DR is not answered with an ER.
                    Event::Er | Event::Dr => {
                        self.fail(
                            Origin::Provider,
                            DisconnectReason::ProtocolError,
                            network::Reason::Protocol,
                        );
                    }
                    _ => self.reject(RejectCause::Type, &header[..there.min(used)]),
                }
            }
        }
    }

    /// Validates a CR. Returns the TPDU size in bytes, or how to refuse the CR.
    fn validate_request(&self, connect: &Connect) -> Result<usize, Refusal> {
        if !connect.offers_class_0() {
            return Err(Refusal::Disconnect(DisconnectReason::NegotiationFailed, Vec::new()));
        }
        let called = Selector::from(connect.called.as_deref().unwrap_or_default());
        let calling_bytes = connect.calling.as_ref().map_or(0, Vec::len);
        if called.len().max(calling_bytes) > SELECTOR_BYTES_MAX
            || !self.config.accepted_selectors.has(&called)
        {
            return Err(Refusal::Disconnect(DisconnectReason::AddressUnknown, Vec::new()));
        }
        let sizes = Sizes { code: connect.tpdu_size, preferred: connect.preferred };
        match sizes.answer(&self.config) {
            Some((_, bytes)) => Ok(bytes),
            None => Err(Refusal::Error(RejectCause::ParameterValue)),
        }
    }

    #[inline]
    fn on_data(&mut self, data: Rope, end: bool) {
        if self.assembly.len() + data.len() > self.config.tsdu_bytes_max {
            self.counters.tsdus_oversized += 1;
            return self.fail(Origin::Provider, DisconnectReason::Oversized, network::Reason::Abnormal);
        }
        // X.224 §13.7: only the last DT of a TSDU may be empty. A peer could otherwise send them for ever.
        if !data.is_empty() {
            self.empty_in = 0;
        } else if !end || self.assembly.is_empty() {
            self.empty_in += 1;
            if self.empty_in > EMPTY_MAX {
                self.counters.tpdus_unexpected += 1;
                return self.fail(
                    Origin::Provider,
                    DisconnectReason::ProtocolError,
                    network::Reason::Protocol,
                );
            }
        }
        if !end {
            return self.assembly.add(data);
        }
        let tsdu = if self.assembly.is_empty() { data } else { self.assembly.finish(data) };
        // X.214: a TSDU has at least one octet, so an empty one is dropped.
        if !tsdu.is_empty() {
            self.up.push_back(Indication::Data(tsdu));
        }
    }

    fn act(&mut self, actions: &[Action], next: State, mut cause: Cause) {
        for action in actions {
            match action {
                Action::TConInd => {
                    let connect = cause.connect.take().expect("the event is a CR");
                    self.payload_bytes_max = cause.sizes.expect("it was validated") - DATA_HEADER_BYTES;
                    self.remote = connect.source;
                    self.deadline = Instant::NEVER;
                    self.up.push_back(Indication::Connect {
                        calling: selector(&connect.calling),
                        called: selector(&connect.called),
                    });
                    self.called = Some(connect);
                }
                Action::TConConf => {
                    let connect = cause.connect.take().expect("the event is a CC");
                    self.payload_bytes_max = cause.sizes.expect("it was validated") - DATA_HEADER_BYTES;
                    self.remote = connect.source;
                    self.deadline = Instant::NEVER;
                    self.up.push_back(Indication::Confirm { responding: selector(&connect.called) });
                }
                Action::TDisInd => {
                    let (origin, reason, additional) = cause.disconnect.take().expect("the event says why");
                    self.up.push_back(Indication::Disconnect { origin, reason, additional });
                }
                Action::NConReq => {
                    self.network = NetworkState::Opening;
                    self.down.push_back(network::Request::Connect);
                }
                Action::NDisReq => self.end_network(network::Reason::Normal),
                Action::Cr => self.call(),
                Action::Cc => self.confirm(cause.selectors.take().expect("a response has one").1),
                Action::Dr => {
                    self.counters.connects_refused += 1;
                    if let Some(connect) = cause.connect.take() {
                        self.remote = connect.source;
                    }
                    let tpdu = match cause.refusal.take().expect("the event says why") {
                        Refusal::Disconnect(reason, additional) => Tpdu::DisconnectRequest {
                            destination: self.remote,
                            source: 0,
                            reason: reason.code(),
                            additional,
                        },
                        Refusal::Error(cause) => {
                            Tpdu::Error { destination: self.remote, cause, invalid: Vec::new() }
                        }
                    };
                    self.send(&tpdu);
                }
                Action::Data => self.cut(core::mem::take(&mut cause.data)),
            }
        }
        self.state = next;
        if next == State::Closed {
            self.forget();
        }
    }

    fn call(&mut self) {
        let (calling, called) = self.wanted.take().expect("the user requested a connection");
        let sizes = Sizes::proposal(&self.config);
        let given = |selector: Selector| (!selector.is_empty()).then(|| selector.bytes().to_vec());
        self.send(&Tpdu::ConnectRequest(Connect {
            source: self.config.reference,
            calling: given(calling),
            called: given(called),
            tpdu_size: sizes.code,
            preferred: sizes.preferred,
            ..Connect::default()
        }));
    }

    fn confirm(&mut self, responding: Selector) {
        let called = self.called.take().expect("a CR was received");
        let proposal = Sizes { code: called.tpdu_size, preferred: called.preferred };
        let (answer, _) = proposal.answer(&self.config).expect("it was validated");
        let responding = match responding.is_empty() {
            true => called.called,
            false => Some(responding.bytes().to_vec()),
        };
        self.send(&Tpdu::ConnectConfirm(Connect {
            destination: called.source,
            source: self.config.reference,
            calling: called.calling,
            called: responding,
            tpdu_size: answer.code,
            preferred: answer.preferred,
            ..Connect::default()
        }));
    }

    #[inline]
    fn cut(&mut self, mut tsdu: Rope) {
        while tsdu.len() > self.payload_bytes_max {
            let part = tsdu.split_to(self.payload_bytes_max);
            self.send_data(part, false);
        }
        self.send_data(tsdu, true);
    }

    #[inline]
    fn send_data(&mut self, mut part: Rope, end: bool) {
        part.prepend(&cotp::data_header(end));
        self.counters.tpdus_out += 1;
        self.down.push_back(network::Request::Data(part));
    }

    fn send(&mut self, tpdu: &Tpdu) {
        let mut header = [0; HEADER_BYTES_MAX];
        let length = tpdu.write(&mut header);
        self.counters.tpdus_out += 1;
        self.down.push_back(network::Request::Data(Rope::copied(&header[..length])));
    }

    /// Sends an ER TPDU and closes the network connection (X.224 §6.22.1.3).
    fn reject(&mut self, cause: RejectCause, invalid: &[u8]) {
        let invalid = invalid[..invalid.len().min(INVALID_BYTES_MAX)].to_vec();
        self.send(&Tpdu::Error { destination: self.remote, cause, invalid });
        self.fail(Origin::Provider, DisconnectReason::ProtocolError, network::Reason::Protocol);
    }

    /// Ends the transport connection and the network connection, if they exist.
    fn fail(&mut self, origin: Origin, reason: DisconnectReason, below: network::Reason) {
        if self.state != State::Closed {
            self.up.push_back(Indication::Disconnect { origin, reason, additional: Vec::new() });
        }
        self.state = State::Closed;
        self.end_network(below);
        self.forget();
    }

    fn end_network(&mut self, reason: network::Reason) {
        if matches!(self.network, NetworkState::Opening | NetworkState::Open) {
            self.network = NetworkState::Ended;
            self.down.push_back(network::Request::Disconnect { reason });
        }
    }

    fn forget(&mut self) {
        self.deadline = Instant::NEVER;
        self.assembly = Assembly::default();
        self.wanted = None;
        self.called = None;
        self.remote = 0;
    }

    fn wait(&mut self, now: Instant) {
        self.deadline = self.config.connect_timeout.map_or(Instant::NEVER, |timeout| now + timeout);
    }
}

pub(super) fn selector(parameter: &Option<Vec<u8>>) -> Selector {
    parameter.as_deref().unwrap_or_default().into()
}
