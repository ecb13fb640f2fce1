//! The TCP machine of one board: sessions, listeners, TX queues, memory shares, and the calls that the host
//! and IP make.

use super::config::{Config, Fairness, KeepAlive, Nagle};
use super::counters::TcpCounters;
use super::fairness::claims::{Claim, Claims, Owner};
use super::fairness::share::Share;
use super::listen::fast_open::FastOpenCache;
use super::listen::listener::{Listener, Request, find_listener, numbered};
use super::listen::secret::{InitialNumbers, Secret};
use super::listen::time_wait::TimeWaitQueue;
use super::segment::{Outbox, Segment};
use super::session::{Progress, Session, SessionContext, period_of};
use super::state::State;
use super::table::Table;
use super::throttle::Throttle;
use crate::families;
use crate::steering::Steering;
use crate::tcp::interface::indication::SessionId;
use crate::tcp::interface::info::Info;
use crate::tcp::interface::refusal::Refusal;
use crate::tcp::interface::writer::Writer;
use crate::wire::DYNAMIC_PORTS;
use crate::wire::tcp::Header;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::num::{NonZeroU32, NonZeroU64};
use core::time::Duration;
use kiban_base::checksum;
use kiban_base::numbers::protocol;
use kiban_base::{Context, Instant, Pdu, SecureRng, Slice, Sum, TimerWheel};

/// Number of segments that a session may send per turn while others wait for the same TX queue. If no other
/// session waits, the session continues. If segments longer than the MSS are handed down whole, a turn is one
/// segment.
const QUANTUM: usize = 2;
/// Delay before the next attempt after PDU memory ran out, unless another event comes first.
const STARVED_RETRY: Duration = Duration::from_millis(1);
/// How long the pool stays marked as contested after an address got too little memory.
const CONTEST: Duration = Duration::from_secs(5);

/// TCP for one board. Call [`Tcp::settle`] after each burst and at [`Tcp::deadline`].
pub struct Tcp {
    pub(super) config: Config,
    pub(super) table: Table,
    pub(super) listeners: Vec<Listener>,
    pub(super) next_listener: u32,
    /// Intercepted SYNs about which the host has not decided.
    pub(super) requests: Vec<Request>,
    pub(super) secret: Secret,
    pub(super) challenges: Throttle,
    pub(super) time_wait_queue: TimeWaitQueue,
    pub(super) fast_open: FastOpenCache,
    /// Sessions that hold, or held, out-of-order data.
    pub(super) with_out_of_order: Vec<SessionId>,
    /// Sessions opened by the host that are, or were, in SYN-SENT.
    pub(super) opening: Vec<SessionId>,
    pub(super) tx_queues: Vec<VecDeque<SessionId>>,
    pub(super) timers: TimerWheel,
    pub(super) retry_at: Instant,
    pub(super) send_share: Share,
    pub(super) receive_share: Share,
    pub(super) claims: Claims,
    /// When to look next for sessions that hold memory without progress, and when this was last done.
    pub(super) sweep_at: Instant,
    pub(super) swept_at: Instant,
    /// The claim whose share was used up, if that caused the shortage.
    pub(super) short_claim: Option<Claim>,
    /// When the contention mark set for an address that got no memory expires.
    pub(super) contest_ends: Instant,
    /// The time passed to the most recent call that had a time argument.
    pub(super) now: Instant,
    pub(super) counters: TcpCounters,
    /// The number of this shard, and how flows find their shards; `None` on a board that is not divided.
    shard: Option<(usize, Steering)>,
}

impl Tcp {
    /// Creates a TCP machine with `config` over pools that hold `transmit_bytes` and `receive_bytes` of
    /// payload.
    pub fn new(config: Config, transmit_bytes: u64, receive_bytes: u64, rng: &mut SecureRng) -> Tcp {
        let (shares, fairness) = (config.memory_shares, config.fairness);
        let limited = |share: Share| {
            let share = if fairness == Fairness::Flow { share.by_flow() } else { share };
            if shares { share } else { share.without_limits() }
        };
        Tcp {
            table: Table::new(rng),
            listeners: Vec::new(),
            next_listener: 0,
            requests: Vec::new(),
            secret: Secret::new(rng),
            challenges: Throttle::default(),
            time_wait_queue: TimeWaitQueue::default(),
            fast_open: FastOpenCache::default(),
            with_out_of_order: Vec::new(),
            opening: Vec::new(),
            tx_queues: Vec::new(),
            timers: TimerWheel::new(),
            retry_at: Instant::NEVER,
            send_share: limited(Share::new(transmit_bytes, config.session_overhead_bytes)),
            receive_share: limited(Share::new(receive_bytes, 0)),
            claims: Claims::default(),
            sweep_at: Instant::NEVER,
            swept_at: Instant::ZERO,
            short_claim: None,
            contest_ends: Instant::NEVER,
            now: Instant::ZERO,
            counters: TcpCounters::default(),
            shard: None,
            config,
        }
    }

