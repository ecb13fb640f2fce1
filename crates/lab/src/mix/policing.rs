//! The sweep question `mix-policing`: how policing a shared path affects each kind of flow as the load grows.

use super::lecture::{Lecture, Multiplexing, Shaping};
use super::plan::Fec;
use super::{Outcome, run};
use crate::engine::{Failure, Metric, Metrics, Parameter, Point, Question, Time, Value};
use crate::heat::Best;
use std::sync::LazyLock;

/// The question `mix-policing`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policing;

static PARAMETERS: LazyLock<Vec<Parameter>> = LazyLock::new(|| {
    let parameter = |name, what, default| Parameter { name, what, default: Some(default) };
    vec![
        parameter("lectures", "lectures of paper [2] that share the path", Value::Count(1)),
        parameter(
            "policed_mbps",
            "peak cell rate of the path's contract, Mbit/s on the line",
            Value::Figure(67.815),
        ),
        parameter(
            "cdvt_us",
            "the policer's cell delay variation tolerance, microseconds",
            Value::Figure(100.0),
        ),
        parameter(
            "shaping",
            "where cells are shaped: none, contract, source or edge",
            Value::Word("source".into()),
        ),
        parameter(
            "multiplexing",
            "how circuits share a path that is shaped at the edge: shared, fair, weighted or priority",
            Value::Word("shared".into()),
        ),
        parameter("fec", "check octets of MPEG-2: none, short or long", Value::Word("short".into())),
        parameter("bulk", "TCP flows in addition to the lectures", Value::Count(0)),
        parameter("seconds", "virtual seconds", Value::Count(5)),
    ]
});

static METRICS: [Metric; 11] = [
    Metric {
        name: "cell_loss",
        what: "fraction of the cells of all flows that did not arrive",
        unit: "",
        best: Best::Low,
    },
    Metric {
        name: "offered_mbps",
        what: "rate of the cells of all flows from Waseda to Musashino",
        unit: "Mbit/s",
        best: Best::High,
    },
    Metric {
        name: "mpeg2_cell_loss",
        what: "fraction of MPEG-2 cells that did not arrive",
        unit: "",
        best: Best::Low,
    },
    Metric {
        name: "mpeg2_picture_loss",
        what: "fraction of MPEG-2 pictures with wrong octets",
        unit: "",
        best: Best::Low,
    },
    Metric {
        name: "jpeg_cell_loss",
        what: "fraction of Motion-JPEG cells that did not arrive",
        unit: "",
        best: Best::Low,
    },
    Metric {
        name: "jpeg_picture_loss",
        what: "fraction of Motion-JPEG pictures that are incomplete",
        unit: "",
        best: Best::Low,
    },
    Metric {
        name: "audio_loss",
        what: "fraction of audio packets that did not arrive",
        unit: "",
        best: Best::Low,
    },
    Metric {
        name: "jpeg_picture_ms_p99",
        what: "delay of a complete picture, p99",
        unit: "ms",
        best: Best::Low,
    },
    Metric {
        name: "mpeg2_cdv_us_p99",
        what: "delay variation of MPEG-2's cells, p99",
        unit: "us",
        best: Best::Low,
    },
    Metric { name: "audio_ms_p99", what: "delay of a packet of audio, p99", unit: "ms", best: Best::Low },
    Metric { name: "bulk_mbps", what: "TCP goodput", unit: "Mbit/s", best: Best::High },
];

/// The maximum number of lectures in one run.
const LECTURES_MAX: u64 = 64;

fn impossible(why: impl Into<String>) -> Failure {
    Failure::Impossible(why.into())
}

