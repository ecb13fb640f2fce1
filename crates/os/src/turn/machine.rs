//! The machine that a turn drives, and the results that its callers get.

use kiban_base::Instant;
use std::hash::Hash;
use std::time::Duration;

/// A value that a turn guards and drives. Driving it means letting it receive and send. All calls hold the
/// turn's lock.
pub trait Machine: Send + 'static {
    /// Receives and sends as much as possible. Bounded: [`Machine::has_more`] returns whether work is left.
    fn drive(&mut self, now: Instant);
    /// Called after the caller has had a chance to respond to received data and its look has found nothing.
    fn settle(&mut self, now: Instant);
    /// Sends pending output, after a caller's work.
    fn flush(&mut self, now: Instant);
    /// Returns whether an event that a thread may wait for has happened since the last call.
    fn take_progress(&mut self) -> bool;
    /// Returns when the machine must be driven even if nothing arrives; [`Instant::NEVER`] if there is no
    /// such time.
    fn deadline(&self) -> Instant;
    /// Returns whether work is left that no event will announce: the last drive reached its bound, or an
    /// unarmed bell was added. In that case, the driver looks again instead of sleeping.
    fn has_more(&self) -> bool;
    /// Arms the bells of the machine's links, because a driver is about to sleep.
    fn arm(&mut self) {}
    /// Disarms the bells after a sleep. Returns when the first was rung, in nanoseconds of
    /// [`crate::clock::machine_nanos`], if any was.
    fn disarm(&mut self) -> Option<u64> {
        None
    }
    /// Called after a sleep, because infrequent checks may then be due.
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
    /// How long the machine may go undriven before the helper drives it; also the helper's polling interval.
    pub idle: Duration,
    /// The longest polling interval, used while another thread drives.
    pub tick_max: Duration,
    /// Whether only calls that look for results count as driving, because a program that only posts work may
    /// not look again for a long time.
    pub alert: bool,
}

impl HelperPolicy {
    /// Settings for programs that work and wait only through the turn.
    pub const SELDOM: HelperPolicy =
        HelperPolicy { idle: Duration::from_millis(10), tick_max: Duration::from_millis(100), alert: false };
    /// Settings for programs that also wait outside the turn: on files that the turn signals, or on memory
    /// that peers write to.
    pub const ALERT: HelperPolicy =
        HelperPolicy { idle: Duration::from_micros(50), tick_max: Duration::from_millis(4), alert: true };
}
