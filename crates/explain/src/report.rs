//! The result: plain values, for text, JSON and pages.

use crate::cause::Cause;
use crate::connection::Connection;
use crate::excerpt::{Curves, Step, curves, steps};
use crate::finding::{Evidence, Finding, rate, time};
use crate::roce;
use crate::timeline::{MILLISECOND, Place};
use crate::verdict::{Direction, direction};
use crate::waits::Waited;
use kiban_tcpip::wire::tcp::Flags;
use std::collections::BTreeMap;
use std::fmt;

/// The explanation of a file.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Report {
    /// Packets in the file.
    pub packets: u32,
    /// TCP and RoCEv2 packets that could not be read: cut off before the end of their headers, or malformed.
    pub skipped: u32,
    /// The link type (LINKTYPE_ value) of packets that were passed over because it is not supported.
    pub unsupported_link_type: Option<u32>,
    /// Why the end of the file was not read, if it was not.
    pub unread: Option<String>,
    /// RoCEv2 packets that belong to none of the connections.
    pub roce: roce::Uncounted,
    /// The connections in the order of their first packets.
    pub connections: Vec<Explained>,
}

/// The explanation of a connection.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Explained {
    /// The number of the connection, from 1.
    pub number: usize,
    /// The client's and the server's address and port; of RoCEv2, address and queue pair.
    pub ends: [String; 2],
    /// Packets in both directions.
    pub packets: usize,
    /// Time from the first to the last packet.
    pub seconds: f64,
    /// The shortest round trip.
    pub rtt_ms: f64,
    /// Where the capture was made.
    pub place: Place,
    /// The most expensive cause; `None` if the connection is healthy.
    pub verdict: Option<Finding>,
    /// Other causes, by time lost.
    pub also: Vec<Finding>,
    /// The direction from the client, and the one from the server.
    pub directions: [Summary; 2],
    /// What only RoCEv2 connections have; `None` for TCP.
    pub roce: Option<roce::Details>,
    /// The packets around the first evidence.
    pub steps: Vec<Step>,
    /// The time-sequence graph of the direction that the verdict concerns.
    #[serde(skip)]
    pub curves: Curves,
}

/// What was measured in one direction.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Summary {
    /// Payload bytes delivered.
    pub bytes: u64,
    /// Payload bits per second, from the first segment to the last acknowledgement.
    pub bits_per_second: f64,
    /// Segments that were sent for the first time; of RoCEv2, packets with data, in both directions.
    pub segments: u32,
    /// The largest segment that was sent or agreed on, bytes; of RoCEv2, the path MTU.
    pub mss: u64,
    /// Segments that were retransmitted.
    pub retransmits: u32,
    /// Retransmission timeouts.
    pub timeouts: u32,
    /// The median round trip under load.
    pub rtt_loaded_ms: f64,
    /// What the sender waited for, milliseconds.
    pub waited_ms: BTreeMap<Waited, f64>,
}

/// Explains a connection. The caller numbers it.
pub(crate) fn explain(connection: &Connection) -> Explained {
    let directions = [0, 1].map(|sender| direction(connection, sender));
    let (first, last) = (connection.packets.first(), connection.packets.last());
    let begin = first.map_or(0, |packet| packet.at);
    let seconds = last.map_or(0, |packet| packet.at).saturating_sub(begin) as f64 * 1e-9;
    let mut findings: Vec<Finding> =
        directions.iter().flat_map(|direction| direction.findings.iter().cloned()).collect();
    findings.extend(unanswered_syns(connection));
    findings.sort_by(|one, other| other.lost_ms.total_cmp(&one.lost_ms));
    // An application that waits is normal, so it is the verdict only if nothing else is.
    let is_other = |finding: &Finding| finding.cause != Cause::SenderLimited && finding.lost_percent >= 15.0;
    let has_other = findings.iter().any(is_other);
    let is_demoted = |finding: &Finding| {
        finding.cause == Cause::SenderLimited && (has_other || !is_main(&directions, finding))
    };
    findings.sort_by_key(is_demoted);
    let mut findings = findings.into_iter();
    let verdict = findings.next();
    let main = usize::from(directions[1].account.bytes > directions[0].account.bytes);
    Explained {
        number: 0,
        ends: connection.ends.map(|end| end.to_string()),
        packets: connection.packets.len(),
        seconds,
        rtt_ms: directions[main].timeline.shortest_round_trip() as f64 * 1e-6,
        place: directions[main].timeline.place(main),
        roce: None,
        steps: steps(connection, verdict.as_ref()),
        curves: {
            let shown = verdict.as_ref().map_or(main, |finding| finding.sender);
            curves(&directions[shown].timeline, begin)
        },
        verdict,
        also: findings.collect(),
        directions: directions.map(|direction| summary(&direction)),
    }
}

/// Returns whether a finding concerns the direction that carried most bytes.
fn is_main(directions: &[Direction; 2], finding: &Finding) -> bool {
    directions[finding.sender].account.bytes * 2 >= directions[1 - finding.sender].account.bytes
}

