//! Determines why a case is slow, from the evidence alone.
//!
//! Order     the rules are sorted from certain to likely, and the first matching rule decides. Each rule
//!           reports its evidence as numbers.
//! Unknown   if no rule matches, the case is not explained, and the evidence is shown, because a wrong guess
//!           would mislead.
//! Windows   a window that limits a stream and keeps its size is a limit of a buffer, or of the 16 bits of a
//!           window that is not scaled. One that shrinks belongs to a program that reads too slowly.
//! Full      a stream that no end limits, and that keeps a queue on the path filled or reaches the rate of
//!           the path, has all that the path carries, unless another stream in its direction is faster.
//!           Losses of up to 14 % belong to that.
//! Opposite  connections in the opposite direction fill a queue, in which the acknowledgements of a stream
//!           wait. If another stream in its direction is faster, its own queue is not the reason.
//! Sources   Nagle (RFC 896) and delayed acknowledgements (RFC 1122 §4.2.3.2) together: a sender holds a
//!           short segment until everything before it is acknowledged; a receiver without data to send
//!           acknowledges after up to 40 ms (Linux) to 500 ms. The silly window syndrome: RFC 813 and RFC
//!           1122 §4.2.3.3, §4.2.3.4. Shares of time: Linux's busy, rwnd_limited and sndbuf_limited.

use crate::net::trial::evidence::{Evidence, Exchanges, Shares};
use crate::net::trial::transactions::SLOW_PART;
use crate::table::counted;
use kiban_measure::Counters;
use serde::{Deserialize, Serialize};

/// The fewest segments of a stream whose losses are judged, and the share of retransmissions: one of this
/// many.
const LOSSY: (u64, u64) = (100, 20);
/// The same for a stream that keeps a queue filled: slow start overruns the queue of a thin path by as much.
/// A policer, which drops a fifth of what BBR sends, has no queue.
const LOSSY_BEHIND_QUEUE: u64 = 7;
/// The fewest retransmissions, without a timeout, that make a stream slow. Fewer happen on any network.
const LOSSES_MIN: u64 = 3;
/// Windows do not limit streams over a path with a shorter round trip, us; programs do.
const WINDOW_ROUND_TRIP_US_MIN: f64 = 1000.0;
/// A queue adds at least this to the round trip, ms, and at least this part of it.
const QUEUE_MIN: (f64, f64) = (2.0, 0.25);
/// A stream is as fast as the path from this part of its rate on, and the rate is not that of the path above
/// this multiple.
const PATH_RATE: std::ops::RangeInclusive<f64> = 0.9..=1.3;
/// A path on which another stream in the same direction has more than this multiple of a stream's rate is not
/// full.
const OTHERS_MAX: f64 = 1.2;
/// The burst that measures the path's rate is not limited by slow start if bandwidth times delay has at most
/// this many bytes, nor by the receiver's window or the send buffer if it also has at most half of that.
const BURST_WINDOW_BYTES: f64 = 65_536.0;
/// The part of a window that a stream carries in each round trip of the path, slow start included, if the
/// window limits it. A window that Linux still enlarges is twice as large.
const WHOLE_WINDOW: f64 = 0.6;
/// The least share of the time for which a window limits a stream that paces itself, and a send buffer does:
/// while data waits for its turn in the buffer, Linux does not count it.
const PACED_PARTS: (f64, f64) = (0.2, 0.05);
/// The segments of the initial congestion window (RFC 6928).
const INITIAL_WINDOW: u32 = 10;
/// The largest windows that systems offer without window scaling, bytes: 16 bits, in whole segments.
const UNSCALED: std::ops::RangeInclusive<u32> = 56_000..=65_535;

