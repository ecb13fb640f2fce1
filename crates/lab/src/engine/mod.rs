//! The experiment engine: from a plan to a report. Each stage writes a file that the next one reads.
//!
//! ```text
//! plan → sweep → trial → record → summary → figures → report
//! ```
//!
//! Plan      the question, the parameter values, the seeds and the number of repetitions.
//! Trial     one run of a [`Question`] at one [`Point`] with one seed, in virtual or in real time. It is
//!           independent of the plan.
//! Record    the result of a trial as one line of JSON ([`Record`]), the only input of the later stages.
//! Virtual time  a trial gives the same record on every machine and in any order, so it is run only once.

pub mod live;
pub mod plan;
pub mod point;
pub mod question;
pub mod questions;
mod records;
mod results;
pub mod shard;
pub mod sweep;

pub use live::{Live, View};
pub use plan::{Plan, PlanError, Trial};
pub use point::{Point, Value};
pub use question::{Failure, Metric, Metrics, Parameter, Question, Time};
pub use records::record::Record;
pub use records::store::{BrokenLine, Cache, Manifest, Merged, Records, Run, merge};
pub use records::store_error::StoreError;
pub use records::{key, record, store};
pub use results::explanation::{Explanation, Verdict};
pub use results::figures::{Axes, Figures, Picture};
pub use results::report::Report;
pub use results::summary::Summary;
pub(crate) use results::words;
pub use results::{explanation, figures, report, summary};
pub use shard::Shard;
pub use sweep::{Options, Outcome, Progress, sweep};
