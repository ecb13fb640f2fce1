//! Connections come to be: by request of a client to a server, or between peers that both ask.
//!
//! ```text
//! client                      server                peer                          peer
//!   ConnectRequest  ─────────▶  a listener?           PeerRequest  ──▶ (nobody yet: not answered)
//!                               the host decides                   ◀──  PeerRequest     (it asks as well)
//!   connected       ◀─────────  Accept, connected     connected, Accept ──▶             connected
//!   Ack             ─────────▶  confirmed                          ◀──  Ack             confirmed
//! ```
//!
//! Again     on a path that may lose packets, requests and answers are sent again until something is heard.
//! Numbers   each end gives the other the number of its VI and a random key of 32 bits, which earlier keys do not tell;
//!           packets without them are nobody's.

use super::connection::Connection;
use super::endpoint::{Vi, letter};
use super::{Config, Desk, Letter, Nic, PathTraits, Refusal, Reliability, ViAttributes, ViState};
use alloc::vec::Vec;
use core::time::Duration;
use kiban_ground::{Instant, SharedBytes};
use kiban_wire::vi::{self as wire, HEADER_BYTES, Header, Kind, SETUP_PACKET_BYTES_MAX, fault, refusal};

/// How long a request waits for the host's answer before it is forgotten.
const REQUEST_LIFE: Duration = Duration::from_secs(60);

/// Why a request of ours came to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectError {
    /// Nobody waits at that address.
    NoMatch,
    /// The other host refused.
    Rejected,
    /// The reliability levels differ.
    Reliability,
    /// The longest messages differ.
    TransferBytes,
    /// The qualities of service differ.
    Qos,
    /// Nobody answered in time.
    Timeout,
    /// The way there has gone.
    Unreachable,
}

impl core::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            ConnectError::NoMatch => {
                "nobody waits for a connection at that address: start the other side first"
            }
            ConnectError::Rejected => "the other side refused the connection",
            ConnectError::Reliability => "the two ends have different reliability levels: make the VIs alike",
            ConnectError::TransferBytes => "the two ends differ in their longest message: make the VIs alike",
            ConnectError::Qos => "the two ends have different qualities of service: make the VIs alike",
            ConnectError::Timeout => "no answer came in time: is the other side running, and reachable?",
            ConnectError::Unreachable => {
                "nobody listens on the other side, or the way there has gone: start the other side first"
            }
        })
    }
}

impl core::error::Error for ConnectError {}

/// How a request of ours ended.
pub(super) type Outcome = Result<Remoteness, ConnectError>;

/// What a peer said of itself at set-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remoteness {
    /// Its level: the same as ours.
    pub reliability: Reliability,
    /// Its longest message, bytes.
    pub transfer_bytes_max: u32,
    /// Its quality of service.
    pub qos: u64,
    /// Whether it takes RDMA Writes.
    pub rdma_write: bool,
    /// Whether it takes RDMA Reads.
    pub rdma_read: bool,
}

impl Remoteness {
    fn of(setup: &wire::Setup<'_>) -> Remoteness {
        Remoteness {
            reliability: Reliability::ALL[usize::from(setup.reliability.min(2))],
            transfer_bytes_max: setup.transfer_bytes_max,
            qos: setup.qos,
            rdma_write: setup.rdma & 1 != 0,
            rdma_read: setup.rdma & 2 != 0,
        }
    }

    /// In what the ends differ.
    fn differs(&self, own: &ViAttributes) -> Option<u32> {
        if self.reliability != own.reliability {
            Some(refusal::RELIABILITY)
        } else if self.transfer_bytes_max != own.transfer_bytes_max {
            Some(refusal::TRANSFER_BYTES)
        } else if self.qos != own.qos {
            Some(refusal::QOS)
        } else {
            None
        }
    }
}

/// A request of ours that is under way.
#[derive(Debug)]
pub(super) struct Setup {
    pub path: u32,
    traits: PathTraits,
    key: u32,
    is_peer: bool,
    local: Vec<u8>,
    remote: Vec<u8>,
    until: Instant,
    again_at: Instant,
}

