//! A stream: the MPA layer of one connection, between a queue pair of the core and any byte stream.
//!
//! Purpose          the same code runs on the operating system's sockets and on kiban's own TCP, in real and
//!                  in virtual time.
//! State            first, the two ends exchange start frames. Then the queue pair is connected with the
//!                  agreed traits, and segments flow until the stream ends.
//! Transmit path    [`Stream::fill`] builds a burst of frames when the previous one has been sent;
//!                  [`Stream::chunks`] returns its bytes, some of which are in the host's own memory. One
//!                  gathering write sends a burst.
//! Receive path     [`Stream::arrive`] takes received bytes. For a long frame without a CRC, the header is
//!                  validated as soon as it is complete, and [`Stream::placement_buffers`] returns the
//!                  memory for the next bytes of the byte stream, so that a socket stores them there
//!                  directly. Short frames, and all frames with a CRC, are copied once, when they are
//!                  complete and correct. [`Stream::frame_remainder`] provides the buffer into which the
//!                  socket reads the remainder of such a frame if it is long.
//! Limits           a stream holds at most one incomplete frame (64 KiB), and nothing between frames.
//!                  Streams share the buffers for bursts and for frames: the core keeps one spare of each
//!                  for the next stream that needs it. A stream with a message that waits for a receive also
//!                  holds the bytes that were read after that message.
//! Not implemented  timers: the driver gives up connections whose peers do not complete the start frames
//!                  ([`Stream::is_starting`]).

use super::mpa::{
    self, Agreed, Answer, Deframer, Front, Initiator, MarkerInserter, Responder, Rtr, SetupFault, Trailer,
};
use crate::rnic::{
    Data, Operation, Payload, Placement, PlacementBuffers, Rnic, SegmentResult, SendWork, StreamAction,
    StreamTraits, TaggedAddress, ToLlp, Validation,
};
use crate::wire::ddp::{self, Header, Placing};
use crate::wire::rdmap::{Opcode, Reason};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;
use core::ops::Range;
use kiban_base::{Region, SharedBytes};

/// Minimum payload of a frame, in bytes, that is stored in the host's memory directly instead of through a
/// buffer.
pub const DIRECT_PLACEMENT_BYTES_MIN: usize = 16 * 1024;
/// Maximum payload, in bytes, that is copied next to its header rather than passed to the lower layer by
/// reference.
pub const COPY_BYTES_MAX: usize = 1024;
/// Read-ahead, in bytes, while long payloads are expected: enough for trailers, headers and short frames,
/// but not for the next payload.
const AHEAD_BYTES: usize = 256;
/// Number of consecutive short frames after which long ones are no longer expected.
const SHORT_FRAMES: u8 = 4;
/// Number of bytes at which a burst ends.
pub const BURST_BYTES: usize = 256 * 1024;
/// Number of parts at which a burst ends. Operating systems accept 1024 in one call.
const BURST_PARTS: usize = 512;
/// Maximum buffer capacity, in bytes, that a stream keeps while it has nothing to send; a larger buffer is
/// passed to the next stream.
const IDLE_BYTES_MAX: usize = 4096;

/// Target of zero-length Writes and Reads. The tag is not zero because some peers reject a zero tag even if
/// no bytes are transferred.
const NOWHERE: TaggedAddress = TaggedAddress { stag: 1, offset: 0 };

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

