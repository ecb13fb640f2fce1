//! TCP: streams over packets (RFC 9293).
//!
//! Goal      right, and fast in the common case: in order, nothing lost, segments of up to 64 KB in one piece.
//! Down      the host opens, listens, hands over slices, finishes, aborts, consumes. Each call changes a session and
//!           puts it in *line*; nothing is sent yet.
//! Up        a segment is checked, its session found by hash, and told. What concerns the host goes up as an
//!           [`Indication`]; what the peer is owed is remembered.
//! Lanes     sessions stand in the line of their *lane*, the way on which their segments leave: a port or a circuit. A lane
//!           without room holds back its own sessions alone.
//! Settle    when a burst is over, every session in line sends what it may and pays one acknowledgement. The line is
//!           served in turns of a few segments, so that many sessions share a port evenly; it waits when the port has
//!           no room.
//! Memory    windows and send buffers are shares of what memory there is: see `share`.
//! Time      one alarm a session, see [`kiban_ground::Alarms`].
//! Limits    sessions, backlog, buffers and early pieces have bounds in [`Config`] and `receive`.
//! Left out  ECN, Fast Open, Multipath TCP; `docs/tcp.md` has every clause with its state.

mod claims;
mod config;
mod congestion;
mod cookie;
mod counters;
mod cubic;
mod icmp;
mod pressure;
mod profile;
mod rack;
mod receive;
mod resting;
mod rtt;
mod scoreboard;
mod secret;
mod send;
mod session;
mod share;
mod stamps;
mod state;
mod stranger;
mod table;
#[cfg(test)]
mod tests;
mod throttle;

pub use claims::Owner;
pub use config::{AckUnit, Config, Fairness, LossDetection, Nagle, Offer};
pub use congestion::CongestionControl;
pub use cookie::SynCookies;
pub use counters::TcpCounters;
pub use icmp::Trouble;
pub use profile::PROFILES;
pub use state::State;

use crate::families;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use claims::{Claim, Claims};
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use kiban_ground::{Alarms, Context, Instant, Pdu, SecureRng, Slice, Sum};
use kiban_wire::checksum;
use kiban_wire::numbers::protocol;
use kiban_wire::tcp::Header;
use resting::Resting;
use secret::{Beginning, Secret};
use session::{Desk, Progress, Session};
use share::Share;
use stranger::Listener;
use table::Table;
use throttle::Throttle;

/// Segments that one session sends before the next one in line has its turn, of those that go whole one; alone, it goes on.
const QUANTUM: usize = 2;
/// When memory for PDUs ran out and nothing else wakes the board, it looks again after so long.
const STARVED_RETRY: Duration = Duration::from_millis(1);
/// How long an address that found less memory than it wants is taken to want some.
const CONTEST: Duration = Duration::from_secs(5);
/// Ports that are chosen when the host names none (RFC 6335 §6: the dynamic ports).
const DYNAMIC_PORTS: core::ops::RangeInclusive<u16> = 49_152..=65_535;

/// The number of a session. It carries a generation: the number of a session that has gone names nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct SessionId {
    index: u32,
    generation: u32,
}

impl SessionId {
    /// A small number, unique among live sessions, for tables of the caller's own.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// Why a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Both sides finished.
    Closed,
    /// The peer would not open it.
    Refused,
    /// The peer reset it.
    Reset,
    /// The peer was silent for too long.
    TimedOut,
    /// Nobody answers on the way to the peer: it could not be opened.
    Unreachable,
    /// The host gave it up.
    Aborted,
}

/// Why a request of the host was refused. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No such session: never made, or gone.
    UnknownSession,
    /// The host has finished sending on this session.
    Finished,
    /// More bytes than there is room for.
    NoRoom,
    /// Somebody listens on that address and port already, or the same connection exists.
    AddressInUse,
    /// The two addresses are not of one family, one is of nobody, or a port is zero where one is needed.
    BadAddress,
    /// All session numbers or all dynamic ports are in use.
    TooMany,
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Refusal::UnknownSession => "no such session: it was never opened, or it has ended",
            Refusal::Finished => "the session was finished for sending: nothing more can be written",
            Refusal::NoRoom => "more bytes than the session has room for: wait until it is writable",
            Refusal::AddressInUse => "that address and port are in use: choose another port",
            Refusal::BadAddress => "the address cannot be used: give two addresses of one family and a port",
            Refusal::TooMany => "no session number or port is free: close sessions first",
        })
    }
}

