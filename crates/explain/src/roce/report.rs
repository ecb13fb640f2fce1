//! The explanation of a connection, in the same form as TCP's.

use super::cause::Cause;
use super::connection::{Connection, Packet};
use super::details::{Details, Flow};
use super::packet::Kind;
use super::timeline::{Said, Timeline, What, path_mtu};
use super::verdict::{Direction, direction};
use crate::cause::Cause as AnyCause;
use crate::excerpt::{Curves, Step, excerpt, thin};
use crate::finding::Finding;
use crate::place::Place;
use crate::report::{Explained, Summary};
use crate::waited::Waited;
use kiban_rdma::wire::roce::{NakCode, Operation, Syndrome};
use std::collections::BTreeMap;

/// A wait of this length in an excerpt is marked, ns.
const WAIT_MIN: u64 = 20_000;

/// Explains a connection. The caller numbers it.
pub(crate) fn explain(connection: &Connection) -> Explained {
    let path_mtu = path_mtu(connection);
    let mut timelines = [0, 1].map(|requester| Timeline::of(connection, requester, path_mtu));
    let [client, server] = &mut timelines;
    client.learn(server);
    server.learn(client);
    let mut requester = 0..2;
    let directions =
        timelines.map(|timeline| direction(connection, requester.next().unwrap_or_default(), timeline));
    let (first, last) = (connection.packets.first(), connection.packets.last());
    let begin = first.map_or(0, |packet| packet.at);
    let seconds = last.map_or(0, |packet| packet.at).saturating_sub(begin) as f64 / 1e9;
    let mut findings: Vec<Finding> =
        directions.iter().flat_map(|direction| direction.findings.iter().cloned()).collect();
    findings.sort_by(|one, other| other.lost_ms.total_cmp(&one.lost_ms));
    let main = usize::from(directions[1].account.bytes > directions[0].account.bytes);
    let is = |finding: &Finding, cause| finding.cause == AnyCause::Roce(cause);
    let is_other = |finding: &Finding| {
        !is(finding, Cause::RequesterLimited)
            && !is(finding, Cause::OneAtATime)
            && finding.lost_percent >= 15.0
    };
    // An application that waits is normal, so it is the verdict only if nothing else is.
    let has_other = findings.iter().any(is_other);
    let is_main = |finding: &Finding| {
        directions[finding.sender].account.bytes * 2 >= directions[1 - finding.sender].account.bytes
    };
    findings.sort_by_key(|finding| match &finding.cause {
        AnyCause::Roce(Cause::RemoteError) => 0,
        AnyCause::Roce(Cause::RequesterLimited) if has_other || !is_main(finding) => 2,
        _ => 1,
    });
    let mut findings = findings.into_iter();
    let verdict = findings.next();
    let shown = verdict.as_ref().map_or(main, |finding| finding.sender);
    let timeline = &directions[main].timeline;
    Explained {
        number: 0,
        ends: [0, 1].map(|end| name(connection, end)),
        packets: connection.packets.len(),
        begin_s: begin as f64 / 1e9,
        seconds,
        rtt_ms: Some(timeline.shortest_round_trip() as f64 / 1e6),
        limits: Vec::new(),
        place: Place::of(timeline.near, timeline.far, main),
        steps: steps(connection, verdict.as_ref()),
        curves: curves(&directions[shown], begin),
        verdict,
        also: findings.collect(),
        shares_path_with: Vec::new(),
        roce: Some(Details {
            queue_pairs: connection.qpns,
            path_mtu,
            flows: directions.each_ref().map(flow),
        }),
        directions: directions.map(|direction| summary(&direction)),
    }
}

/// Returns an end as its address and queue pair, which Wireshark shows in hexadecimal digits, too.
fn name(connection: &Connection, end: usize) -> String {
    let address = connection.ends[end];
    connection.qpns[end].map_or(format!("{address} QP ?"), |qpn| format!("{address} QP {qpn:#x}"))
}

fn flow(direction: &Direction) -> Flow {
    let account = &direction.account;
    Flow {
        messages: account.messages,
        bytes_again: account.bytes_again,
        sequence_naks: account.sequence_naks,
        rnr_naks: account.rnr_naks,
        notifications: account.notifications.len(),
        marked: account.marked.len(),
        reordered: account.reordered,
        duplicates: account.duplicates,
        icrc_errors: account.damaged.len(),
    }
}

