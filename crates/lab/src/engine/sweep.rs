//! A sweep: runs all trials of a shard that have no record yet.
//!
//! Virtual time  trials run on all processors, in any order. Records are taken from the cache if it has them;
//!           new ones are stored there.
//! Real time  trials run one after the other. The foreign load is read before and after each trial
//!           ([`crate::load`]): a disturbed trial is repeated. If every attempt up to a limit is disturbed,
//!           the least disturbed one is used and marked. The cache is not used.
//! Clock     monotonic: setting the machine's time has no effect.
//! Builds    if virtual-time records exist, one of their trials is repeated and must give an equal record.
//!           This detects records from another build of the same version.
//! Failures  a failed trial is repeated up to the same limit and then counted as failed. It has no record, so
//!           the next run repeats it. The other trials continue.
//! Lost peer  with [`Options::peer_timeout`], a trial whose peer is lost is repeated until this time has
//!           passed. Then the sweep ends early, because the remaining trials would fail as well; the next run
//!           continues from there.
//! Limits    the load guard sees CPU use, not use of the network or the disk.

use super::plan::Trial;
use super::question::{Failure, Metrics, Question, Time};
use super::records::key::VERSION;
use super::records::record::Record;
use super::records::store::{Cache, Run, json_line};
use super::records::store_error::StoreError;
use crate::environment::Environment;
use crate::load::{ForeignLoad, Meter, ProcMeter};
use kiban_base::Instant;
use kiban_measure::pause::pace;
use kiban_os::Clock;
use kiban_os::{ignore_poison, lock};
use serde::Serialize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The maximum number of failed trials that are reported individually.
const NAMED_MAX: usize = 10;
/// The interval at which a trial is repeated while its peer is lost.
const CALL: Duration = Duration::from_millis(500);

/// The options of a sweep.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads for virtual-time trials; `None` means one per processor.
    pub workers: Option<usize>,
    /// The foreign load that a real-time trial tolerates, in cores.
    pub foreign_cores_max: f64,
    /// The maximum number of repetitions of a disturbed or failed real-time trial.
    pub retries_max: u32,
    /// How long a failed real-time trial is repeated before the sweep ends early, regardless of the number of
    /// attempts. If this is `None`, the trial is repeated at most `retries_max` times, and then the sweep
    /// continues with the other trials.
    pub peer_timeout: Option<Duration>,
}

impl Default for Options {
    fn default() -> Options {
        Options { workers: None, foreign_cores_max: 0.25, retries_max: 5, peer_timeout: None }
    }
}

/// The result of a sweep.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Outcome {
    /// Trials in the shard.
    pub trials: u64,
    /// Trials that already had a record.
    pub found: u64,
    /// Trials whose record was in the cache.
    pub cached: u64,
    /// Trials that were run.
    pub made: u64,
    /// Repeated attempts.
    pub redone: u64,
    /// Records that are marked because every attempt was disturbed.
    pub disturbed: u64,
    /// Trials that failed and have no record.
    pub failed: u64,
    /// The first failed trials, with the reasons.
    pub failures: Vec<String>,
    /// Why the sweep ended early; `None` if it did not.
    pub ended_early: Option<String>,
}

impl Outcome {
    /// Returns whether every trial has a record now.
    pub fn is_complete(&self) -> bool {
        self.failed == 0 && self.ended_early.is_none()
    }

    /// Returns the number of trials that are done, including failed ones.
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

/// The progress of a sweep.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress<'a> {
    /// The results so far.
    pub outcome: &'a Outcome,
    /// The running trial; `None` at the end, and in virtual time, where several trials run in parallel.
    pub now: Option<&'a Trial>,
}

/// The clock, and the pauses between attempts at a trial until [`Options::peer_timeout`]; tests replace them.
pub trait RetryClock {
    /// Returns the monotonic time.
    fn now(&self) -> Instant;

    /// Sleeps for `length`.
    fn pause(&mut self, length: Duration);
}

impl RetryClock for Clock {
    fn now(&self) -> Instant {
        Clock::now(self)
    }

    fn pause(&mut self, length: Duration) {
        pace(length);
    }
}

/// The interfaces to the system that a real-time sweep uses; tests replace them.
pub struct SystemHooks<'a> {
    /// Reads CPU times, from which the foreign load is computed.
    pub meter: &'a mut dyn Meter,
    /// The clock, and the pauses between attempts while a peer is lost.
    pub patience: &'a mut dyn RetryClock,
}

