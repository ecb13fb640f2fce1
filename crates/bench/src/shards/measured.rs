//! What the rows of the benchmark have measured, for the model.

/// The figure of a sample that failed: a server that stalls is a result, and must not end the run.
pub(super) const FAILED: f64 = 1e-3;

/// Results of the rows.
#[derive(Default)]
pub(super) struct Measured {
    /// Goodput of one shard in memory, Gbit/s, and the ratio of two shards to it.
    pub(super) memory: Option<(f64, f64)>,
    /// The shares of packets that arrived at the wrong one of two shards, over TUN.
    pub(super) wrong_tun: Vec<f64>,
}
