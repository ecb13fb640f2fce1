//! A line chart as SVG: no dependency, no script, the same bytes for the same figure.
//!
//! Shape     one polyline a curve, with its name in a legend; axes with round steps. A point without data ends its line.
//! Limits    the vertical axis begins at zero: differences of a percent are for the table beside it.

use crate::reproduce::Figure;
use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
/// Colours that the colour-blind tell apart (Okabe and Ito 2008).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// Draws a figure.
pub fn svg(figure: &Figure) -> String {
    let points = || figure.curves.iter().flat_map(|curve| &curve.points);
    let x_most = points().map(|(x, _)| *x).fold(1.0, f64::max);
    let y_most = points().filter_map(|(_, y)| *y).fold(1.0, f64::max);
    let (x_step, y_step) = (step(x_most), step(y_most));
    let (x_end, y_end) = ((x_most / x_step).ceil() * x_step, (y_most / y_step).ceil() * y_step);
    let x_at = |x: f64| LEFT + x / x_end * (WIDTH - LEFT - RIGHT);
    let y_at = |y: f64| HEIGHT - BOTTOM - y / y_end * (HEIGHT - TOP - BOTTOM);

    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let mut add = |line: String| writeln!(text, "{line}").expect("a string takes all");
    add(format!("<text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{}</text>", plain(&figure.title)));
    let (right, bottom) = (x_at(x_end), y_at(0.0));
    for y in steps(y_step, y_end) {
        let at = y_at(y);
        add(format!("<path d=\"M{LEFT} {at:.1}H{right:.1}\" stroke=\"#ddd\"/>"));
        add(format!("<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{y}</text>", LEFT - 6.0, at + 4.0));
    }
    for x in steps(x_step, x_end) {
        let at = x_at(x);
        add(format!(
            "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{x}</text>",
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
                .filter_map(|(x, y)| y.map(|y| format!("{:.1},{:.1}", x_at(*x), y_at(y))))
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
fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::Curve;

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
    fn axes_have_round_steps() {
        for (most, expected) in
            [(133.4, 20.0), (60.0, 10.0), (256.0, 50.0), (1.0, 0.1), (10.0, 1.0), (99.0, 10.0)]
        {
            assert!((step(most) - expected).abs() < 1e-9, "{most}: {}", step(most));
        }
    }
}
