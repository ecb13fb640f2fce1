//! Published results, made again: what a paper says, what comes out here, and what may be concluded.
//!
//! Honest    a value that was used to fit a constant is [`Verdict::Fitted`], however well it comes out. Only
//!           a value that no fit has seen can be [`Verdict::Met`].
//! Papers    one module each; `docs/reproduce-*.md` says what was published, what was assumed and what was
//!           left open.

pub mod atm_board;
pub mod flow;
pub mod mechanisms;
pub mod osi_board;
pub mod overview;
pub mod page;
pub mod rdma_nic;
pub mod via_library;
pub mod weaknesses;
pub mod wide_area;

use crate::report::picture::{Line, Lines, Scale};
use crate::table::Table;
use serde::Serialize;

/// What may be concluded from a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Derived, and equal to the last digit that was published.
    Exact,
    /// A published value comes out that no fit has used.
    Met,
    /// A published value comes out because a constant was fitted to it.
    Fitted,
    /// A published value does not come out.
    Missed,
    /// The source is doubtful about the value: its readings stand beside what comes out.
    Doubtful,
    /// The source contradicts itself.
    Conflict,
    /// Nothing was published: what we say ourselves beside it comes out.
    Ours,
}

impl Verdict {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Exact => "exact",
            Verdict::Met => "met",
            Verdict::Fitted => "fitted",
            Verdict::Missed => "MISSED",
            Verdict::Doubtful => "doubtful",
            Verdict::Conflict => "conflict",
            Verdict::Ours => "ours",
        }
    }

    /// `good` where the value came out, [`Verdict::Missed`] otherwise.
    pub fn of(good: Verdict, came_out: bool) -> Verdict {
        if came_out { good } else { Verdict::Missed }
    }
}

/// One published value, and what came out.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Where it stands in the paper.
    pub place: &'static str,
    /// What it is, with its unit.
    pub what: String,
    /// As published.
    pub published: String,
    /// What came out.
    pub here: String,
    /// What kiban does today in the same place, where that can be said.
    pub today: Option<String>,
    /// What may be concluded.
    pub verdict: Verdict,
    /// What has to be known beside it.
    pub note: Option<String>,
}

impl Row {
    /// Makes a row of what was published; what came out is still to be said.
    fn published(place: &'static str, what: impl Into<String>, published: impl Into<String>) -> Row {
        Row::new(place, what, published, String::new())
    }

    /// A row that is missed, until what came out is judged.
    fn new(
        place: &'static str,
        what: impl Into<String>,
        published: impl Into<String>,
        here: impl Into<String>,
    ) -> Row {
        Row {
            place,
            what: what.into(),
            published: published.into(),
            here: here.into(),
            today: None,
            verdict: Verdict::Missed,
            note: None,
        }
    }
}

/// A constant of the model under which the rows came out.
#[derive(Clone, Debug, Serialize)]
pub struct Constant {
    /// Its name.
    pub name: &'static str,
    /// Its value, with its unit.
    pub value: String,
    /// `sourced`, `fitted` or `assumed`.
    pub origin: &'static str,
    /// The source, the value it was fitted to, or why it is so.
    pub why: &'static str,
}

/// One curve of a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// Its name.
    pub name: String,
    /// Points; no value: no data.
    pub points: Vec<(f64, Option<f64>)>,
}

/// A figure of the paper, drawn anew.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Its name, good for a file.
    pub name: &'static str,
    /// What it shows.
    pub title: String,
    /// The horizontal axis.
    pub x: &'static str,
    /// The vertical axis.
    pub y: &'static str,
    /// Its curves.
    pub curves: Vec<Curve>,
}

/// What became of one paper.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The name on the command line.
    pub paper: &'static str,
    /// The paper.
    pub source: &'static str,
    /// What `today` means: whose rules, on which hosts.
    pub today: &'static str,
    /// Published values and what came out.
    pub rows: Vec<Row>,
    /// The constants.
    pub constants: Vec<Constant>,
    /// The figures.
    pub figures: Vec<Figure>,
}

