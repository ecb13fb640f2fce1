//! Line charts.
//!
//! Curves    one polyline for each run of points that have data; a marker at every point, whose shape differs
//!           from curve to curve; the curve's name at its end. Overlapping names are moved apart.
//! Published values  are diamonds with tooltips.
//! Names     a horizontal position may have a name, such as `system` for the system's choice, instead of its
//!           number.
//! Tooltips  at each horizontal position, the values of all curves.

use super::axis::{Axis, Scale};
use super::canvas::{Canvas, at, value, width};
use super::svg::{COLOURS, Picture};
use crate::report::data::{Data, number};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 372.0;
const LEFT: f64 = 56.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 50.0;
/// The minimum vertical distance between two curve names.
const NAME: f64 = 16.0;
/// The minimum horizontal distance of a tick's number to a named tick.
const TICK: f64 = 40.0;

/// Horizontal positions that have a name.
struct Names<'a>(&'a [(f64, String)]);

impl Names<'_> {
    fn of(&self, x: f64) -> Option<&str> {
        self.0.iter().find(|(place, _)| *place == x).map(|(_, name)| name.as_str())
    }
}

/// One curve.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// The curve's name.
    pub name: String,
    /// The number of the series, which determines colour and marker: the same series has the same number in
    /// all figures of a page.
    pub series: usize,
    /// Points from left to right; `None` means no data.
    pub points: Vec<(f64, Option<f64>)>,
    /// Whether the curve is dashed.
    pub dashed: bool,
}

/// A published value.
#[derive(Clone, PartialEq, Debug)]
pub struct Mark {
    /// The horizontal position.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// A description.
    pub what: String,
}

/// A line chart.
#[derive(Clone, PartialEq, Debug)]
pub struct Lines {
    /// The figure's name, usable as a file name.
    pub name: String,
    /// The title.
    pub title: String,
    /// A description for screen readers.
    pub description: String,
    /// The name and the scale of the horizontal axis.
    pub x: (String, Scale),
    /// The name and the scale of the vertical axis.
    pub y: (String, Scale),
    /// The curves, at most seven (the number of colours).
    pub lines: Vec<Line>,
    /// Published values.
    pub marks: Vec<Mark>,
}

impl Lines {
    /// Draws the figure.
    pub fn picture(self) -> Picture {
        self.picture_with_names(&[])
    }

    /// Draws the figure with names in the place of some horizontal positions.
    pub fn picture_with_names(self, places: &[(f64, String)]) -> Picture {
        let places = Names(places);
        let names = self.lines.iter().map(|line| width(&line.name, 12.0)).fold(0.0, f64::max);
        let right = WIDTH - (names + 34.0).clamp(60.0, 240.0);
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let xs = points().map(|(x, _)| *x).chain(self.marks.iter().map(|mark| mark.x));
        let ys = points().filter_map(|(_, y)| *y).chain(self.marks.iter().map(|mark| mark.y));
        // Keep the points away from the ends of the axis.
        let x = Axis::new(self.x.1, xs, (LEFT + 10.0, right - 10.0));
        let y = Axis::new(self.y.1, ys, (HEIGHT - BOTTOM, TOP));
        let mut canvas = Canvas::default();
        self.frame(&mut canvas, &x, &y, right, &places);
        self.curves(&mut canvas, &x, &y);
        self.names(&mut canvas, &x, &y, right);
        for Mark { x: across, y: up, .. } in &self.marks {
            let (across, up) = (x.at(*across), y.at(*up));
            canvas.add(format!(
                "<path class=\"mark\" d=\"M{} {}l6 6l-6 6l-6-6z\"/>",
                at(across),
                at(up - 6.0)
            ));
        }
        if !self.marks.is_empty() {
            canvas.add(format!("<path class=\"mark\" d=\"M{} 6l6 6l-6 6l-6-6z\"/>", at(right - 62.0)));
            canvas.words(right - 52.0, 16.0, "soft", "published");
        }
        self.places(&mut canvas, &x, right, &places);
        Picture {
            data: self.data(&places),
            name: self.name,
            title: self.title,
            description: self.description,
            width: WIDTH,
            height: HEIGHT,
            elements: canvas.0,
        }
    }