impl core::error::Error for Refusal {}

/// What comes up to the host's edge.
#[derive(Debug)]
pub enum Indication {
    /// A session that the host opened is established.
    Opened {
        /// Its number.
        session: SessionId,
    },
    /// A listener's session is established.
    Accepted {
        /// Its number.
        session: SessionId,
        /// The listener that took it.
        listener: u32,
        /// The peer.
        remote: SocketAddr,
    },
    /// The next bytes of the stream: the PDU's body.
    Data {
        /// Whose.
        session: SessionId,
        /// The body is the payload; head and tail mean nothing any more.
        pdu: Pdu,
    },
    /// The next bytes of the stream, which had waited behind a hole.
    Piece {
        /// Whose.
        session: SessionId,
        /// The payload.
        slice: Slice,
    },
    /// So many bytes of the stream have been acknowledged: there is room again.
    Sent {
        /// Whose.
        session: SessionId,
        /// Bytes.
        bytes: u32,
    },
    /// The peer has marked bytes as urgent: the mark stands so many bytes ahead of what has come up (RFC 9293 §3.8.5).
    /// They come up in line, like all others.
    Urgent {
        /// Whose.
        session: SessionId,
        /// Bytes from the next one up to the last urgent one, both counted.
        bytes: u32,
    },
    /// Bytes were sent so often in vain that the way between the two is in doubt (RFC 9293 §3.8.3, R1): for IP, not for the
    /// host.
    Doubtful {
        /// Our address.
        source: IpAddr,
        /// The peer's.
        target: IpAddr,
    },
    /// The peer sends no more.
    Finished {
        /// Which session.
        session: SessionId,
    },
    /// The session is over; its number is soon to be forgotten.
    Gone {
        /// Which session.
        session: SessionId,
        /// Why.
        reason: Reason,
    },
}

/// A segment on its way to or from IP: the TCP header stands at the front of the PDU's head.
#[derive(Debug)]
pub struct Segment {
    /// The address it comes from.
    pub source: IpAddr,
    /// The address it goes to.
    pub target: IpAddr,
    /// DSCP and ECN of its packet (RFC 2474 §3).
    pub traffic_class: u8,
    /// Header and payload.
    pub pdu: Pdu,
}

/// What may be known about a session.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Where it stands.
    pub state: State,
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// Largest payload of a segment that we send, bytes.
    pub mss: u32,
    /// The smoothed round trip; zero before the first sample.
    pub round_trip: Duration,
    /// How much round trips vary (RFC 6298 §2).
    pub round_trip_variation: Duration,
    /// The least round trip of the last minutes; zero before the first sample.
    pub least_round_trip: Duration,
    /// The congestion window, bytes.
    pub congestion_window_bytes: u32,
    /// The retransmission timeout, backed off as it is (RFC 6298 §5).
    pub retransmission_timeout: Duration,
    /// Where slow start ends, bytes; none before the first loss.
    pub slow_start_threshold_bytes: Option<u32>,
    /// Payload bytes sent again.
    pub retransmitted_bytes: u64,
    /// The window that the peer offers, bytes.
    pub send_window_bytes: u32,
    /// Bytes sent and not acknowledged.
    pub outstanding_bytes: u32,
    /// Bytes that the host has handed over and the peer has not acknowledged.
    pub queued_bytes: u32,
    /// How many the host may hand over in all, bytes.
    pub send_buffer_bytes: u32,
    /// Whether segments carry timestamps (RFC 7323).
    pub timestamps: bool,
    /// Whether acknowledgements tell of holes (RFC 2018).
    pub sack: bool,
    /// The codepoint of what is sent (RFC 2474 §3).
    pub dscp: u8,
    /// DSCP and ECN of the packet that came last.
    pub heard_traffic_class: u8,
    /// The shifts of the peer's windows and of ours (RFC 7323 §2).
    pub window_shifts: (u8, u8),
    /// The last ICMP error that was believed and did not end the session (RFC 5927).
    pub trouble: Option<Trouble>,
    /// Segments that arrived for this session.
    pub segments_in: u64,
    /// Segments that it handed down.
    pub segments_out: u64,
    /// Payload bytes accepted in order.
    pub bytes_in: u64,
    /// Payload bytes that the peer has acknowledged.
    pub bytes_acknowledged: u64,
    /// Segments that arrived ahead of a hole.
    pub early_segments: u32,
    /// Segments of which every byte had arrived before.
    pub repeated_segments: u32,
    /// Reports of the peer that bytes came twice (RFC 2883).
    pub duplicate_sacks: u32,
    /// The longest segment of the peer, bytes.
    pub peer_segment_bytes: u32,
    /// The window that the peer was last offered, less what has come since, bytes.
    pub receive_window_bytes: u32,
    /// What may be held and offered in all, bytes, if memory allows.
    pub receive_buffer_bytes: u32,
    spent: session::Spent,
    /// For how long bytes waited for their acknowledgement, up to the last change: [`Info::until`] counts on.
    pub busy: Duration,
    /// Of this, because the peer's window admitted no more.
    pub window_limited: Duration,
    /// Of this, because the send buffer took no more from the host.
    pub buffer_limited: Duration,
    /// When data last left.
    pub data_sent_at: Instant,
    /// When payload last came.
    pub data_received_at: Instant,
    /// When the peer was last heard.
    pub heard_at: Instant,
}

