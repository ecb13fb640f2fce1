//! The verdict of a sweep: what the first screen of a report says.

use super::advice::Proof;
use super::cause::Cause;
use super::findings::Findings;
use super::map::{Cell, Map};
use super::threshold::SlowBelow;
use crate::engine::Verdict;
use crate::net::trial::evidence::Pattern;
use crate::remote::protocol::Welcome;
use crate::report::{Badge, Block, Grid as Sheet, Tone};
use crate::table::{counted, figure, part_of, readable};
use kiban_osi::ftam::filestore::Date;

/// The factor between the rates of both directions that is worth a remark.
const UNEVEN: f64 = 2.0;
/// The share of lost segments that is worth a remark, percent. A short queue loses one percent of what fills
/// it.
const LOST_PERCENT_MIN: f64 = 2.0;
/// Streams are far below the rate of a burst if they have less than this part of it.
const FAR_BELOW: f64 = 0.25;
/// The number of remedies on the first screen of a report.
const REMEDIES_MAX: usize = 4;

impl Findings {
    /// Returns the rates of streams in words, whether or not they are slow compared with each other; `None`
    /// without streams.
    pub(super) fn rates(&self) -> Option<String> {
        let who = match self.fewest().0 {
            1 => "the best stream has".to_owned(),
            count => format!("{count} streams at once have at most"),
        };
        let [to, from] = [Pattern::Stream, Pattern::StreamBack].map(|pattern| self.best(pattern, |_| true));
        let mut words = match (to, from) {
            (Some(to), Some(from)) => {
                let factor = to.max(from) / to.min(from).max(1e-9);
                let times = if factor >= UNEVEN {
                    format!(", {} times as fast in one direction as in the other", readable(factor))
                } else {
                    String::new()
                };
                format!("{who} {} Mbit/s to the server and {} from it{times}", readable(to), readable(from))
            }
            (Some(to), None) => format!("{who} {} Mbit/s to the server", readable(to)),
            (None, from) => format!("{who} {} Mbit/s from the server", readable(from?)),
        };
        for pattern in [Pattern::Stream, Pattern::StreamBack] {
            if let Some(mbps) = self.full_mbps(pattern) {
                words += &format!("; {}, the path is full at {} Mbit/s", pattern.way(), readable(mbps));
            }
        }
        for pattern in [Pattern::Stream, Pattern::StreamBack] {
            if let Some(percent) = self.lost_percent(pattern) {
                words += &format!(
                    "; {}, {} % of the segments are lost: `kiban lab udp` shows whether they are also lost without load",
                    pattern.way(),
                    readable(percent)
                );
            }
        }
        // The buffers of these streams limit them, not the path.
        let is_relative = self.streams_slow_below == SlowBelow::QuarterOfBest;
        let ample = self.best(Pattern::Stream, |cell| !cell.predicted_slow).filter(|_| is_relative);
        if ample.is_some_and(|mbps| mbps < FAR_BELOW * self.path.rate_mbps) {
            words += &format!(
                "; a burst of 256 KiB passed at {} Mbit/s, as through a rate limiter (a shaper or a policer), which lets \
                 short bursts pass",
                readable(self.path.rate_mbps)
            );
        }
        Some(words)
    }

    /// Returns the fewest connections at once, and the fewest in the opposite direction.
    pub(super) fn fewest(&self) -> (u32, u32) {
        let least = |of: fn(&Map) -> u32| self.maps.iter().map(of).min().unwrap_or(0);
        (least(|map| map.connections), least(|map| map.opposite))
    }

    /// Returns the best figure of a pattern's cells that `counts` selects, with the fewest connections.
    fn best(&self, pattern: Pattern, counts: impl Fn(&Cell) -> bool) -> Option<f64> {
        let is_one = |map: &&Map| map.pattern == pattern && (map.connections, map.opposite) == self.fewest();
        let cells = self.maps.iter().filter(is_one).flat_map(|map| map.iter().map(|(.., cell)| cell));
        cells.filter(|cell| counts(cell)).filter_map(|cell| cell.figure).reduce(f64::max)
    }

