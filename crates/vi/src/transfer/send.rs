//! Transmit path: makes packets from descriptors, one at a time, in a buffer that the link provides.

use crate::config::Config;
use crate::connection::state::{Flight, FlightContents, OutstandingRead};
use crate::memory::Registry;
use crate::transfer::outputs::{Outputs, fault_of};
use crate::transfer::work::{Operation, Status};
use crate::vi::Vi;
use crate::wire::{HEADER_BYTES, Header, Kind, REMOTE_RANGE_BYTES, RemoteRange, flag};
use kiban_base::{Instant, SharedRoom};

/// The contents of one packet of a flight.
struct Content {
    kind: Kind,
    flags: u8,
    immediate: u32,
    /// The offset of the payload in the message, and the payload's length.
    offset: usize,
    length: usize,
    /// Precedes the payload.
    place: Option<RemoteRange>,
}

impl Vi {
    /// Writes the next packet into `room` and returns its length, or `None` if there is nothing to send now.
    #[inline]
    pub(crate) fn emit(
        &mut self,
        number: u32,
        config: &Config,
        memory: &Registry,
        room: &mut SharedRoom<'_>,
        outputs: &mut Outputs,
        now: Instant,
    ) -> Option<usize> {
        loop {
            let reliable = self.is_reliable();
            let connection = self.connection.as_mut()?;
            let may_send = connection.peer_queue_empty_since.is_none() || connection.ack_request_due;
            if may_send
                && connection.cursor.0 == connection.flights.len()
                && !self.begin_flight(number, config, memory, outputs)
            {
                // A descriptor in error has completed or has broken the connection, so look for the next
                // packet.
                continue;
            }
            let connection = self.connection.as_mut()?;
            let flight = connection.flights.get(connection.cursor.0).copied();
            if let Some(flight) = flight
                && may_send
            {
                let sequence = flight.first_sequence.wrapping_add(connection.cursor.1);
                let in_flight = sequence.wrapping_sub(connection.acknowledged);
                if !reliable || in_flight < connection.window {
                    match self.emit_packet(flight, sequence, in_flight, config, memory, room) {
                        Ok(length) => {
                            outputs.counters.bytes_copied += (length - HEADER_BYTES) as u64;
                            self.on_left(number, flight, sequence, config, outputs, now);
                            return Some(length);
                        }
                        // The memory was deregistered or changed in the meantime.
                        Err(()) => {
                            if self.is_reliable() {
                                self.fail_flight(number, flight, Status::PROTECTION, outputs);
                            } else {
                                self.drop_flight(number, flight, outputs);
                            }
                            continue;
                        }
                    }
                }
            }
            let connection = self.connection.as_mut()?;
            if !connection.ack_now {
                return None;
            }
            let flags = if core::mem::take(&mut connection.ack_request_due) { flag::WANTS_ACK } else { 0 };
            let header = self.header(Kind::Ack, flags, 0, 0, 0, 0);
            let mut bytes = [0; HEADER_BYTES];
            header.write(&mut bytes);
            room.write(0, bytes[..].into());
            return Some(HEADER_BYTES);
        }
    }

    /// Builds the header of a packet to be sent now, which carries any pending acknowledgement.
    #[inline]
    fn header(
        &mut self,
        kind: Kind,
        flags: u8,
        sequence: u32,
        offset: u32,
        immediate: u32,
        payload: usize,
    ) -> Header {
        let connection = self.connection.as_mut().expect("packets leave on a connection");
        (connection.unacked_packets, connection.ack_now) = (0, false);
        Header {
            kind,
            flags,
            payload_bytes: payload as u16,
            vi: connection.peer_vi,
            key: connection.peer_key,
            sequence,
            acknowledged: connection.rcv_nxt,
            offset,
            immediate,
        }
    }

    /// Returns the maximum number of data bytes in one packet of this operation.
    fn grain(&self, place: bool) -> usize {
        let traits = self.connection.as_ref().expect("packets leave on a connection").traits;
        let most = traits.packet_bytes - HEADER_BYTES - if place { REMOTE_RANGE_BYTES } else { 0 };
        most.min(usize::from(u16::MAX) - REMOTE_RANGE_BYTES)
    }

