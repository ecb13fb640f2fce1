//! Heat maps for a terminal: values over two parameters as a table, with a shade character before each.
//!
//! A caller transposes a map that has more than [`COLUMNS_MAX`] columns and fewer rows than columns. SVG heat
//! maps are drawn by [`crate::report::picture`].

use crate::table::{Table, readable};

/// The maximum number of columns in a map. A map with more columns is transposed if that makes it narrower.
pub const COLUMNS_MAX: usize = 13;

/// Which values of a metric are good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Best {
    /// High values, for example of throughput.
    High,
    /// Low values, for example of latency.
    Low,
}

/// Returns the lower bounds of `count` steps of a scale, ascending. The scale covers the values and at least
/// a factor of two, so that noise of a few percent does not look like a difference. It is logarithmic if the
/// values are positive and differ by a factor of 100 or more.
pub(crate) fn bounds(count: usize, figures: impl Iterator<Item = f64>, best: Best) -> Vec<f64> {
    let (least, most) = min_max(figures);
    let (least, most) = match best {
        Best::High if least >= 0.0 => (least.min(most / 2.0), most),
        Best::Low if least >= 0.0 => (least, most.max(least * 2.0)),
        _ => (least, most),
    };
    let part = |step: usize| step as f64 / count as f64;
    let bound = |step| match most / least {
        ratio if least > 0.0 && ratio >= 100.0 => least * ratio.powf(part(step)),
        _ => least + part(step) * (most - least),
    };
    (0..count).map(bound).collect()
}

/// Formats a value with the digits of its map; a value that would become zero has the digits that it needs.
pub(crate) fn rounded(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let is_zero = text.chars().all(|letter| matches!(letter, '-' | '0' | '.'));
    if is_zero && value != 0.0 { readable(value) } else { text }
}

/// Returns what a legend says if several maps share one scale.
pub(crate) fn sharing(maps: usize) -> Option<String> {
    (maps > 1).then(|| format!("one scale for all {maps} maps of this measure"))
}

/// The mapping of values to shade characters.
#[derive(Clone, PartialEq, Debug)]
pub struct Shades {
    /// The lower bound and the character of each shade, in descending order.
    pub shades: Vec<(f64, char)>,
    /// Digits after the decimal point.
    pub digits: usize,
    /// The unit, for the legend.
    pub unit: String,
}

impl Shades {
    /// Divides the range of `figures` into five shades; the best values have the fullest one.
    pub fn over(figures: impl Iterator<Item = f64> + Clone, unit: &str, best: Best) -> Shades {
        let (least, most) = min_max(figures.clone());
        let digits = match least.abs().max(most.abs()) {
            most if most >= 1000.0 => 0,
            most if most >= 10.0 => 1,
            _ => 3,
        };
        let mut shades = ['·', '░', '▒', '▓', '█'];
        if best == Best::Low {
            shades.reverse();
        }
        let shades = bounds(shades.len(), figures, best).into_iter().zip(shades).rev().collect();
        Shades { shades, digits, unit: unit.to_owned() }
    }

    fn shade(&self, figure: f64) -> char {
        let found = self.shades.iter().find(|(least, _)| figure >= *least).or(self.shades.last());
        found.map_or(' ', |(_, shade)| *shade)
    }

    fn legend(&self) -> String {
        let words = self.shades.iter().map(|(least, shade)| {
            let digits = if least.fract() == 0.0 { 0 } else { self.digits };
            let least = if least.abs() >= 9_999.5 { readable(*least) } else { rounded(*least, digits) };
            format!("{shade} from {least}")
        });
        format!("{} {} on", words.collect::<Vec<_>>().join(", "), self.unit)
    }
}

/// Returns the minimum and the maximum; (0, 1) if there are no values.
pub(crate) fn min_max(figures: impl Iterator<Item = f64>) -> (f64, f64) {
    let ends = figures.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), figure| {
        (least.min(figure), most.max(figure))
    });
    if ends.0 <= ends.1 { ends } else { (0.0, 1.0) }
}

/// A heat map: rows of cells.
#[derive(Clone, PartialEq, Debug)]
pub struct HeatMap {
    /// Headings of the columns.
    pub columns: Vec<String>,
    /// Headings of the rows.
    pub rows: Vec<String>,
    /// Rows with one cell per column; `None` where there is no data.
    pub cells: Vec<Vec<Option<f64>>>,
    /// The shades.
    pub shades: Shades,
}

