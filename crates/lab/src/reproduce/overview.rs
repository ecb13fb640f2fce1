//! All five papers at once: what became of every table and figure, and of every weakness.
//!
//! Runs      everything that is virtual side by side, on as many processors as there are; then, if that is
//!           wanted, what is measured on this machine, one after the other, because it wants the machine for
//!           itself.
//! Verdict   of a table or figure: the worst of its values. Missed before in conflict before doubtful before
//!           fitted before met: what was fitted in part is not called met.
//! Exact     all but [`All::measured`] comes out the same on every machine.

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

/// How much is run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Of every paper.
    pub atm_board: atm_board::Effort,
    /// The same.
    pub wide_area: wide_area::Effort,
    /// The same.
    pub via_library: via_library::Effort,
    /// The same.
    pub osi_board: osi_board::Effort,
    /// How long this machine is measured; not at all, if only what is exact is wanted.
    pub measured: Option<Length>,
}

/// How long this machine is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// As long as it takes for figures that may be quoted.
    Full,
    /// A moment.
    Quick,
}

impl Effort {
    /// What is printed unless asked otherwise.
    pub fn full() -> Effort {
        Effort {
            atm_board: atm_board::Effort::FULL,
            wide_area: wide_area::Effort::FULL,
            via_library: via_library::Effort::full(),
            osi_board: osi_board::Effort::FULL,
            measured: Some(Length::Full),
        }
    }

    /// Fewer points, shorter runs.
    pub fn quick() -> Effort {
        Effort {
            atm_board: atm_board::Effort::QUICK,
            wide_area: wide_area::Effort::QUICK,
            via_library: via_library::Effort::quick(),
            osi_board: osi_board::Effort::QUICK,
            measured: Some(Length::Quick),
        }
    }

    /// How many points there are, for a progress bar.
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

/// The mechanisms together, for a progress bar.
const MECHANISM_POINTS: u64 = 1;
/// Mechanisms, waiting, file transfer.
const MEASURED_POINTS: u64 = 3;

/// What is measured on this machine: no part of any verdict.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The machine.
    pub environment: Environment,
    /// Paper \[1\]'s mechanisms, with and without.
    pub mechanisms: Vec<mechanisms::Measured>,
    /// Paper \[4\]'s tables 1 and 2; what kept them from being measured, if something did.
    pub waiting: Result<via_library::measured::Tables, String>,
    /// Paper \[5\]'s file transfer.
    pub files: Vec<osi_board::measured::Measured>,
}

/// What became of all papers.
#[derive(Clone, Debug, Serialize)]
pub struct All {
    /// Tables and figures.
    pub summary: Vec<Place>,
    /// What kiban at its best does about each paper's weakness.
    pub weaknesses: Vec<Weakness>,
    /// Paper \[1\].
    pub atm_board: Report,
    /// Paper \[1\]'s five mechanisms, each switched off.
    pub mechanisms: Vec<Modelled>,
    /// Paper \[2\].
    pub wide_area_atm: WideArea,
    /// Its map with kiban at its best.
    pub map_best: Map,
    /// Paper \[3\].
    pub rdma_nic: RdmaNic,
    /// Paper \[4\].
    pub via_library: ViaLibrary,
    /// Paper \[5\].
    pub osi_board: OsiBoard,
    /// What was measured on this machine, if that was wanted.
    pub measured: Option<Measured>,
}

/// Makes everything; `done` is called after every point.
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
        weaknesses: weaknesses::judge(&made, reports),
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

/// Measures this machine, one thing after the other.
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

/// A table, a figure or a section of a paper, and what became of its values.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Place {
    /// The paper's name on the command line.
    pub paper: &'static str,
    /// Where in the paper.
    pub place: String,
    /// What may be concluded of all of it; nothing, if nothing of it can be made here.
    pub verdict: Option<Verdict>,
    /// How many of its values came out how.
    pub values: Vec<(Verdict, usize)>,
    /// Why nothing was made, or what was missed.
    pub note: Option<String>,
}

/// What nobody can make again, and why. An entry goes as soon as a paper has a row of that place.
const ABSENT: [(&str, &str, &str); 1] = [(
    "wide-area-atm",
    "Fig. 3 to 5",
    "how boards and directions differ: the values are lost with the figures; the map that they share is judged as §3.2",
)];

