//! The findings of a sweep: maps, causes, remedies, and the effect of the remedies.
//!
//! Source    only the records in the sweep's directory, so findings can be recomputed at any time, even
//!           during the sweep.
//! Proofs    remedies usually use settings outside the grid, so each remedy is measured by a run of its own
//!           with one point. The run's folder is below `proofs` in the sweep's directory; its name is the
//!           first digits of the trial's key.
//! Loss      heavy loss in at least half of the streams of a direction is a fault of the path, whether or not
//!           they are slow: if all are equally slow, none is slow compared with the best one.
//! Path      the path in the findings is that of the first record; every record contains the path that was
//!           measured for it.

use super::advice::{Proof, against};
use super::boundary::should_be_slow;
use super::cause::{Cause, explain, is_lossy, is_slow};
use super::directions::Directions;
use super::map::{BOUNDARY, Cell, Map};
use super::threshold::SlowBelow;
use crate::engine::{Explanation, Manifest, Plan, Record, Records, Shard, StoreError, Time, Verdict};
use crate::environment::Environment;
use crate::net::grid::Grid;
use crate::net::trial::evidence::{Evidence, Pattern};
use crate::net::trial::path::Path;
use crate::net::trial::setup::{QUESTION, Setup};
use crate::remote::protocol::Welcome;
use crate::report::picture::Note;
use crate::report::{Badge, Block, Grid as Sheet, Section, Tone};
use crate::table::{Table, counted, figure, readable};
use kiban_osi::ftam::filestore::Date;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path as Folder, PathBuf};

/// The cells in which a cause was found.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CauseCount {
    /// The cause.
    pub cause: Cause,
    /// The cause in words.
    pub words: String,
    /// The number of cells.
    pub cells: usize,
    /// The evidence from the worst of these cells.
    pub example: String,
    /// The worst of these cells, in words.
    pub case: String,
}

/// The findings of a sweep.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Findings {
    /// The host.
    pub host: String,
    /// The server's description of itself.
    pub server: Welcome,
    /// The board whose TCP the client used; `None` for the host's.
    pub board: Option<String>,
    /// The path.
    pub path: Path,
    /// The environment of the measurement.
    pub environment: Option<Environment>,
    /// The rate below which streams are slow.
    pub streams_slow_below: SlowBelow,
    /// One map for each combination of all settings except message and buffer.
    pub maps: Vec<Map>,
    /// Maps that differ only in the direction, side by side.
    pub directions: Vec<Directions>,
    /// Causes, starting with the most frequent one.
    pub causes: Vec<CauseCount>,
    /// The remedies and their effects.
    pub advice: Vec<Proof>,
    /// The number of points that were measured under foreign load.
    pub disturbed: usize,
    /// Remedies that have not been measured: their descriptions and their points.
    #[serde(skip)]
    pub open: Vec<(String, Setup)>,
    /// Remarks about cells.
    #[serde(skip)]
    notes: Vec<(Setup, Note)>,
    /// When the first and the last trial ended; `None` if the records do not say.
    #[serde(skip)]
    measured: Option<(Date, Date)>,
    /// The command that repeats the sweep.
    #[serde(skip)]
    command: String,
}

/// Returns the directory and the plan of the run that measures a point with a remedy.
pub(in crate::net) fn proof(dir: &Folder, host: &str, setup: &Setup) -> (PathBuf, Plan) {
    let parameters = setup.point(host).0.into_iter().map(|(name, value)| (name, vec![value])).collect();
    let plan = Plan { question: QUESTION.to_owned(), repetitions: 1, seeds: vec![1], parameters };
    let key = Manifest::new(Time::Real, plan.clone(), Shard::ALL).key(&plan.trial(0));
    (dir.join("proofs").join(&key[..12]), plan)
}

/// The measurements of a point.
struct Measured {
    figure: f64,
    evidence: Evidence,
}