    fn frame(&self, canvas: &mut Canvas, x: &Axis, y: &Axis, right: f64, names: &Names<'_>) {
        for mark in &y.marks {
            let up = y.at(*mark);
            canvas.add(format!("<path class=\"grid\" d=\"M{LEFT} {}H{}\"/>", at(up), at(right)));
            canvas.words(LEFT - 8.0, up + 4.0, "soft end", &value(*mark));
        }
        let is_near = |mark: f64| names.0.iter().any(|(place, _)| (x.at(*place) - x.at(mark)).abs() < TICK);
        let numbers = x.marks.iter().filter(|mark| !is_near(**mark)).map(|mark| (*mark, value(*mark)));
        for (mark, words) in numbers.chain(names.0.iter().cloned()) {
            let across = x.at(mark);
            canvas.add(format!("<path class=\"axis\" d=\"M{} {}v5\"/>", at(across), at(HEIGHT - BOTTOM)));
            canvas.words(across, HEIGHT - BOTTOM + 19.0, "soft mid", &words);
        }
        canvas.add(format!("<path class=\"axis\" d=\"M{LEFT} {}H{}\"/>", at(HEIGHT - BOTTOM), at(right)));
        canvas.words((LEFT + right) / 2.0, HEIGHT - 10.0, "mid", &self.x.0);
        let begins = match self.y.1 {
            Scale::From(begin) => format!("{} (the axis begins at {})", self.y.0, value(begin)),
            _ => self.y.0.clone(),
        };
        canvas.words(8.0, 16.0, "", &begins);
    }

    fn curves(&self, canvas: &mut Canvas, x: &Axis, y: &Axis) {
        for line in &self.lines {
            let colour = line.series % COLOURS;
            let dash = if line.dashed { " dash" } else { "" };
            let places = |run: &[(f64, Option<f64>)]| -> Vec<(f64, f64)> {
                run.iter().filter_map(|&(across, up)| Some((x.at(across), y.at(up?)))).collect()
            };
            for run in line.points.split(|(_, up)| up.is_none()).filter(|run| !run.is_empty()) {
                let places = places(run);
                let path: Vec<String> =
                    places.iter().map(|(across, up)| format!("{},{}", at(*across), at(*up))).collect();
                canvas.add(format!("<polyline class=\"s{colour}{dash}\" points=\"{}\"/>", path.join(" ")));
                // Draw no markers if there are many points.
                if line.points.len() <= 40 {
                    places.iter().for_each(|&place| canvas.add(shape(line.series, place)));
                }
            }
        }
    }

    /// Draws the names of the curves at their ends, moved apart where they would overlap.
    fn names(&self, canvas: &mut Canvas, x: &Axis, y: &Axis, right: f64) {
        let end =
            |line: &Line| line.points.iter().rev().find_map(|&(across, up)| Some((x.at(across), y.at(up?))));
        let mut ends: Vec<(usize, (f64, f64))> =
            self.lines.iter().enumerate().filter_map(|(number, line)| Some((number, end(line)?))).collect();
        ends.sort_by(|(_, one), (_, other)| one.1.total_cmp(&other.1));
        let mut rows: Vec<f64> = ends.iter().map(|(_, (_, up))| *up).collect();
        for at in 1..rows.len() {
            rows[at] = rows[at].max(rows[at - 1] + NAME);
        }
        // Move names that are now below the lower end of the axis back up.
        let mut lowest = HEIGHT - BOTTOM + 4.0;
        for row in rows.iter_mut().rev() {
            *row = row.min(lowest);
            lowest = *row - NAME;
        }
        for ((number, (across, up)), row) in ends.into_iter().zip(rows) {
            let begin = across.max(right - 10.0) + 6.0;
            canvas.add(format!(
                "<path class=\"lead\" d=\"M{} {}L{} {}\"/>",
                at(across + 6.0),
                at(up),
                at(begin + 10.0),
                at(row)
            ));
            let Line { name, series, .. } = &self.lines[number];
            canvas.add(shape(*series, (begin + 14.0, row)));
            canvas.words(begin + 22.0, row + 4.0, "", name);
        }
    }

    /// Returns all horizontal positions, ascending.
    fn across(&self) -> Vec<f64> {
        let points = self.lines.iter().flat_map(|line| &line.points).map(|(x, _)| *x);
        let mut across: Vec<f64> = points.chain(self.marks.iter().map(|mark| mark.x)).collect();
        across.sort_by(f64::total_cmp);
        across.dedup();
        across
    }

    fn places(&self, canvas: &mut Canvas, axis: &Axis, right: f64, names: &Names<'_>) {
        let across = self.across();
        for (number, &x) in across.iter().enumerate() {
            let half = |other: Option<&f64>, border: f64| {
                other.map_or(border, |other| (axis.at(*other) + axis.at(x)) / 2.0)
            };
            let from = half(number.checked_sub(1).and_then(|before| across.get(before)), LEFT);
            let to = half(across.get(number + 1), right);
            let mut says = match names.of(x) {
                Some(name) => format!("{}: {name}", self.x.0),
                None => format!("{} {}", value(x), self.x.0),
            };
            for line in &self.lines {
                if let Some((_, y)) = line.points.iter().find(|(place, _)| *place == x) {
                    says += &format!("\n{}: {}", line.name, y.map_or("no data".to_owned(), value));
                }
            }
            for mark in self.marks.iter().filter(|mark| mark.x == x) {
                says += &format!("\npublished, {}: {}", mark.what, value(mark.y));
            }
            let element = format!(
                "<rect class=\"hit v\" x=\"{}\" y=\"{TOP}\" width=\"{}\" height=\"{}\"",
                at(from),
                at((to - from).max(0.0)),
                at(HEIGHT - BOTTOM - TOP)
            );
            canvas.place(&element, &says);
        }
    }

