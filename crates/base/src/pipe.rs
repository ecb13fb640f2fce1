//! A pipe: a one-way byte stream in shared memory.
//!
//! Purpose          pass a byte stream between two processes on one machine at the speed of copying, without
//!                  system calls.
//! Memory           a [`Region`] that two processes map, `at` bytes from its start, aligned to a cache line.
//!
//! ```text
//! line 0    written u32 | ended u32                 bytes written since the start; end of stream
//! line 1    read u32                                bytes that the reader has taken
//! line 2    bytes …                                 byte n of the stream, at n modulo the buffer size
//! ```
//!
//! Trust            each side keeps its own counts and never reads them back from shared memory. A number
//!                  written by the other side is read once and validated; an impossible one means
//!                  [`Poisoned`], permanently. Bytes are copied out once, before they are interpreted.
//! Pieces           a long run is published to the reader piece by piece, so that both sides copy at the same
//!                  time. A full pipe accepts more bytes only once a whole piece is free. Pieces are so large
//!                  that the data has left the writer's private caches before the reader reads it: direct
//!                  cache-to-cache transfers cost several times more than reads from the shared cache.
//! Proof            `crates/model` runs this code in every order that the memory model allows, within bounds.
//! Limits           the buffer is a power of two, at most 2^30 bytes.
//! Not implemented  waking the other side, which is the task of `Bell`.

use crate::atomic::{AtomicU32, Ordering};
use crate::region::{Region, SharedBytes};
use crate::ring::Poisoned;

/// Bytes before the buffer.
const FRONT_BYTES: usize = 128;
/// Number of pieces in the buffer.
const PIECES: u32 = 16;

/// Returns the number of bytes of memory that a pipe with a buffer of `room` bytes occupies.
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
        Side { memory: memory.clone().with_address(0), at, room: room as u32 }
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `new` checked that the pipe lies within the memory and is aligned; `at` is a multiple of
        // four within its header. The memory lives while `self.memory` is held, and all users access its
        // words atomically.
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

    /// Returns the address of stream byte `count`, and how many contiguous bytes follow from there.
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
    published: u32,
    read: u32,
    /// Set when less space than wanted was free. Cleared once a whole piece is free.
    full: bool,
}

impl Writer {
    /// Creates the writer of a new pipe, in zeroed memory.
    ///
    /// # Panics
    /// If the pipe does not fit there, is not aligned to a cache line, or `room` is not a power of two up to
    /// 2^30.
    pub fn new(memory: &Region, at: usize, room: usize) -> Writer {
        Writer { side: Side::new(memory, at, room), written: 0, published: 0, read: 0, full: false }
    }

    /// Returns the number of free bytes. Reads the reader's count only if fewer than `wanted` bytes are known
    /// to be free. Returns zero if the pipe was full before and less than a piece is free now.
    ///
    /// # Errors
    /// [`Poisoned`] if the reader violated the protocol.
    #[inline]
    pub fn room(&mut self, wanted: usize) -> Result<usize, Poisoned> {
        let known = self.side.room - self.written.wrapping_sub(self.read);
        if known as usize >= wanted {
            return Ok(known as usize);
        }
        let read = self.side.read().load(Ordering::Acquire);
        // The count must never decrease or exceed the number of bytes written.
        if read.wrapping_sub(self.read) > self.written.wrapping_sub(self.read) {
            return Err(Poisoned);
        }
        let room = self.side.room - self.written.wrapping_sub(read);
        if self.full && room < self.side.piece() {
            return Ok(0);
        }
        self.read = read;
        self.full = (room as usize) < wanted;
        Ok(room as usize)
    }

    /// Copies in as many bytes as fit and returns how many. Call [`Writer::publish`] to publish the last
    /// bytes.
    ///
    /// # Errors
    /// [`Poisoned`] if the reader violated the protocol, or if some of `bytes` are no longer mapped.
    pub fn write(&mut self, mut bytes: SharedBytes<'_>) -> Result<usize, Poisoned> {
        let most = self.room(bytes.len())?.min(bytes.len());
        let mut done = 0;
        while done < most {
            let (place, row) = self.side.place(self.written);
            let piece = row.min(most - done).min(self.side.piece() as usize);
            // `place` and `row` ensure that the piece lies within the buffer.
            self.side.memory.write(place, bytes.part(0, piece)).ok_or(Poisoned)?;
            bytes = bytes.after(piece);
            self.written = self.written.wrapping_add(piece as u32);
            done += piece;
            if self.written.wrapping_sub(self.published) >= self.side.piece() {
                self.publish();
            }
        }
        Ok(done)
    }

