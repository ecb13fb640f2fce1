//! Decides on the causes of one requester.
//!
//! Method           as for TCP, each cause has a rule that asks for its mechanism and returns the time that
//!                  it cost; a cause that explains another one replaces it.
//! Thresholds       a cause must cost a tenth of the time; waiting for the only message 30 %, and for the
//!                  application half. A NAK that ends the connection always is the verdict.

use super::cause::Cause;
use super::connection::Connection;
use super::timeline::{Timeline, What};
use super::waits::{Account, Episode, Wait, Waited, account};
use crate::cause::Cause as AnyCause;
use crate::figures::{bytes, time};
use crate::finding::{Evidence, Finding};
use kiban_rdma::wire::roce::NakCode;

/// Below this time, ns, nothing is worth a verdict.
const LOST_MIN: u64 = 20_000;
/// Fewer packets do not show a pattern of a bulk transfer, and fewer messages none of a sequence.
const PACKETS_MIN: u32 = 20;
const MESSAGES_MIN: u32 = 10;
/// Rare events are how a network works.
const EVENTS_MIN: usize = 3;
/// A path MTU below this value is small: links with 1500 bytes carry 1024.
const PATH_MTU_SMALL: u32 = 1024;
/// The pieces of evidence of a finding.
const EVIDENCE_MAX: usize = 3;
/// Headers of a packet over Ethernet and IPv4, with ICRC.
const HEADER_BYTES: f64 = 58.0;

/// One requester: what it waited for, and the causes, the most expensive first.
pub(crate) struct Direction {
    pub(crate) timeline: Timeline,
    pub(crate) account: Account,
    pub(crate) findings: Vec<Finding>,
}

struct Case<'a> {
    begin: u64,
    requester: usize,
    timeline: &'a Timeline,
    account: &'a Account,
}

/// Analyses the requests of the end `requester`.
pub(crate) fn direction(connection: &Connection, requester: usize, timeline: Timeline) -> Direction {
    let account = account(&timeline);
    let begin = connection.packets.first().map_or(0, |packet| packet.at);
    let findings = Case { begin, requester, timeline: &timeline, account: &account }.findings();
    Direction { timeline, account, findings }
}

