//! Memory shared by two sides, as used by rings and pipes: words are the checker's atomics, and payload bytes
//! are its cells.

use crate::atomic::AtomicU32;
use std::sync::Arc;

struct Memory {
    bytes: usize,
    words: Vec<(usize, AtomicU32)>,
    cells: Vec<(usize, loom::cell::UnsafeCell<u8>)>,
}

// SAFETY: cells are accessed only through the checker, which reports conflicting accesses.
unsafe impl Send for Memory {}
// SAFETY: cells are accessed only through the checker, which reports conflicting accesses.
unsafe impl Sync for Memory {}

impl Memory {
    fn cell(&self, at: usize) -> &loom::cell::UnsafeCell<u8> {
        &self.cells.iter().find(|(place, _)| *place == at).expect("a byte of payload").1
    }
}

/// Shared memory.
#[derive(Clone)]
pub(crate) struct Region(Arc<Memory>);

impl Region {
    /// Zeroed memory with atomic words and payload bytes at these offsets.
    pub(crate) fn watched(bytes: usize, words: &[usize], payload: &[usize]) -> Region {
        let words = words.iter().map(|at| (*at, AtomicU32::new(0))).collect();
        let cells = payload.iter().map(|at| (*at, loom::cell::UnsafeCell::new(0))).collect();
        Region(Arc::new(Memory { bytes, words, cells }))
    }

    pub(crate) fn with_address(self, _address: u64) -> Region {
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.0.bytes
    }

    pub(crate) fn base(&self) -> Base<'_> {
        Base { memory: &self.0, at: 0 }
    }

    pub(crate) fn bytes(&self, address: u64, length: usize) -> Option<SharedBytes<'_>> {
        Some(SharedBytes::new(self.base().add(address as usize), length))
    }

    pub(crate) fn write(&self, address: u64, bytes: SharedBytes<'_>) -> Option<()> {
        SharedRoom::new(self.base().add(address as usize), bytes.len()).write(0, bytes);
        Some(())
    }
}

/// An offset in shared memory, used instead of a pointer.
#[derive(Clone, Copy)]
pub(crate) struct Base<'a> {
    memory: &'a Memory,
    at: usize,
}

impl<'a> Base<'a> {
    pub(crate) fn add(self, bytes: usize) -> Base<'a> {
        Base { at: self.at + bytes, ..self }
    }

    /// The memory begins with a cache line.
    pub(crate) fn as_ptr(self) -> *const u8 {
        std::ptr::null()
    }

    /// The checker's memory records where the words are.
    #[expect(clippy::extra_unused_type_parameters, reason = "pointers are cast so")]
    pub(crate) fn cast<T>(self) -> Base<'a> {
        self
    }

    pub(crate) fn as_ref(&self) -> &'a AtomicU32 {
        &self.memory.words.iter().find(|(place, _)| *place == self.at).expect("a word").1
    }
}

/// Bytes to be copied out.
#[derive(Clone, Copy)]
pub(crate) enum SharedBytes<'a> {
    Private(&'a [u8]),
    Shared(Base<'a>, usize),
}

impl<'a> From<&'a [u8]> for SharedBytes<'a> {
    fn from(bytes: &'a [u8]) -> SharedBytes<'a> {
        SharedBytes::Private(bytes)
    }
}

impl<'a> SharedBytes<'a> {
    pub(crate) fn new(base: Base<'a>, length: usize) -> SharedBytes<'a> {
        SharedBytes::Shared(base, length)
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            SharedBytes::Private(bytes) => bytes.len(),
            SharedBytes::Shared(_, length) => *length,
        }
    }

    fn byte(&self, at: usize) -> u8 {
        match self {
            SharedBytes::Private(bytes) => bytes[at],
            // SAFETY: the checker reports concurrent writes.
            SharedBytes::Shared(base, _) => base.memory.cell(base.at + at).with(|byte| unsafe { *byte }),
        }
    }

    pub(crate) fn copy_to(&self, at: usize, target: &mut [u8]) -> usize {
        let count = self.len().saturating_sub(at).min(target.len());
        target[..count].iter_mut().enumerate().for_each(|(place, byte)| *byte = self.byte(at + place));
        count
    }

    pub(crate) fn append_to(&self, target: &mut Vec<u8>) {
        target.extend((0..self.len()).map(|at| self.byte(at)));
    }

    pub(crate) fn after(&self, at: usize) -> SharedBytes<'a> {
        self.part(at, self.len() - at)
    }

    pub(crate) fn part(&self, at: usize, length: usize) -> SharedBytes<'a> {
        match self {
            SharedBytes::Private(bytes) => SharedBytes::Private(&bytes[at..at + length]),
            SharedBytes::Shared(base, _) => SharedBytes::Shared(base.add(at), length),
        }
    }
}

/// Room to copy bytes into.
pub(crate) struct SharedRoom<'a>(Base<'a>, usize);

impl<'a> SharedRoom<'a> {
    pub(crate) fn new(base: Base<'a>, length: usize) -> SharedRoom<'a> {
        SharedRoom(base, length)
    }

    pub(crate) fn write(&mut self, at: usize, bytes: SharedBytes<'_>) {
        assert!(at + bytes.len() <= self.1, "written beyond the room");
        for place in 0..bytes.len() {
            let value = bytes.byte(place);
            // SAFETY: the checker reports concurrent reads and writes.
            self.0.memory.cell(self.0.at + at + place).with_mut(|byte| unsafe { *byte = value });
        }
    }
}
