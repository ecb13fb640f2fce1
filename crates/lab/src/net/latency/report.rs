//! The report of latency under load: the verdict first, then a row for each load.

use super::clocks::Clocks;
use super::figures::{Fate, Percentiles};
use super::grade::Grade;
use super::limit::Limit;
use super::phase::Observed;
use super::request::{LatencyRequest, Next, trace_command};
use crate::engine::Failure;
use crate::remote::probes::{LOAD_CONGESTION, Segments};
use crate::stats::median;
use crate::table::{Table, counted, readable};
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
    /// The grade; `None` for the idle path, and if a direction that was to be loaded stalled or did not fill
    /// the path.
    pub grade: Option<Grade>,
    /// Round trips.
    pub round_trip: Percentiles,
    /// The increase of the median round trip over that of the idle path, ms.
    pub increase_ms: f64,
    /// The increase of the median one-way delays, to the host and from it, ms: where packets wait.
    pub queue_ms: [f64; 2],
    /// The throughput of the load, to the host and from it, Mbit/s.
    pub throughput_mbps: [f64; 2],
    /// The segments of the load, to the host and from it; `None` if a kernel does not count them.
    pub segments: [Option<Segments>; 2],
    /// What limited the load to the host and from it, apart from the path.
    pub limits: [Option<Limit>; 2],
    /// The fate of probes and of replies.
    pub probes: [Fate; 2],
    /// Whether the server's rate limit slowed the load.
    pub rate_limited: bool,
    /// Round trips over time: seconds since the start of the load, and ms.
    pub series: Vec<(f64, f64)>,
}

/// A direction of a load stalled if it moved less than this, Mbit/s: about a segment per second.
const STALLED_MBPS: f64 = 0.01;
/// The share of retransmitted segments, percent, that is a finding of its own. Short queues that work well
/// drop one or two percent of the segments of a few connections.
const RETRANSMITS_MIN: f64 = 5.0;
/// The fewest probes, and the least share of them in percent, whose loss on the idle path is a finding.
const IDLE_LOST_MIN: (u64, f64) = (3, 0.5);
/// A queue still grows if round trips in the last third of a load exceed those in the second by this factor,
/// and by this time, ms.
const GROWTH_MIN: (f64, f64) = (1.25, 10.0);
/// An increase of the median round trip below this is none, ms.
const INCREASE_MIN: f64 = 1.0;

impl LoadRow {
    /// Returns whether a direction that was to be loaded moved no data.
    pub fn is_stalled(&self) -> bool {
        let mut ways = self.load.directions().into_iter().zip(self.throughput_mbps);
        ways.any(|(is_loaded, mbps)| is_loaded && mbps < STALLED_MBPS)
    }

    /// Returns the direction in which the hosts' own buffers limited the load, so that it did not fill the
    /// path: a queue that grows shows that the path is full nevertheless.
    pub(in crate::net) fn unfilled(&self) -> Option<(usize, Limit)> {
        let is_short = Grade::of(self.increase_ms) <= Grade::A;
        self.limited().find(|(_, limit)| is_short && limit.is_buffer())
    }

    /// Returns the directions in which something limited the load apart from the path. If the server's rate
    /// limit did, its window only follows from that.
    fn limited(&self) -> impl Iterator<Item = (usize, Limit)> {
        let ways = [0, 1].into_iter().filter(|_| !self.rate_limited);
        ways.filter_map(|way| Some((way, self.limits[way]?)))
    }

    /// Returns the share of retransmitted segments of a direction, percent; `None` if it is not loaded, or
    /// not known.
    pub(in crate::net) fn retransmits_percent(&self, way: usize) -> Option<f64> {
        self.segments[way].filter(|_| self.load.directions()[way])?.retransmits_percent()
    }

    pub(super) fn retransmits_cells(&self) -> [String; 2] {
        [0, 1].map(|way| self.retransmits_percent(way).map_or("-".to_owned(), readable))
    }

    /// The direction of an upload or a download: its number, and in words.
    fn way(&self) -> (usize, &'static str) {
        if self.load == LoadName::Upload { (0, "to") } else { (1, "from") }
    }

    /// Returns the share of probes that a direction of the idle path loses, if it is a finding, percent.
    pub(in crate::net) fn idle_loss(&self, way: usize) -> Option<f64> {
        let fate = &self.probes[way];
        let is_finding = fate.lost >= IDLE_LOST_MIN.0 && fate.lost_percent >= IDLE_LOST_MIN.1;
        is_finding.then_some(fate.lost_percent)
    }

