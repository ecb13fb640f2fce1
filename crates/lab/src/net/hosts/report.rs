//! The report of several hosts: the verdict first, then a row for each host.

use super::finding::{HostCause, HostFinding, findings, rates, row};
use super::together::Together;
use crate::net::latency::{Latency, LoadName};
use crate::table::{Table, counted, fold, readable};
use serde::Serialize;
use std::fmt;

/// The width of the lines below the table.
const LINE_WIDTH: usize = 80;
/// The name of the measurement of all hosts at once.
pub(super) const ALL_AT_ONCE: &str = "all at once";

/// The results of a host.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct HostReport {
    /// The name in the plan.
    pub name: String,
    /// What is wrong with its path; empty if nothing is.
    pub findings: Vec<HostFinding>,
    /// The throughput alone, to the host and from it, Mbit/s.
    pub mbps: [f64; 2],
    /// Latency of the path, idle and loaded.
    pub latency: Latency,
}

impl HostReport {
    /// Returns the verdict in a few words.
    pub fn verdict(&self) -> String {
        let mut causes: Vec<&str> = self.findings.iter().map(|finding| finding.cause.words()).collect();
        causes.dedup();
        if causes.is_empty() { "no fault found".to_owned() } else { causes.join(", ") }
    }
}

/// A host, or the measurement of all at once, without results.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct NotMeasured {
    /// The name in the plan.
    pub name: String,
    /// Why, and what to do.
    pub why: String,
}

/// The results of several hosts.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Hosts {
    /// The verdict in one sentence.
    pub verdict: String,
    /// The hosts, in the order of the plan.
    pub hosts: Vec<HostReport>,
    /// All hosts at once; `None` if that was not measured.
    pub together: Option<Together>,
    /// What could not be measured.
    pub not_measured: Vec<NotMeasured>,
    /// Whether the user ended the measurement.
    pub interrupted: bool,
}

impl Hosts {
    /// Compares hosts that were measured alone. `command` returns the command line that measures a host with
    /// a subcommand of `kiban lab` and its options.
    pub fn of(
        measured: Vec<(String, Latency)>,
        not_measured: Vec<NotMeasured>,
        command: &dyn Fn(&str, &str) -> String,
    ) -> Hosts {
        let best = |way: usize| {
            // Of several, `max_by` returns the last.
            let all = measured.iter().rev().map(|(name, latency)| (name.clone(), rates(latency)[way]));
            all.max_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or_default()
        };
        let best = [best(0), best(1)];
        let hosts = measured.into_iter().map(|(name, latency)| HostReport {
            findings: findings(&name, &latency, best.each_ref(), &|rest| command(&name, rest)),
            mbps: rates(&latency),
            name,
            latency,
        });
        let mut hosts = Hosts {
            verdict: String::new(),
            hosts: hosts.collect(),
            together: None,
            not_measured,
            interrupted: false,
        };
        hosts.verdict = hosts.summary().join("; ");
        hosts
    }

    /// Adds the measurement of all hosts at once, or why there is none.
    pub fn add_together(&mut self, together: Result<Together, String>) {
        match together {
            Ok(together) => {
                self.add_shared(&together);
                self.together = Some(together);
            }
            Err(why) => self.not_measured.push(NotMeasured { name: ALL_AT_ONCE.to_owned(), why }),
        }
        self.verdict = self.summary().join("; ");
    }

    /// Adds to the advice for slow hosts that they share a bottleneck with others.
    fn add_shared(&mut self, together: &Together) {
        let names: Vec<String> = self.hosts.iter().map(|host| host.name.clone()).collect();
        for (number, host) in self.hosts.iter_mut().enumerate() {
            let shared: Vec<String> =
                together.directions.iter().filter_map(|way| way.shared_with(number, &names)).collect();
            if shared.is_empty() {
                continue;
            }
            for finding in host.findings.iter_mut().filter(|finding| finding.cause == HostCause::Slow) {
                finding.advice += &format!(
                    "; its path shares a bottleneck with {}: look at the link that they have in common",
                    shared.join(" and with ")
                );
            }
        }
    }

