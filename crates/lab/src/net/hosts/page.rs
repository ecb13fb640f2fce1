//! The page of several hosts: the verdict, the hosts side by side, and their rates.

use super::finding::HostCause;
use super::report::{ALL_AT_ONCE, HostReport, Hosts};
use crate::engine::words::capitalized;
use crate::environment::date;
use crate::report::picture::Bars;
use crate::report::{Badge, Block, Cell, Document, Grid, Section, Tone};
use crate::table::{counted, readable};
use kiban_os::clock::unix_seconds;

impl Hosts {
    /// Returns the HTML page; `command` is the command that creates it.
    pub fn html(&self, command: &str) -> String {
        let mut facts =
            vec![("Command".to_owned(), command.to_owned()), ("Date".to_owned(), date(unix_seconds()))];
        if let Some(host) = self.hosts.first() {
            let seconds = host.latency.seconds;
            let load = format!("{} TCP connections per direction, {seconds} s", host.latency.connections);
            facts.insert(0, ("Load".to_owned(), load));
        }
        let mut blocks = vec![Block::Grid(self.grid())];
        let changes: Vec<(Badge, String)> = self
            .hosts
            .iter()
            .flat_map(|host| host.findings.iter().map(move |finding| (host, finding)))
            .map(|(host, finding)| {
                let advice = if finding.advice.is_empty() { "" } else { ". What to do: " };
                let text = format!("{}: {}{advice}{}", host.name, finding.because, finding.advice);
                (Badge::new(tone(finding.cause), finding.cause.words()), text)
            })
            .chain(self.advice_at_once().map(|advice| (Badge::new(Tone::Doubt, ALL_AT_ONCE), advice)))
            .chain(
                self.not_measured
                    .iter()
                    .map(|one| (Badge::new(Tone::Bad, "not measured"), format!("{}: {}", one.name, one.why))),
            )
            .collect();
        if !changes.is_empty() {
            blocks.push(Block::Badges(changes));
        }
        if !self.hosts.is_empty() {
            blocks.push(Block::Figure(self.alone().picture(), String::new()));
        }
        if let Some(bars) = self.at_once() {
            blocks.push(Block::Figure(bars.picture(), String::new()));
        }
        let alone = "Each host is measured alone: round trips of probes on the idle path, then beside TCP \
                   connections to the host, from it, and in both directions. A path is slow if it carries less than \
                   a quarter of the best one in the same direction. Losses count only on the idle path, because a \
                   full queue loses packets on a healthy path, too.";
        let at_once = "Then all hosts are loaded at once. A host that keeps less than 70 % of its rate alone shares a \
                       bottleneck. If all do, and together carry what the best one carries alone, this may be the \
                       measuring host's own link. Hosts that may share one are then loaded in pairs: two that carry \
                       less than 85 % of the sum of their rates alone share a bottleneck.";
        let how = [Some(alone), self.together.as_ref().map(|_| at_once)];
        let sections = vec![Section {
            heading: "How it was measured".to_owned(),
            blocks: how.into_iter().flatten().map(|words| Block::Paragraph(words.to_owned())).collect(),
        }];
        Document {
            title: format!("Paths to {}", counted(self.hosts.len(), "host")),
            lead: format!("{}.", capitalized(&self.verdict)),
            facts,
            is_folded: true,
            has_contents: false,
            blocks,
            sections,
            foot: vec![Document::version_line()],
        }
        .html()
    }

    fn grid(&self) -> Grid {
        let mut heads = vec!["host", "verdict", "grade", "#idle", "#loaded", "#to", "#from", "#to", "#from"];
        if self.together.is_some() {
            heads.extend(["#to", "#from"]);
        }
        let mut grid = Grid::new("Hosts", &heads)
            .grouped(3..5, "round trip, ms")
            .grouped(5..7, "lost, %")
            .grouped(7..9, "Mbit/s");
        if self.together.is_some() {
            grid = grid.grouped(9..11, "Mbit/s at once");
        }
        for (number, host) in self.hosts.iter().enumerate() {
            let name = Cell::from(host.name.clone()).with_note(Some(host.latency.address.clone()));
            let words = [name, verdict(host).into(), host.latency.grade_words().into()];
            grid.row(words.into_iter().chain(self.figures(number).map(|figure| readable(figure).into())));
        }
        grid
    }

    /// Returns the rates of each host alone.
    fn alone(&self) -> Bars {
        let cases = self.hosts.iter().flat_map(|host| {
            let case = |(way, mbps): (&str, f64)| (format!("{way} {}", host.name), vec![mbps]);
            ["to", "from"].into_iter().zip(host.mbps).map(case)
        });
        Bars {
            name: "alone".to_owned(),
            title: "Throughput of each host alone".to_owned(),
            description: "Throughput to each host and from it, measured alone".to_owned(),
            unit: "Mbit/s".to_owned(),
            parts: vec![("alone".to_owned(), 0)],
            cases: cases.collect(),
        }
    }

    /// Returns the rates of all hosts at once, stacked.
    fn at_once(&self) -> Option<Bars> {
        let together = self.together.as_ref()?;
        let cases = together.directions.iter();
        Some(Bars {
            name: "at-once".to_owned(),
            title: "Throughput of all hosts at once".to_owned(),
            description: "Throughput to all hosts and from them at once, stacked by host".to_owned(),
            unit: "Mbit/s".to_owned(),
            parts: self.hosts.iter().enumerate().map(|(number, host)| (host.name.clone(), number)).collect(),
            cases: cases.map(|way| (format!("{} the hosts", way.direction), way.mbps.clone())).collect(),
        })
    }
}

fn verdict(host: &HostReport) -> Badge {
    let tone = host.findings.iter().map(|finding| finding.cause).min().map_or(Tone::Good, tone);
    Badge::new(tone, host.verdict())
}

fn tone(cause: HostCause) -> Tone {
    match cause {
        HostCause::Stalled | HostCause::Loss | HostCause::Slow => Tone::Bad,
        HostCause::Queue | HostCause::NotFilled | HostCause::LossNotMeasured => Tone::Doubt,
        HostCause::ServerLimit => Tone::Plain,
    }
}
