//! Ablation of the three mechanisms of paper \[5\]: with the cost model of 1992, and measured on this
//! machine.
//!
//! Modelled  throughput on the line and in loopback, for F-DATA of 8000 and 2000 bytes. The costs that a
//!           mechanism avoids are assumed (`copy_byte`, `primitive`): the paper has no such comparison.
//! Measured  CPU time per F-DATA of 8000 bytes in loopback, both ends and their disks together, alternately
//!           with and without the copies that a mechanism avoids ([`crate::Bench`]). Each task copies as many
//!           bytes as its unit has, between buffers that stay in the cache, so the result is a lower bound.
//! Not measured  structured primitives: kiban's layers call each other directly, so there is no alternative.

use super::super::paired::Paired;
use super::LINE_BITS_PER_SECOND;
use super::measured;
use super::transfer::{self, FILE_BYTES, contents};
use crate::table::Table;
use crate::{Bench, Options, Target, Trial, Unit};
use kiban_sim::osi::{Costs, Mechanism, Mechanisms, Medium, OSI_BOARD_1992, Setup};
use serde::Serialize;

/// The F-DATA sizes of the modelled comparison, bytes.
const FDATA: [usize; 2] = [8000, 2000];

/// The modelled result of one board at one point.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Point {
    /// `line` or `loopback x 2`.
    pub medium: &'static str,
    /// Bytes per F-DATA.
    pub fdata_bytes: usize,
    /// Throughput as the paper defines it.
    pub mbps: f64,
}

/// A mechanism under the cost model.
#[derive(Clone, Debug, Serialize)]
pub struct Modelled {
    /// The mechanism that was removed; `None` for the complete board of the paper.
    pub without: Option<&'static str>,
    /// The results at each point.
    pub points: Vec<Point>,
}

/// Runs the board of the paper, then the board without each of `mechanisms`.
pub fn modelled(mechanisms: &[Mechanism]) -> Vec<Modelled> {
    let points = |costs: Costs| {
        let media = [("line", Medium::line(LINE_BITS_PER_SECOND)), ("loopback x 2", Medium::Loopback)];
        let points = media.into_iter().flat_map(|(medium, join)| {
            FDATA.map(|fdata_bytes| {
                let setup = Setup { fdata_bytes, costs: Some(costs), ..Setup::new(join) };
                let took = transfer::run(&setup, FILE_BYTES).took;
                let mbps = transfer::mbps(matches!(join, Medium::Loopback), FILE_BYTES, took);
                Point { medium, fdata_bytes, mbps }
            })
        });
        points.collect()
    };
    let whole = std::iter::once((None, OSI_BOARD_1992));
    let less = mechanisms.iter().map(|mechanism| {
        let costs = Costs { mechanisms: Mechanisms::without(*mechanism), ..OSI_BOARD_1992 };
        (Some(mechanism.name()), costs)
    });
    whole.chain(less).map(|(without, costs)| Modelled { without, points: points(costs) }).collect()
}

/// Returns the modelled comparison as a text table.
pub fn modelled_table(rows: &[Modelled]) -> Table {
    let mut table = Table::new("throughput lost without each mechanism, cost model of 1992, TPDU 2048")
        .text_column("medium")
        .number_column("F-DATA")
        .text_column("without")
        .number_column("Mbit/s")
        .number_column("% lost");
    // The board of the paper comes first.
    let Some(whole) = rows.first() else { return table };
    for (place, whole) in whole.points.iter().enumerate() {
        for row in rows {
            let Point { medium, fdata_bytes, mbps } = row.points[place];
            let lost = row.without.map(|_| format!("{:.1}", (1.0 - mbps / whole.mbps) * 100.0));
            table.row([
                medium.to_owned(),
                fdata_bytes.to_string(),
                row.without.unwrap_or("(nothing)").to_owned(),
                format!("{mbps:.2}"),
                lost.unwrap_or_default(),
            ]);
        }
    }
    table.remark(
        "Assumed: copying a byte takes 125 ns, encoding and decoding a primitive 400 us. Without no-copy, FTAM, \
        presentation, session and transport each copy a unit once; without shared-buffers, each hand-over \
        copies it twice.",
    );
    table
}

/// A mechanism as measured on this machine.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The name of the mechanism.
    pub mechanism: &'static str,
    /// The CPU times per F-DATA.
    #[serde(flatten)]
    pub times: Paired,
}

/// Measures those of `mechanisms` that avoid copies, alternately with and without them.
pub fn measured(mechanisms: &[Mechanism], options: Options) -> Vec<Measured> {
    let mut bench = Bench::new("osi-mechanisms", options);
    let copying = mechanisms.iter().filter(|mechanism| **mechanism != Mechanism::Primitives);
    copying.map(|mechanism| pair(&mut bench, *mechanism)).collect()
}

fn pair(bench: &mut Bench, mechanism: Mechanism) -> Measured {
    let contents = contents(FILE_BYTES);
    let transfer = |copies: Option<Mechanism>| {
        let contents = &contents;
        move |trial: &mut Trial| {
            let setup = Setup { copies, ..Setup::new(Medium::Loopback) };
            let span = trial.measure(|| {
                measured::run(&setup, contents);
                contents.len() as f64 / setup.fdata_bytes as f64
            });
            span.cpu_nanos_each()
        }
    };
    let sides = (("without", transfer(Some(mechanism))), ("with", transfer(None)));
    let record = bench.compare(mechanism.name(), Unit::Nanoseconds, sides.0, sides.1, Target::None);
    Measured { mechanism: mechanism.name(), times: Paired::of(record) }
}

/// Returns the measured comparison as a text table.
pub fn measured_table(rows: &[Measured]) -> Table {
    let mut table = Table::new("measured on this machine: CPU time per F-DATA of 8000 bytes, both ends, ns")
        .text_column("mechanism")
        .number_column("with")
        .number_column("without")
        .number_column("ratio");
    for row in rows {
        let mark = row.times.mark(&mut table);
        let [with, without, ratio] = row.times.cells();
        table.row([format!("{}{mark}", row.mechanism), with, without, ratio]);
    }
    table
}
