//! A reproduction's report: rows with verdicts, constants, figures.

use crate::report::picture::{Line, Lines, Scale};
use crate::table::{Table, signed};
use serde::Serialize;

/// The verdict on a published value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The value is derived and equals all published digits.
    Exact,
    /// The value is reproduced and was not used in any fit.
    Met,
    /// The value is reproduced because a constant was fitted to it.
    Fitted,
    /// The value is not reproduced.
    Missed,
    /// The published value is uncertain; its possible readings are shown next to the result.
    Doubtful,
    /// The paper contradicts itself about the value.
    Conflict,
    /// There is no published value; the result confirms a claim of this project.
    Ours,
}

impl Verdict {
    /// Returns the word for the verdict.
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

    /// Returns `good` if the value was reproduced, [`Verdict::Missed`] otherwise.
    pub fn of(good: Verdict, came_out: bool) -> Verdict {
        if came_out { good } else { Verdict::Missed }
    }
}

/// One published value and kiban's result.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The table, figure or section of the paper.
    pub place: &'static str,
    /// The quantity, with its unit.
    pub what: String,
    /// The published value.
    pub published: String,
    /// The result with the model of the paper's machine.
    pub here: String,
    /// The result with today's kiban under the same conditions, if there is one.
    pub today: Option<String>,
    /// The verdict.
    pub verdict: Verdict,
    /// A remark that qualifies the row.
    pub note: Option<String>,
}

impl Row {
    /// Creates a row without a result.
    pub(super) fn published(
        place: &'static str,
        what: impl Into<String>,
        published: impl Into<String>,
    ) -> Row {
        Row::new(place, what, published, String::new())
    }

    /// Creates a row with the verdict [`Verdict::Missed`], which the caller replaces.
    pub(super) fn new(
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

/// A constant of the model of the paper's machine.
#[derive(Clone, Debug, Serialize)]
pub struct Constant {
    /// The constant's name.
    pub name: &'static str,
    /// The constant's value, with its unit.
    pub value: String,
    /// `sourced`, `fitted` or `assumed`.
    pub origin: &'static str,
    /// The source, the value that it was fitted to, or the reason for the assumption.
    pub why: &'static str,
}

/// One curve of a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// The curve's name.
    pub name: String,
    /// Points; `None` means no data.
    pub points: Vec<(f64, Option<f64>)>,
}

/// A figure of the paper, redrawn.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The figure's name, usable as a file name.
    pub name: &'static str,
    /// The title.
    pub title: String,
    /// The horizontal axis.
    pub x: &'static str,
    /// The vertical axis.
    pub y: &'static str,
    /// The figure's curves.
    pub curves: Vec<Curve>,
}

/// The reproduction of one paper.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The name on the command line.
    pub paper: &'static str,
    /// The bibliographic reference.
    pub source: &'static str,
    /// The set-up of the column `today`.
    pub today: &'static str,
    /// Published values and results.
    pub rows: Vec<Row>,
    /// The constants.
    pub constants: Vec<Constant>,
    /// The figures.
    pub figures: Vec<Figure>,
}

impl Report {
    /// Returns whether no published value was missed.
    pub fn came_out(&self) -> bool {
        self.rows.iter().all(|row| row.verdict != Verdict::Missed)
    }
}

/// Prints the report as text: rows, figures as tables, constants.
impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut rows = Table::new(format!("{}: {}", self.paper, self.source))
            .text_column("place")
            .text_column("what")
            .number_column("published")
            .number_column("here")
            .number_column("today")
            .text_column("verdict");
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
        rows.remark(format!("here: kiban with the constants below. today: {}.", self.today));
        rows.remark(
            "met: the value is reproduced and was not used in any fit. fitted: a constant was chosen to \
            reproduce the value.",
        );
        if self.rows.iter().any(|row| row.verdict == Verdict::Ours) {
            rows.remark("ours: the paper publishes no value; the result confirms a claim made by kiban.");
        }
        writeln!(f, "{rows}")?;
        for figure in &self.figures {
            writeln!(f, "{}", figure.table())?;
        }
        let mut constants = Table::new("constants")
            .text_column("name")
            .number_column("value")
            .text_column("")
            .text_column("why");
        for constant in &self.constants {
            constants.row([constant.name, &constant.value, constant.origin, constant.why]);
        }
        write!(f, "{constants}")
    }
}

/// Returns the relative difference between a value and a published one, in percent, as text.
pub(super) fn off(value: f64, published: f64) -> String {
    format!("{} %", signed((value / published - 1.0) * 100.0, 1))
}

impl Figure {
    /// Returns the figure as a text table with a row for each horizontal position.
    pub fn table(&self) -> Table {
        let heads = self.curves.iter().fold(Table::new(&self.title).number_column(self.x), |table, curve| {
            table.number_column(&curve.name)
        });
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

    /// Returns the figure as a line chart.
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
        let lines = self.curves.iter().enumerate().map(|(series, curve)| Line {
            name: curve.name.clone(),
            series,
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

    /// Returns the figure as comma-separated values: curve, x, y.
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
