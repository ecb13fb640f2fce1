//! Plain-text tables.
//!
//! Purpose   results that are easy to compare in any terminal and in a log file.
//! Layout    columns two spaces apart, text left-aligned, numbers right-aligned, a rule below the headings,
//!           numbered notes below the table. No colour and no frames, so that a table can be pasted into an
//!           email.
//! Width     at most 100 columns: the widest text column is wrapped at spaces until the table fits. A column
//!           of numbers whose cells are lists ("33.3, 16.1, 5.7; 10.0 Mbit/s") is wrapped too, before a text
//!           column becomes too narrow to read.
//! Limits    numbers and words are not cut, so a table with many numbers or long words may be wider. Only a
//!           word longer than a third of the width is cut. Widths are counted in characters.

use std::fmt;

const WIDTH_MAX: usize = 100;
/// The minimum width to which a text column is wrapped. A longer word widens the column, up to
/// [`WORD_WIDTH_MAX`].
const WORDS_WIDTH_MIN: usize = 12;
/// The width below which a text column is wrapped only when all lists are wrapped to [`LIST_WIDTH_MIN`].
const TEXT_WIDTH_PREFERRED: usize = 26;
/// The minimum width to which a column of lists of numbers is wrapped.
const LIST_WIDTH_MIN: usize = 13;
/// The width at which even a single word is cut.
const WORD_WIDTH_MAX: usize = 33;
const GAP: &str = "  ";

/// A table that is built row by row and printed through [`fmt::Display`].
#[derive(Clone, Debug, Default)]
pub struct Table {
    title: String,
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    notes: Vec<String>,
    remarks: Vec<String>,
    /// The width of a screen, if the table has to fit on it.
    screen: Option<usize>,
}

#[derive(Clone, Debug)]
struct Column {
    head: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Words,
    Numbers,
}

/// The parts of a table, for other renderings.
pub(crate) struct Parts<'a> {
    pub(crate) title: &'a str,
    /// Headings, and whether the column holds numbers.
    pub(crate) columns: Vec<(String, bool)>,
    pub(crate) rows: &'a [Vec<String>],
    pub(crate) remarks: Vec<String>,
}

impl Table {
    /// Creates an empty table with a title; an empty title takes no line.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Adds a text column, aligned on the left.
    pub fn text_column(self, head: &str) -> Self {
        self.column(head, Kind::Words)
    }

    /// Adds a column of numbers, aligned on the right.
    pub fn number_column(self, head: &str) -> Self {
        self.column(head, Kind::Numbers)
    }

    fn column(mut self, head: &str, kind: Kind) -> Self {
        self.columns.push(Column { head: head.to_owned(), kind });
        self
    }

    /// Adds a row. Missing cells stay empty.
    ///
    /// # Panics
    /// Panics if there are more cells than columns.
    pub fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert!(row.len() <= self.columns.len(), "a row has no more cells than the table has columns");
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// Adds a note below the table and returns its mark, for example `\[2\]`, for use in a cell.
    ///
    /// Adding the same text again returns the same mark.
    pub fn note(&mut self, text: impl Into<String>) -> String {
        let text = text.into();
        let place = self.notes.iter().position(|note| *note == text).unwrap_or_else(|| {
            self.notes.push(text);
            self.notes.len() - 1
        });
        format!("[{}]", place + 1)
    }

    /// Adds a line below the table that applies to the whole table.
    pub fn remark(&mut self, text: impl Into<String>) {
        self.remarks.push(text.into());
    }

    /// Makes the table at most `screen` wide, with one line for each row: leaves out the columns of these
    /// names, in this order, until the rest fits, and cuts the widest text column if it still does not.
    /// Remarks are wrapped.
    pub fn fit(mut self, screen: usize, spare: &[&str]) -> Self {
        let excess = |table: &Table| table.natural_width().saturating_sub(screen);
        for head in spare {
            let at = self.columns.iter().position(|column| column.head == *head);
            if let Some(at) = at.filter(|_| excess(&self) > 0) {
                self.columns.remove(at);
                self.rows.iter_mut().for_each(|row| drop(row.remove(at)));
            }
        }
        let widths = self.natural_widths();
        let texts = (0..widths.len()).filter(|&at| self.columns[at].kind == Kind::Words);
        if let (excess @ 1.., Some(at)) = (excess(&self), texts.max_by_key(|&at| widths[at])) {
            let kept = widths[at].saturating_sub(excess).max(1);
            let cells = self.rows.iter_mut().map(|row| &mut row[at]);
            cells.chain([&mut self.columns[at].head]).for_each(|cell| *cell = cut(cell, kept));
        }
        Table { screen: Some(screen), ..self }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the parts of the table. Notes, with their marks, come first among the remarks.
    pub(crate) fn parts(&self) -> Parts<'_> {
        let notes = (1..).zip(&self.notes).map(|(number, note)| format!("[{number}] {note}"));
        Parts {
            title: &self.title,
            columns: self
                .columns
                .iter()
                .map(|column| (column.head.clone(), column.kind == Kind::Numbers))
                .collect(),
            rows: &self.rows,
            remarks: notes.chain(self.remarks.iter().cloned()).collect(),
        }
    }

