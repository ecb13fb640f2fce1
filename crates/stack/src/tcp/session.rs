//! One session: its transmission control block and what segments, hosts and timers do to it (RFC 9293 §3.10).
//!
//! Down      `send`, `finish`, `abort` change the queue; `output` puts on the wire what windows and Nagle allow.
//! Up        `on_segment` follows the standard's order of checks; data in order goes up at once, early data waits.
//! Owed      a segment that arrives only *owes* an answer. `output` pays once, when the burst is over: one
//!           acknowledgement decision a burst (paper [1]'s pipeline rescheduling), carried by data where there is some.
//! Memory    `output` may find no PDU block: the session then says so and is asked again.

use super::congestion::{Advice, Reno};
use super::receive::Early;
use super::rtt::Rtt;
use super::send::SendQueue;
use super::share::Share;
use super::state::State;
use super::{Config, Indication, Reason, Segment, SessionId, TcpCounters};
use alloc::collections::VecDeque;
use core::net::SocketAddr;
use core::time::Duration;
use kiban_ground::{Alarm, Context, Instant, Pdu, Slice, Sum};
use kiban_wire::checksum;
use kiban_wire::numbers::protocol;
use kiban_wire::tcp::{Flags, Header, Options, Sequence};

/// What a session works with, lent by the protocol for one call.
pub(super) struct Desk<'a, 'b> {
    pub(super) config: &'a Config,
    pub(super) cx: &'a mut Context<'b>,
    pub(super) up: &'a mut VecDeque<Indication>,
    pub(super) down: &'a mut VecDeque<Segment>,
    pub(super) receive_share: &'a mut Share,
    pub(super) send_share: &'a mut Share,
    pub(super) counters: &'a mut TcpCounters,
}

/// An acknowledgement that is owed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Owed {
    Nothing,
    /// By the time in `ack_at` at the latest.
    Later,
    Now,
}

/// How a turn of `output` ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// Nothing more may be sent now.
    Done,
    /// The quantum is used up and there is more.
    More,
    /// No memory for a PDU.
    Starved,
}

pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) state: State,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// The listener that made it, until it has been reported as accepted.
    pub(super) listener: Option<u32>,
    pub(super) alarm: Alarm,
    /// Whether it stands in the protocol's line of sessions with something to do.
    pub(super) in_line: bool,
    pseudo: Sum,
    mss: u32,

    // Send: una ≤ next ≤ max. Behind `una` stands the queue, behind the queue our FIN.
    una: Sequence,
    next: Sequence,
    max: Sequence,
    window: u32,
    window_max: u32,
    window_update: (Sequence, Sequence),
    send_shift: u8,
    queue: SendQueue,
    finishing: bool,
    resend_first: bool,
    probe: bool,
    reno: Reno,
    rtt: Rtt,
    resend_at: Instant,
    /// Timeouts since the peer was last heard.
    silence: u32,

    // Receive: everything before `expected` is here, nothing from `edge` on was asked for.
    expected: Sequence,
    edge: Sequence,
    receive_shift: u8,
    /// Bytes that went up and that the host has not consumed.
    held: u32,
    committed: u32,
    early: Early,
    fin_at: Option<Sequence>,
    unanswered: u32,
    peer_segment: u32,
    owed: Owed,
    ack_at: Instant,
}

impl Session {
    /// A session that begins with our SYN (`listener` none) or answers theirs.
    pub(super) fn new(
        id: SessionId,
        local: SocketAddr,
        remote: SocketAddr,
        initial: Sequence,
        listener: Option<u32>,
        config: &Config,
    ) -> Session {
        let mss = u32::from(config.mss);
        Session {
            id,
            state: State::SynSent,
            local,
            remote,
            listener,
            alarm: Alarm::default(),
            in_line: false,
            pseudo: checksum::pseudo(local.ip(), remote.ip(), protocol::TCP, 0),
            mss,
            una: initial,
            next: initial,
            max: initial,
            window: 0,
            window_max: 0,
            window_update: (Sequence(0), Sequence(0)),
            send_shift: 0,
            queue: SendQueue::default(),
            finishing: false,
            resend_first: false,
            probe: false,
            reno: Reno::new(config, mss, initial),
            rtt: Rtt::new(config),
            resend_at: Instant::NEVER,
            silence: 0,
            expected: Sequence(0),
            edge: Sequence(0),
            receive_shift: 0,
            held: 0,
            committed: 0,
            early: Early::default(),
            fin_at: None,
            unanswered: 0,
            peer_segment: 1,
            owed: Owed::Nothing,
            ack_at: Instant::NEVER,
        }
    }