    /// Starts the next flight, if there is one: responses first, then descriptors. Returns false if the
    /// caller must call this function once more.
    fn begin_flight(
        &mut self,
        number: u32,
        config: &Config,
        memory: &Registry,
        outputs: &mut Outputs,
    ) -> bool {
        let connection = self.connection.as_mut().expect("flights begin on a connection");
        let (cargo, bytes, has_place) = if let Some(response) = connection.responses.pop_front() {
            (FlightContents::Response(response), response.length, false)
        } else {
            // A descriptor in error may have been dequeued before its turn.
            connection.next_work = connection.next_work.max(self.send.front());
            let number_of_work = connection.next_work;
            let Some(work) = self.send.get(number_of_work) else { return true };
            if self.send.has_ended(number_of_work) {
                // The descriptor was in error. An unreliable VI continues with the next descriptor.
                connection.next_work += 1;
                return false;
            }
            let is_read = work.is_read();
            // The descriptor has a queue fence, so RDMA Reads posted earlier must complete first.
            if work.fence && !connection.reads.is_empty()
                || is_read && connection.reads.len() >= config.reads_max
            {
                return true;
            }
            let (bytes, has_place) = (work.bytes, matches!(work.operation, Some(Operation::Write(_))));
            connection.next_work += 1;
            if !self.send.is_permitted(number_of_work, self.attributes.tag, memory) {
                self.fail_send(number, number_of_work, Status::PROTECTION, outputs);
                return false;
            }
            if is_read {
                connection.reads.push_back(OutstandingRead { work: number_of_work, received: 0 });
            }
            (FlightContents::Work(number_of_work), if is_read { 0 } else { bytes }, has_place)
        };
        let packets = (bytes as usize).div_ceil(self.grain(has_place)).max(1) as u32;
        let connection = self.connection.as_mut().expect("as above");
        connection.flights.push_back(Flight { first_sequence: connection.next_sequence, packets, cargo });
        connection.next_sequence = connection.next_sequence.wrapping_add(packets);
        true
    }

    /// Returns the contents of packet number `index` of a flight.
    fn content(&self, flight: Flight, index: u32) -> Option<Content> {
        let mut flags = if index == 0 { flag::FIRST } else { 0 };
        if index + 1 == flight.packets {
            flags |= flag::LAST;
        }
        let (kind, bytes, immediate, place) = match flight.cargo {
            FlightContents::Response(place) => (Kind::ReadResponse, place.length, None, None),
            FlightContents::Work(work) => {
                let work = self.send.get(work)?;
                match work.operation? {
                    Operation::Send => (Kind::Send, work.bytes, work.immediate, None),
                    Operation::Write(remote) => {
                        let place = RemoteRange { address: remote.address, handle: remote.handle, length: 0 };
                        (Kind::Write, work.bytes, work.immediate, Some(place))
                    }
                    Operation::Read(remote) => {
                        let place = RemoteRange {
                            address: remote.address,
                            handle: remote.handle,
                            length: work.bytes,
                        };
                        (Kind::ReadRequest, 0, None, Some(place))
                    }
                }
            }
        };
        let grain = self.grain(kind == Kind::Write);
        let offset = index as usize * grain;
        let length = grain.min(bytes as usize - offset.min(bytes as usize));
        let place = place.map(|place| match kind {
            Kind::Write => RemoteRange { address: place.address.wrapping_add(offset as u64), ..place },
            _ => place,
        });
        if immediate.is_some() {
            flags |= flag::IMMEDIATE;
        }
        Some(Content { kind, flags, immediate: immediate.unwrap_or(0), offset, length, place })
    }

