//! The client's side: slots, and what is asked and told.

use super::entry::{Ask, ENTRY_BYTES, Told};
use super::{BELLS_BYTES, CLIENT_BELL, Layout, PIPE_FRONT_BYTES};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use kiban_ground::pipe::{Reader, Writer};
use kiban_ground::ring::{Condemned, Consumer, Producer};
use kiban_ground::{Bell, Region, SharedBytes};

/// What reading came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    /// So many bytes.
    Bytes(usize),
    /// Nothing is here yet.
    Nothing,
    /// No more follow.
    End,
}

/// The two ends of a slot's pipes that are the client's.
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
    /// What found the ring full.
    waiting: VecDeque<Ask>,
    slots: Vec<Option<Ends>>,
    free: Vec<u32>,
    /// Told since the board was last rung for the room that this made.
    taken: usize,
    /// Whether the board is to be rung.
    rings: bool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({:?})", self.layout)
    }
}

impl Client {
    /// A client in new memory, all zero.
    ///
    /// # Panics
    /// When the memory is shorter than the layout.
    pub fn new(memory: &Region, layout: Layout) -> Client {
        let region = memory.clone().called(0);
        let shape = layout.shape();
        assert!(region.len() >= layout.bytes(), "memory of {} bytes for {layout:?}", region.len());
        Client {
            work: Producer::new(&region, layout.work_at(), shape),
            done: Consumer::new(&region, layout.done_at(), shape),
            waiting: VecDeque::new(),
            slots: (0..layout.slots()).map(|_| None).collect(),
            free: (0..layout.slots() as u32).rev().collect(),
            taken: 0,
            rings: false,
            layout,
            region,
        }
    }

    fn bell(&self, slot: u32, at: usize) -> &Bell {
        self.region.bell(self.layout.slot_at(slot as usize) + at).expect("a slot has room for its bells")
    }

    /// Takes a free slot, for [`Ask::Connect`] or [`Ask::Offer`]; none: all are in use.
    pub fn claim(&mut self) -> Option<u32> {
        let slot = self.free.pop()?;
        let (out, into) = self.layout.pipes_at(slot as usize);
        let blank = |at: usize, bytes: usize| {
            self.region
                .write(at as u64, [0; BELLS_BYTES][..bytes].into())
                .expect("the slot lies in the memory");
        };
        // As new, whoever had it before.
        blank(self.layout.slot_at(slot as usize), BELLS_BYTES);
        blank(out, PIPE_FRONT_BYTES);
        blank(into, PIPE_FRONT_BYTES);
        let room = self.layout.room();
        let ends =
            Ends { out: Writer::new(&self.region, out, room), into: Reader::new(&self.region, into, room) };
        self.slots[slot as usize] = Some(ends);
        Some(slot)
    }

