//! Terminals: what sends and receives cells of a circuit without a board: codecs, cameras, meters.
//!
//! A terminal sends by its own clock and never waits for an answer. So nothing has to happen at the moment when something
//! arrives, and the world hands it over when it comes by.

use kiban_ground::Instant;
use kiban_stack::atm::TimedCell;
use std::any::Any;

/// Something on a line of cells.
pub trait Terminal: Any {
    /// Appends the cells of all slots that start before `until` and were not asked for before, in the order of their moments.
    fn cells(&mut self, until: Instant, out: &mut Vec<TimedCell>);
    /// Cells have arrived.
    fn arrive(&mut self, cells: &[TimedCell]);
    /// The terminal as itself, to ask it.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}
