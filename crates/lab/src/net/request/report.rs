//! The report of requests: the verdict first, then the parts on new and on kept connections.

use super::names::Query;
use super::once::Sample;
use super::target::Target;
use super::verdict::{PARTS, RequestCause, Verdict, kept_verdict, shares, verdict};
use crate::net::latency::Percentiles;
use crate::table::{Table, counted, readable};
use serde::Serialize;
use std::fmt;

/// A part of requests.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PartReport {
    /// The name.
    pub part: &'static str,
    /// Its share of the time of all requests, percent.
    pub share_percent: f64,
    /// Percentiles.
    #[serde(flatten)]
    pub times: Percentiles,
}

/// The report.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RequestReport {
    /// The verdict.
    pub verdict: Verdict,
    /// The URL.
    pub url: String,
    /// The address of the last connection.
    pub address: String,
    /// The status of the last response.
    pub status: u16,
    /// The length of its body as it was sent, bytes.
    pub bytes: u64,
    /// The version of TLS; `None` without TLS.
    pub tls: Option<&'static str>,
    /// The RTTs of TCP handshakes.
    pub round_trip: Option<Percentiles>,
    /// The number of requests on new connections, and on kept ones.
    pub requests: [usize; 2],
    /// The parts on new connections, and the whole.
    pub new_connection: Vec<PartReport>,
    /// The parts on kept connections, and the whole; empty if the server closes connections.
    pub kept_connection: Vec<PartReport>,
    /// The queries of the slowest look-up.
    pub slowest_lookup: Vec<Query>,
}

fn percentiles(times: impl Iterator<Item = f64>) -> Option<Percentiles> {
    Percentiles::of(times.map(|ms| ms * 1e6))
}

/// Returns the parts that occur, and the whole.
fn parts(samples: &[Sample]) -> Vec<PartReport> {
    let shares = shares(samples);
    let part = |at: usize| {
        let times = percentiles(samples.iter().map(|sample| sample.parts.list()[at]))?;
        let share_percent = 100.0 * shares[at];
        (times.max_ms > 0.0).then_some(PartReport { part: PARTS[at], share_percent, times })
    };
    let whole = percentiles(samples.iter().map(|sample| sample.parts.list().iter().sum()));
    let whole = whole.map(|times| PartReport { part: "whole", share_percent: 100.0, times });
    (0..PARTS.len()).filter_map(part).chain(whole).collect()
}

impl RequestReport {
    pub(super) fn of(target: &Target, new: Vec<Sample>, kept: Vec<Sample>) -> RequestReport {
        let mut verdict = verdict(&new);
        let (new_connection, kept_connection) = (parts(&new), parts(&kept));
        if let (Some(one), Some(other)) = (new_connection.last(), kept_connection.last()) {
            let (one, other) = (one.times.p50_ms, other.times.p50_ms);
            // In a queue, a kept connection waits, too, and its server looks slow.
            let of_kept = kept_verdict(&kept).filter(|_| verdict.cause != Some(RequestCause::Queue));
            match of_kept {
                Some(of_kept) if of_kept.cause != verdict.cause && other > one => verdict = of_kept,
                Some(of_kept) if of_kept.cause != verdict.cause => {
                    verdict.words += &format!("; {}", of_kept.words);
                    let advice = [verdict.advice, format!("for kept connections: {}", of_kept.advice)];
                    verdict.advice = advice.join("; ").trim_start_matches("; ").to_owned();
                }
                _ => {}
            }
            let (one, other) = (readable(one), readable(other));
            verdict.words +=
                &format!("; the median is {one} ms on a new connection, and {other} ms on a kept one");
        }
        let last = new.last().cloned().unwrap_or_default();
        let slowest = new.iter().max_by(|one, other| one.parts.dns.total_cmp(&other.parts.dns));
        RequestReport {
            verdict,
            url: target.url.clone(),
            address: last.address.map_or(String::new(), |address| address.to_string()),
            status: last.status,
            bytes: last.bytes,
            tls: last.tls_version,
            round_trip: percentiles(new.iter().filter_map(|sample| sample.rtt_ms)),
            requests: [new.len(), kept.len()],
            slowest_lookup: slowest.map(|sample| sample.queries.clone()).unwrap_or_default(),
            new_connection,
            kept_connection,
        }
    }
}

impl fmt::Display for RequestReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.verdict.words)?;
        let tls = self.tls.map_or(String::new(), |version| format!(", {version}"));
        let round_trip = self.round_trip.map_or("-".to_owned(), |times| readable(times.p50_ms));
        let title = format!(
            "{} ({}{tls}, round trip {round_trip} ms): status {}, {} bytes; ms",
            self.url,
            self.address,
            self.status,
            readable(self.bytes as f64)
        );
        let mut table =
            Table::new(title).text_column("connection").text_column("part").number_column("share, %");
        for head in ["min", "p50", "p95", "p99", "max"] {
            table = table.number_column(head);
        }
        for (connection, parts) in [("new", &self.new_connection), ("kept", &self.kept_connection)] {
            for part in parts {
                let words = [connection.to_owned(), part.part.to_owned(), readable(part.share_percent)];
                table.row(words.into_iter().chain(part.times.cells()));
            }
        }
        let [new, kept] = self.requests;
        let kept = match kept {
            0 => "the server closes connections after a response, so there are no kept ones".to_owned(),
            kept => format!("{kept} on kept ones"),
        };
        table.remark(format!("{} on new connections; {kept}", counted(new, "request")));
        write!(f, "{table}")?;
        if self.slowest_lookup.len() > 1 {
            writeln!(f)?;
            let mut table = Table::new("The slowest look-up").text_column("name server").text_column("name");
            table = table.text_column("result").number_column("ms");
            for query in &self.slowest_lookup {
                table.row([
                    query.server.clone(),
                    query.name.clone(),
                    query.result().to_owned(),
                    readable(query.ms),
                ]);
            }
            write!(f, "{table}")?;
        }
        if !self.verdict.advice.is_empty() {
            writeln!(f, "\nWhat to do: {}", self.verdict.advice)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::once::Parts;
    use super::*;

    #[test]
    fn a_queue_is_not_a_slow_server_of_kept_connections() {
        let target = Target {
            url: "http://h/".to_owned(),
            host: "h".to_owned(),
            port: 80,
            authority: "h".to_owned(),
            path: "/".to_owned(),
            tls: None,
        };
        let sample = |connect: f64, first_byte: f64| Sample {
            parts: Parts { connect, first_byte, ..Parts::default() },
            rtt_ms: Some(connect.max(21.0)),
            ..Sample::default()
        };
        let new = [21.0, 180.0, 240.0, 310.0].map(|rtt| sample(rtt, rtt));
        let kept = [500.0; 4].map(|ms| sample(0.0, ms));
        let report = RequestReport::of(&target, new.into(), kept.into());
        assert_eq!(report.verdict.cause, Some(RequestCause::Queue), "{report}");
        assert!(report.verdict.words.starts_with("packets wait in a queue"), "{report}");
        assert!(!report.verdict.words.contains("the server takes"), "{report}");
        assert!(report.to_string().contains("What to do: run `kiban lab latency HOST`"), "{report}");
    }
}
