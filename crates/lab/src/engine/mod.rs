//! The engine: from a plan to a report, each stage a file that the next one reads.
//!
//! ```text
//! plan → sweep → trial → record → summary → figures → report
//! ```
//!
//! Plan      what is asked, of which points, how often, from which seeds.
//! Trial     a [`Question`] is asked once, of one [`Point`], with one seed, in virtual or in real time. It
//!           knows nothing of plans.
//! Record    one line of JSON ([`Record`]): all that later stages know.
//! Exact     in virtual time the same key gives the same line, on any machine and in any order; so it is made
//!           once.

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
pub use plan::{Mistake, Plan, Trial};
pub use point::{Point, Value};
pub use question::{Failure, Metric, Metrics, Parameter, Question, Time};
pub use record::Record;
pub use report::Report;
pub use shard::Shard;
pub use store::{Broken, Cache, Manifest, Merged, Records, Run, merge};
pub use store_error::StoreError;
pub use summary::Summary;
pub use sweep::{Options, Outcome, Progress, sweep};
