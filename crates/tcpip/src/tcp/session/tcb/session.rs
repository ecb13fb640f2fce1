//! The transmission control block (RFC 9293 §3.3.1).

use super::tally::Tally;
use super::tuning::Tuning;
use super::urgent::Urgent;
use super::watch::Watch;
use crate::tcp::config::{Config, Nagle};
use crate::tcp::congestion::Congestion;
use crate::tcp::fairness::claims::Claim;
use crate::tcp::indication::SessionId;
use crate::tcp::listen::secret::Beginning;
use crate::tcp::listen::stamps::Stamps;
use crate::tcp::loss::rack::Rack;
use crate::tcp::loss::rtt::Rtt;
use crate::tcp::loss::scoreboard::Scoreboard;
use crate::tcp::receive::Early;
use crate::tcp::send::SendQueue;
use crate::tcp::state::State;
use crate::tcp::trouble::Trouble;
use crate::wire::tcp::Sequence;
use alloc::boxed::Box;
use core::net::SocketAddr;
use kiban_base::checksum;
use kiban_base::numbers::protocol;
use kiban_base::{Instant, Sum, Timer};

/// An acknowledgement that is due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::tcp::session) enum Owed {
    Nothing,
    /// Delayed, until the delayed-ACK timer fires at the latest.
    Later,
    Now,
}

pub(in crate::tcp) struct Session {
    pub(in crate::tcp) id: SessionId,
    pub(in crate::tcp) state: State,
    pub(in crate::tcp) local: SocketAddr,
    pub(in crate::tcp) remote: SocketAddr,
    /// The listener that created it, until the session has been reported as accepted.
    pub(in crate::tcp) listener: Option<u32>,
    pub(in crate::tcp) alarm: Timer,
    /// Whether the session is queued for its TX queue.
    pub(in crate::tcp) in_line: bool,
    /// Its TX queue: that of the last segment received.
    pub(in crate::tcp) lane: usize,
    /// The accounts of its address and owner.
    pub(in crate::tcp) claim: Claim,
    pub(in crate::tcp::session) pseudo: Sum,
    pub(in crate::tcp::session) mss: u32,
    /// Timestamp state, while we offer the option or after both sides have agreed on it.
    pub(in crate::tcp::session) stamps: Option<Stamps>,

    // Send: SND.UNA ≤ SND.NXT ≤ highest byte sent. The send queue starts at SND.UNA; our FIN follows the
    // queue. SND.NXT falls behind the highest byte sent after a timeout.
    pub(in crate::tcp::session) una: Sequence,
    pub(in crate::tcp::session) next: Sequence,
    pub(in crate::tcp::session) max: Sequence,
    /// End of the last segment that was shorter than the MSS, for Minshall's variant of Nagle.
    pub(in crate::tcp::session) short_end: Sequence,
    pub(in crate::tcp::session) window: u32,
    pub(in crate::tcp::session) window_max: u32,
    pub(in crate::tcp::session) window_update: (Sequence, Sequence),
    pub(in crate::tcp::session) send_shift: u8,
    pub(in crate::tcp::session) queue: SendQueue,
    /// A write did not fit, and `Writable` has not been reported since.
    pub(in crate::tcp) writer_waits: bool,
    pub(in crate::tcp::session) finishing: bool,
    /// The host has closed the session and reads no more.
    pub(in crate::tcp::session) left: bool,
    /// Persist state: the peer's window is closed, and zero-window probes are sent.
    pub(in crate::tcp::session) probe: bool,
    /// SACK scoreboard of the bytes from SND.UNA to SND.NXT.
    pub(in crate::tcp::session) board: Scoreboard,
    pub(in crate::tcp::session) congestion: Congestion,
    pub(in crate::tcp::session) rack: Rack,
    /// Whether both sides use SACK.
    pub(in crate::tcp::session) sack: bool,
    /// The first lost segment is retransmitted regardless of the windows.
    pub(in crate::tcp::session) at_once: bool,
    /// Duplicate ACKs in a row, from a peer without SACK.
    pub(in crate::tcp::session) repeats: u8,
    /// Bytes that further duplicate ACKs may account for: those outstanding at the first duplicate.
    pub(in crate::tcp::session) nameless_left: u32,
    /// Highest byte sent when a loss was last detected; older duplicate ACKs are ignored (RFC 6582 §3.2).
    pub(in crate::tcp::session) recover: Sequence,
    /// Payload bytes retransmitted.
    pub(in crate::tcp::session) retransmitted: u64,
    pub(in crate::tcp::session) rtt: Rtt,
    /// When our SYN was sent, while it is valid for an RTT sample.
    pub(in crate::tcp::session) asked_at: Option<Instant>,
    /// When data was last sent.
    pub(in crate::tcp::session) sent_at: Instant,
    /// The retransmission timer (RTO); also times zero-window probes, FIN-WAIT-2 and TIME-WAIT.
    pub(in crate::tcp::session) resend_at: Instant,
    /// Tail probe timer (RFC 8985 §7), and whether it has fired.
    pub(in crate::tcp::session) tail_at: Instant,
    pub(in crate::tcp::session) tail_due: bool,
    /// Data has been sent or acknowledged since the tail probe timer was set.
    pub(in crate::tcp::session) tail_moves: bool,
    /// RACK reordering timer (RFC 8985 §6.2, step 5).
    pub(in crate::tcp::session) reorder_at: Instant,
    /// Pacing: the time before which the next segment must not leave, and the timer of a session that waits
    /// for it.
    pub(in crate::tcp::session) paced_until: Instant,
    pub(in crate::tcp::session) pace_at: Instant,
    /// Timeouts in a row since the last acceptable segment.
    pub(in crate::tcp::session) silence: u32,
    /// Number of our SYNs that ICMP reported as undeliverable, and how many timeouts preceded the last of
    /// them.
    pub(in crate::tcp::session) astray: u32,
    pub(in crate::tcp::session) astray_at: Option<u32>,

