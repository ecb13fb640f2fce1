//! What every service implements.

use super::counters::{GuestView, ProgramView, ServiceCounters};
use kiban_base::Instant;
use kiban_board::{Completion, Host, StreamId};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The maximum number of bytes moved in one call.
pub(crate) const PIECE_BYTES: usize = 64 << 10;
/// A peer that reads fewer bytes per second counts as slow.
pub(super) const MINIMUM_RATE: u64 = 512;

/// Closes a stream, and discards what the peer has sent and nobody has read. With unread data, closing would
/// reset the connection, and the peer would lose what was written last (RFC 9293 §3.6.1, SHLD-3).
pub(super) fn close_unread(stream: StreamId, host: &mut Host<'_>) {
    while let Ok(Some(_)) = host.take(stream) {}
    // The stream may have ended just now.
    let _ = host.close(stream);
}

/// A service of a board.
pub trait Service {
    /// Starts listening.
    ///
    /// # Errors
    /// A message, if the service cannot listen.
    fn start(&mut self, host: &mut Host<'_>, now: Instant) -> Result<(), String>;
    /// Handles a completion for one of the service's streams.
    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant);
    /// Ends idle sessions, and does other periodic work.
    fn look(&mut self, host: &mut Host<'_>, now: Instant);
    /// Returns when `on_timeout` must be called; `NEVER` if the service has no timer of its own.
    fn deadline(&self) -> Instant {
        Instant::NEVER
    }
    /// Handles the passing of the deadline.
    fn on_timeout(&mut self, _host: &mut Host<'_>, _now: Instant) {}
    /// Stops listening. Open sessions continue until they end.
    fn close(&mut self, host: &mut Host<'_>);
    /// Resets all sessions.
    fn cut(&mut self, host: &mut Host<'_>);
    /// Returns the number of open sessions.
    fn sessions(&self) -> usize;
    /// Returns the service's counters.
    fn counters(&self) -> ServiceCounters;
    /// Returns the programs that use a NIC through the service.
    fn programs(&self) -> Vec<ProgramView> {
        Vec::new()
    }
    /// Returns the state of the service's guest.
    fn guest(&self) -> GuestView {
        GuestView::default()
    }
    /// Returns a file that becomes readable when the service has work from outside the board; `None` if it
    /// has no such file.
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
    /// How long a session may be idle; `None` means no limit.
    pub idle: Option<Duration>,
}
