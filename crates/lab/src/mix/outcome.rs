//! What came of a plan: for each flow, and for each flow over time. Tables, CSV, pictures.

use super::plan::Kind;
use crate::report::picture::{Line, Stacked};
use crate::table::Table;
use kiban_stack::atm::aal1::ReceiverCounters;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

/// A flow in one sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// When the sample begins, seconds.
    pub at_s: f64,
    /// Cells that were sent, Mbit/s on the line.
    pub offered_mbps: f64,
    /// Cells that arrived, Mbit/s on the line.
    pub carried_mbps: f64,
    /// Cells that are known to be lost.
    pub cells_lost: u64,
    /// Units (pictures and the like) that were sent.
    pub units: u64,
    /// Units that did not come whole.
    pub units_lost: u64,
    /// By how much cells were later than the fastest, microseconds: half of them by no more.
    pub variation_us_p50: Option<f64>,
    /// 99 of 100 by no more.
    pub variation_us_p99: Option<f64>,
}

/// A flow over all.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlowOutcome {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Option<Kind>,
    /// From which site.
    pub from: String,
    /// To which.
    pub to: String,
    /// How many of it.
    pub copies: usize,
    /// Cells sent, Mbit/s on the line over the whole time.
    pub offered_mbps: f64,
    /// Cells that arrived, likewise.
    pub carried_mbps: f64,
    /// Cells sent.
    pub cells: u64,
    /// Cells that did not arrive.
    pub cells_lost: u64,
    /// Cells that arrived and were not sent: there should be none.
    pub cells_strange: u64,
    /// Pictures and the like sent.
    pub units: u64,
    /// Those that did not come whole.
    pub units_lost: u64,
    /// By how much cells were later than the fastest, microseconds: half of them by no more.
    pub variation_us_p50: Option<f64>,
    /// 99 of 100 by no more.
    pub variation_us_p99: Option<f64>,
    /// From when a unit is there until its last cell is, milliseconds: half of them.
    pub unit_ms_p50: Option<f64>,
    /// 99 of 100.
    pub unit_ms_p99: Option<f64>,
    /// AAL1: matrices taken apart.
    pub matrices: u64,
    /// AAL1: of these, put right.
    pub matrices_corrected: u64,
    /// AAL1: of these, not to be put right.
    pub matrices_uncorrectable: u64,
    /// AAL1: times that the sequence of cells was lost.
    pub sequence_losses: u64,
    /// AAL1: by how much the source's clock is faster than nominal, by its stamps, parts in a million.
    pub clock_ppm: Option<f64>,
    /// TCP: octets that arrived in order.
    pub octets: u64,
    /// TCP: the rate of these, Mbit/s.
    pub goodput_mbps: Option<f64>,
    /// TCP: segments sent again.
    pub retransmissions: u64,
    /// Over time.
    pub samples: Vec<Sample>,
}

impl FlowOutcome {
    /// The part of its cells that were lost.
    pub fn cell_loss(&self) -> f64 {
        self.cells_lost as f64 / self.cells.max(1) as f64
    }

    /// The part of its pictures or the like that did not come whole.
    pub fn unit_loss(&self) -> f64 {
        self.units_lost as f64 / self.units.max(1) as f64
    }

    pub(super) fn add(&mut self, counters: &ReceiverCounters) {
        self.matrices += counters.matrices;
        self.matrices_corrected += counters.matrices_corrected;
        self.matrices_uncorrectable += counters.matrices_uncorrectable;
        self.sequence_losses += counters.sequence_losses;
    }
}

/// What the network's switch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Network {
    /// Cells that came in.
    pub cells_in: u64,
    /// Cells dropped because they broke their contract.
    pub cells_policed: u64,
    /// Cells marked as of low priority because they did.
    pub cells_tagged: u64,
    /// Cells that found a queue full, here or in a site's switch.
    pub cells_dropped_full: u64,
}

