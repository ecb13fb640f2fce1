//! The sequence diagram of a slow and a fast case: text, SVG, and a capture file.
//!
//! Shape     the client is on the left, the server on the right, with one line per packet and the time since
//!           the previous packet. Packets are shown as the client sees them: when it sends or receives them.
//! Begin     shortly before the first gap, if there is one, otherwise at the first packet.
//! Limits    needs CAP_NET_RAW.

use super::session::Session;
use crate::engine::Failure;
use crate::net::diagnosis::cause::{Cause, Explanation, explain, is_slow};
use crate::net::trial::digest::{Digest, Segment};
use crate::net::trial::evidence::{Evidence, Pattern};
use crate::net::trial::setup::Setup;
use crate::net::trial::stream;
use crate::net::trial::transactions;
use crate::report::picture::{Ladder, Rung};
use kiban_measure::Frame;
use kiban_measure::capture::file;
use serde::Serialize;
use std::fmt;

/// The maximum number of packets that are shown.
const LINES: usize = 20;
/// A stream with at least this number of stalls counts as slow.
const STREAM_GAPS_MIN: u64 = 3;
/// The length of a gap that is marked, ns.
const GAP_NANOS: u64 = 20_000_000;

/// A case and its captured packets.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Case {
    /// The name of the case, usable as a file name.
    pub name: &'static str,
    /// The parameters of the case, in words.
    pub title: String,
    /// The result: exchanges per second, or Mbit/s.
    pub figure: f64,
    /// The unit of the result.
    pub unit: String,
    /// Whether the case is slow.
    pub is_slow: bool,
    /// Why the case is slow; `None` if it is not.
    pub explanation: Option<Explanation>,
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
    pub fn of(session: &Session, name: &'static str, setup: &Setup) -> Result<(Case, Evidence), Failure> {
        let clock = session.clock();
        let (mut evidence, frames) = session.with(|client, path| {
            match setup.pattern {
            Pattern::Stream => stream::run(client, path, setup, clock, true),
            Pattern::StreamBack => Err(Failure::Impossible(
                "a trace shows only what this host sends: run the server here and the trace on the other host"
                    .into(),
            )),
            _ => transactions::run(client, path, setup, clock, true),
        }
        })?;
        if frames.is_empty() {
            return Err(Failure::Impossible(
                "no packets could be captured: a trace needs CAP_NET_RAW (run it as root, or grant it with \
                 setcap cap_net_raw+ep)"
                    .into(),
            ));
        }
        let all = Segment::read_all(&frames);
        let digest = Digest::of(&all, evidence.info.snd_mss);
        // There is no other stream to compare with, so the number of stalls decides whether the case is slow.
        let waits = setup.pattern.is_stream() && digest.gaps >= STREAM_GAPS_MIN;
        evidence.capture = Some(digest);
        let number = match &evidence.exchanges {
            Some(exchanges) => exchanges.count as f64 / evidence.seconds.max(1e-9),
            None => evidence.mbps(),
        };
        let is_slow = waits || is_slow(&evidence, 0.0);
        let unit = if setup.pattern.is_stream() { "Mbit/s" } else { "exchanges/s" };
        let case = Case {
            name,
            title: setup.words(),
            figure: number,
            unit: unit.to_owned(),
            is_slow,
            explanation: is_slow.then(|| explain(&evidence)),
            segments: shown(&all),
            frames,
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
        let rungs = self.segments.iter().enumerate().map(|(at, segment)| {
            let gap = self.gap(at);
            Rung {
                words: words(segment),
                gap: time(gap),
                gap_ms: gap as f64 * 1e-6,
                is_late: gap >= GAP_NANOS,
                sent: segment.sent,
                has_data: segment.bytes > 0,
            }
        });
        Ladder {
            title: format!("{}: {}", self.name, self.title),
            subtitle: format!("{:.1} {}; {why}", self.figure, self.unit),
            rungs: rungs.collect(),
        }
        .svg()
    }

    fn gap(&self, at: usize) -> u64 {
        let before = at.checked_sub(1).map(|before| self.segments[before].nanoseconds);
        before.map_or(0, |before| self.segments[at].nanoseconds.saturating_sub(before))
    }
}

