//! Stacked time series: the contribution of each series to their sum.
//!
//! The layers are step functions, because a rate holds for an interval; the first series is the lowest layer.
//! A limit is a dashed line with a caption.

use super::axis::{Axis, Scale};
use super::canvas::{Canvas, at, value, width};
use super::lines::Line;
use super::svg::{COLOURS, Picture};
use crate::report::data::{Data, number};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 56.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 50.0;

/// A stacked chart.
#[derive(Clone, PartialEq, Debug)]
pub struct Stacked {
    /// The figure's name, usable as a file name.
    pub name: String,
    /// The title.
    pub title: String,
    /// A description for screen readers.
    pub description: String,
    /// The name of the horizontal axis.
    pub x: String,
    /// The name of the vertical axis.
    pub y: String,
    /// The series from the bottom up. All have the same horizontal positions, ascending; `None` counts as
    /// zero.
    pub layers: Vec<Line>,
    /// A limit and its caption.
    pub limit: Option<(f64, String)>,
}

impl Stacked {
    /// Draws the figure.
    pub fn picture(self) -> Picture {
        let names = self.layers.iter().map(|layer| width(&layer.name, 12.0)).fold(0.0, f64::max);
        let right = WIDTH - (names + 42.0).clamp(60.0, 240.0);
        let places: Vec<f64> = self
            .layers
            .first()
            .map(|layer| layer.points.iter().map(|(x, _)| *x).collect())
            .unwrap_or_default();
        let of = |layer: &Line, place: usize| layer.points.get(place).and_then(|(_, y)| *y).unwrap_or(0.0);
        let sum =
            |upto: usize, place: usize| self.layers[..upto].iter().map(|layer| of(layer, place)).sum::<f64>();
        let all = self.layers.len();
        let tops =
            (0..places.len()).map(|place| sum(all, place)).chain(self.limit.iter().map(|(limit, _)| *limit));
        // A step extends to the next position; the last one is as long as the one before.
        let last = places
            .last()
            .map(|last| last + places.len().checked_sub(2).map_or(1.0, |before| last - places[before]));
        let end = |place: usize| places.get(place + 1).copied().or(last).unwrap_or(1.0);
        let x = Axis::new(Scale::Range, places.iter().copied().chain(last), (LEFT, right));
        let y = Axis::new(Scale::Linear, tops, (HEIGHT - BOTTOM, TOP));
        let mut canvas = Canvas::default();
        for mark in &y.marks {
            canvas.add(format!("<path class=\"grid\" d=\"M{LEFT} {}H{}\"/>", at(y.at(*mark)), at(right)));
            canvas.words(LEFT - 8.0, y.at(*mark) + 4.0, "soft end", &value(*mark));
        }
        for mark in &x.marks {
            canvas.words(x.at(*mark), HEIGHT - BOTTOM + 19.0, "soft mid", &value(*mark));
        }
        for (number, layer) in self.layers.iter().enumerate() {
            let edge = |upto: usize, place: usize| {
                let up = at(y.at(sum(upto, place)));
                [format!("{},{up}", at(x.at(places[place]))), format!("{},{up}", at(x.at(end(place))))]
            };
            let above: Vec<String> = (0..places.len()).flat_map(|place| edge(number + 1, place)).collect();
            let below: Vec<String> =
                (0..places.len()).rev().flat_map(|place| edge(number, place).into_iter().rev()).collect();
            let path = [above, below].concat().join(" ");
            canvas.add(format!("<polygon class=\"layer f{}\" points=\"{path}\"/>", layer.series % COLOURS));
            let row = TOP + 12.0 + 20.0 * (all - 1 - number) as f64;
            canvas.add(format!(
                "<path class=\"f{}\" d=\"M{} {}h13v13h-13z\"/>",
                layer.series % COLOURS,
                at(right + 10.0),
                at(row - 7.0)
            ));
            canvas.words(right + 29.0, row + 4.0, "", &layer.name);
        }
        if let Some((limit, what)) = &self.limit {
            canvas.add(format!("<path class=\"limit\" d=\"M{LEFT} {}H{}\"/>", at(y.at(*limit)), at(right)));
            canvas.words(right - 4.0, y.at(*limit) - 5.0, "small end", &format!("{what} {}", value(*limit)));
        }
        canvas.add(format!("<path class=\"axis\" d=\"M{LEFT} {}H{}\"/>", at(HEIGHT - BOTTOM), at(right)));
        canvas.words((LEFT + right) / 2.0, HEIGHT - 10.0, "mid", &self.x);
        canvas.words(8.0, 16.0, "", &self.y);
        for (place, &moment) in places.iter().enumerate() {
            let mut says = format!("{} {}\nsum: {}", value(moment), self.x, value(sum(all, place)));
            for layer in self.layers.iter().rev() {
                says += &format!("\n{}: {}", layer.name, value(of(layer, place)));
            }
            let (from, to) = (x.at(moment), x.at(end(place)));
            let element = format!(
                "<rect class=\"hit v\" x=\"{}\" y=\"{TOP}\" width=\"{}\" height=\"{}\"",
                at(from),
                at((to - from).max(0.0)),
                at(HEIGHT - BOTTOM - TOP)
            );
            canvas.place(&element, &says);
        }
        let mut head = vec![self.x.clone()];
        head.extend(self.layers.iter().map(|layer| layer.name.clone()));
        let row = |place: usize| {
            let values = self.layers.iter().map(|layer| number(of(layer, place)));
            std::iter::once(number(places[place])).chain(values).collect()
        };
        let data = Data { head, rows: (0..places.len()).map(row).collect() };
        let Stacked { name, title, description, .. } = self;
        Picture { name, title, description, data, width: WIDTH, height: HEIGHT, elements: canvas.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_stacked() {
        let layer = |series, name: &str, values: [f64; 2]| Line {
            name: name.into(),
            series,
            points: vec![(0.0, Some(values[0])), (1.0, Some(values[1]))],
            dashed: false,
        };
        let stacked = Stacked {
            name: "s".into(),
            title: "s".into(),
            description: "d".into(),
            x: "s".into(),
            y: "Mbit/s".into(),
            layers: vec![layer(0, "video", [7.0, 8.0]), layer(1, "audio", [1.0, 2.0])],
            limit: Some((10.0, "policed at".into())),
        };
        let picture = stacked.picture();
        // Values from 0 to 10 are drawn over 256 pixels: 7 is at 110.8, 8 at 85.2.
        assert!(picture.elements.contains("points=\"56,110.8 "), "{}", picture.elements);
        assert!(picture.elements.contains("1 s\nsum: 10\naudio: 2\nvideo: 8"));
        assert_eq!(picture.data.csv(), "s,video,audio\n0,7,1\n1,8,2\n");
        assert_eq!(picture.elements.matches("<polygon").count(), 2);
    }

    #[test]
    fn an_empty_figure_draws_nothing() {
        let empty = Stacked {
            name: "e".into(),
            title: String::new(),
            description: String::new(),
            x: String::new(),
            y: String::new(),
            layers: Vec::new(),
            limit: None,
        };
        assert!(empty.picture().data.rows.is_empty());
    }
}