    /// Says that the user ended the measurement before these were measured.
    pub fn interrupt(&mut self, rest: impl IntoIterator<Item = String>) {
        let why = || "the measurement was interrupted before".to_owned();
        self.not_measured.extend(rest.into_iter().map(|name| NotMeasured { name, why: why() }));
        self.interrupted = true;
        self.verdict = self.summary().join("; ");
    }

    /// Returns whether everything that was asked for has results.
    pub fn is_whole(&self) -> bool {
        self.not_measured.is_empty()
    }

    /// Returns the figures of a host in the order of the columns.
    pub(super) fn figures(&self, number: usize) -> impl Iterator<Item = f64> {
        let host = &self.hosts[number];
        let round_trip = |load| row(&host.latency, load).round_trip.p50_ms;
        let loaded = round_trip(LoadName::Upload).max(round_trip(LoadName::Download));
        let lost = row(&host.latency, LoadName::Idle).probes.iter().map(|fate| fate.lost_percent);
        let directions = self.together.iter().flat_map(|all| &all.directions);
        let at_once = directions.map(move |way| way.mbps[number]);
        [round_trip(LoadName::Idle), loaded].into_iter().chain(lost).chain(host.mbps).chain(at_once)
    }

    /// Returns the names of the hosts.
    fn names(&self) -> Vec<&str> {
        self.hosts.iter().map(|host| host.name.as_str()).collect()
    }

    /// Returns what to do about what all at once has shown.
    pub(super) fn advice_at_once(&self) -> Option<String> {
        self.together.as_ref()?.advice(&self.names())
    }

    /// Returns the parts of the verdict.
    fn summary(&self) -> Vec<String> {
        let faulty: Vec<&HostReport> = self.hosts.iter().filter(|host| !host.findings.is_empty()).collect();
        let count = counted(self.hosts.len(), "host");
        let names = |of: &mut dyn Iterator<Item = &NotMeasured>| {
            of.map(|one| one.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let failed = || self.not_measured.iter().filter(|one| one.name != ALL_AT_ONCE);
        // Most hosts failed, which the user has to know first.
        let mostly_failed =
            failed().count() > self.hosts.len() && !self.hosts.is_empty() && !self.interrupted;
        let first = match &faulty[..] {
            [] if self.hosts.is_empty() => "no host was measured".to_owned(),
            [] => format!("no fault found on the path to {count}"),
            faulty => {
                let each: Vec<String> =
                    faulty.iter().map(|host| format!("{} ({})", host.name, host.verdict())).collect();
                let need = if faulty.len() == 1 { "needs" } else { "need" };
                format!("{} of {count} {need} attention: {}", faulty.len(), each.join(", "))
            }
        };
        let mut words = Vec::new();
        if mostly_failed {
            let (count, all) = (failed().count(), failed().count() + self.hosts.len());
            words.push(format!("{count} of {all} hosts could not be measured: {}", names(&mut failed())));
        }
        words.push(if self.interrupted { format!("unfinished: {first}") } else { first });
        if let Some(together) = &self.together {
            words.extend(together.words(&self.names()));
        }
        let mut rest =
            self.not_measured.iter().filter(|one| !mostly_failed || one.name == ALL_AT_ONCE).peekable();
        if rest.peek().is_some() {
            words.push(format!("not measured: {}", names(&mut rest)));
        }
        words
    }
}

impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.summary().join("\n"))?;
        let mut table = Table::new("").text_column("host").text_column("verdict").text_column("grade");
        let mut heads = vec!["RTT, ms", "loaded", "lost % to", "from", "Mbit/s to", "from"];
        if self.together.is_some() {
            heads.extend(["at once to", "from"]);
        }
        for head in heads {
            table = table.number_column(head);
        }
        for (number, host) in self.hosts.iter().enumerate() {
            let words = [host.name.clone(), host.verdict(), host.latency.grade_words()];
            table.row(words.into_iter().chain(self.figures(number).map(readable)));
        }
        if !table.is_empty() {
            let legend = "RTT: median of probes on the idle path, and loaded in the worse direction; lost: on the \
                          idle path; Mbit/s: to the host and from it, each alone";
            fold(legend, LINE_WIDTH).into_iter().for_each(|line| table.remark(line));
            write!(f, "{table}")?;
        }
        for host in &self.hosts {
            for finding in &host.findings {
                write!(f, "\n{}: {}: {}\n", host.name, finding.cause.words(), finding.because)?;
                if !finding.advice.is_empty() {
                    writeln!(f, "  what to do: {}", finding.advice)?;
                }
            }
        }
        if let Some(advice) = self.advice_at_once() {
            write!(f, "\n{ALL_AT_ONCE}: {advice}\n")?;
        }
        self.not_measured.iter().try_for_each(|one| write!(f, "\n{}: not measured: {}\n", one.name, one.why))
    }
}

