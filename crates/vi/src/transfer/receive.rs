//! Receive path: from packets to the host's memory.

use crate::config::Config;
use crate::connection::state::FlightContents;
use crate::memory::Registry;
use crate::nic::Nic;
use crate::traits::{Event, Reliability};
use crate::transfer::outputs::{Outputs, control_packet, fault_of};
use crate::transfer::work::{CompletionKind, Status};
use crate::vi::Vi;
use crate::wire::{
    self as wire, ACK_RECEIVE_POSTED, HEADER_BYTES, Header, Kind, REMOTE_RANGE_BYTES, RemoteRange, fault,
    flag,
};
use kiban_base::{Instant, SharedBytes};

/// The result of receiving a packet that has a sequence number.
enum Verdict {
    /// Accepted.
    Taken,
    /// The message is lost, but the connection continues (unreliable delivery).
    Lost,
    /// No receive descriptor is posted.
    ReceiveQueueEmpty,
    /// A protocol violation or access error: a `fault` code.
    Fault(u32),
}

impl Nic {
    /// Handles a packet that arrived on a path.
    pub fn arrive(&mut self, path: u32, packet: SharedBytes<'_>, now: Instant) {
        let Nic { config, memory, vis, paths, outputs, .. } = self;
        let Some(its_path) = paths.get(path) else { return };
        outputs.counters.packets_in += 1;
        // The header is copied before validation, because the packet may be in memory that other processes
        // can write to.
        let mut front = [0; HEADER_BYTES + REMOTE_RANGE_BYTES];
        let copied = packet.copy_to(0, &mut front);
        let is_intact =
            !its_path.traits.checked || packet.private().is_some_and(|bytes| wire::verify(bytes).is_ok());
        let Ok((header, _)) = Header::read(&front[..copied], packet.len()) else {
            outputs.counters.malformed += 1;
            return;
        };
        if !is_intact {
            outputs.counters.malformed += 1;
            return;
        }
        if matches!(header.kind, Kind::ConnectRequest | Kind::PeerRequest | Kind::Accept | Kind::Reject) {
            return self.on_setup(path, &header, packet.after(HEADER_BYTES), now);
        }
        let Some(vi) = vis.get_mut(header.vi) else {
            outputs.counters.no_vi += 1;
            return;
        };
        match &mut vi.connection {
            Some(connection) if connection.key == header.key && connection.path == path => {
                connection.on_heard(config, now);
                connection.confirmed = true;
            }
            _ => {
                // Resend the disconnect to a peer that has not received it.
                if let Some(grave) = vi.broken
                    && (grave.key, grave.path) == (header.key, path)
                    && header.kind != Kind::Disconnect
                {
                    let end =
                        control_packet(Kind::Disconnect, grave.peer_vi, grave.peer_key, 0, 0, grave.fault);
                    outputs.control_packets.push((path, end));
                }
                outputs.counters.no_vi += 1;
                return self.deliver();
            }
        }
        vi.on_packet(header.vi, &header, &front[HEADER_BYTES..copied], packet, config, memory, outputs, now);
        self.deliver();
    }
}

impl Vi {
    #[expect(clippy::too_many_arguments, reason = "the parts of the NIC that a VI needs for one packet")]
    fn on_packet(
        &mut self,
        number: u32,
        header: &Header,
        front: &[u8],
        packet: SharedBytes<'_>,
        config: &Config,
        memory: &Registry,
        outputs: &mut Outputs,
        now: Instant,
    ) {
        if header.kind == Kind::Disconnect {
            return self.fail_connection(number, header.immediate, false, outputs);
        }
        if self.is_reliable() && !self.on_acknowledged(number, header.acknowledged, config, outputs, now) {
            return self.fail_connection(number, fault::PROTOCOL, true, outputs);
        }
        let Some(connection) = &mut self.connection else { return };
        if header.has(flag::WANTS_ACK) {
            connection.ack_now = true;
            outputs.ready.push(number);
        }
        match header.kind {
            Kind::Refuse => self.on_refused(number, header, config, outputs, now),
            Kind::Ack => {
                // A sender that is blocked by an empty receive queue does not continue on just any packet,
                // but only on one that reports an available descriptor.
                if header.immediate == ACK_RECEIVE_POSTED && connection.release(now) {
                    outputs.ready.push(number);
                }
            }
            kind if kind.is_sequenced() => {
                if self.is_next(number, header, outputs) {
                    let verdict = self.take(number, header, front, packet, config, memory, outputs);
                    self.answer(number, header, verdict, config, outputs);
                }
            }
            _ => self.fail_connection(number, fault::PROTOCOL, true, outputs),
        }
    }

