//! Segments that match no session: SYNs for a listener, and others (RFC 9293 §3.10.7.1, §3.10.7.2).
//!
//! SYN              a SYN begins a session while the backlog has room. If the backlog is full (or always, see
//!                  [`SynCookies`]), the SYN is answered with a cookie, and no state is kept.
//! Others           any other segment is answered with a RST. An answer without a session reuses the PDU of
//!                  the segment that it answers, so that a flood uses no memory.

use super::cookie;
use super::fast_open::{self, FastOpenSyn};
use super::listener::{find_listener, numbered};
use super::secret::InitialNumbers;
use super::time_wait::isn_not_before;
use crate::tcp::config::{Fairness, SynCookies};
use crate::tcp::interface::indication::SessionId;
use crate::tcp::machine::Tcp;
use crate::tcp::segment::{Outbox, Segment};
use crate::tcp::session::Session;
use crate::tcp::state::State;
use crate::wire::tcp::{Flags, Header, Options, Sequence};
use core::net::SocketAddr;
use kiban_base::checksum;
use kiban_base::numbers::protocol;
use kiban_base::{Context, Instant, Pdu};

impl Tcp {
    /// Processes a segment that matches no session (RFC 9293 §3.10.7.1, §3.10.7.2).
    pub(crate) fn on_unmatched(
        &mut self,
        (local, remote): (SocketAddr, SocketAddr),
        header: &Header,
        pdu: Pdu,
        (tx_queue, least): (usize, Option<Sequence>),
        cx: &mut Context<'_>,
        out: &mut Outbox,
    ) {
        let flags = header.flags;
        if flags.has(Flags::RST) {
            return self.on_request_reset((local, remote), header);
        }
        let listener = find_listener(&mut self.listeners, local);
        let Some(listener) = listener else { return self.answer_reset(local, remote, header, pdu, out) };
        if flags.has(Flags::ACK) {
            return self.on_listener_ack((local, remote), header, pdu, tx_queue, cx, out);
        }
        if !flags.has(Flags::SYN) {
            // RFC 9293 §3.10.7.2, fourth: a segment with neither RST, ACK nor SYN is dropped.
            self.counters.unacceptable += 1;
            return;
        }
        let (number, owner) = (listener.number, listener.owner);
        let (intercepts, half_open_count) = (listener.intercepts, listener.half_open_count);
        let traffic_class = listener.dscp << 2;
        let full = half_open_count >= self.config.backlog;
        let with_cookie = match self.config.syn_cookies {
            SynCookies::Off => false,
            SynCookies::Full => full,
            SynCookies::Always => true,
        };
        if self.table.len() >= self.config.sessions_max {
            self.counters.syns_dropped += 1;
            return;
        }
        if !self.may_own_more(owner, remote.ip(), true) {
            self.counters.sessions_limited_by_share += 1;
            return;
        }
        if intercepts {
            let room = self.config.backlog.saturating_sub(half_open_count);
            return self.request(number, (local, remote), header, (tx_queue, least), room, out);
        }
        if full && !with_cookie && !self.evict_half_open(number, remote, cx, out) {
            self.counters.syns_dropped += 1;
            return;
        }
        if with_cookie {
            let Some(listener) = find_listener(&mut self.listeners, local) else { return };
            listener.cookies_until = cx.now + cookie::LIFE;
            self.counters.syn_cookies_sent += 1;
            self.counters.segments_out += 1;
            let answer = cookie::syn_ack(&self.secret, &self.config, (local, remote), header, cx.now);
            return send_stateless(&answer, (local, remote), traffic_class, pdu, out);
        }
        let fast_open = self.fast_open_syn((local, remote), header, cx.now);
        self.counters.syns_in += 1;
        let beginning = isn_not_before(self.secret.initial_numbers(local, remote, cx.now), least);
        let id = self.begin((local, remote), beginning, (owner, Some(number)), tx_queue);
        let is_bounded = self.config.syn_cookies == SynCookies::Off;
        if let Some(listener) = find_listener(&mut self.listeners, local) {
            listener.half_open_count += 1;
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
        self.with(id.index, cx, out, |session, ctx| match fast_open {
            FastOpenSyn::Ordinary => session.on_first_syn(header, ctx),
            FastOpenSyn::Grant(cookie) => {
                session.grant_fast_open(cookie);
                session.on_first_syn(header, ctx);
            }
            FastOpenSyn::Accept => session.on_fast_open_syn(header, pdu, ctx),
        });
    }

    /// Decides what Fast Open does with a SYN that a listener accepts (RFC 7413 §4.2.2).
    fn fast_open_syn(
        &mut self,
        (local, remote): (SocketAddr, SocketAddr),
        header: &Header,
        now: Instant,
    ) -> FastOpenSyn {
        let (Some(listener), Some(shown)) =
            (find_listener(&mut self.listeners, local), header.options.fast_open)
        else {
            return FastOpenSyn::Ordinary;
        };
        if listener.fast_open_pending_max == 0 {
            return FastOpenSyn::Ordinary;
        }
        while listener.fast_open_resets.front().is_some_and(|until| *until <= now) {
            listener.fast_open_resets.pop_front();
        }
        let pending = listener.fast_open_pending as usize + listener.fast_open_resets.len();
        let has_room = pending < listener.fast_open_pending_max as usize;
        let addresses = (local.ip(), remote.ip());
        if fast_open::is_valid(&self.secret, shown, addresses, now) {
            if has_room {
                return FastOpenSyn::Accept;
            }
            self.counters.fast_opens_rejected += 1;
            return FastOpenSyn::Ordinary;
        }
        self.counters.fast_opens_rejected += u64::from(!shown.is_request());
        self.counters.fast_open_cookies_sent += 1;
        FastOpenSyn::Grant(fast_open::grant(&self.secret, addresses.0, addresses.1, now))
    }

    /// Counts a session that has begun or ended to be a pending Fast Open session.
    pub(in crate::tcp) fn count_fast_open(&mut self, was: Option<u32>, is: Option<u32>) {
        for listener in &mut self.listeners {
            listener.fast_open_pending -= u32::from(was == Some(listener.number));
            listener.fast_open_pending += u32::from(is == Some(listener.number));
        }
    }

    /// Counts a pending session that a RST has ended for a while longer. Otherwise an attacker could exhaust
    /// the server with spoofed SYNs, whose answers cause RSTs (RFC 7413 §5.1).
    pub(in crate::tcp) fn keep_fast_open_reset(&mut self, listener: Option<u32>, now: Instant) {
        if let Some(listener) = listener.and_then(|number| numbered(&mut self.listeners, number)) {
            listener.fast_open_resets.push_back(now + fast_open::RESET_COUNTS);
        }
    }

    /// Sets how many Fast Open sessions of a listener may be pending; with zero, it accepts none. Returns
    /// whether the listener exists.
    pub fn set_fast_open(&mut self, listener: u32, pending_max: u32) -> bool {
        let found = numbered(&mut self.listeners, listener);
        found.map(|listener| listener.fast_open_pending_max = pending_max).is_some()
    }

    /// Offers Fast Open for a session that was just opened. If the server has granted a cookie before, the
    /// SYN waits for data, which leaves in it. Returns whether it does so.
    pub fn offer_fast_open(&mut self, session: SessionId, now: Instant) -> bool {
        if let Some(found) = self.table.get_mut(session).filter(|found| found.state == State::SynSent)
            && let Some((cookie, mss)) = self.fast_open.offer(found.remote.ip(), now)
        {
            found.offer_fast_open(cookie, mss);
        }
        self.syn_waits(session)
    }

    /// Sends the SYN of a session, which may wait for data, without any.
    pub fn release_syn(&mut self, session: SessionId) {
        if let Some(found) = self.table.get_mut(session) {
            found.release_syn();
            self.enqueue_for_tx(session.index);
        }
    }

    /// Returns whether the SYN of a session waits for data.
    pub fn syn_waits(&self, session: SessionId) -> bool {
        self.table.get(session).is_some_and(Session::syn_waits)
    }

    /// Makes room in a full backlog for an address that has fewer entries, by silently dropping the oldest
    /// half-open connection of the address that has the most. Returns whether one was dropped.
    fn evict_half_open(
        &mut self,
        number: u32,
        remote: SocketAddr,
        cx: &mut Context<'_>,
        out: &mut Outbox,
    ) -> bool {
        if !self.config.memory_shares || self.config.fairness == Fairness::Flow {
            return false;
        }
        let Some(listener) = numbered(&mut self.listeners, number) else { return false };
        let (table, claims) = (&self.table, &self.claims);
        let own = claims.half_open_of(listener.owner, remote.ip());
        let waits = |id: &SessionId| table.get(*id).is_some_and(|session| session.listener == Some(number));
        listener.half_open.retain(waits);
        let count = |id: &SessionId| table.get(*id).map_or(0, |session| claims.half_open(session.claim));
        // Among equals, the oldest.
        let most = listener.half_open.iter().rev().copied().max_by_key(count);
        let Some(id) = most.filter(|id| count(id) > own + 1) else { return false };
        self.counters.half_open_evicted += 1;
        self.with(id.index, cx, out, |session, ctx| session.displace(ctx));
        true
    }

    /// Processes an ACK for a listener: the last segment of a cookie handshake, or an unexpected segment.
    fn on_listener_ack(
        &mut self,
        (local, remote): (SocketAddr, SocketAddr),
        header: &Header,
        pdu: Pdu,
        tx_queue: usize,
        cx: &mut Context<'_>,
        out: &mut Outbox,
    ) {
        let listener = find_listener(&mut self.listeners, local).expect("a listener was found");
        let syn = if header.flags.has(Flags::SYN) || listener.cookies_until < cx.now {
            None
        } else {
            let found = cookie::decode(&self.secret, &self.config, (local, remote), header, cx.now);
            self.counters.syn_cookies_invalid += u64::from(found.is_none());
            found
        };
        let Some(syn) = syn else { return self.answer_reset(local, remote, header, pdu, out) };
        let (number, owner) = (listener.number, listener.owner);
        if self.table.len() >= self.config.sessions_max {
            self.counters.syns_dropped += 1;
            return;
        }
        if !self.may_own_more(owner, remote.ip(), true) {
            self.counters.sessions_limited_by_share += 1;
            return;
        }
        self.counters.syn_cookies_accepted += 1;
        let beginning = InitialNumbers {
            isn: header.acknowledgment - 1,
            ..self.secret.initial_numbers(local, remote, cx.now)
        };
        let id = self.begin((local, remote), beginning, (owner, Some(number)), tx_queue);
        if let Some(listener) = find_listener(&mut self.listeners, local) {
            listener.half_open_count += 1;
        }
        self.with(id.index, cx, out, |session, ctx| session.on_cookie(&syn, header, pdu, ctx));
    }

    /// Sends the RST that answers a segment without a session (RFC 9293 §3.10.7.1), in the segment's own PDU.
    pub(super) fn answer_reset(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        header: &Header,
        pdu: Pdu,
        out: &mut Outbox,
    ) {
        self.counters.unmatched += 1;
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
        send_stateless(&answer, (local, remote), 0, pdu, out);
    }
}

/// Sends a header that belongs to no session, in the PDU of the segment that it answers.
fn send_stateless(
    answer: &Header,
    (local, remote): (SocketAddr, SocketAddr),
    traffic_class: u8,
    mut pdu: Pdu,
    out: &mut Outbox,
) {
    pdu.truncate(0);
    let bytes = pdu.push_head(answer.length());
    let length = answer.write(bytes);
    crate::wire::tcp::fill(bytes, checksum::pseudo(local.ip(), remote.ip(), protocol::TCP, length));
    out.down.push_back(Segment { source: local.ip(), target: remote.ip(), traffic_class, pdu });
}
