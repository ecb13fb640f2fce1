//! The findings of a sweep: maps, causes, remedies, and the effect of the remedies.
//!
//! Source    only the records in the sweep's directory, so findings can be recomputed at any time, even
//!           during the sweep.
//! Repeats   isolated slow cells, and the rounds of remedies, are runs of their own (`repeat.rs`).
//! Streams   are slow below a quarter of the best stream in either direction, so that a direction in which
//!           all are slow is found. If the path carries no more in its direction, a stream is not slow. A
//!           stream with the system's buffers is slow if one of them limits it, whatever its rate.
//! Loss      heavy loss in at least half of the streams of a direction is a fault of the path, whether or not
//!           they are slow: if all are equally slow, none is slow compared with the best one.
//! Path      the path in the findings is that of the first record; every record contains the path that was
//!           measured for it.

use super::advice::{FULL_ADVICE, Proof, against};
use super::boundary::should_be_slow;
use super::cause::{Cause, is_lossy, lost_percent};
use super::directions::Directions;
use super::judge::{Judge, Judged, Measured};
use super::map::{BOUNDARY, Cell, Map};
use super::repeat::{Open, Rounds, again, isolated};
use super::threshold::SlowBelow;
use crate::engine::{Explanation, Manifest, Record, Records, StoreError};
use crate::environment::Environment;
use crate::net::grid::Grid;
use crate::net::trial::evidence::{Evidence, Pattern};
use crate::net::trial::path::Path;
use crate::net::trial::setup::Setup;
use crate::remote::protocol::Welcome;
use crate::report::picture::Note;
use crate::report::{Badge, Block, Grid as Sheet, Section, Tone};
use crate::table::{counted, part_of, readable};
use kiban_osi::ftam::filestore::Date;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path as Folder;

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
    /// The congestion controls of the senders.
    pub congestion: Vec<String>,
    /// The environment of the measurement.
    pub environment: Option<Environment>,
    /// The rate below which streams are slow.
    pub streams_slow_below: SlowBelow,
    /// The verdict: what the first screen of the report says.
    #[serde(rename = "verdict")]
    pub sentence: String,
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
    /// Measurements that have not been made: isolated slow cells, and rounds of remedies.
    #[serde(skip)]
    pub(in crate::net) open: Vec<Open>,
    /// Remarks about cells.
    #[serde(skip)]
    pub(super) notes: Vec<(Setup, Note)>,
    /// When the first and the last trial ended; `None` if the records do not say.
    #[serde(skip)]
    pub(super) measured: Option<(Date, Date)>,
    /// The command that repeats the sweep.
    #[serde(skip)]
    pub(super) command: String,
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

    /// Returns the rate of the best stream in either direction, Mbit/s, and its evidence; `None` without
    /// streams.
    fn best_stream(&self) -> Option<(f64, &Evidence)> {
        let all = self.records.values().map(|measured| &measured.evidence);
        let streams = all.filter(|evidence| evidence.pattern.is_stream());
        streams
            .map(|evidence| (evidence.total_mbps(), evidence))
            .max_by(|one, other| one.0.total_cmp(&other.0))
    }

    /// Returns the congestion controls of the senders, each once.
    fn congestion(&self) -> Vec<String> {
        let names = self.records.values().map(|measured| measured.evidence.given.congestion.clone());
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns the best rate of all trials, Mbit/s.
    fn best_mbps(&self) -> f64 {
        self.records.values().map(|measured| measured.evidence.total_mbps()).fold(0.0, f64::max)
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
        // The points of earlier versions have fewer parameters.
        let point = |record: &Record| Some(Setup::of(&record.point).ok()?.point(&host).to_string());
        let measured = |record: &Record| Some((point(record)?, Measured::of(record)?));
        let command = grid.command(&host);
        let by_point = records.iter().filter_map(measured).collect();
        let mut sweep = Sweep { host, grid, records: by_point };
        let first = records.iter().find_map(|record| Some((record, Measured::of(record)?.evidence)));
        let Some((record, first)) = first else { return Ok(None) };
        let mut findings = Findings {
            host: sweep.host.clone(),
            server: first.peer,
            board: first.board,
            path: first.path,
            congestion: sweep.congestion(),
            environment: record.environment.clone(),
            streams_slow_below: SlowBelow::read(dir)?,
            sentence: String::new(),
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
        let worst = findings.draw(dir, &mut sweep)?;
        findings.directions = Directions::of(&findings.maps);
        for (count, setup) in findings.causes.clone().iter().zip(&worst) {
            findings.advise(dir, &sweep, count, setup)?;
        }
        findings.advise_full();
        findings.sentence = findings.verdict().sentence;
        Ok(Some(findings))
    }

    /// Returns how the streams of a pattern's direction, or exchanges, are judged.
    fn judge(&self, sweep: &Sweep, pattern: Pattern) -> Judge {
        let best = sweep.best_stream().map_or(0.0, |(mbps, _)| mbps);
        let records = sweep.records.values().map(|measured| &measured.evidence);
        let alike = records.filter(|evidence| evidence.pattern == pattern);
        Judge {
            best_mbps: alike.map(Evidence::total_mbps).fold(0.0, f64::max),
            slow_mbps: self.streams_slow_below.mbps(best),
            predicted_mbps: self.streams_slow_below.mbps(best.max(self.path.rate_mbps)),
            is_lossy: sweep.is_lossy(pattern),
            is_relative: self.streams_slow_below == SlowBelow::QuarterOfBest,
        }
    }

    /// Returns the rate below which streams are slow in words, with the stream to which they are compared.
    fn threshold(&self, sweep: &Sweep) -> String {
        let best = sweep.best_stream().filter(|_| self.streams_slow_below == SlowBelow::QuarterOfBest);
        let words = self.streams_slow_below.to_string();
        best.map_or(words.clone(), |(mbps, evidence)| {
            let many = match evidence.same().len() {
                1 => String::new(),
                count => format!(", {count} at once"),
            };
            format!("{words}, {} Mbit/s {}{many}", readable(mbps), evidence.pattern.way())
        })
    }

    /// Finds maps and causes, and the worst case of each cause. Slow cells without slow neighbours are judged
    /// by their second measurement.
    fn draw(&mut self, dir: &Folder, sweep: &mut Sweep) -> Result<Vec<Setup>, StoreError> {
        let mut found: BTreeMap<Cause, Vec<(f64, Setup, String)>> = BTreeMap::new();
        for group in sweep.grid.groups() {
            let judge = self.judge(sweep, group.pattern);
            let grid = sweep.grid.clone();
            let setup =
                |row: usize, column: usize| grid.cell(&group, grid.buffers[row], grid.messages[column]);
            let row = |row| {
                (0..grid.messages.len()).map(|column| self.cell(sweep, &setup(row, column), &judge)).collect()
            };
            let mut rows: Vec<Vec<Cell>> = (0..grid.buffers.len()).map(row).collect();
            for (row, column) in isolated(&rows) {
                let setup = setup(row, column);
                let second = again(dir, &sweep.host, &setup);
                match second.read()?.pop() {
                    None => self.open.push(second),
                    Some(measured) => {
                        let first = rows[row][column].figure;
                        let samples = first.into_iter().chain([measured.figure]).collect();
                        sweep.records.insert(setup.point(&sweep.host).to_string(), measured);
                        rows[row][column] = Cell { samples, ..self.cell(sweep, &setup, &judge) };
                    }
                }
            }
            for (at, row) in rows.iter().enumerate() {
                for (column, cell) in row.iter().enumerate().filter(|(_, cell)| cell.figure.is_some()) {
                    let setup = setup(at, column);
                    self.notes.push((setup.clone(), cell.note()));
                    if let (Some(cause), Some(number)) = (cell.cause, cell.figure) {
                        found.entry(cause).or_default().push((number, setup, cell.because.clone()));
                    }
                }
            }
            let slow = rows.iter().flatten().filter(|cell| cell.cause.is_some());
            let others = match slow.map(|cell| cell.mbps).any(|mbps| mbps >= judge.slow_mbps) {
                true => ", or lossy or limited by a host's system at any rate",
                false => "",
            };
            self.maps.push(Map {
                title: title(&group),
                pattern: group.pattern,
                connections: group.connections,
                opposite: group.opposite,
                slow_below: group.pattern.is_stream().then(|| self.threshold(sweep) + others),
                unit: unit(group.pattern).to_owned(),
                messages: grid.messages,
                buffers: grid.buffers,
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
        Ok(worst)
    }

    fn cell(&self, sweep: &Sweep, setup: &Setup, judge: &Judge) -> Cell {
        let predicted_slow = should_be_slow(setup, &self.path, judge.predicted_mbps);
        let mut cell = Cell { predicted_slow, ..Cell::default() };
        let Some(Measured { figure, evidence }) = sweep.get(setup) else { return cell };
        (cell.figure, cell.mbps) = (Some(*figure), evidence.total_mbps());
        cell.lost_percent = lost_percent(evidence);
        (cell.slowest_mbps, cell.opposite_mbps) = (evidence.slowest_mbps(), evidence.opposite_mbps());
        match judge.verdict(evidence) {
            Some(Judged::Slow(explanation)) => {
                (cell.cause, cell.because) = (Some(explanation.cause), explanation.because);
            }
            Some(Judged::Full(because)) => cell.full = Some(because),
            None => {}
        }
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
        let judge = self.judge(sweep, setup.pattern);
        let best = sweep.best_mbps().max(self.path.rate_mbps);
        let Some(Measured { figure: before, evidence }) = sweep.get(setup) else { return Ok(()) };
        let against = |best_mbps| against(count.cause, setup, evidence, best_mbps, &self.server.congestion);
        for (at, advice) in against(best).into_iter().enumerate() {
            let mut proof = Proof {
                advice: advice.words,
                case: count.case.clone(),
                before: *before,
                after: None,
                unit: unit(setup.pattern).to_owned(),
                removed: false,
                rounds: 0,
                note: String::new(),
            };
            if let Some(changed) = advice.setup {
                let of = (count.cause, &judge);
                let rounds = Rounds::read(dir, &sweep.host, &proof.advice, [setup, &changed], of)?;
                proof.rounds = rounds.len();
                if let (Some([before, after]), None) = (rounds.medians(), &rounds.next) {
                    (proof.before, proof.after) = (before, Some(after));
                    // Without a limit of the system, the path may carry more than any stream before.
                    if setup.buffer_bytes.is_none() {
                        proof.advice = against(best.max(rounds.best_mbps())).swap_remove(at).words;
                    }
                }
                proof.removed = rounds.refuted.is_none() && rounds.next.is_none();
                proof.note = rounds.refuted.unwrap_or_default();
                if let Some(next) = rounds.next {
                    proof.note = "the sweep ended before this measurement".to_owned();
                    self.open.push(next);
                }
            }
            self.advice.push(proof);
        }
        Ok(())
    }

    /// Adds what helps in a direction whose path is full.
    pub(super) fn advise_full(&mut self) {
        for pattern in [Pattern::Stream, Pattern::StreamBack] {
            if let Some(mbps) = self.full_mbps(pattern) {
                self.advice.push(Proof {
                    advice: format!(
                        "{}, the path is full at {} Mbit/s: {FULL_ADVICE}",
                        pattern.way(),
                        readable(mbps)
                    ),
                    case: pattern.name().to_owned(),
                    before: mbps,
                    after: None,
                    unit: unit(pattern).to_owned(),
                    removed: false,
                    rounds: 0,
                    note: String::new(),
                });
            }
        }
    }

    /// Returns the best rate of the streams of a pattern that would be slow if the path carried more; `None`
    /// if there are none.
    pub(super) fn full_mbps(&self, pattern: Pattern) -> Option<f64> {
        let maps = self.maps.iter().filter(|map| map.pattern == pattern);
        let cells = maps.flat_map(|map| map.iter().map(|(.., cell)| cell));
        cells.filter(|cell| cell.full.is_some()).filter_map(|cell| cell.figure).reduce(f64::max)
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
        blocks.extend(self.again().map(Block::Paragraph));
        for map in &self.maps {
            let (all, slow, right) = map.counts();
            blocks.push(Block::Paragraph(format!(
                "{}: {} slow{}; the prediction from the rule and the path's MSS is right for {right} of {}.",
                map.title,
                part_of(slow, all, "cell"),
                map.threshold(),
                counted(all, "cell")
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
            let caption =
                "What helps, tested on the worst case of each cause, with the change and without in turn";
            let mut sheet = Sheet::new(caption, &heads);
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
}

/// Returns when the first and the last of some trials ended.
fn times(records: &[Record]) -> Option<(Date, Date)> {
    let moments = || records.iter().filter_map(|record| record.measured_at);
    let date = |seconds: u64| Date(i64::try_from(seconds).unwrap_or(i64::MAX));
    Some((date(moments().min()?), date(moments().max()?)))
}

pub(super) fn unit(pattern: Pattern) -> &'static str {
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
    title + &group.count_words()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Run, Shard, Time};
    use crate::net::diagnosis::cause::tests::stream;
    use crate::net::diagnosis::verdict::tests::findings;

    /// A stream with this rate, and the system's buffers.
    fn at(pattern: Pattern, mbps: f64, change: impl Fn(&mut Evidence)) -> Evidence {
        let mut evidence = Evidence { pattern, ..stream() };
        evidence.receiver.bytes = (mbps * 125_000.0) as u64;
        change(&mut evidence);
        evidence
    }

    /// Returns the records of a sweep over these buffers, one row for each pattern.
    fn sweep(buffers: &[u32], messages: &[u32], rows: &[(Pattern, Vec<Evidence>)]) -> Sweep {
        let patterns = rows.iter().map(|(pattern, _)| *pattern).collect::<Vec<_>>();
        let usual = Grid::usual(&patterns, false, false);
        let grid = Grid { buffers: buffers.into(), messages: messages.into(), ..usual };
        let mut records = HashMap::new();
        for (group, (_, row)) in grid.groups().iter().zip(rows) {
            let cells =
                buffers.iter().flat_map(|buffer| messages.iter().map(move |message| (*buffer, *message)));
            for ((buffer, message), evidence) in cells.zip(row) {
                let measured = Measured { figure: evidence.mbps(), evidence: evidence.clone() };
                records.insert(grid.cell(group, buffer, message).point("h").to_string(), measured);
            }
        }
        Sweep { host: "h".to_owned(), grid, records }
    }

    fn drawn(dir: &Folder, mut sweep: Sweep) -> Findings {
        let mut findings = findings(100.0, &[]);
        findings.draw(dir, &mut sweep).expect("there is nothing to read");
        findings
    }

    fn causes(map: &Map) -> Vec<Option<Cause>> {
        map.iter().map(|(.., cell)| cell.cause).collect()
    }

    #[test]
    fn a_direction_in_which_all_streams_are_slow_is_compared_with_the_other() {
        let dir = tempfile::tempdir().expect("there is disk space");
        let up = [93.6, 92.0, 91.5].map(|mbps| at(Pattern::Stream, mbps, |_| ()));
        let down = [5.2, 5.1, 4.9].map(|mbps| {
            at(Pattern::StreamBack, mbps, |e| (e.info.data_segs_out, e.info.total_retrans) = (Some(450), 9))
        });
        let rows = [(Pattern::Stream, up.into()), (Pattern::StreamBack, down.into())];
        let found = drawn(dir.path(), sweep(&[0, 65_536, 262_144], &[1000], &rows));
        assert_eq!(causes(&found.maps[0]), [None; 3]);
        assert_eq!(causes(&found.maps[1]), [Some(Cause::Loss); 3]);
        let text = found.maps[1].to_string();
        assert!(
            text.contains("3 of 3 cells are slow (below a quarter of the best stream, 93.6 Mbit/s to the"),
            "{text}"
        );
    }

    #[test]
    fn a_thin_direction_that_is_full_has_no_slow_cell() {
        let dir = tempfile::tempdir().expect("there is disk space");
        let queue = |e: &mut Evidence| (e.info.rtt_us, e.info.min_rtt_us) = (60_000, Some(10_000));
        let rows = [
            (Pattern::Stream, vec![at(Pattern::Stream, 9.6, queue)]),
            (Pattern::StreamBack, vec![at(Pattern::StreamBack, 95.0, |_| ())]),
        ];
        let found = drawn(dir.path(), sweep(&[0], &[1000], &rows));
        assert_eq!((causes(&found.maps[0]), found.full_mbps(Pattern::Stream)), (vec![None], Some(9.6)));
        assert_eq!(found.full_mbps(Pattern::StreamBack), None);
        // A rate that the user gives counts whatever the path carries.
        let mut strict = findings(100.0, &[]);
        strict.streams_slow_below = SlowBelow::Mbps(50.0);
        strict.draw(dir.path(), &mut sweep(&[0], &[1000], &rows)).expect("there is nothing to read");
        assert_eq!(causes(&strict.maps[0]), [Some(Cause::PathFull)]);
    }

    #[test]
    fn a_path_on_which_another_stream_was_faster_is_not_full() {
        let dir = tempfile::tempdir().expect("there is disk space");
        let queue = |e: &mut Evidence| (e.info.rtt_us, e.info.min_rtt_us) = (60_000, Some(10_000));
        for (other, expected) in [(16.0, None), (24.0, Some(Cause::NotExplained))] {
            let up = [15.0, other].map(|mbps| at(Pattern::Stream, mbps, queue));
            let rows = [
                (Pattern::Stream, up.into()),
                (Pattern::StreamBack, [95.0, 99.0].map(|mbps| at(Pattern::StreamBack, mbps, |_| ())).into()),
            ];
            let found = drawn(dir.path(), sweep(&[0], &[1000, 2000], &rows));
            let (cell, best) = (&found.maps[0].cells[0][0], found.full_mbps(Pattern::Stream));
            assert_eq!((cell.cause, cell.full.is_none(), best), (expected, expected.is_some(), Some(other)));
        }
    }

    #[test]
    fn an_isolated_slow_cell_counts_only_if_it_is_slow_again() {
        let dir = tempfile::tempdir().expect("there is disk space");
        let row = || [94.0, 93.0, 7.0, 94.0].map(|mbps| at(Pattern::Stream, mbps, |_| ())).into();
        let sweep = || sweep(&[0], &[1000, 2000, 3000, 4000], &[(Pattern::Stream, row())]);
        let first = drawn(dir.path(), sweep());
        assert_eq!(causes(&first.maps[0]), [None, None, Some(Cause::NotExplained), None]);
        let [open] = &first.open[..] else { panic!("one cell: {:?}", first.open) };
        let run =
            Run::open(&open.dir, Manifest::new(Time::Real, open.plan.clone(), Shard::ALL)).expect("a run");
        let trial = open.plan.trial(0);
        let record = Record {
            key: run.manifest().key(&trial),
            question: open.plan.question.clone(),
            point: trial.point,
            repetition: 0,
            seed: trial.seed,
            version: run.manifest().version.clone(),
            environment: None,
            measured_at: None,
            metrics: [("mbps".to_owned(), 93.5)].into(),
            evidence: serde_json::to_value(at(Pattern::Stream, 93.5, |_| ())).expect("plain values"),
            foreign_cores: None,
        };
        run.append(&record).expect("there is disk space");
        let second = drawn(dir.path(), sweep());
        let cell = &second.maps[0].cells[0][2];
        assert_eq!((cell.cause, cell.figure, &cell.samples[..]), (None, Some(93.5), &[7.0, 93.5][..]));
        assert!(second.open.is_empty());
        assert!(second.again().is_some_and(|words| words.contains("it was not slow the second time")));
    }
}
