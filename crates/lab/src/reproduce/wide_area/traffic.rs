//! The remote lecture and the effect of policing: figures 10 and 11 of paper \[2\], and the question that the
//! paper leaves open.
//!
//! Series    one lecture among four sites ([`Lecture`]); MPEG-2 stops after two thirds of the time, as in the
//!           experiment at 15:48.
//! Question  the paper leaves open the effect of usage parameter control as traffic grows. Two simulations
//!           examine this effect: in one, several lectures share the path from Waseda to Musashino, which is
//!           policed at 67.815 Mbit/s; in the other, a single lecture is policed at decreasing rates.
//! Verdicts  the sources are assumed to vary within the published ranges, so the verdict on the series is
//!           fitted. Results on policing have no published counterpart.

use super::multiplexing;
use super::point::{KINDS, Point, by_kind, flow, offered, percent};
use crate::mix::{
    Fec, FlowOutcome, Lecture, Multiplexing, Outcome, SOURCE_MBPS, Shaping, TERMINAL_MBPS, mpeg2, run,
};
use crate::reproduce::{Constant, Curve, Figure, Row, Verdict};
use kiban_atm::wire::atm::CELL_BYTES;

/// The peak cell rate of the experiment's paths (table 3), Mbit/s.
const POLICED_MBPS: f64 = 67.815;
/// The length of a scene in the series, seconds: short enough for one minute to cover the published ranges.
const SCENE_S: f64 = 4.0;
/// The line rate of audio: 640 octets (14 cells) every 20 ms.
const AUDIO_LINE_MBPS: f64 = 14.0 * 424.0 * 50.0 * 1e-6;
/// The policer's tolerances in the runs that send pictures at line rate, microseconds.
const TOLERANCES_US: [f64; 4] = [100.0, 500.0, 1000.0, 2000.0];

/// Values of the paper, Mbit/s.
mod published {
    pub(super) const MPEG2: f64 = 7.1;
    pub(super) const AUDIO: f64 = 0.3;
    /// The lowest rate (of four pictures combined into one) and the highest rate (of one full picture).
    pub(super) const PICTURES: (f64, f64) = (0.4, 5.5);
    /// The rate of four pictures in one.
    pub(super) const COMPOSED: (f64, f64) = (0.4, 1.7);
    pub(super) const TO_MUSASHINO: (f64, f64) = (8.7, 13.0);
    pub(super) const TO_WASEDA: (f64, f64) = (0.4, 2.3);
}

/// The scope of the simulation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// Virtual seconds of the series and of each of its samples.
    series: (u64, u64),
    /// Virtual seconds of each point of the policing simulations.
    seconds: u64,
    lectures: &'static [usize],
    /// Contracts for one lecture, Mbit/s.
    rates: &'static [f64],
    /// Numbers of lectures beside which TCP runs, for each way of multiplexing.
    multiplexed: &'static [usize],
}

impl Extent {
    pub(super) const FULL: Extent = Extent {
        series: (120, 2),
        seconds: 5,
        lectures: &[1, 2, 3, 4, 5, 6, 7, 8, 9],
        rates: &[6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 16.0, 20.0],
        multiplexed: &[1, 3, 5, 6, 7, 9],
    };
    pub(super) const QUICK: Extent = Extent {
        series: (60, 2),
        seconds: 1,
        lectures: &[1, 4, 6, 8],
        rates: &[7.0, 9.0, 11.0, 13.0, 16.0],
        multiplexed: &[6, 8],
    };

    /// Returns the number of runs, for a progress bar.
    pub(super) const fn runs(self) -> usize {
        let multiplexed = Multiplexing::ALL.len() * self.multiplexed.len();
        1 + TOLERANCES_US.len() + Shaping::ALL.len() * self.lectures.len() + self.rates.len() + multiplexed
    }
}

/// The results.
pub(super) struct Traffic {
    pub(super) rows: Vec<Row>,
    pub(super) figures: Vec<Figure>,
}

