//! A run that is watched: how far it is, how fast it goes, what came last, and its map so far.
//!
//! Goal      a dashboard reads what a run keeps, from another process and without holding it up; it needs
//!           nothing of the run.
//! Look      each [`Live::look`] reads the folder if it has grown since the last, and says what stands in it.
//! Pace      trials a second over the last [`WINDOW`] of looks; what was there at the first look is nobody's
//!           pace.
//! Limits    a look reads all records, so it costs what a summary costs; a watcher takes a second between
//!           two.

use super::figures::Picture;
use super::question::Metric;
use super::record::Record;
use super::report::Report;
use super::store::{self, Manifest};
use super::store_error::StoreError;
use kiban_base::Instant;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The pace is that of so long a time.
pub const WINDOW: Duration = Duration::from_secs(30);
/// So many of the last records are shown.
pub const LATEST: usize = 12;

/// Who watches a folder.
#[derive(Debug)]
pub struct Live {
    dir: PathBuf,
    manifest: Manifest,
    metrics: Vec<Metric>,
    looks: VecDeque<(Instant, u64)>,
    bytes: Option<u64>,
    seen: Seen,
}

/// What stands in the folder.
#[derive(Clone, PartialEq, Debug, Default)]
struct Seen {
    done: u64,
    warnings: Vec<String>,
    pictures: Vec<Picture>,
    latest: Vec<Record>,
}

/// What is to be shown.
#[derive(Clone, PartialEq, Debug)]
pub struct View<'a> {
    /// The question.
    pub question: &'a str,
    /// Trials that have a record.
    pub done: u64,
    /// Trials that the plan, or its shard, asks for.
    pub trials: u64,
    /// Trials a second; none before two looks that differ.
    pub per_second: Option<f64>,
    /// How long it still takes at this pace.
    pub left: Option<Duration>,
    /// What is wrong with what there is; that the run is not whole is no news here.
    pub warnings: &'a [String],
    /// The figures so far.
    pub pictures: &'a [Picture],
    /// The last records, the newest first.
    pub latest: &'a [Record],
}

impl Live {
    /// Watches the folder of a run. `metrics` are the question's.
    ///
    /// # Errors
    /// Where it is none, or cannot be read.
    pub fn open(dir: &Path, metrics: &[Metric]) -> Result<Live, StoreError> {
        Ok(Live {
            dir: dir.to_owned(),
            manifest: Manifest::read(dir)?,
            metrics: metrics.to_vec(),
            looks: VecDeque::new(),
            bytes: None,
            seen: Seen::default(),
        })
    }

    /// What stands there now.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn look(&mut self, now: Instant) -> Result<View<'_>, StoreError> {
        let bytes = store::recorded_bytes(&self.dir)?;
        if self.bytes.replace(bytes) != Some(bytes) {
            self.seen = self.read()?;
        }
        let done = self.seen.done;
        self.looks.push_back((now, done));
        while self.looks.get(1).is_some_and(|(at, _)| now.since(*at) >= WINDOW) {
            self.looks.pop_front();
        }
        let trials = self.manifest.shard.count(self.manifest.plan.trials());
        let per_second = self.per_second(now, done);
        let left = per_second.map(|pace| Duration::from_secs_f64(trials.saturating_sub(done) as f64 / pace));
        Ok(View {
            question: &self.manifest.plan.question,
            done,
            trials,
            per_second,
            left,
            warnings: &self.seen.warnings,
            pictures: &self.seen.pictures,
            latest: &self.seen.latest,
        })
    }

    fn per_second(&self, now: Instant, done: u64) -> Option<f64> {
        let (at, before) = *self.looks.front()?;
        let seconds = now.since(at).as_secs_f64();
        (done > before && seconds > 0.0).then(|| (done - before) as f64 / seconds)
    }

    fn read(&self) -> Result<Seen, StoreError> {
        let latest = store::latest(&self.dir, LATEST)?;
        Ok(match Report::of(&self.dir, &self.metrics)? {
            None => Seen { latest, ..Seen::default() },
            Some(report) => Seen {
                done: report.records,
                warnings: report.faults(),
                pictures: report.figures.pictures,
                latest,
            },
        })
    }
}
