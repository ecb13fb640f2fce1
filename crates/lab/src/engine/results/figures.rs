//! Figures of a summary: medians as heat maps or as curves, each as a picture and as text.
//!
//! Heat map  drawn if at least two numeric parameters vary. The axes are the two parameters with the most
//!           values, or those of [`Axes`]; the parameter whose name sorts first is vertical. There is one map
//!           for each combination of the other varying parameters.
//! Curves    drawn if one numeric parameter varies: one curve for each combination of the other varying
//!           parameters.
//! Limits    at most [`PICTURES_MAX`] pictures per metric and [`CURVES_MAX`] curves per picture. Omitted
//!           pictures are counted; their values are in the summary's table. A horizontal axis that spans two
//!           decades or more is logarithmic. A map whose values are all zero is not drawn but named.
//! Not implemented  confidence intervals in figures: they are in the table.

use crate::engine::point::{Point, Value};
use crate::engine::question::Metric;
use crate::engine::results::explanation::Explanation;
use crate::engine::results::summary::{Row, Summary};
use crate::engine::results::words::{capitalized, described, label, people_unit, shown, with_unit, words};
use crate::heat::{self, Best, HeatMap as TextMap, Shades};
use crate::nearest::suggest;
use crate::report::picture::{self, Heat, Line, Lines, STEPS, Scale};
use crate::table::{Table, readable};
use std::collections::BTreeMap;

/// The maximum number of pictures per metric.
pub const PICTURES_MAX: usize = 64;
/// The maximum number of curves per picture.
pub const CURVES_MAX: usize = 7;

/// A figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Picture {
    /// The figure's name, usable as a file name.
    pub name: String,
    /// The title.
    pub title: String,
    /// The name of the metric.
    pub metric: String,
    /// The drawing.
    pub drawing: picture::Picture,
    /// A remark shown below the drawing.
    pub remark: String,
    /// The figure as a text table.
    pub text: String,
}

impl Picture {
    /// Returns a standalone SVG file.
    pub fn svg(&self) -> String {
        self.drawing.standalone()
    }
}

/// The axes of a heat map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Axes {
    /// The parameter of the horizontal axis.
    pub across: String,
    /// The parameter of the vertical axis.
    pub down: String,
}

impl Axes {
    /// Selects two varying numeric parameters as axes.
    ///
    /// # Errors
    /// Returns a message if a parameter does not vary, is not numeric, or is given twice.
    pub fn of(summary: &Summary, across: &str, down: &str) -> Result<Axes, String> {
        let numbers: Vec<&str> = numbers(summary).map(|(name, _)| name.as_str()).collect();
        for name in [across, down] {
            if !numbers.contains(&name) {
                return Err(format!(
                    "'{name}' is not a numeric parameter that varies in this run; {}",
                    suggest(name, &numbers)
                ));
            }
        }
        if across == down {
            return Err(format!("'{across}' cannot be used for both axes"));
        }
        Ok(Axes { across: across.to_owned(), down: down.to_owned() })
    }

    /// Returns the two varying numeric parameters that have the most values; `None` if there are fewer than
    /// two.
    fn longest(summary: &Summary) -> Option<Axes> {
        let mut axes: Vec<(&String, &Vec<Value>)> = numbers(summary).collect();
        axes.sort_by_key(|(_, values)| std::cmp::Reverse(values.len()));
        axes.truncate(2);
        axes.sort_by_key(|(name, _)| *name);
        let [(down, _), (across, _)] = axes[..] else { return None };
        Some(Axes { across: across.clone(), down: down.clone() })
    }
}

/// Returns the numeric parameters that vary.
fn numbers(summary: &Summary) -> impl Iterator<Item = (&String, &Vec<Value>)> {
    let number = |value: &Value| matches!(value, Value::Count(_) | Value::Figure(_));
    summary.varying.iter().filter(move |(_, values)| values.iter().all(number))
}

/// The figures of a summary.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Figures {
    /// The pictures, starting with those of the question's first metric.
    pub pictures: Vec<Picture>,
    /// The number of pictures that were omitted because of [`PICTURES_MAX`].
    pub left_out: usize,
    /// Titles of maps that are not drawn because all their values are zero.
    pub zero: Vec<String>,
    /// The place of the picture that shows the result best: of the first metric's pictures, the one with the
    /// most marks.
    pub first: usize,
}

