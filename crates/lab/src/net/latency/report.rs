//! The report of latency under load: the verdict first, then a row for each load.

use super::clocks::Clocks;
use super::figures::{Fate, Percentiles};
use super::grade::Grade;
use super::phase::Observed;
use super::request::LatencyRequest;
use crate::engine::Failure;
use crate::table::{Table, readable};
use serde::Serialize;
use std::fmt;

/// A load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadName {
    /// No load.
    Idle,
    /// To the host.
    Upload,
    /// From the host.
    Download,
    /// In both directions at once.
    Both,
}

impl LoadName {
    /// All loads, in the order in which they are measured.
    pub const ALL: [LoadName; 4] = [LoadName::Idle, LoadName::Upload, LoadName::Download, LoadName::Both];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            LoadName::Idle => "idle",
            LoadName::Upload => "upload",
            LoadName::Download => "download",
            LoadName::Both => "both",
        }
    }

    /// Returns whether there is load to the host, and from it.
    pub(super) fn directions(self) -> [bool; 2] {
        [
            matches!(self, LoadName::Upload | LoadName::Both),
            matches!(self, LoadName::Download | LoadName::Both),
        ]
    }
}

/// The figures of one load.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LoadRow {
    /// The load.
    pub load: LoadName,
    /// The grade; `None` for the idle path.
    pub grade: Option<Grade>,
    /// Round trips.
    pub round_trip: Percentiles,
    /// The increase of the median round trip over that of the idle path, ms.
    pub increase_ms: f64,
    /// The increase of the median one-way delays, to the host and from it, ms: where packets wait.
    pub queue_ms: [f64; 2],
    /// The throughput of the load, to the host and from it, Mbit/s.
    pub throughput_mbps: [f64; 2],
    /// The fate of probes and of replies.
    pub probes: [Fate; 2],
    /// Whether the server's rate limit slowed the load.
    pub rate_limited: bool,
    /// Round trips over time: seconds since the start of the load, and ms.
    pub series: Vec<(f64, f64)>,
}

/// Latency under load to a host.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Latency {
    /// The verdict in one sentence.
    pub verdict: String,
    /// The worse grade of upload and download.
    pub grade: Grade,
    /// What to change, if the grade is B or worse.
    pub advice: Vec<String>,
    /// The host as it was named.
    pub host: String,
    /// Its address.
    pub address: String,
    /// Its kernel.
    pub kernel: String,
    /// Connections in each loaded direction.
    pub connections: u16,
    /// The length of each loaded phase, s.
    pub seconds: f64,
    /// A row for each load.
    pub loads: Vec<LoadRow>,
}

/// Returns the percentiles of the round trips in a phase's window.
pub(in crate::net) fn round_trips(observed: &Observed) -> Option<Percentiles> {
    Percentiles::of(observed.in_window().map(|one| one.round_trip() as f64))
}

impl Latency {
    /// Sums up the phases.
    ///
    /// # Errors
    /// A phase had no replies.
    pub(super) fn of(
        (host, address, kernel): (String, String, String),
        request: &LatencyRequest,
        phases: &[(LoadName, Observed)],
    ) -> Result<Latency, Failure> {
        let silent = |name: LoadName| {
            let name = name.name();
            Failure::Lost(format!(
                "the phase '{name}' had no replies: the path carries no other traffic then"
            ))
        };
        let all: Vec<_> = phases.iter().flat_map(|(_, phase)| phase.exchanges.iter().copied()).collect();
        let clocks = Clocks::of(&all).ok_or_else(|| silent(LoadName::Idle))?;
        let mut loads: Vec<LoadRow> = Vec::new();
        for (load, observed) in phases {
            let round_trip = round_trips(observed).ok_or_else(|| silent(*load))?;
            let probes = observed.fates(&clocks);
            let median = |fate: &Fate| fate.one_way.map_or(0.0, |delays| delays.p50_ms);
            let idle = loads.first();
            let increase_ms = idle.map_or(0.0, |idle| round_trip.p50_ms - idle.round_trip.p50_ms);
            let queue_ms =
                [0, 1].map(|way| idle.map_or(0.0, |idle| median(&probes[way]) - median(&idle.probes[way])));
            let begin = observed.window.0;
            let series = observed
                .in_window()
                .map(|one| ((one.departure - begin) as f64 * 1e-9, one.round_trip() as f64 * 1e-6));
            let row = LoadRow {
                load: *load,
                grade: idle.map(|_| Grade::of(increase_ms)),
                round_trip,
                increase_ms,
                queue_ms,
                throughput_mbps: observed.throughput_mbps(&clocks),
                rate_limited: observed.server.rate_limited,
                series: series.collect(),
                probes,
            };
            loads.push(row);
        }
        let graded = |load: LoadName| {
            let row = loads.iter().find(|row| row.load == load).expect("each load was measured");
            (row.grade.expect("it has load"), row)
        };
        let (upload, download) = (graded(LoadName::Upload), graded(LoadName::Download));
        let worse = if upload.1.increase_ms > download.1.increase_ms { upload } else { download };
        Ok(Latency {
            verdict: verdict(worse.0, worse.1, &loads[0]),
            grade: worse.0,
            advice: [upload, download].iter().filter_map(|(grade, row)| advice(*grade, row)).collect(),
            host,
            address,
            kernel,
            connections: request.connections,
            seconds: request.length.as_secs_f64(),
            loads,
        })
    }
}

