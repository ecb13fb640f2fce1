//! Content pages: shared, read-only packet payload in memory sized at start (papers \[1\] and \[5\]).
//!
//! Goal      payload is written once, and from then on only referred to.
//! Write     a [`Page`] is the only writer of the bytes that nobody has written yet; `append` copies bytes in,
//!           forms their one's-complement sum on the way, and returns a [`Slice`] of them.
//! Share     a `Slice` is a run of written bytes. Cloning counts a reference; the last one out, of slices and
//!           writer, brings the page home, on any thread.
//! Sums      a slice remembers its sum. A cut reads only the shorter part and subtracts; a join adds.
//! Limits    pages are `page_bytes` long; `take` returns nothing when all are out.

use crate::depot::{Depot, Slot};
use crate::references::References;
use crate::region::SharedBytes;
use crate::sum::{Sum, copy_and_sum};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::fmt;
use core::ptr::NonNull;

/// The memory that pages stand on; it goes when the last page and the pool have gone.
struct Memory(Box<[UnsafeCell<u8>]>);
// SAFETY: a byte is written only by the one `Page` that owns it and before any `Slice` of it exists.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// What a page is: where its bytes are and who refers to them.
struct Leaf {
    references: References,
    bytes: NonNull<u8>,
    length: u32,
    _memory: Arc<Memory>,
}
// SAFETY: the pointer leads into `_memory`, see there.
unsafe impl Send for Leaf {}

/// A pool of content pages of one size. The owner takes pages; anybody brings them home.
pub struct Pool {
    depot: Depot<Leaf>,
    page_bytes: usize,
}

impl Pool {
    /// A pool of `pages` pages of `page_bytes` bytes each.
    ///
    /// # Panics
    /// When a page would be empty or longer than `u32` counts.
    pub fn new(pages: usize, page_bytes: usize) -> Pool {
        assert!(page_bytes > 0 && u32::try_from(page_bytes).is_ok(), "a page has 1..2^32 bytes");
        let bytes = alloc::vec![0u8; pages * page_bytes].into_boxed_slice();
        // SAFETY: `UnsafeCell<u8>` has the layout of `u8`, and the box is owned here.
        let memory =
            Arc::new(Memory(unsafe { Box::from_raw(Box::into_raw(bytes) as *mut [UnsafeCell<u8>]) }));
        let depot = Depot::new(pages, |index| Leaf {
            references: References::none(),
            bytes: NonNull::new(UnsafeCell::raw_get(memory.0[index * page_bytes..].as_ptr()))
                .expect("a page of a live allocation"),
            length: page_bytes as u32,
            _memory: memory.clone(),
        });
        Pool { depot, page_bytes }
    }

    /// An empty, writable page, or nothing when all pages are out.
    #[inline]
    pub fn take(&mut self) -> Option<Page> {
        let slot = self.depot.take()?;
        // SAFETY: the slot has just been taken: nobody else refers to it.
        let leaf = unsafe { &*slot.as_ref().value() };
        leaf.references.begin();
        Some(Page { leaf: slot, bytes: leaf.bytes, filled: 0, length: leaf.length })
    }

    /// Bytes in each page.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Drops a slice where its pool's owner is at hand: cheaper than to let it find its way home.
    #[inline]
    pub fn give(&mut self, slice: Slice) {
        // A sole holder cannot race with anybody.
        if references(&slice.leaf).is_sole() {
            let slot = slice.leaf;
            core::mem::forget(slice);
            // SAFETY: that was the last reference: nobody uses the page any more.
            unsafe { self.depot.give(slot) };
        }
    }

    /// Refuses the `n`-th take from now (1: the next), once: starvation on purpose, for tests.
    pub fn refuse(&mut self, n: u64) {
        self.depot.refuse(n);
    }

    /// Pages in the pool, out or at home.
    pub fn capacity(&self) -> usize {
        self.depot.capacity()
    }

    /// Pages at home.
    pub fn at_home(&mut self) -> usize {
        self.depot.at_home()
    }
}

#[inline]
fn references(slot: &NonNull<Slot<Leaf>>) -> &References {
    // SAFETY: a holder of a reference keeps the slot out, so its value lives; only atomics and constants are read.
    unsafe { &(*slot.as_ref().value()).references }
}

#[inline]
fn hold(slot: &NonNull<Slot<Leaf>>) {
    references(slot).hold();
}

#[inline]
fn release(slot: NonNull<Slot<Leaf>>) {
    if references(&slot).release() {
        // SAFETY: this was the last reference: nobody uses the page any more.
        unsafe { Slot::bring_home(slot) };
    }
}

/// A page that is being written: the bytes behind the mark belong to this writer alone.
pub struct Page {
    leaf: NonNull<Slot<Leaf>>,
    bytes: NonNull<u8>,
    filled: u32,
    length: u32,
}
// SAFETY: the writer owns the unwritten bytes, the written ones are read-only, the count is atomic.
unsafe impl Send for Page {}
// SAFETY: a shared writer gives nothing but its lengths.
unsafe impl Sync for Page {}

impl Page {
    /// Bytes that still fit.
    #[inline]
    pub fn room(&self) -> usize {
        (self.length - self.filled) as usize
    }

    /// Bytes written so far.
    #[inline]
    pub fn filled(&self) -> usize {
        self.filled as usize
    }

    /// The bytes written so far, for checks that run over them while they are in the cache.
    pub fn written(&self) -> &[u8] {
        // SAFETY: bytes before `filled` have been written and are never written again.
        unsafe { core::slice::from_raw_parts(self.bytes.as_ptr(), self.filled as usize) }
    }