/// TCP for one board.
pub struct Tcp {
    config: Config,
    table: Table,
    listeners: Vec<Listener>,
    next_listener: u32,
    secret: Secret,
    challenges: Throttle,
    resting: Resting,
    /// Sessions in which something waits, or waited, behind a hole.
    with_early: Vec<SessionId>,
    /// Sessions that the host opened and that are not open, or were not.
    opening: Vec<SessionId>,
    lines: Vec<VecDeque<SessionId>>,
    alarms: Alarms,
    retry_at: Instant,
    send_share: Share,
    receive_share: Share,
    claims: Claims,
    /// When sessions that keep memory from others are looked for, and when they were.
    sweep_at: Instant,
    swept_at: Instant,
    /// Whose share was used up, if that is why.
    short_claim: Option<Claim>,
    /// Until when an address that found no memory is taken to want some.
    contest_ends: Instant,
    /// The moment of the last call that knew it.
    now: Instant,
    counters: TcpCounters,
}

impl Tcp {
    /// TCP with `config` over pools that hold `transmit_bytes` and `receive_bytes` of payload.
    pub fn new(config: Config, transmit_bytes: u64, receive_bytes: u64, rng: &mut SecureRng) -> Tcp {
        let (shares, fairness) = (config.shares, config.fairness);
        let limited = |share: Share| {
            let share = if fairness == Fairness::Flow { share.by_flow() } else { share };
            if shares { share } else { share.without_limits() }
        };
        Tcp {
            table: Table::new(rng),
            listeners: Vec::new(),
            next_listener: 0,
            secret: Secret::new(rng),
            challenges: Throttle::default(),
            resting: Resting::default(),
            with_early: Vec::new(),
            opening: Vec::new(),
            lines: Vec::new(),
            alarms: Alarms::new(),
            retry_at: Instant::NEVER,
            send_share: limited(Share::new(transmit_bytes, config.holder_bytes)),
            receive_share: limited(Share::new(receive_bytes, 0)),
            claims: Claims::default(),
            sweep_at: Instant::NEVER,
            swept_at: Instant::ZERO,
            short_claim: None,
            contest_ends: Instant::NEVER,
            now: Instant::ZERO,
            counters: TcpCounters::default(),
            config,
        }
    }

