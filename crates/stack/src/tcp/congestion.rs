//! NewReno (RFC 5681, RFC 6582), counted in bytes (RFC 3465).
//!
//! One acknowledgement may answer a whole burst; in slow start the window therefore grows by what was acknowledged,
//! not by a segment an ACK.

use super::config::Config;
use kiban_wire::tcp::Sequence;

/// What the sender is to do about an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Advice {
    /// Go on.
    Continue,
    /// Send the first unacknowledged segment again.
    Retransmit,
}

#[derive(Debug)]
pub(super) struct Reno {
    window: u32,
    threshold: u32,
    acked: u32,
    duplicates: u32,
    /// In recovery until this byte is acknowledged.
    recovering: Option<Sequence>,
    /// The highest byte sent when loss was last met: older duplicates tell nothing new (RFC 6582 §3.2).
    recover: Sequence,
}

impl Reno {
    pub(super) fn new(config: &Config, mss: u32, initial: Sequence) -> Reno {
        // RFC 6928: min(10 MSS, max(2 MSS, 14600)).
        let window = (config.initial_window_segments * mss).min((2 * mss).max(14_600));
        Reno { window, threshold: u32::MAX, acked: 0, duplicates: 0, recovering: None, recover: initial }
    }

    /// Begins with less than usual.
    pub(super) fn begin_with(&mut self, window: u32) {
        self.window = window;
    }

    /// Bytes that may be outstanding.
    #[inline]
    pub(super) fn window(&self) -> u32 {
        self.window
    }

    /// `bytes` were acknowledged up to `upto`; `flight` were outstanding before, `left` are now.
    #[inline]
    pub(super) fn on_advance(
        &mut self,
        bytes: u32,
        upto: Sequence,
        flight: u32,
        left: u32,
        mss: u32,
    ) -> Advice {
        self.duplicates = 0;
        match self.recovering {
            None => {
                // A window that was not used has not been tried (RFC 7661): it does not grow.
                if flight + mss >= self.window {
                    self.grow(bytes, mss);
                }
                Advice::Continue
            }
            Some(recover) if recover.le(upto) => {
                // RFC 6582 §3.2 step 3, full acknowledgement.
                self.recovering = None;
                self.window = self.threshold.min(left.max(mss) + mss);
                Advice::Continue
            }
            Some(_) => {
                // Partial acknowledgement: the next hole is known, deflate by what has left.
                self.window = self.window.saturating_sub(bytes).max(mss) + if bytes >= mss { mss } else { 0 };
                Advice::Retransmit
            }
        }
    }

    fn grow(&mut self, bytes: u32, mss: u32) {
        if self.window < self.threshold {
            self.window = self.window.saturating_add(bytes).min(1 << 30);
        } else {
            self.acked = self.acked.saturating_add(bytes);
            if self.acked >= self.window {
                self.acked -= self.window;
                self.window = self.window.saturating_add(mss).min(1 << 30);
            }
        }
    }

    /// The same byte was asked for again while `flight` bytes are out, up to `next`.
    pub(super) fn on_duplicate(&mut self, una: Sequence, next: Sequence, flight: u32, mss: u32) -> Advice {
        self.duplicates += 1;
        if self.recovering.is_some() {
            // Every duplicate says that a segment has left the network.
            self.window = self.window.saturating_add(mss).min(1 << 30);
            Advice::Continue
        } else if self.duplicates == 3 && self.recover.lt(una) {
            self.threshold = (flight / 2).max(2 * mss);
            self.window = self.threshold + 3 * mss;
            self.recovering = Some(next);
            self.recover = next;
            Advice::Retransmit
        } else {
            Advice::Continue
        }
    }

    /// The retransmission timer ran out (RFC 5681 §3.1, equation 4; RFC 6582 §3.2 step 4).
    pub(super) fn on_timeout(&mut self, next: Sequence, flight: u32, mss: u32, first: bool) {
        if first {
            self.threshold = (flight / 2).max(2 * mss);
        }
        self.window = mss;
        self.acked = 0;
        self.duplicates = 0;
        self.recovering = None;
        self.recover = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    fn reno() -> Reno {
        Reno::new(&Config::default(), MSS, Sequence(0))
    }

    fn at(n: u32) -> Sequence {
        Sequence(n)
    }

    #[test]
    fn slow_start_grows_by_what_was_acknowledged() {
        let mut reno = reno();
        assert_eq!(reno.window(), 10_000);
        reno.on_advance(4000, at(4000), 10_000, 6000, MSS);
        assert_eq!(reno.window(), 14_000);
    }

    #[test]
    fn a_window_that_was_not_used_does_not_grow() {
        let mut reno = reno();
        reno.on_advance(1000, at(1000), 1000, 0, MSS);
        assert_eq!(reno.window(), 10_000);
    }

    #[test]
    fn the_third_duplicate_halves_and_retransmits_once() {
        let mut reno = reno();
        let advice: alloc::vec::Vec<_> =
            (0..5).map(|_| reno.on_duplicate(at(1), at(10_000), 10_000, MSS)).collect();
        assert_eq!(advice[2], Advice::Retransmit);
        assert_eq!(advice.iter().filter(|advice| **advice == Advice::Retransmit).count(), 1);
        assert_eq!(reno.window(), 5000 + 3 * MSS + 2 * MSS);
        // A partial acknowledgement asks for the next hole, a full one ends the recovery at half the window.
        assert_eq!(reno.on_advance(3000, at(3000), 10_000, 7000, MSS), Advice::Retransmit);
        assert_eq!(reno.on_advance(7000, at(10_000), 7000, 0, MSS), Advice::Continue);
        assert_eq!(reno.window(), 2000);
    }

    #[test]
    fn duplicates_of_an_old_loss_tell_nothing_new() {
        let mut reno = reno();
        reno.on_timeout(at(10_000), 10_000, MSS, true);
        let advice = (0..4).map(|_| reno.on_duplicate(at(5000), at(10_000), 5000, MSS)).last();
        assert_eq!((advice, reno.window()), (Some(Advice::Continue), MSS));
    }
}