    // ---- Down: what the host asks for -------------------------------------------------------------------------

    /// Bytes that the host may hand over now.
    pub(super) fn room(&self, config: &Config, share: &Share) -> usize {
        if !self.state.takes_data() || self.finishing {
            return 0;
        }
        let held = self.queue.bytes();
        let most = config.send_buffer_bytes.min(share.allowance(held, config.floor_bytes));
        most.saturating_sub(held) as usize
    }

    /// Bytes at which a slice of the stream should end, so that segments are whole slices.
    pub(super) fn grain(&self, config: &Config) -> usize {
        self.segment_max(config) as usize
    }

    /// Appends to the stream.
    pub(super) fn send(&mut self, slice: Slice, config: &Config, share: &mut Share) {
        let before = self.queue.bytes();
        self.queue.push(slice, self.segment_max(config));
        share.change(before, self.queue.bytes());
    }

    /// The host sends no more: our FIN goes behind what is queued.
    pub(super) fn finish(&mut self) {
        if !self.finishing {
            self.finishing = true;
            self.state = self.state.on_finish();
        }
    }

    /// The host has taken `count` bytes: the window may open.
    pub(super) fn consume(&mut self, count: u32, desk: &mut Desk<'_, '_>) {
        self.held = self.held.saturating_sub(count);
        // RFC 9293 §3.8.6.2.2: tell the peer when the window opens by two segments or half of the buffer.
        let step = (2 * self.peer_segment.max(self.mss)).min(desk.config.receive_buffer_bytes / 2);
        if self.state.receives() && self.edge.distance(self.right_edge(desk)) >= step {
            self.owed = Owed::Now;
        }
        self.commit(desk);
    }

    /// Gives up: a RST to the peer where it knows of us, and nothing is left here.
    pub(super) fn abort(&mut self, desk: &mut Desk<'_, '_>) {
        if self.state.is_synchronised()
            && self.state != State::TimeWait
            && let Some(pdu) = desk.cx.memory.blocks.take()
        {
            self.emit(self.max, Flags::RST | Flags::ACK, Options::NONE, pdu, desk);
        }
        self.end(Reason::Aborted, desk);
    }

    // ---- Up: segments -----------------------------------------------------------------------------------------

    /// A SYN that a listener took.
    pub(super) fn on_first_syn(&mut self, header: &Header, desk: &mut Desk<'_, '_>) {
        self.state = State::SynReceived;
        self.learn(header, desk.config);
    }

    /// What the peer's SYN tells (RFC 9293 §3.7.1, RFC 7323 §2.2).
    fn learn(&mut self, header: &Header, config: &Config) {
        // RFC 9293 §3.7.1: without the option 536 bytes. A peer that offers less than 64 is not taken at its word.
        let offered = header.options.mss.map_or(536, |mss| mss.max(64));
        self.mss = u32::from(offered.min(config.mss));
        self.reno = Reno::new(config, self.mss, self.una);
        if let Some(shift) = header.options.window_shift {
            self.send_shift = shift.min(14);
            self.receive_shift = config.window_shift();
        }
        self.expected = header.sequence + 1;
        self.edge = self.expected;
        self.window = u32::from(header.window);
        self.window_max = self.window;
        self.window_update = (header.sequence, header.acknowledgment);
    }