    /// What has been counted.
    pub fn counters(&self) -> &TcpCounters {
        &self.counters
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Sessions of any state.
    pub fn sessions(&self) -> usize {
        self.table.len()
    }

    /// What is known about a session.
    pub fn info(&self, session: SessionId) -> Option<Info> {
        self.table.get(session).map(|session| session.info(&self.config))
    }

    /// What is known about all sessions.
    pub fn infos(&self) -> impl Iterator<Item = Info> {
        self.table.iter().map(|session| session.info(&self.config))
    }

    // ---- Down -------------------------------------------------------------------------------------------------

    /// Listens on `local`; an unspecified address stands for every address of its family. The listener's number.
    pub fn listen(&mut self, local: SocketAddr) -> Result<u32, Refusal> {
        self.listen_with(local, true)
    }

    /// The same; without `v6_only` the unspecified IPv6 address stands for IPv4 addresses, too (RFC 3493 §5.3).
    pub fn listen_with(&mut self, local: SocketAddr, v6_only: bool) -> Result<u32, Refusal> {
        self.listen_for(Owner::BOARD, local, v6_only)
    }

    /// The same for somebody whose sessions count for themselves.
    pub fn listen_for(&mut self, owner: Owner, local: SocketAddr, v6_only: bool) -> Result<u32, Refusal> {
        if local.port() == 0 {
            return Err(Refusal::BadAddress);
        }
        let dual = !v6_only && families::is_any6(local);
        let taken = |listener: &Listener| {
            listener.local == local || families::share((listener.local, listener.dual), (local, dual))
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
            waiting: 0,
            half_open: VecDeque::new(),
            cookies_until: Instant::ZERO,
        });
        Ok(self.next_listener)
    }

    /// Listens no more; sessions that it made stay, those half made are reset (RFC 9293 §3.10.4). Whether there was
    /// such a listener.
    pub fn unlisten(&mut self, listener: u32, cx: &mut Context<'_>, out: &mut Outbox) -> bool {
        let before = self.listeners.len();
        self.listeners.retain(|other| other.number != listener);
        let half_made: Vec<u32> = self
            .table
            .iter()
            .filter(|session| session.listener == Some(listener))
            .map(|session| session.id.index)
            .collect();
        half_made
            .into_iter()
            .for_each(|index| self.with(index, cx, out, |session, desk| session.abort(desk)));
        self.listeners.len() < before
    }

    /// How patient a session is: after so much silence the peer is asked whether it lives, and for so long bytes may wait
    /// for their acknowledgement; none: for ever.
    pub fn set_patience(
        &mut self,
        session: SessionId,
        keep_alive: Option<Duration>,
        user_timeout: Option<Duration>,
    ) -> Result<(), Refusal> {
        self.table.get_mut(session).ok_or(Refusal::UnknownSession)?.set_patience(keep_alive, user_timeout);
        self.put_in_line(session.index);
        Ok(())
    }

    /// Which short segments of a session wait, whatever the settings say (RFC 9293 §3.7.4, MUST-17).
    pub fn set_nagle(&mut self, session: SessionId, nagle: Nagle) -> Result<(), Refusal> {
        self.table.get_mut(session).ok_or(Refusal::UnknownSession)?.set_nagle(nagle);
        self.put_in_line(session.index);
        Ok(())
    }

    /// The codepoint of a session's packets from now on: six bits, more are left out (RFC 9293 §3.9.2, RFC 2474 §3).
    pub fn set_dscp(&mut self, session: SessionId, dscp: u8) -> Result<(), Refusal> {
        self.table.get_mut(session).ok_or(Refusal::UnknownSession)?.set_dscp(dscp);
        Ok(())
    }

    /// Opens a session from `local` (port 0: one is chosen) to `remote`, whose segments leave on `lane`.
    pub fn open(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        lane: usize,
        cx: &mut Context<'_>,
    ) -> Result<SessionId, Refusal> {
        self.open_for(Owner::BOARD, local, remote, lane, cx)
    }