    /// Returns whether round trips still grew when the load ended, so that a longer load delays more.
    fn is_growing(&self) -> bool {
        let end = self.series.iter().map(|(at, _)| *at).fold(0.0, f64::max);
        let third = |number: f64| {
            let part = (number - 1.0) / 3.0 * end..=number / 3.0 * end;
            let times = self.series.iter().filter(|(at, _)| part.contains(at)).map(|(_, ms)| *ms);
            median(&times.collect::<Vec<_>>()).unwrap_or(0.0)
        };
        let (second, last) = (third(2.0), third(3.0));
        last >= (GROWTH_MIN.0 * second).max(second + GROWTH_MIN.1)
    }

    /// Returns the share of retransmitted segments of an upload or a download if it is a finding, percent.
    fn notable_retransmits(&self) -> Option<f64> {
        self.retransmits_percent(self.way().0).filter(|percent| *percent >= RETRANSMITS_MIN)
    }
}

/// Latency under load to a host.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Latency {
    /// The verdict in one sentence.
    pub verdict: String,
    /// The worse grade of upload and download; `None` if one of them has none.
    pub grade: Option<Grade>,
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
    /// The congestion control of the load, to the host and from it; `None` if it is not known.
    pub congestion: [Option<String>; 2],
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
    /// Returns the grade for a table.
    pub fn grade_words(&self) -> String {
        self.grade.map_or("-".to_owned(), |grade| grade.to_string())
    }

    /// Describes the connections of the load.
    pub(super) fn load_words(&self) -> String {
        let count = counted(self.connections, "TCP connection");
        match self.congestion.each_ref().map(Option::as_deref) {
            [None, None] => format!("{count} per direction"),
            [to, from] if to == from => format!("{count} per direction ({})", to.unwrap_or_default()),
            [to, from] => {
                let name = |name: Option<&str>| name.unwrap_or("unknown congestion control").to_owned();
                format!("{count} per direction ({} to, {} from)", name(to), name(from))
            }
        }
    }

    /// Returns a remark if the load does not use [`LOAD_CONGESTION`].
    fn other_congestion(&self) -> Option<String> {
        let is_other = |name: &&String| name.as_str() != LOAD_CONGESTION;
        let name = self.congestion.iter().flatten().find(is_other)?;
        Some(format!(
            "the load uses {name}, because {LOAD_CONGESTION} is not available to the program: a load with \
             {LOAD_CONGESTION} may fill a longer queue than measured"
        ))
    }

    /// Sums up the phases; `command` returns the command that measures the host in another way.
    ///
    /// # Errors
    /// A phase had no replies.
    pub(super) fn of(
        (host, address, kernel): (String, String, String),
        request: &LatencyRequest,
        command: Next<'_>,
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
            let middle = |fate: &Fate| fate.one_way.map_or(0.0, |delays| delays.p50_ms);
            let idle = loads.first();
            let increase_ms = idle.map_or(0.0, |idle| round_trip.p50_ms - idle.round_trip.p50_ms);
            let queue_ms =
                [0, 1].map(|way| idle.map_or(0.0, |idle| middle(&probes[way]) - middle(&idle.probes[way])));
            let begin = observed.window.0;
            let server = &observed.server;
            let segments = [Some(observed.up_sent.segments), server.down_segments];
            let limits = [observed.up_sent.limits, server.down_limits];
            let congestion = [&observed.up_congestion, &server.down_congestion].map(Option::as_deref);
            let idle_ms = idle.map_or(0.0, |idle| idle.round_trip.p50_ms);
            let limits = [0, 1].map(|way| Limit::of(limits[way]?, segments[way], congestion[way], idle_ms));
            let series = observed
                .in_window()
                .map(|one| ((one.departure - begin) as f64 * 1e-9, one.round_trip() as f64 * 1e-6));
            let mut row = LoadRow {
                load: *load,
                grade: idle.map(|_| Grade::of(increase_ms)),
                round_trip,
                increase_ms,
                queue_ms,
                throughput_mbps: observed.throughput_mbps(&clocks),
                rate_limited: observed.server.rate_limited,
                series: series.collect(),
                segments,
                limits,
                probes,
            };
            if row.is_stalled() || row.unfilled().is_some() {
                row.grade = None;
            }
            loads.push(row);
        }
        let of = |load: LoadName| loads.iter().find(|row| row.load == load).expect("each load was measured");
        let rows = [of(LoadName::Upload), of(LoadName::Download)];
        let grade = rows.map(|row| row.grade);
        let grade = grade[0].zip(grade[1]).map(|(one, other)| one.max(other));
        Ok(Latency {
            verdict: verdict(rows, &loads[0]),
            grade,
            advice: [0, 1]
                .into_iter()
                .filter_map(|way| loss_advice(way, &rows, &loads[0], command))
                .chain(rows.iter().filter_map(|row| advice(row, &loads[0], command)))
                .collect(),
            host,
            address,
            kernel,
            connections: request.connections,
            congestion: [
                phases.iter().find_map(|(_, phase)| phase.up_congestion.clone()),
                phases.iter().find_map(|(_, phase)| phase.server.down_congestion.clone()),
            ],
            seconds: request.length.as_secs_f64(),
            loads,
        })
    }
}

