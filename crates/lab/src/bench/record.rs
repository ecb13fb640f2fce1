//! Units, targets, verdicts, and the record of a benchmark.

use crate::environment::Environment;
use crate::stats::Summary;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The format version of [`Record`]; incremented by every change that old readers would misinterpret.
pub(super) const FORMAT: u32 = 1;

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

    pub(super) fn is_ratio(self) -> bool {
        matches!(self, Self::RatioAtLeast(_) | Self::RatioAtMost(_))
    }

    pub(super) fn verdict(self, first: f64, ratio: Option<f64>) -> Option<Verdict> {
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
    /// Returns the round of two of its sides alone.
    pub(super) fn of(&self, sides: [usize; 2]) -> Round {
        let order = self.order.iter().filter_map(|at| sides.iter().position(|side| side == at));
        Round {
            order: order.collect(),
            quiet: self.quiet,
            counts: self.counts,
            figures: sides.map(|at| self.figures[at]).to_vec(),
            foreign_cores: sides.map(|at| self.foreign_cores[at]).to_vec(),
        }
    }

    /// Returns the higher of the foreign loads of the two samples, in cores.
    pub(super) fn foreign_cores_worst(&self) -> f64 {
        self.foreign_cores.iter().flatten().copied().fold(0.0, f64::max)
    }
}
