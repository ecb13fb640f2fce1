//! Segment arrival: the checks follow the order of the standard (RFC 9293 §3.10.7.3, §3.10.7.4).
//!
//! Sequence         a segment without new or acceptable data is answered and dropped; others are trimmed to
//!                  the window.
//! RST, SYN         only a RST at exactly `RCV.NXT` resets the connection, and a SYN never does. Any other
//!                  RST or SYN gets a challenge ACK (RFC 5961).
//! Opening          the answers to our SYN and to our SYN-ACK are handled here; `open` is common to active
//!                  and passive opens.

use crate::tcp::config::Config;
use crate::tcp::congestion::Congestion;
use crate::tcp::interface::indication::{Indication, Reason};
use crate::tcp::session::tcb::{FastOpen, PendingAck, Session, SessionContext};
use crate::tcp::state::State;
use crate::wire::tcp::{Flags, Header, Options, Sequence};
use core::time::Duration;
use kiban_base::{Instant, Pdu};

/// Maximum number of challenge ACKs that one session sends per `CHALLENGE_PERIOD` (RFC 5961 §7).
const CHALLENGES_MAX: u8 = 10;
const CHALLENGE_PERIOD: Duration = Duration::from_secs(1);

impl Session {
    /// Processes the SYN that a listener accepted.
    pub(in crate::tcp) fn on_first_syn(&mut self, header: &Header, ctx: &mut SessionContext<'_, '_>) {
        self.state = State::SynReceived;
        self.learn_from_syn(header, ctx);
    }

    /// Processes a segment (RFC 9293 §3.10.7.3 and §3.10.7.4). The header has been removed: the PDU's body is
    /// the payload.
    pub(in crate::tcp) fn on_segment(
        &mut self,
        header: &Header,
        mut pdu: Pdu,
        ctx: &mut SessionContext<'_, '_>,
    ) {
        if self.state == State::SynSent {
            return self.on_segment_in_syn_sent(header, pdu, ctx);
        }
        let pure = pdu.body_len() == 0 && !header.flags.has_any(Flags::SYN | Flags::FIN);
        self.tally.segments_in += 1;
        if !self.check_paws(header, pure, ctx) {
            return;
        }
        let Some(flags) = self.check_sequence(header, &mut pdu, ctx) else { return };
        if flags.has(Flags::RST) {
            // RFC 5961 §3.2: only a RST at exactly RCV.NXT resets the connection; any other within the window
            // gets a challenge ACK.
            if self.state == State::TimeWait && !ctx.config.time_wait_accepts_rst {
                // RFC 1337 §3: a delayed RST must not free the 4-tuple while other old segments may still
                // arrive.
                ctx.counters.time_wait_resets_ignored += 1;
            } else if header.sequence == self.rcv_nxt {
                ctx.counters.resets_in += 1;
                let reason = if self.state == State::SynReceived { Reason::Refused } else { Reason::Reset };
                self.on_fast_open_reset();
                self.end(reason, ctx);
            } else {
                self.challenge(ctx);
            }
            return;
        }
        if flags.has(Flags::SYN) {
            // RFC 5961 §4.2: a SYN on a synchronised connection gets a challenge ACK.
            return self.challenge(ctx);
        }
        if !flags.has(Flags::ACK) {
            ctx.counters.without_ack += 1;
            return;
        }
        self.consecutive_timeouts = 0;
        self.watch.on_heard(ctx.cx.now);
        if !self.on_acknowledgment(header, pure, ctx) {
            return;
        }
        self.update_ts_recent(header, ctx);
        if pdu.body_len() > 0 {
            if self.ecn.is_on {
                self.on_ecn_data(flags, ctx);
            }
            self.tally.received_at = ctx.cx.now;
            self.measure_arrival(header, ctx);
        }
        if self.state.receives() {
            if flags.has(Flags::URG) {
                self.on_urgent(header, ctx);
            }
            self.on_data(header.sequence, pdu, flags, ctx);
        } else if pdu.body_len() > 0 {
            ctx.counters.data_after_fin += 1;
        }
    }

    /// Schedules a challenge ACK, within the limits of RFC 5961 §7. Without limits, two ends that disagree
    /// about the connection would answer each other forever.
    pub(in crate::tcp::session) fn challenge(&mut self, ctx: &mut SessionContext<'_, '_>) {
        let now = ctx.cx.now;
        if now.since(self.challenged_at) >= CHALLENGE_PERIOD {
            (self.challenged_at, self.challenges) = (now, 0);
        }
        if self.challenges < CHALLENGES_MAX && ctx.challenges.admits(ctx.config, ctx.cx) {
            self.challenges += 1;
            ctx.counters.challenge_acks_out += 1;
            self.pending_ack = PendingAck::Immediate;
        } else {
            ctx.counters.challenge_acks_suppressed += 1;
        }
    }

