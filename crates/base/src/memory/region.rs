//! Registered memory, which a board accesses by handle, and views of memory that others may change.
//!
//! Purpose   a board moves data directly between host memory and a link, with no intermediate page and one
//!           copy at each edge.
//! Sharing   another thread or process may write to this memory at any time, so no Rust reference to it is
//!           ever created. Bytes are copied out ([`SharedBytes::copy_to`]) and validated in the copy, or
//!           moved without being read.
//! Region    a run of memory with the address that its owner uses for it. It lives as long as any clone is
//!           held.
//! Unmapped  an access to foreign memory that is no longer mapped fails, if the process handles the signal
//!           (`copy.rs`). An unspecified part has then been copied.
//! Limits    every call checks bounds; an out-of-range access returns `None` and moves nothing.

use super::copy::{copy, is_readable};
use super::sum::{Sum, copy_and_sum_from};
use crate::bell::Bell;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;
use core::ptr::NonNull;

/// Bytes that others may be writing to; they can be copied but not referenced.
#[derive(Clone, Copy)]
pub struct SharedBytes<'a> {
    base: NonNull<u8>,
    length: usize,
    /// True if made from a slice, so that no other process or thread writes to the bytes.
    private: bool,
    life: PhantomData<&'a [u8]>,
}

// SAFETY: this is a pointer and a length to memory that outlives `'a`; all access is by copy.
unsafe impl Send for SharedBytes<'_> {}

impl<'a> From<&'a [u8]> for SharedBytes<'a> {
    fn from(bytes: &'a [u8]) -> SharedBytes<'a> {
        let base = NonNull::from(bytes).cast();
        SharedBytes { base, length: bytes.len(), private: true, life: PhantomData }
    }
}

impl<'a> SharedBytes<'a> {
    /// Creates a view of `length` bytes at `base`.
    ///
    /// # Safety
    /// `length` bytes from `base` must stay readable for `'a`.
    pub const unsafe fn new(base: NonNull<u8>, length: usize) -> SharedBytes<'a> {
        SharedBytes { base, length, private: false, life: PhantomData }
    }

    /// Returns the length in bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns whether there are no bytes.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the bytes as a slice, or `None` if others may change them.
    #[inline]
    pub const fn private(&self) -> Option<&'a [u8]> {
        if !self.private {
            return None;
        }
        // SAFETY: `private` is set only when this was made from a slice of this length that lives for `'a`.
        Some(unsafe { core::slice::from_raw_parts(self.base.as_ptr(), self.length) })
    }

    /// Copies as many bytes from offset `at` as fit into `target`, and returns their number: zero if `at` is
    /// beyond the end, or if some of the bytes are no longer mapped.
    #[inline]
    pub fn copy_to(&self, at: usize, target: &mut [u8]) -> usize {
        let count = self.length.saturating_sub(at).min(target.len());
        if count == 0 {
            return 0;
        }
        // SAFETY: `at + count <= length`, and `target` owns `count` bytes.
        let copied = unsafe { copy(self.base.as_ptr().add(at), target.as_mut_ptr(), count) };
        if copied { count } else { 0 }
    }

    /// Like [`SharedBytes::copy_to`], and also returns the sum of the bytes copied.
    #[inline]
    pub fn copy_and_sum_to(&self, at: usize, target: &mut [u8]) -> (usize, Sum) {
        let count = self.length.saturating_sub(at).min(target.len());
        if count == 0 {
            return (0, Sum::ZERO);
        }
        // SAFETY: `at + count <= length`.
        (count, unsafe { copy_and_sum_from(&mut target[..count], self.base.as_ptr().add(at)) })
    }

    /// Appends all bytes to `target`; if some of them are no longer mapped, appends as many zeros.
    #[inline]
    pub fn append_to(&self, target: &mut Vec<u8>) {
        target.reserve(self.length);
        let end = target.len();
        // SAFETY: `reserve` made room for `length` bytes after the end, which the vector owns; its length is
        // extended only after they are written.
        unsafe {
            let room = target.as_mut_ptr().add(end);
            if !copy(self.base.as_ptr(), room, self.length) {
                room.write_bytes(0, self.length);
            }
            target.set_len(end + self.length);
        }
    }

    /// Returns the bytes from offset `at` on; returns none if `at` is beyond the end.
    #[inline]
    #[must_use]
    pub fn after(&self, at: usize) -> SharedBytes<'a> {
        self.part(at, usize::MAX)
    }

    /// Returns at most `length` bytes from offset `at`.
    #[inline]
    #[must_use]
    pub fn part(&self, at: usize, length: usize) -> SharedBytes<'a> {
        let at = at.min(self.length);
        let length = length.min(self.length - at);
        // SAFETY: `at` is within the bytes or one past the end.
        SharedBytes { base: unsafe { self.base.add(at) }, length, ..*self }
    }
}

