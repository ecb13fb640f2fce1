//! A pipe: a stream of bytes from one side to the other, in memory that both see.
//!
//! Goal      a byte stream between two processes of one machine at the speed of copying, without a system call.
//! Place     a [`Region`] that two processes map, `at` bytes from its start, aligned to a cache line.
//!
//! ```text
//! line 0    written u32 | ended u32                 bytes that the writer has put in since the start; no more follow
//! line 1    read u32                                bytes that the reader has taken
//! line 2    bytes …                                 byte n of the stream at n modulo their number
//! ```
//!
//! Trust     both sides count for themselves and never read their own numbers back. A number of the other side's is read
//!           once and judged: one that cannot be means [`Condemned`], for good. Bytes are copied out once, before anybody
//!           looks at them.
//! Pieces    a long run is shown to the reader piece by piece, so that both sides copy at the same time; and a pipe that was
//!           full has room again when a whole piece is free. A piece is so long that what one side touches has left the
//!           caches that are the other side's own: lines that go from one to the other directly cost several times more
//!           than those that the shared cache has.
//! Proof     `crates/model` runs this very code in every order that the memory model allows, within bounds.
//! Limits    the room is a power of two, at most 2^30 bytes.
//! Left out  waking: that is the bell's.

use crate::atomic::{AtomicU32, Ordering};
use crate::region::{Region, SharedBytes};
use crate::ring::Condemned;

/// Bytes before the room.
const FRONT_BYTES: usize = 128;
/// Pieces that the room has.
const PIECES: u32 = 16;

/// Bytes of memory that a pipe with so much room takes.
pub const fn bytes(room: usize) -> usize {
    FRONT_BYTES + room
}

struct Side {
    memory: Region,
    at: usize,
    room: u32,
}

impl Side {
    fn new(memory: &Region, at: usize, room: usize) -> Side {
        let fits = at.checked_add(bytes(room)).is_some_and(|end| end <= memory.len());
        let place = memory.base().as_ptr() as usize + at;
        assert!(room.is_power_of_two() && room <= 1 << 30, "a pipe's room is a power of two");
        assert!(fits && place.is_multiple_of(64), "a pipe of {room} bytes begins with a cache line");
        Side { memory: memory.clone().called(0), at, room: room as u32 }
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `new` saw that the pipe lies within the memory and is aligned; `at` is a multiple of four in its front.
        // The memory lives while `self.memory` is held, and everybody reaches its words by atomics.
        unsafe { self.memory.base().add(self.at + at).cast::<AtomicU32>().as_ref() }
    }

    fn written(&self) -> &AtomicU32 {
        self.word(0)
    }

    fn ended(&self) -> &AtomicU32 {
        self.word(4)
    }

    fn read(&self) -> &AtomicU32 {
        self.word(64)
    }

    #[inline]
    fn piece(&self) -> u32 {
        (self.room / PIECES).max(1)
    }

    /// Where byte `count` of the stream stands, and how many stand behind it in a row.
    #[inline]
    fn place(&self, count: u32) -> (u64, usize) {
        let at = count & (self.room - 1);
        ((self.at + FRONT_BYTES + at as usize) as u64, (self.room - at) as usize)
    }
}

/// The side that writes.
pub struct Writer {
    side: Side,
    written: u32,
    shown: u32,
    read: u32,
    /// There was less room than wanted, and no piece of it is free yet.
    full: bool,
}

impl Writer {
    /// The writer of a new pipe, in memory that is zero.
    ///
    /// # Panics
    /// When the pipe does not fit there, or its room is no power of two.
    pub fn new(memory: &Region, at: usize, room: usize) -> Writer {
        Writer { side: Side::new(memory, at, room), written: 0, shown: 0, read: 0, full: false }
    }

    /// Bytes of room, looking again only if `wanted` are not known to be free; none, if there were less before and are less
    /// than a piece now.
    ///
    /// # Errors
    /// The reader broke the pipe.
    #[inline]
    pub fn room(&mut self, wanted: usize) -> Result<usize, Condemned> {
        let known = self.side.room - self.written.wrapping_sub(self.read);
        if known as usize >= wanted {
            return Ok(known as usize);
        }
        let read = self.side.read().load(Ordering::Acquire);
        // It never goes back, and never beyond what was written.
        if read.wrapping_sub(self.read) > self.written.wrapping_sub(self.read) {
            return Err(Condemned);
        }
        let room = self.side.room - self.written.wrapping_sub(read);
        if self.full && room < self.side.piece() {
            return Ok(0);
        }
        self.read = read;
        self.full = (room as usize) < wanted;
        Ok(room as usize)
    }

