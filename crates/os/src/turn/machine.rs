//! The machine that a turn drives, and the results its callers get.

use kiban_base::Instant;
use std::hash::Hash;
use std::time::Duration;

/// A value that a turn guards and drives: it receives and sends when it is driven. All calls hold the turn's
/// lock.
pub trait Machine: Send + 'static {
    /// Receives and sends as much as possible. Bounded: [`Machine::has_more`] returns whether work is left.
    fn drive(&mut self, now: Instant);
    /// Called after the caller could respond to what was received, and its look found nothing.
    fn settle(&mut self, now: Instant);
    /// Sends pending output, after a caller's work.
    fn flush(&mut self, now: Instant);
    /// Returns whether something that a thread may wait for has happened since the last call.
    fn take_progress(&mut self) -> bool;
    /// Returns when the machine must be driven even if nothing arrives; [`Instant::NEVER`] if there is no
    /// such time.
    fn deadline(&self) -> Instant;
    /// Returns whether work is left that no event will announce: the last drive reached its bound, or a bell
    /// was added that is not armed. The driver then looks again instead of sleeping.
    fn has_more(&self) -> bool;
    /// Arms the bells of its links: a driver is about to sleep.
    fn arm(&mut self) {}
    /// Disarms the bells after a sleep. Returns when the first was rung, in nanoseconds of
    /// [`crate::clock::machine_nanos`], if any was.
    fn disarm(&mut self) -> Option<u64> {
        None
    }
    /// Called after a sleep: time has passed, and checks that are made rarely are due.
    fn after_sleep(&mut self) {}
}

/// The name of a queue. Each queue has a waiting policy and its own history.
pub trait QueueKey: Copy + Eq + Hash + Send + 'static {}

impl<Q: Copy + Eq + Hash + Send + 'static> QueueKey for Q {}

/// Why a wait ended without a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitError {
    /// The timeout has passed.
    Timeout,
    /// The turn has been closed.
    Closed,
}

/// When the helper drives.
#[derive(Clone, Copy, Debug)]
pub struct HelperPolicy {
    /// How long no thread must have driven before the helper does; also its polling interval.
    pub idle: Duration,
    /// The longest polling interval, used while another thread drives.
    pub tick_max: Duration,
    /// Whether only calls that look for something count as driving: a program that posts work, and finds what
    /// was there, may never look again.
    pub alert: bool,
}

impl HelperPolicy {
    /// For programs that work and wait only through the turn.
    pub const SELDOM: HelperPolicy =
        HelperPolicy { idle: Duration::from_millis(10), tick_max: Duration::from_millis(100), alert: false };
    /// For programs that also wait outside the turn: on files that it signals, or on memory that peers write
    /// to.
    pub const ALERT: HelperPolicy =
        HelperPolicy { idle: Duration::from_micros(50), tick_max: Duration::from_millis(4), alert: true };
}
