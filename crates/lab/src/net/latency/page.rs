//! The page of latency under load: the verdict, the figures, and the round trips over time.

use super::grade::Grade;
use super::report::{Latency, LoadName, LoadRow};
use crate::engine::words::capitalized;
use crate::report::picture::{Line, Lines, Scale};
use crate::report::{Badge, Block, Document, Grid, Section, Tone};
use crate::stats::median;
use crate::table::readable;

/// The interval of a point of the curves, s.
const POINT_SECONDS: f64 = 0.1;

impl Latency {
    /// Returns the HTML page; `command` is the command that creates it.
    pub fn html(&self, command: &str) -> String {
        html(self, command)
    }
}

fn html(latency: &Latency, command: &str) -> String {
    let facts = [
        ("Host", format!("{} ({}, {})", latency.host, latency.address, latency.kernel)),
        ("Load", format!("{}, {} s", latency.load_words(), latency.seconds)),
        ("Command", command.to_owned()),
    ];
    let mut blocks = vec![Block::Grid(table(latency))];
    if !latency.advice.is_empty() {
        let badge = || Badge::new(Tone::Doubt, "change");
        blocks.push(Block::Badges(latency.advice.iter().map(|advice| (badge(), advice.clone())).collect()));
    }
    blocks.push(Block::Figure(curves(latency).picture(), String::new()));
    let grades = "The grade depends on the increase of the median round trip under load: A+ below 5 ms, A below \
                  30, B below 60, C below 200, D below 400, F from 400 ms on. These are the thresholds of \
                  DSLReports' speed test, applied to each direction.";
    let sections = vec![Section {
        heading: "How it was measured".to_owned(),
        blocks: vec![
            Block::Paragraph(grades.to_owned()),
            Block::Paragraph(
                "A probe is a datagram of 40 bytes, to which the other host replies: every 5 ms on the idle path, \
                 and every 20 ms beside a load. The queue is the increase of the median one-way delay."
                    .to_owned(),
            ),
        ],
    }];
    Document {
        title: format!("Latency under load to {}", latency.host),
        lead: format!("{}.", capitalized(&latency.verdict)),
        facts: facts.map(|(name, value)| (name.to_owned(), value)).into(),
        is_folded: true,
        has_contents: false,
        blocks,
        sections,
        foot: vec![Document::version_line()],
    }
    .html()
}

fn tone(grade: Grade) -> Tone {
    match grade {
        Grade::APlus | Grade::A => Tone::Good,
        Grade::B | Grade::C => Tone::Doubt,
        Grade::D | Grade::F => Tone::Bad,
    }
}

fn table(latency: &Latency) -> Grid {
    let heads = ["load", "grade", "#p50", "#p95", "#p99", "#to", "#from", "#to", "#from", "#to", "#from"];
    let mut grid = Grid::new("Round trips", &heads)
        .grouped(2..5, "round trip, ms")
        .grouped(5..7, "queue, ms")
        .grouped(7..9, "Mbit/s")
        .grouped(9..11, "retransmits, %");
    for row in &latency.loads {
        let LoadRow { round_trip, queue_ms, throughput_mbps, .. } = row;
        let grade = row.grade.map_or("-".into(), |grade| Badge::new(tone(grade), grade.to_string()).into());
        let loaded = row.load.directions();
        let is_idle = row.load == LoadName::Idle;
        let figures = [round_trip.p50_ms, round_trip.p95_ms, round_trip.p99_ms].map(readable).into_iter();
        let queues = queue_ms.map(|queue| if is_idle { "-".to_owned() } else { readable(queue) });
        let rates =
            [0, 1].map(|way| if loaded[way] { readable(throughput_mbps[way]) } else { "-".to_owned() });
        let figures = figures.chain(queues).chain(rates).chain(row.retransmits_cells());
        grid.row([row.load.name().into(), grade].into_iter().chain(figures.map(Into::into)));
    }
    grid
}

/// Returns the medians of round trips over time, a curve for each load.
fn curves(latency: &Latency) -> Lines {
    let line = |(series, row): (usize, &LoadRow)| {
        let count = row.series.iter().map(|(at, _)| (at / POINT_SECONDS) as usize + 1).max().unwrap_or(0);
        let mut points = vec![Vec::new(); count];
        for (at, ms) in &row.series {
            points[(at / POINT_SECONDS) as usize].push(*ms);
        }
        let points = (0..).zip(points).map(|(at, ms)| (f64::from(at) * POINT_SECONDS, median(&ms)));
        Line {
            name: row.load.name().to_owned(),
            series,
            points: points.collect(),
            dashed: row.load == LoadName::Idle,
        }
    };
    Lines {
        name: "round-trips".to_owned(),
        title: "Round trips over time".to_owned(),
        description: "Median round trip in each tenth of a second, for each load".to_owned(),
        x: ("seconds".to_owned(), Scale::Linear),
        y: ("ms".to_owned(), Scale::Linear),
        lines: latency.loads.iter().enumerate().map(line).collect(),
        marks: Vec::new(),
    }
}
