//! State shared by an attachment, its streams and its task.

use kiban_os::clock::machine_nanos;
use kiban_os::wait::{LONG, YieldLimiter};
use kiban_streams::shards::Shards;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// State shared by streams, listeners and the task.
pub(super) struct Attached {
    pub(super) shards: Arc<Shards>,
    pub(super) spin: Duration,
    pub(super) offers: YieldLimiter,
    pub(super) task: OnceLock<tokio::task::AbortHandle>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        // The board notices that the attachment has ended once the task has closed the socket.
        self.task.get().into_iter().for_each(tokio::task::AbortHandle::abort);
    }
}

impl Attached {
    /// Returns whether a reader that has had no data since `began` (nanoseconds of CLOCK_MONOTONIC) should
    /// keep spinning.
    pub(super) fn may_spin(&self, began: u64) -> bool {
        let spun = Duration::from_nanos(machine_nanos() - began);
        if spun >= self.spin {
            return false;
        }
        if spun >= LONG {
            self.offers.yield_if_due();
        }
        std::hint::spin_loop();
        true
    }
}