pub(super) fn make(extent: Extent, done: &(dyn Fn() + Sync)) -> Traffic {
    let ask = |lecture: Lecture| {
        let outcome = run(&lecture.plan(), &mut |_| {});
        done();
        outcome
    };
    let series = series(extent);
    done();
    let short = Lecture { seconds: extent.seconds as f64, all_sites: false, ..Lecture::PAPER };
    let tolerances = TOLERANCES_US.map(|cdvt_us| Point {
        x: cdvt_us,
        outcome: ask(Lecture { cdvt_us, shaping: Shaping::None, ..short }),
    });
    let loads = Shaping::ALL.map(|shaping| {
        let point = |lectures: &usize| Point {
            x: *lectures as f64,
            outcome: ask(Lecture { lectures: *lectures, shaping, ..short }),
        };
        (shaping, extent.lectures.iter().map(point).collect::<Vec<_>>())
    });
    let rates: Vec<Point> = extent
        .rates
        .iter()
        .map(|rate| Point {
            x: *rate,
            outcome: ask(Lecture { policed_mbps: *rate, shaping: Shaping::Edge, ..short }),
        })
        .collect();

    let mixed = Multiplexing::ALL.map(|method| {
        let lecture = Lecture { shaping: Shaping::Edge, multiplexing: method, bulk: 1, ..short };
        let point = |lectures: &usize| Point {
            x: *lectures as f64,
            outcome: ask(Lecture { lectures: *lectures, ..lecture }),
        };
        (method, extent.multiplexed.iter().map(point).collect::<Vec<_>>())
    });

    let mut rows = rates_of_kinds(&series);
    rows.extend(sums(&series));
    rows.extend(policing(&tolerances, &loads, &rates));
    rows.extend(multiplexing::rows(&mixed));
    let mut figures = vec![
        over_time("traffic-to-musashino", "figure 10: Waseda to Musashino", &series, ("waseda", "musashino")),
        over_time("traffic-to-waseda", "figure 11: Musashino to Waseda", &series, ("musashino", "waseda")),
    ];
    figures.extend(loads.iter().map(|(shaping, points)| {
        let (name, how) = match shaping {
            Shaping::None => ("policing-unshaped", "no shaping"),
            Shaping::Contract => ("policing-contract", "each source shaped to the contract's rate"),
            Shaping::Source => ("policing-sources", "each source shaped to 8 Mbit/s"),
            Shaping::Edge => ("policing-edge", "paths shaped at the edge"),
        };
        losses(
            name,
            &format!("simultaneous lectures, policed at {POLICED_MBPS} Mbit/s, {how}"),
            "lectures",
            points,
        )
    }));
    figures.push(losses(
        "policing-tighter",
        "one lecture, stricter policing, paths shaped at the edge",
        "Mbit/s of the contract",
        &rates,
    ));
    let of_sources = loads.iter().find(|(shaping, _)| *shaping == Shaping::Source);
    figures.extend(of_sources.map(|(_, points)| cells_and_pictures(points)));
    figures.extend(multiplexing::figures(&mixed));
    Traffic { rows, figures }
}

pub(super) fn constants() -> Vec<Constant> {
    let constant = |name, value: String, origin, why| Constant { name, value, origin, why };
    vec![
        constant(
            "contract of a path",
            format!("{POLICED_MBPS} Mbit/s"),
            "sourced",
            "table 3: maximum information rate",
        ),
        constant(
            "tolerance of the policer",
            "100 us".into(),
            "assumed",
            "not published; some rows use other values",
        ),
        constant(
            "sources, shaped",
            format!("to {SOURCE_MBPS} Mbit/s"),
            "assumed",
            "the largest picture is sent before the next one begins",
        ),
        constant(
            "check octets of MPEG-2",
            "RS(94, 88)".into(),
            "fitted",
            "7.1 Mbit/s of §4.3; the paper names no code",
        ),
        constant("scenes", "10 s, pictures within 15 %".into(), "assumed", "no traces are published"),
        constant(
            "a packet of audio",
            "20 ms".into(),
            "assumed",
            "gives the 0.3 Mbit/s of §4.3; other lengths would too",
        ),
        constant("a frame of pictures", "9180 octets".into(), "assumed", "the MTU of §3.2"),
    ]
}

// ---- Figures 10 and 11