/// Draws a summary. `metrics` gives the units and the order of the question's metrics; it may be empty.
pub fn draw(
    summary: &Summary,
    metrics: &[Metric],
    axes: Option<&Axes>,
    explanation: &Explanation,
) -> Figures {
    let axes = axes.cloned().or_else(|| Axes::longest(summary));
    let across = numbers(summary).next().map(|(name, _)| name);
    let known = metrics.iter().map(|metric| metric.name);
    let unknown = summary.metrics.iter().map(String::as_str);
    let unknown = unknown.filter(|name| !metrics.iter().any(|metric| metric.name == *name));
    let mut figures = Figures::default();
    for name in known.chain(unknown).filter(|name| summary.metrics.contains(*name)) {
        let metric = Drawn::of(summary, metrics.iter().find(|metric| metric.name == name), name);
        let mut drawn = match (&axes, across) {
            (Some(axes), _) => maps(summary, &metric, axes, explanation, &mut figures.zero),
            (None, Some(across)) => curves(summary, &metric, across),
            (None, None) => Vec::new(),
        };
        figures.left_out += drawn.len().saturating_sub(PICTURES_MAX);
        drawn.truncate(PICTURES_MAX);
        let many = drawn.len() > 1;
        if figures.pictures.is_empty() {
            let most = drawn.iter().map(|sheet| sheet.marks).max().unwrap_or(0);
            figures.first = drawn.iter().position(|sheet| sheet.marks == most).unwrap_or(0);
        }
        for (place, Sheet { mut drawn, says, text, .. }) in drawn.into_iter().enumerate() {
            let number = if many { format!("-{:02}", place + 1) } else { String::new() };
            let name = format!("{name}{number}");
            drawn.name.clone_from(&name);
            let (title, metric) = (drawn.title.clone(), metric.name.to_owned());
            figures.pictures.push(Picture { name, title, metric, drawing: drawn, remark: says, text });
        }
    }
    figures
}

/// A metric as it is drawn.
struct Drawn<'a> {
    name: &'a str,
    what: String,
    unit: &'a str,
    /// What a value is multiplied by to get one in the unit.
    factor: f64,
    best: Best,
}

impl<'a> Drawn<'a> {
    fn of(summary: &Summary, metric: Option<&'a Metric>, name: &'a str) -> Drawn<'a> {
        let medians = summary.rows.iter().filter_map(|row| row.metrics.get(name)).map(|spread| spread.median);
        let most = medians.fold(0.0, f64::max);
        let (unit, factor) = people_unit(metric.map_or("", |metric| metric.unit), most);
        let what = capitalized(metric.map_or(name, |metric| metric.what));
        Drawn { name, what, unit, factor, best: metric.map_or(Best::High, |metric| metric.best) }
    }

    fn head(&self) -> String {
        with_unit(&self.what, self.unit)
    }

    fn median(&self, row: &Row) -> Option<f64> {
        row.metrics.get(self.name).map(|spread| spread.median * self.factor)
    }
}

/// A figure that has no name yet.
struct Sheet {
    drawn: picture::Picture,
    says: String,
    text: String,
    /// The number of cells with a mark.
    marks: usize,
}

/// Groups the rows by the values of the varying parameters other than `axes`.
fn panels<'a>(summary: &'a Summary, axes: &[&String]) -> Vec<(Point, Vec<&'a Row>)> {
    let mut panels: BTreeMap<String, (Point, Vec<&Row>)> = BTreeMap::new();
    let mut names = Vec::new();
    for row in &summary.rows {
        let rest = row
            .point
            .0
            .iter()
            .filter(|(name, _)| summary.varying.contains_key(*name) && !axes.contains(name));
        let rest: Point = rest.map(|(name, value)| (name.clone(), value.clone())).collect();
        let name = rest.to_string();
        let panel = panels.entry(name.clone()).or_insert_with(|| {
            names.push(name);
            (rest, Vec::new())
        });
        panel.1.push(row);
    }
    // The rows are sorted by their values, so the panels are, too.
    names.iter().filter_map(|name| panels.remove(name)).collect()
}

fn among(question: &str, rest: &Point) -> String {
    if rest.0.is_empty() { String::new() } else { format!(" ({})", described(question, rest)) }
}

