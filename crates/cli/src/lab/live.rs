//! `kiban lab live`: shows the progress of a run.

use clap::Args;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use kiban_lab::engine::{self, Live as Watch, Manifest, View, questions};
use kiban_lab::table::{cut, fold};
use kiban_os::Clock;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Gauge, Paragraph};
use serde_json::json;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Interval at which the directory is reread; keys are handled at once.
const PAUSE: Duration = Duration::from_secs(1);

/// Watch a run: progress, rate, the maps so far, and the latest records.
///
/// This only reads the directory, so it can be started and stopped at any time, even on another machine that
/// shares the directory. Press tab for the next picture, arrow keys to scroll it, q to quit.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban lab run map.toml & kiban lab live map.lab\
        \n  kiban lab live map.lab --once          print once, as text\
        \n  kiban lab live map.lab --json          print once, for scripts\
        \n\nWithout a terminal, it prints once.")]
pub(super) struct Live {
    /// Directory of a run.
    dir: PathBuf,
    /// Print once and exit.
    #[arg(long)]
    once: bool,
    /// Print JSON once and exit.
    #[arg(long)]
    json: bool,
}

impl Live {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let say = |error: engine::StoreError| error.to_string();
        let manifest = Manifest::read(&self.dir).map_err(say)?;
        let metrics = questions::find(&manifest.plan.question).map_or(&[][..], |question| question.metrics());
        let mut watch = Watch::open(&self.dir, metrics).map_err(say)?;
        let clock = Clock::new();
        if self.json || self.once || !std::io::stdout().is_terminal() {
            let view = watch.look(clock.now()).map_err(say)?;
            if self.json {
                super::output::json(&object(&view))?;
            } else {
                crate::output::print(&text(&view))?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let mut terminal = ratatui::init();
        let watched = show(&mut terminal, &mut watch, &clock);
        ratatui::restore();
        watched.map(|()| ExitCode::SUCCESS)
    }
}

/// Updates the screen until the user quits.
fn show(terminal: &mut ratatui::DefaultTerminal, watch: &mut Watch, clock: &Clock) -> Result<(), String> {
    let terminal_error = |error: std::io::Error| format!("cannot use the terminal: {error}");
    let has_colours = crate::output::has_colours(&std::io::stdout());
    let mut place = Place { has_colours, ..Place::default() };
    loop {
        let view = watch.look(clock.now()).map_err(|error| error.to_string())?;
        terminal.draw(|frame| draw(frame, &view, &mut place)).map_err(terminal_error)?;
        let pictures = view.pictures.len().max(1);
        if !event::poll(PAUSE).map_err(terminal_error)? {
            continue;
        }
        let Event::Key(key) = event::read().map_err(terminal_error)? else { continue };
        if key.kind != KeyEventKind::Press {
            continue;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
            KeyCode::Tab => place.turn_to((place.picture + 1) % pictures),
            KeyCode::BackTab => place.turn_to((place.picture + pictures - 1) % pictures),
            KeyCode::Right => place.across += 8,
            KeyCode::Left => place.across = place.across.saturating_sub(8),
            KeyCode::Down => place.down += 1,
            KeyCode::Up => place.down = place.down.saturating_sub(1),
            KeyCode::PageDown => place.down += 10,
            KeyCode::PageUp => place.down = place.down.saturating_sub(10),
            KeyCode::Home => place.turn_to(place.picture),
            _ => {}
        }
    }
}

/// What of the pictures is shown.
#[derive(Default)]
struct Place {
    picture: usize,
    /// Columns and rows by which the picture is scrolled.
    across: usize,
    down: usize,
    has_colours: bool,
}

impl Place {
    /// Shows a picture from its beginning.
    fn turn_to(&mut self, picture: usize) {
        *self = Place { picture, has_colours: self.has_colours, ..Place::default() };
    }
}

/// Draws the screen: progress, warnings, a picture and the latest records.
fn draw(frame: &mut Frame<'_>, view: &View<'_>, place: &mut Place) {
    let Rect { width, height, .. } = frame.area();
    let width = usize::from(width);
    let warnings: Vec<Line<'_>> = view
        .warnings
        .iter()
        .flat_map(|warning| fold(&format!("! {warning}"), width))
        .take(usize::from(height / 8))
        .map(|line| Line::styled(line, if place.has_colours { Color::Yellow } else { Color::Reset }))
        .collect();
    let latest = (view.words.len() as u16 + 2).clamp(3, (height / 6).max(3));
    let [bar, warned, middle, last] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(warnings.len() as u16),
        Constraint::Fill(1),
        Constraint::Length(latest),
    ])
    .areas(frame.area());
    let part = if view.trials == 0 { 1.0 } else { (view.done as f64 / view.trials as f64).min(1.0) };
    let style = if place.has_colours { Style::new().fg(Color::Cyan).bg(Color::Black) } else { Style::new() };
    let gauge = Gauge::default()
        .block(Block::bordered().title(format!(" {} ", view.question)))
        .gauge_style(style)
        .ratio(part)
        .label(progress(view));
    frame.render_widget(gauge, bar);
    frame.render_widget(Paragraph::new(warnings), warned);
    draw_picture(frame, middle, view, place);
    let lines: Vec<Line<'_>> =
        view.words.iter().map(|words| Line::raw(cut(words, width.saturating_sub(2)))).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" latest records ")), last);
}