fn series(extent: Extent) -> Outcome {
    let (seconds, sample) = extent.series;
    let mut plan = Lecture { seconds: seconds as f64, ..Lecture::PAPER }.plan();
    plan.sample_ms = sample * 1000;
    plan.flows.iter_mut().for_each(|flow| flow.scene_s = SCENE_S);
    for flow in plan.flows.iter_mut().filter(|flow| flow.name == "mpeg2") {
        flow.end_s = Some((seconds * 2 / 3) as f64);
    }
    run(&plan, &mut |_| {})
}

/// Returns the minimum and the maximum of a flow's samples, Mbit/s.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(least, most), value| (least.min(value), most.max(value)))
}

/// Returns whether a range lies within a published one, with a margin of a fifth of it at either end, and
/// covers most of it.
fn covers(here: (f64, f64), published: (f64, f64)) -> bool {
    let margin = (published.1 - published.0) / 5.0;
    let within = here.0 > published.0 - margin && here.1 < published.1 + margin;
    within && here.1.min(published.1) - here.0.max(published.0) > (published.1 - published.0) * 0.6
}

fn span((least, most): (f64, f64)) -> String {
    format!("{least:.1} .. {most:.1}")
}

fn rates_of_kinds(series: &Outcome) -> Vec<Row> {
    let offered = |name: &str| flow(series, name).samples.iter().map(|sample| sample.offered_mbps);
    let line = mpeg2(false, Fec::Short) * 1e-6;
    let ways = [(false, Fec::Long), (true, Fec::Long), (true, Fec::Short)]
        .map(|(transport_stream, fec)| format!("{:.2}", mpeg2(transport_stream, fec) * 1e-6));
    let (_, audio) = range(offered("audio"));
    let pictures = range(offered("jpeg"));
    let met = covers(pictures, published::PICTURES);
    vec![
        Row {
            here: format!("{line:.2}"),
            verdict: Verdict::of(Verdict::Fitted, (line * 10.0).round() == published::MPEG2 * 10.0),
            note: Some(format!(
                "The value is 5.88 x 94/88 x 53/47. It would be {} with RS(128, 124), {} in a transport \
                stream, and {} with RS(94, 88) and a transport stream. The paper mentions interleaving and \
                cells, but no code.",
                ways[0], ways[1], ways[2]
            )),
            ..Row::published("§4.3", "MPEG-2, 5.5 and 0.38 Mbit/s over AAL1, Mbit/s on the line", "7.1")
        },
        Row {
            here: format!("{audio:.2}"),
            verdict: Verdict::of(Verdict::Met, (audio * 10.0).round() == published::AUDIO * 10.0),
            note: Some(
                "The value is 0.256 Mbit/s plus cell overhead. Packets of 10 ms or more all round to \
                this value."
                    .into(),
            ),
            ..Row::published("§4.3", "audio, 16 bits at 16 kHz, Mbit/s on the line", "about 0.3")
        },
        Row {
            here: span(pictures),
            verdict: Verdict::of(Verdict::Fitted, met),
            note: Some(
                "Scenes of one picture are drawn from 2.1 .. 5.5. In the others, the server composes the \
                pictures of the four sites."
                    .into(),
            ),
            ..Row::published("figure 10", "Motion-JPEG, Mbit/s", span(published::PICTURES))
        },
        Row {
            here: format!("{:.3}", range(offered("data")).1),
            verdict: Verdict::Fitted,
            ..Row::published("figure 10", "data, Mbit/s", "nearly 0")
        },
    ]
}

