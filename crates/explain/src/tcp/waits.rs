//! Whom the sender waited for, segment by segment.
//!
//! Purpose          attribute the time before each segment to what had prevented the sender from sending it.
//! Method           the sender's view ([`Timeline`]) gives, at each segment, what was outstanding, how far
//!                  the window reached, and which acknowledgement had just arrived:
//!
//! ```text
//! an old segment, after a silence                      a retransmission timeout
//! an old segment, otherwise                            recovery from a loss
//! the window had no room until an acknowledgement      the receiver: a full, or a closed, window
//! a short segment, right after a lone acknowledgement
//!    that was late by a timer                          Nagle's algorithm and a delayed acknowledgement
//! nothing outstanding, after data of the peer          the peer; then the server's think time, or the
//!                                                      client's time between two exchanges
//! nothing outstanding, or an emptied send buffer       the application
//! right after an acknowledgement                       the network: the congestion window
//! otherwise                                            sending
//! ```
//!
//! Limits           a sender whose send buffer is too small looks as if it waited for the network.

use super::timeline::{Segment, Timeline};
use crate::figures::MILLISECOND;
use crate::waited::Waited;
use std::collections::{BTreeMap, BTreeSet};

/// The shortest silence before a retransmission that counts as a timeout. RFC 6298 §2.4 asks for 1 s; systems
/// use 200 ms and more, and tail loss probes (RFC 8985 §7.2) wait about as long for a single segment.
const TIMEOUT_MIN: u64 = 150 * MILLISECOND;
/// The shortest delay of an acknowledgement that a timer causes (Linux: 40 ms; RFC 1122 §4.2.3.2: below 500
/// ms).
const DELAYED_ACK_MIN: u64 = 20 * MILLISECOND;
const DELAYED_ACK_MAX: u64 = 600 * MILLISECOND;

/// The shortest timer of common systems lasts at most this long, and a round trip or two (Linux: 200 ms,
/// Windows: 300 ms).
const TIMER_MIN_MAX: u64 = 500 * MILLISECOND;

/// How many segments are searched for the one that a retransmission repeats.
const SEARCH_MAX: usize = 1 << 14;

/// A wait before a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) waited: Waited,
    pub(crate) nanos: u64,
    /// When it ended.
    pub(crate) at: u64,
    /// The packets before the wait, that ended it, and that followed: see `Evidence`.
    pub(crate) packets: [Option<u32>; 3],
}

/// A lost segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    /// The index of the segment that was lost, or that showed the hole.
    pub(crate) send: usize,
    pub(crate) bytes: i64,
    /// Whether the segment itself was lost before the capture: `send` showed the hole.
    pub(crate) is_hole: bool,
    /// The packet that retransmits it.
    pub(crate) retransmission: u32,
}

/// What was found in one direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    pub(crate) waits: Vec<Wait>,
    pub(crate) losses: Vec<Loss>,
    pub(crate) retransmissions: u32,
    pub(crate) timeouts: u32,
    /// Segments that only the network had put out of order.
    pub(crate) reordered: u32,
    /// New segments; those below half of the MSS that fill the window; and those that reach beyond the
    /// window field as if it were unscaled.
    pub(crate) segments: u32,
    pub(crate) silly: u32,
    pub(crate) beyond_field: u32,
    /// Bytes delivered, without repetition.
    pub(crate) bytes: i64,
    /// The largest number of bytes outstanding.
    pub(crate) flight_max: i64,
    /// The largest window that was advertised.
    pub(crate) window_max: i64,
    /// How long the window was full because the receiving program had not read: a window update opened it, or
    /// it was less than half of what it had been.
    pub(crate) unread: u64,
    /// Time from the peer's data to the first segment, ns.
    pub(crate) lead: u64,
    /// The times of the first segment and of the end.
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

impl Account {
    /// Returns the sum of the waits of one kind, ns.
    pub(crate) fn sum(&self, waited: Waited) -> u64 {
        self.waits.iter().filter(|wait| wait.waited == waited).map(|wait| wait.nanos).sum()
    }

