//! XOT: one X.25 circuit on one TCP connection (RFC 1613).
//!
//! Purpose          joins a TCP connection to a packet layer with one channel, without copying.
//! Transmit path    prepends a header of four bytes to every packet.
//! Receive path     the stream is cut into packets. Their channel numbers have no meaning (§5) and are
//!                  replaced by [`CHANNEL`]; restarts, diagnostics, registration and REJ are discarded
//!                  (§6.4).
//! Numbering        the called end adopts the modulo of the call. Every call states its window and packet
//!                  sizes (§6.1). P(R) has end-to-end significance: it acknowledges the data that the host
//!                  has taken.
//! PVC              the initiator sends the names of both interfaces and its own sizes, all of which must
//!                  match the responder's configuration ([`Pvc`]). Then both ends reset the circuit (§6.5).
//! Limits           one incomplete packet of up to `xot::PACKET_BYTES_MAX`. A different version, or an
//!                  impossible length, ends the connection: [`Xot::is_broken`].
//! Not implemented  switching packets to a local interface or to another connection.

use super::call::Sizes;
use super::config::{Channels, Config};
use super::layer::Layer;
use super::primitives::{Below, Indication, Misuse, Request};
use crate::lapb::Role;
use crate::wire::x25::{Cause, Front, HEADER_BYTES_MAX, Header, Kind, Modulo, diagnostic};
use crate::wire::xot::{self, PvcSetUp, PvcStatus};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use kiban_base::{Instant, Malformed, Rope, counters};

/// The only channel of a connection.
pub const CHANNEL: u16 = 1;

/// Maximum length of a PVC set-up packet in octets, with two names of 255 octets.
const SET_UP_BYTES_MAX: usize = 15 + 2 * 255;

counters! {
    /// Counters of an XOT connection.
    pub struct Counters {
        /// Packets discarded because XOT does not allow their type at this point.
        discarded,
        /// Packets with a modulo other than the call's.
        wrong_modulo,
        /// Invalid XOT headers.
        broken,
    }
}

/// Configuration of a permanent circuit at one end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pvc {
    /// The initiator's interface, and the channel there.
    pub initiator: (Vec<u8>, u16),
    /// The responder's interface, and the channel there.
    pub responder: (Vec<u8>, u16),
    /// The sizes at this end.
    pub sizes: Sizes,
    /// The modulo of the circuit.
    pub modulo: Modulo,
}

impl Pvc {
    /// Builds the initiator's set-up packet.
    fn set_up(&self, status: PvcStatus) -> Vec<u8> {
        let code = |bytes: u16| bytes.max(1).ilog2() as u8;
        let set_up = PvcSetUp {
            front: Front { modulo: self.modulo, qualifier: false, delivery: false, channel: CHANNEL },
            status,
            initiator: (&self.initiator.0, self.initiator.1),
            responder: (&self.responder.0, self.responder.1),
            windows: (self.sizes.window_in, self.sizes.window_out),
            packet_sizes: (code(self.sizes.packet_bytes_in), code(self.sizes.packet_bytes_out)),
        };
        let mut bytes = vec![0; set_up.length()];
        set_up.write(&mut bytes);
        bytes
    }

    /// Compares the initiator's request with this circuit's configuration.
    fn compare(&self, asked: &PvcSetUp<'_>) -> PvcStatus {
        let is_same = |name: &[u8], own: &[u8]| name.eq_ignore_ascii_case(own);
        if asked.status != PvcStatus::OK {
            return PvcStatus::PROTOCOL_ERROR;
        }
        if !is_same(asked.responder.0, &self.responder.0) {
            return PvcStatus::NO_INTERFACE;
        }
        if asked.responder.1 != self.responder.1 {
            return PvcStatus::NO_PVC;
        }
        if asked.initiator.1 != self.initiator.1 || !is_same(asked.initiator.0, &self.initiator.0) {
            return PvcStatus::MISMATCH;
        }
        // The initiator's incoming direction is the outgoing direction here.
        let code = |bytes: u16| bytes.max(1).ilog2() as u8;
        let Sizes { packet_bytes_out, packet_bytes_in, window_out, window_in } = self.sizes;
        let fits = asked.windows == (window_out, window_in)
            && asked.packet_sizes == (code(packet_bytes_out), code(packet_bytes_in));
        if fits { PvcStatus::OK } else { PvcStatus::FLOW_MISMATCH }
    }
}

/// The status of a permanent circuit.
#[derive(Clone, PartialEq, Eq, Debug)]
enum PvcState {
    /// There is no permanent circuit; the connection is for calls.
    None,
    /// This end has requested the circuit.
    Asked(Pvc),
    /// The peer is expected to request the circuit.
    Expected(Pvc),
    /// The circuit is established.
    Up,
    /// The circuit was refused.
    Refused(PvcStatus),
}