    /// Returns the share of the segments of a direction's streams that are lost, percent, if it is large and
    /// no full queue explains it.
    fn lost_percent(&self, pattern: Pattern) -> Option<f64> {
        let maps = self.maps.iter().filter(|map| map.pattern == pattern);
        let shares = maps.flat_map(|map| map.iter().filter_map(|(.., cell)| cell.lost_percent));
        let median = crate::stats::median(&shares.collect::<Vec<f64>>())?;
        (median >= LOST_PERCENT_MIN && self.full_mbps(pattern).is_none()).then_some(median)
    }

    /// Returns the words of a sweep in which only programs with two writes, or only small socket buffers that
    /// the sweep has set, are slow.
    pub(super) fn no_fault(&self) -> Option<&'static str> {
        let causes = || self.causes.iter().map(|count| count.cause);
        if self.causes.is_empty() {
            return None;
        }
        let slow_in_two_writes =
            self.maps.iter().all(|map| map.pattern.is_in_two_writes() || map.counts().1 == 0);
        if slow_in_two_writes && causes().all(|cause| cause == Cause::NagleDelayedAck) {
            return Some(
                "only a program that writes header and body separately, and waits for the reply, is slow: a matter of the \
                 program and TCP at both ends; the path shows no fault in this sweep",
            );
        }
        let of_buffers = [Cause::ReceiveBuffer, Cause::SendBuffer, Cause::SillyWindow];
        let cells = || self.maps.iter().flat_map(Map::iter).filter(|(.., cell)| cell.figure.is_some());
        let is_set = cells().all(|(buffer, _, cell)| buffer > 0 || cell.cause.is_none());
        let has_system = cells().any(|(buffer, ..)| buffer == 0);
        (is_set && has_system && causes().all(|cause| of_buffers.contains(&cause))).then_some(
            "only streams whose socket buffers this sweep made small are slow; with the system's buffers, none is: the path \
             shows no fault in this sweep",
        )
    }

    /// Returns how many isolated slow cells were measured again, in words; `None` if none was.
    pub(super) fn again(&self) -> Option<String> {
        let cells = || self.maps.iter().flat_map(Map::iter).filter(|(.., cell)| !cell.samples.is_empty());
        let passed = cells().filter(|(.., cell)| cell.cause.is_none()).count();
        let again = match (cells().count(), passed) {
            (0, _) => return None,
            (1, 0) => "was measured again: it was slow the second time, too".to_owned(),
            (1, _) => "was measured again: it was not slow the second time, and does not count".to_owned(),
            (_, 0) => "were measured again: all were slow the second time, too".to_owned(),
            (_, 1) => {
                "were measured again: 1 of them was not slow the second time, and does not count".to_owned()
            }
            _ => format!(
                "were measured again: {passed} of them were not slow the second time, and do not count"
            ),
        };
        Some(format!("{} without slow neighbours {again}", counted(cells().count(), "slow cell")))
    }

    /// Returns the sentence of a sweep without slow cells.
    pub(super) fn nothing_slow(&self) -> String {
        let all = self.maps.iter().flat_map(Map::iter).count();
        let measured = self.maps.iter().map(|map| map.counts().0).sum::<usize>();
        if measured < all {
            let were = if measured == 1 { "was" } else { "were" };
            return format!("No cell is slow among the {measured} of {all} that {were} measured.");
        }
        let full = |pattern| self.full_mbps(pattern).is_some();
        let is_compared = self.streams_slow_below == SlowBelow::QuarterOfBest
            && self.maps.iter().any(|map| map.pattern.is_stream());
        match (full(Pattern::Stream) || full(Pattern::StreamBack), is_compared) {
            (true, _) => "No cell is slow for what the path carries.".to_owned(),
            (_, true) if all == 1 => {
                "The only measured cell is not slow, but there is no other one to compare it with.".to_owned()
            }
            _ if all == 1 => "No cell is slow: the only measured cell is as fast as expected.".to_owned(),
            (_, true) => format!(
                "No cell is slow compared with the best one: all {all} measured cells are as fast as expected."
            ),
            _ => format!("No cell is slow: all {all} measured cells are as fast as expected."),
        }
    }

    /// Returns whether a cause makes cells slow whose buffers the system chose: this matters to programs that
    /// set none.
    fn is_of_system(&self, cause: Cause) -> bool {
        self.has_slow(cause, |buffer| buffer == 0)
    }

    fn is_of_set_buffers(&self, cause: Cause) -> bool {
        self.has_slow(cause, |buffer| buffer > 0)
    }

    fn has_slow(&self, cause: Cause, is_one: impl Fn(u32) -> bool) -> bool {
        let mut cells = self.maps.iter().flat_map(Map::iter);
        cells.any(|(buffer, _, cell)| is_one(buffer) && cell.cause == Some(cause))
    }

    /// Returns what the first screen of a report says.
    pub(super) fn verdict(&self) -> Verdict {
        let (all, slow) = self.maps.iter().fold((0, 0), |(all, slow), map| {
            let counts = map.counts();
            (all + counts.0, slow + counts.1)
        });
        let in_two_writes = self.maps.iter().all(|map| map.pattern.is_in_two_writes());
        let by_maps = self.maps.iter().filter_map(Map::slower);
        let removed = self.advice.iter().filter(|proof| proof.removed);
        let by_remedies = removed.filter_map(|proof| Some(proof.after? / proof.before.max(1e-9)));
        let factor = by_maps.chain(by_remedies).fold(0.0, f64::max);
        // What was found comes first, even if more cells have no explanation.
        let explained = || self.causes.iter().filter(|count| count.cause != Cause::NotExplained);
        let explained = explained().find(|count| self.is_of_system(count.cause)).or(explained().next());
        let mut sentence = match explained.or(self.causes.first()) {
            None => self.nothing_slow(),
            Some(count) => {
                let others = slow - count.cells;
                let part =
                    if others > 0 { format!(", and {others} for other reasons") } else { String::new() };
                let up_to = if factor >= 2.0 { format!(", up to {factor:.0} times") } else { String::new() };
                let has_set = self.maps.iter().any(|map| map.buffers.iter().any(|buffer| *buffer > 0));
                let is_of_system = has_set && self.is_of_system(count.cause);
                let system = match (is_of_system, self.is_of_set_buffers(count.cause)) {
                    (false, _) => "",
                    (true, false) => " with the system's buffers",
                    (true, true) => ", also with the system's buffers",
                };
                format!(
                    "{}: {} slow{system}{part}{up_to}.",
                    count.cause.sentence(in_two_writes),
                    part_of(count.cells, all, "cell")
                )
            }
        };
        let more = [self.no_fault().map(str::to_owned), self.again(), self.rates()];
        for more in more.into_iter().flatten().chain(self.at_once()) {
            sentence += &format!(" {}{}.", more[..1].to_uppercase(), &more[1..]);
        }
        let fact = |name: &str, value: String| (name.to_owned(), value);
        let mut facts = Vec::new();
        facts.extend(self.measured.map(|(first, last)| fact("Measured", period(first, last))));
        facts.push(fact("To", self.server_line()));
        facts.extend(self.environment.as_ref().map(|environment| fact("From", environment.line())));
        facts.push(fact(
            "Path",
            format!(
                "RTT {} ms, MSS {} bytes, a burst at {} Mbit/s, congestion control {}",
                readable(self.path.round_trip_us * 1e-3),
                self.path.mss_bytes,
                readable(self.path.rate_mbps),
                self.congestion.join(", ")
            ),
        ));
        facts.push(fact("Command", self.command.clone()));
        let blocks = self.remedies().into_iter().collect();
        Verdict { title: format!("TCP to {}", self.host), sentence, facts, blocks }
    }

    /// Returns the remedies that were tried, those that help first; if none was tried, the advice.
    fn remedies(&self) -> Option<Block> {
        let mut tried: Vec<&Proof> = self.advice.iter().filter(|proof| proof.after.is_some()).collect();
        if tried.is_empty() {
            let advice: Vec<&str> = self.advice.iter().map(|proof| proof.advice.as_str()).collect();
            let words = format!("What may help, not tried: {}.", advice.join("; "));
            return (!advice.is_empty()).then_some(Block::Paragraph(words));
        }
        tried.sort_by_key(|proof| !proof.removed);
        let helps = tried.iter().any(|proof| proof.removed);
        let caption = if helps { "What helps, measured" } else { "What was tried, without success" };
        let mut sheet = Sheet::new(caption, &["change", "#effect", "result"]);
        for proof in tried.iter().take(REMEDIES_MAX) {
            let after = proof.after.unwrap_or_default();
            let effect = format!("{} → {} {}", readable(proof.before), readable(after), proof.unit);
            let (tone, word) = if proof.removed { (Tone::Good, "PROVED") } else { (Tone::Bad, "not proved") };
            sheet.row([proof.advice.as_str().into(), effect.into(), Badge::new(tone, word).into()]);
        }
        Some(Block::Grid(sheet))
    }

    /// Describes the other host in one line.
    fn server_line(&self) -> String {
        let Welcome { board, kernel, kiban, .. } = &self.server;
        let board = board.as_ref().map_or(String::new(), |board| format!(" to board {board}"));
        format!("{}{board}: {kernel}, kiban {kiban}", self.host)
    }

    /// Describes the path in one line.
    pub(super) fn path_line(&self) -> String {
        format!(
            "{}; RTT {:.3} ms, MSS {} bytes, a burst at {} Mbit/s, congestion control {}",
            self.server_line(),
            self.path.round_trip_us * 1e-3,
            self.path.mss_bytes,
            figure(self.path.rate_mbps),
            self.congestion.join(", ")
        )
    }
}

