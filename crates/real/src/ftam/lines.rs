//! How many log lines somebody may cause.
//!
//! Goal      every offence is told, and a flood of them does not fill the disk that the log is on.
//! Rule      a bucket of [`LINES_MAX`] lines, to which one a second is added. What finds it empty is counted, and the next line
//!           that is told tells how many were not.
//! Beside    time is lent.

use kiban_ground::Instant;
use std::time::Duration;

/// So many lines may come at once.
pub(super) const LINES_MAX: u32 = 32;
/// And then one in this time.
const LINE_EACH: Duration = Duration::from_secs(1);

/// A bucket of lines.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    left: u32,
    filled: Instant,
    untold: u64,
}

impl Lines {
    /// A full bucket.
    pub(super) fn new(now: Instant) -> Lines {
        Lines { left: LINES_MAX, filled: now, untold: 0 }
    }

    /// Whether a line may be told now: how many were not told since the last one.
    pub(super) fn may(&mut self, now: Instant) -> Option<u64> {
        let fallen = now.since(self.filled).as_secs() / LINE_EACH.as_secs();
        let fallen = u32::try_from(fallen).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(fallen).min(LINES_MAX);
        // A full bucket begins to be filled when it is drawn from.
        self.filled = if self.left == LINES_MAX { now } else { self.filled + LINE_EACH * fallen };
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Some(std::mem::take(&mut self.untold))
            }
            None => {
                self.untold += 1;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_a_trickle_is_told() {
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let mut lines = Lines::new(at(0));
        let told = (0..1000).filter(|_| lines.may(at(5)).is_some()).count();
        assert_eq!(told, LINES_MAX as usize);
        assert_eq!(lines.may(at(900)), None);
        assert_eq!(lines.may(at(1100)), Some(1000 - u64::from(LINES_MAX) + 1));
        assert_eq!(lines.may(at(1200)), None);
        assert_eq!(lines.may(at(2100)), Some(1));
        let trickle = (4..1000).filter(|second| lines.may(at(second * 1000)) == Some(0)).count();
        assert_eq!(trickle, 996);
        let after = (0..1000).filter(|_| lines.may(at(1_000_000_000)).is_some()).count();
        assert_eq!(after, LINES_MAX as usize);
    }
}
