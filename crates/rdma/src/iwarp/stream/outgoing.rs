//! The TO-LLP FIFO: a burst of frames, built from the core's segments (RFC 5044 §3).
//!
//! Purpose          one gathering write sends a burst. Long payload is referred to in the host's memory;
//!                  headers, trailers and short payload are in the burst's own buffer.

use crate::iwarp::mpa::{self, MarkerInserter, Trailer};
use crate::rnic::{Payload, ToLlp};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use kiban_base::Region;

/// Maximum payload, in bytes, that is copied next to its header rather than passed to the lower layer by
/// reference.
pub const COPY_BYTES_MAX: usize = 1024;

/// Bytes to be sent, in order.
#[derive(Clone, Copy, Debug)]
pub enum Chunk<'a> {
    /// Bytes in the stream's own buffer.
    Own(&'a [u8]),
    /// Bytes in the host's memory.
    Memory(&'a Region),
}

#[derive(Debug)]
pub(super) enum OutgoingPiece {
    Own(Range<usize>),
    Memory(Region),
}

/// The TO-LLP FIFO: a burst of frames.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) own: Vec<u8>,
    pub(super) pieces: VecDeque<OutgoingPiece>,
    /// Start of the bytes in `own` that are not in `pieces` yet.
    pub(super) open: usize,
    pub(super) bytes: usize,
    pub(super) crc: bool,
    pub(super) weaver: Option<MarkerInserter>,
    pub(super) frame_bytes: usize,
    /// Number of the core's segments that will have been sent once this burst has been sent.
    pub(super) segments: u64,
}

impl Outgoing {
    pub(super) fn new() -> Outgoing {
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

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.own.extend_from_slice(bytes);
        self.bytes += bytes.len();
    }

    /// Makes a piece of the bytes that were appended to `own` after the last piece.
    pub(super) fn close(&mut self) {
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