    /// Copies in as many bytes as there is room for: how many. The last of them are shown by [`Writer::show`].
    ///
    /// # Errors
    /// The reader broke the pipe.
    pub fn write(&mut self, mut bytes: SharedBytes<'_>) -> Result<usize, Condemned> {
        let most = self.room(bytes.len())?.min(bytes.len());
        let mut done = 0;
        while done < most {
            let (place, row) = self.side.place(self.written);
            let piece = row.min(most - done).min(self.side.piece() as usize);
            // It is within the room.
            let _ = self.side.memory.write(place, bytes.part(0, piece));
            bytes = bytes.after(piece);
            self.written = self.written.wrapping_add(piece as u32);
            done += piece;
            if self.written.wrapping_sub(self.shown) >= self.side.piece() {
                self.show();
            }
        }
        Ok(done)
    }

    /// Whether the reader has taken all that was written.
    pub fn is_taken(&self) -> bool {
        self.side.read().load(Ordering::Acquire) == self.written
    }

    /// Shows the reader all that was written: whether there was something new.
    #[inline]
    pub fn show(&mut self) -> bool {
        let is_new = self.shown != self.written;
        if is_new {
            self.shown = self.written;
            self.side.written().store(self.written, Ordering::Release);
        }
        is_new
    }

    /// No more follow.
    pub fn end(&mut self) {
        self.show();
        self.side.ended().store(1, Ordering::Release);
    }
}

/// The side that reads.
pub struct Reader {
    side: Side,
    written: u32,
    read: u32,
}

impl Reader {
    /// The reader of a new pipe, in memory that was zero.
    ///
    /// # Panics
    /// When the pipe does not fit there, or its room is no power of two.
    pub fn new(memory: &Region, at: usize, room: usize) -> Reader {
        Reader { side: Side::new(memory, at, room), written: 0, read: 0 }
    }

    /// Bytes that can be read.
    ///
    /// # Errors
    /// The writer broke the pipe.
    #[inline]
    pub fn here(&mut self) -> Result<usize, Condemned> {
        let written = self.side.written().load(Ordering::Acquire);
        // It never goes back, and never beyond the room.
        if written.wrapping_sub(self.read) > self.side.room
            || written.wrapping_sub(self.read) < self.written.wrapping_sub(self.read)
        {
            return Err(Condemned);
        }
        self.written = written;
        Ok(written.wrapping_sub(self.read) as usize)
    }