    /// Returns the number of waits of one kind.
    pub(crate) fn count(&self, waited: Waited) -> usize {
        self.waits.iter().filter(|wait| wait.waited == waited).count()
    }

    /// Returns the time from the first segment to the end, ns; at least 1.
    pub(crate) fn duration(&self) -> u64 {
        self.end.saturating_sub(self.begin).max(1)
    }

    /// Returns how often segments were lost: losses within two round trips count once.
    pub(crate) fn episodes(&self, timeline: &Timeline) -> usize {
        let apart = timeline.shortest_round_trip() * 2;
        let mut times: Vec<u64> = self.losses.iter().map(|loss| timeline.sends[loss.send].at).collect();
        times.sort_unstable();
        times.windows(2).filter(|pair| pair[1] - pair[0] > apart).count() + usize::from(!times.is_empty())
    }

    /// Returns the payload bits per second from the first segment to the end; 0 if it is not known.
    pub(crate) fn rate(&self) -> f64 {
        self.rate_over(self.duration())
    }

    /// Returns the payload bits per second if the transfer took this long; 0 if it has no length.
    pub(crate) fn rate_over(&self, nanos: u64) -> f64 {
        if self.end > self.begin { self.bytes as f64 * 8e9 / nanos as f64 } else { 0.0 }
    }

    /// Returns the time in which the connection was in use: with the answer to the first request, without the
    /// time between exchanges, ns; at least 1.
    pub(crate) fn active(&self) -> u64 {
        (self.duration() + self.lead).saturating_sub(self.sum(Waited::Idle)).max(1)
    }
}

/// What the sender knows while its segments are gone through.
struct State {
    sent: i64,
    acknowledged: i64,
    edge: i64,
    /// The right edge if the window field were unscaled.
    edge_of_field: i64,
    window: i64,
    /// The last segment or acknowledgement.
    last_event: u64,
    last_send: Option<Sent>,
    /// Holes that nothing has filled: where they begin, and the index of the loss.
    holes: BTreeMap<i64, usize>,
}

#[derive(Clone, Copy)]
struct Sent {
    at: u64,
    number: u32,
    bytes: i64,
    push: bool,
    is_new: bool,
}

/// What happened between two segments.
#[derive(Default)]
struct Gap {
    /// Room in the window at its begin, and after each acknowledgement: the time, the room, and the packet.
    rooms: Vec<(u64, i64, Option<u32>)>,
    /// Whether the window was closed, or smaller than a segment.
    was_closed: bool,
    /// The last acknowledgement that moved something: when, its packet, and whether it had no data.
    moved: Option<(u64, u32, bool, u64)>,
    acks: u32,
    /// Acknowledgements that report a loss.
    duplicates: u32,
    /// The last data of the peer, and its packet.
    peer_data: Option<(u64, u32)>,
    /// The first acknowledgement that only opened the window.
    updates: Option<u32>,
    /// The window at its begin.
    window: i64,
}

