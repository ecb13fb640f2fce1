//! Requests from the host on a session, and queries about its send buffer space.

use super::tcb::{PendingAck, Session, SessionContext};
use crate::tcp::config::{Config, Nagle};
use crate::tcp::fairness::share::Share;
use crate::tcp::interface::indication::Reason;
use crate::tcp::state::State;
use crate::wire::tcp::{Flags, Options};
use core::num::{NonZeroU32, NonZeroU64};
use kiban_base::{Instant, Slice};

/// The free space at which a waiting writer is woken; half of the buffer if that is less.
const WRITABLE_BYTES: u32 = 16 << 10;

impl Session {
    /// Returns whether the host may still write data.
    pub(in crate::tcp) fn takes_data(&self) -> bool {
        self.state.takes_data() && !self.fin_queued
    }

    /// Returns how many bytes the host may write now.
    pub(in crate::tcp) fn room(&self, config: &Config, share: &Share, now: Instant) -> usize {
        match self.free(config, share, now) {
            0 => 0,
            free => free as usize + config.write_overshoot_bytes as usize,
        }
    }

    /// Returns the free bytes of the send buffer.
    fn free(&self, config: &Config, share: &Share, now: Instant) -> u32 {
        if !self.takes_data() {
            return 0;
        }
        let held = self.send_queue.bytes();
        let mut most = self.send_most(config).min(self.allowance(config, share, now));
        if share.is_scarce() && self.is_window_closed() {
            // The peer accepts no data now, so queueing more than a floor would only occupy memory.
            most = most.min(config.floor_bytes);
        }
        most.saturating_sub(held).min(self.unsent_room(held))
    }

    /// Returns how many bytes the limit of unsent bytes admits. It is at least a segment, so that it does not
    /// cause short ones.
    fn unsent_room(&self, held: u32) -> u32 {
        let Some(most) = self.unsent_bytes_max else { return u32::MAX };
        let unsent = held.saturating_sub(self.snd_una.distance(self.snd_max));
        most.get().max(self.mss).saturating_sub(unsent)
    }

    /// Returns the number of bytes that this session's share of memory lets it hold for sending.
    fn allowance(&self, config: &Config, share: &Share, now: Instant) -> u32 {
        share.allowance(self.send_queue.bytes(), config.floor_bytes, self.claim, self.watch.earned(now))
    }

    /// Returns whether memory, not the send buffer, limits the session although its peer accepts data.
    pub(in crate::tcp) fn is_short_of_memory(&self, config: &Config, share: &Share, now: Instant) -> bool {
        let (held, wants) = (self.send_queue.bytes(), self.send_most(config).min(config.send_buffer_bytes));
        let has_none = held == 0 && self.allowance(config, share, now) == 0;
        // If the peer has acknowledged little so far, the session's allowance still grows by itself.
        let is_bound = (held == 0 || self.watch.earned(now) > 0)
            && share.allowance(held, config.floor_bytes, self.claim, u32::MAX) < wants;
        self.takes_data() && (has_none || is_bound)
    }

    /// Returns whether the share of its address or owner limits the session.
    pub(in crate::tcp) fn is_bound_by_claim(&self, config: &Config, share: &Share) -> bool {
        share.is_bound_by_claim(self.send_queue.bytes(), config.floor_bytes, self.claim)
    }

    /// Returns the time since which the peer has acknowledged less than a floor (`floor_bytes`) of the queued
    /// data; `None` if nothing is queued.
    pub(in crate::tcp) fn stuck_since(&self) -> Option<Instant> {
        (self.send_queue.bytes() > 0)
            .then(|| self.watch.stalled_since())
            .filter(|since| *since != Instant::NEVER)
    }

    /// Returns the minimum free space at which a write that does not fit is accepted in part, bytes.
    pub(in crate::tcp) fn least(&self, config: &Config) -> usize {
        config.send_low_water_bytes.map_or(0, |low| low.min(config.send_buffer_bytes)) as usize
    }

    /// Returns whether data is queued behind a closed window.
    pub(in crate::tcp) fn is_window_closed(&self) -> bool {
        self.snd_wnd == 0 && self.send_queue.bytes() > 0
    }

    /// Returns whether to wake a writer that waits for room.
    pub(super) fn wakes_writer(&self, config: &Config, share: &Share, now: Instant) -> bool {
        let free = self.free(config, share, now);
        match config.send_low_water_bytes {
            // With nothing queued no acknowledgement follows, so any room wakes the writer.
            None if self.send_queue.bytes() == 0 => free > 0,
            None => {
                let unsent_max = self.unsent_bytes_max.map_or(u32::MAX, NonZeroU32::get);
                free >= WRITABLE_BYTES.min(config.send_buffer_bytes / 2).min(unsent_max.div_ceil(2))
            }
            Some(low) => {
                // The low-water mark refers to the configured buffer size, not the rounded one.
                let unused = config.send_buffer_bytes.saturating_sub(self.send_queue.bytes());
                free > 0 && unused >= low.min(config.send_buffer_bytes)
            }
        }
    }

