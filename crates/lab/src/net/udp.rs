//! Datagrams in both directions: one-way delays, jitter, losses and reordering.
//!
//! Probes    the client sends datagrams at an interval, and the server returns each with the same length. All
//!           numbers and times are in the reply, so each direction has figures of its own.
//! Clocks    the offset between the clocks is estimated and shown with its uncertainty (`latency/clocks.rs`).
//!           One-way delays are uncertain by as much; jitter and differences between percentiles are not.
//! Next      the report ends with the command that finds the cause of what was found.
//! Limits    both directions have the same rate. A datagram longer than the path MTU is lost, because it is
//!           not fragmented.

use super::latency::{Clocks, Fate, Next, Observed, Percentiles, Phase, run_phase, trace_command};
use crate::engine::Failure;
use crate::remote::client::Client;
use crate::remote::probes::{PROBE_OCTETS, PROBE_OCTETS_MAX, PROBES_MAX, date_of};
use crate::table::{Table, counted, readable};
use kiban_os::Clock;
use serde::Serialize;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The lengths that a datagram may have.
pub const SIZES: RangeInclusive<usize> = PROBE_OCTETS..=PROBE_OCTETS_MAX;

/// One-way delays vary if their 95th percentile exceeds the shortest by this time, ms: as much as the buffers
/// of calls smooth out (ITU-T Y.1541 allows 50 ms for the 99.9th).
const VARIATION_MIN: f64 = 30.0;

/// A request for a measurement of datagrams.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct UdpRequest {
    /// Bytes of each datagram.
    pub bytes: usize,
    /// The interval between two datagrams.
    pub interval: Duration,
    /// How long to send.
    pub length: Duration,
}

/// The relation of the hosts' clocks.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct ClockReport {
    /// How far the other host's date is ahead of this host's, ms.
    pub offset_ms: f64,
    /// By how much the offset and the one-way delays may be wrong, ms.
    pub uncertainty_ms: f64,
    /// How much faster the other host's clock runs, parts per million. It was removed from the delays. Zero
    /// if no drift was detected.
    pub drift_ppm: f64,
}

/// The figures of datagrams to a host and back.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct UdpReport {
    /// The verdict in one sentence.
    pub verdict: String,
    /// The command that finds the cause, and what it shows; `None` if nothing was found.
    pub next: Option<String>,
    /// The host as it was named.
    pub host: String,
    /// Its address.
    pub address: String,
    /// Its kernel.
    pub kernel: String,
    /// Bytes of each datagram.
    pub bytes: usize,
    /// The interval between two datagrams, ms.
    pub interval_ms: f64,
    /// How long they were sent, s.
    pub seconds: f64,
    /// The datagrams to the host.
    pub to_host: Fate,
    /// The datagrams from the host.
    pub from_host: Fate,
    /// Round trips, without the time that the host took.
    pub round_trip: Percentiles,
    /// The clocks.
    pub clocks: ClockReport,
    /// Datagrams to which the host's rate limit did not allow a reply.
    pub refused: u64,
}