/// Worst first.
const ORDER: [Verdict; 7] = [
    Verdict::Missed,
    Verdict::Conflict,
    Verdict::Doubtful,
    Verdict::Fitted,
    Verdict::Met,
    Verdict::Exact,
    Verdict::Ours,
];

/// The same spelling for all papers.
fn spelt(place: &str) -> String {
    let place = place.replace("figure ", "Fig. ").replace("table ", "Table ");
    if place.is_empty() { "ours".to_owned() } else { place }
}

/// A paper's tables and figures, in the order of its rows.
pub fn places(report: &Report) -> Vec<Place> {
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
        Place {
            paper: report.paper,
            place: name,
            verdict: values.first().map(|(verdict, _)| *verdict),
            values,
            note: (!missed.is_empty()).then(|| missed.join("; ")),
        }
    });
    let mut places: Vec<Place> = made.collect();
    for (paper, place, why) in ABSENT {
        if paper == report.paper && !places.iter().any(|made| made.place.starts_with(place)) {
            let (values, note) = (Vec::new(), Some(why.to_owned()));
            places.push(Place { paper, place: place.to_owned(), verdict: None, values, note });
        }
    }
    places
}

impl Place {
    /// Its values by verdict, in words.
    pub fn counts(&self) -> String {
        let words = self.values.iter().map(|(verdict, count)| format!("{count} {}", verdict.word()));
        words.collect::<Vec<_>>().join(", ")
    }

    /// The verdict's word.
    pub fn word(&self) -> &'static str {
        self.verdict.map_or("not made", Verdict::word)
    }
}

impl All {
    /// The papers' reports, in the papers' order.
    pub fn reports(&self) -> [&Report; 5] {
        [
            &self.atm_board,
            &self.wide_area_atm.report,
            &self.rdma_nic.report,
            &self.via_library.report,
            &self.osi_board.report,
        ]
    }

    /// Whether no published value was missed.
    pub fn came_out(&self) -> bool {
        self.reports().iter().all(|report| report.came_out())
    }

    /// How many values have a verdict.
    pub fn values(&self, verdict: Verdict) -> usize {
        self.reports().iter().flat_map(|report| &report.rows).filter(|row| row.verdict == verdict).count()
    }

    /// How many tables and figures have one.
    pub fn places(&self, verdict: Verdict) -> usize {
        self.summary.iter().filter(|place| place.verdict == Some(verdict)).count()
    }

    /// What came out, in a sentence.
    pub fn headline(&self) -> String {
        let published = ORDER.into_iter().filter(|verdict| *verdict != Verdict::Ours);
        let all: usize = published.map(|verdict| self.values(verdict)).sum();
        format!(
            "Of {all} published values {} come out by derivation or without any fit, {} because a constant was fitted to them, \
             {} are missed, {} are in conflict within their paper, {} are doubtful there.",
            self.values(Verdict::Exact) + self.values(Verdict::Met),
            self.values(Verdict::Fitted),
            self.values(Verdict::Missed),
            self.values(Verdict::Conflict),
            self.values(Verdict::Doubtful)
        )
    }

    /// Every table and figure with its verdict.
    pub fn summary_table(&self) -> Table {
        let mut table =
            Table::new("tables and figures").words("paper").words("place").words("verdict").words("values");
        for place in &self.summary {
            let mark = place.note.as_ref().map(|note| format!(" {}", table.note(note))).unwrap_or_default();
            table.row([
                place.paper.to_owned(),
                place.place.clone(),
                format!("{}{mark}", place.word()),
                place.counts(),
            ]);
        }
        table.remark(
            "a table's or figure's verdict is the worst of its values; the notes name what is missed.",
        );
        table
    }
}

/// For people: the tables alone. The papers' own tables are those of their commands.
impl fmt::Display for All {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.headline())?;
        writeln!(f, "\n{}", self.summary_table())?;
        writeln!(f, "{}", weaknesses::table(&self.weaknesses))?;
        write!(f, "{}", mechanisms::modelled_table(&self.mechanisms))?;
        let Some(Measured { environment, mechanisms, waiting, files }) = &self.measured else {
            return Ok(());
        };
        writeln!(f, "\nMEASURED ON THIS MACHINE, and part of no verdict: {}", environment.line())?;
        writeln!(f, "\n{}", mechanisms::measured_table(mechanisms))?;
        match waiting {
            Ok(tables) => writeln!(f, "{tables}")?,
            Err(why) => writeln!(f, "waiting could not be measured: {why}\n")?,
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
    fn what_is_not_made_is_said_until_it_is() {
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
