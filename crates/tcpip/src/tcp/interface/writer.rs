//! Appends data to the send queue of one session.

use crate::tcp::fairness::share::Share;
use crate::tcp::session::Session;
use kiban_base::Slice;

/// A writer for one session, from [`Tcp::writer`](crate::tcp::Tcp::writer). Dropping it updates the memory
/// share.
pub struct Writer<'a> {
    pub(in crate::tcp) session: &'a mut Session,
    pub(in crate::tcp) share: &'a mut Share,
    pub(in crate::tcp) room: usize,
    pub(in crate::tcp) grain: usize,
    pub(in crate::tcp) least: usize,
    pub(in crate::tcp) before: u32,
}

impl Writer<'_> {
    /// Returns the number of bytes that may still be appended.
    #[inline]
    pub fn room(&self) -> usize {
        self.room
    }

    /// Returns whether the send queue is empty: everything is acknowledged.
    pub fn is_empty(&self) -> bool {
        self.session.queued() == 0
    }

    /// Requests [`Indication::Writable`](crate::tcp::Indication::Writable) once there is room again, because
    /// a write was cut short.
    pub fn wait_for_room(&mut self) {
        self.session.writer_waits = true;
        self.session.write_cut_short = true;
    }

    /// Returns how many bytes to accept from a write of `wanted` bytes. The number is below the low-water
    /// mark only if it is the whole write.
    #[inline]
    pub fn room_for(&self, wanted: usize) -> usize {
        if self.room < wanted.min(self.least) { 0 } else { self.room.min(wanted) }
    }

    /// Returns the size at which a slice should end, bytes, so that segments are whole slices whose checksums
    /// are known.
    #[inline]
    pub fn grain(&self) -> usize {
        self.grain
    }

    /// Appends a slice.
    ///
    /// # Errors
    /// Returns the slice if it exceeds the room.
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