/// A request of somebody else's that waits for the host.
#[derive(Debug)]
pub(super) struct Incoming {
    pub path: u32,
    pub until: Instant,
    peer_vi: u32,
    peer_key: u32,
    remoteness: Remoteness,
    /// The discriminators: theirs, ours.
    source: Vec<u8>,
    target: Vec<u8>,
    shown: bool,
}

/// A request to connect, as the host sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Its number, for the answer.
    pub number: u32,
    /// The way to whoever asks.
    pub path: u32,
    /// The discriminator of whoever asks.
    pub source: Vec<u8>,
    /// What it says of itself.
    pub remoteness: Remoteness,
}

/// A packet that carries a set-up.
fn setup_letter(kind: Kind, to: (u32, u32), setup: &wire::Setup<'_>) -> Letter {
    let mut bytes = [0; SETUP_PACKET_BYTES_MAX];
    let header = Header {
        kind,
        flags: 0,
        payload_bytes: setup.length() as u16,
        vi: to.0,
        key: to.1,
        sequence: 0,
        acknowledged: 0,
        offset: 0,
        immediate: 0,
    };
    header.write(&mut bytes);
    let length = HEADER_BYTES + setup.write(&mut bytes[HEADER_BYTES..]);
    Letter::try_from(&bytes[..length]).expect("a letter holds every set-up")
}

/// What a VI says of itself.
fn introduce<'a>(
    number: u32,
    key: u32,
    attributes: &ViAttributes,
    local: &'a [u8],
    remote: &'a [u8],
) -> wire::Setup<'a> {
    wire::Setup {
        vi: number,
        key,
        transfer_bytes_max: attributes.transfer_bytes_max,
        qos: attributes.qos,
        reliability: attributes.reliability as u8,
        rdma: u8::from(attributes.rdma_write) | (u8::from(attributes.rdma_read) << 1),
        local,
        remote,
    }
}

impl Vi {
    fn request_letter(&self, number: u32, setup: &Setup) -> Letter {
        let kind = if setup.is_peer { Kind::PeerRequest } else { Kind::ConnectRequest };
        let words = introduce(number, setup.key, &self.attributes, &setup.local, &setup.remote);
        setup_letter(kind, (0, 0), &words)
    }

    /// A request of ours has come to nothing.
    pub(super) fn give_up(&mut self, error: ConnectError, desk: &mut Desk) {
        self.setup = None;
        self.state = ViState::Idle;
        self.outcome = Some(Err(error));
        desk.news = true;
    }

    pub(super) fn advance_setup(&mut self, number: u32, config: &Config, desk: &mut Desk, now: Instant) {
        if let Some(mut setup) = self.setup.take() {
            if now >= setup.until {
                return self.give_up(ConnectError::Timeout, desk);
            }
            if now >= setup.again_at {
                setup.again_at = now + config.resend_after;
                desk.letters.push((setup.path, self.request_letter(number, &setup)));
            }
            desk.due_at(setup.until.min(setup.again_at));
            self.setup = Some(setup);
        }
        // The other side may have missed that it is accepted.
        if let Some(connection) = &self.connection
            && !connection.confirmed
            && !connection.traits.loses_nothing
        {
            if now >= connection.heard_at + config.resend_after {
                desk.letters.push((connection.path, self.accept_letter(number)));
            }
            desk.due_at(now + config.resend_after);
        }
    }

    fn accept_letter(&self, number: u32) -> Letter {
        let connection = self.connection.as_ref().expect("who accepts is connected");
        let words = introduce(number, connection.key, &self.attributes, &[], &[]);
        setup_letter(Kind::Accept, (connection.peer_vi, connection.peer_key), &words)
    }

    #[expect(clippy::too_many_arguments, reason = "both ends of a connection, and what a NIC lends")]
    fn connect(
        &mut self,
        number: u32,
        path: (u32, PathTraits),
        key: u32,
        peer: (u32, u32),
        config: &Config,
        desk: &mut Desk,
        now: Instant,
    ) {
        let connection = Connection::new(path, key, peer, self.send.end(), config, now);
        self.connection = Some(connection);
        (self.setup, self.grave, self.queued, self.owing) = (None, None, false, false);
        self.state = ViState::Connected;
        self.start_clock(desk);
        desk.ready.push(number);
        desk.news = true;
    }
}

