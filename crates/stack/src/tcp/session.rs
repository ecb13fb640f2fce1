//! One session: its transmission control block and what segments, hosts and timers do to it (RFC 9293 §3.10).
//!
//! Down      `send`, `finish`, `abort` change the queue; `output` puts on the wire what windows and Nagle allow.
//! Up        `on_segment` follows the standard's order of checks; data in order goes up at once, early data waits.
//! Owed      a segment that arrives only *owes* an answer. `output` pays once, when the burst is over: one
//!           acknowledgement decision a burst (paper \[1\]'s pipeline rescheduling), carried by data where there is some.
//! Memory    `output` may find no PDU block: the session then says so and is asked again.

mod ack_rule;
mod acknowledge;
mod arrive;
mod autotune;
mod cookie;
mod data;
mod icmp;
mod options;
mod output;
mod recovery;
mod send_rule;
mod tally;
mod time;
mod urgent;
mod watch;
#[cfg(test)]
mod wraps;

use super::claims::Claim;
use super::congestion::Congestion;
use super::rack::Rack;
use super::receive::Early;
use super::rtt::Rtt;
use super::scoreboard::Scoreboard;
use super::secret::Beginning;
use super::send::SendQueue;
use super::share::Share;
use super::stamps::Stamps;
use super::state::State;
use super::throttle::Throttle;
use super::{Config, Indication, Nagle, Reason, Segment, SessionId, TcpCounters, Trouble};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use autotune::Tuning;
use core::net::SocketAddr;
use core::time::Duration;
use kiban_ground::{Alarm, Context, Instant, Slice, Sum};
use kiban_wire::checksum;
use kiban_wire::numbers::protocol;
use kiban_wire::tcp::{Flags, Header, Options, Sequence};
pub(super) use tally::Spent;
use tally::Tally;
use urgent::Urgent;
use watch::Watch;

/// What a session works with, lent by the protocol for one call.
pub(super) struct Desk<'a, 'b> {
    pub(super) config: &'a Config,
    pub(super) cx: &'a mut Context<'b>,
    pub(super) up: &'a mut VecDeque<Indication>,
    pub(super) down: &'a mut VecDeque<Segment>,
    pub(super) receive_share: &'a mut Share,
    pub(super) send_share: &'a mut Share,
    pub(super) challenges: &'a mut Throttle,
    pub(super) counters: &'a mut TcpCounters,
}

/// A writer is woken when this much room has opened again, or half of its buffer.
const WRITABLE_BYTES: u32 = 16 << 10;

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
    /// Whose it is, for the ledgers.
    pub(super) claim: Claim,
    pseudo: Sum,
    mss: u32,
    /// Timestamps, while we offer them or since both want them.
    stamps: Option<Stamps>,

    // Send: una ≤ next ≤ max. Behind `una` stands the queue, behind the queue our FIN.
    una: Sequence,
    next: Sequence,
    max: Sequence,
    /// The end of the last segment that was not full.
    short_end: Sequence,
    window: u32,
    window_max: u32,
    window_update: (Sequence, Sequence),
    send_shift: u8,
    queue: SendQueue,
    finishing: bool,
    /// The host has closed: nobody reads what still comes.
    left: bool,
    /// The peer's window is closed and is being asked about.
    probe: bool,
    /// What became of what was sent: bytes from `una` to `next`.
    board: Scoreboard,
    congestion: Congestion,
    rack: Rack,
    /// Whether the peer sends and takes SACK.
    sack: bool,
    /// The first lost segment goes whatever the window says.
    at_once: bool,
    /// Duplicate acknowledgements in a row, from a peer without SACK.
    repeats: u8,
    /// Bytes for which such duplicates may still stand: what was out at the first of them.
    nameless_left: u32,
    /// The highest byte sent when loss was last met: older duplicates tell nothing new (RFC 6582 §3.2).
    recover: Sequence,
    /// Payload bytes sent again.
    retransmitted: u64,
    rtt: Rtt,
    /// When our SYN left, while its answer can be measured.
    asked_at: Option<Instant>,
    /// When data last left.
    sent_at: Instant,
    /// The retransmission timer, and what else waits for the end of a silence.
    resend_at: Instant,
    /// When the tail is asked about (RFC 8985 §7), and whether it is time.
    tail_at: Instant,
    tail_due: bool,
    /// Data has left or been acknowledged since it was set.
    tail_moves: bool,
    /// When what is late is lost (RFC 8985 §6.2, step 5).
    reorder_at: Instant,
    /// Pacing: the next segment may leave at `paced_until`; `pace_at` is when a session that waits for it goes on.
    paced_until: Instant,
    pace_at: Instant,
    /// Timeouts since the peer was last heard.
    silence: u32,
    /// Our SYNs of which ICMP said that they found no way, and after how many timeouts the last of them left.
    astray: u32,
    astray_at: Option<u32>,

    // Receive: everything before `expected` is here, nothing from `edge` on was asked for.
    expected: Sequence,
    edge: Sequence,
    /// The window field as it was last offered: when, and with what here and what waiting for the reader.
    offered: (Instant, Sequence, u32, u16),
    receive_shift: u8,
    /// Bytes that went up and that the host has not consumed.
    held: u32,
    committed: u32,
    early: Early,
    /// Whether the protocol has noted that something waits here.
    pub(super) early_listed: bool,
    fin_at: Option<Sequence>,
    unanswered: u32,
    unanswered_segments: u32,
    peer_segment: u32,
    owed: Owed,
    /// Segments of this burst that came early: each is told, up to [`DUPLICATES_MAX`].
    duplicates: u8,
    ack_at: Instant,
    urgent: Option<Box<Urgent>>,
    /// DSCP and ECN of what is sent, and of what came last.
    traffic_class: u8,
    pub(super) heard_class: u8,
    /// Which short segments wait.
    nagle: Nagle,
    tuning: Tuning,
    watch: Watch,
    tally: Tally,
    challenged_at: Instant,
    challenges: u8,
    /// The last ICMP error that was believed (RFC 5927).
    trouble: Option<Trouble>,
}

