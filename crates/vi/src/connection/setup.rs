//! Connection set-up: between a client and a server, or between peers that both request it.
//!
//! ```text
//! client                      server                peer                          peer
//!   ConnectRequest  ─────────▶  a listener?           PeerRequest  ──▶ (no request here yet: ignored)
//!                               the host decides                   ◀──  PeerRequest     (its own request)
//!   connected       ◀─────────  Accept, connected     connected, Accept ──▶             connected
//!   Ack             ─────────▶  confirmed                          ◀──  Ack             confirmed
//! ```
//!
//! Retransmission  on a path that may lose packets, requests and answers are retransmitted until the peer
//!                 answers.
//! Identifiers     each end gives the other the number of its VI and a random 32-bit key that cannot be
//!                 derived from earlier keys; packets that do not carry both are dropped.

use crate::config::Config;
use crate::connection::request::{ConnectError, Incoming, PeerAttributes, Request, Setup};
use crate::connection::state::Connection;
use crate::error::RequestError;
use crate::nic::Nic;
use crate::traits::{PathTraits, ViAttributes, ViState};
use crate::transfer::outputs::{ControlPacket, Outputs, control_packet};
use crate::vi::Vi;
use crate::wire::{self as wire, HEADER_BYTES, Header, Kind, SETUP_PACKET_BYTES_MAX, fault, refusal};
use alloc::vec::Vec;
use core::time::Duration;
use kiban_base::{Instant, SharedBytes};

/// How long an incoming request waits for the host's decision before it is dropped.
const REQUEST_LIFE: Duration = Duration::from_secs(60);

/// Builds a packet that carries a set-up.
fn setup_packet(kind: Kind, to: (u32, u32), setup: &wire::Setup<'_>) -> ControlPacket {
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
    ControlPacket::try_from(&bytes[..length]).expect("a letter holds every set-up")
}

/// Returns the set-up parameters of a VI.
fn setup_parameters<'a>(
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
    fn request_packet(&self, number: u32, setup: &Setup) -> ControlPacket {
        let kind = if setup.is_peer { Kind::PeerRequest } else { Kind::ConnectRequest };
        let words = setup_parameters(number, setup.key, &self.attributes, &setup.local, &setup.remote);
        setup_packet(kind, (0, 0), &words)
    }

    /// Ends an outgoing request with an error.
    pub(crate) fn fail_request(&mut self, error: ConnectError, outputs: &mut Outputs) {
        self.setup = None;
        self.state = ViState::Idle;
        self.outcome = Some(Err(error));
        outputs.progress = true;
    }

    pub(crate) fn advance_setup(
        &mut self,
        number: u32,
        config: &Config,
        outputs: &mut Outputs,
        now: Instant,
    ) {
        if let Some(mut setup) = self.setup.take() {
            if now >= setup.until {
                return self.fail_request(ConnectError::Timeout, outputs);
            }
            if now >= setup.retransmit_at {
                setup.retransmit_at = now + config.resend_after;
                outputs.control_packets.push((setup.path, self.request_packet(number, &setup)));
            }
            outputs.due_at(setup.until.min(setup.retransmit_at));
            self.setup = Some(setup);
        }
        // The peer may have missed the acceptance, so retransmit it.
        if let Some(connection) = &self.connection
            && !connection.confirmed
            && !connection.traits.lossless
        {
            if now >= connection.last_received_at + config.resend_after {
                outputs.control_packets.push((connection.path, self.accept_packet(number)));
            }
            outputs.due_at(now + config.resend_after);
        }
    }

    fn accept_packet(&self, number: u32) -> ControlPacket {
        let connection = self.connection.as_ref().expect("the accepting VI is connected");
        let words = setup_parameters(number, connection.key, &self.attributes, &[], &[]);
        setup_packet(Kind::Accept, (connection.peer_vi, connection.peer_key), &words)
    }

    #[expect(clippy::too_many_arguments, reason = "both ends of a connection, and the NIC's shared state")]
    fn connect(
        &mut self,
        number: u32,
        path: (u32, PathTraits),
        key: u32,
        peer: (u32, u32),
        config: &Config,
        outputs: &mut Outputs,
        now: Instant,
    ) {
        let connection = Connection::new(path, key, peer, self.send.end(), config, now);
        self.connection = Some(connection);
        (self.setup, self.broken, self.queued, self.in_ack_list) = (None, None, false, false);
        self.state = ViState::Connected;
        self.start_timers(outputs);
        outputs.ready.push(number);
        outputs.progress = true;
    }
}

