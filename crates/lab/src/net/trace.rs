//! The sequence diagram of a slow and a fast case: text, SVG, and a capture file.
//!
//! Shape     the client is on the left, the server on the right, with one line per packet and the time since
//!           the previous packet. Packets are shown as the client sees them: when it sends or receives them.
//! Begin     shortly before the first gap, if there is one, otherwise at the first packet.
//! Back      if the server sends the messages, the names of cases begin with `back-`.
//! Limits    needs CAP_NET_RAW.

use super::session::Session;
use crate::engine::Failure;
use crate::net::diagnosis::advice::against;
use crate::net::diagnosis::cause::{Cause, Explanation, explain, is_slow, is_system_bound};
use crate::net::diagnosis::repeat::GAIN_MIN;
use crate::net::diagnosis::threshold::SlowBelow;
use crate::net::trial::digest::{Digest, GAP_NANOS, Segment};
use crate::net::trial::evidence::{Evidence, Pattern};
use crate::net::trial::run::run;
use crate::net::trial::setup::Setup;
use crate::net::trial::task::Task;
use crate::report::picture::{Arrow, Direction, Sequence};
use crate::table::readable;
use kiban_measure::capture::file;
use kiban_measure::{Datagrams, Frame};
use serde::Serialize;
use std::fmt;
use std::net::Ipv4Addr;

/// The maximum number of packets that are shown.
const LINES: usize = 20;
/// A stream with at least this number of stalls counts as slow.
const STREAM_GAPS_MIN: u64 = 3;

/// A case and its captured packets.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Case {
    /// The name of the case, usable as a file name.
    pub name: String,
    /// Whether the server sends the messages, and this host acknowledges them.
    pub is_back: bool,
    /// The parameters of the case, in words.
    pub title: String,
    /// The result: exchanges per second, or Mbit/s.
    pub figure: f64,
    /// The unit of the result.
    pub unit: String,
    /// The length of a gap that counts as a wait for a timer, ns.
    pub gap_nanos: u64,
    /// Whether the case is slow.
    pub is_slow: bool,
    /// Why the case is slow, or that the path carries no more; `None` otherwise.
    pub explanation: Option<Explanation>,
    /// What to change, if the case is slow.
    pub advice: Vec<String>,
    /// The packets that are shown.
    pub segments: Vec<Segment>,
    /// All packets.
    #[serde(skip)]
    pub frames: Vec<Frame>,
}

impl Case {
    /// Measures a case with a capture.
    ///
    /// # Errors
    /// Returns [`Failure`]: `Impossible` if captures are not permitted.
    pub fn of(
        session: &Session,
        name: &str,
        setup: &Setup,
        slow_below: SlowBelow,
    ) -> Result<(Case, Evidence), Failure> {
        let clock = session.clock();
        let (mut evidence, packets) =
            session.with(|client, path| run(Task { client, path, setup, clock, captured: true }))?;
        if packets.frames.is_empty() {
            return Err(Failure::Impossible(
                "no packets could be captured: a trace needs CAP_NET_RAW (run it as root, or grant it with \
                 setcap cap_net_raw+ep)"
                    .into(),
            ));
        }
        let all = Segment::read_all(packets.measured());
        let is_back = setup.pattern.is_back();
        // A sender's gaps include the round trip.
        let round_trip = if is_back { 0.0 } else { evidence.path.round_trip_us * 1e3 };
        let gap_nanos = GAP_NANOS + round_trip as u64;
        let digest = if is_back {
            Digest::of_received(&all, evidence.info.snd_mss, evidence.path.round_trip_us)
        } else {
            Digest::of(&all, evidence.info.snd_mss, evidence.path.round_trip_us)
        };
        // There is no other stream to compare with, so the number of stalls decides whether the case is slow,
        // unless a rate is given.
        let waits = setup.pattern.is_stream() && digest.gaps >= STREAM_GAPS_MIN;
        evidence.capture = Some(digest);
        let number = match &evidence.exchanges {
            Some(exchanges) => exchanges.count as f64 / evidence.seconds.max(1e-9),
            None => evidence.mbps(),
        };
        let explanation = explain(&evidence, 0.0);
        let is_full = explanation.cause == Cause::PathFull;
        let is_slow =
            is_slow(&evidence, slow_below.mbps(0.0)) || (waits && !is_full) || is_system_bound(&evidence);
        let unit = if setup.pattern.is_stream() { "Mbit/s" } else { "exchanges/s" };
        let case = Case {
            name: case_name(setup.pattern, name),
            is_back,
            // The system's congestion control has a name, too.
            title: Setup { congestion: Some(evidence.given.congestion.clone()), ..setup.clone() }.words(),
            figure: number,
            unit: unit.to_owned(),
            is_slow,
            explanation: (is_slow || is_full).then_some(explanation),
            advice: Vec::new(),
            segments: shown(&all, is_back, gap_nanos),
            gap_nanos,
            frames: packets.frames,
        };
        Ok((case, evidence))
    }