impl Session {
    /// A session that begins with our SYN (`listener` none) or answers theirs.
    pub(super) fn new(
        id: SessionId,
        local: SocketAddr,
        remote: SocketAddr,
        beginning: Beginning,
        listener: Option<u32>,
        config: &Config,
    ) -> Session {
        let mss = u32::from(config.mss_to(remote));
        let initial = beginning.initial;
        Session {
            id,
            state: State::SynSent,
            local,
            remote,
            listener,
            alarm: Alarm::default(),
            in_line: false,
            lane: 0,
            claim: Claim::default(),
            pseudo: checksum::pseudo(local.ip(), remote.ip(), protocol::TCP, 0),
            mss,
            stamps: config.timestamps.then(|| Stamps::new(beginning.stamp_offset)),
            una: initial,
            next: initial,
            max: initial,
            short_end: initial,
            window: 0,
            window_max: 0,
            window_update: (Sequence(0), Sequence(0)),
            send_shift: 0,
            queue: SendQueue::default(),
            finishing: false,
            left: false,
            probe: false,
            board: Scoreboard::default(),
            congestion: Congestion::new(config, mss),
            rack: Rack::default(),
            sack: false,
            at_once: false,
            repeats: 0,
            nameless_left: 0,
            recover: initial,
            retransmitted: 0,
            rtt: Rtt::new(config),
            asked_at: None,
            sent_at: Instant::ZERO,
            tail_at: Instant::NEVER,
            tail_due: false,
            tail_moves: false,
            reorder_at: Instant::NEVER,
            paced_until: Instant::ZERO,
            pace_at: Instant::NEVER,
            resend_at: Instant::NEVER,
            silence: 0,
            astray: 0,
            astray_at: None,
            expected: Sequence(0),
            edge: Sequence(0),
            offered: (Instant::NEVER, Sequence(0), 0, 0),
            receive_shift: 0,
            held: 0,
            committed: 0,
            early: Early::default(),
            early_listed: false,
            fin_at: None,
            unanswered: 0,
            unanswered_segments: 0,
            peer_segment: 1,
            owed: Owed::Nothing,
            duplicates: 0,
            ack_at: Instant::NEVER,
            urgent: None,
            traffic_class: config.dscp << 2,
            heard_class: 0,
            nagle: config.nagle,
            tuning: Tuning::new(config),
            watch: Watch::new(config),
            tally: Tally::default(),
            challenged_at: Instant::ZERO,
            challenges: 0,
            trouble: None,
        }
    }

    // ---- Down: what the host asks for -------------------------------------------------------------------------

    /// Whether the host may still hand over data.
    pub(super) fn takes_data(&self) -> bool {
        self.state.takes_data() && !self.finishing
    }

    /// Bytes that the host may hand over now.
    pub(super) fn room(&self, config: &Config, share: &Share, now: Instant) -> usize {
        match self.free(config, share, now) {
            0 => 0,
            free => free as usize + config.write_beyond_bytes as usize,
        }
    }

    /// Bytes of the send buffer that are free.
    fn free(&self, config: &Config, share: &Share, now: Instant) -> u32 {
        if !self.takes_data() {
            return 0;
        }
        let held = self.queue.bytes();
        let mut most = self.send_most(config).min(self.allowance(config, share, now));
        if share.is_scarce() && self.is_shut_out() {
            // What its peer does not take helps nobody.
            most = most.min(config.floor_bytes);
        }
        most.saturating_sub(held)
    }

    /// What its share of memory lets it hold for sending.
    fn allowance(&self, config: &Config, share: &Share, now: Instant) -> u32 {
        share.allowance(self.queue.bytes(), config.floor_bytes, self.claim, self.watch.earned(now))
    }

    /// Whether memory, not its buffer, bounds what it may hold though its peer takes what it is sent.
    pub(super) fn is_short_of_memory(&self, config: &Config, share: &Share, now: Instant) -> bool {
        let (held, wants) = (self.queue.bytes(), self.send_most(config).min(config.send_buffer_bytes));
        let has_none = held == 0 && self.allowance(config, share, now) == 0;
        // One that has earned little yet grows by itself.
        let is_bound = (held == 0 || self.watch.earned(now) > 0)
            && share.allowance(held, config.floor_bytes, self.claim, u32::MAX) < wants;
        self.takes_data() && (has_none || is_bound)
    }