impl Measured {
    fn of(record: &Record) -> Option<Measured> {
        let evidence: Evidence = serde_json::from_value(record.evidence.clone()).ok()?;
        let figure = *record.metrics.get(evidence.pattern.metric())?;
        Some(Measured { figure, evidence })
    }
}

/// The records of a sweep.
struct Sweep {
    host: String,
    grid: Grid,
    records: HashMap<String, Measured>,
}

impl Sweep {
    fn get(&self, setup: &Setup) -> Option<&Measured> {
        self.records.get(&setup.point(&self.host).to_string())
    }

    /// Returns whether at least half of the streams in the pattern's direction lose many segments.
    fn is_lossy(&self, pattern: Pattern) -> bool {
        let streams = || self.records.values().map(|one| &one.evidence).filter(|one| one.pattern == pattern);
        let lossy = streams().filter(|evidence| is_lossy(evidence)).count();
        lossy > 0 && lossy * 2 >= streams().count()
    }

    /// Returns the rate of the best stream in the pattern's direction, and the best rate of all trials,
    /// Mbit/s.
    fn best(&self, pattern: Pattern) -> (f64, f64) {
        let best = |of: &dyn Fn(&Evidence) -> bool| {
            let all = self.records.values().map(|measured| &measured.evidence);
            all.filter(|evidence| of(evidence)).map(Evidence::mbps).fold(0.0, f64::max)
        };
        let of_direction = |evidence: &Evidence| pattern.is_stream() && evidence.pattern == pattern;
        (best(&of_direction), best(&|_| true))
    }
}

impl Findings {
    /// Reads the findings from a sweep's directory; `None` if it belongs to another question, or has no
    /// records.
    ///
    /// # Errors
    /// The directory is not the directory of a run, or cannot be read.
    pub fn of(dir: &Folder) -> Result<Option<Findings>, StoreError> {
        let manifest = Manifest::read(dir)?;
        let Some((host, grid)) = Grid::of(&manifest.plan) else { return Ok(None) };
        let records: Vec<Record> = Records::read(dir, &manifest)?.in_order(&manifest).collect();
        let measured = |record: &Record| Some((record.point.to_string(), Measured::of(record)?));
        let command = grid.command(&host);
        let sweep = Sweep { host, grid, records: records.iter().filter_map(measured).collect() };
        let first = records.iter().find_map(|record| Some((record, Measured::of(record)?.evidence)));
        let Some((record, first)) = first else { return Ok(None) };
        let mut findings = Findings {
            host: sweep.host.clone(),
            server: first.peer,
            board: first.board,
            path: first.path,
            environment: record.environment.clone(),
            streams_slow_below: SlowBelow::read(dir)?,
            maps: Vec::new(),
            directions: Vec::new(),
            causes: Vec::new(),
            advice: Vec::new(),
            disturbed: records.iter().filter(|record| record.foreign_cores.is_some()).count(),
            open: Vec::new(),
            notes: Vec::new(),
            measured: times(&records),
            command,
        };
        let worst = findings.draw(&sweep);
        findings.directions = Directions::of(&findings.maps);
        for (count, setup) in findings.causes.clone().iter().zip(&worst) {
            findings.advise(dir, &sweep, count, setup)?;
        }
        Ok(Some(findings))
    }

