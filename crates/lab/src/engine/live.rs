//! The progress of a running sweep: trials done, rate, latest records and figures so far.
//!
//! Purpose   a dashboard in another process, which reads the files of the run without slowing it down.
//! Look      each [`Live::look`] rereads the folder if the records file has changed.
//! Rate      trials per second over the last [`WINDOW`]; records that existed at the first look do not count.
//! Limits    a look reads all records, so it costs as much as a summary; callers should wait about a second
//!           between two looks.

use super::point::{Point, Value};
use super::question::Metric;
use super::records::record::Record;
use super::records::store::{self, Manifest};
use super::records::store_error::StoreError;
use super::results::figures::Picture;
use super::results::report::Report;
use super::results::words::{described, people_unit};
use crate::table::readable;
use kiban_base::Instant;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time over which the rate is averaged.
pub const WINDOW: Duration = Duration::from_secs(30);
/// The number of latest records shown.
pub const LATEST: usize = 12;

/// Watches the folder of a run.
#[derive(Debug)]
pub struct Live {
    dir: PathBuf,
    manifest: Manifest,
    metrics: Vec<Metric>,
    looks: VecDeque<(Instant, u64)>,
    bytes: Option<u64>,
    seen: Seen,
}

/// The contents of the folder when it was last read.
#[derive(Clone, PartialEq, Debug, Default)]
struct Seen {
    done: u64,
    warnings: Vec<String>,
    pictures: Vec<Picture>,
    latest: Vec<Record>,
    words: Vec<String>,
}

/// The state of a run, for display.
#[derive(Clone, PartialEq, Debug)]
pub struct View<'a> {
    /// The question.
    pub question: &'a str,
    /// The number of trials that have a record.
    pub done: u64,
    /// The number of trials in the plan, or in its shard.
    pub trials: u64,
    /// Trials per second; `None` until records have been added between two looks.
    pub per_second: Option<f64>,
    /// The remaining time at this rate.
    pub left: Option<Duration>,
    /// Warnings about the records, apart from the one about an incomplete run.
    pub warnings: &'a [String],
    /// The figures so far.
    pub pictures: &'a [Picture],
    /// The latest records, newest first.
    pub latest: &'a [Record],
    /// The latest records in words, a line for each: the parameters that vary, and the first metrics.
    pub words: &'a [String],
}

/// The number of metrics in the words of a record.
const METRICS_MAX: usize = 2;

impl Live {
    /// Opens the folder of a run. `metrics` are the metrics of its question.
    ///
    /// # Errors
    /// The folder is not a run folder, or cannot be read.
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

    /// Reads the current state of the run.
    ///
    /// # Errors
    /// The folder cannot be read.
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
            words: &self.seen.words,
        })
    }

    fn per_second(&self, now: Instant, done: u64) -> Option<f64> {
        let (at, before) = *self.looks.front()?;
        let seconds = now.since(at).as_secs_f64();
        (done > before && seconds > 0.0).then(|| (done - before) as f64 / seconds)
    }

    fn read(&self) -> Result<Seen, StoreError> {
        let latest = store::latest(&self.dir, LATEST)?;
        let words = latest.iter().map(|record| self.words(record)).collect();
        Ok(match Report::of(&self.dir, &self.metrics)? {
            None => Seen { latest, words, ..Seen::default() },
            Some(report) => Seen {
                done: report.records,
                warnings: report.faults(),
                pictures: report.figures.pictures,
                latest,
                words,
            },
        })
    }

    /// Describes a record in a line.
    fn words(&self, record: &Record) -> String {
        let plan = &self.manifest.plan;
        let varies =
            |(name, _): &(&String, &Value)| plan.parameters.get(*name).is_some_and(|values| values.len() > 1);
        let point = record.point.0.iter().filter(varies);
        let point: Point = point.map(|(name, value)| (name.clone(), value.clone())).collect();
        let metric = |metric: &Metric| {
            let value = *record.metrics.get(metric.name)?;
            let (unit, factor) = people_unit(metric.unit, value);
            let figure = readable(value * factor);
            Some(if unit.is_empty() {
                format!("{} {figure}", metric.what)
            } else {
                format!("{figure} {unit}")
            })
        };
        let metrics: Vec<String> = self.metrics.iter().filter_map(metric).take(METRICS_MAX).collect();
        format!("{}: {}", described(&plan.question, &point), metrics.join(", "))
    }
}
