//! The outcome of a plan, for each flow and over time: tables, CSV, pictures.

use super::plan::Kind;
use crate::report::picture::{Line, Stacked};
use crate::table::{Table, signed};
use kiban_atm::aal1::ReceiverCounters;
use kiban_sim::traffic::StreamSink;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

/// The statistics of a flow in one sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// The start of the sample, seconds.
    pub at_s: f64,
    /// Cells sent, Mbit/s on the line.
    pub offered_mbps: f64,
    /// Cells that arrived, Mbit/s on the line.
    pub carried_mbps: f64,
    /// Cells known to be lost.
    pub cells_lost: u64,
    /// Units (pictures and the like) that were sent.
    pub units: u64,
    /// Units that did not arrive completely.
    pub units_lost: u64,
    /// Median of the cell delay variation (each delay minus the shortest), microseconds.
    pub variation_us_p50: Option<f64>,
    /// 99th percentile of the cell delay variation.
    pub variation_us_p99: Option<f64>,
}

/// The statistics of a flow over the whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlowOutcome {
    /// The flow's name.
    pub name: String,
    /// The kind of flow.
    pub kind: Option<Kind>,
    /// The source site.
    pub from: String,
    /// The destination site.
    pub to: String,
    /// The number of copies.
    pub copies: usize,
    /// Cells sent, Mbit/s on the line over the whole time.
    pub offered_mbps: f64,
    /// Cells that arrived, Mbit/s on the line over the whole time.
    pub carried_mbps: f64,
    /// Cells sent.
    pub cells: u64,
    /// Cells that did not arrive.
    pub cells_lost: u64,
    /// Cells that arrived twice or were never sent; there should be none.
    pub cells_strange: u64,
    /// Lost cells that exceeded their contract. Over a virtual network, this number is not known per flow.
    pub cells_policed: Option<u64>,
    /// Over a real network: datagrams that arrived after a later datagram of their circuit (RFC 4737 §3.3).
    /// Their cells arrived, but could not be used.
    pub datagrams_reordered: u64,
    /// Units (pictures and the like) sent.
    pub units: u64,
    /// Units that did not arrive completely.
    pub units_lost: u64,
    /// Median of the cell delay variation (each delay minus the shortest), microseconds.
    pub variation_us_p50: Option<f64>,
    /// 99th percentile of the cell delay variation.
    pub variation_us_p99: Option<f64>,
    /// Median of the time from when a unit is ready until its last cell arrives, milliseconds.
    pub unit_ms_p50: Option<f64>,
    /// 99th percentile of the same time, milliseconds.
    pub unit_ms_p99: Option<f64>,
    /// AAL1: matrices decoded.
    pub matrices: u64,
    /// AAL1: matrices corrected.
    pub matrices_corrected: u64,
    /// AAL1: matrices that could not be corrected.
    pub matrices_uncorrectable: u64,
    /// AAL1: how often the receiver lost track of the cell sequence.
    pub sequence_losses: u64,
    /// AAL1: by how much the source's clock is faster than nominal, parts per million, according to its time
    /// stamps.
    pub clock_ppm: Option<f64>,
    /// AAL1: the same clock offset, derived from the level of the receiver's buffer in the last quarter of
    /// the run.
    pub recovered_ppm: Option<f64>,
    /// AAL1: by how much the receiver's buffer fell below its target level, milliseconds.
    pub buffer_below_ms: f64,
    /// AAL1: by how much the receiver's buffer rose above its target level, milliseconds.
    pub buffer_above_ms: f64,
    /// AAL1: buffer underruns and overruns.
    pub slips: u64,
    /// TCP: octets that arrived in order.
    pub octets: u64,
    /// TCP: goodput, Mbit/s.
    pub goodput_mbps: Option<f64>,
    /// TCP: retransmitted segments.
    pub retransmissions: u64,
    /// TCP over a real network: median of the kernel's smoothed RTT, microseconds.
    pub round_us_p50: Option<f64>,
    /// 99th percentile of the kernel's smoothed RTT, microseconds.
    pub round_us_p99: Option<f64>,
    /// The samples over time.
    pub samples: Vec<Sample>,
}

impl FlowOutcome {
    /// Returns the fraction of cells that were lost.
    pub fn cell_loss(&self) -> f64 {
        self.cells_lost as f64 / self.cells.max(1) as f64
    }