    /// Makes this the TCP machine of one shard of a board, which gets the segments of its own flows. Call
    /// this before any connection exists.
    pub fn set_shard(&mut self, number: usize, steering: Steering) {
        self.secret = Secret::with(steering.secret());
        self.shard = Some((number, steering));
    }

    /// Returns whether the segments of a connection reach this shard without being handed on.
    fn is_own_flow(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        self.shard.is_none_or(|(number, steering)| steering.of_flow(local, remote) == number)
    }

    /// Returns whether a segment would find a session or a listener here.
    #[inline]
    pub fn expects(&mut self, local: SocketAddr, remote: SocketAddr) -> bool {
        self.has_connection(local, remote) || find_listener(&mut self.listeners, local).is_some()
    }

    /// Returns the counters.
    pub fn counters(&self) -> &TcpCounters {
        &self.counters
    }

    /// Returns the settings that this board was created with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the number of sessions in any state, TIME-WAIT included.
    pub fn sessions(&self) -> usize {
        self.table.len()
    }

    /// Returns the statistics of one session, or `None` if it does not exist.
    pub fn info(&self, session: SessionId) -> Option<Info> {
        self.table.get(session).map(|session| session.info(&self.config))
    }

    /// Returns the statistics of all sessions.
    pub fn infos(&self) -> impl Iterator<Item = Info> {
        self.table.iter().map(|session| session.info(&self.config))
    }

    // ---- Requests of the host ----

    /// Listens on `local` and returns the listener's number. An unspecified address matches every local
    /// address of its family.
    ///
    /// # Errors
    /// `BadAddress` if the port is zero; `AddressInUse` if another listener has that address and port.
    pub fn listen(&mut self, local: SocketAddr) -> Result<u32, Refusal> {
        self.listen_with(local, true)
    }

    /// Listens on `local` like [`Tcp::listen`]. Without `v6_only` the unspecified IPv6 address also accepts
    /// IPv4 connections (RFC 3493 §5.3).
    ///
    /// # Errors
    /// Same as for [`Tcp::listen`].
    pub fn listen_with(&mut self, local: SocketAddr, v6_only: bool) -> Result<u32, Refusal> {
        self.listen_for(Owner::BOARD, local, v6_only)
    }

    /// Listens on `local` on behalf of `owner`, whose sessions are accounted separately.
    ///
    /// # Errors
    /// Same as for [`Tcp::listen`].
    pub fn listen_for(&mut self, owner: Owner, local: SocketAddr, v6_only: bool) -> Result<u32, Refusal> {
        if local.port() == 0 {
            return Err(Refusal::BadAddress);
        }
        let dual = !v6_only && families::is_any6(local);
        let taken = |listener: &Listener| {
            listener.local == local || families::overlap((listener.local, listener.dual), (local, dual))
        };
        if self.listeners.iter().any(taken) {
            return Err(Refusal::AddressInUse);
        }
        self.next_listener += 1;
        self.listeners.push(Listener {
            number: self.next_listener,
            owner,
            local,
            dual,
            intercepts: false,
            dscp: self.config.dscp,
            half_open_count: 0,
            half_open: VecDeque::new(),
            cookies_until: Instant::ZERO,
            fast_open_pending: 0,
            fast_open_pending_max: self.config.fast_open_pending_max,
            fast_open_resets: VecDeque::new(),
        });
        Ok(self.next_listener)
    }

    /// Closes a listener and returns whether it existed. Its half-open connections are reset (RFC 9293
    /// §3.10.4); established sessions stay.
    pub fn unlisten(&mut self, listener: u32, cx: &mut Context<'_>, out: &mut Outbox) -> bool {
        let before = self.listeners.len();
        self.listeners.retain(|other| other.number != listener);
        self.forget_requests(listener);
        let half_made: Vec<u32> = self
            .table
            .iter()
            .filter(|session| session.listener == Some(listener))
            .map(|session| session.id.index)
            .collect();
        half_made.into_iter().for_each(|index| self.with(index, cx, out, |session, ctx| session.abort(ctx)));
        self.listeners.len() < before
    }

