//! The interface of an endpoint that the pump drives.

use bytes::Bytes;
use kiban_base::{Instant, RopeQueue};
use std::io;

/// A protocol endpoint on one connection, driven by the pump.
pub trait End {
    /// Handles received bytes.
    fn arrive(&mut self, bytes: Bytes, now: Instant);
    /// Handles the end of input: either the peer has closed its side, or the connection is broken (`Err`).
    fn ended(&mut self, how: io::Result<()>, now: Instant);
    /// Does pending work, which includes handling expired timers, and reading and writing files.
    fn work(&mut self, now: Instant);
    /// Returns the queue of bytes to be sent. The pump takes bytes from its front.
    fn outgoing(&mut self) -> &mut RopeQueue;
    /// Returns whether more bytes may be read.
    fn wants_bytes(&self) -> bool;
    /// Returns when [`End::work`] must be called even if no input arrives.
    fn deadline(&self) -> Instant;
    /// Returns whether the connection is to be closed once everything has been sent.
    fn is_over(&self) -> bool;
}