/// A cause.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The server's own rate limit was reached.
    ServerLimit,
    /// The sender holds a short segment; the receiver delays the acknowledgement that would release it.
    NagleDelayedAck,
    /// Segments were lost, or considered lost.
    Loss,
    /// The window opens in such small steps that sender and receiver wait for each other.
    SillyWindow,
    /// The ends do not scale windows, and 65,535 bytes are less than bandwidth times delay.
    WindowScaling,
    /// The receive buffer is smaller than bandwidth times delay.
    ReceiveBuffer,
    /// The send buffer is smaller than bandwidth times delay.
    SendBuffer,
    /// The receiver does not read as fast as the path carries.
    Receiver,
    /// The sender does not write as fast as the path carries.
    Sender,
    /// Acknowledgements wait in a queue that connections in the opposite direction fill.
    AcknowledgementQueue,
    /// Congestion control keeps less in flight than the path could carry.
    CongestionWindow,
    /// The path carries no more.
    PathFull,
    /// The evidence does not identify a cause.
    NotExplained,
}

impl Cause {
    /// All causes, with a letter for maps and words for tables.
    pub const ALL: [(Cause, char, &'static str); 13] = [
        (Cause::ServerLimit, 'T', "the server's own rate limit"),
        (Cause::NagleDelayedAck, 'N', "Nagle's algorithm against delayed acknowledgements"),
        (Cause::Loss, 'L', "loss"),
        (Cause::SillyWindow, 'W', "silly window"),
        (Cause::WindowScaling, 'Z', "no window scaling"),
        (Cause::ReceiveBuffer, 'B', "receive buffer below bandwidth-delay product"),
        (Cause::SendBuffer, 'b', "send buffer below bandwidth-delay product"),
        (Cause::Receiver, 'R', "the receiver does not read fast enough"),
        (Cause::Sender, 'S', "the sender does not write fast enough"),
        (Cause::AcknowledgementQueue, 'A', "acknowledgements wait in the queue of the opposite direction"),
        (Cause::CongestionWindow, 'C', "congestion window"),
        (Cause::PathFull, 'F', "the path is full"),
        (Cause::NotExplained, '?', "not explained"),
    ];

    fn row(self) -> &'static (Cause, char, &'static str) {
        Cause::ALL.iter().find(|(cause, ..)| *cause == self).expect("all are listed")
    }

    /// Returns the letter of the cause.
    pub fn letter(self) -> char {
        self.row().1
    }

    /// Returns the beginning of a sentence that says what happens; `in_two_writes` if header and body are
    /// written separately.
    pub(super) fn sentence(self, in_two_writes: bool) -> &'static str {
        match self {
            Cause::ServerLimit => "The server limits its own rate",
            Cause::NagleDelayedAck if in_two_writes => {
                "A header and body in two writes meet delayed acknowledgements"
            }
            Cause::NagleDelayedAck => "Writes shorter than a segment meet delayed acknowledgements",
            Cause::Loss => "Segments are lost",
            Cause::SillyWindow => "The receive window opens in steps of less than a segment",
            Cause::WindowScaling => "Windows are not scaled, so that none exceeds 64 KiB",
            Cause::ReceiveBuffer => "The receive buffer is smaller than the bandwidth-delay product",
            Cause::SendBuffer => "The send buffer is smaller than the bandwidth-delay product",
            Cause::Receiver => "The receiver does not read fast enough",
            Cause::Sender => "The sender does not write fast enough",
            Cause::AcknowledgementQueue => "Acknowledgements wait in the queue of the opposite direction",
            Cause::CongestionWindow => "The congestion window is too small",
            Cause::PathFull => "The path is full",
            Cause::NotExplained => "No cause was found",
        }
    }

    /// Returns the cause in words.
    pub fn words(self) -> &'static str {
        self.row().2
    }
}

/// A cause and its evidence.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Explanation {
    /// The cause.
    pub cause: Cause,
    /// The evidence, in words and numbers.
    pub because: String,
}

/// Returns whether a case is slow. Streams are slow below `slow_mbps`; exchanges are slow if they stall.
pub fn is_slow(evidence: &Evidence, slow_mbps: f64) -> bool {
    match &evidence.exchanges {
        Some(exchanges) => exchanges.stalled_part >= SLOW_PART,
        None => evidence.total_mbps() < slow_mbps,
    }
}

