//! A ring: slots of bytes from one producer to one consumer, in shared memory.
//!
//! Purpose          a single implementation of all queues between a host and a board, or between two boards
//!                  on one machine, within one process or across two. A short entry takes one cache line and
//!                  no system call.
//! Memory           a [`Region`]: process-private memory, or memory that two processes map.
//!
//! ```text
//! line 0    taken u32                               slots that the consumer has returned since the start
//! slot n    turn u32 | length u32 | payload …       turn = n + 1 + laps * slots: the slot is full
//! ```
//!
//! Turns            each slot has its own mark that says whether it is full. A poller reads the cache line
//!                  that holds the data, so a short entry costs one cache-line transfer between two cores; a
//!                  shared index would cost two.
//! Trust            each side keeps its own counts and never reads them back from shared memory. A number
//!                  written by the other side is read once and validated. An unexpected turn means "nothing
//!                  yet". A length beyond the slot or an impossible count means [`Poisoned`], permanently.
//!                  Payload is copied out, or moved without being read.
//! Proof            `crates/model` runs this code in every order that the memory model allows, within bounds.
//! Limits           the number of slots is a power of two, and their size a multiple of 64 bytes.
//! Not implemented  waking the other side, which is the task of `Bell`.

use crate::atomic::{AtomicU32, Ordering};
use crate::region::{Region, SharedBytes, SharedRoom};
use core::fmt;

/// Bytes before the first slot.
const FRONT_BYTES: usize = 64;
/// Bytes of a slot before its payload.
pub const SLOT_HEADER_BYTES: usize = 8;

/// The other side violated the ring's protocol. Nothing that it writes is trusted from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Poisoned;

impl fmt::Display for Poisoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the other side violated the shared-memory protocol: close the connection")
    }
}

impl core::error::Error for Poisoned {}

/// The dimensions of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    slots: u32,
    slot_bytes: u32,
}

impl Shape {
    /// Creates a shape of at least `slots` slots with payloads of up to `payload_bytes`; both are rounded up.
    ///
    /// # Panics
    /// If there are more than 2^20 slots, or 2^24 bytes or more per slot.
    pub fn new(slots: usize, payload_bytes: usize) -> Shape {
        assert!(
            slots <= 1 << 20 && payload_bytes < 1 << 24,
            "a ring of {slots} slots of {payload_bytes} bytes is too large"
        );
        let slot_bytes = (payload_bytes + SLOT_HEADER_BYTES).next_multiple_of(64);
        Shape { slots: slots.max(2).next_power_of_two() as u32, slot_bytes: slot_bytes as u32 }
    }

    /// Returns the number of slots.
    pub const fn slots(&self) -> usize {
        self.slots as usize
    }

    /// Returns the maximum payload of a slot in bytes.
    pub const fn payload_bytes(&self) -> usize {
        self.slot_bytes as usize - SLOT_HEADER_BYTES
    }

    /// Returns the number of bytes of memory that the ring occupies.
    pub const fn bytes(&self) -> usize {
        FRONT_BYTES + self.slots as usize * self.slot_bytes as usize
    }
}

/// State that both sides need.
struct Side {
    memory: Region,
    at: usize,
    shape: Shape,
    poisoned: bool,
}

impl Side {
    fn new(memory: &Region, at: usize, shape: Shape) -> Side {
        let fits = at.checked_add(shape.bytes()).is_some_and(|end| end <= memory.len());
        let place = memory.base().as_ptr() as usize + at;
        assert!(
            fits && place.is_multiple_of(64),
            "a ring needs {} bytes of memory, aligned to a cache line",
            shape.bytes()
        );
        Side { memory: memory.clone(), at, shape, poisoned: false }
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `new` checked that the ring lies within the memory and is aligned; `at` is a multiple of
        // four below its end. The memory lives while `self.memory` is held, and all users access its words
        // atomically.
        unsafe { self.memory.base().add(self.at + at).cast::<AtomicU32>().as_ref() }
    }

    #[inline]
    fn taken(&self) -> &AtomicU32 {
        self.word(0)
    }

    #[inline]
    fn slot(&self, number: u32) -> usize {
        FRONT_BYTES + (number & (self.shape.slots - 1)) as usize * self.shape.slot_bytes as usize
    }
}

/// The side that fills slots.
pub struct Producer {
    side: Side,
    /// Slots filled so far.
    filled: u32,
    /// The consumer's `taken` count as last read.
    taken: u32,
}

impl Producer {
    /// Creates the producer of a new ring, in zeroed memory, `at` bytes from its start.
    ///
    /// # Panics
    /// If the ring does not fit there or is not aligned to a cache line.
    pub fn new(memory: &Region, at: usize, shape: Shape) -> Producer {
        Producer { side: Side::new(memory, at, shape), filled: 0, taken: 0 }
    }

    /// Returns the dimensions of the ring.
    pub const fn shape(&self) -> Shape {
        self.side.shape
    }

    /// Returns the number of free slots according to the last read of `taken`.
    #[inline]
    fn known_free(&self) -> u32 {
        self.side.shape.slots - self.filled.wrapping_sub(self.taken)
    }