fn sums(series: &Outcome) -> Vec<Row> {
    // Use only the samples in which MPEG-2 is sent; this excludes the end of the series.
    let to = series.sums("waseda", "musashino");
    let with_mpeg2 =
        flow(series, "mpeg2").samples.iter().zip(&to).filter(|(sample, _)| sample.offered_mbps > 6.9);
    let there = range(with_mpeg2.map(|(_, sum)| *sum));
    let back = range(series.sums("musashino", "waseda").into_iter());
    let sites = ["jpeg-back", "jpeg-kyoto-back", "jpeg-osaka-back", "jpeg-waseda-back"];
    let sites = sites.map(|name| &flow(series, name).samples);
    let mean = |at: usize| sites.iter().map(|samples| samples[at].offered_mbps).sum::<f64>() / 4.0;
    let composed = range((0..sites[0].len()).map(mean));
    // Compute the possible range of the sum of the flows; a series of one minute need not reach its ends.
    let others = mpeg2(false, Fec::Short) * 1e-6 + AUDIO_LINE_MBPS;
    let parts = (others + published::PICTURES.0, others + published::PICTURES.1);
    // The paper gives the upper end of the range as a whole number.
    let (least, most) = published::TO_MUSASHINO;
    let near = parts.0 <= least && (parts.1 - most).abs() < 0.5;
    vec![
        Row {
            here: span(parts),
            verdict: Verdict::of(Verdict::Fitted, near),
            note: Some(format!(
                "The value is the sum of MPEG-2, audio and pictures of 0.4 .. 5.5. In this series, the sum \
                is {} while MPEG-2 is sent. The lowest sum in the paper implies pictures of 1.3 Mbit/s.",
                span(there)
            )),
            ..Row::published("figure 10", "Waseda to Musashino, sum, Mbit/s", span(published::TO_MUSASHINO))
        },
        Row {
            here: span(back),
            verdict: Verdict::of(Verdict::Fitted, covers(back, published::TO_WASEDA)),
            note: Some(format!(
                "A site sends its own picture, and the server at Waseda composes the four. The rate of a \
                site's picture, {:.1} .. {:.1}, is figure 11's sum less 0.3 of audio.",
                TERMINAL_MBPS[0], TERMINAL_MBPS[1]
            )),
            ..Row::published("figure 11", "Musashino to Waseda, sum, Mbit/s", span(published::TO_WASEDA))
        },
        Row {
            here: span(composed),
            verdict: Verdict::of(Verdict::Met, covers(composed, published::COMPOSED)),
            note: Some(
                "Each of the four pictures is reduced to a quarter, so the composed picture has the mean of \
                their rates, and a narrower range than one site's. The range was not fitted."
                    .into(),
            ),
            ..Row::published("§4.3", "four pictures composed at Waseda, Mbit/s", span(published::COMPOSED))
        },
    ]
}

fn over_time(name: &'static str, title: &str, series: &Outcome, (from, to): (&str, &str)) -> Figure {
    let flows = series.flows.iter().filter(|flow| flow.from == from && flow.to == to);
    let at: Vec<f64> = series.flows[0].samples.iter().map(|sample| sample.at_s).collect();
    let mut curves: Vec<Curve> = flows
        .map(|flow| Curve {
            name: flow.name.trim_end_matches("-back").to_owned(),
            points: flow.samples.iter().map(|sample| (sample.at_s, Some(sample.offered_mbps))).collect(),
        })
        .collect();
    let sums = series.sums(from, to).into_iter().map(Some);
    curves.push(Curve { name: "sum".into(), points: at.into_iter().zip(sums).collect() });
    Figure { name, title: title.to_owned(), x: "seconds", y: "Mbit/s", curves }
}

// ---- The open question