impl Nic {
    /// Starts listening for requests at a discriminator.
    ///
    /// # Errors
    /// [`RequestError::BadAddress`] if the discriminator is too long, or [`RequestError::TooMany`].
    pub fn listen(&mut self, local: &[u8]) -> Result<(), RequestError> {
        if local.len() > self.config.discriminator_bytes_max.min(wire::DISCRIMINATOR_BYTES_MAX) {
            return Err(RequestError::BadAddress);
        }
        if !self.listeners.iter().any(|known| known == local) {
            if self.listeners.len() >= self.config.requests_max {
                return Err(RequestError::TooMany);
            }
            self.listeners.push(local.to_vec());
        }
        Ok(())
    }

    /// Returns whether the NIC is listening at a discriminator.
    pub fn listens(&self, local: &[u8]) -> bool {
        self.listeners.iter().any(|known| known == local)
    }

    /// Stops listening, and rejects requests that have not yet been reported to the host.
    pub fn unlisten(&mut self, local: &[u8]) {
        self.listeners.retain(|known| known != local);
        let theirs = |request: &Incoming| !request.reported && request.target == local;
        let stale: Vec<u32> =
            self.incoming.iter().filter(|(_, request)| theirs(request)).map(|(n, _)| n).collect();
        for number in stale {
            let _ = self.reject_with(number, refusal::NO_MATCH);
        }
    }

    /// Returns the next request at a discriminator that has not yet been reported to the host.
    pub fn request_at(&mut self, local: &[u8]) -> Option<Request> {
        let (number, request) =
            self.incoming.iter_mut().find(|(_, request)| !request.reported && request.target == local)?;
        request.reported = true;
        let (path, remoteness) = (request.path, request.remoteness);
        Some(Request { number, path, source: request.source.clone(), remoteness })
    }

    /// Accepts a request with an idle VI.
    ///
    /// # Errors
    /// [`RequestError::Reliability`], [`RequestError::TransferBytes`] or [`RequestError::Qos`] if that
    /// attribute differs from the peer's; [`RequestError::UnknownRequest`], [`RequestError::UnknownVi`],
    /// [`RequestError::BadState`], [`RequestError::UnknownPath`].
    pub fn accept(&mut self, request: u32, number: u32, now: Instant) -> Result<(), RequestError> {
        let Nic { config, vis, paths, incoming, outputs, rng, .. } = self;
        let pending = incoming.get(request).ok_or(RequestError::UnknownRequest)?;
        let vi = vis.get_mut(number).ok_or(RequestError::UnknownVi)?;
        if vi.state != ViState::Idle {
            return Err(RequestError::BadState(vi.state));
        }
        match pending.remoteness.differs(&vi.attributes) {
            Some(refusal::RELIABILITY) => return Err(RequestError::Reliability),
            Some(refusal::TRANSFER_BYTES) => return Err(RequestError::TransferBytes),
            Some(_) => return Err(RequestError::Qos),
            None => {}
        }
        let path = paths.get(pending.path).ok_or(RequestError::UnknownPath)?;
        let (path_and_traits, peer) = ((pending.path, path.traits), (pending.peer_vi, pending.peer_key));
        vi.connect(number, path_and_traits, rng.draw_u32(), peer, config, outputs, now);
        let accept = vi.accept_packet(number);
        outputs.control_packets.push((path_and_traits.0, accept));
        outputs.due_at(now + config.resend_after);
        incoming.remove(request);
        self.deliver();
        Ok(())
    }

    /// Rejects a request.
    ///
    /// # Errors
    /// [`RequestError::UnknownRequest`].
    pub fn reject(&mut self, request: u32) -> Result<(), RequestError> {
        self.reject_with(request, refusal::REJECTED)
    }

