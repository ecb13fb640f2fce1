//! The result: plain values, for text, JSON and pages.

use crate::cause::Cause;
use crate::excerpt::{Curves, Step};
use crate::figures::{plural, rate, time};
use crate::finding::{Evidence, Finding};
use crate::place::Place;
use crate::roce;
use crate::waited::Waited;
use std::collections::BTreeMap;
use std::fmt;

/// How many kinds of other packets are named.
const KINDS_MAX: usize = 5;

/// The explanation of a file.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Report {
    /// Packets in the file.
    pub packets: u32,
    /// TCP and RoCEv2 packets that could not be read: cut off before the end of their headers, or malformed.
    pub skipped: u32,
    /// Packets that are neither TCP nor RoCEv2, by what they are.
    pub other: BTreeMap<String, u32>,
    /// TCP packets that are in the file more than once, as after `tcpdump -i any` on a bridge: the copies are
    /// left out.
    pub duplicates: u32,
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
    /// When the first packet was captured, seconds after the first TCP or RoCEv2 packet of the file.
    pub begin_s: f64,
    /// Time from the first to the last packet.
    pub seconds: f64,
    /// The shortest round trip; `None` if it is not known.
    pub rtt_ms: Option<f64>,
    /// Where the capture was made.
    pub place: Place,
    /// The most expensive cause; `None` if the connection is healthy or, with `limits`, cannot be judged.
    pub verdict: Option<Finding>,
    /// Other causes, by time lost.
    pub also: Vec<Finding>,
    /// What the capture does not show, so that some causes cannot be found.
    pub limits: Vec<Limit>,
    /// The direction from the client, and the one from the server.
    pub directions: [Summary; 2],
    /// The numbers of the connections that fill the same path at the same time.
    pub shares_path_with: Vec<usize>,
    /// What only RoCEv2 connections have; `None` for TCP.
    pub roce: Option<roce::Details>,
    /// The packets around the first evidence.
    pub steps: Vec<Step>,
    /// The time-sequence graph of the direction that the verdict concerns.
    #[serde(skip)]
    pub curves: Curves,
}

/// What a capture does not show of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The handshake, so that the windows are not known.
    Handshake,
    /// One of the two directions.
    OneDirection,
    /// Any data.
    NoData,
    /// How long packets waited in a queue before the place of the capture.
    Queue,
}

impl Limit {
    /// Returns the limit in words.
    pub fn words(self) -> &'static str {
        match self {
            Limit::Handshake => {
                "begins without its handshake: causes that concern the window cannot be judged"
            }
            Limit::OneDirection => "has packets of one direction only: nothing can be judged",
            Limit::NoData => "carried no data: nothing can be judged",
            Limit::Queue => {
                "comes at the rate of a link, and may fill a long queue before the place of the capture, which is not \
                 seen without timestamps: capture with timestamps, or at the sender"
            }
        }
    }
}

/// What was measured in one direction.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Summary {
    /// Payload bytes delivered.
    pub bytes: u64,
    /// Payload bits per second, from the first segment to the last acknowledgement, at least for a round
    /// trip.
    pub bits_per_second: f64,
    /// Segments that were sent for the first time; of RoCEv2, packets with data, in both directions.
    pub segments: u32,
    /// The largest segment that was sent or agreed on, bytes; of RoCEv2, the path MTU.
    pub mss: u64,
    /// Segments that were retransmitted.
    pub retransmits: u32,
    /// Retransmission timeouts.
    pub timeouts: u32,
    /// The median round trip under load; `None` if few were measured, or a queue may be where none shows.
    pub rtt_loaded_ms: Option<f64>,
    /// What the sender waited for, milliseconds.
    pub waited_ms: BTreeMap<Waited, f64>,
}

impl Report {
    /// Returns what the file contains instead of connections.
    pub fn contents(&self) -> String {
        let mut other: Vec<_> = self.other.iter().collect();
        other.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let kinds = other.iter().take(KINDS_MAX).map(|(kind, count)| format!("{count} {kind}"));
        let more = (other.len() > KINDS_MAX).then(|| "others".to_owned());
        let kinds: Vec<String> = kinds.chain(more).collect();
        let colon = if kinds.is_empty() { "" } else { ": " };
        format!("{} in the file{colon}{}", plural(self.packets as usize, "packet"), kinds.join(", "))
    }
}

impl Explained {
    /// Returns whether something is wrong: a path that is full carries all it can.
    pub fn is_slow(&self) -> bool {
        self.verdict.as_ref().is_some_and(|finding| finding.cause != Cause::PathFull)
    }

