//! A sweep of a host: runs the engine, derives findings, and tests the remedies.
//!
//! ```text
//! grid → plan → engine::sweep → findings → isolated slow cells again → findings → rounds of the remedies → findings
//! ```
//!
//! Engine    resumes, repeats points disturbed by other load, reconnects to a lost peer, and keeps records.
//! Proofs    if the sweep ends early, the next run of the same command completes them.

use super::grid::Grid;
use super::question::Network;
use super::session::Session;
use crate::engine::{
    self, Failure, Manifest, Options, Outcome, Plan, Progress, Run, Shard, StoreError, Time, Trial,
};
use crate::net::diagnosis::findings::Findings;
use crate::net::diagnosis::repeat::{Open, ROUNDS};
use crate::net::diagnosis::threshold::SlowBelow;
use crate::net::trial::setup::Setup;
use crate::table::counted;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The number of disturbed points from which the progress mentions them.
const DISTURBED_MIN: u64 = 3;

/// A sweep of a host.
pub struct Sweep {
    /// The session with the host.
    pub session: Arc<Session>,
    /// The directory of the sweep.
    pub dir: PathBuf,
    /// The settings of the load guard, and how long to wait for a lost peer.
    pub options: Options,
    /// The rate below which streams are slow.
    pub streams_slow_below: SlowBelow,
}

/// Why there is no report.
#[derive(Debug)]
pub enum SweepError {
    /// The host cannot be reached, or refuses.
    Peer(Failure),
    /// The directory cannot be used.
    Store(StoreError),
    /// No point was measured; the text says why.
    Nothing(String),
}

impl fmt::Display for SweepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SweepError::Peer(failure) => failure.fmt(f),
            SweepError::Store(error) => error.fmt(f),
            SweepError::Nothing(why) => write!(f, "no point was measured: {why}"),
        }
    }
}

impl std::error::Error for SweepError {}

impl From<Failure> for SweepError {
    fn from(failure: Failure) -> SweepError {
        SweepError::Peer(failure)
    }
}

impl From<StoreError> for SweepError {
    fn from(error: StoreError) -> SweepError {
        SweepError::Store(error)
    }
}

/// The report of a sweep.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The findings.
    #[serde(flatten)]
    pub findings: Findings,
    /// The first few of the points that could not be measured, and why.
    pub impossible: Vec<String>,
    /// Lines of the directory's records that were skipped, and why.
    pub broken: Vec<String>,
    /// The number of points that were recorded already.
    pub resumed: u64,
    /// Why the sweep ended early; `None` if it did not.
    pub ended_early: Option<String>,
    /// Remedies that could not be measured, and why.
    #[serde(skip)]
    notes: Vec<(String, String)>,
}

/// A function that is called with the number of finished points, their total, and a description of the next
/// one.
pub type Hear<'a> = &'a (dyn Fn(u64, u64, &str) + Sync);

impl Sweep {
    /// Measures the missing points, diagnoses them, and tests the remedies.
    ///
    /// # Errors
    /// See [`SweepError`].
    pub fn run(&self, grid: &Grid, hear: Hear<'_>) -> Result<Report, SweepError> {
        self.session.path()?;
        let run = self.open(self.dir.clone(), grid.plan(self.session.label()))?;
        self.streams_slow_below.write(&self.dir)?;
        let broken =
            run.found().broken.iter().map(|broken| format!("line {}: {}", broken.line, broken.why)).collect();
        let outcome = self.measure(&run, hear, "")?;
        let Some(findings) = Findings::of(&self.dir)? else {
            let why = outcome.ended_early.or(outcome.failures.into_iter().next());
            return Err(SweepError::Nothing(why.unwrap_or_default()));
        };
        let kept = outcome.found + outcome.made;
        let early = |why| format!("{why}; kept {}: run the same command to resume", counted(kept, "point"));
        let mut report = Report {
            findings,
            impossible: outcome.failures,
            broken,
            resumed: outcome.found,
            ended_early: outcome.ended_early.map(early),
            notes: Vec::new(),
        };
        // Measure isolated slow cells again before the remedies, because they may turn out not to be slow.
        let is_remedy = |open: &Open| !open.advice.is_empty();
        self.complete(&mut report, hear, |open| !is_remedy(open))?;
        for _ in 0..ROUNDS {
            self.complete(&mut report, hear, is_remedy)?;
        }
        Ok(report)
    }

    fn question(&self) -> Network {
        Network::with(Arc::clone(&self.session))
    }

    fn open(&self, dir: PathBuf, plan: Plan) -> Result<Run, StoreError> {
        Run::open(&dir, Manifest::new(Time::Real, plan, Shard::ALL))
    }

    fn measure(&self, run: &Run, hear: Hear<'_>, what: &str) -> Result<Outcome, StoreError> {
        let words = |trial: &Trial| Setup::of(&trial.point).map(|setup| format!("{what}{}", setup.words()));
        let progress = |Progress { outcome, now }: Progress<'_>| {
            let mut words = now.and_then(|trial| words(trial).ok()).unwrap_or_default();
            if outcome.disturbed >= DISTURBED_MIN {
                words += &format!(
                    "; {} disturbed by other programs (if both ends run on this host: --foreign-cores 100)",
                    outcome.disturbed
                );
            }
            hear(outcome.done(), outcome.trials, &words);
        };
        engine::sweep(&self.question(), run, None, &self.options, &progress)
    }

    /// Makes the measurements that the findings lack and `is_wanted` selects, and derives the findings again.
    fn complete(
        &self,
        report: &mut Report,
        hear: Hear<'_>,
        is_wanted: impl Fn(&Open) -> bool,
    ) -> Result<(), SweepError> {
        // A remedy that could not be measured is not tried in later rounds.
        let has_failed = |open: &Open| report.notes.iter().any(|(advice, _)| *advice == open.advice);
        let wanted = report.findings.open.iter().filter(|open| is_wanted(open) && !has_failed(open));
        let wanted: Vec<Open> = wanted.cloned().collect();
        if wanted.is_empty() {
            return Ok(());
        }
        for open in wanted {
            if report.ended_early.is_some() {
                break;
            }
            let what = if open.advice.is_empty() { "again: " } else { "proving: " };
            let outcome = self.measure(&self.open(open.dir, open.plan)?, hear, what)?;
            report.notes.extend(outcome.failures.into_iter().map(|why| (open.advice.clone(), why)));
            report.ended_early = outcome.ended_early;
        }
        if let Some(findings) = Findings::of(&self.dir)? {
            report.findings = findings;
        }
        report.findings.add_notes(&report.notes);
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.ended_early {
            writeln!(f, "ENDED EARLY: {why}\n")?;
        }
        write!(f, "{}", self.findings)?;
        for why in &self.impossible {
            writeln!(f, "not measured: {why}")?;
        }
        if self.resumed > 0 {
            writeln!(f, "already recorded: {}", counted(self.resumed, "point"))?;
        }
        Ok(())
    }
}
