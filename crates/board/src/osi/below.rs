//! What an end stands on: the network service, however it is made.
//!
//! ```text
//!   Stream    TPKTs in a byte stream       (RFC 1006)
//!   Line      X.25 over LAPB on a line     (ISO 8878: the lower module of paper [5])
//!   Loop      another end of this board    (the paper's internal loopback)
//! ```

use super::stream::Stream;
use kiban_ground::Instant;
use kiban_stack::osi::network::{Indication, Request};

/// A network connection, as transport uses it.
pub trait Below {
    /// Transport asks. What it asks of a connection that has ended goes nowhere.
    fn request(&mut self, request: Request, now: Instant);
    /// What the network says next. A unit that nobody takes stays where it is, and what stops its sender stops it.
    fn poll(&mut self, now: Instant) -> Option<Indication>;
    /// Hands on what waits, as far as there is room. True if anything has moved.
    fn push(&mut self, now: Instant) -> bool;
    /// Bytes that wait.
    fn waiting_bytes(&self) -> usize;
    /// When there is something to do though nothing comes.
    fn deadline(&self) -> Option<Instant>;
    /// Time has passed.
    fn timeout(&mut self, now: Instant);
}

impl Below for Stream {
    fn request(&mut self, request: Request, _now: Instant) {
        Stream::request(self, request);
    }

    fn poll(&mut self, _now: Instant) -> Option<Indication> {
        Stream::poll(self)
    }

    fn push(&mut self, _now: Instant) -> bool {
        false
    }

    fn waiting_bytes(&self) -> usize {
        self.outgoing_bytes()
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn timeout(&mut self, _now: Instant) {}
}