impl HeatMap {
    /// Returns the transposed map.
    pub fn transposed(&self) -> HeatMap {
        let column = |at: usize| self.cells.iter().map(|row| row[at]).collect();
        HeatMap {
            columns: self.rows.clone(),
            rows: self.columns.clone(),
            cells: (0..self.columns.len()).map(column).collect(),
            shades: self.shades.clone(),
        }
    }

    /// Returns the map as a text table, with a shade before each value.
    pub fn table(&self, title: &str) -> Table {
        let heads = self
            .columns
            .iter()
            .fold(Table::new(title).number_column(""), |table, head| table.number_column(head));
        let mut table = heads;
        for (head, row) in self.rows.iter().zip(&self.cells) {
            let cells = row.iter().map(|cell| match cell {
                Some(figure) if figure.abs() >= 9_999.5 => {
                    format!("{}{:>5}", self.shades.shade(*figure), readable(*figure))
                }
                Some(figure) => {
                    format!("{}{:>5}", self.shades.shade(*figure), rounded(*figure, self.shades.digits))
                }
                None => "-".to_owned(),
            });
            table.row(std::iter::once(head.clone()).chain(cells));
        }
        table.remark(self.shades.legend());
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> HeatMap {
        HeatMap {
            columns: vec!["1".into(), "2".into(), "3".into()],
            rows: vec!["a<b".into(), "c".into()],
            cells: vec![vec![Some(0.0), Some(50.0), None], vec![Some(100.0), Some(79.9), Some(80.0)]],
            shades: Shades::over([0.0, 50.0, 100.0].into_iter(), "Mbit/s", Best::High),
        }
    }

    #[test]
    fn a_cell_without_data_has_a_dash_and_no_shade() {
        let text = sheet().table("title").to_string();
        assert!(text.contains("a<b  ·  0.0  ▒ 50.0       -"), "{text}");
        assert!(text.contains("  c  █100.0  ▓ 79.9  █ 80.0"), "{text}");
        assert!(text.ends_with("█ from 80, ▓ from 60, ▒ from 40, ░ from 20, · from 0 Mbit/s on\n"), "{text}");
    }

    #[test]
    fn a_small_value_is_not_rounded_to_zero() {
        for (value, digits, expected) in [
            (0.0172, 1, "0.0172"),
            (0.4, 0, "0.4"),
            (0.06, 1, "0.1"),
            (0.0, 1, "0.0"),
            (-0.0172, 1, "-0.0172"),
        ] {
            assert_eq!(rounded(value, digits), expected);
        }
        let cells = vec![vec![Some(0.0172), Some(50.0), Some(100.0)]];
        let shades = Shades::over([0.0172, 50.0, 100.0].into_iter(), "Mbit/s", Best::High);
        let text = HeatMap { rows: vec!["a".into()], cells, shades, ..sheet() }.table("title").to_string();
        assert!(text.contains("·0.0172  █ 50.0"), "{text}");
        assert!(text.contains("· from 0.0172 Mbit/s"), "{text}");
    }

    #[test]
    fn a_transposed_map_has_the_same_cells() {
        let turned = sheet().transposed();
        assert_eq!((turned.rows.len(), turned.columns.len()), (3, 2));
        assert_eq!(turned.cells[2], [None, Some(80.0)]);
        assert_eq!(turned.transposed(), sheet());
    }

    #[test]
    fn equal_values_share_one_shade_and_an_empty_map_is_valid() {
        let shades = Shades::over([3.0, 3.0].into_iter(), "ms", Best::High);
        assert_eq!((shades.shade(3.0), shades.digits), ('█', 3));
        assert_eq!(min_max(std::iter::empty()), (0.0, 1.0));
    }

    #[test]
    fn the_best_values_have_the_fullest_shade_and_noise_has_one_shade() {
        let shades = |figures: [f64; 3], best| {
            let shades = Shades::over(figures.into_iter(), "", best);
            figures.map(|figure| shades.shade(figure)).into_iter().collect::<String>()
        };
        assert_eq!(shades([10.0, 60.0, 100.0], Best::High), "·▒█");
        assert_eq!(shades([10.0, 60.0, 100.0], Best::Low), "█▒·");
        assert_eq!(shades([47.0, 50.0, 55.0], Best::Low), "███");
        assert_eq!(shades([96.0, 98.0, 100.0], Best::High), "███");
        // A factor of 100 and more is divided by factors.
        assert_eq!(shades([20.0, 600.0, 13_000.0], Best::High), "·▒█");
    }
}