    fn reject_with(&mut self, request: u32, code: u32) -> Result<(), RequestError> {
        let request = self.incoming.remove(request).ok_or(RequestError::UnknownRequest)?;
        let answer = control_packet(Kind::Reject, request.peer_vi, request.peer_key, 0, 0, code);
        self.outputs.control_packets.push((request.path, answer));
        self.deliver();
        Ok(())
    }

    /// Requests the connection of an idle VI over a path, from the local discriminator `local` to `remote`.
    /// If `is_peer` is true, the other side must request the connection as well. [`Nic::outcome`] returns the
    /// result by the time `until` at the latest.
    ///
    /// # Errors
    /// [`RequestError::BadAddress`] if a discriminator is too long; [`RequestError::UnknownVi`],
    /// [`RequestError::BadState`], [`RequestError::UnknownPath`].
    pub fn request(
        &mut self,
        number: u32,
        path: u32,
        (local, remote): (&[u8], &[u8]),
        is_peer: bool,
        now: Instant,
        until: Instant,
    ) -> Result<(), RequestError> {
        let Nic { config, vis, paths, outputs, rng, .. } = self;
        let most = config.discriminator_bytes_max.min(wire::DISCRIMINATOR_BYTES_MAX);
        if local.len().max(remote.len()) > most {
            return Err(RequestError::BadAddress);
        }
        let vi = vis.get_mut(number).ok_or(RequestError::UnknownVi)?;
        if vi.state != ViState::Idle {
            return Err(RequestError::BadState(vi.state));
        }
        let traits = paths.get(path).ok_or(RequestError::UnknownPath)?.traits;
        // A peer that has not yet made its own request does not answer, so retransmit even on a lossless
        // path.
        let again = if traits.lossless && !is_peer { Instant::NEVER } else { now + config.resend_after };
        let setup = Setup {
            path,
            traits,
            key: rng.draw_u32(),
            is_peer,
            local: local.to_vec(),
            remote: remote.to_vec(),
            until,
            retransmit_at: again,
        };
        outputs.control_packets.push((path, vi.request_packet(number, &setup)));
        outputs.due_at(again.min(until));
        vi.setup = Some(setup);
        vi.outcome = None;
        vi.state = ViState::ConnectPending;
        self.deliver();
        Ok(())
    }

    /// Returns the result of a VI's request. The result is returned only once.
    ///
    /// # Errors
    /// [`RequestError::UnknownVi`].
    pub fn outcome(&mut self, vi: u32) -> Result<Option<Result<PeerAttributes, ConnectError>>, RequestError> {
        Ok(self.vis.get_mut(vi).ok_or(RequestError::UnknownVi)?.outcome.take())
    }

    /// Ends a VI's connection, outgoing request or error state; the VI becomes idle and its descriptors are
    /// flushed.
    ///
    /// # Errors
    /// [`RequestError::UnknownVi`].
    pub fn disconnect(&mut self, number: u32) -> Result<(), RequestError> {
        let Nic { vis, outputs, .. } = self;
        let vi = vis.get_mut(number).ok_or(RequestError::UnknownVi)?;
        if let Some(connection) = vi.connection.take() {
            outputs
                .control_packets
                .push((connection.path, connection.control_packet(Kind::Disconnect, 0, fault::NONE)));
        }
        (vi.setup, vi.broken, vi.outcome) = (None, None, None);
        vi.state = ViState::Idle;
        vi.flush(number, outputs);
        // Wake a host that waits for the outcome of the request, because there will be no outcome.
        outputs.progress = true;
        self.deliver();
        Ok(())
    }

    /// Calls [`Nic::disconnect`] for every VI.
    pub fn disconnect_all(&mut self) {
        let numbers: Vec<u32> = self.vis.iter().map(|(number, _)| number).collect();
        numbers.into_iter().for_each(|number| {
            self.disconnect(number).expect("the VI was there, and nobody else has the NIC");
        });
    }