/// Draws the maps of a metric, except those whose values are all zero, whose titles are added to `zero`.
fn maps(
    summary: &Summary,
    metric: &Drawn<'_>,
    axes: &Axes,
    explanation: &Explanation,
    zero: &mut Vec<String>,
) -> Vec<Sheet> {
    let Axes { across, down } = axes;
    let question = summary.question.as_str();
    let (rows, columns) = (&summary.varying[down], &summary.varying[across]);
    let place = |values: &[Value], value: Option<&Value>| {
        value.and_then(|value| values.binary_search_by(|other| other.order(value)).ok())
    };
    // All maps of a metric share one scale, so that they can be compared, such as both directions.
    let medians = || summary.rows.iter().filter_map(|row| metric.median(row));
    let shades = Shades::over(medians().collect::<Vec<_>>().into_iter(), metric.unit, metric.best);
    let (least, most) = heat::min_max(medians());
    let steps = heat::bounds(STEPS, medians(), metric.best);
    let mut drawn = Vec::new();
    for (rest, panel) in panels(summary, &[down, across]) {
        let mut figures = panel.iter().filter_map(|row| metric.median(row)).peekable();
        if figures.peek().is_none() {
            continue;
        }
        if figures.all(|figure| figure == 0.0) {
            zero.push(format!("{}{}", metric.what, among(question, &rest)));
        } else {
            drawn.push((rest, panel));
        }
    }
    let count = drawn.len();
    let map = |(rest, panel): (Point, Vec<&Row>)| {
        let mut cells = vec![vec![None; columns.len()]; rows.len()];
        let mut notes = vec![vec![None; columns.len()]; rows.len()];
        for row in panel {
            let at = place(rows, row.point.get(down)).zip(place(columns, row.point.get(across)));
            if let Some((row_at, column_at)) = at {
                cells[row_at][column_at] = metric.median(row);
                notes[row_at][column_at] = explanation.of(&row.point).cloned();
            }
        }
        let heads = |name: &str, values: &[Value]| {
            values.iter().map(|value| shown(question, name, value)).collect::<Vec<_>>()
        };
        let (columns, rows) = (heads(across, columns), heads(down, rows));
        let map = TextMap { columns, rows, cells, shades: shades.clone() };
        let title = format!("{}{}", metric.head(), among(question, &rest));
        let (across, down) = (label(across), label(down));
        let caption = |down: &str, across: &str| format!("{title}\nrows: {down}; columns: {across}");
        let mut text = if map.columns.len() > heat::COLUMNS_MAX && map.rows.len() < map.columns.len() {
            map.transposed().table(&caption(&across, &down))
        } else {
            map.table(&caption(&down, &across))
        };
        if let Some(sharing) = heat::sharing(count) {
            text.remark(sharing);
        }
        let marks = notes.iter().flatten().flatten().filter(|note| !note.mark.is_empty()).count();
        let heat = Heat {
            name: metric.name.to_owned(),
            title,
            description: format!(
                "A map of medians with a row for each {down} and a column for each {across}. The values of all maps \
                 of this kind are from {} to {} {}; {marks} cells are marked.",
                readable(least),
                readable(most),
                metric.unit
            ),
            x: (across, map.columns),
            y: (down, map.rows),
            unit: metric.unit.to_owned(),
            cells: map.cells,
            steps: steps.clone(),
            maps: count,
            best: metric.best,
            outlines: Vec::new(),
            boundary: explanation.boundary.clone(),
            notes,
        };
        let says = if marks > 0 {
            "Point at a cell, or select it with the arrow keys, to see its cause."
        } else {
            ""
        };
        Sheet { drawn: heat.picture(), says: says.to_owned(), text: text.to_string(), marks }
    };
    drawn.into_iter().map(map).collect()
}