    /// The same for somebody whose sessions count for themselves.
    pub fn open_for(
        &mut self,
        owner: Owner,
        local: SocketAddr,
        remote: SocketAddr,
        lane: usize,
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
            self.counters.sessions_limited_by_address += 1;
            return Err(Refusal::TooMany);
        }
        let local = if local.port() == 0 { self.choose_port(local, remote, cx)? } else { local };
        if self.table.find(local, remote).is_some() {
            return Err(Refusal::AddressInUse);
        }
        let beginning = self.secret.beginning(local, remote, cx.now);
        let id = self.begin((local, remote), beginning, (owner, None), lane);
        if self.opening.len() > 2 * self.table.len() + 16 {
            self.forget_opened();
        }
        self.opening.push(id);
        self.put_in_line(id.index);
        Ok(id)
    }

    /// Whether an owner, and for connections that `comes` from there a peer's address, may have one more session: all but an eighth
    /// of what others leave. The board's own services open as many as there are.
    fn may_own_more(&self, owner: Owner, remote: IpAddr, comes: bool) -> bool {
        if !self.config.shares {
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

    /// Who is open, or gone, opens no more.
    fn forget_opened(&mut self) {
        let table = &self.table;
        self.opening.retain(|id| table.get(*id).is_some_and(|session| session.state == State::SynSent));
    }

    /// Chooses a port at random, or the next one after it that is free (RFC 6056 §3.3.1).
    fn choose_port(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        cx: &mut Context<'_>,
    ) -> Result<SocketAddr, Refusal> {
        let count = DYNAMIC_PORTS.len();
        let first = cx.rng.below(count as u64) as usize;
        for step in first..first + count {
            let candidate = SocketAddr::new(local.ip(), DYNAMIC_PORTS.start() + (step % count) as u16);
            if self.table.find(candidate, remote).is_none() {
                return Ok(candidate);
            }
        }
        Err(Refusal::TooMany)
    }

    /// Bytes that `session` takes now.
    pub fn room(&self, session: SessionId) -> usize {
        self.table.get(session).map_or(0, |session| session.room(&self.config, &self.send_share, self.now))
    }

    /// Whether a session has bytes, and a peer that takes none: its writer needs no memory before the peer has taken some. Without
    /// shares nobody looks.
    pub fn is_shut_out(&self, session: SessionId) -> bool {
        self.config.shares && self.table.get(session).is_some_and(Session::is_shut_out)
    }

    /// Whether a writer that was refused for want of room may try again.
    pub fn wakes_writer(&self, session: SessionId) -> bool {
        self.table
            .get(session)
            .is_some_and(|session| session.wakes_writer(&self.config, &self.send_share, self.now))
    }

    /// Whether nothing of a session is under way: no acknowledgement will wake its writer.
    pub fn is_empty(&self, session: SessionId) -> bool {
        self.table.get(session).is_none_or(|session| session.queued() == 0)
    }

    /// Whether a session that holds nothing is to wait behind others because its address, or its owner, has its share.
    pub fn yields(&self, session: SessionId) -> bool {
        let bound =
            |found: &Session| found.queued() == 0 && found.is_bound_by_claim(&self.config, &self.send_share);
        self.table.get(session).is_some_and(bound)
    }

    /// Bytes of transmit memory that are promised to nobody; without shares nobody counts them.
    pub fn free_bytes(&self) -> u64 {
        if self.config.shares { self.send_share.free() } else { u64::MAX }
    }

    /// A number that changes whenever some session comes to hold less for sending.
    pub fn releases(&self) -> u64 {
        self.send_share.releases()
    }

    /// Appends to the stream. Within [`Tcp::room`] it is never refused.
    pub fn send(&mut self, session: SessionId, slice: Slice) -> Result<(), (Slice, Refusal)> {
        match self.writer(session) {
            Ok(mut writer) => writer.push(slice).map_err(|slice| (slice, Refusal::NoRoom)),
            Err(refusal) => Err((slice, refusal)),
        }
    }

    /// The end of a stream, to append a run of slices to: its room is asked for and charged once.
    pub fn writer(&mut self, session: SessionId) -> Result<Writer<'_>, Refusal> {
        if !self.table.get(session).ok_or(Refusal::UnknownSession)?.takes_data() {
            return Err(Refusal::Finished);
        }
        self.put_in_line(session.index);
        if self.send_share.free() < self.send_share.capacity() / 2 {
            self.note_shortage(session);
        }
        let found = self.table.get_mut(session).expect("it was found above");
        Ok(Writer {
            room: found.room(&self.config, &self.send_share, self.now),
            grain: found.grain(&self.config),
            least: found.least(&self.config),
            before: found.queued(),
            session: found,
            share: &mut self.send_share,
        })
    }

    /// Somebody writes who may be short of memory: why is counted, and who keeps it is looked for.
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
            self.counters.memory_limited_by_address += 1;
            self.short_claim = Some(claim);
        }
        if is_bound || self.send_share.is_scarce() {
            self.on_short_memory(self.now);
        }
    }

    /// Everything that was handed over is urgent: segments say so until it is acknowledged (RFC 9293 §3.8.5).
    pub fn send_urgent(&mut self, session: SessionId) -> Result<(), Refusal> {
        let found = self.table.get_mut(session).ok_or(Refusal::UnknownSession)?;
        if !found.takes_data() {
            return Err(Refusal::Finished);
        }
        found.mark_urgent();
        self.put_in_line(session.index);
        Ok(())
    }

    /// The host sends no more: FIN follows what is queued.
    pub fn finish(&mut self, session: SessionId) -> Result<(), Refusal> {
        self.table.get_mut(session).ok_or(Refusal::UnknownSession)?.finish();
        self.put_in_line(session.index);
        Ok(())
    }

    /// The host sends no more and reads no more: what still comes is answered with a reset.
    pub fn close(
        &mut self,
        session: SessionId,
        cx: &mut Context<'_>,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        self.with_known(session, cx, out, |found, desk| found.leave(desk))
    }

    /// The host has taken `bytes` of what came up: the window may open.
    pub fn consume(&mut self, session: SessionId, bytes: u32, cx: &mut Context<'_>, out: &mut Outbox) {
        // What is left of a session that has gone has no window to open.
        let _ = self.with_known(session, cx, out, |found, desk| found.consume(bytes, desk));
    }

    /// Ends a session at once.
    pub fn abort(
        &mut self,
        session: SessionId,
        cx: &mut Context<'_>,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        self.with_known(session, cx, out, |found, desk| found.abort(desk))
    }

    // ---- Up ---------------------------------------------------------------------------------------------------

    /// A segment has arrived on `lane`; answers leave there too.
    pub fn arrive(&mut self, segment: Segment, lane: usize, cx: &mut Context<'_>, out: &mut Outbox) {
        let Segment { source, target, traffic_class, mut pdu } = segment;
        self.now = cx.now;
        self.counters.segments_in += 1;
        // Options may stand in the body; the fixed header says how long the whole is.
        let header_bytes = match pdu.pull_up(kiban_wire::tcp::HEADER_BYTES) {
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
            self.counters.checksum_wrong += 1;
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
            // No page for payload that came in the head: the peer will send it again.
            self.counters.starved += 1;
            return;
        }
        let (local, remote) =
            (SocketAddr::new(target, header.target_port), SocketAddr::new(source, header.source_port));
        let mut found = self.table.find(local, remote);
        let least = found.and_then(|index| self.take_name(index, &header, cx, out));
        if least.is_some() {
            found = None;
        }
        match found {
            Some(index) => {
                let early = self.counters.out_of_order;
                self.with(index, cx, out, |session, desk| {
                    session.lane = lane;
                    session.heard_class = traffic_class;
                    session.on_segment(&header, pdu, desk);
                });
                if self.counters.out_of_order > early {
                    self.note_early(index);
                    if is_scarce(cx) {
                        self.give_up_early();
                    }
                }
            }
            None => self.on_stranger((local, remote), &header, pdu, (lane, least), cx, out),
        }
    }

    /// Something may wait behind a hole of this session: so that nobody need look at all of them.
    fn note_early(&mut self, index: u32) {
        let Some(session) = self.table.at(index) else { return };
        if session.early_listed || !session.has_early() {
            return;
        }
        session.early_listed = true;
        self.with_early.push(session.id);
        if self.with_early.len() > 2 * self.table.len() + 16 {
            let table = &self.table;
            self.with_early.retain(|id| table.get(*id).is_some());
        }
    }

    /// Memory is for what can be used: what waits behind holes goes first, whoever holds it.
    fn give_up_early(&mut self) {
        for id in self.with_early.drain(..) {
            if let Some(session) = self.table.get_mut(id) {
                session.give_up_early(&mut self.counters);
            }
        }
    }

    /// A session of its own name.
    fn begin(
        &mut self,
        (local, remote): (SocketAddr, SocketAddr),
        beginning: Beginning,
        (owner, listener): (Owner, Option<u32>),
        lane: usize,
    ) -> SessionId {
        let claim = self.claims.begin(owner, remote.ip());
        self.receive_share.set_sessions(claim.owner, self.claims.sessions(claim.owner));
        let config = &self.config;
        let make = |id| Session::new(id, local, remote, beginning, listener, config);
        let id = self.table.insert(local, remote, make);
        if let Some(session) = self.table.get_mut(id) {
            session.lane = lane;
            session.claim = claim;
        }
        if listener.is_some() {
            self.claims.set_half_open(claim, true);
        }
        id
    }

    // ---- Settle and time --------------------------------------------------------------------------------------

    /// The burst is over or a deadline is reached: sessions in line send, `rooms[lane]` segments of a lane at the most.
    pub fn settle(&mut self, rooms: &[usize], cx: &mut Context<'_>, out: &mut Outbox) {
        self.now = cx.now;
        let pages = &mut cx.memory.receive;
        let (left, all) = (pages.at_home() as u64, pages.capacity() as u64);
        self.receive_share.set_unused(self.receive_share.capacity() * left / all.max(1));
        let probes = self.counters.probes;
        while let Some((moment, index)) = self.alarms.due(cx.now) {
            let Some(session) = self.table.at(index) else { continue };
            if session.alarm.came_up(moment) {
                self.with(index, cx, out, |session, desk| session.on_time(desk));
            }
        }
        if self.counters.probes > probes && cx.memory.transmit.at_home() == 0 {
            self.on_short_memory(cx.now);
        }
        self.relieve(cx, out);
        if self.contest_ends <= cx.now {
            self.send_share.set_contested(false);
            self.contest_ends = Instant::NEVER;
        }
        self.retry_at = Instant::NEVER;
        for lane in 0..self.lines.len() {
            let room = rooms.get(lane).copied().unwrap_or(0);
            if !self.settle_lane(lane, room, cx, out) {
                self.counters.starved += 1;
                self.retry_at = cx.now + STARVED_RETRY;
                return;
            }
        }
    }

    /// Serves the line of one lane. False when memory for PDUs ran out.
    fn settle_lane(&mut self, lane: usize, room: usize, cx: &mut Context<'_>, out: &mut Outbox) -> bool {
        let full = out.down.len().saturating_add(room);
        let most = if self.config.segment_bytes_max > self.config.mss.into() { 1 } else { QUANTUM };
        while out.down.len() < full {
            let Some(id) = self.lines[lane].pop_front() else { return true };
            let Some(session) = self.table.get_mut(id) else { continue };
            if session.deadline() <= cx.now {
                // It was reached in line, while the lane had no room.
                self.with(id.index, cx, out, |session, desk| session.on_time(desk));
            }
            let Some(session) = self.table.get_mut(id) else { continue };
            let room = full - out.down.len();
            let quantum = if self.lines[lane].is_empty() { room } else { most.min(room) };
            let mut desk = Desk {
                config: &self.config,
                cx,
                up: &mut out.up,
                down: &mut out.down,
                receive_share: &mut self.receive_share,
                send_share: &mut self.send_share,
                challenges: &mut self.challenges,
                counters: &mut self.counters,
            };
            match session.output(quantum, &mut desk) {
                Progress::Done => {
                    session.in_line = false;
                    let deadline = session.deadline();
                    self.alarms.set(&mut session.alarm, id.index, deadline);
                }
                Progress::More => self.lines[lane].push_back(id),
                Progress::Starved => {
                    // First in line stays first: whoever waits longest is served first.
                    self.lines[lane].push_front(id);
                    return false;
                }
            }
        }
        true
    }

    /// Whether sessions stand in the line of `lane` (it had no room, or a burst has not been settled).
    pub fn has_work(&self, lane: usize) -> bool {
        self.lines.get(lane).is_some_and(|line| !line.is_empty())
    }

    /// The next moment at which something happens by itself: may be early, never late.
    pub fn deadline(&self) -> Instant {
        self.alarms.next().min(self.retry_at).min(self.sweep_at)
    }

    fn put_in_line(&mut self, index: u32) {
        if let Some(session) = self.table.at(index)
            && !session.in_line
        {
            session.in_line = true;
            if self.lines.len() <= session.lane {
                self.lines.resize_with(session.lane + 1, VecDeque::new);
            }
            self.lines[session.lane].push_back(session.id);
        }
    }

    /// Works on the session that a host's number names, if it still names one.
    fn with_known(
        &mut self,
        session: SessionId,
        cx: &mut Context<'_>,
        out: &mut Outbox,
        work: impl FnOnce(&mut Session, &mut Desk<'_, '_>),
    ) -> Result<(), Refusal> {
        self.table.get(session).ok_or(Refusal::UnknownSession)?;
        self.with(session.index, cx, out, work);
        Ok(())
    }

    /// Works on a session, and sees to what follows from it.
    fn with(
        &mut self,
        index: u32,
        cx: &mut Context<'_>,
        out: &mut Outbox,
        work: impl FnOnce(&mut Session, &mut Desk<'_, '_>),
    ) {
        let Some(session) = self.table.at(index) else { return };
        let (waiting, rested) = (session.listener, session.state == State::TimeWait);
        let mut desk = Desk {
            config: &self.config,
            cx,
            up: &mut out.up,
            down: &mut out.down,
            receive_share: &mut self.receive_share,
            send_share: &mut self.send_share,
            challenges: &mut self.challenges,
            counters: &mut self.counters,
        };
        work(session, &mut desk);
        let (id, closed, claim) = (session.id, session.state == State::Closed, session.claim);
        let rests = session.state == State::TimeWait && !rested;
        if let Some(number) = waiting
            && (closed || session.listener.is_none())
            && let Some(listener) = self.listeners.iter_mut().find(|listener| listener.number == number)
        {
            listener.waiting -= 1;
        }
        if waiting.is_some() && (closed || session.listener.is_none()) {
            self.claims.set_half_open(claim, false);
        }
        if closed {
            self.table.remove(index);
            self.claims.end(claim);
            self.receive_share.set_sessions(claim.owner, self.claims.sessions(claim.owner));
        } else if !session.in_line {
            self.put_in_line(index);
        }
        if rests {
            self.on_rest(id, cx, out);
        }
    }
}