    /// Handles a set-up packet.
    pub(crate) fn on_setup(&mut self, path: u32, header: &Header, payload: SharedBytes<'_>, now: Instant) {
        let mut copy = [0; SETUP_PACKET_BYTES_MAX];
        let length = payload.copy_to(0, &mut copy);
        let setup = wire::Setup::read(&copy[..length.min(payload.len())]);
        match (header.kind, setup) {
            (Kind::Reject, _) => self.on_reject(path, header),
            (_, Err(_)) => self.outputs.counters.malformed += 1,
            (Kind::ConnectRequest, Ok((setup, _))) => self.on_request(path, &setup, now),
            (Kind::PeerRequest, Ok((setup, _))) => self.on_peer(path, &setup, now),
            (_, Ok((setup, _))) => self.on_accept(path, header, &setup, now),
        }
        self.deliver();
    }

    fn on_request(&mut self, path: u32, setup: &wire::Setup<'_>, now: Instant) {
        let Nic { vis, incoming, listeners, outputs, .. } = self;
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
            outputs.control_packets.push((path, vi.accept_packet(number)));
            return;
        }
        let request = Incoming {
            path,
            until: now + REQUEST_LIFE,
            peer_vi: setup.vi,
            peer_key: setup.key,
            remoteness: PeerAttributes::of(setup),
            source: setup.local.to_vec(),
            target: setup.remote.to_vec(),
            reported: false,
        };
        let is_heard = listeners.iter().any(|known| known == setup.remote);
        if !is_heard || incoming.insert(request).is_none() {
            outputs
                .control_packets
                .push((path, control_packet(Kind::Reject, setup.vi, setup.key, 0, 0, refusal::NO_MATCH)));
            return;
        }
        outputs.due_at(now + REQUEST_LIFE);
        outputs.progress = true;
    }

    fn on_peer(&mut self, path: u32, theirs: &wire::Setup<'_>, now: Instant) {
        let Nic { config, vis, outputs, .. } = self;
        let from = (theirs.vi, theirs.key);
        let found = vis.iter_mut().find(|(number, vi)| {
            let asks = vi.setup.as_ref().is_some_and(|ours| {
                // On a loopback path, a VI receives its own request.
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
        // If there is no matching request yet, the peer will retransmit its own.
        let Some((number, vi)) = found else { return };
        if let Some(setup) = vi.setup.take() {
            let remoteness = PeerAttributes::of(theirs);
            if let Some(code) = remoteness.differs(&vi.attributes) {
                outputs
                    .control_packets
                    .push((path, control_packet(Kind::Reject, theirs.vi, theirs.key, 0, 0, code)));
                return vi.fail_request(error_of(code), outputs);
            }
            vi.connect(number, (path, setup.traits), setup.key, from, config, outputs, now);
            vi.outcome = Some(Ok(remoteness));
            outputs.due_at(now + config.resend_after);
        }
        outputs.control_packets.push((path, vi.accept_packet(number)));
    }

    fn on_accept(&mut self, path: u32, header: &Header, theirs: &wire::Setup<'_>, now: Instant) {
        let Nic { config, vis, outputs, .. } = self;
        let from = (theirs.vi, theirs.key);
        if let Some(vi) = vis.get_mut(header.vi) {
            if let Some(connection) = &mut vi.connection
                && connection.path == path
                && connection.key == header.key
                && (connection.peer_vi, connection.peer_key) == from
            {
                connection.confirmed = true;
                connection.ack_now = true;
                outputs.ready.push(header.vi);
                return;
            }
            let expected = vi.setup.take_if(|setup| setup.path == path && setup.key == header.key);
            if let Some(setup) = expected {
                vi.connect(header.vi, (path, setup.traits), setup.key, from, config, outputs, now);
                vi.outcome = Some(Ok(PeerAttributes::of(theirs)));
                if let Some(connection) = &mut vi.connection {
                    connection.confirmed = true;
                    connection.ack_now = true;
                }
                return;
            }
        }
        // If the accepted request no longer exists, answer with a disconnect.
        outputs
            .control_packets
            .push((path, control_packet(Kind::Disconnect, theirs.vi, theirs.key, 0, 0, fault::NONE)));
    }

    fn on_reject(&mut self, path: u32, header: &Header) {
        let Nic { vis, outputs, .. } = self;
        let Some(vi) = vis.get_mut(header.vi) else { return };
        if vi.setup.take_if(|setup| setup.path == path && setup.key == header.key).is_some() {
            vi.fail_request(error_of(header.immediate), outputs);
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