#[cfg(test)]
mod tests {
    use super::super::together::{Direction, Group, Sharing};
    use super::*;
    use crate::net::latency::{Fate, Grade, LoadRow, Percentiles, Segments};

    /// A host with these rates to it and from it, and this many lost probes of 1000 on the idle path to it
    /// and beside an upload.
    fn latency(mbps: [f64; 2], lost: [u64; 2], grade: Grade, rate_limited: bool) -> Latency {
        let fate = |lost: u64| Fate { sent: 1000, lost, lost_percent: lost as f64 / 10.0, ..Fate::default() };
        let row = |load: LoadName| LoadRow {
            load,
            grade: (load != LoadName::Idle).then_some(grade),
            round_trip: Percentiles { p50_ms: 2.0, ..Percentiles::default() },
            increase_ms: 0.0,
            queue_ms: [0.0; 2],
            throughput_mbps: mbps,
            segments: [None; 2],
            limits: [None; 2],
            probes: [fate(if load == LoadName::Idle { lost[0] } else { lost[1] }), fate(0)],
            rate_limited,
            series: Vec::new(),
        };
        Latency {
            congestion: [None, None],
            verdict: "graded".to_owned(),
            grade: Some(grade),
            advice: Vec::new(),
            host: "h".to_owned(),
            address: "192.0.2.1".to_owned(),
            kernel: "Linux".to_owned(),
            connections: 4,
            seconds: 2.0,
            loads: LoadName::ALL.map(row).into(),
        }
    }

    fn command(name: &str, rest: &str) -> String {
        format!("kiban lab hosts plan.toml --host {name} -- {rest}")
    }

    fn named(hosts: &[(&str, Latency)]) -> Hosts {
        Hosts::of(
            hosts.iter().map(|(name, latency)| ((*name).to_owned(), latency.clone())).collect(),
            Vec::new(),
            &command,
        )
    }

    fn causes(hosts: &Hosts) -> Vec<(&str, Vec<HostCause>)> {
        let of = |host: &HostReport| host.findings.iter().map(|finding| finding.cause).collect();
        hosts.hosts.iter().map(|host| (host.name.as_str(), of(host))).collect()
    }

    #[test]
    fn each_host_has_the_finding_of_its_own_path() {
        let hosts = named(&[
            ("good", latency([94.0, 93.0], [0, 9], Grade::A, false)),
            ("lossy", latency([50.0, 93.0], [7, 9], Grade::A, false)),
            ("slow", latency([94.0, 9.0], [4, 0], Grade::A, false)),
            ("deep", latency([94.0, 93.0], [0, 0], Grade::D, false)),
            ("limited", latency([5.0, 5.0], [0, 0], Grade::A, true)),
        ]);
        assert_eq!(
            causes(&hosts),
            [
                ("good", vec![]),
                ("lossy", vec![HostCause::Loss]),
                ("slow", vec![HostCause::Slow]),
                ("deep", vec![HostCause::Queue]),
                ("limited", vec![HostCause::ServerLimit]),
            ]
        );
        assert!(hosts.verdict.starts_with("4 of 5 hosts need attention: lossy (loses packets), slow (slow)"));
        let text = hosts.to_string();
        assert!(text.starts_with(&format!("{}\n", hosts.verdict)), "{text}");
        assert!(text.contains("slow: slow: 9 Mbit/s from the host; good has 93"), "{text}");
        let page = hosts.html("kiban lab hosts plan.toml");
        assert!(page.contains("need attention") && page.contains("loses packets"));
    }