impl Nic {
    /// Waits for requests at a discriminator, from now on.
    pub fn listen(&mut self, local: &[u8]) -> Result<(), Refusal> {
        if local.len() > self.config.discriminator_bytes_max.min(wire::DISCRIMINATOR_BYTES_MAX) {
            return Err(Refusal::BadAddress);
        }
        if !self.listeners.iter().any(|known| known == local) {
            if self.listeners.len() >= self.config.requests_max {
                return Err(Refusal::TooMany);
            }
            self.listeners.push(local.to_vec());
        }
        Ok(())
    }

    /// Whether requests at a discriminator are taken.
    pub fn listens(&self, local: &[u8]) -> bool {
        self.listeners.iter().any(|known| known == local)
    }

    /// Waits no more; requests that the host has not seen are refused.
    pub fn unlisten(&mut self, local: &[u8]) {
        self.listeners.retain(|known| known != local);
        let theirs = |request: &Incoming| !request.shown && request.target == local;
        let stale: Vec<u32> =
            self.incoming.iter().filter(|(_, request)| theirs(request)).map(|(n, _)| n).collect();
        for number in stale {
            let _ = self.reject_with(number, refusal::NO_MATCH);
        }
    }

    /// The next request at a discriminator that the host has not seen.
    pub fn request_at(&mut self, local: &[u8]) -> Option<Request> {
        let (number, request) =
            self.incoming.iter_mut().find(|(_, request)| !request.shown && request.target == local)?;
        request.shown = true;
        let (path, remoteness) = (request.path, request.remoteness);
        Some(Request { number, path, source: request.source.clone(), remoteness })
    }

    /// Accepts a request with an idle VI that has the same level, longest message and quality of service.
    pub fn accept(&mut self, request: u32, number: u32, now: Instant) -> Result<(), Refusal> {
        let Nic { config, vis, paths, incoming, desk, rng, .. } = self;
        let asked = incoming.get(request).ok_or(Refusal::UnknownRequest)?;
        let vi = vis.get_mut(number).ok_or(Refusal::UnknownVi)?;
        if vi.state != ViState::Idle {
            return Err(Refusal::BadState(vi.state));
        }
        match asked.remoteness.differs(&vi.attributes) {
            Some(refusal::RELIABILITY) => return Err(Refusal::Reliability),
            Some(refusal::TRANSFER_BYTES) => return Err(Refusal::TransferBytes),
            Some(_) => return Err(Refusal::Qos),
            None => {}
        }
        let path = paths.get(asked.path).ok_or(Refusal::UnknownPath)?;
        let (way, peer) = ((asked.path, path.traits), (asked.peer_vi, asked.peer_key));
        vi.connect(number, way, rng.draw_u32(), peer, config, desk, now);
        let accept = vi.accept_letter(number);
        desk.letters.push((way.0, accept));
        desk.due_at(now + config.resend_after);
        incoming.remove(request);
        self.deliver();
        Ok(())
    }

    /// Refuses a request.
    pub fn reject(&mut self, request: u32) -> Result<(), Refusal> {
        self.reject_with(request, refusal::REJECTED)
    }

    fn reject_with(&mut self, request: u32, code: u32) -> Result<(), Refusal> {
        let asked = self.incoming.remove(request).ok_or(Refusal::UnknownRequest)?;
        let answer = letter(Kind::Reject, asked.peer_vi, asked.peer_key, 0, 0, code);
        self.desk.letters.push((asked.path, answer));
        self.deliver();
        Ok(())
    }