    /// Returns the number of free slots.
    ///
    /// # Errors
    /// [`Poisoned`] if the consumer violated the protocol.
    #[inline]
    pub fn free(&mut self) -> Result<usize, Poisoned> {
        let taken = self.side.taken().load(Ordering::Acquire);
        // The count must never decrease or exceed `filled`.
        if self.side.poisoned || taken.wrapping_sub(self.taken) > self.filled.wrapping_sub(self.taken) {
            self.side.poisoned = true;
            return Err(Poisoned);
        }
        self.taken = taken;
        Ok(self.known_free() as usize)
    }

    /// Returns the next slot, to be filled and published, or `None` while all are full.
    ///
    /// # Errors
    /// [`Poisoned`] if the consumer violated the protocol.
    #[inline]
    pub fn room(&mut self) -> Result<Option<SharedRoom<'_>>, Poisoned> {
        if self.known_free() == 0 && self.free()? == 0 {
            return Ok(None);
        }
        let at = self.side.at + self.side.slot(self.filled) + SLOT_HEADER_BYTES;
        // SAFETY: the slot lies within the ring, the ring within the memory, and `self` holds the memory. No
        // Rust references to it are created.
        Ok(Some(unsafe { SharedRoom::new(self.side.memory.base().add(at), self.side.shape.payload_bytes()) }))
    }

    /// Passes the slot from [`Producer::room`] to the consumer with `length` bytes of payload.
    ///
    /// # Panics
    /// If no slot is free, or `length` exceeds the payload of a slot.
    #[inline]
    pub fn publish(&mut self, length: usize) {
        assert!(
            length <= self.side.shape.payload_bytes() && self.known_free() > 0,
            "no slot is free, or the payload does not fit"
        );
        let slot = self.side.slot(self.filled);
        self.side.word(slot + 4).store(length as u32, Ordering::Relaxed);
        self.filled = self.filled.wrapping_add(1);
        self.side.word(slot).store(self.filled, Ordering::Release);
    }

    /// Copies an entry into the next slot, publishes it and returns true; returns false if all slots are
    /// full.
    ///
    /// # Errors
    /// [`Poisoned`] if the consumer violated the protocol.
    #[inline]
    pub fn push(&mut self, entry: &[u8]) -> Result<bool, Poisoned> {
        match self.room()? {
            Some(mut room) => room.write(0, entry.into()),
            None => return Ok(false),
        }
        self.publish(entry.len());
        Ok(true)
    }

    /// Returns whether the consumer has returned all slots.
    ///
    /// # Errors
    /// [`Poisoned`] if the consumer violated the protocol.
    pub fn is_empty(&mut self) -> Result<bool, Poisoned> {
        Ok(self.free()? == self.side.shape.slots())
    }
}

/// The side that empties slots.
pub struct Consumer {
    side: Side,
    /// Slots emptied so far.
    emptied: u32,
    /// The count last published to the producer.
    published: u32,
}

impl Consumer {
    /// Creates the consumer of a new ring, in zeroed memory, `at` bytes from its start.
    ///
    /// # Panics
    /// If the ring does not fit there or is not aligned to a cache line.
    pub fn new(memory: &Region, at: usize, shape: Shape) -> Consumer {
        Consumer { side: Side::new(memory, at, shape), emptied: 0, published: 0 }
    }

    /// Returns the dimensions of the ring.
    pub const fn shape(&self) -> Shape {
        self.side.shape
    }

    /// Returns whether the next slot is full; one load, for polling.
    #[inline]
    pub fn is_ready(&self) -> bool {
        let turn = self.side.word(self.side.slot(self.emptied)).load(Ordering::Acquire);
        turn == self.emptied.wrapping_add(1) && !self.side.poisoned
    }

    /// Returns whether the producer violated the protocol.
    pub const fn is_poisoned(&self) -> bool {
        self.side.poisoned
    }