    /// Returns the packets as a capture file (pcap).
    pub fn pcap(&self) -> Vec<u8> {
        file(&self.frames)
    }

    /// Returns the diagram as SVG.
    pub fn svg(&self) -> String {
        let why = self.explanation.as_ref().map_or("no wait for a timer", |why| why.cause.words());
        let arrows = self.segments.iter().enumerate().map(|(at, segment)| {
            let gap = self.gap(at);
            let is_late = gap >= self.gap_nanos;
            let waits = if self.is_delayed(at) { "delayed acknowledgement" } else { "no packet" };
            Arrow {
                after_ms: gap as f64 * 1e-6,
                direction: if segment.sent { Direction::Right } else { Direction::Left },
                what: words(segment),
                wait: is_late.then(|| waits.to_owned()),
            }
        });
        let (figure, unit) = (self.figure, &self.unit);
        Sequence {
            name: self.name.clone(),
            title: format!("{}: {}; {figure:.1} {unit}; {why}", self.name, self.title),
            description: "Packets of a connection, with the time between them".to_owned(),
            ends: ["client", "server"].map(str::to_owned),
            arrows: arrows.collect(),
        }
        .picture()
        .standalone()
    }

    /// Returns in which way the change that led from this case to another one fell short; `None` if it
    /// helped.
    fn shortfall(&self, other: &Case) -> Option<&'static str> {
        if other.figure < GAIN_MIN * self.figure {
            Some(", which does not help")
        } else {
            other.is_slow.then_some(", which is still slow")
        }
    }

    /// Returns whether a packet is an acknowledgement that came late.
    fn is_delayed(&self, at: usize) -> bool {
        self.gap(at) >= self.gap_nanos && is_acknowledgement(&self.segments[at], self.is_back)
    }

    fn gap(&self, at: usize) -> u64 {
        let before = at.checked_sub(1).map(|before| self.segments[before].nanoseconds);
        before.map_or(0, |before| self.segments[at].nanoseconds.saturating_sub(before))
    }
}

/// Returns the name of a case, which is different for each direction.
fn case_name(pattern: Pattern, name: &str) -> String {
    if pattern.is_back() { format!("back-{name}") } else { name.to_owned() }
}

/// Returns whether a packet is a pure acknowledgement of messages. With `is_back`, this host sends those.
fn is_acknowledgement(segment: &Segment, is_back: bool) -> bool {
    segment.sent == is_back && segment.bytes == 0
}

/// Returns the packets to show, starting shortly before the first gap that ends with a pure acknowledgement.
fn shown(all: &[Segment], is_back: bool, gap_nanos: u64) -> Vec<Segment> {
    let gap = (1..all.len()).find(|at| {
        all[*at].nanoseconds.saturating_sub(all[*at - 1].nanoseconds) >= gap_nanos
            && is_acknowledgement(&all[*at], is_back)
    });
    // Start three packets earlier, to show the delayed packet and the reply before it.
    let from = gap.map_or(0, |gap| gap.saturating_sub(3));
    all[from..].iter().take(LINES).copied().collect()
}

fn words(segment: &Segment) -> String {
    let flags = [(0b10, "SYN "), (0b1, "FIN "), (0b100, "RST ")];
    let flags: String =
        flags.iter().filter(|(bit, _)| segment.flags & bit != 0).map(|(_, word)| *word).collect();
    if segment.bytes > 0 {
        format!("{flags}{} bytes", segment.bytes)
    } else {
        format!("{flags}acknowledgement, window field {}", segment.window)
    }
}

