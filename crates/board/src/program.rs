//! Programs: what applications do with a board.
//!
//! A program is told of completions and works on the host edge. It knows no clock and no thread, so that the same program runs
//! in virtual time and in real time; it may name a deadline, and is called when that has come. In virtual time it costs nothing.

use crate::{Completion, Host};
use core::any::Any;
use kiban_ground::Instant;

/// An application on a board.
pub trait Program: Any {
    /// Once, before anything else.
    fn start(&mut self, host: &mut Host<'_>, now: Instant);
    /// Something has happened.
    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant);
    /// When it wants to act by itself; may be early, never late.
    fn deadline(&self) -> Instant {
        Instant::NEVER
    }
    /// Its deadline has come: it names a later one.
    fn on_timeout(&mut self, _host: &mut Host<'_>, _now: Instant) {}
    /// Whether everything that was to be done is done.
    fn is_done(&self) -> bool;
    /// The program as itself, to ask it afterwards.
    fn as_any(&self) -> &dyn Any;
}