/// Goes through a direction.
pub(crate) fn account(timeline: &Timeline) -> Account {
    let Timeline { sends, acks, mss, .. } = timeline;
    let mut account = Account::default();
    let (Some(first), Some(last)) = (sends.first(), sends.last()) else { return account };
    (account.begin, account.end) = (first.at, last.at);
    let mut state = State {
        sent: first.start,
        acknowledged: first.start,
        edge: i64::MIN,
        edge_of_field: i64::MIN,
        window: i64::MAX,
        last_event: first.at,
        last_send: None,
        holes: BTreeMap::new(),
    };
    // A window below a segment is as good as closed (RFC 9293 §3.8.6.2.1), unless it never is larger.
    let largest = acks.iter().map(|ack| ack.window).max().unwrap_or(0);
    let closed = (*mss).min(largest / 2).max(1);
    let mut incoming = acks.iter().peekable();
    let mut gap = Gap::default();
    for (index, send) in sends.iter().enumerate() {
        // Of packets with the same time, those that were captured first come first.
        while let Some(ack) = incoming.next_if(|ack| (ack.at, ack.number) <= (send.at, send.number)) {
            let advances = ack.acknowledged > state.acknowledged;
            let edge = ack.acknowledged + ack.window;
            let opens = edge > state.edge;
            state.acknowledged = state.acknowledged.max(ack.acknowledged);
            // A window of 0 is closed whatever its scale.
            let is_shut = !timeline.knows_windows && ack.window == 0;
            state.edge = if is_shut { edge } else { state.edge.max(edge) };
            state.edge_of_field = state.edge_of_field.max(ack.acknowledged + ack.field);
            state.window = ack.window;
            state.last_event = ack.at;
            account.window_max = account.window_max.max(ack.window);
            gap.acks += 1;
            gap.duplicates += u32::from(ack.is_duplicate);
            gap.was_closed |= ack.window < closed;
            if advances || opens {
                gap.moved = Some((ack.at, ack.number, ack.is_pure, ack.captured));
            }
            gap.rooms.push((ack.at, state.edge - state.sent, Some(ack.number)));
            gap.updates = gap.updates.or((opens && !advances).then_some(ack.number));
            if !ack.is_pure {
                gap.peer_data = Some(((ack.at + ack.early).min(send.at), ack.number));
            }
        }
        let is_new = send.end > state.sent;
        if let Some(before) = state.last_send {
            let wait = if is_new && send.start >= state.sent {
                new_segment(timeline, &state, &gap, index, before)
            } else {
                old_segment(timeline, &mut state, &gap, &mut account, index, before)
            };
            if let Some((waited, nanos, by)) = wait {
                let packets = [Some(before.number), by, Some(send.number)];
                let is_small = gap.window < account.window_max / 2;
                if waited == Waited::ReceiveWindow && (is_small || by.is_some() && by == gap.updates) {
                    account.unread += nanos;
                }
                if waited == Waited::ThinkTime {
                    between_exchanges(timeline, &mut account, send.at - nanos, before, by);
                }
                account.waits.push(Wait { waited, nanos, at: send.at, packets });
            }
        } else if let Some((came, number)) = gap.peer_data {
            account.lead = send.at - came;
            let waited = match timeline.is_server {
                _ if account.lead <= timeline.prompt() => Waited::Peer,
                true => Waited::ThinkTime,
                false => Waited::Idle,
            };
            let packets = [Some(number), None, Some(send.number)];
            account.waits.push(Wait { waited, nanos: account.lead, at: send.at, packets });
        }
        if is_new {
            account.segments += 1;
            // RFC 1122 §4.2.3.4: a sender must not let small windows cut its data into small segments.
            let fills = state.edge != i64::MIN && state.edge - send.end < send.bytes();
            account.silly += u32::from(fills && send.bytes() * 2 < timeline.mss_offered);
            let beyond = state.edge_of_field != i64::MIN && send.end > state.edge_of_field;
            account.beyond_field += u32::from(beyond);
            account.bytes += send.end - state.sent.max(send.start);
            // Bytes above a hole: a segment before this one was lost on the way to the capture.
            if send.start > state.sent {
                let bytes = send.start - state.sent;
                state.holes.insert(state.sent, account.losses.len());
                account.losses.push(Loss { send: index, bytes, is_hole: true, retransmission: 0 });
            }
        }
        state.sent = state.sent.max(send.end);
        account.flight_max = account.flight_max.max(state.sent - state.acknowledged);
        state.last_event = send.at;
        state.last_send =
            Some(Sent { at: send.at, number: send.number, bytes: send.bytes(), push: send.push, is_new });
        // Before the first acknowledgement, the window is not known.
        let room = if state.edge == i64::MIN { i64::MAX } else { state.edge - state.sent };
        gap = Gap {
            rooms: vec![(send.at, room, None)],
            was_closed: state.window < closed,
            window: state.window,
            ..Gap::default()
        };
    }
    let end = acks.iter().find(|ack| ack.acknowledged >= state.sent).map_or(account.end, |ack| ack.at);
    account.end = account.end.max(end);
    // What was lost before the place of the capture arrived as a retransmission; other segments may never
    // have arrived.
    let delivered = acks.iter().map(|ack| ack.acknowledged).max();
    account.bytes = delivered.map_or(account.bytes, |bytes| (bytes.min(state.sent) - first.start).max(0));
    // A hole that was never filled in the capture is no loss that anybody repaired; one that was is counted
    // with its retransmission. What was too large for the path was not lost either.
    let discovered = timeline.discovered.unwrap_or(0);
    account.losses.retain(|loss| loss.retransmission != 0 && loss.send >= discovered);
    forgive_repetitions(&mut account, timeline);
    if !timeline.is_at_sender || timeline.is_numbered {
        infer_timeouts(&mut account, timeline);
    }
    account.timeouts = account.count(Waited::Timeout) as u32;
    account
}

