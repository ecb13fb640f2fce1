//! The options of a benchmark run.

use std::path::PathBuf;

/// The options of a benchmark run.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Accepted rounds per benchmark.
    pub repeats: usize,
    /// Rounds before the first one that is recorded.
    pub warmup: usize,
    /// Rejected rounds per benchmark before giving up.
    pub redos_max: usize,
    /// The CPU use by other processes above which a round is rejected, in cores.
    pub foreign_cores_max: f64,
    /// Duration of one measurement of a trial in nanoseconds.
    pub span_nanos: u64,
    /// Runs only a few short rounds, to check that the benchmarks work; the results must not be quoted.
    pub quick: bool,
    /// The directory for the records; `None` keeps no records.
    pub dir: Option<PathBuf>,
}

impl Options {
    /// Returns the options of a run whose results can be quoted.
    pub fn full() -> Self {
        Self {
            repeats: 7,
            warmup: 1,
            redos_max: 35,
            foreign_cores_max: 0.25,
            span_nanos: 300_000_000,
            quick: false,
            dir: Some(PathBuf::from("target/bench")),
        }
    }

    /// Returns the options of a short run, which only checks that the benchmarks work.
    pub fn quick() -> Self {
        Self { repeats: 3, warmup: 0, redos_max: 2, span_nanos: 20_000_000, quick: true, ..Self::full() }
    }

    /// Reads the options from the environment: `KIBAN_BENCH_QUICK=1` selects a quick run, `KIBAN_BENCH_DIR`
    /// sets the directory of the records.
    pub fn from_env() -> Self {
        let quick =
            std::env::var_os("KIBAN_BENCH_QUICK").is_some_and(|value| !value.is_empty() && value != "0");
        let mut options = if quick { Self::quick() } else { Self::full() };
        if let Some(dir) = std::env::var_os("KIBAN_BENCH_DIR") {
            options.dir = Some(dir.into());
        }
        options
    }
}
