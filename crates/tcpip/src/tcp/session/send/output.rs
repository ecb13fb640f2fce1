//! Output: new data, retransmissions, acknowledgements, and the offered window.
//!
//! Order            retransmissions first, then new data, then a due acknowledgement unless data has carried
//!                  it.
//! Windows          `send_rule` chooses the new data to send. Our own window moves only in steps worth
//!                  announcing and is never shrunk (§3.8.6.2.2).

use crate::tcp::config::{Config, Offer};
use crate::tcp::segment::Segment;
use crate::tcp::session::tcb::{PendingAck, Progress, Session, SessionContext};
use crate::tcp::state::State;
use crate::wire::tcp::{Flags, Header, Options, Sequence};
use core::time::Duration;
use kiban_base::checksum;
use kiban_base::{Instant, Pdu};

/// The next segment to send.
#[derive(Clone, Copy)]
enum Choice {
    New { length: u32, fin: bool },
    Retransmit,
    TailLossProbe,
}

/// What F-RTO sends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Probe {
    Off,
    /// New data of this length, with or without FIN.
    Send(u32, bool),
    /// Nothing: the answer to the new data is awaited.
    Wait,
}

/// Largest payload of an IPv4 packet with a TCP header and timestamps, bytes.
const WHOLE_BYTES_MAX: u32 = 65_535 - 20 - 20 - 12;

impl Session {
    #[inline]
    pub(in crate::tcp::session) fn segment_max(&self, config: &Config) -> u32 {
        // RFC 9293 §3.7.1, MUST-16: a segment may exceed the peer's MSS only if a lower layer segments it.
        if config.segment_bytes_max <= u32::from(config.mss) || self.has_urgent() {
            return self.mss;
        }
        (config.segment_bytes_max.min(WHOLE_BYTES_MAX) / self.mss).max(1) * self.mss
    }

    /// Sends what may be sent, at most `quantum` segments, including a due acknowledgement.
    pub(in crate::tcp) fn output(&mut self, quantum: usize, ctx: &mut SessionContext<'_, '_>) -> Progress {
        match self.state {
            State::Closed => return Progress::Done,
            State::SynSent | State::SynReceived => return self.output_syn(ctx),
            _ => {}
        }
        let (mut progress, mut segments) = (self.output_fast_open(ctx), 0);
        while progress == Progress::Done {
            let Some(next) = self.choose(ctx) else { break };
            if segments == quantum {
                return Progress::More;
            }
            for _ in 0..self.times(next, ctx.config).min(quantum - segments) {
                segments += 1;
                if !self.send_chosen(next, ctx) {
                    progress = Progress::Starved;
                    break;
                }
            }
        }
        while progress == Progress::Done
            && (self.pending_ack == PendingAck::Immediate || self.dup_acks_due > 0)
        {
            if segments == quantum {
                return Progress::More;
            }
            segments += 1;
            match ctx.cx.memory.pdus.take() {
                Some(pdu) => {
                    self.emit(self.acceptable_seq(), Flags::ACK, Options::NONE, pdu, ctx);
                    self.dup_acks_due = self.dup_acks_due.saturating_sub(1);
                }
                None => progress = Progress::Starved,
            }
        }
        if core::mem::take(&mut self.tlp_rearm) {
            self.arm_tlp_timer(ctx);
        }
        if segments > 0 && self.writer_waits && self.unsent_bytes_max.is_some() {
            // Bytes that have just been sent are no longer unsent.
            self.wake_writer(ctx);
        }
        let waits = self.send_queue.bytes() > 0
            || self.snd_una != self.snd_max
            || self.state.owes_finish()
            || self.is_fast_open_pending();
        if self.rto_deadline == Instant::NEVER && waits {
            // The timer runs if data is outstanding, or if the window is too small to send any.
            self.rto_deadline = ctx.cx.now + self.rtt.rto(ctx.config);
        }
        self.arm_watch(waits, ctx.cx.now);
        self.watch.on_waiting(self.send_queue.bytes(), ctx.config.floor_bytes, ctx.cx.now);
        self.note_limit(waits, ctx.config, ctx.cx.now);
        progress
    }