/// Accounts for the time before a request that came at `came`: a round trip, and a client that was idle.
fn between_exchanges(timeline: &Timeline, account: &mut Account, came: u64, before: Sent, by: Option<u32>) {
    let whole = came.saturating_sub(before.at);
    let trip = timeline.shortest_round_trip().min(whole);
    let packets = [Some(before.number), by, by];
    account.waits.push(Wait { waited: Waited::Peer, nanos: trip, at: came, packets });
    account.waits.push(Wait { waited: Waited::Idle, nanos: whole - trip, at: came, packets });
}

/// Removes losses whose retransmissions turned out to be needless: the receiver reported them as repeated.
fn forgive_repetitions(account: &mut Account, timeline: &Timeline) {
    let sends = &timeline.sends;
    let places = account.losses.iter().enumerate().filter(|(_, loss)| !loss.is_hole);
    let mut losses: BTreeMap<i64, usize> =
        places.map(|(place, loss)| (sends[loss.send].start, place)).collect();
    let mut needless = BTreeSet::new();
    for (left, right) in timeline.acks.iter().filter_map(|ack| ack.repeated) {
        let Some((&start, &place)) = losses.range(..right).next_back() else { continue };
        if sends[account.losses[place].send].end > left {
            needless.insert(account.losses[place].retransmission);
            losses.remove(&start);
        }
    }
    account.losses.retain(|loss| !needless.contains(&loss.retransmission));
    let trip = timeline.shortest_round_trip();
    for wait in account.waits.iter_mut().filter(|wait| wait.waited == Waited::Recovery) {
        if wait.packets[2].is_some_and(|number| needless.contains(&number)) {
            // A tail loss probe (RFC 8985 §7.2), sent because there was nothing else to send.
            wait.waited = if wait.nanos > trip { Waited::Application } else { Waited::Sending };
        }
    }
}

/// Recognises timeouts whose lost segments were not captured: silences after which a packet is missing or,
/// if the sender does not number its packets, rare silences of nearly equal length in an exchange that is
/// prompt otherwise.
fn infer_timeouts(account: &mut Account, timeline: &Timeline) {
    let trip = timeline.shortest_round_trip();
    let is_idle = |wait: &Wait| {
        use Waited::{Application, Idle, Sending, ThinkTime};
        matches!(wait.waited, Application | Sending | ThinkTime | Idle)
    };
    let least = 190 * MILLISECOND + trip / 2;
    if timeline.is_numbered {
        // The packet that was lost is missing.
        let ends: BTreeSet<u32> =
            timeline.sends.iter().filter(|send| send.missing > 0).map(|send| send.number).collect();
        for wait in account.waits.iter_mut().filter(|wait| is_idle(wait) && wait.nanos >= least) {
            if wait.packets[2].is_some_and(|number| ends.contains(&number)) {
                wait.waited = Waited::Timeout;
            }
        }
        return;
    }
    // After a timeout, one segment is sent; an application that resumes may send many.
    let is_silence = |wait: &Wait, next: Option<&Wait>| {
        is_idle(wait) && wait.nanos >= least && next.is_none_or(|next| next.nanos > trip / 2)
    };
    let waits = &account.waits;
    let places: Vec<usize> =
        (0..waits.len()).filter(|place| is_silence(&waits[*place], waits.get(place + 1))).collect();
    let silences: Vec<u64> = places.iter().map(|place| waits[*place].nanos).collect();
    let middling = account
        .waits
        .iter()
        .filter(|wait| is_idle(wait) && (2 * trip + 40 * MILLISECOND..least).contains(&wait.nanos));
    let Some(shortest) = silences.iter().min() else { return };
    let alike = silences.iter().filter(|silence| **silence < shortest + shortest / 5).count();
    let is_timer = *shortest < TIMER_MIN_MAX + 2 * trip;
    let is_rare = silences.len() * 3 < account.waits.len() && middling.count() * 4 <= silences.len();
    if silences.len() >= 3 && is_timer && is_rare && alike * 10 >= silences.len() * 6 {
        for place in places {
            account.waits[place].waited = Waited::Timeout;
        }
    }
}