    /// Returns the widths of the longest cells.
    fn natural_widths(&self) -> Vec<usize> {
        (0..self.columns.len())
            .map(|at| {
                let cells = self.rows.iter().map(|row| &row[at]).chain([&self.columns[at].head]);
                cells.map(|cell| width(cell)).max().unwrap_or(0)
            })
            .collect()
    }

    /// Returns the width of the table without wrapped cells.
    fn natural_width(&self) -> usize {
        self.natural_widths().iter().sum::<usize>() + GAP.len() * self.columns.len().saturating_sub(1)
    }

    /// Returns the column widths, reduced where possible so that the table fits.
    fn widths(&self) -> Vec<usize> {
        let mut widths = self.natural_widths();
        let least = |at: usize, bound: usize| {
            let cells = self.rows.iter().map(|row| &row[at]).chain([&self.columns[at].head]);
            let longest = cells.flat_map(|cell| cell.split_whitespace()).map(width).max().unwrap_or(0);
            match self.columns[at].kind {
                Kind::Words => longest.clamp(bound, WORD_WIDTH_MAX),
                Kind::Numbers => longest.max(bound),
            }
        };
        let gaps = GAP.len() * widths.len().saturating_sub(1);
        for (kind, bound) in [
            (Kind::Words, TEXT_WIDTH_PREFERRED),
            (Kind::Numbers, LIST_WIDTH_MIN),
            (Kind::Words, WORDS_WIDTH_MIN),
        ] {
            let least: Vec<usize> = (0..widths.len()).map(|at| least(at, bound)).collect();
            loop {
                let excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(self.width_max());
                let widest = (0..widths.len())
                    .filter(|&at| self.columns[at].kind == kind && widths[at] > least[at])
                    .max_by_key(|&at| widths[at]);
                match widest {
                    Some(at) if excess > 0 => widths[at] -= 1,
                    _ => break,
                }
            }
        }
        widths
    }

    fn width_max(&self) -> usize {
        self.screen.unwrap_or(WIDTH_MAX)
    }