fn draw_picture(frame: &mut Frame<'_>, area: Rect, view: &View<'_>, place: &mut Place) {
    let count = view.pictures.len();
    let Some(picture) = view.pictures.get(place.picture % count.max(1)) else {
        let block = Block::bordered().title(" no picture yet: no records, or no parameter varies ");
        return frame.render_widget(block.title_bottom(" q: quit "), area);
    };
    let block = Block::bordered();
    let inner = block.inner(area);
    let (width, height) = (usize::from(inner.width), usize::from(inner.height));
    let text = Scrolled::of(&picture.text, width);
    let rows = height.saturating_sub(text.fixed());
    let (across_max, down_max) = (text.width().saturating_sub(width), text.rows.len().saturating_sub(rows));
    (place.across, place.down) = (place.across.min(across_max), place.down.min(down_max));
    let more = [
        (place.across > 0, "←"),
        (place.across < across_max, "→"),
        (place.down > 0, "↑"),
        (place.down < down_max, "↓"),
    ];
    let more: String = more.into_iter().filter(|(is_more, _)| *is_more).map(|(_, arrow)| arrow).collect();
    let more = if more.is_empty() { more } else { format!(", more {more}") };
    let block = block
        .title(format!(" picture {} of {count}{more} ", place.picture % count + 1))
        .title_bottom(" Tab: next picture  arrows, PgUp, PgDn: scroll  q: quit ");
    frame.render_widget(block, area);
    let shown = text.shown(place, rows);
    let lines: Vec<Line<'_>> = shown.iter().map(|row| coloured(row, place.has_colours)).collect();
    frame.render_widget(Paragraph::new(lines), inner);
}

/// The text of a picture. Only its rows and columns are scrolled: the title and the head of a table stay
/// above its rows, the labels of the rows beside them, and the legend below them.
struct Scrolled<'a> {
    /// Wrapped, as is the legend.
    title: Vec<String>,
    /// The names of the columns, and the rule below them.
    head: Vec<&'a str>,
    rows: Vec<&'a str>,
    legend: Vec<String>,
    /// The width of the labels, with the space after them.
    label: usize,
}

impl<'a> Scrolled<'a> {
    fn of(text: &'a str, width: usize) -> Scrolled<'a> {
        let is_rule = |line: &&str| line.starts_with("--") && line.bytes().all(|byte| b"- ".contains(&byte));
        let wrapped = |lines: &[&str]| lines.iter().flat_map(|line| fold(line, width)).collect();
        let mut title: Vec<&str> = text.trim_end().lines().collect();
        let Some(rule) = title.iter().position(is_rule).filter(|&rule| rule > 0) else {
            return Scrolled {
                title: Vec::new(),
                head: Vec::new(),
                rows: title,
                legend: Vec::new(),
                label: 0,
            };
        };
        let mut rows = title.split_off(rule + 1);
        let head = title.split_off(rule - 1);
        let label = head[1].split_once("  ").map_or(0, |(label, _)| label.len() + 2);
        // A row begins with its label, the legend of a map with a shade.
        let is_legend = |row: &&str| row.starts_with(SHADES.map(|(shade, _)| shade));
        let legend = rows.split_off(rows.iter().position(is_legend).unwrap_or(rows.len()));
        Scrolled { title: wrapped(&title), head, rows, legend: wrapped(&legend), label }
    }

    fn width(&self) -> usize {
        self.head.iter().chain(&self.rows).map(|row| row.chars().count()).max().unwrap_or(0)
    }

    /// Returns the number of lines that are not scrolled.
    fn fixed(&self) -> usize {
        self.title.len() + self.head.len() + self.legend.len()
    }

    /// Returns the lines with these rows at most, without what is scrolled away.
    fn shown(&self, place: &Place, rows: usize) -> Vec<String> {
        let scrolled = |row: &&str| -> String {
            let label = row.chars().take(self.label);
            label.chain(row.chars().skip(self.label + place.across)).collect()
        };
        let rows = self.rows.iter().skip(place.down).take(rows).map(scrolled);
        let head = self.head.iter().map(scrolled);
        self.title.iter().cloned().chain(head).chain(rows).chain(self.legend.iter().cloned()).collect()
    }
}

/// The shades of a map, with colours that colour-blind readers can tell apart (those of viridis).
const SHADES: [(char, u8); 5] = [('·', 61), ('░', 31), ('▒', 36), ('▓', 77), ('█', 220)];

/// Gives the shades of a row and the figures after them their colours.
fn coloured(row: &str, has_colours: bool) -> Line<'_> {
    let colour_of = |letter| SHADES.iter().find(|&&(shade, _)| shade == letter).map(|&(_, colour)| colour);
    let next =
        |text: &str| text.char_indices().find_map(|(at, letter)| Some((at, letter, colour_of(letter)?)));
    if !has_colours {
        return Line::raw(row);
    }
    let mut spans = Vec::new();
    let mut rest = row;
    while let Some((at, shade, colour)) = next(rest) {
        let (before, from) = rest.split_at(at);
        // The figure follows the shade.
        let figure = from[shade.len_utf8()..].trim_start();
        let end = from.len() - figure.len() + figure.find([' ', ',']).unwrap_or(figure.len());
        spans.extend([Span::raw(before), Span::styled(&from[..end], Color::Indexed(colour))]);
        rest = &from[end..];
    }
    spans.push(Span::raw(rest));
    Line::from(spans)
}

