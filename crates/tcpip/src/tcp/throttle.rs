//! A limit on challenge ACKs and similar answers to unexpected segments (RFC 5961 §7).
//!
//! A fixed, shared limit is a side channel: an attacker who exhausts it learns how many answers other peers
//! received (Cao et al. 2016, CVE-2016-5696). So the limit of each second is drawn at random, from half of
//! the setting to one and a half times the setting.

use super::Config;
use core::time::Duration;
use kiban_base::{Context, Instant};

const PERIOD: Duration = Duration::from_secs(1);

/// The number of answers left in this second.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    until: Instant,
    left: u32,
}

impl Throttle {
    /// Takes one answer from the limit. Returns false if none is left.
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