    fn output_syn(&mut self, ctx: &mut SessionContext<'_, '_>) -> Progress {
        if self.snd_nxt != self.snd_una {
            if self.state == State::SynReceived && self.pending_ack == PendingAck::Immediate {
                let Some(pdu) = ctx.cx.memory.pdus.take() else { return Progress::Starved };
                self.emit(self.snd_max, Flags::ACK, Options::NONE, pdu, ctx);
            }
            return Progress::Done;
        }
        if self.state == State::SynSent
            && self.syn_waits()
            && self.send_queue.bytes() == 0
            && !self.fin_queued
        {
            return Progress::Done;
        }
        let Some(pdu) = ctx.cx.memory.pdus.take() else { return Progress::Starved };
        let (answer, is_first) = (self.state == State::SynReceived, self.snd_max == self.snd_una);
        let (flags, options) = self.syn_flags_and_options(answer, is_first, ctx.config);
        let mut pdu = pdu;
        let data = self.gather_syn_data(is_first, &mut pdu);
        if is_first {
            self.syn_sent_at = Some(ctx.cx.now);
        } else {
            ctx.counters.retransmits += 1;
            self.syn_sent_at = None;
        }
        self.emit(self.snd_una, flags, options, pdu, ctx);
        self.snd_nxt = self.snd_una + 1;
        self.snd_max = self.snd_max.max(self.snd_nxt + data);
        self.rto_deadline = ctx.cx.now + self.rtt.rto(ctx.config);
        self.arm_watch(true, ctx.cx.now);
        Progress::Done
    }

    /// Returns the flags and options of our SYN, or of our SYN-ACK (`answer`).
    pub(in crate::tcp::session) fn syn_flags_and_options(
        &mut self,
        answer: bool,
        is_first: bool,
        config: &Config,
    ) -> (Flags, Options) {
        let flags = if answer { Flags::SYN | Flags::ACK } else { Flags::SYN };
        let scale = config.window_scaling && (!answer || self.rcv_wind_shift > 0 || self.snd_wind_shift > 0);
        let options = Options {
            mss: Some(config.mss_to(self.remote)),
            sack_permitted: config.sack && (!answer || self.sack),
            window_shift: scale.then(|| config.window_shift()),
            fast_open: self.fast_open_option(is_first),
            ..Options::NONE
        };
        (flags | self.ecn_syn_flags(answer, config), options)
    }

    /// Returns the number of bytes that the congestion window still admits.
    pub(in crate::tcp::session) fn congestion_room(&self, config: &Config) -> u32 {
        let mut flight = self.scoreboard.flight();
        if !config.limited_transmit && !self.congestion.in_recovery() {
            // Without RFC 3042, SACKed bytes still count as in flight, so they do not admit new data.
            flight += self.scoreboard.sacked();
        }
        self.congestion.cwnd().saturating_sub(flight)
    }

    /// Chooses the next segment: a due tail probe, then lost data, then new data.
    fn choose(&mut self, ctx: &mut SessionContext<'_, '_>) -> Option<Choice> {
        if self.tlp_due {
            return Some(Choice::TailLossProbe);
        }
        let probe = self.frto_probe(ctx.config);
        let again = probe == Probe::Off && self.scoreboard.lost() > 0 && self.may_retransmit(ctx.config);
        let new = match probe {
            Probe::Send(length, fin) => Some((length, fin)),
            Probe::Wait => None,
            Probe::Off if again => None,
            Probe::Off => self.next_segment(ctx.config),
        };
        if (again || new.is_some()) && self.waits_for_pace(ctx) {
            return None;
        }
        if again { Some(Choice::Retransmit) } else { new.map(|(length, fin)| Choice::New { length, fin }) }
    }

    /// Returns how many segments may be sent for one choice: full segments are sent back to back as long as
    /// data and both windows last.
    fn times(&self, choice: Choice, config: &Config) -> usize {
        match choice {
            // With nothing outstanding, the first segment may restart the congestion window (RFC 5681 §4.1).
            Choice::New { length, fin: false }
                if !self.is_paced(config)
                    && !self.congestion.in_recovery()
                    && self.snd_una != self.snd_max =>
            {
                self.full_segments(length, config).max(1)
            }
            _ => 1,
        }
    }