fn policing(tolerances: &[Point], loads: &[(Shaping, Vec<Point>)], rates: &[Point]) -> Vec<Row> {
    let ours = |what: String, here: String, note: String| Row {
        here,
        verdict: Verdict::Ours,
        note: Some(note),
        ..Row::published("open question", what, "-")
    };
    let spoilt = tolerances.iter().map(|point| percent(flow(&point.outcome, "jpeg").unit_loss()));
    let listed = TOLERANCES_US.map(|us| format!("{us}")).join(", ");
    // If a picture of a 5.5 Mbit/s stream is sent at the line rate, its last cell is this much earlier than
    // the contract allows.
    let cells = (5.5e6 / 30.0 / (CELL_BYTES * 8) as f64).round();
    let early_us = (cells - 1.0) * (CELL_BYTES * 8) as f64 * (1.0 / POLICED_MBPS - 1.0 / 149.76);
    let mut rows = vec![ours(
        format!(
            "one lecture, no shaping, policer's tolerance of {listed} us: damaged JPEG pictures, percent"
        ),
        spoilt.collect::<Vec<_>>().join(", "),
        format!(
            "The contract's {POLICED_MBPS} Mbit/s is a *peak* rate. In a picture of {cells} cells that is \
            sent at 149.76 Mbit/s, the last cell is {early_us:.0} us early, whatever the mean rate. A \
            picture conforms only if its source is shaped or the tolerance is larger."
        ),
    )];
    for (shaping, points) in loads {
        let clean = points.iter().take_while(|point| {
            point.outcome.network.cells_policed == 0 && point.outcome.network.cells_dropped_full == 0
        });
        let most = clean.last().map_or("none".to_owned(), |point| {
            format!("{} ({:.0} Mbit/s)", point.x, offered(&point.outcome))
        });
        let how = match shaping {
            Shaping::None => "no shaping",
            Shaping::Contract => "each source shaped to the contract's rate",
            Shaping::Source => "each source shaped to 8 Mbit/s",
            Shaping::Edge => "the whole path shaped at the edge",
        };
        let why = match shaping {
            Shaping::None => "Every single picture exceeds the contract.",
            Shaping::Contract => "A picture sent at the contract's rate leaves no capacity for MPEG-2.",
            Shaping::Source => "No cell is lost as long as the sum of all peak rates is below the contract.",
            Shaping::Edge => {
                "The policer drops nothing. Instead, pictures wait at the edge until its queue is full."
            }
        };
        rows.push(ours(
            format!("{how}: lectures without a lost cell at {POLICED_MBPS} Mbit/s"),
            most,
            why.to_owned(),
        ));
        if let Some(last) = points.last() {
            rows.push(ours(
                format!(
                    "{how}, {} lectures ({:.0} Mbit/s): damaged MPEG-2 pictures, JPEG pictures, \
                    audio packets, percent",
                    last.x,
                    offered(&last.outcome)
                ),
                by_kind(&last.outcome, FlowOutcome::unit_loss),
                format!(
                    "The lost cells are {} percent. One lost cell damages a picture of hundreds of cells.",
                    by_kind(&last.outcome, FlowOutcome::cell_loss)
                ),
            ));
        }
    }
    for point in rates
        .iter()
        .filter(|point| point.outcome.network.cells_policed + point.outcome.network.cells_dropped_full > 0)
        .take(1)
    {
        rows.push(ours(
            format!(
                "one lecture ({:.1} Mbit/s) on a path of {} Mbit/s, shaped at the edge: damaged MPEG-2 \
                pictures, JPEG pictures, audio packets, percent",
                offered(&point.outcome),
                point.x
            ),
            by_kind(&point.outcome, FlowOutcome::unit_loss),
            format!(
                "The lost cells are {} percent. If the contract is below the mean rate, the edge drops the \
                cells that the policer would otherwise drop.",
                by_kind(&point.outcome, FlowOutcome::cell_loss)
            ),
        ));
    }
    rows
}

/// Draws the damaged pictures and packets and the lost cells of all flows, percent.
fn losses(name: &'static str, title: &str, x: &'static str, points: &[Point]) -> Figure {
    let curve = |name: &str| Curve {
        name: name.to_owned(),
        points: points
            .iter()
            .map(|point| (point.x, Some(flow(&point.outcome, name).unit_loss() * 100.0)))
            .collect(),
    };
    let mut curves: Vec<Curve> = KINDS.map(curve).into();
    let cells = |outcome: &Outcome| {
        let flows = || outcome.flows.iter().filter(|flow| flow.from == "waseda");
        let lost: u64 = flows().map(|flow| flow.cells_lost).sum();
        lost as f64 / flows().map(|flow| flow.cells).sum::<u64>().max(1) as f64
    };
    let points = points.iter().map(|point| (point.x, Some(cells(&point.outcome) * 100.0))).collect();
    curves.push(Curve { name: "all cells".into(), points });
    Figure { name, title: title.to_owned(), x, y: "percent lost", curves }
}

/// Draws the fraction of damaged pictures as a function of the fraction of lost cells.
fn cells_and_pictures(points: &[Point]) -> Figure {
    let curve = |name: &str| Curve {
        name: name.to_owned(),
        points: points
            .iter()
            .map(|point| flow(&point.outcome, name))
            .map(|flow| ((flow.cell_loss() * 1e4).round() / 100.0, Some(flow.unit_loss() * 100.0)))
            .collect(),
    };
    Figure {
        name: "cells-and-pictures",
        title: "lost cells and the resulting damage, sources shaped".into(),
        x: "percent of cells",
        y: "percent of pictures or packets",
        curves: KINDS.map(curve).into(),
    }
}