fn summary(direction: &Direction) -> Summary {
    let Direction { timeline, account, .. } = direction;
    let mut waited = BTreeMap::new();
    for wait in &account.waits {
        *waited.entry(Waited::Roce(wait.waited)).or_insert(0) += wait.nanos;
    }
    Summary {
        bytes: account.bytes,
        bits_per_second: (account.bytes as f64 * 8e9 / account.duration() as f64).round(),
        segments: account.packets,
        mss: timeline.path_mtu.into(),
        retransmits: account.packets_again,
        timeouts: account.episodes(super::Waited::AckTimeout).count() as u32,
        rtt_loaded_ms: Some(timeline.round_trip(50) as f64 / 1e6),
        waited_ms: waited.into_iter().map(|(waited, nanos)| (waited, nanos as f64 / 1e6)).collect(),
    }
}

fn steps(connection: &Connection, finding: Option<&Finding>) -> Vec<Step> {
    let packets = &connection.packets;
    let place = |at: usize| (packets[at].number, packets[at].at, packets[at].end);
    excerpt(packets.len(), place, finding, WAIT_MIN, |at| words(&packets[at]))
}

/// Returns the contents of a packet.
fn words(packet: &Packet) -> String {
    let Packet { psn, bytes, .. } = *packet;
    let operation = match packet.kind {
        Kind::Transport(operation) => operation,
        Kind::SelectiveAck => return format!("selective ACK, PSN {psn} is missing"),
        _ => return "CNP".to_owned(),
    };
    let name = match operation {
        Operation::SendFirst => "Send First",
        Operation::SendMiddle => "Send Middle",
        Operation::SendLast | Operation::SendLastImmediate | Operation::SendLastInvalidate => "Send Last",
        Operation::SendOnly | Operation::SendOnlyImmediate | Operation::SendOnlyInvalidate => "Send Only",
        Operation::WriteFirst => "Write First",
        Operation::WriteMiddle => "Write Middle",
        Operation::WriteLast | Operation::WriteLastImmediate => "Write Last",
        Operation::WriteOnly | Operation::WriteOnlyImmediate => "Write Only",
        Operation::ReadRequest => "Read Request",
        Operation::ReadResponseFirst => "Read Response First",
        Operation::ReadResponseMiddle => "Read Response Middle",
        Operation::ReadResponseLast => "Read Response Last",
        Operation::ReadResponseOnly => "Read Response Only",
        Operation::Acknowledge => "ACK",
        Operation::AtomicAcknowledge => "Atomic ACK",
        Operation::CompareSwap => "CompareSwap",
        Operation::FetchAdd => "FetchAdd",
    };
    let name = match packet.aeth.map(|aeth| aeth.syndrome) {
        Some(Syndrome::RnrNak(_)) => "RNR NAK",
        Some(Syndrome::Nak(NakCode::SequenceError)) => "NAK (sequence error)",
        Some(Syndrome::Nak(NakCode::InvalidRequest)) => "NAK (invalid request)",
        Some(Syndrome::Nak(NakCode::RemoteAccess)) => "NAK (remote access)",
        Some(Syndrome::Nak(NakCode::RemoteOperational)) => "NAK (remote operation)",
        _ => name,
    };
    let size = match (bytes, packet.dma_bytes) {
        (0, Some(dma)) => format!(", {dma} bytes"),
        (0, None) => String::new(),
        (bytes, _) => format!(", {bytes} bytes"),
    };
    let mark = if packet.is_marked { ", CE" } else { "" };
    let damage = if packet.is_damaged { ", wrong ICRC" } else { "" };
    format!("{name}, PSN {psn}{size}{mark}{damage}")
}

/// Returns the curves of a requester: bytes by positions, as if every packet were full.
fn curves(direction: &Direction, begin: u64) -> Curves {
    let seconds = |at: u64| at.saturating_sub(begin) as f64 / 1e9;
    let bytes = |position: i64| position as f64 * f64::from(direction.timeline.path_mtu);
    let (mut sent, mut acknowledged) = (Vec::new(), Vec::new());
    let mut highest = 0;
    for event in &direction.timeline.events {
        match event.what {
            What::Request(request) => sent.push((seconds(event.at), bytes(request.end))),
            What::Response { position, said } => {
                let is_positive = matches!(said, Said::Ack { .. } | Said::Data { .. });
                highest = highest.max(position + i64::from(is_positive));
                acknowledged.push((seconds(event.at), bytes(highest)));
            }
            _ => {}
        }
    }
    Curves { sent: thin(sent), acknowledged: thin(acknowledged), ..Curves::default() }
}