/// Returns whether a stream retransmits so many segments that this alone is a fault: all streams that pass a
/// policer may be equally slow.
pub(super) fn is_lossy(evidence: &Evidence) -> bool {
    let (segments, again) = lasting(evidence);
    let one_of = if queue(evidence).is_some() { LOSSY_BEHIND_QUEUE } else { LOSSY.1 };
    evidence.pattern.is_stream() && segments >= LOSSY.0 && again * one_of >= segments
}

/// Returns the segments of a stream, and how many were retransmitted: those of its second half, if that has
/// enough. At its beginning, a stream looks for the rate of the path, and overruns a short queue (BBR by a
/// fifth).
fn lasting(evidence: &Evidence) -> (u64, u64) {
    let later = evidence.windows.and_then(|windows| windows.at_half).and_then(|[sent, again]| {
        let sent = evidence.info.data_segs_out?.saturating_sub(sent);
        Some((u64::from(sent), u64::from(evidence.info.total_retrans.saturating_sub(again))))
    });
    let whole = (evidence.segments().unwrap_or(0), evidence.retransmits());
    later.filter(|(segments, _)| *segments >= LOSSY.0).unwrap_or(whole)
}

/// Returns the shortest round trip, and how much a queue adds to it at the end, ms; `None` without a queue.
fn queue(evidence: &Evidence) -> Option<(f64, f64)> {
    let least_us = evidence.info.min_rtt_us.map_or(evidence.path.round_trip_us, f64::from);
    let least_ms = least_us.min(evidence.path.round_trip_us) * 1e-3;
    let queue_ms = f64::from(evidence.info.rtt_us) * 1e-3 - least_ms;
    (queue_ms >= QUEUE_MIN.0.max(QUEUE_MIN.1 * least_ms)).then_some((least_ms, queue_ms))
}

/// Returns the share of a stream's segments that were lost, percent; `None` if there are too few to tell.
pub(super) fn lost_percent(evidence: &Evidence) -> Option<f64> {
    let (segments, again) = lasting(evidence);
    let lost = again.saturating_sub(needless(evidence));
    let is_enough = evidence.pattern.is_stream() && segments >= LOSSY.0;
    is_enough.then_some(lost as f64 * 100.0 / segments as f64)
}

/// Returns how many segments were retransmitted needlessly. A duplicate SACK reports a segment that had
/// arrived: an acknowledgement was lost, not the segment (RFC 2883).
fn needless(evidence: &Evidence) -> u64 {
    count(evidence, &evidence.counters, "TCPDSACKRecv").min(evidence.retransmits())
}

/// Returns the measured connection's part of a counter, which counts all connections of a host.
fn count(evidence: &Evidence, counters: &Counters, name: &str) -> u64 {
    counters.get(name).div_ceil(evidence.connections())
}

/// Returns whether a stream is limited by the window that the receiver's system offers on its own, or by the
/// send buffer that the sender's system gives. Without a faster stream to compare with, this alone is a
/// fault.
pub(in crate::net) fn is_system_bound(evidence: &Evidence) -> bool {
    let settings = &evidence.settings;
    let is_system = match explain(evidence, 0.0).cause {
        Cause::WindowScaling | Cause::ReceiveBuffer => settings.receive_bytes.is_none(),
        Cause::SendBuffer => {
            settings.send_bytes.is_none()
                && evidence.shares().is_some_and(|shares| is_send_buffer_full(evidence, shares))
        }
        _ => false,
    };
    is_system && evidence.pattern.is_stream() && evidence.path.round_trip_us >= WINDOW_ROUND_TRIP_US_MIN
}

