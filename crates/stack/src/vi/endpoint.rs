//! A VI: two work queues, a state, and the connection while there is one.

use super::connection::{Cargo, Connection};
use super::setup::{Outcome, Setup};
use super::work::{DoneAs, Operation, Segment, Status, Work, WorkQueue};
use super::{Config, Desk, Event, Letter, Reliability, ViAttributes, ViState, fault_of};
use kiban_ground::Instant;
use kiban_wire::vi::{ACK_ROOM, Header, Kind, fault};

/// What is left of a connection that broke: enough to tell a peer that has not heard of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grave {
    pub path: u32,
    pub key: u32,
    pub peer_vi: u32,
    pub peer_key: u32,
    pub fault: u32,
}

#[derive(Debug)]
pub(super) struct Vi {
    pub attributes: ViAttributes,
    pub state: ViState,
    pub send: WorkQueue,
    pub receive: WorkQueue,
    pub send_queue: Option<u32>,
    pub receive_queue: Option<u32>,
    pub connection: Option<Connection>,
    pub setup: Option<Setup>,
    /// How the last request of the host's ended, until it is asked.
    pub outcome: Option<Outcome>,
    pub grave: Option<Grave>,
    /// It stands in its path's line.
    pub queued: bool,
    /// It stands on the desk's list of those who owe an acknowledgement.
    pub owing: bool,
}

/// A letter without payload.
pub(super) fn letter(kind: Kind, vi: u32, key: u32, sequence: u32, acknowledged: u32, code: u32) -> Letter {
    let header = Header {
        kind,
        flags: 0,
        payload_bytes: 0,
        vi,
        key,
        sequence,
        acknowledged,
        offset: 0,
        immediate: code,
    };
    let mut bytes = [0; kiban_wire::vi::HEADER_BYTES];
    header.write(&mut bytes);
    Letter::try_from(&bytes[..]).expect("a letter holds a header")
}

impl Vi {
    pub(super) fn new(attributes: ViAttributes, send_queue: Option<u32>, receive_queue: Option<u32>) -> Vi {
        Vi {
            attributes,
            state: ViState::Idle,
            send: WorkQueue::default(),
            receive: WorkQueue::default(),
            send_queue,
            receive_queue,
            connection: None,
            setup: None,
            outcome: None,
            grave: None,
            queued: false,
            owing: false,
        }
    }

    pub(super) fn is_reliable(&self) -> bool {
        self.attributes.reliability != Reliability::Unreliable
    }

    /// The path on which it speaks now.
    pub(super) fn path(&self) -> Option<u32> {
        self.connection.as_ref().map(|connection| connection.path)
    }

    pub(super) fn uses(&self, path: u32) -> bool {
        self.path() == Some(path) || self.setup.as_ref().is_some_and(|setup| setup.path == path)
    }

    /// The first rule that a descriptor breaks by itself.
    fn verdict(&self, operation: Option<Operation>, segments: &[Segment], config: &Config) -> Status {
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
        desk: &mut Desk,
    ) {
        let verdict =
            if judged.is_ok() { self.verdict(Some(work.operation), work.segments, config) } else { judged };
        // A descriptor that breaks a rule keeps its place in the queue, without what it names.
        let segments = if verdict.is_ok() { work.segments } else { &[] };
        let posted = self.send.push(work.cookie, Some(work.operation), segments, work.immediate, work.fence);
        if self.state == ViState::Error {
            self.send.flush(Status::FLUSHED);
            self.tell_done(number, desk);
        } else if verdict.is_ok() {
            desk.ready.push(number);
        } else {
            self.fail_send(number, posted, verdict, desk);
        }
    }

