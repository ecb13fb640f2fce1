//! All five papers in one run: verdicts on every table and figure, and on every weakness.
//!
//! Execution  virtual-time experiments run in parallel on all processors. Then, if requested, the real-time
//!            measurements run one after the other, because they need the whole machine.
//! Verdict   the verdict on a table or figure is the worst verdict on its values, in the order missed,
//!           conflict, doubtful, fitted, met. A partly fitted figure therefore does not count as met.
//! Determinism  everything except [`All::measured`] is the same on every machine.

use super::atm_board;
use super::mechanisms::{self, Modelled};
use super::osi_board::{self, OsiBoard};
use super::rdma_nic::{self, RdmaNic};
use super::via_library::{self, ViaLibrary};
use super::weaknesses::{self, Weakness};
use super::wide_area::map::Map;
use super::wide_area::{self, WideArea};
use super::{Report, Verdict};
use crate::Options;
use crate::environment::Environment;
use crate::table::Table;
use kiban_sim::cost::Mechanism;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The scope of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effort {
    /// The scope of the runs for paper \[1\].
    pub atm_board: atm_board::Effort,
    /// The scope of the runs for paper \[2\].
    pub wide_area: wide_area::Effort,
    /// The scope of the runs for paper \[4\].
    pub via_library: via_library::Effort,
    /// The scope of the runs for paper \[5\].
    pub osi_board: osi_board::Effort,
    /// How long the real-time measurements take; `None` skips them.
    pub measured: Option<Length>,
}

/// The length of the real-time measurements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// Long enough for results that can be quoted.
    Full,
    /// A few seconds, for a quick run.
    Quick,
}

impl Effort {
    /// Returns the default scope.
    pub fn full() -> Effort {
        Effort {
            atm_board: atm_board::Effort::FULL,
            wide_area: wide_area::Effort::FULL,
            via_library: via_library::Effort::full(),
            osi_board: osi_board::Effort::FULL,
            measured: Some(Length::Full),
        }
    }

    /// Returns a scope with fewer points and shorter runs.
    pub fn quick() -> Effort {
        Effort {
            atm_board: atm_board::Effort::QUICK,
            wide_area: wide_area::Effort::QUICK,
            via_library: via_library::Effort::quick(),
            osi_board: osi_board::Effort::QUICK,
            measured: Some(Length::Quick),
        }
    }

    /// Returns the number of points, for a progress bar.
    pub fn points(&self) -> u64 {
        let measured = if self.measured.is_some() { MEASURED_POINTS } else { 0 };
        self.atm_board.points()
            + self.wide_area.cells()
            + self.via_library.points()
            + self.osi_board.points()
            + MECHANISM_POINTS
            + weaknesses::points()
            + measured
    }
}

/// The number of progress points for the modelled mechanisms.
const MECHANISM_POINTS: u64 = 1;
/// The number of progress points for the real-time measurements: mechanisms, waiting, file transfer.
const MEASURED_POINTS: u64 = 3;

/// The real-time measurements on this machine; no verdict uses them.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The machine.
    pub environment: Environment,
    /// The measurements with and without each of paper \[1\]'s mechanisms.
    pub mechanisms: Vec<mechanisms::Measured>,
    /// Paper \[4\]'s tables 1 and 2, or why they could not be measured.
    pub waiting: Result<via_library::measured::Tables, String>,
    /// Paper \[5\]'s file transfer.
    pub files: Vec<osi_board::measured::Measured>,
}

/// The reproductions of all papers.
#[derive(Clone, Debug, Serialize)]
pub struct All {
    /// The verdicts on all tables and figures.
    pub summary: Vec<PaperItem>,
    /// The weaknesses of the papers' machines, and today's kiban in comparison.
    pub weaknesses: Vec<Weakness>,
    /// Paper \[1\].
    pub atm_board: Report,
    /// Paper \[1\]'s five mechanisms, each switched off.
    pub mechanisms: Vec<Modelled>,
    /// Paper \[2\].
    pub wide_area_atm: WideArea,
    /// The throughput map of paper \[2\] with today's best settings.
    pub map_best: Map,
    /// Paper \[3\].
    pub rdma_nic: RdmaNic,
    /// Paper \[4\].
    pub via_library: ViaLibrary,
    /// Paper \[5\].
    pub osi_board: OsiBoard,
    /// The real-time measurements, if requested.
    pub measured: Option<Measured>,
}