/// Returns the evidence that a stream has all that the path carries; `None` if it may not. `best_mbps` is the
/// best known rate in its direction.
fn path_is_full(evidence: &Evidence, best_mbps: f64) -> Option<String> {
    if best_mbps > OTHERS_MAX * evidence.total_mbps() {
        return None;
    }
    let shares = evidence.shares().filter(|_| evidence.pattern.is_stream() && !is_lossy(evidence))?;
    if is_clamped(evidence) {
        return None;
    }
    if is_window_full(evidence, shares) || is_send_buffer_full(evidence, shares) || shares.busy < 0.7 {
        return None;
    }
    let mbps = evidence.total_mbps();
    if let Some((least_ms, queue_ms)) = queue(evidence) {
        return Some(format!(
            "{mbps:.2} Mbit/s keep a queue on the path filled: the RTT is {:.1} ms, {queue_ms:.1} ms more than \
             the shortest",
            least_ms + queue_ms
        ));
    }
    // The rate of the path is that to the server.
    let rate = evidence.path.rate_mbps;
    let most = largest_window(evidence)
        .map_or(BURST_WINDOW_BYTES, |bytes| BURST_WINDOW_BYTES.min(f64::from(bytes) / 2.0));
    let most = most.min(f64::from(evidence.given.send_bytes) / 4.0);
    let is_measured = rate * evidence.path.round_trip_us / 8.0 <= most;
    let is_reached = PATH_RATE.contains(&(mbps / rate.max(1e-9)));
    (is_measured && is_reached && !evidence.pattern.is_back())
        .then(|| format!("{mbps:.2} of about {rate:.2} Mbit/s"))
}

/// Returns the evidence that acknowledgements wait behind connections in the opposite direction.
fn acknowledgements_wait(evidence: &Evidence, best_mbps: f64) -> Option<String> {
    let shares = evidence.shares()?;
    let opposite_mbps = evidence.opposite_mbps()?;
    let opposite = evidence.beside.as_ref().map_or(0, |beside| beside.opposite.len());
    let (least_ms, queue_ms) = queue(evidence).filter(|(least_ms, queue_ms)| queue_ms > least_ms)?;
    let is_limited = is_window_full(evidence, shares) || is_send_buffer_full(evidence, shares);
    (!is_limited && shares.busy >= 0.7 && best_mbps > OTHERS_MAX * evidence.total_mbps()).then(|| {
        format!(
            "the RTT is {:.1} ms, {queue_ms:.1} ms more than the shortest, beside {} in the opposite direction at \
             {:.2} Mbit/s; another stream in this direction had {best_mbps:.2} Mbit/s, so the queue is not its own",
            least_ms + queue_ms,
            counted(opposite as u64, "connection"),
            opposite_mbps
        )
    })
}

/// Returns whether something other than congestion control keeps the congestion window small, such as a
/// `cwnd` of the route: without a loss, none makes it smaller than the initial one (RFC 6928), except BBR.
/// If several connections share the path, the window of each may be small.
fn is_clamped(evidence: &Evidence) -> bool {
    let is_small = evidence.info.snd_cwnd < INITIAL_WINDOW && evidence.retransmits() == 0;
    is_small && evidence.connections() == 1 && !evidence.given.congestion.starts_with("bbr")
}

/// Returns the largest window that the peer is known to have offered, bytes.
fn largest_window(evidence: &Evidence) -> Option<u32> {
    evidence.windows.map(|windows| windows.max_bytes).max(evidence.info.snd_wnd)
}

/// Returns the bytes that a stream carries in each round trip of the path.
fn carried_bytes(evidence: &Evidence) -> f64 {
    evidence.mbps() * evidence.path.round_trip_us / 8.0
}

/// Returns whether a stream carries a whole window in each round trip of the path.
fn carries_window(evidence: &Evidence) -> bool {
    let is_whole = |bytes: u32| bytes > 0 && carried_bytes(evidence) >= WHOLE_WINDOW * f64::from(bytes);
    evidence.pattern.is_stream() && largest_window(evidence).is_some_and(is_whole)
}

