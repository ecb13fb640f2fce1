//! Whom the requester waited for, event by event.
//!
//! Purpose          attribute the time between two events to what had to happen before the second one.
//! Method           the state at each event is what was sent, and what was answered: at the place of the
//!                  capture, and, later by the lag, at the requester.
//!
//! ```text
//! a request again, after an RNR NAK                    the receiver had no receive posted
//! a request again, after a silence                     the acknowledgement timer
//! between a NAK with a sequence error, or a gap in a
//!    Read's data, and the answer to all that had been
//!    sent before it                                    loss; or reordering, if nothing was missing
//! an answer, much later than others                    the responder
//! an answer to the only message, and the way of this
//!    answer to the requester                           the round trip
//! a request, long after everything was answered        the peer's messages, then the application
//! within a message, long after the last packet, after
//!    a congestion notification                         the reduced rate
//! a request, right after an answer                     acknowledgements: a full window
//! otherwise                                            sending
//! ```

use super::timeline::{Event, Request, Said, Timeline, What};
use crate::figures::percentile;
use kiban_rdma::wire::roce::NakCode;
use std::collections::{BTreeMap, VecDeque};

/// The shortest silence before a request is repeated that counts as a timeout, ns. The shortest timeouts of
/// NICs are about a millisecond.
const TIMEOUT_MIN: u64 = 500_000;
/// How much times vary without a reason, ns.
const JITTER: u64 = 30_000;
/// How many late requests are remembered.
const FILLED_MAX: usize = 16;
/// How many waits are searched for those of a loss that was none.
const SEARCH_MAX: usize = 1 << 10;
/// The number of outstanding messages that are searched for a Read.
const OUTSTANDING_MAX: usize = 256;
/// The time for which a congestion notification may reduce a rate, ns: DCQCN raises it in small steps.
const NOTIFIED: u64 = 200_000_000;

/// What a requester waited for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Waited {
    /// Nothing: packets followed each other.
    Transfer,
    /// Acknowledgements and responses, with several messages outstanding.
    Acknowledgement,
    /// The answer to the only message that was outstanding.
    RoundTrip,
    /// Answers that came much later than others.
    Responder,
    /// The receiver had posted no receive.
    ReceiverNotReady,
    /// The acknowledgement timer.
    AckTimeout,
    /// Retransmission after a loss.
    Retransmission,
    /// Retransmission after packets arrived in another order.
    Reordering,
    /// The rate was reduced by congestion notifications.
    ReducedRate,
    /// The peer's messages.
    PeerMessage,
    /// The requesting application had posted nothing.
    Requester,
}

impl Waited {
    /// Returns what was waited for in a few words.
    pub fn words(self) -> &'static str {
        match self {
            Waited::Transfer => "transferring",
            Waited::Acknowledgement => "waiting for acknowledgements",
            Waited::RoundTrip => "waiting for the answer to the only message",
            Waited::Responder => "waiting for late answers",
            Waited::ReceiverNotReady => "waiting for receives (RNR)",
            Waited::AckTimeout => "waiting for the acknowledgement timer",
            Waited::Retransmission => "repeating what was lost",
            Waited::Reordering => "repeating what came in another order",
            Waited::ReducedRate => "sending at a reduced rate (CNP)",
            Waited::PeerMessage => "waiting for the peer's messages",
            Waited::Requester => "waiting for the requesting application",
        }
    }
}

/// A wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) waited: Waited,
    pub(crate) nanos: u64,
    /// When it began.
    pub(crate) at: u64,
    /// The packets that began and ended it.
    pub(crate) packets: [u32; 2],
}

/// A time of trouble: from what began it to the answer to everything that had been sent before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Episode {
    pub(crate) waited: Waited,
    pub(crate) at: u64,
    pub(crate) nanos: u64,
    /// The packet that began it, and the first that was sent again.
    pub(crate) packets: [Option<u32>; 2],
    /// Bytes that were sent again.
    pub(crate) bytes_again: u64,
    /// Whether the acknowledgement of what was repeated had been captured before.
    pub(crate) was_acknowledged: bool,
    /// Nothing before this position is missing once it ends.
    until: i64,
    position: i64,
    resent_at: Option<u64>,
}