    /// RFC 9293 §3.10.7.3 and §3.10.7.4. The PDU's head has been taken off: its body is the payload.
    pub(super) fn on_segment(&mut self, header: &Header, mut pdu: Pdu, desk: &mut Desk<'_, '_>) {
        if self.state == State::SynSent {
            return self.on_answer(header, desk);
        }
        let Some(flags) = self.check_sequence(header, &mut pdu, desk) else { return };
        if flags.has(Flags::RST) {
            // RFC 5961 §3.2: only the exact next byte resets; anything else in the window is asked about.
            if header.sequence == self.expected {
                desk.counters.resets_in += 1;
                let reason = if self.state == State::SynReceived { Reason::Refused } else { Reason::Reset };
                self.end(reason, desk);
            } else {
                desk.counters.challenged += 1;
                self.owed = Owed::Now;
            }
            return;
        }
        if flags.has(Flags::SYN) {
            // RFC 5961 §4.2: a SYN on a live session is challenged.
            desk.counters.challenged += 1;
            self.owed = Owed::Now;
            return;
        }
        if !flags.has(Flags::ACK) {
            desk.counters.without_ack += 1;
            return;
        }
        self.silence = 0;
        if !self.on_acknowledgment(header, pdu.body_len(), desk) {
            return;
        }
        if self.state.receives() {
            self.on_data(header.sequence, pdu, flags, desk);
        } else if pdu.body_len() > 0 {
            desk.counters.after_finish += 1;
        }
    }

    /// RFC 9293 §3.10.7.3: the answer to our SYN.
    fn on_answer(&mut self, header: &Header, desk: &mut Desk<'_, '_>) {
        let flags = header.flags;
        let acknowledged = flags.has(Flags::ACK);
        if acknowledged && header.acknowledgment != self.una + 1 {
            desk.counters.unacceptable += 1;
            if !flags.has(Flags::RST)
                && let Some(pdu) = desk.cx.memory.blocks.take()
            {
                self.emit(header.acknowledgment, Flags::RST, Options::NONE, pdu, desk);
            }
            return;
        }
        if flags.has(Flags::RST) {
            if acknowledged {
                desk.counters.resets_in += 1;
                self.end(Reason::Refused, desk);
            }
            return;
        }
        if !flags.has(Flags::SYN) {
            return;
        }
        self.learn(header, desk.config);
        if acknowledged {
            self.una = header.acknowledgment;
            self.rtt.on_acknowledged(self.una, desk.cx.now, desk.config);
            self.open(desk);
            self.owed = Owed::Now;
        } else {
            // Both opened at once (§3.5): our SYN goes again, with an acknowledgement.
            self.state = State::SynReceived;
            self.next = self.una;
        }
    }

    /// The handshake is complete.
    fn open(&mut self, desk: &mut Desk<'_, '_>) {
        self.state = if self.finishing { State::FinWait1 } else { State::Established };
        self.next = self.una;
        self.max = self.una;
        self.resend_at = Instant::NEVER;
        self.silence = 0;
        desk.counters.opened += 1;
        desk.up.push_back(match self.listener.take() {
            None => Indication::Opened { session: self.id },
            Some(listener) => Indication::Accepted { session: self.id, listener, remote: self.remote },
        });
        self.commit(desk);
    }

