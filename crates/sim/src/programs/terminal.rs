//! Terminals: senders and receivers of a circuit's cells without a board, such as codecs, cameras and meters.
//!
//! A terminal sends by its own clock and never waits for an answer. So arrivals at a terminal need no
//! separate events: the world delivers them at the next event.

use kiban_atm::TimedCell;
use kiban_base::Instant;
use std::any::Any;

/// A device on a line of cells.
pub trait Terminal: Any {
    /// Appends the cells of all slots that start before `until` and were not covered by the last call, in
    /// order of time.
    fn cells(&mut self, until: Instant, out: &mut Vec<TimedCell>);
    /// Handles cells that have arrived.
    fn arrive(&mut self, cells: &[TimedCell]);
    /// Returns the terminal as `Any`, so that it can be downcast and queried.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}