type Found = Option<(Waited, u64, Option<u32>)>;

/// Attributes the time before a new segment.
fn new_segment(timeline: &Timeline, state: &State, gap: &Gap, index: usize, before: Sent) -> Found {
    let send = &timeline.sends[index];
    let (bytes, at) = (send.bytes(), send.at);
    let whole = at - before.at;
    let trip = timeline.shortest_round_trip();
    let soon = timeline.soon();
    // Without the scale of the windows, only those that close in between are known.
    let is_full = |(_, room, _): &(u64, i64, Option<u32>)| *room < bytes.min(timeline.mss);
    let begin = if timeline.knows_windows { None } else { gap.rooms.iter().position(is_full) };
    let rooms = &gap.rooms[begin.unwrap_or(0)..];
    let (_, room, _) = rooms[0];
    // A sender waits before it fills a window smaller than a segment (RFC 9293 §3.8.6.2.1).
    let is_override = bytes == room && bytes < timeline.mss;
    let need = if is_override { timeline.mss } else { bytes.min(timeline.mss) };
    let nothing_outstanding = state.acknowledged >= state.sent;
    // A message that leaves no room for the next one does not wait for it: it waits for the answer.
    let is_answered = nothing_outstanding && before.push && gap.peer_data.is_some();
    if room < need && !is_answered {
        let waited = if gap.was_closed { Waited::ZeroWindow } else { Waited::ReceiveWindow };
        let opening = rooms.iter().find(|(_, room, _)| *room >= need);
        // Without one, this is a probe of a closed window, or the acknowledgement is still to come in the
        // capture, because the lag is shorter than estimated.
        let (opened, by) = opening.map_or((at, None), |(opened, _, by)| (*opened, *by));
        if at.saturating_sub(opened) > (opened.saturating_sub(before.at)).max(soon) {
            return Some((Waited::Application, at - opened, None));
        }
        // Away from the sender, acknowledgements reach it somewhat later than estimated.
        let until = if timeline.is_at_sender { opened.max(before.at) } else { at };
        return Some((waited, until - before.at, by));
    }
    // Away from the sender, the time of the acknowledgement there is an estimate.
    let late = if timeline.is_at_sender { soon } else { (trip / 4).clamp(5 * MILLISECOND, 30 * MILLISECOND) };
    let released = gap.moved.filter(|(moved, ..)| at - moved <= late);
    if let Some((_, number, is_pure, captured)) = released {
        let late = captured.saturating_sub(before.at).saturating_sub(timeline.near);
        let is_delayed = (DELAYED_ACK_MIN..DELAYED_ACK_MAX).contains(&late);
        if is_pure && is_delayed && bytes < timeline.mss && gap.acks <= 2 && before.is_new {
            return Some((Waited::DelayedAck, late, Some(number)));
        }
    }
    if let Some((came, number)) = gap.peer_data.filter(|_| nothing_outstanding) {
        let think = at - came;
        return match timeline.is_server {
            _ if think <= timeline.prompt() => Some((Waited::Peer, whole, Some(number))),
            true => Some((Waited::ThinkTime, think, Some(number))),
            false if think < came - before.at => Some((Waited::Peer, whole, Some(number))),
            false => Some((Waited::Idle, think, Some(number))),
        };
    }
    // Away from the sender, the segments that were lost are not seen. After a timeout, the sender repeats
    // one, and waits for its acknowledgement (RFC 5681 §3.1); an application that resumes sends more.
    let may_be_lost = !timeline.is_at_sender && (send.missing > 0 || !timeline.is_numbered);
    if may_be_lost && !gap.was_closed && before.bytes >= timeline.mss && bytes >= timeline.mss {
        let next = timeline.sends.get(index + 1).map_or(u64::MAX, |next| next.at - at);
        let silence = timeline.silence_before(at).min(whole);
        if silence >= TIMEOUT_MIN.max(trip + trip / 4) && next > trip / 2 {
            return Some((Waited::Timeout, whole, None));
        }
    }
    // The lag varies: data of the peer may have reached the sender somewhat earlier than estimated.
    if let Some(ack) = timeline.last_captured(at).filter(|ack| !ack.is_pure && ack.captured > before.at)
        && ack.acknowledged >= state.sent
        && at - ack.captured <= timeline.far + timeline.far / 4 + 2 * MILLISECOND
    {
        return Some((Waited::Peer, whole, Some(ack.number)));
    }
    if released.is_some() {
        return Some((Waited::Network, whole, gap.moved.map(|(_, number, ..)| number)));
    }
    // A short segment that carries PSH emptied the send buffer.
    let emptied = before.push && before.bytes < timeline.mss;
    let pause = if emptied { MILLISECOND } else { (trip / 2).max(3 * MILLISECOND) };
    if whole > pause && (nothing_outstanding || emptied || before.push || whole > trip) {
        return Some((Waited::Application, whole, None));
    }
    Some((Waited::Sending, whole, None))
}