    /// Bytes at which a slice of the stream should end, so that segments are whole slices.
    pub(in crate::tcp) fn grain(&self, config: &Config) -> usize {
        if config.segmentation_offload { self.mss as usize } else { self.segment_max(config) as usize }
    }

    /// Appends `slice` to the send queue. The caller charges the memory share.
    #[inline]
    pub(in crate::tcp) fn append(&mut self, slice: Slice, grain: u32) {
        self.send_queue.push(slice, grain);
    }

    /// Returns the number of bytes in the send queue.
    #[inline]
    pub(in crate::tcp) fn queued(&self) -> u32 {
        self.send_queue.bytes()
    }

    /// Sets the DSCP. The two low bits of the traffic class are ECN, which `ecn` sets per segment.
    pub(in crate::tcp) fn set_dscp(&mut self, dscp: u8) {
        self.traffic_class = dscp << 2;
    }

    /// Sets a limit of unsent bytes; the host may write while it is not reached.
    pub(in crate::tcp) fn set_unsent_bytes_max(&mut self, most: Option<NonZeroU32>) {
        self.unsent_bytes_max = most;
    }

    /// Sets the highest rate at which data leaves, bytes per second.
    pub(in crate::tcp) fn set_pacing_rate_max(&mut self, rate: Option<NonZeroU64>) {
        self.pacing_rate_max = rate;
        // A lower rate before does not delay what leaves from now on.
        self.paced_until = Instant::ZERO;
    }

    /// Sets whether acknowledgements leave at once, until data is sent in answer to data. One that is pending
    /// leaves now.
    pub(in crate::tcp) fn set_quick_ack(&mut self, is_on: bool) {
        self.quick_ack = is_on;
        if is_on && self.pending_ack == PendingAck::Delayed {
            self.pending_ack = PendingAck::Immediate;
        }
    }

    /// Sets which short segments wait, overriding the settings.
    pub(in crate::tcp) fn set_nagle(&mut self, nagle: Nagle) {
        self.nagle = nagle;
    }

    /// Finishes sending: our FIN follows the queued data.
    pub(in crate::tcp) fn finish(&mut self) {
        if !self.fin_queued {
            self.fin_queued = true;
            self.state = self.state.on_finish();
        }
    }

    /// Aborts the session, with a RST if the peer has state for the connection.
    pub(in crate::tcp) fn abort(&mut self, ctx: &mut SessionContext<'_, '_>) {
        // RFC 9293 §3.10.5: in the other states the peer has no state for the connection, or expects no more
        // segments.
        use State::{CloseWait, Established, FinWait1, FinWait2, SynReceived};
        // A FIN still queued behind data has not reached the peer, even if the state suggests it has.
        let fin_waits = self.fin_queued && self.snd_una.distance(self.snd_max) <= self.send_queue.bytes();
        let known = matches!(self.state, SynReceived | Established | FinWait1 | FinWait2 | CloseWait);
        if (known || (fin_waits && self.state.is_synchronised() && self.state != State::TimeWait))
            && let Some(pdu) = ctx.cx.memory.pdus.take()
        {
            self.emit(self.acceptable_seq(), Flags::RST | Flags::ACK, Options::NONE, pdu, ctx);
        }
        self.end(Reason::Aborted, ctx);
    }

    /// Drops a half-open session to make room in the backlog. The host has not been notified of it.
    pub(in crate::tcp) fn displace(&mut self, ctx: &mut SessionContext<'_, '_>) {
        self.end(Reason::Aborted, ctx);
    }

    /// Closes the session on behalf of the host, which will no longer write or read.
    pub(in crate::tcp) fn close(&mut self, ctx: &mut SessionContext<'_, '_>) {
        // RFC 9293 §3.10.4: in SYN-SENT, CLOSE deletes the TCB. §3.6.1, SHLD-3: unread data is lost, so the
        // peer gets a RST.
        if self.state == State::SynSent || self.unread_bytes > 0 {
            return self.abort(ctx);
        }
        self.host_closed = true;
        self.watch.on_left(ctx.config);
        self.finish();
        if self.state == State::FinWait2 {
            self.rto_deadline = ctx.cx.now + ctx.config.fin_wait_2;
        }
    }
}