/// Whether less than an eighth of the receive pages is left.
fn is_scarce(cx: &mut Context<'_>) -> bool {
    cx.memory.receive.at_home() * 8 < cx.memory.receive.capacity()
}

/// Payload that stands in the head (a short segment) goes into a page of its own, so that a body is all there is.
fn lower_into_body(pdu: &mut Pdu, cx: &mut Context<'_>) -> bool {
    let count = pdu.head().len();
    let Some(mut page) = cx.memory.receive.take() else { return false };
    let Some(slice) = page.append(pdu.head()) else { return false };
    cx.copies.gather_bytes += count as u64;
    pdu.pull_head(count);
    pdu.push_front_body(slice).is_ok()
}

/// The end of one stream, see [`Tcp::writer`].
pub struct Writer<'a> {
    session: &'a mut Session,
    share: &'a mut Share,
    room: usize,
    grain: usize,
    least: usize,
    before: u32,
}

impl Writer<'_> {
    /// Bytes that may still be appended.
    #[inline]
    pub fn room(&self) -> usize {
        self.room
    }

    /// Whether nothing of the stream is under way or waits.
    pub fn is_empty(&self) -> bool {
        self.session.queued() == 0
    }

    /// Bytes that may be taken of a write of `wanted`: less than the low-water mark only if it is all.
    #[inline]
    pub fn room_for(&self, wanted: usize) -> usize {
        if self.room < wanted.min(self.least) { 0 } else { self.room.min(wanted) }
    }

    /// Bytes at which a slice should end, so that segments are whole slices and their sums known.
    #[inline]
    pub fn grain(&self) -> usize {
        self.grain
    }

    /// Appends; beyond the room the slice comes back.
    #[inline]
    pub fn push(&mut self, slice: Slice) -> Result<(), Slice> {
        if slice.len() > self.room {
            return Err(slice);
        }
        self.room -= slice.len();
        self.session.append(slice, self.grain as u32);
        Ok(())
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        self.share.change(self.before, self.session.queued(), self.session.claim);
    }
}

impl core::fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Writer({} bytes of room)", self.room)
    }
}

/// What TCP has for its neighbours after a call: the wiring carries it on.
#[derive(Debug, Default)]
pub struct Outbox {
    /// For the host's edge.
    pub up: VecDeque<Indication>,
    /// For IP.
    pub down: VecDeque<Segment>,
}