impl Report {
    /// Whether every published value came out that can be judged.
    pub fn came_out(&self) -> bool {
        self.rows.iter().all(|row| row.verdict != Verdict::Missed)
    }
}

/// The report for people: rows, figures as tables, constants.
impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut rows = Table::new(format!("{}: {}", self.paper, self.source))
            .words("place")
            .words("what")
            .numbers("published")
            .numbers("here")
            .numbers("today")
            .words("verdict");
        for row in &self.rows {
            let mark = row.note.as_ref().map(|note| format!(" {}", rows.note(note))).unwrap_or_default();
            rows.row([
                row.place.to_owned(),
                row.what.clone(),
                row.published.clone(),
                row.here.clone(),
                row.today.clone().unwrap_or_default(),
                format!("{}{mark}", row.verdict.word()),
            ]);
        }
        rows.remark(format!("here: with the constants below. today: {}.", self.today));
        rows.remark("met: no fit has used the value. fitted: a constant was chosen so that it comes out.");
        if self.rows.iter().any(|row| row.verdict == Verdict::Ours) {
            rows.remark("ours: nothing was published; what we say comes out.");
        }
        writeln!(f, "{rows}")?;
        for figure in &self.figures {
            writeln!(f, "{}", figure.table())?;
        }
        let mut constants = Table::new("constants").words("name").numbers("value").words("").words("why");
        for constant in &self.constants {
            constants.row([constant.name, &constant.value, constant.origin, constant.why]);
        }
        write!(f, "{constants}")
    }
}

/// By how many percent a value misses a published one.
fn off(value: f64, published: f64) -> String {
    format!("{} %", signed((value / published - 1.0) * 100.0))
}

/// With one digit and its sign; nothing is not less than nothing.
fn signed(value: f64) -> String {
    format!("{:+.1}", (value * 10.0).round() / 10.0 + 0.0)
}

impl Figure {
    /// The figure as a table: a row for each place on the horizontal axis.
    pub fn table(&self) -> Table {
        let heads = self
            .curves
            .iter()
            .fold(Table::new(&self.title).numbers(self.x), |table, curve| table.numbers(&curve.name));
        let mut table = heads;
        let mut places: Vec<f64> =
            self.curves.iter().flat_map(|curve| &curve.points).map(|(x, _)| *x).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        for x in places {
            let value = |curve: &Curve| match curve.points.iter().find(|(at, _)| *at == x) {
                Some((_, Some(y))) => format!("{y:.1}"),
                Some((_, None)) => "no data".to_owned(),
                None => String::new(),
            };
            table.row(std::iter::once(x.to_string()).chain(self.curves.iter().map(value)));
        }
        table
    }

    /// The figure as curves that can be drawn.
    pub fn lines(&self, x: Scale, y: Scale) -> Lines {
        let said = self.curves.iter().map(|curve| {
            let values = curve.points.iter().filter_map(|(_, y)| *y);
            let (least, most) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
                (least.min(value), most.max(value))
            });
            match least <= most {
                true => format!("{}: from {least:.1} to {most:.1}", curve.name),
                false => format!("{}: no data", curve.name),
            }
        });
        let lines = self.curves.iter().map(|curve| Line {
            name: curve.name.clone(),
            points: curve.points.clone(),
            dashed: false,
        });
        Lines {
            name: self.name.to_owned(),
            title: self.title.clone(),
            description: format!("{} over {}. {}.", self.y, self.x, said.collect::<Vec<_>>().join("; ")),
            x: (self.x.to_owned(), x),
            y: (self.y.to_owned(), y),
            lines: lines.collect(),
            marks: Vec::new(),
        }
    }

    /// The figure for a spreadsheet: curve, x, y.
    pub fn csv(&self) -> String {
        let mut text = format!("curve,{},{}\n", self.x, self.y);
        for curve in &self.curves {
            for (x, y) in &curve.points {
                let y = y.map(|y| format!("{y:.3}")).unwrap_or_default();
                text.push_str(&format!("{},{x},{y}\n", curve.name));
            }
        }
        text
    }
}