    /// Whether its address or its owner bounds what it may hold.
    pub(super) fn is_bound_by_claim(&self, config: &Config, share: &Share) -> bool {
        share.is_bound_by_claim(self.queue.bytes(), config.floor_bytes, self.claim)
    }

    /// Since when bytes have waited for the peer to take as much as a floor of them; none: none wait.
    pub(super) fn stuck_since(&self) -> Option<Instant> {
        (self.queue.bytes() > 0).then(|| self.watch.turn_at()).filter(|since| *since != Instant::NEVER)
    }

    /// The least that is taken of a write that does not fit.
    pub(super) fn least(&self, config: &Config) -> usize {
        config.send_low_water_bytes.map_or(0, |low| low.min(config.send_buffer_bytes)) as usize
    }

    /// Whether bytes wait behind a closed window.
    pub(super) fn is_shut_out(&self) -> bool {
        self.window == 0 && self.queue.bytes() > 0
    }

    /// Whether a writer that was refused is to be woken.
    pub(super) fn wakes_writer(&self, config: &Config, share: &Share, now: Instant) -> bool {
        let free = self.free(config, share, now);
        match config.send_low_water_bytes {
            // With nothing under way nobody would ask again.
            None if self.queue.bytes() == 0 => free > 0,
            None => free >= WRITABLE_BYTES.min(config.send_buffer_bytes / 2),
            Some(low) => {
                // Of the buffer as it was asked for, rounded or not.
                let unused = config.send_buffer_bytes.saturating_sub(self.queue.bytes());
                free > 0 && unused >= low.min(config.send_buffer_bytes)
            }
        }
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

    /// The two low bits are ECN's, which is not offered.
    pub(super) fn set_dscp(&mut self, dscp: u8) {
        self.traffic_class = dscp << 2;
    }

    /// Which short segments wait, whatever the settings say.
    pub(super) fn set_nagle(&mut self, nagle: Nagle) {
        self.nagle = nagle;
    }

    /// The host sends no more: our FIN goes behind what is queued.
    pub(super) fn finish(&mut self) {
        if !self.finishing {
            self.finishing = true;
            self.state = self.state.on_finish();
        }
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

    /// Makes way for another in the backlog: nobody has been told of it.
    pub(super) fn displace(&mut self, desk: &mut Desk<'_, '_>) {
        self.end(Reason::Aborted, desk);
    }

    /// The host sends no more and reads no more.
    pub(super) fn leave(&mut self, desk: &mut Desk<'_, '_>) {
        self.left = true;
        self.watch.on_left(desk.config);
        self.finish();
        if self.state == State::FinWait2 {
            self.resend_at = desk.cx.now + desk.config.fin_wait_2;
        }
    }

    // ---- The end ----------------------------------------------------------------------------------------------

    /// TIME-WAIT: nothing is left to say.
    fn rest(&mut self, desk: &mut Desk<'_, '_>) {
        self.stop_timers();
        self.resend_at = desk.cx.now + desk.config.time_wait;
        // A name is all that rests.
        (self.early, self.queue, self.board) =
            (Early::default(), SendQueue::default(), Scoreboard::default());
        self.commit(desk);
        desk.up.push_back(Indication::Gone { session: self.id, reason: Reason::Closed });
    }

    /// Whether a SYN may take the name of a session at rest: the last of our numbers then.
    pub(super) fn yields_to(&self, syn: &Header) -> Option<Sequence> {
        let newer = match (&self.stamps, syn.options.timestamps) {
            (Some(stamps), Some(theirs)) if stamps.is_last(theirs.value) => self.expected.lt(syn.sequence),
            (Some(stamps), Some(theirs)) => stamps.is_behind_last(theirs.value),
            // RFC 6191 §2: without timestamps on both the number alone can tell.
            _ => self.expected.lt(syn.sequence),
        };
        (self.state == State::TimeWait && newer).then_some(self.max)
    }

    /// The name is free before its time.
    pub(super) fn leave_name(&mut self, desk: &mut Desk<'_, '_>) {
        self.end(Reason::Closed, desk);
    }

    /// The end, told once.
    fn end(&mut self, reason: Reason, desk: &mut Desk<'_, '_>) {
        let told = self.state == State::TimeWait;
        self.state = State::Closed;
        (self.owed, self.duplicates) = (Owed::Nothing, 0);
        self.stop_timers();
        (self.ack_at, self.watch.at) = (Instant::NEVER, Instant::NEVER);
        desk.send_share.change(self.queue.bytes(), 0, self.claim);
        self.queue = SendQueue::default();
        self.board = Scoreboard::default();
        self.early.clear();
        self.commit(desk);
        if !told {
            // A connection of a listener that was never accepted ends without a word to the host.
            if self.listener.is_none() {
                desk.up.push_back(Indication::Gone { session: self.id, reason });
            }
        }
    }
}