    #[test]
    fn a_path_that_a_host_s_buffer_left_unfilled_is_not_called_stalled_or_good() {
        let mut unfilled = latency([94.0, 93.0], [0, 0], Grade::A, false);
        unfilled.grade = None;
        unfilled.loads[1].grade = None;
        assert_eq!(causes(&named(&[("one", unfilled.clone())])), [("one", vec![HostCause::NotFilled])]);
        unfilled.loads[1].throughput_mbps[0] = 0.0;
        let stalled = named(&[("one", unfilled)]);
        assert!(causes(&stalled)[0].1.contains(&HostCause::Stalled));
    }

    #[test]
    fn a_path_on_which_too_few_probes_were_sent_is_not_called_good() {
        let few = |sent, lost| {
            let mut latency = latency([94.0, 93.0], [0, 0], Grade::A, false);
            for fate in &mut latency.loads[0].probes {
                *fate =
                    Fate { sent, lost, lost_percent: 100.0 * lost as f64 / sent as f64, ..Fate::default() };
            }
            latency
        };
        let hosts = named(&[("few", few(50, 1)), ("lossy", few(50, 3)), ("enough", few(300, 2))]);
        assert_eq!(
            causes(&hosts),
            [
                ("few", vec![HostCause::LossNotMeasured]),
                ("lossy", vec![HostCause::Loss; 2]),
                ("enough", vec![])
            ]
        );
        let because = &hosts.hosts[0].findings[0].because;
        assert!(
            because.starts_with("only 50 probes") && because.contains("a loss below 12.6 %"),
            "{because}"
        );
        assert_eq!(hosts.html("x").matches("class=\"badge good\"").count(), 1, "only `enough` is green");
    }

    #[test]
    fn the_advice_for_a_slow_path_is_that_of_its_evidence() {
        let advice = |queue_ms: f64, retransmits: u64, lost: u64| {
            let mut slow = latency([94.0, 9.0], [lost, 0], Grade::A, false);
            slow.loads[2].queue_ms[1] = queue_ms;
            slow.loads[2].segments[1] = Some(Segments { sent: 1000, retransmits });
            let hosts = named(&[("good", latency([94.0, 93.0], [0, 0], Grade::A, false)), ("n2", slow)]);
            let slow = hosts.hosts[1].findings.iter().find(|finding| finding.cause == HostCause::Slow);
            slow.expect("it is slow").advice.clone()
        };
        let full = advice(40.0, 240, 0);
        assert!(full.starts_with("a link or shaper of about 9 Mbit/s is full: packets wait 40 ms"), "{full}");
        let policed = advice(0.2, 50, 0);
        assert!(policed.starts_with("5 % of the segments are retransmitted"), "{policed}");
        let trace = "`kiban lab hosts plan.toml --host n2 -- trace --pattern stream-back --seconds 2 --pcap captures`";
        assert!(policed.contains(trace), "{policed}");
        let idle = advice(0.2, 0, 0);
        assert!(
            idle.contains("--host n2 -- sweep --pattern stream --both-directions` says what limits"),
            "{idle}"
        );
        assert!(advice(40.0, 240, 20).starts_with("find the cause of the losses first"));
    }