impl fmt::Debug for SharedBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBytes({})", self.length)
    }
}

/// A writable area that others may be reading or writing; bytes are copied in.
pub struct SharedRoom<'a> {
    base: NonNull<u8>,
    length: usize,
    private: bool,
    life: PhantomData<&'a mut [u8]>,
}

impl<'a> From<&'a mut [u8]> for SharedRoom<'a> {
    fn from(bytes: &'a mut [u8]) -> SharedRoom<'a> {
        let length = bytes.len();
        SharedRoom { base: NonNull::from(bytes).cast(), length, private: true, life: PhantomData }
    }
}

impl SharedRoom<'_> {
    /// Creates a writable area of `length` bytes at `base`.
    ///
    /// # Safety
    /// `length` bytes from `base` must stay writable for `'a`, and no Rust reference to them may exist.
    pub const unsafe fn new(base: NonNull<u8>, length: usize) -> Self {
        SharedRoom { base, length, private: false, life: PhantomData }
    }

    /// Returns the size in bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns whether the area is empty.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the first `length` bytes, or `None` if others may change them or the area is shorter.
    #[inline]
    pub fn private(&mut self, length: usize) -> Option<&mut [u8]> {
        if !self.private || length > self.length {
            return None;
        }
        // SAFETY: `private` is set only when this was made from a slice of at least this length, which stays
        // borrowed while `self` is.
        Some(unsafe { core::slice::from_raw_parts_mut(self.base.as_ptr(), length) })
    }

    /// Copies `bytes` to offset `at`. If a part of either memory is no longer mapped, the contents there are
    /// unspecified afterwards.
    ///
    /// # Panics
    /// If they do not fit; the caller knows the size.
    #[inline]
    pub fn write(&mut self, at: usize, bytes: SharedBytes<'_>) {
        assert!(at <= self.length && bytes.length <= self.length - at, "written beyond the room");
        // SAFETY: the assertion checked that the bytes fit. Source and target may overlap in host memory (a
        // region registered as a ring), which `copy` allows.
        unsafe { copy(bytes.base.as_ptr(), self.base.as_ptr().add(at), bytes.length) };
    }
}

impl fmt::Debug for SharedRoom<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedRoom({})", self.length)
    }
}

