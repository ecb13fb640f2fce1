//! The transmission control block (RFC 9293 §3.3.1).

use super::ecn::EcnState;
use super::fast_open::FastOpen;
use super::tally::Tally;
use super::tuning::Tuning;
use super::urgent::Urgent;
use super::watch::PeerWatch;
use crate::tcp::buffers::out_of_order::OutOfOrder;
use crate::tcp::buffers::send_queue::SendQueue;
use crate::tcp::config::{Config, Nagle};
use crate::tcp::congestion::Congestion;
use crate::tcp::fairness::claims::Claim;
use crate::tcp::icmp_error::IcmpErrorClass;
use crate::tcp::interface::indication::SessionId;
use crate::tcp::listen::secret::InitialNumbers;
use crate::tcp::listen::timestamps::TimestampState;
use crate::tcp::loss::rack::Rack;
use crate::tcp::loss::rtt::Rtt;
use crate::tcp::loss::scoreboard::Scoreboard;
use crate::tcp::loss::undo::Episode;
use crate::tcp::state::State;
use crate::wire::tcp::Sequence;
use alloc::boxed::Box;
use core::net::SocketAddr;
use core::num::{NonZeroU32, NonZeroU64};
use kiban_base::checksum;
use kiban_base::numbers::protocol;
use kiban_base::{Instant, Sum, Timer};

/// An acknowledgement that is due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::tcp::session) enum PendingAck {
    None,
    /// The acknowledgement is delayed, at most until the delayed-ACK timer fires.
    Delayed,
    Immediate,
}

pub(in crate::tcp) struct Session {
    pub(in crate::tcp) id: SessionId,
    pub(in crate::tcp) state: State,
    pub(in crate::tcp) local: SocketAddr,
    pub(in crate::tcp) remote: SocketAddr,
    /// The listener that created the session, until the session has been reported as accepted.
    pub(in crate::tcp) listener: Option<u32>,
    pub(in crate::tcp) timer: Timer,
    /// Whether the session is waiting in its TX queue.
    pub(in crate::tcp) in_tx_queue: bool,
    /// The session's TX queue: the one from which the last segment was received.
    pub(in crate::tcp) tx_queue: usize,
    /// The accounts of the session's address and owner.
    pub(in crate::tcp) claim: Claim,
    pub(in crate::tcp::session) pseudo: Sum,
    pub(in crate::tcp::session) mss: u32,
    /// Timestamp state, while we offer the option or after both sides have agreed on it.
    pub(in crate::tcp::session) timestamps: Option<TimestampState>,