    /// Handles an acknowledgement of every packet before `sequence`. Returns false if it is invalid.
    #[inline]
    fn on_acknowledged(
        &mut self,
        number: u32,
        sequence: u32,
        config: &Config,
        outputs: &mut Outputs,
        now: Instant,
    ) -> bool {
        let Vi { connection: Some(connection), send, .. } = self else { return true };
        let mut finished = arrayvec::ArrayVec::<u64, 8>::new();
        let mut rest = alloc::vec::Vec::new();
        let mut see = |cargo| {
            // RDMA Reads complete with their responses.
            if let FlightContents::Work(work) = cargo
                && !send.has_ended(work)
                && !send.get(work).is_some_and(|work| work.is_read())
                && let Err(full) = finished.try_push(work)
            {
                rest.push(full.element());
            }
        };
        let Some(acknowledges_new) = connection.on_acknowledged(sequence, config, &mut see, now) else {
            return false;
        };
        if acknowledges_new {
            // If a peer that reported an empty queue has accepted a packet after all, a descriptor was
            // available.
            connection.release(now);
            outputs.due_at(connection.retransmit_deadline());
            outputs.ready.push(number);
            finished.into_iter().chain(rest).for_each(|work| self.finish_send(number, work, outputs));
        }
        true
    }

    /// Returns whether a packet is the next expected one. Resends the acknowledgement for a duplicate, and
    /// requests retransmission at a gap.
    #[inline]
    fn is_next(&mut self, number: u32, header: &Header, outputs: &mut Outputs) -> bool {
        let reliable = self.is_reliable();
        let Some(connection) = &mut self.connection else { return false };
        let ahead = header.sequence.wrapping_sub(connection.rcv_nxt) as i32;
        if ahead == 0 {
            return true;
        }
        if ahead < 0 {
            outputs.counters.duplicates += 1;
            if reliable {
                connection.ack_now = true;
                outputs.ready.push(number);
            }
            return false;
        }
        outputs.counters.gaps += 1;
        if connection.queue_empty_reported {
            // The refusal has been sent to the peer, which will retransmit the packets that follow the
            // refused one.
            connection.ack_now = false;
        }
        if !reliable {
            // The partial message is lost. Its descriptor is used for the next message.
            (connection.message, connection.writing) = (None, None);
            connection.rcv_nxt = header.sequence;
            return true;
        }
        if !connection.gap_reported && !connection.queue_empty_reported {
            connection.gap_reported = true;
            let missing = connection.rcv_nxt;
            self.refuse(missing, fault::GAP, outputs);
        }
        false
    }

    /// Reports to the peer that a packet was not accepted.
    fn refuse(&mut self, sequence: u32, code: u32, outputs: &mut Outputs) {
        let Some(connection) = &mut self.connection else { return };
        let refusal = connection.control_packet(Kind::Refuse, sequence, code);
        (connection.unacked_packets, connection.ack_now) = (0, false);
        outputs.control_packets.push((connection.path, refusal));
    }

    /// Acts on a verdict.
    #[inline]
    fn answer(
        &mut self,
        number: u32,
        header: &Header,
        verdict: Verdict,
        config: &Config,
        outputs: &mut Outputs,
    ) {
        let reliable = self.is_reliable();
        let waits = self.attributes.reliability == Reliability::Reception || !config.dry_patience.is_zero();
        let Some(connection) = &mut self.connection else { return };
        match verdict {
            Verdict::Taken | Verdict::Lost => {
                if matches!(verdict, Verdict::Taken) {
                    outputs.counters.bytes_copied += u64::from(header.payload_bytes);
                }
                connection.rcv_nxt = connection.rcv_nxt.wrapping_add(1);
                (connection.gap_reported, connection.queue_empty_reported) = (false, false);
                if reliable {
                    connection.unacked_packets += 1;
                    if connection.unacked_packets >= connection.window / 4 {
                        connection.ack_now = true;
                        outputs.ready.push(number);
                    } else if !self.in_ack_list {
                        self.in_ack_list = true;
                        outputs.pending_acks.push(number);
                    }
                }
            }
            Verdict::ReceiveQueueEmpty if reliable => {
                let is_news = !connection.queue_empty_reported;
                connection.queue_empty_reported = true;
                self.refuse(header.sequence, fault::NO_RECEIVE_DESCRIPTOR, outputs);
                if is_news {
                    outputs.event(Event::ReceiveQueueEmpty { vi: number });
                }
                if !waits {
                    self.fail_connection(number, fault::NO_RECEIVE_DESCRIPTOR, false, outputs);
                }
            }
            Verdict::ReceiveQueueEmpty => {
                outputs.counters.no_descriptor += 1;
                connection.message = None;
                connection.rcv_nxt = connection.rcv_nxt.wrapping_add(1);
            }
            Verdict::Fault(code) => {
                self.refuse(header.sequence, code, outputs);
                self.fail_connection(number, code, false, outputs);
            }
        }
    }

