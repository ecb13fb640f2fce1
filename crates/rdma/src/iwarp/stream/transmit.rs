//! A stream's transmit path: bursts of frames.

use super::connection::{BURST, NOWHERE, Phase, Stream, put_by};
use super::outgoing::{Chunk, OutgoingPiece};
use crate::rnic::{Payload, Rnic, StreamAction, ToLlp};
use crate::wire::ddp::{self, Header, Placing};
use crate::wire::rdmap::Opcode;
use core::mem;
use kiban_base::Region;

/// Number of bytes at which a burst ends.
pub const BURST_BYTES: usize = 256 * 1024;
/// Number of parts at which a burst ends. Operating systems accept 1024 in one call.
const BURST_PARTS: usize = 512;
/// Maximum buffer capacity, in bytes, that a stream keeps while it has nothing to send; a larger buffer is
/// passed to the next stream.
const IDLE_BYTES_MAX: usize = 4096;

impl Stream {
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
}