    // Send state: SND.UNA ≤ SND.NXT ≤ highest byte sent. The send queue starts at SND.UNA; our FIN follows
    // the queue. SND.NXT falls behind the highest byte sent after a timeout.
    pub(in crate::tcp::session) snd_una: Sequence,
    pub(in crate::tcp::session) snd_nxt: Sequence,
    pub(in crate::tcp::session) snd_max: Sequence,
    /// End of the last segment that was shorter than the MSS, for Minshall's variant of Nagle.
    pub(in crate::tcp::session) snd_sml: Sequence,
    pub(in crate::tcp::session) snd_wnd: u32,
    pub(in crate::tcp::session) snd_wnd_max: u32,
    pub(in crate::tcp::session) snd_wl: (Sequence, Sequence),
    pub(in crate::tcp::session) snd_wind_shift: u8,
    pub(in crate::tcp::session) send_queue: SendQueue,
    /// Whether a write did not fit, and `Writable` has not been reported since.
    pub(in crate::tcp) writer_waits: bool,
    /// The host may write while fewer bytes than this are unsent (`TCP_NOTSENT_LOWAT`).
    pub(in crate::tcp::session) unsent_bytes_max: Option<NonZeroU32>,
    /// Whether the last write was cut short, so that the rest of it follows.
    pub(in crate::tcp) write_cut_short: bool,
    pub(in crate::tcp::session) fin_queued: bool,
    /// Whether the host has closed the session and no longer reads.
    pub(in crate::tcp::session) host_closed: bool,
    /// Persist state: the peer's window is closed, and zero-window probes are sent.
    pub(in crate::tcp::session) zero_window_probe: bool,
    /// SACK scoreboard of the bytes from SND.UNA to SND.NXT.
    pub(in crate::tcp::session) scoreboard: Scoreboard,
    pub(in crate::tcp::session) congestion: Congestion,
    pub(in crate::tcp::session) ecn: EcnState,
    pub(in crate::tcp::session) fast_open: FastOpen,
    pub(in crate::tcp::session) rack: Rack,
    /// The last reduction of the congestion window, while it can still prove to be spurious.
    pub(in crate::tcp::session) episode: Option<Box<Episode>>,
    /// Whether both sides use SACK.
    pub(in crate::tcp::session) sack: bool,
    /// Whether the first lost segment is retransmitted regardless of the windows.
    pub(in crate::tcp::session) force_retransmit: bool,
    /// Duplicate ACKs in a row, from a peer without SACK.
    pub(in crate::tcp::session) dup_acks: u8,
    /// Bytes that further duplicate ACKs may account for: those outstanding at the first duplicate.
    pub(in crate::tcp::session) dup_acked_max: u32,
    /// Highest byte sent when a loss was last detected; older duplicate ACKs are ignored (RFC 6582 §3.2).
    pub(in crate::tcp::session) recover: Sequence,
    /// Payload bytes retransmitted.
    pub(in crate::tcp::session) retransmitted_bytes: u64,
    pub(in crate::tcp::session) rtt: Rtt,
    /// When our SYN was sent, while it is valid for an RTT sample.
    pub(in crate::tcp::session) syn_sent_at: Option<Instant>,
    /// When data was last sent.
    pub(in crate::tcp::session) data_sent_at: Instant,
    /// The retransmission timer (RTO); also times zero-window probes, FIN-WAIT-2 and TIME-WAIT.
    pub(in crate::tcp::session) rto_deadline: Instant,
    /// Tail probe timer (RFC 8985 §7), and whether it has fired.
    pub(in crate::tcp::session) tlp_deadline: Instant,
    pub(in crate::tcp::session) tlp_due: bool,
    /// Whether data has been sent or acknowledged since the tail probe timer was set.
    pub(in crate::tcp::session) tlp_rearm: bool,
    /// RACK reordering timer (RFC 8985 §6.2, step 5).
    pub(in crate::tcp::session) rack_reorder_deadline: Instant,
    /// Pacing: the time before which the next segment must not leave, and the timer of a session that waits
    /// for it.
    pub(in crate::tcp::session) paced_until: Instant,
    pub(in crate::tcp::session) pacing_deadline: Instant,
    /// The highest rate at which the host lets data leave, bytes per second.
    pub(in crate::tcp::session) pacing_rate_max: Option<NonZeroU64>,
    /// Timeouts in a row since the last acceptable segment.
    pub(in crate::tcp::session) consecutive_timeouts: u32,
    /// The last timeout at which few segments were outstanding.
    pub(in crate::tcp::session) few_segments_timeout_at: Option<Instant>,
    /// Number of our SYNs that ICMP reported as undeliverable, and how many timeouts preceded the last of
    /// them.
    pub(in crate::tcp::session) unreachable_syns: u32,
    pub(in crate::tcp::session) last_unreachable_syn: Option<u32>,

    // Receive state: RCV.NXT, and the right edge of the offered window (RCV.NXT + RCV.WND).
    pub(in crate::tcp::session) rcv_nxt: Sequence,
    pub(in crate::tcp::session) rcv_adv: Sequence,
    /// The window field last sent: its time, RCV.NXT, the number of unread bytes, and its value.
    pub(in crate::tcp::session) last_advertised: (Instant, Sequence, u32, u16),
    pub(in crate::tcp::session) rcv_wind_shift: u8,
    /// Bytes delivered that the host has not consumed.
    pub(in crate::tcp::session) unread_bytes: u32,
    pub(in crate::tcp::session) receive_charge: u32,
    pub(in crate::tcp::session) out_of_order: OutOfOrder,
    /// Whether the machine lists this session as holding out-of-order data.
    pub(in crate::tcp) out_of_order_listed: bool,
    pub(in crate::tcp::session) peer_fin_seq: Option<Sequence>,
    pub(in crate::tcp::session) unacked_bytes: u32,
    pub(in crate::tcp::session) unacked_segments: u32,
    pub(in crate::tcp::session) rcv_mss: u32,
    /// The payload of the last segment, bytes; zero if it had PSH.
    pub(in crate::tcp::session) last_segment_bytes: u32,
    pub(in crate::tcp::session) pending_ack: PendingAck,
    /// Out-of-order segments of this burst; each causes a duplicate ACK, up to a bound (see `data`).
    pub(in crate::tcp::session) dup_acks_due: u8,
    pub(in crate::tcp::session) delayed_ack_deadline: Instant,
    /// Whether acknowledgements are not delayed until the next exchange (`TCP_QUICKACK`).
    pub(in crate::tcp::session) quick_ack: bool,
    pub(in crate::tcp::session) urgent: Option<Box<Urgent>>,
    /// DSCP and ECN of the packets sent, and of the last packet received.
    pub(in crate::tcp::session) traffic_class: u8,
    pub(in crate::tcp) received_traffic_class: u8,
    /// Which short segments wait.
    pub(in crate::tcp::session) nagle: Nagle,
    pub(in crate::tcp::session) tuning: Tuning,
    pub(in crate::tcp::session) watch: PeerWatch,
    pub(in crate::tcp::session) tally: Tally,
    pub(in crate::tcp::session) challenged_at: Instant,
    pub(in crate::tcp::session) challenges: u8,
    /// The last ICMP error that was accepted (RFC 5927).
    pub(in crate::tcp::session) icmp_error: Option<IcmpErrorClass>,
}

