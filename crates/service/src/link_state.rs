//! State of a link: up, or lost, with the time of the next attempt to reopen it.
//!
//! Pauses           the pause is [`PAUSE_FIRST`] after a loss, and doubles after each failed attempt, up to
//!                  [`PAUSE_MOST`].

use kiban_base::Instant;
use std::io;
use std::time::Duration;

/// The first and the longest pause before an attempt to reopen a link.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(30);

/// State of a link.
pub(crate) struct LinkState {
    pub(crate) error: Option<String>,
    pub(crate) is_up: bool,
    up_at: Instant,
    /// When to reopen it.
    pub(crate) retry_at: Instant,
    pause: Duration,
    pub(crate) losses: u64,
}

impl LinkState {
    /// Returns the state of a link that has not been opened yet.
    pub(crate) fn new() -> LinkState {
        LinkState {
            error: None,
            is_up: false,
            up_at: Instant::ZERO,
            retry_at: Instant::NEVER,
            pause: PAUSE_FIRST,
            losses: 0,
        }
    }

    /// Records that the link was lost.
    pub(crate) fn lose(&mut self, error: &io::Error, now: Instant) {
        // If the link was up for long enough, the pauses start again from the shortest.
        if now.since(self.up_at) > PAUSE_MOST {
            self.pause = PAUSE_FIRST;
        }
        self.losses += 1;
        self.is_up = false;
        self.error = Some(error.to_string());
        self.retry_at = now + self.pause;
    }

    /// Records that the link could not be opened.
    pub(crate) fn fail(&mut self, error: &io::Error, now: Instant) {
        self.pause = (self.pause * 2).min(PAUSE_MOST);
        self.error = Some(error.to_string());
        self.retry_at = now + self.pause;
    }

    /// Records that the link is up.
    pub(crate) fn rise(&mut self, now: Instant) {
        self.is_up = true;
        self.up_at = now;
        self.error = None;
        self.retry_at = Instant::NEVER;
    }

    /// Makes the link due for an immediate attempt to reopen it.
    pub(crate) fn renew(&mut self, now: Instant) {
        self.is_up = false;
        self.retry_at = now;
    }

    /// Returns whether the link is due to be opened.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        !self.is_up && self.retry_at <= now
    }
}
