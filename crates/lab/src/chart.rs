//! A line chart as SVG: no dependency, no script, the same bytes for the same figure.
//!
//! Shape     one polyline a curve, with its name in a legend; axes with round steps, or logarithmic (one or both) with a mark for
//!           each decade. A point without data ends its line.
//! Limits    a vertical axis that is not logarithmic begins at zero: differences of a percent are for the table beside it.

use crate::reproduce::{Curve, Figure};
use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
/// Colours that the colour-blind tell apart (Okabe and Ito 2008).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// A range of figures along a length of the page.
struct Axis {
    /// Where the range begins and ends, as figures or as their decimal logarithms.
    range: (f64, f64),
    log: bool,
    /// The same on the page.
    page: (f64, f64),
    /// The figures that are written beside it.
    marks: Vec<f64>,
}

impl Axis {
    /// From zero to a round figure.
    fn linear(figures: impl Iterator<Item = f64>, page: (f64, f64)) -> Axis {
        let most = figures.fold(1.0, f64::max);
        let step = step(most);
        let end = (most / step).ceil() * step;
        Axis { range: (0.0, end), log: false, page, marks: steps(step, end).collect() }
    }

    /// From one power of ten to another. Figures that are not positive have no place.
    fn log(figures: impl Iterator<Item = f64>, page: (f64, f64)) -> Axis {
        let logs = figures.filter(|&figure| figure > 0.0).map(f64::log10);
        let (least, most) = logs
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), log| (least.min(log), most.max(log)));
        let range = if least < most { (least.floor(), most.ceil()) } else { (0.0, 1.0) };
        let marks = (range.0 as i32..=range.1 as i32).map(|decade| 10f64.powi(decade)).collect();
        Axis { range, log: true, page, marks }
    }

    fn at(&self, figure: f64) -> f64 {
        let figure = if self.log { figure.log10() } else { figure };
        let part = (figure - self.range.0) / (self.range.1 - self.range.0);
        self.page.0 + part * (self.page.1 - self.page.0)
    }
}

const ACROSS: (f64, f64) = (LEFT, WIDTH - RIGHT);
const UPWARDS: (f64, f64) = (HEIGHT - BOTTOM, TOP);

/// Curves under a title, with what their axes show.
#[derive(Clone, Copy, Debug)]
pub struct Lines<'a> {
    /// What it shows.
    pub title: &'a str,
    /// What goes across.
    pub x: &'a str,
    /// What goes up.
    pub y: &'a str,
    /// The curves.
    pub curves: &'a [Curve],
}

impl<'a> From<&'a Figure> for Lines<'a> {
    fn from(figure: &'a Figure) -> Lines<'a> {
        Lines { title: &figure.title, x: figure.x, y: figure.y, curves: &figure.curves }
    }
}

/// Draws a figure.
pub fn svg<'a>(figure: impl Into<Lines<'a>>) -> String {
    let figure = figure.into();
    let points = || figure.curves.iter().flat_map(|curve| &curve.points);
    let x = Axis::linear(points().map(|(x, _)| *x), ACROSS);
    draw(figure, &x, &Axis::linear(points().filter_map(|(_, y)| *y), UPWARDS))
}

/// Draws a figure whose curves span decades: both axes are logarithmic, and all figures positive.
pub fn svg_log<'a>(figure: impl Into<Lines<'a>>) -> String {
    let figure = figure.into();
    let points = || figure.curves.iter().flat_map(|curve| &curve.points);
    let x = Axis::log(points().map(|(x, _)| *x), ACROSS);
    draw(figure, &x, &Axis::log(points().filter_map(|(_, y)| *y), UPWARDS))
}

/// Draws a figure whose places span decades: its horizontal axis is logarithmic.
pub fn svg_log_x<'a>(figure: impl Into<Lines<'a>>) -> String {
    let figure = figure.into();
    let points = || figure.curves.iter().flat_map(|curve| &curve.points);
    let x = Axis::log(points().map(|(x, _)| *x), ACROSS);
    draw(figure, &x, &Axis::linear(points().filter_map(|(_, y)| *y), UPWARDS))
}