impl Session {
    /// Creates a session in SYN-SENT, for an active open (`listener` is `None`) or for a listener.
    pub(in crate::tcp) fn new(
        id: SessionId,
        local: SocketAddr,
        remote: SocketAddr,
        beginning: InitialNumbers,
        listener: Option<u32>,
        config: &Config,
    ) -> Session {
        let mss = u32::from(config.mss_to(remote));
        let initial = beginning.isn;
        Session {
            id,
            state: State::SynSent,
            local,
            remote,
            listener,
            timer: Timer::default(),
            in_tx_queue: false,
            tx_queue: 0,
            claim: Claim::default(),
            pseudo: checksum::pseudo(local.ip(), remote.ip(), protocol::TCP, 0),
            mss,
            timestamps: config.timestamps.then(|| TimestampState::new(beginning.stamp_offset)),
            snd_una: initial,
            snd_nxt: initial,
            snd_max: initial,
            snd_sml: initial,
            snd_wnd: 0,
            snd_wnd_max: 0,
            snd_wl: (Sequence(0), Sequence(0)),
            snd_wind_shift: 0,
            send_queue: SendQueue::default(),
            writer_waits: false,
            unsent_bytes_max: None,
            write_cut_short: false,
            fin_queued: false,
            host_closed: false,
            zero_window_probe: false,
            scoreboard: Scoreboard::default(),
            congestion: Congestion::new(config, mss),
            ecn: EcnState::new(initial),
            fast_open: FastOpen::None,
            rack: Rack::default(),
            episode: None,
            sack: false,
            force_retransmit: false,
            dup_acks: 0,
            dup_acked_max: 0,
            recover: initial,
            retransmitted_bytes: 0,
            rtt: Rtt::new(config),
            syn_sent_at: None,
            data_sent_at: Instant::ZERO,
            tlp_deadline: Instant::NEVER,
            tlp_due: false,
            tlp_rearm: false,
            rack_reorder_deadline: Instant::NEVER,
            paced_until: Instant::ZERO,
            pacing_deadline: Instant::NEVER,
            pacing_rate_max: None,
            rto_deadline: Instant::NEVER,
            consecutive_timeouts: 0,
            few_segments_timeout_at: None,
            unreachable_syns: 0,
            last_unreachable_syn: None,
            rcv_nxt: Sequence(0),
            rcv_adv: Sequence(0),
            last_advertised: (Instant::NEVER, Sequence(0), 0, 0),
            rcv_wind_shift: 0,
            unread_bytes: 0,
            receive_charge: 0,
            out_of_order: OutOfOrder::default(),
            out_of_order_listed: false,
            peer_fin_seq: None,
            unacked_bytes: 0,
            unacked_segments: 0,
            rcv_mss: 1,
            last_segment_bytes: 0,
            pending_ack: PendingAck::None,
            dup_acks_due: 0,
            delayed_ack_deadline: Instant::NEVER,
            quick_ack: false,
            urgent: None,
            traffic_class: config.dscp << 2,
            received_traffic_class: 0,
            nagle: config.nagle,
            tuning: Tuning::new(config),
            watch: PeerWatch::new(config),
            tally: Tally::default(),
            challenged_at: Instant::ZERO,
            challenges: 0,
            icmp_error: None,
        }
    }
}
