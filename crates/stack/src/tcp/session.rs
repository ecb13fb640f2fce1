//! One session: its transmission control block and what segments, hosts and timers do to it (RFC 9293 §3.10).
//!
//! Down      `send`, `finish`, `abort` change the queue; `output` puts on the wire what windows and Nagle allow.
//! Up        `on_segment` follows the standard's order of checks; data in order goes up at once, early data waits.
//! Owed      a segment that arrives only *owes* an answer. `output` pays once, when the burst is over: one
//!           acknowledgement decision a burst (paper \[1\]'s pipeline rescheduling), carried by data where there is some.
//! Memory    `output` may find no PDU block: the session then says so and is asked again.

mod output;

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

/// Duplicate acknowledgements a burst: what the peer needs to see a loss (RFC 5681 §3.2).
const DUPLICATES_MAX: u8 = 3;

/// Answers of one session, in so long a time, to segments that should not have come (RFC 5961 §7).
const CHALLENGES_MAX: u8 = 10;
const CHALLENGE_PERIOD: Duration = Duration::from_secs(1);

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
    /// The way on which its segments leave: that of the last segment that came.
    pub(super) lane: usize,
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
    /// The host has closed: nobody reads what still comes.
    left: bool,
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
    /// Segments of this burst that came early: each is told, up to [`DUPLICATES_MAX`].
    duplicates: u8,
    ack_at: Instant,
    challenged_at: Instant,
    challenges: u8,
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
            lane: 0,
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
            left: false,
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
            duplicates: 0,
            ack_at: Instant::NEVER,
            challenged_at: Instant::ZERO,
            challenges: 0,
        }
    }

    // ---- Down: what the host asks for -------------------------------------------------------------------------

    /// Whether the host may still hand over data.
    pub(super) fn takes_data(&self) -> bool {
        self.state.takes_data() && !self.finishing
    }

    /// Bytes that the host may hand over now.
    pub(super) fn room(&self, config: &Config, share: &Share) -> usize {
        if !self.takes_data() {
            return 0;
        }
        let held = self.queue.bytes();
        let most = config.send_buffer_bytes.min(share.allowance(held, config.floor_bytes));
        most.saturating_sub(held) as usize
    }

    /// Bytes at which a slice of the stream should end, so that segments are whole slices.
    pub(super) fn grain(&self, config: &Config) -> usize {
        if config.cut_below { self.mss as usize } else { self.segment_max(config) as usize }
    }

    /// Appends to the stream; whoever does it charges the share.
    #[inline]
    pub(super) fn append(&mut self, slice: Slice, grain: u32) {
        self.queue.push(slice, grain);
    }

    /// Bytes in the send queue.
    #[inline]
    pub(super) fn queued(&self) -> u32 {
        self.queue.bytes()
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
        let most = self.window_most(desk);
        let step = (2 * self.peer_segment.max(self.mss)).min(most / 2);
        if self.state.receives() && self.edge.distance(self.right_edge(most)) >= step {
            self.owed = Owed::Now;
        }
        self.commit(desk);
    }

    /// Gives up: a RST to the peer where it knows of us, and nothing is left here.
    pub(super) fn abort(&mut self, desk: &mut Desk<'_, '_>) {
        // RFC 9293 §3.10.5: in the other states the peer does not know of us or waits for nothing.
        use State::{CloseWait, Established, FinWait1, FinWait2, SynReceived};
        // A FIN that stands behind queued data has told the peer nothing yet, whatever the state is called.
        let fin_waits = self.finishing && self.una.distance(self.max) <= self.queue.bytes();
        let known = matches!(self.state, SynReceived | Established | FinWait1 | FinWait2 | CloseWait);
        if (known || (fin_waits && self.state.is_synchronised() && self.state != State::TimeWait))
            && let Some(pdu) = desk.cx.memory.blocks.take()
        {
            self.emit(self.place(), Flags::RST | Flags::ACK, Options::NONE, pdu, desk);
        }
        self.end(Reason::Aborted, desk);
    }

    /// The host sends no more and reads no more.
    pub(super) fn leave(&mut self, desk: &mut Desk<'_, '_>) {
        self.left = true;
        self.finish();
        if self.state == State::FinWait2 {
            self.resend_at = desk.cx.now + desk.config.time_wait;
        }
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
        if let Some(shift) = header.options.window_shift {
            self.send_shift = shift.min(14);
            self.receive_shift = config.window_shift();
        }
        // Our SYN has offered a window, if it was ours that went first.
        let offered = self.expected.distance(self.edge);
        self.expected = header.sequence + 1;
        self.edge = self.expected + offered;
        self.window = u32::from(header.window);
        self.window_max = self.window;
        self.window_update = (header.sequence, header.acknowledgment);
    }

    /// RFC 9293 §3.10.7.3 and §3.10.7.4. The PDU's head has been taken off: its body is the payload.
    pub(super) fn on_segment(&mut self, header: &Header, mut pdu: Pdu, desk: &mut Desk<'_, '_>) {
        if self.state == State::SynSent {
            return self.on_answer(header, desk);
        }
        let pure = pdu.body_len() == 0 && !header.flags.has_any(Flags::SYN | Flags::FIN);
        let Some(flags) = self.check_sequence(header, &mut pdu, desk) else { return };
        if flags.has(Flags::RST) {
            // RFC 5961 §3.2: only the exact next byte resets; anything else in the window is asked about.
            if header.sequence == self.expected {
                desk.counters.resets_in += 1;
                let reason = if self.state == State::SynReceived { Reason::Refused } else { Reason::Reset };
                self.end(reason, desk);
            } else {
                self.challenge(desk);
            }
            return;
        }
        if flags.has(Flags::SYN) {
            // RFC 5961 §4.2: a SYN on a live session is challenged.
            return self.challenge(desk);
        }
        if !flags.has(Flags::ACK) {
            desk.counters.without_ack += 1;
            return;
        }
        self.silence = 0;
        if !self.on_acknowledgment(header, pure, desk) {
            return;
        }
        if self.state.receives() {
            self.on_data(header.sequence, pdu, flags, desk);
        } else if pdu.body_len() > 0 {
            desk.counters.after_finish += 1;
        }
    }

    /// Tells the peer where we stand. RFC 5961 §7: not without limit, or two ends that disagree would tell each other
    /// for ever.
    fn challenge(&mut self, desk: &mut Desk<'_, '_>) {
        let now = desk.cx.now;
        if now.since(self.challenged_at) >= CHALLENGE_PERIOD {
            (self.challenged_at, self.challenges) = (now, 0);
        }
        if self.challenges < CHALLENGES_MAX {
            self.challenges += 1;
            desk.counters.challenged += 1;
            self.owed = Owed::Now;
        } else {
            desk.counters.unchallenged += 1;
        }
    }

    /// RFC 9293 §3.10.7.3: the answer to our SYN.
    fn on_answer(&mut self, header: &Header, desk: &mut Desk<'_, '_>) {
        let flags = header.flags;
        let acknowledged = flags.has(Flags::ACK);
        if acknowledged && !(self.una.lt(header.acknowledgment) && header.acknowledgment.le(self.max)) {
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
            self.open(header.acknowledgment, desk);
            self.owed = Owed::Now;
        } else {
            // Both opened at once (§3.5): our SYN goes again, with an acknowledgement.
            self.state = State::SynReceived;
            self.next = self.una;
        }
    }

    /// The handshake is complete: the peer has acknowledged our SYN.
    fn open(&mut self, ack: Sequence, desk: &mut Desk<'_, '_>) {
        self.state = if self.finishing { State::FinWait1 } else { State::Established };
        (self.una, self.next, self.max) = (ack, ack, ack);
        self.rtt.on_acknowledged(ack, desk.cx.now, desk.config);
        let lost = self.rtt.on_opened();
        self.reno = Reno::new(desk.config, self.mss, ack - 1);
        if lost > 1 {
            // RFC 6928 §2: when more than one SYN was lost, one segment is enough to begin with.
            self.reno.begin_with(self.mss);
        }
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
                if flags.has(Flags::ACK) && header.acknowledgment == self.max {
                    // RFC 9293 §3.5, figure 8: both opened at once, and the peer's SYN comes again with the ACK.
                    return Some(Flags::ACK);
                }
                // The SYN again: our answer was lost.
                self.next = self.una;
                return None;
            }
            desk.counters.unacceptable += 1;
            if length == 0 || flags.has(Flags::SYN) {
                self.challenge(desk);
            } else {
                // Bytes that come again, or too far: the peer waits for this answer.
                self.owed = Owed::Now;
            }
            if self.state == State::TimeWait && flags.has(Flags::FIN) && end == self.expected {
                // RFC 9293 §3.10.7.4, eighth: their FIN again starts the wait again.
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
    fn on_acknowledgment(&mut self, header: &Header, pure: bool, desk: &mut Desk<'_, '_>) -> bool {
        let ack = header.acknowledgment;
        if self.state == State::SynReceived {
            if !(self.una.lt(ack) && ack.le(self.max)) {
                desk.counters.unacceptable += 1;
                if let Some(pdu) = desk.cx.memory.blocks.take() {
                    self.emit(ack, Flags::RST, Options::NONE, pdu, desk);
                }
                return false;
            }
            self.window_update = (header.sequence, ack);
            self.window = self.window_in(header);
            self.window_max = self.window;
            self.open(ack, desk);
        }
        if self.max.lt(ack) || ack.lt(self.una - self.window_max.max(self.mss)) {
            // RFC 5961 §5: an acknowledgement of what was never sent, or older than any window.
            desk.counters.unsent_acknowledged += 1;
            self.challenge(desk);
            return false;
        }
        let window = self.window_in(header);
        if self.una.lt(ack) {
            self.advance(ack, desk);
        } else if pure && ack == self.una && window == self.window && self.una != self.max && !self.probe {
            // RFC 5681 §2: a duplicate. The answer to a probe looks like one and tells nothing of loss.
            desk.counters.duplicate_acks += 1;
            let flight = self.una.distance(self.max);
            if self.reno.on_duplicate(self.una, self.max, flight, self.mss) == Advice::Retransmit {
                desk.counters.fast_retransmits += 1;
                self.resend_first = true;
            }
        }
        let (sequence, acknowledgment) = self.window_update;
        // RFC 9293 §3.10.7.4: an old acknowledgement's window is old too.
        let newer = sequence.lt(header.sequence) || (sequence == header.sequence && acknowledgment.le(ack));
        if newer && self.una.le(ack) {
            if self.probe && window > self.window {
                // The window opens: what was probed with goes again, and the clock with it.
                self.probe = false;
                self.next = self.una;
                self.rtt.on_reopened();
                self.resend_at = Instant::NEVER;
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
        if core::mem::take(&mut self.probe) {
            self.rtt.on_reopened();
        }
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
                // Nobody waits for the peer's FIN: a peer that never sends it does not keep the session.
                State::FinWait2 if self.left => self.resend_at = desk.cx.now + desk.config.time_wait,
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
        if length > 0 && self.left {
            // RFC 1122 §4.2.2.13: data for a host that has closed is lost, and the peer is to know.
            return self.abort(desk);
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
        self.expected += length;
        self.duplicates = 0;
        self.held += length;
        desk.counters.bytes_in += u64::from(length);
    }

    fn on_early(&mut self, mut begin: Sequence, mut pdu: Pdu, desk: &mut Desk<'_, '_>) {
        desk.counters.out_of_order += 1;
        // RFC 5681 §4.2: every early segment is answered at once, even if many came in one burst.
        self.owed = Owed::Now;
        self.duplicates = (self.duplicates + 1).min(DUPLICATES_MAX);
        for slice in pdu.drain_body() {
            let length = slice.len() as u32;
            if !self.early.insert(begin, slice) {
                desk.counters.early_dropped += 1;
            }
            begin += length;
        }
    }

    /// Memory is short: what waits behind a hole goes; the peer still has it.
    pub(super) fn give_up_early(&mut self, counters: &mut TcpCounters) {
        counters.early_dropped += self.early.clear() as u64;
    }

    fn on_peer_finish(&mut self, desk: &mut Desk<'_, '_>) {
        self.fin_at = None;
        self.early.clear();
        self.expected += 1;
        self.duplicates = 0;
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
        (self.owed, self.duplicates) = (Owed::Nothing, 0);
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
        if self.state == State::TimeWait || (self.state == State::FinWait2 && self.left) {
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
        self.rtt.on_timeout();
        self.next = self.una;
        if !self.state.is_synchronised() {
            return;
        }
        self.reno.on_timeout(self.max, outstanding, self.mss, self.silence == 1);
        // Go back: the first segment now, whatever the window; the others as it opens.
        self.resend_first = true;
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