    /// RFC 9293 §3.10.7.4, first: is any of it new and asked for? Trims what is not. The flags that are left.
    fn check_sequence(&mut self, header: &Header, pdu: &mut Pdu, desk: &mut Desk<'_, '_>) -> Option<Flags> {
        let mut flags = header.flags;
        let begin = header.sequence;
        let length =
            pdu.body_len() as u32 + u32::from(flags.has(Flags::SYN)) + u32::from(flags.has(Flags::FIN));
        let end = begin + length;
        // The common case: the next bytes, within the window.
        if begin == self.expected && end.le(self.edge) {
            return Some(flags);
        }
        let acceptable = if length == 0 {
            self.expected.le(begin) && begin.le(self.edge)
        } else {
            begin.lt(self.edge) && self.expected.lt(end)
        };
        if !acceptable {
            if flags.has(Flags::RST) {
                return None;
            }
            if self.state == State::SynReceived && flags.has(Flags::SYN) && begin + 1 == self.expected {
                // The SYN again: our answer was lost.
                self.next = self.una;
                return None;
            }
            desk.counters.unacceptable += 1;
            self.owed = Owed::Now;
            if self.state == State::TimeWait && flags.has(Flags::FIN) {
                self.resend_at = desk.cx.now + desk.config.time_wait;
            }
            // RFC 9293 §3.10.7.4: a closed window still takes acknowledgements (and so do zero-window probes).
            if begin == self.expected && flags.has(Flags::ACK) && !flags.has(Flags::SYN) {
                pdu.truncate_body(0);
                flags = flags.without(Flags::FIN);
                return Some(flags);
            }
            return None;
        }
        if begin.lt(self.expected) {
            let old = (begin.distance(self.expected) as usize).min(pdu.body_len());
            pdu.trim_front(old);
            self.owed = Owed::Now;
            desk.counters.duplicate_bytes += old as u64;
            flags = flags.without(Flags::SYN);
        }
        if self.edge.lt(end) && !flags.has(Flags::SYN) {
            let beyond = self.edge.distance(end) as usize;
            desk.counters.beyond_window_bytes += beyond as u64;
            let fin = usize::from(flags.has(Flags::FIN));
            flags = flags.without(Flags::FIN);
            pdu.truncate_body(pdu.body_len() - (beyond - fin).min(pdu.body_len()));
            self.owed = Owed::Now;
        }
        Some(flags)
    }

    /// RFC 9293 §3.10.7.4, fifth. Whether the segment is to be read on.
    fn on_acknowledgment(&mut self, header: &Header, payload: usize, desk: &mut Desk<'_, '_>) -> bool {
        let ack = header.acknowledgment;
        if self.state == State::SynReceived {
            if !(self.una.lt(ack) && ack.le(self.max)) {
                desk.counters.unacceptable += 1;
                if let Some(pdu) = desk.cx.memory.blocks.take() {
                    self.emit(ack, Flags::RST, Options::NONE, pdu, desk);
                }
                return false;
            }
            self.una = self.una + 1;
            self.rtt.on_acknowledged(self.una, desk.cx.now, desk.config);
            self.window_update = (header.sequence, ack);
            self.window = u32::from(header.window) << self.send_shift;
            self.window_max = self.window;
            self.open(desk);
        }
        if self.max.lt(ack) {
            // An acknowledgement of what was never sent (RFC 5961 §5.2).
            desk.counters.unsent_acknowledged += 1;
            self.owed = Owed::Now;
            return false;
        }
        let window = u32::from(header.window) << self.send_shift;
        if self.una.lt(ack) {
            self.advance(ack, desk);
        } else if ack == self.una && payload == 0 && window == self.window && self.una != self.max {
            desk.counters.duplicate_acks += 1;
            let flight = self.una.distance(self.max);
            if self.reno.on_duplicate(self.una, self.max, flight, self.mss) == Advice::Retransmit {
                desk.counters.fast_retransmits += 1;
                self.resend_first = true;
            }
        }
        let (sequence, acknowledgment) = self.window_update;
        if sequence.lt(header.sequence) || (sequence == header.sequence && acknowledgment.le(ack)) {
            if self.probe && window > self.window {
                self.probe = false;
                self.next = self.una;
            }
            self.window = window;
            self.window_max = self.window_max.max(window);
            self.window_update = (header.sequence, ack);
        }
        true
    }