fn verdict(rows: [&LoadRow; 2], idle: &LoadRow) -> String {
    let unfilled = rows.iter().filter(|row| !row.is_stalled()).filter_map(|row| {
        let (way, limit) = row.unfilled()?;
        Some(format!(
            "the {} did not fill the path, because {} limits it",
            row.load.name(),
            limit.setting(way)
        ))
    });
    let stalled: Vec<&str> = rows.iter().filter(|row| row.is_stalled()).map(|row| row.load.name()).collect();
    let graded = rows.into_iter().filter_map(|row| Some((row.grade?, row)));
    let worse =
        graded.max_by(|one, other| one.1.increase_ms.total_cmp(&other.1.increase_ms)).map(|(grade, row)| {
            let head = format!("grade {grade}: {}", grade.words());
            let usual = readable(idle.round_trip.p50_ms);
            if row.increase_ms < INCREASE_MIN {
                return format!("{head}; the load does not raise the median round trip of {usual} ms");
            }
            format!(
                "{head}; {} raises the median round trip from {usual} to {} ms",
                if row.load == LoadName::Upload { "an upload" } else { "a download" },
                readable(row.round_trip.p50_ms),
            )
        });
    let stalled = match stalled[..] {
        [] => None,
        _ => Some(format!(
            "the {} stalled, so there was no load that could delay other traffic",
            stalled.join(" and the ")
        )),
    };
    let ungraded: Vec<String> = stalled.into_iter().chain(unfilled).collect();
    let ungraded = (!ungraded.is_empty()).then(|| format!("no grade: {}", ungraded.join("; ")));
    let graded = match (ungraded, worse) {
        (Some(ungraded), Some(worse)) => format!("{ungraded}; the other direction alone has {worse}"),
        (ungraded, worse) => ungraded.or(worse).expect("a direction has a grade, or a reason for none"),
    };
    // A path that loses packets without a load has to be repaired first.
    let losses = [(0, "to"), (1, "from")].into_iter().filter_map(|(way, words)| {
        let percent = readable(idle.idle_loss(way)?);
        Some(format!("the idle path loses {percent} % of the probes {words} the host; "))
    });
    let mut words = losses.collect::<String>() + &graded;
    for row in rows {
        if let Some(percent) = row.notable_retransmits() {
            words +=
                &format!("; the {} retransmits {} % of its segments", row.load.name(), readable(percent));
        }
        let is_graded = row.grade.is_some() && row.increase_ms >= INCREASE_MIN;
        for (way, limit) in row.limited().filter(|_| is_graded) {
            let name = row.load.name();
            words += &match limit {
                Limit::OwnQueue => format!(
                    "; the {name} waits in {}, where TCP keeps few packets of each connection: with more \
                     connections (-P), or other programs, packets may wait longer",
                    limit.setting(way)
                ),
                _ => format!("; {} limits the {name}, so the queue may become longer", limit.setting(way)),
            };
        }
        if row.grade.is_some_and(|grade| grade < Grade::F) && row.is_growing() {
            words += &format!(
                "; round trips still grew when the {} ended: a longer --seconds may give a worse grade",
                row.load.name()
            );
        }
    }
    words
}