/// One end of an XOT connection.
#[derive(Debug)]
pub struct Xot {
    config: Config,
    layer: Layer,
    /// Whether the modulo is known. The called end takes it from the incoming call.
    is_settled: bool,
    stream: Rope,
    pvc: PvcState,
    ahead: VecDeque<Rope>,
    is_broken: bool,
    counters: Counters,
}

impl Xot {
    /// Creates a connection on which this end calls. Sizes, limits and timers are taken from `config`.
    pub fn calling(config: Config) -> Xot {
        let mut xot = Xot::called(config);
        xot.is_settled = true;
        xot
    }

    /// Creates a connection on which the peer calls, with the modulo of the call.
    pub fn called(config: Config) -> Xot {
        let channels = Channels { two_way: Some(CHANNEL..=CHANNEL), ..Channels::default() };
        let config = Config { channels, role: Role::Dte, restarts: false, states_sizes: true, ..config };
        Xot {
            layer: Xot::layer(&config),
            config,
            is_settled: false,
            stream: Rope::new(),
            pvc: PvcState::None,
            ahead: VecDeque::new(),
            is_broken: false,
            counters: Counters::default(),
        }
    }

    /// Creates a connection for a permanent circuit. `initiates` is true at the end that opened the TCP
    /// connection.
    pub fn permanent(config: Config, pvc: Pvc, initiates: bool) -> Xot {
        let channels = Channels { permanent: Some(CHANNEL..=CHANNEL), ..Channels::default() };
        let mut xot = Xot::called(Config { modulo: pvc.modulo, default: pvc.sizes, ..config });
        xot.config.channels = channels;
        xot.layer = Layer::new(xot.config.clone());
        xot.is_settled = true;
        if initiates {
            xot.ahead.push_back(pvc.set_up(PvcStatus::OK).into());
        }
        xot.pvc = if initiates { PvcState::Asked(pvc) } else { PvcState::Expected(pvc) };
        xot
    }

    fn layer(config: &Config) -> Layer {
        let mut layer = Layer::new(config.clone());
        layer.arrive(Below::Up, Instant::ZERO);
        // Drops the packet layer's indication that calls can be made.
        layer.poll_up();
        layer
    }

    /// Returns whether the peer violated the framing, so that the connection must be closed.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Returns why a permanent circuit was refused; the connection must then be closed.
    pub fn refusal(&self) -> Option<PvcStatus> {
        match self.pvc {
            PvcState::Refused(status) => Some(status),
            _ => None,
        }
    }

