//! One of the relay's circuits: a call over XOT, a TCP connection with TPKTs, and the data passed between
//! them.

use super::settings::{Settings, WAITING_BYTES_MAX};
use super::sizes::Sizes;
use crate::ropes::poll_write;
use crate::x25::BoxedStream;
use bytes::BytesMut;
use kiban_base::{Instant, Rope, RopeQueue};
use kiban_os::Clock;
use kiban_osi::network as service;
use kiban_osi::network::{Origin, Reason};
use kiban_osi::stack::stream::Stream;
use kiban_osi::wire::tpkt;
use kiban_osi::wire::x25::diagnostic;
use kiban_osi::x25::network::Network;
use kiban_osi::x25::xot::{CHANNEL, Xot};
use kiban_osi::x25::{Call, Cause, Config, Indication, Modulo, Request, Role, Sizes as PacketSizes};
use std::future::poll_fn;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Clearing cause: not obtainable.
pub(super) const NOT_OBTAINABLE: u8 = 0x0d;
/// Clearing cause: out of order.
pub(super) const OUT_OF_ORDER: u8 = 0x09;
/// The length in bytes of the shortest TPDU that a TPKT can carry.
const UNIT_BYTES_MIN: usize = 3;
/// Size of a read in bytes.
const READ_BYTES: usize = 64 << 10;

/// The state of a circuit, without its two sockets.
#[derive(Debug)]
pub(super) struct Circuit {
    xot: Xot,
    network: Network,
    tpkt: Stream,
    /// What was received before the call was answered, for a route that passes packets on.
    received: Vec<u8>,
    sizes: Sizes,
    /// Packets to be sent on the XOT connection.
    packets: RopeQueue,
    /// The TCP connection has ended, so nothing more will be received from it.
    tcp_ended: bool,
    xot_ended: bool,
    /// The call has been cleared, so nothing more will be received from X.25.
    cleared: bool,
    /// The reason for the end.
    why: Option<String>,
    ending_due: Instant,
    patience: Duration,
    clock: Clock,
    bytes_to_tcp: u64,
    bytes_to_x25: u64,
}

fn config(settings: &Settings, modulo: Modulo) -> Config {
    let mut config = Config::new(Role::Dte);
    config.modulo = modulo;
    config.window_max = modulo.mask();
    config.timers.call = settings.state_timeout;
    config.timers.clear = settings.state_timeout;
    config.unit_bytes_max = tpkt::TPDU_BYTES_MAX;
    config.outgoing_bytes_max = WAITING_BYTES_MAX;
    config.calls_max = 1;
    config
}

impl Circuit {
    /// Creates a circuit for a call that the router makes to this end.
    pub(super) fn called(settings: &Settings, clock: Clock) -> Circuit {
        // The incoming call determines the modulo.
        let xot = Xot::called(config(settings, Modulo::OneTwentyEight));
        Circuit::new(xot, Network::called(CHANNEL), settings, clock)
    }

    /// Creates a circuit for a call that this end makes.
    pub(super) fn calling(settings: &Settings, clock: Clock, call: Call) -> Circuit {
        let mut config = config(settings, settings.modulo);
        // A call without sizes means X.25's defaults, so only calls that this end makes have the settings'.
        let window = settings.window.clamp(1, settings.modulo.mask());
        config.default = PacketSizes::same(settings.packet_bytes, window);
        let xot = Xot::calling(config);
        Circuit::new(xot, Network::calling(CHANNEL, call), settings, clock)
    }

    fn new(xot: Xot, network: Network, settings: &Settings, clock: Clock) -> Circuit {
        Circuit {
            xot,
            network,
            tpkt: Stream::new(tpkt::TPDU_BYTES_MAX),
            received: Vec::new(),
            sizes: Sizes::default(),
            packets: RopeQueue::new(),
            tcp_ended: false,
            xot_ended: false,
            cleared: false,
            why: None,
            ending_due: Instant::NEVER,
            patience: settings.state_timeout,
            clock,
            bytes_to_tcp: 0,
            bytes_to_x25: 0,
        }
    }

