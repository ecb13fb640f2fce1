//! The result of a sample.

use super::peer::Peer;
use kiban_lab::Trial;

/// The result of a sample: units of work per second, and the CPU time of both processes per unit of work, in
/// nanoseconds.
#[derive(Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) per_second: f64,
    pub(crate) cpu_nanos_each: f64,
}

impl Measured {
    /// Measures `work` once, in this process and in the peer's.
    pub(crate) fn of(trial: &Trial, peer: &Peer, work: impl FnOnce() -> f64) -> Measured {
        let before = peer.cpu_nanos();
        let span = trial.measure_once(work);
        let cpu_nanos = span.cpu_nanos + (peer.cpu_nanos().saturating_sub(before));
        Measured { per_second: span.per_second(), cpu_nanos_each: cpu_nanos as f64 / span.work }
    }
}
