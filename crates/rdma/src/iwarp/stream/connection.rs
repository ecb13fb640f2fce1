//! One connection: setup, and its end.

use super::outgoing::Outgoing;
use crate::iwarp::mpa::{self, Agreed, Deframer, Initiator, MarkerInserter, Responder, Rtr, SetupFault};
use crate::rnic::{Data, Operation, Placement, Rnic, SendWork, StreamAction, StreamTraits, TaggedAddress};
use alloc::vec::Vec;
use core::mem;

/// Target of zero-length Writes and Reads. The tag is not zero because some peers reject a zero tag even if
/// no bytes are transferred.
pub(super) const NOWHERE: TaggedAddress = TaggedAddress { stag: 1, offset: 0 };

/// Stream events for the connection manager.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StreamEvent {
    /// A peer requests a connection: answer with [`Stream::accept`] or [`Stream::reject`].
    Asked {
        /// The peer's private data.
        private_data: Vec<u8>,
        /// The maximum number of reads that the peer wants to have outstanding, and the maximum that it
        /// accepts.
        depths: (u16, u16),
        /// Whether the peer supports RFC 7306.
        extensions: bool,
    },
    /// The peer accepted.
    Connected {
        /// The peer's private data.
        private_data: Vec<u8>,
    },
    /// The peer rejected.
    Rejected {
        /// The peer's private data.
        private_data: Vec<u8>,
    },
    /// The peer's start frame breaks a rule.
    Failed(SetupFault),
    /// The queue pair can no longer be connected.
    Lost,
}

#[derive(Debug)]
pub(super) enum Phase {
    Initiating(Initiator),
    Responding(Responder),
    /// Connected to its queue pair.
    Up {
        deframer: Deframer,
        rtr: Option<Rtr>,
    },
    /// Received bytes are ignored.
    Over,
}

/// One connection.
#[derive(Debug)]
pub struct Stream {
    pub(super) phase: Phase,
    pub(super) qp: Option<u32>,
    pub(super) out: Outgoing,
    /// Buffer whose first `partial_bytes` bytes are the beginning of an incomplete frame.
    pub(super) partial_frame: Vec<u8>,
    pub(super) partial_bytes: usize,
    /// The length that `partial_bytes` must reach before the frame is processed.
    pub(super) wanted: usize,
    /// A long frame whose payload is being received, and its trailer's length.
    pub(super) landing: Option<(Placement, usize)>,
    /// Bytes of a trailer still to be received.
    pub(super) trailer: usize,
    /// A counter that each long frame resets and each short one decrements. While it is above zero, long
    /// frames are expected.
    pub(super) long_frames: u8,
    /// A segment that waits for a receive.
    pub(super) stalled: Option<Vec<u8>>,
    /// Bytes received after the stalled segment, and how many of them have been processed.
    pub(super) behind: (Vec<u8>, usize),
    pub(super) event: Option<StreamEvent>,
    /// The peer broke a rule: all further input is ignored.
    pub(super) ignores_input: bool,
    /// Whether anything was received after the start frames.
    pub(super) has_received: bool,
    /// The action after a final reply or a fault.
    pub(super) final_action: StreamAction,
}

impl Stream {
    fn new(phase: Phase, qp: Option<u32>) -> Stream {
        Stream {
            phase,
            qp,
            out: Outgoing::new(),
            partial_frame: Vec::new(),
            partial_bytes: 0,
            wanted: 0,
            landing: None,
            trailer: 0,
            long_frames: 0,
            stalled: None,
            behind: (Vec::new(), 0),
            event: None,
            ignores_input: false,
            has_received: false,
            final_action: StreamAction::Open,
        }
    }

    /// Creates the initiator's side, for a queue pair.
    ///
    /// # Errors
    /// The private data is too long.
    pub fn initiate(
        config: &mpa::Config,
        qp: u32,
        (ird, ord): (u16, u16),
        private_data: &[u8],
    ) -> Result<Stream, mpa::PrivateDataTooLong> {
        let initiator = Initiator::new(config, ird, ord, private_data)?;
        let request = initiator.request().to_vec();
        let mut stream = Stream::new(Phase::Initiating(initiator), Some(qp));
        stream.out.push(&request);
        stream.out.close();
        Ok(stream)
    }

    /// Creates the responder's side.
    pub fn respond(config: &mpa::Config) -> Stream {
        Stream::new(Phase::Responding(Responder::new(config)), None)
    }

    /// Accepts the request for a queue pair that is not connected. (`ird`, `ord`) are the maximum numbers of
    /// outstanding reads from the peer and to the peer. Returns whether the queue pair is now connected.
    ///
    /// # Errors
    /// The private data is too long.
    pub fn accept(
        &mut self,
        rnic: &mut Rnic,
        qp: u32,
        (ird, ord): (u16, u16),
        private_data: &[u8],
    ) -> Result<bool, mpa::PrivateDataTooLong> {
        let Phase::Responding(responder) = &self.phase else { return Ok(false) };
        let (reply, agreed) = responder.accept(private_data, ird, ord)?;
        self.qp = Some(qp);
        self.out.push(&reply);
        self.out.close();
        Ok(self.bind(rnic, &agreed, false))
    }

