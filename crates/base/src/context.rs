//! The environment that a driver passes to protocols for the duration of a call: time, random numbers,
//! memory.

use crate::counters::Copies;
use crate::memory::PagePool;
use crate::memory::PduPool;
use crate::rng::SecureRng;
use crate::time::Instant;

/// A board's packet memory, sized at start.
pub struct Memory {
    /// Content pages for data that the host sends.
    pub transmit: PagePool,
    /// Content pages for received data.
    pub receive: PagePool,
    /// PDU blocks, for both directions.
    pub pdus: PduPool,
}

impl Memory {
    /// Returns whether every page and block is free, so that nothing is leaked or held.
    pub fn is_all_free(&mut self) -> bool {
        self.transmit.available() == self.transmit.capacity()
            && self.receive.available() == self.receive.capacity()
            && self.pdus.available() == self.pdus.capacity()
    }
}

/// The environment passed to a protocol for one call.
pub struct Context<'a> {
    /// The time of this call.
    pub now: Instant,
    /// The board's packet memory.
    pub memory: &'a mut Memory,
    /// The board's secure random numbers, which may be sent and used as keys.
    pub rng: &'a mut SecureRng,
    /// Counters of copied bytes.
    pub copies: &'a mut Copies,
}