/// Measures datagrams to a server, `host`, and back. The command that comes next is one of `command`.
///
/// # Errors
/// Returns [`Failure`] with the cause.
pub fn measure(
    client: &mut Client,
    host: &str,
    request: &UdpRequest,
    command: Next<'_>,
) -> Result<UdpReport, Failure> {
    let probes = request.length.as_secs_f64() / request.interval.as_secs_f64().max(1e-9);
    // A few probes more prove that the port is the server's.
    if probes > f64::from(PROBES_MAX) - 1000.0 {
        return Err(Failure::Impossible(format!(
            "{probes:.0} datagrams are too many: choose a longer interval, or a shorter time"
        )));
    }
    let clock = Clock::new();
    let phase = Phase {
        connections: [0, 0],
        length: request.length,
        interval: request.interval,
        octets: request.bytes,
        settled: None,
    };
    let observed = run_phase(client, clock, &phase, None)?;
    let (peer, welcome) = (client.peer(), client.welcome());
    let clocks = Clocks::of(&observed.exchanges);
    let round_trip = Percentiles::of(observed.in_window().map(|one| one.round_trip() as f64));
    let (Some(clocks), Some(round_trip)) = (clocks, round_trip) else {
        return Err(Failure::Lost(format!(
            "no datagram of {} bytes returned: is that more than the path MTU?",
            request.bytes
        )));
    };
    let [to_host, from_host] = observed.fates(&clocks);
    Ok(UdpReport {
        verdict: verdict(&to_host, &from_host),
        next: next([&to_host, &from_host], command),
        host: host.to_owned(),
        address: peer.ip().to_canonical().to_string(),
        kernel: welcome.kernel.clone(),
        bytes: request.bytes,
        interval_ms: request.interval.as_secs_f64() * 1e3,
        seconds: request.length.as_secs_f64(),
        to_host,
        from_host,
        round_trip,
        clocks: dates(&clocks, &observed, date_of(clock)),
        refused: observed.server.refused,
    })
}

/// Returns the relation of the dates, from that of the clocks.
fn dates(clocks: &Clocks, observed: &Observed, date: u64) -> ClockReport {
    let ahead = observed.server.date.wrapping_sub(date) as i64;
    ClockReport {
        offset_ms: (clocks.offset + ahead as f64) * 1e-6,
        uncertainty_ms: clocks.uncertainty * 1e-6,
        drift_ppm: clocks.drift * 1e6,
    }
}

fn verdict(to_host: &Fate, from_host: &Fate) -> String {
    let directions = [("to the host", to_host), ("from the host", from_host)];
    let facts = directions.iter().filter_map(|(way, fate)| {
        let lost = (fate.lost > 0).then(|| format!("{} % lost", readable(fate.lost_percent)));
        let reordered = (fate.reordered > 0).then(|| format!("{} reordered", fate.reordered));
        let copies = (fate.duplicates > 0).then(|| format!("{} duplicated", fate.duplicates));
        let varies = variation(fate).map(|ms| format!("delays vary by {} ms (p95 - min)", readable(ms)));
        let facts: Vec<String> = [lost, reordered, copies, varies].into_iter().flatten().collect();
        (!facts.is_empty()).then(|| format!("{way} {}", facts.join(", ")))
    });
    let facts: Vec<String> = facts.collect();
    if facts.is_empty() {
        "no loss, no reordering, no duplicates in either direction".to_owned()
    } else {
        facts.join("; ")
    }
}

/// Returns by how much the delays of a direction vary, ms, if that is a finding.
fn variation(fate: &Fate) -> Option<f64> {
    fate.one_way.map(|delays| delays.p95_ms - delays.min_ms).filter(|ms| *ms >= VARIATION_MIN)
}

/// Returns the command that finds the cause of what was found, and what it shows.
fn next(fates: [&Fate; 2], command: Next<'_>) -> Option<String> {
    let has = |is_found: fn(&Fate) -> bool| fates.iter().position(|fate| is_found(fate));
    if has(|fate| fate.lost > 0 || variation(fate).is_some()).is_some() {
        return Some(format!(
            "`{}` shows whether that happens on the idle path, too, or only beside a load",
            command("latency")
        ));
    }
    has(|fate| fate.reordered > 0).map(|way| {
        format!(
            "`{}`, then `kiban lab explain` of the file in captures, shows whether TCP retransmits because of the \
             reordering",
            trace_command(way, command)
        )
    })
}

