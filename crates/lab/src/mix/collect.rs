//! Statistics of a flow, collected while a plan runs.

use super::outcome::{FlowOutcome, Sample};
use super::plan::{Flow, Kind};
use super::traffic::PICTURE;
use crate::stats::{quantile, sorted};
use kiban_sim::traffic::Tally;

/// Events of a flow since the previous sample.
#[derive(Default)]
pub(super) struct NewSamples {
    pub(super) tally: Tally,
    /// Units that were sent.
    pub(super) units: u64,
    /// Units that arrived completely.
    pub(super) whole: u64,
    /// Units that are known to be lost.
    pub(super) lost: u64,
    pub(super) unit_delays: Vec<u64>,
}

/// The collected statistics of a flow.
#[derive(Default)]
pub(super) struct Collected {
    pub(super) delays: Vec<u64>,
    pub(super) unit_delays: Vec<u64>,
    pub(super) outcome: FlowOutcome,
    pub(super) offered: u64,
    pub(super) carried: u64,
    pub(super) units: u64,
    pub(super) whole: u64,
    pub(super) damaged: u64,
}

impl Collected {
    pub(super) fn of(flow: &Flow) -> Collected {
        let outcome = FlowOutcome {
            name: flow.name.clone(),
            kind: Some(flow.kind),
            from: flow.from.text.clone(),
            to: flow.to.text.clone(),
            copies: flow.copies,
            ..FlowOutcome::default()
        };
        Collected { outcome, ..Collected::default() }
    }

    pub(super) fn sample(&mut self, fresh: &NewSamples, at_s: f64, seconds: f64) {
        let mbps = |cells: u64| (cells * 424) as f64 / seconds * 1e-6;
        let (p50, p99) = variation_us(&fresh.tally.delays);
        let is_stream = self.outcome.kind.is_some_and(Kind::is_stream);
        let pictures = (seconds / PICTURE.as_secs_f64()).round() as u64 * self.outcome.copies as u64;
        self.outcome.samples.push(Sample {
            at_s,
            offered_mbps: mbps(fresh.tally.offered),
            carried_mbps: mbps(fresh.tally.carried),
            cells_lost: fresh.tally.lost,
            units: if is_stream { pictures } else { fresh.units },
            units_lost: fresh.lost,
            variation_us_p50: p50,
            variation_us_p99: p99,
        });
    }

    pub(super) fn add(&mut self, mut fresh: NewSamples) {
        self.offered += fresh.tally.offered;
        self.carried += fresh.tally.carried;
        self.units += fresh.units;
        self.whole += fresh.whole;
        self.damaged += fresh.lost;
        self.outcome.cells_strange += fresh.tally.strange;
        self.delays.append(&mut fresh.tally.delays);
        self.unit_delays.append(&mut fresh.unit_delays);
    }

    pub(super) fn finish(mut self, seconds: f64, flow: &Flow) -> FlowOutcome {
        let mbps = |cells: u64| (cells * 424) as f64 / seconds * 1e-6;
        let outcome = &mut self.outcome;
        (outcome.cells, outcome.cells_lost) = (self.offered, self.offered.saturating_sub(self.carried));
        (outcome.offered_mbps, outcome.carried_mbps) = (mbps(self.offered), mbps(self.carried));
        (outcome.variation_us_p50, outcome.variation_us_p99) = variation_us(&self.delays);
        let delays = sorted(&self.unit_delays.iter().map(|nanos| *nanos as f64 * 1e-6).collect::<Vec<_>>());
        outcome.unit_ms_p50 = quantile(&delays, 0.5);
        outcome.unit_ms_p99 = quantile(&delays, 0.99);
        let sends = (flow.end_s.unwrap_or(seconds).min(seconds) - flow.begin_s).max(0.0);
        match flow.kind {
            Kind::Constant | Kind::Mpeg2 => {
                outcome.units = (sends / PICTURE.as_secs_f64()).round() as u64 * flow.copies as u64;
                // Damage that is found after the last unit is attributed to the last unit.
                outcome.units_lost = self.damaged.min(outcome.units);
            }
            Kind::Bulk => outcome.goodput_mbps = Some(outcome.octets as f64 * 8e-6 / sends.max(1e-3)),
            _ => (outcome.units, outcome.units_lost) = (self.units, self.units.saturating_sub(self.whole)),
        }
        self.outcome
    }
}

/// Returns the median and the 99th percentile of the delay variation (each delay minus the shortest), in
/// microseconds.
pub(super) fn variation_us(delays: &[u64]) -> (Option<f64>, Option<f64>) {
    let Some(least) = delays.iter().min() else { return (None, None) };
    let sorted = sorted(&delays.iter().map(|delay| (delay - least) as f64 * 1e-3).collect::<Vec<_>>());
    (quantile(&sorted, 0.5), quantile(&sorted, 0.99))
}
