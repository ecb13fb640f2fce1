//! The transmit path of a flow: its next frame, or a train of frames.
//!
//! Frames   a segment or an end is in its slot; any other frame is written into the link's room.
//! Trains   full frames in neighbouring slots are neighbours in memory, so one system call can send them.

use super::flow::{Context, Flow, Halves, Stage};
use super::host::TrainLimits;
use super::send::{Next, Sender};
use crate::wire::efe::{self as wire, HEADER_BYTES, Header, Kind, Setup, flag, reason};
use kiban_base::Instant;

/// A frame to be sent.
enum Emitted {
    /// It was written into the link's room, and has this length without the CRC.
    InRoom(usize),
    /// It is in the slot of this sequence number.
    InSlot(u32),
}

/// Frames to be sent together.
#[derive(Clone, Copy)]
pub(super) struct TrainPlace {
    /// The sequence number of the first; `None` for a single frame in the link's room.
    pub(super) first: Option<u32>,
    pub(super) frames: usize,
    pub(super) bytes: usize,
    /// The length of each but the last.
    pub(super) each: usize,
}

impl TrainPlace {
    /// Returns the place of a frame of this length in the link's room.
    pub(super) fn single(bytes: usize) -> TrainPlace {
        TrainPlace { first: None, frames: 1, bytes, each: bytes }
    }
}

impl Flow {
    pub(super) fn header(&self, kind: Kind) -> Header {
        Header {
            kind,
            flags: 0,
            credit: 0,
            payload_bytes: 0,
            flow: self.peer_flow,
            key: self.peer_key,
            sequence: 0,
            acknowledged: 0,
            transmission: 0,
            echo: 0,
            held: 0,
        }
    }

    /// Makes the next frame: a segment or an end in its slot, any other in `room`. Returns `None` if no frame
    /// may be sent now, or if the flow waits for a train of `waits_for` frames.
    #[inline]
    fn emit(
        &mut self,
        room: &mut [u8],
        waits_for: usize,
        cx: &mut Context<'_>,
        now: Instant,
    ) -> Option<Emitted> {
        if !matches!(self.stage, Stage::Open) {
            return if core::mem::take(&mut self.control_frame_due) {
                self.emit_control_frame(room, cx).map(Emitted::InRoom)
            } else {
                None
            };
        }
        let mut header = self.header(Kind::Data);
        if cx.drain_epochs.flag() {
            header.flags |= flag::DRAIN;
        }
        let Halves { sender, receiver } = self.halves.as_mut().expect("an open flow has both halves");
        self.pace_at = Instant::NEVER;
        let next = match sender.awaits_train(waits_for) {
            true => Next::Nothing,
            false => sender.next_to_send(&self.path_load, now),
        };
        match next {
            Next::Frame(sequence) => {
                let holes = receiver.fill_ack(&mut header, now) != 0;
                receiver.ack_now &= holes;
                self.may_send_ack &= holes;
                write_segment(sender, sequence, header, cx, now);
                return Some(Emitted::InSlot(sequence));
            }
            Next::At(at) => self.pace_at = at,
            Next::Blocked => self.is_blocked = true,
            Next::Nothing => {}
        }
        if !(receiver.ack_now && self.may_send_ack || self.probe_now) {
            return None;
        }
        (receiver.ack_now, self.may_send_ack) = (false, false);
        let map = receiver.fill_ack(&mut header, now);
        if core::mem::take(&mut self.probe_now) {
            header.flags |= flag::ACK_REQUEST;
        }
        header.kind = Kind::Ack;
        (header.sequence, header.transmission) = (sender.next(), sender.stamp());
        let map_bytes = wire::write_sack_map(map, &mut room[HEADER_BYTES..]);
        header.payload_bytes = map_bytes as u16;
        header.write(room);
        cx.counters.acks_out += 1;
        Some(Emitted::InRoom(HEADER_BYTES + map_bytes))
    }

