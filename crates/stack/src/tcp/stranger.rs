//! Segments that belong to no session: requests for a listener, and mistakes (RFC 9293 §3.10.7.1, §3.10.7.2).
//!
//! Request   begins a session while the backlog has room; beyond it (or always, see [`SynCookies`]) it is answered with
//!           a cookie and forgotten.
//! Others    are answered with a reset. Answers without a session are written into the PDU of what they answer, so that
//!           a flood takes no memory.

use super::config::Fairness;
use super::cookie::{self, SynCookies};
use super::secret::Beginning;
use super::{Outbox, Owner, Segment, SessionId, Tcp, resting};
use alloc::collections::VecDeque;
use core::net::SocketAddr;
use kiban_ground::{Context, Instant, Pdu};
use kiban_wire::checksum;
use kiban_wire::numbers::protocol;
use kiban_wire::tcp::{Flags, Header, Options, Sequence};

/// Somebody who waits for sessions.
pub(super) struct Listener {
    pub(super) number: u32,
    /// Whose the sessions are that it makes.
    pub(super) owner: Owner,
    pub(super) local: SocketAddr,
    /// An unspecified IPv6 address stands for the IPv4 addresses, too.
    pub(super) dual: bool,
    /// Sessions that have begun and are not made yet.
    pub(super) waiting: usize,
    /// Those, the oldest first, where nothing but their number bounds them (without cookies). Some may be open, or gone.
    pub(super) half_open: VecDeque<SessionId>,
    /// Until when an acknowledgement may bring a cookie back.
    pub(super) cookies_until: Instant,
}

/// Who listens on `local`: a listener of this address goes before one of all addresses.
pub(super) fn who_listens(listeners: &mut [Listener], local: SocketAddr) -> Option<&mut Listener> {
    let serves = |listener: &&mut Listener| {
        let address = listener.local.ip();
        listener.local.port() == local.port()
            && (address == local.ip()
                || (address.is_unspecified() && (listener.dual || address.is_ipv4() == local.is_ipv4())))
    };
    listeners.iter_mut().filter(serves).max_by_key(|listener| listener.local == local)
}

impl Tcp {
    /// A segment that belongs to no session: a request for a listener, or a mistake (RFC 9293 §3.10.7.1, §3.10.7.2).
    pub(super) fn on_stranger(
        &mut self,
        (local, remote): (SocketAddr, SocketAddr),
        header: &Header,
        pdu: Pdu,
        (lane, least): (usize, Option<Sequence>),
        cx: &mut Context<'_>,
        out: &mut Outbox,
    ) {
        let flags = header.flags;
        if flags.has(Flags::RST) {
            return;
        }
        let listener = who_listens(&mut self.listeners, local);
        let Some(listener) = listener else { return self.answer_reset(local, remote, header, pdu, out) };
        if flags.has(Flags::ACK) {
            return self.on_last_segment((local, remote), header, pdu, lane, cx, out);
        }
        if !flags.has(Flags::SYN) {
            // RFC 9293 §3.10.7.2, fourth: neither RST, ACK nor SYN: dropped.
            self.counters.unacceptable += 1;
            return;
        }
        let (number, owner) = (listener.number, listener.owner);
        let full = listener.waiting >= self.config.backlog;
        let with_cookie = match self.config.syn_cookies {
            SynCookies::Off => false,
            SynCookies::Full => full,
            SynCookies::Always => true,
        };
        if self.table.len() >= self.config.sessions_max {
            self.counters.requests_dropped += 1;
            return;
        }
        if !self.may_own_more(owner, remote.ip(), true) {
            self.counters.sessions_limited_by_address += 1;
            return;
        }
        if full && !with_cookie && !self.displace(number, remote, cx, out) {
            self.counters.requests_dropped += 1;
            return;
        }
        if with_cookie {
            let Some(listener) = who_listens(&mut self.listeners, local) else { return };
            listener.cookies_until = cx.now + cookie::LIFE;
            self.counters.cookies_out += 1;
            self.counters.segments_out += 1;
            let answer = cookie::answer(&self.secret, &self.config, (local, remote), header, cx.now);
            return send_alone(&answer, (local, remote), pdu, out);
        }
        self.counters.requests_in += 1;
        let beginning = resting::behind(self.secret.beginning(local, remote, cx.now), least);
        let id = self.begin((local, remote), beginning, (owner, Some(number)), lane);
        let is_bounded = self.config.syn_cookies == SynCookies::Off;
        if let Some(listener) = who_listens(&mut self.listeners, local) {
            listener.waiting += 1;
            if is_bounded {
                if listener.half_open.len() > 2 * self.config.backlog {
                    let table = &self.table;
                    let waits = |id: &SessionId| {
                        table.get(*id).is_some_and(|session| session.listener == Some(number))
                    };
                    listener.half_open.retain(waits);
                }
                listener.half_open.push_back(id);
            }
        }
        self.with(id.index, cx, out, |session, desk| session.on_first_syn(header, desk));
    }