    /// Returns the fraction of units that did not arrive completely.
    pub fn unit_loss(&self) -> f64 {
        self.units_lost as f64 / self.units.max(1) as f64
    }

    pub(super) fn add(&mut self, counters: &ReceiverCounters) {
        self.matrices += counters.matrices;
        self.matrices_corrected += counters.matrices_corrected;
        self.matrices_uncorrectable += counters.matrices_uncorrectable;
        self.sequence_losses += counters.sequence_losses;
    }

    /// Records the receiver's estimate of the source's clock, whose true offset is `truth` ppm. If there are
    /// several copies of the flow, the worst estimate counts.
    pub(super) fn set_clock_error(&mut self, truth: f64, sink: &StreamSink) {
        let worse = |one: Option<f64>, other: Option<f64>| {
            let error = |ppm: &f64| (ppm - truth).abs();
            one.into_iter().chain(other).max_by(|one, other| error(one).total_cmp(&error(other)))
        };
        self.clock_ppm = worse(self.clock_ppm, sink.clock_ratio().map(|ratio| (ratio - 1.0) * 1e6));
        if let Some(recovered) = sink.recovered() {
            self.recovered_ppm = worse(self.recovered_ppm, Some(recovered.ppm));
            self.buffer_below_ms = self.buffer_below_ms.max(recovered.below_ms);
            self.buffer_above_ms = self.buffer_above_ms.max(recovered.above_ms);
            self.slips += recovered.slips;
        }
    }
}

/// The network that carried a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Medium {
    /// Switches and lines in virtual time.
    #[default]
    Virtual,
    /// The network between two hosts.
    Real,
}

/// Counters of the network's switch; for a real network, of the policer at the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Network {
    /// Virtual or real.
    pub kind: Medium,
    /// Cells received.
    pub cells_in: u64,
    /// Cells dropped because they exceeded their contract.
    pub cells_policed: u64,
    /// Cells tagged as low priority because they exceeded their contract.
    pub cells_tagged: u64,
    /// Cells dropped because a queue of the network's switch or of a site's switch was full; over a real
    /// network, because the queue of a shaped path was full.
    pub cells_dropped_full: u64,
}

/// Statistics of a real network, and of the hosts at its ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Real {
    /// The host at the far end.
    pub peer: String,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Datagrams lost; `None` if the peer could not report it.
    pub datagrams_lost: Option<u64>,
    /// Octets sent, UDP and IP headers included.
    pub octets: u64,
    /// Datagrams that this host's own queue rejected.
    pub refused_here: u64,
    /// Datagrams that the peer's rate limit dropped.
    pub refused_there: u64,
    /// Datagrams dropped because the peer's socket buffer was full.
    pub dropped_there: Option<u64>,
    /// The 99th percentile of how late datagrams were sent, in microseconds. Delays do not include this
    /// lateness.
    pub late_us_p99: Option<f64>,
    /// The maximum lateness, microseconds.
    pub late_us_max: Option<f64>,
    /// By how much the shortest delays in the last quarter of the run exceed those in the first quarter, in
    /// microseconds. If they do, the clocks drift or a queue has built up.
    pub drift_us: Option<f64>,
    /// Flows of the plan that start at other sites.
    pub left_out: Vec<String>,
    /// Why the run ended early, if it did.
    pub ended_early: Option<String>,
}

/// The outcome of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The plan's title.
    pub title: String,
    /// The seed.
    pub seed: u64,
    /// Seconds, virtual or real.
    pub seconds: f64,
    /// The flows.
    pub flows: Vec<FlowOutcome>,
    /// The network.
    pub network: Network,
    /// Statistics of a real network, if the plan ran over one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real: Option<Real>,
}

impl Outcome {
    /// Returns a flow by its name.
    pub fn flow(&self, name: &str) -> Option<&FlowOutcome> {
        self.flows.iter().find(|flow| flow.name == name)
    }

    /// Returns the load that all flows from one site to another offer together in each sample, Mbit/s.
    pub fn sums(&self, from: &str, to: &str) -> Vec<f64> {
        let flows = || self.flows.iter().filter(|flow| flow.from == from && flow.to == to);
        let samples = flows().map(|flow| flow.samples.len()).max().unwrap_or(0);
        let sum = |at: usize| {
            flows().filter_map(|flow| flow.samples.get(at)).map(|sample| sample.offered_mbps).sum()
        };
        (0..samples).map(sum).collect()
    }

