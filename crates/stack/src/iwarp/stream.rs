//! A stream: one connection's MPA, between a queue pair of the core and a byte stream of anybody's.
//!
//! Goal      the same code on the operating system's sockets, on kiban's own TCP, in real and in virtual time.
//! Life      the start frames are exchanged, a queue pair is bound to what was agreed, segments flow, it ends.
//! Down      [`Stream::fill`] gathers a burst of frames when the one before has left; [`Stream::chunks`] are its bytes, some
//!           of them the host's memory itself. One gathering write a burst.
//! Up        [`Stream::receive`] takes bytes as they come. Of a long frame without CRC, the header is judged when it is
//!           here, and [`Stream::landing`] says where the next bytes of the byte stream go, so that a socket puts them
//!           there. Short frames, and all with a CRC, are placed by one copy when they are whole and right;
//!           [`Stream::rest`] takes the rest of a long one from the socket.
//! Limits    what is held of a frame that is not whole: one frame (64 KiB) a stream, nothing between frames. The room of a
//!           burst and of a frame is lent from stream to stream: one of each is kept by the core. A stream whose message
//!           waits for a receive holds what was read with it.
//! Left out  time: whoever drives the stream gives up on peers that do not begin ([`Stream::is_starting`]).

use super::mpa::{
    self, Agreed, Answer, Deframer, Front, Initiator, Responder, Rtr, SetupFault, Trailer, Weaver,
};
use super::rnic::{
    Data, Judged, Operation, Payload, Place, Placement, Places, Rnic, SendWork, StreamTraits, StreamWish,
    Taken, ToLlp,
};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;
use core::ops::Range;
use kiban_ground::{Region, SharedBytes};
use kiban_wire::ddp::{self, Header, Placing};
use kiban_wire::rdmap::{Opcode, Reason};

/// From so many payload bytes on, a frame's payload lands where it belongs instead of in between.
pub const LANDING_BYTES_MIN: usize = 16 * 1024;
/// Up to so many payload bytes are copied beside their header, rather than named to the lower layer.
pub const COPY_BYTES_MAX: usize = 1024;
/// So much is read ahead where long payloads land: trailers, headers and short frames, not the next payload.
const AHEAD_BYTES: usize = 256;
/// So many short frames in a row make a stream of long ones one of short ones.
const SHORT_FRAMES: u8 = 4;
/// A burst ends when it has so many bytes,
pub const BURST_BYTES: usize = 256 * 1024;
/// or so many parts: an operating system takes 1024 at once.
const BURST_PARTS: usize = 512;
/// A stream with nothing to send keeps no more room than this: the rest is for the next stream.
const IDLE_BYTES_MAX: usize = 4096;

/// Where nothing is written to or read from. Zero is a tag that some peers do not like, though no byte goes there.
const NOWHERE: Place = Place { stag: 1, offset: 0 };

/// What a stream tells the connection manager.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// A peer asks to connect: answer with [`Stream::accept`] or [`Stream::reject`].
    Asked {
        /// What it says.
        private_data: Vec<u8>,
        /// Reads that it wants to have under way, and takes, at most.
        depths: (u16, u16),
        /// Whether it knows RFC 7306.
        extensions: bool,
    },
    /// The peer has accepted.
    Connected {
        /// What it says.
        private_data: Vec<u8>,
    },
    /// The peer has refused.
    Rejected {
        /// What it says.
        private_data: Vec<u8>,
    },
    /// The peer's start frame breaks a rule.
    Failed(SetupFault),
    /// The queue pair cannot be connected any more.
    Lost,
}