/// What came of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The plan's title.
    pub title: String,
    /// The seed.
    pub seed: u64,
    /// Virtual seconds.
    pub seconds: f64,
    /// Its flows.
    pub flows: Vec<FlowOutcome>,
    /// The network.
    pub network: Network,
}

impl Outcome {
    /// A flow by its name.
    pub fn flow(&self, name: &str) -> Option<&FlowOutcome> {
        self.flows.iter().find(|flow| flow.name == name)
    }

    /// What all flows from one site to another offered in each sample, Mbit/s.
    pub fn sums(&self, from: &str, to: &str) -> Vec<f64> {
        let flows = || self.flows.iter().filter(|flow| flow.from == from && flow.to == to);
        let samples = flows().map(|flow| flow.samples.len()).max().unwrap_or(0);
        let sum = |at: usize| {
            flows().filter_map(|flow| flow.samples.get(at)).map(|sample| sample.offered_mbps).sum()
        };
        (0..samples).map(sum).collect()
    }

    /// All samples, for a spreadsheet.
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
                .expect("a string takes all");
            }
        }
        text
    }

    /// The paths that flows use.
    fn paths(&self) -> BTreeSet<(&str, &str)> {
        self.flows.iter().map(|flow| (flow.from.as_str(), flow.to.as_str())).collect()
    }

    /// For each path, what its flows carried, one above the other. A name good for a file, and the picture.
    pub fn pictures(&self) -> Vec<(String, String)> {
        let picture = |(from, to): (&str, &str)| {
            let layer = |flow: &super::FlowOutcome| Line {
                name: flow.name.clone(),
                points: flow.samples.iter().map(|sample| (sample.at_s, Some(sample.carried_mbps))).collect(),
                dashed: false,
            };
            let flows = self.flows.iter().filter(|flow| flow.from == from && flow.to == to);
            let name = format!("{from}-{to}");
            let stacked = Stacked {
                name: name.clone(),
                title: format!("{from} to {to}"),
                description: format!("What the flows from {from} to {to} carried, one upon the other."),
                x: "seconds".to_owned(),
                y: "Mbit/s".to_owned(),
                layers: flows.map(layer).collect(),
                limit: None,
            };
            (name, stacked.picture().standalone())
        };
        self.paths().into_iter().map(picture).collect()
    }
}

/// For people.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = format!("{}: {} s, seed {}", self.title, self.seconds, self.seed);
        let mut table = Table::new(title.trim_start_matches(": "))
            .words("flow")
            .words("path")
            .numbers("offered")
            .numbers("carried")
            .numbers("cells lost")
            .words("unit")
            .numbers("lost")
            .numbers("CDV p50 us")
            .numbers("p99 us")
            .numbers("unit p99 ms");
        let percent = |part: f64| if part == 0.0 { "0".to_owned() } else { format!("{:.3}%", part * 100.0) };
        let some = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
        for flow in &self.flows {
            let kind = flow.kind.unwrap_or(Kind::Data);
            let copies = if flow.copies == 1 { String::new() } else { format!(" x{}", flow.copies) };
            let mut name = format!("{}{copies}", flow.name);
            if flow.matrices > 0 {
                name += &table.note(format!(
                    "{}: {} matrices, {} put right, {} not",
                    flow.name, flow.matrices, flow.matrices_corrected, flow.matrices_uncorrectable
                ));
            }
            if let Some(goodput) = flow.goodput_mbps {
                name += &table.note(format!(
                    "{}: {goodput:.2} Mbit/s in order, {} segments sent again",
                    flow.name, flow.retransmissions
                ));
            }
            if let Some(ppm) = flow.clock_ppm {
                name +=
                    &table.note(format!("{}: the source's clock is {ppm:+.2} ppm by its stamps", flow.name));
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
        table.remark(format!(
            "The network dropped {cells_policed} cells and marked {cells_tagged} that broke contracts; {cells_dropped_full} found a \
             queue full."
        ));
        table.remark(
            "Rates in Mbit/s on the line. CDV: by how much cells were later than the fastest of their flow.",
        );
        table.fmt(f)
    }
}