impl fmt::Display for UdpReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.verdict)?;
        let title = format!(
            "{} ({}, {}): {} bytes every {} ms for {} s; delays in ms",
            self.host,
            self.address,
            self.kernel,
            self.bytes,
            readable(self.interval_ms),
            readable(self.seconds)
        );
        let mut table = Table::new(title).text_column("direction");
        let heads =
            ["sent", "lost", "%", "reordered", "duplicates", "min", "p50", "p95", "p99", "max", "jitter"];
        for head in heads {
            table = table.number_column(head);
        }
        let none = || std::array::from_fn(|_| "-".to_owned());
        for (way, fate) in [("to the host", &self.to_host), ("from the host", &self.from_host)] {
            let counts = [
                fate.sent.to_string(),
                fate.lost.to_string(),
                readable(fate.lost_percent),
                fate.reordered.to_string(),
                fate.duplicates.to_string(),
            ];
            let delays = fate.one_way.map_or_else(none, |delays| delays.cells());
            let jitter = fate.jitter_ms.map_or("-".to_owned(), readable);
            table.row([way.to_owned()].into_iter().chain(counts).chain(delays).chain([jitter]));
        }
        let empty = std::iter::repeat_n(String::new(), 5);
        let round_trip = self.round_trip.cells();
        table.row(["round trip".to_owned()].into_iter().chain(empty).chain(round_trip));
        let ClockReport { offset_ms, uncertainty_ms, drift_ppm } = self.clocks;
        table.remark(format!(
            "clocks: the host's is {} ms {} this one, ± {} ms; one-way delays are uncertain by as much, because \
             the shortest delays of both directions are assumed to be equal",
            readable(offset_ms.abs()),
            if offset_ms < 0.0 { "behind" } else { "ahead of" },
            readable(uncertainty_ms),
        ));
        if drift_ppm != 0.0 {
            table.remark(format!("the host's clock drifts by {drift_ppm:+.2} ppm, which was removed"));
        }
        let dropped = self.to_host.dropped_by_host + self.from_host.dropped_by_host;
        if dropped > 0 {
            let dropped = counted(dropped, "datagram");
            table.remark(format!(
                "{dropped} reached a host, which dropped them for lack of buffers: not in 'lost'"
            ));
        }
        if self.refused > 0 {
            let refused = counted(self.refused, "datagram");
            table.remark(format!("{refused} had no reply because of the server's --rate: not in 'lost'"));
        }
        write!(f, "{table}")?;
        self.next.iter().try_for_each(|next| writeln!(f, "\nnext: {next}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_names_the_direction_of_a_fault() {
        let clean = Fate { sent: 100, ..Fate::default() };
        assert_eq!(verdict(&clean, &clean), "no loss, no reordering, no duplicates in either direction");
        let lossy = Fate { lost: 5, lost_percent: 5.0, reordered: 2, ..clean.clone() };
        assert_eq!(verdict(&lossy, &clean), "to the host 5 % lost, 2 reordered");
        let copied = Fate { duplicates: 1, ..clean.clone() };
        assert_eq!(verdict(&lossy, &copied), "to the host 5 % lost, 2 reordered; from the host 1 duplicated");
        let slow = |p95_ms| Fate {
            one_way: Some(Percentiles { min_ms: 2.0, p95_ms, ..Percentiles::default() }),
            ..clean.clone()
        };
        assert_eq!(verdict(&clean, &slow(92.0)), "from the host delays vary by 90 ms (p95 - min)");
        assert!(verdict(&clean, &slow(20.0)).starts_with("no loss"));
        let next = |to: &Fate, from: &Fate| next([to, from], &|rest| format!("kiban lab {rest} host"));
        for found in [&lossy, &slow(92.0)] {
            let words = next(&clean, found).expect("a command");
            assert!(words.starts_with("`kiban lab latency host` shows"), "{words}");
        }
        let reordered = next(&clean, &Fate { reordered: 3, ..clean.clone() }).expect("a command");
        assert!(reordered.starts_with("`kiban lab trace --pattern stream-back "), "{reordered}");
        assert_eq!((next(&clean, &clean), next(&copied, &slow(20.0))), (None, None));
        // What the host itself dropped is not a fault of the network.
        assert!(verdict(&Fate { dropped_by_host: 9, ..clean.clone() }, &clean).starts_with("no loss"));
    }
}