    /// Returns the new data to send in place of lost data while F-RTO probes (RFC 5682 §3.1, step 2b). If
    /// there is none, retransmission continues.
    fn frto_probe(&mut self, config: &Config) -> Probe {
        let Some(episode) = self.episode.as_deref().filter(|episode| episode.probes()) else {
            return Probe::Off;
        };
        let room = episode.probe_room(self.snd_nxt, self.mss);
        match self.next_segment(config) {
            Some((length, fin)) if length <= room && room > 0 => Probe::Send(length, fin),
            Some(_) if room > 0 => Probe::Send(room, false),
            Some(_) => Probe::Wait,
            None => {
                let snd_nxt = self.snd_nxt;
                self.episode.as_mut().expect("it probes").on_no_new_data(snd_nxt);
                if self.is_probing() { Probe::Wait } else { Probe::Off }
            }
        }
    }

    /// Returns whether F-RTO awaits the ACK that decides.
    fn is_probing(&self) -> bool {
        self.episode.as_ref().is_some_and(|episode| episode.probes())
    }

    fn may_retransmit(&self, config: &Config) -> bool {
        // Nothing is in flight: the first lost segment is sent regardless of the windows (RFC 6298 §5.4).
        self.force_retransmit
            || self.scoreboard.flight() == 0
            || (self.congestion_room(config) >= self.mss.min(self.scoreboard.lost())
                && self.snd_una.distance(self.snd_nxt) <= self.snd_wnd)
    }

    /// Sends the chosen segment. Returns false if no memory is free for the PDU.
    fn send_chosen(&mut self, choice: Choice, ctx: &mut SessionContext<'_, '_>) -> bool {
        match choice {
            Choice::New { length, fin } => self.output_data(self.snd_nxt, length, fin, ctx),
            Choice::Retransmit => {
                // Send as much as the congestion window admits; even if the peer's window is closed or has
                // shrunk, send one segment (RFC 9293 §3.8.6).
                let shrunken = self.snd_una.distance(self.snd_nxt) > self.snd_wnd;
                let most = if shrunken || self.force_retransmit {
                    self.mss
                } else {
                    self.congestion_room(ctx.config)
                };
                self.force_retransmit = false;
                let most = most.min(self.segment_max(ctx.config));
                let Some((at, length)) = self.scoreboard.take_lost(most, ctx.cx.now) else { return true };
                let sent = self.retransmit(at, length, ctx);
                if sent < length {
                    self.scoreboard.put_back(at, sent);
                }
                sent > 0
            }
            Choice::TailLossProbe => self.send_tail_loss_probe(ctx),
        }
    }

    /// Sends a tail loss probe (RFC 8985 §7.3): new data if the peer's window admits any, else the last
    /// outstanding segment.
    fn send_tail_loss_probe(&mut self, ctx: &mut SessionContext<'_, '_>) -> bool {
        let sent = self.snd_una.distance(self.snd_nxt);
        let length = self.send_queue.bytes().saturating_sub(sent).min(self.mss);
        let new = length > 0 && sent + length <= self.snd_wnd;
        let left = if new {
            self.output_data(self.snd_nxt, length, false, ctx)
        } else {
            match self.scoreboard.take_last(ctx.cx.now) {
                Some((at, length)) => self.retransmit(at, length, ctx) > 0,
                None => {
                    self.tlp_due = false;
                    return true;
                }
            }
        };
        if left {
            ctx.counters.tail_loss_probes += 1;
            self.rack.on_tlp_sent(self.snd_nxt, !new);
            (self.tlp_deadline, self.tlp_due) = (Instant::NEVER, false);
            self.rto_deadline = ctx.cx.now + self.rtt.rto(ctx.config);
        }
        left
    }