    /// Returns whether the peer's request waits for an answer.
    pub fn awaits_answer(&self) -> bool {
        matches!(self.phase, Phase::Responding(_))
    }

    /// Returns whether a responder has agreed to wait for the initiator's ready-to-receive message before it
    /// sends.
    pub fn waits_for_rtr(&self) -> bool {
        matches!(self.phase, Phase::Up { rtr: Some(_), .. })
    }

    /// Rejects the request. The stream ends once the reply is sent.
    ///
    /// # Errors
    /// The private data is too long.
    pub fn reject(&mut self, private_data: &[u8]) -> Result<(), mpa::PrivateDataTooLong> {
        let Phase::Responding(responder) = &self.phase else { return Ok(()) };
        let reply = responder.reject(private_data)?;
        self.send_final_reply(&reply);
        Ok(())
    }

    pub(super) fn send_final_reply(&mut self, reply: &[u8]) {
        self.out.push(reply);
        self.out.close();
        self.phase = Phase::Over;
        self.final_action = StreamAction::Finish;
    }

    /// Returns the pending event for the connection manager.
    pub fn poll(&mut self) -> Option<StreamEvent> {
        self.event.take()
    }

    /// Returns whether the start frames are still being exchanged.
    pub fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::Initiating(_) | Phase::Responding(_))
    }

    /// Connects the queue pair with the agreed traits.
    pub(super) fn bind(&mut self, rnic: &mut Rnic, agreed: &Agreed, initiates: bool) -> bool {
        let Some(qp) = self.qp else { return false };
        let Agreed { crc, markers_in, markers_out, ird, ord, rtr, extensions, .. } = *agreed;
        // If the ready-to-receive message is a zero-length read, it needs an ORD of at least one.
        let ord = if initiates && rtr == Some(Rtr::Read) { ord.max(1) } else { ord };
        let traits = StreamTraits { ird, ord, extensions, kiban: extensions, may_send: initiates };
        if rnic.connect(qp, traits).is_err() {
            // The queue pair no longer exists, or another stream uses it.
            self.fail();
            return false;
        }
        self.out.crc = crc;
        self.out.weaver = markers_out.then(MarkerInserter::new);
        self.out.frame_bytes = mpa::ulpdu_bytes_max(usize::MAX, markers_out);
        self.phase = Phase::Up { deframer: Deframer::new(crc, markers_in), rtr };
        if initiates && let Some(rtr) = rtr {
            self.ready_to_receive(rnic, qp, rtr);
        }
        true
    }

    /// Sends the ready-to-receive message, after which the responder may send (RFC 6581 §9).
    fn ready_to_receive(&mut self, rnic: &mut Rnic, qp: u32, rtr: Rtr) {
        let nothing = |operation| SendWork::new(0, operation, Data::none());
        let posted = match rtr {
            Rtr::Empty => {
                let start = mpa::begin(&mut self.out.own, 0);
                mpa::end(&mut self.out.own, start, self.out.crc);
                self.out.bytes += self.out.own.len() - start;
                self.out.close();
                Ok(())
            }
            Rtr::Write => rnic.post_quietly(qp, nothing(Operation::write(NOWHERE))),
            Rtr::Read => rnic.post_quietly(qp, nothing(Operation::read(NOWHERE))),
        };
        if posted.is_err() {
            self.fail();
        }
    }

    pub(super) fn fail(&mut self) {
        self.phase = Phase::Over;
        self.final_action = StreamAction::Abort;
    }

    /// Detaches a queue pair that was reset: the byte stream ends.
    pub fn detach(&mut self) {
        self.qp = None;
        self.fail();
    }

    /// Aborts the stream if the start frames were not exchanged in time. A stream with a final reply to send
    /// still closes gracefully.
    pub fn give_up(&mut self) {
        if self.is_starting() {
            self.fail();
        }
    }

    /// Handles the end of the byte stream. `in_order` says whether the close was orderly.
    pub fn on_closed(&mut self, rnic: &mut Rnic, in_order: bool) {
        let between_frames = self.partial_bytes == 0 && self.landing.is_none() && self.trailer == 0;
        if let (Some(qp), Phase::Up { .. }) = (self.qp, &self.phase) {
            rnic.on_stream_closed(
                qp,
                in_order && (between_frames || self.ignores_input) && self.stalled.is_none(),
            );
        }
        self.fail();
    }

    /// Returns what the byte stream must do after the burst has been sent.
    pub fn action(&self, rnic: &Rnic) -> StreamAction {
        match (self.final_action, self.qp, &self.phase) {
            (StreamAction::Open, Some(qp), Phase::Up { .. }) => rnic.stream_action(qp),
            (ends, ..) => ends,
        }
    }
}

/// Indices in `Rnic::spare` of the spare buffers for a burst and for an incomplete frame.
pub(super) const BURST: usize = 0;
pub(super) const FRAME: usize = 1;

/// Keeps the larger of the two unused buffers as the spare for the next stream.
pub(super) fn put_by(spare: &mut Vec<u8>, room: &mut Vec<u8>) {
    let room = mem::take(room);
    if room.capacity() > spare.capacity() {
        *spare = room;
    }
}
