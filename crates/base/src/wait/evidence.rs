//! The way in which an arrival was found at the end of a wait.

use crate::Instant;

/// How an arrival was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// While polling, or at the last check before a sleep.
    Spinning,
    /// After a sleep that the bell ended.
    Rung {
        /// The time of the ring, as recorded by the ringer. It is trusted only if it lies between the
        /// beginning of the wait and now.
        at: Instant,
    },
    /// After a sleep that the bell did not end, but the timer or another event that the sleeper watches.
    Unrung,
}