    /// Bytes up to `ack` have arrived for the first time.
    fn advance(&mut self, ack: Sequence, desk: &mut Desk<'_, '_>) {
        let acknowledged = self.una.distance(ack);
        let flight = self.una.distance(self.max);
        let queued = self.queue.bytes();
        let bytes = acknowledged.min(queued);
        self.queue.acknowledged(bytes);
        desk.send_share.change(queued, self.queue.bytes());
        let finished = acknowledged > bytes;
        self.una = ack;
        if self.next.lt(ack) {
            self.next = ack;
        }
        self.probe = false;
        self.resend_first = false;
        self.rtt.on_acknowledged(ack, desk.cx.now, desk.config);
        let left = ack.distance(self.max);
        if self.reno.on_advance(acknowledged, ack, flight, left, self.mss) == Advice::Retransmit {
            self.resend_first = true;
        }
        // RFC 6298 §5.2 and §5.3: off when all is acknowledged, else anew.
        self.resend_at = if left == 0 { Instant::NEVER } else { desk.cx.now + self.rtt.timeout(desk.config) };
        if bytes > 0 {
            desk.up.push_back(Indication::Sent { session: self.id, bytes });
        }
        if finished && self.finishing {
            let before = self.state;
            self.state = self.state.on_finish_acknowledged();
            match self.state {
                State::Closed => self.end(Reason::Closed, desk),
                State::TimeWait if before != State::TimeWait => self.rest(desk),
                _ => {}
            }
        }
    }

    /// Payload and FIN, trimmed to the window.
    fn on_data(&mut self, sequence: Sequence, pdu: Pdu, flags: Flags, desk: &mut Desk<'_, '_>) {
        let begin = if sequence.lt(self.expected) { self.expected } else { sequence };
        let length = pdu.body_len() as u32;
        if flags.has(Flags::FIN) {
            self.fin_at = Some(begin + length);
        }
        if length > 0 {
            self.peer_segment = self.peer_segment.max(length.min(u32::from(desk.config.mss)));
            if begin == self.expected {
                self.on_in_order(pdu, length, desk);
            } else {
                self.on_early(begin, pdu, desk);
            }
        }
        if self.fin_at == Some(self.expected) {
            self.on_peer_finish(desk);
        } else if self.fin_at.is_some() {
            self.owed = Owed::Now;
        }
    }

    fn on_in_order(&mut self, pdu: Pdu, length: u32, desk: &mut Desk<'_, '_>) {
        self.take_in(length, desk);
        desk.up.push_back(Indication::Data { session: self.id, pdu });
        if !self.early.is_empty() {
            // A hole was filled: the sender wants to know (RFC 5681 §4.2).
            self.owed = Owed::Now;
            while let Some(slice) = self.early.take(self.expected) {
                self.take_in(slice.len() as u32, desk);
                desk.up.push_back(Indication::Piece { session: self.id, slice });
            }
        }
        self.unanswered += length;
        if self.unanswered >= desk.config.ack_segments * self.peer_segment {
            self.owed = Owed::Now;
        } else if self.owed == Owed::Nothing {
            self.owed = Owed::Later;
            self.ack_at = desk.cx.now + desk.config.delayed_ack;
        }
    }

    fn take_in(&mut self, length: u32, desk: &mut Desk<'_, '_>) {
        self.expected = self.expected + length;
        self.held += length;
        desk.counters.bytes_in += u64::from(length);
    }

    fn on_early(&mut self, mut begin: Sequence, mut pdu: Pdu, desk: &mut Desk<'_, '_>) {
        desk.counters.out_of_order += 1;
        // RFC 5681 §4.2: every early segment is answered at once.
        self.owed = Owed::Now;
        // Memory is for what can be used: when pages run short, what waits behind a hole goes first.
        let scarce = desk.cx.memory.receive.at_home() * 8 < desk.cx.memory.receive.capacity();
        for slice in pdu.drain_body() {
            let length = slice.len() as u32;
            if scarce || !self.early.insert(begin, slice) {
                desk.counters.early_dropped += 1;
            }
            begin = begin + length;
        }
        if scarce {
            self.early.clear();
        }
    }

    fn on_peer_finish(&mut self, desk: &mut Desk<'_, '_>) {
        self.fin_at = None;
        self.early.clear();
        self.expected = self.expected + 1;
        self.edge = if self.edge.lt(self.expected) { self.expected } else { self.edge };
        self.owed = Owed::Now;
        desk.up.push_back(Indication::Finished { session: self.id });
        self.state = self.state.on_peer_finish();
        if self.state == State::TimeWait {
            self.rest(desk);
        }
    }

