//! Programs: applications on a board.
//!
//! A program gets the completions of its own streams, sockets and pings ([`Consumer`](crate::Consumer)), and
//! calls the host edge. It has no clock and no thread, so the same program runs in virtual time and in real
//! time; it may return a deadline, and is called when that is reached. In virtual time, its work takes no
//! time.

use crate::{Completion, Host};
use core::any::Any;
use kiban_base::Instant;

/// An application on a board.
pub trait Program: Any {
    /// Called once, before anything else.
    fn start(&mut self, host: &mut Host<'_>, now: Instant);
    /// Handles a completion of one of the program's streams, sockets or pings; [`Host::consumer`] identifies
    /// the object's owner within the program.
    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant);
    /// Returns when the program must be called even if nothing happens; the time may be early, but is never
    /// late.
    fn deadline(&self) -> Instant {
        Instant::NEVER
    }
    /// Called when the program's deadline is reached. Afterwards, the program returns a later deadline.
    fn on_timeout(&mut self, _host: &mut Host<'_>, _now: Instant) {}
    /// Returns whether the program has done all its work.
    fn is_done(&self) -> bool;
    /// Returns the program as `Any`, so that it can be downcast and queried afterwards.
    fn as_any(&self) -> &dyn Any;
}
