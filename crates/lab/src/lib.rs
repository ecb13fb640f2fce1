//! Measurements of kiban: benchmarks, parameter sweeps, reproductions of papers and reports.
//!
//! [`Bench`] compares two implementations in one run and records every sample; [`Table`] prints results as
//! text. [`tour`] transfers a file between boards and reports throughput and cost; [`limits`] computes the
//! theoretical throughput of a line. [`engine`] runs a plan of trials and reports on it; [`reproduce`]
//! repeats the experiments of five papers.
//!
//! ```
//! use kiban_lab::{Bench, Options, Target, Trial, Unit};
//!
//! let (bytes, mut copy) = (vec![1u8; 65_536], vec![0u8; 65_536]);
//! let mut bench = Bench::new("sums", Options { dir: None, ..Options::quick() });
//! let sum = |trial: &mut Trial| {
//!     trial.measure(|| std::hint::black_box(&bytes).iter().map(|&byte| f64::from(byte)).sum()).gbit_per_second()
//! };
//! let copy = |trial: &mut Trial| {
//!     trial
//!         .measure(|| {
//!             copy.copy_from_slice(std::hint::black_box(&bytes));
//!             bytes.len() as f64
//!         })
//!         .gbit_per_second()
//! };
//! bench.compare("64 KiB", Unit::GbitPerSecond, ("copy", copy), ("sum", sum), Target::ratio_at_least(1.5));
//! bench.finish();
//! ```
#![forbid(unsafe_code)]

pub mod bench;
pub mod chart;
pub mod engine;
pub mod environment;
pub mod explain;
pub mod heat;
pub mod limits;
pub mod load;
pub mod messages;
pub mod mix;
pub mod nearest;
pub mod net;
pub mod rdma;
mod remote;
pub mod report;
pub mod reproduce;
pub mod rtp;
pub mod stats;
pub mod table;
pub mod tour;
pub mod trial;
pub mod tune;
pub mod vi;

pub use bench::{Bench, Options, Sample, Target, Unit};
pub use stats::Summary;
pub use table::Table;
pub use trial::{Span, Trial};
