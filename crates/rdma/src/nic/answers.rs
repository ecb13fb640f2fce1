//! The host's answers to connection requests, and the end of a connection.

use super::connection::{CmEvent, OpenError};
use super::device::Nic;
use super::end::{FlowPhase, Transport};
use crate::efe::Endpoint;
use crate::iwarp::mpa::{self};
use crate::rnic::{QpState, StreamAction, StreamTraits};
use alloc::vec::Vec;
use core::time::Duration;
use kiban_base::Instant;

/// How long a responder waits for the initiator to send first. After that, and once its reply has arrived,
/// the responder may send, although RFC 5044 §7.1.2 forbids it: some programs expect it, because their own
/// RDMA NICs allow it.
const HOLD: Duration = Duration::from_millis(1);
/// The same for an initiator that may be siw, which fails the connection if data follows the reply before its
/// kernel thread has read the reply. On a busy host, this thread may have to wait for a processor.
const HOLD_FOR_SIW: Duration = Duration::from_millis(100);

/// How long an initiator that has sent data and received nothing waits before it nudges its peer.
pub const NUDGE: Duration = Duration::from_millis(5);
/// Maximum number of nudges. Each wait is twice the previous one, and all together take a third of a second.
pub const NUDGES_MAX: u32 = 6;

impl Nic {
    /// Accepts a request on a queue pair that is not connected. `endpoint` is required for a request that
    /// came through EFE.
    ///
    /// # Errors
    /// The queue pair cannot be connected; the private data is too long; the request is no longer valid.
    pub fn accept(
        &mut self,
        endpoint: Option<&mut Endpoint>,
        number: u32,
        qp: u32,
        depths: (u16, u16),
        private_data: &[u8],
        now: Instant,
    ) -> Result<(), OpenError> {
        self.check_free(qp)?;
        let end = self.ends.get_mut(number).filter(|end| end.qp.is_none() && !end.is_established);
        let end = end.ok_or(OpenError::Gone)?;
        match &mut end.below {
            Transport::Stream(stream) => {
                if !stream.awaits_answer() {
                    return Err(OpenError::Gone);
                }
                let accepted = stream.accept(&mut self.core, qp, depths, private_data);
                if !accepted.map_err(OpenError::PrivateData)? {
                    return Err(OpenError::InUse);
                }
            }
            Transport::Flow { flow, phase } => {
                let (Some(endpoint), FlowPhase::Responding(responder)) = (endpoint, &*phase) else {
                    return Err(OpenError::Gone);
                };
                let (reply, agreed) =
                    responder.accept(private_data, depths.0, depths.1).map_err(OpenError::PrivateData)?;
                endpoint.accept(*flow, &reply, now).map_err(|_| OpenError::Gone)?;
                let mpa::Agreed { ird, ord, extensions, .. } = agreed;
                let traits = StreamTraits { ird, ord, extensions, kiban: extensions, may_send: true };
                self.core.connect(qp, traits).map_err(|_| OpenError::Gone)?;
                *phase = FlowPhase::Accepted;
            }
            // `Nic::accept_roce` answers these.
            Transport::Roce(_) | Transport::Nothing => return Err(OpenError::Gone),
        }
        end.qp = Some(qp);
        end.is_established = true;
        self.of_qp.insert(qp, number);
        self.waiting.leave(number);
        self.events.push_back(CmEvent::Connected { end: number, private_data: Vec::new() });
        self.schedule(number);
        Ok(())
    }

    /// Rejects a request.
    ///
    /// # Errors
    /// The private data is too long; the request is no longer valid.
    pub fn reject(
        &mut self,
        endpoint: Option<&mut Endpoint>,
        number: u32,
        private_data: &[u8],
        now: Instant,
    ) -> Result<(), OpenError> {
        let end = self.ends.get_mut(number).filter(|end| end.qp.is_none()).ok_or(OpenError::Gone)?;
        match &mut end.below {
            Transport::Stream(stream) => stream.reject(private_data).map_err(OpenError::PrivateData)?,
            Transport::Flow { flow, phase } => {
                let (Some(endpoint), FlowPhase::Responding(responder)) = (endpoint, &*phase) else {
                    return Err(OpenError::Gone);
                };
                let reply = responder.reject(private_data).map_err(OpenError::PrivateData)?;
                endpoint.reject(*flow, &reply, now).map_err(|_| OpenError::Gone)?;
                self.of_flow.remove(flow);
                end.below = Transport::Nothing;
            }
            Transport::Roce(_) | Transport::Nothing => return Err(OpenError::Gone),
        }
        self.waiting.leave(number);
        self.schedule(number);
        Ok(())
    }

