//! Content pages: shared, read-only packet payload in memory sized at start (papers \[1\] and \[5\]).
//!
//! Purpose   write payload once; after that, only take references to it.
//! Write     a [`Page`] is the only writer of its unwritten bytes. `append` copies bytes in, computes their
//!           one's-complement sum in the same pass, and returns a [`Slice`] of them.
//! Share     a `Slice` is a run of written bytes. Cloning it increments a reference count. The page returns
//!           to its pool when the last slice and the writer are dropped, on any thread.
//! Sums      a slice caches its sum. Cutting a slice reads only the shorter part and subtracts its sum;
//!           joining adds the sums.
//! Limits    pages are `page_bytes` long; `take` returns `None` when no page is free.

use super::references::References;
use super::region::SharedBytes;
use super::slot_pool::{Slot, SlotPool};
use super::sum::{Sum, copy_and_sum};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::fmt;
use core::ptr::NonNull;

/// The memory that holds the pages; freed when the pool and the last page have been dropped.
struct Memory(Box<[UnsafeCell<u8>]>);
// SAFETY: a byte is written only by the one `Page` that owns it and before any `Slice` of it exists.
unsafe impl Send for Memory {}
// SAFETY: threads that share the memory read a byte only after its `Page` has written it and made a `Slice`
// of it.
unsafe impl Sync for Memory {}

/// The descriptor of a page: its reference count and the location of its bytes.
struct PageHeader {
    references: References,
    bytes: NonNull<u8>,
    length: u32,
    _memory: Arc<Memory>,
}
// SAFETY: `bytes` points into `_memory`, which is `Send` and which this descriptor keeps alive.
unsafe impl Send for PageHeader {}

/// A pool of content pages of one size. Only the owner takes pages; any thread may return them.
pub struct PagePool {
    slots: SlotPool<PageHeader>,
    page_bytes: usize,
}

impl PagePool {
    /// Creates a pool of `pages` pages of `page_bytes` bytes each.
    ///
    /// # Panics
    /// If `page_bytes` is zero or does not fit in a `u32`.
    pub fn new(pages: usize, page_bytes: usize) -> PagePool {
        assert!(page_bytes > 0 && u32::try_from(page_bytes).is_ok(), "a page has 1..2^32 bytes");
        let bytes = alloc::vec![0u8; pages * page_bytes].into_boxed_slice();
        // SAFETY: `UnsafeCell<u8>` has the layout of `u8`, and the box is owned here.
        let memory =
            Arc::new(Memory(unsafe { Box::from_raw(Box::into_raw(bytes) as *mut [UnsafeCell<u8>]) }));
        let slots = SlotPool::new(pages, |index| PageHeader {
            references: References::none(),
            bytes: NonNull::new(UnsafeCell::raw_get(memory.0[index * page_bytes..].as_ptr()))
                .expect("a page of a live allocation"),
            length: page_bytes as u32,
            _memory: memory.clone(),
        });
        PagePool { slots, page_bytes }
    }

    /// Takes an empty, writable page, or returns `None` when no page is free.
    #[inline]
    pub fn take(&mut self) -> Option<Page> {
        let slot = self.slots.take()?;
        // SAFETY: the slot has just been taken from the pool, so there is no other reference to it.
        let leaf = unsafe { &*slot.as_ref().value() };
        leaf.references.begin();
        Some(Page { leaf: slot, bytes: leaf.bytes, filled: 0, length: leaf.length })
    }

    /// Returns the size of each page in bytes.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Drops a slice and returns its page directly to this pool, which is cheaper than an ordinary drop.
    #[inline]
    pub fn give(&mut self, slice: Slice) {
        // The only holder cannot race with another thread.
        if references(&slice.leaf).is_sole() {
            let slot = slice.leaf;
            core::mem::forget(slice);
            // SAFETY: this was the last reference, so the page is no longer in use.
            unsafe { self.slots.give(slot) };
        }
    }

    /// Makes the `n`-th take from now (1 means the next) fail once. Tests use this to inject pool exhaustion.
    pub fn fail_nth_take(&mut self, n: u64) {
        self.slots.fail_nth_take(n);
    }

    /// Returns the number of pages in the pool, free or in use.
    pub fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// Returns the number of free pages.
    pub fn available(&mut self) -> usize {
        self.slots.available()
    }
}

#[inline]
fn references(slot: &NonNull<Slot<PageHeader>>) -> &References {
    // SAFETY: the caller holds a reference, so the slot has not been returned and its value is alive; only
    // atomics and constants are read.
    unsafe { &(*slot.as_ref().value()).references }
}

#[inline]
fn hold(slot: &NonNull<Slot<PageHeader>>) {
    references(slot).hold();
}

#[inline]
fn release(slot: NonNull<Slot<PageHeader>>) {
    if references(&slot).release() {
        // SAFETY: this was the last reference, so the page is no longer in use.
        unsafe { Slot::release(slot) };
    }
}

