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

pub mod explanation;
pub mod figures;
pub mod key;
pub mod live;
mod page;
pub mod plan;
pub mod point;
pub mod question;
pub mod questions;
pub mod record;
pub mod report;
pub mod shard;
pub mod store;
mod store_error;
pub mod summary;
pub mod sweep;

pub use explanation::Explanation;
pub use figures::{Axes, Figures, Picture};
pub use live::{Live, View};
pub use plan::{Plan, PlanError, Trial};
pub use point::{Point, Value};
pub use question::{Failure, Metric, Metrics, Parameter, Question, Time};
pub use record::Record;
pub use report::Report;
pub use shard::Shard;
pub use store::{BrokenLine, Cache, Manifest, Merged, Records, Run, merge};
pub use store_error::StoreError;
pub use summary::Summary;
pub use sweep::{Options, Outcome, Progress, sweep};
