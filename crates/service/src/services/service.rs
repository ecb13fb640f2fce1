//! What every service implements.

use super::counters::ServiceCounters;
use kiban_base::Instant;
use kiban_board::{Completion, Host};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Maximum number of bytes that are moved in one call.
pub(crate) const PIECE_BYTES: usize = 64 << 10;
/// Bytes per second below which a peer counts as slow.
pub(super) const MINIMUM_RATE: u64 = 512;

/// A service of a board.
pub trait Service {
    /// Starts to listen.
    ///
    /// # Errors
    /// A message, if it cannot listen.
    fn start(&mut self, host: &mut Host<'_>, now: Instant) -> Result<(), String>;
    /// Handles a completion of one of the service's streams.
    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant);
    /// Ends idle sessions, and does other periodic work.
    fn look(&mut self, host: &mut Host<'_>, now: Instant);
    /// Stops listening. Open sessions continue until they end.
    fn close(&mut self, host: &mut Host<'_>);
    /// Resets all sessions.
    fn cut(&mut self, host: &mut Host<'_>);
    /// Returns the number of open sessions.
    fn sessions(&self) -> usize;
    /// Returns the service's counters.
    fn counters(&self) -> ServiceCounters;
    /// Returns a file that becomes readable when there is work for the service from outside the board, if
    /// any.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Returns whether there is work that no file has signalled.
    fn is_ready(&self) -> bool {
        false
    }
    /// Handles work: called when the file is readable, or when `is_ready` returns true.
    fn on_file(&mut self, _host: &mut Host<'_>, _now: Instant) {}
}

/// Limits of a service.
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    /// Limit of concurrent sessions.
    pub sessions_max: usize,
    /// How long a session may be idle; `None`: for ever.
    pub idle: Option<Duration>,
}