/// Returns whether the window kept its size; `None` if that is not known. A stream over a small buffer that
/// the program has set has few samples, but the program reads what arrives if each round trip carries a
/// window.
fn window_is_constant(evidence: &Evidence) -> Option<bool> {
    let is_kept = || (evidence.settings.receive_bytes.is_some() && carries_window(evidence)).then_some(true);
    evidence.windows.and_then(|windows| windows.is_constant()).or_else(is_kept)
}

/// Returns whether the peer's window limits a stream. A sender that paces itself (BBR) spreads the window
/// over the round trip and seldom waits for it; then the stream carries a whole window in each round trip.
fn is_window_full(evidence: &Evidence, shares: Shares) -> bool {
    let is_carried = || carries_window(evidence) && window_is_constant(evidence) == Some(true);
    shares.window >= 0.5 || (shares.window >= PACED_PARTS.0 && is_carried())
}

/// Returns whether the send buffer limits a stream also on a path without a queue: each round trip carries a
/// whole buffer, half of which holds payload. As long as Linux may, it keeps the buffer larger than three
/// times what a round trip carries.
fn is_send_buffer_full(evidence: &Evidence, shares: Shares) -> bool {
    let is_carried = carried_bytes(evidence) >= f64::from(evidence.given.send_bytes / 2);
    shares.send_buffer >= PACED_PARTS.1 && is_carried && evidence.pattern.is_stream()
}

/// Explains a slow case. `best_mbps` is the rate of the best stream in its direction, or zero.
pub fn explain(evidence: &Evidence, best_mbps: f64) -> Explanation {
    let of_figures = || match &evidence.exchanges {
        Some(exchanges) => of_exchanges(evidence, exchanges),
        None => of_stream(evidence, best_mbps),
    };
    let found = server_limit(evidence).or_else(|| captured(evidence, best_mbps)).or_else(of_figures);
    let (cause, because) = found.unwrap_or_else(|| (Cause::NotExplained, what_there_is(evidence)));
    Explanation { cause, because }
}

type Found = Option<(Cause, String)>;

fn server_limit(evidence: &Evidence) -> Found {
    let why = "the server limited its rate (--rate)".to_owned();
    evidence.receiver.rate_limited.then_some((Cause::ServerLimit, why))
}

/// Returns the cause if a capture shows it, which is certain.
fn captured(evidence: &Evidence, best_mbps: f64) -> Found {
    let capture = evidence.capture.as_ref().filter(|capture| capture.gaps > 0)?;
    if 2 * capture.held > capture.gaps && !evidence.settings.no_delay {
        let because = format!(
            "in {} of {} captured gaps, the sender held data for {:.1} ms, until a pure acknowledgement \
            arrived; {}",
            capture.held,
            capture.gaps,
            capture.held_ms,
            short_write(evidence)
        );
        return Some((Cause::NagleDelayedAck, because));
    }
    if let Some(because) = path_is_full(evidence, best_mbps) {
        return Some((Cause::PathFull, because));
    }
    if 2 * capture.sent_again > capture.gaps {
        let because =
            format!("{} of {} captured gaps ended with a retransmission", capture.sent_again, capture.gaps);
        return Some((Cause::Loss, because));
    }
    None
}

fn of_exchanges(evidence: &Evidence, exchanges: &Exchanges) -> Found {
    let again = [evidence.retransmits(), evidence.receiver.info.total_retrans.into()];
    if exchanges.stalls > 0 && again.iter().sum::<u64>() * 2 >= exchanges.stalls {
        let because = format!(
            "{} of messages and {} of replies retransmitted in {}",
            counted(again[0], "segment"),
            again[1],
            counted(exchanges.stalls, "stall")
        );
        return Some((Cause::Loss, because));
    }
    // Without a capture, the cause is reported only if all other evidence agrees.
    let delayed = count(evidence, &evidence.receiver.counters, "DelayedACKs");
    let is_held = evidence.capture.is_none()
        && evidence.pattern.is_in_two_writes()
        && !evidence.settings.no_delay
        && evidence.last_write_bytes < evidence.info.snd_mss
        && delayed * 4 >= exchanges.stalls * 3
        && (30.0..600.0).contains(&exchanges.stall_ms);
    if is_held {
        let because = format!(
            "{} of {:.1} ms and {} at the receiver, no retransmissions; {}",
            counted(exchanges.stalls, "stall"),
            exchanges.stall_ms,
            counted(delayed, "delayed acknowledgement"),
            short_write(evidence)
        );
        return Some((Cause::NagleDelayedAck, because));
    }
    let shares = evidence.shares()?;
    (shares.window >= 0.5).then(|| silly_or_slow(evidence, shares))
}