fn time(nanos: u64) -> String {
    if nanos >= 1_000_000 {
        format!("{:.1} ms", nanos as f64 * 1e-6)
    } else {
        format!("{:.0} us", nanos as f64 * 1e-3)
    }
}

/// A slow and a fast case of the same network.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Trace {
    /// The host.
    pub host: String,
    /// The case as requested; if it was slow, also with the remedy.
    pub cases: Vec<Case>,
}

impl Trace {
    /// Traces a case in the directions of the given patterns, one after the other.
    ///
    /// # Errors
    /// See [`Case::of`].
    pub fn of(
        session: &Session,
        setup: &Setup,
        patterns: &[Pattern],
        slow_below: SlowBelow,
    ) -> Result<Trace, Failure> {
        // The kernel begins to stamp packets a while after a program asks for it, and the handshake has to be
        // stamped. This socket asks before the session connects.
        let _stamps = Datagrams::bind((Ipv4Addr::UNSPECIFIED, 0).into(), 4096).ok();
        let mut cases = Vec::new();
        for pattern in patterns {
            let setup = Setup { pattern: *pattern, ..setup.clone() };
            cases.extend(Trace::in_one_direction(session, &setup, slow_below)?);
        }
        Ok(Trace { host: session.label().to_owned(), cases })
    }

    /// Traces a case. If it is slow, also traces it with the remedy; if it is fast, also traces the slow
    /// variant, if that is known.
    fn in_one_direction(
        session: &Session,
        setup: &Setup,
        slow_below: SlowBelow,
    ) -> Result<Vec<Case>, Failure> {
        let (welcome, _) = session.path()?;
        let name = |name: &str| case_name(setup.pattern, name);
        let (mut first, evidence) = Case::of(session, "asked", setup, slow_below)?;
        let mut cases = Vec::new();
        if let Some(why) = first.explanation.as_ref().filter(|_| first.is_slow) {
            first.name = name("slow");
            let best_mbps = evidence.path.rate_mbps.max(evidence.mbps());
            let against = |mbps| against(why.cause, setup, &evidence, mbps, &welcome.congestion);
            let mut list = against(best_mbps);
            let change = list.iter().enumerate().find_map(|(at, advice)| Some((at, advice.setup.clone()?)));
            let mut tried = None;
            if let Some((at, change)) = change {
                let (mut other, evidence) = Case::of(session, "fast", &change, slow_below)?;
                // Without a limit of the system, the path may carry more than before.
                if setup.buffer_bytes.is_none() {
                    list = against(best_mbps.max(evidence.mbps()));
                }
                let shortfall = first.shortfall(&other);
                if shortfall.is_some() {
                    other.name = name("changed");
                }
                let [before, after] = [first.figure, other.figure].map(readable);
                list[at].words += &format!(
                    "; measured: {before} -> {after} {}{}",
                    first.unit,
                    shortfall.unwrap_or_default()
                );
                tried = Some(other);
            }
            first.advice = list.into_iter().map(|advice| advice.words).collect();
            cases.push(first);
            cases.extend(tried);
        } else {
            first.name = name("fast");
            cases.push(first);
            if setup.pattern.is_in_two_writes() && setup.no_delay {
                let with_nagle = Setup { no_delay: false, ..setup.clone() };
                let (mut other, _) = Case::of(session, "slow", &with_nagle, slow_below)?;
                other.name = name(if other.is_slow { "slow" } else { "with-nagle" });
                cases.insert(0, other);
            }
        }
        Ok(cases)
    }