/// Formats the progress, the rate, and the remaining time.
fn progress(view: &View<'_>) -> String {
    let mut words = format!("{} of {} trials", view.done, view.trials);
    if let Some(pace) = view.per_second {
        words += &format!(", {} per second", kiban_lab::table::figure(pace));
    }
    if let Some(left) = view.left.filter(|_| view.done < view.trials) {
        words += &format!(", {} to go", indicatif::HumanDuration(left));
    }
    words
}

fn text(view: &View<'_>) -> String {
    let mut text = format!("{}: {}\n", view.question, progress(view));
    view.warnings.iter().for_each(|warning| text += &format!("! {warning}\n"));
    view.pictures.iter().for_each(|picture| text += &format!("\n{}\n", picture.text));
    text += "\nlatest records:\n";
    view.words.iter().for_each(|words| text += &format!("  {words}\n"));
    text
}

fn object(view: &View<'_>) -> serde_json::Value {
    json!({
        "question": view.question,
        "done": view.done,
        "trials": view.trials,
        "warnings": view.warnings,
        "latest": view.latest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_lab::engine::Picture;
    use kiban_lab::heat::{Best, HeatMap, Shades};
    use kiban_lab::report::picture::{Lines, Scale};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn picture(title: &str, text: &str) -> Picture {
        Picture {
            name: "mbps".into(),
            title: title.into(),
            metric: "mbps".into(),
            drawing: Lines {
                name: String::new(),
                title: String::new(),
                description: String::new(),
                x: (String::new(), Scale::Linear),
                y: (String::new(), Scale::Linear),
                lines: Vec::new(),
                marks: Vec::new(),
            }
            .picture(),
            remark: String::new(),
            text: text.into(),
        }
    }

    fn empty() -> View<'static> {
        View {
            question: "toy",
            done: 30,
            trials: 120,
            per_second: Some(2.0),
            left: Some(Duration::from_secs(45)),
            warnings: &[],
            pictures: &[],
            latest: &[],
            words: &[],
        }
    }

    #[test]
    fn the_screen_shows_progress_warnings_a_picture_and_the_latest_records() {
        let words = ["message, bytes: 400: 2.5 Mbit/s".to_owned()];
        let warnings = ["others used the machine during 3 trials, in every try".to_owned()];
        let pictures = [picture("first", "the one\n"), picture("second", "the other\n")];
        let view = View { warnings: &warnings, pictures: &pictures, words: &words, ..empty() };
        let mut terminal = Terminal::new(TestBackend::new(80, 20)).expect("it is memory");
        for (picture, shown, hidden) in [(0, "the one", "the other"), (3, "the other", "the one")] {
            let mut place = Place { picture, ..Place::default() };
            terminal.draw(|frame| draw(frame, &view, &mut place)).expect("it is memory");
            let screen = terminal.backend().to_string();
            for words in [
                "30 of 120 trials",
                "45 seconds to go",
                "! others used",
                "message, bytes: 400: 2.5 Mbit/s",
                shown,
            ] {
                assert!(screen.contains(words), "{words}:\n{screen}");
            }
            assert!(!screen.contains(hidden), "{screen}");
        }
        // The screen can be drawn on a terminal of any size.
        let mut small = Terminal::new(TestBackend::new(1, 1)).expect("it is memory");
        small.draw(|frame| draw(frame, &view, &mut Place::default())).expect("it is memory");
        assert!(text(&view).contains("the other"));
    }

    #[test]
    fn a_map_that_is_too_large_is_scrolled_between_its_head_its_labels_and_its_legend() {
        let map = "rate, rows: message; columns: buffer\n        2000    4000  8000\n----  ------  ------  ----\n \
                   500  ·  1.5  ▒ 22.0  █ 9\n1000  ·  0.8  ▓ 35.0  █ 8\n1500  ·  1.7  ▓ 31.0  █ 7\n\
                   █ from 7, · from 0 on\n";
        let text = Scrolled::of(map, 26);
        assert_eq!((text.width(), text.fixed(), text.rows.len()), (26, 2 + 2 + 1, 3));
        let place = Place { across: 8, down: 1, ..Place::default() };
        assert_eq!(
            text.shown(&place, 1),
            [
                "rate, rows: message;",
                "columns: buffer",
                "        4000  8000",
                "----  ------  ----",
                "1000  ▓ 35.0  █ 8",
                "█ from 7, · from 0 on"
            ]
        );
        let lines = Scrolled::of("a curve\nof two lines\n", 80);
        let place = Place { across: 2, down: 1, ..Place::default() };
        assert_eq!(lines.shown(&place, 9), [" two lines"]);
    }

    /// Returns a map of 24 message lengths and nine buffers, as a sweep prints it.
    fn large_map() -> Picture {
        let rows = (1..=24).map(|row| (row * 500).to_string()).collect();
        let columns = (1..=9).map(|column| (column * 2000).to_string()).collect();
        let cells: Vec<Vec<Option<f64>>> = (1..=24)
            .map(|row| (1..=9).map(|column| Some(f64::from(row * column) * 100.0)).collect())
            .collect();
        let figures = cells.iter().flatten().flatten().copied().collect::<Vec<f64>>();
        let shades = Shades::over(figures.into_iter(), "exchanges/s", Best::High);
        let title = "Exchanges of a message and its reply, exchanges/s (write-write-read; Nagle on; congestion: system)\n\
                     rows: message, bytes; columns: buffer, bytes";
        picture(title, &HeatMap { columns, rows, cells, shades }.table(title).to_string())
    }

    #[test]
    fn a_large_map_fits_every_screen_and_every_cell_can_be_reached() {
        let pictures = [large_map()];
        let words: Vec<String> = (0..12).map(|number| format!("{number}: {}", "word ".repeat(30))).collect();
        let warnings = ["a warning of many words ".repeat(6)];
        let view = View { pictures: &pictures, words: &words, warnings: &warnings, ..empty() };
        for size in [(60, 20), (80, 24), (120, 40), (200, 60)] {
            let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).expect("it is memory");
            let mut place = Place::default();
            let mut screen = |place: &mut Place| {
                terminal.draw(|frame| draw(frame, &view, place)).expect("it is memory");
                terminal.backend().to_string()
            };
            let first = screen(&mut place);
            for words in ["picture 1 of 1", "Exchanges of a message", "congestion: system)", "q: quit "] {
                assert!(first.contains(words), "{words} at {size:?}:\n{first}");
            }
            // The latest records are cut if they do not fit.
            assert_eq!(first.contains('…'), usize::from(size.0) < words[0].len(), "{size:?}:\n{first}");
            assert!(
                first.contains("rows: message, bytes; columns: buffer, bytes") && first.contains("█ from")
            );
            let is_whole = !first.contains("more ");
            assert_eq!(is_whole, size.1 >= 60, "{first}");
            (place.across, place.down) = (usize::MAX, usize::MAX);
            let last = screen(&mut place);
            for words in ["18000", "12000", "21.6 k", "█ from", "· from"] {
                assert!(last.contains(words), "{words} at {size:?}:\n{last}");
            }
        }
    }

    #[test]
    fn shades_have_colours_unless_they_are_unwanted() {
        let line = coloured("1000  ·  0.8  █ 8", true);
        let colors: Vec<_> = line.spans.iter().map(|span| (&*span.content, span.style.fg)).collect();
        let (dark, light) = (Some(Color::Indexed(61)), Some(Color::Indexed(220)));
        assert_eq!(colors, [("1000  ", None), ("·  0.8", dark), ("  ", None), ("█ 8", light), ("", None)]);
        assert_eq!(coloured("█ 8", false).spans.len(), 1);
    }
}