    /// Finds maps and causes, and the worst case of each cause.
    fn draw(&mut self, sweep: &Sweep) -> Vec<Setup> {
        let mut found: BTreeMap<Cause, Vec<(f64, Setup, String)>> = BTreeMap::new();
        for group in sweep.grid.groups() {
            let (best_stream, _) = sweep.best(group.pattern);
            let slow_mbps = self.streams_slow_below.mbps(best_stream);
            let predicted_mbps = self.streams_slow_below.mbps(best_stream.max(self.path.rate_mbps));
            let judge = Judge { slow_mbps, predicted_mbps, is_lossy: sweep.is_lossy(group.pattern) };
            let mut rows = Vec::new();
            for buffer in &sweep.grid.buffers {
                let mut row = Vec::new();
                for message in &sweep.grid.messages {
                    let setup = sweep.grid.cell(&group, *buffer, *message);
                    let cell = self.cell(sweep, &setup, &judge);
                    if let (Some(cause), Some(number)) = (cell.cause, cell.figure) {
                        found.entry(cause).or_default().push((number, setup, cell.because.clone()));
                    }
                    row.push(cell);
                }
                rows.push(row);
            }
            self.maps.push(Map {
                title: title(&group),
                pattern: group.pattern,
                slow_below: group.pattern.is_stream().then(|| self.streams_slow_below.to_string()),
                unit: unit(group.pattern).to_owned(),
                messages: sweep.grid.messages.clone(),
                buffers: sweep.grid.buffers.clone(),
                cells: rows,
            });
        }
        let mut counts: Vec<_> = found
            .into_iter()
            .map(|(cause, mut cells)| {
                cells.sort_by(|one, other| one.0.total_cmp(&other.0));
                let (_, setup, because) = &cells[0];
                let count = CauseCount {
                    cause,
                    words: cause.words().to_owned(),
                    cells: cells.len(),
                    example: because.clone(),
                    case: setup.words(),
                };
                (count, setup.clone())
            })
            .collect();
        counts.sort_by_key(|(count, _)| std::cmp::Reverse(count.cells));
        let (causes, worst) = counts.into_iter().unzip();
        self.causes = causes;
        worst
    }

    fn cell(&mut self, sweep: &Sweep, setup: &Setup, judge: &Judge) -> Cell {
        let predicted_slow = should_be_slow(setup, &self.path, judge.predicted_mbps);
        let mut cell = Cell { figure: None, mbps: 0.0, predicted_slow, cause: None, because: String::new() };
        let Some(Measured { figure, evidence }) = sweep.get(setup) else { return cell };
        (cell.figure, cell.mbps) = (Some(*figure), evidence.mbps());
        if is_slow(evidence, judge.slow_mbps) || (judge.is_lossy && is_lossy(evidence)) {
            let explanation = explain(evidence);
            (cell.cause, cell.because) = (Some(explanation.cause), explanation.because);
        }
        self.notes.push((setup.clone(), cell.note()));
        cell
    }

    /// Returns the remedies for a cause, and the effect on its worst case of those that were tried.
    fn advise(
        &mut self,
        dir: &Folder,
        sweep: &Sweep,
        count: &CauseCount,
        setup: &Setup,
    ) -> Result<(), StoreError> {
        let (best_stream, best) = sweep.best(setup.pattern);
        let slow_mbps = self.streams_slow_below.mbps(best_stream);
        let best = best.max(self.path.rate_mbps);
        let Some(Measured { figure: before, evidence }) = sweep.get(setup) else { return Ok(()) };
        for advice in against(count.cause, setup, evidence, best, &self.server.congestion) {
            let mut proof = Proof {
                advice: advice.words,
                case: count.case.clone(),
                before: *before,
                after: None,
                unit: unit(setup.pattern).to_owned(),
                removed: false,
                note: String::new(),
            };
            if let Some(changed) = advice.setup {
                let apart =
                    if sweep.get(&changed).is_none() { proved(dir, &sweep.host, &changed)? } else { None };
                match sweep.get(&changed).or(apart.as_ref()) {
                    Some(Measured { figure: after, evidence }) => {
                        proof.after = Some(*after);
                        let why = why_not_proved(count.cause, evidence, slow_mbps, after / before.max(1e-9));
                        proof.removed = why.is_none();
                        proof.note = why.unwrap_or_default();
                    }
                    None => {
                        proof.note = "the sweep ended before this measurement".to_owned();
                        self.open.push((proof.advice.clone(), changed));
                    }
                }
            }
            self.advice.push(proof);
        }
        Ok(())
    }