fn curves(summary: &Summary, metric: &Drawn<'_>, across: &String) -> Vec<Sheet> {
    let question = summary.question.as_str();
    // A value with words, such as 0 for the system's choice, is not a quantity: it stands left of the others.
    let words = |row: &Row| words(question, across, row.point.get(across)?);
    let plain = summary.rows.iter().filter(|row| words(row).is_none());
    let (least, most) = heat::min_max(plain.filter_map(|row| row.point.figure(across)));
    let is_wide = least > 0.0 && most / least >= 100.0;
    let scale = if is_wide { Scale::Doublings } else { Scale::Linear };
    let place = |row: &Row| {
        let x = row.point.figure(across)?;
        Some(if is_wide && words(row).is_some() { least / 2.0 } else { x })
    };
    let mut names: Vec<(f64, String)> =
        summary.rows.iter().filter_map(|row| Some((place(row)?, words(row)?))).collect();
    names.dedup();
    let curve = |(series, (rest, panel)): (usize, (Point, Vec<&Row>))| {
        let points = panel.iter().filter_map(|row| Some((place(row)?, metric.median(row))));
        let name = if rest.0.is_empty() { metric.what.clone() } else { described(question, &rest) };
        Line { name, series, points: points.collect(), dashed: false }
    };
    let curves: Vec<Line> = panels(summary, &[across]).into_iter().enumerate().map(curve).collect();
    let across = label(across);
    let sheet = |curves: &[Line]| {
        let head = metric.head();
        let title = format!("{head}, by {across}");
        let text = table(&title, &across, curves, &names).to_string();
        let lines = Lines {
            name: metric.name.to_owned(),
            title: title.clone(),
            description: format!("Medians of {head} over {across}."),
            x: (across.clone(), scale),
            y: (head, Scale::Linear),
            lines: curves.to_vec(),
            marks: Vec::new(),
        };
        Sheet { drawn: lines.picture_with_names(&names), says: String::new(), text, marks: 0 }
    };
    curves.chunks(CURVES_MAX).map(sheet).collect()
}

fn table(title: &str, x: &str, curves: &[Line], names: &[(f64, String)]) -> Table {
    let mut table = curves
        .iter()
        .fold(Table::new(title).number_column(x), |table, curve| table.number_column(&curve.name));
    let mut places: Vec<f64> = curves.iter().flat_map(|curve| &curve.points).map(|(x, _)| *x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    for x in places {
        let value = |curve: &Line| {
            let point = curve.points.iter().find(|(at, _)| *at == x);
            point.and_then(|(_, y)| *y).map_or("-".to_owned(), readable)
        };
        let name = names.iter().find(|(place, _)| *place == x).map(|(_, name)| name.clone());
        let head = name.unwrap_or_else(|| x.to_string());
        table.row(std::iter::once(head).chain(curves.iter().map(value)));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Question;
    use crate::engine::results::summary::Spread;
    use crate::net::question::Network;

    /// Returns the summary of a sweep of a network with these buffers; 0 is the system's choice.
    fn sweep(buffers: &[u64]) -> Summary {
        let values: Vec<Value> = buffers.iter().map(|bytes| Value::Count(*bytes)).collect();
        let spread = Spread::of(&[94.0]).expect("a value");
        let row = |value: &Value| Row {
            point: [("buffer_bytes", value.clone())].into_iter().collect(),
            count: 1,
            disturbed: 0,
            metrics: [("mbps".to_owned(), spread)].into(),
        };
        Summary {
            question: Network::DESCRIPTION.name().to_owned(),
            version: String::new(),
            rows: values.iter().map(row).collect(),
            varying: [("buffer_bytes".to_owned(), values)].into(),
            fixed: Point::default(),
            metrics: ["mbps".to_owned()].into(),
            environments: Vec::new(),
        }
    }

    #[test]
    fn the_buffers_of_the_system_are_named_on_a_linear_and_a_logarithmic_axis() {
        for buffers in [&[0, 2000, 4000][..], &[0, 4096, 65_536, 4_194_304]] {
            let metrics = Network::DESCRIPTION.metrics().to_vec();
            let figures = draw(&sweep(buffers), &metrics, None, &Explanation::default());
            let picture = &figures.pictures[0];
            let svg = picture.svg();
            assert!(svg.contains(">system</text>") && svg.contains("buffer, bytes: system"), "{svg}");
            // The vertical axis has a zero, too.
            assert_eq!(svg.matches(">0</text>").count(), 1, "{svg}");
            assert!(picture.drawing.data.csv().contains("\nsystem,94\n"), "{:?}", picture.drawing.data);
            assert!(picture.text.contains("\n       system "), "{}", picture.text);
        }
    }

    #[test]
    fn the_table_of_a_summary_has_the_same_names_as_the_figures() {
        let text = sweep(&[0, 2000]).table().to_string();
        assert!(text.contains("\nbuffer, bytes  metric ") && text.contains("\n       system  "), "{text}");
        assert!(text.contains("  Throughput of the payload, Mbit/s  ") && !text.contains("mbps"), "{text}");
    }
}