    #[test]
    fn hosts_at_once_and_hosts_without_results_are_in_the_verdict() {
        let good = || latency([94.0, 93.0], [0, 0], Grade::A, false);
        let failed = NotMeasured { name: "gone".to_owned(), why: "ssh failed".to_owned() };
        let measured = vec![("one".to_owned(), good()), ("two".to_owned(), good())];
        let mut hosts = Hosts::of(measured, vec![failed], &command);
        let way = |name, alone| Direction::of(name, &[alone; 2], vec![(45.0, Some(1.0)); 2], false);
        hosts.add_together(Ok(Together { directions: [way("to", 94.0), way("from", 46.0)] }));
        assert_eq!(
            hosts.verdict,
            "no fault found on the path to 2 hosts; to the hosts, all paths share a bottleneck of about 90 Mbit/s, which \
             may be this host's own link (one at a time, 188 in total); from the hosts, no paths share a bottleneck \
             (90 Mbit/s at once); not measured: gone"
        );
        assert!(!hosts.is_whole() && hosts.to_string().contains("\ngone: not measured: ssh failed\n"));
        assert!(hosts.html("x").contains("ssh failed"));
        hosts.add_together(Err("one is lost".to_owned()));
        assert!(hosts.verdict.ends_with("not measured: gone, all at once"), "{}", hosts.verdict);
        assert!(named(&[]).to_string().starts_with("no host was measured"));
    }

    #[test]
    fn a_verdict_begins_with_the_hosts_that_failed_if_they_are_most() {
        let good = || latency([94.0, 93.0], [0, 0], Grade::A, false);
        let failed = |name: &str| NotMeasured { name: name.to_owned(), why: "ssh failed".to_owned() };
        let one = vec![("one".to_owned(), good())];
        let mut hosts = Hosts::of(one, vec![failed("two"), failed("three")], &command);
        hosts.add_together(Err("it needs two hosts".to_owned()));
        assert_eq!(
            hosts.verdict,
            "2 of 3 hosts could not be measured: two, three; no fault found on the path to 1 host; not measured: \
             all at once"
        );
        assert!(hosts.to_string().starts_with("2 of 3 hosts could not be measured: two, three\n"));
        let two = vec![("one".to_owned(), good()), ("two".to_owned(), good())];
        let hosts = Hosts::of(two, vec![failed("three")], &command);
        assert_eq!(hosts.verdict, "no fault found on the path to 2 hosts; not measured: three");
    }

    #[test]
    fn advice_for_a_slow_host_names_the_bottleneck_that_it_shares() {
        let alone = [94.0, 20.0, 20.0];
        let slow = |mbps: f64| latency([mbps, 94.0], [0, 0], Grade::A, false);
        let all: Vec<_> = ["one", "two", "three"].into_iter().zip(alone.map(slow)).collect();
        let mut hosts = named(&all);
        let mut to = Direction::of("to", &alone, vec![(94.0, None), (10.0, None), (10.0, None)], false);
        to.groups = vec![Group { hosts: vec![1, 2], mbps: 20.0 }];
        to.sharing = Sharing::Partly;
        let from = Direction::of("from", &[94.0; 3], vec![(94.0, None); 3], false);
        hosts.add_together(Ok(Together { directions: [to, from] }));
        let advice = |number: usize| hosts.hosts[number].findings[0].advice.as_str();
        assert!(advice(1).contains("; its path shares a bottleneck with three (to the hosts): look at"));
        assert!(advice(2).contains("; its path shares a bottleneck with two (to the hosts): look at"));
        assert!(hosts.hosts[0].findings.is_empty());
        let text = hosts.to_string();
        assert!(text.contains("\nall at once: traceroute to two and three shows the links"), "{text}");
        assert!(hosts.html("x").contains("traceroute to two and three"));
    }

    #[test]
    fn an_interrupted_measurement_keeps_what_it_has() {
        let mut hosts = named(&[("one", latency([94.0, 93.0], [0, 0], Grade::A, false))]);
        hosts.interrupt(["two".to_owned(), "three".to_owned()]);
        assert_eq!(
            hosts.verdict,
            "unfinished: no fault found on the path to 1 host; not measured: two, three"
        );
        let text = hosts.to_string();
        assert!(text.contains("\ntwo: not measured: the measurement was interrupted before\n"), "{text}");
        assert!(!hosts.is_whole() && hosts.html("x").contains("Unfinished: "));
    }
}
