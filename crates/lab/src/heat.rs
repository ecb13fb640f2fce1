//! A heat map: figures over two parameters, as SVG and as a table with shades. No dependency, no script, the same bytes
//! for the same figures.
//!
//! Shape     rows go down, columns across; a cell has its figure written into it, and a background by it: light is much.
//! Limits    a cell of the picture has room for about six characters. A map of more than [`COLUMNS_MAX`] columns is
//!           turned before it is shown as a table, which may then still be long.

use crate::chart::plain;
use crate::table::Table;
use std::fmt::Write;

/// So many columns a table for people has at most, if turning it helps.
pub const COLUMNS_MAX: usize = 13;

/// Which figures are dark and which are light.
#[derive(Clone, PartialEq, Debug)]
pub struct Scale {
    /// The figure of the darkest background; less is as dark.
    pub dark: f64,
    /// The figure of the lightest background; more is as light.
    pub light: f64,
    /// Characters by the least figure that they stand for, the greatest first.
    pub shades: Vec<(f64, char)>,
    /// Digits behind the point.
    pub digits: usize,
    /// The unit, for the legend.
    pub unit: String,
}

impl Scale {
    /// From the least to the greatest of `figures`, in five shades.
    pub fn over(figures: impl Iterator<Item = f64>, unit: &str) -> Scale {
        let (dark, light) = figures.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), figure| {
            (least.min(figure), most.max(figure))
        });
        let (dark, light) = if dark <= light { (dark, light) } else { (0.0, 1.0) };
        let digits = match light.abs().max(dark.abs()) {
            most if most >= 1000.0 => 0,
            most if most >= 10.0 => 1,
            _ => 3,
        };
        let shades = [(0.8, '█'), (0.6, '▓'), (0.4, '▒'), (0.2, '░'), (0.0, '·')];
        let shades = shades.map(|(part, shade)| (dark + part * (light - dark), shade)).to_vec();
        Scale { dark, light, shades, digits, unit: unit.to_owned() }
    }

    fn shade(&self, figure: f64) -> char {
        let found = self.shades.iter().find(|(least, _)| figure >= *least).or(self.shades.last());
        found.map_or(' ', |(_, shade)| *shade)
    }

    fn share(&self, figure: f64) -> f64 {
        let length = self.light - self.dark;
        if length > 0.0 { ((figure - self.dark) / length).clamp(0.0, 1.0) } else { 1.0 }
    }

    fn legend(&self) -> String {
        let words = self.shades.iter().map(|(least, shade)| {
            let digits = if least.fract() == 0.0 { 0 } else { self.digits };
            format!("{shade} from {least:.digits$}")
        });
        format!("{} {} on", words.collect::<Vec<_>>().join(", "), self.unit)
    }
}

/// A map: rows of cells.
#[derive(Clone, PartialEq, Debug)]
pub struct Heat {
    /// Heads of the columns.
    pub columns: Vec<String>,
    /// Heads of the rows.
    pub rows: Vec<String>,
    /// Rows of cells, one a column; none where there is no data.
    pub cells: Vec<Vec<Option<f64>>>,
    /// Dark and light.
    pub scale: Scale,
}

impl Heat {
    /// Rows for columns.
    pub fn turned(&self) -> Heat {
        let column = |at: usize| self.cells.iter().map(|row| row[at]).collect();
        Heat {
            columns: self.rows.clone(),
            rows: self.columns.clone(),
            cells: (0..self.columns.len()).map(column).collect(),
            scale: self.scale.clone(),
        }
    }

    /// As a picture of the form SVG, under a caption.
    pub fn svg(&self, caption: &str) -> String {
        const SIDE: usize = 44;
        const MARGIN: usize = 64;
        let (width, height) = (MARGIN + SIDE * self.columns.len() + 8, MARGIN + SIDE * self.rows.len() / 2);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
             font-size=\"11\">\n<text x=\"8\" y=\"16\">{}</text>\n",
            plain(caption)
        );
        for (column, head) in self.columns.iter().enumerate() {
            let x = MARGIN + SIDE * column + SIDE / 2;
            let head = plain(head);
            let _ = writeln!(svg, "<text x=\"{x}\" y=\"36\" text-anchor=\"middle\">{head}</text>");
        }
        for (row, head) in self.rows.iter().enumerate() {
            let y = 44 + SIDE / 2 * row;
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                MARGIN - 6,
                y + 15,
                plain(head)
            );
            for (column, cell) in self.cells[row].iter().enumerate() {
                let x = MARGIN + SIDE * column;
                // Light is much; the text stands out on both.
                let share = cell.map_or(1.0, |figure| self.scale.share(figure));
                let (red, green, blue) = (150.0 + 90.0 * share, 40.0 + 200.0 * share, 40.0 + 180.0 * share);
                let ink = if share < 0.35 { "white" } else { "black" };
                let _ = writeln!(
                    svg,
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{SIDE}\" height=\"{}\" fill=\"rgb({red:.0},{green:.0},{blue:.0})\"/>\
                     <text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"{ink}\">{}</text>",
                    SIDE / 2,
                    x + SIDE / 2,
                    y + 15,
                    cell.map_or("-".to_owned(), |figure| format!("{figure:.*}", self.scale.digits)),
                );
            }
        }
        svg + "</svg>\n"
    }

    /// For people: numbers with a shade before each.
    pub fn table(&self, title: &str) -> Table {
        let heads =
            self.columns.iter().fold(Table::new(title).numbers(""), |table, head| table.numbers(head));
        let mut table = heads;
        for (head, row) in self.rows.iter().zip(&self.cells) {
            let cells = row.iter().map(|cell| match cell {
                Some(figure) => format!("{}{figure:5.*}", self.scale.shade(*figure), self.scale.digits),
                None => "-".to_owned(),
            });
            table.row(std::iter::once(head.clone()).chain(cells));
        }
        table.remark(self.scale.legend());
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heat() -> Heat {
        Heat {
            columns: vec!["1".into(), "2".into(), "3".into()],
            rows: vec!["a<b".into(), "c".into()],
            cells: vec![vec![Some(0.0), Some(50.0), None], vec![Some(100.0), Some(79.9), Some(80.0)]],
            scale: Scale::over([0.0, 50.0, 100.0].into_iter(), "Mbit/s"),
        }
    }

    #[test]
    fn a_cell_without_data_has_a_dash_and_no_shade() {
        let text = heat().table("title").to_string();
        assert!(text.contains("a<b  ·  0.0  ▒ 50.0       -"), "{text}");
        assert!(text.contains("  c  █100.0  ▓ 79.9  █ 80.0"), "{text}");
        assert!(text.ends_with("█ from 80, ▓ from 60, ▒ from 40, ░ from 20, · from 0 Mbit/s on\n"), "{text}");
        let svg = heat().svg("x & y");
        assert_eq!((svg.matches("<rect").count(), svg.matches(">-</text>").count()), (6, 1));
        assert!(svg.contains("x &amp; y") && svg.contains("a&lt;b"));
    }

    #[test]
    fn a_turned_map_has_the_same_cells() {
        let turned = heat().turned();
        assert_eq!((turned.rows.len(), turned.columns.len()), (3, 2));
        assert_eq!(turned.cells[2], [None, Some(80.0)]);
        assert_eq!(turned.turned(), heat());
    }

    #[test]
    fn equal_figures_are_light_and_no_figures_are_no_fault() {
        let scale = Scale::over([3.0, 3.0].into_iter(), "ms");
        assert_eq!((scale.share(3.0), scale.digits), (1.0, 3));
        assert_eq!(Scale::over(std::iter::empty(), "ms").light, 1.0);
    }
}