    /// Processes the next expected packet.
    #[expect(clippy::too_many_arguments, reason = "the parts of the NIC that a VI needs for one packet")]
    #[inline]
    fn take(
        &mut self,
        number: u32,
        header: &Header,
        front: &[u8],
        packet: SharedBytes<'_>,
        config: &Config,
        memory: &Registry,
        outputs: &mut Outputs,
    ) -> Verdict {
        match header.kind {
            Kind::Send => self.take_send(number, header, packet.after(HEADER_BYTES), memory, outputs),
            Kind::Write => self.take_write(number, header, front, packet, memory, outputs),
            Kind::ReadRequest => self.take_read_request(number, front, config, memory, outputs),
            _ => self.take_response(number, header, packet.after(HEADER_BYTES), memory, outputs),
        }
    }

    /// Gives up a message: on an unreliable VI, the message is lost; otherwise, `fault` ends the connection.
    fn lost(&mut self, fault: u32) -> Verdict {
        if self.is_reliable() {
            return Verdict::Fault(fault);
        }
        if let Some(connection) = &mut self.connection {
            (connection.message, connection.writing) = (None, None);
        }
        Verdict::Lost
    }

    fn take_send(
        &mut self,
        number: u32,
        header: &Header,
        payload: SharedBytes<'_>,
        memory: &Registry,
        outputs: &mut Outputs,
    ) -> Verdict {
        let Some(connection) = &mut self.connection else { return Verdict::Lost };
        if header.has(flag::FIRST) {
            connection.message = Some(0);
        }
        // Earlier packets of the message were lost, or this packet does not continue the message.
        if connection.message != Some(header.offset) {
            return self.lost(fault::PROTOCOL);
        }
        let Some(work) = self.receive.first_open() else {
            connection.message = None;
            return Verdict::ReceiveQueueEmpty;
        };
        let room = self.receive.get(work).map_or(0, |work| work.bytes);
        let end = header.offset.checked_add(payload.len() as u32);
        let verdict = match end {
            Some(end) if end <= room => {
                let tag = self.attributes.tag;
                match self.receive.scatter(work, header.offset as usize, payload, tag, memory) {
                    Some(()) => Status::OK,
                    None => Status::PROTECTION,
                }
            }
            _ => Status::LENGTH,
        };
        let connection = self.connection.as_mut().expect("it was there");
        if !verdict.is_ok() {
            let moved = header.offset;
            connection.message = None;
            let status = if moved > 0 { verdict.and(Status::PARTIAL) } else { verdict };
            self.receive.finish(work, status, moved, CompletionKind::Receive, None);
            self.report_completions(number, outputs);
            return self.lost(fault_of(verdict));
        }
        connection.message = end;
        if header.has(flag::LAST) {
            connection.message = None;
            outputs.counters.messages_in += 1;
            let immediate = header.has(flag::IMMEDIATE).then_some(header.immediate);
            self.receive.finish(work, Status::OK, end.unwrap_or(0), CompletionKind::Receive, immediate);
            self.report_completions(number, outputs);
        }
        Verdict::Taken
    }

    fn take_write(
        &mut self,
        number: u32,
        header: &Header,
        front: &[u8],
        packet: SharedBytes<'_>,
        memory: &Registry,
        outputs: &mut Outputs,
    ) -> Verdict {
        let Ok((place, _)) = RemoteRange::read(front) else { return self.lost(fault::PROTOCOL) };
        let Some(connection) = &mut self.connection else { return Verdict::Lost };
        if header.has(flag::FIRST) {
            connection.writing = Some(0);
        }
        // Earlier packets were lost, so the RDMA Write must not be reported as complete.
        if connection.writing != Some(header.offset) {
            return self.lost(fault::PROTOCOL);
        }
        let region =
            memory.writable(place.handle, self.attributes.tag).filter(|_| self.attributes.rdma_write);
        let consumes = header.has(flag::LAST) && header.has(flag::IMMEDIATE);
        let work = if consumes { self.receive.first_open() } else { None };
        let payload = packet.after(HEADER_BYTES + REMOTE_RANGE_BYTES);
        // Refuse the packet before anything is written. It will be retransmitted.
        if consumes && work.is_none() && region.is_some() {
            return Verdict::ReceiveQueueEmpty;
        }
        if region.and_then(|region| region.write(place.address, payload)).is_none() {
            outputs.event(Event::RdmaProtection { vi: number, write: true });
            return self.lost(fault::RDMA_PROTECTION);
        }
        let end = header.offset.saturating_add(payload.len() as u32);
        connection.writing = (!header.has(flag::LAST)).then_some(end);
        if let Some(work) = work {
            outputs.counters.messages_in += 1;
            self.receive.finish(work, Status::OK, end, CompletionKind::RemoteWrite, Some(header.immediate));
            self.report_completions(number, outputs);
        }
        Verdict::Taken
    }

