//! The client's side of an attachment: slots, requests and indications.

use super::entry::{ENTRY_BYTES, Indication, Request};
use super::{BELLS_BYTES, CLIENT_BELL, Layout, PIPE_FRONT_BYTES};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use kiban_base::pipe::{Reader, Writer};
use kiban_base::ring::{Consumer, Poisoned, Producer};
use kiban_base::{Bell, Region, SharedBytes};

/// The result of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    /// Number of bytes read.
    Bytes(usize),
    /// No data is available yet.
    Nothing,
    /// End of stream.
    End,
}

/// The client's ends of a slot's two pipes.
struct Ends {
    out: Writer,
    into: Reader,
}

/// A client of a board.
pub struct Client {
    layout: Layout,
    region: Region,
    work: Producer,
    done: Consumer,
    /// Requests that did not fit into the ring and are still to be sent.
    waiting: VecDeque<Request>,
    slots: Vec<Option<Ends>>,
    free: Vec<u32>,
    /// Number of indications that the client has taken since it last notified the board that the ring has
    /// room.
    taken: usize,
    /// Whether the board must be woken by ringing its bell.
    ring_pending: bool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({:?})", self.layout)
    }
}

impl Client {
    /// Creates a client. Its memory must be new, that is, all bytes must be zero.
    ///
    /// # Panics
    /// If the memory is smaller than the layout requires.
    pub fn new(memory: &Region, layout: Layout) -> Client {
        let region = memory.clone().with_address(0);
        let shape = layout.shape();
        assert!(region.len() >= layout.bytes(), "memory of {} bytes for {layout:?}", region.len());
        Client {
            work: Producer::new(&region, layout.work_at(), shape),
            done: Consumer::new(&region, layout.done_at(), shape),
            waiting: VecDeque::new(),
            slots: (0..layout.slots()).map(|_| None).collect(),
            free: (0..layout.slots() as u32).rev().collect(),
            taken: 0,
            ring_pending: false,
            layout,
            region,
        }
    }

    fn bell(&self, slot: u32, at: usize) -> &Bell {
        self.region.bell(self.layout.slot_at(slot as usize) + at).expect("a slot has room for its bells")
    }

    /// Takes a free slot for [`Request::Connect`] or [`Request::Offer`], or returns `None` if all are in use.
    pub fn claim(&mut self) -> Option<u32> {
        let slot = self.free.pop()?;
        let (out, into) = self.layout.pipes_at(slot as usize);
        let blank = |at: usize, bytes: usize| {
            self.region
                .write(at as u64, [0; BELLS_BYTES][..bytes].into())
                .expect("the slot lies in the memory");
        };
        // Clear the state that the slot's previous stream left behind.
        blank(self.layout.slot_at(slot as usize), BELLS_BYTES);
        blank(out, PIPE_FRONT_BYTES);
        blank(into, PIPE_FRONT_BYTES);
        let room = self.layout.room();
        let ends =
            Ends { out: Writer::new(&self.region, out, room), into: Reader::new(&self.region, into, room) };
        self.slots[slot as usize] = Some(ends);
        Some(slot)
    }

