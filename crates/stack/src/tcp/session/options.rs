//! The options of a running session: timestamps on every segment (RFC 7323), what waits behind a hole on every
//! acknowledgement (RFC 2018, RFC 2883).
//!
//! Size      the segment size of a session leaves room for timestamps (RFC 6691). Blocks come on top: they go beside
//!           payload where there is room; a full segment goes without, and an acknowledgement that is owed follows it
//!           alone. So blocks never make data smaller, and no packet longer than it may be.

use super::{Desk, Owed, Session};
use crate::tcp::state::State;
use kiban_ground::Instant;
use kiban_wire::tcp::{Flags, Header, Options, SACK_BLOCKS_MAX, TIMESTAMPS_BYTES};

/// Bytes that timestamps take in every header.
pub(super) const STAMPS_BYTES: u32 = TIMESTAMPS_BYTES as u32;
/// Bytes of a SACK option with its padding: without blocks, and each of them (RFC 2018 §3).
const SACK_BYTES: u32 = 4;
const BLOCK_BYTES: u32 = 8;

impl Session {
    /// What the peer's SYN says of options that both sides must want.
    pub(super) fn learn_options(&mut self, header: &Header, now: Instant) {
        match (&mut self.stamps, header.options.timestamps) {
            (Some(stamps), Some(theirs)) => {
                stamps.begin(theirs.value, self.expected, now);
                // RFC 6691 §2: the offered size counts no options; whoever sends them makes room.
                self.mss -= STAMPS_BYTES;
            }
            _ => self.stamps = None,
        }
    }

    /// RFC 7323 §5.3, R1: whether a segment is of our time. If not, it has been counted and answered.
    #[inline]
    pub(super) fn check_stamps(&mut self, header: &Header, pure: bool, desk: &mut Desk<'_, '_>) -> bool {
        let Some(stamps) = &self.stamps else { return true };
        // RFC 7323 §5.2: a reset is believed by its place alone, and a SYN is challenged anyway (RFC 5961 §4).
        if header.flags.has_any(Flags::RST | Flags::SYN) {
            return true;
        }
        let Some(theirs) = header.options.timestamps else {
            // RFC 7323 §3.2: dropped without a word.
            desk.counters.without_timestamps += 1;
            return false;
        };
        if stamps.is_old(theirs.value, desk.cx.now) {
            desk.counters.old_timestamps += 1;
            if !pure {
                self.owed = Owed::Now;
            } else if header.sequence != self.expected || self.una.lt(header.acknowledgment) {
                self.challenge(desk);
            }
            // Else a bare acknowledgement that another overtook: to answer it would look like a loss to the peer.
            return false;
        }
        true
    }

    /// A segment was acceptable: its value is given back, its echo measures where our own timing is of no use.
    #[inline]
    pub(super) fn take_stamps(&mut self, header: &Header, desk: &mut Desk<'_, '_>) {
        if let (Some(stamps), Some(theirs)) = (&mut self.stamps, header.options.timestamps) {
            stamps.take(theirs.value, header.sequence, desk.cx.now);
        }
    }

    /// RFC 7323 §4.1: an acknowledgement of new bytes measures by what it gives back. Only where our own timing, which
    /// is finer than a millisecond, is in doubt (Karn's rule).
    pub(super) fn measure_by_echo(&mut self, header: &Header, desk: &mut Desk<'_, '_>) {
        let now = desk.cx.now;
        if let (Some(stamps), Some(theirs)) = (&self.stamps, header.options.timestamps)
            && let Some(trip) = stamps.trip(theirs.echo, now)
        {
            self.rtt.on_echo(trip, now, desk.config);
        }
    }

    /// Adds what a segment with `flags` carries to `options`. Whether it says all that is to be said of holes.
    pub(super) fn fill_options(
        &mut self,
        options: &mut Options,
        flags: Flags,
        payload_bytes: u32,
        now: Instant,
    ) -> bool {
        let acknowledges = flags.has(Flags::ACK);
        // Before the peer has answered, only the SYN may offer.
        let knows = self.state != State::SynSent || flags.has(Flags::SYN);
        if let Some(stamps) = &mut self.stamps
            && knows
        {
            options.timestamps = Some(stamps.option(acknowledges, now));
            if acknowledges {
                stamps.on_acknowledgment_sent(self.expected);
            }
        }
        if !self.sack || !acknowledges || flags.has_any(Flags::SYN | Flags::RST) || self.early.says_nothing()
        {
            return true;
        }
        let room = self.mss.saturating_sub(payload_bytes).saturating_sub(SACK_BYTES);
        let blocks = (room / BLOCK_BYTES) as usize;
        options.sack = self.early.report(self.expected, blocks.min(SACK_BLOCKS_MAX));
        blocks > 0
    }
}