/// A run of host memory that a board may use.
#[derive(Clone)]
pub struct Region {
    base: NonNull<u8>,
    length: usize,
    address: u64,
    /// The owner of the memory, dropped with the last clone of the region; `None` if the host manages the
    /// memory.
    keep: Option<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: all access is by copy through raw pointers; the owner is itself `Send + Sync`.
unsafe impl Send for Region {}
// SAFETY: a shared region gives access only by copy through raw pointers, or to the atomics of a bell; the
// owner is itself `Sync`.
unsafe impl Sync for Region {}

/// A cache line of memory.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line(#[expect(dead_code, reason = "only its address counts")] [u8; 64]);

/// Memory allocated by a region itself, in whole cache lines.
struct Owned(NonNull<[Line]>);

// SAFETY: this value is the only owner of the lines.
unsafe impl Send for Owned {}
// SAFETY: a shared `Owned` gives no access to the lines; the region reaches them only by copying.
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a leaked box in `Region::new`.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Region {
    /// Allocates zeroed memory that starts at a cache line; `address` is the address of its first byte for
    /// users.
    pub fn new(address: u64, bytes: usize) -> Region {
        let lines = alloc::vec![Line([0; 64]); bytes.div_ceil(64)].into_boxed_slice();
        let base = NonNull::from(Box::leak(lines));
        let keep = Owned(base);
        Region { base: base.cast(), length: bytes, address, keep: Some(Arc::new(keep)) }
    }

    /// Creates a region over memory that the caller owns, addressed by its real address.
    ///
    /// # Safety
    /// `length` bytes from `base` must stay readable and writable while a clone of this region is held, and
    /// no Rust reference to them may exist while a board runs. With `keep`, holding it is enough to keep the
    /// memory alive. Without `keep`, in a process that handles faults ([`crate::recovery`]), the caller may
    /// unmap the bytes, but must not then map memory at these addresses that others must not read or write.
    pub unsafe fn foreign(
        base: NonNull<u8>,
        length: usize,
        keep: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Region {
        Region { base, length, address: base.as_ptr() as u64, keep }
    }

    /// Returns the same memory, with `address` as the address of its first byte.
    #[must_use]
    pub fn with_address(self, address: u64) -> Region {
        Region { address, ..self }
    }

    /// Returns a part of the memory with unchanged addresses. The part keeps the whole memory alive. Returns
    /// `None` if the part is out of range.
    pub fn part(&self, address: u64, length: usize) -> Option<Region> {
        let range = self.range(address, length)?;
        // SAFETY: the range lies within the region, or is empty and starts at its end.
        let base = unsafe { self.base.add(range.start) };
        Some(Region { base, length, address, keep: self.keep.clone() })
    }

    /// Returns the address of the first byte.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Returns the length in bytes.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns whether the region has no bytes.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the pointer to the first byte.
    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the bell at byte offset `at`, or `None` if it does not fit there or is misaligned.
    pub fn bell(&self, at: usize) -> Option<&Bell> {
        let end = at.checked_add(size_of::<Bell>())?;
        let place = self.base.as_ptr() as usize + at.min(self.length);
        if end > self.length || !place.is_multiple_of(align_of::<Bell>()) {
            return None;
        }
        // SAFETY: the bell lies within the region and is aligned; it consists of atomics, for which every bit
        // pattern is valid, and the memory lives while `self` is held.
        Some(unsafe { self.base.add(at).cast::<Bell>().as_ref() })
    }

    /// Returns the owner of the memory, if there is one.
    pub const fn owner(&self) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.keep.as_ref()
    }

    /// Returns the byte offsets of `length` bytes at `address`, or `None` if they are not all within the
    /// region.
    #[inline]
    pub fn range(&self, address: u64, length: usize) -> Option<Range<usize>> {
        let at = usize::try_from(address.checked_sub(self.address)?).ok()?;
        let end = at.checked_add(length)?;
        (end <= self.length).then_some(at..end)
    }

    /// Returns `length` bytes at `address`, or `None` if they are not all within the region.
    #[inline]
    pub fn bytes(&self, address: u64, length: usize) -> Option<SharedBytes<'_>> {
        let range = self.range(address, length)?;
        // SAFETY: the range lies within the region, which stays readable while `self` is held.
        Some(unsafe { SharedBytes::new(self.base.add(range.start), length) })
    }

    /// Copies `bytes` to `address`. Returns `None` and copies nothing if they do not all fit; also returns
    /// `None`, after copying an unspecified part, if a part of either memory is no longer mapped.
    #[inline]
    pub fn write(&self, address: u64, bytes: SharedBytes<'_>) -> Option<()> {
        let range = self.range(address, bytes.len())?;
        // SAFETY: the range lies within the region, which stays writable while `self` is held; `copy` allows
        // source and target to overlap.
        unsafe { copy(bytes.base.as_ptr(), self.base.as_ptr().add(range.start), bytes.length) }.then_some(())
    }

    /// Returns whether `length` bytes at `address` lie within the region and are still mapped.
    #[inline]
    pub fn is_readable(&self, address: u64, length: usize) -> bool {
        self.range(address, length).is_some_and(|range| {
            // Memory that `keep` holds is not unmapped.
            // SAFETY: the range lies within the region, which stays readable while `self` is held.
            self.keep.is_some() || unsafe { is_readable(self.base.as_ptr().add(range.start), length) }
        })
    }

    /// Returns whether the two regions share a byte.
    pub fn overlaps(&self, other: &Region) -> bool {
        let range = |region: &Region| {
            let start = region.base.as_ptr() as usize;
            (start, start + region.length)
        };
        let ((a, a_end), (b, b_end)) = (range(self), range(other));
        a < b_end && b < a_end
    }

    /// Returns the pointer to the first byte and the length, for an operating system that accesses the memory
    /// itself while the region is held.
    pub const fn raw(&self) -> (NonNull<u8>, usize) {
        (self.base, self.length)
    }