    /// TIME-WAIT: nothing is left to say.
    fn rest(&mut self, desk: &mut Desk<'_, '_>) {
        self.resend_at = desk.cx.now + desk.config.time_wait;
        self.commit(desk);
        desk.up.push_back(Indication::Gone { session: self.id, reason: Reason::Closed });
    }

    /// The end, told once.
    fn end(&mut self, reason: Reason, desk: &mut Desk<'_, '_>) {
        let told = self.state == State::TimeWait;
        self.state = State::Closed;
        self.owed = Owed::Nothing;
        (self.resend_at, self.ack_at) = (Instant::NEVER, Instant::NEVER);
        desk.send_share.change(self.queue.bytes(), 0);
        self.queue = SendQueue::default();
        self.early.clear();
        self.commit(desk);
        if !told {
            // A connection of a listener that was never accepted ends without a word to the host.
            if self.listener.is_none() {
                desk.up.push_back(Indication::Gone { session: self.id, reason });
            }
        }
    }

    // ---- Time -------------------------------------------------------------------------------------------------

    /// The next moment at which something happens by itself.
    #[inline]
    pub(super) fn deadline(&self) -> Instant {
        self.resend_at.min(self.ack_at)
    }

    /// A deadline may have been reached.
    pub(super) fn on_time(&mut self, desk: &mut Desk<'_, '_>) {
        let now = desk.cx.now;
        if self.ack_at <= now {
            self.ack_at = Instant::NEVER;
            if self.owed == Owed::Later {
                desk.counters.delayed_acks += 1;
                self.owed = Owed::Now;
            }
        }
        if self.resend_at <= now {
            self.resend_at = Instant::NEVER;
            self.on_timeout(desk);
        }
    }

    fn on_timeout(&mut self, desk: &mut Desk<'_, '_>) {
        if self.state == State::TimeWait {
            return self.end(Reason::Closed, desk);
        }
        let retries =
            if self.state.is_synchronised() { desk.config.retries } else { desk.config.syn_retries };
        self.silence += 1;
        if self.silence > retries {
            desk.counters.timed_out += 1;
            return self.end(Reason::TimedOut, desk);
        }
        let outstanding = self.una.distance(self.max);
        if outstanding == 0 || self.probe {
            // RFC 9293 §3.8.6.1: the window is closed: one byte asks whether it still is.
            self.rtt.on_timeout();
            self.next = self.una;
            self.probe = true;
            desk.counters.probes += 1;
            return;
        }
        desk.counters.timeouts += 1;
        let first = self.rtt.on_timeout() == 1;
        self.reno.on_timeout(self.max, outstanding, self.mss, first);
        // Go back: the first segment now, whatever the window; the others as it opens.
        self.resend_first = true;
        self.next = self.una;
    }

    // ---- Output -----------------------------------------------------------------------------------------------

    #[inline]
    fn segment_max(&self, config: &Config) -> u32 {
        (config.segment_bytes_max / self.mss).max(1) * self.mss
    }

    /// Sends what may be sent, at most `quantum` segments, and pays the acknowledgement that is owed.
    pub(super) fn output(&mut self, quantum: usize, desk: &mut Desk<'_, '_>) -> Progress {
        match self.state {
            State::Closed => return Progress::Done,
            State::SynSent | State::SynReceived => return self.output_syn(desk),
            _ => {}
        }
        let mut progress = if self.resend_first { self.output_again(desk) } else { Progress::Done };
        let mut segments = 0;
        while progress == Progress::Done {
            let Some((length, fin)) = self.next_segment(desk.config) else { break };
            if segments == quantum {
                return Progress::More;
            }
            segments += 1;
            if !self.output_data(self.next, length, fin, desk) {
                progress = Progress::Starved;
            }
        }
        if progress == Progress::Done && self.owed == Owed::Now {
            match desk.cx.memory.blocks.take() {
                Some(pdu) => self.emit(self.max, Flags::ACK, Options::NONE, pdu, desk),
                None => progress = Progress::Starved,
            }
        }
        if self.resend_at == Instant::NEVER && (self.queue.bytes() > 0 || self.una != self.max) {
            // Data outstanding, or a window too small to send any: either way the clock runs.
            self.resend_at = desk.cx.now + self.rtt.timeout(desk.config);
        }
        progress
    }