    /// The bytes that nobody has written yet: where a link lets the system write what arrives ([`Page::land`]).
    #[inline]
    pub fn unwritten(&mut self) -> &mut [u8] {
        // SAFETY: bytes behind `filled` are in no slice, and `&mut self` is the only writer.
        unsafe { core::slice::from_raw_parts_mut(self.bytes.as_ptr().add(self.filled as usize), self.room()) }
    }

    /// Copies as much of `source` as fits, in one pass with the sum; how many bytes and their sum.
    #[inline]
    pub fn fill(&mut self, source: &[u8]) -> (usize, Sum) {
        let count = source.len().min(self.room());
        let sum = copy_and_sum(&mut self.unwritten()[..count], &source[..count]);
        self.filled += count as u32;
        (count, sum)
    }

    /// Copies as much of `source` as fits and returns the slice of it, or nothing when the page is full.
    #[inline]
    pub fn append(&mut self, source: &[u8]) -> Option<Slice> {
        let from = self.filled();
        let (count, sum) = self.fill(source);
        (count > 0).then(|| self.slice(from, count, sum))
    }

    /// The same of bytes that others may write to meanwhile: the sum is of what was copied.
    pub fn append_shared(&mut self, source: SharedBytes<'_>) -> Option<Slice> {
        let from = self.filled();
        let (count, sum) = source.copy_and_sum_to(0, self.unwritten());
        self.filled += count as u32;
        (count > 0).then(|| self.slice(from, count, sum))
    }

    /// The slice of the next `count` bytes, which have been written into [`Page::unwritten`]. Its sum is not known:
    /// whoever needs it reads the bytes ([`Slice::sum_again`]), or the PDU is noted as verified.
    ///
    /// # Panics
    /// When the page has less room.
    #[inline]
    pub fn land(&mut self, count: usize) -> Slice {
        assert!(count <= self.room(), "no more lands than there is room for");
        let from = self.filled();
        self.filled += count as u32;
        self.slice(from, count, Sum::ZERO)
    }

    /// A slice of bytes written before, whose sum the caller formed while it wrote them.
    ///
    /// # Panics
    /// When the bytes have not been written yet.
    #[inline]
    pub fn slice(&self, from: usize, length: usize, sum: Sum) -> Slice {
        assert!(from + length <= self.filled(), "a slice shows written bytes only");
        hold(&self.leaf);
        Slice {
            leaf: self.leaf,
            // SAFETY: within the page, checked above.
            start: unsafe { self.bytes.add(from) },
            length: length as u32,
            sum: sum.word(),
        }
    }
}

impl From<(Page, Sum)> for Slice {
    /// The whole of a page that is done, whose sum the caller formed while it wrote: the writer's reference becomes
    /// the slice's.
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

/// A run of written bytes of one page, with its sum. Shared and read-only; a clone is a reference.
pub struct Slice {
    leaf: NonNull<Slot<Leaf>>,
    start: NonNull<u8>,
    length: u32,
    sum: u16,
}
// SAFETY: written bytes never change while a slice shows them, and the count is atomic.
unsafe impl Send for Slice {}
// SAFETY: as above.
unsafe impl Sync for Slice {}

impl Slice {
    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the slice holds its page; its bytes were written before it was made and are not written again.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.length as usize) }
    }

    /// How many bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.length as usize
    }

    #[inline]
    pub(crate) fn length_u32(&self) -> u32 {
        self.length
    }

    /// Whether there is no byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The one's-complement sum of the bytes, remembered.
    #[inline]
    pub fn sum(&self) -> Sum {
        Sum::from_word(self.sum)
    }

    /// Reads the bytes and remembers their sum anew: for what came over a link whose notes are not believed.
    #[inline]
    pub fn sum_again(&mut self) {
        self.sum = Sum::of(self.bytes()).word();
    }

    /// Takes the first `count` bytes off and returns them as a slice of their own; `self` keeps the rest.
    ///
    /// # Panics
    /// When there are fewer than `count` bytes.
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

    /// Takes the first `count` bytes off and forgets them.
    ///
    /// # Panics
    /// When there are fewer than `count` bytes.
    pub fn skip(&mut self, count: usize) {
        drop(self.take_front(count));
    }

    /// Keeps only the first `count` bytes.
    ///
    /// # Panics
    /// When there are fewer than `count` bytes.
    pub fn truncate(&mut self, count: usize) {
        if count < self.len() {
            *self = self.take_front(count);
        }
    }

    /// A slice of `length` bytes from `from` on.
    ///
    /// # Panics
    /// When they are not all there.
    pub fn range(&self, from: usize, length: usize) -> Slice {
        let mut part = self.clone();
        if from > 0 {
            part.skip(from);
        }
        part.truncate(length);
        part
    }

    /// Joins `next` to the end when its bytes follow directly in the same page; otherwise gives it back.
    #[inline]
    pub fn join(&mut self, next: Slice) -> Result<(), Slice> {
        // SAFETY: at most one past the end of the slice's page.
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

    /// For ThreadSanitizer and Miri (`make sanitize`) more than for its assertions: whatever order the holders end in, the
    /// next writer comes after what each of them has read.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test is about other threads")]
    fn a_page_is_written_again_only_after_its_readers_on_other_threads() {
        let rounds = if cfg!(miri) { 30 } else { 5_000u32 };
        let mut pool = Pool::new(2, 64);
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
        assert_eq!(pool.at_home(), 2);
    }
}