/// Compares the last write with the MSS, because our measurements show that only a last write below the MSS
/// stalls.
fn short_write(evidence: &Evidence) -> String {
    let (bytes, mss) = (evidence.last_write_bytes, evidence.info.snd_mss);
    let relation = if bytes < mss { "below" } else { "not below" };
    format!("the last write of a message has {bytes} bytes, {relation} the MSS of {mss}")
}

fn of_stream(evidence: &Evidence, best_mbps: f64) -> Found {
    let again = evidence.retransmits();
    let segments = evidence.segments().unwrap_or(0);
    let shares = evidence.shares();
    let timeouts = count(evidence, &evidence.counters, "TCPTimeouts");
    if let Some(because) = path_is_full(evidence, best_mbps) {
        return Some((Cause::PathFull, because));
    }
    let needless = needless(evidence);
    let lost = again - needless;
    if segments > 0 && lost * 100 >= segments && (lost >= LOSSES_MIN || (lost > 0 && timeouts > 0)) {
        let needless = if needless > 0 { format!(", {needless} of them needlessly") } else { String::new() };
        let because = format!(
            "{again} of {segments} segments retransmitted ({:.1} %){needless}, {timeouts} timeouts",
            100.0 * again as f64 / segments as f64
        );
        return Some((Cause::Loss, because));
    }
    if let Some(because) = acknowledgements_wait(evidence, best_mbps) {
        return Some((Cause::AcknowledgementQueue, because));
    }
    // Estimate the time in stalls, with one delayed acknowledgement per stalled write.
    let delayed = count(evidence, &evidence.receiver.counters, "DelayedACKs") as f64;
    let ato = f64::from(evidence.receiver.info.ato_us.max(40_000)) * 1e-6;
    let waited = (delayed * ato / evidence.receiver.seconds.max(1e-6)).min(1.0);
    let shares = shares?;
    if waited >= 0.5 {
        let window = f64::from(evidence.info.snd_wnd.unwrap_or(u32::MAX));
        let is_small = window < 2.0 * f64::from(full_segment(evidence));
        if is_window_full(evidence, shares) && is_small {
            return Some(silly_or_slow(evidence, shares));
        }
        if !evidence.settings.no_delay && evidence.message_bytes < evidence.info.snd_mss {
            let because = format!(
                "{delayed:.0} delayed acknowledgements take up {:.0} % of the time; {}",
                100.0 * waited,
                short_write(evidence)
            );
            return Some((Cause::NagleDelayedAck, because));
        }
    }
    if is_window_full(evidence, shares) {
        return Some(silly_or_slow(evidence, shares));
    }
    if is_send_buffer_full(evidence, shares) && evidence.settings.send_bytes.is_none() {
        let because = format!(
            "the send buffer of {} bytes, the system's limit (net.ipv4.tcp_wmem), limited the sender {:.0} % of the \
             time: it sent {:.0} bytes in each RTT of {:.2} ms",
            evidence.given.send_bytes,
            100.0 * shares.send_buffer,
            carried_bytes(evidence),
            evidence.path.round_trip_us * 1e-3
        );
        return Some((Cause::SendBuffer, because));
    }
    if shares.send_buffer >= 0.5 || is_send_buffer_full(evidence, shares) {
        let bytes = (evidence.given.send_bytes / 2).max(carried_bytes(evidence) as u32);
        let because = format!(
            "the send buffer of {} bytes limited the sender {:.0} % of the time; it allows at most {:.2} \
             Mbit/s with an RTT of {:.2} ms",
            evidence.given.send_bytes / 2,
            100.0 * shares.send_buffer,
            buffer_mbps(bytes, evidence),
            window_rtt_us(bytes, evidence) * 1e-3
        );
        return Some((Cause::SendBuffer, because));
    }
    if shares.busy < 0.7 {
        let because = format!(
            "the sender had no data to send {:.0} % of the time: its writes of {} bytes are too infrequent",
            100.0 * (1.0 - shares.busy),
            evidence.message_bytes
        );
        return Some((Cause::Sender, because));
    }
    let window_bytes = evidence.info.snd_cwnd.saturating_mul(evidence.info.snd_mss);
    let carried = window_mbps(window_bytes, evidence);
    if shares.window + shares.send_buffer < 0.2 && (0.5..2.0).contains(&(carried / evidence.mbps().max(1e-9)))
    {
        let because = format!(
            "a congestion window of {} segments of {} bytes allows {carried:.2} Mbit/s with an RTT of {:.2} \
             ms; no buffer limited the sender",
            evidence.info.snd_cwnd,
            evidence.info.snd_mss,
            evidence.info.rtt_us as f64 * 1e-3
        );
        return Some((Cause::CongestionWindow, because));
    }
    None
}