    // Receive: RCV.NXT, and the right edge of the offered window (RCV.NXT + RCV.WND).
    pub(in crate::tcp::session) expected: Sequence,
    pub(in crate::tcp::session) edge: Sequence,
    /// The window field last sent: when, at which RCV.NXT, with how many bytes unread, and its value.
    pub(in crate::tcp::session) offered: (Instant, Sequence, u32, u16),
    pub(in crate::tcp::session) receive_shift: u8,
    /// Bytes delivered that the host has not consumed.
    pub(in crate::tcp::session) held: u32,
    pub(in crate::tcp::session) committed: u32,
    pub(in crate::tcp::session) early: Early,
    /// Whether the machine lists this session as holding out-of-order data.
    pub(in crate::tcp) early_listed: bool,
    pub(in crate::tcp::session) fin_at: Option<Sequence>,
    pub(in crate::tcp::session) unanswered: u32,
    pub(in crate::tcp::session) unanswered_segments: u32,
    pub(in crate::tcp::session) peer_segment: u32,
    pub(in crate::tcp::session) owed: Owed,
    /// Out-of-order segments of this burst; each causes a duplicate ACK, up to a bound (see `data`).
    pub(in crate::tcp::session) duplicates: u8,
    pub(in crate::tcp::session) ack_at: Instant,
    pub(in crate::tcp::session) urgent: Option<Box<Urgent>>,
    /// DSCP and ECN of the packets sent, and of the last packet received.
    pub(in crate::tcp::session) traffic_class: u8,
    pub(in crate::tcp) heard_class: u8,
    /// Which short segments wait.
    pub(in crate::tcp::session) nagle: Nagle,
    pub(in crate::tcp::session) tuning: Tuning,
    pub(in crate::tcp::session) watch: Watch,
    pub(in crate::tcp::session) tally: Tally,
    pub(in crate::tcp::session) challenged_at: Instant,
    pub(in crate::tcp::session) challenges: u8,
    /// The last ICMP error that was accepted (RFC 5927).
    pub(in crate::tcp::session) trouble: Option<Trouble>,
}

impl Session {
    /// Creates a session in SYN-SENT, for an active open (`listener` is `None`) or for a listener.
    pub(in crate::tcp) fn new(
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
            alarm: Timer::default(),
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
            writer_waits: false,
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
}