    /// Retransmits `length` bytes of the stream from `at` on, including our FIN if the range covers it.
    /// Returns the number of bytes sent.
    fn retransmit(&mut self, at: Sequence, length: u32, ctx: &mut SessionContext<'_, '_>) -> u32 {
        let Some(mut pdu) = ctx.cx.memory.pdus.take() else { return 0 };
        let from = self.snd_una.distance(at);
        let data = length.min(self.send_queue.bytes().saturating_sub(from));
        let taken = self.send_queue.gather(from, data, &mut pdu);
        let fin = data < length && taken == data;
        ctx.counters.retransmits += 1;
        self.retransmitted_bytes += u64::from(taken);
        if let Some(episode) = &mut self.episode
            && self.congestion.in_recovery()
        {
            // A D-SACK may leave out the FIN of a segment with data.
            episode.on_retransmit(at, at + if taken > 0 { taken } else { u32::from(fin) }, ctx.cx.now);
        }
        self.send_off(at, taken, fin, false, pdu, ctx);
        taken + u32::from(fin)
    }

    /// Sends `length` bytes from `at` on. Returns false if no memory is free for the PDU.
    fn output_data(
        &mut self,
        at: Sequence,
        length: u32,
        fin: bool,
        ctx: &mut SessionContext<'_, '_>,
    ) -> bool {
        let Some(mut pdu) = ctx.cx.memory.pdus.take() else { return false };
        let now = ctx.cx.now;
        if self.snd_una == self.snd_max {
            // RFC 6298 §5.1: nothing was outstanding, so restart the timer, which may have been running for a
            // closed window.
            self.rto_deadline = Instant::NEVER;
            if now.since(self.data_sent_at) > self.rtt.rto(ctx.config) {
                self.episode = None;
            }
            if ctx.config.idle_restart && now.since(self.data_sent_at) > self.rtt.rto(ctx.config) {
                self.congestion.on_idle(ctx.config, self.mss);
            }
        }
        let taken = self.send_queue.gather(self.snd_una.distance(at), length, &mut pdu);
        let fin = fin && taken == length;
        let end = at + (taken + u32::from(fin));
        let again = at.lt(self.snd_max);
        ctx.counters.retransmits += u64::from(again);
        if self.snd_max.lt(end) {
            ctx.counters.bytes_out += u64::from(self.snd_max.distance(end));
            self.snd_max = end;
        }
        if !taken.is_multiple_of(self.mss) {
            // It is short, or a lower layer cuts a short segment from its end.
            self.snd_sml = end;
        }
        self.scoreboard.on_sent(at, end, self.mss as u16, now, again);
        self.snd_nxt = end;
        self.tlp_rearm = !self.zero_window_probe;
        let is_new = taken > 0 && !again && !self.zero_window_probe;
        self.send_off(at, taken, fin, is_new, pdu, ctx);
        true
    }

    /// Completes a data segment: flags, timers, pacing. `is_new` says whether it is sent for the first time.
    fn send_off(
        &mut self,
        at: Sequence,
        taken: u32,
        fin: bool,
        is_new: bool,
        mut pdu: Pdu,
        ctx: &mut SessionContext<'_, '_>,
    ) {
        let mut flags = Flags::ACK;
        // RFC 9293 §3.9.1: the last data of the queue is pushed; a FIN alone has nothing to push.
        if taken > 0 && self.snd_una.distance(at) + taken == self.send_queue.bytes() {
            flags = flags | Flags::PSH;
        }
        if fin {
            flags = flags | Flags::FIN;
        }
        if taken > self.mss {
            pdu.set_segment_bytes(self.mss as u16);
        }
        let (ecn, cwr) = self.ecn_data_marks(is_new);
        self.emit_with(at, flags | cwr, ecn, Options::NONE, pdu, ctx);
        let now = ctx.cx.now;
        self.data_sent_at = now;
        if is_new && now.since(self.tally.received_at) < ctx.config.delayed_ack {
            self.quick_ack = false;
        }
        self.congestion.on_sent(taken + u32::from(fin));
        if self.is_paced(ctx.config) {
            self.pace(taken, ctx.config, now);
        }
        if self.rto_deadline == Instant::NEVER {
            self.rto_deadline = now + self.rtt.rto(ctx.config);
        }
    }

    /// Returns whether segments wait for their time to leave.
    fn is_paced(&self, config: &Config) -> bool {
        config.pacing || self.pacing_rate_max.is_some()
    }