/// A page that is being written. This writer alone owns the bytes after `filled`.
pub struct Page {
    leaf: NonNull<Slot<PageHeader>>,
    bytes: NonNull<u8>,
    filled: u32,
    length: u32,
}
// SAFETY: this writer owns the unwritten bytes, written bytes are read-only, and the count is atomic.
unsafe impl Send for Page {}
// SAFETY: a shared `Page` gives access only to its lengths and to written bytes, which never change.
unsafe impl Sync for Page {}

impl Page {
    /// Returns the number of unwritten bytes.
    #[inline]
    pub fn room(&self) -> usize {
        (self.length - self.filled) as usize
    }

    /// Returns the number of bytes written so far.
    #[inline]
    pub fn filled(&self) -> usize {
        self.filled as usize
    }

    /// Returns the bytes written so far, so that checks can run over them while they are in the CPU cache.
    pub fn written(&self) -> &[u8] {
        // SAFETY: bytes before `filled` have been written and are not written again.
        unsafe { core::slice::from_raw_parts(self.bytes.as_ptr(), self.filled as usize) }
    }

    /// Returns the unwritten bytes, into which a link lets the system write received data (see
    /// [`Page::commit`]).
    #[inline]
    pub fn unwritten(&mut self) -> &mut [u8] {
        // SAFETY: no slice covers the bytes after `filled`, and `&mut self` is the only writer.
        unsafe { core::slice::from_raw_parts_mut(self.bytes.as_ptr().add(self.filled as usize), self.room()) }
    }

    /// Copies as much of `source` as fits and returns the number of bytes copied and their sum, computed in
    /// the same pass.
    #[inline]
    pub fn fill(&mut self, source: &[u8]) -> (usize, Sum) {
        let count = source.len().min(self.room());
        let sum = copy_and_sum(&mut self.unwritten()[..count], &source[..count]);
        self.filled += count as u32;
        (count, sum)
    }

    /// Copies as much of `source` as fits and returns it as a slice, or `None` if nothing was copied.
    #[inline]
    pub fn append(&mut self, source: &[u8]) -> Option<Slice> {
        let from = self.filled();
        let (count, sum) = self.fill(source);
        (count > 0).then(|| self.slice(from, count, sum))
    }

    /// Like [`Page::append`], for memory that others may write to concurrently; the sum covers the bytes
    /// copied.
    pub fn append_shared(&mut self, source: SharedBytes<'_>) -> Option<Slice> {
        let from = self.filled();
        let (count, sum) = source.copy_and_sum_to(0, self.unwritten());
        self.filled += count as u32;
        (count > 0).then(|| self.slice(from, count, sum))
    }

    /// Returns a slice of the next `count` bytes, which the caller has written into [`Page::unwritten`]. Its
    /// sum is unknown: compute it with [`Slice::recompute_sum`] if needed, or mark the PDU as verified.
    ///
    /// # Panics
    /// If fewer than `count` bytes are unwritten.
    #[inline]
    pub fn commit(&mut self, count: usize) -> Slice {
        assert!(count <= self.room(), "no more lands than there is room for");
        let from = self.filled();
        self.filled += count as u32;
        self.slice(from, count, Sum::ZERO)
    }

    /// Returns a slice of bytes that have already been written; the caller supplies their sum, computed while
    /// writing.
    ///
    /// # Panics
    /// If some of the bytes have not been written yet.
    #[inline]
    pub fn slice(&self, from: usize, length: usize, sum: Sum) -> Slice {
        assert!(from + length <= self.filled(), "a slice shows written bytes only");
        hold(&self.leaf);
        Slice {
            leaf: self.leaf,
            // SAFETY: the range lies within the page, as checked above.
            start: unsafe { self.bytes.add(from) },
            length: length as u32,
            sum: sum.word(),
        }
    }
}

impl From<(Page, Sum)> for Slice {
    /// Converts a finished page into a slice of all its bytes; the caller supplies the sum. The writer's
    /// reference becomes the slice's.
    #[inline]
    fn from((page, sum): (Page, Sum)) -> Slice {
        let page = core::mem::ManuallyDrop::new(page);
        Slice { leaf: page.leaf, start: page.bytes, length: page.filled, sum: sum.word() }
    }
}

impl Drop for Page {
    #[inline]
    fn drop(&mut self) {
        release(self.leaf);
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Page({} of {})", self.filled, self.length)
    }
}

/// A run of written bytes in one page, with its cached sum. It is shared and read-only; a clone takes a
/// reference.
pub struct Slice {
    leaf: NonNull<Slot<PageHeader>>,
    start: NonNull<u8>,
    length: u32,
    sum: u16,
}
// SAFETY: written bytes never change while a slice refers to them, and the count is atomic.
unsafe impl Send for Slice {}
// SAFETY: a shared slice only reads bytes that no longer change, and is cloned through the atomic count.
unsafe impl Sync for Slice {}

