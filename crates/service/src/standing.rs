//! How a link stands: up, or lost and when it is opened again.
//!
//! Pauses    [`PAUSE_FIRST`] after a loss, then twice as long each time, up to [`PAUSE_MOST`].

use kiban_ground::Instant;
use std::io;
use std::time::Duration;

/// Before a lost link is opened again: at first, and at most.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(30);

/// How a link stands.
pub(crate) struct Standing {
    pub(crate) error: Option<String>,
    pub(crate) is_up: bool,
    up_at: Instant,
    /// When it is opened again.
    pub(crate) retry_at: Instant,
    pause: Duration,
    pub(crate) losses: u64,
}

impl Standing {
    /// A link that nobody has opened yet.
    pub(crate) fn new() -> Standing {
        Standing {
            error: None,
            is_up: false,
            up_at: Instant::ZERO,
            retry_at: Instant::NEVER,
            pause: PAUSE_FIRST,
            losses: 0,
        }
    }

    /// It was lost.
    pub(crate) fn lose(&mut self, error: &io::Error, now: Instant) {
        // One that holds for a while has earned a quick try.
        if now.since(self.up_at) > PAUSE_MOST {
            self.pause = PAUSE_FIRST;
        }
        self.losses += 1;
        self.is_up = false;
        self.error = Some(error.to_string());
        self.retry_at = now + self.pause;
    }

    /// It could not be opened.
    pub(crate) fn fail(&mut self, error: &io::Error, now: Instant) {
        self.pause = (self.pause * 2).min(PAUSE_MOST);
        self.error = Some(error.to_string());
        self.retry_at = now + self.pause;
    }

    /// It is there.
    pub(crate) fn rise(&mut self, now: Instant) {
        self.is_up = true;
        self.up_at = now;
        self.error = None;
        self.retry_at = Instant::NEVER;
    }

    /// It is to be opened anew.
    pub(crate) fn renew(&mut self, now: Instant) {
        self.is_up = false;
        self.retry_at = now;
    }

    /// Whether its time to be opened has come.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        !self.is_up && self.retry_at <= now
    }
}