    /// Sets when keep-alive probes are sent, and how long bytes may stay unacknowledged before the session is
    /// aborted. `None` means no probes, and no limit.
    ///
    /// # Errors
    /// `UnknownSession` if the session does not exist.
    pub fn set_timeouts(
        &mut self,
        session: SessionId,
        keep_alive: Option<KeepAlive>,
        user_timeout: Option<Duration>,
    ) -> Result<(), Refusal> {
        self.table.get_mut(session).ok_or(Refusal::UnknownSession)?.set_timeouts(keep_alive, user_timeout);
        self.enqueue_for_tx(session.index);
        Ok(())
    }

    /// Sets which short segments of a session wait, overriding [`Config::nagle`] (RFC 9293 §3.7.4, MUST-17).
    ///
    /// # Errors
    /// `UnknownSession` if the session does not exist.
    pub fn set_nagle(&mut self, session: SessionId, nagle: Nagle) -> Result<(), Refusal> {
        self.table.get_mut(session).ok_or(Refusal::UnknownSession)?.set_nagle(nagle);
        self.enqueue_for_tx(session.index);
        Ok(())
    }

    /// Sets whether a session's acknowledgements are not delayed, until it sends data soon after data has
    /// arrived (Linux: `TCP_QUICKACK`). A pending acknowledgement is sent now.
    ///
    /// # Errors
    /// `UnknownSession` if the session does not exist.
    pub fn set_quick_ack(&mut self, session: SessionId, is_on: bool) -> Result<(), Refusal> {
        self.table.get_mut(session).ok_or(Refusal::UnknownSession)?.set_quick_ack(is_on);
        self.enqueue_for_tx(session.index);
        Ok(())
    }

    /// Sets the DSCP of a session's packets from now on; only the low six bits are used (RFC 9293 §3.9.2, RFC
    /// 2474 §3).
    ///
    /// # Errors
    /// `UnknownSession` if the session does not exist.
    pub fn set_dscp(&mut self, session: SessionId, dscp: u8) -> Result<(), Refusal> {
        self.table.get_mut(session).ok_or(Refusal::UnknownSession)?.set_dscp(dscp);
        Ok(())
    }

    /// Sets how many bytes of a session may be queued and unsent before [`Tcp::room`] is zero (Linux:
    /// `TCP_NOTSENT_LOWAT`); `None` means that only the send buffer limits them.
    ///
    /// # Errors
    /// `UnknownSession` if the session does not exist.
    pub fn set_unsent_bytes_max(
        &mut self,
        session: SessionId,
        most: Option<NonZeroU32>,
    ) -> Result<(), Refusal> {
        self.table.get_mut(session).ok_or(Refusal::UnknownSession)?.set_unsent_bytes_max(most);
        Ok(())
    }

    /// Sets the DSCP of the connections that a listener accepts from now on, from the SYN-ACK on. Returns
    /// whether the listener exists.
    pub fn set_listener_dscp(&mut self, listener: u32, dscp: u8) -> bool {
        let found = numbered(&mut self.listeners, listener);
        found.map(|listener| listener.dscp = dscp).is_some()
    }

    /// Sets the highest rate at which a session's data leaves, bytes per second; `None` means no limit.
    ///
    /// # Errors
    /// `UnknownSession` if the session does not exist.
    pub fn set_pacing_rate_max(
        &mut self,
        session: SessionId,
        rate: Option<NonZeroU64>,
    ) -> Result<(), Refusal> {
        self.table.get_mut(session).ok_or(Refusal::UnknownSession)?.set_pacing_rate_max(rate);
        self.enqueue_for_tx(session.index);
        Ok(())
    }

    /// Opens a session from `local` to `remote`. With local port 0, a free dynamic port is chosen. Its
    /// segments leave through the given TX queue.
    ///
    /// # Errors
    /// `BadAddress` if the families differ, an address is unspecified or multicast, or the remote port is
    /// zero; `AddressInUse` if this connection exists; `TooMany` if no session or no port is free.
    pub fn open(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        tx_queue: usize,
        cx: &mut Context<'_>,
    ) -> Result<SessionId, Refusal> {
        self.open_for(Owner::BOARD, local, remote, tx_queue, cx)
    }