    /// Records why points with remedies could not be measured.
    pub(in crate::net) fn add_notes(&mut self, notes: &[(String, String)]) {
        for proof in self.advice.iter_mut().filter(|proof| proof.after.is_none() && !proof.note.is_empty()) {
            if let Some((_, why)) = notes.iter().find(|(advice, _)| *advice == proof.advice) {
                proof.note.clone_from(why);
            }
        }
    }

    /// Returns the explanation for a report page.
    pub fn explanation(&self) -> Explanation {
        let mut explanation = Explanation::default();
        explanation.verdict = Some(self.verdict());
        explanation.boundary = BOUNDARY.to_owned();
        for (setup, note) in &self.notes {
            explanation.note(&setup.point(&self.host), note.clone());
        }
        let mut blocks = Vec::new();
        for map in &self.maps {
            let (all, slow, right) = map.counts();
            blocks.push(Block::Paragraph(format!(
                "{}: {slow} of {all} cells are slow{}; the prediction from the rule and the path's MSS is \
                 right for {right} of {all} cells.",
                map.title,
                map.threshold()
            )));
        }
        if !self.causes.is_empty() {
            let mut sheet = Sheet::new(
                "Causes, the most frequent first",
                &["mark", "cause", "#cells", "worst", "evidence"],
            );
            for count in &self.causes {
                let letter = count.cause.letter().to_string();
                let cells = [
                    letter,
                    count.words.clone(),
                    count.cells.to_string(),
                    count.case.clone(),
                    count.example.clone(),
                ];
                sheet.row(cells.map(Into::into));
            }
            blocks.push(Block::Grid(sheet));
        }
        explanation.sections.push(Section { heading: "Why cells are slow".to_owned(), blocks });
        if !self.directions.is_empty() {
            let blocks = self.directions.iter().map(|both| Block::Grid(both.sheet())).collect();
            explanation.sections.push(Section { heading: "Both directions".to_owned(), blocks });
        }
        if !self.advice.is_empty() {
            let heads = ["advice", "case", "#before", "#after", "unit", "verdict"];
            let mut sheet = Sheet::new("What helps, tested on the worst case of each cause", &heads);
            for proof in &self.advice {
                let (tone, word) = match (proof.after, proof.removed) {
                    (Some(_), true) => (Tone::Good, "PROVED"),
                    (Some(_), false) => (Tone::Bad, "not proved"),
                    (None, _) => (Tone::Plain, "not tried"),
                };
                let after = proof.after.map_or("–".to_owned(), readable);
                let note = (!proof.note.is_empty()).then(|| proof.note.clone());
                sheet.row([
                    proof.advice.as_str().into(),
                    proof.case.as_str().into(),
                    readable(proof.before).into(),
                    after.into(),
                    proof.unit.as_str().into(),
                    crate::report::Cell::from(Badge::new(tone, word)).with_note(note),
                ]);
            }
            let blocks = vec![Block::Grid(sheet)];
            explanation.sections.push(Section { heading: "What to change".to_owned(), blocks });
        }
        explanation
    }

    /// Returns the rates of streams in words, whether or not they are slow compared with each other; `None`
    /// without streams.
    fn rates(&self) -> Option<String> {
        let best = |pattern: Pattern, all: bool| {
            let maps = self.maps.iter().filter(|map| map.pattern == pattern);
            let cells = maps.flat_map(|map| map.iter().map(|(.., cell)| cell));
            cells.filter(|cell| all || !cell.predicted_slow).filter_map(|cell| cell.figure).reduce(f64::max)
        };
        let (to, from) = (best(Pattern::Stream, true), best(Pattern::StreamBack, true));
        let mut words = match (to, from) {
            (Some(to), Some(from)) => {
                let factor = to.max(from) / to.min(from).max(1e-9);
                let times = if factor >= UNEVEN {
                    format!(", {} times as fast in one direction as in the other", readable(factor))
                } else {
                    String::new()
                };
                format!(
                    "the best stream has {} Mbit/s to the server and {} from it{times}",
                    readable(to),
                    readable(from)
                )
            }
            (Some(to), None) => format!("the best stream has {} Mbit/s to the server", readable(to)),
            (None, from) => format!("the best stream has {} Mbit/s from the server", readable(from?)),
        };
        // Streams that their buffers limit say nothing about the path.
        let ample =
            best(Pattern::Stream, false).filter(|_| self.streams_slow_below == SlowBelow::QuarterOfBest);
        if ample.is_some_and(|mbps| mbps < FAR_BELOW * self.path.rate_mbps) {
            words += &format!(
                "; a burst of 256 KiB passed at {} Mbit/s, as through a rate limiter (a shaper or a policer), which lets \
                 short bursts pass",
                readable(self.path.rate_mbps)
            );
        }
        Some(words)
    }

