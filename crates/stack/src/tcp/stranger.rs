//! Segments that belong to no session: requests for a listener, and mistakes (RFC 9293 §3.10.7.1, §3.10.7.2).
//!
//! Request   begins a session while the backlog has room; beyond it (or always, see [`SynCookies`]) it is answered with
//!           a cookie and forgotten.
//! Others    are answered with a reset. Answers without a session are written into the PDU of what they answer, so that
//!           a flood takes no memory.

use super::cookie::{self, SynCookies};
use super::secret::Beginning;
use super::{Outbox, Segment, Tcp, resting};
use core::net::SocketAddr;
use kiban_ground::{Context, Instant, Pdu};
use kiban_wire::checksum;
use kiban_wire::numbers::protocol;
use kiban_wire::tcp::{Flags, Header, Options, Sequence};

/// Somebody who waits for sessions.
pub(super) struct Listener {
    pub(super) number: u32,
    pub(super) local: SocketAddr,
    /// An unspecified IPv6 address stands for the IPv4 addresses, too.
    pub(super) dual: bool,
    /// Sessions that have begun and are not made yet.
    pub(super) waiting: usize,
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
        let full = listener.waiting >= self.config.backlog;
        let with_cookie = match self.config.syn_cookies {
            SynCookies::Off => false,
            SynCookies::Full => full,
            SynCookies::Always => true,
        };
        if self.table.len() >= self.config.sessions_max || (full && !with_cookie) {
            self.counters.requests_dropped += 1;
            return;
        }
        if with_cookie {
            listener.cookies_until = cx.now + cookie::LIFE;
            self.counters.cookies_out += 1;
            self.counters.segments_out += 1;
            let answer = cookie::answer(&self.secret, &self.config, (local, remote), header, cx.now);
            return send_alone(&answer, (local, remote), pdu, out);
        }
        listener.waiting += 1;
        self.counters.requests_in += 1;
        let number = listener.number;
        let beginning = resting::behind(self.secret.beginning(local, remote, cx.now), least);
        let id = self.begin((local, remote), beginning, Some(number), lane);
        self.with(id.index, cx, out, |session, desk| session.on_first_syn(header, desk));
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
        if self.table.len() >= self.config.sessions_max {
            self.counters.requests_dropped += 1;
            return;
        }
        listener.waiting += 1;
        let number = listener.number;
        self.counters.cookies_in += 1;
        let beginning =
            Beginning { initial: header.acknowledgment - 1, ..self.secret.beginning(local, remote, cx.now) };
        let id = self.begin((local, remote), beginning, Some(number), lane);
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