    /// Opens a session like [`Tcp::open`] on behalf of `owner`, whose sessions are accounted separately.
    ///
    /// # Errors
    /// Same as for [`Tcp::open`]; `TooMany` also if `owner` already has its full share of sessions.
    pub fn open_for(
        &mut self,
        owner: Owner,
        local: SocketAddr,
        remote: SocketAddr,
        tx_queue: usize,
        cx: &mut Context<'_>,
    ) -> Result<SessionId, Refusal> {
        // RFC 9293 §3.9.2.3, MUST-46.
        let is_nobody = |address: IpAddr| address.is_unspecified() || address.is_multicast();
        let nowhere = is_nobody(local.ip()) || is_nobody(remote.ip()) || remote.port() == 0;
        if local.is_ipv4() != remote.is_ipv4() || nowhere {
            return Err(Refusal::BadAddress);
        }
        if self.table.len() >= self.config.sessions_max {
            return Err(Refusal::TooMany);
        }
        if !self.may_own_more(owner, remote.ip(), false) {
            self.counters.sessions_limited_by_share += 1;
            return Err(Refusal::TooMany);
        }
        let local = if local.port() == 0 { self.choose_port(local, remote, cx)? } else { local };
        if self.table.find(local, remote).is_some() || !self.may_open_here(local, remote) {
            return Err(Refusal::AddressInUse);
        }
        let beginning = self.secret.initial_numbers(local, remote, cx.now);
        let id = self.begin((local, remote), beginning, (owner, None), tx_queue);
        if self.opening.len() > 2 * self.table.len() + 16 {
            self.forget_opened();
        }
        self.opening.push(id);
        self.enqueue_for_tx(id.index);
        Ok(id)
    }

    /// Returns whether the segments of a connection from a given port can reach this shard. Those that no
    /// other shard expects are handed to shard 0. Where a listener has the port, other shards may have one,
    /// too, and would expect them.
    fn may_open_here(&mut self, local: SocketAddr, remote: SocketAddr) -> bool {
        let is_first = self.shard.is_none_or(|(number, _)| number == 0);
        self.is_own_flow(local, remote) || is_first && find_listener(&mut self.listeners, local).is_none()
    }

    /// Returns whether `owner` may have one more session and, for an incoming connection (`comes`), whether
    /// the peer's address may as well. The limit is seven eighths of the sessions that all others leave. The
    /// board's own services have no limit as an owner.
    pub(in crate::tcp) fn may_own_more(&self, owner: Owner, remote: IpAddr, comes: bool) -> bool {
        if !self.config.memory_shares {
            return true;
        }
        let (of_owner, of_address) = self.claims.sessions_of(owner, remote);
        let admits = |own: usize| {
            let left = self.config.sessions_max - (self.table.len() - own).min(self.config.sessions_max);
            own < left - left / 8
        };
        let by_address = comes && self.config.fairness == Fairness::Address;
        (owner == Owner::BOARD || admits(of_owner)) && (!by_address || admits(of_address))
    }

    /// Returns whether memory, sessions and backlog are shared among peer addresses first, and among sessions
    /// second.
    pub fn shares_by_address(&self) -> bool {
        self.config.memory_shares && self.config.fairness == Fairness::Address
    }

    /// Removes sessions that have left SYN-SENT from the list of opening sessions.
    pub(in crate::tcp) fn forget_opened(&mut self) {
        let table = &self.table;
        self.opening.retain(|id| table.get(*id).is_some_and(|session| session.state == State::SynSent));
    }

    /// Chooses a random dynamic port, or the next free one after it (RFC 6056 §3.3.1). A shard skips the
    /// ports whose segments would arrive at other shards; shard 0 uses them once its own are taken.
    fn choose_port(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        cx: &mut Context<'_>,
    ) -> Result<SocketAddr, Refusal> {
        let count = DYNAMIC_PORTS.len();
        let first = cx.rng.below(count as u64) as usize;
        let candidates = move || {
            (first..first + count)
                .map(move |step| SocketAddr::new(local.ip(), DYNAMIC_PORTS.start() + (step % count) as u16))
        };
        let own = candidates().find(|&candidate| {
            self.is_own_flow(candidate, remote) && self.table.find(candidate, remote).is_none()
        });
        if own.is_some() || self.shard.is_none_or(|(number, _)| number != 0) {
            return own.ok_or(Refusal::TooMany);
        }
        let mut any = candidates();
        let is_free = |&candidate: &SocketAddr| {
            self.table.find(candidate, remote).is_none() && self.may_open_here(candidate, remote)
        };
        any.find(is_free).ok_or(Refusal::TooMany)
    }

    /// Returns how many bytes `session` accepts for writing now.
    pub fn room(&self, session: SessionId) -> usize {
        self.table.get(session).map_or(0, |session| session.room(&self.config, &self.send_share, self.now))
    }

