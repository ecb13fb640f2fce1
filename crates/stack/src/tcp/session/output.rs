//! What a session sends: new data, old data again, acknowledgements, and the window it offers.
//!
//! Order     what must go again goes first, then new data, then what is owed and no data has carried.
//! Windows   which new data goes is said in `send_rule`. Our own window moves by worthwhile steps and is never taken back (§3.8.6.2.2).

use super::{Desk, Owed, Progress, Session};
use crate::tcp::Segment;
use crate::tcp::config::{Config, Offer};
use crate::tcp::state::State;
use kiban_ground::{Instant, Pdu};
use kiban_wire::checksum;
use kiban_wire::tcp::{Flags, Header, Options, Sequence};

impl Session {
    #[inline]
    pub(super) fn segment_max(&self, config: &Config) -> u32 {
        (config.segment_bytes_max / self.mss).max(1) * self.mss
    }

    /// Sends what may be sent, at most `quantum` segments, and pays the acknowledgement that is owed.
    pub(in crate::tcp) fn output(&mut self, quantum: usize, desk: &mut Desk<'_, '_>) -> Progress {
        match self.state {
            State::Closed => return Progress::Done,
            State::SynSent | State::SynReceived => return self.output_syn(desk),
            _ => {}
        }
        let again = self.resend_first;
        let mut progress = if again { self.output_again(desk) } else { Progress::Done };
        let mut segments = usize::from(again);
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
        while progress == Progress::Done && (self.owed == Owed::Now || self.duplicates > 0) {
            if segments == quantum {
                return Progress::More;
            }
            segments += 1;
            match desk.cx.memory.blocks.take() {
                Some(pdu) => {
                    self.emit(self.place(), Flags::ACK, Options::NONE, pdu, desk);
                    self.duplicates = self.duplicates.saturating_sub(1);
                }
                None => progress = Progress::Starved,
            }
        }
        let waits = self.queue.bytes() > 0 || self.una != self.max || self.state.owes_finish();
        if self.resend_at == Instant::NEVER && waits {
            // Data outstanding, or a window too small to send any: either way the clock runs.
            self.resend_at = desk.cx.now + self.rtt.timeout(desk.config);
        }
        progress
    }

    fn output_syn(&mut self, desk: &mut Desk<'_, '_>) -> Progress {
        if self.next != self.una {
            if self.state == State::SynReceived && self.owed == Owed::Now {
                let Some(pdu) = desk.cx.memory.blocks.take() else { return Progress::Starved };
                self.emit(self.max, Flags::ACK, Options::NONE, pdu, desk);
            }
            return Progress::Done;
        }
        let Some(pdu) = desk.cx.memory.blocks.take() else { return Progress::Starved };
        let answer = self.state == State::SynReceived;
        let flags = if answer { Flags::SYN | Flags::ACK } else { Flags::SYN };
        let scale = desk.config.window_scaling && (!answer || self.receive_shift > 0 || self.send_shift > 0);
        let options = Options {
            mss: Some(desk.config.mss),
            window_shift: scale.then(|| desk.config.window_shift()),
            ..Options::NONE
        };
        if self.max == self.una {
            self.rtt.on_sent(self.una + 1, desk.cx.now);
        } else {
            desk.counters.retransmissions += 1;
            self.rtt.on_retransmit();
        }
        self.emit(self.una, flags, options, pdu, desk);
        self.next = self.una + 1;
        self.max = self.next;
        self.resend_at = desk.cx.now + self.rtt.timeout(desk.config);
        Progress::Done
    }

