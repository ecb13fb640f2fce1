//! The packets of one connection, one below the other, between two vertical lines: the client's and the
//! server's. A standalone SVG file.
//!
//! Time  is not to scale: a long gap is drawn longer, but not proportionally.

use super::canvas::Canvas;
use crate::report::escape::text;

const WIDTH: f64 = 720.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 560.0;

/// One packet.
#[derive(Clone, PartialEq, Debug)]
pub struct Rung {
    /// The packet, in words.
    pub words: String,
    /// The time since the previous packet, in words.
    pub gap: String,
    /// The time since the previous packet, ms.
    pub gap_ms: f64,
    /// Whether the gap is marked as a stall.
    pub is_late: bool,
    /// Whether the client sent the packet.
    pub sent: bool,
    /// Whether the packet carries data.
    pub has_data: bool,
}

/// A ladder of packets.
#[derive(Clone, PartialEq, Debug)]
pub struct Ladder {
    /// The title.
    pub title: String,
    /// The line below the title.
    pub subtitle: String,
    /// The packets, in the order of time.
    pub rungs: Vec<Rung>,
}

impl Ladder {
    /// Returns a standalone SVG file.
    pub fn svg(&self) -> String {
        let mut y = 84.0;
        let mut body = Canvas::default();
        for Rung { words, gap, gap_ms, is_late, sent, has_data } in &self.rungs {
            y += 24.0 + gap_ms.min(60.0) * 2.0;
            let colour = if *is_late { "#d55e00" } else { "black" };
            let (from, to, head) = if *sent { (LEFT, RIGHT, -8.0) } else { (RIGHT, LEFT, 8.0) };
            body.add(format!(
                "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"{colour}\">+{}</text>\
                 <path d=\"M{from} {y:.1}L{to} {:.1}m{head} -5l{} 5l{head} 3\" stroke=\"{}\" fill=\"none\"/>\
                 <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                text(gap),
                y + 8.0,
                -head,
                if *has_data { "#0072b2" } else { "#888" },
                (LEFT + RIGHT) / 2.0,
                y - 2.0,
                text(words)
            ));
        }
        let height = y + 30.0;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
             font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{height:.0}\" fill=\"white\"/>\n<text \
             x=\"8\" y=\"18\" \
             font-size=\"14\">{}</text>\n<text x=\"8\" y=\"38\">{}</text>\n<text \
             x=\"{LEFT}\" y=\"64\" \
             text-anchor=\"middle\">client</text><text x=\"{RIGHT}\" y=\"64\" \
             text-anchor=\"middle\">server</text>\n<path \
             d=\"M{LEFT} 70V{y:.0}M{RIGHT} 70V{y:.0}\" stroke=\"black\"/>\n{}</svg>\n",
            text(&self.title),
            text(&self.subtitle),
            body.0
        )
    }
}
