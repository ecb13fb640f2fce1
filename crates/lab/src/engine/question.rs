//! Questions: experiments with parameters and metrics that a sweep can run.

use super::point::{Point, Value};
use super::records::store_error::StoreError;
use super::results::explanation::Explanation;
use crate::heat::Best;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// The kind of time in which the trials of a question run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    /// Simulated time: results are exact, so trials run once, in parallel.
    Virtual,
    /// Real time: load on the machine disturbs trials, so they run one after another.
    Real,
}

/// A parameter of a question.
#[derive(Clone, PartialEq, Debug)]
pub struct Parameter {
    /// The parameter's name in plans, which ends with the unit.
    pub name: &'static str,
    /// A description for `--help` and error messages.
    pub what: &'static str,
    /// The default value, which also determines the type. `None` means that a plan must give a string.
    pub default: Option<Value>,
}

/// A metric that a trial measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// The metric's name in records, which ends with the unit.
    pub name: &'static str,
    /// A description, which is also the title of figures.
    pub what: &'static str,
    /// The metric's unit, for the axes of figures.
    pub unit: &'static str,
    /// Which values are good.
    pub best: Best,
}

/// The result of a trial: values of the metrics by name, and additional evidence.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Metrics {
    /// Values of the metrics by name.
    pub figures: BTreeMap<String, f64>,
    /// Data from which [`Question::explain`] explains the values; null if there is none.
    pub evidence: serde_json::Value,
}

impl Metrics {
    /// Creates a result from values by name and the evidence.
    pub fn of(figures: &[(&str, f64)], evidence: serde_json::Value) -> Metrics {
        let figures = figures.iter().map(|(name, figure)| ((*name).to_owned(), *figure));
        Metrics { figures: figures.collect(), evidence }
    }
}

/// Why a trial has no result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The point is invalid, so the trial is not repeated.
    Impossible(String),
    /// An external failure, for example of a peer or a disk. The trial may be repeated.
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

/// An experiment that a sweep runs at many points.
pub trait Question: Sync {
    /// Returns its name in plans.
    fn name(&self) -> &'static str;

    /// Returns the question as one sentence.
    fn what(&self) -> &'static str;

    /// Returns the kind of time in which trials run.
    fn time(&self) -> Time;

    /// Returns the parameters.
    fn parameters(&self) -> &[Parameter];

    /// Returns the metrics, the most important one first.
    fn metrics(&self) -> &[Metric];

    /// Checks whether a point is valid.
    ///
    /// # Errors
    /// Returns [`Failure::Impossible`], which says what to change.
    fn validate(&self, point: &Point) -> Result<(), Failure>;

    /// Runs one trial. The point contains every parameter.
    ///
    /// # Errors
    /// See [`Failure`].
    fn trial(&self, point: &Point, seed: u64) -> Result<Metrics, Failure>;

    /// Returns the command that runs this question if a plan alone cannot run it; `None` otherwise.
    fn own_command(&self) -> Option<&'static str> {
        None
    }

    /// Returns the value of a parameter in words, if its plain form is hard to understand: a word for a
    /// number, or a phrase that needs no name for a word or a flag.
    fn words(&self, _name: &str, _value: &Value) -> Option<String> {
        None
    }

    /// Explains the results in the folder of a run.
    ///
    /// # Errors
    /// The folder is not a run folder, or cannot be read.
    fn explain(&self, _dir: &Path) -> Result<Explanation, StoreError> {
        Ok(Explanation::default())
    }
}
