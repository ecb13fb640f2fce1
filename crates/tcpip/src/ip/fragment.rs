//! Fragmentation: cuts a datagram into the payloads of fragments (RFC 791 §3.2, RFC 8200 §4.5).
//!
//! Guarantee        all fragments of a datagram or none: if memory runs out, not even the first is sent.
//! Payload          the payload is referenced, not copied. The head (transport header) goes into the first
//!                  fragment. A head too long for it, and a tail, are frozen into the body first.

use alloc::vec::Vec;
use kiban_base::{Memory, Pdu};

/// Returns the pieces of `whole` in order. Each has `size` bytes (a multiple of 8), except the last. Returns
/// `None` if memory ran out.
pub(super) fn cut(mut whole: Pdu, size: usize, memory: &mut Memory) -> Option<Vec<Pdu>> {
    if whole.head().len() > size || !whole.tail().is_empty() {
        whole.freeze(&mut memory.receive)?;
    }
    let total = whole.len();
    let mut pieces = Vec::with_capacity(total.div_ceil(size));
    let mut first = memory.pdus.take()?;
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
            pieces.push(core::mem::replace(&mut piece, memory.pdus.take()?));
        }
    }
    debug_assert_eq!(done + piece.len(), total, "the pieces are the whole");
    pieces.push(piece);
    Some(pieces)
}
