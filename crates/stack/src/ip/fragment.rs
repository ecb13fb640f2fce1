//! Cutting a datagram into the payloads of fragments (RFC 791 §3.2, RFC 8200 §4.5).
//!
//! Goal      all fragments of a datagram or none: who finds no memory for the last sends not even the first.
//! Payload   is referred to, not copied. The head (transport header) goes into the first fragment; one that is too long
//!           for it, and a tail, are frozen into the body first.

use alloc::vec::Vec;
use kiban_ground::{Memory, Pdu};

/// Pieces of `whole` with `size` bytes each, a multiple of 8, but for the last, in order. Nothing when memory ran out.
pub(super) fn cut(mut whole: Pdu, size: usize, memory: &mut Memory) -> Option<Vec<Pdu>> {
    if whole.head().len() > size || !whole.tail().is_empty() {
        whole.freeze(&mut memory.receive)?;
    }
    let total = whole.len();
    let mut pieces = Vec::with_capacity(total.div_ceil(size));
    let mut first = memory.blocks.take()?;
    first.push_head(whole.head().len()).copy_from_slice(whole.head());
    let (mut piece, mut done) = (first, 0);
    for mut slice in whole.drain_body() {
        loop {
            let room = size - piece.len();
            if slice.len() <= room {
                piece.push_body(slice).ok()?;
                break;
            }
            if room > 0 {
                piece.push_body(slice.take_front(room)).ok()?;
            }
            done += piece.len();
            pieces.push(core::mem::replace(&mut piece, memory.blocks.take()?));
        }
    }
    debug_assert_eq!(done + piece.len(), total, "the pieces are the whole");
    pieces.push(piece);
    Some(pieces)
}
