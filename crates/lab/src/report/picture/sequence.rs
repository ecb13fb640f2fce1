//! Sequence diagrams: the messages between two hosts, one arrow per line with the time since the previous
//! one.
//!
//! The vertical axis is time, but not to scale, because intervals differ by orders of magnitude. Long waits
//! are marked by a band with a caption.

use super::canvas::{Canvas, at, value};
use super::svg::Picture;
use crate::report::data::{Data, number};

const WIDTH: f64 = 620.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 590.0;
const TOP: f64 = 34.0;
const ROW: f64 = 25.0;
const WAIT: f64 = 34.0;

/// The direction of an arrow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From left to right.
    Right,
    /// From right to left.
    Left,
}

/// One message.
#[derive(Clone, PartialEq, Debug)]
pub struct Arrow {
    /// Time since the previous arrow, milliseconds.
    pub after_ms: f64,
    /// The direction.
    pub direction: Direction,
    /// The text of the arrow.
    pub what: String,
    /// The reason for a long wait before the arrow.
    pub wait: Option<String>,
}

/// A sequence diagram.
#[derive(Clone, PartialEq, Debug)]
pub struct Sequence {
    /// The figure's name, usable as a file name.
    pub name: String,
    /// The title.
    pub title: String,
    /// A description for screen readers.
    pub description: String,
    /// The hosts, left and right.
    pub ends: [String; 2],
    /// The messages, in order.
    pub arrows: Vec<Arrow>,
}

impl Sequence {
    /// Draws the figure.
    pub fn picture(self) -> Picture {
        let waits = self.arrows.iter().filter(|arrow| arrow.wait.is_some()).count() as f64;
        let high = TOP + 14.0 + ROW * self.arrows.len() as f64 + WAIT * waits + 10.0;
        let mut canvas = Canvas::default();
        canvas.words(LEFT, 18.0, "strong mid", &self.ends[0]);
        canvas.words(RIGHT, 18.0, "strong end", &self.ends[1]);
        canvas.words(8.0, 18.0, "soft", "ms since");
        let mut y = TOP + 6.0;
        for Arrow { after_ms, direction, what, wait } in &self.arrows {
            if let Some(why) = wait {
                canvas.add(format!(
                    "<path class=\"wait\" d=\"M{} {}H{}v{WAIT}H{}z\"/>",
                    at(LEFT - 60.0),
                    at(y - ROW / 2.0 + 8.0),
                    at(RIGHT),
                    at(LEFT - 60.0)
                ));
                let words = format!("{} ms: {why}", value(*after_ms));
                canvas.words((LEFT + RIGHT) / 2.0, y + 16.0, "strong mid", &words);
                y += WAIT;
            }
            y += ROW / 2.0;
            canvas.words(LEFT - 68.0, y + 4.0, "soft end", &format!("{after_ms:.1}"));
            let (from, to, head, class) = match direction {
                Direction::Right => (LEFT, RIGHT, "l-9-4.5v9z", 0),
                Direction::Left => (RIGHT, LEFT, "l9-4.5v9z", 1),
            };
            let stop = if from < to { to - 8.0 } else { to + 8.0 };
            canvas.add(format!(
                "<path class=\"s{class}\" stroke-width=\"1.75\" d=\"M{} {}H{}\"/>",
                at(from),
                at(y),
                at(stop)
            ));
            canvas.add(format!("<path class=\"f{class}\" d=\"M{} {}{head}\"/>", at(to), at(y)));
            canvas.words((LEFT + RIGHT) / 2.0, y - 4.0, "small mid", what);
            let says = format!("{what}\n{} ms after the previous line", value(*after_ms));
            let element = format!(
                "<rect class=\"hit v\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{ROW}\"",
                at(LEFT - 60.0),
                at(y - ROW / 2.0 - 4.0),
                at(RIGHT - LEFT + 60.0)
            );
            canvas.place(&element, &says);
            y += ROW / 2.0;
        }
        canvas
            .add(format!("<path class=\"axis\" d=\"M{LEFT} {TOP}V{0}M{RIGHT} {TOP}V{0}\"/>", at(high - 6.0)));
        let data = self.data();
        let Sequence { name, title, description, .. } = self;
        Picture { name, title, description, data, width: WIDTH, height: high, elements: canvas.0 }
    }

    fn data(&self) -> Data {
        let head = ["ms since the line before", "from", "to", "what", "wait"].map(str::to_owned).to_vec();
        let row = |arrow: &Arrow| {
            let [left, right] = &self.ends;
            let (from, to) = if arrow.direction == Direction::Right { (left, right) } else { (right, left) };
            vec![
                number(arrow.after_ms),
                from.as_str().into(),
                to.as_str().into(),
                arrow.what.as_str().into(),
                arrow.wait.as_deref().unwrap_or_default().into(),
            ]
        };
        Data { rows: self.arrows.iter().map(row).collect(), head }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_go_both_ways_and_waits_have_a_band() {
        let arrow = |direction, what: &str, wait: Option<&str>| Arrow {
            after_ms: 46.8,
            direction,
            what: what.into(),
            wait: wait.map(str::to_owned),
        };
        let sequence = Sequence {
            name: "s".into(),
            title: "s".into(),
            description: "d".into(),
            ends: ["writer".into(), "reader".into()],
            arrows: vec![
                arrow(Direction::Right, "4400 bytes", None),
                arrow(Direction::Left, "<ack>", Some("the reader's clock")),
            ],
        };
        let picture = sequence.picture();
        assert_eq!(picture.elements.matches("class=\"wait\"").count(), 1);
        assert!(
            picture.elements.contains("46.8 ms: the reader&#39;s clock")
                && picture.elements.contains("&lt;ack&gt;")
        );
        assert_eq!(picture.data.rows[1][1], "reader");
        assert_eq!(picture.data.rows.len(), 2);
    }
}
