//! Horizontal stacked bars: one row per case, one colour per part.

use super::axis::{Axis, Scale};
use super::canvas::{Canvas, at, value, width};
use super::svg::{COLOURS, Picture};
use crate::report::data::{Data, number};

const WIDTH: f64 = 760.0;

const ROW: f64 = 34.0;
const BAR: f64 = 22.0;

/// A bar chart.
#[derive(Clone, PartialEq, Debug)]
pub struct Bars {
    /// The figure's name, usable as a file name.
    pub name: String,
    /// The title.
    pub title: String,
    /// A description for screen readers.
    pub description: String,
    /// The quantity and its unit.
    pub unit: String,
    /// The names of the parts, from the left, with the numbers of their colours.
    pub parts: Vec<(String, usize)>,
    /// The cases, from the top, with one value per part.
    pub cases: Vec<(String, Vec<f64>)>,
}

impl Bars {
    /// Draws the figure.
    pub fn picture(self) -> Picture {
        let left = self.cases.iter().map(|(case, _)| width(case, 12.0)).fold(40.0, f64::max) + 22.0;
        let right = WIDTH - 60.0;
        // A single part needs no legend.
        let top = if self.parts.len() > 1 { 40.0 } else { 8.0 };
        let bottom = top + ROW * self.cases.len() as f64;
        let sums = || self.cases.iter().map(|(_, lengths)| lengths.iter().sum::<f64>());
        // All totals are shown with as many decimals as the largest one.
        let largest = sums().fold(0.0, f64::max);
        let x = Axis::new(Scale::Linear, sums(), (left, right));
        let mut canvas = Canvas::default();
        let mut place = 8.0;
        if self.parts.len() > 1 {
            for (part, colour) in &self.parts {
                let colour = colour % COLOURS;
                canvas.add(format!("<path class=\"f{colour}\" d=\"M{} 9h13v13h-13z\"/>", at(place)));
                canvas.words(place + 18.0, 20.0, "", part);
                place += 18.0 + width(part, 12.0) + 18.0;
            }
        }
        for mark in &x.marks {
            canvas.add(format!("<path class=\"grid\" d=\"M{} {top}V{}\"/>", at(x.at(*mark)), at(bottom)));
            canvas.words(x.at(*mark), bottom + 18.0, "soft mid", &value(*mark));
        }
        for (row, (case, lengths)) in self.cases.iter().enumerate() {
            let y = top + ROW * row as f64 + (ROW - BAR) / 2.0;
            canvas.words(left - 10.0, y + BAR * 0.7, "end", case);
            let mut from = 0.0;
            for ((part, colour), length) in self.parts.iter().zip(lengths) {
                let (begin, end) = (x.at(from), x.at(from + length));
                let element = format!(
                    "<rect class=\"bar v f{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{BAR}\"",
                    colour % COLOURS,
                    at(begin),
                    at(y),
                    at((end - begin).max(0.0))
                );
                canvas.place(&element, &format!("{case}\n{part}: {} {}", value(*length), self.unit));
                from += length;
            }
            let sum = if largest < 100.0 { value(from) } else { format!("{from:.1}") };
            canvas.words(x.at(from) + 7.0, y + BAR * 0.7, "small", &sum);
        }
        canvas.add(format!("<path class=\"axis\" d=\"M{} {top}V{}\"/>", at(left), at(bottom)));
        canvas.words((left + right) / 2.0, bottom + 38.0, "mid", &self.unit);
        let mut head = vec![String::new()];
        head.extend(self.parts.iter().map(|(part, _)| part.clone()));
        let rows = self.cases.iter().map(|(case, lengths)| {
            std::iter::once(case.as_str().into())
                .chain(lengths.iter().map(|length| number(*length)))
                .collect()
        });
        let data = Data { rows: rows.collect(), head };
        let Bars { name, title, description, .. } = self;
        Picture { name, title, description, data, width: WIDTH, height: bottom + 48.0, elements: canvas.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_end_to_end() {
        let bars = Bars {
            name: "b".into(),
            title: "b".into(),
            description: "d".into(),
            unit: "s".into(),
            parts: vec![("FTAM".into(), 0), ("LIF".into(), 1)],
            cases: vec![("sender".into(), vec![1.0, 3.0]), ("receiver".into(), vec![2.0, 0.0])],
        };
        let elements = bars.picture().elements;
        assert_eq!(elements.matches("<rect").count(), 4);
        let places: Vec<f64> = elements
            .lines()
            .filter(|line| line.starts_with("<rect"))
            .filter_map(|line| line.split(" x=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        assert!(places[0] == places[2] && places[1] < places[3], "{places:?}");
        assert!(elements.contains("sender\nLIF: 3 s"));
    }
}