    /// Returns the words of a sweep in which only programs with two writes are slow.
    fn only_two_writes(&self) -> Option<&'static str> {
        let [only] = &self.causes[..] else { return None };
        let slow_in_two_writes =
            self.maps.iter().all(|map| map.pattern.is_in_two_writes() || map.counts().1 == 0);
        (only.cause == Cause::NagleDelayedAck && slow_in_two_writes).then_some(
            "only a program that writes header and body separately, and waits for the reply, is slow: a matter of the \
             program and TCP at both ends; the path shows no fault in this sweep",
        )
    }

    /// Returns what the first screen of a report says.
    fn verdict(&self) -> Verdict {
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
        let explained = self.causes.iter().find(|count| count.cause != Cause::NotExplained);
        let mut sentence = match explained.or(self.causes.first()) {
            None => format!(
                "No cell is slow{}: all {all} measured cells are as fast as expected.",
                if self.maps.iter().any(|map| map.pattern.is_stream()) {
                    " compared with the best one"
                } else {
                    ""
                }
            ),
            Some(count) => {
                let others = slow - count.cells;
                let part =
                    if others > 0 { format!(", and {others} for other reasons") } else { String::new() };
                let up_to = if factor >= 2.0 { format!(", up to {factor:.0} times") } else { String::new() };
                format!(
                    "{}: {} of {all} cells are slow{part}{up_to}.",
                    count.cause.sentence(in_two_writes),
                    count.cells
                )
            }
        };
        for more in [self.only_two_writes().map(str::to_owned), self.rates()].into_iter().flatten() {
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
                "RTT {} ms, MSS {} bytes, about {} Mbit/s",
                readable(self.path.round_trip_us * 1e-3),
                self.path.mss_bytes,
                readable(self.path.rate_mbps)
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
            let (tone, word) = if proof.removed { (Tone::Good, "helps") } else { (Tone::Bad, "not proved") };
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
    fn path_line(&self) -> String {
        format!(
            "{}; RTT {:.3} ms, MSS {} bytes, about {} Mbit/s",
            self.server_line(),
            self.path.round_trip_us * 1e-3,
            self.path.mss_bytes,
            figure(self.path.rate_mbps)
        )
    }
}

/// How the cells of a map are judged.
struct Judge {
    /// Streams are slow below this rate.
    slow_mbps: f64,
    /// Streams are predicted to be slow below this rate.
    predicted_mbps: f64,
    /// Whether loss is a fault in this direction, of slow streams and others.
    is_lossy: bool,
}

/// The factor between the rates of both directions that is worth a remark.
const UNEVEN: f64 = 2.0;
/// Streams are far below the rate of a burst if they have less than this part of it.
const FAR_BELOW: f64 = 0.25;

/// A remedy has an effect if the case is this much faster. Repeated measurements differ by less.
const GAIN_MIN: f64 = 1.2;

/// Returns why a case with a remedy, `gain` times as fast as before, does not count as repaired; `None` if it
/// does.
fn why_not_proved(cause: Cause, evidence: &Evidence, slow_mbps: f64, gain: f64) -> Option<String> {
    if is_slow(evidence, slow_mbps) {
        return Some(match &evidence.exchanges {
            Some(exchanges) => {
                format!(
                    "it still waits for timers {} % of the time",
                    readable(100.0 * exchanges.stalled_part)
                )
            }
            None => format!("it is still below {} Mbit/s", readable(slow_mbps)),
        });
    }
    if cause == Cause::Loss && is_lossy(evidence) {
        return Some(format!("it still retransmits {}", counted(evidence.retransmits(), "segment")));
    }
    (gain < GAIN_MIN).then(|| "measurements without a remedy differ by as much".to_owned())
}

/// The number of remedies on the first screen of a report.
const REMEDIES_MAX: usize = 4;

/// Returns when the first and the last of some trials ended.
fn times(records: &[Record]) -> Option<(Date, Date)> {
    let moments = || records.iter().filter_map(|record| record.measured_at);
    let date = |seconds: u64| Date(i64::try_from(seconds).unwrap_or(i64::MAX));
    Some((date(moments().min()?), date(moments().max()?)))
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

/// Returns the measurements of a point with a remedy, if there are any.
fn proved(dir: &Folder, host: &str, setup: &Setup) -> Result<Option<Measured>, StoreError> {
    let (folder, _) = proof(dir, host, setup);
    // A folder without a readable manifest means that the remedy has not been measured. A damaged one is
    // reported when the run is opened for writing.
    let Ok(manifest) = Manifest::read(&folder) else { return Ok(None) };
    let records = Records::read(&folder, &manifest)?;
    Ok(records.in_order(&manifest).find_map(|record| Measured::of(&record)))
}

fn unit(pattern: Pattern) -> &'static str {
    if pattern.is_stream() { "Mbit/s" } else { "exchanges/s" }
}

fn title(group: &Setup) -> String {
    let mut title = format!("{}, Nagle {}", group.pattern.name(), if group.no_delay { "off" } else { "on" });
    if let Some(mss) = group.mss_bytes {
        title += &format!(", MSS {mss}");
    }
    if let Some(name) = &group.congestion {
        title += &format!(", {name}");
    }
    title
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.path_line())?;
        if let Some(environment) = &self.environment {
            writeln!(f, "measured from {}\n", environment.line())?;
        }
        for map in &self.maps {
            writeln!(f, "{map}")?;
        }
        for both in &self.directions {
            writeln!(f, "{both}")?;
        }
        if self.causes.is_empty() {
            writeln!(f, "No cell is slow.")?;
        }
        if let Some(rates) = self.rates() {
            writeln!(f, "Streams: {rates}.\n")?;
        }
        if self.causes.is_empty() {
        } else {
            let mut table = Table::new("Why cells are slow")
                .text_column("")
                .text_column("cause")
                .number_column("cells")
                .text_column("worst");
            for count in &self.causes {
                let letter = count.cause.letter().to_string();
                table.row([letter, count.words.clone(), count.cells.to_string(), count.case.clone()]);
            }
            writeln!(f, "{table}")?;
            for count in &self.causes {
                writeln!(f, "{}: {}", count.cause.letter(), count.example)?;
            }
            if let Some(words) = self.only_two_writes() {
                writeln!(f, "{words}")?;
            }
            writeln!(f)?;
        }
        if !self.advice.is_empty() {
            writeln!(
                f,
                "What to change, tried on the worst case of each cause (PROVED: no longer slow, and faster)"
            )?;
            for proof in &self.advice {
                let before = figure(proof.before);
                match proof.after {
                    Some(after) => writeln!(
                        f,
                        "- {}\n  {}: {before} -> {} {} ({})",
                        proof.advice,
                        if proof.removed {
                            "PROVED".to_owned()
                        } else {
                            format!("not proved, {}", proof.note)
                        },
                        figure(after),
                        proof.unit,
                        proof.case
                    )?,
                    None if proof.note.is_empty() => writeln!(f, "- {}", proof.advice)?,
                    None => writeln!(f, "- {}\n  not tried: {}", proof.advice, proof.note)?,
                }
            }
        }
        if self.disturbed > 0 {
            writeln!(
                f,
                "{} disturbed by other processes in every attempt (if both ends run on this host, use \
                 --foreign-cores 100)",
                counted(self.disturbed, "point")
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cell: its figure, whether it was predicted to be slow, and the cause.
    type Streamed = (f64, bool, Option<Cause>);

    /// Returns the findings of a sweep whose maps have these patterns and cells: a figure, whether the cell
    /// was predicted to be slow, and the cause.
    fn findings(rate_mbps: f64, maps: &[(Pattern, &[Streamed])]) -> Findings {
        let first = crate::net::diagnosis::cause::tests::stream();
        let cell = |(figure, predicted_slow, cause): &Streamed| Cell {
            figure: Some(*figure),
            mbps: *figure,
            predicted_slow: *predicted_slow,
            cause: *cause,
            because: String::new(),
        };
        let maps: Vec<Map> = maps
            .iter()
            .map(|(pattern, cells)| Map {
                title: pattern.name().to_owned(),
                pattern: *pattern,
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
            environment: None,
            streams_slow_below: SlowBelow::default(),
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
            text.contains("No cell is slow.") && text.contains("Streams: the best stream has 20.8"),
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
    fn a_program_that_writes_twice_is_no_fault_of_the_path() {
        let cells = [(22.0, true, Some(Cause::NagleDelayedAck)), (9000.0, false, None)];
        let no_fault = "the path shows no fault";
        let only = findings(100.0, &[(Pattern::WriteWriteRead, &cells)]);
        assert!(only.verdict().sentence.contains(no_fault) && only.to_string().contains(no_fault));
        let lossy = [(9.0, false, Some(Cause::Loss)), (95.0, false, None)];
        let other = findings(100.0, &[(Pattern::WriteWriteRead, &cells), (Pattern::Stream, &lossy)]);
        assert!(!other.verdict().sentence.contains(no_fault));
    }

    #[test]
    fn an_explained_cause_is_the_headline_before_cells_without_one() {
        let unknown = (1.0, false, Some(Cause::NotExplained));
        let cells = [unknown, unknown, (9.0, false, Some(Cause::Loss)), (95.0, false, None)];
        let words = findings(100.0, &[(Pattern::Stream, &cells)]).verdict().sentence;
        assert!(
            words.starts_with("Segments are lost: 1 of 4 cells are slow, and 2 for other reasons"),
            "{words}"
        );
        let words = findings(100.0, &[(Pattern::Stream, &[unknown, (95.0, false, None)])]).verdict().sentence;
        assert!(words.starts_with("No cause was found: 1 of 2 cells are slow"), "{words}");
    }

    #[test]
    fn a_remedy_that_does_not_count_has_its_reason() {
        use crate::net::diagnosis::cause::tests::{stalled, stream};
        // The stream has 100 Mbit/s.
        assert_eq!(why_not_proved(Cause::ReceiveBuffer, &stream(), 50.0, 3.0), None);
        for (cause, evidence, slow_mbps, gain, expected) in [
            (Cause::ReceiveBuffer, stream(), 200.0, 270.0, "it is still below 200 Mbit/s"),
            (Cause::ReceiveBuffer, stream(), 50.0, 1.04, "measurements without a remedy differ by as much"),
            (Cause::NagleDelayedAck, stalled(), 0.0, 1.0, "it still waits for timers 100 % of the time"),
            (
                Cause::Loss,
                {
                    let mut lossy = stream();
                    lossy.info.total_retrans = 1000;
                    lossy
                },
                50.0,
                3.0,
                "it still retransmits 1000 segments",
            ),
        ] {
            assert_eq!(why_not_proved(cause, &evidence, slow_mbps, gain).as_deref(), Some(expected));
        }
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
