//! The world: boards and switches joined by lines and cables, in virtual time.
//!
//! Goal      run the unchanged code of the boards in controlled time, exact to the cell and many times faster
//!           than the line.
//! Events    there are few: the end of a frame or the arrival of a packet at the far end of a line, a board's
//!           deadline, and room in a port. Events are kept in a heap ordered by (time, number), so that a run
//!           can be repeated exactly.
//! Pull      cells move only when they are needed. At an event, each node concerned pulls its lines up to the
//!           time of the event: a line pulls its sender, and a switch pulls the lines into it, each up to the
//!           latest time at which a cell can arrive and still leave the switch in time. A switch subtracts
//!           the transit time of its fabric, so every pull goes further back in time and ends at boards,
//!           which have acted already. Switches that feed each other are pulled in steps no longer than the
//!           round-trip delay between them; time in which no cell is in transit is skipped.
//! Packets   are pushed rather than pulled: a packet that a board sends goes onto its cable at once
//!           (`network/cable.rs`), and causes an event where it arrives.
//! Early     the end of the next frame on a line is known exactly if nothing more is sent, and is never
//!           earlier than predicted. An event that turns out to be too early is rescheduled.
//! Terminals send and receive cells without feedback (`programs/terminal.rs`): they cause no events, and
//!           receive cells when a frame ends or at [`World::collect`].
//! Cost      processor time is measured with a tick source that the caller supplies, because the world has no
//!           clock.
//! Modelled  a board may be given a modelled processor (`models/processor.rs`); the board is then called only
//!           when that processor is free.

mod boards;
mod build;
mod cells;
mod run;
mod state;

pub use state::{Cost, World};