/// Explains why the peer's window was full for most of the time.
fn silly_or_slow(evidence: &Evidence, shares: Shares) -> (Cause, String) {
    let window = evidence.info.snd_wnd.unwrap_or(evidence.receiver.given.receive_bytes / 2);
    let full = full_segment(evidence);
    let part = 100.0 * shares.window;
    let delayed = evidence.receiver.counters.get("DelayedACKs");
    let largest = largest_window(evidence).map_or(window, |bytes| bytes.max(window));
    // A window that was larger has shrunk, because its program does not read. Acknowledgements that were
    // delayed would leave less than a window for each round trip.
    if largest < 2 * full && delayed > 0 && !carries_window(evidence) {
        let because = format!(
            "the window of {window} bytes, less than two segments of {full} bytes, was full {part:.0} % of \
             the time, and {} delayed",
            if delayed == 1 {
                "1 acknowledgement was".to_owned()
            } else {
                format!("{delayed} acknowledgements were")
            }
        );
        return (Cause::SillyWindow, because);
    }
    let shut = evidence.receiver.counters.get("TCPToZeroWindowAdv");
    let is_constant = window_is_constant(evidence);
    // A buffer of the system has grown by the end; the window is what it offered.
    let buffer = match is_constant {
        Some(true) => largest,
        _ => evidence.receiver.given.receive_bytes / 2,
    };
    let most = buffer_mbps(buffer, evidence);
    let round_trip_ms = window_rtt_us(buffer, evidence) * 1e-3;
    // Without samples, a window that was never closed, at the rate that it allows, is taken for constant.
    let is_limit = is_constant.unwrap_or(shut == 0 && evidence.mbps() > 0.4 * most);
    let unscaled = buffer_mbps(largest, evidence);
    if is_constant.unwrap_or(evidence.mbps() > 0.4 * unscaled) && is_unscaled(evidence, largest) {
        let because = format!(
            "the connection has no window scaling: the peer's window of {largest} bytes, which cannot exceed \
             65535, was full {part:.0} % of the time; it allows at most {unscaled:.2} Mbit/s with an RTT \
             of {:.2} ms",
            window_rtt_us(largest, evidence) * 1e-3
        );
        return (Cause::WindowScaling, because);
    }
    if is_limit {
        let what = match is_constant {
            Some(_) => "did not shrink; it".to_owned(),
            None => format!("its buffer of {buffer} bytes"),
        };
        let because = format!(
            "the peer's window of {largest} bytes was full {part:.0} % of the time{} {what} allows at most \
             {most:.2} Mbit/s with an RTT of {round_trip_ms:.2} ms",
            if is_constant.is_some() { " and" } else { ";" }
        );
        return (Cause::ReceiveBuffer, because);
    }
    let shrank = evidence.windows.filter(|_| is_constant.is_some()).map_or(String::new(), |windows| {
        let share = 100.0 * f64::from(windows.shrunk) / f64::from(windows.samples);
        format!(" was below half of {} bytes {share:.0} % of the time,", windows.max_bytes)
    });
    let because = format!(
        "the peer's window{shrank} was full {part:.0} % of the time and closed {shut} times, although its buffer \
         would allow {most:.2} Mbit/s"
    );
    (Cause::Receiver, because)
}

