//! `kiban lab live`: shows the progress of a run.

use clap::Args;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use kiban_lab::engine::{self, Live as Watch, Manifest, Record, View, questions};
use kiban_os::Clock;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Gauge, Paragraph, Wrap};
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
/// shares the directory. Press left or right for another picture, q to quit.
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
    let mut picture = 0;
    loop {
        let view = watch.look(clock.now()).map_err(|error| error.to_string())?;
        terminal.draw(|frame| draw(frame, &view, picture)).map_err(terminal_error)?;
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
            KeyCode::Right => picture = (picture + 1) % pictures,
            KeyCode::Left => picture = (picture + pictures - 1) % pictures,
            _ => {}
        }
    }
}

/// Draws the screen: progress, warnings, a picture and the latest records.
fn draw(frame: &mut Frame<'_>, view: &View<'_>, picture: usize) {
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
    draw_picture(frame, middle, view, picture);
    let lines: Vec<Line<'_>> = view.latest.iter().map(|record| Line::raw(line(record))).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" latest records ")), last);
}

fn draw_picture(frame: &mut Frame<'_>, area: Rect, view: &View<'_>, place: usize) {
    let count = view.pictures.len();
    let (title, text) = match view.pictures.get(place % count.max(1)) {
        Some(picture) => (
            format!(" {} ({} of {count}; left/right for others) ", picture.title, place % count + 1),
            &picture.text,
        ),
        None => (" no picture: no parameter varies, or there are no records yet ".to_owned(), &String::new()),
    };
    let paragraph = Paragraph::new(text.as_str()).wrap(Wrap { trim: false });
    frame.render_widget(paragraph.block(Block::bordered().title(title)), area);
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
        for (place, shown, hidden) in [(0, "the one", "the other"), (3, "the other", "the one")] {
            terminal.draw(|frame| draw(frame, &view, place)).expect("it is memory");
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
        small.draw(|frame| draw(frame, &view, 0)).expect("it is memory");
        assert!(text(&view).contains("the other"));
    }
}