/// Returns a period in words, without seconds.
fn period(first: Date, last: Date) -> String {
    let [begin, end] = [first, last].map(|date| {
        let text = date.text();
        (
            format!("{}-{}-{}", &text[..4], &text[4..6], &text[6..8]),
            format!("{}:{}", &text[8..10], &text[10..12]),
        )
    });
    match (begin, end) {
        (begin, end) if begin == end => format!("{} {} UTC", begin.0, begin.1),
        ((day, from), (last, to)) if day == last => format!("{day} {from} to {to} UTC"),
        ((day, from), (last, to)) => format!("{day} {from} to {last} {to} UTC"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::net::diagnosis::findings::{CauseCount, unit};
    use crate::net::diagnosis::map::Cell;
    use crate::net::trial::path::Path;
    use std::collections::BTreeMap;

    /// A cell: its figure, whether it was predicted to be slow, and the cause.
    pub(in crate::net::diagnosis) type Streamed = (f64, bool, Option<Cause>);

    /// Returns the findings of a sweep whose maps have these patterns and cells: a figure, whether the cell
    /// was predicted to be slow, and the cause.
    pub(in crate::net::diagnosis) fn findings(rate_mbps: f64, maps: &[(Pattern, &[Streamed])]) -> Findings {
        let first = crate::net::diagnosis::cause::tests::stream();
        let cell = |(figure, predicted_slow, cause): &Streamed| Cell {
            figure: Some(*figure),
            mbps: *figure,
            predicted_slow: *predicted_slow,
            cause: *cause,
            ..Cell::default()
        };
        let maps: Vec<Map> = maps
            .iter()
            .map(|(pattern, cells)| Map {
                title: pattern.name().to_owned(),
                pattern: *pattern,
                connections: 1,
                opposite: 0,
                slow_below: None,
                unit: unit(*pattern).to_owned(),
                messages: (1..=cells.len() as u32).collect(),
                buffers: vec![0],
                cells: vec![cells.iter().map(cell).collect()],
            })
            .collect();
        let mut counts: BTreeMap<Cause, usize> = BTreeMap::new();
        for cause in maps.iter().flat_map(Map::iter).filter_map(|(.., cell)| cell.cause) {
            *counts.entry(cause).or_default() += 1;
        }
        let count = |(cause, cells): (Cause, usize)| CauseCount {
            cause,
            words: cause.words().to_owned(),
            cells,
            example: "evidence".to_owned(),
            case: "case".to_owned(),
        };
        let mut causes: Vec<CauseCount> = counts.into_iter().map(count).collect();
        causes.sort_by_key(|count| std::cmp::Reverse(count.cells));
        Findings {
            host: "h".to_owned(),
            server: first.peer,
            board: None,
            path: Path { rate_mbps, ..first.path },
            congestion: vec!["bbr".to_owned()],
            environment: None,
            streams_slow_below: SlowBelow::default(),
            sentence: String::new(),
            maps,
            directions: Vec::new(),
            causes,
            advice: Vec::new(),
            disturbed: 0,
            open: Vec::new(),
            notes: Vec::new(),
            measured: None,
            command: String::new(),
        }
    }

    #[test]
    fn slow_directions_and_rate_limiters_are_named_although_no_cell_is_slow() {
        let even = |mbps: f64| [(mbps, false, None); 3];
        // A policer of 20 Mbit/s lets a burst pass at 276.7.
        let policed =
            findings(276.7, &[(Pattern::Stream, &even(20.8)), (Pattern::StreamBack, &even(2411.0))]);
        let words = policed.verdict().sentence;
        assert!(words.contains("20.8 Mbit/s to the server and 2411 from it, 116 times as fast"), "{words}");
        assert!(words.contains("256 KiB passed at 277 Mbit/s, as through a rate limiter"), "{words}");
        let text = policed.to_string();
        assert!(
            text.contains("No cell is slow compared with the best one")
                && text.contains("Streams: the best stream has 20.8"),
            "{text}"
        );
        let healthy = findings(100.0, &[(Pattern::Stream, &even(94.0)), (Pattern::StreamBack, &even(93.0))]);
        let words = healthy.verdict().sentence;
        assert!(!words.contains("times as fast") && !words.contains("rate limiter"), "{words}");
        // Small buffers limit these streams, not the path.
        let small = findings(100.0, &[(Pattern::Stream, &[(2.0, true, None)])]);
        assert!(!small.verdict().sentence.contains("rate limiter"));
    }

    #[test]
    fn losses_are_mentioned_although_no_cell_is_slow() {
        let mut lossy = findings(200.0, &[(Pattern::Stream, &[(130.0, false, None)])]);
        assert!(!lossy.verdict().sentence.contains("lost"));
        lossy.maps[0].cells[0][0].lost_percent = Some(4.04);
        let words = lossy.verdict().sentence;
        assert!(words.contains("to the server, 4.04 % of the segments are lost: `kiban lab udp`"), "{words}");
        // The queue of a full path overflows.
        lossy.maps[0].cells[0][0].full = Some("130 of about 130 Mbit/s".to_owned());
        assert!(!lossy.verdict().sentence.contains("segments are lost"));
    }

    #[test]
    fn a_program_that_writes_twice_is_no_fault_of_the_path() {
        let cells = [(22.0, true, Some(Cause::NagleDelayedAck)), (9000.0, false, None)];
        let no_fault = "the path shows no fault";
        let only = findings(100.0, &[(Pattern::WriteWriteRead, &cells)]);
        assert!(only.verdict().sentence.contains(no_fault) && only.to_string().contains(no_fault));
        assert!(only.to_string().contains("a burst at 100.0 Mbit/s, congestion control bbr\n"), "{only}");
        let lossy = [(9.0, false, Some(Cause::Loss)), (95.0, false, None)];
        let other = findings(100.0, &[(Pattern::WriteWriteRead, &cells), (Pattern::Stream, &lossy)]);
        assert!(!other.verdict().sentence.contains(no_fault));
    }

    #[test]
    fn small_buffers_of_the_sweep_are_no_fault_of_the_path() {
        let mut only = findings(
            100.0,
            &[(Pattern::Stream, &[(94.0, false, None), (12.0, true, Some(Cause::ReceiveBuffer))])],
        );
        let no_fault = "the path shows no fault";
        // Both cells have the system's buffers.
        assert!(!only.verdict().sentence.contains(no_fault));
        let map = &mut only.maps[0];
        (map.messages, map.buffers) = (vec![1000], vec![0, 16_000]);
        map.cells = map.cells[0].iter().map(|cell| vec![cell.clone()]).collect();
        assert!(only.verdict().sentence.contains(no_fault) && only.to_string().contains(no_fault));
    }

    #[test]
    fn a_thin_direction_that_is_full_is_not_slow_and_has_advice() {
        let mut thin = findings(
            20.0,
            &[(Pattern::Stream, &[(19.6, false, None)]), (Pattern::StreamBack, &[(96.0, false, None)])],
        );
        thin.maps[0].cells[0][0].full = Some("19.6 of about 20 Mbit/s".to_owned());
        thin.advise_full();
        let words = thin.verdict().sentence;
        assert!(words.starts_with("No cell is slow for what the path carries."), "{words}");
        assert!(words.contains("4.9 times as fast in one direction"), "{words}");
        assert!(words.contains("to the server, the path is full at 19.6 Mbit/s"), "{words}");
        let text = thin.to_string();
        assert!(text.contains("- to the server, the path is full at 19.6 Mbit/s: a faster link"), "{text}");
    }

    #[test]
    fn cells_that_were_not_measured_are_not_called_fast() {
        let mut part = findings(100.0, &[(Pattern::Stream, &[(94.0, false, None); 3])]);
        part.maps[0].cells[0][1] = Cell::default();
        let expected = "No cell is slow among the 2 of 3 that were measured.";
        assert!(part.verdict().sentence.starts_with(expected) && part.to_string().contains(expected));
    }

    #[test]
    fn one_cell_is_not_all_cells() {
        for (pattern, expected) in [
            (Pattern::WriteRead, "No cell is slow: the only measured cell is as fast as expected."),
            (
                Pattern::Stream,
                "The only measured cell is not slow, but there is no other one to compare it with.",
            ),
        ] {
            let words = findings(100.0, &[(pattern, &[(94.0, false, None)])]).verdict().sentence;
            assert!(words.starts_with(expected), "{words}");
        }
    }

    #[test]
    fn cells_that_were_measured_again_are_counted() {
        let mut twice = findings(100.0, &[(Pattern::Stream, &[(94.0, false, None); 3])]);
        twice.maps[0].cells[0][1].samples = vec![7.0, 94.0];
        let expected = "1 slow cell without slow neighbours was measured again: it was not slow the second time, and does not";
        assert!(twice.to_string().contains(expected), "{twice}");
        twice.maps[0].cells[0][2].samples = vec![8.0, 94.0];
        let expected = "2 of them were not slow the second time, and do not count";
        assert!(twice.to_string().contains(expected), "{twice}");
        twice.maps[0].cells[0][2].cause = Some(Cause::Loss);
        let expected = "1 of them was not slow the second time, and does not count";
        assert!(twice.to_string().contains(expected), "{twice}");
        assert!(twice.maps[0].cells[0][1].note().words.ends_with("measured again: 7, then 94"));
    }

    #[test]
    fn an_explained_cause_is_the_headline_before_cells_without_one() {
        let unknown = (1.0, false, Some(Cause::NotExplained));
        let cells = [unknown, unknown, (9.0, false, Some(Cause::Loss)), (95.0, false, None)];
        let words = findings(100.0, &[(Pattern::Stream, &cells)]).verdict().sentence;
        assert!(
            words.starts_with("Segments are lost: 1 of 4 cells is slow, and 2 for other reasons"),
            "{words}"
        );
        let words = findings(100.0, &[(Pattern::Stream, &[unknown, (95.0, false, None)])]).verdict().sentence;
        assert!(words.starts_with("No cause was found: 1 of 2 cells is slow"), "{words}");
    }

    #[test]
    fn a_limit_of_the_system_comes_before_the_buffers_that_the_sweep_made_small() {
        let (own, system) = (Some(Cause::ReceiveBuffer), Some(Cause::SendBuffer));
        let cells = [(1.0, true, own), (2.0, true, own), (9.0, false, system)];
        let mut found = findings(100.0, &[(Pattern::Stream, &cells)]);
        let map = &mut found.maps[0];
        (map.messages, map.buffers) = (vec![1], vec![2000, 4000, 0]);
        map.cells = std::mem::take(&mut map.cells[0]).into_iter().map(|cell| vec![cell]).collect();
        let sentence = found.verdict().sentence;
        let expected = "The send buffer is smaller than the bandwidth-delay product: 1 of 3 cells is slow with \
                        the system's buffers, and 2 for other reasons";
        assert!(sentence.starts_with(expected), "{sentence}");
    }

    #[test]
    fn a_period_names_a_day_once() {
        let at = |seconds: i64| Date(1_700_000_000 + seconds);
        for (last, expected) in [
            (5, "2023-11-14 22:13 UTC"),
            (600, "2023-11-14 22:13 to 22:23 UTC"),
            (7200, "2023-11-14 22:13 to 2023-11-15 00:13 UTC"),
        ] {
            assert_eq!(period(at(0), at(last)), expected);
        }
    }
}
