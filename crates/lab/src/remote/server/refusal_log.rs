//! Rate-limited logging of refused connections, so that a client that is refused a thousand times per second
//! cannot fill the disk.
//!
//! Window      the first refusal opens a window of [`WINDOW`]. Within it, the first refusal of each network
//!             and cause is logged, up to [`LINES_MAX`] lines. When the window closes, one more line for each
//!             of these gives the number of further refusals, and a last line counts the refusals that had no
//!             line.
//! Limits      at most 2 × [`LINES_MAX`] + 1 lines per [`WINDOW`], whatever the clients do.

use super::event::{Event, Refusal};
use kiban_base::Instant;
use kiban_os::origin::origin_of;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// The length of a window.
const WINDOW: Duration = Duration::from_secs(10);
/// The maximum number of lines in a window before the closing lines; each is for one network and one cause.
const LINES_MAX: usize = 16;

/// The lines of the open window.
#[derive(Default)]
pub(super) struct RefusalLog {
    until: Option<Instant>,
    /// For each network and cause: the address refused last, and the number of refusals after the logged one.
    lines: BTreeMap<(IpAddr, Refusal), (IpAddr, u64)>,
    others: u64,
}

impl RefusalLog {
    /// Counts a refusal; returns whether to log it.
    pub(super) fn refused(&mut self, address: IpAddr, why: Refusal, now: Instant) -> Option<Event> {
        self.until.get_or_insert(now + WINDOW);
        let key = (origin_of(address), why);
        if let Some((last, more)) = self.lines.get_mut(&key) {
            (*last, *more) = (address, *more + 1);
        } else if self.lines.len() < LINES_MAX {
            self.lines.insert(key, (address, 0));
            return Some(Event::Refused { address, why, more: 0 });
        } else {
            self.others += 1;
        }
        None
    }

    /// Returns the closing lines of a window that is over.
    pub(super) fn on_time(&mut self, now: Instant) -> Vec<Event> {
        if self.until.is_none_or(|until| now < until) {
            return Vec::new();
        }
        let RefusalLog { lines, others, .. } = std::mem::take(self);
        let more = lines.into_iter().filter(|(_, (_, more))| *more > 0);
        let lines = more.map(|((_, why), (address, more))| Event::Refused { address, why, more });
        lines.chain((others > 0).then_some(Event::RefusedOthers(others))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_gives_few_lines_and_all_are_counted() {
        let mut ration = RefusalLog::default();
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let mut lines = Vec::new();
        for number in 0..100_000u32 {
            let address = IpAddr::from([198, 51, 100, (number % 50) as u8]);
            lines.extend(ration.refused(address, Refusal::Silent, at(u64::from(number) / 20)));
            lines.extend(ration.on_time(at(u64::from(number) / 20)));
        }
        assert_eq!(lines.len(), LINES_MAX, "{lines:?}");
        lines.extend(ration.on_time(at(10_000)));
        assert!(lines.len() <= 2 * LINES_MAX + 1, "{lines:?}");
        let counted = lines.iter().map(|line| match line {
            Event::Refused { more: 0, .. } => 1,
            Event::Refused { more, .. } | Event::RefusedOthers(more) => *more,
            _ => 0,
        });
        assert_eq!(counted.sum::<u64>(), 100_000);
        // The next window opens with the next refusal.
        assert!(ration.on_time(at(60_000)).is_empty());
        assert!(ration.refused(IpAddr::from([198, 51, 100, 1]), Refusal::Silent, at(70_000)).is_some());
        // Each cause of refusal has a line of its own.
        assert!(ration.refused(IpAddr::from([198, 51, 100, 1]), Refusal::Token, at(70_000)).is_some());
        assert!(ration.refused(IpAddr::from([198, 51, 100, 1]), Refusal::Token, at(70_000)).is_none());
    }
}
