//! Events at a VI: descriptors are posted and completed, connections break, and timers expire.

use crate::config::Config;
use crate::connection::request::ConnectError;
use crate::connection::state::{Connection, FlightContents};
use crate::traits::{Event, ViState};
use crate::transfer::outputs::{Outputs, fault_of};
use crate::transfer::work::{CompletionKind, DataSegment, Operation, Status, Work};
use crate::vi::{BrokenConnection, Vi};
use crate::wire::{ACK_RECEIVE_POSTED, Kind, fault};
use kiban_base::Instant;

impl Vi {
    /// Returns the status for the first rule that a descriptor's contents violate, or [`Status::OK`].
    fn validate(&self, operation: Option<Operation>, segments: &[DataSegment], config: &Config) -> Status {
        let bytes = segments.iter().fold(0u64, |sum, segment| sum + u64::from(segment.length));
        let is_unreliable_read = matches!(operation, Some(Operation::Read(_))) && !self.is_reliable();
        if segments.len() > config.segments_max || is_unreliable_read {
            Status::FORMAT
        } else if bytes > u64::from(self.attributes.transfer_bytes_max) && operation.is_some() {
            Status::LENGTH
        } else {
            Status::OK
        }
    }

    pub(super) fn post_send(
        &mut self,
        number: u32,
        work: &Work<'_>,
        judged: Status,
        config: &Config,
        outputs: &mut Outputs,
    ) {
        let verdict =
            if judged.is_ok() { self.validate(Some(work.operation), work.segments, config) } else { judged };
        // An invalid descriptor keeps its position in the queue but loses its segments.
        let segments = if verdict.is_ok() { work.segments } else { &[] };
        let posted = self.send.push(work.cookie, Some(work.operation), segments, work.immediate, work.fence);
        if self.state == ViState::Error {
            self.send.flush(Status::FLUSHED);
            self.report_completions(number, outputs);
        } else if verdict.is_ok() {
            outputs.ready.push(number);
        } else {
            self.fail_send(number, posted, verdict, outputs);
        }
    }

    pub(super) fn post_receive(
        &mut self,
        number: u32,
        cookie: u64,
        segments: &[DataSegment],
        judged: Status,
        config: &Config,
        outputs: &mut Outputs,
    ) {
        let verdict = if judged.is_ok() { self.validate(None, segments, config) } else { judged };
        let segments = if verdict.is_ok() { segments } else { &[] };
        let posted = self.receive.push(cookie, None, segments, None, false);
        if self.state == ViState::Error {
            self.receive.flush(Status::FLUSHED);
            self.report_completions(number, outputs);
        } else if !verdict.is_ok() {
            self.receive.finish(posted, verdict, 0, CompletionKind::Receive, None);
            self.report_completions(number, outputs);
            if self.is_reliable() && self.state == ViState::Connected {
                self.fail_connection(number, fault_of(verdict), true, outputs);
            }
        } else if let Some(connection) = &mut self.connection
            && core::mem::take(&mut connection.queue_empty_reported)
        {
            // The peer waits for a receive descriptor. Announce the new one in a separate control packet,
            // because a plain acknowledgement does not announce it.
            outputs
                .control_packets
                .push((connection.path, connection.control_packet(Kind::Ack, 0, ACK_RECEIVE_POSTED)));
        }
    }

    /// Completes a descriptor in the send queue with an error that the descriptor itself caused.
    pub(super) fn fail_send(&mut self, number: u32, work: u64, status: Status, outputs: &mut Outputs) {
        self.send.end_with(work, status, 0);
        self.report_completions(number, outputs);
        if self.is_reliable() {
            self.fail_connection(number, fault_of(status), true, outputs);
        }
    }

    /// Completes a descriptor in the send queue without an error.
    #[inline]
    pub(super) fn finish_send(&mut self, number: u32, work: u64, outputs: &mut Outputs) {
        let bytes = self.send.get(work).map_or(0, |posted| posted.bytes);
        self.send.end_with(work, Status::OK, bytes);
        self.report_completions(number, outputs);
    }

    /// Reports newly completed descriptors to the host.
    #[inline]
    pub(super) fn report_completions(&mut self, number: u32, outputs: &mut Outputs) {
        for _ in 0..self.send.newly_done() {
            outputs.completion(self.send_queue, number, false);
        }
        for _ in 0..self.receive.newly_done() {
            outputs.completion(self.receive_queue, number, true);
        }
    }

    /// Breaks the connection: flushes all descriptors and notifies the host and, if `tell_peer`, the peer.
    pub(super) fn fail_connection(&mut self, number: u32, why: u32, tell_peer: bool, outputs: &mut Outputs) {
        let Some(connection) = self.connection.take() else { return };
        let Connection { path, key, peer_vi, peer_key, .. } = connection;
        if tell_peer {
            outputs.control_packets.push((path, connection.control_packet(Kind::Disconnect, 0, why)));
        }
        // A part of this message had already arrived.
        if let Some(work) = connection.message.and_then(|_| self.receive.first_open())
            && why != fault::NONE
        {
            let status = Status::PARTIAL.and(Status::FLUSHED);
            self.receive.finish(work, status, connection.message.unwrap_or(0), CompletionKind::Receive, None);
        }
        // Descriptors that were in progress when the path failed complete with a transport error; those not
        // started yet are flushed (VI Architecture 1.0).
        if why == fault::TRANSPORT {
            for flight in &connection.flights {
                if let FlightContents::Work(work) = flight.cargo {
                    self.send.end_with(work, Status::TRANSPORT, 0);
                }
            }
        }
        self.broken = Some(BrokenConnection { path, key, peer_vi, peer_key, fault: why });
        self.state = ViState::Error;
        self.flush(number, outputs);
        outputs.counters.connections_broken += 1;
        outputs.event(Event::ConnectionLost { vi: number, fault: why });
    }

    pub(super) fn flush(&mut self, number: u32, outputs: &mut Outputs) {
        self.send.flush(Status::FLUSHED);
        self.receive.flush(Status::FLUSHED);
        self.report_completions(number, outputs);
    }

    pub(super) fn on_path_gone(&mut self, number: u32, path: u32, outputs: &mut Outputs) {
        if self.path() == Some(path) {
            self.fail_connection(number, fault::TRANSPORT, false, outputs);
        }
        if self.setup.as_ref().is_some_and(|setup| setup.path == path) {
            self.fail_request(ConnectError::Unreachable, outputs);
        }
    }

    /// Sends an acknowledgement that was delayed so that the host's answer could carry it. On a lossless
    /// path, it can wait longer: an answer will carry it, or the sender will request it when its window is
    /// half full.
    pub(super) fn send_pending_ack(&mut self, number: u32, outputs: &mut Outputs) {
        if let Some(connection) = &mut self.connection
            && connection.unacked_packets > 0
            && !connection.traits.lossless
        {
            connection.ack_now = true;
            outputs.ready.push(number);
        }
    }

    pub(super) fn advance(&mut self, number: u32, config: &Config, outputs: &mut Outputs, now: Instant) {
        self.advance_setup(number, config, outputs, now);
        self.advance_connection(number, config, outputs, now);
    }
}
