//! The host interface of a NIC that runs in another process than its programs: what a program and the NIC
//! pass each other through shared memory.
//!
//! Purpose          lets programs use the RNIC of a board ([`crate::rnic`]) as they would use a card: the
//!                  NIC accesses their memory itself, and a program on the passive side of RDMA does nothing.
//! Memory           each program has a *work ring* to the NIC and a *notice ring* back, in memory shared with
//!                  the NIC ([`Layout`]). Each completion queue is a ring in shared memory of its own
//!                  ([`CompletionRing`]), as a CMT entry of paper \[3\] lies in the host's memory. Registered
//!                  memory is shared in the same way.
//!
//! ```text
//! program ── work ring: Request: create, register, connect, post … ─────► NIC
//! program ◄─ notice ring: Notice: replies, connections, events ────────── NIC
//! program ◄─ one ring for each completion queue: Completion ───────────── NIC
//! program ◄─ registered memory ─────────────────────────────────────────► NIC
//! ```
//!
//! Order            requests are processed in order: a receive that is posted before a connection is accepted
//!                  is there when the connection's first message arrives.
//! Doorbells        bells in shared memory; neither side makes a system call while the other is awake.
//! Flow control     a full completion ring arms a bell at its beginning. A program that has taken entries
//!                  rings it and, if it was armed, sends [`Request::Room`]. Meanwhile completions wait in the
//!                  NIC's own queue, which overruns as any completion queue does.
//! Trust            the NIC copies each entry before it decodes it; an entry that it cannot decode, and a
//!                  number that is not one of the program's objects, cannot refer to another program's.
//!                  Entries are in native byte order, since both sides run on one machine.
//! Not implemented  datagram queue pairs, extended reliable connections, and work requests that register
//!                  memory ([`Operation::Register`](crate::rnic::Operation::Register)).

mod codec;
mod completion;
mod greeting;
mod notice;
mod request;
mod work;

pub use codec::SGES_MAX;
pub use completion::{COMPLETION_BYTES, CompletionRing, completion_from_bytes, completion_to_bytes};
pub use greeting::Greeting;
pub use notice::{Answer, Notice, Refusal};
pub use request::{PIECES_MAX, Piece, Request, Transport};

use kiban_base::ring::Shape;

/// Maximum length of a request or a notice in bytes.
pub const ENTRY_BYTES: usize = 1016;
/// Number of requests that the work ring holds.
const REQUESTS: usize = 512;
/// Number of notices that the notice ring holds.
const NOTICES: usize = 64;
/// Offset of registered memory in its shared memory: the first page is the channel's.
pub const MEMORY_AT: usize = 4096;

/// The layout of the memory that a program shares with the NIC for its requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    at: usize,
}

impl Layout {
    /// Creates a layout that begins at offset `at` of the memory, rounded up to a multiple of 64.
    pub const fn new(at: usize) -> Layout {
        Layout { at: at.next_multiple_of(64) }
    }

    /// Returns the shape of the work ring.
    pub fn work(&self) -> Shape {
        Shape::new(REQUESTS, ENTRY_BYTES)
    }

    /// Returns the shape of the notice ring.
    pub fn notices(&self) -> Shape {
        Shape::new(NOTICES, ENTRY_BYTES)
    }

    /// Returns the offset of the work ring.
    pub const fn work_at(&self) -> usize {
        self.at
    }

    /// Returns the offset of the notice ring.
    pub fn notices_at(&self) -> usize {
        self.at + self.work().bytes().next_multiple_of(64)
    }

    /// Returns the size of the whole memory in bytes.
    pub fn bytes(&self) -> usize {
        self.notices_at() + self.notices().bytes()
    }
}

#[cfg(test)]
mod tests;
