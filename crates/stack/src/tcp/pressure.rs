//! What happens when transmit memory is short: sessions whose peers take nothing are given up (RFC 6429).
//!
//! Purpose   memory that is held by whoever came first comes back to those who use it.
//! When      less than a quarter is left, and a session whose peer takes what it is sent is bounded by that. Nothing is looked at otherwise.
//! Who       sessions whose peers have acknowledged less than `floor_bytes` of what waits for `stuck_patience` (less in proportion
//!           to what is left, at least a fifth): those of the address that holds most first, of these the longest stuck first. A peer
//!           that takes a byte now and then, or keeps its window at one, is one of them.
//! Until     a quarter of the memory is free (half of it, where less than an eighth was), or none is left to give up.
//! Own       where memory is left and a session's own address, or attached program, has its share, the stuck sessions of that one make
//!           way after `stuck_patience`: who shares an address with them is not shut out.
//! Cost      one look at all sessions, at most every [`INTERVAL`].

use super::claims::Claim;
use super::{Outbox, SessionId, Tcp};
use core::cmp::Reverse;
use core::time::Duration;
use kiban_ground::{Context, Instant};

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(100);
/// What is left is measured in so many parts of the whole.
const WHOLE: u64 = 1024;
/// With less than so many parts left, somebody may be given up.
const SHORT: u64 = WHOLE / 4;

impl Tcp {
    /// Parts of the transmit memory that are left.
    fn memory_left(&self, cx: &mut Context<'_>) -> u64 {
        let pages = &mut cx.memory.transmit;
        let of = |left: u64, all: u64| left * WHOLE / all.max(1);
        of(self.send_share.free(), self.send_share.capacity())
            .min(of(pages.at_home() as u64, pages.capacity() as u64))
    }

    /// Somebody has found too little memory: who keeps it is looked for.
    pub(super) fn on_short_memory(&mut self, now: Instant) {
        if self.config.shares && self.config.stuck_patience.is_some() {
            self.sweep_at = self.sweep_at.min(self.swept_at + INTERVAL).max(now);
        }
    }

    /// Looks for sessions that keep memory from others, if it is time, and gives them up.
    pub(super) fn relieve(&mut self, cx: &mut Context<'_>, out: &mut Outbox) {
        if self.sweep_at > cx.now {
            return;
        }
        (self.swept_at, self.sweep_at) = (cx.now, Instant::NEVER);
        let left = self.memory_left(cx);
        let Some(patience) = self.config.stuck_patience else { return };
        let of_claim = self.short_claim.take().filter(|_| left >= SHORT);
        if left >= SHORT && of_claim.is_none() {
            return;
        }
        // Less of it in proportion to what is promised to nobody.
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
                // An eighth is what one address leaves. Where less is left, many want what they cannot have.
                let target = if promised < WHOLE / 8 { WHOLE / 2 } else { SHORT };
                // Where only pages are short, one at a time.
                (self.send_share.capacity() * target.saturating_sub(promised) / WHOLE).max(1)
            }
        };
        let mut freed = 0;
        for (_, _, id, bytes) in stuck {
            if freed >= wanted {
                break;
            }
            freed += u64::from(bytes) + u64::from(self.config.holder_bytes);
            self.counters.stuck_sessions_aborted += 1;
            self.with(id.index, cx, out, |session, desk| session.give_up(desk));
        }
        if freed < wanted && next != Instant::NEVER {
            self.sweep_at = next.max(cx.now + INTERVAL);
            self.short_claim = of_claim;
        }
    }
}