    /// Returns whether a session has bytes queued for a peer that accepts none, so that more memory would not
    /// help its writer yet. Always false without [`Config::memory_shares`].
    pub fn is_window_closed(&self, session: SessionId) -> bool {
        self.config.memory_shares && self.table.get(session).is_some_and(Session::is_window_closed)
    }

    /// Cancels a writer's wait for room; it has been given memory.
    pub fn cancel_wait(&mut self, session: SessionId) {
        if let Some(found) = self.table.get_mut(session) {
            found.writer_waits = false;
        }
    }

    /// Returns whether a session has no bytes queued, so that no acknowledgement will wake its writer. True
    /// if the session does not exist.
    pub fn is_empty(&self, session: SessionId) -> bool {
        self.table.get(session).is_none_or(|session| session.queued() == 0)
    }

    /// Returns whether a session with nothing queued has to wait behind others because its address or owner
    /// has used its share.
    pub fn must_wait_for_share(&self, session: SessionId) -> bool {
        let bound =
            |found: &Session| found.queued() == 0 && found.is_bound_by_claim(&self.config, &self.send_share);
        self.table.get(session).is_some_and(bound)
    }

    /// Returns the number of bytes of transmit memory that are not promised to any session; `u64::MAX`
    /// without [`Config::memory_shares`].
    pub fn free_bytes(&self) -> u64 {
        if self.config.memory_shares { self.send_share.free() } else { u64::MAX }
    }

    /// Returns a number that changes whenever a session releases transmit memory.
    pub fn releases(&self) -> u64 {
        self.send_share.releases()
    }

    /// Appends `slice` to the stream. Always succeeds within [`Tcp::room`].
    ///
    /// # Errors
    /// Returns the slice with `UnknownSession`, `Finished` (the host has finished sending) or `NoRoom`.
    pub fn send(&mut self, session: SessionId, slice: Slice) -> Result<(), (Slice, Refusal)> {
        match self.writer(session) {
            Ok(mut writer) => writer.push(slice).map_err(|slice| (slice, Refusal::NoRoom)),
            Err(refusal) => Err((slice, refusal)),
        }
    }

