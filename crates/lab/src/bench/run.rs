//! A run of benchmarks.

use super::options::Options;
use super::record::{FORMAT, Record, Round, Side, Target, Unit, Verdict};
use super::summary::{notes, table};
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal, Write as _};
use std::path::{Path, PathBuf};

use kiban_os::clock::{Clock, unix_seconds};

use crate::environment::{Environment, date};
use crate::load::{ForeignLoad, Meter, ProcMeter};
use crate::stats::Summary;
use crate::trial::Trial;

/// A run of benchmarks that share a name and a records file.
#[must_use = "finish() prints the table"]
pub struct Bench {
    pub(super) name: String,
    pub(super) options: Options,
    pub(super) clock: Clock,
    pub(super) meter: Box<dyn Meter>,
    pub(super) environment: Environment,
    pub(super) records: Vec<Record>,
    pub(super) record_error: Option<io::Error>,
}

/// The name of a side, and the function that measures it once.
pub type Sample<'a> = (&'a str, &'a mut dyn FnMut(&mut Trial) -> f64);

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

    /// Measures a side and several others in turn, and adds a comparison of the first with each of the
    /// others. A round consists of a sample of every side. Each sample returns its result in `unit`.
    pub fn compare_each<'a>(
        &mut self,
        title: &str,
        unit: Unit,
        first: Sample<'a>,
        others: Vec<(Sample<'a>, Target)>,
    ) {
        let (mut samples, mut targets) = (vec![first], Vec::new());
        for (sample, target) in others {
            samples.push(sample);
            targets.push(target);
        }
        let (rounds, gave_up) = self.all_rounds(title, &mut samples);
        for (at, target) in (1..).zip(targets) {
            let names = [samples[0].0, samples[at].0];
            let rounds = rounds.iter().map(|round| round.of([0, at])).collect();
            self.measured(title, unit, &names, rounds, gave_up, target);
        }
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

    pub(super) fn run(
        &mut self,
        title: &str,
        unit: Unit,
        samples: &mut [Sample<'_>],
        target: Target,
    ) -> &Record {
        let (rounds, gave_up) = self.all_rounds(title, samples);
        let names: Vec<&str> = samples.iter().map(|sample| sample.0).collect();
        self.measured(title, unit, &names, rounds, gave_up, target)
    }

    /// Runs the warm-up, and then the rounds that are recorded. Returns those, and whether it gave up.
    fn all_rounds(&mut self, title: &str, samples: &mut [Sample<'_>]) -> (Vec<Round>, bool) {
        let warmup: Vec<usize> = (0..samples.len()).collect();
        for at in 0..self.options.warmup {
            self.progress(title, &format!("warm-up {}/{}", at + 1, self.options.warmup));
            self.round(title, samples, &warmup);
        }
        let measured = self.rounds(title, samples);
        self.progress(title, "");
        measured
    }

    pub(super) fn add(&mut self, record: Record) -> &Record {
        if let Err(error) = self.keep(&record) {
            self.record_error = Some(error);
        }
        self.records.push(record);
        self.records.last().expect("a record was just added")
    }

    /// Runs rounds until enough were quiet or too many were rejected. Returns the rounds, and whether it gave
    /// up.
    pub(super) fn rounds(&mut self, title: &str, samples: &mut [Sample<'_>]) -> (Vec<Round>, bool) {
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

    pub(super) fn round(&mut self, title: &str, samples: &mut [Sample<'_>], order: &[usize]) -> Round {
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

    pub(super) fn record(
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

    pub(super) fn file(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.jsonl", self.name))
    }

    /// Appends the record to its file.
    pub(super) fn keep(&self, record: &Record) -> io::Result<()> {
        let Some(dir) = &self.options.dir else { return Ok(()) };
        fs::create_dir_all(dir)?;
        let mut line = serde_json::to_string(record)?;
        line.push('\n');
        OpenOptions::new().create(true).append(true).open(self.file(dir))?.write_all(line.as_bytes())
    }

    /// Shows the progress if standard error is a terminal; an empty `state` clears the line.
    pub(super) fn progress(&self, title: &str, state: &str) {
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
