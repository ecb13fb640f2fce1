//! Tables of a report page: text, numbers, badges and notes.

use super::escape::text;
use crate::Table;
use std::fmt::Write as _;
use std::ops::Range;

/// The colour of a badge. It repeats what the badge's word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    /// The value was reproduced.
    Good,
    /// The value was reproduced because a constant was fitted to it.
    Fit,
    /// The value was not reproduced.
    Bad,
    /// No conclusion is possible.
    Doubt,
    /// There is no published value to compare with.
    Own,
    /// Neutral.
    Plain,
}

impl Tone {
    fn class(self) -> &'static str {
        match self {
            Tone::Good => "good",
            Tone::Fit => "fit",
            Tone::Bad => "bad",
            Tone::Doubt => "doubt",
            Tone::Own => "own",
            Tone::Plain => "plain",
        }
    }
}

/// A highlighted word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Badge {
    /// The badge's colour.
    pub tone: Tone,
    /// The word that the badge shows.
    pub word: String,
}

impl Badge {
    /// Creates a badge.
    pub fn new(tone: Tone, word: impl Into<String>) -> Badge {
        Badge { tone, word: word.into() }
    }

    pub(super) fn html(&self) -> String {
        format!("<span class=\"badge {}\">{}</span>", self.tone.class(), text(&self.word))
    }
}

/// A cell of a table.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cell {
    /// The text.
    pub words: String,
    /// The target of a link: the heading of a section, or the name of a figure of this page.
    pub link: Option<String>,
    /// A badge in front of the text.
    pub badge: Option<Badge>,
    /// A note below the text, in small type.
    pub note: Option<String>,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(words: T) -> Cell {
        Cell { words: words.into(), ..Cell::default() }
    }
}

impl From<Badge> for Cell {
    fn from(badge: Badge) -> Cell {
        Cell { badge: Some(badge), ..Cell::default() }
    }
}

impl Cell {
    /// Adds a note below the text.
    pub fn with_note(self, note: Option<String>) -> Cell {
        Cell { note, ..self }
    }

    /// Makes the cell a link.
    pub fn to(self, link: impl Into<String>) -> Cell {
        Cell { link: Some(link.into()), ..self }
    }
}

/// A table.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Grid {
    /// The caption.
    pub caption: String,
    /// Names of the columns, and whether they hold numbers. The first column names the rows.
    pub columns: Vec<(String, bool)>,
    /// Columns with a common heading above theirs.
    pub groups: Vec<(Range<usize>, String)>,
    /// The rows.
    pub rows: Vec<Vec<Cell>>,
    /// Remarks below the table.
    pub remarks: Vec<String>,
}

impl Grid {
    /// Creates a table without rows. A heading that begins with `#` marks a column of numbers.
    pub fn new(caption: impl Into<String>, heads: &[&str]) -> Grid {
        let column = |head: &&str| match head.strip_prefix('#') {
            Some(head) => (head.to_owned(), true),
            None => ((*head).to_owned(), false),
        };
        Grid { caption: caption.into(), columns: heads.iter().map(column).collect(), ..Grid::default() }
    }

