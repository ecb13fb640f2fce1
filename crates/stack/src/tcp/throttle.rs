//! A bound on what strangers can make the board say (RFC 5961 §7).
//!
//! A common bound tells whoever uses it up what others were answered (Cao et al. 2016, CVE-2016-5696). So the bound of
//! every second is drawn anew, from half of the setting to one and a half, and the count tells nothing.

use super::Config;
use core::time::Duration;
use kiban_ground::{Context, Instant};

const PERIOD: Duration = Duration::from_secs(1);

/// What is left of this second's answers.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    until: Instant,
    left: u32,
}

impl Throttle {
    /// Whether one more answer may go.
    pub(super) fn admits(&mut self, config: &Config, cx: &mut Context<'_>) -> bool {
        if self.until <= cx.now {
            let most = config.challenges_per_second;
            self.until = cx.now + PERIOD;
            self.left = most.div_ceil(2).saturating_add(cx.rng.below(u64::from(most)) as u32);
        }
        let some = self.left > 0;
        self.left -= u32::from(some);
        some
    }
}