impl Case<'_> {
    fn findings(&self) -> Vec<Finding> {
        let mut found: Vec<(Cause, Finding)> = [
            (Cause::RemoteError, self.remote_error()),
            (Cause::AckTimeout, self.timeouts()),
            (Cause::Rnr, self.rnr()),
            (Cause::IcrcError, self.icrc()),
            (Cause::Reordering, self.reordering()),
            (Cause::PacketLoss, self.loss()),
            (Cause::CongestionMarks, self.congestion()),
            (Cause::SlowResponder, self.slow_responder()),
            (Cause::OneAtATime, self.one_at_a_time()),
            (Cause::RequesterLimited, self.requester_limited()),
            (Cause::SmallPathMtu, self.small_path_mtu()),
        ]
        .into_iter()
        .filter_map(|(cause, finding)| Some((cause, finding?)))
        .collect();
        if found.iter().any(|(cause, _)| *cause == Cause::IcrcError) {
            found.retain(|(cause, _)| !matches!(cause, Cause::PacketLoss | Cause::AckTimeout));
        }
        found.sort_by(|(_, one), (_, other)| other.lost_ms.total_cmp(&one.lost_ms));
        found.sort_by_key(|(cause, _)| *cause != Cause::RemoteError);
        found.into_iter().map(|(_, finding)| finding).collect()
    }

    fn finding(&self, cause: Cause, lost: u64, because: String, evidence: Vec<Evidence>) -> Finding {
        Finding {
            cause: AnyCause::Roce(cause),
            sender: self.requester,
            lost_ms: lost as f64 / 1e6,
            lost_percent: (lost as f64 * 1000.0 / self.account.duration() as f64).round().min(1000.0) / 10.0,
            because,
            advice: cause.advice(),
            evidence,
        }
    }

    fn seconds(&self, at: u64) -> f64 {
        at.saturating_sub(self.begin) as f64 / 1e9
    }

    /// Returns whether `lost` is at least `percent` of the time, and worth mentioning.
    fn is_much(&self, lost: u64, percent: u64) -> bool {
        lost >= LOST_MIN && lost * 100 >= self.account.duration() * percent
    }

    /// Returns the longest waits of a kind as evidence.
    fn longest(&self, waited: Waited, what: impl Fn(&Wait) -> String) -> Vec<Evidence> {
        let mut waits: Vec<&Wait> = self.account.waits.iter().filter(|wait| wait.waited == waited).collect();
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.nanos));
        let piece = |wait: &&Wait| Evidence {
            packets: wait.packets.to_vec(),
            at_s: self.seconds(wait.at),
            lost_ms: wait.nanos as f64 / 1e6,
            what: what(wait),
        };
        waits.iter().take(EVIDENCE_MAX).map(piece).collect()
    }

    /// Returns the longest times of trouble of a kind as evidence.
    fn worst(&self, waited: Waited, what: impl Fn(&Episode) -> String) -> Vec<Evidence> {
        let mut episodes: Vec<&Episode> = self.account.episodes(waited).collect();
        episodes.sort_by_key(|episode| std::cmp::Reverse(episode.nanos));
        let piece = |episode: &&Episode| Evidence {
            packets: episode.packets.iter().flatten().copied().collect(),
            at_s: self.seconds(episode.at),
            lost_ms: episode.nanos as f64 / 1e6,
            what: what(episode),
        };
        episodes.iter().take(EVIDENCE_MAX).map(piece).collect()
    }

    fn bytes_again(&self, waited: Waited) -> f64 {
        self.account.episodes(waited).map(|episode| episode.bytes_again as f64).sum()
    }

    fn remote_error(&self) -> Option<Finding> {
        let (code, number, at, request) = self.account.error?;
        let (name, status) = match code {
            NakCode::InvalidRequest => ("invalid request", "IBV_WC_REM_INV_REQ_ERR"),
            NakCode::RemoteAccess => ("remote access error", "IBV_WC_REM_ACCESS_ERR"),
            _ => ("remote operational error", "IBV_WC_REM_OP_ERR"),
        };
        let because = format!(
            "The responder refused a request with a NAK ({name}). The work request fails with {status}, and \
             both queue pairs change to the error state."
        );
        let evidence = vec![Evidence {
            packets: request.into_iter().chain([number]).collect(),
            at_s: self.seconds(at),
            lost_ms: 0.0,
            what: format!("the last request before it, and the NAK ({name})"),
        }];
        Some(self.finding(Cause::RemoteError, 0, because, evidence))
    }

    fn timeouts(&self) -> Option<Finding> {
        let lost = self.account.sum(Waited::AckTimeout);
        let episodes = || self.account.episodes(Waited::AckTimeout);
        let (count, late) =
            (episodes().count(), episodes().filter(|episode| episode.was_acknowledged).count());
        let mut because = format!(
            "The requester fell silent until its acknowledgement timer expired, {count} times for {} in total, \
             and sent {} again.",
            time(lost),
            bytes(self.bytes_again(Waited::AckTimeout))
        );
        if late > 0 {
            because +=
                &format!(" In {late} cases an acknowledgement was captured, and lost on its way back.");
        }
        if self.account.timeouts_in_a_row >= 2 {
            because += " The last requests were never answered: without an answer, the work request fails \
                        with IBV_WC_RETRY_EXC_ERR.";
        }
        let evidence = self.worst(Waited::AckTimeout, |episode| {
            let what = if episode.was_acknowledged { ", although it had been acknowledged" } else { "" };
            format!("a PSN sent again after a silence{what}")
        });
        self.is_much(lost, 10).then(|| self.finding(Cause::AckTimeout, lost, because, evidence))
    }

    fn rnr(&self) -> Option<Finding> {
        let lost = self.account.sum(Waited::ReceiverNotReady);
        let naks = self.account.rnr_naks as usize;
        let count = self.account.count(Waited::ReceiverNotReady);
        let because = format!(
            "The receiver had posted too few receives and sent {naks} RNR NAKs; the requester waited as long as \
             they ask for, or for credits, {} in total, and sent {} again.",
            time(lost),
            bytes(self.bytes_again(Waited::ReceiverNotReady))
        );
        let evidence = self.worst(Waited::ReceiverNotReady, |episode| {
            format!("RNR NAK, and the same PSN again; {} until it was accepted", time(episode.nanos))
        });
        let is_found = count >= EVENTS_MIN && self.is_much(lost, 10) || naks > 0 && self.is_much(lost, 30);
        is_found.then(|| self.finding(Cause::Rnr, lost, because, evidence))
    }

    fn loss(&self) -> Option<Finding> {
        let lost = self.account.sum(Waited::Retransmission);
        let count = self.account.episodes(Waited::Retransmission).count();
        let because = format!(
            "{count} times a packet was missing ({} NAKs with a sequence error); {} were sent again (go-back-N), \
             which took {}.",
            self.account.sequence_naks,
            bytes(self.bytes_again(Waited::Retransmission)),
            time(lost)
        );
        let evidence = self.worst(Waited::Retransmission, |episode| {
            format!("a packet was missing, and {} sent again from there", bytes(episode.bytes_again as f64))
        });
        let is_found = count >= EVENTS_MIN && self.is_much(lost, 10);
        is_found.then(|| self.finding(Cause::PacketLoss, lost, because, evidence))
    }

    fn reordering(&self) -> Option<Finding> {
        let lost = self.account.sum(Waited::Reordering);
        let count = self.account.episodes(Waited::Reordering).count();
        let because = format!(
            "{count} times packets arrived in another order and were refused with a NAK (sequence error), \
             although nothing was lost; {} were sent again, which took {}.",
            bytes(self.bytes_again(Waited::Reordering)),
            time(lost)
        );
        let evidence = self.worst(Waited::Reordering, |_| {
            "a NAK for a packet that arrived late, and what was sent again".to_owned()
        });
        let is_found = count >= EVENTS_MIN && self.is_much(lost, 10);
        is_found.then(|| self.finding(Cause::Reordering, lost, because, evidence))
    }

    fn icrc(&self) -> Option<Finding> {
        let lost = self.account.sum(Waited::Retransmission) + self.account.sum(Waited::AckTimeout);
        let damaged = &self.account.damaged;
        let repaired = self.account.episodes(Waited::Retransmission).count()
            + self.account.episodes(Waited::AckTimeout).count();
        let because = format!(
            "{} packets were captured with a wrong ICRC. The receiver drops them, and repeating them took {}.",
            damaged.len(),
            time(lost)
        );
        let piece = |(number, at): &(u32, u64)| Evidence {
            packets: vec![*number],
            at_s: self.seconds(*at),
            lost_ms: 0.0,
            what: "a packet with a wrong ICRC".to_owned(),
        };
        let evidence = damaged.iter().take(EVIDENCE_MAX).map(piece).collect();
        let is_found = damaged.len() >= EVENTS_MIN && damaged.len() * 2 >= repaired && self.is_much(lost, 10);
        is_found.then(|| self.finding(Cause::IcrcError, lost, because, evidence))
    }

    fn congestion(&self) -> Option<Finding> {
        let lost = self.account.sum(Waited::ReducedRate);
        let Account { notifications, marked, .. } = self.account;
        let because = format!(
            "{} congestion notifications (CNPs) and {} packets with a congestion mark (CE) were captured; the \
             sender reduced its rate and paused within messages for {} in total.",
            notifications.len(),
            marked.len(),
            time(lost)
        );
        let mut evidence = self.longest(Waited::ReducedRate, |wait| {
            format!("the next packet of a message only {} later", time(wait.nanos))
        });
        let at = |number: u32| {
            let at = self.timeline.events.partition_point(|event| event.number < number);
            self.timeline.events.get(at).map_or(self.begin, |event| event.at)
        };
        for (numbers, what) in [(notifications, "the first CNPs"), (marked, "the first marked packets")] {
            evidence.extend(numbers.first().map(|first| Evidence {
                packets: numbers.iter().take(EVIDENCE_MAX).copied().collect(),
                at_s: self.seconds(at(*first)),
                lost_ms: 0.0,
                what: what.to_owned(),
            }));
        }
        let is_found = notifications.len() >= EVENTS_MIN && self.is_much(lost, 10);
        is_found.then(|| self.finding(Cause::CongestionMarks, lost, because, evidence))
    }

    fn slow_responder(&self) -> Option<Finding> {
        let (lost, count) = (self.account.sum(Waited::Responder), self.account.count(Waited::Responder));
        let because = format!(
            "{count} answers (acknowledgements or responses) came much later than others, which take {}: {} in \
             total.",
            time(self.timeline.near),
            time(lost)
        );
        let evidence = self.longest(Waited::Responder, |wait| {
            format!("this answer came {} later than usual", time(wait.nanos))
        });
        let is_found = count >= EVENTS_MIN && self.is_much(lost, 10);
        is_found.then(|| self.finding(Cause::SlowResponder, lost, because, evidence))
    }

    fn one_at_a_time(&self) -> Option<Finding> {
        let Account { messages, alone, peer_messages, .. } = *self.account;
        let lost = self.account.sum(Waited::RoundTrip);
        let because = format!(
            "{alone} of {messages} messages were sent only after the previous one was acknowledged; the round \
             trip of {} was waited for each time, {} in total.",
            time(self.timeline.shortest_round_trip()),
            time(lost)
        );
        let evidence = self.longest(Waited::RoundTrip, |wait| {
            format!("nothing was sent for {} between a message and what followed", time(wait.nanos))
        });
        // An exchange of requests and answers has nothing else to send.
        let is_exchange = peer_messages * 2 > messages;
        let is_found =
            messages >= MESSAGES_MIN && alone * 10 >= messages * 9 && !is_exchange && self.is_much(lost, 30);
        is_found.then(|| self.finding(Cause::OneAtATime, lost, because, evidence))
    }

    fn requester_limited(&self) -> Option<Finding> {
        let lost = self.account.sum(Waited::Requester);
        let because = format!(
            "The requester paused {} times, for {} in total, while everything was acknowledged or the window \
             was open.",
            self.account.count(Waited::Requester),
            time(lost)
        );
        let evidence = self.longest(Waited::Requester, |wait| {
            format!("nothing was sent for {} although nothing was waited for", time(wait.nanos))
        });
        self.is_much(lost, 50).then(|| self.finding(Cause::RequesterLimited, lost, because, evidence))
    }

    fn small_path_mtu(&self) -> Option<Finding> {
        let Account { packets, full, .. } = *self.account;
        let path_mtu = self.timeline.path_mtu;
        let share = |path_mtu: f64| HEADER_BYTES / (path_mtu + HEADER_BYTES);
        let share = share(f64::from(path_mtu)) - share(f64::from(PATH_MTU_SMALL));
        let lost = (self.account.duration() as f64 * share) as u64;
        let because = format!(
            "{full} of {packets} packets were full and had only {path_mtu} bytes of payload: {:.0} times as many \
             packets as with 4096.",
            4096.0 / f64::from(path_mtu.max(1))
        );
        let is_full = |what: &What| match what {
            What::Request(request) => request.bytes == path_mtu,
            What::Response { said: super::timeline::Said::Data { bytes }, .. } => *bytes == path_mtu,
            _ => false,
        };
        let first = self.timeline.events.iter().find(|event| is_full(&event.what));
        let evidence = first.map(|event| Evidence {
            packets: vec![event.number],
            at_s: self.seconds(event.at),
            lost_ms: 0.0,
            what: "the first full packet".to_owned(),
        });
        let is_found = path_mtu < PATH_MTU_SMALL && packets >= PACKETS_MIN && full * 2 > packets;
        is_found.then(|| self.finding(Cause::SmallPathMtu, lost, because, evidence.into_iter().collect()))
    }
}