    /// Processes a segment in SYN-SENT (RFC 9293 §3.10.7.3).
    fn on_segment_in_syn_sent(&mut self, header: &Header, pdu: Pdu, ctx: &mut SessionContext<'_, '_>) {
        let flags = header.flags;
        let acknowledged = flags.has(Flags::ACK);
        if acknowledged && !(self.snd_una.lt(header.acknowledgment) && header.acknowledgment.le(self.snd_max))
        {
            ctx.counters.unacceptable += 1;
            if !flags.has(Flags::RST)
                && let Some(pdu) = ctx.cx.memory.pdus.take()
            {
                self.emit(header.acknowledgment, Flags::RST, Options::NONE, pdu, ctx);
            }
            return;
        }
        if flags.has(Flags::RST) {
            if acknowledged {
                ctx.counters.resets_in += 1;
                self.end(Reason::Refused, ctx);
            }
            return;
        }
        if !flags.has(Flags::SYN) {
            return;
        }
        self.learn_from_syn(header, ctx);
        if acknowledged {
            self.learn_fast_open(header, ctx);
            self.establish(header.acknowledgment, ctx);
            self.pending_ack = PendingAck::Immediate;
            self.on_syn_ack_data(header, pdu, ctx);
        } else {
            // Simultaneous open (§3.5): retransmit our SYN with an acknowledgement.
            self.state = State::SynReceived;
            self.snd_nxt = self.snd_una;
        }
    }

    /// Processes the data and the FIN of a SYN-ACK (RFC 9293 §3.10.7.3, fourth: text is processed as usual).
    fn on_syn_ack_data(&mut self, header: &Header, mut pdu: Pdu, ctx: &mut SessionContext<'_, '_>) {
        let mut flags = header.flags.without(Flags::SYN);
        let room = self.rcv_nxt.distance(self.rcv_adv) as usize;
        if pdu.body_len() + usize::from(flags.has(Flags::FIN)) > room {
            pdu.truncate_body(room.min(pdu.body_len()));
            flags = flags.without(Flags::FIN);
        }
        if pdu.body_len() > 0 || flags.has(Flags::FIN) {
            self.tally.received_at = ctx.cx.now;
            self.on_data(self.rcv_nxt, pdu, flags, ctx);
        }
    }

    /// Takes MSS, window scale, SACK and initial numbers from the peer's SYN (RFC 9293 §3.7.1, RFC 7323
    /// §2.2).
    pub(in crate::tcp::session) fn learn_from_syn(&mut self, header: &Header, ctx: &SessionContext<'_, '_>) {
        let config = ctx.config;
        // An offered MSS below 64 bytes is raised to 64.
        let offered = header.options.mss.map_or(Config::mss_unsaid(self.remote), |mss| mss.max(64));
        self.mss = config.mss_towards(offered.min(config.mss_to(self.remote)));
        if config.window_scaling
            && let Some(shift) = header.options.window_shift
        {
            self.snd_wind_shift = shift.min(14);
            self.rcv_wind_shift = config.window_shift();
        }
        self.sack = config.sack && header.options.sack_permitted;
        self.learn_ecn(header, config);
        // If we sent our SYN first, it has already offered a window.
        let offered = self.rcv_nxt.distance(self.rcv_adv);
        self.rcv_nxt = header.sequence + 1;
        self.rcv_adv = self.rcv_nxt + offered;
        self.snd_wnd = u32::from(header.window);
        self.snd_wnd_max = self.snd_wnd;
        self.snd_wl = (header.sequence, header.acknowledgment);
        self.learn_options(header, ctx.cx.now);
    }

    /// Establishes the connection: the peer has acknowledged our SYN.
    pub(in crate::tcp::session) fn establish(&mut self, ack: Sequence, ctx: &mut SessionContext<'_, '_>) {
        self.state = if self.fin_queued { State::FinWait1 } else { State::Established };
        let syn_data = self.take_acked_syn_data(ack, ctx);
        self.fast_open = FastOpen::None;
        (self.snd_una, self.snd_nxt, self.snd_max) = (ack, ack, ack);
        if let Some(asked_at) = self.syn_sent_at.take() {
            self.rtt.on_delivered(asked_at, ctx.cx.now, ctx.config);
        }
        let lost = self.rtt.on_opened();
        self.congestion = Congestion::new(ctx.config, self.mss);
        self.recover = ack - 1;
        (self.data_sent_at, self.tally.received_at) = (ctx.cx.now, ctx.cx.now);
        self.watch.on_heard(ctx.cx.now);
        self.watch.on_opened();
        if lost > 1 {
            // RFC 6928 §2: after more than one lost SYN the initial window is one segment.
            self.congestion.begin_with(self.mss);
        }
        self.rto_deadline = Instant::NEVER;
        self.consecutive_timeouts = 0;
        ctx.counters.connections_established += 1;
        ctx.up.push_back(match self.listener.take() {
            None => Indication::Opened { session: self.id, remote: self.remote },
            Some(listener) => Indication::Accepted { session: self.id, listener, remote: self.remote },
        });
        self.report_syn_data(syn_data, ctx);
        self.commit(ctx);
    }

