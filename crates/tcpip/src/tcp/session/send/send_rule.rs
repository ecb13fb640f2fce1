//! Decides which new data may be sent now: windows, Nagle, silly-window avoidance (RFC 9293 §3.8.6.2.1, RFC
//! 1122 §4.2.3.4).
//!
//! Windows          the peer's window and the congestion window bound the outstanding data.
//! Nagle            a short segment waits while earlier data is unacknowledged. The variants of the algorithm
//!                  ([`Nagle`]) differ in the data that counts, and in what is short.
//! Silly window     if the windows admit only part of the queued data, and less than a full segment, that
//!                  part is sent only if it is at least half of the largest window that the peer has offered
//!                  (`silly_window_percent`). Otherwise, a reader that frees a few bytes at a time would
//!                  cause a stream of tiny segments.

use crate::tcp::config::{Config, Nagle};
use crate::tcp::session::tcb::Session;

impl Session {
    /// Returns the length of the next new segment and whether it carries FIN, or `None` if nothing may be
    /// sent.
    pub(in crate::tcp::session) fn next_segment(&self, config: &Config) -> Option<(u32, bool)> {
        let sent = self.snd_una.distance(self.snd_nxt);
        let queued = self.send_queue.bytes();
        if sent > queued {
            return None;
        }
        let unsent = queued - sent;
        let finishing = self.state.owes_finish();
        if self.zero_window_probe {
            // Send one byte, our FIN, or as much as the window admits: it may have opened while pacing
            // delayed the probe.
            let fin = finishing && unsent == 0;
            let length = unsent.min(self.snd_wnd.max(1)).min(self.mss);
            return (sent == 0 && (fin || unsent > 0)).then_some((length, fin));
        }
        let mut length = unsent.min(self.usable(config)).min(self.segment_max(config));
        let may_be_short = finishing || !self.waits();
        if length > self.mss && !(length == unsent && may_be_short) {
            length -= length % self.mss;
        }
        let all = length == unsent;
        // RFC 9293 §3.8.6.2.1: send a full segment, or all queued data if Nagle permits, or at least half of
        // the largest window.
        let large = match self.nagle {
            Nagle::Limit => self.mss.min(config.nagle_limit_bytes),
            _ => self.mss,
        };
        let worth = length >= large
            || (length > 0 && all && may_be_short)
            || (length > 0 && length >= self.silly_window(config));
        // A FIN also takes one byte of the window.
        let fin = finishing && all && sent + length < self.snd_wnd;
        if worth || (fin && unsent == 0) { Some((length, fin)) } else { None }
    }

    /// Returns how many segments of `length` bytes may be sent back to back, if that is a full segment; the
    /// last queued one is not counted.
    pub(in crate::tcp::session) fn full_segments(&self, length: u32, config: &Config) -> usize {
        if length < self.segment_max(config) {
            return 0;
        }
        let sent = self.snd_una.distance(self.snd_nxt);
        let more = self.send_queue.bytes().saturating_sub(sent).saturating_sub(1);
        (more.min(self.usable(config)) / length) as usize
    }

    /// Returns the number of bytes that both windows still admit.
    fn usable(&self, config: &Config) -> u32 {
        let sent = self.snd_una.distance(self.snd_nxt);
        self.snd_wnd.saturating_sub(sent).min(self.congestion_room(config))
    }

    /// Returns whether Nagle delays a last segment that is not full.
    fn waits(&self) -> bool {
        match self.nagle {
            Nagle::Off => false,
            Nagle::Classic | Nagle::Limit => self.snd_nxt != self.snd_una,
            // The rest of a write follows as soon as there is room. If its first part did not wait, each
            // little room in a full buffer would become a short segment.
            Nagle::Minshall if self.write_cut_short => self.snd_nxt != self.snd_una,
            // A short segment beyond SND.NXT (a window probe, before a timeout) will be sent again.
            Nagle::Minshall => self.snd_una.lt(self.snd_sml) && self.snd_sml.le(self.snd_nxt),
        }
    }

    /// Returns the number of bytes that makes a short segment worth sending.
    fn silly_window(&self, config: &Config) -> u32 {
        (u64::from(self.snd_wnd_max) * u64::from(config.silly_window_percent) / 100) as u32
    }
}