    /// Advances the time at which the next segment may leave.
    fn pace(&mut self, bytes: u32, config: &Config, now: Instant) {
        let window_gap = if config.pacing { self.window_gap(bytes) } else { Duration::ZERO };
        let rate_gap = self
            .pacing_rate_max
            .map_or(Duration::ZERO, |rate| Duration::from_nanos(u64::from(bytes) * 1_000_000_000 / rate));
        self.paced_until = self.paced_until.max(now) + window_gap.max(rate_gap);
    }

    /// Returns how long `bytes` last if a window is spread over a round trip.
    fn window_gap(&self, bytes: u32) -> Duration {
        let Some(trip) = self.rtt.srtt() else { return Duration::ZERO };
        let window = u64::from(self.congestion.cwnd().max(self.mss));
        // As in Linux, the rate is doubled in slow start, so that the window can double, and multiplied by
        // 1.2 afterwards.
        let faster = if self.congestion.in_slow_start() { window * 2 } else { window + window / 5 };
        Duration::from_nanos(trip.as_nanos() as u64 * u64::from(bytes) / faster)
    }

    /// Returns whether pacing delays the next segment, and sets the pacing timer if so.
    fn waits_for_pace(&mut self, ctx: &SessionContext<'_, '_>) -> bool {
        let waits = self.is_paced(ctx.config) && self.paced_until > ctx.cx.now;
        self.pacing_deadline = if waits { self.paced_until } else { Instant::NEVER };
        waits
    }

    /// Adds the header and hands the segment down. Every segment after the first SYN carries an ACK.
    pub(in crate::tcp::session) fn emit(
        &mut self,
        at: Sequence,
        flags: Flags,
        options: Options,
        pdu: Pdu,
        ctx: &mut SessionContext<'_, '_>,
    ) {
        self.emit_with(at, flags, 0, options, pdu, ctx);
    }

    /// Hands a segment down like [`Session::emit`], with these ECN bits in the IP header.
    fn emit_with(
        &mut self,
        at: Sequence,
        flags: Flags,
        ecn: u8,
        mut options: Options,
        mut pdu: Pdu,
        ctx: &mut SessionContext<'_, '_>,
    ) {
        let acknowledges = flags.has(Flags::ACK);
        let window = self.advertise_window(flags, ctx);
        let all_said = self.fill_options(&mut options, flags, pdu.body_len() as u32, ctx.cx.now);
        let (flags, urgent) = self.urgent_at(at, flags | self.ecn_echo(flags));
        let header = Header {
            source_port: self.local.port(),
            target_port: self.remote.port(),
            sequence: at,
            acknowledgment: if acknowledges { self.rcv_nxt } else { Sequence(0) },
            flags,
            window,
            urgent,
            options,
        };
        let length = header.length();
        let bytes = pdu.push_head(length);
        header.write(bytes);
        let rest = self.pseudo.plus(checksum::length(length + pdu.body_len())).plus(pdu.body_sum());
        crate::wire::tcp::fill(pdu.head_mut(), rest);
        // If SACK blocks did not fit beside the data, a due ACK still follows in a segment of its own.
        if acknowledges && (all_said || self.pending_ack != PendingAck::Immediate) {
            self.pending_ack = PendingAck::None;
            (self.unacked_bytes, self.unacked_segments) = (0, 0);
            self.delayed_ack_deadline = Instant::NEVER;
        }
        ctx.counters.segments_out += 1;
        self.tally.segments_out += 1;
        ctx.down.push_back(Segment {
            source: self.local.ip(),
            target: self.remote.ip(),
            traffic_class: self.traffic_class | ecn,
            pdu,
        });
    }

    /// Returns the sequence number of a segment without data. It follows all data sent, but never lies beyond
    /// the peer's window, where the peer would not accept it. (Otherwise two ends that probe each other's
    /// closed windows would answer each other forever.)
    pub(in crate::tcp::session) fn acceptable_seq(&self) -> Sequence {
        self.snd_max.min(self.snd_una + self.snd_wnd)
    }

