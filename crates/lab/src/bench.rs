//! Benchmarks that compare two sides in one run.
//!
//! Purpose   produce results that can be quoted: the median of undisturbed rounds with minimum and maximum,
//!           the target and a record of every sample.
//! Round     one repetition: both sides, one after the other. The order alternates with every accepted round
//!           (A B, B A, A B, ...), so that a slow drift of the machine affects both sides equally. The ratio
//!           is computed within each round; the median of these paired ratios is reported.
//! Guard     the machine's CPU times are read before and after every sample ([`crate::load`]). A round in
//!           which other processes used more than `foreign_cores_max` is rejected and repeated in the same
//!           order.
//! Giving up  after more than `redos_max` rejected rounds, the rounds with the least foreign load are used,
//!           whatever their results; the table and the record say so.
//! Targets   are met or MISSED. A missed target is printed and recorded; it does not end the process.
//! Record    one line of JSON per benchmark, appended to `<dir>/<bench>.jsonl` as soon as it is measured. It
//!           contains every round in the order it ran, rejected ones too, so that the printed table can be
//!           computed from it.
//! Not implemented  statistics beyond order statistics (seven rounds do not support more); waiting for the
//!           machine to become idle.

use std::fmt::{self, Write as _};
use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal, Write as _};
use std::path::{Path, PathBuf};

use kiban_os::clock::{Clock, unix_seconds};
use serde::{Deserialize, Serialize};

use crate::environment::{Environment, date};
use crate::load::{ForeignLoad, Meter, ProcMeter};
use crate::stats::Summary;
use crate::table::{Table, figure};
use crate::trial::Trial;

/// The format version of [`Record`]; incremented by every change that old readers would misinterpret.
const FORMAT: u32 = 1;

/// The options of a benchmark run.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Accepted rounds per benchmark.
    pub repeats: usize,
    /// Rounds before the first one that is recorded.
    pub warmup: usize,
    /// Rejected rounds per benchmark before giving up.
    pub redos_max: usize,
    /// The CPU use by other processes above which a round is rejected, in cores.
    pub foreign_cores_max: f64,
    /// Duration of [`Trial::measure`] in nanoseconds.
    pub span_nanos: u64,
    /// Runs only a few short rounds, to check that the benchmarks work; the results must not be quoted.
    pub quick: bool,
    /// The directory for the records; `None` keeps no records.
    pub dir: Option<PathBuf>,
}

impl Options {
    /// Returns the options of a run whose results can be quoted.
    pub fn full() -> Self {
        Self {
            repeats: 7,
            warmup: 1,
            redos_max: 35,
            foreign_cores_max: 0.25,
            span_nanos: 300_000_000,
            quick: false,
            dir: Some(PathBuf::from("target/bench")),
        }
    }

    /// Returns the options of a short run, which only checks that the benchmarks work.
    pub fn quick() -> Self {
        Self { repeats: 3, warmup: 0, redos_max: 2, span_nanos: 20_000_000, quick: true, ..Self::full() }
    }

    /// Reads the options from the environment: `KIBAN_BENCH_QUICK=1` selects a quick run, `KIBAN_BENCH_DIR`
    /// sets the directory of the records.
    pub fn from_env() -> Self {
        let quick =
            std::env::var_os("KIBAN_BENCH_QUICK").is_some_and(|value| !value.is_empty() && value != "0");
        let mut options = if quick { Self::quick() } else { Self::full() };
        if let Some(dir) = std::env::var_os("KIBAN_BENCH_DIR") {
            options.dir = Some(dir.into());
        }
        options
    }
}

/// The unit of a result. Samples return their result in exactly this unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 10⁹ bits per second.
    GbitPerSecond,
    /// 10⁶ bits per second.
    MbitPerSecond,
    /// 10⁹ bytes per second.
    GbytePerSecond,
    /// Operations or items per second.
    PerSecond,
    /// 10⁶ operations or items per second.
    MillionPerSecond,
    /// Nanoseconds.
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// A factor, for example a multiple of real time.
    Times,
    /// Percent.
    Percent,
    /// Another unit, by its symbol.
    Named(&'static str),
}