/// Runs all trials of a run that have no record. `progress` is called for every trial of the shard, including
/// trials that already have a record; in real time it is called before each trial and at the end.
///
/// # Errors
/// Records cannot be written, or an existing record differs from the result of this build.
pub fn sweep(
    question: &dyn Question,
    run: &Run,
    cache: Option<&Cache>,
    options: &Options,
    progress: &(dyn Fn(Progress<'_>) + Sync),
) -> Result<Outcome, StoreError> {
    let mut clock = Clock::new();
    let lent = SystemHooks { meter: &mut ProcMeter::new(clock), patience: &mut clock };
    sweep_with(question, run, cache, options, lent, progress)
}

/// Like [`sweep`], with the given meter and clock.
///
/// # Errors
/// See [`sweep`].
pub fn sweep_with(
    question: &dyn Question,
    run: &Run,
    cache: Option<&Cache>,
    options: &Options,
    lent: SystemHooks<'_>,
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
                self.compare(trial, &json_line(&record))?;
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

    /// Repeats a recorded trial and checks that the result equals the record.
    fn compare(&self, trial: &Trial, line: &str) -> Result<(), StoreError> {
        let again = self.ask(trial).map(|metrics| json_line(&self.record(trial, metrics)));
        if again.as_deref() == Ok(line) {
            return Ok(());
        }
        Err(StoreError::Mismatch(format!(
            "the record of {} seed={} differs from the result of this build of kiban {VERSION}, although \
             virtual time is deterministic: the records come from another build; use another folder \
             (--out), and another cache if you use --cache",
            trial.point, trial.seed
        )))
    }

    fn in_real_time(
        &self,
        open: &[Trial],
        mut lent: SystemHooks<'_>,
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
                    let measured_at = Some(kiban_os::clock::unix_seconds());
                    let record = self.record(trial, metrics);
                    self.run.append(&Record { environment, measured_at, foreign_cores, ..record })?;
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

    /// Repeats a trial until an attempt was undisturbed or the limit is reached. Returns the result of the
    /// least disturbed attempt, and its foreign load if every attempt was disturbed.
    fn quietest(&self, trial: &Trial, lent: &mut SystemHooks<'_>, redone: &mut u64) -> Tried {
        let mut best: Option<(Metrics, f64)> = None;
        let mut lost_since = None;
        let mut tries = 0;
        loop {
            let start = lent.meter.read();
            let result = self.ask(trial);
            let foreign = start.zip(lent.meter.read()).map(|(start, end)| ForeignLoad::between(start, end));
            let lost = match result {
                Err(failure @ Failure::Impossible(_)) => return Tried::Failed(failure),
                Err(Failure::Lost(why)) => Some(why),
                Ok(metrics) => {
                    let disturbed = foreign.filter(|foreign| foreign.exceeds(self.options.foreign_cores_max));
                    let Some(cores) = disturbed.map(ForeignLoad::cores) else {
                        return Tried::Made(metrics, None);
                    };
                    if best.as_ref().is_none_or(|(_, least)| cores < *least) {
                        best = Some((metrics, cores));
                    }
                    lost_since = None;
                    None
                }
            };
            let is_over = match (&lost, self.options.peer_timeout) {
                (Some(_), Some(patience)) => {
                    let now = lent.patience.now();
                    now.since(*lost_since.get_or_insert(now)) >= patience
                }
                _ => {
                    tries += 1;
                    tries > self.options.retries_max
                }
            };
            if !is_over {
                if lost.is_some() && self.options.peer_timeout.is_some() {
                    lent.patience.pause(CALL);
                }
                *redone += 1;
                continue;
            }
            return match (best, lost, self.options.peer_timeout) {
                // Use the earlier, disturbed attempt; the next trial will notice that the peer is lost.
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
            measured_at: None,
            metrics: metrics.figures,
            evidence: metrics.evidence,
            foreign_cores: None,
        }
    }
}

/// The outcome of a real-time trial.
enum Tried {
    /// A result, and the foreign load if every attempt was disturbed.
    Made(Metrics, Option<f64>),
    /// The trial failed; the sweep continues.
    Failed(Failure),
    /// The peer stayed lost, with the reason; the sweep ends.
    Gone(String),
}

enum Made {
    Cached,
    New,
    Failed(Failure),
}
