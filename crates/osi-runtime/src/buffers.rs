//! Reusable buffers for data from sockets and files.
//!
//! Purpose    a transfer reuses a few buffers for all of its data. If it allocated them each time, the
//!            allocator would often return blocks of this length to the system, which would then have to
//!            clear and map every page of the next block.
//! Alignment  data begins at a page boundary. The allocator's large blocks begin 16 bytes after a page
//!            boundary. With such a target, the kernel takes four times as long to copy a page on AMD Zen 3
//!            and 4, whose `rep movsb` is slow if the target is slightly ahead of the source.
//! Lifetime   a buffer is filled, then passed on in pieces ([`Bytes`]). When the last piece is dropped, the
//!            buffer returns to the free list of the thread that dropped it.
//! Limits     a thread keeps [`KEPT_MAX`] free buffers; the number of buffers in use is limited by their
//!            users.

use bytes::Bytes;
use std::cell::RefCell;

/// The length of a buffer in bytes.
pub(crate) const BUFFER_BYTES: usize = 128 << 10;
const PAGE_BYTES: usize = 4096;
const KEPT_MAX: usize = 16;
/// Data is copied if it fills less than 1/`FEW` of its buffer.
const FEW: usize = 4;

thread_local! {
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer that is being filled.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    /// The memory; the first `skip` bytes are alignment padding.
    memory: Vec<u8>,
    skip: usize,
}

impl Buffer {
    /// Takes memory for this many bytes. If they fill at least half of a buffer, it takes a buffer, otherwise
    /// memory from the allocator.
    pub(crate) fn take(bytes: usize) -> Buffer {
        if !(BUFFER_BYTES / 2..=BUFFER_BYTES).contains(&bytes) {
            return Buffer { memory: Vec::with_capacity(bytes), skip: 0 };
        }
        let kept = KEPT.with_borrow_mut(Vec::pop);
        let mut memory = kept.unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES + PAGE_BYTES));
        let skip = memory.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        memory.resize(skip, 0);
        Buffer { memory, skip }
    }

    /// Returns whether this is an empty placeholder without memory.
    pub(crate) fn is_none(&self) -> bool {
        self.memory.capacity() == 0
    }

    /// Returns the number of bytes in the buffer.
    pub(crate) fn len(&self) -> usize {
        self.memory.len() - self.skip
    }

    /// Returns the vector to which data is appended.
    pub(crate) fn filling(&mut self) -> &mut Vec<u8> {
        &mut self.memory
    }

    /// Converts the buffer to [`Bytes`]. Short data is copied, because it may be kept for a long time, during
    /// which the whole buffer would stay in use.
    pub(crate) fn hand_on(self) -> Bytes {
        let Buffer { memory, skip } = self;
        let is_few = memory.len() - skip < memory.capacity() / FEW;
        match memory.capacity() {
            capacity if capacity == BUFFER_BYTES + PAGE_BYTES => {
                let lent = Lent(memory);
                if is_few {
                    Bytes::copy_from_slice(&lent.0[skip..])
                } else {
                    Bytes::from_owner(lent).slice(skip..)
                }
            }
            _ if is_few => Bytes::copy_from_slice(&memory),
            _ => memory.into(),
        }
    }
}

struct Lent(Vec<u8>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut memory = std::mem::take(&mut self.0);
        memory.clear();
        // A thread that is exiting has no free list.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT_MAX {
                kept.push(memory);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::take(BUFFER_BYTES);
        buffer.filling().extend(bytes);
        assert_eq!(buffer.len(), bytes.len());
        buffer
    }

    #[test]
    fn a_buffer_comes_back_when_its_last_piece_is_dropped() {
        let mut bytes = filled(&[7; BUFFER_BYTES]).hand_on();
        let memory = bytes.as_ptr();
        assert_eq!((memory.align_offset(PAGE_BYTES), bytes.len()), (0, BUFFER_BYTES));
        let piece = bytes.split_to(1000);
        drop(bytes);
        let other = filled(&[8; BUFFER_BYTES]).hand_on();
        assert_ne!(other.as_ptr(), memory);
        assert_eq!(piece[..], [7; 1000]);
        drop(piece);
        assert_eq!(filled(&[9; BUFFER_BYTES]).hand_on().as_ptr(), memory);
    }

    #[test]
    fn a_few_bytes_hold_no_buffer() {
        let mut few = Buffer::take(100);
        few.filling().extend(*b"few");
        assert_eq!(&few.hand_on()[..], b"few");
        let few = filled(b"few");
        let memory = few.memory.as_ptr();
        let few = few.hand_on();
        assert_eq!(filled(b"").memory.as_ptr(), memory);
        assert_eq!(&few[..], b"few");
        assert!(Buffer::default().is_none());
    }
}
