//! What may be asked: the parameters, what comes out, and one trial.

use super::explanation::Explanation;
use super::point::{Point, Value};
use super::store_error::StoreError;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// In which time a question's trials run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    /// The simulator's: exact, so that a trial need not be made twice, and many may be made at once.
    Virtual,
    /// This machine's: trials run one after the other, and foreign load spoils them.
    Real,
}

/// A parameter of a question.
#[derive(Clone, PartialEq, Debug)]
pub struct Parameter {
    /// Its name in plans, with its unit last.
    pub name: &'static str,
    /// What it is, for `--help` and for errors.
    pub what: &'static str,
    /// The value where a plan says nothing; it also fixes the kind. None: a plan has to say it, as a word.
    pub default: Option<Value>,
}

/// A figure that a trial gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Its name in records, with its unit last.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    /// Its unit, for axes.
    pub unit: &'static str,
}

/// What came of a trial: figures by the names of their metrics, and evidence that is kept beside them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Metrics {
    /// Figures.
    pub figures: BTreeMap<String, f64>,
    /// What a later stage explains them from; null if there is nothing.
    pub evidence: serde_json::Value,
}

impl Metrics {
    /// Figures by their names, and the evidence beside them.
    pub fn of(figures: &[(&str, f64)], evidence: serde_json::Value) -> Metrics {
        let figures = figures.iter().map(|(name, figure)| ((*name).to_owned(), *figure));
        Metrics { figures: figures.collect(), evidence }
    }
}

/// Why there is no result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The point makes no sense: it is not tried again.
    Impossible(String),
    /// The world's fault (a peer that died, a full disk): it may be tried again.
    Lost(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Impossible(why) => write!(f, "impossible: {why}"),
            Failure::Lost(why) => write!(f, "lost: {why}"),
        }
    }
}

impl std::error::Error for Failure {}

/// A question that a sweep asks of many points.
pub trait Question: Sync {
    /// Its name in plans.
    fn name(&self) -> &'static str;

    /// One sentence: what is asked.
    fn what(&self) -> &'static str;

    /// In which time it is answered.
    fn time(&self) -> Time;

    /// What may be said of a point.
    fn parameters(&self) -> &[Parameter];

    /// What comes out; the first is the one that a map shows.
    fn metrics(&self) -> &[Metric];

    /// Whether a point can be tried at all; what to change, if not.
    ///
    /// # Errors
    /// [`Failure::Impossible`].
    fn judge(&self, point: &Point) -> Result<(), Failure>;

    /// Asks once. Every parameter is in the point.
    ///
    /// # Errors
    /// [`Failure`]: whose fault it is.
    fn trial(&self, point: &Point, seed: u64) -> Result<Metrics, Failure>;

    /// The command that asks it, where a plan alone cannot: what is here then only describes it.
    fn asked_by(&self) -> Option<&'static str> {
        None
    }

    /// What there is to say of a run's folder beyond its figures.
    ///
    /// # Errors
    /// Where the folder is none of a run, or cannot be read.
    fn explain(&self, _dir: &Path) -> Result<Explanation, StoreError> {
        Ok(Explanation::default())
    }
}
