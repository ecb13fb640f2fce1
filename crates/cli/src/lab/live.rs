//! `kiban lab live`: shows the progress of a run.

use clap::Args;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use kiban_lab::engine::{self, Live as Watch, Manifest, Record, View, questions};
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
    let warnings = view.warnings.len() as u16;
    let latest = view.latest.len().clamp(1, 6) as u16 + 2;
    let [bar, warned, middle, last] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(warnings),
        Constraint::Fill(1),
        Constraint::Length(latest),
    ])
    .areas(frame.area());
    let part = if view.trials == 0 { 1.0 } else { (view.done as f64 / view.trials as f64).min(1.0) };
    let gauge = Gauge::default()
        .block(Block::bordered().title(format!(" {} ", view.question)))
        .gauge_style(Style::new().fg(Color::Blue))
        .ratio(part)
        .label(progress(view));
    frame.render_widget(gauge, bar);
    let lines: Vec<Line<'_>> =
        view.warnings.iter().map(|warning| Line::styled(format!("! {warning}"), Color::Yellow)).collect();
    frame.render_widget(Paragraph::new(lines), warned);
    draw_picture(frame, middle, view, place);
    let lines: Vec<Line<'_>> = view.latest.iter().map(|record| Line::raw(line(record))).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" latest records ")), last);
}

fn draw_picture(frame: &mut Frame<'_>, area: Rect, view: &View<'_>, place: &mut Place) {
    let count = view.pictures.len();
    let Some(picture) = view.pictures.get(place.picture % count.max(1)) else {
        let block = Block::bordered().title(" no picture: no parameter varies, or there are no records yet ");
        return frame.render_widget(block, area);
    };
    let block = Block::bordered()
        .title(format!(" {} ({} of {count}) ", picture.title, place.picture % count + 1))
        .title_bottom(" tab: next picture, arrows: scroll, q: quit ");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let text = Scrolled::of(&picture.text);
    place.across = place.across.min(text.width().saturating_sub(inner.width.into()));
    place.down = place.down.min(text.height().saturating_sub(inner.height.into()));
    let shown = text.rows(place.across, place.down);
    let lines: Vec<Line<'_>> = shown.iter().map(|row| coloured(row, place.has_colours)).collect();
    frame.render_widget(Paragraph::new(lines), inner);
}

/// The text of a picture. The title and the head of a table stay when its rows are scrolled down, and the
/// labels of its rows stay when its columns are scrolled across.
struct Scrolled<'a> {
    title: Vec<&'a str>,
    /// The names of the columns, and the rule below them.
    head: Vec<&'a str>,
    rows: Vec<&'a str>,
    /// The width of the labels, with the space after them.
    label: usize,
}

impl<'a> Scrolled<'a> {
    fn of(text: &'a str) -> Scrolled<'a> {
        let is_rule = |line: &&str| line.starts_with("--") && line.bytes().all(|byte| b"- ".contains(&byte));
        let mut title: Vec<&str> = text.trim_end().lines().collect();
        let Some(rule) = title.iter().position(is_rule).filter(|&rule| rule > 0) else {
            return Scrolled { title: Vec::new(), head: Vec::new(), rows: title, label: 0 };
        };
        let rows = title.split_off(rule + 1);
        let head = title.split_off(rule - 1);
        let label = head[1].split_once("  ").map_or(0, |(label, _)| label.len() + 2);
        Scrolled { title, head, rows, label }
    }

    fn width(&self) -> usize {
        self.head.iter().chain(&self.rows).map(|row| row.chars().count()).max().unwrap_or(0)
    }

    fn height(&self) -> usize {
        self.title.len() + self.head.len() + self.rows.len()
    }

    /// Returns the text without the columns and rows that are scrolled away.
    fn rows(&self, across: usize, down: usize) -> Vec<String> {
        let cut = |row: &&str| -> String {
            let label = row.chars().take(self.label);
            label.chain(row.chars().skip(self.label + across)).collect()
        };
        let title = self.title.iter().map(|&line| line.to_owned());
        title.chain(self.head.iter().map(cut)).chain(self.rows.iter().skip(down).map(cut)).collect()
    }
}

/// Gives the five shades of a map colours that colour-blind readers can tell apart (those of viridis).
fn coloured(row: &str, has_colours: bool) -> Line<'_> {
    const SHADES: [(char, u8); 5] = [('·', 61), ('░', 31), ('▒', 36), ('▓', 77), ('█', 220)];
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

/// Formats a record as one line: its point and its metrics.
fn line(record: &Record) -> String {
    let figures: Vec<String> = record
        .metrics
        .iter()
        .map(|(name, value)| format!("{name} {}", kiban_lab::table::figure(*value)))
        .collect();
    format!("{}: {}", record.point, figures.join(", "))
}

fn text(view: &View<'_>) -> String {
    let mut text = format!("{}: {}\n", view.question, progress(view));
    view.warnings.iter().for_each(|warning| text += &format!("! {warning}\n"));
    view.pictures.iter().for_each(|picture| text += &format!("\n{}\n", picture.text));
    text += "\nlatest records:\n";
    view.latest.iter().for_each(|record| text += &format!("  {}\n", line(record)));
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
    use kiban_lab::report::picture::{Lines, Scale};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    #[test]
    fn the_screen_shows_progress_warnings_a_picture_and_the_latest_records() {
        let picture = |title: &str, text: &str| Picture {
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
        };
        let record = json!({
            "key": "k", "question": "toy", "point": { "message": 400 }, "repetition": 0, "seed": 1, "version": "0",
            "metrics": { "mbps": 2.5 },
        });
        let latest = [serde_json::from_value(record).expect("a record")];
        let warnings = ["others used the machine during 3 trials, in every try".to_owned()];
        let pictures = [picture("first", "the one\n"), picture("second", "the other\n")];
        let view = View {
            question: "toy",
            done: 30,
            trials: 120,
            per_second: Some(2.0),
            left: Some(Duration::from_secs(45)),
            warnings: &warnings,
            pictures: &pictures,
            latest: &latest,
        };
        let mut terminal = Terminal::new(TestBackend::new(80, 20)).expect("it is memory");
        for (picture, shown, hidden) in [(0, "the one", "the other"), (3, "the other", "the one")] {
            let mut place = Place { picture, ..Place::default() };
            terminal.draw(|frame| draw(frame, &view, &mut place)).expect("it is memory");
            let screen = terminal.backend().to_string();
            for words in
                ["30 of 120 trials", "45 seconds to go", "! others used", "message=400: mbps 2.50", shown]
            {
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
    fn a_map_that_is_too_large_is_scrolled_below_its_head_and_beside_its_labels() {
        let map = "rate, message down, buffer across\n        2000    4000  8000\n----  ------  ------  ----\n \
                   500  ·  1.5  ▒ 22.0  █ 9\n1000  ·  0.8  ▓ 35.0  █ 8\n1500  ·  1.7  ▓ 31.0  █ 7\n";
        let text = Scrolled::of(map);
        assert_eq!((text.width(), text.height()), (26, 6));
        let whole: Vec<String> = map.lines().map(Into::into).collect();
        assert_eq!(text.rows(0, 0), whole);
        assert_eq!(
            text.rows(8, 1),
            [
                "rate, message down, buffer across",
                "        4000  8000",
                "----  ------  ----",
                "1000  ▓ 35.0  █ 8",
                "1500  ▓ 31.0  █ 7"
            ]
        );
        let lines = Scrolled::of("a curve\nof two lines\n");
        assert_eq!(lines.rows(2, 1), [" two lines"]);
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