    fn data(&self, names: &Names<'_>) -> Data {
        let mut head = vec![self.x.0.clone()];
        head.extend(self.lines.iter().map(|line| line.name.clone()));
        let published = !self.marks.is_empty();
        head.extend(published.then(|| "published".to_owned()));
        let row = |&x: &f64| {
            let mut row = vec![names.of(x).map_or_else(|| number(x), Into::into)];
            row.extend(self.lines.iter().map(|line| {
                let point = line.points.iter().find(|(place, _)| *place == x).and_then(|(_, y)| *y);
                point.map_or(serde_json::Value::Null, number)
            }));
            if published {
                let marks = self.marks.iter().filter(|mark| mark.x == x);
                let words: Vec<String> =
                    marks.map(|mark| format!("{}: {}", mark.what, value(mark.y))).collect();
                row.push(words.join("; ").into());
            }
            row
        };
        Data { rows: self.across().iter().map(row).collect(), head }
    }
}

/// Returns the marker of a point of a series.
fn shape(series: usize, (x, y): (f64, f64)) -> String {
    let colour = series % COLOURS;
    let (left, up) = (at(x - 3.5), at(y - 3.5));
    match series % 4 {
        0 => format!("<circle class=\"f{colour}\" cx=\"{}\" cy=\"{}\" r=\"3.5\"/>", at(x), at(y)),
        1 => format!("<path class=\"f{colour}\" d=\"M{left} {up}h7v7h-7z\"/>"),
        2 => format!("<path class=\"f{colour}\" d=\"M{} {}l4.5 8h-9z\"/>", at(x), at(y - 5.0)),
        _ => format!("<path class=\"f{colour}\" d=\"M{} {}l4.5 -8h-9z\"/>", at(x), at(y + 5.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(lines: Vec<Line>) -> Lines {
        Lines {
            name: "f".into(),
            title: "t & u".into(),
            description: "d".into(),
            x: ("x".into(), Scale::Linear),
            y: ("y".into(), Scale::Linear),
            lines,
            marks: vec![Mark { x: 1.0, y: 2.5, what: "the paper's".into() }],
        }
    }

    #[test]
    fn a_point_without_data_ends_its_line() {
        let points =
            vec![(0.0, Some(1.0)), (1.0, Some(2.0)), (2.0, None), (3.0, Some(1.0)), (4.0, Some(1.0))];
        let line = Line { name: "a<b".to_owned(), series: 0, points, dashed: false };
        let picture = example(vec![line]).picture();
        assert_eq!(picture.elements.matches("<polyline").count(), 2);
        assert!(picture.elements.contains("a&lt;b: no data") && !picture.elements.contains("a<b"));
        assert_eq!(picture.data.csv(), "x,a<b,published\n0,1,\n1,2,the paper's: 2.5\n2,,\n3,1,\n4,1,\n");
        assert!(picture.standalone().contains("<title id=\"f-title\">t &amp; u</title>"));
    }

    #[test]
    fn a_position_with_a_name_has_it_on_the_axis_in_the_tooltip_and_in_the_data() {
        let points = [512.0, 1024.0, 2048.0, 131_072.0].map(|x| (x, Some(x))).to_vec();
        let line = Line { name: "rate".into(), series: 0, points, dashed: false };
        let lines =
            Lines { x: ("buffers".into(), Scale::Doublings), marks: Vec::new(), ..example(vec![line]) };
        let names = [(512.0, "system".to_owned())];
        let picture = lines.picture_with_names(&names);
        assert!(picture.elements.contains(">system</text>") && !picture.elements.contains(">512</text>"));
        assert!(picture.elements.contains("<title>buffers: system\nrate: 512"), "{}", picture.elements);
        assert!(picture.data.csv().starts_with("buffers,rate\nsystem,512\n1024,1024\n"));
    }

    #[test]
    fn curve_names_do_not_overlap() {
        let line = |name: usize| Line {
            name: format!("curve {name}"),
            series: name,
            points: vec![(0.0, Some(1.0)), (1.0, Some(0.01 * name as f64))],
            dashed: false,
        };
        let elements = example((0..7).map(line).collect()).picture().elements;
        let mut rows: Vec<f64> = elements
            .lines()
            .filter(|line| line.contains(">curve "))
            .filter_map(|line| line.split("y=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        rows.sort_by(f64::total_cmp);
        assert_eq!(rows.len(), 7);
        assert!(rows.windows(2).all(|two| two[1] - two[0] > NAME - 0.2), "{rows:?}");
        assert!(rows.iter().all(|row| *row < HEIGHT - BOTTOM + 10.0), "{rows:?}");
    }
}