    /// Copies a part into a vector, for tests and tools.
    pub fn read(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        let mut copy = alloc::vec![0; length];
        self.bytes(address, length)?.copy_to(0, &mut copy);
        Some(copy)
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({:#x}+{})", self.address, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_out_of_range_access_is_refused_and_moves_nothing() {
        let region = Region::new(0x1000, 100);
        assert_eq!(region.write(0x1000, SharedBytes::from(&[7u8; 100][..])), Some(()));
        for (address, length) in [(0xfff, 1), (0x1000, 101), (0x1064, 1), (u64::MAX, 2), (0, usize::MAX)] {
            assert!(region.bytes(address, length).is_none(), "{address:#x}+{length}");
        }
        assert_eq!(region.write(0x1001, SharedBytes::from(&[1u8; 100][..])), None);
        assert_eq!(region.read(0x1000, 100), Some(alloc::vec![7; 100]));
        assert_eq!(region.read(0x1064, 0), Some(Vec::new()));
    }

    #[test]
    fn a_part_stays_within_its_region() {
        let bytes = [1u8, 2, 3, 4];
        let whole = SharedBytes::from(&bytes[..]);
        let mut copy = [0; 8];
        assert_eq!(whole.part(1, 2).copy_to(0, &mut copy), 2);
        assert_eq!(copy[..2], [2, 3]);
        assert_eq!(whole.after(9).len(), 0);
        assert_eq!(whole.part(3, usize::MAX).len(), 1);
        assert_eq!(whole.copy_to(4, &mut copy), 0);
    }

    #[test]
    fn a_copy_with_a_sum_has_the_source_bytes_and_their_sum() {
        const LENGTH: usize = 70_001;
        let bytes: Vec<u8> = (0..LENGTH as u32).map(|n| (n * 7 / 3) as u8).collect();
        for (at, room) in
            [(0, LENGTH), (1, 65_000), (1, 700), (3, 96), (LENGTH - 10, 64), (LENGTH - 1, 1), (LENGTH, 5)]
        {
            let mut target = alloc::vec![0xaa; LENGTH];
            let (count, sum) = SharedBytes::from(&bytes[..]).copy_and_sum_to(at, &mut target[..room]);
            assert_eq!(count, room.min(LENGTH - at));
            assert_eq!(target[..count], bytes[at..at + count]);
            assert_eq!(sum, Sum::of(&bytes[at..at + count]));
            assert!(target[count..].iter().all(|byte| *byte == 0xaa), "{at}: nothing beyond");
        }
    }

    #[test]
    fn bytes_are_appended_to_a_vector() {
        let region = Region::new(0, 5000);
        let bytes: Vec<u8> = (0..5000u32).map(|at| at as u8).collect();
        region.write(0, SharedBytes::from(&bytes[..])).expect("within");
        let mut target = alloc::vec![7, 8];
        region.bytes(10, 4990).expect("within").append_to(&mut target);
        region.bytes(0, 0).expect("within").append_to(&mut target);
        assert_eq!((&target[..2], &target[2..]), (&[7, 8][..], &bytes[10..]));
    }

    #[test]
    fn a_region_lives_while_a_clone_is_held() {
        let region = Region::new(0, 16);
        let clone = region.clone();
        drop(region);
        clone.write(8, SharedBytes::from(&[9u8; 8][..])).expect("within");
        assert_eq!(clone.read(8, 8), Some(alloc::vec![9; 8]));
    }

    /// Mainly for Miri: no byte of a bell may be covered by a reference that requires it not to change.
    #[test]
    fn a_bell_stays_usable_when_its_bytes_are_overwritten() {
        let region = Region::new(0, 64);
        let bell = region.bell(16).expect("it fits");
        bell.arm();
        region.write(16, SharedBytes::from(&[0xff; size_of::<Bell>()][..])).expect("within");
        assert!(!bell.is_armed());
        assert_eq!(bell.disarm(), Some(u64::MAX));
        bell.arm();
        assert!(bell.ring(|| 1));
    }

    #[test]
    #[should_panic(expected = "written beyond the room")]
    fn a_write_beyond_the_room_panics() {
        let mut bytes = [0u8; 4];
        SharedRoom::from(&mut bytes[..]).write(2, SharedBytes::from(&[1u8; 3][..]));
    }
}