    /// Removes an end. The driver must close its byte stream; a flow is aborted. If the end was connected,
    /// the queue pair's work is flushed.
    pub fn forget(&mut self, endpoint: Option<&mut Endpoint>, number: u32, now: Instant) {
        let Some(end) = self.ends.remove(number) else { return };
        if let Some(qp) = end.qp
            && self.of_qp.get(&qp) == Some(&number)
        {
            self.of_qp.remove(&qp);
            if !matches!(end.below, Transport::Nothing) {
                self.core.on_stream_closed(qp, false);
            }
        }
        self.waiting.leave(number);
        if let Transport::Flow { flow, .. } = end.below {
            self.of_flow.remove(&flow);
            if let Some(endpoint) = endpoint {
                let _ = endpoint.abort(flow, now);
            }
        }
    }

    /// Returns whether an end's connection is closing gracefully, so that queued data is still sent.
    pub fn is_ending(&self, number: u32) -> bool {
        let Some(end) = self.ends.get(number) else { return false };
        let closes = end.qp.is_some_and(|qp| matches!(self.core.query_qp(qp), Ok((_, QpState::Closing, _))));
        match &end.below {
            Transport::Nothing => false,
            Transport::Stream(stream) => closes || stream.action(&self.core) == StreamAction::Finish,
            Transport::Flow { .. } | Transport::Roce(_) => {
                closes || end.qp.is_some_and(|qp| self.core.stream_action(qp) == StreamAction::Finish)
            }
        }
    }

    /// Returns whether an end's queue pair or setup has failed or ended, so that at most a Terminate is
    /// still sent.
    pub fn is_over(&self, number: u32) -> bool {
        self.ends.get(number).is_some_and(|end| {
            end.failed
                || end.qp.is_some_and(|qp| {
                    matches!(self.core.query_qp(qp), Ok((_, QpState::Terminate | QpState::Error, _)))
                })
        })
    }

    /// Returns how long a responder waits for the initiator to send first. After that, and once its reply
    /// has arrived, it may send. `None`: it must wait, because both ends agreed on a ready-to-receive message
    /// (RFC 6581 §9).
    ///
    /// Peers that agreed on RFC 7306 are kiban NICs, which accept data in one segment with the reply.
    pub fn hold(&mut self, end: u32) -> Option<Duration> {
        self.stream(end).filter(|(stream, _)| !stream.waits_for_rtr())?;
        let qp = self.ends.get(end)?.qp?;
        let (.., traits) = self.core.query_qp(qp).ok()?;
        Some(if traits.extensions { HOLD } else { HOLD_FOR_SIW })
    }

    /// Returns whether the peer of an outgoing connection over a byte stream may be an implementation that
    /// misses data ([`Nic::nudge`]). Peers that agreed on RFC 7306 are kiban NICs, which do not miss data.
    pub fn peer_may_sleep(&self, end: u32) -> bool {
        let Some(end) = self.ends.get(end) else { return false };
        let initiated = end.listener.is_none() && matches!(end.below, Transport::Stream(_));
        let traits = end.qp.and_then(|qp| self.core.query_qp(qp).ok()).map(|(.., traits)| traits);
        initiated && traits.is_some_and(|traits| !traits.extensions)
    }

    /// Nudges a peer that may have missed the initiator's first message (`Stream::nudge`). Returns whether
    /// to try again. Call it [`NUDGE`] after the reply and then at intervals that double each time, at most
    /// [`NUDGES_MAX`] times.
    pub fn nudge(&mut self, end: u32) -> bool {
        let again = self.stream(end).is_some_and(|(stream, core)| stream.nudge(core));
        if again {
            self.schedule(end);
        }
        again
    }
}