    /// Returns all samples as CSV.
    pub fn csv(&self) -> String {
        let mut text = "second,flow,kind,from,to,offered_mbps,carried_mbps,cells_lost,units,units_lost,variation_us_p50,variation_us_p99\n"
            .to_owned();
        for flow in &self.flows {
            for sample in &flow.samples {
                let kind = flow.kind.map_or("", Kind::word);
                let part = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.1}"));
                writeln!(
                    text,
                    "{},{},{kind},{},{},{:.4},{:.4},{},{},{},{},{}",
                    sample.at_s,
                    flow.name,
                    flow.from,
                    flow.to,
                    sample.offered_mbps,
                    sample.carried_mbps,
                    sample.cells_lost,
                    sample.units,
                    sample.units_lost,
                    part(sample.variation_us_p50),
                    part(sample.variation_us_p99)
                )
                .expect("writing to a string succeeds");
            }
        }
        text
    }

    /// Returns the paths that flows use.
    fn paths(&self) -> BTreeSet<(&str, &str)> {
        self.flows.iter().map(|flow| (flow.from.as_str(), flow.to.as_str())).collect()
    }

    /// Returns, for each path, a stacked chart of its flows' rates and a file name for the chart.
    pub fn pictures(&self) -> Vec<(String, String)> {
        let picture = |(from, to): (&str, &str)| {
            let layer = |(series, flow): (usize, &super::FlowOutcome)| Line {
                name: flow.name.clone(),
                series,
                points: flow.samples.iter().map(|sample| (sample.at_s, Some(sample.carried_mbps))).collect(),
                dashed: false,
            };
            let flows = self.flows.iter().filter(|flow| flow.from == from && flow.to == to);
            let name = format!("{from}-{to}");
            let stacked = Stacked {
                name: name.clone(),
                title: format!("{from} to {to}"),
                description: format!("Stacked rates of the flows from {from} to {to}."),
                x: "seconds".to_owned(),
                y: "Mbit/s".to_owned(),
                layers: flows.enumerate().map(layer).collect(),
                limit: None,
            };
            (name, stacked.picture().standalone())
        };
        self.paths().into_iter().map(picture).collect()
    }
}

impl Real {
    fn remark(&self, table: &mut Table, seconds: f64) {
        let mbps = self.octets as f64 * 8e-6 / seconds.max(1e-9);
        let lost = self.datagrams_lost.map_or("an unknown number".to_owned(), |lost| lost.to_string());
        table.remark(format!(
            "Real network: {} datagrams were sent, {mbps:.3} Mbit/s with UDP and IP headers; {lost} were \
             lost, of which this host's own queue refused {}.",
            self.datagrams, self.refused_here
        ));
        if let (Some(p99), Some(max)) = (self.late_us_p99, self.late_us_max) {
            table.remark(format!(
                "Datagrams were sent {p99:.0} us late (p99), at most {max:.0} us; no delay includes this \
                 lateness."
            ));
        }
        for (count, what) in [
            (self.refused_there, "exceeded the server's --rate"),
            (
                self.dropped_there.unwrap_or(0),
                "were dropped because the server's socket buffer was full: the server's host is too slow, \
                not the network",
            ),
        ] {
            if count > 0 {
                table.remark(format!("{count} datagrams {what}."));
            }
        }
        if let Some(drift) = self.drift_us {
            table.remark(format!(
                "The fastest datagrams of the last quarter were {} us later than those of the first \
                 quarter: the clocks drift, or a queue has built up. CDV includes this difference.",
                signed(drift, 0)
            ));
        }
        if !self.left_out.is_empty() {
            table.remark(format!(
                "Flows that start at other sites were left out: {}.",
                self.left_out.join(", ")
            ));
        }
        if let Some(why) = &self.ended_early {
            table.remark(format!("ENDED EARLY: {why}. The figures cover the time until then."));
        }
    }
}

