//! Streams of a board for another process, through memory that both see.
//!
//! Goal      a process that has no board opens TCP streams on that of another, and moves their bytes without a call.
//! Memory    two rings and as many slots as the client asked for; a slot is one stream: a pipe for each direction and two bells.
//!
//! ```text
//! at        work ring        what the client asks ([`Ask`]): connect, listen, offer a slot to a listener, look, close
//!           done ring        what the board tells ([`Told`]): opened, accepted, look, ended, free
//!           slot 0           0    bell of the board's: the client has put bytes in, or taken some
//!                            64   bell of the client's: the board has
//!                            128  pipe from the client to the board
//!                            …    pipe from the board to the client
//!           slot 1 …
//! ```
//!
//! Slots     belong to the client: it names the one that a connection takes, and offers some to its listeners beforehand. From
//!           then on a slot is the board's until it says [`Told::Free`].
//! Looks     who is about to wait for a slot arms its bell there, and looks again; who has moved bytes rings, and says "look" in
//!           the ring only if the bell was armed. So a ring holds one look a slot at most, however many bytes move. A client that
//!           waits for room hears when half of it is free.
//! Ends      a pipe that has ended is a FIN; [`Ask::Abort`] is a reset. A client that has gone is one that has closed everything:
//!           what it had put in still leaves.
//! Confined  a client has its own rings, slots and listeners; it names slots by its own numbers and cannot name another's. What it
//!           writes there can be refused, or condemn its memory: then its streams are reset, and nobody else's.
//! Shares    a client's streams are an owner's: memory and session numbers are shared out among clients first.
//! Bounds    slots, [`LISTENERS_MAX`], [`BACKLOG_MAX`] callers for whom no slot is offered yet; a slot holds one page of the
//!           board's beside its pipes.

mod client;
mod desk;
mod entry;

pub use client::{Client, Read};
pub use desk::{Desk, DeskCounters};
pub use entry::{Ask, ENTRY_BYTES, Told, Why};

use crate::Host;
use core::net::SocketAddr;
use core::ops::RangeInclusive;
use kiban_ground::pipe;
use kiban_ground::ring::Shape;
use kiban_stack::tcp::Owner;

/// Listeners of one client at most.
pub const LISTENERS_MAX: usize = 256;
/// Callers that wait for a slot, of one listener.
pub const BACKLOG_MAX: usize = 256;
/// Slots of one client at most.
pub const SLOTS_MAX: usize = 16 << 10;
/// Room of a pipe: at least, and at most.
pub const ROOM_BYTES: RangeInclusive<usize> = (4 << 10)..=(16 << 20);
/// Bytes that two sides' bells take.
const BELLS_BYTES: usize = 128;
/// Where the client's bell stands in a slot.
const CLIENT_BELL: usize = 64;
/// Bytes of a pipe that are not its stream's.
const PIPE_FRONT_BYTES: usize = 128;

/// Ports that are chosen for listeners that name none (RFC 6335 §6: the dynamic ports).
const DYNAMIC_PORTS: RangeInclusive<u16> = 49_152..=65_535;

/// Listens for an owner's program, as its system would: `::` stands for both families; port 0: the next after `last` that is free, which
/// becomes `last`. The listener's number, and where it listens.
///
/// # Errors
/// The address is not the board's, or taken.
pub fn listen(
    host: &mut Host<'_>,
    owner: Owner,
    local: SocketAddr,
    last: &mut u16,
) -> Result<(u32, SocketAddr), Why> {
    if !local.ip().is_unspecified() && !host.is_own(local.ip()) {
        return Err(Why::BadAddress);
    }
    if local.port() != 0 {
        return Ok((host.listen_for(owner, local, false)?, local));
    }
    for _ in DYNAMIC_PORTS {
        let next = last.checked_add(1).unwrap_or(0);
        *last = next.max(*DYNAMIC_PORTS.start());
        let chosen = SocketAddr::new(local.ip(), *last);
        match host.listen_for(owner, chosen, false).map_err(Why::from) {
            Ok(number) => return Ok((number, chosen)),
            Err(Why::InUse) => {}
            Err(why) => return Err(why),
        }
    }
    Err(Why::TooMany)
}

/// How the memory is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    at: usize,
    slots: usize,
    room: usize,
}

impl Layout {
    /// Of so many slots with so much room in each pipe, `at` bytes from the memory's start; none, when that is beyond the bounds.
    pub fn new(at: usize, slots: usize, room: usize) -> Option<Layout> {
        let good = (1..=SLOTS_MAX).contains(&slots) && ROOM_BYTES.contains(&room) && room.is_power_of_two();
        good.then_some(Layout { at: at.next_multiple_of(64), slots, room })
    }

    /// Slots.
    pub const fn slots(&self) -> usize {
        self.slots
    }

    /// Bytes that each pipe holds.
    pub const fn room(&self) -> usize {
        self.room
    }

    /// Both rings: a client asks, and is told, no more than this at once without waiting.
    fn shape(&self) -> Shape {
        Shape::new((2 * self.slots).clamp(64, 4096), entry::ENTRY_BYTES)
    }

    const fn work_at(&self) -> usize {
        self.at
    }

    fn done_at(&self) -> usize {
        self.at + self.shape().bytes().next_multiple_of(64)
    }

    fn pipe_bytes(&self) -> usize {
        pipe::bytes(self.room).next_multiple_of(64)
    }

    fn slot_at(&self, slot: usize) -> usize {
        let first = self.done_at() + self.shape().bytes().next_multiple_of(64);
        first + slot * (BELLS_BYTES + 2 * self.pipe_bytes())
    }

    /// Where the pipes of a slot stand: from the client to the board, and back.
    fn pipes_at(&self, slot: usize) -> (usize, usize) {
        let out = self.slot_at(slot) + BELLS_BYTES;
        (out, out + self.pipe_bytes())
    }

    /// Bytes of the whole memory.
    pub fn bytes(&self) -> usize {
        self.slot_at(self.slots)
    }
}