/// What was found at one requester.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    pub(crate) waits: Vec<Wait>,
    pub(crate) episodes: Vec<Episode>,
    /// Messages; and those that began while nothing was outstanding.
    pub(crate) messages: u32,
    pub(crate) alone: u32,
    /// Messages of the peer that this requester waited for.
    pub(crate) peer_messages: u32,
    /// Request and response packets with data, without repeated ones; and those that fill the path MTU.
    pub(crate) packets: u32,
    pub(crate) full: u32,
    /// Payload delivered, in both directions.
    pub(crate) bytes: u64,
    pub(crate) packets_again: u32,
    pub(crate) bytes_again: u64,
    pub(crate) sequence_naks: u32,
    pub(crate) rnr_naks: u32,
    pub(crate) selective_acks: u32,
    /// Congestion notifications, and packets that a switch had marked.
    pub(crate) notifications: Vec<u32>,
    pub(crate) marked: Vec<u32>,
    pub(crate) damaged: Vec<(u32, u64)>,
    /// Packets that only the network had put in another order, or doubled.
    pub(crate) reordered: u32,
    pub(crate) duplicates: u32,
    /// The NAK that ended the connection, its packet, its time, and the request that it refuses.
    pub(crate) error: Option<(NakCode, u32, u64, Option<u32>)>,
    /// The times of the first event and of the end.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// Timeouts since the last answer.
    pub(crate) timeouts_in_a_row: u32,
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

    /// Returns the times of trouble of one kind.
    pub(crate) fn episodes(&self, waited: Waited) -> impl Iterator<Item = &Episode> {
        self.episodes.iter().filter(move |episode| episode.waited == waited)
    }

    /// Returns the time from the first event to the end, ns; at least 1.
    pub(crate) fn duration(&self) -> u64 {
        self.end.saturating_sub(self.begin).max(1)
    }
}

/// Usual times of a connection, which tell late ones.
struct Usual {
    /// From one event to the answer that follows it.
    answer: u64,
    /// From one packet of a message to the next.
    packet: u64,
}

impl Usual {
    fn of(timeline: &Timeline) -> Usual {
        let (mut answers, mut packets) = (Vec::new(), Vec::new());
        let mut before: Option<&Event> = None;
        for event in &timeline.events {
            let gap = before.map_or(0, |before| event.at - before.at);
            match (event.what, before.map(|before| before.what)) {
                (What::Request(request), Some(What::Request(_))) if !request.begins => packets.push(gap),
                (What::Response { said: Said::Data { .. }, .. }, Some(What::Response { .. })) => {
                    packets.push(gap)
                }
                (What::Response { said: Said::Ack { .. } | Said::Data { .. }, .. }, Some(_)) => {
                    answers.push(gap)
                }
                _ => {}
            }
            before = Some(event);
        }
        let answer = percentile(answers, 25).unwrap_or(0).max(timeline.near);
        // A reduced rate may prolong most of them.
        Usual { answer, packet: percentile(packets, 5).unwrap_or(0) }
    }

    fn is_late(&self, gap: u64) -> bool {
        gap > (4 * self.answer).max(self.answer + JITTER)
    }
}

/// A message: its positions, from and to, and whether its answer has data.
#[derive(Clone, Copy)]
struct Message {
    begin: i64,
    end: i64,
    is_read: bool,
}

struct State<'a> {
    timeline: &'a Timeline,
    usual: Usual,
    account: Account,
    /// The position after the last request, and up to where requests were answered at the place of the
    /// capture, and at the requester.
    sent: i64,
    answered: i64,
    known: i64,
    /// Answers on their way to the requester: when they arrive, and up to where they answer.
    under_way: VecDeque<(u64, i64)>,
    /// The last answer that reached the requester: when.
    known_at: u64,
    /// Messages that are not answered.
    messages: VecDeque<Message>,
    /// Where the message that is being sent begins.
    message_begin: i64,
    /// Requests that were not captured before later ones: positions, from and to.
    holes: BTreeMap<i64, i64>,
    /// The position of the next data of a response, that after the last data, and the end of the last Read
    /// that was requested again.
    next_data: Option<i64>,
    data_end: i64,
    reread_end: i64,
    episode: Option<Episode>,
    /// The last event that counts: its packet and its time.
    last: (u32, u64),
    /// The last RNR NAK: until when it asks to wait, and its position.
    held: Option<(u64, i64)>,
    /// The responder said that no receive is posted.
    has_no_credit: bool,
    /// Requests that filled holes after NAKs, and when the NAKs came.
    filled: Vec<(i64, u64)>,
    /// The last congestion notification to each side.
    notified: [Option<u64>; 2],
    peer_spoke: bool,
}