    /// Asks; what finds the ring full goes in when there is room.
    ///
    /// # Errors
    /// The board broke the ring.
    pub fn ask(&mut self, ask: Ask) -> Result<(), Condemned> {
        self.waiting.push_back(ask);
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Condemned> {
        while let Some(ask) = self.waiting.front() {
            if !self.work.push(&ask.bytes())? {
                break;
            }
            self.waiting.pop_front();
            self.rings = true;
        }
        Ok(())
    }

    /// What the board tells next. A slot that it gives back is free again.
    ///
    /// # Errors
    /// The board broke the ring, or says what is not understood.
    pub fn told(&mut self) -> Result<Option<Told>, Condemned> {
        if !self.waiting.is_empty() {
            self.flush()?;
        }
        let mut entry = [0; ENTRY_BYTES];
        let Some(bytes) = self.done.peek()? else { return Ok(None) };
        bytes.copy_to(0, &mut entry);
        self.done.give_back();
        self.taken += 1;
        if self.taken >= self.layout.shape().slots() / 4 {
            // A board that found the ring full waits for room.
            self.taken = 0;
            self.rings = true;
        }
        let told = Told::read(&entry).ok_or(Condemned)?;
        if let Told::Free { slot } = told {
            let ends = self.slots.get_mut(slot as usize).ok_or(Condemned)?;
            ends.take().ok_or(Condemned)?;
            self.free.push(slot);
        }
        Ok(Some(told))
    }

    /// Whether something is told: one look.
    pub fn has_news(&self) -> bool {
        self.done.is_ready()
    }

    /// Whether the board is to be rung, once.
    pub fn take_ring(&mut self) -> bool {
        core::mem::take(&mut self.rings)
    }

    fn ends(&mut self, slot: u32) -> Result<&mut Ends, Condemned> {
        self.slots.get_mut(slot as usize).and_then(Option::as_mut).ok_or(Condemned)
    }

    /// Whether the board waits for this slot, and is told to look.
    fn moved(&mut self, slot: u32) -> Result<(), Condemned> {
        // Who rings needs no moment: the channel's bell has it.
        if self.bell(slot, 0).ring(|| 0) { self.ask(Ask::Look { slot }) } else { Ok(()) }
    }

    /// Reads what is here.
    ///
    /// # Errors
    /// The board broke the pipe, or the slot is not in use.
    pub fn read(&mut self, slot: u32, mut target: &mut [u8]) -> Result<Read, Condemned> {
        self.take(slot, target.len(), |bytes| {
            let (front, rest) = core::mem::take(&mut target).split_at_mut(bytes.len());
            bytes.copy_to(0, front);
            target = rest;
        })
    }

    /// Reads up to `most` bytes of what is here: `put` is given them in runs.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub fn take(
        &mut self,
        slot: u32,
        most: usize,
        put: impl FnMut(SharedBytes<'_>),
    ) -> Result<Read, Condemned> {
        if most == 0 {
            return Ok(Read::Bytes(0));
        }
        let ends = self.ends(slot)?;
        let is_last = ends.into.has_ended();
        if ends.into.here()? == 0 {
            return Ok(if is_last { Read::End } else { Read::Nothing });
        }
        let count = ends.into.take(most, put);
        self.moved(slot)?;
        Ok(Read::Bytes(count))
    }

    /// Whether reading would come to something: bytes, the end, or that the board broke the pipe.
    pub fn has_bytes(&mut self, slot: u32) -> bool {
        self.ends(slot).is_ok_and(|ends| ends.into.has_ended() || ends.into.here() != Ok(0))
    }

    /// Whether no more than what is here will come.
    pub fn has_ended(&mut self, slot: u32) -> bool {
        self.ends(slot).is_ok_and(|ends| ends.into.has_ended())
    }

    /// Whether writing would come to something.
    pub fn has_room(&mut self, slot: u32) -> bool {
        self.ends(slot).is_ok_and(|ends| ends.out.room(1) != Ok(0))
    }

    /// Whether the board has taken all that was written.
    pub fn is_taken(&mut self, slot: u32) -> bool {
        self.ends(slot).is_ok_and(|ends| ends.out.is_taken())
    }

    /// Writes as much as there is room for: how many bytes.
    ///
    /// # Errors
    /// The board broke the pipe, or the slot is not in use.
    pub fn write(&mut self, slot: u32, bytes: SharedBytes<'_>) -> Result<usize, Condemned> {
        self.write_runs(slot, [bytes])
    }

    /// The same of several runs of bytes, which the board sees at once.
    ///
    /// # Errors
    /// As [`Client::write`].
    pub fn write_runs<'a>(
        &mut self,
        slot: u32,
        runs: impl IntoIterator<Item = SharedBytes<'a>>,
    ) -> Result<usize, Condemned> {
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
        ends.out.show();
        if count > 0 {
            self.moved(slot)?;
        }
        Ok(count)
    }

    /// No more follow.
    ///
    /// # Errors
    /// The board broke the ring, or the slot is not in use.
    pub fn finish(&mut self, slot: u32) -> Result<(), Condemned> {
        self.ends(slot)?.out.end();
        self.moved(slot)
    }

    /// The client is about to wait for a slot: it looks once more after this.
    pub fn arm(&self, slot: u32) {
        self.bell(slot, CLIENT_BELL).arm();
    }
}
