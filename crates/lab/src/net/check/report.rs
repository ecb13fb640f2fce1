//! The report of a check: the verdict first, then the evidence.

use super::ecn::EcnReport;
use super::finding::Finding;
use super::mtu::MtuReport;
use super::reset::{MESSAGE_BYTES, ResetReport};
use crate::net::latency::Next;
use crate::table::{Table, counted};
use serde::Serialize;
use std::fmt;

/// The results of a check.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Check {
    /// The verdict in one sentence.
    pub verdict: String,
    /// The host as it was named.
    pub host: String,
    /// Its address.
    pub address: String,
    /// Its kernel.
    pub kernel: String,
    /// The faults.
    pub findings: Vec<Finding>,
    /// The path MTU to the host, and from it.
    pub mtu: [MtuReport; 2],
    /// The series of ECN codepoints.
    pub ecn: Vec<EcnReport>,
    /// The connection that was tested.
    pub reset: ResetReport,
}

impl Check {
    /// Sums up the checks; `command` returns the command that measures the host in another way.
    pub(super) fn of(
        (host, address, kernel): (String, String, String),
        (mtu, mut findings): ([MtuReport; 2], Vec<Finding>),
        (ecn, of_ecn): (Vec<EcnReport>, Vec<Finding>),
        (reset, of_resets): (ResetReport, Option<Finding>),
        command: Next<'_>,
    ) -> Check {
        findings.extend(of_ecn);
        findings.extend(of_resets);
        let mut causes: Vec<&str> = findings.iter().map(|finding| finding.cause.words()).collect();
        causes.dedup();
        let verdict = match &causes[..] {
            [] => format!(
                "no fault found in path MTU, ECN and connections; loss, reordering and delay were not measured: \
                 `{}` does that",
                command("udp")
            ),
            causes => format!("{} found: {}", counted(causes.len(), "fault"), causes.join(", ")),
        };
        Check { verdict, host, address, kernel, findings, mtu, ecn, reset }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.verdict)?;
        for finding in &self.findings {
            writeln!(
                f,
                "{}: {}\n  what to do: {}\n",
                finding.cause.words(),
                finding.because,
                finding.advice
            )?;
        }
        let title = format!("{} ({}, {})", self.host, self.address, self.kernel);
        let mut table =
            Table::new(title).text_column("check").text_column("to the host").text_column("from the host");
        let mtu = |report: &MtuReport| {
            let reported = match (report.beyond, report.known_bytes) {
                (Some((bytes, _)), Some(known)) if known < bytes => ", reported by ICMP",
                (Some(_), _) => ", not reported",
                (None, _) => "",
            };
            format!("{} bytes{reported}", report.mtu_bytes)
        };
        table.row(["path MTU".to_owned(), mtu(&self.mtu[0]), mtu(&self.mtu[1])]);
        let mut seen = Vec::new();
        for report in &self.ecn {
            if seen.contains(&report.sent) {
                continue;
            }
            seen.push(report.sent);
            let arrived = |direction: &str| {
                let same = |one: &&EcnReport| one.direction == direction && one.sent == report.sent;
                self.ecn.iter().find(same).map_or("-".to_owned(), |report| {
                    let arrived: Vec<String> =
                        report.arrived.iter().map(|(name, count)| format!("{count} {name}")).collect();
                    format!(
                        "{} of {}",
                        if arrived.is_empty() { "0".to_owned() } else { arrived.join(", ") },
                        report.count
                    )
                })
            };
            table.row([
                format!("{} arrived as", report.sent),
                arrived("to the host"),
                arrived("from the host"),
            ]);
        }
        let connection = match (self.reset.failed, &self.reset.error) {
            (Some(part), Some(error)) => format!("failed ({part}): {error}"),
            _ => format!(
                "{} bytes in messages of {MESSAGE_BYTES}, a pause of {} s",
                self.reset.bytes, self.reset.idle_seconds
            ),
        };
        table.row(["connection", connection.as_str(), ""]);
        if let Some(dscp) =
            self.ecn.iter().find_map(|report| report.dscp.map(|dscp| (report.direction, dscp)))
        {
            table.remark(format!(
                "the DSCP is changed {} (AF41 arrives as {}), which a network may do",
                dscp.0, dscp.1
            ));
        }
        write!(f, "{table}")
    }
}