    /// Adds a common heading above those of some columns.
    pub fn grouped(mut self, columns: Range<usize>, heading: &str) -> Grid {
        self.groups.push((columns, heading.to_owned()));
        self
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(super) fn html(&self, link: &dyn Fn(&str) -> Option<String>) -> String {
        let mut html = format!(
            "<div class=\"wide\" role=\"region\" tabindex=\"0\" \
             aria-label=\"{0}\">\n<table{1}>\n<caption>{0}</caption>\n<thead>",
            text(&self.caption),
            // A table of many columns scrolls on a narrow screen.
            if self.columns.len() > 3 { " class=\"many\"" } else { "" }
        );
        let number = |at: usize| self.columns.get(at).is_some_and(|(_, number)| *number);
        let class = |at: usize| if number(at) { " class=\"number\"" } else { "" };
        // Headings of groups, and of columns without a group, are in the first row.
        let mut heads = [String::new(), String::new()];
        let both = if self.groups.is_empty() { "" } else { " rowspan=\"2\"" };
        for (at, (head, _)) in self.columns.iter().enumerate() {
            let group = self.groups.iter().find(|(columns, _)| columns.contains(&at));
            if let Some((columns, heading)) = group.filter(|(columns, _)| columns.start == at) {
                let (across, heading) = (columns.len(), text(heading));
                let _ = write!(heads[0], "<th scope=\"colgroup\" colspan=\"{across}\">{heading}</th>");
            }
            let (row, down) = if group.is_some() { (1, "") } else { (0, both) };
            let _ = write!(heads[row], "<th scope=\"col\"{down}{}>{}</th>", class(at), text(head));
        }
        for row in heads.iter().filter(|row| !row.is_empty()) {
            let _ = write!(html, "<tr>{row}</tr>");
        }
        html.push_str("</thead>\n<tbody>\n");
        for row in &self.rows {
            html.push_str("<tr>");
            for (at, Cell { words, link: to, badge, note }) in row.iter().enumerate() {
                let (open, close) = if at == 0 { ("th scope=\"row\"", "th") } else { ("td", "td") };
                let words = match to.as_deref().and_then(link) {
                    Some(id) => format!("<a href=\"#{id}\">{}</a>", text(words)),
                    None => text(words),
                };
                let badge =
                    badge.as_ref().map(|badge| badge.html() + if words.is_empty() { "" } else { " " });
                let note = note.as_ref().map(|note| format!("<span class=\"note\">{}</span>", text(note)));
                let _ = write!(
                    html,
                    "<{open}{}>{}{words}{}</{close}>",
                    class(at),
                    badge.unwrap_or_default(),
                    note.unwrap_or_default()
                );
            }
            html.push_str("</tr>\n");
        }
        html.push_str("</tbody>\n</table>\n</div>\n");
        if !self.remarks.is_empty() {
            let items: String =
                self.remarks.iter().map(|remark| format!("<li>{}</li>", text(remark))).collect();
            let _ = writeln!(html, "<ul class=\"remarks\">{items}</ul>");
        }
        html
    }
}

/// Converts a text table.
impl From<&Table> for Grid {
    fn from(table: &Table) -> Grid {
        let parts = table.parts();
        Grid {
            caption: parts.title.to_owned(),
            columns: parts.columns,
            groups: Vec::new(),
            rows: parts
                .rows
                .iter()
                .map(|row| row.iter().map(|cell| cell.as_str().into()).collect())
                .collect(),
            remarks: parts.remarks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_in_a_table_is_text() {
        let hostile = "</td><script>\"'&";
        let mut grid = Grid::new(hostile, &[hostile, "#n"]);
        let cell = Cell {
            words: hostile.into(),
            link: Some("x".into()),
            badge: Some(Badge::new(Tone::Bad, hostile)),
            note: Some(hostile.into()),
        };
        grid.row([cell, "1".into()]);
        grid.remarks.push(hostile.into());
        let html = grid.html(&|_| Some("safe".into()));
        assert!(
            !html.contains("<script")
                && html.matches("&lt;/td&gt;&lt;script&gt;&quot;&#39;&amp;").count() == 7,
            "{html}"
        );
        assert!(html.contains("<th scope=\"row\">") && html.contains("<td class=\"number\">1</td>"));
        assert!(html.contains("<a href=\"#safe\">"));
    }

    #[test]
    fn columns_of_a_group_have_a_common_heading() {
        let grid = Grid::new("t", &["load", "#to", "#from", "note"]).grouped(1..3, "queue, ms");
        let html = grid.html(&|_| None);
        let (one, two) = html.split_once("</tr><tr>").expect("two rows of headings");
        assert!(
            one.contains(
                "<th scope=\"col\" rowspan=\"2\">load</th><th scope=\"colgroup\" colspan=\"2\">queue"
            )
        );
        assert!(one.contains("rowspan=\"2\">note</th>"), "{html}");
        assert!(two.starts_with("<th scope=\"col\" class=\"number\">to</th>"), "{html}");
    }

    #[test]
    fn a_table_of_the_terminal_keeps_its_notes() {
        let mut table = Table::new("t").text_column("what").number_column("figure");
        let mark = table.note("why");
        table.row([format!("x {mark}"), "1".to_owned()]);
        table.remark("all");
        let grid = Grid::from(&table);
        assert_eq!(grid.columns, [("what".to_owned(), false), ("figure".to_owned(), true)]);
        assert_eq!(grid.rows[0][0].words, "x [1]");
        assert_eq!(grid.remarks, ["[1] why", "all"]);
    }
}