impl Slice {
    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the slice holds a reference to its page, and its bytes were written before it was made and
        // are not written again.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.length as usize) }
    }

    /// Returns the length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.length as usize
    }

    #[inline]
    pub(crate) fn length_u32(&self) -> u32 {
        self.length
    }

    /// Returns whether the slice is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the cached one's-complement sum of the bytes.
    #[inline]
    pub fn sum(&self) -> Sum {
        Sum::from_word(self.sum)
    }

    /// Recomputes the cached sum from the bytes, for data from a link whose checksum status is not trusted.
    #[inline]
    pub fn recompute_sum(&mut self) {
        self.sum = Sum::of(self.bytes()).word();
    }

    /// Splits off the first `count` bytes and returns them as a slice; `self` keeps the rest.
    ///
    /// # Panics
    /// If there are fewer than `count` bytes.
    pub fn take_front(&mut self, count: usize) -> Slice {
        assert!(count <= self.len(), "a slice of {} bytes has no first {count}", self.length);
        let whole = self.sum();
        let (front, back) = self.bytes().split_at(count);
        let (front_sum, back_sum) = if back.is_empty() {
            (whole, Sum::ZERO)
        } else if front.len() <= back.len() {
            let front_sum = Sum::of(front);
            (front_sum, whole.minus(front_sum).at(count))
        } else {
            let back_sum = Sum::of(back);
            (whole.minus(back_sum.at(count)), back_sum)
        };
        hold(&self.leaf);
        let front = Slice { leaf: self.leaf, start: self.start, length: count as u32, sum: front_sum.word() };
        // SAFETY: `count` bytes lie within the slice.
        self.start = unsafe { self.start.add(count) };
        self.length -= count as u32;
        self.sum = back_sum.word();
        front
    }

    /// Drops the first `count` bytes.
    ///
    /// # Panics
    /// If there are fewer than `count` bytes.
    pub fn skip(&mut self, count: usize) {
        drop(self.take_front(count));
    }

    /// Keeps only the first `count` bytes. Does nothing if there are no more than that.
    pub fn truncate(&mut self, count: usize) {
        if count < self.len() {
            *self = self.take_front(count);
        }
    }

    /// Returns a slice of `length` bytes starting at `from`; the slice is shorter if fewer bytes follow.
    ///
    /// # Panics
    /// If `from` is beyond the end.
    pub fn range(&self, from: usize, length: usize) -> Slice {
        let mut part = self.clone();
        if from > 0 {
            part.skip(from);
        }
        part.truncate(length);
        part
    }

    /// Appends `next` if its bytes directly follow in the same page; otherwise returns it as the error.
    ///
    /// # Errors
    /// Returns `next` if its bytes do not directly follow in the same page.
    #[inline]
    pub fn join(&mut self, next: Slice) -> Result<(), Slice> {
        // SAFETY: the result is at most one past the end of the slice's page.
        let end = unsafe { self.start.add(self.len()) };
        if next.leaf != self.leaf || next.start != end {
            return Err(next);
        }
        self.sum = self.sum().then(self.len(), next.sum()).word();
        self.length += next.length;
        Ok(())
    }
}

impl Clone for Slice {
    #[inline]
    fn clone(&self) -> Slice {
        hold(&self.leaf);
        Slice { leaf: self.leaf, start: self.start, length: self.length, sum: self.sum }
    }
}

impl Drop for Slice {
    #[inline]
    fn drop(&mut self) {
        release(self.leaf);
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slice({} bytes, sum {:04x})", self.length, self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use alloc::vec::Vec;
    use std::sync::mpsc;

    /// Mainly for ThreadSanitizer and Miri (`make sanitize`): in whatever order the holders drop their
    /// slices, all their reads must happen before the next write.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test is about other threads")]
    fn a_page_is_reused_only_after_its_readers_on_other_threads() {
        let rounds = if cfg!(miri) { 30 } else { 5_000u32 };
        let mut pool = PagePool::new(2, 64);
        let reader = || {
            let (sender, slices) = mpsc::channel::<(u8, Slice)>();
            let thread = std::thread::spawn(move || {
                slices
                    .iter()
                    .filter(|(filling, slice)| slice.bytes().iter().all(|byte| byte == filling))
                    .count()
            });
            (sender, thread)
        };
        let (senders, threads): (Vec<_>, Vec<_>) = (0..3).map(|_| reader()).unzip();
        for round in 0..rounds {
            let mut page = loop {
                match pool.take() {
                    Some(page) => break page,
                    None => core::hint::spin_loop(),
                }
            };
            let slice = page.append(&[round as u8; 64]).expect("an empty page has room");
            drop(page);
            senders.iter().for_each(|sender| sender.send((round as u8, slice.clone())).expect("a reader"));
        }
        drop(senders);
        for thread in threads {
            assert_eq!(thread.join().expect("it only reads"), rounds as usize);
        }
        assert_eq!(pool.available(), 2);
    }
}