    /// Returns a writer that appends several slices to the stream; room is checked and charged once for all
    /// of them.
    ///
    /// # Errors
    /// `UnknownSession` if the session does not exist; `Finished` if the host has finished sending.
    pub fn writer(&mut self, session: SessionId) -> Result<Writer<'_>, Refusal> {
        if !self.table.get(session).ok_or(Refusal::UnknownSession)?.takes_data() {
            return Err(Refusal::Finished);
        }
        self.enqueue_for_tx(session.index);
        if self.send_share.free() < self.send_share.capacity() / 2 {
            self.note_shortage(session);
        }
        let found = self.table.get_mut(session).expect("it was found above");
        found.write_cut_short = false;
        Ok(Writer {
            room: found.room(&self.config, &self.send_share, self.now),
            grain: found.grain(&self.config),
            least: found.least(&self.config),
            before: found.queued(),
            session: found,
            share: &mut self.send_share,
        })
    }

    /// Records why a writer is short of memory, and starts looking for sessions that hold memory without
    /// progress.
    #[cold]
    fn note_shortage(&mut self, session: SessionId) {
        let Some(found) = self.table.get(session) else { return };
        if !found.is_short_of_memory(&self.config, &self.send_share, self.now) {
            return;
        }
        if self.send_share.is_newcomer(found.claim) {
            self.send_share.set_contested(true);
            self.contest_ends = self.now + CONTEST;
        }
        let (claim, is_bound) = (found.claim, found.is_bound_by_claim(&self.config, &self.send_share));
        if is_bound {
            self.counters.writes_limited_by_share += 1;
            self.short_claim = Some(claim);
        }
        if is_bound || self.send_share.is_scarce() {
            self.on_short_memory(self.now);
        }
    }

    /// Marks all data queued so far as urgent: segments carry URG until it is acknowledged (RFC 9293 §3.8.5).
    ///
    /// # Errors
    /// `UnknownSession` if the session does not exist; `Finished` if the host has finished sending.
    pub fn send_urgent(&mut self, session: SessionId) -> Result<(), Refusal> {
        let found = self.table.get_mut(session).ok_or(Refusal::UnknownSession)?;
        if !found.takes_data() {
            return Err(Refusal::Finished);
        }
        found.mark_urgent();
        self.enqueue_for_tx(session.index);
        Ok(())
    }

    /// Finishes sending: a FIN follows the queued data.
    ///
    /// # Errors
    /// `UnknownSession` if the session does not exist.
    pub fn finish(&mut self, session: SessionId) -> Result<(), Refusal> {
        self.table.get_mut(session).ok_or(Refusal::UnknownSession)?.finish();
        self.enqueue_for_tx(session.index);
        Ok(())
    }

    /// Closes both directions for the host: a FIN follows the queued data, and any data that still arrives is
    /// answered with RST. In SYN-SENT, and if received data has not been consumed, the session is aborted.
    ///
    /// # Errors
    /// `UnknownSession` if the session does not exist.
    pub fn close(
        &mut self,
        session: SessionId,
        cx: &mut Context<'_>,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        self.with_known(session, cx, out, |found, ctx| found.close(ctx))
    }

    /// Records that the host has consumed `bytes` of received data, which may open the receive window.
    /// Ignored if the session has ended.
    pub fn consume(&mut self, session: SessionId, bytes: u32, cx: &mut Context<'_>, out: &mut Outbox) {
        // The session may have ended; then there is no window to open.
        let _ = self.with_known(session, cx, out, |found, ctx| found.consume(bytes, ctx));
    }

    /// Aborts a session.
    ///
    /// # Errors
    /// `UnknownSession` if the session does not exist.
    pub fn abort(
        &mut self,
        session: SessionId,
        cx: &mut Context<'_>,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        self.with_known(session, cx, out, |found, ctx| found.abort(ctx))
    }

    // ---- Segments from IP ----

    /// Processes a segment that arrived through the port or circuit of a TX queue. The session sends through
    /// that TX queue from now on.
    pub fn arrive(&mut self, segment: Segment, tx_queue: usize, cx: &mut Context<'_>, out: &mut Outbox) {
        let Segment { source, target, traffic_class, mut pdu } = segment;
        self.now = cx.now;
        self.counters.segments_in += 1;
        // Options may still be in the body; the fixed header holds the length of the whole header.
        let header_bytes = match pdu.pull_up(crate::wire::tcp::HEADER_BYTES) {
            Some(moved) => {
                cx.copies.header_bytes += moved as u64;
                usize::from(pdu.head()[12] >> 4) * 4
            }
            None => {
                self.counters.malformed += 1;
                return;
            }
        };
        let Some(moved) = pdu.pull_up(header_bytes) else {
            self.counters.malformed += 1;
            return;
        };
        cx.copies.header_bytes += moved as u64;
        let length = pdu.head().len() + pdu.body_len();
        let pseudo: Sum = checksum::pseudo(source, target, protocol::TCP, length);
        let head = pdu.head();
        let rest = pdu.body_sum().at(head.len());
        if !pdu.is_verified() && !pseudo.plus(checksum::of_header(head)).plus(rest).is_intact() {
            self.counters.checksum_errors += 1;
            return;
        }
        let header = match Header::read(pdu.head()) {
            Ok((header, bytes)) => {
                pdu.pull_head(bytes);
                header
            }
            Err(_) => {
                self.counters.malformed += 1;
                return;
            }
        };
        if !pdu.head().is_empty() && !lower_into_body(&mut pdu, cx) {
            // There is no page for the payload in the head: drop the segment; the peer will retransmit it.
            self.counters.no_memory += 1;
            return;
        }
        let (local, remote) =
            (SocketAddr::new(target, header.target_port), SocketAddr::new(source, header.source_port));
        let mut found = self.table.find(local, remote);
        let least = found.and_then(|index| self.reuse_time_wait(index, &header, cx, out));
        if least.is_some() {
            found = None;
        }
        match found {
            Some(index) => {
                let early = self.counters.out_of_order;
                self.with(index, cx, out, |session, ctx| {
                    session.tx_queue = tx_queue;
                    session.received_traffic_class = traffic_class;
                    session.on_segment(&header, pdu, ctx);
                });
                if self.counters.out_of_order > early {
                    self.note_out_of_order(index);
                    if is_scarce(cx) {
                        self.drop_out_of_order();
                    }
                }
            }
            None => self.on_unmatched((local, remote), &header, pdu, (tx_queue, least), cx, out),
        }
    }

    /// Records that a session may hold out-of-order data, so that freeing it under memory pressure need not
    /// visit all sessions.
    fn note_out_of_order(&mut self, index: u32) {
        let Some(session) = self.table.at(index) else { return };
        if session.out_of_order_listed || !session.has_out_of_order() {
            return;
        }
        session.out_of_order_listed = true;
        self.with_out_of_order.push(session.id);
        if self.with_out_of_order.len() > 2 * self.table.len() + 16 {
            let table = &self.table;
            self.with_out_of_order.retain(|id| table.get(*id).is_some());
        }
    }

    /// Frees the out-of-order data of all sessions, because data that can be delivered takes precedence when
    /// memory is short.
    fn drop_out_of_order(&mut self) {
        for id in self.with_out_of_order.drain(..) {
            if let Some(session) = self.table.get_mut(id) {
                session.drop_out_of_order(&mut self.counters);
            }
        }
    }

    /// Creates a session for a 4-tuple and counts it for its claim.
    pub(in crate::tcp) fn begin(
        &mut self,
        (local, remote): (SocketAddr, SocketAddr),
        beginning: InitialNumbers,
        (owner, listener): (Owner, Option<u32>),
        tx_queue: usize,
    ) -> SessionId {
        let claim = self.claims.begin(owner, remote.ip());
        self.receive_share.set_sessions(claim.owner, self.claims.sessions(claim.owner));
        let config = &self.config;
        let make = |id| Session::new(id, local, remote, beginning, listener, config);
        let id = self.table.insert(local, remote, make);
        if let Some(session) = self.table.get_mut(id) {
            session.tx_queue = tx_queue;
            session.claim = claim;
            if let Some(by) = listener.and_then(|number| numbered(&mut self.listeners, number)) {
                session.set_dscp(by.dscp);
            }
        }
        if listener.is_some() {
            self.claims.set_half_open(claim, true);
        }
        id
    }

    // ---- Settle and timers ----

    /// Ends a burst: fires due timers and lets the queued sessions send, at most `rooms[n]` segments through
    /// TX queue `n`. Call it after each burst and at [`Tcp::deadline`].
    pub fn settle(&mut self, rooms: &[usize], cx: &mut Context<'_>, out: &mut Outbox) {
        self.now = cx.now;
        self.send_share.set_period(period_of(cx.now));
        let pages = &mut cx.memory.receive;
        let (left, all) = (pages.available() as u64, pages.capacity() as u64);
        self.receive_share.set_unused(self.receive_share.capacity() * left / all.max(1));
        let probes = self.counters.zero_window_probes;
        while let Some((moment, index)) = self.timers.pop_expired(cx.now) {
            let Some(session) = self.table.at(index) else { continue };
            if session.timer.take_if_current(moment) {
                self.with(index, cx, out, |session, ctx| session.on_time(ctx));
            }
        }
        if self.counters.zero_window_probes > probes && cx.memory.transmit.available() == 0 {
            self.on_short_memory(cx.now);
        }
        self.relieve(cx, out);
        if self.contest_ends <= cx.now {
            self.send_share.set_contested(false);
            self.contest_ends = Instant::NEVER;
        }
        self.retry_at = Instant::NEVER;
        for tx_queue in 0..self.tx_queues.len() {
            let room = rooms.get(tx_queue).copied().unwrap_or(0);
            if !self.settle_tx_queue(tx_queue, room, cx, out) {
                self.counters.no_memory += 1;
                self.retry_at = cx.now + STARVED_RETRY;
                return;
            }
        }
    }

    /// Serves the sessions waiting for one TX queue. Returns false if PDU memory ran out.
    fn settle_tx_queue(
        &mut self,
        tx_queue: usize,
        room: usize,
        cx: &mut Context<'_>,
        out: &mut Outbox,
    ) -> bool {
        let full = out.down.len().saturating_add(room);
        let most = if self.config.segment_bytes_max > self.config.mss.into() { 1 } else { QUANTUM };
        while out.down.len() < full {
            let Some(id) = self.tx_queues[tx_queue].pop_front() else { return true };
            let Some(session) = self.table.get_mut(id) else { continue };
            if session.deadline() <= cx.now {
                // The deadline passed while the TX queue had no room.
                self.with(id.index, cx, out, |session, ctx| session.on_time(ctx));
            }
            let Some(session) = self.table.get_mut(id) else { continue };
            let room = full - out.down.len();
            let quantum = if self.tx_queues[tx_queue].is_empty() { room } else { most.min(room) };
            let mut ctx = SessionContext {
                config: &self.config,
                cx,
                up: &mut out.up,
                down: &mut out.down,
                receive_share: &mut self.receive_share,
                send_share: &mut self.send_share,
                challenges: &mut self.challenges,
                fast_open: &mut self.fast_open,
                counters: &mut self.counters,
            };
            match session.output(quantum, &mut ctx) {
                Progress::Done => {
                    session.in_tx_queue = false;
                    let deadline = session.deadline();
                    self.timers.set(&mut session.timer, id.index, deadline);
                }
                Progress::More => self.tx_queues[tx_queue].push_back(id),
                Progress::Starved => {
                    // The session keeps its turn, because it has waited longest.
                    self.tx_queues[tx_queue].push_front(id);
                    return false;
                }
            }
        }
        true
    }

    /// Returns whether sessions wait for a TX queue: it had no room, or a burst has not been settled.
    pub fn has_work(&self, tx_queue: usize) -> bool {
        self.tx_queues.get(tx_queue).is_some_and(|line| !line.is_empty())
    }

    /// Returns when [`Tcp::settle`] is next due, or [`Instant::NEVER`] if no timer runs. The time may be
    /// early, but is never late.
    pub fn deadline(&self) -> Instant {
        self.timers.next_deadline().min(self.retry_at).min(self.sweep_at)
    }

    pub(in crate::tcp) fn enqueue_for_tx(&mut self, index: u32) {
        if let Some(session) = self.table.at(index)
            && !session.in_tx_queue
        {
            session.in_tx_queue = true;
            if self.tx_queues.len() <= session.tx_queue {
                self.tx_queues.resize_with(session.tx_queue + 1, VecDeque::new);
            }
            self.tx_queues[session.tx_queue].push_back(session.id);
        }
    }

    /// Runs `work` on the session with this id.
    ///
    /// # Errors
    /// `UnknownSession` if the session does not exist.
    pub(in crate::tcp) fn with_known(
        &mut self,
        session: SessionId,
        cx: &mut Context<'_>,
        out: &mut Outbox,
        work: impl FnOnce(&mut Session, &mut SessionContext<'_, '_>),
    ) -> Result<(), Refusal> {
        self.table.get(session).ok_or(Refusal::UnknownSession)?;
        self.with(session.index, cx, out, work);
        Ok(())
    }

    /// Runs `work` on a session, then updates listeners, claims, the table, the TX queue and TIME-WAIT
    /// accordingly.
    pub(in crate::tcp) fn with(
        &mut self,
        index: u32,
        cx: &mut Context<'_>,
        out: &mut Outbox,
        work: impl FnOnce(&mut Session, &mut SessionContext<'_, '_>),
    ) {
        let Some(session) = self.table.at(index) else { return };
        let (waiting, was_time_wait) = (session.listener, session.state == State::TimeWait);
        let was_fast_open = session.fast_open_listener();
        let mut ctx = SessionContext {
            config: &self.config,
            cx,
            up: &mut out.up,
            down: &mut out.down,
            receive_share: &mut self.receive_share,
            send_share: &mut self.send_share,
            challenges: &mut self.challenges,
            fast_open: &mut self.fast_open,
            counters: &mut self.counters,
        };
        work(session, &mut ctx);
        let (id, closed, claim) = (session.id, session.state == State::Closed, session.claim);
        let enters_time_wait = session.state == State::TimeWait && !was_time_wait;
        if let Some(number) = waiting
            && (closed || session.listener.is_none())
            && let Some(listener) = numbered(&mut self.listeners, number)
        {
            listener.half_open_count -= 1;
        }
        let fast_open = session.fast_open_listener().filter(|_| !closed);
        let fast_open_reset = session.fast_open_reset();
        if waiting.is_some() && (closed || session.listener.is_none()) {
            self.claims.set_half_open(claim, false);
        }
        if closed {
            self.table.remove(index);
            self.claims.end(claim);
            self.receive_share.set_sessions(claim.owner, self.claims.sessions(claim.owner));
        } else if !session.in_tx_queue {
            self.enqueue_for_tx(index);
        }
        if was_fast_open != fast_open {
            self.count_fast_open(was_fast_open, fast_open);
            self.keep_fast_open_reset(fast_open_reset, cx.now);
        }
        if enters_time_wait {
            self.on_time_wait(id, cx, out);
        }
    }
}

/// Returns whether less than an eighth of the receive pages is free.
fn is_scarce(cx: &mut Context<'_>) -> bool {
    cx.memory.receive.available() * 8 < cx.memory.receive.capacity()
}

/// Moves payload from the head (a short segment) into a page of its own, so that the body holds all of it.
/// Returns false if no page is free.
fn lower_into_body(pdu: &mut Pdu, cx: &mut Context<'_>) -> bool {
    let count = pdu.head().len();
    let Some(mut page) = cx.memory.receive.take() else { return false };
    let Some(slice) = page.append(pdu.head()) else { return false };
    cx.copies.gather_bytes += count as u64;
    pdu.pull_head(count);
    pdu.push_front_body(slice).is_ok()
}