    /// Returns the entry in the next slot, or `None` if the slot is empty. Return the slot with
    /// [`Consumer::release`].
    ///
    /// # Errors
    /// [`Poisoned`] if the producer violated the protocol.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<SharedBytes<'_>>, Poisoned> {
        if self.side.poisoned {
            return Err(Poisoned);
        }
        let slot = self.side.slot(self.emptied);
        if self.side.word(slot).load(Ordering::Acquire) != self.emptied.wrapping_add(1) {
            // Report freed slots before going idle, because the producer may be waiting for room.
            self.publish_emptied();
            return Ok(None);
        }
        let length = self.side.word(slot + 4).load(Ordering::Relaxed) as usize;
        if length > self.side.shape.payload_bytes() {
            self.side.poisoned = true;
            return Err(Poisoned);
        }
        let at = self.side.at + slot + SLOT_HEADER_BYTES;
        // SAFETY: the slot lies within the ring, the ring within the memory, and `self` holds the memory.
        Ok(Some(unsafe { SharedBytes::new(self.side.memory.base().add(at), length) }))
    }

    /// Returns the slot that [`Consumer::peek`] showed. Returned slots become visible to the producer after
    /// every quarter of the ring, or at the latest when the ring is found empty.
    ///
    /// Never panics; returning a slot that was not shown is a bug on this side and harms only this side.
    #[inline]
    pub fn release(&mut self) {
        self.emptied = self.emptied.wrapping_add(1);
        if self.emptied.wrapping_sub(self.published) >= self.side.shape.slots / 4 {
            self.publish_emptied();
        }
    }

    #[inline]
    fn publish_emptied(&mut self) {
        if self.published != self.emptied {
            self.published = self.emptied;
            self.side.taken().store(self.published, Ordering::Release);
        }
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Producer({} filled)", self.filled)
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Consumer({} emptied)", self.emptied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn ring(slots: usize, payload_bytes: usize) -> (Region, Producer, Consumer) {
        let shape = Shape::new(slots, payload_bytes);
        let memory = Region::new(0, shape.bytes());
        let (producer, consumer) = (Producer::new(&memory, 0, shape), Consumer::new(&memory, 0, shape));
        (memory, producer, consumer)
    }

    fn pop(consumer: &mut Consumer) -> Result<Option<Vec<u8>>, Poisoned> {
        let entry = consumer.peek()?.map(|bytes| {
            let mut copy = alloc::vec![0; bytes.len()];
            bytes.copy_to(0, &mut copy);
            copy
        });
        if entry.is_some() {
            consumer.release();
        }
        Ok(entry)
    }

    #[test]
    fn entries_are_received_in_order_and_a_full_ring_is_reported() {
        let (_, mut producer, mut consumer) = ring(4, 56);
        for lap in 0..if cfg!(miri) { 3 } else { 100u8 } {
            for n in 0..4 {
                assert_eq!(producer.push(&[lap, n]), Ok(true));
            }
            assert_eq!(producer.push(&[lap, 4]), Ok(false));
            for n in 0..4 {
                assert_eq!(pop(&mut consumer), Ok(Some(alloc::vec![lap, n])));
            }
            assert_eq!(pop(&mut consumer), Ok(None));
            assert_eq!(producer.is_empty(), Ok(true));
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a ring is made for two threads")]
    fn threads_lose_nothing_and_double_nothing() {
        const ENTRIES: u64 = if cfg!(miri) { 300 } else { 100_000 };
        let (_, mut producer, mut consumer) = ring(16, 8);
        std::thread::scope(|threads| {
            threads.spawn(move || {
                let mut n = 0u64;
                while n < ENTRIES {
                    n += u64::from(producer.push(&n.to_ne_bytes()).expect("a decent consumer"));
                }
            });
            let mut expected = 0;
            while expected < ENTRIES {
                if let Some(entry) = pop(&mut consumer).expect("a decent producer") {
                    assert_eq!(entry, expected.to_ne_bytes());
                    expected += 1;
                }
            }
        });
    }

    #[test]
    fn a_length_beyond_the_slot_poisons_the_ring() {
        let (memory, mut producer, mut consumer) = ring(4, 56);
        producer.push(&[1; 56]).expect("decent");
        memory.write(68, SharedBytes::from(&57u32.to_ne_bytes()[..])).expect("within");
        assert_eq!(consumer.peek().map(|_| ()), Err(Poisoned));
        memory.write(68, SharedBytes::from(&1u32.to_ne_bytes()[..])).expect("within");
        assert_eq!(consumer.peek().map(|_| ()), Err(Poisoned), "once condemned, always condemned");
    }

    #[test]
    fn impossible_progress_poisons_the_ring() {
        for progress in [3u32, u32::MAX, 1 << 31] {
            let (memory, mut producer, _consumer) = ring(4, 56);
            producer.push(&[1]).expect("decent");
            producer.push(&[2]).expect("decent");
            memory.write(0, SharedBytes::from(&progress.to_ne_bytes()[..])).expect("within");
            assert_eq!(producer.free(), Err(Poisoned), "{progress}");
        }
    }

    #[test]
    #[should_panic(expected = "a ring needs")]
    fn a_ring_outside_its_memory_is_rejected() {
        let shape = Shape::new(4, 56);
        Producer::new(&Region::new(0, shape.bytes() - 1), 0, shape);
    }

    proptest! {
        /// The other side writes arbitrary values to the memory at any moment. Both sides return entries,
        /// nothing, or `Poisoned`.
        #[test]
        fn garbage_does_not_affect_other_memory(scribbles in prop::collection::vec((0usize..4 * 64, any::<u32>(), any::<bool>()), 1..60)) {
            let (memory, mut producer, mut consumer) = ring(4, 56);
            for (at, word, fill) in scribbles {
                memory.write(at as u64 & !3, SharedBytes::from(&word.to_ne_bytes()[..])).expect("within");
                if fill {
                    let _ = producer.push(&word.to_ne_bytes());
                }
                if let Ok(Some(entry)) = pop(&mut consumer) {
                    prop_assert!(entry.len() <= 56);
                }
            }
        }
    }
}