    /// Sends a request. If the ring is full, the request is queued until there is room.
    ///
    /// # Errors
    /// [`Poisoned`] if the board violated the protocol of the ring.
    pub fn request(&mut self, ask: Request) -> Result<(), Poisoned> {
        self.waiting.push_back(ask);
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Poisoned> {
        while let Some(ask) = self.waiting.front() {
            if !self.work.push(&ask.bytes())? {
                break;
            }
            self.waiting.pop_front();
            self.ring_pending = true;
        }
        Ok(())
    }

    /// Returns the next indication from the board, or `None` if there is none. After [`Indication::Free`],
    /// its slot is free again.
    ///
    /// # Errors
    /// [`Poisoned`] if the board violated the protocol of the ring, or sent an invalid indication.
    pub fn next_indication(&mut self) -> Result<Option<Indication>, Poisoned> {
        if !self.waiting.is_empty() {
            self.flush()?;
        }
        let mut entry = [0; ENTRY_BYTES];
        let Some(bytes) = self.done.peek()? else { return Ok(None) };
        bytes.copy_to(0, &mut entry);
        self.done.release();
        self.taken += 1;
        if self.taken >= self.layout.shape().slots() / 4 {
            // The board may have found the ring full, so notify it that there is room again.
            self.taken = 0;
            self.ring_pending = true;
        }
        let indication = Indication::read(&entry).ok_or(Poisoned)?;
        if let Indication::Free { slot } = indication {
            let ends = self.slots.get_mut(slot as usize).ok_or(Poisoned)?;
            ends.take().ok_or(Poisoned)?;
            self.free.push(slot);
        }
        Ok(Some(indication))
    }

    /// Returns whether an indication is available; this costs one load.
    pub fn has_indication(&self) -> bool {
        self.done.is_ready()
    }

    /// Returns whether the board must be woken, and clears the flag.
    pub fn take_ring_pending(&mut self) -> bool {
        core::mem::take(&mut self.ring_pending)
    }

    fn ends(&mut self, slot: u32) -> Result<&mut Ends, Poisoned> {
        self.slots.get_mut(slot as usize).and_then(Option::as_mut).ok_or(Poisoned)
    }

    /// Sends [`Request::Notify`] if the board is waiting for this slot.
    fn notify_board(&mut self, slot: u32) -> Result<(), Poisoned> {
        // The channel's bell records the time at which it was rung; this bell does not need it.
        if self.bell(slot, 0).ring(|| 0) { self.request(Request::Notify { slot }) } else { Ok(()) }
    }

    /// Reads available bytes into `target`.
    ///
    /// # Errors
    /// [`Poisoned`] if the board violated the protocol of the pipe, or the slot is not in use.
    pub fn read(&mut self, slot: u32, mut target: &mut [u8]) -> Result<Read, Poisoned> {
        self.take(slot, target.len(), |bytes| {
            let (front, rest) = core::mem::take(&mut target).split_at_mut(bytes.len());
            bytes.copy_to(0, front);
            target = rest;
        })
    }

    /// Reads up to `most` available bytes and passes them to `put` in runs.
    ///
    /// # Errors
    /// Same as for [`Client::read`].
    pub fn take(
        &mut self,
        slot: u32,
        most: usize,
        put: impl FnMut(SharedBytes<'_>),
    ) -> Result<Read, Poisoned> {
        if most == 0 {
            return Ok(Read::Bytes(0));
        }
        let ends = self.ends(slot)?;
        let is_last = ends.into.has_ended();
        if ends.into.readable()? == 0 {
            return Ok(if is_last { Read::End } else { Read::Nothing });
        }
        let count = ends.into.take(most, put);
        self.notify_board(slot)?;
        Ok(Read::Bytes(count))
    }

    /// Returns whether a read would return data, the end of the stream, or an error.
    pub fn has_bytes(&mut self, slot: u32) -> bool {
        self.ends(slot).is_ok_and(|ends| ends.into.has_ended() || ends.into.readable() != Ok(0))
    }

    /// Returns whether the board has ended the stream, so that no data will follow the data already
    /// available.
    pub fn has_ended(&mut self, slot: u32) -> bool {
        self.ends(slot).is_ok_and(|ends| ends.into.has_ended())
    }

    /// Returns whether a write would accept data or fail.
    pub fn has_room(&mut self, slot: u32) -> bool {
        self.ends(slot).is_ok_and(|ends| ends.out.room(1) != Ok(0))
    }

    /// Returns whether the board has taken all written data.
    pub fn is_drained(&mut self, slot: u32) -> bool {
        self.ends(slot).is_ok_and(|ends| ends.out.is_drained())
    }

    /// Writes as many bytes as there is room for and returns how many.
    ///
    /// # Errors
    /// [`Poisoned`] if the board violated the protocol of the pipe, or the slot is not in use.
    pub fn write(&mut self, slot: u32, bytes: SharedBytes<'_>) -> Result<usize, Poisoned> {
        self.write_runs(slot, [bytes])
    }

    /// Like [`Client::write`], for several runs of bytes; notifies the board once, after the last.
    ///
    /// # Errors
    /// Same as for [`Client::write`].
    pub fn write_runs<'a>(
        &mut self,
        slot: u32,
        runs: impl IntoIterator<Item = SharedBytes<'a>>,
    ) -> Result<usize, Poisoned> {
        let ends = self.ends(slot)?;
        let mut count = 0;
        for run in runs {
            let whole = run.len();
            let written = ends.out.write(run)?;
            count += written;
            if written < whole {
                break;
            }
        }
        ends.out.publish();
        if count > 0 {
            self.notify_board(slot)?;
        }
        Ok(count)
    }

    /// Ends the client's direction of the stream: the board sends a FIN after the data.
    ///
    /// # Errors
    /// [`Poisoned`] if the board violated the protocol of the ring, or the slot is not in use.
    pub fn finish(&mut self, slot: u32) -> Result<(), Poisoned> {
        self.ends(slot)?.out.end();
        self.notify_board(slot)
    }

    /// Arms the slot's bell. Before it sleeps, the client must check the slot once more.
    pub fn arm(&self, slot: u32) {
        self.bell(slot, CLIENT_BELL).arm();
    }
}