/// Returns whether the peer's largest window is the largest that there is without window scaling.
fn is_unscaled(evidence: &Evidence, largest: u32) -> bool {
    // A board whose windows need no scaling reports none.
    let is_known = evidence.board.is_none() && evidence.peer.board.is_none();
    is_known && evidence.info.window_scaling == Some(false) && UNSCALED.contains(&largest)
}

/// Returns the segment size of the path, regardless of the window.
fn full_segment(evidence: &Evidence) -> u32 {
    evidence.info.snd_mss.max(evidence.receiver.info.rcv_mss)
}

/// Returns the rate that a window allows, Mbit/s.
fn window_mbps(bytes: u32, evidence: &Evidence) -> f64 {
    f64::from(bytes) * 8.0 / f64::from(evidence.info.rtt_us.max(1))
}

/// Returns the RTT, us, with which a full window of this many bytes limits a stream. The smoothed RTT at the
/// end may be that of a short stall; but a window that limits is sent once per RTT, so the measured rate
/// bounds it.
pub(super) fn window_rtt_us(bytes: u32, evidence: &Evidence) -> f64 {
    let turn = f64::from(bytes) * 8.0 / evidence.mbps().max(1e-9);
    f64::from(evidence.info.rtt_us).min(turn.max(evidence.path.round_trip_us)).max(1.0)
}

/// Returns the rate that a full buffer allows, Mbit/s.
fn buffer_mbps(bytes: u32, evidence: &Evidence) -> f64 {
    f64::from(bytes) * 8.0 / window_rtt_us(bytes, evidence)
}

fn what_there_is(evidence: &Evidence) -> String {
    let shares =
        evidence.shares().map_or("the kernel does not report what limited the sender".into(), |shares| {
            format!(
                "busy {:.0} %, window full {:.0} %, send buffer full {:.0} %",
                100.0 * shares.busy,
                100.0 * shares.window,
                100.0 * shares.send_buffer
            )
        });
    let counts = |counters: &Counters| {
        let words: Vec<String> = counters.0.iter().map(|(name, count)| format!("{name} {count}")).collect();
        words.join(", ")
    };
    let stalls = evidence.exchanges.as_ref().map_or(String::new(), |exchanges| {
        format!("; {} of {:.1} ms", counted(exchanges.stalls, "stall"), exchanges.stall_ms)
    });
    let capture = evidence.capture.as_ref().map_or(String::new(), |capture| {
        format!(
            "; captured {} gaps, {} held, {} retransmitted",
            capture.gaps, capture.held, capture.sent_again
        )
    });
    format!(
        "{shares}{stalls}{capture}; MSS {}, window {}, RTT {:.2} ms, retransmits {}; sender: {}; receiver: \
         {}",
        evidence.info.snd_mss,
        evidence.info.snd_wnd.map_or("unknown".into(), |window| window.to_string()),
        f64::from(evidence.info.rtt_us) * 1e-3,
        evidence.retransmits(),
        counts(&evidence.counters),
        counts(&evidence.receiver.counters)
    )
}

#[cfg(test)]
pub(super) mod tests;