    /// Returns the verdict in a few words. Only a connection that could be judged is healthy.
    pub fn words(&self) -> &'static str {
        let otherwise = if self.limits.is_empty() { "healthy" } else { "no cause found" };
        self.verdict.as_ref().map_or(otherwise, |finding| finding.cause.words())
    }

    /// Returns the hosts that data travel from and to, if they fill their path.
    fn full_route(&self) -> Option<[&str; 2]> {
        let full = self.verdict.as_ref().filter(|finding| finding.cause == Cause::PathFull)?;
        let host = |end: usize| self.ends[end].rsplit_once(':').map_or("", |(host, _)| host);
        Some([host(full.sender), host(1 - full.sender)])
    }

    /// Returns which connections share the path, in words, if others do.
    pub fn sharing(&self) -> Option<String> {
        let numbers: Vec<String> = self.shares_path_with.iter().map(usize::to_string).collect();
        let others = match &numbers[..] {
            [] => return None,
            [one] => format!("connection {one}, which"),
            _ => format!("connections {}, which", numbers.join(", ")),
        };
        let send = if numbers.len() == 1 { "sends" } else { "send" };
        Some(format!("shares its full path with {others} {send} between the same hosts at the same time"))
    }

    /// Returns how many digits of a second tell the connection's packets apart.
    pub fn digits(&self) -> usize {
        if self.roce.is_some() { 6 } else { 3 }
    }

    /// Returns the end that sent most of the data: 0 the client, 1 the server.
    pub fn main_sender(&self) -> usize {
        usize::from(self.directions[1].bytes > self.directions[0].bytes)
    }
}

/// Links the connections that fill the same path: they send between the same hosts, in the same direction,
/// and have at least half of the shorter one's time in common. They are in the order in which they begin.
pub(crate) fn link(connections: &mut [Explained]) {
    let full: Vec<usize> =
        (0..connections.len()).filter(|place| connections[*place].full_route().is_some()).collect();
    for (rank, &place) in full.iter().enumerate() {
        for &other in &full[rank + 1..] {
            let [one, next] = [&connections[place], &connections[other]];
            let end = one.begin_s + one.seconds;
            if next.begin_s > end {
                break;
            }
            let common = end.min(next.begin_s + next.seconds) - next.begin_s;
            let is_shared = common * 2.0 >= one.seconds.min(next.seconds);
            if is_shared && one.full_route() == next.full_route() {
                let numbers = (one.number, next.number);
                connections[place].shares_path_with.push(numbers.1);
                connections[other].shares_path_with.push(numbers.0);
            }
        }
    }
}

/// Returns milliseconds in words.
fn ms(ms: f64) -> String {
    time((ms * 1e6) as u64)
}

/// The names of the ends.
const END_NAMES: [&str; 2] = ["client", "server"];

/// Returns a round trip in words.
fn round_trip(round_ms: Option<f64>) -> String {
    round_ms.map_or("unknown".to_owned(), ms)
}

impl fmt::Display for Report {
    /// Writes a table with one line per connection, the verdict first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<24} {:>9} {:>5}  {:>3}  {:<46} {:<6} {:>9} {:>12} {:>9}",
            "verdict", "time lost", "share", "#", "client > server", "from", "bytes", "throughput", "RTT"
        )?;
        for one in &self.connections {
            let main = one.main_sender();
            let costly = one.verdict.as_ref().filter(|finding| finding.lost_ms > 0.0);
            let (lost, share) = costly.map_or((String::new(), String::new()), |finding| {
                (ms(finding.lost_ms), format!("{:.0} %", finding.lost_percent))
            });
            writeln!(
                f,
                "{:<24} {lost:>9} {share:>5}  {:>3}  {:<46} {:<6} {:>9} {:>12} {:>9}",
                one.words(),
                one.number,
                format!("{} > {}", one.ends[0], one.ends[1]),
                END_NAMES[main],
                one.directions[main].bytes,
                rate(one.directions[main].bits_per_second),
                round_trip(one.rtt_ms)
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
        for limit in &self.limits {
            writeln!(f, "note: this connection {}", limit.words())?;
        }
        if let Some(sharing) = self.sharing() {
            writeln!(f, "note: this connection {sharing}")?;
        }
        for finding in self.verdict.iter().chain(&self.also) {
            let Finding { cause, sender, lost_ms, lost_percent, because, advice, evidence } = finding;
            let what = if self.roce.is_some() { "requests of" } else { "data from" };
            match cause {
                Cause::Refused | Cause::NoHandshake | Cause::NoResponse => {
                    writeln!(f, "\n{}", cause.words())?
                }
                _ => writeln!(f, "\n{} ({what} the {})", cause.words(), END_NAMES[*sender])?,
            }
            writeln!(f, "  why     {because}")?;
            if *lost_ms > 0.0 {
                writeln!(f, "  cost    {}, {lost_percent:.0} % of the time", ms(*lost_ms))?;
            }
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
            "\ncaptured {place}; RTT {}; {} in {:.digits$} s",
            round_trip(self.rtt_ms),
            plural(self.packets, "packet"),
            self.seconds,
            digits = self.digits()
        )?;
        let segment = if self.roce.is_some() { "packet with data" } else { "segment" };
        for (name, one) in END_NAMES.iter().zip(&self.directions).filter(|(_, one)| one.segments > 0) {
            writeln!(
                f,
                "{name}: {}, {}, {}, {}, {}{}",
                plural(one.bytes as usize, "byte"),
                rate(one.bits_per_second),
                if one.segments == 1 || self.roce.is_none() {
                    plural(one.segments as usize, segment)
                } else {
                    format!("{} packets with data", one.segments)
                },
                plural(one.retransmits as usize, "retransmit"),
                plural(one.timeouts as usize, "timeout"),
                one.rtt_loaded_ms.map_or(String::new(), |ms| format!(", RTT under load {}", self::ms(ms)))
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