    pub(super) fn post_receive(
        &mut self,
        number: u32,
        cookie: u64,
        segments: &[Segment],
        judged: Status,
        config: &Config,
        desk: &mut Desk,
    ) {
        let verdict = if judged.is_ok() { self.verdict(None, segments, config) } else { judged };
        let segments = if verdict.is_ok() { segments } else { &[] };
        let posted = self.receive.push(cookie, None, segments, None, false);
        if self.state == ViState::Error {
            self.receive.flush(Status::FLUSHED);
            self.tell_done(number, desk);
        } else if !verdict.is_ok() {
            self.receive.finish(posted, verdict, 0, DoneAs::Receive, None);
            self.tell_done(number, desk);
            if self.is_reliable() && self.state == ViState::Connected {
                self.break_off(number, fault_of(verdict), true, desk);
            }
        } else if let Some(connection) = &mut self.connection
            && core::mem::take(&mut connection.told_dry)
        {
            // The peer waits for this. A letter of its own: an acknowledgement alone does not say that there is room.
            desk.letters.push((connection.path, connection.letter(Kind::Ack, 0, ACK_ROOM)));
        }
    }

    /// A descriptor of the send queue ends with an error of its own.
    pub(super) fn fail_send(&mut self, number: u32, work: u64, status: Status, desk: &mut Desk) {
        self.send.end_with(work, status, 0);
        self.tell_done(number, desk);
        if self.is_reliable() {
            self.break_off(number, fault_of(status), true, desk);
        }
    }

    /// A descriptor of the send queue is done without an error.
    #[inline]
    pub(super) fn finish_send(&mut self, number: u32, work: u64, desk: &mut Desk) {
        let bytes = self.send.get(work).map_or(0, |posted| posted.bytes);
        self.send.end_with(work, Status::OK, bytes);
        self.tell_done(number, desk);
    }

    /// Tells the host of descriptors that are done.
    #[inline]
    pub(super) fn tell_done(&mut self, number: u32, desk: &mut Desk) {
        for _ in 0..self.send.newly_done() {
            desk.completion(self.send_queue, number, false);
        }
        for _ in 0..self.receive.newly_done() {
            desk.completion(self.receive_queue, number, true);
        }
    }

    /// The connection breaks: what waits is flushed, host and peer are told.
    pub(super) fn break_off(&mut self, number: u32, why: u32, tell_peer: bool, desk: &mut Desk) {
        let Some(connection) = self.connection.take() else { return };
        let Connection { path, key, peer_vi, peer_key, .. } = connection;
        if tell_peer {
            desk.letters.push((path, connection.letter(Kind::Disconnect, 0, why)));
        }
        // Bytes of these had moved already.
        if let Some(work) = connection.message.and_then(|_| self.receive.first_open())
            && why != fault::NONE
        {
            let status = Status::PARTIAL.and(Status::FLUSHED);
            self.receive.finish(work, status, connection.message.unwrap_or(0), DoneAs::Receive, None);
        }
        // What was under way when the path failed says so; what had not begun is flushed (VI Architecture 1.0).
        if why == fault::TRANSPORT {
            for flight in &connection.flights {
                if let Cargo::Work(work) = flight.cargo {
                    self.send.end_with(work, Status::TRANSPORT, 0);
                }
            }
        }
        self.grave = Some(Grave { path, key, peer_vi, peer_key, fault: why });
        self.state = ViState::Error;
        self.flush(number, desk);
        desk.counters.broken += 1;
        desk.event(Event::ConnectionLost { vi: number, fault: why });
    }

    pub(super) fn flush(&mut self, number: u32, desk: &mut Desk) {
        self.send.flush(Status::FLUSHED);
        self.receive.flush(Status::FLUSHED);
        self.tell_done(number, desk);
    }

    pub(super) fn on_path_gone(&mut self, number: u32, path: u32, desk: &mut Desk) {
        if self.path() == Some(path) {
            self.break_off(number, fault::TRANSPORT, false, desk);
        }
        if self.setup.as_ref().is_some_and(|setup| setup.path == path) {
            self.give_up(super::ConnectError::Unreachable, desk);
        }
    }

    /// Pays an acknowledgement that waited for the host's answer. A path that loses nothing can wait for longer: an
    /// answer will carry it, or the window will ask.
    pub(super) fn pay(&mut self, number: u32, desk: &mut Desk) {
        if let Some(connection) = &mut self.connection
            && connection.owed > 0
            && !connection.traits.loses_nothing
        {
            connection.owes_now = true;
            desk.ready.push(number);
        }
    }

    pub(super) fn advance(&mut self, number: u32, config: &Config, desk: &mut Desk, now: Instant) {
        self.advance_setup(number, config, desk, now);
        self.advance_connection(number, config, desk, now);
    }
}