    fn take_read_request(
        &mut self,
        number: u32,
        front: &[u8],
        config: &Config,
        memory: &Registry,
        outputs: &mut Outputs,
    ) -> Verdict {
        let Ok((place, _)) = RemoteRange::read(front) else { return self.lost(fault::PROTOCOL) };
        let Some(connection) = &mut self.connection else { return Verdict::Lost };
        let in_flight = connection
            .flights
            .iter()
            .filter(|flight| matches!(flight.cargo, FlightContents::Response(_)))
            .count();
        if !self.attributes.rdma_read
            || memory
                .readable(place.handle, self.attributes.tag)
                .and_then(|region| region.range(place.address, place.length as usize))
                .is_none()
        {
            outputs.event(Event::RdmaProtection { vi: number, write: false });
            return self.lost(fault::RDMA_PROTECTION);
        }
        // Up to `reads_max` responses may be in flight, and the same number in addition may be
        // unacknowledged.
        if connection.responses.len() >= config.reads_max || in_flight > 2 * config.reads_max + 1 {
            return self.lost(fault::PROTOCOL);
        }
        connection.responses.push_back(place);
        outputs.ready.push(number);
        Verdict::Taken
    }

    fn take_response(
        &mut self,
        number: u32,
        header: &Header,
        payload: SharedBytes<'_>,
        memory: &Registry,
        outputs: &mut Outputs,
    ) -> Verdict {
        let Some(connection) = &mut self.connection else { return Verdict::Lost };
        let Some(reading) = connection.reads.front_mut().filter(|reading| reading.received == header.offset)
        else {
            return self.lost(fault::PROTOCOL);
        };
        let work = reading.work;
        let whole = self.send.get(work).map_or(0, |work| work.bytes);
        let end = header.offset.saturating_add(payload.len() as u32);
        if end > whole || (header.has(flag::LAST) != (end == whole)) {
            return self.lost(fault::PROTOCOL);
        }
        reading.received = end;
        if self.send.scatter(work, header.offset as usize, payload, self.attributes.tag, memory).is_none() {
            let status =
                if header.offset > 0 { Status::PROTECTION.and(Status::PARTIAL) } else { Status::PROTECTION };
            self.send.finish(work, status, header.offset, CompletionKind::Read, None);
            self.report_completions(number, outputs);
            return Verdict::Fault(fault::DESCRIPTOR);
        }
        if end == whole {
            connection.reads.pop_front();
            self.finish_send(number, work, outputs);
            // Fenced descriptors may start now.
            outputs.ready.push(number);
        }
        Verdict::Taken
    }

    /// Handles the peer's refusal of a packet.
    fn on_refused(
        &mut self,
        number: u32,
        header: &Header,
        config: &Config,
        outputs: &mut Outputs,
        now: Instant,
    ) {
        let Some(connection) = &mut self.connection else { return };
        match header.immediate {
            fault::GAP => {
                connection.halve_window();
                connection.go_back(outputs);
                outputs.ready.push(number);
            }
            fault::NO_RECEIVE_DESCRIPTOR => self.on_peer_queue_empty(number, config, outputs, now),
            code => {
                // The descriptor to which the packet belongs completes with the error, if the descriptor
                // still exists.
                let flight = connection
                    .flights
                    .iter()
                    .find(|flight| header.sequence.wrapping_sub(flight.first_sequence) < flight.packets);
                if let Some(FlightContents::Work(work)) = flight.map(|flight| flight.cargo) {
                    let status = match code {
                        fault::RDMA_PROTECTION => Status::RDMA_PROTECTION,
                        fault::LENGTH | fault::PROTECTION => Status::REMOTE_DESCRIPTOR,
                        _ => Status::TRANSPORT,
                    };
                    self.send.end_with(work, status, 0);
                }
                self.fail_connection(number, code, false, outputs);
            }
        }
    }
}