/// Bytes to be sent, in order.
#[derive(Clone, Copy, Debug)]
pub enum Chunk<'a> {
    /// Bytes in the stream's own buffer.
    Own(&'a [u8]),
    /// Bytes in the host's memory.
    Memory(&'a Region),
}

#[derive(Debug)]
enum OutgoingPiece {
    Own(Range<usize>),
    Memory(Region),
}

/// The TO-LLP FIFO: a burst of frames.
#[derive(Debug)]
struct Outgoing {
    own: Vec<u8>,
    pieces: VecDeque<OutgoingPiece>,
    /// Start of the bytes in `own` that are not in `pieces` yet.
    open: usize,
    bytes: usize,
    crc: bool,
    weaver: Option<MarkerInserter>,
    frame_bytes: usize,
    /// Number of the core's segments that will have been sent once this burst has been sent.
    segments: u64,
}

impl Outgoing {
    fn new() -> Outgoing {
        Outgoing {
            own: Vec::new(),
            pieces: VecDeque::new(),
            open: 0,
            bytes: 0,
            crc: false,
            weaver: None,
            frame_bytes: mpa::ulpdu_bytes_max(usize::MAX, false),
            segments: 0,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.own.extend_from_slice(bytes);
        self.bytes += bytes.len();
    }

    /// Makes a piece of the bytes that were appended to `own` after the last piece.
    fn close(&mut self) {
        if self.open < self.own.len() {
            self.pieces.push_back(OutgoingPiece::Own(self.open..self.own.len()));
            self.open = self.own.len();
        }
    }
}

impl ToLlp for Outgoing {
    #[inline]
    fn segment_bytes(&self) -> usize {
        self.frame_bytes
    }

    #[inline]
    fn segment(&mut self, header: &[u8], payload: Payload<'_>) {
        let length = payload.len();
        if self.crc || self.weaver.is_some() || length <= COPY_BYTES_MAX {
            let before = self.own.len();
            let start = mpa::begin(&mut self.own, header.len() + length);
            self.own.extend_from_slice(header);
            payload.append_to(&mut self.own);
            mpa::end(&mut self.own, start, self.crc);
            if let Some(weaver) = &mut self.weaver {
                let frame = self.own.split_off(before);
                weaver.insert_markers(&frame, self.crc, &mut self.own);
            }
            self.bytes += self.own.len() - before;
            return;
        }
        self.push(&mpa::length_field(header.len() + length));
        self.push(header);
        match payload {
            Payload::Bytes(bytes) => self.push(bytes),
            Payload::Pieces(pieces) => {
                self.close();
                for piece in pieces {
                    self.pieces.push_back(OutgoingPiece::Memory(piece.region()));
                }
                self.bytes += length;
            }
        }
        self.push(Trailer::plain(header.len() + length).as_slice());
    }
}

#[derive(Debug)]
enum Phase {
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
    phase: Phase,
    qp: Option<u32>,
    out: Outgoing,
    /// Buffer whose first `partial_bytes` bytes are the beginning of an incomplete frame.
    partial_frame: Vec<u8>,
    partial_bytes: usize,
    /// The length that `partial_bytes` must reach before the frame is processed.
    wanted: usize,
    /// A long frame whose payload is being received, and its trailer's length.
    landing: Option<(Placement, usize)>,
    /// Bytes of a trailer still to be received.
    trailer: usize,
    /// A counter that each long frame resets and each short one decrements. While it is above zero, long
    /// frames are expected.
    long_frames: u8,
    /// A segment that waits for a receive.
    stalled: Option<Vec<u8>>,
    /// Bytes received after the stalled segment, and how many of them have been processed.
    behind: (Vec<u8>, usize),
    event: Option<StreamEvent>,
    /// The peer broke a rule: all further input is ignored.
    ignores_input: bool,
    /// Whether anything was received after the start frames.
    has_received: bool,
    /// The action after a final reply or a fault.
    final_action: StreamAction,
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

    fn send_final_reply(&mut self, reply: &[u8]) {
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
    fn bind(&mut self, rnic: &mut Rnic, agreed: &Agreed, initiates: bool) -> bool {
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

    fn fail(&mut self) {
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

    // ---- receive path

    /// Takes received bytes, each once.
    pub fn arrive(&mut self, rnic: &mut Rnic, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = match &mut self.phase {
                Phase::Up { .. } => self.take_bytes(rnic, bytes),
                Phase::Initiating(initiator) => match initiator.take(bytes) {
                    Ok(Answer::NeedMore) => return,
                    Ok(Answer::Agreed(agreed)) => {
                        if !self.bind(rnic, &agreed, true) {
                            self.event = Some(StreamEvent::Lost);
                            return;
                        }
                        self.event = Some(StreamEvent::Connected { private_data: agreed.private_data });
                        agreed.consumed
                    }
                    Ok(Answer::Rejected(rejected)) => {
                        self.fail();
                        self.event = Some(StreamEvent::Rejected { private_data: rejected.private_data });
                        return;
                    }
                    Err(fault) => return self.fail_start(fault, &[]),
                },
                Phase::Responding(responder) => match responder.take(bytes) {
                    Ok(None) => return,
                    Ok(Some(request)) => {
                        self.event = Some(StreamEvent::Asked {
                            private_data: request.private_data,
                            depths: (request.ird, request.ord),
                            extensions: request.extensions,
                        });
                        return;
                    }
                    Err(refused) => return self.fail_start(refused.fault, &refused.reply),
                },
                Phase::Over => return,
            };
            bytes = &bytes[taken..];
        }
    }

    fn fail_start(&mut self, fault: SetupFault, reply: &[u8]) {
        self.send_final_reply(reply);
        self.event = Some(StreamEvent::Failed(fault));
    }

    /// Processes bytes from an established stream. Returns how many were consumed.
    fn take_bytes(&mut self, rnic: &mut Rnic, bytes: &[u8]) -> usize {
        self.has_received = true;
        let Some(qp) = self.qp.filter(|_| !self.ignores_input) else { return bytes.len() };
        if self.stalled.is_some() {
            self.behind.0.extend_from_slice(bytes);
            return bytes.len();
        }
        if let Some((placement, _)) = &mut self.landing {
            let count = placement.missing().min(bytes.len());
            if rnic.place(qp, placement, SharedBytes::from(&bytes[..count])).is_err() {
                self.ignores_input = true;
            } else {
                self.finish_landing(rnic, qp);
            }
            return count;
        }
        if self.trailer > 0 {
            let count = self.trailer.min(bytes.len());
            self.trailer -= count;
            return count;
        }
        if self.partial_bytes == 0 {
            let used = self.take_run(rnic, qp, bytes);
            self.keep(rnic, &bytes[used..]);
            return bytes.len();
        }
        let count = self.wanted.saturating_sub(self.partial_bytes).min(bytes.len());
        self.hold(rnic, &bytes[..count]);
        self.take_held(rnic, qp);
        count
    }

    /// Keeps bytes that were not consumed: the beginning of a frame, or bytes after a message that waits for
    /// a receive.
    fn keep(&mut self, rnic: &mut Rnic, rest: &[u8]) {
        match self.stalled {
            None => self.hold(rnic, rest),
            Some(_) => self.behind = (rest.to_vec(), 0),
        }
    }

    /// Holds bytes of an incomplete frame. The buffer grows with the bytes received, not with the length that
    /// the peer announces.
    fn hold(&mut self, rnic: &mut Rnic, bytes: &[u8]) {
        let end = self.partial_bytes + bytes.len();
        if end > 0 && self.partial_frame.is_empty() {
            self.partial_frame = mem::take(&mut rnic.spare[FRAME]);
        }
        if end > self.partial_frame.len() {
            self.partial_frame.resize(end, 0);
        }
        self.partial_frame[self.partial_bytes..end].copy_from_slice(bytes);
        self.partial_bytes = end;
    }

    /// Processes the held bytes if there are enough.
    fn take_held(&mut self, rnic: &mut Rnic, qp: u32) {
        if self.partial_bytes < self.wanted {
            return;
        }
        let (mut held, whole) = (mem::take(&mut self.partial_frame), mem::take(&mut self.partial_bytes));
        let used = self.take_run(rnic, qp, &held[..whole]);
        if used < whole && self.stalled.is_some() {
            self.behind = (held[used..whole].to_vec(), 0);
            put_by(&mut rnic.spare[FRAME], &mut held);
        } else if used < whole {
            held.copy_within(used..whole, 0);
            (self.partial_frame, self.partial_bytes) = (held, whole - used);
        } else {
            put_by(&mut rnic.spare[FRAME], &mut held);
        }
    }

    /// Processes the frames in `run`. Returns how many bytes were consumed. The rest is either the beginning
    /// of a frame, which must be held until there are `wanted` bytes, or the bytes after a message that waits
    /// for a receive.
    fn take_run(&mut self, rnic: &mut Rnic, qp: u32, run: &[u8]) -> usize {
        let mut used = 0;
        let Phase::Up { deframer, rtr } = &mut self.phase else { return run.len() };
        while !self.ignores_input && used < run.len() {
            let rest = &run[used..];
            match deframer.front(rest) {
                Err(fault) => {
                    let reason = match fault {
                        mpa::Fault::Crc => Reason::MPA_CRC,
                        mpa::Fault::Marker => Reason::MPA_LENGTH,
                    };
                    rnic.stream_fault(qp, reason);
                    self.ignores_input = true;
                }
                Ok(Front::NeedMore(wanted)) => {
                    if wanted >= DIRECT_PLACEMENT_BYTES_MIN {
                        self.long_frames = SHORT_FRAMES;
                    }
                    self.wanted = wanted;
                    return used;
                }
                // The empty ready-to-receive message: the responder may send.
                Ok(Front::Whole { ulpdu: [], taken }) if *rtr == Some(Rtr::Empty) => {
                    rnic.may_send(qp);
                    (*rtr, used) = (None, used + taken);
                }
                Ok(Front::Whole { ulpdu, taken }) => {
                    used += taken;
                    self.long_frames = match ulpdu.len() < DIRECT_PLACEMENT_BYTES_MIN {
                        true => self.long_frames.saturating_sub(1),
                        false => SHORT_FRAMES,
                    };
                    match rnic.take(qp, ulpdu) {
                        SegmentResult::Whole => {}
                        SegmentResult::Dry => {
                            self.stalled = Some(ulpdu.to_vec());
                            return used;
                        }
                        SegmentResult::Fault => self.ignores_input = true,
                    }
                }
                Ok(Front::Part { length, .. }) if length < DIRECT_PLACEMENT_BYTES_MIN => {
                    self.wanted = mpa::fpdu_bytes(length);
                    return used;
                }
                Ok(Front::Part { ulpdu, length }) => match rnic.validate(qp, ulpdu, length) {
                    Ok(Validation::NeedMore(more)) => {
                        self.wanted = mpa::length_field(length).len() + more;
                        return used;
                    }
                    Ok(Validation::Dry) => {
                        self.wanted = mpa::fpdu_bytes(length);
                        return used;
                    }
                    Ok(Validation::Done) => {
                        let trailer = mpa::trailer_bytes(length);
                        used += mpa::fpdu_bytes(length) - trailer;
                        // Skip the part of the trailer that has arrived; the rest is skipped later.
                        let here = trailer.min(run.len() - used);
                        (self.trailer, used) = (trailer - here, used + here);
                    }
                    Ok(Validation::Place(mut placement)) => {
                        self.long_frames = SHORT_FRAMES;
                        let here = &ulpdu[placement.header_bytes()..];
                        used += mpa::length_field(length).len() + ulpdu.len();
                        if rnic.place(qp, &mut placement, SharedBytes::from(here)).is_err() {
                            self.ignores_input = true;
                        } else {
                            self.landing = Some((placement, mpa::trailer_bytes(length)));
                            self.finish_landing(rnic, qp);
                        }
                        // The next bytes are the rest of the payload or its trailer, not a frame; skip the
                        // part of the trailer that has arrived.
                        let here = self.trailer.min(run.len() - used);
                        self.trailer -= here;
                        return if self.ignores_input { run.len() } else { used + here };
                    }
                    Err(_) => self.ignores_input = true,
                },
            }
        }
        if self.ignores_input { run.len() } else { used }
    }

    fn finish_landing(&mut self, rnic: &mut Rnic, qp: u32) {
        if let Some((placement, trailer)) = self.landing.take_if(|(placement, _)| placement.missing() == 0) {
            self.trailer = trailer;
            self.ignores_input |= rnic.deliver(qp, &placement).is_err();
        }
    }

    /// Returns how many bytes to read at once, given room for `most`. The number is small while long
    /// payloads are expected, because a payload that is read together with other data must be copied.
    pub fn read_ahead(&self, most: usize) -> usize {
        if self.long_frames > 0 { most.min(AHEAD_BYTES) } else { most }
    }

    /// Returns whether more bytes should be read. While a message waits for a receive, they should not.
    pub fn wants_bytes(&self) -> bool {
        self.stalled.is_none()
    }

    /// Continues with the message that waited for a receive, after one was posted (`Rnic::resumed`).
    pub fn resume(&mut self, rnic: &mut Rnic) {
        let (Some(qp), Some(segment)) = (self.qp, self.stalled.take()) else { return };
        match rnic.take(qp, &segment) {
            SegmentResult::Dry => {
                self.stalled = Some(segment);
                return;
            }
            SegmentResult::Fault => self.ignores_input = true,
            SegmentResult::Whole => {}
        }
        // The bytes are processed in place, so that many short messages do not copy the buffer once each.
        let (behind, at) = mem::take(&mut self.behind);
        let used = at + self.take_run(rnic, qp, &behind[at..]);
        match self.stalled {
            Some(_) => self.behind = (behind, used),
            None => self.hold(rnic, behind.get(used..).unwrap_or(&[])),
        }
    }

    /// If the next bytes of the byte stream belong to a long payload, finds the memory for them and returns
    /// their number. Report the number of bytes that arrived with [`Stream::on_placed`] before any other
    /// call.
    pub fn placement_buffers(&mut self, rnic: &mut Rnic, places: &mut PlacementBuffers) -> usize {
        places.clear();
        let (Some(qp), Some((placement, _)), false) = (self.qp, &self.landing, self.ignores_input) else {
            return 0;
        };
        if rnic.placement_buffers(qp, placement, places).is_err() {
            self.ignores_input = true;
            places.clear();
        }
        places.iter().map(Region::len).sum()
    }

    /// Records that `bytes` bytes were stored in the memory from [`Stream::placement_buffers`].
    pub fn on_placed(&mut self, rnic: &mut Rnic, bytes: usize) {
        if let (Some(qp), Some((placement, _))) = (self.qp, &mut self.landing) {
            rnic.on_placed(qp, placement, bytes);
            self.finish_landing(rnic, qp);
        }
    }

    /// Returns the buffer for the remainder of a long frame that must be complete before it is processed;
    /// empty if there is none. Report the number of bytes that arrived with
    /// [`Stream::on_remainder_received`] before any other call.
    pub fn frame_remainder(&mut self) -> &mut [u8] {
        let up = matches!(self.phase, Phase::Up { .. }) && !self.ignores_input && self.stalled.is_none();
        let between = self.landing.is_none() && self.trailer == 0;
        if !(up && between)
            || self.partial_bytes == 0
            || self.wanted < self.partial_bytes + DIRECT_PLACEMENT_BYTES_MIN
        {
            return &mut [];
        }
        // The buffer is zeroed once, and then reused for later frames.
        if self.partial_frame.len() < self.wanted {
            self.partial_frame.resize(self.wanted, 0);
        }
        &mut self.partial_frame[self.partial_bytes..self.wanted]
    }

    /// Records that `bytes` bytes were stored in the buffer from [`Stream::frame_remainder`].
    pub fn on_remainder_received(&mut self, rnic: &mut Rnic, bytes: usize) {
        if let Some(qp) = self.qp {
            self.partial_bytes = self.wanted.min(self.partial_bytes + bytes);
            self.take_held(rnic, qp);
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

    // ---- transmit path

    /// Builds the next burst if the previous one has been sent. Returns whether there is something to send.
    pub fn fill(&mut self, rnic: &mut Rnic) -> bool {
        if self.out.bytes > 0 {
            return true;
        }
        let (Some(qp), Phase::Up { .. }) = (self.qp, &self.phase) else { return false };
        if self.out.own.capacity() == 0 {
            self.out.own = mem::take(&mut rnic.spare[BURST]);
        }
        while self.out.bytes < BURST_BYTES && self.out.pieces.len() < BURST_PARTS {
            if !rnic.next_segment(qp, &mut self.out) {
                break;
            }
        }
        self.out.close();
        self.out.segments = rnic.segments_made(qp);
        if self.out.bytes == 0 && self.out.own.capacity() > IDLE_BYTES_MAX {
            put_by(&mut rnic.spare[BURST], &mut self.out.own);
        }
        self.out.bytes > 0
    }

    /// Sends a zero-length Write to a peer from which nothing has arrived yet. Linux's soft-iWARP gets no
    /// notification of bytes that arrive after its reply but before it takes over the socket (`siw_accept`,
    /// 6.1), and processes them only when more bytes arrive. The Write has no other effect than to trigger
    /// that processing. Returns whether another nudge may be needed.
    pub fn nudge(&mut self, rnic: &mut Rnic) -> bool {
        if self.has_received
            || self.final_action != StreamAction::Open
            || !matches!(self.phase, Phase::Up { .. })
        {
            return false;
        }
        // A peer that acknowledges messages is another kiban NIC, which does not miss data.
        if self.qp.is_some_and(|qp| rnic.acknowledges(qp)) {
            return false;
        }
        // A nudge must not split a message (RFC 5041 §5.2). If no segment is left to build, all messages are
        // complete.
        if !self.fill(rnic) && self.out.segments > 0 {
            let mut header = [0; ddp::TAGGED_BYTES];
            let placing = Placing::Tagged { stag: NOWHERE.stag, offset: NOWHERE.offset };
            Header { last: true, ulp: Opcode::Write.octet(), placing }.write(&mut header);
            self.out.segment(&header, Payload::Bytes(&[]));
            self.out.close();
        }
        true
    }

    /// Returns the unsent bytes of the burst.
    pub fn chunks(&self) -> impl Iterator<Item = Chunk<'_>> {
        self.out.pieces.iter().map(|piece| match piece {
            OutgoingPiece::Own(range) => Chunk::Own(&self.out.own[range.clone()]),
            OutgoingPiece::Memory(region) => Chunk::Memory(region),
        })
    }

    /// Returns the number of unsent bytes of the burst.
    pub fn unsent_bytes(&self) -> usize {
        self.out.bytes
    }

    /// Records that `bytes` bytes of the burst were sent. Work completes when its whole burst is sent.
    pub fn advance(&mut self, rnic: &mut Rnic, mut bytes: usize) {
        let out = &mut self.out;
        out.bytes -= bytes;
        while let Some(piece) = out.pieces.front_mut() {
            let length = match piece {
                OutgoingPiece::Own(range) => range.len(),
                OutgoingPiece::Memory(region) => region.len(),
            };
            if bytes < length {
                match piece {
                    OutgoingPiece::Own(range) => range.start += bytes,
                    OutgoingPiece::Memory(region) => {
                        let at = region.address() + bytes as u64;
                        *region = region.part(at, length - bytes).expect("the rest lies within the whole");
                    }
                }
                return;
            }
            bytes -= length;
            out.pieces.pop_front();
        }
        out.own.clear();
        out.open = 0;
        if let Some(qp) = self.qp {
            rnic.confirm(qp, out.segments);
        }
    }

    /// Copies unsent bytes out of memory that is about to be invalidated or deregistered, so that the burst
    /// no longer refers to it.
    pub fn release_memory(&mut self, memory: &Region) {
        let out = &mut self.out;
        for piece in &mut out.pieces {
            if let OutgoingPiece::Memory(region) = piece
                && region.overlaps(memory)
            {
                let at = out.own.len();
                if let Some(bytes) = region.bytes(region.address(), region.len()) {
                    bytes.append_to(&mut out.own);
                }
                *piece = OutgoingPiece::Own(at..out.own.len());
            }
        }
        out.open = out.own.len();
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
const BURST: usize = 0;
const FRAME: usize = 1;

/// Keeps the larger of the two unused buffers as the spare for the next stream.
fn put_by(spare: &mut Vec<u8>, room: &mut Vec<u8>) {
    let room = mem::take(room);
    if room.capacity() > spare.capacity() {
        *spare = room;
    }
}