    /// Returns whether the reader has taken everything written.
    pub fn is_drained(&self) -> bool {
        self.side.read().load(Ordering::Acquire) == self.written
    }

    /// Publishes all written bytes to the reader and returns whether any were new.
    #[inline]
    pub fn publish(&mut self) -> bool {
        let is_new = self.published != self.written;
        if is_new {
            self.published = self.written;
            self.side.written().store(self.written, Ordering::Release);
        }
        is_new
    }

    /// Publishes all written bytes and marks the end of the stream.
    pub fn end(&mut self) {
        self.publish();
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
    /// Creates the reader of a new pipe, in memory that was zeroed before the writer started.
    ///
    /// # Panics
    /// If the pipe does not fit there, is not aligned to a cache line, or `room` is not a power of two up to
    /// 2^30.
    pub fn new(memory: &Region, at: usize, room: usize) -> Reader {
        Reader { side: Side::new(memory, at, room), written: 0, read: 0 }
    }

    /// Returns the number of readable bytes.
    ///
    /// # Errors
    /// [`Poisoned`] if the writer violated the protocol.
    #[inline]
    pub fn readable(&mut self) -> Result<usize, Poisoned> {
        let written = self.side.written().load(Ordering::Acquire);
        // The count must never decrease or exceed the buffer.
        if written.wrapping_sub(self.read) > self.side.room
            || written.wrapping_sub(self.read) < self.written.wrapping_sub(self.read)
        {
            return Err(Poisoned);
        }
        self.written = written;
        Ok(written.wrapping_sub(self.read) as usize)
    }

    /// Returns whether the writer has marked the end of the stream. Call it before [`Reader::readable`],
    /// whose result is then final.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.side.ended().load(Ordering::Acquire) != 0
    }

    /// Takes up to `most` bytes that [`Reader::readable`] has reported, passes them to `put` in runs of at
    /// most a piece, and returns how many. The space is freed piece by piece.
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
    /// Length of the stream: several times the buffer.
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
            writer.publish();
            let here = reader.readable().expect("a decent writer");
            let most = here.min(step / 2 + 1);
            assert_eq!(reader.take(most, |run| run.append_to(&mut got)), most);
        }
        assert!(got == stream);
        assert!(!reader.has_ended());
        writer.end();
        assert!(reader.has_ended());
        assert_eq!(reader.readable(), Ok(0));
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
                    writer.publish();
                }
                writer.end();
            });
            let mut got = Vec::new();
            loop {
                let has_ended = reader.has_ended();
                let here = reader.readable().expect("a decent writer");
                reader.take(here, |run| run.append_to(&mut got));
                if has_ended && here == 0 {
                    break;
                }
            }
            assert!(got == stream);
        });
    }

    #[test]
    fn unpublished_bytes_are_not_readable() {
        let memory = Region::new(0, bytes(ROOM));
        let (mut writer, mut reader) = (Writer::new(&memory, 0, ROOM), Reader::new(&memory, 0, ROOM));
        assert_eq!(writer.write(b"abc"[..].into()), Ok(3));
        assert_eq!(reader.readable(), Ok(0));
        assert!(writer.publish());
        assert!(!writer.publish());
        assert_eq!(reader.readable(), Ok(3));
        assert_eq!(writer.write(alloc::vec![0; ROOM].as_slice().into()), Ok(ROOM - 3));
        assert_eq!(writer.write(b"x"[..].into()), Ok(0));
    }

    #[test]
    fn a_full_pipe_has_room_after_a_read() {
        const PIECE: usize = ROOM / PIECES as usize;
        let memory = Region::new(0, bytes(ROOM));
        let (mut writer, mut reader) = (Writer::new(&memory, 0, ROOM), Reader::new(&memory, 0, ROOM));
        assert_eq!(writer.write(alloc::vec![0; ROOM].as_slice().into()), Ok(ROOM));
        assert_eq!(reader.readable(), Ok(ROOM), "all pieces were shown");
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
    fn impossible_counts_poison_the_pipe() {
        for garbage in [1u32, ROOM as u32 + 1, u32::MAX] {
            let memory = Region::new(0, bytes(ROOM));
            let (mut writer, mut reader) = (Writer::new(&memory, 0, ROOM), Reader::new(&memory, 0, ROOM));
            writer.side.read().store(garbage, Ordering::Relaxed);
            assert_eq!(writer.room(ROOM + 1), Err(Poisoned));
            writer.side.written().store(garbage, Ordering::Relaxed);
            if garbage == 1 {
                assert_eq!(reader.readable(), Ok(1));
                writer.side.written().store(0, Ordering::Relaxed);
            }
            assert_eq!(reader.readable(), Err(Poisoned));
        }
    }
}