    /// Writes one row, which takes several lines if a cell has to be wrapped.
    fn write_row(&self, f: &mut fmt::Formatter<'_>, cells: &[String], widths: &[usize]) -> fmt::Result {
        let folded: Vec<Vec<String>> =
            cells.iter().zip(widths).map(|(cell, &width)| fold(cell, width)).collect();
        for line_number in 0..folded.iter().map(Vec::len).max().unwrap_or(0) {
            let mut line = String::new();
            for ((lines, column), &wanted) in folded.iter().zip(&self.columns).zip(widths) {
                let text = lines.get(line_number).map_or("", String::as_str);
                let pad = " ".repeat(wanted.saturating_sub(width(text)));
                match column.kind {
                    Kind::Words => line.extend([text, &pad, GAP]),
                    Kind::Numbers => line.extend([&pad, text, GAP]),
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.title.is_empty() {
            let mut lines = self.title.lines().flat_map(|line| fold(line, self.width_max()));
            lines.try_for_each(|line| writeln!(f, "{line}"))?;
        }
        let widths = self.widths();
        let heads: Vec<String> = self.columns.iter().map(|column| column.head.clone()).collect();
        self.write_row(f, &heads, &widths)?;
        let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
        writeln!(f, "{}", rules.join(GAP))?;
        for row in &self.rows {
            self.write_row(f, row, &widths)?;
        }
        for (number, note) in (1..).zip(&self.notes) {
            let mark = format!("[{number}] ");
            for (at, line) in fold(note, self.width_max().saturating_sub(mark.len())).iter().enumerate() {
                let lead = if at == 0 { mark.clone() } else { " ".repeat(mark.len()) };
                writeln!(f, "{lead}{line}")?;
            }
        }
        let lines = |remark: &String| fold(remark, self.screen.unwrap_or(usize::MAX));
        self.remarks.iter().flat_map(lines).try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Formats a number with four significant digits and thousands separators: `0.01234`, `12.34`, `12,346`.
pub fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    let mut text = format!("{value:.*}", usize::try_from(3 - magnitude.clamp(-6, 3)).unwrap_or(0));
    let digits_end = text.find('.').unwrap_or(text.len());
    let digits_start = usize::from(text.starts_with('-'));
    if digits_end - digits_start > 4 {
        for place in (digits_start + 1..digits_end).rev().filter(|place| (digits_end - place) % 3 == 0) {
            text.insert(place, ',');
        }
    }
    text
}

/// Formats a number for reading: three significant digits, with a prefix from ten thousand on: `21.7`,
/// `2287`, `47.9 k`.
pub fn readable(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let (scaled, prefix) = match value.abs() {
        size if size >= 999.5e6 => (value * 1e-9, " G"),
        size if size >= 999.5e3 => (value * 1e-6, " M"),
        size if size >= 9_999.5 => (value * 1e-3, " k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        0.0 => 0,
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        _ => 4,
    };
    let text = format!("{scaled:.digits$}");
    let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{short}{prefix}")
}

/// Formats a number of things: `1 trial`, `2 trials`.
pub fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Formats a part of a number of things, with the verb: `1 of 3 cells is`, `2 of 3 cells are`.
pub(crate) fn part_of(count: usize, all: usize, noun: &str) -> String {
    let verb = if count == 1 || all == 1 { "is" } else { "are" };
    format!("{count} of {} {verb}", counted(all, noun))
}

/// Formats a value with a sign and `digits` decimals; a value that rounds to zero has a plus sign.
pub(crate) fn signed(value: f64, digits: usize) -> String {
    let text = format!("{value:+.digits$}");
    let is_zero = text.trim_start_matches(['+', '-']).chars().all(|digit| matches!(digit, '0' | '.'));
    if is_zero { text.replacen('-', "+", 1) } else { text }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// Cuts a text that is longer than `wanted`; an ellipsis marks that.
pub fn cut(text: &str, wanted: usize) -> String {
    if width(text) <= wanted {
        return text.to_owned();
    }
    let kept = text.chars().take(wanted.saturating_sub(1));
    kept.chain((wanted > 0).then_some('…')).collect()
}

/// Wraps `text` at spaces so that no line is wider than `wanted`; cuts longer words.
pub fn fold(text: &str, wanted: usize) -> Vec<String> {
    if width(text) <= wanted {
        return vec![text.to_owned()];
    }
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut rest: Vec<char> = word.chars().collect();
        while !rest.is_empty() {
            let line = lines.last_mut().expect("there is always a line");
            let used = width(line) + usize::from(!line.is_empty());
            if used + rest.len() <= wanted {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.extend(rest.drain(..));
            } else if line.is_empty() {
                line.extend(rest.drain(..wanted.max(1)));
                lines.push(String::new());
            } else {
                lines.push(String::new());
            }
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_left_aligned_and_numbers_right_aligned() {
        let mut table =
            Table::new("Cells").text_column("circuit").number_column("cells").text_column("state");
        table.row(["1/32", "7", "open"]);
        table.row(["1/100", "12,345"]);
        let expected = "\
Cells
circuit   cells  state
-------  ------  -----
1/32          7  open
1/100    12,345
";
        assert_eq!(table.to_string(), expected);
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn a_wide_table_wraps_its_widest_text_column() {
        let mut table = Table::new("").text_column("what").number_column("figure").text_column("note");
        let long = "an explanation that goes on and on ".repeat(6);
        table.row([long.trim_end(), "3.14", "short"]);
        let text = table.to_string();
        assert!(text.lines().all(|line| width(line) <= WIDTH_MAX), "{text}");
        assert!(text.contains("3.14  short"), "{text}");
        let words: Vec<&str> = text.split_whitespace().filter(|word| *word == "explanation").collect();
        assert_eq!(words.len(), 6, "no word is lost: {text}");
    }

    #[test]
    fn a_column_is_not_wrapped_within_words() {
        let mut table = Table::new("").text_column("what");
        for head in ["first", "second", "third", "fourth"] {
            table = table.number_column(head);
        }
        let number = "0".repeat(20);
        table.row(["acknowledgements that wait", &number, &number, &number, &number]);
        let text = table.to_string();
        assert!(text.contains("\nacknowledgements  0") && text.ends_with("\nthat wait\n"), "{text}");
    }

    #[test]
    fn lists_of_numbers_are_wrapped_before_a_label_becomes_narrow() {
        let label = "a queue for each circuit, CBR before VBR before UBR: damaged pictures, percent";
        let list = "33.3, 16.1, 5.7; 51.2, 52.2 ms; 10.0 Mbit/s";
        let head = || Table::new("").text_column("what").number_column("published").number_column("here");
        let mut table = head().number_column("today").text_column("verdict");
        let rest = "20 ms and 11 ms and more";
        table.row([label, rest, list, rest, "ours"]);
        let text = table.to_string();
        assert!(text.lines().all(|line| width(line) <= WIDTH_MAX), "{text}");
        let rule = text.lines().nth(1).expect("a rule").split(GAP).map(width).collect::<Vec<_>>();
        assert!(rule[0] >= TEXT_WIDTH_PREFERRED && rule[2] >= LIST_WIDTH_MIN, "{text}");
        // Every line of a list ends at the right edge of its column.
        let right = rule[..3].iter().sum::<usize>() + 2 * GAP.len();
        let ends = |line: &str| line.chars().take(right).collect::<String>();
        assert!(text.lines().any(|line| ends(line).ends_with(" 33.3, 16.1, 5.7;")), "{text}");
        // A single number is never wrapped.
        let mut narrow = head();
        narrow.row([label, "1234567890123456789012345678901234567890", list]);
        assert!(narrow.to_string().contains("1234567890123456789012345678901234567890"), "{narrow}");
    }

    #[test]
    fn a_table_on_a_screen_leaves_out_columns_and_cuts_the_widest_text() {
        let mut table = Table::new("t").text_column("name").text_column("state").number_column("rate");
        table.row(["a name with spaces", "up", "26.1 Gbit/s"]);
        table.remark("a remark of several words");
        let shown = |screen| table.clone().fit(screen, &["none", "state"]).to_string();
        assert_eq!(shown(80), table.to_string());
        assert!(shown(31).starts_with("t\nname                       rate\n"), "{}", shown(31));
        assert!(shown(31).contains("\na name with spaces  26.1 Gbit/s\n"), "{}", shown(31));
        assert!(shown(20).contains("\na name…  26.1 Gbit/s\na remark of several\nwords\n"), "{}", shown(20));
        // No row has two lines.
        assert_eq!([80, 31, 20].map(|screen| shown(screen).matches("Gbit/s").count()), [1; 3]);
    }

    #[test]
    fn counts_and_signs_are_readable() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "trial")), ["0 trials", "1 trial", "2 trials"]);
        for (value, expected) in [(-0.04, "+0.0"), (0.0, "+0.0"), (-0.06, "-0.1"), (12.34, "+12.3")] {
            assert_eq!(signed(value, 1), expected);
        }
        assert_eq!((signed(-0.4, 0), signed(-3.0, 2)), ("+0".to_owned(), "-3.00".to_owned()));
    }

    #[test]
    fn equal_notes_share_a_number_and_are_wrapped() {
        let mut table = Table::new("").text_column("a");
        let mark = table.note("the same");
        assert_eq!(table.note("the same"), mark);
        let other = table.note("word ".repeat(40).trim_end());
        table.row([format!("x {mark}{other}")]);
        let text = table.to_string();
        assert!(text.contains("x [1][2]\n[1] the same\n[2] word word"), "{text}");
        assert!(text.contains("\n    word"), "{text}");
        assert!(text.lines().all(|line| width(line) <= WIDTH_MAX), "{text}");
    }

    #[test]
    fn a_word_wider_than_its_line_is_cut() {
        assert_eq!(fold("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
        assert_eq!(fold("ab cd", 5), ["ab cd"]);
        assert_eq!(fold("", 5), [""]);
    }

    #[test]
    fn readable_numbers_are_short() {
        for (value, expected) in [
            (0.0, "0"),
            (0.012_345, "0.0123"),
            (21.65, "21.6"),
            (9.96, "9.96"),
            (22.0, "22"),
            (2287.4, "2287"),
            (47_934.0, "47.9 k"),
            (999_600.0, "1 M"),
            (2.5e9, "2.5 G"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(readable(value), expected);
        }
    }

    #[test]
    fn figures_show_four_digits() {
        for (value, expected) in [
            (0.0, "0.000"),
            (0.012_345, "0.01235"),
            (1.5, "1.500"),
            (12.345_6, "12.35"),
            (149.76, "149.8"),
            (1_234.5, "1234"),
            (12_345.6, "12,346"),
            (1_234_567.0, "1,234,567"),
            (-12_345.0, "-12,345"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(figure(value), expected);
        }
    }
}
