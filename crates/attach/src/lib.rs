//! TCP streams on a board in another process, through shared memory; and the messages of its sockets, which
//! programs use without shared memory.
//!
//! Purpose    let a process without a board open TCP streams on another process's board and transfer data
//!            without system calls.
//! Memory     two rings, and the requested number of slots. A slot holds one stream: a pipe for each
//!            direction, and two bells.
//!
//! ```text
//! at        work ring        client's requests ([`Request`]): connect, listen, offer a slot, notify, close, …
//!           done ring        board's indications ([`Indication`]): opened, accepted, notify, ended, free, …
//!           slot 0           0    the board's bell: the client rings it when it has written or read data
//!                            64   the client's bell: the board rings it when it has written or read data
//!                            128  pipe from the client to the board
//!                            …    pipe from the board to the client
//!           slot 1 …
//! ```
//!
//! Slots      belong to the client, which chooses the slot for each connection and offers slots for incoming
//!            connections in advance. From then on, the slot belongs to the board until
//!            [`Indication::Free`].
//! Notify     a side that is about to wait for a slot arms its bell in the slot and then checks the slot
//!            once more. A side that has moved data rings the other side's bell. Only if that bell was armed
//!            does it also send a notify entry through the ring, so a ring holds at most one notify entry
//!            per slot, no matter how much data is moved. A client that waits for room is notified when half
//!            of the buffer is free.
//! End        the end of a pipe corresponds to a FIN, and [`Request::Abort`] to a reset. When a client exits,
//!            its streams are closed: data already written is still sent.
//! Isolation  each client has its own rings, slots and listeners; its slot numbers cannot refer to another
//!            client's slots. If it writes invalid data, either the request is rejected, or the memory is
//!            considered poisoned and all streams of this client (but of no other client) are reset.
//! Sharing    all streams of a client count as one owner: packet memory and sessions are shared out among
//!            clients, not among streams.
//! Shards     a board that is divided into shards gives a client such a memory for each of them. It holds the
//!            streams of that shard's flows, and is served by its thread alone. A program that listens has a
//!            listener on each shard.
//! Limits     the number of slots is fixed. There are at most [`LISTENERS_MAX`] listeners, each with at most
//!            [`BACKLOG_MAX`] connections that wait for an offered slot. Besides its pipes, a slot uses one
//!            page of the board's memory.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod client;
mod datagram;
mod entry;
mod option;

pub use client::{Client, Read};
pub use datagram::{DATAGRAM_BYTES_MAX, DATAGRAM_HEADER_BYTES, DatagramHeader, IcmpReport};
pub use entry::{
    ENTRY_BYTES, EndReason, FAST_OPEN_BYTES_MAX, Indication, Request, STATISTICS_BYTES,
    STATISTICS_PIECE_BYTES, SYN_WAITS, Sharing,
};
pub use option::StreamOption;

use core::ops::RangeInclusive;
use kiban_base::pipe;
use kiban_base::ring::Shape;

/// Maximum listeners per client.
pub const LISTENERS_MAX: usize = 256;
/// Maximum number of incoming connections per listener that wait for a slot.
pub const BACKLOG_MAX: usize = 256;
/// Maximum slots per client.
pub const SLOTS_MAX: usize = 16 << 10;
/// Allowed buffer sizes of a pipe in bytes.
pub const ROOM_BYTES: RangeInclusive<usize> = (4 << 10)..=(16 << 20);
/// Total size in bytes of the two sides' bells in a slot.
pub const BELLS_BYTES: usize = 128;
/// Offset of the client's bell in a slot, in bytes.
pub const CLIENT_BELL: usize = 64;
/// Size of a pipe's header before its buffer, in bytes.
pub const PIPE_FRONT_BYTES: usize = 128;

/// The layout of the shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    at: usize,
    slots: usize,
    room: usize,
}

impl Layout {
    /// Creates a layout of `slots` slots with `room` bytes in each pipe. It begins at offset `at` in the
    /// memory, rounded up to a multiple of 64. Returns `None` if an argument is out of bounds.
    pub fn new(at: usize, slots: usize, room: usize) -> Option<Layout> {
        let good = (1..=SLOTS_MAX).contains(&slots) && ROOM_BYTES.contains(&room) && room.is_power_of_two();
        good.then_some(Layout { at: at.next_multiple_of(64), slots, room })
    }

    /// Returns the number of slots.
    pub const fn slots(&self) -> usize {
        self.slots
    }

    /// Returns the buffer size of each pipe in bytes.
    pub const fn room(&self) -> usize {
        self.room
    }

    /// Returns the shape of both rings. If a ring is full, further requests or indications wait.
    pub fn shape(&self) -> Shape {
        Shape::new((2 * self.slots).clamp(64, 4096), entry::ENTRY_BYTES)
    }

    /// Returns the offset of the work ring, which carries the client's requests.
    pub const fn work_at(&self) -> usize {
        self.at
    }

    /// Returns the offset of the done ring, which carries the board's indications.
    pub fn done_at(&self) -> usize {
        self.at + self.shape().bytes().next_multiple_of(64)
    }

    /// Returns the size of one pipe in bytes, with its two indices.
    pub fn pipe_bytes(&self) -> usize {
        pipe::bytes(self.room).next_multiple_of(64)
    }

    /// Returns the offset of a slot.
    pub fn slot_at(&self, slot: usize) -> usize {
        let first = self.done_at() + self.shape().bytes().next_multiple_of(64);
        first + slot * (BELLS_BYTES + 2 * self.pipe_bytes())
    }

    /// Returns the offsets of a slot's pipes: from the client to the board, and back.
    pub fn pipes_at(&self, slot: usize) -> (usize, usize) {
        let out = self.slot_at(slot) + BELLS_BYTES;
        (out, out + self.pipe_bytes())
    }

    /// Returns the size of the whole memory in bytes.
    pub fn bytes(&self) -> usize {
        self.slot_at(self.slots)
    }
}