/// Attributes the time before a segment that had been sent before, or fills a hole.
fn old_segment(
    timeline: &Timeline,
    state: &mut State,
    gap: &Gap,
    account: &mut Account,
    index: usize,
    before: Sent,
) -> Found {
    let send = &timeline.sends[index];
    let trip = timeline.shortest_round_trip();
    // Probes of a closed window carry data that lie beyond it, and are repeated (RFC 9293 §3.8.6.1).
    if gap.was_closed && send.start >= state.acknowledged {
        return Some((Waited::ZeroWindow, send.at - before.at, None));
    }
    let hole = state.holes.range(..=send.start).next_back().map(|(start, loss)| (*start, *loss));
    let hole = hole.filter(|(_, loss)| send.start < timeline.sends[account.losses[*loss].send].start);
    if let Some((start, loss)) = hole {
        state.holes.remove(&start);
        let since = send.at - timeline.sends[account.losses[loss].send].at;
        if since < (trip / 2).clamp(MILLISECOND / 2, 20 * MILLISECOND) {
            account.reordered += 1;
            return Some((Waited::Sending, send.at - before.at, None));
        }
        account.losses[loss].retransmission = send.number;
    } else {
        // The latest earlier segment with these bytes was lost, unless this repeats a repetition.
        let from = index.saturating_sub(SEARCH_MAX);
        let overlaps = |other: &Segment| other.start < send.end && send.start < other.end;
        if let Some(earlier) = timeline.sends[from..index].iter().rposition(overlaps) {
            let (bytes, retransmission) = (send.bytes(), send.number);
            account.losses.push(Loss { send: from + earlier, bytes, is_hole: false, retransmission });
        }
    }
    account.retransmissions += 1;
    let whole = send.at - before.at;
    // No acknowledgement asked for it: data of the peer may have come meanwhile.
    let is_unasked = gap.moved.is_none() && gap.duplicates == 0;
    let silence = if is_unasked { whole } else { send.at - state.last_event };
    if silence >= TIMEOUT_MIN.max(trip + trip / 4) {
        return Some((Waited::Timeout, whole, None));
    }
    Some((Waited::Recovery, whole, None))
}
