//! The peer's window in the course of a stream, as the kernel of the sender knows it.
//!
//! Purpose   a window that limits a stream is either small or shut. A small buffer advertises a constant
//!           window; the window of a program that reads too slowly shrinks, because unread data fills the
//!           buffer. A single sample at the end cannot tell them apart.
//! Growth    Linux enlarges the window while a program reads quickly, so a window counts as shrunk only if it
//!           is below half of the largest one *before*.
//! Limits    connections of a board are not sampled.

use super::tcp::Stream;
use kiban_base::Instant;
use kiban_measure::TcpInfo;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The number of samples of a stream of the announced length.
const SAMPLES: u32 = 200;
/// The fewest samples from which the course of the window is judged.
const SAMPLES_MIN: u32 = 8;
/// The shortest interval of samples.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Samples of the peer's window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Windows {
    /// The number of samples.
    pub samples: u32,
    /// Samples in which the window was less than half of the largest one before.
    pub shrunk: u32,
    /// The largest window, bytes.
    pub max_bytes: u32,
    /// The segments with data that the connection had sent, and retransmitted, after half of the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_half: Option<[u32; 2]>,
}

impl Windows {
    /// Returns whether the window kept its size; `None` if there are too few samples.
    pub fn is_constant(&self) -> Option<bool> {
        (self.samples >= SAMPLES_MIN).then_some(self.shrunk * 2 < self.samples)
    }

    fn add(&mut self, bytes: u32) {
        self.samples += 1;
        self.shrunk += u32::from(bytes < self.max_bytes / 2);
        self.max_bytes = self.max_bytes.max(bytes);
    }
}

/// Takes the samples.
pub(crate) struct WindowSampler {
    windows: Windows,
    interval: Duration,
    next: Instant,
    half: Instant,
}

impl WindowSampler {
    /// Creates a sampler of a stream that begins now and takes `length`.
    pub(crate) fn new(now: Instant, length: Duration) -> WindowSampler {
        let interval = (length / SAMPLES).max(INTERVAL_MIN);
        WindowSampler { windows: Windows::default(), interval, next: now + interval, half: now + length / 2 }
    }

    /// Takes a sample if one is due.
    pub(crate) fn sample(&mut self, now: Instant, stream: &Stream) {
        if now >= self.next {
            self.next = now + self.interval;
            if let Some(bytes) = stream.peer_window() {
                self.windows.add(bytes);
            }
        }
        if now >= self.half && self.windows.at_half.is_none() {
            let sent = |info: TcpInfo| Some([info.data_segs_out?, info.total_retrans]);
            self.windows.at_half = stream.info().ok().and_then(sent);
            // Only one reading, also of a kernel that does not say it.
            self.half = Instant::NEVER;
        }
    }

    /// Returns the samples; `None` if there are none.
    pub(crate) fn windows(&self) -> Option<Windows> {
        (self.windows.samples > 0).then_some(self.windows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_grows_or_stays_is_constant_and_one_that_fills_is_not() {
        let is_constant = |course: &dyn Fn(u32) -> u32| {
            let mut windows = Windows::default();
            (0..40).for_each(|at| windows.add(course(at)));
            windows.is_constant()
        };
        assert_eq!(is_constant(&|_| 65_535), Some(true));
        assert_eq!(is_constant(&|at| 64_000 << (at / 6)), Some(true), "automatic growth");
        // One burst per round trip fills a small buffer for a moment.
        assert_eq!(is_constant(&|at| if at % 4 == 3 { 2000 } else { 32_000 }), Some(true));
        assert_eq!(is_constant(&|at| if at % 10 == 9 { 64_000 } else { 0 }), Some(false), "a slow reader");
        let mut few = Windows::default();
        few.add(1000);
        assert_eq!(few.is_constant(), None);
    }
}