    /// Returns the packet layer, for inspection.
    pub fn packet_layer(&self) -> &Layer {
        &self.layer
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Accepts a request of the host; the channel is always [`CHANNEL`].
    ///
    /// # Errors
    /// Same as for [`Layer::request`]; also [`Misuse::State`] for a restart, which XOT does not carry (§6.4).
    pub fn request(&mut self, request: Request, now: Instant) -> Result<(), Misuse> {
        if matches!(request, Request::Restart(_)) {
            return Err(Misuse::State);
        }
        self.layer.request(request, now)
    }

    /// Handles bytes of the stream, split anywhere.
    pub fn arrive(&mut self, bytes: Rope, now: Instant) {
        if self.is_broken {
            return;
        }
        self.stream.append(bytes);
        loop {
            let mut front = [0; xot::HEADER_BYTES];
            let count = self.stream.copy_to(0, &mut front);
            let bytes = match xot::Header::read(&front[..count]) {
                Ok((header, _)) => usize::from(header.packet_bytes),
                Err(Malformed::Truncated) => return,
                Err(_) => {
                    self.is_broken = true;
                    self.counters.broken += 1;
                    self.stream = Rope::new();
                    self.layer.arrive(Below::Down, now);
                    return;
                }
            };
            if self.stream.len() < xot::HEADER_BYTES + bytes {
                return;
            }
            self.stream.skip(xot::HEADER_BYTES);
            let packet = self.stream.split_to(bytes);
            self.on_packet(packet, now);
        }
    }

    /// Reports that the connection is closed.
    pub fn closed(&mut self, now: Instant) {
        self.layer.arrive(Below::Down, now);
    }

    /// Returns the next indication for the host.
    pub fn poll_up(&mut self) -> Option<Indication> {
        self.layer.poll_up()
    }

    /// Returns the indication at a place of [`Layer::next_up`].
    pub fn poll_up_at(&mut self, place: usize) -> Option<Indication> {
        self.layer.poll_up_at(place)
    }

    /// Returns whether there is no call, and no packet to send.
    pub fn is_idle(&self) -> bool {
        self.ahead.is_empty() && self.layer.is_idle()
    }

    /// Returns the next packet for the stream, with its header.
    pub fn poll_down(&mut self) -> Option<Rope> {
        let mut packet = self.ahead.pop_front().or_else(|| self.layer.poll_down())?;
        let header = xot::Header { packet_bytes: packet.len() as u16 };
        let mut bytes = [0; xot::HEADER_BYTES];
        header.write(&mut bytes);
        packet.prepend(&bytes);
        Some(packet)
    }

    /// Returns when [`Xot::settle`] must be called.
    pub fn deadline(&self) -> Instant {
        self.layer.deadline()
    }

    /// Handles timers that are due.
    pub fn settle(&mut self, now: Instant) {
        self.layer.settle(now);
    }

    fn on_packet(&mut self, mut packet: Rope, now: Instant) {
        let mut bytes = [0; HEADER_BYTES_MAX];
        let count = packet.copy_to(0, &mut bytes);
        let Ok((front, used)) = Front::read(&bytes[..count]) else {
            self.counters.discarded += 1;
            return;
        };
        if bytes[2] == xot::PVC_SET_UP {
            return self.on_set_up(packet, now);
        }
        let kind = Header::read(&bytes[..count]).map(|(header, _)| header.kind);
        let is_local = matches!(
            kind,
            Ok(Kind::RestartRequest
                | Kind::RestartConfirmation
                | Kind::Reject(_)
                | Kind::Diagnostic
                | Kind::RegistrationRequest
                | Kind::RegistrationConfirmation)
        );
        // §6.1: before the incoming call, packets of any other type are discarded.
        let is_early = !self.is_settled && kind != Ok(Kind::CallRequest);
        let waits = matches!(self.pvc, PvcState::Asked(_) | PvcState::Expected(_) | PvcState::Refused(_));
        if is_local || is_early || waits {
            self.counters.discarded += 1;
            return;
        }
        if !self.is_settled {
            self.is_settled = true;
            if front.modulo != self.config.modulo {
                self.adopt(front.modulo);
            }
        }
        if front.modulo != self.config.modulo {
            self.counters.wrong_modulo += 1;
            return;
        }
        packet.skip(used);
        packet.prepend(&Front { channel: CHANNEL, ..front }.bytes());
        self.layer.arrive(Below::Data(packet), now);
    }

    fn adopt(&mut self, modulo: Modulo) {
        self.config.modulo = modulo;
        let window = modulo.mask();
        self.config.window_max = self.config.window_max.min(window);
        self.config.default.window_in = self.config.default.window_in.min(window);
        self.config.default.window_out = self.config.default.window_out.min(window);
        self.layer = Xot::layer(&self.config);
    }

    fn on_set_up(&mut self, packet: Rope, now: Instant) {
        if packet.len() > SET_UP_BYTES_MAX {
            self.counters.discarded += 1;
            return;
        }
        let bytes = packet.into_bytes();
        let read = PvcSetUp::read(&bytes);
        match (core::mem::replace(&mut self.pvc, PvcState::None), read) {
            (PvcState::Asked(_), Ok((answer, _))) if answer.status == PvcStatus::OK => self.pvc_is_up(now),
            (PvcState::Asked(_), Ok((answer, _))) => self.pvc = PvcState::Refused(answer.status),
            (PvcState::Asked(_), Err(_)) => self.pvc = PvcState::Refused(PvcStatus::PROTOCOL_ERROR),
            (PvcState::Expected(pvc), read) => {
                let status = read.map_or(PvcStatus::PROTOCOL_ERROR, |(asked, _)| pvc.compare(&asked));
                self.ahead.push_back(pvc.set_up(status).into());
                if status == PvcStatus::OK {
                    self.pvc_is_up(now);
                } else {
                    self.pvc = PvcState::Refused(status);
                }
            }
            // §6.5: an end without permanent circuits answers as well; otherwise the initiator would wait.
            (PvcState::None, Ok((asked, _))) if !self.is_settled => {
                let status = PvcStatus::NO_INTERFACE;
                let answer = PvcSetUp { status, ..asked };
                let mut bytes = vec![0; answer.length()];
                answer.write(&mut bytes);
                self.ahead.push_back(bytes.into());
                self.pvc = PvcState::Refused(status);
            }
            (other, _) => {
                self.pvc = other;
                self.counters.discarded += 1;
            }
        }
    }

    /// Establishes the permanent circuit; both ends begin with a reset (§6.5).
    fn pvc_is_up(&mut self, now: Instant) {
        self.pvc = PvcState::Up;
        self.layer.arrive(Below::Up, now);
        let cause = Cause { cause: 0, diagnostic: Some(diagnostic::NONE) };
        self.layer
            .request(Request::Reset { channel: CHANNEL, cause }, now)
            .expect("a permanent circuit that is up");
    }
}