/// Attributes the time of a requester.
pub(crate) fn account(timeline: &Timeline) -> Account {
    let first = timeline.events.iter().find(|event| matches!(event.what, What::Request(_)));
    let first = first.or(timeline.events.first());
    let Some(first) = first.copied() else { return Account::default() };
    let mut state = State {
        timeline,
        usual: Usual::of(timeline),
        account: Account { begin: first.at, end: first.at, ..Account::default() },
        sent: 0,
        answered: 0,
        known: 0,
        under_way: VecDeque::new(),
        known_at: 0,
        messages: VecDeque::new(),
        message_begin: 0,
        holes: BTreeMap::new(),
        next_data: None,
        data_end: 0,
        reread_end: 0,
        episode: None,
        last: (first.number, first.at),
        held: None,
        has_no_credit: false,
        filled: Vec::new(),
        notified: [None; 2],
        peer_spoke: false,
    };
    for event in &timeline.events {
        if event.is_marked && !matches!(event.what, What::Damaged | What::Peer) {
            state.account.marked.push(event.number);
        }
        match event.what {
            What::Request(request) => state.on_request(event, &request),
            What::Response { position, said } => state.on_response(event, position, said),
            What::Peer => state.on_peer(event),
            What::Notification { to_requester } => {
                state.notified[usize::from(!to_requester)] = Some(event.at);
                state.account.notifications.push(event.number);
            }
            What::Damaged => state.account.damaged.push((event.number, event.at)),
        }
    }
    state.end_episode();
    state.account
}