    /// The first unacknowledged segment again (fast retransmit, partial acknowledgement).
    fn output_again(&mut self, desk: &mut Desk<'_, '_>) -> Progress {
        let length = self.queue.bytes().min(self.mss);
        let fin =
            self.state.owes_finish() && length == self.queue.bytes() && self.max == self.una + (length + 1);
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
        if self.una == self.max {
            // RFC 6298 §5.1: nothing was out, so the clock starts now; it may have run for a closed window.
            self.resend_at = Instant::NEVER;
        }
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
        if at == self.max {
            self.rtt.on_sent(end, desk.cx.now);
        } else {
            desk.counters.retransmissions += 1;
            self.rtt.on_retransmit();
        }
        if self.max.lt(end) {
            desk.counters.bytes_out += u64::from(self.max.distance(end));
            self.max = end;
        }
        if !taken.is_multiple_of(self.mss) {
            self.short_end = end;
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
    pub(super) fn emit(
        &mut self,
        at: Sequence,
        flags: Flags,
        options: Options,
        mut pdu: Pdu,
        desk: &mut Desk<'_, '_>,
    ) {
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
            (self.unanswered, self.unanswered_segments) = (0, 0);
            self.ack_at = Instant::NEVER;
        }
        desk.counters.segments_out += 1;
        desk.down.push_back(Segment { source: self.local.ip(), target: self.remote.ip(), pdu });
    }

    /// Where a segment without data stands: behind all that was sent, but never beyond the peer's window, where
    /// nobody would read it (two closed windows that probe each other would answer each other for ever).
    pub(super) fn place(&self) -> Sequence {
        self.max.min(self.una + self.window)
    }

    /// The peer's window in bytes (RFC 7323 §2.2: in a SYN it is never scaled).
    pub(super) fn window_in(&self, header: &Header) -> u32 {
        u32::from(header.window) << if header.flags.has(Flags::SYN) { 0 } else { self.send_shift }
    }

    /// What we may hold and offer in all: the buffer, our share of memory, what the window field can say.
    pub(super) fn window_most(&self, desk: &Desk<'_, '_>) -> u32 {
        let config = desk.config;
        config
            .window_bytes(self.mss)
            .min(desk.receive_share.allowance(self.committed, config.floor_bytes))
            .min(0xffff << self.receive_shift)
    }

    /// How far the window may reach now, if we hold and offer `most`.
    pub(super) fn right_edge(&self, most: u32) -> Sequence {
        let room = most.saturating_sub(self.held) >> self.receive_shift << self.receive_shift;
        let edge = self.expected + room;
        // RFC 9293 §3.8.6: what was offered is never taken back.
        if edge.lt(self.edge) { self.edge } else { edge }
    }

    /// The window field, and the edge that it promises.
    fn offer(&mut self, flags: Flags, desk: &mut Desk<'_, '_>) -> u16 {
        let most = self.window_most(desk);
        let edge = self.right_edge(most);
        let moves = match desk.config.offer {
            // RFC 9293 §3.8.6.2.2: the edge moves by a worthwhile step or not at all.
            Offer::Steps => self.edge.distance(edge) >= self.peer_segment.max(self.mss).min(most / 2),
            Offer::Room => self.expected.distance(edge) >= self.mss.min(most / 4),
        };
        if moves {
            self.edge = edge;
        }
        let window = self.expected.distance(self.edge);
        // RFC 7323 §2.2: the window in a SYN is never scaled.
        let shift = if flags.has(Flags::SYN) { 0 } else { self.receive_shift };
        // Rounded up, by less than a unit of the scale: rounding down would take back what was offered. Where the
        // buffer ends it is rounded down (RFC 7323 §2.4), or a drip of short segments would push the edge along.
        let field = match window.div_ceil(1 << shift) {
            up if up << shift <= most.saturating_sub(self.held) => up,
            _ => window >> shift,
        }
        .min(0xffff);
        self.edge = self.edge.max(self.expected + (field << shift));
        self.commit(desk);
        field as u16
    }

    /// Tells the ledger what is promised or held.
    pub(super) fn commit(&mut self, desk: &mut Desk<'_, '_>) {
        let now = match self.state {
            State::Closed => 0,
            state if state.receives() || !state.is_synchronised() => {
                self.expected.distance(self.edge) + self.held
            }
            _ => self.held,
        };
        desk.receive_share.change(self.committed, now);
        self.committed = now;
    }
}