    /// Returns the bytes of NSDUs passed to TCP and to X.25.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.bytes_to_tcp, self.bytes_to_x25)
    }

    /// Waits for the incoming call.
    pub(super) async fn wait_for_call(&mut self, socket: &mut BoxedStream) -> Result<Call, String> {
        let call = self.until(socket, |indication| match indication {
            Indication::Incoming { call, .. } => Some(Ok(call.clone())),
            Indication::Down => Some(Err(
                "the peer does not speak XOT, or closed the connection before it made a call".into(),
            )),
            _ => None,
        });
        let call = call.await.unwrap_or_else(|| Err("timed out waiting for the peer's call".into()));
        match self.xot.refusal() {
            Some(_) => Err("the peer asked for a permanent circuit; there is none here".into()),
            None => call,
        }
    }

    /// Returns all bytes received so far, or `None` if there were too many to keep.
    pub(super) fn received(&mut self) -> Option<Vec<u8>> {
        (self.received.len() <= READ_BYTES).then(|| std::mem::take(&mut self.received))
    }

    /// Makes the call and waits until it is accepted.
    pub(super) async fn call(&mut self, socket: &mut BoxedStream) -> Result<(), String> {
        let call = self.network.request(service::Request::Connect).expect("a connect is a call");
        let called = self.xot.request(call, self.clock.now());
        called.map_err(|misuse| format!("cannot make the call: {misuse:?}"))?;
        let answer = self.until(socket, |indication| match indication {
            Indication::Accepted { .. } => Some(Ok(())),
            Indication::Cleared { cause, by_peer: true, .. } => Some(Err(words(*cause))),
            Indication::Cleared { cause, .. } if cause.diagnostic == Some(diagnostic::CALL_TIME) => {
                Some(Err("the call timed out without an answer".into()))
            }
            Indication::Cleared { .. } => Some(Err("it closed the connection, or does not speak XOT".into())),
            Indication::Down => Some(Err("it closed the connection".into())),
            _ => None,
        });
        answer.await.unwrap_or_else(|| Err("the call timed out without an answer".into()))
    }

    /// Accepts the call.
    pub(super) fn accept(&mut self) -> Result<(), ()> {
        let accept = self.network.request(service::Request::Accept).expect("an accept is one");
        self.xot.request(accept, self.clock.now()).map_err(drop)
    }

    /// Refuses the call; waits until the clear is confirmed, or until the time limit.
    pub(super) async fn refuse(&mut self, socket: &mut BoxedStream, cause: u8) {
        let cause = Cause { cause, diagnostic: Some(diagnostic::NONE) };
        let clear = Request::Clear { channel: CHANNEL, cause, user_data: Vec::new() };
        if self.xot.request(clear, self.clock.now()).is_ok() {
            let is_end = |indication: &Indication| match indication {
                Indication::ClearConfirmed { .. } | Indication::Cleared { .. } | Indication::Down => Some(()),
                _ => None,
            };
            self.until(socket, is_end).await;
        }
    }

    /// Exchanges packets until `wanted` returns a value for an indication. Returns `None` after the time
    /// limit.
    async fn until<T>(
        &mut self,
        socket: &mut BoxedStream,
        wanted: impl Fn(&Indication) -> Option<T>,
    ) -> Option<T> {
        let mut buffer = BytesMut::new();
        let waits = async {
            loop {
                while let Some(indication) = self.xot.poll_up() {
                    if let Some(found) = wanted(&indication) {
                        return found;
                    }
                }
                while let Some(packet) = self.xot.poll_down() {
                    if socket.write_all(&packet.to_vec()).await.is_err() {
                        self.xot.closed(self.clock.now());
                    }
                }
                if self.xot.refusal().is_some() {
                    self.xot.closed(self.clock.now());
                    continue;
                }
                buffer.reserve(READ_BYTES);
                let now = self.clock.now();
                match socket.read_buf(&mut buffer).await {
                    Ok(0) | Err(_) => self.xot.closed(now),
                    Ok(_) => {
                        if self.received.len() <= READ_BYTES {
                            self.received.extend_from_slice(&buffer);
                        }
                        self.xot.arrive(buffer.split().freeze().into(), now);
                    }
                }
            }
        };
        timeout(self.patience, waits).await.ok()
    }

    /// Carries TPDUs both ways until the circuit ends; returns the reason.
    pub(super) async fn carry(&mut self, xot: BoxedStream, tcp: &mut TcpStream) -> String {
        let (mut from_xot, mut to_xot) = tokio::io::split(xot);
        let (mut from_tcp, mut to_tcp) = tcp.split();
        let (mut xot_buffer, mut tcp_buffer) = (BytesMut::new(), BytesMut::new());
        loop {
            let now = self.clock.now();
            self.work(now);
            if self.is_over(now) {
                // Any data that a socket has not accepted by now is dropped.
                let ends = async { tokio::join!(to_xot.shutdown(), to_tcp.shutdown()) };
                let _ = timeout(self.patience, ends).await;
                return self.why.take().unwrap_or_else(|| "it ended".into());
            }
            let reads_xot = !self.xot_ended && self.packets.len() < WAITING_BYTES_MAX;
            let reads_tcp = !self.tcp_ended && self.has_room();
            if reads_xot {
                xot_buffer.reserve(READ_BYTES);
            }
            if reads_tcp {
                tcp_buffer.reserve(READ_BYTES);
            }
            let deadline = self.xot.deadline().min(self.ending_due);
            let patience = deadline.since(now);
            let (packets, units) = (&mut self.packets, self.tpkt.outgoing());
            let (writes_xot, writes_tcp) = (!packets.is_empty(), !units.is_empty());
            tokio::select! {
                read = from_xot.read_buf(&mut xot_buffer), if reads_xot => match read {
                    Ok(count) if count > 0 => {
                        self.xot.arrive(xot_buffer.split().freeze().into(), self.clock.now());
                    }
                    _ => self.xot_is_gone(),
                },
                read = from_tcp.read_buf(&mut tcp_buffer), if reads_tcp => match read {
                    Ok(count) if count > 0 => self.tpkt.arrive(tcp_buffer.split().freeze()),
                    _ => {
                        // Data already received is still passed on to X.25, within a time limit.
                        self.tcp_ended = true;
                        self.ends("TCP was closed");
                    }
                },
                written = poll_fn(|cx| poll_write(cx, &mut to_xot, packets)), if writes_xot => if written.is_err() {
                    self.xot_is_gone();
                },
                written = poll_fn(|cx| poll_write(cx, &mut to_tcp, units)), if writes_tcp => if written.is_err() {
                    self.tcp_is_gone();
                },
                () = tokio::time::sleep(patience), if deadline != Instant::NEVER => {}
            }
        }
    }

    /// Returns whether X.25 has room for one more TPDU.
    fn has_room(&self) -> bool {
        self.xot.packet_layer().room(CHANNEL) >= tpkt::TPDU_BYTES_MAX
    }

    fn xot_is_gone(&mut self) {
        self.xot_ended = true;
        self.packets.clear();
        self.xot.closed(self.clock.now());
        // The TCP connection has ended as well.
        if self.network.is_over() {
            self.cleared = true;
        }
        let due = self.clock.now() + self.patience;
        self.ending_due = self.ending_due.min(due);
    }

    fn tcp_is_gone(&mut self) {
        self.tcp_ended = true;
        self.on_tcp_end(Origin::Provider);
    }

    fn on_tcp_end(&mut self, origin: Origin) {
        if let Some(service::Indication::Disconnected { reason, .. }) = self.tpkt.ended(origin) {
            self.end_call(reason, "TCP was closed");
        }
    }

    /// Clears the call once all data sent on it is acknowledged.
    fn end_call(&mut self, reason: Reason, why: &str) {
        self.network.request(service::Request::Disconnect { reason });
        self.ends(why);
    }

    /// Closes the TCP connection once all data is written to it.
    fn end_tcp(&mut self, reason: Reason, why: &str) {
        self.tpkt.request(service::Request::Disconnect { reason });
        self.ends(why);
    }

    fn ends(&mut self, why: &str) {
        self.why.get_or_insert_with(|| why.to_owned());
        let due = self.clock.now() + self.patience;
        self.ending_due = self.ending_due.min(due);
    }

    /// Returns whether the circuit has ended, or its time limit has passed.
    fn is_over(&mut self, now: Instant) -> bool {
        if self.ending_due <= now {
            return true;
        }
        self.cleared && self.packets.is_empty() && self.tpkt.outgoing().is_empty()
    }

    /// Moves data both ways as far as possible.
    fn work(&mut self, now: Instant) {
        if self.xot.deadline() <= now {
            self.xot.settle(now);
        }
        while self.tpkt.outgoing_bytes() < WAITING_BYTES_MAX {
            let Some(indication) = self.xot.poll_up() else { break };
            self.on_x25(indication);
        }
        while self.has_room() {
            match self.tpkt.poll() {
                Some(service::Indication::Data(unit)) => self.on_unit(unit, now),
                Some(service::Indication::Disconnected { reason, .. }) => {
                    self.end_call(reason, "data from TCP is not a TPKT");
                    self.tcp_ended = true;
                }
                Some(service::Indication::Connected) => {}
                None => {
                    if self.tcp_ended {
                        self.on_tcp_end(Origin::User);
                    }
                    break;
                }
            }
        }
        if let Some(clear) = self.network.poll(self.xot.packet_layer().is_quiet(CHANNEL))
            && self.xot.request(clear, now).is_err()
        {
            // The call is already cleared.
            self.cleared = true;
        }
        while self.packets.len() < WAITING_BYTES_MAX {
            let Some(packet) = self.xot.poll_down() else { break };
            self.packets.push(packet);
        }
    }

    /// Handles a TPDU from TCP.
    fn on_unit(&mut self, unit: Rope, now: Instant) {
        let unit = self.sizes.for_x25(unit);
        let bytes = unit.len() as u64;
        if let Some(request) = self.network.request(service::Request::Data(unit)) {
            match self.xot.request(request, now) {
                Ok(()) => self.bytes_to_x25 += bytes,
                Err(_) => self.end_tcp(Reason::Abnormal, "X.25 does not accept the data from TCP"),
            }
        }
    }

    /// Handles an indication from X.25.
    fn on_x25(&mut self, indication: Indication) {
        let why = match &indication {
            Indication::Cleared { cause, by_peer: true, .. } => words(*cause),
            Indication::Reset { .. } => "the circuit was reset, which ends a class 0 connection".into(),
            _ if self.xot.is_broken() => "received data is not XOT".into(),
            _ if self.xot_ended => "the XOT connection was closed".into(),
            _ => "this end cleared the call: X.25 protocol error".into(),
        };
        // The call is still open after a reset, so this end must clear it.
        let ends = matches!(
            indication,
            Indication::Cleared { .. } | Indication::ClearConfirmed { .. } | Indication::Down
        );
        self.cleared |= ends;
        match self.network.arrive(indication) {
            Some(service::Indication::Data(unit)) => {
                if !(UNIT_BYTES_MIN..=tpkt::TPDU_BYTES_MAX).contains(&unit.len()) {
                    let why = "data from X.25 is not a TPDU: too short or too long";
                    self.end_call(Reason::Protocol, why);
                    return self.end_tcp(Reason::Protocol, why);
                }
                let unit = self.sizes.for_tcp(unit);
                self.bytes_to_tcp += unit.len() as u64;
                self.tpkt.request(service::Request::Data(unit));
            }
            Some(service::Indication::Disconnected { reason, .. }) => self.end_tcp(reason, &why),
            Some(service::Indication::Connected) | None => {}
        }
    }
}

/// Describes why a call was cleared.
fn words(cause: Cause) -> String {
    let code = cause.diagnostic.unwrap_or(0);
    format!("the call was cleared: cause 0x{:02x}, diagnostic {code}", cause.cause)
}