/// Returns the lecture for a point of the parameter space.
fn lecture(point: &Point, seed: u64) -> Result<Lecture, Failure> {
    let count = |name: &str, least: u64, most: u64| {
        let value = point.count(name).filter(|value| (least..=most).contains(value));
        value.ok_or_else(|| impossible(format!("{name} must be a whole number from {least} to {most}")))
    };
    let figure = |name: &str, most: f64| {
        let value = point.figure(name).filter(|value| *value > 0.0 && *value <= most);
        value.ok_or_else(|| impossible(format!("{name} must be greater than 0 and at most {most}")))
    };
    let fec = match point.word("fec") {
        Some("none") => Fec::None,
        Some("short") => Fec::Short,
        Some("long") => Fec::Long,
        _ => return Err(impossible("fec must be none, short or long")),
    };
    let shaping = point.word("shaping").and_then(Shaping::of);
    let multiplexing = point.word("multiplexing").and_then(Multiplexing::of);
    Ok(Lecture {
        seed,
        seconds: count("seconds", 1, 3600)? as f64,
        lectures: count("lectures", 1, LECTURES_MAX)? as usize,
        policed_mbps: figure("policed_mbps", 149.76)?,
        cdvt_us: figure("cdvt_us", 1e6)?,
        shaping: shaping.ok_or_else(|| impossible("shaping must be none, contract, source or edge"))?,
        multiplexing: multiplexing
            .ok_or_else(|| impossible("multiplexing must be shared, fair, weighted or priority"))?,
        all_sites: false,
        fec,
        bulk: count("bulk", 0, LECTURES_MAX)? as usize,
    })
}

/// Returns the values of an outcome, keyed by the names of the metrics.
fn metrics(outcome: &Outcome) -> Metrics {
    let there = || outcome.flows.iter().filter(|flow| flow.from == "waseda");
    let (cells, lost) =
        there().fold((0, 0), |(cells, lost), flow| (cells + flow.cells, lost + flow.cells_lost));
    let mut figures = std::collections::BTreeMap::new();
    let mut put = |name: &str, value: Option<f64>| {
        if let Some(value) = value {
            figures.insert(name.to_owned(), value);
        }
    };
    let (mpeg2, jpeg) = (outcome.flow("mpeg2"), outcome.flow("jpeg"));
    put("cell_loss", Some(lost as f64 / f64::max(cells as f64, 1.0)));
    put("offered_mbps", Some(there().map(|flow| flow.offered_mbps).sum()));
    put("mpeg2_cell_loss", mpeg2.map(|flow| flow.cell_loss()));
    put("mpeg2_picture_loss", mpeg2.map(|flow| flow.unit_loss()));
    put("jpeg_cell_loss", jpeg.map(|flow| flow.cell_loss()));
    put("jpeg_picture_loss", jpeg.map(|flow| flow.unit_loss()));
    put("audio_loss", outcome.flow("audio").map(|flow| flow.unit_loss()));
    put("jpeg_picture_ms_p99", jpeg.and_then(|flow| flow.unit_ms_p99));
    put("mpeg2_cdv_us_p99", mpeg2.and_then(|flow| flow.variation_us_p99));
    put("audio_ms_p99", outcome.flow("audio").and_then(|flow| flow.unit_ms_p99));
    put("bulk_mbps", outcome.flow("bulk").and_then(|flow| flow.goodput_mbps));
    let evidence = serde_json::to_value(outcome.network).unwrap_or_default();
    Metrics { figures, evidence }
}

impl Question for Policing {
    fn name(&self) -> &'static str {
        "mix-policing"
    }

    fn what(&self) -> &'static str {
        "what policing a shared path does to pictures, audio and TCP as load grows"
    }

    fn time(&self) -> Time {
        Time::Virtual
    }

    fn parameters(&self) -> &[Parameter] {
        &PARAMETERS
    }

    fn metrics(&self) -> &[Metric] {
        &METRICS
    }

    fn validate(&self, point: &Point) -> Result<(), Failure> {
        lecture(point, 0).map(|_| ())
    }

    fn trial(&self, point: &Point, seed: u64) -> Result<Metrics, Failure> {
        let plan = lecture(point, seed)?.plan();
        Ok(metrics(&run(&plan, &mut |_| {})))
    }
}