impl State<'_> {
    /// Returns the time that an answer takes to the requester and, with what it releases, back.
    fn lag(&self) -> u64 {
        let Timeline { near, far, .. } = *self.timeline;
        // A little too early, so that no request seems to precede the answer that released it.
        if far < (near + far) / 8 { 0 } else { far - far / 16 }
    }

    /// Learns what the requester knows at a time.
    fn look(&mut self, at: u64) {
        while let Some((arrived, upto)) = self.under_way.front().copied().filter(|one| one.0 <= at) {
            self.under_way.pop_front();
            self.known = self.known.max(upto);
            self.known_at = arrived;
        }
    }

    fn wait(&mut self, waited: Waited, from: u64, to: u64, packets: [u32; 2]) {
        let nanos = to.saturating_sub(from);
        if nanos > 0 {
            self.account.waits.push(Wait { waited, nanos, at: from, packets });
        }
    }

    /// Attributes the time since the last event.
    fn pass(&mut self, event: &Event, waited: Waited) {
        let (number, at) = self.last;
        self.wait(waited, at, event.at, [number, event.number]);
        self.move_to(event);
    }

    fn move_to(&mut self, event: &Event) {
        self.last = (event.number, event.at.max(self.last.1));
        self.account.end = self.account.end.max(event.at);
    }

    /// Begins a time of trouble at `position`.
    fn begin(&mut self, waited: Waited, at: u64, by: Option<u32>, position: i64) {
        self.end_episode();
        self.episode = Some(Episode {
            waited,
            at,
            nanos: 0,
            packets: [by, None],
            bytes_again: 0,
            was_acknowledged: false,
            until: self.sent,
            position,
            resent_at: None,
        });
    }

    fn end_episode(&mut self) {
        if let Some(mut episode) = self.episode.take() {
            episode.nanos = self.last.1.saturating_sub(episode.at);
            self.account.episodes.push(episode);
        }
    }

    /// The trouble was only that packets came in another order.
    fn is_only_reordered(&mut self, since: u64) {
        self.account.reordered += 1;
        let episodes = self.account.episodes.iter_mut().rev().take(SEARCH_MAX);
        let episodes = episodes.take_while(|episode| episode.at >= since);
        for episode in episodes.chain(&mut self.episode) {
            if episode.waited == Waited::Retransmission {
                episode.waited = Waited::Reordering;
            }
        }
        let waits = self.account.waits.iter_mut().rev().take(SEARCH_MAX);
        for wait in waits.take_while(|wait| wait.at >= since) {
            if wait.waited == Waited::Retransmission {
                wait.waited = Waited::Reordering;
            }
        }
    }

    // ---- requests

    fn on_request(&mut self, event: &Event, request: &Request) {
        self.look(event.at);
        if request.first < self.sent {
            return self.on_request_again(event, request);
        }
        if request.first > self.sent && self.account.messages > 0 {
            self.holes.insert(self.sent, request.first);
        }
        let gap = event.at.saturating_sub(self.last.1);
        let is_idle = self.known >= self.sent;
        if let Some(episode) = &self.episode {
            let waited = episode.waited;
            self.pass(event, waited);
        } else if self.account.messages == 0 {
            self.move_to(event);
        } else if self.has_no_credit && self.is_gap(gap) {
            self.pass(event, Waited::ReceiverNotReady);
        } else if is_idle && request.begins {
            self.idle(event);
        } else if self.is_slowed(0, event.at) && self.is_gap(gap) {
            self.pass(event, Waited::ReducedRate);
        } else if self.known_at > self.last.1 && gap > 0 {
            self.pass(event, Waited::Acknowledgement);
        } else if request.begins && gap > (4 * self.usual.packet).max(JITTER) {
            // Messages are outstanding, but the window is not full: nothing was posted.
            self.pass(event, Waited::Requester);
        } else {
            self.pass(event, Waited::Transfer);
        }
        if request.begins || self.account.messages == 0 {
            self.account.messages += 1;
            self.account.alone += u32::from(is_idle);
            self.peer_spoke = false;
            self.message_begin = request.first;
        }
        if request.ends {
            let Request { end, is_read, .. } = *request;
            self.messages.push_back(Message { begin: self.message_begin, end, is_read });
        }
        self.count(request.bytes);
        self.sent = self.sent.max(request.end);
    }

    /// The requester sends after a time without anything outstanding.
    fn idle(&mut self, event: &Event) {
        let (number, at) = self.last;
        let far = self.timeline.far;
        let is_pause = event.at - at > far + far / 2 + JITTER.min(4 * self.timeline.shortest_round_trip());
        let back = if is_pause { event.at.min(at + far) } else { event.at };
        self.wait(Waited::RoundTrip, at, back, [number, event.number]);
        self.wait(Waited::Requester, back, event.at, [number, event.number]);
        self.move_to(event);
    }

    fn is_slowed(&self, side: usize, at: u64) -> bool {
        self.notified[side].is_some_and(|notified| at - notified < NOTIFIED)
    }

    /// Returns whether a pause within a message is longer than those between packets that follow each other.
    fn is_gap(&self, gap: u64) -> bool {
        gap > 3 * self.usual.packet + 1000
    }

    fn count(&mut self, bytes: u32) {
        if bytes > 0 {
            self.account.packets += 1;
            self.account.full += u32::from(bytes == self.timeline.path_mtu);
            self.account.bytes += u64::from(bytes);
        }
    }

    /// Returns whether a request fills a hole: it was not captured before.
    fn fill(&mut self, request: &Request) -> bool {
        let Some((from, to)) = self.holes.range(..=request.first).next_back().map(|(from, to)| (*from, *to))
        else {
            return false;
        };
        if request.first >= to {
            return false;
        }
        self.holes.remove(&from);
        for (from, to) in [(from, request.first), (request.end, to)] {
            if from < to {
                self.holes.insert(from, to);
            }
        }
        true
    }

    fn on_request_again(&mut self, event: &Event, request: &Request) {
        let is_new = self.fill(request);
        // What follows a hole's filling shows that it was sent again, and had not come late.
        if self.filled.last().is_some_and(|(position, _)| position + 1 == request.first) {
            self.filled.pop();
        }
        if request.is_read {
            self.reread_end = request.end;
        }
        if is_new {
            self.count(request.bytes);
        } else {
            self.account.packets_again += 1;
            self.account.bytes_again += u64::from(request.bytes);
        }
        if let Some(at) = self.filled.iter().position(|(position, _)| *position == request.first)
            && !is_new
        {
            // It had come late, and comes again because of the NAK.
            let since = self.filled.drain(..=at).map(|(_, since)| since).min();
            self.is_only_reordered(since.unwrap_or(0));
        }
        let gap = event.at.saturating_sub(self.last.1);
        let timeout = TIMEOUT_MIN.max(3 * self.timeline.shortest_round_trip());
        let is_held = self.held.is_some_and(|(until, _)| event.at <= until + timeout);
        self.held = self.held.filter(|(_, position)| request.first > *position);
        let (last, last_at) = self.last;
        // If the way to the requester is not known, it may be that long.
        let is_asked = self.timeline.far == 0
            && self
                .episode
                .is_some_and(|episode| episode.resent_at.is_none() && episode.position == request.first);
        if gap >= timeout && !is_held && !is_asked {
            self.account.timeouts_in_a_row += 1;
            let was_acknowledged = request.end <= self.answered;
            self.begin(Waited::AckTimeout, last_at, Some(last), request.first);
            if let Some(episode) = &mut self.episode {
                episode.was_acknowledged = was_acknowledged;
            }
        } else if is_new && request.first < self.sent {
            // It fills a hole before the requester can know of it.
            match self.episode {
                None => self.account.reordered += 1,
                Some(Episode { at, resent_at: None, .. }) => {
                    self.filled.push((request.first, at));
                    if self.filled.len() > FILLED_MAX {
                        self.filled.remove(0);
                    }
                    if event.at - at < self.timeline.far / 4 * 3 {
                        self.is_only_reordered(at);
                    }
                }
                _ => {}
            }
        } else if self.episode.is_none() && !request.is_read {
            // Nothing asked for it: the network doubled it, or kiban's ends repair a loss selectively.
            self.account.duplicates += u32::from(self.account.selective_acks == 0);
            self.pass(event, Waited::Transfer);
            return;
        } else if self.episode.is_none() {
            self.begin(Waited::Retransmission, last_at, Some(last), request.first);
        }
        let waited = self.episode.map_or(Waited::Transfer, |episode| episode.waited);
        if let Some(episode) = &mut self.episode {
            // Others were under way before the NAK reached the requester.
            if request.first <= episode.position {
                episode.packets[1].get_or_insert(event.number);
                episode.resent_at.get_or_insert(event.at);
            }
            episode.bytes_again += if is_new { 0 } else { u64::from(request.bytes) };
        }
        self.pass(event, waited);
        self.sent = self.sent.max(request.end);
    }

    // ---- answers

    fn on_response(&mut self, event: &Event, position: i64, said: Said) {
        let is_open = self.answered < self.sent;
        self.account.timeouts_in_a_row = 0;
        let upto = match said {
            Said::Ack { .. } | Said::Data { .. } => position + 1,
            _ => position,
        };
        let upto = upto.min(self.sent.max(self.answered));
        if let Said::Error(code) = said
            && self.account.error.is_none()
        {
            self.account.error = Some((code, event.number, event.at, Some(self.last.0)));
        }
        self.account.sequence_naks += u32::from(said == Said::SequenceNak);
        self.account.selective_acks += u32::from(said == Said::Selective);
        let gap = event.at.saturating_sub(self.last.1);
        // The first data of another Read do not follow those of the last one.
        let follows =
            self.next_data == Some(position) && self.messages.front().is_none_or(|one| one.begin < position);
        if let Said::Ack { has_credit } = said {
            self.has_no_credit = !has_credit;
        }
        let is_gap_in_data = matches!(said, Said::Data { .. }) && self.is_data_missing(position);
        if let Said::Data { bytes } = said {
            if position >= self.answered && !is_gap_in_data {
                self.count(bytes);
            } else {
                self.account.packets_again += 1;
                self.account.bytes_again += u64::from(bytes);
            }
            self.next_data = Some(position + 1);
            self.data_end = self.data_end.max(position + 1);
        }
        if is_open {
            // An answer to what came after the missing packet, before it can have been sent again.
            if let Some(episode) = self.episode
                && upto > episode.position
                && episode.resent_at.is_none_or(|at| event.at - at < self.timeline.near / 4 * 3)
                && episode.waited == Waited::Retransmission
                && !matches!(said, Said::Data { .. } | Said::Selective)
            {
                self.is_only_reordered(episode.at);
            }
            let waited = match &self.episode {
                Some(episode) => episode.waited,
                None if follows && self.is_slowed(1, event.at) && self.is_gap(gap) => Waited::ReducedRate,
                None if self.usual.is_late(gap) => Waited::Responder,
                None if follows => Waited::Transfer,
                None if self.messages.len() == 1 && self.messages[0].end == self.sent => Waited::RoundTrip,
                None => Waited::Acknowledgement,
            };
            if waited == Waited::Responder {
                let (number, at) = self.last;
                let usual = at + self.usual.answer;
                self.wait(Waited::RoundTrip, at, usual, [number, event.number]);
                self.wait(waited, usual, event.at, [number, event.number]);
                self.move_to(event);
            } else {
                self.pass(event, waited);
            }
        }
        if !is_gap_in_data {
            self.answered = self.answered.max(upto);
            if matches!(said, Said::Data { .. }) && upto == self.reread_end {
                // Kiban's ends request only what is missing: what follows it had arrived before.
                self.answered = self.answered.max(self.data_end);
            }
            self.under_way.push_back((event.at + self.lag(), self.answered));
            while self.messages.front().is_some_and(|message| message.end <= self.answered) {
                self.messages.pop_front();
            }
        }
        match said {
            Said::RnrNak(pause) => {
                self.account.rnr_naks += 1;
                // The requester of a capture far away answers a lag later.
                self.held = Some((event.at + 4 * pause + self.timeline.far, position));
                let is_known = self.episode.is_some_and(|one| {
                    one.waited == Waited::ReceiverNotReady
                        && one.resent_at.is_none()
                        && one.position == position
                });
                if !is_known {
                    self.begin(Waited::ReceiverNotReady, event.at, Some(event.number), position);
                }
            }
            Said::SequenceNak => {
                let is_known = self
                    .episode
                    .is_some_and(|one| one.position == position && one.waited != Waited::AckTimeout);
                if !is_known {
                    let was = self.episode.filter(|one| one.waited == Waited::Reordering);
                    self.begin(Waited::Retransmission, event.at, Some(event.number), position);
                    // The packets after the one that came late were dropped, and refused in their turn.
                    if let (Some(_), Some(episode)) = (was, &mut self.episode) {
                        episode.waited = Waited::Reordering;
                    }
                }
            }
            Said::Data { .. } if is_gap_in_data && self.episode.is_none() => {
                self.begin(Waited::Retransmission, event.at, Some(event.number), self.answered);
            }
            _ => {}
        }
        if self.episode.is_some_and(|episode| upto >= episode.until) && !is_gap_in_data {
            self.end_episode();
        }
    }

    /// Returns whether data of Reads before this position have not arrived.
    fn is_data_missing(&self, position: i64) -> bool {
        // Few Reads are outstanding at a time.
        for Message { begin, end, is_read } in self.messages.iter().take(OUTSTANDING_MAX) {
            if position < *end {
                return *is_read && position > self.answered.max(*begin);
            }
            if *is_read {
                return true;
            }
        }
        false
    }

    fn on_peer(&mut self, event: &Event) {
        self.look(event.at);
        if self.account.messages > 0 && self.answered >= self.sent {
            self.account.peer_messages += u32::from(!self.peer_spoke);
            self.peer_spoke = true;
            self.pass(event, Waited::PeerMessage);
        }
    }
}
