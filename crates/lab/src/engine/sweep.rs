//! A sweep: all trials of a shard that have no record yet.
//!
//! Virtual   on all processors, in any order; what the cache has is taken from there, and what is made is put
//!           there.
//! Real      one after the other. Others' load is read around each trial ([`crate::load`]): a disturbed one
//!           is made again, up to a bound; then the least disturbed counts and is marked. Nothing ever comes
//!           from a cache.
//! Time      moments are those of a clock that only goes forwards: whoever sets the machine's time changes
//!           nothing.
//! Builds    where a record of virtual time is found, one is made again and has to be the same: so records of
//!           another build of this version are noticed.
//! Failures  what is lost is tried again within the same bound, and then counted as failed; it has no record,
//!           so that the next run tries it again. The other trials go on.
//! Patience  where all trials need one peer, a peer that is lost is called again for a while
//!           ([`Options::patience`]); then the sweep ends early, since the other trials would be lost as
//!           well, and the next run goes on.
//! Limits    the load guard sees processors, not the network or the disk.

use super::key::VERSION;
use super::plan::Trial;
use super::question::{Failure, Metrics, Question, Time};
use super::record::Record;
use super::store::{Cache, Run, line_of};
use super::store_error::StoreError;
use crate::environment::Environment;
use crate::load::{Foreign, Meter, ProcMeter};
use kiban_base::Instant;
use kiban_measure::pause::pace;
use kiban_os::Clock;
use kiban_os::{ignore_poison, lock};
use serde::Serialize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// So many failed trials are named.
const NAMED_MAX: usize = 10;
/// How often a lost peer is called.
const CALL: Duration = Duration::from_millis(500);

/// How a sweep is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads for virtual trials; none: one a processor.
    pub workers: Option<usize>,
    /// What others may use during a real trial, in cores.
    pub foreign_cores_max: f64,
    /// How often a real trial is made again that was disturbed or lost.
    pub redos_max: u32,
    /// How long a real trial is tried again that was lost, whatever the number of tries; then the sweep ends
    /// early. None: it is tried as often as a disturbed one, and the others go on.
    pub patience: Option<Duration>,
}

impl Default for Options {
    fn default() -> Options {
        Options { workers: None, foreign_cores_max: 0.25, redos_max: 5, patience: None }
    }
}

/// What a sweep did.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Outcome {
    /// Trials of the shard.
    pub trials: u64,
    /// That had a record.
    pub found: u64,
    /// Whose record was in the cache.
    pub cached: u64,
    /// That were made.
    pub made: u64,
    /// How often one was made again.
    pub redone: u64,
    /// Records that are marked, since others disturbed every try.
    pub disturbed: u64,
    /// Trials that failed, and have no record.
    pub failed: u64,
    /// The first of them, with what was wrong.
    pub failures: Vec<String>,
    /// Why the sweep ended before its time; none if it did not.
    pub ended_early: Option<String>,
}

impl Outcome {
    /// Whether every trial has a record now.
    pub fn is_whole(&self) -> bool {
        self.failed == 0 && self.ended_early.is_none()
    }

    /// How many trials are over, well or not.
    pub fn done(&self) -> u64 {
        self.found + self.cached + self.made + self.failed
    }

    fn fail(&mut self, trial: &Trial, failure: &Failure) {
        self.failed += 1;
        if self.failures.len() < NAMED_MAX {
            self.failures.push(format!("{} seed={}: {failure}", trial.point, trial.seed));
        }
    }
}

/// How far a sweep is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress<'a> {
    /// What it did so far.
    pub outcome: &'a Outcome,
    /// The trial that it makes now; none in virtual time, where there are many, and at the end.
    pub now: Option<&'a Trial>,
}

/// A clock to be patient by.
pub trait Patience {
    /// The moment, which never goes back.
    fn now(&self) -> Instant;

    /// Lets time go by.
    fn pause(&mut self, length: Duration);
}

impl Patience for Clock {
    fn now(&self) -> Instant {
        Clock::now(self)
    }

    fn pause(&mut self, length: Duration) {
        pace(length);
    }
}

/// What a sweep in real time is lent.
pub struct Lent<'a> {
    /// Reads the machine's accounts.
    pub meter: &'a mut dyn Meter,
    /// Waits for a peer that was lost.
    pub patience: &'a mut dyn Patience,
}