/// Runs all experiments; calls `done` after every point.
pub fn make(effort: &Effort, done: &(dyn Fn() + Sync)) -> All {
    let interval = atm_board::Effort::QUICK.interval;
    let (atm_board, mechanisms, wide_area_atm, via_library, rdma_nic, osi_board, made) =
        std::thread::scope(|scope| {
            let atm_board = scope.spawn(|| atm_board::report(effort.atm_board, &mut || done()));
            let via_library = scope.spawn(|| via_library::make(&effort.via_library, done));
            let wide_area = scope.spawn(|| wide_area::make(effort.wide_area, done));
            let osi_board = scope.spawn(|| osi_board::make(effort.osi_board, &mut || done()));
            let made =
                scope.spawn(|| weaknesses::make(effort.wide_area.interval, effort.atm_board.interval, done));
            let mechanisms = mechanisms::modelled(&Mechanism::ALL, interval);
            done();
            let rdma_nic = rdma_nic::make();
            const WHY: &str = "every point can be made";
            (
                atm_board.join().expect(WHY),
                mechanisms,
                wide_area.join().expect(WHY),
                via_library.join().expect(WHY),
                rdma_nic,
                osi_board.join().expect(WHY),
                made.join().expect(WHY),
            )
        });
    let reports =
        [&atm_board, &wide_area_atm.report, &rdma_nic.report, &via_library.report, &osi_board.report];
    All {
        summary: reports.iter().flat_map(|report| places(report)).collect(),
        weaknesses: weaknesses::verdicts(&made, reports),
        map_best: made.map,
        measured: effort.measured.map(|length| measure(length, done)),
        atm_board,
        mechanisms,
        wide_area_atm,
        rdma_nic,
        via_library,
        osi_board,
    }
}

/// Runs the real-time measurements one after the other.
fn measure(length: Length, done: &(dyn Fn() + Sync)) -> Measured {
    let tell = |value| {
        done();
        value
    };
    let full = length == Length::Full;
    let options = if full { Options::full() } else { Options::quick() };
    let seconds = Duration::from_millis(if full { 1000 } else { 200 });
    let plan = if full { osi_board::measured::Plan::FULL } else { osi_board::measured::Plan::QUICK };
    let mechanisms = mechanisms::measured(&Mechanism::ALL, Options { dir: None, ..options });
    done();
    let waiting = via_library::measured::measure(seconds);
    done();
    Measured {
        environment: Environment::read(),
        mechanisms,
        waiting,
        files: tell(osi_board::measured::measure(plan)),
    }
}

/// A table, a figure or a section of a paper, and the verdicts on its values.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PaperItem {
    /// The paper's name on the command line.
    pub paper: &'static str,
    /// The table, figure or section.
    pub place: String,
    /// The worst verdict; `None` if the item was not reproduced at all.
    pub verdict: Option<Verdict>,
    /// The number of values by verdict.
    pub values: Vec<(Verdict, usize)>,
    /// Why the item was not reproduced, or which of its values were missed.
    pub note: Option<String>,
}

/// Parts of papers that cannot be reproduced, with the reason. An entry is ignored if the report has a row
/// for it.
const ABSENT: [(&str, &str, &str); 1] = [(
    "wide-area-atm",
    "Fig. 3 to 5",
    "The differences between boards and directions cannot be reproduced, because their values are lost with \
    the figures. The verdict on the common map is that of §3.2.",
)];

/// All verdicts, starting with the worst.
const ORDER: [Verdict; 7] = [
    Verdict::Missed,
    Verdict::Conflict,
    Verdict::Doubtful,
    Verdict::Fitted,
    Verdict::Met,
    Verdict::Exact,
    Verdict::Ours,
];

/// Returns the name of a table or figure in the spelling that is used for all papers.
fn spelt(place: &str) -> String {
    let place = place.replace("figure ", "Fig. ").replace("table ", "Table ");
    if place.is_empty() { "ours".to_owned() } else { place }
}

/// Returns the tables and figures of a paper in the order of its rows.
pub fn places(report: &Report) -> Vec<PaperItem> {
    let mut names: Vec<String> = Vec::new();
    for name in report.rows.iter().map(|row| spelt(row.place)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let made = names.into_iter().map(|name| {
        let rows: Vec<_> = report.rows.iter().filter(|row| spelt(row.place) == name).collect();
        let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
        let values: Vec<(Verdict, usize)> = ORDER
            .into_iter()
            .map(|verdict| (verdict, count(verdict)))
            .filter(|(_, count)| *count > 0)
            .collect();
        let missed: Vec<&str> =
            rows.iter().filter(|row| row.verdict == Verdict::Missed).map(|row| row.what.as_str()).collect();
        PaperItem {
            paper: report.paper,
            place: name,
            verdict: values.first().map(|(verdict, _)| *verdict),
            values,
            note: (!missed.is_empty()).then(|| missed.join("; ")),
        }
    });
    let mut places: Vec<PaperItem> = made.collect();
    for (paper, place, why) in ABSENT {
        if paper == report.paper && !places.iter().any(|made| made.place.starts_with(place)) {
            let (values, note) = (Vec::new(), Some(why.to_owned()));
            places.push(PaperItem { paper, place: place.to_owned(), verdict: None, values, note });
        }
    }
    places
}

impl PaperItem {
    /// Returns the number of values by verdict as text.
    pub fn counts(&self) -> String {
        let words = self.values.iter().map(|(verdict, count)| format!("{count} {}", verdict.word()));
        words.collect::<Vec<_>>().join(", ")
    }

    /// Returns the word of the verdict.
    pub fn word(&self) -> &'static str {
        self.verdict.map_or("not made", Verdict::word)
    }
}