    /// Returns the peer's window in bytes (RFC 7323 §2.2: the window in a SYN is not scaled).
    pub(in crate::tcp::session) fn window_in(&self, header: &Header) -> u32 {
        u32::from(header.window) << if header.flags.has(Flags::SYN) { 0 } else { self.snd_wind_shift }
    }

    /// Returns the largest receive window in bytes: the minimum of the buffer size, our share of memory, and
    /// the largest value of the window field.
    pub(in crate::tcp::session) fn window_most(&self, ctx: &SessionContext<'_, '_>) -> u32 {
        let config = ctx.config;
        self.receive_most(config)
            .min(ctx.receive_share.promise(self.receive_charge, config.floor_bytes, self.claim))
            .min(0xffff << self.rcv_wind_shift)
    }

    /// Returns the right edge of the receive window if at most `most` bytes are held and offered.
    pub(in crate::tcp::session) fn right_edge(&self, most: u32, config: &Config) -> Sequence {
        let room = self.offered(most, config) >> self.rcv_wind_shift << self.rcv_wind_shift;
        let edge = self.rcv_nxt + room;
        // RFC 9293 §3.8.6: an offered window is never shrunk.
        if edge.lt(self.rcv_adv) { self.rcv_adv } else { edge }
    }

    /// Returns how much of `most` to offer, given the bytes that the host has not consumed.
    fn offered(&self, most: u32, config: &Config) -> u32 {
        match config.window_advertisement {
            Offer::Whole if self.unread_bytes <= most => most,
            _ => most.saturating_sub(self.unread_bytes),
        }
    }

    /// Returns the window field and records the right edge that it promises.
    #[inline]
    fn advertise_window(&mut self, flags: Flags, ctx: &mut SessionContext<'_, '_>) -> u16 {
        if flags.has(Flags::SYN) {
            return self.update_advertised_window(flags, ctx);
        }
        let (at, expected, held, field) = self.last_advertised;
        if at == ctx.cx.now && expected == self.rcv_nxt && held == self.unread_bytes {
            // Nothing has changed within this burst.
            return field;
        }
        let field = self.update_advertised_window(flags, ctx);
        self.last_advertised = (ctx.cx.now, self.rcv_nxt, self.unread_bytes, field);
        field
    }

    fn update_advertised_window(&mut self, flags: Flags, ctx: &mut SessionContext<'_, '_>) -> u16 {
        let most = self.window_most(ctx);
        let edge = self.right_edge(most, ctx.config);
        let moves = match ctx.config.window_advertisement {
            // RFC 9293 §3.8.6.2.2: the edge moves by a step worth announcing or not at all.
            Offer::Steps => self.rcv_adv.distance(edge) >= self.rcv_mss.max(self.mss).min(most / 2),
            Offer::Room | Offer::Whole => self.rcv_nxt.distance(edge) >= self.mss.min(most / 4),
        };
        if moves {
            self.rcv_adv = edge;
        }
        let window = self.rcv_nxt.distance(self.rcv_adv);
        // RFC 7323 §2.2: the window in a SYN is never scaled.
        let shift = if flags.has(Flags::SYN) { 0 } else { self.rcv_wind_shift };
        // Round up by less than one unit of the scale: rounding down would shrink the window. At the end of
        // the buffer round down (RFC 7323 §2.4), or many short segments would push the edge beyond it.
        let field = match window.div_ceil(1 << shift) {
            up if up << shift <= self.offered(most, ctx.config) => up,
            _ => window >> shift,
        }
        .min(0xffff);
        self.rcv_adv = self.rcv_adv.max(self.rcv_nxt + (field << shift));
        self.commit(ctx);
        field as u16
    }

    /// Updates the memory share with the bytes now held and promised.
    pub(in crate::tcp::session) fn commit(&mut self, ctx: &mut SessionContext<'_, '_>) {
        let now = match self.state {
            State::Closed => 0,
            state if state.receives() || !state.is_synchronised() => {
                self.rcv_nxt.distance(self.rcv_adv) + self.unread_bytes
            }
            _ => self.unread_bytes,
        };
        ctx.receive_share.change(self.receive_charge, now, self.claim);
        self.receive_charge = now;
    }
}