    /// Asks the NIC at the end of a path to connect an idle VI to the discriminator `remote`; `local` is ours. With
    /// `is_peer` the other side asks as well. [`Nic::outcome`] tells how it went, at the latest at `until`.
    pub fn request(
        &mut self,
        number: u32,
        path: u32,
        (local, remote): (&[u8], &[u8]),
        is_peer: bool,
        now: Instant,
        until: Instant,
    ) -> Result<(), Refusal> {
        let Nic { config, vis, paths, desk, rng, .. } = self;
        let most = config.discriminator_bytes_max.min(wire::DISCRIMINATOR_BYTES_MAX);
        if local.len().max(remote.len()) > most {
            return Err(Refusal::BadAddress);
        }
        let vi = vis.get_mut(number).ok_or(Refusal::UnknownVi)?;
        if vi.state != ViState::Idle {
            return Err(Refusal::BadState(vi.state));
        }
        let traits = paths.get(path).ok_or(Refusal::UnknownPath)?.traits;
        // A peer that does not ask yet does not answer: it is asked again on any path.
        let again = if traits.loses_nothing && !is_peer { Instant::NEVER } else { now + config.resend_after };
        let setup = Setup {
            path,
            traits,
            key: rng.draw_u32(),
            is_peer,
            local: local.to_vec(),
            remote: remote.to_vec(),
            until,
            again_at: again,
        };
        desk.letters.push((path, vi.request_letter(number, &setup)));
        desk.due_at(again.min(until));
        vi.setup = Some(setup);
        vi.outcome = None;
        vi.state = ViState::ConnectPending;
        self.deliver();
        Ok(())
    }

    /// How a VI's request ended, once.
    pub fn outcome(&mut self, vi: u32) -> Result<Option<Result<Remoteness, ConnectError>>, Refusal> {
        Ok(self.vis.get_mut(vi).ok_or(Refusal::UnknownVi)?.outcome.take())
    }

    /// Ends a VI's connection, or its request, or its error: the VI is idle, what waited is flushed.
    pub fn disconnect(&mut self, number: u32) -> Result<(), Refusal> {
        let Nic { vis, desk, .. } = self;
        let vi = vis.get_mut(number).ok_or(Refusal::UnknownVi)?;
        if let Some(connection) = vi.connection.take() {
            desk.letters.push((connection.path, connection.letter(Kind::Disconnect, 0, fault::NONE)));
        }
        (vi.setup, vi.grave, vi.outcome) = (None, None, None);
        vi.state = ViState::Idle;
        vi.flush(number, desk);
        // Whoever waits for an answer to the request hears none.
        desk.news = true;
        self.deliver();
        Ok(())
    }

    /// [`Nic::disconnect`] for every VI.
    pub fn disconnect_all(&mut self) {
        let numbers: Vec<u32> = self.vis.iter().map(|(number, _)| number).collect();
        numbers.into_iter().for_each(|number| {
            self.disconnect(number).expect("the VI was there, and nobody else has the NIC");
        });
    }

    /// A packet of a set-up.
    pub(super) fn on_setup(&mut self, path: u32, header: &Header, payload: SharedBytes<'_>, now: Instant) {
        let mut copy = [0; SETUP_PACKET_BYTES_MAX];
        let length = payload.copy_to(0, &mut copy);
        let setup = wire::Setup::read(&copy[..length.min(payload.len())]);
        match (header.kind, setup) {
            (Kind::Reject, _) => self.on_reject(path, header),
            (_, Err(_)) => self.desk.counters.malformed += 1,
            (Kind::ConnectRequest, Ok((setup, _))) => self.on_request(path, &setup, now),
            (Kind::PeerRequest, Ok((setup, _))) => self.on_peer(path, &setup, now),
            (_, Ok((setup, _))) => self.on_accept(path, header, &setup, now),
        }
        self.deliver();
    }

