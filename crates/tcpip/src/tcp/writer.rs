//! The end of one stream, to append to.

use super::fairness::share::Share;
use super::session::Session;
use kiban_base::Slice;

/// The end of one stream, see [`Tcp::writer`](super::Tcp::writer).
pub struct Writer<'a> {
    pub(super) session: &'a mut Session,
    pub(super) share: &'a mut Share,
    pub(super) room: usize,
    pub(super) grain: usize,
    pub(super) least: usize,
    pub(super) before: u32,
}

impl Writer<'_> {
    /// Bytes that may still be appended.
    #[inline]
    pub fn room(&self) -> usize {
        self.room
    }

    /// Whether nothing of the stream is under way or waits.
    pub fn is_empty(&self) -> bool {
        self.session.queued() == 0
    }

    /// Asks for [`Indication::Writable`](super::Indication::Writable): a write was cut short.
    pub fn wait_for_room(&mut self) {
        self.session.writer_waits = true;
    }

    /// Bytes that may be taken of a write of `wanted`: less than the low-water mark only if it is all.
    #[inline]
    pub fn room_for(&self, wanted: usize) -> usize {
        if self.room < wanted.min(self.least) { 0 } else { self.room.min(wanted) }
    }

    /// Bytes at which a slice should end, so that segments are whole slices and their sums known.
    #[inline]
    pub fn grain(&self) -> usize {
        self.grain
    }

    /// Appends; beyond the room the slice comes back.
    #[inline]
    pub fn push(&mut self, slice: Slice) -> Result<(), Slice> {
        if slice.len() > self.room {
            return Err(slice);
        }
        self.room -= slice.len();
        self.session.append(slice, self.grain as u32);
        Ok(())
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        self.share.change(self.before, self.session.queued(), self.session.claim);
    }
}

impl core::fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Writer({} bytes of room)", self.room)
    }
}
