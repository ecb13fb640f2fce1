//! Memory pressure: aborts sessions whose peers accept no data when transmit memory is short (RFC 6429).
//!
//! Purpose          return memory from sessions that make no progress to those that do.
//! When             sessions are checked only while less than a quarter of the memory is left and the
//!                  shortage limits a session whose peer accepts data.
//! Which            sessions whose peers have acknowledged less than `floor_bytes` of the queued data during
//!                  `stuck_timeout`. (The timeout shrinks with the memory left, to no less than a fifth.) The
//!                  address that holds the most memory comes first, and among its sessions the one stuck
//!                  longest. Peers that accept a byte now and then, or keep their window at one byte, are
//!                  included.
//! Until            a quarter of the memory is free, or no such session is left. If less than an eighth was
//!                  free at the start, the goal is half of the memory.
//! Own share        if memory is left but a session's address or attached program has used up its share, the
//!                  stuck sessions of that address or program are aborted after `stuck_timeout`, so that
//!                  other users behind the same address are not shut out.
//! Cost             one pass over all sessions is made at most every [`INTERVAL`].

use super::claims::Claim;
use crate::tcp::{Outbox, SessionId, Tcp};
use core::cmp::Reverse;
use core::time::Duration;
use kiban_base::{Context, Instant};

/// Minimum time between two passes.
const INTERVAL: Duration = Duration::from_millis(100);
/// Denominator for fractions of the memory.
const WHOLE: u64 = 1024;
/// Threshold of free memory, in parts of `WHOLE`, below which sessions may be aborted.
const SHORT: u64 = WHOLE / 4;

impl Tcp {
    /// Returns the free transmit memory in parts of `WHOLE`.
    fn memory_left(&self, cx: &mut Context<'_>) -> u64 {
        let pages = &mut cx.memory.transmit;
        let of = |left: u64, all: u64| left * WHOLE / all.max(1);
        of(self.send_share.free(), self.send_share.capacity())
            .min(of(pages.available() as u64, pages.capacity() as u64))
    }

    /// Schedules a pass because a session did not get enough memory.
    pub(crate) fn on_short_memory(&mut self, now: Instant) {
        if self.config.memory_shares && self.config.stuck_timeout.is_some() {
            self.sweep_at = self.sweep_at.min(self.swept_at + INTERVAL).max(now);
        }
    }

    /// Aborts sessions that hold memory without progress, if a pass is due.
    pub(crate) fn relieve(&mut self, cx: &mut Context<'_>, out: &mut Outbox) {
        if self.sweep_at > cx.now {
            return;
        }
        (self.swept_at, self.sweep_at) = (cx.now, Instant::NEVER);
        let left = self.memory_left(cx);
        let Some(patience) = self.config.stuck_timeout else { return };
        let of_claim = self.short_claim.take().filter(|_| left >= SHORT);
        if left >= SHORT && of_claim.is_none() {
            return;
        }
        // Shorten the timeout in proportion to the memory that is not yet promised.
        let promised = self.send_share.free() * WHOLE / self.send_share.capacity().max(1);
        let patience = patience * (promised.clamp(SHORT / 5, SHORT) as u32) / SHORT as u32;
        let concerns = |claim: Claim| {
            of_claim.is_none_or(|own| {
                claim.address == own.address || (claim.owner == own.owner && !own.is_boards)
            })
        };
        let mut next = Instant::NEVER;
        let mut stuck: alloc::vec::Vec<(Reverse<u64>, Instant, SessionId, u32)> = alloc::vec::Vec::new();
        for session in self.table.iter().filter(|session| concerns(session.claim)) {
            let Some(since) = session.stuck_since() else { continue };
            if since + patience <= cx.now {
                let held = self.send_share.held_by(session.claim.address);
                stuck.push((Reverse(held), since, session.id, session.queued()));
            } else {
                next = next.min(since + patience);
            }
        }
        stuck.sort_unstable();
        let wanted = match of_claim {
            Some(claim) => self.send_share.held_by(claim.address) / 2,
            None => {
                // With a single address, an eighth of the memory stays free. If less is free, several
                // addresses compete for it.
                let target = if promised < WHOLE / 8 { WHOLE / 2 } else { SHORT };
                // If only pages are short, abort one session at a time.
                (self.send_share.capacity() * target.saturating_sub(promised) / WHOLE).max(1)
            }
        };
        let mut freed = 0;
        for (_, _, id, bytes) in stuck {
            if freed >= wanted {
                break;
            }
            freed += u64::from(bytes) + u64::from(self.config.session_overhead_bytes);
            self.counters.persist_sessions_aborted += 1;
            self.with(id.index, cx, out, |session, ctx| session.give_up(ctx));
        }
        if freed < wanted && next != Instant::NEVER {
            self.sweep_at = next.max(cx.now + INTERVAL);
            self.short_claim = of_claim;
        }
    }
}