    /// Whether the writer said that no more follow; ask before [`Reader::here`], whose answer is then the last.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.side.ended().load(Ordering::Acquire) != 0
    }

    /// Takes up to `most` bytes that [`Reader::here`] has seen: `put` is given them in one run or two, and what is left of
    /// them is room again piece by piece.
    pub fn take(&mut self, most: usize, mut put: impl FnMut(SharedBytes<'_>)) -> usize {
        let most = most.min(self.written.wrapping_sub(self.read) as usize);
        let mut done = 0;
        while done < most {
            let (place, row) = self.side.place(self.read);
            let piece = row.min(most - done).min(self.side.piece() as usize);
            if let Some(bytes) = self.side.memory.bytes(place, piece) {
                put(bytes);
            }
            self.read = self.read.wrapping_add(piece as u32);
            self.side.read().store(self.read, Ordering::Release);
            done += piece;
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const ROOM: usize = if cfg!(miri) { 1 << 10 } else { 1 << 16 };
    /// Bytes of a stream: several times the room.
    const STREAM: u32 = if cfg!(miri) { 5_000 } else { 400_000 };

    #[test]
    fn bytes_come_out_in_order_whatever_the_pieces() {
        let memory = Region::new(0, bytes(ROOM));
        let (mut writer, mut reader) = (Writer::new(&memory, 0, ROOM), Reader::new(&memory, 0, ROOM));
        let stream: Vec<u8> = (0..STREAM).map(|n| (n * 7 / 3) as u8).collect();
        let (mut sent, mut got, mut step) = (0, Vec::new(), 1);
        while got.len() < stream.len() {
            step = step * 5 % 100_003;
            let end = stream.len().min(sent + step);
            sent += writer.write(stream[sent..end].into()).expect("a decent reader");
            writer.show();
            let here = reader.here().expect("a decent writer");
            let most = here.min(step / 2 + 1);
            assert_eq!(reader.take(most, |run| run.append_to(&mut got)), most);
        }
        assert!(got == stream);
        assert!(!reader.has_ended());
        writer.end();
        assert!(reader.has_ended());
        assert_eq!(reader.here(), Ok(0));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a pipe is made for two threads")]
    fn threads_read_what_was_written_and_all_of_it() {
        let memory = Region::new(0, bytes(ROOM));
        let (mut writer, mut reader) = (Writer::new(&memory, 0, ROOM), Reader::new(&memory, 0, ROOM));
        let stream: Vec<u8> = (0..STREAM).map(|n| (n * 7 / 3) as u8).collect();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let mut sent = 0;
                while sent < stream.len() {
                    let end = stream.len().min(sent + 1000);
                    sent += writer.write(stream[sent..end].into()).expect("a decent reader");
                    writer.show();
                }
                writer.end();
            });
            let mut got = Vec::new();
            loop {
                let has_ended = reader.has_ended();
                let here = reader.here().expect("a decent writer");
                reader.take(here, |run| run.append_to(&mut got));
                if has_ended && here == 0 {
                    break;
                }
            }
            assert!(got == stream);
        });
    }

    #[test]
    fn what_is_not_shown_is_not_there() {
        let memory = Region::new(0, bytes(ROOM));
        let (mut writer, mut reader) = (Writer::new(&memory, 0, ROOM), Reader::new(&memory, 0, ROOM));
        assert_eq!(writer.write(b"abc"[..].into()), Ok(3));
        assert_eq!(reader.here(), Ok(0));
        assert!(writer.show());
        assert!(!writer.show());
        assert_eq!(reader.here(), Ok(3));
        assert_eq!(writer.write(alloc::vec![0; ROOM].as_slice().into()), Ok(ROOM - 3));
        assert_eq!(writer.write(b"x"[..].into()), Ok(0));
    }

    #[test]
    fn a_pipe_that_was_full_has_room_when_a_piece_is_free() {
        const PIECE: usize = ROOM / PIECES as usize;
        let memory = Region::new(0, bytes(ROOM));
        let (mut writer, mut reader) = (Writer::new(&memory, 0, ROOM), Reader::new(&memory, 0, ROOM));
        assert_eq!(writer.write(alloc::vec![0; ROOM].as_slice().into()), Ok(ROOM));
        assert_eq!(reader.here(), Ok(ROOM), "all pieces were shown");
        assert_eq!(
            (reader.take(PIECE, |_| ()), writer.room(1)),
            (PIECE, Ok(PIECE)),
            "it was not short of room"
        );
        assert_eq!(writer.write(alloc::vec![0; PIECE + 1].as_slice().into()), Ok(PIECE));
        assert_eq!((reader.take(PIECE - 1, |_| ()), writer.room(1)), (PIECE - 1, Ok(0)));
        assert_eq!((reader.take(1, |_| ()), writer.room(1)), (1, Ok(PIECE)));
    }

    #[test]
    fn numbers_that_cannot_be_condemn_the_pipe() {
        for garbage in [1u32, ROOM as u32 + 1, u32::MAX] {
            let memory = Region::new(0, bytes(ROOM));
            let (mut writer, mut reader) = (Writer::new(&memory, 0, ROOM), Reader::new(&memory, 0, ROOM));
            writer.side.read().store(garbage, Ordering::Relaxed);
            assert_eq!(writer.room(ROOM + 1), Err(Condemned));
            writer.side.written().store(garbage, Ordering::Relaxed);
            if garbage == 1 {
                assert_eq!(reader.here(), Ok(1));
                writer.side.written().store(0, Ordering::Relaxed);
            }
            assert_eq!(reader.here(), Err(Condemned));
        }
    }
}