impl All {
    /// Returns the reports in the order of the papers.
    pub fn reports(&self) -> [&Report; 5] {
        [
            &self.atm_board,
            &self.wide_area_atm.report,
            &self.rdma_nic.report,
            &self.via_library.report,
            &self.osi_board.report,
        ]
    }

    /// Returns whether no published value was missed.
    pub fn came_out(&self) -> bool {
        self.reports().iter().all(|report| report.came_out())
    }

    /// Returns the number of values with a verdict.
    pub fn values(&self, verdict: Verdict) -> usize {
        self.reports().iter().flat_map(|report| &report.rows).filter(|row| row.verdict == verdict).count()
    }

    /// Returns the number of tables and figures with a verdict.
    pub fn places(&self, verdict: Verdict) -> usize {
        self.summary.iter().filter(|place| place.verdict == Some(verdict)).count()
    }

    /// Returns a summary in one sentence.
    pub fn headline(&self) -> String {
        let published = ORDER.into_iter().filter(|verdict| *verdict != Verdict::Ours);
        let all: usize = published.map(|verdict| self.values(verdict)).sum();
        format!(
            "Of {all} published values, {} are derived or reproduced without any fit, {} are reproduced \
             because a constant was fitted to them, {} are missed, {} conflict with other values in their \
             paper, and {} are uncertain in their paper.",
            self.values(Verdict::Exact) + self.values(Verdict::Met),
            self.values(Verdict::Fitted),
            self.values(Verdict::Missed),
            self.values(Verdict::Conflict),
            self.values(Verdict::Doubtful)
        )
    }
}

/// Returns a text table of tables and figures with their verdicts.
pub fn summary_table(items: &[PaperItem]) -> Table {
    let mut table = Table::new("tables and figures")
        .text_column("paper")
        .text_column("place")
        .text_column("verdict")
        .text_column("values");
    for item in items {
        let mark = item.note.as_ref().map(|note| format!(" {}", table.note(note))).unwrap_or_default();
        table.row([
            item.paper.to_owned(),
            item.place.clone(),
            format!("{}{mark}", item.word()),
            item.counts(),
        ]);
    }
    table.remark(
        "The verdict on a table or figure is the worst of its values. The notes name the missed values.",
    );
    table
}

/// Prints the summary tables. The command for each paper prints its detailed tables.
impl fmt::Display for All {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.headline())?;
        writeln!(f, "\n{}", summary_table(&self.summary))?;
        writeln!(f, "{}", weaknesses::table(&self.weaknesses))?;
        write!(f, "{}", mechanisms::modelled_table(&self.mechanisms))?;
        let Some(Measured { environment, mechanisms, waiting, files }) = &self.measured else {
            return Ok(());
        };
        writeln!(f, "\nMEASURED ON THIS MACHINE, not used in any verdict: {}", environment.line())?;
        writeln!(f, "\n{}", mechanisms::measured_table(mechanisms))?;
        match waiting {
            Ok(tables) => writeln!(f, "{tables}")?,
            Err(why) => writeln!(f, "cannot measure the wait policies: {why}\n")?,
        }
        write!(f, "{}", osi_board::measured::table(files))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Row;
    use super::*;

    fn report(paper: &'static str, rows: &[(&'static str, Verdict)]) -> Report {
        let row = |(place, verdict): &(&'static str, Verdict)| Row {
            verdict: *verdict,
            ..Row::new(place, "w", "1", "2")
        };
        Report {
            paper,
            source: "",
            today: "",
            rows: rows.iter().map(row).collect(),
            constants: Vec::new(),
            figures: Vec::new(),
        }
    }

    #[test]
    fn a_figures_verdict_is_the_worst_of_its_values() {
        use Verdict::{Conflict, Doubtful, Exact, Fitted, Met, Missed, Ours};
        for (verdicts, expected) in [
            (&[Met, Exact][..], Met),
            (&[Met, Fitted, Met], Fitted),
            (&[Fitted, Doubtful], Doubtful),
            (&[Conflict, Doubtful, Fitted], Conflict),
            (&[Met, Conflict, Missed], Missed),
            (&[Ours], Ours),
        ] {
            let rows: Vec<_> = verdicts.iter().map(|verdict| ("figure 2", *verdict)).collect();
            let made = places(&report("p", &rows));
            assert_eq!(
                (made.len(), made[0].verdict, made[0].place.as_str()),
                (1, Some(expected), "Fig. 2"),
                "{verdicts:?}"
            );
        }
    }

    #[test]
    fn missing_results_are_listed_until_they_exist() {
        let absent = |rows: &[(&'static str, Verdict)]| {
            let made = places(&report("wide-area-atm", rows));
            made.into_iter()
                .filter(|place| place.verdict.is_none())
                .map(|place| place.place)
                .collect::<Vec<_>>()
        };
        assert_eq!(absent(&[("§3.2", Verdict::Met)]), ["Fig. 3 to 5"]);
        assert_eq!(absent(&[("figure 10, 11", Verdict::Met)]), ["Fig. 3 to 5"]);
        assert!(absent(&[("figure 3 to 5", Verdict::Met)]).is_empty());
    }
}