    fn emit_packet(
        &mut self,
        flight: Flight,
        sequence: u32,
        in_flight: u32,
        config: &Config,
        memory: &Registry,
        room: &mut SharedRoom<'_>,
    ) -> Result<usize, ()> {
        let index = sequence.wrapping_sub(flight.first_sequence);
        let Content { kind, mut flags, immediate, offset, length, place } =
            self.content(flight, index).ok_or(())?;
        let reliable = self.is_reliable();
        let connection = self.connection.as_mut().expect("packets leave on a connection");
        let waits = !connection.completes_at_departure(self.attributes.reliability, config);
        // Request an acknowledgement if the descriptor's completion depends on it, or when the window is
        // half full.
        let asks = core::mem::take(&mut connection.ack_request_due);
        let half = reliable && in_flight.wrapping_add(1).is_multiple_of(connection.window.div_ceil(2));
        if asks || half || (waits && flags & flag::LAST != 0) {
            flags |= flag::WANTS_ACK;
        }
        let mut front = [0; HEADER_BYTES + REMOTE_RANGE_BYTES];
        let front_bytes = HEADER_BYTES + place.map_or(0, |place| place.write(&mut front[HEADER_BYTES..]));
        match flight.cargo {
            FlightContents::Work(work) if length > 0 => {
                let tag = self.attributes.tag;
                self.send.gather(work, offset, length, tag, memory, front_bytes, room).ok_or(())?;
            }
            FlightContents::Response(place) if length > 0 => {
                let region = memory.readable(place.handle, self.attributes.tag).ok_or(())?;
                let address = place.address.checked_add(offset as u64).ok_or(())?;
                room.write(front_bytes, region.bytes(address, length).ok_or(())?);
            }
            _ => {}
        }
        let payload = front_bytes - HEADER_BYTES + length;
        let header = self.header(kind, flags, sequence, offset as u32, immediate, payload);
        header.write(&mut front);
        room.write(0, front[..front_bytes].into());
        Ok(front_bytes + length)
    }

    /// Advances the cursor after a packet has been sent, and completes the descriptor if sending completes
    /// it.
    #[inline]
    fn on_left(
        &mut self,
        number: u32,
        flight: Flight,
        sequence: u32,
        config: &Config,
        outputs: &mut Outputs,
        now: Instant,
    ) {
        let reliability = self.attributes.reliability;
        let reliable = self.is_reliable();
        let connection = self.connection.as_mut().expect("a packet left on it");
        if reliable {
            connection.on_departure(sequence, outputs, now);
        }
        connection.cursor.1 += 1;
        if connection.cursor.1 < flight.packets {
            return;
        }
        connection.cursor = (connection.cursor.0 + 1, 0);
        let departs = connection.completes_at_departure(reliability, config);
        if !reliable {
            connection.flights.clear();
            connection.cursor = (0, 0);
        }
        if let FlightContents::Work(work) = flight.cargo
            && departs
            && !self.send.get(work).is_some_and(|work| work.is_read())
        {
            self.finish_send(number, work, outputs);
        }
    }

    /// Handles memory that has become inaccessible. If the memory is for a descriptor, the descriptor fails;
    /// if it is for a response, the connection breaks.
    fn fail_flight(&mut self, number: u32, flight: Flight, status: Status, outputs: &mut Outputs) {
        match flight.cargo {
            FlightContents::Work(work) if !self.send.has_ended(work) => {
                self.fail_send(number, work, status, outputs)
            }
            _ => self.fail_connection(number, fault_of(status), true, outputs),
        }
    }

    /// Abandons an unreliable message whose memory has become inaccessible.
    fn drop_flight(&mut self, number: u32, flight: Flight, outputs: &mut Outputs) {
        if let Some(connection) = &mut self.connection {
            connection.flights.clear();
            connection.cursor = (0, 0);
            // Skip the sequence numbers of the packets that were not sent, so that the receiver treats them
            // as lost.
            connection.next_sequence = flight.first_sequence.wrapping_add(flight.packets);
        }
        if let FlightContents::Work(work) = flight.cargo {
            self.fail_send(number, work, Status::PROTECTION, outputs);
        }
    }
}