fn draw(figure: Lines<'_>, x: &Axis, y: &Axis) -> String {
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let mut add = |line: String| writeln!(text, "{line}").expect("a string takes all");
    add(format!("<text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{}</text>", plain(figure.title)));
    let (right, bottom) = (x.page.1, y.page.0);
    for mark in &y.marks {
        let at = y.at(*mark);
        add(format!("<path d=\"M{LEFT} {at:.1}H{right:.1}\" stroke=\"#ddd\"/>"));
        add(format!("<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{mark}</text>", LEFT - 6.0, at + 4.0));
    }
    for mark in &x.marks {
        let at = x.at(*mark);
        add(format!(
            "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{mark}</text>",
            HEIGHT - BOTTOM + 16.0
        ));
    }
    add(format!("<path d=\"M{LEFT} {TOP}V{bottom:.1}H{right:.1}\" stroke=\"black\" fill=\"none\"/>"));
    let middle = (LEFT + right) / 2.0;
    add(format!(
        "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        HEIGHT - 12.0,
        plain(figure.x)
    ));
    add(format!(
        "<text x=\"{LEFT}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        TOP - 8.0,
        plain(figure.y)
    ));
    for (number, curve) in figure.curves.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        for run in curve.points.split(|(_, y)| y.is_none()).filter(|run| !run.is_empty()) {
            let line: Vec<String> = run
                .iter()
                .filter_map(|&(across, up)| up.map(|up| format!("{:.1},{:.1}", x.at(across), y.at(up))))
                .collect();
            add(format!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                line.join(" ")
            ));
        }
        let at = TOP + 18.0 * number as f64;
        add(format!("<path d=\"M{:.1} {at:.1}h18\" stroke=\"{colour}\" stroke-width=\"2\"/>", right + 12.0));
        add(format!("<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", right + 36.0, at + 4.0, plain(&curve.name)));
    }
    add("</svg>".to_owned());
    text
}

/// A round step that makes four to ten of an axis.
fn step(most: f64) -> f64 {
    let decade = 10f64.powf(most.log10().floor());
    [0.1, 0.2, 0.5, 1.0]
        .map(|part| part * decade)
        .into_iter()
        .find(|step| most / step <= 10.0)
        .unwrap_or(decade)
}

fn steps(step: f64, end: f64) -> impl Iterator<Item = f64> {
    (0..=(end / step).round() as usize).map(move |number| number as f64 * step)
}

/// Text without what XML would read.
pub(crate) fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_without_data_ends_its_line() {
        let points =
            vec![(0.0, Some(1.0)), (1.0, Some(2.0)), (2.0, None), (3.0, Some(1.0)), (4.0, Some(1.0))];
        let curve = Curve { name: "a<b".to_owned(), points };
        let figure = Figure { name: "f", title: "t & u".to_owned(), x: "x", y: "y", curves: vec![curve] };
        let text = svg(&figure);
        assert_eq!(text.matches("<polyline").count(), 2);
        assert!(text.contains("a&lt;b") && text.contains("t &amp; u"));
        assert_eq!(text, svg(&figure));
    }

    #[test]
    fn decades_are_equally_far_apart() {
        let axis = Axis::log([12.0, 9_000.0, 0.4].into_iter(), (0.0, 500.0));
        assert_eq!(axis.marks, [0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0]);
        for (mark, expected) in axis.marks.iter().zip([0.0, 100.0, 200.0, 300.0, 400.0, 500.0]) {
            assert!((axis.at(*mark) - expected).abs() < 1e-9, "{mark}");
        }
    }

    #[test]
    fn axes_have_round_steps() {
        for (most, expected) in
            [(133.4, 20.0), (60.0, 10.0), (256.0, 50.0), (1.0, 0.1), (10.0, 1.0), (99.0, 10.0)]
        {
            assert!((step(most) - expected).abs() < 1e-9, "{most}: {}", step(most));
        }
    }
}