    /// Checks the sequence number and trims the segment to the window (RFC 9293 §3.10.7.4, first). Returns
    /// the flags that remain, or `None` if the segment is dropped.
    fn check_sequence(
        &mut self,
        header: &Header,
        pdu: &mut Pdu,
        ctx: &mut SessionContext<'_, '_>,
    ) -> Option<Flags> {
        let mut flags = header.flags;
        let begin = header.sequence;
        let length =
            pdu.body_len() as u32 + u32::from(flags.has(Flags::SYN)) + u32::from(flags.has(Flags::FIN));
        let end = begin + length;
        // The common case: the segment holds the next bytes and lies within the window.
        if begin == self.rcv_nxt && end.le(self.rcv_adv) {
            return Some(flags);
        }
        let acceptable = if length == 0 {
            self.rcv_nxt.le(begin) && begin.le(self.rcv_adv)
        } else {
            begin.lt(self.rcv_adv) && self.rcv_nxt.lt(end)
        };
        if !acceptable {
            if flags.has(Flags::RST) {
                return None;
            }
            if flags.has(Flags::SYN) && self.on_fast_open_syn_again(begin) {
                return None;
            }
            if self.state == State::SynReceived && flags.has(Flags::SYN) && begin + 1 == self.rcv_nxt {
                let acknowledged = header.acknowledgment;
                // A SYN's data is not taken in a simultaneous open.
                if flags.has(Flags::ACK) && self.snd_una.lt(acknowledged) && acknowledged.le(self.snd_max) {
                    // RFC 9293 §3.5, figure 8: in a simultaneous open, the peer retransmits its SYN with the
                    // ACK.
                    return Some(Flags::ACK);
                }
                // The peer retransmits its SYN because our SYN-ACK was lost. RFC 3168 §6.1.1: if it no longer
                // asks for ECN, it does not use it.
                self.ecn.is_on &= flags.has(Flags::ECE) && flags.has(Flags::CWR);
                self.snd_nxt = self.snd_una;
                return None;
            }
            ctx.counters.unacceptable += 1;
            if length == 0 || flags.has(Flags::SYN) {
                self.challenge(ctx);
            } else {
                // RFC 9293 §3.10.7.4, first: a segment outside the window is answered with an ACK.
                if end.le(self.rcv_nxt) {
                    self.tally.duplicates += 1;
                    self.out_of_order.on_duplicate(begin, end - u32::from(flags.has(Flags::FIN)));
                }
                self.pending_ack = PendingAck::Immediate;
            }
            if self.state == State::TimeWait && flags.has(Flags::FIN) && end == self.rcv_nxt {
                // RFC 9293 §3.10.7.4, eighth: a retransmitted FIN restarts TIME-WAIT.
                self.rto_deadline = ctx.cx.now + ctx.config.time_wait;
            }
            // RFC 9293 §3.10.7.4: while the receive window is zero, the ACK field is still processed. The
            // data of a zero-window probe is dropped.
            if begin == self.rcv_nxt && flags.has(Flags::ACK) && !flags.has(Flags::SYN) {
                pdu.truncate_body(0);
                flags = flags.without(Flags::FIN);
                return Some(flags);
            }
            return None;
        }
        if begin.lt(self.rcv_nxt) {
            let old = (begin.distance(self.rcv_nxt) as usize).min(pdu.body_len());
            self.out_of_order.on_duplicate(begin, begin + old as u32);
            pdu.trim_front(old);
            self.pending_ack = PendingAck::Immediate;
            ctx.counters.duplicate_bytes += old as u64;
        }
        if self.rcv_adv.lt(end) && !flags.has(Flags::SYN) {
            let beyond = self.rcv_adv.distance(end) as usize;
            ctx.counters.beyond_window_bytes += beyond as u64;
            let fin = usize::from(flags.has(Flags::FIN));
            flags = flags.without(Flags::FIN);
            pdu.truncate_body(pdu.body_len() - (beyond - fin).min(pdu.body_len()));
            self.pending_ack = PendingAck::Immediate;
        }
        Some(flags)
    }
}
