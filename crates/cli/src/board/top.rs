//! `kiban top`: a live view of a running board.

use crate::board::control::{BoardName, query_status, status_text};
use clap::Args;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use kiban_service::control::ControlClient;
use kiban_service::status::Status;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::widgets::{Block, Paragraph, Sparkline};
use std::collections::VecDeque;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

/// The interval between updates; keys are handled at once.
const PAUSE: Duration = Duration::from_secs(1);
/// The number of samples in the graph.
const HISTORY: usize = 512;

/// Watch a running board: rates, ports, circuits and services, every second.
///
/// Press q to quit. Without a terminal it prints the status once, like `kiban status`.
#[derive(Args)]
#[command(after_help = "Examples:\n  kiban top\n  kiban top lab")]
pub(crate) struct Top {
    #[command(flatten)]
    which: BoardName,
}

impl Top {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let mut caller = self.which.call()?;
        let first = query_status(&mut caller)?;
        if !std::io::stdout().is_terminal() {
            crate::output::print(&status_text(&first))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut terminal = ratatui::init();
        let watched = show(&mut terminal, &mut caller, first);
        ratatui::restore();
        watched.map(|()| ExitCode::SUCCESS)
    }
}

/// Updates the screen until the user quits or the board exits.
fn show(
    terminal: &mut ratatui::DefaultTerminal,
    caller: &mut ControlClient,
    mut status: Status,
) -> Result<(), String> {
    let terminal_error = |error: std::io::Error| format!("cannot use the terminal: {error}");
    let mut history = VecDeque::new();
    loop {
        note(&mut history, &status);
        terminal.draw(|frame| draw(frame, &status, &history)).map_err(terminal_error)?;
        if event::poll(PAUSE).map_err(terminal_error)? {
            let Event::Key(key) = event::read().map_err(terminal_error)? else { continue };
            let leaves = match key.code {
                KeyCode::Char('q') | KeyCode::Esc => true,
                KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
                _ => false,
            };
            if leaves && key.kind == KeyEventKind::Press {
                return Ok(());
            }
        }
        status = query_status(caller)?;
    }
}

/// Adds the current rate in bit/s, summed over all ports, to the history, which has the newest first.
fn note(history: &mut VecDeque<u64>, status: &Status) {
    let bits: f64 = status.ports.iter().map(|port| port.rates.bits_in + port.rates.bits_out).sum();
    history.push_front(bits as u64);
    history.truncate(HISTORY);
}

fn draw(frame: &mut Frame<'_>, status: &Status, history: &VecDeque<u64>) {
    let [above, below] = Layout::vertical([Constraint::Length(6), Constraint::Fill(1)]).areas(frame.area());
    let now = history.front().copied().unwrap_or(0) as f64 / 1e6;
    let title =
        format!(" {}: {now:.1} Mbit/s on all ports, newest on the right; press q to quit ", status.name);
    let block = Block::bordered().title(title);
    let width = usize::from(block.inner(above).width);
    let shown: Vec<u64> = history.iter().take(width).rev().copied().collect();
    frame.render_widget(Sparkline::default().data(&shown).block(block), above);
    frame.render_widget(Paragraph::new(status_text(status)), below);
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_service::status::{Port, Rates};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    #[test]
    fn the_screen_shows_the_rate_and_the_ports() {
        let rates = Rates { bits_in: 3e6, bits_out: 4.5e6, ..Rates::default() };
        let port = Port { name: "lan".into(), state: "up".into(), rates, ..Port::default() };
        let status = Status { name: "lab".into(), ports: vec![port], ..Status::default() };
        let mut history = VecDeque::new();
        note(&mut history, &status);
        let mut terminal = Terminal::new(TestBackend::new(120, 30)).expect("it is memory");
        terminal.draw(|frame| draw(frame, &status, &history)).expect("it is memory");
        let screen = terminal.backend().to_string();
        for words in ["lab: 7.5 Mbit/s", "lan", "4.50"] {
            assert!(screen.contains(words), "{words}:\n{screen}");
        }
        let mut small = Terminal::new(TestBackend::new(1, 1)).expect("it is memory");
        small.draw(|frame| draw(frame, &status, &history)).expect("any size is valid");
    }
}