fn verdict(grade: Grade, row: &LoadRow, idle: &LoadRow) -> String {
    let what = match row.load {
        LoadName::Upload => "an upload",
        _ => "a download",
    };
    format!(
        "grade {grade}: {}; {what} raises the median round trip from {} to {} ms",
        grade.words(),
        readable(idle.round_trip.p50_ms),
        readable(row.round_trip.p50_ms),
    )
}

/// Returns what to change if load in one direction delays other traffic, and the evidence for it.
fn advice(grade: Grade, row: &LoadRow) -> Option<String> {
    if grade <= Grade::A {
        return None;
    }
    let [to, from] = row.queue_ms;
    let (way, queue, mbps) = match row.load {
        LoadName::Upload => ("to", to, row.throughput_mbps[0]),
        _ => ("from", from, row.throughput_mbps[1]),
    };
    // Name the queue only if the one-way delays show it in the direction of the load.
    if queue < 0.5 * row.increase_ms {
        return Some(format!(
            "during the {}, round trips are {} ms longer, but one-way delays grow by {} ms to the host and {} ms \
             from it: not a queue in the direction of the load alone",
            row.load.name(),
            readable(row.increase_ms),
            readable(to),
            readable(from),
        ));
    }
    Some(format!(
        "packets {way} the host wait up to {} ms in a queue before the bottleneck: shape there to a little less \
         than its {} Mbit/s, with fair queueing and a short queue (tc qdisc replace dev INTERFACE root cake \
         bandwidth {:.0}kbit)",
        readable(queue),
        readable(mbps),
        mbps * 900.0,
    ))
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.verdict)?;
        let title = format!(
            "{} ({}, {}): round trips of probes beside {} TCP connections per direction, ms",
            self.host, self.address, self.kernel, self.connections
        );
        let mut table = Table::new(title).text_column("load").text_column("grade");
        for head in [
            "min",
            "p50",
            "p95",
            "p99",
            "max",
            "increase",
            "queue to",
            "queue from",
            "Mbit/s to",
            "Mbit/s from",
            "lost %",
        ] {
            table = table.number_column(head);
        }
        for row in &self.loads {
            let is_idle = row.grade.is_none();
            let unless_idle = |value: f64| if is_idle { "-".to_owned() } else { readable(value) };
            let loaded = row.load.directions();
            let rate =
                |way: usize| if loaded[way] { readable(row.throughput_mbps[way]) } else { "-".to_owned() };
            let lost = row.probes.iter().map(|fate| fate.lost_percent).sum::<f64>();
            let grade = row.grade.map_or("-".to_owned(), |grade| grade.to_string());
            let rest = [
                unless_idle(row.increase_ms),
                unless_idle(row.queue_ms[0]),
                unless_idle(row.queue_ms[1]),
                rate(0),
                rate(1),
                readable(lost),
            ];
            table.row(
                [row.load.name().to_owned(), grade].into_iter().chain(row.round_trip.cells()).chain(rest),
            );
        }
        table.remark(
            "to, from: the direction, seen from this host; queue: increase of the median one-way delay",
        );
        if self.loads.iter().any(|row| row.rate_limited) {
            table.remark(
                "the server's rate limit (--rate) slowed the load: the path may carry more, and its queues may \
                 be longer than measured",
            );
        }
        write!(f, "{table}")?;
        if !self.advice.is_empty() {
            writeln!(f, "\nWhat to change")?;
            self.advice.iter().try_for_each(|advice| writeln!(f, "- {advice}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::phase::Exchange;
    use super::*;
    use crate::remote::probes::{ProbeOutcome, Volume};
    use std::time::Duration;

    const MS: i64 = 1_000_000;

    /// Returns a phase of 100 probes every 20 ms with these one-way delays in ms, beside a load of 20 Mbit/s.
    fn phase(to: i64, from: i64, rate_limited: bool) -> Observed {
        let exchange = |number: u32| {
            let departure = i64::from(number) * 20 * MS;
            let server_arrival = departure + to * MS;
            let arrival = server_arrival + from * MS;
            let reply = u64::from(number) + 1;
            let server_departure = server_arrival;
            Exchange { number, departure, server_arrival, server_departure, arrival, reply, tos: [0; 2] }
        };
        let volume = Volume { begin: 0, bytes: vec![250_000; 20] };
        let server = ProbeOutcome { distinct: 100, up: volume.clone(), rate_limited, ..Default::default() };
        let exchanges = (0..100).map(exchange).collect();
        Observed { exchanges, window: (0, 2000 * MS), sent: 100, down: volume, server, ..Observed::default() }
    }

    /// Returns the report of an idle path with 5 ms in each direction and of loads with these one-way delays.
    fn report(upload: [i64; 2], download: [i64; 2], rate_limited: bool) -> Latency {
        let delays = [[5, 5], upload, download, [upload[0], download[1]]];
        let phases: Vec<_> = LoadName::ALL
            .into_iter()
            .zip(delays)
            .map(|(load, [to, from])| (load, phase(to, from, rate_limited && load != LoadName::Idle)))
            .collect();
        let request = LatencyRequest { connections: 4, length: Duration::from_secs(2) };
        let host = ("host".to_owned(), "192.0.2.1".to_owned(), "Linux".to_owned());
        Latency::of(host, &request, &phases).expect("every phase had replies")
    }

    #[test]
    fn the_worse_direction_is_the_verdict_and_the_advice_names_its_queue() {
        let bad_upload = report([455, 5], [5, 20], false);
        let grades: Vec<_> = bad_upload.loads.iter().map(|row| row.grade).collect();
        assert_eq!(grades, [None, Some(Grade::F), Some(Grade::A), Some(Grade::F)]);
        assert_eq!(bad_upload.grade, Grade::F);
        assert_eq!(bad_upload.loads[1].queue_ms, [450.0, 0.0]);
        assert!(bad_upload.verdict.contains("an upload raises the median round trip from 10 to 460 ms"));
        assert_eq!(bad_upload.advice.len(), 1, "a good download needs no change: {:?}", bad_upload.advice);
        assert!(bad_upload.advice[0].starts_with("packets to the host wait up to 450 ms"));
        let bad_download = report([10, 5], [5, 85], false);
        assert_eq!((bad_download.grade, bad_download.advice.len()), (Grade::C, 1));
        assert!(bad_download.advice[0].starts_with("packets from the host wait up to 80 ms"));
    }

    #[test]
    fn a_delay_in_the_other_direction_is_not_called_a_queue_of_the_load() {
        // The upload makes packets from the host wait: a shared medium, or a busy host.
        let report = report([5, 105], [5, 5], false);
        assert_eq!((report.grade, report.advice.len()), (Grade::C, 1));
        assert!(report.advice[0].contains("not a queue in the direction of the load"), "{:?}", report.advice);
    }

    #[test]
    fn a_short_queue_has_a_good_grade_without_advice_and_a_rate_limit_is_named() {
        let limit = "the server's rate limit (--rate) slowed the load";
        let short = report([8, 5], [5, 9], false);
        assert_eq!((short.grade, short.advice.len()), (Grade::APlus, 0));
        assert!(!short.to_string().contains(limit));
        assert!(report([8, 5], [5, 9], true).to_string().contains(limit));
    }
}
