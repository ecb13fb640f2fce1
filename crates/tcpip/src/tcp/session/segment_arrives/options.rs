//! Options of an established session: timestamps on every segment (RFC 7323), SACK blocks on acknowledgements
//! (RFC 2018, RFC 2883).
//!
//! Size             the session's MSS already leaves room for timestamps (RFC 6691). SACK blocks are added
//!                  where the payload leaves room. A full segment carries none, and a due acknowledgement
//!                  with SACK blocks then follows in a segment of its own. So SACK blocks never displace data
//!                  or make a packet too long.

use crate::tcp::session::tcb::{PendingAck, Session, SessionContext};
use crate::tcp::state::State;
use crate::wire::tcp::{Flags, Header, Options, SACK_BLOCKS_MAX, TIMESTAMPS_BYTES};
use kiban_base::Instant;

/// Bytes of the timestamp option in every header.
pub(in crate::tcp::session) const STAMPS_BYTES: u32 = TIMESTAMPS_BYTES as u32;
/// Bytes of a SACK option with padding but without blocks, and bytes per block (RFC 2018 §3).
const SACK_BYTES: u32 = 4;
const BLOCK_BYTES: u32 = 8;

impl Session {
    /// Takes the timestamp option from the peer's SYN: both sides must offer it.
    pub(in crate::tcp::session) fn learn_options(&mut self, header: &Header, now: Instant) {
        match (&mut self.timestamps, header.options.timestamps) {
            (Some(stamps), Some(theirs)) => {
                stamps.begin(theirs.value, self.rcv_nxt, now);
                // RFC 6691 §2: the MSS option does not count options; the sender deducts them.
                self.mss -= STAMPS_BYTES;
            }
            _ => self.timestamps = None,
        }
    }

    /// Checks the timestamp (PAWS, RFC 7323 §5.3, R1). Returns false if the segment must be dropped; it has
    /// then been counted and, where due, answered.
    #[inline]
    pub(in crate::tcp::session) fn check_paws(
        &mut self,
        header: &Header,
        pure: bool,
        ctx: &mut SessionContext<'_, '_>,
    ) -> bool {
        let Some(stamps) = &self.timestamps else { return true };
        // RFC 7323 §5.2: only the sequence number of a RST is checked, and a SYN gets a challenge ACK anyway
        // (RFC 5961 §4).
        if header.flags.has_any(Flags::RST | Flags::SYN) {
            return true;
        }
        let Some(theirs) = header.options.timestamps else {
            // RFC 7323 §3.2: dropped silently.
            ctx.counters.without_timestamps += 1;
            return false;
        };
        if stamps.fails_paws(theirs.value, ctx.cx.now) {
            ctx.counters.paws_rejected += 1;
            if !pure {
                self.pending_ack = PendingAck::Immediate;
            } else if header.sequence != self.rcv_nxt || self.snd_una.lt(header.acknowledgment) {
                self.challenge(ctx);
            }
            // Otherwise the segment is a pure ACK that was reordered; an answer would look like a duplicate
            // ACK to the peer.
            return false;
        }
        true
    }

    /// Records the timestamp of an acceptable segment, to be echoed.
    #[inline]
    pub(in crate::tcp::session) fn update_ts_recent(
        &mut self,
        header: &Header,
        ctx: &mut SessionContext<'_, '_>,
    ) {
        if let (Some(stamps), Some(theirs)) = (&mut self.timestamps, header.options.timestamps) {
            stamps.take(theirs.value, header.sequence, ctx.cx.now);
        }
    }

    /// Takes an RTT sample from the timestamp echo of an ACK for new data (RFC 7323 §4.1). Used only if our
    /// own timing, which is finer than a millisecond, is ambiguous (Karn's rule).
    pub(in crate::tcp::session) fn measure_by_echo(
        &mut self,
        header: &Header,
        ctx: &mut SessionContext<'_, '_>,
    ) {
        let now = ctx.cx.now;
        if let (Some(stamps), Some(theirs)) = (&self.timestamps, header.options.timestamps)
            && let Some(trip) = stamps.rtt_of_echo(theirs.echo, now)
        {
            self.rtt.on_echo(trip, now, ctx.config);
        }
    }

    /// Adds timestamps and SACK blocks to the options of a segment with `flags`. Returns false if SACK blocks
    /// are due but did not fit.
    pub(in crate::tcp::session) fn fill_options(
        &mut self,
        options: &mut Options,
        flags: Flags,
        payload_bytes: u32,
        now: Instant,
    ) -> bool {
        let acknowledges = flags.has(Flags::ACK);
        // Until the peer has answered, only the SYN carries timestamps.
        let knows = self.state != State::SynSent || flags.has(Flags::SYN);
        if let Some(stamps) = &mut self.timestamps
            && knows
        {
            options.timestamps = Some(stamps.option(acknowledges, now));
            if acknowledges {
                stamps.on_acknowledgment_sent(self.rcv_nxt);
            }
        }
        if !self.sack
            || !acknowledges
            || flags.has_any(Flags::SYN | Flags::RST)
            || self.out_of_order.has_no_sack_blocks()
        {
            return true;
        }
        let room = self.mss.saturating_sub(payload_bytes).saturating_sub(SACK_BYTES);
        let blocks = (room / BLOCK_BYTES) as usize;
        options.sack = self.out_of_order.sack_blocks(self.rcv_nxt, blocks.min(SACK_BLOCKS_MAX));
        blocks > 0
    }
}