/// Returns what to do about a direction of the path that loses packets without a load.
fn loss_advice(way: usize, rows: &[&LoadRow; 2], idle: &LoadRow, command: Next<'_>) -> Option<String> {
    let percent = idle.idle_loss(way)?;
    let (direction, other) = if way == 0 { ("to", "from it") } else { ("from", "to it") };
    let rate = |way: usize| readable(rows[way].throughput_mbps[way]);
    Some(format!(
        "the path loses {} % of the packets {direction} the host although nothing fills it, and the load {direction} the \
         host has {} Mbit/s ({} {other}): look for a faulty cable, link or radio (error counters: ip -s link, ethtool -S) \
         and repair it first; `{}` measures the losses of each direction",
        readable(percent),
        rate(way),
        rate(1 - way),
        command("udp"),
    ))
}

/// Returns what to change if a load stalls, or delays other traffic, or is dropped, and the evidence for it.
fn advice(row: &LoadRow, idle: &LoadRow, command: Next<'_>) -> Option<String> {
    let (at, way) = row.way();
    let name = row.load.name();
    if let Some((way, limit)) = row.unfilled().filter(|_| !row.is_stalled()) {
        return Some(format!(
            "the {name} had only {} Mbit/s: raise the maximum of {}, or use more connections (-P), and measure again",
            readable(row.throughput_mbps[way]),
            limit.setting(way),
        ));
    }
    let Some(grade) = row.grade else {
        return Some(format!(
            "the {name} moved no data, although probes and handshakes passed: run `{}`, which finds a path that \
             drops long packets",
            command("check"),
        ));
    };
    if grade <= Grade::A {
        return row.notable_retransmits().map(|percent| {
            format!(
                "the {name} of {} Mbit/s retransmits {} % of its segments, but round trips are only {} ms longer: \
                 the path drops packets instead of queueing them (a policer, a very short queue, or a faulty link). \
                 Look at the drop counters of the devices on the path; `{}` records a transfer, and `kiban lab \
                 explain` of the file in captures says more",
                readable(row.throughput_mbps[at]),
                readable(percent),
                readable(row.increase_ms.max(0.0)),
                trace_command(at, command),
            )
        });
    }
    let [to, from] = row.queue_ms;
    let (queue, mbps) = (row.queue_ms[at], row.throughput_mbps[at]);
    // Name the queue only if the one-way delays show it in the direction of the load.
    if queue < 0.5 * row.increase_ms {
        return Some(format!(
            "during the {name}, round trips are {} ms longer, but one-way delays grow by {} ms to the host and {} ms \
             from it: not a queue in the direction of the load alone",
            readable(row.increase_ms),
            readable(to),
            readable(from),
        ));
    }
    let delays = row.probes[at].one_way.zip(idle.probes[at].one_way);
    let longest = delays.map_or(queue, |(loaded, idle)| loaded.max_ms - idle.p50_ms);
    Some(format!(
        "packets {way} the host wait in a queue before the bottleneck (median {} ms, up to {} ms): shape there to a \
         little less than its {} Mbit/s, with fair queueing and a short queue (tc qdisc replace dev INTERFACE root \
         cake bandwidth {:.0}kbit)",
        readable(queue),
        readable(longest),
        readable(mbps),
        mbps * 900.0,
    ))
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.verdict)?;
        let title = format!(
            "{} ({}, {}): round trips of probes beside {}, ms",
            self.host,
            self.address,
            self.kernel,
            self.load_words()
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
            "retransmits to, %",
            "retransmits from, %",
        ] {
            table = table.number_column(head);
        }
        for row in &self.loads {
            let is_idle = row.load == LoadName::Idle;
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
                [row.load.name().to_owned(), grade]
                    .into_iter()
                    .chain(row.round_trip.cells())
                    .chain(rest)
                    .chain(row.retransmits_cells()),
            );
        }
        table.remark(
            "to, from: the direction, seen from this host; queue: increase of the median one-way delay; lost: probes; \
             retransmits: segments of the load",
        );
        if let Some(words) = self.other_congestion() {
            table.remark(words);
        }
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
    use crate::remote::probes::{LoadLimits, ProbeOutcome, Volume};
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
        let down_segments = Some(Segments { sent: 3000, retransmits: 30 });
        let server = ProbeOutcome {
            distinct: 100,
            up: volume.clone(),
            rate_limited,
            down_segments,
            ..Default::default()
        };
        let exchanges = (0..100).map(exchange).collect();
        Observed { exchanges, window: (0, 2000 * MS), sent: 100, down: volume, server, ..Observed::default() }
    }

    /// Returns the report of an idle path with 5 ms in each direction and of loads with these one-way delays.
    fn report(upload: [i64; 2], download: [i64; 2], rate_limited: bool) -> Latency {
        changed(upload, download, rate_limited, |_, _| ())
    }

    /// Like [`report`], with observations that `change` changes.
    fn changed(
        upload: [i64; 2],
        download: [i64; 2],
        rate_limited: bool,
        change: impl Fn(LoadName, &mut Observed),
    ) -> Latency {
        let delays = [[5, 5], upload, download, [upload[0], download[1]]];
        let phases: Vec<_> = LoadName::ALL
            .into_iter()
            .zip(delays)
            .map(|(load, [to, from])| {
                let mut phase = phase(to, from, rate_limited && load != LoadName::Idle);
                change(load, &mut phase);
                (load, phase)
            })
            .collect();
        let request = LatencyRequest { connections: 4, length: Duration::from_secs(2) };
        let host = ("host".to_owned(), "192.0.2.1".to_owned(), "Linux".to_owned());
        Latency::of(host, &request, &|rest| format!("kiban lab {rest} host"), &phases)
            .expect("every phase had replies")
    }

    #[test]
    fn the_worse_direction_is_the_verdict_and_the_advice_names_its_queue() {
        let bad_upload = report([455, 5], [5, 20], false);
        let grades: Vec<_> = bad_upload.loads.iter().map(|row| row.grade).collect();
        assert_eq!(grades, [None, Some(Grade::F), Some(Grade::A), Some(Grade::F)]);
        assert_eq!(bad_upload.grade, Some(Grade::F));
        assert_eq!(bad_upload.loads[1].queue_ms, [450.0, 0.0]);
        assert!(bad_upload.verdict.contains("an upload raises the median round trip from 10 to 460 ms"));
        assert_eq!(bad_upload.advice.len(), 1, "a good download needs no change: {:?}", bad_upload.advice);
        assert!(bad_upload.advice[0].starts_with(
            "packets to the host wait in a queue before the bottleneck (median 450 ms, up to 450 ms)"
        ));
        let bad_download = report([10, 5], [5, 85], false);
        assert_eq!((bad_download.grade, bad_download.advice.len()), (Some(Grade::C), 1));
        assert!(bad_download.advice[0].starts_with("packets from the host wait in a queue"));
    }

    #[test]
    fn a_delay_in_the_other_direction_is_not_called_a_queue_of_the_load() {
        // The upload makes packets from the host wait: a shared medium, or a busy host.
        let report = report([5, 105], [5, 5], false);
        assert_eq!((report.grade, report.advice.len()), (Some(Grade::C), 1));
        assert!(report.advice[0].contains("not a queue in the direction of the load"), "{:?}", report.advice);
    }

    #[test]
    fn a_short_queue_has_a_good_grade_without_advice_and_a_rate_limit_is_named() {
        let limit = "the server's rate limit (--rate) slowed the load";
        let short = report([8, 5], [5, 9], false);
        assert_eq!((short.grade, short.advice.len()), (Some(Grade::APlus), 0));
        assert!(!short.to_string().contains(limit));
        assert!(report([8, 5], [5, 9], true).to_string().contains(limit));
    }

    #[test]
    fn a_load_that_moved_nothing_has_no_grade() {
        let stalled = |name: LoadName, phase: &mut Observed| {
            if name != LoadName::Idle {
                phase.server.up.bytes.fill(0);
            }
        };
        let report = changed([5, 5], [5, 45], false, stalled);
        let grades: Vec<_> = report.loads.iter().map(|row| row.grade).collect();
        assert_eq!((report.grade, grades), (None, vec![None, None, Some(Grade::B), None]));
        assert!(
            report.verdict.starts_with("no grade: the upload stalled")
                && report.verdict.contains("the other direction alone has grade B"),
            "{}",
            report.verdict
        );
        assert!(report.advice[0].contains("`kiban lab check host`"), "{:?}", report.advice);
        let both = |name: LoadName, phase: &mut Observed| {
            stalled(name, phase);
            phase.down.bytes.clear();
        };
        let report = changed([5, 5], [5, 5], false, both);
        assert!(
            report.verdict.starts_with("no grade: the upload and the download stalled"),
            "{}",
            report.verdict
        );
        assert_eq!(report.advice.len(), 2);
        assert!(report.html("x").contains("No grade") && report.to_string().starts_with("no grade"));
    }

    #[test]
    fn a_load_that_is_dropped_instead_of_delayed_is_a_finding() {
        let dropped = |sent, retransmits| {
            move |_: LoadName, phase: &mut Observed| phase.up_sent.segments = Segments { sent, retransmits }
        };
        let policed = changed([5, 5], [5, 5], false, dropped(3321, 712));
        assert_eq!(policed.grade, Some(Grade::APlus));
        assert!(
            policed.verdict.ends_with("the upload retransmits 21.4 % of its segments"),
            "{}",
            policed.verdict
        );
        assert_eq!(policed.advice.len(), 1);
        assert!(policed.advice[0].contains("drops packets instead of queueing them"), "{:?}", policed.advice);
        // A short queue of a shaper drops a few segments of each connection; 1 % of the download's here.
        let shaped = changed([5, 5], [5, 5], false, dropped(3321, 60));
        assert!(!shaped.verdict.contains("retransmits") && shaped.advice.is_empty(), "{}", shaped.verdict);
        let upload = shaped
            .to_string()
            .lines()
            .find(|line| line.trim_start().starts_with("upload"))
            .map(str::to_owned);
        let mut ends = upload.iter().flat_map(|line| line.split_whitespace().rev());
        assert_eq!((ends.next(), ends.next()), (Some("-"), Some("1.81")), "{upload:?}");
        // With a deep queue, the queue is the advice.
        let deep = changed([455, 5], [5, 5], false, dropped(3321, 712));
        assert!(deep.advice[0].starts_with("packets to the host wait"), "{:?}", deep.advice);
        assert!(deep.verdict.contains("retransmits 21.4 %"), "{}", deep.verdict);
    }

    #[test]
    fn losses_of_the_idle_path_come_first() {
        // A replies' path that loses two percent, and a download that suffers from it.
        let lossy = |lost: u64| {
            move |name: LoadName, phase: &mut Observed| {
                if name == LoadName::Idle {
                    let kept = phase.exchanges.len() - lost as usize;
                    phase.exchanges.truncate(kept);
                }
                phase.down.bytes.fill(50_000);
            }
        };
        let report = changed([45, 5], [5, 5], false, lossy(4));
        assert!(
            report.verdict.starts_with("the idle path loses 4 % of the probes from the host; grade B: "),
            "{}",
            report.verdict
        );
        assert!(
            report.advice[0]
                .starts_with("the path loses 4 % of the packets from the host although nothing fills it")
                && report.advice[0].contains("has 4 Mbit/s (20 to it)"),
            "{:?}",
            report.advice
        );
        assert!(report.advice[1].starts_with("packets to the host wait in a queue"), "{:?}", report.advice);
        // Two lost probes are no finding.
        let few = changed([45, 5], [5, 5], false, lossy(2));
        assert!(!few.verdict.contains("idle path loses") && few.advice.len() == 1, "{few}");
    }

    #[test]
    fn a_load_that_the_hosts_limit_has_no_grade_unless_it_fills_a_queue() {
        let limits = |send_buffer, window, in_flight| LoadLimits {
            send_buffer,
            window,
            in_flight,
            congestion_window: 100,
        };
        let limited = |to: LoadLimits, from: LoadLimits| {
            move |name: LoadName, phase: &mut Observed| {
                let [is_up, is_down] = name.directions();
                phase.up_sent.limits = is_up.then_some(to);
                phase.server.down_congestion = is_down.then(|| "cubic".to_owned());
                phase.server.down_limits = is_down.then_some(from);
                phase.server.down_segments = Some(Segments { sent: 3000, retransmits: 0 });
            }
        };
        let (free, small) = (limits(0.1, 0.2, 98), limits(0.95, 0.0, 0));
        let upload = changed([5, 5], [5, 45], false, limited(small, free));
        let grades: Vec<_> = upload.loads.iter().map(|row| row.grade).collect();
        assert_eq!((upload.grade, grades), (None, vec![None, None, Some(Grade::B), Some(Grade::B)]));
        assert!(
            upload.verdict.starts_with(
                "no grade: the upload did not fill the path, because this host's send buffer (net.ipv4.tcp_wmem) \
                 limits it; the other direction alone has grade B"
            ),
            "{}",
            upload.verdict
        );
        assert!(
            upload.advice[0]
                .starts_with("the upload had only 20 Mbit/s: raise the maximum of this host's send"),
            "{:?}",
            upload.advice
        );
        assert_eq!(upload.loads[1].limits, [Some(Limit::SendBuffer), None]);
        let window = changed([5, 5], [5, 5], false, limited(free, limits(0.0, 0.9, 50)));
        let words = "because this host's receive window (net.ipv4.tcp_rmem) limits it";
        assert!(window.verdict.contains(words) && window.loads[1].grade == Some(Grade::APlus), "{window}");
        // The server's --rate is the reason, and a queue shows that the path is full.
        let rated = changed([5, 5], [5, 5], true, limited(small, free));
        assert_eq!(rated.grade, Some(Grade::APlus));
        let full = changed([85, 5], [5, 5], false, limited(small, free));
        assert_eq!(full.grade, Some(Grade::C));
        let words =
            "; this host's send buffer (net.ipv4.tcp_wmem) limits the upload, so the queue may become longer";
        assert!(full.verdict.ends_with(words), "{}", full.verdict);
        // A queue of a host itself.
        let own = changed([5, 5], [5, 25], false, limited(free, limits(0.0, 0.0, 60)));
        assert_eq!(own.grade, Some(Grade::A));
        let words =
            "; the download waits in the other host's queue (tc -s qdisc), where TCP keeps few packets";
        assert!(own.verdict.contains(words), "{}", own.verdict);
        let none = changed([5, 5], [5, 5], false, limited(free, limits(0.0, 0.0, 60)));
        assert!(!none.verdict.contains("waits in"), "{}", none.verdict);
    }

    #[test]
    fn a_queue_that_still_grows_is_named_and_a_round_trip_that_does_not_is_not_raised() {
        let growing = |name: LoadName, phase: &mut Observed| {
            if name == LoadName::Upload {
                for (at, one) in (0..).zip(&mut phase.exchanges) {
                    one.server_arrival += at * 3 * MS;
                    one.server_departure += at * 3 * MS;
                    one.arrival += at * 3 * MS;
                }
            }
        };
        let report = changed([5, 5], [5, 5], false, growing);
        let words = "round trips still grew when the upload ended: a longer --seconds may give a worse grade";
        assert!(report.verdict.contains(words), "{}", report.verdict);
        let steady = changed([5, 5], [5, 5], false, |_, _| ());
        assert!(!steady.verdict.contains("still grew"), "{}", steady.verdict);
        assert!(
            steady.verdict.ends_with("the load does not raise the median round trip of 10 ms"),
            "{}",
            steady.verdict
        );
    }

    #[test]
    fn the_congestion_control_of_the_load_is_shown() {
        let of = |to: &str, from: &str| {
            changed([5, 5], [5, 5], false, |name, phase| {
                let [is_up, is_down] = name.directions();
                phase.up_congestion = is_up.then(|| to.to_owned());
                phase.server.down_congestion = is_down.then(|| from.to_owned());
            })
        };
        let (usual, other) = (of("cubic", "cubic"), of("cubic", "bbr"));
        assert_eq!(usual.load_words(), "4 TCP connections per direction (cubic)");
        assert_eq!(other.load_words(), "4 TCP connections per direction (cubic to, bbr from)");
        let remark = "the load uses bbr, because cubic is not available to the program";
        assert!(usual.to_string().contains(" (cubic), ms") && !usual.to_string().contains(remark), "{usual}");
        assert!(other.to_string().contains(remark), "{other}");
    }

    #[test]
    fn the_longest_wait_in_a_queue_is_not_its_median() {
        let growing = |name: LoadName, phase: &mut Observed| {
            if name == LoadName::Upload {
                let last = phase.exchanges.last_mut().expect("some");
                (last.server_arrival, last.server_departure) =
                    (last.server_arrival + 312 * MS, last.server_departure + 312 * MS);
                last.arrival += 312 * MS;
            }
        };
        let report = changed([82, 5], [5, 5], false, growing);
        assert!(report.advice[0].contains("(median 77 ms, up to 389 ms)"), "{:?}", report.advice);
    }
}
