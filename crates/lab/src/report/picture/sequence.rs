//! Sequence diagrams: the messages between two hosts, one arrow per line with the time since the previous
//! one.
//!
//! The vertical axis is time, but not to scale, because intervals differ by orders of magnitude. Long waits
//! are marked by a band with a caption. The hosts are as far apart as the longest text needs, so that short
//! texts fit on a narrow screen.

use super::canvas::{Canvas, at, value, width};
use super::svg::Picture;
use crate::report::data::{Data, number};

/// The hosts' lines: where the left one is, and the least distance of the right one.
const LEFT: f64 = 84.0;
const ACROSS_MIN: f64 = 240.0;
const MARGIN: f64 = 12.0;
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
        let wait =
            |arrow: &Arrow| arrow.wait.as_ref().map(|why| format!("{} ms: {why}", value(arrow.after_ms)));
        // Strong texts are wider.
        let heads = width(&self.ends.concat(), 13.0);
        let texts = self.arrows.iter().map(|arrow| {
            let strong = wait(arrow).map_or(0.0, |words| width(&words, 13.0));
            width(&arrow.what, 11.0).max(strong)
        });
        let right = LEFT + (texts.fold(heads, f64::max) + 40.0).max(ACROSS_MIN);
        let mut canvas = Canvas::default();
        canvas.words(LEFT, 18.0, "strong", &self.ends[0]);
        canvas.words(right, 18.0, "strong end", &self.ends[1]);
        canvas.words(8.0, 18.0, "soft", "gap, ms");
        let mut y = TOP + 6.0;
        for arrow in &self.arrows {
            let Arrow { after_ms, direction, what, .. } = arrow;
            if let Some(words) = wait(arrow) {
                canvas.add(format!(
                    "<path class=\"wait\" d=\"M{} {}H{}v{WAIT}H{}z\"/>",
                    at(MARGIN),
                    at(y - ROW / 2.0 + 8.0),
                    at(right),
                    at(MARGIN)
                ));
                canvas.words((LEFT + right) / 2.0, y + 16.0, "strong mid", &words);
                y += WAIT;
            }
            y += ROW / 2.0;
            let digits = if *after_ms < 1.0 { 3 } else { 1 };
            canvas.words(LEFT - MARGIN, y + 4.0, "soft end", &format!("{after_ms:.digits$}"));
            let (from, to, head, class) = match direction {
                Direction::Right => (LEFT, right, "l-9-4.5v9z", 0),
                Direction::Left => (right, LEFT, "l9-4.5v9z", 1),
            };
            let stop = if from < to { to - 8.0 } else { to + 8.0 };
            canvas.add(format!(
                "<path class=\"s{class}\" stroke-width=\"1.75\" d=\"M{} {}H{}\"/>",
                at(from),
                at(y),
                at(stop)
            ));
            canvas.add(format!("<path class=\"f{class}\" d=\"M{} {}{head}\"/>", at(to), at(y)));
            canvas.words((LEFT + right) / 2.0, y - 4.0, "small mid", what);
            let says = format!("{what}\n{} ms after the previous line", value(*after_ms));
            let element = format!(
                "<rect class=\"hit v\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{ROW}\"",
                at(MARGIN),
                at(y - ROW / 2.0 - 4.0),
                at(right - MARGIN)
            );
            canvas.place(&element, &says);
            y += ROW / 2.0;
        }
        canvas.add(format!(
            "<path class=\"axis\" d=\"M{LEFT} {TOP}V{0}M{1} {TOP}V{0}\"/>",
            at(high - 6.0),
            at(right)
        ));
        let data = self.data();
        let Sequence { name, title, description, .. } = self;
        Picture { name, title, description, data, width: right + MARGIN, height: high, elements: canvas.0 }
    }

    fn data(&self) -> Data {
        let head =
            ["gap since the previous line, ms", "from", "to", "what", "wait"].map(str::to_owned).to_vec();
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
        let sequence_of = |arrows| Sequence {
            name: "s".into(),
            title: "s".into(),
            description: "d".into(),
            ends: ["writer".into(), "reader".into()],
            arrows,
        };
        let picture = sequence_of(vec![
            arrow(Direction::Right, "4400 bytes", None),
            arrow(Direction::Left, "<ack>", Some("the reader's clock")),
        ])
        .picture();
        assert_eq!(picture.elements.matches("class=\"wait\"").count(), 1);
        assert!(
            picture.elements.contains("46.8 ms: the reader&#39;s clock")
                && picture.elements.contains("&lt;ack&gt;")
        );
        assert_eq!(picture.data.rows[1][1], "reader");
        // A phone shows it whole, and a long text fits.
        assert!(picture.width < 370.0, "{}", picture.width);
        let long = vec![arrow(Direction::Right, &"x".repeat(200), None)];
        let long = sequence_of(long).picture();
        assert!(long.width > 84.0 + 200.0 * 11.0 * 0.56, "{}", long.width);
        assert_eq!(picture.data.rows.len(), 2);
    }
}