    fn output_syn(&mut self, desk: &mut Desk<'_, '_>) -> Progress {
        if self.next != self.una {
            return Progress::Done;
        }
        let Some(pdu) = desk.cx.memory.blocks.take() else { return Progress::Starved };
        let answer = self.state == State::SynReceived;
        let flags = if answer { Flags::SYN | Flags::ACK } else { Flags::SYN };
        let scale = !answer || self.receive_shift > 0 || self.send_shift > 0;
        let options = Options {
            mss: Some(desk.config.mss),
            window_shift: scale.then(|| desk.config.window_shift()),
            ..Options::NONE
        };
        if self.max == self.una {
            self.rtt.on_sent(self.una + 1, desk.cx.now);
        } else {
            desk.counters.retransmissions += 1;
        }
        self.emit(self.una, flags, options, pdu, desk);
        self.next = self.una + 1;
        self.max = self.next;
        self.resend_at = desk.cx.now + self.rtt.timeout(desk.config);
        Progress::Done
    }

    /// The next segment that windows, Nagle and silly-window avoidance let go: its length and whether FIN ends it.
    fn next_segment(&self, config: &Config) -> Option<(u32, bool)> {
        let sent = self.una.distance(self.next);
        let queued = self.queue.bytes();
        if sent > queued {
            return None;
        }
        let unsent = queued - sent;
        if self.probe {
            return (sent == 0).then(|| (unsent.min(self.window.max(1)), self.finishing && unsent == 0));
        }
        let usable = self.window.min(self.reno.window()).saturating_sub(sent);
        let mut length = unsent.min(usable).min(self.segment_max(config));
        let may_be_short = !config.nagle || sent == 0 || self.finishing;
        if length > self.mss && !(length == unsent && may_be_short) {
            length -= length % self.mss;
        }
        let all = length == unsent;
        // RFC 9293 §3.8.6.2.1: a full segment, or all there is and Nagle agrees, or half of the largest window.
        let worth = length >= self.mss
            || (length > 0 && all && may_be_short)
            || (length > 0 && length >= self.window_max / 2);
        let fin = self.finishing && all;
        if worth || (fin && length == unsent && (unsent == 0 || worth)) { Some((length, fin)) } else { None }
    }

    /// The first unacknowledged segment again (fast retransmit, partial acknowledgement).
    fn output_again(&mut self, desk: &mut Desk<'_, '_>) -> Progress {
        let length = self.queue.bytes().min(self.mss);
        let fin = self.finishing && length == self.queue.bytes() && self.max == self.una + (length + 1);
        let next = self.next;
        if !self.output_data(self.una, length, fin, desk) {
            return Progress::Starved;
        }
        if self.next.lt(next) {
            self.next = next;
        }
        self.resend_first = false;
        Progress::Done
    }

    /// Sends `length` bytes from `at` on. False when there is no memory for the PDU.
    fn output_data(&mut self, at: Sequence, length: u32, fin: bool, desk: &mut Desk<'_, '_>) -> bool {
        let Some(mut pdu) = desk.cx.memory.blocks.take() else { return false };
        let taken = self.queue.gather(self.una.distance(at), length, &mut pdu);
        let fin = fin && taken == length;
        let end = at + (taken + u32::from(fin));
        let mut flags = Flags::ACK;
        if self.una.distance(at) + taken == self.queue.bytes() {
            flags = flags | Flags::PSH;
        }
        if fin {
            flags = flags | Flags::FIN;
        }
        if self.max.lt(end) {
            if at == self.max {
                self.rtt.on_sent(end, desk.cx.now);
            }
            desk.counters.bytes_out += u64::from(self.max.distance(end));
            self.max = end;
        } else {
            desk.counters.retransmissions += 1;
            self.rtt.on_retransmit();
        }
        if taken > self.mss {
            pdu.set_cut(self.mss as u16);
        }
        self.emit(at, flags, Options::NONE, pdu, desk);
        self.next = end;
        if self.resend_at == Instant::NEVER {
            self.resend_at = desk.cx.now + self.rtt.timeout(desk.config);
        }
        true
    }

