//! The question that paper \[2\] leaves open in §5: how to multiplex cells of several media.
//!
//! Runs      several lectures and one TCP connection share the path from Waseda to Musashino. The path is
//!           shaped to its contract at Waseda's edge, so cells wait there and the policer drops none. The
//!           ways differ in the queues in which they wait, and in the order in which queues are served
//!           ([`Multiplexing`]).
//! Circuits  as in figure 9, each medium of each lecture has a circuit of its own. The one queue holds 8192
//!           cells, 51 ms of the contract; a queue of a medium's circuit holds 1024.
//! Verdicts  the paper has no values.

use super::point::{Point, by_kind, flow, offered};
use crate::mix::{FlowOutcome, Multiplexing};
use crate::reproduce::{Curve, Figure, Row, Verdict};

/// The results of each way of multiplexing.
pub(super) type Mixed = [(Multiplexing, Vec<Point>)];

fn how(method: Multiplexing) -> &'static str {
    match method {
        Multiplexing::Shared => "one queue for the path",
        Multiplexing::Fair => "a queue for each circuit, equal weights",
        Multiplexing::Weighted => "a queue for each circuit, weights by rate",
        Multiplexing::Priority => "a queue for each circuit, CBR before VBR before UBR",
    }
}

/// Returns a flow's delay of whole units (audio), or of cells (MPEG-2), p99 in milliseconds.
fn delays(point: &Point) -> (f64, f64) {
    let audio = flow(&point.outcome, "audio").unit_ms_p99.unwrap_or(f64::NAN);
    let mpeg2 = flow(&point.outcome, "mpeg2").variation_us_p99.unwrap_or(f64::NAN) * 1e-3;
    (mpeg2, audio)
}

pub(super) fn rows(mixed: &Mixed) -> Vec<Row> {
    let mut rows = Vec::new();
    for (method, points) in mixed {
        // The load at which the lectures just fit, and the highest one.
        let shown = points.iter().filter(|point| point.x == 6.0).chain(points.last());
        for point in shown {
            let bulk = flow(&point.outcome, "bulk");
            let media = offered(&point.outcome) - bulk.offered_mbps;
            let (mpeg2, audio) = delays(point);
            rows.push(Row {
                here: format!(
                    "{}; {mpeg2:.1}, {audio:.1} ms; {:.1} Mbit/s",
                    by_kind(&point.outcome, FlowOutcome::unit_loss),
                    bulk.goodput_mbps.unwrap_or(0.0)
                ),
                verdict: Verdict::Ours,
                note: None,
                ..Row::published(
                    "open question",
                    format!(
                        "{}, {} lectures ({media:.0} Mbit/s) and TCP: damaged MPEG-2 pictures, JPEG \
                        pictures, audio packets, percent; MPEG-2's CDV and the audio's delay, p99; TCP",
                        how(*method),
                        point.x
                    ),
                    "-",
                )
            });
        }
    }
    rows
}

/// Draws damage and delay of the media as functions of the number of lectures, with a curve for each way.
pub(super) fn figures(mixed: &Mixed) -> Vec<Figure> {
    let figure = |name, title: &str, y, value: &dyn Fn(&Point) -> f64| Figure {
        name,
        title: title.to_owned(),
        x: "lectures beside TCP",
        y,
        curves: mixed
            .iter()
            .map(|(method, points)| Curve {
                name: method.word().to_owned(),
                points: points.iter().map(|point| (point.x, Some(value(point)))).collect(),
            })
            .collect(),
    };
    let loss = |name: &'static str| move |point: &Point| flow(&point.outcome, name).unit_loss() * 100.0;
    vec![
        figure("multiplexing-mpeg2", "damaged MPEG-2 pictures", "percent", &loss("mpeg2")),
        figure("multiplexing-jpeg", "damaged JPEG pictures", "percent", &loss("jpeg")),
        figure("multiplexing-audio", "delay of a packet of audio, p99", "ms", &|point| delays(point).1),
    ]
}