impl Unit {
    /// Returns the symbol of the unit, as it is printed and recorded.
    pub fn label(self) -> &'static str {
        match self {
            Self::GbitPerSecond => "Gbit/s",
            Self::MbitPerSecond => "Mbit/s",
            Self::GbytePerSecond => "GB/s",
            Self::PerSecond => "1/s",
            Self::MillionPerSecond => "M/s",
            Self::Nanoseconds => "ns",
            Self::Microseconds => "us",
            Self::Milliseconds => "ms",
            Self::Times => "x",
            Self::Percent => "%",
            Self::Named(label) => label,
        }
    }
}

/// The expected result of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "figure", rename_all = "snake_case")]
pub enum Target {
    /// No target: the result is informational.
    None,
    /// The median of the first side is at least this value.
    AtLeast(f64),
    /// The median of the first side is at most this value.
    AtMost(f64),
    /// The median ratio of the first side to the second is at least this value.
    RatioAtLeast(f64),
    /// The median ratio of the first side to the second is at most this value.
    RatioAtMost(f64),
}

impl Target {
    /// Requires a median of at least `figure` from the first side.
    pub const fn at_least(figure: f64) -> Self {
        Self::AtLeast(figure)
    }

    /// Requires a median of at most `figure` from the first side.
    pub const fn at_most(figure: f64) -> Self {
        Self::AtMost(figure)
    }

    /// Requires the median ratio of the first side to the second to be at least `ratio`.
    pub const fn ratio_at_least(ratio: f64) -> Self {
        Self::RatioAtLeast(ratio)
    }

    /// Requires the median ratio of the first side to the second to be at most `ratio`.
    pub const fn ratio_at_most(ratio: f64) -> Self {
        Self::RatioAtMost(ratio)
    }

    fn is_ratio(self) -> bool {
        matches!(self, Self::RatioAtLeast(_) | Self::RatioAtMost(_))
    }

    fn verdict(self, first: f64, ratio: Option<f64>) -> Option<Verdict> {
        let met = match self {
            Self::None => return None,
            Self::AtLeast(wanted) => first >= wanted,
            Self::AtMost(wanted) => first <= wanted,
            Self::RatioAtLeast(wanted) => ratio? >= wanted,
            Self::RatioAtMost(wanted) => ratio? <= wanted,
        };
        Some(if met { Verdict::Met } else { Verdict::Missed })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::AtLeast(wanted) | Self::RatioAtLeast(wanted) => write!(f, ">= {wanted}"),
            Self::AtMost(wanted) | Self::RatioAtMost(wanted) => write!(f, "<= {wanted}"),
        }
    }
}

/// Whether a target was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The target was met.
    Met,
    /// The target was missed.
    Missed,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Met => "met",
            Self::Missed => "MISSED",
        })
    }
}

/// The complete result of one benchmark; one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The format version of this record.
    pub format: u32,
    /// The name of the run.
    pub bench: String,
    /// The title of the benchmark.
    pub title: String,
    /// The unit of all results.
    pub unit: String,
    /// One side, or the two sides that were compared; a target applies to the first.
    pub sides: Vec<Side>,
    /// The paired ratios of the first side to the second.
    pub ratio: Option<Summary>,
    /// The expected result.
    pub target: Target,
    /// Whether the target was met; absent without a target.
    pub verdict: Option<Verdict>,
    /// Whether so many rounds were disturbed that some disturbed rounds had to be counted.
    pub gave_up: bool,
    /// Rounds that were rejected because of foreign load.
    pub rejected: usize,
    /// The tolerated CPU use of other processes, in cores.
    pub foreign_cores_max: f64,
    /// Whether this was a quick run, whose results must not be quoted.
    pub quick: bool,
    /// All rounds after the warm-up, in the order they ran.
    pub rounds: Vec<Round>,
    /// Remarks that qualify the results.
    pub notes: Vec<String>,
    /// The machine and the program.
    pub environment: Environment,
    /// The time of the measurement (RFC 3339, UTC).
    pub date: String,
}