    /// A full backlog makes room for an address that has less of it: the oldest of the address that has most goes, without a word.
    /// Whether one went.
    fn displace(&mut self, number: u32, remote: SocketAddr, cx: &mut Context<'_>, out: &mut Outbox) -> bool {
        if !self.config.shares || self.config.fairness == Fairness::Flow {
            return false;
        }
        let Some(listener) = self.listeners.iter_mut().find(|listener| listener.number == number) else {
            return false;
        };
        let (table, claims) = (&self.table, &self.claims);
        let own = claims.half_open_of(listener.owner, remote.ip());
        let waits = |id: &SessionId| table.get(*id).is_some_and(|session| session.listener == Some(number));
        listener.half_open.retain(waits);
        let count = |id: &SessionId| table.get(*id).map_or(0, |session| claims.half_open(session.claim));
        // The first of equals is the oldest.
        let most = listener.half_open.iter().rev().copied().max_by_key(count);
        let Some(id) = most.filter(|id| count(id) > own + 1) else { return false };
        self.counters.half_open_displaced += 1;
        self.with(id.index, cx, out, |session, desk| session.displace(desk));
        true
    }

    /// An acknowledgement for a listener: the last segment of a handshake that only the peer remembers, or a mistake.
    fn on_last_segment(
        &mut self,
        (local, remote): (SocketAddr, SocketAddr),
        header: &Header,
        pdu: Pdu,
        lane: usize,
        cx: &mut Context<'_>,
        out: &mut Outbox,
    ) {
        let listener = who_listens(&mut self.listeners, local).expect("a listener was found");
        let syn = if header.flags.has(Flags::SYN) || listener.cookies_until < cx.now {
            None
        } else {
            let found = cookie::recall(&self.secret, &self.config, (local, remote), header, cx.now);
            self.counters.cookies_wrong += u64::from(found.is_none());
            found
        };
        let Some(syn) = syn else { return self.answer_reset(local, remote, header, pdu, out) };
        let (number, owner) = (listener.number, listener.owner);
        if self.table.len() >= self.config.sessions_max {
            self.counters.requests_dropped += 1;
            return;
        }
        if !self.may_own_more(owner, remote.ip(), true) {
            self.counters.sessions_limited_by_address += 1;
            return;
        }
        self.counters.cookies_in += 1;
        let beginning =
            Beginning { initial: header.acknowledgment - 1, ..self.secret.beginning(local, remote, cx.now) };
        let id = self.begin((local, remote), beginning, (owner, Some(number)), lane);
        if let Some(listener) = who_listens(&mut self.listeners, local) {
            listener.waiting += 1;
        }
        self.with(id.index, cx, out, |session, desk| session.on_cookie(&syn, header, pdu, desk));
    }

    /// RFC 9293 §3.10.7.1: the reset that a segment for nobody gets. The segment's own PDU carries it.
    fn answer_reset(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        header: &Header,
        pdu: Pdu,
        out: &mut Outbox,
    ) {
        self.counters.unknown += 1;
        self.counters.resets_out += 1;
        let (sequence, acknowledgment, flags) = if header.flags.has(Flags::ACK) {
            (header.acknowledgment, Sequence(0), Flags::RST)
        } else {
            (Sequence(0), header.sequence + header.sequence_bytes(pdu.body_len()), Flags::RST | Flags::ACK)
        };
        let answer = Header {
            source_port: local.port(),
            target_port: remote.port(),
            sequence,
            acknowledgment,
            flags,
            window: 0,
            urgent: 0,
            options: Options::NONE,
        };
        send_alone(&answer, (local, remote), pdu, out);
    }
}

/// Sends a header without a session. The PDU of the segment that it answers carries it.
fn send_alone(answer: &Header, (local, remote): (SocketAddr, SocketAddr), mut pdu: Pdu, out: &mut Outbox) {
    pdu.truncate(0);
    let bytes = pdu.push_head(answer.length());
    let length = answer.write(bytes);
    kiban_wire::tcp::fill(bytes, checksum::pseudo(local.ip(), remote.ip(), protocol::TCP, length));
    out.down.push_back(Segment { source: local.ip(), target: remote.ip(), traffic_class: 0, pdu });
}