/// Makes what a run has no record of. `progress` is called after every trial of the shard, found ones
/// included, and in real time also before the first.
///
/// # Errors
/// Where records cannot be written, or those that were found are not those that this build makes.
pub fn sweep(
    question: &dyn Question,
    run: &Run,
    cache: Option<&Cache>,
    options: &Options,
    progress: &(dyn Fn(Progress<'_>) + Sync),
) -> Result<Outcome, StoreError> {
    let mut clock = Clock::new();
    let lent = Lent { meter: &mut ProcMeter::new(clock), patience: &mut clock };
    sweep_with(question, run, cache, options, lent, progress)
}

/// The same with other accounts and another clock.
///
/// # Errors
/// As [`sweep`].
pub fn sweep_with(
    question: &dyn Question,
    run: &Run,
    cache: Option<&Cache>,
    options: &Options,
    lent: Lent<'_>,
    progress: &(dyn Fn(Progress<'_>) + Sync),
) -> Result<Outcome, StoreError> {
    let manifest = run.manifest();
    let (plan, shard) = (&manifest.plan, manifest.shard);
    let all = shard.trials(plan.trials()).map(|number| plan.trial(number));
    let (found, open): (Vec<Trial>, Vec<Trial>) =
        all.partition(|trial| run.found().lines.contains_key(&manifest.key(trial)));
    let mut outcome = Outcome { trials: shard.count(plan.trials()), ..Outcome::default() };
    let sweep = Sweep { question, run, cache, options, progress };
    if let (Time::Virtual, Some(trial)) = (question.time(), found.first()) {
        sweep.compare(trial, &run.found().lines[&manifest.key(trial)])?;
    }
    for _ in &found {
        outcome.found += 1;
        sweep.tell(&outcome, None);
    }
    let outcome = match question.time() {
        Time::Virtual => sweep.in_virtual_time(&open, outcome)?,
        Time::Real => sweep.in_real_time(&open, lent, outcome)?,
    };
    run.sync()?;
    Ok(outcome)
}

struct Sweep<'a> {
    question: &'a dyn Question,
    run: &'a Run,
    cache: Option<&'a Cache>,
    options: &'a Options,
    progress: &'a (dyn Fn(Progress<'_>) + Sync),
}

impl Sweep<'_> {
    fn tell(&self, outcome: &Outcome, now: Option<&Trial>) {
        (self.progress)(Progress { outcome, now });
    }

    fn in_virtual_time(&self, open: &[Trial], outcome: Outcome) -> Result<Outcome, StoreError> {
        let (next, stop, compared) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicBool::new(false));
        let outcome = Mutex::new(outcome);
        let work = || {
            while let Some(trial) = open.get(next.fetch_add(1, Ordering::Relaxed)) {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let made = self.virtual_trial(trial, &compared);
                let mut outcome = lock(&outcome);
                match made {
                    Ok(Made::Cached) => outcome.cached += 1,
                    Ok(Made::New) => outcome.made += 1,
                    Ok(Made::Failed(failure)) => outcome.fail(trial, &failure),
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        return Err(error);
                    }
                }
                self.tell(&outcome, None);
            }
            Ok(())
        };
        let workers =
            self.options.workers.or_else(|| std::thread::available_parallelism().ok().map(usize::from));
        let workers = workers.unwrap_or(1).clamp(1, open.len().max(1));
        std::thread::scope(|scope| {
            let hands: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            hands
                .into_iter()
                .try_for_each(|hand| hand.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })?;
        Ok(ignore_poison(outcome.into_inner()))
    }

    fn virtual_trial(&self, trial: &Trial, compared: &AtomicBool) -> Result<Made, StoreError> {
        let key = self.run.manifest().key(trial);
        if let Some(record) = self.cache.and_then(|cache| cache.get(&key)) {
            if !compared.swap(true, Ordering::Relaxed) {
                self.compare(trial, &line_of(&record))?;
            }
            self.run.append(&record)?;
            return Ok(Made::Cached);
        }
        let metrics = match self.ask(trial) {
            Ok(metrics) => metrics,
            Err(failure) => return Ok(Made::Failed(failure)),
        };
        let record = self.record(trial, metrics);
        self.run.append(&record)?;
        if let Some(cache) = self.cache {
            cache.put(&record)?;
        }
        Ok(Made::New)
    }

    /// Makes a recorded trial again.
    fn compare(&self, trial: &Trial, line: &str) -> Result<(), StoreError> {
        let again = self.ask(trial).map(|metrics| line_of(&self.record(trial, metrics)));
        if again.as_deref() == Ok(line) {
            return Ok(());
        }
        Err(StoreError::Mismatch(format!(
            "the record of {} seed={} differs from the result of this build of kiban {VERSION}, although virtual time \
             is exact: the records are of another build; use another folder (--out), and another cache if there is one",
            trial.point, trial.seed
        )))
    }

    fn in_real_time(
        &self,
        open: &[Trial],
        mut lent: Lent<'_>,
        mut outcome: Outcome,
    ) -> Result<Outcome, StoreError> {
        let environment = Environment::read();
        for trial in open {
            self.tell(&outcome, Some(trial));
            match self.quietest(trial, &mut lent, &mut outcome.redone) {
                Tried::Made(metrics, foreign_cores) => {
                    outcome.made += 1;
                    outcome.disturbed += u64::from(foreign_cores.is_some());
                    let environment = Some(environment.clone());
                    self.run.append(&Record { environment, foreign_cores, ..self.record(trial, metrics) })?;
                }
                Tried::Failed(failure) => outcome.fail(trial, &failure),
                Tried::Gone(why) => {
                    outcome.ended_early = Some(why);
                    break;
                }
            }
        }
        self.tell(&outcome, None);
        Ok(outcome)
    }

    /// Makes a trial until it was quiet, or too often: what came out, and the foreign load if it was never
    /// quiet.
    fn quietest(&self, trial: &Trial, lent: &mut Lent<'_>, redone: &mut u64) -> Tried {
        let mut best: Option<(Metrics, f64)> = None;
        let mut lost_since = None;
        let mut tries = 0;
        loop {
            let start = lent.meter.read();
            let asked = self.ask(trial);
            let foreign = start.zip(lent.meter.read()).map(|(start, end)| Foreign::between(start, end));
            let lost = match asked {
                Err(failure @ Failure::Impossible(_)) => return Tried::Failed(failure),
                Err(Failure::Lost(why)) => Some(why),
                Ok(metrics) => {
                    let disturbed = foreign.filter(|foreign| foreign.exceeds(self.options.foreign_cores_max));
                    let Some(cores) = disturbed.map(Foreign::cores) else {
                        return Tried::Made(metrics, None);
                    };
                    if best.as_ref().is_none_or(|(_, least)| cores < *least) {
                        best = Some((metrics, cores));
                    }
                    lost_since = None;
                    None
                }
            };
            let is_over = match (&lost, self.options.patience) {
                (Some(_), Some(patience)) => {
                    let now = lent.patience.now();
                    now.since(*lost_since.get_or_insert(now)) >= patience
                }
                _ => {
                    tries += 1;
                    tries > self.options.redos_max
                }
            };
            if !is_over {
                if lost.is_some() && self.options.patience.is_some() {
                    lent.patience.pause(CALL);
                }
                *redone += 1;
                continue;
            }
            return match (best, lost, self.options.patience) {
                // What came out before the peer was lost counts; the next trial will find it gone.
                (Some((metrics, cores)), ..) => Tried::Made(metrics, Some(cores)),
                (None, Some(why), Some(_)) => Tried::Gone(why),
                (None, why, _) => Tried::Failed(Failure::Lost(why.unwrap_or_default())),
            };
        }
    }

    fn ask(&self, trial: &Trial) -> Result<Metrics, Failure> {
        let metrics = self.question.trial(&trial.point, trial.seed)?;
        match metrics.figures.iter().find(|(_, figure)| !figure.is_finite()) {
            Some((name, figure)) => Err(Failure::Lost(format!("{name} is {figure}, not a finite number"))),
            None => Ok(metrics),
        }
    }

    fn record(&self, trial: &Trial, metrics: Metrics) -> Record {
        Record {
            key: self.run.manifest().key(trial),
            question: self.question.name().to_owned(),
            point: trial.point.clone(),
            repetition: trial.repetition,
            seed: trial.seed,
            version: VERSION.to_owned(),
            environment: None,
            metrics: metrics.figures,
            evidence: metrics.evidence,
            foreign_cores: None,
        }
    }
}

/// What came of a real trial.
enum Tried {
    /// Figures, and the foreign load if every try was disturbed.
    Made(Metrics, Option<f64>),
    /// There are none, and the other trials go on.
    Failed(Failure),
    /// The peer stays lost: why.
    Gone(String),
}

enum Made {
    Cached,
    New,
    Failed(Failure),
}