/// One side of a benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The name of the side.
    pub name: String,
    /// The results of the rounds that count.
    pub figures: Summary,
}

/// One repetition of a benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The order in which the sides ran, as indices of `sides`.
    pub order: Vec<usize>,
    /// Whether the foreign load stayed within the limit.
    pub quiet: bool,
    /// Whether the round counts: it was quiet, or among the quietest after giving up.
    pub counts: bool,
    /// One result per side.
    pub figures: Vec<f64>,
    /// Foreign load during each side's sample, in cores; absent if it could not be read.
    pub foreign_cores: Vec<Option<f64>>,
}

impl Round {
    /// Returns the higher of the foreign loads of the two samples, in cores.
    fn foreign_cores_worst(&self) -> f64 {
        self.foreign_cores.iter().flatten().copied().fold(0.0, f64::max)
    }
}

/// A run of benchmarks that share a name and a records file.
#[must_use = "finish() prints the table"]
pub struct Bench {
    name: String,
    options: Options,
    clock: Clock,
    meter: Box<dyn Meter>,
    environment: Environment,
    records: Vec<Record>,
    record_error: Option<io::Error>,
}

type Sample<'a> = (&'a str, &'a mut dyn FnMut(&mut Trial) -> f64);

impl Bench {
    /// Starts a run. `name` is also the name of the records file.
    pub fn new(name: &str, options: Options) -> Self {
        let clock = Clock::new();
        Self::with_meter(name, options, clock, Box::new(ProcMeter::new(clock)))
    }

    /// Starts a run that reads CPU times from the given meter, so that tests can simulate foreign load.
    ///
    /// # Panics
    /// Panics if `options.repeats` is 0.
    pub fn with_meter(name: &str, options: Options, clock: Clock, meter: Box<dyn Meter>) -> Self {
        assert!(options.repeats > 0, "a benchmark needs at least one repeat");
        let environment = Environment::read();
        Self {
            name: name.to_owned(),
            options,
            clock,
            meter,
            environment,
            records: Vec::new(),
            record_error: None,
        }
    }

    /// Returns the options; changes apply to the benchmarks that follow.
    pub fn options_mut(&mut self) -> &mut Options {
        &mut self.options
    }

    /// Measures two sides alternately. Each sample returns its result in `unit`.
    pub fn compare(
        &mut self,
        title: &str,
        unit: Unit,
        mut first: (&str, impl FnMut(&mut Trial) -> f64),
        mut second: (&str, impl FnMut(&mut Trial) -> f64),
        target: Target,
    ) -> &Record {
        self.run(title, unit, &mut [(first.0, &mut first.1), (second.0, &mut second.1)], target)
    }

    /// Measures one side. The sample returns its result in `unit`.
    ///
    /// # Panics
    /// Panics if the target is a ratio.
    pub fn single(
        &mut self,
        title: &str,
        unit: Unit,
        mut sample: (&str, impl FnMut(&mut Trial) -> f64),
        target: Target,
    ) -> &Record {
        assert!(!target.is_ratio(), "'{title}' has one side and no ratio: use at_least or at_most");
        self.run(title, unit, &mut [(sample.0, &mut sample.1)], target)
    }

    /// Adds rounds that the caller has measured itself, for benchmarks that cannot be measured as one sample
    /// per side.
    ///
    /// The caller sets [`Round::counts`]; at least one round must count. `gave_up` says that disturbed rounds
    /// had to be counted.
    pub fn measured(
        &mut self,
        title: &str,
        unit: Unit,
        names: &[&str],
        rounds: Vec<Round>,
        gave_up: bool,
        target: Target,
    ) -> &Record {
        let record = self.record(title, unit, names, target, rounds, gave_up);
        self.add(record)
    }