/// Returns the packets to show, starting shortly before the first gap that ends with a pure acknowledgement.
fn shown(all: &[Segment]) -> Vec<Segment> {
    let gap = (1..all.len()).find(|at| {
        all[*at].nanoseconds.saturating_sub(all[*at - 1].nanoseconds) >= GAP_NANOS
            && !all[*at].sent
            && all[*at].bytes == 0
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
    /// Traces a case. If it is slow, also traces it with the remedy; if it is fast, also traces the slow
    /// variant, if that is known.
    ///
    /// # Errors
    /// See [`Case::of`].
    pub fn of(session: &Session, setup: &Setup) -> Result<Trace, Failure> {
        let (welcome, _) = session.path()?;
        let (mut first, evidence) = Case::of(session, "asked", setup)?;
        let mut cases = Vec::new();
        if let Some(why) = &first.explanation {
            first.name = "slow";
            let list =
                crate::net::diagnosis::advice::against(why.cause, setup, &evidence, 0.0, &welcome.congestion);
            let change = list.into_iter().find_map(|advice| advice.setup);
            cases.push(first.clone());
            if let Some(change) = change {
                cases.push(Case::of(session, "fast", &change)?.0);
            }
        } else {
            first.name = "fast";
            cases.push(first);
            if setup.pattern == Pattern::WriteWriteRead && setup.no_delay {
                let (mut other, _) = Case::of(session, "slow", &Setup { no_delay: false, ..setup.clone() })?;
                other.name = if other.is_slow { "slow" } else { "with-nagle" };
                cases.insert(0, other);
            }
        }
        Ok(Trace { host: session.host().to_owned(), cases })
    }

    /// Returns whether the case was slow, and is no longer slow with the remedy.
    pub fn is_removed(&self) -> bool {
        matches!(self.cases.as_slice(), [slow, fast] if slow.is_slow && !fast.is_slow)
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
            let note =
                if gap >= GAP_NANOS && !segment.sent && segment.bytes == 0 { "  <- delayed" } else { "" };
            writeln!(f, "{:>12}  {line}{note}", format!("+{}", time(gap)))?;
        }
        match &self.explanation {
            Some(Explanation { cause, because }) if *cause != Cause::NotExplained => {
                writeln!(f, "{}: {because}", cause.words())
            }
            Some(Explanation { because, .. }) => writeln!(f, "not explained: {because}"),
            None => writeln!(f, "no wait for a timer"),
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cases.iter().try_for_each(|case| writeln!(f, "{case}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case() -> Case {
        let rows =
            [(0u64, true, 40u32), (41_700_000, false, 0), (41_710_000, true, 960), (41_735_000, false, 1)];
        let segments = rows.map(|(nanoseconds, sent, bytes)| Segment {
            nanoseconds,
            sent,
            sequence: 1,
            acknowledged: 1,
            bytes,
            window: 500,
            flags: 0x10,
        });
        let because = "b".to_owned();
        Case {
            name: "slow",
            title: "t".into(),
            figure: 23.0,
            unit: "exchanges/s".into(),
            is_slow: true,
            explanation: Some(Explanation { cause: Cause::NagleDelayedAck, because }),
            segments: shown(&segments),
            frames: Vec::new(),
        }
    }

    #[test]
    fn the_stall_is_marked() {
        let text = case().to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].contains("40 bytes") && lines[2].ends_with('│'), "{text}");
        assert!(lines[3].contains("+41.7 ms") && lines[3].ends_with("<- delayed"), "{text}");
        assert!(lines[4].contains("+10 us") && lines[4].contains("960 bytes"), "{text}");
        assert!(lines[6].starts_with("Nagle's algorithm"), "{text}");
        let svg = case().svg();
        assert_eq!(svg.matches("<path").count(), 1 + 4);
        assert_eq!(svg, case().svg());
    }
}