    /// Makes the next frames for one peer, as far as they are neighbours in memory: full frames, and a last
    /// one that may be shorter.
    pub(super) fn emit_train(
        &mut self,
        room: &mut [u8],
        limits: &TrainLimits,
        cx: &mut Context<'_>,
        now: Instant,
    ) -> Option<TrainPlace> {
        let (checks, pads) = (cx.config.checks(self.peer), limits.padding.applies_to(self.peer));
        let first = match self.emit(room, limits.waits_for, cx, now)? {
            Emitted::InRoom(length) => {
                return Some(TrainPlace::single(seal(room, length, checks)));
            }
            Emitted::InSlot(first) => first,
        };
        let sender = &mut self.halves.as_mut().expect("an open flow has both halves").sender;
        let stride = sender.stride();
        let header = Header::read(sender.frame(first).0).expect("it was just written").0;
        let (mut last, mut frames) = (first, 1);
        let mut last_bytes = seal_slot(sender, last, checks);
        while frames < limits.frames
            && (frames + 1) * stride <= limits.bytes
            && (last_bytes == stride || pads)
            && sender.is_followed(last)
            && sender.next_to_send(&self.path_load, now) == Next::Frame(last.wrapping_add(1))
        {
            last = last.wrapping_add(1);
            write_segment(sender, last, header, cx, now);
            last_bytes = seal_slot(sender, last, checks);
            frames += 1;
        }
        let each = if frames == 1 { last_bytes } else { stride };
        Some(TrainPlace { first: Some(first), frames, bytes: (frames - 1) * stride + last_bytes, each })
    }

    fn emit_control_frame(&mut self, room: &mut [u8], cx: &mut Context<'_>) -> Option<usize> {
        let kind = match &self.stage {
            Stage::Connecting { .. } => Kind::Ask,
            Stage::Accepted { .. } => Kind::Accept,
            Stage::Refused { .. } => Kind::Reject,
            Stage::Lingering { answer, .. } => {
                let length = HEADER_BYTES + usize::from(answer.payload_bytes);
                answer.write(room);
                room[HEADER_BYTES..length].fill(0);
                return Some(length);
            }
            Stage::RequestReceived { .. } | Stage::Open => return None,
        };
        let mut header = self.header(kind);
        let (Stage::Connecting { greeting }
        | Stage::Accepted { greeting, .. }
        | Stage::Refused { greeting, .. }) = &self.stage
        else {
            return None;
        };
        let length = if kind == Kind::Reject {
            header.sequence = reason::HOST;
            room[HEADER_BYTES..HEADER_BYTES + greeting.len()].copy_from_slice(greeting);
            greeting.len()
        } else {
            (header.sequence, header.acknowledged) = (self.initial, self.peer_initial);
            header.credit = cx.config.window_frames as u8;
            if cx.drain_epochs.flag() {
                header.flags |= flag::DRAIN;
            }
            let setup = Setup {
                flow: self.number,
                key: self.key,
                service: self.service,
                segment_bytes: cx.config.segment_bytes_to(self.peer) as u16,
                greeting,
            };
            setup.write(&mut room[HEADER_BYTES..])
        };
        header.payload_bytes = length as u16;
        header.write(room);
        Some(HEADER_BYTES + length)
    }
}

/// Writes the header of a segment or an end into its slot, and records that it is sent. The given header has
/// the values that all frames of the flow share.
#[inline]
fn write_segment(sender: &mut Sender, sequence: u32, mut header: Header, cx: &mut Context<'_>, now: Instant) {
    let (is_end, transmission, asks) = sender.transmit(sequence, cx.config, cx.counters, now);
    let (frame, length) = sender.frame(sequence);
    header.kind = if is_end { Kind::End } else { Kind::Data };
    header.payload_bytes = (length - HEADER_BYTES) as u16;
    (header.sequence, header.transmission) = (sequence, transmission);
    header.flags &= !(flag::ACK_REQUEST | flag::CHECKED);
    if asks {
        header.flags |= flag::ACK_REQUEST;
    }
    header.write(frame);
}

/// Adds the CRC to a frame if frames to this peer carry one. Returns the frame's length.
#[inline]
pub(super) fn seal(frame: &mut [u8], length: usize, checks: bool) -> usize {
    if checks { wire::fill(frame, length) } else { length }
}

fn seal_slot(sender: &mut Sender, sequence: u32, checks: bool) -> usize {
    let (frame, length) = sender.frame(sequence);
    seal(frame, length, checks)
}

/// Builds a control frame, without payload, for a peer with which we have no flow.
pub(super) fn control_frame(kind: Kind, flow: u32, key: u32, reason: u32) -> [u8; wire::HEADER_BYTES] {
    let header = Header {
        kind,
        flags: 0,
        credit: 0,
        payload_bytes: 0,
        flow,
        key,
        sequence: reason,
        acknowledged: 0,
        transmission: 0,
        echo: 0,
        held: 0,
    };
    let mut bytes = [0; wire::HEADER_BYTES];
    header.write(&mut bytes);
    bytes
}