/// Bytes to be sent, in order.
#[derive(Clone, Copy, Debug)]
pub enum Chunk<'a> {
    /// The stream's own.
    Own(&'a [u8]),
    /// The host's memory.
    Memory(&'a Region),
}

#[derive(Debug)]
enum Part {
    Own(Range<usize>),
    Memory(Region),
}

/// The TO-LLP FIFO: a burst of frames.
#[derive(Debug)]
struct Outgoing {
    own: Vec<u8>,
    parts: VecDeque<Part>,
    /// Where the part of `own` begins that is not in `parts` yet.
    open: usize,
    bytes: usize,
    crc: bool,
    weaver: Option<Weaver>,
    frame_bytes: usize,
    /// How many of the core's segments have left when this burst has.
    segments: u64,
}

impl Outgoing {
    fn new() -> Outgoing {
        Outgoing {
            own: Vec::new(),
            parts: VecDeque::new(),
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

    /// The bytes of its own since the last part become a part.
    fn close(&mut self) {
        if self.open < self.own.len() {
            self.parts.push_back(Part::Own(self.open..self.own.len()));
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
                weaver.weave(&frame, self.crc, &mut self.own);
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
                    self.parts.push_back(Part::Memory(piece.region()));
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
    /// Bound to its queue pair.
    Up {
        deframer: Deframer,
        rtr: Option<Rtr>,
    },
    /// Nothing is taken any more.
    Over,
}

/// One connection.
#[derive(Debug)]
pub struct Stream {
    phase: Phase,
    qp: Option<u32>,
    out: Outgoing,
    /// A frame of which only the front is here: so many bytes of this room.
    held: Vec<u8>,
    held_bytes: usize,
    /// Bytes that `held` will have.
    wanted: usize,
    /// A long frame whose payload is landing, and its trailer.
    landing: Option<(Placement, usize)>,
    /// Bytes of a trailer that are still to come.
    trailer: usize,
    /// Falls with each short frame since the last long one.
    long_frames: u8,
    /// A segment that waits for a receive.
    stalled: Option<Vec<u8>>,
    /// What came behind it, taken up to a place.
    behind: (Vec<u8>, usize),
    news: Option<News>,
    /// The peer broke a rule: nothing more is taken.
    deaf: bool,
    /// Something has come since the start frames.
    heard: bool,
    /// After an answer that ends it, or a fault.
    ends: StreamWish,
}

impl Stream {
    fn new(phase: Phase, qp: Option<u32>) -> Stream {
        Stream {
            phase,
            qp,
            out: Outgoing::new(),
            held: Vec::new(),
            held_bytes: 0,
            wanted: 0,
            landing: None,
            trailer: 0,
            long_frames: 0,
            stalled: None,
            behind: (Vec::new(), 0),
            news: None,
            deaf: false,
            heard: false,
            ends: StreamWish::Open,
        }
    }

    /// The side that connects, for a queue pair.
    ///
    /// # Errors
    /// When the private data is too long.
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

    /// The side that was connected to.
    pub fn respond(config: &mpa::Config) -> Stream {
        Stream::new(Phase::Responding(Responder::new(config)), None)
    }

    /// Accepts what was asked, for a queue pair that is not connected. (`ird`, `ord`): reads of the peer's and of ours
    /// under way at most. Whether the queue pair is connected now.
    ///
    /// # Errors
    /// When the private data is too long.
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

    /// Whether the peer's request waits for an answer.
    pub fn is_asked(&self) -> bool {
        matches!(self.phase, Phase::Responding(_))
    }

    /// Whether a responder has agreed to wait for the initiator's ready-to-receive message, whatever else it knows.
    pub fn waits_for_rtr(&self) -> bool {
        matches!(self.phase, Phase::Up { rtr: Some(_), .. })
    }

    /// Refuses what was asked; the stream ends when that has been said.
    ///
    /// # Errors
    /// When the private data is too long.
    pub fn reject(&mut self, private_data: &[u8]) -> Result<(), mpa::PrivateDataTooLong> {
        let Phase::Responding(responder) = &self.phase else { return Ok(()) };
        let reply = responder.reject(private_data)?;
        self.say_last(&reply);
        Ok(())
    }

    fn say_last(&mut self, reply: &[u8]) {
        self.out.push(reply);
        self.out.close();
        self.phase = Phase::Over;
        self.ends = StreamWish::Finish;
    }

    /// What has happened, for the connection manager.
    pub fn news(&mut self) -> Option<News> {
        self.news.take()
    }

    /// Whether the start frames are not all exchanged.
    pub fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::Initiating(_) | Phase::Responding(_))
    }

    /// The peer's words have bound the queue pair.
    fn bind(&mut self, rnic: &mut Rnic, agreed: &Agreed, initiates: bool) -> bool {
        let Some(qp) = self.qp else { return false };
        let Agreed { crc, markers_in, markers_out, ird, ord, rtr, extensions, .. } = *agreed;
        // A read that says no more than that we are ready takes a place of its own.
        let ord = if initiates && rtr == Some(Rtr::Read) { ord.max(1) } else { ord };
        let traits = StreamTraits { ird, ord, extensions, kiban: extensions, may_send: initiates };
        if rnic.connect(qp, traits).is_err() {
            // The queue pair has gone, or was taken by another stream.
            self.fail();
            return false;
        }
        self.out.crc = crc;
        self.out.weaver = markers_out.then(Weaver::new);
        self.out.frame_bytes = mpa::ulpdu_bytes_max(usize::MAX, markers_out);
        self.phase = Phase::Up { deframer: Deframer::new(crc, markers_in), rtr };
        if initiates && let Some(rtr) = rtr {
            self.ready_to_receive(rnic, qp, rtr);
        }
        true
    }

    /// The initiator's first word lets the responder speak (RFC 6581 §9).
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
        self.ends = StreamWish::Abort;
    }

    /// Its queue pair is as new, and no longer its: the byte stream ends.
    pub fn detach(&mut self) {
        self.qp = None;
        self.fail();
    }

    /// The start frames were not exchanged in time: it ends. One that has said its last word ends in order all the same.
    pub fn give_up(&mut self) {
        if self.is_starting() {
            self.fail();
        }
    }

    // ---- up

    /// Takes bytes of the byte stream, each once.
    pub fn receive(&mut self, rnic: &mut Rnic, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = match &mut self.phase {
                Phase::Up { .. } => self.take_bytes(rnic, bytes),
                Phase::Initiating(initiator) => match initiator.take(bytes) {
                    Ok(Answer::Wants) => return,
                    Ok(Answer::Agreed(agreed)) => {
                        if !self.bind(rnic, &agreed, true) {
                            self.news = Some(News::Lost);
                            return;
                        }
                        self.news = Some(News::Connected { private_data: agreed.private_data });
                        agreed.consumed
                    }
                    Ok(Answer::Rejected(rejected)) => {
                        self.fail();
                        self.news = Some(News::Rejected { private_data: rejected.private_data });
                        return;
                    }
                    Err(fault) => return self.fail_start(fault, &[]),
                },
                Phase::Responding(responder) => match responder.take(bytes) {
                    Ok(None) => return,
                    Ok(Some(asked)) => {
                        self.news = Some(News::Asked {
                            private_data: asked.private_data,
                            depths: (asked.ird, asked.ord),
                            extensions: asked.extensions,
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
        self.say_last(reply);
        self.news = Some(News::Failed(fault));
    }

    /// Takes bytes when the stream is up: how many.
    fn take_bytes(&mut self, rnic: &mut Rnic, bytes: &[u8]) -> usize {
        self.heard = true;
        let Some(qp) = self.qp.filter(|_| !self.deaf) else { return bytes.len() };
        if self.stalled.is_some() {
            self.behind.0.extend_from_slice(bytes);
            return bytes.len();
        }
        if let Some((placement, _)) = &mut self.landing {
            let count = placement.missing().min(bytes.len());
            if rnic.place(qp, placement, SharedBytes::from(&bytes[..count])).is_err() {
                self.deaf = true;
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
        if self.held_bytes == 0 {
            let used = self.take_run(rnic, qp, bytes);
            self.keep(rnic, &bytes[used..]);
            return bytes.len();
        }
        let count = self.wanted.saturating_sub(self.held_bytes).min(bytes.len());
        self.hold(rnic, &bytes[..count]);
        self.take_held(rnic, qp);
        count
    }

    /// Keeps what was not taken: the front of a frame, or what stands behind a message that waits.
    fn keep(&mut self, rnic: &mut Rnic, rest: &[u8]) {
        match self.stalled {
            None => self.hold(rnic, rest),
            Some(_) => self.behind = (rest.to_vec(), 0),
        }
    }

    /// Holds bytes of a frame that is not whole. Room grows with what has come, not with what the peer promises.
    fn hold(&mut self, rnic: &mut Rnic, bytes: &[u8]) {
        let end = self.held_bytes + bytes.len();
        if end > 0 && self.held.is_empty() {
            self.held = mem::take(&mut rnic.spare[FRAME]);
        }
        if end > self.held.len() {
            self.held.resize(end, 0);
        }
        self.held[self.held_bytes..end].copy_from_slice(bytes);
        self.held_bytes = end;
    }

    /// Goes on with what is held, if what was awaited is here.
    fn take_held(&mut self, rnic: &mut Rnic, qp: u32) {
        if self.held_bytes < self.wanted {
            return;
        }
        let (mut held, whole) = (mem::take(&mut self.held), mem::take(&mut self.held_bytes));
        let used = self.take_run(rnic, qp, &held[..whole]);
        if used < whole && self.stalled.is_some() {
            self.behind = (held[used..whole].to_vec(), 0);
            put_by(&mut rnic.spare[FRAME], &mut held);
        } else if used < whole {
            held.copy_within(used..whole, 0);
            (self.held, self.held_bytes) = (held, whole - used);
        } else {
            put_by(&mut rnic.spare[FRAME], &mut held);
        }
    }

    /// Takes the frames in a run of bytes: how many bytes. What is left is the front of a frame that must be held until
    /// `wanted` bytes of it are here, or stands behind a message that waits for a receive.
    fn take_run(&mut self, rnic: &mut Rnic, qp: u32, run: &[u8]) -> usize {
        let mut used = 0;
        let Phase::Up { deframer, rtr } = &mut self.phase else { return run.len() };
        while !self.deaf && used < run.len() {
            let rest = &run[used..];
            match deframer.front(rest) {
                Err(fault) => {
                    let reason = match fault {
                        mpa::Fault::Crc => Reason::MPA_CRC,
                        mpa::Fault::Marker => Reason::MPA_LENGTH,
                    };
                    rnic.stream_fault(qp, reason);
                    self.deaf = true;
                }
                Ok(Front::Wants(wanted)) => {
                    if wanted >= LANDING_BYTES_MIN {
                        self.long_frames = SHORT_FRAMES;
                    }
                    self.wanted = wanted;
                    return used;
                }
                // The initiator is ready, and says no more than that.
                Ok(Front::Whole { ulpdu: [], taken }) if *rtr == Some(Rtr::Empty) => {
                    rnic.may_send(qp);
                    (*rtr, used) = (None, used + taken);
                }
                Ok(Front::Whole { ulpdu, taken }) => {
                    used += taken;
                    self.long_frames = match ulpdu.len() < LANDING_BYTES_MIN {
                        true => self.long_frames.saturating_sub(1),
                        false => SHORT_FRAMES,
                    };
                    match rnic.take(qp, ulpdu) {
                        Taken::Whole => {}
                        Taken::Dry => {
                            self.stalled = Some(ulpdu.to_vec());
                            return used;
                        }
                        Taken::Fault => self.deaf = true,
                    }
                }
                Ok(Front::Part { length, .. }) if length < LANDING_BYTES_MIN => {
                    self.wanted = mpa::fpdu_bytes(length);
                    return used;
                }
                Ok(Front::Part { ulpdu, length }) => match rnic.judge(qp, ulpdu, length) {
                    Ok(Judged::Wants(more)) => {
                        self.wanted = mpa::length_field(length).len() + more;
                        return used;
                    }
                    Ok(Judged::Dry) => {
                        self.wanted = mpa::fpdu_bytes(length);
                        return used;
                    }
                    Ok(Judged::Done) => {
                        let trailer = mpa::trailer_bytes(length);
                        used += mpa::fpdu_bytes(length) - trailer;
                        // What is here of the trailer; the rest is still to come.
                        let here = trailer.min(run.len() - used);
                        (self.trailer, used) = (trailer - here, used + here);
                    }
                    Ok(Judged::Place(mut placement)) => {
                        self.long_frames = SHORT_FRAMES;
                        let here = &ulpdu[placement.header_bytes()..];
                        used += mpa::length_field(length).len() + ulpdu.len();
                        if rnic.place(qp, &mut placement, SharedBytes::from(here)).is_err() {
                            self.deaf = true;
                        } else {
                            self.landing = Some((placement, mpa::trailer_bytes(length)));
                            self.finish_landing(rnic, qp);
                        }
                        // What follows is the payload's rest, or its trailer, some of which may be here: not a frame.
                        let here = self.trailer.min(run.len() - used);
                        self.trailer -= here;
                        return if self.deaf { run.len() } else { used + here };
                    }
                    Err(_) => self.deaf = true,
                },
            }
        }
        if self.deaf { run.len() } else { used }
    }

    fn finish_landing(&mut self, rnic: &mut Rnic, qp: u32) {
        if let Some((placement, trailer)) = self.landing.take_if(|(placement, _)| placement.missing() == 0) {
            self.trailer = trailer;
            self.deaf |= rnic.finish(qp, &placement).is_err();
        }
    }

    /// How many bytes to read at once, of `most` that there is room for: few where long payloads come, which would be copied
    /// if they were read with others.
    pub fn read_ahead(&self, most: usize) -> usize {
        if self.long_frames > 0 { most.min(AHEAD_BYTES) } else { most }
    }

    /// Whether bytes are wanted now: a stream whose message waits for a receive stands still.
    pub fn wants_bytes(&self) -> bool {
        self.stalled.is_none()
    }

    /// A receive was posted (`Rnic::resumed`): the message that waited for it goes on.
    pub fn resume(&mut self, rnic: &mut Rnic) {
        let (Some(qp), Some(segment)) = (self.qp, self.stalled.take()) else { return };
        match rnic.take(qp, &segment) {
            Taken::Dry => {
                self.stalled = Some(segment);
                return;
            }
            Taken::Fault => self.deaf = true,
            Taken::Whole => {}
        }
        // The same bytes serve until all of them are taken: a crowd of short messages is not copied for each of them.
        let (behind, at) = mem::take(&mut self.behind);
        let used = at + self.take_run(rnic, qp, &behind[at..]);
        match self.stalled {
            Some(_) => self.behind = (behind, used),
            None => self.hold(rnic, behind.get(used..).unwrap_or(&[])),
        }
    }

    /// Where the next bytes of the byte stream go, if they are a long payload's: how many they are. Say how many came with
    /// [`Stream::landed`], before any other call.
    pub fn landing(&mut self, rnic: &mut Rnic, places: &mut Places) -> usize {
        places.clear();
        let (Some(qp), Some((placement, _)), false) = (self.qp, &self.landing, self.deaf) else { return 0 };
        if rnic.landing(qp, placement, places).is_err() {
            self.deaf = true;
            places.clear();
        }
        places.iter().map(Region::len).sum()
    }

    /// So many bytes were put where [`Stream::landing`] said.
    pub fn landed(&mut self, rnic: &mut Rnic, bytes: usize) {
        if let (Some(qp), Some((placement, _))) = (self.qp, &mut self.landing) {
            rnic.landed(qp, placement, bytes);
            self.finish_landing(rnic, qp);
        }
    }

    /// Where the rest of a long frame goes that has to be whole before it is looked at; empty if none is awaited. Say how
    /// many bytes came with [`Stream::rest_came`], before any other call.
    pub fn rest(&mut self) -> &mut [u8] {
        let up = matches!(self.phase, Phase::Up { .. }) && !self.deaf && self.stalled.is_none();
        let between = self.landing.is_none() && self.trailer == 0;
        if !(up && between) || self.held_bytes == 0 || self.wanted < self.held_bytes + LANDING_BYTES_MIN {
            return &mut [];
        }
        // The room is cleared once, and then lent from frame to frame.
        if self.held.len() < self.wanted {
            self.held.resize(self.wanted, 0);
        }
        &mut self.held[self.held_bytes..self.wanted]
    }

    /// So many bytes were put where [`Stream::rest`] said.
    pub fn rest_came(&mut self, rnic: &mut Rnic, bytes: usize) {
        if let Some(qp) = self.qp {
            self.held_bytes = self.wanted.min(self.held_bytes + bytes);
            self.take_held(rnic, qp);
        }
    }

    /// The byte stream has ended: in order, or not.
    pub fn gone(&mut self, rnic: &mut Rnic, in_order: bool) {
        let between_frames = self.held_bytes == 0 && self.landing.is_none() && self.trailer == 0;
        if let (Some(qp), Phase::Up { .. }) = (self.qp, &self.phase) {
            rnic.stream_gone(qp, in_order && (between_frames || self.deaf) && self.stalled.is_none());
        }
        self.fail();
    }

    // ---- down

    /// Makes the next burst, if the one before has left: whether there is something to send.
    pub fn fill(&mut self, rnic: &mut Rnic) -> bool {
        if self.out.bytes > 0 {
            return true;
        }
        let (Some(qp), Phase::Up { .. }) = (self.qp, &self.phase) else { return false };
        if self.out.own.capacity() == 0 {
            self.out.own = mem::take(&mut rnic.spare[BURST]);
        }
        while self.out.bytes < BURST_BYTES && self.out.parts.len() < BURST_PARTS {
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

    /// A peer that has been spoken to and has said nothing yet may have slept through it: soft-iWARP of Linux is not told of
    /// bytes that come between its reply and its taking over of the socket (`siw_accept`, 6.1), and sleeps until more come.
    /// A Write of nothing is more, and changes nothing. Whether there may be need of another.
    pub fn nudge(&mut self, rnic: &mut Rnic) -> bool {
        if self.heard || self.ends != StreamWish::Open || !matches!(self.phase, Phase::Up { .. }) {
            return false;
        }
        // Such a peer is kiban's, and counts.
        if self.qp.is_some_and(|qp| rnic.acknowledges(qp)) {
            return false;
        }
        // Not within a message (RFC 5041 §5.2): when there is nothing more to make a segment of, all are whole.
        if !self.fill(rnic) && self.out.segments > 0 {
            let mut header = [0; ddp::TAGGED_BYTES];
            let placing = Placing::Tagged { stag: NOWHERE.stag, offset: NOWHERE.offset };
            Header { last: true, ulp: Opcode::Write.octet(), placing }.write(&mut header);
            self.out.segment(&header, Payload::Bytes(&[]));
            self.out.close();
        }
        true
    }

    /// The bytes of the burst that have not left.
    pub fn chunks(&self) -> impl Iterator<Item = Chunk<'_>> {
        self.out.parts.iter().map(|part| match part {
            Part::Own(range) => Chunk::Own(&self.out.own[range.clone()]),
            Part::Memory(region) => Chunk::Memory(region),
        })
    }

    /// Bytes of the burst that have not left.
    pub fn unsent_bytes(&self) -> usize {
        self.out.bytes
    }

    /// So many bytes of the burst have left. Work is done when its burst has left whole.
    pub fn advance(&mut self, rnic: &mut Rnic, mut bytes: usize) {
        let out = &mut self.out;
        out.bytes -= bytes;
        while let Some(part) = out.parts.front_mut() {
            let length = match part {
                Part::Own(range) => range.len(),
                Part::Memory(region) => region.len(),
            };
            if bytes < length {
                match part {
                    Part::Own(range) => range.start += bytes,
                    Part::Memory(region) => {
                        let at = region.address() + bytes as u64;
                        *region = region.part(at, length - bytes).expect("the rest lies within the whole");
                    }
                }
                return;
            }
            bytes -= length;
            out.parts.pop_front();
        }
        out.own.clear();
        out.open = 0;
        if let Some(qp) = self.qp {
            rnic.confirm(qp, out.segments);
        }
    }

    /// Memory is about to be taken back: what has not left of it is copied, so that nothing refers to it any more.
    pub fn let_go(&mut self, memory: &Region) {
        let out = &mut self.out;
        for part in &mut out.parts {
            if let Part::Memory(region) = part
                && region.overlaps(memory)
            {
                let at = out.own.len();
                if let Some(bytes) = region.bytes(region.address(), region.len()) {
                    bytes.append_to(&mut out.own);
                }
                *part = Part::Own(at..out.own.len());
            }
        }
        out.open = out.own.len();
    }

    /// What the byte stream is to do when the burst has left.
    pub fn wish(&self, rnic: &Rnic) -> StreamWish {
        match (self.ends, self.qp, &self.phase) {
            (StreamWish::Open, Some(qp), Phase::Up { .. }) => rnic.stream_wish(qp),
            (ends, ..) => ends,
        }
    }
}

/// Room for frames that leave, and for one that comes (`Rnic::spare`).
const BURST: usize = 0;
const FRAME: usize = 1;

/// Room that a stream needs no more is kept for the next, the larger of two.
fn put_by(spare: &mut Vec<u8>, room: &mut Vec<u8>) {
    let room = mem::take(room);
    if room.capacity() > spare.capacity() {
        *spare = room;
    }
}
