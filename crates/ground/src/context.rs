//! What a driver lends to protocols while they work: the time, random numbers, memory.

use crate::counters::Copies;
use crate::page::Pool;
use crate::pdu::Blocks;
use crate::rng::SecureRng;
use crate::time::Instant;

/// A board's packet memory, sized at start.
pub struct Memory {
    /// Content pages for what the host sends.
    pub transmit: Pool,
    /// Content pages for what arrives.
    pub receive: Pool,
    /// PDU blocks, for both directions.
    pub blocks: Blocks,
}

impl Memory {
    /// Whether every page and block is at home: nothing leaks, nothing is held.
    pub fn is_home(&mut self) -> bool {
        self.transmit.at_home() == self.transmit.capacity()
            && self.receive.at_home() == self.receive.capacity()
            && self.blocks.at_home() == self.blocks.capacity()
    }
}

/// Lent to a protocol for one call.
pub struct Context<'a> {
    /// The moment of this call.
    pub now: Instant,
    /// The board's packet memory.
    pub memory: &'a mut Memory,
    /// The board's random numbers: of the kind that may be sent, and that keys are made of.
    pub rng: &'a mut SecureRng,
    /// Where copied bytes are counted.
    pub copies: &'a mut Copies,
}