/// Returns a finding if the handshake needed its timer: SYNs are retransmitted after a second.
fn unanswered_syns(connection: &Connection) -> Option<Finding> {
    let syns = connection.packets.iter().take_while(|packet| packet.flags.has(Flags::SYN));
    let own: Vec<_> = syns.filter(|packet| packet.end == 0).collect();
    let (first, last) = (own.first()?, own.last()?);
    let lost = last.at - first.at;
    if own.len() < 2 || lost < 500 * MILLISECOND {
        return None;
    }
    let begin = connection.packets.first()?.at;
    let whole = connection.packets.last()?.at.saturating_sub(begin).max(1);
    let cause = Cause::RetransmissionTimeout;
    (lost * 10 >= whole).then(|| Finding {
        cause,
        sender: 0,
        lost_ms: lost as f64 * 1e-6,
        lost_percent: lost as f64 * 100.0 / whole as f64,
        because: format!("The client sent its SYN {} times before the connection was set up.", own.len()),
        advice: cause.advice(),
        evidence: vec![Evidence {
            packets: own.iter().map(|packet| packet.number).take(4).collect(),
            at_s: 0.0,
            lost_ms: lost as f64 * 1e-6,
            what: "the SYNs".to_owned(),
        }],
    })
}

fn summary(direction: &Direction) -> Summary {
    let Direction { timeline, account, .. } = direction;
    let mut waited_ms = BTreeMap::new();
    for wait in &account.waits {
        *waited_ms.entry(wait.waited).or_insert(0.0) += wait.nanos as f64 * 1e-6;
    }
    Summary {
        bytes: account.bytes.max(0) as u64,
        bits_per_second: account.bytes as f64 * 8e9 / account.duration() as f64,
        segments: account.segments,
        mss: timeline.mss.max(0) as u64,
        retransmits: account.retransmissions,
        timeouts: account.timeouts,
        rtt_loaded_ms: timeline.round_trip(50) as f64 * 1e-6,
        waited_ms,
    }
}

impl Explained {
    /// Returns the verdict in a few words.
    pub fn words(&self) -> &'static str {
        self.verdict.as_ref().map_or("healthy", |finding| finding.cause.words())
    }

    /// Returns how many digits of a second tell the connection's packets apart.
    pub fn digits(&self) -> usize {
        if self.roce.is_some() { 6 } else { 3 }
    }
}

/// Returns milliseconds in words.
fn ms(ms: f64) -> String {
    time((ms * 1e6) as u64)
}

impl fmt::Display for Report {
    /// Writes a table with one line per connection, the verdict first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<24} {:>8} {:>5}  {:>3}  {:<46} {:>9} {:>12} {:>9}",
            "verdict", "lost", "share", "#", "connection", "bytes", "throughput", "RTT"
        )?;
        for one in &self.connections {
            let main = usize::from(one.directions[1].bytes > one.directions[0].bytes);
            let (lost, share) = one.verdict.as_ref().map_or((String::new(), String::new()), |finding| {
                (ms(finding.lost_ms), format!("{:.0} %", finding.lost_percent))
            });
            writeln!(
                f,
                "{:<24} {lost:>8} {share:>5}  {:>3}  {:<46} {:>9} {:>12} {:>9}",
                one.words(),
                one.number,
                format!("{} > {}", one.ends[main], one.ends[1 - main]),
                one.directions[main].bytes,
                rate(one.directions[main].bits_per_second),
                ms(one.rtt_ms)
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Explained {
    /// Writes everything about one connection.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "connection {}: {} and {}", self.number, self.ends[0], self.ends[1])?;
        writeln!(f, "verdict: {}", self.words())?;
        for finding in self.verdict.iter().chain(&self.also) {
            let Finding { cause, sender, because, advice, evidence, .. } = finding;
            let name = ["client", "server"][*sender];
            let what = if self.roce.is_some() { "requests of" } else { "data from" };
            writeln!(f, "\n{} ({what} the {name})", cause.words())?;
            writeln!(f, "  why     {because}")?;
            for Evidence { packets, at_s, what, .. } in evidence {
                let packets: Vec<String> = packets.iter().map(u32::to_string).collect();
                let digits = self.digits();
                writeln!(f, "  packets {} at {at_s:.digits$} s: {what}", packets.join(", "))?;
            }
            writeln!(f, "  do      {advice}")?;
        }
        let place = match self.place {
            Place::Client => "at the client",
            Place::Middle => "between client and server",
            Place::Server => "at the server",
            Place::Unknown => "at an unknown place",
        };
        writeln!(
            f,
            "\ncaptured {place}; RTT {}; {} packets in {:.digits$} s",
            ms(self.rtt_ms),
            self.packets,
            self.seconds,
            digits = self.digits()
        )?;
        for (name, one) in ["client", "server"].iter().zip(&self.directions).filter(|(_, one)| one.bytes > 0)
        {
            writeln!(
                f,
                "{name}: {} bytes, {}, {} {}, {} retransmits, {} timeouts, RTT under load {}",
                one.bytes,
                rate(one.bits_per_second),
                one.segments,
                if self.roce.is_some() { "packets with data" } else { "segments" },
                one.retransmits,
                one.timeouts,
                ms(one.rtt_loaded_ms)
            )?;
            let least = if self.roce.is_some() { 0.001 } else { 1.0 };
            let mut waited: Vec<_> = one.waited_ms.iter().filter(|(_, ms)| **ms >= least).collect();
            waited.sort_by(|one, other| other.1.total_cmp(one.1));
            for (waited, nanos) in waited {
                writeln!(f, "{:>15}  {}", ms(*nanos), waited.words())?;
            }
        }
        Ok(())
    }
}