/// Formats the outcome as tables.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = match &self.real {
            None => format!("{}: {} s, seed {}", self.title, self.seconds, self.seed),
            Some(real) => {
                format!("{}: {:.1} s to {}, seed {}", self.title, self.seconds, real.peer, self.seed)
            }
        };
        let mut table = Table::new(title.trim_start_matches(": "))
            .text_column("flow")
            .text_column("path")
            .number_column("offered")
            .number_column("carried")
            .number_column("cells lost")
            .text_column("unit")
            .number_column("lost")
            .number_column("CDV p50 us")
            .number_column("p99 us")
            .number_column("unit p99 ms");
        let percent = |part: f64| if part == 0.0 { "0".to_owned() } else { format!("{:.3}%", part * 100.0) };
        let some = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
        for flow in &self.flows {
            let kind = flow.kind.unwrap_or(Kind::Data);
            let copies = if flow.copies == 1 { String::new() } else { format!(" x{}", flow.copies) };
            let mut name = format!("{}{copies}", flow.name);
            if flow.matrices > 0 {
                name += &table.note(format!(
                    "{}: {} FEC matrices, {} corrected, {} uncorrectable",
                    flow.name, flow.matrices, flow.matrices_corrected, flow.matrices_uncorrectable
                ));
            }
            if let Some(goodput) = flow.goodput_mbps {
                name += &table.note(format!(
                    "{}: {goodput:.2} Mbit/s in order, {} segments retransmitted; its CDV is how much \
                     longer 64 KiB blocks took than the fastest block",
                    flow.name, flow.retransmissions
                ));
            }
            if let Some(ppm) = flow.clock_ppm {
                name += &table.note(format!(
                    "{}: the source's clock is off by {} ppm, according to its time stamps",
                    flow.name,
                    signed(ppm, 2)
                ));
            }
            if let (Some(p50), Some(p99)) = (flow.round_us_p50, flow.round_us_p99) {
                name += &table.note(format!(
                    "{}: the kernel's smoothed RTT: p50 {:.2} ms, p99 {:.2} ms",
                    flow.name,
                    p50 * 1e-3,
                    p99 * 1e-3
                ));
            }
            if let Some(policed) = flow.cells_policed.filter(|policed| *policed > 0) {
                name += &table
                    .note(format!("{}: {policed} cells exceeded the contract and were dropped", flow.name));
            }
            if flow.datagrams_reordered > 0 {
                name += &table.note(format!(
                    "{}: {} datagrams arrived after a later one",
                    flow.name, flow.datagrams_reordered
                ));
            }
            if let Some(ppm) = flow.recovered_ppm {
                name += &table.note(format!(
                    "{}: the clock recovered from the buffer level was {} ppm off the nominal rate; \
                     the level fell {:.2} ms below and rose {:.2} ms above its target{}",
                    flow.name,
                    signed(ppm, 1),
                    flow.buffer_below_ms,
                    flow.buffer_above_ms,
                    if flow.slips == 0 {
                        String::new()
                    } else {
                        format!("; with {} underruns or overruns, this rate is unreliable", flow.slips)
                    }
                ));
            }
            table.row([
                name,
                format!("{}-{}", flow.from, flow.to),
                format!("{:.3}", flow.offered_mbps),
                format!("{:.3}", flow.carried_mbps),
                percent(flow.cell_loss()),
                kind.unit().to_owned(),
                if kind == Kind::Bulk { "-".to_owned() } else { percent(flow.unit_loss()) },
                some(flow.variation_us_p50),
                some(flow.variation_us_p99),
                some(flow.unit_ms_p99),
            ]);
        }
        let Network { cells_policed, cells_tagged, cells_dropped_full, .. } = self.network;
        let Some(real) = &self.real else {
            table.remark(format!(
                "The network dropped {cells_policed} cells and tagged {cells_tagged} cells that exceeded \
                 contracts; {cells_dropped_full} cells were dropped because a queue was full."
            ));
            table.remark(
                "Rates are in Mbit/s on the line. CDV: how much later cells arrived than the fastest cells \
                 of their flow.",
            );
            return table.fmt(f);
        };
        real.remark(&mut table, self.seconds);
        table.remark(format!(
            "At the far end, {cells_policed} cells exceeded contracts and were dropped, {cells_tagged} were \
             tagged, and {cells_dropped_full} were dropped because the queue of a shaped path was full."
        ));
        table.remark(
            "Rates are in Mbit/s of 53-octet cells; for TCP, of payload. CDV: how much later datagrams \
             arrived than the fastest of their flow (PDV, RFC 5481 §4.2).",
        );
        table.fmt(f)
    }
}