    /// Returns a line for each direction, if there are two: its first case, and why that is slow.
    fn summary(&self) -> Vec<String> {
        let first = |is_back| self.cases.iter().find(|case| case.is_back == is_back);
        let (Some(to), Some(from)) = (first(false), first(true)) else { return Vec::new() };
        let line = |way: &str, case: &Case| {
            let why = case.explanation.as_ref().map_or("not slow", |why| why.cause.words());
            format!("{way} {}: {:.1} {}; {why}", self.host, case.figure, case.unit)
        };
        vec![line("to  ", to), line("from", from)]
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}: {:.1} {}", self.name, self.title, self.figure, self.unit)?;
        writeln!(f, "{:>12}  {:<43}server", "", "client")?;
        for (at, segment) in self.segments.iter().enumerate() {
            let gap = self.gap(at);
            let words = format!(" {} ", words(segment));
            let line = if segment.sent {
                format!("├───{words:─<38}──▶│")
            } else {
                format!("│◀──{words:─^38}───┤")
            };
            let note = if self.is_delayed(at) { "  <- delayed" } else { "" };
            writeln!(f, "{:>12}  {line}{note}", format!("+{}", time(gap)))?;
        }
        match &self.explanation {
            Some(Explanation { cause, because }) if *cause != Cause::NotExplained => {
                writeln!(f, "{}: {because}", cause.words())
            }
            Some(Explanation { because, .. }) => writeln!(f, "not explained: {because}"),
            None => writeln!(f, "no wait for a timer"),
        }?;
        self.advice.iter().try_for_each(|advice| writeln!(f, "- {advice}"))
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.summary().iter().try_for_each(|line| writeln!(f, "{line}"))?;
        self.cases.iter().try_for_each(|case| writeln!(f, "{case}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slow case, in which this host or, with `is_back`, the server sends the message.
    fn case(is_back: bool) -> Case {
        let rows =
            [(0u64, true, 40u32), (41_700_000, false, 0), (41_710_000, true, 960), (41_735_000, false, 1)];
        let segments = rows.map(|(nanoseconds, sent, bytes)| Segment {
            nanoseconds,
            sent: sent != is_back,
            sequence: 1,
            acknowledged: 1,
            bytes,
            window: 500,
            flags: 0x10,
        });
        let because = "b".to_owned();
        Case {
            name: "slow".into(),
            is_back,
            title: "t".into(),
            figure: 23.0,
            unit: "exchanges/s".into(),
            is_slow: true,
            explanation: Some(Explanation { cause: Cause::NagleDelayedAck, because }),
            advice: vec!["set TCP_NODELAY on the sender".into()],
            segments: shown(&segments, is_back, GAP_NANOS),
            gap_nanos: GAP_NANOS,
            frames: Vec::new(),
        }
    }

    #[test]
    fn the_stall_is_marked() {
        let text = case(false).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].contains("40 bytes") && lines[2].ends_with('│'), "{text}");
        assert!(lines[3].contains("+41.7 ms") && lines[3].ends_with("<- delayed"), "{text}");
        assert!(lines[4].contains("+10 us") && lines[4].contains("960 bytes"), "{text}");
        assert!(lines[6].starts_with("Nagle's algorithm"), "{text}");
        assert_eq!(lines[7], "- set TCP_NODELAY on the sender");
        let svg = case(false).svg();
        assert_eq!((svg.matches("class=\"hit v\"").count(), svg.matches("class=\"wait\"").count()), (4, 1));
        assert!(svg.contains("41.7 ms: delayed acknowledgement") && svg.contains(">0.010</text>"), "{svg}");
        assert_eq!(svg, case(false).svg());
    }

    #[test]
    fn a_change_has_helped_only_if_the_case_is_faster_and_not_slow() {
        let of = |figure, is_slow| case(false).shortfall(&Case { figure, is_slow, ..case(false) });
        assert_eq!(of(4587.0, false), None);
        assert_eq!(of(4587.0, true), Some(", which is still slow"));
        assert_eq!(of(25.0, false), Some(", which does not help"));
    }

    #[test]
    fn in_the_other_direction_the_acknowledgement_of_this_host_is_marked() {
        let text = case(true).to_string();
        let marked: Vec<&str> = text.lines().filter(|line| line.ends_with("<- delayed")).collect();
        assert!(marked.len() == 1 && marked[0].contains("+41.7 ms") && marked[0].contains("▶"), "{text}");
        let trace = Trace { host: "h".into(), cases: vec![case(false), case(true)] };
        let text = trace.to_string();
        assert!(text.starts_with("to   h: 23.0 exchanges/s; Nagle's algorithm"), "{text}");
        assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("from h: 23.0")), "{text}");
    }
}