    fn on_request(&mut self, path: u32, setup: &wire::Setup<'_>, now: Instant) {
        let Nic { vis, incoming, listeners, desk, .. } = self;
        let from = (setup.vi, setup.key);
        let is_same =
            |request: &Incoming| request.path == path && (request.peer_vi, request.peer_key) == from;
        if incoming.iter().any(|(_, request)| is_same(request)) {
            return;
        }
        let accepted = vis.iter().find(|(_, vi)| {
            let connection = vi.connection.as_ref();
            connection.is_some_and(|one| one.path == path && (one.peer_vi, one.peer_key) == from)
        });
        if let Some((number, vi)) = accepted {
            desk.letters.push((path, vi.accept_letter(number)));
            return;
        }
        let request = Incoming {
            path,
            until: now + REQUEST_LIFE,
            peer_vi: setup.vi,
            peer_key: setup.key,
            remoteness: Remoteness::of(setup),
            source: setup.local.to_vec(),
            target: setup.remote.to_vec(),
            shown: false,
        };
        let is_heard = listeners.iter().any(|known| known == setup.remote);
        if !is_heard || incoming.insert(request).is_none() {
            desk.letters.push((path, letter(Kind::Reject, setup.vi, setup.key, 0, 0, refusal::NO_MATCH)));
            return;
        }
        desk.due_at(now + REQUEST_LIFE);
        desk.news = true;
    }

    fn on_peer(&mut self, path: u32, theirs: &wire::Setup<'_>, now: Instant) {
        let Nic { config, vis, desk, .. } = self;
        let from = (theirs.vi, theirs.key);
        let found = vis.iter_mut().find(|(number, vi)| {
            let asks = vi.setup.as_ref().is_some_and(|ours| {
                // On a loopback a VI hears its own request.
                let is_itself = (*number, ours.key) == from;
                ours.is_peer
                    && !is_itself
                    && ours.path == path
                    && ours.local == theirs.remote
                    && ours.remote == theirs.local
            });
            let has = vi.connection.as_ref();
            asks || has.is_some_and(|one| one.path == path && (one.peer_vi, one.peer_key) == from)
        });
        // Whoever does not ask yet is asked again.
        let Some((number, vi)) = found else { return };
        if let Some(setup) = vi.setup.take() {
            let remoteness = Remoteness::of(theirs);
            if let Some(code) = remoteness.differs(&vi.attributes) {
                desk.letters.push((path, letter(Kind::Reject, theirs.vi, theirs.key, 0, 0, code)));
                return vi.give_up(error_of(code), desk);
            }
            vi.connect(number, (path, setup.traits), setup.key, from, config, desk, now);
            vi.outcome = Some(Ok(remoteness));
            desk.due_at(now + config.resend_after);
        }
        desk.letters.push((path, vi.accept_letter(number)));
    }

    fn on_accept(&mut self, path: u32, header: &Header, theirs: &wire::Setup<'_>, now: Instant) {
        let Nic { config, vis, desk, .. } = self;
        let from = (theirs.vi, theirs.key);
        if let Some(vi) = vis.get_mut(header.vi) {
            if let Some(connection) = &mut vi.connection
                && connection.path == path
                && connection.key == header.key
                && (connection.peer_vi, connection.peer_key) == from
            {
                connection.confirmed = true;
                connection.owes_now = true;
                desk.ready.push(header.vi);
                return;
            }
            let expected = vi.setup.take_if(|setup| setup.path == path && setup.key == header.key);
            if let Some(setup) = expected {
                vi.connect(header.vi, (path, setup.traits), setup.key, from, config, desk, now);
                vi.outcome = Some(Ok(Remoteness::of(theirs)));
                if let Some(connection) = &mut vi.connection {
                    connection.confirmed = true;
                    connection.owes_now = true;
                }
                return;
            }
        }
        // Who accepts what nobody asks for any more is told.
        desk.letters.push((path, letter(Kind::Disconnect, theirs.vi, theirs.key, 0, 0, fault::NONE)));
    }

    fn on_reject(&mut self, path: u32, header: &Header) {
        let Nic { vis, desk, .. } = self;
        let Some(vi) = vis.get_mut(header.vi) else { return };
        if vi.setup.take_if(|setup| setup.path == path && setup.key == header.key).is_some() {
            vi.give_up(error_of(header.immediate), desk);
        }
    }
}

const fn error_of(code: u32) -> ConnectError {
    match code {
        refusal::NO_MATCH => ConnectError::NoMatch,
        refusal::RELIABILITY => ConnectError::Reliability,
        refusal::TRANSFER_BYTES => ConnectError::TransferBytes,
        refusal::QOS => ConnectError::Qos,
        _ => ConnectError::Rejected,
    }
}
