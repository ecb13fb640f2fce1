//! Whether ECN marks survive the path (RFC 3168), and the DSCP beside them.
//!
//! Method    series of [`COUNT`] probes with each codepoint; the server says with which type of service they
//!           arrived. Replies with ECT(0) test the way back.
//! Bleached  every probe of a series with ECT or CE arrived as Not-ECT, and at least [`MOST`] arrived.
//! Dropped   none of a series arrived, while all without a mark did, before and after it.
//! Innocent  a router that is congested changes ECT to CE, which is what ECN is for. A changed DSCP is
//!           reported, but is no fault: networks may rewrite it (RFC 2474 §2).

use super::finding::{Cause, Finding};
use super::probe::probe;
use crate::engine::Failure;
use crate::net::latency::Exchange;
use crate::remote::client::Client;
use crate::remote::probes::PROBE_OCTETS;
use kiban_os::Clock;
use serde::Serialize;
use std::time::Duration;

/// The number of probes of a series, and how many of them must arrive to judge it.
const COUNT: usize = 6;
const MOST: usize = COUNT - 1;
/// The DSCP of all probes, in the upper six bits: AF41 (RFC 2597).
const DSCP: u8 = 0x88;
/// The bits of the type of service that are ECN.
const ECN: u8 = 3;

/// The codepoints: their names, and the values of the two bits.
const CODEPOINTS: [(&str, u8); 4] = [("Not-ECT", 0), ("ECT(1)", 1), ("ECT(0)", 2), ("CE", 3)];

/// A series of probes or replies with one codepoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct EcnReport {
    /// The direction.
    pub direction: &'static str,
    /// The codepoint that was sent.
    pub sent: &'static str,
    /// The number that was sent.
    pub count: usize,
    /// The codepoints that arrived, and how often.
    pub arrived: Vec<(&'static str, usize)>,
    /// The DSCP that arrived, if the network changed it.
    pub dscp: Option<u8>,
}

fn name(tos: u8) -> &'static str {
    CODEPOINTS.iter().find(|(_, bits)| *bits == tos & ECN).expect("two bits have four values").0
}

impl EcnReport {
    fn of(direction: &'static str, sent: &'static str, arrived: &[u8]) -> EcnReport {
        let of = |name: &&'static str| arrived.iter().filter(|tos| self::name(**tos) == *name).count();
        let counts = CODEPOINTS.map(|(name, _)| (name, of(&name)));
        let changed = arrived.iter().find(|tos| **tos & !ECN != DSCP).map(|tos| tos >> 2);
        EcnReport {
            direction,
            sent,
            count: COUNT,
            arrived: counts.into_iter().filter(|(_, count)| *count > 0).collect(),
            dscp: changed,
        }
    }

    fn total(&self) -> usize {
        self.arrived.iter().map(|(_, count)| count).sum()
    }
}

/// Returns the findings of the series of one direction. The first and the last have no mark.
fn findings(series: &[EcnReport]) -> Vec<Finding> {
    let is_clear = |report: &&EcnReport| report.sent == "Not-ECT";
    let unmarked: Vec<&EcnReport> = series.iter().filter(is_clear).collect();
    let all_unmarked = unmarked.iter().all(|report| report.total() == report.count) && !unmarked.is_empty();
    let judge = |report: &&EcnReport| {
        let EcnReport { direction, sent, count, .. } = **report;
        let total = report.total();
        if total == 0 && all_unmarked {
            return Some(Finding {
                cause: Cause::EcnDropped,
                direction,
                because: format!(
                    "packets with {sent} {direction} are dropped: 0 of {count} arrived, while all without a mark \
                     arrived before and after them"
                ),
                advice: "find the firewall that drops packets with ECN bits; until then, turn ECN off at the \
                         hosts (sysctl net.ipv4.tcp_ecn=0)",
            });
        }
        let is_bleached = total >= MOST && report.arrived == [("Not-ECT", total)];
        is_bleached.then(|| Finding {
            cause: Cause::EcnBleached,
            direction,
            because: format!("{sent} is removed {direction}: {total} of {total} packets arrived as Not-ECT"),
            advice: "find the device that clears the ECN bits, often together with the DSCP (a rule that sets the \
                     whole TOS octet); until then, routers cannot signal congestion without dropping",
        })
    };
    series.iter().filter(|report| !is_clear(report)).filter_map(|report| judge(&report)).collect()
}

/// Tests the codepoints in both directions.
pub(super) fn check(
    client: &mut Client,
    clock: Clock,
    timeout: Duration,
) -> Result<(Vec<EcnReport>, Vec<Finding>), Failure> {
    let tos_of =
        |replies: &[Exchange], way: usize| -> Vec<u8> { replies.iter().map(|one| one.tos[way]).collect() };
    let (mut reports, _) = probe(client, clock, PROBE_OCTETS, Some(0), |prober, socket| {
        let mut reports = Vec::new();
        for (sent, bits) in CODEPOINTS.iter().chain(&CODEPOINTS[..1]) {
            socket.set_tos(DSCP | bits).map_err(|error| super::here(&error))?;
            let replies = prober.ask(COUNT, PROBE_OCTETS, true, timeout);
            reports.push(EcnReport::of("to the host", sent, &tos_of(&replies, 0)));
        }
        Ok(reports)
    })?;
    let mut found = findings(&reports);
    let mut back = Vec::new();
    for (sent, bits) in [CODEPOINTS[0], CODEPOINTS[2], CODEPOINTS[0]] {
        let (report, _) = probe(client, clock, PROBE_OCTETS, Some(DSCP | bits), |prober, _| {
            // Some replies arrive before the series, with the same type of service; only the series counts.
            let replies = prober.ask(COUNT, PROBE_OCTETS, true, timeout);
            Ok(EcnReport::of("from the host", sent, &tos_of(&replies, 1)))
        })?;
        back.push(report);
    }
    found.extend(findings(&back));
    reports.extend(back);
    Ok((reports, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(arrived: [&[u8]; 3]) -> Vec<EcnReport> {
        let names = ["Not-ECT", "ECT(0)", "Not-ECT"];
        names.iter().zip(arrived).map(|(sent, arrived)| EcnReport::of("to the host", sent, arrived)).collect()
    }

    #[test]
    fn marks_must_vanish_from_every_packet_to_be_called_bleached() {
        let unmarked = &[DSCP; COUNT][..];
        let causes = |arrived: [&[u8]; 3]| -> Vec<Cause> {
            findings(&series(arrived)).iter().map(|finding| finding.cause).collect()
        };
        let [ect, ce] = [DSCP | 2, DSCP | 3];
        for (what, marked, expected) in [
            ("clean", &[ect; COUNT][..], vec![]),
            ("congested", &[ect, ce, ce, ect, ce, ect], vec![]),
            ("bleached", &[DSCP; COUNT], vec![Cause::EcnBleached]),
            ("the whole octet is cleared", &[0; COUNT], vec![Cause::EcnBleached]),
            ("another DSCP", &[2; COUNT], vec![]),
            ("some are bleached", &[DSCP, DSCP, DSCP, DSCP, DSCP, ect], vec![]),
            ("losses", &[DSCP; 2], vec![]),
            ("dropped", &[], vec![Cause::EcnDropped]),
        ] {
            assert_eq!(causes([unmarked, marked, unmarked]), expected, "{what}");
        }
        // A path that loses packets without a mark, too, is not one that drops marks.
        assert_eq!(causes([&[DSCP; 3], &[], unmarked]), vec![]);
        assert_eq!(series([unmarked, &[2; COUNT], unmarked])[1].dscp, Some(0));
    }
}