    /// Returns the records of the benchmarks so far.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Prints the report and returns the records.
    pub fn finish(self) -> Vec<Record> {
        println!("{}", self.report());
        self.records
    }

    /// Returns the text that [`Bench::finish`] prints: the table, the targets and the records file.
    pub fn report(&self) -> String {
        let mut text = table(&self.name, &self.environment, &self.records).to_string();
        let verdicts: Vec<Verdict> = self.records.iter().filter_map(|record| record.verdict).collect();
        if !verdicts.is_empty() {
            let met = verdicts.iter().filter(|&&verdict| verdict == Verdict::Met).count();
            let _ = writeln!(text, "targets: {met} met, {} missed", verdicts.len() - met);
        }
        let _ = match (&self.options.dir, &self.record_error) {
            (None, _) => writeln!(text, "records: none kept"),
            (Some(dir), None) => writeln!(text, "records: {}", self.file(dir).display()),
            (Some(dir), Some(error)) => writeln!(text, "records: NOT KEPT in {}: {error}", dir.display()),
        };
        text
    }

    fn run(&mut self, title: &str, unit: Unit, samples: &mut [Sample<'_>], target: Target) -> &Record {
        let warmup: Vec<usize> = (0..samples.len()).collect();
        for at in 0..self.options.warmup {
            self.progress(title, &format!("warm-up {}/{}", at + 1, self.options.warmup));
            self.round(title, samples, &warmup);
        }
        let (rounds, gave_up) = self.rounds(title, samples);
        self.progress(title, "");
        let names: Vec<&str> = samples.iter().map(|sample| sample.0).collect();
        let record = self.record(title, unit, &names, target, rounds, gave_up);
        self.add(record)
    }

    fn add(&mut self, record: Record) -> &Record {
        if let Err(error) = self.keep(&record) {
            self.record_error = Some(error);
        }
        self.records.push(record);
        self.records.last().expect("a record was just added")
    }

    /// Runs rounds until enough were quiet or too many were rejected. Returns the rounds, and whether it gave
    /// up.
    fn rounds(&mut self, title: &str, samples: &mut [Sample<'_>]) -> (Vec<Round>, bool) {
        let Options { repeats, redos_max, .. } = self.options;
        let (mut rounds, mut quiet, mut rejected) = (Vec::new(), 0, 0);
        while quiet < repeats {
            self.progress(title, &format!("round {}/{repeats}, {rejected} repeated", quiet + 1));
            let mut order: Vec<usize> = (0..samples.len()).collect();
            if quiet % 2 == 1 {
                order.reverse();
            }
            let round = self.round(title, samples, &order);
            if round.quiet {
                quiet += 1;
            } else {
                rejected += 1;
            }
            rounds.push(round);
            if rejected > redos_max {
                break;
            }
        }
        let gave_up = quiet < repeats;
        if gave_up {
            let mut quietest: Vec<&mut Round> = rounds.iter_mut().collect();
            quietest.sort_by(|a, b| a.foreign_cores_worst().total_cmp(&b.foreign_cores_worst()));
            quietest.into_iter().take(repeats).for_each(|round| round.counts = true);
        } else {
            rounds.iter_mut().for_each(|round| round.counts = round.quiet);
        }
        (rounds, gave_up)
    }

    fn round(&mut self, title: &str, samples: &mut [Sample<'_>], order: &[usize]) -> Round {
        let mut figures = vec![0.0; samples.len()];
        let mut foreign_cores = vec![None; samples.len()];
        let mut quiet = true;
        for &at in order {
            let (name, sample) = &mut samples[at];
            let mut trial = Trial::new(self.clock, self.options.span_nanos, self.options.quick);
            let start = self.meter.read();
            let figure = sample(&mut trial);
            let end = self.meter.read();
            assert!(
                figure.is_finite() && figure > 0.0,
                "the sample '{name}' of '{title}' must return a positive figure, but returned {figure}"
            );
            figures[at] = figure;
            if let (Some(start), Some(end)) = (start, end) {
                let foreign = ForeignLoad::between(start, end);
                quiet &= !foreign.exceeds(self.options.foreign_cores_max);
                foreign_cores[at] = Some(foreign.cores());
            }
        }
        Round { order: order.to_vec(), quiet, counts: false, figures, foreign_cores }
    }

    fn record(
        &self,
        title: &str,
        unit: Unit,
        names: &[&str],
        target: Target,
        rounds: Vec<Round>,
        gave_up: bool,
    ) -> Record {
        let counted: Vec<&Round> = rounds.iter().filter(|round| round.counts).collect();
        let summary = |figure: &dyn Fn(&Round) -> f64| {
            let figures: Vec<f64> = counted.iter().map(|round| figure(round)).collect();
            Summary::of(&figures).expect("at least one round counts")
        };
        let sides: Vec<Side> = (0..names.len())
            .map(|at| Side { name: names[at].to_owned(), figures: summary(&|round| round.figures[at]) })
            .collect();
        let ratio = (names.len() == 2).then(|| summary(&|round| round.figures[0] / round.figures[1]));
        let verdict = target.verdict(sides[0].figures.median, ratio.map(|ratio| ratio.median));
        Record {
            format: FORMAT,
            bench: self.name.clone(),
            title: title.to_owned(),
            unit: unit.label().to_owned(),
            sides,
            ratio,
            target,
            verdict,
            gave_up,
            rejected: rounds.iter().filter(|round| !round.quiet).count(),
            foreign_cores_max: self.options.foreign_cores_max,
            quick: self.options.quick,
            notes: notes(&rounds, gave_up, &self.options),
            rounds,
            environment: self.environment.clone(),
            date: date(unix_seconds()),
        }
    }

    fn file(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.jsonl", self.name))
    }

    /// Appends the record to its file.
    fn keep(&self, record: &Record) -> io::Result<()> {
        let Some(dir) = &self.options.dir else { return Ok(()) };
        fs::create_dir_all(dir)?;
        let mut line = serde_json::to_string(record)?;
        line.push('\n');
        OpenOptions::new().create(true).append(true).open(self.file(dir))?.write_all(line.as_bytes())
    }

    /// Shows the progress if standard error is a terminal; an empty `state` clears the line.
    fn progress(&self, title: &str, state: &str) {
        let mut screen = io::stderr();
        if screen.is_terminal() {
            let line =
                if state.is_empty() { String::new() } else { format!("{}: {title}: {state}", self.name) };
            // Return to the start of the line and erase it. Errors in writing the progress line are ignored.
            let _ = write!(screen, "\r\x1b[K{line}");
            let _ = screen.flush();
        }
    }
}

/// Returns the remarks that qualify the results.
fn notes(rounds: &[Round], gave_up: bool, options: &Options) -> Vec<String> {
    let mut notes = Vec::new();
    if options.quick {
        notes.push("quick run: checks only that the benchmark works; do not quote the results".to_owned());
    }
    let limit = options.foreign_cores_max;
    let rejected = rounds.iter().filter(|round| !round.quiet).count();
    if gave_up {
        let worst = rounds.iter().filter(|round| round.counts).map(Round::foreign_cores_worst);
        notes.push(format!(
            "GAVE UP waiting for an idle machine: in {rejected} of {} rounds, other processes used more \
             than {limit} cores; the {} quietest rounds are reported, with up to {:.2} cores",
            rounds.len(),
            rounds.iter().filter(|round| round.counts).count(),
            worst.fold(0.0, f64::max),
        ));
    } else if rejected > 0 {
        notes.push(format!("{rejected} disturbed rounds were repeated"));
    }
    if rounds.iter().any(|round| round.foreign_cores.iter().any(Option::is_none)) {
        notes.push("cannot read CPU times from /proc: load from other processes was not detected".to_owned());
    }
    notes
}

fn table(name: &str, environment: &Environment, records: &[Record]) -> Table {
    let mut table = Table::new(format!("{name}: {}", environment.line()))
        .text_column("benchmark")
        .text_column("side")
        .number_column("median")
        .number_column("min")
        .number_column("max")
        .text_column("unit")
        .text_column("target")
        .text_column("");
    for record in records {
        let marks: String = record.notes.iter().map(|note| table.note(note)).collect();
        let title = format!("{} {marks}", record.title);
        let wanted = record.target.to_string();
        let noisy = if record.gave_up { ", noisy" } else { "" };
        let verdict = record.verdict.map_or(String::new(), |verdict| format!("{verdict}{noisy}"));
        let mut lines: Vec<(&str, &str, Summary)> = Vec::new();
        for side in &record.sides {
            lines.push((&side.name, &record.unit, side.figures));
        }
        if let Some(ratio) = record.ratio {
            lines.push(("ratio", "x", ratio));
        }
        // Show the target in the row that it applies to.
        let judged = if record.target.is_ratio() { lines.len() - 1 } else { 0 };
        for (at, (side, unit, figures)) in lines.into_iter().enumerate() {
            let (wanted, verdict) = if at == judged { (&*wanted, &*verdict) } else { ("", "") };
            table.row([
                if at == 0 { title.trim_end() } else { "" },
                side,
                &figure(figures.median),
                &figure(figures.min),
                &figure(figures.max),
                unit,
                wanted,
                verdict,
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::rc::Rc;

    use super::*;
    use crate::load::Reading;

    const SAMPLE_NANOS: u64 = 100_000_000;

    /// A meter that reports one of the given foreign loads for each sample in turn, then no load.
    struct Script {
        cores: VecDeque<f64>,
        now: Reading,
        inside: bool,
    }

    impl Meter for Script {
        fn read(&mut self) -> Option<Reading> {
            if self.inside {
                let foreign = self.cores.pop_front().unwrap_or(0.0) * SAMPLE_NANOS as f64;
                self.now.wall_nanos += SAMPLE_NANOS;
                self.now.own_nanos += SAMPLE_NANOS;
                self.now.busy_nanos += SAMPLE_NANOS + foreign as u64;
            }
            self.inside = !self.inside;
            Some(self.now)
        }
    }

    fn bench(repeats: usize, redos_max: usize, cores: &[f64]) -> Bench {
        let options = Options { repeats, redos_max, warmup: 0, dir: None, ..Options::full() };
        let script =
            Script { cores: cores.iter().copied().collect(), now: Reading::default(), inside: false };
        Bench::with_meter("script", options, Clock::new(), Box::new(script))
    }

    /// Returns a sample that yields these results in turn and logs each call.
    fn figures<'a>(
        name: &'a str,
        figures: &'a [f64],
        log: &Rc<RefCell<String>>,
    ) -> (&'a str, impl FnMut(&mut Trial) -> f64 + use<'a>) {
        let (log, mut next) = (Rc::clone(log), figures.iter().cycle());
        let sample = move |_: &mut Trial| {
            log.borrow_mut().push_str(name);
            *next.next().expect("a cycle has no end")
        };
        (name, sample)
    }

    #[test]
    fn sides_alternate_and_the_ratio_is_paired() {
        let log = Rc::default();
        let mut bench = bench(4, 0, &[]);
        let first = figures("A", &[10.0, 20.0, 30.0, 44.0], &log);
        let second = figures("B", &[10.0, 10.0, 10.0, 11.0], &log);
        let record = bench.compare("turns", Unit::GbitPerSecond, first, second, Target::ratio_at_least(2.5));
        assert_eq!(*log.borrow(), "ABBAABBA");
        assert_eq!(record.ratio, Some(Summary { median: 2.5, min: 1.0, max: 4.0, count: 4 }));
        assert_eq!(record.sides[0].figures.median, 25.0);
        assert_eq!((record.verdict, record.gave_up, record.rejected), (Some(Verdict::Met), false, 0));
    }

    #[test]
    fn a_disturbed_round_is_repeated_in_the_same_order() {
        let log = Rc::default();
        // Round 1 is quiet. Round 2 (B A) is disturbed during its second sample. The repetition is quiet.
        let mut bench = bench(2, 5, &[0.0, 0.0, 0.0, 1.0, 0.1, 0.2]);
        let first = figures("A", &[1.0, 1000.0, 3.0], &log);
        let second = figures("B", &[1.0], &log);
        let record = bench.compare("redo", Unit::PerSecond, first, second, Target::None);
        assert_eq!(*log.borrow(), "ABBABA");
        assert_eq!(record.sides[0].figures, Summary { median: 2.0, min: 1.0, max: 3.0, count: 2 });
        assert_eq!((record.rejected, record.gave_up), (1, false));
        assert_eq!(record.rounds[1].foreign_cores, [Some(1.0), Some(0.0)]);
        assert!(!record.rounds[1].counts && record.rounds[2].counts);
        assert!(record.notes[0].contains("1 disturbed"), "{:?}", record.notes);
    }

    #[test]
    fn giving_up_uses_the_quietest_rounds_and_reports_it() {
        let log = Rc::default();
        let mut bench = bench(2, 3, &[2.0, 1.0, 1.5, 0.0, 2.0]);
        let sample = figures("A", &[5.0, 1.0, 100.0, 7.0], &log);
        let record = bench.single("noise", Unit::Nanoseconds, sample, Target::at_most(3.5));
        assert_eq!(log.borrow().len(), 5, "one quiet round, and one more rejected than may be repeated");
        let counted: Vec<f64> =
            record.rounds.iter().filter(|round| round.counts).map(|round| round.figures[0]).collect();
        assert_eq!(counted, [1.0, 7.0]);
        assert!(record.gave_up);
        assert_eq!((record.rejected, record.verdict), (4, Some(Verdict::Missed)));
        let report = bench.report();
        assert!(report.contains("GAVE UP"), "{report}");
        assert!(report.contains("MISSED, noisy"), "{report}");
        assert!(report.contains("targets: 0 met, 1 missed"), "{report}");
    }

    #[test]
    fn without_cpu_times_results_count_and_a_note_says_so() {
        struct Blind;
        impl Meter for Blind {
            fn read(&mut self) -> Option<Reading> {
                None
            }
        }
        let options = Options { dir: None, ..Options::quick() };
        let mut bench = Bench::with_meter("blind", options, Clock::new(), Box::new(Blind));
        let record = bench.single(
            "x",
            Unit::Percent,
            ("A", |trial: &mut Trial| {
                assert!(trial.is_quick());
                1.0
            }),
            Target::None,
        );
        assert_eq!((record.gave_up, record.rounds.len(), record.verdict), (false, 3, None));
        assert!(record.notes.iter().any(|note| note.contains("was not detected")));
        assert!(record.notes.iter().any(|note| note.contains("do not quote")));
    }

    #[test]
    fn targets_apply_to_medians() {
        for (target, first, ratio, expected) in [
            (Target::None, 1.0, Some(1.0), None),
            (Target::at_least(2.0), 2.0, None, Some(Verdict::Met)),
            (Target::at_least(2.0), 1.9, None, Some(Verdict::Missed)),
            (Target::at_most(2.0), 2.1, None, Some(Verdict::Missed)),
            (Target::ratio_at_least(1.5), 0.0, Some(1.4), Some(Verdict::Missed)),
            (Target::ratio_at_most(1.5), 9.0, Some(1.4), Some(Verdict::Met)),
        ] {
            assert_eq!(target.verdict(first, ratio), expected, "{target:?} {first} {ratio:?}");
        }
    }

    #[test]
    #[should_panic(expected = "the sample 'A' of 'nothing' must return a positive figure")]
    fn a_result_that_is_not_a_number_panics() {
        let sample = ("A", |_: &mut Trial| f64::NAN);
        bench(1, 0, &[]).single("nothing", Unit::PerSecond, sample, Target::None);
    }

    #[test]
    fn a_record_is_one_line_of_json_with_everything_in_it() {
        let log = Rc::default();
        let mut bench = bench(1, 0, &[]);
        let (first, second) = (figures("kiban", &[3.0], &log), figures("other", &[2.0], &log));
        let record = bench.compare(
            "1500-byte frames",
            Unit::GbitPerSecond,
            first,
            second,
            Target::ratio_at_least(1.5),
        );
        let line = serde_json::to_string(record).expect("a record has only plain values");
        assert!(!line.contains('\n'));
        let value: serde_json::Value = serde_json::from_str(&line).expect("it was just written");
        for (pointer, expected) in [
            ("/format", serde_json::json!(1)),
            ("/bench", serde_json::json!("script")),
            ("/unit", serde_json::json!("Gbit/s")),
            ("/sides/0/name", serde_json::json!("kiban")),
            ("/sides/1/figures/median", serde_json::json!(2.0)),
            ("/ratio/median", serde_json::json!(1.5)),
            ("/target", serde_json::json!({"kind": "ratio_at_least", "figure": 1.5})),
            ("/verdict", serde_json::json!("met")),
            ("/rounds/0/order", serde_json::json!([0, 1])),
            ("/rounds/0/foreign_cores", serde_json::json!([0.0, 0.0])),
            ("/environment/kiban", serde_json::json!(env!("CARGO_PKG_VERSION"))),
        ] {
            assert_eq!(value.pointer(pointer), Some(&expected), "{pointer} in {line}");
        }
        assert_eq!(serde_json::from_str::<Record>(&line).expect("records can be read again"), *record);
    }

    #[test]
    fn records_are_appended_and_write_errors_are_reported() {
        let dir = std::env::temp_dir().join(format!("kiban-lab-{}", std::process::id()));
        let log = Rc::default();
        let mut run = bench(1, 0, &[]);
        run.options_mut().dir = Some(dir.join("records"));
        for title in ["one", "two"] {
            run.single(title, Unit::PerSecond, figures("A", &[1.0], &log), Target::None);
        }
        let file = dir.join("records/script.jsonl");
        let text = fs::read_to_string(&file).expect("two records were kept");
        let titles: Vec<String> = text
            .lines()
            .map(|line| serde_json::from_str::<Record>(line).expect("each line is a record").title)
            .collect();
        assert_eq!(titles, ["one", "two"]);

        let mut run = bench(1, 0, &[]);
        run.options_mut().dir = Some(file);
        run.single("three", Unit::PerSecond, figures("A", &[1.0], &log), Target::None);
        assert!(run.report().contains("NOT KEPT"), "{}", run.report());
        fs::remove_dir_all(dir).expect("the test made this directory");
    }

    #[test]
    fn the_table_shows_the_verdict_beside_its_result() {
        let log = Rc::default();
        let mut bench = bench(1, 0, &[]);
        let (first, second) = (figures("kiban", &[12.5], &log), figures("smoltcp", &[5.0], &log));
        bench.compare("frames", Unit::GbitPerSecond, first, second, Target::ratio_at_least(1.5));
        bench.single("cells", Unit::MillionPerSecond, figures("kiban", &[7.0], &log), Target::at_least(12.0));
        let report = bench.report();
        let rows: Vec<String> = report
            .lines()
            .skip_while(|line| !line.starts_with("---"))
            .skip(1)
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        let expected = [
            "frames kiban 12.50 12.50 12.50 Gbit/s",
            "smoltcp 5.000 5.000 5.000 Gbit/s",
            "ratio 2.500 2.500 2.500 x >= 1.5 met",
            "cells kiban 7.000 7.000 7.000 M/s >= 12 MISSED",
            "targets: 1 met, 1 missed",
            "records: none kept",
        ];
        assert_eq!(rows, expected, "{report}");
        assert!(report.lines().all(|line| line.chars().count() <= 100), "{report}");
    }
}