    /// Puts the header in front and hands the segment down. Every segment after the first SYN acknowledges.
    fn emit(&mut self, at: Sequence, flags: Flags, options: Options, mut pdu: Pdu, desk: &mut Desk<'_, '_>) {
        let acknowledges = flags.has(Flags::ACK);
        let window = self.offer(flags, desk);
        let header = Header {
            source_port: self.local.port(),
            target_port: self.remote.port(),
            sequence: at,
            acknowledgment: if acknowledges { self.expected } else { Sequence(0) },
            flags,
            window,
            urgent: 0,
            options,
        };
        let length = header.length();
        let bytes = pdu.push_head(length);
        header.write(bytes);
        let rest = self.pseudo.plus(checksum::length(length + pdu.body_len())).plus(pdu.body_sum());
        kiban_wire::tcp::fill(pdu.head_mut(), rest);
        if acknowledges {
            self.owed = Owed::Nothing;
            self.unanswered = 0;
            self.ack_at = Instant::NEVER;
        }
        desk.counters.segments_out += 1;
        desk.down.push_back(Segment { source: self.local.ip(), target: self.remote.ip(), pdu });
    }

    /// How far the window may reach now: memory and what the host still holds decide.
    fn right_edge(&self, desk: &Desk<'_, '_>) -> Sequence {
        let config = desk.config;
        let most = config
            .receive_buffer_bytes
            .min(desk.receive_share.allowance(self.committed, config.floor_bytes))
            .min(0xffff << self.receive_shift);
        let room = most.saturating_sub(self.held) >> self.receive_shift << self.receive_shift;
        let edge = self.expected + room;
        // RFC 9293 §3.8.6: what was offered is never taken back.
        if edge.lt(self.edge) { self.edge } else { edge }
    }

    /// The window field, and the edge that it promises.
    fn offer(&mut self, flags: Flags, desk: &mut Desk<'_, '_>) -> u16 {
        if self.state == State::SynSent {
            return desk.config.receive_buffer_bytes.min(0xffff) as u16;
        }
        let edge = self.right_edge(desk);
        // RFC 9293 §3.8.6.2.2: the edge moves by a worthwhile step or not at all.
        let step = self.peer_segment.max(self.mss).min(desk.config.receive_buffer_bytes / 2);
        if self.edge.distance(edge) >= step || self.edge == self.expected {
            self.edge = edge;
        }
        let window = self.expected.distance(self.edge);
        // RFC 7323 §2.2: the window in a SYN is never scaled.
        let shift = if flags.has(Flags::SYN) { 0 } else { self.receive_shift };
        // Rounded up, by less than a unit of the scale: rounding down would take back what was offered.
        let field = window.div_ceil(1 << shift).min(0xffff);
        self.edge = self.expected + (field << shift);
        self.commit(desk);
        field as u16
    }

    /// Tells the ledger what is promised or held.
    fn commit(&mut self, desk: &mut Desk<'_, '_>) {
        let now =
            if self.state.receives() { self.expected.distance(self.edge) + self.held } else { self.held };
        let now = if self.state == State::Closed { 0 } else { now };
        desk.receive_share.change(self.committed, now);
        self.committed = now;
    }

    /// What a caller may know about a session.
    pub(super) fn info(&self) -> super::Info {
        super::Info {
            state: self.state,
            local: self.local,
            remote: self.remote,
            mss: self.mss,
            round_trip: self.rtt.smoothed().unwrap_or(Duration::ZERO),
            congestion_window_bytes: self.reno.window(),
            send_window_bytes: self.window,
            outstanding_bytes: self.una.distance(self.max),
            queued_bytes: self.queue.bytes(),
        }
    }
}
